//! What an engine is started with, and what SQL can change while it runs.

use datafusion::common::extensions_options;
use datafusion::config::ConfigExtension;
use thalweg_base::limits::QUERY_MEMORY_PERCENT;
use thalweg_scheduler::PolicyKind;

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
}

impl Default for Config {
    fn default() -> Self {
        Config {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            policy: PolicyKind::SmallFirst,
            cache_bytes_max: None,
            memory_bytes_max: None,
            create: true,
        }
    }
}

impl Config {
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes_max.unwrap_or_else(|| {
            thalweg_storage::machine_memory_bytes() / 100 * QUERY_MEMORY_PERCENT
        })
    }
}

extensions_options! {
    /// `SET thalweg.…`
    pub struct Settings {
        /// Order in which the tasks of concurrent queries run: fifo, round_robin or small_first.
        /// Holds for the whole engine, at once.
        pub policy: String, default = "small_first".to_string()
        /// A statement that runs longer is stopped; 0 is no limit. Holds for this session.
        pub statement_timeout_ms: u64, default = 0
    }
}

impl ConfigExtension for Settings {
    const PREFIX: &'static str = "thalweg";
}
