//! Plans that are executed more than once.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::union::UnionExec;

use super::pipeline::StageExec;
use super::{PipelineExec, ScanExec};

/// How a plan may be executed more than once, each time a copy that [`again`] makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reuse {
    /// Of some operator that is not known. Some keep what they found out, and filters that a join or
    /// a sort feeds stay those of the first execution.
    Never,
    /// One execution after the other: the values of its scalar subqueries lie in containers that its
    /// expressions hold, whichever copy these are of.
    InTurn,
    AtOnce,
}

impl Reuse {
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let mut least = Reuse::AtOnce;
        let walked = plan.apply(|node| {
            least = least.min(Reuse::of_node(node));
            Ok(match least {
                Reuse::Never => TreeNodeRecursion::Stop,
                _ => TreeNodeRecursion::Continue,
            })
        });
        walked.map_or(Reuse::Never, |_| least)
    }

    fn of_node(node: &Arc<dyn ExecutionPlan>) -> Self {
        if let Some(scan) = node.downcast_ref::<ScanExec>() {
            return if scan.is_fed() { Reuse::Never } else { Reuse::AtOnce };
        }
        let has_subqueries =
            node.downcast_ref::<PipelineExec>().is_some_and(PipelineExec::has_subqueries);
        if has_subqueries || node.is::<ScalarSubqueryExec>() {
            return Reuse::InTurn;
        }
        let known = node.is::<PipelineExec>()
            || node.is::<StageExec>()
            || node.is::<CoalescePartitionsExec>()
            || node.is::<ProjectionExec>()
            || node.is::<GlobalLimitExec>()
            || node.is::<LocalLimitExec>()
            || node.is::<UnionExec>();
        if known { Reuse::AtOnce } else { Reuse::Never }
    }
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
