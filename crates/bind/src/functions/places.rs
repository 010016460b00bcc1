//! `round` and `trunc` of numerics to so many digits behind the point as a column says.
//!
//! DataFusion's functions have another type once the number of digits turns out to be a constant, long after
//! the binder has gone by the type that it knew. These keep the type of their argument, with a digit more
//! before the point, as rounding may need it.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, Decimal128Array};
use arrow::datatypes::{DataType, Decimal128Type, Int64Type};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{Function, Operand, failed, is_one, shaped, untyped_null};
use crate::types::DIGITS_MAX;

/// Of a decimal and a number of digits.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Places {
    rounds: bool,
    signature: Signature,
}

pub(crate) fn places(rounds: bool) -> Function {
    static FUNCTIONS: LazyLock<[Function; 2]> = LazyLock::new(|| {
        [false, true].map(|rounds| {
            let signature = Signature::any(2, Volatility::Immutable);
            Arc::new(ScalarUDF::from(Places { rounds, signature }))
        })
    });
    Arc::clone(&FUNCTIONS[usize::from(rounds)])
}

/// The type of the result.
pub(crate) fn places_type(precision: u8, scale: i8) -> DataType {
    DataType::Decimal128((precision + 1).min(DIGITS_MAX), scale)
}

impl ScalarUDFImpl for Places {
    fn name(&self) -> &str {
        if self.rounds { "round_places" } else { "trunc_places" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types[0] {
            DataType::Decimal128(precision, scale) => Ok(places_type(precision, scale)),
            DataType::Null => Ok(DataType::Null),
            ref other => exec_err!("{} of {other}", self.name()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(null) = untyped_null(&args) {
            return Ok(null);
        }
        let &DataType::Decimal128(precision, scale) = args.return_type() else {
            return exec_err!("{} of {}", self.name(), args.return_type());
        };
        let (mut left, mut right) = (None, None);
        let values = Operand::<Decimal128Type>::of(&args.args[0], &mut left)?;
        let digits = Operand::<Int64Type>::of(&args.args[1], &mut right)?;
        let one = is_one(&args.args);
        let rows = if one { 1 } else { args.number_rows };
        let most = 10_i128.pow(precision.into()) - 1;
        let each = (0..rows).map(|row| {
            let (Some(value), Some(digits)) = (values.value(row), digits.value(row)) else {
                return Ok(None);
            };
            let cut = at_places(value, i64::from(scale).saturating_sub(digits), self.rounds);
            match cut.filter(|cut| cut.abs() <= most) {
                Some(cut) => Ok(Some(cut)),
                None => failed("22003", "numeric field overflow"),
            }
        });
        let array: Decimal128Array = each.collect::<Result<Vec<_>>>()?.into();
        let array: ArrayRef = Arc::new(array.with_precision_and_scale(precision, scale)?);
        shaped(array, one)
    }
}

/// A whole number with so many zeros at its end, half of them away from zero.
fn at_places(value: i128, zeros: i64, rounds: bool) -> Option<i128> {
    let zeros = match u32::try_from(zeros) {
        Err(_) if zeros < 0 => return Some(value),
        Ok(zeros) if zeros <= u32::from(DIGITS_MAX) => zeros,
        _ => return Some(0),
    };
    let unit = 10_i128.pow(zeros);
    let cut = value - value % unit;
    match rounds && (value % unit).abs() >= unit - unit / 2 && unit > 1 {
        true => cut.checked_add(unit * value.signum()),
        false => Some(cut),
    }
}

#[cfg(test)]
mod tests {
    use super::at_places;

    #[test]
    fn half_goes_away_from_zero() {
        let check = |value, zeros, rounded, cut| {
            assert_eq!(at_places(value, zeros, true), Some(rounded), "round {value} {zeros}");
            assert_eq!(at_places(value, zeros, false), Some(cut), "trunc {value} {zeros}");
        };
        check(1555, 1, 1560, 1550);
        check(-1555, 1, -1560, -1550);
        check(1554, 1, 1550, 1550);
        check(1555, 0, 1555, 1555);
        check(1555, -3, 1555, 1555);
        check(1555, 4, 0, 0);
        check(5555, 4, 10_000, 0);
        check(1555, 39, 0, 0);
        check(0, 2, 0, 0);
    }
}
