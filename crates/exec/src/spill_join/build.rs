//! Collects the build side of a join for as long as there is memory for it, and accounts for it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::common::utils::memory::{RecordBatchMemoryCounter, estimate_memory_size};
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures::StreamExt;
use parking_lot::Mutex;

use crate::spill_file::reserve;
use thalweg_runtime::checkpoint;

pub enum Collected {
    /// All rows: there is memory for them and for their hash table.
    All(Vec<RecordBatch>),
    /// What had been read when memory was refused; the rest is still to be read.
    Some(Vec<RecordBatch>),
}

/// Reads `input` into memory reserved in `reservation`. Up to `free_bytes` are taken without asking.
pub async fn collect(
    input: &mut SendableRecordBatchStream,
    reservation: &MemoryReservation,
    free_bytes: usize,
) -> Result<Collected> {
    // Batches are often slices of the same buffers; each counts once.
    let mut counter = RecordBatchMemoryCounter::new();
    let (mut batches, mut rows) = (vec![], 0);
    while let Some(batch) = input.next().await {
        let batch = batch?;
        checkpoint().await;
        if batch.num_rows() == 0 {
            continue;
        }
        counter.count_batch(&batch);
        rows += batch.num_rows();
        batches.push(batch);
        let needed = counter.memory_usage() + table_bytes(rows)?;
        let more = needed.saturating_sub(reservation.size());
        if needed <= free_bytes {
            reservation.grow(more);
        } else if more > 0 && !reserve(reservation, more).await? {
            return Ok(Collected::Some(batches));
        }
    }
    Ok(Collected::All(batches))
}

/// What DataFusion's hash table over `rows` rows takes: hashes with the rows' numbers, the chains
/// of rows of equal hash, and which rows were matched.
fn table_bytes(rows: usize) -> Result<usize> {
    let (table, chains) = if rows > u32::MAX as usize {
        (estimate_memory_size::<(u64, u64)>(rows, 0)?, rows * size_of::<u64>())
    } else {
        (estimate_memory_size::<(u32, u64)>(rows, 0)?, rows * size_of::<u32>())
    };
    Ok(table + chains + rows.div_ceil(8))
}

/// The memory pool of the join that gets a collected build side: what was reserved for it is
/// there, and what it takes beyond that cannot be refused any more.
#[derive(Debug)]
pub struct Granted {
    reservation: MemoryReservation,
    /// By the join. Locked while the reservation changes with it.
    used: Mutex<usize>,
}

impl Granted {
    pub fn new(context: &TaskContext) -> Arc<Self> {
        let consumer = MemoryConsumer::new("HashJoinInput").with_can_spill(true);
        let reservation = consumer.register(context.memory_pool());
        Arc::new(Granted { reservation, used: Mutex::new(0) })
    }

    pub fn reservation(&self) -> &MemoryReservation {
        &self.reservation
    }

    /// `outer`, but memory comes from here.
    pub fn context(self: &Arc<Self>, outer: &TaskContext) -> Arc<TaskContext> {
        let runtime = outer.runtime_env();
        let runtime = RuntimeEnv { memory_pool: Arc::clone(self) as _, ..(*runtime).clone() };
        Arc::new(TaskContext::new(
            outer.task_id(),
            outer.session_id(),
            outer.session_config().clone(),
            // A join's expressions hold their functions.
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            Arc::new(runtime),
        ))
    }

    /// Gives back what was reserved and is not used: the join has built its table, or will not.
    pub fn settle(&self) {
        let used = self.used.lock();
        self.reservation.resize(*used);
    }
}

impl fmt::Display for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("granted")
    }
}

impl MemoryPool for Granted {
    fn name(&self) -> &str {
        "granted"
    }

    fn grow(&self, _: &MemoryReservation, additional: usize) {
        let mut used = self.used.lock();
        *used += additional;
        self.reservation.resize(self.reservation.size().max(*used));
    }

    fn shrink(&self, _: &MemoryReservation, shrink: usize) {
        let mut used = self.used.lock();
        *used -= shrink;
        self.reservation.resize(*used);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.grow(reservation, additional);
        Ok(())
    }

    fn reserved(&self) -> usize {
        *self.used.lock()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Unknown
    }
}
