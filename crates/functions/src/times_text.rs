//! Dates, times and timestamps as people write them, read as PostgreSQL reads them (with its
//! `DateStyle` of `ISO, MDY`).
//!
//! A text is cut into words: runs of digits with what joins them, names, signs. Each word says what
//! it is by its look and by what was found before it. Seconds may be left out, a zone may follow,
//! names of months may stand anywhere.

use arrow::array::timezone::Tz;
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};

use super::calendar::{DAY_US, checked_date};
use super::to_char::{DAYS, MONTHS};
use super::zones;

/// What a text said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Days since 1970-01-01.
    pub days: Option<i64>,
    /// Nanoseconds since midnight.
    pub time_ns: Option<i64>,
    pub zone: Option<Zone>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Zone {
    /// Seconds east of UTC.
    Offset(i32),
    Named(String),
}

#[derive(Default)]
struct Reading {
    numbers: Vec<(i64, usize)>,
    month: Option<i64>,
    /// Numbers before a month by name.
    before_month: usize,
    time_ns: Option<i64>,
    after_noon: Option<bool>,
    zone: Option<Zone>,
    before_christ: bool,
    days: Option<i64>,
    /// Whether the numbers stand year first.
    year_first: bool,
}

/// Reads a text; `what` is the type that is wanted, for messages.
pub fn read(text: &str, what: &str) -> Result<Said> {
    reading(text.trim()).ok_or_else(|| wrong(text, what)).and_then(|r| r.settle(text, what))
}

fn wrong(text: &str, what: &str) -> Error {
    Error::user(format!("{} is not a {what}", quoted(text)))
        .code("22007")
        .hint("a date is written 2024-01-30, a time 10:00 or 10:00:00.5, an offset +02")
}

fn reading(text: &str) -> Option<Reading> {
    let mut found = Reading::default();
    let mut rest = text;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let first = rest.chars().next()?;
        if first.is_ascii_digit() {
            let is_clock = |c: char| c.is_ascii_digit() || matches!(c, ':' | '.' | ',');
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let next = rest[digits..].chars().next();
            if next == Some(':') {
                let end = rest.find(|c| !is_clock(c)).unwrap_or(rest.len());
                let end = rest[..end].trim_end_matches(',').len();
                if found.time_ns.is_some() {
                    return None;
                }
                found.time_ns = Some(clock(&rest[..end])?);
                rest = &rest[end..];
                rest = zone(rest, &mut found)?;
                continue;
            }
            let after_t =
                found.time_ns.is_none() && text[..text.len() - rest.len()].ends_with(['T', 't']);
            let whole_date = found.days.is_some() || found.numbers.len() == 3;
            if whole_date
                && found.time_ns.is_none()
                && (after_t || next.is_none_or(|c| !matches!(c, '-' | '/')))
            {
                // `T1030`, ` 103045.5`
                let fraction = rest[digits..]
                    .strip_prefix('.')
                    .map_or(0, |f| 1 + f.find(|c: char| !c.is_ascii_digit()).unwrap_or(f.len()));
                found.time_ns = Some(
                    compact_clock(&rest[..digits], &rest[digits..digits + fraction])
                        .or_else(|| hour_with_meridiem(&rest[..digits], &rest[digits..]))?,
                );
                rest = &rest[digits + fraction..];
                rest = zone(rest, &mut found)?;
                continue;
            }
            if found.numbers.is_empty()
                && found.month.is_none()
                && found.days.is_none()
                && (digits == 8 || digits == 6)
                && next.is_none_or(|c| !matches!(c, '-' | '/' | '.'))
            {
                // `20240130`, `240130`
                let (year, rest_digits) = rest[..digits].split_at(digits - 4);
                let number = |text: &str| text.parse::<i64>().ok();
                found.numbers = vec![
                    (number(year)?, year.len()),
                    (number(&rest_digits[..2])?, 2),
                    (number(&rest_digits[2..])?, 2),
                ];
                found.year_first = true;
                rest = &rest[digits..];
                continue;
            }
            if found.numbers.len() == 3 || found.days.is_some() {
                return None;
            }
            found.numbers.push((rest[..digits].parse().ok()?, digits));
            rest = &rest[digits..];
            for suffix in ["st", "nd", "rd", "th"] {
                if rest.get(..2).is_some_and(|head| head.eq_ignore_ascii_case(suffix)) {
                    rest = &rest[2..];
                    break;
                }
            }
            rest = rest.strip_prefix(['-', '/', '.', ',']).unwrap_or(rest);
            continue;
        }
        if first.is_alphabetic() {
            let end = rest
                .find(|c: char| !(c.is_alphanumeric() || matches!(c, '/' | '_' | '.')))
                .unwrap_or(rest.len());
            // A dot belongs to `a.m.`, and to nothing else.
            let word = &rest[..end];
            let letters = word.find(|c: char| !c.is_alphabetic()).unwrap_or(word.len());
            let lower = word.to_lowercase();
            let short = lower[..letters.min(lower.len())].to_string();
            let taken = name(&lower, &short, letters, word, &mut found)?;
            rest = &rest[taken..];
            rest = rest.strip_prefix(['-', ',', '/']).unwrap_or(rest);
            continue;
        }
        if first.is_whitespace() || first == ',' {
            rest = &rest[first.len_utf8()..];
            continue;
        }
        // `2024-01-30 +02` has a zone as well: JDBC writes dates so.
        let after_date = found.numbers.len() == 3
            && text[..text.len() - rest.len()].ends_with(char::is_whitespace);
        if matches!(first, '+' | '-') && (found.time_ns.is_some() || after_date) {
            rest = zone(rest, &mut found)?;
            continue;
        }
        return None;
    }
    Some(found)
}

