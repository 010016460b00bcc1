//! One query from arrival to end.

mod driver;
pub mod log;
pub mod memory;

use std::any::Any;
use std::cell::RefCell;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use datafusion::execution::memory_pool::{MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SessionState, TaskContext};
use parking_lot::Mutex;
use thalweg_base::limits::QUERY_TEXT_SHOWN_MAX;
use thalweg_base::{Error, Notice, QueryId, Result, RoleId};
use thalweg_scheduler::{Advice, Age, MemoryRefusal, Priority, QueryState, Stop};
use tokio::sync::Notify;

use self::memory::QueryMemory;
use crate::cost::{Cost, Estimate};
use crate::unrefused::Unrefused;

pub(crate) use self::driver::ENDS;
pub use self::driver::{Driver, Listed, no_workload};
pub use self::log::{Logged, Times, Totals};

/// Why a query was stopped before its end.
#[derive(Clone, Debug, PartialEq)]
pub enum Cancel {
    Asked,
    /// By `KILL`.
    Killed,
    /// By the scheduler: it took too long, or may not run.
    Stopped(Stop),
}

impl Cancel {
    pub fn error(self) -> Error {
        match self {
            Cancel::Asked => Error::cancelled("the query was cancelled"),
            Cancel::Killed => Error::cancelled("the query was stopped by KILL"),
            Cancel::Stopped(stop) => Error::from(&stop),
        }
    }
}

/// Where a query comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// `None`: the engine itself.
    pub session: Option<u64>,
    /// The statement, or what else it does, for people to recognise it by.
    pub text: String,
    pub time: SystemTime,
    /// Who logged in.
    pub role: Option<RoleId>,
    pub user: Option<Arc<str>>,
}

impl Origin {
    pub fn new(session: Option<u64>, text: &str) -> Self {
        let mut end = text.len().min(QUERY_TEXT_SHOWN_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let (text, time) = (text[..end].to_owned(), SystemTime::now());
        Origin { session, text, time, role: None, user: None }
    }

    pub fn by(self, role: RoleId, user: Arc<str>) -> Self {
        Origin { role: Some(role), user: Some(user), ..self }
    }
}

/// On what terms a query runs. The default is a query nobody said anything about.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// `None`: the default one.
    pub workload: Option<String>,
    pub priority: Priority,
    /// When the answer is wanted, from now.
    pub deadline: Option<Duration>,
    /// After which it is stopped, from now.
    pub timeout: Option<Duration>,
    /// It never waits to be admitted: what must work on a full server.
    pub exempt: bool,
}

/// The longest that an operator which could spill waits for others to do so.
const MEMORY_WAIT_MAX: Duration = Duration::from_secs(1);

/// Alive as long as any task of the query is; its end is the query's end for the scheduler.
pub struct Run {
    id: QueryId,
    origin: Origin,
    driver: Arc<Driver>,
    memory: Arc<Unrefused<QueryMemory>>,
    memory_wanted: AtomicU64,
    /// When it was planned, on the driver's clock; 0: not yet.
    planned_ns: AtomicU64,
    /// Stored bytes of the columns that it read.
    read_bytes: AtomicU64,
    /// It ended in an error.
    failed: AtomicBool,
    /// Its client has been answered, or has gone.
    left: Arc<AtomicBool>,
    cancel: Mutex<Option<Cancel>>,
    joined: Mutex<Option<QueryId>>,
    /// Rung when `cancel` is set.
    bell: Notify,
    /// Rung when there may be memory that was refused.
    memory_bell: Notify,
    /// The last time that memory was refused.
    refusal: Mutex<Option<MemoryRefusal>>,
    /// Where to say what it took.
    cost: Mutex<Option<Arc<Cost>>>,
    /// Dropped when all tasks of the query have ended.
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
    /// What its client is to be told, until the head of the answer takes it along.
    notices: Mutex<Vec<Notice>>,
}

thread_local! {
    /// Whose future this thread polls; what is spawned meanwhile belongs to the same query.
    static CURRENT: RefCell<Option<Arc<Run>>> = const { RefCell::new(None) };
}

impl Run {
    /// A query arrives. Until it is planned nobody knows its size; planning itself is short.
    ///
    /// # Errors
    /// Its workload is not there, or as many queries wait in it as may.
    pub fn begin(driver: &Arc<Driver>, origin: Origin, terms: &Terms) -> Result<Arc<Run>> {
        const PLANNING_NS: u64 = 5_000_000;
        let id = driver.next_query();
        let run = Arc::new(Run {
            id,
            origin,
            driver: Arc::clone(driver),
            memory: Arc::new(Unrefused(QueryMemory::new(id, Arc::clone(driver)))),
            memory_wanted: AtomicU64::new(0),
            planned_ns: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            left: Arc::default(),
            cancel: Mutex::new(None),
            joined: Mutex::new(None),
            bell: Notify::new(),
            memory_bell: Notify::new(),
            refusal: Mutex::new(None),
            cost: Mutex::default(),
            kept: Mutex::default(),
            notices: Mutex::default(),
        });
        driver.query_arrived(&run, PLANNING_NS, terms)?;
        Ok(run)
    }

    pub fn current() -> Option<Arc<Run>> {
        CURRENT.with_borrow(Option::clone)
    }

