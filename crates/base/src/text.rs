//! Numbers as people read and write them, the same in every report, progress bar, option and error;
//! what a panic says, which name may have been meant by one that nothing has, and letters in the other case.

use std::any::Any;
use std::fmt;
use std::time::Duration;

/// `1536` → `"1.5 KiB"`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// `6001215` → `"6,001,215"`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `0.0123` seconds → `"12.3 ms"`.
pub fn seconds(s: f64) -> String {
    if s < 0.001 {
        format!("{:.0} µs", s * 1e6)
    } else if s < 1.0 {
        format!("{:.1} ms", s * 1e3)
    } else if s < 120.0 {
        format!("{s:.2} s")
    } else {
        format!("{}m {:02}s", (s / 60.0) as u64, (s % 60.0) as u64)
    }
}

/// A double as PostgreSQL writes it: `1`, `0.1`, `1e+20`, `Infinity`.
pub fn float8(out: &mut impl fmt::Write, value: f64) -> fmt::Result {
    float(out, value, format_args!("{value:e}"), 15)
}

/// A real as PostgreSQL writes it.
pub fn float4(out: &mut impl fmt::Write, value: f32) -> fmt::Result {
    float(out, f64::from(value), format_args!("{value:e}"), 6)
}

/// The shortest digits that give the number back, with an exponent where `%g` has one: below
/// 10⁻⁴ and from 10 to the power of `digits`.
fn float(
    out: &mut impl fmt::Write,
    value: f64,
    shortest: fmt::Arguments<'_>,
    digits: i32,
) -> fmt::Result {
    if value.is_nan() {
        return out.write_str("NaN");
    }
    if value.is_infinite() {
        return out.write_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
    }
    let text = shortest.to_string();
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..digits).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return write!(out, "{mantissa}e{sign}{:02}", exponent.abs());
    }
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let all: String = mantissa.chars().filter(|c| *c != '.').collect();
    if exponent < 0 {
        return write!(out, "{sign}0.{:0>width$}{all}", "", width = (-exponent - 1) as usize);
    }
    let whole = exponent as usize + 1;
    match all.get(..whole) {
        Some(head) if all.len() > whole => write!(out, "{sign}{head}.{}", &all[whole..]),
        _ => write!(out, "{sign}{all:0<whole$}"),
    }
}

/// An item of an array as PostgreSQL writes it: in quotes if it could be taken for something else.
pub fn list_item(out: &mut impl fmt::Write, item: &str) -> fmt::Result {
    let special = |c: char| "{},\"\\".contains(c) || c.is_ascii_whitespace() || c == '\u{b}';
    if !item.is_empty() && !item.contains(special) && !item.eq_ignore_ascii_case("null") {
        return out.write_str(item);
    }
    out.write_char('"')?;
    for c in item.chars() {
        if matches!(c, '"' | '\\') {
            out.write_char('\\')?;
        }
        out.write_char(c)?;
    }
    out.write_char('"')
}

/// Of the metadata of a column of texts: what it was declared as, `varchar(3)` or `char(3)`.
pub const DECLARED_TYPE_KEY: &str = "thalweg.type";

/// A field of a row as PostgreSQL writes it: in quotes where it would be taken for something else.
pub fn row_field(out: &mut impl fmt::Write, field: &str) -> fmt::Result {
    let special = |c: char| "(),\"\\".contains(c) || c.is_ascii_whitespace() || c == '\u{b}';
    if !field.is_empty() && !field.contains(special) {
        return out.write_str(field);
    }
    out.write_char('"')?;
    for c in field.chars() {
        if matches!(c, '"' | '\\') {
            out.write_char(c)?;
        }
        out.write_char(c)?;
    }
    out.write_char('"')
}

/// What a panic was told, unless that is no text.
pub fn of_panic(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
}

/// A number and the unit after it, in lower case: `1.5 GiB` → `(1.5, "gib")`.
fn measured(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..split].parse().ok()?;
    Some((number, text[split..].trim().to_lowercase()))
}

/// `"1.5 GiB"`, `"512MB"`, `"1048576"` → bytes.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = measured(text)?;
    let factor = match unit.as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "kb" => 1e3,
        "m" | "mib" => 1024f64.powi(2),
        "mb" => 1e6,
        "g" | "gib" => 1024f64.powi(3),
        "gb" => 1e9,
        "t" | "tib" => 1024f64.powi(4),
        "tb" => 1e12,
        _ => return None,
    };
    let bytes = number * factor;
    (1.0..9e18).contains(&bytes).then_some(bytes as u64)
}

