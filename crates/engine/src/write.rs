//! Encoding rows into extents with several writers at once, each a task under the scheduler.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result as DfResult;
use datafusion::common::runtime::JoinSet;
use thalweg_base::{Error, Result};
use thalweg_storage::{Database, ExtentWriter, Layout, NewExtent};
use tokio::sync::mpsc;

use thalweg_errors::{from_datafusion, into_datafusion};
use thalweg_runtime::{blocking, checkpoint};

/// What is to be written, and how.
#[derive(Clone)]
pub struct Target {
    pub database: Database,
    pub layout: Layout,
}

impl Target {
    pub fn writer(&self) -> ExtentWriter {
        self.database.extent_writer(self.layout.clone())
    }
}

/// Takes one batch into `writer` and encodes what is complete, giving way between columns.
pub async fn push(writer: &mut ExtentWriter, batch: &RecordBatch) -> DfResult<()> {
    writer.push(batch).map_err(into_datafusion)?;
    while writer.step().map_err(into_datafusion)? {
        checkpoint().await;
    }
    Ok(())
}

/// Encodes the rest and makes the extents durable; the disk is waited for without a slot.
pub async fn finish(mut writer: ExtentWriter) -> DfResult<Vec<NewExtent>> {
    writer.flush().map_err(into_datafusion)?;
    while writer.step().map_err(into_datafusion)? {
        checkpoint().await;
    }
    blocking(move || writer.finish()).await
}

/// Writers fed by one producer. The second starts only when the first has a chunk's worth, so a
/// small insert makes one small extent and not several tiny ones.
pub struct Writers {
    target: Target,
    most: usize,
    rows: u64,
    queue: Option<mpsc::Sender<RecordBatch>>,
    shared: Arc<tokio::sync::Mutex<mpsc::Receiver<RecordBatch>>>,
    tasks: JoinSet<DfResult<Vec<NewExtent>>>,
}

/// Batches that wait between the producer and the writers.
const QUEUE_BATCHES_MAX: usize = 16;

impl Writers {
    pub fn new(target: Target, most: usize) -> Self {
        let (queue, receiver) = mpsc::channel(QUEUE_BATCHES_MAX);
        Writers {
            target,
            most: most.max(1),
            rows: 0,
            queue: Some(queue),
            shared: Arc::new(tokio::sync::Mutex::new(receiver)),
            tasks: JoinSet::new(),
        }
    }

    pub async fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let chunk_rows = thalweg_base::limits::CHUNK_ROWS_MAX as u64;
        if self.tasks.len() < self.most && self.rows >= self.tasks.len() as u64 * chunk_rows {
            let mut writer = self.target.writer();
            let shared = Arc::clone(&self.shared);
            self.tasks.spawn(async move {
                loop {
                    let batch = shared.lock().await.recv().await;
                    match batch {
                        Some(batch) => push(&mut writer, &batch).await?,
                        None => return finish(writer).await,
                    }
                }
            });
        }
        self.rows += batch.num_rows() as u64;
        let queue = self.queue.as_ref().expect("open until finish");
        match queue.send(batch).await {
            Ok(()) => Ok(()),
            // All writers are gone: one of them has the reason.
            Err(_) => Err(self.failure().await),
        }
    }

    async fn failure(&mut self) -> Error {
        while let Some(joined) = self.tasks.join_next().await {
            match joined {
                Ok(Err(e)) => return from_datafusion(e),
                Err(e) => return Error::internal(format!("a writer failed: {e}")),
                Ok(Ok(_)) => {}
            }
        }
        Error::internal("all writers ended early")
    }

    /// The finished extents, durable but not yet part of any table, and their rows.
    pub async fn finish(mut self) -> Result<(Vec<NewExtent>, u64)> {
        self.queue = None;
        // A writer that fails alone leaves the others running; they end when the queue does.
        let mut extents = vec![];
        while let Some(joined) = self.tasks.join_next().await {
            let done = joined.map_err(|e| Error::internal(format!("a writer failed: {e}")))?;
            extents.extend(done.map_err(from_datafusion)?);
        }
        Ok((extents, self.rows))
    }
}
