//! A disk in memory that fails as disks do, from a seed.
//!
//! It keeps two images. What is written is in the *volatile* one, which reads see; a sync takes it
//! into the *durable* one. [`FaultDisk::power_cut`] ends every use of the disk and returns what a
//! machine would find after a restart: all that is durable, and any part of the rest, in any order:
//! each sector of a file and each change of a name for itself.
//!
//! What it assumes of a disk is what the stores rely on, and no more:
//!
//! * a sync that returns without an error has made the file's bytes durable, but not its name,
//!   which takes a sync of the folder;
//! * a sync that fails may have lost the bytes for good, though reads still show them and the next
//!   sync succeeds (Linux; Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020);
//!   names are kept by a journal, and remain to be made durable;
//! * a sector is written whole or not at all; a change of a name too.
//!
//! Calls that change something are counted. A fault happens at a call of a given number, so that a
//! test can try every one of a run, or at random.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use thalweg_base::Prng;

use super::disk::{Disk, DiskFile, Entry, Lock};

const SECTOR: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The call fails, and does nothing. A failed sync loses what it was to make durable.
    Error,
    /// A write takes only a part, and says so. Other calls succeed.
    Short,
    /// The call fails, though a write took a part, and another call all of it.
    Torn,
    /// From now on nothing can be written or made, until [`FaultDisk::make_space`].
    Full,
    /// From now on every call fails.
    PowerCut,
}

const FAULTS: [Fault; 5] = [Fault::Error, Fault::Short, Fault::Torn, Fault::Full, Fault::PowerCut];

/// Clones are handles to the same disk.
#[derive(Clone)]
pub(crate) struct FaultDisk(Arc<Mutex<State>>);

struct State {
    random: Prng,
    /// Calls that changed something, or were to.
    calls: u64,
    plan: BTreeMap<u64, Fault>,
    /// A fault in one of so many calls.
    random_fault_in: Option<u64>,
    full: bool,
    off: bool,
    files: Vec<Content>,
    names: BTreeMap<PathBuf, Node>,
    durable_names: BTreeMap<PathBuf, Node>,
    /// Changes of names that no sync has made durable, in order. `None`: removed.
    unsynced: Vec<(PathBuf, Option<Node>)>,
    locks: BTreeMap<PathBuf, String>,
}

#[derive(Clone, Copy, Debug)]
enum Node {
    Folder,
    File { index: usize },
}

#[derive(Clone)]
struct Content {
    volatile: Vec<u8>,
    durable: Vec<u8>,
    /// Sectors written since the last sync, even if that failed.
    dirty: BTreeSet<usize>,
    modified: SystemTime,
}

/// How much of what is not durable a loss of power takes.
#[derive(Clone, Copy)]
enum Losses {
    All,
    Some,
    None,
}

impl FaultDisk {
    /// A disk with an empty folder, `/`.
    pub fn new(seed: u64) -> Self {
        FaultDisk(Arc::new(Mutex::new(State::new(Prng::new(seed)))))
    }

    /// How many calls have changed something, or were to: the number of the next one.
    pub fn calls(&self) -> u64 {
        self.0.lock().calls
    }

    pub fn fail_at(&self, call: u64, fault: Fault) {
        self.0.lock().plan.insert(call, fault);
    }

    /// From now on one call in `calls` has some fault.
    pub fn fail_randomly(&self, calls: u64) {
        self.0.lock().random_fault_in = Some(calls);
    }

    /// Ends all faults but a loss of power, planned ones too.
    pub fn stop_failing(&self) {
        let mut state = self.0.lock();
        state.random_fault_in = None;
        state.plan.clear();
        state.full = false;
    }

    /// Ends `Fault::Full`.
    pub fn make_space(&self) {
        self.0.lock().full = false;
    }

    /// Whether `Fault::PowerCut` has come.
    pub fn is_off(&self) -> bool {
        self.0.lock().off
    }

    /// Ends all use of this disk. Returns what is found after a restart: a disk without faults.
    pub fn power_cut(&self) -> FaultDisk {
        let mut state = self.0.lock();
        state.off = true;
        FaultDisk(Arc::new(Mutex::new(state.restarted())))
    }

    /// Those that a writer left that died.
    #[cfg(test)]
    pub fn temporary_files(&self) -> usize {
        let temporary = |path: &&PathBuf| path.to_string_lossy().contains("/.");
        self.0.lock().names.keys().filter(temporary).count()
    }

    /// Makes a call that changes something; `whole` is what it does. An error of `whole` itself
    /// (no such file) is not a fault.
    fn change<T>(&self, whole: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.0.lock();
        match state.next_fault()? {
            Some(Fault::Error) => Err(failed()),
            Some(Fault::Torn) => whole(&mut state).and(Err(failed())),
            _ => whole(&mut state),
        }
    }

    /// A change that takes space.
    fn grow<T>(&self, whole: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        self.change(
            |state| {
                if state.full { Err(ErrorKind::StorageFull.into()) } else { whole(state) }
            },
        )
    }
}

