//! One client, message by message.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use thalweg_base::{Error, Place, QueryId, Result};
use thalweg_engine::{Session, TransactionStatus};

use super::cancel::Key;
use super::cursor::Declared;
use super::extended::{Portal, Prepared};
use super::message::{self, Message};
use super::shutting_down;
use super::socket::{Input, Output};
use super::startup::Told;
use crate::auth::User;
use crate::connections;
use crate::context::{Context, Phase};
use crate::metrics::Opened;
use crate::running::Running;
use crate::statement::Protocol;

pub struct Connection {
    pub context: Arc<Context>,
    pub input: Input,
    pub output: Output,
    pub session: Session,
    pub user: User,
    /// By name; the one without a name, too.
    pub statements: HashMap<String, Arc<Prepared>>,
    pub portals: HashMap<String, Portal>,
    pub cursors: HashMap<String, Declared>,
    /// The statements since the last Sync are one transaction, which nobody asked for.
    pub implicit: bool,
    /// Messages that were looked at and have to be handled yet: they come before those of the input.
    pub untaken: VecDeque<Message>,
    /// Settings as the client knows them, and whether a statement may have changed them.
    pub told: Told,
    pub has_set: bool,
    /// After an error, messages are skipped up to a Sync.
    pub skipping: bool,
    /// Where its cancel requests find it, its place among the connections, and its being counted.
    #[expect(dead_code, reason = "held")]
    pub held: (Key, connections::Connection, Opened),
}

/// Why a statement or a connection does not go on.
pub enum Stop {
    /// The client has left: there is nobody to tell.
    Gone,
    Failed(Error),
}

/// What a statement has come to.
#[derive(Default)]
pub struct Done {
    pub query: Option<QueryId>,
    pub rows: u64,
}

impl Stop {
    /// Of a statement that stands after other text: where the error is, is counted from the
    /// beginning of that.
    pub fn after(self, text: &str) -> Stop {
        let Stop::Failed(e) = self else { return self };
        match e.position() {
            Some(position) => {
                let before = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
                Stop::Failed(e.at(Place::At(position.saturating_add(before))))
            }
            None => Stop::Failed(e),
        }
    }
}

impl From<Error> for Stop {
    fn from(e: Error) -> Self {
        Stop::Failed(e)
    }
}

impl Connection {
    /// Until the client leaves, or cannot be understood.
    pub async fn run(&mut self) -> Stop {
        loop {
            let message = match self.next().await {
                Ok(message) => message,
                Err(stop) => return stop,
            };
            if message == Message::Terminate {
                return Stop::Gone;
            }
            let extended = is_extended(&message);
            if self.skipping && message != Message::Sync {
                continue;
            }
            let failed = match self.handle(message).await {
                Ok(()) => continue,
                Err(Stop::Failed(e)) => e,
                Err(Stop::Gone) => return Stop::Gone,
            };
            self.output.out.error(&failed, false);
            if let Err(stop) = self.fail().await {
                return stop;
            }
            if extended {
                self.skipping = true;
            } else {
                self.ready();
            }
            if self.flush().await.is_err() {
                return Stop::Gone;
            }
        }
    }

    async fn handle(&mut self, message: Message) -> Result<(), Stop> {
        match message {
            Message::Query(sql) => {
                self.simple(&sql).await?;
                self.ready();
                self.flush().await
            }
            Message::Parse { name, sql, types } => self.parse(name, sql, types).await,
            Message::Bind(bind) => self.bind(bind).await,
            Message::Describe(subject) => self.describe(subject).await,
            Message::Execute { portal, rows_max } => self.execute(&portal, rows_max).await,
            Message::Close(subject) => self.close(subject),
            Message::Flush => self.flush().await,
            Message::Sync => {
                self.skipping = false;
                let synced = self.sync().await;
                if let Err(Stop::Failed(e)) = &synced {
                    // It ends the transaction, and Sync is answered all the same.
                    self.output.out.error(e, false);
                }
                if let Err(Stop::Gone) = synced {
                    return Err(Stop::Gone);
                }
                self.ready();
                self.flush().await
            }
            // What is left of a COPY that has failed.
            Message::CopyData(_) | Message::CopyDone | Message::CopyFail(_) => Ok(()),
            Message::Password(_) => {
                Err(Error::user("a password is sent, and none was asked for").code("08P01").into())
            }
            Message::Terminate => Err(Stop::Gone),
        }
    }

