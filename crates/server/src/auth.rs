//! Who a client is, and whether it is let in.
//!
//! `auth/scram.rs`: the exchange that proves a password. `auth/tries.rs`: how often it may fail.
//! A client that is refused does not learn whether there is such a user: names without a password
//! go through the same exchange, with a salt of their own.

mod scram;
mod tries;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use thalweg_base::text::quoted;
use thalweg_base::{Clock, Error, Result, SystemClock};
use thalweg_engine::access::{
    Access, Audit, Event, ITERATIONS, Role, RoleId, SUPERUSER, Verifier, token_hash,
};
use thalweg_engine::{Engine, Session};

use crate::config::Authentication;
pub use scram::MESSAGE_BYTES_MAX as SASL_MESSAGE_BYTES_MAX;
use scram::{Exchange, Refusal};
use tries::Tries;

/// Decides who is let in.
pub struct Authenticator {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Arc<Engine>,
    mode: Authentication,
    /// What SCRAM may be bound to: the hash of the server's certificate.
    end_point: Option<Vec<u8>>,
    clock: Box<dyn Clock>,
    tries: Mutex<Tries>,
    /// Connections of roles that are limited.
    open: Mutex<HashMap<RoleId, u32>>,
    /// Of salts for names without a password, in a database that has no secret for them yet.
    secret: [u8; 32],
}

/// Who a connection's statements run for. The connection counts as theirs until the last copy is
/// dropped.
#[derive(Clone)]
pub struct User {
    pub name: String,
    /// Held.
    _login: Option<Arc<Login>>,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
impl User {
    /// Nobody who was let in.
    pub fn named(name: &str) -> User {
        User { name: name.into(), _login: None }
    }
}

struct Login {
    shared: Arc<Shared>,
    role: RoleId,
    name: String,
    from: Option<IpAddr>,
}

impl Drop for Login {
    fn drop(&mut self) {
        let mut open = self.shared.open.lock();
        if let Some(count) = open.get_mut(&self.role) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.role);
            }
        }
        drop(open);
        self.shared.note("logout", &self.name, self.from, None, None);
    }
}

/// An exchange under way.
pub struct Scram {
    shared: Arc<Shared>,
    exchange: Exchange,
    name: String,
    role: Option<Arc<Role>>,
    from: Option<IpAddr>,
    mechanisms: &'static [&'static str],
}

const MECHANISM: &str = "SCRAM-SHA-256";
const BOUND_MECHANISM: &str = "SCRAM-SHA-256-PLUS";
/// Of the server's nonce: as many as PostgreSQL's.
const NONCE_BYTES: usize = 18;

impl Authenticator {
    /// `end_point`: of the server's certificate.
    pub fn new(engine: Arc<Engine>, mode: Authentication, end_point: Option<Vec<u8>>) -> Self {
        Self::with_clock(engine, mode, end_point, Box::new(SystemClock::default()))
    }

    fn with_clock(
        engine: Arc<Engine>,
        mode: Authentication,
        end_point: Option<Vec<u8>>,
        clock: Box<dyn Clock>,
    ) -> Self {
        let mut secret = [0; 32];
        // Without random numbers there is no nonce either, and no exchange begins.
        let _ = SystemRandom::new().fill(&mut secret);
        let shared = Shared {
            engine,
            mode,
            end_point,
            clock,
            tries: Mutex::default(),
            open: Mutex::default(),
            secret,
        };
        Authenticator { shared: Arc::new(shared) }
    }

    pub fn mode(&self) -> Authentication {
        self.shared.mode
    }

    /// A client that need not prove its name. In a database where nobody has made a role, every
    /// name is the superuser: `psql` comes with that of the operating system's user.
    ///
    /// # Errors
    /// It has to prove it, or there is no such user.
    pub fn trusted(&self, name: &str, from: Option<IpAddr>) -> Result<User> {
        let shared = &self.shared;
        let admit = || {
            if shared.mode != Authentication::Trust {
                return Err(Error::user("this server takes nobody's word").code("28000"));
            }
            let access = shared.engine.roles()?;
            let role = match access.named(name) {
                Some(role) => role,
                None if !access.has_roles() => access.existing(SUPERUSER)?,
                None => {
                    return Err(Error::user(format!("role {} does not exist", quoted(name)))
                        .code("28000")
                        .hint("CREATE ROLE … LOGIN makes one"));
                }
            };
            shared.admit(role, from)
        };
        shared.noted("trust", name, from, admit())
    }

