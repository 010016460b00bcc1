//! The scheduler's state machine behind a lock, with the wakers it grants to.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use thalweg_base::{Clock, QueryId, SystemClock, TaskId};
use thalweg_scheduler::{
    Action, Arrival, Histogram, PolicyKind, PollEnd, QueryState, Scheduler, SlotView, Turn,
    WaitReason, task_index,
};
use tokio::sync::Notify;

use super::priority::LongPolls;
use super::run::Run;

/// Wakers are taken under the lock and called outside it: tokio may run arbitrary code in them.
pub struct Driver {
    clock: SystemClock,
    inner: Mutex<Inner>,
    queries: AtomicU64,
    /// Of the queries that are alive.
    runs: Mutex<HashMap<QueryId, Weak<Run>>>,
    /// Rung when a query arrives.
    arrived: Notify,
    long_polls: LongPolls,
    schedules: bool,
}

/// How often the scheduler looks at the time while queries are alive. Only then can it see that a
/// quantum does not end.
const TICK: Duration = Duration::from_millis(10);

/// A query that is alive.
pub struct Listed {
    pub run: Arc<Run>,
    pub state: QueryState,
    pub waits_for: Option<WaitReason>,
}

struct Inner {
    scheduler: Scheduler,
    /// By [`task_index`].
    wakers: Vec<Option<Arc<AtomicWaker>>>,
    /// Reused, so that the steady state allocates nothing.
    actions: Vec<Action>,
}

impl Driver {
    /// `reserve` more tasks of short queries run while all `slots` are held by long ones. Unless it
    /// `schedules`, tasks run without asking.
    pub fn new(slots: usize, reserve: usize, policy: PolicyKind, schedules: bool) -> Self {
        let mut scheduler = Scheduler::new(slots, policy);
        scheduler.set_reserve(reserve, 0, &mut Vec::new());
        Driver {
            clock: SystemClock::default(),
            inner: Mutex::new(Inner { scheduler, wakers: Vec::new(), actions: Vec::new() }),
            queries: AtomicU64::new(1),
            runs: Mutex::default(),
            arrived: Notify::new(),
            long_polls: LongPolls::default(),
            schedules,
        }
    }

    /// Tells the scheduler the time, for as long as it is polled.
    pub async fn tick(self: Arc<Self>) {
        loop {
            if self.runs.lock().is_empty() {
                self.arrived.notified().await;
            }
            self.event(|s, now, actions| s.tick(now, actions));
            tokio::time::sleep(TICK).await;
        }
    }

    /// Feeds one event to the state machine and wakes whom it grants.
    fn event<T>(&self, f: impl FnOnce(&mut Scheduler, u64, &mut Vec<Action>) -> T) -> T {
        self.change(|inner, now, actions| f(&mut inner.scheduler, now, actions))
    }

    fn change<T>(&self, f: impl FnOnce(&mut Inner, u64, &mut Vec<Action>) -> T) -> T {
        let mut inner = self.inner.lock();
        let now = self.clock.now_ns();
        let mut actions = std::mem::take(&mut inner.actions);
        let result = f(&mut inner, now, &mut actions);
        // At most one grant per freed slot: nearly always none or one, hence no allocation.
        let mut first: Option<Waker> = None;
        let mut more: Vec<Waker> = Vec::new();
        for action in actions.drain(..) {
            let waker = action.task().and_then(|task| inner.wakers.get(task_index(task)));
            if let Some(waker) = waker.and_then(Option::as_ref).and_then(|w| w.take()) {
                match first {
                    None => first = Some(waker),
                    Some(_) => more.push(waker),
                }
            }
        }
        inner.actions = actions;
        let reserve_in_use = inner.scheduler.slots_in_use() > inner.scheduler.slots();
        drop(inner);
        if reserve_in_use {
            self.long_polls.step_back();
        }
        first.into_iter().chain(more).for_each(Waker::wake);
        result
    }

    pub fn query_arrived(&self, estimate_ns: u64) -> QueryId {
        let query = QueryId(self.queries.fetch_add(1, Ordering::Relaxed));
        let arrival = Arrival { estimate_ns, ..Arrival::default() };
        self.event(|s, now, actions| s.query_arrived(query, &arrival, now, actions))
            .expect("a scheduler without limits refuses nobody");
        query
    }

