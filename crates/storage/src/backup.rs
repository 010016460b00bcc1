//! Backups: copies of a database as it was at one commit, and back.
//!
//! ```text
//! archive/
//!   backups/00000000000000000012.checkpoint  the catalog as of commit 12
//!   extents/5f3a9c0d12e45b67.vortex          rows, of all backups together
//! ```
//! A place holds any number of backups of one database. Extents never change and their names are
//! never used twice, so each backup adds those that are not there yet and nothing else. The
//! checkpoint is what the log would have: a backup is a database without its log, and restoring it
//! is to copy the extents and then to put the checkpoint in the log's place. Both are the last
//! object made, by *put if absent*: without it there is no backup, and no database.
//!
//! The database may be in use, by other processes too: a [pin](crate::pin) keeps the extents.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use thalweg_base::limits::{BACKUP_COPIES_MAX, BACKUP_PIECE_BYTES};
use thalweg_base::{Error, ExtentId, Result, SnapshotId};

use crate::catalog::{
    Change, Checkpoint, ExtentRecord, FrameKind, LOG, checkpoint_name, damaged, frame, unframe,
};
use crate::database::{Database, Options};
use crate::extent::{FOLDER as EXTENTS, object_name};
use crate::store::{self, RemoteOptions, Store};

const FOLDER: &str = "backups/";
const ENDING: &str = ".checkpoint";

/// How far a copy is; read and stop it from another thread.
#[derive(Debug, Default)]
pub struct CopyProgress {
    pub bytes_done: AtomicU64,
    /// 0 while it is not known yet.
    pub bytes_total: AtomicU64,
    /// It ends at the next piece, in an error of kind `Cancelled`.
    pub stop: AtomicBool,
}

impl CopyProgress {
    fn add(&self, bytes: u64) -> Result<()> {
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::cancelled("cancelled")
                .hint("run the command again: what is copied stays copied"));
        }
        Ok(())
    }
}

/// What [`Database::backup`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupReport {
    pub info: BackupInfo,
    /// Those that were not there yet.
    pub extents_copied: u64,
    pub bytes_copied: u64,
    /// There was a backup of this snapshot already.
    pub was_there: bool,
}

/// A backup that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupInfo {
    pub snapshot: SnapshotId,
    /// When the snapshot was committed: milliseconds since 1970.
    pub time_ms: u64,
    pub tables: u64,
    pub extents: u64,
    pub bytes: u64,
}

/// What [`restore`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreReport {
    pub info: BackupInfo,
    /// Not those that an interrupted restoration had copied.
    pub bytes_copied: u64,
}

impl Database {
    /// Copies the newest snapshot to `place`, a directory or a URL such as `s3://bucket/prefix`,
    /// while others may write. Every byte is verified on its way. With `verify`, all extents of the
    /// backup are read again where they are now, also those that earlier backups have copied; what
    /// is damaged there is copied anew.
    ///
    /// # Errors
    /// `place` holds something else, or backups of another database. After any error the same call
    /// goes on where this one stopped.
    pub fn backup(
        &self,
        place: &str,
        remote: &RemoteOptions,
        verify: bool,
        progress: &CopyProgress,
    ) -> Result<BackupReport> {
        backup_to(self, &store::open(place, remote)?, verify, progress)
    }
}

