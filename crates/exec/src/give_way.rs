//! Lets joins give way. DataFusion's leaves do after some batches, but a join that makes millions
//! of rows out of one batch does not ask a leaf for a long time: its consumer would then poll it
//! for minutes, and neither the scheduler nor a cancellation would get a word in. Its batches are
//! [compacted] on the way.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{NestedLoopJoinExec, NestedLoopJoinExecBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::StreamExt;

use super::compact::compacted;
use thalweg_errors::into_datafusion;
use thalweg_runtime::{Cancel, Run, checkpoint};

/// Operators that can make many rows out of one batch of input.
const MULTIPLYING: [&str; 7] = [
    "CrossJoinExec",
    "HashJoinExec",
    "NestedLoopJoinExec",
    "PiecewiseMergeJoinExec",
    "SortMergeJoinExec",
    "SpillJoinExec",
    "UnnestExec",
];

/// Puts a [`GiveWayExec`] over every operator that multiplies rows, and lets the predicate of a
/// nested loop, which may reject pairs for hours without an output, notice a cancellation.
pub fn give_way(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|plan| {
        if !MULTIPLYING.contains(&plan.name()) {
            return Ok(Transformed::no(plan));
        }
        let plan = match plan.downcast_ref::<NestedLoopJoinExec>() {
            Some(join) => match join.filter() {
                Some(filter) => interruptible(join, filter)?,
                None => plan,
            },
            None => plan,
        };
        Ok(Transformed::yes(Arc::new(GiveWayExec::new(plan)) as _))
    })
    .data()
}

fn interruptible(join: &NestedLoopJoinExec, filter: &JoinFilter) -> Result<Arc<dyn ExecutionPlan>> {
    let expression = Arc::new(Interruptible { inner: Arc::clone(filter.expression()) });
    let filter =
        JoinFilter::new(expression, filter.column_indices().to_vec(), Arc::clone(filter.schema()));
    let join = NestedLoopJoinExecBuilder::from(join).with_filter(Some(filter)).build()?;
    Ok(Arc::new(join))
}

#[derive(Debug)]
pub struct GiveWayExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl GiveWayExec {
    fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let properties = Arc::clone(input.properties());
        GiveWayExec { input, properties }
    }
}

impl DisplayAs for GiveWayExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GiveWayExec")
    }
}

impl ExecutionPlan for GiveWayExec {
    fn name(&self) -> &str {
        "GiveWayExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
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
        Ok(Arc::new(GiveWayExec::new(children.swap_remove(0))))
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
        let stream = self.input.execute(partition, context)?.then(|batch| async {
            checkpoint().await;
            batch.map(|batch| compacted(&batch))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream)))
    }
}

/// An expression that fails once its query is cancelled.
#[derive(Debug, Eq)]
struct Interruptible {
    inner: Arc<dyn PhysicalExpr>,
}

impl PartialEq for Interruptible {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl Hash for Interruptible {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl fmt::Display for Interruptible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.inner, f)
    }
}

impl PhysicalExpr for Interruptible {
    fn data_type(&self, schema: &Schema) -> Result<arrow::datatypes::DataType> {
        self.inner.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.inner.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        match Run::current().and_then(|run| run.cancelled()) {
            Some(why) => Err(into_datafusion(Cancel::error(why))),
            None => self.inner.evaluate(batch),
        }
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Interruptible { inner: children.swap_remove(0) }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}
