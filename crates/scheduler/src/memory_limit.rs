//! Limits of memory, and who holds what is below them.

use std::fmt;

use thalweg_base::{QueryId, text};

/// Whose limit it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    Server,
    Class(String),
    /// Of each query of the class.
    Query(String),
}

impl MemoryLimit {
    pub(crate) fn hint(&self) -> String {
        match self {
            MemoryLimit::Server => {
                "raise it with SET thalweg.memory_limit, or run fewer queries at once".into()
            }
            MemoryLimit::Class(name) => {
                format!("ALTER WORKLOAD {} (memory = …) raises it", text::quoted(name))
            }
            MemoryLimit::Query(name) => {
                format!("ALTER WORKLOAD {} (query_memory = …) raises it", text::quoted(name))
            }
        }
    }
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryLimit::Server => f.write_str("the server"),
            MemoryLimit::Class(name) => write!(f, "workload {}", text::quoted(name)),
            MemoryLimit::Query(name) => write!(f, "a query of workload {}", text::quoted(name)),
        }
    }
}

/// A query and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    pub query: QueryId,
    pub bytes: u64,
}
