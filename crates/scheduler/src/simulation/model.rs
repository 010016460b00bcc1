//! What the scheduler should do, said as plainly as possible and at any cost: maps, lists and
//! linear searches, no ranks, no slab, no heap.

use crate::policy::remaining_ns;
use crate::{Action, PolicyKind, PollEnd, Turn};
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
    estimate_ns: u64,
    used_ns: u64,
    queue: VecDeque<TaskId>,
    cancelled: bool,
    /// Whom this query has let go first since it began to wait, under round robin.
    passed_by: Vec<QueryId>,
}

pub struct Model {
    pub slots: usize,
    policy: PolicyKind,
    in_use: usize,
    arrivals: u64,
    /// Never forgotten, as tasks outlive their queries.
    queries: BTreeMap<QueryId, Query>,
    tasks: BTreeMap<TaskId, (QueryId, State)>,
    /// The queries with queued tasks: the order of round robin.
    line: VecDeque<QueryId>,
    cancels: Vec<TaskId>,
}

impl Model {
    pub fn new(slots: usize, policy: PolicyKind) -> Self {
        Model {
            slots,
            policy,
            in_use: 0,
            arrivals: 0,
            queries: BTreeMap::new(),
            tasks: BTreeMap::new(),
            line: VecDeque::new(),
            cancels: Vec::new(),
        }
    }

    pub fn used_ns(&self, query: QueryId) -> u64 {
        self.queries[&query].used_ns
    }

    pub fn query_arrived(&mut self, query: QueryId, estimate_ns: u64) {
        let entry = Query {
            arrival: self.arrivals,
            estimate_ns,
            used_ns: 0,
            queue: VecDeque::new(),
            cancelled: false,
            passed_by: Vec::new(),
        };
        self.queries.insert(query, entry);
        self.arrivals += 1;
    }

    pub fn query_estimated(&mut self, query: QueryId, estimate_ns: u64) {
        if let Some(query) = self.queries.get_mut(&query) {
            query.estimate_ns = estimate_ns;
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
            match state {
                State::Running { .. } => continue,
                State::Granted => self.in_use -= 1,
                State::Idle | State::Queued | State::Cancelled => {}
            }
            *state = State::Cancelled;
            self.cancels.push(task);
        }
    }

    pub fn query_ended(&mut self, query: QueryId) {
        self.query_cancelled(query);
    }

    pub fn task_spawned(&mut self, task: TaskId, query: QueryId) {
        if self.queries[&query].cancelled {
            self.tasks.insert(task, (query, State::Cancelled));
            self.cancels.push(task);
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
        match self.tasks.get_mut(&task).map(|(_, state)| state) {
            Some(state @ State::Granted) => {
                *state = State::Running { woken: false };
                Turn::Run
            }
            None | Some(State::Cancelled) => Turn::Cancelled,
            Some(_) => Turn::Wait,
        }
    }

    pub fn poll_ended(&mut self, task: TaskId, end: PollEnd, cpu_ns: u64) {
        let Some(&(query, State::Running { woken })) = self.tasks.get(&task) else { return };
        self.in_use -= 1;
        let entry = self.queries.get_mut(&query).expect("queries are not forgotten");
        entry.used_ns += cpu_ns;
        if end == PollEnd::Done {
            self.tasks.remove(&task);
        } else if entry.cancelled {
            self.tasks.insert(task, (query, State::Cancelled));
            self.cancels.push(task);
        } else if woken || end == PollEnd::Yielded {
            self.enqueue(task);
        } else {
            self.tasks.insert(task, (query, State::Idle));
        }
    }

    pub fn task_dropped(&mut self, task: TaskId) {
        match self.tasks.remove(&task) {
            Some((_, State::Granted | State::Running { .. })) => self.in_use -= 1,
            Some((query, State::Queued)) => {
                let queue = &mut self.queries.get_mut(&query).expect("never forgotten").queue;
                queue.retain(|t| *t != task);
                if queue.is_empty() {
                    self.line.retain(|q| *q != query);
                }
            }
            _ => {}
        }
    }

    pub fn set_policy(&mut self, policy: PolicyKind) {
        self.policy = policy;
        let queries = &mut self.queries;
        self.line.make_contiguous().sort_by_key(|q| queries[q].arrival);
        queries.values_mut().for_each(|q| q.passed_by.clear());
    }

    fn enqueue(&mut self, task: TaskId) {
        let entry = self.tasks.get_mut(&task).expect("only living tasks queue");
        entry.1 = State::Queued;
        let query = self.queries.get_mut(&entry.0).expect("never forgotten");
        if query.queue.is_empty() {
            self.line.push_back(entry.0);
            query.passed_by.clear();
        }
        query.queue.push_back(task);
    }

    /// What the last events should have led to: cancels first, then grants in order. Checks
    /// what the policies promise on the way.
    pub fn actions(&mut self) -> Result<Vec<Action>, String> {
        let mut actions: Vec<Action> = self.cancels.drain(..).map(Action::Cancel).collect();
        while self.in_use < self.slots && !self.line.is_empty() {
            let queries = &self.queries;
            let waiting = self.line.iter().copied();
            let chosen = match self.policy {
                PolicyKind::Fifo => waiting.min_by_key(|q| queries[q].arrival),
                PolicyKind::RoundRobin => self.line.front().copied(),
                PolicyKind::SmallFirst => waiting.min_by_key(|q| {
                    let query = &queries[q];
                    (remaining_ns(query.estimate_ns, query.used_ns), query.arrival)
                }),
            };
            let chosen = chosen.expect("the line is not empty");
            self.line.retain(|q| *q != chosen);
            for other in &self.line {
                let passed_by =
                    &mut self.queries.get_mut(other).expect("never forgotten").passed_by;
                if self.policy == PolicyKind::RoundRobin && passed_by.contains(&chosen) {
                    return Err(format!("query {chosen} was served twice while {other} waited"));
                }
                passed_by.push(chosen);
            }
            let query = self.queries.get_mut(&chosen).expect("never forgotten");
            query.passed_by.clear();
            let task = query.queue.pop_front().expect("only queries with queued tasks are in line");
            if !query.queue.is_empty() {
                self.line.push_back(chosen);
            }
            self.tasks.get_mut(&task).expect("only living tasks queue").1 = State::Granted;
            self.in_use += 1;
            actions.push(Action::Grant(task));
        }
        Ok(actions)
    }
}
