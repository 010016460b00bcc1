//! What a query does with its time, what it waits for, and why it may not go on.

use std::fmt;

use thalweg_base::{Error, QueryId, text};

use crate::memory_limit::{Holder, MemoryLimit};

/// What a query is doing, of which one thing is true at any moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// It waits to be admitted.
    Admission,
    /// A task of it could run, and none has a slot.
    Slot,
    /// It waits for memory, and nothing of it can run.
    Memory,
    /// All its tasks wait for input.
    Input,
    /// A task of it holds a slot.
    Running,
}

impl Phase {
    pub const ALL: [Phase; 5] =
        [Phase::Admission, Phase::Slot, Phase::Memory, Phase::Input, Phase::Running];

    pub fn name(self) -> &'static str {
        match self {
            Phase::Admission => "admission",
            Phase::Slot => "slot",
            Phase::Memory => "memory",
            Phase::Input => "input",
            Phase::Running => "running",
        }
    }
}

/// A query's time, split by [`Phase`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phases {
    current: Phase,
    since_ns: u64,
    past_ns: [u64; Phase::ALL.len()],
}

impl Phases {
    pub(crate) fn new(first: Phase, now_ns: u64) -> Self {
        Phases { current: first, since_ns: now_ns, past_ns: [0; Phase::ALL.len()] }
    }

    pub(crate) fn enter(&mut self, phase: Phase, now_ns: u64) {
        if phase != self.current {
            self.past_ns[self.current as usize] += now_ns.saturating_sub(self.since_ns);
            self.current = phase;
            self.since_ns = now_ns;
        }
    }

    pub fn current(&self) -> Phase {
        self.current
    }

    /// When the current phase began.
    pub fn since_ns(&self) -> u64 {
        self.since_ns
    }

    /// Time spent in a phase up to now.
    pub fn spent_ns(&self, phase: Phase, now_ns: u64) -> u64 {
        let past = self.past_ns[phase as usize];
        match phase == self.current {
            true => past + now_ns.saturating_sub(self.since_ns),
            false => past,
        }
    }
}

/// Why a query that holds no slot does not advance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// It could run, but all slots are taken; `behind` holds the most of them.
    Slot { behind: QueryId },
    /// All its tasks wait for input: for storage, the network, or the client to fetch rows.
    Input,
    /// Its class runs as many queries as it may: these.
    ClassFull { class: String, running: Vec<QueryId> },
    /// The server runs as many queries as it may: these.
    ServerFull { running: Vec<QueryId> },
    /// Others of its class, or of a class whose turn it is, are admitted first.
    Turn { behind: QueryId },
    /// Memory is held, or promised to those who run; the largest holders.
    Memory { limit: MemoryLimit, limit_bytes: u64, holders: Vec<Holder> },
}

fn list(queries: &[QueryId]) -> String {
    const NAMED: usize = 5;
    let mut names: Vec<String> = queries.iter().take(NAMED).map(QueryId::to_string).collect();
    if queries.len() > NAMED {
        names.push(format!("{} more", queries.len() - NAMED));
    }
    names.join(", ")
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitReason::Slot { behind } => write!(f, "a slot, behind query {behind}"),
            WaitReason::Input => f.write_str("input"),
            WaitReason::ClassFull { class, running } => {
                write!(
                    f,
                    "workload {} to have room: it runs {}",
                    text::quoted(class),
                    list(running)
                )
            }
            WaitReason::ServerFull { running } => {
                write!(f, "the server to have room: it runs {}", list(running))
            }
            WaitReason::Turn { behind } => write!(f, "its turn, behind query {behind}"),
            WaitReason::Memory { limit, limit_bytes, holders } => {
                write!(f, "memory of {limit}, {}", text::bytes(*limit_bytes))?;
                for (n, Holder { query, bytes }) in holders.iter().enumerate() {
                    let separator = if n == 0 { ": query" } else { "," };
                    write!(f, "{separator} {query} holds {}", text::bytes(*bytes))?;
                }
                Ok(())
            }
        }
    }
}

/// Why a query may not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// As many queries of its class wait as may.
    QueueFull { class: String, queue_max: u32, waits_for: WaitReason },
    /// It waited as long as queries of its class may.
    QueueTimeout { class: String, timeout_ns: u64, waits_for: WaitReason },
    /// It asks for more memory than it could ever be given.
    TooLarge { asked_bytes: u64, limit: MemoryLimit, limit_bytes: u64 },
}

/// Why the scheduler cancelled a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    Refused(Refusal),
    StatementTimeout { timeout_ns: u64 },
}

impl From<&Refusal> for Error {
    fn from(refusal: &Refusal) -> Error {
        match refusal {
            Refusal::QueueFull { class, queue_max, waits_for } => {
                let class = text::quoted(class);
                let full = match queue_max {
                    0 => format!("workload {class} is full, and its queries may not wait"),
                    n => format!("all {n} places in the queue of workload {class} are taken"),
                };
                Error::resources(full)
                    .detail(format!("the first in line waits for {waits_for}"))
                    .hint(format!("try again later, or raise queue or max_running of {class}"))
            }
            Refusal::QueueTimeout { class, timeout_ns, waits_for } => {
                let class = text::quoted(class);
                let waited = text::seconds(*timeout_ns as f64 / 1e9);
                Error::resources(format!("the query waited {waited} to be admitted to {class}"))
                    .detail(format!("it waited for {waits_for}"))
                    .hint(format!("try again later, or raise queue_timeout of workload {class}"))
            }
            Refusal::TooLarge { asked_bytes, limit, limit_bytes } => Error::resources(format!(
                "the query asks for {} and {limit} has {}",
                text::bytes(*asked_bytes),
                text::bytes(*limit_bytes)
            ))
            .hint(limit.hint()),
        }
    }
}

impl From<&Stop> for Error {
    fn from(stop: &Stop) -> Error {
        match stop {
            Stop::Refused(refusal) => refusal.into(),
            Stop::StatementTimeout { timeout_ns } => {
                let limit = text::seconds(*timeout_ns as f64 / 1e9);
                Error::cancelled(format!("the query was stopped after {limit}, its time limit"))
                    .hint(
                        "raise it with --timeout, with SET thalweg.statement_timeout_ms, or with \
                         statement_timeout of its workload",
                    )
            }
        }
    }
}
