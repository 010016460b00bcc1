//! The one way in which a session changes the database: inside the transaction it has open, or
//! in one of the statement's own.
//!
//! ```text
//!            BEGIN               an error
//!   idle ───────────▶ open ─────────────────▶ failed ──┐ every statement: 25P02
//!    ▲                 │ ▲                      │  ▲   │
//!    └─────────────────┘ └──────────────────────┘  └───┘
//!     COMMIT, ROLLBACK       ROLLBACK TO
//! ```
//! From idle, each statement is a transaction of its own: it reads the newest snapshot, and what
//! it changes is committed on that basis. In an open one, every statement reads the snapshot of
//! BEGIN with the transaction's own changes. Rows of small inserts are [held](crate::held) until a
//! statement might read them.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::sql::sqlparser::ast::{
    self, TransactionAccessMode, TransactionIsolationLevel, TransactionMode,
};
use parking_lot::{Mutex, MutexGuard};
use thalweg_base::text::quoted;
use thalweg_base::{Error, Result, SnapshotId};
use thalweg_storage::{Database, Hold, Snapshot, Summary, Table, Transaction};

use crate::access::{OWNER_ID, OWNER_KEY, RoleId, owner_text};
use crate::answer::Tag;
use crate::held::{Held, Written};
use crate::names;
use thalweg_errors::from_datafusion;
use thalweg_runtime::{Run, blocking};

/// Whether a session has a transaction open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    /// Each statement is a transaction of its own.
    Idle,
    Open,
    /// After an error, until ROLLBACK.
    Failed,
}

pub(crate) struct Transactions {
    database: Database,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Option<Open>,
    /// Of the statement that runs, outside any that is open.
    single: Option<Transaction>,
    /// `SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY`
    read_only: bool,
    /// The statement reads an older snapshot than there is: it can change nothing.
    past: bool,
    /// Who owns what is made.
    owner: Option<RoleId>,
}

struct Open {
    /// Rows that it may change later stay where it has seen them.
    _hold: Hold,
    /// `None` after an error, and while a statement adds to it.
    work: Option<Transaction>,
    read_only: bool,
    savepoints: Vec<(String, Transaction)>,
    /// Rows that are not in `work` yet.
    held: Held,
    /// Statements whose rows are on their way to the client.
    reading: Vec<Arc<Run>>,
}

/// `BEGIN`, `COMMIT` and their like.
pub(crate) enum Control {
    Begin { modes: Vec<TransactionMode>, word: &'static str },
    Commit,
    Rollback,
    Savepoint(String),
    RollbackTo(String),
    Release(String),
    Set { modes: Vec<TransactionMode>, session: bool },
}

/// The statement, if it is one that governs transactions.
pub(crate) fn control(statement: &ast::Statement) -> Result<Option<Control>> {
    use ast::Statement as S;
    Ok(Some(match statement {
        S::StartTransaction {
            modifier: None, modes, begin, statements, exception: None, ..
        } if statements.is_empty() => {
            let word = if *begin { "BEGIN" } else { "START TRANSACTION" };
            Control::Begin { modes: modes.clone(), word }
        }
        S::StartTransaction { .. } => {
            return Err(Error::unsupported("this form of BEGIN is not supported")
                .hint("BEGIN [ISOLATION LEVEL SNAPSHOT] [READ ONLY] opens a transaction"));
        }
        S::Commit { chain: true, .. } | S::Rollback { chain: true, .. } => {
            return Err(Error::unsupported("AND CHAIN is not supported")
                .hint("BEGIN opens the next transaction"));
        }
        S::Commit { .. } => Control::Commit,
        S::Rollback { savepoint: Some(name), .. } => Control::RollbackTo(names::ident(name)),
        S::Rollback { .. } => Control::Rollback,
        S::Savepoint { name } => Control::Savepoint(names::ident(name)),
        S::ReleaseSavepoint { name } => Control::Release(names::ident(name)),
        S::Set(ast::Set::SetTransaction { modes, snapshot: None, session }) => {
            Control::Set { modes: modes.clone(), session: *session }
        }
        _ => return Ok(None),
    }))
}

/// Whether the modes ask for read only; `None` if they do not say.
fn access(modes: &[TransactionMode]) -> Result<Option<bool>> {
    let mut read_only = None;
    for mode in modes {
        match mode {
            TransactionMode::AccessMode(mode) => {
                read_only = Some(*mode == TransactionAccessMode::ReadOnly);
            }
            TransactionMode::IsolationLevel(TransactionIsolationLevel::Serializable) => {
                return Err(Error::unsupported(
                    "the isolation level SERIALIZABLE is not supported",
                )
                .detail(
                    "transactions have snapshot isolation: each reads one snapshot, and \
                         of two that change the same rows the second fails",
                )
                .hint("leave the level out, or ask for SNAPSHOT or REPEATABLE READ"));
            }
            // Snapshot isolation is stronger than the weaker ones ask for.
            TransactionMode::IsolationLevel(_) => {}
        }
    }
    Ok(read_only)
}

impl Transactions {
    pub fn new(database: Database) -> Self {
        Transactions { database, state: Mutex::default() }
    }

