//! What `LIMIT` and `OFFSET` choose stays what they choose.
//!
//! ```text
//! Aggregate: max(n)                    Aggregate: max(n)
//!                                        ChosenRowsExec
//!   GlobalLimitExec: skip=5              GlobalLimitExec: skip=5
//!     ProjectionExec: n            =>      ProjectionExec: n
//!                                            ChosenRowsExec
//!       SortExec: m                            SortExec: m
//! ```
//!
//! Where DataFusion puts sorts to where they are needed, it asks whether the *output* of an operator
//! below a limit is sorted. That has lost the order of `m` with the column, so the sort went as a
//! needless one, and other rows were skipped. And a sort above a limit went below it, where it kept
//! no more rows than the limit lets pass, of which some were then skipped. So as long as that rule
//! runs, limits and the sorts below them are fenced off.
//!
//! A sort that keeps the first rows alone is fenced off from its input. Where the input comes in that
//! order already, the rule hands the number of rows down without asking what it passes: below a window,
//! whose values depend on all rows, `sum(v) OVER ()` was the sum of the first ones.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder, TaskContext};
use datafusion::physical_expr::{Distribution, OrderingRequirements, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties, ReplaceChildrenOptions,
};

/// Adds the two rules to those of a session, around DataFusion's for sorts.
pub fn install(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    let mut rules = builder.physical_optimizers().take().unwrap_or_default().rules;
    if let Some(place) = rules.iter().position(|r| r.name() == "EnsureRequirements") {
        rules.insert(place + 1, Arc::new(OrderedLimits::Unfence));
        rules.insert(place, Arc::new(OrderedLimits::Fence));
    }
    builder.with_physical_optimizer_rules(rules)
}

#[derive(Debug)]
enum OrderedLimits {
    Fence,
    Unfence,
}

impl PhysicalOptimizerRule for OrderedLimits {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match self {
            OrderedLimits::Fence => plan.transform_up(|plan| {
                if plan.is::<GlobalLimitExec>() {
                    return Ok(Transformed::yes(fenced(with_fenced_sort(plan)?)));
                }
                match plan.downcast_ref::<SortExec>() {
                    Some(sort) => {
                        let input = Arc::clone(sort.input());
                        let input = Arc::new(ChosenRowsExec { input, is_whole: false });
                        Ok(Transformed::yes(replaced(plan, input)?))
                    }
                    None => Ok(Transformed::no(plan)),
                }
            }),
            OrderedLimits::Unfence => {
                plan.transform_up(|plan| match plan.downcast_ref::<ChosenRowsExec>() {
                    Some(fence) => Ok(Transformed::yes(Arc::clone(&fence.input))),
                    None => Ok(merged_wholly(plan)),
                })
            }
        }
        .data()
    }

    fn name(&self) -> &str {
        match self {
            OrderedLimits::Fence => "fence_limits",
            OrderedLimits::Unfence => "unfence_limits",
        }
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A merge by the whole order of its input. DataFusion merges by what an operator above asks for, and takes
/// the rows for ordered by all that the input is ordered by: a sort above that was dropped as needless.
fn merged_wholly(plan: Arc<dyn ExecutionPlan>) -> Transformed<Arc<dyn ExecutionPlan>> {
    let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>() else {
        return Transformed::no(plan);
    };
    let by = merge.expr();
    let whole = merge.input().output_ordering();
    match whole.filter(|whole| whole.len() > by.len() && whole[..by.len()] == by[..]) {
        Some(whole) => {
            let whole = SortPreservingMergeExec::new(whole.clone(), Arc::clone(merge.input()));
            Transformed::yes(Arc::new(whole.with_fetch(merge.fetch())))
        }
        None => Transformed::no(plan),
    }
}

/// An operator over another input.
fn replaced(
    plan: Arc<dyn ExecutionPlan>,
    input: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let mode = ChildrenPropertiesMode::Recompute;
    plan.replace_children(vec![input], ReplaceChildrenOptions::new(mode))
}

fn fenced(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    Arc::new(ChosenRowsExec { input, is_whole: true })
}

/// Fences off the sort whose order reaches `limit`, if there is one.
fn with_fenced_sort(limit: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let sorted = limit.transform_down(|plan| {
        let ordered = plan.maintains_input_order() == [true];
        Ok(match plan.is::<SortExec>() {
            true => Transformed::new(fenced(plan), true, TreeNodeRecursion::Stop),
            false if ordered => Transformed::no(plan),
            false => Transformed::new(plan, false, TreeNodeRecursion::Stop),
        })
    });
    sorted.data()
}

/// Its input, in the order that has now. No query runs it.
#[derive(Debug)]
struct ChosenRowsExec {
    input: Arc<dyn ExecutionPlan>,
    /// Whether the rows have to be in one partition.
    is_whole: bool,
}

impl DisplayAs for ChosenRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChosenRowsExec")
    }
}

impl ExecutionPlan for ChosenRowsExec {
    fn name(&self) -> &str {
        "ChosenRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![match self.is_whole {
            true => Distribution::SinglePartition,
            false => Distribution::UnspecifiedDistribution,
        }])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![self.input.output_ordering().cloned().map(OrderingRequirements::from)]
    }

    /// It does; but who is told so takes sorts from above to below it.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.swap_remove(0);
        Ok(Arc::new(ChosenRowsExec { input, is_whole: self.is_whole }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mode = ChildrenPropertiesMode::Recompute;
        self.replace_children(children, ReplaceChildrenOptions::new(mode))
    }

    fn execute(&self, n: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(n, context)
    }
}
