//! The rows of a query, kept for those that wait for them.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use thalweg_base::limits::SHARED_RESULT_BYTES_MAX;

/// They count as memory of queries until the last who wants them is done.
pub struct Kept {
    pub schema: SchemaRef,
    pub batches: Vec<RecordBatch>,
    memory: MemoryReservation,
}

impl Kept {
    pub fn new(schema: SchemaRef, pool: &Arc<dyn MemoryPool>) -> Self {
        // Refused, it keeps none: so it may not take what is there for those who cannot do without.
        let memory = MemoryConsumer::new("rows for identical queries").with_can_spill(true);
        let memory = memory.register(pool);
        Kept { schema, batches: vec![], memory }
    }

    /// False if there is no room for it.
    pub fn push(&mut self, batch: &RecordBatch) -> bool {
        let bytes = get_record_batch_memory_size(batch);
        let fits = self.memory.size() + bytes <= SHARED_RESULT_BYTES_MAX
            && self.memory.try_grow(bytes).is_ok();
        if fits {
            self.batches.push(batch.clone());
        }
        fits
    }
}
