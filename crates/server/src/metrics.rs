//! What is counted, by the names that `/metrics` shows; docs/metrics.md lists them.
//!
//! What happens to clients is counted here as it happens: [`Metrics::connection`],
//! [`Metrics::statement`]. What the engine and the system know is asked when somebody looks
//! (`engine.rs`, `process.rs`).

mod engine;
mod process;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use thalweg_base::{Error, Kind, Result};
use thalweg_engine::Engine;

use crate::config::Config;
use crate::statement::{self, Protocol, Statement};
use crate::traces::Traces;

type Labels<const N: usize> = [(&'static str, &'static str); N];
type Counters<const N: usize> = Family<Labels<N>, Counter>;

/// Clones of its parts are held by those who count.
pub struct Metrics {
    registry: Registry,
    open: Family<Labels<1>, Gauge>,
    accepted: Counters<1>,
    refused: Counters<1>,
    rejected: Counters<1>,
    statements: Counters<3>,
    durations: Family<Labels<1>, Histogram, fn() -> Histogram>,
    rows: Counters<1>,
    bytes: Counters<1>,
    slow: Option<Duration>,
    traces: Option<Traces>,
}

/// Upper bounds in seconds: from what a plan that is kept takes to a long report.
const SECONDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0];

fn durations() -> Histogram {
    Histogram::new(SECONDS)
}

/// An open connection of a client, as long as it lives.
pub struct Opened {
    protocol: Protocol,
    open: Gauge,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.open.dec();
        tracing::debug!(protocol = self.protocol.name(), "connection closed");
    }
}

impl Metrics {
    /// # Errors
    /// Traces are to be sent to an address that makes no sense.
    pub fn new(engine: &Arc<Engine>, config: &Config) -> Result<Metrics> {
        let traces = config.traces.as_deref().map(|at| Traces::start(at, engine)).transpose()?;
        let mut all = Registry::default();
        all.register_collector(Box::new(process::Collector::new()));
        let ours = all.sub_registry_with_prefix("thalweg");
        ours.register_collector(Box::new(engine::Collector(Arc::clone(engine))));
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        ours.register("build", "The program that runs", Info::new(version));
        if let Some(traces) = &traces {
            let about = "Traces of statements that could not be sent";
            ours.register("traces_dropped", about, traces.dropped());
        }
        let durations = Family::new_with_constructor(durations as fn() -> Histogram);
        let metrics = Metrics {
            open: counted(ours, "connections", "Open connections of clients"),
            accepted: counted(ours, "connections_accepted", "Connections that were let in"),
            refused: counted(ours, "connections_refused", "Connections that were one too many"),
            rejected: counted(
                ours,
                "logins_rejected",
                "Clients that could not prove who they are, or may not come in",
            ),
            statements: counted(
                ours,
                "statements",
                "Statements that have ended, by outcome: ok, or the class of the SQLSTATE",
            ),
            rows: counted(ours, "sent_rows", "Rows of answers"),
            bytes: Family::default(),
            durations,
            slow: config.slow_statement,
            traces,
            registry: Registry::default(),
        };
        let about = "Bytes of answers";
        ours.register_with_unit("sent", about, Unit::Bytes, metrics.bytes.clone());
        let about = "From a statement's arrival until its client has all of the answer";
        let family = metrics.durations.clone();
        ours.register_with_unit("statement_duration", about, Unit::Seconds, family);
        metrics.begin();
        Ok(Metrics { registry: all, ..metrics })
    }

    /// So that all of it is there from the beginning, and rates have something to begin from.
    fn begin(&self) {
        let counters = [&self.accepted, &self.refused, &self.rejected, &self.rows, &self.bytes];
        for label in Protocol::ALL.map(of) {
            drop(self.open.get_or_create(&label));
            drop(self.durations.get_or_create(&label));
            counters.iter().for_each(|counters| drop(counters.get_or_create(&label)));
        }
    }

    /// A client is let in; to be kept as long as it is connected.
    pub fn connection(&self, protocol: Protocol) -> Opened {
        let label = of(protocol);
        self.accepted.get_or_create(&label).inc();
        let open = self.open.get_or_create_owned(&label);
        open.inc();
        tracing::debug!(protocol = protocol.name(), "connection opened");
        Opened { protocol, open }
    }

    /// A client was sent away: there are as many as there may be.
    pub fn refused(&self, protocol: Protocol) {
        self.refused.get_or_create(&of(protocol)).inc();
    }

    /// A client was not let in.
    pub fn rejected(&self, protocol: Protocol) {
        self.rejected.get_or_create(&of(protocol)).inc();
    }

    /// A statement has ended. Counts it, logs it if it was slow or failed for a reason that an
    /// operator must know, and sends its trace.
    pub fn statement(&self, statement: &Statement<'_>) {
        let label = of(statement.protocol);
        let labels = [label[0], ("kind", statement.kind()), ("outcome", outcome(statement.error))];
        self.statements.get_or_create(&labels).inc();
        self.durations.get_or_create(&label).observe(statement.took.as_secs_f64());
        self.rows.get_or_create(&label).inc_by(statement.rows);
        self.bytes.get_or_create(&label).inc_by(statement.bytes);
        self.log(statement);
        if let Some(traces) = &self.traces {
            traces.send(statement);
        }
    }

    fn log(&self, statement: &Statement<'_>) {
        let query = statement.query.map(|q| q.0);
        let (user, protocol) = (statement.user, statement.protocol.name());
        match statement.error {
            Some(e) if matches!(e.kind(), Kind::Internal | Kind::Corrupt | Kind::Io) => {
                let sqlstate = e.sqlstate();
                tracing::error!(query, user, protocol, sqlstate, error = %e, "statement failed");
            }
            Some(e) => {
                let sqlstate = e.sqlstate();
                tracing::debug!(query, user, protocol, sqlstate, "statement failed");
            }
            None => {}
        }
        if self.slow.is_some_and(|slow| statement.took >= slow) {
            let ms = statement.took.as_millis() as u64;
            let (rows, sql) = (statement.rows, statement::shown(statement.sql));
            tracing::info!(query, user, protocol, ms, rows, sql = %sql, "slow statement");
        }
    }

    /// All of it, as OpenMetrics has it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    /// Waits until traces that are under way have been sent.
    pub fn flush(&self, longest: Duration) {
        if let Some(traces) = &self.traces {
            traces.flush(longest);
        }
    }
}

fn of(protocol: Protocol) -> Labels<1> {
    [("protocol", protocol.name())]
}

/// Bounded: there are some 40 classes.
fn outcome(error: Option<&Error>) -> &'static str {
    error.map_or("ok", |e| e.sqlstate().get(..2).unwrap_or("XX"))
}

fn counted<M>(registry: &mut Registry, name: &str, about: &str) -> M
where
    M: Default + Clone + prometheus_client::registry::Metric,
{
    let metric = M::default();
    registry.register(name, about, metric.clone());
    metric
}

/// The names in a text of OpenMetrics, as samples have them.
#[cfg(test)]
pub(crate) fn names(text: &str) -> std::collections::BTreeSet<String> {
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names = families.filter_map(|family| {
        let (name, kind) = family.split_once(' ')?;
        Some(match kind {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.to_owned(),
        })
    });
    names.collect()
}

#[cfg(test)]
mod tests;
