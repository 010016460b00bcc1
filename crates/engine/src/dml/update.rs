//! `UPDATE` and `DELETE`.

use datafusion::execution::SendableRecordBatchStream;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Delete, Expr, FromTable, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, Join, JoinConstraint, JoinOperator, ObjectName, Query, SelectItem,
    TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins, Update, UpdateTableFromKind,
    Value, With,
};
use futures::StreamExt;
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_bind::ASSIGNED_ROW;
use thalweg_storage::Snapshot;

use thalweg_errors::{MANY_ROWS, from_datafusion};
use thalweg_exec::ROW_ID;
use thalweg_runtime::checkpoint;

use super::apply::{self, Appender, Delta, Kept};
use super::target::{Target, aliased, alone, qualified, select};
use super::{Job, returning, truncate};
use crate::answer::Tag;
use crate::statement::Started;

pub async fn delete(job: &Job<'_>, with: Option<With>, mut delete: Delete) -> Result<Started> {
    let returning = delete.returning.take();
    let target = target_of_delete(&job.snapshot, &delete)?;
    if returning.is_none() && delete.using.is_none() && delete.selection.is_none() {
        let rows = truncate::clear(job, "DELETE", vec![(target.schema, target.table)]).await?;
        return Ok(Started::Done(Tag::Count("DELETE".into(), rows)));
    }
    let mut delta = Delta::new("DELETE");
    let mut kept = returning.is_some().then(|| Kept::new(job));
    let query = deletion(&target, with, delete, kept.is_some())?;
    let plan = apply::plan(job, query).await?;
    let mut rows = apply::run(job, &plan).await?;
    while let Some(batch) = rows.next().await {
        let batch = batch.map_err(from_datafusion)?;
        // With USING, a row is found as often as it has partners, and deleted once.
        let ids = apply::ids(&batch)?;
        match &mut kept {
            None => {
                delta.deleted.insert(ids);
            }
            Some(kept) => {
                let new = (0..).zip(ids).filter(|(_, id)| delta.deleted.insert(&[**id]) == 1);
                let new = new.map(|(row, _)| row).collect();
                kept.push(returning::rows_of(&batch, 1, new, &target.table.arrow_schema)?)?;
            }
        }
        checkpoint().await;
    }
    let count = delta.deleted.len();
    let answer = returning::answer(job, &target, returning, kept).await?;
    delta.commit(job, &target).await?;
    Ok(answer.unwrap_or(Started::Done(Tag::Count("DELETE".into(), count))))
}

pub async fn update(job: &Job<'_>, with: Option<With>, mut update: Update) -> Result<Started> {
    let returning = update.returning.take();
    let target = target_of_update(&job.snapshot, &update)?;
    let mut delta = Delta::new("UPDATE");
    let (has_from, asks) = (update.from.is_some(), sets_rows(&update.assignments));
    let query = new_rows(&target, with.clone(), update.clone(), false)?;
    let mut rows = find(job, &target, query).await;
    if rows.as_ref().is_err_and(|e| e.message() == MANY_ROWS) {
        rows = find(job, &target, new_rows(&target, with, update, true)?).await;
    }
    let mut rows = rows?;
    let mut appender = Appender::new(job, &target.table, returning.is_some());
    while let Some(batch) = rows.next().await {
        let batch = batch.map_err(from_datafusion)?;
        let ids = apply::ids(&batch)?;
        if delta.deleted.insert(ids) < ids.len() as u64 {
            if !has_from {
                // Only a query that is joined can have given it more often.
                let error = "more than one row returned by a subquery used as an expression";
                return Err(Error::user(error).code("21000"));
            }
            return Err(Error::user(format!(
                "a row of table {} would be updated twice: several rows of {} match it",
                quoted(&target.name()),
                if asks { "FROM or of a subquery" } else { "FROM" }
            ))
            .code("21000")
            .hint("make FROM give one row for each, with GROUP BY or DISTINCT"));
        }
        appender.push(&batch.columns()[1..]).await?;
        checkpoint().await;
    }
    let (extents, count, kept) = appender.finish().await?;
    (delta.added, delta.added_rows) = (extents, count);
    let answer = returning::answer(job, &target, returning, kept).await?;
    delta.commit(job, &target).await?;
    Ok(answer.unwrap_or(Started::Done(Tag::Count("UPDATE".into(), count))))
}

async fn find(job: &Job<'_>, target: &Target, query: Query) -> Result<SendableRecordBatchStream> {
    let plan = apply::plan_rows(job, query, 1, &target.table, 1).await?;
    apply::run(job, &plan).await
}

