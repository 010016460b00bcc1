//! Where a join takes NULL for equal to NULL, only its own keys are compared so.
//!
//! A join on `IS NOT DISTINCT FROM`, or to the domain of a subquery, has one way of comparing its keys. An
//! equation that a filter has brought into such a join is no key of it: `v = m` of two NULLs is not true.
//! DataFusion's rules make keys of equations all the same, so they leave such joins alone here.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{NullEquality, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{Join, LogicalPlan};
use datafusion::optimizer::OptimizerRule;
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::optimizer::{ApplyOrder, OptimizerConfig};

/// Puts the two rules in the place of DataFusion's.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    crate::rules::in_place(Flatten::default(), crate::rules::in_place(Extract::default(), builder))
}

fn takes_nulls(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Join(Join { null_equality: NullEquality::NullEqualsNull, on, .. })
        if !on.is_empty())
}

/// Makes keys of the equations in the filters of joins.
#[derive(Debug, Default)]
struct Extract {
    rule: ExtractEquijoinPredicate,
}

impl OptimizerRule for Extract {
    fn name(&self) -> &str {
        "extract_equijoin_predicate"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if takes_nulls(&plan) {
            return Ok(Transformed::no(plan));
        }
        match plan {
            LogicalPlan::Join(mut join) if join.on.is_empty() => {
                // It has no keys yet that would take NULLs.
                join.null_equality = NullEquality::NullEqualsNothing;
                self.rule.rewrite(LogicalPlan::Join(join), config)
            }
            other => self.rule.rewrite(other, config),
        }
    }
}

/// Takes inner joins apart and joins their inputs anew, by all equations there are.
#[derive(Debug, Default)]
struct Flatten {
    rule: EliminateCrossJoin,
}

impl OptimizerRule for Flatten {
    fn name(&self) -> &str {
        "eliminate_cross_join"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match plan.exists(|plan| Ok(takes_nulls(plan)))? {
            true => Ok(Transformed::no(plan)),
            false => self.rule.rewrite(plan, config),
        }
    }
}
