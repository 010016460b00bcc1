//! Which query may start: those that may not yet wait by class, and are admitted in turn.
//!
//! Within a class, higher priorities come first, then the policy's order, then the order of
//! arrival; nobody is passed over because he needs more memory than the next. Between classes
//! turns go by weight: a class of weight 300 has three queries admitted for one of a class of
//! weight 100, while both have some that wait. A class at its cap lets the others go first; a
//! cap of the server is waited for by whoever's turn it is.

use std::cmp::Reverse;
use std::ops::{Index, IndexMut};

use super::{Fault, Scheduler};
use crate::action::Action;
use crate::class::{Class, ClassId, ServerLimits, WEIGHT_MAX};
use crate::memory_limit::MemoryLimit;
use crate::query::Arrival;
use crate::wait::{Refusal, Stop, WaitReason};

pub(super) struct Entry {
    pub class: Class,
    /// Admitted queries that have not ended, but for exempt ones.
    pub running: u32,
    /// Queries that wait to be admitted, in no order: it may change while they do.
    pub waiting: Vec<u32>,
    /// Grows by 1 / weight with each query admitted; the smallest is next.
    turn: u64,
}

pub(super) struct Classes {
    pub limits: ServerLimits,
    /// For queries that name no class.
    pub default: ClassId,
    pub running: u32,
    /// By id; `None` once dropped.
    pub entries: Vec<Option<Entry>>,
    waiting: usize,
    /// Of the class whose query was admitted last.
    turn: u64,
}

impl Index<ClassId> for Classes {
    type Output = Entry;

    fn index(&self, id: ClassId) -> &Entry {
        self.get(id).expect("a query has a living class")
    }
}

impl IndexMut<ClassId> for Classes {
    fn index_mut(&mut self, id: ClassId) -> &mut Entry {
        self.entries[id.0 as usize].as_mut().expect("a query has a living class")
    }
}

impl Classes {
    pub fn new(default: Class) -> Self {
        let mut classes = Classes {
            limits: ServerLimits::default(),
            default: ClassId::DEFAULT,
            running: 0,
            entries: Vec::new(),
            waiting: 0,
            turn: 0,
        };
        classes.add(default);
        classes
    }

    pub fn add(&mut self, class: Class) -> ClassId {
        self.entries.push(Some(Entry { class, running: 0, waiting: Vec::new(), turn: 0 }));
        ClassId((self.entries.len() - 1) as u32)
    }

    pub fn get(&self, id: ClassId) -> Option<&Entry> {
        self.entries.get(id.0 as usize)?.as_ref()
    }

    pub fn iter(&self) -> impl Iterator<Item = (ClassId, &Entry)> {
        let entries = self.entries.iter().enumerate();
        entries.filter_map(|(id, entry)| Some((ClassId(id as u32), entry.as_ref()?)))
    }

    fn server_is_full(&self) -> bool {
        self.limits.max_running.is_some_and(|max| self.running >= max)
    }
}

impl Entry {
    pub fn is_full(&self) -> bool {
        self.class.max_running.is_some_and(|max| self.running >= max)
    }
}

impl Scheduler {
    pub(super) fn could_ever_run(&self, class: ClassId, arrival: &Arrival) -> Result<(), Refusal> {
        let asked_bytes = arrival.memory_bytes;
        self.memory
            .could_ever_promise(class, asked_bytes)
            .map_err(|(limit, limit_bytes)| Refusal::TooLarge { asked_bytes, limit, limit_bytes })
    }

