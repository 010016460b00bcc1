//! Single values from bytes: no allocation, no intermediate string.
//!
//! Every function takes the whole field and accepts it entirely or not at all.

use super::dates::{Ordered, ordered};

/// Why a field is not a value of its column's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bad {
    /// It does not look like the type at all.
    Syntax,
    /// It looks right, but the type cannot hold so large (or small) a value.
    Range,
    /// More digits after the point than the type keeps; dropping them would change the value.
    Fraction,
    /// A local time for a column whose zone needs rules we do not carry.
    Offset,
    /// Text that is not UTF-8.
    Utf8,
    /// A quoted field that goes on after its closing quote.
    Quote,
    /// NULL for a NOT NULL column.
    Null,
}

const POW10: [u64; 20] = {
    let mut table = [1u64; 20];
    let mut i = 1;
    while i < 20 {
        table[i] = table[i - 1] * 10;
        i += 1;
    }
    table
};

const POW10_WIDE: [i128; 39] = {
    let mut table = [1i128; 39];
    let mut i = 1;
    while i < 39 {
        table[i] = table[i - 1] * 10;
        i += 1;
    }
    table
};

/// Powers of ten that a double holds exactly.
const POW10_F64: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// The digits of `bytes` as a number, eight at a time where there are eight.
#[inline(always)]
fn digits(mut bytes: &[u8]) -> Result<u64, Bad> {
    if bytes.is_empty() {
        return Err(Bad::Syntax);
    }
    if bytes.len() > 19 {
        return digits_long(bytes);
    }
    let mut value = 0u64;
    while let Some((eight, rest)) = bytes.split_first_chunk::<8>() {
        value =
            value * 100_000_000 + eight_digits(u64::from_le_bytes(*eight)).ok_or(Bad::Syntax)?;
        bytes = rest;
    }
    for &byte in bytes {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(Bad::Syntax);
        }
        value = value * 10 + u64::from(digit);
    }
    Ok(value)
}

/// Eight ASCII digits in a word, most significant first in memory: pairs, fours, then all eight
/// are folded with one multiplication each (Lemire, "Quickly parsing eight digits", 2018).
#[inline]
fn eight_digits(word: u64) -> Option<u64> {
    let low = word.wrapping_sub(0x3030_3030_3030_3030);
    let high = word.wrapping_add(0x4646_4646_4646_4646);
    if (low | high) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    let pairs = low.wrapping_mul(10).wrapping_add(low >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    Some(fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff)
}

#[cold]
fn digits_long(bytes: &[u8]) -> Result<u64, Bad> {
    if !bytes.iter().all(u8::is_ascii_digit) {
        return Err(Bad::Syntax);
    }
    bytes
        .iter()
        .try_fold(0u64, |value, b| value.checked_mul(10)?.checked_add(u64::from(b - b'0')))
        .ok_or(Bad::Range)
}

#[inline]
fn sign(bytes: &[u8]) -> (bool, &[u8]) {
    match bytes {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, bytes),
    }
}

#[inline(always)]
pub(super) fn signed(bytes: &[u8]) -> Result<i64, Bad> {
    let (negative, rest) = sign(bytes);
    let value = digits(rest)?;
    if negative {
        0i64.checked_sub_unsigned(value).ok_or(Bad::Range)
    } else {
        i64::try_from(value).map_err(|_| Bad::Range)
    }
}

#[inline]
pub(super) fn unsigned(bytes: &[u8]) -> Result<u64, Bad> {
    match sign(bytes) {
        (false, rest) => digits(rest),
        (true, rest) => match digits(rest)? {
            0 => Ok(0),
            _ => Err(Bad::Range),
        },
    }
}

