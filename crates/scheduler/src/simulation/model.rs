//! What the scheduler should do, said as plainly as possible and at any cost: maps, lists and
//! linear searches, no ranks, no slab, no heap. Which queries are admitted it does not foretell;
//! it looks whether each might be.

use crate::deadline::BANK_NS;
use crate::policy::fair::{NOMINAL_NS, SCALE, SLICE_NS, behind, stride};
use crate::policy::{Past, Tuner, remaining_ns, weighted};
use crate::{
    Action, Age, Arrival, Class, ClassId, Estimate, OVERDUE_NS, PolicyKind, PollEnd, Priority,
    SHORT_CPU_NS, ServerLimits, Turn,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use thalweg_base::{QueryId, TaskId};

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Queued,
    Granted,
    Running { woken: bool },
    Cancelled,
}

struct Query {
    /// Position in the order of arrival.
    arrival: u64,
    arrival_ns: u64,
    attributes: Arrival,
    class: ClassId,
    estimate_ns: u64,
    measured: bool,
    used_ns: u64,
    longest_ns: u64,
    queue: VecDeque<TaskId>,
    admitted: bool,
    cancelled: bool,
    ended: bool,
    /// Whom this query has let go first since it began to wait, under round robin.
    passed_by: Vec<QueryId>,
    /// Under fair.
    pass: u64,
    priority: u64,
    turn: u64,
    watch: Watch,
}

impl Query {
    fn age(&self) -> Age {
        match self.measured {
            true => Age::of(self.used_ns).max(Age::of(self.estimate_ns)),
            false => Age::of(self.used_ns),
        }
    }
}

/// What happened since a query began to wait, under fair: the terms of its bound.
#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    others_ns: u64,
    /// Of its rank on virtual time.
    lead: u64,
    active_max: u64,
    queries_max: u64,
}

#[derive(Clone, Copy)]
struct Held {
    query: QueryId,
    since_ns: u64,
    age: Age,
    out_of_turn: bool,
}

pub struct Model {
    slots: usize,
    reserve: usize,
    policy: PolicyKind,
    pub limits: ServerLimits,
    classes: BTreeMap<ClassId, Class>,
    arrivals: u64,
    /// Never forgotten, as tasks outlive their queries.
    queries: BTreeMap<QueryId, Query>,
    tasks: BTreeMap<TaskId, (QueryId, State)>,
    held: BTreeMap<TaskId, Held>,
    /// The admitted queries with queued tasks: the order of round robin.
    line: VecDeque<QueryId>,
    cancels: VecDeque<TaskId>,
    /// CPU time used out of turn less that used in turn.
    debt_ns: i64,
    virtual_pass: u64,
    remainder: u64,
    turns: u64,
    tuner: Tuner,
    /// The largest that ever were.
    slots_max: u64,
    longest_ns: u64,
    /// A query with a deadline, or a reserve: the bound of `fair` is not for these schedules.
    out_of_turn: bool,
    pub bounds: u64,
    pub exchanges: u64,
}

impl Model {
    pub fn new(slots: usize, policy: PolicyKind) -> Self {
        Model {
            slots,
            reserve: 0,
            policy,
            limits: ServerLimits::default(),
            classes: BTreeMap::from([(ClassId::DEFAULT, Class::new("default"))]),
            arrivals: 0,
            queries: BTreeMap::new(),
            tasks: BTreeMap::new(),
            held: BTreeMap::new(),
            line: VecDeque::new(),
            cancels: VecDeque::new(),
            debt_ns: 0,
            virtual_pass: 0,
            remainder: 0,
            turns: 0,
            tuner: Tuner::default(),
            slots_max: slots as u64,
            longest_ns: NOMINAL_NS,
            out_of_turn: false,
            bounds: 0,
            exchanges: 0,
        }
    }

    pub fn used_ns(&self, query: QueryId) -> u64 {
        self.queries[&query].used_ns
    }

    pub fn class_of(&self, query: QueryId) -> ClassId {
        self.queries[&query].class
    }

    // Queries.

    pub fn query_arrived(&mut self, query: QueryId, arrival: &Arrival, now_ns: u64) {
        let class = arrival.class.filter(|c| self.classes.contains_key(c));
        self.out_of_turn |= arrival.deadline_ns.is_some();
        let entry = Query {
            arrival: self.arrivals,
            arrival_ns: now_ns,
            attributes: arrival.clone(),
            class: class.unwrap_or(ClassId::DEFAULT),
            estimate_ns: arrival.estimate_ns,
            measured: false,
            used_ns: 0,
            longest_ns: 0,
            queue: VecDeque::new(),
            admitted: false,
            cancelled: false,
            ended: false,
            passed_by: Vec::new(),
            pass: 0,
            priority: 0,
            turn: 0,
            watch: Watch::default(),
        };
        self.queries.insert(query, entry);
        self.arrivals += 1;
    }

