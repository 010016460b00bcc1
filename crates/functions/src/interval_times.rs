//! An interval times a number, or divided by one, as PostgreSQL has it: what is left of a month becomes
//! days, and what is left of a day becomes time.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, IntervalMonthDayNanoArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, IntervalMonthDayNano, IntervalMonthDayNanoType};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use thalweg_base::Error;

use super::interval_key::INTERVAL;
use thalweg_errors::into_datafusion;

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct IntervalTimes {
    divides: bool,
    signature: Signature,
}

impl IntervalTimes {
    pub fn new(divides: bool) -> IntervalTimes {
        IntervalTimes { divides, signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for IntervalTimes {
    fn name(&self) -> &str {
        if self.divides { "interval_divided" } else { "interval_times" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [DataType::Interval(_) | DataType::Duration(_) | DataType::Null, number]
                if number.is_numeric() || number.is_null() =>
            {
                Ok(vec![INTERVAL, DataType::Float64])
            }
            _ => plan_err!("{} takes an interval and a number", self.name()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if scalar { 1 } else { args.number_rows };
        let spans = cast(&args.args[0].clone().into_array(rows)?, &INTERVAL)?;
        let numbers = cast(&args.args[1].clone().into_array(rows)?, &DataType::Float64)?;
        let (spans, numbers) = (
            spans.as_primitive::<IntervalMonthDayNanoType>(),
            numbers.as_primitive::<Float64Type>(),
        );
        let mut values = Vec::with_capacity(rows);
        for row in 0..rows {
            if spans.is_null(row) || numbers.is_null(row) {
                values.push(None);
                continue;
            }
            let (span, number) = (spans.value(row), numbers.value(row));
            if self.divides && number == 0.0 {
                let error = Error::user("division by zero").code("22012");
                return Err(into_datafusion(error));
            }
            let value = scaled(span, |x| if self.divides { x / number } else { x * number });
            let Some(value) = value else {
                let error = Error::user("interval out of range").code("22008");
                return Err(into_datafusion(error));
            };
            values.push(Some(value));
        }
        let values: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(values));
        match scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?)),
            false => Ok(ColumnarValue::Array(values)),
        }
    }
}

/// To a millionth.
fn rounded(x: f64) -> f64 {
    (x * 1e6).round_ties_even() / 1e6
}

fn as_i32(x: f64) -> Option<i32> {
    (x > f64::from(i32::MIN) - 1.0 && x < f64::from(i32::MAX) + 1.0).then_some(x as i32)
}

/// Each part is scaled by `by`.
fn scaled(span: IntervalMonthDayNano, by: impl Fn(f64) -> f64) -> Option<IntervalMonthDayNano> {
    const DAY_S: f64 = 86_400.0;
    let (months_exact, days_exact) = (by(f64::from(span.months)), by(f64::from(span.days)));
    let (months, mut days) = (as_i32(months_exact)?, as_i32(days_exact)?);
    let left_days = rounded((months_exact - f64::from(months)) * 30.0);
    let mut left_s =
        rounded((days_exact - f64::from(days) + left_days - left_days.trunc()) * DAY_S);
    if left_s.abs() >= DAY_S {
        let more = (left_s / DAY_S).trunc();
        days = days.checked_add(more as i32)?;
        left_s -= more * DAY_S;
    }
    days = days.checked_add(left_days as i32)?;
    let us = (by(span.nanoseconds as f64 / 1e3) + left_s * 1e6).round_ties_even();
    // Nanoseconds are what is stored.
    if us.is_nan() || us.abs() > (i64::MAX / 1000) as f64 {
        return None;
    }
    Some(IntervalMonthDayNano::new(months, days, us as i64 * 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_goes_to_the_smaller_parts() {
        let check = |(months, days, s): (i32, i32, i64), by: f64, expected: (i32, i32, i64)| {
            let span =
                |(m, d, s): (i32, i32, i64)| IntervalMonthDayNano::new(m, d, s * 1_000_000_000);
            assert_eq!(scaled(span((months, days, s)), |x| x * by), Some(span(expected)));
        };
        check((1, 0, 0), 1.5, (1, 15, 0));
        check((0, 1, 0), 2.5, (0, 2, 43_200));
        check((1, 1, 3600), -2.0, (-2, -2, -7200));
        check((1, 0, 0), 0.1, (0, 3, 0));
        let month = IntervalMonthDayNano::new(1, 0, 0);
        assert_eq!(scaled(month, |x| x * 1e12), None);
        assert_eq!(scaled(month, |x| x * f64::NAN), None);
    }
}
