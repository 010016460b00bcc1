//! EXPLAIN: text that is laid out already, written as it is.

use std::io::Write;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::ResultWriter;
use super::cells::Cells;
use super::sink::Sink;
use crate::failure::Outcome;

pub struct Plan<'s> {
    sink: &'s mut Sink,
    columns: usize,
}

impl<'s> Plan<'s> {
    pub fn new(schema: &SchemaRef, sink: &'s mut Sink) -> Self {
        Plan { sink, columns: schema.fields().len() }
    }
}

impl ResultWriter for Plan<'_> {
    fn batch(&mut self, batch: &RecordBatch) -> Outcome {
        let cells = Cells::new(batch)?;
        for row in 0..batch.num_rows() {
            // All but the last column are the titles of the text in the last.
            for column in 0..self.columns {
                let text = cells.shown(column, row)?;
                let end = if column + 1 < self.columns { ":" } else { "" };
                writeln!(self.sink, "{}{end}", text.trim_end())?;
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Outcome {
        Ok(())
    }
}
