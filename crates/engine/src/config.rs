//! What an engine is started with, and what SQL can change while it runs.

use std::any::Any;

use datafusion::common::Result as DfResult;
use datafusion::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use thalweg_base::Error;
use thalweg_base::limits::{QUERY_MEMORY_PERCENT, RETENTION_MS};
use thalweg_scheduler::PolicyKind;

use crate::error::into_datafusion;

/// How an engine is opened. The default uses the whole machine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Tasks that run at a time, each on a thread of its own.
    pub threads: usize,
    pub policy: PolicyKind,
    /// Of the cache of decoded chunks; `None`: a share of the machine's memory.
    pub cache_bytes_max: Option<u64>,
    /// Of joins, groups and sorts of all queries together; `None`: a share of the machine's.
    pub memory_bytes_max: Option<u64>,
    /// Make the database directory if it is not there.
    pub create: bool,
    /// Compact tables while nothing else is to be done. For processes that stay.
    pub compacts: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            policy: PolicyKind::default(),
            cache_bytes_max: None,
            memory_bytes_max: None,
            create: true,
            compacts: false,
        }
    }
}

impl Config {
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes_max
            .unwrap_or_else(|| thalweg_storage::machine_memory_bytes() / 100 * QUERY_MEMORY_PERCENT)
    }
}

/// `SET thalweg.…`
#[derive(Clone, Debug)]
pub struct Settings {
    pub policy: PolicyKind,
    pub statement_timeout_ms: u64,
    /// Join identical statements that are in flight, and let them join.
    pub share_work: bool,
    /// A snapshot or a time, which statements read; empty: the present.
    pub as_of: String,
    /// The database's, as of the statement that runs.
    pub retention_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            policy: PolicyKind::default(),
            statement_timeout_ms: 0,
            share_work: true,
            as_of: String::new(),
            retention_ms: RETENTION_MS,
        }
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
        match key {
            "policy" => self.policy = value.parse::<PolicyKind>().map_err(into_datafusion)?,
            "as_of" => self.as_of = value.trim().to_string(),
            "share_work" => {
                self.share_work = match value.trim().to_ascii_lowercase().as_str() {
                    "on" | "true" => true,
                    "off" | "false" => false,
                    _ => {
                        return Err(into_datafusion(
                            Error::user(format!("thalweg.share_work is on or off, not {value:?}"))
                                .hint("off computes every statement for itself"),
                        ));
                    }
                };
            }
            "retention_ms" => {
                self.retention_ms = value.parse().map_err(|_| {
                    into_datafusion(
                        Error::user(format!(
                            "thalweg.retention_ms is a number of milliseconds, not {value:?}"
                        ))
                        .hint("3600000 is an hour; 0 keeps nothing but the present"),
                    )
                })?;
            }
            "statement_timeout_ms" => {
                self.statement_timeout_ms = value.parse().map_err(|_| {
                    into_datafusion(
                        Error::user(format!(
                            "thalweg.statement_timeout_ms is a number of milliseconds, not {value:?}"
                        ))
                        .hint("0 is no limit"),
                    )
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
                self.retention_ms.to_string(),
                "How long snapshots that are no longer current can be asked for. Holds for the \
                 database.",
            ),
            entry(
                "policy",
                self.policy.to_string(),
                "Order in which the tasks of concurrent queries run: fair, small_first, round_robin \
                 or fifo. Holds for the whole engine, at once.",
            ),
            entry(
                "share_work",
                if self.share_work { "on" } else { "off" }.to_string(),
                "Whether identical statements that run at the same time are computed once: on or \
                 off. Holds for this session.",
            ),
            entry(
                "statement_timeout_ms",
                self.statement_timeout_ms.to_string(),
                "A statement that runs longer is stopped; 0 is no limit. Holds for this session.",
            ),
        ]
    }
}