/// `"2s"`, `"500 ms"`, `"5min"`, `"1h"`, `"2"` (seconds).
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = measured(text)?;
    let seconds = match unit.as_str() {
        "ms" => number / 1e3,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

/// Double-quotes a name for a message or for SQL: `or"der` → `"or""der"`.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Characters of a line that an excerpt shows.
const EXCERPT_CHARS_MAX: usize = 72;

/// The line of a statement that its character number `position` (from 1) is in, with a caret below:
///
/// ```text
/// LINE 2:   FROM nosuch
///                ^
/// ```
pub fn excerpt(sql: &str, position: u32) -> String {
    let mut before = (position.max(1) - 1) as usize;
    let mut number = 1;
    let mut line = "";
    for part in sql.split('\n') {
        line = part;
        let length = part.chars().count() + 1;
        if before < length {
            break;
        }
        before -= length;
        number += 1;
    }
    let chars: Vec<char> =
        line.trim_end().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let before = before.min(chars.len());
    // A long line is cut to what is around the place.
    let first = match chars.len() > EXCERPT_CHARS_MAX {
        true => before.saturating_sub(EXCERPT_CHARS_MAX / 2).min(chars.len() - EXCERPT_CHARS_MAX),
        false => 0,
    };
    let last = chars.len().min(first + EXCERPT_CHARS_MAX);
    let shown: String = chars[first..last].iter().collect();
    let (cut_before, cut_after) =
        (if first > 0 { "…" } else { "" }, if last < chars.len() { "…" } else { "" });
    let head = format!("LINE {number}: {cut_before}");
    let caret = " ".repeat(head.chars().count() + before - first);
    format!("{head}{shown}{cut_after}\n{caret}^")
}

/// The candidate that is most like a name, if one is so like it that it may have been meant.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let most = (name.chars().count() / 3).clamp(1, 3);
    let distances = candidates.map(|c| (distance(&name, &c.to_lowercase(), most), c));
    let (distance, near) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= most && distance < name.chars().count()).then_some(near)
}

/// How many characters have to be changed, added or left out (Levenshtein), as long as these are
/// not more than `most`.
fn distance(a: &str, b: &str, most: usize) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > most {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = before + usize::from(x != y);
            before = row[j + 1];
            row[j + 1] = changed.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// A character in lower case, as one character.
pub fn one_lower(c: char) -> char {
    let mut lower = c.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(lower), None) => lower,
        // The capital I with a dot, of two characters otherwise.
        _ if c == '\u{130}' => 'i',
        _ => c,
    }
}

/// A character in upper case, as one character.
pub fn one_upper(c: char) -> char {
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(upper), None) => upper,
        // Greek letters with an iota below have a counterpart that is one character.
        _ => match c {
            '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => {
                char::from_u32(u32::from(c) + 8).unwrap_or(c)
            }
            '\u{1fb3}' => '\u{1fbc}',
            '\u{1fc3}' => '\u{1fcc}',
            '\u{1ff3}' => '\u{1ffc}',
            _ => c,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_if_it_is_near() {
        let known = ["lower", "upper", "substr", "a"];
        let near = |name| nearest(name, known.iter().copied());
        assert_eq!(near("uper"), Some("upper"));
        assert_eq!(near("LOWER"), Some("lower"));
        assert_eq!(near("sbstr"), Some("substr"));
        assert_eq!(near("b"), None, "nothing of it would be left");
        assert_eq!(near("percentile"), None);
    }

    #[test]
    fn distances_are_counted() {
        assert_eq!(distance("kitten", "sitting", 3), 3);
        assert_eq!(distance("abc", "abc", 3), 0);
        assert!(distance("", "abcd", 3) > 3);
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 40), "3.0 TiB");
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(6001215), "6,001,215");
        assert_eq!(seconds(0.0000005), "0 µs");
        assert_eq!(seconds(0.0123), "12.3 ms");
        assert_eq!(seconds(75.0), "75.00 s");
        assert_eq!(seconds(185.0), "3m 05s");
        assert_eq!(quoted("or\"der"), "\"or\"\"der\"");
    }

    #[test]
    fn sizes_and_times_are_understood() {
        assert_eq!(parse_bytes("1048576"), Some(1 << 20));
        assert_eq!(parse_bytes("1.5 GiB"), Some(3 << 29));
        assert_eq!(parse_bytes("512mb"), Some(512_000_000));
        assert_eq!(parse_duration("2"), Some(Duration::from_secs(2)));
        assert_eq!(parse_duration("1.5 min"), Some(Duration::from_secs(90)));
        assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
        for wrong in ["", "x", "-1", "1 parsec", "1..2 s", "ms"] {
            assert_eq!((parse_bytes(wrong), parse_duration(wrong)), (None, None), "{wrong}");
        }
    }

    #[test]
    fn a_panic_tells_what_it_was_told() {
        let told = |f: fn()| {
            of_panic(std::panic::catch_unwind(f).unwrap_err().as_ref()).map(str::to_owned)
        };
        assert_eq!(told(|| panic!("plain")).as_deref(), Some("plain"));
        assert_eq!(told(|| panic!("{} of {}", 1, 2)).as_deref(), Some("1 of 2"));
        assert_eq!(told(|| std::panic::panic_any(7)), None);
    }

    #[test]
    fn excerpts_point_at_the_place() {
        assert_eq!(
            super::excerpt("SELECT x FROM t", 8),
            "LINE 1: SELECT x FROM t\n               ^"
        );
        assert_eq!(super::excerpt("SELECT\n\tü, x", 12), "LINE 2:  ü, x\n            ^");
        assert_eq!(super::excerpt("SELECT", 7), "LINE 1: SELECT\n              ^");
        let long = format!("SELECT {}, x", "a, ".repeat(100));
        let shown = super::excerpt(&long, long.chars().count() as u32);
        let (line, caret) = shown.split_once('\n').unwrap();
        assert!(line.starts_with("LINE 1: …") && line.ends_with(" x"), "{shown}");
        assert_eq!(line.chars().count(), caret.chars().count());
    }
}
