//! The compaction of a table, in steps that give way.

use std::sync::Arc;

use thalweg_base::Result;
use thalweg_errors::from_datafusion;
use thalweg_runtime::{blocking, checkpoint};
use thalweg_storage::{Compacted, Compaction, CompactionScope, Database, Table};

/// Runs a compaction, giving way between its steps. `None`: there was nothing to gain, or it was to give
/// way at its end to a transaction that is open.
pub(crate) async fn compact(
    database: &Database,
    table: Arc<Table>,
    scope: CompactionScope,
    gives_way: bool,
) -> Result<Option<Compacted>> {
    let database = database.clone();
    let begun = blocking(move || Compaction::begin(&database, &table, scope)).await;
    let Some(mut compaction) = begun.map_err(from_datafusion)? else { return Ok(None) };
    loop {
        let (next, piece) = blocking(move || {
            let piece = compaction.fetch()?;
            Ok((compaction, piece))
        })
        .await
        .map_err(from_datafusion)?;
        compaction = next;
        let Some(piece) = piece else { break };
        compaction.take(piece)?;
        while compaction.work()? {
            checkpoint().await;
        }
        checkpoint().await;
    }
    blocking(move || compaction.finish(gives_way)).await.map_err(from_datafusion)
}
