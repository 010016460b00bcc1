//! What a query takes: as it is expected, and as it was.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a plan will take.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    /// CPU nanoseconds over all its tasks.
    pub cpu_ns: u64,
    /// Bytes that its operators which keep rows will hold: all of them, although they seldom do at
    /// the same time.
    pub memory_bytes: u64,
}

/// The CPU time that a query takes.
#[derive(Default)]
pub struct Cost {
    /// 0: it was never asked.
    cpu_ns: AtomicU64,
}

impl Cost {
    pub fn cpu_ns(&self) -> Option<u64> {
        Some(self.cpu_ns.load(Ordering::Relaxed)).filter(|ns| *ns > 0)
    }

    /// It took so much. Of two times the first may have read what the second finds in memory: the
    /// last one that was shorter counts most.
    pub fn learn(&self, cpu_ns: u64) {
        let known = self.cpu_ns().unwrap_or(cpu_ns);
        let now = if cpu_ns < known { (known + 3 * cpu_ns) / 4 } else { (known + cpu_ns) / 2 };
        self.cpu_ns.store(now.max(1), Ordering::Relaxed);
    }
}
