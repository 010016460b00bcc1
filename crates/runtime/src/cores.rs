//! Keeps polls of this process on cores of their own.
//!
//! Where a thread that wakes up runs is for Linux to say, and in a virtual machine it may be wrong for
//! milliseconds: a KVM guest is told which of its cores the host does not run, and a core that idles is
//! one of these. So a thread that wakes up is put beside the one that woke it, until the next balancing,
//! while the other core idles. (Q12 of TPC-H on two cores: 14 ms instead of 10, when its threads had
//! slept before.) So a poll that finds another one on its core, and a core without any, goes there; and
//! so does one that sees a task wait for a thread that was woken long ago.
//!
//! A thread goes by leaving itself no other core, and then takes back all that it had: nothing is kept
//! from Linux for longer than that.

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// So often a poll looks where it is.
const LOOKS_EVERY: Duration = Duration::from_micros(100);

/// How many polls there are on each core, by its number.
struct Polls([AtomicU32; CpuSet::MAX_CPU]);

/// Of all engines of this process.
static POLLS: Polls = Polls::none();

/// Those that this process might use when it began.
static CORES: LazyLock<Vec<usize>> = LazyLock::new(|| {
    let allowed = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect()
});

thread_local! {
    /// Where the poll of this thread is counted.
    static AT: Cell<Option<usize>> = const { Cell::new(None) };
    static LOOKED: Cell<Option<Instant>> = const { Cell::new(None) };
    /// Whether a task waited at the last look.
    static WAITED: Cell<bool> = const { Cell::new(false) };
}

/// A poll begins on this thread, or goes on after it was [left](leave).
pub fn enter() {
    POLLS.count();
    POLLS.part(false);
}

/// It has ended, or sleeps.
pub fn leave() {
    POLLS.leave();
}

/// To be called every so often in a poll; `waits` says whether a task waits for a thread.
pub fn look(now: Instant, waits: impl FnOnce() -> bool) {
    if AT.get().is_none() || LOOKED.get().is_some_and(|last| now - last < LOOKS_EVERY) {
        return;
    }
    LOOKED.set(Some(now));
    POLLS.count();
    // Twice: it was woken longer ago than that takes.
    let waits = waits();
    POLLS.part(WAITED.replace(waits) && waits);
}

impl Polls {
    const fn none() -> Self {
        Polls([const { AtomicU32::new(0) }; CpuSet::MAX_CPU])
    }

    fn on(&self, core: usize) -> u32 {
        self.0[core].load(Relaxed)
    }

    /// Counts that of this thread where it is now.
    fn count(&self) {
        let core = sched_getcpu();
        if AT.get() != Some(core) && core < self.0.len() {
            self.leave();
            self.0[core].fetch_add(1, Relaxed);
            AT.set(Some(core));
        }
    }

    fn leave(&self) {
        if let Some(core) = AT.take() {
            self.0[core].fetch_sub(1, Relaxed);
        }
    }

    /// Goes to a core without polls, if there are others on this one or it is `wanted`.
    fn part(&self, wanted: bool) {
        let Some(core) = AT.get() else { return };
        let is_shared = self.on(core) > 1 || wanted;
        if !is_shared || CORES.iter().all(|core| self.on(*core) > 0) {
            return;
        }
        // Where the system refuses, nothing is lost but time.
        let Ok(all) = sched_getaffinity(None) else { return };
        let take = |core: usize| self.0[core].compare_exchange(0, 1, Relaxed, Relaxed).is_ok();
        let free = CORES.iter().copied().find(|core| all.is_set(*core) && take(*core));
        let Some(free) = free else { return };
        let mut only = CpuSet::new();
        only.set(free);
        WAITED.set(false);
        if sched_setaffinity(None, &only).is_ok() {
            let _ = sched_setaffinity(None, &all);
            self.leave();
            AT.set(Some(free));
        } else {
            self.0[free].fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Those of other tests are not among them.
    static OWN: Polls = Polls::none();

    /// A poll that sleeps on `core` until it is told to look where it is; and which core it is on then.
    fn poll_on(core: usize) -> (mpsc::Sender<()>, std::thread::JoinHandle<usize>) {
        let (told, tells) = mpsc::channel::<()>();
        let (began, begins) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let all = sched_getaffinity(None).unwrap();
            let mut only = CpuSet::new();
            only.set(core);
            sched_setaffinity(None, &only).unwrap();
            OWN.count();
            sched_setaffinity(None, &all).unwrap();
            began.send(()).unwrap();
            tells.recv().unwrap();
            OWN.count();
            OWN.part(false);
            let found = AT.get().unwrap();
            OWN.leave();
            found
        });
        begins.recv().unwrap();
        (told, thread)
    }

    #[test]
    fn of_two_polls_on_a_core_one_goes_where_there_is_none() {
        let [first, _, ..] = CORES[..] else { return };
        let (tell_a, a) = poll_on(first);
        let (tell_b, b) = poll_on(first);
        tell_b.send(()).unwrap();
        assert_ne!(b.join().unwrap(), first);
        assert_eq!(OWN.on(first), 1);
        tell_a.send(()).unwrap();
        a.join().unwrap();
        assert!((0..CpuSet::MAX_CPU).all(|core| OWN.on(core) == 0));
    }
}
