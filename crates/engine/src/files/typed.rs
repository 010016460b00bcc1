//! Parquet and Arrow files on this machine as tables, read by DataFusion.
//!
//! Files declare their columns. Those of all files are put together by their names: a column that a file
//! lacks is NULL in its rows, and one that has several types gets the type that holds them all.
//!
//! What files say of the values in them is an estimate here and nothing more: it orders joins, and skips
//! row groups, and never answers a question.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Result, ScalarValue, Statistics, project_schema};
use datafusion::datasource::TableType;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::arrow::ArrowFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::SessionState;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::object_store::path::Path as StorePath;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::physical_expr::Partitioning;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use thalweg_base::Error;
use thalweg_base::text::quoted;
use thalweg_storage::load::{self, Format};

use super::paths;
use super::told::{Told, same_name};
use crate::sql_type::sql_type;
use thalweg_errors::{from_datafusion, into_datafusion};
use thalweg_exec::guarded;
use thalweg_runtime::blocking;

pub struct TypedTable {
    name: String,
    format: Arc<dyn FileFormat>,
    files: Vec<PartitionedFile>,
    /// The columns that the files have themselves.
    own: SchemaRef,
    /// Those, and then the ones of the paths.
    columns: SchemaRef,
    /// Of the latter, by the places of the files.
    of_paths: Vec<Vec<ScalarValue>>,
    /// Of each file, of its own columns.
    statistics: Vec<Statistics>,
    /// What decided the type of each of these columns.
    why: Vec<String>,
}

impl std::fmt::Debug for TypedTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TypedTable({})", self.name)
    }
}

/// The columns of one file.
struct Declared {
    path: PathBuf,
    schema: SchemaRef,
}

impl TypedTable {
    /// `None`: their names are such that DataFusion, which finds columns by their very names, would
    /// lose some.
    ///
    /// # Errors
    /// A file is damaged, or a column has types that no other holds.
    pub async fn new(
        name: &str,
        paths: &[PathBuf],
        is_parquet: bool,
        told: &Told,
        state: &SessionState,
    ) -> Result<Option<Self>> {
        let of_paths = paths::columns(paths, told).map_err(into_datafusion)?;
        let options = state.default_table_options().parquet;
        let mut format: Arc<dyn FileFormat> = match is_parquet {
            true => Arc::new(ParquetFormat::default().with_options(options.clone())),
            false => Arc::new(ArrowFormat),
        };
        let store = state.runtime_env().object_store(ObjectStoreUrl::local_filesystem())?;
        let mut files = vec![];
        let mut declared = vec![];
        let looked_at = if is_parquet { Format::Parquet } else { Format::Arrow };
        for path in paths {
            let (file, format_of) = (path.clone(), looked_at.clone());
            let names = blocking(move || load::declared_names(&file, &format_of)).await?;
            if has_alike(&names) {
                return Ok(None);
            }
            let meta = looked_up(path).await?;
            let metas = std::slice::from_ref(&meta);
            let schema = guarded(path, format.infer_schema(state, &store, metas)).await;
            let schema = schema.map_err(|e| of_file(path, e))?;
            // Dates that count milliseconds may have a time of day, which no date shows: the reader of loads
            // refuses those.
            if schema.fields().iter().any(|field| *field.data_type() == DataType::Date64) {
                return Ok(None);
            }
            declared.push(Declared { path: path.clone(), schema });
            files.push(PartitionedFile::new_from_meta(meta));
        }
        let merged = merged(&declared, told.same_columns).map_err(into_datafusion)?;
        let Some((mut own, mut why)) = merged else { return Ok(None) };
        let is_of_path =
            |field: &FieldRef| of_paths.iter().any(|c| same_name(c.field.name(), field.name()));
        if own.fields().iter().any(is_of_path) {
            let kept = own.fields().iter().zip(why).filter(|(field, _)| !is_of_path(field));
            let (fields, reasons): (Vec<FieldRef>, Vec<String>) =
                kept.map(|(field, why)| (Arc::clone(field), why)).unzip();
            (own, why) = (Arc::new(Schema::new(fields)), reasons);
        }
        let has_floats = own.fields().iter().any(|field| field.data_type().is_floating());
        if is_parquet && has_floats {
            // Writers leave NaN out of the bounds of a column; see `parquet.rs`.
            let format_of = ParquetFormat::default().with_options(options);
            format = Arc::new(format_of.with_enable_pruning(false));
        }
        let mut statistics = vec![];
        for (file, declared) in files.iter().zip(&declared) {
            let found = stated(&*format, state, &store, &own, declared, &file.object_meta);
            let found = guarded(&declared.path, found).await;
            let mut found = found.map_err(|e| of_file(&declared.path, e))?;
            if has_floats || declared.schema.fields() != own.fields() {
                found.column_statistics = vec![ColumnStatistics::new_unknown(); own.fields().len()];
            }
            statistics.push(found);
        }
        let fields = own.fields().iter().cloned();
        let fields = fields.chain(of_paths.iter().map(|column| Arc::new(column.field.clone())));
        let columns = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let of_paths: Vec<Vec<ScalarValue>> =
            of_paths.into_iter().map(|column| column.values).collect();
        for (at, file) in files.iter_mut().enumerate() {
            file.partition_values = of_paths.iter().map(|values| values[at].clone()).collect();
        }
        let name = name.to_owned();
        Ok(Some(TypedTable { name, format, files, own, columns, of_paths, statistics, why }))
    }

