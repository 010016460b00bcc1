//! `UPDATE` and `DELETE`.

use datafusion::execution::SendableRecordBatchStream;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Delete, Expr, FromTable, Ident, Join, JoinConstraint,
    JoinOperator, ObjectName, Query, SelectItem, SetExpr, TableAlias, TableAliasColumnDef,
    TableFactor, TableWithJoins, Update, UpdateTableFromKind, Value, With,
};
use futures::StreamExt;
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_storage::Snapshot;

use super::apply::{self, Appender, Delta, Kept};
use super::target::{Target, aliased, alone, is_default, qualified, select};
use super::{Job, returning, truncate};
use crate::answer::Tag;
use crate::statement::Started;
use thalweg_errors::{MANY_ROWS, from_datafusion};
use thalweg_exec::ROW_ID;
use thalweg_runtime::checkpoint;

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
            return Err(Error::user(format!(
                "a row of table {} would be updated twice: several rows of FROM match it",
                quoted(&target.name())
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
    let plan = apply::plan_rows(job, query, 1, &target.table).await?;
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
    let mut values = assigned(target, update.assignments)?;
    let mut source = alone(target.factor.clone());
    if lateral {
        for (i, value) in values.iter_mut().enumerate() {
            if let Some(Expr::Subquery(query)) = value {
                let name = format!("set{i}\0");
                source.joins.push(lateral_join(query.clone(), &name));
                *value = Some(qualified(&name, VALUE));
            }
        }
    }
    let mut projection = vec![aliased(target.row_id(), ROW_ID)];
    for (field, value) in target.table.arrow_schema.fields().iter().zip(values) {
        projection
            .push(aliased(value.unwrap_or_else(|| target.column(field.name())), field.name()));
    }
    let mut from = vec![source];
    if let Some(UpdateTableFromKind::BeforeSet(more) | UpdateTableFromKind::AfterSet(more)) =
        update.from
    {
        from.extend(more);
    }
    Ok(select(with, projection, from, update.selection))
}

/// The one column of a subquery that is joined.
const VALUE: &str = "value";

/// `LEFT JOIN LATERAL (query) AS name(value) ON true`
fn lateral_join(subquery: Box<Query>, name: &str) -> Join {
    let column = TableAliasColumnDef { name: Ident::with_quote('"', VALUE), data_type: None };
    let alias = TableAlias {
        explicit: true,
        name: Ident::with_quote('"', name),
        columns: vec![column],
        at: None,
    };
    let on = JoinConstraint::On(Expr::Value(Value::Boolean(true).into()));
    Join {
        relation: TableFactor::Derived {
            lateral: true,
            subquery,
            alias: Some(alias),
            sample: None,
        },
        global: false,
        join_operator: JoinOperator::LeftOuter(on),
    }
}

/// For each column of the table, what it is set to.
pub fn assigned(target: &Target, assignments: Vec<Assignment>) -> Result<Vec<Option<Expr>>> {
    let mut values = vec![None; target.table.arrow_schema.fields().len()];
    let mut set = |name: &ObjectName, value: Expr| {
        let column = target.index(name)?;
        let value = match &value {
            v if is_default(v) => target.default(column)?,
            Expr::Value(v) if matches!(v.value, Value::Placeholder(_)) => {
                target.typed(column, value)
            }
            Expr::Subquery(_) => value,
            // A clock's time becomes an instant, and an instant a clock's time, in the session's zone.
            _ if matches!(
                target.table.arrow_schema.field(column).data_type(),
                arrow::datatypes::DataType::Timestamp(..)
            ) =>
            {
                target.typed(column, value)
            }
            _ => value,
        };
        match values[column].replace(value) {
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
                let parts = parts(assignment.value, names.len())?;
                for (name, value) in names.iter().zip(parts) {
                    set(name, value)?;
                }
            }
        }
    }
    Ok(values)
}

/// The parts of `(1, 2)` or of `(SELECT a, b FROM …)`.
fn parts(value: Expr, wanted: usize) -> Result<Vec<Expr>> {
    let parts = match value {
        Expr::Tuple(parts) => parts,
        Expr::Nested(inner) => return parts_of_one(*inner, wanted),
        Expr::Subquery(query) => {
            let SetExpr::Select(select) = query.body.as_ref() else {
                return Err(Error::unsupported("a set operation cannot be assigned to columns")
                    .hint("put it into a subquery: (SELECT a, b FROM (… UNION …))"));
            };
            let items = select.projection.len();
            let one = |at: usize| {
                let mut query = query.clone();
                if let SetExpr::Select(select) = query.body.as_mut() {
                    select.projection = vec![select.projection.swap_remove(at)];
                }
                Expr::Subquery(query)
            };
            (0..items).map(one).collect()
        }
        other => return parts_of_one(other, wanted),
    };
    check_count(parts, wanted)
}

fn parts_of_one(value: Expr, wanted: usize) -> Result<Vec<Expr>> {
    check_count(vec![value], wanted)
}

fn check_count(parts: Vec<Expr>, wanted: usize) -> Result<Vec<Expr>> {
    if parts.len() == wanted {
        return Ok(parts);
    }
    Err(Error::user(format!("{wanted} columns are assigned {} values", parts.len())).code("42601"))
}
