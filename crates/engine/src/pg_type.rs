//! Arrow's types as PostgreSQL's: what the catalog says of a column, and what the wire is told.
//!
//! A field may say itself what it is, in its metadata: the catalog has types that Arrow has not.

use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
pub use thalweg_pgcatalog::types::{self, Oid};
use thalweg_storage::TextLength;

/// Of a field's metadata: its type's OID, and the type's modifier.
pub const OID_KEY: &str = "thalweg.pg_oid";
pub const TYPMOD_KEY: &str = "thalweg.pg_typmod";

/// No modifier.
const NONE: i32 = -1;
/// Digits of the largest `UInt64`.
const UINT64_DIGITS: i32 = 20;

/// The OID of the type that values of an Arrow type are sent as.
///
/// Unsigned numbers are of the next wider type, those of 64 bits `numeric`; lists are arrays, lists
/// of lists too, since PostgreSQL's arrays have any number of dimensions; structs and maps are JSON.
pub fn oid(data_type: &DataType) -> Oid {
    match data_type {
        DataType::Boolean => types::BOOL,
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => types::INT2,
        DataType::UInt16 | DataType::Int32 => types::INT4,
        DataType::UInt32 | DataType::Int64 => types::INT8,
        DataType::Float16 | DataType::Float32 => types::FLOAT4,
        DataType::Float64 => types::FLOAT8,
        DataType::UInt64
        | DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => types::NUMERIC,
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => types::BYTEA,
        DataType::Date32 | DataType::Date64 => types::DATE,
        DataType::Time32(_) | DataType::Time64(_) => types::TIME,
        DataType::Timestamp(_, None) => types::TIMESTAMP,
        DataType::Timestamp(_, Some(_)) => types::TIMESTAMPTZ,
        DataType::Interval(_) | DataType::Duration(_) => types::INTERVAL,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => match oid(item.data_type()) {
            element if types::element(element).is_some() => element,
            element => types::array_of(element).unwrap_or(types::JSON),
        },
        DataType::Struct(_) | DataType::Map(..) => types::JSON,
        DataType::Dictionary(_, value) => oid(value),
        DataType::RunEndEncoded(_, values) => oid(values.data_type()),
        _ => types::TEXT,
    }
}

/// The type's modifier, as `pg_attribute.atttypmod` has it: precision and scale of a decimal,
/// digits of a time that has fewer than PostgreSQL's six.
pub fn typmod(data_type: &DataType) -> i32 {
    let digits = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond | TimeUnit::Nanosecond => NONE,
    };
    match data_type {
        DataType::Decimal32(p, s)
        | DataType::Decimal64(p, s)
        | DataType::Decimal128(p, s)
        | DataType::Decimal256(p, s) => ((i32::from(*p) << 16) | (i32::from(*s) & 0x7ff)) + 4,
        DataType::UInt64 => (UINT64_DIGITS << 16) + 4,
        DataType::Timestamp(unit, _) | DataType::Time32(unit) | DataType::Time64(unit) => {
            digits(unit)
        }
        DataType::List(item) | DataType::LargeList(item) | DataType::ListView(item) => {
            typmod(item.data_type())
        }
        DataType::Interval(IntervalUnit::YearMonth) => NONE,
        DataType::Dictionary(_, value) => typmod(value),
        _ => NONE,
    }
}

/// OID and modifier of a column of a result: what the field says, else what follows from its type.
pub fn of_field(field: &Field) -> (Oid, i32) {
    if let Some(length) = TextLength::of(field) {
        let oid = if length.blank_padded { types::BPCHAR } else { types::VARCHAR };
        return (oid, length.characters as i32 + 4);
    }
    let said = |key: &str| field.metadata().get(key);
    match said(OID_KEY).and_then(|oid| oid.parse().ok()) {
        Some(oid) => (oid, said(TYPMOD_KEY).and_then(|typmod| typmod.parse().ok()).unwrap_or(NONE)),
        None => (oid(field.data_type()), typmod(field.data_type())),
    }
}

/// `typname`: `int4`, `_text`.
pub fn name(oid: Oid) -> String {
    types::name(oid).unwrap_or_else(|| "text".into())
}

/// As `format_type` shows it: `numeric(12,2)`, `integer[]`.
pub fn shown(oid: Oid, typmod: i32) -> String {
    types::shown(oid, typmod).unwrap_or_else(|| "text".into())
}

/// `typlen`, as a description of rows has it: bytes of a value, -1 of those that differ.
pub fn length(oid: Oid) -> i16 {
    match oid {
        types::BOOL | types::CHAR => 1,
        types::INT2 => 2,
        types::INT4 | types::OID | types::FLOAT4 | types::DATE | types::XID => 4,
        types::INT8 | types::FLOAT8 | types::TIME | types::TIMESTAMP | types::TIMESTAMPTZ => 8,
        types::INTERVAL | types::UUID => 16,
        types::NAME => 64,
        _ => -1,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn arrow_types_are_postgres_types() {
        let check = |data_type: DataType, expected: &str| {
            assert_eq!(shown(oid(&data_type), typmod(&data_type)), expected, "{data_type}");
        };
        check(DataType::UInt8, "smallint");
        check(DataType::UInt32, "bigint");
        check(DataType::UInt64, "numeric(20,0)");
        check(DataType::Decimal128(12, 2), "numeric(12,2)");
        check(DataType::Decimal128(5, -2), "numeric(5,-2)");
        check(DataType::Utf8View, "text");
        check(DataType::Timestamp(TimeUnit::Nanosecond, None), "timestamp without time zone");
        check(
            DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())),
            "timestamp(3) with time zone",
        );
        let list = |item| DataType::List(Arc::new(Field::new("item", item, true)));
        check(list(DataType::Int32), "integer[]");
        check(list(list(DataType::Utf8)), "text[]");
        check(DataType::Struct(vec![Field::new("a", DataType::Int8, true)].into()), "json");
        let field = Field::new("oid", DataType::UInt32, true)
            .with_metadata([(OID_KEY.to_string(), "26".to_string())].into());
        assert_eq!(of_field(&field), (types::OID, NONE));
    }
}