impl State {
    fn new(random: Prng) -> Self {
        let names = BTreeMap::from([(PathBuf::from("/"), Node::Folder)]);
        State {
            random,
            calls: 0,
            plan: BTreeMap::new(),
            random_fault_in: None,
            full: false,
            off: false,
            files: Vec::new(),
            durable_names: names.clone(),
            names,
            unsynced: Vec::new(),
            locks: BTreeMap::new(),
        }
    }

    /// Counts a call, and says what will go wrong with it.
    fn next_fault(&mut self) -> io::Result<Option<Fault>> {
        self.check_power()?;
        let random = match self.random_fault_in {
            Some(calls) if self.random.below(calls) == 0 => {
                Some(FAULTS[self.random.below(FAULTS.len() as u64) as usize])
            }
            _ => None,
        };
        let fault = self.plan.remove(&self.calls).or(random);
        self.calls += 1;
        match fault {
            Some(Fault::Full) => self.full = true,
            Some(Fault::PowerCut) => self.off = true,
            _ => {}
        }
        self.check_power()?;
        Ok(fault)
    }

    fn check_power(&self) -> io::Result<()> {
        if self.off { Err(io::Error::other("the power is off")) } else { Ok(()) }
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        match self.names.get(path) {
            Some(Node::File { index }) => Ok(*index),
            Some(Node::Folder) => Err(ErrorKind::IsADirectory.into()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    fn add_name(&mut self, path: &Path, node: Node) -> io::Result<()> {
        match self.names.get(path.parent().unwrap_or(path)) {
            Some(Node::Folder) => {}
            Some(Node::File { .. }) => return Err(ErrorKind::NotADirectory.into()),
            None => return Err(ErrorKind::NotFound.into()),
        }
        if self.names.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.names.insert(path.to_owned(), node);
        self.unsynced.push((path.to_owned(), Some(node)));
        Ok(())
    }

    fn sync_folder(&mut self, folder: &Path) {
        let (synced, rest) = std::mem::take(&mut self.unsynced)
            .into_iter()
            .partition(|(path, _)| path.parent() == Some(folder));
        self.unsynced = rest;
        apply(&mut self.durable_names, synced);
    }

    fn restarted(&mut self) -> State {
        let random = &mut self.random;
        let mut next = State::new(Prng::new(random.next_u64()));
        let losses = Losses::choose(random);
        let kept = self.unsynced.iter().filter(|_| losses.keep(random)).cloned().collect();
        next.names = self.durable_names.clone();
        apply(&mut next.names, kept);
        // What lies in a folder that is gone is gone too; parents come before their children.
        let mut folders = BTreeSet::from([PathBuf::from("/")]);
        next.names.retain(|path, node| {
            let kept = path.parent().is_none_or(|parent| folders.contains(parent));
            if kept && matches!(node, Node::Folder) {
                folders.insert(path.clone());
            }
            kept
        });
        next.durable_names = next.names.clone();
        next.files = self.files.iter().map(|content| content.restarted(random)).collect();
        next
    }
}

fn apply(names: &mut BTreeMap<PathBuf, Node>, changes: Vec<(PathBuf, Option<Node>)>) {
    for (path, change) in changes {
        match change {
            Some(node) => names.insert(path, node),
            None => names.remove(&path),
        };
    }
}

impl Losses {
    fn choose(random: &mut Prng) -> Losses {
        [Losses::All, Losses::Some, Losses::None][random.below(3) as usize]
    }

    fn keep(self, random: &mut Prng) -> bool {
        match self {
            Losses::All => false,
            Losses::Some => random.below(2) == 0,
            Losses::None => true,
        }
    }
}

impl Content {
    fn append(&mut self, bytes: &[u8]) {
        let start = self.volatile.len();
        self.volatile.extend_from_slice(bytes);
        self.dirty.extend(start / SECTOR..self.volatile.len().div_ceil(SECTOR));
    }

    fn sync(&mut self) {
        let dirty = std::mem::take(&mut self.dirty);
        self.write_sectors(dirty, self.volatile.len());
    }

    /// Some bytes reach the disk, and the system forgets that the others did not.
    fn fail_to_sync(&mut self, random: &mut Prng) {
        let dirty = std::mem::take(&mut self.dirty);
        let losses = Losses::choose(random);
        let kept = dirty.into_iter().filter(|_| losses.keep(random)).collect();
        self.write_sectors(kept, self.durable.len());
    }

    fn write_sectors(&mut self, sectors: BTreeSet<usize>, length_min: usize) {
        let end = sectors.last().map_or(0, |last| (last + 1) * SECTOR).min(self.volatile.len());
        // Sectors that were never written read as zeros.
        self.durable.resize(self.durable.len().max(length_min).max(end), 0);
        for sector in sectors {
            let range = sector * SECTOR..((sector + 1) * SECTOR).min(self.volatile.len());
            self.durable[range.clone()].copy_from_slice(&self.volatile[range]);
        }
    }

    fn restarted(&self, random: &mut Prng) -> Content {
        let mut content = self.clone();
        let losses = Losses::choose(random);
        let dirty = std::mem::take(&mut content.dirty);
        let was_dirty = !dirty.is_empty();
        let kept = dirty.into_iter().filter(|_| losses.keep(random)).collect();
        // A file may have got its length and none of its bytes.
        let long = was_dirty && random.below(2) == 0;
        content.write_sectors(kept, if long { self.volatile.len() } else { 0 });
        content.volatile = content.durable.clone();
        content
    }
}

fn failed() -> io::Error {
    io::Error::other("input/output error (injected)")
}

impl std::fmt::Debug for FaultDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FaultDisk")
    }
}

impl Disk for FaultDisk {
    type File = FaultFile;

