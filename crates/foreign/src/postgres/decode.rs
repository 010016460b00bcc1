//! PostgreSQL's types and the binary form of their values.

use arrow::datatypes::IntervalMonthDayNano;
use tokio_postgres::types::{FromSql, Kind, Type};

use crate::cells::{Cell, Cells, Read};

/// Days from 1970 to 2000, where PostgreSQL begins to count.
const DAYS_TO_2000: i32 = 10_957;
const MICROS_TO_2000: i64 = 946_684_800_000_000;
const MICROS_PER_DAY: i64 = 86_400_000_000;
/// Digits that a numeric has here, and those behind the point where it does not say.
const DIGITS_MAX: u8 = 38;
const SCALE: i8 = 10;

/// The bytes of a value of any type.
#[derive(Clone, Copy)]
pub struct Raw<'a>(pub &'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Raw(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// How a column of that type is read.
pub fn read_of(of: &Type, modifier: i32) -> Read {
    match *of {
        Type::BOOL => Read::Boolean,
        Type::INT2 => Read::SmallInt,
        Type::INT4 => Read::Int,
        Type::INT8 => Read::BigInt,
        Type::FLOAT4 => Read::Real,
        Type::FLOAT8 => Read::Double,
        Type::NUMERIC => numeric(modifier),
        Type::TEXT | Type::VARCHAR | Type::BPCHAR => Read::Text,
        Type::BYTEA => Read::Bytes,
        Type::DATE => Read::Date,
        Type::TIME => Read::Time,
        Type::TIMESTAMP => Read::Timestamp,
        Type::TIMESTAMPTZ => Read::Instant,
        Type::INTERVAL => Read::Interval,
        _ => match of.kind() {
            Kind::Array(item) => Read::List(Box::new(read_of(item, modifier))),
            Kind::Domain(base) => read_of(base, modifier),
            _ => Read::AsText,
        },
    }
}

/// A numeric by its modifier: digits in the upper half, those behind the point in the lower 11 bits.
fn numeric(modifier: i32) -> Read {
    if modifier < 4 {
        return Read::Numeric(DIGITS_MAX, SCALE);
    }
    let digits = (modifier - 4) >> 16 & 0xffff;
    let scale = ((modifier - 4) & 0x7ff ^ 1024) - 1024;
    // `numeric(3, -2)` has two zeros more; `numeric(2, 5)` has only zeros before its digits.
    let (digits, scale) = match scale {
        ..0 => (digits - scale, 0),
        _ => (digits.max(scale), scale),
    };
    match (u8::try_from(digits), i8::try_from(scale)) {
        (Ok(digits), Ok(scale)) if digits <= DIGITS_MAX => Read::Numeric(digits, scale),
        (_, Ok(scale)) if scale <= DIGITS_MAX as i8 => Read::Numeric(DIGITS_MAX, scale),
        _ => Read::Numeric(DIGITS_MAX, SCALE),
    }
}

/// One value into a column.
///
/// # Errors
/// Why it is none of ours.
pub fn decode(raw: Option<&[u8]>, read: &Read, into: &mut Cells) -> Result<(), String> {
    let Some(raw) = raw else { return push(into, Cell::Null) };
    if let Read::List(item) = read {
        return list(raw, item, into);
    }
    let cell = match read {
        Read::Boolean => Cell::Boolean(fixed::<1>(raw)? != [0]),
        Read::SmallInt => Cell::SmallInt(i16::from_be_bytes(fixed(raw)?)),
        Read::Int => Cell::Int(i32::from_be_bytes(fixed(raw)?)),
        Read::BigInt => Cell::BigInt(i64::from_be_bytes(fixed(raw)?)),
        Read::Real => Cell::Real(f32::from_be_bytes(fixed(raw)?)),
        Read::Double => Cell::Double(f64::from_be_bytes(fixed(raw)?)),
        Read::Numeric(digits, scale) => Cell::Numeric(decimal(raw, *digits, *scale)?),
        Read::Text | Read::AsText => {
            Cell::Text(str::from_utf8(raw).map_err(|_| "the text is not UTF-8".to_owned())?)
        }
        Read::Bytes => Cell::Bytes(raw),
        Read::Date => match i32::from_be_bytes(fixed(raw)?) {
            i32::MAX => return Err("the date is infinity, which is none here".to_owned()),
            i32::MIN => return Err("the date is -infinity, which is none here".to_owned()),
            days => Cell::Date(days + DAYS_TO_2000),
        },
        Read::Time => match i64::from_be_bytes(fixed(raw)?) {
            micros @ 0..MICROS_PER_DAY => Cell::Time(micros * 1000),
            _ => return Err("the time is 24:00:00, which is none here".to_owned()),
        },
        Read::Timestamp | Read::Instant => match i64::from_be_bytes(fixed(raw)?) {
            i64::MAX => return Err("the timestamp is infinity, which is none here".to_owned()),
            i64::MIN => return Err("the timestamp is -infinity, which is none here".to_owned()),
            micros => match micros.checked_add(MICROS_TO_2000) {
                Some(micros) => Cell::Timestamp(micros),
                None => return Err("the timestamp lies too far ahead".to_owned()),
            },
        },
        Read::Interval => {
            let raw: [u8; 16] = fixed(raw)?;
            let micros = i64::from_be_bytes(fixed(&raw[..8])?);
            let days = i32::from_be_bytes(fixed(&raw[8..12])?);
            let months = i32::from_be_bytes(fixed(&raw[12..])?);
            let nanos = micros.checked_mul(1000).ok_or("the interval is too long")?;
            Cell::Interval(IntervalMonthDayNano::new(months, days, nanos))
        }
        Read::List(_) => return Err("a list is none".to_owned()),
    };
    push(into, cell)
}

fn push(into: &mut Cells, cell: Cell<'_>) -> Result<(), String> {
    into.push(cell).map_err(|e| e.message().to_owned())
}

fn fixed<const N: usize>(raw: &[u8]) -> Result<[u8; N], String> {
    raw.try_into().map_err(|_| format!("the value has {} bytes and not {N}", raw.len()))
}

/// Takes so many bytes from the front.
fn take<'a>(raw: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], String> {
    let (taken, rest) = raw.split_at_checked(bytes).ok_or("the value is cut short")?;
    *raw = rest;
    Ok(taken)
}

