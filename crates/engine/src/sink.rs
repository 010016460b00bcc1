//! `INSERT INTO` a stored table, as `EXPLAIN [ANALYZE]` runs it: rows become extents, the extents
//! one commit.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::Result;
use datafusion::datasource::sink::DataSink;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType};
use futures::StreamExt;
use thalweg_base::TableId;
use thalweg_storage::{Summary, Transaction};

use crate::transaction::Transactions;
use crate::write::{Target, Writers};
use thalweg_errors::into_datafusion;

pub struct TableSink {
    pub target: Target,
    pub table: TableId,
    pub name: String,
    /// Replace the table's rows instead of adding to them.
    pub overwrite: bool,
    pub writers: usize,
    pub transactions: Arc<Transactions>,
}

impl fmt::Debug for TableSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableSink({})", self.name)
    }
}

impl DisplayAs for TableSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableSink: table={}, writers={}", self.name, self.writers)
    }
}

#[async_trait]
impl DataSink for TableSink {
    fn schema(&self) -> &SchemaRef {
        &self.target.layout.schema
    }

    async fn write_all(
        &self,
        mut data: SendableRecordBatchStream,
        _: &Arc<TaskContext>,
    ) -> Result<u64> {
        let mut writers = Writers::new(self.target.clone(), self.writers);
        while let Some(batch) = data.next().await {
            writers.push(batch?).await.map_err(into_datafusion)?;
        }
        let (extents, rows) = writers.finish().await.map_err(into_datafusion)?;
        let (table, overwrite, name) = (self.table, self.overwrite, self.name.clone());
        let change = move |transaction: &mut Transaction| {
            if overwrite {
                transaction.replace(table, extents)?;
            } else {
                transaction.append(table, extents)?;
            }
            let operation = if overwrite { "INSERT OVERWRITE" } else { "INSERT" };
            transaction.describe(Summary {
                operation: operation.into(),
                table: name,
                rows_added: rows,
                ..Summary::default()
            });
            Ok(())
        };
        self.transactions.write(change).await.map_err(into_datafusion)?;
        Ok(rows)
    }
}
