//! Files of text as tables, delimited or JSON: their columns are found as `thalweg load` finds them, from
//! all of their rows, and their rows are read by the same reader.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{Result, Statistics, project_schema};
use datafusion::datasource::TableType;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use parking_lot::Mutex;
use thalweg_base::Error;
use thalweg_base::text::quoted;
use thalweg_storage::LoadedFile;
use thalweg_storage::load::{Format, Inference, Inferred};

use thalweg_errors::{from_datafusion, in_sql, in_sql_text, into_datafusion};
use thalweg_exec::{FileScanExec, Files};
use thalweg_runtime::{blocking, checkpoint};
use thalweg_storage::load::version;
use tokio::task::JoinSet;

use super::paths;
use super::told::{Told, Types, same_name};
use crate::zoned;

/// Inputs of which the columns are remembered.
const KNOWN_MAX: usize = 64;

/// Bytes of a row of files of which nobody has counted the rows.
const ROW_BYTES: u64 = 100;

/// What was found out of files that were looked at last, so that asking for the same files again does
/// not read them twice.
#[derive(Default)]
pub struct Known(Mutex<VecDeque<(Input, Arc<Inferred>)>>);

/// Files in their versions, and how they are to be read.
#[derive(Clone, PartialEq, Eq)]
struct Input {
    files: Vec<LoadedFile>,
    format: Format,
    sample: Option<u64>,
}

impl Known {
    fn find(&self, input: &Input) -> Option<Arc<Inferred>> {
        let mut known = self.0.lock();
        let at = known.iter().position(|(other, _)| other == input)?;
        // The one that was asked for last is the last to be forgotten.
        let found = known.remove(at)?;
        let columns = Arc::clone(&found.1);
        known.push_back(found);
        Some(columns)
    }

    fn add(&self, input: Input, found: &Arc<Inferred>) {
        let mut known = self.0.lock();
        known.retain(|(other, _)| *other != input);
        known.push_back((input, Arc::clone(found)));
        if known.len() > KNOWN_MAX {
            known.pop_front();
        }
    }
}

#[derive(Clone)]
pub struct TextTable {
    files: Arc<Files>,
    /// The columns, instants in the session's zone.
    shown: SchemaRef,
    rows: u64,
    /// What decided the columns; `None` if they are declared.
    found: Option<Arc<Inferred>>,
}

impl std::fmt::Debug for TextTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TextTable({})", self.files.name)
    }
}

impl TextTable {
    /// The files called `name`.
    ///
    /// # Errors
    /// A file cannot be read, or has rows that are none.
    pub async fn new(
        name: &str,
        paths: Vec<PathBuf>,
        mut format: Format,
        told: &Told,
        state: &dyn Session,
        known: &Known,
    ) -> Result<Self> {
        let of_paths = paths::columns(&paths, told).map_err(into_datafusion)?;
        let stamped = paths.clone();
        let stamps = blocking(move || stamped.iter().map(|path| version(path)).collect());
        let stamps: Vec<LoadedFile> = stamps.await?;
        let bytes: u64 = stamps.iter().map(|stamp| stamp.bytes).sum();
        let names_of = |columns: &SchemaRef| {
            columns.fields().iter().map(|field| field.name().clone()).collect::<Vec<String>>()
        };
        let (columns, rows, mut names, found) = match &told.columns {
            Some(columns) => {
                let names = names_of(columns);
                (Arc::clone(columns), bytes / ROW_BYTES, Some(names), None)
            }
            None => {
                let (files, sample) = (stamps.clone(), told.sample);
                let input = Input { files, format: format.clone(), sample };
                // What a server may have changed without a sign is looked at again.
                let is_known = stamps.iter().all(|stamp| stamp.modified_ns > 0);
                let found = match known.find(&input).filter(|_| is_known) {
                    Some(found) => found,
                    None => {
                        let workers = state.config().target_partitions();
                        let found = infer(&paths, &format, bytes, workers, sample).await;
                        let found = Arc::new(found.map_err(|e| into_datafusion(in_sql(e)))?);
                        known.add(input, &found);
                        found
                    }
                };
                let found = retyped(found, &told.types).map_err(into_datafusion)?;
                found.settle(&mut format);
                let rows = found.rows.filter(|_| sample.is_none()).unwrap_or(bytes / ROW_BYTES);
                (found.schema(), rows, None, Some(found))
            }
        };
        // What the path says goes before what the file has under the same name.
        let is_of_path =
            |name: &String| of_paths.iter().any(|of_path| same_name(of_path.field.name(), name));
        let hidden: Vec<String> = names_of(&columns).into_iter().filter(is_of_path).collect();
        if !hidden.is_empty() && names.is_none() && has_no_header(&format) {
            names = Some(names_of(&columns));
        }
        let own = columns.fields().iter().filter(|field| !is_of_path(field.name()));
        let own: Vec<FieldRef> = own.cloned().collect();
        if own.is_empty() {
            let error = Error::user(format!("{} has no column of its own", quoted(name)));
            return Err(into_datafusion(
                error
                    .hint("leave hive_partitioning and filename out, or name the latter otherwise"),
            ));
        }
        let fields = own.into_iter().chain(of_paths.iter().map(|c| Arc::new(c.field.clone())));
        let columns = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let zone = state.config_options().execution.time_zone.as_deref();
        let shown = zoned::shown(&columns, zone).unwrap_or_else(|| Arc::clone(&columns));
        let name = name.to_owned();
        let files = Files {
            name,
            paths,
            stamps,
            format,
            columns,
            of_paths: of_paths.into_iter().map(|column| column.values).collect(),
            hidden,
            names,
        };
        Ok(TextTable { files: Arc::new(files), shown, rows, found })
    }

