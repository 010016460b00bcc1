//! Where the morsels of a pipeline come from.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlanProperties;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use futures::StreamExt;
use parking_lot::Mutex;
use thalweg_base::limits::BATCH_ROWS;
use thalweg_ir::{Source, TableRows};
use thalweg_pipeline::batch::Batch;
use thalweg_pipeline::expr::{Expr, Register};
use thalweg_pipeline::phases::Shares;
use thalweg_pipeline::prepared::{Pipeline, Step};
use thalweg_pipeline::worker::{
    BuiltTable, Finished, batches, is_apart, morsel, morsels, table_morsels, table_rows,
};

use super::found::Found;
use super::spill::{Loaded, Rows, Spilled, SpilledGroups, SpilledTable};
use crate::ScanExec;
use crate::compiled::Input;
use crate::scan::Hint;
use crate::scan::reader::Reader;
use thalweg_errors::into_datafusion;

/// What a worker shall take for a step: a batch that takes longer is followed by shorter ones, so
/// that several fit into a quantum.
const STEP: Duration = Duration::from_micros(800);
/// Of a batch, however long that takes.
const ROWS_MIN: usize = BATCH_ROWS / 8;

/// What the sinks of a plan have become so far.
pub type Sinks = Arc<Vec<Option<Finished>>>;

/// The source of one pipeline.
pub enum Opened {
    /// The types are those of its registers.
    Scan { scan: Arc<ScanExec>, types: Arc<[DataType]> },
    /// Outputs of another operator, or rows of a sort in files, that no worker has taken yet.
    Streams { left: Mutex<Vec<SendableRecordBatchStream>>, count: usize },
    /// Groups in files, part by part.
    Spilled { spilled: Arc<SpilledGroups>, context: Arc<TaskContext>, next: AtomicUsize },
    /// Of a table in files, part by part.
    Parts { table: Arc<SpilledTable>, of: PartRows, context: Arc<TaskContext>, next: AtomicUsize },
    /// Groups, or rows of a table.
    Own { source: Source, sinks: Sinks, count: usize },
}

/// Rows of a part of a table, or that go with it.
pub enum PartRows {
    /// They are to be looked up in it: values of these of so many registers.
    Probing {
        rows: Rows,
        registers: Vec<Register>,
        count: usize,
    },
    Table(TableRows),
}

impl Opened {
    pub fn new(
        pipeline: &Pipeline,
        inputs: &[Input],
        sinks: &Sinks,
        context: &Arc<TaskContext>,
    ) -> Result<Self> {
        let source = &pipeline.source;
        let Source::External(number) = source else {
            let count = morsels(source, sinks).map_err(into_datafusion)?;
            let (source, sinks) = (source.clone(), Arc::clone(sinks));
            return Ok(Opened::Own { source, sinks, count });
        };
        match &inputs[*number] {
            // A copy, so that its chunks are handed out once to this execution.
            Input::Scan(scan) => {
                let scan = Arc::new(scan.hinted(&hints(pipeline, sinks))?);
                Ok(Opened::Scan { scan, types: pipeline.types.clone().into() })
            }
            Input::Plan(plan) => {
                let count = plan.output_partitioning().partition_count();
                let streams = (0..count).map(|p| plan.execute(p, Arc::clone(context)));
                let mut streams = streams.collect::<Result<Vec<_>>>()?;
                streams.reverse();
                Ok(Opened::Streams { left: Mutex::new(streams), count })
            }
        }
    }

    /// Of a sink that went to files; `spooled`: the rows that were split for the pipeline.
    pub fn spilled(
        pipeline: &Pipeline,
        spilled: Spilled,
        spooled: Option<Rows>,
        context: &Arc<TaskContext>,
    ) -> Result<Self> {
        if let (Spilled::Sort(runs), Source::Groups(_)) = (&spilled, &pipeline.source) {
            let memory = MemoryConsumer::new("PipelineExec").register(context.memory_pool());
            let unseen = BaselineMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
            let merged = runs.merged(memory, 1, unseen, context)?;
            return Ok(Opened::Streams { left: Mutex::new(vec![merged]), count: 1 });
        }
        let (context, next) = (Arc::clone(context), AtomicUsize::new(0));
        Ok(match (spilled, &pipeline.source, spooled) {
            (Spilled::Groups(spilled), Source::Groups(_), None) => {
                Opened::Spilled { spilled, context, next }
            }
            (Spilled::Table(table), Source::Table { rows, .. }, None) => {
                Opened::Parts { table, of: PartRows::Table(*rows), context, next }
            }
            (Spilled::Table(table), Source::Parts { registers, .. }, Some(rows)) => {
                let (registers, count) = (registers.clone(), pipeline.types.len());
                let of = PartRows::Probing { rows, registers, count };
                Opened::Parts { table, of, context, next }
            }
            (_, source, _) => return internal_err!("{source} is in other files"),
        })
    }

