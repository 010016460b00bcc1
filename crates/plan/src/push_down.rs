//! Filters are put where their rows come from, by DataFusion's rule, and only there.
//!
//! * What stands above [lone groups](super::lone_groups) stays above them.
//! * What is asked of rows that are [computed once](thalweg_bind::kept) is asked above them, also where it
//!   names none of their columns: other places read them as well. What all places ask, [one or the
//!   other](super::kept), goes below.
//! * A condition on one side of an equation of a join is asked of the other side as well where it is a
//!   plain comparison. Any other may fail for values that have no match: `WHERE 10 / t2.n > 0` divided by
//!   zero for a row of `t1` that joins nothing.
//! * The rule compares the conditions of one column with each other, and takes `1 = a` and `a = 1` for two
//!   values, as it does with a constant that has the length of a `varchar(3)` and one that has none. So
//!   columns stand on the left, and constants are what they are and no more.
//! * Filters that stood above each other become one, whose conditions are asked of whole batches. So those
//!   that may fail get the others as [guards](thalweg_bind::guard): `SELECT … FROM (SELECT s::int AS q
//!   FROM t WHERE s ~ '^[0-9]+$') WHERE q > 1` casts no other texts.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, ExprSchema, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Expr, Filter, Join, LogicalPlan, TableScan, lit};
use datafusion::optimizer::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::optimizer::push_down_filter::PushDownFilter;
use thalweg_bind::guard::guard_each_other;
use thalweg_bind::kept::as_kept;

use super::lone_groups;

#[derive(Debug, Default)]
struct PushDown {
    rule: PushDownFilter,
}

/// Puts the rule in the place of DataFusion's.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    crate::rules::in_place(PushDown::default(), builder)
}

impl OptimizerRule for PushDown {
    fn name(&self) -> &str {
        "push_down_filter"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let pushed = lone_groups::apart(plan, |plan| {
            plan.transform_down_with_subqueries(|plan| match is_of_kept(&plan) {
                true => Ok(Transformed::no(plan)),
                false => without_copies(alike(plan)?, |plan| self.rule.rewrite(plan, config)),
            })
        })?;
        pushed.transform_data(|plan| plan.transform_down_with_subqueries(guarded))
    }
}

/// Runs the rule on a filter of a join, or on a join, so that it asks one side of the join only plain
/// comparisons of the columns of the other. It takes the keys of a join for equal where they are columns,
/// so the others get a name for as long as it runs.
fn without_copies(
    plan: LogicalPlan,
    rule: impl FnOnce(LogicalPlan) -> Result<Transformed<LogicalPlan>>,
) -> Result<Transformed<LogicalPlan>> {
    let join = match &plan {
        LogicalPlan::Join(join) => Some(join),
        LogicalPlan::Filter(filter) => match filter.input.as_ref() {
            LogicalPlan::Join(join) => Some(join),
            _ => None,
        },
        _ => None,
    };
    let Some(join) = join else { return rule(plan) };
    let mut apart: Vec<&Column> = vec![];
    let filter = match &plan {
        LogicalPlan::Filter(filter) => Some(&filter.predicate),
        _ => None,
    };
    for condition in filter.into_iter().chain(&join.filter).flat_map(split_conjunction) {
        if !is_plain(condition) {
            apart.extend(condition.column_refs());
        }
    }
    let is_named = |key: &Expr| matches!(key, Expr::Column(c) if apart.contains(&c));
    if !join.on.iter().any(|(l, r)| is_named(l) || is_named(r)) {
        return rule(plan);
    }
    let is_apart: Vec<bool> = join.on.iter().map(|(l, r)| is_named(l) || is_named(r)).collect();
    let hide = |join: &Join| {
        let mut join = join.clone();
        for ((left, _), apart) in join.on.iter_mut().zip(is_apart) {
            if apart {
                *left = std::mem::take(left).alias(KEY);
            }
        }
        LogicalPlan::Join(join)
    };
    let hidden = match &plan {
        LogicalPlan::Filter(filter) => {
            LogicalPlan::Filter(Filter::try_new(filter.predicate.clone(), Arc::new(hide(join)))?)
        }
        _ => hide(join),
    };
    let pushed = rule(hidden)?;
    let shown = pushed.data.transform_down(|plan| {
        let LogicalPlan::Join(mut join) = plan else { return Ok(Transformed::no(plan)) };
        let mut found = false;
        for (left, _) in &mut join.on {
            if matches!(left, Expr::Alias(alias) if alias.name == KEY) {
                *left = std::mem::take(left).unalias();
                found = true;
            }
        }
        let plan = LogicalPlan::Join(join);
        Ok(if found { Transformed::complete(plan) } else { Transformed::no(plan) })
    })?;
    Ok(Transformed::new_transformed(shown.data, pushed.transformed))
}

