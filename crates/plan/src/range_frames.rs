//! Frames of a window that reach so far from a value: `RANGE BETWEEN 1 PRECEDING AND …`.
//!
//! DataFusion adds the distance to the value in the value's type. What is beyond the end of the type
//! counts as the end of the rows, those with a NULL included, and a distance that the type does not have
//! as none. So whole numbers become decimals, which have room.
//!
//! And while rows come in, it gives a row with a NULL, whose frame are the rows with NULLs, those that
//! have come so far if the frame ends before the value. Such a frame waits for all rows.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::config::ConfigOptions;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, WindowFrame, WindowFrameBound, WindowFrameUnits, cast,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode};

#[derive(Debug, Default)]
pub struct RangeFrames;

/// Puts the rules before type coercion, and behind the placing of sorts.
pub fn install(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    let mut rules = builder.analyzer().take().unwrap_or_default().rules;
    rules.insert(0, Arc::new(RangeFrames));
    let mut builder = builder.with_analyzer_rules(rules);
    let mut rules = builder.physical_optimizers().take().unwrap_or_default().rules;
    if let Some(place) = rules.iter().position(|r| r.name() == "EnsureRequirements") {
        rules.insert(place + 1, Arc::new(RangeFrames));
    }
    builder.with_physical_optimizer_rules(rules)
}

impl AnalyzerRule for RangeFrames {
    fn name(&self) -> &str {
        "range_frames"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|plan| {
            if !matches!(plan, LogicalPlan::Window(_)) {
                return Ok(Transformed::no(plan));
            }
            let schema = merge_schema(&plan.inputs());
            // Functions of one node share their order, so all of them get the wider one.
            match &plan {
                LogicalPlan::Window(window)
                    if window.window_expr.iter().any(|e| widens(e, &schema)) => {}
                _ => return Ok(Transformed::no(plan)),
            }
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let widened = expr.transform_up(|expr| Ok(widened(expr, &schema)))?;
                Ok(widened.update_data(|expr| name.restore(expr)))
            })
        })?;
        Ok(rewritten.data)
    }
}

fn widens(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::Alias(alias) => widens(&alias.expr, schema),
        Expr::WindowFunction(window) => {
            has_distance(&window.params.window_frame) && has_whole_order(window, schema)
        }
        _ => false,
    }
}

fn has_whole_order(window: &WindowFunction, schema: &DFSchema) -> bool {
    match window.params.order_by.as_slice() {
        [by] => by.expr.get_type(schema).is_ok_and(|t| t.is_integer()),
        _ => false,
    }
}

fn widened(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::WindowFunction(mut window) = expr else { return Transformed::no(expr) };
    let widens = has_whole_order(&window, schema);
    if widens {
        let by = &mut window.params.order_by[0];
        by.expr = cast(by.expr.clone(), DataType::Decimal128(38, 0));
    }
    Transformed::new_transformed(Expr::WindowFunction(window), widens)
}

fn has_distance(frame: &WindowFrame) -> bool {
    let distant = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by) => !by.is_null(),
        WindowFrameBound::CurrentRow => false,
    };
    frame.units == WindowFrameUnits::Range
        && (distant(&frame.start_bound) || distant(&frame.end_bound))
}

impl PhysicalOptimizerRule for RangeFrames {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let patient = plan.transform_up(|plan| {
            let Some(window) = plan.downcast_ref::<BoundedWindowAggExec>() else {
                return Ok(Transformed::no(plan));
            };
            let ends_before = window.window_expr().iter().any(|e| {
                let frame = e.get_window_frame();
                matches!(&frame.end_bound, WindowFrameBound::Preceding(by) if !by.is_null())
                    && frame.units == WindowFrameUnits::Range
            });
            // Where rows are not sorted by all keys, none come in order to begin with.
            if !ends_before || window.input_order_mode != InputOrderMode::Sorted {
                return Ok(Transformed::no(plan));
            }
            let patient = WindowAggExec::try_new(
                window.window_expr().to_vec(),
                Arc::clone(window.input()),
                !window.partition_keys().is_empty(),
            )?;
            Ok(Transformed::yes(Arc::new(patient) as _))
        })?;
        Ok(patient.data)
    }

    fn name(&self) -> &str {
        "range_frames"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
