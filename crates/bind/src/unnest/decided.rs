//! Rows that are computed twice are the same rows.
//!
//! The rows around a subquery stand in the plan twice: as themselves, and as the domain of the subquery. Where
//! they [cannot be kept](crate::kept), as they depend on a query around them, they are computed twice.
//! Where a query leaves it open which rows it means, as `LIMIT 2` of rows that are equal in the order, the
//! two might be others. So what chooses rows, or numbers them, does so in an order by all columns: rows that
//! are equal in all of them may stand for each other.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::Sort as SortExpr;
use datafusion::logical_expr::{
    Distinct, DistinctOn, Expr, Limit, LogicalPlan, Projection, Sort, SubqueryAlias, Window,
    WindowFunctionDefinition,
};

use crate::failure::{Result, not_covered};
use crate::kept::OF_PLACES;

/// The same plan, with an order by all columns wherever an order decides which rows there are.
pub(super) fn decided(plan: LogicalPlan) -> Result<LogicalPlan> {
    let each = |plan: LogicalPlan| match here(plan) {
        Ok(plan) => Ok(plan),
        Err(failure) => Err(DataFusionError::from(failure)),
    };
    Ok(plan.transform_up_with_subqueries(each)?.data)
}

fn here(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    Ok(match plan {
        LogicalPlan::Limit(Limit { skip, fetch, input }) => {
            let input = Arc::new(sorted(Arc::unwrap_or_clone(input))?);
            Transformed::yes(LogicalPlan::Limit(Limit { skip, fetch, input }))
        }
        LogicalPlan::Distinct(Distinct::On(on)) => {
            let by = with_all(on.sort_expr.unwrap_or_default(), &on.input)?;
            // The first keys of the order are those of which one row each is kept.
            let mut leading: Vec<SortExpr> = vec![];
            for expr in &on.on_expr {
                if !by.iter().any(|sort| sort.expr == *expr) {
                    leading.push(expr.clone().sort(true, false));
                }
            }
            let by = leading.into_iter().chain(by).collect();
            let on = DistinctOn::try_new(on.on_expr, on.select_expr, Some(by), on.input)?;
            Transformed::yes(LogicalPlan::Distinct(Distinct::On(on)))
        }
        LogicalPlan::Window(Window { input, mut window_expr, .. }) => {
            for expr in &mut window_expr {
                let (relation, name) = expr.qualified_name();
                if number_all(expr, &input)? && expr.qualified_name().1 != name {
                    *expr = std::mem::take(expr).alias_qualified(relation, name);
                }
            }
            Transformed::yes(LogicalPlan::Window(Window::try_new(window_expr, input)?))
        }
        other => Transformed::no(other),
    })
}

/// The order of what is under a limit, which may stand below its columns.
fn sorted(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !has_order(&plan) {
        let expr = with_all(vec![], &plan)?;
        return Ok(LogicalPlan::Sort(Sort { expr, input: Arc::new(plan), fetch: None }));
    }
    Ok(match plan {
        LogicalPlan::Sort(Sort { expr, input, fetch }) => {
            let expr = with_all(expr, &input)?;
            LogicalPlan::Sort(Sort { expr, input, fetch })
        }
        LogicalPlan::Projection(Projection { expr, input, .. }) => {
            let input = sorted(Arc::unwrap_or_clone(input))?;
            LogicalPlan::Projection(Projection::try_new(expr, Arc::new(input))?)
        }
        LogicalPlan::SubqueryAlias(SubqueryAlias { input, alias, .. }) => {
            let input = sorted(Arc::unwrap_or_clone(input))?;
            LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(input), alias)?)
        }
        other => other,
    })
}

fn has_order(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(projection) => has_order(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_order(&alias.input),
        _ => false,
    }
}

/// An order, and then all columns that it does not have.
fn with_all(mut by: Vec<SortExpr>, input: &LogicalPlan) -> Result<Vec<SortExpr>> {
    for (column, field) in input.schema().columns().into_iter().zip(input.schema().fields()) {
        let column = Expr::Column(column);
        if by.iter().any(|sort| sort.expr == column) {
            continue;
        }
        if matches!(field.data_type(), DataType::Map(..)) {
            return not_covered("a correlated subquery over rows with maps that a LIMIT chooses");
        }
        by.push(column.sort(true, false));
    }
    Ok(by)
}

/// Whether it is a window that has another order now.
fn number_all(expr: &mut Expr, input: &LogicalPlan) -> Result<bool> {
    match expr {
        Expr::Alias(alias) => number_all(&mut alias.expr, input),
        Expr::WindowFunction(call) => {
            let is_of_places = match &call.fun {
                WindowFunctionDefinition::WindowUDF(f) => OF_PLACES.contains(&f.name()),
                WindowFunctionDefinition::AggregateUDF(_) => false,
            };
            if is_of_places {
                let by = std::mem::take(&mut call.params.order_by);
                call.params.order_by = with_all(by, input)?;
            }
            Ok(is_of_places)
        }
        _ => Ok(false),
    }
}
