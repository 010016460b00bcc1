//! The state machine: events in, actions out.

use crate::order::Order;
use crate::policy::{Policy, PolicyKind};
use crate::query::{QueryState, WaitReason};
use crate::task::{NONE, State, Tasks};
use std::collections::HashMap;
use thalweg_base::{QueryId, TaskId};

#[cfg(any(test, feature = "simulation"))]
mod check;
#[cfg(test)]
mod tests;

/// What the driver must do once it has left its lock. Both mean: wake the task's waker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The task holds a slot from now on; its next poll may run.
    Grant(TaskId),
    /// The task will never hold a slot again; its next poll is told so and drops the future.
    Cancel(TaskId),
}

impl Action {
    pub fn task(self) -> TaskId {
        match self {
            Action::Grant(task) | Action::Cancel(task) => task,
        }
    }
}

/// What a poll that begins may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Turn {
    /// It holds a slot: poll the inner future, then report [`Scheduler::poll_ended`].
    Run,
    /// No slot yet: return `Pending`; a [`Action::Grant`] will wake it.
    Wait,
    /// The query was cancelled or has ended: drop the inner future without polling it.
    Cancelled,
}

/// How a quantum ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollEnd {
    /// The future waits for something and will be woken.
    Pending,
    /// The future could go on at once; it gave way because its quantum was over.
    Yielded,
    /// The future is complete; its id is of the past from now on.
    Done,
}

/// Deliberate mistakes, to show that the simulator would notice them. Only it can make them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A wake that comes while the task runs is forgotten when its poll ends.
    LostWake,
    /// A task that is dropped between its grant and its poll keeps its slot.
    LeakedSlot,
    /// CPU time used does not change a waiting query's rank.
    StaleRank,
    /// A drop of a past task drops the one that has its place now.
    StaleId,
}

struct Query {
    state: QueryState,
    /// First and last of its queued tasks.
    head: u32,
    tail: u32,
}

/// Decides which task of which query may run. See the [crate's page](crate) for how to drive it.
///
/// All methods are O(log queries), but for cancelling or ending a query with living tasks and
/// changing the policy. Actions are appended to the caller's buffer.
pub struct Scheduler {
    slots: usize,
    in_use: usize,
    queued: usize,
    tasks: Tasks,
    queries: Vec<Option<Query>>,
    free_queries: Vec<u32>,
    by_id: HashMap<QueryId, u32>,
    arrivals: u64,
    policy: Box<dyn Policy>,
    order: Order,
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fault: Option<Fault>,
}

impl Scheduler {
    /// # Panics
    /// If `slots` is 0: nothing would ever run.
    pub fn new(slots: usize, policy: PolicyKind) -> Self {
        assert!(slots > 0, "a scheduler needs at least one slot");
        Scheduler {
            slots,
            in_use: 0,
            queued: 0,
            tasks: Tasks::default(),
            queries: Vec::new(),
            free_queries: Vec::new(),
            by_id: HashMap::new(),
            arrivals: 0,
            policy: policy.build(),
            order: Order::default(),
            #[cfg(any(test, feature = "simulation"))]
            fault: None,
        }
    }

    // Events of queries.

    /// A query begins. `estimate_ns` is the CPU time it is believed to need, 0 if unknown.
    ///
    /// # Panics
    /// If a query of this id is alive.
    pub fn query_arrived(&mut self, query: QueryId, estimate_ns: u64, now_ns: u64) {
        let entry = Query {
            state: QueryState {
                query,
                arrival_order: self.arrivals,
                estimate_ns,
                cpu_ns: 0,
                quanta: 0,
                longest_quantum_ns: 0,
                waited_ns: 0,
                tasks: 0,
                queued: 0,
                running: 0,
                arrival_ns: now_ns,
                first_grant_ns: None,
                end_ns: None,
                cancelled: false,
            },
            head: NONE,
            tail: NONE,
        };
        self.arrivals += 1;
        let index = match self.free_queries.pop() {
            Some(index) => {
                self.queries[index as usize] = Some(entry);
                index
            }
            None => {
                self.queries.push(Some(entry));
                (self.queries.len() - 1) as u32
            }
        };
        let before = self.by_id.insert(query, index);
        assert!(before.is_none(), "query {query} arrived twice");
    }

