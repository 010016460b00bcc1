//! A client's session: SQL in, an answer out.

mod inner;

use std::sync::{Arc, Weak};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::config::ConfigOptions;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use thalweg_base::limits::{BATCH_ROWS, SORT_MERGE_BYTES, SQL_BYTES_MAX, SQL_DEPTH_MAX};
use thalweg_base::{Error, Result, text};

use thalweg_scheduler::WaitReason;
use tokio::sync::{mpsc, oneshot};

pub(crate) use self::inner::Inner;
use crate::access::{self, Identity, Role};
use crate::answer::{Answer, Head, Item};
use crate::catalog::{Catalog, Catalogs};
use crate::config::Settings;
use crate::csv_file::CsvFiles;
use crate::describe::{Description, describe};
use crate::engine::Engine;
use crate::ingest::{self, Ingest};
use crate::json_file::JsonFiles;
use crate::load::{Load, LoadPlan, LoadProgress, LoadReport};
use crate::names::{CATALOG, PUBLIC};
use crate::parameters::{self, Filled, Value};
use crate::parse;
use crate::row_insert::RowInsert;
use crate::running::{Job, lost};
use crate::statement::{self, Ended};
use crate::transaction::{TransactionStatus, Transactions};
use crate::{pg, pg_type, place};
use thalweg_exec::MemoryBandwidth;
use thalweg_runtime::{Cancel, Origin, Run};

/// Statements run one after the other; what runs can be cancelled from any thread.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

/// A statement on its way to its head, and then to its rows.
type Pending = (Arc<Job>, oneshot::Receiver<Result<Head>>, mpsc::Receiver<Item>);

/// How far a statement is.
#[derive(Clone, Debug)]
pub struct QueryProgress {
    pub elapsed: Duration,
    /// Part of it that is done, as far as it can be estimated.
    pub share: f64,
    /// As long as it goes on at the speed it has had.
    pub left: Option<Duration>,
    /// What or whom it waits for, unless it is what every query waits for at moments: a slot, or
    /// what it reads.
    pub waits_for: Option<String>,
}

/// Work on its way to its result.
struct Work<T> {
    job: Arc<Job>,
    receiver: oneshot::Receiver<Result<T>>,
}

impl<T> Work<T> {
    async fn result(self) -> Result<T> {
        let run = &self.job.run;
        tokio::select! {
            biased;
            result = self.receiver => match result {
                Ok(result) => result,
                Err(_) => Err(run.cancelled().map_or_else(lost, Cancel::error)),
            },
            why = Arc::clone(run).until_cancelled() => Err(why.error()),
        }
    }
}

impl Engine {
    /// A new session, with its own settings and prepared statements.
    pub fn session(self: &Arc<Self>) -> Session {
        Session::new(Arc::clone(self))
    }

    /// One that acts as the role of that name, and may do what the role may.
    ///
    /// # Errors
    /// There is no such role.
    pub fn session_as(self: &Arc<Self>, role: &str) -> Result<Session> {
        Session::of(Arc::clone(self), self.roles()?.existing(role)?)
    }
}

