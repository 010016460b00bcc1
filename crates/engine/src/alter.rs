//! `ALTER TABLE`. Columns are added, dropped and renamed in the catalog alone; a change of a type
//! writes the table anew.

use std::sync::Arc;
use std::time::Instant;

use arrow::datatypes::{Field, Schema};
use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    self, AlterColumnOperation, AlterTable, AlterTableOperation, CastKind, ColumnDef, ColumnOption,
    ColumnOptionDef, Expr, Ident, ObjectName, RenameTableNameKind,
};
use futures::StreamExt;
use thalweg_base::{Error, Result};
use thalweg_storage::{Layout, Summary, Table, TableSpec, Transaction, check_schema, fit_text};

use thalweg_errors::from_datafusion;
use thalweg_runtime::checkpoint;

use crate::answer::Tag;
use crate::dml::{Job, apply, target};
use crate::statement::Started;
use crate::write::{Target, Writers};
use crate::{bound, ddl, declared, defaults, names};

pub async fn run(job: &Job<'_>, alter: AlterTable) -> Result<Started> {
    let done = Ok(Started::Done(Tag::Done("ALTER TABLE".into())));
    let found = target::table(&job.snapshot, &alter.name, "ALTER TABLE");
    let (schema, table) = match found {
        Err(e) if alter.if_exists && e.sqlstate() == "42P01" => return done,
        found => found?,
    };
    let [operation] = &alter.operations[..] else {
        return Err(Error::unsupported("ALTER TABLE makes one change at a time")
            .hint("make several in one transaction: BEGIN; ALTER TABLE …; ALTER TABLE …; COMMIT"));
    };
    use AlterTableOperation as A;
    match operation {
        A::AddColumn { if_not_exists, column_def, column_position: None, .. } => {
            let name = names::ident(&column_def.name);
            if *if_not_exists && table.arrow_schema.index_of(&name).is_ok() {
                return done;
            }
            add_column(job, &schema, &table, column_def).await?;
        }
        A::DropColumn { column_names, if_exists, .. } => {
            let mut columns: Vec<String> = column_names.iter().map(names::ident).collect();
            if *if_exists {
                columns.retain(|name| table.arrow_schema.index_of(name).is_ok());
            }
            if columns.is_empty() {
                return done;
            }
            let id = table.id;
            commit(job, &schema, &table, move |t| {
                columns.iter().try_for_each(|name| t.drop_column(id, name))
            })
            .await?;
        }
        A::RenameColumn { old_column_name, new_column_name } => {
            let (id, from, to) =
                (table.id, names::ident(old_column_name), names::ident(new_column_name));
            commit(job, &schema, &table, move |t| t.rename_column(id, &from, &to)).await?;
        }
        A::RenameTable {
            table_name: RenameTableNameKind::To(name) | RenameTableNameKind::As(name),
        } => {
            let to = new_name(&schema, name)?;
            if job.snapshot.schemas[&schema].relation(&to).is_some() {
                return Err(names::already_exists(&schema, &to));
            }
            let id = table.id;
            commit(job, &schema, &table, move |t| t.rename_table(id, &to)).await?;
        }
        A::ClusterBy { exprs } => {
            let (id, columns) = (table.id, ddl::names_of(exprs));
            ddl::column_indices(&table.arrow_schema, &columns)?;
            commit(job, &schema, &table, move |t| t.set_cluster_by(id, columns)).await?;
        }
        A::DropClusteringKey => {
            let id = table.id;
            commit(job, &schema, &table, move |t| t.set_cluster_by(id, vec![])).await?;
        }
        A::AlterColumn { column_name, op } => {
            alter_column(job, &schema, &table, &names::ident(column_name), op).await?;
        }
        other => {
            return Err(Error::unsupported(format!("ALTER TABLE … {other} is not supported")).hint(
                "it can ADD, DROP, RENAME and ALTER columns, RENAME TO, CLUSTER BY and DROP CLUSTERING KEY",
            ));
        }
    }
    done
}