    /// A better estimate of the whole query's CPU time is known.
    pub fn query_estimated(&mut self, query: QueryId, estimate_ns: u64) {
        if let Some(&q) = self.by_id.get(&query) {
            self.query_mut(q).state.estimate_ns = estimate_ns;
            self.rerank(q);
        }
    }

    /// The query is no longer wanted. Its tasks hold no slot from now on, but for a quantum
    /// that is running, which ends; each is told by an [`Action::Cancel`]. It is listed until
    /// [`query_ended`](Self::query_ended).
    pub fn query_cancelled(&mut self, query: QueryId, now_ns: u64, actions: &mut Vec<Action>) {
        if let Some(&q) = self.by_id.get(&query) {
            self.cancel_tasks(q, now_ns, actions);
            self.grant(now_ns, actions);
        }
    }

    /// The query is over: returns its final account, `None` if there is no such query. Tasks
    /// still alive are cancelled; they leave when they are dropped, unlisted.
    pub fn query_ended(
        &mut self,
        query: QueryId,
        now_ns: u64,
        actions: &mut Vec<Action>,
    ) -> Option<QueryState> {
        let q = self.by_id.remove(&query)?;
        self.query_mut(q).state.end_ns = Some(now_ns);
        self.cancel_tasks(q, now_ns, actions);
        let account = self.query(q).state.clone();
        self.forget_if_over(q);
        self.grant(now_ns, actions);
        Some(account)
    }

    // Events of tasks.

    /// A future of the query was spawned: it is queued at once, and may be granted a slot
    /// before its first poll. `None`: there is no such query (any more).
    pub fn task_spawned(
        &mut self,
        query: QueryId,
        now_ns: u64,
        actions: &mut Vec<Action>,
    ) -> Option<TaskId> {
        let &q = self.by_id.get(&query)?;
        let task = self.tasks.insert(q);
        let id = self.tasks.id(task);
        let state = &mut self.query_mut(q).state;
        state.tasks += 1;
        if state.cancelled {
            self.tasks[task].state = State::Cancelled;
            actions.push(Action::Cancel(id));
        } else {
            self.enqueue(task, now_ns);
            self.grant(now_ns, actions);
        }
        Some(id)
    }

    /// The task's own waker was called. Never lost: a wake during a poll queues the task again
    /// when that poll ends. Of a past task: nothing.
    pub fn task_woken(&mut self, task: TaskId, now_ns: u64, actions: &mut Vec<Action>) {
        let Some(t) = self.tasks.find(task) else { return };
        match self.tasks[t].state {
            State::Idle => {
                self.enqueue(t, now_ns);
                self.grant(now_ns, actions);
            }
            State::Running => self.tasks[t].state = State::Notified,
            State::Queued | State::Granted | State::Notified | State::Cancelled => {}
            State::Free => unreachable!("find() returns living tasks"),
        }
    }

    /// The runtime polls the task. Store its waker before this call: a grant may follow at once.
    ///
    /// # Panics
    /// If the task's last poll has not ended.
    pub fn poll_began(&mut self, task: TaskId) -> Turn {
        let Some(t) = self.tasks.find(task) else { return Turn::Cancelled };
        match self.tasks[t].state {
            State::Granted => {
                self.tasks[t].state = State::Running;
                Turn::Run
            }
            State::Idle | State::Queued => Turn::Wait,
            State::Cancelled => Turn::Cancelled,
            State::Running | State::Notified => panic!("task {task} is polled twice at once"),
            State::Free => unreachable!("find() returns living tasks"),
        }
    }

    /// The poll is over and used `cpu_ns` of CPU time: its slot goes to whom the policy says,
    /// which may be the same task again.
    ///
    /// # Panics
    /// If no poll of a living task had begun.
    pub fn poll_ended(
        &mut self,
        task: TaskId,
        end: PollEnd,
        cpu_ns: u64,
        now_ns: u64,
        actions: &mut Vec<Action>,
    ) {
        let Some(t) = self.tasks.find(task) else { return };
        let notified = match self.tasks[t].state {
            State::Running => false,
            State::Notified => !self.faulty(Fault::LostWake),
            other => panic!("a poll of task {task} ended that never began: it is {other:?}"),
        };
        let q = self.tasks[t].query;
        self.release(q);
        let state = &mut self.query_mut(q).state;
        state.cpu_ns += cpu_ns;
        state.quanta += 1;
        state.longest_quantum_ns = state.longest_quantum_ns.max(cpu_ns);
        let cancelled = state.cancelled;
        self.rerank(q);
        if end == PollEnd::Done {
            self.forget_task(t);
        } else if cancelled {
            self.tasks[t].state = State::Cancelled;
            actions.push(Action::Cancel(task));
        } else if notified || end == PollEnd::Yielded {
            self.enqueue(t, now_ns);
        } else {
            self.tasks[t].state = State::Idle;
        }
        self.grant(now_ns, actions);
    }

