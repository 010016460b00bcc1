//! What a query brings when it arrives, and what is kept about it.

use thalweg_base::QueryId;

use crate::class::{ClassId, WEIGHT_MAX, WEIGHT_NORMAL};
use crate::histogram::Histogram;
use crate::wait::{Phase, Phases, Stop};

/// A query is [fresh](Age::Fresh) until it has used this much CPU time. A few quanta are most of
/// what it takes in all; for one that has used more, one quantum's wait is a small part.
pub const FRESH_CPU_NS: u64 = 8_000_000;

/// A query is [brief](Age::Brief) until it has used this much CPU time: beside one that takes most of
/// what a short one may, to wait for its slots or to share a core with it evenly doubles its time.
pub const BRIEF_CPU_NS: u64 = 30_000_000;

/// A query is *short* until it has used this much CPU time: below it a person takes an answer
/// for instant, and above it one quantum more or less is not noticed.
pub const SHORT_CPU_NS: u64 = 100_000_000;

/// How far a query has come, by the CPU time that it has used, or how far it will come, if that is
/// known from when it was [last asked](Estimate::measured): what its plan looks like is no reason to
/// think that it will be over soon, or that it will not. The
/// [reserve](crate::Scheduler::set_reserve) is for younger ones whom older ones are in the way of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Age {
    /// Less than [`FRESH_CPU_NS`]: look-ups never grow older.
    Fresh,
    /// Less than [`BRIEF_CPU_NS`].
    Brief,
    /// Less than [`SHORT_CPU_NS`].
    Short,
    Long,
}

impl Age {
    /// How many there are.
    pub const COUNT: usize = 4;

    /// Those for which there is a reserve, the oldest first.
    pub(crate) const WITH_RESERVE: [Age; 3] = [Age::Short, Age::Brief, Age::Fresh];

    pub fn of(cpu_ns: u64) -> Self {
        match cpu_ns {
            0..FRESH_CPU_NS => Age::Fresh,
            FRESH_CPU_NS..BRIEF_CPU_NS => Age::Brief,
            BRIEF_CPU_NS..SHORT_CPU_NS => Age::Short,
            _ => Age::Long,
        }
    }

    /// How many reserves there are for queries of this age: with their own they use those that are
    /// for older ones.
    pub const fn reserves(self) -> usize {
        match self {
            Age::Fresh => 3,
            Age::Brief => 2,
            Age::Short => 1,
            Age::Long => 0,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Age::Fresh => "fresh",
            Age::Brief => "brief",
            Age::Short => "short",
            Age::Long => "long",
        }
    }
}

/// What a query is believed to need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// CPU time of the whole query.
    pub cpu_ns: u64,
    /// It is what the same query took before.
    pub measured: bool,
}

/// A task that has held its slot for this long does not give way: its quantum aimed at half of it.
pub const OVERDUE_NS: u64 = 4_000_000;

/// How much more a user cares for one query than for others of the same class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// A quarter of the weight; admitted after all others of its class.
    Low,
    #[default]
    Normal,
    /// Four times the weight; admitted before all others of its class.
    High,
}

impl Priority {
    pub fn name(self) -> &'static str {
        match self {
            Priority::Low => "low",
            Priority::Normal => "normal",
            Priority::High => "high",
        }
    }
}

/// What is known of a query when it arrives. `Arrival::default()` is a query nobody said
/// anything about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// CPU time that the whole query is believed to need; 0 if nobody knows.
    pub estimate_ns: u64,
    /// `None`: the server's default class.
    pub class: Option<ClassId>,
    /// Its share of the CPU beside others, 1 to [`WEIGHT_MAX`]; multiplied with its class's.
    pub weight: u32,
    pub priority: Priority,
    /// When the answer is wanted, on the clock of the events.
    pub deadline_ns: Option<u64>,
    /// Memory that must be free for it before it starts, and that it is then never refused.
    pub memory_bytes: u64,
    /// From its arrival; the shorter of this and its class's holds.
    pub timeout_ns: Option<u64>,
    /// Never waits to be admitted and counts against no cap: what must work on a full server,
    /// such as finding and stopping the queries that fill it.
    pub exempt: bool,
}

