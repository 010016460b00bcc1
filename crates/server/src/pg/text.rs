//! Values as PostgreSQL writes them, with `DateStyle` ISO, `IntervalStyle` postgres.

use std::fmt::Write;

use arrow::array::{Array, ArrayRef, AsArray, StructArray};
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bytes::{BufMut, BytesMut};
use thalweg_base::text;

/// An interval: its parts do not convert into each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub months: i32,
    pub days: i32,
    pub us: i64,
}

/// Writing to a buffer cannot fail.
macro_rules! put {
    ($buffer:expr, $($arg:tt)*) => {{ let _ = write!($buffer, $($arg)*); }};
}

pub fn integer(buffer: &mut BytesMut, value: i64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        buffer.put_u8(b'-');
    }
    buffer.put_slice(&digits[at..]);
}

/// `scale` digits after the point.
pub fn decimal(buffer: &mut BytesMut, value: i128, scale: usize) {
    // 39 digits, and zeros before them as far as the point.
    let mut digits = [b'0'; 128];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    // Division of 128 bits is slow, and most numbers do not need it.
    while rest > u128::from(u64::MAX) {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let mut rest = rest as u64;
    while rest > 0 {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let point = digits.len() - scale;
    let start = at.min(point - 1);
    if value < 0 {
        buffer.put_u8(b'-');
    }
    buffer.put_slice(&digits[start..point]);
    if scale > 0 {
        buffer.put_u8(b'.');
        buffer.put_slice(&digits[point..]);
    }
}

pub fn float8(buffer: &mut BytesMut, value: f64) {
    // Writing to a buffer cannot fail.
    let _ = text::float8(buffer, value);
}

pub fn float4(buffer: &mut BytesMut, value: f32) {
    let _ = text::float4(buffer, value);
}

pub fn bytea(buffer: &mut BytesMut, value: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    buffer.reserve(2 + 2 * value.len());
    buffer.put_slice(b"\\x");
    for byte in value {
        buffer.put_u8(DIGITS[usize::from(byte >> 4)]);
        buffer.put_u8(DIGITS[usize::from(byte & 15)]);
    }
}

/// Days since 1970 as year, month and day, after Howard Hinnant's `civil_from_days`.
pub fn civil(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month as u32, day as u32)
}

fn padded(buffer: &mut BytesMut, value: u64, width: usize) {
    let digits = value.checked_ilog10().unwrap_or(0) as usize + 1;
    (digits..width).for_each(|_| buffer.put_u8(b'0'));
    integer(buffer, value as i64);
}

/// Returns whether the year is before Christ, which is said at the end.
fn day(buffer: &mut BytesMut, days: i64) -> bool {
    let (year, month, day) = civil(days);
    // There was no year 0.
    padded(buffer, if year > 0 { year } else { 1 - year } as u64, 4);
    buffer.put_u8(b'-');
    padded(buffer, month.into(), 2);
    buffer.put_u8(b'-');
    padded(buffer, day.into(), 2);
    year <= 0
}

pub fn date(buffer: &mut BytesMut, days: i64) {
    if day(buffer, days) {
        buffer.put_slice(b" BC");
    }
}

/// Microseconds since midnight.
pub fn time(buffer: &mut BytesMut, us: i64) {
    clock(buffer, us.unsigned_abs());
}

fn clock(buffer: &mut BytesMut, us: u64) {
    let seconds = us / 1_000_000;
    padded(buffer, seconds / 3_600, 2);
    buffer.put_u8(b':');
    padded(buffer, seconds / 60 % 60, 2);
    buffer.put_u8(b':');
    padded(buffer, seconds % 60, 2);
    let mut fraction = us % 1_000_000;
    if fraction > 0 {
        let mut width = 6;
        while fraction.is_multiple_of(10) {
            fraction /= 10;
            width -= 1;
        }
        buffer.put_u8(b'.');
        padded(buffer, fraction, width);
    }
}

const DAY_US: i64 = 86_400_000_000;

/// Microseconds since 1970.
pub fn timestamp(buffer: &mut BytesMut, us: i64, offset_s: Option<i64>) {
    let before_christ = day(buffer, us.div_euclid(DAY_US));
    buffer.put_u8(b' ');
    clock(buffer, us.rem_euclid(DAY_US) as u64);
    if let Some(offset_s) = offset_s {
        let sign = if offset_s < 0 { '-' } else { '+' };
        let s = offset_s.unsigned_abs();
        put!(buffer, "{sign}{:02}", s / 3600);
        if s % 3600 != 0 {
            put!(buffer, ":{:02}", s / 60 % 60);
        }
        if s % 60 != 0 {
            put!(buffer, ":{:02}", s % 60);
        }
    }
    if before_christ {
        buffer.put_slice(b" BC");
    }
}

/// `1 year 2 mons -3 days +04:05:06.7`: parts that are zero are left out, and a sign is written
/// where the part before has another.
pub fn interval(buffer: &mut BytesMut, span: Span) {
    let Span { months, days, us } = span;
    let parts = [(months / 12, "year"), (months % 12, "mon"), (days, "day")];
    let mut first = true;
    let mut negative = false;
    for (count, unit) in parts.into_iter().filter(|(count, _)| *count != 0) {
        if !first {
            buffer.put_u8(b' ');
        }
        if negative && count > 0 {
            buffer.put_u8(b'+');
        }
        let plural = if count == 1 { "" } else { "s" };
        put!(buffer, "{count} {unit}{plural}");
        (first, negative) = (false, count < 0);
    }
    if us != 0 || first {
        if !first {
            buffer.put_u8(b' ');
        }
        match us < 0 {
            true => buffer.put_u8(b'-'),
            false if negative => buffer.put_u8(b'+'),
            false => {}
        }
        clock(buffer, us.unsigned_abs());
    }
}

/// An item of an array, in quotes if it could be taken for something else.
pub fn list_item(buffer: &mut BytesMut, item: &[u8]) {
    let _ = text::list_item(buffer, &String::from_utf8_lossy(item));
}

/// A value of a struct or a map, and what is in it.
pub fn json(buffer: &mut BytesMut, array: &ArrayRef, row: usize) {
    use DataType as T;
    if array.is_null(row) || array.data_type() == &T::Null {
        return buffer.put_slice(b"null");
    }
    let items = |buffer: &mut BytesMut, items: ArrayRef| {
        buffer.put_u8(b'[');
        for i in 0..items.len() {
            if i > 0 {
                buffer.put_u8(b',');
            }
            json(buffer, &items, i);
        }
        buffer.put_u8(b']');
    };
    match array.data_type() {
        T::Struct(_) => {
            let array: &StructArray = array.as_struct();
            buffer.put_u8(b'{');
            for (i, (field, column)) in array.fields().iter().zip(array.columns()).enumerate() {
                if i > 0 {
                    buffer.put_u8(b',');
                }
                json_text(buffer, field.name());
                buffer.put_u8(b':');
                json(buffer, column, row);
            }
            buffer.put_u8(b'}');
        }
        T::Map(..) => {
            let entries = array.as_map().value(row);
            let keys = ArrayFormatter::try_new(entries.column(0), &FormatOptions::new());
            buffer.put_u8(b'{');
            for i in 0..entries.len() {
                if i > 0 {
                    buffer.put_u8(b',');
                }
                let key = keys.as_ref().map(|k| k.value(i).to_string()).unwrap_or_default();
                json_text(buffer, &key);
                buffer.put_u8(b':');
                json(buffer, entries.column(1), i);
            }
            buffer.put_u8(b'}');
        }
        T::List(_) => items(buffer, array.as_list::<i32>().value(row)),
        T::LargeList(_) => items(buffer, array.as_list::<i64>().value(row)),
        T::FixedSizeList(..) => items(buffer, array.as_fixed_size_list().value(row)),
        data_type => {
            let plain =
                data_type.is_integer() || data_type.is_decimal() || matches!(data_type, T::Boolean);
            let Ok(formatter) = ArrayFormatter::try_new(array, &FormatOptions::new()) else {
                return buffer.put_slice(b"null");
            };
            let value = formatter.value(row).to_string();
            let finite = data_type.is_floating() && value.parse::<f64>().is_ok_and(f64::is_finite);
            if plain || finite {
                buffer.put_slice(value.as_bytes());
            } else {
                json_text(buffer, &value);
            }
        }
    }
}

fn json_text(buffer: &mut BytesMut, text: &str) {
    buffer.put_u8(b'"');
    for c in text.chars() {
        match c {
            '"' => buffer.put_slice(b"\\\""),
            '\\' => buffer.put_slice(b"\\\\"),
            '\n' => buffer.put_slice(b"\\n"),
            '\r' => buffer.put_slice(b"\\r"),
            '\t' => buffer.put_slice(b"\\t"),
            c if c < ' ' => put!(buffer, "\\u{:04x}", u32::from(c)),
            c => put!(buffer, "{c}"),
        }
    }
    buffer.put_u8(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut BytesMut)) -> String {
        let mut buffer = BytesMut::new();
        write(&mut buffer);
        String::from_utf8(buffer.to_vec()).unwrap()
    }

    /// As PostgreSQL 15 writes them.
    #[test]
    fn floats_are_postgresqls() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (100.0, "100"),
            (0.1, "0.1"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (123456789012345.0, "123456789012345"),
            (1e15, "1e+15"),
            (1.5e300, "1.5e+300"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (1.0 / 3.0, "0.3333333333333333"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(written(|b| float8(b, value)), expected);
        }
        assert_eq!(written(|b| float4(b, 0.1)), "0.1");
        assert_eq!(written(|b| float4(b, 1e6)), "1e+06");
        assert_eq!(written(|b| float4(b, 123456.0)), "123456");
    }

    #[test]
    fn numbers_and_bytes() {
        for (value, expected) in [(0, "0"), (-7, "-7"), (i64::MIN, "-9223372036854775808")] {
            assert_eq!(written(|b| integer(b, value)), expected);
        }
        for (value, scale, expected) in [
            (0, 2, "0.00"),
            (5, 2, "0.05"),
            (-5, 2, "-0.05"),
            (12345, 2, "123.45"),
            (12345, 0, "12345"),
            (i128::MAX, 38, "1.70141183460469231731687303715884105727"),
        ] {
            assert_eq!(written(|b| decimal(b, value, scale)), expected);
        }
        assert_eq!(written(|b| bytea(b, &[0, 255, 16])), "\\x00ff10");
    }

    #[test]
    fn times() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (-719_162, "0001-01-01"),
            (-719_163, "0001-12-31 BC"),
            (11_016, "2000-02-29"),
            (2_932_896, "9999-12-31"),
            (2_932_897, "10000-01-01"),
        ] {
            assert_eq!(written(|b| date(b, days)), expected);
        }
        for (us, zone, expected) in [
            (0, None, "1970-01-01 00:00:00"),
            (-1, None, "1969-12-31 23:59:59.999999"),
            (1_500_000, Some(0), "1970-01-01 00:00:01.5+00"),
            (0, Some(-12_600), "1970-01-01 00:00:00-03:30"),
            (-62_135_596_800_000_001, None, "0001-12-31 23:59:59.999999 BC"),
        ] {
            assert_eq!(written(|b| timestamp(b, us, zone)), expected);
        }
        assert_eq!(written(|b| time(b, 86_399_000_100)), "23:59:59.0001");
    }

    #[test]
    fn intervals_are_postgresqls() {
        for (months, days, us, expected) in [
            (0, 0, 0, "00:00:00"),
            (14, 3, 14_706_789_000, "1 year 2 mons 3 days 04:05:06.789"),
            (-1, 3, -1_000_000, "-1 mons +3 days -00:00:01"),
            (0, -3, 1_000_000, "-3 days +00:00:01"),
            (12, 0, 0, "1 year"),
        ] {
            assert_eq!(written(|b| interval(b, Span { months, days, us })), expected);
        }
    }

    #[test]
    fn items_of_arrays_are_quoted_where_they_must() {
        for (item, expected) in [
            ("a", "a"),
            ("", "\"\""),
            ("NULL", "\"NULL\""),
            ("a b", "\"a b\""),
            ("a\"\\", "\"a\\\"\\\\\""),
        ] {
            assert_eq!(written(|b| list_item(b, item.as_bytes())), expected);
        }
    }
}
