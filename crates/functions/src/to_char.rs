//! `to_char` with PostgreSQL's patterns. Of times and spans here; of numbers in `number_pattern.rs`.
//!
//! A pattern is cut into [`Item`]s once; each value is then written item by item. What each word
//! means stands in [`WORDS`].

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::calendar::{Parts, Times};
use super::number_pattern;
use thalweg_errors::into_datafusion;

/// A word of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// `AM` or `PM`, with points or without.
    Meridiem {
        points: bool,
    },
    /// `BC` or `AD`.
    Era {
        points: bool,
    },
    Century,
    Weekday,
    WeekdayShort,
    DayOfYear,
    DayOfIsoYear,
    DayOfMonth,
    /// Sunday is 1.
    DayOfWeek,
    /// Monday is 1.
    DayOfIsoWeek,
    /// Digits of the fraction of a second.
    Fraction(u32),
    Exactly,
    Hour24,
    Hour12,
    IsoWeek,
    Julian,
    Micros,
    Millis,
    Minute,
    Month,
    MonthName,
    MonthShort,
    Offset,
    OffsetHour,
    OffsetMinute,
    Quarter,
    Roman,
    Second,
    SecondOfDay,
    WeekOfMonth,
    WeekOfYear,
    /// `Y,YYY`
    YearComma,
    /// The last so many digits of the year.
    Year(u32),
    IsoYear(u32),
    Zone,
}

/// How a word is written, where that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    Upper,
    Lower,
    Capital,
}

use Word as W;

/// Longer words before those they begin with. Each is known in capitals and in small letters;
/// names of months and days as `Month`, too.
pub const WORDS: &[(&str, Word)] = &[
    ("A.D.", W::Era { points: true }),
    ("A.M.", W::Meridiem { points: true }),
    ("AD", W::Era { points: false }),
    ("AM", W::Meridiem { points: false }),
    ("B.C.", W::Era { points: true }),
    ("BC", W::Era { points: false }),
    ("CC", W::Century),
    ("DAY", W::Weekday),
    ("DDD", W::DayOfYear),
    ("DD", W::DayOfMonth),
    ("DY", W::WeekdayShort),
    ("D", W::DayOfWeek),
    ("FF1", W::Fraction(1)),
    ("FF2", W::Fraction(2)),
    ("FF3", W::Fraction(3)),
    ("FF4", W::Fraction(4)),
    ("FF5", W::Fraction(5)),
    ("FF6", W::Fraction(6)),
    ("FX", W::Exactly),
    ("HH24", W::Hour24),
    ("HH12", W::Hour12),
    ("HH", W::Hour12),
    ("IDDD", W::DayOfIsoYear),
    ("ID", W::DayOfIsoWeek),
    ("IW", W::IsoWeek),
    ("IYYY", W::IsoYear(4)),
    ("IYY", W::IsoYear(3)),
    ("IY", W::IsoYear(2)),
    ("I", W::IsoYear(1)),
    ("J", W::Julian),
    ("MI", W::Minute),
    ("MM", W::Month),
    ("MONTH", W::MonthName),
    ("MON", W::MonthShort),
    ("MS", W::Millis),
    ("OF", W::Offset),
    ("P.M.", W::Meridiem { points: true }),
    ("PM", W::Meridiem { points: false }),
    ("Q", W::Quarter),
    ("RM", W::Roman),
    ("SSSSS", W::SecondOfDay),
    ("SSSS", W::SecondOfDay),
    ("SS", W::Second),
    ("TZH", W::OffsetHour),
    ("TZM", W::OffsetMinute),
    ("TZ", W::Zone),
    ("US", W::Micros),
    ("WW", W::WeekOfYear),
    ("W", W::WeekOfMonth),
    ("Y,YYY", W::YearComma),
    ("YYYY", W::Year(4)),
    ("YYY", W::Year(3)),
    ("YY", W::Year(2)),
    ("Y", W::Year(1)),
];

