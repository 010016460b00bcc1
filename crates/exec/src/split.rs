//! Splits rows by a hash of their join keys into files on disk, so that equal keys of both sides
//! meet in files of the same number.

use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::common::{Result, internal_err};
use datafusion::physical_plan::SpillManager;

use super::spill_file::{Part, PartFiles};
use thalweg_runtime::checkpoint;

/// For each row of a batch a hash of its keys. `None`: it matches nothing; such rows would all have
/// the same hash, so they are dealt out in turn.
pub type Hashes = Box<dyn Fn(&RecordBatch) -> Result<Vec<Option<u64>>> + Send + Sync>;

/// Files being written; several writers may do so at a time.
pub struct Split {
    hashes: Hashes,
    parts: usize,
    /// That wait to be written in long messages, per writer.
    buffer_bytes: usize,
    /// Has the schema of what is written.
    manager: SpillManager,
    files: PartFiles,
}

impl Split {
    pub fn new(
        hashes: Hashes,
        parts: usize,
        buffer_bytes: usize,
        manager: SpillManager,
    ) -> Result<Self> {
        let files = PartFiles::new(&manager, parts, "HashJoinInput")?;
        Ok(Split { hashes, parts, buffer_bytes, manager, files })
    }

    /// The memory that the rows of the largest part took so far.
    pub fn bytes_max(&self) -> usize {
        self.files.bytes_max()
    }

    /// When all rows are written, and no writer is left.
    pub fn finish(self: Arc<Self>) -> Result<Vec<Part>> {
        match Arc::into_inner(self) {
            Some(split) => split.files.finish(),
            None => internal_err!("a task that has ended still writes"),
        }
    }
}

/// Rows on their way to files.
pub struct Writer {
    split: Arc<Split>,
    waiting: Vec<Vec<RecordBatch>>,
    waiting_bytes: usize,
    /// Part of the next row that matches nothing.
    turn: usize,
}

impl Writer {
    pub fn new(split: &Arc<Split>) -> Self {
        let waiting = vec![vec![]; split.parts];
        Writer { split: Arc::clone(split), waiting, waiting_bytes: 0, turn: 0 }
    }

    /// Columns before those that are written are only hashed.
    pub async fn push(&mut self, batch: RecordBatch) -> Result<()> {
        checkpoint().await;
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let (order, ends) = self.order(&batch)?;
        let written = self.split.manager.schema().fields().len();
        let all = batch.num_columns();
        let batch = batch.project(&(all - written..all).collect::<Vec<_>>())?;
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
        if self.waiting_bytes >= self.split.buffer_bytes { self.flush().await } else { Ok(()) }
    }

    /// The rows of `batch` ordered by their part, and where each part ends.
    fn order(&mut self, batch: &RecordBatch) -> Result<(UInt32Array, Vec<usize>)> {
        let parts = self.split.parts;
        let part = |hash| match hash {
            Some(hash) => (hash % parts as u64) as usize,
            None => {
                self.turn = (self.turn + 1) % parts;
                self.turn
            }
        };
        let of_rows: Vec<usize> = (self.split.hashes)(batch)?.into_iter().map(part).collect();
        // Counting sort.
        let mut next = vec![0; parts];
        for part in &of_rows {
            next[*part] += 1;
        }
        let mut sum = 0;
        for slot in &mut next {
            sum += std::mem::replace(slot, sum);
        }
        let mut order = vec![0; of_rows.len()];
        for (row, part) in of_rows.iter().enumerate() {
            let slot = &mut next[*part];
            order[*slot] = row as u32;
            *slot += 1;
        }
        Ok((order.into(), next))
    }

    /// Writes all that waits.
    pub async fn flush(&mut self) -> Result<()> {
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
