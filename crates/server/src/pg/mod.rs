//! The PostgreSQL protocol, version 3.
//!
//! In the order of a connection:
//!
//! * `socket.rs`: bytes in and out. `message.rs`: messages of clients. `write.rs`: those to them.
//! * `startup.rs`: TLS, who it is, its session. `sasl.rs`: the proof of a password. `cancel.rs`: cancel requests.
//! * `connection.rs`: message by message until it ends. `simple.rs`: a text with statements.
//!   `extended.rs`: statements that are prepared, and portals. `gather.rs`: rows of inserts together.
//! * `results.rs`: the rows of an answer. `cursor.rs`: DECLARE and FETCH. `copy_in.rs`, `copy_out.rs`: COPY. `command.rs`: tags.
//! * `types.rs`: types. `encode.rs`, `text.rs`, `numeric.rs`: values to clients. `parameter.rs`:
//!   values of clients.

mod cancel;
mod command;
mod connection;
mod copy_in;
mod copy_out;
mod cursor;
mod encode;
mod extended;
mod gather;
mod message;
mod numeric;
mod parameter;
mod results;
mod sasl;
mod simple;
mod socket;
mod startup;
#[cfg(test)]
mod tests;
mod text;
mod types;
mod write;

use std::sync::Arc;
use std::time::Duration;

use thalweg_base::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::cancel::Cancels;
use self::connection::Stop;
use crate::context::{Context, Phase};

/// Clients that are being let in at a time; the next ones wait in the system's queue.
const HANDSHAKES_MAX: usize = 256;
/// After the system refuses to accept: it is out of file handles or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections until the server drains; returns when the last of them has ended.
pub async fn serve(listener: TcpListener, context: Arc<Context>) {
    let cancels = Arc::new(Cancels::default());
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    let mut connections = JoinSet::new();
    loop {
        // Never closed.
        let Ok(handshake) = Arc::clone(&handshakes).acquire_owned().await else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = context.reached(Phase::Draining) => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let (context, cancels) = (Arc::clone(&context), Arc::clone(&cancels));
                connections.spawn(async move {
                    let mut handshake = Some(handshake);
                    serve_one(stream, &context, &cancels, || drop(handshake.take())).await;
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn serve_one(
    stream: TcpStream,
    context: &Arc<Context>,
    cancels: &Arc<Cancels>,
    entered: impl FnOnce(),
) {
    // Answers are written whole: waiting for more of them helps nobody.
    let _ = stream.set_nodelay(true);
    let handshake = startup::begin(stream, context, cancels);
    let begun = tokio::time::timeout(context.config.handshake_timeout, handshake).await;
    entered();
    let Ok(Some(mut connection)) = begun else { return };
    let ended = tokio::select! {
        stop = connection.run() => stop,
        () = context.reached(Phase::Stopped) => Stop::Failed(shutting_down()),
    };
    connection.end(ended).await;
}

fn shutting_down() -> Error {
    Error::cancelled("the server is shutting down").code("57P01").hint("connect again later")
}
