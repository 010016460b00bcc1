//! One partition's share of a scan: chunk by chunk, and as a stream of batches.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{BatchCoalescer, interleave, take};
use arrow::datatypes::{DataType, FieldRef, SchemaRef, UInt64Type};
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder,
};
use thalweg_base::limits::{BATCH_ROWS, CHUNK_ROWS_MAX};
use thalweg_pipeline::encoding::value_bytes;
use thalweg_pipeline::select::Selection;
use thalweg_storage::{ChunkRef, Segment, expand};

use super::{ScanExec, Source, filters};
use crate::column::Column;
use crate::filter::Conjunct;
use crate::loading::{Ahead, CHUNKS_AHEAD, Coming, Early};
use crate::prune::{Cause, Filter, Next, Pruned, ReadOrder, Skipper};
use thalweg_errors::into_datafusion;
use thalweg_runtime::{Run, blocking, checkpoint};

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
    ahead: Arc<Ahead>,
    /// Columns of the last chunk that had to be read from a disk, or would have had to be.
    last_read: Vec<usize>,
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

impl Reader {
    pub(super) fn new(scan: &ScanExec, partition: usize) -> Self {
        Reader {
            source: scan.source.clone(),
            projection: scan.projection.clone(),
            columns_read: scan.columns_read(),
            conjuncts: scan.conjuncts.clone(),
            hints: scan.hints.clone(),
            order: scan.order,
            skipper: Arc::clone(&scan.skipper),
            ahead: Arc::clone(&scan.ahead),
            last_read: Vec::new(),
            metrics: Metrics::new(&scan.metrics, partition),
            bytes_touched: 0,
        }
    }

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
        let coming = self.ahead.take(&chunk);
        let ahead = coming.is_some();
        let mut columns = Columns { coming, ahead, ..Columns::new(chunk) };
        self.read_ahead();
        for conjunct in self.in_order() {
            self.load(&mut columns, &conjunct.columns).await?;
            // Of the rows that are left, as if all had the same length.
            self.bytes_touched += columns.bytes_uncounted(None) * selection.len() / rows.max(1);
            let needed: Vec<_> = conjunct.columns.iter().map(|c| columns.get(*c)).collect();
            let time = self.metrics.base.elapsed_compute();
            conjunct.narrow(&mut selection, &needed, time).await?;
            if selection.is_empty() {
                self.last_read = columns.read;
                return Ok(None);
            }
            checkpoint().await;
        }
        let projection = self.projection.clone();
        self.load(&mut columns, &projection).await?;
        self.last_read = std::mem::take(&mut columns.read);
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
            let mut columns = Columns::new(contents.chunk(chunk));
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
            let hint = |expr: &Arc<_>| Filter { expr: Arc::clone(expr), dynamic: true };
            let filters = filters(&self.conjuncts).chain(self.hints.iter().map(hint));
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

    /// The predicates worth evaluating: those of the statement, first what cannot fail, then the dynamic
    /// ones, the most selective so far first.
    fn in_order(&self) -> Vec<Arc<Conjunct>> {
        let mut order: Vec<_> = self.conjuncts.iter().filter(|c| c.worthwhile()).cloned().collect();
        let rank = |c: &Conjunct| match (c.dynamic, c.may_fail) {
            (true, _) => c.pass_share(),
            (false, true) => -0.5,
            (false, false) => -1.0,
        };
        order.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
        order
    }

    /// Whether its rows narrow its own filters: the sooner a top-k has seen the few that are left of a
    /// chunk, the fewer chunks and rows are looked at after it.
    fn feeds_top_k(&self) -> bool {
        self.conjuncts.iter().any(|c| c.dynamic && Cause::of(&c.expr) == Cause::TopK)
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
        let mut segments = columns.come_early(&missing).await;
        columns.read.extend(segments.iter().map(|(column, _)| *column));
        missing.retain(|column| segments.iter().all(|(early, _)| early != column));
        if !missing.is_empty() {
            // To copy what is in memory takes no longer than to have another thread do it. What was
            // read ahead was not, and may be on its way.
            let at_once = match columns.ahead {
                true => None,
                false => database.read_at_once(&columns.chunk, &missing),
            };
            let read = match at_once {
                Some(read) => read,
                None => {
                    columns.read.extend_from_slice(&missing);
                    loading.read(database, &columns.chunk, &missing).await?
                }
            };
            segments.extend(missing.into_iter().zip(read));
        }
        for (column, segment) in segments {
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

    /// What had to be read of the last chunk will have to be of this one and those after it: theirs is
    /// on its way while this one is read and decoded.
    fn read_ahead(&self) {
        if self.last_read.is_empty() {
            return;
        }
        let Source { database, loading, .. } = &self.source;
        let mut chunks = self.skipper.get().map_or(vec![], |s| s.upcoming(CHUNKS_AHEAD));
        chunks.retain(|chunk| !database.is_in_memory(chunk, &self.last_read));
        if chunks.is_empty() {
            return;
        }
        self.ahead.begin(loading, database, chunks, &self.last_read);
    }
}

/// The decoded columns of the chunk in hand. A handful: a list beats a map.
struct Columns {
    chunk: ChunkRef,
    loaded: Vec<(usize, Column)>,
    /// The first so many are in the bytes that were touched.
    counted: usize,
    /// Those that were neither in the cache nor in memory before they were read ahead.
    read: Vec<usize>,
    /// Whether something was read ahead.
    ahead: bool,
    coming: Option<Coming>,
    early: Option<Early>,
}

impl Columns {
    fn new(chunk: ChunkRef) -> Self {
        Columns {
            chunk,
            loaded: Vec::new(),
            counted: 0,
            read: Vec::new(),
            ahead: false,
            coming: None,
            early: None,
        }
    }

    /// Those of the wanted that were read ahead.
    async fn come_early(&mut self, wanted: &[usize]) -> Vec<(usize, Segment)> {
        if let Some(coming) = self.coming.take() {
            // If that failed, they are read now, which says why.
            self.early = coming.await.ok();
        }
        let segments = self.early.iter().flat_map(|early| &early.segments);
        segments.filter(|(column, _)| wanted.contains(column)).cloned().collect()
    }

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

/// Batches in plain.
pub(super) struct Stream {
    reader: Reader,
    schema: SchemaRef,
    coalescer: BatchCoalescer,
    fetch: Option<usize>,
    /// A chunk's surviving rows that are handed out batch by batch.
    ready: Option<Survivors>,
}

impl Stream {
    pub fn new(scan: &ScanExec, partition: usize, schema: SchemaRef) -> Self {
        Stream {
            reader: Reader::new(scan, partition),
            coalescer: BatchCoalescer::new(Arc::clone(&schema), BATCH_ROWS)
                .with_biggest_coalesce_batch_size(Some(BATCH_ROWS / 4)),
            schema,
            fetch: scan.fetch,
            ready: None,
        }
    }

    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
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
                Some(morsel) => {
                    self.take_in(morsel)?;
                    if self.reader.feeds_top_k() {
                        self.coalescer.finish_buffered_batch()?;
                    }
                }
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
