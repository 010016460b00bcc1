//! Who gets a free slot, and the common parts of all transitions.

use super::{Fault, Query, Scheduler};
use crate::action::Action;
use crate::query::{Age, OVERDUE_NS};
use crate::slots::Held;
use crate::task::{NONE, State};
use crate::wait::Phase;

/// Who gets a free slot.
enum Next {
    ByPolicy(u32),
    /// For its deadline, perhaps before its turn.
    Urgent {
        query: u32,
        out_of_turn: bool,
    },
}

impl Scheduler {
    pub(super) fn query(&self, q: u32) -> &Query {
        self.queries[q as usize].as_ref().expect("a task or an id keeps its query's entry")
    }

    pub(super) fn query_mut(&mut self, q: u32) -> &mut Query {
        self.queries[q as usize].as_mut().expect("a task or an id keeps its query's entry")
    }

    /// Hands free slots to the policy's choice until there is no slot or no task left.
    pub(super) fn grant(&mut self, now_ns: u64, actions: &mut Vec<Action>) {
        loop {
            let next = match self.held.in_use() < self.slots {
                true => self.next(now_ns),
                false => self.next_in_reserve(now_ns),
            };
            let (q, out_of_turn) = match next {
                None => return,
                Some(Next::Urgent { query, out_of_turn }) => (query, out_of_turn),
                Some(Next::ByPolicy(first)) => (self.first_of_line(first), false),
            };
            let task = self.query(q).head;
            self.unlink(task, now_ns);
            let age = self.query(q).state.age();
            let slot = self.held.take(Held { task, since_ns: now_ns, age });
            let entry = &mut self.tasks[task];
            (entry.state, entry.slot, entry.out_of_turn) = (State::Granted, slot, out_of_turn);
            let state = &mut self.query_mut(q).state;
            state.running += 1;
            state.first_grant_ns.get_or_insert(now_ns);
            state.phases.enter(Phase::Running, now_ns);
            if state.queued == 0 {
                self.leave_order(q);
            } else {
                let query = self.queries[q as usize].as_mut().expect("it was just granted");
                self.policy.served(&mut query.state);
                self.order.set_rank(q, self.policy.rank(&query.state));
            }
            actions.push(Action::Grant(self.tasks.id(task)));
        }
    }

    fn next(&mut self, now_ns: u64) -> Option<Next> {
        let first = self.order.first()?;
        let Some(query) = self.deadlines.first(now_ns) else { return Some(Next::ByPolicy(first)) };
        if self.deadlines.len() == self.order.len() {
            return Some(Next::Urgent { query, out_of_turn: false });
        }
        match self.deadlines.may_go() || self.faulty(Fault::EndlessDeadlines) {
            true => Some(Next::Urgent { query, out_of_turn: query != first }),
            false => Some(Next::ByPolicy(first)),
        }
    }

    /// Who is served when `first` is the policy's choice.
    fn first_of_line(&mut self, first: u32) -> u32 {
        let place = |q: u32| {
            let state = &self.query(q).state;
            self.policy.line(state).map(|(line, turn)| (line, turn, state.arrival_order))
        };
        let Some((line, ..)) = place(first) else { return first };
        let waiting = self.order.entries().filter_map(|(_, q)| Some((place(q)?, q)));
        let of_line = waiting.filter(|((other, ..), _)| *other == line);
        let chosen = match self.faulty(Fault::BackToFront) {
            false => of_line.min(),
            true => of_line.max(),
        };
        let chosen = chosen.map_or(first, |(_, q)| q);
        if chosen != first {
            let both = self.queries.get_disjoint_mut([first as usize, chosen as usize]);
            let [Some(a), Some(b)] = both.expect("two queries") else { unreachable!("both wait") };
            self.policy.exchange(&mut a.state, &mut b.state);
            self.rerank(first);
        }
        chosen
    }

    /// Who gets one more slot than there are: a query that is not long, if enough are held by
    /// older ones, or by tasks that are overdue.
    fn next_in_reserve(&mut self, now_ns: u64) -> Option<Next> {
        let oldest = Age::WITH_RESERVE.into_iter().find(|age| {
            let in_the_way = |held: &Held| held.age > *age || now_ns >= held.since_ns + OVERDUE_NS;
            self.held.in_use() < self.places(*age)
                && self.held.held().filter(|(_, held)| in_the_way(held)).count()
                    >= self.in_the_way_min()
        })?;
        if self.waiting[..=oldest as usize].iter().all(|count| *count == 0) {
            return None;
        }
        let next = self.next(now_ns)?;
        let may = |q: u32| self.query(q).state.age() <= oldest;
        let (Next::ByPolicy(query) | Next::Urgent { query, .. }) = next;
        if may(query) || self.faulty(Fault::ReserveForAll) {
            return Some(next);
        }
        let young = self.order.entries().filter(|(_, q)| may(*q));
        young.min().map(|(_, q)| Next::ByPolicy(q))
    }

    /// Slots that may be held in all if one more of them is of a query of this age.
    pub(super) fn places(&self, age: Age) -> usize {
        self.slots + age.reserves() * self.reserve
    }

    /// Tasks in the way of younger ones without which none of these gets one more slot: one for each
    /// that is in use beyond those there are, and for the one more; so as many young ones run as there
    /// are slots, however many old ones. If old ones hold as many as there are, that is enough.
    pub(super) fn in_the_way_min(&self) -> usize {
        (self.held.in_use() + 1).saturating_sub(self.slots).min(self.slots)
    }

