//! Texts into dates, times, timestamps and intervals, row by row.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Date64Array, IntervalMonthDayNanoArray,
    Time32MillisecondArray, Time32SecondArray, Time64MicrosecondArray, Time64NanosecondArray,
    TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray,
    TimestampSecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::{Result as DfResult, ScalarValue, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use thalweg_base::{Error, Result};
use thalweg_bind::span;

use super::calendar::{DAY_US, checked_date};
use super::times_text::{beyond, read};
use crate::error::into_datafusion;

/// What a cast of a text to a time becomes.
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
        ScalarValue::try_from_array(&array, 0).map_err(crate::error::from_datafusion)
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
            let ns = match exact_date(text.as_bytes()) {
                Some(days) if zone.is_none() => i128::from(days) * i128::from(DAY_US) * 1000,
                _ => read(text, "timestamp")?.timestamp_ns(text, zone.as_ref())?,
            };
            i64::try_from(rounded(ns, ns_per_unit)).map_err(|_| beyond(text, "timestamp"))
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
            other => return Err(Error::internal(format!("a text is not read as {other}"))),
        };
        Ok(array)
    }
}

/// Half a unit is rounded away from zero.
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