    fn create(&self, path: &Path) -> io::Result<FaultFile> {
        self.grow(|state| {
            let index = state.files.len();
            state.add_name(path, Node::File { index })?;
            state.files.push(Content {
                volatile: Vec::new(),
                durable: Vec::new(),
                dirty: BTreeSet::new(),
                modified: SystemTime::now(),
            });
            Ok(FaultFile { disk: self.clone(), index })
        })
    }

    fn open(&self, path: &Path) -> io::Result<FaultFile> {
        let state = self.0.lock();
        state.check_power()?;
        Ok(FaultFile { disk: self.clone(), index: state.file(path)? })
    }

    fn open_direct(&self, path: &Path) -> io::Result<Option<FaultFile>> {
        self.open(path).map(Some)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.grow(|state| {
            let index = state.file(from)?;
            state.add_name(to, Node::File { index })
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change(|state| {
            state.file(path)?;
            state.names.remove(path);
            state.unsynced.push((path.to_owned(), None));
            Ok(())
        })
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.grow(|state| state.add_name(path, Node::Folder))
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.change(|state| {
            state.sync_folder(path);
            Ok(())
        })
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        let state = self.0.lock();
        state.check_power()?;
        match state.names.get(folder) {
            Some(Node::Folder) => {}
            Some(Node::File { .. }) => return Err(ErrorKind::NotADirectory.into()),
            None => return Err(ErrorKind::NotFound.into()),
        }
        let inside = state.names.iter().filter(|(path, _)| path.parent() == Some(folder));
        Ok(inside.map(|(path, node)| state.entry(path, *node)).collect())
    }

    fn metadata(&self, path: &Path) -> io::Result<Entry> {
        let state = self.0.lock();
        state.check_power()?;
        let node = *state.names.get(path).ok_or(ErrorKind::NotFound)?;
        Ok(state.entry(path, node))
    }

    fn try_lock(&self, path: &Path, holder: &str) -> io::Result<Lock> {
        let mut state = self.0.lock();
        state.check_power()?;
        if let Some(holder) = state.locks.get(path) {
            return Ok(Lock::Taken { holder: holder.clone() });
        }
        state.locks.insert(path.to_owned(), holder.to_owned());
        Ok(Lock::Held(Box::new(FaultLock { disk: self.clone(), path: path.to_owned() })))
    }

    fn real_path(&self, _path: PathBuf) -> Option<PathBuf> {
        None
    }

    fn is_local(&self, _folder: &Path) -> io::Result<bool> {
        Ok(false)
    }
}

impl State {
    fn entry(&self, path: &Path, node: Node) -> Entry {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match node {
            Node::Folder => {
                Entry { name, is_folder: true, bytes: 0, modified: SystemTime::UNIX_EPOCH }
            }
            Node::File { index } => Entry {
                name,
                is_folder: false,
                bytes: self.files[index].volatile.len() as u64,
                modified: self.files[index].modified,
            },
        }
    }
}

struct FaultLock {
    disk: FaultDisk,
    path: PathBuf,
}

impl Drop for FaultLock {
    fn drop(&mut self) {
        self.disk.0.lock().locks.remove(&self.path);
    }
}

#[derive(Debug)]
pub(crate) struct FaultFile {
    disk: FaultDisk,
    index: usize,
}

impl DiskFile for FaultFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.0.lock();
        let fault = state.next_fault()?;
        let taken = match fault {
            Some(Fault::Error) => 0,
            Some(Fault::Short | Fault::Torn | Fault::Full) if bytes.len() > 1 => {
                1 + state.random.below(bytes.len() as u64 - 1) as usize
            }
            _ if state.full => 0,
            _ => bytes.len(),
        };
        state.files[self.index].append(&bytes[..taken]);
        match fault {
            Some(Fault::Error | Fault::Torn) => Err(failed()),
            _ if taken == 0 && !bytes.is_empty() => Err(ErrorKind::StorageFull.into()),
            _ => Ok(taken),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        let fault = state.next_fault()?;
        let State { random, files, .. } = &mut *state;
        let content = &mut files[self.index];
        match fault {
            Some(Fault::Error | Fault::Torn) => {
                content.fail_to_sync(random);
                Err(failed())
            }
            _ => {
                content.sync();
                Ok(())
            }
        }
    }

    fn length(&self) -> io::Result<u64> {
        let state = self.disk.0.lock();
        state.check_power()?;
        Ok(state.files[self.index].volatile.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.0.lock();
        state.check_power()?;
        let content = &state.files[self.index].volatile;
        let rest = &content[(offset as usize).min(content.len())..];
        let bytes = rest.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&rest[..bytes]);
        Ok(bytes)
    }
}
