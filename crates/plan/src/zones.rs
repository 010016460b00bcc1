//! Casts between `timestamp` and `timestamptz`, and instants plus intervals, by the clocks of a zone.
//!
//! Arrow takes a clock's time that is skipped or shown twice for an error, and drops a zone without a look
//! at its clocks. Behind the other rules of the analyzer, which add casts, these become functions of our
//! own (`thalweg_functions`, `zones.rs`). In UTC there is nothing to do.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF, cast, lit,
};
use datafusion::optimizer::AnalyzerRule;

use thalweg_functions::zones::{CLOCK_OF, INSTANT_MINUS, INSTANT_OF, INSTANT_PLUS, is_utc};

#[derive(Debug, Default)]
struct ZoneCasts;

/// Puts the rule behind all others.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    crate::rules::analyze_last(ZoneCasts, builder)
}

impl AnalyzerRule for ZoneCasts {
    fn name(&self) -> &str {
        "zones"
    }

    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
        // Types of other zones than the session's do not come to be.
        if options.execution.time_zone.as_deref().is_none_or(is_utc) {
            return Ok(plan);
        }
        let rewritten = plan.transform_up_with_subqueries(|node| {
            let schema = crate::nodes::input_schema(&node)?;
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let read = expr.transform_up(|e| by_clocks(e, &schema))?;
                Ok(match read.transformed {
                    true => Transformed::yes(name.restore(read.data)),
                    false => read,
                })
            })
        })?;
        Ok(rewritten.data)
    }
}

fn call(function: &Arc<ScalarUDF>, args: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), args))
}

fn by_clocks(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    use DataType::{Date32, Date64, Time32, Time64, Timestamp};
    let of_items = |body: Expr, item: &DFSchema| body.transform_up(|e| by_clocks(e, item));
    if let Some(list) = crate::nodes::in_items(&expr, of_items)? {
        return Ok(Transformed::yes(list));
    }
    let (inner, to) = match &expr {
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
            (expr.as_ref(), field.data_type())
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let function = match op {
                Operator::Plus => &INSTANT_PLUS,
                Operator::Minus => &INSTANT_MINUS,
                _ => return Ok(Transformed::no(expr)),
            };
            let types = (left.get_type(schema), right.get_type(schema));
            return Ok(match types {
                (Ok(Timestamp(_, Some(_))), Ok(DataType::Interval(_))) => {
                    Transformed::yes(call(function, vec![*left.clone(), *right.clone()]))
                }
                (Ok(DataType::Interval(_)), Ok(Timestamp(_, Some(_)))) if *op == Operator::Plus => {
                    Transformed::yes(call(function, vec![*right.clone(), *left.clone()]))
                }
                _ => Transformed::no(expr),
            });
        }
        _ => return Ok(Transformed::no(expr)),
    };
    let Ok(from) = inner.get_type(schema) else { return Ok(Transformed::no(expr)) };
    let rewritten = match (&from, to) {
        (Timestamp(own, None), Timestamp(unit, Some(zone))) => {
            let clock = match own == unit {
                true => inner.clone(),
                false => cast(inner.clone(), Timestamp(*unit, None)),
            };
            call(&INSTANT_OF, vec![clock, lit(zone.as_ref()), lit(zone.as_ref())])
        }
        (Date32 | Date64, Timestamp(unit, Some(zone))) => {
            let clock = cast(inner.clone(), Timestamp(*unit, None));
            call(&INSTANT_OF, vec![clock, lit(zone.as_ref()), lit(zone.as_ref())])
        }
        (Timestamp(own, Some(zone)), Timestamp(unit, None)) => {
            let clock = call(&CLOCK_OF, vec![inner.clone(), lit(zone.as_ref())]);
            match own == unit {
                true => clock,
                false => cast(clock, Timestamp(*unit, None)),
            }
        }
        (Timestamp(_, Some(zone)), Date32 | Date64 | Time32(_) | Time64(_)) => {
            let clock = call(&CLOCK_OF, vec![inner.clone(), lit(zone.as_ref())]);
            cast(clock, to.clone())
        }
        _ => return Ok(Transformed::no(expr)),
    };
    Ok(Transformed::yes(rewritten))
}

/// A type of stored columns as the session sees it, instants in its own zone, also as items of lists; `None`:
/// it is that already, perhaps under another name of UTC.
pub fn in_zone(data_type: &DataType, zone: Option<&str>) -> Option<DataType> {
    let zone = zone?;
    let is_other = |own: &str| own != zone && !(is_utc(own) && is_utc(zone));
    match data_type {
        DataType::Timestamp(unit, Some(own)) if is_other(own) => {
            Some(DataType::Timestamp(*unit, Some(zone.into())))
        }
        other => with_items(other, |item| in_zone(item, Some(zone))),
    }
}

/// A type of lists with another type of items; `None`: it is none, or its items stay what they are.
fn with_items(
    data_type: &DataType,
    item_as: impl Fn(&DataType) -> Option<DataType>,
) -> Option<DataType> {
    let renewed = |item: &FieldRef| {
        let data_type = item_as(item.data_type())?;
        Some(Arc::new(item.as_ref().clone().with_data_type(data_type)))
    };
    Some(match data_type {
        DataType::List(item) => DataType::List(renewed(item)?),
        DataType::LargeList(item) => DataType::LargeList(renewed(item)?),
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(renewed(item)?, *length),
        _ => return None,
    })
}

/// Whether values of a type are instants, or lists of these.
pub fn has_instants(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(_, Some(_)) => true,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            has_instants(item.data_type())
        }
        _ => false,
    }
}

/// How instants are stored, whatever the session's zone.
pub const STORED_ZONE: &str = "+00:00";

/// A type as a table has it.
pub fn stored(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Timestamp(unit, Some(_)) => stamp(*unit),
        other => with_items(other, |item| Some(stored(item))).unwrap_or_else(|| other.clone()),
    }
}

fn stamp(unit: TimeUnit) -> DataType {
    DataType::Timestamp(unit, Some(STORED_ZONE.into()))
}
