//! One database: the store, the catalog's log, the cache, and the current snapshot.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use arrow::array::ArrayRef;
use parking_lot::{Mutex, RwLock};
use thalweg_base::limits::{
    CACHE_MEMORY_PERCENT, CHECKPOINT_COMMITS, CHECKPOINT_COMMITS_BYTES, COMMIT_TRIES_MAX,
    ORPHAN_AGE_MS, RETENTION_MS, WRITE_LOCK_WAIT_MS,
};
use thalweg_base::{Error, ExtentId, Kind, Result, SnapshotId};

use crate::cache::{CacheStats, Key};
use crate::catalog::{
    Checkpoint, Commit, CommitInfo, History, Log, Opened, Summary, changes, gone, other_format,
};
use crate::direct_io::DirectIo;
use crate::extent::{
    Extent, ExtentWriter, FOLDER as EXTENTS, Home, Layout, Limits, Segment, Writing, id_of_object,
};
use crate::pin::{self, Pin};
use crate::rebase::{Operation, new_extents, rebase};
use crate::snapshot::Snapshot;
use crate::store::{self, LocalStore, MemoryStore, RemoteOptions, Store};
use crate::table::ChunkRef;

/// The catalog of format 1.
const OLD_CATALOG: &str = "catalog.redb";
const LOG: &str = "log";

/// The database's own setting of [`RETENTION_MS`].
pub const RETENTION_PROPERTY: &str = "retention_ms";

/// How to open a database.
#[derive(Clone)]
pub struct Options {
    /// Decoded chunks kept in memory.
    pub cache_bytes_max: u64,
    /// Whether to make a database where there is none.
    pub create: bool,
    /// Whether to remove what crashes have left behind, if nobody writes: for a moment nobody else
    /// can.
    pub sweep: bool,
    /// How long to wait for another process that writes.
    pub lock_wait: Duration,
    /// Whether chunks are read past the system's page cache.
    pub direct_io: DirectIo,
    /// How to reach an object store.
    pub remote: RemoteOptions,
    /// Milliseconds since 1970.
    pub now_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Of the ids of tables and extents; two writers of one database must not share it.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            cache_bytes_max: thalweg_base::machine_memory_bytes() / 100 * CACHE_MEMORY_PERCENT,
            create: true,
            sweep: true,
            lock_wait: Duration::from_millis(WRITE_LOCK_WAIT_MS),
            direct_io: DirectIo::default(),
            remote: RemoteOptions::default(),
            now_ms: Arc::new(wall_clock_ms),
            // The standard library's own source of randomness from the system.
            seed: RandomState::new().hash_one(0u64),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("cache_bytes_max", &self.cache_bytes_max)
            .field("create", &self.create)
            .field("lock_wait", &self.lock_wait)
            .finish_non_exhaustive()
    }
}

fn wall_clock_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |d| d.as_millis() as u64)
}

/// Which snapshot is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsOf {
    Snapshot(SnapshotId),
    /// The one that was current at this time, in milliseconds since 1970.
    TimeMs(u64),
}

/// What [`Database::vacuum`] removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vacuumed {
    pub extents: u64,
    pub bytes: u64,
    /// Commits and checkpoints of the log.
    pub log_objects: u64,
}

/// A handle to an open database; clones share it.
#[derive(Clone)]
pub struct Database(Arc<Inner>);

struct Inner {
    path: Option<PathBuf>,
    home: Arc<Home>,
    log: Log,
    current: RwLock<Arc<Snapshot>>,
    /// Held from reading the current snapshot to publishing the next.
    state: Mutex<State>,
    options: Options,
    /// Each [`Hold`] has a share of it.
    holds: Arc<()>,
}

/// Held by whoever has read rows and may change them later, in a transaction of several statements:
/// rewriting that nobody asked for gives way to it.
pub struct Hold {
    _share: Arc<()>,
}

