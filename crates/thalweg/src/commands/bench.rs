//! `thalweg bench`: the arguments only; generators, harness and reports are `thalweg-bench`.

use std::path::PathBuf;

use clap::ValueEnum;

use super::sql::threads;
use crate::database;
use crate::failure::Outcome;
use thalweg_engine::PolicyKind;

/// Measure this machine with a standard workload, also against other engines
///
/// Generates the data on first use, loads it, runs the queries and prints times with their
/// spread. With --streams several clients run the queries at the same time.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub struct Args {
    /// The workload
    #[arg(value_enum, value_name = "SUITE")]
    pub suite: Suite,

    /// Scale factor: 1 is about 1 GB of raw data
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub sf: f64,

    /// Clients that run at the same time; several counts, as in 1,4,16, are measured in turn
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1")]
    pub streams: Vec<usize>,

    /// In which order the tasks of concurrent queries run [default: small_first]
    #[arg(long, value_name = "POLICY", value_parser = database::policies())]
    pub policy: Option<PolicyKind>,

    /// Other engines to run beside, such as duckdb,datafusion
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

    /// Measured runs of each query, after one that warms up
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub runs: usize,

    /// Keep the loaded database in DIR and use it again the next time
    #[arg(long, value_name = "DIR")]
    pub db: Option<PathBuf>,

    /// Keep the generated files in DIR and use them again the next time
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,

    /// Format of the generated files
    #[arg(long, value_enum, default_value = "parquet")]
    pub format: DataFormat,

    /// Compare every result with the expected one
    #[arg(long)]
    pub check: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// Star Schema Benchmark: 13 queries on one fact table
    Ssb,
    /// TPC-H: 22 decision-support queries
    Tpch,
    /// TPC-DS: 99 queries on a retailer's schema
    Tpcds,
    /// short and long queries together, under every scheduling policy
    Policies,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DataFormat {
    Csv,
    Parquet,
}

const AFTER: &str = "\
Examples:
  thalweg bench ssb --sf 1
  thalweg bench tpch --sf 10 --streams 1,4,16 --report tpch.html
  thalweg bench tpch --peers duckdb,datafusion --json tpch.json
  thalweg bench policies --streams 8
  thalweg bench ssb --sf 0.1 --check --db ssb.db --data ssb-files";

pub fn run(args: Args) -> Outcome {
    Ok(start(args)?)
}

/// The one place that meets the benchmark crate.
fn start(_args: Args) -> thalweg_base::Result<()> {
    Err(thalweg_base::Error::unsupported("this build has no benchmarks"))
}
