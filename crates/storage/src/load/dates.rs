//! Dates and timestamps that are not written as ISO 8601 has them.
//!
//! Two ways lead here: a format that was told ([`Pattern`], in the spelling of `strptime`), and an
//! order of day, month and year that all values of a column have in common ([`Ordered`]). Both end
//! in the ISO spelling ([`Fields::iso`]), which the builders of columns read as ever.

use super::parse::{Bad, civil};

/// The order of the parts of a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateOrder {
    DayFirst,
    MonthFirst,
    YearFirst,
}

impl DateOrder {
    /// As an option takes it.
    pub fn format(self, separator: char) -> String {
        match self {
            DateOrder::DayFirst => format!("%d{separator}%m{separator}%Y"),
            DateOrder::MonthFirst => format!("%m{separator}%d{separator}%Y"),
            DateOrder::YearFirst => format!("%Y{separator}%m{separator}%d"),
        }
    }
}

/// A date, and perhaps a time of day, in parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    year: u32,
    month: u32,
    day: u32,
    clock: Option<Clock>,
    offset_s: Option<i32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Clock {
    hour: u32,
    minute: u32,
    second: u32,
    nanos: u32,
    /// Written with AM or PM.
    halves: bool,
}

impl Fields {
    /// As ISO 8601 has it. Parts that are out of range stay so.
    pub(super) fn iso<'a>(&self, out: &'a mut Vec<u8>) -> &'a [u8] {
        use std::io::Write;
        out.clear();
        let written = write!(out, "{:04}-{:02}-{:02}", self.year, self.month, self.day);
        debug_assert!(written.is_ok(), "a vector takes all that is written");
        if let Some(clock) = self.clock {
            let Clock { hour, minute, second, nanos, .. } = clock;
            let _ = write!(out, " {hour:02}:{minute:02}:{second:02}");
            if nanos != 0 {
                let _ = write!(out, ".{nanos:09}");
            }
        }
        if let Some(offset_s) = self.offset_s {
            let (sign, minutes) = (if offset_s < 0 { '-' } else { '+' }, offset_s.abs() / 60);
            let _ = write!(out, "{sign}{:02}:{:02}", minutes / 60, minutes % 60);
        }
        out
    }
}

/// A date that reads as one in some orders; see [`ordered`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ordered {
    pub separator: u8,
    pub day_first: bool,
    pub month_first: bool,
    pub year_first: bool,
    pub clock: bool,
    /// Its clock has AM or PM.
    pub halves: bool,
    /// Needs nanoseconds.
    pub fine: bool,
    /// A day that nanoseconds since 1970 do not reach.
    pub ancient: bool,
}

/// The number of `most` digits at the most at the beginning, and how many digits it has.
fn number(bytes: &[u8], most: usize) -> Option<(u32, usize)> {
    let count = bytes.iter().take(most + 1).take_while(|b| b.is_ascii_digit()).count();
    let digits = bytes.get(..count).filter(|_| (1..=most).contains(&count))?;
    Some((digits.iter().fold(0, |n, b| n * 10 + u32::from(b - b'0')), count))
}

/// The number of the first digits, `most` of them at the most, and how many they are.
fn leading(bytes: &[u8], most: usize) -> Option<(u32, usize)> {
    let count = bytes.iter().take(most).take_while(|b| b.is_ascii_digit()).count();
    number(&bytes[..count], most)
}

/// Three numbers with the same separator between them, the first or the last of them a year in
/// four digits; what follows; and whether the year comes first.
fn parts(bytes: &[u8]) -> Option<([u32; 3], u8, bool, &[u8])> {
    let (first, length) = number(bytes, 4)?;
    let separator = *bytes.get(length).filter(|b| matches!(b, b'/' | b'.' | b'-'))?;
    let rest = &bytes[length + 1..];
    let (second, middle) = number(rest, 2)?;
    let rest = rest[middle..].strip_prefix(&[separator])?;
    let year_first = length == 4;
    let (third, last) = number(rest, if year_first { 2 } else { 4 })?;
    if !year_first && (length > 2 || last != 4) {
        return None;
    }
    Some(([first, second, third], separator, year_first, &rest[last..]))
}

