//! Reads a stored table: skips chunks by statistics, decodes columns late, filters in place.
//!
//! All partitions of a scan pull chunks from one [`Skipper`], so that skew balances itself. For each
//! chunk the filter columns are decoded first, conjunct by conjunct; a chunk of which no row is
//! left decodes nothing more. Columns stay in the form they have in the cache, and only rows that
//! are handed out, or shown to a predicate that must see them, are expanded. Dynamic filters (join
//! build sides, top-k bounds) prune the chunks that have not been handed out yet whenever they
//! change.

pub mod reader;

use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, Result, ScalarValue, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{self, BinaryExpr, DynamicFilterPhysicalExpr, lit};
use datafusion::physical_expr::{
    EquivalenceProperties, Partitioning, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_expr_common::physical_expr::{fmt_sql, is_volatile};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
    SortOrderPushdownResult, StatisticsArgs, apply_expression_roots,
};
use futures::stream;
use thalweg_storage::{Contents, Database, Snapshot, Table};

use self::reader::{Reader, Stream};
use super::filter::{Conjunct, Translate, remap};
use super::loading::{Ahead, Loading};
use crate::prune::{Filter, ReadOrder, Skipper};
use crate::row_id::with_row_id;

/// What a scan reads, shared by its partitions and by copies the optimizer makes.
#[derive(Clone)]
pub struct Source {
    pub database: Database,
    pub loading: Arc<Loading>,
    /// Never read, only held: it pins the extents for as long as any stream reads them.
    pub snapshot: Arc<Snapshot>,
    pub table: Arc<Table>,
    /// Of `table`.
    pub contents: Arc<Contents>,
    /// `schema.table`, for people.
    pub name: String,
}

/// What is known of the values in a column of the output that anybody wants.
pub struct Hint {
    pub output: usize,
    /// Bounds included.
    pub range: (ScalarValue, ScalarValue),
    /// A further condition, whose only child the column takes the place of.
    pub also: Option<Arc<dyn PhysicalExpr>>,
}

impl Hint {
    fn of(&self, column: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        let bound = |op, value: &ScalarValue| -> Arc<dyn PhysicalExpr> {
            Arc::new(BinaryExpr::new(Arc::clone(column), op, lit(value.clone())))
        };
        let (low, high) = &self.range;
        let (low, high) = (bound(Operator::GtEq, low), bound(Operator::LtEq, high));
        let range = Arc::new(BinaryExpr::new(low, Operator::And, high));
        let Some(also) = &self.also else { return Ok(range) };
        let also = Arc::clone(also).with_new_children(vec![Arc::clone(column)])?;
        Ok(Arc::new(BinaryExpr::new(range, Operator::And, also)))
    }
}

/// Of a table with more chunks, the plan does not know how many are left of them.
const CHUNKS_JUDGED_MAX: usize = 4096;

/// How many of `wanted` partitions find a chunk, as far as the filters tell by now: who looks up one
/// row reads one chunk, and needs no second task.
fn fed(source: &Source, conjuncts: &[Arc<Conjunct>], wanted: usize) -> usize {
    let contents = &source.contents;
    let wanted = wanted.min(contents.chunks());
    let left = match contents.chunks() <= CHUNKS_JUDGED_MAX && !conjuncts.is_empty() {
        true => Skipper::new(Arc::clone(contents), filters(conjuncts), None).left(wanted),
        false => wanted,
    };
    left.max(1)
}

fn filters(conjuncts: &[Arc<Conjunct>]) -> impl Iterator<Item = Filter> {
    conjuncts.iter().map(|c| Filter { expr: Arc::clone(&c.expr), dynamic: c.dynamic })
}

pub struct ScanExec {
    source: Source,
    /// The columns that can be asked for: the table's, and after them maybe one that names rows.
    columns: SchemaRef,
    /// Columns of the output, in order.
    projection: Vec<usize>,
    conjuncts: Vec<Arc<Conjunct>>,
    /// Hold for every row that anybody wants, and are not evaluated: they only skip chunks.
    hints: Vec<Arc<dyn PhysicalExpr>>,
    /// Which chunks a sort above would like to see first.
    order: Option<ReadOrder>,
    fetch: Option<usize>,
    partitions: usize,
    statistics: Arc<Statistics>,
    properties: Arc<PlanProperties>,
    skipper: Arc<OnceLock<Skipper>>,
    ahead: Arc<Ahead>,
    metrics: ExecutionPlanMetricsSet,
}

