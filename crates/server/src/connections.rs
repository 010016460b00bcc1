//! Counts the connections of clients, and refuses those that are too many.

use std::sync::Arc;

use thalweg_base::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Open connections of all protocols.
pub struct Connections {
    free: Arc<Semaphore>,
    most: usize,
}

/// One of them; it is free again when this is dropped.
pub struct Connection(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

impl Connections {
    pub fn new(most: usize) -> Self {
        Connections { free: Arc::new(Semaphore::new(most)), most }
    }

    /// # Errors
    /// There are as many as there may be.
    pub fn open(&self) -> Result<Connection> {
        Arc::clone(&self.free).try_acquire_owned().map(Connection).map_err(|_| {
            Error::resources(format!("all {} connections of the server are in use", self.most))
                .code("53300")
                .hint("close some, or raise --max-connections")
        })
    }
}
