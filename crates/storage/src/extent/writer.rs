//! Rows in, extents out, in steps of bounded work.
//!
//! `push` cuts rows into chunks (sorting them first where the table is clustered: see [`sort`]);
//! `step` compresses one column of one chunk and appends it to the file. Nothing runs in the
//! background: CPU parallelism comes from many writers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{concat, take_record_batch};
use arrow::datatypes::{DataType, SchemaRef};
use parking_lot::RwLock;
use thalweg_base::limits::{CHUNK_ROWS_MAX, CLUSTER_SORT_BYTES_MAX, EXTENT_BYTES_TARGET};
use thalweg_base::text::quoted;
use thalweg_base::{Error, ExtentId, Result};

use super::codec::{ColumnTypes, Encoder};
use super::metadata::{Metadata, WrittenColumn};
use super::sort::{Order, Run};
use super::{Alive, Extent, Fate, Home, Writing, object_name};
use crate::digest::within_budget;
use crate::location::Location;
use crate::statistics::{StatisticsBuilder, measure};
use crate::store::{ALIGNMENT, ObjectWriter};
use crate::table::{PartitionBy, Table, TableSpec};
use crate::types::to_stored;

/// Raw bytes at which a chunk is cut short of its rows: segments have 32-bit lengths.
const CHUNK_BYTES_MAX: usize = 1 << 30;

/// The head and the end of a Vortex file.
const MAGIC: &[u8; 4] = b"VTXF";
/// Rows of an extent: positions in it have 32 bits.
const EXTENT_ROWS_MAX: u64 = 1 << 31;

/// An extent that is durable and belongs to no table yet. Dropped without a commit, its file goes.
#[derive(Debug)]
pub struct NewExtent {
    pub(crate) extent: Arc<Extent>,
    /// Until it is committed no other process may sweep it.
    pub(crate) writing: Arc<Writing>,
}

impl NewExtent {
    pub fn extent(&self) -> &Arc<Extent> {
        &self.extent
    }

    pub fn rows(&self) -> u64 {
        self.extent.rows
    }

    pub fn bytes(&self) -> u64 {
        self.extent.bytes
    }
}

/// What the extents of a writer are to be like.
#[derive(Clone, Debug)]
pub struct Layout {
    pub schema: SchemaRef,
    /// One per field.
    pub(crate) column_ids: Vec<u32>,
    /// Columns to sort runs of rows by, most significant first.
    pub cluster_by: Vec<usize>,
    pub partition_by: Option<PartitionBy>,
}

impl Layout {
    /// Of rows that are to be a table's.
    pub fn of(table: &Table) -> Self {
        Layout {
            schema: table.arrow_schema.clone(),
            column_ids: table.columns.iter().map(|c| c.id).collect(),
            cluster_by: table.cluster_by.clone(),
            partition_by: table.partition_by,
        }
    }

    /// Of rows of a table that is yet to be made.
    pub fn of_new(schema: SchemaRef, spec: &TableSpec) -> Self {
        Layout {
            column_ids: (0..schema.fields().len() as u32).collect(),
            schema,
            cluster_by: spec.cluster_by.clone(),
            partition_by: spec.partition_by,
        }
    }
}

/// Writes rows of one table into new extents.
///
/// The caller alternates `push` and `step`, then calls `flush`, drains `step` and calls `finish`.
/// Dropped earlier, it leaves no file.
pub struct ExtentWriter {
    home: Arc<Home>,
    layout: Arc<Layout>,
    limits: Limits,
    /// One per bucket of a partitioned table, made when the first row comes; else only one.
    writers: Vec<Option<BucketWriter>>,
}

impl ExtentWriter {
    pub(crate) fn new(home: Arc<Home>, layout: Layout, limits: Limits) -> Self {
        let buckets = layout.partition_by.map_or(1, |p| p.buckets as usize);
        // All of them together sort no more at once than one would.
        let limits = Limits { run_bytes: (limits.run_bytes / buckets).max(1), ..limits };
        let layout = Arc::new(layout);
        ExtentWriter { home, layout, limits, writers: (0..buckets).map(|_| None).collect() }
    }

