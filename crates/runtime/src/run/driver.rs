//! The scheduler's state machine behind a lock, with the tasks it grants slots to.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_base::limits::QUERY_LOG_MAX;
use thalweg_base::text::quoted;
use thalweg_base::{Clock, Error, QueryId, Result, SystemClock, TaskId};
use thalweg_scheduler::policy::remaining_ns;
use thalweg_scheduler::{
    Action, Arrival, Estimate, Histogram, MemoryRefusal, Phase, PolicyKind, PollEnd, QueryState,
    Scheduler, ServerLimits, SlotView, Turn, WaitReason, task_index,
};
use tokio::sync::Notify;

use super::log::{Logged, Totals};
use super::{Run, Terms};
use crate::lanes::{Lane, Lanes, Rivals};
use crate::resident::Resident;
use crate::resources::Resources;
use crate::threads::{Grant, Granted, PollOf, Threads};

pub struct Driver {
    clock: SystemClock,
    inner: Mutex<Inner>,
    threads: Arc<Threads>,
    queries: AtomicU64,
    /// Of the queries that are alive.
    runs: Mutex<HashMap<QueryId, Weak<Run>>>,
    /// Rung when a query arrives.
    arrived: Notify,
    /// The queries that ended, the last ones.
    log: Mutex<VecDeque<Arc<Logged>>>,
    totals: Mutex<Totals>,
    resident: Arc<Resident>,
    /// Unless it does, tasks run without asking.
    schedules: bool,
}

/// How often the scheduler looks at the time while queries are alive, at least and at most. Only then
/// can it see that a quantum does not end.
const TICK: Duration = Duration::from_millis(4);
const TICK_MIN: Duration = Duration::from_millis(1);

/// How often it is looked what the process holds: queries fill 10 to 20 MiB meanwhile.
const RESIDENT_LOOK_NS: u64 = 10_000_000;

/// A query that is alive.
pub struct Listed {
    pub run: Arc<Run>,
    pub state: QueryState,
    pub waits_for: Option<WaitReason>,
    /// The name of its class.
    pub workload: String,
    pub memory_bytes: u64,
}

impl Listed {
    /// As `SHOW QUERIES` says it.
    pub fn doing(&self) -> &'static str {
        match self.state.phases.current() {
            _ if self.state.cancelled => "stopping",
            _ if self.run.joined().is_some() => "waiting for a query",
            Phase::Running => "running",
            Phase::Slot => "waiting for a slot",
            Phase::Input => "waiting for input",
            Phase::Memory => "waiting for memory",
            Phase::Admission => "waiting for admission",
        }
    }

    /// What or whom it waits for.
    pub fn reason(&self) -> Option<String> {
        match self.run.joined() {
            Some(leader) => Some(format!("query {leader}, which computes the same")),
            None => self.waits_for.as_ref().map(ToString::to_string),
        }
    }

    /// Part of it that is done, by CPU time, of the estimate as it is now.
    pub fn share_done(&self) -> f64 {
        let left = remaining_ns(self.state.estimate_ns, self.state.cpu_ns);
        self.state.cpu_ns as f64 / ((self.state.cpu_ns + left) as f64).max(1.0)
    }

    /// At the speed it has had since it was admitted; `None` while there was none.
    pub fn left(&self, now_ns: u64) -> Option<Duration> {
        let since_ns = self.state.admitted_ns?;
        let left = remaining_ns(self.state.estimate_ns, self.state.cpu_ns) as f64;
        let elapsed = now_ns.saturating_sub(since_ns) as f64;
        (self.state.cpu_ns > 0)
            .then(|| Duration::from_nanos((elapsed / self.state.cpu_ns as f64 * left) as u64))
    }
}

/// What a query is rung for.
enum Word {
    Stopped,
    MemoryFreed,
}

struct Inner {
    scheduler: Scheduler,
    lanes: Lanes,
    /// By [`task_index`].
    tasks: Vec<Option<Registered>>,
    /// CPU time of all polls.
    polled_ns: u64,
    /// Reused, so that the steady state allocates nothing.
    actions: Vec<Action>,
}

struct Registered {
    granted: Weak<dyn Granted>,
    /// Nobody waits for its query any more.
    left: Arc<AtomicBool>,
    /// Of its quanta, in CPU time.
    longest_ns: u64,
}

/// Where a task is ended that will not be polled again.
pub const ENDS: (Lane, PollOf) = (Lane::Front, PollOf::END);

