//! CSV files as `COPY … TO` writes them, so that what is written is read back the same.
//!
//! DataFusion's writer writes the empty string and NULL alike, and of `ESCAPE` only what its reader
//! knows. Here NULL is the NULL text (nothing, unless `NULL '…'` says otherwise) without quotes, and
//! a value that could be taken for it, or for anything but itself, is quoted. Files are read by
//! the reader of loads, and by DataFusion where it cannot (see `files.rs`).

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::util::display::{ArrayFormatter, DurationFormat, FormatOptions};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::config::CsvOptions;
use datafusion::common::parsers::CsvQuoteStyle;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{GetExt, Result, Statistics, exec_datafusion_err, not_impl_err};
use datafusion::datasource::file_format::csv::{CsvFormat, CsvFormatFactory};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
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

/// Makes [`CsvFile`]s; stands in the place of DataFusion's.
#[derive(Debug, Default)]
pub struct CsvFiles(CsvFormatFactory);

impl GetExt for CsvFiles {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }
}

impl FileFormatFactory for CsvFiles {
    fn create(
        &self,
        state: &dyn Session,
        options: &HashMap<String, String>,
    ) -> Result<Arc<dyn FileFormat>> {
        let made = self.0.create(state, options)?;
        let options = made.downcast_ref::<CsvFormat>().map(|csv| csv.options().clone());
        let csv = CsvFormat::default().with_options(options.unwrap_or_default());
        Ok(Arc::new(CsvFile(csv)))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(CsvFile(CsvFormat::default()))
    }
}

/// Reads as DataFusion does, and writes as this page says.
#[derive(Debug)]
pub struct CsvFile(CsvFormat);

#[async_trait]
impl FileFormat for CsvFile {
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
        state: &dyn Session,
        config: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if config.insert_op != InsertOp::Append {
            return not_impl_err!("Overwrites are not implemented yet for CSV");
        }
        let mut options = self.0.options().clone();
        let header = options.has_header.unwrap_or(state.config_options().catalog.has_header);
        options.has_header = Some(header);
        let sink = CsvFileSink { config, options };
        Ok(Arc::new(DataSinkExec::new(input, Arc::new(sink), order)))
    }

    fn file_source(&self, schema: TableSchema) -> Arc<dyn FileSource> {
        self.0.file_source(schema)
    }
}

struct CsvFileSink {
    config: FileSinkConfig,
    options: CsvOptions,
}

impl fmt::Debug for CsvFileSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CsvSink")
    }
}

impl DisplayAs for CsvFileSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CsvSink: to={}", self.config.original_url)
    }
}

#[async_trait]
impl FileSink for CsvFileSink {
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
            Arc::new(Lines::new(&self.options)),
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
impl DataSink for CsvFileSink {
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

/// Batches into lines.
struct Lines {
    header: bool,
    delimiter: u8,
    quote: u8,
    escape: u8,
    null: String,
    style: CsvQuoteStyle,
    /// Of each byte whether a value with it is quoted.
    special: [bool; 256],
    /// Blanks at either end that are left out, as asked.
    trims: (bool, bool),
    date: Option<String>,
    datetime: Option<String>,
    timestamp: Option<String>,
    timestamp_tz: Option<String>,
    time: Option<String>,
}

impl Lines {
    fn new(options: &CsvOptions) -> Lines {
        let mut special = [false; 256];
        // Those that a reader may find out to be the delimiter, too, if nobody says which it is.
        for byte in *b"\n\r,;|\t" {
            special[usize::from(byte)] = true;
        }
        for byte in [options.delimiter, options.quote] {
            special[usize::from(byte)] = true;
        }
        Lines {
            header: options.has_header.unwrap_or(true),
            delimiter: options.delimiter,
            quote: options.quote,
            escape: options.escape.unwrap_or(options.quote),
            null: options.null_value.clone().unwrap_or_default(),
            style: options.quote_style,
            special,
            trims: (
                options.ignore_leading_whitespace.unwrap_or(false),
                options.ignore_trailing_whitespace.unwrap_or(false),
            ),
            date: options.date_format.clone(),
            datetime: options.datetime_format.clone(),
            // With a blank between day and time, as spreadsheets know it.
            timestamp: options.timestamp_format.clone().or(Some("%Y-%m-%d %H:%M:%S%.f".into())),
            timestamp_tz: options
                .timestamp_tz_format
                .clone()
                .or(Some("%Y-%m-%d %H:%M:%S%.f%:z".into())),
            time: options.time_format.clone(),
        }
    }

