//! What it costs to have little memory: power runs on an engine that is allowed little and on one as
//! it is, query by query in turn, over the same database. Their answers must be equal.
//!
//! While they are timed, each has a process of its own: an allocator is its whole process's, and where
//! one engine is to do with little, it would keep little for the other, too.

use thalweg_base::Result;
use thalweg_engine::Session;

use crate::checked;
use crate::compare;
use crate::interleaved;
use crate::peaks::Peaks;
use crate::report::memory::Limits;
use crate::report::model::Report;
use crate::report::out_of_core::{self as report, OutOfCore, QueryOutOfCore};
use crate::report::text as printed;
use crate::run::{self, Options, Watch, say};
use crate::stored::Stored;
use crate::worker::{self, OpenTask, Worker};
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
        let limited = worker::open(&OpenTask::new(&stored.location, options, Some(limits)))?;
        let title = format!("{suite} SF {}", options.scale_factor);
        let asked = workload.queries.len();
        say(&format!("{title}, answers are compared"));
        let compared = Compared::run(
            &[stored.engine.session(), limited.session()],
            std::mem::take(&mut workload.queries),
        )?;
        workload.queries.clone_from(&compared.queries);
        if options.check {
            wrong.extend(checked::check(&limited, &workload, options, &stored.files, &mut report)?);
        }
        // With their caches: the processes that are timed shall have the machine for themselves.
        drop((limited, stored.engine));
        let found = measure(&stored.location, limits, compared, asked, title, options)?;
        println!("{}", report::text(&found, look));
        wrong.extend(found.wrong.iter().cloned());
        report.out_of_core.push(found);
    }
    run::write(options, &report)?;
    checked::none_wrong(&wrong)
}

/// Both engines have the same policy.
fn measure(
    location: &str,
    limits: Limits,
    compared: Compared,
    asked: usize,
    title: String,
    options: &Options,
) -> Result<OutOfCore> {
    let Compared { queries, peaks, wrong } = compared;
    let open = |limits| Worker::open(OpenTask::new(location, options, limits));
    let mut workers = [open(None)?, open(Some(limits))?];
    let mut pairs = [workers.each_mut().map(interleaved::in_process)];
    interleaved::measure(&format!("{title}, warming up"), &mut pairs, &queries, 1, || ())?;
    let times = interleaved::measure(&title, &mut pairs, &queries, options.runs, || ())?;
    drop(pairs);
    let queries = queries.iter().zip(times.into_iter().flatten()).zip(peaks);
    let queries = queries.map(|((query, [unlimited, limited]), peaks)| {
        QueryOutOfCore::new(&query.name, limited, unlimited, peaks.held_bytes, peaks.spill_bytes)
    });
    let resident = workers.map(|worker| worker.memory_peak_bytes());
    Ok(OutOfCore::new(title, options.runs, limits, queries.collect(), asked, wrong, resident))
}

/// A run of which nobody takes the time, so that it can compare, and look at what is held.
struct Compared {
    /// Those that both engines have an answer to.
    queries: Vec<Query>,
    /// Of the limited engine, for each of these.
    peaks: Vec<Peaks>,
    /// A line for each query whose answer differs or is missing.
    wrong: Vec<String>,
}

impl Compared {
    fn run([unlimited, limited]: &[Session; 2], queries: Vec<Query>) -> Result<Compared> {
        let mut compared = Compared { queries: vec![], peaks: vec![], wrong: vec![] };
        for query in queries {
            let answer = |session: &Session| {
                session.engine().block_on(compare::our_answers(session, &query))
            };
            let theirs = answer(unlimited).map_err(|e| e.context(&query.name))?;
            let (ours, peaks) = Peaks::during(limited.engine(), || answer(limited));
            match ours.map(|ours| compare::difference(&query, &ours, &theirs)) {
                Ok(difference) => {
                    compared.wrong.extend(difference.map(|difference| {
                        format!("{}: other than without the limit: {difference}", query.name)
                    }));
                    compared.queries.push(query);
                    compared.peaks.push(peaks);
                }
                Err(e) => {
                    compared.wrong.push(format!("{}: no answer within the limit: {e}", query.name));
                }
            }
        }
        Ok(compared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::{Config, Engine};

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
        let found = Compared::run(&sessions, queries.clone()).unwrap();
        let names: Vec<&str> = found.queries.iter().map(|q| q.name.as_str()).collect();
        assert_eq!((names, found.peaks.len()), (vec!["t", "u"], 2));
        assert_eq!(found.wrong.len(), 2);
        assert!(found.wrong[0].starts_with("u: other than without the limit: "));
        assert!(found.wrong[1].starts_with("v: no answer within the limit: "));
        // The engine without a limit is what the other one is compared with.
        let [unlimited, limited] = sessions;
        assert!(Compared::run(&[limited, unlimited], queries).is_err());
    }
}
