//! `VACUUM` and `OPTIMIZE TABLE`.

mod compact;

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::sql::sqlparser::ast::{Statement, VacuumStatement};
use thalweg_base::{Error, Result};
use thalweg_storage::CompactionScope;

pub(crate) use self::compact::compact;
use crate::dml::{Job, target};
use crate::statement::Started;
use crate::titles::Titles;
use thalweg_errors::{from_arrow, from_datafusion};
use thalweg_runtime::blocking;

pub async fn run(job: &Job<'_>, statement: &Statement) -> Result<Started> {
    job.session.transactions.check_writable()?;
    match statement {
        Statement::Vacuum(vacuum) => self::vacuum(job, vacuum).await,
        _ => optimize(job, statement).await,
    }
}

/// Removes the files of all tables that no snapshot needs that may be asked for.
async fn vacuum(job: &Job<'_>, vacuum: &VacuumStatement) -> Result<Started> {
    job.session.transactions.check_idle("VACUUM")?;
    let VacuumStatement { sort_only, delete_only, reindex, recluster, threshold, boost, .. } =
        vacuum;
    if *sort_only || *delete_only || *reindex || *recluster || threshold.is_some() || *boost {
        return Err(Error::unsupported("VACUUM takes no options")
            .hint("VACUUM removes files; OPTIMIZE TABLE t writes a table's rows anew"));
    }
    if let Some(name) = &vacuum.table_name {
        target::table(&job.snapshot, name, "VACUUM")?;
    }
    let database = job.session.engine.database().clone();
    let done = blocking(move || database.vacuum()).await.map_err(from_datafusion)?;
    row(job, &VACUUMED, &[done.extents, done.bytes, done.log_objects])
}

const VACUUMED: [&str; 3] = ["removed_extents", "removed_bytes", "removed_log_objects"];

const OPTIMIZED: [&str; 6] =
    ["extents_before", "extents_after", "bytes_before", "bytes_after", "rows", "removed_rows"];

/// The columns of what such a statement gives; `None` if the statement is another.
pub fn answer(statement: &Statement) -> Option<SchemaRef> {
    match statement {
        Statement::Vacuum(_) => Some(schema(&VACUUMED)),
        Statement::OptimizeTable { .. } => Some(schema(&OPTIMIZED)),
        _ => None,
    }
}

fn schema(names: &[&str]) -> SchemaRef {
    let fields = names.iter().map(|name| Field::new(*name, DataType::UInt64, false));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// One row of numbers.
fn row(job: &Job<'_>, names: &[&str], values: &[u64]) -> Result<Started> {
    let schema = schema(names);
    let columns = values.iter().map(|value| Arc::new(UInt64Array::from(vec![*value])) as ArrayRef);
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns.collect());
    let batch = batch.map_err(|e| from_arrow(&e))?;
    let exec = MemorySourceConfig::try_new_exec(&[vec![batch]], schema, None);
    Ok(Started::Rows(
        exec.map_err(from_datafusion)?,
        Titles::default(),
        Box::new(job.state.clone()),
    ))
}

/// Writes a table's extents anew where that makes fewer of them, without deleted rows and in the
/// table's order. Readers never notice; a writer that changes the same rows meanwhile wins.
async fn optimize(job: &Job<'_>, statement: &Statement) -> Result<Started> {
    job.session.transactions.check_idle("OPTIMIZE TABLE")?;
    let Statement::OptimizeTable {
        name,
        partition: None,
        deduplicate: None,
        predicate: None,
        zorder: None,
        on_cluster: None,
        ..
    } = statement
    else {
        return Err(Error::unsupported("OPTIMIZE TABLE takes a table and nothing else")
            .hint("ALTER TABLE t CLUSTER BY (columns) says in which order its rows are written"));
    };
    let (_, table) = target::table(&job.snapshot, name, "OPTIMIZE TABLE")?;
    let done =
        compact(job.session.engine.database(), table, CompactionScope::Everything, false).await?;
    let done = done.unwrap_or_default();
    let extents = [done.extents_before, done.extents_after];
    let bytes = [done.bytes_before, done.bytes_after];
    row(job, &OPTIMIZED, &[&extents[..], &bytes, &[done.rows, done.rows_removed]].concat())
}
