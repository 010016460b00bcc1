//! Runs one statement: parse, plan, then either rows or a change of the database.

mod plan;
mod turn;

use std::sync::Arc;

use datafusion::config::ExtensionOptions;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlan, Statement as PlanStatement};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use thalweg_base::limits::CONFLICT_RETRIES_MAX;
use thalweg_base::{Error, Kind, QueryId, Result};
use thalweg_scheduler::PolicyKind;
use thalweg_storage::{RETENTION_PROPERTY, Snapshot, Summary, Transaction};
use tokio::sync::{mpsc, oneshot};

pub(crate) use self::plan::{
    Started, executable, execute, execute_count, physical, plan, planned_as,
};
use self::plan::{optimize, rows};
pub(crate) use self::turn::{Ended, begin, begin_unsettled, note};
use crate::access::{self, Command, Object, Privilege, Viewer};
use crate::answer::{Head, Item, Tag, no_columns};
use crate::catalog::without_tables;
use crate::config::{SHARED_SETTINGS, Settings};
use crate::deliver::{self, Client, Stop};
use crate::parse::{self, Parsed};
use crate::session::Inner;
use crate::share;
use crate::titles::Titles;
use crate::transaction::{self, Control, Reading, TransactionStatus};
use crate::{
    alter, as_of, attach, ddl, declared, dml, hints, maintain, names, pg, place, prepared, show,
    workload,
};
use thalweg_base::Notice;
use thalweg_errors::from_datafusion;
use thalweg_runtime::{Run, checkpoint};

pub(crate) use crate::parse::statement as parse;

/// Runs `sql` to its end, reporting through `started` and `rows`. Failures to send mean that
/// the client is gone, and the query ends.
pub(crate) async fn run(
    session: &Arc<Inner>,
    run: &Arc<Run>,
    sql: &str,
    started: oneshot::Sender<Result<Head>>,
    rows: mpsc::Sender<Item>,
) {
    let outcome = start(session, run, sql).await;
    let outcome = outcome.map_err(|e| access::without_secrets(sql, place::suggest(session, e)));
    note(session, sql, outcome.as_ref().err());
    let (statement, reading) = match outcome {
        Ok(statement) => statement,
        Err(e) => {
            run.note_failed();
            let _ = started.send(Err(e));
            return;
        }
    };
    let mut client = Client {
        started: Some(started),
        rows,
        reading,
        titles: Titles::default(),
        notices: told(session, run),
    };
    let result = match statement {
        Started::Rows(plan, titles, state) => {
            client.titles = titles;
            deliver::alone(&mut client, run, plan, &state).await
        }
        Started::Shared(key, state) => {
            client.titles = key.plan().titles().clone();
            deliver::shared(&mut client, session.engine.flights(), run, key, &state).await
        }
        Started::Done(tag) => {
            let Client { started, rows, reading, notices, .. } = client;
            // First: who cancels what is answered cancels nothing.
            drop(reading);
            let head = Head { schema: no_columns(), tag, notices };
            if started.is_some_and(|started| started.send(Ok(head)).is_ok()) {
                let _ = rows.send(None).await;
            }
            return;
        }
    };
    if matches!(result, Err(Stop::Failed(_))) {
        run.note_failed();
    }
    client.end(result).await;
}

/// What the client is told beside the answer, as far as it wants to hear of it.
fn told(session: &Inner, run: &Run) -> Vec<Notice> {
    let mut notices = run.take_notices();
    if !notices.is_empty()
        && let Some(least) = pg::value(session, "client_min_messages")
    {
        notices.retain(|notice| notice.severity.is_told(&least));
    }
    notices
}

