//! From a query's rows to a change of a table.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, Query};
use thalweg_base::limits::{BATCH_ROWS, HELD_BYTES_MAX};
use thalweg_base::{Error, Result};
use thalweg_storage::{Layout, NewExtent, RowSet, Summary, Table, Transaction};

use super::Job;
use super::target::Target;
use crate::bound;
use crate::ddl;
use crate::statement;
use crate::write::{self, Writers};
use crate::zoned;
use thalweg_errors::from_datafusion;

pub async fn plan(job: &Job<'_>, query: Query) -> Result<LogicalPlan> {
    let query = Statement::Statement(Box::new(ast::Statement::Query(Box::new(query))));
    statement::plan(job.state, query).await.map_err(from_datafusion)
}

/// The plan of a query whose columns are the first `before`, and then, so many `times`, values for those of
/// the table: what such a column gets is what the binder says for INSERT.
pub async fn plan_rows(
    job: &Job<'_>,
    query: Query,
    before: usize,
    table: &Table,
    times: usize,
) -> Result<LogicalPlan> {
    let query = Statement::Statement(Box::new(ast::Statement::Query(Box::new(query))));
    // Clocks become instants by those of the session's zone, whatever zone the stored ones have.
    let zone = job.state.config_options().execution.time_zone.as_deref();
    let schema = zoned::shown(&table.arrow_schema, zone);
    let fields = schema.as_ref().unwrap_or(&table.arrow_schema).fields();
    let mut types = vec![None; before];
    for _ in 0..times {
        types.extend(fields.iter().map(|field| Some(field.data_type().clone())));
    }
    bound::assigned(job.state, &query, &types).await.map_err(from_datafusion)
}

pub async fn run(job: &Job<'_>, plan: &LogicalPlan) -> Result<SendableRecordBatchStream> {
    let physical = statement::physical(job.run, job.state, plan).await?;
    statement::execute(job.run, job.state, physical).await
}

/// The ids in the first column. An id that is NULL is a mistake of the query that was built.
pub fn ids(batch: &RecordBatch) -> Result<&[u64]> {
    let column = batch.column(0).as_primitive_opt::<UInt64Type>();
    match column {
        Some(column) if column.nulls().is_none_or(|n| n.null_count() == 0) => Ok(column.values()),
        _ => Err(Error::internal("a query for row ids gave none")),
    }
}

/// Takes rows on their way into a table, and keeps them where RETURNING asks for them.
pub struct Appender {
    table: Arc<Table>,
    writers: Writers,
    kept: Option<Kept>,
    /// The first rows, as long as the open transaction may hold them.
    small: Option<Small>,
}

#[derive(Default)]
struct Small {
    batches: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
}

/// Rows that are written already, or so few that the transaction holds them.
pub enum Added {
    Extents(Vec<NewExtent>),
    Held(Vec<RecordBatch>),
}

/// Rows for RETURNING. They count as memory of the query.
pub struct Kept {
    pub batches: Vec<RecordBatch>,
    memory: MemoryReservation,
}

impl Kept {
    pub fn new(job: &Job<'_>) -> Self {
        let pool = &job.run.memory();
        Kept { batches: vec![], memory: MemoryConsumer::new("RETURNING").register(pool) }
    }

    pub fn push(&mut self, batch: RecordBatch) -> Result<()> {
        self.memory.try_grow(batch.get_array_memory_size()).map_err(from_datafusion)?;
        self.batches.push(batch);
        Ok(())
    }
}

impl Appender {
    pub fn new(job: &Job<'_>, table: &Arc<Table>, keep: bool) -> Self {
        let engine = &job.session.engine;
        Appender {
            table: Arc::clone(table),
            writers: Writers::new(
                write::Target { database: engine.database().clone(), layout: Layout::of(table) },
                engine.config().threads,
            ),
            kept: keep.then(|| Kept::new(job)),
            small: None,
        }
    }

    /// Writes nothing as long as there are few rows: the open transaction will hold them.
    pub fn holding(mut self) -> Self {
        self.small = Some(Small::default());
        self
    }

    /// Columns in the order of the table's, of any type that casts to theirs.
    pub async fn push(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let batch = ddl::conform(columns, &self.table.arrow_schema)?;
        if let Some(kept) = &mut self.kept {
            kept.push(batch.clone())?;
        }
        if let Some(small) = &mut self.small {
            small.rows += batch.num_rows();
            small.bytes += batch.get_array_memory_size();
            small.batches.push(batch);
            if small.rows > BATCH_ROWS || small.bytes > HELD_BYTES_MAX {
                self.write_small().await?;
            }
            return Ok(());
        }
        self.writers.push(batch).await
    }

    /// There are more rows than can be held.
    async fn write_small(&mut self) -> Result<()> {
        for batch in self.small.take().unwrap_or_default().batches {
            self.writers.push(batch).await?;
        }
        Ok(())
    }

    pub async fn finish(mut self) -> Result<(Vec<NewExtent>, u64, Option<Kept>)> {
        self.write_small().await?;
        let (extents, rows) = self.writers.finish().await?;
        Ok((extents, rows, self.kept))
    }

    /// The same of an INSERT, whose rows may be held.
    pub async fn finish_insert(mut self) -> Result<(Added, u64, Option<Kept>)> {
        if let Some(small) = self.small.take() {
            return Ok((Added::Held(small.batches), small.rows as u64, self.kept));
        }
        let (extents, rows, kept) = self.finish().await?;
        Ok((Added::Extents(extents), rows, kept))
    }
}

/// What a statement does to a table's rows.
pub struct Delta {
    pub operation: &'static str,
    pub started: Instant,
    /// Rows of the version that was read.
    pub deleted: RowSet,
    pub added: Vec<NewExtent>,
    pub added_rows: u64,
    /// Nothing of the table is left but `added`.
    pub overwrite: bool,
}

impl Delta {
    pub fn new(operation: &'static str) -> Self {
        Delta {
            operation,
            started: Instant::now(),
            deleted: RowSet::default(),
            added: vec![],
            added_rows: 0,
            overwrite: false,
        }
    }

    pub async fn commit(self, job: &Job<'_>, target: &Target) -> Result<()> {
        if !self.overwrite && self.deleted.is_empty() && self.added.is_empty() {
            return job.session.transactions.check_writable();
        }
        // Those that came before stay before.
        job.session.transactions.settle().await?;
        let table = Arc::clone(&target.table);
        let summary = self.summary(target);
        let change = move |transaction: &mut Transaction| {
            if self.overwrite {
                transaction.replace(table.id, self.added)?;
            } else {
                transaction.delete(&table, &self.deleted)?;
                transaction.append(table.id, self.added)?;
            }
            transaction.describe(summary);
            Ok(())
        };
        job.session.transactions.write(change).await
    }

    /// Hands rows of an INSERT to the open transaction, which writes them later.
    pub async fn hold(
        self,
        job: &Job<'_>,
        target: &Target,
        batches: Vec<RecordBatch>,
    ) -> Result<()> {
        let summary = self.summary(target);
        job.session.transactions.hold(&target.table, batches, summary).await
    }

    fn summary(&self, target: &Target) -> Summary {
        let removed = if self.overwrite { target.table.rows() } else { self.deleted.len() };
        Summary {
            operation: self.operation.into(),
            table: format!("{}.{}", target.schema, target.table.name),
            rows_added: self.added_rows,
            rows_removed: removed,
            millis: self.started.elapsed().as_millis() as u64,
            ..Summary::default()
        }
    }
}