impl Session {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self::with(engine, Identity::default())
    }

    pub(crate) fn of(engine: Arc<Engine>, role: &Role) -> Result<Self> {
        let session = Self::with(engine, Identity::of(role.id, &role.name));
        if let Some(workload) = &role.workload {
            let state = session.inner.context.state_ref();
            let mut state = state.write();
            let options = state.config_mut().options_mut();
            if let Some(settings) = options.extensions.get_mut::<Settings>() {
                settings.workload.clone_from(workload);
            }
        }
        Ok(session)
    }

    fn with(engine: Arc<Engine>, identity: Identity) -> Self {
        let transactions = Arc::new(Transactions::new(engine.database().clone()));
        let loading = Arc::clone(engine.loading());
        let database = engine.database().clone();
        let access = Arc::clone(engine.access());
        let files = Arc::clone(engine.files());
        let catalog = Catalog::new(database, loading, files, Arc::clone(&transactions), access);
        let context = SessionContext::new_with_state(state(&engine, &catalog));
        catalog.bind(context.state_weak_ref());
        let inner = Arc::new(Inner {
            id: engine.next_session(),
            engine,
            context,
            catalog,
            prepared: Mutex::default(),
            transactions,
            identity,
            pg: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            running: Mutex::default(),
        });
        let host: Weak<Inner> = Arc::downgrade(&inner);
        inner.catalog.serve(host);
        pg::register(&inner.context, &Arc::downgrade(&inner));
        Session { inner }
    }

    /// As `system.queries` and `pg_backend_pid()` show it.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// The value of one of PostgreSQL's settings, as SHOW has it.
    pub fn setting(&self, name: &str) -> Option<String> {
        pg::value(&self.inner, name)
    }

    /// The zone of instants that name none: `SET timezone`.
    pub fn time_zone(&self) -> String {
        let state = self.inner.context.state_ref();
        let zone = state.read().config_options().execution.time_zone.clone();
        zone.unwrap_or_else(|| thalweg_plan::zones::STORED_ZONE.into())
    }

    /// `SET name = value`, as a client's startup message asks for it.
    pub fn set(&self, name: &str, value: &str) -> Result<String> {
        pg::set_value(&self.inner, name, value, false)
    }

    /// What a query over PostgreSQL's catalog takes and gives, without running it; `None` if the
    /// statement is none. `types` are the OIDs of parameters that the client has said, 0 the others.
    pub async fn describe_catalog(
        &self,
        sql: &str,
        types: &[pg_type::Oid],
    ) -> Option<Result<thalweg_pgcatalog::Description>> {
        pg::describe(&self.inner, sql, types).await
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.inner.engine
    }

    /// Whom statements run for: `current_user`.
    pub fn user(&self) -> String {
        self.inner.identity.current().1.to_string()
    }

    /// Who logged in, whatever SET ROLE says: `session_user`.
    pub fn session_user(&self) -> String {
        self.inner.identity.session().1.to_string()
    }

    /// Whether the session's role may do everything.
    pub fn is_superuser(&self) -> bool {
        self.inner.viewer().is_ok_and(|viewer| viewer.is_superuser())
    }

    #[cfg(test)]
    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// Cuts a script into its statements, without the semicolons; comments and quotes hold.
    pub fn split(sql: &str) -> Result<Vec<String>> {
        check_size(sql)?;
        Ok(crate::script::split(sql))
    }

    /// Starts one statement under the scheduler. Returns once it is planned and, for a statement
    /// that changes something, done; rows arrive as the answer is read.
    pub async fn query(&self, sql: &str) -> Result<Answer> {
        check_size(sql)?;
        let (job, head, rows) = self.begin_query(sql)?;
        Answer::receive(job, head, rows).await.map_err(|e| place::located(sql, e))
    }

    /// The same with values for `$1`, `$2`, ….
    pub async fn query_with(&self, sql: &str, values: &[Value]) -> Result<Answer> {
        check_size(sql)?;
        if values.is_empty() && parameters::count(sql) == 0 {
            return self.query(sql).await;
        }
        let filled = Filled::of(sql, values)?;
        self.query(&filled.text).await.map_err(|e| filled.located(e))
    }

    /// Inserts rows of values, `statements` executions of one statement at once: all of the rows or none.
    /// `None`: nothing has been done, and the statement has to run as it is written, one execution after
    /// the other. So it is with every row that is refused: what is said of it is said there.
    pub async fn insert_rows(
        &self,
        insert: &Arc<RowInsert>,
        sql: &str,
        values: Vec<Value>,
        statements: usize,
    ) -> Result<Option<u64>> {
        self.begin_insert_rows(insert, sql, values, statements)?.result().await
    }

    /// Whether the text can be parsed: nothing is looked up.
    pub fn check_syntax(&self, sql: &str) -> Result<()> {
        check_size(sql)?;
        let parsed = parse::parse(&self.inner.context.state_ref().read(), sql);
        parsed.map(drop).map_err(|e| place::located(sql, access::without_secrets(sql, e)))
    }

    /// What the statement takes and gives, without running it. `types` are those that the client
    /// has said of its values; the others are inferred.
    pub async fn describe(&self, sql: &str, types: &[Option<DataType>]) -> Result<Description> {
        check_size(sql)?;
        let described = self.begin_describe(sql, types)?.result().await;
        described.map_err(|e| place::located(sql, access::without_secrets(sql, e)))
    }

    /// Loads files into tables. In one transaction, unless asked otherwise: after an error nothing
    /// has changed.
    pub async fn load(
        &self,
        load: impl Into<Load>,
        progress: Arc<LoadProgress>,
    ) -> Result<Vec<LoadReport>> {
        self.begin_load(load.into(), progress)?.result().await
    }

    /// What [`Session::load`] would do: the columns found out, nothing changed.
    pub async fn plan_load(
        &self,
        load: impl Into<Load>,
        progress: Arc<LoadProgress>,
    ) -> Result<Vec<LoadPlan>> {
        self.begin_plan_load(load.into(), progress)?.result().await
    }

    /// Inserts the rows that a client sends: in the transaction that is open, or as one of its own.
    /// They are taken as fast as they are written. Returns how many there were.
    pub async fn ingest(
        &self,
        ingest: Ingest,
        rows: impl Stream<Item = Result<RecordBatch>> + Send + 'static,
    ) -> Result<u64> {
        self.begin_ingest(ingest, rows.boxed())?.result().await
    }

    /// The columns of rows for a table that is there, in the order in which they are named; if
    /// none are, all of them.
    ///
    /// # Errors
    /// There is no such table or column, or the role may not insert.
    pub async fn ingest_columns(
        &self,
        schema: Option<&str>,
        table: &str,
        names: &[String],
    ) -> Result<SchemaRef> {
        self.begin_ingest_columns(schema, table, names)?.result().await
    }

    // What follows is not async: the code of an async function is compiled where it is awaited, so
    // that every crate with a session would compile the whole engine once more.

    fn begin_query(&self, sql: &str) -> Result<Pending> {
        let run = self.begin(sql)?;
        let (started, head) = oneshot::channel();
        let (rows, receiver) = mpsc::channel(ANSWER_BATCHES_MAX);
        let inner = Arc::clone(&self.inner);
        let (text, owner) = (sql.to_string(), Arc::clone(&run));
        let job = self.start(run, async move {
            statement::run(&inner, &owner, &text, started, rows).await;
        });
        Ok((job, head, receiver))
    }

    fn begin_ingest_columns(
        &self,
        schema: Option<&str>,
        table: &str,
        names: &[String],
    ) -> Result<Work<SchemaRef>> {
        let (schema, table, names) = (schema.map(str::to_owned), table.to_owned(), names.to_vec());
        let sql = format!("COPY {} FROM STDIN", text::quoted(&table));
        self.work(
            &sql,
            move |inner| async move { ingest::columns(&inner, schema, table, &names).await },
        )
    }

    fn begin_describe(&self, sql: &str, types: &[Option<DataType>]) -> Result<Work<Description>> {
        let (text, types) = (sql.to_string(), types.to_vec());
        self.work(sql, move |inner| async move { describe(&inner, &text, &types).await })
    }

    fn begin_load(&self, load: Load, progress: Arc<LoadProgress>) -> Result<Work<Vec<LoadReport>>> {
        self.work(&load.to_string(), move |inner| async move {
            let _turn = inner.turn.lock().await;
            let ended = Ended { session: &inner, succeeded: false };
            let text = load.to_string();
            let result = crate::load::run(&inner, load, &progress).await;
            statement::note(&inner, &text, result.as_ref().err());
            ended.with(result.is_ok());
            result
        })
    }

    fn begin_plan_load(
        &self,
        load: Load,
        progress: Arc<LoadProgress>,
    ) -> Result<Work<Vec<LoadPlan>>> {
        self.work(&load.to_string(), move |inner| async move {
            let _turn = inner.turn.lock().await;
            crate::load::plan(&inner, load, &progress).await
        })
    }

    fn begin_insert_rows(
        &self,
        insert: &Arc<RowInsert>,
        sql: &str,
        values: Vec<Value>,
        statements: usize,
    ) -> Result<Work<Option<u64>>> {
        let (insert, text) = (Arc::clone(insert), sql.to_owned());
        self.work(sql, move |inner| async move {
            let _turn = inner.turn.lock().await;
            let ended = Ended { session: &inner, succeeded: false };
            let result = insert.run(&inner, values).await;
            if !matches!(result, Ok(None)) {
                for _ in 0..statements {
                    statement::note(&inner, &text, result.as_ref().err());
                }
            }
            ended.with(result.is_ok());
            result
        })
    }

    fn begin_ingest(
        &self,
        ingest: Ingest,
        rows: BoxStream<'static, Result<RecordBatch>>,
    ) -> Result<Work<u64>> {
        self.work(&ingest.to_string(), move |inner| async move {
            let _turn = inner.turn.lock().await;
            let ended = Ended { session: &inner, succeeded: false };
            let result = crate::ingest::run(&inner, &ingest, rows).await;
            statement::note(&inner, &ingest.to_string(), result.as_ref().err());
            ended.with(result.is_ok());
            result
        })
    }

    fn begin(&self, text: &str) -> Result<Arc<Run>> {
        let (role, user) = self.inner.identity.session();
        let origin = Origin::new(Some(self.inner.id), &access::redact(text)).by(role, user);
        let state = self.inner.context.state_ref();
        let settings = |s: &SessionState| s.config_options().extensions.get().map(Settings::terms);
        let mut terms = settings(&state.read()).unwrap_or_default();
        terms.exempt = is_control(text);
        Run::begin(self.inner.engine.runtime().driver(), origin, &terms)
    }

    /// Something that is no statement, under the scheduler as one; `what` it is shown as.
    fn work<T, F>(&self, what: &str, work: impl FnOnce(Arc<Inner>) -> F) -> Result<Work<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let run = self.begin(what)?;
        let (sender, receiver) = oneshot::channel();
        let work = work(Arc::clone(&self.inner));
        let job = self.start(run, async move {
            // Nobody listens any more: then nobody wants to know.
            let _ = sender.send(work.await);
        });
        Ok(Work { job, receiver })
    }

    /// Whether a transaction is open. A session that is dropped rolls it back.
    pub fn transaction_status(&self) -> TransactionStatus {
        self.inner.transactions.status()
    }

    /// How many savepoints the open transaction has.
    pub fn savepoints(&self) -> usize {
        self.inner.transactions.savepoints()
    }

    fn start(&self, run: Arc<Run>, root: impl Future<Output = ()> + Send + 'static) -> Arc<Job> {
        let handle = self.inner.engine.runtime().handle();
        let root = run.spawn(handle, root);
        let job = Arc::new(Job::new(run, root));
        let mut running = self.inner.running.lock();
        running.retain(|j| j.strong_count() > 0);
        running.push(Arc::downgrade(&job));
        job
    }

    #[cfg(test)]
    pub(crate) fn context(&self) -> &SessionContext {
        &self.inner.context
    }

    /// Stops what this session runs now. Its answers end with an error of kind `Cancelled`.
    pub fn cancel(&self) {
        for job in self.inner.running.lock().drain(..) {
            if let Some(job) = job.upgrade() {
                job.cancel(Cancel::Asked);
            }
        }
    }

    /// How far the statement is that this session runs; `None` if it runs none.
    pub fn progress(&self) -> Option<QueryProgress> {
        let job = self.inner.running.lock().iter().rev().find_map(Weak::upgrade)?;
        let driver = self.inner.engine.runtime().driver();
        let query = driver.list(&[Arc::clone(&job.run)]).pop()?;
        let now_ns = driver.now_ns();
        let is_usual = query.run.joined().is_none()
            && matches!(query.waits_for, Some(WaitReason::Input | WaitReason::Slot { .. }));
        Some(QueryProgress {
            elapsed: Duration::from_nanos(now_ns.saturating_sub(query.state.arrival_ns)),
            share: query.share_done(),
            left: query.left(now_ns),
            waits_for: query.reason().filter(|_| !is_usual),
        })
    }

    /// Statements of this session that run longer are stopped; `None`: no limit.
    pub fn set_timeout(&self, limit: Option<Duration>) {
        let ms = limit.map_or(0, |l| (l.as_millis() as u64).max(1));
        let state = self.inner.context.state_ref();
        let mut state = state.write();
        let options = state.config_mut().options_mut();
        if let Some(settings) = options.extensions.get_mut::<Settings>() {
            settings.statement_timeout_ms = ms;
        }
    }

    /// Takes over what `other` has been told with SET.
    pub fn adopt_settings(&self, other: &Session) {
        let options = other.inner.context.state_ref().read().config_options().as_ref().clone();
        let state = self.inner.context.state_ref();
        *state.write().config_mut().options_mut() = options;
    }

    /// Names that may follow what is typed: where the word under completion begins (in bytes of
    /// `line`), and the tables, views and columns that begin with it.
    pub fn complete(&self, line: &str, position: usize) -> (usize, Vec<String>) {
        let head = line.get(..position).unwrap_or(line);
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let start = head
            .rfind(|c| !is_word(c))
            .map_or(0, |i| i + head[i..].chars().next().map_or(1, char::len_utf8));
        let prefix = head[start..].to_lowercase();
        let snapshot = self.inner.engine.database().snapshot();
        let mut names: Vec<String> = vec![];
        for schema in snapshot.schemas.values() {
            names.push(schema.name.clone());
            names.extend(schema.views.keys().chain(schema.externals.keys()).cloned());
            for (name, table) in &schema.tables {
                names.push(name.clone());
                names.extend(table.arrow_schema.fields().iter().map(|f| f.name().clone()));
            }
        }
        names.retain(|n| !prefix.is_empty() && n.to_lowercase().starts_with(&prefix));
        names.sort();
        names.dedup();
        (start, names)
    }
}

