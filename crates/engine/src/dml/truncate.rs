//! `TRUNCATE`, and `DELETE` of everything.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::Truncate;
use thalweg_base::{Error, Result};
use thalweg_storage::{Summary, Table, Transaction};

use super::Job;
use super::target;
use crate::answer::Tag;
use crate::statement::Started;

pub async fn run(job: &Job<'_>, truncate: Truncate) -> Result<Started> {
    if truncate.partitions.is_some() || truncate.on_cluster.is_some() {
        return Err(Error::unsupported("TRUNCATE takes whole tables")
            .hint("DELETE FROM t WHERE … removes some rows"));
    }
    let mut tables = vec![];
    for name in truncate.table_names {
        match target::table(&job.snapshot, &name.name, "TRUNCATE") {
            Ok((schema, table)) => tables.push((schema, table)),
            Err(e) if truncate.if_exists && e.sqlstate() == "42P01" => {}
            Err(e) => return Err(e),
        }
    }
    clear(job, "TRUNCATE", tables).await?;
    Ok(Started::Done(Tag::Done("TRUNCATE TABLE".into())))
}

/// Removes all rows without reading any, and says how many there were.
pub async fn clear(
    job: &Job<'_>,
    operation: &'static str,
    tables: Vec<(String, Arc<Table>)>,
) -> Result<u64> {
    let rows = tables.iter().map(|(_, t)| t.rows()).sum();
    let change = move |transaction: &mut Transaction| {
        let names: Vec<String> = tables.iter().map(|(s, t)| format!("{s}.{}", t.name)).collect();
        let summary = Summary {
            operation: operation.into(),
            table: names.join(", "),
            rows_removed: rows,
            ..Summary::default()
        };
        for (_, table) in &tables {
            transaction.truncate(table.id)?;
        }
        transaction.describe(summary);
        Ok(())
    };
    job.session.transactions.write(change).await?;
    Ok(rows)
}
