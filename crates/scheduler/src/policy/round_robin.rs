//! Round robin: queries in turn, one quantum each.

use super::{Policy, PolicyKind, Rank};
use crate::QueryState;

/// A query that was just served goes to the back of the line, however many tasks it has.
///
/// *Guarantees* that between the moment a query has a queued task and its next grant, every
/// other query is granted at most one quantum. So no query starves, and the wait is bounded by
/// (queries − 1) × the longest quantum / slots.
///
/// *May starve*: no. It is fair in quanta, not in CPU time: a query whose quanta are ten times
/// longer gets ten times the CPU. And with n queries running, a short one takes n times as long.
/// Weights and priorities mean nothing to it.
#[derive(Default)]
pub struct RoundRobin {
    /// The number on the next ticket; 64 bits never run out at one per nanosecond-long quantum.
    next_turn: u64,
}

impl RoundRobin {
    fn send_back(&mut self, query: &mut QueryState) {
        self.next_turn += 1;
        query.place.pass = self.next_turn;
    }
}

impl Policy for RoundRobin {
    fn kind(&self) -> PolicyKind {
        PolicyKind::RoundRobin
    }

    fn rank(&self, query: &QueryState) -> Rank {
        (query.place.pass, query.arrival_order)
    }

    fn joined(&mut self, query: &mut QueryState) {
        self.send_back(query);
    }

    fn served(&mut self, query: &mut QueryState) {
        self.send_back(query);
    }
}
