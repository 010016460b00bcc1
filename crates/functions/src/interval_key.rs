//! What intervals are compared by.
//!
//! An interval is months, days and time, which do not convert into each other: a month has no fixed
//! number of days. To be compared it is counted as a whole all the same, a month as 30 days and a day as
//! 24 hours, as PostgreSQL does: `interval '1 month' = interval '30 days'`. `interval_keys.rs` of thalweg-plan puts
//! `interval_key` wherever a plan compares, orders or groups intervals.
//!
//! The key is a decimal of nanoseconds: the longest interval has 25 digits.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, IntervalMonthDayNanoArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Decimal128Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::calendar::DAY_US;

pub const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const KEY: DataType = DataType::Decimal128(28, 0);
const MONTH_DAYS: i128 = 30;

/// The length in nanoseconds that an interval is compared by.
pub fn key_ns(span: IntervalMonthDayNano) -> i128 {
    let days = i128::from(span.months) * MONTH_DAYS + i128::from(span.days);
    days * i128::from(DAY_US) * 1000 + i128::from(span.nanoseconds)
}

pub static INTERVAL_KEY: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arc::new(ScalarUDF::new_from_impl(IntervalKey::default())));

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct IntervalKey {
    signature: Signature,
}

impl Default for IntervalKey {
    fn default() -> Self {
        IntervalKey { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for IntervalKey {
    fn name(&self) -> &str {
        "interval_key"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::Interval(_) | DataType::Null] => Ok(KEY),
            _ => plan_err!("interval_key takes an interval"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = matches!(args.args[0], ColumnarValue::Scalar(_));
        let rows = if scalar { 1 } else { args.number_rows };
        let array = args.args[0].clone().into_array(rows)?;
        let spans = cast(&array, &INTERVAL)?;
        let spans = spans.as_primitive::<IntervalMonthDayNanoType>();
        let keys: Decimal128Array = spans.unary::<_, Decimal128Type>(key_ns);
        let keys: ArrayRef = Arc::new(keys.with_data_type(KEY));
        match scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&keys, 0)?)),
            false => Ok(ColumnarValue::Array(keys)),
        }
    }
}

/// `greatest` and `least` of intervals.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct IntervalExtreme {
    greatest: bool,
    signature: Signature,
}

impl IntervalExtreme {
    pub fn new(greatest: bool) -> IntervalExtreme {
        IntervalExtreme { greatest, signature: Signature::variadic_any(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for IntervalExtreme {
    fn name(&self) -> &str {
        if self.greatest { "interval_greatest" } else { "interval_least" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let arrays = args
            .args
            .into_iter()
            .map(|arg| cast(&arg.into_array(rows)?, &INTERVAL).map_err(Into::into));
        let arrays = arrays.collect::<Result<Vec<ArrayRef>>>()?;
        let columns: Vec<&IntervalMonthDayNanoArray> =
            arrays.iter().map(|a| a.as_primitive::<IntervalMonthDayNanoType>()).collect();
        let best = |row: usize| {
            let values = columns.iter().filter(|c| c.is_valid(row)).map(|c| c.value(row));
            values.reduce(|best, next| {
                let is_better = match self.greatest {
                    true => key_ns(next) > key_ns(best),
                    false => key_ns(next) < key_ns(best),
                };
                if is_better { next } else { best }
            })
        };
        let values: IntervalMonthDayNanoArray = (0..rows).map(best).collect();
        Ok(ColumnarValue::Array(Arc::new(values)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_interval_is_too_long_for_its_key() {
        let least = IntervalMonthDayNano::new(i32::MIN, i32::MIN, i64::MIN);
        let digits = key_ns(least).unsigned_abs().to_string().len();
        assert!(digits <= 28, "{digits}");
        let month = IntervalMonthDayNano::new(1, 0, 0);
        assert_eq!(key_ns(month), key_ns(IntervalMonthDayNano::new(0, 30, 0)));
        assert!(key_ns(month) < key_ns(IntervalMonthDayNano::new(0, 30, 1)));
    }
}
