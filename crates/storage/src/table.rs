//! A table as one snapshot has it: its columns, its extents, and what is known about them.

use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;
use thalweg_base::{SnapshotId, TableId};

use crate::extent::Extent;
use crate::hll::Sketch;
use crate::statistics::{ChunkStatistics, ColumnStatistics};

/// An immutable version of a table. A commit that touches the table makes a new one.
pub struct Table {
    pub id: TableId,
    pub name: String,
    pub arrow_schema: SchemaRef,
    /// Columns the writers sort runs of rows by, most significant first.
    pub cluster_by: Vec<usize>,
    pub extents: Vec<Arc<Extent>>,
    /// The snapshots that last changed its rows in any way, and other than by adding some. They
    /// settle conflicts between transactions, so they need not outlive the process.
    pub(crate) changed_at: SnapshotId,
    pub(crate) replaced_at: SnapshotId,
    /// Of each extent, the number of chunks and rows before it; and both totals at the end.
    starts: Vec<Start>,
    statistics: Vec<Known>,
}

#[derive(Clone, Copy, Default)]
struct Start {
    chunk: usize,
    row: u64,
}

/// Computed when first asked for: a table nobody queries costs nothing.
#[derive(Default)]
struct Known {
    chunks: OnceLock<Arc<ChunkStatistics>>,
    column: OnceLock<ColumnStatistics>,
}

/// One chunk of a table, and where it lies.
#[derive(Clone, Debug)]
pub struct ChunkRef {
    pub extent: Arc<Extent>,
    /// Within the extent.
    pub chunk: usize,
    pub rows: u64,
    /// Of the table.
    pub first_row: u64,
}

impl Table {
    pub(crate) fn new(
        id: TableId,
        name: String,
        arrow_schema: SchemaRef,
        cluster_by: Vec<usize>,
        extents: Vec<Arc<Extent>>,
    ) -> Self {
        let mut starts = Vec::with_capacity(extents.len() + 1);
        let mut next = Start::default();
        for extent in &extents {
            starts.push(next);
            next = Start { chunk: next.chunk + extent.chunks(), row: next.row + extent.rows };
        }
        starts.push(next);
        let statistics = arrow_schema.fields().iter().map(|_| Known::default()).collect();
        Table {
            id,
            name,
            arrow_schema,
            cluster_by,
            extents,
            changed_at: SnapshotId(0),
            replaced_at: SnapshotId(0),
            starts,
            statistics,
        }
    }

    /// This table with other extents, as of snapshot `at`.
    pub(crate) fn changed(
        &self,
        extents: Vec<Arc<Extent>>,
        at: SnapshotId,
        replaced: bool,
    ) -> Self {
        let (schema, cluster_by) = (self.arrow_schema.clone(), self.cluster_by.clone());
        let mut table = Table::new(self.id, self.name.clone(), schema, cluster_by, extents);
        table.changed_at = at;
        table.replaced_at = if replaced { at } else { self.replaced_at };
        table
    }

    fn end(&self) -> Start {
        self.starts.last().copied().unwrap_or_default()
    }

    pub fn rows(&self) -> u64 {
        self.end().row
    }

    pub fn stored_bytes(&self) -> u64 {
        self.extents.iter().map(|e| e.bytes).sum()
    }

    /// Chunks of all extents.
    pub fn chunks(&self) -> usize {
        self.end().chunk
    }

    /// Chunk `i` of [`Table::chunks`], counted over all extents in order.
    ///
    /// # Panics
    /// If there is no chunk `i`.
    pub fn chunk(&self, i: usize) -> ChunkRef {
        assert!(
            i < self.chunks(),
            "chunk {i} of table {:?}, which has {}",
            self.name,
            self.chunks()
        );
        let at = self.starts.partition_point(|s| s.chunk <= i) - 1;
        let (extent, start) = (&self.extents[at], self.starts[at]);
        let chunk = i - start.chunk;
        ChunkRef {
            extent: extent.clone(),
            chunk,
            rows: extent.chunk_rows(chunk) as u64,
            first_row: start.row + extent.first_row(chunk),
        }
    }

    /// What is known about a whole column; see [`crate::statistics`] on exactness.
    pub fn column_statistics(&self, column: usize) -> ColumnStatistics {
        let known = self.statistics[column].column.get_or_init(|| {
            let nested = self.arrow_schema.field(column).data_type().is_nested();
            let distinct = (!nested).then(|| {
                let mut sketch = Sketch::default();
                self.extents.iter().for_each(|e| sketch.merge(e.sketch(column)));
                sketch.estimate()
            });
            self.chunk_statistics(column).summary(distinct)
        });
        known.clone()
    }

    /// One element per chunk, in the order of [`Table::chunk`]; joined once and kept.
    pub fn chunk_statistics(&self, column: usize) -> Arc<ChunkStatistics> {
        let known = self.statistics[column].chunks.get_or_init(|| {
            let parts: Vec<_> = self.extents.iter().map(|e| e.statistics(column)).collect();
            let data_type = self.arrow_schema.field(column).data_type();
            // Every extent's statistics were checked against this type when it was opened.
            let joined = ChunkStatistics::concat(&parts, data_type);
            Arc::new(joined.expect("statistics of one type can be concatenated"))
        });
        known.clone()
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Table {} {:?} ({} rows in {} extents)",
            self.id,
            self.name,
            self.rows(),
            self.extents.len()
        )
    }
}