fn backup_to(
    database: &Database,
    to: &Arc<dyn Store>,
    verify: bool,
    progress: &CopyProgress,
) -> Result<BackupReport> {
    check_place(&**to)?;
    let _alone = to.lock(Duration::ZERO)?;
    let (pin, checkpoint) = database.pinned()?;
    // Of files that no table names any more, none are in the backup.
    let checkpoint = Checkpoint { removed: Vec::new(), ..checkpoint };
    let info = describe(&checkpoint);
    let newest = match listed(&**to)?.last() {
        Some(&id) => Some(read(&**to, id)?),
        None => None,
    };
    if let Some(newest) = &newest {
        check_same_database(newest, &checkpoint, &to.locate(""))?;
    }
    let was_there = newest.as_ref().is_some_and(|newest| newest.id == checkpoint.id);
    let trusted: HashSet<u64> = match verify {
        true => HashSet::new(),
        false => newest.iter().flat_map(extents).map(|e| e.id).collect(),
    };
    let copy = Copy {
        from: &**database.store(),
        to: &**to,
        trusted,
        verify,
        progress,
        alive: &|| pin.renew(),
    };
    let copied = copy.all(&extents(&checkpoint).collect::<Vec<_>>())?;
    if !was_there {
        let name = name(checkpoint.id);
        if !to.put_new(&name, &frame(FrameKind::Checkpoint, &checkpoint)?)? {
            return Err(Error::conflict(format!("{} is there already", to.locate(&name)))
                .hint("another backup to the same place ran meanwhile"));
        }
    }
    Ok(BackupReport { info, extents_copied: copied.extents, bytes_copied: copied.bytes, was_there })
}

/// The backups in `place`, oldest first.
pub fn backups(place: &str, remote: &RemoteOptions) -> Result<Vec<BackupInfo>> {
    let store = store::open(place, remote)?;
    listed(&*store)?.into_iter().map(|id| Ok(describe(&read(&*store, id)?))).collect()
}

/// Reads every extent of a backup and compares checksums; `None`: of the newest.
pub fn verify_backup(
    place: &str,
    snapshot: Option<SnapshotId>,
    remote: &RemoteOptions,
    progress: &CopyProgress,
) -> Result<BackupInfo> {
    let store = store::open(place, remote)?;
    let checkpoint = chosen(&*store, snapshot)?;
    let records: Vec<&ExtentRecord> = extents(&checkpoint).collect();
    progress.bytes_total.store(records.iter().map(|e| e.bytes).sum(), Ordering::Relaxed);
    for record in records {
        if !is_intact(&*store, record, &|bytes| progress.add(bytes))? {
            return Err(damaged_extent(&*store, record, "its checksum is another"));
        }
    }
    Ok(describe(&checkpoint))
}

/// Makes a database of a backup: at `target`, where there must be none. `None`: of the newest.
///
/// # Errors
/// After any error there is no database at `target`, and the same call goes on where this one
/// stopped.
pub fn restore(
    place: &str,
    target: &str,
    snapshot: Option<SnapshotId>,
    remote: &RemoteOptions,
    progress: &CopyProgress,
) -> Result<RestoreReport> {
    let (from, to) = (store::open(place, remote)?, store::open(target, remote)?);
    if !store::is_remote(target) {
        check_folder(Path::new(target))?;
    }
    restore_to(&*from, &to, snapshot, progress)
}

fn restore_to(
    from: &dyn Store,
    to: &Arc<dyn Store>,
    snapshot: Option<SnapshotId>,
    progress: &CopyProgress,
) -> Result<RestoreReport> {
    let checkpoint = chosen(from, snapshot)?;
    let info = describe(&checkpoint);
    let target = to.locate("");
    let alone = to.lock(Duration::ZERO)?;
    let is_database = !to.list(LOG)?.is_empty();
    if is_database {
        return Err(Error::user(format!("there is a database at {target}"))
            .hint("a backup is restored to a place where nothing is; move the database away, or name another place"));
    }
    let records: Vec<&ExtentRecord> = extents(&checkpoint).collect();
    let ours: HashSet<String> = records.iter().map(|e| object_name(ExtentId(e.id))).collect();
    if let Some(stray) = to.list(EXTENTS)?.into_iter().find(|o| !ours.contains(&o.name)) {
        return Err(Error::user(format!("{target} is not empty"))
            .detail(format!("{} is not of this backup", to.locate(&stray.name)))
            .hint("name a place where nothing is"));
    }
    let copy = Copy {
        from,
        to: &**to,
        trusted: HashSet::new(),
        verify: false,
        progress,
        alive: &|| Ok(()),
    };
    let copied = copy.all(&records)?;
    let name = checkpoint_name(checkpoint.id);
    if !to.put_new(&name, &frame(FrameKind::Checkpoint, &checkpoint)?)? {
        return Err(Error::conflict(format!("{} is there already", to.locate(&name)))
            .hint("somebody else restores to the same place"));
    }
    // That it opens is the proof.
    let options = Options { create: false, sweep: false, cache_bytes_max: 0, ..Options::default() };
    drop(alone);
    let restored = Database::on(to.clone(), None, options)?.snapshot();
    if restored.id != info.snapshot {
        return Err(Error::internal(format!(
            "the restored database is at {}, not at {}",
            restored.id, info.snapshot
        )));
    }
    Ok(RestoreReport { info, bytes_copied: copied.bytes })
}

