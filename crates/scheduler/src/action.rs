//! What the scheduler asks its driver to do.

use thalweg_base::{QueryId, TaskId};

/// What the driver must do once it has left its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The task holds a slot from now on; its next poll may run. Wake it.
    Grant(TaskId),
    /// The task will never hold a slot again; its next poll is told so and drops the future.
    /// Wake it.
    Cancel(TaskId),
    /// The query, which had to wait, was admitted.
    Admitted(QueryId),
    /// The query was cancelled by the scheduler; [`QueryState::stopped`](crate::QueryState) says why. Tell its
    /// client, and end it.
    Stop(QueryId),
    /// The query holds more memory than its share, and others want theirs: let it spill.
    Spill(QueryId),
    /// There is room for the memory that the query was refused, or not yet promised: let it ask
    /// again.
    MemoryFreed(QueryId),
}

impl Action {
    /// Whom to wake.
    pub fn task(self) -> Option<TaskId> {
        match self {
            Action::Grant(task) | Action::Cancel(task) => Some(task),
            Action::Admitted(_) | Action::Stop(_) | Action::Spill(_) | Action::MemoryFreed(_) => {
                None
            }
        }
    }
}
