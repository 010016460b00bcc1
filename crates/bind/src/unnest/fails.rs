//! Whether a subquery may be an error for some of the rows that it is computed for.

use datafusion::common::Column;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::failure::Result;
use crate::guard::may_fail;

/// Whether an expression of a plan may fail. An average is a sum divided by a count, which is zero only
/// where the sum is NULL, and fails for no group.
pub(super) fn fails(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        let inputs = node.inputs();
        let types = |column: &Column| {
            let types = inputs.iter().filter_map(|input| {
                let at = input.schema().maybe_index_of_column(column)?;
                Some(input.schema().field(at).data_type().clone())
            });
            types.into_iter().next()
        };
        node.apply_expressions(|expr| {
            found |= expr.exists(|e| Ok(may_fail(e, &types) && !divides_by_count(e, &inputs)))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn divides_by_count(expr: &Expr, inputs: &[&LogicalPlan]) -> bool {
    let (Expr::ScalarFunction(call), [input]) = (expr, inputs) else { return false };
    let mut divisor = match &call.args[..] {
        [_, divisor] if call.func.name() == "quotient" => divisor,
        _ => return false,
    };
    while let Expr::Cast(cast) = divisor {
        divisor = &cast.expr;
    }
    match divisor {
        Expr::Column(column) => is_count(input, column),
        _ => false,
    }
}

fn is_count(plan: &LogicalPlan, column: &Column) -> bool {
    match plan {
        LogicalPlan::Filter(filter) => is_count(&filter.input, column),
        LogicalPlan::Aggregate(aggregate) => {
            let keys = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
            let at = aggregate.schema.maybe_index_of_column(column);
            let Some(at) = at.and_then(|at| at.checked_sub(keys)) else { return false };
            let call = aggregate.aggr_expr[at].clone().unalias();
            matches!(call, Expr::AggregateFunction(call) if call.func.name() == "count")
        }
        _ => false,
    }
}
