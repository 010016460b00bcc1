//! What an engine does, in figures, for whoever watches it from outside.

use std::time::Duration;

use thalweg_base::{QueryId, SnapshotId};
use thalweg_scheduler::{Histogram, Scheduler};
use thalweg_storage::CacheStats;

use crate::engine::Engine;
use thalweg_runtime::Totals;

/// As of one moment. What is not a sum since the engine was opened is of now.
pub struct Figures {
    pub slots: usize,
    pub slots_in_use: usize,
    pub workloads: Vec<WorkloadFigures>,
    /// Work of the engine itself that runs: compaction.
    pub background: usize,
    pub memory_bytes: u64,
    /// `None`: no limit.
    pub memory_bytes_max: Option<u64>,
    pub spill_bytes: u64,
    /// How often freed memory was given back to the system because there was too much of it.
    pub memory_trims: u64,
    /// Polls that other programs left without a core.
    pub polls_starved: u64,
    /// CPU times of all quanta.
    pub quanta: Histogram,
    /// Of the queries that have ended.
    pub totals: Totals,
    pub cache: CacheStats,
    /// The newest that this process knows.
    pub snapshot: SnapshotId,
    pub tables: usize,
    pub stored_bytes: u64,
    pub shared_statements: u64,
    pub reused_plans: u64,
}

pub struct WorkloadFigures {
    pub name: String,
    pub running: usize,
    pub waiting: usize,
    pub memory_bytes: u64,
}

/// Where the time of a query went that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    pub wall: Duration,
    pub planning: Duration,
    /// To be admitted.
    pub admission: Duration,
    /// For a slot and for memory.
    pub waiting: Duration,
    pub cpu: Duration,
    pub read_bytes: u64,
}

impl Engine {
    pub fn figures(&self) -> Figures {
        let driver = self.runtime().driver();
        let workloads = driver.look(|s| {
            let all = s.classes().map(|(id, class, running, waiting)| WorkloadFigures {
                name: class.name.clone(),
                running,
                waiting,
                memory_bytes: s.memory_of_class(id),
            });
            all.collect()
        });
        let listed = driver.listed();
        let background = listed.iter().filter(|q| q.run.origin().session.is_none()).count();
        let snapshot = self.database().snapshot();
        Figures {
            slots: driver.slots(),
            slots_in_use: driver.slots_in_use(),
            workloads,
            background,
            memory_bytes: driver.look(Scheduler::memory_held),
            memory_bytes_max: driver.limits().memory_bytes,
            spill_bytes: self.spill_held(),
            memory_trims: driver.trims(),
            polls_starved: driver.starved(),
            quanta: driver.quantum_lengths(),
            totals: driver.totals(),
            cache: self.database().cache_stats(),
            snapshot: snapshot.id,
            tables: snapshot.tables().count(),
            stored_bytes: snapshot.stored_bytes(),
            shared_statements: self.shared_statements(),
            reused_plans: self.reused_plans(),
        }
    }

    /// Of one of the last queries that ended; a query may end a moment after its last row.
    pub fn spent(&self, query: QueryId) -> Option<Spent> {
        let logged = self.runtime().driver().logged(query)?;
        Some(Spent {
            wall: Duration::from_nanos(logged.wall_ns),
            planning: Duration::from_nanos(logged.planning_ns),
            admission: Duration::from_nanos(logged.admission_ns),
            waiting: Duration::from_nanos(logged.slot_ns + logged.memory_ns),
            cpu: Duration::from_nanos(logged.cpu_ns),
            read_bytes: logged.read_bytes,
        })
    }
}