struct State {
    history: History,
    checkpoint: SnapshotId,
    bytes_since_checkpoint: u64,
    /// Extents this process has removed from tables, and when: oldest first. Held until their
    /// retention has passed.
    leaving: VecDeque<(u64, Arc<Extent>)>,
    /// A commit may or may not have been made: nothing can be built on it before it is known.
    uncertain: bool,
}

impl Database {
    /// Opens the database at a path or at a URL such as `s3://bucket/prefix`, or makes one where
    /// there is nothing.
    pub fn open_at(location: &str, options: Options) -> Result<Database> {
        if !store::is_remote(location) {
            return Database::open(Path::new(location), options);
        }
        Database::on(store::open(location, &options.remote)?, None, options)
    }

    /// Opens the database in directory `path`, or makes one if the directory is absent or empty.
    pub fn open(path: &Path, options: Options) -> Result<Database> {
        let exists = match fs::metadata(path) {
            Ok(meta) if !meta.is_dir() => {
                return Err(Error::user(format!(
                    "\"{}\" is a file; a database is a directory",
                    path.display()
                ))
                .hint("name another place, or load the file into a table of a database"));
            }
            Ok(_) => {
                if path.join(OLD_CATALOG).exists() && !path.join(LOG).exists() {
                    let name = format!("the database \"{}\"", path.display());
                    return Err(other_format(&name, 1));
                }
                check_unused(path)?
            }
            Err(e) if e.kind() == ErrorKind::NotFound => false,
            Err(e) => return Err(Error::io(format!("cannot open \"{}\"", path.display()), e)),
        };
        if !exists && !options.create {
            return Err(no_database(&format!("\"{}\"", path.display())));
        }
        let store = Arc::new(LocalStore::open(path));
        Database::on(store, Some(path.to_owned()), options)
    }

    /// A database that is gone with its last handle.
    pub fn memory(options: Options) -> Result<Database> {
        // There is none to be opened: it is made in any case.
        let options = Options { create: true, ..options };
        Database::on(Arc::new(MemoryStore::default()), None, options)
    }

    /// A database in any store.
    pub(crate) fn on(
        store: Arc<dyn Store>,
        path: Option<PathBuf>,
        options: Options,
    ) -> Result<Database> {
        let home =
            Arc::new(Home::new(store, options.cache_bytes_max, options.direct_io, options.seed));
        let log = Log::new(home.clone());
        let opened = match log.open()? {
            Some(opened) => opened,
            None if !options.create => return Err(no_database(&home.store.locate(""))),
            None => {
                // If another process came first, its log is as good.
                log.create((options.now_ms)())?;
                log.open()?.ok_or_else(|| Error::internal("the log just made is not there"))?
            }
        };
        let Opened { history, checkpoint, bytes_since } = opened;
        let database = Database(Arc::new(Inner {
            path,
            current: RwLock::new(history.snapshot.clone()),
            home,
            log,
            state: Mutex::new(State {
                history,
                checkpoint,
                bytes_since_checkpoint: bytes_since,
                leaving: VecDeque::new(),
                uncertain: false,
            }),
            options,
            holds: Arc::default(),
        }));
        // What a crash left behind. Whoever is writing now does it at some other time.
        if database.0.options.sweep
            && !database.0.home.store.is_remote()
            && let Ok(writing) = database.0.home.writing(Duration::ZERO)
        {
            let mut state = database.0.state.lock();
            database.catch_up(&mut state, &writing)?;
            database.sweep(&state, 0)?;
        }
        Ok(database)
    }

