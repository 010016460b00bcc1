//! Arithmetic on integers and floats, and of decimals what is no sum or product.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Decimal128Array, PrimitiveArray, new_null_array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Date32Type, Decimal64Type, Decimal128Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, i256,
};
use thalweg_base::{Error, Result};
use thalweg_ir::Op;

use super::Value;
use super::kernel::{Operand, each_pair};
use crate::encoding::{expand, internal};

/// Digits of the largest decimals.
pub const DIGITS_MAX: u32 = 38;

/// What a user calls a type of numbers.
pub fn name(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Int8 => "tinyint",
        DataType::Int16 => "smallint",
        DataType::Int32 => "integer",
        DataType::Int64 => "bigint",
        DataType::Float32 => "real",
        DataType::Float64 => "double precision",
        _ => "numeric",
    }
}

pub fn out_of_range(data_type: &DataType) -> Error {
    Error::user(format!("{} out of range", name(data_type))).code("22003")
}

fn by_zero() -> Error {
    Error::user("division by zero").code("22012")
}

fn not_of(op: &Op, data_type: &DataType) -> Error {
    Error::internal(format!("{op} of {data_type}"))
}

/// `+`, `-`, `*`, `/` and `%` of integers or floats.
pub fn calculated(op: &Op, left: &Value, right: &Value, rows: usize) -> Result<ArrayRef> {
    let (Value::Array(array) | Value::Scalar(array)) = left;
    match array.data_type() {
        DataType::Int8 => integers::<Int8Type>(op, left, right, rows),
        DataType::Int16 => integers::<Int16Type>(op, left, right, rows),
        DataType::Int32 => integers::<Int32Type>(op, left, right, rows),
        DataType::Int64 => integers::<Int64Type>(op, left, right, rows),
        DataType::Float32 => floats::<Float32Type>(op, left, right, rows),
        DataType::Float64 => floats::<Float64Type>(op, left, right, rows),
        other => Err(not_of(op, other)),
    }
}

/// An integer, with operations that wrap and say by a number below zero that they have.
trait Integer: Copy + std::ops::BitOrAssign + Default + std::fmt::Debug + PartialOrd {
    fn sum(self, other: Self) -> (Self, Self);
    fn difference(self, other: Self) -> (Self, Self);
    fn product(self, other: Self) -> (Self, Self);
    /// Zero by zero.
    fn quotient(self, other: Self) -> (Self, Self);
    fn rest(self, other: Self) -> (Self, Self);
    fn magnitude(self) -> (Self, Self);
}

macro_rules! integer {
    ($($type:ty),*) => {
        $(impl Integer for $type {
            fn sum(self, other: Self) -> (Self, Self) {
                // The sign of the sum is neither that of the one nor that of the other. Written so,
                // it is computed for several values at once.
                let sum = self.wrapping_add(other);
                (sum, (self ^ sum) & (other ^ sum))
            }

            fn difference(self, other: Self) -> (Self, Self) {
                let difference = self.wrapping_sub(other);
                (difference, (self ^ other) & (self ^ difference))
            }

            fn product(self, other: Self) -> (Self, Self) {
                let (product, wraps) = self.overflowing_mul(other);
                (product, -(wraps as $type))
            }

            fn quotient(self, other: Self) -> (Self, Self) {
                match self.checked_div(other) {
                    Some(quotient) => (quotient, 0),
                    None => (0, -1),
                }
            }

            fn rest(self, other: Self) -> (Self, Self) {
                match other {
                    0 => (0, -1),
                    // Also of the least integer, whose quotient wraps.
                    other => (self.wrapping_rem(other), 0),
                }
            }

            fn magnitude(self) -> (Self, Self) {
                let magnitude = self.wrapping_abs();
                (magnitude, magnitude)
            }
        })*
    };
}

integer!(i8, i16, i32, i64);

fn integers<T: ArrowPrimitiveType>(
    op: &Op,
    left: &Value,
    right: &Value,
    rows: usize,
) -> Result<ArrayRef>
where
    T::Native: Integer,
{
    let (left, right) = (Operand::<T>::of(left)?, Operand::<T>::of(right)?);
    match op {
        Op::Add => of_integers(op, &left, &right, rows, T::Native::sum),
        Op::Subtract => of_integers(op, &left, &right, rows, T::Native::difference),
        Op::Multiply => of_integers(op, &left, &right, rows, T::Native::product),
        Op::Divide => of_integers(op, &left, &right, rows, T::Native::quotient),
        Op::Modulo => of_integers(op, &left, &right, rows, T::Native::rest),
        _ => Err(not_of(op, &T::DATA_TYPE)),
    }
}

