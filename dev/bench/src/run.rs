//! `thalweg bench`: the steps in order, each printed as soon as it is done.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use tempfile::TempDir;
use thalweg_base::{Error, Result};
use thalweg_engine::{Config, Engine, PolicyKind};

use crate::compare;
use crate::data_set::DataSetKind;
use crate::generate::{self, Benchmark, FileFormat, GeneratedTable};
use crate::peers::PeerKind;
use crate::report::latency::text as latency_text;
use crate::report::model::{self, Concurrency, Load, Report};
use crate::report::{html, text};
use crate::workload::Workload;
use crate::{
    cancel, cold_scan, coverage, latency, load, load_rate, memory, mixed, out_of_core, power,
    streams, throughput, variants,
};

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    Queries(Benchmark),
    /// Two heavy queries, then six short ones, at once, under each policy; on TPC-H's tables.
    Policies,
    /// A short query every 50 ms beside streams of heavy ones, under each policy; on TPC-H's tables.
    Latency,
    /// CSV files into a database, beside DuckDB.
    Load,
    /// A whole table read, beside a reader of its files.
    Scan,
    /// 1 to 16 streams at once against as many power runs in turn, with work shared or not.
    Streams,
    /// TPC-H's queries stopped at random moments: until when do they hold slots and memory?
    Cancel,
    /// Many queries that need ten times the memory there is.
    Memory,
    /// Power runs with and without the scheduler.
    Overhead,
    /// Power runs on all threads and on one.
    Scaling,
    /// Power runs within little memory and without that limit, whose answers are compared.
    OutOfCore,
    /// Which queries run wholly on pipelines: their plans alone.
    Coverage,
}

/// The command line.
#[derive(Clone, Debug)]
pub struct Options {
    pub suite: Suite,
    pub scale_factor: f64,
    /// Stream counts to run, in turn; empty: only the power run, or what `Suite::Latency` and
    /// `Suite::Streams` have by default. `Suite::Latency` alone runs without a stream, too. Of
    /// `Suite::Memory` it is how many queries run at once.
    pub streams: Vec<usize>,
    /// Policies for streams and mixes; empty: all, or the engine's default where one is enough.
    pub policies: Vec<PolicyKind>,
    /// What `Suite::Streams`, `Suite::Overhead`, `Suite::Scaling` and `Suite::OutOfCore` run, or
    /// `Suite::Coverage` plans; empty: SSB and TPC-H, of `Suite::OutOfCore` TPC-H, of
    /// `Suite::Coverage` all.
    pub suites: Vec<Benchmark>,
    /// `Suite::Streams` with work shared between queries, or not; empty: both, if the engine can.
    pub share_work: Vec<bool>,
    /// Queries that `Suite::Cancel` stops.
    pub times: usize,
    /// What `Suite::Memory` and `Suite::OutOfCore` allow the engine, in bytes; `None`: a tenth of
    /// what the queries need, of `Suite::OutOfCore` 1 GiB.
    pub memory: Option<u64>,
    pub peers: Vec<PeerKind>,
    /// Compare every answer with the published one or DuckDB's.
    pub check: bool,
    /// Queries by name; empty: all.
    pub queries: Vec<String>,
    pub report: Option<PathBuf>,
    pub json: Option<PathBuf>,
    pub threads: usize,
    /// Measured runs of each query, after one that warms up.
    pub runs: usize,
    /// How long each measurement of `Suite::Latency` takes.
    pub seconds: u64,
    /// Where the database is kept; `None`: a temporary folder.
    pub database: Option<PathBuf>,
    /// Where the files are kept; `None`: `.cache/bench` below the working folder.
    pub data: Option<PathBuf>,
    pub format: FileFormat,
    /// What `Suite::Load` loads; empty: all.
    pub data_sets: Vec<DataSetKind>,
    /// `Suite::Scan` empties the page cache of the table before every read.
    pub cold: bool,
    /// `Suite::Scaling` runs each query on as many engines of one thread each, too, at the same time.
    pub share_nothing: bool,
}

/// How far a long step is.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub table: Option<String>,
    pub rows: u64,
    pub bytes_done: u64,
    /// 0 while it is not known.
    pub bytes_total: u64,
}

/// Shows samples until what it returns is dropped.
pub type Watch = dyn Fn(Box<dyn Fn() -> Sample + Send>) -> Box<dyn Any>;

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

/// Checks every answer, prints what came of it and notes it in the report; returns a line for each
/// that is wrong.
pub(crate) fn check(
    engine: &Arc<Engine>,
    workload: &Workload,
    options: &Options,
    files: &[GeneratedTable],
    report: &mut Report,
) -> Result<Vec<String>> {
    let wrong = compare::check(engine, workload, options, files)?;
    let kind = if workload.benchmark == Benchmark::Tpch && options.scale_factor == 1.0 {
        "the specification's validation answers"
    } else {
        "DuckDB's"
    };
    let right = workload.queries.len() - wrong.len();
    let note = format!("{right} of {} answers agree with {kind}.", workload.queries.len());
    println!("{note}\n");
    for line in &wrong {
        println!("  {line}");
    }
    report.notes.push(note);
    report.notes.extend(wrong.iter().cloned());
    Ok(wrong)
}

/// An error if there is a line for a wrong answer.
pub(crate) fn none_wrong(wrong: &[String]) -> Result<()> {
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(Error::internal(format!("{} answers are wrong", wrong.len())).detail(wrong.join("\n")))
    }
}

/// A benchmark's tables in an open database.
pub(crate) struct Stored {
    pub engine: Arc<Engine>,
    pub location: String,
    /// What the tables were loaded from.
    pub files: Vec<GeneratedTable>,
    /// `None`: they were there.
    pub load: Option<Load>,
    /// The folder, if it goes when this does.
    _temporary: Option<TempDir>,
}

