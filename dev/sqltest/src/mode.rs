//! The ways in which every file is run.

use thalweg_engine::{Config, PolicyKind};

/// One way to run the engine that must not change any answer.
#[derive(Debug)]
pub struct Mode {
    pub name: &'static str,
    pub threads: usize,
    pub policy: PolicyKind,
    pub cache_bytes_max: Option<u64>,
    /// Whether pipelines run what they cover, or DataFusion's operators everything.
    pub pipelines: bool,
    /// How often a query is asked; its last answer counts. Twice, and its plan is known; three times,
    /// and that of its execution is.
    pub asked: usize,
    pub place: Place,
}

/// Where the database lives.
#[derive(Debug, PartialEq, Eq)]
pub enum Place {
    Memory,
    /// In a directory, closed and opened again after this many statements.
    Disk {
        reopen_statements: usize,
    },
}

/// What was not committed durably, or is held only in memory, is lost here; and every answer is that
/// of DataFusion's operators.
pub const DISK: Mode = Mode {
    name: "disk",
    threads: 1,
    policy: PolicyKind::Fifo,
    cache_bytes_max: None,
    pipelines: false,
    asked: 1,
    place: Place::Disk { reopen_statements: 25 },
};

pub const MODES: [Mode; 3] = [
    // The mode whose answers `THALWEG_SLT_COMPLETE` writes down.
    Mode {
        name: "memory",
        threads: 2,
        policy: PolicyKind::Fair,
        cache_bytes_max: None,
        pipelines: true,
        asked: 1,
        place: Place::Memory,
    },
    DISK,
    // Hardly a column fits the cache, so that everything is decoded again, and tasks often wait; and
    // queries are executed as they were planned before.
    Mode {
        name: "pending",
        threads: 4,
        policy: PolicyKind::RoundRobin,
        cache_bytes_max: Some(64 * 1024),
        pipelines: true,
        asked: 3,
        place: Place::Memory,
    },
];

impl Mode {
    pub fn config(&self) -> Config {
        Config {
            threads: self.threads,
            policy: self.policy,
            cache_bytes_max: self.cache_bytes_max,
            ..Config::default()
        }
    }
}