    /// How many workers it can feed.
    pub fn width(&self) -> usize {
        match self {
            Opened::Scan { scan, .. } => scan.partitions(),
            Opened::Spilled { spilled, .. } => spilled.parts(),
            Opened::Parts { table, .. } => table.parts(),
            Opened::Streams { count, .. } | Opened::Own { count, .. } => *count,
        }
    }
}

/// A source, and what its workers have taken from it and not worked on yet. Once it is empty, who has
/// nothing left takes over batches of the others: so they end at about the same time, however few
/// and uneven the morsels are.
pub struct Feed {
    opened: Opened,
    /// Of what is in memory.
    shares: Shares,
    /// By worker.
    ready: Vec<Mutex<Ready>>,
}

impl Feed {
    pub fn new(opened: Opened, workers: usize) -> Arc<Self> {
        let ready = (0..workers).map(|_| Mutex::default()).collect();
        Arc::new(Feed { opened, shares: Shares::new(workers), ready })
    }
}

/// One worker's end of a source.
pub struct Puller {
    feed: Arc<Feed>,
    worker: usize,
    reader: Option<Reader>,
    stream: Option<SendableRecordBatchStream>,
    loaded: Option<Loaded>,
    part: Option<Part>,
    /// What it takes, until the worker has the next.
    part_before: Option<Part>,
    /// Of a batch.
    rows_max: usize,
    /// What a scan counts itself.
    bytes_unscanned: usize,
}

/// A part of a table in memory.
struct Part {
    table: Arc<BuiltTable>,
    /// The worker has it, or does not probe it.
    known: bool,
    /// Those to be looked up.
    rows: Option<SendableRecordBatchStream>,
    /// Of the table's own rows.
    next: usize,
    _memory: MemoryReservation,
}

/// A morsel that is handed out in batches of no more rows than are asked for.
#[derive(Default)]
struct Ready {
    morsel: VecDeque<Batch>,
    /// Of the first.
    at: usize,
}

impl Ready {
    fn next(&mut self, rows_max: usize) -> Option<Batch> {
        loop {
            let first = self.morsel.front()?;
            let rows = rows_max.min(first.rows() - self.at);
            if rows > 0 {
                let batch = first.slice(self.at, rows);
                self.at += rows;
                return Some(batch);
            }
            self.morsel.pop_front();
            self.at = 0;
        }
    }

    fn rows(&self) -> usize {
        self.morsel.iter().map(Batch::rows).sum::<usize>() - self.at
    }
}

impl From<Batch> for Ready {
    fn from(batch: Batch) -> Self {
        vec![batch].into()
    }
}

impl From<Vec<Batch>> for Ready {
    fn from(batches: Vec<Batch>) -> Self {
        Ready { morsel: batches.into(), at: 0 }
    }
}

impl Puller {
    pub fn new(feed: Arc<Feed>, worker: usize) -> Self {
        let reader = match &feed.opened {
            Opened::Scan { scan, .. } => Some(scan.reader(worker)),
            _ => None,
        };
        Puller {
            feed,
            worker,
            reader,
            stream: None,
            loaded: None,
            part: None,
            part_before: None,
            rows_max: BATCH_ROWS,
            bytes_unscanned: 0,
        }
    }

    /// Bytes of memory so far that had to be read for the batches, at least once: their values, and
    /// what the scan's filters were evaluated on.
    pub fn bytes_in(&self) -> usize {
        self.bytes_unscanned + self.reader.as_ref().map_or(0, Reader::bytes_touched)
    }

