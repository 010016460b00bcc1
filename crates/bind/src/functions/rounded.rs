//! Casts of doubles that round as PostgreSQL rounds.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float32Array, Float64Array};
use arrow::datatypes::{DataType, Decimal128Type, Float32Type, Float64Type};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{Function, failed, is_one, shaped, untyped_null};
use crate::types::DIGITS_MAX;

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
        let rounded: ArrayRef = if let Some(values) = array.as_primitive_opt::<Float64Type>() {
            Arc::new(values.unary::<_, Float64Type>(f64::round_ties_even) as Float64Array)
        } else if let Some(values) = array.as_primitive_opt::<Float32Type>() {
            Arc::new(values.unary::<_, Float32Type>(f32::round_ties_even) as Float32Array)
        } else {
            return exec_err!("the nearest whole number of {}", array.data_type());
        };
        shaped(rounded, one)
    }
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

pub(crate) fn decimal(precision: u8, scale: i8, is_try: bool) -> Function {
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
        let texts: Vec<Option<String>> = match array.data_type() {
            DataType::Float64 => array
                .as_primitive::<Float64Type>()
                .iter()
                .map(|v| v.map(|v| v.to_string()))
                .collect(),
            DataType::Float32 => array
                .as_primitive::<Float32Type>()
                .iter()
                .map(|v| v.map(|v| v.to_string()))
                .collect(),
            other => return exec_err!("the nearest decimal of {other}"),
        };
        let mut values: Vec<Option<i128>> = Vec::with_capacity(texts.len());
        for text in texts {
            let Some(text) = text else {
                values.push(None);
                continue;
            };
            values.push(match unscaled(&text, self.precision, self.scale) {
                None if !self.is_try => {
                    let Decimal { precision, scale, .. } = self;
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
        shaped(Arc::new(array.with_precision_and_scale(self.precision, self.scale)?), one)
    }
}

/// The digits of a number that is written without an exponent, as those of a decimal.
fn unscaled(text: &str, precision: u8, scale: i8) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let kept = usize::try_from(scale).ok()?.min(fraction.len());
    let written = format!("{whole}{}", &fraction[..kept]);
    let written = written.trim_start_matches('0');
    if written.len() > usize::from(DIGITS_MAX) {
        return None;
    }
    let mut value: i128 = if written.is_empty() { 0 } else { written.parse().ok()? };
    value = value.checked_mul(10i128.checked_pow((scale as usize - kept) as u32)?)?;
    if fraction.as_bytes().get(kept).is_some_and(|digit| *digit >= b'5') {
        value += 1;
    }
    (value < 10i128.checked_pow(u32::from(precision))?).then_some(if negative {
        -value
    } else {
        value
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_double_is_the_number_that_is_shown_for_it() {
        let check = |value: f64, precision, scale, expected: Option<i128>| {
            assert_eq!(unscaled(&value.to_string(), precision, scale), expected, "{value}");
        };
        check(1.005, 10, 2, Some(101));
        check(-1.005, 10, 2, Some(-101));
        check(0.1, 38, 10, Some(1_000_000_000));
        check(2.5, 5, 0, Some(3));
        check(99.995, 4, 2, None);
        check(1e20, 38, 10, Some(10i128.pow(30)));
        check(1e30, 38, 10, None);
        check(1e-300, 10, 2, Some(0));
        check(f64::NAN, 10, 2, None);
        check(f64::INFINITY, 10, 2, None);
    }
}
