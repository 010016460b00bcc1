//! Queries within expressions.

use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::{Expr, Subquery};

/// The query within an expression, if it is one of that kind.
pub(crate) fn subquery(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery) => Some(subquery),
        Expr::Exists(exists) => Some(&exists.subquery),
        Expr::InSubquery(found) => Some(&found.subquery),
        Expr::SetComparison(found) => Some(&found.subquery),
        _ => None,
    }
}

/// Whether a query stands anywhere within an expression.
pub(crate) fn has_subquery(expr: &Expr) -> bool {
    expr.exists(|e| Ok(subquery(e).is_some())).unwrap_or(true)
}
