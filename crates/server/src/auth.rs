//! Who a client is.

use std::sync::Arc;

use thalweg_base::Result;
use thalweg_engine::{Engine, Session};

use crate::config::Authentication;

/// Decides who is let in.
pub struct Authenticator {
    engine: Arc<Engine>,
    mode: Authentication,
}

/// Who a connection's statements run for.
#[derive(Clone, Debug)]
pub struct User {
    pub name: String,
}

impl Authenticator {
    pub fn new(engine: Arc<Engine>, mode: Authentication) -> Self {
        Authenticator { engine, mode }
    }

    pub fn mode(&self) -> Authentication {
        self.mode
    }

    /// A client that need not prove its name.
    ///
    /// # Errors
    /// It has to, or there is no such user.
    pub fn trusted(&self, name: &str) -> Result<User> {
        Ok(User { name: name.into() })
    }

    /// Where the user's statements run.
    pub fn session(&self, _user: &User) -> Result<Session> {
        Ok(self.engine.session())
    }
}
