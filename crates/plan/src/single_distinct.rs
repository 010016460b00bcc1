//! DataFusion makes two phases of the aggregates beside a DISTINCT one; their columns stay what they are.
//!
//! `sum(b), count(DISTINCT c)` becomes `sum(alias2)` over `sum(b) AS alias2 … GROUP BY c AS alias1`. The
//! sum of a sum of decimals has more digits, which comparisons above were not bound for. And a column of
//! the query that is called `alias1` is confused with the rule's. Such plans stay as they are.

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::optimizer::single_distinct_to_groupby::SingleDistinctToGroupBy;

#[derive(Debug, Default)]
struct SingleDistinct {
    rule: SingleDistinctToGroupBy,
}

/// Puts the rule in the place of DataFusion's.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    crate::rules::in_place(SingleDistinct::default(), builder)
}

impl OptimizerRule for SingleDistinct {
    fn name(&self) -> &str {
        "single_distinct_aggregation_to_group_by"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = &plan else { return Ok(Transformed::no(plan)) };
        if aggregate.input.schema().fields().iter().any(|f| is_of_the_rule(f.name())) {
            return Ok(Transformed::no(plan));
        }
        let before = plan.clone();
        let rewritten = self.rule.rewrite(plan, config)?;
        let types = |plan: &LogicalPlan| -> Vec<_> {
            plan.schema().fields().iter().map(|f| f.data_type().clone()).collect()
        };
        match types(&rewritten.data) == types(&before) {
            true => Ok(rewritten),
            false => Ok(Transformed::no(before)),
        }
    }
}

/// `alias1`, `group_alias_0`
fn is_of_the_rule(name: &str) -> bool {
    let rest = name.strip_prefix("group_alias_").or_else(|| name.strip_prefix("alias"));
    rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}
