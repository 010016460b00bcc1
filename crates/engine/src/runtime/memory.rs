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

/// The account of one query.
pub struct QueryMemory {
    query: QueryId,
    driver: Arc<Driver>,
    reserved: AtomicUsize,
    /// Of `reserved`, what operators took without asking and the ledger did not have.
    overdrawn: AtomicUsize,
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
            granted_most: AtomicUsize::new(0),
        }
    }

    fn may_overdraw(&self, bytes: usize) -> bool {
        let limit = self.driver.limits().memory_bytes.unwrap_or(u64::MAX);
        let most = (limit / OVERDRAFT_PART).max(OVERDRAFT_BYTES_MIN);
        (self.overdrawn.load(Ordering::Relaxed) + bytes) as u64 <= most
            || self.reserved() + bytes <= self.granted_most.load(Ordering::Relaxed)
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

    fn grow(&self, _: &MemoryReservation, additional: usize) {
        match self.driver.memory_grow(self.query, additional as u64) {
            Ok(()) => self.granted(additional),
            Err(_) => {
                self.overdrawn.fetch_add(additional, Ordering::Relaxed);
                self.reserved.fetch_add(additional, Ordering::Relaxed);
            }
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
        if reservation.consumer().can_spill() || !self.may_overdraw(additional) {
            // Operators look for this variant, and spill.
            let text = Error::from(&*refusal).message().to_owned();
            return Err(DataFusionError::ResourcesExhausted(text));
        }
        self.overdrawn.fetch_add(additional, Ordering::Relaxed);
        self.reserved.fetch_add(additional, Ordering::Relaxed);
        Ok(())
    }

    fn shrink(&self, _: &MemoryReservation, bytes: usize) {
        self.reserved.fetch_sub(bytes, Ordering::Relaxed);
        let overdrawn = self
            .overdrawn
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |o| Some(o.saturating_sub(bytes)))
            .unwrap_or_else(|unchanged| unchanged);
        let back = bytes - overdrawn.min(bytes);
        if back > 0 {
            self.driver.memory_shrink(self.query, back as u64);
        }
    }

    fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.driver.limits().memory_bytes.unwrap_or(u64::MAX) as usize)
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