    /// A client hears of its cancellation before the statement has stopped; the transaction has
    /// failed from then on.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        if let Some(open) = &mut state.open {
            let reading = open.reading.len();
            open.reading.retain(|run| run.cancelled().is_none());
            if open.reading.len() < reading {
                open.work = None;
            }
        }
        state
    }

    pub fn status(&self) -> TransactionStatus {
        match &self.state().open {
            None => TransactionStatus::Idle,
            Some(Open { work: Some(_), .. }) => TransactionStatus::Open,
            Some(_) => TransactionStatus::Failed,
        }
    }

    /// How many savepoints the open transaction has.
    pub fn savepoints(&self) -> usize {
        self.state().open.as_ref().map_or(0, |open| open.savepoints.len())
    }

    /// The last commit that the statement sees.
    pub fn base(&self) -> Option<SnapshotId> {
        let state = self.state();
        let open = state.open.as_ref().and_then(|open| open.work.as_ref());
        open.or(state.single.as_ref()).map(|transaction| transaction.base().id)
    }

    /// Takes in what other processes have committed, before a transaction begins.
    pub async fn refresh(&self) -> Result<()> {
        if self.status() != TransactionStatus::Idle || !self.database.may_be_behind() {
            return Ok(());
        }
        let database = self.database.clone();
        blocking(move || database.refresh().map(drop)).await.map_err(from_datafusion)
    }

    /// Begins a statement: the snapshot it reads.
    pub fn begin_statement(&self) -> Result<Arc<Snapshot>> {
        let mut state = self.state();
        state.past = false;
        match &state.open {
            Some(Open { work: Some(work), .. }) => Ok(Arc::clone(work.snapshot())),
            Some(_) => Err(failed()),
            None => {
                let single = self.database.begin();
                let snapshot = Arc::clone(single.snapshot());
                state.single = Some(single);
                Ok(snapshot)
            }
        }
    }

    /// What the open transaction has changed so far: the snapshots before and after; `None`: nothing.
    pub fn changed(&self) -> Option<(Arc<Snapshot>, Arc<Snapshot>)> {
        let state = self.state();
        let work = state.open.as_ref()?.work.as_ref()?;
        (!work.is_empty()).then(|| (Arc::clone(work.base()), Arc::clone(work.snapshot())))
    }

    /// What statements make from now on is that role's.
    pub fn make_for(&self, role: RoleId) {
        // Of what nobody is said to own, it is the owner anyway.
        self.state().owner = Some(role).filter(|r| *r != OWNER_ID);
    }

    /// The statement reads another snapshot than it was given, and cannot change anything.
    pub fn read_past(&self) {
        self.state().past = true;
    }

    /// Ends a statement; an error fails the transaction that is open.
    pub fn end_statement(&self, succeeded: bool) {
        let mut state = self.state();
        state.single = None;
        if let Some(open) = &mut state.open
            && !succeeded
        {
            open.work = None;
            open.held = Held::default();
        }
    }

    /// Whether rows of a small insert may be held: they are part of a transaction that goes on.
    pub fn may_hold(&self) -> bool {
        self.status() == TransactionStatus::Open
    }

    /// Adds rows to the open transaction without writing them yet.
    pub async fn hold(
        &self,
        table: &Arc<Table>,
        batches: Vec<RecordBatch>,
        summary: Summary,
    ) -> Result<()> {
        self.check_writable()?;
        let is_full = {
            let mut state = self.state();
            let open = state.open.as_mut().filter(|open| open.work.is_some());
            let open = open.ok_or_else(failed)?;
            open.held.add(table, batches, summary);
            open.held.is_full()
        };
        if is_full { self.settle().await } else { Ok(()) }
    }

    /// Writes the rows that are held: from now on they are in the snapshot of the transaction.
    pub async fn settle(&self) -> Result<()> {
        let (mut transaction, held) = {
            let mut state = self.state();
            let Some(open) = state.open.as_mut().filter(|open| !open.held.is_empty()) else {
                return Ok(());
            };
            // Not there while they are written: an error, or the end of the task, fails it.
            let transaction = open.work.take().ok_or_else(failed)?;
            (transaction, std::mem::take(&mut open.held))
        };
        let written = held.write(&self.database).await?;
        let work = blocking(move || {
            for Written { table, extents, summaries } in written {
                transaction.append(table, extents)?;
                summaries.into_iter().for_each(|summary| transaction.describe(summary));
            }
            Ok(transaction)
        });
        let work = work.await.map_err(from_datafusion)?;
        if let Some(open) = &mut self.state().open {
            open.work = Some(work);
        }
        Ok(())
    }

    /// The statement has rows to give: an error or a cancellation on their way to the client fails
    /// the transaction that is open now, a client that wants no more of them does not.
    pub fn reading(&self, run: &Arc<Run>) -> Reading<'_> {
        if let Some(open) = &mut self.state().open {
            open.reading.push(Arc::clone(run));
        }
        Reading { transactions: self, run: Arc::clone(run) }
    }

    /// The statement reads no more; nothing if the transaction it read in is over.
    fn read(&self, run: &Arc<Run>, succeeded: bool) {
        if let Some(open) = &mut self.state().open {
            let before = open.reading.len();
            open.reading.retain(|other| !Arc::ptr_eq(other, run));
            if open.reading.len() < before && !succeeded {
                open.work = None;
            }
        }
    }

    /// Refuses a change before any work is done for it.
    pub fn check_writable(&self) -> Result<()> {
        let state = self.state();
        let read_only = match &state.open {
            Some(open) => open.read_only,
            None => state.read_only,
        };
        if state.past {
            return Err(Error::user("nothing can be changed while thalweg.as_of is set")
                .code("25006")
                .hint("RESET thalweg.as_of goes back to the present"));
        }
        if read_only {
            return Err(Error::user("nothing can be changed in a read-only transaction")
                .code("25006")
                .hint("BEGIN READ WRITE opens one that can"));
        }
        Ok(())
    }

    /// Whether a change would be refused now.
    pub fn is_read_only(&self) -> bool {
        let state = self.state();
        state.open.as_ref().map_or(state.read_only, |open| open.read_only)
    }

    /// Of the transactions from now on.
    pub fn set_read_only(&self, read_only: bool) {
        self.state().read_only = read_only;
    }

    /// Refuses a statement that commits by itself.
    pub fn check_idle(&self, what: &str) -> Result<()> {
        if self.status() == TransactionStatus::Idle {
            return Ok(());
        }
        Err(Error::user(format!("{what} cannot run inside a transaction"))
            .code("25001")
            .hint("COMMIT or ROLLBACK first"))
    }

    /// Makes a change: part of the open transaction, or committed on return. `change` may wait
    /// for the disk.
    pub async fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Transaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.check_writable()?;
        let (mut transaction, open) = {
            let mut state = self.state();
            let mark = state.owner.map(|role| (OWNER_KEY.to_owned(), owner_text(role)));
            let (mut transaction, open) = match &mut state.open {
                // Not there while `change` runs: an error, or the end of the task, fails it.
                Some(open) => (open.work.take().ok_or_else(failed)?, true),
                None => (state.single.take().unwrap_or_else(|| self.database.begin()), false),
            };
            transaction.mark_new(mark);
            (transaction, open)
        };
        let (value, work) = blocking(move || {
            let value = change(&mut transaction)?;
            if open {
                return Ok((value, Some(transaction)));
            }
            transaction.commit()?;
            Ok((value, None))
        })
        .await
        .map_err(from_datafusion)?;
        if let Some(open) = &mut self.state().open {
            open.work = work;
        }
        Ok(value)
    }

    pub async fn control(&self, control: Control) -> Result<Tag> {
        let done = |word: &str| Ok(Tag::Done(word.into()));
        if matches!(control, Control::Commit | Control::Savepoint(_)) && self.may_hold() {
            self.settle().await?;
        }
        match control {
            Control::Begin { modes, word } => {
                let read_only = access(&modes)?;
                self.refresh().await?;
                let mut state = self.state();
                if let Some(open) = &mut state.open {
                    open.work = None;
                    return Err(Error::user("a transaction is open already")
                        .code("25001")
                        .hint("COMMIT or ROLLBACK ends it; SAVEPOINT marks a place in it"));
                }
                // Before the snapshot is taken.
                let hold = self.database.hold();
                state.open = Some(Open {
                    _hold: hold,
                    work: Some(self.database.begin()),
                    read_only: read_only.unwrap_or(state.read_only),
                    savepoints: vec![],
                    held: Held::default(),
                    reading: vec![],
                });
                done(word)
            }
            Control::Commit => {
                let open = self.state().open.take();
                match open {
                    // As in PostgreSQL: what failed can only be undone.
                    Some(Open { work: None, .. }) => done("ROLLBACK"),
                    Some(Open { work: Some(work), .. }) => {
                        blocking(move || work.commit()).await.map_err(from_datafusion)?;
                        done("COMMIT")
                    }
                    None => done("COMMIT"),
                }
            }
            Control::Rollback => {
                self.state().open = None;
                done("ROLLBACK")
            }
            Control::Savepoint(name) => {
                let mut state = self.state();
                let open = state.open.as_mut().ok_or_else(|| not_open("SAVEPOINT"))?;
                let work = open.work.as_ref().ok_or_else(failed)?.clone();
                open.savepoints.push((name, work));
                done("SAVEPOINT")
            }
            Control::RollbackTo(name) => {
                let mut state = self.state();
                let open = state.open.as_mut().ok_or_else(|| not_open("ROLLBACK TO SAVEPOINT"))?;
                let at = open.find(&name)?;
                open.savepoints.truncate(at + 1);
                open.work = Some(open.savepoints[at].1.clone());
                open.held = Held::default();
                done("ROLLBACK")
            }
            Control::Release(name) => {
                let mut state = self.state();
                let open = state.open.as_mut().ok_or_else(|| not_open("RELEASE SAVEPOINT"))?;
                if open.work.is_none() {
                    return Err(failed());
                }
                let at = open.find(&name)?;
                open.savepoints.truncate(at);
                done("RELEASE")
            }
            Control::Set { modes, session } => {
                let read_only = access(&modes)?;
                let mut state = self.state();
                if session {
                    state.read_only = read_only.unwrap_or(state.read_only);
                    return done("SET");
                }
                let open = state.open.as_mut().ok_or_else(|| not_open("SET TRANSACTION"))?;
                if open.work.is_none() {
                    return Err(failed());
                }
                open.read_only = read_only.unwrap_or(open.read_only);
                done("SET")
            }
        }
    }
}

/// Rows on their way to the client.
pub(crate) struct Reading<'a> {
    transactions: &'a Transactions,
    run: Arc<Run>,
}

impl Reading<'_> {
    pub fn failed(self) {
        self.transactions.read(&self.run, false);
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.transactions.read(&self.run, true);
    }
}

impl Open {
    /// The last savepoint of that name. Without one the transaction fails.
    fn find(&mut self, name: &str) -> Result<usize> {
        let found = self.savepoints.iter().rposition(|(n, _)| n == name);
        found.ok_or_else(|| {
            self.work = None;
            Error::user(format!("there is no savepoint {}", quoted(name))).code("3B001")
        })
    }
}

fn failed() -> Error {
    Error::user("the transaction failed: no statement runs in it any more")
        .code("25P02")
        .hint("ROLLBACK ends it; ROLLBACK TO a savepoint goes back to before the error")
}

fn not_open(what: &str) -> Error {
    Error::user(format!("{what} needs an open transaction")).code("25P01").hint("BEGIN opens one")
}
