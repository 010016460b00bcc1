//! Conditions that DataFusion's interval analysis does not look into.
//!
//! Of the rows above a filter DataFusion concludes what values a column can have. It takes a cast and a
//! division of whole numbers for one to one: of `ts::date = DATE '2020-01-02'` it made `ts = TIMESTAMP
//! '2020-01-02 00:00'`, a constant, and where the day went beyond the column's own bounds, an internal error.
//! And of `least(c, 1) = c` it takes `c` for another spelling of itself, within which it looks for `c` again:
//! an order by `c` was then never found to be there. So such a condition is put into a function that is its
//! argument, when all other rules have run. Pipelines leave it out.

use std::sync::{Arc, LazyLock};

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{BinaryExpr, Expr, Filter, LogicalPlan, Operator, ScalarUDF};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::transparent::transparent;

/// The plan with such conditions of its filters hidden.
pub fn hide(plan: LogicalPlan) -> Result<LogicalPlan> {
    let hidden = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Filter(Filter { predicate, input, .. }) = &node else {
            return Ok(Transformed::no(node));
        };
        // Scans take conditions over, and skip by them.
        if crate::nodes::is_of_scan(input) || !misleads(predicate)? {
            return Ok(Transformed::no(node));
        }
        let conditions = split_conjunction(predicate).into_iter().map(|condition| {
            Ok(match misleads(condition)? {
                true => AS_WRITTEN.call(vec![condition.clone()]),
                false => condition.clone(),
            })
        });
        let predicate = conjunction(conditions.collect::<Result<Vec<_>>>()?).unwrap_or_default();
        let filter = Filter::try_new(predicate, Arc::clone(input))?;
        Ok(Transformed::yes(LogicalPlan::Filter(filter)))
    })?;
    Ok(hidden.data)
}

/// Whether a condition has something in it that takes many values to one, or that has a column for a part of
/// itself.
fn misleads(condition: &Expr) -> Result<bool> {
    condition.exists(|expr| Ok(is_many_to_one(expr) || is_within_itself(expr)))
}

/// `f(c) = c`
fn is_within_itself(expr: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = expr else { return false };
    match (left.as_ref(), right.as_ref()) {
        (Expr::Column(_), Expr::Column(_)) => false,
        (Expr::Column(column), other) | (other, Expr::Column(column)) => {
            other.column_refs().contains(column)
        }
        _ => false,
    }
}

fn is_many_to_one(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Cast(_)
            | Expr::TryCast(_)
            | Expr::BinaryExpr(BinaryExpr { op: Operator::Divide | Operator::Modulo, .. })
    )
}

/// The condition, if it is one that is hidden.
pub fn shown(expr: &Arc<dyn PhysicalExpr>) -> &Arc<dyn PhysicalExpr> {
    match expr.downcast_ref::<ScalarFunctionExpr>() {
        Some(call) if call.name() == AS_WRITTEN.name() => call.args().first().unwrap_or(expr),
        _ => expr,
    }
}

static AS_WRITTEN: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| transparent("as_written"));
