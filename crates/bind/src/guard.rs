//! What stands before an operand of AND or OR guards it: `y <> 0 AND x / y = 1` divides by no zero.
//!
//! Conditions are split at their ANDs, reordered and moved on their way to where they are evaluated, and
//! an operand may be evaluated for whole batches. So an expression that can fail for some of its values
//! carries its guards along:
//!
//! ```text
//! y <> 0 AND x / y = 1     =>     y <> 0 AND CASE WHEN y <> 0 IS NOT FALSE THEN x / y END = 1
//! ```

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{Expr, Operator};

use crate::failure::Result;
use crate::operator::binary;
use crate::scope::Scope;
use crate::types::is_text;
use crate::unnest::has_subquery;

/// An operand of AND or OR behind those before it.
pub(crate) fn guarded(
    operand: Expr,
    op: Operator,
    before: &[Expr],
    scope: &Scope<'_>,
) -> Result<Expr> {
    let may_fail = |e: &Expr| may_fail(e, scope);
    if !operand.exists(|e| Ok(may_fail(e)))? {
        return Ok(operand);
    }
    let guarded = operand.transform_down(|e| {
        if !may_fail(&e) {
            return Ok(Transformed::no(e));
        }
        let named = e.column_refs();
        let guards = before.iter().filter(|guard| {
            let concerns = guard.column_refs().iter().any(|column| named.contains(column));
            concerns && !guard.is_volatile() && !has_subquery(guard)
        });
        let Some(guard) = guards.cloned().reduce(|all, one| binary(all, op, one)) else {
            return Ok(Transformed::no(e));
        };
        // AND looks at its right side unless the left is false, OR unless it is true.
        let looks = match op {
            Operator::And => Expr::IsNotFalse(Box::new(guard)),
            _ => Expr::IsNotTrue(Box::new(guard)),
        };
        let when_then_expr = vec![(Box::new(looks), Box::new(e))];
        let case = Expr::Case(Case { expr: None, when_then_expr, else_expr: None });
        Ok(Transformed::new(case, true, TreeNodeRecursion::Jump))
    });
    Ok(guarded?.data)
}

/// Functions that have no value for some numbers.
const PARTIAL: [&str; 12] = [
    "divide", "modulo", "quotient", "div", "mod", "sqrt", "ln", "log", "log10", "log2", "acos",
    "asin",
];

/// Whether the expression itself (not what is in it) is an error for some values.
fn may_fail(expr: &Expr, scope: &Scope<'_>) -> bool {
    let is_constant = |e: &Expr| matches!(e, Expr::Literal(..));
    match expr {
        Expr::BinaryExpr(b) => {
            matches!(b.op, Operator::Divide | Operator::Modulo) && !is_constant(&b.right)
        }
        Expr::ScalarFunction(call) => {
            PARTIAL.contains(&call.func.name()) && !call.args.last().is_none_or(is_constant)
        }
        // Not every text spells a number or a time.
        Expr::Cast(cast) => {
            let is_text_column = |e: &Expr| match e {
                Expr::Column(column) => scope
                    .entries
                    .iter()
                    .any(|entry| entry.column == *column && is_text(&entry.data_type)),
                _ => false,
            };
            !is_text(cast.field.data_type())
                && cast.expr.exists(|e| Ok(is_text_column(e))).unwrap_or(true)
        }
        _ => false,
    }
}