/// `10:00`, `9:30:15.25`, `1:05:00 PM`
fn clock(bytes: &[u8]) -> Option<Clock> {
    let (mut hour, length) = number(bytes, 2)?;
    let rest = bytes[length..].strip_prefix(b":")?;
    let (minute, 2) = number(rest, 2)? else { return None };
    let mut rest = &rest[2..];
    let (mut second, mut nanos) = (0, 0);
    if let Some(seconds) = rest.strip_prefix(b":") {
        let (found, 2) = number(seconds, 2)? else { return None };
        (second, rest) = (found, &seconds[2..]);
        if let [b'.' | b',', fraction @ ..] = rest {
            let (found, digits) = number(fraction, 9)?;
            nanos = found * 10u32.pow(9 - digits as u32);
            rest = &fraction[digits..];
        }
    }
    let half = rest.strip_prefix(b" ").unwrap_or(rest);
    let halves = !half.is_empty();
    if halves {
        hour = half_day(hour, half)?;
    } else if !rest.is_empty() {
        return None;
    }
    (hour < 24 && minute < 60 && second < 60).then_some(Clock {
        hour,
        minute,
        second,
        nanos,
        halves,
    })
}

/// The hour of the day of one before or after noon.
fn half_day(hour: u32, half: &[u8]) -> Option<u32> {
    if !(1..=12).contains(&hour) {
        return None;
    }
    if half.eq_ignore_ascii_case(b"am") {
        Some(hour % 12)
    } else if half.eq_ignore_ascii_case(b"pm") {
        Some(hour % 12 + 12)
    } else {
        None
    }
}

fn split(bytes: &[u8]) -> Option<([u32; 3], u8, bool, Option<Clock>)> {
    let (parts, separator, year_first, rest) = parts(bytes)?;
    let clock = match rest {
        [] => None,
        [b' ' | b'T', rest @ ..] => Some(clock(rest)?),
        _ => return None,
    };
    Some((parts, separator, year_first, clock))
}

/// In which orders `bytes` is a date, perhaps with a time of day; `None`: in none.
pub(super) fn ordered(bytes: &[u8]) -> Option<Ordered> {
    let ([a, b, c], separator, year_first, clock) = split(bytes)?;
    let days = |year: u32, month: u32, day: u32| civil(year as i32, month as i32, day as i32);
    let (day_first, month_first, year_first) = match year_first {
        true => (Err(Bad::Syntax), Err(Bad::Syntax), days(a, b, c)),
        false => (days(c, b, a), days(c, a, b), Err(Bad::Syntax)),
    };
    let day = day_first.or(month_first).or(year_first).ok()?;
    let seconds = i64::from(day) * 86_400;
    Some(Ordered {
        separator,
        day_first: day_first.is_ok(),
        month_first: month_first.is_ok(),
        year_first: year_first.is_ok(),
        clock: clock.is_some(),
        halves: clock.is_some_and(|clock| clock.halves),
        fine: clock.is_some_and(|clock| clock.nanos % 1000 != 0),
        ancient: !(-9_214_560_000..9_214_560_000).contains(&seconds),
    })
}

/// `bytes` as a date in that order.
pub(super) fn in_order(bytes: &[u8], order: DateOrder) -> Option<Fields> {
    let ([a, b, c], _, year_first, clock) = split(bytes)?;
    if year_first != (order == DateOrder::YearFirst) {
        return None;
    }
    let (year, month, day) = match order {
        DateOrder::DayFirst => (c, b, a),
        DateOrder::MonthFirst => (c, a, b),
        DateOrder::YearFirst => (a, b, c),
    };
    Some(Fields { year, month, day, clock, offset_s: None })
}

/// A format of dates, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    items: Vec<Item>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Literal(u8),
    Year,
    /// Two digits: 69 to 99 are in the twentieth century.
    ShortYear,
    Month,
    /// Its English name, whole or in three letters.
    MonthName,
    Day,
    DayName,
    Hour,
    /// Of one to twelve.
    HalfHour,
    Half,
    Minute,
    Second,
    /// Digits of a fraction of a second, at the most.
    Fraction(usize),
    Offset,
}

const MONTHS: [&[u8]; 12] = [
    b"january",
    b"february",
    b"march",
    b"april",
    b"may",
    b"june",
    b"july",
    b"august",
    b"september",
    b"october",
    b"november",
    b"december",
];

const DAYS: [&[u8]; 7] =
    [b"monday", b"tuesday", b"wednesday", b"thursday", b"friday", b"saturday", b"sunday"];

