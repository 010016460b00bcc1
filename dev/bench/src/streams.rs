//! The concurrency run: N streams at once, each all queries in an order of its own.

use std::sync::Arc;
use std::time::Instant;

use thalweg_base::{Error, Prng, Result};
use thalweg_engine::{Engine, PolicyKind};

use crate::power::execute;
use crate::report::model::{Concurrency, Span};
use crate::workload::{Query, Workload};

/// Of the permutations: the same orders for every policy, machine and version.
const SEED: u64 = 2013;

pub fn run(
    engine: &Arc<Engine>,
    workload: &Workload,
    count: usize,
    policy: PolicyKind,
    power_seconds: f64,
) -> Result<Concurrency> {
    engine.set_policy(policy);
    let begun = Instant::now();
    let streams: Result<Vec<Vec<Span>>> = std::thread::scope(|scope| {
        let streams: Vec<_> = orders(workload, count)
            .into_iter()
            .map(|order| scope.spawn(move || stream(engine, &order, begun)))
            .collect();
        let join = |stream: std::thread::ScopedJoinHandle<'_, Result<Vec<Span>>>| {
            stream.join().unwrap_or_else(|_| Err(Error::internal("a stream's thread panicked")))
        };
        streams.into_iter().map(join).collect()
    });
    Ok(Concurrency::new(policy.name(), power_seconds, streams?))
}

/// A random permutation of the queries per stream.
fn orders(workload: &Workload, count: usize) -> Vec<Vec<Query>> {
    let mut prng = Prng::new(SEED);
    let mut order = || {
        let mut queries = workload.queries.clone();
        prng.shuffle(&mut queries);
        queries
    };
    (0..count).map(|_| order()).collect()
}

/// One client: the next query is given when the last row of the one before is there.
fn stream(engine: &Arc<Engine>, queries: &[Query], begun: Instant) -> Result<Vec<Span>> {
    let session = engine.session();
    let run = |query: &Query| {
        let start_s = begun.elapsed().as_secs_f64();
        let rows = engine.block_on(execute(&session, query))?;
        Ok(Span { query: query.name.clone(), start_s, end_s: begun.elapsed().as_secs_f64(), rows })
    };
    queries.iter().map(run).collect()
}
