//! Small queries first: by estimated remaining work.

use super::{Policy, PolicyKind, Rank};
use crate::class::WEIGHT_NORMAL;
use crate::query::QueryState;

/// The query that needs the least CPU time to its end is served first (shortest remaining
/// processing time, which minimises the mean response time on one server when the estimates
/// are right: Schrage 1968). What is left is [`remaining_ns`], taken as less the more the query
/// [weighs](QueryState::share); ties go to the older query.
///
/// *Guarantees* that a query is never delayed, beyond the quanta already running, by one that
/// is estimated to need more, and that a wrong estimate is paid for by the query it is wrong
/// about: past its estimate a query sinks as it runs. A query without an estimate (0) starts
/// as the smallest and is ranked by what it has used.
///
/// *May starve*: yes. A large query waits for as long as smaller ones keep all slots busy.
pub struct SmallFirst;

/// The share of its estimate that a query is believed to need to the end, until it has ended.
/// An eighth forgives an overrun of a sixteenth; estimates are never better than that.
const LAST_SHARE: u64 = 8;

/// Work a query is believed to have left, in CPU nanoseconds, given its estimate `e` and what
/// it has used, `u`:
///
/// ```text
///   e ─┐\                                  ╱ u        max(e − u, e/8)           while u ≤ e
///      │  \                              ╱            max(e/8, min(2(u − e), u))      after
///      │    \                          ╱
///  e/8 ─      \______________________╱
///      0          7e/8     e    17e/16   2e → u
/// ```
///
/// It has no jump, so a query just past a good estimate is not thrown behind every other; from
/// twice the estimate on, the estimate is worth nothing and a query is expected to need as much
/// again as it has used.
pub fn remaining_ns(estimate_ns: u64, used_ns: u64) -> u64 {
    let floor = estimate_ns / LAST_SHARE;
    match estimate_ns.checked_sub(used_ns) {
        Some(left) => left.max(floor),
        None => (used_ns - estimate_ns).saturating_mul(2).min(used_ns).max(floor),
    }
}

/// Work over weight: what to sort by so that the sum of weight × time to the end is least
/// (Smith 1956).
pub fn weighted(left_ns: u64, share: u64) -> u64 {
    left_ns.saturating_mul(u64::from(WEIGHT_NORMAL)) / share
}

impl Policy for SmallFirst {
    fn kind(&self) -> PolicyKind {
        PolicyKind::SmallFirst
    }

    fn rank(&self, query: &QueryState) -> Rank {
        let left_ns = remaining_ns(query.estimate_ns, query.cpu_ns);
        (weighted(left_ns, query.share), query.arrival_order)
    }

    fn admission_rank(&self, query: &QueryState) -> u64 {
        self.rank(query).0
    }
}

#[cfg(test)]
mod tests {
    use super::remaining_ns;

    #[test]
    fn remaining_work_shrinks_to_an_eighth_and_then_grows() {
        assert_eq!(remaining_ns(800, 0), 800);
        assert_eq!(remaining_ns(800, 300), 500);
        assert_eq!(remaining_ns(800, 799), 100);
        assert_eq!(remaining_ns(800, 850), 100);
        assert_eq!(remaining_ns(800, 900), 200);
        assert_eq!(remaining_ns(800, 1600), 1600);
        assert_eq!(remaining_ns(800, 8000), 8000);
    }

    #[test]
    fn no_estimate_ranks_by_what_was_used() {
        assert_eq!(remaining_ns(0, 0), 0);
        assert_eq!(remaining_ns(0, 7), 7);
        assert_eq!(remaining_ns(0, u64::MAX), u64::MAX);
    }
}