/// The statements of a session start one after the other: each sees what those before it did.
async fn start<'a>(
    session: &'a Arc<Inner>,
    run: &Arc<Run>,
    sql: &str,
) -> Result<(Started, Reading<'a>)> {
    let _turn = session.turn.lock().await;
    let mut retries = 0;
    loop {
        let alone = session.transactions.status() == TransactionStatus::Idle;
        let ended = Ended { session, succeeded: false };
        let result = attempt(session, run, sql).await;
        ended.with(result.is_ok());
        match result {
            // Nothing has been answered yet, so the statement can be run again, on the snapshot
            // that there is now.
            Err(e) if e.kind() == Kind::Conflict && alone && retries < CONFLICT_RETRIES_MAX => {
                retries += 1;
            }
            // While it is this statement's turn: the transaction is the one it ran in.
            result => return result.map(|s| (s, session.transactions.reading(run))),
        }
    }
}

async fn attempt(session: &Arc<Inner>, run: &Arc<Run>, sql: &str) -> Result<Started> {
    show_shared(session);
    pg::settle(session)?;
    let state = session.context.state();
    if let Some(command) = pg::Command::of(sql) {
        begin(session, &state).await?;
        return match command.run(session).await? {
            pg::Done::Tag(tag) => Ok(Started::Done(tag)),
            pg::Done::Row(row) => {
                let row =
                    MemorySourceConfig::try_new_exec(&[vec![row.clone()]], row.schema(), None);
                let row = row.map_err(from_datafusion)?;
                Ok(Started::Rows(row, Titles::default(), Box::new(state)))
            }
        };
    }
    // What has been planned before needs no look whether it is one over PostgreSQL's catalog.
    let asked = if has_plan(session, &state, sql) { None } else { pg::Asked::of(sql) };
    let Some(asked) = asked else { return planned(session, run, sql, state, None).await };
    let (snapshot, viewer) = begin(session, &state).await?;
    let first = match asked.first {
        true => match asked.run(session, run, &state, &snapshot).await {
            Err(e) if pg::may_be_planned(&e) => Some(e),
            result => return result,
        },
        false => None,
    };
    match (
        planned(session, run, sql, state.clone(), Some((Arc::clone(&snapshot), viewer))).await,
        first,
    ) {
        (Err(_), Some(e)) => Err(e),
        // What the planner's `information_schema` lacks, PostgreSQL's may have.
        (Err(e), None) => asked.run(session, run, &state, &snapshot).await.map_err(|_| e),
        (done, _) => done,
    }
}

/// Runs what is no query over PostgreSQL's catalog.
async fn planned(
    session: &Inner,
    run: &Run,
    sql: &str,
    state: SessionState,
    mut begun: Option<(Arc<Snapshot>, Viewer)>,
) -> Result<Started> {
    if has_plan(session, &state, sql) {
        let now = match begun.take() {
            Some(begun) => begun,
            None => begin(session, &state).await?,
        };
        let (snapshot, viewer) = begun.insert(now);
        let key = viewer.plan_key(sql);
        let plans = session.engine.plans();
        if let Some(plan) = plans.find(&key, snapshot, state.config_options()) {
            return rows(run, state, plan).await;
        }
    }
    let parsed = parse::parse(&state, sql)?;
    if let Parsed::Sql(Statement::Statement(statement), _) = &parsed
        && let Some(control) = transaction::control(statement)?
    {
        let idle = session.transactions.status() == TransactionStatus::Idle;
        if idle && matches!(control, Control::Commit | Control::Rollback) {
            run.notice(Notice::warning("there is no transaction in progress").code("25P01"));
        }
        return session.transactions.control(control).await.map(Started::Done);
    }
    if let Parsed::Access(command @ Command::SetRole(None)) = parsed {
        let snapshot = session.catalog.snapshot();
        return access::run(session, &state, &snapshot, command).await;
    }
    let (snapshot, viewer) = match begun {
        Some(begun) => begun,
        // What reads no table needs not see the rows that are held.
        None if inserts_values(&parsed) => begin_unsettled(session, &state).await?,
        None => begin(session, &state).await?,
    };
    match parsed {
        Parsed::Copy(copy) => {
            if !copy.to {
                session.transactions.check_writable()?;
                if let Some(table) = copy.table() {
                    attach::check_target(table, session.catalog.attachments(), &snapshot)?;
                }
            }
            copy.run(&dml::Job { session, run, state: &state, snapshot }).await
        }
        Parsed::Workload(command) => {
            viewer.check_superuser("change a workload")?;
            workload::run(session, command).await.map(Started::Done)
        }
        Parsed::Access(command) => access::run(session, &state, &snapshot, command).await,
        Parsed::Attach(command) => attach::run(session, &viewer, command).await.map(Started::Done),
        Parsed::Sql(statement, clauses) => {
            let job = Job { session, run, state, snapshot, viewer, sql };
            job.run(statement, clauses).await
        }
    }
}

