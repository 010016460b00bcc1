//! PostgreSQL's types as Arrow's, for values of clients; the other way is the engine's.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
pub use thalweg_engine::pg_type::oid;
pub use thalweg_engine::pg_type::types::{
    BOOL, BYTEA, DATE, FLOAT4, FLOAT8, INT2, INT4, INT8, INTERVAL, JSON, JSONB, NUMERIC, OID, TEXT,
    TIME, TIMESTAMP, TIMESTAMPTZ, UUID, array_of, element,
};

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

/// Of a value that a client sends as `oid`; `None`: not known, and inferred from its place.
pub fn data_type(oid: u32) -> Option<DataType> {
    // "char", name, oid, xid, json, varchar and their like.
    Some(match oid {
        BOOL => DataType::Boolean,
        BYTEA => DataType::Binary,
        INT2 => DataType::Int16,
        INT4 => DataType::Int32,
        INT8 | OID | 28 => DataType::Int64,
        18 | 19 | TEXT | JSON | 1042 | 1043 | UUID | JSONB => DataType::Utf8,
        FLOAT4 => DataType::Float32,
        FLOAT8 => DataType::Float64,
        DATE => DataType::Date32,
        TIME => DataType::Time64(TimeUnit::Nanosecond),
        TIMESTAMP => DataType::Timestamp(TimeUnit::Microsecond, None),
        TIMESTAMPTZ => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
        INTERVAL => DataType::Interval(IntervalUnit::MonthDayNano),
        // As many digits as a value has: see `parameter.rs`.
        NUMERIC => DataType::Decimal128(38, 10),
        _ => list(data_type(element(oid)?)?),
    })
}

pub fn list(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}
