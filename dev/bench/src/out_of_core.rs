//! What it costs to have little memory: power runs on an engine that is allowed little and on one as
//! it is, query by query in turn, over the same database. Their answers must be equal.

use std::sync::Arc;

use thalweg_base::Result;
use thalweg_engine::{Config, Engine, Session};

use crate::compare;
use crate::interleaved;
use crate::peaks::Peaks;
use crate::report::memory::Limits;
use crate::report::model::Report;
use crate::report::out_of_core::{self as report, OutOfCore, QueryOutOfCore};
use crate::report::text as printed;
use crate::run::{self, Options, Stored, Watch, say};
use crate::workload::{Query, Workload};

/// What one of the engines is allowed, unless `--memory` says otherwise.
const MEMORY_BYTES: u64 = 1 << 30;

pub(crate) fn run(options: &Options, watch: &Watch) -> Result<()> {
    let mut report = Report::new("Out of core", options.scale_factor, run::us(options));
    let look = printed::Options::stdout();
    println!("{}", printed::head(&report, look));
    run::warn_unoptimised(&mut report);
    let limits = Limits::new(options.memory.unwrap_or(MEMORY_BYTES));
    let mut wrong = vec![];
    for (suite, database) in run::suites(options) {
        let mut workload = Workload::new(suite)?.only(&options.queries)?;
        let stored = Stored::open(options, &workload, database, watch)?;
        let limited = open_limited(&stored, limits, options)?;
        let title = format!("{suite} SF {}", options.scale_factor);
        let found = measure(&stored.engine, &limited, limits, &mut workload, title, options.runs)?;
        println!("{}", report::text(&found, look));
        wrong.extend(found.wrong.iter().cloned());
        report.out_of_core.push(found);
        if options.check {
            wrong.extend(run::check(&limited, &workload, options, &stored.files, &mut report)?);
        }
    }
    run::write(options, &report)?;
    run::none_wrong(&wrong)
}

/// Both engines have the same policy.
fn open_limited(stored: &Stored, limits: Limits, options: &Options) -> Result<Arc<Engine>> {
    let limited = stored.second_engine(Config {
        memory_bytes_max: Some(limits.query_bytes()),
        cache_bytes_max: Some(limits.cache_bytes),
        ..run::config(options)
    })?;
    if let Some(policy) = options.policies.first() {
        stored.engine.set_policy(*policy);
        limited.set_policy(*policy);
    }
    Ok(limited)
}

/// Leaves in `workload` what both engines have an answer to.
fn measure(
    unlimited: &Arc<Engine>,
    limited: &Arc<Engine>,
    limits: Limits,
    workload: &mut Workload,
    title: String,
    runs: usize,
) -> Result<OutOfCore> {
    let sessions = [unlimited.session(), limited.session()];
    let asked = workload.queries.len();
    say(&format!("{title}, warming up, answers are compared"));
    let WarmUp { queries, peaks, wrong } =
        WarmUp::run(&sessions, std::mem::take(&mut workload.queries))?;
    workload.queries = queries;
    let mut pairs = [sessions.each_ref().map(interleaved::on)];
    let times = interleaved::measure(&title, &mut pairs, &workload.queries, runs)?;
    let queries = workload.queries.iter().zip(times.into_iter().flatten()).zip(peaks);
    let queries = queries.map(|((query, [unlimited, limited]), peaks)| {
        QueryOutOfCore::new(&query.name, limited, unlimited, peaks.held_bytes, peaks.spill_bytes)
    });
    Ok(OutOfCore::new(title, runs, limits, queries.collect(), asked, wrong))
}

/// The first run. Nobody takes its time, so that it can compare, and look at what is held.
struct WarmUp {
    /// Those that both engines have an answer to.
    queries: Vec<Query>,
    /// Of the limited engine, for each of these.
    peaks: Vec<Peaks>,
    /// A line for each query whose answer differs or is missing.
    wrong: Vec<String>,
}

impl WarmUp {
    fn run([unlimited, limited]: &[Session; 2], queries: Vec<Query>) -> Result<WarmUp> {
        let mut warm_up = WarmUp { queries: vec![], peaks: vec![], wrong: vec![] };
        for query in queries {
            let answer = |session: &Session| {
                session.engine().block_on(compare::our_answers(session, &query))
            };
            let theirs = answer(unlimited).map_err(|e| e.context(&query.name))?;
            let (ours, peaks) = Peaks::during(limited.engine(), || answer(limited));
            match ours.map(|ours| compare::difference(&query, &ours, &theirs)) {
                Ok(difference) => {
                    warm_up.wrong.extend(difference.map(|difference| {
                        format!("{}: other than without the limit: {difference}", query.name)
                    }));
                    warm_up.queries.push(query);
                    warm_up.peaks.push(peaks);
                }
                Err(e) => {
                    warm_up.wrong.push(format!("{}: no answer within the limit: {e}", query.name));
                }
            }
        }
        Ok(warm_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_differs_or_is_missing_is_wrong() {
        let session = |tables: &[&str]| {
            let config = Config { threads: 1, ..Config::default() };
            let session = Engine::open(":memory:", config).unwrap().session();
            for table in tables {
                let sql = format!("create table {table}");
                session.engine().block_on(compare::collect(&session, &sql)).unwrap();
            }
            session
        };
        let sessions = [
            session(&[
                "t as select value as a from range(1, 3)",
                "u as select 1 as a",
                "v as select 1 as a",
            ]),
            session(&["t as select 3 - value as a from range(1, 3)", "u as select 2 as a"]),
        ];
        let query = |name: &str| Query {
            name: name.into(),
            number: 1,
            statements: vec![format!("select * from {name}")],
        };
        let queries = ["t", "u", "v"].map(query).to_vec();
        let found = WarmUp::run(&sessions, queries.clone()).unwrap();
        let names: Vec<&str> = found.queries.iter().map(|q| q.name.as_str()).collect();
        assert_eq!((names, found.peaks.len()), (vec!["t", "u"], 2));
        assert_eq!(found.wrong.len(), 2);
        assert!(found.wrong[0].starts_with("u: other than without the limit: "));
        assert!(found.wrong[1].starts_with("v: no answer within the limit: "));
        // The engine without a limit is what the other one is compared with.
        let [unlimited, limited] = sessions;
        assert!(WarmUp::run(&[limited, unlimited], queries).is_err());
    }
}