    pub(super) fn release(&mut self, task: u32) {
        let entry = &mut self.tasks[task];
        self.held.give_back(entry.slot);
        (entry.slot, entry.out_of_turn) = (NONE, false);
        let q = entry.query;
        let running = &mut self.query_mut(q).state.running;
        *running = running.checked_sub(1).expect("a query returned a slot that it did not hold");
    }

    /// To the end of its query's queue.
    pub(super) fn enqueue(&mut self, task: u32, now_ns: u64) {
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
        if query.state.queued == 1 && query.state.admitted_ns.is_some() {
            self.join_order(q);
        }
    }

    /// Out of its query's queue, and the query out of the order if it was the last.
    pub(super) fn dequeue(&mut self, task: u32, now_ns: u64) {
        self.unlink(task, now_ns);
        let q = self.tasks[task].query;
        if self.query(q).state.queued == 0 && self.order.contains(q) {
            self.leave_order(q);
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

    pub(super) fn join_order(&mut self, q: u32) {
        let credit = self.faulty(Fault::CreditForRest);
        let query = self.queries[q as usize].as_mut().expect("only living queries join");
        self.policy.joined(&mut query.state);
        if credit {
            query.state.place.pass = 0;
        }
        self.order.insert(q, self.policy.rank(&query.state));
        self.join_deadlines(q);
        self.count_waiting(q);
    }

    fn leave_order(&mut self, q: u32) {
        self.order.remove(q);
        self.deadlines.left(q);
        self.count_waiting(q);
    }

    pub(super) fn join_deadlines(&mut self, q: u32) {
        let state = &self.query(q).state;
        if let Some(deadline_ns) = state.arrival.deadline_ns {
            self.deadlines.joined(q, deadline_ns, state.arrival_order);
        }
    }

    pub(super) fn count_waiting(&mut self, q: u32) {
        let in_order = self.order.contains(q);
        let query = self.queries[q as usize].as_mut().expect("the order knows living queries");
        let now = in_order.then(|| query.state.age());
        if let Some(before) = std::mem::replace(&mut query.waits_as, now) {
            self.waiting[before as usize] -= 1;
        }
        if let Some(now) = now {
            self.waiting[now as usize] += 1;
        }
    }

    /// It has used more CPU time.
    pub(super) fn charge(&mut self, q: u32, cpu_ns: u64) {
        let query = self.queries[q as usize].as_mut().expect("a task keeps its query's entry");
        self.policy.charged(&mut query.state, cpu_ns);
        self.rerank(q);
        if self.order.contains(q) {
            self.count_waiting(q);
        }
    }

    /// Its weight, its class's or its priority has changed.
    pub(super) fn reweigh(&mut self, q: u32) {
        let weight = self.classes[self.query(q).state.class].class.weight;
        let state = &mut self.query_mut(q).state;
        state.share = state.share_in(weight);
        if state.running > 0 || self.order.contains(q) {
            self.charge(q, 0);
        }
    }

    pub(super) fn rerank(&mut self, q: u32) {
        if self.order.contains(q) && !self.faulty(Fault::StaleRank) {
            let rank = self.policy.rank(&self.query(q).state);
            self.order.set_rank(q, rank);
        }
    }

    pub(super) fn rest_if_idle(&mut self, q: u32) {
        let query = self.queries[q as usize].as_mut().expect("a task keeps its query's entry");
        if query.state.running == 0 && !self.order.contains(q) {
            self.policy.rested(&mut query.state);
        }
    }

    /// Books what the query does from now on.
    pub(super) fn note_phase(&mut self, q: u32, now_ns: u64) {
        let query = self.queries[q as usize].as_mut().expect("a task keeps its query's entry");
        let state = &mut query.state;
        let phase = if state.running > 0 {
            Phase::Running
        } else if query.waiting {
            Phase::Admission
        } else if state.queued > 0 {
            Phase::Slot
        } else if self.memory.anyone_waits() && self.memory.awaits(state.query) {
            Phase::Memory
        } else {
            Phase::Input
        };
        state.phases.enter(phase, now_ns);
    }

    pub(super) fn cancel_tasks(&mut self, q: u32, now_ns: u64, actions: &mut Vec<Action>) {
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
                State::Granted => self.release(task),
                State::Idle | State::Cancelled | State::Free => {}
            }
            self.tasks[task].state = State::Cancelled;
            actions.push(Action::Cancel(self.tasks.id(task)));
        }
        self.rest_if_idle(q);
        self.note_phase(q, now_ns);
    }

    pub(super) fn forget_task(&mut self, task: u32, now_ns: u64, actions: &mut Vec<Action>) {
        let q = self.tasks[task].query;
        self.tasks.remove(task);
        self.query_mut(q).state.tasks -= 1;
        if self.forget_if_over(q, actions) {
            self.admit(None, now_ns, actions);
        }
    }

    /// Whether it was.
    pub(super) fn forget_if_over(&mut self, q: u32, actions: &mut Vec<Action>) -> bool {
        let state = &self.query(q).state;
        let over = state.end_ns.is_some() && state.tasks == 0;
        if over {
            if !self.faulty(Fault::LeakedMemory) {
                self.memory.close(state.query, actions);
            }
            self.queries[q as usize] = None;
            self.free_queries.push(q);
        }
        over
    }
}
