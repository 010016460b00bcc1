//! Rows in, extents out, in steps of bounded work.
//!
//! `push` cuts rows into chunks (sorting them first where the table is clustered: see [`sort`]);
//! `step` compresses one column of one chunk and appends it to the file. Nothing runs in the
//! background: CPU parallelism comes from many writers.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::concat;
use arrow::datatypes::SchemaRef;
use thalweg_base::limits::{CHUNK_ROWS_MAX, CLUSTER_SORT_BYTES_MAX, EXTENT_BYTES_TARGET};
use thalweg_base::text::quoted;
use thalweg_base::{Error, ExtentId, Result};

use super::codec::{ColumnTypes, Encoder};
use super::file::{ALIGNMENT, ExtentFile, MAGIC, OpenFiles, Sink, sync_directory};
use super::sort::{Order, Run};
use super::{Extent, ExtentColumn, ExtentParts, Location};
use crate::cache::Cache;
use crate::statistics::{StatisticsBuilder, measure};
use crate::types::to_stored;

/// Raw bytes at which a chunk is cut short of its rows: segments have 32-bit lengths.
const CHUNK_BYTES_MAX: usize = 1 << 30;

/// Where a database keeps its extents, and what they share.
pub(crate) struct Home {
    /// `None`: in memory.
    pub extents: Option<PathBuf>,
    pub next_extent: AtomicU64,
    pub cache: Arc<Cache>,
    pub open: Arc<OpenFiles>,
}

impl Home {
    pub fn path(&self, id: ExtentId) -> Option<PathBuf> {
        Some(self.extents.as_ref()?.join(file_name(id)))
    }

    fn sink(&self, id: ExtentId) -> Result<Sink> {
        match self.path(id) {
            Some(path) => Sink::disk(path),
            None => Ok(Sink::Memory { name: file_name(id), bytes: Vec::new() }),
        }
    }

    pub fn file(&self, id: ExtentId) -> Result<ExtentFile> {
        match self.path(id) {
            Some(path) => Ok(ExtentFile::disk(path, self.open.clone())),
            None => Err(Error::internal("an in-memory database has no files to open")),
        }
    }
}

pub(crate) fn file_name(id: ExtentId) -> String {
    format!("{:08}.vortex", id.0)
}

