//! One typed builder per column, fed with bytes.

use std::sync::Arc;

use arrow::array::builder::{ArrayBuilder, BooleanBuilder, PrimitiveBuilder, StringViewBuilder};
use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryViewArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal128Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use thalweg_base::{Error, Result, span, text};

use super::layout::sql_type;
use super::parse::{self, Bad};

/// Takes the values of one column in row order.
pub(super) trait Sink {
    /// Text keeps its blanks; all else may be padded with them.
    const TEXT: bool = false;
    fn value(&mut self, bytes: &[u8]) -> Result<(), Bad>;
    fn null(&mut self);
    /// Values so far.
    fn len(&self) -> usize;
    fn finish(&mut self) -> ArrayRef;
}

/// A primitive column; `parse` is a type, so that each loop over a column is its own code.
pub(super) struct Primitive<T: ArrowPrimitiveType, P> {
    builder: PrimitiveBuilder<T>,
    parse: P,
}

pub(super) trait Parse<T: ArrowPrimitiveType> {
    fn parse(&self, bytes: &[u8]) -> Result<T::Native, Bad>;
}

impl<T: ArrowPrimitiveType, P: Parse<T>> Primitive<T, P> {
    fn new((data_type, rows): (&DataType, usize), parse: P) -> Self {
        let builder = PrimitiveBuilder::with_capacity(rows).with_data_type(data_type.clone());
        Primitive { builder, parse }
    }
}

impl<T: ArrowPrimitiveType, P: Parse<T>> Sink for Primitive<T, P> {
    #[inline(always)]
    fn value(&mut self, bytes: &[u8]) -> Result<(), Bad> {
        self.builder.append_value(self.parse.parse(bytes)?);
        Ok(())
    }

    fn null(&mut self) {
        self.builder.append_null();
    }

    fn len(&self) -> usize {
        self.builder.len()
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.builder.finish())
    }
}

pub(super) struct Signed;
impl<T: ArrowPrimitiveType> Parse<T> for Signed
where
    T::Native: TryFrom<i64>,
{
    #[inline(always)]
    fn parse(&self, bytes: &[u8]) -> Result<T::Native, Bad> {
        T::Native::try_from(parse::signed(bytes)?).map_err(|_| Bad::Range)
    }
}

pub(super) struct Unsigned;
impl<T: ArrowPrimitiveType> Parse<T> for Unsigned
where
    T::Native: TryFrom<u64>,
{
    #[inline(always)]
    fn parse(&self, bytes: &[u8]) -> Result<T::Native, Bad> {
        T::Native::try_from(parse::unsigned(bytes)?).map_err(|_| Bad::Range)
    }
}

pub(super) struct Float;
impl Parse<Float32Type> for Float {
    #[inline(always)]
    fn parse(&self, bytes: &[u8]) -> Result<f32, Bad> {
        parse::float32(bytes)
    }
}
impl Parse<Float64Type> for Float {
    #[inline(always)]
    fn parse(&self, bytes: &[u8]) -> Result<f64, Bad> {
        parse::float64(bytes)
    }
}

pub(super) struct Decimal {
    precision: u8,
    scale: i8,
}
impl Parse<Decimal128Type> for Decimal {
    #[inline(always)]
    fn parse(&self, bytes: &[u8]) -> Result<i128, Bad> {
        parse::decimal(bytes, self.precision, self.scale)
    }
}

pub(super) struct Date;
impl Parse<Date32Type> for Date {
    #[inline(always)]
    fn parse(&self, bytes: &[u8]) -> Result<i32, Bad> {
        parse::date(bytes)
    }
}
impl Parse<Date64Type> for Date {
    #[inline(always)]
    fn parse(&self, bytes: &[u8]) -> Result<i64, Bad> {
        Ok(i64::from(parse::date(bytes)?) * 86_400_000)
    }
}

/// Time of day in ticks of `1 / per_second`.
pub(super) struct Time {
    per_second: i64,
}
impl<T: ArrowPrimitiveType> Parse<T> for Time
where
    T::Native: TryFrom<i64>,
{
    #[inline(always)]
    fn parse(&self, bytes: &[u8]) -> Result<T::Native, Bad> {
        let ns = parse::time_ns(bytes)?;
        let ticks = parse::ticks(ns / 1_000_000_000, (ns % 1_000_000_000) as u32, self.per_second)?;
        T::Native::try_from(ticks).map_err(|_| Bad::Range)
    }
}

pub(super) struct Timestamp {
    per_second: i64,
    zone: Zone,
}

/// What a timestamp without an offset is relative to.
#[derive(Clone, Copy)]
enum Zone {
    /// The column has no zone, or a fixed one: seconds east of UTC.
    Fixed(i32),
    /// A named zone with rules of its own: the text must say.
    Named,
}

