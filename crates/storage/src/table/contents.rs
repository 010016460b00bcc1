//! The chunks of a table, and what is known about them without reading any.

use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, BooleanArray, UInt32Array, UInt64Array, new_null_array};
use arrow::buffer::{BooleanBuffer, MutableBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::util::bit_util;
use thalweg_base::{Error, Result};

use crate::digest::Digests;
use crate::encoded;
use crate::extent::{Extent, Metadata};
use crate::hll::Sketch;
use crate::statistics::{Bounds, ChunkStatistics, ColumnStatistics, measure};
use crate::table::{Column, Deleted, PartitionBy, Table};

/// A version of a table with the metadata of all its extents at hand.
pub struct Contents {
    pub arrow_schema: SchemaRef,
    columns: Arc<[Column]>,
    pub partition_by: Option<PartitionBy>,
    extents: Vec<OpenExtent>,
    /// Chunks and live rows of all extents.
    chunks: usize,
    rows: u64,
    deleted_rows: u64,
    statistics: Vec<Known>,
}

struct OpenExtent {
    extent: Arc<Extent>,
    metadata: Arc<Metadata>,
    deleted: Option<Arc<Deleted>>,
    /// Of each column of the table, its place in the extent; `None`: the extent is older.
    places: Vec<Option<usize>>,
    /// Of the table, the number of chunks before it.
    first_chunk: usize,
}

impl OpenExtent {
    /// How many rows of a chunk are deleted.
    fn deleted_in(&self, chunk: usize) -> u64 {
        let rows = self.metadata.rows_of(chunk);
        self.deleted.as_ref().map_or(0, |d| d.0.range_cardinality(rows))
    }
}

/// Computed when first asked for: a column nobody filters by costs nothing.
#[derive(Default)]
struct Known {
    chunks: OnceLock<Arc<ChunkStatistics>>,
    extents: OnceLock<Arc<ChunkStatistics>>,
    column: OnceLock<ColumnStatistics>,
}

/// One chunk of a table, and where it lies.
#[derive(Clone)]
pub struct ChunkRef {
    contents: Arc<Contents>,
    /// Position of the extent in the table.
    pub extent: usize,
    /// Within the extent.
    pub chunk: usize,
    /// Including deleted ones.
    pub rows: usize,
    /// Position in the extent of its first row.
    pub first_row: u64,
}

impl Contents {
    pub(crate) fn open(table: &Table) -> Result<Contents> {
        let metadata = Extent::open_all(table.extents.iter().map(|e| &*e.extent))?;
        let mut extents = Vec::with_capacity(table.extents.len());
        let mut first_chunk = 0;
        for (e, metadata) in table.extents.iter().zip(metadata) {
            let mut places = Vec::with_capacity(table.columns.len());
            for (column, field) in table.columns.iter().zip(table.arrow_schema.fields()) {
                let place = metadata.place(column.id);
                if let Some(place) = place
                    && metadata.columns[place].data_type != *field.data_type()
                {
                    return Err(Error::corrupt(format!(
                        "{}: column {:?} is stored as {}, the catalog says {}",
                        e.extent,
                        field.name(),
                        metadata.columns[place].data_type,
                        field.data_type()
                    )));
                }
                places.push(place);
            }
            extents.push(OpenExtent {
                extent: e.extent.clone(),
                metadata,
                deleted: e.deleted.clone(),
                places,
                first_chunk,
            });
            first_chunk += e.extent.chunks();
        }
        Ok(Contents {
            arrow_schema: table.arrow_schema.clone(),
            columns: table.columns.clone(),
            partition_by: table.partition_by,
            extents,
            chunks: first_chunk,
            rows: table.rows(),
            deleted_rows: table.deleted_rows(),
            statistics: table.columns.iter().map(|_| Known::default()).collect(),
        })
    }

    /// Rows that are not deleted.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn deleted_rows(&self) -> u64 {
        self.deleted_rows
    }

    pub fn chunks(&self) -> usize {
        self.chunks
    }

    pub fn extents(&self) -> usize {
        self.extents.len()
    }

    pub fn extent(&self, extent: usize) -> &Arc<Extent> {
        &self.extents[extent].extent
    }

    /// The chunks of the table that lie in an extent.
    pub fn chunks_of(&self, extent: usize) -> std::ops::Range<usize> {
        let e = &self.extents[extent];
        e.first_chunk..e.first_chunk + e.metadata.chunks()
    }

    /// The extent that chunk `i` of the table lies in.
    pub fn extent_of(&self, i: usize) -> usize {
        self.extents.partition_point(|e| e.first_chunk <= i) - 1
    }

    /// Chunk `i` of [`Contents::chunks`], counted over all extents in order.
    ///
    /// # Panics
    /// If there is no chunk `i`.
    pub fn chunk(self: &Arc<Self>, i: usize) -> ChunkRef {
        assert!(i < self.chunks, "chunk {i} of a table that has {}", self.chunks);
        let extent = self.extent_of(i);
        let e = &self.extents[extent];
        let chunk = i - e.first_chunk;
        ChunkRef {
            contents: self.clone(),
            extent,
            chunk,
            rows: e.metadata.chunk_rows(chunk),
            first_row: e.metadata.first_row(chunk),
        }
    }

    /// The chunk of a row that [`ChunkRef::row_ids`] names, and which of its rows it is.
    ///
    /// # Panics
    /// If no chunk's ids have it.
    pub fn locate(&self, row_id: u64) -> (usize, usize) {
        let (extent, row) = ((row_id >> 32) as usize, row_id & 0xffff_ffff);
        let e = &self.extents[extent];
        let chunk = e.metadata.chunk_of(row);
        (e.first_chunk + chunk, (row - e.metadata.first_row(chunk)) as usize)
    }

    /// What is known about a whole column; see [`crate::statistics`] on exactness.
    pub fn column_statistics(&self, column: usize) -> ColumnStatistics {
        let known = self.statistics[column].column.get_or_init(|| {
            let nested = self.arrow_schema.field(column).data_type();
            let nested = nested.is_nested() || matches!(nested, DataType::Interval(_));
            let distinct = (!nested).then(|| {
                let mut sketch = Sketch::default();
                let places = self.extents.iter().filter_map(|e| {
                    e.places[column].map(|place| &e.metadata.columns[place].sketch)
                });
                places.for_each(|s| sketch.merge(s));
                sketch.estimate()
            });
            let mut all = self.extent_statistics(column).summary(distinct);
            // Which of the deleted rows were NULL is not known.
            all.nulls_exact = self.deleted_rows == 0 || all.nulls == 0;
            all.rows = self.rows;
            all.nulls = all.nulls.min(all.rows);
            all
        });
        known.clone()
    }

    /// One element per chunk, in the order of [`Contents::chunk`]; joined once and kept.
    ///
    /// Rows and nulls count deleted rows, too; a bound of a chunk with deleted rows is not exact.
    pub fn chunk_statistics(&self, column: usize) -> Arc<ChunkStatistics> {
        let known = self.statistics[column].chunks.get_or_init(|| {
            let parts: Vec<_> =
                self.extents.iter().map(|e| self.statistics_of(e, column)).collect();
            Arc::new(self.joined(&parts.iter().map(|p| &**p).collect::<Vec<_>>(), column))
        });
        known.clone()
    }

    /// The same for each extent as a whole: what rules out an extent rules out its chunks.
    pub fn extent_statistics(&self, column: usize) -> Arc<ChunkStatistics> {
        let known = self.statistics[column].extents.get_or_init(|| {
            let parts: Vec<_> = self
                .extents
                .iter()
                .map(|e| match e.places[column] {
                    Some(place) if e.deleted.is_none() => e.metadata.columns[place].whole.clone(),
                    Some(place) => {
                        let column_of = &e.metadata.columns[place];
                        let distinct = column_of.sketch.estimate();
                        let chunks = self.statistics_of(e, column);
                        Arc::new(chunks.folded(distinct, &column_of.data_type))
                    }
                    None => Arc::new(self.initial(column, &[e.extent.rows])),
                })
                .collect();
            Arc::new(self.joined(&parts.iter().map(|p| &**p).collect::<Vec<_>>(), column))
        });
        known.clone()
    }

    /// Whether an extent may have a value of this hash ([`crate::value_hashes`]) in a column, by
    /// the sketch of its distinct values.
    pub fn in_sketch(&self, extent: usize, column: usize, hash: u64) -> bool {
        let e = &self.extents[extent];
        e.places[column].is_none_or(|place| e.metadata.columns[place].sketch.may_hold(hash))
    }

    /// The same, by the bucket that the extent's rows belong to.
    pub fn in_bucket(&self, extent: usize, column: usize, hash: u64) -> bool {
        match (self.partition_by, self.extents[extent].extent.bucket) {
            (Some(by), Some(bucket)) if by.column == column => by.bucket_of(hash) == bucket,
            _ => true,
        }
    }

    /// Bytes of the digests of a column of an extent; 0: it has none.
    pub fn digest_bytes(&self, extent: usize, column: usize) -> u64 {
        let e = &self.extents[extent];
        let digests = e.places[column].and_then(|place| e.metadata.columns[place].digests);
        digests.map_or(0, |at| u64::from(at.bytes))
    }

    /// They themselves, one per chunk of the extent, if they are in the cache.
    pub fn cached_digests(&self, extent: usize, column: usize) -> Option<Digests> {
        let e = &self.extents[extent];
        e.extent.cached_digests(&e.metadata, e.places[column]?)
    }

    /// They themselves, read, verified and put into the cache: blocks on the store.
    pub fn read_digests(&self, extent: usize, column: usize) -> Result<Option<Digests>> {
        let e = &self.extents[extent];
        match e.places[column] {
            Some(place) => e.extent.read_digests(&e.metadata, place),
            None => Ok(None),
        }
    }

    fn joined(&self, parts: &[&ChunkStatistics], column: usize) -> ChunkStatistics {
        let data_type = self.arrow_schema.field(column).data_type();
        // Every extent's statistics were checked against this type when it was opened.
        ChunkStatistics::concat(parts, data_type)
            .expect("statistics of one type can be concatenated")
    }

    /// The chunks of one extent.
    pub fn statistics_in(&self, extent: usize, column: usize) -> Arc<ChunkStatistics> {
        self.statistics_of(&self.extents[extent], column)
    }

    fn statistics_of(&self, e: &OpenExtent, column: usize) -> Arc<ChunkStatistics> {
        let Some(place) = e.places[column] else {
            let rows: Vec<u64> =
                (0..e.metadata.chunks()).map(|c| e.metadata.chunk_rows(c) as u64).collect();
            return Arc::new(self.initial(column, &rows));
        };
        let statistics = &e.metadata.columns[place].statistics;
        match &e.deleted {
            None => statistics.clone(),
            Some(_) => Arc::new(inexact(statistics, |chunk| e.deleted_in(chunk) > 0)),
        }
    }

    /// Of chunks that are older than the column.
    fn initial(&self, column: usize, rows: &[u64]) -> ChunkStatistics {
        let data_type = self.arrow_schema.field(column).data_type();
        let initial = self.columns[column].initial.as_ref();
        ChunkStatistics::constant(initial, data_type, rows)
    }

    /// `rows` times the value of rows older than the column, in an encoded form.
    fn constant(&self, column: usize, rows: usize) -> ArrayRef {
        let data_type = self.arrow_schema.field(column).data_type();
        match &self.columns[column].initial {
            Some(value) if matches!(data_type, DataType::Utf8View | DataType::BinaryView) => {
                encoded::repeated(value.clone(), rows)
                    .unwrap_or_else(|_| new_null_array(data_type, rows))
            }
            Some(value) => repeated(value, rows).unwrap_or_else(|| new_null_array(data_type, rows)),
            None => new_null_array(data_type, rows),
        }
    }
}

