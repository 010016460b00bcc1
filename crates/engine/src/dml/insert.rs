//! `INSERT`.

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{LogicalPlan, WriteOp};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    self, Expr, Ident, Insert, ObjectName, Parens, Query, SetExpr, TableObject, Value, Values,
    Visitor, With,
};
use futures::StreamExt;
use thalweg_base::{Error, Result, Subject};
use thalweg_storage::{RelationKind, Snapshot};

use thalweg_errors::from_datafusion;
use thalweg_runtime::checkpoint;

use super::apply::{self, Added, Appender, Delta};
use super::target::{self, Target, is_default};
use super::{Job, returning};
use crate::access::Viewer;
use crate::answer::Tag;
use crate::names::{TARGET, decorate};
use crate::statement::Started;
use crate::walk::walk;
use crate::{ddl, statement};

pub async fn run(job: &Job<'_>, with: Option<With>, mut insert: Insert) -> Result<Started> {
    let TableObject::TableName(name) = &insert.table else {
        return Err(not_a_table());
    };
    let name = name.clone();
    let returning = insert.returning.take();
    let alias = insert.table_alias.take().map(|a| a.alias);
    if is_external(&job.snapshot, &name) {
        if returning.is_some() {
            return Err(Error::unsupported("INSERT into an external table has no RETURNING"));
        }
        aim(&mut insert, &job.session.catalog.viewer());
        let plan = plan(job.state, insert).await?;
        let count = statement::execute_count(job.run, job.state, &plan).await?;
        return Ok(Started::Done(Tag::Count("INSERT".into(), count)));
    }
    let target = target(&job.snapshot, name, alias)?;
    let columns = rewrite(&target, with, &mut insert)?;
    aim(&mut insert, &job.session.catalog.viewer());
    let named = |e| name_column(e, &target, &columns);
    let LogicalPlan::Dml(dml) = plan(job.state, insert).await.map_err(named)? else {
        return Err(Error::internal("an INSERT that is planned as something else"));
    };
    let WriteOp::Insert(operation) = dml.op else {
        return Err(Error::internal("an INSERT that is planned as another change"));
    };
    let overwrite = operation == InsertOp::Overwrite;
    let mut rows = apply::run(job, &dml.input).await.map_err(named)?;
    let mut appender = Appender::new(job, &target.table, returning.is_some());
    if !overwrite && job.session.transactions.may_hold() {
        appender = appender.holding();
    }
    let mut delta = Delta::new(if overwrite { "INSERT OVERWRITE" } else { "INSERT" });
    delta.overwrite = overwrite;
    while let Some(batch) = rows.next().await {
        let batch = batch.map_err(|e| named(from_datafusion(e)))?;
        appender.push(batch.columns()).await?;
        checkpoint().await;
    }
    let (added, count, kept) = appender.finish_insert().await?;
    delta.added_rows = count;
    let answer = returning::answer(job, &target, returning, kept).await?;
    match added {
        Added::Held(batches) if count > 0 => delta.hold(job, &target, batches).await?,
        Added::Held(_) => delta.commit(job, &target).await?,
        Added::Extents(extents) => {
            delta.added = extents;
            delta.commit(job, &target).await?;
        }
    }
    Ok(answer.unwrap_or(Started::Done(Tag::Count("INSERT".into(), count))))
}

/// Whether a statement is `INSERT … VALUES` that reads no table: neither in its values nor to return rows.
pub(crate) fn inserts_values(statement: &ast::Statement) -> bool {
    let ast::Statement::Insert(insert) = statement else { return false };
    let Some(source) = &insert.source else { return insert.returning.is_none() };
    let is_plain = insert.returning.is_none() && !insert.overwrite && source.with.is_none();
    let SetExpr::Values(values) = source.body.as_ref() else { return false };
    let mut cells = values.rows.iter().flat_map(|row| &row.content);
    is_plain && !cells.any(has_query)
}

fn has_query(expr: &Expr) -> bool {
    // Most values are literals.
    if matches!(expr, Expr::Value(_)) {
        return false;
    }
    walk(expr, &mut AnyQuery).is_break()
}

struct AnyQuery;

impl Visitor for AnyQuery {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}

async fn plan(state: &SessionState, insert: Insert) -> Result<LogicalPlan> {
    let statement = Statement::Statement(Box::new(ast::Statement::Insert(insert)));
    statement::plan(state, statement).await.map_err(from_datafusion)
}

/// DataFusion looks up the table as one to be read. Who may only add rows to it looks up another.
fn aim(insert: &mut Insert, viewer: &Viewer) {
    if viewer.is_superuser() {
        return;
    }
    if let TableObject::TableName(name) = &mut insert.table {
        decorate(name, &mut None, TARGET);
    }
}

/// Rows for files outside are written by DataFusion.
fn is_external(snapshot: &Snapshot, name: &ObjectName) -> bool {
    matches!(target::relation(snapshot, name), Ok((_, _, Some(RelationKind::External))))
}

/// The statement as DataFusion plans it.
pub fn planned(
    snapshot: &Snapshot,
    with: Option<With>,
    insert: &Insert,
    viewer: &Viewer,
) -> Result<ast::Statement> {
    let mut insert = insert.clone();
    (insert.returning, insert.table_alias) = (None, None);
    if let TableObject::TableName(name) = &insert.table
        && !is_external(snapshot, name)
    {
        let target = target(snapshot, name.clone(), None)?;
        rewrite(&target, with, &mut insert)?;
    }
    aim(&mut insert, viewer);
    Ok(ast::Statement::Insert(insert))
}