pub const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
pub const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
pub const ROMAN: [&str; 12] =
    ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

/// A part of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Word {
        word: Word,
        case: Case,
        fill: bool,
        ordinal: Option<Case>,
    },
    /// Stands for itself. `quoted`: between quotes.
    Text {
        text: char,
        quoted: bool,
    },
}

/// Cuts a pattern into its parts.
pub fn items(pattern: &str) -> Vec<Item> {
    let mut items = vec![];
    let mut rest = pattern;
    let mut fill = true;
    while !rest.is_empty() {
        let mut prefixed = false;
        // Names in a language, of which there is one, have no blanks around them.
        let mut translated = false;
        for (prefix, is_fill) in [("FM", true), ("fm", true), ("TM", false), ("tm", false)] {
            if let Some(after) = rest.strip_prefix(prefix) {
                rest = after;
                prefixed = true;
                fill &= !is_fill;
                translated |= !is_fill;
            }
        }
        if let Some((word, case, length)) = word(rest) {
            if translated
                && matches!(word, W::MonthName | W::MonthShort | W::Weekday | W::WeekdayShort)
            {
                fill = false;
            }
            rest = &rest[length..];
            let ordinal = match rest.get(..2) {
                Some("TH") => Some(Case::Upper),
                Some("th") => Some(Case::Lower),
                _ => None,
            };
            if ordinal.is_some() {
                rest = &rest[2..];
            }
            items.push(Item::Word { word, case, fill, ordinal });
            fill = true;
            continue;
        }
        if prefixed && rest.is_empty() {
            break;
        }
        let mut characters = rest.chars();
        match characters.next() {
            Some('"') => {
                let mut end = rest.len();
                let mut quoted = rest.char_indices().skip(1);
                while let Some((at, c)) = quoted.next() {
                    match c {
                        '"' => {
                            end = at + 1;
                            break;
                        }
                        '\\' => {
                            if let Some((_, c)) = quoted.next() {
                                items.push(Item::Text { text: c, quoted: true });
                            }
                        }
                        c => items.push(Item::Text { text: c, quoted: true }),
                    }
                }
                rest = &rest[end..];
            }
            Some('\\') if rest[1..].starts_with('"') => {
                items.push(Item::Text { text: '"', quoted: false });
                rest = &rest[2..];
            }
            Some(c) => {
                items.push(Item::Text { text: c, quoted: false });
                rest = characters.as_str();
            }
            None => {}
        }
        fill = true;
    }
    items
}

/// The word that a pattern goes on with, and its length.
fn word(rest: &str) -> Option<(Word, Case, usize)> {
    for (name, word) in WORDS {
        let Some(head) = rest.get(..name.len()) else { continue };
        let case = if head == *name {
            Case::Upper
        } else if head.chars().zip(name.chars()).all(|(a, b)| a == b.to_ascii_lowercase()) {
            Case::Lower
        } else if matches!(word, W::Weekday | W::WeekdayShort | W::MonthName | W::MonthShort)
            && head.starts_with(&name[..1])
            && head[1..].chars().zip(name[1..].chars()).all(|(a, b)| a == b.to_ascii_lowercase())
        {
            Case::Capital
        } else {
            continue;
        };
        return Some((*word, case, name.len()));
    }
    None
}

/// Writes a time or a span.
pub fn write(items: &[Item], parts: &Parts, out: &mut String) -> Result<()> {
    for item in items {
        match item {
            Item::Text { text, quoted: _ } => out.push(*text),
            Item::Word { word, case, fill, ordinal } => {
                let start = out.len();
                let is_number = word_of(*word, *case, *fill, parts, out)?;
                if let Some(case) = ordinal
                    && is_number
                    && out.len() > start
                {
                    out.push_str(number_pattern::ordinal(&out[start..], *case == Case::Upper));
                }
            }
        }
    }
    Ok(())
}