    /// What decided the types of the columns, and how the files are written.
    pub fn notes(&self) -> (Vec<String>, String) {
        let own = self.own.fields().len();
        let why = (0..self.columns.fields().len()).map(|column| match column < own {
            true => self.why[column].clone(),
            false => "by the path of the file".to_owned(),
        });
        let format = if self.format.is::<ParquetFormat>() { "Parquet" } else { "Arrow" };
        (why.collect(), format.to_owned())
    }

    fn of_path_columns(&self) -> &[FieldRef] {
        &self.columns.fields()[self.own.fields().len()..]
    }

    /// Of the files at `kept`, over all columns.
    fn statistics_of(&self, kept: &[usize]) -> Result<Statistics> {
        let own = kept.iter().map(|&file| &self.statistics[file]);
        let mut all = Statistics::try_merge_iter(own, &self.own)?;
        let of_paths = self.of_paths.len();
        all.column_statistics.extend(vec![ColumnStatistics::new_unknown(); of_paths]);
        Ok(all)
    }
}

/// The schema that a file has, as DataFusion reads it, and what it says of its values.
async fn stated(
    format: &dyn FileFormat,
    state: &SessionState,
    store: &Arc<dyn ObjectStore>,
    own: &SchemaRef,
    declared: &Declared,
    meta: &ObjectMeta,
) -> Result<Statistics> {
    let found = format.infer_stats(state, store, Arc::clone(&declared.schema), meta).await?;
    check_whole(declared, own, &found).map_err(into_datafusion)?;
    let mut statistics = Statistics::new_unknown(own);
    statistics.num_rows = found.num_rows;
    statistics.total_byte_size = found.total_byte_size.to_inexact();
    if found.column_statistics.len() == own.fields().len() {
        let columns = found.column_statistics.into_iter();
        statistics.column_statistics = columns.map(ColumnStatistics::to_inexact).collect();
    }
    Ok(statistics)
}

/// Whole numbers of a file that are read as doubles, since another has fractions in the column, must be such
/// that doubles hold them.
fn check_whole(declared: &Declared, own: &Schema, found: &Statistics) -> thalweg_base::Result<()> {
    const EXACT_MAX: u64 = 1 << f64::MANTISSA_DIGITS;
    let is_exact = |bound: &Precision<ScalarValue>| match bound.get_value() {
        Some(ScalarValue::Int64(Some(n))) => n.unsigned_abs() <= EXACT_MAX,
        Some(ScalarValue::UInt64(Some(n))) => *n <= EXACT_MAX,
        _ => false,
    };
    for (at, field) in declared.schema.fields().iter().enumerate() {
        let shown = own.fields().iter().find(|shown| same_name(shown.name(), field.name()));
        if !shown.is_some_and(|shown| loses_digits(field.data_type(), shown.data_type())) {
            continue;
        }
        let column = found.column_statistics.get(at);
        let is_held = column.is_some_and(|column| {
            let is_empty = found.num_rows.get_value().is_some_and(|rows| {
                column.null_count.get_value().is_some_and(|nulls| nulls == rows)
            });
            is_empty || is_exact(&column.min_value) && is_exact(&column.max_value)
        });
        if !is_held {
            let path = quoted(&declared.path.to_string_lossy());
            return Err(Error::user(format!(
                "column {} is {} in {path} and double in another file, and not all its values are known to be the same as doubles",
                quoted(field.name()),
                sql_type(field.data_type()),
            ))
            .code("22003")
            .hint("read them by two calls, and put the rows together with CAST and UNION ALL"));
        }
    }
    Ok(())
}

