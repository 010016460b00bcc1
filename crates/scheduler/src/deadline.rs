//! Queries that are wanted by a time go first, for up to half of the CPU.

use crate::order::Order;

/// Under every policy a waiting query with a deadline goes before those without, the earliest
/// deadline first, which meets all deadlines if any order does and quanta are short (Liu and
/// Layland 1973).
///
/// *Promised to others*: of the CPU time that is used while queries of both kinds wait, no more
/// than half, and `BANK_NS` and one quantum per slot more, goes to queries because of their
/// deadlines. The rest is given out by the policy alone, to which a deadline means nothing. So
/// whoever claims deadlines for everything slows the others down to half of their share at
/// worst, and a bound of the policy on waiting at most doubles.
///
/// *Not promised*: that a deadline is met. Once it has passed the query is like any other, so
/// that one that cannot be met any more does not cost the next one its own. A deadline does not
/// change the order of admission.
#[derive(Default)]
pub(crate) struct Deadlines {
    order: Order,
    /// CPU time used out of turn, less what was used in turn.
    debt_ns: i64,
}

/// What may be used out of turn at a stretch, once as much has been used in turn: the whole of
/// a short query.
pub(crate) const BANK_NS: i64 = 100_000_000;

impl Deadlines {
    pub fn joined(&mut self, query: u32, deadline_ns: u64, arrival_order: u64) {
        self.order.insert(query, (deadline_ns, arrival_order));
    }

    pub fn left(&mut self, query: u32) {
        if self.order.contains(query) {
            self.order.remove(query);
        }
    }

    /// The earliest deadline that can still be met.
    pub fn first(&mut self, now_ns: u64) -> Option<u32> {
        while let Some(query) = self.order.first() {
            if self.order.rank(query).0 > now_ns {
                return Some(query);
            }
            self.order.remove(query);
        }
        None
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    #[cfg(any(test, feature = "simulation"))]
    pub fn contains(&self, query: u32) -> bool {
        self.order.contains(query)
    }

    /// Whether a query may go out of turn.
    pub fn may_go(&self) -> bool {
        self.debt_ns <= 0
    }

    pub fn charge(&mut self, out_of_turn: bool, cpu_ns: u64) {
        let cpu_ns = i64::try_from(cpu_ns).unwrap_or(i64::MAX);
        self.debt_ns = match out_of_turn {
            true => self.debt_ns.saturating_add(cpu_ns),
            false => self.debt_ns.saturating_sub(cpu_ns).max(-BANK_NS),
        };
    }

    pub fn clear(&mut self) {
        self.order.clear();
    }

    #[cfg(any(test, feature = "simulation"))]
    pub fn check(&self) -> Result<(), String> {
        self.order.check()
    }
}
