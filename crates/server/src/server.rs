//! Binds the addresses, accepts connections, and ends without cutting off what runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thalweg_base::{Error, Result};
use thalweg_engine::Engine;
use thalweg_engine::access::Role;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::auth::Authenticator;
use crate::config::{Authentication, Config};
use crate::connections::Connections;
use crate::context::{Context, Phase};
use crate::metrics::Metrics;
use crate::tls::{self, Tls};
use crate::{flight, http, pg};

/// A server that listens. Dropped, it stops at once; [`Server::shutdown`] lets statements end.
pub struct Server {
    context: Arc<Context>,
    phase: watch::Sender<Phase>,
    /// Threads of its own: a query that uses all of the engine's must not keep clients from being
    /// heard.
    runtime: Option<tokio::runtime::Runtime>,
    tasks: JoinSet<()>,
    /// Beside them: it shows metrics and health until the others have ended.
    operators: Option<JoinHandle<()>>,
    pg: Option<SocketAddr>,
    flight: Option<SocketAddr>,
    http: Option<SocketAddr>,
}

/// Reading messages and writing rows; queries have the engine's.
const THREADS: usize = 2;

/// For answers to operators and for traces that are under way when all else has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

impl Server {
    /// # Errors
    /// An address is in use or off loopback without authentication, or a certificate is broken.
    pub fn start(engine: Arc<Engine>, config: Config) -> Result<Server> {
        check(&config)?;
        check_roles(&engine, &config)?;
        let tls = certificate(&config)?;
        engine.set_audit(config.audit);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("thalweg-net")
            .enable_all()
            .build()
            .map_err(|e| Error::io("cannot start the server's threads", e))?;
        let (phase, watched) = watch::channel(Phase::Running);
        let context = Arc::new(Context {
            authenticator: Authenticator::new(
                Arc::clone(&engine),
                config.authentication,
                tls.as_ref().and_then(|t| t.end_point.clone()),
            ),
            connections: Connections::new(config.connections_max),
            metrics: Metrics::new(&engine, &config)?,
            tls: tls.map(|t| t.config),
            phase: watched,
            engine,
            config,
        });
        let mut tasks = JoinSet::new();
        let open = |what: &str, address: Option<SocketAddr>| -> Result<Option<Listening>> {
            let Some(address) = address else { return Ok(None) };
            let cannot = |e| cannot_listen(what, address, e);
            let listener = runtime.block_on(TcpListener::bind(address)).map_err(cannot)?;
            let bound = listener.local_addr().map_err(cannot)?;
            Ok(Some((listener, bound)))
        };
        let (pg, flight, http) = (
            open("pg", context.config.pg)?,
            open("flight", context.config.flight)?,
            open("http", context.config.http)?,
        );
        let addresses = [&pg, &flight, &http].map(|l| l.as_ref().map(|(_, address)| *address));
        let handle = runtime.handle();
        if let Some((listener, _)) = pg {
            tasks.spawn_on(pg::serve(listener, Arc::clone(&context)), handle);
        }
        if let Some((listener, _)) = flight {
            tasks.spawn_on(flight::serve(listener, Arc::clone(&context)), handle);
        }
        let operators =
            http.map(|(listener, _)| handle.spawn(http::serve(listener, Arc::clone(&context))));
        let [pg, flight, http] = addresses;
        Ok(Server { context, phase, runtime: Some(runtime), tasks, operators, pg, flight, http })
    }

    /// Where the PostgreSQL protocol is spoken: with the port that the system chose for port 0.
    pub fn pg(&self) -> Option<SocketAddr> {
        self.pg
    }

