//! Days, times and timestamps as SQLite's functions and most programs write them.

use thalweg_base::calendar::{DAY_US, days_of, is_leap};

const MICROS_PER_SECOND: i64 = 1_000_000;

/// Days since 1970 of a day such as `2024-02-29`.
pub fn day(text: &str) -> Option<i32> {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let (year, month, day) = (number(&bytes[..4])?, number(&bytes[5..7])?, number(&bytes[8..])?);
    let days = match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=days).contains(&day) {
        return None;
    }
    i32::try_from(days_of(year, month, day)).ok()
}

/// Microseconds since midnight of a time such as `10:30`, `10:30:00` or `10:30:00.25`.
pub fn time(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    if bytes.len() < 5 || bytes[2] != b':' {
        return None;
    }
    let (hour, minute) = (number(&bytes[..2])?, number(&bytes[3..5])?);
    let (second, micros) = match &bytes[5..] {
        [] => (0, 0),
        [b':', a, b, rest @ ..] => (number(&[*a, *b])?, fraction(rest)?),
        _ => return None,
    };
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some((hour * 3600 + minute * 60 + second) * MICROS_PER_SECOND + micros)
}

/// Microseconds since 1970 of a day, alone or with a time behind a space or a `T`.
pub fn timestamp(text: &str) -> Option<i64> {
    let days = i64::from(day(text.get(..10)?)?);
    let micros = match text.get(10..)? {
        "" => 0,
        rest => time(rest.strip_prefix([' ', 'T'])?)?,
    };
    Some(days * DAY_US + micros)
}

fn number(digits: &[u8]) -> Option<i64> {
    digits
        .iter()
        .try_fold(0i64, |n, digit| digit.is_ascii_digit().then(|| n * 10 + i64::from(digit - b'0')))
}

/// Microseconds of `.25`; more digits than there are microseconds must be zeros.
fn fraction(text: &[u8]) -> Option<i64> {
    let digits = match text {
        [] => return Some(0),
        [b'.', digits @ ..] if !digits.is_empty() => digits,
        _ => return None,
    };
    let (kept, rest) = digits.split_at(digits.len().min(6));
    if rest.iter().any(|digit| *digit != b'0') {
        return None;
    }
    Some(number(kept)? * 10_i64.pow(6 - kept.len() as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_times() {
        assert_eq!(day("1970-01-01"), Some(0));
        assert_eq!(day("2000-03-01"), Some(11_017));
        assert_eq!(day("2024-02-29"), Some(19_782));
        assert_eq!(day("0001-01-01"), Some(-719_162));
        for wrong in
            ["2023-02-29", "2024-13-01", "2024-1-01", "20240101", "2024-01-00", "2024-01-01 "]
        {
            assert_eq!(day(wrong), None, "{wrong}");
        }
        assert_eq!(time("10:30"), Some(37_800_000_000));
        assert_eq!(time("23:59:59.999999000"), Some(86_399_999_999));
        for wrong in
            ["24:00", "10:60", "1:30", "10:30:5", "10:30:00.", "10:30:00.0000001", "10:30Z"]
        {
            assert_eq!(time(wrong), None, "{wrong}");
        }
        assert_eq!(timestamp("1970-01-02T00:00:01.5"), Some(86_401_500_000));
        assert_eq!(timestamp("1969-12-31"), Some(-86_400_000_000));
        for wrong in ["2024-01-01 10:30+01", "2024-01-01x10:30", "2024-01-01 ", "é024-01-01"] {
            assert_eq!(timestamp(wrong), None, "{wrong}");
        }
    }
}
