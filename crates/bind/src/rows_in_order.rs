//! The order that a subquery gives its rows, for aggregates whose results depend on it.
//!
//! `SELECT string_agg(x, ',') FROM (SELECT x FROM t ORDER BY x) q` is how many people write it, and
//! PostgreSQL and DuckDB take the rows as they come. Here rows come in no order from below a plan, and a
//! sort that nothing needs is dropped; so the aggregate is told the order.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::{
    Expr, Filter, Limit, LogicalPlan, LogicalPlanBuilder, Projection, SubqueryAlias,
};
use datafusion::sql::sqlparser::ast::{Select, TableFactor};

use crate::binder::Binder;
use crate::failure::Result;

/// Aggregates without an order of their own that look at that of the rows.
const DEPENDENT: [&str; 5] = ["array_agg", "string_agg", "first_value", "last_value", "nth_value"];

fn is_dependent(expr: &Expr) -> bool {
    match expr {
        Expr::AggregateFunction(call) => {
            DEPENDENT.contains(&call.func.name())
                && call.params.order_by.is_empty()
                && !call.params.distinct
        }
        _ => false,
    }
}

/// Whether it reads one relation alone, and has aggregates that depend on the order of its rows.
pub(crate) fn is_wanted<'e>(select: &Select, exprs: impl IntoIterator<Item = &'e Expr>) -> bool {
    let reads_one = matches!(&select.from[..], [only] if only.joins.is_empty()
        && matches!(only.relation, TableFactor::Derived { .. } | TableFactor::Table { .. }));
    let has_one = |e: &Expr| e.exists(|e| Ok(is_dependent(e))).unwrap_or(false);
    reads_one && exprs.into_iter().any(has_one)
}

/// The expression with that order for its aggregates that depend on it.
pub(crate) fn with_order(expr: Expr, order: &[Sort]) -> Result<Expr> {
    let told = expr.transform(|expr| match expr {
        Expr::AggregateFunction(mut call)
            if is_dependent(&Expr::AggregateFunction(call.clone())) =>
        {
            call.params.order_by = order.to_vec();
            Ok(Transformed::yes(Expr::AggregateFunction(call)))
        }
        other => Ok(Transformed::no(other)),
    });
    Ok(told.data()?)
}

impl Binder<'_> {
    /// A plan, and the order of its rows by its own columns.
    pub(crate) fn in_order(&self, plan: LogicalPlan) -> Result<(LogicalPlan, Vec<Sort>)> {
        match plan {
            LogicalPlan::Sort(sort) => {
                let by = sort.expr.clone();
                Ok((LogicalPlan::Sort(sort), by))
            }
            LogicalPlan::Limit(Limit { skip, fetch, input }) => {
                let (input, by) = self.in_order(Arc::unwrap_or_clone(input))?;
                Ok((LogicalPlan::Limit(Limit { skip, fetch, input: Arc::new(input) }), by))
            }
            LogicalPlan::Filter(Filter { predicate, input, .. }) => {
                let (input, by) = self.in_order(Arc::unwrap_or_clone(input))?;
                Ok((LogicalPlanBuilder::from(input).filter(predicate)?.build()?, by))
            }
            LogicalPlan::SubqueryAlias(SubqueryAlias { input, alias, .. }) => {
                let (input, by) = self.in_order(Arc::unwrap_or_clone(input))?;
                if by.is_empty() {
                    return Ok((LogicalPlanBuilder::from(input).alias(alias)?.build()?, by));
                }
                let columns = input.schema().columns().into_iter().map(Expr::Column).collect();
                let (input, mut by) = self.with_keys(input, columns, by)?;
                for sort in &mut by {
                    if let Expr::Column(column) = &mut sort.expr {
                        column.relation = Some(alias.clone());
                    }
                }
                Ok((LogicalPlanBuilder::from(input).alias(alias)?.build()?, by))
            }
            // Keys that are no columns of the result are dropped above the order.
            LogicalPlan::Projection(Projection { expr, input, .. }) => {
                let (input, by) = self.in_order(Arc::unwrap_or_clone(input))?;
                self.with_keys(input, expr, by)
            }
            other => Ok((other, vec![])),
        }
    }

    /// A projection with the keys of its input's order as further columns.
    fn with_keys(
        &self,
        input: LogicalPlan,
        mut columns: Vec<Expr>,
        mut by: Vec<Sort>,
    ) -> Result<(LogicalPlan, Vec<Sort>)> {
        for sort in &mut by {
            let name = self.fresh("order");
            columns.push(std::mem::take(&mut sort.expr).alias(&name));
            sort.expr = Expr::Column(Column::from_name(name));
        }
        Ok((LogicalPlanBuilder::from(input).project(columns)?.build()?, by))
    }
}
