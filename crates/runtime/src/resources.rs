//! What a runtime has of its machine.

use thalweg_scheduler::PolicyKind;

/// What a runtime has of its machine.
#[derive(Clone, Debug)]
pub struct Resources {
    /// Tasks that run at a time, each on a thread of its own.
    pub threads: usize,
    pub policy: PolicyKind,
    /// Of joins, groups and sorts of all queries together.
    pub memory_bytes: u64,
    /// Of a cache that queries share the memory with.
    pub cache_bytes_max: u64,
    /// Tasks run only when the scheduler says so. Off, they run as tokio has it.
    pub scheduled: bool,
}
