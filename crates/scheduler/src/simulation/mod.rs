//! Schedules from a seed: random queries, tasks, polls, wakes, drops, cancels and settings run
//! against the real state machine, with every step compared to a naive model of it.
//!
//! The same seed gives the same schedule on every machine, so a failure is reported as a number:
//! `simulate(seed, None)` repeats it. [`replay`] runs a given workload under a given policy.
//!
//! Checked after every event: all of [`Scheduler::check`] (slots in use, queues, work
//! conservation), and that exactly those tasks were granted and cancelled, in that order, that
//! the model says. Checked at the end of a schedule: nothing is left. As each simulated
//! future needs just one wake for each time it was pending, a lost one leaves it behind.

mod model;
mod replay;
#[cfg(test)]
mod tests;

pub use replay::{Job, replay};

use crate::{Action, Fault, PolicyKind, PollEnd, Scheduler, Turn};
use model::Model;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use thalweg_base::{Prng, QueryId, TaskId};

/// What a schedule did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// A digest of all actions and their times.
    pub trace: u64,
    pub events: u64,
    pub grants: u64,
    pub cancels: u64,
    /// Wakes that found the task running.
    pub notified: u64,
    /// Events sent with the id of a task of the past.
    pub stale: u64,
    pub end_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive { query: QueryId },
    Estimate { query: QueryId },
    Cancel { query: QueryId },
    End { query: QueryId },
    PollBegins { task: TaskId },
    PollEnds { task: TaskId, length_ns: u64, pending: bool },
    Wake { task: TaskId },
    Drop { task: TaskId },
    Slots { slots: usize },
    Policy { index: usize },
}

/// A simulated future.
struct Future {
    query: QueryId,
    /// Polls until it is complete.
    polls_left: u64,
    polling: bool,
}

struct World {
    random: Prng,
    scheduler: Scheduler,
    model: Model,
    now_ns: u64,
    /// Ordered by time, then by when they were planned.
    agenda: BinaryHeap<Reverse<(u64, u64, Event)>>,
    planned: u64,
    futures: BTreeMap<TaskId, Future>,
    /// Living queries: how many more tasks each may still spawn.
    spawns_left: BTreeMap<QueryId, u64>,
    actions: Vec<Action>,
    report: Report,
    /// Compare every step to the model.
    compare: bool,
}

/// Runs the schedule of this seed to its end. `Err` says what was violated, and when.
pub fn simulate(seed: u64, fault: Option<Fault>) -> Result<Report, String> {
    run(seed, fault, true)
}

/// Without `compare` only the invariants and the end of the schedule are checked, which shows
/// that they would notice a mistake that the model makes too.
fn run(seed: u64, fault: Option<Fault>, compare: bool) -> Result<Report, String> {
    let mut random = Prng::new(seed);
    let slots = 1 + random.below(4) as usize;
    let policy = PolicyKind::ALL[random.below(3) as usize];
    let mut scheduler = Scheduler::new(slots, policy);
    scheduler.fault = fault;
    let mut world = World {
        random,
        scheduler,
        model: Model::new(slots, policy),
        now_ns: 0,
        agenda: BinaryHeap::new(),
        planned: 0,
        futures: BTreeMap::new(),
        spawns_left: BTreeMap::new(),
        actions: Vec::new(),
        report: Report::default(),
        compare,
    };
    world.plan_schedule();
    world.run().map_err(|e| format!("seed {seed} at {} ns: {e}", world.now_ns))
}

