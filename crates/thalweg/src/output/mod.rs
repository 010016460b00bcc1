//! Results, in the formats they leave in.
//!
//! * [`sink`]: where the bytes go, stdout or a file that appears only when it is whole
//! * [`cells`]: one value as text, the same in every text format
//! * [`table`], [`expanded`], [`plan`]: for people
//! * [`csv`], [`json`], [`parquet_file`], [`arrow_file`]: for programs

pub mod arrow_file;
pub mod cells;
pub mod csv;
pub mod expanded;
pub mod fit;
pub mod json;
pub mod parquet_file;
pub mod plan;
pub mod sink;
pub mod table;

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use clap::ValueEnum;
use thalweg_base::{Error, text};

use crate::failure::Outcome;
use sink::Sink;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// aligned columns, for reading
    Table,
    /// a header line, then the rows
    Csv,
    /// one JSON object a line (NDJSON)
    Json,
    /// an Apache Parquet file, compressed with zstd
    Parquet,
    /// an Arrow IPC file (Feather V2), uncompressed
    Arrow,
}

impl Format {
    /// Files that end with a footer hold exactly one result, and mean nothing on a screen.
    pub fn is_binary(self) -> bool {
        matches!(self, Format::Parquet | Format::Arrow)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Table => "table",
            Format::Csv => "csv",
            Format::Json => "json",
            Format::Parquet => "parquet",
            Format::Arrow => "arrow",
        })
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        <Format as ValueEnum>::from_str(name, true).map_err(|_| {
            Error::user(format!("there is no output format {}", text::quoted(name)))
                .hint("the formats are table, csv, json, parquet and arrow")
        })
    }
}

/// How the formats for people look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Columns of the terminal; `None` (a pipe or a file) shows every value whole.
    pub width: Option<usize>,
    /// Rows shown before the middle of a result is left out; `None` shows all.
    pub rows_max: Option<usize>,
    /// One line per value instead of one per row.
    pub expanded: bool,
    /// The statement was an EXPLAIN: its text is the result, boxes would only break it.
    pub plan: bool,
}

/// Takes one result, batch by batch.
pub trait ResultWriter {
    fn batch(&mut self, batch: &RecordBatch) -> Outcome;
    fn finish(self: Box<Self>) -> Outcome;
}

pub fn writer<'s>(
    format: Format,
    look: Look,
    schema: &SchemaRef,
    sink: &'s mut Sink,
) -> Outcome<Box<dyn ResultWriter + 's>> {
    Ok(match format {
        Format::Table if look.plan => Box::new(plan::Plan::new(schema, sink)),
        Format::Table if look.expanded => Box::new(expanded::Expanded::new(schema, sink)),
        Format::Table => Box::new(table::Table::new(schema, look, sink)),
        Format::Csv => Box::new(csv::Csv::new(schema, sink)?),
        Format::Json => Box::new(json::Json::new(schema, sink)),
        Format::Parquet => Box::new(parquet_file::Parquet::new(schema, sink)?),
        Format::Arrow => Box::new(arrow_file::Arrow::new(schema, sink)?),
    })
}

/// SQL lets two columns share a name; the formats that address columns by name do not. The
/// second `a` becomes `a_2`.
fn unique_names(schema: &SchemaRef) -> SchemaRef {
    let mut taken: HashSet<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
    let mut seen = HashSet::new();
    let fields: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| {
            if seen.insert(field.name().clone()) {
                return field.clone();
            }
            let mut n = 2;
            let name = loop {
                let name = format!("{}_{n}", field.name());
                if taken.insert(name.clone()) {
                    break name;
                }
                n += 1;
            };
            seen.insert(name.clone());
            Arc::new(Field::clone(field).with_name(name))
        })
        .collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn renamed(batch: &RecordBatch, schema: &SchemaRef) -> Outcome<RecordBatch> {
    let options = arrow::record_batch::RecordBatchOptions::new()
        .with_row_count(Some(batch.num_rows()))
        .with_match_field_names(false);
    Ok(RecordBatch::try_new_with_options(schema.clone(), batch.columns().to_vec(), &options)?)
}

#[cfg(test)]
mod tests;