    pub fn flight(&self) -> Option<SocketAddr> {
        self.flight
    }

    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Takes no more clients, gives statements that run the time that the configuration says, and
    /// then stops what is left.
    pub fn shutdown(mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        let _ = self.phase.send(Phase::Draining);
        runtime.block_on(async {
            let all = async { while self.tasks.join_next().await.is_some() {} };
            if tokio::time::timeout(self.context.config.drain_timeout, all).await.is_err() {
                tracing::warn!("statements that did not end in time are stopped");
            }
            let _ = self.phase.send(Phase::Stopped);
            if let Some(operators) = self.operators.take() {
                let _ = tokio::time::timeout(LAST_WORDS, operators).await;
            }
        });
        self.context.metrics.flush(LAST_WORDS);
        runtime.shutdown_timeout(Duration::from_secs(1));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.phase.send(Phase::Stopped);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

type Listening = (TcpListener, SocketAddr);

fn cannot_listen(what: &str, address: SocketAddr, e: std::io::Error) -> Error {
    let taken = e.kind() == std::io::ErrorKind::AddrInUse;
    let error = Error::io(format!("cannot listen on {address}"), e);
    if !taken {
        return error;
    }
    let mut other = address;
    other.set_port(address.port().checked_add(1).unwrap_or(0));
    error
        .hint(format!("another program does: name another port, --{what} {other}, or --{what} off"))
}

fn check(config: &Config) -> Result<()> {
    let open = |address: &SocketAddr| !address.ip().is_loopback();
    let Some(address) = [config.pg, config.flight].into_iter().flatten().find(open) else {
        return Ok(());
    };
    if config.authentication == Authentication::Trust {
        return Err(Error::user(format!(
            "{address} can be reached from other machines, and clients need not prove who they are"
        ))
        .hint("ask for passwords with --auth scram, or listen on 127.0.0.1"));
    }
    // SCRAM keeps the password from who listens, but neither the rows nor Flight's passwords.
    if config.tls_certificate.is_none() && !config.insecure_plaintext {
        return Err(Error::user(format!(
            "{address} can be reached from other machines, and what is sent is not encrypted"
        ))
        .hint(
            "name a certificate with --tls-cert and --tls-key; --insecure-plaintext is for \
             networks that nobody listens to",
        ));
    }
    Ok(())
}

/// A server that nobody could log in to.
fn check_roles(engine: &Engine, config: &Config) -> Result<()> {
    let access = engine.roles()?;
    let may_enter =
        |role: &Role| role.login && (role.verifier.is_some() || !role.tokens.is_empty());
    if config.authentication == Authentication::Scram && !access.roles().any(|r| may_enter(r)) {
        return Err(Error::user("no role has a password: nobody could log in").hint(
            "thalweg sql DB -c \"CREATE ROLE name LOGIN PASSWORD '…'\" makes one that can; ALTER ROLE \
             thalweg PASSWORD '…' lets the superuser in",
        ));
    }
    Ok(())
}

fn certificate(config: &Config) -> Result<Option<Tls>> {
    match (&config.tls_certificate, &config.tls_key) {
        (Some(certificate), Some(key)) => tls::load(certificate, key).map(Some),
        (None, None) => Ok(None),
        (Some(_), None) => Err(Error::user("there is a certificate, and no key for it")
            .hint("--tls-key names its file")),
        (None, Some(_)) => Err(Error::user("there is a key, and no certificate for it")
            .hint("--tls-cert names its file")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    fn started(sql: &[&str], config: Config) -> Result<Server> {
        let engine = Engine::open(":memory:", thalweg_engine::Config::default())?;
        let session = engine.session();
        for sql in sql {
            engine.block_on(async { session.query(sql).await?.collect().await })?;
        }
        Server::start(engine, config)
    }

    /// A message to the server; the first one of all has no kind.
    fn send(stream: &mut TcpStream, kind: Option<u8>, body: &[u8]) {
        let mut message: Vec<u8> = kind.into_iter().collect();
        message.extend((body.len() as u32 + 4).to_be_bytes());
        message.extend(body);
        stream.write_all(&message).unwrap();
    }

    fn receive(stream: &mut TcpStream) -> (u8, Vec<u8>) {
        let mut head = [0; 5];
        stream.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4;
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        (head[0], body)
    }

    /// The SQLSTATE of an error.
    fn code(body: &[u8]) -> String {
        let field = body.split(|b| *b == 0).find(|field| field.first() == Some(&b'C'));
        String::from_utf8(field.expect("errors have one")[1..].to_vec()).unwrap()
    }

    /// By the password, as `psql` does.
    fn enter(port: u16, user: &str, password: &str) -> std::result::Result<TcpStream, String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let startup = format!("\0\u{3}\0\0user\0{user}\0\0");
        send(&mut stream, None, startup.as_bytes());
        let (kind, body) = receive(&mut stream);
        if kind == b'E' {
            return Err(code(&body));
        }
        assert_eq!((kind, &body[..]), (b'R', &b"\0\0\0\x0aSCRAM-SHA-256\0\0"[..]));
        send(&mut stream, Some(b'p'), b"SCRAM-SHA-256\0\0\0\0\x0bn,,n=,r=abc");
        let (kind, body) = receive(&mut stream);
        assert_eq!((kind, &body[..4]), (b'R', &b"\0\0\0\x0b"[..]));
        let first = String::from_utf8(body[4..].to_vec()).unwrap();
        let last = crate::auth::client_final(password, "n=,r=abc", b"n,,", &first);
        send(&mut stream, Some(b'p'), last.as_bytes());
        loop {
            match receive(&mut stream) {
                (b'E', body) => return Err(code(&body)),
                (b'Z', _) => return Ok(stream),
                _ => {}
            }
        }
    }

    /// The SQLSTATE of its error; empty: there is none.
    fn query(stream: &mut TcpStream, sql: &str) -> String {
        send(stream, Some(b'Q'), format!("{sql}\0").as_bytes());
        let mut found = String::new();
        loop {
            match receive(stream) {
                (b'E', body) => found = code(&body),
                (b'Z', _) => return found,
                _ => {}
            }
        }
    }

    #[test]
    fn clients_prove_their_passwords() {
        let config = Config {
            pg: Some("127.0.0.1:0".parse().unwrap()),
            authentication: Authentication::Scram,
            ..Config::default()
        };
        let roles = [
            "CREATE TABLE t AS SELECT 1 AS a",
            "CREATE ROLE ann LOGIN PASSWORD 'correct horse' CONNECTION LIMIT 1",
        ];
        let server = started(&roles, config).unwrap();
        let port = server.pg().unwrap().port();
        let refused = |user: &str, password: &str| match enter(port, user, password) {
            Err(refused) => refused,
            Ok(_) => panic!("it is let in"),
        };
        let mut client = enter(port, "ann", "correct horse").unwrap();
        assert_eq!(query(&mut client, "SELECT * FROM t"), "42501");
        assert_eq!(query(&mut client, "SELECT 1"), "");
        assert_eq!(refused("ann", "correct horse"), "53300");
        assert_eq!(refused("ann", "wrong"), "28P01");
        assert_eq!(refused("nosuch", "wrong"), "28P01");
        assert_eq!(refused("thalweg", ""), "28P01");
        drop(client);
        // Five may fail from one address.
        assert_eq!(refused("a", "wrong"), "28P01");
        assert_eq!(refused("b", "wrong"), "28P01");
        assert_eq!(refused("ann", "correct horse"), "53400");
        server.shutdown();
    }

    #[test]
    fn what_would_be_open_to_all_does_not_start() {
        use Authentication::{Scram, Trust};
        let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
        let here: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let role = "CREATE ROLE ann LOGIN PASSWORD 'x'";
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("c.pem"), folder.path().join("k.pem"));
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        for (address, authentication, roles, encrypted, plaintext, message) in [
            (here, Trust, &[][..], false, false, None),
            (any, Trust, &[role][..], true, true, Some("clients need not prove who they are")),
            (any, Scram, &[role][..], false, false, Some("what is sent is not encrypted")),
            (any, Scram, &[][..], true, false, Some("no role has a password")),
            (here, Scram, &[][..], false, false, Some("no role has a password")),
            (
                here,
                Scram,
                &["CREATE ROLE ann PASSWORD 'x'"][..],
                false,
                false,
                Some("no role has a password"),
            ),
            (here, Scram, &[role][..], false, false, None),
            (any, Scram, &[role][..], false, true, None),
            (any, Scram, &[role][..], true, false, None),
        ] {
            for flight in [false, true] {
                let config = Config {
                    pg: (!flight).then_some(address),
                    flight: flight.then_some(address),
                    authentication,
                    tls_certificate: encrypted.then(|| certificate.clone()),
                    tls_key: encrypted.then(|| key.clone()),
                    insecure_plaintext: plaintext,
                    ..Config::default()
                };
                let found = started(roles, config).map(drop);
                match message {
                    None => found.expect("it starts"),
                    Some(message) => {
                        let error = found.expect_err(message);
                        assert!(error.message().contains(message), "{error}");
                    }
                }
            }
        }
    }
}
