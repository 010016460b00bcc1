//! How a server is started.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use thalweg_engine::access::Audit;

/// How clients prove who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authentication {
    /// They need not: whoever reaches the address is who they say. Only on loopback.
    #[default]
    Trust,
    /// By a password, which the server does not know: SCRAM-SHA-256 (RFC 5802, RFC 7677).
    Scram,
}

/// Addresses without a port open none; limits hold for all protocols together unless they say.
#[derive(Clone, Debug)]
pub struct Config {
    /// Of the PostgreSQL protocol.
    pub pg: Option<SocketAddr>,
    /// Of Arrow Flight SQL.
    pub flight: Option<SocketAddr>,
    /// Of metrics and health.
    pub http: Option<SocketAddr>,
    pub authentication: Authentication,
    /// PEM files: the certificate's chain and its key. Both or none.
    pub tls_certificate: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    /// Passwords may be proven, and rows sent, over a network without TLS.
    pub insecure_plaintext: bool,
    /// Which statements are written to the audit log; logins are, unless it is `None`.
    pub audit: Audit,
    /// Connections of clients that may be open at a time.
    pub connections_max: usize,
    /// Of one message of a client.
    pub message_bytes_max: usize,
    /// From connecting to being let in; then, of one message from its first byte to its last.
    pub handshake_timeout: Duration,
    pub message_timeout: Duration,
    /// Connections that ask for nothing so long are closed; `None`: never.
    pub idle_timeout: Option<Duration>,
    /// Sessions begin with it as their `thalweg.statement_timeout_ms`; `None`: no limit.
    pub statement_timeout: Option<Duration>,
    /// Statements that take at least so long are logged; `None`: none are.
    pub slow_statement: Option<Duration>,
    /// Where traces of statements are sent, by OTLP over HTTP; `None`: nowhere.
    pub traces: Option<String>,
    /// What statements that run get to end by themselves, after SIGTERM.
    pub drain_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            pg: None,
            flight: None,
            http: None,
            authentication: Authentication::Trust,
            tls_certificate: None,
            tls_key: None,
            insecure_plaintext: false,
            audit: Audit::Ddl,
            connections_max: 1000,
            message_bytes_max: 64 << 20,
            handshake_timeout: Duration::from_secs(10),
            message_timeout: Duration::from_secs(60),
            idle_timeout: None,
            statement_timeout: None,
            slow_statement: Some(Duration::from_secs(10)),
            traces: None,
            drain_timeout: Duration::from_secs(30),
        }
    }
}
