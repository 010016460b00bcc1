//! `SELECT many columns FROM a table ORDER BY few of them LIMIT n` reads the few to find the rows,
//! and the others for these rows alone.
//!
//! ```text
//!                              TakeRowsExec: all columns
//!   top-k                        top-k
//!     ScanExec: all columns        ScanExec: columns of ORDER BY, and the row's id
//! ```
//!
//! A top-k as DataFusion plans it carries every column of each row that comes in, and the scan
//! decodes all columns of a chunk of which one row may be among the first.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use thalweg_base::limits::BATCH_ROWS;

use thalweg_exec::{ScanExec, TakeRowsExec};

/// Rows that are asked for at most: they may lie in as many chunks, each of which is decoded for
/// them, and come in one batch.
const ROWS_MAX: usize = BATCH_ROWS;

#[derive(Debug, Default)]
pub struct LateColumns;

/// Adds the rule to those of a session, before the one that tells a scan how its rows are sorted.
pub fn install(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    let mut rules = builder.physical_optimizers().take().unwrap_or_default().rules;
    let place = rules.iter().position(|r| r.name() == "PushdownSort");
    rules.insert(place.unwrap_or(rules.len()), Arc::new(LateColumns));
    builder.with_physical_optimizer_rules(rules)
}

impl PhysicalOptimizerRule for LateColumns {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rewritten = plan.transform_down(|plan| match late(&plan)? {
            Some(late) => Ok(Transformed::new(late, true, TreeNodeRecursion::Jump)),
            None => Ok(Transformed::no(plan)),
        });
        rewritten.data()
    }

    fn name(&self) -> &str {
        "late_columns"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What takes the place of a top-k over a scan, if it is one.
fn late(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let merge = plan.downcast_ref::<SortPreservingMergeExec>();
    let below = merge.map_or(plan, |merge| merge.input());
    let Some(sort) = below.downcast_ref::<SortExec>() else { return Ok(None) };
    let Some(scan) = sort.input().downcast_ref::<ScanExec>() else { return Ok(None) };
    let alone = merge.is_some() || below.output_partitioning().partition_count() == 1;
    let rows = merge.map_or(sort.fetch(), |merge| merge.fetch());
    if !alone || rows.is_none_or(|rows| rows > ROWS_MAX) || sort.fetch().is_none() {
        return Ok(None);
    }
    let keys = sort.expr().iter().map(|key| Some(key.expr.downcast_ref::<Column>()?.index()));
    let Some(keys) = keys.collect::<Option<Vec<usize>>>() else { return Ok(None) };
    let mut narrow = keys.clone();
    narrow.sort_unstable();
    narrow.dedup();
    if !scan.has_late_columns(&narrow) {
        return Ok(None);
    }
    let named: Arc<dyn ExecutionPlan> = Arc::new(scan.with_row_ids(&narrow)?);
    let key = |(key, at): (&PhysicalSortExpr, &usize)| {
        let index = narrow.iter().position(|n| n == at).expect("all keys are in it");
        let column = Column::new(named.schema().field(index).name(), index);
        PhysicalSortExpr::new(Arc::new(column), key.options)
    };
    let Some(order) = LexOrdering::new(sort.expr().iter().zip(&keys).map(key)) else {
        return Ok(None);
    };
    let mut top: Arc<dyn ExecutionPlan> = Arc::new(
        SortExec::new(order.clone(), Arc::clone(&named))
            .with_preserve_partitioning(sort.preserve_partitioning())
            .with_fetch(sort.fetch()),
    );
    if let Some(merge) = merge {
        top = Arc::new(SortPreservingMergeExec::new(order, top).with_fetch(merge.fetch()));
    }
    Ok(Some(Arc::new(TakeRowsExec::new(top, scan, plan.as_ref()))))
}
