//! The `ExecutionPlan` shells: one operator per file, thin over storage and plain functions.

mod again;
mod column;
mod filter;
mod give_way;
mod loading;
mod pipeline;
mod scan;
mod sink;
mod spill_file;
mod spill_join;
mod split;
mod take_rows;

pub use again::{again, runs_again};
pub use filter::{comparison, remap};
pub use give_way::give_way;
pub use loading::Loading;
pub use pipeline::{MemoryBandwidth, PipelineExec};
pub use scan::{ScanExec, Source};
pub use sink::TableSink;
pub use spill_join::spill_joins;
pub use take_rows::TakeRowsExec;
