//! Rows that several places of a plan read, and that are computed once.
//!
//! Each place has a [`KeptExec`] with the plan of the rows below it, and all of one number have one
//! [`Keeping`]. Whoever is executed first has its plan run, in a task of its own; the rows stay in memory
//! until the query ends, up to a share of what there is, and go on to a file from there.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet, SpillMetrics};
use datafusion::physical_plan::spill::get_record_batch_memory_size;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions, StatisticsArgs, execute_stream,
};
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;

use super::spill_file::{Part, PartFiles, manager, read, reserve};

/// Of the memory that there is, so large a part is taken at most.
const MEMORY_PART: usize = 8;

/// The rows, once they are there.
struct Rows {
    batches: Vec<RecordBatch>,
    /// Those that came after memory was refused.
    file: Part,
    _held: MemoryReservation,
}

type Computed = Shared<BoxFuture<'static, std::result::Result<Arc<Rows>, Arc<DataFusionError>>>>;

/// What all places of the rows have in common.
#[derive(Default)]
pub struct Keeping(Mutex<Option<Computed>>);

impl Keeping {
    fn computed(&self, exec: &KeptExec, context: &Arc<TaskContext>) -> Computed {
        let start = || {
            let spills = SpillMetrics::new(&exec.metrics, 0);
            let rows = collect(Arc::clone(&exec.input), Arc::clone(context), spills);
            let task = SpawnedTask::spawn(rows);
            let rows = async move {
                match task.join().await {
                    Ok(rows) => rows.map(Arc::new).map_err(Arc::new),
                    Err(e) => Err(Arc::new(DataFusionError::External(Box::new(e)))),
                }
            };
            rows.boxed().shared()
        };
        self.0.lock().get_or_insert_with(start).clone()
    }
}

async fn collect(
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    spills: SpillMetrics,
) -> Result<Rows> {
    let held = MemoryConsumer::new("KeptExec").register(context.memory_pool());
    let files = manager(plan.schema(), &context, spills);
    // Whoever reads the rows needs memory as well.
    let most = match context.memory_pool().memory_limit() {
        MemoryLimit::Finite(limit) => limit / MEMORY_PART,
        _ => usize::MAX,
    };
    let mut batches = vec![];
    let mut file: Option<PartFiles> = None;
    let mut rows = execute_stream(plan, context)?;
    while let Some(batch) = rows.next().await.transpose()? {
        if file.is_none() {
            let bytes = get_record_batch_memory_size(&batch);
            if held.size() + bytes <= most && reserve(&held, bytes).await? {
                batches.push(batch);
                continue;
            }
            file = Some(PartFiles::new(&files, 1, "kept rows")?);
        }
        if let Some(file) = &file {
            file.append(0, &batch)?;
        }
    }
    let file = file.map(PartFiles::finish).transpose()?.and_then(|mut parts| parts.pop().flatten());
    Ok(Rows { batches, file, _held: held })
}

/// A place that reads the rows.
pub struct KeptExec {
    number: usize,
    input: Arc<dyn ExecutionPlan>,
    keeping: Arc<Keeping>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl KeptExec {
    /// In so many partitions.
    pub fn new(
        number: usize,
        input: Arc<dyn ExecutionPlan>,
        keeping: Arc<Keeping>,
        partitions: usize,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let metrics = ExecutionPlanMetricsSet::new();
        KeptExec { number, input, keeping, properties: Arc::new(properties), metrics }
    }
}

impl fmt::Debug for KeptExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeptExec(#{})", self.number)
    }
}

impl DisplayAs for KeptExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match t {
            DisplayFormatType::TreeRender => writeln!(f, "computed once: #{}", self.number),
            _ => write!(f, "KeptExec: computed once, #{}", self.number),
        }
    }
}

impl ExecutionPlan for KeptExec {
    fn name(&self) -> &str {
        "KeptExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(input) = children.pop() else {
            return internal_err!("rows that are kept have an input");
        };
        let partitions = self.properties.partitioning.partition_count();
        Ok(Arc::new(KeptExec::new(self.number, input, Arc::clone(&self.keeping), partitions)))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mode = ChildrenPropertiesMode::Recompute;
        self.replace_children(children, ReplaceChildrenOptions::new(mode))
    }

    /// Each partition has every so many-th batch; the first one also what is in the file.
    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let schema: SchemaRef = self.schema();
        let partitions = self.properties.partitioning.partition_count();
        let files =
            manager(Arc::clone(&schema), &context, SpillMetrics::new(&self.metrics, partition));
        let computed = self.keeping.computed(self, &context);
        let rows = async move {
            let rows = computed.await.map_err(DataFusionError::Shared)?;
            let file = if partition == 0 { rows.file.clone() } else { None };
            let spilled = read(&files, file)?;
            let count = rows.batches.len();
            let own = (partition..count).step_by(partitions);
            let own = own.map(move |at| Ok(rows.batches[at].clone()));
            Ok::<_, DataFusionError>(stream::iter(own).chain(spilled))
        };
        let rows = stream::once(rows).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        if let [input] = inputs {
            statistics.num_rows = input.num_rows.to_inexact();
        }
        Ok(Arc::new(statistics))
    }
}
