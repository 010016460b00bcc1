//! Clients over the network: the PostgreSQL protocol, Arrow Flight SQL, and HTTP for operators.
//! The only crate that knows wire formats. What they ask for becomes a statement of a
//! [`Session`](thalweg_engine::Session); how it runs is the engine's.
//!
//! In the order a client meets them:
//!
//! * [`Config`] (`config.rs`): addresses, limits, certificates.
//! * [`Server`] (`server.rs`): binds, accepts, drains. `context.rs`: what all connections share.
//! * `auth.rs`: who a client is. `tls.rs`: certificates. `connections.rs`: how many there may be.
//! * `pg/`: the PostgreSQL protocol. `flight/`: Arrow Flight SQL. `http/`: metrics and health.
//! * `metrics.rs`: what is counted. `statement.rs`: what is told of one that has ended;
//!   `traces.rs` sends it on.

mod auth;
mod config;
mod connections;
mod context;
mod flight;
#[cfg(any(test, feature = "simulation"))]
pub mod fuzzing;
mod http;
mod metrics;
mod pg;
mod running;
mod server;
mod statement;
mod tls;
mod traces;

pub use config::{Authentication, Config};
pub use server::Server;
