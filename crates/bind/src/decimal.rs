//! Numerics read from text, with and without an exponent.

use crate::types::DIGITS_MAX;

/// Why a text gives no numeric of this precision and scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It is no number.
    Syntax,
    /// It has more digits before its point than there is room for.
    Range,
}

/// The digits of the numeric with `scale` digits behind its point that is nearest to a number such as
/// `-12.5`, `.5` or `1e3`; half is rounded away from zero.
///
/// # Errors
/// The text is no number, or one with more than `precision` digits.
pub fn read(text: &str, precision: u8, scale: i8) -> Result<i128, Unread> {
    let text = text.trim_matches([' ', '\t', '\n', '\r', '\u{b}', '\u{c}']);
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (digits, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, read_exponent(exponent)?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() && fraction.is_empty() || !is_digits(whole) || !is_digits(fraction) {
        return Err(Unread::Syntax);
    }
    // How many of the digits are kept: those before the point, and `scale` behind it.
    let kept = whole.len() as i64 + exponent + i64::from(scale);
    let mut written = whole.bytes().chain(fraction.bytes());
    let mut value: i128 = 0;
    let mut push = |digit: u8| {
        let next = value.checked_mul(10).and_then(|v| v.checked_add(i128::from(digit - b'0')));
        value = next.ok_or(Unread::Range)?;
        Ok(())
    };
    let there = kept.clamp(0, (whole.len() + fraction.len()) as i64);
    written.by_ref().take(there as usize).try_for_each(&mut push)?;
    // Zero stays zero, however many digits its exponent asks for.
    let is_zero = whole.bytes().chain(fraction.bytes()).all(|b| b == b'0');
    if !is_zero {
        let missing = kept - there;
        if missing > i64::from(DIGITS_MAX) {
            return Err(Unread::Range);
        }
        (0..missing).try_for_each(|_| push(b'0'))?;
    }
    // The first digit that is not kept. Of those that begin behind it (`0.001` with two digits) none counts.
    if kept >= 0 && written.next().is_some_and(|digit| digit >= b'5') {
        value += 1;
    }
    if value >= 10i128.pow(u32::from(precision)) {
        return Err(Unread::Range);
    }
    Ok(if negative { -value } else { value })
}

/// Far beyond what matters, it is cut: no numeric has so many digits.
fn read_exponent(text: &str) -> Result<i64, Unread> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Unread::Syntax);
    }
    let exponent = digits.parse::<i64>().unwrap_or(i64::MAX).min(1_000_000_000);
    Ok(if negative { -exponent } else { exponent })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_the_nearest_numeric() {
        let check = |text: &str, precision, scale, expected| {
            assert_eq!(read(text, precision, scale), expected, "{text}");
        };
        check("1.005", 10, 2, Ok(101));
        check("-1.005", 10, 2, Ok(-101));
        check("0.1", 38, 10, Ok(1_000_000_000));
        check("2.5", 5, 0, Ok(3));
        check(" +7. ", 5, 1, Ok(70));
        check(".5", 5, 1, Ok(5));
        check("1e3", 10, 2, Ok(100_000));
        check("1.2345E+2", 10, 1, Ok(1235));
        check("12345e-4", 10, 2, Ok(123));
        check("5e-3", 10, 2, Ok(1));
        check("5e-4", 10, 2, Ok(0));
        check("9e-400", 10, 2, Ok(0));
        check("0e999999999999999999999", 10, 2, Ok(0));
        check("0.000e50", 3, 2, Ok(0));
        check("99999999999999999999999999999999999999", 38, 0, Ok(10i128.pow(38) - 1));
        check("99.995", 4, 2, Err(Unread::Range));
        check("1e38", 38, 0, Err(Unread::Range));
        check("1e999999999999", 38, 0, Err(Unread::Range));
        check("100000000000000000000000000000000000000000", 38, 0, Err(Unread::Range));
        for text in ["", ".", "-", "e3", "1e", "1e+", "1.2.3", "1 2", "NaN", "inf", "0x10", "١"] {
            check(text, 10, 2, Err(Unread::Syntax));
        }
    }
}