impl Default for Arrival {
    fn default() -> Self {
        Arrival {
            estimate_ns: 0,
            class: None,
            weight: WEIGHT_NORMAL,
            priority: Priority::Normal,
            deadline_ns: None,
            memory_bytes: 0,
            timeout_ns: None,
            exempt: false,
        }
    }
}

/// The accounting of one query, as `system.queries` shows it. Times are `now_ns` of the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryState {
    pub query: QueryId,
    /// Counts arrivals: 0 for the first query this scheduler ever saw. Breaks all ties.
    pub arrival_order: u64,
    /// What it came with; changes by the scheduler's setters are made here.
    pub arrival: Arrival,
    /// Its class now.
    pub class: ClassId,
    /// Its weight × its class's × what its priority is worth; [`WEIGHT_NORMAL`] if all are normal.
    pub share: u64,
    /// CPU time the whole query is believed to need; 0 if nobody knows.
    pub estimate_ns: u64,
    /// The estimate is what the same query took before.
    pub measured: bool,
    /// CPU time of all its ended quanta.
    pub cpu_ns: u64,
    /// Polls that ended.
    pub quanta: u64,
    /// CPU time of the longest single quantum.
    pub longest_quantum_ns: u64,
    /// CPU times of its quanta.
    pub quantum_lengths: Histogram,
    /// Time its tasks spent queued, summed over the tasks: four tasks that wait one second
    /// each make four. A wait is added when it ends.
    pub waited_ns: u64,
    /// What it did with its time; unlike `waited_ns`, each moment counts once.
    pub phases: Phases,
    /// Tasks alive, in any state.
    pub tasks: u32,
    /// Most of them at a time.
    pub tasks_most: u32,
    /// Tasks that could run and have no slot.
    pub queued: u32,
    /// Tasks that hold a slot.
    pub running: u32,
    pub arrival_ns: u64,
    /// `None` while it waits to be admitted.
    pub admitted_ns: Option<u64>,
    pub first_grant_ns: Option<u64>,
    /// Set by [`query_ended`](crate::Scheduler::query_ended).
    pub end_ns: Option<u64>,
    /// No task of it will be granted a slot again.
    pub cancelled: bool,
    /// Why the scheduler itself cancelled it.
    pub stopped: Option<Stop>,
    /// Where it stands in the policy's order.
    pub(crate) place: Place,
}

/// What a policy remembers about a query. Which fields mean what is the policy's business.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub pass: u64,
    pub priority: u64,
    pub turn: u64,
}

impl QueryState {
    pub(crate) fn new(query: QueryId, arrival: &Arrival, class: ClassId, now_ns: u64) -> Self {
        QueryState {
            query,
            arrival_order: 0,
            arrival: arrival.clone(),
            class,
            share: u64::from(WEIGHT_NORMAL),
            estimate_ns: arrival.estimate_ns,
            measured: false,
            cpu_ns: 0,
            quanta: 0,
            longest_quantum_ns: 0,
            quantum_lengths: Histogram::default(),
            waited_ns: 0,
            phases: Phases::new(Phase::Admission, now_ns),
            tasks: 0,
            tasks_most: 0,
            queued: 0,
            running: 0,
            arrival_ns: now_ns,
            admitted_ns: None,
            first_grant_ns: None,
            end_ns: None,
            cancelled: false,
            stopped: None,
            place: Place::default(),
        }
    }

    pub fn age(&self) -> Age {
        self.age_after(0)
    }

    /// Its age once it has used so much more CPU time.
    pub(crate) fn age_after(&self, cpu_ns: u64) -> Age {
        let known_ns = if self.measured { self.estimate_ns } else { 0 };
        Age::of(known_ns.max(self.cpu_ns + cpu_ns))
    }

    /// `share` of its own attributes in a class of this weight.
    pub(crate) fn share_in(&self, class_weight: u32) -> u64 {
        let weights = u64::from(self.arrival.weight.clamp(1, WEIGHT_MAX))
            * u64::from(class_weight.clamp(1, WEIGHT_MAX))
            / u64::from(WEIGHT_NORMAL);
        let share = match self.arrival.priority {
            Priority::Low => weights / 4,
            Priority::Normal => weights,
            Priority::High => weights * 4,
        };
        share.max(1)
    }
}
