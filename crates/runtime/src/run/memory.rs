//! Memory of queries: what DataFusion takes for a pool is a query's account with the scheduler.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool, MemoryReservation};
use thalweg_base::{Error, QueryId};

use super::driver::Driver;

/// A query may take one part in so many of the server's memory without being given it, for
/// operators that cannot spill: a merge of what was spilled, for example, which if it were refused
/// could only end the query. Few queries hold memory at a time, so that this adds up to little.
const OVERDRAFT_PART: u64 = 32;

/// And this much in any case: what it takes to merge a few sorted runs.
const OVERDRAFT_BYTES_MIN: u64 = 4 * 1024 * 1024;

/// What an operator that holds nothing always gets, as it would free nothing by spilling: this part
/// of the server's memory. It may be a sort that has spilled and goes on with its next batch.
const FIRST_PART: u64 = 256;
const FIRST_BYTES_MIN: u64 = 512 * 1024;
/// What an operator may always hold in all, such as the few groups of an aggregate.
const LITTLE_BYTES: usize = 64 * 1024;

/// The account of one query.
pub struct QueryMemory {
    query: QueryId,
    driver: Arc<Driver>,
    reserved: AtomicUsize,
    /// Of `reserved`, what the ledger did not have: taken by operators that cannot spill.
    overdrawn: AtomicUsize,
    /// And by those that can, and did not ask. It is no reason to refuse the others.
    forced: AtomicUsize,
    /// The most it was ever given. An operator that spills sorts what it has first, and needs for
    /// that a part of what it has just given back.
    granted_most: AtomicUsize,
}

impl QueryMemory {
    pub fn new(query: QueryId, driver: Arc<Driver>) -> Self {
        QueryMemory {
            query,
            driver,
            reserved: AtomicUsize::new(0),
            overdrawn: AtomicUsize::new(0),
            forced: AtomicUsize::new(0),
            granted_most: AtomicUsize::new(0),
        }
    }

    /// Of the server.
    fn limit(&self) -> u64 {
        self.driver.limits().memory_bytes.unwrap_or(u64::MAX)
    }

    fn may_overdraw(&self, bytes: usize) -> bool {
        let most = (self.limit() / OVERDRAFT_PART).max(OVERDRAFT_BYTES_MIN);
        (self.overdrawn.load(Ordering::Relaxed) + bytes) as u64 <= most
            || self.reserved() + bytes <= self.granted_most.load(Ordering::Relaxed)
    }

    /// Whether the operator holds so little that it must have it.
    fn is_little(&self, held: usize, additional: usize) -> bool {
        let first = (self.limit() / FIRST_PART).max(FIRST_BYTES_MIN);
        held + additional <= LITTLE_BYTES || (held == 0 && additional as u64 <= first)
    }

    /// What the ledger does not know of such a reservation and those like it.
    fn beside_the_ledger(&self, reservation: &MemoryReservation) -> &AtomicUsize {
        match reservation.consumer().can_spill() {
            true => &self.forced,
            false => &self.overdrawn,
        }
    }

    fn take_beside_the_ledger(&self, reservation: &MemoryReservation, bytes: usize) {
        self.beside_the_ledger(reservation).fetch_add(bytes, Ordering::Relaxed);
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
    }

    fn granted(&self, bytes: usize) {
        let reserved = self.reserved.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.granted_most.fetch_max(reserved, Ordering::Relaxed);
    }
}

impl MemoryPool for QueryMemory {
    fn name(&self) -> &str {
        "query"
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        match self.driver.memory_grow(self.query, additional as u64) {
            Ok(()) => self.granted(additional),
            Err(_) => self.take_beside_the_ledger(reservation, additional),
        }
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        if additional == 0 {
            return Ok(());
        }
        let Err(refusal) = self.driver.memory_grow(self.query, additional as u64) else {
            self.granted(additional);
            return Ok(());
        };
        let must_spill = reservation.consumer().can_spill() || !self.may_overdraw(additional);
        if must_spill && !self.is_little(reservation.size(), additional) {
            // Operators look for this variant, and spill.
            let text = Error::from(&*refusal).message().to_owned();
            return Err(DataFusionError::ResourcesExhausted(text));
        }
        self.take_beside_the_ledger(reservation, additional);
        Ok(())
    }

    fn shrink(&self, reservation: &MemoryReservation, bytes: usize) {
        self.reserved.fetch_sub(bytes, Ordering::Relaxed);
        let beside = self
            .beside_the_ledger(reservation)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |o| Some(o.saturating_sub(bytes)))
            .unwrap_or_else(|unchanged| unchanged);
        let back = bytes - beside.min(bytes);
        if back > 0 {
            self.driver.memory_shrink(self.query, back as u64);
        }
    }

    fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit() as usize)
    }
}

impl fmt::Debug for QueryMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for QueryMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of query {}", self.reserved(), self.query)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::MemoryConsumer;

    use super::*;
    use crate::{Origin, Run, Terms};

    /// What a spill forces must not cost the query the few bytes that its last operator needs.
    #[test]
    fn nobody_is_refused_what_cannot_be_had_by_spilling() {
        const LIMIT: usize = 1 << 30;
        let resources = crate::of_tests(LIMIT as u64);
        let driver = Arc::new(Driver::new(&resources, 0));
        let run = |text| Run::begin(&driver, Origin::new(None, text), &Terms::default()).unwrap();
        let others: Vec<_> = (0..4).map(|_| run("other")).collect();
        let all = |other: &Arc<Run>| {
            let taken = MemoryConsumer::new("all").with_can_spill(true).register(&other.memory());
            let mut bytes = LIMIT;
            while bytes > 0 {
                if taken.try_grow(bytes).is_err() {
                    bytes /= 2;
                }
            }
            taken
        };
        let taken: Vec<_> = others.iter().map(all).collect();
        assert_eq!(driver.look(|s| s.memory_held()), LIMIT as u64);

        let run = run("this");
        let pool = run.memory();
        let spills = MemoryConsumer::new("spills").with_can_spill(true).register(&pool);
        spills.try_grow(LIMIT / 4).unwrap_err();
        spills.grow(LIMIT / 4);
        let cannot = MemoryConsumer::new("cannot").register(&pool);
        cannot.try_grow(272).unwrap();
        let most = LIMIT / OVERDRAFT_PART as usize;
        cannot.try_grow(most).unwrap_err();
        cannot.try_grow(most - 272).unwrap();
        assert_eq!(pool.reserved(), LIMIT / 4 + most);
        drop((spills, cannot));

        let empty = MemoryConsumer::new("empty").with_can_spill(true).register(&pool);
        let first = LIMIT / FIRST_PART as usize;
        empty.try_grow(first + 1).unwrap_err();
        empty.try_grow(first).unwrap();
        empty.try_grow(1).unwrap_err();
        empty.shrink(first);
        empty.try_grow(LITTLE_BYTES / 2).unwrap();
        empty.try_grow(LITTLE_BYTES / 2).unwrap();
        empty.try_grow(1).unwrap_err();
        drop(empty);
        assert_eq!(pool.reserved(), 0);
        drop(taken);
        assert_eq!(driver.look(|s| s.memory_held()), 0);
    }
}
