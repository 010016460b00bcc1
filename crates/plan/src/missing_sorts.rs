//! Sorts what is not known to be sorted any more.
//!
//! DataFusion leaves a sort out over a column that it knows to be constant; later rules change the plan
//! below, an outer join takes the place of an inner one or an aggregate is split in two, and nobody
//! knows of the constant any more. Its last rule then refuses the plan: `SELECT count(*) OVER (PARTITION
//! BY b.x) … a LEFT JOIN (SELECT id, 1 AS x …) b` was an internal error. A sort makes it right; over rows
//! that are sorted it costs little.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, ReplaceChildrenOptions,
};

/// Adds the rule before the one that refuses plans.
pub fn install(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    let mut rules = builder.physical_optimizers().take().unwrap_or_default().rules;
    let place = rules.iter().position(|r| r.name() == "SanityCheckPlan");
    rules.insert(place.unwrap_or(rules.len()), Arc::new(MissingSorts));
    builder.with_physical_optimizer_rules(rules)
}

#[derive(Debug)]
struct MissingSorts;

impl PhysicalOptimizerRule for MissingSorts {
    fn name(&self) -> &str {
        "missing_sorts"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| match with_sorts(&plan)? {
            Some(sorted) => Ok(Transformed::yes(sorted)),
            None => Ok(Transformed::no(plan)),
        })
        .data()
    }
}

/// The operator over inputs in the order that it needs; `None`: they are.
fn with_sorts(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let mut inputs = vec![];
    let mut any = false;
    for (input, needed) in plan.children().into_iter().zip(plan.required_input_ordering()) {
        let mut input = Arc::clone(input);
        if let Some(needed) = needed {
            let needed = needed.into_single();
            if !input.equivalence_properties().ordering_satisfy_requirement(needed.clone())? {
                let keys: Vec<PhysicalSortExpr> = needed.into_iter().map(Into::into).collect();
                if let Some(order) = LexOrdering::new(keys) {
                    any = true;
                    let several = input.output_partitioning().partition_count() > 1;
                    let sort = SortExec::new(order, input).with_preserve_partitioning(several);
                    input = Arc::new(sort);
                }
            }
        }
        inputs.push(input);
    }
    if !any {
        return Ok(None);
    }
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Arc::clone(plan).replace_children(inputs, options).map(Some)
}
