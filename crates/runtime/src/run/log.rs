//! What is kept of a query that has ended: `system.query_log`, and sums of all.

use std::time::SystemTime;

use thalweg_scheduler::{Histogram, Phase, QueryState};

use super::{Origin, Run};

/// A query that has ended.
pub struct Logged {
    pub query: u64,
    pub origin: Origin,
    pub workload: String,
    /// `done`, `failed` or `cancelled`.
    pub state: &'static str,
    pub ended: SystemTime,
    pub wall_ns: u64,
    /// From its arrival until it was planned; all of it, if it never was.
    pub planning_ns: u64,
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
            planning_ns: run.planned_ns().unwrap_or(end_ns).saturating_sub(account.arrival_ns),
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

/// Of all queries that have ended, those of the background too.
#[derive(Clone, Default)]
pub struct Totals {
    pub done: u64,
    pub failed: u64,
    pub cancelled: u64,
    /// Of those that were planned.
    pub planning: Times,
    /// To be admitted, for a slot and for memory.
    pub waiting: Times,
    /// From arrival to end.
    pub wall: Times,
    pub cpu_ns: u64,
    /// Stored bytes of the columns that they read.
    pub read_bytes: u64,
}

/// How many took how long.
#[derive(Clone, Default)]
pub struct Times {
    pub histogram: Histogram,
    pub sum_ns: u64,
}

impl Times {
    fn add(&mut self, ns: u64) {
        self.histogram.add(ns);
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }
}

impl Totals {
    pub fn add(&mut self, query: &Logged) {
        match query.state {
            "cancelled" => self.cancelled += 1,
            "failed" => self.failed += 1,
            _ => self.done += 1,
        }
        if query.planning_ns < query.wall_ns {
            self.planning.add(query.planning_ns);
        }
        self.waiting.add(query.admission_ns + query.slot_ns + query.memory_ns);
        self.wall.add(query.wall_ns);
        self.cpu_ns += query.cpu_ns;
        self.read_bytes += query.read_bytes;
    }
}
