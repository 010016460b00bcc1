//! The `ExecutionPlan` shells: one operator per file, thin over storage and plain functions.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_plan::ExecutionPlan;

mod again;
mod column;
mod compact;
mod file_scan;
mod filter;
mod give_way;
mod guarded;
mod in_order;
mod loading;
mod narrow;
mod pipeline;
mod scan;
mod sink;
mod spill_file;
mod spill_join;
mod spill_sort;
mod split;
mod take_rows;

pub use again::{Reuse, again};
pub use file_scan::{FileScanExec, Files};
pub use filter::{comparison, may_fail, remap};
pub use guarded::guarded;
pub use in_order::in_order;
pub use loading::Loading;
pub use narrow::IntSeries;
pub use pipeline::{MemoryBandwidth, PipelineExec};
pub use scan::{ScanExec, Source};
pub use sink::TableSink;
pub use take_rows::TakeRowsExec;

/// `plan` as it is run here: its joins and sorts spill, what multiplies rows gives way, and what
/// reads files survives damaged ones.
pub fn adapted(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = spill_sort::spill_sorts(spill_join::spill_joins(plan)?)?;
    guarded::guard(give_way::give_way(plan)?)
}