    /// Runs `f` with this query as the current one of the thread.
    pub(super) fn enter<T>(self: &Arc<Self>, f: impl FnOnce() -> T) -> T {
        struct Restore(Option<Arc<Run>>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.with_borrow_mut(|c| *c = self.0.take());
            }
        }
        let before = CURRENT.with_borrow_mut(|c| c.replace(Arc::clone(self)));
        let _restore = Restore(before);
        f()
    }

    pub fn id(&self) -> QueryId {
        self.id
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    pub fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    pub fn state(&self) -> Option<QueryState> {
        self.driver.query_state(self.id)
    }

    /// Tells the client of the statement something beside its answer.
    pub fn notice(&self, notice: Notice) {
        self.notices.lock().push(notice);
    }

    pub fn take_notices(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.notices.lock())
    }

    pub fn cancel(&self, why: Cancel) {
        self.cancel.lock().get_or_insert(why);
        self.driver.query_cancelled(self.id);
        self.ring();
    }

    /// The scheduler has cancelled it. Its client hears of it when it is rung.
    pub(super) fn stopped(&self, stop: Stop) {
        self.cancel.lock().get_or_insert(Cancel::Stopped(stop));
    }

    pub(super) fn ring(&self) {
        self.bell.notify_waiters();
    }

    /// Its account, which operators reserve from.
    pub fn memory(&self) -> Arc<dyn MemoryPool> {
        Arc::clone(&self.memory) as Arc<dyn MemoryPool>
    }

    /// Where its operators run: as in `state`, with the memory of this query.
    pub fn context(&self, state: &SessionState) -> Arc<TaskContext> {
        let environment =
            RuntimeEnv { memory_pool: self.memory(), ..state.runtime_env().as_ref().clone() };
        Arc::new(TaskContext::from(state).with_runtime(Arc::new(environment)))
    }

    /// It is planned, and looks like `estimate`; what it took before is known better. Whether it is no
    /// fresh query by that.
    pub(crate) fn note_estimate(&self, estimate: Estimate, cost: &Arc<Cost>) -> bool {
        self.memory_wanted.store(estimate.memory_bytes, Ordering::Relaxed);
        self.planned_ns.store(self.driver.now_ns(), Ordering::Relaxed);
        let measured = cost.cpu_ns();
        let cpu_ns = measured.unwrap_or(estimate.cpu_ns);
        *self.cost.lock() = Some(Arc::clone(cost));
        self.driver.query_estimated(self.id, cpu_ns, measured.is_some());
        measured.is_some_and(|ns| Age::of(ns) > Age::Fresh)
    }

    /// It is over, after so much CPU time.
    pub(super) fn learn(&self, cpu_ns: u64) {
        if let Some(cost) = self.cost.lock().take()
            && !self.failed()
            && self.cancelled().is_none()
        {
            cost.learn(cpu_ns);
        }
    }

    /// Keeps something until all of its tasks have ended, such as a plan that no other query may execute.
    pub fn keeps(&self, what: Option<impl Any + Send>) {
        self.kept.lock().extend(what.map(|what| Box::new(what) as _));
    }

    /// When that was; `None`: it never was.
    pub fn planned_ns(&self) -> Option<u64> {
        Some(self.planned_ns.load(Ordering::Relaxed)).filter(|ns| *ns > 0)
    }

    /// Bytes that its plan will hold, as far as they can be estimated.
    pub fn memory_wanted(&self) -> u64 {
        self.memory_wanted.load(Ordering::Relaxed)
    }

    /// Returns once the query is promised the memory that it is going to want, or as much as one
    /// query may be.
    pub async fn memory_promised(&self) {
        loop {
            let mut rung = pin!(self.memory_bell.notified());
            // Before the question, so that an answer right after it is not missed.
            rung.as_mut().enable();
            if self.driver.memory_promise(self.id, self.memory_wanted()) {
                return;
            }
            rung.await;
        }
    }

    /// Grows a reservation of this query. While others hold what is this query's share it waits
    /// for them to spill, but not for ever: their clients may not be reading. `false`: it has to
    /// spill itself.
    pub async fn reserve(&self, reservation: &MemoryReservation, bytes: usize) -> bool {
        loop {
            let mut rung = pin!(self.memory_bell.notified());
            rung.as_mut().enable();
            if reservation.try_grow(bytes).is_ok() {
                return true;
            }
            let refusal = self.refusal.lock().take();
            if refusal.is_none_or(|r| r.advice == Advice::Spill) {
                return false;
            }
            if tokio::time::timeout(MEMORY_WAIT_MAX, rung).await.is_err() {
                return reservation.try_grow(bytes).is_ok();
            }
        }
    }

    pub(super) fn memory_freed(&self) {
        self.memory_bell.notify_waiters();
    }

    pub(super) fn memory_refused(&self, refusal: MemoryRefusal) {
        *self.refusal.lock() = Some(refusal);
    }

    /// Why memory was refused, the last time it was.
    pub fn memory_refusal(&self) -> Option<MemoryRefusal> {
        self.refusal.lock().clone()
    }

    pub fn note_read(&self, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    pub fn note_failed(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Nobody waits for it any more: it ends as soon as its tasks have.
    pub fn note_left(&self) {
        self.left.store(true, Ordering::Release);
    }

    pub(super) fn left(&self) -> &Arc<AtomicBool> {
        &self.left
    }

    pub(super) fn is_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// Resolves once the query is cancelled. Its client need not wait for the quantum that is
    /// running: that one ends when it ends, and is the last.
    pub async fn until_cancelled(self: Arc<Self>) -> Cancel {
        loop {
            let mut rung = pin!(self.bell.notified());
            // Before the look, so that a cancel between look and wait is not missed.
            rung.as_mut().enable();
            if let Some(why) = self.cancelled() {
                return why;
            }
            rung.await;
        }
    }

    pub fn cancelled(&self) -> Option<Cancel> {
        self.cancel.lock().clone()
    }

    /// The query that computes the same, while this one waits for it.
    pub fn joined(&self) -> Option<QueryId> {
        *self.joined.lock()
    }

    pub fn set_joined(&self, leader: Option<QueryId>) {
        *self.joined.lock() = leader;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.driver.query_ended(self);
    }
}
