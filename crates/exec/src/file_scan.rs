//! Reads files of text where they lie, with the reader of [`load`](thalweg_storage::load).
//!
//! All partitions take blocks of whole records from one [`Reader`], as the workers of a load do: which
//! rows there are, and which error is told of a file that is not right, does not depend on how many
//! partitions there are. A scan that wants the first rows alone has one partition, which gives them in
//! the order of the file. So does one whose rows go to a client as they come ([`FileScanExec::in_order`]):
//! its blocks are parsed beside each other, and handed out in turn.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, ScalarValue, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput, Time,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
    StatisticsArgs,
};
use futures::stream;
use thalweg_base::text::quoted;
use thalweg_base::{Error, limits};
use thalweg_storage::LoadedFile;
use thalweg_storage::load::{Batches, Columns, Format, Reader, Unit, shown};
use tokio::sync::OnceCell;

use thalweg_errors::in_sql;
use thalweg_errors::{from_arrow, into_datafusion};
use thalweg_runtime::{Beside, blocking, checkpoint};
use thalweg_storage::load::version;

/// The files of a table, as they were when their columns were found.
#[derive(Debug)]
pub struct Files {
    /// What the statement calls them, for people.
    pub name: String,
    pub paths: Vec<PathBuf>,
    /// Their versions, in the order of the paths.
    pub stamps: Vec<LoadedFile>,
    pub format: Format,
    /// All columns, in the order of the files; then those that each file has by its path.
    pub columns: SchemaRef,
    /// The values of the latter, by the places of the files.
    pub of_paths: Vec<Vec<ScalarValue>>,
    /// Columns of the files that are left out.
    pub hidden: Vec<String>,
    /// What the columns of each file are called, if that is not found in the file itself.
    pub names: Option<Vec<String>>,
}

impl Files {
    pub fn bytes(&self) -> u64 {
        self.stamps.iter().map(|stamp| stamp.bytes).sum()
    }

    /// How many columns the files have themselves.
    pub fn own(&self) -> usize {
        self.columns.fields().len() - self.of_paths.len()
    }

    /// Of these files those at `kept`.
    pub fn only(&self, kept: &[usize]) -> Files {
        let of_paths = self.of_paths.iter().map(|values| {
            let values = kept.iter().map(|&file| values[file].clone());
            values.collect()
        });
        Files {
            name: self.name.clone(),
            paths: kept.iter().map(|&file| self.paths[file].clone()).collect(),
            stamps: kept.iter().map(|&file| self.stamps[file].clone()).collect(),
            format: self.format.clone(),
            columns: Arc::clone(&self.columns),
            of_paths: of_paths.collect(),
            hidden: self.hidden.clone(),
            names: self.names.clone(),
        }
    }

    /// Opens the files for the columns of `projection`. Blocking.
    fn open(&self, projection: &[usize]) -> thalweg_base::Result<Reader> {
        for (path, then) in self.paths.iter().zip(&self.stamps) {
            let now = version(path)?;
            if now != *then {
                return Err(Error::conflict(format!(
                    "file {} was changed after its columns were found",
                    shown(path)
                ))
                .hint("run the statement again"));
            }
        }
        let own: Vec<usize> = (0..self.own()).collect();
        let mut columns =
            Columns::new(Arc::new(self.columns.project(&own).map_err(|e| from_arrow(&e))?));
        // At least one is read, also where none is wanted.
        let wanted: Vec<usize> = projection.iter().copied().filter(|c| *c < own.len()).collect();
        columns.wanted = Some(if wanted.is_empty() { vec![0] } else { wanted });
        // As far as JSON is concerned, keys that are not declared are left out.
        columns.ignore_unknown = matches!(self.format, Format::Json(_));
        columns.hidden.clone_from(&self.hidden);
        columns.names.clone_from(&self.names);
        Reader::open(self.paths.clone(), self.format.clone(), columns)
    }
}

pub struct FileScanExec {
    files: Arc<Files>,
    projection: Vec<usize>,
    fetch: Option<usize>,
    /// How many blocks the only partition has parsed ahead of its consumer; 0: it parses them itself.
    ahead: usize,
    statistics: Arc<Statistics>,
    properties: Arc<PlanProperties>,
    shared: Arc<Shared>,
    metrics: ExecutionPlanMetricsSet,
}

/// What the partitions of one execution have in common.
#[derive(Default)]
struct Shared {
    reader: OnceCell<Arc<Reader>>,
    /// Partitions that have come to their end.
    ended: AtomicUsize,
}