impl ScanExec {
    /// `columns` are the table's and one more, which names rows; `None`: the table's.
    /// `statistics` describe the output (after `conjuncts`), as the planner estimated them.
    pub fn new(
        source: Source,
        columns: Option<SchemaRef>,
        projection: Vec<usize>,
        conjuncts: Vec<Arc<dyn PhysicalExpr>>,
        fetch: Option<usize>,
        partitions: usize,
        statistics: Statistics,
    ) -> Result<Self> {
        let columns = columns.unwrap_or_else(|| Arc::clone(&source.contents.arrow_schema));
        let conjuncts = conjuncts
            .into_iter()
            .map(|e| Ok(Arc::new(Conjunct::new(e, &columns)?)))
            .collect::<Result<Vec<_>>>()?;
        let schema = Arc::new(columns.project(&projection)?);
        let partitions = fed(&source, &conjuncts, partitions);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Ok(ScanExec {
            source,
            columns,
            projection,
            conjuncts,
            hints: vec![],
            order: None,
            fetch,
            partitions,
            statistics: Arc::new(statistics),
            properties: Arc::new(properties),
            skipper: Arc::default(),
            ahead: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// With those columns of its output alone, and a last one that names rows.
    pub fn with_row_ids(&self, outputs: &[usize]) -> Result<Self> {
        let table = &self.source.contents.arrow_schema;
        let columns = with_row_id(table);
        let mut projection: Vec<usize> = outputs.iter().map(|&o| self.projection[o]).collect();
        projection.push(table.fields().len());
        let mut statistics = self.statistics.as_ref().clone().project(Some(&outputs.to_vec()));
        statistics.column_statistics.push(ColumnStatistics::new_unknown());
        statistics.total_byte_size = Precision::Absent;
        let conjuncts = self.conjuncts.iter().map(|c| Arc::clone(&c.expr)).collect();
        ScanExec::new(
            self.source.clone(),
            Some(columns),
            projection,
            conjuncts,
            self.fetch,
            self.partitions,
            statistics,
        )
    }

    /// Whether it gives stored columns that neither its filters need nor those named of its output.
    pub fn has_late_columns(&self, outputs: &[usize]) -> bool {
        let early = |column: &usize| {
            outputs.iter().any(|&output| self.projection[output] == *column)
                || self.conjuncts.iter().any(|c| c.columns.contains(column))
        };
        let stored = self.source.contents.arrow_schema.fields().len();
        self.fetch.is_none()
            && self.projection.iter().all(|&column| column < stored)
            && !self.projection.iter().all(early)
    }

    /// Whether another scan gives the same rows.
    pub fn reads_the_same(&self, other: &Self) -> bool {
        let filters = |scan: &Self| {
            let kept = scan.conjuncts.iter().filter(|c| !c.dynamic);
            kept.map(|c| Arc::clone(&c.expr)).collect::<Vec<_>>()
        };
        let (own, others) = (filters(self), filters(other));
        Arc::ptr_eq(&self.source.contents, &other.source.contents)
            && self.columns == other.columns
            && self.projection == other.projection
            && own.len() == others.len()
            && own.iter().zip(&others).all(|(a, b)| a == b && !is_volatile(a))
            && self.fetch.is_none()
            && other.fetch.is_none()
    }

    /// The scan that a plan is, if pipelines may read its chunks themselves: one with a limit gives its own
    /// rows.
    pub fn of_chunks(plan: &Arc<dyn ExecutionPlan>) -> Option<&ScanExec> {
        plan.downcast_ref::<ScanExec>().filter(|scan| scan.fetch.is_none())
    }

    /// `schema.table`, for people.
    pub fn table_name(&self) -> &str {
        &self.source.name
    }

    /// Of the output.
    pub fn column_names(&self) -> Vec<&str> {
        let name = |&column: &usize| self.columns.field(column).name().trim_end_matches('\0');
        self.projection.iter().map(name).collect()
    }

    pub(super) fn copy(&self) -> Self {
        ScanExec {
            source: self.source.clone(),
            columns: Arc::clone(&self.columns),
            projection: self.projection.clone(),
            conjuncts: self.conjuncts.clone(),
            hints: self.hints.clone(),
            order: self.order,
            fetch: self.fetch,
            partitions: self.partitions,
            statistics: Arc::clone(&self.statistics),
            properties: Arc::clone(&self.properties),
            skipper: Arc::default(),
            ahead: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// Whether joins and others above feed filters of it.
    pub fn is_fed(&self) -> bool {
        self.conjuncts.iter().any(|c| c.dynamic)
    }

    /// Without filters that joins and others above would feed, and do not.
    pub fn unfed(&self) -> Self {
        let mut scan = self.copy();
        scan.conjuncts.retain(|c| !c.dynamic);
        scan
    }

    /// With the predicates for which `translate` finds what pipelines have. `None`: there are none.
    pub fn translated(&self, translate: Translate) -> Result<Option<Self>> {
        let (mut scan, mut found) = (self.copy(), false);
        for conjunct in scan.conjuncts.iter_mut().filter(|c| !c.dynamic) {
            let translated = conjunct.translated(&self.columns, translate)?;
            found |= translated.is_native();
            *conjunct = Arc::new(translated);
        }
        Ok(found.then_some(scan))
    }

    /// For one execution, of which only rows are wanted for which a hint holds of the value in its
    /// output column. It may give others as well.
    pub fn hinted(&self, hints: &[Hint]) -> Result<Self> {
        let mut scan = self.copy();
        scan.metrics = self.metrics.clone();
        for hint in hints {
            let column = self.projection[hint.output];
            let name = self.columns.field(column).name();
            let column: Arc<dyn PhysicalExpr> = Arc::new(expressions::Column::new(name, column));
            // As a join of DataFusion's tells what it has learned from its build side.
            let filter = DynamicFilterPhysicalExpr::new(vec![Arc::clone(&column)], lit(true));
            filter.update(hint.of(&column)?)?;
            scan.hints.push(Arc::new(filter));
        }
        Ok(scan)
    }

    pub fn partitions(&self) -> usize {
        self.partitions
    }

    /// Gives the rows of one partition before `fetch`.
    pub fn reader(&self, partition: usize) -> Reader {
        Reader::new(self, partition)
    }

    pub fn contents(&self) -> &Arc<Contents> {
        &self.source.contents
    }

    /// Table columns of the output and of the predicates, each once.
    pub fn columns_read(&self) -> Vec<usize> {
        let mut columns = self.projection.clone();
        columns.extend(self.conjuncts.iter().flat_map(|c| c.columns.iter().copied()));
        columns.sort_unstable();
        columns.dedup();
        columns
    }
}

impl fmt::Debug for ScanExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScanExec({})", self.source.name)
    }
}

impl DisplayAs for ScanExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (schema, columns) = (&self.columns, self.column_names());
        let filters: Vec<String> =
            self.conjuncts.iter().map(|c| fmt_sql(c.expr.as_ref()).to_string()).collect();
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(
                    f,
                    "ScanExec: table={}, columns=[{}]",
                    self.source.name,
                    columns.join(", ")
                )?;
                if !filters.is_empty() {
                    write!(f, ", filter=[{}]", filters.join(" AND "))?;
                }
                if let Some(ReadOrder { column, options }) = self.order {
                    let way = if options.descending { "DESC" } else { "ASC" };
                    write!(f, ", first=[{} {way}]", schema.field(column).name())?;
                }
                if let Some(fetch) = self.fetch {
                    write!(f, ", fetch={fetch}")?;
                }
                Ok(())
            }
            DisplayFormatType::TreeRender => {
                writeln!(f, "table={}", self.source.name)?;
                if !filters.is_empty() {
                    writeln!(f, "filter={}", filters.join(" AND "))?;
                }
                Ok(())
            }
        }
    }
}

