//! Sessions of clients, which last from one call to the next.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use thalweg_base::{Error, Result};
use thalweg_engine::{Session, TransactionStatus};

use super::kept::{Kept, random};
use crate::auth::{Authenticator, User};

/// Sessions of all clients. Those that a client can open again without noticing make room.
const SESSIONS_MAX: usize = 1024;
const SESSION_IDLE: Duration = Duration::from_secs(12 * 60 * 60);

/// Bytes of the name that a client gives its session.
const NAME_BYTES_MAX: usize = 128;

/// So that a token of ours which has expired is told from one that was never ours.
const TOKEN_PREFIX: &str = "thalweg-session-";

pub struct Sessions {
    clients: Kept<Client>,
}

/// A client that comes back.
pub struct Client {
    pub user: User,
    /// The client made up its name, and would not notice that it has lost its settings.
    named: bool,
    session: OnceLock<Session>,
}

impl Client {
    fn new(user: User, named: bool) -> Arc<Self> {
        Arc::new(Client { user, named, session: OnceLock::new() })
    }

    /// Made when it is first wanted: many clients log in and leave.
    pub fn session(&self, authenticator: &Authenticator) -> Result<Session> {
        if let Some(session) = self.session.get() {
            return Ok(session.clone());
        }
        let session = authenticator.session(&self.user)?;
        Ok(self.session.get_or_init(|| session).clone())
    }

    fn may_go(&self) -> bool {
        let status = self.session.get().map(Session::transaction_status);
        !self.named && matches!(status, None | Some(TransactionStatus::Idle))
    }
}

impl Sessions {
    pub fn new() -> Self {
        let clients = Kept::new("session", SESSION_IDLE, SESSIONS_MAX);
        Sessions { clients: clients.giving_way(Client::may_go) }
    }

    /// The token by which the client is known from now on.
    pub fn log_in(&self, user: User) -> Result<String> {
        let token = format!("{TOKEN_PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(random()?));
        let client = Client::new(user.clone(), false);
        self.clients.keep_as(key("token", "", &token), &user, client)?;
        Ok(token)
    }

    /// `None`: the token is not one of [`Sessions::log_in`].
    pub fn of_token(&self, token: &str) -> Result<Option<Arc<Client>>> {
        if !token.starts_with(TOKEN_PREFIX) {
            return Ok(None);
        }
        let client = self.clients.get(&key("token", "", token));
        client.map(Some).ok_or_else(|| {
            Error::user("the session has ended: its token is no longer known")
                .code("28000")
                .hint("connect again with user and password")
        })
    }

    /// A session that the server names; the name is to be sent as a cookie.
    pub fn open(&self, user: &User) -> Result<(String, Arc<Client>)> {
        let name = BASE64_URL_SAFE_NO_PAD.encode(random()?);
        let client = Client::new(user.clone(), false);
        self.clients.keep_as(key("cookie", &user.name, &name), user, Arc::clone(&client))?;
        Ok((name, client))
    }

    /// `None`: there is none, or no longer.
    pub fn of_cookie(&self, user: &User, name: &str) -> Option<Arc<Client>> {
        self.clients.get(&key("cookie", &user.name, name))
    }

    /// A session that the client names, opened if it is not there.
    pub fn named(&self, user: &User, name: &str) -> Result<Arc<Client>> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(Error::user(format!(
                "the name of a session has between 1 and {NAME_BYTES_MAX} bytes"
            )));
        }
        let key = key("named", &user.name, name);
        if let Some(client) = self.clients.get(&key) {
            return Ok(client);
        }
        let client = Client::new(user.clone(), true);
        self.clients.keep_as(key, user, Arc::clone(&client))?;
        Ok(client)
    }

    pub fn close(&self, id: &SessionId) -> bool {
        self.clients.forget(&id.0).is_some()
    }

    pub fn sweep(&self) {
        self.clients.sweep();
    }
}

/// By which a session is found.
#[derive(Clone)]
pub struct SessionId(Bytes);

impl SessionId {
    pub fn token(token: &str) -> Self {
        SessionId(key("token", "", token))
    }

    pub fn cookie(user: &User, name: &str) -> Self {
        SessionId(key("cookie", &user.name, name))
    }

    pub fn named(user: &User, name: &str) -> Self {
        SessionId(key("named", &user.name, name))
    }
}

/// A name is its user's own.
fn key(kind: &str, user: &str, name: &str) -> Bytes {
    Bytes::from(format!("{kind}\0{user}\0{name}"))
}
