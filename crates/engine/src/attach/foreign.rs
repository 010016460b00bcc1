//! Tables of SQLite and PostgreSQL, and the scan of one.
//!
//! A scan has a thread of its own, which reads as fast as its batches are taken: a table is never all in
//! memory. The thread is told when nobody wants more, and tells the other side.

use std::sync::Arc;
use std::{fmt, thread};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result as DfResult, Statistics};
use datafusion::datasource::TableType;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
    StatisticsArgs,
};
use futures::executor::block_on;
use futures::stream;
use thalweg_base::{Error, Result, text};
use thalweg_foreign::{Foreign, Stop, Table, Wanted};
use tokio::sync::mpsc;

use thalweg_errors::into_datafusion;
use thalweg_runtime::{blocking, checkpoint};

use super::conditions;
use crate::zoned;

/// Batches that wait to be taken.
const BATCHES_AHEAD: usize = 2;

/// All tables that can be named: schema and name.
pub async fn tables(foreign: &Arc<dyn Foreign>) -> DfResult<Vec<(String, String)>> {
    let (foreign, stop) = (Arc::clone(foreign), AskedToStop::default());
    let asked = stop.0.clone();
    blocking(move || foreign.tables(&asked)).await
}

/// One table, instants in the session's zone.
pub async fn table(
    foreign: &Arc<dyn Foreign>,
    schema: &str,
    name: &str,
    zone: Option<&str>,
) -> DfResult<Option<Arc<dyn TableProvider>>> {
    let (source, stop) = (Arc::clone(foreign), AskedToStop::default());
    let (schema, name, asked) = (schema.to_owned(), name.to_owned(), stop.0.clone());
    let found = blocking(move || source.table(&schema, &name, &asked)).await?;
    let Some(table) = found else { return Ok(None) };
    let shown = zoned::shown(&table.columns, zone).unwrap_or_else(|| Arc::clone(&table.columns));
    let (foreign, table) = (Arc::clone(foreign), Arc::new(table));
    Ok(Some(Arc::new(ForeignTable { foreign, table, shown })))
}

pub struct ForeignTable {
    foreign: Arc<dyn Foreign>,
    table: Arc<Table>,
    shown: SchemaRef,
}

impl fmt::Debug for ForeignTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ForeignTable({}.{})", self.table.schema, self.table.name)
    }
}

impl ForeignTable {
    /// What decided the types of the columns, and what the table is of.
    pub fn notes(&self) -> (Vec<String>, String) {
        (self.table.why.clone(), self.foreign.kind().to_owned())
    }

    fn statistics_of(&self, columns: &SchemaRef) -> Statistics {
        let mut statistics = Statistics::new_unknown(columns);
        if let Some(rows) = self.table.rows {
            statistics.num_rows = Precision::Inexact(rows as usize);
        }
        statistics
    }

    /// `None`: the filter stays here.
    fn conditions(&self, filter: &Expr) -> Option<Vec<thalweg_foreign::Condition>> {
        let conditions = conditions::of(filter, &self.table.columns)?;
        let taken =
            |c: &thalweg_foreign::Condition| self.foreign.takes_conditions(&self.table, c.column);
        conditions.iter().all(taken).then_some(conditions)
    }
}

#[async_trait]
impl TableProvider for ForeignTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.shown)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(self.statistics_of(&self.shown))
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> DfResult<Vec<TableProviderFilterPushDown>> {
        let taken = |filter: &&Expr| match self.conditions(filter) {
            Some(_) => TableProviderFilterPushDown::Inexact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(taken).collect())
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let columns = match projection {
            Some(columns) => columns.clone(),
            None => (0..self.shown.fields().len()).collect(),
        };
        let conditions: Vec<_> =
            filters.iter().filter_map(|f| self.conditions(f)).flatten().collect();
        // Rows too many may come, of which the filter above leaves too few.
        let limit = limit.filter(|_| filters.is_empty()).map(|limit| limit as u64);
        let schema = Arc::new(self.table.columns.project(&columns)?);
        let statistics = self.statistics_of(&schema);
        let wanted = Wanted { columns: columns.clone(), conditions, limit };
        let (foreign, table) = (Arc::clone(&self.foreign), Arc::clone(&self.table));
        let scan = Arc::new(ForeignScanExec::new(foreign, table, wanted, schema, statistics));
        match Arc::ptr_eq(&self.shown, &self.table.columns) {
            true => Ok(scan),
            false => zoned::relabelled(scan, &self.shown, &columns),
        }
    }
}

