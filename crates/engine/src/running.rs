//! A statement that runs, for those who wait for it or stop it.

use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_base::Error;
use thalweg_runtime::{Beside, Cancel, Run};

/// A statement that runs: what it takes to stop it.
pub(crate) struct Job {
    pub run: Arc<Run>,
    /// `None`: it was stopped. So it is when this is dropped: an answer nobody reads to its end is an
    /// answer nobody wants.
    root: Mutex<Option<Beside<()>>>,
}

impl Job {
    pub fn new(run: Arc<Run>, root: Beside<()>) -> Job {
        Job { run, root: Mutex::new(Some(root)) }
    }

    pub fn cancel(&self, why: Cancel) {
        self.run.cancel(why);
        drop(self.root.lock().take());
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.run.note_left();
    }
}

/// The error of a statement that ended without saying how.
pub(crate) fn lost() -> Error {
    Error::internal("the query's task ended without an answer")
        .hint("the panic message above says where; please report it with the statement")
}