/// The name of a key that is no column while filters are pushed down.
const KEY: &str = "__key";

/// Whether a condition compares columns and constants as they are, which fails for no value.
pub(super) fn is_plain(condition: &Expr) -> bool {
    let is_other = |e: &Expr| {
        let plain = match e {
            Expr::Column(_)
            | Expr::Literal(..)
            | Expr::Alias(_)
            | Expr::Not(_)
            | Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::IsTrue(_)
            | Expr::IsFalse(_)
            | Expr::IsUnknown(_)
            | Expr::IsNotTrue(_)
            | Expr::IsNotFalse(_)
            | Expr::IsNotUnknown(_)
            | Expr::Between(_)
            | Expr::InList(_)
            | Expr::Like(_) => true,
            Expr::BinaryExpr(binary) => {
                binary.op.supports_propagation() || binary.op.is_logic_operator()
            }
            _ => false,
        };
        Ok(!plain)
    };
    !condition.exists(is_other).unwrap_or(true)
}

/// Whether it is a filter of rows that other places read as well.
fn is_of_kept(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Filter(filter) if as_kept(&filter.input).is_some())
}

/// A filter whose conditions on a column are written alike.
fn alike(plan: LogicalPlan) -> Result<LogicalPlan> {
    let is_otherwise = |condition: &&Expr| {
        let Expr::BinaryExpr(BinaryExpr { left, right, .. }) = condition else { return false };
        matches!(
            (&**left, &**right),
            (Expr::Literal(..), Expr::Column(_)) | (Expr::Column(_), Expr::Literal(_, Some(_)))
        )
    };
    let LogicalPlan::Filter(Filter { predicate, input, .. }) = plan else { return Ok(plan) };
    if !split_conjunction(&predicate).iter().any(is_otherwise) {
        return Ok(LogicalPlan::Filter(Filter::try_new(predicate, input)?));
    }
    let conditions = split_conjunction_owned(predicate).into_iter().map(|condition| {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else { return condition };
        let is_turned = matches!((&*left, &*right), (Expr::Literal(..), Expr::Column(_)));
        let (left, op, right) = match op.swap().filter(|_| is_turned) {
            Some(swapped) => (right, swapped, left),
            None => (left, op, right),
        };
        let is_compared = matches!((&*left, &*right), (Expr::Column(_), Expr::Literal(..)));
        let right = match *right {
            Expr::Literal(value, Some(_)) if is_compared => Box::new(Expr::Literal(value, None)),
            other => Box::new(other),
        };
        Expr::BinaryExpr(BinaryExpr { left, op, right })
    });
    let predicate = conjunction(conditions).unwrap_or_else(|| lit(true));
    Ok(LogicalPlan::Filter(Filter::try_new(predicate, input)?))
}

/// The conditions of a filter or a scan with each other as guards.
fn guarded(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let (before, after) = match &plan {
        LogicalPlan::Filter(filter) => {
            let schema = filter.input.schema();
            let type_of = |column: &Column| schema.data_type(column).ok().cloned();
            let before = split_conjunction(&filter.predicate);
            let after = guard_each_other(&before, &type_of)?;
            (before, after)
        }
        LogicalPlan::TableScan(scan) => {
            let schema = scan.source.schema();
            let type_of = |column: &Column| {
                schema.field_with_name(&column.name).ok().map(|field| field.data_type().clone())
            };
            let before: Vec<&Expr> = scan.filters.iter().collect();
            let after = guard_each_other(&before, &type_of)?;
            (before, after)
        }
        _ => return Ok(Transformed::no(plan)),
    };
    let Some(after) = after.filter(|after| !after.iter().eq(before)) else {
        return Ok(Transformed::no(plan));
    };
    Ok(Transformed::yes(match plan {
        LogicalPlan::Filter(Filter { predicate, input, .. }) => {
            let predicate = conjunction(after).unwrap_or(predicate);
            LogicalPlan::Filter(Filter::try_new(predicate, input)?)
        }
        LogicalPlan::TableScan(scan) => {
            LogicalPlan::TableScan(TableScan { filters: after, ..scan })
        }
        other => other,
    }))
}
