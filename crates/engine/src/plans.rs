//! The plans of queries that are asked again and again, so that they are planned once: the logical
//! one as it is optimised, and when it is asked for again the physical one, of which each execution
//! gets a copy, or which it has for itself until its end.
//!
//! A plan is decided by the text, the tables with their statistics, and the settings. It is kept
//! for as long as all of them stay: the plans are of one snapshot, and the next commit ends them.
//! Every query is computed anew; only what its text says has been worked out before.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use datafusion::config::ConfigOptions;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use thalweg_base::Result;
use thalweg_storage::Snapshot;

use thalweg_errors::from_datafusion;
use thalweg_exec::{Reuse, again};
use thalweg_runtime::{Cost, Estimate};

use crate::config::same_settings;
use crate::titles::Titles;

/// Plans that are kept; one of a large query takes some 100 KiB, and as much for how it is executed.
const PLANS_MAX: usize = 256;
/// Longer texts are seldom asked twice.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Sessions change their settings seldom, and share few.
const SETTINGS_MAX: usize = 16;
/// Plans of one text that wait for their next execution where each is executed by one query at a
/// time.
const LENT_MAX: usize = 4;

#[derive(Default)]
pub struct Plans {
    kept: Mutex<Kept>,
    reused: AtomicU64,
}

#[derive(Default)]
struct Kept {
    /// What all plans read.
    snapshot: Option<Arc<Snapshot>>,
    plans: HashMap<String, Entry>,
    /// Counts uses.
    clock: u64,
}

/// The plan of a query.
pub struct Planned {
    logical: LogicalPlan,
    titles: Titles,
    /// It has been asked for before.
    again: AtomicBool,
    cost: Arc<Cost>,
    physical: Mutex<Option<Physical>>,
}

/// How the query is executed.
enum Physical {
    /// Never executed itself.
    Copied(Execution),
    /// Those that no query executes now.
    Lent(Vec<Execution>),
}

/// A plan to execute.
#[derive(Clone)]
pub struct Execution {
    pub plan: Arc<dyn ExecutionPlan>,
    pub estimate: Estimate,
}

/// Gives a plan that is executed by one query at a time back when that query has ended.
pub struct Loan {
    to: Weak<Planned>,
    /// Taken when it is given back.
    execution: Option<Execution>,
}

impl Drop for Loan {
    fn drop(&mut self) {
        let (Some(owner), Some(execution)) = (self.to.upgrade(), self.execution.take()) else {
            return;
        };
        if let Some(Physical::Lent(free)) = &mut *owner.physical.lock()
            && free.len() < LENT_MAX
        {
            free.push(execution);
        }
    }
}

impl Planned {
    /// Of a plan that is optimised.
    pub fn new(logical: LogicalPlan, titles: Titles) -> Arc<Self> {
        Arc::new(Planned {
            logical,
            titles,
            again: AtomicBool::new(false),
            cost: Arc::default(),
            physical: Mutex::default(),
        })
    }

    pub fn logical(&self) -> &LogicalPlan {
        &self.logical
    }

    /// What the statement calls the columns.
    pub fn titles(&self) -> &Titles {
        &self.titles
    }

    /// What the query took when it was asked before.
    pub fn cost(&self) -> &Arc<Cost> {
        &self.cost
    }

    /// The physical plan to execute, if one is known that may be, and what to drop when nothing of
    /// the query is executed any more.
    pub fn physical(self: &Arc<Self>) -> Result<Option<(Execution, Option<Loan>)>> {
        let (execution, is_lent) = match &mut *self.physical.lock() {
            None => return Ok(None),
            Some(Physical::Copied(execution)) => (execution.clone(), false),
            Some(Physical::Lent(free)) => match free.pop() {
                None => return Ok(None),
                Some(execution) => (execution, true),
            },
        };
        self.copy(execution, is_lent).map(Some)
    }

    /// Remembers a physical plan if that can be of use, and gives the one to execute.
    pub fn made(self: &Arc<Self>, execution: Execution) -> Result<(Execution, Option<Loan>)> {
        if !self.again.load(Ordering::Relaxed) {
            return Ok((execution, None));
        }
        let is_lent = match Reuse::of(&execution.plan) {
            Reuse::Never => return Ok((execution, None)),
            Reuse::InTurn => {
                self.physical.lock().get_or_insert(Physical::Lent(vec![]));
                true
            }
            Reuse::AtOnce => {
                *self.physical.lock() = Some(Physical::Copied(execution.clone()));
                false
            }
        };
        self.copy(execution, is_lent)
    }

