//! Schedules from a seed: random classes, queries, tasks, polls, wakes, drops, cancels,
//! deadlines, memory and settings run against the real state machine, with every step compared
//! to a naive model of it.
//!
//! The same seed gives the same schedule on every machine, so a failure is reported as a number:
//! `simulate(seed, None)` repeats it, and so does `cargo run -p thalweg-scheduler --features
//! simulation --example simulate -- --seed 17 --schedules 1`.
//!
//! Checked after every event:
//! - all invariants of `Scheduler::check`: slots, queues and memory add up, no work waits beside
//!   a free slot, nobody waits to be admitted who could be;
//! - that exactly those tasks were granted and cancelled, in that order, that the model says;
//! - that admissions keep to caps and order, and timeouts to their time;
//! - what the policies promise: under `round_robin` nobody is served twice while another waits,
//!   under `fair` others use no more CPU time during a wait than its bound;
//! - that memory granted is within every limit, and that nobody within its share is refused
//!   while all others are within theirs.
//!
//! Checked at the end of a schedule: every query has ended, nothing is left of slots and memory.
//! As each simulated future needs just one wake for each time it was pending, a lost one leaves
//! it behind.

mod model;
#[cfg(test)]
mod tests;
mod world;

use crate::Fault;
use world::World;

/// What a schedule did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// A digest of all actions and their times.
    pub trace: u64,
    pub events: u64,
    pub grants: u64,
    /// Quanta that went on in the same poll.
    pub went_on: u64,
    /// Steps at which the reserve was in use.
    pub reserved: u64,
    pub cancels: u64,
    /// Wakes that found the task running.
    pub notified: u64,
    /// Events sent with the id of a task of the past.
    pub stale: u64,
    /// Queries that had to wait and were admitted.
    pub admitted: u64,
    /// Queries that were refused.
    pub refused: u64,
    /// Queries that a timeout or a lowered limit stopped.
    pub stopped: u64,
    /// Reservations of memory that were refused.
    pub memory_refused: u64,
    /// Queries told that memory they waited for is free.
    pub memory_freed: u64,
    pub promises_awaited: u64,
    /// Times that a bound on waiting was compared to a wait.
    pub bounds: u64,
    /// Times that one of a line was served in place of another.
    pub exchanges: u64,
    pub end_ns: u64,
}

impl Report {
    pub fn add(&mut self, other: &Report) {
        self.trace ^= other.trace;
        self.events += other.events;
        self.grants += other.grants;
        self.went_on += other.went_on;
        self.reserved += other.reserved;
        self.cancels += other.cancels;
        self.notified += other.notified;
        self.stale += other.stale;
        self.admitted += other.admitted;
        self.refused += other.refused;
        self.stopped += other.stopped;
        self.memory_refused += other.memory_refused;
        self.memory_freed += other.memory_freed;
        self.promises_awaited += other.promises_awaited;
        self.bounds += other.bounds;
        self.exchanges += other.exchanges;
        self.end_ns += other.end_ns;
    }
}

/// Runs the schedule of this seed to its end. `Err` says what was violated, and when.
pub fn simulate(seed: u64, fault: Option<Fault>) -> Result<Report, String> {
    run(seed, fault, true)
}

/// Without `compare` only the invariants and the end of the schedule are checked, which shows
/// that they would notice a mistake that the model makes too.
fn run(seed: u64, fault: Option<Fault>, compare: bool) -> Result<Report, String> {
    let mut world = World::new(seed, fault, compare);
    world.run().map_err(|e| format!("seed {seed} at {} ns: {e}", world.now_ns()))
}
