//! The world around the scheduler: an agenda of random events, simulated futures, and a driver
//! that performs what comes back.

use super::Report;
use super::model::Model;
use crate::{
    Action, Admission, Advice, Arrival, Class, ClassId, Estimate, Fault, PolicyKind, PollEnd,
    Priority, Scheduler, ServerLimits, Turn, WEIGHT_NORMAL,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use thalweg_base::{Prng, QueryId, TaskId};

/// Times are planned in multiples of this: quanta are up to 4 ms, those of heavy queries 64 ms,
/// and schedules last some 100 ms of arrivals and as long as it takes.
const UNIT_NS: u64 = 50_000;

/// In units.
const SPAN: u64 = 2_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive { query: QueryId },
    Estimate { query: QueryId },
    Reweigh { query: QueryId },
    Deadline { query: QueryId },
    Move { query: QueryId },
    Promise { query: QueryId, bytes: u64 },
    Grow { query: QueryId, bytes: u64 },
    Shrink { query: QueryId },
    Cancel { query: QueryId },
    End { query: QueryId },
    PollBegins { task: TaskId },
    PollEnds { task: TaskId, length_ns: u64, pending: bool },
    QuantumOver { task: TaskId, length_ns: u64, pending: bool },
    Wake { task: TaskId },
    Drop { task: TaskId },
    Slots { slots: usize },
    Reserve { reserve: usize },
    Policy { index: usize },
    Limits,
    CreateClass,
    AlterClass,
    DropClass,
}

/// A simulated future.
struct Future {
    query: QueryId,
    /// Polls until it is complete.
    polls_left: u64,
    polling: bool,
}

/// A living query.
struct Living {
    /// How many more tasks it may spawn.
    spawns_left: u64,
    /// Its quanta are so many times longer than others'.
    length: u64,
    memory: u64,
    /// What it waits to be promised.
    wished: u64,
}

pub struct World {
    random: Prng,
    scheduler: Scheduler,
    model: Model,
    now_ns: u64,
    /// Ordered by time, then by when they were planned.
    agenda: BinaryHeap<Reverse<(u64, u64, Event)>>,
    planned: u64,
    futures: BTreeMap<TaskId, Future>,
    living: BTreeMap<QueryId, Living>,
    actions: Vec<Action>,
    report: Report,
    /// Compare every step to the model.
    compare: bool,
    deadlines: bool,
    /// Nobody has a weight, a priority or a class, and tasks go on for longer.
    alike: bool,
    /// Polls may go on for further quanta.
    quanta_go_on: bool,
    classes: u64,
}

impl World {
    pub fn new(seed: u64, fault: Option<Fault>, compare: bool) -> Self {
        let mut random = Prng::new(seed);
        let slots = 1 + random.below(4) as usize;
        let policy = PolicyKind::ALL[random.below(PolicyKind::ALL.len() as u64) as usize];
        let mut scheduler = Scheduler::new(slots, policy);
        scheduler.fault = fault;
        let mut world = World {
            deadlines: random.below(2) == 0,
            alike: random.below(4) == 0,
            // Not by chance, so that those of the others are as they were when they were found.
            quanta_go_on: seed.is_multiple_of(2),
            random,
            scheduler,
            model: Model::new(slots, policy),
            now_ns: 0,
            agenda: BinaryHeap::new(),
            planned: 0,
            futures: BTreeMap::new(),
            living: BTreeMap::new(),
            actions: Vec::new(),
            report: Report::default(),
            compare,
            classes: 0,
        };
        world.plan_schedule();
        world
    }

    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    /// At some time within so many units.
    fn plan(&mut self, within: u64, event: Event) {
        let at = self.now_ns + self.random.below(within * UNIT_NS);
        self.plan_at(at, event);
    }

    fn plan_at(&mut self, at_ns: u64, event: Event) {
        self.planned += 1;
        self.agenda.push(Reverse((at_ns, self.planned, event)));
    }

