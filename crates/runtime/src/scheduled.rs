//! Futures that are polled only while they hold a slot.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::task::{ArcWake, AtomicWaker, waker_ref};
use parking_lot::Mutex;
use thalweg_base::TaskId;
use thalweg_scheduler::{PollEnd, Turn};
use tokio::runtime::Handle;

use super::quantum;
use super::run::{Driver, ENDS, Run};
use super::threads::{Grant, Granted, before_taking};

/// What becomes of a future that is polled elsewhere, or how it panicked. Dropping this stops it.
pub struct Scheduled<T: Send + 'static> {
    task: Arc<Task<T>>,
}

/// What the [threads](super::threads) poll, and what wakes.
struct Task<T> {
    driver: Arc<Driver>,
    /// Set under the driver's lock, before anybody else knows the task.
    id: OnceLock<TaskId>,
    phase: Mutex<Phase<T>>,
    /// Who waits for the end.
    waiter: AtomicWaker,
}

enum Phase<T> {
    /// For a slot, or for what wakes it.
    Waiting(Work<T>),
    /// A thread has the work.
    Polled,
    /// Its owner dropped it; it still is a task of the scheduler.
    Unwanted(Work<T>),
    Done(Result<T, Panic>),
    /// Nothing is left of it.
    Gone,
}

type Panic = Box<dyn Any + Send>;

struct Work<T> {
    /// Alive no longer than the work: the query ends with the last of its tasks.
    run: Arc<Run>,
    future: BoxFuture<'static, T>,
}

impl<T> Work<T> {
    /// Dropped as a part of the query, so that what it drops is charged to it.
    fn end(self) {
        let Work { run, future } = self;
        // The thread goes on with others.
        let _ = catch_unwind(AssertUnwindSafe(|| run.enter(|| drop(future))));
    }
}

impl<T: Send + 'static> Scheduled<T> {
    /// Registers the future as queued at once.
    pub fn new(run: Arc<Run>, future: BoxFuture<'static, T>) -> Self {
        let (driver, query) = (Arc::clone(run.driver()), run.id());
        let left = Arc::clone(run.left());
        let task = Arc::new(Task {
            driver: Arc::clone(&driver),
            id: OnceLock::new(),
            phase: Mutex::new(Phase::Waiting(Work { run, future })),
            waiter: AtomicWaker::new(),
        });
        let granted: Weak<Task<T>> = Arc::downgrade(&task);
        if !driver.task_spawned(query, granted, left, |id| {
            let _ = task.id.set(id);
        }) {
            // The query is over. Whoever awaits this is being cancelled as well.
            if let Phase::Waiting(work) = task.set(Phase::Gone) {
                work.end();
            }
        }
        Scheduled { task }
    }
}

impl<T: Send + 'static> Future for Scheduled<T> {
    type Output = Result<T, Panic>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Before the look, so that an end right after it finds whom to wake.
        self.task.waiter.register(cx.waker());
        let mut phase = self.task.phase.lock();
        match std::mem::replace(&mut *phase, Phase::Gone) {
            Phase::Done(result) => Poll::Ready(result),
            other => {
                *phase = other;
                Poll::Pending
            }
        }
    }
}

impl<T: Send + 'static> Drop for Scheduled<T> {
    /// Its work is dropped by a thread of ours: here there may be locks.
    fn drop(&mut self) {
        let task = &self.task;
        let mut phase = task.phase.lock();
        match std::mem::replace(&mut *phase, Phase::Gone) {
            Phase::Waiting(work) => {
                *phase = Phase::Unwanted(work);
                drop(phase);
                let (lane, poll) = ENDS;
                task.driver.threads().push(Grant { task: Arc::clone(task) as _, lane, poll });
            }
            // Who polls it sees that it is gone. A result is dropped outside the lock.
            other => {
                drop(phase);
                drop(other);
            }
        }
    }
}

impl<T: Send + 'static> ArcWake for Task<T> {
    fn wake_by_ref(task: &Arc<Self>) {
        task.driver.task_woken(task.id());
    }
}

impl<T> Task<T> {
    fn id(&self) -> TaskId {
        *self.id.get().expect("it was registered before it was polled")
    }

    fn set(&self, phase: Phase<T>) -> Phase<T> {
        std::mem::replace(&mut *self.phase.lock(), phase)
    }

