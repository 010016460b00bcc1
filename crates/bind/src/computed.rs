//! Expressions that an operator below has computed.

use std::collections::HashMap;

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::Expr;

use crate::failure::Result;

/// Expressions that have been computed, and the columns that hold them.
pub(crate) type Computed = HashMap<Expr, Column>;

/// Writes the columns in the place of what they hold.
pub(crate) fn rebase(expr: Expr, computed: &Computed) -> Result<Expr> {
    let rebased = expr.transform_down(|expr| match computed.get(&expr) {
        Some(column) => {
            Ok(Transformed::new(Expr::Column(column.clone()), true, TreeNodeRecursion::Jump))
        }
        None => Ok(Transformed::no(expr)),
    });
    Ok(rebased?.data)
}
