//! `RETURNING`: a query over the rows a statement has changed, answered before it commits, so
//! that an error in it undoes the statement.

use std::sync::Arc;

use arrow::array::{RecordBatch, UInt64Array};
use arrow::compute::{cast, take_record_batch};
use arrow::datatypes::SchemaRef;
use datafusion::datasource::MemTable;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::sql::sqlparser::ast::{Ident, Query, SelectItem};
use futures::StreamExt;
use thalweg_base::Result;

use thalweg_errors::{from_arrow, from_datafusion};

use super::Job;
use super::apply::{self, Kept};
use super::target::{self, Target, alone, select};
use crate::statement::Started;
use crate::titles::Titles;

/// Some rows of a batch, whose columns from `first` on are the table's.
pub fn rows_of(
    batch: &RecordBatch,
    first: usize,
    rows: Vec<u64>,
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    // Queries give instants the session's zone, and tables store them in UTC.
    let columns = batch.columns()[first..].iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast(column, field.data_type()));
    let columns =
        columns.collect::<std::result::Result<Vec<_>, _>>().map_err(|e| from_arrow(&e))?;
    let batch = RecordBatch::try_new(Arc::clone(schema), columns).map_err(|e| from_arrow(&e))?;
    take_record_batch(&batch, &UInt64Array::from(rows)).map_err(|e| from_arrow(&e))
}

/// The same columns of all rows of the table: to describe the answer before there is one. The
/// table stands here as a query reads it: `*` is its columns, and not the ids of its rows.
pub fn query(target: &Target, mut items: Vec<SelectItem>) -> Query {
    target.unqualify(&mut items);
    let part = |text: &str| Ident::with_quote('"', text);
    let name = vec![part(&target.schema), part(&target.table.name)];
    let factor = target::named(name.into(), Some(part(&target.alias)));
    select(None, items, vec![alone(factor)], None)
}

/// The answer of a statement with RETURNING; `None` if it has none.
pub async fn answer(
    job: &Job<'_>,
    target: &Target,
    items: Option<Vec<SelectItem>>,
    kept: Option<Kept>,
) -> Result<Option<Started>> {
    let (Some(mut items), Some(kept)) = (items, kept) else { return Ok(None) };
    target.unqualify(&mut items);
    let schema = Arc::clone(&target.table.arrow_schema);
    let rows = MemTable::try_new(schema, vec![kept.batches.clone()]).map_err(from_datafusion)?;
    let offered = job.session.catalog.offer(Arc::new(rows));
    let name = Ident::with_quote('"', offered.name()).into();
    let factor = target::named(name, Some(Ident::with_quote('"', &target.alias)));
    let plan = apply::plan(job, select(None, items, vec![alone(factor)], None)).await?;
    let mut stream = apply::run(job, &plan).await?;
    let mut answer = Kept::new(job);
    while let Some(batch) = stream.next().await {
        answer.push(batch.map_err(from_datafusion)?)?;
    }
    let exec = MemorySourceConfig::try_new_exec(&[answer.batches], stream.schema(), None);
    let exec = exec.map_err(from_datafusion)?;
    Ok(Some(Started::Rows(exec, Titles::default(), Box::new(job.state.clone()))))
}
