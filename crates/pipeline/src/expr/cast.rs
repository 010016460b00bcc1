//! Values as those of another type.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Date32Array, Decimal64Array, Decimal128Array,
    Float64Array, PrimitiveArray, StringViewArray, UInt64Array,
};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowTimestampType, DataType, Date32Type, Decimal64Type, Decimal128Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use thalweg_base::calendar::days_of;
use thalweg_base::{Error, Result};

use super::kernel::stored_as;
use super::text::Texts;
use crate::encoding::{NARROW_DIGITS, bounds, coded, expand, internal, words};

/// Values of the type `from`, maybe in a narrow form, as those of the type `to`: one of the casts that
/// [`thalweg_ir::Op::result_type`] names.
pub fn cast(array: &ArrayRef, from: &DataType, to: &DataType) -> Result<ArrayRef> {
    use DataType::*;
    if from == to {
        return Ok(Arc::clone(array));
    }
    let array = match (from, to) {
        // These take the narrow form.
        (Decimal128(..), Decimal128(..) | Float64) => Arc::clone(array),
        _ => expand(array, from)?,
    };
    match (from, to) {
        (Boolean, Utf8View) => Ok(truths_as_text(&array)),
        (Boolean, Int32 | Int64) => arrow::compute::cast(&array, to).map_err(internal),
        (Decimal128(_, scale), Float64) => decimals_as_doubles(&array, *scale),
        (Decimal128(_, s), &Decimal128(precision, scale)) => rescaled(&array, *s, precision, scale),
        (Decimal128(..), to) => decimals_as_integers(&array, to),
        (Float32, Float64) => {
            let values = array.as_primitive::<Float32Type>();
            Ok(Arc::new(values.unary::<_, Float64Type>(f64::from)))
        }
        (Float32, to) => {
            let values = array.as_primitive::<Float32Type>();
            // Every real is a double, with the same digits before the point.
            floats_as_integers(&values.unary::<_, Float64Type>(f64::from), to)
        }
        (Float64, to) => floats_as_integers(array.as_primitive::<Float64Type>(), to),
        (Date32, Timestamp(unit, None)) => dates_as_timestamps(&array, *unit),
        (Timestamp(unit, None), Date32) => match unit {
            TimeUnit::Second => timestamps_as_dates::<TimestampSecondType>(&array, 86_400),
            TimeUnit::Millisecond => {
                timestamps_as_dates::<TimestampMillisecondType>(&array, 86_400_000)
            }
            TimeUnit::Microsecond => {
                timestamps_as_dates::<TimestampMicrosecondType>(&array, 86_400_000_000)
            }
            TimeUnit::Nanosecond => {
                timestamps_as_dates::<TimestampNanosecondType>(&array, 86_400_000_000_000)
            }
        },
        (Int32, Date32) | (Date32, Int32) => stored_as(&array, to),
        (UInt64, to) => unsigned_as(array.as_primitive::<UInt64Type>(), to),
        (_, Utf8View) => integers_as_text(&array),
        (_, &Decimal128(precision, scale)) => integers_as_decimals(&array, precision, scale),
        (_, to) => integers_as(&array, to),
    }
}

fn unknown(from: &DataType, to: &DataType) -> Error {
    Error::internal(format!("a cast of {from} to {to}"))
}

/// Of a cast: small types are called as their values are in PostgreSQL, which has none so small.
pub fn out_of_range(to: &DataType) -> Error {
    let name = match to {
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => "smallint",
        DataType::UInt16 | DataType::Int32 => "integer",
        _ => "bigint",
    };
    Error::user(format!("{name} out of range")).code("22003")
}

fn integer_words(array: &ArrayRef) -> Result<std::borrow::Cow<'_, [i64]>> {
    words(array.as_ref()).ok_or_else(|| unknown(array.data_type(), &DataType::Int64))
}

/// Integers that 64 bits with a sign hold.
fn integers_as(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let (words, nulls) = (integer_words(array)?, array.nulls());
    Ok(match to {
        DataType::Int8 => narrowed::<Int8Type>(&words, nulls, |w| (w as i8, (w as i8).into()))?,
        DataType::Int16 => narrowed::<Int16Type>(&words, nulls, |w| (w as i16, (w as i16).into()))?,
        DataType::Int32 => narrowed::<Int32Type>(&words, nulls, |w| (w as i32, (w as i32).into()))?,
        DataType::Int64 => narrowed::<Int64Type>(&words, nulls, |w| (w, w))?,
        DataType::UInt8 => narrowed::<UInt8Type>(&words, nulls, |w| (w as u8, (w as u8).into()))?,
        DataType::UInt16 => {
            narrowed::<UInt16Type>(&words, nulls, |w| (w as u16, (w as u16).into()))?
        }
        DataType::UInt32 => {
            narrowed::<UInt32Type>(&words, nulls, |w| (w as u32, (w as u32).into()))?
        }
        // A negative number comes back as another.
        DataType::UInt64 => narrowed::<UInt64Type>(&words, nulls, |w| (w as u64, w & i64::MAX))?,
        DataType::Float32 => plain::<Float32Type>(&words, nulls, |w| w as f32),
        DataType::Float64 => plain::<Float64Type>(&words, nulls, |w| w as f64),
        other => return Err(unknown(array.data_type(), other)),
    })
}

