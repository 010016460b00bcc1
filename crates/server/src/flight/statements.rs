//! Statements as text: queries, updates, and what they run in.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::sql::{CommandStatementQuery, CommandStatementUpdate, DoPutUpdateResult};
use arrow_flight::{FlightInfo, IpcMessage, SchemaAsIpc};
use bytes::Bytes;
use futures::StreamExt;
use prost::Message;
use thalweg_base::{Error, Result};
use thalweg_engine::{Answer, Session, Tag, TransactionStatus, Value, script};

use super::auth::Caller;
use super::plain::Plain;
use super::service::State;
use super::status::from_arrow;
use super::tickets;
use super::transactions::{self, Open};
use crate::context::Context;
use crate::running::Running;
use crate::statement::Protocol;

/// Where a statement runs.
pub struct Place {
    pub session: Session,
    context: Arc<Context>,
    user: String,
    kind: PlaceKind,
}

/// A statement that has begun to answer.
pub struct Begun {
    pub answer: Answer,
    pub running: Running,
}

enum PlaceKind {
    /// A session that the client comes back to.
    Lasting,
    /// One that ends with the call.
    Call,
    /// Held, so that it is not taken for one that nobody uses.
    Transaction(#[expect(dead_code, reason = "held")] Arc<Open>),
}

impl Place {
    /// In the transaction, if one is named; else in the session of the caller, or in one of the
    /// call's own.
    pub fn of(state: &State, caller: &Caller, transaction: Option<&Bytes>) -> Result<Place> {
        let place = |session, kind| {
            let (context, user) = (Arc::clone(&state.context), caller.user.name.clone());
            Place { session, context, user, kind }
        };
        if let Some(id) = transaction.filter(|id| !id.is_empty()) {
            let open = transactions::find(state, caller, id)?;
            let session = open.session.clone();
            return Ok(place(session, PlaceKind::Transaction(open)));
        }
        let authenticator = &state.context.authenticator;
        match &caller.session {
            Some((_, client)) => {
                let session = client.session(authenticator)?;
                Ok(place(session, PlaceKind::Lasting))
            }
            None => {
                let session = authenticator.session(&caller.user)?;
                Ok(place(session, PlaceKind::Call))
            }
        }
    }

    pub async fn query(&self, sql: &str) -> Result<Begun> {
        self.query_with(sql, &[]).await
    }

    pub async fn query_with(&self, sql: &str, values: &[Value]) -> Result<Begun> {
        self.check(sql)?;
        self.query_in(&self.session, sql, values).await
    }

    /// In a session of its own.
    pub async fn query_in(&self, session: &Session, sql: &str, values: &[Value]) -> Result<Begun> {
        let mut running = Running::new(&self.context, Protocol::Flight, &self.user, sql);
        let answer = match values {
            [] => session.query(sql).await,
            values => session.query_with(sql, values).await,
        };
        let answer = answer.inspect_err(|e| running.error = Some(e.again()))?;
        running.query = Some(answer.query());
        Ok(Begun { answer, running })
    }

    /// Whether statements of this place are already part of a transaction.
    pub fn is_in_transaction(&self) -> bool {
        matches!(self.kind, PlaceKind::Transaction(_))
            || self.session.transaction_status() != TransactionStatus::Idle
    }