/// A word that is no number; how much of the text it takes.
fn name(
    lower: &str,
    short: &str,
    letters: usize,
    word: &str,
    found: &mut Reading,
) -> Option<usize> {
    let is_one = |names: &[&str]| {
        names.iter().position(|name| {
            let name = name.to_lowercase();
            short == name
                || short.len() >= 3 && short == &name[..3]
                || name == "september" && short == "sept"
        })
    };
    match lower {
        "t" if found.time_ns.is_none() => return Some(1),
        "am" | "a.m." | "pm" | "p.m." => {
            if found.time_ns.is_none() || found.after_noon.is_some() {
                return None;
            }
            found.after_noon = Some(lower.starts_with('p'));
            return Some(word.len());
        }
        "ad" | "bc" => {
            found.before_christ = lower == "bc";
            return Some(word.len());
        }
        "epoch" if found.days.is_none() => {
            (found.days, found.time_ns) = (Some(0), Some(0));
            found.zone = Some(Zone::Offset(0));
            return Some(word.len());
        }
        "allballs" => {
            (found.time_ns, found.zone) = (Some(0), Some(Zone::Offset(0)));
            return Some(word.len());
        }
        "z" | "utc" | "gmt" | "zulu" | "ut" | "zoneless" if found.time_ns.is_some() => {
            found.zone = Some(Zone::Offset(0));
            return Some(word.len());
        }
        _ => {}
    }
    if let Some(month) = is_one(&MONTHS) {
        if found.month.is_some() {
            return None;
        }
        found.month = Some(month as i64 + 1);
        found.before_month = found.numbers.len();
        // A dot may follow, as in `Jan. 8`.
        return Some(letters + usize::from(word[letters..].starts_with('.')));
    }
    if is_one(&DAYS).is_some() {
        return Some(letters + usize::from(word[letters..].starts_with('.')));
    }
    if let Some(julian) = lower.strip_prefix('j')
        && !julian.is_empty()
        && julian.bytes().all(|b| b.is_ascii_digit())
    {
        found.days = Some(julian.parse::<i64>().ok()? - 2_440_588);
        return Some(word.len());
    }
    // `T10:00` right after a date.
    if short == "t"
        && word[1..].starts_with(|c: char| c.is_ascii_digit())
        && found.time_ns.is_none()
    {
        return Some(1);
    }
    let zone = match lower {
        "est" => -5,
        "edt" => -4,
        "cst" => -6,
        "cdt" => -5,
        "mst" => -7,
        "mdt" => -6,
        "pst" => -8,
        "pdt" => -7,
        "cet" => 1,
        "cest" => 2,
        "bst" => 1,
        "jst" => 9,
        _ => {
            word.parse::<Tz>().ok().filter(|_| word.contains('/'))?;
            found.zone = Some(Zone::Named(word.to_string()));
            return Some(word.len());
        }
    };
    found.zone = Some(Zone::Offset(zone * 3600));
    Some(word.len())
}

/// `10:00[:00[.5]]`
fn clock(text: &str) -> Option<i64> {
    let mut fields = text.splitn(3, ':');
    let number = |text: &str, most: i64| -> Option<i64> {
        let digits =
            !text.is_empty() && text.len() <= 2 && text.bytes().all(|b| b.is_ascii_digit());
        text.parse().ok().filter(|n| digits && *n <= most)
    };
    let hour = number(fields.next()?, 24)?;
    let minute = fields.next()?;
    let (minute, seconds_ns) = match fields.next() {
        Some(seconds) => {
            let (whole, fraction) = seconds.split_once(['.', ',']).unwrap_or((seconds, ""));
            (number(minute, 59)?, number(whole, 60)? * 1_000_000_000 + fraction_ns(fraction)?)
        }
        None => (number(minute, 59)?, 0),
    };
    let ns = (hour * 60 + minute) * 60_000_000_000 + seconds_ns;
    (ns <= DAY_US * 1000).then_some(ns)
}