/// Whether a statement is an INSERT of values that no table has a part in.
fn inserts_values(parsed: &Parsed) -> bool {
    match parsed {
        Parsed::Sql(Statement::Statement(statement), _) => dml::inserts_values(statement),
        _ => false,
    }
}

/// The settings that are the database's or the engine's, and not the session's.
fn show_shared(session: &Inner) {
    let now = session.engine.shared_settings();
    let state = session.context.state_ref();
    let extensions = |state: &SessionState| {
        let settings = state.config_options().extensions.get::<Settings>();
        settings.map(|s| s.shared.clone())
    };
    if extensions(&state.read()) == Some(now.clone()) {
        return;
    }
    let mut state = state.write();
    let options = state.config_mut().options_mut();
    if let Some(settings) = options.extensions.get_mut::<Settings>() {
        settings.shared = now;
    }
}

struct Job<'a> {
    session: &'a Inner,
    run: &'a Run,
    state: SessionState,
    snapshot: Arc<Snapshot>,
    viewer: Viewer,
    sql: &'a str,
}

impl Job<'_> {
    async fn run(self, mut statement: Statement, clauses: ddl::Clauses) -> Result<Started> {
        let Job { session, run, state, snapshot, viewer, sql } = self;
        let mut keeps = keeps_plans(&state);
        if let Statement::Statement(inner) = &mut statement {
            if let Some(text) = show::query(inner, &snapshot, session.catalog.attachments())? {
                statement = parse(&state, &text)?;
            } else if let ast::Statement::Execute { name: Some(name), parameters, .. } =
                inner.as_ref()
            {
                // What the text means is known to this session alone.
                keeps = false;
                **inner = prepared::bind(session, &state, &names::folded(name), parameters)?;
            }
        }
        if !viewer.is_superuser() {
            access::needs(&statement, &snapshot).iter().try_for_each(|need| viewer.meets(need))?;
        }
        attach::check(&statement, &state, session.catalog.attachments(), &snapshot)?;
        as_of::resolve(&session.catalog, &state, &mut statement).await?;
        explain_changes(&mut statement, &snapshot, &viewer)?;
        if let Statement::Statement(inner) = statement {
            if dml::Change::is(&inner) {
                session.transactions.check_writable()?;
                let job = dml::Job { session, run, state: &state, snapshot };
                return dml::Change::new(*inner).run(&job).await;
            }
            statement = Statement::Statement(inner);
        }
        if let Statement::Statement(inner) = &statement {
            match inner.as_ref() {
                ast::Statement::AlterTable(command) => {
                    session.transactions.check_writable()?;
                    let job = dml::Job { session, run, state: &state, snapshot };
                    return alter::run(&job, command.clone()).await;
                }
                ast::Statement::CreateIndex(_)
                | ast::Statement::Analyze(_)
                | ast::Statement::Drop { object_type: ast::ObjectType::Index, .. } => {
                    let job = dml::Job { session, run, state: &state, snapshot };
                    return hints::run(&job, inner).map(Started::Done);
                }
                ast::Statement::AlterSchema(_) | ast::Statement::AlterView { .. } => {
                    return Err(Error::unsupported("only tables can be altered")
                        .hint("CREATE OR REPLACE VIEW gives a view another query"));
                }
                ast::Statement::Vacuum(_) | ast::Statement::OptimizeTable { .. } => {
                    let job = dml::Job { session, run, state: &state, snapshot };
                    return maintain::run(&job, inner).await;
                }
                ast::Statement::Kill { modifier: None | Some(ast::KillType::Query), id } => {
                    session.engine.kill_as(QueryId(*id), &viewer)?;
                    return Ok(Started::Done(Tag::Done("KILL".into())));
                }
                ast::Statement::Kill { .. } => {
                    return Err(Error::unsupported("only queries can be killed")
                        .hint("KILL QUERY 7 stops query 7 of SHOW QUERIES"));
                }
                ast::Statement::Prepare { name, data_types, statement } => {
                    return prepared::prepare(session, &state, sql, name, data_types, statement)
                        .await;
                }
                ast::Statement::Deallocate { name, .. } => {
                    return prepared::deallocate(session, &names::ident(name));
                }
                _ => {}
            }
        }
        let creates_from_query = ddl::creates_from_query(&statement);
        let defaults = ddl::defaults(&statement);
        let lengths = declared::lengths(&statement)?;
        let planned = match &statement {
            Statement::CreateExternalTable(_) => {
                planned_as(&without_tables(&state), statement).await
            }
            // Who may drop a table need not be allowed to read it.
            _ if !viewer.is_superuser() && ddl::reads_nothing(&statement) => {
                planned_as(&without_tables(&state), statement).await
            }
            _ => planned_as(&state, statement).await,
        };
        let (plan, titles) = planned.map_err(from_datafusion)?;
        checkpoint().await;
        match plan {
            LogicalPlan::Ddl(command) => {
                let state = &state;
                let job = ddl::Job {
                    session,
                    state,
                    snapshot,
                    sql,
                    clauses,
                    creates_from_query,
                    defaults,
                    lengths,
                };
                job.run(command).await.map(Started::Done)
            }
            LogicalPlan::Statement(PlanStatement::SetVariable(set)) => {
                set_variable(session, &viewer, &set.variable, &set.value).await?;
                let plan = LogicalPlan::Statement(PlanStatement::SetVariable(set));
                execute_command(session, plan).await?;
                Ok(Started::Done(Tag::Done("SET".into())))
            }
            LogicalPlan::Statement(PlanStatement::ResetVariable(reset))
                if reset.variable.starts_with("thalweg.") =>
            {
                reset_variable(session, &viewer, &reset.variable).await?;
                Ok(Started::Done(Tag::Done("RESET".into())))
            }
            LogicalPlan::Statement(PlanStatement::ResetVariable(reset)) => {
                check_settable(session, &viewer, &reset.variable, "")?;
                let plan = LogicalPlan::Statement(PlanStatement::ResetVariable(reset));
                execute_command(session, plan).await?;
                Ok(Started::Done(Tag::Done("RESET".into())))
            }
            plan => {
                let engine = &session.engine;
                let keeps = keeps
                    && Arc::ptr_eq(&snapshot, &engine.database().snapshot())
                    && share::is_decided(&plan);
                let plan = optimize(&state, &plan, titles).await?;
                if keeps && !session.catalog.shows_versions() {
                    let key = viewer.plan_key(sql);
                    engine.plans().keep(&key, &snapshot, state.config_options(), &plan);
                }
                rows(run, state, plan).await
            }
        }
    }
}

