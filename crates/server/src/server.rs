//! Binds the addresses, accepts connections, and ends without cutting off what runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thalweg_base::{Error, Result};
use thalweg_engine::Engine;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::auth::Authenticator;
use crate::config::{Authentication, Config};
use crate::connections::Connections;
use crate::context::{Context, Phase};
use crate::metrics::Metrics;
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
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("thalweg-net")
            .enable_all()
            .build()
            .map_err(|e| Error::io("cannot start the server's threads", e))?;
        let (phase, watched) = watch::channel(Phase::Running);
        let context = Arc::new(Context {
            authenticator: Authenticator::new(Arc::clone(&engine), config.authentication),
            connections: Connections::new(config.connections_max),
            metrics: Metrics::new(&engine, &config)?,
            tls: None,
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
    if config.authentication == Authentication::Trust {
        for address in [config.pg, config.flight].into_iter().flatten() {
            if !address.ip().is_loopback() {
                return Err(Error::user(format!(
                    "{address} can be reached from other machines, and clients need not prove who they are"
                ))
                .hint("ask for passwords with --auth scram, or listen on 127.0.0.1"));
            }
        }
    }
    Ok(())
}
