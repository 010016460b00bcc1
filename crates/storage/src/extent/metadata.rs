//! What an extent knows of itself: where each column of each chunk lies, and its statistics.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt64Array};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::root_as_message;
use arrow::ipc::writer::StreamWriter;
use serde::{Deserialize, Serialize};
use thalweg_base::{Error, Result};
use vortex::dtype::DType;

use super::codec::{ColumnTypes, EncodingIds, EncodingNames};
use crate::catalog::{FrameKind, damaged, frame, unframe};
use crate::hll::Sketch;
use crate::location::Location;
use crate::statistics::ChunkStatistics;

/// Of one extent. Opened once and kept with it.
#[derive(Debug)]
pub(crate) struct Metadata {
    /// How the encoding numbers in the segments are to be read.
    pub encodings: EncodingIds,
    pub columns: Vec<ExtentColumn>,
    chunk_rows: Vec<u32>,
    first_rows: Vec<u64>,
    rows: u64,
}

/// What is known about one column of an extent.
#[derive(Debug)]
pub(crate) struct ExtentColumn {
    /// The table's, not a position.
    pub id: u32,
    pub name: String,
    pub data_type: DataType,
    pub nullable: bool,
    pub dtype: DType,
    /// Per chunk.
    pub locations: Vec<Location>,
    pub statistics: Arc<ChunkStatistics>,
    /// The chunks folded into one.
    pub whole: Arc<ChunkStatistics>,
    pub sketch: Sketch,
    /// Where the digests of its chunks lie, if it has any.
    pub digests: Option<Location>,
}

/// What a writer knows of a column; see [`ExtentColumn`].
pub(crate) struct WrittenColumn {
    pub id: u32,
    pub locations: Vec<Location>,
    pub statistics: ChunkStatistics,
    pub sketch: Sketch,
    pub digests: Option<Location>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    encodings: EncodingNames,
    chunk_rows: Vec<u32>,
    columns: Vec<ColumnRecord>,
    /// An Arrow IPC stream without batches: of the columns.
    schema: Vec<u8>,
    /// An Arrow IPC stream of one batch: of each column min, max, and whether they are exact;
    /// one row per chunk.
    bounds: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct ColumnRecord {
    id: u32,
    locations: Vec<Location>,
    nulls: Vec<u64>,
    distincts: Vec<u64>,
    value_bytes: Vec<u64>,
    sketch: Sketch,
    digests: Option<Location>,
}

const BOUNDS_PER_COLUMN: usize = 4;

impl Metadata {
    /// The frame to be stored. `schema` has the types of the columns.
    pub fn encode(
        schema: &ArrowSchema,
        encodings: &EncodingIds,
        chunk_rows: &[u32],
        columns: &[WrittenColumn],
    ) -> Result<Vec<u8>> {
        let mut bounds: Vec<(Field, ArrayRef)> =
            Vec::with_capacity(columns.len() * BOUNDS_PER_COLUMN);
        let mut records = Vec::with_capacity(columns.len());
        for (i, column) in columns.iter().enumerate() {
            let statistics = &column.statistics;
            for (name, array) in [
                ("min", statistics.mins.clone()),
                ("max", statistics.maxs.clone()),
                ("min_exact", Arc::new(statistics.min_exact.clone()) as ArrayRef),
                ("max_exact", Arc::new(statistics.max_exact.clone())),
            ] {
                let name = format!("{name}_{i}");
                bounds.push((Field::new(name, array.data_type().clone(), true), array));
            }
            records.push(ColumnRecord {
                id: column.id,
                locations: column.locations.clone(),
                nulls: statistics.nulls.values().to_vec(),
                distincts: statistics.distincts.values().to_vec(),
                value_bytes: statistics.value_bytes.values().to_vec(),
                sketch: column.sketch.clone(),
                digests: column.digests,
            });
        }
        let (fields, arrays): (Vec<_>, Vec<_>) = bounds.into_iter().unzip();
        let bounds_schema = Arc::new(ArrowSchema::new(fields));
        let batch = RecordBatch::try_new(bounds_schema.clone(), arrays)
            .map_err(|e| Error::internal("the statistics of an extent make no batch").source(e))?;
        frame(
            FrameKind::Metadata,
            &Record {
                encodings: encodings.names(),
                chunk_rows: chunk_rows.to_vec(),
                columns: records,
                schema: to_ipc(schema, None)?,
                bounds: to_ipc(&bounds_schema, Some(&batch))?,
            },
        )
    }

