//! The concurrency run: N streams at once, each all queries in an order of its own.

use std::sync::Arc;
use std::time::Instant;

use thalweg_base::{Error, Prng, Result};
use thalweg_engine::{Engine, Session};

use crate::power::execute;
use crate::report::model::Span;
use crate::workload::{Query, Workload};

/// Of the permutations: the same orders for every policy, machine and version.
const SEED: u64 = 2013;

/// Of each stream its queries, in its order. `settings` are statements that each stream's session
/// runs before the clock starts.
pub fn run(
    engine: &Arc<Engine>,
    workload: &Workload,
    count: usize,
    settings: &[String],
) -> Result<Vec<Vec<Span>>> {
    let sessions: Result<Vec<Session>> = (0..count).map(|_| session(engine, settings)).collect();
    let clients: Vec<_> = sessions?.into_iter().zip(orders(workload, count)).collect();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let streams: Vec<_> = clients
            .iter()
            .map(|(session, order)| scope.spawn(move || stream(session, order, begun)))
            .collect();
        let join = |stream: std::thread::ScopedJoinHandle<'_, Result<Vec<Span>>>| {
            stream.join().unwrap_or_else(|_| Err(Error::internal("a stream's thread panicked")))
        };
        streams.into_iter().map(join).collect()
    })
}

/// A session with these settings.
pub fn session(engine: &Arc<Engine>, settings: &[String]) -> Result<Session> {
    let session = engine.session();
    for setting in settings {
        engine.block_on(session.query(setting))?;
    }
    Ok(session)
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
fn stream(session: &Session, queries: &[Query], begun: Instant) -> Result<Vec<Span>> {
    let run = |query: &Query| {
        let start_s = begun.elapsed().as_secs_f64();
        let rows = session.engine().block_on(execute(session, query))?;
        Ok(Span { query: query.name.clone(), start_s, end_s: begun.elapsed().as_secs_f64(), rows })
    };
    queries.iter().map(run).collect()
}