impl Inner {
    /// Of the thread that is to poll a task that was granted a slot, and what that poll is for.
    fn place_of(&mut self, task: TaskId, now_ns: u64) -> (Lane, PollOf) {
        let Some(state) = self.scheduler.query_of(task) else { return ENDS };
        let poll = PollOf { query: Some(state.query), age: state.age() };
        let registered = |task| self.tasks.get(task_index(task)).and_then(Option::as_ref);
        let longest_ns = registered(task).map_or(0, |task| task.longest_ns);
        // Who asks one query after the other meets none of them.
        let is_left = |task| registered(task).is_some_and(|task| task.left.load(Ordering::Relaxed));
        let held = self.scheduler.slots_held().filter(|slot| !is_left(slot.task));
        (self.lanes.granted(poll.age, longest_ns, held.map(|slot| slot.age), now_ns), poll)
    }

    /// A quantum of a task was over after so much CPU time.
    fn took(&mut self, task: TaskId, cpu_ns: u64) {
        self.polled_ns += cpu_ns;
        if let Some(Some(task)) = self.tasks.get_mut(task_index(task)) {
            task.longest_ns = task.longest_ns.max(cpu_ns);
        }
    }
}

impl Driver {
    /// `reserve` more tasks of young queries run while all slots are held by older ones.
    pub fn new(resources: &Resources, reserve: usize) -> Self {
        let mut scheduler = Scheduler::new(resources.threads, resources.policy);
        // Nobody is there yet to be told of it.
        scheduler.set_reserve(reserve, 0, &mut Vec::new());
        let limits = ServerLimits { memory_bytes: Some(resources.memory_bytes), max_running: None };
        scheduler.set_limits(limits, 0, &mut Vec::new());
        let lanes = Lanes::default();
        let clock = SystemClock::default();
        let threads = Arc::new(Threads::new(resources.threads, &lanes, clock.clone()));
        Driver {
            clock,
            inner: Mutex::new(Inner {
                scheduler,
                lanes,
                tasks: Vec::new(),
                polled_ns: 0,
                actions: Vec::new(),
            }),
            threads,
            queries: AtomicU64::new(1),
            runs: Mutex::default(),
            arrived: Notify::new(),
            log: Mutex::default(),
            totals: Mutex::default(),
            resident: Arc::new(Resident::new(resources.cache_bytes_max)),
            schedules: resources.scheduled,
        }
    }

    /// Tells the scheduler the time, for as long as it is polled, and sees that the process does not
    /// hold more than it may.
    pub async fn tick(self: Arc<Self>) {
        let mut looked_ns = 0;
        let mut rivals = Rivals::default();
        loop {
            if self.runs.lock().is_empty() {
                self.arrived.notified().await;
            }
            let (now_ns, due_ns) = self.event(|s, now_ns, actions| {
                s.tick(now_ns, actions);
                (now_ns, s.next_deadline())
            });
            if now_ns.saturating_sub(looked_ns) >= RESIDENT_LOOK_NS {
                looked_ns = now_ns;
                if self.resident.is_over(self.limits().memory_bytes.unwrap_or(u64::MAX)) {
                    let resident = Arc::clone(&self.resident);
                    tokio::task::spawn_blocking(move || resident.trim());
                }
            }
            if rivals.is_time(now_ns) {
                let polled_ns = self.inner.lock().polled_ns;
                if rivals.use_much(polled_ns, now_ns) {
                    self.inner.lock().lanes.firm().hold(now_ns);
                }
            }
            let due = due_ns.map(|due_ns| Duration::from_nanos(due_ns.saturating_sub(now_ns)));
            tokio::time::sleep(due.unwrap_or(TICK).clamp(TICK_MIN, TICK)).await;
        }
    }

    /// A look at the state machine.
    pub fn look<T>(&self, f: impl FnOnce(&Scheduler) -> T) -> T {
        f(&self.inner.lock().scheduler)
    }

    /// Feeds one event to the state machine, and has polled whom it grants a slot.
    pub fn event<T>(&self, f: impl FnOnce(&mut Scheduler, u64, &mut Vec<Action>) -> T) -> T {
        self.change(|inner, now, actions| f(&mut inner.scheduler, now, actions))
    }

