//! Filters go down the physical plan by the place of their columns, never by name.
//!
//! DataFusion's operators look up the columns of a filter by name in what is below them. Where both
//! sides of a join have a column of one name, that finds the other side's:
//!
//! ```text
//! FilterExec: v@2 IS NULL            of a
//!   HashJoinExec: Right, id = id       v@0 of b, v@2 of a
//! ```
//!
//! pushed `v IS NULL` to `b`. Conditions of the query are where they belong when the physical plan is
//! made, as the logical plan has columns by table; so of the first of DataFusion's two rules this one
//! keeps only that a table or a file takes the filter right above it. The second brings what a join, a top-k or
//! an aggregate learns while it runs to the scans; it is done here with the operators' own consent,
//! but with columns followed by their place.
//!
//! Files also take casts out of comparisons, as [`simplify`](super::simplify) says; a filter with a
//! cast that is not exact stays above them.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result};
use datafusion::config::ConfigOptions;
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_expr::expressions::{CastExpr, Column, TryCastExpr};
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterPushdownResult, ChildPushdownResult, FilterPushdownPhase, PushedDown,
};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;

use thalweg_exec::{ScanExec, may_fail};

use super::casts::is_exact;

type Filter = Arc<dyn PhysicalExpr>;
type Plan = Arc<dyn ExecutionPlan>;

/// Puts the two rules in the places of DataFusion's.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    let builder = crate::rules::in_place_of_execution(PushedFilters::OfFiles, builder);
    crate::rules::in_place_of_execution(PushedFilters::WhileRunning, builder)
}

#[derive(Debug)]
enum PushedFilters {
    OfFiles,
    WhileRunning,
}

impl PhysicalOptimizerRule for PushedFilters {
    fn optimize(&self, plan: Plan, config: &ConfigOptions) -> Result<Plan> {
        match self {
            PushedFilters::OfFiles => {
                let pushed = plan.transform_up(|plan| into_file(plan, config))?;
                Ok(pushed.data)
            }
            PushedFilters::WhileRunning => Ok(push(&plan, &[], config)?.0),
        }
    }

