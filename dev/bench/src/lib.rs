//! Benchmarks: data, queries, runs and reports behind `thalweg bench`.
//!
//! * [`generate`]: the tables of SSB, TPC-H and TPC-DS as CSV or Parquet files.
//! * `workload.rs`: the queries, and the statements that make the tables.
//! * [`run`] (`run.rs`): what the command does, in order. `load.rs`, `power.rs`, `streams.rs`,
//!   `mixed.rs`, `compare.rs`: its steps.
//! * [`peers`]: other engines in processes of their own. [`answers`]: whether a result is right.
//! * [`report`]: the figures as text, as a page and as JSON.
//!
//! A benchmark is a command, never a test: what it prints depends on the machine.

pub mod answers;
mod compare;
pub mod generate;
mod load;
mod mixed;
pub mod peers;
mod power;
pub mod report;
mod run;
mod streams;
mod workload;

pub use run::{Options, Sample, Suite, Watch, run};
pub use workload::{Query, Workload};
