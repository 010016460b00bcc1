//! Plans that are executed more than once.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::reset_plan_states;

use super::ScanExec;

/// A copy that has not been executed, and has no figures.
pub fn again(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    reset_plan_states(Arc::clone(plan))
}

/// The same without filters that operators would feed: what they fed them may be another
/// execution's.
pub fn unfed(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|plan| match plan.downcast_ref::<ScanExec>() {
        Some(scan) if scan.is_fed() => Ok(Transformed::yes(Arc::new(scan.unfed()) as _)),
        _ => Ok(Transformed::no(plan)),
    })
    .data()
}