impl Pattern {
    /// # Errors
    /// One clause on what is wrong with it.
    pub(super) fn new(text: &str) -> Result<Pattern, String> {
        let mut items = Vec::new();
        let mut bytes = text.bytes();
        while let Some(byte) = bytes.next() {
            if byte != b'%' {
                items.push(Item::Literal(byte));
                continue;
            }
            let mut letter = bytes.next();
            // Numbers may have one digit or two anyhow.
            if letter == Some(b'-') {
                letter = bytes.next();
            }
            let colon = Item::Literal(b':');
            let dash = Item::Literal(b'-');
            match letter {
                Some(b'Y') => items.push(Item::Year),
                Some(b'y') => items.push(Item::ShortYear),
                Some(b'm') => items.push(Item::Month),
                Some(b'b' | b'B' | b'h') => items.push(Item::MonthName),
                Some(b'd' | b'e') => items.push(Item::Day),
                Some(b'a' | b'A') => items.push(Item::DayName),
                Some(b'H') => items.push(Item::Hour),
                Some(b'I') => items.push(Item::HalfHour),
                Some(b'p') => items.push(Item::Half),
                Some(b'M') => items.push(Item::Minute),
                Some(b'S') => items.push(Item::Second),
                Some(b'g') => items.push(Item::Fraction(3)),
                Some(b'f') => items.push(Item::Fraction(6)),
                Some(b'n') => items.push(Item::Fraction(9)),
                Some(b'z') => items.push(Item::Offset),
                Some(b'F') => items.extend([Item::Year, dash, Item::Month, dash, Item::Day]),
                Some(b'T') => items.extend([Item::Hour, colon, Item::Minute, colon, Item::Second]),
                Some(b'%') => items.push(Item::Literal(b'%')),
                Some(other) => return Err(format!("%{} is not supported", char::from(other))),
                None => return Err("a % at the end".into()),
            }
        }
        let has = |wanted: &[Item]| items.iter().filter(|item| wanted.contains(item)).count();
        for (what, wanted) in [
            ("the year (%Y or %y)", &[Item::Year, Item::ShortYear][..]),
            ("the month (%m or %b)", &[Item::Month, Item::MonthName]),
            ("the day (%d)", &[Item::Day]),
        ] {
            if has(wanted) != 1 {
                return Err(format!("it must have {what} once"));
            }
        }
        if has(&[Item::Hour, Item::HalfHour]) > 1 || has(&[Item::HalfHour]) != has(&[Item::Half]) {
            return Err("%I and %p go together, instead of %H".into());
        }
        if has(&[Item::Hour, Item::HalfHour]) == 0 && has(&[Item::Minute, Item::Second]) > 0 {
            return Err("it has minutes or seconds without an hour".into());
        }
        Ok(Pattern { items })
    }

    pub(super) fn has_clock(&self) -> bool {
        self.items.iter().any(|item| matches!(item, Item::Hour | Item::HalfHour))
    }

    /// The parts of `bytes`, if all of it is written so.
    pub(super) fn parse(&self, mut bytes: &[u8]) -> Option<Fields> {
        let mut fields = Fields::default();
        let mut time = Clock::default();
        let mut half: Option<&[u8]> = None;
        for (i, item) in self.items.iter().enumerate() {
            let mut take = |most: usize| {
                let (value, digits) = leading(bytes, most)?;
                bytes = &bytes[digits..];
                Some(value)
            };
            match item {
                Item::Literal(literal) => bytes = bytes.strip_prefix(&[*literal])?,
                Item::Year => {
                    let (value, 4) = leading(bytes, 4)? else { return None };
                    (fields.year, bytes) = (value, &bytes[4..]);
                }
                Item::ShortYear => {
                    let value = take(2)?;
                    fields.year = if value < 69 { 2000 + value } else { 1900 + value };
                }
                // Digits that follow at once are the next part's.
                Item::Month => fields.month = take(2)?,
                Item::Day => {
                    let padded = bytes.strip_prefix(b" ").filter(|_| i == 0);
                    bytes = padded.unwrap_or(bytes);
                    let (value, digits) = leading(bytes, 2)?;
                    (fields.day, bytes) = (value, &bytes[digits..]);
                }
                Item::Hour | Item::HalfHour => time.hour = take(2)?,
                Item::Minute => time.minute = take(2)?,
                Item::Second => time.second = take(2)?,
                Item::Fraction(most) => {
                    let (value, digits) = leading(bytes, *most)?;
                    time.nanos = value * 10u32.pow(9 - digits as u32);
                    bytes = &bytes[digits..];
                }
                Item::MonthName => {
                    let (month, rest) = name(bytes, &MONTHS)?;
                    (fields.month, bytes) = (month as u32 + 1, rest);
                }
                Item::DayName => bytes = name(bytes, &DAYS)?.1,
                Item::Half => (half, bytes) = (Some(bytes.get(..2)?), &bytes[2..]),
                Item::Offset => {
                    let length =
                        bytes.iter().take_while(|b| b"+-:0123456789ZUTC".contains(b)).count();
                    fields.offset_s = Some(super::parse::offset(&bytes[..length]).ok()??);
                    bytes = &bytes[length..];
                }
            }
        }
        if !bytes.is_empty() {
            return None;
        }
        if let Some(half) = half {
            time.hour = half_day(time.hour, half)?;
        }
        fields.clock = self.has_clock().then_some(time);
        Some(fields)
    }
}

