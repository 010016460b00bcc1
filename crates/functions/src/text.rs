//! Functions of texts: `format`, and bounds for those that make long ones of short ones.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result as DfResult, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use thalweg_base::limits::{TEXT_MADE_BYTES_MAX, TEXTS_MADE_BYTES_MAX};
use thalweg_base::{Error, Result, text};

use super::as_text::texts;
use super::quoting::{identifier, literal};
use thalweg_errors::into_datafusion;

/// `lpad`, `rpad` and `repeat` as DataFusion has them, for texts up to a bound.
pub fn bounded(function: &ScalarUDF, mut args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
    check(function.name(), &args).map_err(into_datafusion)?;
    if let Some(count) = args.args.get_mut(1) {
        // The function would take it for a number without a sign.
        *count = without_negatives(count)?;
    }
    function.invoke_with_args(args)
}

/// Of all rows the bytes that the texts would take; an error if one would be too long.
fn check(function: &str, args: &ScalarFunctionArgs) -> Result<()> {
    let rows = args.number_rows;
    let number = |value: &ColumnarValue, row: usize| match value {
        ColumnarValue::Scalar(scalar) => {
            scalar.cast_to(&DataType::Int64).ok().and_then(|s| match s {
                ScalarValue::Int64(n) => n,
                _ => None,
            })
        }
        ColumnarValue::Array(array) => match array.as_primitive_opt::<Int64Type>() {
            Some(array) => array.is_valid(row).then(|| array.value(row)),
            None => {
                let array = cast(array, &DataType::Int64).ok()?;
                array.is_valid(row).then(|| array.as_primitive::<Int64Type>().value(row))
            }
        },
    };
    let bytes = |value: &ColumnarValue, row: usize| match value {
        ColumnarValue::Scalar(scalar) => scalar.try_as_str().flatten().map_or(0, str::len),
        ColumnarValue::Array(array) => match array.data_type() {
            DataType::Utf8View => array.as_string_view().value(row).len(),
            DataType::LargeUtf8 => array.as_string::<i64>().value(row).len(),
            DataType::Utf8 => array.as_string::<i32>().value(row).len(),
            _ => 0,
        },
    };
    let [text, count, ..] = &args.args[..] else { return Ok(()) };
    let is_repeat = function == "repeat";
    let one = matches!((text, count), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
    let mut all = 0_u64;
    for row in 0..if one { 1 } else { rows } {
        let Some(count) = number(count, row) else { continue };
        let count = count.max(0) as u64;
        // A character of padding is a byte at least.
        let made = if is_repeat { count.saturating_mul(bytes(text, row) as u64) } else { count };
        if made > TEXT_MADE_BYTES_MAX as u64 {
            return Err(too_long(function, "a text", made, TEXT_MADE_BYTES_MAX));
        }
        all = all.saturating_add(made);
    }
    // A constant is made once, and then for each row.
    if one {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        all = if constant { all } else { all.saturating_mul(rows as u64) };
    }
    if all > TEXTS_MADE_BYTES_MAX as u64 {
        return Err(too_long(
            function,
            "the texts of one batch of rows",
            all,
            TEXTS_MADE_BYTES_MAX,
        ));
    }
    Ok(())
}

fn too_long(function: &str, what: &str, made: u64, most: usize) -> Error {
    Error::user(format!(
        "{function} would make {what} of {}, more than the {} it may",
        text::bytes(made),
        text::bytes(most as u64)
    ))
    .code("54000")
    .hint("ask for shorter texts")
}

/// Lengths below nothing are nothing.
fn without_negatives(lengths: &ColumnarValue) -> DfResult<ColumnarValue> {
    let array = match lengths {
        ColumnarValue::Array(array) => array,
        ColumnarValue::Scalar(ScalarValue::Int64(Some(..0))) => {
            return Ok(ColumnarValue::Scalar(ScalarValue::Int64(Some(0))));
        }
        ColumnarValue::Scalar(_) => return Ok(lengths.clone()),
    };
    let Some(numbers) = array.as_primitive_opt::<Int64Type>() else { return Ok(lengths.clone()) };
    if numbers.iter().flatten().all(|n| n >= 0) {
        return Ok(lengths.clone());
    }
    let numbers: Int64Array = numbers.unary(|n| n.max(0));
    Ok(ColumnarValue::Array(Arc::new(numbers)))
}

/// `format('%s of %I, %L', …)`, as PostgreSQL has it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Format {
    signature: Signature,
}