/// What goes from one store to another.
struct Copy<'a> {
    from: &'a dyn Store,
    to: &'a dyn Store,
    /// Extents that need not be read again if they are there.
    trusted: HashSet<u64>,
    /// Read again what was written.
    verify: bool,
    progress: &'a CopyProgress,
    /// Called often, by all threads.
    alive: &'a (dyn Fn() -> Result<()> + Sync),
}

#[derive(Debug, Default)]
struct Copied {
    extents: u64,
    bytes: u64,
}

impl Copy<'_> {
    /// Several at a time; the first error ends all.
    fn all(&self, records: &[&ExtentRecord]) -> Result<Copied> {
        self.progress.bytes_total.store(records.iter().map(|e| e.bytes).sum(), Ordering::Relaxed);
        let there: HashMap<String, u64> =
            self.to.list(EXTENTS)?.into_iter().map(|object| (object.name, object.bytes)).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut copied = Copied::default();
            while let Some(record) = records.get(next.fetch_add(1, Ordering::Relaxed)) {
                let done = self.one(record, &there).inspect_err(|_| {
                    next.store(records.len(), Ordering::Relaxed);
                })?;
                copied.extents += u64::from(done);
                copied.bytes += if done { record.bytes } else { 0 };
            }
            Ok(copied)
        };
        std::thread::scope(|scope| {
            let threads = BACKUP_COPIES_MAX.min(records.len());
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let mut all = Ok(Copied::default());
            for thread in threads {
                let done = thread.join();
                let done =
                    done.unwrap_or_else(|_| Err(Error::internal("a copying thread panicked")));
                all = match (all, done) {
                    (Ok(a), Ok(b)) => {
                        Ok(Copied { extents: a.extents + b.extents, bytes: a.bytes + b.bytes })
                    }
                    (Err(e), _) | (_, Err(e)) => Err(e),
                };
            }
            all
        })
    }

    /// `false`: it was there.
    fn one(&self, record: &ExtentRecord, there: &HashMap<String, u64>) -> Result<bool> {
        let name = object_name(ExtentId(record.id));
        match there.get(&name) {
            Some(bytes) if *bytes == record.bytes && self.trusted.contains(&record.id) => {
                self.step(record.bytes)?;
                return Ok(false);
            }
            Some(bytes) if *bytes == record.bytes => {
                if is_intact(self.to, record, &|bytes| self.step(bytes))? {
                    return Ok(false);
                }
                self.back(record.bytes);
                self.to.remove(&name)?;
            }
            // Cut off, by a crash.
            Some(_) => self.to.remove(&name)?,
            None => {}
        }
        if !self.copy(record, &name)? {
            // A copy of it in a cache was damaged, and is forgotten.
            self.back(record.bytes);
            if !self.copy(record, &name)? {
                return Err(damaged_extent(self.from, record, "its checksum is another"));
            }
        }
        if self.verify && !is_intact(self.to, record, &|_| self.step(0))? {
            return Err(damaged_extent(self.to, record, "it was not stored as it was written"));
        }
        Ok(true)
    }

    /// `false`: what was read was a damaged copy, and nothing is written.
    fn copy(&self, record: &ExtentRecord, name: &str) -> Result<bool> {
        let mut writer = self.to.create(name)?;
        let intact = read_all(self.from, record, &mut |piece| {
            writer.write(piece)?;
            self.step(piece.len() as u64)
        })?;
        if intact {
            writer.finish()?;
            return Ok(true);
        }
        drop(writer);
        if self.from.forget(name) {
            return Ok(false);
        }
        Err(damaged_extent(self.from, record, "its checksum is another"))
    }

    fn step(&self, bytes: u64) -> Result<()> {
        (self.alive)()?;
        self.progress.add(bytes)
    }

    /// It was counted, and is to be done again.
    fn back(&self, bytes: u64) {
        self.progress.bytes_done.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Whether an extent is as it was written. One of another length or that is missing is not.
fn is_intact(
    store: &dyn Store,
    record: &ExtentRecord,
    step: &dyn Fn(u64) -> Result<()>,
) -> Result<bool> {
    read_all(store, record, &mut |piece| step(piece.len() as u64))
}

/// Reads an extent piece by piece; returns whether it has the checksum that it should.
fn read_all(
    store: &dyn Store,
    record: &ExtentRecord,
    take: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<bool> {
    let name = object_name(ExtentId(record.id));
    let mut hasher = crc32fast::Hasher::new();
    let mut at = 0;
    while at < record.bytes {
        let end = (at + BACKUP_PIECE_BYTES).min(record.bytes);
        for piece in store.read(&name, record.bytes, std::slice::from_ref(&(at..end)))? {
            hasher.update(&piece);
            take(&piece)?;
        }
        at = end;
    }
    Ok(hasher.finalize() == record.checksum)
}

fn damaged_extent(store: &dyn Store, record: &ExtentRecord, why: &str) -> Error {
    let name = object_name(ExtentId(record.id));
    Error::corrupt(format!("extent {} is damaged", store.locate(&name)))
        .detail(why)
        .hint("thalweg check tells what else is; another backup may have it")
}

fn name(id: u64) -> String {
    format!("{FOLDER}{id:020}{ENDING}")
}

/// The snapshots that there are backups of, ascending.
fn listed(store: &dyn Store) -> Result<Vec<u64>> {
    let objects = store.list(FOLDER)?.into_iter();
    let ids = objects.filter_map(|object| {
        let id = object.name.strip_prefix(FOLDER)?.strip_suffix(ENDING)?.parse().ok()?;
        (object.name == name(id)).then_some(id)
    });
    let mut ids: Vec<u64> = ids.collect();
    ids.sort_unstable();
    Ok(ids)
}

fn chosen(store: &dyn Store, snapshot: Option<SnapshotId>) -> Result<Checkpoint> {
    let ids = listed(store)?;
    let place = store.locate("");
    let Some(&newest) = ids.last() else {
        return Err(Error::user(format!("there is no backup at {place}"))
            .hint(format!("thalweg backup DB makes one; one has the folder {FOLDER:?}")));
    };
    let id = snapshot.map_or(newest, |s| s.0);
    if ids.contains(&id) {
        return read(store, id);
    }
    let earlier = ids.iter().rev().find(|i| **i < id);
    let later = ids.iter().find(|i| **i > id);
    let near: Vec<String> = earlier.into_iter().chain(later).map(u64::to_string).collect();
    Err(Error::user(format!("there is no backup of snapshot {id} at {place}"))
        .hint(format!("there is one of snapshot {}", near.join(" and one of snapshot "))))
}

fn read(store: &dyn Store, id: u64) -> Result<Checkpoint> {
    let (name, object) = (name(id), store.locate(&name(id)));
    let again =
        |why: &str| damaged(&object, why).hint("there may be an earlier backup: --list names them");
    let bytes = store.get(&name)?.ok_or_else(|| again("it is listed and cannot be read"))?;
    let checkpoint: Checkpoint = unframe(FrameKind::Checkpoint, &bytes, &object)?;
    if checkpoint.id != id {
        return Err(again("it is of another snapshot"));
    }
    Ok(checkpoint)
}

fn extents(checkpoint: &Checkpoint) -> impl Iterator<Item = &ExtentRecord> {
    let added = checkpoint.changes.iter().filter_map(|change| match change {
        Change::Extents { added, .. } => Some(added),
        _ => None,
    });
    added.flatten()
}

fn describe(checkpoint: &Checkpoint) -> BackupInfo {
    let tables = checkpoint.changes.iter().filter(|c| matches!(c, Change::PutTable(_)));
    BackupInfo {
        snapshot: SnapshotId(checkpoint.id),
        time_ms: checkpoint.time_ms,
        tables: tables.count() as u64,
        extents: extents(checkpoint).count() as u64,
        bytes: extents(checkpoint).map(|e| e.bytes).sum(),
    }
}

/// Two databases, or two lives of one since a backup of it was restored, have commits of the same
/// numbers; mixed in one place, nobody could tell which is which.
fn check_same_database(newest: &Checkpoint, now: &Checkpoint, place: &str) -> Result<()> {
    let refuse = |why: String| {
        Error::user(format!("{place} holds backups of another database, or of another state of it"))
            .detail(why)
            .hint("name another place for this database's")
    };
    let id = newest.id;
    if id > now.id {
        let why = format!("there is one of snapshot {id}, and the database is at {}", now.id);
        return Err(refuse(why));
    }
    // The first commits may be forgotten; then there is nothing to compare.
    let ours = match id == now.id {
        true => Some(now.time_ms),
        false => now.history.iter().find(|c| c.id == id).map(|c| c.time_ms),
    };
    if ours.is_some_and(|time_ms| time_ms != newest.time_ms) {
        let why = format!("snapshot {id} is there, and is not the database's snapshot {id}");
        return Err(refuse(why));
    }
    let theirs: HashMap<u64, u32> = extents(newest).map(|e| (e.id, e.checksum)).collect();
    match extents(now).find(|e| theirs.get(&e.id).is_some_and(|sum| *sum != e.checksum)) {
        Some(e) => Err(refuse(format!("extent {:016x} is there, and is another", e.id))),
        None => Ok(()),
    }
}

/// Backups go where nothing else is, and where backups are.
fn check_place(to: &dyn Store) -> Result<()> {
    let place = to.locate("");
    if !to.list(LOG)?.is_empty() {
        return Err(Error::user(format!("{place} is a database, and no place for backups"))
            .hint("name another directory or prefix"));
    }
    let known = !to.list(FOLDER)?.is_empty() || !to.list(EXTENTS)?.is_empty();
    if !known && let Some(other) = to.list("")?.first() {
        return Err(Error::user(format!("{place} is not empty, and has no backups"))
            .detail(format!("there is {}", to.locate(&other.name)))
            .hint("name a directory or a prefix in which nothing is yet"));
    }
    Ok(())
}

/// A directory that is restored to has nothing but what an interrupted restoration has left.
fn check_folder(path: &Path) -> Result<()> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::io(format!("cannot restore to \"{}\"", path.display()), e)),
    };
    let names: std::io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.file_name())).collect();
    let names =
        names.map_err(|e| Error::io(format!("cannot read directory \"{}\"", path.display()), e))?;
    // That there is a database is said elsewhere.
    if names.iter().any(|name| name == LOG.trim_end_matches('/')) {
        return Ok(());
    }
    let ours = [EXTENTS.trim_end_matches('/'), "lock", "lost+found"];
    match names.iter().find(|name| ours.iter().all(|ours| name != ours)) {
        Some(name) => Err(Error::user(format!("\"{}\" is not empty", path.display()))
            .detail(format!("there is {name:?}"))
            .hint("a backup is restored to a directory that is empty or not there yet")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
