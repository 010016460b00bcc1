//! Prepared statements of SQL: `PREPARE p AS SELECT …`, `EXECUTE p (1)`. The text of a statement is kept, and
//! its values are put into the statement itself.

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Ident, Statement, Value, VisitorMut,
};
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};

use thalweg_errors::from_datafusion;

use crate::answer::Tag;
use crate::dml::Change;
use crate::session::Inner;
use crate::statement::Started;
use crate::walk::walk_mut;
use crate::{names, parse, statement};

/// Remembers the text of a query or a change.
pub async fn prepare(
    session: &Inner,
    state: &SessionState,
    sql: &str,
    name: &Ident,
    types: &[DataType],
    prepared: &Statement,
) -> Result<Started> {
    let name = names::ident(name);
    if session.prepared.lock().contains_key(&name) {
        return Err(Error::user(format!("prepared statement {} exists already", quoted(&name)))
            .code("42P05")
            .hint("DEALLOCATE removes it"));
    }
    // So that a mistake shows now: it is planned, without values.
    let mut sample = prepared.clone();
    let parameters: Vec<Expr> = (1..=types.len())
        .map(|n| Expr::Value(Value::Placeholder(format!("${n}")).into()))
        .collect();
    let _ = walk_mut(&mut sample, &mut Bind::new(&parameters, types));
    let planned = match sample {
        Statement::Query(_) => Some(sample),
        change if Change::is(&change) => {
            Change::new(change).planned(&session.catalog.snapshot(), &session.catalog.viewer())?
        }
        _ => {
            return Err(Error::unsupported("only queries and changes can be prepared")
                .hint("run the statement as it is"));
        }
    };
    if let Some(planned) = planned {
        statement::plan(state, Parsed::Statement(Box::new(planned)))
            .await
            .map_err(from_datafusion)?;
    }
    session.prepared.lock().insert(name, sql.to_string());
    Ok(Started::Done(Tag::Done("PREPARE".into())))
}

/// Forgets a prepared statement.
pub fn deallocate(session: &Inner, name: &str) -> Result<Started> {
    match session.prepared.lock().remove(name) {
        Some(_) => Ok(Started::Done(Tag::Done("DEALLOCATE".into()))),
        None => Err(unknown(name)),
    }
}

pub fn unknown(name: &str) -> Error {
    Error::user(format!("prepared statement {} does not exist", quoted(name))).code("26000")
}

/// The statement that an EXECUTE runs, with its values.
pub fn bind(
    session: &Inner,
    state: &SessionState,
    name: &str,
    values: &[Expr],
) -> Result<Statement> {
    let text = session.prepared.lock().get(name).cloned();
    let Some(sql) = text else { return Err(unknown(name)) };
    let Parsed::Statement(prepared) = parse::statement(state, &sql)? else {
        return Err(unknown(name));
    };
    let Statement::Prepare { data_types, statement, .. } = *prepared else {
        return Err(unknown(name));
    };
    let mut statement = *statement;
    let mut bind = Bind::new(values, &data_types);
    let _ = walk_mut(&mut statement, &mut bind);
    let wanted = bind.most.max(data_types.len());
    if bind.missing.is_some() || wanted != values.len() {
        return Err(Error::user(format!(
            "prepared statement {} takes {wanted} values, and got {}",
            quoted(name),
            values.len()
        ))
        .code("42601"));
    }
    Ok(statement)
}

struct Bind<'a> {
    values: &'a [Expr],
    types: &'a [DataType],
    /// The highest number of a parameter.
    most: usize,
    missing: Option<usize>,
}

impl<'a> Bind<'a> {
    fn new(values: &'a [Expr], types: &'a [DataType]) -> Self {
        Bind { values, types, most: 0, missing: None }
    }
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