    fn writer(&mut self, bucket: usize) -> Result<&mut BucketWriter> {
        let of = self.layout.partition_by.map(|_| bucket as u32);
        match &mut self.writers[bucket] {
            Some(writer) => Ok(writer),
            none => {
                let (home, layout) = (self.home.clone(), self.layout.clone());
                Ok(none.insert(BucketWriter::new(home, layout, of, self.limits)?))
            }
        }
    }

    fn present(&mut self) -> impl Iterator<Item = &mut BucketWriter> {
        self.writers.iter_mut().flatten()
    }

    /// Takes rows in the table's column order. Columns of another type are cast to the table's,
    /// and a NULL in a NOT NULL column is refused; nothing is compressed yet.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_columns() != self.layout.schema.fields().len() {
            return Err(Error::user(format!(
                "got {} columns, the table has {}",
                batch.num_columns(),
                self.layout.schema.fields().len()
            )));
        }
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let columns = batch.columns().iter().zip(self.layout.schema.fields());
        let columns =
            columns.map(|(array, field)| to_stored(array, field)).collect::<Result<Vec<_>>>()?;
        let batch = RecordBatch::try_new(self.layout.schema.clone(), columns)
            .map_err(|e| Error::internal("columns do not make a batch").source(e))?;
        let Some(partition) = self.layout.partition_by else { return self.writer(0)?.push(batch) };
        for (bucket, rows) in partition.split(&batch)?.into_iter().enumerate() {
            if rows.is_empty() {
                continue;
            }
            let part = take_record_batch(&batch, &UInt32Array::from(rows))
                .map_err(|e| Error::internal("cannot split a batch into buckets").source(e))?;
            self.writer(bucket)?.push(part)?;
        }
        Ok(())
    }

    /// Ends the input: what was pushed becomes chunks, the last one short. More rows may follow,
    /// in chunks of their own.
    pub fn flush(&mut self) -> Result<()> {
        self.present().try_for_each(BucketWriter::flush)
    }

    /// Does the next bounded piece of work: sorts part of a run, or compresses one column of one
    /// chunk and appends it to the file (a buffered write of about its compressed size).
    /// `false`: there is nothing to do until more is pushed.
    pub fn step(&mut self) -> Result<bool> {
        for writer in self.present() {
            if writer.step()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Closes the last files and makes all of them durable: blocks on the store. Work left over
    /// from `step` is done here, so draining it before is what keeps this short.
    pub fn finish(self) -> Result<Vec<NewExtent>> {
        let mut extents = Vec::new();
        for writer in self.writers.into_iter().flatten() {
            extents.extend(writer.finish()?);
        }
        Ok(extents)
    }

    /// Rows pushed so far.
    pub fn rows(&self) -> u64 {
        self.writers.iter().flatten().map(|w| w.rows).sum()
    }

    /// Raw bytes pushed and not yet compressed.
    pub fn buffered_bytes(&self) -> usize {
        self.writers.iter().flatten().map(|w| w.buffered_bytes).sum()
    }

    /// Compressed bytes written so far.
    pub fn stored_bytes(&self) -> u64 {
        self.writers.iter().flatten().map(BucketWriter::stored_bytes).sum()
    }
}

/// The writer of the rows of one bucket; see [`ExtentWriter`].
struct BucketWriter {
    home: Arc<Home>,
    /// Nobody else may write or sweep meanwhile.
    writing: Arc<Writing>,
    layout: Arc<Layout>,
    bucket: Option<u32>,
    limits: Limits,
    /// Rows not yet cut: less than a chunk, or, clustered, less than a run.
    pending: Vec<RecordBatch>,
    pending_rows: usize,
    pending_bytes: usize,
    runs: VecDeque<Run>,
    ready: VecDeque<Ready>,
    open: Option<OpenExtent>,
    closed: Vec<Closed>,
    rows: u64,
    buffered_bytes: usize,
}

/// Separate from the named limits only so that tests can be small.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub chunk_rows: usize,
    pub run_bytes: usize,
    pub extent_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            chunk_rows: CHUNK_ROWS_MAX,
            run_bytes: CLUSTER_SORT_BYTES_MAX,
            extent_bytes: EXTENT_BYTES_TARGET,
        }
    }
}