/// Statements that must work on a full server: those that look for what fills it and stop it, and
/// those that end a transaction, which may hold up others.
fn is_control(sql: &str) -> bool {
    let mut words = sql.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty());
    let mut word = || words.next().map(str::to_ascii_uppercase).unwrap_or_default();
    match word().as_str() {
        "SHOW" | "KILL" | "SET" | "RESET" | "COMMIT" | "ROLLBACK" => true,
        "CREATE" | "ALTER" | "DROP" => word() == "WORKLOAD",
        _ => false,
    }
}

/// Batches of an answer that wait for the client; then the query waits for the client.
const ANSWER_BATCHES_MAX: usize = 8;

fn check_size(sql: &str) -> Result<()> {
    // Names with one are the engine's own: see `Catalog`.
    if sql.contains('\0') {
        return Err(Error::user("the SQL text has a NUL character in it")
            .code("22021")
            .hint("no name and no text of a statement can have one"));
    }
    if sql.len() > SQL_BYTES_MAX {
        return Err(Error::user(format!(
            "the SQL text has {}, more than the {} a text may have",
            text::bytes(sql.len() as u64),
            text::bytes(SQL_BYTES_MAX as u64)
        ))
        .hint("load data with `thalweg load` instead of INSERT … VALUES"));
    }
    Ok(())
}

