//! `system.functions`: what statements can call.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use thalweg_base::Result;
use thalweg_bind::catalogue::Function;

use thalweg_errors::from_arrow;

pub fn schema() -> SchemaRef {
    let names = ["name", "kind", "arguments", "returns", "alias_of", "description", "example"];
    let fields = names.map(|name| Field::new(name, DataType::Utf8, true));
    Arc::new(Schema::new(fields.to_vec()))
}

/// One line per function and list of arguments.
pub fn rows(all: &[Function]) -> Result<RecordBatch> {
    let text = |f: &dyn Fn(&Function) -> Option<&str>| -> ArrayRef {
        Arc::new(all.iter().map(f).collect::<StringArray>())
    };
    let columns = vec![
        text(&|f| Some(&f.name)),
        text(&|f| Some(f.kind.name())),
        text(&|f| Some(&f.arguments)),
        text(&|f| f.returns.as_deref()),
        text(&|f| f.alias_of.as_deref()),
        text(&|f| f.description.as_deref()),
        text(&|f| f.example.as_deref()),
    ];
    RecordBatch::try_new(schema(), columns).map_err(|e| from_arrow(&e))
}

#[cfg(test)]
mod tests;
