//! Statements that change the catalog; each is one transaction of the storage.

use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::{SchemaReference, TableReference};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{CreateMemoryTable, DdlStatement, LogicalPlan};
use datafusion::physical_plan::execute_stream;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use futures::StreamExt;
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_storage::{NewExtent, Snapshot, Transaction};

use crate::answer::Tag;
use crate::catalog::{CATALOG, PUBLIC};
use crate::error::{from_arrow, from_datafusion};
use crate::files;
use crate::runtime::{Run, blocking};
use crate::session::Inner;
use crate::statement;
use crate::write::{Target, Writers};

/// Removes `CLUSTER BY` from a `CREATE TABLE`, which DataFusion's planner refuses, and returns
/// its columns.
pub fn take_cluster_by(statement: &mut Statement) -> Vec<String> {
    let Statement::Statement(inner) = statement else { return vec![] };
    let ast::Statement::CreateTable(create) = inner.as_mut() else { return vec![] };
    let columns = match create.cluster_by.take() {
        Some(
            ast::WrappedCollection::Parentheses(columns)
            | ast::WrappedCollection::NoWrapping(columns),
        ) => columns,
        None => return vec![],
    };
    // `CLUSTER BY (a, b)` is one row of two columns to the parser.
    let columns = columns.iter().flat_map(|expr| match expr {
        ast::Expr::Tuple(columns) => columns.iter().collect(),
        other => vec![other],
    });
    columns.map(column_name).collect()
}

/// An unquoted name is folded to lower case, as everywhere else.
fn column_name(expr: &ast::Expr) -> String {
    match expr {
        ast::Expr::Identifier(i) if i.quote_style.is_none() => i.value.to_lowercase(),
        ast::Expr::Identifier(i) => i.value.clone(),
        // `CLUSTER BY (a)` alone is a parenthesised expression.
        ast::Expr::Nested(inner) => column_name(inner),
        other => other.to_string(),
    }
}

/// Whether it is `CREATE TABLE … AS SELECT …`.
pub fn creates_from_query(statement: &Statement) -> bool {
    matches!(statement, Statement::Statement(inner)
        if matches!(inner.as_ref(), ast::Statement::CreateTable(create) if create.query.is_some()))
}

pub(crate) struct Job<'a> {
    pub session: &'a Inner,
    pub state: &'a SessionState,
    pub snapshot: Arc<Snapshot>,
    pub sql: &'a str,
    pub cluster_by: Vec<String>,
    pub creates_from_query: bool,
}