fn state(engine: &Arc<Engine>, catalog: &Arc<Catalog>) -> SessionState {
    let settings = Settings { shared: engine.shared_settings(), ..Settings::default() };
    let mut config = SessionConfig::new()
        .with_default_catalog_and_schema(CATALOG, PUBLIC)
        .with_create_default_catalog_and_schema(false)
        .with_target_partitions(engine.config().threads)
        .with_batch_size(BATCH_ROWS)
        .with_option_extension(settings);
    if let Some(bytes_per_s) = engine.config().memory_bytes_per_s {
        config = config.with_extension(Arc::new(MemoryBandwidth(bytes_per_s)));
    }
    let options = config.options_mut();
    options.execution.parquet.pushdown_filters = true;
    // Spark's timestamps of 96 bits reach further than nanoseconds in 64.
    options.execution.parquet.coerce_int96 = Some("us".into());
    // `1.5` is that number, and not the nearest double.
    options.sql_parser.parse_float_as_decimal = true;
    // Programs write conditions in thirty pairs of parentheses; AND and OR between them count as well.
    let depth = SQL_DEPTH_MAX.to_string();
    options.set("datafusion.sql_parser.recursion_limit", &depth).expect("an option of that name");
    // The logical plan sees better which expressions are never NULL; nobody goes by the physical
    // plan's opinion, and the check fails what is right: CASE WHEN i > 0 THEN i ELSE 1 END.
    options.execution.skip_physical_aggregate_schema_check = true;
    options.explain.physical_plan_only = true;
    // Until SET timezone says otherwise.
    options.execution.time_zone = Some(thalweg_plan::zones::STORED_ZONE.into());
    options.execution.sort_spill_reservation_bytes = SORT_MERGE_BYTES;
    // A join lists its few keys for the scan of the other side only if their array is small; one
    // batch of our scans must be, also of keys of 16 bytes.
    // It goes below windows, whose values depend on all groups.
    options.optimizer.enable_topk_aggregation = false;
    options.optimizer.hash_join_inlist_pushdown_max_size = 2 * BATCH_ROWS * size_of::<u128>();
    let builder = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .with_runtime_env(Arc::clone(engine.environment()))
        .with_catalog_list(Arc::new(Catalogs::new(catalog)));
    let mut state =
        thalweg_plan::install(thalweg_functions::install(builder), wants_pipelines).build();
    thalweg_functions::register(&mut state);
    // There are formats of these names, which may be replaced.
    let _ = state.register_file_format(Arc::new(CsvFiles::default()), true);
    let _ = state.register_file_format(Arc::new(JsonFiles::default()), true);
    state
}

/// `SET thalweg.pipelines`
fn wants_pipelines(options: &ConfigOptions) -> bool {
    options.extensions.get::<Settings>().is_some_and(|settings| settings.pipelines)
}
