//! Rows of the catalog as Arrow's.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Float32Builder, Float64Builder, Int16Builder, Int32Builder,
    Int64Builder, ListArray, RecordBatch, RecordBatchOptions, StringBuilder,
    TimestampMicrosecondBuilder, UInt32Builder,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use thalweg_base::Result;
use thalweg_pgcatalog::{Environment, Oid, ResultColumn, Row, Value, print, types};

use crate::pg_type::{OID_KEY, TYPMOD_KEY};
use thalweg_errors::from_arrow;

/// What the client is told of a type: those whose values are numbers that are shown as names are
/// text.
fn told(oid: Oid) -> Oid {
    match oid {
        _ if types::is_alias(oid) => types::TEXT,
        types::RECORD | types::ANYARRAY | types::PG_NODE_TREE | types::ACLITEM => types::TEXT,
        types::NUMERIC => types::FLOAT8,
        _ => match types::element(oid) {
            Some(element)
                if !matches!(oid, types::INT2VECTOR | types::OIDVECTOR)
                    && told(element) != element =>
            {
                types::array_of(told(element)).unwrap_or(types::TEXT)
            }
            _ => oid,
        },
    }
}

pub fn arrow_type(oid: Oid) -> DataType {
    match oid {
        types::BOOL => DataType::Boolean,
        types::INT2 => DataType::Int16,
        types::INT4 => DataType::Int32,
        types::INT8 | types::XID8 => DataType::Int64,
        types::OID | types::XID | types::CID => DataType::UInt32,
        types::FLOAT4 => DataType::Float32,
        types::FLOAT8 => DataType::Float64,
        types::TIMESTAMP => DataType::Timestamp(TimeUnit::Microsecond, None),
        types::TIMESTAMPTZ => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
        types::INT2VECTOR | types::OIDVECTOR => DataType::Utf8,
        _ => match types::element(oid) {
            Some(element) => {
                DataType::List(Arc::new(Field::new("item", arrow_type(element), true)))
            }
            None => DataType::Utf8,
        },
    }
}

/// A column of the catalog, which says what it is to PostgreSQL.
pub fn field(name: &str, oid: Oid, typmod: i32) -> Field {
    let oid = told(oid);
    let mut metadata = vec![(OID_KEY.to_string(), oid.to_string())];
    if typmod >= 0 {
        metadata.push((TYPMOD_KEY.to_string(), typmod.to_string()));
    }
    Field::new(name, arrow_type(oid), true).with_metadata(metadata.into_iter().collect())
}

pub fn rows(columns: &[ResultColumn], rows: &[Row], env: &dyn Environment) -> Result<RecordBatch> {
    let fields = columns.iter().map(|c| field(&c.name, c.oid, c.typmod));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let mut arrays = vec![];
    for (at, column) in columns.iter().enumerate() {
        let values: Vec<&Value> = rows.iter().map(|row| &row[at]).collect();
        arrays.push(array(&values, column.oid, env)?);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(schema, arrays, &options).map_err(|e| from_arrow(&e))
}

/// `oid` is the type that the values have.
fn array(values: &[&Value], oid: Oid, env: &dyn Environment) -> Result<ArrayRef> {
    macro_rules! numbers {
        ($builder:expr, $value:expr) => {{
            let mut builder = $builder;
            for value in values {
                builder.append_option($value(value));
            }
            Ok(Arc::new(builder.finish()))
        }};
    }
    let int = |value: &&Value| value.as_int();
    let float = |value: &&Value| match value {
        Value::Float(n) => Some(*n),
        Value::Int(n) => Some(*n as f64),
        _ => None,
    };
    let target = told(oid);
    match arrow_type(target) {
        DataType::Boolean => numbers!(BooleanBuilder::new(), |v: &&Value| match v {
            Value::Bool(b) => Some(*b),
            _ => None,
        }),
        DataType::Int16 => {
            numbers!(Int16Builder::new(), |v| int(v).and_then(|n| i16::try_from(n).ok()))
        }
        DataType::Int32 => {
            numbers!(Int32Builder::new(), |v| int(v).and_then(|n| i32::try_from(n).ok()))
        }
        DataType::Int64 => numbers!(Int64Builder::new(), int),
        DataType::UInt32 => {
            numbers!(UInt32Builder::new(), |v| int(v).and_then(|n| u32::try_from(n).ok()))
        }
        DataType::Float32 => numbers!(Float32Builder::new(), |v| float(v).map(|n| n as f32)),
        DataType::Float64 => numbers!(Float64Builder::new(), float),
        timestamp @ DataType::Timestamp(..) => {
            numbers!(TimestampMicrosecondBuilder::new().with_data_type(timestamp), int)
        }
        DataType::List(item) => {
            let element = types::element(oid).unwrap_or(types::TEXT);
            let mut items = vec![];
            let (mut lengths, mut valid) = (vec![], vec![]);
            for value in values {
                let list = value.as_array();
                valid.push(list.is_some());
                lengths.push(list.map_or(0, <[Value]>::len));
                items.extend(list.unwrap_or(&[]));
            }
            let inner = array(&items, element, env)?;
            let offsets = OffsetBuffer::from_lengths(lengths);
            let list = ListArray::try_new(item, offsets, inner, Some(NullBuffer::from(valid)));
            Ok(Arc::new(list.map_err(|e| from_arrow(&e))?))
        }
        _ => {
            let mut builder = StringBuilder::new();
            for value in values {
                builder.append_option(print(value, oid, env)?);
            }
            Ok(Arc::new(builder.finish()))
        }
    }
}
