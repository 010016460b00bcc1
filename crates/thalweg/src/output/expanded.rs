//! One line per value: for rows too wide to read side by side.

use std::io::Write;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use unicode_width::UnicodeWidthStr;

use super::ResultWriter;
use super::cells::Cells;
use super::fit::pad;
use super::sink::Sink;
use super::table::rows_label;
use crate::failure::Outcome;

pub struct Expanded<'s> {
    sink: &'s mut Sink,
    names: Vec<String>,
    rows: u64,
}

impl<'s> Expanded<'s> {
    pub fn new(schema: &SchemaRef, sink: &'s mut Sink) -> Self {
        let width = schema.fields().iter().map(|f| f.name().width()).max().unwrap_or(0);
        let names = schema.fields().iter().map(|f| pad(f.name(), width, false)).collect();
        Expanded { sink, names, rows: 0 }
    }
}

impl ResultWriter for Expanded<'_> {
    fn batch(&mut self, batch: &RecordBatch) -> Outcome {
        let cells = Cells::new(batch)?;
        for row in 0..batch.num_rows() {
            self.rows += 1;
            writeln!(self.sink, "── row {} ──", self.rows)?;
            for (column, name) in self.names.iter().enumerate() {
                let text = cells.shown(column, row)?;
                for (i, line) in text.split('\n').enumerate() {
                    if i == 0 {
                        writeln!(self.sink, "{name} │ {line}")?;
                    } else {
                        writeln!(self.sink, "{} │ {line}", pad("", name.width(), false))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Outcome {
        writeln!(self.sink, "{}", rows_label(self.rows))?;
        Ok(())
    }
}