/// A decimal as its unscaled integer; exact or an error. `precision` is at most 38.
#[inline]
pub(super) fn decimal(bytes: &[u8], precision: u8, scale: i8) -> Result<i128, Bad> {
    // Up to 18 digits and no exponent: all in 64 bits, which is nearly every value there is.
    if bytes.len() <= 18 && scale >= 0 {
        let (negative, rest) = sign(bytes);
        let mut value = 0u64;
        let mut count = 0usize;
        let mut fraction = None;
        let mut plain = true;
        for &byte in rest {
            let digit = byte.wrapping_sub(b'0');
            if digit <= 9 {
                value = value * 10 + u64::from(digit);
                count += 1;
            } else if byte == b'.' && fraction.is_none() {
                fraction = Some(count);
            } else {
                plain = false;
                break;
            }
        }
        let places = fraction.map_or(0, |at| count - at);
        if plain && count > 0 && places <= scale as usize && precision <= 38 {
            let shift = scale as usize - places;
            let scaled = if count + shift <= 19 {
                i128::from(value * POW10[shift])
            } else {
                i128::from(value).checked_mul(POW10_WIDE[shift.min(38)]).ok_or(Bad::Range)?
            };
            if scaled >= POW10_WIDE[precision as usize] {
                return Err(Bad::Range);
            }
            return Ok(if negative { -scaled } else { scaled });
        }
    }
    decimal_slow(bytes, precision, scale)
}

/// Long mantissas, exponents, negative scales, and the reason why something is not a decimal.
#[cold]
fn decimal_slow(bytes: &[u8], precision: u8, scale: i8) -> Result<i128, Bad> {
    let (negative, rest) = sign(bytes);
    let (mantissa, exponent) = match rest.iter().position(|b| matches!(b, b'e' | b'E')) {
        Some(at) => {
            let exponent = signed(&rest[at + 1..])?;
            (
                &rest[..at],
                i32::try_from(exponent).ok().filter(|e| e.abs() < 1000).ok_or(Bad::Range)?,
            )
        }
        None => (rest, 0),
    };
    let (whole, fraction) = match mantissa.iter().position(|&b| b == b'.') {
        Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
        None => (mantissa, &[][..]),
    };
    if whole.len() + fraction.len() == 0 || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return Err(Bad::Syntax);
    }
    let mut value = 0i128;
    let mut places = 0i32;
    // Zeros at the end of the fraction carry nothing and must not overflow the mantissa.
    let kept = fraction.iter().rposition(|&b| b != b'0').map_or(0, |at| at + 1);
    let fraction = &fraction[..kept];
    for &byte in whole.iter().chain(fraction) {
        value = value
            .checked_mul(10)
            .and_then(|v| v.checked_add(i128::from(byte - b'0')))
            .ok_or(Bad::Range)?;
    }
    places += i32::try_from(fraction.len()).map_err(|_| Bad::Range)?;
    let shift = exponent - places + i32::from(scale);
    if value == 0 {
        return Ok(0);
    }
    if shift >= 0 {
        let factor = POW10_WIDE.get(shift as usize).ok_or(Bad::Range)?;
        value = value.checked_mul(*factor).ok_or(Bad::Range)?;
    } else {
        let factor = POW10_WIDE.get(shift.unsigned_abs() as usize).ok_or(Bad::Fraction)?;
        if value % factor != 0 {
            return Err(Bad::Fraction);
        }
        value /= factor;
    }
    if value >= *POW10_WIDE.get(precision as usize).ok_or(Bad::Range)? {
        return Err(Bad::Range);
    }
    Ok(if negative { -value } else { value })
}

/// A double, correctly rounded. A mantissa below 2^53 over an exact power of ten needs one
/// division, which IEEE 754 rounds right (Clinger 1990); the rest goes to `str::parse`.
#[inline]
pub(super) fn float64(bytes: &[u8]) -> Result<f64, Bad> {
    if let Some((negative, mantissa, places)) = plain_float(bytes)
        && mantissa < 1 << 53
        && places < POW10_F64.len()
    {
        let value = mantissa as f64 / POW10_F64[places];
        return Ok(if negative { -value } else { value });
    }
    let text = std::str::from_utf8(bytes).map_err(|_| Bad::Syntax)?;
    let value: f64 = text.parse().map_err(|_| Bad::Syntax)?;
    finite(value.is_infinite(), bytes).map(|()| value)
}

