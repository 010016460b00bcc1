//! Answers on their way to a client: a statement runs once, from the call that describes its rows
//! on, and its rows go to whoever brings the ticket.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Poller, Poll};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::encode::{FlightDataEncoder, FlightDataEncoderBuilder};
use arrow_flight::error::FlightError;
use arrow_flight::sql::{
    ActionCancelQueryRequest, ActionCancelQueryResult, Any, Command, ProstMessageExt,
    TicketStatementQuery,
};
use arrow_flight::{
    CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightData, FlightEndpoint,
    FlightInfo, Ticket,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, stream};
use parking_lot::Mutex;
use prost::Message;
use thalweg_base::{Error, QueryId, Result};
use thalweg_engine::Tag;
use tonic::Status;

use super::auth::Caller;
use super::kept::Kept;
use super::plain::Plain;
use super::service::{State, stopped};
use super::statements::{Begun, Place};
use super::status::{from_arrow, malformed, status};
use crate::context::Phase;
use crate::running::Running;

/// Answers that wait for their client or are on their way to it. One that is not fetched in time
/// is stopped: it holds memory.
const TICKETS_MAX: usize = 4096;
const TICKET_IDLE: Duration = Duration::from_secs(60);

pub type Tickets = Kept<Held>;

pub fn new() -> Tickets {
    Kept::new("ticket", TICKET_IDLE, TICKETS_MAX)
}

pub struct Held {
    /// `None` once it is fetched.
    answer: Mutex<Option<(BoxStream<'static, Result<RecordBatch>>, Running)>>,
    query: QueryId,
    plain: Plain,
    /// What the statement runs in lives as long as its answer.
    _place: Place,
}

/// Keeps an answer for the client, and tells it how to get it.
pub async fn hold(
    state: &State,
    caller: &Caller,
    place: Place,
    begun: Begun,
) -> Result<FlightInfo> {
    let Begun { mut answer, mut running } = begun;
    if answer.tag != Tag::Rows {
        // Nobody may come for it: it ends here, and holds no slot.
        while let Some(done) = answer.next().await {
            done.inspect_err(|e| running.error = Some(e.again()))?;
        }
    }
    let plain = Plain::new(&answer.schema);
    let schema = Arc::clone(plain.schema());
    // Rows that were changed are what clients show as the number of rows.
    let records = match answer.tag {
        Tag::Count(_, rows) => i64::try_from(rows).unwrap_or(i64::MAX),
        _ => -1,
    };
    let query = answer.query();
    let batches = match answer.tag {
        Tag::Rows => answer.boxed(),
        // It has ended, and is one of the server's queries no more.
        _ => stream::empty().boxed(),
    };
    let held = Held { answer: Mutex::new(Some((batches, running))), query, plain, _place: place };
    let handle = state.tickets.keep(&caller.user, Arc::new(held))?;
    let ticket = TicketStatementQuery { statement_handle: handle };
    info(&schema, ticket.as_any().encode_to_vec(), records)
}

/// What a client needs to fetch rows.
pub fn info(schema: &SchemaRef, ticket: Vec<u8>, records: i64) -> Result<FlightInfo> {
    let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(ticket));
    let info = FlightInfo::new().try_with_schema(schema).map_err(from_arrow)?;
    Ok(info.with_endpoint(endpoint).with_total_records(records).with_ordered(true))
}

/// The rows of a statement.
pub fn rows(state: &Arc<State>, caller: &Caller, handle: Bytes) -> Result<Rows> {
    let held = state.tickets.find(&caller.user, &handle)?;
    let (batches, mut running) = held.answer.lock().take().ok_or_else(|| {
        Error::user("the ticket has been used").hint("execute the statement again for a new one")
    })?;
    let plain = held.plain.clone();
    let schema = Arc::clone(plain.schema());
    let batches = batches.flat_map(move |batch| {
        // All of it, and not copies of its fields.
        let running = &mut running;
        let parts = batch.and_then(|batch| plain.batches(batch));
        let parts = match parts {
            Ok(parts) => {
                for part in &parts {
                    running.rows += part.num_rows() as u64;
                    running.bytes += part.get_array_memory_size() as u64;
                }
                parts.into_iter().map(Ok).collect()
            }
            Err(e) => {
                running.error = Some(e.again());
                vec![Err(FlightError::from(status(&e)))]
            }
        };
        stream::iter(parts)
    });
    Ok(Rows::new(state, schema, batches, Some((handle, held))))
}