pub struct ForeignScanExec {
    foreign: Arc<dyn Foreign>,
    table: Arc<Table>,
    wanted: Wanted,
    statistics: Arc<Statistics>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ForeignScanExec {
    fn new(
        foreign: Arc<dyn Foreign>,
        table: Arc<Table>,
        wanted: Wanted,
        schema: SchemaRef,
        statistics: Statistics,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        ForeignScanExec {
            foreign,
            table,
            wanted,
            statistics: Arc::new(statistics),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    fn copy(&self, limit: Option<u64>) -> Self {
        ForeignScanExec::new(
            Arc::clone(&self.foreign),
            Arc::clone(&self.table),
            Wanted { limit, ..self.wanted.clone() },
            self.schema(),
            self.statistics.as_ref().clone(),
        )
    }
}

impl fmt::Debug for ForeignScanExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ForeignScanExec({}.{})", self.table.schema, self.table.name)
    }
}

impl DisplayAs for ForeignScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.properties.eq_properties.schema().fields();
        let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        let name = text::quoted(&format!("{}.{}", self.table.schema, self.table.name));
        write!(
            f,
            "ForeignScanExec: {} {name}, columns=[{}]",
            self.foreign.kind(),
            names.join(", ")
        )?;
        if !self.wanted.conditions.is_empty() {
            write!(f, ", conditions={}", self.wanted.conditions.len())?;
        }
        match self.wanted.limit {
            Some(limit) => write!(f, ", limit={limit}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for ForeignScanExec {
    fn name(&self) -> &str {
        "ForeignScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DfResult<TreeNodeRecursion>,
    ) -> DfResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn reset_state(self: Arc<Self>) -> DfResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.copy(self.wanted.limit)))
    }

    fn execute(
        &self,
        partition: usize,
        _: Arc<TaskContext>,
    ) -> DfResult<SendableRecordBatchStream> {
        let start = Start {
            foreign: Arc::clone(&self.foreign),
            table: Arc::clone(&self.table),
            wanted: self.wanted.clone(),
        };
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let coming =
            Coming { start: Some(start), batches: None, stop: AskedToStop::default(), metrics };
        let batches = stream::try_unfold(coming, |mut coming| async move {
            let batch = coming.next().await?;
            Ok(batch.map(|batch| (batch, coming)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> DfResult<Arc<Statistics>> {
        Ok(Arc::clone(&self.statistics))
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }

    fn with_fetch(&self, fetch: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(self.copy(fetch.map(|fetch| fetch as u64))))
    }

    fn fetch(&self) -> Option<usize> {
        self.wanted.limit.map(|limit| limit as usize)
    }
}

struct Start {
    foreign: Arc<dyn Foreign>,
    table: Arc<Table>,
    wanted: Wanted,
}

impl Start {
    /// The thread that reads; its last word is an error or that there is no more.
    fn spawn(self, stop: Stop) -> Result<mpsc::Receiver<Result<Option<RecordBatch>>>> {
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
        let read = move || {
            let mut give = |batch| block_on(sender.send(Ok(Some(batch)))).is_ok();
            let ended = self.foreign.scan(&self.table, &self.wanted, &stop, &mut give);
            // Nobody listens any more: then nobody wants to know.
            let _ = block_on(sender.send(ended.map(|()| None)));
        };
        let spawned = thread::Builder::new().name("thalweg-foreign".into()).spawn(read);
        spawned.map_err(|e| Error::io("cannot start a thread that reads another database", e))?;
        Ok(receiver)
    }
}

/// The batches of a scan. Dropped, it tells the thread.
struct Coming {
    start: Option<Start>,
    batches: Option<mpsc::Receiver<Result<Option<RecordBatch>>>>,
    stop: AskedToStop,
    metrics: BaselineMetrics,
}

impl Coming {
    async fn next(&mut self) -> DfResult<Option<RecordBatch>> {
        if let Some(start) = self.start.take() {
            let batches = start.spawn(self.stop.0.clone()).map_err(into_datafusion)?;
            self.batches = Some(batches);
        }
        let Some(batches) = &mut self.batches else { return Ok(None) };
        match batches.recv().await {
            Some(Ok(Some(batch))) => {
                checkpoint().await;
                Ok(Some(batch.record_output(&self.metrics)))
            }
            Some(Ok(None)) => Ok(None),
            Some(Err(e)) => Err(into_datafusion(e)),
            None => Err(into_datafusion(Error::internal(
                "the thread that reads another database ended without an answer",
            ))),
        }
    }
}

/// Asks to stop when whoever waits is gone.
#[derive(Default)]
pub struct AskedToStop(pub Stop);

impl Drop for AskedToStop {
    fn drop(&mut self) {
        self.0.ask();
    }
}
