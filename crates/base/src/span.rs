//! Intervals as people write them, read as PostgreSQL reads them: `1 year 2 mons`, `1-2`,
//! `3 days 04:05:06.7`, `P1Y2M3DT4H`, `@ 5 minutes ago`.
//!
//! An interval has three parts that do not convert into each other: months, days, and microseconds.

use crate::text::quoted;
use crate::{Error, Result};

const SECOND_US: i128 = 1_000_000;
const DAY_US: i128 = 86_400 * SECOND_US;
const MONTH_DAYS: i128 = 30;

/// An interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    pub months: i32,
    pub days: i32,
    /// Whole microseconds, in nanoseconds.
    pub ns: i64,
}

/// A unit of an interval, from the smallest to the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
}

/// What comes after an interval's text: `HOUR`, or `DAY TO MINUTE` with the first and the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    pub first: Unit,
    pub last: Unit,
}

impl Unit {
    /// By one of its names in PostgreSQL.
    pub fn named(name: &str) -> Option<Unit> {
        Some(match name.to_ascii_lowercase().as_str() {
            "us" | "usec" | "usecs" | "usecond" | "useconds" | "microsecon" | "microsecond"
            | "microseconds" => Unit::Microsecond,
            "ms" | "msec" | "msecs" | "msecond" | "mseconds" | "millisecon" | "millisecond"
            | "milliseconds" => Unit::Millisecond,
            "s" | "sec" | "secs" | "second" | "seconds" => Unit::Second,
            "m" | "min" | "mins" | "minute" | "minutes" => Unit::Minute,
            "h" | "hr" | "hrs" | "hour" | "hours" => Unit::Hour,
            "d" | "day" | "days" => Unit::Day,
            "w" | "week" | "weeks" => Unit::Week,
            "mon" | "mons" | "month" | "months" => Unit::Month,
            "qtr" | "quarter" | "quarters" => Unit::Quarter,
            "y" | "yr" | "yrs" | "year" | "years" => Unit::Year,
            "dec" | "decs" | "decade" | "decades" => Unit::Decade,
            "c" | "cent" | "century" | "centuries" => Unit::Century,
            "mil" | "mils" | "millennia" | "millennium" => Unit::Millennium,
            _ => return None,
        })
    }

    fn months(self) -> Option<i128> {
        Some(match self {
            Unit::Month => 1,
            Unit::Quarter => 3,
            Unit::Year => 12,
            Unit::Decade => 120,
            Unit::Century => 1_200,
            Unit::Millennium => 12_000,
            _ => return None,
        })
    }
}

/// A number as it is written: `value / 10^digits`.
#[derive(Clone, Copy, Debug)]
struct Number {
    negative: bool,
    whole: i128,
    fraction: f64,
}

