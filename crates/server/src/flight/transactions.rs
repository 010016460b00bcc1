//! `BeginTransaction`, `EndTransaction`, and savepoints. Each transaction is a session of its own,
//! with the settings of the caller's: what runs without its id does not run in it.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::sql::{
    ActionBeginSavepointRequest, ActionBeginSavepointResult, ActionBeginTransactionResult,
    ActionEndSavepointRequest, ActionEndTransactionRequest, EndTransaction, ProstMessageExt,
};
use bytes::Bytes;
use prost::Message;
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result};
use thalweg_engine::{Session, TransactionStatus};

use super::auth::Caller;
use super::kept::Kept;
use super::service::State;
use super::status::malformed;

/// Transactions that are open. One in which nothing happens is rolled back at last: it keeps old
/// versions of the tables it has read.
const TRANSACTIONS_MAX: usize = 1024;
const TRANSACTION_IDLE: Duration = Duration::from_secs(60 * 60);

/// `END_SAVEPOINT_RELEASE` and `END_SAVEPOINT_ROLLBACK` of `ActionEndSavepointRequest`.
const SAVEPOINT_RELEASE: i32 = 1;
const SAVEPOINT_ROLLBACK: i32 = 2;

pub type Transactions = Kept<Open>;

pub fn new() -> Transactions {
    Kept::new("transaction", TRANSACTION_IDLE, TRANSACTIONS_MAX)
}

/// Dropping the session rolls back.
pub struct Open {
    pub session: Session,
}

pub fn find(state: &State, caller: &Caller, id: &[u8]) -> Result<Arc<Open>> {
    let open = state.transactions.find(&caller.user, id).map_err(|e| e.code("25000"))?;
    if open.session.transaction_status() == TransactionStatus::Idle {
        return Err(Error::user("the transaction has ended").code("25000"));
    }
    Ok(open)
}

/// A session with the settings of the caller's, for itself alone.
pub fn sibling(state: &State, caller: &Caller) -> Result<Session> {
    let authenticator = &state.context.authenticator;
    let session = authenticator.session(&caller.user)?;
    if let Some((_, client)) = &caller.session {
        session.adopt_settings(&client.session(authenticator)?);
    }
    Ok(session)
}

pub async fn begin(state: &State, caller: &Caller) -> Result<Vec<u8>> {
    let session = sibling(state, caller)?;
    session.query("BEGIN").await?;
    let transaction_id = state.transactions.keep(&caller.user, Arc::new(Open { session }))?;
    Ok(ActionBeginTransactionResult { transaction_id }.as_any().encode_to_vec())
}

pub async fn end(
    state: &State,
    caller: &Caller,
    request: &ActionEndTransactionRequest,
) -> Result<()> {
    let id = &request.transaction_id;
    let open = find(state, caller, id)?;
    let action = EndTransaction::try_from(request.action);
    let failed = open.session.transaction_status() == TransactionStatus::Failed;
    let sql = match action {
        Ok(EndTransaction::Commit) if failed => {
            open.session.query("ROLLBACK").await?;
            state.transactions.forget(id);
            return Err(Error::user("the transaction failed, and was rolled back")
                .code("25P02")
                .hint("the error was that of one of its statements; begin it again"));
        }
        Ok(EndTransaction::Commit) => "COMMIT",
        Ok(EndTransaction::Rollback) => "ROLLBACK",
        _ => return Err(malformed("EndTransaction", "it says neither commit nor roll back")),
    };
    let ended = open.session.query(sql).await;
    // A commit that fails has ended it, too.
    if open.session.transaction_status() == TransactionStatus::Idle {
        state.transactions.forget(id);
    }
    ended.map(drop)
}

pub async fn begin_savepoint(
    state: &State,
    caller: &Caller,
    request: ActionBeginSavepointRequest,
) -> Result<Vec<u8>> {
    let open = find(state, caller, &request.transaction_id)?;
    open.session.query(&format!("SAVEPOINT {}", quoted(&request.name))).await?;
    let savepoint_id = savepoint_id(&request.transaction_id, &request.name);
    Ok(ActionBeginSavepointResult { savepoint_id }.as_any().encode_to_vec())
}

pub async fn end_savepoint(
    state: &State,
    caller: &Caller,
    request: &ActionEndSavepointRequest,
) -> Result<()> {
    let (transaction, name) = savepoint(&request.savepoint_id)?;
    let open = find(state, caller, &transaction)?;
    let name = quoted(&name);
    let sql = match request.action {
        SAVEPOINT_RELEASE => format!("RELEASE SAVEPOINT {name}"),
        SAVEPOINT_ROLLBACK => format!("ROLLBACK TO SAVEPOINT {name}"),
        _ => return Err(malformed("EndSavepoint", "it says neither release nor roll back")),
    };
    open.session.query(&sql).await.map(drop)
}

/// The transaction's id, after its length, and the name.
fn savepoint_id(transaction: &[u8], name: &str) -> Bytes {
    let mut id = (transaction.len() as u64).to_le_bytes().to_vec();
    id.extend_from_slice(transaction);
    id.extend_from_slice(name.as_bytes());
    id.into()
}

fn savepoint(id: &[u8]) -> Result<(Vec<u8>, String)> {
    let unknown = || Error::user("there is no such savepoint").code("3B001");
    let (length, rest) = id.split_first_chunk::<8>().ok_or_else(unknown)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| unknown())?;
    let (transaction, name) = rest.split_at_checked(length).ok_or_else(unknown)?;
    let name = String::from_utf8(name.to_vec()).map_err(|_| unknown())?;
    Ok((transaction.to_vec(), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_savepoint_is_found_by_its_id() {
        let id = savepoint_id(b"transaction", "my \"name\"");
        assert_eq!(savepoint(&id).unwrap(), (b"transaction".to_vec(), "my \"name\"".into()));
        for broken in [&b""[..], b"1234567", &[255; 20], &[9, 0, 0, 0, 0, 0, 0, 0, 1]] {
            assert_eq!(savepoint(broken).unwrap_err().sqlstate(), "3B001");
        }
    }
}
