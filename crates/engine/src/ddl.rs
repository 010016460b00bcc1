//! Statements that change the catalog.

mod clauses;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion::catalog::information_schema::INFORMATION_SCHEMA;
use datafusion::common::SchemaReference;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{CreateMemoryTable, DdlStatement, LogicalPlan};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use futures::StreamExt;
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result, Subject};
use thalweg_storage::{
    Layout, NewExtent, PartitionBy, Snapshot, Summary, TableSpec, TextLength, Transaction,
    check_schema, fit_text,
};

pub(crate) use self::clauses::{Clauses, names_of};
use crate::answer::Tag;
use crate::declared;
use crate::defaults::{self, constant};
use crate::files;
use crate::names::{CATALOG, SYSTEM, already_exists, check_not_system, split_name};
use crate::pg::{self, PG_CATALOG};
use crate::session::Inner;
use crate::sql_type::sql_type_of;
use crate::statement;
use crate::view_text;
use crate::write::{Target, Writers};
use thalweg_base::Notice;
use thalweg_errors::{from_arrow, from_datafusion};
use thalweg_functions::bytea::{self, is_binary};
use thalweg_runtime::Run;

/// The `DEFAULT` of each column of a `CREATE TABLE`, as it is written.
pub fn defaults(statement: &Statement) -> Vec<Option<String>> {
    let Statement::Statement(inner) = statement else { return vec![] };
    let ast::Statement::CreateTable(create) = inner.as_ref() else { return vec![] };
    create.columns.iter().map(default_of).collect()
}

pub(crate) fn default_of(column: &ast::ColumnDef) -> Option<String> {
    column.options.iter().find_map(|option| match &option.option {
        ast::ColumnOption::Default(expr) => Some(expr.to_string()),
        _ => None,
    })
}

/// What is kept of the defaults of columns.
pub(crate) fn kept_defaults(
    state: &SessionState,
    defaults: &[Option<String>],
    columns: &Schema,
) -> Result<Vec<Option<String>>> {
    let kept = defaults.iter().zip(columns.fields()).map(|(default, field)| match default {
        Some(text) => defaults::kept(state, text, field).map(Some),
        None => Ok(None),
    });
    kept.collect()
}

/// Whether it is `CREATE TABLE … AS SELECT …`.
pub fn creates_from_query(statement: &Statement) -> bool {
    matches!(statement, Statement::Statement(inner)
        if matches!(inner.as_ref(), ast::Statement::CreateTable(create) if create.query.is_some()))
}

/// Whether the names in it are only of what is made or dropped.
pub fn reads_nothing(statement: &Statement) -> bool {
    let Statement::Statement(inner) = statement else { return false };
    match inner.as_ref() {
        ast::Statement::CreateTable(create) => {
            create.query.is_none() && create.like.is_none() && create.clone.is_none()
        }
        ast::Statement::Drop { .. } => true,
        _ => false,
    }
}

pub(crate) struct Job<'a> {
    pub session: &'a Inner,
    pub state: &'a SessionState,
    pub snapshot: Arc<Snapshot>,
    pub sql: &'a str,
    pub clauses: Clauses,
    pub creates_from_query: bool,
    pub defaults: Vec<Option<String>>,
    /// Of the columns that are texts of a declared length.
    pub lengths: Vec<Option<TextLength>>,
}

