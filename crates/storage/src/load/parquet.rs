//! Parquet files, one row group at a time.
//!
//! The bytes of a row group's columns are fetched first, so that decoding does no I/O.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::RowGroupMetaData;
use ::parquet::file::reader::{ChunkReader, Length};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use bytes::buf::{Buf, Reader as BytesReader};
use thalweg_base::limits::BATCH_ROWS;
use thalweg_base::{Error, Result, text};

use super::input::{cannot, damaged, guarded, shown};
use super::layout::{Layout, refuse_null, sql_type};

/// An open Parquet file and how its columns meet the table's.
pub(super) struct ParquetSource {
    path: PathBuf,
    file: File,
    metadata: ArrowReaderMetadata,
    layout: Layout,
}

/// Reads the footer of a file. Text comes as views, which is what tables hold: it saves a copy.
pub(super) fn metadata(path: &Path, file: &File) -> Result<ArrowReaderMetadata> {
    let plain = guarded(path, || ArrowReaderMetadata::load(file, ArrowReaderOptions::new()))?;
    let fields: Vec<Field> = plain.schema().fields().iter().map(|f| as_view(f)).collect();
    let schema = Schema::new_with_metadata(fields, plain.schema().metadata().clone());
    let options = ArrowReaderOptions::new().with_schema(Arc::new(schema));
    guarded(path, || ArrowReaderMetadata::try_new(Arc::clone(plain.metadata()), options))
}

fn as_view(field: &Field) -> Field {
    let data_type = match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        other => other.clone(),
    };
    field.clone().with_data_type(data_type)
}

pub(super) fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|e| cannot("open", path, e))
}

impl ParquetSource {
    pub(super) fn open(path: &Path, schema: &SchemaRef) -> Result<ParquetSource> {
        let file = open(path)?;
        let metadata = metadata(path, &file)?;
        let names: Vec<String> =
            metadata.schema().fields().iter().map(|f| f.name().clone()).collect();
        let layout = Layout::by_name(path, &names, schema, None)?;
        Ok(ParquetSource { path: path.to_owned(), file, metadata, layout })
    }

    pub(super) fn row_groups(&self) -> usize {
        self.metadata.metadata().num_row_groups()
    }

    /// Reads the bytes of one row group.
    pub(super) fn fetch(source: Arc<ParquetSource>, row_group: usize) -> Result<ParquetBatches> {
        let chunks = Chunks::read(
            &source.path,
            &source.file,
            source.metadata.metadata().row_group(row_group),
        )?;
        let bytes = chunks.parts.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let build = || {
            ParquetRecordBatchReaderBuilder::new_with_metadata(chunks, source.metadata.clone())
                .with_row_groups(vec![row_group])
                .with_batch_size(BATCH_ROWS)
                .build()
        };
        let reader = guarded(&source.path, build).map_err(|e| in_row_group(e, row_group))?;
        Ok(ParquetBatches { source, row_group, reader, bytes })
    }
}

fn in_row_group(error: Error, row_group: usize) -> Error {
    error.detail(format!("in row group {row_group}"))
}

/// The batches of one row group.
pub(super) struct ParquetBatches {
    source: Arc<ParquetSource>,
    row_group: usize,
    reader: ParquetRecordBatchReader,
    bytes: u64,
}

impl ParquetBatches {
    /// Bytes that the row group takes in the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let next = guarded(&self.source.path, || self.reader.next().transpose());
        let Some(batch) = next.map_err(|e| in_row_group(e, self.row_group))? else {
            return Ok(None);
        };
        let place = || format!("{}, row group {}", shown(&self.source.path), self.row_group);
        conform(&batch, &self.source.layout, &place).map(Some)
    }
}

/// A batch of the file's schema as one of the table's: reordered, cast, missing columns NULL.
pub(super) fn conform(
    batch: &RecordBatch,
    layout: &Layout,
    place: &dyn Fn() -> String,
) -> Result<RecordBatch> {
    let schema = &layout.schema;
    let mut arrays: Vec<Option<ArrayRef>> = vec![None; schema.fields().len()];
    for (array, &target) in batch.columns().iter().zip(&layout.targets) {
        let field = schema.field(target);
        let array = if array.data_type() == field.data_type() {
            Arc::clone(array)
        } else {
            // Not `safe`: that would turn what does not fit into NULL.
            let options = CastOptions { safe: false, ..CastOptions::default() };
            cast_with_options(array, field.data_type(), &options).map_err(|e| {
                Error::user(format!(
                    "{}, column {}: {} cannot become {}: {e}",
                    place(),
                    text::quoted(field.name()),
                    sql_type(array.data_type()),
                    sql_type(field.data_type())
                ))
                .hint("declare the column with a type that holds every value of the file")
            })?
        };
        refuse_null(field, array.logical_null_count(), place)?;
        arrays[target] = Some(array);
    }
    let arrays = arrays
        .into_iter()
        .zip(schema.fields())
        .map(|(array, field)| {
            array.unwrap_or_else(|| new_null_array(field.data_type(), batch.num_rows()))
        })
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema.clone(), arrays, &options)
        .map_err(|e| Error::internal(format!("a batch does not fit its schema: {e}")))
}

/// The column chunks of one row group, in memory.
struct Chunks {
    file_bytes: u64,
    /// Offset in the file and content, ascending; neighbours are read as one.
    parts: Vec<(u64, Bytes)>,
}

impl Chunks {
    fn read(path: &Path, file: &File, group: &RowGroupMetaData) -> Result<Chunks> {
        let file_bytes = file.metadata().map_err(|e| cannot("read", path, e))?.len();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for column in group.columns() {
            // A damaged footer can claim anything; `byte_range` panics on negative numbers.
            let start = column
                .dictionary_page_offset()
                .filter(|&at| at > 0)
                .unwrap_or(column.data_page_offset());
            let range = u64::try_from(start).ok().zip(u64::try_from(column.compressed_size()).ok());
            let (start, length) = range
                .filter(|&(start, length)| {
                    start.checked_add(length).is_some_and(|end| end <= file_bytes)
                })
                .ok_or_else(|| damaged(path, "a column lies beyond the end of the file"))?;
            ranges.push((start, start + length));
        }
        ranges.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, end) in ranges {
            match merged.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        let mut parts = Vec::with_capacity(merged.len());
        for (start, end) in merged {
            let mut bytes = vec![0; (end - start) as usize];
            file.read_exact_at(&mut bytes, start).map_err(|e| cannot("read", path, e))?;
            parts.push((start, bytes.into()));
        }
        Ok(Chunks { file_bytes, parts })
    }

    fn from(&self, start: u64) -> Result<Bytes, ParquetError> {
        let part = self
            .parts
            .partition_point(|(at, _)| *at <= start)
            .checked_sub(1)
            .map(|i| &self.parts[i]);
        part.and_then(|(at, bytes)| {
            let skip = usize::try_from(start - at).ok().filter(|&skip| skip <= bytes.len())?;
            Some(bytes.slice(skip..))
        })
        .ok_or_else(|| ParquetError::EOF(format!("offset {start} is outside the row group")))
    }
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.file_bytes
    }
}

impl ChunkReader for Chunks {
    type T = BytesReader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let bytes = self.from(start)?;
        if length > bytes.len() {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at offset {start} leave the row group"
            )));
        }
        Ok(bytes.slice(..length))
    }
}