/// `f` gives the value, and what it is as a word: another one if it does not fit.
fn narrowed<T: ArrowPrimitiveType>(
    words: &[i64],
    nulls: Option<&NullBuffer>,
    f: impl Fn(i64) -> (T::Native, i64),
) -> Result<ArrayRef> {
    let mut lost = 0;
    let values: Vec<T::Native> = words
        .iter()
        .map(|&word| {
            let (value, back) = f(word);
            lost |= back ^ word;
            value
        })
        .collect();
    if lost != 0 {
        // What stands in the place of a NULL may be anything.
        let is_valid = |row| nulls.is_none_or(|nulls| nulls.is_valid(row));
        if words.iter().enumerate().any(|(row, &word)| f(word).1 != word && is_valid(row)) {
            return Err(out_of_range(&T::DATA_TYPE));
        }
    }
    Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), nulls.cloned())))
}

fn plain<T: ArrowPrimitiveType>(
    words: &[i64],
    nulls: Option<&NullBuffer>,
    f: impl Fn(i64) -> T::Native,
) -> ArrayRef {
    let values: Vec<T::Native> = words.iter().map(|&word| f(word)).collect();
    Arc::new(PrimitiveArray::<T>::new(values.into(), nulls.cloned()))
}

/// Of integers without a sign that 64 bits with one may not hold.
fn unsigned_as(array: &UInt64Array, to: &DataType) -> Result<ArrayRef> {
    Ok(match to {
        DataType::Float32 => Arc::new(array.unary::<_, Float32Type>(|v| v as f32)),
        DataType::Float64 => Arc::new(array.unary::<_, Float64Type>(|v| v as f64)),
        DataType::Utf8View => {
            Arc::new(array.iter().map(|v| v.map(|v| v.to_string())).collect::<StringViewArray>())
        }
        &DataType::Decimal128(precision, scale) => {
            let factor = 10_i128.pow(scale.unsigned_abs().into());
            let values = array.unary::<_, Decimal128Type>(|v| i128::from(v).wrapping_mul(factor));
            Arc::new(values.with_precision_and_scale(precision, scale).map_err(internal)?)
        }
        to => {
            let beyond = |value: u64| value > i64::MAX as u64;
            if array.iter().flatten().any(beyond) {
                return Err(out_of_range(to));
            }
            let words: ArrayRef = Arc::new(array.unary::<_, Int64Type>(|v| v as i64));
            integers_as(&words, to)?
        }
    })
}

/// Without their fractions.
fn floats_as_integers(array: &Float64Array, to: &DataType) -> Result<ArrayRef> {
    macro_rules! of {
        ($type:ty, $native:ty) => {{
            // The bounds are doubles, or round to powers of two, which are beyond the type.
            let below = <$native>::MIN as f64 - 1.0;
            let above = <$native>::MAX as f64 + 1.0;
            let fits = |v: f64| {
                // A double next to the least number of 64 bits has no fraction.
                (v > below || v == <$native>::MIN as f64) & (v < above)
            };
            let all = array.values().iter().fold(true, |all, &v| all & fits(v));
            let values = array.unary::<_, $type>(|v| v as $native);
            if !all && array.iter().flatten().any(|v| !fits(v)) {
                return Err(out_of_range(to));
            }
            Ok(Arc::new(values) as ArrayRef)
        }};
    }
    match to {
        DataType::Int8 => of!(Int8Type, i8),
        DataType::Int16 => of!(Int16Type, i16),
        DataType::Int32 => of!(Int32Type, i32),
        DataType::Int64 => of!(Int64Type, i64),
        DataType::UInt8 => of!(UInt8Type, u8),
        DataType::UInt16 => of!(UInt16Type, u16),
        DataType::UInt32 => of!(UInt32Type, u32),
        DataType::UInt64 => of!(UInt64Type, u64),
        other => Err(unknown(&DataType::Float64, other)),
    }
}

