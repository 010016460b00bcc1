//! Keeps the process within the memory that it was given, as the system counts it.
//!
//! The allocator keeps memory that was freed, for the next query. As long as memory suffices that is
//! a gain: pages that come from the system are cleared first. Once queries wait or spill for want of
//! memory it is not: what one has given back, and another has been granted, is there twice. So
//! whenever the process holds more than queries and cache may hold together, the allocator is asked
//! to give all that it keeps back to the system. Between two such times it keeps as it likes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What has been granted next is asked for only after what the last time left has grown by this part
/// of what there is: were all of it in use, asking again would give nothing back.
const GROWN_PART: u64 = 32;

static TRIM: OnceLock<fn()> = OnceLock::new();

/// Has `trim` called whenever freed memory should go back to the system. For a program that keeps
/// it: the allocator is the process's, so that is said once, for all engines in it.
pub fn trim_memory_with(trim: fn()) {
    // A second one would be the same.
    let _ = TRIM.set(trim);
}

/// The limit of one engine.
pub struct Resident {
    cache_bytes_max: u64,
    /// Below it nothing is done.
    next_bytes: AtomicU64,
    busy: AtomicBool,
    trims: AtomicU64,
}

impl Resident {
    pub fn new(cache_bytes_max: u64) -> Self {
        Resident {
            cache_bytes_max,
            next_bytes: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            trims: AtomicU64::new(0),
        }
    }

    /// Whether it is time to [`trim`](Self::trim), with queries limited to `query_bytes_max`: to be
    /// asked every few milliseconds.
    pub fn is_over(&self, query_bytes_max: u64) -> bool {
        if TRIM.get().is_none() || self.busy.load(Ordering::Relaxed) {
            return false;
        }
        let most = query_bytes_max.saturating_add(self.cache_bytes_max);
        let from = self.next_bytes.load(Ordering::Relaxed).max(most);
        let Some(bytes) = anonymous_bytes() else { return false };
        if bytes < most {
            self.next_bytes.store(0, Ordering::Relaxed);
        }
        bytes > from && !self.busy.swap(true, Ordering::Relaxed)
    }

    /// May take a tenth of a second; holds up nobody but its own thread.
    pub fn trim(&self) {
        if let Some(trim) = TRIM.get() {
            trim();
            self.trims.fetch_add(1, Ordering::Relaxed);
        }
        let left = anonymous_bytes().unwrap_or(0);
        self.next_bytes.store(left + left / GROWN_PART, Ordering::Relaxed);
        self.busy.store(false, Ordering::Relaxed);
    }

    /// How often that was done.
    pub fn trims(&self) -> u64 {
        self.trims.load(Ordering::Relaxed)
    }
}

/// Memory of the process that is no file's. `None` where the system does not say.
fn anonymous_bytes() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = pages.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let (resident, shared) = (pages.next()?.ok()?, pages.next()?.ok()?);
    Some(resident.saturating_sub(shared) * page_bytes())
}

fn page_bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    // SAFETY: a number in, a number out; every system knows this one.
    *BYTES.get_or_init(|| unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    static TRIMMED: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn too_much_is_trimmed_once_until_it_has_grown() {
        trim_memory_with(|| {
            TRIMMED.fetch_add(1, Ordering::Relaxed);
        });
        let ample = Resident::new(0);
        assert!(!ample.is_over(u64::MAX));

        let short = Resident::new(0);
        if anonymous_bytes().is_none() {
            return;
        }
        assert!(short.is_over(0));
        assert!(!short.is_over(0), "it is being done");
        // Engines of other tests may trim as well.
        let before = TRIMMED.load(Ordering::Relaxed);
        short.trim();
        assert_eq!(short.trims(), 1);
        assert!(TRIMMED.load(Ordering::Relaxed) > before);
        // Other tests allocate meanwhile, but no such multiple of what there is.
        let left = anonymous_bytes().unwrap();
        short.next_bytes.store(left * 64, Ordering::Relaxed);
        assert!(!short.is_over(0), "nothing has grown");
        assert!(!short.is_over(u64::MAX));
        assert!(short.is_over(0), "it was less meanwhile");
    }
}