/// A chunk that waits to be compressed, column by column.
struct Ready {
    rows: usize,
    bytes: usize,
    next_column: usize,
    source: Source,
}

enum Source {
    InOrder(Vec<RecordBatch>),
    Sorted(Order),
}

impl Source {
    fn column(&self, column: usize) -> Result<ArrayRef> {
        match self {
            Source::Sorted(order) => order.column(column),
            Source::InOrder(batches) => {
                let parts: Vec<&dyn Array> =
                    batches.iter().map(|b| b.column(column).as_ref()).collect();
                match parts[..] {
                    [_] => Ok(batches[0].column(column).clone()),
                    _ => concat(&parts)
                        .map_err(|e| Error::internal("cannot join the parts of a chunk").source(e)),
                }
            }
        }
    }
}

impl BucketWriter {
    fn new(
        home: Arc<Home>,
        layout: Arc<Layout>,
        bucket: Option<u32>,
        limits: Limits,
    ) -> Result<Self> {
        Ok(BucketWriter {
            writing: home.writing(Duration::ZERO)?,
            home,
            layout,
            bucket,
            limits,
            pending: Vec::new(),
            pending_rows: 0,
            pending_bytes: 0,
            runs: VecDeque::new(),
            ready: VecDeque::new(),
            open: None,
            closed: Vec::new(),
            rows: 0,
            buffered_bytes: 0,
        })
    }