    /// What a poll has come to, unless nobody wants it any more: then it is given back.
    fn put(&self, polled: Phase<T>) -> Option<Phase<T>> {
        let mut phase = self.phase.lock();
        if !matches!(*phase, Phase::Polled) {
            return Some(polled);
        }
        *phase = polled;
        None
    }

    /// Drops what will not be polled again, in whichever way it came to that.
    fn drop_work(&self, phase: Phase<T>) {
        if let Phase::Waiting(work) | Phase::Unwanted(work) = phase {
            work.end();
        }
        self.driver.task_dropped(self.id());
    }
}

impl<T: Send + 'static> Granted for Task<T> {
    fn run(self: Arc<Self>, tokio: &Handle) {
        let (driver, id) = (&self.driver, self.id());
        if matches!(*self.phase.lock(), Phase::Unwanted(_)) {
            return self.drop_work(self.set(Phase::Gone));
        }
        match driver.poll_began(id) {
            Turn::Run { .. } => {}
            Turn::Wait => return,
            // Whoever awaits this is being cancelled as well; there is nothing to tell them.
            Turn::Cancelled => return self.drop_work(self.set(Phase::Gone)),
        }
        let mut work = {
            let mut phase = self.phase.lock();
            match std::mem::replace(&mut *phase, Phase::Polled) {
                Phase::Waiting(work) => work,
                // Dropped since: whoever did that has asked a thread to end it.
                other => {
                    *phase = other;
                    return;
                }
            }
        };
        quantum::begin(Some(id));
        let waker = waker_ref(&self);
        let run = Arc::clone(&work.run);
        let mut poll = || run.enter(|| work.future.as_mut().poll(&mut Context::from_waker(&waker)));
        // So that it has tokio's budget, as a task of tokio has for each poll.
        let polled = std::future::poll_fn(|_| Poll::Ready(poll()));
        let result = match catch_unwind(AssertUnwindSafe(|| tokio.block_on(polled))) {
            Ok(Poll::Pending) => {
                let cpu_ns = quantum::end();
                // Whoever is granted the slot may be woken by this thread.
                drop(run);
                let ended = || driver.poll_ended(id, PollEnd::Pending, cpu_ns);
                match self.put(Phase::Waiting(work)) {
                    None => before_taking(ended),
                    // Who is granted the slot does not wait until it is dropped.
                    Some(phase) => {
                        ended();
                        self.drop_work(phase);
                    }
                }
                return;
            }
            Ok(Poll::Ready(result)) => Ok(result),
            Err(panic) => Err(panic),
        };
        work.end();
        let cpu_ns = quantum::end();
        before_taking(|| {
            driver.poll_ended(id, PollEnd::Done, cpu_ns);
            // It may be the query's last task.
            drop(run);
            let unwanted = self.put(Phase::Done(result));
            self.waiter.wake();
            drop(unwanted);
        });
    }
}

/// A future of a query in an engine that does not schedule: tokio polls it. Polls are as long as
/// ever, so that a cancel is seen.
pub struct Free<T> {
    /// `None` once complete or cancelled.
    work: Option<Work<T>>,
}

impl<T> Free<T> {
    pub fn new(run: Arc<Run>, future: BoxFuture<'static, T>) -> Self {
        Free { work: Some(Work { run, future }) }
    }

    fn end(&mut self) {
        if let Some(work) = self.work.take() {
            work.end();
        }
    }
}

impl<T> Future for Free<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(work) = self.work.as_mut().filter(|work| work.run.cancelled().is_none()) else {
            self.end();
            return Poll::Pending;
        };
        quantum::begin(None);
        let Work { run, future } = work;
        let result = run.enter(|| future.as_mut().poll(cx));
        if result.is_ready() {
            self.end();
        }
        result
    }
}

