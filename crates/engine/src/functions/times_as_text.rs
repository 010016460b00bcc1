//! Times and spans as PostgreSQL writes them, with `DateStyle` ISO and `IntervalStyle` postgres: what a
//! cast to a text gives.

use std::fmt::Write;
use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::calendar::{Parts, Times};

pub static TIMES_AS_TEXT: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(TimesAsText { signature }))
});

/// Whether casts of this type to a text are done here.
pub fn is_written(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Date32
            | DataType::Timestamp(..)
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Interval(_)
            | DataType::Duration(_)
    )
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TimesAsText {
    signature: Signature,
}

impl ScalarUDFImpl for TimesAsText {
    fn name(&self) -> &str {
        "times_as_text"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = matches!(args.args[0], ColumnarValue::Scalar(_));
        let array = args.args[0].clone().into_array(if scalar { 1 } else { args.number_rows })?;
        let array = match array.data_type() {
            DataType::Null => cast(&array, &DataType::Date32)?,
            _ => array,
        };
        let texts: ArrayRef = Arc::new(texts(&array)?.finish());
        match scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?)),
            false => Ok(ColumnarValue::Array(texts)),
        }
    }
}

fn texts(array: &ArrayRef) -> Result<StringViewBuilder> {
    let times = Times::new(array)?;
    // What is finer than a microsecond.
    let nanoseconds = match array.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, _) | DataType::Time64(TimeUnit::Nanosecond) => {
            Some(cast(array, &DataType::Int64)?)
        }
        _ => None,
    };
    let mut texts = StringViewBuilder::with_capacity(array.len());
    let mut text = String::new();
    for row in 0..array.len() {
        let Some(parts) = times.parts(row)? else {
            texts.append_null();
            continue;
        };
        let finer = nanoseconds
            .as_ref()
            .map_or(0, |counts| counts.as_primitive::<Int64Type>().value(row).rem_euclid(1000));
        let ns = parts.micros * 1000 + finer;
        text.clear();
        // Writing to a String cannot fail.
        let _ = match array.data_type() {
            DataType::Date32 => date(&mut text, &parts),
            DataType::Timestamp(..) => timestamp(&mut text, &parts, ns),
            DataType::Time32(_) | DataType::Time64(_) => {
                clock(&mut text, parts.hour, parts.minute, parts.second, ns)
            }
            _ => span(&mut text, &parts),
        };
        texts.append_value(&text);
    }
    Ok(texts)
}

fn date(out: &mut String, p: &Parts) -> std::fmt::Result {
    day(out, p)?;
    out.write_str(if p.year <= 0 { " BC" } else { "" })
}

fn day(out: &mut String, p: &Parts) -> std::fmt::Result {
    let year = if p.year > 0 { p.year } else { 1 - p.year };
    write!(out, "{year:04}-{:02}-{:02}", p.month, p.day)
}

fn timestamp(out: &mut String, p: &Parts, ns: i64) -> std::fmt::Result {
    day(out, p)?;
    out.push(' ');
    clock(out, p.hour, p.minute, p.second, ns)?;
    if let Some(offset_s) = p.offset_s {
        zone(out, offset_s)?;
    }
    out.write_str(if p.year <= 0 { " BC" } else { "" })
}

/// `+02`, `-05:30`
fn zone(out: &mut String, offset_s: i32) -> std::fmt::Result {
    let s = offset_s.unsigned_abs();
    write!(out, "{}{:02}", if offset_s < 0 { '-' } else { '+' }, s / 3600)?;
    if !s.is_multiple_of(3600) {
        write!(out, ":{:02}", s / 60 % 60)?;
    }
    if !s.is_multiple_of(60) {
        write!(out, ":{:02}", s % 60)?;
    }
    Ok(())
}

/// `04:05:06.7`: digits of the fraction as far as they are not zero.
fn clock(out: &mut String, hour: i64, minute: i64, second: i64, ns: i64) -> std::fmt::Result {
    write!(out, "{hour:02}:{minute:02}:{second:02}")?;
    if ns != 0 {
        let digits = format!("{ns:09}");
        write!(out, ".{}", digits.trim_end_matches('0'))?;
    }
    Ok(())
}

/// `1 year 2 mons -3 days +04:05:06.7`: a part that follows a negative one has a sign.
fn span(out: &mut String, p: &Parts) -> std::fmt::Result {
    let mut after_negative = false;
    for (count, unit) in [(p.year, "year"), (p.month, "mon"), (p.day, "day")] {
        if count == 0 {
            continue;
        }
        if !out.is_empty() {
            out.push(' ');
        }
        let sign = if after_negative && count > 0 { "+" } else { "" };
        let plural = if count == 1 { "" } else { "s" };
        write!(out, "{sign}{count} {unit}{plural}")?;
        after_negative = count < 0;
    }
    let us = p.time_us();
    if us == 0 && !out.is_empty() {
        return Ok(());
    }
    if !out.is_empty() {
        out.push(' ');
    }
    if us < 0 {
        out.push('-');
    } else if after_negative {
        out.push('+');
    }
    let us = us.unsigned_abs() as i64;
    clock(out, us / 3_600_000_000, us / 60_000_000 % 60, us / 1_000_000 % 60, us % 1_000_000 * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_written_as_postgresql_writes_them() {
        let check = |months: i64, days: i64, us: i64, expected: &str| {
            let mut text = String::new();
            span(&mut text, &Parts::of_span(months, days, us)).unwrap();
            assert_eq!(text, expected);
        };
        check(14, -3, 14_706_700_000, "1 year 2 mons -3 days +04:05:06.7");
        check(0, 0, 0, "00:00:00");
        check(1, 0, 0, "1 mon");
        check(-1, 1, 0, "-1 mons +1 day");
        check(0, -1, -7_200_000_000, "-1 days -02:00:00");
        check(0, 0, 100 * 3_600_000_000, "100:00:00");
    }
}
