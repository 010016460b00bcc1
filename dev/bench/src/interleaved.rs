//! The same queries on pairs of engines over the same tables, query by query in turn, so that a
//! disturbance of the machine hits all alike.

use std::sync::Barrier;

use thalweg_base::{Error, Result};
use thalweg_engine::Session;

use crate::power::timed;
use crate::report::model::Timing;
use crate::run::say;
use crate::worker::Worker;
use crate::workload::Query;

/// Runs a query to its last row: how many there are, and the milliseconds it took.
pub(crate) type Runner<'a> = Box<dyn FnMut(&Query) -> Result<(u64, f64)> + 'a>;

pub(crate) fn on(session: &Session) -> Runner<'_> {
    Box::new(|query| timed(session, query))
}

/// On an engine in a process of its own.
pub(crate) fn in_process(worker: &mut Worker) -> Runner<'_> {
    Box::new(|query| worker.query(query).map(|asked| (asked.rows, asked.ms)))
}

/// Runs a query on all of them at the same time, and gives the milliseconds for each of these runs: of
/// as many as `sessions`, the mean divided by their number.
pub(crate) fn on_all(sessions: &[Session]) -> Runner<'_> {
    Box::new(|query| {
        let together = Barrier::new(sessions.len());
        let run = |session| {
            together.wait();
            timed(session, query)
        };
        let all = std::thread::scope(|scope| {
            let threads: Vec<_> = sessions.iter().map(|s| scope.spawn(|| run(s))).collect();
            let failed = |_| Error::internal("a thread that ran a query panicked");
            let ended = threads.into_iter().map(|t| t.join().map_err(failed)?);
            ended.collect::<Result<Vec<(u64, f64)>>>()
        })?;
        let rows = all.first().map_or(0, |(rows, _)| *rows);
        if all.iter().any(|(others, _)| *others != rows) {
            return Err(Error::internal(format!("{} gave engines different rows", query.name)));
        }
        let count = all.len().max(1) as f64;
        let ms: f64 = all.iter().map(|(_, ms)| ms).sum();
        Ok((rows, ms / count / count))
    })
}

/// The times of each query on both engines of each pair, which are warm, run by run. Each run begins
/// with the other one of a pair; `before` is called before each query of each.
///
/// # Errors
/// A query that fails, or that has another number of rows on the other engine of a pair.
pub(crate) fn measure(
    title: &str,
    pairs: &mut [[Runner; 2]],
    queries: &[Query],
    runs: usize,
    mut before: impl FnMut(),
) -> Result<Vec<Vec<[Timing; 2]>>> {
    let mut ms: Vec<Vec<[Vec<f64>; 2]>> =
        vec![vec![Default::default(); queries.len()]; pairs.len()];
    for run in 1..=runs {
        say(&format!("{title}, run {run} of {runs}"));
        for (q, query) in queries.iter().enumerate() {
            before();
            for (pair, ms) in pairs.iter_mut().zip(&mut ms) {
                let mut rows = [0; 2];
                for turn in 0..2 {
                    let which = (run + turn) % 2;
                    let (found, took_ms) = pair[which](query)?;
                    rows[which] = found;
                    ms[q][which].push(took_ms);
                }
                if rows[0] != rows[1] {
                    return Err(Error::internal(format!(
                        "{} gave {} rows on one engine and {} on the other",
                        query.name, rows[0], rows[1]
                    )));
                }
            }
        }
    }
    let timing = |ms| Timing::new(ms).ok_or_else(|| Error::internal("a query without a run"));
    let both = |[first, second]: [Vec<f64>; 2]| Ok([timing(first)?, timing(second)?]);
    ms.into_iter().map(|pair| pair.into_iter().map(both).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::collect;
    use thalweg_engine::{Config, Engine};

    #[test]
    fn each_query_runs_on_both_engines_and_has_as_many_rows() {
        let session = |rows| {
            let config = Config { threads: 1, ..Config::default() };
            let session = Engine::open(":memory:", config).unwrap().session();
            let sql = format!("create table t as select value as a from range(0, {rows})");
            session.engine().block_on(collect(&session, &sql)).unwrap();
            session
        };
        let sessions = [session(1), session(2)];
        let query =
            |sql: &str| Query { name: "Q1".into(), number: 1, statements: vec![sql.into()] };
        let mut pairs = [[0, 1], [1, 1]].map(|pair| pair.map(|n| on(&sessions[n])));
        pairs[1][0] = on_all(&sessions);
        let mut begun = 0;
        let queries = [query("select 1"), query("select 2")];
        let times = measure("", &mut pairs, &queries, 3, || begun += 1).unwrap();
        assert_eq!(begun, 2 * 3);
        assert_eq!(times.len(), 2);
        assert!(times.iter().all(|pair| pair.len() == 2));
        assert!(times.iter().flatten().flatten().all(|t| t.runs_ms.len() == 3));
        let error = measure("", &mut pairs, &[query("select * from t")], 1, || ()).unwrap_err();
        assert!(error.message().contains("Q1 gave 1 rows on one engine and 2"), "{error}");
    }
}