pub fn query_of_delete(snapshot: &Snapshot, with: Option<With>, delete: &Delete) -> Result<Query> {
    deletion(&target_of_delete(snapshot, delete)?, with, delete.clone(), false)
}

pub fn query_of_update(snapshot: &Snapshot, with: Option<With>, update: &Update) -> Result<Query> {
    new_rows(&target_of_update(snapshot, update)?, with, update.clone(), false)
}

pub fn target_of_delete(snapshot: &Snapshot, delete: &Delete) -> Result<Target> {
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
    if !delete.tables.is_empty() || delete.output.is_some() {
        return Err(Error::unsupported("this form of DELETE is not supported")
            .hint("DELETE FROM t [USING …] [WHERE …] [RETURNING …]"));
    }
    if !delete.order_by.is_empty() || delete.limit.is_some() {
        return Err(Error::unsupported("DELETE with ORDER BY or LIMIT is not supported")
            .hint("say which rows: WHERE id IN (SELECT id FROM … ORDER BY … LIMIT …)"));
    }
    Target::new(snapshot, one_table(from, "DELETE", "USING")?, "DELETE")
}

pub fn target_of_update(snapshot: &Snapshot, update: &Update) -> Result<Target> {
    if update.or.is_some() || update.output.is_some() {
        return Err(Error::unsupported("this form of UPDATE is not supported")
            .hint("UPDATE t SET … [FROM …] [WHERE …] [RETURNING …]"));
    }
    if !update.order_by.is_empty() || update.limit.is_some() {
        return Err(Error::unsupported("UPDATE with ORDER BY or LIMIT is not supported")
            .hint("say which rows: WHERE id IN (SELECT id FROM … ORDER BY … LIMIT …)"));
    }
    let factor = one_table(std::slice::from_ref(&update.table), "UPDATE", "FROM")?;
    Target::new(snapshot, factor, "UPDATE")
}

fn one_table<'a>(
    tables: &'a [TableWithJoins],
    what: &str,
    clause: &str,
) -> Result<&'a TableFactor> {
    match tables {
        [TableWithJoins { relation, joins }] if joins.is_empty() => Ok(relation),
        _ => Err(Error::unsupported(format!("{what} changes one table"))
            .hint(format!("name the others after {clause}"))),
    }
}

/// `SELECT row id [, all columns] FROM target, using WHERE …`
fn deletion(
    target: &Target,
    with: Option<With>,
    mut delete: Delete,
    columns: bool,
) -> Result<Query> {
    target.unqualify(&mut delete.selection);
    target.unqualify(&mut delete.using);
    let mut projection = vec![aliased(target.row_id(), ROW_ID)];
    if columns {
        projection.extend(every_column(target));
    }
    let mut from = vec![alone(target.factor.clone())];
    from.extend(delete.using.into_iter().flatten());
    Ok(select(with, projection, from, delete.selection))
}

fn every_column(target: &Target) -> impl Iterator<Item = SelectItem> {
    let fields = target.table.arrow_schema.fields();
    fields.iter().map(|f| aliased(target.column(f.name()), f.name()))
}

/// `SELECT row id, new value of each column FROM target, from WHERE …`
///
/// DataFusion does not plan `SET a = (SELECT b FROM u WHERE u.k = t.k)` where the subquery may give
/// several rows. With `lateral` it becomes a join, and several rows an error of the statement.
fn new_rows(
    target: &Target,
    with: Option<With>,
    mut update: Update,
    lateral: bool,
) -> Result<Query> {
    target.unqualify(&mut update.assignments);
    target.unqualify(&mut update.selection);
    target.unqualify(&mut update.from);
    let mut queries = vec![];
    let always = Expr::Value(Value::Boolean(true).into());
    let mut values = assigned(target, update.assignments, &always, &mut queries)?;
    if lateral {
        for value in &mut values {
            if let Some(Expr::Subquery(query)) = value {
                let columns = joined(query.clone(), 1, &always, &mut queries);
                *value = columns.into_iter().next();
            }
        }
    }
    let mut projection = vec![aliased(target.row_id(), ROW_ID)];
    for (field, value) in target.table.arrow_schema.fields().iter().zip(values) {
        projection
            .push(aliased(value.unwrap_or_else(|| target.column(field.name())), field.name()));
    }
    let mut from = vec![alone(target.factor.clone())];
    if let Some(UpdateTableFromKind::BeforeSet(more) | UpdateTableFromKind::AfterSet(more)) =
        update.from
    {
        from.extend(more);
    }
    if !queries.is_empty() {
        from = vec![beside_all(from, queries)];
    }
    Ok(select(with, projection, from, update.selection))
}

