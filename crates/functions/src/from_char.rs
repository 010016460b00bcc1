//! `to_date` and `to_timestamp` with PostgreSQL's patterns: texts that are read by the words that
//! `to_char` writes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Date32Array, TimestampMicrosecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, TimeUnit};
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};

use super::calendar::{DAY_US, checked_date, date_of, days_of, is_leap};
use super::to_char::{DAYS, Item, MONTHS, ROMAN, Word, items};
use thalweg_errors::into_datafusion;

use Word as W;

/// What a text said, as far as it said anything.
#[derive(Debug, Default)]
struct Found {
    year: Option<i64>,
    /// The last digits of a year: how many.
    year_digits: u32,
    iso_year: Option<i64>,
    century: Option<i64>,
    before_christ: bool,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    day_of_iso_year: Option<i64>,
    iso_week: Option<i64>,
    /// Monday is 1.
    iso_day: Option<i64>,
    week: Option<i64>,
    week_of_month: Option<i64>,
    julian: Option<i64>,
    hour: i64,
    twelve: bool,
    after_noon: Option<bool>,
    minute: i64,
    second: i64,
    second_of_day: Option<i64>,
    micros: i64,
    offset_sign: i64,
    offset_hours: Option<i64>,
    offset_minutes: i64,
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches(|c: char| c.is_ascii_whitespace());
    }

    fn bad(&self, what: &str) -> Error {
        Error::user(format!(
            "{} does not have {what} where the pattern has it, but {}",
            quoted(self.text),
            quoted(self.rest)
        ))
        .code("22007")
    }

    /// `width`: of a number that others follow at once.
    fn number(&mut self, what: &str, width: Option<usize>) -> Result<(i64, usize)> {
        self.skip_blanks();
        let body = self.rest.strip_prefix(['-', '+']).unwrap_or(self.rest);
        let sign = self.rest.len() - body.len();
        let end = body.find(|c: char| !c.is_ascii_digit()).unwrap_or(body.len());
        let end = end.min(width.map_or(usize::MAX, |width| width.saturating_sub(sign).max(1)));
        let number = self.rest[..sign + end].parse().map_err(|_| self.bad(what))?;
        self.rest = &self.rest[sign + end..];
        Ok((number, end))
    }

    /// Which of the names the text goes on with, in any case of letters.
    fn name<'n>(&mut self, what: &str, names: impl Iterator<Item = &'n str>) -> Result<usize> {
        self.skip_blanks();
        let mut best: Option<(usize, usize)> = None;
        for (i, name) in names.enumerate() {
            let head = self.rest.get(..name.len());
            if head.is_some_and(|head| head.eq_ignore_ascii_case(name))
                && best.is_none_or(|(_, length)| name.len() > length)
            {
                best = Some((i, name.len()));
            }
        }
        let (i, length) = best.ok_or_else(|| self.bad(what))?;
        self.rest = &self.rest[length..];
        Ok(i)
    }
}

fn is_separator(c: char) -> bool {
    c.is_ascii() && !c.is_ascii_alphanumeric()
}

/// Microseconds since 1970 that a text says.
fn read(text: &str, items: &[Item]) -> Result<i64> {
    let exact = items.iter().any(|i| matches!(i, Item::Word { word: W::Exactly, .. }));
    let mut reader = Reader { text, rest: text };
    let mut found = Found::default();
    if !exact {
        reader.skip_blanks();
    }
    for (at, item) in items.iter().enumerate() {
        if reader.rest.is_empty() {
            break;
        }
        match item {
            Item::Text { text: c, quoted } => {
                let mut characters = reader.rest.chars();
                let next = characters.next();
                let separates = !quoted && is_separator(*c);
                if exact {
                    reader.rest = characters.as_str();
                } else if separates {
                    // Any separator will do, or none.
                    if next.is_some_and(is_separator) && next != Some('-')
                        || next == Some('-') && !starts_number(reader.rest, items, at)
                        || next == Some(*c)
                    {
                        reader.rest = characters.as_str();
                    }
                } else {
                    reader.rest = characters.as_str();
                }
            }
            Item::Word { word, fill, ordinal, .. } => {
                let last = items[at + 1..]
                    .iter()
                    .find(|i| !matches!(i, Item::Word { word: W::Exactly, .. }));
                // A number ends where something else follows; digits that follow are others'.
                let fixed = *fill
                    && ordinal.is_none()
                    && last.is_some_and(|item| match item {
                        Item::Word { word, .. } => !is_name(*word),
                        Item::Text { text, .. } => text.is_ascii_digit(),
                    });
                self::word(*word, fixed, &mut reader, &mut found)?;
                if ordinal.is_some() {
                    reader.rest = reader.rest.get(2..).unwrap_or("");
                }
                if !exact {
                    // Blanks behind a value do not count.
                    let next_is_text = matches!(last, Some(Item::Text { .. }));
                    if !next_is_text {
                        reader.skip_blanks();
                    }
                }
            }
        }
    }
    found.settle(text)
}

