//! Newline-delimited JSON: one object per row, with every column, NULL as `null`.
//!
//! Integers and decimals are written with all their digits; NaN and the infinities, which JSON
//! lacks, become `null`.

use std::io::Write;
use std::sync::Arc;

use arrow::array::Array;
use arrow::datatypes::{FieldRef, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::writer::{
    EncoderFactory, EncoderOptions, LineDelimited, NullableEncoder, Writer, WriterBuilder,
};
use arrow::record_batch::RecordBatch;

use super::sink::Sink;
use super::{ResultWriter, renamed, unique_names};
use crate::failure::Outcome;

pub struct Json<'s> {
    sink: &'s mut Sink,
    schema: SchemaRef,
    writer: Writer<Vec<u8>, LineDelimited>,
}

impl<'s> Json<'s> {
    pub fn new(schema: &SchemaRef, sink: &'s mut Sink) -> Self {
        let writer = WriterBuilder::new()
            .with_explicit_nulls(true)
            .with_encoder_factory(Arc::new(Encoders))
            .build(Vec::new());
        Json { sink, schema: unique_names(schema), writer }
    }
}

/// Of the values that Arrow's writer has no text for.
#[derive(Debug)]
struct Encoders;

impl EncoderFactory for Encoders {
    fn make_default_encoder<'a>(
        &self,
        _: &'a FieldRef,
        array: &'a dyn Array,
        _: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let encoder = thalweg_engine::far_times(array)?;
        Ok(encoder.map(|encoder| NullableEncoder::new(encoder, array.nulls().cloned())))
    }
}

impl ResultWriter for Json<'_> {
    fn batch(&mut self, batch: &RecordBatch) -> Outcome {
        self.writer.write(&renamed(batch, &self.schema)?)?;
        let buffer = self.writer.get_mut();
        self.sink.write_all(buffer)?;
        buffer.clear();
        Ok(())
    }

    fn finish(self: Box<Self>) -> Outcome {
        Ok(())
    }
}
