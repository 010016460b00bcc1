//! The length of the poll that is running on this thread, and what it cost.

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use thalweg_base::TaskId;

use super::cores;
use super::cost::{Cost, Estimate};
use super::cpu_time::thread_cpu_ns;
use super::lanes::{Lane, PAUSE_MAX, STRETCH};
use super::run::Run;
use super::threads::Pause;

/// How long a quantum shall be: our operators give way at the [`checkpoint`] before it would be
/// longer, if anybody waits.
const TARGET: Duration = Duration::from_millis(2);

/// Quanta of one poll at most: the runtime drops a future that was aborted when its poll has ended.
const QUANTA_MAX: u32 = 8;

thread_local! {
    static STARTED: Cell<Option<Instant>> = const { Cell::new(None) };
    /// When its last checkpoint was.
    static CHECKED: Cell<Option<Instant>> = const { Cell::new(None) };
    /// When this thread last let others by.
    static LET_BY: Cell<Option<Instant>> = const { Cell::new(None) };
    /// When it last went on after the longest pause.
    static WENT_ON: Cell<Option<Instant>> = const { Cell::new(None) };
    /// Whose quantum it is, if tasks are scheduled.
    static TASK: Cell<Option<TaskId>> = const { Cell::new(None) };
    /// Further ones that the poll may have.
    static LEFT: Cell<u32> = const { Cell::new(0) };
    /// CPU time of this thread when its last quantum ended.
    static CPU_NS: Cell<u64> = const { Cell::new(0) };
}

pub fn begin(task: Option<TaskId>) {
    TASK.set(task);
    LEFT.set(QUANTA_MAX - 1);
    start(Instant::now());
}

fn start(now: Instant) {
    STARTED.set(Some(now));
    CHECKED.set(Some(now));
}

/// Whether the running quantum would be too long with another piece of work like the one since its
/// last checkpoint.
fn is_over(now: Instant) -> bool {
    let Some(started) = STARTED.get() else { return false };
    let checked = CHECKED.replace(Some(now)).unwrap_or(started);
    (now - started) + (now - checked) > TARGET
}

/// Lets other threads have the core, if this one is to do that and has not done it for a while: those
/// that poll for younger queries for longer. Whether the quantum had better end, as nobody gives way
/// any more: this thread always will.
fn let_by(now: Instant) -> bool {
    let Some(every) = Lane::current().and_then(Lane::lets_by_every) else { return false };
    if LET_BY.get().is_some_and(|last| now - last < every) {
        return false;
    }
    let run = Run::current();
    let threads = run.as_ref().map(|run| run.driver().threads());
    if threads.is_some_and(|threads| threads.are_firm()) {
        return true;
    }
    let stretch = WENT_ON.get().is_some_and(|at| now - at < STRETCH);
    let pause = match threads {
        Some(threads) if !stretch => threads.pause(PAUSE_MAX),
        _ => Pause::None,
    };
    if pause == Pause::None {
        std::thread::yield_now();
    }
    // Others had the time between.
    let back = Instant::now();
    LET_BY.set(Some(back));
    CHECKED.set(Some(back));
    if pause != Pause::None {
        STARTED.set(STARTED.get().map(|started| started + (back - now)));
        WENT_ON.set((pause == Pause::Longest).then_some(back));
    }
    false
}

/// CPU nanoseconds since this thread's last quantum ended. What lies between two quanta, the
/// runtime's own bookkeeping, is charged to the second: one system call per poll, not two.
pub fn end() -> u64 {
    STARTED.set(None);
    let now = thread_cpu_ns();
    now.saturating_sub(CPU_NS.replace(now))
}

/// A new quantum of the same poll, if nobody else wants to run.
fn goes_on() -> bool {
    let Some(left) = LEFT.get().checked_sub(1) else { return false };
    let (Some(task), Some(run)) = (TASK.get(), Run::current()) else { return false };
    let now = thread_cpu_ns();
    let goes_on = run.driver().quantum_over(task, now.saturating_sub(CPU_NS.get()));
    if goes_on {
        LEFT.set(left);
        CPU_NS.set(now);
        start(Instant::now());
    }
    goes_on
}

/// Between two pieces of work: gives way if the quantum of the running task is over and somebody
/// waits; else costs a few nanoseconds.
pub async fn checkpoint() {
    let now = Instant::now();
    cores::look(now, || Run::current().is_some_and(|run| run.driver().threads().has_waiting()));
    if (is_over(now) && !goes_on()) || let_by(now) {
        give_way().await;
    }
}

/// Ends the quantum. For a query that is found to be older than it was when the poll began: others
/// need not wait for the rest of it.
pub async fn give_way() {
    let mut asked = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut asked, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

impl Run {
    /// It is planned, and looks like `estimate`; what it took before is known better. Gives way if it
    /// is no fresh query by that.
    pub async fn estimated(&self, estimate: Estimate, cost: &Arc<Cost>) {
        if self.note_estimate(estimate, cost) {
            give_way().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantum_ends_before_a_piece_of_work_that_would_make_it_too_long() {
        let is_over = || super::is_over(Instant::now());
        assert!(!is_over(), "there is none");
        begin(None);
        std::thread::sleep(TARGET * 3 / 5);
        assert!(is_over());
        end();
        assert!(!is_over());
    }

    #[test]
    fn threads_of_the_back_let_others_by_every_so_often() {
        let of = |lane: Lane| {
            let times = move || {
                lane.enter();
                let began = Instant::now();
                let at = |us| {
                    let_by(began + Duration::from_micros(us));
                    LET_BY.get()
                };
                (at(0), at(1), at(1_000_000))
            };
            std::thread::spawn(times).join().unwrap()
        };
        let (first, soon, later) = of(Lane::Back);
        assert!(first.is_some() && soon == first && later > first);
        assert_eq!(of(Lane::Front), (None, None, None));
    }
}