/// Whether a minus belongs to the number that follows.
fn starts_number(rest: &str, items: &[Item], at: usize) -> bool {
    let signed = matches!(
        items.get(at + 1),
        Some(Item::Word { word: W::OffsetHour | W::Offset | W::Zone, .. })
    );
    signed && rest[1..].starts_with(|c: char| c.is_ascii_digit())
}

fn is_name(word: Word) -> bool {
    matches!(
        word,
        W::Meridiem { .. }
            | W::Era { .. }
            | W::MonthName
            | W::MonthShort
            | W::Weekday
            | W::WeekdayShort
            | W::Roman
            | W::Zone
            | W::Offset
            | W::OffsetHour
    )
}

fn word(word: Word, fixed: bool, reader: &mut Reader<'_>, found: &mut Found) -> Result<()> {
    let width = |digits: usize| fixed.then_some(digits);
    match word {
        W::Exactly => {}
        W::Meridiem { .. } => {
            let names = ["A.M.", "P.M.", "AM", "PM"];
            let i = reader.name("AM or PM", names.into_iter())?;
            found.after_noon = Some(i % 2 == 1);
            found.twelve = true;
        }
        W::Era { .. } => {
            let names = ["A.D.", "B.C.", "AD", "BC"];
            found.before_christ = reader.name("BC or AD", names.into_iter())? % 2 == 1;
        }
        W::Hour12 => {
            found.hour = reader.number("an hour", width(2))?.0;
            found.twelve = true;
        }
        W::Hour24 => found.hour = reader.number("an hour", width(2))?.0,
        W::Minute => found.minute = reader.number("minutes", width(2))?.0,
        W::Second => found.second = reader.number("seconds", width(2))?.0,
        W::Millis => found.micros += fraction(reader, width(3), 3)?,
        W::Micros => found.micros += fraction(reader, width(6), 6)?,
        W::Fraction(digits) => found.micros += fraction(reader, width(digits as usize), digits)?,
        W::SecondOfDay => {
            found.second_of_day = Some(reader.number("seconds of the day", width(5))?.0)
        }
        W::MonthName | W::MonthShort => {
            let names = MONTHS.iter().flat_map(|name| [*name, &name[..3]]);
            found.month = Some(reader.name("the name of a month", names)? as i64 / 2 + 1);
        }
        W::Month => found.month = Some(reader.number("a month", width(2))?.0),
        W::Weekday | W::WeekdayShort => {
            let names = DAYS.iter().flat_map(|name| [*name, &name[..3]]);
            let day = reader.name("the name of a day", names)? as i64 / 2;
            found.iso_day = Some(if day == 0 { 7 } else { day });
        }
        W::DayOfYear => found.day_of_year = Some(reader.number("a day of the year", width(3))?.0),
        W::DayOfIsoYear => {
            found.day_of_iso_year = Some(reader.number("a day of the year", width(3))?.0);
        }
        W::DayOfMonth => found.day = Some(reader.number("a day", width(2))?.0),
        W::DayOfWeek => {
            let day = reader.number("a day of the week", width(1))?.0;
            found.iso_day = Some(if day == 1 { 7 } else { day - 1 });
        }
        W::DayOfIsoWeek => found.iso_day = Some(reader.number("a day of the week", width(1))?.0),
        W::WeekOfYear => found.week = Some(reader.number("a week", width(2))?.0),
        W::IsoWeek => found.iso_week = Some(reader.number("a week", width(2))?.0),
        W::WeekOfMonth => found.week_of_month = Some(reader.number("a week", width(1))?.0),
        W::Quarter => {
            reader.number("a quarter", width(1))?;
        }
        W::Century => found.century = Some(reader.number("a century", width(2))?.0),
        W::YearComma => {
            let thousands = reader.number("a year", Some(1))?.0;
            reader.rest = reader.rest.strip_prefix(',').unwrap_or(reader.rest);
            let rest = reader.number("a year", Some(3))?.0;
            (found.year, found.year_digits) = (Some(thousands * 1000 + rest), 4);
        }
        W::Year(digits) => {
            let (year, read) = reader.number("a year", width(digits as usize))?;
            found.year = Some(full_year(year, digits, read));
            found.year_digits = digits;
        }
        W::IsoYear(digits) => {
            let (year, read) = reader.number("a year", width(digits as usize))?;
            found.iso_year = Some(full_year(year, digits, read));
        }
        W::Roman => {
            // Longer ones first: VIII begins with VII.
            let i = reader.name("a Roman month", ROMAN.iter().copied())?;
            found.month = Some(i as i64 + 1);
        }
        W::Julian => found.julian = Some(reader.number("a Julian day", None)?.0),
        W::OffsetHour => {
            reader.skip_blanks();
            found.offset_sign = if reader.rest.starts_with('-') { -1 } else { 1 };
            found.offset_hours = Some(reader.number("an offset", width(3))?.0.abs());
        }
        W::OffsetMinute => {
            found.offset_minutes = reader.number("an offset", width(2))?.0;
            found.offset_hours.get_or_insert(0);
            if found.offset_sign == 0 {
                found.offset_sign = 1;
            }
        }
        W::Zone | W::Offset => {
            return Err(Error::unsupported(
                "TZ and OF in a pattern that is read are not supported",
            )
            .hint("TZH:TZM reads an offset"));
        }
    }
    Ok(())
}

