//! Sorted runs in files: what sorts write when memory is refused, and what they read in the end.
//!
//! ```text
//!   rows, until memory is refused ─┬─ run 0 ─┐
//!                                  ├─ run 1 ─┼─ merge ─ rows in order
//!                                  └─ …      ┘
//! ```
//! A row's [normalised key](thalweg_pipeline::sort) is written with it, as a last column, so that runs
//! are merged by comparing bytes. DataFusion merges them, as many at a time as there is memory for.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{Result, resources_err};
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::SpillManager;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::sorts::streaming_merge::{SortedSpillFile, StreamingMergeBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use parking_lot::Mutex;
use thalweg_base::limits::{BATCH_ROWS, SORT_MERGE_BYTES};
use thalweg_pipeline::aggregate::Groups;
use thalweg_pipeline::encoding::value_bytes;
use thalweg_pipeline::phases::Phases;
use thalweg_pipeline::sort::Sorting;

use super::compact::compacted;
use super::spill_file::manager;
use thalweg_errors::into_datafusion;
use thalweg_runtime::checkpoint;

/// Batches of each run that a merge reserves memory for: two that were read, each also as it is being
/// compared.
const RUN_BATCHES: usize = 4;

/// Of a batch that is written or comes out, about: who merges several outputs holds some of each, and
/// cannot spill them.
const BATCH_BYTES: usize = SORT_MERGE_BYTES / RUN_BATCHES;

/// All merges of a sort take no more than this part of the memory.
const MERGES_PART: usize = 2;

/// Runs that were written; others may still be.
pub struct SortedRuns {
    /// Of the rows, without their keys.
    schema: SchemaRef,
    fetch: Option<usize>,
    files: SpillManager,
    written: Mutex<Written>,
}

struct Written {
    runs: Vec<SortedSpillFile>,
    /// Of the runs' batches, the fewest.
    batch_rows: usize,
}

impl SortedRuns {
    /// Of rows of `schema`, of which only the first `fetch` may be wanted. What is spilled is counted for
    /// this partition.
    pub fn new(
        schema: SchemaRef,
        fetch: Option<usize>,
        context: &TaskContext,
        metrics: &ExecutionPlanMetricsSet,
        partition: usize,
    ) -> Self {
        let key = Arc::new(Field::new("key", DataType::Binary, false));
        let fields = schema.fields().iter().cloned().chain([key]).collect::<Vec<_>>();
        let spills = SpillMetrics::new(metrics, partition);
        SortedRuns {
            files: manager(Arc::new(Schema::new(fields)), context, spills),
            schema,
            fetch,
            written: Mutex::new(Written { runs: vec![], batch_rows: BATCH_ROWS }),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.written.lock().runs.is_empty()
    }

    /// Writes a run of what was collected, whose parts this sorts first.
    pub async fn write(&self, sorting: Sorting) -> Result<()> {
        sort_parts(&sorting).await?;
        let mut file = self.files.create_in_progress_file("Sort")?;
        let mut max_record_batch_memory = 0;
        let mut fewest = BATCH_ROWS;
        let mut left = self.fetch.unwrap_or(usize::MAX);
        for range in 0..sorting.ranges() {
            let (mut range, keys) = sorting.range_with_keys(range).map_err(into_datafusion)?;
            range.columns.push(Arc::new(keys));
            let rows = batch_rows(&range);
            fewest = fewest.min(rows);
            range.rows = range.rows.min(left);
            left -= range.rows;
            for batch in batches(self.files.schema(), &range, rows)? {
                max_record_batch_memory = max_record_batch_memory.max(file.append_batch(&batch)?);
            }
            checkpoint().await;
            if left == 0 {
                break;
            }
        }
        let Some(file) = file.finish()? else { return Ok(()) };
        let mut written = self.written.lock();
        written.batch_rows = written.batch_rows.min(fewest);
        written.runs.push(SortedSpillFile { file, max_record_batch_memory });
        Ok(())
    }

    /// All rows in order, of sorts that are so many; the files go with the last that reads them.
    pub fn merged(
        &self,
        memory: MemoryReservation,
        sorts: usize,
        metrics: BaselineMetrics,
        context: &TaskContext,
    ) -> Result<SendableRecordBatchStream> {
        let (runs, batch_rows) = {
            let written = self.written.lock();
            let run = |run: &SortedSpillFile| SortedSpillFile {
                file: Arc::clone(&run.file),
                max_record_batch_memory: run.max_record_batch_memory,
            };
            (written.runs.iter().map(run).collect::<Vec<_>>(), written.batch_rows)
        };
        let batch_bytes_max = runs.iter().map(|run| run.max_record_batch_memory).max();
        let bytes_min = 2 * RUN_BATCHES * batch_bytes_max.unwrap_or(0);
        let bytes_max = match context.memory_pool().memory_limit() {
            MemoryLimit::Finite(limit) => limit / MERGES_PART / sorts,
            _ => usize::MAX,
        };
        let bytes_max = bytes_max.max(bytes_min);
        let pool: Arc<dyn MemoryPool> =
            Arc::new(MergeMemory { reservation: memory, bytes_min, bytes_max });
        let keys = self.schema.fields().len();
        let key = PhysicalSortExpr::new_default(Arc::new(Column::new("key", keys)));
        let merged = StreamingMergeBuilder::new()
            .with_sorted_spill_files(runs)
            .with_spill_manager(self.files.clone())
            .with_schema(Arc::clone(self.files.schema()))
            .with_expressions(&LexOrdering::from([key]))
            .with_metrics(metrics)
            .with_batch_size(batch_rows)
            .with_fetch(self.fetch)
            .with_reservation(MemoryConsumer::new("SortMerge").register(&pool))
            .build()?;
        let columns: Vec<usize> = (0..keys).collect();
        let merged = merged.then(move |batch| {
            let without_keys = batch.and_then(|batch| Ok(batch.project(&columns)?));
            async move {
                checkpoint().await;
                Ok(compacted(&without_keys?))
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), merged)))
    }
}

/// Sorts each part of what was collected.
pub async fn sort_parts(sorting: &Sorting) -> Result<()> {
    for task in 0..sorting.tasks(0) {
        sorting.run(0, task).map_err(into_datafusion)?;
        checkpoint().await;
    }
    Ok(())
}

/// Rows that a batch of such rows should have.
pub fn batch_rows(range: &Groups) -> usize {
    let bytes = range.columns.iter().map(|column| value_bytes(column.as_ref(), None));
    let row_bytes = bytes.sum::<usize>() / range.rows.max(1);
    (BATCH_BYTES / row_bytes.max(1)).clamp(1, BATCH_ROWS)
}

/// The first `range.rows` rows in batches of so many.
pub fn batches(schema: &SchemaRef, range: &Groups, rows: usize) -> Result<Vec<RecordBatch>> {
    if range.rows == 0 {
        return Ok(vec![]);
    }
    let all = RecordBatch::try_new(Arc::clone(schema), range.columns.clone())?;
    let starts = (0..range.rows).step_by(rows);
    Ok(starts.map(|start| all.slice(start, rows.min(range.rows - start))).collect())
}

/// The memory pool of a merge. It always gets what two runs take, and no more than its part: it
/// would take all there is, and who reads its output needs memory, too.
#[derive(Debug)]
struct MergeMemory {
    reservation: MemoryReservation,
    bytes_min: usize,
    bytes_max: usize,
}

impl MemoryPool for MergeMemory {
    fn name(&self) -> &str {
        "merge"
    }

    fn grow(&self, _: &MemoryReservation, additional: usize) {
        self.reservation.grow(additional);
    }

    fn try_grow(&self, _: &MemoryReservation, additional: usize) -> Result<()> {
        match self.reservation.size() + additional {
            bytes if bytes <= self.bytes_min => {
                self.reservation.grow(additional);
                Ok(())
            }
            bytes if bytes <= self.bytes_max => self.reservation.try_grow(additional),
            _ => resources_err!("a merge takes no more than {} bytes", self.bytes_max),
        }
    }

    fn shrink(&self, _: &MemoryReservation, bytes: usize) {
        self.reservation.shrink(bytes);
    }

    fn reserved(&self) -> usize {
        self.reservation.size()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.bytes_max)
    }
}

impl fmt::Display for MergeMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of a merge", self.reserved())
    }
}
