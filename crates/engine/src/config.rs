//! What an engine is started with, and what SQL can change while it runs.

use std::any::Any;
use std::time::Duration;

use datafusion::common::Result as DfResult;
use datafusion::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use thalweg_base::limits::{MEMORY_LIMIT_BYTES_MIN, QUERY_MEMORY_PERCENT, RETENTION_MS};
use thalweg_base::{Error, text};
use thalweg_scheduler::{PolicyKind, Priority, ServerLimits};
use thalweg_storage::DirectIo;

use thalweg_errors::into_datafusion;
use thalweg_runtime::{Resources, Terms};

/// How an engine is opened. The default uses the whole machine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Tasks that run at a time, each on a thread of its own.
    pub threads: usize,
    pub policy: PolicyKind,
    /// Of the cache of decoded chunks; `None`: a share of the machine's memory.
    pub cache_bytes_max: Option<u64>,
    /// Whether chunks are read past the system's page cache.
    pub direct_io: DirectIo,
    /// Of joins, groups and sorts of all queries together; `None`: a share of the machine's.
    pub memory_bytes_max: Option<u64>,
    /// What one thread reads from this machine's memory in a second, in order; see
    /// [`Calibration`](crate::calibration::Calibration). `None`: not known, and `EXPLAIN ANALYZE`
    /// does not say how close to it pipelines come.
    pub memory_bytes_per_s: Option<u64>,
    /// Make the database directory if it is not there.
    pub create: bool,
    /// Compact tables while nothing else is to be done. For processes that stay.
    pub compacts: bool,
    /// Tasks run only when the scheduler says so. Off, they run as tokio has it, with no policy,
    /// no limits and no figures: what a benchmark measures the cost of scheduling against.
    pub scheduled: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            policy: PolicyKind::default(),
            cache_bytes_max: None,
            direct_io: DirectIo::default(),
            memory_bytes_max: None,
            memory_bytes_per_s: None,
            create: true,
            compacts: false,
            scheduled: true,
        }
    }
}

impl Config {
    /// Beside a cache of so many bytes.
    pub(crate) fn resources(&self, cache_bytes_max: u64) -> Resources {
        Resources {
            threads: self.threads,
            policy: self.policy,
            memory_bytes: self.memory_bytes(),
            cache_bytes_max,
            scheduled: self.scheduled,
        }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes_max
            .unwrap_or_else(|| thalweg_base::machine_memory_bytes() / 100 * QUERY_MEMORY_PERCENT)
    }
}

/// `SET thalweg.…`
#[derive(Clone, Debug)]
pub struct Settings {
    pub statement_timeout_ms: u64,
    /// Join identical statements that are in flight, and let them join.
    pub share_work: bool,
    /// Run on pipelines what they cover.
    pub pipelines: bool,
    /// Reuse plans of equal texts, and let others reuse its own.
    pub keep_plans: bool,
    /// A snapshot or a time, which statements read; empty: the present.
    pub as_of: String,
    /// Where statements run.
    pub workload: String,
    pub priority: Priority,
    /// Of each statement, from its arrival; 0: none.
    pub deadline_ms: u64,
    pub shared: Shared,
}

/// By name: only superusers set them, and who is granted SET on one.
pub const SHARED_SETTINGS: [&str; 4] =
    ["thalweg.max_running", "thalweg.memory_limit", "thalweg.policy", "thalweg.retention_ms"];

/// Settings that hold for all sessions, as of the statement that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    pub policy: PolicyKind,
    /// The database's.
    pub retention_ms: u64,
    /// 0: no limit.
    pub max_running: u32,
    pub memory_limit: u64,
}

impl Shared {
    pub fn limits(&self) -> ServerLimits {
        ServerLimits {
            max_running: Some(self.max_running).filter(|n| *n > 0),
            memory_bytes: Some(self.memory_limit),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            statement_timeout_ms: 0,
            share_work: true,
            pipelines: true,
            keep_plans: true,
            as_of: String::new(),
            workload: DEFAULT_WORKLOAD.into(),
            priority: Priority::default(),
            deadline_ms: 0,
            shared: Shared {
                policy: PolicyKind::default(),
                retention_ms: RETENTION_MS,
                max_running: 0,
                memory_limit: Config::default().memory_bytes(),
            },
        }
    }
}

impl Settings {
    /// On what terms a statement runs.
    pub fn terms(&self) -> Terms {
        let ms = |n: u64| (n > 0).then(|| Duration::from_millis(n));
        Terms {
            workload: Some(self.workload.clone()).filter(|w| w != DEFAULT_WORKLOAD),
            priority: self.priority,
            deadline: ms(self.deadline_ms),
            timeout: ms(self.statement_timeout_ms),
            exempt: false,
        }
    }
}

fn switched(on: bool) -> String {
    if on { "on" } else { "off" }.to_string()
}

/// A size as `parse_bytes` takes it back.
fn size(bytes: u64) -> String {
    match (bytes.is_multiple_of(1 << 30), bytes.is_multiple_of(1 << 20)) {
        (true, _) => format!("{} GiB", bytes >> 30),
        (_, true) => format!("{} MiB", bytes >> 20),
        _ => format!("{bytes} B"),
    }
}

impl ConfigExtension for Settings {
    const PREFIX: &'static str = "thalweg";
}

