//! What a driver may ask.

use super::Scheduler;
use crate::class::{Class, ClassId, ServerLimits};
use crate::histogram::Histogram;
use crate::policy::PolicyKind;
use crate::query::{Age, OVERDUE_NS, QueryState};
use crate::slots::{Held, SlotView};
use crate::wait::WaitReason;
use std::cmp::Reverse;
use thalweg_base::{QueryId, TaskId};

impl Scheduler {
    pub fn policy(&self) -> PolicyKind {
        self.policy.kind()
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    pub fn reserve(&self) -> usize {
        self.reserve
    }

    pub fn slots_in_use(&self) -> usize {
        self.held.in_use()
    }

    /// The slots in use, by number.
    pub fn slots_held(&self) -> impl Iterator<Item = SlotView> {
        self.held.held().map(|(slot, held)| SlotView {
            slot,
            task: self.tasks.id(held.task),
            query: self.query(self.tasks[held.task].query).state.query,
            since_ns: held.since_ns,
            age: held.age,
        })
    }

    /// The query of a living task.
    pub fn query_of(&self, task: TaskId) -> Option<&QueryState> {
        let task = self.tasks.find(task)?;
        Some(&self.query(self.tasks[task].query).state)
    }

    /// CPU times of all quanta there ever were.
    pub fn quantum_lengths(&self) -> &Histogram {
        &self.quantum_lengths
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
        let &q = self.by_id.get(&query)?;
        let state = &self.query(q).state;
        if state.running > 0 {
            return None;
        }
        if self.query(q).waiting {
            return Some(self.admission_reason(q));
        }
        if state.queued == 0 {
            let awaited = self.memory.awaited_limit(query).map(|(limit, limit_bytes)| {
                let holders = self.memory.holders(&limit, query);
                WaitReason::Memory { limit, limit_bytes, holders }
            });
            return Some(awaited.unwrap_or(WaitReason::Input));
        }
        // Queries that ended count: their last quanta still hold slots.
        self.queries
            .iter()
            .flatten()
            .filter(|other| other.state.running > 0)
            .max_by_key(|other| (other.state.running, Reverse(other.state.arrival_order)))
            .map(|other| WaitReason::Slot { behind: other.state.query })
    }

    /// When to call [`tick`](Self::tick) at the latest, if nothing else happens before. It may
    /// have passed.
    pub fn next_deadline(&self) -> Option<u64> {
        self.next_timeout_ns.into_iter().chain(self.reserve_opens_ns()).min()
    }

    /// When enough slots will have been held for so long that a query that waits may use the
    /// reserve.
    fn reserve_opens_ns(&self) -> Option<u64> {
        let in_use = self.held.in_use();
        if in_use < self.slots {
            return None;
        }
        let waits = |age: &Age| self.waiting[*age as usize] > 0 && in_use < self.places(*age);
        let opens_ns = |age: Age| {
            let at = |held: Held| match held.age > age {
                true => 0,
                false => held.since_ns + OVERDUE_NS,
            };
            let mut in_the_way: Vec<u64> = self.held.held().map(|(_, held)| at(held)).collect();
            in_the_way.sort_unstable();
            // If it is 0 nothing has to become overdue: the reserve is open.
            in_the_way.get(self.in_the_way_min() - 1).copied().filter(|at| *at > 0)
        };
        Age::WITH_RESERVE.into_iter().filter(waits).filter_map(opens_ns).min()
    }

    pub fn limits(&self) -> ServerLimits {
        self.classes.limits
    }

    pub fn default_class(&self) -> ClassId {
        self.classes.default
    }

    /// `None` once it is dropped.
    pub fn class(&self, id: ClassId) -> Option<&Class> {
        self.classes.get(id).map(|e| &e.class)
    }

    pub fn class_named(&self, name: &str) -> Option<ClassId> {
        self.classes.iter().find(|(_, e)| e.class.name == name).map(|(id, _)| id)
    }

    /// All classes: the queries that run in each, and those that wait to.
    pub fn classes(&self) -> impl Iterator<Item = (ClassId, &Class, usize, usize)> {
        self.classes.iter().map(|(id, e)| (id, &e.class, e.running as usize, e.waiting.len()))
    }

    /// Memory that all queries hold.
    pub fn memory_held(&self) -> u64 {
        self.memory.held()
    }

    pub fn memory_of_class(&self, id: ClassId) -> u64 {
        self.memory.held_by_class(id)
    }

    pub fn memory_of_query(&self, query: QueryId) -> u64 {
        self.memory.held_by(query)
    }

    /// What the query is guaranteed at the moment; `None` if it is not admitted.
    pub fn memory_share(&self, query: QueryId) -> Option<u64> {
        self.memory.share_of(query)
    }

    /// Whether the query was told to spill and is still above its share.
    pub fn must_spill(&self, query: QueryId) -> bool {
        self.memory.must_spill(query)
    }
}
