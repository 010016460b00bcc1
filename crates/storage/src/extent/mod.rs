//! Extents: immutable Vortex files of chunks.
//!
//! ```text
//! "VTXF" │ chunk 0: column 0 │ column 1 │ … │ chunk 1: column 0 │ … │ footer │ postscript │ "VTXF"
//!          └ one segment: a compressed array, its encoding tree, a length ┘
//! ```
//! The footer's layout tree is struct → one *chunked* per column → one *flat* per chunk, so every
//! Vortex reader can open the file. We do not read it: where the segments lie is in the catalog,
//! and with it a checksum of each.

mod codec;
mod file;
mod reader;
mod sort;
mod writer;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::datatypes::SchemaRef;
use thalweg_base::{Error, ExtentId, Result};

pub(crate) use codec::{ColumnTypes, EncodingIds, EncodingNames};
pub(crate) use file::ExtentFile;
pub(crate) use file::sync_directory;
pub use reader::Segment;
pub use writer::{ExtentWriter, NewExtent};
pub(crate) use writer::{Home, Limits, file_name};

use crate::cache::Cache;
use crate::hll::Sketch;
use crate::statistics::ChunkStatistics;

/// Where one column of one chunk lies in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub offset: u64,
    pub bytes: u32,
    /// CRC-32 of the bytes. Decoders trust what they are given; this is what lets them.
    pub checksum: u32,
}

/// What is known about one column of an extent.
#[derive(Debug)]
pub(crate) struct ExtentColumn {
    pub locations: Vec<Location>,
    pub statistics: ChunkStatistics,
    pub sketch: Sketch,
}

/// One immutable file of chunks. When the last `Arc` of an extent that no committed table has
/// any more goes, so does its file.
pub struct Extent {
    pub id: ExtentId,
    pub rows: u64,
    /// Of the whole file.
    pub bytes: u64,
    pub(crate) schema: SchemaRef,
    pub(crate) types: Arc<ColumnTypes>,
    /// How the encoding numbers in the segments are to be read.
    pub(crate) encodings: EncodingIds,
    pub(crate) file: ExtentFile,
    chunk_rows: Vec<u32>,
    first_rows: Vec<u64>,
    columns: Vec<ExtentColumn>,
    /// Whether the catalog has it. Set and cleared by commits.
    registered: AtomicBool,
    cache: Arc<Cache>,
}

/// Everything an [`Extent`] is made of, from a writer or from the catalog.
pub(crate) struct ExtentParts {
    pub id: ExtentId,
    pub bytes: u64,
    pub schema: SchemaRef,
    pub types: Arc<ColumnTypes>,
    pub encodings: EncodingIds,
    pub file: ExtentFile,
    pub chunk_rows: Vec<u32>,
    pub columns: Vec<ExtentColumn>,
    pub cache: Arc<Cache>,
}

impl Extent {
    /// Checks what later code relies on: one location and one statistic per chunk and column,
    /// all within the file. A failure names the extent's file.
    pub(crate) fn new(parts: ExtentParts, registered: bool) -> Result<Arc<Extent>> {
        let ExtentParts { id, bytes, schema, types, encodings, file, chunk_rows, columns, cache } =
            parts;
        let chunks = chunk_rows.len();
        let fault = |what: String| {
            Err(Error::corrupt(format!("{file}: {what}"))
                .detail("the catalog and the file disagree"))
        };
        if columns.len() != schema.fields().len() {
            return fault(format!(
                "{} columns recorded, the table has {}",
                columns.len(),
                schema.fields().len()
            ));
        }
        for (column, field) in columns.iter().zip(schema.fields()) {
            let statistics = &column.statistics;
            let lengths = [
                column.locations.len(),
                statistics.mins.len(),
                statistics.maxs.len(),
                statistics.min_exact.len(),
                statistics.max_exact.len(),
                statistics.rows.len(),
                statistics.nulls.len(),
                statistics.distincts.len(),
                statistics.stored_bytes.len(),
                statistics.value_bytes.len(),
            ];
            if lengths.iter().any(|&n| n != chunks) {
                return fault(format!(
                    "column {:?} is not recorded for each of {chunks} chunks",
                    field.name()
                ));
            }
            if statistics.mins.data_type() != field.data_type()
                || statistics.maxs.data_type() != field.data_type()
            {
                return fault(format!(
                    "the statistics of column {:?} have another type",
                    field.name()
                ));
            }
            let outside = |l: &Location| {
                l.offset.checked_add(u64::from(l.bytes)).is_none_or(|end| end > bytes)
            };
            if column.locations.iter().any(outside) {
                return fault(format!(
                    "a chunk of column {:?} lies outside its {bytes} bytes",
                    field.name()
                ));
            }
            column.sketch.check().map_err(|e| e.context(&file))?;
        }
        let mut rows = 0u64;
        let first_rows = chunk_rows
            .iter()
            .map(|&n| {
                let first = rows;
                rows += u64::from(n);
                first
            })
            .collect();
        Ok(Arc::new(Extent {
            id,
            rows,
            bytes,
            schema,
            types,
            encodings,
            file,
            chunk_rows,
            first_rows,
            columns,
            registered: AtomicBool::new(registered),
            cache,
        }))
    }

    pub fn chunks(&self) -> usize {
        self.chunk_rows.len()
    }

    pub fn chunk_rows(&self, chunk: usize) -> usize {
        self.chunk_rows[chunk] as usize
    }

    /// Of the extent, the number of rows before this chunk.
    pub fn first_row(&self, chunk: usize) -> u64 {
        self.first_rows[chunk]
    }

    /// One element per chunk of this extent.
    pub fn statistics(&self, column: usize) -> &ChunkStatistics {
        &self.columns[column].statistics
    }

    /// The file, for messages and for `system` tables; `None` in an in-memory database.
    pub fn path(&self) -> Option<PathBuf> {
        self.file.path().map(Into::into)
    }

    pub(crate) fn sketch(&self, column: usize) -> &Sketch {
        &self.columns[column].sketch
    }

    pub(crate) fn columns(&self) -> &[ExtentColumn] {
        &self.columns
    }

    pub(crate) fn all_chunk_rows(&self) -> &[u32] {
        &self.chunk_rows
    }

    pub(crate) fn shares(&self, cache: &Arc<Cache>) -> bool {
        Arc::ptr_eq(&self.cache, cache)
    }

    pub(crate) fn set_registered(&self, registered: bool) {
        self.registered.store(registered, Ordering::Release);
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        if !self.registered.load(Ordering::Acquire) {
            self.cache.forget(self.id);
            // Nobody is left to tell of a failure, and the next open sweeps it.
            let _ = self.file.remove();
        }
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Extent {} ({} rows in {} chunks, {} bytes)",
            self.id,
            self.rows,
            self.chunks(),
            self.bytes
        )
    }
}
