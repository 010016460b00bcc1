//! DataFusion's window functions as those of pipelines.

use std::fmt::Debug;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{WindowFrame, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, StandardWindowExpr, WindowExpr,
};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec, WindowUDFExpr};
use thalweg_ir::Literal as Constant;
use thalweg_ir::window::{self, Bound, Frame, Unit, is_covered};
use thalweg_pipeline::literal;

use super::compile::{function, unordered};
use super::function::ForeignAggregate;
use super::same::same_expr;

type Function = window::Function<Arc<ForeignAggregate>>;
type Kind = window::Kind<Arc<ForeignAggregate>>;

/// Functions over the same partitions of the same input, whose rows are in the same order.
pub struct Windows<'a> {
    pub input: &'a Arc<dyn ExecutionPlan>,
    pub partition_by: Vec<Arc<dyn PhysicalExpr>>,
    pub order_by: Vec<PhysicalSortExpr>,
    /// With what they read of the input: their arguments are numbers of these.
    pub functions: Vec<Function>,
    pub read: Vec<Arc<dyn PhysicalExpr>>,
}

/// The window functions of an operator, and of those right below it that partition and order their
/// rows likewise; `None`: there is one that pipelines have no code for, or it is no such operator.
pub fn windows(plan: &Arc<dyn ExecutionPlan>) -> Option<Windows<'_>> {
    let (exprs, input) = operator(plan)?;
    let own = Windows::new(exprs, input)?;
    match windows(unordered(input)) {
        Some(below) => Some(below.with(exprs).unwrap_or(own)),
        None => Some(own),
    }
}

type Operator<'a> = (&'a [Arc<dyn WindowExpr>], &'a Arc<dyn ExecutionPlan>);

/// The functions of an operator for windows, and its input.
fn operator(plan: &Arc<dyn ExecutionPlan>) -> Option<Operator<'_>> {
    if let Some(window) = plan.downcast_ref::<BoundedWindowAggExec>() {
        return Some((window.window_expr(), window.input()));
    }
    plan.downcast_ref::<WindowAggExec>().map(|window| (window.window_expr(), window.input()))
}

impl<'a> Windows<'a> {
    fn new(exprs: &[Arc<dyn WindowExpr>], input: &'a Arc<dyn ExecutionPlan>) -> Option<Self> {
        let first = exprs.first()?;
        let windows = Windows {
            input,
            partition_by: first.partition_by().to_vec(),
            order_by: first.order_by().to_vec(),
            functions: vec![],
            read: vec![],
        };
        windows.with(exprs)
    }

    /// With more functions over the same input, if rows can be ordered for all of them.
    fn with(mut self, exprs: &[Arc<dyn WindowExpr>]) -> Option<Self> {
        let schema = self.input.schema();
        for expr in exprs {
            let (partition_by, order_by) = (expr.partition_by(), expr.order_by());
            let shared = partition_by.len() == self.partition_by.len()
                && partition_by.iter().zip(&self.partition_by).all(|(a, b)| same_expr(a, b))
                && order_by
                    .iter()
                    .zip(&self.order_by)
                    .all(|(a, b)| same_expr(&a.expr, &b.expr) && a.options == b.options);
            // A result of the functions below is no column of the input.
            let known = |e: &Arc<dyn PhysicalExpr>| {
                collect_columns(e).iter().all(|c| c.index() < schema.fields().len())
            };
            let is_key = |e: &Arc<dyn PhysicalExpr>| {
                e.data_type(&schema).is_ok_and(|t| !t.is_nested() && !t.is_null())
            };
            let mut keys = partition_by.iter().chain(order_by.iter().map(|key| &key.expr));
            let all = expr.all_expressions();
            let mut all = all.args.iter().chain(&all.partition_by_exprs).chain(&all.order_by_exprs);
            if !shared || !keys.all(is_key) || !all.all(known) {
                return None;
            }
            if order_by.len() > self.order_by.len() {
                self.order_by = order_by.to_vec();
            }
            let translated = translate(expr, &schema, &mut self.read)?;
            self.functions.push(translated);
        }
        Some(self)
    }
}

fn translate(
    expr: &Arc<dyn WindowExpr>,
    schema: &Schema,
    read: &mut Vec<Arc<dyn PhysicalExpr>>,
) -> Option<Function> {
    let result = expr.field().ok()?.data_type().clone();
    let (kind, arguments) = kind(expr, schema, &result, read).ok()??;
    let types = arguments.iter().map(|&a| read[a].data_type(schema)).collect::<Result<Vec<_>>>();
    let types = types.ok()?;
    let order_keys = expr.order_by().len();
    let function =
        Function { kind, arguments, order_keys, frame: frame(expr.get_window_frame())?, result };
    let typed = !types.iter().any(DataType::is_null);
    (typed && is_covered(&function, &types)).then_some(function)
}

