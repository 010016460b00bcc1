//! Prepared statements: described once, run with the values that a client binds.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, DoPutPreparedStatementResult, ProstMessageExt,
};
use arrow_flight::{FlightData, FlightInfo};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use prost::Message;
use thalweg_base::{Error, Result};
use thalweg_engine::Description;
use tonic::Streaming;

use super::auth::Caller;
use super::kept::Kept;
use super::service::State;
use super::statements::{Place, described, ipc_schema, rows_of, updated};
use super::upload::{self, Upload};
use super::{parameters, tickets, transactions};

const STATEMENTS_MAX: usize = 16 * 1024;
const STATEMENT_IDLE: Duration = Duration::from_secs(12 * 60 * 60);

/// Bytes of the values that wait for their statement to run, each.
const BOUND_BYTES_MAX: usize = 64 << 20;

pub type PreparedStatements = Kept<Prepared>;

pub fn new() -> PreparedStatements {
    Kept::new("prepared statement", STATEMENT_IDLE, STATEMENTS_MAX)
}

pub struct Prepared {
    sql: String,
    transaction: Option<Bytes>,
    description: Description,
    /// Rows of values for the next runs; `None`: nothing is bound.
    bound: Mutex<Option<Vec<RecordBatch>>>,
}

impl Prepared {
    fn place(&self, state: &State, caller: &Caller) -> Result<Place> {
        Place::of(state, caller, self.transaction.as_ref())
    }

    fn takes(&self) -> usize {
        self.description.parameters.len()
    }
}

pub async fn create(
    state: &State,
    caller: &Caller,
    request: ActionCreatePreparedStatementRequest,
) -> Result<Vec<u8>> {
    let ActionCreatePreparedStatementRequest { query, transaction_id } = request;
    let sql = parameters::numbered(&query);
    let place = Place::of(state, caller, transaction_id.as_ref())?;
    let description = place.session.describe(&sql, &[]).await?;
    let dataset_schema = ipc_schema(&described(description.schema.as_ref()))?;
    let parameter_schema = ipc_schema(&parameters::schema(&description.parameters))?;
    let transaction = transaction_id.filter(|id| !id.is_empty());
    let prepared = Prepared { sql, transaction, description, bound: Mutex::default() };
    let prepared_statement_handle = state.prepared.keep(&caller.user, Arc::new(prepared))?;
    let result = ActionCreatePreparedStatementResult {
        prepared_statement_handle,
        dataset_schema,
        parameter_schema,
    };
    Ok(result.as_any().encode_to_vec())
}

pub fn close(
    state: &State,
    caller: &Caller,
    request: &ActionClosePreparedStatementRequest,
) -> Result<()> {
    state.prepared.find(&caller.user, &request.prepared_statement_handle)?;
    state.prepared.forget(&request.prepared_statement_handle);
    Ok(())
}

pub fn schema(state: &State, caller: &Caller, handle: &[u8]) -> Result<SchemaRef> {
    let prepared = state.prepared.find(&caller.user, handle)?;
    Ok(described(prepared.description.schema.as_ref()))
}

/// `GetFlightInfo`: starts the statement with the one row of values that is bound.
pub async fn info(state: &State, caller: &Caller, handle: &[u8]) -> Result<FlightInfo> {
    let prepared = state.prepared.find(&caller.user, handle)?;
    let bound = prepared.bound.lock().clone();
    let values = match (bound, prepared.takes()) {
        (None, 0) => vec![],
        (None, wanted) => return Err(nothing_bound(wanted)),
        (Some(rows), _) => {
            let mut rows = rows.iter().filter(|batch| batch.num_rows() > 0);
            match (rows.next(), rows.next()) {
                (Some(row), None) if row.num_rows() == 1 => parameters::values(row, 0)?,
                (None, _) => return Err(nothing_bound(prepared.takes())),
                _ => {
                    return Err(Error::unsupported("a query runs with one row of values")
                        .hint("bind one row at a time; a statement without a result, such as INSERT, takes any number"));
                }
            }
        }
    };
    let place = prepared.place(state, caller)?;
    let begun = place.query_with(&prepared.sql, &values).await?;
    tickets::hold(state, caller, place, begun).await
}

fn nothing_bound(wanted: usize) -> Error {
    Error::user(format!("the statement takes {wanted} values, and none are bound"))
        .code("07001")
        .hint("bind a row of values before it is executed")
}