    fn plan_schedule(&mut self) {
        for n in 0..1 + self.random.below(9) {
            let query = QueryId(n);
            self.plan(SPAN, Event::Arrive { query });
            let now_and_then = [
                (20, Event::Estimate { query }),
                (10, Event::Reweigh { query }),
                (10, Event::Move { query }),
                (if self.deadlines { 20 } else { 0 }, Event::Deadline { query }),
                (20, Event::Cancel { query }),
                (10, Event::End { query }),
            ];
            for (percent, event) in now_and_then {
                if self.chance(percent) {
                    self.plan(2 * SPAN, event);
                }
            }
            for _ in 0..self.random.below(10) {
                let bytes = 1 + self.random.below(400);
                self.plan(4 * SPAN, Event::Grow { query, bytes });
            }
            if self.chance(80) {
                let bytes = self.random.below(600);
                self.plan(2 * SPAN, Event::Promise { query, bytes });
            }
            if self.chance(50) {
                self.plan(4 * SPAN, Event::Shrink { query });
            }
        }
        for _ in 0..self.random.below(3) {
            let slots = 1 + self.random.below(5) as usize;
            self.plan(2 * SPAN, Event::Slots { slots });
            let index = self.random.below(PolicyKind::ALL.len() as u64) as usize;
            self.plan(2 * SPAN, Event::Policy { index });
        }
        if self.chance(50) {
            let reserve = self.random.below(4) as usize;
            self.plan(SPAN / 4, Event::Reserve { reserve });
            self.plan(4 * SPAN, Event::Reserve { reserve: 3 - reserve });
        }
        if self.chance(60) {
            self.plan(SPAN / 4, Event::Limits);
            self.plan(4 * SPAN, Event::Limits);
            self.plan(SPAN / 4, Event::CreateClass);
            for _ in 0..self.random.below(4) {
                self.plan(2 * SPAN, Event::CreateClass);
                self.plan(2 * SPAN, Event::AlterClass);
                self.plan(4 * SPAN, Event::DropClass);
            }
        }
    }