fn fraction_ns(digits: &str) -> Option<i64> {
    if digits.is_empty() {
        return Some(0);
    }
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // What is finer is rounded.
    let kept: i64 = format!("{digits:0<9}")[..9].parse().ok()?;
    Some(kept + i64::from(digits.as_bytes().get(9).is_some_and(|d| *d >= b'5')))
}

/// `1030`, `103045.5`
fn compact_clock(digits: &str, fraction: &str) -> Option<i64> {
    match digits.len() {
        4 => clock(&format!("{}:{}", &digits[..2], &digits[2..])),
        6 => clock(&format!("{}:{}:{}{fraction}", &digits[..2], &digits[2..4], &digits[4..])),
        _ => None,
    }
}

/// `10 PM`
fn hour_with_meridiem(digits: &str, after: &str) -> Option<i64> {
    let after = after.trim_start().to_lowercase();
    let has = ["am", "pm", "a.m.", "p.m."].iter().any(|word| after.starts_with(word));
    (has && digits.len() <= 2).then(|| clock(&format!("{digits}:00")))?
}

/// An offset right behind a time; what is left of the text.
fn zone<'t>(rest: &'t str, found: &mut Reading) -> Option<&'t str> {
    let trimmed = rest.trim_start();
    let Some(sign) = trimmed.chars().next().filter(|c| matches!(c, '+' | '-')) else {
        return Some(rest);
    };
    if found.zone.is_some() {
        return None;
    }
    let body = &trimmed[1..];
    let end = body.find(|c: char| !(c.is_ascii_digit() || c == ':')).unwrap_or(body.len());
    let fields: Vec<&str> = body[..end].split(':').collect();
    let number = |text: &str| text.parse::<i32>().ok();
    let (hours, minutes, seconds) = match &fields[..] {
        [all] if all.len() <= 2 => (number(all)?, 0, 0),
        [all] if all.len() <= 4 => {
            let (hours, minutes) = all.split_at(all.len() - 2);
            (number(hours)?, number(minutes)?, 0)
        }
        [hours, minutes] => (number(hours)?, number(minutes)?, 0),
        [hours, minutes, seconds] => (number(hours)?, number(minutes)?, number(seconds)?),
        _ => return None,
    };
    if hours > 15 || minutes > 59 || seconds > 59 {
        return None;
    }
    let offset = hours * 3600 + minutes * 60 + seconds;
    found.zone = Some(Zone::Offset(if sign == '-' { -offset } else { offset }));
    Some(&body[end..])
}

impl Reading {
    fn settle(self, text: &str, what: &str) -> Result<Said> {
        let out_of_range = || {
            Error::user(format!("a field of {} is out of range", quoted(text)))
                .code("22008")
                .hint("a date is written 2024-01-30: year, month, day")
        };
        let mut time_ns = self.time_ns;
        if let (Some(after_noon), Some(ns)) = (self.after_noon, time_ns) {
            const HOUR_NS: i64 = 3_600_000_000_000;
            if ns >= 13 * HOUR_NS {
                return Err(out_of_range());
            }
            let within = ns % (12 * HOUR_NS);
            time_ns = Some(if after_noon { within + 12 * HOUR_NS } else { within });
        }
        let days = match (self.days, self.month, &self.numbers[..]) {
            (Some(days), None, []) => Some(days),
            (None, None, []) => None,
            (None, None, &[a, b, c]) => {
                let (year, month, day) = match self.year_first || a.1 >= 3 {
                    true => (a, b.0, c.0),
                    false => (c, a.0, b.0),
                };
                Some((year, month, day)).map(|date| self.date(date, &out_of_range)).transpose()?
            }
            (None, Some(month), &[a, b]) => {
                // `8 Jan 1999`, `Jan 8, 1999`, `1999-Jan-08`
                let (year, day) = if a.1 >= 3 { (a, b.0) } else { (b, a.0) };
                Some(self.date((year, month, day), &out_of_range)?)
            }
            _ => return Err(wrong(text, what)),
        };
        if days.is_none() && time_ns.is_none() {
            return Err(wrong(text, what));
        }
        Ok(Said { days, time_ns, zone: self.zone })
    }

    fn date(
        &self,
        ((year, digits), month, day): ((i64, usize), i64, i64),
        out_of_range: &dyn Fn() -> Error,
    ) -> Result<i64> {
        let year = match (self.before_christ, digits) {
            (true, _) if year > 0 => 1 - year,
            (false, 0..=2) if year < 70 => year + 2000,
            (false, 0..=2) => year + 1900,
            (false, _) if year > 0 => year,
            _ => return Err(out_of_range()),
        };
        checked_date(year, month, day).ok_or_else(out_of_range)
    }
}

