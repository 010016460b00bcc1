//! Values of clients, in text or in binary, as values of Arrow's types.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array,
    Float64Array, Int16Array, Int32Array, Int64Array, IntervalMonthDayNanoArray, ListArray,
    StringArray, Time64MicrosecondArray, TimestampMicrosecondArray, new_empty_array,
    new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{CastOptions, cast_with_options, concat};
use arrow::datatypes::{DataType, Field, IntervalMonthDayNano};
use arrow::util::display::FormatOptions;
use bytes::{Buf, Bytes};
use thalweg_base::{Error, Result};
use thalweg_engine::{bytea, text_values};

use super::encode::{EPOCH_US, Format};
use super::message::Body;
use super::{numeric, types};

/// One value, as an array of one element. `oid`: what the client says that it sends; 0: nothing. `zone`: of
/// instants that name none. Numerics have a type of their own, with the digits that they have.
pub fn read(
    bytes: Option<Bytes>,
    format: Format,
    oid: u32,
    data_type: &DataType,
    zone: &str,
) -> Result<ArrayRef> {
    let Some(bytes) = bytes else { return Ok(new_null_array(data_type, 1)) };
    match format {
        Format::Text => parse(utf8(&bytes)?, data_type, zone),
        Format::Binary => {
            let oid = if oid == 0 { types::oid(data_type) } else { oid };
            binary(bytes, oid, data_type, zone)
        }
    }
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| {
        Error::user("a text value is no UTF-8")
            .code("22021")
            .hint("SET client_encoding TO 'UTF8': there is no other")
    })
}

/// A value as PostgreSQL's input functions read it.
pub fn parse(text: &str, data_type: &DataType, zone: &str) -> Result<ArrayRef> {
    let trimmed = text.trim();
    let wrong = || {
        let name = thalweg_engine::sql_type(data_type);
        if data_type.is_integer() && is_whole(trimmed) {
            let message = format!("value \"{text}\" is out of range for type {name}");
            return Error::user(message).code("22003");
        }
        Error::user(format!("{text:?} is no value of type {name}")).code("22P02")
    };
    Ok(match data_type {
        t if t.is_string() => {
            return cast(&(Arc::new(StringArray::from(vec![text])) as _), t, &wrong);
        }
        DataType::Null => Arc::new(StringArray::from(vec![text])),
        DataType::Boolean => {
            let lower = trimmed.to_ascii_lowercase();
            let is = |word: &str, least: usize| lower.len() >= least && word.starts_with(&lower);
            let value = match lower.as_str() {
                "1" => true,
                "0" => false,
                _ if is("true", 1) || is("yes", 1) || is("on", 2) => true,
                _ if is("false", 1) || is("no", 1) || is("off", 2) => false,
                _ => return Err(wrong()),
            };
            Arc::new(BooleanArray::from(vec![value]))
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            let value = bytea::parse(text)?;
            let array: ArrayRef = Arc::new(BinaryArray::from(vec![&value[..]]));
            return cast(&array, data_type, &wrong);
        }
        DataType::Decimal128(..) => decimal(trimmed).ok_or_else(wrong)?,
        t if text_values::are_read(t) => text_values::read_one(text, t, zone)?,
        t => match types::item(t) {
            Some(item) => {
                let mut rest = trimmed;
                let list = list(&mut rest, item, 0, zone)?;
                if !rest.is_empty() {
                    return Err(wrong());
                }
                return if innermost(t).is_decimal() { Ok(list) } else { cast(&list, t, &wrong) };
            }
            None => return cast(&(Arc::new(StringArray::from(vec![trimmed])) as _), t, &wrong),
        },
    })
}