fn of_integers<T: ArrowPrimitiveType>(
    op: &Op,
    left: &Operand<T>,
    right: &Operand<T>,
    rows: usize,
    f: impl Fn(T::Native, T::Native) -> (T::Native, T::Native),
) -> Result<ArrayRef>
where
    T::Native: Integer,
{
    let zero = T::Native::default();
    let mut failed = zero;
    let values = each_pair(left, right, |a, b| {
        let (value, fails) = f(a, b);
        failed |= fails;
        value
    });
    let Some(values) = values else { return Ok(new_null_array(&T::DATA_TYPE, rows)) };
    if failed < zero {
        // What stands in the place of a NULL may fail.
        for row in 0..rows {
            let (Some(a), Some(b)) = (left.value(row), right.value(row)) else { continue };
            if f(a, b).1 < zero {
                return Err(match op {
                    Op::Divide | Op::Modulo if b == zero => by_zero(),
                    Op::Divide => {
                        Error::user(format!("Overflow happened on: {a:?} / {b:?}")).code("22003")
                    }
                    _ => out_of_range(&T::DATA_TYPE),
                });
            }
        }
    }
    let nulls = NullBuffer::union(left.nulls(), right.nulls());
    Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), nulls)))
}

/// A number with a fraction.
trait Float: Copy {
    fn apply(op: &Op, left: Self, right: Self) -> Self;
    fn is_zero(self) -> bool;
    fn is_nan(self) -> bool;
    fn is_infinite(self) -> bool;
}

macro_rules! float {
    ($($type:ty),*) => {
        $(impl Float for $type {
            #[inline(always)]
            fn apply(op: &Op, left: Self, right: Self) -> Self {
                match op {
                    Op::Add => left + right,
                    Op::Subtract => left - right,
                    Op::Multiply => left * right,
                    Op::Divide => left / right,
                    _ => left % right,
                }
            }

            fn is_zero(self) -> bool {
                self == 0.0
            }

            fn is_nan(self) -> bool {
                self.is_nan()
            }

            fn is_infinite(self) -> bool {
                self.is_infinite()
            }
        })*
    };
}

float!(f32, f64);

fn floats<T: ArrowPrimitiveType>(
    op: &Op,
    left: &Value,
    right: &Value,
    rows: usize,
) -> Result<ArrayRef>
where
    T::Native: Float,
{
    // Each with its operator known, so that the loop has none to ask for.
    match op {
        Op::Add => of_floats::<T>(&Op::Add, left, right, rows),
        Op::Subtract => of_floats::<T>(&Op::Subtract, left, right, rows),
        Op::Multiply => of_floats::<T>(&Op::Multiply, left, right, rows),
        Op::Divide => of_floats::<T>(&Op::Divide, left, right, rows),
        Op::Modulo => of_floats::<T>(&Op::Modulo, left, right, rows),
        _ => Err(not_of(op, &T::DATA_TYPE)),
    }
}

#[inline(always)]
fn of_floats<T: ArrowPrimitiveType>(
    op: &Op,
    left: &Value,
    right: &Value,
    rows: usize,
) -> Result<ArrayRef>
where
    T::Native: Float,
{
    let (left, right) = (Operand::<T>::of(left)?, Operand::<T>::of(right)?);
    let divides = matches!(op, Op::Divide | Op::Modulo);
    // Whether the result may be zero where the operands are not.
    let vanishes = matches!(op, Op::Multiply | Op::Divide);
    let values = each_pair(&left, &right, |a, b| T::Native::apply(op, a, b));
    let Some(values) = values else { return Ok(new_null_array(&T::DATA_TYPE, rows)) };
    // Without branches, and without a look at the operands, so that several are tested at once.
    let is_odd = |value: T::Native| value.is_infinite() | (vanishes & value.is_zero());
    let by_zero = divides && {
        let is_zero = |any: bool, divisor: &T::Native| any | divisor.is_zero();
        match &right {
            Operand::Each(divisors) => divisors.values().iter().fold(false, is_zero),
            Operand::One(divisor) => divisor.is_some_and(Float::is_zero),
        }
    };
    if by_zero || values.iter().fold(false, |any, value| any | is_odd(*value)) {
        for (row, value) in values.iter().enumerate() {
            if (by_zero || is_odd(*value))
                && let (Some(a), Some(b)) = (left.value(row), right.value(row))
            {
                check(op, a, b, *value)?;
            }
        }
    }
    let nulls = NullBuffer::union(left.nulls(), right.nulls());
    Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), nulls)))
}