/// A fraction of a second; its digits stand from the left.
fn fraction(reader: &mut Reader<'_>, width: Option<usize>, digits: u32) -> Result<i64> {
    let (value, read) = reader.number("a fraction of a second", width)?;
    let scale = 6 - i64::from(digits.min(6)) + i64::from(digits) - read as i64;
    Ok(match scale {
        0.. => value * 10_i64.pow(scale.min(6) as u32),
        _ => value / 10_i64.pow((-scale).min(18) as u32),
    })
}

/// Two digits are of 1970 to 2069, as PostgreSQL has it.
fn full_year(year: i64, digits: u32, read: usize) -> i64 {
    if digits == 4 || read > digits as usize {
        return year;
    }
    match digits {
        3 if read == 3 => {
            if year >= 520 {
                year + 1000
            } else {
                year + 2000
            }
        }
        _ if read <= 3 => match year {
            0..=69 => year + 2000,
            70..=99 => year + 1900,
            100..=519 => year + 2000,
            520..=999 => year + 1000,
            _ => year,
        },
        _ => year,
    }
}

impl Found {
    fn settle(self, text: &str) -> Result<i64> {
        let out_of_range = |what: &str| {
            Error::user(format!("{}: {what} is out of range", quoted(text))).code("22008")
        };
        let mut year = self.year;
        if let Some(century) = self.century {
            year = Some(match (year, self.year_digits) {
                (Some(year), 1 | 2) => {
                    let within = year.rem_euclid(100);
                    let century = if self.before_christ { -century } else { century };
                    if within == 0 { century * 100 } else { (century - 1) * 100 + within }
                }
                (Some(year), _) => year,
                (None, _) => (century - 1) * 100 + 1,
            });
        }
        if let Some(value) = year
            && self.before_christ
        {
            year = Some(1 - value.abs());
        } else if year.is_some_and(|year| year < 0) {
            year = year.map(|year| year + 1);
        }
        let days = if let Some(julian) = self.julian {
            julian - 2_440_588
        } else if let (Some(iso_year), Some(week)) = (self.iso_year, self.iso_week) {
            first_of_iso_year(iso_year) + (week - 1) * 7 + self.iso_day.unwrap_or(1) - 1
        } else if let (Some(iso_year), Some(day)) = (self.iso_year, self.day_of_iso_year) {
            first_of_iso_year(iso_year) + day - 1
        } else {
            let year = year.or(self.iso_year).unwrap_or(0);
            let (mut month, mut day) = (self.month, self.day);
            let day_of_year = self.day_of_year.or(self.week.map(|week| (week - 1) * 7 + 1));
            if let (Some(of_year), None, None) = (day_of_year, month, day) {
                let last = if is_leap(year) { 366 } else { 365 };
                if !(1..=last).contains(&of_year) {
                    return Err(out_of_range("the day of the year"));
                }
                let (_, m, d) = date_of(days_of(year, 1, 1) + of_year - 1);
                (month, day) = (Some(m), Some(d));
            }
            if let (None, Some(week)) = (day, self.week_of_month) {
                day = Some((week - 1) * 7 + 1);
            }
            checked_date(year, month.unwrap_or(1), day.unwrap_or(1))
                .ok_or_else(|| out_of_range("the date"))?
        };
        let (mut hour, mut minute, mut second) = (self.hour, self.minute, self.second);
        if let Some(of_day) = self.second_of_day {
            (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        } else if self.twelve {
            if !(1..=12).contains(&hour) {
                return Err(out_of_range(&format!("hour {hour} of a clock of twelve")));
            }
            match self.after_noon {
                Some(true) if hour < 12 => hour += 12,
                Some(false) if hour == 12 => hour = 0,
                _ => {}
            }
        }
        let whole_day = hour == 24 && minute == 0 && second == 0 && self.micros == 0;
        if !((0..24).contains(&hour) || whole_day)
            || !(0..60).contains(&minute)
            || !(0..60).contains(&second)
        {
            return Err(out_of_range("the time of day"));
        }
        let us = ((hour * 60 + minute) * 60 + second) * 1_000_000 + self.micros;
        let offset_s = match self.offset_hours {
            Some(hours) => self.offset_sign * (hours * 3600 + self.offset_minutes * 60),
            None => 0,
        };
        days.checked_mul(DAY_US)
            .and_then(|day| day.checked_add(us - offset_s * 1_000_000))
            .ok_or_else(|| out_of_range("the date"))
    }
}

/// The Monday of its first week.
fn first_of_iso_year(year: i64) -> i64 {
    let fourth = days_of(year, 1, 4);
    fourth - (fourth + 3).rem_euclid(7)
}

/// `to_date` and `to_timestamp`: with one of PostgreSQL's patterns as here; with none, and with
/// those of `strftime`, as DataFusion has them.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct FromChar {
    other: Arc<ScalarUDF>,
    signature: Signature,
}