    /// The longest step that the last batch took.
    pub fn took(&mut self, step: Duration) {
        if step > STEP {
            self.rows_max = (self.rows_max / 2).max(ROWS_MIN);
        } else if step < STEP / 4 {
            self.rows_max = (self.rows_max * 2).min(BATCH_ROWS);
        }
    }

    /// The part of a table that is to be probed from here on, once.
    pub fn table(&mut self) -> Option<Arc<BuiltTable>> {
        let part = self.part.as_mut()?;
        if std::mem::replace(&mut part.known, true) {
            return None;
        }
        self.part_before = None;
        Some(Arc::clone(&part.table))
    }

    pub async fn next(&mut self) -> Result<Option<Batch>> {
        let batch = self.next_batch().await?;
        if let (Some(batch), None) = (&batch, &self.reader) {
            self.bytes_unscanned += batch.bytes();
        }
        Ok(batch)
    }

    async fn next_batch(&mut self) -> Result<Option<Batch>> {
        loop {
            if let Some(batch) = self.feed.ready[self.worker].lock().next(self.rows_max) {
                return Ok(Some(batch));
            }
            match self.next_morsel().await? {
                Some(morsel) => *self.feed.ready[self.worker].lock() = morsel,
                None => return Ok(self.take_over()),
            }
        }
    }

    /// A batch of the worker that has most left.
    fn take_over(&self) -> Option<Batch> {
        match &self.feed.opened {
            // They go with the part of the table that another has.
            Opened::Parts { .. } => return None,
            // One worker has all of a part's groups.
            Opened::Own { source, sinks, .. } if is_apart(source, sinks) => return None,
            _ => {}
        }
        let rows = self.feed.ready.iter().map(|ready| ready.lock().rows());
        let (most, _) = rows.enumerate().max_by_key(|&(_, rows)| rows)?;
        self.feed.ready[most].lock().next(self.rows_max)
    }

    async fn next_morsel(&mut self) -> Result<Option<Ready>> {
        Ok(Some(match &self.feed.opened {
            Opened::Scan { types, .. } => {
                let Some(reader) = &mut self.reader else { return Ok(None) };
                let Some(morsel) = reader.next().await? else { return Ok(None) };
                let batch = match morsel.picked {
                    None => Batch::new(morsel.columns, morsel.rows),
                    Some(picked) => Batch::taken(morsel.columns, picked),
                };
                batch.compact_of(types).into()
            }
            Opened::Streams { left, .. } => loop {
                let Some(stream) = &mut self.stream else {
                    self.stream = left.lock().pop();
                    if self.stream.is_none() {
                        return Ok(None);
                    }
                    continue;
                };
                match stream.next().await.transpose()? {
                    Some(batch) => break taken_in(&batch).into(),
                    None => self.stream = None,
                }
            },
            Opened::Spilled { spilled, context, next } => loop {
                let Some(loaded) = &mut self.loaded else {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= spilled.parts() {
                        return Ok(None);
                    }
                    self.loaded = Some(spilled.load(n, context).await?);
                    continue;
                };
                match loaded.next()? {
                    Some(groups) => break batches(groups).into(),
                    None => self.loaded = None,
                }
            },
            Opened::Parts { table, of, context, next } => loop {
                let Some(part) = &mut self.part else {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= table.parts() {
                        return Ok(None);
                    }
                    let (known, rows) = match of {
                        PartRows::Probing { rows, .. } => match rows.take(n)? {
                            None => continue,
                            rows => (false, rows),
                        },
                        PartRows::Table(_) => (true, None),
                    };
                    let (table, memory) = table.load(n, context).await?;
                    self.part = Some(Part { table, known, rows, next: 0, _memory: memory });
                    continue;
                };
                match (of, &mut part.rows) {
                    (PartRows::Probing { registers, count, .. }, Some(rows)) => {
                        if let Some(batch) = rows.next().await.transpose()? {
                            let (columns, rows) = (batch.columns(), batch.num_rows());
                            break Batch::of_some(registers, columns, *count, rows).into();
                        }
                    }
                    (PartRows::Table(rows), _) if part.next < table_morsels(&part.table) => {
                        part.next += 1;
                        break table_rows(&part.table, *rows, part.next - 1).into();
                    }
                    _ => {}
                }
                let ended = self.part.take();
                self.part_before = ended.filter(|part| part.rows.is_some());
            },
            Opened::Own { source, sinks, count } => {
                let Some(n) = self.feed.shares.take(*count, self.worker) else { return Ok(None) };
                morsel(source, sinks, n).map_err(into_datafusion)?.into()
            }
        }))
    }
}