    /// Begins the proof of a password. `encrypted`: over TLS, to which it may be bound.
    ///
    /// # Errors
    /// Too many have failed: it has to wait.
    pub fn scram(&self, name: &str, from: Option<IpAddr>, encrypted: bool) -> Result<Scram> {
        let shared = &self.shared;
        shared.check_tries(name, from)?;
        let access = shared.engine.roles()?;
        let role = access.named(name).cloned();
        let verifier = shared.verifier(&access, name, role.as_deref());
        let mut nonce = [0; NONCE_BYTES];
        let no_random = |_| Error::internal("the system gave no random numbers");
        SystemRandom::new().fill(&mut nonce).map_err(no_random)?;
        let end_point = shared.end_point.clone().filter(|_| encrypted);
        let mechanisms: &[&str] =
            if end_point.is_some() { &[BOUND_MECHANISM, MECHANISM] } else { &[MECHANISM] };
        Ok(Scram {
            exchange: Exchange::new(verifier, STANDARD.encode(nonce), end_point),
            shared: Arc::clone(shared),
            name: name.into(),
            role,
            from,
            mechanisms,
        })
    }

    /// A name and a password in clear, as HTTP and Flight have them. Takes some milliseconds.
    ///
    /// # Errors
    /// It is not theirs, or they may not log in.
    pub fn password(&self, name: &str, password: &str, from: Option<IpAddr>) -> Result<User> {
        let shared = &self.shared;
        if shared.mode == Authentication::Trust {
            return self.trusted(name, from);
        }
        let check = || {
            shared.check_tries(name, from)?;
            let access = shared.engine.roles()?;
            let role = access.named(name);
            let verifier = shared.verifier(&access, name, role.map(Arc::as_ref));
            let matches = verifier.matches(password);
            shared.prove(name, role.map(Arc::as_ref), matches, from)
        };
        shared.noted("password", name, from, check())
    }

    /// A token of `ALTER ROLE … ADD TOKEN`.
    ///
    /// # Errors
    /// It is nobody's, or no longer valid, or whose it is may not log in.
    pub fn token(&self, token: &str, from: Option<IpAddr>) -> Result<User> {
        let shared = &self.shared;
        let mut name = String::new();
        let mut check = || {
            shared.check_address(from)?;
            let access = shared.engine.roles()?;
            let hash = token_hash(token);
            let valid = access.with_token(&hash).filter(|role| {
                name.clone_from(&role.name);
                let of = role.tokens.iter().find(|t| t.hash == hash);
                of.is_some_and(|t| t.valid_until_ms.is_none_or(|until| now_ms() < until))
            });
            let Some(role) = valid else {
                shared.tries.lock().address_failed(from, shared.clock.now_ns());
                return Err(Error::user("the token is not valid")
                    .code("28P01")
                    .hint("ALTER ROLE … ADD TOKEN makes one"));
            };
            shared.admit(role, from)
        };
        let result = check();
        shared.noted("token", &name, from, result)
    }

    /// Where the user's statements run.
    ///
    /// # Errors
    /// Its role was dropped.
    pub fn session(&self, user: &User) -> Result<Session> {
        self.shared.engine.session_as(&user.name)
    }
}

impl Scram {
    /// What the client may choose from, the best first.
    pub fn mechanisms(&self) -> &'static [&'static str] {
        self.mechanisms
    }

    /// The answer to the client's first message.
    ///
    /// # Errors
    /// It is none, or for a mechanism that was not offered.
    pub fn first(&mut self, mechanism: &str, message: &[u8]) -> Result<Vec<u8>> {
        if !self.mechanisms.contains(&mechanism) {
            return Err(Error::user("the client chose an authentication that was not offered")
                .code("08P01"));
        }
        let answer = self.exchange.client_first(message, mechanism == BOUND_MECHANISM);
        answer.map(String::into_bytes).map_err(|refusal| refused(refusal, &self.name))
    }

    /// The answer to the client's last message, and who it is.
    ///
    /// # Errors
    /// It does not know the password, or may not log in.
    pub fn last(self, message: &[u8]) -> Result<(Vec<u8>, User)> {
        let Scram { shared, exchange, name, role, from, .. } = self;
        let check = || {
            // Again: many exchanges may have begun side by side.
            shared.check_tries(&name, from)?;
            let answer = match exchange.client_final(message) {
                Ok(answer) => Some(answer),
                Err(Refusal::Proof) => None,
                Err(refusal) => return Err(refused(refusal, &name)),
            };
            let user = shared.prove(&name, role.as_deref(), answer.is_some(), from)?;
            Ok((answer.unwrap_or_default().into_bytes(), user))
        };
        match check() {
            Ok((answer, user)) => {
                let user = shared.noted("scram", &name, from, Ok(user))?;
                Ok((answer, user))
            }
            Err(e) => Err(shared.refusal("scram", &name, from, e)),
        }
    }
}

