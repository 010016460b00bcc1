//! What a subquery takes from the rows around it.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, TableReference};
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Operator};

use crate::binder::Binder;
use crate::failure::{Result, not_covered};
use crate::kept::is_volatile;
use crate::nested::subquery;

/// Columns of the rows around that a plan names, each once, in the order of their first use.
pub(super) fn outer_columns(plan: &LogicalPlan, around: &DFSchema) -> Result<Vec<Column>> {
    let mut found = vec![];
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|e| {
                if let Expr::OuterReferenceColumn(_, column) = e
                    && around.maybe_index_of_column(column).is_some()
                    && !found.contains(column)
                {
                    found.push(column.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}

/// How the rows of a subquery are told apart by the rows that they are for.
pub(super) enum Keys {
    /// By their own values: filters compare them with these expressions of the rows around, by `=`.
    Equal(Vec<Expr>),
    /// By the values of the columns, which stand beside them.
    Domain(LogicalPlan),
}

pub(super) struct Domain<'b, 'a> {
    pub binder: &'b Binder<'a>,
    /// The columns of the rows around.
    pub columns: Vec<Column>,
    pub keys: Keys,
}

impl<'b, 'a> Domain<'b, 'a> {
    /// Of a subquery whose rows are found by `=` alone.
    pub fn of_equal(
        binder: &'b Binder<'a>,
        plan: &LogicalPlan,
        columns: &[Column],
    ) -> Result<Option<Self>> {
        let keys = equal_keys(plan, columns)?;
        Ok(keys.map(|keys| Domain { binder, columns: columns.to_vec(), keys: Keys::Equal(keys) }))
    }

    /// Of the different values that `columns` have in `around`.
    pub fn of_values(
        binder: &'b Binder<'a>,
        around: &LogicalPlan,
        columns: Vec<Column>,
    ) -> Result<Self> {
        if is_volatile(around)? {
            return not_covered("a correlated subquery over rows with random values");
        }
        let values =
            columns.iter().map(|column| Expr::Column(column.clone()).alias(binder.fresh("outer")));
        let values: Vec<Expr> = values.collect();
        let domain = LogicalPlanBuilder::from(around.clone()).project(values)?.distinct()?;
        Ok(Domain { binder, columns, keys: Keys::Domain(domain.build()?) })
    }

    /// Of all rows around, each of which is its own value.
    pub fn of_rows(binder: &'b Binder<'a>, around: LogicalPlan) -> Result<Self> {
        let columns = around.schema().columns();
        let values =
            columns.iter().map(|column| Expr::Column(column.clone()).alias(binder.fresh("outer")));
        let values: Vec<Expr> = values.collect();
        let rows = LogicalPlanBuilder::from(around).project(values)?.build()?;
        Ok(Domain { binder, columns, keys: Keys::Domain(rows) })
    }

    pub fn concerns(&self, plan: &LogicalPlan) -> Result<bool> {
        let mut concerned = false;
        plan.apply_with_subqueries(|node| {
            node.apply_expressions(|expr| {
                concerned |= self.concerns_expr(expr);
                Ok(TreeNodeRecursion::Continue)
            })?;
            Ok(if concerned { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        Ok(concerned)
    }

    pub fn concerns_expr(&self, expr: &Expr) -> bool {
        let is_outer = |e: &Expr| match e {
            Expr::OuterReferenceColumn(_, column) => self.columns.contains(column),
            _ => false,
        };
        expr.exists(|e| {
            Ok(is_outer(e) || subquery(e).is_some_and(|s| s.outer_ref_columns.iter().any(is_outer)))
        })
        .unwrap_or(true)
    }

    /// With the columns that hold the values of the rows around in their place.
    pub fn substituted(&self, expr: Expr, keys: &[Column]) -> Result<Expr> {
        let replaced = expr.transform_up(|e| {
            let Expr::OuterReferenceColumn(_, column) = &e else { return Ok(Transformed::no(e)) };
            match self.columns.iter().position(|own| own == column) {
                Some(at) => Ok(Transformed::yes(Expr::Column(keys[at].clone()))),
                None => Ok(Transformed::no(e)),
            }
        });
        Ok(replaced?.data)
    }

    /// The domain once more, under a name of its own.
    pub fn instance(&self) -> Result<(LogicalPlan, Vec<Column>)> {
        let Keys::Domain(domain) = &self.keys else { return not_covered("a domain of equal keys") };
        let own = TableReference::bare(self.binder.fresh("domain"));
        let plan = LogicalPlanBuilder::from(domain.clone()).alias(own)?.build()?;
        let columns = plan.schema().columns();
        Ok((plan, columns))
    }

    pub fn is_equal(&self) -> bool {
        matches!(self.keys, Keys::Equal(_))
    }
}

/// A comparison `own = outer`: the outer side first.
pub(super) fn equality(expr: &Expr, columns: &[Column]) -> Option<(Expr, Expr)> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = expr else { return None };
    match (side(left, columns), side(right, columns)) {
        (Some(true), Some(false)) => Some((outer_as_column(left)?, right.as_ref().clone())),
        (Some(false), Some(true)) => Some((outer_as_column(right)?, left.as_ref().clone())),
        _ => None,
    }
}

/// Whether an expression is of the rows around alone (true) or of none of their columns; `None` if it is
/// of both, or has a subquery.
fn side(expr: &Expr, columns: &[Column]) -> Option<bool> {
    let (mut outer, mut own, mut other) = (false, false, false);
    let _ = expr.apply(|e| {
        match e {
            Expr::OuterReferenceColumn(_, column) if columns.contains(column) => outer = true,
            Expr::OuterReferenceColumn(..) => other = true,
            Expr::Column(_) => own = true,
            e if subquery(e).is_some() || e.is_volatile_node() => other = true,
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    });
    match (outer, own, other) {
        (true, false, false) => Some(true),
        (false, true, false) => Some(false),
        _ => None,
    }
}

fn outer_as_column(expr: &Expr) -> Option<Expr> {
    let replaced = expr.clone().transform_up(|e| {
        Ok(match e {
            Expr::OuterReferenceColumn(_, column) => Transformed::yes(Expr::Column(column)),
            e => Transformed::no(e),
        })
    });
    replaced.ok().map(|r| r.data)
}

/// The expressions of the rows around with which the one correlated filter of a plan compares by `=`;
/// `None` if the plan depends on them in any other way.
fn equal_keys(plan: &LogicalPlan, columns: &[Column]) -> Result<Option<Vec<Expr>>> {
    let mut keys: Option<Vec<Expr>> = None;
    let mut is_equal = true;
    let is_outer = |e: &Expr| {
        let of = |e: &Expr| matches!(e, Expr::OuterReferenceColumn(_, c) if columns.contains(c));
        e.exists(|e| Ok(of(e) || subquery(e).is_some_and(|s| s.outer_ref_columns.iter().any(of))))
            .unwrap_or(true)
    };
    plan.apply(|node| {
        let mut of_node = vec![];
        if let LogicalPlan::Filter(filter) = node {
            for condition in split_conjunction(&filter.predicate) {
                if !is_outer(condition) {
                    continue;
                }
                match equality(condition, columns) {
                    Some((outer, _)) if !of_node.contains(&outer) => of_node.push(outer),
                    _ => is_equal = false,
                }
            }
        } else {
            node.apply_expressions(|expr| {
                is_equal &= !is_outer(expr);
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        if !of_node.is_empty() {
            is_equal &= keys.is_none();
            keys = Some(of_node);
        }
        // These may lose rows, or make some, that a filter above them would see.
        let passes = match node {
            LogicalPlan::Join(join) => join.join_type == datafusion::common::JoinType::Inner,
            LogicalPlan::Union(_) | LogicalPlan::Unnest(_) | LogicalPlan::RecursiveQuery(_) => {
                false
            }
            _ => true,
        };
        is_equal &= passes || keys.is_some();
        Ok(if is_equal { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(keys.filter(|_| is_equal))
}

pub(super) fn shared(plan: LogicalPlan) -> Arc<LogicalPlan> {
    Arc::new(plan)
}
