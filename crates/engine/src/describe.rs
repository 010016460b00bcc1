//! What a statement takes and gives, before it runs: for clients that prepare it.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use thalweg_base::{Error, Result};
use thalweg_storage::Snapshot;

use crate::error::from_datafusion;
use crate::parse::{self, Parsed};
use crate::session::Inner;
use crate::statement::{self, Ended};
use crate::{as_of, dml, names, parameters, show, transaction};

/// What a statement takes and gives.
#[derive(Clone, Debug)]
pub struct Description {
    /// Of `$1`, `$2`, …
    pub parameters: Vec<DataType>,
    /// `None` if it gives no rows.
    pub schema: Option<SchemaRef>,
}

/// `declared` are the types that the client has said, as far as it has.
pub(crate) async fn describe(
    session: &Inner,
    sql: &str,
    declared: &[Option<DataType>],
) -> Result<Description> {
    let _turn = session.turn.lock().await;
    let state = session.context.state();
    let count = parameters::count(sql).max(declared.len());
    if let Parsed::Sql(Statement::Statement(statement), _) = parse::parse(&state, sql)?
        && transaction::control(&statement)?.is_some()
    {
        return Ok(Description { parameters: vec![], schema: None });
    }
    let ended = Ended { session, succeeded: false };
    let described = async {
        let snapshot = statement::begin(session, &state).await?;
        let types = types(session, &state, &snapshot, sql, declared, count).await?;
        let text = parameters::sample(sql, &types)?;
        let schema = match planned(session, &state, &snapshot, &text).await? {
            Planned::Rows(plan) => Some(Arc::clone(plan.schema().inner())),
            Planned::Nothing(_) => None,
        };
        Ok(Description { parameters: types, schema })
    };
    let result = described.await;
    // As for every statement: an error fails the transaction that is open.
    ended.with(result.is_ok());
    result
}

/// Those that are not declared are inferred; what has no type from its place is a text.
async fn types(
    session: &Inner,
    state: &SessionState,
    snapshot: &Arc<Snapshot>,
    sql: &str,
    declared: &[Option<DataType>],
    count: usize,
) -> Result<Vec<DataType>> {
    let known = |i: usize| declared.get(i).cloned().flatten();
    if (0..count).all(|i| known(i).is_some()) {
        return Ok((0..count).filter_map(known).collect());
    }
    // Errors show when it is planned with values.
    let inferred = match planned(session, state, snapshot, sql).await {
        Ok(Planned::Rows(plan) | Planned::Nothing(Some(plan))) => {
            plan.get_parameter_types().unwrap_or_default()
        }
        _ => HashMap::new(),
    };
    let inferred = |i: usize| inferred.get(&format!("${}", i + 1)).cloned().flatten();
    Ok((0..count).map(|i| known(i).or_else(|| inferred(i)).unwrap_or(DataType::Utf8)).collect())
}

enum Planned {
    Rows(LogicalPlan),
    /// With the plan that the types of parameters can be seen in, if there is one.
    Nothing(Option<LogicalPlan>),
}

async fn planned(
    session: &Inner,
    state: &SessionState,
    snapshot: &Arc<Snapshot>,
    sql: &str,
) -> Result<Planned> {
    let Parsed::Sql(mut statement, _) = parse::parse(state, sql)? else {
        return Ok(Planned::Nothing(None));
    };
    if let Statement::Statement(inner) = &mut statement {
        if let Some(text) = show::query(inner, snapshot)? {
            statement = parse::statement(state, &text)?;
        } else if let ast::Statement::Execute { name: Some(name), .. } = inner.as_ref() {
            let name = names::folded(name);
            let text = session.prepared.lock().get(&name).cloned();
            let prepared = text.map(|text| parse::statement(state, &text)).transpose()?;
            let Some(Statement::Statement(prepared)) = prepared else { return Err(unknown(&name)) };
            let ast::Statement::Prepare { statement, .. } = *prepared else {
                return Err(unknown(&name));
            };
            **inner = *statement;
        }
    }
    as_of::resolve(&session.catalog, state, &mut statement).await?;
    if let Statement::Statement(inner) = &statement
        && dml::Change::is(inner)
    {
        let change = dml::Change::new(inner.as_ref().clone());
        if let Some(query) = change.returned(snapshot)? {
            let query = ast::Statement::Query(Box::new(query));
            return plan(state, query).await.map(Planned::Rows);
        }
        return Ok(Planned::Nothing(match change.planned(snapshot)? {
            Some(finds) => Some(plan(state, finds).await?),
            None => None,
        }));
    }
    let gives_rows = match &statement {
        Statement::Explain(_) => true,
        Statement::Statement(inner) => matches!(
            inner.as_ref(),
            ast::Statement::Query(_)
                | ast::Statement::Explain { .. }
                | ast::Statement::ExplainTable { .. }
                | ast::Statement::ShowVariable { .. }
                | ast::Statement::ShowColumns { .. }
                | ast::Statement::ShowFunctions { .. }
                | ast::Statement::ShowTables { .. }
        ),
        _ => false,
    };
    if !gives_rows {
        return Ok(Planned::Nothing(None));
    }
    let plan = statement::plan(state, statement).await.map_err(from_datafusion)?;
    Ok(Planned::Rows(plan))
}

async fn plan(state: &SessionState, statement: ast::Statement) -> Result<LogicalPlan> {
    let statement = Statement::Statement(Box::new(statement));
    statement::plan(state, statement).await.map_err(from_datafusion)
}

fn unknown(name: &str) -> Error {
    Error::user(format!("prepared statement \"{name}\" does not exist")).code("26000")
}
