//! What is one value below an outer join or in a set of groups is not above.
//!
//! ```text
//! SortExec: c, v                   all rows of x have c = 1, others have a NULL
//!   HashJoinExec: Right
//!     ProjectionExec: 1 as c
//!     …
//! ```
//!
//! DataFusion takes a column that is constant below for constant above, and columns that are equal for
//! equal, and drops sort keys that are so. But an outer join adds rows with NULLs to a side, and the
//! groups of a ROLLUP have NULLs in the columns that they are not grouped by. And of the parts of a UNION
//! each has a constant of its own: without that sort key, the filter that a top-k learns from one part
//! drops rows of another. While the rule runs that
//! places sorts, such inputs stand below an operator that keeps to itself what it knows of its rows.
//!
//! Nor have the groups of a ROLLUP the order of its input, which DataFusion says of them: those of a total
//! stand among the others. Where it does, the operator stays, and says of no order.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result};
use datafusion::config::ConfigOptions;
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, ReplaceChildrenOptions,
};

/// Adds the two rules to those of a session, around DataFusion's for sorts.
pub fn install(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    let mut rules = builder.physical_optimizers().take().unwrap_or_default().rules;
    if let Some(place) = rules.iter().position(|r| r.name() == "EnsureRequirements") {
        rules.insert(place + 1, Arc::new(LostConstants::Unfence));
        rules.insert(place, Arc::new(LostConstants::Fence));
    }
    builder.with_physical_optimizer_rules(rules)
}

#[derive(Debug)]
enum LostConstants {
    Fence,
    Unfence,
}

impl PhysicalOptimizerRule for LostConstants {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match self {
            LostConstants::Fence => plan.transform_up(fenced),
            LostConstants::Unfence => {
                plan.transform_up(|plan| match plan.downcast_ref::<SecretiveExec>() {
                    Some(fence) if !fence.is_needed() => {
                        Ok(Transformed::yes(Arc::clone(&fence.input)))
                    }
                    _ => Ok(Transformed::no(plan)),
                })
            }
        }
        .data()
    }

    fn name(&self) -> &str {
        match self {
            LostConstants::Fence => "fence_constants",
            LostConstants::Unfence => "unfence_constants",
        }
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// With fences above the inputs whose columns are NULL in more rows above.
fn fenced(plan: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let join = if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        Some(*join.join_type())
    } else if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        Some(*join.join_type())
    } else {
        plan.downcast_ref::<SortMergeJoinExec>().map(|join| join.join_type())
    };
    let groups = plan.downcast_ref::<AggregateExec>();
    let groups_of_sets = groups.is_some_and(|groups| groups.group_expr().has_grouping_set());
    let fences: &[bool] = match (join, groups) {
        // Of the side that keeps its rows it may be forgotten later on.
        (Some(JoinType::Left | JoinType::Right | JoinType::Full), _) => &[true, true],
        _ if groups_of_sets => &[true],
        _ if plan.is::<UnionExec>() => &vec![true; plan.children().len()],
        _ => return Ok(Transformed::no(plan)),
    };
    let children = plan.children().into_iter().zip(fences);
    let children = children.map(|(child, fence)| match fence {
        true => SecretiveExec::around(Arc::clone(child), false),
        false => Arc::clone(child),
    });
    let children = children.collect();
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    let fenced = plan.replace_children(children, options)?;
    Ok(Transformed::yes(match groups_of_sets {
        true => SecretiveExec::around(fenced, true),
        false => fenced,
    }))
}

/// Its input, of which it says no more than the order, or nothing.
#[derive(Debug)]
struct SecretiveExec {
    input: Arc<dyn ExecutionPlan>,
    /// The rows have not the order that the input says.
    hides_order: bool,
    properties: Arc<PlanProperties>,
}

impl SecretiveExec {
    fn around(input: Arc<dyn ExecutionPlan>, hides_order: bool) -> Arc<dyn ExecutionPlan> {
        let orders = input.equivalence_properties().oeq_class().iter().cloned();
        let told = match hides_order {
            true => EquivalenceProperties::new(input.schema()),
            false => EquivalenceProperties::new_with_orderings(input.schema(), orders),
        };
        let properties = input.properties().as_ref().clone().with_eq_properties(told);
        Arc::new(SecretiveExec { input, hides_order, properties: Arc::new(properties) })
    }

    /// Whether the plan would be wrong without it, also when all sorts have their place.
    fn is_needed(&self) -> bool {
        self.hides_order && !self.input.equivalence_properties().oeq_class().is_empty()
    }
}

impl DisplayAs for SecretiveExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretiveExec")
    }
}

impl ExecutionPlan for SecretiveExec {
    fn name(&self) -> &str {
        "SecretiveExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![!self.hides_order]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
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
        Ok(SecretiveExec::around(children.swap_remove(0), self.hides_order))
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
