//! From the first byte to a session: TLS, the client's name and proof, what it is told.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::BytesMut;
use thalweg_base::{Error, Result};
use thalweg_engine::REPORTED_SETTINGS;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::cancel::Cancels;
use super::connection::Connection;
use super::message::{self, Opening};
use super::sasl;
use super::socket::{self, Input, Output, Stream};
use super::write::Out;
use crate::auth::User;
use crate::config::Authentication;
use crate::context::Context;
use crate::metrics::Opened;
use crate::statement::Protocol;

/// Lets a client in. `None`: it has been told why not, or has asked for something else.
pub async fn begin(
    stream: TcpStream,
    context: &Arc<Context>,
    cancels: &Arc<Cancels>,
) -> Option<Connection> {
    let from = stream.peer_addr().ok().map(|address| address.ip());
    let mut stream = Stream::Plain(stream);
    let mut buffer = BytesMut::new();
    let (minor, parameters) = loop {
        match next(&mut stream, &mut buffer).await {
            Ok(Some(Opening::Tls)) if matches!(stream, Stream::Plain(_)) => {
                // Bytes that came before TLS are not the client's that speaks it.
                if !buffer.is_empty() {
                    return None;
                }
                stream = encrypt(stream, context).await?;
            }
            Ok(Some(Opening::Tls | Opening::Gss)) => stream.write_all(b"N").await.ok()?,
            Ok(Some(Opening::Cancel { process, secret })) => {
                cancels.cancel(process, secret);
                return None;
            }
            Ok(Some(Opening::Startup { minor, parameters })) => break (minor, parameters),
            Ok(None) => return None,
            Err(e) => {
                refuse(socket::split(stream, buffer).1, &e).await;
                return None;
            }
        }
    };
    let peer = Peer { from, encrypted: matches!(stream, Stream::Tls(_)) };
    let (mut input, mut output) = socket::split(stream, buffer);
    match enter(&mut input, &mut output, context, cancels, &peer, minor, &parameters).await {
        Ok((session, user, told, held)) => Some(Connection {
            context: Arc::clone(context),
            input,
            output,
            session,
            user,
            statements: Default::default(),
            portals: Default::default(),
            cursors: Default::default(),
            implicit: false,
            untaken: Default::default(),
            skipping: false,
            told,
            has_set: false,
            held,
        }),
        Err(e) => {
            refuse(output, &e).await;
            None
        }
    }
}

async fn next(stream: &mut Stream, buffer: &mut BytesMut) -> Result<Option<Opening>> {
    loop {
        if let Some(opening) = message::opening(buffer)? {
            return Ok(Some(opening));
        }
        if !matches!(stream.read_buf(buffer).await, Ok(1..)) {
            return Ok(None);
        }
    }
}

async fn encrypt(mut stream: Stream, context: &Context) -> Option<Stream> {
    let Some(tls) = &context.tls else {
        stream.write_all(b"N").await.ok()?;
        return Some(stream);
    };
    stream.write_all(b"S").await.ok()?;
    let Stream::Plain(plain) = stream else { return None };
    let encrypted = TlsAcceptor::from(Arc::clone(tls)).accept(plain).await.ok()?;
    Some(Stream::Tls(Box::new(encrypted)))
}

async fn refuse(mut output: Output, e: &Error) {
    output.out.error(e, true);
    output.close().await;
}

/// The other end of the connection.
struct Peer {
    from: Option<IpAddr>,
    encrypted: bool,
}

type Entered = (
    thalweg_engine::Session,
    User,
    Told,
    (super::cancel::Key, crate::connections::Connection, Opened),
);

