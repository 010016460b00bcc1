//! Rows in PostgreSQL's formats, straight from Arrow's arrays.
//!
//! For each column of a batch one closure is made that appends the value of a row, in text or in
//! binary; a batch is then written row by row.

use arrow::array::timezone::Tz;
use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryViewArray, GenericBinaryArray,
    GenericStringArray, OffsetSizeTrait, StringViewArray,
};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowNativeType, DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type,
    Decimal128Type, Decimal256Type, DecimalType, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, Float16Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalUnit,
    IntervalYearMonthType, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
    Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::record_batch::RecordBatch;
use arrow::temporal_conversions::as_datetime_with_timezone;
use bytes::{BufMut, BytesMut};
use thalweg_base::calendar::within_zone_tables;
use thalweg_base::{Error, Result};
use thalweg_engine::pg_type::{self, Oid};

use super::text::{self, Span};
use super::write::Out;
use super::{numeric, types};

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Binary,
}

impl Format {
    pub fn from_code(code: i16) -> Result<Format> {
        match code {
            0 => Ok(Format::Text),
            1 => Ok(Format::Binary),
            _ => Err(Error::user(format!("there is no format {code}: 0 is text, 1 binary"))
                .code("08P01")),
        }
    }

    pub fn code(self) -> i16 {
        match self {
            Format::Text => 0,
            Format::Binary => 1,
        }
    }
}

/// Appends the value of a row, which is not NULL.
type Write<'a> = Box<dyn Fn(usize, &mut BytesMut) + Send + 'a>;

/// The columns of a batch, ready to be written.
pub struct Rows<'a> {
    columns: Vec<(&'a ArrayRef, Write<'a>)>,
}

impl<'a> Rows<'a> {
    /// `formats`: one for each column.
    pub fn new(batch: &'a RecordBatch, formats: &[Format]) -> Result<Rows<'a>> {
        let schema = batch.schema();
        let columns = batch.columns().iter().zip(schema.fields()).zip(formats);
        let columns = columns.map(|((column, field), format)| {
            Ok((column, write(column, *format, pg_type::of_field(field).0)?))
        });
        Ok(Rows { columns: columns.collect::<Result<_>>()? })
    }

    /// One row as a message.
    pub fn data_row(&self, row: usize, out: &mut Out) {
        out.message(b'D', |buffer| self.values(row, buffer));
    }

    /// The number of values, then each after its length: also a row of COPY in binary.
    pub fn values(&self, row: usize, buffer: &mut BytesMut) {
        buffer.put_u16(self.columns.len() as u16);
        for (column, write) in &self.columns {
            if is_null(column, row) {
                buffer.put_i32(-1);
            } else {
                sized(buffer, |buffer| write(row, buffer));
            }
        }
    }

    /// Each value of a row by itself; `None` is NULL.
    pub fn each(&self, row: usize, scratch: &mut BytesMut, mut f: impl FnMut(Option<&[u8]>)) {
        for (column, write) in &self.columns {
            if is_null(column, row) {
                f(None);
                continue;
            }
            scratch.clear();
            write(row, scratch);
            f(Some(scratch));
        }
    }
}

/// NULL may be the key of a dictionary or the value under it.
fn is_null(array: &ArrayRef, row: usize) -> bool {
    match array.data_type() {
        DataType::Null => true,
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            dictionary.is_null(row) || dictionary.values().is_null(key(array, row))
        }
        _ => array.is_null(row),
    }
}

fn key(array: &ArrayRef, row: usize) -> usize {
    use DataType as T;
    let keys = array.as_any_dictionary().keys();
    match keys.data_type() {
        T::Int8 => keys.as_primitive::<Int8Type>().value(row).as_usize(),
        T::Int16 => keys.as_primitive::<Int16Type>().value(row).as_usize(),
        T::Int32 => keys.as_primitive::<Int32Type>().value(row).as_usize(),
        T::Int64 => keys.as_primitive::<Int64Type>().value(row).as_usize(),
        T::UInt8 => keys.as_primitive::<UInt8Type>().value(row).as_usize(),
        T::UInt16 => keys.as_primitive::<UInt16Type>().value(row).as_usize(),
        T::UInt32 => keys.as_primitive::<UInt32Type>().value(row).as_usize(),
        _ => keys.as_primitive::<UInt64Type>().value(row).as_usize(),
    }
}