fn int(raw: &mut &[u8]) -> Result<i32, String> {
    Ok(i32::from_be_bytes(fixed(take(raw, 4)?)?))
}

/// Dimensions, whether there are NULLs, the type of the items; for each dimension how long it is and where
/// it begins; then the items.
fn list(mut raw: &[u8], item: &Read, into: &mut Cells) -> Result<(), String> {
    let dimensions = int(&mut raw)?;
    take(&mut raw, 8)?;
    let items = match dimensions {
        0 => 0,
        1 => {
            let items = int(&mut raw)?;
            take(&mut raw, 4)?;
            usize::try_from(items).map_err(|_| "the array is damaged")?
        }
        n => return Err(format!("the array has {n} dimensions; lists have one")),
    };
    let Cells::List(lists) = into else { return Err("the column holds no lists".to_owned()) };
    for _ in 0..items {
        let value = match usize::try_from(int(&mut raw)?) {
            Ok(bytes) => Some(take(&mut raw, bytes)?),
            // -1
            Err(_) => None,
        };
        decode(value, item, &mut lists.items)?;
    }
    lists.end(items);
    Ok(())
}

/// How many groups of four digits, the power of 10,000 of the first one, the sign, and how many digits are
/// shown behind the point; then the groups.
fn decimal(mut raw: &[u8], digits: u8, scale: i8) -> Result<i128, String> {
    let mut short = || Ok::<_, String>(u16::from_be_bytes(fixed(take(&mut raw, 2)?)?));
    let (groups, weight, sign, _) = (short()?, short()? as i16, short()?, short()?);
    let is_negative = match sign {
        0 => false,
        0x4000 => true,
        0xc000 => return Err("the numeric is NaN, which is none here".to_owned()),
        0xd000 => return Err("the numeric is Infinity, which is none here".to_owned()),
        0xf000 => return Err("the numeric is -Infinity, which is none here".to_owned()),
        _ => return Err("the numeric is damaged".to_owned()),
    };
    let large = || {
        format!(
            "the numeric has more than the {} digits before the point",
            i16::from(digits) - i16::from(scale)
        )
    };
    let long = || format!("the numeric has more than {scale} digits behind the point");
    let mut value: i128 = 0;
    for at in 0..groups {
        let group = i128::from(short()?);
        if group == 0 {
            continue;
        }
        let power = 4 * (i32::from(weight) - i32::from(at)) + i32::from(scale);
        let part = if power >= 0 {
            let ten = 10_i128.checked_pow(power.unsigned_abs()).ok_or_else(large)?;
            group.checked_mul(ten).ok_or_else(large)?
        } else {
            let ten = 10_i128.checked_pow(power.unsigned_abs()).ok_or_else(long)?;
            if group % ten != 0 {
                return Err(long());
            }
            group / ten
        };
        value = value.checked_add(part).ok_or_else(large)?;
    }
    if value >= 10_i128.pow(u32::from(digits)) {
        return Err(large());
    }
    Ok(if is_negative { -value } else { value })
}
