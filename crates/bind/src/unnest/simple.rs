//! What is left to DataFusion's own rules.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Distinct, Expr, ExprSchemable, JoinType, LogicalPlan, Operator};

use super::attach::is_one_group;
use super::domain::equality;

use crate::nested::subquery;

/// Filters, which may compare with the rows around as they like, over what does not depend on them.
pub(super) fn is_filtered(plan: &LogicalPlan, columns: &[Column]) -> bool {
    match plan {
        LogicalPlan::Projection(p) => {
            !p.expr.iter().any(|e| names(e, columns)) && is_filtered(&p.input, columns)
        }
        LogicalPlan::SubqueryAlias(a) => is_apart(&a.input, columns),
        LogicalPlan::Filter(f) => !has_subquery(&f.predicate) && is_filtered(&f.input, columns),
        // DataFusion keeps the subquery where the filter stands above one group.
        other => is_apart(other, columns) && !is_one_group(other),
    }
}

/// One aggregate of rows that are found by `=`.
pub(super) fn is_aggregated(plan: &LogicalPlan, columns: &[Column]) -> bool {
    match plan {
        LogicalPlan::Projection(p) => {
            !p.expr.iter().any(|e| names(e, columns) || has_subquery(e))
                && p.expr.iter().all(|e| is_of_columns(e, p.input.schema()))
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

/// Whether no rule can make a constant of an expression: a constant is taken for the value of a subquery
/// that has no rows as well.
fn is_of_columns(expr: &Expr, schema: &DFSchema) -> bool {
    // `n * 0` is one where `n` is never NULL.
    expr.nullable(schema).unwrap_or(false)
        && !expr.column_refs().is_empty()
        && !expr_exists(expr, decides)
}

/// What is named and cast: it is NULL where the whole is.
fn without_casts(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => without_casts(&alias.expr),
        Expr::Cast(cast) => without_casts(&cast.expr),
        other => other,
    }
}

/// Whether a plan makes its rows of one row without columns.
pub(super) fn is_of_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(p) => !p.expr.iter().any(has_subquery) && is_of_one_row(&p.input),
        LogicalPlan::Filter(f) => !has_subquery(&f.predicate) && is_of_one_row(&f.input),
        LogicalPlan::SubqueryAlias(a) => is_of_one_row(&a.input),
        LogicalPlan::Unnest(u) => is_of_one_row(&u.input),
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        _ => false,
    }
}

/// Whether a column of a plan may be NULL for all that rules find out about it: they make inner joins of outer
/// ones, and leave out parts of a union that have no rows.
pub(super) fn stays_nullable(plan: &LogicalPlan, at: usize) -> bool {
    let column = |column: &Column, input: &LogicalPlan| {
        let at = input.schema().maybe_index_of_column(column);
        at.is_some_and(|at| stays_nullable(input, at))
    };
    let computed = |expr: &Expr, input: &LogicalPlan| match without_casts(expr) {
        Expr::Column(named) => column(named, input),
        other => {
            // Functions may be NULL by themselves, operators where an operand is.
            let is_call = |e: &Expr| matches!(e, Expr::ScalarFunction(_));
            is_of_columns(other, input.schema())
                && (expr_exists(other, is_call)
                    || other.column_refs().into_iter().any(|named| column(named, input)))
        }
    };
    match plan {
        LogicalPlan::Projection(p) => computed(&p.expr[at], &p.input),
        LogicalPlan::SubqueryAlias(a) => stays_nullable(&a.input, at),
        LogicalPlan::Filter(f) => stays_nullable(&f.input, at),
        LogicalPlan::Sort(s) => stays_nullable(&s.input, at),
        LogicalPlan::Limit(l) => stays_nullable(&l.input, at),
        LogicalPlan::Distinct(Distinct::All(input)) => stays_nullable(input, at),
        LogicalPlan::Values(_) => false,
        LogicalPlan::Join(join) => {
            let columns = join.left.schema().fields().len();
            match join.join_type {
                JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
                    match at.checked_sub(columns) {
                        None => stays_nullable(&join.left, at),
                        Some(at) => stays_nullable(&join.right, at),
                    }
                }
                _ => plan.schema().field(at).is_nullable(),
            }
        }
        LogicalPlan::Union(union) => union.inputs.iter().all(|input| stays_nullable(input, at)),
        LogicalPlan::Window(w) if at < w.input.schema().fields().len() => {
            stays_nullable(&w.input, at)
        }
        LogicalPlan::Aggregate(a) => match a.group_expr.get(at) {
            Some(key) if !matches!(key, Expr::GroupingSet(_)) => computed(key, &a.input),
            _ => plan.schema().field(at).is_nullable(),
        },
        LogicalPlan::TableScan(scan) => match scan.source.get_logical_plan() {
            Some(view) => {
                let at = scan.projection.as_ref().map_or(at, |columns| columns[at]);
                stays_nullable(&view, at)
            }
            None => plan.schema().field(at).is_nullable(),
        },
        other => other.schema().field(at).is_nullable(),
    }
}

/// Whether an operator may leave a part of it unasked.
fn decides(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(binary) => matches!(binary.op, Operator::And | Operator::Or),
        Expr::Case(_) | Expr::InList(_) => true,
        Expr::IsNull(_) | Expr::IsNotNull(_) => true,
        _ => false,
    }
}

fn is_found(plan: &LogicalPlan, columns: &[Column]) -> bool {
    match plan {
        LogicalPlan::Projection(p) => {
            !p.expr.iter().any(|e| names(e, columns)) && is_found(&p.input, columns)
        }
        // Under another name DataFusion does not find a column that no projection carries.
        LogicalPlan::SubqueryAlias(a) => is_apart(&a.input, columns),
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
