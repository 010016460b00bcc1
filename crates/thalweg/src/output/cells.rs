//! One value as text.

use std::fmt::Write;

use arrow::array::{Array, ArrayRef};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::failure::Outcome;

/// Times as SQL writes them; NULL only inside lists and structs, where it must be spelled out.
const OPTIONS: FormatOptions<'static> = FormatOptions::new()
    .with_display_error(false)
    .with_null("NULL")
    .with_datetime_format(Some("%Y-%m-%d %H:%M:%S%.f"))
    .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
    .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:z"));

pub struct Cells<'a> {
    columns: Vec<(ArrayFormatter<'a>, Option<NullBuffer>)>,
}

impl<'a> Cells<'a> {
    pub fn new(batch: &'a RecordBatch) -> Outcome<Self> {
        let column = |array: &'a ArrayRef| {
            // A dictionary's keys may all be valid and still point at a null value.
            Ok((ArrayFormatter::try_new(array.as_ref(), &OPTIONS)?, array.logical_nulls()))
        };
        Ok(Cells { columns: batch.columns().iter().map(column).collect::<Outcome<_>>()? })
    }

    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Appends the value's text to `out`; false (and nothing appended) for NULL.
    pub fn write(&self, column: usize, row: usize, out: &mut String) -> Outcome<bool> {
        let (formatter, nulls) = &self.columns[column];
        if nulls.as_ref().is_some_and(|n| n.is_null(row)) {
            return Ok(false);
        }
        formatter.value(row).write(out)?;
        Ok(true)
    }

    /// For the screen: NULL is spelled out, and what could steer a terminal is escaped.
    pub fn shown(&self, column: usize, row: usize) -> Outcome<String> {
        let mut raw = String::new();
        Ok(if self.write(column, row, &mut raw)? { escaped(raw) } else { "NULL".to_string() })
    }
}

/// A value, for a catalog listing.
pub fn single(array: &ArrayRef, row: usize) -> Outcome<Option<String>> {
    if array.logical_nulls().is_some_and(|n| n.is_null(row)) {
        return Ok(None);
    }
    let mut text = String::new();
    ArrayFormatter::try_new(array.as_ref(), &OPTIONS)?.value(row).write(&mut text)?;
    Ok(Some(text))
}

/// Control characters as escapes, line breaks as they are.
fn escaped(text: String) -> String {
    let steers = |c: char| c.is_control() && c != '\n';
    if !text.contains(steers) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if steers(c) {
            let _ = write!(out, "{}", c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Numbers line up by their last digit.
pub fn is_number(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => is_number(value),
        _ => data_type.is_numeric(),
    }
}