    fn formats(&self) -> FormatOptions<'_> {
        FormatOptions::new()
            .with_display_error(false)
            .with_date_format(self.date.as_deref())
            .with_datetime_format(self.datetime.as_deref())
            .with_timestamp_format(self.timestamp.as_deref())
            .with_timestamp_tz_format(self.timestamp_tz.as_deref())
            .with_time_format(self.time.as_deref())
            .with_duration_format(DurationFormat::Pretty)
    }

    /// Appends a value. Readers tell it from NULL, and from more or fewer fields.
    fn value(&self, value: &str, is_text: bool, line: &mut Vec<u8>) {
        let value = if self.trims.0 { value.trim_start() } else { value };
        let value = if self.trims.1 { value.trim_end() } else { value };
        let quoted = match self.style {
            CsvQuoteStyle::Always => true,
            CsvQuoteStyle::NonNumeric if is_text => true,
            CsvQuoteStyle::Never => false,
            _ => {
                value.is_empty()
                    || value == self.null
                    || value.bytes().any(|b| self.special[usize::from(b)])
                    // At the beginning of a file it would be taken for its mark.
                    || value.starts_with('\u{feff}')
            }
        };
        if !quoted {
            return line.extend_from_slice(value.as_bytes());
        }
        line.push(self.quote);
        for byte in value.bytes() {
            if byte == self.quote || byte == self.escape {
                line.push(self.escape);
            }
            line.push(byte);
        }
        line.push(self.quote);
    }
}

impl BatchSerializer for Lines {
    fn serialize(&self, batch: RecordBatch, initial: bool) -> Result<bytes::Bytes> {
        let mut lines = Vec::with_capacity(4096);
        if self.header && initial {
            for (i, field) in batch.schema_ref().fields().iter().enumerate() {
                if i > 0 {
                    lines.push(self.delimiter);
                }
                self.value(field.name(), true, &mut lines);
            }
            lines.push(b'\n');
        }
        let formats = self.formats();
        let columns = batch.columns().iter().map(|array| Cells::new(array, &formats));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let mut text = String::new();
        for row in 0..batch.num_rows() {
            for (i, column) in columns.iter().enumerate() {
                if i > 0 {
                    lines.push(self.delimiter);
                }
                match column.get(row, &mut text)? {
                    Some(value) => self.value(value, column.is_text, &mut lines),
                    None => lines.extend_from_slice(self.null.as_bytes()),
                }
            }
            lines.push(b'\n');
        }
        Ok(lines.into())
    }
}

/// The values of a column as text.
struct Cells<'a> {
    array: &'a ArrayRef,
    nulls: Option<arrow::buffer::NullBuffer>,
    is_text: bool,
    formatter: Option<ArrayFormatter<'a>>,
}

impl<'a> Cells<'a> {
    fn new(array: &'a ArrayRef, formats: &FormatOptions<'a>) -> Result<Cells<'a>> {
        let is_text =
            matches!(array.data_type(), DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8);
        let is_own = is_text || binary(array, 0).is_some() || array.is_empty();
        let formatter = match is_own {
            true => None,
            false => Some(ArrayFormatter::try_new(array.as_ref(), formats)?),
        };
        Ok(Cells { array, nulls: array.logical_nulls(), is_text, formatter })
    }

    /// `None` is NULL.
    fn get<'t>(&'t self, row: usize, text: &'t mut String) -> Result<Option<&'t str>> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return Ok(None);
        }
        if let Some(formatter) = &self.formatter {
            text.clear();
            formatter.value(row).write(text).map_err(|e| {
                exec_datafusion_err!("a value of {} cannot be written: {e}", self.array.data_type())
            })?;
            return Ok(Some(text));
        }
        match self.array.data_type() {
            DataType::Utf8 => Ok(Some(self.array.as_string::<i32>().value(row))),
            DataType::LargeUtf8 => Ok(Some(self.array.as_string::<i64>().value(row))),
            DataType::Utf8View => Ok(Some(self.array.as_string_view().value(row))),
            _ => {
                // As PostgreSQL writes bytes, and `load` reads them.
                text.clear();
                text.push_str("\\x");
                for byte in binary(self.array, row).unwrap_or_default() {
                    let _ = write!(text, "{byte:02x}");
                }
                Ok(Some(text))
            }
        }
    }
}

/// Bytes of a row of a binary column that has it.
fn binary(array: &ArrayRef, row: usize) -> Option<&[u8]> {
    if row >= array.len() {
        return None;
    }
    match array.data_type() {
        DataType::Binary => Some(array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => Some(array.as_binary::<i64>().value(row)),
        DataType::BinaryView => Some(array.as_binary_view().value(row)),
        DataType::FixedSizeBinary(_) => Some(array.as_fixed_size_binary().value(row)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