/// Whether what was written is a number.
fn word_of(word: Word, case: Case, fill: bool, p: &Parts, out: &mut String) -> Result<bool> {
    // Negative numbers, which only spans have, are as wide with their sign.
    let number = |value: i64, width: usize, out: &mut String| {
        let width = match (fill, value < 0) {
            (false, _) => 0,
            (true, false) => width,
            (true, true) => width + 1,
        };
        let _ = write!(out, "{value:0width$}");
    };
    let year = |year: i64| if p.is_span || year > 0 { year } else { 1 - year };
    let named = |name: &str, width: usize, out: &mut String| {
        let name = match case {
            Case::Upper => name.to_uppercase(),
            Case::Lower => name.to_lowercase(),
            Case::Capital => name.to_string(),
        };
        let width = if fill { width } else { 0 };
        let _ = write!(out, "{name:width$}");
    };
    let not_of_span = || match p.is_span {
        true => exec_err!("a span of time has no weekday, era, zone or name of a month"),
        false => Ok(()),
    };
    match word {
        W::Meridiem { points } => {
            let letter = if p.hour.rem_euclid(24) >= 12 { "P" } else { "A" };
            let text = if points { format!("{letter}.M.") } else { format!("{letter}M") };
            named_raw(&text, case, out);
            return Ok(false);
        }
        W::Era { points } => {
            not_of_span()?;
            let text = match (p.year <= 0, points) {
                (true, true) => "B.C.",
                (true, false) => "BC",
                (false, true) => "A.D.",
                (false, false) => "AD",
            };
            named_raw(text, case, out);
            return Ok(false);
        }
        W::Hour12 => {
            let hour = p.hour % 12;
            number(if hour == 0 { 12 } else { hour }, 2, out);
        }
        W::Hour24 => number(p.hour, 2, out),
        W::Minute => number(p.minute, 2, out),
        W::Second => number(p.second, 2, out),
        W::Millis => {
            let _ = write!(out, "{:03}", p.micros / 1000);
        }
        W::Micros => {
            let _ = write!(out, "{:06}", p.micros);
        }
        W::Fraction(digits) => {
            let width = digits as usize;
            let _ = write!(out, "{:0width$}", p.micros / 10_i64.pow(6 - digits));
        }
        W::SecondOfDay => {
            let _ = write!(out, "{}", (p.hour * 60 + p.minute) * 60 + p.second);
        }
        W::Zone => {
            not_of_span()?;
            if let Some(offset) = p.offset_s {
                match offset {
                    0 => named_raw("UTC", case, out),
                    offset => {
                        let _ = write!(out, "{:+03}", offset / 3600);
                        if offset % 3600 != 0 {
                            let _ = write!(out, ":{:02}", (offset % 3600).abs() / 60);
                        }
                    }
                }
            }
            return Ok(false);
        }
        W::OffsetHour => {
            not_of_span()?;
            let offset = p.offset_s.unwrap_or(0);
            let sign = if offset < 0 { '-' } else { '+' };
            let _ = write!(out, "{sign}{:02}", offset.abs() / 3600);
            return Ok(false);
        }
        W::OffsetMinute => {
            not_of_span()?;
            let _ = write!(out, "{:02}", p.offset_s.unwrap_or(0).abs() / 60 % 60);
            return Ok(false);
        }
        W::Offset => {
            not_of_span()?;
            let offset = p.offset_s.unwrap_or(0);
            let sign = if offset < 0 { '-' } else { '+' };
            let width = if fill { 2 } else { 0 };
            let _ = write!(out, "{sign}{:0width$}", offset.abs() / 3600);
            if offset % 3600 != 0 {
                let _ = write!(out, ":{:02}", offset.abs() % 3600 / 60);
            }
            return Ok(false);
        }
        W::MonthName | W::MonthShort => {
            not_of_span()?;
            let name = MONTHS[(p.month - 1) as usize];
            match word {
                W::MonthName => named(name, 9, out),
                _ => named(&name[..3], 0, out),
            }
            return Ok(false);
        }
        W::Month => number(p.month, 2, out),
        W::Weekday | W::WeekdayShort => {
            not_of_span()?;
            let name = DAYS[p.weekday() as usize];
            match word {
                W::Weekday => named(name, 9, out),
                _ => named(&name[..3], 0, out),
            }
            return Ok(false);
        }
        W::DayOfYear => {
            let days = if p.is_span { span_days(p) } else { p.day_of_year() };
            number(days, 3, out);
        }
        W::DayOfIsoYear => {
            not_of_span()?;
            let (_, week) = p.iso_week();
            number((week - 1) * 7 + (p.weekday() + 6) % 7 + 1, 3, out);
        }
        W::DayOfMonth => number(p.day, 2, out),
        W::DayOfWeek => {
            not_of_span()?;
            let _ = write!(out, "{}", p.weekday() + 1);
        }
        W::DayOfIsoWeek => {
            not_of_span()?;
            let _ = write!(out, "{}", (p.weekday() + 6) % 7 + 1);
        }
        W::WeekOfYear => {
            let days = if p.is_span { span_days(p) } else { p.day_of_year() };
            number((days - 1) / 7 + 1, 2, out);
        }
        W::IsoWeek => {
            not_of_span()?;
            number(p.iso_week().1, 2, out);
        }
        W::Quarter => {
            if p.month != 0 {
                let _ = write!(out, "{}", (p.month - 1) / 3 + 1);
            }
        }
        W::Century => {
            let century = match (p.is_span, p.year > 0) {
                (true, _) => p.year / 100,
                (false, true) => (p.year - 1) / 100 + 1,
                (false, false) => p.year / 100 - 1,
            };
            match (-99..=99).contains(&century) {
                true => number(century, 2, out),
                false => {
                    let _ = write!(out, "{century}");
                }
            }
        }
        W::YearComma => {
            let year = year(p.year);
            let _ = write!(out, "{},{:03}", year / 1000, year % 1000);
        }
        W::Year(4) => number(year(p.year), 4, out),
        W::Year(digits) => number(year(p.year) % 10_i64.pow(digits), digits as usize, out),
        W::IsoYear(digits) => {
            let iso = if p.is_span { p.year } else { p.iso_week().0 };
            match digits {
                4 => number(year(iso), 4, out),
                digits => number(year(iso) % 10_i64.pow(digits), digits as usize, out),
            }
        }
        W::Roman => {
            if p.month == 0 && p.year == 0 {
                return Ok(false);
            }
            let month = p.month.rem_euclid(12);
            let name = if month == 0 { "XII" } else { ROMAN[(month - 1) as usize] };
            named(name, 4, out);
            return Ok(false);
        }
        W::WeekOfMonth => {
            let _ = write!(out, "{}", (p.day - 1) / 7 + 1);
        }
        W::Julian => {
            let julian = if p.is_span { span_julian(p) } else { p.julian() };
            let _ = write!(out, "{julian}");
        }
        W::Exactly => return Ok(false),
    }
    Ok(true)
}