/// A name in the table's own schema.
fn new_name(schema: &str, name: &ObjectName) -> Result<String> {
    let parts: Vec<String> = name.0.iter().filter_map(|p| p.as_ident()).map(names::ident).collect();
    match &parts[..] {
        [name] => Ok(name.clone()),
        [of, name] if of == schema => Ok(name.clone()),
        _ => Err(Error::unsupported("a table cannot be moved to another schema")
            .hint("CREATE TABLE … AS SELECT copies it; DROP TABLE removes the old one")),
    }
}

async fn commit(
    job: &Job<'_>,
    schema: &str,
    table: &Table,
    change: impl FnOnce(&mut Transaction) -> Result<()> + Send + 'static,
) -> Result<()> {
    let table = format!("{schema}.{}", table.name);
    ddl::commit(job.session, move |t| {
        change(t)?;
        t.describe(Summary { operation: "ALTER TABLE".into(), table, ..Summary::default() });
        Ok(())
    })
    .await
}

async fn add_column(job: &Job<'_>, schema: &str, table: &Table, column: &ColumnDef) -> Result<()> {
    for option in &column.options {
        match &option.option {
            ColumnOption::Default(_) | ColumnOption::Null | ColumnOption::NotNull => {}
            other => {
                return Err(Error::unsupported(format!("ADD COLUMN … {other} is not supported"))
                    .hint("DEFAULT and NOT NULL are"));
            }
        }
    }
    let field = declared(job.state, column)?;
    let (initial, default) = match ddl::default_of(column) {
        None => (None, None),
        Some(text) => {
            ddl::check_default(job.state, &text, &field)?;
            // The same for all rows that are there, also of now().
            let value = defaults::constant(job.state, &text, field.data_type())?;
            let value = fit_text(value, &field)?;
            (Some(value), Some(defaults::kept(job.state, &text, &field)?))
        }
    };
    let id = table.id;
    commit(job, schema, table, move |t| t.add_column(id, field, initial, default)).await
}

/// The column that a definition makes, by the rules of CREATE TABLE.
fn declared(state: &SessionState, column: &ColumnDef) -> Result<Field> {
    let field = bound::field_of(state, column).map_err(from_datafusion)?;
    let schema = ddl::table_schema(&Schema::new(vec![field]), false)?;
    let length = declared::length(&column.data_type)?;
    Ok(declared::declare(&schema, &[length]).field(0).clone())
}

async fn alter_column(
    job: &Job<'_>,
    schema: &str,
    table: &Arc<Table>,
    name: &str,
    operation: &AlterColumnOperation,
) -> Result<()> {
    let (id, column) = (table.id, name.to_string());
    let at = ddl::column_index(&table.arrow_schema, name, "ALTER COLUMN")?;
    let field = table.arrow_schema.field(at);
    match operation {
        AlterColumnOperation::SetDefault { value } => {
            let text = value.to_string();
            ddl::check_default(job.state, &text, field)?;
            let text = defaults::kept(job.state, &text, field)?;
            commit(job, schema, table, move |t| t.set_default(id, &column, Some(text))).await
        }
        AlterColumnOperation::DropDefault => {
            commit(job, schema, table, move |t| t.set_default(id, &column, None)).await
        }
        AlterColumnOperation::DropNotNull => {
            commit(job, schema, table, move |t| t.drop_not_null(id, &column)).await
        }
        AlterColumnOperation::SetNotNull if !field.is_nullable() => Ok(()),
        AlterColumnOperation::SetNotNull => {
            let value = identifier(name);
            rewrite(job, schema, table, at, field.clone().with_nullable(false), value).await
        }
        AlterColumnOperation::SetDataType { data_type, using, .. } => {
            let options = if field.is_nullable() { vec![] } else { vec![not_null()] };
            let definition = ColumnDef {
                name: Ident::with_quote('"', name),
                data_type: data_type.clone(),
                options,
            };
            let new = declared(job.state, &definition)?;
            // A text that is too long is refused, and not cut, as by a cast that the statement writes.
            let is_text = declared::length(data_type)?.is_some();
            let data_type = if is_text { &ast::DataType::Text } else { data_type };
            let value = using.clone().unwrap_or_else(|| Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(identifier(name)),
                data_type: data_type.clone(),
                array: false,
                format: None,
            });
            rewrite(job, schema, table, at, new, value).await
        }
        other => Err(Error::unsupported(format!("ALTER COLUMN … {other} is not supported"))
            .hint("SET and DROP DEFAULT, SET and DROP NOT NULL, and TYPE are")),
    }
}

