//! What the operating system is told about polls: those of older queries may wait for younger ones.
//!
//! A young query does not wait for the end of an older one's quantum: it runs in the scheduler's
//! reserve, and then there are more threads than cores. For as long as the reserve is in use, the
//! threads that poll older queries than the youngest that runs are *niced*, so that its thread gets
//! a core at once. At other times they are not: they would lose against every other process of the
//! machine.
//!
//! What a poll of a long query can always do is to ask for long *slices*: it gets as much of a core as
//! before, but a thread that wakes up with the usual slice, such as a client's whose answer is there,
//! gets the core at once instead of after milliseconds. Linux has this since 6.12; before, it
//! changes nothing.

use std::sync::LazyLock;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_scheduler::Age;

/// So much is added to the nice value of an old poll's thread: it gets about a thirtieth of a core
/// beside one without. The kernel cuts it at 19.
const OLD_NICE: libc::c_int = 15;

/// The longest that Linux knows.
const LONG_SLICE: Duration = Duration::from_millis(100);

/// The nice value that the process was started with, if it may be taken back: otherwise every
/// thread would end up low. An ordinary user's process may not, unless RLIMIT_NICE allows it. And
/// not if it was started with another scheduling policy than the usual one, which has no slices.
static ORDINARY: LazyLock<Option<libc::c_int>> = LazyLock::new(|| {
    // On a thread of its own, which is lost if not.
    let tried = std::thread::spawn(|| {
        // SAFETY: it takes a number only; 0 is the calling thread.
        if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
            return None;
        }
        let ordinary = nice();
        (set(thread(), ordinary + OLD_NICE) && set(thread(), ordinary)).then_some(ordinary)
    });
    tried.join().ok().flatten()
});

/// The threads that poll queries now that are no longer fresh.
#[derive(Default)]
pub struct OldPolls {
    polls: Mutex<Vec<Poll>>,
}

struct Poll {
    thread: libc::id_t,
    age: Age,
    /// To go back to.
    ordinary: libc::c_int,
    low: bool,
}

/// The calling thread polls a query until this is dropped.
pub struct OldPoll<'a> {
    polls: &'a OldPolls,
    thread: libc::id_t,
}

impl OldPolls {
    /// Of a query of this age. Nobody is younger than a fresh one.
    pub fn begin(&self, age: Age) -> Option<OldPoll<'_>> {
        if age == Age::Fresh {
            return None;
        }
        let ordinary = (*ORDINARY)?;
        let thread = thread();
        if age == Age::Long {
            set_slice(ordinary, LONG_SLICE);
        }
        self.polls.lock().push(Poll { thread, age, ordinary, low: false });
        Some(OldPoll { polls: self, thread })
    }

    /// The reserve is in use, and the youngest query that runs is of this age: older ones that are
    /// not low yet become so.
    pub fn step_back(&self, youngest: Age) {
        for poll in self.polls.lock().iter_mut().filter(|poll| !poll.low && poll.age > youngest) {
            poll.low = set(poll.thread, poll.ordinary + OLD_NICE);
        }
    }
}

impl Drop for OldPoll<'_> {
    fn drop(&mut self) {
        let mut polls = self.polls.polls.lock();
        let Some(at) = polls.iter().position(|poll| poll.thread == self.thread) else { return };
        // Under the lock, so that nobody lowers it again.
        let poll = polls.swap_remove(at);
        if poll.low {
            set(poll.thread, poll.ordinary);
        }
        if poll.age == Age::Long {
            set_slice(poll.ordinary, Duration::ZERO);
        }
    }
}

/// The calling one, as the kernel knows it.
fn thread() -> libc::id_t {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::gettid() as libc::id_t }
}

/// Of the calling thread.
fn nice() -> libc::c_int {
    // SAFETY: numbers only; 0 is the calling thread.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

fn set(thread: libc::id_t, nice: libc::c_int) -> bool {
    // SAFETY: it takes numbers only, and means a thread where Linux is told the id of one.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, nice) == 0 }
}

/// Of the calling thread, which keeps its nice value, `nice`; zero: the usual one.
fn set_slice(nice: libc::c_int, slice: Duration) {
    /// As in `sched_setattr(2)`.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        nice,
        runtime: slice.as_nanos() as u64,
        ..Attributes::default()
    };
    // Where it is refused, nothing is lost.
    // SAFETY: the kernel reads `size` bytes; 0 is the calling thread, and there are no flags.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_is_low_while_a_younger_query_uses_the_reserve_and_no_longer() {
        let Some(ordinary) = *ORDINARY else { return };
        let polls = OldPolls::default();
        for age in [Age::Short, Age::Long] {
            let first = polls.begin(age);
            polls.step_back(age);
            assert_eq!(nice(), ordinary, "nobody is younger");
            polls.step_back(Age::Fresh);
            assert_eq!(nice(), (ordinary + OLD_NICE).min(19));
            drop(first);
            assert_eq!(nice(), ordinary);
            polls.step_back(Age::Fresh);
            assert_eq!(nice(), ordinary);
        }
    }
}
