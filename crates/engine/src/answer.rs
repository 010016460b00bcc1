//! What a statement gives back: rows as they come, or the word that it is done.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use thalweg_base::{QueryId, Result};
use tokio::sync::{mpsc, oneshot};

use thalweg_base::Notice;
use thalweg_runtime::Cancel;

use crate::running::{Job, lost};

/// What kind of statement it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tag {
    /// A result with columns, perhaps of no row.
    Rows,
    /// A statement that changes the catalog or a setting: `CREATE TABLE`, `SET`, …
    Done(String),
    /// Rows added or written: `INSERT`, `COPY`.
    Count(String, u64),
}

/// The head of an answer, sent once the statement is planned (or done).
pub(crate) struct Head {
    pub schema: SchemaRef,
    pub tag: Tag,
    pub notices: Vec<Notice>,
}

/// One item of an answer: `None` is its proper end, without which it was cut off.
pub(crate) type Item = Option<Result<RecordBatch>>;

/// A stream of batches. Dropping it stops the query.
pub struct Answer {
    pub schema: SchemaRef,
    pub tag: Tag,
    /// What the client is told beside, before the rows.
    pub notices: Vec<Notice>,
    query: QueryId,
    /// `None`: it has ended.
    coming: Option<Coming>,
}

struct Coming {
    job: Arc<Job>,
    rows: mpsc::Receiver<Item>,
    cancelled: BoxFuture<'static, Cancel>,
}

impl Answer {
    pub(crate) async fn receive(
        job: Arc<Job>,
        head: oneshot::Receiver<Result<Head>>,
        rows: mpsc::Receiver<Item>,
    ) -> Result<Answer> {
        let mut cancelled = Arc::clone(&job.run).until_cancelled().boxed();
        let head = tokio::select! {
            biased;
            head = head => head,
            why = &mut cancelled => return Err(why.error()),
        };
        match head {
            Ok(Ok(Head { schema, tag, notices })) => {
                let query = job.run.id();
                let coming = Some(Coming { job, rows, cancelled });
                Ok(Answer { schema, tag, notices, query, coming })
            }
            Ok(Err(e)) => Err(job.run.cancelled().map_or(e, Cancel::error)),
            Err(_) => Err(job.run.cancelled().map_or_else(lost, Cancel::error)),
        }
    }

    pub fn query(&self) -> QueryId {
        self.query
    }

    /// All rows at once.
    pub async fn collect(mut self) -> Result<Vec<RecordBatch>> {
        let mut batches = vec![];
        while let Some(batch) = self.next().await {
            batches.push(batch?);
        }
        Ok(batches)
    }
}

impl Stream for Answer {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(coming) = &mut self.coming else { return Poll::Ready(None) };
        let received = match coming.rows.poll_recv(cx) {
            Poll::Ready(received) => received,
            Poll::Pending => match coming.cancelled.poll_unpin(cx) {
                Poll::Ready(_) => None,
                Poll::Pending => return Poll::Pending,
            },
        };
        let item = match received {
            Some(Some(Ok(batch))) => return Poll::Ready(Some(Ok(batch))),
            Some(Some(Err(e))) => Some(Err(coming.job.run.cancelled().map_or(e, Cancel::error))),
            Some(None) => None,
            None => Some(Err(coming.job.run.cancelled().map_or_else(lost, Cancel::error))),
        };
        self.coming = None;
        Poll::Ready(item)
    }
}

pub(crate) fn no_columns() -> SchemaRef {
    Arc::new(Schema::empty())
}
