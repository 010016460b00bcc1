//! Arrow types as CREATE TABLE spells them.

use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use thalweg_storage::TextLength;

/// The type of a column, as it was declared: `varchar(3)`.
pub fn sql_type_of(field: &Field) -> String {
    match TextLength::declared(field) {
        Some(length) => length.name(),
        None => sql_type(field.data_type()),
    }
}

/// `Decimal128(12, 2)` → `decimal(12,2)`.
pub fn sql_type(data_type: &DataType) -> String {
    match data_type {
        // A column without a value is one of texts, as in PostgreSQL.
        DataType::Null => "varchar".into(),
        DataType::Boolean => "boolean".into(),
        DataType::Int8 => "tinyint".into(),
        DataType::Int16 => "smallint".into(),
        DataType::Int32 => "int".into(),
        DataType::Int64 => "bigint".into(),
        DataType::UInt8 => "tinyint unsigned".into(),
        DataType::UInt16 => "smallint unsigned".into(),
        DataType::UInt32 => "int unsigned".into(),
        DataType::UInt64 => "bigint unsigned".into(),
        DataType::Float32 => "real".into(),
        DataType::Float64 => "double".into(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "varchar".into(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "bytea".into(),
        DataType::Date32 | DataType::Date64 => "date".into(),
        DataType::Time32(_) | DataType::Time64(_) => "time".into(),
        DataType::Timestamp(unit, zone) => {
            let digits = match unit {
                TimeUnit::Second => "(0)",
                TimeUnit::Millisecond => "(3)",
                TimeUnit::Microsecond => "(6)",
                TimeUnit::Nanosecond => "(9)",
            };
            let zone = if zone.is_some() { " with time zone" } else { "" };
            format!("timestamp{digits}{zone}")
        }
        DataType::Interval(IntervalUnit::YearMonth) => "interval year to month".into(),
        DataType::Interval(_) => "interval".into(),
        DataType::Decimal32(p, s)
        | DataType::Decimal64(p, s)
        | DataType::Decimal128(p, s)
        | DataType::Decimal256(p, s) => format!("decimal({p},{s})"),
        DataType::List(item) | DataType::LargeList(item) | DataType::ListView(item) => {
            format!("{}[]", sql_type(item.data_type()))
        }
        DataType::Struct(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|f| format!("{} {}", f.name(), sql_type(f.data_type())))
                .collect();
            format!("struct({})", fields.join(", "))
        }
        DataType::Dictionary(_, value) => sql_type(value),
        other => other.to_string(),
    }
}