    /// The future was dropped, complete or not, polled or not: it leaves the queue or returns
    /// its slot. Of a past task: nothing.
    pub fn task_dropped(&mut self, task: TaskId, now_ns: u64, actions: &mut Vec<Action>) {
        let found = match self.faulty(Fault::StaleId) {
            true => self.tasks.find_any(task),
            false => self.tasks.find(task),
        };
        let Some(t) = found else { return };
        match self.tasks[t].state {
            State::Queued => self.dequeue(t, now_ns),
            State::Granted if self.faulty(Fault::LeakedSlot) => {}
            state if state.holds_slot() => self.release(self.tasks[t].query),
            _ => {}
        }
        self.forget_task(t);
        self.grant(now_ns, actions);
    }

    // Settings, live.

    /// Fewer slots than are in use: the running quanta end, and are not replaced.
    ///
    /// # Panics
    /// If `slots` is 0.
    pub fn set_slots(&mut self, slots: usize, now_ns: u64, actions: &mut Vec<Action>) {
        assert!(slots > 0, "a scheduler needs at least one slot");
        self.slots = slots;
        self.grant(now_ns, actions);
    }

    /// All that wait go on waiting, in the order of the new policy; the queries join it in
    /// order of arrival.
    pub fn set_policy(&mut self, policy: PolicyKind) {
        let mut waiting: Vec<u32> = self.order.queries().collect();
        waiting.sort_by_key(|q| self.query(*q).state.arrival_order);
        self.policy = policy.build();
        self.order.clear();
        for q in waiting {
            self.join(q);
        }
    }

    // Questions.

    pub fn policy(&self) -> PolicyKind {
        self.policy.kind()
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    pub fn slots_in_use(&self) -> usize {
        self.in_use
    }

    /// Tasks that could run and have no slot.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// The queries that have arrived and not ended, in no particular order.
    pub fn queries(&self) -> impl Iterator<Item = &QueryState> {
        self.queries.iter().flatten().map(|q| &q.state).filter(|q| q.end_ns.is_none())
    }

    pub fn query_state(&self, query: QueryId) -> Option<&QueryState> {
        self.by_id.get(&query).map(|q| &self.query(*q).state)
    }

    /// Why the query does not advance; `None` if it does (or is not there). O(queries).
    pub fn wait_reason(&self, query: QueryId) -> Option<WaitReason> {
        let state = self.query_state(query)?;
        if state.running > 0 {
            return None;
        }
        if state.queued == 0 {
            return Some(WaitReason::Input);
        }
        // Queries that ended count: their last quanta still hold slots.
        self.queries
            .iter()
            .flatten()
            .filter(|other| other.state.running > 0)
            .max_by_key(|other| (other.state.running, std::cmp::Reverse(other.state.arrival_order)))
            .map(|other| WaitReason::Slot { behind: other.state.query })
    }
}

/// The transitions' common parts.
impl Scheduler {
    fn query(&self, q: u32) -> &Query {
        self.queries[q as usize].as_ref().expect("a task or an id keeps its query's entry")
    }

    fn query_mut(&mut self, q: u32) -> &mut Query {
        self.queries[q as usize].as_mut().expect("a task or an id keeps its query's entry")
    }

    /// Hands free slots to the policy's choice until there is no slot or no task left.
    fn grant(&mut self, now_ns: u64, actions: &mut Vec<Action>) {
        while self.in_use < self.slots {
            let Some(q) = self.order.first() else { return };
            let task = self.query(q).head;
            self.unlink(task, now_ns);
            self.tasks[task].state = State::Granted;
            self.in_use += 1;
            let query = self.queries[q as usize].as_mut().expect("the order knows living queries");
            query.state.running += 1;
            query.state.first_grant_ns.get_or_insert(now_ns);
            if query.state.queued == 0 {
                self.order.remove(q);
            } else {
                let rank = self.policy.served(&query.state, self.order.rank(q));
                self.order.set_rank(q, rank);
            }
            actions.push(Action::Grant(self.tasks.id(task)));
        }
    }

