//! Tables on disk: immutable extents of compressed chunks, a catalog that says which of them a
//! table has and what is in them, and snapshots that keep readers and writers out of each
//! other's way.
//!
//! A [`Database`] is a directory:
//! ```text
//! shop/
//!   catalog.redb            schemas, tables, views; of every extent its chunks and statistics
//!   extents/00000007.vortex rows: chunks of 64 Ki rows, column by column, compressed
//! ```
//! Readers take a [`Snapshot`], skip chunks by [`ChunkStatistics`], and fetch the columns of the
//! rest: [`Database::cached`], else [`Database::read`] (blocks on the disk) and
//! [`Database::decode`] (takes the processor). Writers fill an [`ExtentWriter`] and commit its
//! extents in a [`Transaction`].
//!
//! ```
//! use std::sync::Arc;
//! use arrow::array::{Array, Int64Array, RecordBatch};
//! use arrow::datatypes::{DataType, Field, Schema};
//! use thalweg_storage::{Database, Options};
//!
//! # fn main() -> thalweg_base::Result<()> {
//! let db = Database::memory(Options::default())?;
//! let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
//!
//! let mut transaction = db.begin();
//! let table = transaction.create_table("public", "numbers", schema.clone(), vec![])?;
//! let mut writer = db.extent_writer(schema.clone(), &[])?;
//! let rows = Int64Array::from_iter(0..100_000);
//! writer.push(&RecordBatch::try_new(schema, vec![Arc::new(rows)]).unwrap())?;
//! writer.flush()?;
//! while writer.step()? {}
//! transaction.append(table, writer.finish()?)?;
//! let snapshot = transaction.commit()?;
//!
//! let table = snapshot.table("public", "numbers").unwrap();
//! assert_eq!((table.rows(), table.chunks()), (100_000, 2));
//! assert_eq!(table.column_statistics(0).nulls, 0);
//! let last = table.chunk(1);
//! for segment in db.read(&last.extent, last.chunk, &[0])? {
//!     assert_eq!(db.decode(segment)?.len() as u64, last.rows);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! It knows no SQL and no async runtime: every function is synchronous, and says whether it may
//! block. In reading order:
//!
//! * `database`: opening, committing, recovery
//! * `snapshot`, `table`: what a reader sees
//! * `transaction`: the operations, and which of them conflict
//! * `catalog`: how all that is stored
//! * `extent`: the files of rows: `writer`, `sort`, `codec`, `file`, `reader`
//! * `statistics`, `hll`: what is known without reading
//! * `cache`: decoded chunks
//! * `types`: what a column may be
//! * [`load`]: reading the files that rows come from

mod cache;
mod catalog;
mod database;
mod extent;
mod hll;
pub mod load;
mod snapshot;
mod statistics;
mod table;
mod transaction;
mod types;

pub use cache::CacheStats;
pub use database::{Database, Options, machine_memory_bytes};
pub use extent::{Extent, ExtentWriter, NewExtent, Segment};
pub use snapshot::{External, PUBLIC, RelationKind, Schema, Snapshot, View};
pub use statistics::{BOUND_BYTES_MAX, ChunkStatistics, ColumnStatistics};
pub use table::{ChunkRef, Table};
pub use transaction::Transaction;
pub use types::{storable, stored_schema, stored_type};
