//! What `-` and `+` mean between dates, whole numbers and timestamps, as in PostgreSQL.
//!
//! | | |
//! |---|---|
//! | `date - date` | days, an int |
//! | `date + int`, `int + date`, `date - int` | a date |
//! | `timestamp - timestamp` | an interval of days and time |
//! | `time - time` | an interval |
//! | `timestamp + time`, `timestamp - time` | a timestamp |
//! | `date + time`, `date - time`, `date + interval`, `date - interval` | a timestamp |
//! | `interval * number`, `number * interval`, `interval / number` | an interval |

use std::sync::Arc;

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction};
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannerResult, RawAggregateExpr, RawBinaryExpr,
};
use datafusion::logical_expr::{BinaryExpr, expr::Alias};
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, ScalarUDF, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::interval_times::IntervalTimes;
use super::spans::{Kind, Spans};

#[derive(Debug)]
pub struct Operators;

impl ExprPlanner for Operators {
    /// `extract(field FROM time)` is our `date_part`.
    fn plan_extract(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        let part = super::parts::DatePart::new(datafusion::functions::datetime::date_part());
        let part = Arc::new(ScalarUDF::new_from_impl(part));
        Ok(PlannerResult::Planned(Expr::ScalarFunction(ScalarFunction::new_udf(part, args))))
    }

    /// The average and the sum of what `-` gives of timestamps are taken of durations, which
    /// DataFusion's aggregates know.
    fn plan_aggregate(&self, expr: RawAggregateExpr) -> Result<PlannerResult<RawAggregateExpr>> {
        let Some((later, earlier)) = difference(&expr) else {
            return Ok(PlannerResult::Original(expr));
        };
        let stamp = DataType::Timestamp(TimeUnit::Microsecond, None);
        let duration = Expr::BinaryExpr(BinaryExpr::new(
            Box::new(cast(later, stamp.clone())),
            Operator::Minus,
            Box::new(cast(earlier, stamp)),
        ));
        let title = format!("{}({})", expr.func.name(), expr.args[0]);
        let aggregate = AggregateFunction::new_udf(
            expr.func,
            vec![duration],
            expr.distinct,
            expr.filter,
            expr.order_by,
            expr.null_treatment,
        );
        let function = Arc::new(ScalarUDF::new_from_impl(Spans::new(Kind::OfDuration)));
        let args = vec![Expr::AggregateFunction(aggregate)];
        let span = Expr::ScalarFunction(ScalarFunction::new_udf(function, args));
        Ok(PlannerResult::Planned(Expr::Alias(Alias::new(span, None::<&str>, title))))
    }

    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let minus = match expr.op {
            BinaryOperator::Minus => true,
            BinaryOperator::Plus => false,
            BinaryOperator::Multiply | BinaryOperator::Divide => return scaled(expr, schema),
            _ => return Ok(PlannerResult::Original(expr)),
        };
        // A type that cannot be told here (a parameter) changes nothing.
        let (Ok(left), Ok(right)) = (expr.left.get_type(schema), expr.right.get_type(schema))
        else {
            return Ok(PlannerResult::Original(expr));
        };
        let is_date = |t: &DataType| matches!(t, DataType::Date32);
        let is_stamp = |t: &DataType| matches!(t, DataType::Timestamp(..));
        let is_time = |t: &DataType| matches!(t, DataType::Time64(_) | DataType::Time32(_));
        let is_span = |t: &DataType| matches!(t, DataType::Interval(_));
        let stamp = DataType::Timestamp(TimeUnit::Microsecond, None);
        // A date, or a timestamp in its zone, as a timestamp to which microseconds are added.
        let micros = |t: &DataType| match t {
            DataType::Timestamp(TimeUnit::Nanosecond, _) => t.clone(),
            DataType::Timestamp(_, zone) => {
                DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
            }
            _ => stamp.clone(),
        };
        let title = format!("{} {} {}", expr.left, expr.op, expr.right);
        let days = |expr: Expr| cast(expr, DataType::Int32);
        let number = |op: Operator, left: Expr, right: Expr| {
            Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
        };
        let planned = match (&left, &right) {
            (l, r) if minus && is_date(l) && (is_date(r) || is_unknown(&expr.right)) => {
                let right =
                    if is_date(r) { expr.right } else { cast(expr.right, DataType::Date32) };
                number(Operator::Minus, days(expr.left), days(right))
            }
            (_, r) if minus && is_date(r) && is_unknown(&expr.left) => {
                number(Operator::Minus, days(cast(expr.left, DataType::Date32)), days(expr.right))
            }
            (l, r) if is_date(l) && r.is_integer() => {
                let op = if minus { Operator::Minus } else { Operator::Plus };
                cast(number(op, days(expr.left), days(expr.right)), DataType::Date32)
            }
            (l, r) if !minus && l.is_integer() && is_date(r) => {
                cast(number(Operator::Plus, days(expr.left), days(expr.right)), DataType::Date32)
            }
            (l, r)
                if minus && is_stamp(l) && (is_stamp(r) || is_date(r))
                    || minus && is_date(l) && is_stamp(r) =>
            {
                let function = Arc::new(ScalarUDF::new_from_impl(Spans::new(Kind::Difference)));
                let args = vec![expr.left, expr.right];
                Expr::ScalarFunction(ScalarFunction::new_udf(function, args))
            }
            // An interval may have hours.
            (l, r) if is_date(l) && is_span(r) => {
                let op = if minus { Operator::Minus } else { Operator::Plus };
                number(op, cast(expr.left, stamp.clone()), expr.right)
            }
            (l, r) if !minus && is_span(l) && is_date(r) => {
                number(Operator::Plus, cast(expr.right, stamp.clone()), expr.left)
            }
            (l, r) if minus && is_time(l) && is_time(r) => {
                let span = number(Operator::Minus, as_span(expr.left), as_span(expr.right));
                // Hours alone: from 00:00 to 24:00 there is no day, but 24 hours.
                cast(span, DataType::Interval(IntervalUnit::MonthDayNano))
            }
            (l, r) if (is_date(l) || is_stamp(l)) && is_time(r) => {
                let op = if minus { Operator::Minus } else { Operator::Plus };
                number(op, cast(expr.left, micros(l)), as_span(expr.right))
            }
            (l, r) if !minus && is_time(l) && (is_date(r) || is_stamp(r)) => {
                number(Operator::Plus, cast(expr.right, micros(r)), as_span(expr.left))
            }
            _ => return Ok(PlannerResult::Original(expr)),
        };
        Ok(PlannerResult::Planned(Expr::Alias(Alias::new(planned, None::<&str>, title))))
    }
}

