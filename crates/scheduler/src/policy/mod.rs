//! Who is next: a policy ranks the queries that have queued tasks; the smallest rank is served
//! first. Tasks of one query are always first in, first out.
//!
//! The scheduler keeps the ranks in a heap and asks for a new one only at the three moments
//! when an order can change, so a policy is a few lines of arithmetic and never sees a task.

mod fifo;
mod round_robin;
mod small_first;

pub use fifo::Fifo;
pub use round_robin::RoundRobin;
pub use small_first::{SmallFirst, remaining_ns};

use crate::QueryState;
use std::fmt;
use std::str::FromStr;
use thalweg_base::Error;

/// A query's place in the order. No two queries may have the same rank: end ties with
/// [`QueryState::arrival_order`], or equal seeds would not give equal schedules.
pub type Rank = (u64, u64);

pub trait Policy: Send {
    fn kind(&self) -> PolicyKind;

    /// The query had no queued task and now has one.
    fn joined(&mut self, query: &QueryState) -> Rank;

    /// A task of the query was just granted a slot, and others of its tasks are still queued.
    fn served(&mut self, _query: &QueryState, rank: Rank) -> Rank {
        rank
    }

    /// The query's CPU time or estimate changed while it has queued tasks.
    fn charged(&mut self, _query: &QueryState, rank: Rank) -> Rank {
        rank
    }
}

/// The policies by name, as in `SET thalweg.policy = 'small_first'`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    Fifo,
    RoundRobin,
    SmallFirst,
}

impl PolicyKind {
    pub const ALL: [PolicyKind; 3] =
        [PolicyKind::Fifo, PolicyKind::RoundRobin, PolicyKind::SmallFirst];

    pub fn name(self) -> &'static str {
        match self {
            PolicyKind::Fifo => "fifo",
            PolicyKind::RoundRobin => "round_robin",
            PolicyKind::SmallFirst => "small_first",
        }
    }

    pub(crate) fn build(self) -> Box<dyn Policy> {
        match self {
            PolicyKind::Fifo => Box::new(Fifo),
            PolicyKind::RoundRobin => Box::new(RoundRobin::default()),
            PolicyKind::SmallFirst => Box::new(SmallFirst),
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
