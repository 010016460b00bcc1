//! The plan of a statement, and its rows.

use std::sync::Arc;

use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::parser::Statement;
use futures::StreamExt;
use thalweg_base::Result;
use thalweg_errors::from_datafusion;
use thalweg_exec::adapted;
use thalweg_plan::estimate;
use thalweg_runtime::{Run, checkpoint};

use crate::answer::Tag;
use crate::bound;
use crate::plans::{Execution, Planned};
use crate::quantified;
use crate::share::Key;
use crate::titles::Titles;

/// What a statement turned out to be.
pub(crate) enum Started {
    Rows(Arc<dyn ExecutionPlan>, Titles, Box<SessionState>),
    /// Rows that an identical statement may compute already: only their logical plan is made.
    Shared(Arc<Key>, Box<SessionState>),
    Done(Tag),
}

/// The logical plan of a statement, its columns named as the result calls them.
pub(crate) async fn plan(state: &SessionState, statement: Statement) -> DfResult<LogicalPlan> {
    let (plan, titles) = planned_as(state, statement).await?;
    bound::titled(plan, &titles)
}

/// The logical plan of a statement, and what the result calls its columns.
pub(crate) async fn planned_as(
    state: &SessionState,
    mut statement: Statement,
) -> DfResult<(LogicalPlan, Titles)> {
    quantified::rewrite(&mut statement);
    match bound::plan(state, &statement).await? {
        Some(bound) => Ok(bound),
        // There is no query in it.
        None => Ok((state.statement_to_plan(statement).await?, Titles::default())),
    }
}

/// The first step of planning; with the second, no single poll holds a slot for both.
pub(crate) async fn optimize(
    state: &SessionState,
    plan: &LogicalPlan,
    titles: Titles,
) -> Result<Arc<Planned>> {
    let optimized =
        state.optimize(plan).and_then(thalweg_plan::finished).map_err(from_datafusion)?;
    checkpoint().await;
    Ok(Planned::new(optimized, titles))
}

/// Of a plan that is optimised.
pub(crate) async fn rows(run: &Run, state: SessionState, plan: Arc<Planned>) -> Result<Started> {
    if let Some(key) = Key::of(&plan, &state, run) {
        return Ok(Started::Shared(Arc::new(key), Box::new(state)));
    }
    let physical = executable(run, &state, &plan).await?;
    Ok(Started::Rows(physical, plan.titles().clone(), Box::new(state)))
}

/// Plans in both steps.
pub(crate) async fn physical(
    run: &Run,
    state: &SessionState,
    plan: &LogicalPlan,
) -> Result<Arc<dyn ExecutionPlan>> {
    let optimized = optimize(state, plan, Titles::default()).await?;
    executable(run, state, &optimized).await
}

/// The second step: of a plan that is optimised.
pub(crate) async fn executable(
    run: &Run,
    state: &SessionState,
    planned: &Arc<Planned>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some((Execution { plan, estimate }, loan)) = planned.physical()? {
        run.estimated(estimate, planned.cost()).await;
        run.keeps(loan);
        return Ok(plan);
    }
    let planner = state.query_planner();
    let physical = planner.create_physical_plan(planned.logical(), state).await;
    let physical = physical.map_err(from_datafusion)?;
    let estimate = estimate::of(physical.as_ref());
    run.estimated(estimate, planned.cost()).await;
    checkpoint().await;
    let plan = adapted(physical).map_err(from_datafusion)?;
    let (Execution { plan, .. }, loan) = planned.made(Execution { plan, estimate })?;
    run.keeps(loan);
    Ok(plan)
}

/// Runs a plan once the query is promised the memory that it is going to want.
pub(crate) async fn execute(
    run: &Run,
    state: &SessionState,
    plan: Arc<dyn ExecutionPlan>,
) -> Result<SendableRecordBatchStream> {
    run.memory_promised().await;
    execute_stream(plan, run.context(state)).map_err(from_datafusion)
}

/// Runs a plan whose one value is the number of rows it wrote.
pub(crate) async fn execute_count(
    run: &Run,
    state: &SessionState,
    plan: &LogicalPlan,
) -> Result<u64> {
    let physical = physical(run, state, plan).await?;
    let mut stream = execute(run, state, physical).await?;
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
