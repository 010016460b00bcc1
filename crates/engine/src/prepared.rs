//! Prepared changes: `PREPARE p AS UPDATE …`. DataFusion's planner knows none of them, so their
//! values are put into the statement itself.

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Ident, Statement, Value, VisitorMut,
};
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};

use crate::answer::Tag;
use crate::dml::Change;
use crate::error::from_datafusion;
use crate::session::Inner;
use crate::statement::{self, Started};
use crate::walk::walk_mut;
use crate::{names, parse};

/// Remembers the text.
pub async fn prepare(
    session: &Inner,
    state: &SessionState,
    sql: &str,
    name: &Ident,
    change: &Statement,
) -> Result<Started> {
    let name = names::ident(name);
    if session.prepared.lock().contains_key(&name) {
        return Err(Error::user(format!("prepared statement {} exists already", quoted(&name)))
            .hint("DEALLOCATE removes it"));
    }
    // So that a mistake shows now: it is planned, without values.
    let change = Change::new(change.clone());
    if let Some(planned) = change.planned(&session.catalog.snapshot(), &session.catalog.viewer())? {
        statement::plan(state, Parsed::Statement(Box::new(planned)))
            .await
            .map_err(from_datafusion)?;
    }
    session.prepared.lock().insert(name, sql.to_string());
    Ok(Started::Done(Tag::Done("PREPARE".into())))
}

/// Forgets a prepared change; false if it is none.
pub fn deallocate(session: &Inner, name: &str) -> bool {
    let mut prepared = session.prepared.lock();
    let is_change = prepared.get(name).is_some_and(|sql| is_change(session, sql));
    is_change && prepared.remove(name).is_some()
}

fn is_change(session: &Inner, sql: &str) -> bool {
    let state = session.context.state();
    let parsed = parse::statement(&state, sql);
    matches!(parsed, Ok(Parsed::Statement(s))
        if matches!(s.as_ref(), Statement::Prepare { statement, .. } if Change::is(statement)))
}

/// The change that an EXECUTE runs, with its values; `None` if a query is prepared by that name.
pub fn bind(
    session: &Inner,
    state: &SessionState,
    execute: &Statement,
) -> Result<Option<Statement>> {
    let Statement::Execute { name: Some(name), parameters, .. } = execute else { return Ok(None) };
    let name = names::folded(name);
    let Some(sql) = session.prepared.lock().get(&name).cloned() else { return Ok(None) };
    let Parsed::Statement(prepared) = parse::statement(state, &sql)? else { return Ok(None) };
    let Statement::Prepare { data_types, statement, .. } = *prepared else { return Ok(None) };
    if !Change::is(&statement) {
        return Ok(None);
    }
    let mut statement = *statement;
    let mut bind = Bind { values: parameters, types: &data_types, most: 0, missing: None };
    let _ = walk_mut(&mut statement, &mut bind);
    let wanted = bind.most.max(data_types.len());
    if bind.missing.is_some() || wanted != parameters.len() {
        return Err(Error::user(format!(
            "prepared statement {} takes {wanted} values, and got {}",
            quoted(&name),
            parameters.len()
        )));
    }
    Ok(Some(statement))
}

struct Bind<'a> {
    values: &'a [Expr],
    types: &'a [DataType],
    /// The highest number of a parameter.
    most: usize,
    missing: Option<usize>,
}

impl VisitorMut for Bind<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Value(value) = &*expr else { return ControlFlow::Continue(()) };
        let Value::Placeholder(text) = &value.value else { return ControlFlow::Continue(()) };
        let Some(number) = text.strip_prefix('$').and_then(|n| n.parse::<usize>().ok()) else {
            return ControlFlow::Continue(());
        };
        self.most = self.most.max(number);
        match number.checked_sub(1).and_then(|i| Some((i, self.values.get(i)?))) {
            None => self.missing = Some(number),
            Some((i, value)) => {
                let value = Expr::Nested(Box::new(value.clone()));
                *expr = match self.types.get(i) {
                    Some(data_type) => Expr::Cast {
                        kind: CastKind::Cast,
                        expr: Box::new(value),
                        data_type: data_type.clone(),
                        array: false,
                        format: None,
                    },
                    None => value,
                };
            }
        }
        ControlFlow::Continue(())
    }
}
