//! Opening the database a command names.

use std::path::Path;
use std::sync::Arc;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use thalweg_base::limits::MEMORY_LIMIT_BYTES_MIN;
use thalweg_base::{Error, Result, text};
use thalweg_engine::{Config, DirectIo, Engine, PolicyKind};

use crate::calibration::{self, Kept};
use crate::failure;

pub const MEMORY: &str = ":memory:";

/// What the command line says about the engine; what it leaves out keeps the engine's default.
#[derive(Default)]
pub struct Settings {
    pub threads: Option<usize>,
    pub policy: Option<PolicyKind>,
    /// Of joins, groups and sorts of all queries together.
    pub memory: Option<u64>,
    /// Of decoded chunks.
    pub cache: Option<u64>,
    /// `None`: off, for the next command finds in the page cache what this one reads.
    pub direct_io: Option<DirectIo>,
    /// The process stays, and compacts tables while nothing else is to be done.
    pub stays: bool,
}

impl Settings {
    fn config(&self, create: bool) -> Config {
        let mut config = Config {
            create,
            compacts: self.stays,
            memory_bytes_max: self.memory,
            cache_bytes_max: self.cache,
            direct_io: self.direct_io.unwrap_or(DirectIo::Off),
            memory_bytes_per_s: memory_bandwidth(),
            ..Config::default()
        };
        if let Some(threads) = self.threads {
            config.threads = threads;
        }
        if let Some(policy) = self.policy {
            config.policy = policy;
        }
        config
    }
}

/// Opens `location`; a database that is not there is made only where the command says so, so
/// that a mistyped name does not leave an empty one behind.
pub fn open(location: &str, create: bool, settings: &Settings) -> Result<Arc<Engine>> {
    if location != MEMORY && !thalweg_storage::is_remote(location) && !create {
        must_exist(location)?;
    }
    Engine::open(location, settings.config(create))
}

/// As it was measured, if it was. Figures that are damaged are no reason not to answer.
fn memory_bandwidth() -> Option<u64> {
    let kept = Kept::read(&calibration::path()?);
    let kept = kept.inspect_err(failure::warn).unwrap_or_default();
    kept.map(|kept| kept.one_thread_bytes_per_s)
}

/// For a message that says what to do.
pub fn must_exist(location: &str) -> Result<()> {
    let hint = format!(
        "thalweg load {location} TABLE FILES… creates it and loads a table; \
         --create makes an empty one; {MEMORY} is a database that ends with the process"
    );
    match std::fs::read_dir(Path::new(location)).map(|mut entries| entries.next().is_none()) {
        Ok(false) => Ok(()),
        Ok(true) => {
            Err(Error::user(format!("the folder {} holds no database", text::quoted(location)))
                .detail("it is empty")
                .hint(hint))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::user(format!("there is no database {}", text::quoted(location))).hint(hint))
        }
        Err(e) => Err(Error::io(format!("cannot open the database {}", text::quoted(location)), e)
            .hint("a database is a folder")),
    }
}

/// Of the memory of all queries, as `SET thalweg.memory_limit` takes it.
pub fn memory(value: &str) -> std::result::Result<u64, String> {
    match text::parse_bytes(value) {
        Some(n) if n >= MEMORY_LIMIT_BYTES_MIN => Ok(n),
        Some(_) => Err(format!("at least {} are needed", text::bytes(MEMORY_LIMIT_BYTES_MIN))),
        None => Err("expected a size, such as 4GiB".to_string()),
    }
}

/// For clap, which lists the names in `--help` and in its errors.
pub fn policies() -> impl TypedValueParser<Value = PolicyKind> {
    PossibleValuesParser::new(PolicyKind::ALL.map(PolicyKind::name)).try_map(|name| name.parse())
}
