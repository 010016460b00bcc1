//! Division of decimals.

use std::sync::{Arc, LazyLock};

use arrow::array::{Decimal128Array, PrimitiveArray};
use arrow::datatypes::{DataType, Decimal128Type, i256};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::checked::out_of_range;
use super::{Function, Operand, by_zero, infix, is_one, shaped, untyped_null};
use crate::types::DIGITS_MAX;

/// `a / b` of two decimals, with as many digits behind the point as the one that has more, and no fewer
/// than sixteen; the last one is rounded.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Quotient {
    signature: Signature,
}

pub(crate) fn quotient() -> Function {
    static FUNCTION: LazyLock<Function> = LazyLock::new(|| {
        let signature = Signature::any(2, Volatility::Immutable);
        Arc::new(ScalarUDF::from(Quotient { signature }))
    });
    Arc::clone(&FUNCTION)
}

/// Digits behind the point of a quotient, at least.
const SCALE_MIN: i8 = 16;

/// The type of a quotient.
pub(crate) fn quotient_type(left: &DataType, right: &DataType) -> Option<DataType> {
    let (DataType::Decimal128(p1, s1), DataType::Decimal128(_, s2)) = (left, right) else {
        return None;
    };
    let scale = SCALE_MIN.max(*s1).max(*s2);
    // Before the point, when what divides is as small as it can be.
    let whole = i16::from(*p1) - i16::from(*s1) + i16::from(*s2);
    let precision = (whole + i16::from(scale)).clamp(1, i16::from(DIGITS_MAX));
    Some(DataType::Decimal128(precision as u8, scale))
}

impl ScalarUDFImpl for Quotient {
    fn name(&self) -> &str {
        "quotient"
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        Ok(infix(Operator::Divide, args))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match quotient_type(&types[0], &types[1]) {
            Some(data_type) => Ok(data_type),
            None if types.contains(&DataType::Null) => Ok(DataType::Null),
            None => exec_err!("a quotient of {} and {}", types[0], types[1]),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(null) = untyped_null(&args) {
            return Ok(null);
        }
        let (DataType::Decimal128(_, s1), DataType::Decimal128(_, s2)) =
            (args.args[0].data_type(), args.args[1].data_type())
        else {
            return exec_err!("a quotient of other values than decimals");
        };
        let DataType::Decimal128(precision, scale) = *args.return_type() else {
            return exec_err!("a quotient that is no decimal");
        };
        let (mut left, mut right) = (None, None);
        let left = Operand::<Decimal128Type>::of(&args.args[0], &mut left)?;
        let right = Operand::<Decimal128Type>::of(&args.args[1], &mut right)?;
        let one = is_one(&args.args);
        let rows = if one { 1 } else { args.number_rows };
        // The quotient of the numbers without their points has s1 - s2 digits behind its own.
        let digits = u32::from((scale + s2 - s1).unsigned_abs());
        let factor = i256::from_i128(10).wrapping_pow(digits);
        let most = 10i128.pow(u32::from(precision)) - 1;
        let mut values: Vec<Option<i128>> = Vec::with_capacity(rows);
        for row in 0..rows {
            let (Some(a), Some(b)) = (left.value(row), right.value(row)) else {
                values.push(None);
                continue;
            };
            if b == 0 {
                return by_zero();
            }
            match divided(a, b, factor).filter(|q| (-most..=most).contains(q)) {
                Some(quotient) => values.push(Some(quotient)),
                None => return out_of_range(args.return_type()),
            }
        }
        let array: Decimal128Array = values.into_iter().collect::<PrimitiveArray<Decimal128Type>>();
        shaped(Arc::new(array.with_precision_and_scale(precision, scale)?), one)
    }
}

/// `a * factor / b`, rounded half away from zero; `None` if 128 bits do not hold it.
fn divided(a: i128, b: i128, factor: i256) -> Option<i128> {
    if let Some(small) = factor.to_i128()
        && let Some(numerator) = a.checked_mul(small)
        && b.unsigned_abs() < 1 << 126
    {
        let (quotient, rest) = (numerator.checked_div(b)?, numerator.checked_rem(b)?);
        let up = rest.unsigned_abs() * 2 >= b.unsigned_abs();
        let away = if (numerator < 0) == (b < 0) { 1 } else { -1 };
        return quotient.checked_add(if up { away } else { 0 });
    }
    let numerator = i256::from_i128(a).checked_mul(factor)?;
    let divisor = i256::from_i128(b);
    let (quotient, rest) = (numerator.checked_div(divisor)?, numerator.checked_rem(divisor)?);
    let twice = rest.wrapping_abs().checked_mul(i256::from_i128(2))?;
    let away = if (a < 0) == (b < 0) { i256::ONE } else { i256::MINUS_ONE };
    let rounded = match twice >= divisor.wrapping_abs() {
        true => quotient.checked_add(away)?,
        false => quotient,
    };
    rounded.to_i128()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_digit_is_rounded_away_from_zero() {
        let check = |a: i128, b: i128, digits: u32, expected: Option<i128>| {
            let factor = i256::from_i128(10).wrapping_pow(digits);
            assert_eq!(divided(a, b, factor), expected, "{a} / {b}");
        };
        check(1, 3, 4, Some(3333));
        check(2, 3, 4, Some(6667));
        check(-2, 3, 4, Some(-6667));
        check(2, -3, 4, Some(-6667));
        check(1, 2, 0, Some(1));
        check(-1, 2, 0, Some(-1));
        check(1, -2, 0, Some(-1));
        check(1, 4, 1, Some(3));
        check(10i128.pow(37), 3, 1, Some(33_333_333_333_333_333_333_333_333_333_333_333_333));
        check(
            10i128.pow(37),
            3 * 10i128.pow(20),
            20,
            Some(3_333_333_333_333_333_333_333_333_333_333_333_333),
        );
        check(10i128.pow(37), 1, 20, None);
    }

    #[test]
    fn digits_behind_the_point_are_at_least_sixteen() {
        let decimal = DataType::Decimal128;
        let check =
            |left, right, expected| assert_eq!(quotient_type(&left, &right), Some(expected));
        check(decimal(1, 0), decimal(1, 0), decimal(17, 16));
        check(decimal(15, 2), decimal(4, 2), decimal(31, 16));
        check(decimal(38, 20), decimal(4, 2), decimal(38, 20));
        check(decimal(38, 0), decimal(38, 0), decimal(38, 16));
    }
}