fn repeated(value: &ArrayRef, rows: usize) -> Option<ArrayRef> {
    take(value, &UInt32Array::from(vec![0; rows]), None).ok()
}

/// Of chunks of which some have deleted rows: a bound may have been one of them.
fn inexact(statistics: &ChunkStatistics, touched: impl Fn(usize) -> bool) -> ChunkStatistics {
    let touched: Vec<bool> = (0..statistics.len()).map(touched).collect();
    let flags = |exact: &BooleanArray| -> BooleanArray {
        touched.iter().enumerate().map(|(i, t)| Some(exact.value(i) && !t)).collect()
    };
    ChunkStatistics {
        min_exact: flags(&statistics.min_exact),
        max_exact: flags(&statistics.max_exact),
        ..statistics.clone()
    }
}

impl ChunkRef {
    fn open(&self) -> &OpenExtent {
        &self.contents.extents[self.extent]
    }

    pub fn extent(&self) -> &Arc<Extent> {
        &self.open().extent
    }

    pub(crate) fn metadata(&self) -> &Arc<Metadata> {
        &self.open().metadata
    }

    /// Where the extent has a column of the table.
    pub(crate) fn place(&self, column: usize) -> Option<usize> {
        self.open().places[column]
    }

    /// The column's values if the chunk is older than it, in an encoded form.
    pub(crate) fn constant(&self, column: usize) -> ArrayRef {
        self.contents.constant(column, self.rows)
    }

