//! First in, first out: queries in order of arrival.

use super::{Policy, PolicyKind, Rank};
use crate::QueryState;

/// Every slot that the oldest query can use goes to it; a younger query gets what is left over.
///
/// *Guarantees* that no query is ever delayed by a later one for longer than the quanta already
/// running, so that a query's end depends only on those before it.
///
/// *May starve*: yes, for as long as an older query keeps all slots busy. A two-minute report
/// makes a ten-millisecond lookup wait two minutes. It is the baseline that the others are
/// measured against, and the right choice for a batch of statements that must end in order.
/// Weights and priorities mean nothing to it.
pub struct Fifo;

impl Policy for Fifo {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Fifo
    }

    fn rank(&self, query: &QueryState) -> Rank {
        (query.arrival_order, query.arrival_order)
    }
}
