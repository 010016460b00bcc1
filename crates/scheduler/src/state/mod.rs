//! The state machine: events in, actions out.
//!
//! * `queries`: a query arrives, changes, ends
//! * `tasks`: a task is spawned, woken, polled, dropped
//! * `admission`: which query may start
//! * `settings`: slots, policy, classes and limits, all of them live
//! * `grant`: who gets a free slot, and the common parts of all transitions
//! * `questions`: what a driver may ask
//! * `check`: the invariants

mod admission;
#[cfg(any(test, feature = "simulation"))]
mod check;
mod grant;
mod queries;
mod questions;
mod settings;
mod tasks;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use admission::Classes;
use thalweg_base::QueryId;

use crate::class::{Class, ClassId};
use crate::deadline::Deadlines;
use crate::histogram::Histogram;
use crate::memory::Ledger;
use crate::order::Order;
use crate::policy::{Policy, PolicyKind};
use crate::query::{Age, QueryState};
use crate::slots::Slots;
use crate::task::Tasks;

/// What a poll that begins may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Turn {
    /// It holds a slot: poll the inner future, then report [`Scheduler::poll_ended`]. For this
    /// poll the thread may have a lower priority with the operating system than one that runs a
    /// younger query.
    Run { age: Age },
    /// No slot yet: return `Pending`; a [`Action::Grant`] will wake it.
    Wait,
    /// The query was cancelled or has ended: drop the inner future without polling it.
    Cancelled,
}

/// How a quantum ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollEnd {
    /// The future waits for something and will be woken.
    Pending,
    /// The future could go on at once; it gave way because its quantum was over.
    Yielded,
    /// The future is complete; its id is of the past from now on.
    Done,
}

/// Deliberate mistakes, to show that the simulator would notice them. Only it can make them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A wake that comes while the task runs is forgotten when its poll ends.
    LostWake,
    /// A task that is dropped between its grant and its poll keeps its slot.
    LeakedSlot,
    /// CPU time used does not change a waiting query's rank.
    StaleRank,
    /// A drop of a past task drops the one that has its place now.
    StaleId,
    /// A query that begins to wait goes before all that have run, under `fair`.
    CreditForRest,
    /// The last of a line is served in place of the first.
    BackToFront,
    /// Long queries use the reserve.
    ReserveForAll,
    /// Queries with deadlines may always go first.
    EndlessDeadlines,
    /// A class's `max_running` is not looked at.
    OverAdmitted,
    /// Who waits to be admitted is forgotten when a query ends.
    LostAdmission,
    /// A query that ends keeps its memory.
    LeakedMemory,
    /// A quantum that goes on in the same poll is not charged for.
    FreeQuantum,
}

struct Query {
    state: QueryState,
    /// First and last of its queued tasks.
    head: u32,
    tail: u32,
    /// It is admitted and counts against the caps on running queries.
    counted: bool,
    /// It waits to be admitted.
    waiting: bool,
    /// It counts in `Scheduler::waiting` as one of this age.
    waits_as: Option<Age>,
}

/// Decides which query may start, which task of which query may run, and who may have how much
/// memory. See the [crate's page](crate) for how to drive it.
///
/// Events of tasks are O(log queries), or O(queries that wait) where `fair` serves one of its
/// long queries, and allocate only to grow. Admission, cancelling or ending
/// a query with living tasks, and changes of settings look at all queries. Actions are appended
/// to the caller's buffer.
pub struct Scheduler {
    slots: usize,
    reserve: usize,
    held: Slots,
    /// Queued tasks, those of queries that wait to be admitted included.
    queued: usize,
    tasks: Tasks,
    queries: Vec<Option<Query>>,
    free_queries: Vec<u32>,
    by_id: HashMap<QueryId, u32>,
    arrivals: u64,
    policy: Box<dyn Policy>,
    /// The admitted queries with queued tasks.
    order: Order,
    /// Those of them with a deadline ahead.
    deadlines: Deadlines,
    /// How many of them are of which [`Age`].
    waiting: [usize; Age::COUNT],
    classes: Classes,
    memory: Ledger,
    quantum_lengths: Histogram,
    /// No timeout comes before this; it may be too early.
    next_timeout_ns: Option<u64>,
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fault: Option<Fault>,
}

impl Scheduler {
    /// Without limits, a reserve, or classes but the default one.
    ///
    /// # Panics
    /// If `slots` is 0: nothing would ever run.
    pub fn new(slots: usize, policy: PolicyKind) -> Self {
        assert!(slots > 0, "a scheduler needs at least one slot");
        let default = Class::new("default");
        let mut memory = Ledger::new();
        memory.set_class(ClassId::DEFAULT, &default, &mut Vec::new());
        Scheduler {
            slots,
            reserve: 0,
            held: Slots::default(),
            queued: 0,
            tasks: Tasks::default(),
            queries: Vec::new(),
            free_queries: Vec::new(),
            by_id: HashMap::new(),
            arrivals: 0,
            policy: policy.build(),
            order: Order::default(),
            deadlines: Deadlines::default(),
            waiting: [0; Age::COUNT],
            classes: Classes::new(default),
            memory,
            quantum_lengths: Histogram::default(),
            next_timeout_ns: None,
            #[cfg(any(test, feature = "simulation"))]
            fault: None,
        }
    }

    #[cfg(any(test, feature = "simulation"))]
    fn faulty(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    #[cfg(not(any(test, feature = "simulation")))]
    fn faulty(&self, _fault: Fault) -> bool {
        false
    }
}