/// JDBC's driver sends a schema without columns where there are no values.
fn has_values(upload: &Upload) -> bool {
    !upload.schema.fields().is_empty()
}

/// `DoPut` of values for a statement that runs later.
pub async fn bind(
    state: &State,
    caller: &Caller,
    handle: Bytes,
    first: FlightData,
    messages: Streaming<FlightData>,
) -> Result<Vec<u8>> {
    let prepared = state.prepared.find(&caller.user, &handle)?;
    let mut bound = None;
    let mut bytes = 0;
    upload::receive(first, messages, async |upload| {
        let Some(upload) = upload.filter(has_values) else { return Ok(()) };
        let rows = bound.insert(vec![]);
        let mut batches = std::pin::pin!(upload.batches());
        while let Some(batch) = batches.next().await {
            let batch = batch?;
            parameters::check(&batch, prepared.takes())?;
            bytes += batch.get_array_memory_size();
            if bytes > BOUND_BYTES_MAX {
                return Err(Error::user("too many values are bound at once")
                    .code("54000")
                    .hint("bind fewer rows at a time, or load them with an ingest"));
            }
            rows.push(batch);
        }
        Ok(())
    })
    .await?;
    *prepared.bound.lock() = bound;
    let result = DoPutPreparedStatementResult { prepared_statement_handle: Some(handle) };
    Ok(result.encode_to_vec())
}

/// `DoPut` of a statement without a result: it runs once for each row of values, of those that
/// come with the call or else are bound. All of that is one transaction.
pub async fn update(
    state: &State,
    caller: &Caller,
    handle: &[u8],
    first: FlightData,
    messages: Streaming<FlightData>,
) -> Result<Vec<u8>> {
    let prepared = state.prepared.find(&caller.user, handle)?;
    let rows = upload::receive(first, messages, async |upload| match upload.filter(has_values) {
        Some(upload) => run_all(state, caller, &prepared, upload.batches()).await,
        None => {
            let bound = prepared.bound.lock().clone();
            match bound {
                Some(rows) => {
                    let rows = futures::stream::iter(rows.into_iter().map(Ok));
                    run_all(state, caller, &prepared, rows).await
                }
                None if prepared.takes() == 0 => {
                    let place = prepared.place(state, caller)?;
                    rows_of(place.query(&prepared.sql).await?).await
                }
                None => Err(nothing_bound(prepared.takes())),
            }
        }
    });
    Ok(updated(rows.await?))
}

async fn run_all(
    state: &State,
    caller: &Caller,
    prepared: &Prepared,
    batches: impl Stream<Item = Result<RecordBatch>>,
) -> Result<u64> {
    let mut batches = std::pin::pin!(batches);
    let place = prepared.place(state, caller)?;
    if place.is_in_transaction() {
        let mut count = 0;
        while let Some(batch) = batches.next().await {
            let batch = batch?;
            parameters::check(&batch, prepared.takes())?;
            for row in 0..batch.num_rows() {
                let values = parameters::values(&batch, row)?;
                let answer = place.query_with(&prepared.sql, &values).await?;
                count += rows_of(answer).await?;
            }
        }
        return Ok(count);
    }
    // Its own transaction; dropping the session on the way out rolls back. A single row needs none,
    // and may be a statement that runs in none.
    let mut pending: Option<RecordBatch> = None;
    let mut session = None;
    let mut count = 0;
    loop {
        let next = batches.next().await.transpose()?;
        if let Some(batch) = pending.take() {
            parameters::check(&batch, prepared.takes())?;
            let is_single = session.is_none() && next.is_none() && batch.num_rows() == 1;
            if is_single {
                let values = parameters::values(&batch, 0)?;
                return rows_of(place.query_with(&prepared.sql, &values).await?).await;
            }
            let session = match &session {
                Some(session) => session,
                None => {
                    let own = transactions::sibling(state, caller)?;
                    own.query("BEGIN").await?;
                    session.insert(own)
                }
            };
            for row in 0..batch.num_rows() {
                let values = parameters::values(&batch, row)?;
                count += rows_of(place.query_in(session, &prepared.sql, &values).await?).await?;
            }
        }
        match next {
            Some(batch) => pending = Some(batch),
            None => break,
        }
    }
    if let Some(session) = session {
        session.query("COMMIT").await?;
    }
    Ok(count)
}
