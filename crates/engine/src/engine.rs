//! One open database: its storage, its threads, its memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::execution::memory_pool::{GreedyMemoryPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use thalweg_base::{Error, QueryId, Result};
use thalweg_scheduler::{PolicyKind, QueryState};
use thalweg_storage::{Database, Options};

use crate::background;
use crate::config::Config;
use crate::error::from_datafusion;
use crate::runtime::{Cancel, Runtime};
use crate::session::Session;
use crate::unrefused::Unrefused;

/// Consumers named when memory runs out.
const TOP_CONSUMERS: usize = 3;

pub struct Engine {
    database: Database,
    runtime: Runtime,
    environment: Arc<RuntimeEnv>,
    config: Config,
    /// That there were.
    sessions: AtomicU64,
}

impl Engine {
    /// Opens the database at `location`: a directory, or `":memory:"` for one that lives as long
    /// as the engine.
    ///
    /// # Errors
    /// The location is no database and `config.create` is off, or it is in use, unwritable or
    /// damaged.
    pub fn open(location: &str, config: Config) -> Result<Arc<Engine>> {
        if config.threads == 0 {
            return Err(Error::user("an engine needs at least one thread"));
        }
        let mut options = Options { create: config.create, ..Options::default() };
        if let Some(bytes) = config.cache_bytes_max {
            options.cache_bytes_max = bytes;
        }
        let database = if location == ":memory:" {
            Database::memory(options)?
        } else {
            Database::open_at(location, options)?
        };
        let pool = GreedyMemoryPool::new(config.memory_bytes() as usize);
        let consumers = std::num::NonZeroUsize::new(TOP_CONSUMERS).expect("not zero");
        let pool = Unrefused(TrackConsumersPool::new(pool, consumers));
        let environment = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(pool))
            .build_arc()
            .map_err(from_datafusion)?;
        let runtime = Runtime::new(config.threads, config.policy)?;
        if config.compacts {
            background::start(&runtime, &database);
        }
        Ok(Arc::new(Engine { database, runtime, environment, config, sessions: AtomicU64::new(0) }))
    }

    /// A new session, with its own settings and prepared statements.
    pub fn session(self: &Arc<Self>) -> Session {
        Session::new(Arc::clone(self))
    }

    pub fn database(&self) -> &Database {
        &self.database
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn policy(&self) -> PolicyKind {
        self.runtime.driver().policy()
    }

    /// Changes the order in which tasks run, for all sessions, from the next quantum on.
    pub fn set_policy(&self, policy: PolicyKind) {
        self.runtime.driver().set_policy(policy);
    }

    /// The accounts of the queries that are alive.
    pub fn queries(&self) -> Vec<QueryState> {
        self.runtime.driver().queries()
    }

    /// Stops a query, whichever session it is of; its client gets an error of kind `Cancelled`.
    pub fn kill(&self, query: QueryId) -> Result<()> {
        let run = self.runtime.driver().run(query).ok_or_else(|| {
            Error::user(format!("there is no query {query}"))
                .hint("SHOW QUERIES lists those that run; it may have ended")
        })?;
        run.cancel(Cancel::Killed);
        Ok(())
    }

    pub(crate) fn next_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Drives `f` from a thread outside the engine; what it awaits runs on the engine's threads.
    pub fn block_on<F: Future>(&self, f: F) -> F::Output {
        self.runtime.block_on(f)
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(crate) fn environment(&self) -> &Arc<RuntimeEnv> {
        &self.environment
    }
}