impl FromChar {
    pub fn new(other: Arc<ScalarUDF>) -> FromChar {
        FromChar { other, signature: Signature::user_defined(Volatility::Immutable) }
    }

    fn is_date(&self) -> bool {
        self.other.name() == "to_date"
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8)
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric()
}

/// The instants that are so many seconds behind 1970-01-01 in UTC.
fn instants(seconds: &ColumnarValue, rows: usize, to: &DataType) -> DfResult<ColumnarValue> {
    // PostgreSQL's years end with 294276.
    const SECONDS: std::ops::Range<f64> = -210_866_803_200.0..9_224_318_016_000.0;
    let is_one = matches!(seconds, ColumnarValue::Scalar(_));
    let seconds = cast(&seconds.to_array(if is_one { 1 } else { rows })?, &DataType::Float64)?;
    let seconds = seconds.as_primitive::<Float64Type>();
    let mut micros = Vec::with_capacity(seconds.len());
    for second in seconds {
        micros.push(match second {
            None => None,
            Some(second) if SECONDS.contains(&second) => {
                Some((second * 1e6).round_ties_even() as i64)
            }
            Some(second) => {
                let error = match second.is_nan() {
                    true => Error::user("timestamp cannot be NaN"),
                    false => Error::user(format!("timestamp out of range: \"{second}\"")),
                };
                return Err(into_datafusion(error.code("22008")));
            }
        });
    }
    let zone = match to {
        DataType::Timestamp(_, zone) => zone.clone(),
        _ => None,
    };
    let instants = TimestampMicrosecondArray::from(micros).with_timezone_opt(zone);
    match is_one {
        true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&instants, 0)?)),
        false => Ok(ColumnarValue::Array(Arc::new(instants))),
    }
}

