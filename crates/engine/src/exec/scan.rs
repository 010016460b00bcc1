//! Reads a stored table: skips chunks by statistics, decodes columns late, filters in place.
//!
//! All partitions of a scan pull chunks from one [`Skipper`], so that skew balances itself. For each
//! chunk the filter columns are decoded first, conjunct by conjunct; a chunk of which no row is
//! left decodes nothing more. Columns stay in the form they have in the cache, and only rows that
//! are handed out, or shown to a predicate that must see them, are expanded. Dynamic filters (join
//! build sides, top-k bounds) prune the chunks that have not been handed out yet whenever they
//! change.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{BatchCoalescer, interleave, take};
use arrow::datatypes::{DataType, FieldRef, SchemaRef, UInt64Type};
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
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
    SortOrderPushdownResult, StatisticsArgs, apply_expression_roots,
};
use futures::stream;
use thalweg_base::limits::{BATCH_ROWS, CHUNK_ROWS_MAX};
use thalweg_pipeline::encoding::value_bytes;
use thalweg_pipeline::select::Selection;
use thalweg_storage::{ChunkRef, Contents, Database, Snapshot, Table, expand};

use super::column::Column;
use super::filter::{Conjunct, remap};
use super::loading::Loading;
use crate::error::into_datafusion;
use crate::prune::{Cause, Filter, Next, Pruned, ReadOrder, Skipper};
use crate::runtime::{Run, blocking, checkpoint};
use crate::table::with_row_id;

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
        let partitions = partitions.min(source.contents.chunks()).max(1);
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
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// Without filters that joins and others above would feed, and do not.
    pub fn unfed(&self) -> Self {
        let mut scan = self.copy();
        scan.conjuncts.retain(|c| !c.dynamic);
        scan
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

    /// Gives the rows of one partition before `fetch`.
    pub fn reader(&self, partition: usize) -> Reader {
        Reader {
            source: self.source.clone(),
            projection: self.projection.clone(),
            columns_read: self.columns_read(),
            conjuncts: self.conjuncts.clone(),
            hints: self.hints.clone(),
            order: self.order,
            skipper: Arc::clone(&self.skipper),
            metrics: Metrics::new(&self.metrics, partition),
            bytes_touched: 0,
        }
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

    fn repartitioned(
        &self,
        target: usize,
        _: &ConfigOptions,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let partitions = target.min(self.source.contents.chunks()).max(1);
        if partitions <= self.partitions {
            return Ok(None);
        }
        let mut scan = self.copy();
        scan.partitions = partitions;
        scan.properties = Arc::new(
            (*self.properties)
                .clone()
                .with_partitioning(Partitioning::UnknownPartitioning(partitions)),
        );
        Ok(Some(Arc::new(scan)))
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let stream = Stream {
            reader: self.reader(partition),
            schema: Arc::clone(&schema),
            coalescer: BatchCoalescer::new(Arc::clone(&schema), BATCH_ROWS)
                .with_biggest_coalesce_batch_size(Some(BATCH_ROWS / 4)),
            fetch: self.fetch,
            ready: None,
        };
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

/// What `EXPLAIN ANALYZE` shows of a scan.
struct Metrics {
    base: BaselineMetrics,
    chunks_total: Count,
    chunks_read: Count,
    chunks_pruned: Count,
    bytes_total: Count,
    bytes_read: Count,
    bytes_decoded: Count,
    /// By [`Cause`]; only those that come up are shown.
    pruned_by: [OnceLock<Count>; Cause::ALL.len()],
    set: ExecutionPlanMetricsSet,
    partition: usize,
}

impl Metrics {
    fn new(set: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let count = |name| MetricBuilder::new(set).counter(name, partition);
        Metrics {
            base: BaselineMetrics::new(set, partition),
            chunks_total: count("chunks_total"),
            chunks_read: count("chunks_read"),
            chunks_pruned: count("chunks_pruned"),
            bytes_total: count("bytes_total"),
            bytes_read: count("bytes_read"),
            bytes_decoded: count("bytes_decoded"),
            pruned_by: Default::default(),
            set: set.clone(),
            partition,
        }
    }

    fn count_pruned(&self, pruned: Pruned) {
        self.chunks_pruned.add(pruned.total());
        for cause in Cause::ALL {
            if pruned.by(cause) > 0 {
                let new = || MetricBuilder::new(&self.set).counter(cause.metric(), self.partition);
                self.pruned_by[cause as usize].get_or_init(new).add(pruned.by(cause));
            }
        }
    }
}

/// One partition's share of a scan, chunk by chunk: what is in it depends on the others.
pub struct Reader {
    source: Source,
    projection: Vec<usize>,
    columns_read: Vec<usize>,
    conjuncts: Vec<Arc<Conjunct>>,
    hints: Vec<Arc<dyn PhysicalExpr>>,
    order: Option<ReadOrder>,
    /// Common to all partitions of one execution.
    skipper: Arc<OnceLock<Skipper>>,
    metrics: Metrics,
    bytes_touched: usize,
}

/// Rows of one chunk that are left: columns of the projection, encoded as [`expand`] says.
pub struct Morsel {
    pub columns: Vec<ArrayRef>,
    /// Of the columns.
    pub rows: usize,
    /// Which of them are left; `None`: all.
    pub picked: Option<UInt32Array>,
}

struct Stream {
    reader: Reader,
    schema: SchemaRef,
    coalescer: BatchCoalescer,
    fetch: Option<usize>,
    /// A chunk's surviving rows that are handed out batch by batch.
    ready: Option<Survivors>,
}

impl Stream {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            checkpoint().await;
            if self.fetch == Some(0) {
                return Ok(None);
            }
            if let Some(batch) = self.take_ready()? {
                return Ok(Some(self.emit(batch)));
            }
            if let Some(batch) = self.coalescer.next_completed_batch() {
                return Ok(Some(self.emit(batch)));
            }
            match self.reader.next().await? {
                Some(morsel) => self.take_in(morsel)?,
                None => {
                    self.coalescer.finish_buffered_batch()?;
                    return Ok(self.coalescer.next_completed_batch().map(|b| self.emit(b)));
                }
            }
        }
    }

    fn emit(&mut self, mut batch: RecordBatch) -> RecordBatch {
        if let Some(left) = &mut self.fetch {
            if batch.num_rows() > *left {
                batch = batch.slice(0, *left);
            }
            *left -= batch.num_rows();
        }
        self.reader.metrics.base.record_output(batch.num_rows());
        batch
    }

    fn take_ready(&mut self) -> Result<Option<RecordBatch>> {
        let Some(survivors) = &mut self.ready else { return Ok(None) };
        let _timer = self.reader.metrics.base.elapsed_compute().timer();
        let batch = survivors.next(&self.schema)?;
        if batch.is_none() {
            self.ready = None;
        }
        Ok(batch)
    }

    /// Filters the columns of a morsel, into `ready` or the coalescer.
    fn take_in(&mut self, morsel: Morsel) -> Result<()> {
        let _timer = self.reader.metrics.base.elapsed_compute().timer();
        let Morsel { mut columns, mut rows, picked } = morsel;
        if let Some(picked) = picked {
            let taken = columns.iter().map(|c| take(c, &picked, None));
            columns = taken.collect::<std::result::Result<_, _>>()?;
            rows = picked.len();
        }
        let mut survivors = Survivors { arrays: columns, rows, from: 0 };
        if rows >= BATCH_ROWS && self.coalescer.is_empty() {
            self.ready = Some(survivors);
        } else {
            while let Some(batch) = survivors.next(&self.schema)? {
                self.coalescer.push_batch(batch)?;
            }
        }
        Ok(())
    }
}

impl Reader {
    /// Bytes so far of the columns that filters were evaluated on, and of the rows that were handed
    /// out, as they are in memory; each once.
    pub fn bytes_touched(&self) -> usize {
        self.bytes_touched
    }

    /// The next chunk of which rows are left.
    pub async fn next(&mut self) -> Result<Option<Morsel>> {
        while let Some(chunk) = self.next_chunk().await? {
            if let Some(morsel) = self.read_chunk(chunk).await? {
                return Ok(Some(morsel));
            }
            checkpoint().await;
        }
        Ok(None)
    }

    /// Filters and projects one chunk.
    async fn read_chunk(&mut self, chunk: ChunkRef) -> Result<Option<Morsel>> {
        let rows = chunk.rows;
        debug_assert!(rows <= CHUNK_ROWS_MAX);
        let mut selection = match chunk.live() {
            Some(live) => Selection::of(live),
            None => Selection::all(rows),
        };
        let mut columns = Columns { chunk, loaded: Vec::new(), counted: 0 };
        for conjunct in self.in_order() {
            self.load(&mut columns, &conjunct.columns).await?;
            // Of the rows that are left, as if all had the same length.
            self.bytes_touched += columns.bytes_uncounted(None) * selection.len() / rows.max(1);
            let needed: Vec<_> = conjunct.columns.iter().map(|c| columns.get(*c)).collect();
            let time = self.metrics.base.elapsed_compute();
            conjunct.narrow(&mut selection, &needed, time).await?;
            if selection.is_empty() {
                return Ok(None);
            }
            checkpoint().await;
        }
        let projection = self.projection.clone();
        self.load(&mut columns, &projection).await?;
        let picked = selection.into_positions().map(UInt32Array::from);
        self.bytes_touched += columns.bytes_uncounted(picked.as_ref());
        let columns = projection.iter().map(|c| columns.get(*c)).map(|column| match &picked {
            Some(_) => Arc::clone(&column.encoded),
            None => column.cheapest(),
        });
        Ok(Some(Morsel { columns: columns.collect(), rows, picked }))
    }

    /// Rows of the table by their ids, in that order, whatever the filters say.
    pub async fn take_rows(&mut self, ids: &ArrayRef) -> Result<RecordBatch> {
        let contents = Arc::clone(&self.source.contents);
        let schema = Arc::new(contents.arrow_schema.project(&self.projection)?);
        if ids.is_empty() {
            return Ok(RecordBatch::new_empty(schema));
        }
        let mut by_chunk: BTreeMap<usize, Vec<(usize, u32)>> = BTreeMap::new();
        for (place, &id) in ids.as_primitive::<UInt64Type>().values().iter().enumerate() {
            let (chunk, row) = contents.locate(id);
            by_chunk.entry(chunk).or_default().push((place, row as u32));
        }
        let projection = self.projection.clone();
        // For each row where it is: which of the chunks, and where among its rows.
        let mut places = vec![(0, 0); ids.len()];
        let mut taken: Vec<Vec<ArrayRef>> = vec![vec![]; projection.len()];
        for (number, (chunk, rows)) in by_chunk.into_iter().enumerate() {
            let mut columns =
                Columns { chunk: contents.chunk(chunk), loaded: Vec::new(), counted: 0 };
            self.metrics.chunks_read.add(1);
            self.load(&mut columns, &projection).await?;
            rows.iter().enumerate().for_each(|(at, (place, _))| places[*place] = (number, at));
            let rows = UInt32Array::from_iter_values(rows.into_iter().map(|(_, row)| row));
            for (&column, taken) in projection.iter().zip(&mut taken) {
                let rows = take(&columns.get(column).encoded, &rows, None)?;
                taken.push(expand(&rows, &self.data_type(column)).map_err(into_datafusion)?);
            }
            checkpoint().await;
        }
        let columns = taken.iter().map(|chunks| {
            let chunks: Vec<&dyn Array> = chunks.iter().map(AsRef::as_ref).collect();
            interleave(&chunks, &places)
        });
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
        self.metrics.base.record_output(ids.len());
        Ok(RecordBatch::try_new(schema, columns)?)
    }

    async fn next_chunk(&mut self) -> Result<Option<ChunkRef>> {
        let skipper = Arc::clone(&self.skipper);
        let skipper = skipper.get_or_init(|| {
            let contents = &self.source.contents;
            let stored = self.columns_read.iter().filter(|&&c| !self.is_row_id(c));
            let bytes: u64 = stored.map(|&c| contents.column_statistics(c).stored_bytes).sum();
            self.metrics.chunks_total.add(contents.chunks());
            self.metrics.bytes_total.add(bytes as usize);
            let filter =
                |c: &Arc<Conjunct>| Filter { expr: Arc::clone(&c.expr), dynamic: c.dynamic };
            let hint = |expr: &Arc<_>| Filter { expr: Arc::clone(expr), dynamic: true };
            let filters = self.conjuncts.iter().map(filter).chain(self.hints.iter().map(hint));
            Skipper::new(Arc::clone(contents), filters, self.order)
        });
        loop {
            let timer = self.metrics.base.elapsed_compute().timer();
            let next = skipper.next();
            timer.done();
            self.metrics.count_pruned(skipper.take_pruned());
            match next {
                Next::Chunk(chunk) => {
                    self.metrics.chunks_read.add(1);
                    return Ok(Some(chunk));
                }
                Next::Digests(wanted) => skipper.supply(blocking(move || wanted.load()).await?),
                Next::End => return Ok(None),
            }
        }
    }

    /// The predicates worth evaluating: those of the statement, then the dynamic ones, the most
    /// selective so far first.
    fn in_order(&self) -> Vec<Arc<Conjunct>> {
        let mut order: Vec<_> = self.conjuncts.iter().filter(|c| c.worthwhile()).cloned().collect();
        let rank = |c: &Conjunct| if c.dynamic { c.pass_share() } else { -1.0 };
        order.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
        order
    }

    /// The column after the table's own names rows and is not stored.
    fn is_row_id(&self, column: usize) -> bool {
        column >= self.source.contents.arrow_schema.fields().len()
    }

    /// Of a stored column.
    fn data_type(&self, column: usize) -> DataType {
        self.source.contents.arrow_schema.field(column).data_type().clone()
    }

    /// Makes the named columns of the chunk present: from the cache, or read outside any slot
    /// and decoded under ours.
    async fn load(&self, columns: &mut Columns, wanted: &[usize]) -> Result<()> {
        let (mut missing, mut read) = (vec![], 0);
        for &column in wanted {
            if columns.has(column) || missing.contains(&column) {
                continue;
            }
            if self.is_row_id(column) {
                columns.add(column, Arc::new(columns.chunk.row_ids()), DataType::UInt64);
                continue;
            }
            let stored = columns.chunk.stored_bytes(column);
            self.metrics.bytes_read.add(stored as usize);
            read += stored;
            match self.source.database.cached(&columns.chunk, column) {
                Some(array) => columns.add(column, array, self.data_type(column)),
                None => missing.push(column),
            }
        }
        if let Some(run) = Run::current() {
            run.note_read(read);
        }
        if missing.is_empty() {
            return Ok(());
        }
        let Source { database, loading, .. } = &self.source;
        let segments = loading.read(database, &columns.chunk, &missing).await?;
        for (column, segment) in missing.into_iter().zip(segments) {
            let decode = || {
                let _timer = self.metrics.base.elapsed_compute().timer();
                database.decode(segment.clone()).map_err(into_datafusion)
            };
            let (array, decoded) = loading.decode(database, &columns.chunk, column, decode).await?;
            if decoded {
                self.metrics.bytes_decoded.add(array.get_array_memory_size());
            }
            columns.add(column, array, self.data_type(column));
            checkpoint().await;
        }
        Ok(())
    }
}

/// The decoded columns of the chunk in hand. A handful: a list beats a map.
struct Columns {
    chunk: ChunkRef,
    loaded: Vec<(usize, Column)>,
    /// The first so many are in the bytes that were touched.
    counted: usize,
}

impl Columns {
    fn has(&self, column: usize) -> bool {
        self.loaded.iter().any(|(c, _)| *c == column)
    }

    fn get(&self, column: usize) -> &Column {
        let found = self.loaded.iter().find(|(c, _)| *c == column);
        &found.expect("loaded before it is used").1
    }

    fn add(&mut self, column: usize, encoded: ArrayRef, data_type: DataType) {
        self.loaded.push((column, Column::new(encoded, data_type)));
    }

    /// Of the named rows, or of all, in the columns that were not counted before.
    fn bytes_uncounted(&mut self, picked: Option<&UInt32Array>) -> usize {
        let uncounted = &self.loaded[self.counted..];
        self.counted = self.loaded.len();
        uncounted.iter().map(|(_, column)| value_bytes(&column.encoded, picked)).sum()
    }
}

/// Rows of a chunk on their way out: still encoded.
struct Survivors {
    arrays: Vec<ArrayRef>,
    rows: usize,
    from: usize,
}

impl Survivors {
    /// The next of them, of `schema` and so in plain. A batch at a time is expanded: it stays in the
    /// processor's cache on its way to the next operator, and a LIMIT leaves the rest as it is.
    fn next(&mut self, schema: &SchemaRef) -> Result<Option<RecordBatch>> {
        let rows = (self.rows - self.from).min(BATCH_ROWS);
        if rows == 0 {
            return Ok(None);
        }
        let plain = |(array, field): (&ArrayRef, &FieldRef)| {
            expand(&array.slice(self.from, rows), field.data_type()).map_err(into_datafusion)
        };
        let plain = self.arrays.iter().zip(schema.fields()).map(plain);
        let plain = plain.collect::<Result<Vec<_>>>()?;
        self.from += rows;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(Some(RecordBatch::try_new_with_options(Arc::clone(schema), plain, &options)?))
    }
}
