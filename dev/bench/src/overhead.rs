//! What the scheduler costs: power runs with it and with all tasks left to tokio, query by query
//! in turn, on two engines over the same database.

use thalweg_base::Result;
use thalweg_engine::Config;

use crate::report::model::Report;
use crate::report::overhead::{self as report, Overhead, QueryOverhead};
use crate::report::text as printed;
use crate::run::{self, Options, Stored, Watch, say};
use crate::workload::Workload;
use crate::{interleaved, power};

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
    let free = stored.second_engine(Config { scheduled: false, ..run::config(options) })?;
    let sessions = [stored.engine.session(), free.session()];
    say(&format!("{title}, warming up"));
    for session in &sessions {
        power::once(session, workload)?;
    }
    let times = interleaved::measure(&title, &sessions, &workload.queries, options.runs)?;
    let queries = workload.queries.iter().zip(times).map(|(query, [scheduled, unscheduled])| {
        QueryOverhead::new(&query.name, scheduled, unscheduled)
    });
    Ok(Overhead::new(title, options.runs, queries.collect()))
}
