//! Events of queries: they arrive, change, are stopped and end; and of their memory.

use thalweg_base::QueryId;

use super::{Fault, Query, Scheduler};
use crate::action::Action;
use crate::class::{Admission, ClassId};
use crate::memory::MemoryRefusal;
use crate::query::{Arrival, Estimate, Priority, QueryState};
use crate::task::NONE;
use crate::wait::{Refusal, Stop};

impl Scheduler {
    /// A query begins. If it has to wait, tasks of it may be spawned meanwhile; they queue and
    /// get no slot. A refused query was never there. A class that was dropped stands for the
    /// default one.
    ///
    /// # Panics
    /// If a query of this id is alive.
    pub fn query_arrived(
        &mut self,
        query: QueryId,
        arrival: &Arrival,
        now_ns: u64,
        actions: &mut Vec<Action>,
    ) -> Result<Admission, Refusal> {
        assert!(!self.by_id.contains_key(&query), "query {query} arrived twice");
        let class = arrival.class.filter(|c| self.classes.get(*c).is_some());
        let class = class.unwrap_or(self.classes.default);
        self.could_ever_run(class, arrival)?;
        let mut state = QueryState::new(query, arrival, class, now_ns);
        state.arrival_order = self.arrivals;
        state.share = state.share_in(self.classes[class].class.weight);
        self.arrivals += 1;
        let entry =
            Query { state, head: NONE, tail: NONE, counted: false, waiting: false, waits_as: None };
        let q = match self.free_queries.pop() {
            Some(index) => {
                self.queries[index as usize] = Some(entry);
                index
            }
            None => {
                self.queries.push(Some(entry));
                (self.queries.len() - 1) as u32
            }
        };
        self.by_id.insert(query, q);
        if arrival.exempt {
            self.let_in(q, now_ns, actions);
        } else {
            self.wait_for_admission(q, now_ns, actions)?;
        }
        self.note_timeout(q);
        match self.query(q).waiting {
            true => Ok(Admission::Waits),
            false => Ok(Admission::Admitted),
        }
    }

    /// A better estimate of the whole query's CPU time is known.
    pub fn query_estimated(
        &mut self,
        query: QueryId,
        estimate: Estimate,
        now_ns: u64,
        actions: &mut Vec<Action>,
    ) {
        if let Some(&q) = self.by_id.get(&query) {
            let state = &mut self.query_mut(q).state;
            (state.estimate_ns, state.measured) = (estimate.cpu_ns, estimate.measured);
            self.rerank(q);
            if self.order.contains(q) {
                self.count_waiting(q);
            }
            self.admit(None, now_ns, actions);
        }
    }

    /// Its user or an administrator gives it another weight.
    pub fn set_query_weight(
        &mut self,
        query: QueryId,
        weight: u32,
        priority: Priority,
        now_ns: u64,
        actions: &mut Vec<Action>,
    ) {
        if let Some(&q) = self.by_id.get(&query) {
            let arrival = &mut self.query_mut(q).state.arrival;
            (arrival.weight, arrival.priority) = (weight, priority);
            self.reweigh(q);
            self.admit(None, now_ns, actions);
        }
    }

    pub fn set_query_deadline(&mut self, query: QueryId, deadline_ns: Option<u64>) {
        if let Some(&q) = self.by_id.get(&query) {
            self.query_mut(q).state.arrival.deadline_ns = deadline_ns;
            if self.order.contains(q) {
                self.deadlines.left(q);
                self.join_deadlines(q);
            }
        }
    }

    /// Moves a query to another class, with its memory and under its limits. One that waits to
    /// be admitted waits there, however many do.
    pub fn set_query_class(
        &mut self,
        query: QueryId,
        class: ClassId,
        now_ns: u64,
        actions: &mut Vec<Action>,
    ) {
        if let Some(&q) = self.by_id.get(&query)
            && self.classes.get(class).is_some()
        {
            self.move_to_class(q, class, actions);
            self.refuse_what_never_fits(now_ns, actions);
            self.note_timeout(q);
            self.admit(None, now_ns, actions);
            self.grant(now_ns, actions);
        }
    }

    /// The query is no longer wanted. Its tasks hold no slot from now on, but for a quantum
    /// that is running, which ends; each is told by an [`Action::Cancel`]. It is listed until
    /// [`query_ended`](Self::query_ended).
    pub fn query_cancelled(&mut self, query: QueryId, now_ns: u64, actions: &mut Vec<Action>) {
        if let Some(&q) = self.by_id.get(&query) {
            self.cancel(q, now_ns, actions);
            self.admit(None, now_ns, actions);
            self.grant(now_ns, actions);
        }
    }

    /// The query is over: returns its final account, `None` if there is no such query. Tasks
    /// still alive are cancelled; they leave when they are dropped, unlisted. What memory it
    /// holds is its own until then.
    pub fn query_ended(
        &mut self,
        query: QueryId,
        now_ns: u64,
        actions: &mut Vec<Action>,
    ) -> Option<QueryState> {
        let q = self.by_id.remove(&query)?;
        self.query_mut(q).state.end_ns = Some(now_ns);
        self.cancel(q, now_ns, actions);
        self.uncount(q);
        let account = self.query(q).state.clone();
        let others = self.by_id.values().filter_map(|&q| self.queries[q as usize].as_ref());
        self.policy.ended(&account, self.slots, &mut others.map(|query| &query.state));
        self.forget_if_over(q, actions);
        if !self.faulty(Fault::LostAdmission) {
            self.admit(None, now_ns, actions);
        }
        self.grant(now_ns, actions);
        Some(account)
    }

