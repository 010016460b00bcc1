//! `thalweg load` and `COPY … FROM`: files become tables, in parallel over files and inside them.
//!
//! 1. `prepare.rs`: which files, which columns; what has to be found out or added.
//! 2. `read.rs`: workers read, parse and encode into extents, within a bound of memory.
//! 3. Here: the extents of all tables are committed in one transaction; or, if so asked, those of
//!    some files at a time.
//! 4. `reject_file.rs`: the rows that were left out, for a person or a program to mend.

mod prepare;
mod read;
mod reject_file;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use thalweg_base::limits::LOAD_MEMORY_BYTES;
use thalweg_base::{Error, Result};
use thalweg_storage::load::{CsvOptions, Format, InferredColumn, Reject};
use thalweg_storage::{Snapshot, Summary, Transaction};

use crate::access::{Object, PG_READ_SERVER_FILES, PG_WRITE_SERVER_FILES, Privilege, Viewer};
use crate::session::Inner;
pub use prepare::table_name;
use prepare::{Prepared, prepare};
use read::{Staged, read};
pub use thalweg_storage::load::stamp;

/// Files for one table.
#[derive(Clone, Debug, Default)]
pub struct LoadRequest {
    /// `table` or `schema.table`. Made if it is not there, else appended to.
    pub table: String,
    /// Files, folders and globs.
    pub files: Vec<String>,
    /// `None`: by extension and content, file by file; they must agree.
    pub format: Option<Format>,
    /// The dialect, for files that turn out to be CSV; `None`: found out.
    pub csv: Option<CsvOptions>,
    /// Options by the names they have in SQL, for whichever format the files turn out to have; one that
    /// it has not is an error.
    pub options: Vec<(String, Vec<String>)>,
    /// `a INT, b DECIMAL(12, 2) NOT NULL`; `None`: the table's, or inferred.
    pub columns: Option<String>,
    /// Types by column, instead of those that are found in the files.
    pub types: Vec<(String, String)>,
    /// Which columns of the table those of the files are, in their order; `None`: by name if the
    /// files have names, else all.
    pub input_columns: Option<Vec<String>>,
    /// For a table that is made.
    pub cluster_by: Vec<String>,
    /// For a table that is made: a column, and into how many buckets its hash goes.
    pub partition_by: Option<(String, u32)>,
    pub new_columns: NewColumns,
}

/// What becomes of columns that the files have and the table has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NewColumns {
    /// The load fails.
    #[default]
    Refuse,
    /// The table gets them, of the type that all files together need; rows that are there have
    /// NULL.
    Add,
    /// They are left out.
    Ignore,
}

/// Files for tables, and how they are loaded.
#[derive(Clone, Debug)]
pub struct Load {
    pub requests: Vec<LoadRequest>,
    /// Bad rows, of all tables together, that are left out before the load fails.
    pub rejects_max: u64,
    /// Where they are written, as CSV.
    pub reject_file: Option<PathBuf>,
    /// What input and rows may take in memory.
    pub memory_bytes: usize,
    /// `None`: everything is one transaction.
    pub commit_every: Option<CommitEvery>,
    /// Files that a table is known to have, going by their paths, are not loaded again.
    pub resume: bool,
    /// The catalog remembers which files the tables have.
    pub remember: bool,
}

/// As a list of queries shows it: `LOAD orders (3 files), items (1 file)`.
impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LOAD ")?;
        for (i, request) in self.requests.iter().enumerate() {
            let (comma, files) = (if i == 0 { "" } else { ", " }, request.files.len());
            let noun = if files == 1 { "file" } else { "files" };
            write!(f, "{comma}{} ({files} {noun})", request.table)?;
        }
        Ok(())
    }
}

/// How much is loaded in one transaction: whole files, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitEvery {
    Files(u64),
    Bytes(u64),
}

impl From<Vec<LoadRequest>> for Load {
    fn from(requests: Vec<LoadRequest>) -> Self {
        Load {
            requests,
            rejects_max: 0,
            reject_file: None,
            memory_bytes: LOAD_MEMORY_BYTES,
            commit_every: None,
            resume: false,
            remember: false,
        }
    }
}

/// How far a load is, readable at any time.
#[derive(Debug, Default)]
pub struct LoadProgress {
    /// The columns are being found out; then the same bytes are read again.
    pub inferring: AtomicBool,
    pub rows: AtomicU64,
    pub rejected: AtomicU64,
    /// Of the files on disk, compressed ones as they lie there.
    pub bytes_done: AtomicU64,
    pub bytes_total: AtomicU64,
    /// Files of which the rows are committed, where that happens more than once.
    pub files_committed: AtomicU64,
    pub table: Mutex<String>,
}

/// What a load did to one table.
#[derive(Clone, Debug)]
pub struct LoadReport {
    pub table: String,
    pub created: bool,
    pub rows: u64,
    /// Of the files on disk.
    pub raw_bytes: u64,
    pub stored_bytes: u64,
    pub seconds: f64,
    pub files: usize,
    pub extents: usize,
    pub chunks: usize,
    /// The table's, after the load.
    pub columns: SchemaRef,
    pub changes: ColumnChanges,
    /// Rows left out, in the order of the input.
    pub rejects: Vec<Arc<Reject>>,
    /// Files that were loaded before.
    pub skipped: usize,
    pub transactions: usize,
}