impl Said {
    /// Days since 1970-01-01; a time of day is left out.
    pub fn date(&self, text: &str) -> Result<i32> {
        let days = self.days.ok_or_else(|| wrong(text, "date"))?;
        i32::try_from(days).map_err(|_| beyond(text, "date"))
    }

    /// Nanoseconds since midnight; a date and a zone are left out.
    pub fn time_ns(&self, text: &str) -> Result<i64> {
        self.time_ns.ok_or_else(|| wrong(text, "time"))
    }

    /// Nanoseconds since 1970-01-01: of the instant, on the clock of `zone` where the text names none; or,
    /// without a `zone`, of what a clock shows, whatever zone the text names.
    pub fn timestamp_ns(&self, text: &str, zone: Option<&Tz>) -> Result<i128> {
        let days = self.days.ok_or_else(|| wrong(text, "timestamp"))?;
        let time_ns = self.time_ns.unwrap_or(0);
        let local_ns = i128::from(days) * i128::from(DAY_US) * 1000 + i128::from(time_ns);
        let Some(zone) = zone else { return Ok(local_ns) };
        let local_us =
            i64::try_from(local_ns.div_euclid(1000)).map_err(|_| beyond(text, "timestamp"))?;
        let offset_s = match &self.zone {
            Some(Zone::Offset(offset_s)) => i64::from(*offset_s),
            Some(Zone::Named(name)) => {
                let named = name.parse::<Tz>().map_err(|_| wrong(text, "timestamp"))?;
                zones::Zone::Named(named).offset_at_clock(local_us)
            }
            None => zones::Zone::Named(*zone).offset_at_clock(local_us),
        };
        Ok(local_ns - i128::from(offset_s) * 1_000_000_000)
    }
}

pub fn beyond(text: &str, what: &str) -> Error {
    Error::user(format!("{} is beyond what a {what} of this precision can hold", quoted(text)))
        .code("22008")
        .hint("nanoseconds reach from 1677 to 2262; TIMESTAMP(6) reaches further")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::days_of;

    #[test]
    fn texts_are_read_as_postgresql_reads_them() {
        let at = |text: &str| {
            let said = read(text, "timestamp").unwrap();
            (said.days, said.time_ns.map(|ns| ns / 1_000_000_000), said.zone)
        };
        let day = Some(days_of(2024, 1, 30));
        for text in [
            "2024-01-30",
            "2024-1-30",
            "20240130",
            "2024/01/30",
            "01/30/2024",
            "1/30/2024",
            "January 30, 2024",
            "Jan 30 2024",
            "30 Jan 2024",
            "30-Jan-2024",
            "Jan-30-2024",
            "2024-Jan-30",
            "2024 Jan 30",
            "Tue Jan 30 2024",
            "J2460340",
            "240130",
            "01/30/24",
            "30th January 2024",
        ] {
            assert_eq!(at(text), (day, None, None), "{text}");
        }
        for (text, seconds) in [
            ("2024-01-30 10:00", 36_000),
            ("2024-01-30T10:00", 36_000),
            ("2024-01-30 10:00:05", 36_005),
            ("2024-01-30 1:05", 3_900),
            ("2024-01-30 10:00 PM", 79_200),
            ("2024-01-30 12:30am", 1_800),
            ("20240130T103045", 37_845),
            ("20240130 1030", 37_800),
            ("Jan 30 2024 10:00", 36_000),
            ("2024-01-30 24:00", 86_400),
        ] {
            assert_eq!(at(text), (day, Some(seconds), None), "{text}");
        }
        for (text, offset) in [
            ("2024-01-30 10:00+02", 7_200),
            ("2024-01-30 10:00:00 +02:30", 9_000),
            ("2024-01-30T10:00:00.000-0800", -28_800),
            ("2024-01-30T10:00Z", 0),
            ("2024-01-30 10:00 UTC", 0),
            ("2024-01-30 10:00 EST", -18_000),
        ] {
            assert_eq!(at(text), (day, Some(36_000), Some(Zone::Offset(offset))), "{text}");
        }
        assert_eq!(at("10:00"), (None, Some(36_000), None));
        assert_eq!(
            at("2024-01-30 10:00 America/New_York").2,
            Some(Zone::Named("America/New_York".into()))
        );
        assert_eq!(at("0044-03-15 BC").0, Some(days_of(-43, 3, 15)));
        assert_eq!(at("10000-01-01").0, Some(days_of(10_000, 1, 1)));
        for text in [
            "",
            "x",
            "2024-02-30",
            "2024-13-01",
            "30/01/2024",
            "2024-01-30 25:00",
            "10:60",
            "2024-01-30 10",
            "2024",
            "12",
            "1.5",
            "2024-01",
            "2024-01-30 10:00 PM AM",
            "2024-01-30 13:00 PM",
            "0000-01-01",
        ] {
            assert!(read(text, "timestamp").is_err(), "{text}");
        }
    }
}
