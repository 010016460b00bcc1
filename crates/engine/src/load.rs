//! `thalweg load`: files become tables, in parallel over files and inside them, in one
//! transaction.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arrow::datatypes::SchemaRef;
use datafusion::common::TableReference;
use datafusion::common::runtime::JoinSet;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use parking_lot::Mutex;
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result, TableId};
use thalweg_storage::load::{self, CsvOptions, Format, Reader};
use thalweg_storage::{NewExtent, Snapshot};

use crate::ddl;
use crate::error::{from_datafusion, into_datafusion};
use crate::runtime::{blocking, checkpoint};
use crate::session::Inner;
use crate::write::{self, Target};

/// Files for one table.
#[derive(Clone, Debug, Default)]
pub struct LoadRequest {
    /// `table` or `schema.table`. Made if it is not there, else appended to.
    pub table: String,
    /// Files, folders and globs.
    pub files: Vec<String>,
    /// `None`: by extension and content, file by file; they must agree.
    pub format: Option<Format>,
    /// The dialect, for files that turn out to be CSV; `None`: found out.
    pub csv: Option<CsvOptions>,
    /// `a INT, b DECIMAL(12, 2) NOT NULL`; `None`: the table's, or inferred.
    pub columns: Option<String>,
    /// For a table that is made.
    pub cluster_by: Vec<String>,
}

/// How far a load is, readable at any time.
#[derive(Debug, Default)]
pub struct LoadProgress {
    pub rows: AtomicU64,
    /// Of the files on disk, compressed ones as they lie there.
    pub bytes_done: AtomicU64,
    pub bytes_total: AtomicU64,
    pub table: Mutex<String>,
}

/// What a load did to one table.
#[derive(Clone, Debug)]
pub struct LoadReport {
    pub table: String,
    pub created: bool,
    pub rows: u64,
    /// Of the files on disk.
    pub raw_bytes: u64,
    pub stored_bytes: u64,
    pub seconds: f64,
    pub files: usize,
    pub extents: usize,
    pub chunks: usize,
    pub columns: SchemaRef,
}

/// A table's files, read and encoded, not yet committed.
struct Loaded {
    schema: String,
    name: String,
    /// `None`: to be made.
    table: Option<TableId>,
    cluster_by: Vec<usize>,
    extents: Vec<NewExtent>,
    report: LoadReport,
}

pub(crate) async fn load(
    session: &Inner,
    requests: Vec<LoadRequest>,
    progress: &Arc<LoadProgress>,
) -> Result<Vec<LoadReport>> {
    let snapshot = session.catalog.refresh();
    let mut inputs = vec![];
    for request in requests {
        let args = request.files.clone();
        let files = blocking(move || load::expand(&args)).await.map_err(from_datafusion)?;
        let bytes: u64 = files.iter().filter_map(|f| f.metadata().ok()).map(|m| m.len()).sum();
        progress.bytes_total.fetch_add(bytes, Ordering::Relaxed);
        inputs.push((request, files));
    }
    let mut loaded: Vec<Loaded> = vec![];
    for (request, files) in inputs {
        loaded.push(load_table(session, &snapshot, request, files, progress).await?);
    }
    let mut reports = vec![];
    let mut changes = vec![];
    for l in loaded {
        changes.push((
            l.schema,
            l.name,
            l.table,
            l.report.columns.clone(),
            l.cluster_by,
            l.extents,
        ));
        reports.push(l.report);
    }
    ddl::commit(session, move |transaction| {
        for (schema, name, table, columns, cluster_by, extents) in changes {
            let table = match table {
                Some(table) => table,
                None => transaction.create_table(&schema, &name, columns, cluster_by)?,
            };
            transaction.append(table, extents)?;
        }
        Ok(())
    })
    .await?;
    Ok(reports)
}