    fn is_of_paths(&self, filter: &Expr) -> bool {
        let own = self.files.own();
        let columns = &self.files.columns.fields()[own..];
        paths::decide(columns, filter)
    }

    /// The files that have rows for filters over their paths.
    fn kept(&self, filters: &[Expr], state: &dyn Session) -> Result<Vec<usize>> {
        let own = self.files.own();
        let columns = &self.shown.fields()[own..];
        paths::kept(columns, &self.files.of_paths, self.files.paths.len(), filters, state)
    }

    /// What decided the types of the columns, and how the files are written.
    pub fn notes(&self) -> (Vec<String>, String) {
        let why = self.files.columns.fields().iter().enumerate().map(|(at, field)| {
            if at >= self.files.own() {
                return "by the path of the file".to_owned();
            }
            let found = self
                .found
                .as_ref()
                .and_then(|found| found.columns.iter().find(|column| column.name == *field.name()));
            found.map_or_else(|| "told".to_owned(), |column| column.why.clone())
        });
        let dialects = self.found.iter().flat_map(|found| &found.dialects);
        let mut dialects: Vec<String> = dialects.map(|(_, dialect)| dialect.to_string()).collect();
        dialects.retain(|dialect| !dialect.is_empty());
        dialects.dedup();
        let mut format = match &self.files.format {
            Format::Csv(_) => "CSV",
            Format::Json(options) if options.book.is_some() => "Excel",
            Format::Json(_) => "JSON",
            Format::Parquet => "Parquet",
            Format::Arrow => "Arrow",
        }
        .to_owned();
        if !dialects.is_empty() {
            format += &format!(": {}", dialects.join("; "));
        }
        (why.map(|why| in_sql_text(&why)).collect(), format)
    }
}

/// The columns that all rows have.
async fn infer(
    paths: &[PathBuf],
    format: &Format,
    bytes: u64,
    workers: usize,
    sample: Option<u64>,
) -> thalweg_base::Result<Inferred> {
    let (paths, format) = (paths.to_vec(), format.clone());
    let opened = blocking(move || Inference::open(paths, format)).await;
    let mut inference = opened.map_err(from_datafusion)?;
    let mut workers = workers.min(bytes as usize / thalweg_base::limits::LOAD_BLOCK_BYTES + 1);
    if let Some(rows) = sample {
        // Which rows are looked at must not depend on who is first.
        (inference, workers) = (inference.with_sample(rows), 1);
    }
    let inference = Arc::new(inference);
    look_at_all(&inference, workers, || {}).await?;
    let (_, found) = inference.finish();
    found
}

fn has_no_header(format: &Format) -> bool {
    matches!(format, Format::Csv(options) if options.header == Some(false))
}

