//! Subqueries that depend on the rows around them become joins.
//!
//! The way is that of Neumann and Kemper ("Unnesting arbitrary queries", BTW 2015). Let `I` be the rows
//! around a subquery `S`, and `d` the columns of `I` that `S` names. `S` is computed once for each
//! different value of `d`, in one plan for all of them, and joined back:
//!
//! ```text
//!   I ⟕ (S for all values of d)   on d
//! ```
//!
//! `S` is rewritten from its root down ([`Pushed`]): every operator carries the columns of `d` along,
//! as keys of groups, as partitions of windows and limits, as conditions of joins. At the lowest place
//! that still depends on `d` stands the *domain*, the different values that `d` has in `I`. Where a
//! filter compares with `d` by `=` alone, its own side of the comparison takes the place of the domain.
//!
//! What DataFusion's own rules do right, and with the same plans, is left to them ([`simple`]):
//! uncorrelated subqueries, `EXISTS` and `IN` as conditions over plain filters, and aggregates without
//! groups that are found by equality.

mod attach;
mod decided;
mod domain;
mod fails;
mod guarded;
pub(crate) mod once;
mod push;
mod simple;

use std::sync::Arc;

use attach::Below;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DataFusionError, Result as DfResult};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Expr, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Projection, Sort,
    Subquery, Window,
};

use crate::binder::Binder;
use crate::failure::{Failure, Result, not_covered};
use crate::nested::{has_subquery, subquery};

/// Where an expression stands.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Standing {
    /// A condition that has to be true.
    Condition,
    /// Within a condition of a filter.
    WithinCondition,
    /// In a select list.
    Value,
    /// In an aggregate, a window, an order.
    Elsewhere,
}

