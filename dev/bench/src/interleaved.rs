//! The same queries on two engines over one database, query by query in turn, so that a disturbance
//! of the machine hits both alike.

use thalweg_base::{Error, Result};
use thalweg_engine::Session;

use crate::power::timed;
use crate::report::model::Timing;
use crate::run::say;
use crate::workload::Query;

/// The times of each query on both engines, which are warm. Each run begins with the other one.
///
/// # Errors
/// A query that fails, or that has another number of rows on the other engine.
pub(crate) fn measure(
    title: &str,
    sessions: &[Session; 2],
    queries: &[Query],
    runs: usize,
) -> Result<Vec<[Timing; 2]>> {
    let mut ms: Vec<[Vec<f64>; 2]> = vec![Default::default(); queries.len()];
    for run in 1..=runs {
        say(&format!("{title}, run {run} of {runs}"));
        for (query, ms) in queries.iter().zip(&mut ms) {
            let mut rows = [0; 2];
            for turn in 0..2 {
                let which = (run + turn) % 2;
                let (found, took_ms) = timed(&sessions[which], query)?;
                rows[which] = found;
                ms[which].push(took_ms);
            }
            if rows[0] != rows[1] {
                return Err(Error::internal(format!(
                    "{} gave {} rows on one engine and {} on the other",
                    query.name, rows[0], rows[1]
                )));
            }
        }
    }
    let timing = |ms| Timing::new(ms).ok_or_else(|| Error::internal("a query without a run"));
    ms.into_iter().map(|[first, second]| Ok([timing(first)?, timing(second)?])).collect()
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
        let times = measure("", &sessions, &[query("select 1"), query("select 2")], 3).unwrap();
        assert_eq!(times.len(), 2);
        assert!(times.iter().flatten().all(|t| t.runs_ms.len() == 3));
        let error = measure("", &sessions, &[query("select * from t")], 1).unwrap_err();
        assert!(error.message().contains("Q1 gave 1 rows on one engine and 2"), "{error}");
    }
}
