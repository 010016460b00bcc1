//! What a table's load will do: from a request to files, a format, and columns with their types.

use crate::defaults;
use crate::names;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::ArrayRef;
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::{ScalarValue, TableReference};
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_storage::load::{self, Format, Inference, Inferred, InferredColumn};
use thalweg_storage::{
    Layout, LoadedFile, PartitionBy, Snapshot, Table, TableSpec, TextLength, check_schema,
};

use thalweg_errors::from_datafusion;
use thalweg_runtime::blocking;

use super::read::Shares;
use super::{ColumnChanges, Load, LoadPlan, LoadProgress, LoadRequest, NewColumns, Rejected};
use crate::files::{OfPath, Told, columns_of_paths, look_at_all, same_name};
use crate::session::Inner;
use crate::sql_type::{sql_type, sql_type_of};
use crate::{ddl, declared};

/// One file of the input, and what it is remembered by once it is loaded.
#[derive(Clone, Debug)]
pub(super) struct InputFile {
    pub path: PathBuf,
    pub stamp: LoadedFile,
}

/// One table of a load, before the first row is read.
pub(super) struct Prepared {
    pub request: LoadRequest,
    pub schema: String,
    pub name: String,
    /// `None`: to be made.
    pub table: Option<Arc<Table>>,
    pub files: Vec<InputFile>,
    /// Files that the table has already.
    pub skipped: usize,
    /// Columns that the files have by the folders they lie in, such as `year=2024`.
    of_paths: Vec<OfPath>,
    /// The places of the files among the values of these.
    places: HashMap<PathBuf, usize>,
    pub format: Format,
    /// The table's, with those that are added.
    pub columns: SchemaRef,
    pub added: Vec<InferredColumn>,
    inferred: Option<Inferred>,
    pub spec: TableSpec,
    pub layout: Layout,
    /// The ids that the columns must have when the extents are committed.
    column_ids: Vec<u32>,
    pub defaults: Vec<Option<ArrayRef>>,
}

pub(super) async fn prepare(
    session: &Inner,
    snapshot: &Snapshot,
    request: &LoadRequest,
    load: &Load,
    rejected: &mut Rejected,
    progress: &Arc<LoadProgress>,
) -> Result<Prepared> {
    let (schema, name, table) = target(snapshot, request)?;
    let (mut files, format) = input(request).await?;
    let given = files.len();
    let (of_paths, places) = folders(request, &files)?;
    if let (true, Some(table)) = (load.resume, &table) {
        let loaded: HashSet<&str> = table.loaded_files.iter().map(|f| f.path.as_str()).collect();
        files.retain(|f| !loaded.contains(f.stamp.path.as_str()));
    }
    let spec = TableSpec::default();
    let mut prepared = Prepared {
        request: request.clone(),
        schema,
        name,
        skipped: given - files.len(),
        files,
        of_paths,
        places,
        format,
        columns: match &table {
            Some(table) => Arc::clone(&table.arrow_schema),
            None => Arc::new(Schema::empty()),
        },
        layout: match &table {
            Some(table) => Layout::of(table),
            None => Layout::of_new(Arc::new(Schema::empty()), &spec),
        },
        column_ids: table.iter().flat_map(|t| t.columns.iter().map(|c| c.id)).collect(),
        table,
        added: vec![],
        inferred: None,
        spec,
        defaults: vec![],
    };
    let found = prepared.find_columns(session, load, rejected, progress).await;
    found.and_then(|()| prepared.settle(session)).map(|()| prepared)
}

/// Schema, name and, if it is there, the table that a request is for.
fn target(
    snapshot: &Snapshot,
    request: &LoadRequest,
) -> Result<(String, String, Option<Arc<Table>>)> {
    let (schema_name, name) = table_name(&request.table)?;
    names::check_not_system(&schema_name)?;
    let Some(schema) = snapshot.schemas.get(&schema_name) else {
        return Err(Error::user(format!("schema {} does not exist", quoted(&schema_name)))
            .hint(format!("CREATE SCHEMA {} makes it", quoted(&schema_name))));
    };
    if schema.views.contains_key(&name) || schema.externals.contains_key(&name) {
        return Err(Error::user(format!("{} is not a stored table", quoted(&name)))
            .hint("a view or an external table cannot be loaded into"));
    }
    let table = schema.tables.get(&name).cloned();
    if let Some(table) = &table {
        refuse_definition(request, table)?;
    } else if request.columns.is_some() && !request.types.is_empty() {
        return Err(Error::user("the columns are declared with their types")
            .hint("leave --type or --columns out"));
    }
    Ok((schema_name, name, table))
}

