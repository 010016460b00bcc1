//! The rows of files as extents that are not part of a table yet.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, SchemaRef};
use datafusion::common::runtime::JoinSet;
use datafusion::common::{Result as DfResult, ScalarValue};
use thalweg_base::limits::{LOAD_BLOCK_BYTES, LOAD_BLOCK_BYTES_MIN, LOAD_WORKER_BYTES_MIN};
use thalweg_base::{Error, Result};
use thalweg_storage::load::{Columns, Matched, Reader, Reject};
use thalweg_storage::{ExtentWriter, LoadedFile, NewExtent, Transaction};

use super::prepare::{InputFile, Prepared};
use super::{ColumnChanges, Load, LoadProgress, LoadReport, NewColumns, Rejected};
use crate::session::Inner;
use crate::write::{self, Target};
use thalweg_errors::{from_arrow, from_datafusion, into_datafusion};
use thalweg_runtime::{blocking, checkpoint};

/// How the memory of a load is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shares {
    pub workers: usize,
    /// Of one block of text.
    pub block_bytes: usize,
    /// Of all other input that is read and not yet parsed.
    pub units_bytes: usize,
    /// Of the rows one worker has parsed and sorts, for a table with an order.
    pub run_bytes: usize,
    /// Of the rows one worker has parsed and not yet encoded, else. Encoding needs a multiple of
    /// what is in a chunk, and wide rows make it large.
    pub chunk_bytes: usize,
}

impl Shares {
    pub fn of(memory_bytes: usize, threads: usize) -> Shares {
        let workers = threads.min(memory_bytes / LOAD_WORKER_BYTES_MIN).max(1);
        let each = memory_bytes / workers;
        Shares {
            workers,
            block_bytes: (each / 16).clamp(LOAD_BLOCK_BYTES_MIN, LOAD_BLOCK_BYTES),
            units_bytes: memory_bytes / 4,
            run_bytes: (each / 2).max(1),
            chunk_bytes: (each / 4).max(1),
        }
    }
}

/// A table's files, read and encoded, not yet committed.
pub(super) struct Staged {
    table: Arc<Prepared>,
    files: Vec<LoadedFile>,
    extents: Vec<NewExtent>,
    matched: Matched,
    rejects: Vec<Arc<Reject>>,
    /// The catalog is to remember the files.
    remember: bool,
    pub started: Instant,
    /// Until the extents were durable.
    seconds: f64,
}

/// Reads `files`, some of those of `table`.
pub(super) async fn read(
    session: &Inner,
    table: &Arc<Prepared>,
    files: Vec<InputFile>,
    load: &Load,
    rejected: &mut Rejected,
    progress: &Arc<LoadProgress>,
) -> Result<Staged> {
    let started = Instant::now();
    progress.table.lock().clone_from(&table.request.table);
    let shares = Shares::of(load.memory_bytes, session.engine.config().threads);
    let stamps: Vec<LoadedFile> = files.iter().map(|f| f.stamp.clone()).collect();
    let mut staged = Staged {
        table: Arc::clone(table),
        files: stamps,
        extents: vec![],
        matched: Matched::default(),
        rejects: vec![],
        remember: load.remember,
        started,
        seconds: 0.0,
    };
    if files.is_empty() {
        return Ok(staged);
    }
    let of_paths = OfPaths::new(table, &files)?;
    let own = |column: &usize| !of_paths.is_of_path(*column);
    let own: Vec<usize> = (0..table.columns.fields().len()).filter(own).collect();
    let columns = Columns {
        schema: Arc::new(table.columns.project(&own).map_err(|e| from_arrow(&e))?),
        defaults: own.iter().map(|&column| table.defaults[column].clone()).collect(),
        ignore_unknown: table.request.new_columns == NewColumns::Ignore,
        hidden: of_paths.names(),
        names: table.request.input_columns.clone(),
        wanted: None,
    };
    let paths: Vec<PathBuf> = files.into_iter().map(|f| f.path).collect();
    let (format, rejects_max) = (table.format.clone(), rejected.left());
    let opened = blocking(move || Reader::open(paths, format, columns)).await;
    let reader = opened
        .map_err(from_datafusion)?
        .with_rejects_max(rejects_max)
        .with_memory(shares.units_bytes, shares.block_bytes);
    let target =
        Target { database: session.engine.database().clone(), layout: table.layout.clone() };
    let reader = Arc::new(reader);
    let sorts = !target.layout.cluster_by.is_empty();
    let writer_bytes = if sorts { shares.run_bytes } else { shares.chunk_bytes };
    let extents =
        read_all(&reader, of_paths, &target, shares.workers, writer_bytes, progress).await?;
    let (outcome, result) = reader.finish();
    rejected.rows.extend(outcome.rejects.iter().cloned());
    result?;
    staged.extents = extents;
    staged.matched = outcome.matched;
    staged.rejects = outcome.rejects;
    staged.seconds = started.elapsed().as_secs_f64();
    Ok(staged)
}

/// The columns of a table that do not come out of the files, but of the folders these lie in.
struct OfPaths {
    schema: SchemaRef,
    /// By their places in the table, ascending; their values by the places of the files.
    columns: Vec<(usize, Vec<ScalarValue>)>,
}

impl OfPaths {
    fn new(table: &Prepared, files: &[InputFile]) -> Result<OfPaths> {
        let mut columns = table.of_paths(files)?;
        columns.sort_by_key(|(column, _)| *column);
        Ok(OfPaths { schema: Arc::clone(&table.columns), columns })
    }

    fn is_of_path(&self, column: usize) -> bool {
        self.columns.iter().any(|(of_path, _)| *of_path == column)
    }

