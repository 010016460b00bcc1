//! One open database: its storage, its threads, its memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::SystemTime;

use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use thalweg_base::limits::RETENTION_MS;
use thalweg_base::{Error, QueryId, Result};
use thalweg_scheduler::{PolicyKind, QueryState, Scheduler, ServerLimits};
use thalweg_storage::{Database, Options};

use thalweg_errors::from_datafusion;
use thalweg_exec::Loading;
use thalweg_runtime::{Cancel, Runtime, no_workload};

use crate::access::{Access, Audit, Registry, Viewer};
use crate::config::{Config, Shared};
use crate::files::Known;
use crate::plans::Plans;
use crate::share::Flights;
use crate::{background, workload};

pub struct Engine {
    database: Database,
    runtime: Runtime,
    environment: Arc<RuntimeEnv>,
    config: Config,
    flights: Arc<Flights>,
    loading: Arc<Loading>,
    files: Arc<Known>,
    plans: Plans,
    access: Arc<Registry>,
    audit: AtomicU8,
    /// That there were.
    sessions: AtomicU64,
    started: SystemTime,
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
        let mut options =
            Options { create: config.create, direct_io: config.direct_io, ..Options::default() };
        if let Some(bytes) = config.cache_bytes_max {
            options.cache_bytes_max = bytes;
        }
        let database = if location == ":memory:" {
            Database::memory(options)?
        } else {
            Database::open_at(location, options)?
        };
        // Every query has a pool of its own in its place; see `Run::context`.
        let environment = RuntimeEnvBuilder::new().build_arc().map_err(from_datafusion)?;
        let runtime = Runtime::new(&config.resources(database.cache_stats().bytes_max))?;
        workload::restore(&database, runtime.driver())?;
        if config.compacts {
            background::start(&runtime, &database);
        }
        Ok(Arc::new(Engine {
            access: Arc::new(Registry::new(database.clone())),
            audit: AtomicU8::new(Audit::None as u8),
            database,
            runtime,
            environment,
            config,
            flights: Arc::default(),
            loading: Arc::default(),
            files: Arc::default(),
            plans: Plans::default(),
            sessions: AtomicU64::new(0),
            started: SystemTime::now(),
        }))
    }

    /// The roles that there are now, and what they are granted.
    ///
    /// # Errors
    /// What is stored of them is damaged.
    pub fn roles(&self) -> Result<Arc<Access>> {
        self.access.newest()
    }

    pub(crate) fn access(&self) -> &Arc<Registry> {
        &self.access
    }

    /// Which statements are written to the audit log, from now on.
    pub fn set_audit(&self, level: Audit) {
        self.audit.store(level as u8, Ordering::Relaxed);
    }

    pub fn audit(&self) -> Audit {
        Audit::of(self.audit.load(Ordering::Relaxed))
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

    /// Limits of all queries together, from now on, those that run included.
    pub fn set_limits(&self, limits: ServerLimits) {
        self.runtime.driver().set_limits(limits);
    }

    pub(crate) fn shared_settings(&self) -> Shared {
        let (policy, limits) = self.runtime.driver().look(|s| (s.policy(), s.limits()));
        Shared {
            policy,
            retention_ms: self.database.retention_ms(),
            max_running: limits.max_running.unwrap_or(0),
            memory_limit: limits.memory_bytes.unwrap_or(u64::MAX),
        }
    }

    /// What RESET goes back to.
    pub(crate) fn initial_settings(&self) -> Shared {
        Shared {
            policy: self.config.policy,
            retention_ms: RETENTION_MS,
            max_running: 0,
            memory_limit: self.config.memory_bytes(),
        }
    }

    pub(crate) fn check_workload(&self, name: &str) -> Result<()> {
        match self.runtime.driver().look(|s| s.class_named(name)) {
            Some(_) => Ok(()),
            None => Err(no_workload(name)),
        }
    }

    /// The accounts of the queries that are alive.
    pub fn queries(&self) -> Vec<QueryState> {
        self.runtime.driver().queries()
    }

    /// How many tasks of all queries run now.
    pub fn slots_in_use(&self) -> usize {
        self.runtime.driver().slots_in_use()
    }

    /// Bytes on the disk that queries have spilled and not read back for the last time.
    pub fn spill_held(&self) -> u64 {
        self.environment.disk_manager.used_disk_space()
    }

    /// Stops a query, whichever session it is of; its client gets an error of kind `Cancelled`.
    pub fn kill(&self, query: QueryId) -> Result<()> {
        self.kill_as(query, &Viewer::superuser())
    }

    /// The same for somebody who may not stop all.
    pub(crate) fn kill_as(&self, query: QueryId, viewer: &Viewer) -> Result<()> {
        let run = self.runtime.driver().run(query).ok_or_else(|| {
            Error::user(format!("there is no query {query}"))
                .hint("SHOW QUERIES lists those that run; it may have ended")
        })?;
        if !viewer.may_stop(run.origin().role) {
            return Err(Error::user(format!("permission denied to stop query {query}"))
                .code("42501")
                .hint("it is another role's: pg_signal_backend may stop it"));
        }
        run.cancel(Cancel::Killed);
        Ok(())
    }

    /// Bytes that all queries together have reserved for joins, groups and sorts.
    pub fn memory_held(&self) -> u64 {
        self.runtime.driver().look(Scheduler::memory_held)
    }

    /// Statements so far that got the rows of an identical one, which was in flight when they came.
    pub fn shared_statements(&self) -> u64 {
        self.flights.shared()
    }

    /// Statements so far that were not planned anew, because an equal text had been.
    pub fn reused_plans(&self) -> u64 {
        self.plans.reused()
    }

    pub(crate) fn plans(&self) -> &Plans {
        &self.plans
    }

    pub(crate) fn flights(&self) -> &Arc<Flights> {
        &self.flights
    }

    /// What is known of files outside the database.
    pub(crate) fn files(&self) -> &Arc<Known> {
        &self.files
    }

    pub(crate) fn loading(&self) -> &Arc<Loading> {
        &self.loading
    }

    pub(crate) fn next_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// When it was opened.
    pub fn started(&self) -> SystemTime {
        self.started
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
