//! The invariants of the state machine, recomputed from nothing.

use super::Scheduler;
use crate::query::Age;
use crate::task::{NONE, State};

#[derive(Clone, Debug, Default)]
struct Counts {
    tasks: u32,
    running: u32,
    queued: u32,
    /// Could begin a poll without another event of the task's own.
    unstarted: u32,
}

impl Scheduler {
    /// Every invariant that must hold between two events; says which does not. O(everything).
    pub fn check(&self) -> Result<(), String> {
        self.order.check()?;
        self.deadlines.check()?;
        self.tasks.check()?;
        self.memory.check()?;
        self.check_admission()?;
        let mut counts = vec![Counts::default(); self.queries.len()];
        for task in (0..self.tasks.len()).map(|t| &self.tasks[t]) {
            if task.state == State::Free {
                continue;
            }
            let count = &mut counts[task.query as usize];
            count.tasks += 1;
            count.running += u32::from(task.state.holds_slot());
            count.queued += u32::from(task.state == State::Queued);
            count.unstarted +=
                u32::from(matches!(task.state, State::Idle | State::Queued | State::Granted));
        }
        let (mut in_use, mut queued, mut waiting) = (0, 0, [0; Age::COUNT]);
        for (q, (query, count)) in self.queries.iter().zip(&counts).enumerate() {
            let q = q as u32;
            let Some(query) = query else {
                if self.order.contains(q) || count.tasks > 0 {
                    return Err(format!("the empty query entry {q} is in use"));
                }
                continue;
            };
            let state = &query.state;
            let name = state.query;
            if (count.tasks, count.running, count.queued)
                != (state.tasks, state.running, state.queued)
            {
                return Err(format!("query {name} has {count:?}; its account says {state:?}"));
            }
            let admitted = state.admitted_ns.is_some();
            if self.order.contains(q) != (count.queued > 0 && admitted) {
                return Err(format!("query {name} has {count:?} and is misplaced in the order"));
            }
            if state.cancelled && count.unstarted > 0 {
                return Err(format!("query {name} was cancelled and a task of it may still start"));
            }
            if state.end_ns.is_some() && count.tasks == 0 {
                return Err(format!("query {name} has ended and its entry was not returned"));
            }
            if self.deadlines.contains(q) && !self.order.contains(q) {
                return Err(format!("query {name} has a deadline and no place in the order"));
            }
            if query.waits_as != self.order.contains(q).then(|| state.age()) {
                return Err(format!("query {name} waits as {:?}: {state:?}", query.waits_as));
            }
            if !admitted && count.running > 0 {
                return Err(format!("query {name} runs and was not admitted"));
            }
            if let Some(age) = query.waits_as {
                waiting[age as usize] += 1;
            }
            let mut length = 0;
            let (mut at, mut before) = (query.head, NONE);
            while at != NONE {
                let task = &self.tasks[at];
                if task.state != State::Queued || task.query != q || task.prev != before {
                    return Err(format!("the queue of query {name} runs through {task:?}"));
                }
                length += 1;
                (before, at) = (at, task.next);
            }
            if length != count.queued || query.tail != before {
                return Err(format!(
                    "the queue of query {name} has {length} of {} tasks",
                    count.queued
                ));
            }
            in_use += count.running as usize;
            queued += count.queued as usize;
        }
        if (in_use, queued, waiting) != (self.held.in_use(), self.queued, self.waiting) {
            return Err(format!(
                "{in_use} slots are held, {queued} tasks queued and by age {waiting:?} queries \
                 wait; counted were {}, {} and {:?}",
                self.held.in_use(),
                self.queued,
                self.waiting
            ));
        }
        for (slot, held) in self.held.held() {
            let task = &self.tasks[held.task];
            if !task.state.holds_slot() || task.slot as usize != slot {
                return Err(format!("slot {slot} is held by {task:?}"));
            }
        }
        if in_use < self.slots && self.order.len() > 0 {
            return Err(format!("{} queries wait beside a free slot", self.order.len()));
        }
        Ok(())
    }
}
