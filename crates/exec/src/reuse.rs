//! Which plans may be executed more than once, and how.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::union::UnionExec;

use crate::pipeline::{PipelineExec, StageExec};
use crate::scan::ScanExec;

/// How a plan may be executed more than once, each time a copy that [`again`](crate::again()) makes of it.
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
