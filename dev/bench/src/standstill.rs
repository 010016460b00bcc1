//! When the machine itself stood still: a virtual one whose host did not run it, or one that was busy
//! with interrupts. Nothing that runs on it can be quicker then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often each core is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// A thread of the highest rank that is woken later than that found its core standing still.
pub(crate) const LATE: Duration = Duration::from_millis(1);

/// Threads that sleep and look at the time, one on each core, before which all others make way.
pub(crate) struct Standstills {
    stop: Arc<AtomicBool>,
    watchers: Vec<JoinHandle<Vec<(Instant, Instant)>>>,
}

impl Standstills {
    /// `None`: this process may not have such threads.
    pub(crate) fn watch() -> Option<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let cores = thread::available_parallelism().map_or(1, |n| n.get());
        let mut watched = Standstills { stop: Arc::clone(&stop), watchers: vec![] };
        for core in 0..cores {
            let (told, ranks) = std::sync::mpsc::channel();
            let stop = Arc::clone(&stop);
            let look = move || {
                let ranks = told.send(goes_first(core));
                if ranks.is_ok() { late(&stop, thread::sleep) } else { vec![] }
            };
            let watcher = thread::Builder::new().name(format!("core-{core}")).spawn(look).ok()?;
            watched.watchers.push(watcher);
            if !ranks.recv().unwrap_or(false) {
                return None;
            }
        }
        Some(watched)
    }

    /// From when until when a core stood still, as far as it was seen.
    pub(crate) fn end(mut self) -> Vec<(Instant, Instant)> {
        self.stop.store(true, Ordering::Relaxed);
        self.watchers.drain(..).filter_map(|watcher| watcher.join().ok()).flatten().collect()
    }
}

impl Drop for Standstills {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn late(stop: &AtomicBool, sleep: impl Fn(Duration)) -> Vec<(Instant, Instant)> {
    let mut found = vec![];
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        due += LOOK_EVERY;
        sleep(due.saturating_duration_since(Instant::now()));
        let woken = Instant::now();
        if woken.saturating_duration_since(due) > LATE {
            found.push((due, woken));
        }
        due = due.max(woken);
    }
    found
}

/// The calling thread runs on that core, and before all that are not of real time.
fn goes_first(core: usize) -> bool {
    // SAFETY: a set of bits of which all zeros is a value, the core's bit is in it or is not set, and
    // both structures live until the calls are over; 0 is the calling thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if core < libc::CPU_SETSIZE as usize {
            libc::CPU_SET(core, &mut set);
        }
        let first = libc::sched_param { sched_priority: 1 };
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) == 0
            && libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_woken_late_has_seen_its_core_stand_still() {
        const STILL: Duration = Duration::from_millis(20);
        let (stop, began) = (AtomicBool::new(false), Instant::now());
        let found = late(&stop, |asked| {
            thread::sleep(asked + STILL);
            stop.store(true, Ordering::Relaxed);
        });
        let [(from, until)] = found[..] else { panic!("one sleep, and {found:?}") };
        assert!(from > began && until >= from + STILL && until <= Instant::now());
        // Where threads may go first.
        if let Some(watched) = Standstills::watch() {
            for (from, until) in watched.end() {
                assert!(until > from + LATE);
            }
        }
    }
}