    /// The current state, as far as this process knows. As long as the `Arc` lives, its extents
    /// are not removed by this process.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.0.current.read().clone()
    }

    /// The current state, with what other processes have committed: asks the store.
    pub fn refresh(&self) -> Result<Arc<Snapshot>> {
        // Whoever holds it is about to publish something newer.
        if let Some(mut state) = self.0.state.try_lock()
            && !self.excludes_others()
        {
            self.advance(&mut state)?;
        }
        Ok(self.snapshot())
    }

    /// Whether [`refresh`](Self::refresh) may find something, as far as it can be told without
    /// waiting for a network: on a disk of this machine, by one question of a microsecond.
    pub fn may_be_behind(&self) -> bool {
        if self.excludes_others() {
            return false;
        }
        let next = SnapshotId(self.snapshot().id.0 + 1);
        !self.0.home.store.is_on_local_disk() || self.0.log.has(next).unwrap_or(true)
    }

    /// Whether nobody else can have committed since this process last looked.
    fn excludes_others(&self) -> bool {
        self.0.home.store.is_private()
            || self.0.home.is_writing().is_some_and(|w| !w.behind.load(Ordering::Acquire))
    }

    /// Excludes other writing processes until the guard goes: blocks while one is writing.
    pub fn writing(&self) -> Result<Arc<Writing>> {
        self.0.home.writing(self.0.options.lock_wait)
    }

    /// To be taken before the transaction begins that it is for, and kept until that has ended.
    pub fn hold(&self) -> Hold {
        Hold { _share: Arc::clone(&self.0.holds) }
    }

    /// Whether anybody in this process has a [`Hold`].
    pub fn is_held(&self) -> bool {
        Arc::strong_count(&self.0.holds) > 1
    }

    /// A writer of rows, to be appended to a table by a transaction.
    pub fn extent_writer(&self, layout: Layout) -> ExtentWriter {
        self.small_writer(layout, Limits::default())
    }

    pub(crate) fn small_writer(&self, layout: Layout, limits: Limits) -> ExtentWriter {
        ExtentWriter::new(self.0.home.clone(), layout, limits)
    }

    /// The decoded chunk-column, if the cache has it: tens of nanoseconds. `column` is the
    /// table's. A column younger than the chunk needs no reading and is made here. In any form that
    /// [`expand`](crate::expand) takes, as from [`decode`](Self::decode).
    pub fn cached(&self, chunk: &ChunkRef, column: usize) -> Option<ArrayRef> {
        match chunk.place(column) {
            Some(place) => self.0.home.cache.get(key(chunk.extent(), chunk.chunk, place)),
            None => Some(chunk.constant(column)),
        }
    }

    /// What names the column of the chunk wherever it is read; `None`: it is younger than the chunk.
    pub fn chunk_column(&self, chunk: &ChunkRef, column: usize) -> Option<Key> {
        Some(key(chunk.extent(), chunk.chunk, chunk.place(column)?))
    }

    /// Fetches and verifies the compressed bytes of some of the table's columns: input and output,
    /// no decoding. Columns that are younger than the chunk have none: see [`Database::cached`].
    pub fn read(&self, chunk: &ChunkRef, columns: &[usize]) -> Result<Vec<Segment>> {
        let places: Vec<usize> = columns.iter().filter_map(|&c| chunk.place(c)).collect();
        if places.len() != columns.len() {
            return Err(Error::internal("a column that the chunk has not"));
        }
        chunk.extent().read(chunk.metadata(), chunk.chunk, &places)
    }

    /// The same, if that only copies what is in memory: it does not block. `None`: it may be more than
    /// that, or something is wrong, as [`read`](Self::read) will say.
    pub fn read_at_once(&self, chunk: &ChunkRef, columns: &[usize]) -> Option<Vec<Segment>> {
        let places: Option<Vec<usize>> = columns.iter().map(|&c| chunk.place(c)).collect();
        chunk.extent().read_at_once(chunk.metadata(), chunk.chunk, &places?)
    }

    /// Whether [`read`](Self::read) of the same needs no disk, as far as is known: does not block.
    pub fn is_in_memory(&self, chunk: &ChunkRef, columns: &[usize]) -> bool {
        let places: Vec<usize> = columns.iter().filter_map(|&c| chunk.place(c)).collect();
        chunk.extent().is_in_memory(chunk.metadata(), chunk.chunk, &places)
    }

    /// Begins with what [`read`](Self::read) of the same will want, as far as the cache has it not.
    /// Returns those of the columns that come early only if the caller reads them early.
    pub fn read_ahead(&self, chunk: &ChunkRef, columns: &[usize]) -> Vec<usize> {
        let cache = &self.0.home.cache;
        let missing =
            |&(_, place): &(usize, usize)| !cache.has(key(chunk.extent(), chunk.chunk, place));
        let stored = columns.iter().filter_map(|&c| Some((c, chunk.place(c)?)));
        let (columns, places): (Vec<usize>, Vec<usize>) = stored.filter(missing).unzip();
        match chunk.extent().read_ahead(chunk.metadata(), chunk.chunk, &places) {
            true => vec![],
            false => columns,
        }
    }

    /// Decodes a segment and caches it: no input or output. Comes in an *encoded form*, which
    /// [`expand`](crate::expand) turns into the table's Arrow type:
    ///
    /// * strings and binaries (`Utf8View`, `BinaryView`) that are stored as a dictionary or as one
    ///   value: an Arrow dictionary of that type, with keys of `UInt8`, `UInt16` or `UInt32`. NULLs
    ///   are NULL keys, never values; all keys, also NULL ones, are below the number of values;
    /// * whole numbers with a sign, dates, times and timestamps that all fit fewer bits: `Int8`,
    ///   `Int16` or `Int32`;
    /// * `Decimal128(p, s)`, where `s` is at most 18: the same, of the values without their point,
    ///   and if 32 bits are not enough, `Decimal64(18, s)`, whatever `p` is; its values may have
    ///   more digits than its precision says;
    /// * anything else: exactly the table's type.
    pub fn decode(&self, segment: Segment) -> Result<ArrayRef> {
        let started = Instant::now();
        let array = segment.decode()?;
        let key = key(&segment.extent, segment.chunk, segment.place);
        self.0.home.cache.insert(key, &array, started.elapsed());
        Ok(array)
    }

    pub fn cache_stats(&self) -> CacheStats {
        self.0.home.cache.stats()
    }

    /// Of the extents that the current snapshot has.
    pub fn stored_bytes(&self) -> u64 {
        self.snapshot().stored_bytes()
    }

    /// `None`: not a directory of this machine.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Whether asking the store costs a round trip through a network.
    pub fn is_remote(&self) -> bool {
        self.0.home.store.is_remote()
    }

    pub(crate) fn log(&self) -> &Log {
        &self.0.log
    }

    pub(crate) fn new_id(&self) -> u64 {
        self.0.home.new_id()
    }

    pub(crate) fn owns(&self, extent: &Extent) -> bool {
        extent.shares(&self.0.home)
    }

    fn now_ms(&self) -> u64 {
        (self.0.options.now_ms)()
    }

    /// How long snapshots that are no longer current can be asked for. In memory nobody else
    /// reads, and space is dear: not at all, unless set.
    pub fn retention_ms(&self) -> u64 {
        let set = self.snapshot().properties.get(RETENTION_PROPERTY).and_then(|v| v.parse().ok());
        set.unwrap_or(if self.0.home.store.is_private() { 0 } else { RETENTION_MS })
    }

    /// Commits that are remembered, oldest first.
    pub fn history(&self) -> Vec<CommitInfo> {
        self.0.state.lock().history.commits.iter().cloned().collect()
    }

    /// The oldest snapshot that can be asked for.
    pub fn oldest_snapshot(&self) -> SnapshotId {
        self.0.state.lock().history.oldest_kept(self.now_ms(), self.retention_ms())
    }

    /// A snapshot that may no longer be current: reads the log.
    pub fn snapshot_at(&self, as_of: AsOf) -> Result<Arc<Snapshot>> {
        let current = self.refresh()?;
        let retention_ms = self.retention_ms();
        let (oldest, id) = {
            let history = &self.0.state.lock().history;
            let id = match as_of {
                AsOf::Snapshot(id) => id,
                AsOf::TimeMs(time) => {
                    let at = history.commits.iter().rev().find(|c| c.time_ms <= time);
                    let first = history.commits.front();
                    match at {
                        Some(commit) => SnapshotId(commit.id),
                        // Before the first commit there was the empty database.
                        None if first.is_none_or(|c| c.id == 1) => SnapshotId(0),
                        None => return Err(too_old("a snapshot of that time", retention_ms)),
                    }
                }
            };
            (history.oldest_kept(self.now_ms(), retention_ms), id)
        };
        if id == current.id {
            return Ok(current);
        }
        if id > current.id {
            return Err(Error::user(format!(
                "there is no snapshot {id}; the current one is {}",
                current.id
            ))
            .hint("system.snapshots lists them"));
        }
        let name = format!("snapshot {id}");
        if id < oldest {
            return Err(too_old(&name, retention_ms));
        }
        let found = self.0.log.at(id)?;
        Ok(found.ok_or_else(|| too_old(&name, retention_ms))?.snapshot)
    }

    /// Moves on by what other processes have committed.
    fn advance(&self, state: &mut State) -> Result<()> {
        let mut moved = false;
        while let Some(bytes) = self.0.log.advance(&mut state.history)? {
            state.bytes_since_checkpoint += bytes;
            moved = true;
        }
        if moved {
            self.0.log.settle()?;
            *self.0.current.write() = state.history.snapshot.clone();
        }
        Ok(())
    }

    /// The first time after taking the lock, others may have committed; without locks, always.
    fn catch_up(&self, state: &mut State, writing: &Writing) -> Result<()> {
        if !self.excludes_others() {
            self.advance(state)?;
            writing.behind.store(false, Ordering::Release);
        }
        Ok(())
    }

    pub(crate) fn commit(
        &self,
        base: &Snapshot,
        operations: &[Operation],
        mut summary: Summary,
    ) -> Result<Arc<Snapshot>> {
        let inner = &*self.0;
        let writing = self.writing()?;
        let mut state = inner.state.lock();
        if state.uncertain {
            return Err(Error::new(
                Kind::Io,
                "an earlier commit failed so that it is not known whether it was made",
            )
            .hint("open the database again: it then has either all or nothing of it"));
        }
        self.catch_up(&mut state, &writing)?;
        summary.stored_bytes = new_extents(operations).map(|e| e.bytes).sum();
        let mut tries = 0..COMMIT_TRIES_MAX;
        let (current, next, bytes) = loop {
            if tries.next().is_none() {
                return Err(
                    Error::conflict("other processes commit without a pause").hint("try again")
                );
            }
            let current = state.history.snapshot.clone();
            let now = self.now_ms().max(current.time_ms);
            let next = Arc::new(rebase(base, &current, operations, now)?);
            let commit = Commit {
                id: next.id.0,
                time_ms: now,
                summary: summary.clone(),
                changes: changes(&current, &next)?,
            };
            match inner.log.append(&commit) {
                Ok((true, bytes)) => break (current, next, bytes),
                Ok((false, _)) => self.advance(&mut state)?,
                Err(e) => {
                    // Made and not durable is neither, and a request without an answer may still
                    // be under way: only the next opening will tell.
                    if inner.home.store.is_remote() || !matches!(inner.log.has(next.id), Ok(false))
                    {
                        state.uncertain = true;
                        new_extents(operations).for_each(|e| e.keep());
                    }
                    return Err(e);
                }
            }
        };
        new_extents(operations).for_each(|e| e.keep());
        let kept: HashSet<ExtentId> = next.extents().map(|e| e.extent.id).collect();
        // Of what came and went within the transaction there was never a snapshot.
        new_extents(operations).filter(|e| !kept.contains(&e.id)).for_each(|e| e.expire());
        let left = current.extents().filter(|e| !kept.contains(&e.extent.id));
        let left = left.inspect(|e| e.extent.close());
        state.leaving.extend(left.map(|e| (next.time_ms, e.extent.clone())));
        let removed = gone(&current, &next, next.time_ms);
        state.history.push(next.clone(), summary, removed);
        state.bytes_since_checkpoint += bytes;
        *inner.current.write() = next.clone();
        let expired = self.expire(&mut state);
        self.checkpoint(&mut state);
        drop(state);
        // Outside the lock: what nobody else has is removed from the store here.
        drop((current, expired));
        Ok(next)
    }

    /// What left its table at this time or before is needed by nobody: its retention has passed,
    /// and nobody has pinned it. To be asked after it is committed that it left.
    fn expiry_limit(&self) -> Result<u64> {
        let limit = self.retention_limit();
        if self.0.home.store.is_private() {
            return Ok(limit);
        }
        let pinned = pin::oldest(&*self.0.home.store, self.now_ms())?;
        Ok(pinned.map_or(limit, |from| limit.min(from.saturating_sub(1))))
    }

    fn retention_limit(&self) -> u64 {
        self.now_ms().saturating_sub(self.retention_ms())
    }

    /// The newest state, as it is written down; what it names stays until the pin goes.
    ///
    /// The log is read anew, from its last checkpoint: this process may be so far behind that the
    /// commits which would lead it on are gone.
    pub(crate) fn pinned(&self) -> Result<(Pin, Checkpoint)> {
        let (store, now_ms) = (self.0.home.store.clone(), self.0.options.now_ms.clone());
        let pin = Pin::new(store, now_ms, self.snapshot().time_ms)?;
        let opened = self.0.log.open()?;
        let opened = opened.ok_or_else(|| no_database(&self.0.home.store.locate("")))?;
        let checkpoint = opened.history.to_checkpoint()?;
        Ok((pin, checkpoint))
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.0.home.store
    }

    /// Takes out the extents whose retention has passed.
    fn expire(&self, state: &mut State) -> Vec<Arc<Extent>> {
        let limit = self.retention_limit();
        let due = |time: u64| time <= limit;
        let any = state.leaving.front().is_some_and(|(time, _)| due(*time))
            || state.history.removed.iter().any(|r| due(r.time_ms));
        // Where the pins cannot be asked for, the next commit does it.
        let Some(limit) = any.then(|| self.expiry_limit()).and_then(Result::ok) else {
            return Vec::new();
        };
        let mut expired = Vec::new();
        while let Some((_, extent)) = state.leaving.pop_front_if(|(time, _)| *time <= limit) {
            extent.expire();
            expired.push(extent);
        }
        state.history.removed.retain(|r| r.time_ms > limit);
        expired
    }

    /// Now and then, and then cuts off the log's old end.
    fn checkpoint(&self, state: &mut State) {
        let id = state.history.snapshot.id;
        let due = id.0 - state.checkpoint.0 >= CHECKPOINT_COMMITS
            || state.bytes_since_checkpoint >= CHECKPOINT_COMMITS_BYTES;
        // A failure costs time at the next opening, and nothing else: the commits are there.
        if due && self.0.log.checkpoint(&state.history).is_ok() {
            state.checkpoint = id;
            state.bytes_since_checkpoint = 0;
            let oldest = state.history.oldest_kept(self.now_ms(), self.retention_ms());
            let _ = self.0.log.trim(oldest);
        }
    }

    /// Removes what only snapshots beyond the retention need, and what crashes have left.
    pub fn vacuum(&self) -> Result<Vacuumed> {
        let writing = self.writing()?;
        let mut state = self.0.state.lock();
        self.catch_up(&mut state, &writing)?;
        let expired = self.expire(&mut state);
        let mut report = Vacuumed {
            extents: expired.len() as u64,
            bytes: expired.iter().map(|e| e.bytes).sum(),
            log_objects: 0,
        };
        drop(expired);
        if state.history.snapshot.id > state.checkpoint {
            self.0.log.checkpoint(&state.history)?;
            state.checkpoint = state.history.snapshot.id;
            state.bytes_since_checkpoint = 0;
        }
        let oldest = state.history.oldest_kept(self.now_ms(), self.retention_ms());
        report.log_objects = self.0.log.trim(oldest)? as u64;
        let age_ms = if writing.excludes_others() { 0 } else { ORPHAN_AGE_MS };
        let (extents, bytes) = self.sweep(&state, age_ms)?;
        report.extents += extents;
        report.bytes += bytes;
        Ok(report)
    }

    /// Removes extents of at least an age that no snapshot names which may be asked for: of
    /// interrupted writers, and of removals whose retention has passed. The caller excludes other
    /// writers. Returns how many, and their bytes.
    fn sweep(&self, state: &State, age_ms: u64) -> Result<(u64, u64)> {
        let (now, limit) = (self.now_ms(), self.expiry_limit()?);
        let mut kept: HashSet<ExtentId> =
            state.history.snapshot.extents().map(|e| e.extent.id).collect();
        let removed = state.history.removed.iter().filter(|r| r.time_ms > limit);
        kept.extend(removed.map(|r| ExtentId(r.extent)));
        let old = |modified: SystemTime| {
            let modified = modified.duration_since(SystemTime::UNIX_EPOCH);
            let modified_ms = modified.map_or(0, |d| d.as_millis() as u64);
            age_ms == 0 || now.saturating_sub(modified_ms) >= age_ms
        };
        let (mut extents, mut bytes) = (0, 0);
        for object in self.0.home.store.list(EXTENTS)? {
            // A file that we would not name so is not ours to remove.
            let Some(id) = id_of_object(&object.name) else { continue };
            if kept.contains(&id) || self.0.home.is_alive(id) || !old(object.modified) {
                continue;
            }
            self.0.home.store.remove(&object.name)?;
            extents += 1;
            bytes += object.bytes;
        }
        Ok((extents, bytes))
    }
}