/// The files of a request, and their format.
async fn input(request: &LoadRequest) -> Result<(Vec<InputFile>, Format)> {
    let request = request.clone();
    blocking(move || {
        let files: Result<Vec<InputFile>> =
            load::expand(&request.files)?.into_iter().map(stamped).collect();
        let files = files?;
        let format = format(&request, &files)?;
        Ok((files, format))
    })
    .await
    .map_err(from_datafusion)
}

const FOLDERS: &str = "hive_partitioning";

/// The columns that all files have by the folders they lie in, and the places of the files among their
/// values. A list of the files' columns says that there are no others.
fn folders(
    request: &LoadRequest,
    files: &[InputFile],
) -> Result<(Vec<OfPath>, HashMap<PathBuf, usize>)> {
    let mut told = Told::default();
    if let Some((_, values)) = request.options.iter().find(|(name, _)| name == FOLDERS) {
        told.hive = match values.iter().map(|v| v.to_lowercase()).collect::<Vec<_>>().as_slice() {
            [] => Some(true),
            [one] if matches!(one.as_str(), "true" | "on" | "1") => Some(true),
            [one] if matches!(one.as_str(), "false" | "off" | "0") => Some(false),
            _ => return Err(Error::user(format!("option {FOLDERS} is true or false"))),
        };
    }
    if request.input_columns.is_some() {
        return Ok((vec![], HashMap::new()));
    }
    let paths: Vec<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
    let columns = columns_of_paths(&paths, &told)?;
    let places = paths.into_iter().enumerate().map(|(place, path)| (path, place));
    Ok((columns, places.collect()))
}

/// Schema and name of `table`, `schema.table` or `"Table"`, as SQL would take it.
pub fn table_name(text: &str) -> Result<(String, String)> {
    names::split_name(&TableReference::parse_str(text))
}

/// What only a table that is made can be told.
fn refuse_definition(request: &LoadRequest, table: &Table) -> Result<()> {
    let name = quoted(&table.name);
    if request.columns.is_some() {
        return Err(Error::user(format!("table {name} exists and has its columns"))
            .hint("leave --columns out to append, or drop the table first"));
    }
    if !request.types.is_empty() && request.new_columns != NewColumns::Add {
        return Err(Error::user(format!("table {name} exists and has its columns"))
            .hint("leave --type out to append; it is for columns that are found in the files"));
    }
    if !request.cluster_by.is_empty() {
        return Err(Error::user(format!("table {name} exists and has its order"))
            .hint("leave --cluster-by out to append, or drop the table first"));
    }
    if request.partition_by.is_some() {
        return Err(Error::user(format!("table {name} exists and has its partitions"))
            .hint("leave --partition-by out to append, or drop the table first"));
    }
    Ok(())
}

fn stamped(path: PathBuf) -> Result<InputFile> {
    let stamp = load::version(&path)?;
    Ok(InputFile { path, stamp })
}

impl Prepared {
    /// The columns of a table that is made, and those that are new in one that is there.
    async fn find_columns(
        &mut self,
        session: &Inner,
        load: &Load,
        rejected: &mut Rejected,
        progress: &Arc<LoadProgress>,
    ) -> Result<()> {
        match (self.table.clone(), self.request.columns.clone()) {
            (None, Some(columns)) => {
                (self.columns, self.spec.defaults) = declared_columns(session, &columns).await?;
            }
            (None, None) => {
                let found = self.infer(session, None, load, rejected, progress).await?;
                self.columns = found.schema();
                found.settle(&mut self.format);
                self.inferred = Some(found);
            }
            (Some(table), _)
                if self.request.new_columns == NewColumns::Add && !self.files.is_empty() =>
            {
                let known = Some(&table.arrow_schema);
                let found = self.infer(session, known, load, rejected, progress).await?;
                self.add(session, &table, found)?;
            }
            (Some(_), _) => {}
        }
        Ok(())
    }

    /// What follows from the columns.
    fn settle(&mut self, session: &Inner) -> Result<()> {
        let defaults = match &self.table {
            None => {
                let (columns, request) = (&self.columns, &self.request);
                self.spec.cluster_by = ddl::column_indices(columns, &request.cluster_by)?;
                self.spec.partition_by = ddl::partition_by(columns, request.partition_by.as_ref())?;
                check_schema(&self.name, columns, &self.spec)?;
                self.layout = Layout::of_new(Arc::clone(&self.columns), &self.spec);
                self.spec.defaults.clone()
            }
            Some(table) => table.columns.iter().map(|c| c.default.clone()).collect(),
        };
        self.defaults = values(session, &self.columns, &defaults)?;
        Ok(())
    }

