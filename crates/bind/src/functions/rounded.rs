//! Casts of doubles that round as PostgreSQL rounds.

use std::sync::{Arc, LazyLock};

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Float32Array, Float64Array, Int64Array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Float32Type, Float64Type, Int64Type, TimeUnit};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{Function, failed, is_one, shaped, untyped_null};
use crate::decimal;

/// The whole number that is nearest to a double, of two the even one: what a cast to an integer begins
/// with.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Whole {
    signature: Signature,
}

pub(crate) fn whole() -> Function {
    static FUNCTION: LazyLock<Function> = LazyLock::new(|| {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(ScalarUDF::from(Whole { signature }))
    });
    Arc::clone(&FUNCTION)
}

impl ScalarUDFImpl for Whole {
    fn name(&self) -> &str {
        "nearest_whole"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(null) = untyped_null(&args) {
            return Ok(null);
        }
        let one = is_one(&args.args);
        let array = args.args[0].to_array(if one { 1 } else { args.number_rows })?;
        shaped(wholes(&array)?, one)
    }
}

pub(crate) fn wholes(array: &ArrayRef) -> Result<ArrayRef> {
    Ok(if let Some(values) = array.as_primitive_opt::<Float64Type>() {
        Arc::new(values.unary::<_, Float64Type>(f64::round_ties_even) as Float64Array)
    } else if let Some(values) = array.as_primitive_opt::<Float32Type>() {
        Arc::new(values.unary::<_, Float32Type>(f32::round_ties_even) as Float32Array)
    } else {
        return exec_err!("the nearest whole number of {}", array.data_type());
    })
}

/// A double as a decimal: the shortest text that reads back as the double, rounded to the digits that
/// the decimal has.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Decimal {
    precision: u8,
    scale: i8,
    /// NULL where there is no such decimal, and no error.
    is_try: bool,
    signature: Signature,
}

pub(crate) fn nearest_decimal(precision: u8, scale: i8, is_try: bool) -> Function {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::from(Decimal { precision, scale, is_try, signature }))
}

impl ScalarUDFImpl for Decimal {
    fn name(&self) -> &str {
        "nearest_decimal"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn schema_name(&self, args: &[datafusion::logical_expr::Expr]) -> Result<String> {
        let Decimal { precision, scale, is_try, .. } = self;
        let cast = if *is_try { "try_cast" } else { "cast" };
        Ok(format!("{cast}({} as numeric({precision},{scale}))", args[0].schema_name()))
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Decimal128(self.precision, self.scale))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(null) = untyped_null(&args) {
            return Ok(null);
        }
        let one = is_one(&args.args);
        let array = args.args[0].to_array(if one { 1 } else { args.number_rows })?;
        shaped(nearest_decimals(&array, self.precision, self.scale, self.is_try)?, one)
    }
}

pub(crate) fn nearest_decimals(
    array: &ArrayRef,
    precision: u8,
    scale: i8,
    is_try: bool,
) -> Result<ArrayRef> {
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

/// A double as a real; one that is beyond all reals, or so near to zero that it would become it, is an
/// error.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Real {
    /// NULL instead of the error.
    is_try: bool,
    signature: Signature,
}

pub(crate) fn real(is_try: bool) -> Function {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::from(Real { is_try, signature }))
}

impl ScalarUDFImpl for Real {
    fn name(&self) -> &str {
        if self.is_try { "try_real" } else { "real" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float32)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(null) = untyped_null(&args) {
            return Ok(null);
        }
        let one = is_one(&args.args);
        let array = args.args[0].to_array(if one { 1 } else { args.number_rows })?;
        shaped(reals(&array, self.is_try)?, one)
    }
}

pub(crate) fn reals(array: &ArrayRef, is_try: bool) -> Result<ArrayRef> {
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

/// A timestamp at the nearest multiple of a unit, as the same type. Half goes away from the year 2000, from
/// which PostgreSQL counts.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Instant {
    unit: TimeUnit,
    signature: Signature,
}

pub(crate) fn instant(unit: TimeUnit) -> Function {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::from(Instant { unit, signature }))
}

/// 2000-01-01, in seconds since 1970.
const YEAR_2000_S: i64 = 946_684_800;

/// The multiple of `step` that is nearest to `value`; `second` is how many of its units a second has.
pub fn nearest_instant(value: i64, second: i64, step: i64) -> i64 {
    let zero = i128::from(YEAR_2000_S) * i128::from(second);
    let (value, step) = (i128::from(value) - zero, i128::from(step));
    let half = if value < 0 { -step / 2 } else { step / 2 };
    let nearest = (value + half) / step * step + zero;
    // Beyond the last that there is, it stays.
    i64::try_from(nearest).unwrap_or(if nearest < 0 { i64::MIN } else { i64::MAX })
}

/// How many there are in a second.
pub fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

impl ScalarUDFImpl for Instant {
    fn name(&self) -> &str {
        match self.unit {
            TimeUnit::Second => "nearest_second",
            TimeUnit::Millisecond => "nearest_millisecond",
            TimeUnit::Microsecond => "nearest_microsecond",
            TimeUnit::Nanosecond => "nearest_nanosecond",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(null) = untyped_null(&args) {
            return Ok(null);
        }
        let one = is_one(&args.args);
        let array = args.args[0].to_array(if one { 1 } else { args.number_rows })?;
        shaped(nearest_instants(&array, self.unit)?, one)
    }
}

pub(crate) fn nearest_instants(array: &ArrayRef, to: TimeUnit) -> Result<ArrayRef> {
    let DataType::Timestamp(unit, _) = array.data_type() else {
        return exec_err!("the nearest instant of {}", array.data_type());
    };
    let second = per_second(*unit);
    let step = (second / per_second(to)).max(1);
    let counts = cast(array, &DataType::Int64)?;
    let counts = counts.as_primitive::<Int64Type>();
    let nearest: Int64Array =
        counts.unary::<_, Int64Type>(|count| nearest_instant(count, second, step));
    Ok(cast(&nearest, array.data_type())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_an_instant_goes_away_from_the_year_2000() {
        let check = |ms: i64, expected: i64| {
            assert_eq!(nearest_instant(ms, 1000, 1000), expected * 1000, "{ms}");
        };
        check(YEAR_2000_S * 1000 + 500, YEAR_2000_S + 1);
        check(YEAR_2000_S * 1000 - 500, YEAR_2000_S - 1);
        check(-500, -1);
        check(-499, 0);
        check(1500, 1);
        check(1501, 2);
        assert_eq!(nearest_instant(i64::MAX, 1_000_000, 1_000_000), i64::MAX);
    }
}
