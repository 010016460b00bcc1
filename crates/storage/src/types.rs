//! Which Arrow types a table may have, and what other types become on their way in.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, new_empty_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, IntervalUnit, Schema as ArrowSchema, SchemaRef, TimeUnit};
use arrow::util::display::FormatOptions;
use thalweg_base::limits::{NAME_BYTES_MAX, PARTITION_BUCKETS_MAX, TABLE_COLUMNS_MAX};
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};

use crate::digest::value_hashes;
use crate::floats;
use crate::lengths::{TextLength, fit};
use crate::table::TableSpec;

/// Whether a table may have a column of this type. The error names the type and what to use.
pub fn storable(data_type: &DataType) -> Result<()> {
    if is_storable(data_type) {
        return Ok(());
    }
    let error = Error::unsupported(format!("a table cannot have a column of type {data_type}"));
    Err(match stored_type(data_type) {
        Some(other) => error.hint(format!("store it as {other}")),
        None => error.hint(alternative(data_type)),
    })
}

fn is_storable(data_type: &DataType) -> bool {
    match data_type {
        DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32
        | DataType::UInt64
        | DataType::Float32
        | DataType::Float64
        | DataType::Utf8View
        | DataType::BinaryView
        | DataType::Date32
        | DataType::Time32(TimeUnit::Second | TimeUnit::Millisecond)
        | DataType::Time64(TimeUnit::Microsecond | TimeUnit::Nanosecond)
        | DataType::Timestamp(..)
        | DataType::Interval(IntervalUnit::MonthDayNano) => true,
        DataType::Decimal128(precision, scale) => {
            (1..=38).contains(precision) && *scale <= *precision as i8
        }
        DataType::List(item) => is_storable_within(item.data_type()),
        DataType::Struct(fields) => {
            !fields.is_empty() && fields.iter().all(|f| is_storable_within(f.data_type()))
        }
        _ => false,
    }
}

/// Whether lists and structs may hold it.
fn is_storable_within(data_type: &DataType) -> bool {
    !matches!(data_type, DataType::Interval(_)) && is_storable(data_type)
}

/// The type a column of `data_type` gets when it is stored: itself, or the one that loses
/// nothing. `None` where there is no such type.
pub fn stored_type(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Null => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
            DataType::BinaryView
        }
        DataType::Float16 => DataType::Float32,
        DataType::Interval(_) | DataType::Duration(_) => {
            DataType::Interval(IntervalUnit::MonthDayNano)
        }
        // Its milliseconds are whole days.
        DataType::Date64 => DataType::Date32,
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::Decimal256(precision, scale) if *precision <= 38 => {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::Dictionary(_, values) => stored_type(values)?,
        DataType::RunEndEncoded(_, values) => stored_type(values.data_type())?,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            DataType::List(stored_field(item)?.into())
        }
        DataType::Struct(fields) => DataType::Struct(
            fields.iter().map(|f| stored_field(f)).collect::<Option<Vec<_>>>()?.into(),
        ),
        other if is_storable(other) => other.clone(),
        _ => return None,
    })
}

fn stored_field(field: &Field) -> Option<Field> {
    let stored = Field::new(field.name(), stored_type(field.data_type())?, field.is_nullable());
    Some(match TextLength::declared(field) {
        Some(length) => length.declare(stored),
        None => stored,
    })
}

/// The schema a table gets for data of `schema`: every column of its [`stored_type`]. Field
/// metadata is dropped, as it belongs to the file the data came from, but for the length of a text.
pub fn stored_schema(schema: &ArrowSchema) -> Result<SchemaRef> {
    let fields = schema.fields().iter().map(|field| {
        stored_field(field).ok_or_else(|| match storable(field.data_type()) {
            Err(e) => e.context(format!("column {}", quoted(field.name()))),
            Ok(()) => Error::internal(format!("no stored type for {}", field.data_type())),
        })
    });
    Ok(Arc::new(ArrowSchema::new(fields.collect::<Result<Vec<_>>>()?)))
}

fn alternative(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Interval(_) | DataType::Duration(_) => {
            "a column may be an interval, a list of them may not: store the length as a number of seconds"
        }
        DataType::Decimal256(..) => "decimals have at most 38 digits: use DECIMAL(38, s) or DOUBLE",
        DataType::Decimal128(..) => "use DECIMAL(p, s) with 1 <= p <= 38 and s <= p",
        DataType::Map(..) | DataType::Union(..) => "store it as JSON text in a VARCHAR column",
        _ => "cast it to a type that tables have, such as VARCHAR",
    }
}