/// Whether whole numbers of a type may be others as values of another type.
fn loses_digits(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    match (from, to) {
        (T::Int64 | T::UInt64, T::Float64) => true,
        (T::List(from) | T::LargeList(from), T::List(to) | T::LargeList(to)) => {
            loses_digits(from.data_type(), to.data_type())
        }
        (T::Struct(from), T::Struct(to)) => from.iter().any(|field| {
            let to = to.iter().find(|to| to.name() == field.name());
            to.is_some_and(|to| loses_digits(field.data_type(), to.data_type()))
        }),
        _ => false,
    }
}

/// The file as DataFusion's store has it.
async fn looked_up(path: &Path) -> Result<ObjectMeta> {
    let path = path.to_owned();
    blocking(move || {
        let named = quoted(&path.to_string_lossy());
        let failed = |e| Error::io(format!("cannot open {named}"), e);
        let meta = path.metadata().map_err(failed)?;
        let absolute = std::path::absolute(&path).map_err(failed)?;
        let text = absolute.to_str().ok_or_else(|| {
            Error::unsupported(format!("the path {named} is not UTF-8")).hint("rename the file")
        })?;
        let location = StorePath::parse(text.trim_start_matches('/')).or_else(|_| {
            // With `..` in it, or `//`.
            let resolved = path.canonicalize().map_err(failed)?;
            let text = resolved.to_string_lossy().into_owned();
            StorePath::parse(text.trim_start_matches('/'))
                .map_err(|e| Error::user(format!("cannot read {named}: {e}")))
        })?;
        Ok(ObjectMeta {
            location,
            last_modified: meta.modified().map_err(failed)?.into(),
            size: meta.len(),
            e_tag: None,
            version: None,
        })
    })
    .await
}

fn of_file(
    path: &Path,
    e: datafusion::common::DataFusionError,
) -> datafusion::common::DataFusionError {
    let named = quoted(&path.to_string_lossy());
    into_datafusion(from_datafusion(e).context(format!("file {named}")))
}

/// Whether two columns differ in case alone, or not at all; or a name is empty.
fn has_alike(names: &[String]) -> bool {
    let mut lower: Vec<String> = names.iter().map(|name| name.to_lowercase()).collect();
    lower.sort_unstable();
    lower.windows(2).any(|pair| pair[0] == pair[1]) || names.iter().any(|name| name.is_empty())
}

/// The columns of all files, and what decided their types; `None` if some differ in case alone.
fn merged(
    files: &[Declared],
    same_columns: bool,
) -> thalweg_base::Result<Option<(SchemaRef, Vec<String>)>> {
    struct Column<'f> {
        field: Field,
        /// The file that declared this type.
        from: &'f Path,
        files: usize,
        /// The types that it was declared with before it got wider.
        narrower: Vec<String>,
    }
    let mut columns: Vec<Column<'_>> = vec![];
    for file in files {
        let Some(first) = files.first() else { break };
        for field in file.schema.fields() {
            let same = |column: &&mut Column<'_>| same_name(column.field.name(), field.name());
            let Some(column) = columns.iter_mut().find(same) else {
                if same_columns && !std::ptr::eq(file, first) {
                    return Err(lacking(&file.path, field.name(), &first.path));
                }
                // Some file may not have it.
                let field = field.as_ref().clone().with_nullable(true);
                columns.push(Column { field, from: &file.path, files: 1, narrower: vec![] });
                continue;
            };
            if column.field.name() != field.name() {
                return Ok(None);
            }
            column.files += 1;
            let (known, new) = (column.field.data_type(), field.data_type());
            if known == new {
                continue;
            }
            let Some(wider) = wider(known, new) else {
                let paths = [column.from, &file.path].map(|path| quoted(&path.to_string_lossy()));
                return Err(Error::user(format!(
                    "column {} is {} in {} and {} in {}",
                    quoted(field.name()),
                    sql_type(known),
                    paths[0],
                    sql_type(new),
                    paths[1]
                ))
                .hint(
                    "read them by two calls, and put the rows together with CAST and UNION ALL",
                ));
            };
            if wider != *known {
                column.narrower.push(sql_type(known));
                column.from = &file.path;
                column.field = column.field.clone().with_data_type(wider);
            }
        }
        if same_columns {
            let lost = columns.iter().find(|column| {
                let has = |field: &FieldRef| same_name(field.name(), column.field.name());
                !file.schema.fields().iter().any(has)
            });
            if let Some(column) = lost {
                return Err(lacking(&first.path, column.field.name(), &file.path));
            }
        }
    }
    let why = columns.iter().map(|column| {
        let mut why = match &column.narrower[..] {
            [] => "declared by the files".to_owned(),
            narrower => {
                let from = quoted(&column.from.to_string_lossy());
                format!("{from} holds more; {} before it", narrower.join(", "))
            }
        };
        if column.files < files.len() {
            why += &format!("; in {} of {} files", column.files, files.len());
        }
        why
    });
    let why = why.collect();
    let fields: Vec<Field> = columns.into_iter().map(|column| column.field).collect();
    Ok(Some((Arc::new(Schema::new(fields)), why)))
}

