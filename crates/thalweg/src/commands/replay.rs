//! `thalweg replay`: the arguments only; the rest is `thalweg-bench`.

use std::path::PathBuf;

use thalweg_bench::replay::Options;
use thalweg_engine::PolicyKind;

use super::bench::cores;
use super::sql::threads;
use crate::database;
use crate::failure::Outcome;

/// Show what each scheduling policy would have done to a recorded workload
///
/// Reads when each query came, how much CPU time it used and how many of its tasks could run at a
/// time, and plays that through the scheduler in simulated time under each policy. Prints latency
/// of short queries (less than 100 ms of CPU time) and long ones, slowdown, throughput, and when
/// all was done; and the same as it was recorded, for comparison.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub struct Args {
    /// The record: a CSV, Parquet, JSON lines or Arrow file
    #[arg(value_name = "FILE")]
    file: String,

    /// Only these policies [default: all]
    #[arg(long, value_name = "POLICY", value_delimiter = ',', value_parser = database::policies())]
    policy: Vec<PolicyKind>,

    /// Tasks that run at a time [default: the cores of this machine]
    #[arg(long, value_name = "N", value_parser = threads)]
    slots: Option<usize>,

    /// Write a report as a single HTML page
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    /// Write every figure as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const AFTER: &str = "\
Examples:
  thalweg replay log.csv
  thalweg replay log.parquet --policy fair,fifo --slots 8
  thalweg replay 'logs/*.csv' --report replay.html --json replay.json

The record has one row for each query. Columns that are used:
  arrived  when it came: a time such as 2026-01-31 12:00:00.250
  cpu_us   the CPU time that it used, in microseconds
  tasks    how many of its tasks could run at a time; 0 counts as 1
  wall_us  from its arrival to its end, in microseconds; may be missing, and then nothing is
           shown as recorded
Others are ignored. In a session whose engine has run the workload,
  COPY (SELECT * FROM system.query_log) TO 'log.csv'
writes such a file. One of another system will do as well.

The simulation knows of no disk, no network and no slow client: it shows how queries wait for each
other. Limits and weights of workloads are not in the record and not played.";

pub fn run(args: Args) -> Outcome {
    Ok(thalweg_bench::replay::run(&Options {
        file: args.file,
        policies: args.policy,
        slots: cores(args.slots),
        report: args.report,
        json: args.json,
    })?)
}
