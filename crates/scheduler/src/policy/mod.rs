//! Who is next: a policy ranks the queries that have queued tasks; the smallest rank is served
//! first. Tasks of one query are always first in, first out.
//!
//! The scheduler keeps the ranks in a heap and asks for a query's rank only when something
//! happened to that query, so a policy is a few lines of arithmetic and never sees a task.
//! Deadlines come before any of them: see `deadline.rs`.

pub(crate) mod fair;
mod fifo;
mod round_robin;
mod small_first;
pub(crate) mod tune;

pub use fair::Fair;
pub use fifo::Fifo;
pub use round_robin::RoundRobin;
#[cfg(any(test, feature = "simulation"))]
pub(crate) use small_first::weighted;
pub use small_first::{SmallFirst, remaining_ns};
pub use tune::{Decay, Past, Tuner};

use crate::QueryState;
use std::fmt;
use std::str::FromStr;
use thalweg_base::Error;

/// A query's place in the order. No two queries may have the same rank: end ties with
/// [`QueryState::arrival_order`], or equal seeds would not give equal schedules.
pub type Rank = (u64, u64);

/// Who is next. A query is *active* while it has a task that is queued or holds a slot.
pub trait Policy: Send {
    fn kind(&self) -> PolicyKind;

    /// Where a query with queued tasks stands now. Asked for after each event that the policy
    /// is told of, so it may depend on nothing but the query and what those events changed of
    /// the policy; of other queries' ranks, never.
    fn rank(&self, query: &QueryState) -> Rank;

    /// A line of queries, among which it is all the same to everybody else who goes first, and
    /// when this one came to its end: of those in one line that wait, the one that came first
    /// takes the place of the one that the ranks choose. `None`: it stands in none.
    fn line(&self, _query: &QueryState) -> Option<(u64, u64)> {
        None
    }

    /// Two queries of one line change places in the order.
    fn exchange(&mut self, _a: &mut QueryState, _b: &mut QueryState) {}

    /// The query had no queued task and now has one.
    fn joined(&mut self, _query: &mut QueryState) {}

    /// A task of the query was just granted a slot, and others of its tasks are still queued.
    fn served(&mut self, _query: &mut QueryState) {}

    /// A quantum of the query ended (it no longer counts as running), or with 0 ns, its weight
    /// or estimate changed.
    fn charged(&mut self, _query: &mut QueryState, _cpu_ns: u64) {}

    /// The query is no longer active.
    fn rested(&mut self, _query: &mut QueryState) {}

    /// The query is over; this is its account. `_others` are alive, in no order.
    fn ended(
        &mut self,
        _query: &QueryState,
        _slots: usize,
        _others: &mut dyn Iterator<Item = &QueryState>,
    ) {
    }

    /// Which query of a class and a [priority](crate::Priority) is admitted first: the one with
    /// the smallest; of those the one that came first.
    fn admission_rank(&self, _query: &QueryState) -> u64 {
        0
    }
}

/// The policies by name, as in `SET thalweg.policy = 'fair'`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    #[default]
    Fair,
    SmallFirst,
    RoundRobin,
    Fifo,
}

impl PolicyKind {
    pub const ALL: [PolicyKind; 4] =
        [PolicyKind::Fair, PolicyKind::SmallFirst, PolicyKind::RoundRobin, PolicyKind::Fifo];

    pub fn name(self) -> &'static str {
        match self {
            PolicyKind::Fair => "fair",
            PolicyKind::SmallFirst => "small_first",
            PolicyKind::RoundRobin => "round_robin",
            PolicyKind::Fifo => "fifo",
        }
    }

    pub(crate) fn build(self) -> Box<dyn Policy> {
        match self {
            PolicyKind::Fair => Box::new(Fair::default()),
            PolicyKind::SmallFirst => Box::new(SmallFirst),
            PolicyKind::RoundRobin => Box::new(RoundRobin::default()),
            PolicyKind::Fifo => Box::new(Fifo),
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PolicyKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        PolicyKind::ALL.into_iter().find(|k| k.name().eq_ignore_ascii_case(name)).ok_or_else(|| {
            let names = PolicyKind::ALL.map(PolicyKind::name).join(", ");
            Error::user(format!("there is no scheduling policy \"{name}\""))
                .hint(format!("the policies are {names}"))
        })
    }
}
