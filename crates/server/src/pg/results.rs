//! The rows of an answer, to the client.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use futures::StreamExt;
use thalweg_base::{Error, Result};
use thalweg_engine::{Answer, ResultColumn, pg_type, result_names};

use super::connection::{Connection, Stop};
use super::encode::{Format, Rows};
use super::write::{Field, Out};

/// A format for each column, from what the client asks for: none is text, one is for all.
pub fn formats(codes: &[i16], columns: usize) -> Result<Vec<Format>> {
    match codes {
        [] => Ok(vec![Format::Text; columns]),
        [code] => Ok(vec![Format::from_code(*code)?; columns]),
        codes if codes.len() == columns => codes.iter().map(|c| Format::from_code(*c)).collect(),
        codes => Err(Error::user(format!(
            "{} formats are given for {columns} columns of the result",
            codes.len()
        ))
        .code("08P01")),
    }
}

/// Columns that one row may have: their number has 16 bits.
const COLUMNS_MAX: usize = i16::MAX as usize;

/// Announces the columns of the statement's result.
pub fn describe(out: &mut Out, sql: &str, schema: &SchemaRef, formats: &[Format]) -> Result<()> {
    if schema.fields().len() > COLUMNS_MAX {
        return Err(Error::unsupported(format!(
            "the result has {} columns, more than the {COLUMNS_MAX} that PostgreSQL's protocol \
             can send",
            schema.fields().len()
        ))
        .code("54011"));
    }
    let names = result_names(sql, schema.fields().len());
    let columns = schema.fields().iter().zip(&names).zip(formats);
    out.row_description(columns.map(|((field, name), format)| {
        let (oid, modifier) = pg_type::of_field(field);
        Field {
            name: name.as_ref().unwrap_or(field.name()),
            oid,
            size: pg_type::length(oid),
            modifier,
            format: format.code(),
        }
    }));
    Ok(())
}

/// The types of the columns, as `describe` announces them.
pub fn types(schema: &SchemaRef) -> Vec<u32> {
    schema.fields().iter().map(|field| pg_type::of_field(field).0).collect()
}

/// The same of a query over PostgreSQL's catalog, before its values and formats are known.
pub fn describe_catalog(out: &mut Out, columns: &[ResultColumn]) {
    out.row_description(columns.iter().map(|column| Field {
        name: &column.name,
        oid: column.oid,
        size: pg_type::length(column.oid),
        modifier: column.typmod,
        format: Format::Text.code(),
    }));
}

/// An answer and how much of it has been sent.
pub struct Cursor {
    pub answer: Answer,
    pub formats: Vec<Format>,
    /// What the client has been told of the columns, if that is something else.
    pub told: Option<SchemaRef>,
    /// The batch that is being sent, and its first row that is not.
    batch: Option<(RecordBatch, usize)>,
    pub sent: u64,
    /// Whether the row that was sent last is kept, and that row.
    pub keeps_last: bool,
    pub last: Option<RecordBatch>,
}

impl Cursor {
    pub fn new(answer: Answer, formats: Vec<Format>) -> Self {
        Cursor { answer, formats, told: None, batch: None, sent: 0, keeps_last: false, last: None }
    }

    /// Rows as the client has been told them: whole numbers of a statement are as wide as its values are, and
    /// it may have been told wider ones.
    fn as_told(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let Some(told) = &self.told else { return Ok(batch) };
        let wrong = |e| Error::internal(format!("rows as they were told: {e}"));
        let schema = batch.schema();
        let (mut fields, mut columns) = (vec![], vec![]);
        for (at, (field, column)) in schema.fields().iter().zip(batch.columns()).enumerate() {
            let told = told.fields().get(at).map(|told| told.data_type());
            let column = match told.filter(|told| widens(column.data_type(), told)) {
                Some(told) => cast(column, told).map_err(wrong)?,
                None => Arc::clone(column),
            };
            fields.push(field.as_ref().clone().with_data_type(column.data_type().clone()));
            columns.push(column);
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(wrong)
    }

    /// The rows of the batch before this one have been sent.
    fn sent_before(&mut self, batch: &RecordBatch, row: usize) {
        if self.keeps_last && row > 0 {
            self.last = Some(batch.slice(row - 1, 1));
        }
    }
}

/// Whether the second type has all whole numbers of the first.
fn widens(from: &DataType, to: &DataType) -> bool {
    match (from, to) {
        (DataType::List(from), DataType::List(to)) => widens(from.data_type(), to.data_type()),
        (from, DataType::Decimal128(..)) => from.is_integer(),
        (from, to) => {
            from.is_integer() && to.is_integer() && from.primitive_width() < to.primitive_width()
        }
    }
}

impl Connection {
    /// Sends up to `rows_max` rows (0: all). True: that was the last of them.
    pub async fn send_rows(&mut self, cursor: &mut Cursor, rows_max: usize) -> Result<bool, Stop> {
        let mut left = if rows_max == 0 { usize::MAX } else { rows_max };
        loop {
            let (batch, mut row) = match cursor.batch.take() {
                Some(begun) => begun,
                None => match self.watched(cursor.answer.next()).await? {
                    Some(batch) => (cursor.as_told(batch?)?, 0),
                    None => return Ok(true),
                },
            };
            while row < batch.num_rows() {
                if left == 0 {
                    cursor.sent_before(&batch, row);
                    cursor.batch = Some((batch, row));
                    return Ok(false);
                }
                let rows = Rows::new(&batch, &cursor.formats)?;
                while row < batch.num_rows() && left > 0 && !self.output.is_full() {
                    rows.data_row(row, &mut self.output.out);
                    row += 1;
                    left -= 1;
                    cursor.sent += 1;
                }
                drop(rows);
                if self.output.is_full() {
                    self.flush().await?;
                }
            }
            cursor.sent_before(&batch, row);
            if left == 0 {
                cursor.batch = Some((batch.slice(row, 0), 0));
                return Ok(false);
            }
        }
    }

    /// The same without sending them.
    pub async fn skip_rows(&mut self, cursor: &mut Cursor, rows_max: usize) -> Result<bool, Stop> {
        let mut left = if rows_max == 0 { usize::MAX } else { rows_max };
        while left > 0 {
            let (batch, row) = match cursor.batch.take() {
                Some(begun) => begun,
                None => match self.watched(cursor.answer.next()).await? {
                    Some(batch) => (batch?, 0),
                    None => return Ok(true),
                },
            };
            let skipped = left.min(batch.num_rows() - row);
            left -= skipped;
            cursor.sent += skipped as u64;
            cursor.sent_before(&batch, row + skipped);
            cursor.batch = Some((batch, row + skipped));
            if left > 0 {
                cursor.batch = None;
            }
        }
        Ok(false)
    }
}