    /// Looks at all of the input for columns that `known` does not have.
    async fn infer(
        &self,
        session: &Inner,
        known: Option<&SchemaRef>,
        load: &Load,
        rejected: &mut Rejected,
        progress: &Arc<LoadProgress>,
    ) -> Result<Inferred> {
        let paths: Vec<PathBuf> = self.files.iter().map(|f| f.path.clone()).collect();
        let format = self.format.clone();
        let opened = blocking(move || Inference::open(paths, format)).await;
        let shares = Shares::of(load.memory_bytes, session.engine.config().threads);
        let mut inference = opened
            .map_err(from_datafusion)?
            .with_rejects_max(load.rejects_max)
            .with_block_bytes(shares.block_bytes);
        if let Some(known) = known {
            inference = inference.beside(Arc::clone(known));
        }
        progress.table.lock().clone_from(&self.request.table);
        let mut found = infer(inference, shares.workers, rejected, progress).await?;
        for of_path in &self.of_paths {
            let name = of_path.field.name();
            let is_known = |known: &SchemaRef| {
                known.fields().iter().any(|field| same_name(field.name(), name))
            };
            // What the path says goes before what the file has under the same name.
            found.columns.retain(|column| !same_name(&column.name, name));
            if !known.is_some_and(is_known) {
                found.columns.push(InferredColumn {
                    name: name.clone(),
                    data_type: of_path.field.data_type().clone(),
                    nulls: None,
                    null_spellings: vec![],
                    why: "by the path of the file".into(),
                    order: None,
                });
            }
        }
        retype(session, &mut found, &self.request.types).await?;
        Ok(found)
    }

    /// Takes in columns that the table lacks.
    fn add(&mut self, session: &Inner, table: &Table, found: Inferred) -> Result<()> {
        if !found.columns.is_empty() {
            session.transactions.check_idle("a load that adds columns")?;
            // Tried out, to learn the ids that the columns will have.
            let mut trial = session.engine.database().begin();
            for column in &found.columns {
                let field = Field::new(&column.name, column.data_type.clone(), true);
                trial.add_column(table.id, field, None, None)?;
            }
            let Some(altered) = trial.snapshot().table_by_id(table.id) else {
                return Err(altered_meanwhile(&table.name));
            };
            self.columns = Arc::clone(&altered.arrow_schema);
            self.layout = Layout::of(altered);
            self.column_ids = altered.columns.iter().map(|c| c.id).collect();
        }
        self.added = found.columns.clone();
        self.inferred = Some(found);
        Ok(())
    }

    /// The columns of the table that files fill by the folders they lie in, with their values in each
    /// of `files`.
    pub fn of_paths(&self, files: &[InputFile]) -> Result<Vec<(usize, Vec<ScalarValue>)>> {
        let fields = self.columns.fields();
        let mut filled = vec![];
        for of_path in &self.of_paths {
            let name = of_path.field.name();
            let Some(column) = fields.iter().position(|field| same_name(field.name(), name)) else {
                continue;
            };
            let data_type = fields[column].data_type();
            let values = files.iter().map(|file| {
                let value = &of_path.values[self.places[&file.path]];
                value.cast_to(data_type).map_err(|_| {
                    Error::user(format!(
                        "file {}: {value}, the value of its folder, is no {} for column {}",
                        load::shown(&file.path),
                        sql_type(data_type),
                        quoted(fields[column].name())
                    ))
                    .hint("declare the column with a type that holds it, or load with hive_partitioning false")
                })
            });
            filled.push((column, values.collect::<Result<_>>()?));
        }
        Ok(filled)
    }

    /// Whether the extents written still fit the table.
    pub fn check_same(&self, snapshot: &Snapshot) -> Result<()> {
        let Some(table) = &self.table else { return Ok(()) };
        let now = snapshot.table_by_id(table.id);
        let same = now.is_some_and(|now| {
            now.arrow_schema == self.columns
                && now.columns.iter().map(|c| c.id).eq(self.column_ids.iter().copied())
        });
        if same { Ok(()) } else { Err(altered_meanwhile(&table.name)) }
    }