/// `first CROSS JOIN (second) … JOIN queries`: the queries may name the tables of all items.
fn beside_all(items: Vec<TableWithJoins>, queries: Vec<Join>) -> TableWithJoins {
    let mut items = items.into_iter();
    let mut all = items.next().expect("the target is an item");
    all.joins.extend(items.map(|item| Join {
        relation: match item.joins.is_empty() {
            true => item.relation,
            false => TableFactor::NestedJoin { table_with_joins: Box::new(item), alias: None },
        },
        global: false,
        join_operator: JoinOperator::CrossJoin(JoinConstraint::None),
    }));
    all.joins.extend(queries);
    all
}

/// Joins a query whose row is assigned to so many columns, in the rows where `when` holds, and returns its
/// columns: `LEFT JOIN LATERAL (query) AS name(c0, c1 …) ON when`.
fn joined(subquery: Box<Query>, width: usize, when: &Expr, queries: &mut Vec<Join>) -> Vec<Expr> {
    let name = format!("{ASSIGNED_ROW}{}", queries.len());
    let columns: Vec<String> = (0..width).map(|at| format!("c{at}")).collect();
    let defined = columns.iter().map(|column| TableAliasColumnDef {
        name: Ident::with_quote('"', column),
        data_type: None,
    });
    let alias = TableAlias {
        explicit: true,
        name: Ident::with_quote('"', &name),
        columns: defined.collect(),
        at: None,
    };
    let relation =
        TableFactor::Derived { lateral: true, subquery, alias: Some(alias), sample: None };
    let on = JoinConstraint::On(when.clone());
    queries.push(Join { relation, global: false, join_operator: JoinOperator::LeftOuter(on) });
    columns.iter().map(|column| qualified(&name, column)).collect()
}

/// Whether a query may give the values of several columns.
pub fn sets_rows(assignments: &[Assignment]) -> bool {
    assignments.iter().any(|a| matches!(a.target, AssignmentTarget::Tuple(_)))
}

/// For each column of the table, what it is set to. A query that gives several columns is one of `queries`,
/// which are to be joined: what its row is may hang on all of its columns. It is asked where `when` holds.
pub fn assigned(
    target: &Target,
    assignments: Vec<Assignment>,
    when: &Expr,
    queries: &mut Vec<Join>,
) -> Result<Vec<Option<Expr>>> {
    let mut values = vec![None; target.table.arrow_schema.fields().len()];
    let mut set = |name: &ObjectName, value: Expr| {
        let column = target.index(name)?;
        match values[column].replace(target.value(column, value)?) {
            None => Ok(()),
            Some(_) => Err(Error::user(format!(
                "column {} is assigned twice",
                quoted(target.table.arrow_schema.field(column).name())
            ))
            .code("42601")),
        }
    };
    for assignment in assignments {
        match assignment.target {
            AssignmentTarget::ColumnName(name) => set(&name, assignment.value)?,
            AssignmentTarget::Tuple(names) => {
                let parts = parts(assignment.value, names.len(), when, queries)?;
                for (name, value) in names.iter().zip(parts) {
                    set(name, value)?;
                }
            }
        }
    }
    Ok(values)
}

/// The parts of `(1, 2)`, of `ROW (1, 2)` or of `(SELECT a, b FROM …)`.
fn parts(value: Expr, wanted: usize, when: &Expr, queries: &mut Vec<Join>) -> Result<Vec<Expr>> {
    let values = match value {
        Expr::Tuple(values) => values,
        Expr::Nested(inner) if matches!(*inner, Expr::Subquery(_)) => {
            return parts(*inner, wanted, when, queries);
        }
        Expr::Subquery(query) => return Ok(joined(query, wanted, when, queries)),
        Expr::Nested(inner) => vec![*inner],
        other => match items_of_row(&other) {
            Some(items) => items,
            None => vec![other],
        },
    };
    if values.len() == wanted {
        return Ok(values);
    }
    Err(Error::user(format!("{wanted} columns are assigned {} values", values.len())).code("42601"))
}

/// `ROW (1, 2)`
fn items_of_row(value: &Expr) -> Option<Vec<Expr>> {
    let Expr::Function(call) = value else { return None };
    let FunctionArguments::List(list) = &call.args else { return None };
    let [part] = &call.name.0[..] else { return None };
    let word = part.as_ident().filter(|ident| ident.quote_style.is_none())?;
    let items = list.args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(item)) => Some(item.clone()),
        _ => None,
    });
    if word.value.eq_ignore_ascii_case("row") { items.collect() } else { None }
}
