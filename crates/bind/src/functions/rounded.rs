//! Casts that round as PostgreSQL rounds.

use std::sync::{Arc, LazyLock};

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Float32Array, Float64Array, Int64Array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Float32Type, Float64Type, Int64Type, TimeUnit};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{Function, failed, is_one, shaped, untyped_null};
use crate::decimal;

/// What is made of each value. With `is_try`, what cannot be made is NULL, and no error.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum To {
    /// The whole number that is nearest to a double, of two the even one, as the same type: what a cast to
    /// an integer begins with.
    Whole,
    /// A double as a decimal: the shortest text that reads back as the double, rounded to the digits that
    /// the decimal has.
    Decimal { precision: u8, scale: i8, is_try: bool },
    /// A double as a real; one that is beyond all reals, or so near to zero that it would become it, is an
    /// error.
    Real { is_try: bool },
    /// A timestamp at the nearest multiple of a unit, as the same type.
    Instant(TimeUnit),
    /// A timestamp or a time of day whose seconds have so many digits, as the same type.
    Digits(u32),
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Rounded {
    to: To,
    signature: Signature,
}

fn function(to: To) -> Function {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::from(Rounded { to, signature }))
}

pub(crate) fn whole() -> Function {
    static FUNCTION: LazyLock<Function> = LazyLock::new(|| function(To::Whole));
    Arc::clone(&FUNCTION)
}

pub(crate) fn decimal(precision: u8, scale: i8, is_try: bool) -> Function {
    function(To::Decimal { precision, scale, is_try })
}

pub(crate) fn real(is_try: bool) -> Function {
    function(To::Real { is_try })
}

pub(crate) fn instant(unit: TimeUnit) -> Function {
    function(To::Instant(unit))
}

pub(crate) fn digits(digits: u32) -> Function {
    function(To::Digits(digits))
}

impl ScalarUDFImpl for Rounded {
    fn name(&self) -> &str {
        match &self.to {
            To::Whole => "nearest_whole",
            To::Decimal { .. } => "nearest_decimal",
            To::Real { is_try: false } => "real",
            To::Real { is_try: true } => "try_real",
            To::Instant(TimeUnit::Second) => "nearest_second",
            To::Instant(TimeUnit::Millisecond) => "nearest_millisecond",
            To::Instant(TimeUnit::Microsecond) => "nearest_microsecond",
            To::Instant(TimeUnit::Nanosecond) => "nearest_nanosecond",
            To::Digits(_) => "nearest_digits",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let value = args[0].schema_name();
        Ok(match &self.to {
            To::Decimal { precision, scale, is_try } => {
                let cast = if *is_try { "try_cast" } else { "cast" };
                format!("{cast}({value} as numeric({precision},{scale}))")
            }
            To::Digits(digits) => format!("nearest_digits({value}, {digits})"),
            _ => format!("{}({value})", self.name()),
        })
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match &self.to {
            To::Whole | To::Instant(_) | To::Digits(_) => types[0].clone(),
            &To::Decimal { precision, scale, .. } => DataType::Decimal128(precision, scale),
            To::Real { .. } => DataType::Float32,
        })
    }

    fn is_strict(&self) -> bool {
        matches!(self.to, To::Whole | To::Instant(_) | To::Digits(_))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(null) = untyped_null(&args) {
            return Ok(null);
        }
        let one = is_one(&args.args);
        let array = args.args[0].to_array(if one { 1 } else { args.number_rows })?;
        let rounded = match &self.to {
            To::Whole => wholes(&array),
            &To::Decimal { precision, scale, is_try } => {
                nearest_decimals(&array, precision, scale, is_try)
            }
            &To::Real { is_try } => reals(&array, is_try),
            &To::Instant(unit) => nearest_instants(&array, unit),
            &To::Digits(digits) => with_digits(&array, digits),
        };
        shaped(rounded?, one)
    }
}

fn wholes(array: &ArrayRef) -> Result<ArrayRef> {
    Ok(if let Some(values) = array.as_primitive_opt::<Float64Type>() {
        Arc::new(values.unary::<_, Float64Type>(f64::round_ties_even) as Float64Array)
    } else if let Some(values) = array.as_primitive_opt::<Float32Type>() {
        Arc::new(values.unary::<_, Float32Type>(f32::round_ties_even) as Float32Array)
    } else {
        return exec_err!("the nearest whole number of {}", array.data_type());
    })
}

