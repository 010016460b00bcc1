//! JSON files as `COPY … TO` writes them, so that what is written is read back the same.
//!
//! DataFusion's writer leaves out what is NULL, so that a column without a value is lost; writes NaN and
//! the infinities as null, so that they are lost, and bytes so that they are texts of digits. Here every
//! row has every column, what is no number of JSON's is a text, and bytes are as PostgreSQL writes them.
//!
//! With `ARRAY true` the rows are the items of one array: `copy/write.rs` puts the brackets around them.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::sync::Arc;

use crate::json_times::far_times;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, FieldRef, Float16Type, Float32Type, Float64Type, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::writer::{
    Encoder, EncoderFactory, EncoderOptions, JsonFormat as Layout, NullableEncoder, WriterBuilder,
};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::config::JsonOptions;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{GetExt, Result, Statistics, not_impl_err};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::{JsonFormat, JsonFormatFactory};
use datafusion::datasource::file_format::write::BatchSerializer;
use datafusion::datasource::file_format::write::demux::DemuxedStreamReceiver;
use datafusion::datasource::file_format::write::orchestration::spawn_writer_tasks_and_join;
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSink, FileSinkConfig, FileSource};
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::physical_expr_common::sort_expr::LexRequirement;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};

/// What stands before each item of an array.
pub const BEFORE_ITEM: &[u8] = b",\n";

/// Makes [`JsonFile`]s; stands in the place of DataFusion's.
#[derive(Debug, Default)]
pub struct JsonFiles(JsonFormatFactory);

impl GetExt for JsonFiles {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }
}

impl FileFormatFactory for JsonFiles {
    fn create(
        &self,
        state: &dyn Session,
        options: &HashMap<String, String>,
    ) -> Result<Arc<dyn FileFormat>> {
        let made = self.0.create(state, options)?;
        let options = made.downcast_ref::<JsonFormat>().map(|json| json.options().clone());
        Ok(Arc::new(JsonFile(JsonFormat::default().with_options(options.unwrap_or_default()))))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(JsonFile(JsonFormat::default()))
    }
}

/// Reads as DataFusion does, and writes as this page says.
#[derive(Debug)]
pub struct JsonFile(JsonFormat);

#[async_trait]
impl FileFormat for JsonFile {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        self.0.get_ext_with_compression(compression)
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        self.0.compression_type()
    }

    async fn infer_schema(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        self.0.infer_schema(state, store, objects).await
    }

    async fn infer_stats(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Statistics> {
        self.0.infer_stats(state, store, schema, object).await
    }

    async fn create_physical_plan(
        &self,
        state: &dyn Session,
        config: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.create_physical_plan(state, config).await
    }

    async fn create_writer_physical_plan(
        &self,
        input: Arc<dyn ExecutionPlan>,
        _: &dyn Session,
        config: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if config.insert_op != InsertOp::Append {
            return not_impl_err!("Overwrites are not implemented yet for JSON");
        }
        let sink = JsonFileSink { config, options: self.0.options().clone() };
        Ok(Arc::new(DataSinkExec::new(input, Arc::new(sink), order)))
    }

    fn file_source(&self, schema: TableSchema) -> Arc<dyn FileSource> {
        self.0.file_source(schema)
    }
}

struct JsonFileSink {
    config: FileSinkConfig,
    options: JsonOptions,
}

impl fmt::Debug for JsonFileSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JsonSink")
    }
}

impl DisplayAs for JsonFileSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JsonSink: to={}", self.config.original_url)
    }
}

#[async_trait]
impl FileSink for JsonFileSink {
    fn config(&self) -> &FileSinkConfig {
        &self.config
    }