fn no_database(place: &str) -> Error {
    Error::user(format!("there is no database at {place}"))
        .hint("check the path; a new database must be asked for")
}

fn too_old(what: &str, retention_ms: u64) -> Error {
    Error::user(format!("{what} is no longer kept"))
        .detail(format!("snapshots are kept for {} s after they are replaced", retention_ms / 1000))
        .hint("SET thalweg.retention_ms sets how long, for the future; system.snapshots lists what there is")
}

fn key(extent: &Extent, chunk: usize, place: usize) -> Key {
    Key { extent: extent.id, chunk: chunk as u32, column: place as u32 }
}

/// Whether a directory has a database. Refuses one with something else in it; an interrupted
/// creation is not something else.
fn check_unused(path: &Path) -> Result<bool> {
    let cannot_read = |e| Error::io(format!("cannot read directory \"{}\"", path.display()), e);
    let mut other = None;
    for entry in fs::read_dir(path).map_err(cannot_read)? {
        let name = entry.map_err(cannot_read)?.file_name();
        if name == LOG {
            return Ok(true);
        }
        let stray = name == EXTENTS.trim_end_matches('/')
            && fs::read_dir(path.join(&name)).map_err(cannot_read)?.next().is_some();
        if stray
            || ![EXTENTS.trim_end_matches('/'), "lost+found", "lock"].iter().any(|n| name == *n)
        {
            other = Some(name);
        }
    }
    match other {
        None => Ok(false),
        Some(name) => {
            Err(Error::user(format!("\"{}\" is not a database, and not empty", path.display()))
                .detail(format!("it has no {LOG:?} folder, but a {name:?}"))
                .hint("name a directory that is empty or does not exist yet"))
        }
    }
}

#[cfg(test)]
mod faults;
#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod tests;
