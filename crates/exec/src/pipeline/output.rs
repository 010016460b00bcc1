//! Where the rows of a worker go that its sink does not keep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::BatchCoalescer;
use arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use thalweg_base::Error;
use thalweg_base::limits::BATCH_ROWS;
use tokio::sync::mpsc;

use super::spill::Spool;
use crate::compiled::SubqueryValue;
use crate::split::Writer;
use thalweg_errors::into_datafusion;

/// Why pipelines came to no end.
pub enum Stop {
    /// Memory was refused.
    Refused,
    /// Nobody wants the rows any more.
    Unwanted,
    Failed(DataFusionError),
}

impl From<DataFusionError> for Stop {
    fn from(e: DataFusionError) -> Self {
        Stop::Failed(e)
    }
}

impl From<Error> for Stop {
    fn from(e: Error) -> Self {
        Stop::Failed(into_datafusion(e))
    }
}

pub type Sender = mpsc::Sender<Result<RecordBatch>>;

pub enum Output {
    Client(Client),
    /// They are to be looked up in a table that is in files itself.
    Files(Arc<Spool>, Writer),
    /// The only row.
    Value(SubqueryValue),
}

/// To one output, and if nobody reads that any more, to another.
pub struct Client {
    schema: SchemaRef,
    senders: Vec<Sender>,
    own: usize,
    coalescer: BatchCoalescer,
}

impl Output {
    /// `handed_out` becomes true when a client is given rows.
    pub async fn push(
        &mut self,
        columns: Vec<ArrayRef>,
        rows: usize,
        handed_out: &AtomicBool,
    ) -> Result<(), Stop> {
        match self {
            Output::Client(client) => {
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                let schema = Arc::clone(&client.schema);
                let batch = RecordBatch::try_new_with_options(schema, columns, &options);
                let pushed = batch.and_then(|batch| client.coalescer.push_batch(batch));
                pushed.map_err(DataFusionError::from)?;
                client.send_completed(handed_out).await
            }
            Output::Files(spool, writer) => Ok(writer.push(spool.batch(columns, rows)?).await?),
            Output::Value(value) => Ok(value.set(&columns[0], rows)?),
        }
    }

    /// No more rows come.
    pub async fn finish(&mut self, handed_out: &AtomicBool) -> Result<(), Stop> {
        match self {
            Output::Client(client) => {
                client.coalescer.finish_buffered_batch().map_err(DataFusionError::from)?;
                client.send_completed(handed_out).await
            }
            Output::Files(_, writer) => Ok(writer.flush().await?),
            Output::Value(_) => Ok(()),
        }
    }
}

impl Client {
    pub fn new(schema: &SchemaRef, senders: Vec<Sender>, own: usize) -> Self {
        let coalescer = BatchCoalescer::new(Arc::clone(schema), BATCH_ROWS)
            .with_biggest_coalesce_batch_size(Some(BATCH_ROWS / 4));
        Client { schema: Arc::clone(schema), senders, own, coalescer }
    }

    async fn send_completed(&mut self, handed_out: &AtomicBool) -> Result<(), Stop> {
        while let Some(batch) = self.coalescer.next_completed_batch() {
            handed_out.store(true, Relaxed);
            self.send(batch).await?;
        }
        Ok(())
    }

    async fn send(&mut self, batch: RecordBatch) -> Result<(), Stop> {
        for _ in 0..self.senders.len() {
            if self.senders[self.own].send(Ok(batch.clone())).await.is_ok() {
                return Ok(());
            }
            self.own = (self.own + 1) % self.senders.len();
        }
        Err(Stop::Unwanted)
    }
}