    /// What would be lost with the call is refused, and so is what would end a transaction behind
    /// the back of those who know its id.
    fn check(&self, sql: &str) -> Result<()> {
        let mut words = words(sql);
        let first = words.next().unwrap_or_default();
        match self.kind {
            PlaceKind::Lasting => Ok(()),
            PlaceKind::Transaction(_) if ENDS_TRANSACTIONS.contains(&first.as_str()) => {
                Err(Error::user(format!("{first} cannot run in a transaction of BeginTransaction"))
                    .code("25001")
                    .hint("EndTransaction ends it; an ADBC connection has commit() and rollback()"))
            }
            PlaceKind::Transaction(_) => Ok(()),
            PlaceKind::Call if LASTS.contains(&first.as_str()) && !is_shared(&first, words) => {
                Err(Error::user(format!("{first} would be lost: this call has no session"))
                    .code("08003")
                    .hint(
                        "connect with a user's name, keep cookies and call SetSessionOptions, or \
                         send a header x-session-id; a transaction is opened by BeginTransaction",
                    ))
            }
            PlaceKind::Call => Ok(()),
        }
    }
}

/// Statements that change the session.
const LASTS: [&str; 13] = [
    "SET",
    "RESET",
    "BEGIN",
    "START",
    "COMMIT",
    "END",
    "ROLLBACK",
    "ABORT",
    "SAVEPOINT",
    "RELEASE",
    "PREPARE",
    "EXECUTE",
    "DEALLOCATE",
];

const ENDS_TRANSACTIONS: [&str; 6] = ["BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT"];

/// Settings that are the engine's or the database's, and last without a session.
const SHARED: [&str; 4] = ["POLICY", "MEMORY_LIMIT", "MAX_RUNNING", "RETENTION_MS"];

fn is_shared(first: &str, mut rest: impl Iterator<Item = String>) -> bool {
    ["SET", "RESET"].contains(&first)
        && rest.next().is_some_and(|word| word == "THALWEG")
        && rest.next().is_some_and(|word| SHARED.contains(&word.as_str()))
}

fn words(sql: &str) -> impl Iterator<Item = String> {
    script::words(sql).map(str::to_ascii_uppercase)
}

/// `GetFlightInfo`: starts the statement. Its rows wait for the ticket.
pub async fn info(
    state: &State,
    caller: &Caller,
    query: CommandStatementQuery,
) -> Result<FlightInfo> {
    let place = Place::of(state, caller, query.transaction_id.as_ref())?;
    let begun = place.query(&query.query).await?;
    tickets::hold(state, caller, place, begun).await
}

/// `GetSchema`: plans the statement only.
pub async fn schema(
    state: &State,
    caller: &Caller,
    query: CommandStatementQuery,
) -> Result<SchemaRef> {
    let place = Place::of(state, caller, query.transaction_id.as_ref())?;
    let description = place.session.describe(&query.query, &[]).await?;
    Ok(described(description.schema.as_ref()))
}

/// The columns that a client gets.
pub fn described(schema: Option<&SchemaRef>) -> SchemaRef {
    match schema {
        Some(schema) => Arc::clone(Plain::new(schema).schema()),
        None => Arc::new(Schema::empty()),
    }
}

/// `DoPut` of a statement without rows.
pub async fn update(
    state: &State,
    caller: &Caller,
    update: CommandStatementUpdate,
) -> Result<Vec<u8>> {
    let place = Place::of(state, caller, update.transaction_id.as_ref())?;
    let answer = place.query(&update.query).await?;
    Ok(updated(rows_of(answer).await?))
}

/// How many rows a statement has changed, or has given: those of RETURNING are the changed ones.
pub async fn rows_of(begun: Begun) -> Result<u64> {
    let Begun { mut answer, mut running } = begun;
    let mut rows = match answer.tag {
        Tag::Count(_, rows) => rows,
        Tag::Rows | Tag::Done(_) => 0,
    };
    while let Some(batch) = answer.next().await {
        let batch = batch.inspect_err(|e| running.error = Some(e.again()))?;
        rows += batch.num_rows() as u64;
    }
    Ok(rows)
}

pub fn updated(rows: u64) -> Vec<u8> {
    let record_count = i64::try_from(rows).unwrap_or(i64::MAX);
    DoPutUpdateResult { record_count }.encode_to_vec()
}

/// A schema as a message of Arrow's IPC format.
pub fn ipc_schema(schema: &Schema) -> Result<Bytes> {
    let options = IpcWriteOptions::default();
    let message: IpcMessage = SchemaAsIpc::new(schema, &options).try_into().map_err(from_arrow)?;
    Ok(message.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_engine_last_without_a_session() {
        let is_shared = |sql: &str| {
            let mut words = words(sql);
            let first = words.next().unwrap();
            is_shared(&first, words)
        };
        assert!(is_shared("SET thalweg.policy = 'fair'"));
        assert!(is_shared("reset thalweg.max_running"));
        assert!(!is_shared("SET thalweg.workload = 'x'"));
        assert!(!is_shared("SET other.policy = 'x'"));
        assert!(!is_shared("PREPARE thalweg.policy"));
    }
}
