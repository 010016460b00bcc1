//! Which suite `thalweg bench` runs.

use thalweg_base::{Error, Result};
use thalweg_engine::PolicyKind;

use crate::checked::{check, none_wrong};
use crate::generate::Benchmark;
use crate::report::latency::text as latency_text;
use crate::report::model::{Concurrency, Report};
use crate::report::text;
use crate::run::{Options, Suite, Watch, parquet, say, us, write};
use crate::stored::Stored;
use crate::workload::Workload;
use crate::{
    cancel, cold_scan, compare, coverage, latency, load_rate, memory, mixed, out_of_core, power,
    streams, throughput, variants,
};

/// Runs a benchmark; the figures go to standard output, what happens meanwhile to standard error.
///
/// # Errors
/// Anything that keeps a step from running; and, with `check`, an answer that is wrong.
pub fn run(options: &Options, watch: &Watch) -> Result<()> {
    if options.runs == 0 {
        return Err(Error::user("--runs must be at least 1"));
    }
    if options.suite != Suite::Latency && options.streams.contains(&0) {
        return Err(Error::user("--streams must be at least 1")
            .hint("only `thalweg bench latency` measures without a stream"));
    }
    match options.suite {
        Suite::Queries(benchmark) => queries(options, benchmark, watch),
        Suite::Policies | Suite::Latency => queries(options, Benchmark::Tpch, watch),
        Suite::Load => load_rate::run(options, watch),
        Suite::Scan => cold_scan::run(options, watch),
        Suite::Streams => throughput::run(options, watch),
        Suite::Cancel => cancel::run(options, watch),
        Suite::Memory => memory::run(options, watch),
        Suite::Overhead => variants::overhead(options, watch),
        Suite::Scaling => variants::scaling(options, watch),
        Suite::OutOfCore => out_of_core::run(options, watch),
        Suite::Coverage => coverage::run(options, watch),
    }
}

fn queries(options: &Options, benchmark: Benchmark, watch: &Watch) -> Result<()> {
    let workload = Workload::new(benchmark)?.only(&options.queries)?;
    let title = match options.suite {
        Suite::Policies => "Policies".to_string(),
        Suite::Latency => "Latency".to_string(),
        _ => benchmark.to_string(),
    };
    let mut report = Report::new(&title, options.scale_factor, us(options));
    let look = text::Options::stdout();
    println!("{}", text::head(&report, look));
    let Stored { engine, files, load, .. } =
        &Stored::open(options, &workload, options.database.clone(), watch)?;
    report.load.clone_from(load);

    let mut wrong = vec![];
    if options.suite == Suite::Policies {
        let found = mixed::run(engine, &policies(options), options.runs)?;
        println!("{}", text::mixed(&found, look));
        report.mixed = Some(found);
    } else if options.suite == Suite::Latency {
        let mut peers = vec![];
        if !options.peers.is_empty() {
            let files = parquet(options, benchmark, files, watch)?;
            peers = compare::start_all(&workload, options, &files)?;
        }
        let found = latency::run(engine, &policies(options), peers, options)?;
        println!("{}", latency_text(&found, look));
        report.latency = Some(found);
    } else {
        let power = power::run(engine, &workload, options.runs)?;
        println!("{}", text::power(&power, look));
        let seconds = power.seconds;
        report.power = Some(power);
        if options.check {
            wrong = check(engine, &workload, options, files, &mut report)?;
        }
        for &count in &options.streams {
            for policy in policies(options) {
                say(&format!("{count} streams under {policy}"));
                engine.set_policy(policy);
                let spans = streams::run(engine, &workload, count, &[])?;
                let run = Concurrency::new(policy.name(), seconds, spans);
                println!("{}", text::concurrency(&run, look));
                report.concurrency.push(run);
            }
        }
        if report.concurrency.len() > 1 {
            println!("{}", text::policies(&report.concurrency, look));
        }
        if !options.peers.is_empty() {
            let files = parquet(options, benchmark, files, watch)?;
            let found = compare::peers(engine, &workload, options, &files)?;
            println!("{}", text::peers(&found, look));
            report.peers = Some(found);
        }
    }
    write(options, &report)?;
    none_wrong(&wrong)
}

fn policies(options: &Options) -> Vec<PolicyKind> {
    if options.policies.is_empty() { PolicyKind::ALL.to_vec() } else { options.policies.clone() }
}
