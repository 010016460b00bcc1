//! Cancel requests: they come on connections of their own, with the key of the one they mean.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use thalweg_base::{Error, Result};
use thalweg_engine::Session;

/// The sessions that can be cancelled, by the key that only their clients know.
pub struct Cancels {
    sessions: Mutex<HashMap<i32, (i32, Session)>>,
    next: AtomicI32,
    random: SystemRandom,
}

/// A session's entry; it is gone when this is dropped.
pub struct Key {
    cancels: Arc<Cancels>,
    pub process: i32,
    pub secret: i32,
}

impl Default for Cancels {
    fn default() -> Self {
        Cancels { sessions: Mutex::default(), next: AtomicI32::new(1), random: SystemRandom::new() }
    }
}

impl Cancels {
    pub fn enter(self: &Arc<Self>, session: &Session) -> Result<Key> {
        let mut secret = [0; 4];
        self.random
            .fill(&mut secret)
            .map_err(|_| Error::internal("the system gives no random numbers"))?;
        let secret = i32::from_be_bytes(secret);
        let mut sessions = self.sessions.lock();
        // Numbers come again after four thousand million connections; those in use do not.
        let process = loop {
            let process = self.next.fetch_add(1, Ordering::Relaxed) & i32::MAX;
            if !sessions.contains_key(&process) {
                break process;
            }
        };
        sessions.insert(process, (secret, session.clone()));
        drop(sessions);
        Ok(Key { cancels: Arc::clone(self), process, secret })
    }

    /// Nobody is told whether there was such a key.
    pub fn cancel(&self, process: i32, secret: i32) {
        let sessions = self.sessions.lock();
        if let Some((expected, session)) = sessions.get(&process)
            && *expected == secret
        {
            session.cancel();
        }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.cancels.sessions.lock().remove(&self.process);
    }
}