impl<T> Drop for Free<T> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use futures::FutureExt;
    use tokio::sync::oneshot;

    use super::*;
    use crate::{Origin, Runtime, Terms};

    fn runtime() -> Runtime {
        Runtime::new(&crate::of_tests(1 << 30)).unwrap()
    }

    fn run(runtime: &Runtime) -> Arc<Run> {
        Run::begin(runtime.driver(), Origin::new(None, "a test"), &Terms::default()).unwrap()
    }

    /// Until it is so.
    fn wait_for(what: &str, is: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is() {
            assert!(begun.elapsed() < Duration::from_secs(10), "never: {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    struct Flag(Arc<AtomicBool>);

    impl Drop for Flag {
        fn drop(&mut self) {
            assert!(Run::current().is_some(), "it is dropped as a part of the query");
            self.0.store(true, Ordering::Release);
        }
    }

    fn flag() -> (Flag, Arc<AtomicBool>) {
        let dropped = Arc::new(AtomicBool::new(false));
        (Flag(Arc::clone(&dropped)), dropped)
    }

    #[test]
    fn a_result_outlives_its_query() {
        let runtime = runtime();
        let (query, (sender, receiver)) = (run(&runtime), oneshot::channel());
        let id = query.id();
        let task = Scheduled::new(query, async { receiver.await.unwrap() }.boxed());
        assert!(runtime.driver().run(id).is_some());
        sender.send(7).unwrap();
        wait_for("its end", || runtime.driver().run(id).is_none());
        assert_eq!(runtime.driver().slots_in_use(), 0);
        assert_eq!(runtime.block_on(task).unwrap(), 7);
    }

    #[test]
    fn who_waits_for_a_wake_up_is_dropped_by_another_thread() {
        let runtime = runtime();
        let (query, (flag, dropped)) = (run(&runtime), flag());
        let id = query.id();
        let future = async move {
            let _flag = flag;
            std::future::pending::<()>().await;
        };
        let task = Scheduled::new(query, future.boxed());
        wait_for("a poll", || runtime.driver().query_state(id).is_some_and(|s| s.quanta == 1));
        drop(task);
        wait_for("the end of its query", || runtime.driver().run(id).is_none());
        assert!(dropped.load(Ordering::Acquire));
    }

    #[test]
    fn a_poll_goes_on_to_its_end_when_nobody_wants_it_any_more() {
        let runtime = runtime();
        for ends in [false, true] {
            let (query, (flag, dropped)) = (run(&runtime), flag());
            let id = query.id();
            let (polled, began) = mpsc::channel();
            let (go_on, waits) = mpsc::channel();
            let future = async move {
                let _flag = flag;
                polled.send(()).unwrap();
                waits.recv().unwrap();
                if !ends {
                    std::future::pending::<()>().await;
                }
            };
            let task = Scheduled::new(query, future.boxed());
            began.recv().unwrap();
            drop(task);
            assert_eq!(runtime.driver().slots_in_use(), 1, "it still runs");
            assert!(!dropped.load(Ordering::Acquire));
            go_on.send(()).unwrap();
            wait_for("the end of its query", || runtime.driver().run(id).is_none());
            assert!(dropped.load(Ordering::Acquire));
            assert_eq!(runtime.driver().slots_in_use(), 0);
        }
    }

    #[test]
    fn a_panic_is_told_and_costs_no_thread_and_no_slot() {
        let runtime = runtime();
        for round in 0..8 {
            let panics = async move { assert!(round > 8, "round {round}") };
            let task = Scheduled::new(run(&runtime), panics.boxed());
            let panic = runtime.block_on(task).unwrap_err();
            assert_eq!(panic.downcast_ref::<String>(), Some(&format!("round {round}")));
        }
        assert_eq!(
            runtime.block_on(Scheduled::new(run(&runtime), async { 1 }.boxed())).unwrap(),
            1
        );
        wait_for("the slot back", || runtime.driver().slots_in_use() == 0);
    }

    #[test]
    fn a_query_that_is_cancelled_drops_its_tasks_before_their_owners_do() {
        let runtime = runtime();
        let (query, (flag, dropped)) = (run(&runtime), flag());
        let future = async move {
            let _flag = flag;
            std::future::pending::<()>().await;
        };
        let task = Scheduled::new(Arc::clone(&query), future.boxed());
        let id = query.id();
        wait_for("a poll", || runtime.driver().query_state(id).is_some_and(|s| s.quanta == 1));
        query.cancel(crate::Cancel::Asked);
        wait_for("a drop", || dropped.load(Ordering::Acquire));
        assert!(task.now_or_never().is_none(), "who awaits it is cancelled, too");
        let late = Scheduled::new(query, async {}.boxed());
        assert!(late.now_or_never().is_none());
        wait_for("its end", || runtime.driver().run(id).is_none());
    }
}
