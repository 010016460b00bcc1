//! The rows of a statement on their way to the client: its own, or those of another query that
//! computes the same.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt;
use futures::future::try_join;
use thalweg_base::{Error, Result};
use tokio::sync::{mpsc, oneshot};

use thalweg_base::Notice;
use thalweg_errors::from_datafusion;
use thalweg_runtime::{Run, checkpoint};

use crate::answer::{Head, Item, Tag};
use crate::share::{Flights, Kept, Key, Landed, Leader, Part};
use crate::statement;
use crate::titles::Titles;
use crate::transaction::Reading;

/// Rows of whole statements.
/// Where the rows go.
pub(crate) struct Client<'a> {
    /// `None` once the head is sent.
    pub started: Option<oneshot::Sender<Result<Head>>>,
    pub rows: mpsc::Sender<Item>,
    pub reading: Reading<'a>,
    /// What the client's statement calls the columns. Statements that share their rows may differ in it.
    pub titles: Titles,
    pub notices: Vec<Notice>,
}

/// Why there are no more rows, though it is not the end of them.
pub(crate) enum Stop {
    /// Nobody wants them.
    Gone,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Self {
        Stop::Failed(e)
    }
}

impl Client<'_> {
    fn head(&mut self, schema: SchemaRef) -> Result<(), Stop> {
        let notices = std::mem::take(&mut self.notices);
        let head = Head { schema: self.titles.schema(schema), tag: Tag::Rows, notices };
        let sent = self.started.take().is_none_or(|started| started.send(Ok(head)).is_ok());
        if sent { Ok(()) } else { Err(Stop::Gone) }
    }

    async fn send(&self, batch: RecordBatch) -> Result<(), Stop> {
        let batch = self.titles.batch(batch);
        self.rows.send(Some(Ok(batch))).await.map_err(|_| Stop::Gone)
    }

    pub async fn end(self, result: Result<(), Stop>) {
        match result {
            Ok(()) => {
                let _ = self.rows.send(None).await;
            }
            // Nobody may want more rows; that is no failure.
            Err(Stop::Gone) => {}
            Err(Stop::Failed(e)) => {
                // First, so that the client's next statement finds the transaction failed.
                self.reading.failed();
                match self.started {
                    Some(started) => drop(started.send(Err(e))),
                    None => drop(self.rows.send(Some(Err(e))).await),
                }
            }
        }
    }
}

/// As fast as the client takes them.
pub(crate) async fn alone(
    client: &mut Client<'_>,
    run: &Run,
    plan: Arc<dyn ExecutionPlan>,
    state: &SessionState,
) -> Result<(), Stop> {
    let mut stream = statement::execute(run, state, plan).await?;
    client.head(stream.schema())?;
    rest(client, &mut stream).await
}

async fn rest(client: &Client<'_>, stream: &mut SendableRecordBatchStream) -> Result<(), Stop> {
    while let Some(batch) = stream.next().await {
        client.send(batch.map_err(from_datafusion)?).await?;
        checkpoint().await;
    }
    Ok(())
}

/// Those of a query in flight with the same key; else this query computes, for all who come until
/// it is done.
pub(crate) async fn shared(
    client: &mut Client<'_>,
    flights: &Arc<Flights>,
    run: &Run,
    key: Arc<Key>,
    state: &SessionState,
) -> Result<(), Stop> {
    let leader = loop {
        match flights.board(&key) {
            Part::Leads(leader) => break Some(leader),
            Part::Joins(joiner) => {
                run.set_joined(Some(joiner.key().query()));
                let landed = joiner.landed().await;
                run.set_joined(None);
                match landed {
                    Landed::Done(kept) => return give(client, &kept).await,
                    Landed::TooLarge => break None,
                    Landed::Lost => {}
                }
            }
        }
    };
    let plan = statement::executable(run, state, key.plan()).await?;
    let Some(leader) = leader else { return alone(client, run, plan, state).await };
    let stream = statement::execute(run, state, plan).await?;
    let kept = Kept::new(stream.schema(), &run.memory());
    lead(client, stream, leader, kept).await
}

async fn give(client: &mut Client<'_>, kept: &Kept) -> Result<(), Stop> {
    client.head(Arc::clone(&kept.schema))?;
    for batch in &kept.batches {
        client.send(batch.clone()).await?;
        checkpoint().await;
    }
    Ok(())
}

/// Those who wait for the rows must not wait for this query's client, so computing goes ahead of
/// it, as far as rows are kept.
pub(crate) async fn lead(
    client: &mut Client<'_>,
    mut stream: SendableRecordBatchStream,
    leader: Leader,
    kept: Kept,
) -> Result<(), Stop> {
    client.head(stream.schema())?;
    let client = &*client;
    // Bounded by what is kept.
    let (computed, mut waiting) = mpsc::unbounded_channel();
    let computing = async { Ok(compute(&mut stream, leader, kept, computed).await) };
    let delivering = async {
        while let Some(batch) = waiting.recv().await {
            client.send(batch).await?;
        }
        Ok::<(), Stop>(())
    };
    let (all, ()) = try_join(computing, delivering).await?;
    if !all? {
        rest(client, &mut stream).await?;
    }
    Ok(())
}

/// Until the end, or until there is more than is kept: then false, and the flight is over.
async fn compute(
    stream: &mut SendableRecordBatchStream,
    leader: Leader,
    mut kept: Kept,
    computed: mpsc::UnboundedSender<RecordBatch>,
) -> Result<bool> {
    while let Some(batch) = stream.next().await {
        let batch = batch.map_err(from_datafusion)?;
        let fits = kept.push(&batch);
        let _ = computed.send(batch);
        if !fits {
            leader.too_large();
            return Ok(false);
        }
        checkpoint().await;
    }
    leader.done(Arc::new(kept));
    Ok(true)
}
