//! Sorts that go on when memory does not suffice.
//!
//! DataFusion's sort spills, but not always. It counts each batch with all buffers that its texts
//! are views of, though batches share these: the slices of a chunk, or what was merged of many runs.
//! It reserves twice what a batch takes so that there is room to sort; when one of several
//! outputs uses that room, another has taken it. In little memory a sort of texts fails.
//!
//! This one collects rows as the [sort of pipelines](thalweg_pipeline::sort) does, and counts every
//! buffer once. When it is refused memory it writes what it has in order to a file, a *run*, and
//! goes on with nothing. In the end DataFusion merges the runs, as many at a time as there is memory
//! for:
//!
//! ```text
//!   input ─ rows, until memory is refused ─┬─ run 0 ─┐
//!                                          ├─ run 1 ─┼─ merge ─ output
//!                                          └─ …      ┘
//! ```

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, SortField};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::common::{Result, resources_err};
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, SpillMetrics,
};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::streaming_merge::{SortedSpillFile, StreamingMergeBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan,
    InputDistributionRequirements, PlanProperties, ReplaceChildrenOptions, SpillManager,
};
use futures::{StreamExt, TryStreamExt, stream};
use thalweg_base::limits::{BATCH_ROWS, SORT_MERGE_BYTES};
use thalweg_pipeline::aggregate::Groups;
use thalweg_pipeline::encoding::value_bytes;
use thalweg_pipeline::phases::Phases;
use thalweg_pipeline::sort::{Collected, Sorting, Spec};

use super::compact::compacted;
use super::spill_file::{manager, reserve};
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

/// Puts a [`SpillSortExec`] in the place of every sort of all rows. (Those for the first of them keep
/// no more.)
pub fn spill_sorts(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|plan| match plan.downcast_ref::<SortExec>() {
        Some(sort) if sort.fetch().is_none() && has_row_format(sort)? => {
            Ok(Transformed::yes(Arc::new(SpillSortExec::new(sort)) as _))
        }
        _ => Ok(Transformed::no(plan)),
    })
    .data()
}

fn has_row_format(sort: &SortExec) -> Result<bool> {
    let schema = sort.input().schema();
    let field = |e: &PhysicalSortExpr| Ok(SortField::new(e.expr.data_type(&schema)?));
    let fields = sort.expr().iter().map(field).collect::<Result<Vec<_>>>()?;
    Ok(RowConverter::supports_fields(&fields))
}

/// A [`SortExec`] that can spill, displayed as that.
pub struct SpillSortExec {
    /// Never executed itself.
    sort: SortExec,
    metrics: ExecutionPlanMetricsSet,
}

impl SpillSortExec {
    fn new(sort: &SortExec) -> Self {
        let sort = SortExec::new(sort.expr().clone(), Arc::clone(sort.input()))
            .with_preserve_partitioning(sort.preserve_partitioning());
        SpillSortExec { sort, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl fmt::Debug for SpillSortExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpillSortExec").field("sort", &self.sort).finish_non_exhaustive()
    }
}

impl DisplayAs for SpillSortExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sort.fmt_as(t, f)
    }
}