    /// Takes rows of exactly the table's types, at least one.
    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let mut rest = batch;
        let row_bytes = batch_bytes(&rest) / rest.num_rows();
        self.rows += rest.num_rows() as u64;
        while rest.num_rows() > 0 {
            // Slices keep their batch's buffers, so cutting copies nothing.
            let take = rest
                .num_rows()
                .min(self.limits.chunk_rows - self.pending_rows % self.limits.chunk_rows);
            let part = rest.slice(0, take);
            rest = rest.slice(take, rest.num_rows() - take);
            self.pending_rows += take;
            self.pending_bytes += take * row_bytes;
            self.buffered_bytes += take * row_bytes;
            self.pending.push(part);
            let full = if self.layout.cluster_by.is_empty() {
                self.pending_rows == self.limits.chunk_rows || self.pending_bytes >= CHUNK_BYTES_MAX
            } else {
                self.pending_bytes >= self.limits.run_bytes
            };
            if full {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let batches = std::mem::take(&mut self.pending);
        let rows = std::mem::take(&mut self.pending_rows);
        let bytes = std::mem::take(&mut self.pending_bytes);
        if self.layout.cluster_by.is_empty() {
            self.ready.push_back(Ready {
                rows,
                bytes,
                next_column: 0,
                source: Source::InOrder(batches),
            });
        } else {
            self.runs.push_back(Run::new(
                &self.layout.schema,
                &self.layout.cluster_by,
                batches,
                bytes,
                self.limits.chunk_rows,
            )?);
        }
        Ok(())
    }

    fn step(&mut self) -> Result<bool> {
        if let Some(mut chunk) = self.ready.pop_front() {
            self.compress_column(&chunk)?;
            chunk.next_column += 1;
            if chunk.next_column < self.layout.schema.fields().len() {
                self.ready.push_front(chunk);
            } else {
                self.buffered_bytes -= chunk.bytes;
                self.end_chunk(chunk.rows)?;
            }
            return Ok(true);
        }
        let Some(run) = self.runs.front_mut() else { return Ok(false) };
        let bytes = run.row_bytes();
        match run.step()? {
            Some(order) => {
                let rows = order.len();
                self.ready.push_back(Ready {
                    rows,
                    bytes: rows * bytes,
                    next_column: 0,
                    source: Source::Sorted(order),
                });
            }
            None if run.is_done() => {
                self.buffered_bytes -= run.rounding_bytes();
                self.runs.pop_front();
            }
            None => {}
        }
        Ok(true)
    }

    fn compress_column(&mut self, chunk: &Ready) -> Result<()> {
        let column = chunk.next_column;
        let field = self.layout.schema.field(column);
        let array = chunk.source.column(column)?;
        let measured = measure(&array);
        let extent = match &mut self.open {
            Some(extent) => extent,
            None => self.open.insert(OpenExtent::create(&self.home, &self.layout.schema)?),
        };
        let buffers = extent.encoder.encode(array, field, measured.sketch.estimate())?;
        let location = extent
            .append(&buffers)
            .map_err(|e| e.context(format!("column {}", quoted(field.name()))))?;
        let (locations, statistics) = &mut extent.columns[column];
        locations.push(location);
        statistics.push(measured, u64::from(location.bytes));
        Ok(())
    }

    fn end_chunk(&mut self, rows: usize) -> Result<()> {
        let Some(extent) = &mut self.open else { return Ok(()) };
        extent.chunk_rows.push(rows as u32);
        extent.rows += rows as u64;
        let full = extent.position >= self.limits.extent_bytes
            || extent.rows + self.limits.chunk_rows as u64 > EXTENT_ROWS_MAX;
        if full && let Some(extent) = self.open.take() {
            self.closed.push(extent.close(&self.layout, self.bucket)?);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<NewExtent>> {
        self.flush()?;
        while self.step()? {}
        if let Some(extent) = self.open.take() {
            self.closed.push(extent.close(&self.layout, self.bucket)?);
        }
        let closed = std::mem::take(&mut self.closed);
        closed.into_iter().map(|extent| extent.into_new(&self.writing)).collect()
    }

    fn stored_bytes(&self) -> u64 {
        self.closed.iter().map(|c| c.bytes).sum::<u64>()
            + self.open.as_ref().map_or(0, |o| o.position)
    }
}

/// What the rows take as Arrow arrays, without what else their buffers hold.
fn batch_bytes(batch: &RecordBatch) -> usize {
    let bytes = |column: &ArrayRef| {
        // Of a view only the view is counted there.
        let long = match column.data_type() {
            DataType::Utf8View => column.as_string_view().total_buffer_bytes_used(),
            DataType::BinaryView => column.as_binary_view().total_buffer_bytes_used(),
            _ => 0,
        };
        long + column.to_data().get_slice_memory_size().unwrap_or(0)
    };
    batch.columns().iter().map(bytes).sum()
}

/// A file being written.
struct OpenExtent {
    id: ExtentId,
    alive: Alive,
    object: Box<dyn ObjectWriter>,
    position: u64,
    checksum: crc32fast::Hasher,
    rows: u64,
    encoder: Encoder,
    chunk_rows: Vec<u32>,
    columns: Vec<(Vec<Location>, StatisticsBuilder)>,
    /// One segment, put together so that it is written by one call.
    scratch: Vec<u8>,
}

impl OpenExtent {
    fn create(home: &Arc<Home>, schema: &SchemaRef) -> Result<Self> {
        let id = ExtentId(home.new_id());
        let alive = home.hold(id);
        let object = home.store.create(&object_name(id))?;
        let mut extent = OpenExtent {
            id,
            alive,
            object,
            position: 0,
            checksum: crc32fast::Hasher::new(),
            rows: 0,
            encoder: Encoder::new(),
            chunk_rows: Vec::new(),
            columns: schema
                .fields()
                .iter()
                .map(|f| (Vec::new(), StatisticsBuilder::new(f.data_type())))
                .collect(),
            scratch: Vec::new(),
        };
        extent.write(MAGIC)?;
        Ok(extent)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.object.write(bytes)?;
        self.checksum.update(bytes);
        self.position += bytes.len() as u64;
        Ok(())
    }

    /// Pads to the alignment and writes one segment.
    fn append(&mut self, buffers: &[impl AsRef<[u8]>]) -> Result<Location> {
        let padding = (self.position.next_multiple_of(ALIGNMENT as u64) - self.position) as usize;
        self.scratch.clear();
        self.scratch.resize(padding, 0);
        buffers.iter().for_each(|b| self.scratch.extend_from_slice(b.as_ref()));
        let segment = &self.scratch[padding..];
        let bytes = u32::try_from(segment.len()).map_err(|_| {
            Error::unsupported(format!(
                "one chunk takes {} bytes compressed; 4 GiB is the most",
                segment.len()
            ))
        })?;
        let location = Location {
            offset: self.position + padding as u64,
            bytes,
            checksum: crc32fast::hash(segment),
        };
        let scratch = std::mem::take(&mut self.scratch);
        self.write(&scratch)?;
        self.scratch = scratch;
        Ok(location)
    }

    fn close(mut self, layout: &Layout, bucket: Option<u32>) -> Result<Closed> {
        let types = ColumnTypes::of(&layout.schema)?;
        let columns = std::mem::take(&mut self.columns).into_iter().zip(&layout.column_ids);
        let columns = columns.map(|((locations, statistics), &id)| {
            let (statistics, sketch, digests) = statistics.finish()?;
            Ok((WrittenColumn { id, locations, statistics, sketch, digests: None }, digests))
        });
        let (mut columns, mut digests): (Vec<_>, Vec<_>) =
            columns.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        within_budget(&mut digests, self.position);
        for (column, digests) in columns.iter_mut().zip(&digests) {
            column.digests = digests.as_ref().map(|d| self.append(&[d.bytes()])).transpose()?;
        }
        let encodings = self.encoder.encodings();
        let metadata = Metadata::encode(&layout.schema, &encodings, &self.chunk_rows, &columns)?;
        let metadata_at = self.append(&[&metadata])?;
        let locations: Vec<&[Location]> = columns.iter().map(|c| c.locations.as_slice()).collect();
        let footer = self.encoder.footer(&types, &self.chunk_rows, &locations, self.position)?;
        for buffer in footer {
            self.write(&buffer)?;
        }
        Ok(Closed {
            id: self.id,
            alive: self.alive,
            object: self.object,
            bytes: self.position,
            checksum: self.checksum.finalize(),
            rows: self.rows,
            chunks: self.chunk_rows.len() as u32,
            bucket,
            metadata: Metadata::decode(&metadata, self.position, "the new extent")?,
            metadata_at,
        })
    }
}

/// A whole file that may not be durable yet.
struct Closed {
    id: ExtentId,
    alive: Alive,
    object: Box<dyn ObjectWriter>,
    bytes: u64,
    checksum: u32,
    rows: u64,
    chunks: u32,
    bucket: Option<u32>,
    metadata: Metadata,
    metadata_at: Location,
}

impl Closed {
    fn into_new(self, writing: &Arc<Writing>) -> Result<NewExtent> {
        self.object.finish()?;
        let extent = Extent {
            id: self.id,
            rows: self.rows,
            bytes: self.bytes,
            checksum: self.checksum,
            chunks: self.chunks,
            bucket: self.bucket,
            metadata_at: self.metadata_at,
            metadata: RwLock::new(Some(Arc::new(self.metadata))),
            alive: self.alive,
            fate: AtomicU8::new(Fate::Draft as u8),
        };
        Ok(NewExtent { extent: Arc::new(extent), writing: writing.clone() })
    }
}

#[cfg(test)]
mod tests;
