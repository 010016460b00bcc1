//! Times, spans, doubles, lists and rows as PostgreSQL writes them, with `DateStyle` ISO and `IntervalStyle`
//! postgres: what a cast to a text gives.

use std::fmt::Write;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type, Int64Type, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use thalweg_base::text::{float4, float8, list_item, row_field};

use super::calendar::{Parts, Times};

pub static AS_TEXT: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(AsText { signature }))
});

/// Whether casts of this type to a text are done here.
pub fn is_written(data_type: &DataType) -> bool {
    data_type.is_floating()
        || matches!(
            data_type,
            DataType::Date32
                | DataType::Timestamp(..)
                | DataType::Time32(_)
                | DataType::Time64(_)
                | DataType::Interval(_)
                | DataType::Duration(_)
                | DataType::List(_)
                | DataType::LargeList(_)
                | DataType::FixedSizeList(..)
                | DataType::Struct(_)
        )
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AsText {
    signature: Signature,
}

impl ScalarUDFImpl for AsText {
    fn name(&self) -> &str {
        "as_text"
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
        let texts = texts(&array)?;
        match scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?)),
            false => Ok(ColumnarValue::Array(texts)),
        }
    }
}

/// The values of an array as texts.
pub fn texts(array: &ArrayRef) -> Result<ArrayRef> {
    let mut texts = StringViewBuilder::with_capacity(array.len());
    let mut text = String::new();
    let write = writer(array)?;
    let nulls = array.logical_nulls();
    for row in 0..array.len() {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            texts.append_null();
            continue;
        }
        text.clear();
        write(row, &mut text)?;
        texts.append_value(&text);
    }
    Ok(Arc::new(texts.finish()))
}

/// Lists, and lists of lists, of the texts of their items.
fn lists_of_texts(array: &ArrayRef) -> Result<ArrayRef> {
    let Some(lists) = array.as_list_opt::<i32>() else { return texts(array) };
    let items = lists_of_texts(lists.values())?;
    let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
    let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
    Ok(Arc::new(ListArray::try_new(field, offsets, items, nulls)?))
}

/// `array_to_string`, whose items are written as they are everywhere else.
pub fn array_to_string(
    function: &ScalarUDF,
    mut args: ScalarFunctionArgs,
) -> Result<ColumnarValue> {
    if let Some(list) = args.args.first_mut()
        && matches!(list.data_type(), DataType::List(_))
    {
        *list = match list {
            ColumnarValue::Array(array) => ColumnarValue::Array(lists_of_texts(array)?),
            ColumnarValue::Scalar(one) => {
                let texts = lists_of_texts(&one.to_array()?)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?)
            }
        };
        args.arg_fields[0] = Arc::new(Field::new("", list.data_type(), true));
    }
    function.invoke_with_args(args)
}

/// Appends the text of a row that is not NULL.
type Writer<'a> = Box<dyn Fn(usize, &mut String) -> Result<()> + 'a>;

fn writer(array: &ArrayRef) -> Result<Writer<'_>> {
    use DataType as T;
    Ok(match array.data_type() {
        T::Null => Box::new(|_, _| Ok(())),
        T::Float16 | T::Float32 => {
            let reals = cast(array, &T::Float32)?;
            let reals = reals.as_primitive::<Float32Type>().clone();
            Box::new(move |row, out| done(float4(out, reals.value(row))))
        }
        T::Float64 => {
            let doubles = array.as_primitive::<Float64Type>();
            Box::new(move |row, out| done(float8(out, doubles.value(row))))
        }
        T::Date32
        | T::Timestamp(..)
        | T::Time32(_)
        | T::Time64(_)
        | T::Interval(_)
        | T::Duration(_) => times(array)?,
        T::List(_) => {
            let lists = array.as_list::<i32>();
            Box::new(move |row, out| list(&lists.value(row), out))
        }
        T::LargeList(_) => {
            let lists = array.as_list::<i64>();
            Box::new(move |row, out| list(&lists.value(row), out))
        }
        T::FixedSizeList(..) => {
            let lists = array.as_fixed_size_list();
            Box::new(move |row, out| list(&lists.value(row), out))
        }
        T::Struct(_) => row_of(array)?,
        T::Boolean => {
            let values = array.as_boolean();
            Box::new(move |row, out| {
                out.push(if values.value(row) { 't' } else { 'f' });
                Ok(())
            })
        }
        T::Binary | T::LargeBinary | T::BinaryView => {
            let bytes = cast(array, &T::LargeBinary)?;
            let bytes = bytes.as_binary::<i64>().clone();
            Box::new(move |row, out| {
                out.push_str("\\x");
                done(bytes.value(row).iter().try_for_each(|byte| write!(out, "{byte:02x}")))
            })
        }
        _ => {
            let values = ArrayFormatter::try_new(array, &FormatOptions::new())?;
            Box::new(move |row, out| done(write!(out, "{}", values.value(row))))
        }
    })
}

/// `(1,,"a b")`
fn row_of(array: &ArrayRef) -> Result<Writer<'_>> {
    let columns = array.as_struct().columns();
    let writers = columns.iter().map(writer).collect::<Result<Vec<_>>>()?;
    Ok(Box::new(move |row, out| {
        let mut field = String::new();
        for (at, (write, column)) in writers.iter().zip(columns).enumerate() {
            out.push(if at == 0 { '(' } else { ',' });
            if column.is_null(row) || *column.data_type() == DataType::Null {
                continue;
            }
            field.clear();
            write(row, &mut field)?;
            done(row_field(out, &field))?;
        }
        out.push(')');
        Ok(())
    }))
}

/// `{1,2,NULL,"a b"}`
fn list(items: &ArrayRef, out: &mut String) -> Result<()> {
    use DataType as T;
    let write = writer(items)?;
    let nested = matches!(items.data_type(), T::List(_) | T::LargeList(_) | T::FixedSizeList(..));
    let mut item = String::new();
    // An array of NULLs alone has no bits that say so.
    let nulls = items.logical_nulls();
    out.push('{');
    for row in 0..items.len() {
        if row > 0 {
            out.push(',');
        }
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            out.push_str("NULL");
            continue;
        }
        if nested {
            write(row, out)?;
            continue;
        }
        item.clear();
        write(row, &mut item)?;
        done(list_item(out, &item))?;
    }
    out.push('}');
    Ok(())
}

fn times(array: &ArrayRef) -> Result<Writer<'_>> {
    let times = Times::new(array)?;
    // What is finer than a microsecond.
    let nanoseconds = match array.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, _) | DataType::Time64(TimeUnit::Nanosecond) => {
            Some(cast(array, &DataType::Int64)?)
        }
        _ => None,
    };
    Ok(Box::new(move |row, out| {
        let Some(parts) = times.parts(row)? else { return Ok(()) };
        let finer = nanoseconds
            .as_ref()
            .map_or(0, |counts| counts.as_primitive::<Int64Type>().value(row).rem_euclid(1000));
        let ns = parts.micros * 1000 + finer;
        done(match array.data_type() {
            DataType::Date32 => date(out, &parts),
            DataType::Timestamp(..) => timestamp(out, &parts, ns),
            DataType::Time32(_) | DataType::Time64(_) => {
                clock(out, parts.hour, parts.minute, parts.second, ns)
            }
            _ => span(out, &parts),
        })
    }))
}

fn done(written: std::fmt::Result) -> Result<()> {
    written.map_err(|e| DataFusionError::External(Box::new(e)))
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
