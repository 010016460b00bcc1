//! The threads that poll. tokio has threads of its own for timers, connections and blocking calls;
//! which task is polled next is the scheduler's to say, and there is no other queue before a slot.
//!
//! A thread that has ended a poll takes what the scheduler granted the slot to, and no other thread is
//! woken for it. Who slept last is woken first: its caches are warm, and the threads that
//! are there for the scheduler's reserve sleep as long as it is not in use.
//!
//! Threads are of [lanes](super::lanes), and a thread polls the tasks of its own only.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::Thread;

use parking_lot::Mutex;
use thalweg_base::{Clock, SystemClock};
use tokio::runtime::Handle;

use super::lanes::{Firm, Lane};
use super::quantum::thread_cpu_ns;

/// A task that was granted a slot, or is to be dropped.
pub trait Granted: Send + Sync {
    /// Polls it, with `tokio` as the runtime of the thread.
    fn run(self: Arc<Self>, tokio: &Handle);
}

pub struct Threads {
    state: Mutex<State>,
    firm: Firm,
    clock: SystemClock,
}

#[derive(Default)]
struct State {
    lanes: [Waiting; Lane::ALL.len()],
    closed: bool,
}

#[derive(Default)]
struct Waiting {
    /// At most as many as there are slots wait here for long.
    granted: VecDeque<Arc<dyn Granted>>,
    asleep: Vec<Thread>,
}

thread_local! {
    /// This thread is about to take a task.
    static TAKES: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` on a thread that takes a task right after: for the first of its lane that `f` grants a
/// slot to, no other is woken.
pub fn before_taking(f: impl FnOnce()) {
    TAKES.set(true);
    f();
    TAKES.set(false);
}

impl Threads {
    /// Tells `firm` of polls that others leave no core.
    pub fn new(firm: Firm, clock: SystemClock) -> Self {
        Threads { state: Mutex::default(), firm, clock }
    }

    /// Starts so many of a lane.
    pub fn start(
        self: &Arc<Self>,
        lane: Lane,
        count: usize,
        stack: usize,
        tokio: &Handle,
    ) -> io::Result<()> {
        for _ in 0..count {
            let (threads, tokio) = (Arc::clone(self), tokio.clone());
            let builder =
                std::thread::Builder::new().name(lane.thread_name().into()).stack_size(stack);
            builder.spawn(move || {
                lane.enter();
                while let Some(task) = threads.take(lane) {
                    threads.run(lane, task, &tokio);
                }
            })?;
        }
        Ok(())
    }

    fn run(&self, lane: Lane, task: Arc<dyn Granted>, tokio: &Handle) {
        if lane == Lane::Front {
            return task.run(tokio);
        }
        let (began_ns, cpu_ns) = (self.clock.now_ns(), thread_cpu_ns());
        task.run(tokio);
        let now_ns = self.clock.now_ns();
        self.firm.note(now_ns - began_ns, thread_cpu_ns() - cpu_ns, now_ns);
    }

    pub fn push(&self, lane: Lane, task: Arc<dyn Granted>) {
        let mut state = self.state.lock();
        if state.closed {
            // Dropped where nobody holds the lock.
            drop(state);
            return;
        }
        let waiting = &mut state.lanes[lane as usize];
        waiting.granted.push_back(task);
        let takes = Lane::current() == Some(lane) && TAKES.replace(false);
        let woken = if takes { None } else { waiting.asleep.pop() };
        drop(state);
        if let Some(thread) = woken {
            thread.unpark();
        }
    }

    /// Waits for one. `None`: there are no more.
    fn take(&self, lane: Lane) -> Option<Arc<dyn Granted>> {
        let this = std::thread::current();
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            let waiting = &mut state.lanes[lane as usize];
            if let Some(task) = waiting.granted.pop_front() {
                return Some(task);
            }
            // It may have woken without being told to.
            if !waiting.asleep.iter().any(|thread| thread.id() == this.id()) {
                waiting.asleep.push(this.clone());
            }
            drop(state);
            std::thread::park();
            state = self.state.lock();
        }
    }

    /// The threads end when they next look for a task.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let lanes = std::mem::take(&mut state.lanes);
        drop(state);
        for Waiting { granted, asleep } in lanes {
            drop(granted);
            asleep.iter().for_each(Thread::unpark);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    struct Told {
        number: usize,
        sender: mpsc::Sender<usize>,
        dropped: Arc<AtomicUsize>,
    }

    impl Granted for Told {
        fn run(self: Arc<Self>, _: &Handle) {
            self.sender.send(self.number).unwrap();
        }
    }

    impl Drop for Told {
        fn drop(&mut self) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn each_task_is_taken_once_also_by_the_thread_that_granted_it_and_none_when_closed() {
        let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let threads = Arc::new(Threads::new(Firm::default(), SystemClock::default()));
        for lane in Lane::ALL {
            threads.start(lane, 3, 1 << 20, tokio.handle()).unwrap();
        }
        let (sender, receiver) = mpsc::channel();
        let dropped = Arc::new(AtomicUsize::new(0));
        let told = |number| {
            let (sender, dropped) = (sender.clone(), Arc::clone(&dropped));
            Arc::new(Told { number, sender, dropped })
        };
        let next = || receiver.recv_timeout(Duration::from_secs(10)).expect("a thread slept on");
        let lane = |number| Lane::ALL[number % Lane::ALL.len()];

        for round in 0..2_000 {
            let numbers = round * 5..round * 5 + 5;
            numbers.clone().for_each(|n| threads.push(lane(n), told(n)));
            let mut seen: Vec<usize> = (0..5).map(|_| next()).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(numbers));
        }

        /// Grants a slot in every lane, and in its own one more, when its poll ends: there one other
        /// thread is woken for the second.
        struct Ends(Arc<Threads>, Mutex<Vec<(Lane, Arc<Told>)>>);
        impl Granted for Ends {
            fn run(self: Arc<Self>, _: &Handle) {
                before_taking(|| {
                    self.1.lock().drain(..).for_each(|(lane, told)| self.0.push(lane, told));
                });
            }
        }
        for own in Lane::ALL.into_iter().cycle().take(2_000) {
            let tasks = Lane::ALL.into_iter().chain([own]).map(|lane| (lane, told(1)));
            let ends = Ends(Arc::clone(&threads), Mutex::new(tasks.collect()));
            threads.push(own, Arc::new(ends));
            (0..=Lane::ALL.len()).for_each(|_| assert_eq!(next(), 1));
        }

        threads.close();
        let before = dropped.load(Ordering::Relaxed);
        threads.push(Lane::ALL[0], told(0));
        assert_eq!(dropped.load(Ordering::Relaxed), before + 1);
        drop(sender);
        assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err());
    }
}
