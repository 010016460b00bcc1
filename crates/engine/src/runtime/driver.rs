//! The scheduler's state machine behind a lock, with the wakers it grants to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use thalweg_base::{Clock, QueryId, SystemClock, TaskId};
use thalweg_scheduler::{Action, PolicyKind, PollEnd, QueryState, Scheduler, Turn, task_index};

/// Wakers are taken under the lock and called outside it: tokio may run arbitrary code in them.
pub struct Driver {
    clock: SystemClock,
    inner: Mutex<Inner>,
    queries: AtomicU64,
}

struct Inner {
    scheduler: Scheduler,
    /// By [`task_index`].
    wakers: Vec<Option<Arc<AtomicWaker>>>,
    /// Reused, so that the steady state allocates nothing.
    actions: Vec<Action>,
}

impl Driver {
    pub fn new(slots: usize, policy: PolicyKind) -> Self {
        Driver {
            clock: SystemClock::default(),
            inner: Mutex::new(Inner {
                scheduler: Scheduler::new(slots, policy),
                wakers: Vec::new(),
                actions: Vec::new(),
            }),
            queries: AtomicU64::new(1),
        }
    }

    /// Feeds one event to the state machine and wakes whom it grants.
    fn event<T>(&self, f: impl FnOnce(&mut Scheduler, u64, &mut Vec<Action>) -> T) -> T {
        let mut inner = self.inner.lock();
        let now = self.clock.now_ns();
        let mut actions = std::mem::take(&mut inner.actions);
        let result = f(&mut inner.scheduler, now, &mut actions);
        // At most one grant per freed slot: nearly always none or one, hence no allocation.
        let mut first: Option<Waker> = None;
        let mut more: Vec<Waker> = Vec::new();
        for action in actions.drain(..) {
            let waker = inner.wakers.get(task_index(action.task()));
            if let Some(waker) = waker.and_then(Option::as_ref).and_then(|w| w.take()) {
                match first {
                    None => first = Some(waker),
                    Some(_) => more.push(waker),
                }
            }
        }
        inner.actions = actions;
        drop(inner);
        first.into_iter().chain(more).for_each(Waker::wake);
        result
    }

    pub fn query_arrived(&self, estimate_ns: u64) -> QueryId {
        let query = QueryId(self.queries.fetch_add(1, Ordering::Relaxed));
        self.event(|s, now, _| s.query_arrived(query, estimate_ns, now));
        query
    }

    pub fn query_estimated(&self, query: QueryId, estimate_ns: u64) {
        self.event(|s, _, _| s.query_estimated(query, estimate_ns));
    }

    pub fn query_cancelled(&self, query: QueryId) {
        self.event(|s, now, actions| s.query_cancelled(query, now, actions));
    }

    pub fn query_ended(&self, query: QueryId) -> Option<QueryState> {
        self.event(|s, now, actions| s.query_ended(query, now, actions))
    }

    pub fn query_state(&self, query: QueryId) -> Option<QueryState> {
        self.inner.lock().scheduler.query_state(query).cloned()
    }

    pub fn queries(&self) -> Vec<QueryState> {
        self.inner.lock().scheduler.queries().cloned().collect()
    }

    /// Registers a future of `query`; `None` if the query is over.
    pub fn task_spawned(&self, query: QueryId, waker: Arc<AtomicWaker>) -> Option<TaskId> {
        let mut inner = self.inner.lock();
        let now = self.clock.now_ns();
        let mut actions = std::mem::take(&mut inner.actions);
        let task = inner.scheduler.task_spawned(query, now, &mut actions);
        if let Some(task) = task {
            let index = task_index(task);
            if inner.wakers.len() <= index {
                inner.wakers.resize(index + 1, None);
            }
            inner.wakers[index] = Some(waker);
        }
        // A spawn grants at most the new task itself, which its runtime is about to poll.
        actions.clear();
        inner.actions = actions;
        task
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
        self.inner.lock().scheduler.set_policy(policy);
    }

    pub fn slots(&self) -> usize {
        self.inner.lock().scheduler.slots()
    }

    pub fn slots_in_use(&self) -> usize {
        self.inner.lock().scheduler.slots_in_use()
    }
}
