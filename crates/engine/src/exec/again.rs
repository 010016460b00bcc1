//! Plans that are executed more than once.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;

use super::pipeline::StageExec;
use super::{PipelineExec, ScanExec};

/// Whether what [`again`] makes of a plan can be executed, beside others of the same: it has only
/// operators of which that is known. Of others some keep what they found out, and filters that a join
/// or a sort feeds stay those of the first execution.
pub fn runs_again(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let mut known = true;
    let walked = plan.apply(|node| {
        known &= match node.downcast_ref::<ScanExec>() {
            Some(scan) => !scan.is_fed(),
            None => {
                node.is::<PipelineExec>()
                    || node.is::<StageExec>()
                    || node.is::<CoalescePartitionsExec>()
                    || node.is::<ProjectionExec>()
                    || node.is::<GlobalLimitExec>()
                    || node.is::<LocalLimitExec>()
            }
        };
        Ok(if known { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    known && walked.is_ok()
}

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