/// Of finite numbers comes a finite one, and zero only where it is exact.
fn check<F: Float>(op: &Op, a: F, b: F, value: F) -> Result<()> {
    if matches!(op, Op::Divide | Op::Modulo) && b.is_zero() && !a.is_nan() {
        return Err(by_zero());
    }
    if value.is_infinite() && !a.is_infinite() && !b.is_infinite() {
        return Err(Error::user("value out of range: overflow").code("22003"));
    }
    let is_exact = match op {
        Op::Multiply => a.is_zero() || b.is_zero(),
        Op::Divide => a.is_zero() || b.is_infinite(),
        _ => true,
    };
    match value.is_zero() && !is_exact {
        true => Err(Error::user("value out of range: underflow").code("22003")),
        false => Ok(()),
    }
}

/// `a / b` of decimals, which may be narrow.
pub fn quotient(
    left: &Value,
    right: &Value,
    rows: usize,
    precision: u8,
    scale: i8,
) -> Result<ArrayRef> {
    let (left, right) = (Decimals::of(left)?, Decimals::of(right)?);
    let missing = || Error::internal("a quotient of decimals that have more digits than it");
    // The quotient of the numbers without their points has as many digits behind its own as the
    // dividend has more than the divisor.
    let digits = i32::from(scale) + i32::from(right.scale) - i32::from(left.scale);
    let digits = u32::try_from(digits).map_err(|_| missing())?;
    let factor = i256::from_i128(10).wrapping_pow(digits);
    let most = 10_u128.pow(u32::from(precision));
    let mut values: Vec<i128> = Vec::with_capacity(rows);
    let nulls = NullBuffer::union(left.nulls, right.nulls);
    if left.is_null || right.is_null {
        return Ok(new_null_array(&DataType::Decimal128(precision, scale), rows));
    }
    for row in 0..rows {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            values.push(0);
            continue;
        }
        let (a, b) = (left.value(row), right.value(row));
        if b == 0 {
            return Err(by_zero());
        }
        match divided(a, b, factor).filter(|quotient| quotient.unsigned_abs() < most) {
            Some(quotient) => values.push(quotient),
            None => return Err(out_of_range(&DataType::Decimal128(precision, scale))),
        }
    }
    let quotients = Decimal128Array::new(values.into(), nulls);
    Ok(Arc::new(quotients.with_precision_and_scale(precision, scale).map_err(internal)?))
}

/// `a * factor / b`, rounded half away from zero; `None`: 128 bits do not hold it.
fn divided(a: i128, b: i128, factor: i256) -> Option<i128> {
    let numerator = factor.to_i128().and_then(|factor| a.checked_mul(factor));
    if let Some(numerator) = numerator
        && b.unsigned_abs() <= i128::MAX as u128 / 2
    {
        let (quotient, rest) = (numerator.checked_div(b)?, numerator.checked_rem(b)?);
        let is_half = rest.unsigned_abs() * 2 >= b.unsigned_abs();
        let away = if (numerator < 0) == (b < 0) { 1 } else { -1 };
        return if is_half { quotient.checked_add(away) } else { Some(quotient) };
    }
    let numerator = i256::from_i128(a).checked_mul(factor)?;
    let divisor = i256::from_i128(b);
    let (quotient, rest) = (numerator.checked_div(divisor)?, numerator.checked_rem(divisor)?);
    let is_half = rest.wrapping_abs().checked_mul(i256::from_i128(2))? >= divisor.wrapping_abs();
    let away = if (a < 0) == (b < 0) { i256::ONE } else { i256::MINUS_ONE };
    let rounded = if is_half { quotient.checked_add(away)? } else { quotient };
    rounded.to_i128()
}