/// Whether a plan of the text is kept, for the newest snapshot.
fn has_plan(session: &Inner, state: &SessionState, sql: &str) -> bool {
    let newest = session.engine.database().snapshot();
    let is_known = |viewer: Viewer| session.engine.plans().knows(&viewer.plan_key(sql), &newest);
    // Who may do nothing any more may still go back to another role.
    keeps_plans(state) && session.viewer().is_ok_and(is_known)
}

fn keeps_plans(state: &SessionState) -> bool {
    state.config_options().extensions.get::<Settings>().is_some_and(|s| s.keep_plans)
}

/// `EXPLAIN DELETE …` shows how the rows are found.
fn explain_changes(statement: &mut Statement, snapshot: &Snapshot, viewer: &Viewer) -> Result<()> {
    let Statement::Explain(explain) = statement else { return Ok(()) };
    let Statement::Statement(inner) = explain.statement.as_ref() else { return Ok(()) };
    if !dml::Change::is(inner) {
        return Ok(());
    }
    let change = dml::Change::new(inner.as_ref().clone());
    let Some(planned) = change.planned(snapshot, viewer)? else { return Ok(()) };
    if explain.options.analyze && !change.is_insert() {
        return Err(Error::unsupported("EXPLAIN ANALYZE of a change is not supported")
            .hint("EXPLAIN shows its plan; EXPLAIN ANALYZE a SELECT with the same conditions"));
    }
    *explain.statement = Statement::Statement(Box::new(planned));
    Ok(())
}

