//! Runs one statement: parse, plan, then either rows or a change of the catalog.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::config::ExtensionOptions;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlan, Statement as PlanStatement};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use futures::StreamExt;
use thalweg_base::{Error, Result};
use thalweg_scheduler::PolicyKind;
use tokio::sync::{mpsc, oneshot};

use crate::answer::{Head, Item, Tag, no_columns};
use crate::catalog::without_tables;
use crate::config::Settings;
use crate::ddl;
use crate::depth;
use crate::error::{from_datafusion, into_datafusion};
use crate::estimate;
use crate::exec::give_way;
use crate::names;
use crate::runtime::{Run, checkpoint};
use crate::session::Inner;

/// What a statement turned out to be.
enum Started {
    Rows(Arc<dyn ExecutionPlan>, Box<SessionState>),
    Done(Tag),
}

/// Runs `sql` to its end, reporting through `started` and `rows`. Failures to send mean that
/// the client is gone, and the query ends.
pub(crate) async fn run(
    session: &Inner,
    run: &Run,
    sql: &str,
    started: oneshot::Sender<Result<Head>>,
    rows: mpsc::Sender<Item>,
) {
    let (plan, state) = match start(session, run, sql).await {
        Ok(Started::Rows(plan, state)) => (plan, state),
        Ok(Started::Done(tag)) => {
            if started.send(Ok(Head { schema: no_columns(), tag })).is_ok() {
                let _ = rows.send(None).await;
            }
            return;
        }
        Err(e) => {
            let _ = started.send(Err(e));
            return;
        }
    };
    let mut stream = match execute_stream(Arc::clone(&plan), state.task_ctx()) {
        Ok(stream) => stream,
        Err(e) => {
            let _ = started.send(Err(from_datafusion(e)));
            return;
        }
    };
    let head = Head { schema: stream.schema(), tag: Tag::Rows };
    if started.send(Ok(head)).is_err() {
        return;
    }
    while let Some(batch) = stream.next().await {
        let failed = batch.is_err();
        let sent = rows.send(Some(batch.map_err(from_datafusion))).await;
        if failed || sent.is_err() {
            return;
        }
        checkpoint().await;
    }
    let _ = rows.send(None).await;
}

async fn start(session: &Inner, run: &Run, sql: &str) -> Result<Started> {
    let snapshot = session.catalog.refresh();
    let state = session.context.state();
    let mut statement = parse(&state, sql)?;
    let cluster_by = ddl::take_cluster_by(&mut statement);
    if let Statement::Statement(inner) = &statement {
        match inner.as_ref() {
            ast::Statement::Execute { name: Some(name), .. } => {
                prepare_anew(session, &folded(name)).await?;
            }
            ast::Statement::StartTransaction { .. }
            | ast::Statement::Commit { .. }
            | ast::Statement::Rollback { .. } => {
                return Err(Error::unsupported(
                    "transactions of several statements are not supported",
                )
                .hint("each statement is a transaction of its own"));
            }
            _ => {}
        }
    }
    let creates_from_query = ddl::creates_from_query(&statement);
    let plan = match &statement {
        Statement::CreateExternalTable(_) => plan(&without_tables(&state), statement).await,
        _ => plan(&state, statement).await,
    };
    let plan = plan.map_err(from_datafusion)?;
    checkpoint().await;
    match plan {
        LogicalPlan::Ddl(command) => {
            let job =
                ddl::Job { session, state: &state, snapshot, sql, cluster_by, creates_from_query };
            job.run(command).await.map(Started::Done)
        }
        LogicalPlan::Statement(PlanStatement::SetVariable(set)) => {
            set_variable(session, &set.variable, &set.value)?;
            let plan = LogicalPlan::Statement(PlanStatement::SetVariable(set));
            execute_command(session, plan).await?;
            Ok(Started::Done(Tag::Done("SET".into())))
        }
        LogicalPlan::Statement(PlanStatement::ResetVariable(reset))
            if reset.variable.starts_with("thalweg.") =>
        {
            reset_variable(session, &reset.variable)?;
            Ok(Started::Done(Tag::Done("RESET".into())))
        }
        LogicalPlan::Statement(
            command @ (PlanStatement::Prepare(_)
            | PlanStatement::Deallocate(_)
            | PlanStatement::ResetVariable(_)),
        ) => {
            execute_command(session, LogicalPlan::Statement(command.clone())).await?;
            let word = match command {
                PlanStatement::Prepare(prepare) => {
                    session.prepared.lock().insert(prepare.name, sql.to_string());
                    "PREPARE"
                }
                PlanStatement::Deallocate(deallocate) => {
                    session.prepared.lock().remove(&deallocate.name);
                    "DEALLOCATE"
                }
                _ => "RESET",
            };
            Ok(Started::Done(Tag::Done(word.into())))
        }
        plan @ LogicalPlan::Statement(PlanStatement::Execute(_)) => {
            let frame =
                session.context.execute_logical_plan(plan).await.map_err(from_datafusion)?;
            let plan = frame.into_unoptimized_plan();
            rows(run, state, &plan).await
        }
        plan @ (LogicalPlan::Dml(_) | LogicalPlan::Copy(_)) => {
            let word = match &plan {
                LogicalPlan::Copy(_) => "COPY".to_string(),
                LogicalPlan::Dml(dml) => {
                    dml.op.name().split_whitespace().next().unwrap_or("DML").to_uppercase()
                }
                _ => unreachable!("matched above"),
            };
            let count = execute_count(run, &state, &plan).await?;
            Ok(Started::Done(Tag::Count(word, count)))
        }
        plan => rows(run, state, &plan).await,
    }
}