/// By hand and not by DataFusion's macro, whose entries lack the prefix, so that `SHOW` would not
/// find them.
impl ExtensionOptions for Settings {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> DfResult<()> {
        let wrong = |what: &str, hint: &str| {
            into_datafusion(
                Error::user(format!("thalweg.{key} is {what}, not {value:?}")).hint(hint),
            )
        };
        let ms =
            |hint: &str| value.parse::<u64>().map_err(|_| wrong("a number of milliseconds", hint));
        let switch = |hint: &str| match value.trim().to_ascii_lowercase().as_str() {
            "on" | "true" => Ok(true),
            "off" | "false" => Ok(false),
            _ => Err(wrong("on or off", hint)),
        };
        match key {
            "policy" => self.shared.policy = value.parse().map_err(into_datafusion)?,
            "as_of" => self.as_of = value.trim().to_string(),
            "share_work" => self.share_work = switch("off computes every statement for itself")?,
            "pipelines" => self.pipelines = switch("off runs all on DataFusion's operators")?,
            "keep_plans" => self.keep_plans = switch("off plans every statement anew")?,
            "retention_ms" => {
                self.shared.retention_ms =
                    ms("3600000 is an hour; 0 keeps nothing but the present")?;
            }
            "statement_timeout_ms" => self.statement_timeout_ms = ms("0 is no limit")?,
            "deadline_ms" => self.deadline_ms = ms("0 is no deadline")?,
            "workload" => self.workload = value.trim().to_string(),
            "priority" => {
                self.priority = match value.trim().to_lowercase().as_str() {
                    "low" => Priority::Low,
                    "normal" => Priority::Normal,
                    "high" => Priority::High,
                    _ => return Err(wrong("low, normal or high", "normal is the default")),
                };
            }
            "max_running" => {
                self.shared.max_running =
                    value.parse().map_err(|_| wrong("a number of queries", "0 is no limit"))?;
            }
            "memory_limit" => {
                let bytes = text::parse_bytes(value).filter(|b| *b >= MEMORY_LIMIT_BYTES_MIN);
                self.shared.memory_limit = bytes.ok_or_else(|| {
                    let least = text::bytes(MEMORY_LIMIT_BYTES_MIN);
                    wrong(&format!("a size of {least} or more"), "write for example '4GiB'")
                })?;
            }
            _ => {
                return Err(into_datafusion(
                    Error::user(format!("there is no setting thalweg.{key}"))
                        .hint("SHOW ALL lists the settings"),
                ));
            }
        }
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        let entry = |key: &str, value: String, description| ConfigEntry {
            key: format!("{}.{key}", Self::PREFIX),
            value: Some(value),
            description,
        };
        vec![
            entry(
                "as_of",
                self.as_of.clone(),
                "A snapshot's number or a time: statements read the database as it was then, and \
                 change nothing. Empty is the present. Holds for this session.",
            ),
            entry(
                "retention_ms",
                self.shared.retention_ms.to_string(),
                "How long snapshots that are no longer current can be asked for. Holds for the \
                 database.",
            ),
            entry(
                "policy",
                self.shared.policy.to_string(),
                "Order in which the tasks of concurrent queries run: fair, small_first, round_robin \
                 or fifo. Holds for the whole engine, at once.",
            ),
            entry(
                "memory_limit",
                size(self.shared.memory_limit),
                "Memory that joins, groups and sorts of all queries may hold; then they wait or \
                 spill to disk. Holds for the whole engine, at once.",
            ),
            entry(
                "max_running",
                self.shared.max_running.to_string(),
                "Queries that run at a time, the others wait; 0 is no limit. Holds for the whole \
                 engine, at once.",
            ),
            entry(
                "workload",
                self.workload.clone(),
                "The workload that statements run in: see CREATE WORKLOAD. Holds for this session.",
            ),
            entry(
                "priority",
                self.priority.name().to_string(),
                "low, normal or high: a quarter, one or four times the share of CPU time of the \
                 workload's other queries, and the order in which they are admitted. Holds for \
                 this session.",
            ),
            entry(
                "deadline_ms",
                self.deadline_ms.to_string(),
                "When a statement's answer is wanted, from its arrival; those with the earliest \
                 deadline go first. 0 is no deadline. Holds for this session.",
            ),
            entry(
                "share_work",
                switched(self.share_work),
                "Whether identical statements that run at the same time are computed once: on or \
                 off. Holds for this session.",
            ),
            entry(
                "pipelines",
                switched(self.pipelines),
                "Whether what Thalweg's pipelines cover runs on them, or all of a statement on \
                 DataFusion's operators: on or off. Holds for this session.",
            ),
            entry(
                "keep_plans",
                switched(self.keep_plans),
                "Whether a query whose text was planned before, on the same data and with the \
                 same settings, is planned anew: on or off. Holds for this session.",
            ),
            entry(
                "statement_timeout_ms",
                self.statement_timeout_ms.to_string(),
                "A statement that runs longer is stopped; 0 is no limit. Holds for this session.",
            ),
        ]
    }
}

/// Where queries run that name no other; it is always there.
pub const DEFAULT_WORKLOAD: &str = "default";

/// They change no answer of a statement that has been planned.
const SETTINGS_IGNORED: [&str; 8] = [
    "thalweg.as_of",
    "thalweg.max_running",
    "thalweg.memory_limit",
    "thalweg.policy",
    "thalweg.priority",
    "thalweg.retention_ms",
    "thalweg.statement_timeout_ms",
    "thalweg.workload",
];

/// Whether two sessions have the same settings, but for those that change no answer, and no plan.
pub fn same_settings(a: &ConfigOptions, b: &ConfigOptions) -> bool {
    let entries = |options: &ConfigOptions| {
        let mut entries = options.entries();
        entries.retain(|e| !SETTINGS_IGNORED.contains(&e.key.as_str()));
        entries.into_iter().map(|e| (e.key, e.value)).collect::<Vec<_>>()
    };
    entries(a) == entries(b)
}
