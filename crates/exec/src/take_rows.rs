//! Late materialization: reads columns of the rows that its input names, in their order.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions, StatisticsArgs,
};
use futures::{StreamExt, stream};

use super::ScanExec;

/// Gives what a scan would give for the rows whose ids stand in the last column of its input.
pub struct TakeRowsExec {
    /// Of one partition.
    input: Arc<dyn ExecutionPlan>,
    scan: ScanExec,
    properties: Arc<PlanProperties>,
}

impl TakeRowsExec {
    /// `ordered` gives the same rows in the same order, with all columns of the scan.
    pub fn new(
        input: Arc<dyn ExecutionPlan>,
        scan: &ScanExec,
        ordered: &dyn ExecutionPlan,
    ) -> Self {
        let properties = PlanProperties::new(
            ordered.properties().equivalence_properties().clone(),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        TakeRowsExec { input, scan: scan.copy(), properties: Arc::new(properties) }
    }
}

impl fmt::Debug for TakeRowsExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TakeRowsExec({:?})", self.scan)
    }
}

impl DisplayAs for TakeRowsExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (table, columns) = (self.scan.table_name(), self.scan.column_names().join(", "));
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "TakeRowsExec: table={table}, columns=[{columns}]")
            }
            DisplayFormatType::TreeRender => writeln!(f, "table={table}"),
        }
    }
}

impl ExecutionPlan for TakeRowsExec {
    fn name(&self) -> &str {
        "TakeRowsExec"
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
        let Some(input) = children.pop() else {
            return internal_err!("rows are taken by what an input names");
        };
        let properties = Arc::clone(&self.properties);
        Ok(Arc::new(TakeRowsExec { input, scan: self.scan.copy(), properties }))
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
        let schema: SchemaRef = self.schema();
        let start = (self.input.execute(partition, context)?, self.scan.reader(partition));
        let rows = stream::try_unfold(start, |(mut input, mut reader)| async move {
            let Some(named) = input.next().await.transpose()? else { return Ok(None) };
            let ids = named.column(named.num_columns() - 1);
            let batch = reader.take_rows(ids).await?;
            Ok(Some((batch, (input, reader))))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.scan.metrics()
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        if let [input] = inputs {
            statistics.num_rows = input.num_rows;
        }
        Ok(Arc::new(statistics))
    }
}
