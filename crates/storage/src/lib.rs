//! Tables on disk: immutable extents of compressed chunks, a catalog that says which of them a
//! table has and what is in them, and snapshots that keep readers and writers out of each
//! other's way.
//!
//! A [`Database`] is a directory, or a prefix of an object store:
//! ```text
//! shop/
//!   log/00000000000000000012.commit      which tables and extents there are, as a log of commits
//!   log/00000000000000000010.checkpoint
//!   extents/5f3a9c0d12e45b67.vortex      rows: chunks of 64 Ki rows, column by column, compressed
//! ```
//! Readers take a [`Snapshot`], skip chunks of a table's [`Contents`] by [`ChunkStatistics`], and
//! fetch the columns of the rest: [`Database::cached`], else [`Database::read`] (blocks on the
//! store) and [`Database::decode`] (takes the processor); whoever needs a column as the field's own type, and not
//! a dictionary or narrower numbers, [`expand`]s it. Writers fill an [`ExtentWriter`] and
//! commit its extents in a [`Transaction`].
//!
//! ```
//! use std::sync::Arc;
//! use arrow::array::{Array, Int64Array, RecordBatch};
//! use arrow::datatypes::{DataType, Field, Schema};
//! use thalweg_storage::{Database, Layout, Options, TableSpec};
//!
//! # fn main() -> thalweg_base::Result<()> {
//! let db = Database::memory(Options::default())?;
//! let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
//!
//! let mut transaction = db.begin();
//! let spec = TableSpec::default();
//! let mut writer = db.extent_writer(Layout::of_new(schema.clone(), &spec));
//! let table = transaction.create_table("public", "numbers", schema.clone(), spec)?;
//! let rows = Int64Array::from_iter(0..100_000);
//! writer.push(&RecordBatch::try_new(schema, vec![Arc::new(rows)]).unwrap())?;
//! writer.flush()?;
//! while writer.step()? {}
//! transaction.append(table, writer.finish()?)?;
//! let snapshot = transaction.commit()?;
//!
//! let table = snapshot.table("public", "numbers").unwrap();
//! let contents = table.contents()?;
//! assert_eq!((contents.rows(), contents.chunks()), (100_000, 2));
//! assert_eq!(contents.column_statistics(0).nulls, 0);
//! let last = contents.chunk(1);
//! for segment in db.read(&last, &[0])? {
//!     assert_eq!(db.decode(segment)?.len(), last.rows);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! It knows no SQL and no async runtime: every function is synchronous, and says whether it may
//! block. In reading order:
//!
//! * `database`: opening, committing, recovery
//! * `snapshot`, `table`, `contents`: what a reader sees
//! * `transaction`, `rebase`: the operations, and which of them conflict
//! * `catalog`: how all that is stored: `record`, `replay`, `log`
//! * `extent`: the files of rows: `writer`, `sort`, `codec`, `metadata`, `reader`
//! * `compact`: rewriting extents into better ones
//! * `store`: where files lie
//! * `check`: whether all of it is as it was written
//! * `backup`: a copy of a snapshot, and back; `pin` keeps the snapshot meanwhile
//! * `statistics`, `hll`, `digest`: what is known without reading
//! * `encoded`: the forms decoded columns have; `cache`: keeps them
//! * `types`: what a column may be; `floats`: one zero and one NaN;
//!   `lengths`: `varchar(n)`
//! * [`load`]: reading the files that rows come from

mod backup;
mod cache;
mod catalog;
mod check;
mod compact;
mod database;
mod digest;
mod direct_io;
mod encoded;
mod extent;
mod floats;
#[cfg(any(test, feature = "simulation"))]
#[doc(hidden)]
pub mod fuzzing;
mod hll;
mod lengths;
pub mod load;
mod location;
mod pin;
pub mod properties;
mod rebase;
mod snapshot;
mod statistics;
mod store;
mod table;
mod transaction;
mod types;

pub use backup::{
    BackupInfo, BackupReport, CopyProgress, RestoreReport, backups, restore, verify_backup,
};
pub use cache::{CacheStats, Key as ChunkColumn};
pub use catalog::{CommitInfo, LoadedFile, Summary};
pub use check::{CheckProgress, CheckReport};
pub use compact::{Compacted, Compaction, CompactionPiece, CompactionScope};
pub use database::{AsOf, Database, Hold, Options, RETENTION_PROPERTY, Vacuumed};
pub use digest::{Digests, value_hashes};
pub use direct_io::DirectIo;
pub use encoded::expand;
pub use extent::{Extent, ExtentWriter, Layout, NewExtent, Segment, Writing};
pub use floats::{canonical as canonical_floats, canonical_f32, canonical_f64};
pub use lengths::{TextLength, fit as fit_text};
pub use snapshot::{External, PUBLIC, RelationKind, Schema, Snapshot, View};
pub use statistics::{BOUND_BYTES_MAX, ChunkStatistics, ColumnStatistics};
pub use store::{RemoteOptions, is_remote};
pub use table::{ChunkRef, Column, Contents, Deleted, PartitionBy, Table, TableExtent, TableSpec};
pub use transaction::{RowSet, Transaction};
pub use types::{check_schema, storable, stored_schema, stored_type};