impl Shared {
    /// The role's; for others, one that no password fits.
    fn verifier(&self, access: &Access, name: &str, role: Option<&Role>) -> Verifier {
        if let Some(verifier) = role.and_then(|r| r.verifier.clone()) {
            return verifier;
        }
        let secret = access.mock_secret().unwrap_or(&self.secret);
        let hash = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), name.as_bytes());
        Verifier {
            iterations: ITERATIONS,
            salt: hash.as_ref()[..16].to_vec(),
            // Nobody has what it is the hash of.
            stored_key: self.secret,
            server_key: self.secret,
        }
    }

    /// After the proof of a password: `proven` says whether it was the role's.
    fn prove(
        self: &Arc<Self>,
        name: &str,
        role: Option<&Role>,
        proven: bool,
        from: Option<IpAddr>,
    ) -> Result<User> {
        let role = role.filter(|role| {
            let in_time = role.valid_until_ms.is_none_or(|until| now_ms() < until);
            proven && role.verifier.is_some() && in_time
        });
        let Some(role) = role else {
            self.tries.lock().failed(name, from, self.clock.now_ns());
            return Err(refused(Refusal::Proof, name));
        };
        self.tries.lock().succeeded(name);
        self.admit(role, from)
    }

    /// Lets in who has proven to be that role.
    fn admit(self: &Arc<Self>, role: &Role, from: Option<IpAddr>) -> Result<User> {
        if !role.login {
            return Err(Error::user(format!(
                "role {} is not permitted to log in",
                quoted(&role.name)
            ))
            .code("28000")
            .hint("ALTER ROLE … LOGIN permits it"));
        }
        let mut open = self.open.lock();
        let count = open.entry(role.id).or_default();
        if let Some(most) = role.connections_max
            && *count >= most
            && !role.superuser
        {
            if *count == 0 {
                open.remove(&role.id);
            }
            return Err(Error::resources(format!(
                "role {} has all {most} connections that it may have",
                quoted(&role.name)
            ))
            .code("53300")
            .hint("close one, or raise its CONNECTION LIMIT"));
        }
        *count += 1;
        drop(open);
        let (shared, name) = (Arc::clone(self), role.name.clone());
        let login = Login { shared, role: role.id, name: name.clone(), from };
        Ok(User { name, _login: Some(Arc::new(login)) })
    }

    fn check_tries(&self, name: &str, from: Option<IpAddr>) -> Result<()> {
        wait(self.tries.lock().wait_ns(name, from, self.clock.now_ns()))
    }

    fn check_address(&self, from: Option<IpAddr>) -> Result<()> {
        wait(self.tries.lock().address_wait_ns(from, self.clock.now_ns()))
    }

    fn noted(
        &self,
        method: &str,
        name: &str,
        from: Option<IpAddr>,
        result: Result<User>,
    ) -> Result<User> {
        match result {
            Ok(user) => {
                self.note("login", &user.name, from, Some(method), None);
                Ok(user)
            }
            Err(e) => Err(self.refusal(method, name, from, e)),
        }
    }

    fn refusal(&self, method: &str, name: &str, from: Option<IpAddr>, e: Error) -> Error {
        self.note("login", name, from, Some(method), Some(&e));
        e
    }

    fn note(
        &self,
        event: &str,
        name: &str,
        from: Option<IpAddr>,
        method: Option<&str>,
        error: Option<&Error>,
    ) {
        if self.engine.audit() == Audit::None {
            return;
        }
        let mut event = Event::new(event).text("user", name);
        if let Some(from) = from {
            event = event.text("address", &from.to_string());
        }
        if let Some(method) = method {
            event = event.text("method", method).outcome(error);
        }
        event.write();
    }
}

/// Why the client is not let in, in words that do not tell whether there is such a user.
fn refused(refusal: Refusal, name: &str) -> Error {
    match refusal {
        Refusal::Proof => {
            Error::user(format!("password authentication failed for user {}", quoted(name)))
                .code("28P01")
        }
        Refusal::Message(what) => {
            Error::user(format!("malformed SCRAM message: {what}")).code("08P01")
        }
    }
}

fn wait(ns: u64) -> Result<()> {
    if ns == 0 {
        return Ok(());
    }
    let seconds = ns.div_ceil(1_000_000_000);
    Err(Error::resources(format!("too many tries to log in have failed: wait {seconds} s"))
        .code("53400"))
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_millis().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(crate) use scram::tests::answer as client_final;

#[cfg(test)]
mod tests;