/// How a table's columns came about, and how those of the files met them.
#[derive(Clone, Debug, Default)]
pub struct ColumnChanges {
    /// Of a table that was made, unless they were declared.
    pub inferred: Option<Vec<InferredColumn>>,
    /// New in a table that was there.
    pub added: Vec<InferredColumn>,
    /// Columns of the table and the number of files without them, whose rows have the default.
    pub missing: BTreeMap<String, usize>,
    /// Columns left out and the number of files that have them.
    pub ignored: BTreeMap<String, usize>,
}

/// What a load would do to one table; nothing is changed.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    pub table: String,
    /// The table is not there yet.
    pub creates: bool,
    pub files: Vec<PathBuf>,
    pub columns: SchemaRef,
    pub changes: ColumnChanges,
    /// `CREATE TABLE …`, or `ALTER TABLE … ADD COLUMN …` for each column added.
    pub sql: Vec<String>,
    pub skipped: usize,
    /// Rows looked at; `None` if that was not needed.
    pub rows: Option<u64>,
}

/// What is known of the rows left out so far.
struct Rejected {
    max: u64,
    rows: Vec<Arc<Reject>>,
}

impl Rejected {
    /// How many more there may be.
    fn left(&self) -> u64 {
        self.max.saturating_sub(self.rows.len() as u64)
    }
}

/// `thalweg load`: transactions of its own.
pub(crate) async fn run(
    session: &Inner,
    load: Load,
    progress: &Arc<LoadProgress>,
) -> Result<Vec<LoadReport>> {
    session.transactions.settle().await?;
    let (snapshot, viewer) = session.begin_statement()?;
    let result = match may_load(&viewer, &snapshot, &load) {
        Ok(()) => in_transactions(session, snapshot, load, progress).await,
        Err(e) => Err(e),
    };
    session.transactions.end_statement(result.is_ok());
    result
}

/// What is loaded are files of the server; a table that is not there is made.
pub(crate) fn may_load(viewer: &Viewer, snapshot: &Snapshot, load: &Load) -> Result<()> {
    viewer.check_member(PG_READ_SERVER_FILES, "read files of the server")?;
    if load.reject_file.is_some() {
        viewer.check_member(PG_WRITE_SERVER_FILES, "write files of the server")?;
    }
    for request in &load.requests {
        let (schema, name) = table_name(&request.table)?;
        let of_schema = Object::Schema(schema.clone());
        viewer.check(Privilege::Usage, &of_schema)?;
        let is_there = snapshot.table(&schema, &name).is_some();
        let table = Object::Relation(schema, name);
        if is_there {
            viewer.check(Privilege::Insert, &table)?;
        } else {
            viewer.check(Privilege::Create, &of_schema)?;
        }
        if is_there && request.new_columns == NewColumns::Add {
            viewer.check_owner(&table)?;
        }
    }
    Ok(())
}

/// `COPY … FROM`: part of the statement that runs.
pub(crate) async fn copy_from(
    session: &Inner,
    snapshot: Arc<Snapshot>,
    load: Load,
) -> Result<Vec<LoadReport>> {
    if load.commit_every.is_some() {
        return Err(Error::user("a statement cannot commit in between"));
    }
    in_transactions(session, snapshot, load, &Arc::default()).await
}

/// What `load` would do, found out but for the rows themselves.
pub(crate) async fn plan(
    session: &Inner,
    load: Load,
    progress: &Arc<LoadProgress>,
) -> Result<Vec<LoadPlan>> {
    session.transactions.settle().await?;
    let (snapshot, viewer) = session.begin_statement()?;
    let result = match may_load(&viewer, &snapshot, &load) {
        Ok(()) => prepare_all(session, &snapshot, &load, progress).await,
        Err(e) => Err(e),
    };
    session.transactions.end_statement(result.is_ok());
    result?.into_iter().map(Prepared::into_plan).collect()
}

async fn prepare_all(
    session: &Inner,
    snapshot: &Snapshot,
    load: &Load,
    progress: &Arc<LoadProgress>,
) -> Result<Vec<Prepared>> {
    let mut prepared = vec![];
    let mut rejected = Rejected { max: load.rejects_max, rows: vec![] };
    for request in &load.requests {
        match prepare(session, snapshot, request, load, &mut rejected, progress).await {
            Ok(one) => prepared.push(one),
            Err(e) => {
                // The pass over the input that finds the columns finds bad rows, too.
                reject_file::write(load.reject_file.as_deref(), rejected.rows).await?;
                return Err(e);
            }
        }
    }
    progress.inferring.store(false, Ordering::Relaxed);
    Ok(prepared)
}

