//! Classes of queries ("workloads"): what their queries may use together.

use std::fmt;

/// A class for its whole life; the id of a dropped one is not given out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub(crate) u32);

impl ClassId {
    /// The class named "default", which is always there.
    pub const DEFAULT: ClassId = ClassId(0);
}

impl fmt::Display for ClassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The settings of a class. All may be changed while its queries run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    pub name: String,
    /// Of each of its queries, in hundredths, 1 to [`WEIGHT_MAX`](crate::WEIGHT_MAX); and of the
    /// class when those who wait to be admitted take turns.
    pub weight: u32,
    /// Queries of it at a time.
    pub max_running: Option<u32>,
    /// Queries that may wait to be admitted.
    pub queue_max: u32,
    /// How long they may.
    pub queue_timeout_ns: Option<u64>,
    /// Memory of all its queries together.
    pub memory_bytes: Option<u64>,
    /// Memory of each of its queries.
    pub query_memory_bytes: Option<u64>,
    /// How long each of its queries may take, from its arrival.
    pub statement_timeout_ns: Option<u64>,
}

/// Queries of a class that may wait, unless somebody says otherwise.
const QUEUE_MAX: u32 = 10_000;

impl Class {
    /// A class without limits.
    pub fn new(name: impl Into<String>) -> Self {
        Class {
            name: name.into(),
            weight: WEIGHT_NORMAL,
            max_running: None,
            queue_max: QUEUE_MAX,
            queue_timeout_ns: None,
            memory_bytes: None,
            query_memory_bytes: None,
            statement_timeout_ns: None,
        }
    }
}

/// What all queries of the server may use together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerLimits {
    /// Queries at a time.
    pub max_running: Option<u32>,
    pub memory_bytes: Option<u64>,
}

/// What a query that arrived may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Admitted,
    /// Its tasks may be spawned, and get no slot until an
    /// [`Action::Admitted`](crate::Action::Admitted).
    Waits,
}

/// The weight of a query, or of a class, that nobody gave one.
pub const WEIGHT_NORMAL: u32 = 100;

/// Weights are from 1 to this.
pub const WEIGHT_MAX: u32 = 10_000;
