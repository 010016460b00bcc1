//! The hidden column that names the rows of a table.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

/// What [`ChunkRef::row_ids`](thalweg_storage::ChunkRef::row_ids) calls rows. No other column can have a NUL
/// in its name.
pub const ROW_ID: &str = "row_id\0";

/// A table's columns and the hidden one.
pub fn with_row_id(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().cloned();
    let row_id = Arc::new(Field::new(ROW_ID, DataType::UInt64, false));
    Arc::new(Schema::new(fields.chain([row_id]).collect::<Vec<_>>()))
}