impl<T: ArrowPrimitiveType<Native = i64>> Parse<T> for Timestamp {
    #[inline(always)]
    fn parse(&self, bytes: &[u8]) -> Result<i64, Bad> {
        let moment = parse::moment(bytes)?;
        let offset_s = match (moment.offset_s, self.zone) {
            (Some(offset_s), _) | (None, Zone::Fixed(offset_s)) => offset_s,
            (None, Zone::Named) => return Err(Bad::Offset),
        };
        parse::ticks(moment.local_s - i64::from(offset_s), moment.nanos, self.per_second)
    }
}

pub(super) struct Interval;
impl Parse<IntervalMonthDayNanoType> for Interval {
    fn parse(&self, bytes: &[u8]) -> Result<IntervalMonthDayNano, Bad> {
        let text = std::str::from_utf8(bytes).map_err(|_| Bad::Utf8)?;
        let parts = span::read(text, None).map_err(|e| match e.sqlstate() {
            "22015" => Bad::Range,
            _ => Bad::Syntax,
        })?;
        Ok(IntervalMonthDayNano::new(parts.months, parts.days, parts.ns))
    }
}

pub(super) struct Boolean(BooleanBuilder);

impl Sink for Boolean {
    #[inline(always)]
    fn value(&mut self, bytes: &[u8]) -> Result<(), Bad> {
        self.0.append_value(parse::boolean(bytes)?);
        Ok(())
    }

    fn null(&mut self) {
        self.0.append_null();
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.0.finish())
    }
}

pub(super) struct Text(StringViewBuilder);

impl Sink for Text {
    const TEXT: bool = true;

    #[inline(always)]
    fn value(&mut self, bytes: &[u8]) -> Result<(), Bad> {
        self.0.append_value(std::str::from_utf8(bytes).map_err(|_| Bad::Utf8)?);
        Ok(())
    }

    fn null(&mut self) {
        self.0.append_null();
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.0.finish())
    }
}

/// Defines [`Column`] and [`each!`], the dispatch to the sink inside it.
macro_rules! columns {
    ($($variant:ident($sink:ty)),* $(,)?) => {
        /// The builder of one column of any type that text can be loaded into.
        pub(super) enum Column {
            $($variant($sink),)*
        }

        /// Runs the body with the column's concrete sink: once per column, not once per value.
        macro_rules! each {
            ($column:expr, $name:ident => $body:expr) => {
                match $column {
                    $($crate::load::columns::Column::$variant($name) => $body,)*
                }
            };
        }
    };
}

columns! {
    Boolean(Boolean),
    Int8(Primitive<Int8Type, Signed>),
    Int16(Primitive<Int16Type, Signed>),
    Int32(Primitive<Int32Type, Signed>),
    Int64(Primitive<Int64Type, Signed>),
    UInt8(Primitive<UInt8Type, Unsigned>),
    UInt16(Primitive<UInt16Type, Unsigned>),
    UInt32(Primitive<UInt32Type, Unsigned>),
    UInt64(Primitive<UInt64Type, Unsigned>),
    Float32(Primitive<Float32Type, Float>),
    Float64(Primitive<Float64Type, Float>),
    Decimal(Primitive<Decimal128Type, Decimal>),
    Date32(Primitive<Date32Type, Date>),
    Date64(Primitive<Date64Type, Date>),
    TimeS(Primitive<Time32SecondType, Time>),
    TimeMs(Primitive<Time32MillisecondType, Time>),
    TimeUs(Primitive<Time64MicrosecondType, Time>),
    TimeNs(Primitive<Time64NanosecondType, Time>),
    TimestampS(Primitive<TimestampSecondType, Timestamp>),
    TimestampMs(Primitive<TimestampMillisecondType, Timestamp>),
    TimestampUs(Primitive<TimestampMicrosecondType, Timestamp>),
    TimestampNs(Primitive<TimestampNanosecondType, Timestamp>),
    Interval(Primitive<IntervalMonthDayNanoType, Interval>),
    Text(Text),
}

pub(super) use each;