    /// Time has passed: stops what has waited or run for too long, and looks at the reserve
    /// again. Call it at [`next_deadline`](Self::next_deadline); at any other time it does no
    /// harm.
    pub fn tick(&mut self, now_ns: u64, actions: &mut Vec<Action>) {
        if self.next_timeout_ns.is_some_and(|t| t <= now_ns) {
            self.next_timeout_ns = None;
            for q in 0..self.queries.len() as u32 {
                let due = self.timeout_of(q).filter(|(at, _)| *at <= now_ns);
                if let Some((_, late)) = due {
                    let stop = self.stop_for(q, late);
                    self.stop(q, stop, now_ns, actions);
                }
                self.note_timeout(q);
            }
            self.admit(None, now_ns, actions);
        }
        self.grant(now_ns, actions);
    }

    /// The query wants to hold more memory. Refused, it must not allocate; see
    /// [`Advice`](crate::Advice) for what it can do. Nothing is booked for a query that is not
    /// admitted or that is over with all its tasks, as nothing of it runs.
    pub fn memory_grow(
        &mut self,
        query: QueryId,
        bytes: u64,
        now_ns: u64,
        actions: &mut Vec<Action>,
    ) -> Result<(), MemoryRefusal> {
        let result = self.memory.try_grow(query, bytes, actions);
        self.note_memory(query, now_ns);
        result
    }

    /// The query is planned, and will want so much memory: whether it is promised to it, or as
    /// much as a query may be promised. If not, it must not begin before an
    /// [`Action::MemoryFreed`] tells it to ask again.
    pub fn memory_promise(
        &mut self,
        query: QueryId,
        bytes: u64,
        now_ns: u64,
        actions: &mut Vec<Action>,
    ) -> bool {
        let promised = self.memory.promise(query, bytes, actions);
        self.note_memory(query, now_ns);
        // Whom the server's limit held up, his class's may now: then he holds up no other class.
        self.admit(None, now_ns, actions);
        promised
    }

    /// The query has freed memory. Of a query that is over: nothing.
    pub fn memory_shrink(
        &mut self,
        query: QueryId,
        bytes: u64,
        now_ns: u64,
        actions: &mut Vec<Action>,
    ) {
        self.memory.shrink(query, bytes, actions);
        self.note_memory(query, now_ns);
    }

    fn note_memory(&mut self, query: QueryId, now_ns: u64) {
        if let Some(&q) = self.by_id.get(&query) {
            self.note_phase(q, now_ns);
        }
    }

    /// Cancels it on the scheduler's own account.
    pub(super) fn stop(&mut self, q: u32, stop: Stop, now_ns: u64, actions: &mut Vec<Action>) {
        let state = &mut self.query_mut(q).state;
        state.stopped = Some(stop);
        actions.push(Action::Stop(state.query));
        self.cancel(q, now_ns, actions);
    }

    fn cancel(&mut self, q: u32, now_ns: u64, actions: &mut Vec<Action>) {
        self.leave_queue(q);
        self.cancel_tasks(q, now_ns, actions);
    }

    /// When the query will have taken too long, and for what.
    fn timeout_of(&self, q: u32) -> Option<(u64, Late)> {
        let query = self.queries[q as usize].as_ref()?;
        let state = &query.state;
        if state.cancelled || state.end_ns.is_some() {
            return None;
        }
        let class = &self.classes[state.class].class;
        let of_class = class.statement_timeout_ns.filter(|_| !state.arrival.exempt);
        let statement_ns = [state.arrival.timeout_ns, of_class].into_iter().flatten().min();
        let queue_ns = class.queue_timeout_ns.filter(|_| query.waiting);
        let at = |timeout_ns: u64| state.arrival_ns.saturating_add(timeout_ns);
        let statement = statement_ns.map(|ns| (at(ns), Late::Statement { timeout_ns: ns }));
        let queue = queue_ns.map(|ns| (at(ns), Late::Queue { timeout_ns: ns }));
        [statement, queue].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    fn stop_for(&self, q: u32, late: Late) -> Stop {
        match late {
            Late::Statement { timeout_ns } => Stop::StatementTimeout { timeout_ns },
            Late::Queue { timeout_ns } => Stop::Refused(Refusal::QueueTimeout {
                class: self.classes[self.query(q).state.class].class.name.clone(),
                timeout_ns,
                waits_for: self.admission_reason(q),
            }),
        }
    }

    pub(super) fn note_timeout(&mut self, q: u32) {
        if let Some((at, _)) = self.timeout_of(q) {
            self.next_timeout_ns = Some(self.next_timeout_ns.map_or(at, |next| next.min(at)));
        }
    }
}

/// What a query has taken too long for.
enum Late {
    Statement { timeout_ns: u64 },
    Queue { timeout_ns: u64 },
}