impl Job<'_> {
    pub async fn run(self, command: DdlStatement) -> Result<Tag> {
        let done = |word: &str| Ok(Tag::Done(word.into()));
        match command {
            DdlStatement::CreateMemoryTable(create) => self.create_table(create).await,
            DdlStatement::CreateView(create) => {
                refuse(create.temporary, "temporary views", "create an ordinary one and drop it")?;
                let (schema, name) = split_name(&create.name)?;
                let sql = self.sql.to_string();
                let replace = create.or_replace;
                self.commit(move |t| t.create_view(&schema, &name, &sql, replace)).await?;
                done("CREATE VIEW")
            }
            DdlStatement::CreateExternalTable(create) => {
                refuse(create.temporary, "temporary tables", "create an ordinary one and drop it")?;
                refuse(create.unbounded, "unbounded tables", "leave UNBOUNDED out")?;
                let (schema, name) = split_name(&create.name)?;
                if create.if_not_exists && self.exists(&schema, &name) {
                    return done("CREATE EXTERNAL TABLE");
                }
                for location in &create.locations {
                    check_location(location)?;
                }
                // Looks at the files, so that a mistake shows now and not at the first query.
                let table = files::external(&create, self.state).await.map_err(|e| {
                    let place = create.locations.first().map_or("", |l| l.as_str());
                    from_datafusion(e).context(format!("LOCATION {}", quoted(place)))
                })?;
                if table.schema().fields().is_empty() {
                    return Err(Error::user(format!(
                        "external table {} has no columns",
                        quoted(&name)
                    ))
                    .hint("its location holds no file with a schema"));
                }
                let sql = absolute(self.sql, &create.locations)?;
                let replace = create.or_replace && self.exists(&schema, &name);
                self.commit(move |t| {
                    if replace {
                        t.drop_external(&schema, &name)?;
                    }
                    t.create_external(&schema, &name, &sql)
                })
                .await?;
                done("CREATE EXTERNAL TABLE")
            }
            DdlStatement::DropTable(drop) => {
                let (schema, name) = split_name(&drop.name)?;
                let found = self.snapshot.schemas.get(&schema);
                let external = found.is_some_and(|s| s.externals.contains_key(&name));
                if found.is_some_and(|s| s.views.contains_key(&name)) {
                    return Err(Error::user(format!("{} is a view", quoted(&name)))
                        .hint(format!("DROP VIEW {} removes it", quoted(&name))));
                }
                if drop.if_exists && !self.exists(&schema, &name) {
                    return done("DROP TABLE");
                }
                self.commit(move |t| {
                    if external {
                        t.drop_external(&schema, &name)
                    } else {
                        t.drop_table(&schema, &name)
                    }
                })
                .await?;
                done("DROP TABLE")
            }
            DdlStatement::DropView(drop) => {
                let (schema, name) = split_name(&drop.name)?;
                let found = self.snapshot.schemas.get(&schema);
                if found.is_some_and(|s| {
                    s.tables.contains_key(&name) || s.externals.contains_key(&name)
                }) {
                    return Err(Error::user(format!("{} is a table", quoted(&name)))
                        .hint(format!("DROP TABLE {} removes it", quoted(&name))));
                }
                if drop.if_exists && !self.exists(&schema, &name) {
                    return done("DROP VIEW");
                }
                self.commit(move |t| t.drop_view(&schema, &name)).await?;
                done("DROP VIEW")
            }
            DdlStatement::CreateCatalogSchema(create) => {
                let name = schema_name(&create.schema_name)?;
                let lenient = create.if_not_exists;
                self.commit(move |t| t.create_schema(&name, lenient)).await?;
                done("CREATE SCHEMA")
            }
            DdlStatement::DropCatalogSchema(drop) => {
                let name = match drop.name {
                    SchemaReference::Bare { schema } | SchemaReference::Full { schema, .. } => {
                        schema.to_string()
                    }
                };
                self.commit(move |t| t.drop_schema(&name, drop.if_exists, drop.cascade)).await?;
                done("DROP SCHEMA")
            }
            DdlStatement::CreateCatalog(_) => Err(Error::unsupported("a database has one catalog")
                .hint("CREATE SCHEMA makes a namespace; another database is another directory")),
            DdlStatement::CreateIndex(_) => Err(Error::unsupported("there are no indexes").hint(
                "CREATE TABLE … CLUSTER BY (columns) lets queries skip what they do not need",
            )),
            other @ (DdlStatement::CreateFunction(_) | DdlStatement::DropFunction(_)) => {
                let plan = LogicalPlan::Ddl(other);
                self.session.context.execute_logical_plan(plan).await.map_err(from_datafusion)?;
                done("FUNCTION")
            }
        }
    }

    fn exists(&self, schema: &str, name: &str) -> bool {
        self.snapshot.schemas.get(schema).is_some_and(|s| s.relation(name).is_some())
    }

    /// One transaction on a thread that may wait for the disk.
    async fn commit(
        &self,
        change: impl FnOnce(&mut Transaction) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        commit(self.session, change).await
    }

    async fn create_table(&self, create: CreateMemoryTable) -> Result<Tag> {
        refuse(create.temporary, "temporary tables", "create an ordinary one and drop it")?;
        refuse(
            create.constraints.iter().next().is_some(),
            "PRIMARY KEY and UNIQUE constraints",
            "leave them out; NOT NULL is enforced",
        )?;
        refuse(!create.column_defaults.is_empty(), "DEFAULT values", "name the value in INSERT")?;
        let (schema, name) = split_name(&create.name)?;
        let word = if self.creates_from_query { "CREATE TABLE AS" } else { "CREATE TABLE" };
        if create.if_not_exists && self.exists(&schema, &name) {
            return Ok(Tag::Done(word.into()));
        }
        if !create.or_replace && self.exists(&schema, &name) {
            // Before the query runs, not after.
            return Err(already_exists(&schema, &name));
        }
        let plan_schema = create.input.schema().as_arrow();
        let columns = table_schema(plan_schema, self.creates_from_query)?;
        let cluster_by = column_indices(&columns, &self.cluster_by)?;
        let (extents, rows) = if self.creates_from_query {
            self.write_query(&create.input, &columns, &cluster_by).await?
        } else {
            (vec![], 0)
        };
        let replace = create.or_replace && self.exists(&schema, &name);
        self.commit(move |t| {
            if replace {
                t.drop_table(&schema, &name)?;
            }
            let table = t.create_table(&schema, &name, columns, cluster_by)?;
            t.append(table, extents)
        })
        .await?;
        if self.creates_from_query {
            Ok(Tag::Count(word.into(), rows))
        } else {
            Ok(Tag::Done(word.into()))
        }
    }

    async fn write_query(
        &self,
        plan: &LogicalPlan,
        schema: &SchemaRef,
        cluster_by: &[usize],
    ) -> Result<(Vec<NewExtent>, u64)> {
        let run = Run::current().ok_or_else(|| Error::internal("a statement outside any query"))?;
        let physical = statement::physical(&run, self.state, plan).await?;
        let mut rows = execute_stream(physical, self.state.task_ctx()).map_err(from_datafusion)?;
        let target = Target {
            database: self.session.engine.database().clone(),
            schema: Arc::clone(schema),
            cluster_by: cluster_by.to_vec(),
        };
        let mut writers = Writers::new(target, self.session.engine.config().threads);
        while let Some(batch) = rows.next().await {
            let batch = conform(&batch.map_err(from_datafusion)?, schema)?;
            writers.push(batch).await?;
        }
        writers.finish().await
    }
}