    async fn spawn_writer_tasks_and_join(
        &self,
        context: &Arc<TaskContext>,
        demux: SpawnedTask<Result<()>>,
        files: DemuxedStreamReceiver,
        store: Arc<dyn ObjectStore>,
    ) -> Result<u64> {
        spawn_writer_tasks_and_join(
            context,
            Arc::new(Rows { items: !self.options.newline_delimited }),
            self.options.compression.into(),
            self.options.compression_level,
            store,
            demux,
            files,
        )
        .await
    }
}

#[async_trait]
impl DataSink for JsonFileSink {
    fn schema(&self) -> &SchemaRef {
        self.config.output_schema()
    }

    async fn write_all(
        &self,
        rows: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
    ) -> Result<u64> {
        FileSink::write_all(self, rows, context).await
    }
}

/// Batches into objects.
struct Rows {
    /// Of an array, and not each on its line.
    items: bool,
}

impl BatchSerializer for Rows {
    fn serialize(&self, batch: RecordBatch, _: bool) -> Result<bytes::Bytes> {
        let builder =
            WriterBuilder::new().with_explicit_nulls(true).with_encoder_factory(Arc::new(Encoders));
        let mut bytes = Vec::with_capacity(4096);
        if self.items {
            builder.build::<_, Items>(&mut bytes).write(&batch)?;
        } else {
            builder.build::<_, Lines>(&mut bytes).write(&batch)?;
        }
        Ok(bytes.into())
    }
}

#[derive(Debug, Default)]
struct Lines;

impl Layout for Lines {
    fn end_row<W: std::io::Write>(&self, writer: &mut W) -> Result<(), ArrowError> {
        writer.write_all(b"\n")?;
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Items;

impl Layout for Items {
    fn start_row<W: std::io::Write>(&self, writer: &mut W, _: bool) -> Result<(), ArrowError> {
        writer.write_all(BEFORE_ITEM)?;
        Ok(())
    }
}

/// Of the types that DataFusion's writer loses something of.
#[derive(Debug)]
struct Encoders;

impl EncoderFactory for Encoders {
    fn make_default_encoder<'a>(
        &self,
        _: &'a FieldRef,
        array: &'a dyn Array,
        _: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let encoder: Box<dyn Encoder + 'a> = match array.data_type() {
            DataType::Float16 | DataType::Float32 | DataType::Float64 => Box::new(Floats(array)),
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => Box::new(Bytes(array)),
            _ => match far_times(array)? {
                Some(encoder) => encoder,
                None => return Ok(None),
            },
        };
        Ok(Some(NullableEncoder::new(encoder, array.nulls().cloned())))
    }
}

struct Floats<'a>(&'a dyn Array);

impl Encoder for Floats<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let text = match self.0.data_type() {
            DataType::Float64 => number(self.0.as_primitive::<Float64Type>().value(row)),
            DataType::Float32 => number(self.0.as_primitive::<Float32Type>().value(row)),
            _ => number(f32::from(self.0.as_primitive::<Float16Type>().value(row))),
        };
        out.extend_from_slice(text.as_bytes());
    }
}

/// With the fewest digits that mean just this value.
fn number<F: Into<f64> + fmt::Debug + Copy>(value: F) -> String {
    let wide: f64 = value.into();
    if wide.is_finite() {
        format!("{value:?}")
    } else if wide.is_nan() {
        "\"NaN\"".into()
    } else if wide > 0.0 {
        "\"Infinity\"".into()
    } else {
        "\"-Infinity\"".into()
    }
}

struct Bytes<'a>(&'a dyn Array);

impl Encoder for Bytes<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let bytes = match self.0.data_type() {
            DataType::Binary => self.0.as_binary::<i32>().value(row),
            DataType::LargeBinary => self.0.as_binary::<i64>().value(row),
            DataType::BinaryView => self.0.as_binary_view().value(row),
            _ => self.0.as_fixed_size_binary().value(row),
        };
        // A backslash is written as two in JSON.
        let mut text = String::from("\"\\\\x");
        for byte in bytes {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('"');
        out.extend_from_slice(text.as_bytes());
    }
}
