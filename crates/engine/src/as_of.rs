//! Tables as they were: `t VERSION AS OF 12`, `t TIMESTAMP AS OF …`, and `SET thalweg.as_of`.
//!
//! DataFusion's planner knows no versions of a table. Each becomes a name of its own,
//! `t␀12`, which the catalog looks up in snapshot 12.

use crate::defaults;
use std::collections::HashSet;
use std::ops::ControlFlow;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, TimeUnit, TimestampMillisecondType};
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Cte, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, Query, TableFactor,
    TableVersion, Value, Visit, VisitMut, Visitor, VisitorMut,
};
use thalweg_base::{Error, Result, SnapshotId};
use thalweg_storage::AsOf;

use thalweg_plan::zones::STORED_ZONE;

use crate::catalog::Catalog;
use crate::names::{decorate, folded};
use crate::walk::{walk, walk_mut};

/// Gives every table with a version its name in the catalog.
pub async fn resolve(
    catalog: &Catalog,
    state: &SessionState,
    statement: &mut Statement,
) -> Result<()> {
    match statement {
        Statement::Explain(explain) => {
            Box::pin(resolve(catalog, state, &mut explain.statement)).await
        }
        Statement::Statement(statement) => resolve_in(catalog, state, statement.as_mut()).await,
        _ => Ok(()),
    }
}

/// The same for a part of a statement.
pub async fn resolve_in<T: Visit + VisitMut>(
    catalog: &Catalog,
    state: &SessionState,
    node: &mut T,
) -> Result<()> {
    let mut found = Found::default();
    let _ = walk(node, &mut found);
    if found.0.is_empty() {
        return Ok(());
    }
    let mut ids = vec![];
    for version in &found.0 {
        ids.push(catalog.version(as_of(state, version)?).await?);
    }
    let mut named = Named(ids.into_iter());
    let _ = walk_mut(node, &mut named);
    Ok(())
}

/// What `SET thalweg.as_of` was given: the number of a snapshot, or a time.
pub fn parse(state: &SessionState, text: &str) -> Result<AsOf> {
    match text.trim().parse::<u64>() {
        Ok(id) => Ok(AsOf::Snapshot(SnapshotId(id))),
        Err(_) => time(state, &format!("'{}'", text.replace('\'', "''"))),
    }
}

fn as_of(state: &SessionState, version: &TableVersion) -> Result<AsOf> {
    match version {
        TableVersion::ForSystemTimeAsOf(expr) | TableVersion::TimestampAsOf(expr) => {
            time(state, &expr.to_string())
        }
        TableVersion::VersionAsOf(expr) => snapshot(expr),
        TableVersion::Function(Expr::Function(function)) => {
            if let FunctionArguments::List(list) = &function.args
                && let [FunctionArg::Named { name, arg: FunctionArgExpr::Expr(expr), .. }] =
                    &list.args[..]
                && folded(&function.name) == "at"
            {
                match name.value.to_lowercase().as_str() {
                    "version" => return snapshot(expr),
                    "timestamp" => return time(state, &expr.to_string()),
                    _ => {}
                }
            }
            Err(unknown(version))
        }
        _ => Err(unknown(version)),
    }
}

fn unknown(version: &TableVersion) -> Error {
    Error::user(format!("{version} is not a version of a table"))
        .hint("write VERSION AS OF 12, or TIMESTAMP AS OF '2026-01-31 12:00:00'")
}

fn snapshot(expr: &Expr) -> Result<AsOf> {
    if let Expr::Value(value) = expr
        && let Value::Number(digits, _) = &value.value
        && let Ok(id) = digits.parse()
    {
        return Ok(AsOf::Snapshot(SnapshotId(id)));
    }
    Err(Error::user(format!("a version is the number of a snapshot, not {expr}"))
        .hint("SELECT * FROM system.snapshots lists them"))
}

/// A point in time, as `SET thalweg.as_of` takes it, in milliseconds since 1970.
pub fn time_ms(state: &SessionState, text: &str) -> Result<u64> {
    match time(state, &format!("'{}'", text.replace('\'', "''")))? {
        AsOf::TimeMs(ms) => Ok(ms),
        AsOf::Snapshot(_) => Err(Error::internal("a time that is a snapshot")),
    }
}

/// Any expression without columns; a time without a zone is UTC.
fn time(state: &SessionState, sql: &str) -> Result<AsOf> {
    let wrong = |e: Error| {
        Error::user(format!("{sql} is not a point in time: {}", e.message()))
            .hint("write a timestamp such as '2026-01-31 12:00:00', or now() - INTERVAL '1 hour'")
    };
    let millisecond = DataType::Timestamp(TimeUnit::Millisecond, Some(STORED_ZONE.into()));
    let value = defaults::constant(state, sql, &millisecond).map_err(wrong)?;
    let times = value.as_primitive_opt::<TimestampMillisecondType>();
    match times.and_then(|t| t.iter().next().flatten()) {
        Some(ms) if ms >= 0 => Ok(AsOf::TimeMs(ms as u64)),
        _ => Err(wrong(Error::user("it is NULL, or before 1970"))),
    }
}

/// Lets a query (a view's) read every table as of one snapshot, where it names no other.
pub fn pin(statement: &mut Statement, id: SnapshotId) {
    let Statement::Statement(statement) = statement else { return };
    let mut pinned = Pinned { id, ctes: HashSet::new() };
    let _ = walk_mut(statement.as_mut(), &mut pinned);
}

#[derive(Default)]
struct Found(Vec<TableVersion>);

impl Visitor for Found {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { version: Some(version), .. } = factor {
            self.0.push(version.clone());
        }
        ControlFlow::Continue(())
    }
}

struct Named<I>(I);

impl<I: Iterator<Item = SnapshotId>> VisitorMut for Named<I> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, alias, version, .. } = factor
            && version.take().is_some()
            && let Some(id) = self.0.next()
        {
            decorate(name, alias, &id.to_string());
        }
        ControlFlow::Continue(())
    }
}

struct Pinned {
    id: SnapshotId,
    ctes: HashSet<String>,
}

impl VisitorMut for Pinned {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let ctes: &[Cte] = query.with.as_ref().map_or(&[], |w| &w.cte_tables);
        self.ctes.extend(ctes.iter().map(|cte| folded(&ObjectName::from(cte.alias.name.clone()))));
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args: None, version: version @ None, .. } = factor
            && !self.ctes.contains(&folded(name))
        {
            let number = Value::Number(self.id.to_string(), false);
            *version = Some(TableVersion::VersionAsOf(Expr::Value(number.into())));
        }
        ControlFlow::Continue(())
    }
}