/// A statement that only changes the session.
async fn execute_command(session: &Inner, plan: LogicalPlan) -> Result<()> {
    session.context.execute_logical_plan(plan).await.map_err(from_datafusion)?;
    Ok(())
}

/// What `SET thalweg.…` does besides storing the value.
async fn set_variable(session: &Inner, viewer: &Viewer, variable: &str, value: &str) -> Result<()> {
    check_settable(session, viewer, variable, value)?;
    match variable {
        "thalweg.policy" => session.engine.set_policy(value.parse::<PolicyKind>()?),
        "thalweg.memory_limit" | "thalweg.max_running" => {
            let mut settings =
                Settings { shared: session.engine.shared_settings(), ..Settings::default() };
            settings
                .set(variable.trim_start_matches("thalweg."), value)
                .map_err(from_datafusion)?;
            session.engine.set_limits(settings.shared.limits());
        }
        "thalweg.workload" => session.engine.check_workload(value)?,
        "thalweg.as_of" if !value.trim().is_empty() => {
            // So that a mistake shows now.
            session.catalog.version(as_of::parse(&session.context.state(), value)?).await?;
        }
        "thalweg.retention_ms" => {
            let mut settings = Settings::default();
            settings.set("retention_ms", value).map_err(from_datafusion)?;
            let value = settings.shared.retention_ms.to_string();
            let change = move |transaction: &mut Transaction| {
                transaction.describe(Summary { operation: "SET".into(), ..Summary::default() });
                transaction.set_property(RETENTION_PROPERTY, Some(value))
            };
            session.transactions.write(change).await?;
        }
        _ => {}
    }
    Ok(())
}

/// What is of all sessions is not everybody's to set. A name with a workload of its own is.
fn check_settable(session: &Inner, viewer: &Viewer, variable: &str, value: &str) -> Result<()> {
    let variable = variable.to_ascii_lowercase();
    if SHARED_SETTINGS.contains(&variable.as_str()) {
        return viewer.check(Privilege::Set, &Object::Parameter(variable));
    }
    if variable == "thalweg.workload" && !viewer.is_superuser() {
        let name = value.trim();
        let (own, _) = session.identity.session();
        let access = session.access()?;
        let is_own = access.role(own).is_some_and(|r| r.workload.as_deref() == Some(name));
        return match is_own {
            true => Ok(()),
            false => viewer.check(Privilege::Usage, &Object::Workload(name.into())),
        };
    }
    // Folders, and memory that the scheduler does not count.
    if ["datafusion.runtime.", "datafusion.catalog."].iter().any(|p| variable.starts_with(p)) {
        return viewer.check_superuser(&format!("set {variable}"));
    }
    Ok(())
}

/// DataFusion resets only its own variables.
async fn reset_variable(session: &Inner, viewer: &Viewer, variable: &str) -> Result<()> {
    let shared = session.engine.initial_settings();
    let defaults = Settings { shared, ..Settings::default() }.entries();
    let default = defaults.into_iter().find(|e| e.key == variable).and_then(|e| e.value);
    let Some(value) = default else {
        return Err(Error::user(format!("there is no setting {variable}")));
    };
    set_variable(session, viewer, variable, &value).await?;
    let state = session.context.state_ref();
    let mut state = state.write();
    state.config_mut().options_mut().set(variable, &value).map_err(from_datafusion)
}
