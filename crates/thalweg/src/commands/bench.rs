//! `thalweg bench`: the arguments only; generators, harness and reports are `thalweg-bench`.

use std::any::Any;
use std::path::PathBuf;

use clap::ValueEnum;
use thalweg_base::Result;
use thalweg_bench::data_set::DataSetKind;
use thalweg_bench::generate::{Benchmark, FileFormat, SCALE_FACTOR_MIN};
use thalweg_bench::peers::PeerKind;
use thalweg_bench::{Options, Suite as Run};

use super::load::size;
use super::sql::threads;
use crate::database;
use crate::failure::Outcome;
use crate::progress::{Progress, Sample};
use thalweg_engine::PolicyKind;

/// Measure this machine with a standard workload, also against other engines
///
/// Generates the data on first use, loads it, runs every query alone (the power run) and prints
/// times with their spread. With --streams, several clients then run all queries at the same time,
/// each in an order of its own, under each scheduling policy.
///
/// `policies` gives two heavy queries and, right behind them, six short ones to the engine at once,
/// and shows when each is done under each policy.
///
/// `latency` asks a short query every 50 ms beside streams of heavy ones, under each policy, and
/// shows how long the short ones take from when they were due, and how much of the heavy work is
/// still done.
///
/// `load` loads the same CSV files of SSB, TPC-H and the 2013 New York flights in turn with DuckDB,
/// each time in a new process, and shows rates, sizes and memory. `scan` reads a whole table, in
/// turn with fio or else a reader of our own.
///
/// `streams` runs SSB and TPC-H in 1, 2, 4, 8 and 16 streams at once, each count beside as many
/// power runs in turn, with work shared between queries that run at the same time and without.
/// `overhead` runs both alone, with the scheduler and with tasks that run as soon as they can, query
/// by query in turn; `scaling` in the same way with all threads and with one, and with
/// `--share-nothing` on as many engines of one thread each at once. Before each run it measures what
/// a cache line takes from core to core: in a virtual machine that can change from second to
/// second, and runs with near and far cores are told apart where there were enough of both.
///
/// `coverage` plans the queries of SSB, TPC-H, TPC-DS and ClickBench, and shows which of them run
/// wholly on pipelines and which operators the others need. It runs none of them.
///
/// `cancel` stops TPC-H's queries at random moments: by dropping the answer, as Ctrl-C does, by
/// KILL and by a time limit in turn. It shows how long they go on holding slots and memory, and
/// fails if a look-up afterwards is wrong.
///
/// `memory` runs 64 queries at once that together need ten times the memory the engine is allowed:
/// aggregates, joins and sorts, no two of them the same. It shows how many end, and the memory of
/// the process, and fails if an answer is missing or is not the one that the query has alone.
///
/// `out-of-core` runs TPC-H alone, within little memory and without that limit, query by query in
/// turn. It shows how many times as long each query takes, the most that it held and the most that
/// lay in spill files, and fails if an answer is missing or is another one.
///
/// `results` sends ten million rows to clients on this machine, over each protocol in turn.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub struct Args {
    /// The workload
    #[arg(value_enum, value_name = "SUITE")]
    pub suite: Suite,

    /// Scale factor: 1 is about 1 GB of raw data, of `clickbench` a million
    /// rows, of `operations` eight [default: 1; of `coverage` the smallest, 0.001]
    #[arg(long, value_name = "FACTOR")]
    pub sf: Option<f64>,

    /// Clients that run at the same time; several counts, as in 2,4,16, are measured in turn
    /// [default of `streams`: 1,2,4,8,16]. Of `latency`: streams of heavy queries, besides none
    /// [default: 0,2,8,16]. Of `memory`: queries at once [default: 64]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = streams)]
    pub streams: Vec<usize>,

    /// In which order the tasks of concurrent queries run; several are measured in turn [default:
    /// all; of `streams`, `cancel`, `memory`, `overhead`, `scaling` and
    /// `out-of-core` fair]
    #[arg(long, value_name = "POLICY", value_delimiter = ',', value_parser = database::policies())]
    pub policy: Vec<PolicyKind>,

    /// Only these queries, as in 1.1,2.3 or 1,9,18
    #[arg(long, value_name = "QUERIES", value_delimiter = ',')]
    pub queries: Vec<String>,

    /// What `streams`, `overhead`, `scaling` and `out-of-core` run, and `coverage` plans [default:
    /// ssb,tpch; of `out-of-core` tpch, of `coverage` all]
    #[arg(id = "suites", long = "suite", value_name = "NAMES", value_delimiter = ',', value_enum)]
    pub suites: Vec<Queries>,

    /// Whether the queries of `streams` may do common work once [default: off,on]
    #[arg(long, value_name = "off,on", value_delimiter = ',', value_parser = ["off", "on"])]
    pub share_work: Vec<String>,

    /// How many queries `cancel` stops
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub times: usize,

    /// What `memory` and `out-of-core` allow the engine: three quarters for joins, groups and
    /// sorts, one for the cache of decoded chunks [default: a tenth of what the queries need; of
    /// `out-of-core` 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,

    /// Other engines to run beside: duckdb, datafusion, chdb, polars; for `scaling`, each with all
    /// threads and with one
    #[arg(long, value_name = "PEERS", value_delimiter = ',')]
    pub peers: Vec<String>,

    /// Write a report as a single HTML page
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,

    /// Write every measurement as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Threads that run queries [default: the cores of this machine]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,

    /// Measured runs of each query, after one that warms up; or of each load, scan, mix of
    /// `latency` and stream count of `streams` [default: 5; of these and of `out-of-core` 3]
    #[arg(long, value_name = "N")]
    pub runs: Option<usize>,

    /// How long each run of `latency` takes
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,

    /// Keep the loaded database in DIR and use it again the next time; `streams`, `overhead`,
    /// `scaling`, `out-of-core` and `coverage` keep one for each suite; `load` keeps one for each
    /// data set and uses none again
    #[arg(long, value_name = "DIR")]
    pub db: Option<PathBuf>,

    /// Keep the generated files in DIR and use them again the next time
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,

    /// Format of the generated files
    #[arg(long, value_enum, default_value = "parquet")]
    pub format: DataFormat,

    /// Compare every answer, of `out-of-core` those within the limit: TPC-H at scale factor 1 with
    /// the specification's, all else with DuckDB's over the same files
    #[arg(long)]
    pub check: bool,

    /// What `load` loads, of ssb, tpch, flights [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub data_sets: Vec<String>,

    /// `scan` reads from the disk every time, not from the page cache
    #[arg(long)]
    pub cold: bool,

    /// `scaling` runs each query on as many engines of one thread each at the same time, too: they
    /// share nothing but the machine. Each has a cache of its own
    #[arg(long)]
    pub share_nothing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// Star Schema Benchmark: 13 queries on one fact table
    Ssb,
    /// TPC-H: 22 decision-support queries
    Tpch,
    /// TPC-DS: 99 queries on a retailer's schema
    Tpcds,
    /// ClickBench: 43 queries on one wide table of page views, made here with ClickBench's schema
    Clickbench,
    /// everyday operations, one a query, on eight million rows: sorts, windows, counts of different texts …
    Operations,
    /// short and long queries together, under every scheduling policy
    Policies,
    /// a short query every 50 ms beside streams of heavy ones, under every scheduling policy
    Latency,
    /// 1 to 16 streams of SSB and TPC-H at once, beside as many power runs in turn
    Streams,
    /// TPC-H's queries stopped at random moments: how long they hold slots and memory
    Cancel,
    /// 64 queries at once that need ten times the memory there is
    Memory,
    /// what the scheduler costs a single stream of SSB and TPC-H
    Overhead,
    /// how much faster a single stream of SSB and TPC-H is on all threads than on one
    Scaling,
    /// what it costs a single stream of TPC-H to have little memory
    OutOfCore,
    /// which queries of these suites run wholly on pipelines
    Coverage,
    /// what queries read of a large clustered table, and a point look-up among a million chunks
    Skipping,
    /// ten million rows to a client: in this process, over Flight SQL and the PostgreSQL protocol
    Results,
    /// CSV files into a database, beside DuckDB and the limit of the disk
    Load,
    /// all columns of a large table, beside a reader of its files
    Scan,
    /// one task of `load` or `scan`, in a process of its own
    #[value(hide = true)]
    Worker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Queries {
    Ssb,
    Tpch,
    Tpcds,
    Clickbench,
    Operations,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DataFormat {
    Csv,
    Parquet,
}

const AFTER: &str = "\
Examples:
  thalweg bench ssb --sf 1
  thalweg bench tpch --sf 10 --streams 2,4,16 --report tpch.html
  thalweg bench tpch --peers duckdb,datafusion --json tpch.json
  thalweg bench clickbench --sf 5 --peers duckdb
  thalweg bench operations --peers duckdb --queries moving_sum,top_k
  thalweg bench policies --report policies.html
  thalweg bench latency --streams 0,8 --policy fair,fifo --peers duckdb
  thalweg bench streams --suite tpch --streams 1,8 --report streams.html
  thalweg bench overhead --suite ssb --runs 9
  thalweg bench scaling --suite tpch --sf 10 --peers duckdb
  thalweg bench coverage --suite tpch,tpcds
  thalweg bench cancel --times 200 --queries 1,9,18
  thalweg bench memory --memory 1GiB --json memory.json
  thalweg bench out-of-core --sf 10 --memory 2GiB --queries 9,18
  thalweg bench skipping --sf 0.1
  thalweg bench results --sf 0.1
  thalweg bench load --sf 10 --data-sets ssb,tpch --report load.html
  thalweg bench scan --sf 10 --cold
  thalweg bench ssb --sf 0.1 --check --db ssb.db --data ssb-files";

pub fn run(args: Args) -> Outcome {
    Ok(start(args)?)
}

/// The one place that meets the benchmark crate.
fn start(args: Args) -> Result<()> {
    let suite = match args.suite {
        Suite::Ssb => Run::Queries(Benchmark::Ssb),
        Suite::Tpch => Run::Queries(Benchmark::Tpch),
        Suite::Tpcds => Run::Queries(Benchmark::Tpcds),
        Suite::Clickbench => Run::Queries(Benchmark::Clickbench),
        Suite::Operations => Run::Queries(Benchmark::Operations),
        Suite::Policies => Run::Policies,
        Suite::Latency => Run::Latency,
        Suite::Load => Run::Load,
        Suite::Scan => Run::Scan,
        Suite::Streams => Run::Streams,
        Suite::Cancel => Run::Cancel,
        Suite::Memory => Run::Memory,
        Suite::Overhead => Run::Overhead,
        Suite::Scaling => Run::Scaling,
        Suite::OutOfCore => Run::OutOfCore,
        Suite::Coverage => Run::Coverage,
        Suite::Skipping => return skipping(args),
        Suite::Results => return results(args),
        Suite::Worker => return thalweg_bench::worker::serve(),
    };
    let options = Options {
        suite,
        scale_factor: scale_factor(args.sf, args.suite),
        streams: args.streams,
        policies: args.policy,
        suites: args.suites.into_iter().map(benchmark).collect(),
        share_work: args.share_work.iter().map(|value| value == "on").collect(),
        times: args.times,
        memory: args.memory,
        peers: args.peers.iter().map(|id| PeerKind::parse(id)).collect::<Result<_>>()?,
        check: args.check,
        queries: args.queries,
        report: args.report,
        json: args.json,
        threads: cores(args.threads),
        runs: runs(args.runs, args.suite),
        seconds: args.seconds,
        database: args.db,
        data: args.data,
        data_sets: args.data_sets.iter().map(|n| DataSetKind::parse(n)).collect::<Result<_>>()?,
        cold: args.cold,
        share_nothing: args.share_nothing,
        format: match args.format {
            DataFormat::Csv => FileFormat::Csv,
            DataFormat::Parquet => FileFormat::Parquet,
        },
    };
    thalweg_bench::run(&options, &watch)
}

fn benchmark(queries: Queries) -> Benchmark {
    match queries {
        Queries::Ssb => Benchmark::Ssb,
        Queries::Tpch => Benchmark::Tpch,
        Queries::Tpcds => Benchmark::Tpcds,
        Queries::Clickbench => Benchmark::Clickbench,
        Queries::Operations => Benchmark::Operations,
    }
}

/// As many clients as there may be threads, or none.
fn streams(value: &str) -> std::result::Result<usize, String> {
    match value.parse() {
        Ok(n @ 0..=4096) => Ok(n),
        _ => Err("expected a number from 0 to 4096".to_string()),
    }
}

pub fn cores(threads: Option<usize>) -> usize {
    threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

fn scale_factor(factor: Option<f64>, suite: Suite) -> f64 {
    factor.unwrap_or(match suite {
        Suite::Coverage => SCALE_FACTOR_MIN,
        _ => 1.0,
    })
}

fn runs(runs: Option<usize>, suite: Suite) -> usize {
    runs.unwrap_or(match suite {
        Suite::Load
        | Suite::Scan
        | Suite::Latency
        | Suite::Streams
        | Suite::Results
        | Suite::OutOfCore => 3,
        _ => 5,
    })
}

fn skipping(args: Args) -> Result<()> {
    thalweg_bench::skipping::run(&thalweg_bench::skipping::Options {
        scale_factor: scale_factor(args.sf, args.suite),
        runs: runs(args.runs, args.suite),
        threads: cores(args.threads),
        database: args.db,
        json: args.json,
    })
}

fn results(args: Args) -> Result<()> {
    thalweg_bench::results::run(&thalweg_bench::results::Options {
        scale_factor: scale_factor(args.sf, args.suite),
        runs: runs(args.runs, args.suite),
        threads: cores(args.threads),
        json: args.json,
    })
}

/// Progress bars for the steps that take long.
fn watch(sample: Box<dyn Fn() -> thalweg_bench::Sample + Send>) -> Box<dyn Any> {
    Box::new(Progress::start(move || {
        let s = sample();
        Sample {
            table: s.table,
            rows: s.rows,
            bytes_done: s.bytes_done,
            bytes_total: s.bytes_total,
            ..Sample::default()
        }
    }))
}