impl Default for Format {
    fn default() -> Self {
        Format { signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Format {
    fn name(&self) -> &str {
        "format"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        match types {
            [DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 | DataType::Null, ..] => {
                Ok(types.to_vec())
            }
            _ => plan_err!("format takes a text with %s, and the values for it"),
        }
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if scalar { 1 } else { args.number_rows };
        let mut texts = args.args.into_iter().map(|arg| {
            let texts = texts(&arg.into_array(rows)?)?;
            DfResult::Ok(cast(&texts, &DataType::Utf8)?)
        });
        let Some(format) = texts.next().transpose()? else {
            return exec_err!("format takes a text with %s, and the values for it");
        };
        let values = texts.collect::<DfResult<Vec<_>>>()?;
        let mut out = StringBuilder::new();
        for row in 0..rows {
            let text = |array: &ArrayRef| {
                let array = array.as_string::<i32>();
                (!array.is_null(row)).then(|| array.value(row).to_string())
            };
            match text(&format) {
                None => out.append_null(),
                Some(format) => {
                    let values: Vec<Option<String>> = values.iter().map(text).collect();
                    out.append_value(formatted(&format, &values).map_err(into_datafusion)?);
                }
            }
        }
        let out: ArrayRef = Arc::new(out.finish());
        match scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&out, 0)?)),
            false => Ok(ColumnarValue::Array(out)),
        }
    }
}

fn formatted(format: &str, values: &[Option<String>]) -> Result<String> {
    let wrong = |what: &str| Error::user(format!("format: {what}")).code("22023");
    let mut out = String::new();
    let mut rest = format;
    let mut next = 0;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let digits = |rest: &str| rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let place = digits(rest);
        let mut position = None;
        if place > 0 && rest[place..].starts_with('$') {
            position =
                Some(rest[..place].parse::<usize>().map_err(|_| wrong("a position is too large"))?);
            rest = &rest[place + 1..];
        }
        let mut left = false;
        while let Some(after) = rest.strip_prefix('-') {
            (left, rest) = (true, after);
        }
        let mut width = 0_i64;
        if let Some(after) = rest.strip_prefix('*') {
            rest = after;
            let place = digits(rest);
            let index = match place > 0 && rest[place..].starts_with('$') {
                true => {
                    let index = rest[..place]
                        .parse::<usize>()
                        .map_err(|_| wrong("a position is too large"))?;
                    rest = &rest[place + 1..];
                    index
                }
                false => {
                    next += 1;
                    next
                }
            };
            let value = index.checked_sub(1).and_then(|i| values.get(i));
            let value = value.ok_or_else(|| wrong("there are too few values"))?;
            width = match value {
                Some(text) => text.parse().map_err(|_| wrong("a width is no number"))?,
                None => 0,
            };
        } else {
            let place = digits(rest);
            if place > 0 {
                width = rest[..place].parse().map_err(|_| wrong("a width is too large"))?;
                rest = &rest[place..];
            }
        }
        let kind = rest
            .chars()
            .next()
            .ok_or_else(|| wrong("% stands at the end; %% is a percent sign"))?;
        rest = &rest[kind.len_utf8()..];
        if !matches!(kind, 's' | 'I' | 'L') {
            return Err(wrong(&format!(
                "%{kind} is not known; %s, %I and %L are, and %% is a percent sign"
            )));
        }
        if position == Some(0) {
            return Err(wrong("values are counted from 1"));
        }
        let index = match position {
            Some(position) => {
                next = position;
                position
            }
            None => {
                next += 1;
                next
            }
        };
        let value = values.get(index - 1).ok_or_else(|| wrong("there are too few values"))?;
        let value = match (kind, value) {
            ('s', value) => value.clone().unwrap_or_default(),
            ('I', Some(name)) => identifier(name),
            ('I', None) => return Err(Error::user("format: NULL is no name").code("22004")),
            (_, Some(text)) => literal(text),
            (_, None) => "NULL".into(),
        };
        let left = left || width < 0;
        let width = width.unsigned_abs();
        if width > TEXT_MADE_BYTES_MAX as u64 {
            return Err(wrong("a width is too large").code("54000"));
        }
        let pad = (width as usize).saturating_sub(value.chars().count());
        match left {
            true => {
                out.push_str(&value);
                out.extend(std::iter::repeat_n(' ', pad));
            }
            false => {
                out.extend(std::iter::repeat_n(' ', pad));
                out.push_str(&value);
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}
