//! Splits rows by a hash of their join keys into files on disk, so that equal keys of both sides
//! meet in files of the same number.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::buffer::NullBuffer;
use arrow::compute::{concat_batches, take_record_batch};
use datafusion::common::Result;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::SpillManager;
use futures::StreamExt;

use super::build::Granted;
use crate::exec::spill_file::{Part, PartFiles};
use crate::runtime::checkpoint;

/// Multiplied by the depth it seeds the hash that splits: rows that one hash put together are to be
/// parted by the next. (2⁶⁴ over the golden ratio: such multiples differ in many bits.) DataFusion
/// hashes with other seeds, to repartition and in the join.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// How the rows of one side are split.
#[derive(Clone)]
pub struct Plan {
    pub keys: Vec<Arc<dyn PhysicalExpr>>,
    /// Rows with a NULL among their keys match nothing. They would all have the same hash, so they
    /// are dealt out in turn.
    pub null_matches_nothing: bool,
    pub parts: usize,
    /// How often the rows will then have been split.
    pub depth: usize,
    /// Bytes that wait to be written in long messages, per writer.
    pub buffer_bytes: usize,
}

/// Files being written; several writers may do so at a time.
pub struct Split {
    plan: Plan,
    manager: SpillManager,
    files: PartFiles,
}

impl Split {
    pub fn new(plan: Plan, manager: SpillManager) -> Result<Self> {
        let files = PartFiles::new(&manager, plan.parts, "HashJoinInput")?;
        Ok(Split { plan, manager, files })
    }

    /// Writes `collected`, whose memory `granted` has, and then what `rest` gives.
    pub async fn write(
        &self,
        collected: Vec<RecordBatch>,
        mut rest: SendableRecordBatchStream,
        granted: Option<&Granted>,
    ) -> Result<()> {
        let mut writer = Writer::new(self);
        let batches = collected.len();
        for (i, batch) in collected.into_iter().enumerate() {
            writer.push(batch).await?;
            if let Some(granted) = granted {
                let (reservation, left) = (granted.reservation(), batches - i);
                // Its share: others may wait for it.
                reservation.shrink(reservation.size() / left);
            }
        }
        while let Some(batch) = rest.next().await {
            writer.push(batch?).await?;
        }
        writer.flush().await
    }

    pub fn finish(self) -> Result<Vec<Part>> {
        self.files.finish()
    }
}

/// Rows on their way to files.
struct Writer<'a> {
    split: &'a Split,
    waiting: Vec<Vec<RecordBatch>>,
    waiting_bytes: usize,
    hashes: Vec<u64>,
    /// Part of the next row with a NULL key.
    turn: usize,
}

impl<'a> Writer<'a> {
    fn new(split: &'a Split) -> Self {
        Writer {
            split,
            waiting: vec![vec![]; split.plan.parts],
            waiting_bytes: 0,
            hashes: vec![],
            turn: 0,
        }
    }

    async fn push(&mut self, batch: RecordBatch) -> Result<()> {
        checkpoint().await;
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let (order, ends) = self.order(&batch)?;
        // The rows of each part side by side.
        let sorted = take_record_batch(&batch, &order)?;
        drop(batch);
        self.waiting_bytes += get_record_batch_memory_size(&sorted);
        let mut from = 0;
        for (waiting, to) in self.waiting.iter_mut().zip(ends) {
            if from < to {
                waiting.push(sorted.slice(from, to - from));
            }
            from = to;
        }
        drop(sorted);
        if self.waiting_bytes >= self.split.plan.buffer_bytes { self.flush().await } else { Ok(()) }
    }

    /// The rows of `batch` ordered by their part, and where each part ends.
    fn order(&mut self, batch: &RecordBatch) -> Result<(UInt32Array, Vec<usize>)> {
        let plan = &self.split.plan;
        let rows = batch.num_rows();
        let keys = plan.keys.iter().map(|key| key.evaluate(batch)?.into_array(rows));
        let keys: Vec<ArrayRef> = keys.collect::<Result<_>>()?;
        self.hashes.clear();
        self.hashes.resize(rows, 0);
        let state = RandomState::with_seed(SEED.wrapping_mul(plan.depth as u64));
        create_hashes(&keys, &state, &mut self.hashes)?;
        let part = self.hashes.iter_mut();
        part.for_each(|hash| *hash %= plan.parts as u64);
        if plan.null_matches_nothing {
            let nulls: Vec<_> = keys.iter().map(|key| key.logical_nulls()).collect();
            if let Some(valid) = NullBuffer::union_many(nulls.iter().map(Option::as_ref)) {
                for row in (0..rows).filter(|row| valid.is_null(*row)) {
                    self.hashes[row] = self.turn as u64;
                    self.turn = (self.turn + 1) % plan.parts;
                }
            }
        }
        // Counting sort.
        let mut next = vec![0; plan.parts];
        for part in &self.hashes {
            next[*part as usize] += 1;
        }
        let mut sum = 0;
        for slot in &mut next {
            sum += std::mem::replace(slot, sum);
        }
        let mut order = vec![0; rows];
        for (row, part) in self.hashes.iter().enumerate() {
            let slot = &mut next[*part as usize];
            order[*slot] = row as u32;
            *slot += 1;
        }
        Ok((order.into(), next))
    }

    async fn flush(&mut self) -> Result<()> {
        self.waiting_bytes = 0;
        for (part, waiting) in self.waiting.iter_mut().enumerate() {
            if waiting.is_empty() {
                continue;
            }
            let batch = concat_batches(self.split.manager.schema(), waiting.iter())?;
            waiting.clear();
            self.split.files.append(part, &batch)?;
            checkpoint().await;
        }
        Ok(())
    }
}
