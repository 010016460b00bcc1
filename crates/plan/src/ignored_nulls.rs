//! `lead(v, 2) IGNORE NULLS` is `lag(v, 2) IGNORE NULLS` in the other direction.
//!
//! DataFusion counts wrongly when it looks for the second or a later value that is no NULL ahead of a
//! row; back from it, it does not. So where rows are looked at that follow, their order is turned round:
//!
//! ```text
//! lead(v, 2) IGNORE NULLS OVER (ORDER BY i)   =>   lag(v, 2) IGNORE NULLS OVER (ORDER BY i DESC)
//! ```
//!
//! Where rows are sorted the other way for another function, DataFusion turns functions round itself.
//! So the `lag` here is one that cannot be.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::execution::SessionStateBuilder;
use datafusion::functions_window::lead_lag::lag_udwf;
use datafusion::logical_expr::expr::{NullTreatment, WindowFunction};
use datafusion::logical_expr::function::{
    ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs,
};
use datafusion::logical_expr::{
    Expr, LimitEffect, LogicalPlan, PartitionEvaluator, Projection, ReversedUDWF, Signature,
    SortExpr, Window, WindowUDF, WindowUDFImpl, lit,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr::PhysicalExpr;
use thalweg_base::Error;

use thalweg_errors::into_datafusion;

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
                if window.window_expr.iter().any(|e| distance(e).is_some()) =>
            {
                apart(window).map(Transformed::yes)
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(rewritten.data)
    }
}

/// How many values ahead a function looks for one that is no NULL, if it is more than the next, and if
/// it is less than zero, back.
fn distance(expr: &Expr) -> Option<i64> {
    let function = match expr {
        Expr::Alias(alias) => return distance(&alias.expr),
        Expr::WindowFunction(function) => function,
        _ => return None,
    };
    let sign = match function.fun.name() {
        "lead" => 1,
        "lag" => -1,
        _ => return None,
    };
    let by = number(function.params.args.get(1)?)?.checked_mul(sign)?;
    let ignores = function.params.null_treatment == Some(NullTreatment::IgnoreNulls);
    (ignores && !(-1..=1).contains(&by) && by != i64::MIN).then_some(by)
}

fn ahead(expr: &Expr) -> Option<i64> {
    distance(expr).filter(|by| *by > 0)
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
    let others = others.into_iter().map(backwards).collect::<Result<Vec<_>>>()?;
    let turned = turned.into_iter().map(backwards).collect::<Result<Vec<_>>>()?;
    let mut plan = window.input;
    for functions in [turned, others] {
        if !functions.is_empty() {
            plan = Arc::new(LogicalPlan::Window(Window::try_new(functions, plan)?));
        }
    }
    Ok(LogicalPlan::Projection(Projection::try_new(columns, plan)?))
}

/// A function that looks back, if it is one of these.
fn backwards(expr: Expr) -> Result<Expr> {
    let Some(by) = distance(&expr) else { return Ok(expr) };
    let name = expr.schema_name().to_string();
    let function = match expr {
        Expr::Alias(alias) => *alias.expr,
        other => other,
    };
    let Expr::WindowFunction(function) = function else {
        return Err(into_datafusion(Error::internal("no function that looks ahead or back")));
    };
    let WindowFunction { mut params, .. } = *function;
    if by > 0 && params.order_by.is_empty() {
        return Err(into_datafusion(
            Error::unsupported("lead and lag with IGNORE NULLS look ahead only in an order")
                .hint("give the window an ORDER BY"),
        ));
    }
    params.args[1] = lit(by.abs());
    if by > 0 {
        for by in &mut params.order_by {
            *by = SortExpr::new(by.expr.clone(), !by.asc, !by.nulls_first);
        }
    }
    let mut back =
        WindowFunction::new(Arc::new(WindowUDF::new_from_impl(Back(lag_udwf()))), vec![]);
    back.params = params;
    Ok(Expr::from(back).alias(name))
}

/// DataFusion's `lag`, which stays one.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Back(Arc<WindowUDF>);

impl WindowUDFImpl for Back {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn expressions(&self, args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.0.inner().expressions(args)
    }

    fn partition_evaluator(
        &self,
        args: PartitionEvaluatorArgs,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        self.0.inner().partition_evaluator(args)
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        self.0.inner().field(args)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.0.inner().coerce_types(types)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        ReversedUDWF::NotSupported
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.0.inner().limit_effect(args)
    }
}
