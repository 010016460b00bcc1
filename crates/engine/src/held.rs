//! Rows of small inserts that the open transaction holds in memory.
//!
//! An extent is a file, and a file must be durable before a commit names it. A transaction of many small
//! inserts would make as many files, wait for the disk each time, and have a list of extents that grows
//! with every statement. So their rows wait here until something reads what the transaction has changed,
//! until it ends or is marked by a savepoint, or until there are enough of them; then they become one
//! extent of each table.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use thalweg_base::limits::{BATCH_ROWS, CHUNK_ROWS_MAX, HELD_BYTES_MAX};
use thalweg_base::{Result, TableId};
use thalweg_storage::{Database, Layout, NewExtent, Summary, Table};

use crate::write::{self, Target};
use thalweg_errors::{from_arrow, from_datafusion};

#[derive(Default)]
pub struct Held {
    tables: Vec<OfTable>,
    rows: usize,
    bytes: usize,
}

/// Rows of one table, as it was when the first of them came.
struct OfTable {
    table: Arc<Table>,
    batches: Vec<RecordBatch>,
    /// Of each statement.
    summaries: Vec<Summary>,
}

/// What becomes part of a transaction.
pub struct Written {
    pub table: TableId,
    pub extents: Vec<NewExtent>,
    pub summaries: Vec<Summary>,
}

impl Held {
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Whether there are enough of them to be written.
    pub fn is_full(&self) -> bool {
        self.rows >= CHUNK_ROWS_MAX || self.bytes >= HELD_BYTES_MAX
    }

    /// Rows that have the columns of the table.
    pub fn add(&mut self, table: &Arc<Table>, batches: Vec<RecordBatch>, summary: Summary) {
        self.rows += batches.iter().map(RecordBatch::num_rows).sum::<usize>();
        self.bytes += batches.iter().map(RecordBatch::get_array_memory_size).sum::<usize>();
        match self.tables.iter_mut().find(|held| held.table.id == table.id) {
            Some(held) => {
                held.batches.extend(batches);
                held.summaries.push(summary);
            }
            None => {
                let (table, summaries) = (Arc::clone(table), vec![summary]);
                self.tables.push(OfTable { table, batches, summaries });
            }
        }
    }

    /// Makes extents of them, which are durable afterwards.
    pub async fn write(self, database: &Database) -> Result<Vec<Written>> {
        let mut all = vec![];
        for OfTable { table, batches, summaries } in self.tables {
            let target = Target { database: database.clone(), layout: Layout::of(&table) };
            let rows = concat_batches(&table.arrow_schema, &batches).map_err(|e| from_arrow(&e))?;
            drop(batches);
            let mut writer = target.writer();
            for start in (0..rows.num_rows()).step_by(BATCH_ROWS) {
                let part = rows.slice(start, BATCH_ROWS.min(rows.num_rows() - start));
                write::push(&mut writer, &part).await.map_err(from_datafusion)?;
            }
            let extents = write::finish(writer).await.map_err(from_datafusion)?;
            all.push(Written { table: table.id, extents, summaries });
        }
        Ok(all)
    }
}