/// Every integer of the type fits the decimal.
fn integers_as_decimals(array: &ArrayRef, precision: u8, scale: i8) -> Result<ArrayRef> {
    let words = integer_words(array)?;
    let nulls = array.nulls().cloned();
    let factor = 10_i128.pow(scale.unsigned_abs().into());
    if precision <= NARROW_DIGITS {
        let values = words.iter().map(|&word| word.wrapping_mul(factor as i64));
        return narrow(values.collect(), nulls, scale);
    }
    let values: Vec<i128> = words.iter().map(|&word| i128::from(word) * factor).collect();
    let wide = Decimal128Array::new(values.into(), nulls);
    Ok(Arc::new(wide.with_precision_and_scale(precision, scale).map_err(internal)?))
}

fn narrow(values: Vec<i64>, nulls: Option<NullBuffer>, scale: i8) -> Result<ArrayRef> {
    let narrow = Decimal64Array::new(ScalarBuffer::from(values), nulls);
    Ok(Arc::new(narrow.with_precision_and_scale(NARROW_DIGITS, scale).map_err(internal)?))
}

/// Decimals with other digits behind the point, rounded half away from zero. The digits before it have
/// their place.
fn rescaled(array: &ArrayRef, from: i8, precision: u8, scale: i8) -> Result<ArrayRef> {
    let digits = (scale - from).unsigned_abs();
    let too_long = || Error::user("numeric out of range").code("22003");
    if let Some(values) = array.as_primitive_opt::<Decimal64Type>() {
        let nulls = values.nulls().cloned();
        if scale < from {
            let Some(divisor) = 10_i64.checked_pow(digits.into()) else {
                return narrow(vec![0; values.len()], nulls, scale);
            };
            let half = divisor.unsigned_abs().div_ceil(2);
            let values = values.values().iter().map(|v| {
                let away = i64::from((v % divisor).unsigned_abs() >= half) * v.signum();
                v / divisor + away
            });
            return narrow(values.collect(), nulls, scale);
        }
        let factor = 10_i64.checked_pow(digits.into());
        let most = factor.map(|factor| i64::MAX / factor);
        let fits = |most: i64| values.values().iter().all(|v| (-most..=most).contains(v));
        if let (Some(factor), Some(most)) = (factor, most)
            && scale <= NARROW_DIGITS as i8
            && fits(most)
        {
            let values = values.values().iter().map(|v| v * factor).collect();
            return narrow(values, nulls, scale);
        }
        let wide = expand(array, &DataType::Decimal128(super::number::DIGITS_MAX as u8, from))?;
        return rescaled(&wide, from, precision, scale);
    }
    let wide = array.as_primitive::<Decimal128Type>();
    let power = 10_i128.pow(digits.into());
    let values: Decimal128Array = match scale < from {
        true => wide.unary(|v| rounded(v, power)),
        false => wide.try_unary(|v| v.checked_mul(power).ok_or_else(too_long))?,
    };
    let most = 10_u128.pow(precision.into());
    if values.iter().flatten().any(|v| v.unsigned_abs() >= most) {
        return Err(too_long());
    }
    Ok(Arc::new(values.with_precision_and_scale(precision, scale).map_err(internal)?))
}

fn rounded(value: i128, divisor: i128) -> i128 {
    let (quotient, rest) = (value / divisor, value % divisor);
    match rest.unsigned_abs() * 2 >= divisor.unsigned_abs() {
        true => quotient + value.signum(),
        false => quotient,
    }
}

fn decimals_as_doubles(array: &ArrayRef, scale: i8) -> Result<ArrayRef> {
    let power = 10_f64.powi(scale.into());
    if let Some(narrow) = array.as_primitive_opt::<Decimal64Type>() {
        return Ok(Arc::new(narrow.unary::<_, Float64Type>(|v| v as f64 / power)));
    }
    let wide = array.as_primitive_opt::<Decimal128Type>();
    let wide = wide.ok_or_else(|| unknown(array.data_type(), &DataType::Float64))?;
    Ok(Arc::new(wide.unary::<_, Float64Type>(|v| v as f64 / power)))
}

/// Decimals without digits behind the point.
fn decimals_as_integers(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let values = array.as_primitive::<Decimal128Type>();
    if *to == DataType::UInt64 {
        let fits = |v: i128| u64::try_from(v).is_ok();
        return match values.iter().flatten().all(fits) {
            true => Ok(Arc::new(values.unary::<_, UInt64Type>(|v| v as u64))),
            false => Err(too_large(values, fits, to)),
        };
    }
    let fits = |v: i128| match to {
        DataType::Int8 => i8::try_from(v).is_ok(),
        DataType::Int16 => i16::try_from(v).is_ok(),
        DataType::Int32 => i32::try_from(v).is_ok(),
        DataType::UInt8 => u8::try_from(v).is_ok(),
        DataType::UInt16 => u16::try_from(v).is_ok(),
        DataType::UInt32 => u32::try_from(v).is_ok(),
        _ => i64::try_from(v).is_ok(),
    };
    if !values.iter().flatten().all(fits) {
        return Err(too_large(values, fits, to));
    }
    let words: ArrayRef = Arc::new(values.unary::<_, Int64Type>(|v| v as i64));
    integers_as(&words, to)
}