    /// Compressed bytes of a column of the table; 0 if the chunk is older than it.
    pub fn stored_bytes(&self, column: usize) -> u64 {
        let columns = &self.open().metadata.columns;
        self.place(column).map_or(0, |place| u64::from(columns[place].locations[self.chunk].bytes))
    }

    /// One bit per row, set where the row is not deleted; `None`: none is.
    pub fn live(&self) -> Option<BooleanBuffer> {
        let e = self.open();
        let deleted = e.deleted.as_ref().filter(|_| e.deleted_in(self.chunk) > 0)?;
        let rows = e.metadata.rows_of(self.chunk);
        let bytes = self.rows.div_ceil(8);
        let mut bits = MutableBuffer::new(bytes).with_bitset(bytes, true);
        for row in deleted.0.range(rows.clone()) {
            bit_util::unset_bit(&mut bits, (row - rows.start) as usize);
        }
        Some(BooleanBuffer::new(bits.into(), 0, self.rows))
    }

    /// Rows that are not deleted.
    pub fn live_rows(&self) -> usize {
        self.rows - self.open().deleted_in(self.chunk) as usize
    }

    /// What names the chunk's rows in [`crate::Transaction::delete`].
    pub fn row_ids(&self) -> UInt64Array {
        let first = row_id(self.extent, self.first_row);
        UInt64Array::from_iter_values(first..first + self.rows as u64)
    }
}

