//! The `ExecutionPlan` shells: one operator per file, thin over storage and plain functions.

mod filter;
mod scan;
mod sink;

pub use scan::{ScanExec, Source};
pub use sink::TableSink;