    /// A query that just arrived takes its place among those that wait, which may be none.
    /// Refused, it is gone.
    pub(super) fn wait_for_admission(
        &mut self,
        q: u32,
        now_ns: u64,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        self.join_queue(q);
        self.admit(Some(q), now_ns, actions);
        let entry = &self.classes[self.query(q).state.class];
        if !self.query(q).waiting || entry.waiting.len() <= entry.class.queue_max as usize {
            return Ok(());
        }
        let refusal = Refusal::QueueFull {
            class: entry.class.name.clone(),
            queue_max: entry.class.queue_max,
            waits_for: self.admission_reason(self.first_waiting(entry)),
        };
        self.leave_queue(q);
        let query = self.query(q).state.query;
        self.by_id.remove(&query);
        self.queries[q as usize] = None;
        self.free_queries.push(q);
        Err(refusal)
    }

    pub(super) fn join_queue(&mut self, q: u32) {
        let class = self.query(q).state.class;
        let turn = self.classes.turn;
        let entry = &mut self.classes[class];
        if entry.waiting.is_empty() {
            entry.turn = entry.turn.max(turn);
        }
        entry.waiting.push(q);
        self.classes.waiting += 1;
        self.query_mut(q).waiting = true;
    }

    pub(super) fn leave_queue(&mut self, q: u32) {
        if std::mem::replace(&mut self.query_mut(q).waiting, false) {
            let class = self.query(q).state.class;
            self.classes[class].waiting.retain(|w| *w != q);
            self.classes.waiting -= 1;
        }
    }

    /// Admits whoever may start. `newcomer` need not be told: it did not wait.
    pub(super) fn admit(&mut self, newcomer: Option<u32>, now_ns: u64, actions: &mut Vec<Action>) {
        while self.classes.waiting > 0
            && let Some(q) = self.next_admitted()
        {
            self.leave_queue(q);
            let class = self.query(q).state.class;
            let entry = &mut self.classes[class];
            entry.running += 1;
            let turn = entry.turn;
            entry.turn += u64::from(WEIGHT_MAX) * 100 / u64::from(entry.class.weight);
            self.classes.turn = turn;
            self.classes.running += 1;
            self.query_mut(q).counted = true;
            if newcomer != Some(q) {
                actions.push(Action::Admitted(self.query(q).state.query));
            }
            self.let_in(q, now_ns, actions);
        }
    }

    /// From now on its tasks may run.
    pub(super) fn let_in(&mut self, q: u32, now_ns: u64, actions: &mut Vec<Action>) {
        let state = &mut self.query_mut(q).state;
        state.admitted_ns = Some(now_ns);
        let (query, class, promised) = (state.query, state.class, state.arrival.memory_bytes);
        let queued = state.queued > 0;
        self.memory.open(query, class, promised, actions);
        if queued {
            self.join_order(q);
        }
        self.note_phase(q, now_ns);
        self.grant(now_ns, actions);
    }

    pub(super) fn uncount(&mut self, q: u32) {
        if std::mem::replace(&mut self.query_mut(q).counted, false) {
            let class = self.query(q).state.class;
            self.classes[class].running -= 1;
            self.classes.running -= 1;
        }
    }

    pub(super) fn move_to_class(&mut self, q: u32, to: ClassId, actions: &mut Vec<Action>) {
        let (waited, counted) = (self.query(q).waiting, self.query(q).counted);
        self.leave_queue(q);
        self.uncount(q);
        let state = &mut self.query_mut(q).state;
        state.class = to;
        let query = state.query;
        self.memory.set_class_of(query, to, actions);
        if counted {
            self.query_mut(q).counted = true;
            self.classes[to].running += 1;
            self.classes.running += 1;
        }
        if waited {
            self.join_queue(q);
        }
        self.reweigh(q);
    }

    /// Limits have changed: what waits for what it will never be given waits no longer.
    pub(super) fn refuse_what_never_fits(&mut self, now_ns: u64, actions: &mut Vec<Action>) {
        for q in 0..self.queries.len() as u32 {
            let Some(query) = self.queries[q as usize].as_ref().filter(|q| q.waiting) else {
                continue;
            };
            let state = &query.state;
            if let Err(refusal) = self.could_ever_run(state.class, &state.arrival) {
                self.stop(q, Stop::Refused(refusal), now_ns, actions);
            }
        }
    }

