//! Sorts that go on when memory does not suffice.
//!
//! DataFusion's sort spills, but not always. It counts each batch with all buffers that its texts
//! are views of, though batches share these: the slices of a chunk, or what was merged of many runs.
//! It reserves twice what a batch takes so that there is room to sort; when one of several
//! outputs uses that room, another has taken it. In little memory a sort of texts fails.
//!
//! This one collects rows as the [sort of pipelines](thalweg_pipeline::sort) does, and counts every
//! buffer once. When it is refused memory it writes what it has in order to a [file](super::sorted_runs),
//! and goes on with nothing.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, SortField};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan,
    InputDistributionRequirements, PlanProperties, ReplaceChildrenOptions,
};
use futures::{StreamExt, TryStreamExt, stream};
use thalweg_base::limits::SORT_MERGE_BYTES;
use thalweg_pipeline::sort::{Collected, Spec};

use super::compact::compacted;
use super::sorted_runs::{SortedRuns, batch_rows, batches, sort_parts};
use super::spill_file::reserve;
use thalweg_errors::into_datafusion;
use thalweg_runtime::checkpoint;

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
            sorter.finish(&context).await
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
    collected: Collected,
    /// Of the rows that are collected.
    counter: RecordBatchMemoryCounter,
    reservation: MemoryReservation,
    runs: SortedRuns,
    partitions: usize,
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
        let key = |e: &PhysicalSortExpr| Ok((e.expr.data_type(&schema)?, e.options));
        let spec = Spec {
            keys: order.iter().map(key).collect::<Result<_>>()?,
            payload_types: schema.fields().iter().map(|f| f.data_type().clone()).collect(),
            fetch: None,
            together: 0,
        };
        let memory = MemoryConsumer::new("Sort").with_can_spill(true);
        Ok(Sorter {
            order,
            collected: Collected::new(&spec).map_err(into_datafusion)?,
            counter: RecordBatchMemoryCounter::new(),
            reservation: memory.register(context.memory_pool()),
            runs: SortedRuns::new(Arc::clone(&schema), None, context, metrics, partition),
            schema,
            partitions: sort.properties().output_partitioning().partition_count(),
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

    /// Writes what was collected to a file.
    async fn spill(&mut self) -> Result<()> {
        self.runs.write(self.collected.give().map_err(into_datafusion)?).await?;
        self.counter = RecordBatchMemoryCounter::new();
        self.reservation.free();
        Ok(())
    }

    async fn finish(mut self, context: &TaskContext) -> Result<SendableRecordBatchStream> {
        if !self.runs.is_empty() {
            self.spill().await?;
            return self.runs.merged(self.reservation, self.partitions, self.metrics, context);
        }
        let sorting = self.collected.give().map_err(into_datafusion)?;
        sort_parts(&sorting).await?;
        let ranges = sorting.ranges();
        let schema = Arc::clone(&self.schema);
        let of_range = move |range| -> Result<_> {
            let sorted = sorting.range(range).map_err(into_datafusion)?;
            let batches = batches(&self.schema, &sorted, batch_rows(&sorted))?;
            batches.iter().for_each(|batch| self.metrics.record_output(batch.num_rows()));
            Ok(stream::iter(batches.into_iter().map(Ok)))
        };
        let ranges = stream::iter((0..ranges).map(of_range));
        Ok(compacted_output(schema, ranges.try_flatten()))
    }
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
