//! DataFusion's `eliminate_cross_join`, kept from two things it does wrong.
//!
//! It flattens adjacent inner joins and builds them up again left-deep, in the order it meets
//! the relations. On the way, as of DataFusion 55.2,
//!
//! * a key over several relations (`a.x + b.y = c.z`) is dropped if these are not joined by
//!   then, and the query gives too many rows; bushy trees make that likely;
//! * all joins get the null equality of the topmost, and so do equalities of a filter above.
//!
//! A plan with either is left as it is, and so is one without a cross join, where it could
//! only undo a better order. [`super::JoinOrder`] finds the equalities of what is left out by
//! itself, since it takes them from filters too.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{NullEquality, Result};
use datafusion::logical_expr::{Expr, JoinType, LogicalPlan};
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::optimizer::{OptimizerConfig, OptimizerRule};

#[derive(Debug, Default)]
struct GuardedEliminateCrossJoin {
    rule: EliminateCrossJoin,
}

/// Puts the guarded rule in the place of DataFusion's.
pub fn guard(rules: &mut [Arc<dyn OptimizerRule + Send + Sync>]) {
    for rule in rules.iter_mut().filter(|r| r.name() == "eliminate_cross_join") {
        *rule = Arc::new(GuardedEliminateCrossJoin::default());
    }
}

impl OptimizerRule for GuardedEliminateCrossJoin {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if useful(&plan)? { self.rule.rewrite(plan, config) } else { Ok(Transformed::no(plan)) }
    }
}

fn useful(plan: &LogicalPlan) -> Result<bool> {
    let mut crossed = false;
    let mut safe = true;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Join(join) = node
            && join.join_type == JoinType::Inner
        {
            crossed |= join.on.is_empty();
            safe &= join.on.iter().all(|(l, r)| one_relation(l) && one_relation(r));
            safe &= join.null_equality == NullEquality::NullEqualsNothing;
        }
        Ok(if safe { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(crossed && safe)
}

/// Columns without a qualifier may be of any relation.
fn one_relation(key: &Expr) -> bool {
    let names = key.column_refs();
    let mut tables = names.iter().map(|name| &name.relation);
    match tables.next() {
        Some(Some(first)) => tables.all(|t| t.as_ref() == Some(first)),
        Some(None) => names.len() == 1,
        None => true,
    }
}