    fn change<T>(&self, f: impl FnOnce(&mut Inner, u64, &mut Vec<Action>) -> T) -> T {
        let mut inner = self.inner.lock();
        let now = self.clock.now_ns();
        let mut actions = std::mem::take(&mut inner.actions);
        let result = f(&mut inner, now, &mut actions);
        // At most one grant per freed slot: nearly always none or one, hence no allocation.
        let mut first: Option<Grant> = None;
        let mut more: Vec<Grant> = Vec::new();
        // Dropped outside the lock as well: the last one ends its query.
        let mut words: Vec<(Arc<Run>, Word)> = Vec::new();
        for action in actions.drain(..) {
            match action {
                Action::Stop(query) => {
                    let state = inner.scheduler.query_state(query);
                    if let (Some(run), Some(stop)) =
                        (self.run(query), state.and_then(|s| s.stopped.clone()))
                    {
                        // Before any of its tasks can see that it is cancelled.
                        run.stopped(stop);
                        words.push((run, Word::Stopped));
                    }
                }
                Action::MemoryFreed(query) => {
                    words.extend(self.run(query).map(|run| (run, Word::MemoryFreed)));
                }
                // Its tasks are granted slots; its operators hear of it when they next ask.
                Action::Admitted(_) | Action::Spill(_) => {}
                Action::Grant(_) | Action::Cancel(_) => {}
            }
            let (lane, poll) = match action {
                Action::Grant(task) => inner.place_of(task, now),
                _ => ENDS,
            };
            let task = action.task().and_then(|task| inner.tasks.get(task_index(task))?.as_ref());
            if let Some(task) = task.and_then(|task| task.granted.upgrade()) {
                let grant = Grant { task, lane, poll };
                match first {
                    None => first = Some(grant),
                    Some(_) => more.push(grant),
                }
            }
        }
        inner.actions = actions;
        drop(inner);
        for (run, word) in words {
            match word {
                Word::Stopped => run.ring(),
                Word::MemoryFreed => run.memory_freed(),
            }
        }
        first.into_iter().chain(more).for_each(|grant| self.threads.push(grant));
        result
    }

    pub fn next_query(&self) -> QueryId {
        QueryId(self.queries.fetch_add(1, Ordering::Relaxed))
    }

    /// From now on it is listed. It may have to wait to be admitted; its tasks get no slot until
    /// then.
    pub fn query_arrived(&self, run: &Arc<Run>, estimate_ns: u64, terms: &Terms) -> Result<()> {
        let query = run.id();
        self.runs.lock().insert(query, Arc::downgrade(run));
        self.event(|s, now, actions| {
            let named = terms.workload.as_deref();
            let class = named.and_then(|name| s.class_named(name));
            // Whoever sits in one that was dropped can still leave it.
            if let (Some(name), None, false) = (named, class, terms.exempt) {
                return Err(no_workload(name));
            }
            let ns = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
            let arrival = Arrival {
                estimate_ns,
                class,
                priority: terms.priority,
                deadline_ns: terms.deadline.map(|d| now.saturating_add(ns(d))),
                timeout_ns: terms.timeout.map(ns),
                exempt: terms.exempt,
                ..Arrival::default()
            };
            s.query_arrived(query, &arrival, now, actions).map_err(|r| Error::from(&r))
        })?;
        self.arrived.notify_one();
        Ok(())
    }

    pub fn memory_grow(
        &self,
        query: QueryId,
        bytes: u64,
    ) -> std::result::Result<(), Box<MemoryRefusal>> {
        let grown = self.event(|s, now, actions| s.memory_grow(query, bytes, now, actions));
        grown.map_err(|refusal| {
            if let Some(run) = self.run(query) {
                run.memory_refused(refusal.clone());
            }
            Box::new(refusal)
        })
    }

    pub fn memory_shrink(&self, query: QueryId, bytes: u64) {
        self.event(|s, now, actions| s.memory_shrink(query, bytes, now, actions));
    }

    /// `false`: the query must wait until it is told that memory is free, and ask again.
    pub fn memory_promise(&self, query: QueryId, bytes: u64) -> bool {
        self.event(|s, now, actions| s.memory_promise(query, bytes, now, actions))
    }

    /// How often freed memory was given back because there was too much of it.
    pub fn trims(&self) -> u64 {
        self.resident.trims()
    }

    /// Polls that other programs left without a core.
    pub fn starved(&self) -> u64 {
        self.inner.lock().lanes.firm().starved()
    }

    pub fn limits(&self) -> ServerLimits {
        self.look(Scheduler::limits)
    }

    pub fn set_limits(&self, limits: ServerLimits) {
        self.event(|s, now, actions| s.set_limits(limits, now, actions));
    }

    pub fn query_estimated(&self, query: QueryId, cpu_ns: u64, measured: bool) {
        let estimate = Estimate { cpu_ns, measured };
        self.event(|s, now, actions| s.query_estimated(query, estimate, now, actions));
    }

    pub fn query_cancelled(&self, query: QueryId) {
        self.event(|s, now, actions| s.query_cancelled(query, now, actions));
    }