async fn load_table(
    session: &Inner,
    snapshot: &Snapshot,
    request: LoadRequest,
    files: Vec<PathBuf>,
    progress: &Arc<LoadProgress>,
) -> Result<Loaded> {
    let started = Instant::now();
    let (schema_name, name) = ddl::split_name(&TableReference::parse_str(&request.table))?;
    progress.table.lock().clone_from(&request.table);
    let Some(schema) = snapshot.schemas.get(&schema_name) else {
        return Err(Error::user(format!("schema {} does not exist", quoted(&schema_name)))
            .hint(format!("CREATE SCHEMA {} makes it", quoted(&schema_name))));
    };
    if schema.views.contains_key(&name) || schema.externals.contains_key(&name) {
        return Err(Error::user(format!("{} is not a stored table", quoted(&name)))
            .hint("a view or an external table cannot be loaded into"));
    }
    let format = format(&request, &files)?;
    let table = schema.tables.get(&name);
    let mut inferred_rows = None;
    let columns = match (table, &request.columns) {
        (Some(_), Some(_)) => {
            return Err(Error::user(format!("table {} exists and has its columns", quoted(&name)))
                .hint("leave --columns out to append, or drop the table first"));
        }
        (Some(_), None) if !request.cluster_by.is_empty() => {
            return Err(Error::user(format!("table {} exists and has its order", quoted(&name)))
                .hint("leave --cluster-by out to append, or drop the table first"));
        }
        (Some(table), None) => Arc::clone(&table.arrow_schema),
        (None, Some(columns)) => declared(session, columns).await?,
        (None, None) => {
            let (files, format) = (files.clone(), format.clone());
            let inferred = blocking(move || load::infer(&files, &format)).await;
            let inferred = inferred.map_err(from_datafusion)?;
            inferred_rows = inferred.sampled_rows;
            inferred.schema
        }
    };
    let cluster_by = match table {
        Some(table) => table.cluster_by.clone(),
        None => ddl::column_indices(&columns, &request.cluster_by)?,
    };
    let target = Target {
        database: session.engine.database().clone(),
        schema: Arc::clone(&columns),
        cluster_by: cluster_by.clone(),
    };
    let before = progress.bytes_done.load(Ordering::Relaxed);
    let file_count = files.len();
    let reader = {
        let columns = Arc::clone(&columns);
        let opened = blocking(move || Reader::open(files, format, columns)).await;
        let reader = opened.map_err(from_datafusion)?;
        Arc::new(match inferred_rows {
            // So that a value that does not fit can be told from a wrong declaration.
            Some(rows) => reader.with_inferred_rows(rows),
            None => reader,
        })
    };
    let extents =
        read_all(&reader, &target, session.engine.config().threads, progress, before).await?;
    let raw_bytes = reader.bytes_total();
    progress.bytes_done.store(before + raw_bytes, Ordering::Relaxed);
    let report = LoadReport {
        table: request.table,
        created: table.is_none(),
        rows: extents.iter().map(NewExtent::rows).sum(),
        raw_bytes,
        stored_bytes: extents.iter().map(NewExtent::bytes).sum(),
        seconds: started.elapsed().as_secs_f64(),
        files: file_count,
        extents: extents.len(),
        chunks: extents.iter().map(|e| e.extent().chunks()).sum(),
        columns,
    };
    Ok(Loaded {
        schema: schema_name,
        name,
        table: table.map(|t| t.id),
        cluster_by,
        extents,
        report,
    })
}

/// Every worker takes the next unit of input, parses it and encodes it into extents of its own.
async fn read_all(
    reader: &Arc<Reader>,
    target: &Target,
    workers: usize,
    progress: &Arc<LoadProgress>,
    before: u64,
) -> Result<Vec<NewExtent>> {
    let mut tasks = JoinSet::new();
    for _ in 0..workers {
        let (reader, target, progress) = (Arc::clone(reader), target.clone(), Arc::clone(progress));
        tasks.spawn(async move {
            let mut writer = target.writer().map_err(into_datafusion)?;
            loop {
                let next = Arc::clone(&reader);
                let Some(unit) = blocking(move || next.next()).await? else { break };
                for batch in unit.parse() {
                    let batch = batch.map_err(into_datafusion)?;
                    progress.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
                    write::push(&mut writer, &batch).await?;
                    checkpoint().await;
                }
                progress.bytes_done.store(before + reader.bytes_done(), Ordering::Relaxed);
            }
            write::finish(writer).await
        });
    }
    let mut extents = vec![];
    while let Some(joined) = tasks.join_next().await {
        let done = joined.map_err(|e| Error::internal(format!("a load worker failed: {e}")))?;
        extents.extend(done.map_err(from_datafusion)?);
    }
    Ok(extents)
}

/// The one format of all files.
fn format(request: &LoadRequest, files: &[PathBuf]) -> Result<Format> {
    if let Some(format) = &request.format {
        return Ok(match (format, &request.csv) {
            (Format::Csv(_), Some(options)) => Format::Csv(options.clone()),
            _ => format.clone(),
        });
    }
    let mut all = files.iter().map(|file| load::format_of(file).map(|(format, _)| (file, format)));
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
    Ok(match (format, &request.csv) {
        (Format::Csv(_), Some(options)) => Format::Csv(options.clone()),
        (format, _) => format,
    })
}

/// The columns of `a INT, b VARCHAR NOT NULL`, as CREATE TABLE understands them.
async fn declared(session: &Inner, columns: &str) -> Result<SchemaRef> {
    let state = session.context.state();
    let sql = format!("CREATE TABLE declared ({columns})");
    let named = |e: Error| e.context("the declared columns");
    let statement = crate::statement::parse(&state, &sql).map_err(named)?;
    let plan = state.statement_to_plan(statement).await;
    match plan.map_err(|e| named(from_datafusion(e)))? {
        LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) => {
            ddl::table_schema(create.input.schema().as_arrow(), false)
        }
        _ => Err(Error::user(format!("{columns:?} does not declare columns"))),
    }
}
