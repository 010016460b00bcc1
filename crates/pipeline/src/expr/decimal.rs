//! Arithmetic on decimals that fit 64 bits.
//!
//! A product of two `DECIMAL(15, 2)` is a `DECIMAL(31, 4)` to the planner, although hardly any such
//! product needs more than 64 bits. Here the largest magnitudes of a batch prove that none does,
//! which costs a pass over the inputs and saves arithmetic on 128 bits.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal64Array};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Decimal64Type, Decimal128Type};

use thalweg_base::{Error, Result};

use super::{Arithmetic, Value};
use crate::encoding::{NARROW_DIGITS, internal, words};

/// One side of an operation.
struct Side<'a> {
    values: &'a [i64],
    nulls: Option<&'a NullBuffer>,
    scale: i8,
    /// No value is larger in magnitude.
    most: u64,
    scalar: bool,
}

/// The result as `Decimal64`, if the inputs are narrow and no intermediate value leaves 64 bits.
pub fn narrow(
    arithmetic: Arithmetic,
    left: &Value,
    right: &Value,
    result: &DataType,
) -> Option<ArrayRef> {
    let DataType::Decimal128(_, scale) = *result else { return None };
    if !(0..=NARROW_DIGITS as i8).contains(&scale) {
        return None;
    }
    let (one_left, one_right);
    let left = match left {
        Value::Array(array) => side(array)?,
        Value::Scalar(one) => {
            one_left = scalar(one)?;
            Side::of_scalar(&one_left)
        }
    };
    let right = match right {
        Value::Array(array) => side(array)?,
        Value::Scalar(one) => {
            one_right = scalar(one)?;
            Side::of_scalar(&one_right)
        }
    };
    if left.scalar && right.scalar {
        return None;
    }
    let values: Vec<i64> = match arithmetic {
        Arithmetic::Multiply => {
            if left.scale + right.scale != scale || !fits(left.most, right.most) {
                return None;
            }
            both(&left, &right, |a, b| a.wrapping_mul(b))
        }
        Arithmetic::Add | Arithmetic::Subtract => {
            let (a, b) = (factor(scale - left.scale)?, factor(scale - right.scale)?);
            let most = |side: &Side, factor: i64| {
                u128::from(side.most).saturating_mul(u128::from(factor.unsigned_abs()))
            };
            if most(&left, a).saturating_add(most(&right, b)) > i64::MAX as u128 {
                return None;
            }
            let add = matches!(arithmetic, Arithmetic::Add);
            match (a, b, add) {
                (1, 1, true) => both(&left, &right, |x, y| x.wrapping_add(y)),
                (1, 1, false) => both(&left, &right, |x, y| x.wrapping_sub(y)),
                (_, _, true) => {
                    both(&left, &right, |x, y| x.wrapping_mul(a).wrapping_add(y.wrapping_mul(b)))
                }
                (_, _, false) => {
                    both(&left, &right, |x, y| x.wrapping_mul(a).wrapping_sub(y.wrapping_mul(b)))
                }
            }
        }
    };
    let nulls = NullBuffer::union(left.nulls, right.nulls);
    Some(Arc::new(decimals(values, nulls, scale)?))
}

/// A decimal literal in the type of an encoded column, if it can be told in that scale exactly.
pub fn at_scale_of(array: &ArrayRef, one: &ArrayRef) -> Option<ArrayRef> {
    let DataType::Decimal64(_, scale) = *array.data_type() else { return None };
    let (value, of) = scalar(one)?;
    let value = value.checked_mul(factor(scale.checked_sub(of)?)?)?;
    Some(Arc::new(decimals(vec![value], None, scale)?))
}

/// Integers or decimals as decimals of the type `result`, which has as many digits behind its point.
pub fn widened(value: Value, result: &DataType) -> Result<Value> {
    let DataType::Decimal128(precision, scale) = *result else {
        return Err(Error::internal(format!("numbers as {result}")));
    };
    let array = match &value {
        Value::Array(array) | Value::Scalar(array) => array,
    };
    let wide: ArrayRef = match array.data_type() {
        DataType::Decimal64(..) => Arc::clone(array),
        DataType::Decimal128(..) => {
            let wide = array.as_primitive::<Decimal128Type>().clone();
            Arc::new(wide.with_precision_and_scale(precision, scale).map_err(internal)?)
        }
        other => {
            let words = words(array.as_ref());
            let words = words.ok_or_else(|| Error::internal(format!("{other} as {result}")))?;
            let values = ScalarBuffer::from(words.into_owned());
            let narrow = Decimal64Array::new(values, array.nulls().cloned());
            let narrow = narrow.with_precision_and_scale(NARROW_DIGITS, scale);
            Arc::new(narrow.map_err(internal)?)
        }
    };
    Ok(match value {
        Value::Array(_) => Value::Array(wide),
        Value::Scalar(_) => Value::Scalar(wide),
    })
}

fn decimals(values: Vec<i64>, nulls: Option<NullBuffer>, scale: i8) -> Option<Decimal64Array> {
    let array = Decimal64Array::new(ScalarBuffer::from(values), nulls);
    array.with_precision_and_scale(NARROW_DIGITS, scale).ok()
}

fn factor(digits: i8) -> Option<i64> {
    10i64.checked_pow(u32::try_from(digits).ok()?)
}

fn fits(a: u64, b: u64) -> bool {
    u128::from(a) * u128::from(b) <= i64::MAX as u128
}

