//! PostgreSQL's catalog, and the queries that its clients ask of it.
//!
//! Drivers and tools look into `pg_catalog` with all of PostgreSQL's SQL: correlated and lateral
//! queries, `ARRAY(SELECT …)`, functions that give rows in a SELECT list, `'t'::regclass`. What they
//! look at is small. So such queries are not planned as those over stored tables are: they run here,
//! row by row over relations in memory, by PostgreSQL's own rules of names and types.
//!
//! In the order a query meets them:
//!
//! * [`query`](fn@query), [`describe`]: text in, rows out.
//! * `bind/`: names and types are resolved; `query.rs` and `query/expr.rs` are what comes out.
//! * `query/exec.rs`, `source.rs`, `aggregate.rs`: runs it. `query/functions/`: what it may call.
//! * `types.rs`, `value.rs`, `text.rs`: PostgreSQL's types, values, and how they are written.
//! * `relation.rs`: what is asked: relations, and an [`Environment`] that has them.
//! * `database.rs`, `database/tables/`: the relations' rows, of a [`Database`](database::Database).
//!
//! It knows nothing of DataFusion, Arrow or files.

mod bind;
pub mod database;
mod query;
mod relation;
mod text;
pub mod types;
mod value;

use std::sync::Arc;

use sqlparser::ast;
use thalweg_base::Result;

use query::{aggregate, exec, functions};

pub use query::expr::Context;
pub use query::functions::session::{SERVER_VERSION, SERVER_VERSION_NUM};
pub use query::functions::{Resolved, is_of_server, of_server, scalar};
pub use relation::{Column, Environment, Privilege, Relation};
pub use text::{parse_rows, print, quote_ident};
pub use types::Oid;
pub use value::{Row, Value};

/// Whether queries over the catalog can call a function, a plain one or another.
pub fn knows_function(name: &str) -> bool {
    functions::exists(name)
        || aggregate::Kind::named(name).is_some()
        || matches!(name, "coalesce" | "nullif" | "array" | "row_number" | "rank" | "dense_rank")
}

/// Calls a function that [`scalar`] has found.
pub fn call(resolved: &Resolved, env: &dyn Environment, arguments: &[Value]) -> Result<Value> {
    if resolved.scalar.strict && arguments.iter().any(Value::is_null) {
        return Ok(Value::Null);
    }
    (resolved.scalar.run)(&Context::new(env, &[]), arguments, &resolved.arguments)
}

/// What a statement gives, before or after it has run.
#[derive(Debug)]
pub struct Description {
    /// Types of the parameters `$1`, `$2`, …
    pub parameters: Vec<Oid>,
    pub columns: Vec<ResultColumn>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultColumn {
    pub name: String,
    pub oid: Oid,
    pub typmod: i32,
}

/// The columns and rows of a query. `parameters` are the values of `$1`, `$2`, … as text.
pub fn query(
    query: &ast::Query,
    env: &dyn Environment,
    parameters: &[Option<Arc<str>>],
    types: &[Oid],
) -> Result<(Vec<ResultColumn>, Vec<Row>)> {
    let bound = bind(query, env, types)?.0;
    let ctx = Context::new(env, parameters);
    let rows = exec::run(&ctx, &bound, None)?;
    Ok((columns(&bound), Arc::unwrap_or_clone(Arc::new(rows.to_vec()))))
}

/// What a query gives and takes; `types` are those of its parameters that are known, 0 the others.
pub fn describe(query: &ast::Query, env: &dyn Environment, types: &[Oid]) -> Result<Description> {
    let (bound, parameters) = bind(query, env, types)?;
    Ok(Description { parameters, columns: columns(&bound) })
}

fn bind(
    query: &ast::Query,
    env: &dyn Environment,
    types: &[Oid],
) -> Result<(query::Query, Vec<Oid>)> {
    let known = types.iter().map(|oid| Some(*oid).filter(|oid| *oid != 0)).collect();
    let binder = bind::Binder::new(env, known);
    let bound = binder.statement(query)?;
    let parameters = binder.parameters.borrow().iter().map(|t| t.unwrap_or(types::TEXT)).collect();
    Ok((bound, parameters))
}

fn columns(query: &query::Query) -> Vec<ResultColumn> {
    let column =
        |c: &query::Output| ResultColumn { name: c.name.clone(), oid: c.oid, typmod: c.typmod };
    query.columns.iter().map(column).collect()
}