    /// It took a number in the order of arrival.
    pub fn query_refused(&mut self) {
        self.arrivals += 1;
    }

    /// The query is admitted: `Err` if it must not be.
    pub fn admit(&mut self, query: QueryId) -> Result<(), String> {
        let entry = &self.queries[&query];
        if entry.admitted || entry.cancelled {
            return Err(format!("query {query} was admitted, and did not wait"));
        }
        if !entry.attributes.exempt {
            let counts = |q: &&Query| q.admitted && !q.ended && !q.attributes.exempt;
            let of_class = |q: &&Query| q.class == entry.class;
            let running = self.queries.values().filter(counts).count() as u32;
            let running_of_class =
                self.queries.values().filter(counts).filter(of_class).count() as u32;
            if self.limits.max_running.is_some_and(|max| running >= max) {
                return Err(format!("query {query} was admitted beside {running}"));
            }
            let max = self.classes[&entry.class].max_running;
            if max.is_some_and(|max| running_of_class >= max) {
                return Err(format!(
                    "query {query} was admitted beside {running_of_class} of its class"
                ));
            }
            let waits = |q: &&Query| !q.admitted && !q.cancelled;
            let first = self.queries.values().filter(waits).filter(of_class).min_by_key(|q| {
                let by_size = match self.policy {
                    PolicyKind::SmallFirst => self.small(q),
                    _ => 0,
                };
                (Reverse(q.attributes.priority), by_size, q.arrival)
            });
            if first.is_some_and(|first| first.arrival != entry.arrival) {
                return Err(format!("query {query} was admitted before its turn"));
            }
        }
        let entry = self.query_mut(query);
        entry.admitted = true;
        if !entry.queue.is_empty() {
            self.join(query);
        }
        Ok(())
    }

    pub fn query_estimated(&mut self, query: QueryId, estimate: Estimate) {
        if let Some(query) = self.queries.get_mut(&query).filter(|q| !q.ended) {
            (query.estimate_ns, query.measured) = (estimate.cpu_ns, estimate.measured);
        }
    }

    pub fn set_query_weight(&mut self, query: QueryId, weight: u32, priority: Priority) {
        if let Some(entry) = self.queries.get_mut(&query).filter(|q| !q.ended) {
            (entry.attributes.weight, entry.attributes.priority) = (weight, priority);
            self.reweigh(query);
        }
    }

    pub fn set_query_deadline(&mut self, query: QueryId, deadline_ns: Option<u64>) {
        if let Some(entry) = self.queries.get_mut(&query).filter(|q| !q.ended) {
            entry.attributes.deadline_ns = deadline_ns;
            self.out_of_turn |= deadline_ns.is_some();
        }
    }

    pub fn set_query_class(&mut self, query: QueryId, class: ClassId) {
        if let Some(entry) = self.queries.get_mut(&query).filter(|q| !q.ended) {
            entry.class = class;
            self.reweigh(query);
        }
    }

    pub fn set_class(&mut self, id: ClassId, class: Class) {
        self.classes.insert(id, class);
        self.of_class(id).into_iter().for_each(|q| self.reweigh(q));
    }

    pub fn drop_class(&mut self, id: ClassId) {
        self.classes.remove(&id);
        for query in self.of_class(id) {
            self.query_mut(query).class = ClassId::DEFAULT;
            self.reweigh(query);
        }
    }

    pub fn query_cancelled(&mut self, query: QueryId) {
        let Some(entry) = self.queries.get_mut(&query) else { return };
        if std::mem::replace(&mut entry.cancelled, true) {
            return;
        }
        entry.queue.clear();
        self.line.retain(|q| *q != query);
        // The scheduler walks its slab, so the order of the cancels is that of the indexes.
        let mut mine: Vec<TaskId> =
            self.tasks.iter().filter(|(_, (q, _))| *q == query).map(|(t, _)| *t).collect();
        mine.sort_by_key(|t| crate::task_index(*t));
        for task in mine {
            let state = &mut self.tasks.get_mut(&task).expect("listed above").1;
            if let State::Running { .. } = state {
                continue;
            }
            *state = State::Cancelled;
            self.held.remove(&task);
            self.cancels.push_back(task);
        }
        self.rest_if_idle(query);
    }