fn identifier(name: &str) -> Expr {
    Expr::Identifier(Ident::with_quote('"', name))
}

fn not_null() -> ColumnOptionDef {
    ColumnOptionDef { name: None, option: ColumnOption::NotNull }
}

/// Writes the table anew under its name, with another column at `at`.
async fn rewrite(
    job: &Job<'_>,
    schema: &str,
    table: &Arc<Table>,
    at: usize,
    field: Field,
    value: Expr,
) -> Result<()> {
    let started = Instant::now();
    let new = Arc::new(Schema::new(
        table
            .arrow_schema
            .fields()
            .iter()
            .enumerate()
            .map(|(i, old)| if i == at { field.clone() } else { old.as_ref().clone() })
            .collect::<Vec<_>>(),
    ));
    let mut kept: Vec<Option<String>> = table.columns.iter().map(|c| c.default.clone()).collect();
    if let Some(text) = &mut kept[at] {
        let old = table.arrow_schema.field(at);
        if old.data_type() != field.data_type() {
            let retyped = defaults::retyped(text, old)?;
            ddl::check_default(job.state, &retyped, &field)?;
            *text = defaults::kept(job.state, &retyped, &field)?;
        }
    }
    let spec = TableSpec {
        cluster_by: table.cluster_by.clone(),
        partition_by: table.partition_by,
        defaults: kept,
    };
    // Now, and not after all rows have been written.
    check_schema(&table.name, &new, &spec)?;
    let projection = new
        .fields()
        .iter()
        .enumerate()
        .map(|(i, f)| {
            let value = if i == at { value.clone() } else { identifier(f.name()) };
            target::aliased(value, f.name())
        })
        .collect();
    let part = |text: &str| Ident::with_quote('"', text);
    let name = ObjectName::from(vec![part(schema), part(&table.name)]);
    let from = vec![target::alone(target::named(name, None))];
    let query = target::select(None, projection, from, None);
    let plan = apply::plan(job, query).await?;
    let mut rows = apply::run(job, &plan).await?;
    let engine = &job.session.engine;
    let layout = Layout::of_new(Arc::clone(&new), &spec);
    let target = Target { database: engine.database().clone(), layout };
    let mut writers = Writers::new(target, engine.config().threads);
    while let Some(batch) = rows.next().await {
        let batch = batch.map_err(from_datafusion)?;
        writers.push(ddl::conform(batch.columns(), &new)?).await?;
        checkpoint().await;
    }
    let (extents, count) = writers.finish().await?;
    let (schema, old) = (schema.to_string(), Arc::clone(table));
    ddl::commit(job.session, move |t| {
        // So that a commit in between that changed its rows is a conflict.
        t.truncate(old.id)?;
        let table = t.recreate_table(&schema, &old.name, new, spec)?;
        t.append(table, extents)?;
        t.describe(Summary {
            operation: "ALTER TABLE".into(),
            table: format!("{schema}.{}", old.name),
            rows_added: count,
            rows_removed: old.rows(),
            millis: started.elapsed().as_millis() as u64,
            ..Summary::default()
        });
        Ok(())
    })
    .await
}