    fn release(&mut self, q: u32) {
        assert!(self.in_use > 0, "a slot was returned that nobody held");
        self.in_use -= 1;
        let running = &mut self.query_mut(q).state.running;
        *running = running.checked_sub(1).expect("a query returned a slot that it did not hold");
    }

    /// To the end of its query's queue.
    fn enqueue(&mut self, task: u32, now_ns: u64) {
        let entry = &mut self.tasks[task];
        assert!(
            matches!(entry.state, State::Idle | State::Running | State::Notified),
            "a task that is {:?} cannot queue",
            entry.state
        );
        let q = entry.query;
        let query = self.queries[q as usize].as_mut().expect("a task keeps its query's entry");
        entry.state = State::Queued;
        entry.queued_since_ns = now_ns;
        entry.next = NONE;
        entry.prev = std::mem::replace(&mut query.tail, task);
        match entry.prev {
            NONE => query.head = task,
            last => self.tasks[last].next = task,
        }
        query.state.queued += 1;
        self.queued += 1;
        if query.state.queued == 1 {
            self.join(q);
        }
    }

    /// Out of its query's queue, and the query out of the order if it was the last.
    fn dequeue(&mut self, task: u32, now_ns: u64) {
        self.unlink(task, now_ns);
        let q = self.tasks[task].query;
        if self.query(q).state.queued == 0 {
            self.order.remove(q);
        }
    }

    fn unlink(&mut self, task: u32, now_ns: u64) {
        let entry = &mut self.tasks[task];
        assert_eq!(entry.state, State::Queued, "only a queued task leaves the queue");
        let (prev, next) = (entry.prev, entry.next);
        entry.state = State::Idle;
        let query =
            self.queries[entry.query as usize].as_mut().expect("a task keeps its query's entry");
        query.state.waited_ns += now_ns.saturating_sub(entry.queued_since_ns);
        query.state.queued -= 1;
        self.queued -= 1;
        match prev {
            NONE => query.head = next,
            prev => self.tasks[prev].next = next,
        }
        match next {
            NONE => query.tail = prev,
            next => self.tasks[next].prev = prev,
        }
    }

    fn join(&mut self, q: u32) {
        let query = self.queries[q as usize].as_ref().expect("only living queries join");
        let rank = self.policy.joined(&query.state);
        self.order.insert(q, rank);
    }

    fn rerank(&mut self, q: u32) {
        if self.order.contains(q) && !self.faulty(Fault::StaleRank) {
            let query = self.queries[q as usize].as_ref().expect("the order knows living queries");
            let rank = self.policy.charged(&query.state, self.order.rank(q));
            self.order.set_rank(q, rank);
        }
    }

    fn cancel_tasks(&mut self, q: u32, now_ns: u64, actions: &mut Vec<Action>) {
        let state = &mut self.query_mut(q).state;
        let mut left = if std::mem::replace(&mut state.cancelled, true) { 0 } else { state.tasks };
        // A walk over the slab: a cancel is rare, and a second list of all tasks of a query
        // would be paid for by every spawn and drop.
        for task in 0..self.tasks.len() {
            if left == 0 {
                break;
            }
            let entry = &self.tasks[task];
            if entry.state == State::Free || entry.query != q {
                continue;
            }
            left -= 1;
            match entry.state {
                // It is told when its quantum ends.
                State::Running | State::Notified => continue,
                State::Queued => self.dequeue(task, now_ns),
                State::Granted => self.release(q),
                State::Idle | State::Cancelled | State::Free => {}
            }
            self.tasks[task].state = State::Cancelled;
            actions.push(Action::Cancel(self.tasks.id(task)));
        }
    }

    fn forget_task(&mut self, task: u32) {
        let q = self.tasks[task].query;
        self.tasks.remove(task);
        self.query_mut(q).state.tasks -= 1;
        self.forget_if_over(q);
    }

    fn forget_if_over(&mut self, q: u32) {
        let state = &self.query(q).state;
        if state.end_ns.is_some() && state.tasks == 0 {
            self.queries[q as usize] = None;
            self.free_queries.push(q);
        }
    }

    #[cfg(any(test, feature = "simulation"))]
    fn faulty(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    #[cfg(not(any(test, feature = "simulation")))]
    fn faulty(&self, _fault: Fault) -> bool {
        false
    }
}