/// An interval and a number.
fn scaled(expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
    let is_span = |e: &Expr| {
        e.get_type(schema).is_ok_and(|t| matches!(t, DataType::Interval(_) | DataType::Duration(_)))
    };
    let divides = matches!(expr.op, BinaryOperator::Divide);
    let (left, right) = (is_span(&expr.left), is_span(&expr.right));
    let is_number = |e: &Expr| e.get_type(schema).is_ok_and(|t| t.is_numeric() || t.is_null());
    let by_number = if left { is_number(&expr.right) } else { is_number(&expr.left) };
    if left == right || (right && divides) || !by_number {
        return Ok(PlannerResult::Original(expr));
    }
    let title = format!("{} {} {}", expr.left, expr.op, expr.right);
    let (span, number) = if left { (expr.left, expr.right) } else { (expr.right, expr.left) };
    let interval = DataType::Interval(IntervalUnit::MonthDayNano);
    let args = vec![cast(span, interval), cast(number, DataType::Float64)];
    let function = Arc::new(ScalarUDF::new_from_impl(IntervalTimes::new(divides)));
    let scaled = Expr::ScalarFunction(ScalarFunction::new_udf(function, args));
    Ok(PlannerResult::Planned(Expr::Alias(Alias::new(scaled, None::<&str>, title))))
}

/// The timestamps whose difference is averaged or summed.
fn difference(expr: &RawAggregateExpr) -> Option<(Expr, Expr)> {
    let [argument] = &expr.args[..] else { return None };
    if !["avg", "sum"].contains(&expr.func.name()) {
        return None;
    }
    match argument.clone().unalias() {
        Expr::ScalarFunction(call) if call.func.name() == "timestamp_difference" => {
            let [later, earlier] = <[Expr; 2]>::try_from(call.args).ok()?;
            Some((later, earlier))
        }
        _ => None,
    }
}

/// A quoted literal, which takes its type from what it meets.
fn is_unknown(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Utf8(Some(_)) | ScalarValue::Utf8View(Some(_)), _))
}

fn as_span(time: Expr) -> Expr {
    let us = cast(cast(time, DataType::Time64(TimeUnit::Microsecond)), DataType::Int64);
    cast(us, DataType::Duration(TimeUnit::Microsecond))
}
