//! Power runs on two variants of the engine, query by query in turn, over the same database: what the
//! scheduler costs, and what threads bring.

use thalweg_base::{Error, Result};
use thalweg_engine::Config;

use crate::machine::Machine;
use crate::report::model::Report;
use crate::report::text as printed;
use crate::report::variants::{self as report, QueryVariants, Variants, What};
use crate::run::{self, Options, Stored, Watch, say};
use crate::workload::Workload;
use crate::{interleaved, power};

/// How often the machine is measured before the queries, and after.
const ROUNDS: usize = 4;

/// With the scheduler and with all tasks left to tokio.
pub(crate) fn overhead(options: &Options, watch: &Watch) -> Result<()> {
    let unscheduled = Config { scheduled: false, ..run::config(options) };
    compare("Overhead", What::Scheduler, unscheduled, options, watch)
}

/// With all threads and with one.
pub(crate) fn scaling(options: &Options, watch: &Watch) -> Result<()> {
    let threads = options.threads;
    if threads < 2 {
        return Err(Error::user("--threads must be at least 2")
            .hint("`thalweg bench scaling` compares so many threads with one"));
    }
    let one = Config { threads: 1, ..run::config(options) };
    compare("Scaling", What::Threads { threads }, one, options, watch)
}

fn compare(
    title: &str,
    what: What,
    second: Config,
    options: &Options,
    watch: &Watch,
) -> Result<()> {
    let mut report = Report::new(title, options.scale_factor, run::us(options));
    let look = printed::Options::stdout();
    println!("{}", printed::head(&report, look));
    run::warn_unoptimised(&mut report);
    for (suite, database) in run::suites(options) {
        let workload = Workload::new(suite)?.only(&options.queries)?;
        let stored = Stored::open(options, &workload, database, watch)?;
        let title = format!("{suite} SF {}", options.scale_factor);
        let found = measure(&stored, &workload, title, what, second.clone(), options)?;
        println!("{}", report::text(&found, look));
        report.variants.push(found);
    }
    run::write(options, &report)
}

fn measure(
    stored: &Stored,
    workload: &Workload,
    title: String,
    what: What,
    second: Config,
    options: &Options,
) -> Result<Variants> {
    let second = stored.second_engine(second)?;
    if let Some(policy) = options.policies.first() {
        stored.engine.set_policy(*policy);
        second.set_policy(*policy);
    }
    let sessions = [stored.engine.session(), second.session()];
    let mut machine = match what {
        What::Scheduler => None,
        What::Threads { threads } => Some(Machine::new(threads)),
    };
    say(&format!("{title}, warming up"));
    for session in &sessions {
        power::once(session, workload)?;
    }
    if let Some(machine) = &mut machine {
        machine.measure(ROUNDS);
    }
    let times = interleaved::measure(&title, &sessions, &workload.queries, options.runs)?;
    let queries = workload.queries.iter().zip(times);
    let queries = queries.map(|(query, times)| QueryVariants::new(&query.name, times));
    let mut variants = Variants::new(title, what, options.runs, queries.collect());
    if let Some(mut machine) = machine {
        machine.measure(ROUNDS);
        variants.machine = machine.found();
    }
    Ok(variants)
}
