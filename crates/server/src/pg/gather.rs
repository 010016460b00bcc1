//! Inserts that a client sends one after the other, without waiting for the answers: as one.
//!
//! Drivers make "execute this INSERT for each of these rows" a row of messages: Bind, Describe and Execute
//! for each. What has arrived of these is inserted together, and each is answered as if it had run alone.
//! If anything is wrong with one of the rows, nothing has happened yet, and all of them run one by one, so
//! that the error is the one of that row.

use std::sync::Arc;

use futures::FutureExt;
use thalweg_base::Result;
use thalweg_base::limits::BATCH_ROWS;
use thalweg_engine::{RowInsert, TransactionStatus, Value};

use super::connection::{Connection, Done, Stop};
use super::extended::{Portal, Prepared, State};
use super::message::{self, Message, Subject};

/// Values of rows that are gathered, in bytes: the client must not fill the memory.
const GATHERED_BYTES_MAX: usize = 1 << 20;

/// Executions of one statement, by a portal of one name.
struct Gathered {
    /// The values of each.
    executions: Vec<Vec<Value>>,
    /// Whether the client has asked what each gives; not of the first, which is answered already.
    described: Vec<bool>,
}

impl Connection {
    /// Runs an INSERT of values, and what the client has sent to be run with it. `None`: the portal is to be
    /// run as any other.
    pub async fn insert_rows(
        &mut self,
        name: &str,
        portal: &mut Portal,
    ) -> Result<Option<Done>, Stop> {
        let statement = Arc::clone(&portal.statement);
        let Some(insert) = &statement.insert else { return Ok(None) };
        if !matches!(portal.state, State::New) {
            return Ok(None);
        }
        // Of a statement that is a transaction of its own there is one execution.
        let gathered = match self.session.transaction_status() {
            TransactionStatus::Open => self.gather(name, &statement, &portal.values)?,
            TransactionStatus::Idle | TransactionStatus::Failed => {
                Gathered { executions: vec![portal.values.clone()], described: vec![false] }
            }
        };
        let count = gathered.executions.len();
        let values = gathered.executions.concat();
        let session = self.session.clone();
        let running = session.insert_rows(insert, &statement.sql, values, count);
        let inserted = self.watched(running).await??;
        if inserted.is_none() && count == 1 {
            return Ok(None);
        }
        statement.note_sound();
        let tag = format!("INSERT 0 {}", insert.rows());
        for (at, (values, described)) in
            gathered.executions.into_iter().zip(gathered.described).enumerate()
        {
            if at > 0 {
                self.output.out.bind_complete();
            }
            if described {
                self.output.out.no_data();
            }
            if inserted.is_none() {
                let mut alone = portal.again(values);
                self.run_alone(&mut alone).await?;
            } else {
                self.output.out.complete(&tag);
            }
        }
        portal.state = State::Done;
        Ok(Some(Done { query: None, rows: 0 }))
    }

    /// The execution with these values, and those that follow as far as they are here already.
    fn gather(
        &mut self,
        name: &str,
        statement: &Prepared,
        first: &[Value],
    ) -> Result<Gathered, Stop> {
        let rows_each = statement.insert.as_deref().map_or(1, RowInsert::rows);
        let mut gathered = Gathered { executions: vec![first.to_vec()], described: vec![false] };
        let mut bytes = 0;
        while gathered.executions.len() * rows_each < BATCH_ROWS && bytes < GATHERED_BYTES_MAX {
            let Some(Message::Bind(bind)) = self
                .arrived(|message| matches!(message, Message::Bind(bind) if bind.portal == name))?
            else {
                break;
            };
            let described = self.arrived(
                |message| matches!(message, Message::Describe(Subject::Portal(of)) if of == name),
            )?;
            let executed = self.arrived(|message| {
                matches!(message, Message::Execute { portal, rows_max: 0 } if portal == name)
            })?;
            // Drivers prepare a text anew for values of other types.
            let same = self.statements.get(&bind.statement);
            let same = same.filter(|same| executed.is_some() && same.sql == statement.sql);
            let values = same.and_then(|same| self.values(same, &bind).ok());
            let Some(values) = values else {
                // It is taken again, message by message, and what is wrong with it is said then.
                let taken = [Some(Message::Bind(bind)), described, executed];
                for message in taken.into_iter().flatten().rev() {
                    self.untaken.push_front(message);
                }
                break;
            };
            bytes += bind.values.iter().flatten().map(|value| value.len()).sum::<usize>();
            gathered.executions.push(values);
            gathered.described.push(described.is_some());
        }
        Ok(gathered)
    }

    /// Takes the next message if it is here, whole, and wanted.
    fn arrived(&mut self, is_wanted: impl Fn(&Message) -> bool) -> Result<Option<Message>, Stop> {
        let most = self.context.config.message_bytes_max;
        if self.untaken.is_empty() {
            let mut message = message::message(&mut self.input.buffer, most)?;
            if message.is_none() {
                // What the system has of it by now.
                let _ = self.input.fill().now_or_never();
                message = message::message(&mut self.input.buffer, most)?;
            }
            self.untaken.extend(message);
        }
        Ok(match self.untaken.front() {
            Some(message) if is_wanted(message) => self.untaken.pop_front(),
            _ => None,
        })
    }
}
