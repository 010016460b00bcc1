//! The rows of a series of ints, which DataFusion's function gives as bigints.
//!
//! A projection would do the same, and let its input be shared out among threads: a series stays in its
//! order.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::TableType;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
};
use futures::StreamExt;

/// A table whose bigints all are ints.
#[derive(Debug)]
pub struct IntSeries {
    bigints: Arc<dyn TableProvider>,
    schema: SchemaRef,
}

impl IntSeries {
    pub fn new(bigints: Arc<dyn TableProvider>) -> IntSeries {
        let schema = narrow(&bigints.schema());
        IntSeries { bigints, schema }
    }
}

fn narrow(schema: &Schema) -> SchemaRef {
    let field = |field: &Arc<Field>| match field.data_type() {
        DataType::Int64 => Arc::new(field.as_ref().clone().with_data_type(DataType::Int32)),
        _ => Arc::clone(field),
    };
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
}

#[async_trait]
impl TableProvider for IntSeries {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let bigints = self.bigints.scan(state, projection, &[], limit).await?;
        Ok(Arc::new(NarrowExec::new(bigints)))
    }
}

#[derive(Debug)]
pub struct NarrowExec {
    bigints: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl NarrowExec {
    fn new(bigints: Arc<dyn ExecutionPlan>) -> NarrowExec {
        let inner = bigints.properties();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(narrow(&bigints.schema())),
            inner.partitioning.clone(),
            inner.emission_type,
            inner.boundedness,
        )
        .with_scheduling_type(inner.scheduling_type);
        NarrowExec { bigints, properties: Arc::new(properties) }
    }
}

impl DisplayAs for NarrowExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NarrowExec")
    }
}

impl ExecutionPlan for NarrowExec {
    fn name(&self) -> &str {
        "NarrowExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.bigints]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
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
        Ok(Arc::new(NarrowExec::new(children.swap_remove(0))))
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(NarrowExec::new(children.swap_remove(0))))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let to = Arc::clone(&schema);
        let batches = self.bigints.execute(partition, context)?.map(move |batch| {
            let batch = batch?;
            if batch.num_columns() == 0 {
                return Ok(batch);
            }
            let columns = batch.columns().iter().zip(to.fields());
            let columns = columns.map(|(column, field)| Ok(cast(column, field.data_type())?));
            Ok(RecordBatch::try_new(Arc::clone(&to), columns.collect::<Result<_>>()?)?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}