/// With the types that are told in the place of those that were found.
fn retyped(found: Arc<Inferred>, types: &Types) -> thalweg_base::Result<Arc<Inferred>> {
    let told: Vec<(usize, &DataType)> = match types {
        Types::Found => return Ok(found),
        Types::First(types) if types.len() > found.columns.len() => {
            let count = found.columns.len();
            return Err(Error::user(format!(
                "types has {} types, the files have {count} columns",
                types.len()
            ))
            .hint("name the columns: types = {'a': 'INTEGER'}"));
        }
        Types::First(types) => types.iter().enumerate().collect(),
        Types::Named(types) => {
            let place = |(name, _): &(String, DataType)| {
                let mut columns = found.columns.iter();
                let place = columns.position(|column| same_name(&column.name, name));
                place.ok_or_else(|| {
                    let names: Vec<String> =
                        found.columns.iter().map(|column| quoted(&column.name)).collect();
                    let message = format!("types names {}, which no file has", quoted(name));
                    Error::user(message).hint(format!("the columns are {}", names.join(", ")))
                })
            };
            let places: Vec<usize> =
                types.iter().map(place).collect::<thalweg_base::Result<_>>()?;
            places.into_iter().zip(types.iter().map(|(_, data_type)| data_type)).collect()
        }
    };
    let mut retyped = found.as_ref().clone();
    for (at, data_type) in told {
        let column = &mut retyped.columns[at];
        column.data_type = data_type.clone();
        column.why = "told".into();
        column.order = column.order.filter(|_| data_type.is_temporal());
    }
    Ok(Arc::new(retyped))
}

#[async_trait]
impl TableProvider for TextTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.shown)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let taken = |filter: &&Expr| match self.is_of_paths(filter) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(taken).collect())
    }

    fn statistics(&self) -> Option<Statistics> {
        let mut statistics = Statistics::new_unknown(&self.shown);
        // The file may have other rows by the time it is read.
        statistics.num_rows = Precision::Inexact(self.rows as usize);
        statistics.total_byte_size = Precision::Inexact(self.files.bytes() as usize);
        Some(statistics)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let projection = match projection {
            Some(columns) => columns.clone(),
            None => (0..self.shown.fields().len()).collect(),
        };
        let mut statistics = self.statistics().unwrap_or_default().project(Some(&projection));
        if let Some(limit) = limit {
            statistics = statistics.with_fetch(Some(limit), 0, 1)?;
        }
        let partitions = state.config().target_partitions();
        let kept = self.kept(filters, state)?;
        let files = match kept.len() {
            0 => {
                return Ok(Arc::new(EmptyExec::new(project_schema(
                    &self.shown,
                    Some(&projection),
                )?)));
            }
            n if n == self.files.paths.len() => Arc::clone(&self.files),
            _ => Arc::new(self.files.only(&kept)),
        };
        let scan =
            Arc::new(FileScanExec::new(files, projection.clone(), limit, partitions, statistics)?);
        match Arc::ptr_eq(&self.shown, &self.files.columns) {
            true => Ok(scan),
            false => zoned::relabelled(scan, &self.shown, &projection),
        }
    }
}

/// A format with the options of `CREATE EXTERNAL TABLE`, by DuckDB's names or with `format.` before them.
pub fn told_in_statement(mut format: Format, options: &HashMap<String, String>) -> Result<Format> {
    let mut options: Vec<(&String, &String)> = options.iter().collect();
    options.sort();
    for (option, value) in options {
        let name = option.strip_prefix("format.").unwrap_or(option);
        let name = match name {
            "has_header" => "header",
            // Decided by the file's first bytes, by all rows, and by quotes.
            "compression" | "schema_infer_max_rec" | "newlines_in_values" => continue,
            other => other,
        };
        let known = format.tell(name, std::slice::from_ref(value)).map_err(into_datafusion)?;
        if !known {
            let (called, known) = format.known_options();
            return Err(into_datafusion(
                Error::user(format!(
                    "external tables of {called} files have no option {}",
                    quoted(name)
                ))
                .hint(format!("known are {known}")),
            ));
        }
    }
    format.check().map_err(into_datafusion)?;
    Ok(format)
}

/// Workers look at all of the input, and say after each piece of it that they have.
pub(crate) async fn look_at_all(
    inference: &Arc<Inference>,
    workers: usize,
    seen: impl Fn() + Clone + Send + 'static,
) -> thalweg_base::Result<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..workers {
        let (inference, seen) = (Arc::clone(inference), seen.clone());
        tasks.spawn(async move {
            loop {
                let next = Arc::clone(&inference);
                let Some(mut piece) = blocking(move || Ok(next.next())).await? else { break };
                while piece.step() {
                    checkpoint().await;
                }
                seen();
            }
            Ok(())
        });
    }
    while let Some(joined) = tasks.join_next().await {
        let done: Result<()> =
            joined.map_err(|e| Error::internal(format!("a load worker failed: {e}")))?;
        done.map_err(from_datafusion)?;
    }
    Ok(())
}