    fn names(&self) -> Vec<String> {
        self.columns.iter().map(|(column, _)| self.schema.field(*column).name().clone()).collect()
    }

    /// A batch of a file with its columns.
    fn whole(&self, batch: RecordBatch, file: usize) -> DfResult<RecordBatch> {
        if self.columns.is_empty() {
            return Ok(batch);
        }
        let rows = batch.num_rows();
        let mut arrays = batch.columns().to_vec();
        for (column, values) in &self.columns {
            arrays.insert(*column, values[file].to_array_of_size(rows)?);
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), arrays)?)
    }
}

/// Every worker takes the next unit of input, parses it and encodes it into extents of its own.
async fn read_all(
    reader: &Arc<Reader>,
    of_paths: OfPaths,
    target: &Target,
    workers: usize,
    writer_bytes: usize,
    progress: &Arc<LoadProgress>,
) -> Result<Vec<NewExtent>> {
    let before = progress.bytes_done.load(Ordering::Relaxed);
    let rejected = progress.rejected.load(Ordering::Relaxed);
    let mut tasks = JoinSet::new();
    let of_paths = Arc::new(of_paths);
    for _ in 0..workers {
        let of_paths = Arc::clone(&of_paths);
        let (reader, target, progress) = (Arc::clone(reader), target.clone(), Arc::clone(progress));
        tasks.spawn(async move {
            let mut writer = target.writer();
            loop {
                let next = Arc::clone(&reader);
                let Some(unit) = blocking(move || Ok(next.next())).await? else { break };
                let file = unit.file();
                for batch in unit.parse() {
                    let batch = of_paths.whole(batch.map_err(into_datafusion)?, file)?;
                    progress.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
                    write::push(&mut writer, &batch).await?;
                    if writer.buffered_bytes() >= writer_bytes {
                        cut(&mut writer).await?;
                    }
                    checkpoint().await;
                }
                progress.bytes_done.store(before + reader.bytes_done(), Ordering::Relaxed);
                progress.rejected.store(rejected + reader.rejected(), Ordering::Relaxed);
            }
            // Nothing will come of its rows.
            if reader.failed() {
                return Ok(vec![]);
            }
            write::finish(writer).await
        });
    }
    let mut extents = vec![];
    while let Some(joined) = tasks.join_next().await {
        let done = joined.map_err(|e| Error::internal(format!("a load worker failed: {e}")))?;
        extents.extend(done.map_err(from_datafusion)?);
    }
    progress.bytes_done.store(before + reader.bytes_total(), Ordering::Relaxed);
    Ok(extents)
}

/// Encodes what waits in `writer`, which is more than its share: a chunk of wide rows, or a run
/// to be sorted, is cut short.
async fn cut(writer: &mut ExtentWriter) -> DfResult<()> {
    writer.flush().map_err(into_datafusion)?;
    while writer.step().map_err(into_datafusion)? {
        checkpoint().await;
    }
    Ok(())
}

/// The part of a transaction that one table's load is.
pub(super) struct Change {
    table: Arc<Prepared>,
    files: Vec<LoadedFile>,
    extents: Vec<NewExtent>,
}

impl Staged {
    pub fn split(self) -> (LoadReport, Change) {
        let Staged { table, files, extents, matched, rejects, remember, seconds, .. } = self;
        let counted = |columns: std::collections::BTreeMap<String, BTreeSet<usize>>| {
            columns.into_iter().map(|(name, files)| (name, files.len())).collect()
        };
        let report = LoadReport {
            table: table.request.table.clone(),
            created: table.table.is_none(),
            rows: extents.iter().map(NewExtent::rows).sum(),
            raw_bytes: files.iter().map(|f| f.bytes).sum(),
            stored_bytes: extents.iter().map(NewExtent::bytes).sum(),
            seconds,
            files: files.len(),
            extents: extents.len(),
            chunks: extents.iter().map(|e| e.extent().chunks()).sum(),
            columns: Arc::clone(&table.columns),
            changes: ColumnChanges {
                missing: counted(matched.missing),
                ignored: counted(matched.ignored),
                ..table.changes()
            },
            rejects,
            skipped: table.skipped,
            transactions: 1,
        };
        let files = if remember { files } else { vec![] };
        (report, Change { table, files, extents })
    }
}

impl Change {
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.table.schema, self.table.name)
    }

    pub fn apply(self, transaction: &mut Transaction) -> Result<()> {
        let prepared = self.table;
        let id = match &prepared.table {
            Some(table) => {
                for column in &prepared.added {
                    let field = Field::new(&column.name, column.data_type.clone(), true);
                    transaction.add_column(table.id, field, None, None)?;
                }
                prepared.check_same(transaction.snapshot())?;
                table.id
            }
            None => {
                let (columns, spec) = (Arc::clone(&prepared.columns), prepared.spec.clone());
                transaction.create_table(&prepared.schema, &prepared.name, columns, spec)?
            }
        };
        transaction.append(id, self.extents)?;
        if self.files.is_empty() { Ok(()) } else { transaction.record_files(id, self.files) }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_base::limits::LOAD_MEMORY_BYTES;

    use super::*;

    #[test]
    fn shares_add_up_to_the_limit() {
        for threads in [1, 2, 7, 16, 64, 500] {
            for memory in [1 << 20, 64 << 20, LOAD_MEMORY_BYTES, 8 << 30] {
                let s = Shares::of(memory, threads);
                assert!(s.workers >= 1 && s.workers <= threads, "{s:?}");
                assert!(s.chunk_bytes <= s.run_bytes, "{s:?}");
                let all = s.units_bytes + s.workers * (s.run_bytes + s.block_bytes);
                assert!(all <= memory.max(LOAD_WORKER_BYTES_MIN), "{s:?} of {memory}");
            }
        }
    }
}