    fn name(&self) -> &str {
        match self {
            PushedFilters::OfFiles => "FilterPushdown",
            PushedFilters::WhileRunning => "FilterPushdown(Post)",
        }
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A filter right above a table or a file, as far as that takes it: one that a subquery gives its value is
/// in no scan before.
fn into_file(plan: Plan, config: &ConfigOptions) -> Result<Transformed<Plan>> {
    let Some(filter) = plan.downcast_ref::<FilterExec>() else { return Ok(Transformed::no(plan)) };
    if filter.input().is::<ScanExec>() {
        return FilterPushdown::new().optimize(plan, config).map(Transformed::yes);
    }
    if !filter.input().is::<DataSourceExec>() {
        return Ok(Transformed::no(plan));
    }
    let conditions = split_conjunction(filter.predicate()).into_iter().map(Arc::clone);
    let (kept, given): (Vec<_>, Vec<_>) = conditions.partition(|c| !survives(c, filter.input()));
    if kept.is_empty() {
        return FilterPushdown::new().optimize(plan, config).map(Transformed::yes);
    }
    if given.is_empty() {
        return Ok(Transformed::no(plan));
    }
    let below = FilterExec::try_new(conjunction(given), Arc::clone(filter.input()))?;
    let below = FilterPushdown::new().optimize(Arc::new(below), config)?;
    let above = FilterExecBuilder::from(filter).with_predicate(conjunction(kept)).with_input(below);
    Ok(Transformed::yes(Arc::new(above.build()?)))
}

/// Whether a file that is asked for this filter evaluates just that.
fn survives(filter: &Filter, input: &Plan) -> bool {
    let schema = input.schema();
    let mut exact = true;
    let _ = filter.apply(|e| {
        let cast = match (e.downcast_ref::<CastExpr>(), e.downcast_ref::<TryCastExpr>()) {
            (Some(cast), _) => Some((cast.expr(), cast.cast_type())),
            (_, Some(cast)) => Some((cast.expr(), cast.cast_type())),
            _ => None,
        };
        if let Some((from, to)) = cast {
            // With timestamps it depends on the constant, which may change.
            let from = from.data_type(&schema);
            exact &= from.is_ok_and(|from| is_exact(&from, to) && !from.is_temporal());
        }
        Ok(if exact { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    exact
}

/// Gives `filters`, which are over what `plan` gives, and those that operators have of their own to
/// whoever below takes them. Also says which of `filters` all rows have passed then.
fn push(
    plan: &Plan,
    filters: &[Filter],
    config: &ConfigOptions,
) -> Result<(Plan, Vec<PushedDown>)> {
    let phase = FilterPushdownPhase::Post;
    let described = plan.gather_filters_for_pushdown(phase, filters.to_vec(), config)?;
    let consents = described.parent_filters();
    let mut children = vec![];
    let mut results: Vec<_> = filters
        .iter()
        .map(|f| ChildFilterPushdownResult { filter: Arc::clone(f), child_results: vec![] })
        .collect();
    let mut self_filters = vec![];
    for (n, (child, own)) in plan.children().into_iter().zip(described.self_filters()).enumerate() {
        // What may fail is not asked of rows that something further down drops.
        let fits = |f: &Filter| {
            !is_volatile(f) && !may_fail(f) && (!child.is::<DataSourceExec>() || survives(f, child))
        };
        let own_fits = |f: &Filter| fits(f) && wants_no_others(plan);
        // Those of this operator first, and then those from above.
        let mut given: Vec<Filter> = own.iter().filter(|f| own_fits(f)).map(Arc::clone).collect();
        let mut of_above = vec![];
        for (i, filter) in filters.iter().enumerate() {
            let consent = consents.get(n).and_then(|of_child| of_child.get(i));
            let agreed = consent.is_some_and(|c| matches!(c.discriminant, PushedDown::Yes));
            let placed = if agreed { placed(filter, plan, n)? } else { None };
            if let Some(placed) = placed.filter(|f| fits(f)) {
                of_above.push(i);
                given.push(placed);
            }
        }
        let (child, mut taken) = push(child, &given, config)?;
        let taken_from_above = taken.split_off(taken.len() - of_above.len());
        children.push(child);
        let mut taken = taken.into_iter();
        self_filters.push(
            own.into_iter()
                .map(|f| {
                    let taken = if own_fits(&f) { taken.next() } else { None };
                    taken.unwrap_or(PushedDown::No).wrap_expression(f)
                })
                .collect(),
        );
        for result in &mut results {
            result.child_results.push(PushedDown::No);
        }
        for (i, taken) in of_above.into_iter().zip(taken_from_above) {
            results[i].child_results[n] = taken;
        }
    }
    let plan = replace_children_if_necessary(Arc::clone(plan), children)?;
    let result = ChildPushdownResult { parent_filters: results, self_filters };
    let done = plan.handle_child_pushdown_result(phase, result, config)?;
    Ok((done.updated_node.unwrap_or(plan), done.filters))
}

/// Whether an operator needs only the rows that it asks for. `min` and `max` of columns ask for rows that
/// exceed what they have, also where other aggregates beside them need the rest: two of them, too, as
/// DataFusion forgets the one that has seen no value yet.
fn wants_no_others(plan: &Plan) -> bool {
    let Some(aggregate) = plan.downcast_ref::<AggregateExec>() else { return true };
    let is_of_column = |args: &[Filter]| matches!(args, [arg] if arg.is::<Column>());
    aggregate.aggr_expr().len() == 1
        && aggregate.filter_expr().iter().all(Option::is_none)
        && aggregate.aggr_expr().iter().all(|call| {
            is_of_column(&call.expressions()) && matches!(call.fun().name(), "min" | "max")
        })
}

/// A filter over what `plan` gives as one over what its `n`th child gives; `None` if it is no such.
fn placed(filter: &Filter, plan: &Plan, n: usize) -> Result<Option<Filter>> {
    let mut all = true;
    let placed = Arc::clone(filter).transform_down(|e| {
        let Some(column) = e.downcast_ref::<Column>() else { return Ok(Transformed::no(e)) };
        match source(plan, n, column.index()) {
            Some(source) => Ok(Transformed::new(source, true, TreeNodeRecursion::Jump)),
            None => {
                all = false;
                Ok(Transformed::complete(e))
            }
        }
    })?;
    Ok(all.then_some(placed.data))
}

/// What column `i` of a plan is of its `n`th child.
fn source(plan: &Plan, n: usize, i: usize) -> Option<Filter> {
    let children = plan.children();
    let child = children.get(n)?;
    let column = |i: usize| -> Option<Filter> {
        let schema = child.schema();
        let field = schema.fields().get(i)?;
        Some(Arc::new(Column::new(field.name(), i)))
    };
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        // What is computed anew for each look at it is not the same below.
        let expr = Arc::clone(&projection.expr().get(i)?.expr);
        return (!is_volatile(&expr)).then_some(expr);
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        return column(through(filter.projection().as_deref(), i)?);
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let expr = Arc::clone(&aggregate.group_expr().expr().get(i)?.0);
        return (!is_volatile(&expr)).then_some(expr);
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return of_join(join, n, through(join.projection.as_deref(), i)?);
    }
    let same = plan.schema().fields().len() == child.schema().fields().len();
    same.then(|| column(i)).flatten()
}

fn through(projection: Option<&[usize]>, i: usize) -> Option<usize> {
    projection.map_or(Some(i), |columns| columns.get(i).copied())
}

/// What column `i` of a join, before its projection, is of one of its sides.
fn of_join(join: &HashJoinExec, n: usize, i: usize) -> Option<Filter> {
    let (left, right) = (join.left().schema(), join.right().schema());
    let column = |schema: &arrow::datatypes::Schema, i: usize| -> Option<Filter> {
        Some(Arc::new(Column::new(schema.fields().get(i)?.name(), i)))
    };
    use JoinType::*;
    match (join.join_type(), n) {
        (Inner | Left | Right | Full | LeftSemi | LeftAnti | LeftMark, 0) => column(&left, i),
        (Inner | Left | Right | Full, _) => column(&right, i.checked_sub(left.fields().len())?),
        (RightSemi | RightAnti | RightMark, 1) => column(&right, i),
        // Each row has an equal key on the other side.
        (LeftSemi, _) => {
            join.on().iter().find(|(l, _)| is_column(l, i)).map(|(_, r)| Arc::clone(r))
        }
        (RightSemi, _) => {
            join.on().iter().find(|(_, r)| is_column(r, i)).map(|(l, _)| Arc::clone(l))
        }
        _ => None,
    }
}

fn is_column(expr: &Filter, i: usize) -> bool {
    expr.downcast_ref::<Column>().is_some_and(|column| column.index() == i)
}
