//! The threads that poll. tokio has threads of its own for timers, connections and blocking calls;
//! which task is polled next is the scheduler's to say, and there is no other queue before a slot.
//!
//! A thread that has ended a poll takes what the scheduler granted the slot to, and no other thread is
//! woken for it. Who slept last is woken first: its caches are warm, and the threads that
//! are there for the scheduler's reserve sleep as long as it is not in use.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::Thread;

use parking_lot::Mutex;
use tokio::runtime::Handle;

/// A task that was granted a slot, or is to be dropped.
pub trait Granted: Send + Sync {
    /// Polls it, with `tokio` as the runtime of the thread.
    fn run(self: Arc<Self>, tokio: &Handle);
}

#[derive(Default)]
pub struct Threads {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// At most as many as there are slots wait here for long.
    granted: VecDeque<Arc<dyn Granted>>,
    asleep: Vec<Thread>,
    closed: bool,
}

thread_local! {
    /// This thread is about to take a task.
    static TAKES: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` on a thread that takes a task right after: for the first that `f` grants a slot to,
/// no other is woken.
pub fn before_taking(f: impl FnOnce()) {
    TAKES.set(true);
    f();
    TAKES.set(false);
}

impl Threads {
    /// Starts so many.
    pub fn start(self: &Arc<Self>, count: usize, stack: usize, tokio: &Handle) -> io::Result<()> {
        for _ in 0..count {
            let (threads, tokio) = (Arc::clone(self), tokio.clone());
            let builder = std::thread::Builder::new().name("thalweg".into()).stack_size(stack);
            builder.spawn(move || {
                while let Some(task) = threads.take() {
                    task.run(&tokio);
                }
            })?;
        }
        Ok(())
    }

    pub fn push(&self, task: Arc<dyn Granted>) {
        let mut state = self.state.lock();
        if state.closed {
            // Dropped where nobody holds the lock.
            drop(state);
            return;
        }
        state.granted.push_back(task);
        let woken = if TAKES.replace(false) { None } else { state.asleep.pop() };
        drop(state);
        if let Some(thread) = woken {
            thread.unpark();
        }
    }

    /// Waits for one. `None`: there are no more.
    fn take(&self) -> Option<Arc<dyn Granted>> {
        let this = std::thread::current();
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(task) = state.granted.pop_front() {
                return Some(task);
            }
            // It may have woken without being told to.
            if !state.asleep.iter().any(|thread| thread.id() == this.id()) {
                state.asleep.push(this.clone());
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
        let (granted, asleep) =
            (std::mem::take(&mut state.granted), std::mem::take(&mut state.asleep));
        drop(state);
        drop(granted);
        asleep.iter().for_each(Thread::unpark);
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
        let threads = Arc::new(Threads::default());
        threads.start(3, 1 << 20, tokio.handle()).unwrap();
        let (sender, receiver) = mpsc::channel();
        let dropped = Arc::new(AtomicUsize::new(0));
        let told = |number| {
            let (sender, dropped) = (sender.clone(), Arc::clone(&dropped));
            Arc::new(Told { number, sender, dropped })
        };
        let next = || receiver.recv_timeout(Duration::from_secs(10)).expect("a thread slept on");

        for round in 0..2_000 {
            (0..5).for_each(|n| threads.push(told(round * 5 + n)));
            let mut seen: Vec<usize> = (0..5).map(|_| next()).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(round * 5..round * 5 + 5));
        }

        /// Grants two slots when its poll ends: one other thread is woken for the second.
        struct Ends(Arc<Threads>, Mutex<Vec<Arc<Told>>>);
        impl Granted for Ends {
            fn run(self: Arc<Self>, _: &Handle) {
                before_taking(|| self.1.lock().drain(..).for_each(|told| self.0.push(told)));
            }
        }
        for _ in 0..2_000 {
            threads.push(Arc::new(Ends(Arc::clone(&threads), Mutex::new(vec![told(0), told(1)]))));
            assert_eq!(next() + next(), 1);
        }

        threads.close();
        let before = dropped.load(Ordering::Relaxed);
        threads.push(told(0));
        assert_eq!(dropped.load(Ordering::Relaxed), before + 1);
        drop(sender);
        assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err());
    }
}
