//! A table as one snapshot has it: its columns and its extents.

mod contents;

use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use roaring::RoaringBitmap;
use thalweg_base::{Error, ExtentId, Result, TableId};

use crate::catalog::LoadedFile;
use crate::digest::value_hashes;
use crate::extent::Extent;

pub use self::contents::{ChunkRef, Contents};

/// An immutable version of a table. A commit that touches the table makes a new one. This is what
/// the catalog's log says; what is in the chunks is in its [`Contents`].
pub struct Table {
    pub id: TableId,
    pub name: String,
    pub arrow_schema: SchemaRef,
    /// One per field of `arrow_schema`.
    pub columns: Arc<[Column]>,
    /// The id the next added column gets; ids are never used twice.
    pub(crate) next_column: u32,
    /// Columns the writers sort runs of rows by, most significant first.
    pub cluster_by: Vec<usize>,
    pub partition_by: Option<PartitionBy>,
    pub extents: Vec<TableExtent>,
    /// Files whose rows it has, sorted; only of loads that asked for it.
    pub loaded_files: Arc<[LoadedFile]>,
    contents: OnceLock<Arc<Contents>>,
}

/// What the catalog knows of a column beside its name and type.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Extents know their columns by it, so a column can be renamed, dropped and added without
    /// touching them.
    pub id: u32,
    /// The value, of length 1, in rows that are older than the column; `None`: NULL.
    pub initial: Option<ArrayRef>,
    /// What INSERT takes where no value is given: SQL text; `None`: NULL.
    pub default: Option<String>,
}

/// `PARTITION BY HASH (column) INTO buckets`: each extent has rows of one bucket only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionBy {
    pub column: usize,
    pub buckets: u32,
}

impl PartitionBy {
    /// The bucket of each value of the column, which must be of exactly its type. NULLs are in
    /// bucket 0. `None`: the type cannot be hashed.
    pub fn buckets_of(&self, values: &ArrayRef) -> Option<Vec<u32>> {
        let hashes = value_hashes(values)?;
        let bucket = |(i, hash): (usize, u64)| match values.is_null(i) {
            true => 0,
            false => self.bucket_of(hash),
        };
        Some(hashes.into_iter().enumerate().map(bucket).collect())
    }

    /// The bucket of values with this hash. Multiply-shift by the upper half: even for any number
    /// of buckets.
    pub(crate) fn bucket_of(&self, hash: u64) -> u32 {
        (((hash >> 32) * u64::from(self.buckets)) >> 32) as u32
    }

    /// The rows of each bucket.
    pub(crate) fn split(&self, batch: &RecordBatch) -> Result<Vec<Vec<u32>>> {
        let buckets = self
            .buckets_of(batch.column(self.column))
            .ok_or_else(|| Error::internal("a partition column that cannot be hashed"))?;
        let mut rows = vec![Vec::new(); self.buckets as usize];
        for (row, bucket) in (0..).zip(buckets) {
            rows[bucket as usize].push(row);
        }
        Ok(rows)
    }
}

/// An extent in a table, and which of its rows are deleted.
#[derive(Clone)]
pub struct TableExtent {
    pub extent: Arc<Extent>,
    pub deleted: Option<Arc<Deleted>>,
}

/// Positions of deleted rows in an extent; never empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Deleted(pub(crate) RoaringBitmap);

impl Deleted {
    pub fn rows(&self) -> u64 {
        self.0.len()
    }
}

impl TableExtent {
    pub(crate) fn new(extent: Arc<Extent>) -> Self {
        TableExtent { extent, deleted: None }
    }

    /// Rows that are not deleted.
    pub fn rows(&self) -> u64 {
        self.extent.rows - self.deleted.as_ref().map_or(0, |d| d.rows())
    }
}

/// How a table is to be made.
#[derive(Clone, Debug, Default)]
pub struct TableSpec {
    pub cluster_by: Vec<usize>,
    pub partition_by: Option<PartitionBy>,
    /// Per column SQL text; empty: none has any.
    pub defaults: Vec<Option<String>>,
}

impl Table {
    pub(crate) fn create(
        id: TableId,
        name: String,
        arrow_schema: SchemaRef,
        spec: TableSpec,
    ) -> Self {
        let count = arrow_schema.fields().len();
        let mut defaults = spec.defaults;
        defaults.resize(count, None);
        let columns = defaults
            .into_iter()
            .zip(0..)
            .map(|(default, id)| Column { id, initial: None, default })
            .collect();
        Table {
            id,
            name,
            arrow_schema,
            columns,
            next_column: count as u32,
            cluster_by: spec.cluster_by,
            partition_by: spec.partition_by,
            extents: Vec::new(),
            loaded_files: Arc::default(),
            contents: OnceLock::new(),
        }
    }

    /// A copy to be changed before anybody sees it.
    pub(crate) fn edit(&self) -> Table {
        Table {
            id: self.id,
            name: self.name.clone(),
            arrow_schema: self.arrow_schema.clone(),
            columns: self.columns.clone(),
            next_column: self.next_column,
            cluster_by: self.cluster_by.clone(),
            partition_by: self.partition_by,
            extents: self.extents.clone(),
            loaded_files: self.loaded_files.clone(),
            contents: OnceLock::new(),
        }
    }

    /// Whether two versions are the same but for their rows.
    pub(crate) fn same_definition(&self, other: &Table) -> bool {
        self.name == other.name
            && self.arrow_schema == other.arrow_schema
            && self.columns == other.columns
            && self.next_column == other.next_column
            && self.cluster_by == other.cluster_by
            && self.partition_by == other.partition_by
    }

    /// Whether two versions have the same rows.
    pub(crate) fn same_rows(&self, other: &Table) -> bool {
        self.extents.len() == other.extents.len()
            && self.extents.iter().zip(&other.extents).all(|(a, b)| {
                a.extent.id == b.extent.id && same_deleted(a.deleted.as_ref(), b.deleted.as_ref())
            })
    }

    pub fn rows(&self) -> u64 {
        self.extents.iter().map(TableExtent::rows).sum()
    }

    /// Rows that are deleted and still take space.
    pub fn deleted_rows(&self) -> u64 {
        self.extents.iter().filter_map(|e| e.deleted.as_ref()).map(|d| d.rows()).sum()
    }

    pub fn stored_bytes(&self) -> u64 {
        self.extents.iter().map(|e| e.extent.bytes).sum()
    }

    /// Chunks of all extents.
    pub fn chunks(&self) -> usize {
        self.extents.iter().map(|e| e.extent.chunks()).sum()
    }

    pub(crate) fn extent(&self, id: ExtentId) -> Option<usize> {
        self.extents.iter().position(|e| e.extent.id == id)
    }

    /// What is in the chunks. The first call reads the metadata of extents that nobody has looked
    /// into yet, and blocks on the store; then it is kept.
    pub fn contents(&self) -> Result<Arc<Contents>> {
        if let Some(contents) = self.contents.get() {
            return Ok(contents.clone());
        }
        let contents = Arc::new(Contents::open(self)?);
        Ok(self.contents.get_or_init(|| contents).clone())
    }

    /// Whether [`Table::contents`] returns without reading anything.
    pub fn is_open(&self) -> bool {
        self.contents.get().is_some() || self.extents.iter().all(|e| e.extent.is_open())
    }
}

pub(crate) fn same_deleted(a: Option<&Arc<Deleted>>, b: Option<&Arc<Deleted>>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
        _ => false,
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table {:?} ({} rows in {} extents)", self.name, self.rows(), self.extents.len())
    }
}
