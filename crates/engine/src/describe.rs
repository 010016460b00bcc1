//! What a statement takes and gives, before it runs: for clients that prepare it.

mod columns;
mod placed;
mod summary;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use thalweg_base::Result;
use thalweg_storage::Snapshot;

pub(crate) use columns::described;
pub(crate) use summary::summary;

use crate::parameters::Filled;
use crate::parse::{self, Parsed};
use crate::session::Inner;
use crate::statement::{self, Ended};
use crate::{
    access, as_of, dml, maintain, names, parameters, pg, place, prepared, show, transaction,
};
use thalweg_errors::from_datafusion;

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
    let without_parameters = |schema| Ok(Description { parameters: vec![], schema });
    if let Some(command) = pg::Command::of(sql) {
        return without_parameters(command.answer());
    }
    match parse::parse(&state, sql)? {
        Parsed::Sql(Statement::Statement(statement), _)
            if maintain::answer(&statement).is_some() =>
        {
            return without_parameters(maintain::answer(&statement));
        }
        Parsed::Sql(Statement::Statement(statement), _)
            if transaction::control(&statement)?.is_some() =>
        {
            return without_parameters(None);
        }
        Parsed::Attach(_) => return without_parameters(None),
        Parsed::Access(command) => {
            return without_parameters(access::answer(&command));
        }
        _ => {}
    }
    let ended = Ended { session, succeeded: false };
    let described = async {
        // Nothing is read: rows that the transaction holds stay as they are.
        let (snapshot, _) = statement::begin_unsettled(session, &state).await?;
        let types = types(session, &state, &snapshot, sql, declared, count).await?;
        let typed = Filled::typed_sample(sql, &types)?;
        let schema = match columns(session, &state, &snapshot, &typed.text).await {
            Ok(schema) => schema,
            // Some places take no casts.
            Err(_) => {
                let filled = Filled::sample(sql, &types)?;
                let schema = columns(session, &state, &snapshot, &filled.text).await;
                schema.map_err(|e| filled.located(place::suggest(session, e)))?
            }
        };
        Ok(Description { parameters: types, schema })
    };
    let result = described.await.map_err(|e| place::suggest(session, e));
    // As for every statement: an error fails the transaction that is open.
    ended.with(result.is_ok());
    result
}

/// The columns of a statement's result; `None` if it gives no rows.
async fn columns(
    session: &Inner,
    state: &SessionState,
    snapshot: &Arc<Snapshot>,
    sql: &str,
) -> Result<Option<SchemaRef>> {
    let Some(statement) = resolved(session, state, snapshot, sql, For::Columns).await? else {
        return Ok(None);
    };
    let planned = statement::planned_as(state, statement).await;
    let (plan, titles) = planned.map_err(from_datafusion)?;
    // The branches of a UNION agree on their types only here.
    let analysed = state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {});
    let analysed = analysed.map_err(from_datafusion)?;
    Ok(Some(titles.schema(Arc::clone(analysed.schema().inner()))))
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
    let statement = resolved(session, state, snapshot, sql, For::Parameters).await?;
    let inferred = match statement {
        Some(statement) => placed::types(state, statement).await?,
        None => HashMap::new(),
    };
    let of = |i| known(i).or_else(|| inferred.get(&(i + 1)).cloned()).unwrap_or(DataType::Utf8);
    Ok((0..count).map(of).collect())
}

/// What a plan is made for: of a change, they are two.
#[derive(Clone, Copy, PartialEq)]
enum For {
    Columns,
    Parameters,
}

/// The statement as it is planned; `None`: it is not.
async fn resolved(
    session: &Inner,
    state: &SessionState,
    snapshot: &Arc<Snapshot>,
    sql: &str,
    purpose: For,
) -> Result<Option<Statement>> {
    let Parsed::Sql(mut statement, _) = parse::parse(state, sql)? else { return Ok(None) };
    if let Statement::Statement(inner) = &mut statement {
        if let Some(text) = show::query(inner, snapshot, session.catalog.attachments())? {
            statement = parse::statement(state, &text)?;
        } else if let ast::Statement::Execute { name: Some(name), parameters, .. } = inner.as_ref()
        {
            **inner = prepared::bind(session, state, &names::folded(name), parameters)?;
        }
    }
    as_of::resolve(&session.catalog, state, &mut statement).await?;
    if let Statement::Statement(inner) = &statement
        && dml::Change::is(inner)
    {
        let change = dml::Change::new(inner.as_ref().clone());
        let query = match purpose {
            For::Columns => change.returned(snapshot)?.map(|q| ast::Statement::Query(Box::new(q))),
            For::Parameters => change.planned(snapshot, &session.catalog.viewer())?,
        };
        let Some(query) = query else { return Ok(None) };
        statement = Statement::Statement(Box::new(query));
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
    if !gives_rows && purpose == For::Columns {
        return Ok(None);
    }
    Ok(Some(statement))
}
