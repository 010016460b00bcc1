//! Who a client is.

use std::sync::Arc;

use thalweg_base::{Error, Result};
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

    /// A client that says a password.
    ///
    /// # Errors
    /// It is not the user's.
    pub fn password(&self, name: &str, _password: &str) -> Result<User> {
        match self.mode {
            Authentication::Trust => self.trusted(name),
            Authentication::Scram => {
                Err(Error::user("the user or the password is not right").code("28P01"))
            }
        }
    }

    /// A client that shows a token.
    ///
    /// # Errors
    /// It is nobody's.
    pub fn token(&self, _token: &str) -> Result<User> {
        Err(Error::user("the token is not known").code("28000"))
    }

    /// Where the user's statements run.
    pub fn session(&self, _user: &User) -> Result<Session> {
        Ok(self.engine.session())
    }
}