pub(crate) async fn commit(
    session: &Inner,
    change: impl FnOnce(&mut Transaction) -> Result<()> + Send + 'static,
) -> Result<()> {
    let database = session.engine.database().clone();
    blocking(move || {
        let mut transaction = database.begin();
        change(&mut transaction)?;
        transaction.commit().map(drop)
    })
    .await
    .map_err(from_datafusion)
}

pub(crate) fn already_exists(schema: &str, name: &str) -> Error {
    let full = if schema == PUBLIC {
        quoted(name)
    } else {
        format!("{}.{}", quoted(schema), quoted(name))
    };
    Error::user(format!("{full} already exists"))
        .hint("use another name, CREATE … IF NOT EXISTS, or drop it first")
}

fn refuse(asked: bool, what: &str, instead: &str) -> Result<()> {
    if asked {
        Err(Error::unsupported(format!("{what} are not supported")).hint(instead))
    } else {
        Ok(())
    }
}

/// Schema and name of a relation in our one catalog.
pub(crate) fn split_name(name: &TableReference) -> Result<(String, String)> {
    if let Some(catalog) = name.catalog()
        && catalog != CATALOG
    {
        return Err(Error::user(format!("there is no catalog {}", quoted(catalog)))
            .hint(format!("the one catalog is {CATALOG}; write schema.table")));
    }
    Ok((name.schema().unwrap_or(PUBLIC).to_string(), name.table().to_string()))
}

/// `schema` or `thalweg.schema`.
fn schema_name(name: &str) -> Result<String> {
    match name.split_once('.') {
        Some((CATALOG, schema)) => Ok(schema.into()),
        Some((other, _)) => Err(Error::user(format!("there is no catalog {}", quoted(other)))),
        None => Ok(name.into()),
    }
}

/// The columns a table gets from those of a plan. A query's columns are all nullable, as in
/// PostgreSQL.
pub(crate) fn table_schema(plan: &Schema, from_query: bool) -> Result<SchemaRef> {
    let stored = thalweg_storage::stored_schema(plan)?;
    if !from_query {
        return Ok(stored);
    }
    let fields = stored.fields().iter().map(|f| f.as_ref().clone().with_nullable(true));
    Ok(Arc::new(Schema::new(fields.collect::<Vec<Field>>())))
}

/// Casts a batch to the table's types; a value that does not fit is an error, never NULL.
pub(crate) fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let options = CastOptions { safe: false, ..Default::default() };
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| {
        if column.data_type() == field.data_type() {
            return Ok(Arc::clone(column));
        }
        cast_with_options(column, field.data_type(), &options)
            .map_err(|e| from_arrow(&e).context(format!("column {}", quoted(field.name()))))
    });
    RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<_>>()?)
        .map_err(|e| from_arrow(&e))
}

pub(crate) fn column_indices(schema: &Schema, names: &[String]) -> Result<Vec<usize>> {
    let index = |name: &String| {
        schema.index_of(name).map_err(|_| {
            let all: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            Error::user(format!(
                "CLUSTER BY names column {}, which the table has not",
                quoted(name)
            ))
            .hint(format!("its columns are {}", all.join(", ")))
        })
    };
    names.iter().map(index).collect()
}

fn check_location(location: &str) -> Result<()> {
    if location.contains("://") || location.contains(['*', '?', '[']) {
        return Ok(());
    }
    std::fs::metadata(location)
        .map(drop)
        .map_err(|e| Error::io(format!("LOCATION {}", quoted(location)), e))
}

/// The statement with relative locations made absolute: it will be planned again from other
/// directories.
fn absolute(sql: &str, locations: &[String]) -> Result<String> {
    let mut text = sql.to_string();
    for location in locations {
        if location.contains("://") || Path::new(location).is_absolute() {
            continue;
        }
        let full = std::path::absolute(location)
            .map_err(|e| Error::io(format!("LOCATION {}", quoted(location)), e))?;
        let mut full = full.to_string_lossy().into_owned();
        // A trailing slash says that it is a folder.
        if location.ends_with('/') && !full.ends_with('/') {
            full.push('/');
        }
        text = text.replace(&format!("'{location}'"), &format!("'{full}'"));
    }
    Ok(text)
}