/// Decimals in either form.
struct Decimals<'a> {
    numbers: Numbers<'a>,
    nulls: Option<&'a NullBuffer>,
    scale: i8,
    /// All rows have the first number.
    is_one: bool,
    /// Which is NULL.
    is_null: bool,
}

enum Numbers<'a> {
    Narrow(&'a [i64]),
    Wide(&'a [i128]),
}

impl<'a> Decimals<'a> {
    fn of(value: &'a Value) -> Result<Self> {
        let (array, is_one) = match value {
            Value::Array(array) => (array, false),
            Value::Scalar(one) => (one, true),
        };
        let (numbers, scale) = match *array.data_type() {
            DataType::Decimal64(_, scale) => {
                (Numbers::Narrow(array.as_primitive::<Decimal64Type>().values()), scale)
            }
            DataType::Decimal128(_, scale) => {
                (Numbers::Wide(array.as_primitive::<Decimal128Type>().values()), scale)
            }
            ref other => return Err(Error::internal(format!("a decimal came as {other}"))),
        };
        let is_null = is_one && array.is_null(0);
        let nulls = if is_one { None } else { array.nulls() };
        Ok(Decimals { numbers, nulls, scale, is_one, is_null })
    }

    fn value(&self, row: usize) -> i128 {
        let row = if self.is_one { 0 } else { row };
        match self.numbers {
            Numbers::Narrow(numbers) => numbers[row].into(),
            Numbers::Wide(numbers) => numbers[row],
        }
    }
}

/// Decimals none of which has more digits than the largest may have.
pub fn within_digits(array: ArrayRef) -> Result<ArrayRef> {
    let Some(wide) = array.as_primitive_opt::<Decimal128Type>() else { return Ok(array) };
    let is_longer = |value: i128| value.unsigned_abs() >= 10_u128.pow(DIGITS_MAX);
    // What stands in the place of a NULL is no value.
    if wide.values().iter().any(|&value| is_longer(value)) && wide.iter().flatten().any(is_longer) {
        let message = format!("numeric out of range: it has more than {DIGITS_MAX} digits");
        return Err(Error::user(message).code("22003"));
    }
    Ok(array)
}

/// Floats or decimals, which may be narrow, with the other sign.
pub fn negated(array: &ArrayRef) -> Result<ArrayRef> {
    Ok(match array.data_type() {
        DataType::Float32 => {
            Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(|v| -v))
        }
        DataType::Float64 => {
            Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(|v| -v))
        }
        DataType::Decimal64(..) if has_least(array) => return negated(&wide(array)?),
        DataType::Decimal64(..) => decimals::<Decimal64Type>(array, i64::wrapping_neg),
        DataType::Decimal128(..) => decimals::<Decimal128Type>(array, i128::wrapping_neg),
        other => return Err(not_of(&Op::Negate, other)),
    })
}

/// Whether there is the least number of 64 bits, which has a counterpart in the wide form only.
fn has_least(narrow: &ArrayRef) -> bool {
    narrow.as_primitive::<Decimal64Type>().values().contains(&i64::MIN)
}

fn wide(narrow: &ArrayRef) -> Result<ArrayRef> {
    match *narrow.data_type() {
        DataType::Decimal64(_, scale) => {
            expand(narrow, &DataType::Decimal128(DIGITS_MAX as u8, scale))
        }
        _ => Ok(Arc::clone(narrow)),
    }
}

fn decimals<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    f: impl Fn(T::Native) -> T::Native,
) -> ArrayRef {
    let values = array.as_primitive::<T>().unary::<_, T>(f);
    Arc::new(values.with_data_type(array.data_type().clone()))
}

/// Numbers without their signs.
pub fn absolute(array: &ArrayRef) -> Result<ArrayRef> {
    match array.data_type() {
        DataType::Int8 => magnitudes::<Int8Type>(array),
        DataType::Int16 => magnitudes::<Int16Type>(array),
        DataType::Int32 => magnitudes::<Int32Type>(array),
        DataType::Int64 => magnitudes::<Int64Type>(array),
        DataType::Float32 => {
            Ok(Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(f32::abs)))
        }
        DataType::Float64 => {
            Ok(Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::abs)))
        }
        DataType::Decimal64(..) if has_least(array) => absolute(&wide(array)?),
        DataType::Decimal64(..) => Ok(decimals::<Decimal64Type>(array, i64::wrapping_abs)),
        DataType::Decimal128(..) => Ok(decimals::<Decimal128Type>(array, i128::wrapping_abs)),
        other => Err(not_of(&Op::Absolute, other)),
    }
}