    /// The same, after some of its files were committed.
    pub fn again(&self, snapshot: &Snapshot) -> Result<Prepared> {
        let gone = || altered_meanwhile(&self.name);
        let table = snapshot.table(&self.schema, &self.name).ok_or_else(gone)?;
        if table.arrow_schema != self.columns {
            return Err(gone());
        }
        Ok(Prepared {
            request: self.request.clone(),
            schema: self.schema.clone(),
            name: self.name.clone(),
            table: Some(Arc::clone(table)),
            files: self.files.clone(),
            skipped: self.skipped,
            of_paths: self.of_paths.clone(),
            places: self.places.clone(),
            format: self.format.clone(),
            columns: Arc::clone(&self.columns),
            added: vec![],
            inferred: None,
            spec: TableSpec::default(),
            layout: Layout::of(table),
            column_ids: table.columns.iter().map(|c| c.id).collect(),
            defaults: self.defaults.clone(),
        })
    }

    pub fn changes(&self) -> ColumnChanges {
        let inferred = match &self.table {
            None => self.inferred.as_ref().map(|i| i.columns.clone()),
            Some(_) => None,
        };
        ColumnChanges { inferred, added: self.added.clone(), ..ColumnChanges::default() }
    }

    pub fn into_plan(self) -> Result<LoadPlan> {
        let sql = match &self.table {
            None => vec![create_table_sql(&self.request.table, &self.columns, &self.spec)],
            Some(_) => {
                let table = relation(&self.request.table);
                let add = |c: &InferredColumn| {
                    let (name, data_type) = (identifier(&c.name), sql_type(&c.data_type));
                    format!("ALTER TABLE {table} ADD COLUMN {name} {data_type};")
                };
                self.added.iter().map(add).collect()
            }
        };
        Ok(LoadPlan {
            creates: self.table.is_none(),
            changes: self.changes(),
            table: self.request.table,
            files: self.files.into_iter().map(|f| f.path).collect(),
            columns: self.columns,
            sql,
            skipped: self.skipped,
            rows: self.inferred.and_then(|i| i.rows),
        })
    }
}

fn altered_meanwhile(table: &str) -> Error {
    Error::conflict(format!(
        "table {} was altered or dropped while files were loaded into it",
        quoted(table)
    ))
    .hint("run the load again")
}

/// Workers look at all of the input.
async fn infer(
    inference: Inference,
    workers: usize,
    rejected: &mut Rejected,
    progress: &Arc<LoadProgress>,
) -> Result<Inferred> {
    let inference = Arc::new(inference);
    progress.inferring.store(true, Ordering::Relaxed);
    progress.bytes_total.store(inference.bytes_total(), Ordering::Relaxed);
    let seen = {
        let (inference, progress) = (Arc::clone(&inference), Arc::clone(progress));
        move || progress.bytes_done.store(inference.bytes_done(), Ordering::Relaxed)
    };
    look_at_all(&inference, workers, seen).await?;
    let (rejects, result) = inference.finish();
    if result.is_err() {
        // If it succeeds, the load meets them again.
        rejected.rows.extend(rejects);
    }
    result
}

/// Exchanges types that were found for those that were told.
async fn retype(session: &Inner, found: &mut Inferred, types: &[(String, String)]) -> Result<()> {
    for (name, told) in types {
        let same = |c: &&mut InferredColumn| c.name.to_lowercase() == name.to_lowercase();
        let Some(column) = found.columns.iter_mut().find(same) else {
            let names: Vec<String> = found.columns.iter().map(|c| quoted(&c.name)).collect();
            return Err(Error::user(format!(
                "a type is told for column {}, which is not among those found",
                quoted(name)
            ))
            .hint(match names.is_empty() {
                true => "the files have no columns that the table lacks".to_owned(),
                false => format!("those are {}", names.join(", ")),
            }));
        };
        let (schema, _) = declared_columns(session, &format!("{} {told}", quoted(name))).await?;
        if schema.fields().len() != 1 {
            return Err(Error::user(format!("{told:?} is not one type")));
        }
        if TextLength::declared(schema.field(0)).is_some() {
            return Err(Error::unsupported(format!("{told} of column {}", quoted(name)))
                .detail("a type that is told alone has no length")
                .hint("declare all columns with --columns, where types have lengths"));
        }
        column.data_type = schema.field(0).data_type().clone();
        column.why = "told".into();
    }
    Ok(())
}

