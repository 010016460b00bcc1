//! Benchmarks: data, queries, runs and reports behind `thalweg bench`.
//!
//! * [`generate`]: the tables of SSB, TPC-H, TPC-DS and ClickBench as CSV or Parquet files.
//! * `workload.rs`: the queries, and the statements that make the tables.
//! * [`run`] (`run.rs`): what the command does, in order. `load.rs`, `power.rs`, `streams.rs`,
//!   `mixed.rs`, `latency.rs`, `compare.rs`: its steps. `standstill.rs`: whether the machine ran at all.
//! * `throughput.rs`: 1 to 16 streams at once against power runs in turn. `cancel.rs`: how soon a
//!   query that is stopped holds nothing more. `memory.rs`: queries that need ten times the memory
//!   there is. `peaks.rs`: what an engine holds meanwhile. `coverage.rs`: which queries run wholly
//!   on pipelines.
//! * `interleaved.rs`: the same queries on two engines in turn. `variants.rs`: what the scheduler
//!   costs one stream, and what threads bring it. `out_of_core.rs`: what it costs to have little
//!   memory.
//! * `load_rate.rs`: how fast files are loaded and how small they become. `cold_scan.rs`: how near a
//!   scan is to what the disk gives. `disk.rs`, [`worker`], [`data_set`]: what these two need.
//! * [`skipping`]: what queries read of a large table, and what finding that out costs.
//! * [`results`]: how fast rows reach a client, over each protocol.
//! * [`peers`]: other engines in processes of their own. [`answers`]: whether a result is right.
//! * [`replay`]: what each policy would have done to a recorded workload.
//! * [`report`]: the figures as text, as a page and as JSON.
//!
//! A benchmark is a command, never a test: what it prints depends on the machine.

pub mod answers;
mod cancel;
mod checked;
mod cold_scan;
mod compare;
mod coverage;
pub mod data_set;
mod disk;
pub mod generate;
mod interleaved;
mod latency;
mod load;
mod load_rate;
mod machine;
mod memory;
mod mixed;
mod out_of_core;
mod peaks;
pub mod peers;
mod power;
pub mod replay;
pub mod report;
pub mod results;
mod run;
pub mod skipping;
mod standstill;
mod stored;
mod streams;
mod suite;
mod throughput;
mod variants;
pub mod worker;
mod workload;

pub use run::{Options, Sample, Suite, Watch};
pub use suite::run;
pub use workload::{Query, Workload};
