//! Runs one statement: parse, plan, then either rows or a change of the catalog.

use std::sync::Arc;

use datafusion::common::ScalarValue;
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
use crate::ddl;
use crate::error::from_datafusion;
use crate::estimate;
use crate::runtime::{Run, checkpoint};
use crate::session::Inner;

/// What a statement turned out to be.
enum Started {
    Rows(Arc<dyn ExecutionPlan>, SessionState),
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
            ast::Statement::Prepare { name, .. } => {
                session.prepared.lock().insert(name.value.clone(), sql.to_string());
            }
            ast::Statement::Execute { name: Some(name), .. } => {
                prepare_anew(session, &name.to_string()).await?;
            }
            ast::Statement::StartTransaction { .. }
            | ast::Statement::Commit { .. }
            | ast::Statement::Rollback { .. } => {
                return Err(Error::unsupported("transactions of several statements are not supported")
                    .hint("each statement is a transaction of its own"));
            }
            _ => {}
        }
    }
    let creates_from_query = ddl::creates_from_query(&statement);
    let plan = state.statement_to_plan(statement).await.map_err(from_datafusion)?;
    checkpoint().await;
    match plan {
        LogicalPlan::Ddl(command) => {
            let job = ddl::Job { session, state: &state, snapshot, sql, cluster_by, creates_from_query };
            job.run(command).await.map(Started::Done)
        }
        LogicalPlan::Statement(PlanStatement::SetVariable(set)) => {
            set_variable(session, &set.variable, &set.value)?;
            let plan = LogicalPlan::Statement(PlanStatement::SetVariable(set));
            execute_command(session, plan).await?;
            Ok(Started::Done(Tag::Done("SET".into())))
        }
        LogicalPlan::Statement(
            command @ (PlanStatement::Prepare(_)
            | PlanStatement::Deallocate(_)
            | PlanStatement::ResetVariable(_)),
        ) => {
            let word = match &command {
                PlanStatement::Prepare(_) => "PREPARE",
                PlanStatement::Deallocate(_) => "DEALLOCATE",
                _ => "RESET",
            };
            execute_command(session, LogicalPlan::Statement(command)).await?;
            Ok(Started::Done(Tag::Done(word.into())))
        }
        plan @ LogicalPlan::Statement(PlanStatement::Execute(_)) => {
            let frame = session.context.execute_logical_plan(plan).await.map_err(from_datafusion)?;
            let plan = frame.into_unoptimized_plan();
            rows(run, state, &plan).await
        }
        plan @ (LogicalPlan::Dml(_) | LogicalPlan::Copy(_)) => {
            let word = match &plan {
                LogicalPlan::Copy(_) => "COPY".to_string(),
                LogicalPlan::Dml(dml) => dml.op.name().split_whitespace().next().unwrap_or("DML").to_uppercase(),
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

async fn rows(run: &Run, state: SessionState, plan: &LogicalPlan) -> Result<Started> {
    let physical = physical(run, &state, plan).await?;
    Ok(Started::Rows(physical, state))
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
    Ok(physical)
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
            let value = ScalarValue::try_from_array(batch.column(0), row).map_err(from_datafusion)?;
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

/// DataFusion keeps the plan of a prepared statement, and with it the tables as they were. The
/// text is planned again, so that EXECUTE sees what every other statement sees.
async fn prepare_anew(session: &Inner, name: &str) -> Result<()> {
    let Some(text) = session.prepared.lock().get(name).cloned() else { return Ok(()) };
    let state = session.context.state();
    let plan = state
        .statement_to_plan(parse(&state, &text)?)
        .await
        .map_err(|e| from_datafusion(e).context(format!("prepared statement \"{name}\"")))?;
    let deallocate = format!("DEALLOCATE \"{}\"", name.replace('"', "\"\""));
    let old = state.create_logical_plan(&deallocate).await.map_err(from_datafusion)?;
    // Absent if an earlier attempt failed half way.
    let _ = session.context.execute_logical_plan(old).await;
    execute_command(session, plan).await
}