async fn in_transactions(
    session: &Inner,
    snapshot: Arc<Snapshot>,
    load: Load,
    progress: &Arc<LoadProgress>,
) -> Result<Vec<LoadReport>> {
    session.transactions.check_writable()?;
    let prepared = prepare_all(session, &snapshot, &load, progress).await?;
    progress.bytes_done.store(0, Ordering::Relaxed);
    let total: u64 = prepared.iter().flat_map(|p| &p.files).map(|f| f.stamp.bytes).sum();
    progress.bytes_total.store(total, Ordering::Relaxed);
    let mut rejected = Rejected { max: load.rejects_max, rows: vec![] };
    let result = match load.commit_every {
        None => at_once(session, prepared, &load, &mut rejected, progress).await,
        Some(every) => in_steps(session, prepared, every, &load, &mut rejected, progress).await,
    };
    if result.is_err() {
        // Of a load that succeeds they are written before it commits.
        reject_file::write(load.reject_file.as_deref(), rejected.rows).await?;
    }
    result
}

/// Everything in one transaction.
async fn at_once(
    session: &Inner,
    prepared: Vec<Prepared>,
    load: &Load,
    rejected: &mut Rejected,
    progress: &Arc<LoadProgress>,
) -> Result<Vec<LoadReport>> {
    let mut staged = vec![];
    for table in prepared {
        let files = table.files.clone();
        staged.push(read(session, &Arc::new(table), files, load, rejected, progress).await?);
    }
    reject_file::write(load.reject_file.as_deref(), rejected.rows.clone()).await?;
    commit(session, staged).await
}

/// A transaction for every so many files; each is all or nothing.
async fn in_steps(
    session: &Inner,
    prepared: Vec<Prepared>,
    every: CommitEvery,
    load: &Load,
    rejected: &mut Rejected,
    progress: &Arc<LoadProgress>,
) -> Result<Vec<LoadReport>> {
    let mut reports: Vec<LoadReport> = vec![];
    let mut first = true;
    for table in prepared {
        let mut table = Arc::new(table);
        let mut left: VecDeque<_> = table.files.iter().cloned().collect();
        let mut report: Option<LoadReport> = None;
        loop {
            let mut step = vec![];
            let mut bytes = 0;
            while let Some(file) = left.pop_front() {
                bytes += file.stamp.bytes;
                step.push(file);
                let full = match every {
                    CommitEvery::Files(most) => step.len() as u64 >= most,
                    CommitEvery::Bytes(most) => bytes >= most,
                };
                if full {
                    break;
                }
            }
            if step.is_empty() && report.is_some() {
                break;
            }
            if !std::mem::take(&mut first) {
                session.transactions.end_statement(true);
                let (snapshot, _) = session.begin_statement()?;
                if report.is_some() {
                    table = Arc::new(table.again(&snapshot)?);
                }
            }
            let files = step.len() as u64;
            let staged = read(session, &table, step, load, rejected, progress).await?;
            reject_file::write(load.reject_file.as_deref(), rejected.rows.clone()).await?;
            for next in commit(session, vec![staged]).await? {
                match &mut report {
                    Some(report) => report.add(next),
                    None => report = Some(next),
                }
            }
            progress.files_committed.fetch_add(files, Ordering::Relaxed);
        }
        reports.extend(report);
    }
    Ok(reports)
}

async fn commit(session: &Inner, staged: Vec<Staged>) -> Result<Vec<LoadReport>> {
    let started = staged.iter().map(|s| s.started).min().unwrap_or_else(Instant::now);
    let mut summary = Summary { operation: "LOAD".into(), ..Summary::default() };
    let mut reports = vec![];
    let mut changes = vec![];
    for staged in staged {
        let (report, change) = staged.split();
        let separator = if summary.table.is_empty() { "" } else { ", " };
        summary.table += &format!("{separator}{}", change.full_name());
        summary.rows_added += report.rows;
        summary.files += report.files as u64;
        summary.raw_bytes += report.raw_bytes;
        summary.stored_bytes += report.stored_bytes;
        summary.rejected += report.rejects.len() as u64;
        reports.push(report);
        changes.push(change);
    }
    let change = move |transaction: &mut Transaction| {
        for change in changes {
            change.apply(transaction)?;
        }
        summary.millis = started.elapsed().as_millis() as u64;
        transaction.describe(summary);
        Ok(())
    };
    session.transactions.write(change).await?;
    Ok(reports)
}

impl LoadReport {
    /// Takes in what a later transaction did to the same table.
    fn add(&mut self, next: LoadReport) {
        self.rows += next.rows;
        self.raw_bytes += next.raw_bytes;
        self.stored_bytes += next.stored_bytes;
        self.seconds += next.seconds;
        self.files += next.files;
        self.extents += next.extents;
        self.chunks += next.chunks;
        self.rejects.extend(next.rejects);
        self.transactions += next.transactions;
        for (mine, theirs) in [
            (&mut self.changes.missing, next.changes.missing),
            (&mut self.changes.ignored, next.changes.ignored),
        ] {
            theirs.into_iter().for_each(|(name, files)| *mine.entry(name).or_default() += files);
        }
    }
}
