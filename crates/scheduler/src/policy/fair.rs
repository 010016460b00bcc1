//! Fair: shares of the CPU by weight, and less of it the more a query has used.

use super::tune::{FULL, Past, Tuner};
use super::{Policy, PolicyKind, Rank};
use crate::class::WEIGHT_NORMAL;
use crate::query::{Age, QueryState};

/// Stride scheduling (Waldspurger and Weihl 1995). Each query has a *priority*, its
/// [share](QueryState::share) × what its [`Decay`](super::Decay) leaves of it, and a *pass*,
/// which grows by CPU time / priority as it runs; the smallest pass is served first. So CPU time
/// is shared by priority: at full priority, a query that just came beside ten long ones at a
/// hundredth gets ten elevenths of the machine until it has used what the decay forgives.
/// Nothing depends on an estimate.
///
/// *Virtual time* is the pass of a query that always got exactly its share: CPU time used / sum
/// of the priorities of all queries that want to run. Four rules keep it and the passes close:
/// - A query that begins to wait starts no lower: rest earns no credit.
/// - A pass runs ahead by no more than a longest quantum for each slot that the query holds, and
///   one: what it used while nobody else could is not held against it.
/// - Who lags behind by so much CPU time lags by no more when he is given a larger priority.
/// - The quanta that run already count with `NOMINAL_NS` each, until it is known what they took.
///
/// *Slices.* Two that take turns by the quantum evict each other's hash tables from the caches 500
/// times a second. So queries that are no longer short and have the same priority stand in a
/// line. When the passes choose one of them, the first of the line that waits is served, and the
/// two exchange their passes, of which nobody else takes notice; after each `SLICE_NS` that a
/// query has used it goes to the end of the line.
///
/// *Guarantees* that no query starves. Between the moment a query has a queued task and its next
/// grant, all others together use no more CPU time than
///
/// ```text
///   2 × ((2 × slots + 1) × its longest quantum / its priority) × (sum of all priorities)
///     + (queries + 3 × slots) × the longest quantum
///     + 2 × (a slice and, for each slot, the longest quantum) / its priority × (sum of all)
/// ```
///
/// (quanta shorter than `NOMINAL_NS` taken as that): its pass leads virtual time by no more than
/// the term in brackets, a quantum for each slot and one more, and those under way; virtual time
/// gets there once so much has been used; those that joined before that use as much until they
/// have passed it; and those that lag behind virtual time, because of quanta longer than what
/// they were granted for, do so by two per slot. The last term is for those in a line: each that
/// stands before it has what is left of its slice. Priorities fall to a hundredth and no further, so a long query that shares the machine with an endless stream of short ones, one at a time,
/// still gets a hundredth.
#[derive(Default)]
pub struct Fair {
    /// Virtual time, in units of `SCALE`.
    virtual_pass: u64,
    /// CPU time × `SCALE` not yet added to it.
    remainder: u64,
    /// Sum of the priorities of all queries with a queued or running task.
    active: u64,
    /// Who came to the end of the line so far.
    turns: u64,
    tuner: Tuner,
}

/// What a quantum counts until it has ended: what one of ours aims at.
pub const NOMINAL_NS: u64 = 2_000_000;

/// CPU time after which the next of a line is served: long against what it takes to fill the
/// caches, and short against what people notice of long queries.
pub const SLICE_NS: u64 = 100_000_000;

/// So that a pass counts CPU nanoseconds of a query of normal weight at full priority. A pass
/// that would run over stays at the largest: the order is then that of arrival, after 10 days
/// of 64 cores with nothing but queries of the least weight.
pub const SCALE: u64 = WEIGHT_NORMAL as u64 * FULL;

/// CPU time as a difference of passes, at a priority.
pub fn stride(cpu_ns: u64, priority: u64) -> u64 {
    cpu_ns.saturating_mul(SCALE).div_ceil(priority)
}

/// Of a pass that lags behind `virtual_pass`, where it is after a change of priority that leaves
/// the lag as much CPU time as it was.
pub fn behind(virtual_pass: u64, pass: u64, old: u64, new: u64) -> u64 {
    let lag = u128::from(virtual_pass.saturating_sub(pass)) * u128::from(old) / u128::from(new);
    virtual_pass - u64::try_from(lag).unwrap_or(virtual_pass).min(virtual_pass)
}

impl Fair {
    fn priority(&self, query: &QueryState) -> u64 {
        query.share * self.tuner.decay().at(query.cpu_ns)
    }

    fn send_back(&mut self, query: &mut QueryState) {
        self.turns += 1;
        query.place.turn = self.turns;
    }

    /// From now on the query counts among the active with its priority of now, and leads virtual
    /// time by no more than that allows.
    fn weigh(&mut self, query: &mut QueryState) {
        let priority = self.priority(query);
        let old = std::mem::replace(&mut query.place.priority, priority);
        self.active = self.active - old + priority;
        if priority > old && old > 0 {
            let place = &mut query.place;
            place.pass = place.pass.max(behind(self.virtual_pass, place.pass, old, priority));
        }
        let lead_ns = query.longest_quantum_ns.max(NOMINAL_NS) * (u64::from(query.running) + 1);
        let ahead = self.virtual_pass.saturating_add(stride(lead_ns, priority));
        query.place.pass = query.place.pass.min(ahead);
    }
}

impl Policy for Fair {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Fair
    }

    fn rank(&self, query: &QueryState) -> Rank {
        let under_way = stride(NOMINAL_NS * u64::from(query.running), query.place.priority);
        (query.place.pass.saturating_add(under_way), query.arrival_order)
    }

    fn line(&self, query: &QueryState) -> Option<(u64, u64)> {
        (Age::of(query.cpu_ns) == Age::Long).then_some((query.place.priority, query.place.turn))
    }

    fn exchange(&mut self, a: &mut QueryState, b: &mut QueryState) {
        std::mem::swap(&mut a.place.pass, &mut b.place.pass);
        // What one may lead by is too much for the other, if its quanta are shorter.
        self.weigh(a);
        self.weigh(b);
    }

    fn joined(&mut self, query: &mut QueryState) {
        if query.place.turn == 0 {
            self.send_back(query);
        }
        query.place.pass = query.place.pass.max(self.virtual_pass);
        self.weigh(query);
    }

    fn charged(&mut self, query: &mut QueryState, cpu_ns: u64) {
        if query.place.priority == 0 {
            // It ran already when this policy began.
            self.weigh(query);
        }
        if cpu_ns > 0 {
            self.remainder = self.remainder.saturating_add(cpu_ns.saturating_mul(SCALE));
            self.virtual_pass = self.virtual_pass.saturating_add(self.remainder / self.active);
            self.remainder %= self.active;
        }
        if query.cpu_ns / SLICE_NS > (query.cpu_ns - cpu_ns) / SLICE_NS {
            self.send_back(query);
        }
        let used = stride(cpu_ns, query.place.priority);
        query.place.pass = query.place.pass.saturating_add(used);
        self.weigh(query);
    }

    fn rested(&mut self, query: &mut QueryState) {
        self.active -= std::mem::take(&mut query.place.priority);
    }

    fn ended(
        &mut self,
        query: &QueryState,
        slots: usize,
        others: &mut dyn Iterator<Item = &QueryState>,
    ) {
        let past = |q: &QueryState| Past { arrival_ns: q.arrival_ns, cpu_ns: q.cpu_ns };
        self.tuner.ended(past(query), slots, others.map(past));
    }
}