impl Job<'_> {
    pub async fn run(self, command: DdlStatement) -> Result<Tag> {
        let is_function =
            matches!(command, DdlStatement::CreateFunction(_) | DdlStatement::DropFunction(_));
        if !is_function {
            self.session.transactions.check_writable()?;
        }
        let done = |word: &str| Ok(Tag::Done(word.into()));
        match command {
            DdlStatement::CreateMemoryTable(create) => self.create_table(create).await,
            DdlStatement::CreateView(create) => {
                refuse(create.temporary, "temporary views", "create an ordinary one and drop it")?;
                let (schema, name) = split_name(&create.name)?;
                check_not_of_catalog(&name)?;
                let sql = view_text::kept(self.state, self.sql, &create.input).await?;
                let replace = create.or_replace;
                self.commit("CREATE VIEW", &schema, &name, move |t, schema, name| {
                    t.create_view(schema, name, &sql, replace)
                })
                .await?;
                done("CREATE VIEW")
            }
            DdlStatement::CreateExternalTable(create) => {
                refuse(create.temporary, "temporary tables", "create an ordinary one and drop it")?;
                refuse(create.unbounded, "unbounded tables", "leave UNBOUNDED out")?;
                let (schema, name) = split_name(&create.name)?;
                check_not_of_catalog(&name)?;
                if create.if_not_exists && self.exists(&schema, &name) {
                    return done("CREATE EXTERNAL TABLE");
                }
                for location in &create.locations {
                    check_location(location)?;
                }
                // Looks at the files, so that a mistake shows now and not at the first query.
                let known = self.session.engine.files();
                let table = files::external(&create, self.state, known).await.map_err(|e| {
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
                self.commit("CREATE EXTERNAL TABLE", &schema, &name, move |t, schema, name| {
                    if replace {
                        t.drop_external(schema, name)?;
                    }
                    t.create_external(schema, name, &sql)
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
                    skipping(format!("table {} does not exist", quoted(&name)), "00000");
                    return done("DROP TABLE");
                }
                self.commit("DROP TABLE", &schema, &name, move |t, schema, name| {
                    if external {
                        t.drop_external(schema, name)
                    } else {
                        t.drop_table(schema, name)
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
                    skipping(format!("view {} does not exist", quoted(&name)), "00000");
                    return done("DROP VIEW");
                }
                self.commit("DROP VIEW", &schema, &name, |t, schema, name| {
                    t.drop_view(schema, name)
                })
                .await?;
                done("DROP VIEW")
            }
            DdlStatement::CreateCatalogSchema(create) => {
                let name = schema_name(&create.schema_name)?;
                let lenient = create.if_not_exists;
                if lenient && [SYSTEM, INFORMATION_SCHEMA, PG_CATALOG].contains(&name.as_str()) {
                    return done("CREATE SCHEMA");
                }
                self.commit("CREATE SCHEMA", &name, "", move |t, schema, _| {
                    t.create_schema(schema, lenient)
                })
                .await?;
                done("CREATE SCHEMA")
            }
            DdlStatement::DropCatalogSchema(drop) => {
                let name = match drop.name {
                    SchemaReference::Bare { schema } | SchemaReference::Full { schema, .. } => {
                        schema.to_string()
                    }
                };
                self.commit("DROP SCHEMA", &name, "", move |t, schema, _| {
                    t.drop_schema(schema, drop.if_exists, drop.cascade)
                })
                .await?;
                done("DROP SCHEMA")
            }
            DdlStatement::CreateCatalog(_) => Err(Error::unsupported("a database has one catalog")
                .hint("CREATE SCHEMA makes a namespace; another database is another directory")),
            DdlStatement::CreateIndex(_) => {
                Err(Error::internal("an index came to those who change the catalog"))
            }
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

    /// Changes the relation `name` in `schema`; an empty name is the schema itself.
    async fn commit(
        &self,
        operation: &str,
        schema: &str,
        name: &str,
        change: impl FnOnce(&mut Transaction, &str, &str) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        check_not_system(schema)?;
        let (operation, schema, name) =
            (operation.to_string(), schema.to_string(), name.to_string());
        commit(self.session, move |t| {
            change(t, &schema, &name)?;
            let table = if name.is_empty() { schema } else { format!("{schema}.{name}") };
            t.describe(Summary { operation, table, ..Summary::default() });
            Ok(())
        })
        .await
    }

    async fn create_table(&self, create: CreateMemoryTable) -> Result<Tag> {
        refuse(create.temporary, "temporary tables", "create an ordinary one and drop it")?;
        refuse(
            create.constraints.iter().next().is_some(),
            "PRIMARY KEY and UNIQUE constraints",
            "leave them out; NOT NULL is enforced",
        )?;
        let (schema, name) = split_name(&create.name)?;
        check_not_of_catalog(&name)?;
        check_not_system(&schema)?;
        let word = if self.creates_from_query { "CREATE TABLE AS" } else { "CREATE TABLE" };
        if create.if_not_exists && self.exists(&schema, &name) {
            skipping(format!("relation {} already exists", quoted(&name)), "42P07");
            return Ok(Tag::Done(word.into()));
        }
        if !create.or_replace && self.exists(&schema, &name) {
            // Before the query runs, not after.
            return Err(already_exists(&schema, &name));
        }
        let started = Instant::now();
        let plan_schema = create.input.schema().as_arrow();
        let columns = table_schema(plan_schema, self.creates_from_query)?;
        let columns = declared::declare(&columns, &self.lengths);
        let spec = self.spec(&columns)?;
        let replace = create.or_replace && self.exists(&schema, &name);
        // Now, and not after the query has run.
        check_schema(&name, &columns, &spec)?;
        let (extents, rows) = if self.creates_from_query {
            let layout = Layout::of_new(Arc::clone(&columns), &spec);
            self.write_query(&create.input, layout).await?
        } else {
            (vec![], 0)
        };
        let change = move |t: &mut Transaction| {
            if replace {
                t.drop_table(&schema, &name)?;
            }
            let table = t.create_table(&schema, &name, columns, spec)?;
            t.append(table, extents)?;
            t.describe(Summary {
                operation: word.into(),
                table: format!("{schema}.{name}"),
                rows_added: rows,
                millis: started.elapsed().as_millis() as u64,
                ..Summary::default()
            });
            Ok(())
        };
        self.session.transactions.write(change).await?;
        if self.creates_from_query {
            Ok(Tag::Count(word.into(), rows))
        } else {
            Ok(Tag::Done(word.into()))
        }
    }

    fn spec(&self, columns: &SchemaRef) -> Result<TableSpec> {
        for (default, field) in self.defaults.iter().zip(columns.fields()) {
            if let Some(text) = default {
                check_default(self.state, text, field)?;
            }
        }
        let defaults = kept_defaults(self.state, &self.defaults, columns)?;
        Ok(TableSpec {
            cluster_by: column_indices(columns, &self.clauses.cluster_by)?,
            partition_by: partition_by(columns, self.clauses.partition_by.as_ref())?,
            defaults,
        })
    }

    async fn write_query(
        &self,
        plan: &LogicalPlan,
        layout: Layout,
    ) -> Result<(Vec<NewExtent>, u64)> {
        let run = Run::current().ok_or_else(|| Error::internal("a statement outside any query"))?;
        let physical = statement::physical(&run, self.state, plan).await?;
        let mut rows = statement::execute(&run, self.state, physical).await?;
        let engine = &self.session.engine;
        let schema = Arc::clone(&layout.schema);
        let target = Target { database: engine.database().clone(), layout };
        let mut writers = Writers::new(target, engine.config().threads);
        while let Some(batch) = rows.next().await {
            let batch = batch.map_err(from_datafusion)?;
            writers.push(conform(batch.columns(), &schema)?).await?;
        }
        writers.finish().await
    }
}

/// A change in the session's transaction, or in one of its own.
pub(crate) async fn commit(
    session: &Inner,
    change: impl FnOnce(&mut Transaction) -> Result<()> + Send + 'static,
) -> Result<()> {
    session.transactions.write(change).await
}

/// Refuses a default that INSERT could not use: one that names columns, or is of another type.
pub(crate) fn check_default(state: &SessionState, text: &str, field: &Field) -> Result<()> {
    constant(state, text, field.data_type()).map(drop).map_err(|e| {
        let error = Error::user(format!(
            "the DEFAULT of column {} is no {}: {}",
            quoted(field.name()),
            sql_type_of(field),
            e.message()
        ));
        let error = match e.code_text() {
            Some(code) => error.code(code),
            None => error,
        };
        let hint = "a default is an expression without columns and subqueries, such as 0 or now()";
        error.hint(e.hint_text().unwrap_or(hint)).about(Subject::After("default".into()))
    })
}

fn refuse(asked: bool, what: &str, instead: &str) -> Result<()> {
    if asked {
        Err(Error::unsupported(format!("{what} are not supported")).hint(instead))
    } else {
        Ok(())
    }
}

/// A relation of a user's that has the name of one of PostgreSQL's catalog would stand behind it:
/// a name without a schema is looked for there first.
fn check_not_of_catalog(name: &str) -> Result<()> {
    if !pg::is_relation(name) {
        return Ok(());
    }
    Err(Error::user(format!("the name {} is the catalog's", quoted(name)))
        .code("42939")
        .hint("names that begin with pg_ are best left to it"))
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
    // Instants are stored in UTC, whatever zone the session has.
    let zoned = plan
        .fields()
        .iter()
        .map(|f| f.as_ref().clone().with_data_type(thalweg_plan::zones::stored(f.data_type())));
    let plan = Schema::new(zoned.collect::<Vec<Field>>());
    let stored = thalweg_storage::stored_schema(&plan)?;
    if !from_query {
        return Ok(stored);
    }
    let fields = stored.fields().iter().map(|f| f.as_ref().clone().with_nullable(true));
    Ok(Arc::new(Schema::new(fields.collect::<Vec<Field>>())))
}

/// Casts columns to the table's types; a value that does not fit is an error, never NULL.
pub(crate) fn conform(columns: &[ArrayRef], schema: &SchemaRef) -> Result<RecordBatch> {
    let options = CastOptions { safe: false, ..Default::default() };
    let columns = columns.iter().zip(schema.fields()).map(|(column, field)| {
        let named = |e: ArrowError| {
            let e = from_arrow(&e).context(format!("column {}", quoted(field.name())));
            if e.code_text().is_some() { e } else { e.code("22003") }
        };
        let column = if column.data_type() == field.data_type() {
            Arc::clone(column)
        } else if is_binary(field.data_type()) && column.data_type().is_string() {
            bytea::from_texts(column, field.data_type(), false)
                .map_err(|e| e.context(format!("column {}", quoted(field.name()))))?
        } else {
            cast_with_options(column, field.data_type(), &options).map_err(named)?
        };
        if !field.is_nullable() && column.logical_null_count() > 0 {
            return Err(null_in(field));
        }
        fit_text(column, field)
    });
    RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<_>>()?)
        .map_err(|e| from_arrow(&e))
}

/// The client is told why its statement does nothing.
fn skipping(why: String, code: &'static str) {
    if let Some(run) = Run::current() {
        run.notice(Notice::new(format!("{why}, skipping")).code(code));
    }
}

pub(crate) fn null_in(field: &Field) -> Error {
    Error::user(format!("column {} is NOT NULL, and got a NULL", quoted(field.name())))
        .code("23502")
}

pub(crate) fn column_index(schema: &Schema, name: &str, clause: &str) -> Result<usize> {
    schema.index_of(name).map_err(|_| {
        let all: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        Error::user(format!("{clause} names column {}, which the table has not", quoted(name)))
            .hint(format!("its columns are {}", all.join(", ")))
    })
}

/// What `(column, buckets)` says.
pub(crate) fn partition_by(
    schema: &Schema,
    told: Option<&(String, u32)>,
) -> Result<Option<PartitionBy>> {
    let partition = |(name, buckets): &(String, u32)| {
        let column = column_index(schema, name, "PARTITION BY")?;
        Ok(PartitionBy { column, buckets: *buckets })
    };
    told.map(partition).transpose()
}

pub(crate) fn column_indices(schema: &Schema, names: &[String]) -> Result<Vec<usize>> {
    names.iter().map(|name| column_index(schema, name, "CLUSTER BY")).collect()
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