/// What the values of a source's registers must be for its rows to have matches in all the tables
/// that they must have one in.
fn hints(pipeline: &Pipeline, sinks: &[Option<Finished>]) -> Vec<Hint> {
    let mut hints = vec![];
    for step in &pipeline.steps {
        let Step::Probe(probe) = step else { continue };
        let Some(Finished::Table(built)) = &sinks[probe.sink] else { continue };
        if !probe.kind.needs_match() {
            continue;
        }
        for (i, key) in probe.keys.iter().enumerate() {
            if let Expr::Register(register, data_type) = key
                && *register < pipeline.types.len()
                && let Some((low, high)) = built.table.key_range(i)
                && let (Some(low), Some(high)) = (scalar(low, data_type), scalar(high, data_type))
            {
                let also = (probe.keys.len() == 1).then(|| {
                    let (key, table) = (Arc::new(Column::new("key", 0)), Arc::clone(built));
                    Arc::new(Found { key, table }) as Arc<dyn PhysicalExpr>
                });
                hints.push(Hint { output: *register, range: (low, high), also });
            }
        }
    }
    hints
}

/// The value that has this word (see `encoding::words`), where words are ordered as values are.
fn scalar(word: i64, data_type: &DataType) -> Option<ScalarValue> {
    use ScalarValue as S;
    Some(match data_type {
        DataType::Int8 => S::Int8(Some(word.try_into().ok()?)),
        DataType::Int16 => S::Int16(Some(word.try_into().ok()?)),
        DataType::Int32 => S::Int32(Some(word.try_into().ok()?)),
        DataType::Int64 => S::Int64(Some(word)),
        DataType::UInt8 => S::UInt8(Some(word.try_into().ok()?)),
        DataType::UInt16 => S::UInt16(Some(word.try_into().ok()?)),
        DataType::UInt32 => S::UInt32(Some(word.try_into().ok()?)),
        DataType::Date32 => S::Date32(Some(word.try_into().ok()?)),
        _ => return None,
    })
}

fn taken_in(batch: &RecordBatch) -> Batch {
    Batch::new(batch.columns().to_vec(), batch.num_rows())
}

#[cfg(test)]
mod tests {
    use std::iter;

    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::Int64Type;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use futures::executor::block_on;

    use super::*;

    /// One morsel, of the numbers from 0.
    fn feed(rows: usize, workers: usize) -> Arc<Feed> {
        let numbers = Arc::new(Int64Array::from_iter_values(0..rows as i64));
        let batch = RecordBatch::try_from_iter([("n", numbers as _)]).unwrap();
        let schema = batch.schema();
        let stream = RecordBatchStreamAdapter::new(schema, futures::stream::iter([Ok(batch)]));
        Feed::new(Opened::Streams { left: Mutex::new(vec![Box::pin(stream)]), count: 1 }, workers)
    }

    fn pull(puller: &mut Puller) -> Option<Vec<i64>> {
        let mut batch = block_on(puller.next()).unwrap()?;
        let Ok(column) = batch.column(0) else { panic!("it has one") };
        Some(column.as_primitive::<Int64Type>().values().to_vec())
    }

    #[test]
    fn who_has_nothing_left_takes_over_batches_of_the_others() {
        const ROWS: usize = 5 * BATCH_ROWS + 7;
        let feed = feed(ROWS, 3);
        let mut pullers: Vec<_> = (0..3).map(|n| Puller::new(Arc::clone(&feed), n)).collect();
        let mut seen = vec![pull(&mut pullers[0]).unwrap()];
        // Nothing comes of the source for these.
        let taken: Vec<_> = iter::from_fn(|| pull(&mut pullers[1])).take(3).collect();
        assert!(taken.iter().all(|batch| batch.len() == BATCH_ROWS));
        seen.extend(taken);
        seen.push(pull(&mut pullers[2]).unwrap());
        seen.extend(iter::from_fn(|| pull(&mut pullers[0])));
        assert!(pullers.iter_mut().all(|puller| pull(puller).is_none()));
        let mut seen = seen.concat();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..ROWS as i64), "each row once");
    }
}