fn sized(buffer: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let start = buffer.len();
    buffer.put_i32(0);
    write(buffer);
    let length = (buffer.len() - start - 4) as i32;
    buffer[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// `oid`: the type that the client is told.
fn write(array: &ArrayRef, format: Format, oid: Oid) -> Result<Write<'_>> {
    use DataType as T;
    let binary = format == Format::Binary;
    Ok(match array.data_type() {
        T::Null => Box::new(|_, _| {}),
        T::Boolean => {
            let values = array.as_boolean();
            let [no, yes] = if binary { [0, 1] } else { [b'f', b't'] };
            Box::new(move |row, b| b.put_u8(if values.value(row) { yes } else { no }))
        }
        T::Int8 => integer::<Int8Type, i16>(array, binary),
        T::Int16 => integer::<Int16Type, i16>(array, binary),
        T::Int32 => integer::<Int32Type, i32>(array, binary),
        T::Int64 => integer::<Int64Type, i64>(array, binary),
        T::UInt8 => integer::<UInt8Type, i16>(array, binary),
        T::UInt16 => integer::<UInt16Type, i32>(array, binary),
        T::UInt32 if pg_type::length(oid) == 4 => integer::<UInt32Type, u32>(array, binary),
        T::UInt32 => integer::<UInt32Type, i64>(array, binary),
        T::UInt64 => {
            let values = array.as_primitive::<UInt64Type>();
            Box::new(move |row, b| numeric::write(b, values.value(row).to_string(), binary))
        }
        T::Float16 => {
            let values = array.as_primitive::<Float16Type>();
            Box::new(move |row, b| float4(b, values.value(row).to_f32(), binary))
        }
        T::Float32 => {
            let values = array.as_primitive::<Float32Type>();
            Box::new(move |row, b| float4(b, values.value(row), binary))
        }
        T::Float64 => {
            let values = array.as_primitive::<Float64Type>();
            Box::new(move |row, b| match binary {
                true => b.put_f64(values.value(row)),
                false => text::float8(b, values.value(row)),
            })
        }
        T::Decimal32(..) => decimal::<Decimal32Type>(array, binary),
        T::Decimal64(..) => decimal::<Decimal64Type>(array, binary),
        T::Decimal128(_, scale) if !binary && *scale >= 0 => {
            let values = array.as_primitive::<Decimal128Type>();
            let scale = *scale as usize;
            Box::new(move |row, b| text::decimal(b, values.value(row), scale))
        }
        T::Decimal128(..) => decimal::<Decimal128Type>(array, binary),
        T::Decimal256(..) => decimal::<Decimal256Type>(array, binary),
        T::Utf8 => string(array.as_string::<i32>()),
        T::LargeUtf8 => string(array.as_string::<i64>()),
        T::Utf8View => {
            let values: &StringViewArray = array.as_string_view();
            Box::new(move |row, b| b.put_slice(values.value(row).as_bytes()))
        }
        T::Binary => bytea(array.as_binary::<i32>(), binary),
        T::LargeBinary => bytea(array.as_binary::<i64>(), binary),
        T::BinaryView => {
            let values: &BinaryViewArray = array.as_binary_view();
            Box::new(move |row, b| bytes(b, values.value(row), binary))
        }
        T::FixedSizeBinary(_) => {
            let values = array.as_fixed_size_binary();
            Box::new(move |row, b| bytes(b, values.value(row), binary))
        }
        T::Date32 => {
            let values = array.as_primitive::<Date32Type>();
            Box::new(move |row, b| date(b, i64::from(values.value(row)), binary))
        }
        T::Date64 => {
            let values = array.as_primitive::<Date64Type>();
            Box::new(move |row, b| date(b, values.value(row).div_euclid(86_400_000), binary))
        }
        T::Time32(_) | T::Time64(_) => time(array, binary),
        T::Timestamp(_, zone) => timestamp(array, zone.as_deref(), binary)?,
        T::Interval(_) | T::Duration(_) => interval(array, binary),
        T::Dictionary(..) => {
            let inner = write(array.as_any_dictionary().values(), format, oid)?;
            Box::new(move |row, b| inner(key(array, row), b))
        }
        T::List(_) => list(array, format, oid, |array, row| array.as_list::<i32>().value(row)),
        T::LargeList(_) => list(array, format, oid, |array, row| array.as_list::<i64>().value(row)),
        T::FixedSizeList(..) => {
            list(array, format, oid, |array, row| array.as_fixed_size_list().value(row))
        }
        T::ListView(_) => {
            list(array, format, oid, |array, row| array.as_list_view::<i32>().value(row))
        }
        T::LargeListView(_) => {
            list(array, format, oid, |array, row| array.as_list_view::<i64>().value(row))
        }
        T::Struct(_) | T::Map(..) => Box::new(move |row, b| text::json(b, array, row)),
        other => {
            let text = cast(array, &DataType::Utf8)
                .map_err(|_| Error::unsupported(format!("a {other} cannot be sent")))?;
            Box::new(move |row, b| b.put_slice(text.as_string::<i32>().value(row).as_bytes()))
        }
    })
}

/// `W`: the integer of PostgreSQL that holds all of `T`'s values.
fn integer<T, W>(array: &ArrayRef, binary: bool) -> Write<'_>
where
    T: ArrowPrimitiveType,
    T::Native: Into<i64>,
    W: 'static,
{
    let values = array.as_primitive::<T>();
    let width = size_of::<W>();
    if binary {
        return Box::new(move |row, b| {
            let value: i64 = values.value(row).into();
            b.put_slice(&value.to_be_bytes()[8 - width..]);
        });
    }
    Box::new(move |row, b| text::integer(b, values.value(row).into()))
}

fn float4(buffer: &mut BytesMut, value: f32, binary: bool) {
    if binary { buffer.put_f32(value) } else { text::float4(buffer, value) }
}

fn decimal<T: DecimalType>(array: &ArrayRef, binary: bool) -> Write<'_> {
    let values = array.as_primitive::<T>();
    Box::new(move |row, b| numeric::write(b, values.value_as_string(row), binary))
}