impl ExecutionPlan for SpillSortExec {
    fn name(&self) -> &str {
        "SpillSortExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.sort.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.sort.children()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.sort.input_distribution_requirements()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.sort.apply_expressions(f)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let sort = SortExec::new(self.sort.expr().clone(), children.swap_remove(0))
            .with_preserve_partitioning(self.sort.preserve_partitioning());
        Ok(Arc::new(SpillSortExec { sort, metrics: ExecutionPlanMetricsSet::new() }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mode = ChildrenPropertiesMode::Recompute;
        self.replace_children(children, ReplaceChildrenOptions::new(mode))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let mut input = self.sort.input().execute(partition, Arc::clone(&context))?;
        let mut sorter = Sorter::new(&self.sort, &self.metrics, partition, &context)?;
        let sorted = async move {
            while let Some(batch) = input.next().await {
                sorter.push(&batch?).await?;
            }
            // What it reads from is not needed any more.
            drop(input);
            sorter.finish().await
        };
        let sorted = stream::once(sorted).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), sorted)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// One output.
struct Sorter {
    order: LexOrdering,
    schema: SchemaRef,
    spec: Spec,
    collected: Collected,
    /// Of the rows that are collected.
    counter: RecordBatchMemoryCounter,
    reservation: MemoryReservation,
    /// What a merge may take at most.
    merge_bytes_max: usize,
    files: SpillManager,
    runs: Vec<SortedSpillFile>,
    /// Of their batches, the fewest.
    batch_rows: usize,
    metrics: BaselineMetrics,
}

impl Sorter {
    fn new(
        sort: &SortExec,
        metrics: &ExecutionPlanMetricsSet,
        partition: usize,
        context: &TaskContext,
    ) -> Result<Self> {
        let (order, schema) = (sort.expr().clone(), sort.schema());
        let partitions = sort.properties().output_partitioning().partition_count();
        let key = |e: &PhysicalSortExpr| Ok((e.expr.data_type(&schema)?, e.options));
        let spec = Spec {
            keys: order.iter().map(key).collect::<Result<_>>()?,
            payload_types: schema.fields().iter().map(|f| f.data_type().clone()).collect(),
            fetch: None,
            together: 0,
        };
        let spills = SpillMetrics::new(metrics, partition);
        let files = manager(Arc::clone(&schema), context, spills);
        let pool = context.memory_pool();
        let merge_bytes_max = match pool.memory_limit() {
            MemoryLimit::Finite(limit) => limit / MERGES_PART / partitions,
            _ => usize::MAX,
        };
        Ok(Sorter {
            collected: Collected::new(&spec).map_err(into_datafusion)?,
            order,
            schema,
            spec,
            counter: RecordBatchMemoryCounter::new(),
            reservation: MemoryConsumer::new("Sort").with_can_spill(true).register(pool),
            merge_bytes_max,
            files,
            runs: vec![],
            batch_rows: BATCH_ROWS,
            metrics: BaselineMetrics::new(metrics, partition),
        })
    }

    async fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        checkpoint().await;
        let rows = batch.num_rows();
        if rows == 0 {
            return Ok(());
        }
        let key = |e: &PhysicalSortExpr| e.expr.evaluate(batch)?.into_array(rows);
        let keys = self.order.iter().map(key).collect::<Result<Vec<_>>>()?;
        self.counter.count_batch(batch);
        self.collected.push(&keys, batch.columns(), rows).map_err(into_datafusion)?;
        let needed = self.counter.memory_usage() + self.collected.key_bytes();
        let more = needed.saturating_sub(self.reservation.size());
        if more > 0 && !reserve(&self.reservation, more).await? {
            // Of runs of a few rows there would be too many; others give way to it in time.
            match needed < SORT_MERGE_BYTES {
                true => self.reservation.grow(more),
                false => self.spill().await?,
            }
        }
        Ok(())
    }

    /// What was collected, each run of it in order. From now on there is nothing.
    async fn sorting(&mut self) -> Result<Sorting> {
        let empty = Collected::new(&self.spec).map_err(into_datafusion)?;
        let collected = std::mem::replace(&mut self.collected, empty);
        let sorting = Sorting::new(self.spec.clone(), vec![collected]).map_err(into_datafusion)?;
        for task in 0..sorting.tasks(0) {
            sorting.run(0, task).map_err(into_datafusion)?;
            checkpoint().await;
        }
        Ok(sorting)
    }

    /// Writes what was collected to a file.
    async fn spill(&mut self) -> Result<()> {
        let sorting = self.sorting().await?;
        let mut file = self.files.create_in_progress_file("Sort")?;
        let mut max_record_batch_memory = 0;
        for range in 0..sorting.tasks(1) {
            let range = sorting.range(range).map_err(into_datafusion)?;
            let rows = batch_rows(&range);
            self.batch_rows = self.batch_rows.min(rows);
            for batch in self.batches(range, rows)? {
                max_record_batch_memory = max_record_batch_memory.max(file.append_batch(&batch)?);
            }
            checkpoint().await;
        }
        if let Some(file) = file.finish()? {
            self.runs.push(SortedSpillFile { file, max_record_batch_memory });
        }
        drop(sorting);
        self.counter = RecordBatchMemoryCounter::new();
        self.reservation.free();
        Ok(())
    }

    fn batches(&self, range: Groups, rows: usize) -> Result<Vec<RecordBatch>> {
        if range.rows == 0 {
            return Ok(vec![]);
        }
        let all = RecordBatch::try_new(Arc::clone(&self.schema), range.columns)?;
        let starts = (0..range.rows).step_by(rows);
        Ok(starts.map(|start| all.slice(start, rows.min(range.rows - start))).collect())
    }

    async fn finish(mut self) -> Result<SendableRecordBatchStream> {
        if self.runs.is_empty() {
            let sorting = self.sorting().await?;
            let ranges = sorting.tasks(1);
            let schema = Arc::clone(&self.schema);
            let of_range = move |range| -> Result<_> {
                let sorted = sorting.range(range).map_err(into_datafusion)?;
                let rows = batch_rows(&sorted);
                let batches = self.batches(sorted, rows)?;
                batches.iter().for_each(|batch| self.metrics.record_output(batch.num_rows()));
                Ok(stream::iter(batches.into_iter().map(Ok)))
            };
            let ranges = stream::iter((0..ranges).map(of_range));
            return Ok(compacted_output(schema, ranges.try_flatten()));
        }
        self.spill().await?;
        let batch_bytes_max = self.runs.iter().map(|run| run.max_record_batch_memory).max();
        let bytes_min = 2 * RUN_BATCHES * batch_bytes_max.unwrap_or(0);
        let memory: Arc<dyn MemoryPool> = Arc::new(MergeMemory {
            reservation: self.reservation,
            bytes_min,
            bytes_max: self.merge_bytes_max.max(bytes_min),
        });
        let merged = StreamingMergeBuilder::new()
            .with_sorted_spill_files(self.runs)
            .with_spill_manager(self.files)
            .with_schema(Arc::clone(&self.schema))
            .with_expressions(&self.order)
            .with_metrics(self.metrics)
            .with_batch_size(self.batch_rows)
            .with_reservation(MemoryConsumer::new("SortMerge").register(&memory))
            .build()?;
        Ok(compacted_output(self.schema, merged))
    }
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

/// Of a range, in each batch.
fn batch_rows(range: &Groups) -> usize {
    let bytes = range.columns.iter().map(|column| value_bytes(column.as_ref(), None));
    let row_bytes = bytes.sum::<usize>() / range.rows.max(1);
    (BATCH_BYTES / row_bytes.max(1)).clamp(1, BATCH_ROWS)
}

fn compacted_output(
    schema: SchemaRef,
    batches: impl stream::Stream<Item = Result<RecordBatch>> + Send + 'static,
) -> SendableRecordBatchStream {
    let compacted = batches.then(|batch| async move {
        checkpoint().await;
        batch.map(|batch| compacted(&batch))
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, compacted))
}