/// Whether a text spells a whole number.
fn is_whole(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

/// What lists, or lists of lists, are of.
fn innermost(data_type: &DataType) -> &DataType {
    types::item(data_type).map_or(data_type, innermost)
}

/// Lists, or lists of lists, of another type.
fn with_innermost(data_type: &DataType, to: &DataType) -> DataType {
    match types::item(data_type) {
        Some(item) => DataType::new_list(with_innermost(item, to), true),
        None => to.clone(),
    }
}

fn cast(array: &ArrayRef, data_type: &DataType, wrong: &dyn Fn() -> Error) -> Result<ArrayRef> {
    if array.data_type() == data_type {
        return Ok(Arc::clone(array));
    }
    let options = CastOptions { safe: false, format_options: FormatOptions::new() };
    cast_with_options(array, data_type, &options).map_err(|_| wrong())
}

/// With the digits that it has: a type of its own for each value, so that none is lost.
fn decimal(text: &str) -> Option<ArrayRef> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut digits = format!("{whole}{fraction}");
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut scale = (fraction.len() as i32).saturating_sub(exponent);
    // Zeros at both ends say nothing.
    digits.drain(..digits.len() - digits.trim_start_matches('0').len());
    while (scale > 38 || scale > 0 && digits.len() > 38) && digits.ends_with('0') {
        digits.pop();
        scale -= 1;
    }
    if digits.is_empty() {
        scale = scale.clamp(0, 38);
    }
    if !(-38..=38).contains(&scale) {
        return None;
    }
    while scale < 0 {
        digits.push('0');
        scale += 1;
    }
    if digits.len() > 38 {
        return None;
    }
    let value: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    let precision = digits.len().max(scale as usize).max(1) as u8;
    let array = Decimal128Array::from(vec![if negative { -value } else { value }]);
    Some(Arc::new(array.with_precision_and_scale(precision, scale as i8).ok()?))
}

/// Lists in lists; deeper ones are refused before the stack is.
const LIST_DEPTH_MAX: usize = 6;

/// `{a,"b c",NULL,{…}}` off the front of `rest`.
fn list(rest: &mut &str, item: &DataType, depth: usize, zone: &str) -> Result<ArrayRef> {
    let broken = |rest: &str| {
        Error::user("a list of the client is broken")
            .code("22P02")
            .detail(format!(
                "what is not understood: {:?}",
                rest.chars().take(40).collect::<String>()
            ))
            .hint("{1,2,NULL} is a list, {\"a b\"} one of a text with a blank")
    };
    if depth > LIST_DEPTH_MAX {
        return Err(Error::user("a list of the client is nested too deeply").code("54000"));
    }
    *rest = rest.strip_prefix('{').ok_or_else(|| broken(rest))?.trim_start();
    let mut items: Vec<ArrayRef> = vec![];
    if let Some(after) = rest.strip_prefix('}') {
        *rest = after.trim_start();
        return list_of(items, item);
    }
    loop {
        if rest.starts_with('{') {
            let inner = types::item(item).ok_or_else(|| broken(rest))?;
            items.push(list(rest, inner, depth + 1, zone)?);
        } else {
            let (text, quoted) = element(rest).ok_or_else(|| broken(rest))?;
            items.push(match quoted {
                false if text.eq_ignore_ascii_case("null") => new_null_array(item, 1),
                _ => parse(&text, item, zone)?,
            });
        }
        *rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix(',') {
            *rest = after.trim_start();
        } else {
            *rest = rest.strip_prefix('}').ok_or_else(|| broken(rest))?.trim_start();
            return list_of(items, item);
        }
    }
}

/// A text up to a comma or a brace, and whether it stood in quotes.
fn element(rest: &mut &str) -> Option<(String, bool)> {
    let mut text = String::new();
    let mut chars = rest.char_indices();
    if rest.starts_with('"') {
        chars.next();
        loop {
            match chars.next()? {
                (_, '\\') => text.push(chars.next()?.1),
                (i, '"') => {
                    *rest = &rest[i + 1..];
                    return Some((text, true));
                }
                (_, c) => text.push(c),
            }
        }
    }
    loop {
        match chars.next()? {
            (_, '\\') => text.push(chars.next()?.1),
            (i, ',' | '}') => {
                *rest = &rest[i..];
                let text = text.trim_end().to_string();
                return (!text.is_empty()).then_some((text, false));
            }
            (_, '{' | '"') => return None,
            (_, c) => text.push(c),
        }
    }
}