/// Exactly one statement.
pub(crate) fn parse(state: &SessionState, sql: &str) -> Result<Statement> {
    depth::check(sql)?;
    let limit = state.config_options().sql_parser.recursion_limit.get();
    let mut statements = DFParserBuilder::new(sql)
        .with_dialect(&GenericDialect {})
        .with_recursion_limit(limit)
        .build()
        .and_then(|mut parser| parser.parse_statements())
        .map_err(from_datafusion)?;
    match statements.len() {
        0 => Err(Error::user("the statement is empty")),
        1 => Ok(statements.pop_front().expect("one")),
        n => Err(Error::user(format!("one statement is expected here, not {n}"))),
    }
}

/// The logical plan of a statement. DataFusion refuses a SELECT list in which two columns would
/// get one name, and takes casts and subqueries for unnamed: `SELECT a::INT, a::DOUBLE` or
/// `SELECT 5, 5`. Such a list is given names and planned again.
pub(crate) async fn plan(state: &SessionState, statement: Statement) -> DfResult<LogicalPlan> {
    refuse_bags(&statement)?;
    match state.statement_to_plan(statement.clone()).await {
        Err(e) if e.to_string().contains("require unique expression names") => {
            state.statement_to_plan(names::unique(statement)).await
        }
        planned => planned,
    }
}