fn side(array: &ArrayRef) -> Option<Side<'_>> {
    let DataType::Decimal64(_, scale) = *array.data_type() else { return None };
    let array = array.as_primitive::<Decimal64Type>();
    let values = array.values().as_ref();
    Some(Side { values, nulls: array.nulls(), scale, most: most(values), scalar: false })
}

/// The value and the scale of a decimal literal.
fn scalar(one: &ArrayRef) -> Option<(i64, i8)> {
    if one.is_null(0) {
        return None;
    }
    match *one.data_type() {
        DataType::Decimal128(_, scale) => {
            let value = one.as_primitive::<Decimal128Type>().value(0);
            Some((i64::try_from(value).ok()?, scale))
        }
        DataType::Decimal64(_, scale) => {
            Some((one.as_primitive::<Decimal64Type>().value(0), scale))
        }
        _ => None,
    }
}

impl Side<'_> {
    fn of_scalar((value, scale): &(i64, i8)) -> Side<'_> {
        let values = std::slice::from_ref(value);
        Side { values, nulls: None, scale: *scale, most: value.unsigned_abs(), scalar: true }
    }
}

fn most(values: &[i64]) -> u64 {
    // All bits that any of them has: a cheap bound, unless there are negative ones.
    let all = values.iter().fold(0, |all, &v| all | v);
    if all >= 0 {
        return u64::MAX.checked_shr(all.leading_zeros()).unwrap_or(0);
    }
    let (mut low, mut high) = (0, 0);
    for &value in values {
        low = value.min(low);
        high = value.max(high);
    }
    low.unsigned_abs().max(high.unsigned_abs())
}

/// What stands in the place of a NULL goes through as well: `f` must wrap.
fn both(left: &Side, right: &Side, f: impl Fn(i64, i64) -> i64) -> Vec<i64> {
    match (left.scalar, right.scalar) {
        (true, _) => {
            let a = left.values[0];
            right.values.iter().map(|&b| f(a, b)).collect()
        }
        (_, true) => {
            let b = right.values[0];
            left.values.iter().map(|&a| f(a, b)).collect()
        }
        _ => left.values.iter().zip(right.values).map(|(&a, &b)| f(a, b)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Decimal128Array;

    use super::*;

    fn narrow_array(values: &[i64], scale: i8) -> ArrayRef {
        Arc::new(decimals(values.to_vec(), None, scale).unwrap())
    }

    fn literal(value: i128, scale: i8) -> ArrayRef {
        let one = Decimal128Array::from(vec![value]);
        Arc::new(one.with_precision_and_scale(38, scale).unwrap())
    }

    #[test]
    fn one_minus_discount_times_price() {
        let discount = Value::Array(narrow_array(&[4, 10, -3], 2));
        let one = Value::Scalar(literal(1, 0));
        let left =
            narrow(Arithmetic::Subtract, &one, &discount, &DataType::Decimal128(23, 2)).unwrap();
        assert_eq!(left.as_primitive::<Decimal64Type>().values().as_ref(), [96, 90, 103]);
        let price = Value::Array(narrow_array(&[100, -5, 7], 2));
        let (left, result) = (Value::Array(left), DataType::Decimal128(38, 4));
        let product = narrow(Arithmetic::Multiply, &price, &left, &result).unwrap();
        assert_eq!(product.as_primitive::<Decimal64Type>().values().as_ref(), [9600, -450, 721]);
    }

    #[test]
    fn what_may_leave_64_bits_is_left_to_128() {
        let large = Value::Array(narrow_array(&[i64::MAX / 2 + 1, 1], 2));
        let two = Value::Scalar(literal(2, 0));
        let result = DataType::Decimal128(38, 2);
        assert!(narrow(Arithmetic::Multiply, &large, &two, &result).is_none());
        assert!(narrow(Arithmetic::Add, &large, &large, &result).is_none());
        let least = Value::Array(narrow_array(&[i64::MIN], 2));
        assert!(narrow(Arithmetic::Subtract, &least, &two, &result).is_none());
    }

    #[test]
    fn integers_are_decimals_as_they_are() {
        let check = |array: ArrayRef, result: DataType| {
            let Ok(Value::Array(wide)) = widened(Value::Array(array), &result) else {
                panic!("numbers as {result}")
            };
            crate::encoding::expand(&wide, &result).unwrap()
        };
        let bigints: ArrayRef =
            Arc::new(arrow::array::Int64Array::from(vec![Some(i64::MIN), None]));
        let wide = check(bigints, DataType::Decimal128(19, 0));
        let wide = wide.as_primitive::<Decimal128Type>();
        assert!(wide.value(0) == i128::from(i64::MIN) && wide.is_null(1));
        let ints: ArrayRef = Arc::new(arrow::array::Int32Array::from(vec![-7]));
        let wide = check(ints, DataType::Decimal128(12, 0));
        assert_eq!(wide.as_primitive::<Decimal128Type>().value(0), -7);
        let wide = check(narrow_array(&[12_345], 2), DataType::Decimal128(20, 2));
        assert_eq!(wide.as_primitive::<Decimal128Type>().value(0), 12_345);
    }

    #[test]
    fn a_literal_takes_the_scale_of_the_column_only_if_it_is_exact() {
        let column = narrow_array(&[100], 2);
        let same = at_scale_of(&column, &literal(5, 1)).unwrap();
        assert_eq!(same.as_primitive::<Decimal64Type>().value(0), 50);
        assert!(at_scale_of(&column, &literal(5, 3)).is_none());
        assert!(at_scale_of(&column, &literal(i128::from(i64::MAX), 2)).is_some());
        assert!(at_scale_of(&column, &literal(i128::from(i64::MAX), 1)).is_none());
    }
}
