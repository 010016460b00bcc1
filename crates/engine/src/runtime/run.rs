//! One query from arrival to end.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use thalweg_base::limits::QUERY_TEXT_SHOWN_MAX;
use thalweg_base::{Error, QueryId, TaskId};
use thalweg_scheduler::QueryState;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::driver::Driver;
use super::scheduled::Scheduled;

/// Why a query was stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cancel {
    Asked,
    /// By `KILL`.
    Killed,
    Timeout {
        seconds: f64,
    },
}

impl Cancel {
    pub fn error(self) -> Error {
        match self {
            Cancel::Asked => Error::cancelled("the query was cancelled"),
            Cancel::Killed => Error::cancelled("the query was stopped by KILL"),
            Cancel::Timeout { seconds } => {
                Error::cancelled(format!("the query was stopped after {seconds} s, its time limit"))
                    .hint("raise it with --timeout, or SET thalweg.statement_timeout_ms")
            }
        }
    }
}

/// Where a query comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// `None`: the engine itself.
    pub session: Option<u64>,
    /// The statement, or what else it does, for people to recognise it by.
    pub text: String,
    pub time: SystemTime,
}

impl Origin {
    pub fn new(session: Option<u64>, text: &str) -> Self {
        let mut end = text.len().min(QUERY_TEXT_SHOWN_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Origin { session, text: text[..end].to_owned(), time: SystemTime::now() }
    }
}

/// Alive as long as any task of the query is; its end is the query's end for the scheduler.
pub struct Run {
    id: QueryId,
    origin: Origin,
    driver: Arc<Driver>,
    cancel: Mutex<Option<Cancel>>,
    joined: Mutex<Option<QueryId>>,
    /// Rung when `cancel` is set.
    bell: Notify,
}

thread_local! {
    /// Whose future this thread polls; what is spawned meanwhile belongs to the same query.
    static CURRENT: RefCell<Option<Arc<Run>>> = const { RefCell::new(None) };
}

impl Run {
    /// A query arrives. Until it is planned nobody knows its size; planning itself is short.
    pub fn begin(driver: &Arc<Driver>, origin: Origin) -> Arc<Run> {
        const PLANNING_NS: u64 = 5_000_000;
        let id = driver.query_arrived(PLANNING_NS);
        let run = Arc::new(Run {
            id,
            origin,
            driver: Arc::clone(driver),
            cancel: Mutex::new(None),
            joined: Mutex::new(None),
            bell: Notify::new(),
        });
        driver.query_runs(&run);
        run
    }

    pub fn current() -> Option<Arc<Run>> {
        CURRENT.with_borrow(Option::clone)
    }

    /// Runs `f` with this query as the current one of the thread.
    pub(super) fn enter<T>(self: &Arc<Self>, f: impl FnOnce() -> T) -> T {
        struct Restore(Option<Arc<Run>>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.with_borrow_mut(|c| *c = self.0.take());
            }
        }
        let before = CURRENT.with_borrow_mut(|c| c.replace(Arc::clone(self)));
        let _restore = Restore(before);
        f()
    }

    pub fn id(&self) -> QueryId {
        self.id
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    pub fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    pub fn state(&self) -> Option<QueryState> {
        self.driver.query_state(self.id)
    }

    /// Spawns the query's root on `runtime`, under the scheduler.
    pub fn spawn<F>(
        self: &Arc<Self>,
        runtime: &tokio::runtime::Handle,
        future: F,
    ) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        runtime.spawn(Scheduled::new(Arc::clone(self), Box::pin(future)))
    }

    pub fn cancel(&self, why: Cancel) {
        self.cancel.lock().get_or_insert(why);
        self.driver.query_cancelled(self.id);
        self.bell.notify_waiters();
    }

    /// Resolves once the query is cancelled. Its client need not wait for the quantum that is
    /// running: that one ends when it ends, and is the last.
    pub async fn until_cancelled(self: Arc<Self>) -> Cancel {
        loop {
            let mut rung = pin!(self.bell.notified());
            // Before the look, so that a cancel between look and wait is not missed.
            rung.as_mut().enable();
            if let Some(why) = self.cancelled() {
                return why;
            }
            rung.await;
        }
    }

    pub fn cancelled(&self) -> Option<Cancel> {
        *self.cancel.lock()
    }

    /// The query that computes the same, while this one waits for it.
    pub fn joined(&self) -> Option<QueryId> {
        *self.joined.lock()
    }

    pub(crate) fn set_joined(&self, leader: Option<QueryId>) {
        *self.joined.lock() = leader;
    }

    pub(super) fn task_dropped(&self, task: TaskId) {
        self.driver.task_dropped(task);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.driver.query_ended(self.id);
    }
}
