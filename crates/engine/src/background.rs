//! What an engine does while nobody waits for it: it compacts tables that have changed.
//!
//! A table is looked at once it has been quiet for a moment, so that a row of loads is compacted once
//! and not after each; one that is never quiet, whenever it has grown by some extents. The work runs
//! under the scheduler like any query, with an estimate that lets every other go first.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use thalweg_base::TableId;
use thalweg_base::limits::{
    BACKGROUND_ESTIMATE_NS, BACKGROUND_EXTENTS, BACKGROUND_PERIOD_MS, BACKGROUND_PERIODS_OF_GRACE,
};
use thalweg_base::text::quoted;
use thalweg_scheduler::Priority;
use thalweg_storage::{CompactionScope, Database, Table};

use thalweg_runtime::{Origin, Run, Runtime, Terms};

use crate::maintain::compact;

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
                let seen = watched.entry(table.id).or_default();
                if !seen.is_due(&table, extents) {
                    continue;
                }
                let gives_way = seen.gives_way();
                if gives_way && database.is_held() {
                    seen.postpone();
                    continue;
                }
                let text = format!("OPTIMIZE TABLE {} (background)", quoted(&table.name));
                let terms = Terms { exempt: true, priority: Priority::Low, ..Terms::default() };
                let Ok(run) = Run::begin(&driver, Origin::new(None, &text), &terms) else {
                    continue;
                };
                driver.query_estimated(run.id(), BACKGROUND_ESTIMATE_NS, false);
                let of = database.clone();
                let work = async move {
                    compact(&of, table, CompactionScope::Worthwhile, gives_way).await
                };
                // Whatever failed, be it that somebody changed the rows meanwhile: the table is
                // as good as before, and is looked at again after its next change.
                let done = run.spawn(&workers, work).join().await;
                match done {
                    Ok(Ok(None)) if gives_way && database.is_held() => seen.postpone(),
                    _ => seen.postponed = 0,
                }
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
    /// For how many periods its compaction has given way to open transactions.
    postponed: u32,
}

impl<T> Default for Watched<T> {
    fn default() -> Self {
        Watched { before: None, done: None, fewest: 0, postponed: 0 }
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

    /// Whether transactions that are open come first.
    fn gives_way(&self) -> bool {
        self.postponed < BACKGROUND_PERIODS_OF_GRACE
    }

    /// It was due and has not been compacted: it is due in the next period as well.
    fn postpone(&mut self) {
        self.done = None;
        self.fewest = 0;
        self.postponed += 1;
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;

    use thalweg_base::limits::COMPACT_EXTENTS_MIN;

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

    #[test]
    fn what_was_postponed_is_due_again_and_not_postponed_for_ever() {
        let mut watched = Watched::default();
        let first = Arc::new(0);
        watched.is_due(&first, BACKGROUND_EXTENTS);
        for _ in 0..BACKGROUND_PERIODS_OF_GRACE {
            assert!(watched.gives_way());
            watched.postpone();
            assert!(watched.is_due(&first, BACKGROUND_EXTENTS));
        }
        assert!(!watched.gives_way());
        watched.postpone();
        assert!(watched.is_due(&Arc::new(1), BACKGROUND_EXTENTS), "it changes all the time");
    }

    /// Without a second writer there is nothing that a transaction could conflict with.
    #[test]
    fn an_open_transaction_can_change_the_rows_that_it_saw() {
        let config = Config { threads: 2, compacts: true, ..Config::default() };
        let engine = Engine::open(":memory:", config).unwrap();
        let session = engine.session();
        let run = |sql: &str| engine.block_on(async { session.query(sql).await?.collect().await });
        let number =
            |sql: &str| run(sql).unwrap()[0].column(0).as_primitive::<Int64Type>().value(0);
        run("CREATE TABLE t (i int)").unwrap();
        run("BEGIN").unwrap();
        let inserted = COMPACT_EXTENTS_MIN as i64 * 2;
        let other = engine.session();
        for _ in 0..inserted {
            let sql = "INSERT INTO t VALUES (1)";
            engine.block_on(async { other.query(sql).await.unwrap() });
        }
        run("COMMIT").unwrap();
        run("BEGIN").unwrap();
        assert_eq!(number("SELECT count(*) FROM t"), inserted);
        std::thread::sleep(Duration::from_millis(BACKGROUND_PERIOD_MS * 3));
        run("DELETE FROM t").unwrap();
        run("COMMIT").unwrap();
        assert_eq!(number("SELECT count(*) FROM t"), 0);
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
