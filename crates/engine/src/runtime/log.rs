//! What is kept of a query that has ended: `system.query_log`.

use std::time::SystemTime;

use thalweg_scheduler::{Phase, QueryState};

use super::run::{Origin, Run};

/// A query that has ended.
pub struct Logged {
    pub query: u64,
    pub origin: Origin,
    pub workload: String,
    /// `done`, `failed` or `cancelled`.
    pub state: &'static str,
    pub ended: SystemTime,
    pub wall_ns: u64,
    pub cpu_ns: u64,
    /// As it was believed last.
    pub estimate_ns: u64,
    pub admission_ns: u64,
    pub slot_ns: u64,
    pub memory_ns: u64,
    pub input_ns: u64,
    pub quanta: u64,
    pub longest_quantum_ns: u64,
    pub tasks_most: u64,
    pub read_bytes: u64,
}

impl Logged {
    pub fn new(run: &Run, account: &QueryState, workload: String) -> Self {
        let end_ns = account.end_ns.unwrap_or(account.arrival_ns);
        let spent = |phase| account.phases.spent_ns(phase, end_ns);
        Logged {
            query: account.query.0,
            origin: run.origin().clone(),
            workload,
            state: match (run.cancelled().is_some(), run.failed()) {
                (true, _) => "cancelled",
                (false, true) => "failed",
                (false, false) => "done",
            },
            ended: SystemTime::now(),
            wall_ns: end_ns.saturating_sub(account.arrival_ns),
            cpu_ns: account.cpu_ns,
            estimate_ns: account.estimate_ns,
            admission_ns: spent(Phase::Admission),
            slot_ns: spent(Phase::Slot),
            memory_ns: spent(Phase::Memory),
            input_ns: spent(Phase::Input),
            quanta: account.quanta,
            longest_quantum_ns: account.longest_quantum_ns,
            tasks_most: u64::from(account.tasks_most),
            read_bytes: run.read_bytes(),
        }
    }
}