    pub fn query_estimated(&self, query: QueryId, estimate_ns: u64) {
        self.event(|s, now, actions| s.query_estimated(query, estimate_ns, now, actions));
    }

    pub fn query_cancelled(&self, query: QueryId) {
        self.event(|s, now, actions| s.query_cancelled(query, now, actions));
    }

    /// Whether tasks ask before they run.
    pub fn schedules(&self) -> bool {
        self.schedules
    }

    pub fn long_polls(&self) -> &LongPolls {
        &self.long_polls
    }

    /// From now on it is listed.
    pub fn query_runs(&self, run: &Arc<Run>) {
        self.runs.lock().insert(run.id(), Arc::downgrade(run));
        self.arrived.notify_one();
    }

    pub fn query_ended(&self, query: QueryId) -> Option<QueryState> {
        self.runs.lock().remove(&query);
        self.event(|s, now, actions| s.query_ended(query, now, actions))
    }

    pub fn query_state(&self, query: QueryId) -> Option<QueryState> {
        self.inner.lock().scheduler.query_state(query).cloned()
    }

    pub fn queries(&self) -> Vec<QueryState> {
        self.inner.lock().scheduler.queries().cloned().collect()
    }

    /// The queries that are alive, in the order in which they came.
    pub fn listed(&self) -> Vec<Listed> {
        let mut runs: Vec<Arc<Run>> = self.runs.lock().values().filter_map(Weak::upgrade).collect();
        runs.sort_by_key(|run| run.id());
        let inner = self.inner.lock();
        let listed = runs.iter().filter_map(|run| {
            let state = inner.scheduler.query_state(run.id())?.clone();
            let waits_for = inner.scheduler.wait_reason(run.id());
            Some(Listed { run: Arc::clone(run), state, waits_for })
        });
        let listed = listed.collect();
        drop(inner);
        listed
    }

    pub fn run(&self, query: QueryId) -> Option<Arc<Run>> {
        self.runs.lock().get(&query).and_then(Weak::upgrade)
    }

    /// The slots in use.
    pub fn slots_held(&self) -> Vec<SlotView> {
        self.inner.lock().scheduler.slots_held().collect()
    }

    /// CPU times of all quanta there ever were.
    pub fn quantum_lengths(&self) -> Histogram {
        self.inner.lock().scheduler.quantum_lengths().clone()
    }

    /// On the clock of the events.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Registers a future of `query`; `None` if the query is over.
    pub fn task_spawned(&self, query: QueryId, waker: Arc<AtomicWaker>) -> Option<TaskId> {
        self.change(|inner, now, actions| {
            let task = inner.scheduler.task_spawned(query, now, actions)?;
            let index = task_index(task);
            if inner.wakers.len() <= index {
                inner.wakers.resize(index + 1, None);
            }
            inner.wakers[index] = Some(waker);
            Some(task)
        })
    }

    pub fn task_woken(&self, task: TaskId) {
        self.event(|s, now, actions| s.task_woken(task, now, actions));
    }

    pub fn poll_began(&self, task: TaskId) -> Turn {
        self.inner.lock().scheduler.poll_began(task)
    }

    pub fn poll_ended(&self, task: TaskId, end: PollEnd, cpu_ns: u64) {
        self.event(|s, now, actions| s.poll_ended(task, end, cpu_ns, now, actions));
    }

    pub fn task_dropped(&self, task: TaskId) {
        self.event(|s, now, actions| s.task_dropped(task, now, actions));
    }

    pub fn policy(&self) -> PolicyKind {
        self.inner.lock().scheduler.policy()
    }

    pub fn set_policy(&self, policy: PolicyKind) {
        self.event(|s, now, actions| s.set_policy(policy, now, actions));
    }

    pub fn slots(&self) -> usize {
        self.inner.lock().scheduler.slots()
    }

    pub fn reserve(&self) -> usize {
        self.inner.lock().scheduler.reserve()
    }

    pub fn slots_in_use(&self) -> usize {
        self.inner.lock().scheduler.slots_in_use()
    }
}
