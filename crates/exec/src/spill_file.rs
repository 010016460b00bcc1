//! Files that operators of ours spill to, and the memory before they do: one file for each part of
//! what is split.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::{SendableRecordBatchStream, SpillFile, TaskContext};
use datafusion::physical_plan::metrics::SpillMetrics;
use datafusion::physical_plan::{EmptyRecordBatchStream, SpillManager};
use parking_lot::Mutex;

use thalweg_runtime::Run;

/// Writes files of rows of `schema`, and reads them.
pub fn manager(schema: SchemaRef, context: &TaskContext, metrics: SpillMetrics) -> SpillManager {
    SpillManager::new(context.runtime_env(), metrics, schema)
        .with_compression_type(context.session_config().spill_compression())
}

/// Whether `bytes` more are granted.
pub async fn reserve(reservation: &MemoryReservation, bytes: usize) -> Result<bool> {
    if let Some(run) = Run::current() {
        return Ok(run.reserve(reservation, bytes).await);
    }
    match reservation.try_grow(bytes) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.find_root(), DataFusionError::ResourcesExhausted(_)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// The rows of one part; `None`: there are none.
pub type Part = Option<Arc<dyn SpillFile>>;

/// Appends a batch to a file, or closes it. (DataFusion gives the file's type no name.)
type File = Box<dyn FnMut(Option<&RecordBatch>) -> Result<Written> + Send>;

enum Written {
    Bytes(usize),
    Closed(Part),
}

/// Files being written; several writers may do so at a time. A part to which nobody writes has none.
pub struct PartFiles(Vec<Mutex<Writing>>);

struct Writing {
    file: File,
    /// Of memory, that the rows took so far.
    bytes: usize,
}

impl PartFiles {
    /// `what` is in them, for people who look at the folder.
    pub fn new(manager: &SpillManager, parts: usize, what: &str) -> Result<Self> {
        let create = |_| {
            let mut file = manager.create_in_progress_file(what)?;
            let append = move |batch: Option<&RecordBatch>| match batch {
                Some(batch) => file.append_batch(batch).map(Written::Bytes),
                None => file.finish().map(Written::Closed),
            };
            Ok(Mutex::new(Writing { file: Box::new(append), bytes: 0 }))
        };
        Ok(PartFiles((0..parts).map(create).collect::<Result<_>>()?))
    }

    pub fn append(&self, part: usize, batch: &RecordBatch) -> Result<()> {
        let mut writing = self.0[part].lock();
        if let Written::Bytes(bytes) = (writing.file)(Some(batch))? {
            writing.bytes += bytes;
        }
        Ok(())
    }

    /// The memory that the rows of the largest part took so far.
    pub fn bytes_max(&self) -> usize {
        self.0.iter().map(|writing| writing.lock().bytes).max().unwrap_or(0)
    }

    pub fn finish(self) -> Result<Vec<Part>> {
        let close = |writing: Mutex<Writing>| match (writing.into_inner().file)(None)? {
            Written::Closed(part) => Ok(part),
            Written::Bytes(_) => Ok(None),
        };
        self.0.into_iter().map(close).collect()
    }
}

pub fn read(manager: &SpillManager, part: Part) -> Result<SendableRecordBatchStream> {
    match part {
        Some(file) => manager.read_spill_as_stream(file, None),
        None => Ok(Box::pin(EmptyRecordBatchStream::new(Arc::clone(manager.schema())))),
    }
}
