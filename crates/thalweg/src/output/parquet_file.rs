//! An Apache Parquet file, compressed with zstd.

use std::io::Write;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::sink::Sink;
use super::{ResultWriter, renamed, unique_names};
use crate::failure::Outcome;

/// Encoded bytes of a row group held back until it is written: what bounds the memory.
const GROUP_BYTES_MAX: usize = 256 * 1024 * 1024;

pub struct Parquet<'s> {
    schema: SchemaRef,
    writer: ArrowWriter<&'s mut Sink>,
}

impl<'s> Parquet<'s> {
    pub fn new(schema: &SchemaRef, sink: &'s mut Sink) -> Outcome<Self> {
        let schema = unique_names(schema);
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .build();
        let writer = ArrowWriter::try_new(sink, schema.clone(), Some(properties))?;
        Ok(Parquet { schema, writer })
    }
}

impl ResultWriter for Parquet<'_> {
    fn batch(&mut self, batch: &RecordBatch) -> Outcome {
        self.writer.write(&renamed(batch, &self.schema)?)?;
        if self.writer.in_progress_size() > GROUP_BYTES_MAX {
            self.writer.flush()?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Outcome {
        self.writer.into_inner()?.flush()?;
        Ok(())
    }
}