    /// Whether tasks ask before they run.
    pub fn schedules(&self) -> bool {
        self.schedules
    }

    /// What it is polled by.
    pub fn threads(&self) -> &Arc<Threads> {
        &self.threads
    }

    /// Or it was refused.
    pub fn query_ended(&self, run: &Run) {
        let (state, workload) = self.event(|s, now, actions| {
            let state = s.query_ended(run.id(), now, actions);
            let class = state.as_ref().and_then(|state| s.class(state.class));
            let workload = class.map(|c| c.name.clone());
            (state, workload.unwrap_or_default())
        });
        if let Some(state) = state {
            run.learn(state.cpu_ns);
            let logged = Arc::new(Logged::new(run, &state, workload));
            self.totals.lock().add(&logged);
            let mut log = self.log.lock();
            if log.len() >= QUERY_LOG_MAX {
                log.pop_front();
            }
            log.push_back(logged);
        }
        // Not before: who reads the log waits for it.
        self.runs.lock().remove(&run.id());
    }

    /// Waits for the queries whose clients have been told their end, and whose tasks end at this
    /// moment, but not for long: nobody is to see what they were told is over.
    pub async fn answered_ended(&self) {
        const LOOKS_MAX: usize = 100;
        // Whose last owner is going right now is one of them.
        let answered = |run: &Weak<Run>| run.upgrade().is_none_or(|run| run.is_left());
        let mut left: Vec<QueryId> = {
            let runs = self.runs.lock().clone();
            runs.iter().filter(|(_, run)| answered(run)).map(|(query, _)| *query).collect()
        };
        for _ in 0..LOOKS_MAX {
            left.retain(|query| self.runs.lock().contains_key(query));
            if left.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The last queries that ended, in that order.
    pub fn log(&self) -> Vec<Arc<Logged>> {
        self.log.lock().iter().cloned().collect()
    }

    /// One of the last queries that ended.
    pub fn logged(&self, query: QueryId) -> Option<Arc<Logged>> {
        self.log.lock().iter().rev().find(|logged| logged.query == query.0).cloned()
    }

    pub fn totals(&self) -> Totals {
        self.totals.lock().clone()
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
        self.list(&runs)
    }

    /// Those of `runs` that are alive.
    pub fn list(&self, runs: &[Arc<Run>]) -> Vec<Listed> {
        let inner = self.inner.lock();
        let listed = runs.iter().filter_map(|run| {
            let state = inner.scheduler.query_state(run.id())?.clone();
            let waits_for = inner.scheduler.wait_reason(run.id());
            let workload = inner.scheduler.class(state.class).map(|c| c.name.clone());
            Some(Listed {
                run: Arc::clone(run),
                waits_for,
                workload: workload.unwrap_or_default(),
                memory_bytes: inner.scheduler.memory_of_query(state.query),
                state,
            })
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

    /// Registers a task of `query`, which is told its id first; `false` if the query is over. `left`:
    /// whether anybody waits for the query will be said there.
    pub fn task_spawned(
        &self,
        query: QueryId,
        task: Weak<dyn Granted>,
        left: Arc<AtomicBool>,
        told: impl FnOnce(TaskId),
    ) -> bool {
        self.change(|inner, now, actions| {
            let Some(id) = inner.scheduler.task_spawned(query, now, actions) else { return false };
            let index = task_index(id);
            if inner.tasks.len() <= index {
                inner.tasks.resize_with(index + 1, || None);
            }
            inner.tasks[index] = Some(Registered { granted: task, left, longest_ns: 0 });
            told(id);
            true
        })
    }

    pub fn task_woken(&self, task: TaskId) {
        self.event(|s, now, actions| s.task_woken(task, now, actions));
    }

    pub fn poll_began(&self, task: TaskId) -> Turn {
        self.inner.lock().scheduler.poll_began(task)
    }

    pub fn poll_ended(&self, task: TaskId, end: PollEnd, cpu_ns: u64) {
        self.change(|inner, now, actions| {
            inner.took(task, cpu_ns);
            inner.scheduler.poll_ended(task, end, cpu_ns, now, actions);
        });
    }

    /// Whether the poll goes on for another quantum.
    pub fn quantum_over(&self, task: TaskId, cpu_ns: u64) -> bool {
        self.change(|inner, now, actions| {
            inner.took(task, cpu_ns);
            inner.scheduler.quantum_over(task, cpu_ns, now, actions)
        })
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

pub fn no_workload(name: &str) -> Error {
    Error::user(format!("there is no workload {}", quoted(name))).hint(
        "SHOW WORKLOADS lists them; SET thalweg.workload = 'default' goes back to the usual one",
    )
}
