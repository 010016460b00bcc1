//! RFC 4180, with `\n` line ends: a header line, then the rows.
//!
//! NULL is an empty field and the empty string is `""`, which is also how `thalweg load` reads
//! them back.

use std::io::Write;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::ResultWriter;
use super::cells::Cells;
use super::sink::Sink;
use crate::failure::Outcome;

pub struct Csv<'s> {
    sink: &'s mut Sink,
    lines: String,
    cell: String,
}

impl<'s> Csv<'s> {
    pub fn new(schema: &SchemaRef, sink: &'s mut Sink) -> Outcome<Self> {
        let mut header = String::new();
        for (i, field) in schema.fields().iter().enumerate() {
            if i > 0 {
                header.push(',');
            }
            push_field(field.name(), &mut header);
        }
        header.push('\n');
        sink.write_all(header.as_bytes())?;
        Ok(Csv { sink, lines: String::new(), cell: String::new() })
    }
}

impl ResultWriter for Csv<'_> {
    fn batch(&mut self, batch: &RecordBatch) -> Outcome {
        let cells = Cells::new(batch)?;
        self.lines.clear();
        for row in 0..batch.num_rows() {
            for column in 0..cells.columns() {
                if column > 0 {
                    self.lines.push(',');
                }
                self.cell.clear();
                if cells.write(column, row, &mut self.cell)? {
                    push_field(&self.cell, &mut self.lines);
                }
            }
            self.lines.push('\n');
        }
        self.sink.write_all(self.lines.as_bytes())?;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Outcome {
        Ok(())
    }
}

fn push_field(text: &str, out: &mut String) {
    if !text.is_empty() && !text.contains([',', '"', '\n', '\r']) {
        out.push_str(text);
        return;
    }
    out.push('"');
    for c in text.chars() {
        if c == '"' {
            out.push('"');
        }
        out.push(c);
    }
    out.push('"');
}