/// DataFusion plans these as semi and anti joins, which ignore how often a row occurs: better no
/// answer than a wrong one.
fn refuse_bags(statement: &Statement) -> DfResult<()> {
    fn is_bag(body: &ast::SetExpr) -> bool {
        let ast::SetExpr::SetOperation { op, set_quantifier, left, right } = body else {
            return false;
        };
        let counts = matches!(op, ast::SetOperator::Intersect | ast::SetOperator::Except)
            && *set_quantifier == ast::SetQuantifier::All;
        counts || is_bag(left) || is_bag(right)
    }
    struct Bags;
    impl ast::Visitor for Bags {
        type Break = ();

        fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
            if is_bag(&query.body) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    let mut inner = statement;
    while let Statement::Explain(explain) = inner {
        inner = &explain.statement;
    }
    match inner {
        Statement::Statement(s) if ast::Visit::visit(s, &mut Bags).is_break() => {
            Err(into_datafusion(
                Error::unsupported("INTERSECT ALL and EXCEPT ALL are not supported")
                    .hint("leave ALL out, or compare GROUP BY … count(*) of both sides"),
            ))
        }
        _ => Ok(()),
    }
}

async fn rows(run: &Run, state: SessionState, plan: &LogicalPlan) -> Result<Started> {
    let physical = physical(run, &state, plan).await?;
    Ok(Started::Rows(physical, Box::new(state)))
}

/// Plans in two steps, so that no single poll holds a slot for both.
pub(crate) async fn physical(
    run: &Run,
    state: &SessionState,
    plan: &LogicalPlan,
) -> Result<Arc<dyn ExecutionPlan>> {
    let optimized = state.optimize(plan).map_err(from_datafusion)?;
    checkpoint().await;
    let planner = state.query_planner();
    let physical =
        planner.create_physical_plan(&optimized, state).await.map_err(from_datafusion)?;
    run.driver().query_estimated(run.id(), estimate::cpu_ns(physical.as_ref()));
    checkpoint().await;
    give_way(physical).map_err(from_datafusion)
}

/// A statement that only changes the session.
async fn execute_command(session: &Inner, plan: LogicalPlan) -> Result<()> {
    session.context.execute_logical_plan(plan).await.map_err(from_datafusion)?;
    Ok(())
}

/// Runs a plan whose one value is the number of rows it wrote.
async fn execute_count(run: &Run, state: &SessionState, plan: &LogicalPlan) -> Result<u64> {
    let physical = physical(run, state, plan).await?;
    let mut stream = execute_stream(physical, state.task_ctx()).map_err(from_datafusion)?;
    let mut count = 0;
    while let Some(batch) = stream.next().await {
        let batch = batch.map_err(from_datafusion)?;
        for row in 0..batch.num_rows() {
            let value =
                ScalarValue::try_from_array(batch.column(0), row).map_err(from_datafusion)?;
            if let ScalarValue::UInt64(Some(n)) = value {
                count += n;
            }
        }
    }
    Ok(count)
}

/// What `SET thalweg.…` does besides storing the value.
fn set_variable(session: &Inner, variable: &str, value: &str) -> Result<()> {
    if variable == "thalweg.policy" {
        session.engine.set_policy(value.parse::<PolicyKind>()?);
    }
    Ok(())
}

/// A name as the planner knows it: what is not quoted is folded to lower case.
fn folded(name: &ast::ObjectName) -> String {
    let parts = name.0.iter().map(|part| match part.as_ident() {
        Some(ident) if ident.quote_style.is_some() => ident.value.clone(),
        Some(ident) => ident.value.to_lowercase(),
        None => part.to_string(),
    });
    parts.collect::<Vec<_>>().join(".")
}

/// DataFusion resets only its own variables.
fn reset_variable(session: &Inner, variable: &str) -> Result<()> {
    let defaults = Settings::default().entries();
    let default = defaults.into_iter().find(|e| e.key == variable).and_then(|e| e.value);
    let Some(value) = default else {
        return Err(Error::user(format!("there is no setting {variable}")));
    };
    set_variable(session, variable, &value)?;
    let state = session.context.state_ref();
    let mut state = state.write();
    state.config_mut().options_mut().set(variable, &value).map_err(from_datafusion)
}

/// DataFusion keeps the plan of a prepared statement, and with it the tables as they were. The
/// text is planned again, so that EXECUTE sees what every other statement sees.
async fn prepare_anew(session: &Inner, name: &str) -> Result<()> {
    let Some(text) = session.prepared.lock().get(name).cloned() else { return Ok(()) };
    let state = session.context.state();
    let plan = plan(&state, parse(&state, &text)?)
        .await
        .map_err(|e| from_datafusion(e).context(format!("prepared statement \"{name}\"")))?;
    let deallocate = format!("DEALLOCATE \"{}\"", name.replace('"', "\"\""));
    let old = state.create_logical_plan(&deallocate).await.map_err(from_datafusion)?;
    // Absent if an earlier attempt failed half way.
    let _ = session.context.execute_logical_plan(old).await;
    execute_command(session, plan).await
}
