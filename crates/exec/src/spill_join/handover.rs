//! Stands in for an input of a join: hands over a stream that was made elsewhere.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, EmptyRecordBatchStream, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::{StreamExt, stream};
use parking_lot::Mutex;

/// A join executes its inputs itself; this one runs nothing of its own. A stream that a partition
/// of it gives looks for what to hand over only when it is polled, so that a join can be executed
/// before it is known what it will join.
pub struct Handover {
    /// What it stands in for, where a join looks for scans that take its dynamic filter; `None`:
    /// rows read back from a file.
    input: Option<Arc<dyn ExecutionPlan>>,
    properties: Arc<PlanProperties>,
    slots: Vec<Arc<Mutex<Slot>>>,
}

/// What one partition is to hand over.
#[derive(Default)]
struct Slot {
    opened: bool,
    stream: Option<SendableRecordBatchStream>,
}

impl Handover {
    /// In the place of `input`, with as many partitions.
    pub fn of(input: &Arc<dyn ExecutionPlan>) -> Self {
        let slots = input.properties().output_partitioning().partition_count();
        Handover {
            input: Some(Arc::clone(input)),
            properties: Arc::clone(input.properties()),
            slots: (0..slots).map(|_| Arc::default()).collect(),
        }
    }

    /// One partition, `stream`.
    pub fn holding(stream: SendableRecordBatchStream) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(stream.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let slot = Slot { opened: true, stream: Some(stream) };
        Handover {
            input: None,
            properties: Arc::new(properties),
            slots: vec![Arc::new(Mutex::new(slot))],
        }
    }

    /// Executes `partition` of what this stands in for, unless that was done.
    pub fn open(&self, partition: usize, context: &Arc<TaskContext>) -> Result<()> {
        let mut slot = self.slots[partition].lock();
        if let Some(input) = &self.input
            && !slot.opened
        {
            slot.stream = Some(input.execute(partition, Arc::clone(context))?);
            slot.opened = true;
        }
        Ok(())
    }

    /// The stream of `partition`, which is then no longer here; an empty one if it is not.
    pub fn take(&self, partition: usize) -> SendableRecordBatchStream {
        taken(&self.slots[partition], &self.schema())
    }

    pub fn put(&self, partition: usize, stream: SendableRecordBatchStream) {
        self.slots[partition].lock().stream = Some(stream);
    }
}

fn taken(slot: &Mutex<Slot>, schema: &SchemaRef) -> SendableRecordBatchStream {
    let stream = slot.lock().stream.take();
    stream.unwrap_or_else(|| Box::pin(EmptyRecordBatchStream::new(Arc::clone(schema))))
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover").field("input", &self.input).finish_non_exhaustive()
    }
}

impl DisplayAs for Handover {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handover")
    }
}

impl ExecutionPlan for Handover {
    fn name(&self) -> &str {
        "Handover"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.input.iter().collect()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        internal_err!("a join that is executed does not get other inputs")
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        internal_err!("a join that is executed does not get other inputs")
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (slot, schema) = (Arc::clone(&self.slots[partition]), self.schema());
        let stream = stream::once(async move { taken(&slot, &schema) }).flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream)))
    }
}
