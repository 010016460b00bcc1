//! Events of tasks.

use thalweg_base::{QueryId, TaskId};

use super::{Fault, PollEnd, Scheduler, Turn};
use crate::action::Action;
use crate::task::State;

impl Scheduler {
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
        state.tasks_most = state.tasks_most.max(state.tasks);
        if state.cancelled {
            self.tasks[task].state = State::Cancelled;
            actions.push(Action::Cancel(id));
        } else {
            self.enqueue(task, now_ns);
            self.note_phase(q, now_ns);
            self.grant(now_ns, actions);
        }
        Some(id)
    }

    /// The task's waker was called. Wakes of a task that is queued already, or of the past,
    /// are nothing.
    pub fn task_woken(&mut self, task: TaskId, now_ns: u64, actions: &mut Vec<Action>) {
        let Some(t) = self.tasks.find(task) else { return };
        match self.tasks[t].state {
            State::Idle => {
                self.enqueue(t, now_ns);
                self.note_phase(self.tasks[t].query, now_ns);
                self.grant(now_ns, actions);
            }
            State::Running => self.tasks[t].state = State::Notified,
            State::Queued | State::Granted | State::Notified | State::Cancelled => {}
            State::Free => unreachable!("find() returns living tasks"),
        }
    }

    /// The runtime polls the task.
    ///
    /// # Panics
    /// If the task's last poll has not ended.
    pub fn poll_began(&mut self, task: TaskId) -> Turn {
        let Some(t) = self.tasks.find(task) else { return Turn::Cancelled };
        match self.tasks[t].state {
            State::Granted => {
                self.tasks[t].state = State::Running;
                Turn::Run { age: self.query(self.tasks[t].query).state.age() }
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
        self.deadlines.charge(self.tasks[t].out_of_turn, cpu_ns);
        self.quantum_lengths.add(cpu_ns);
        self.release(t);
        let state = &mut self.query_mut(q).state;
        state.cpu_ns += cpu_ns;
        state.quanta += 1;
        state.longest_quantum_ns = state.longest_quantum_ns.max(cpu_ns);
        state.quantum_lengths.add(cpu_ns);
        let cancelled = state.cancelled;
        self.charge(q, cpu_ns);
        if end != PollEnd::Done && cancelled {
            self.tasks[t].state = State::Cancelled;
            actions.push(Action::Cancel(task));
        } else if end != PollEnd::Done && (notified || end == PollEnd::Yielded) {
            self.enqueue(t, now_ns);
        } else {
            self.tasks[t].state = State::Idle;
        }
        self.rest_if_idle(q);
        self.note_phase(q, now_ns);
        if end == PollEnd::Done {
            self.forget_task(t, now_ns, actions);
        }
        self.grant(now_ns, actions);
    }

    /// The task has run for a quantum, of `cpu_ns` of CPU time, and could give way. If nobody else
    /// wants its slot, that would only cost a round through the runtime: then `true`, and the
    /// poll goes on as a new one that was granted the slot again. Else nothing has happened, and
    /// the poll had better end.
    ///
    /// What the runtime was told when the poll began stays true: the age of its query.
    pub fn quantum_over(
        &mut self,
        task: TaskId,
        cpu_ns: u64,
        now_ns: u64,
        actions: &mut Vec<Action>,
    ) -> bool {
        let Some(t) = self.tasks.find(task) else { return false };
        let state = &self.query(self.tasks[t].query).state;
        let told = self.held.age(self.tasks[t].slot);
        let unchanged = state.age_after(cpu_ns) == told && !state.cancelled;
        let unwanted = self.order.len() == 0 && self.held.in_use() <= self.slots;
        if !unchanged || !unwanted {
            return false;
        }
        if self.faulty(Fault::FreeQuantum) {
            return true;
        }
        let notified = self.tasks[t].state == State::Notified;
        self.poll_ended(task, PollEnd::Yielded, cpu_ns, now_ns, actions);
        let granted = actions.pop();
        assert_eq!(granted, Some(Action::Grant(task)), "nobody else was queued");
        let turn = self.poll_began(task);
        assert!(matches!(turn, Turn::Run { .. }), "it was granted its slot");
        if notified {
            // Of something that this poll may have looked at before.
            self.tasks[t].state = State::Notified;
        }
        true
    }

    /// The future was dropped, complete or not, polled or not: it leaves the queue or returns
    /// its slot. Of a past task: nothing.
    pub fn task_dropped(&mut self, task: TaskId, now_ns: u64, actions: &mut Vec<Action>) {
        let found = match self.faulty(Fault::StaleId) {
            true => self.tasks.find_any(task),
            false => self.tasks.find(task),
        };
        let Some(t) = found else { return };
        let q = self.tasks[t].query;
        match self.tasks[t].state {
            State::Queued => self.dequeue(t, now_ns),
            State::Granted if self.faulty(Fault::LeakedSlot) => {}
            state if state.holds_slot() => {
                self.release(t);
                self.rerank(q);
            }
            _ => {}
        }
        self.tasks[t].state = State::Idle;
        self.rest_if_idle(q);
        self.note_phase(q, now_ns);
        self.forget_task(t, now_ns, actions);
        self.grant(now_ns, actions);
    }
}