async fn enter(
    input: &mut Input,
    output: &mut Output,
    context: &Context,
    cancels: &Arc<Cancels>,
    peer: &Peer,
    minor: u16,
    parameters: &[(String, String)],
) -> Result<Entered> {
    let parameter =
        |name: &str| parameters.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
    // Options of later versions begin so, and are told to be unknown.
    let unknown: Vec<String> =
        parameters.iter().filter(|(n, _)| n.starts_with("_pq_.")).map(|(n, _)| n.clone()).collect();
    if minor > 0 || !unknown.is_empty() {
        output.out.negotiate_version(&unknown);
    }
    let name = parameter("user").filter(|name| !name.is_empty()).ok_or_else(|| {
        Error::user("the client does not say who it is").code("28000").hint("give a user's name")
    })?;
    let place =
        context.connections.open().inspect_err(|_| context.metrics.refused(Protocol::Pg))?;
    let user = authenticate(input, output, context, peer, name)
        .await
        .inspect_err(|_| context.metrics.rejected(Protocol::Pg))?;
    let session = context.authenticator.session(&user)?;
    session.set_timeout(context.config.statement_timeout);
    for (name, value) in settings(parameters)? {
        set(&session, &name, &value).await?;
    }
    let key = cancels.enter(&session)?;
    let out = &mut output.out;
    out.authentication_ok();
    let told = Told::new(&session);
    told.all(out);
    out.key(key.process, key.secret);
    out.ready(session.transaction_status());
    output.flush().await.map_err(|e| Error::io("the client has left", e))?;
    Ok((session, user, told, (key, place, context.metrics.connection(Protocol::Pg))))
}

async fn authenticate(
    input: &mut Input,
    output: &mut Output,
    context: &Context,
    peer: &Peer,
    name: &str,
) -> Result<User> {
    let authenticator = &context.authenticator;
    match authenticator.mode() {
        Authentication::Trust => authenticator.trusted(name, peer.from),
        Authentication::Scram => {
            sasl::prove(input, output, authenticator, name, peer.from, peer.encrypted).await
        }
    }
}

/// What the client wants set: parameters of their own, and `-c name=value` in `options`.
fn settings(parameters: &[(String, String)]) -> Result<Vec<(String, String)>> {
    let mut found = vec![];
    for (name, value) in parameters {
        match name.as_str() {
            "user" | "database" | "replication" => {}
            "options" => {
                let mut words = value.split_whitespace();
                while let Some(word) = words.next() {
                    let setting = match word.strip_prefix("-c") {
                        Some("") => words.next().unwrap_or_default(),
                        Some(setting) => setting,
                        None => word.strip_prefix("--").unwrap_or(word),
                    };
                    let (name, value) = setting.split_once('=').ok_or_else(|| {
                        Error::user(format!("the option {word:?} is not understood"))
                            .code("22023")
                            .hint("options are given as -c name=value")
                    })?;
                    found.push((name.replace('-', "_"), value.to_string()));
                }
            }
            _ if name.starts_with("_pq_.") => {}
            _ => found.push((name.clone(), value.clone())),
        }
    }
    Ok(found)
}

async fn set(session: &thalweg_engine::Session, name: &str, value: &str) -> Result<()> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    if !name.contains('.') || !name.chars().all(is_name) {
        return session.set(name, value).map(drop);
    }
    let sql = format!("SET {name} = '{}'", value.replace('\'', "''"));
    session.query(&sql).await?.collect().await.map(drop)
}

/// Settings that clients are told of, and told again when they change.
pub struct Told(Vec<(&'static str, String)>);

impl Told {
    fn new(session: &thalweg_engine::Session) -> Told {
        let setting = |name: &&'static str| (*name, session.setting(name).unwrap_or_default());
        Told(REPORTED_SETTINGS.iter().map(setting).collect())
    }

    fn all(&self, out: &mut Out) {
        self.0.iter().for_each(|(name, value)| out.parameter(name, value));
    }

    pub fn again(&mut self, session: &thalweg_engine::Session, out: &mut Out) {
        for (name, value) in &mut self.0 {
            let now = session.setting(name).unwrap_or_default();
            if *value != now {
                out.parameter(name, &now);
                *value = now;
            }
        }
    }
}