    fn copy(
        self: &Arc<Self>,
        execution: Execution,
        is_lent: bool,
    ) -> Result<(Execution, Option<Loan>)> {
        let plan = again(&execution.plan).map_err(from_datafusion)?;
        let copy = Execution { plan, estimate: execution.estimate };
        let loan = || Loan { to: Arc::downgrade(self), execution: Some(execution) };
        Ok((copy, is_lent.then(loan)))
    }
}

struct Entry {
    plan: Arc<Planned>,
    /// Of the sessions that have asked: all equal.
    settings: Vec<Arc<ConfigOptions>>,
    last_used: u64,
}

impl Entry {
    fn is_under(&mut self, settings: &Arc<ConfigOptions>) -> bool {
        if self.settings.iter().any(|known| Arc::ptr_eq(known, settings)) {
            return true;
        }
        let same = same_settings(&self.settings[0], settings);
        if same && self.settings.len() < SETTINGS_MAX {
            self.settings.push(Arc::clone(settings));
        }
        same
    }
}

impl Plans {
    /// Forgets the plans of an older snapshot, which hold on to its data, and says whether there is
    /// one of this text.
    pub fn knows(&self, text: &str, current: &Arc<Snapshot>) -> bool {
        let mut kept = self.kept.lock();
        if !kept.is_of(current) {
            *kept = Kept::default();
        }
        kept.plans.contains_key(text)
    }

    /// What the text means under these settings, if that is known.
    pub fn find(
        &self,
        text: &str,
        snapshot: &Arc<Snapshot>,
        settings: &Arc<ConfigOptions>,
    ) -> Option<Arc<Planned>> {
        let mut kept = self.kept.lock();
        if !kept.is_of(snapshot) {
            return None;
        }
        kept.clock += 1;
        let now = kept.clock;
        let entry = kept.plans.get_mut(text)?;
        if !entry.is_under(settings) {
            return None;
        }
        entry.last_used = now;
        entry.plan.again.store(true, Ordering::Relaxed);
        self.reused.fetch_add(1, Ordering::Relaxed);
        Some(Arc::clone(&entry.plan))
    }

    /// `plan` is all that the text means: nothing that changes but the snapshot and the settings
    /// decides it.
    pub fn keep(
        &self,
        text: &str,
        snapshot: &Arc<Snapshot>,
        settings: &Arc<ConfigOptions>,
        plan: &Arc<Planned>,
    ) {
        if text.len() > TEXT_BYTES_MAX {
            return;
        }
        let mut kept = self.kept.lock();
        if !kept.is_of(snapshot) {
            *kept = Kept { snapshot: Some(Arc::clone(snapshot)), ..Kept::default() };
        }
        if kept.plans.len() >= PLANS_MAX {
            kept.forget_half();
        }
        let last_used = kept.clock;
        let settings = vec![Arc::clone(settings)];
        kept.plans.insert(text.into(), Entry { plan: Arc::clone(plan), settings, last_used });
    }

    /// How many statements so far had a plan that was kept.
    pub fn reused(&self) -> u64 {
        self.reused.load(Ordering::Relaxed)
    }
}

impl Kept {
    fn is_of(&self, snapshot: &Arc<Snapshot>) -> bool {
        self.snapshot.as_ref().is_some_and(|own| Arc::ptr_eq(own, snapshot))
    }

