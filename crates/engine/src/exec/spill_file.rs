//! Files that operators of ours spill to: one for each part of what is split.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, SpillFile};
use datafusion::physical_plan::{EmptyRecordBatchStream, SpillManager};
use parking_lot::Mutex;

/// The rows of one part; `None`: there are none.
pub type Part = Option<Arc<dyn SpillFile>>;

/// Appends a batch to a file, or closes it. (DataFusion gives the file's type no name.)
type File = Box<dyn FnMut(Option<&RecordBatch>) -> Result<Part> + Send>;

/// Files being written; several writers may do so at a time. A part to which nobody writes has none.
pub struct PartFiles(Vec<Mutex<File>>);

impl PartFiles {
    /// `what` is in them, for people who look at the folder.
    pub fn new(manager: &SpillManager, parts: usize, what: &str) -> Result<Self> {
        let create = |_| {
            let mut file = manager.create_in_progress_file(what)?;
            let append = move |batch: Option<&RecordBatch>| match batch {
                Some(batch) => file.append_batch(batch).map(|_| None),
                None => file.finish(),
            };
            Ok(Mutex::new(Box::new(append) as File))
        };
        Ok(PartFiles((0..parts).map(create).collect::<Result<_>>()?))
    }

    pub fn append(&self, part: usize, batch: &RecordBatch) -> Result<()> {
        (*self.0[part].lock())(Some(batch)).map(|_| ())
    }

    pub fn finish(self) -> Result<Vec<Part>> {
        self.0.into_iter().map(|file| (file.into_inner())(None)).collect()
    }
}

pub fn read(manager: &SpillManager, part: Part) -> Result<SendableRecordBatchStream> {
    match part {
        Some(file) => manager.read_spill_as_stream(file, None),
        None => Ok(Box::pin(EmptyRecordBatchStream::new(Arc::clone(manager.schema())))),
    }
}
