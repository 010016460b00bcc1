//! Time as an argument: the cores take `now` from whoever drives them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Monotonic nanoseconds since some fixed start.
pub trait Clock: Send + Sync {
    fn now_ns(&self) -> u64;
}

#[derive(Clone)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// A clock that moves only when told to, for simulation.
#[derive(Default)]
pub struct ManualClock {
    now_ns: AtomicU64,
}

impl ManualClock {
    pub fn advance_ns(&self, by: u64) {
        self.now_ns.fetch_add(by, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }
}