fn nearest_decimals(array: &ArrayRef, precision: u8, scale: i8, is_try: bool) -> Result<ArrayRef> {
    let texts: Vec<Option<String>> = match array.data_type() {
        DataType::Float64 => {
            array.as_primitive::<Float64Type>().iter().map(|v| v.map(|v| v.to_string())).collect()
        }
        DataType::Float32 => {
            array.as_primitive::<Float32Type>().iter().map(|v| v.map(|v| v.to_string())).collect()
        }
        other => return exec_err!("the nearest decimal of {other}"),
    };
    let mut values: Vec<Option<i128>> = Vec::with_capacity(texts.len());
    for text in texts {
        let Some(text) = text else {
            values.push(None);
            continue;
        };
        values.push(match decimal::read(&text, precision, scale).ok() {
            None if !is_try => {
                return failed(
                    "22003",
                    format!("{text} is out of range for type numeric({precision},{scale})"),
                );
            }
            value => value,
        });
    }
    let array: Decimal128Array =
        values.into_iter().collect::<arrow::array::PrimitiveArray<Decimal128Type>>();
    Ok(Arc::new(array.with_precision_and_scale(precision, scale)?))
}

fn reals(array: &ArrayRef, is_try: bool) -> Result<ArrayRef> {
    let Some(doubles) = array.as_primitive_opt::<Float64Type>() else {
        return exec_err!("the real of {}", array.data_type());
    };
    let lost = |double: f64| {
        let real = double as f32;
        real.is_infinite() && double.is_finite() || real == 0.0 && double != 0.0
    };
    let reals: Float32Array = match is_try {
        true => doubles.unary_opt(|double| (!lost(double)).then_some(double as f32)),
        false => {
            if let Some(double) = doubles.iter().flatten().find(|double| lost(*double)) {
                return failed("22003", format!("{double:e} is out of range for type real"));
            }
            doubles.unary(|double| double as f32)
        }
    };
    Ok(Arc::new(reals))
}

/// 2000-01-01, in seconds since 1970.
const YEAR_2000_S: i128 = 946_684_800;

/// The multiple of `step` that is nearest to `value`; `second` is how many of its units a second has. Half
/// goes away from the year 2000, from which PostgreSQL counts.
pub fn nearest_instant(value: i128, second: i128, step: i128) -> i128 {
    let zero = YEAR_2000_S * second;
    let value = value - zero;
    let half = if value < 0 { -step / 2 } else { step / 2 };
    (value + half) / step * step + zero
}

fn per_second(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

fn nearest_instants(array: &ArrayRef, to: TimeUnit) -> Result<ArrayRef> {
    nearest_fractions(array, per_second(to))
}

fn with_digits(array: &ArrayRef, digits: u32) -> Result<ArrayRef> {
    nearest_fractions(array, 10_i128.pow(digits))
}

/// Timestamps or times of day at the nearest of so many parts of a second.
fn nearest_fractions(array: &ArrayRef, parts: i128) -> Result<ArrayRef> {
    let (unit, is_time) = match array.data_type() {
        DataType::Timestamp(unit, _) => (*unit, false),
        DataType::Time32(unit) | DataType::Time64(unit) => (*unit, true),
        other => return exec_err!("the nearest instant of {other}"),
    };
    let second = per_second(unit);
    let step = (second / parts).max(1);
    let nearest = |count: i64| {
        let nearest = match is_time {
            true => (i128::from(count) + step / 2) / step * step,
            false => nearest_instant(count.into(), second, step),
        };
        // Beyond the last that there is, it stays.
        i64::try_from(nearest).unwrap_or(if nearest < 0 { i64::MIN } else { i64::MAX })
    };
    let counts = cast(array, &DataType::Int64)?;
    let nearest: Int64Array = counts.as_primitive::<Int64Type>().unary::<_, Int64Type>(nearest);
    Ok(cast(&nearest, array.data_type())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_an_instant_goes_away_from_the_year_2000() {
        let check = |ms: i128, expected: i128| {
            assert_eq!(nearest_instant(ms, 1000, 1000), expected * 1000, "{ms}");
        };
        check(YEAR_2000_S * 1000 + 500, YEAR_2000_S + 1);
        check(YEAR_2000_S * 1000 - 500, YEAR_2000_S - 1);
        check(-500, -1);
        check(-499, 0);
        check(1500, 1);
        check(1501, 2);
        let last = arrow::array::TimestampMicrosecondArray::from(vec![i64::MAX]);
        let nearest = nearest_instants(&(Arc::new(last) as ArrayRef), TimeUnit::Second).unwrap();
        let counts = cast(&nearest, &DataType::Int64).unwrap();
        assert_eq!(counts.as_primitive::<Int64Type>().value(0), i64::MAX);
    }
}
