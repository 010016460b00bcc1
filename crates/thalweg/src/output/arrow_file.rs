//! An Arrow IPC file (Feather V2).

use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::FileWriter;
use arrow::record_batch::RecordBatch;

use super::sink::Sink;
use super::{ResultWriter, renamed, unique_names};
use crate::failure::Outcome;

pub struct Arrow<'s> {
    schema: SchemaRef,
    writer: FileWriter<&'s mut Sink>,
}

impl<'s> Arrow<'s> {
    pub fn new(schema: &SchemaRef, sink: &'s mut Sink) -> Outcome<Self> {
        let schema = unique_names(schema);
        let writer = FileWriter::try_new(sink, &schema)?;
        Ok(Arrow { schema, writer })
    }
}

impl ResultWriter for Arrow<'_> {
    fn batch(&mut self, batch: &RecordBatch) -> Outcome {
        self.writer.write(&renamed(batch, &self.schema)?)?;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Outcome {
        self.writer.finish()?;
        Ok(())
    }
}