#[inline]
pub(super) fn float32(bytes: &[u8]) -> Result<f32, Bad> {
    if let Some((negative, mantissa, places)) = plain_float(bytes)
        && mantissa < 1 << 24
        && places <= 10
    {
        let value = mantissa as f32 / POW10_F64[places] as f32;
        return Ok(if negative { -value } else { value });
    }
    let text = std::str::from_utf8(bytes).map_err(|_| Bad::Syntax)?;
    let value: f32 = text.parse().map_err(|_| Bad::Syntax)?;
    finite(value.is_infinite(), bytes).map(|()| value)
}

/// Sign, mantissa and digits after the point of a float without exponent and with at most 18 digits.
#[inline]
fn plain_float(bytes: &[u8]) -> Option<(bool, u64, usize)> {
    if bytes.len() > 19 {
        return None;
    }
    let (negative, rest) = sign(bytes);
    let mut mantissa = 0u64;
    let mut count = 0usize;
    let mut point = None;
    for &byte in rest {
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 {
            mantissa = mantissa * 10 + u64::from(digit);
            count += 1;
        } else if byte == b'.' && point.is_none() {
            point = Some(count);
        } else {
            return None;
        }
    }
    (count > 0).then(|| (negative, mantissa, point.map_or(0, |at| count - at)))
}

/// Digits that round to infinity are out of range; the word "inf" is not.
fn finite(infinite: bool, bytes: &[u8]) -> Result<(), Bad> {
    if infinite && bytes.iter().any(u8::is_ascii_digit) { Err(Bad::Range) } else { Ok(()) }
}

#[inline]
pub(super) fn boolean(bytes: &[u8]) -> Result<bool, Bad> {
    const TRUE: [&[u8]; 6] = [b"true", b"t", b"yes", b"y", b"on", b"1"];
    const FALSE: [&[u8]; 6] = [b"false", b"f", b"no", b"n", b"off", b"0"];
    if TRUE.iter().any(|word| bytes.eq_ignore_ascii_case(word)) {
        Ok(true)
    } else if FALSE.iter().any(|word| bytes.eq_ignore_ascii_case(word)) {
        Ok(false)
    } else {
        Err(Bad::Syntax)
    }
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar (Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms": years begin in March, so that the leap day comes last).
#[inline]
fn days(year: i32, month: i32, day: i32) -> i32 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[inline]
fn two(bytes: &[u8]) -> Result<i32, Bad> {
    match bytes {
        [a @ b'0'..=b'9', b @ b'0'..=b'9'] => Ok(i32::from(a - b'0') * 10 + i32::from(b - b'0')),
        _ => Err(Bad::Syntax),
    }
}

#[inline]
fn date_exact(bytes: &[u8; 10]) -> Result<i32, Bad> {
    if bytes[4] != b'-' || bytes[7] != b'-' {
        return Err(Bad::Syntax);
    }
    let year = two(&bytes[0..2])? * 100 + two(&bytes[2..4])?;
    civil(year, two(&bytes[5..7])?, two(&bytes[8..10])?)
}

/// Days since the epoch of a day that the calendar has.
#[inline]
pub(super) fn civil(year: i32, month: i32, day: i32) -> Result<i32, Bad> {
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let last = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return Err(Bad::Range),
    };
    if !(1..=last).contains(&day) {
        return Err(Bad::Range);
    }
    Ok(days(year, month, day))
}

/// Days since the epoch of `YYYY-MM-DD`; a time of midnight may follow, any other would be lost.
#[inline]
pub(super) fn date(bytes: &[u8]) -> Result<i32, Bad> {
    if let Ok(exact) = <&[u8; 10]>::try_from(bytes) {
        return date_exact(exact);
    }
    let moment = moment(bytes)?;
    if moment.offset_s.is_some() || moment.nanos != 0 || moment.local_s.rem_euclid(86_400) != 0 {
        return Err(Bad::Syntax);
    }
    i32::try_from(moment.local_s.div_euclid(86_400)).map_err(|_| Bad::Range)
}

/// Nanoseconds since midnight of `HH:MM[:SS[.fraction]]`, at most nine digits of fraction.
#[inline]
pub(super) fn time_ns(bytes: &[u8]) -> Result<i64, Bad> {
    if bytes.len() < 5 || bytes[2] != b':' {
        return Err(Bad::Syntax);
    }
    let (hours, minutes) = (two(&bytes[0..2])?, two(&bytes[3..5])?);
    let mut seconds = 0;
    let mut nanos = 0u64;
    match &bytes[5..] {
        [] => {}
        [b':', rest @ ..] if rest.len() >= 2 => {
            seconds = two(&rest[..2])?;
            match &rest[2..] {
                [] => {}
                [b'.' | b',', fraction @ ..] => nanos = fraction_ns(fraction)?,
                _ => return Err(Bad::Syntax),
            }
        }
        _ => return Err(Bad::Syntax),
    }
    if hours > 23 || minutes > 59 || seconds > 59 {
        return Err(Bad::Range);
    }
    Ok(i64::from(hours * 3600 + minutes * 60 + seconds) * 1_000_000_000 + nanos as i64)
}

fn fraction_ns(fraction: &[u8]) -> Result<u64, Bad> {
    let kept = fraction.iter().rposition(|&b| b != b'0').map_or(0, |at| at + 1);
    if fraction.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return Err(Bad::Syntax);
    }
    if kept > 9 {
        return Err(Bad::Fraction);
    }
    if kept == 0 {
        return Ok(0);
    }
    Ok(digits(&fraction[..kept])? * POW10[9 - kept])
}