impl Shared {
    async fn reader(&self, files: &Arc<Files>, projection: &[usize]) -> Result<Arc<Reader>> {
        let open = || async {
            let (files, columns) = (Arc::clone(files), projection.to_vec());
            blocking(move || files.open(&columns).map_err(in_sql)).await.map(Arc::new)
        };
        self.reader.get_or_try_init(open).await.cloned()
    }
}

impl FileScanExec {
    /// `statistics` describe the columns of `projection`.
    pub fn new(
        files: Arc<Files>,
        projection: Vec<usize>,
        fetch: Option<usize>,
        partitions: usize,
        statistics: Statistics,
    ) -> Result<Self> {
        let schema = Arc::new(files.columns.project(&projection)?);
        // A block is what a partition takes at a time.
        let blocks = files.bytes() / limits::LOAD_BLOCK_BYTES as u64 + 1;
        let fed = if fetch.is_some() { 1 } else { blocks.min(partitions as u64).max(1) };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(fed as usize),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Ok(FileScanExec {
            files,
            projection,
            fetch,
            ahead: 0,
            statistics: Arc::new(statistics),
            properties: Arc::new(properties),
            shared: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    fn partitions(&self) -> usize {
        self.properties.partitioning.partition_count()
    }

    /// The same with `partitions`, if there are enough blocks.
    fn copy(&self, fetch: Option<usize>, partitions: usize) -> Result<Self> {
        let (files, statistics) = (Arc::clone(&self.files), self.statistics.as_ref().clone());
        FileScanExec::new(files, self.projection.clone(), fetch, partitions, statistics)
    }

    /// The same rows in the order of the files, from one partition that does not work alone.
    pub fn in_order(&self) -> Result<Self> {
        let mut scan = self.copy(self.fetch, 1)?;
        scan.ahead = match self.partitions() {
            1 => self.ahead,
            several => several,
        };
        Ok(scan)
    }
}

impl fmt::Debug for FileScanExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileScanExec({})", self.files.name)
    }
}

impl DisplayAs for FileScanExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            self.projection.iter().map(|&c| self.files.columns.field(c).name().as_str()).collect();
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                let Files { name, paths, .. } = &*self.files;
                let (name, files) = (quoted(name), paths.len());
                write!(f, "FileScanExec: {name}, files={files}, columns=[{}]", names.join(", "))?;
                if let Some(fetch) = self.fetch {
                    write!(f, ", fetch={fetch}")?;
                }
                if self.ahead > 0 {
                    write!(f, ", in order, blocks ahead={}", self.ahead)?;
                }
                Ok(())
            }
            DisplayFormatType::TreeRender => writeln!(f, "file={}", self.files.name),
        }
    }
}

impl ExecutionPlan for FileScanExec {
    fn name(&self) -> &str {
        "FileScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
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
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let mut scan = self.copy(self.fetch, self.partitions())?;
        scan.ahead = self.ahead;
        Ok(Arc::new(scan))
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let rows = Rows {
            files: Arc::clone(&self.files),
            projection: self.projection.clone(),
            schema: Arc::clone(&schema),
            shared: Arc::clone(&self.shared),
            partitions: self.partitions(),
            batches: None,
            ahead: self.ahead,
            parsing: VecDeque::new(),
            parsed: VecDeque::new(),
            left: self.fetch.unwrap_or(usize::MAX),
            metrics: BaselineMetrics::new(&self.metrics, partition),
        };
        let batches = stream::try_unfold(rows, |mut rows| async move {
            let batch = rows.next().await?;
            Ok(batch.map(|batch| (batch, rows)))
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
            // Blocks go to whichever partition asks first: an even share is the best guess.
            Some(_) => {
                let mut share = self.statistics.as_ref().clone();
                let partitions = self.partitions();
                share.num_rows = share.num_rows.map(|rows| rows / partitions).to_inexact();
                Ok(Arc::new(share))
            }
        }
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }

    fn with_fetch(&self, fetch: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        self.copy(fetch, self.partitions()).ok().map(|scan| Arc::new(scan) as _)
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }
}

/// The rows of a block.
async fn parsed(unit: Unit, time: Time) -> Result<Parsed> {
    let file = unit.file();
    let mut batches = VecDeque::new();
    let mut block = unit.parse();
    loop {
        let batch = {
            let _timer = time.timer();
            block.next().transpose().map_err(into_datafusion)?
        };
        match batch {
            Some(batch) if batch.num_rows() > 0 => batches.push_back(batch),
            Some(_) => {}
            None => return Ok((batches, file)),
        }
        checkpoint().await;
    }
}

/// The rows that one partition gives.
struct Rows {
    files: Arc<Files>,
    projection: Vec<usize>,
    schema: SchemaRef,
    shared: Arc<Shared>,
    partitions: usize,
    /// What is left of the block that was taken last, and the file that it is of.
    batches: Option<(Batches, usize)>,
    /// Blocks that are parsed beside this, at most; they are handed out in the order of the files.
    ahead: usize,
    parsing: VecDeque<Beside<Result<Parsed>>>,
    /// What is left of the one that was done first, and its file.
    parsed: VecDeque<(RecordBatch, usize)>,
    /// Rows that are still wanted.
    left: usize,
    metrics: BaselineMetrics,
}

/// The rows of a block, and the file that it is of.
type Parsed = (VecDeque<RecordBatch>, usize);

impl Rows {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        match self.ahead {
            0 => self.next_of_any().await,
            _ => self.next_in_order().await,
        }
    }