    pub fn run(&mut self) -> Result<Report, String> {
        while let Some(Reverse((at, _, event))) = self.agenda.pop() {
            // What the driver's timer does.
            while let Some(due) = self.scheduler.next_deadline().filter(|due| *due <= at) {
                self.now_ns = self.now_ns.max(due);
                self.scheduler.tick(self.now_ns, &mut self.actions);
                self.settle().map_err(|e| format!("tick: {e}"))?;
                if self.scheduler.next_deadline().is_some_and(|next| next <= due) {
                    return Err(format!("a tick at {} left one at {due}", self.now_ns));
                }
                self.model.none_overdue(self.now_ns)?;
            }
            self.now_ns = self.now_ns.max(at);
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
        if self.scheduler.memory_held() > 0 {
            return Err(format!("{} B of memory leaked", self.scheduler.memory_held()));
        }
        self.report.bounds = self.model.bounds;
        self.report.exchanges = self.model.exchanges;
        self.report.end_ns = self.now_ns;
        Ok(self.report)
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        let now_ns = self.now_ns;
        match event {
            Event::Arrive { query } => self.arrive(query)?,
            Event::Estimate { query } => {
                let cpu_ns = self.random.below(2_000 * UNIT_NS);
                let estimate = Estimate { cpu_ns, measured: self.random.below(2) == 0 };
                self.scheduler.query_estimated(query, estimate, now_ns, &mut self.actions);
                self.model.query_estimated(query, estimate);
            }
            Event::Reweigh { query } => {
                let (weight, priority) = self.weight();
                let actions = &mut self.actions;
                self.scheduler.set_query_weight(query, weight, priority, now_ns, actions);
                self.model.set_query_weight(query, weight, priority);
            }
            Event::Deadline { query } => {
                let deadline_ns = self.deadline();
                self.scheduler.set_query_deadline(query, deadline_ns);
                self.model.set_query_deadline(query, deadline_ns);
            }
            Event::Move { query } => {
                let class = self.any_class();
                self.scheduler.set_query_class(query, class, now_ns, &mut self.actions);
                self.model.set_query_class(query, class);
            }
            Event::Promise { query, bytes } => self.promise(query, bytes),
            Event::Grow { query, bytes } => self.grow(query, bytes)?,
            Event::Shrink { query } => {
                if let Some(living) = self.living.get_mut(&query) {
                    let bytes = self.random.below(living.memory + 1);
                    living.memory -= bytes;
                    self.scheduler.memory_shrink(query, bytes, now_ns, &mut self.actions);
                }
            }
            Event::Cancel { query } => {
                self.scheduler.query_cancelled(query, now_ns, &mut self.actions);
                self.model.query_cancelled(query);
            }
            Event::End { query } => self.end(query)?,
            Event::PollBegins { task } => self.begin_poll(task)?,
            Event::PollEnds { task, length_ns, pending } => {
                self.end_poll(task, length_ns, pending)?;
            }
            Event::QuantumOver { task, length_ns, pending } => {
                if !self.goes_on(task, length_ns, pending)? {
                    self.end_poll(task, length_ns, pending)?;
                }
            }
            Event::Wake { task } => {
                match self.futures.get(&task) {
                    None => self.report.stale += 1,
                    Some(future) => self.report.notified += u64::from(future.polling),
                }
                self.scheduler.task_woken(task, now_ns, &mut self.actions);
                self.model.task_woken(task);
            }
            Event::Drop { task } => self.drop_task(task)?,
            Event::Slots { slots } => {
                self.scheduler.set_slots(slots, now_ns, &mut self.actions);
                self.model.set_slots(slots);
            }
            Event::Reserve { reserve } => {
                self.scheduler.set_reserve(reserve, now_ns, &mut self.actions);
                self.model.set_reserve(reserve);
            }
            Event::Policy { index } => {
                self.scheduler.set_policy(PolicyKind::ALL[index], now_ns, &mut self.actions);
                self.model.set_policy(PolicyKind::ALL[index]);
            }
            Event::Limits => {
                let limits = ServerLimits {
                    max_running: self.chance(50).then(|| 1 + self.random.below(4) as u32),
                    memory_bytes: self.chance(70).then(|| 200 + self.random.below(800)),
                };
                self.scheduler.set_limits(limits, now_ns, &mut self.actions);
                self.model.limits = limits;
            }
            Event::CreateClass => {
                let class = self.class();
                let id = self.scheduler.create_class(class.clone()).map_err(|e| e.to_string())?;
                self.model.set_class(id, class);
            }
            Event::AlterClass => {
                let (id, class) = (self.any_class(), self.class());
                let result =
                    self.scheduler.alter_class(id, class.clone(), now_ns, &mut self.actions);
                result.map_err(|e| e.to_string())?;
                self.model.set_class(id, class);
            }
            Event::DropClass => {
                let id = self.any_class();
                let result = self.scheduler.drop_class(id, now_ns, &mut self.actions);
                if result.is_ok() != (id != ClassId::DEFAULT) {
                    return Err(format!("class {id}: {result:?}"));
                }
                if result.is_ok() {
                    self.model.drop_class(id);
                }
            }
        }
        self.settle()
    }

    fn weight(&mut self) -> (u32, Priority) {
        if self.alike {
            return (WEIGHT_NORMAL, Priority::Normal);
        }
        let priorities = [Priority::Low, Priority::Normal, Priority::High];
        (10 + self.random.below(1_000) as u32, priorities[self.random.below(3) as usize])
    }

    fn deadline(&mut self) -> Option<u64> {
        self.chance(80).then(|| self.now_ns + self.random.below(3 * SPAN * UNIT_NS))
    }

    fn any_class(&mut self) -> ClassId {
        let classes: Vec<ClassId> = self.scheduler.classes().map(|(id, ..)| id).collect();
        classes[self.random.below(classes.len() as u64) as usize]
    }

    fn class(&mut self) -> Class {
        self.classes += 1;
        let mut class = Class::new(format!("c{}", self.classes));
        class.weight = 10 + self.random.below(1_000) as u32;
        class.max_running = self.chance(60).then(|| 1 + self.random.below(3) as u32);
        class.queue_max = self.random.below(6) as u32;
        class.queue_timeout_ns = self.chance(40).then(|| 1 + self.random.below(4 * SPAN * UNIT_NS));
        class.memory_bytes = self.chance(40).then(|| 100 + self.random.below(600));
        class.query_memory_bytes = self.chance(40).then(|| 50 + self.random.below(300));
        class.statement_timeout_ns =
            self.chance(20).then(|| 1 + self.random.below(10 * SPAN * UNIT_NS));
        class
    }

    fn arrive(&mut self, query: QueryId) -> Result<(), String> {
        let (weight, priority) = self.weight();
        let arrival = Arrival {
            estimate_ns: self.random.below(4) * self.random.below(600 * UNIT_NS),
            class: (!self.alike && self.chance(80)).then(|| self.any_class()),
            weight,
            priority,
            deadline_ns: if self.deadlines && self.chance(40) { self.deadline() } else { None },
            memory_bytes: if self.chance(30) { self.random.below(300) } else { 0 },
            timeout_ns: self.chance(5).then(|| self.random.below(6 * SPAN * UNIT_NS)),
            exempt: self.chance(5),
        };
        let result = self.scheduler.query_arrived(query, &arrival, self.now_ns, &mut self.actions);
        let Ok(admission) = result else {
            self.report.refused += 1;
            self.model.query_refused();
            return self.settle();
        };
        self.model.query_arrived(query, &arrival, self.now_ns);
        if admission == Admission::Admitted {
            self.model.admit(query)?;
        }
        self.settle()?;
        let length = if self.chance(if self.alike { 80 } else { 40 }) { 16 } else { 1 };
        let spawns_left = self.random.below(4);
        self.living.insert(query, Living { spawns_left, length, memory: 0, wished: 0 });
        for _ in 0..1 + self.random.below(5) {
            self.spawn(query)?;
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
        let polls_left = 1 + self.random.below(if self.alike { 25 } else { 5 });
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
            Turn::Run { .. } => {
                let future = self.futures.get_mut(&task).ok_or("a task without a future")?;
                future.polling = true;
                let (query, last) = (future.query, future.polls_left == 1);
                let length = self.living.get(&query).map_or(1, |l| l.length);
                let units = length * (1 + self.random.below(80));
                let pending = self.chance(60);
                if pending && !last {
                    // About half of them come before the poll has ended.
                    self.plan(2 * units, Event::Wake { task });
                }
                if self.chance(3) {
                    self.plan(units, Event::Drop { task });
                }
                self.plan_end(task, units, pending);
                if let Some(living) = self.living.get_mut(&query)
                    && living.spawns_left > 0
                {
                    living.spawns_left -= 1;
                    self.spawn(query)?;
                }
            }
        }
        self.settle()
    }

    fn plan_end(&mut self, task: TaskId, units: u64, pending: bool) {
        let length_ns = units * UNIT_NS;
        let end = match self.quanta_go_on && self.chance(30) {
            true => Event::QuantumOver { task, length_ns, pending },
            false => Event::PollEnds { task, length_ns, pending },
        };
        self.plan_at(self.now_ns + length_ns, end);
    }

    /// Asks whether the poll of a task goes on.
    fn goes_on(&mut self, task: TaskId, cpu_ns: u64, pending: bool) -> Result<bool, String> {
        let goes_on = self.scheduler.quantum_over(task, cpu_ns, self.now_ns, &mut self.actions);
        if !goes_on {
            return Ok(false);
        }
        self.report.went_on += 1;
        // It is as if it had ended, and begun again because nobody else was there.
        let woken = self.model.is_woken(task);
        let bound = self.model.poll_ended(task, PollEnd::Yielded, cpu_ns);
        let expected = self.model.expect(Action::Grant(task), self.now_ns);
        let turn = self.model.poll_began(task);
        if woken {
            self.model.task_woken(task);
        }
        if self.compare {
            bound?;
            expected?;
            if !matches!(turn, Turn::Run { .. }) {
                return Err(format!("task {task} went on though its turn was {turn:?}"));
            }
        }
        self.settle()?;
        let query = self.futures.get(&task).ok_or("a past task goes on")?.query;
        let units = self.living.get(&query).map_or(1, |l| l.length) * (1 + self.random.below(80));
        self.plan_end(task, units, pending);
        Ok(true)
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
        let bound = self.model.poll_ended(task, end, cpu_ns);
        if self.compare {
            bound?;
        }
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
        let living = self.living.remove(&query).is_some();
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

    fn promise(&mut self, query: QueryId, bytes: u64) {
        let Some(living) = self.living.get_mut(&query) else { return };
        let actions = &mut self.actions;
        let promised = self.scheduler.memory_promise(query, bytes, self.now_ns, actions);
        living.wished = if promised { 0 } else { bytes };
        self.report.promises_awaited += u64::from(!promised);
    }

    fn grow(&mut self, query: QueryId, bytes: u64) -> Result<(), String> {
        let Some(living) = self.living.get(&query) else { return Ok(()) };
        // Nothing of a query that waits runs, and what does not run does not allocate.
        let Some(share) = self.scheduler.memory_share(query) else { return Ok(()) };
        let held_before = living.memory;
        let result = self.scheduler.memory_grow(query, bytes, self.now_ns, &mut self.actions);
        match result {
            Ok(()) => {
                self.living.get_mut(&query).ok_or("it lives")?.memory += bytes;
                let limits = self.scheduler.limits();
                if limits.memory_bytes.is_some_and(|l| self.scheduler.memory_held() > l) {
                    return Err(format!("{} B are held", self.scheduler.memory_held()));
                }
                for (id, class, ..) in self.scheduler.classes() {
                    let mine = self.model.class_of(query) == id;
                    let held = self.scheduler.memory_of_class(id);
                    let over = |limit: Option<u64>, held| limit.is_some_and(|l| held > l);
                    if mine
                        && (over(class.memory_bytes, held)
                            || over(class.query_memory_bytes, held_before + bytes))
                    {
                        return Err(format!("{held} B are held in class {id}: {class:?}"));
                    }
                }
            }
            Err(refusal) => {
                self.report.memory_refused += 1;
                let within = held_before + bytes <= share;
                if within != (refusal.advice == Advice::Wait) {
                    return Err(format!("wrong advice: {refusal:?}"));
                }
                let others_within = self.living.iter().all(|(other, living)| {
                    *other == query
                        || self.scheduler.memory_share(*other).is_none_or(|s| living.memory <= s)
                });
                let living: u64 = self.living.values().map(|l| l.memory).sum();
                // What queries that ended still hold is not theirs to give back.
                if within && others_within && self.scheduler.memory_held() == living {
                    return Err(format!("refused within the shares of all: {refusal:?}"));
                }
                if refusal.advice == Advice::Spill {
                    self.plan(100, Event::Shrink { query });
                }
            }
        }
        Ok(())
    }

    /// Performs the actions as a driver does, after comparing them to the model's.
    fn settle(&mut self) -> Result<(), String> {
        let actions = std::mem::take(&mut self.actions);
        self.scheduler.check()?;
        for action in &actions {
            let expected = self.model.expect(*action, self.now_ns);
            if self.compare {
                expected?;
            }
            match *action {
                Action::Grant(task) => {
                    self.report.grants += 1;
                    self.plan(20, Event::PollBegins { task });
                    if self.chance(1) {
                        self.plan(20, Event::Drop { task });
                    }
                }
                Action::Cancel(task) => {
                    self.report.cancels += 1;
                    self.plan(20, Event::PollBegins { task });
                }
                Action::Admitted(_) => self.report.admitted += 1,
                Action::Stop(query) => {
                    self.report.stopped += 1;
                    self.plan(200, Event::End { query });
                }
                Action::Spill(query) => self.plan(200, Event::Shrink { query }),
                Action::MemoryFreed(query) => {
                    self.report.memory_freed += 1;
                    let bytes = 1 + self.random.below(200);
                    self.plan(20, Event::Grow { query, bytes });
                    let wished = self.living.get(&query).map_or(0, |l| l.wished);
                    if wished > 0 {
                        self.plan(20, Event::Promise { query, bytes: wished });
                    }
                }
            }
            let word = match *action {
                Action::Grant(id) => id.0,
                Action::Cancel(id) => !id.0,
                Action::Admitted(id) | Action::Stop(id) => id.0 << 8,
                Action::Spill(id) | Action::MemoryFreed(id) => id.0 << 16,
            };
            for word in [self.now_ns, word] {
                // FNV-1a, by words.
                self.report.trace = (self.report.trace ^ word).wrapping_mul(0x0100_0000_01b3);
            }
        }
        if self.scheduler.slots_in_use() > self.scheduler.slots() {
            self.report.reserved += 1;
        }
        let all = self.model.nothing_left(self.now_ns);
        if self.compare {
            all?;
        }
        self.actions = actions;
        self.actions.clear();
        Ok(())
    }
}