    fn first_waiting(&self, entry: &Entry) -> u32 {
        let rank = |q: &u32| {
            let state = &self.query(*q).state;
            let by_policy = self.policy.admission_rank(state);
            (Reverse(state.arrival.priority), by_policy, state.arrival_order)
        };
        *entry.waiting.iter().min_by_key(|q| rank(q)).expect("the caller saw that some wait")
    }

    /// The classes whose turn it could be, the next one first.
    fn turns(&self) -> Vec<(ClassId, &Entry)> {
        let over = self.faulty(Fault::OverAdmitted);
        let mut turns: Vec<(ClassId, &Entry)> = self
            .classes
            .iter()
            .filter(|(_, e)| !e.waiting.is_empty() && (!e.is_full() || over))
            .collect();
        turns.sort_by_key(|(id, e)| (e.turn, *id));
        turns
    }

    fn next_admitted(&self) -> Option<u32> {
        if self.classes.server_is_full() {
            return None;
        }
        for (id, entry) in self.turns() {
            let q = self.first_waiting(entry);
            match self.memory.can_promise(id, self.query(q).state.arrival.memory_bytes) {
                Ok(()) => return Some(q),
                Err((MemoryLimit::Server, _)) => return None,
                Err(_) => {}
            }
        }
        None
    }

    /// What a query that waits to be admitted waits for.
    pub(super) fn admission_reason(&self, q: u32) -> WaitReason {
        let state = &self.query(q).state;
        let entry = &self.classes[state.class];
        let running = |class: Option<ClassId>| {
            let living = self.queries.iter().flatten().filter(|o| o.counted);
            let of_class = living.filter(|o| class.is_none_or(|c| o.state.class == c));
            let mut running: Vec<_> = of_class.map(|o| o.state.query).collect();
            running.sort_unstable();
            running
        };
        if entry.is_full() {
            let class = entry.class.name.clone();
            return WaitReason::ClassFull { class, running: running(Some(state.class)) };
        }
        if self.classes.server_is_full() {
            return WaitReason::ServerFull { running: running(None) };
        }
        let first = self.first_waiting(entry);
        if first != q {
            return WaitReason::Turn { behind: self.query(first).state.query };
        }
        if let Err((limit, limit_bytes)) =
            self.memory.can_promise(state.class, state.arrival.memory_bytes)
        {
            let holders = self.memory.holders(&limit, state.query);
            return WaitReason::Memory { limit, limit_bytes, holders };
        }
        let other = self.turns().first().map_or(q, |(_, entry)| self.first_waiting(entry));
        WaitReason::Turn { behind: self.query(other).state.query }
    }

    /// Caps are counted right, and nobody waits who could be admitted.
    #[cfg(any(test, feature = "simulation"))]
    pub(super) fn check_admission(&self) -> Result<(), String> {
        let mut server = 0;
        for (id, entry) in self.classes.iter() {
            let mine = || self.queries.iter().flatten().filter(|q| q.state.class == id);
            let running = mine().filter(|q| q.counted).count();
            let waiting = mine().filter(|q| q.waiting).count();
            if (running, waiting) != (entry.running as usize, entry.waiting.len()) {
                return Err(format!(
                    "{running} queries of class {id} run and {waiting} wait, not {} and {}",
                    entry.running,
                    entry.waiting.len()
                ));
            }
            server += running;
        }
        if server != self.classes.running as usize {
            return Err(format!("{server} queries run, counted were {}", self.classes.running));
        }
        for query in self.queries.iter().flatten() {
            let state = &query.state;
            if query.waiting && (state.admitted_ns.is_some() || state.cancelled || query.counted) {
                return Err(format!("query {} waits to be admitted: {state:?}", state.query));
            }
        }
        if let Some(q) = self.next_admitted() {
            let state = &self.query(q).state;
            return Err(format!("query {} waits and could be admitted", state.query));
        }
        Ok(())
    }
}