    async fn next_in_order(&mut self) -> Result<Option<RecordBatch>> {
        let mut ended = false;
        loop {
            if let Some((batch, file)) = self.parsed.pop_front() {
                checkpoint().await;
                return self.shaped(&batch, file).record_output(&self.metrics).map(Some);
            }
            if self.left == 0 {
                return Ok(None);
            }
            let reader = self.shared.reader(&self.files, &self.projection).await?;
            while !ended && self.parsing.len() < self.ahead {
                let reader = Arc::clone(&reader);
                match blocking(move || Ok(reader.next())).await? {
                    Some(unit) => {
                        let time = self.metrics.elapsed_compute().clone();
                        self.parsing.push_back(Beside::spawn(parsed(unit, time)));
                    }
                    None => ended = true,
                }
            }
            match self.parsing.pop_front() {
                Some(first) => {
                    let (batches, file) = first.join().await??;
                    self.parsed.extend(batches.into_iter().map(|batch| (batch, file)));
                }
                None => return self.end().await,
            }
        }
    }

    async fn next_of_any(&mut self) -> Result<Option<RecordBatch>> {
        while self.left > 0 {
            if let Some((batches, file)) = &mut self.batches {
                let file = *file;
                let parsed = {
                    let _timer = self.metrics.elapsed_compute().timer();
                    batches.next().transpose().map_err(into_datafusion)?
                };
                let Some(batch) = parsed else {
                    self.batches = None;
                    continue;
                };
                checkpoint().await;
                if batch.num_rows() == 0 {
                    continue;
                }
                let batch = batch.slice(0, batch.num_rows().min(self.left));
                self.left -= batch.num_rows();
                return self.shaped(&batch, file).record_output(&self.metrics).map(Some);
            }
            let reader = self.shared.reader(&self.files, &self.projection).await?;
            let unit = blocking(move || Ok(reader.next())).await?;
            match unit {
                Some(unit) => {
                    let file = unit.file();
                    self.batches = Some((unit.parse(), file));
                }
                None => return self.end().await,
            }
        }
        Ok(None)
    }

    /// The last partition that ends tells what was wrong with the files, as only then it is known
    /// which fault comes first in them.
    async fn end(&mut self) -> Result<Option<RecordBatch>> {
        self.left = 0;
        if self.shared.ended.fetch_add(1, Ordering::AcqRel) + 1 < self.partitions {
            return Ok(None);
        }
        let reader = self.shared.reader(&self.files, &self.projection).await?;
        let (_, result) = reader.finish();
        result.map(|()| None).map_err(|e| into_datafusion(in_sql(e)))
    }

    /// The batch as the plan says it is: with the columns that the file has by its path, and without the
    /// one that is read where none is wanted.
    fn shaped(&self, batch: &RecordBatch, file: usize) -> Result<RecordBatch> {
        let (rows, own) = (batch.num_rows(), self.files.own());
        let mut read = batch.columns().iter();
        let columns = self.projection.iter().map(|&column| match column.checked_sub(own) {
            None => Ok(Arc::clone(read.next().expect("one for each that is wanted"))),
            Some(of_path) => self.files.of_paths[of_path][file].to_array_of_size(rows),
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}