/// A timestamp as written: the clock's reading, and the offset if one was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// Seconds since 1970-01-01 00:00:00 on the clock the text was read from.
    pub local_s: i64,
    pub nanos: u32,
    /// Seconds east of UTC.
    pub offset_s: Option<i32>,
}

/// `YYYY-MM-DD[(T| )HH:MM[:SS[.fraction]][Z|±HH[[:]MM]]]`, a space before the offset allowed.
#[inline]
pub(super) fn moment(bytes: &[u8]) -> Result<Moment, Bad> {
    let Some((day, rest)) = bytes.split_first_chunk::<10>() else { return Err(Bad::Syntax) };
    let midnight_s = i64::from(date_exact(day)?) * 86_400;
    let clock = match rest {
        [] => return Ok(Moment { local_s: midnight_s, nanos: 0, offset_s: None }),
        [b'T' | b't' | b' ', clock @ ..] => clock,
        _ => return Err(Bad::Syntax),
    };
    let end = clock
        .iter()
        .position(|b| !matches!(b, b'0'..=b'9' | b':' | b'.' | b','))
        .unwrap_or(clock.len());
    let ns = time_ns(&clock[..end])?;
    Ok(Moment {
        local_s: midnight_s + ns / 1_000_000_000,
        nanos: (ns % 1_000_000_000) as u32,
        offset_s: offset(&clock[end..])?,
    })
}

/// An offset from UTC, such as the end of a timestamp or the name of a fixed zone.
pub(super) fn offset(bytes: &[u8]) -> Result<Option<i32>, Bad> {
    let bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
    let (factor, rest) = match bytes {
        [] => return Ok(None),
        b"Z" | b"z" | b"UTC" => return Ok(Some(0)),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return Err(Bad::Syntax),
    };
    let (hours, minutes) = match rest.len() {
        2 => (two(rest)?, 0),
        4 => (two(&rest[..2])?, two(&rest[2..])?),
        5 if rest[2] == b':' => (two(&rest[..2])?, two(&rest[3..])?),
        _ => return Err(Bad::Syntax),
    };
    if hours > 18 || minutes > 59 {
        return Err(Bad::Range);
    }
    Ok(Some(factor * (hours * 3600 + minutes * 60)))
}

