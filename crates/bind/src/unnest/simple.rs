//! What is left to DataFusion's own rules.

use arrow::datatypes::DataType;
use datafusion::common::Column;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::domain::equality;
use crate::grouping::subquery;

/// Filters, which may compare with the rows around as they like, over what does not depend on them.
pub(super) fn is_filtered(plan: &LogicalPlan, columns: &[Column]) -> bool {
    match plan {
        LogicalPlan::Projection(p) => {
            !p.expr.iter().any(|e| names(e, columns)) && is_filtered(&p.input, columns)
        }
        LogicalPlan::SubqueryAlias(a) => is_filtered(&a.input, columns),
        LogicalPlan::Filter(f) => !has_subquery(&f.predicate) && is_filtered(&f.input, columns),
        other => is_apart(other, columns),
    }
}

/// One aggregate of rows that are found by `=`.
pub(super) fn is_aggregated(plan: &LogicalPlan, columns: &[Column]) -> bool {
    match plan {
        LogicalPlan::Projection(p) => {
            !p.expr.iter().any(|e| names(e, columns) || has_subquery(e))
                && is_aggregated(&p.input, columns)
        }
        LogicalPlan::SubqueryAlias(a) => is_aggregated(&a.input, columns),
        LogicalPlan::Aggregate(a) => {
            a.group_expr.is_empty()
                && !a.aggr_expr.iter().any(|e| names(e, columns))
                && is_found(&a.input, columns)
        }
        _ => false,
    }
}

fn is_found(plan: &LogicalPlan, columns: &[Column]) -> bool {
    match plan {
        LogicalPlan::Projection(p) => {
            !p.expr.iter().any(|e| names(e, columns)) && is_found(&p.input, columns)
        }
        LogicalPlan::SubqueryAlias(a) => is_found(&a.input, columns),
        LogicalPlan::Filter(f) => {
            let is_column = |e: Expr| matches!(e, Expr::Column(_));
            let is_equal = |e: &&Expr| {
                !names(e, columns)
                    || equality(e, columns).is_some_and(|(a, b)| is_column(a) && is_column(b))
                        && !compares_intervals(e)
            };
            !has_subquery(&f.predicate)
                && split_conjunction(&f.predicate).iter().all(is_equal)
                && is_found(&f.input, columns)
        }
        other => is_apart(other, columns),
    }
}

fn is_apart(plan: &LogicalPlan, columns: &[Column]) -> bool {
    let mut apart = true;
    let visited = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|e| {
            apart &= !names(e, columns);
            Ok(TreeNodeRecursion::Continue)
        })
    });
    visited.is_ok() && apart
}

fn names(expr: &Expr, columns: &[Column]) -> bool {
    let outer = |e: &Expr| matches!(e, Expr::OuterReferenceColumn(_, c) if columns.contains(c));
    expr_exists(expr, |e| {
        outer(e) || subquery(e).is_some_and(|s| s.outer_ref_columns.iter().any(outer))
    })
}

/// Intervals are compared by their keys, and not as columns.
fn compares_intervals(expr: &Expr) -> bool {
    expr_exists(expr, |e| {
        matches!(e, Expr::OuterReferenceColumn(field, _)
            if matches!(field.data_type(), DataType::Interval(_)))
    })
}

fn has_subquery(expr: &Expr) -> bool {
    expr_exists(expr, |e| subquery(e).is_some())
}

fn expr_exists(expr: &Expr, f: impl Fn(&Expr) -> bool) -> bool {
    use datafusion::common::tree_node::TreeNode;
    expr.exists(|e| Ok(f(e))).unwrap_or(true)
}