/// A list of these, each an array of one element.
fn list_of(items: Vec<ArrayRef>, item: &DataType) -> Result<ArrayRef> {
    let broken = |e| {
        Error::user(format!("a list of the client has items of several types: {e}")).code("22P02")
    };
    let items = of_one_type(items);
    let parts: Vec<&dyn Array> = items.iter().map(AsRef::as_ref).collect();
    let values = match parts[..] {
        [] => new_empty_array(item),
        _ => concat(&parts).map_err(broken)?,
    };
    let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths([values.len()]);
    Ok(Arc::new(ListArray::try_new(field, offsets, values, None).map_err(broken)?))
}

/// Numerics, each with the digits that it has, as ones that have room for the digits of all.
fn of_one_type(items: Vec<ArrayRef>) -> Vec<ArrayRef> {
    let known = items.iter().filter(|item| item.is_valid(0));
    let digits = known.filter_map(|item| match innermost(item.data_type()) {
        DataType::Decimal128(precision, scale) => Some((*precision as i8 - scale, *scale)),
        _ => None,
    });
    let most = digits.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)));
    let Some((before, behind)) = most.filter(|(before, behind)| before + behind <= 38) else {
        return items;
    };
    let common = DataType::Decimal128((before + behind) as u8, behind);
    let all = items.iter().map(|item| match innermost(item.data_type()).is_decimal() {
        true => arrow::compute::cast(item, &with_innermost(item.data_type(), &common)),
        false => Ok(Arc::clone(item)),
    });
    all.collect::<std::result::Result<Vec<_>, _>>().unwrap_or(items)
}

fn binary(bytes: Bytes, oid: u32, data_type: &DataType, zone: &str) -> Result<ArrayRef> {
    let sent = bytes.clone();
    let wrong = || {
        Error::user(format!("{} bytes are no value of PostgreSQL's type {oid}", sent.len()))
            .code("22P03")
    };
    let fixed = |n: usize| if bytes.len() == n { Ok(bytes.clone()) } else { Err(wrong()) };
    let array: ArrayRef = match oid {
        types::BOOL => Arc::new(BooleanArray::from(vec![fixed(1)?[0] != 0])),
        types::INT2 => Arc::new(Int16Array::from(vec![fixed(2)?.get_i16()])),
        types::INT4 => Arc::new(Int32Array::from(vec![fixed(4)?.get_i32()])),
        types::OID => Arc::new(Int64Array::from(vec![i64::from(fixed(4)?.get_u32())])),
        types::INT8 => Arc::new(Int64Array::from(vec![fixed(8)?.get_i64()])),
        types::FLOAT4 => Arc::new(Float32Array::from(vec![fixed(4)?.get_f32()])),
        types::FLOAT8 => Arc::new(Float64Array::from(vec![fixed(8)?.get_f64()])),
        types::BYTEA => Arc::new(BinaryArray::from(vec![&bytes[..]])),
        types::NUMERIC => {
            let text = numeric::read(Body(bytes))?;
            decimal(&text).ok_or_else(|| {
                Error::user(format!("the number {text} has more than 38 digits")).code("22003")
            })?
        }
        types::DATE => {
            let days = fixed(4)?.get_i32().checked_add((EPOCH_US / 86_400_000_000) as i32);
            Arc::new(Date32Array::from(vec![days.ok_or_else(wrong)?]))
        }
        types::TIME => Arc::new(Time64MicrosecondArray::from(vec![fixed(8)?.get_i64()])),
        types::TIMESTAMP | types::TIMESTAMPTZ => {
            let us = fixed(8)?.get_i64().checked_add(EPOCH_US).ok_or_else(wrong)?;
            let array = TimestampMicrosecondArray::from(vec![us]);
            match oid {
                types::TIMESTAMP => Arc::new(array),
                _ => Arc::new(array.with_timezone("+00:00")),
            }
        }
        types::INTERVAL => {
            let mut bytes = fixed(16)?;
            let ns = bytes.get_i64().checked_mul(1_000).ok_or_else(wrong)?;
            let days = bytes.get_i32();
            let value = IntervalMonthDayNano::new(bytes.get_i32(), days, ns);
            Arc::new(IntervalMonthDayNanoArray::from(vec![value]))
        }
        // jsonb has the version of its format before the text.
        types::JSONB => return parse(utf8(bytes.get(1..).ok_or_else(wrong)?)?, data_type, zone),
        types::UUID => {
            let hex: String = fixed(16)?.iter().map(|b| format!("{b:02x}")).collect();
            let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
            return parse(&parts.join("-"), data_type, zone);
        }
        _ if types::item(data_type).is_some() => binary_list(Body(bytes), data_type, zone)?,
        _ => return parse(utf8(&bytes)?, data_type, zone),
    };
    match data_type {
        // Of any precision.
        t if innermost(t).is_decimal() && innermost(array.data_type()).is_decimal() => Ok(array),
        t => cast(&array, t, &wrong),
    }
}

