//! Power runs on two variants of the engine, query by query in turn, over the same database: what the
//! scheduler costs, what threads bring, and what the machine gives engines that share nothing.

use std::sync::Arc;

use thalweg_base::{Error, Result};
use thalweg_engine::{Config, Engine};

use crate::interleaved::Runner;
use crate::machine::{self, Machine};
use crate::peers::PeerKind;
use crate::report::model::Report;
use crate::report::text as printed;
use crate::report::variants::{self as report, QueryVariants, Variants, What};
use crate::run::{self, Options, Watch, say};
use crate::stored::Stored;
use crate::workload::Workload;
use crate::{compare, interleaved, power};

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
        for found in measure(&stored, &workload, title, what, second.clone(), options)? {
            println!("{}", report::text(&found, look));
            report.variants.push(found);
        }
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
) -> Result<Vec<Variants>> {
    let with_policy = |engine: Arc<Engine>| {
        options.policies.first().inspect(|policy| engine.set_policy(**policy));
        engine.session()
    };
    let one_more = || Ok(with_policy(stored.second_engine(second.clone())?));
    let sessions = [with_policy(Arc::clone(&stored.engine)), one_more()?];
    let apart = match what {
        What::Threads { threads } if options.share_nothing => {
            (0..threads).map(|_| one_more()).collect::<Result<Vec<_>>>()?
        }
        _ => vec![],
    };
    let (mut machine, mut peers) = match what {
        What::Scheduler | What::Engines { .. } => (None, vec![]),
        What::Threads { threads } => {
            let start = |kind: &PeerKind| {
                let start = |threads| compare::start(*kind, threads, workload, &stored.files);
                Ok([start(threads)?, start(1)?])
            };
            let peers = options.peers.iter().map(start).collect::<Result<Vec<_>>>()?;
            (Some(Machine::new(threads)), peers)
        }
    };
    say(&format!("{title}, warming up"));
    for session in sessions.iter().chain(&apart) {
        power::once(session, workload)?;
    }
    let mut names = vec![(title.clone(), what)];
    if !apart.is_empty() {
        names.push((title.clone(), What::Engines { count: apart.len() }));
    }
    for [all, one] in &mut peers {
        names.push((format!("{title}, {} {}", all.kind().name(), all.version()), what));
        for query in &workload.queries {
            compare::run_on(all, query).map_err(|e| e.context(&query.name))?;
            compare::run_on(one, query).map_err(|e| e.context(&query.name))?;
        }
    }
    if let Some(machine) = &mut machine {
        machine.measure(ROUNDS);
    }
    let mut pairs: Vec<[Runner; 2]> = vec![sessions.each_ref().map(interleaved::on)];
    if !apart.is_empty() {
        pairs.push([interleaved::on_all(&apart), interleaved::on(&sessions[1])]);
    }
    pairs.extend(peers.iter_mut().map(|pair| pair.each_mut().map(compare::on)));
    // Before each query of each run.
    let mut distances_ns = vec![];
    let measures = machine.is_some();
    let before = || distances_ns.extend(measures.then(machine::distance_ns));
    let queries = &workload.queries;
    let all_times = interleaved::measure(&title, &mut pairs, queries, options.runs, before)?;
    let variants = names.into_iter().zip(all_times).map(|((name, what), times)| {
        let queries = queries.iter().zip(times).enumerate().map(|(q, (query, times))| {
            let own = distances_ns.iter().skip(q).step_by(queries.len());
            QueryVariants::new(&query.name, times, own.copied().collect())
        });
        Variants::new(name, what, options.runs, queries.collect())
    });
    let mut variants: Vec<_> = variants.collect();
    if let Some(mut machine) = machine {
        machine.measure(ROUNDS);
        variants[0].machine = machine.found();
    }
    Ok(variants)
}