/// Batches as messages, of a call that ends when the server does.
pub struct Rows {
    messages: FlightDataEncoder,
    stopped: BoxFuture<'static, ()>,
    ended: bool,
    /// Dropped with the stream, which stops the query.
    held: Option<(Bytes, Arc<Held>)>,
    state: Arc<State>,
}

impl Rows {
    pub fn new(
        state: &Arc<State>,
        schema: SchemaRef,
        batches: impl Stream<Item = Result<RecordBatch, FlightError>> + Send + 'static,
        held: Option<(Bytes, Arc<Held>)>,
    ) -> Self {
        let context = Arc::clone(&state.context);
        Rows {
            // They are cut to size already, and by what is in them.
            messages: FlightDataEncoderBuilder::new()
                .with_max_flight_data_size(usize::MAX)
                .with_schema(schema)
                .build(batches),
            stopped: async move { context.reached(Phase::Stopped).await }.boxed(),
            ended: false,
            held,
            state: Arc::clone(state),
        }
    }
}

impl Stream for Rows {
    type Item = Result<FlightData, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Poller<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let next = match self.messages.poll_next_unpin(cx) {
            Poll::Pending if self.stopped.poll_unpin(cx).is_ready() => {
                Some(Err(status(&stopped())))
            }
            Poll::Pending => return Poll::Pending,
            Poll::Ready(next) => next.map(|message| message.map_err(Status::from)),
        };
        self.ended = !matches!(next, Some(Ok(_)));
        Poll::Ready(next)
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        if let Some((handle, _)) = &self.held {
            self.state.tickets.forget(handle);
        }
    }
}

/// `CancelFlightInfo`
pub fn cancel_flight(state: &State, caller: &Caller, body: &[u8]) -> Result<Vec<u8>> {
    let request = CancelFlightInfoRequest::decode(body).map_err(|e| malformed("the request", e))?;
    let info = request.info.ok_or_else(|| malformed("the request", "it has no FlightInfo"))?;
    let status = cancel(state, caller, &info)?;
    Ok(CancelFlightInfoResult::new(status).encode_to_vec())
}

/// `CancelQuery`, which came before it.
pub fn cancel_query(
    state: &State,
    caller: &Caller,
    request: &ActionCancelQueryRequest,
) -> Result<Vec<u8>> {
    let info = FlightInfo::decode(&*request.info).map_err(|e| malformed("the FlightInfo", e))?;
    let status = cancel(state, caller, &info)?;
    // The numbers are the same.
    let result = ActionCancelQueryResult { result: status.into() };
    Ok(result.as_any().encode_to_vec())
}

fn cancel(state: &State, caller: &Caller, info: &FlightInfo) -> Result<CancelStatus> {
    let ticket = info.endpoint.first().and_then(|endpoint| endpoint.ticket.as_ref());
    let ticket = ticket.ok_or_else(|| malformed("the FlightInfo", "it has no ticket"))?;
    let any = Any::decode(&*ticket.ticket).map_err(|e| malformed("the ticket", e))?;
    let Ok(Command::TicketStatementQuery(ticket)) = Command::try_from(any) else {
        return Ok(CancelStatus::NotCancellable);
    };
    let held = state.tickets.find(&caller.user, &ticket.statement_handle)?;
    // Of one that nobody has fetched this is all there is to stop.
    let unfetched = held.answer.lock().take();
    state.tickets.forget(&ticket.statement_handle);
    if unfetched.is_none() && state.context.engine.kill(held.query).is_err() {
        // It has ended.
        return Ok(CancelStatus::NotCancellable);
    }
    Ok(CancelStatus::Cancelled)
}