impl World {
    fn chance(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    fn plan(&mut self, within_ns: u64, event: Event) {
        let at = self.now_ns + self.random.below(within_ns);
        self.planned += 1;
        self.agenda.push(Reverse((at, self.planned, event)));
    }

    fn plan_schedule(&mut self) {
        const SPAN_NS: u64 = 2_000;
        for n in 0..1 + self.random.below(9) {
            let query = QueryId(n);
            self.plan(SPAN_NS, Event::Arrive { query });
            if self.chance(20) {
                self.plan(2 * SPAN_NS, Event::Estimate { query });
            }
            if self.chance(30) {
                self.plan(2 * SPAN_NS, Event::Cancel { query });
            }
            if self.chance(10) {
                self.plan(2 * SPAN_NS, Event::End { query });
            }
        }
        for _ in 0..self.random.below(3) {
            let slots = 1 + self.random.below(5) as usize;
            self.plan(2 * SPAN_NS, Event::Slots { slots });
        }
        for _ in 0..self.random.below(3) {
            let index = self.random.below(3) as usize;
            self.plan(2 * SPAN_NS, Event::Policy { index });
        }
    }

    fn run(&mut self) -> Result<Report, String> {
        while let Some(Reverse((at, _, event))) = self.agenda.pop() {
            self.now_ns = at;
            self.report.events += 1;
            self.handle(event).map_err(|e| format!("{event:?}: {e}"))?;
        }
        if let Some((task, future)) = self.futures.first_key_value() {
            return Err(format!(
                "task {task} of query {} never ended: a lost wake-up",
                future.query
            ));
        }
        if let Some(query) = self.scheduler.queries().next() {
            return Err(format!("a query was left behind: {query:?}"));
        }
        if self.scheduler.slots_in_use() > 0 {
            return Err(format!("{} slots leaked", self.scheduler.slots_in_use()));
        }
        self.report.end_ns = self.now_ns;
        Ok(self.report)
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        let now_ns = self.now_ns;
        match event {
            Event::Arrive { query } => {
                let estimate_ns = self.random.below(4) * self.random.below(600);
                self.scheduler.query_arrived(query, estimate_ns, now_ns);
                self.model.query_arrived(query, estimate_ns);
                let tasks = 1 + self.random.below(5);
                let children = self.random.below(4);
                self.spawns_left.insert(query, children);
                for _ in 0..tasks {
                    self.spawn(query)?;
                }
            }
            Event::Estimate { query } => {
                let estimate_ns = self.random.below(2_000);
                self.scheduler.query_estimated(query, estimate_ns);
                self.model.query_estimated(query, estimate_ns);
                self.settle()?;
            }
            Event::Cancel { query } => {
                self.scheduler.query_cancelled(query, now_ns, &mut self.actions);
                self.model.query_cancelled(query);
                self.settle()?;
            }
            Event::End { query } => self.end(query)?,
            Event::PollBegins { task } => self.begin_poll(task)?,
            Event::PollEnds { task, length_ns, pending } => {
                self.end_poll(task, length_ns, pending)?;
            }
            Event::Wake { task } => {
                match self.futures.get(&task) {
                    None => self.report.stale += 1,
                    Some(future) => self.report.notified += u64::from(future.polling),
                }
                self.scheduler.task_woken(task, now_ns, &mut self.actions);
                self.model.task_woken(task);
                self.settle()?;
            }
            Event::Drop { task } => self.drop_task(task)?,
            Event::Slots { slots } => {
                self.scheduler.set_slots(slots, now_ns, &mut self.actions);
                self.model.slots = slots;
                self.settle()?;
            }
            Event::Policy { index } => {
                self.scheduler.set_policy(PolicyKind::ALL[index]);
                self.model.set_policy(PolicyKind::ALL[index]);
                self.settle()?;
            }
        }
        Ok(())
    }

    fn spawn(&mut self, query: QueryId) -> Result<(), String> {
        let task = self
            .scheduler
            .task_spawned(query, self.now_ns, &mut self.actions)
            .ok_or("a living query could not spawn")?;
        if self.futures.contains_key(&task) {
            return Err(format!("the id of the living task {task} was given out again"));
        }
        let polls_left = 1 + self.random.below(5);
        self.futures.insert(task, Future { query, polls_left, polling: false });
        self.model.task_spawned(task, query);
        // The runtime polls what is spawned, granted or not, and may do so at any time.
        self.plan(20, Event::PollBegins { task });
        if self.chance(10) {
            self.plan(1_000, Event::PollBegins { task });
        }
        if self.chance(10) {
            self.plan(1_000, Event::Drop { task });
        }
        if self.chance(20) {
            self.plan(3_000, Event::Wake { task });
        }
        self.settle()
    }

    fn begin_poll(&mut self, task: TaskId) -> Result<(), String> {
        // No runtime polls a future that is being polled or was dropped.
        if self.futures.get(&task).is_none_or(|f| f.polling) {
            return Ok(());
        }
        let turn = self.scheduler.poll_began(task);
        let expected = self.model.poll_began(task);
        if self.compare && turn != expected {
            return Err(format!("the turn was {turn:?}, not {expected:?}"));
        }
        match turn {
            Turn::Wait => {}
            Turn::Cancelled => self.plan(30, Event::Drop { task }),
            Turn::Run => {
                let length_ns = 1 + self.random.below(80);
                let pending = self.chance(60);
                let future = self.futures.get_mut(&task).ok_or("a task without a future")?;
                future.polling = true;
                let (query, last) = (future.query, future.polls_left == 1);
                if pending && !last {
                    // About half of them come before the poll has ended.
                    self.plan(2 * length_ns, Event::Wake { task });
                }
                if self.chance(3) {
                    self.plan(length_ns, Event::Drop { task });
                }
                self.planned += 1;
                let end = Event::PollEnds { task, length_ns, pending };
                self.agenda.push(Reverse((self.now_ns + length_ns, self.planned, end)));
                if let Some(left) = self.spawns_left.get_mut(&query)
                    && *left > 0
                {
                    *left -= 1;
                    self.spawn(query)?;
                }
            }
        }
        self.settle()
    }

    fn end_poll(&mut self, task: TaskId, cpu_ns: u64, pending: bool) -> Result<(), String> {
        let end = match self.futures.get_mut(&task) {
            // Dropped while it ran, as by a panic: the id is of the past.
            None => {
                self.report.stale += 1;
                PollEnd::Pending
            }
            Some(future) => {
                future.polls_left -= 1;
                future.polling = false;
                match (future.polls_left, pending) {
                    (0, _) => PollEnd::Done,
                    (_, true) => PollEnd::Pending,
                    (_, false) => PollEnd::Yielded,
                }
            }
        };
        self.scheduler.poll_ended(task, end, cpu_ns, self.now_ns, &mut self.actions);
        self.model.poll_ended(task, end, cpu_ns);
        if end == PollEnd::Done {
            self.plan(20, Event::Drop { task });
            self.leave(task)?;
        }
        self.settle()
    }

    fn drop_task(&mut self, task: TaskId) -> Result<(), String> {
        self.report.stale += u64::from(!self.futures.contains_key(&task));
        self.scheduler.task_dropped(task, self.now_ns, &mut self.actions);
        self.model.task_dropped(task);
        self.settle()?;
        self.leave(task)
    }

    /// The last future of a query to go ends it, as a root stream does.
    fn leave(&mut self, task: TaskId) -> Result<(), String> {
        self.settle()?;
        if let Some(future) = self.futures.remove(&task)
            && !self.futures.values().any(|f| f.query == future.query)
        {
            self.end(future.query)?;
        }
        Ok(())
    }

    fn end(&mut self, query: QueryId) -> Result<(), String> {
        let living = self.spawns_left.remove(&query).is_some();
        let account = self.scheduler.query_ended(query, self.now_ns, &mut self.actions);
        if living != account.is_some() {
            return Err(format!("the account of a query that ended is {account:?}"));
        }
        if let Some(account) = account
            && self.compare
            && account.cpu_ns != self.model.used_ns(query)
        {
            return Err(format!("{} ns were used, {account:?}", self.model.used_ns(query)));
        }
        self.model.query_ended(query);
        self.settle()
    }

    /// Performs the actions as a driver does, after comparing them to the model's.
    fn settle(&mut self) -> Result<(), String> {
        let actions = std::mem::take(&mut self.actions);
        let expected = self.model.actions();
        if self.compare && expected.as_ref() != Ok(&actions) {
            return Err(format!("the actions were {actions:?}, not {expected:?}"));
        }
        self.scheduler.check()?;
        for action in &actions {
            let task = action.task();
            match action {
                Action::Grant(_) => self.report.grants += 1,
                Action::Cancel(_) => self.report.cancels += 1,
            }
            for word in [self.now_ns, task.0, self.report.cancels] {
                // FNV-1a, by words.
                self.report.trace = (self.report.trace ^ word).wrapping_mul(0x0100_0000_01b3);
            }
            self.plan(20, Event::PollBegins { task });
        }
        self.actions = actions;
        self.actions.clear();
        Ok(())
    }
}