impl Column {
    /// A builder for columns of `data_type` with room for `rows`; `name` is for the error.
    pub(super) fn new(name: &str, data_type: &DataType, rows: usize) -> Result<Column> {
        use DataType as T;
        use TimeUnit as U;
        let t = (data_type, rows);
        Ok(match data_type {
            T::Boolean => Column::Boolean(Boolean(BooleanBuilder::with_capacity(rows))),
            T::Int8 => Column::Int8(Primitive::new(t, Signed)),
            T::Int16 => Column::Int16(Primitive::new(t, Signed)),
            T::Int32 => Column::Int32(Primitive::new(t, Signed)),
            T::Int64 => Column::Int64(Primitive::new(t, Signed)),
            T::UInt8 => Column::UInt8(Primitive::new(t, Unsigned)),
            T::UInt16 => Column::UInt16(Primitive::new(t, Unsigned)),
            T::UInt32 => Column::UInt32(Primitive::new(t, Unsigned)),
            T::UInt64 => Column::UInt64(Primitive::new(t, Unsigned)),
            T::Float32 => Column::Float32(Primitive::new(t, Float)),
            T::Float64 => Column::Float64(Primitive::new(t, Float)),
            &T::Decimal128(precision, scale) => {
                Column::Decimal(Primitive::new(t, Decimal { precision, scale }))
            }
            T::Date32 => Column::Date32(Primitive::new(t, Date)),
            T::Date64 => Column::Date64(Primitive::new(t, Date)),
            T::Time32(U::Second) => Column::TimeS(Primitive::new(t, Time { per_second: 1 })),
            T::Time32(_) => Column::TimeMs(Primitive::new(t, Time { per_second: 1_000 })),
            T::Time64(U::Nanosecond) => {
                Column::TimeNs(Primitive::new(t, Time { per_second: 1_000_000_000 }))
            }
            T::Time64(_) => Column::TimeUs(Primitive::new(t, Time { per_second: 1_000_000 })),
            T::Timestamp(unit, zone) => {
                let zone = match zone {
                    None => Zone::Fixed(0),
                    Some(name) => match parse::offset(name.as_bytes()) {
                        Ok(Some(offset_s)) => Zone::Fixed(offset_s),
                        _ if matches!(&**name, "GMT" | "Etc/UTC") => Zone::Fixed(0),
                        _ => Zone::Named,
                    },
                };
                match unit {
                    U::Second => {
                        Column::TimestampS(Primitive::new(t, Timestamp { per_second: 1, zone }))
                    }
                    U::Millisecond => Column::TimestampMs(Primitive::new(
                        t,
                        Timestamp { per_second: 1_000, zone },
                    )),
                    U::Microsecond => Column::TimestampUs(Primitive::new(
                        t,
                        Timestamp { per_second: 1_000_000, zone },
                    )),
                    U::Nanosecond => Column::TimestampNs(Primitive::new(
                        t,
                        Timestamp { per_second: 1_000_000_000, zone },
                    )),
                }
            }
            T::Interval(IntervalUnit::MonthDayNano) => {
                Column::Interval(Primitive::new(t, Interval))
            }
            T::Utf8View | T::Utf8 | T::LargeUtf8 | T::BinaryView | T::Binary | T::LargeBinary => {
                Column::Text(Text(StringViewBuilder::with_capacity(rows)))
            }
            other => {
                return Err(Error::unsupported(format!(
                    "column {} of type {} cannot be loaded from text",
                    text::quoted(name),
                    sql_type(other)
                ))
                .hint("load it into a VARCHAR column and convert it with INSERT … SELECT"));
            }
        })
    }

    /// The values so far as an array of exactly `data_type`; the builder is empty again.
    pub(super) fn finish(&mut self, data_type: &DataType) -> Result<ArrayRef> {
        let array = each!(self, sink => sink.finish());
        if array.data_type() == data_type {
            return Ok(array);
        }
        if data_type.is_binary() {
            let texts = array.as_string_view().iter();
            let bytes: BinaryViewArray = texts.map(|text| text.map(bytes_of)).collect();
            return cast_with_options(&bytes, data_type, &CastOptions::default())
                .map_err(|e| Error::internal(format!("bytes as {}: {e}", sql_type(data_type))));
        }
        // Only text takes other shapes than the table's: with other offsets.
        cast_with_options(&array, data_type, &CastOptions { safe: false, ..CastOptions::default() })
            .map_err(|e| Error::internal(format!("text as {}: {e}", sql_type(data_type))))
    }
}

/// The bytes that a text means: `\x0102` as PostgreSQL writes them; any other text is its own bytes.
fn bytes_of(text: &str) -> Vec<u8> {
    let digits = text.strip_prefix("\\x").filter(|digits| digits.len().is_multiple_of(2));
    let pairs = digits.map(|digits| digits.as_bytes().chunks_exact(2));
    let byte = |pair: &[u8]| {
        let digit = |d: u8| char::from(d).to_digit(16);
        Some((digit(pair[0])? * 16 + digit(pair[1])?) as u8)
    };
    let bytes = pairs.and_then(|pairs| pairs.map(byte).collect::<Option<Vec<u8>>>());
    bytes.unwrap_or_else(|| text.as_bytes().to_vec())
}
