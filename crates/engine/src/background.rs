//! What an engine does while nobody waits for it: it compacts tables that have changed.
//!
//! A table is looked at once it has been quiet for a moment, so that a row of loads is compacted once
//! and not after each; one that is never quiet, whenever it has grown by some extents. The work runs
//! under the scheduler like any query, with an estimate that lets every other go first.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use thalweg_base::TableId;
use thalweg_base::limits::{BACKGROUND_ESTIMATE_NS, BACKGROUND_EXTENTS, BACKGROUND_PERIOD_MS};
use thalweg_base::text::quoted;
use thalweg_scheduler::Priority;
use thalweg_storage::{CompactionScope, Database, Table};

use crate::maintain::compact;
use crate::runtime::{Origin, Run, Runtime, Terms};

/// Goes on until `runtime` ends.
pub fn start(runtime: &Runtime, database: &Database) {
    let (driver, workers) = (Arc::clone(runtime.driver()), runtime.handle().clone());
    let database = database.clone();
    runtime.control().spawn(async move {
        let mut watched: HashMap<TableId, Watched<Table>> = HashMap::new();
        loop {
            tokio::time::sleep(Duration::from_millis(BACKGROUND_PERIOD_MS)).await;
            let tables: Vec<Arc<Table>> = database.snapshot().tables().cloned().collect();
            watched.retain(|id, _| tables.iter().any(|t| t.id == *id));
            for table in tables {
                let extents = table.extents.len();
                if !watched.entry(table.id).or_default().is_due(&table, extents) {
                    continue;
                }
                let text = format!("OPTIMIZE TABLE {} (background)", quoted(&table.name));
                let terms = Terms { exempt: true, priority: Priority::Low, ..Terms::default() };
                let Ok(run) = Run::begin(&driver, Origin::new(None, &text), &terms) else {
                    continue;
                };
                driver.query_estimated(run.id(), BACKGROUND_ESTIMATE_NS, false);
                let database = database.clone();
                let work = async move {
                    compact(&database, table, CompactionScope::Worthwhile).await.map(drop)
                };
                // Whatever failed, be it that somebody changed the rows meanwhile: the table is
                // as good as before, and is looked at again after its next change.
                let _ = run.spawn(&workers, work).join().await;
            }
        }
    });
}

/// One table, as it has been seen: which version of it.
struct Watched<T> {
    /// The last time.
    before: Option<Arc<T>>,
    /// When it was last compacted, or found to be in no need of it.
    done: Option<Arc<T>>,
    /// The fewest extents that it has had since.
    fewest: usize,
}

impl<T> Default for Watched<T> {
    fn default() -> Self {
        Watched { before: None, done: None, fewest: 0 }
    }
}

impl<T> Watched<T> {
    /// Whether it is to be compacted now. To be asked at intervals.
    fn is_due(&mut self, now: &Arc<T>, extents: usize) -> bool {
        let is = |seen: &Option<Arc<T>>| seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, now));
        self.fewest = self.fewest.min(extents);
        let rests = is(&self.before) || extents >= self.fewest + BACKGROUND_EXTENTS;
        let due = rests && !is(&self.done);
        self.before = Some(Arc::clone(now));
        if due {
            self.done = Some(Arc::clone(now));
            self.fewest = extents;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;

    use super::*;
    use crate::config::Config;
    use crate::engine::Engine;

    #[test]
    fn a_table_is_due_when_it_rests_and_when_it_has_grown() {
        let mut watched = Watched::default();
        let version = || Arc::new(0);
        let first = version();
        assert!(!watched.is_due(&first, 0), "it has just been made");
        assert!(watched.is_due(&first, 0), "it rests");
        assert!(!watched.is_due(&first, 0), "it was looked at");
        assert!(!watched.is_due(&version(), BACKGROUND_EXTENTS - 1));
        let grown = version();
        assert!(watched.is_due(&grown, BACKGROUND_EXTENTS));
        assert!(!watched.is_due(&grown, BACKGROUND_EXTENTS), "there was nothing to gain");
        assert!(!watched.is_due(&version(), 3), "it was compacted");
        assert!(!watched.is_due(&version(), BACKGROUND_EXTENTS + 2));
        assert!(watched.is_due(&version(), BACKGROUND_EXTENTS + 3));
    }

    /// One insert after the other, without a pause: they are put together all the same.
    #[test]
    fn a_table_that_never_rests_is_compacted() {
        let config = Config { threads: 2, compacts: true, ..Config::default() };
        let engine = Engine::open(":memory:", config).unwrap();
        let session = engine.session();
        let extents = "SELECT count(*) FROM system.extents WHERE table_name = 't'";
        let number = |sql: &str| {
            let answer = async { session.query(sql).await?.collect().await };
            let batches = engine.block_on(answer).unwrap();
            batches[0].column(0).as_primitive::<Int64Type>().value(0)
        };
        engine.block_on(async { session.query("CREATE TABLE t (i int)").await.unwrap() });
        let (mut inserted, mut most) = (0, 0);
        let begun = std::time::Instant::now();
        let compacted = loop {
            for _ in 0..20 {
                engine.block_on(async { session.query("INSERT INTO t VALUES (1)").await.unwrap() });
                inserted += 1;
            }
            let now = number(extents);
            if now < most {
                break true;
            }
            most = now;
            if begun.elapsed() > Duration::from_secs(60) {
                break false;
            }
        };
        assert!(compacted, "{most} extents of {inserted} inserts");
        assert_eq!(number("SELECT count(*) FROM t"), inserted);
    }
}