impl ExecutionPlan for ScanExec {
    fn name(&self) -> &str {
        "ScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        apply_expression_roots(self.conjuncts.iter().map(|c| &c.expr), f)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.copy()))
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let stream = Stream::new(self, partition, Arc::clone(&schema));
        let batches = stream::try_unfold(stream, |mut s| async move {
            Ok(s.next().await?.map(|batch| (batch, s)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match args.partition() {
            None => Ok(Arc::clone(&self.statistics)),
            // Chunks go to whichever partition asks first: an even share is the best guess.
            Some(_) => {
                let mut share = (*self.statistics).clone().to_inexact();
                if let Some(rows) = share.num_rows.get_value() {
                    share.num_rows = Precision::Inexact(rows / self.partitions);
                }
                Ok(Arc::new(share))
            }
        }
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }

    fn with_fetch(&self, fetch: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let mut scan = self.copy();
        scan.fetch = fetch;
        Some(Arc::new(scan))
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }

    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
    ) -> Result<SortOrderPushdownResult<Arc<dyn ExecutionPlan>>> {
        let first = order.first();
        let column = first.and_then(|first| first.expr.downcast_ref::<expressions::Column>());
        let (Some(first), Some(column)) = (first, column) else {
            return Ok(SortOrderPushdownResult::Unsupported);
        };
        let (column, options) = (self.projection[column.index()], first.options);
        if column >= self.source.contents.arrow_schema.fields().len() {
            return Ok(SortOrderPushdownResult::Unsupported);
        }
        let mut scan = self.copy();
        scan.order = Some(ReadOrder { column, options });
        Ok(SortOrderPushdownResult::Inexact { inner: Arc::new(scan) })
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        result: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        // A fetch counts rows before a filter that comes from above it.
        if self.fetch.is_some() || result.parent_filters.is_empty() {
            return Ok(FilterPushdownPropagation::all_unsupported(result));
        }
        let table = &self.columns;
        let mut scan = self.copy();
        for pushed in &result.parent_filters {
            for expr in datafusion::physical_expr::split_conjunction(&pushed.filter) {
                let expr = remap(expr, |i| self.projection[i], table)?;
                scan.conjuncts.push(Arc::new(Conjunct::new(expr, table)?));
            }
        }
        let taken = vec![PushedDown::Yes; result.parent_filters.len()];
        scan.statistics = Arc::new((*scan.statistics).clone().to_inexact());
        Ok(FilterPushdownPropagation::with_parent_pushdown_result(taken)
            .with_updated_node(Arc::new(scan) as _))
    }
}