impl Binder<'_> {
    /// The same plan without subqueries that DataFusion would have wrong, or not at all.
    pub(crate) fn unnested(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        if !has_subqueries(&plan)? {
            return Ok(plan);
        }
        let plan = plan.map_children(|child| match self.unnested(child) {
            Ok(child) => Ok(Transformed::yes(child)),
            Err(failure) => Err(DataFusionError::from(failure)),
        })?;
        self.unnested_here(plan.data)
    }

    /// The rows of a subquery for each row around it, and the columns that hold `columns` of it.
    pub(crate) fn dependent_join(
        &self,
        around: LogicalPlan,
        subquery: LogicalPlan,
        columns: Vec<Column>,
        kind: JoinType,
    ) -> Result<(LogicalPlan, Vec<Column>)> {
        let mut below = Below::new(self, around);
        let columns = below.rows(self.unnested(subquery)?, columns, kind)?;
        Ok((below.finish(), columns))
    }

    /// The inputs are done.
    fn unnested_here(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let mut here = false;
        plan.apply_expressions(|e| {
            here |= has_subquery(e);
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !here {
            return Ok(plan);
        }
        match plan {
            LogicalPlan::Filter(Filter { predicate, input, .. }) => {
                let mut below = Below::new(self, Arc::unwrap_or_clone(input));
                let mut kept = vec![];
                let conditions = split_conjunction_owned(predicate);
                // A subquery is asked only where the other conditions hold, wherever they are written.
                for condition in conditions.iter().filter(|c| !has_subquery(c)) {
                    below.guard(Expr::IsTrue(Box::new(condition.clone())));
                }
                for condition in conditions {
                    if has_subquery(&condition) {
                        kept.extend(self.condition_below(condition, &mut below)?);
                    } else {
                        kept.push(condition);
                    }
                }
                let columns = below.columns();
                let mut builder = LogicalPlanBuilder::from(below.finish());
                if let Some(condition) = conjunction(kept) {
                    builder = builder.filter(condition)?;
                }
                // What was joined is nobody's business above.
                restored(builder.build()?, columns)
            }
            LogicalPlan::Projection(Projection { expr, input, .. }) => {
                let mut below = Below::new(self, Arc::unwrap_or_clone(input));
                let expr = self.all_below(expr, Standing::Value, &mut below)?;
                Ok(LogicalPlanBuilder::from(below.finish()).project(expr)?.build()?)
            }
            LogicalPlan::Aggregate(Aggregate { input, group_expr, aggr_expr, .. }) => {
                let mut below = Below::new(self, Arc::unwrap_or_clone(input));
                let group_expr = self.all_below(group_expr, Standing::Elsewhere, &mut below)?;
                let aggr_expr = self.all_below(aggr_expr, Standing::Elsewhere, &mut below)?;
                let input = Arc::new(below.finish());
                Ok(LogicalPlan::Aggregate(Aggregate::try_new(input, group_expr, aggr_expr)?))
            }
            LogicalPlan::Window(Window { input, window_expr, .. }) => {
                let mut below = Below::new(self, Arc::unwrap_or_clone(input));
                let columns = below.columns();
                let window_expr = self.all_below(window_expr, Standing::Elsewhere, &mut below)?;
                let added = window_expr.len();
                let plan =
                    LogicalPlan::Window(Window::try_new(window_expr, Arc::new(below.finish()))?);
                let all = plan.schema().columns();
                let windows = all[all.len() - added..].to_vec();
                restored(plan, columns.into_iter().chain(windows).collect())
            }
            LogicalPlan::Sort(Sort { expr, input, fetch }) => {
                let mut below = Below::new(self, Arc::unwrap_or_clone(input));
                let columns = below.columns();
                let mut by = vec![];
                for mut sort in expr {
                    sort.expr = self.value_below(sort.expr, Standing::Elsewhere, &mut below)?;
                    by.push(sort);
                }
                let input = Arc::new(below.finish());
                restored(LogicalPlan::Sort(Sort { expr: by, input, fetch }), columns)
            }
            LogicalPlan::Join(mut join) => {
                let Some(filter) = join.filter.take() else {
                    return not_covered("a subquery in a join");
                };
                if join.join_type != JoinType::Inner {
                    return self.beside_outer_join(join, filter);
                }
                let plan = LogicalPlanBuilder::from(LogicalPlan::Join(join)).filter(filter)?;
                self.unnested_here(plan.build()?)
            }
            _ => not_covered("a subquery here"),
        }
    }

    /// The condition of an outer join: its subqueries are computed below the join, on the side whose columns
    /// they name.
    fn beside_outer_join(&self, join: Join, filter: Expr) -> Result<LogicalPlan> {
        let Join { left, right, on, join_type, join_constraint, null_equality, null_aware, .. } =
            join;
        let columns = match join_type {
            JoinType::LeftSemi | JoinType::LeftAnti => left.schema().columns(),
            _ => left.schema().columns().into_iter().chain(right.schema().columns()).collect(),
        };
        let mut sides = [left, right].map(|plan| Below::new(self, Arc::unwrap_or_clone(plan)));
        let replaced = filter.transform_up(|expr| {
            let Some(query) = subquery(&expr) else { return Ok(Transformed::no(expr)) };
            let mut named: Vec<Column> = expr.column_refs().into_iter().cloned().collect();
            for outer in &query.outer_ref_columns {
                if let Expr::OuterReferenceColumn(_, column) = outer {
                    named.push(column.clone());
                }
            }
            let has = |side: &Below<'_, '_>| {
                let there = side.columns();
                named.iter().all(|column| there.contains(column))
            };
            let side = match (has(&sides[0]), has(&sides[1])) {
                (_, true) => &mut sides[1],
                (true, false) => &mut sides[0],
                (false, false) => {
                    let what = "a subquery over both sides of an outer join in its condition";
                    return Err(Failure::NotCovered(what, None).into());
                }
            };
            match self.found_below(expr, Standing::Elsewhere, side) {
                Ok(Some(expr)) => Ok(Transformed::yes(expr)),
                Ok(None) => Err(DataFusionError::Internal("a value became a join".into())),
                Err(failure) => Err(DataFusionError::from(failure)),
            }
        });
        let filter = replaced?.data;
        let [left, right] = sides.map(|side| Arc::new(side.finish()));
        let joined = Join::try_new(
            left,
            right,
            on,
            Some(filter),
            join_type,
            join_constraint,
            null_equality,
            null_aware,
        )?;
        restored(LogicalPlan::Join(joined), columns)
    }

    /// Expressions that keep the names which they give their columns.
    fn all_below(
        &self,
        exprs: Vec<Expr>,
        standing: Standing,
        below: &mut Below<'_, '_>,
    ) -> Result<Vec<Expr>> {
        exprs
            .into_iter()
            .map(|expr| {
                if !has_subquery(&expr) {
                    return Ok(expr);
                }
                let (relation, name) = expr.qualified_name();
                let expr = self.value_below(expr, standing, below)?;
                Ok(match expr.qualified_name() == (relation.clone(), name.clone()) {
                    true => expr,
                    false => expr.unalias().alias_qualified(relation, name),
                })
            })
            .collect()
    }

    /// A condition of a filter; `None` if a join has taken its place.
    fn condition_below(&self, condition: Expr, below: &mut Below<'_, '_>) -> Result<Option<Expr>> {
        let (negated, inner) = match condition {
            Expr::Not(inner) => match *inner {
                Expr::Exists(mut exists) => {
                    exists.negated = !exists.negated;
                    (false, Expr::Exists(exists))
                }
                Expr::InSubquery(mut found) => {
                    found.negated = !found.negated;
                    (false, Expr::InSubquery(found))
                }
                other => (true, other),
            },
            other => (false, other),
        };
        let expr = match negated {
            true => self.value_below(inner, Standing::WithinCondition, below)?,
            false => match inner {
                Expr::InSubquery(mut found) => {
                    let value = self.value_below(*found.expr, Standing::Elsewhere, below)?;
                    *found.expr = value;
                    return self.found_below(Expr::InSubquery(found), Standing::Condition, below);
                }
                inner @ Expr::Exists(_) => {
                    return self.found_below(inner, Standing::Condition, below);
                }
                inner => self.value_below(inner, Standing::WithinCondition, below)?,
            },
        };
        Ok(Some(if negated { Expr::Not(Box::new(expr)) } else { expr }))
    }

    /// A subquery that stands by itself.
    fn found_below(
        &self,
        expr: Expr,
        standing: Standing,
        below: &mut Below<'_, '_>,
    ) -> Result<Option<Expr>> {
        let start = subquery(&expr).and_then(|query| query.spans.first());
        let inner = |s: Subquery| -> Result<LogicalPlan> {
            self.unnested(Arc::unwrap_or_clone(s.subquery))
        };
        let found = match expr {
            Expr::ScalarSubquery(s) => {
                inner(s).and_then(|plan| below.scalar(plan, standing).map(Some))
            }
            Expr::Exists(e) => {
                inner(e.subquery).and_then(|plan| below.exists(plan, e.negated, standing))
            }
            Expr::InSubquery(i) => {
                inner(i.subquery).and_then(|plan| below.found(*i.expr, plan, i.negated, standing))
            }
            Expr::SetComparison(c) => inner(c.subquery)
                .and_then(|plan| below.compared(*c.expr, c.op, c.quantifier, plan).map(Some)),
            other => Ok(Some(other)),
        };
        found.map_err(|failure| match start {
            Some(span) => failure.within((span.start.line as u32, span.start.column as u32)),
            None => failure,
        })
    }
}

fn restored(plan: LogicalPlan, columns: Vec<Column>) -> Result<LogicalPlan> {
    if plan.schema().columns() == columns {
        return Ok(plan);
    }
    let columns: Vec<Expr> = columns.into_iter().map(Expr::Column).collect();
    Ok(LogicalPlanBuilder::from(plan).project(columns)?.build()?)
}

fn has_subqueries(plan: &LogicalPlan) -> DfResult<bool> {
    let mut found = false;
    plan.apply(|node| {
        node.apply_expressions(|e| {
            found |= has_subquery(e);
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// A failure on its way through DataFusion's traversals.
impl From<Failure> for DataFusionError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(e, None) => *e,
            other => DataFusionError::External(Box::new(other)),
        }
    }
}