fn string<O: OffsetSizeTrait>(values: &GenericStringArray<O>) -> Write<'_> {
    Box::new(move |row, b| b.put_slice(values.value(row).as_bytes()))
}

fn bytea<O: OffsetSizeTrait>(values: &GenericBinaryArray<O>, binary: bool) -> Write<'_> {
    Box::new(move |row, b| bytes(b, values.value(row), binary))
}

fn bytes(buffer: &mut BytesMut, value: &[u8], binary: bool) {
    if binary { buffer.put_slice(value) } else { text::bytea(buffer, value) }
}

/// Days from 1970 to 2000, where PostgreSQL's calendar begins.
const EPOCH_DAYS: i64 = 10_957;
pub const EPOCH_US: i64 = EPOCH_DAYS * 86_400_000_000;

fn date(buffer: &mut BytesMut, days: i64, binary: bool) {
    match binary {
        true => buffer.put_i32((days - EPOCH_DAYS).clamp(i32::MIN.into(), i32::MAX.into()) as i32),
        false => text::date(buffer, days),
    }
}

fn time(array: &ArrayRef, binary: bool) -> Write<'_> {
    let us: Box<dyn Fn(usize) -> i64 + Send + '_> = match array.data_type() {
        DataType::Time32(TimeUnit::Second) => {
            let values = array.as_primitive::<Time32SecondType>();
            Box::new(move |row| i64::from(values.value(row)) * 1_000_000)
        }
        DataType::Time32(_) => {
            let values = array.as_primitive::<Time32MillisecondType>();
            Box::new(move |row| i64::from(values.value(row)) * 1_000)
        }
        DataType::Time64(TimeUnit::Microsecond) => {
            let values = array.as_primitive::<Time64MicrosecondType>();
            Box::new(move |row| values.value(row))
        }
        _ => {
            let values = array.as_primitive::<Time64NanosecondType>();
            Box::new(move |row| values.value(row).div_euclid(1_000))
        }
    };
    Box::new(move |row, b| match binary {
        true => b.put_i64(us(row)),
        false => text::time(b, us(row)),
    })
}

