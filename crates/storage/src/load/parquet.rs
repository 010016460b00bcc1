//! Parquet files, one row group at a time.
//!
//! The bytes of a row group's columns are fetched first, so that decoding does no I/O.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::parquet::arrow::ProjectionMask;
use ::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use ::parquet::basic::Type as PhysicalType;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::RowGroupMetaData;
use ::parquet::file::reader::{ChunkReader, Length};
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use bytes::Bytes;
use bytes::buf::{Buf, Reader as BytesReader};
use thalweg_base::limits::BATCH_ROWS;
use thalweg_base::{Error, Result};

use super::conform::{conform, declared_layout};
use super::decoded::check_rows;
use super::gate::Permit;
use super::input::{cannot, damaged, guarded};
use super::layout::{Columns, Layout};
use super::rejects::{Faults, Position};
use super::source::InputBytes;

/// An open Parquet file and how its columns meet the table's.
pub(super) struct ParquetSource {
    path: Arc<PathBuf>,
    index: usize,
    file: InputBytes,
    metadata: ArrowReaderMetadata,
    layout: Layout,
}

/// Reads the footer of a file. Text comes as views, which is what tables hold: it saves a copy. Timestamps
/// of 96 bits come in microseconds, as the nanoseconds of their years need not fit into 64.
pub(super) fn metadata(path: &Path, file: &InputBytes) -> Result<ArrowReaderMetadata> {
    let plain = guarded(path, || ArrowReaderMetadata::load(file, ArrowReaderOptions::new()))?;
    check_rows(path, plain.metadata())?;
    let of_file = plain.parquet_schema();
    let is_int96 = |root: usize| {
        let leaf =
            (0..of_file.num_columns()).find(|&leaf| of_file.get_column_root_idx(leaf) == root);
        leaf.is_some_and(|leaf| of_file.column(leaf).physical_type() == PhysicalType::INT96)
    };
    let fields =
        plain.schema().fields().iter().enumerate().map(|(root, field)| match field.data_type() {
            DataType::Timestamp(_, zone) if is_int96(root) => {
                let data_type = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
                field.as_ref().clone().with_data_type(data_type)
            }
            _ => as_view(field),
        });
    let fields: Vec<Field> = fields.collect();
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

/// Of one at an address it is asked how long it is: what is wrong with it shows now.
pub(super) fn open(path: &Path) -> Result<InputBytes> {
    let file = InputBytes::open(path)?;
    file.length().map_err(|e| cannot("open", path, e))?;
    Ok(file)
}

impl ParquetSource {
    /// `index` is the file's place among those of the input.
    pub(super) fn open(
        path: &Arc<PathBuf>,
        index: usize,
        columns: &Arc<Columns>,
    ) -> Result<ParquetSource> {
        let file = open(path)?;
        let metadata = metadata(path, &file)?;
        let layout = declared_layout(path, metadata.schema(), columns)?;
        Ok(ParquetSource { path: Arc::clone(path), index, file, metadata, layout })
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn row_groups(&self) -> usize {
        self.metadata.metadata().num_row_groups()
    }

    /// Where a row group begins.
    pub(super) fn position(&self, row_group: usize) -> Position {
        let before = self.metadata.metadata().row_groups().iter().take(row_group);
        let rows: u64 = before.map(|group| group.num_rows().max(0) as u64).sum();
        Position { file: self.index, line: rows + 1 }
    }

    /// The bytes of a row group that are read at once, as far as the footer is right.
    pub(super) fn bytes(&self, row_group: usize) -> usize {
        let group = self.metadata.metadata().row_group(row_group);
        let bytes = self.layout.targets.iter().map(|&(input, _)| self.root_bytes(group, input));
        bytes.sum::<u64>() as usize
    }

    fn root_bytes(&self, group: &RowGroupMetaData, root: usize) -> u64 {
        let schema = self.metadata.parquet_schema();
        let leaves = (0..group.num_columns()).filter(|&l| schema.get_column_root_idx(l) == root);
        leaves.map(|leaf| group.column(leaf).compressed_size().max(0) as u64).sum()
    }

    /// Reads the bytes of one row group.
    pub(super) fn fetch(
        source: Arc<ParquetSource>,
        row_group: usize,
        faults: Arc<Faults>,
        permit: Permit,
    ) -> Result<ParquetBatches> {
        let metadata = source.metadata.metadata();
        let roots = source.layout.targets.iter().map(|&(input, _)| input);
        let mask = ProjectionMask::roots(source.metadata.parquet_schema(), roots);
        let chunks =
            Chunks::read(&source.path, &source.file, metadata.row_group(row_group), &mask)?;
        let bytes = chunks.parts.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let build = || {
            ParquetRecordBatchReaderBuilder::new_with_metadata(chunks, source.metadata.clone())
                .with_row_groups(vec![row_group])
                .with_projection(mask)
                .with_batch_size(BATCH_ROWS)
                .build()
        };
        let reader = guarded(&source.path, build).map_err(|e| in_row_group(e, row_group))?;
        let at = source.position(row_group);
        Ok(ParquetBatches { source, faults, row_group, reader, bytes, at, _permit: permit })
    }
}

fn in_row_group(error: Error, row_group: usize) -> Error {
    error.detail(format!("in row group {row_group}"))
}

/// The batches of one row group.
pub(super) struct ParquetBatches {
    source: Arc<ParquetSource>,
    faults: Arc<Faults>,
    row_group: usize,
    reader: ParquetRecordBatchReader,
    bytes: u64,
    /// The next row.
    at: Position,
    _permit: Permit,
}

impl ParquetBatches {
    /// The place of the file among those of the input.
    pub(super) fn file(&self) -> usize {
        self.at.file
    }

    /// Bytes that the row group takes in the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.faults.settled(self.at) {
            return Ok(None);
        }
        let batch = match guarded(&self.source.path, || self.reader.next().transpose()) {
            Ok(Some(batch)) => batch,
            Ok(None) => return Ok(None),
            Err(e) => {
                self.faults.fatal(self.at, in_row_group(e, self.row_group));
                return Ok(None);
            }
        };
        let at = self.at;
        self.at.line += batch.num_rows() as u64;
        conform(&batch, &self.source.layout, &self.source.path, at, &self.faults).map(Some)
    }
}

/// The column chunks of one row group, in memory.
struct Chunks {
    file_bytes: u64,
    /// Offset in the file and content, ascending; neighbours are read as one.
    parts: Vec<(u64, Bytes)>,
}

impl Chunks {
    fn read(
        path: &Path,
        file: &InputBytes,
        group: &RowGroupMetaData,
        mask: &ProjectionMask,
    ) -> Result<Chunks> {
        let file_bytes = file.length().map_err(|e| cannot("read", path, e))?;
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let wanted =
            group.columns().iter().enumerate().filter(|(leaf, _)| mask.leaf_included(*leaf));
        for (_, column) in wanted {
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