    pub fn query_ended(&mut self, query: QueryId) {
        self.query_cancelled(query);
        let past = |q: &Query| Past { arrival_ns: q.arrival_ns, cpu_ns: q.used_ns };
        if let Some(entry) = self.queries.get_mut(&query)
            && !std::mem::replace(&mut entry.ended, true)
            && self.policy == PolicyKind::Fair
        {
            let ended = past(entry);
            let others = self.queries.values().filter(|q| !q.ended).map(past);
            self.tuner.ended(ended, self.slots, others);
        }
    }

    /// After a tick no timeout is left that has passed.
    pub fn none_overdue(&self, now_ns: u64) -> Result<(), String> {
        match self.queries.iter().find(|(_, q)| !q.cancelled && self.is_overdue(q, now_ns)) {
            Some((query, _)) => Err(format!("query {query} has taken too long and goes on")),
            None => Ok(()),
        }
    }

    fn is_overdue(&self, q: &Query, now_ns: u64) -> bool {
        let class = &self.classes[&q.class];
        let past = |timeout: Option<u64>| timeout.is_some_and(|t| q.arrival_ns + t <= now_ns);
        past(q.attributes.timeout_ns)
            || (past(class.statement_timeout_ns) && !q.attributes.exempt)
            || (past(class.queue_timeout_ns) && !q.admitted)
    }

    // Tasks.

    pub fn task_spawned(&mut self, task: TaskId, query: QueryId) {
        if self.queries[&query].cancelled {
            self.tasks.insert(task, (query, State::Cancelled));
            self.cancels.push_back(task);
        } else {
            self.tasks.insert(task, (query, State::Idle));
            self.enqueue(task);
        }
    }

    pub fn task_woken(&mut self, task: TaskId) {
        match self.tasks.get_mut(&task) {
            Some((_, State::Idle)) => self.enqueue(task),
            Some((_, State::Running { woken })) => *woken = true,
            _ => {}
        }
    }

    pub fn poll_began(&mut self, task: TaskId) -> Turn {
        match self.tasks.get_mut(&task) {
            Some((query, state @ State::Granted)) => {
                *state = State::Running { woken: false };
                Turn::Run { age: self.queries[query].age() }
            }
            None | Some((_, State::Cancelled)) => Turn::Cancelled,
            Some(_) => Turn::Wait,
        }
    }

    /// While it runs.
    pub fn is_woken(&self, task: TaskId) -> bool {
        matches!(self.tasks.get(&task), Some((_, State::Running { woken: true })))
    }

    /// `Err` if somebody has waited for longer than the policy's bound.
    pub fn poll_ended(&mut self, task: TaskId, end: PollEnd, cpu_ns: u64) -> Result<(), String> {
        let Some(&(query, State::Running { woken })) = self.tasks.get(&task) else {
            return Ok(());
        };
        let held = self.held.remove(&task).expect("what runs holds a slot");
        self.debt_ns += if held.out_of_turn { cpu_ns as i64 } else { -(cpu_ns as i64) };
        self.debt_ns = self.debt_ns.max(-BANK_NS);
        let entry = self.queries.get_mut(&query).expect("queries are not forgotten");
        entry.used_ns += cpu_ns;
        entry.longest_ns = entry.longest_ns.max(cpu_ns);
        self.longest_ns = self.longest_ns.max(cpu_ns);
        let cancelled = entry.cancelled;
        if self.policy == PolicyKind::Fair {
            self.charge(query, cpu_ns);
        }
        let bound = self.check_bound(query, cpu_ns);
        if end == PollEnd::Done {
            self.tasks.remove(&task);
        } else if cancelled {
            self.tasks.insert(task, (query, State::Cancelled));
            self.cancels.push_back(task);
        } else if woken || end == PollEnd::Yielded {
            self.enqueue(task);
        } else {
            self.tasks.insert(task, (query, State::Idle));
        }
        self.rest_if_idle(query);
        bound
    }

    pub fn task_dropped(&mut self, task: TaskId) {
        let Some((query, state)) = self.tasks.remove(&task) else { return };
        self.held.remove(&task);
        if state == State::Queued {
            let queue = &mut self.query_mut(query).queue;
            queue.retain(|t| *t != task);
            if queue.is_empty() {
                self.line.retain(|q| *q != query);
            }
        }
        self.rest_if_idle(query);
    }