fn timestamp<'a>(array: &'a ArrayRef, zone: Option<&str>, binary: bool) -> Result<Write<'a>> {
    // What is finer than a microsecond is cut: PostgreSQL has no place for it.
    let us: Box<dyn Fn(usize) -> i64 + Send + '_> = match array.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => {
            let values = array.as_primitive::<TimestampSecondType>();
            Box::new(move |row| values.value(row).saturating_mul(1_000_000))
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            let values = array.as_primitive::<TimestampMillisecondType>();
            Box::new(move |row| values.value(row).saturating_mul(1_000))
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let values = array.as_primitive::<TimestampMicrosecondType>();
            Box::new(move |row| values.value(row))
        }
        _ => {
            let values = array.as_primitive::<TimestampNanosecondType>();
            Box::new(move |row| values.value(row).div_euclid(1_000))
        }
    };
    if binary {
        return Ok(Box::new(move |row, b| b.put_i64(us(row).saturating_sub(EPOCH_US))));
    }
    let Some(zone) = zone else {
        return Ok(Box::new(move |row, b| text::timestamp(b, us(row), None)));
    };
    // As the clocks of the zone show it.
    let zone: Tz = zone
        .parse()
        .map_err(|_| Error::unsupported(format!("times of zone {zone} cannot be sent")))?;
    Ok(Box::new(move |row, b| {
        let us = us(row);
        let like = within_zone_tables(us);
        let local = as_datetime_with_timezone::<TimestampMicrosecondType>(like, zone);
        let offset_s = local.map_or(0, |local| {
            local.naive_local().and_utc().timestamp() - like.div_euclid(1_000_000)
        });
        text::timestamp(b, us.saturating_add(offset_s * 1_000_000), Some(offset_s));
    }))
}

fn interval(array: &ArrayRef, binary: bool) -> Write<'_> {
    let us = |us: i64| Span { months: 0, days: 0, us };
    let span: Box<dyn Fn(usize) -> Span + Send + '_> = match array.data_type() {
        DataType::Interval(IntervalUnit::YearMonth) => {
            let values = array.as_primitive::<IntervalYearMonthType>();
            Box::new(move |row| Span { months: values.value(row), days: 0, us: 0 })
        }
        DataType::Interval(IntervalUnit::DayTime) => {
            let values = array.as_primitive::<IntervalDayTimeType>();
            Box::new(move |row| {
                let value = values.value(row);
                Span { months: 0, days: value.days, us: i64::from(value.milliseconds) * 1_000 }
            })
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let values = array.as_primitive::<IntervalMonthDayNanoType>();
            Box::new(move |row| {
                let value = values.value(row);
                Span { months: value.months, days: value.days, us: value.nanoseconds / 1_000 }
            })
        }
        DataType::Duration(TimeUnit::Second) => {
            let values = array.as_primitive::<DurationSecondType>();
            Box::new(move |row| us(values.value(row).saturating_mul(1_000_000)))
        }
        DataType::Duration(TimeUnit::Millisecond) => {
            let values = array.as_primitive::<DurationMillisecondType>();
            Box::new(move |row| us(values.value(row).saturating_mul(1_000)))
        }
        DataType::Duration(TimeUnit::Microsecond) => {
            let values = array.as_primitive::<DurationMicrosecondType>();
            Box::new(move |row| us(values.value(row)))
        }
        _ => {
            let values = array.as_primitive::<DurationNanosecondType>();
            Box::new(move |row| us(values.value(row) / 1_000))
        }
    };
    Box::new(move |row, b| {
        let span = span(row);
        if binary {
            b.put_i64(span.us);
            b.put_i32(span.days);
            b.put_i32(span.months);
        } else {
            text::interval(b, span);
        }
    })
}

