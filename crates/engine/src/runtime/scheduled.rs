//! A future that is polled only while it holds a slot.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::task::{ArcWake, AtomicWaker, waker_ref};
use thalweg_base::TaskId;
use thalweg_scheduler::{PollEnd, Turn};

use super::driver::Driver;
use super::quantum;
use super::run::Run;

/// Wraps a query's future. The inner future is given a waker of ours that queues the task with
/// the scheduler; the runtime's waker is called only once a slot is granted. So a wake costs no
/// poll, and a task that waits for a slot costs nothing.
pub struct Scheduled<T> {
    /// `None` once complete or cancelled.
    inner: Option<BoxFuture<'static, T>>,
    /// `None` if the query was over before, or nothing is scheduled.
    ticket: Option<Arc<Ticket>>,
    run: Arc<Run>,
}

/// What the inner future wakes.
struct Ticket {
    task: TaskId,
    driver: Arc<Driver>,
    /// The runtime's waker, for the driver to call on a grant.
    waker: Arc<AtomicWaker>,
}

impl ArcWake for Ticket {
    fn wake_by_ref(ticket: &Arc<Self>) {
        ticket.driver.task_woken(ticket.task);
    }
}

impl<T> Scheduled<T> {
    /// Registers the future as queued at once: the grant may come before the first poll.
    pub fn new(run: Arc<Run>, inner: BoxFuture<'static, T>) -> Self {
        let driver = Arc::clone(run.driver());
        if !driver.schedules() {
            return Scheduled { inner: Some(inner), ticket: None, run };
        }
        let waker = Arc::new(AtomicWaker::new());
        let ticket = driver
            .task_spawned(run.id(), Arc::clone(&waker))
            .map(|task| Arc::new(Ticket { task, driver, waker }));
        Scheduled { inner: Some(inner), ticket, run }
    }

    /// Without asking, in an engine that does not schedule. Polls are as long as ever, so that a
    /// cancel is seen.
    fn poll_freely(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        let Some(inner) = self.inner.as_mut().filter(|_| self.run.cancelled().is_none()) else {
            self.drop_inner();
            return Poll::Pending;
        };
        quantum::begin(None);
        let result = self.run.enter(|| inner.as_mut().poll(cx));
        if result.is_ready() {
            self.drop_inner();
        }
        result
    }

    /// Drops the inner future as a part of the query, so that what it drops is charged to it.
    fn drop_inner(&mut self) {
        let inner = self.inner.take();
        self.run.enter(|| drop(inner));
    }
}

impl<T> Future for Scheduled<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        if !this.run.driver().schedules() {
            return this.poll_freely(cx);
        }
        let (Some(ticket), Some(_)) = (this.ticket.clone(), &this.inner) else {
            this.drop_inner();
            return Poll::Pending;
        };
        // Before the question, so that a grant right after it finds whom to wake.
        ticket.waker.register(cx.waker());
        let long = match ticket.driver.poll_began(ticket.task) {
            Turn::Run { long } => long,
            Turn::Wait => return Poll::Pending,
            Turn::Cancelled => {
                // Whoever awaits this is being cancelled as well; there is nothing to tell them.
                this.drop_inner();
                return Poll::Pending;
            }
        };
        let low = if long { ticket.driver.long_polls().begin() } else { None };
        // If the poll panics the slot comes back when this future is dropped.
        quantum::begin(Some(ticket.task));
        let inner = this.inner.as_mut().expect("checked above");
        let waker = waker_ref(&ticket);
        let result = this.run.enter(|| inner.as_mut().poll(&mut Context::from_waker(&waker)));
        let end = match &result {
            Poll::Ready(_) => PollEnd::Done,
            // tokio defers the wake-up of a task whose cooperative budget is spent until its
            // worker is idle; such a task wants to run again, and the queue is where it waits.
            Poll::Pending if !tokio::task::coop::has_budget_remaining() => PollEnd::Yielded,
            Poll::Pending => PollEnd::Pending,
        };
        if result.is_ready() {
            this.drop_inner();
            this.ticket = None;
        }
        let cpu_ns = quantum::end();
        // Whoever is granted the slot may be woken by this thread.
        drop(low);
        ticket.driver.poll_ended(ticket.task, end, cpu_ns);
        result
    }
}

impl<T> Drop for Scheduled<T> {
    fn drop(&mut self) {
        self.drop_inner();
        if let Some(ticket) = &self.ticket {
            self.run.task_dropped(ticket.task);
        }
    }
}