fn lacking(with: &Path, name: &str, without: &Path) -> Error {
    let paths = [with, without].map(|path| quoted(&path.to_string_lossy()));
    let message = format!("{} has a column {}, {} has none", paths[0], quoted(name), paths[1]);
    Error::user(message)
        .hint("with `union_by_name = true` rows of files that lack a column have NULL there")
}

/// Whether a type holds all values of another, unchanged.
pub fn holds(data_type: &DataType, values: &DataType) -> bool {
    use DataType as T;
    match (data_type, values) {
        (T::Timestamp(unit, zone), T::Timestamp(of_values, other)) => {
            unit >= of_values && zone.is_some() == other.is_some()
        }
        (T::List(item), T::List(of_values) | T::LargeList(of_values)) => {
            holds(item.data_type(), of_values.data_type())
        }
        (T::Struct(fields), T::Struct(of_values)) => {
            let is_held = |(a, b): (&FieldRef, &FieldRef)| {
                a.name() == b.name() && holds(a.data_type(), b.data_type())
            };
            fields.len() == of_values.len() && fields.iter().zip(of_values).all(is_held)
        }
        _ => wider(data_type, values) == wider(data_type, data_type),
    }
}

/// The type that holds the values of both; of text there are several.
fn wider(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType as T;
    let is_text = |t: &DataType| matches!(t, T::Utf8 | T::LargeUtf8 | T::Utf8View);
    let is_bytes = |t: &DataType| matches!(t, T::Binary | T::LargeBinary | T::BinaryView);
    let plain = |t: &DataType| match t {
        T::Dictionary(_, values) => values.as_ref().clone(),
        other => other.clone(),
    };
    let (a, b) = (plain(a), plain(b));
    if is_text(&a) && is_text(&b) {
        return Some(T::Utf8View);
    }
    if is_bytes(&a) && is_bytes(&b) {
        return Some(T::BinaryView);
    }
    load::wider(&a, &b)
}

#[async_trait]
impl TableProvider for TypedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.columns)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn statistics(&self) -> Option<Statistics> {
        let all: Vec<usize> = (0..self.files.len()).collect();
        let mut statistics = self.statistics_of(&all).ok()?;
        // The files may have other rows by the time they are read.
        statistics.num_rows = statistics.num_rows.to_inexact();
        Some(statistics)
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let taken = |filter: &&Expr| match paths::decide(self.of_path_columns(), filter) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Inexact,
        };
        Ok(filters.iter().map(taken).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let files = self.files.len();
        let kept = paths::kept(self.of_path_columns(), &self.of_paths, files, filters, state)?;
        if kept.is_empty() {
            let schema = project_schema(&self.columns, projection)?;
            return Ok(Arc::new(EmptyExec::new(schema)));
        }
        let mut statistics = self.statistics_of(&kept)?;
        if !state.config().collect_statistics() {
            statistics.num_rows = Precision::Absent;
        }
        let files: Vec<PartitionedFile> =
            kept.iter().map(|&file| self.files[file].clone()).collect();
        // Who wants a few rows gets the first ones, in the order of the files.
        let (groups, partitioning) = match limit {
            Some(_) => (1, Some(Partitioning::UnknownPartitioning(1))),
            None => (state.config().target_partitions().clamp(1, files.len()), None),
        };
        let groups = files.chunks(files.len().div_ceil(groups));
        let groups = groups.map(|files| FileGroup::new(files.to_vec())).collect();
        let of_paths = self.of_path_columns().to_vec();
        let schema =
            TableSchema::builder(Arc::clone(&self.own)).with_table_partition_cols(of_paths).build();
        let source = self.format.file_source(schema);
        let config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), source)
            .with_file_groups(groups)
            .with_statistics(statistics)
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .with_preserve_order(limit.is_some())
            .with_output_partitioning(partitioning)
            .build();
        self.format.create_physical_plan(state, config).await
    }
}
