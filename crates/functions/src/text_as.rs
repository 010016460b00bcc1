//! Texts into dates, times, timestamps, intervals, numerics, doubles and lists, row by row.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Date64Array, Decimal128Array, Float32Array,
    Float64Array, IntervalMonthDayNanoArray, ListArray, StringArray, Time32MillisecondArray,
    Time32SecondArray, Time64MicrosecondArray, Time64NanosecondArray, TimestampMicrosecondArray,
    TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, FieldRef, IntervalUnit, TimeUnit};
use datafusion::common::{Result as DfResult, ScalarValue, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result, Subject};
use thalweg_bind::decimal::{self, Unread};
use thalweg_bind::{nearest_instant, span};

use super::bytea::{self, is_binary};
use super::calendar::{DAY_US, checked_date};
use super::list_text::{self, Item};
use super::times_text::{beyond, read};
use thalweg_errors::{from_arrow, into_datafusion, no_value};

/// What a cast of a text to such a type becomes.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct TextAs {
    data_type: DataType,
    /// A text that is no time is NULL: `TRY_CAST`.
    tries: bool,
    signature: Signature,
}

/// Whether texts are read as this type here.
pub fn is_read(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Date32
            | DataType::Date64
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Timestamp(..)
            | DataType::Interval(IntervalUnit::MonthDayNano)
            | DataType::Decimal128(..)
            | DataType::Float32
            | DataType::Float64
            | DataType::List(_)
    )
}

pub fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8)
}

impl TextAs {
    pub fn new(data_type: DataType, tries: bool) -> TextAs {
        TextAs { data_type, tries, signature: Signature::any(1, Volatility::Immutable) }
    }

    /// A single text.
    pub fn scalar(&self, text: &str) -> Result<ScalarValue> {
        let array = self.rows(std::iter::once(Some(text)))?;
        ScalarValue::try_from_array(&array, 0).map_err(thalweg_errors::from_datafusion)
    }

    /// An array of texts.
    pub fn array(&self, texts: &StringArray) -> Result<ArrayRef> {
        self.rows(texts.iter())
    }