fn too_large(values: &Decimal128Array, fits: impl Fn(i128) -> bool, to: &DataType) -> Error {
    let value = values.iter().flatten().find(|v| !fits(*v)).unwrap_or_default();
    let name = match to {
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => "smallint",
        DataType::UInt16 | DataType::Int32 => "integer",
        _ => "bigint",
    };
    Error::user(format!("value of {value} is out of range {name}")).code("22P02")
}

fn dates_as_timestamps(array: &ArrayRef, unit: TimeUnit) -> Result<ArrayRef> {
    let dates = array.as_primitive::<Date32Type>();
    let per_day: i64 = match unit {
        TimeUnit::Second => 86_400,
        TimeUnit::Millisecond => 86_400_000,
        TimeUnit::Microsecond => 86_400_000_000,
        TimeUnit::Nanosecond => 86_400_000_000_000,
    };
    let most = i64::MAX / per_day;
    let fits = |date: i32| (-most..=most).contains(&i64::from(date));
    if !dates.values().iter().all(|&date| fits(date)) && !dates.iter().flatten().all(fits) {
        return Err(Error::user("date out of range for timestamp").code("22008"));
    }
    // What stands in the place of a NULL may wrap.
    let counts = dates.unary::<_, Int64Type>(|date| i64::from(date).wrapping_mul(per_day));
    stored_as(&(Arc::new(counts) as ArrayRef), &DataType::Timestamp(unit, None))
}

/// The dates of timestamps of which a day has so many.
fn timestamps_as_dates<T: ArrowTimestampType>(array: &ArrayRef, per_day: i64) -> Result<ArrayRef> {
    let times = array.as_primitive::<T>();
    // The years that the operators' calendar has.
    let (first, last) = (days_of(-262_143, 1, 1), days_of(262_142, 12, 31));
    let fits = |time: i64| (first..=last).contains(&time.div_euclid(per_day));
    let dates: Date32Array = times.unary(|time| time.div_euclid(per_day) as i32);
    let all = times.values().iter().fold(true, |all, &time| all & fits(time));
    if !all && !times.iter().flatten().all(fits) {
        return Err(Error::user("timestamp out of range for a date").code("22008"));
    }
    Ok(Arc::new(dates))
}

fn truths_as_text(array: &ArrayRef) -> ArrayRef {
    let text = |truth| if truth { "true" } else { "false" };
    Arc::new(array.as_boolean().iter().map(|t| t.map(text)).collect::<StringViewArray>())
}

/// Room for the digits of 64 bits and a sign.
const TEXT_BYTES: usize = 20;

/// Of so many rows one number, or more, is written once for all.
const FEW_NUMBERS: usize = 4;

/// Where numbers lie near each other, all that there may be, and for each row which of them it is.
fn integers_as_text(array: &ArrayRef) -> Result<ArrayRef> {
    let (words, nulls) = (integer_words(array)?, array.nulls().cloned());
    let Some((low, high)) = bounds(words.iter().copied()) else { return written(&words, nulls) };
    if high.abs_diff(low) >= (words.len() / FEW_NUMBERS) as u64 {
        return written(&words, nulls);
    }
    let texts = written(&(low..=high).collect::<Vec<_>>(), None)?;
    // What stands in the place of a NULL is one of the numbers as well.
    let codes = words.iter().map(|&word| word.abs_diff(low) as u32).collect::<Vec<_>>();
    coded(codes, nulls, texts)
}

fn written(words: &[i64], nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    let mut texts = Texts::with_capacity(words.len());
    // What stands in the place of a NULL is a number as well.
    for &word in words {
        let mut room = [b'0'; TEXT_BYTES];
        texts.push(digits(word, &mut room))?;
    }
    Ok(texts.finish(nulls))
}

/// A number in decimal digits, at the end of `room`.
fn digits(number: i64, room: &mut [u8; TEXT_BYTES]) -> &[u8] {
    let (mut left, mut from) = (number.unsigned_abs(), TEXT_BYTES);
    loop {
        from -= 1;
        room[from] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    if number < 0 {
        from -= 1;
        room[from] = b'-';
    }
    &room[from..]
}

#[cfg(test)]
mod tests;