/// Extent ordinal in the upper half, row of the extent in the lower.
pub(crate) fn row_id(extent: usize, row: u64) -> u64 {
    (extent as u64) << 32 | row
}

impl fmt::Debug for ChunkRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunk {} of {} ({} rows)", self.chunk, self.extent(), self.rows)
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} chunks in {} extents", self.chunks, self.extents.len())
    }
}

impl ChunkStatistics {
    /// Of chunks whose rows all have the same value.
    pub(crate) fn constant(value: Option<&ArrayRef>, data_type: &DataType, rows: &[u64]) -> Self {
        let measured = value.filter(|v| !v.is_null(0)).map(measure);
        let bound = |of: fn(&Bounds) -> &ArrayRef| {
            let one = measured.as_ref().and_then(|m| repeated(of(&m.bounds), rows.len()));
            one.unwrap_or_else(|| new_null_array(data_type, rows.len()))
        };
        let flag = |of: fn(&Bounds) -> bool| {
            BooleanArray::from(vec![measured.as_ref().is_some_and(|m| of(&m.bounds)); rows.len()])
        };
        let zeros = UInt64Array::from(vec![0; rows.len()]);
        let counts = UInt64Array::from(rows.to_vec());
        ChunkStatistics {
            mins: bound(|b| &b.min),
            maxs: bound(|b| &b.max),
            min_exact: flag(|b| b.min_exact),
            max_exact: flag(|b| b.max_exact),
            nulls: if measured.is_some() { zeros.clone() } else { counts.clone() },
            distincts: UInt64Array::from(vec![u64::from(measured.is_some()); rows.len()]),
            stored_bytes: zeros.clone(),
            value_bytes: zeros,
            rows: counts,
        }
    }
}