    /// Checks what later code relies on: one location and one statistic per chunk and column, all
    /// within the file of `file_bytes`. `object` is its name for messages.
    pub fn decode(bytes: &[u8], file_bytes: u64, object: &str) -> Result<Metadata> {
        // Arrow meets what passes the checksum and yet is not sound with assertions.
        let decode = AssertUnwindSafe(|| Metadata::decode_sound(bytes, file_bytes, object));
        catch_unwind(decode).unwrap_or_else(|_| Err(damaged(object, "its content is malformed")))
    }

    fn decode_sound(bytes: &[u8], file_bytes: u64, object: &str) -> Result<Metadata> {
        let record: Record = unframe(FrameKind::Metadata, bytes, object)?;
        let fault = |why: &str| damaged(object, why);
        let arrow = |e: ArrowError| fault(&e.to_string());
        let schema = schema_from_ipc(&record.schema).map_err(arrow)?;
        let bounds = batch_from_ipc(&record.bounds).map_err(arrow)?;
        let types = ColumnTypes::of(&schema)?;
        if record.columns.len() != schema.fields().len()
            || bounds.num_columns() != record.columns.len() * BOUNDS_PER_COLUMN
        {
            return Err(fault("columns are missing"));
        }
        let chunks = record.chunk_rows.len();
        let rows = UInt64Array::from_iter_values(record.chunk_rows.iter().map(|&n| u64::from(n)));
        let mut columns = Vec::with_capacity(record.columns.len());
        for (i, (column, field)) in record.columns.into_iter().zip(schema.fields()).enumerate() {
            let bound = |k: usize| bounds.column(i * BOUNDS_PER_COLUMN + k);
            let flags = |k: usize| {
                bound(k).as_boolean_opt().cloned().ok_or_else(|| fault("a flag is not Boolean"))
            };
            let outside = |l: &Location| {
                l.offset.checked_add(u64::from(l.bytes)).is_none_or(|end| end > file_bytes)
            };
            if column.locations.iter().chain(&column.digests).any(outside) {
                return Err(fault("a chunk lies outside the file"));
            }
            let statistics = ChunkStatistics {
                mins: bound(0).clone(),
                maxs: bound(1).clone(),
                min_exact: flags(2)?,
                max_exact: flags(3)?,
                rows: rows.clone(),
                nulls: column.nulls.into(),
                distincts: column.distincts.into(),
                stored_bytes: UInt64Array::from_iter_values(
                    column.locations.iter().map(|l| u64::from(l.bytes)),
                ),
                value_bytes: column.value_bytes.into(),
            };
            let lengths = [
                column.locations.len(),
                bounds.num_rows(),
                statistics.nulls.len(),
                statistics.distincts.len(),
                statistics.value_bytes.len(),
            ];
            if lengths.iter().any(|&n| n != chunks) {
                return Err(fault(&format!("column {:?} misses chunks", field.name())));
            }
            if [&statistics.mins, &statistics.maxs]
                .iter()
                .any(|b| b.data_type() != field.data_type())
            {
                return Err(fault(&format!(
                    "bounds of column {:?} are not its type",
                    field.name()
                )));
            }
            column.sketch.check().map_err(|e| e.context(object))?;
            let whole = statistics.folded(column.sketch.estimate(), field.data_type());
            columns.push(ExtentColumn {
                id: column.id,
                name: field.name().clone(),
                data_type: field.data_type().clone(),
                nullable: field.is_nullable(),
                dtype: types.column(i).clone(),
                locations: column.locations,
                statistics: Arc::new(statistics),
                whole: Arc::new(whole),
                sketch: column.sketch,
                digests: column.digests,
            });
        }
        let mut rows = 0u64;
        let first_rows = record
            .chunk_rows
            .iter()
            .map(|&n| {
                let first = rows;
                rows += u64::from(n);
                first
            })
            .collect();
        Ok(Metadata {
            encodings: (&record.encodings).into(),
            columns,
            chunk_rows: record.chunk_rows,
            first_rows,
            rows,
        })
    }

