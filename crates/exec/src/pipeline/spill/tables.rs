//! Tables of joins that memory was refused for, and the rows that are looked up in them, in files.
//!
//! Both are split by the same hash of the keys, so a row and its matches are in parts of the same
//! number (a Grace hash join). A part of the table is brought back into memory whenever somebody
//! works on it; which of its rows were matched stays in memory.

use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::SpillManager;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SpillMetrics};
use futures::StreamExt;
use parking_lot::Mutex;
use thalweg_pipeline::phases::Phases;
use thalweg_pipeline::table::{Building, Collected, Given, Spec, hashes};
use thalweg_pipeline::worker::{Asked, BuiltTable, Marks};

use super::{nullable, work_off};
use crate::spill_file::{Part, manager, read};
use crate::split::{Hashes, Split, Writer};
use thalweg_errors::into_datafusion;
use thalweg_runtime::checkpoint;

/// Files that each side of a join is split into: for each worker so many, as each has a part in
/// memory, within these bounds.
const PARTS_PER_WORKER: usize = 16;
const PARTS_MIN: usize = 64;
const PARTS_MAX: usize = 256;

/// What waits to be written to the files of one side may take this part of the memory there is, of
/// all workers together, within these bounds for each: reading back costs as much for a short message
/// as for one of 64 KiB.
const BUFFERS_PART: usize = 32;
const BUFFER_BYTES_MIN: usize = 256 << 10;
const BUFFER_BYTES_MAX: usize = 8 << 20;

/// The memory that a worker needs for each byte of a part's rows: these, the table with copies of
/// them, and that of the part before, which it lets go when this one is there.
const BYTES_PER_BYTE: usize = 4;

/// A table of which workers have given rows away.
pub struct Spilling {
    spec: Spec,
    marked: bool,
    spool: Spool,
}

impl Spilling {
    pub fn new(
        spec: &Spec,
        marked: bool,
        context: &TaskContext,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Self> {
        let parts = (workers(context) * PARTS_PER_WORKER).clamp(PARTS_MIN, PARTS_MAX);
        let types: Vec<_> = spec.key_types.iter().chain(&spec.payload_types).cloned().collect();
        let spool = Spool::new(spec, &types, 0, parts, context, metrics)?;
        Ok(Spilling { spec: spec.clone(), marked, spool })
    }

    pub async fn write(&self, rows: Given) -> Result<()> {
        let mut writer = Writer::new(&self.spool.split);
        for rows in rows {
            let rows = rows.map_err(into_datafusion)?;
            writer.push(self.spool.batch(rows.columns, rows.rows)?).await?;
        }
        writer.flush().await
    }

    /// When all rows are written; `None`: some part is too large.
    pub fn finish(self, context: &TaskContext) -> Result<Option<SpilledTable>> {
        if let MemoryLimit::Finite(limit) = context.memory_pool().memory_limit()
            && self.spool.split.bytes_max() > limit / workers(context) / BYTES_PER_BYTE
        {
            return Ok(None);
        }
        let Spool { split, manager, .. } = self.spool;
        let parts = split.finish()?;
        let marks = parts.iter().map(|_| OnceLock::new()).collect();
        let (spec, marked) = (self.spec, self.marked);
        Ok(Some(SpilledTable { spec, manager, parts, marked, marks, asked: Arc::default() }))
    }
}

fn workers(context: &TaskContext) -> usize {
    context.session_config().target_partitions().max(1)
}

/// All rows of a table, in files.
pub struct SpilledTable {
    spec: Spec,
    manager: SpillManager,
    parts: Vec<Part>,
    /// A probe marks its rows.
    marked: bool,
    marks: Vec<OnceLock<Marks>>,
    asked: Arc<Asked>,
}

impl SpilledTable {
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Files for rows that are to be looked up in it: keys, which are not written, and then values,
    /// all of these types.
    pub fn spool(
        &self,
        types: &[DataType],
        context: &TaskContext,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Spool> {
        Spool::new(&self.spec, types, self.spec.key_types.len(), self.parts(), context, metrics)
    }

    /// Brings a part back into memory, with what was found out by probing it before.
    pub async fn load(
        &self,
        part: usize,
        context: &TaskContext,
    ) -> Result<(Arc<BuiltTable>, MemoryReservation)> {
        let memory = MemoryConsumer::new("PipelineExec").with_can_spill(true);
        let memory = memory.register(context.memory_pool());
        let mut collected = Collected::new(&self.spec);
        let mut batches = read(&self.manager, self.parts[part].clone())?;
        while let Some(batch) = batches.next().await {
            let batch = batch?;
            let (keys, payload) = batch.columns().split_at(self.spec.key_types.len());
            collected.push(keys, payload, batch.num_rows()).map_err(into_datafusion)?;
            // It cannot be had in a smaller piece.
            memory.resize(collected.memory_bytes());
            checkpoint().await;
        }
        let building =
            Building::new(self.spec.clone(), vec![collected]).map_err(into_datafusion)?;
        memory.grow(building.memory_bytes_needed());
        work_off(&building).await?;
        let table = building.finish().map_err(into_datafusion)?;
        memory.resize(table.memory_bytes());
        let rows = if self.marked { table.rows() } else { 0 };
        // A row has the same number each time: files are read in the order in which they were written.
        let marks = self.marks[part].get_or_init(|| Marks::new(rows, Arc::clone(&self.asked)));
        let built = BuiltTable::with_marks(table, self.spec.payload_types.len(), marks.clone());
        Ok((Arc::new(built), memory))
    }
}

/// Rows on their way to files.
pub struct Spool {
    split: Arc<Split>,
    manager: SpillManager,
    schema: SchemaRef,
}

impl Spool {
    /// Of the columns of these types the first, which are as many as the keys, are hashed; but the
    /// first `unwritten` are not written.
    fn new(
        spec: &Spec,
        types: &[DataType],
        unwritten: usize,
        parts: usize,
        context: &TaskContext,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Self> {
        let spills = SpillMetrics::new(metrics, 0);
        let manager = manager(nullable(&types[unwritten..]), context, spills);
        let spec = spec.clone();
        let hashes: Hashes = Box::new(move |batch: &RecordBatch| {
            let keys = &batch.columns()[..spec.key_types.len()];
            hashes(&spec, keys, batch.num_rows()).map_err(into_datafusion)
        });
        let buffer_bytes = match context.memory_pool().memory_limit() {
            MemoryLimit::Finite(limit) => limit / BUFFERS_PART / workers(context),
            _ => BUFFER_BYTES_MAX,
        };
        let buffer_bytes = buffer_bytes.clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX);
        let split = Split::new(hashes, parts, buffer_bytes, manager.clone())?;
        Ok(Spool { split: Arc::new(split), manager, schema: nullable(types) })
    }

    pub fn writer(&self) -> Writer {
        Writer::new(&self.split)
    }

    pub fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }

    /// When all rows are written.
    pub fn finish(self) -> Result<Rows> {
        let parts = self.split.finish()?.into_iter().map(Mutex::new).collect();
        Ok(Rows { manager: self.manager, parts })
    }
}

/// Rows to be looked up, in files, part by part.
pub struct Rows {
    manager: SpillManager,
    parts: Vec<Mutex<Part>>,
}

impl Rows {
    /// Those of a part, once; `None`: there are none.
    pub fn take(&self, part: usize) -> Result<Option<SendableRecordBatchStream>> {
        let part = self.parts[part].lock().take();
        part.map(|part| read(&self.manager, Some(part))).transpose()
    }
}