/// `seconds` and `nanos` in ticks of `per_second`, exactly.
#[inline]
pub(super) fn ticks(seconds: i64, nanos: u32, per_second: i64) -> Result<i64, Bad> {
    let nanos_per_tick = 1_000_000_000 / per_second;
    if i64::from(nanos) % nanos_per_tick != 0 {
        return Err(Bad::Fraction);
    }
    seconds
        .checked_mul(per_second)
        .and_then(|t| t.checked_add(i64::from(nanos) / nanos_per_tick))
        .ok_or(Bad::Range)
}

/// What a field looks like, for inference. What looks like a type can be read as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Boolean,
    Integer,
    /// An integer that no double is.
    Long,
    Float,
    /// A name, or infinite or no number: `Inf`, `Nan`.
    Worded,
    /// `yes` and `no`, which are booleans among themselves.
    Answer,
    Date {
        /// A day that nanoseconds since 1970 in 64 bits do not reach.
        ancient: bool,
    },
    Timestamp {
        /// Needs nanoseconds.
        fine: bool,
        zoned: bool,
        ancient: bool,
    },
    Time,
    /// A date, perhaps with a time of day, that is not written as ISO 8601 has it.
    Ordered(Ordered),
    Text,
    /// Of JSON alone.
    List,
    Struct,
}

impl Look {
    /// Whether it may be the name of a column as well.
    pub(super) fn is_word(self) -> bool {
        matches!(self, Look::Text | Look::Worded | Look::Answer)
    }
}

/// Blanks around a field do not count, as they do not when it is loaded.
pub(super) fn look(bytes: &[u8]) -> Look {
    look_exact(bytes.trim_ascii())
}

pub(super) fn look_exact(bytes: &[u8]) -> Look {
    let (_, magnitude) = sign(bytes);
    match magnitude.first() {
        Some(b'0'..=b'9' | b'.') => {}
        Some(b't' | b'T' | b'f' | b'F')
            if bytes.eq_ignore_ascii_case(b"true") || bytes.eq_ignore_ascii_case(b"false") =>
        {
            return Look::Boolean;
        }
        Some(b'y' | b'Y' | b'n' | b'N')
            if bytes.eq_ignore_ascii_case(b"yes") || bytes.eq_ignore_ascii_case(b"no") =>
        {
            return Look::Answer;
        }
        // Only these spellings by themselves: "Nan" and "Inf" are names of people and of places.
        Some(b'N' | b'n' | b'i' | b'I')
            if matches!(magnitude, b"NaN" | b"nan" | b"inf" | b"Infinity") =>
        {
            return Look::Float;
        }
        Some(b'N' | b'n' | b'i' | b'I')
            if magnitude.eq_ignore_ascii_case(b"inf") || magnitude.eq_ignore_ascii_case(b"nan") =>
        {
            return Look::Worded;
        }
        _ => return Look::Text,
    }
    if magnitude.iter().all(u8::is_ascii_digit) {
        // 00501 is a postal code, +49 a prefix; 20 digits are an identifier. As numbers they would
        // lose something.
        let padded = magnitude.len() > 1 && magnitude[0] == b'0' || bytes[0] == b'+';
        return match signed(bytes) {
            Ok(number) if !padded && number as f64 as i128 == i128::from(number) => Look::Integer,
            Ok(_) if !padded => Look::Long,
            _ => Look::Text,
        };
    }
    if bytes.len() >= 10 && bytes[4] == b'-' {
        let Ok(moment) = moment(bytes) else { return otherwise_dated(bytes) };
        // Years 1678 to 2261, a day's margin for offsets included.
        let ancient = !(-9_214_560_000..9_214_560_000).contains(&moment.local_s);
        if bytes.len() == 10 {
            return Look::Date { ancient };
        }
        let (fine, zoned) = (moment.nanos % 1000 != 0, moment.offset_s.is_some());
        return Look::Timestamp { fine, zoned, ancient };
    }
    let seconds = bytes.len() >= 8 && bytes[2] == b':' && bytes[5] == b':';
    if seconds || bytes.len() == 5 && bytes[2] == b':' {
        return if time_ns(bytes).is_ok() { Look::Time } else { Look::Text };
    }
    // Leading zeros are kept here, too: 007.50 is no number anybody computes with.
    let padded = matches!(magnitude, [b'0', b'0'..=b'9', ..]);
    match otherwise_dated(bytes) {
        Look::Text if !padded && float64(bytes).is_ok() => Look::Float,
        look => look,
    }
}