fn binary_list(mut body: Body, data_type: &DataType, zone: &str) -> Result<ArrayRef> {
    let broken = || Error::user("a list of the client is broken").code("08P01");
    let dimensions = body.u32()? as usize;
    body.u32()?;
    let oid = body.u32()?;
    if dimensions > LIST_DEPTH_MAX {
        return Err(Error::user("a list of the client is nested too deeply").code("54000"));
    }
    let mut lengths = vec![];
    for _ in 0..dimensions {
        lengths.push(body.u32()? as usize);
        body.u32()?;
    }
    let item = types::item(data_type).ok_or_else(broken)?;
    if lengths.is_empty() {
        return list_of(vec![], item);
    }
    let list = dimension(&mut body, &lengths, oid, item, zone)?;
    body.end()?;
    Ok(list)
}

fn dimension(
    body: &mut Body,
    lengths: &[usize],
    oid: u32,
    item: &DataType,
    zone: &str,
) -> Result<ArrayRef> {
    let Some((length, rest)) = lengths.split_first() else {
        return match body.value()? {
            None => Ok(new_null_array(item, 1)),
            Some(bytes) => binary(bytes, oid, item, zone),
        };
    };
    // Each item has four bytes at least.
    if *length > body.0.len() {
        return Err(Error::user("a list of the client has fewer items than it says").code("08P01"));
    }
    let inner = if rest.is_empty() { Some(item) } else { types::item(item) };
    let inner = inner.ok_or_else(|| {
        Error::user("a list of the client has more dimensions than its type").code("22P02")
    })?;
    let items = (0..*length).map(|_| dimension(body, rest, oid, inner, zone));
    list_of(items.collect::<Result<_>>()?, item)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_their_type_are_out_of_range() {
        let check = |text: &str, data_type: DataType, expected: &str| {
            let error = parse(text, &data_type, "UTC").unwrap_err();
            assert_eq!(error.sqlstate(), expected, "{text} {data_type}");
        };
        let list = DataType::new_list(DataType::Int32, true);
        check("3000000000", DataType::Int32, "22003");
        check(" -32769 ", DataType::Int16, "22003");
        check("99999999999999999999", DataType::Int64, "22003");
        check("{1,3000000000}", list.clone(), "22003");
        check("3000000000x", DataType::Int32, "22P02");
        check("1.5", DataType::Int32, "22P02");
        check("{1,x}", list, "22P02");
        check("", DataType::Int32, "22P02");
    }
}
