//! Connections to a server, from threads that may block.

use std::error::Error as _;
use std::fmt::Write as _;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use thalweg_base::{Error, Result};
use tokio::runtime::Runtime;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use super::code_of;
use crate::{Stop, stopped};

/// How long a server may take to answer at all.
const CONNECT_WAIT: Duration = Duration::from_secs(15);
/// How long a server may take to hear that nobody waits for it any more.
const CANCEL_WAIT: Duration = Duration::from_secs(2);

/// What `connect` runs on every connection first. Nothing is changed there, and texts are what they seem.
const SETTINGS: &str = "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY; \
                        SET standard_conforming_strings = on; SET bytea_output = 'hex'; \
                        SET extra_float_digits = 3; SET IntervalStyle = 'postgres'; SET DateStyle = 'ISO'";

/// How often the server looks whether anybody still waits for it.
const LOST_CLIENTS: &str = "SET client_connection_check_interval = '2s'";

/// A server, a database and who comes.
pub struct Address {
    pub config: Config,
    /// Whether the server must prove who it is.
    verified: bool,
    /// For people: without a password.
    pub shown: String,
}

impl Address {
    pub fn parse(text: &str) -> Result<Self> {
        let mut text = text.trim().to_owned();
        let mut verified = false;
        // The library has no word for these.
        for mode in ["sslmode=verify-full", "sslmode=verify-ca"] {
            if text.contains(mode) {
                verified = true;
                text = text.replace(mode, "sslmode=require");
            }
        }
        // What is wrong may be a part of a password: it is not said.
        let mut config: Config = text.parse().map_err(|_| {
            Error::user("the connection string of PostgreSQL cannot be read").code("42601").hint(
                "'host=db.example.com port=5432 dbname=sales user=me password=…' or \
                 'postgresql://me:…@db.example.com:5432/sales'; a value with spaces stands in quotes, \
                 doubled inside the statement's: password=''my word''; of TLS there is sslmode",
            )
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(Error::user("the connection string of PostgreSQL names no server")
                .code("42601")
                .hint("with host=… in it: a name, an address or the folder of a socket"));
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_WAIT);
        }
        if config.get_application_name().is_none() {
            config.application_name("thalweg");
        }
        let shown = shown(&config);
        Ok(Address { config, verified, shown })
    }

    fn tls(&self) -> Result<MakeRustlsConnect> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder
            .with_safe_default_protocol_versions()
            .map_err(|e| Error::internal(format!("TLS: {e}")))?;
        let config = if self.verified {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            builder.with_root_certificates(roots).with_no_client_auth()
        } else {
            let anyone = Arc::new(Anyone(provider));
            builder.dangerous().with_custom_certificate_verifier(anyone).with_no_client_auth()
        };
        Ok(MakeRustlsConnect::new(config))
    }

    /// An error of the server's, or of the way there.
    pub fn error(&self, e: tokio_postgres::Error) -> Error {
        if let Some(db) = e.as_db_error() {
            let mut error = Error::user(format!("PostgreSQL at {}: {}", self.shown, db.message()));
            if let Some(code) = code_of(db.code()) {
                error = error.code(code);
            }
            if let Some(detail) = db.detail() {
                error = error.detail(detail);
            }
            return match db.hint() {
                Some(hint) => error.hint(hint),
                None => error,
            };
        }
        let mut text = e.to_string();
        if let Some(cause) = e.source() {
            let _ = write!(text, ": {cause}");
        }
        let error = Error::user(format!("PostgreSQL at {}: {text}", self.shown)).code("08006");
        match self.config.get_ssl_mode() {
            SslMode::Disable => error,
            _ if text.contains("certificate") => error.hint(
                "sslmode=verify-full wants a certificate that this machine trusts; sslmode=require takes any",
            ),
            _ => error.hint("check that the server runs and can be reached from here"),
        }
    }
}

/// Without what is secret.
fn shown(config: &Config) -> String {
    let mut parts = vec![];
    let mut ports = config.get_ports().iter();
    for host in config.get_hosts() {
        let host = match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(path) => path.to_string_lossy().into_owned(),
        };
        parts.push(format!("host={host}"));
        if let Some(port) = ports.next() {
            parts.push(format!("port={port}"));
        }
    }
    if config.get_hosts().is_empty() {
        parts.extend(config.get_hostaddrs().iter().map(|address| format!("hostaddr={address}")));
    }
    if let Some(name) = config.get_dbname() {
        parts.push(format!("dbname={name}"));
    }
    if let Some(user) = config.get_user() {
        parts.push(format!("user={user}"));
    }
    parts.join(" ")
}

/// One connection and the thread's own runtime that drives it.
pub struct Open {
    pub client: Client,
    tls: MakeRustlsConnect,
    /// `None` once it is dropped.
    runtime: Option<Runtime>,
}

impl Drop for Open {
    /// Without waiting: whoever drops it may be another runtime's task.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Open {
    pub fn new(address: &Address, stop: &Stop) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Error::io("cannot start a connection", e))?;
        let tls = address.tls()?;
        let connect = async {
            let (client, connection) =
                address.config.connect(tls.clone()).await.map_err(|e| address.error(e))?;
            // It runs whenever something is waited for. Why it ended, the client says as well.
            tokio::spawn(async move {
                if let Err(e) = connection.await {
                    tracing::debug!("a connection to PostgreSQL ended: {e}");
                }
            });
            client.batch_execute(SETTINGS).await.map_err(|e| address.error(e))?;
            // A process that ends cannot cancel its queries any more. Servers before 14 do not look for
            // lost clients, and do not know the word.
            let _ = client.batch_execute(LOST_CLIENTS).await;
            Ok(client)
        };
        let client = runtime.block_on(unless(stop, connect)).flatten();
        let client = match client {
            Ok(client) => client,
            Err(e) => {
                runtime.shutdown_background();
                return Err(e);
            }
        };
        Ok(Open { client, tls, runtime: Some(runtime) })
    }

    pub fn is_lost(&self) -> bool {
        self.client.is_closed()
    }

    /// Waits for something over this connection.
    ///
    /// # Errors
    /// Somebody asked to stop.
    pub fn run<T>(&self, stop: &Stop, work: impl Future<Output = T>) -> Result<T> {
        let runtime = self.runtime.as_ref().ok_or_else(stopped)?;
        runtime.block_on(unless(stop, work))
    }

    /// Tells the server to stop what it does for this connection. It may be too late for that.
    pub fn cancel(&self) {
        let token = self.client.cancel_token();
        let cancel =
            async { tokio::time::timeout(CANCEL_WAIT, token.cancel_query(self.tls.clone())).await };
        let sent = self.runtime.as_ref().map(|runtime| runtime.block_on(cancel));
        if !matches!(sent, Some(Ok(Ok(())))) {
            tracing::debug!("PostgreSQL could not be told to stop a query");
        }
    }
}

async fn unless<T>(stop: &Stop, work: impl Future<Output = T>) -> Result<T> {
    tokio::select! {
        biased;
        () = stop.asked() => Err(stopped()),
        done = work => Ok(done),
    }
}

/// Takes every certificate, as PostgreSQL's own clients do unless they are told to verify it: who listens
/// on the way sees nothing, who stands in it is not found out.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