pub fn target_of(snapshot: &Snapshot, insert: &Insert) -> Result<Target> {
    match &insert.table {
        TableObject::TableName(name) => {
            target(snapshot, name.clone(), insert.table_alias.as_ref().map(|a| a.alias.clone()))
        }
        _ => Err(not_a_table()),
    }
}

fn not_a_table() -> Error {
    Error::unsupported("INSERT takes a table, not a function or a query")
}

fn target(snapshot: &Snapshot, name: ObjectName, alias: Option<Ident>) -> Result<Target> {
    let factor = target::named(name, alias);
    Target::new(snapshot, &factor, "INSERT")
}

/// A NULL in VALUES for a column that has none is found by DataFusion, which calls the columns of
/// VALUES by their number.
fn name_column(e: Error, target: &Target, columns: &[usize]) -> Error {
    let column = e.message().split_once("is declared as non-nullable").and_then(|(head, _)| {
        let name = head.split('\'').nth(1)?;
        let number: usize = name.strip_prefix("column")?.parse().ok()?;
        columns.get(number.checked_sub(1)?)
    });
    match column {
        Some(column) => ddl::null_in(target.table.arrow_schema.field(*column)),
        None => e,
    }
}

/// What DataFusion's planner leaves out: `DEFAULT`, and a `WITH` before the statement. Returns the
/// columns that get values, in the order of these.
fn rewrite(target: &Target, with: Option<With>, insert: &mut Insert) -> Result<Vec<usize>> {
    if insert.on.is_some() {
        return Err(Error::unsupported(
            "INSERT … ON CONFLICT is not supported: tables have no keys",
        )
        .hint(
            "MERGE INTO t USING … ON … WHEN MATCHED THEN UPDATE SET … \
                 WHEN NOT MATCHED THEN INSERT …",
        ));
    }
    if insert.replace_into || insert.or.is_some() {
        return Err(Error::unsupported("REPLACE INTO is not supported: tables have no keys")
            .hint("INSERT OVERWRITE replaces all rows, MERGE those that match"));
    }
    let columns: Vec<usize> = if insert.columns.is_empty() {
        let all = target.table.arrow_schema.fields().len();
        // Rows that are too short leave the last columns to their defaults.
        let given = match insert.source.as_deref().map(|query| query.body.as_ref()) {
            Some(SetExpr::Values(values)) => values.rows.first().map_or(all, |r| r.content.len()),
            _ => all,
        };
        if given < all {
            let fields = target.table.arrow_schema.fields().iter().take(given);
            let names = fields.map(|f| Ident::with_quote('"', f.name().as_str()).into());
            insert.columns = names.collect();
        }
        (0..given.min(all)).collect()
    } else {
        insert.columns.iter().map(|c| target.index(c)).collect::<Result<Vec<usize>>>()?
    };
    if !insert.columns.is_empty() {
        // In their own letters.
        let fields = target.table.arrow_schema.fields();
        let name = |&c: &usize| ObjectName::from(Ident::with_quote('"', fields[c].name().as_str()));
        insert.columns = columns.iter().map(name).collect();
    }
    let source = insert.source.get_or_insert_with(|| Box::new(default_values(columns.len())));
    if let SetExpr::Values(values) = source.body.as_mut() {
        check_lengths(values, columns.len())?;
        for row in &mut values.rows {
            for (value, column) in row.content.iter_mut().zip(&columns) {
                if is_default(value) {
                    *value = target.default(*column)?;
                }
            }
        }
    }
    if let Some(mut with) = with {
        if let Some(inner) = source.with.take() {
            with.recursive |= inner.recursive;
            with.cte_tables.extend(inner.cte_tables);
        }
        source.with = Some(with);
    }
    Ok(columns)
}

/// Every row has a value for each column, and no more.
fn check_lengths(values: &Values, columns: usize) -> Result<()> {
    let lengths = || values.rows.iter().map(|row| row.content.len());
    let first = lengths().next().unwrap_or(columns);
    let message = if lengths().any(|length| length != first) {
        "VALUES lists must all be the same length"
    } else if first > columns {
        "INSERT has more expressions than target columns"
    } else if first < columns {
        "INSERT has more target columns than expressions"
    } else {
        return Ok(());
    };
    Err(Error::user(message)
        .code("42601")
        .detail(format!("columns: {columns}, values: {first}"))
        .hint("name the columns that get values: INSERT INTO t (a, b) VALUES (1, 2)")
        .about(Subject::Word("values".into())))
}

/// `DEFAULT VALUES`: one row, of which the statement names no column.
fn default_values(columns: usize) -> Query {
    let default = Expr::Identifier(Ident::new("DEFAULT"));
    let row = Parens::with_empty_span(vec![default; columns]);
    let values = Values { explicit_row: false, value_keyword: false, rows: vec![row] };
    let mut query = target::select(None, vec![], vec![], None);
    query.body = Box::new(SetExpr::Values(values));
    query
}

/// `NULL`
pub fn null() -> Expr {
    Expr::Value(Value::Null.into())
}
