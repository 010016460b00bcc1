//! Arrow Flight SQL: statements and results as Arrow batches over gRPC.
//!
//! In the order a client meets them:
//!
//! * `accept.rs`: connections, encrypted if so configured, and what is asked of them in time.
//! * `service.rs`: the calls of Flight, and which module each command goes to.
//! * `auth.rs`: who calls, and in which session. `sessions.rs`: what a client comes back to.
//! * `statements.rs`: queries and updates. `tickets.rs`: answers on their way to a client.
//! * `transactions.rs`: `BeginTransaction` and its like. `prepared.rs`, `parameters.rs`: statements
//!   with values. `upload.rs`: batches of a client. `ingest.rs`: those that go into a table.
//! * `metadata.rs`, `info.rs`: what there is in the database, and what the server can do.
//! * `options.rs`: settings of a session. `plain.rs`: types that clients read. `status.rs`: errors.

mod accept;
mod auth;
mod info;
mod ingest;
mod kept;
mod metadata;
mod options;
mod parameters;
mod plain;
mod prepared;
mod service;
mod sessions;
mod statements;
mod status;
#[cfg(test)]
mod tests;
mod tickets;
mod transactions;
mod upload;

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use tokio::net::TcpListener;

use crate::context::{Context, Phase};
use service::{Service, State};
#[cfg(any(test, feature = "simulation"))]
pub use upload::IS_DECODING;

/// Calls of one connection that run at a time.
const CONNECTION_CALLS_MAX: u32 = 256;

/// Bytes of one call, and of all calls of a connection, that a client may send before they are read.
const CALL_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// Bytes of the headers of a call.
const HEADER_BYTES_MAX: u32 = 64 << 10;

/// A client that says nothing for so long is asked whether it is there, and has so long to answer.
const PING_AFTER: Duration = Duration::from_secs(60);
const PING_ANSWER_MAX: Duration = Duration::from_secs(20);

/// How often what nobody came back for is dropped.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// Accepts connections until the server drains; returns when the last of them has ended.
pub async fn serve(listener: TcpListener, context: Arc<Context>) {
    let state = Arc::new(State::new(Arc::clone(&context)));
    let service = FlightServiceServer::new(Service(Arc::clone(&state)))
        .max_decoding_message_size(context.config.message_bytes_max)
        // What a client takes is its own limit.
        .max_encoding_message_size(usize::MAX);
    let draining = {
        let context = Arc::clone(&context);
        async move { context.reached(Phase::Draining).await }
    };
    let serving = tonic::transport::Server::builder()
        .max_concurrent_streams(CONNECTION_CALLS_MAX)
        .initial_stream_window_size(CALL_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .http2_keepalive_interval(Some(PING_AFTER))
        .http2_keepalive_timeout(Some(PING_ANSWER_MAX))
        .add_service(service)
        .serve_with_incoming_shutdown(
            accept::connections(listener, Arc::clone(&context)),
            draining,
        );
    let sweeping = async {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            state.sweep();
        }
    };
    tokio::select! {
        served = serving => if let Err(e) = served {
            tracing::error!("Arrow Flight stopped: {e}");
        },
        () = context.reached(Phase::Stopped) => {}
        () = sweeping => {}
    }
}
