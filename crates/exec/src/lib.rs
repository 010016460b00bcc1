//! Runs plans over stored tables and files: scans, what they skip, pipelines, and the operators that go on in
//! files when memory is refused. One operator per file, thin over storage and plain functions.
//!
//! The crate knows no sessions, no statements and no transactions: what it runs was planned elsewhere, and
//! whose query it is says [`thalweg_runtime`].
//!
//! * [`ScanExec`]: chunks of a stored table; [`prune`]: which of them a predicate needs; [`Loading`]: columns
//!   of chunks are read and decoded once for all who want them ([`Flights`]).
//! * [`FileScanExec`], [`in_order`], [`guarded`]: files outside of the database.
//! * [`PipelineExec`]: what was [`Compiled`] into pipelines.
//! * [`KeptExec`]: rows that several places read, computed once.
//! * `spill_join.rs`, `spill_sort.rs`, `give_way.rs`: in the place of DataFusion's operators.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_plan::ExecutionPlan;

mod again;
mod column;
mod compact;
mod compiled;
mod file_scan;
mod filter;
mod flights;
mod give_way;
mod guarded;
mod in_order;
mod kept;
mod loading;
mod narrow;
mod pipeline;
pub mod prune;
mod reuse;
mod row_id;
mod scan;
mod sorted_runs;
mod spill_file;
mod spill_join;
mod spill_sort;
mod split;
mod take_rows;

pub use again::again;
pub use compiled::{Compiled, Input, SubqueryValue};
pub use file_scan::{FileScanExec, Files};
pub use filter::{Translate, comparison, may_fail, remap};
pub use flights::{Flights, Joiner, Landed, Leader, Part};
pub use guarded::guarded;
pub use in_order::in_order;
pub use kept::{Keeping, KeptExec};
pub use loading::Loading;
pub use narrow::IntSeries;
pub use pipeline::{MemoryBandwidth, PipelineExec};
pub use reuse::Reuse;
pub use row_id::{ROW_ID, with_row_id};
pub use scan::{ScanExec, Source};
pub use take_rows::TakeRowsExec;

/// `plan` as it is run here: its joins and sorts spill, what multiplies rows gives way, and what
/// reads files survives damaged ones.
pub fn adapted(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = spill_sort::spill_sorts(spill_join::spill_joins(plan)?)?;
    guarded::guard(give_way::give_way(plan)?)
}