/// An extent that is durable and belongs to no table yet. Dropped without a commit, its file goes.
#[derive(Debug)]
pub struct NewExtent {
    pub(crate) extent: Arc<Extent>,
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

/// Writes rows of one schema into new extents.
///
/// The caller alternates `push` and `step`, then calls `flush`, drains `step` and calls `finish`.
/// Dropped earlier, it leaves no file.
pub struct ExtentWriter {
    home: Arc<Home>,
    schema: SchemaRef,
    types: Arc<ColumnTypes>,
    cluster_by: Vec<usize>,
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

impl ExtentWriter {
    pub(crate) fn new(
        home: Arc<Home>,
        schema: SchemaRef,
        cluster_by: &[usize],
        limits: Limits,
    ) -> Result<Self> {
        Ok(ExtentWriter {
            home,
            types: Arc::new(ColumnTypes::of(&schema)?),
            schema,
            cluster_by: cluster_by.to_vec(),
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

    /// Takes rows in the table's column order. Columns of another type are cast to the table's,
    /// and a NULL in a NOT NULL column is refused; nothing is compressed yet.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_columns() != self.schema.fields().len() {
            return Err(Error::user(format!(
                "got {} columns, the table has {}",
                batch.num_columns(),
                self.schema.fields().len()
            )));
        }
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let columns = batch.columns().iter().zip(self.schema.fields());
        let columns =
            columns.map(|(array, field)| to_stored(array, field)).collect::<Result<Vec<_>>>()?;
        let mut rest = RecordBatch::try_new(self.schema.clone(), columns)
            .map_err(|e| Error::internal("columns do not make a batch").source(e))?;
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
            let full = if self.cluster_by.is_empty() {
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

    /// Ends the input: what was pushed becomes chunks, the last one short. More rows may follow,
    /// in chunks of their own.
    pub fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let batches = std::mem::take(&mut self.pending);
        let rows = std::mem::take(&mut self.pending_rows);
        let bytes = std::mem::take(&mut self.pending_bytes);
        if self.cluster_by.is_empty() {
            self.ready.push_back(Ready {
                rows,
                bytes,
                next_column: 0,
                source: Source::InOrder(batches),
            });
        } else {
            self.runs.push_back(Run::new(
                &self.schema,
                &self.cluster_by,
                batches,
                bytes,
                self.limits.chunk_rows,
            )?);
        }
        Ok(())
    }

    /// Does the next bounded piece of work: sorts part of a run, or compresses one column of one
    /// chunk and appends it to the file (a buffered write of about its compressed size).
    /// `false`: there is nothing to do until more is pushed.
    pub fn step(&mut self) -> Result<bool> {
        if let Some(mut chunk) = self.ready.pop_front() {
            self.compress_column(&chunk)?;
            chunk.next_column += 1;
            if chunk.next_column < self.schema.fields().len() {
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
        let field = self.schema.field(column);
        let array = chunk.source.column(column)?;
        let measured = measure(&array);
        let extent = match &mut self.open {
            Some(extent) => extent,
            None => self.open.insert(OpenExtent::create(&self.home, &self.schema)?),
        };
        let buffers = extent.encoder.encode(array, field)?;
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
        if extent.position >= self.limits.extent_bytes
            && let Some(extent) = self.open.take()
        {
            self.closed.push(extent.close(&self.types)?);
        }
        Ok(())
    }

    /// Closes the last file and makes all of them durable: blocks on the disk. Work left over
    /// from `step` is done here, so draining it before is what keeps this short.
    pub fn finish(mut self) -> Result<Vec<NewExtent>> {
        self.flush()?;
        while self.step()? {}
        if let Some(extent) = self.open.take() {
            self.closed.push(extent.close(&self.types)?);
        }
        let mut closed = std::mem::take(&mut self.closed);
        for extent in &mut closed {
            extent.file.sink_mut()?.sync()?;
        }
        if let (Some(directory), false) = (&self.home.extents, closed.is_empty()) {
            sync_directory(directory)?;
        }
        closed
            .into_iter()
            .map(|extent| extent.into_new(&self.home, &self.schema, &self.types))
            .collect()
    }

    /// Rows pushed so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Raw bytes pushed and not yet compressed.
    pub fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    /// Compressed bytes written so far.
    pub fn stored_bytes(&self) -> u64 {
        self.closed.iter().map(|c| c.bytes).sum::<u64>()
            + self.open.as_ref().map_or(0, |o| o.position)
    }
}

/// What the rows take as Arrow arrays, without what else their buffers hold.
fn batch_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|c| c.to_data().get_slice_memory_size().unwrap_or(0)).sum()
}

/// A file being written; dropped before its time it is removed.
struct Unfinished(Option<Sink>);

impl Unfinished {
    fn sink_mut(&mut self) -> Result<&mut Sink> {
        self.0.as_mut().ok_or_else(|| Error::internal("the file was handed over"))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(sink) = &self.0 {
            sink.remove();
        }
    }
}

struct OpenExtent {
    id: ExtentId,
    file: Unfinished,
    position: u64,
    encoder: Encoder,
    chunk_rows: Vec<u32>,
    columns: Vec<(Vec<Location>, StatisticsBuilder)>,
    /// One segment, put together so that it is written by one call.
    scratch: Vec<u8>,
}

impl OpenExtent {
    fn create(home: &Home, schema: &SchemaRef) -> Result<Self> {
        let id = ExtentId(home.next_extent.fetch_add(1, Ordering::Relaxed));
        let mut file = Unfinished(Some(home.sink(id)?));
        file.sink_mut()?.write(MAGIC)?;
        Ok(OpenExtent {
            id,
            file,
            position: MAGIC.len() as u64,
            encoder: Encoder::new(),
            chunk_rows: Vec::new(),
            columns: schema
                .fields()
                .iter()
                .map(|f| (Vec::new(), StatisticsBuilder::new(f.data_type())))
                .collect(),
            scratch: Vec::new(),
        })
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
        self.file.sink_mut()?.write(&self.scratch)?;
        self.position += self.scratch.len() as u64;
        Ok(location)
    }

    fn close(mut self, types: &ColumnTypes) -> Result<Closed> {
        let locations: Vec<&[Location]> = self.columns.iter().map(|(l, _)| l.as_slice()).collect();
        let footer = self.encoder.footer(types, &self.chunk_rows, &locations, self.position)?;
        for buffer in footer {
            self.file.sink_mut()?.write(&buffer)?;
            self.position += buffer.len() as u64;
        }
        let columns = self.columns.into_iter().map(|(locations, statistics)| {
            let (statistics, sketch) = statistics.finish()?;
            Ok(ExtentColumn { locations, statistics, sketch })
        });
        Ok(Closed {
            id: self.id,
            file: self.file,
            bytes: self.position,
            encodings: self.encoder.encodings(),
            chunk_rows: self.chunk_rows,
            columns: columns.collect::<Result<_>>()?,
        })
    }
}

/// A whole file that may not be durable yet.
struct Closed {
    id: ExtentId,
    file: Unfinished,
    bytes: u64,
    encodings: super::EncodingIds,
    chunk_rows: Vec<u32>,
    columns: Vec<ExtentColumn>,
}

impl Closed {
    fn into_new(
        mut self,
        home: &Home,
        schema: &SchemaRef,
        types: &Arc<ColumnTypes>,
    ) -> Result<NewExtent> {
        let sink = self.file.0.take().ok_or_else(|| Error::internal("the file was handed over"))?;
        let parts = ExtentParts {
            id: self.id,
            bytes: self.bytes,
            schema: schema.clone(),
            types: types.clone(),
            encodings: self.encodings,
            file: sink.into_file(&home.open),
            chunk_rows: self.chunk_rows,
            columns: self.columns,
            cache: home.cache.clone(),
        };
        Ok(NewExtent { extent: Extent::new(parts, false)? })
    }
}

#[cfg(test)]
mod tests;