fn otherwise_dated(bytes: &[u8]) -> Look {
    ordered(bytes).map_or(Look::Text, Look::Ordered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers() {
        for (text, value) in [
            ("0", 0),
            ("-1", -1),
            ("+7", 7),
            ("19940101", 19_940_101),
            ("123456789012345678", 123_456_789_012_345_678),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
            ("000000000000000000000000042", 42),
        ] {
            assert_eq!(signed(text.as_bytes()), Ok(value), "{text}");
        }
        assert_eq!(signed(b"9223372036854775808"), Err(Bad::Range));
        assert_eq!(signed(b"99999999999999999999999"), Err(Bad::Range));
        for text in ["", "-", "+", "1.0", "1 ", "12a", "1234567a", "12345678a", "--1", "\u{663}"] {
            assert_eq!(signed(text.as_bytes()), Err(Bad::Syntax), "{text}");
        }
        assert_eq!(unsigned(b"18446744073709551615"), Ok(u64::MAX));
        assert_eq!(unsigned(b"-1"), Err(Bad::Range));
        assert_eq!(unsigned(b"-0"), Ok(0));
    }

    #[test]
    fn decimals_are_exact() {
        for (text, precision, scale, value) in [
            ("0", 15, 2, Ok(0)),
            ("1.5", 15, 2, Ok(150)),
            ("-1.50000", 15, 2, Ok(-150)),
            (".5", 3, 1, Ok(5)),
            ("5.", 3, 1, Ok(50)),
            ("1.505", 15, 2, Err(Bad::Fraction)),
            ("10000000000000.00", 15, 2, Err(Bad::Range)),
            ("9999999999999.99", 15, 2, Ok(999_999_999_999_999)),
            ("1e2", 5, 0, Ok(100)),
            ("1.25E-1", 5, 3, Ok(125)),
            ("1200", 5, -2, Ok(12)),
            ("1250", 5, -2, Err(Bad::Fraction)),
            ("1.2.3", 15, 2, Err(Bad::Syntax)),
            (".", 15, 2, Err(Bad::Syntax)),
            ("", 15, 2, Err(Bad::Syntax)),
            ("1e", 15, 2, Err(Bad::Syntax)),
            ("12345678901234567890.12", 38, 2, Ok(1_234_567_890_123_456_789_012)),
            ("1", 38, 37, Ok(10i128.pow(37))),
            ("10", 38, 37, Err(Bad::Range)),
            ("99999999999999999", 38, 30, Err(Bad::Range)),
            ("0.0000000000000000000000000000000000000000000000000", 5, 2, Ok(0)),
        ] {
            assert_eq!(decimal(text.as_bytes(), precision, scale), value, "{text}");
        }
    }

    #[test]
    fn floats_round_like_the_standard_library() {
        for text in [
            "0",
            "-0",
            "1.5",
            "3.14159265358979",
            "1e10",
            "1e-300",
            "123456789012345678",
            ".1",
            "7.",
            "0.1",
        ] {
            assert_eq!(
                float64(text.as_bytes()).map(f64::to_bits),
                Ok(text.parse::<f64>().unwrap().to_bits())
            );
            assert_eq!(
                float32(text.as_bytes()).map(f32::to_bits),
                Ok(text.parse::<f32>().unwrap().to_bits())
            );
        }
        assert!(float64(b"NaN").unwrap().is_nan());
        assert_eq!(float64(b"-inf"), Ok(f64::NEG_INFINITY));
        assert_eq!(float64(b"1e999"), Err(Bad::Range));
        assert_eq!(float64(b"1,5"), Err(Bad::Syntax));
        assert_eq!(float64(b""), Err(Bad::Syntax));
    }

    #[test]
    fn dates_and_times() {
        assert_eq!(date(b"1970-01-01"), Ok(0));
        assert_eq!(date(b"2000-02-29"), Ok(11_016));
        assert_eq!(date(b"1969-12-31"), Ok(-1));
        assert_eq!(date(b"0001-01-01"), Ok(-719_162));
        assert_eq!(date(b"2024-01-01 00:00:00"), Ok(19_723));
        assert_eq!(date(b"2024-01-01 00:00:01"), Err(Bad::Syntax));
        assert_eq!(date(b"1900-02-29"), Err(Bad::Range));
        assert_eq!(date(b"2024-13-01"), Err(Bad::Range));
        assert_eq!(date(b"01/02/2024"), Err(Bad::Syntax));
        assert_eq!(time_ns(b"23:59:59.5"), Ok(86_399_500_000_000));
        assert_eq!(time_ns(b"24:00:00"), Err(Bad::Range));
        let at = |text: &str| moment(text.as_bytes());
        assert_eq!(
            at("1970-01-02T00:00:01Z"),
            Ok(Moment { local_s: 86_401, nanos: 0, offset_s: Some(0) })
        );
        assert_eq!(at("1970-01-01 00:00:00.25+05:30").unwrap().offset_s, Some(19_800));
        assert_eq!(at("1970-01-01 00:00:00 -08").unwrap().offset_s, Some(-28_800));
        assert_eq!(at("1970-01-01 00:00").unwrap().offset_s, None);
        assert_eq!(at("1970-01-01 0:00"), Err(Bad::Syntax));
        assert_eq!(at("1970-01-01 00:00:00 CET"), Err(Bad::Syntax));
        assert_eq!(ticks(1, 500_000_000, 1000), Ok(1500));
        assert_eq!(ticks(1, 1, 1_000_000), Err(Bad::Fraction));
        assert_eq!(ticks(i64::MAX, 0, 1_000_000_000), Err(Bad::Range));
    }

    #[test]
    fn looks() {
        for (text, expected) in [
            ("true", Look::Boolean),
            ("t", Look::Text),
            ("0", Look::Integer),
            ("-12", Look::Integer),
            (" 12 ", Look::Integer),
            ("9007199254740992", Look::Integer),
            ("-9007199254740993", Look::Long),
            ("9223372036854775807", Look::Long),
            ("00501", Look::Text),
            ("+4930123", Look::Text),
            ("99999999999999999999", Look::Text),
            ("1.5", Look::Float),
            ("1e5", Look::Float),
            ("NaN", Look::Float),
            ("Nan", Look::Worded),
            ("-Inf", Look::Worded),
            ("Yes", Look::Answer),
            ("2024-01-01", Look::Date { ancient: false }),
            ("0001-01-01", Look::Date { ancient: true }),
            ("2024-02-30", Look::Text),
            ("2024-01-01 10:00:00", Look::Timestamp { fine: false, zoned: false, ancient: false }),
            ("10:00:00", Look::Time),
            ("10:00:00.123456789", Look::Time),
            ("10:00", Look::Time),
            ("25:00", Look::Text),
            ("9:00", Look::Text),
            ("007.5", Look::Text),
            ("0.5", Look::Float),
            (
                "2024-01-01T10:00:00.123456789Z",
                Look::Timestamp { fine: true, zoned: true, ancient: false },
            ),
            (
                "9999-12-31T10:00:00.000000001",
                Look::Timestamp { fine: true, zoned: false, ancient: true },
            ),
            ("192.168.0.1", Look::Text),
            ("", Look::Text),
        ] {
            assert_eq!(look(text.as_bytes()), expected, "{text}");
        }
    }
}