/// The one format of all files, with what is told of it.
fn format(request: &LoadRequest, files: &[InputFile]) -> Result<Format> {
    let format = match &request.format {
        Some(format) => format.clone(),
        None => format_found(request, files)?,
    };
    let mut format = match (format, &request.csv) {
        (Format::Csv(_), Some(options)) => Format::Csv(options.clone()),
        (format, _) => format,
    };
    for (name, values) in request.options.iter().filter(|(name, _)| name != FOLDERS) {
        if !format.tell(name, values)? {
            let (called, known) = format.known_options();
            let error = Error::user(format!("{called} has no option {}", quoted(name)));
            return Err(error.hint(format!("known are: {known}")));
        }
    }
    format.check()?;
    Ok(format)
}

fn format_found(request: &LoadRequest, files: &[InputFile]) -> Result<Format> {
    let mut all =
        files.iter().map(|f| load::format_of(&f.path).map(|(format, _)| (&f.path, format)));
    let Some(first) = all.next() else {
        return Err(Error::user(format!("no files for table {}", quoted(&request.table))));
    };
    let (first_file, format) = first?;
    for other in all {
        let (file, found) = other?;
        if std::mem::discriminant(&found) != std::mem::discriminant(&format) {
            return Err(Error::user(format!(
                "files of different formats for table {}: {first_file:?} and {file:?}",
                quoted(&request.table)
            ))
            .hint("load them one format at a time"));
        }
    }
    Ok(format)
}

/// The columns of `a INT DEFAULT 0, b VARCHAR NOT NULL`, as CREATE TABLE understands them, and
/// their defaults.
async fn declared_columns(
    session: &Inner,
    columns: &str,
) -> Result<(SchemaRef, Vec<Option<String>>)> {
    let state = session.context.state();
    let sql = format!("CREATE TABLE declared ({columns})");
    let named = |e: Error| e.context("the declared columns");
    let statement = crate::parse::statement(&state, &sql).map_err(named)?;
    let defaults = ddl::defaults(&statement);
    let lengths = declared::lengths(&statement).map_err(named)?;
    let plan = crate::statement::plan(&state, statement).await;
    match plan.map_err(|e| named(from_datafusion(e)))? {
        LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) => {
            if create.constraints.iter().next().is_some() {
                return Err(named(
                    Error::unsupported("PRIMARY KEY and UNIQUE constraints are not supported")
                        .hint("leave them out; NOT NULL is enforced"),
                ));
            }
            let schema = ddl::table_schema(create.input.schema().as_arrow(), false)?;
            let defaults = ddl::kept_defaults(&state, &defaults, &schema).map_err(named)?;
            Ok((declared::declare(&schema, &lengths), defaults))
        }
        _ => Err(Error::user(format!("{columns:?} does not declare columns"))),
    }
}

/// What rows of a file without a column have there, worked out once for the whole load.
fn values(
    session: &Inner,
    columns: &Schema,
    defaults: &[Option<String>],
) -> Result<Vec<Option<ArrayRef>>> {
    let state = session.context.state();
    let value = |(i, field): (usize, &Arc<Field>)| match defaults.get(i).and_then(Option::as_ref) {
        Some(sql) => defaults::constant(&state, sql, field.data_type())
            .map(Some)
            .map_err(|e| e.context(format!("the default of column {}", quoted(field.name())))),
        None => Ok(None),
    };
    columns.fields().iter().enumerate().map(value).collect()
}

/// The statement that makes a table of these columns.
fn create_table_sql(table: &str, columns: &Schema, spec: &TableSpec) -> String {
    let column = |f: &Arc<Field>| {
        let not_null = if f.is_nullable() { "" } else { " NOT NULL" };
        format!("  {} {}{not_null}", identifier(f.name()), sql_type_of(f))
    };
    let definitions: Vec<String> = columns.fields().iter().map(column).collect();
    let mut sql = format!("CREATE TABLE {} (\n{}\n)", relation(table), definitions.join(",\n"));
    let name = |column: usize| identifier(columns.field(column).name());
    if let Some(PartitionBy { column, buckets }) = spec.partition_by {
        sql += &format!(" PARTITION BY HASH ({}) INTO {buckets}", name(column));
    }
    if !spec.cluster_by.is_empty() {
        let by: Vec<String> = spec.cluster_by.iter().map(|&c| name(c)).collect();
        sql += &format!(" CLUSTER BY ({})", by.join(", "));
    }
    sql + ";"
}

/// `schema.table` with quotes where they are needed.
fn relation(table: &str) -> String {
    let name = TableReference::parse_str(table);
    let schema = name.schema().map(|s| identifier(s) + ".").unwrap_or_default();
    schema + &identifier(name.table())
}

fn identifier(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain { name.to_owned() } else { quoted(name) }
}