/// Checks a name that is about to enter the catalog.
pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::user(format!("a {what} needs a name: it is empty")));
    }
    if name.len() > NAME_BYTES_MAX {
        let start: String = name.chars().take(32).collect();
        return Err(Error::user(format!(
            "the {what} name {}… has {} bytes; a name may have {NAME_BYTES_MAX}",
            quoted(&start),
            name.len()
        )));
    }
    if name.contains('\0') {
        return Err(Error::user(format!(
            "the {what} name {} has a NUL character",
            quoted(&name.replace('\0', "\\0"))
        )));
    }
    Ok(())
}

/// Checks everything about a schema that a table's life depends on.
pub fn check_schema(table: &str, schema: &ArrowSchema, spec: &TableSpec) -> Result<()> {
    let columns = schema.fields().len();
    let table = quoted(table);
    if columns == 0 {
        return Err(Error::user(format!("table {table} has no columns")));
    }
    if columns > TABLE_COLUMNS_MAX {
        return Err(Error::user(format!(
            "table {table} has {columns} columns; a table may have {TABLE_COLUMNS_MAX}"
        )));
    }
    let mut names = HashSet::with_capacity(columns);
    for field in schema.fields() {
        check_name("column", field.name()).map_err(|e| e.context(format!("table {table}")))?;
        if !names.insert(field.name().as_str()) {
            return Err(Error::user(format!(
                "column {} specified more than once",
                quoted(field.name())
            ))
            .code("42701")
            .detail(format!("table {table} would have two columns of this name"))
            .hint("give one of them another name with AS"));
        }
        storable(field.data_type())
            .map_err(|e| e.context(format!("table {table}, column {}", quoted(field.name()))))?;
    }
    let mut clustered = HashSet::new();
    for &column in &spec.cluster_by {
        let Some(field) = schema.fields().get(column) else {
            return Err(Error::internal(format!(
                "table {table} is clustered by column {column} of {columns}"
            )));
        };
        if !clustered.insert(column) {
            return Err(Error::user(format!(
                "table {table} is clustered by {} twice",
                quoted(field.name())
            )));
        }
        if field.data_type().is_nested() || matches!(field.data_type(), DataType::Interval(_)) {
            return Err(Error::unsupported(format!(
                "table {table} cannot be clustered by {}, a {}",
                quoted(field.name()),
                field.data_type()
            ))
            .hint("cluster by numbers, dates or strings"));
        }
    }
    let Some(partition) = spec.partition_by else { return Ok(()) };
    let Some(field) = schema.fields().get(partition.column) else {
        return Err(Error::internal(format!(
            "table {table} is partitioned by column {} of {columns}",
            partition.column
        )));
    };
    if value_hashes(&new_empty_array(field.data_type())).is_none() {
        return Err(Error::unsupported(format!(
            "table {table} cannot be partitioned by {}, a {}",
            quoted(field.name()),
            field.data_type()
        ))
        .hint("partition by whole numbers, decimals, dates or strings"));
    }
    if !(1..=PARTITION_BUCKETS_MAX).contains(&partition.buckets) {
        return Err(Error::user(format!(
            "table {table} is partitioned into {} buckets; it must be 1 to {PARTITION_BUCKETS_MAX}",
            partition.buckets
        )));
    }
    Ok(())
}

/// Brings an incoming column to exactly the table's type; an overflow is an error, not a NULL.
pub(crate) fn to_stored(array: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    let array = if array.data_type() == field.data_type() {
        array.clone()
    } else {
        let options = CastOptions { safe: false, format_options: FormatOptions::default() };
        cast_with_options(array, field.data_type(), &options).map_err(|e| {
            Error::user(format!(
                "column {} is {}, and this value of {} does not fit: {e}",
                quoted(field.name()),
                field.data_type(),
                array.data_type()
            ))
        })?
    };
    let array = fit(floats::canonical(array), field)?;
    if !field.is_nullable() && array.logical_null_count() > 0 {
        return Err(Error::user(format!(
            "column {} is NOT NULL, and got a NULL",
            quoted(field.name())
        ))
        .hint("declare it without NOT NULL, or filter the rows: WHERE … IS NOT NULL"));
    }
    Ok(array)
}