    pub fn chunks(&self) -> usize {
        self.chunk_rows.len()
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn chunk_rows(&self, chunk: usize) -> usize {
        self.chunk_rows[chunk] as usize
    }

    /// Of the extent, the number of rows before this chunk.
    pub fn first_row(&self, chunk: usize) -> u64 {
        self.first_rows[chunk]
    }

    /// The chunk that has a row of the extent.
    pub fn chunk_of(&self, row: u64) -> usize {
        self.first_rows.partition_point(|first| *first <= row) - 1
    }

    /// Positions in the extent of a chunk's rows.
    pub fn rows_of(&self, chunk: usize) -> Range<u32> {
        let first = self.first_rows[chunk] as u32;
        first..first + self.chunk_rows[chunk]
    }

    /// Where a column of the table is among `columns`.
    pub fn place(&self, id: u32) -> Option<usize> {
        self.columns.iter().position(|c| c.id == id)
    }
}

pub(crate) fn to_ipc(schema: &ArrowSchema, batch: Option<&RecordBatch>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let write = |bytes: &mut Vec<u8>| {
        let mut writer = StreamWriter::try_new(bytes, schema)?;
        batch.map_or(Ok(()), |batch| writer.write(batch))?;
        writer.finish()
    };
    write(&mut bytes)
        .map_err(|e| Error::internal("a catalog record cannot be written").source(e))?;
    Ok(bytes)
}

/// Not by Arrow's `StreamReader`: it reserves what a message says that it has, which may be more
/// than there is in the world.
fn ipc(bytes: &[u8]) -> Result<(Option<Arc<ArrowSchema>>, Option<RecordBatch>), ArrowError> {
    if has_compressed(bytes)? {
        return Err(ArrowError::IpcError("a compressed buffer, which nobody writes".to_owned()));
    }
    let mut decoder = StreamDecoder::new();
    let batch = decoder.decode(&mut Buffer::from(bytes))?;
    Ok((decoder.schema(), batch))
}

/// Whether a message of the stream has compressed buffers: of those Arrow reserves what they say
/// that they become.
fn has_compressed(stream: &[u8]) -> Result<bool, ArrowError> {
    let mut rest = stream;
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        // Newer writers put a marker before the length.
        let (length, after) = match (*length, after.split_first_chunk::<4>()) {
            (CONTINUATION, Some((length, after))) => (*length, after),
            (length, _) => (length, after),
        };
        let Some((header, body)) = after.split_at_checked(u32::from_le_bytes(length) as usize)
        else {
            break;
        };
        if header.is_empty() {
            break;
        }
        let message = root_as_message(header).map_err(|e| ArrowError::IpcError(e.to_string()))?;
        let dictionary = message.header_as_dictionary_batch().and_then(|d| d.data());
        let batch = message.header_as_record_batch().or(dictionary);
        if batch.is_some_and(|batch| batch.compression().is_some()) {
            return Ok(true);
        }
        let Ok(length) = usize::try_from(message.bodyLength()) else { break };
        let Some((_, next)) = body.split_at_checked(length) else { break };
        rest = next;
    }
    Ok(false)
}

const CONTINUATION: [u8; 4] = [0xFF; 4];

pub(crate) fn schema_from_ipc(bytes: &[u8]) -> Result<Arc<ArrowSchema>, ArrowError> {
    ipc(bytes)?.0.ok_or_else(|| ArrowError::IpcError("no schema".to_owned()))
}

pub(crate) fn batch_from_ipc(bytes: &[u8]) -> Result<RecordBatch, ArrowError> {
    ipc(bytes)?.1.ok_or_else(|| ArrowError::IpcError("no batch".to_owned()))
}
