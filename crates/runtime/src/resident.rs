//! Keeps the process within the memory that it was given, as the system counts it.
//!
//! The allocator keeps memory that was freed, for the next query. As long as memory suffices that is
//! a gain: pages that come from the system are cleared first. Once queries wait or spill for want of
//! memory it is not: what one has given back, and another has been granted, is there twice. So
//! whenever the process holds about as much as queries and cache may together, the allocator is asked
//! to give all that it keeps back to the system. Between two such times it keeps as it likes.
//!
//! Where queries and cache may hold less than half of the machine's memory together, whoever said so
//! meant it. There the allocator keeps what was freed only briefly; and the system is asked for small
//! pages, as a huge one is all there once a byte of it is used, and can be given back only once none
//! is. That costs sorts of much data a fifth of their time.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use thalweg_base::machine_memory_bytes;

/// What has been granted next is asked for only after what the last time left has grown by this part
/// of what there is: were all of it in use, asking again would give nothing back.
const GROWN_PART: u64 = 32;
/// It is asked from so many eighths of what there may be on: while it gives back, queries go on.
const FULL_EIGHTHS: u64 = 7;

/// What the allocator of a program can be told.
pub struct Allocator {
    /// To give all that it keeps back to the system.
    pub trim: fn(),
    /// To keep what is freed for long, which it does at first, or only briefly.
    pub keep: fn(long: bool),
}

static ALLOCATOR: OnceLock<Allocator> = OnceLock::new();
/// Whether the process is to do with little memory. Its engines say so while queries run.
static FRUGAL: AtomicBool = AtomicBool::new(false);

/// For a program that has such an allocator: it is the process's, so that is said once, for all
/// engines in it.
pub fn allocate_with(allocator: Allocator) {
    // A second one would be the same.
    let _ = ALLOCATOR.set(allocator);
}

/// The limit of one engine.
pub struct Resident {
    cache_bytes_max: u64,
    machine_bytes: u64,
    /// Below it nothing is done.
    next_bytes: AtomicU64,
    busy: AtomicBool,
    trims: AtomicU64,
}

impl Resident {
    pub fn new(cache_bytes_max: u64) -> Self {
        Resident {
            cache_bytes_max,
            machine_bytes: machine_memory_bytes(),
            next_bytes: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            trims: AtomicU64::new(0),
        }
    }

    /// Whether it is time to [`trim`](Self::trim), with queries limited to `query_bytes_max`: to be
    /// asked every few milliseconds. The process is made frugal on the way, or no longer is.
    pub fn is_over(&self, query_bytes_max: u64) -> bool {
        let Some(allocator) = ALLOCATOR.get() else { return false };
        if self.busy.load(Ordering::Relaxed) {
            return false;
        }
        let most = query_bytes_max.saturating_add(self.cache_bytes_max);
        let frugal = most < self.machine_bytes / 2;
        if FRUGAL.swap(frugal, Ordering::Relaxed) != frugal {
            (allocator.keep)(!frugal);
            use_small_pages(frugal);
        }
        let full = most / 8 * FULL_EIGHTHS;
        let from = self.next_bytes.load(Ordering::Relaxed).max(full);
        let Some(bytes) = anonymous_bytes() else { return false };
        if bytes < full {
            self.next_bytes.store(0, Ordering::Relaxed);
        }
        bytes > from && !self.busy.swap(true, Ordering::Relaxed)
    }

    /// May take a tenth of a second; holds up nobody but its own thread.
    pub fn trim(&self) {
        if let Some(allocator) = ALLOCATOR.get() {
            (allocator.trim)();
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

/// Of what the process is given from now on.
fn use_small_pages(small: bool) {
    #[cfg(target_os = "linux")]
    {
        let (small, none): (libc::c_ulong, libc::c_ulong) = (small.into(), 0);
        // SAFETY: numbers in, a number out. Where it fails, pages are as they were.
        unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, small, none, none, none) };
    }
}

/// Memory of the process that is no file's. `None` where the system does not say.
fn anonymous_bytes() -> Option<u64> {
    // Opening it takes most of the time of reading it.
    static STATM: OnceLock<Option<File>> = OnceLock::new();
    let statm = STATM.get_or_init(|| File::open("/proc/self/statm").ok()).as_ref()?;
    let mut text = [0; 128];
    let read = statm.read_at(&mut text, 0).ok()?;
    let pages = std::str::from_utf8(&text[..read]).ok()?;
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
        allocate_with(Allocator {
            trim: || {
                TRIMMED.fetch_add(1, Ordering::Relaxed);
            },
            keep: |_| {},
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