    // Settings.

    pub fn set_slots(&mut self, slots: usize) {
        self.slots = slots;
        self.slots_max = self.slots_max.max(slots as u64);
    }

    pub fn set_reserve(&mut self, reserve: usize) {
        self.reserve = reserve;
        self.out_of_turn |= reserve > 0;
    }

    pub fn set_policy(&mut self, policy: PolicyKind) {
        self.policy = policy;
        (self.virtual_pass, self.remainder, self.turns) = (0, 0, 0);
        self.tuner = Tuner::default();
        for query in self.queries.values_mut() {
            query.passed_by.clear();
            (query.pass, query.priority, query.turn) = (0, 0, 0);
        }
        let mut line = Vec::from(std::mem::take(&mut self.line));
        line.sort_by_key(|q| self.queries[q].arrival);
        line.into_iter().for_each(|q| self.join(q));
    }

    // The order.

    fn query_mut(&mut self, query: QueryId) -> &mut Query {
        self.queries.get_mut(&query).expect("never forgotten")
    }

    fn running(&self, query: QueryId) -> u64 {
        self.held.values().filter(|h| h.query == query).count() as u64
    }

    fn share(&self, q: &Query) -> u64 {
        let weights =
            u64::from(q.attributes.weight) * u64::from(self.classes[&q.class].weight) / 100;
        let share = match q.attributes.priority {
            Priority::Low => weights / 4,
            Priority::Normal => weights,
            Priority::High => weights * 4,
        };
        share.max(1)
    }

    fn small(&self, q: &Query) -> u64 {
        weighted(remaining_ns(q.estimate_ns, q.used_ns), self.share(q))
    }

    fn fair_rank(&self, query: QueryId) -> u64 {
        let q = &self.queries[&query];
        q.pass + stride(NOMINAL_NS * self.running(query), q.priority)
    }

    fn active(&self) -> u64 {
        self.queries.values().map(|q| q.priority).sum()
    }

    fn enqueue(&mut self, task: TaskId) {
        let entry = self.tasks.get_mut(&task).expect("only living tasks queue");
        entry.1 = State::Queued;
        let query = entry.0;
        let entry = self.query_mut(query);
        entry.queue.push_back(task);
        if entry.queue.len() == 1 && entry.admitted {
            self.join(query);
        }
    }

    fn join(&mut self, query: QueryId) {
        self.line.push_back(query);
        let virtual_pass = self.virtual_pass;
        let entry = self.query_mut(query);
        entry.passed_by.clear();
        if self.policy == PolicyKind::Fair {
            if self.queries[&query].turn == 0 {
                self.send_back(query);
            }
            let entry = self.query_mut(query);
            entry.pass = entry.pass.max(virtual_pass);
            self.weigh(query);
        }
        self.watch(query);
    }

    fn send_back(&mut self, query: QueryId) {
        self.turns += 1;
        self.query_mut(query).turn = self.turns;
    }

    /// Who is served when fair's passes choose `first`.
    fn first_of_line(&mut self, first: QueryId) -> QueryId {
        let is_long = |q: &QueryId| self.queries[q].used_ns >= SHORT_CPU_NS;
        if self.policy != PolicyKind::Fair || !is_long(&first) {
            return first;
        }
        let priority = self.queries[&first].priority;
        let line = self.line.iter().copied().filter(is_long);
        let line = line.filter(|q| self.queries[q].priority == priority);
        let chosen = line.min_by_key(|q| (self.queries[q].turn, self.queries[q].arrival));
        let chosen = chosen.expect("`first` is one of them");
        if chosen != first {
            self.exchanges += 1;
            let passes = (self.queries[&first].pass, self.queries[&chosen].pass);
            (self.query_mut(chosen).pass, self.query_mut(first).pass) = passes;
            self.weigh(first);
            self.weigh(chosen);
        }
        chosen
    }

    fn weigh(&mut self, query: QueryId) {
        let entry = &self.queries[&query];
        let priority = self.share(entry) * self.tuner.decay().at(entry.used_ns);
        let lead_ns = entry.longest_ns.max(NOMINAL_NS) * (self.running(query) + 1);
        let ahead = self.virtual_pass + stride(lead_ns, priority);
        let virtual_pass = self.virtual_pass;
        let entry = self.query_mut(query);
        if priority > entry.priority && entry.priority > 0 {
            entry.pass = entry.pass.max(behind(virtual_pass, entry.pass, entry.priority, priority));
        }
        (entry.priority, entry.pass) = (priority, entry.pass.min(ahead));
    }

