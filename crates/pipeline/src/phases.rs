//! What a sink has still to do when all of its rows are in.

use thalweg_base::Result;

/// Work in phases of tasks, of about a millisecond each. A phase begins when the one before is done;
/// its tasks run once each, in any order, at once, on any threads.
pub trait Phases: Send + Sync {
    type Output;

    /// About which it is.
    fn rows(&self) -> usize;

    fn phases(&self) -> usize;

    fn tasks(&self, phase: usize) -> usize;

    fn run(&self, phase: usize, task: usize) -> Result<()>;

    /// When every task has run.
    fn finish(self) -> Result<Self::Output>;
}