fn list<'a>(
    array: &'a ArrayRef,
    format: Format,
    oid: Oid,
    items: impl Fn(&ArrayRef, usize) -> ArrayRef + Send + 'a,
) -> Write<'a> {
    let item = types::element(oid).unwrap_or(types::TEXT);
    Box::new(move |row, b| match format {
        Format::Text => text_list(b, &items(array, row), item),
        Format::Binary => binary_list(b, &items(array, row), item),
    })
}

/// `{1,NULL,"a b"}`, lists in lists in braces of their own.
fn text_list(buffer: &mut BytesMut, items: &ArrayRef, oid: Oid) {
    // Of a type that `oid` knows as a list, so its items can be written.
    let nested = types::item(items.data_type()).is_some();
    // An array of more dimensions is of the same type.
    let inner = if nested { types::array_of(oid).unwrap_or(oid) } else { oid };
    let Ok(write) = write(items, Format::Text, inner) else { return };
    let mut scratch = BytesMut::new();
    buffer.put_u8(b'{');
    for row in 0..items.len() {
        if row > 0 {
            buffer.put_u8(b',');
        }
        if is_null(items, row) {
            buffer.put_slice(b"NULL");
        } else if nested {
            write(row, buffer);
        } else {
            scratch.clear();
            write(row, &mut scratch);
            text::list_item(buffer, &scratch);
        }
    }
    buffer.put_u8(b'}');
}

/// Dimensions, whether there are NULLs, the items' type, the length of each dimension, the items.
/// PostgreSQL's arrays are rectangular; what is not is sent as if its first parts were all.
fn binary_list(buffer: &mut BytesMut, items: &ArrayRef, oid: Oid) {
    let mut lengths = vec![];
    let mut level = items.clone();
    while !level.is_empty() {
        lengths.push(level.len());
        match types::item(level.data_type()) {
            Some(_) => level = first_list(&level),
            None => break,
        }
    }
    let rectangular = rectangle(items, &lengths);
    let lengths = if rectangular { lengths } else { vec![] };
    buffer.put_u32(lengths.len() as u32);
    buffer.put_u32(1);
    buffer.put_u32(oid);
    for length in &lengths {
        buffer.put_u32(*length as u32);
        buffer.put_u32(1);
    }
    if rectangular {
        leaves(buffer, items, oid);
    }
}

fn first_list(items: &ArrayRef) -> ArrayRef {
    let part = |row| sub_list(items, row);
    (0..items.len()).find(|row| !items.is_null(*row)).map_or_else(|| items.slice(0, 0), part)
}

fn sub_list(items: &ArrayRef, row: usize) -> ArrayRef {
    match items.data_type() {
        DataType::List(_) => items.as_list::<i32>().value(row),
        DataType::LargeList(_) => items.as_list::<i64>().value(row),
        DataType::FixedSizeList(..) => items.as_fixed_size_list().value(row),
        DataType::ListView(_) => items.as_list_view::<i32>().value(row),
        _ => items.as_list_view::<i64>().value(row),
    }
}

fn rectangle(items: &ArrayRef, lengths: &[usize]) -> bool {
    let Some((length, rest)) = lengths.split_first() else { return items.is_empty() };
    if items.len() != *length {
        return false;
    }
    types::item(items.data_type()).is_none()
        || (0..items.len()).all(|row| !items.is_null(row) && rectangle(&sub_list(items, row), rest))
}

fn leaves(buffer: &mut BytesMut, items: &ArrayRef, oid: Oid) {
    if types::item(items.data_type()).is_some() {
        (0..items.len()).for_each(|row| leaves(buffer, &sub_list(items, row), oid));
        return;
    }
    let Ok(write) = write(items, Format::Binary, oid) else { return };
    for row in 0..items.len() {
        if is_null(items, row) {
            buffer.put_i32(-1);
        } else {
            sized(buffer, |buffer| write(row, buffer));
        }
    }
}
