//! `lead(v, 2) IGNORE NULLS` is `lag(v, 2) IGNORE NULLS` in the other direction.
//!
//! DataFusion counts wrongly when it looks for the second or a later value that is no NULL ahead of a
//! row; back from it, it does not. So where rows are looked at that follow, their order is turned round:
//!
//! ```text
//! lead(v, 2) IGNORE NULLS OVER (ORDER BY i)   =>   lag(v, 2) IGNORE NULLS OVER (ORDER BY i DESC)
//! ```

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::execution::SessionStateBuilder;
use datafusion::functions_window::lead_lag::lag_udwf;
use datafusion::logical_expr::expr::{NullTreatment, WindowFunction};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, SortExpr, Window, lit};
use datafusion::optimizer::AnalyzerRule;
use thalweg_base::Error;

use crate::error::into_datafusion;

#[derive(Debug, Default)]
pub struct IgnoredNulls;

/// Puts the rule before all others.
pub fn install(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    let mut rules = builder.analyzer().take().unwrap_or_default().rules;
    rules.insert(0, Arc::new(IgnoredNulls));
    builder.with_analyzer_rules(rules)
}

impl AnalyzerRule for IgnoredNulls {
    fn name(&self) -> &str {
        "ignored_nulls"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Window(window)
                if window.window_expr.iter().any(|e| ahead(e).is_some()) =>
            {
                apart(window).map(Transformed::yes)
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(rewritten.data)
    }
}

/// How many values ahead a function looks for one that is no NULL, if it is more than the next.
fn ahead(expr: &Expr) -> Option<i64> {
    let function = match expr {
        Expr::Alias(alias) => return ahead(&alias.expr),
        Expr::WindowFunction(function) => function,
        _ => return None,
    };
    let sign = match function.fun.name() {
        "lead" => 1,
        "lag" => -1,
        _ => return None,
    };
    let by = sign * number(function.params.args.get(1)?)?;
    let ignores = function.params.null_treatment == Some(NullTreatment::IgnoreNulls);
    (ignores && by > 1).then_some(by)
}

fn number(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Negative(inner) => number(inner).and_then(i64::checked_neg),
        Expr::Literal(ScalarValue::Int64(n), _) => *n,
        Expr::Literal(ScalarValue::Int32(n), _) => n.map(i64::from),
        _ => None,
    }
}

/// The same with those functions, whose rows are in another order, in a node of their own.
fn apart(window: Window) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = window.schema.columns().into_iter().map(Expr::Column).collect();
    let (turned, others): (Vec<_>, Vec<_>) =
        window.window_expr.into_iter().partition(|e| ahead(e).is_some());
    let turned = turned.into_iter().map(turned_round).collect::<Result<Vec<_>>>()?;
    let mut plan = LogicalPlan::Window(Window::try_new(turned, window.input)?);
    if !others.is_empty() {
        plan = LogicalPlan::Window(Window::try_new(others, Arc::new(plan))?);
    }
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?))
}

fn turned_round(expr: Expr) -> Result<Expr> {
    let name = expr.schema_name().to_string();
    let by = ahead(&expr);
    let function = match expr {
        Expr::Alias(alias) => *alias.expr,
        other => other,
    };
    let (Expr::WindowFunction(function), Some(by)) = (function, by) else {
        return Err(into_datafusion(Error::internal("no function that looks ahead")));
    };
    let WindowFunction { mut params, .. } = *function;
    if params.order_by.is_empty() {
        return Err(into_datafusion(
            Error::unsupported("lead and lag with IGNORE NULLS look ahead only in an order")
                .hint("give the window an ORDER BY"),
        ));
    }
    params.args[1] = lit(by);
    let order = params.order_by.into_iter();
    params.order_by = order.map(|by| SortExpr::new(by.expr, !by.asc, !by.nulls_first)).collect();
    let mut turned = WindowFunction::new(lag_udwf(), vec![]);
    turned.params = params;
    Ok(Expr::from(turned).alias(name))
}
