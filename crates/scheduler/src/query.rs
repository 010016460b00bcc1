//! What is kept about a query, and what its owner may ask.

use thalweg_base::QueryId;

/// The accounting of one query, as `system.queries` shows it. Times are `now_ns` of the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryState {
    pub query: QueryId,
    /// Counts arrivals: 0 for the first query this scheduler ever saw. Breaks all ties.
    pub arrival_order: u64,
    /// CPU time the whole query is believed to need; 0 if nobody knows.
    pub estimate_ns: u64,
    /// CPU time of all its ended quanta.
    pub cpu_ns: u64,
    /// Polls that ended.
    pub quanta: u64,
    /// CPU time of the longest single quantum.
    pub longest_quantum_ns: u64,
    /// Time its tasks spent queued, summed over the tasks: four tasks that wait one second
    /// each make four. A wait is added when it ends.
    pub waited_ns: u64,
    /// Tasks alive, in any state.
    pub tasks: u32,
    /// Tasks that could run and have no slot.
    pub queued: u32,
    /// Tasks that hold a slot.
    pub running: u32,
    pub arrival_ns: u64,
    pub first_grant_ns: Option<u64>,
    /// Set by [`query_ended`](crate::Scheduler::query_ended).
    pub end_ns: Option<u64>,
    /// No task of it will be granted a slot again.
    pub cancelled: bool,
}

/// Why a query that holds no slot does not advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// It could run, but all slots are taken; `behind` holds the most of them.
    Slot { behind: QueryId },
    /// All its tasks wait for input: for storage, the network, or the client to fetch rows.
    Input,
}