    fn charge(&mut self, query: QueryId, cpu_ns: u64) {
        if self.queries[&query].priority == 0 {
            self.weigh(query);
        }
        let active = self.active();
        if cpu_ns > 0 {
            self.remainder += cpu_ns * SCALE;
            self.virtual_pass += self.remainder / active;
            self.remainder %= active;
        }
        let used_ns = self.queries[&query].used_ns;
        if used_ns / SLICE_NS > (used_ns - cpu_ns) / SLICE_NS {
            self.send_back(query);
        }
        let entry = self.query_mut(query);
        entry.pass += stride(cpu_ns, entry.priority);
        self.weigh(query);
    }

    fn reweigh(&mut self, query: QueryId) {
        let active = self.running(query) > 0 || self.line.contains(&query);
        if self.policy == PolicyKind::Fair && active {
            self.charge(query, 0);
        }
        // The terms of everybody's bound have changed.
        for waiting in self.line.clone() {
            self.watch(waiting);
        }
    }

    fn of_class(&self, class: ClassId) -> Vec<QueryId> {
        self.queries.iter().filter(|(_, q)| q.class == class).map(|(id, _)| *id).collect()
    }

    fn rest_if_idle(&mut self, query: QueryId) {
        if self.running(query) == 0 && !self.line.contains(&query) {
            self.query_mut(query).priority = 0;
        }
    }

    // Promises.

    /// The query begins to wait.
    fn watch(&mut self, query: QueryId) {
        if self.policy != PolicyKind::Fair {
            return;
        }
        let watch = Watch {
            others_ns: 0,
            lead: self.fair_rank(query).saturating_sub(self.virtual_pass),
            active_max: self.active(),
            queries_max: self.queries.values().filter(|q| q.priority > 0).count() as u64,
        };
        self.query_mut(query).watch = watch;
    }

    /// A query used CPU time: nobody has waited for too long?
    fn check_bound(&mut self, by: QueryId, cpu_ns: u64) -> Result<(), String> {
        if self.policy != PolicyKind::Fair || self.out_of_turn {
            return Ok(());
        }
        if self.line.contains(&by) {
            self.watch(by);
        }
        let active = self.active();
        let queries = self.queries.values().filter(|q| q.priority > 0).count() as u64;
        for waiting in self.line.clone() {
            if waiting == by {
                continue;
            }
            let (slots, longest_ns) = (self.slots_max, self.longest_ns);
            let entry = self.query_mut(waiting);
            let watch = &mut entry.watch;
            watch.others_ns += cpu_ns;
            watch.active_max = watch.active_max.max(active);
            watch.queries_max = watch.queries_max.max(queries);
            let lead_max =
                stride((2 * slots + 1) * entry.longest_ns.max(NOMINAL_NS), entry.priority);
            if watch.lead > lead_max {
                return Err(format!("query {waiting} leads by {}, over {lead_max}", watch.lead));
            }
            let lead_ns = u128::from(watch.lead) * u128::from(watch.active_max);
            let mut bound_ns = 2 * (lead_ns / u128::from(SCALE)) as u64
                + (watch.queries_max + 3 * slots) * longest_ns;
            if entry.used_ns >= SHORT_CPU_NS {
                let slices_ns = u128::from(SLICE_NS + slots * longest_ns);
                let all = slices_ns * u128::from(watch.active_max) / u128::from(entry.priority);
                bound_ns += 2 * all as u64;
            }
            if watch.others_ns > bound_ns {
                return Err(format!(
                    "others used {} ns while query {waiting} waited, and {bound_ns} are the bound \
                     with {watch:?}, {slots} slots and quanta of {longest_ns} ns",
                    watch.others_ns
                ));
            }
            self.bounds += 1;
        }
        Ok(())
    }

    // Actions.

    /// Whether the scheduler should do this now.
    pub fn expect(&mut self, action: Action, now_ns: u64) -> Result<(), String> {
        match action {
            Action::Cancel(task) => match self.cancels.pop_front() {
                Some(expected) if expected == task => Ok(()),
                other => Err(format!("task {task} was cancelled, not {other:?}")),
            },
            Action::Grant(task) => match self.next_grant(now_ns)? {
                Some(expected) if expected == task => Ok(()),
                other => Err(format!("task {task} was granted a slot, not {other:?}")),
            },
            Action::Admitted(query) => self.admit(query),
            Action::Stop(query) => {
                let entry = &self.queries[&query];
                let never_fits = !entry.admitted && entry.attributes.memory_bytes > 0;
                if !self.is_overdue(entry, now_ns) && !never_fits {
                    return Err(format!("query {query} was stopped before its time"));
                }
                self.query_cancelled(query);
                Ok(())
            }
            Action::Spill(_) | Action::MemoryFreed(_) => Ok(()),
        }
    }