    fn rows<'t>(&self, texts: impl Iterator<Item = Option<&'t str>>) -> Result<ArrayRef> {
        use DataType as D;
        use TimeUnit as U;
        let zone =
            match &self.data_type {
                D::Timestamp(_, Some(name)) => Some(name.parse::<Tz>().map_err(|_| {
                    Error::user(format!("there is no time zone {name}")).code("22023")
                })?),
                _ => None,
            };
        let days = |text: &str| match exact_date(text.as_bytes()) {
            Some(days) => i32::try_from(days).map_err(|_| beyond(text, "date")),
            None => read(text, "date")?.date(text),
        };
        let time_ns = |text: &str| read(text, "time")?.time_ns(text);
        let instant = |text: &str, ns_per_unit: i128| -> Result<i64> {
            let ns = match exact_instant(text.as_bytes()) {
                Some(ns) if zone.is_none() => ns,
                _ => read(text, "timestamp")?.timestamp_ns(text, zone.as_ref())?,
            };
            let nearest = nearest_instant(ns, 1_000_000_000, ns_per_unit);
            i64::try_from(nearest / ns_per_unit).map_err(|_| beyond(text, "timestamp"))
        };
        let of_day = |text: &str, ns_per_unit: i128| -> Result<i64> {
            time_ns(text).map(|ns| rounded(ns.into(), ns_per_unit) as i64)
        };
        macro_rules! array {
            ($array:ty, $value:expr) => {{
                let values: Result<Vec<_>> = texts
                    .map(|text| match text.map($value) {
                        None => Ok(None),
                        Some(Ok(value)) => Ok(Some(value)),
                        Some(Err(_)) if self.tries => Ok(None),
                        Some(Err(e)) => Err(e),
                    })
                    .collect();
                <$array>::from(values?)
            }};
        }
        let array: ArrayRef = match &self.data_type {
            D::Date32 => Arc::new(array!(Date32Array, days)),
            D::Date64 => {
                Arc::new(array!(Date64Array, |t| days(t).map(|d| i64::from(d) * 86_400_000)))
            }
            D::Time32(U::Second) => {
                Arc::new(array!(Time32SecondArray, |t| of_day(t, 1_000_000_000).map(|v| v as i32)))
            }
            D::Time32(_) => {
                Arc::new(array!(Time32MillisecondArray, |t| of_day(t, 1_000_000).map(|v| v as i32)))
            }
            D::Time64(U::Microsecond) => {
                Arc::new(array!(Time64MicrosecondArray, |t| of_day(t, 1000)))
            }
            D::Time64(_) => Arc::new(array!(Time64NanosecondArray, |t| of_day(t, 1))),
            D::Timestamp(unit, zone) => {
                let zone = zone.clone();
                match unit {
                    U::Second => Arc::new(
                        array!(TimestampSecondArray, |t| instant(t, 1_000_000_000))
                            .with_timezone_opt(zone),
                    ),
                    U::Millisecond => Arc::new(
                        array!(TimestampMillisecondArray, |t| instant(t, 1_000_000))
                            .with_timezone_opt(zone),
                    ),
                    U::Microsecond => Arc::new(
                        array!(TimestampMicrosecondArray, |t| instant(t, 1000))
                            .with_timezone_opt(zone),
                    ),
                    U::Nanosecond => Arc::new(
                        array!(TimestampNanosecondArray, |t| instant(t, 1)).with_timezone_opt(zone),
                    ),
                }
            }
            D::Interval(_) => Arc::new(array!(IntervalMonthDayNanoArray, |t| span::read(t, None))),
            &D::Decimal128(precision, scale) => {
                let read = |text: &str| {
                    decimal::read(text, precision, scale).map_err(|why| match why {
                        Unread::Syntax => no_value(text, "numeric"),
                        Unread::Range => {
                            out_of_range(text, &format!("numeric({precision},{scale})"))
                        }
                    })
                };
                let values = array!(Decimal128Array, read);
                let values = values.with_precision_and_scale(precision, scale);
                Arc::new(values.map_err(|e| from_arrow(&e))?)
            }
            D::Float64 => Arc::new(array!(Float64Array, double)),
            D::Float32 => Arc::new(array!(Float32Array, real)),
            D::List(item) => return self.lists(texts, item),
            other => return Err(Error::internal(format!("a text is not read as {other}"))),
        };
        Ok(array)
    }

    /// Lists: their items are texts first.
    fn lists<'t>(
        &self,
        texts: impl Iterator<Item = Option<&'t str>>,
        item: &FieldRef,
    ) -> Result<ArrayRef> {
        let nested = matches!(item.data_type(), DataType::List(_));
        let mut items: Vec<Option<String>> = vec![];
        let (mut lengths, mut valid) = (vec![], vec![]);
        for text in texts {
            let before = items.len();
            let found = text.map(list_text::items);
            let read = match (text, found) {
                (Some(text), Some(found)) => {
                    let found = found.and_then(|found| {
                        let text = |item| match item {
                            Item::Null => Some(None),
                            Item::Text(text) if !nested => Some(Some(text)),
                            Item::List(text) if nested => Some(Some(text)),
                            Item::Text(_) | Item::List(_) => None,
                        };
                        found.into_iter().map(text).collect::<Option<Vec<_>>>()
                    });
                    if found.is_none() && !self.tries {
                        return Err(Error::user(format!("malformed array literal: {}", quoted(text)))
                            .code("22P02")
                            .hint("a list is written {1,2,NULL}, and texts with a comma, a blank or a brace as {\"a b\"}")
                            .about(Subject::Literal(text.into())));
                    }
                    found
                }
                _ => None,
            };
            valid.push(read.is_some());
            items.extend(read.into_iter().flatten());
            lengths.push(items.len() - before);
        }
        let texts = items.iter().map(Option::as_deref);
        let values = match item.data_type() {
            read if is_read(read) => TextAs::new(read.clone(), self.tries).rows(texts)?,
            bytes if is_binary(bytes) => {
                let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
                bytea::from_texts(&texts, bytes, self.tries)?
            }
            other => {
                let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
                let options = CastOptions { safe: self.tries, ..CastOptions::default() };
                cast_with_options(&texts, other, &options).map_err(|e| from_arrow(&e))?
            }
        };
        let offsets = OffsetBuffer::from_lengths(lengths);
        let list = ListArray::try_new(Arc::clone(item), offsets, values, Some(valid.into()));
        Ok(Arc::new(list.map_err(|e| from_arrow(&e))?))
    }
}

fn out_of_range(text: &str, data_type: &str) -> Error {
    Error::user(format!("{} is out of range for type {data_type}", quoted(text)))
        .code("22003")
        .about(Subject::Literal(text.into()))
}

