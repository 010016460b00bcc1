//! What all connections share.

use std::sync::Arc;

use thalweg_engine::Engine;
use tokio::sync::watch;

use crate::auth::Authenticator;
use crate::config::Config;
use crate::connections::Connections;
use crate::metrics::Metrics;

pub struct Context {
    pub engine: Arc<Engine>,
    pub config: Config,
    pub authenticator: Authenticator,
    pub connections: Connections,
    pub metrics: Metrics,
    /// For both protocols; `None`: they are not encrypted.
    pub tls: Option<Arc<tokio_rustls::rustls::ServerConfig>>,
    /// Where the server is on its way to its end.
    pub phase: watch::Receiver<Phase>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Running,
    /// Statements that run may end; connections without one are closed, and no new ones come.
    Draining,
    /// Everything is stopped.
    Stopped,
}

impl Context {
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Returns once the server is at `phase` or beyond.
    pub async fn reached(&self, phase: Phase) {
        let mut watched = self.phase.clone();
        // The sender is gone: the server is.
        let _ = watched.wait_for(|now| *now >= phase).await;
    }
}