/// What it computes, and the expressions in `read` that are its arguments.
fn kind(
    expr: &Arc<dyn WindowExpr>,
    schema: &Schema,
    result: &DataType,
    read: &mut Vec<Arc<dyn PhysicalExpr>>,
) -> Result<Option<(Kind, Vec<usize>)>> {
    let any = expr.as_any();
    let aggregate = match (any.downcast_ref(), any.downcast_ref()) {
        (Some(plain), _) => Some(PlainAggregateWindowExpr::get_aggregate_expr(plain)),
        (_, Some(sliding)) => Some(SlidingAggregateWindowExpr::get_aggregate_expr(sliding)),
        _ => None,
    };
    if let Some(aggregate) = aggregate {
        // FILTER is told to nobody but by how the expression is shown for debugging.
        if !ends_so(expr, "filter: None }") || !aggregate.order_bys().is_empty() {
            return Ok(None);
        }
        let aggregate = Arc::new(aggregate.clone());
        let function = function(&aggregate, None, schema, true, read, &mut vec![])?;
        return Ok(Some((Kind::Aggregate(function.kind), function.arguments)));
    }
    let standard = any.downcast_ref::<StandardWindowExpr>();
    let standard = standard.map(StandardWindowExpr::get_standard_func_expr);
    let Some(udf) = standard.and_then(|s| s.as_any().downcast_ref::<WindowUDFExpr>()) else {
        return Ok(None);
    };
    // So are IGNORE NULLS, and that rows are to be gone through backwards.
    if !ends_so(udf, "is_reversed: false, ignore_nulls: false }") {
        return Ok(None);
    }
    let constant = |n: usize, data_type: &DataType| {
        let literal = udf.args().get(n).and_then(|a| a.downcast_ref::<Literal>());
        literal.map(|literal| literal.value().cast_to(data_type)).transpose()
    };
    let number = |n: usize| match constant(n, &DataType::Int64)? {
        Some(ScalarValue::Int64(Some(number))) => {
            Ok::<_, datafusion::error::DataFusionError>(Some(number))
        }
        _ => Ok(None),
    };
    let name = udf.fun().name();
    let kind = match name {
        "row_number" => Kind::RowNumber,
        "rank" => Kind::Rank,
        "dense_rank" => Kind::DenseRank,
        "percent_rank" => Kind::PercentRank,
        "cume_dist" => Kind::CumeDist,
        "ntile" => match number(0)? {
            Some(tiles @ 1..) => Kind::Ntile(tiles.unsigned_abs()),
            _ => return Ok(None),
        },
        "lag" | "lead" => {
            let distance = match (udf.args().get(1), number(1)?) {
                (None, _) => 1,
                (Some(_), Some(distance)) => distance,
                (Some(_), None) => return Ok(None),
            };
            let default = match (udf.args().get(2), constant(2, result)?) {
                (None, _) => Some(Constant::null(result.clone())),
                (Some(_), Some(default)) => literal::of(&default.to_array_of_size(1)?),
                (Some(_), None) => None,
            };
            let Some(default) = default else { return Ok(None) };
            let forwards = if name == "lag" { -1 } else { 1 };
            Kind::Shifted(distance.saturating_mul(forwards), default)
        }
        "first_value" => Kind::First,
        "last_value" => Kind::Last,
        "nth_value" => match number(1)? {
            Some(n) => Kind::Nth(n),
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    let arguments = match kind {
        Kind::Shifted(..) | Kind::First | Kind::Last | Kind::Nth(_) => {
            let Some(argument) = udf.args().first() else { return Ok(None) };
            read.push(Arc::clone(argument));
            vec![read.len() - 1]
        }
        _ => vec![],
    };
    Ok(Some((kind, arguments)))
}

fn ends_so(what: &(impl Debug + ?Sized), end: &str) -> bool {
    format!("{what:?}").ends_with(end)
}

/// `None`: its bounds are distances in values, not in rows.
fn frame(frame: &WindowFrame) -> Option<Frame> {
    let bound = |bound: &WindowFrameBound| {
        let distance = |value: &ScalarValue| match value {
            value if value.is_null() => Some(Bound::Unbounded),
            ScalarValue::UInt64(Some(n)) if frame.units != WindowFrameUnits::Range => {
                i64::try_from(*n).ok().map(Bound::Distance)
            }
            _ => None,
        };
        match bound {
            WindowFrameBound::CurrentRow => Some(Bound::Distance(0)),
            WindowFrameBound::Following(value) => distance(value),
            WindowFrameBound::Preceding(value) => distance(value).map(|bound| match bound {
                Bound::Distance(n) => Bound::Distance(-n),
                Bound::Unbounded => Bound::Unbounded,
            }),
        }
    };
    let unit = match frame.units {
        WindowFrameUnits::Rows => Unit::Rows,
        WindowFrameUnits::Range | WindowFrameUnits::Groups => Unit::Peers,
    };
    Some(Frame { unit, start: bound(&frame.start_bound)?, end: bound(&frame.end_bound)? })
}
