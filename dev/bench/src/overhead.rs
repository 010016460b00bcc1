//! What the scheduler costs: power runs with it and with all tasks left to tokio, query by query
//! in turn, on two engines over the same database.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use thalweg_base::{Error, Result};
use thalweg_engine::{Config, Engine, Session};

use crate::power::execute;
use crate::report::model::{Report, Timing};
use crate::report::overhead::{self as report, Overhead, QueryOverhead};
use crate::report::text as printed;
use crate::run::{self, Options, Stored, Watch, say};
use crate::workload::Workload;

pub(crate) fn run(options: &Options, watch: &Watch) -> Result<()> {
    let mut report = Report::new("Overhead", options.scale_factor, run::us(options));
    let look = printed::Options::stdout();
    println!("{}", printed::head(&report, look));
    run::warn_unoptimised(&mut report);
    for (suite, database) in run::suites(options) {
        let workload = Workload::new(suite)?.only(&options.queries)?;
        let stored = Stored::open(options, &workload, database, watch)?;
        let title = format!("{suite} SF {}", options.scale_factor);
        let found = measure(&stored, &workload, title, options)?;
        println!("{}", report::text(&found, look));
        report.overhead.push(found);
    }
    run::write(options, &report)
}

fn measure(
    stored: &Stored,
    workload: &Workload,
    title: String,
    options: &Options,
) -> Result<Overhead> {
    if let Some(policy) = options.policies.first() {
        stored.engine.set_policy(*policy);
    }
    let free = unscheduled(Path::new(&stored.location), options)?;
    let sessions = [stored.engine.session(), free.session()];
    let mut ms: Vec<[Vec<f64>; 2]> = vec![Default::default(); workload.queries.len()];
    // The first run warms up.
    for run in 0..=options.runs {
        say(&format!("{}, run {run} of {}", workload.benchmark, options.runs));
        for (query, ms) in workload.queries.iter().zip(&mut ms) {
            let mut rows = [0; 2];
            for turn in 0..2 {
                let which = (run + turn) % 2;
                let session: &Session = &sessions[which];
                let started = Instant::now();
                rows[which] = session.engine().block_on(execute(session, query))?;
                if run > 0 {
                    ms[which].push(started.elapsed().as_secs_f64() * 1e3);
                }
            }
            if rows[0] != rows[1] {
                return Err(Error::internal(format!(
                    "{} gave {} rows under the scheduler and {} without it",
                    query.name, rows[0], rows[1]
                )));
            }
        }
    }
    let lost = || Error::internal("a query without a run");
    let queries = workload.queries.iter().zip(ms).map(|(query, [scheduled, unscheduled])| {
        Ok(QueryOverhead::new(
            &query.name,
            Timing::new(scheduled).ok_or_else(lost)?,
            Timing::new(unscheduled).ok_or_else(lost)?,
        ))
    });
    Ok(Overhead::new(title, options.runs, queries.collect::<Result<_>>()?))
}

/// With a cache of its own, so that both are equally warm.
fn unscheduled(location: &Path, options: &Options) -> Result<Arc<Engine>> {
    let config = Config { scheduled: false, create: false, ..run::config(options) };
    Engine::open(&location.to_string_lossy(), config)
}