fn named_raw(text: &str, case: Case, out: &mut String) {
    match case {
        Case::Lower => out.push_str(&text.to_lowercase()),
        _ => out.push_str(text),
    }
}

/// A span's days where a date's day of the year is asked for.
fn span_days(p: &Parts) -> i64 {
    p.year * 365 + p.month * 30 + p.day
}

fn span_julian(p: &Parts) -> i64 {
    p.year * 365 + p.month * 30 + p.day
}

/// `to_char` of DataFusion's, whose patterns are those of `strftime`. It takes the pattern of the first row
/// for all rows where the time is a constant.
pub fn strftime(function: &ScalarUDF, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
    if let [time @ ColumnarValue::Scalar(_), ColumnarValue::Array(_)] = &mut args.args[..] {
        *time = ColumnarValue::Array(time.to_array(args.number_rows)?);
    }
    function.invoke_with_args(args)
}

/// `to_char(time or number, pattern)`
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ToChar {
    signature: Signature,
}

impl Default for ToChar {
    fn default() -> Self {
        ToChar { signature: Signature::user_defined(Volatility::Immutable) }
    }
}

/// What is written by the patterns of numbers.
fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric()
}

impl ScalarUDFImpl for ToChar {
    fn name(&self) -> &str {
        "to_char"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [value, pattern] = types else {
            return plan_err!("to_char takes a value and a pattern");
        };
        let value = match value {
            DataType::Dictionary(_, value) => value.as_ref().clone(),
            DataType::Null => DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None),
            value => value.clone(),
        };
        if !is_number(&value) && !value.is_temporal() {
            return plan_err!(
                "to_char takes a date, a timestamp, an interval or a number, and no {value}: cast it"
            );
        }
        match pattern {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => {
                Ok(vec![value, DataType::Utf8])
            }
            other => plan_err!("the pattern of to_char is a text, and no {other}"),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let [value, pattern] = <[ColumnarValue; 2]>::try_from(args.args)
            .or_else(|_| exec_err!("to_char takes a value and a pattern"))?;
        let all_scalar =
            matches!((&value, &pattern), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let rows = if all_scalar { 1 } else { rows };
        let one_pattern = matches!(pattern, ColumnarValue::Scalar(_));
        let pattern =
            cast(&pattern.into_array(if one_pattern { 1 } else { rows })?, &DataType::Utf8)?;
        let pattern = pattern.as_string::<i32>();
        let value = value.into_array(rows)?;
        let pattern_of = |row: usize| {
            let row = if one_pattern { 0 } else { row };
            (!pattern.is_null(row)).then(|| pattern.value(row))
        };
        let written = match is_number(value.data_type()) {
            true => numbers(&value, rows, pattern_of)?,
            false => times(&value, rows, pattern_of)?,
        };
        match all_scalar {
            true => Ok(ColumnarValue::Scalar(datafusion::common::ScalarValue::try_from_array(
                &written, 0,
            )?)),
            false => Ok(ColumnarValue::Array(written)),
        }
    }
}

fn times<'p>(
    value: &ArrayRef,
    rows: usize,
    pattern_of: impl Fn(usize) -> Option<&'p str>,
) -> Result<ArrayRef> {
    let times = Times::new(value)?;
    let mut out = StringBuilder::new();
    let mut known: (Option<&str>, Vec<Item>) = (None, vec![]);
    let mut text = String::new();
    for row in 0..rows {
        let (Some(pattern), Some(parts)) = (pattern_of(row), times.parts(row)?) else {
            out.append_null();
            continue;
        };
        if known.0 != Some(pattern) {
            known = (Some(pattern), items(pattern));
        }
        text.clear();
        write(&known.1, &parts, &mut text)?;
        // PostgreSQL takes an empty pattern for none.
        match pattern.is_empty() {
            true => out.append_value(""),
            false => out.append_value(&text),
        }
    }
    Ok(Arc::new(out.finish()))
}

fn numbers<'p>(
    value: &ArrayRef,
    rows: usize,
    pattern_of: impl Fn(usize) -> Option<&'p str>,
) -> Result<ArrayRef> {
    let digits = number_pattern::Numbers::new(value)?;
    let mut out = StringBuilder::new();
    let mut known: Option<(&str, number_pattern::Pattern)> = None;
    for row in 0..rows {
        let (Some(pattern), Some(number)) = (pattern_of(row), digits.get(row)) else {
            out.append_null();
            continue;
        };
        if known.as_ref().is_none_or(|(text, _)| *text != pattern) {
            let parsed = number_pattern::Pattern::parse(pattern).map_err(into_datafusion)?;
            known = Some((pattern, parsed));
        }
        let text = match &known {
            Some((_, pattern)) => pattern.write(&number).map_err(into_datafusion)?,
            None => String::new(),
        };
        out.append_value(text);
    }
    Ok(Arc::new(out.finish()))
}