impl Number {
    /// Without its sign.
    fn of(text: &str, negative: bool) -> Option<Number> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if whole.len() + fraction.len() == 0 || !digits(whole) || !digits(fraction) {
            return None;
        }
        let whole = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let fraction = match fraction {
            "" => 0.0,
            fraction => format!("0.{fraction}").parse().ok()?,
        };
        Some(Number { negative, whole, fraction })
    }

    /// The value in millionths, rounded.
    fn micros(&self) -> i128 {
        self.whole * SECOND_US + (self.fraction * 1e6).round_ties_even() as i128
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Span {
    months: i128,
    days: i128,
    us: i128,
}

impl Span {
    /// A part of a unit goes on in the units below it, as PostgreSQL has it: of a year whole months, of a
    /// month days and time.
    fn add(&mut self, number: Number, unit: Unit) {
        let sign = if number.negative { -1 } else { 1 };
        let Number { whole, fraction, .. } = number;
        match unit {
            Unit::Microsecond => self.us += sign * (whole + fraction.round_ties_even() as i128),
            Unit::Millisecond => {
                let part = (fraction * 1e3).round_ties_even() as i128;
                self.us += sign * (whole * 1000 + part);
            }
            Unit::Second => self.us += sign * number.micros(),
            Unit::Minute => self.us += sign * scaled(number, 60 * SECOND_US),
            Unit::Hour => self.us += sign * scaled(number, 3600 * SECOND_US),
            Unit::Day => {
                self.days += sign * whole;
                self.us += sign * (fraction * DAY_US as f64).round_ties_even() as i128;
            }
            Unit::Week => {
                self.days += sign * whole * 7;
                self.add_days(fraction * 7.0, sign);
            }
            Unit::Month => {
                self.months += sign * whole;
                self.add_days(fraction * MONTH_DAYS as f64, sign);
            }
            larger => {
                let months = larger.months().unwrap_or(1);
                let part = (fraction * months as f64).round_ties_even() as i128;
                self.months += sign * (whole * months + part);
            }
        }
    }

    fn add_days(&mut self, days: f64, sign: i128) {
        let whole = days.trunc();
        self.days += sign * whole as i128;
        self.us += sign * ((days - whole) * DAY_US as f64).round_ties_even() as i128;
    }

    fn negate(&mut self) {
        (self.months, self.days, self.us) = (-self.months, -self.days, -self.us);
    }

    /// What is smaller than the last field is cut.
    fn cut(&mut self, last: Unit) {
        let kept_us = match last {
            Unit::Hour => self.us / (3600 * SECOND_US) * (3600 * SECOND_US),
            Unit::Minute => self.us / (60 * SECOND_US) * (60 * SECOND_US),
            unit if unit < Unit::Minute => self.us,
            _ => 0,
        };
        self.us = kept_us;
        if last > Unit::Week {
            self.days = 0;
        }
        if last >= Unit::Year {
            self.months = self.months / 12 * 12;
        }
    }

    fn finish(self) -> Option<Parts> {
        Some(Parts {
            months: self.months.try_into().ok()?,
            days: self.days.try_into().ok()?,
            ns: self.us.checked_mul(1000)?.try_into().ok()?,
        })
    }
}

fn scaled(number: Number, us: i128) -> i128 {
    number.whole * us + (number.fraction * us as f64).round_ties_even() as i128
}

/// Reads an interval. A number without a unit counts the last of `fields`, or else seconds.
///
/// # Errors
/// 22007: the text is no interval. 22015: a part of it is larger than an interval holds.
pub fn read(text: &str, fields: Option<Fields>) -> Result<Parts> {
    let wrong = || {
        Error::user(format!("invalid input syntax for type interval: {}", quoted(text)))
            .code("22007")
            .hint("an interval is written 1 year 2 mons 3 days 04:05:06, or P1Y2M3DT4H5M6S")
    };
    let trimmed = text.trim();
    let mut span = match trimmed.strip_prefix(['P', 'p']) {
        Some(iso) => of_iso(iso),
        None => of_words(trimmed, fields),
    }
    .ok_or_else(wrong)?;
    if let Some(fields) = fields {
        span.cut(fields.last);
    }
    span.finish().ok_or_else(|| {
        Error::user(format!("interval field value out of range: {}", quoted(text))).code("22015")
    })
}

/// The sign of a word, and the word without it.
fn signed(word: &str) -> (bool, &str) {
    match word.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, word.strip_prefix('+').unwrap_or(word)),
    }
}

fn of_words(text: &str, fields: Option<Fields>) -> Option<Span> {
    let text = text.strip_prefix('@').unwrap_or(text);
    let mut words: Vec<&str> = vec![];
    for word in text.split_whitespace() {
        // `1day` are two words, `1 day` as well.
        let (_, body) = signed(word);
        let letters = body.find(|c: char| c.is_alphabetic());
        match letters {
            Some(at) if at > 0 => {
                let at = at + word.len() - body.len();
                words.extend([&word[..at], &word[at..]]);
            }
            _ => words.push(word),
        }
    }
    let mut span = Span::default();
    // A sign may stand by itself before its number.
    let mut sign_before: Option<bool> = None;
    let mut any = false;
    let mut at = 0;
    while at < words.len() {
        let word = words[at];
        at += 1;
        if word == "-" || word == "+" {
            sign_before = Some(word == "-");
            continue;
        }
        if word.eq_ignore_ascii_case("ago") && any && at == words.len() {
            span.negate();
            continue;
        }
        let (negative, body) = signed(word);
        let negative = sign_before.take().map_or(negative, |before| before != negative);
        any = true;
        if body.contains(':') {
            let us = clock(body, fields)?;
            span.us += if negative { -us } else { us };
            continue;
        }
        if let Some((years, months)) = body.split_once('-') {
            let (years, months) = (Number::of(years, false)?, Number::of(months, false)?);
            if months.whole >= 12 || years.fraction != 0.0 || months.fraction != 0.0 {
                return None;
            }
            let months = years.whole.checked_mul(12)? + months.whole;
            span.months += if negative { -months } else { months };
            continue;
        }
        let number = Number::of(body, negative)?;
        if number.whole > i128::from(i64::MAX) {
            return None;
        }
        let unit = match words.get(at) {
            Some(next) if Unit::named(next).is_some() => {
                at += 1;
                Unit::named(next)?
            }
            // `1 12:59:10`
            Some(next) if next.contains(':') => Unit::Day,
            // `1 day 2` counts the last field, and `1 2` with DAY TO HOUR days and hours.
            Some(next) if fields.is_some() && Number::of(signed(next).1, false).is_some() => {
                fields?.first
            }
            Some(next) if next.eq_ignore_ascii_case("ago") => Unit::Second,
            Some(_) => return None,
            None => fields.map_or(Unit::Second, |f| f.last),
        };
        span.add(number, unit);
    }
    (any && sign_before.is_none()).then_some(span)
}

