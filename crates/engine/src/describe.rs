//! What a statement takes and gives, before it runs: for clients that prepare it.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, Expr, LimitClause, Query, Value, VisitorMut};
use thalweg_base::{Error, Result};
use thalweg_storage::Snapshot;

use crate::error::from_datafusion;
use crate::parse::{self, Parsed};
use crate::session::Inner;
use crate::statement::{self, Ended};
use crate::walk::walk_mut;
use crate::{access, as_of, dml, names, parameters, show, transaction};

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
    match parse::parse(&state, sql)? {
        Parsed::Sql(Statement::Statement(statement), _)
            if transaction::control(&statement)?.is_some() =>
        {
            return without_parameters(None);
        }
        Parsed::Access(command) => {
            return without_parameters(access::answer(&command));
        }
        _ => {}
    }
    let ended = Ended { session, succeeded: false };
    let described = async {
        let (snapshot, _) = statement::begin(session, &state).await?;
        let types = types(session, &state, &snapshot, sql, declared, count).await?;
        let text = parameters::sample(sql, &types)?;
        let schema = match resolved(session, &state, &snapshot, &text, For::Columns).await? {
            Some(statement) => {
                let planned = statement::planned_as(&state, statement).await;
                let (plan, titles) = planned.map_err(from_datafusion)?;
                // The branches of a UNION agree on their types only here.
                let analysed =
                    state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {});
                let analysed = analysed.map_err(from_datafusion)?;
                Some(titles.schema(Arc::clone(analysed.schema().inner())))
            }
            None => None,
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
    let statement = resolved(session, state, snapshot, sql, For::Parameters).await?;
    let (written, inferred) = match statement {
        Some(mut statement) => {
            let written = written(state, &mut statement).await?;
            // Errors show when it is planned with values.
            let plan = statement::plan(state, statement).await;
            (written, plan.and_then(|p| p.get_parameter_types()).unwrap_or_default())
        }
        None => Default::default(),
    };
    let inferred = |i: usize| inferred.get(&format!("${}", i + 1)).cloned().flatten();
    let written = |i: usize| written.get(&(i + 1)).cloned();
    let of = |i| known(i).or_else(|| written(i)).or_else(|| inferred(i)).unwrap_or(DataType::Utf8);
    Ok((0..count).map(of).collect())
}

/// Types that stand beside parameters, and that DataFusion does not see there: `$1::int`, `LIMIT $1`.
async fn written(
    state: &SessionState,
    statement: &mut Statement,
) -> Result<HashMap<usize, DataType>> {
    let mut places = Places::default();
    if let Statement::Statement(statement) = statement {
        let _ = walk_mut(&mut **statement, &mut places);
    }
    let mut types: HashMap<usize, DataType> =
        places.counts.into_iter().map(|number| (number, DataType::Int64)).collect();
    if !places.casts.is_empty() {
        let casts = places.casts.iter().map(|(_, data_type)| format!("CAST(NULL AS {data_type})"));
        let query = format!("SELECT {}", casts.collect::<Vec<_>>().join(", "));
        let plan = statement::plan(state, parse::statement(state, &query)?).await;
        let plan = plan.map_err(from_datafusion)?;
        let casts = places.casts.iter().zip(plan.schema().fields());
        types.extend(casts.map(|((number, _), field)| (*number, field.data_type().clone())));
    }
    Ok(types)
}

#[derive(Default)]
struct Places {
    /// `CAST($1 AS type)`
    casts: Vec<(usize, String)>,
    /// `LIMIT $1`, `OFFSET $1`
    counts: Vec<usize>,
}

impl VisitorMut for Places {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let mut counts = vec![];
        match &query.limit_clause {
            Some(LimitClause::LimitOffset { limit, offset, .. }) => {
                counts.extend(limit);
                counts.extend(offset.as_ref().map(|o| &o.value));
            }
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => counts.extend([offset, limit]),
            None => {}
        }
        counts.extend(query.fetch.as_ref().and_then(|f| f.quantity.as_ref()));
        self.counts.extend(counts.into_iter().filter_map(number));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Cast { expr, data_type, .. } = expr
            && let Some(number) = number(expr)
        {
            self.casts.push((number, data_type.to_string()));
        }
        ControlFlow::Continue(())
    }
}

/// Of a parameter.
fn number(expr: &Expr) -> Option<usize> {
    let Expr::Value(value) = expr else { return None };
    let Value::Placeholder(text) = &value.value else { return None };
    text.strip_prefix('$')?.parse().ok()
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

fn unknown(name: &str) -> Error {
    Error::user(format!("prepared statement \"{name}\" does not exist")).code("26000")
}