/// Which of `names` the text begins with, whole or in three letters.
fn name<'a>(bytes: &'a [u8], names: &[&[u8]]) -> Option<(usize, &'a [u8])> {
    let begins =
        |name: &[u8]| bytes.get(..name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name));
    let index = names.iter().position(|name| begins(&name[..3]))?;
    let length = if begins(names[index]) { names[index].len() } else { 3 };
    Some((index, &bytes[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iso(fields: Option<Fields>) -> Option<String> {
        let mut out = Vec::new();
        fields.map(|f| String::from_utf8_lossy(f.iso(&mut out)).into_owned())
    }

    #[test]
    fn formats_read_what_they_say() {
        let check = |format: &str, value: &str, expected: Option<&str>| {
            let pattern = Pattern::new(format).unwrap();
            assert_eq!(iso(pattern.parse(value.as_bytes())).as_deref(), expected, "{value}");
        };
        check("%d/%m/%Y", "31/01/2024", Some("2024-01-31"));
        check("%d/%m/%Y", "1/2/2024", Some("2024-02-01"));
        check("%d/%m/%Y", "31-01-2024", None);
        check("%d/%m/%Y", "31/01/2024 ", None);
        check("%d/%m/%Y", "31/01/24", None);
        check("%m/%d/%y", "01/31/24", Some("2024-01-31"));
        check("%m/%d/%y", "01/31/70", Some("1970-01-31"));
        check("%Y%m%d", "20240131", Some("2024-01-31"));
        check("%d %B %Y", "3 March 2024", Some("2024-03-03"));
        check("%d-%b-%Y", "03-MAY-2024", Some("2024-05-03"));
        check("%a, %d %b %Y", "Wed, 31 Jan 2024", Some("2024-01-31"));
        check("%d.%m.%Y %H:%M", "31.01.2024 9:05", Some("2024-01-31 09:05:00"));
        check("%m/%d/%Y %I:%M:%S %p", "01/31/2024 12:05:00 AM", Some("2024-01-31 00:05:00"));
        check("%m/%d/%Y %I:%M:%S %p", "01/31/2024 13:05:00 AM", None);
        check(
            "%Y-%m-%dT%H:%M:%S.%g%z",
            "2024-01-31T10:00:00.5+0200",
            Some("2024-01-31 10:00:00.500000000+02:00"),
        );
        // What is out of range is for the column to say.
        check("%d/%m/%Y", "31/13/2024", Some("2024-13-31"));
        for bad in ["%d/%m", "%Y-%m-%d-%d", "%d/%m/%Y %M", "%d/%m/%Y %I", "%d%", "%Q", ""] {
            assert!(Pattern::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn orders_are_those_in_which_there_is_such_a_day() {
        let check = |value: &str, expected: Option<&str>| {
            let letters = ordered(value.as_bytes()).map(|o| {
                let one = |so: bool, letter: &'static str| if so { letter } else { "" };
                [
                    one(o.day_first, "d"),
                    one(o.month_first, "m"),
                    one(o.year_first, "y"),
                    one(o.clock, " clock"),
                    one(o.halves, " halves"),
                ]
                .concat()
            });
            assert_eq!(letters.as_deref(), expected, "{value}");
        };
        check("31/01/2024", Some("d"));
        check("01/31/2024", Some("m"));
        check("01/02/2024", Some("dm"));
        check("1.2.2024", Some("dm"));
        check("2012/01/01", Some("y"));
        check("2024-1-5", Some("y"));
        check("29.02.2023", None);
        check("31/01/24", None);
        check("31/01-2024", None);
        check("1/2", None);
        check("192.168.0.1", None);
        check("1.2.3", None);
        check("31/01/2024 10:00", Some("d clock"));
        check("1/31/2024 1:05:00 PM", Some("m clock halves"));
        check("31/01/2024 25:00", None);
        check("31/01/2024 10:00 CET", None);
        let read = |value: &str, order| iso(in_order(value.as_bytes(), order));
        assert_eq!(read("1/2/2024", DateOrder::DayFirst).as_deref(), Some("2024-02-01"));
        assert_eq!(read("1/2/2024", DateOrder::MonthFirst).as_deref(), Some("2024-01-02"));
        assert_eq!(read("2024/1/2", DateOrder::MonthFirst), None);
    }
}