    /// The next message. Between messages a client may take as long as it likes, within one not.
    pub async fn next(&mut self) -> Result<Message, Stop> {
        if let Some(message) = self.untaken.pop_front() {
            return Ok(message);
        }
        loop {
            let most = self.context.config.message_bytes_max;
            if let Some(message) = message::message(&mut self.input.buffer, most)? {
                return Ok(message);
            }
            let idle = self.input.buffer.is_empty();
            // In a transaction, a client has something to end.
            let may_drain = self.session.transaction_status() == TransactionStatus::Idle;
            let more = async {
                let fill = self.input.fill();
                if idle {
                    let Some(limit) = self.context.config.idle_timeout else {
                        return Ok(fill.await);
                    };
                    return tokio::time::timeout(limit, fill).await.map_err(|_| {
                        Error::cancelled("the connection was idle for too long").code("57P05")
                    });
                }
                let limit = self.context.config.message_timeout;
                tokio::time::timeout(limit, fill).await.map_err(|_| {
                    Error::user(format!(
                        "the rest of a message did not come within {} s",
                        limit.as_secs_f64()
                    ))
                    .code("08P01")
                })
            };
            let there = tokio::select! {
                there = more => there?,
                () = self.context.reached(Phase::Draining), if idle && may_drain => {
                    return Err(shutting_down().into());
                }
            };
            if !there {
                return Err(Stop::Gone);
            }
        }
    }

    /// Waits for something of the engine's, unless the client leaves.
    pub async fn watched<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self.input.gone() => Err(Stop::Gone),
        }
    }

    /// Sends what is gathered. A client that does not read it may still leave.
    pub async fn flush(&mut self) -> Result<(), Stop> {
        tokio::select! {
            biased;
            sent = self.output.flush() => sent.map_err(|_| Stop::Gone),
            () = self.input.gone() => Err(Stop::Gone),
        }
    }

    pub fn ready(&mut self) {
        if self.session.transaction_status() == TransactionStatus::Idle {
            self.cursors.retain(|_, cursor| {
                cursor.savepoints = 0;
                cursor.holds
            });
        }
        if std::mem::take(&mut self.has_set) {
            self.told.again(&self.session, &mut self.output.out);
        }
        self.output.out.ready(self.session.transaction_status());
    }

    /// A statement begins, as operators see it.
    pub fn running(&self, sql: &str) -> Running {
        let mut running = Running::new(&self.context, Protocol::Pg, &self.user.name, sql);
        running.bytes = self.output.count();
        running
    }

    /// It has ended.
    pub fn ended(&mut self, mut running: Running, done: &Result<Done, Stop>) {
        running.bytes = self.output.count() - running.bytes;
        match done {
            Ok(done) => (running.query, running.rows) = (done.query, done.rows),
            Err(Stop::Failed(e)) => running.error = Some(e.again()),
            Err(Stop::Gone) => running.error = Some(Error::cancelled("the client has left")),
        }
    }

    /// Runs a statement that gives no rows.
    pub async fn control(&mut self, sql: &str) -> Result<(), Stop> {
        let session = self.session.clone();
        let answer = self.watched(session.query(sql)).await??;
        self.watched(answer.collect()).await??;
        Ok(())
    }

    /// After an error: what nobody asked for as a transaction is undone.
    async fn fail(&mut self) -> Result<(), Stop> {
        self.portals.clear();
        if std::mem::take(&mut self.implicit) {
            return self.control("ROLLBACK").await;
        }
        Ok(())
    }

    /// Tells the client why, if it is there to be told.
    pub async fn end(mut self, stop: Stop) {
        // Before anything is sent: a client that is told is free of what it held.
        self.portals.clear();
        self.cursors.clear();
        if let Stop::Failed(e) = stop {
            self.output.out.error(&e, true);
        }
        let limit = self.context.config.message_timeout;
        let _ = tokio::time::timeout(limit, self.output.close()).await;
    }
}

fn is_extended(message: &Message) -> bool {
    matches!(
        message,
        Message::Parse { .. }
            | Message::Bind(_)
            | Message::Describe(_)
            | Message::Execute { .. }
            | Message::Close(_)
            | Message::Flush
    )
}
