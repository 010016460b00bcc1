//! What an engine does while nobody waits for it: it compacts tables that have changed.
//!
//! A table is looked at once its database has been quiet for a moment, so that a row of loads is
//! compacted once and not after each. The work runs under the scheduler like any query, with an
//! estimate that lets every other go first.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use thalweg_base::limits::{BACKGROUND_ESTIMATE_NS, BACKGROUND_PERIOD_MS};
use thalweg_base::text::quoted;
use thalweg_base::{SnapshotId, TableId};
use thalweg_scheduler::Priority;
use thalweg_storage::{CompactionScope, Database, Table};

use crate::maintain::compact;
use crate::runtime::{Origin, Run, Runtime, Terms};

/// Goes on until `runtime` ends.
pub fn start(runtime: &Runtime, database: &Database) {
    let (driver, workers) = (Arc::clone(runtime.driver()), runtime.handle().clone());
    let database = database.clone();
    runtime.control().spawn(async move {
        let mut before = database.snapshot().id;
        let mut done = SnapshotId(0);
        let mut seen: HashMap<TableId, Arc<Table>> = HashMap::new();
        loop {
            tokio::time::sleep(Duration::from_millis(BACKGROUND_PERIOD_MS)).await;
            let snapshot = database.snapshot();
            let quiet = std::mem::replace(&mut before, snapshot.id) == snapshot.id;
            if !quiet || done == snapshot.id {
                continue;
            }
            done = snapshot.id;
            let tables: Vec<Arc<Table>> = snapshot.tables().cloned().collect();
            seen.retain(|id, _| tables.iter().any(|t| t.id == *id));
            drop(snapshot);
            for table in tables {
                if seen.get(&table.id).is_some_and(|seen| Arc::ptr_eq(seen, &table)) {
                    continue;
                }
                seen.insert(table.id, Arc::clone(&table));
                let text = format!("OPTIMIZE TABLE {} (background)", quoted(&table.name));
                let terms = Terms { exempt: true, priority: Priority::Low, ..Terms::default() };
                let Ok(run) = Run::begin(&driver, Origin::new(None, &text), &terms) else {
                    continue;
                };
                driver.query_estimated(run.id(), BACKGROUND_ESTIMATE_NS);
                let database = database.clone();
                let work = async move {
                    compact(&database, table, CompactionScope::Worthwhile).await.map(drop)
                };
                // Whatever failed, be it that somebody changed the rows meanwhile: the table is
                // as good as before, and is looked at again after its next change.
                let _ = run.spawn(&workers, work).await;
            }
        }
    });
}