/// `4:05`, `4:05:06.7`, `05:06.7`: microseconds.
fn clock(text: &str, fields: Option<Fields>) -> Option<i128> {
    let parts: Vec<&str> = text.split(':').collect();
    let whole = |text: &str| Number::of(text, false).filter(|n| n.fraction == 0.0).map(|n| n.whole);
    let of_minutes = fields.is_some_and(|f| f.first == Unit::Minute && f.last == Unit::Second);
    let (hours, minutes, seconds) = match parts[..] {
        [minutes, seconds] if seconds.contains('.') || of_minutes => {
            (0, whole(minutes)?, Number::of(seconds, false)?.micros())
        }
        [hours, minutes] => (whole(hours)?, whole(minutes)?, 0),
        [hours, minutes, seconds] => {
            (whole(hours)?, whole(minutes)?, Number::of(seconds, false)?.micros())
        }
        _ => return None,
    };
    if minutes >= 60 || seconds > 60 * SECOND_US {
        return None;
    }
    Some((hours.checked_mul(60)? + minutes).checked_mul(60 * SECOND_US)? + seconds)
}

/// `P1Y2M3DT4H5M6S` without its first letter.
fn of_iso(text: &str) -> Option<Span> {
    let mut span = Span::default();
    let mut is_time = false;
    let mut rest = text;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        if let Some(time) = rest.strip_prefix(['T', 't']) {
            if is_time {
                return None;
            }
            (is_time, rest) = (true, time);
            continue;
        }
        let end = rest.find(|c: char| c.is_alphabetic())?;
        let (negative, digits) = signed(&rest[..end]);
        let number = Number::of(digits, negative)?;
        let letter = rest[end..].chars().next()?.to_ascii_uppercase();
        let unit = match (letter, is_time) {
            ('Y', false) => Unit::Year,
            ('M', false) => Unit::Month,
            ('W', false) => Unit::Week,
            ('D', false) => Unit::Day,
            ('H', true) => Unit::Hour,
            ('M', true) => Unit::Minute,
            ('S', true) => Unit::Second,
            _ => return None,
        };
        span.add(number, unit);
        rest = &rest[end + 1..];
    }
    Some(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_postgresql_reads_them() {
        let check = |text: &str, fields: Option<Fields>, expected: (i32, i32, i64)| {
            let (months, days, us) = expected;
            let expected = Parts { months, days, ns: us * 1000 };
            assert_eq!(read(text, fields).unwrap(), expected, "{text}");
        };
        let hour = 3_600_000_000;
        check("1 year 2 mons", None, (14, 0, 0));
        check("1-2", None, (14, 0, 0));
        check("-1-2", None, (-14, 0, 0));
        check("3 days 04:05:06.7", None, (0, 3, 14_706_700_000));
        check("1 12:59:10", None, (0, 1, 46_750_000_000));
        check("1.5 years", None, (18, 0, 0));
        check("1.5 months", None, (1, 15, 0));
        check("0.1 months", None, (0, 3, 0));
        check("1.5 weeks", None, (0, 10, 12 * hour));
        check("1.5 days", None, (0, 1, 12 * hour));
        check("@ 5 minutes ago", None, (0, 0, -hour / 12));
        check("-1 day 2 hours", None, (0, -1, 2 * hour));
        check("1day 2h", None, (0, 1, 2 * hour));
        check("P1Y2M3DT4H5M6S", None, (14, 3, 14_706_000_000));
        check("PT-1.5S", None, (0, 0, -1_500_000));
        check("14 mons 3 days 4 hours 5 mins 6.700000000 secs", None, (14, 3, 14_706_700_000));
        check("90", None, (0, 0, 90_000_000));
        check("04:05", None, (0, 0, 14_700_000_000));
        check("5.25", None, (0, 0, 5_250_000));
        check("1.000001 seconds", None, (0, 0, 1_000_001));
        let fields = |first, last| Some(Fields { first, last });
        check("90", fields(Unit::Minute, Unit::Minute), (0, 0, 5_400_000_000));
        check("1 day 02:03:04", fields(Unit::Hour, Unit::Hour), (0, 1, 2 * hour));
        check("1-2", fields(Unit::Year, Unit::Month), (14, 0, 0));
        check("14 mons 3 days", fields(Unit::Year, Unit::Year), (12, 0, 0));
        check("1 2", fields(Unit::Day, Unit::Hour), (0, 1, 2 * hour));
        for text in ["", "x", "1 parsec", "1:70", "P", "1 day x", "-", "1-13"] {
            assert_eq!(read(text, None).unwrap_err().sqlstate(), "22007", "{text}");
        }
        assert_eq!(read("3000000000 days", None).unwrap_err().sqlstate(), "22015");
    }
}