impl Stored {
    /// Generates and loads what is not there, and prints how that went. `database`: where it is
    /// kept.
    pub fn open(
        options: &Options,
        workload: &Workload,
        database: Option<PathBuf>,
        watch: &Watch,
    ) -> Result<Stored> {
        let (folder, files) = data(options, workload.benchmark, options.format, watch)?;
        say(&format!("data: {}", folder.display()));
        let failed = |e| Error::io("cannot make a temporary folder for the database", e);
        let (path, temporary) = match database {
            Some(path) => (path, None),
            None => {
                let folder = tempfile::tempdir().map_err(failed)?;
                (folder.path().join("db"), Some(folder))
            }
        };
        let location = path.to_string_lossy().into_owned();
        let engine = Engine::open(&location, config(options))?;
        let load = load::load(&engine, workload, &files, watch)?;
        match &load {
            Some(load) => println!("{}", text::load(load, text::Options::stdout())),
            None => {
                say(&format!("the database {location} has the tables already: not loaded again"))
            }
        }
        Ok(Stored { engine, location, files, load, _temporary: temporary })
    }

    /// Over the same database, with a cache of its own, so that both can be equally warm.
    pub fn second_engine(&self, config: Config) -> Result<Arc<Engine>> {
        Engine::open(&self.location, Config { create: false, ..config })
    }
}

pub(crate) fn config(options: &Options) -> Config {
    Config { threads: options.threads, ..Config::default() }
}

/// Of a run over several suites: each has a database of its own below the folder that is kept.
pub(crate) fn suites(options: &Options) -> Vec<(Benchmark, Option<PathBuf>)> {
    let suites = match options.suites.as_slice() {
        [] if options.suite == Suite::Coverage => Benchmark::ALL.to_vec(),
        [] if options.suite == Suite::OutOfCore => vec![Benchmark::Tpch],
        [] => vec![Benchmark::Ssb, Benchmark::Tpch],
        chosen => chosen.to_vec(),
    };
    let database = |suite: &Benchmark| options.database.as_ref().map(|d| d.join(suite.name()));
    suites.into_iter().map(|suite| (suite, database(&suite))).collect()
}

fn policies(options: &Options) -> Vec<PolicyKind> {
    if options.policies.is_empty() { PolicyKind::ALL.to_vec() } else { options.policies.clone() }
}

/// Rates of a debug build are worth nothing; nobody shall quote them by mistake.
pub(crate) fn warn_unoptimised(report: &mut Report) {
    if cfg!(debug_assertions) {
        let note = "This is a debug build: its rates say nothing, its sizes are true.";
        println!("{note}\n");
        report.notes.push(note.into());
    }
}

pub(crate) fn us(options: &Options) -> model::Engine {
    model::Engine {
        name: "Thalweg".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        threads: options.threads,
    }
}

pub(crate) fn write(options: &Options, report: &Report) -> Result<()> {
    let page = || html::render(report);
    save(options.json.as_deref(), options.report.as_deref(), report, page)
}

/// `report` as JSON and as a page, where asked for.
pub(crate) fn save(
    json: Option<&Path>,
    html: Option<&Path>,
    report: &impl Serialize,
    page: impl FnOnce() -> String,
) -> Result<()> {
    let save = |path: &Path, content: String| {
        std::fs::write(path, content)
            .map_err(|e| Error::io(format!("cannot write the report \"{}\"", path.display()), e))
    };
    if let Some(path) = json {
        let json = serde_json::to_string_pretty(report)
            .map_err(|e| Error::internal(format!("the report is no JSON: {e}")))?;
        save(path, json + "\n")?;
    }
    if let Some(path) = html {
        save(path, page())?;
        println!("report: {}", path.display());
    }
    Ok(())
}

/// Where generated files are kept.
pub(crate) fn data_folder(options: &Options) -> PathBuf {
    options.data.clone().unwrap_or_else(|| Path::new(".cache").join("bench"))
}

/// The benchmark's files, generated unless they are there.
pub(crate) fn data(
    options: &Options,
    benchmark: Benchmark,
    format: FileFormat,
    watch: &Watch,
) -> Result<(PathBuf, Vec<GeneratedTable>)> {
    let name = format!("{}-sf{}-{}", benchmark.name(), options.scale_factor, format.extension());
    let folder = data_folder(options).join(name);
    let made: Arc<[AtomicU64; 3]> = Arc::default();
    let seen = Arc::clone(&made);
    let watching = watch(Box::new(move || {
        let [rows, rows_expected, bytes] = [0, 1, 2].map(|i| seen[i].load(Ordering::Relaxed));
        Sample {
            table: Some(format!("generating {benchmark}")),
            rows,
            bytes_done: bytes,
            // The rest is taken to be as wide as what there is.
            bytes_total: (bytes * rows_expected).checked_div(rows).unwrap_or(0).max(bytes),
        }
    }));
    let files = generate::generate(
        benchmark,
        options.scale_factor,
        format,
        &folder,
        options.threads,
        &|p| {
            for (i, n) in [p.rows, p.rows_expected, p.bytes].into_iter().enumerate() {
                made[i].store(n, Ordering::Relaxed);
            }
        },
    )?;
    drop(watching);
    Ok((folder, files))
}

/// The same tables as Parquet, which every peer reads.
pub(crate) fn parquet(
    options: &Options,
    benchmark: Benchmark,
    files: &[GeneratedTable],
    watch: &Watch,
) -> Result<Vec<GeneratedTable>> {
    if options.format == FileFormat::Parquet {
        return Ok(files.to_vec());
    }
    data(options, benchmark, FileFormat::Parquet, watch).map(|(_, files)| files)
}

pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}