    /// Those that have not been asked for longest.
    fn forget_half(&mut self) {
        let mut uses: Vec<u64> = self.plans.values().map(|e| e.last_used).collect();
        uses.sort_unstable();
        let middle = uses[uses.len() / 2];
        let most = self.plans.len() / 2;
        let mut left = self.plans.len();
        self.plans.retain(|_, e| {
            let stays = e.last_used > middle || left <= most;
            left -= usize::from(!stays);
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::engine::Engine;
    use crate::session::Session;
    use arrow::util::pretty::pretty_format_batches;

    fn rows(engine: &Engine, session: &Session, sql: &str) -> Result<String> {
        let batches = engine.block_on(async { session.query(sql).await?.collect().await })?;
        Ok(pretty_format_batches(&batches).expect("they can be shown").to_string())
    }

    fn engine() -> (Arc<Engine>, Session) {
        let engine = Engine::open(":memory:", Config::default()).expect("it opens");
        let session = engine.session();
        for sql in ["CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1), (2), (3)"] {
            rows(&engine, &session, sql).expect("it runs");
        }
        (engine, session)
    }

    const SUM: &str = "SELECT sum(a) FROM t WHERE a > 1";

    /// How often its plan is reused when it is asked three times, with the same answer.
    fn reuses(engine: &Engine, session: &Session, sql: &str) -> u64 {
        let before = engine.reused_plans();
        let answers: Vec<_> = (0..3).map(|_| rows(engine, session, sql).expect(sql)).collect();
        assert!(answers.windows(2).all(|two| two[0] == two[1]), "{answers:?}");
        engine.reused_plans() - before
    }

    #[test]
    fn a_text_is_planned_once_for_all_sessions_with_the_same_settings() {
        let (engine, session) = engine();
        assert_eq!(reuses(&engine, &session, SUM), 2);
        assert_eq!(reuses(&engine, &engine.session(), SUM), 3);
        let other = engine.session();
        rows(&engine, &other, "SET datafusion.execution.batch_size = 100").unwrap();
        assert_eq!(reuses(&engine, &other, SUM), 2);
        // Which changes no plan.
        rows(&engine, &other, "SET thalweg.priority = 'low'").unwrap();
        assert_eq!(reuses(&engine, &other, SUM), 3);
        rows(&engine, &other, "SET thalweg.keep_plans = off").unwrap();
        assert_eq!(reuses(&engine, &other, SUM), 0);
    }

    #[test]
    fn a_commit_ends_what_is_kept_and_its_hold_on_the_data() {
        let (engine, session) = engine();
        assert_eq!(reuses(&engine, &session, SUM), 2);
        let before = Arc::downgrade(&engine.database().snapshot());
        let other = engine.session();
        rows(&engine, &other, "INSERT INTO t VALUES (10)").unwrap();
        assert!(rows(&engine, &session, SUM).unwrap().contains("15"));
        rows(&engine, &other, SUM).unwrap();
        assert_eq!(before.strong_count(), 0);
        // A view by the same name means something else.
        rows(&engine, &other, "DROP TABLE t").unwrap();
        rows(&engine, &other, "CREATE VIEW t AS SELECT 7 AS a").unwrap();
        assert!(rows(&engine, &session, SUM).unwrap().contains('7'));
    }

    #[test]
    fn a_transaction_sees_its_own_rows_and_leaves_nothing_behind() {
        let (engine, session) = engine();
        rows(&engine, &session, SUM).unwrap();
        for sql in ["BEGIN", "INSERT INTO t VALUES (100)"] {
            rows(&engine, &session, sql).unwrap();
        }
        assert_eq!(reuses(&engine, &session, SUM), 0);
        assert!(rows(&engine, &session, SUM).unwrap().contains("105"));
        assert!(rows(&engine, &engine.session(), SUM).unwrap().contains('5'));
        rows(&engine, &session, "ROLLBACK").unwrap();
        assert!(!rows(&engine, &session, SUM).unwrap().contains("105"));
        rows(&engine, &session, "BEGIN").unwrap();
        rows(&engine, &session, "SELECT nosuch FROM t").unwrap_err();
        let failed = rows(&engine, &session, SUM).unwrap_err();
        assert_eq!(failed.sqlstate(), "25P02");
    }

    #[test]
    fn what_depends_on_more_than_the_data_is_planned_anew() {
        let (engine, session) = engine();
        rows(&engine, &session, "PREPARE p AS SELECT sum(a) FROM t WHERE a > $1").unwrap();
        for sql in [
            "SELECT count(*) FROM t WHERE now() > TIMESTAMP '2020-01-01'",
            "SELECT count(*) FROM t WHERE current_date > DATE '2020-01-01'",
            "SELECT count(*) FROM t WHERE random() >= 0",
            "SELECT count(*) FROM t VERSION AS OF 2",
            "SELECT count(*) FROM system.tables",
            "SHOW TABLES",
            "EXPLAIN SELECT sum(a) FROM t",
            "EXECUTE p(1)",
        ] {
            assert_eq!(reuses(&engine, &session, sql), 0, "{sql}");
        }
    }

    #[test]
    fn what_a_query_took_is_kept_with_its_plan() {
        let (engine, session) = engine();
        let cost = || {
            let kept = engine.plans().kept.lock();
            kept.plans.values().next().and_then(|entry| entry.plan.cost().cpu_ns())
        };
        assert_eq!(reuses(&engine, &session, SUM), 2);
        // Its last task may end after its last row.
        let known = (0..1000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            cost()
        });
        assert!(known.is_some_and(|ns| ns < 60_000_000_000), "{known:?}");
        let failed = "SELECT 1 / (a - 1) FROM t";
        for _ in 0..3 {
            rows(&engine, &session, failed).unwrap_err();
        }
        rows(&engine, &session, "SELECT 1").unwrap();
        let kept = engine.plans().kept.lock();
        let (_, entry) = kept.plans.iter().find(|(text, _)| text.contains(failed)).unwrap();
        assert_eq!(entry.plan.cost().cpu_ns(), None);
    }

    #[test]
    fn of_two_costs_the_lower_counts_more() {
        let cost = Cost::default();
        assert_eq!(cost.cpu_ns(), None);
        for (took, known) in [(800, 800), (400, 500), (900, 700), (0, 175)] {
            cost.learn(took);
            assert_eq!(cost.cpu_ns(), Some(known));
        }
        cost.learn(0);
        cost.learn(0);
        cost.learn(0);
        cost.learn(0);
        assert_eq!(cost.cpu_ns(), Some(1), "it was asked");
    }

    const ABOVE_AVERAGE: &str = "SELECT a FROM t WHERE a > (SELECT avg(a) FROM t)";

    #[test]
    fn a_plan_with_scalar_subqueries_is_lent_to_one_query_at_a_time() {
        let (engine, session) = engine();
        assert_eq!(reuses(&engine, &session, ABOVE_AVERAGE), 2);
        let known = engine.plans().kept.lock().plans.values().map(|e| Arc::clone(&e.plan)).next();
        let known = known.expect("it is kept");
        // Tasks of a query may end after its last row.
        let lent = std::iter::repeat_with(|| known.physical().unwrap()).flatten().next();
        let (execution, loan) = lent.unwrap();
        assert!(loan.is_some());

        let planned = Planned::new(known.logical().clone(), Titles::default());
        planned.again.store(true, Ordering::Relaxed);
        assert!(planned.physical().unwrap().is_none());
        let (_, first) = planned.made(execution.clone()).unwrap();
        assert!(planned.physical().unwrap().is_none(), "it is lent");
        let (_, second) = planned.made(execution.clone()).unwrap();
        drop(first);
        let (_, third) = planned.physical().unwrap().expect("it was given back");
        assert!(planned.physical().unwrap().is_none(), "it is lent");
        drop((second, third));
        let many: Vec<_> = (0..=LENT_MAX).map(|_| planned.made(execution.clone())).collect();
        drop(many);
        let free = std::iter::from_fn(|| planned.physical().unwrap()).map(|(_, loan)| loan);
        assert_eq!(free.collect::<Vec<_>>().len(), LENT_MAX);
        let (_, last) = planned.made(execution).unwrap();
        drop((planned, last));
    }

    #[test]
    fn queries_with_scalar_subqueries_run_beside_each_other() {
        let (engine, _) = engine();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let session = engine.session();
                    rows(&engine, &session, "SET thalweg.share_work = off").unwrap();
                    let expected = rows(&engine, &session, "SELECT 3 AS a").unwrap();
                    for _ in 0..50 {
                        assert_eq!(rows(&engine, &session, ABOVE_AVERAGE).unwrap(), expected);
                    }
                });
            }
        });
        rows(&engine, &engine.session(), "INSERT INTO t VALUES (4), (7)").unwrap();
        let answer = rows(&engine, &engine.session(), ABOVE_AVERAGE).unwrap();
        assert!(answer.contains('7') && !answer.contains('3'), "{answer}");
    }

    #[test]
    fn what_was_not_asked_for_longest_is_forgotten() {
        let (engine, session) = engine();
        let text = |n: usize| format!("SELECT a FROM t WHERE a = {n}");
        for n in 0..PLANS_MAX + 1 {
            rows(&engine, &session, &text(n)).unwrap();
            rows(&engine, &session, &text(0)).unwrap();
        }
        assert!(engine.plans().kept.lock().plans.len() <= PLANS_MAX);
        assert_eq!(reuses(&engine, &session, &text(0)), 3);
        assert_eq!(reuses(&engine, &session, &text(1)), 2);
        assert_eq!(reuses(&engine, &session, &text(PLANS_MAX)), 3);
    }
}