fn magnitudes<T: ArrowPrimitiveType>(array: &ArrayRef) -> Result<ArrayRef>
where
    T::Native: Integer,
{
    let array = array.as_primitive::<T>();
    let zero = T::Native::default();
    let values = array.unary::<_, T>(|value| value.magnitude().0);
    let mut failed = zero;
    array.values().iter().for_each(|value| failed |= value.magnitude().1);
    if failed < zero && array.iter().flatten().any(|value| value.magnitude().1 < zero) {
        // The smallest types are called as the arguments of functions are.
        let data_type = if T::DATA_TYPE == DataType::Int8 { DataType::Int16 } else { T::DATA_TYPE };
        return Err(out_of_range(&data_type));
    }
    Ok(Arc::new(values))
}

/// Floats as others that are near, or the same.
pub fn whole(op: &Op, array: &ArrayRef) -> Result<ArrayRef> {
    macro_rules! each {
        ($type:ty, $native:ty) => {{
            let array = array.as_primitive::<$type>();
            let values: PrimitiveArray<$type> = match op {
                // -0.0 + 0.0 is 0.0.
                Op::Canonical => array.unary(|v| if v.is_nan() { <$native>::NAN } else { v + 0.0 }),
                Op::Floor => array.unary(<$native>::floor),
                Op::Ceiling => array.unary(<$native>::ceil),
                _ => array.unary(<$native>::round_ties_even),
            };
            Ok(Arc::new(values))
        }};
    }
    match array.data_type() {
        DataType::Float32 => each!(Float32Type, f32),
        DataType::Float64 => each!(Float64Type, f64),
        other => Err(not_of(op, other)),
    }
}

/// For each row the largest or the smallest value that is not NULL.
pub fn extreme(arrays: &[ArrayRef], greatest: bool) -> Result<ArrayRef> {
    macro_rules! of {
        ($type:ty) => {
            Ok(extremes::<$type>(arrays, greatest))
        };
    }
    use DataType::*;
    match arrays[0].data_type() {
        Int8 => of!(Int8Type),
        Int16 => of!(Int16Type),
        Int32 => of!(Int32Type),
        Int64 => of!(Int64Type),
        UInt8 => of!(UInt8Type),
        UInt16 => of!(UInt16Type),
        UInt32 => of!(UInt32Type),
        Date32 => of!(Date32Type),
        Decimal128(..) => of!(Decimal128Type),
        Timestamp(TimeUnit::Second, _) => of!(TimestampSecondType),
        Timestamp(TimeUnit::Millisecond, _) => of!(TimestampMillisecondType),
        Timestamp(TimeUnit::Microsecond, _) => of!(TimestampMicrosecondType),
        Timestamp(TimeUnit::Nanosecond, _) => of!(TimestampNanosecondType),
        other => Err(not_of(&Op::Greatest, other)),
    }
}

fn extremes<T: ArrowPrimitiveType>(arrays: &[ArrayRef], greatest: bool) -> ArrayRef
where
    T::Native: Ord,
{
    let mut found = arrays[0].as_primitive::<T>().clone();
    for array in &arrays[1..] {
        let array = array.as_primitive::<T>();
        let pick = |a: T::Native, b: T::Native| if greatest { a.max(b) } else { a.min(b) };
        found = if found.null_count() == 0 && array.null_count() == 0 {
            let pairs = found.values().iter().zip(array.values());
            PrimitiveArray::new(pairs.map(|(&a, &b)| pick(a, b)).collect(), None)
        } else {
            let pairs = found.iter().zip(array);
            pairs.map(|(a, b)| a.zip(b).map(|(a, b)| pick(a, b)).or(a).or(b)).collect()
        };
    }
    Arc::new(found.with_data_type(arrays[0].data_type().clone()))
}

#[cfg(test)]
mod tests;
