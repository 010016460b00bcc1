//! `LIMIT` above windows, in the place of DataFusion's rule for it: how many rows must be sorted.
//!
//! ```text
//! GlobalLimitExec: fetch=2                       GlobalLimitExec: fetch=2
//!   BoundedWindowAggExec: 2 FOLLOWING              BoundedWindowAggExec: 2 FOLLOWING
//!     BoundedWindowAggExec: 2 FOLLOWING     =>       BoundedWindowAggExec: 2 FOLLOWING
//!       SortExec                                       SortExec: TopK(fetch=6)
//! ```
//!
//! A window needs the rows that its functions look ahead to, beyond those that are wanted of it. DataFusion
//! took the farthest look ahead of all windows below a limit for that of their chain, where each window looks
//! ahead from the last row of the one above it. And it asked a function by its name: `lag(v, -5)` looks
//! ahead, so does a `lag` that is computed over rows in the other order, and `lead(v) IGNORE NULLS` looks as
//! far as there are NULLs. All of these gave values as if the rows that were not sorted did not exist. Here
//! the function's evaluator is asked, which knows its arguments and its direction.

use std::sync::Arc;

use datafusion::common::{Result, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{WindowFrame, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, StandardWindowExpr, WindowExpr,
};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::windows::BoundedWindowAggExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, InputOrderMode, ReplaceChildrenOptions,
};

/// Puts the rule in the place of DataFusion's.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    crate::rules::in_place_of_execution(WindowLimits, builder)
}

#[derive(Debug)]
struct WindowLimits;

impl PhysicalOptimizerRule for WindowLimits {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match config.optimizer.enable_window_limits {
            true => limited(plan, None),
            false => Ok(plan),
        }
    }

    fn name(&self) -> &str {
        "LimitPushPastWindows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The first rows of an operator, of each of its partitions if it has several, that are all anybody asks for.
#[derive(Clone, Copy)]
struct Wanted {
    rows: usize,
    /// Whether a window is between the limit and the operator. Other limits are the business of other rules.
    is_below_window: bool,
}

fn limited(
    mut plan: Arc<dyn ExecutionPlan>,
    wanted: Option<Wanted>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let mut of_input = wanted_of_input(&plan, wanted);
    if let Some(wanted) = wanted.filter(|w| w.is_below_window)
        && (plan.is::<SortExec>() || plan.is::<SortPreservingMergeExec>())
    {
        let rows = plan.fetch().map_or(wanted.rows, |fetch| fetch.min(wanted.rows));
        if let Some(first) = plan.with_fetch(Some(rows)) {
            plan = first;
            of_input = wanted_of_input(&plan, None);
        }
    }
    let old: Vec<_> = plan.children().into_iter().cloned().collect();
    if old.len() != 1 {
        // What is wanted of one side of a join is not known.
        of_input = None;
    }
    let new: Vec<_> =
        old.iter().map(|c| limited(Arc::clone(c), of_input)).collect::<Result<_>>()?;
    if old.iter().zip(&new).all(|(old, new)| Arc::ptr_eq(old, new)) {
        return Ok(plan);
    }
    plan.replace_children(new, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}

/// What is wanted of an operator's input, if that is less than all of it.
fn wanted_of_input(plan: &Arc<dyn ExecutionPlan>, wanted: Option<Wanted>) -> Option<Wanted> {
    let first = |rows| Some(Wanted { rows, is_below_window: false });
    if let Some(limit) = plan.downcast_ref::<GlobalLimitExec>() {
        return first(limit.fetch()?.checked_add(limit.skip())?);
    }
    if let Some(limit) = plan.downcast_ref::<LocalLimitExec>() {
        return first(limit.fetch());
    }
    if let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>()
        && let Some(fetch) = merge.fetch()
    {
        return first(fetch);
    }
    let wanted = wanted?;
    if let Some(window) = plan.downcast_ref::<BoundedWindowAggExec>() {
        let ahead = window.window_expr().iter().map(rows_ahead);
        // None if it is not known of one of them.
        let ahead = ahead.collect::<Option<Vec<_>>>()?.into_iter().max()?;
        if ahead > 0 && window.input_order_mode != InputOrderMode::Sorted {
            // Other partitions' rows come in between.
            return None;
        }
        return Some(Wanted { rows: wanted.rows.checked_add(ahead)?, is_below_window: true });
    }
    let keeps_rows = matches!(plan.cardinality_effect(), CardinalityEffect::Equal);
    (keeps_rows && plan.supports_limit_pushdown()).then_some(wanted)
}

/// How many rows behind its own a row's value may depend on, if there is a bound.
fn rows_ahead(expr: &Arc<dyn WindowExpr>) -> Option<usize> {
    let any = expr.as_any();
    if any.is::<PlainAggregateWindowExpr>() || any.is::<SlidingAggregateWindowExpr>() {
        return rows_of_frame(expr.get_window_frame());
    }
    let function = any.downcast_ref::<StandardWindowExpr>()?.get_standard_func_expr();
    let evaluator = function.create_evaluator().ok()?;
    if evaluator.uses_window_frame() {
        return rows_of_frame(expr.get_window_frame());
    }
    if evaluator.is_causal() {
        return Some(0);
    }
    if !evaluator.supports_bounded_execution() {
        return None;
    }
    // Of the first of so many rows that no distance reaches the last. The end of the range is not always
    // meant to be beyond the last row that is looked at, so all of it counts.
    let end = evaluator.get_range(0, usize::MAX).ok()?.end;
    (end < usize::MAX).then_some(end)
}

fn rows_of_frame(frame: &WindowFrame) -> Option<usize> {
    match &frame.end_bound {
        _ if frame.units != WindowFrameUnits::Rows => None,
        WindowFrameBound::Preceding(_) | WindowFrameBound::CurrentRow => Some(0),
        WindowFrameBound::Following(ScalarValue::UInt64(Some(rows))) => usize::try_from(*rows).ok(),
        WindowFrameBound::Following(_) => None,
    }
}
