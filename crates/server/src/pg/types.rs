//! Arrow's types by PostgreSQL's numbers, and back.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};

pub const BOOL: u32 = 16;
pub const BYTEA: u32 = 17;
pub const INT8: u32 = 20;
pub const INT2: u32 = 21;
pub const INT4: u32 = 23;
pub const TEXT: u32 = 25;
pub const JSON: u32 = 114;
pub const FLOAT4: u32 = 700;
pub const FLOAT8: u32 = 701;
pub const DATE: u32 = 1082;
pub const TIME: u32 = 1083;
pub const TIMESTAMP: u32 = 1114;
pub const TIMESTAMPTZ: u32 = 1184;
pub const INTERVAL: u32 = 1186;
pub const NUMERIC: u32 = 1700;

/// Types and the arrays of them.
const ARRAYS: [(u32, u32); 15] = [
    (BOOL, 1000),
    (BYTEA, 1001),
    (INT8, 1016),
    (INT2, 1005),
    (INT4, 1007),
    (TEXT, 1009),
    (JSON, 199),
    (FLOAT4, 1021),
    (FLOAT8, 1022),
    (DATE, 1182),
    (TIME, 1183),
    (TIMESTAMP, 1115),
    (TIMESTAMPTZ, 1185),
    (INTERVAL, 1187),
    (NUMERIC, 1231),
];

/// The type that values are sent as. What PostgreSQL has no type for becomes the next that holds
/// all of its values.
pub fn oid(data_type: &DataType) -> u32 {
    use DataType as T;
    match data_type {
        T::Boolean => BOOL,
        T::Int8 | T::UInt8 | T::Int16 => INT2,
        T::UInt16 | T::Int32 => INT4,
        T::UInt32 | T::Int64 => INT8,
        T::UInt64 => NUMERIC,
        T::Float16 | T::Float32 => FLOAT4,
        T::Float64 => FLOAT8,
        T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) | T::Decimal256(..) => NUMERIC,
        T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => BYTEA,
        T::Date32 | T::Date64 => DATE,
        T::Time32(_) | T::Time64(_) => TIME,
        T::Timestamp(_, None) => TIMESTAMP,
        T::Timestamp(_, Some(_)) => TIMESTAMPTZ,
        T::Interval(_) | T::Duration(_) => INTERVAL,
        T::Struct(_) | T::Map(..) => JSON,
        T::Dictionary(_, value) => oid(value),
        T::RunEndEncoded(_, value) => oid(value.data_type()),
        list => match item(list) {
            // An array of arrays is an array of more dimensions.
            Some(inner) => array_of(oid(inner)),
            None => TEXT,
        },
    }
}

/// The type of a list's items.
pub fn item(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(f)
        | DataType::LargeList(f)
        | DataType::FixedSizeList(f, _)
        | DataType::ListView(f)
        | DataType::LargeListView(f) => Some(f.data_type()),
        _ => None,
    }
}

pub fn array_of(oid: u32) -> u32 {
    ARRAYS.iter().find(|(item, _)| *item == oid).map_or(oid, |(_, array)| *array)
}

fn item_of(oid: u32) -> Option<u32> {
    ARRAYS.iter().find(|(_, array)| *array == oid).map(|(item, _)| *item)
}

/// Bytes of a value; −1: it varies.
pub fn size(oid: u32) -> i16 {
    match oid {
        BOOL => 1,
        INT2 => 2,
        INT4 | FLOAT4 | DATE => 4,
        INT8 | FLOAT8 | TIME | TIMESTAMP | TIMESTAMPTZ => 8,
        INTERVAL => 16,
        _ => -1,
    }
}

/// `numeric(p, s)` as PostgreSQL packs it; −1: none.
pub fn modifier(data_type: &DataType) -> i32 {
    use DataType as T;
    match data_type {
        T::Decimal32(p, s) | T::Decimal64(p, s) | T::Decimal128(p, s) | T::Decimal256(p, s)
            if *s >= 0 =>
        {
            (i32::from(*p) << 16 | i32::from(*s)) + 4
        }
        T::Dictionary(_, value) => modifier(value),
        _ => -1,
    }
}

/// Of a value that a client sends as `oid`; `None`: not known, and inferred from its place.
pub fn data_type(oid: u32) -> Option<DataType> {
    // "char", name, oid, xid, json, varchar and their like.
    Some(match oid {
        BOOL => DataType::Boolean,
        BYTEA => DataType::Binary,
        INT2 => DataType::Int16,
        INT4 => DataType::Int32,
        INT8 | 26 | 28 => DataType::Int64,
        18 | 19 | TEXT | JSON | 1042 | 1043 | 2950 | 3802 => DataType::Utf8,
        FLOAT4 => DataType::Float32,
        FLOAT8 => DataType::Float64,
        DATE => DataType::Date32,
        TIME => DataType::Time64(TimeUnit::Microsecond),
        TIMESTAMP => DataType::Timestamp(TimeUnit::Microsecond, None),
        TIMESTAMPTZ => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
        INTERVAL => DataType::Interval(IntervalUnit::MonthDayNano),
        // As many digits as a value has: see `parameter.rs`.
        NUMERIC => DataType::Decimal128(38, 10),
        1015 | 1002 | 1003 | 1014 | 2951 => list(DataType::Utf8),
        _ => list(data_type(item_of(oid)?)?),
    })
}

pub fn list(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}