fn double(text: &str) -> Result<f64> {
    let trimmed = text.trim();
    // Rust reads "inf" and "nan" in any case as well.
    let value: f64 = trimmed.parse().map_err(|_| no_value(text, "double precision"))?;
    match is_lost(trimmed, value == 0.0, value.is_infinite()) {
        true => Err(out_of_range(text, "double precision")),
        false => Ok(value),
    }
}

fn real(text: &str) -> Result<f32> {
    let trimmed = text.trim();
    let value: f32 = trimmed.parse().map_err(|_| no_value(text, "real"))?;
    match is_lost(trimmed, value == 0.0, value.is_infinite()) {
        true => Err(out_of_range(text, "real")),
        false => Ok(value),
    }
}

/// Whether a number was written that is too great, or too near to zero: its digits say so.
fn is_lost(text: &str, is_zero: bool, is_infinite: bool) -> bool {
    let digits = text.split(['e', 'E']).next().unwrap_or_default();
    is_infinite && text.contains(|c: char| c.is_ascii_digit())
        || is_zero && digits.contains(|c: char| matches!(c, '1'..='9'))
}

/// A time of the day, half a unit rounded up; other points of time go by [`nearest_instant`].
fn rounded(ns: i128, ns_per_unit: i128) -> i128 {
    let half = if ns < 0 { -ns_per_unit / 2 } else { ns_per_unit / 2 };
    if ns_per_unit == 1 { ns } else { (ns + half) / ns_per_unit }
}

/// `2024-01-30`, which most dates look like.
fn exact_date(bytes: &[u8]) -> Option<i64> {
    let bytes: &[u8; 10] = bytes.try_into().ok()?;
    if bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0, |value, digit| {
            digit.is_ascii_digit().then(|| value * 10 + i64::from(digit - b'0'))
        })
    };
    let year = number(&bytes[..4]).filter(|year| *year > 0)?;
    checked_date(year, number(&bytes[5..7])?, number(&bytes[8..])?)
}

/// `2024-01-30`, `2024-01-30 10:20:30` and `2024-01-30 10:20:30.4`, in nanoseconds, which most timestamps
/// look like.
fn exact_instant(bytes: &[u8]) -> Option<i128> {
    let (date, time) = bytes.split_at_checked(10)?;
    let day_ns = i128::from(exact_date(date)?) * i128::from(DAY_US) * 1000;
    if time.is_empty() {
        return Some(day_ns);
    }
    let (time, fraction) = time.split_at_checked(9)?;
    let &[b' ' | b'T', h1, h2, b':', m1, m2, b':', s1, s2] = time else { return None };
    let digit = |byte: u8| byte.is_ascii_digit().then(|| i128::from(byte - b'0'));
    let two = |tens, ones, below| Some(digit(tens)? * 10 + digit(ones)?).filter(|n| *n < below);
    let seconds = (two(h1, h2, 24)? * 60 + two(m1, m2, 60)?) * 60 + two(s1, s2, 60)?;
    let mut ns = seconds * 1_000_000_000;
    if let Some((b'.', digits)) = fraction.split_first() {
        if digits.is_empty() || digits.len() > 9 {
            return None;
        }
        let mut unit = 100_000_000;
        for byte in digits {
            ns += digit(*byte)? * unit;
            unit /= 10;
        }
    } else if !fraction.is_empty() {
        return None;
    }
    Some(day_ns + ns)
}

impl ScalarUDFImpl for TextAs {
    fn name(&self) -> &str {
        "text_as"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(self.data_type.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let Some(value) = args.args.into_iter().next() else {
            return exec_err!("text_as takes a text");
        };
        let scalar = matches!(value, ColumnarValue::Scalar(_));
        let array = value.into_array(if scalar { 1 } else { args.number_rows })?;
        let array = match array.data_type() {
            DataType::Utf8View => self.rows(array.as_string_view().iter()),
            DataType::LargeUtf8 => self.rows(array.as_string::<i64>().iter()),
            DataType::Utf8 => self.rows(array.as_string::<i32>().iter()),
            _ => self.rows(cast(&array, &DataType::Utf8)?.as_string::<i32>().iter()),
        };
        let array = array.map_err(into_datafusion)?;
        match scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)),
            false => Ok(ColumnarValue::Array(array)),
        }
    }
}