    /// Whether it has done all that it should.
    pub fn nothing_left(&mut self, now_ns: u64) -> Result<(), String> {
        if let Some(task) = self.cancels.pop_front() {
            return Err(format!("task {task} was not cancelled"));
        }
        match self.next_grant(now_ns)? {
            Some(task) => Err(format!("task {task} was not granted a slot")),
            None => Ok(()),
        }
    }

    /// Who should have a slot now, and has it from now on.
    fn next_grant(&mut self, now_ns: u64) -> Result<Option<TaskId>, String> {
        let Some((first, urgent)) = self.choose(now_ns, |_| true) else { return Ok(None) };
        let (chosen, out_of_turn, by_policy) = if self.held.len() < self.slots {
            match urgent {
                Some((urgent, out_of_turn)) => (urgent, out_of_turn, urgent == first),
                None => (self.first_of_line(first), false, true),
            }
        } else {
            let may = |q: &Query| {
                let age = q.age();
                let in_the_way = |h: &&Held| h.age > age || now_ns - h.since_ns >= OVERDUE_NS;
                let old = self.held.values().filter(in_the_way).count();
                let young = self.held.len() - old;
                self.held.len() < self.slots + age.reserves() * self.reserve
                    && (old >= self.slots || young < self.slots)
            };
            let (next, out_of_turn) = urgent.unwrap_or((first, false));
            if may(&self.queries[&next]) {
                (next, out_of_turn, false)
            } else {
                match self.choose(now_ns, may) {
                    Some((young, _)) => (young, false, false),
                    None => return Ok(None),
                }
            }
        };
        self.line.retain(|q| *q != chosen);
        for other in self.line.clone() {
            let passed_by = &mut self.query_mut(other).passed_by;
            if !by_policy {
                passed_by.retain(|q| *q != chosen);
                continue;
            }
            if self.policy == PolicyKind::RoundRobin
                && self.queries[&other].passed_by.contains(&chosen)
            {
                return Err(format!("query {chosen} was served twice while {other} waited"));
            }
            self.query_mut(other).passed_by.push(chosen);
        }
        let query = self.query_mut(chosen);
        query.passed_by.clear();
        let task = query.queue.pop_front().expect("only queries with queued tasks are in line");
        let (more, age) = (!query.queue.is_empty(), query.age());
        self.tasks.get_mut(&task).expect("only living tasks queue").1 = State::Granted;
        self.held.insert(task, Held { query: chosen, since_ns: now_ns, age, out_of_turn });
        if more {
            self.line.push_back(chosen);
            self.watch(chosen);
        }
        Ok(Some(task))
    }

    /// The policy's choice among some of those that wait; and who goes before it for its
    /// deadline, and whether that is out of turn.
    fn choose(
        &self,
        now_ns: u64,
        among: impl Fn(&Query) -> bool,
    ) -> Option<(QueryId, Option<(QueryId, bool)>)> {
        let queries = &self.queries;
        let waiting = || self.line.iter().copied().filter(|q| among(&queries[q]));
        let first = match self.policy {
            PolicyKind::Fifo => waiting().min_by_key(|q| queries[q].arrival),
            PolicyKind::RoundRobin => waiting().next(),
            PolicyKind::SmallFirst => {
                waiting().min_by_key(|q| (self.small(&queries[q]), queries[q].arrival))
            }
            PolicyKind::Fair => waiting().min_by_key(|q| (self.fair_rank(*q), queries[q].arrival)),
        }?;
        let ahead = |q: &QueryId| queries[q].attributes.deadline_ns.is_some_and(|d| d > now_ns);
        let urgent = waiting()
            .filter(ahead)
            .min_by_key(|q| (queries[q].attributes.deadline_ns, queries[q].arrival));
        let all = waiting().all(|q| ahead(&q));
        let urgent = urgent.filter(|_| all || self.debt_ns <= 0);
        Some((first, urgent.map(|urgent| (urgent, urgent != first && !all))))
    }
}