impl ScalarUDFImpl for FromChar {
    fn name(&self) -> &str {
        self.other.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        Ok(types
            .iter()
            .map(|t| match t {
                DataType::Dictionary(_, value) => value.as_ref().clone(),
                DataType::Null if types.len() > 1 => DataType::Utf8,
                other => other.clone(),
            })
            .collect())
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types {
            [text, pattern] if is_text(text) && is_text(pattern) && self.is_date() => {
                Ok(DataType::Date32)
            }
            types => self.other.return_type(types),
        }
    }

    fn return_field_from_args(
        &self,
        args: ReturnFieldArgs<'_>,
    ) -> DfResult<arrow::datatypes::FieldRef> {
        let given = args.arg_fields;
        let returned = self.other.return_field_from_args(args)?;
        // Microseconds reach further than nanoseconds.
        Ok(match (returned.data_type(), given) {
            (DataType::Timestamp(_, zone), [seconds])
                if !self.is_date() && is_number(seconds.data_type()) =>
            {
                let data_type = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
                Arc::new(returned.as_ref().clone().with_data_type(data_type))
            }
            _ => returned,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let of_strftime = |value: &ColumnarValue| match value {
            ColumnarValue::Scalar(scalar) => {
                scalar.try_as_str().flatten().is_some_and(|text| text.contains('%'))
            }
            ColumnarValue::Array(_) => false,
        };
        let ours = args.args.len() == 2
            && args.args.iter().all(|arg| is_text(&arg.data_type()))
            && !of_strftime(&args.args[1]);
        if let ([seconds], false) = (&args.args[..], self.is_date())
            && is_number(&seconds.data_type())
        {
            return instants(seconds, args.number_rows, args.return_field.data_type());
        }
        if !ours {
            return self.other.invoke_with_args(args);
        }
        let all_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if all_scalar { 1 } else { args.number_rows };
        let arrays = args.args.into_iter().map(|arg| {
            let array = arg.into_array(rows)?;
            Ok(cast(&array, &DataType::Utf8)?)
        });
        let arrays = arrays.collect::<DfResult<Vec<ArrayRef>>>()?;
        let (texts, patterns) = (arrays[0].as_string::<i32>(), arrays[1].as_string::<i32>());
        let mut known: (Option<&str>, Vec<Item>) = (None, vec![]);
        let mut moments = Vec::with_capacity(rows);
        for row in 0..rows {
            if texts.is_null(row) || patterns.is_null(row) {
                moments.push(None);
                continue;
            }
            let pattern = patterns.value(row);
            if known.0 != Some(pattern) {
                known = (Some(pattern), items(pattern));
            }
            moments.push(Some(read(texts.value(row), &known.1).map_err(into_datafusion)?));
        }
        let array: ArrayRef = if self.is_date() {
            let day = |us: i64| i32::try_from(us.div_euclid(DAY_US)).ok();
            Arc::new(Date32Array::from_iter(moments.into_iter().map(|m| m.and_then(day))))
        } else {
            let moments: ArrayRef = Arc::new(TimestampMicrosecondArray::from(moments));
            match args.return_field.data_type() {
                DataType::Timestamp(TimeUnit::Microsecond, None) => moments,
                other => {
                    let options = arrow::compute::CastOptions { safe: false, ..Default::default() };
                    arrow::compute::cast_with_options(&moments, other, &options)?
                }
            }
        };
        match all_scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)),
            false => Ok(ColumnarValue::Array(array)),
        }
    }
}
