//! Extents: immutable Vortex files of chunks.
//!
//! ```text
//! "VTXF" │ chunk 0: column 0 │ column 1 │ … │ chunk 1: column 0 │ … │ metadata │ footer │ postscript │ "VTXF"
//!          └ one segment: a compressed array, its encoding tree, a length ┘
//! ```
//! The footer's layout tree is struct → one *chunked* per column → one *flat* per chunk, so every
//! Vortex reader can open the file. We do not read it: the metadata frame says where the segments
//! lie, with a checksum and the statistics of each, and the catalog says where the frame lies.

mod codec;
mod intervals;
mod metadata;
mod packed;
mod reader;
mod schemes;
mod sort;
mod writer;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, BinaryArray};
use arrow::buffer::{Buffer, OffsetBuffer};
use parking_lot::{Mutex, RwLock};
use thalweg_base::{Error, ExtentId, Prng, Result};
use vortex::buffer::ByteBuffer;

pub(crate) use metadata::{ExtentColumn, Metadata};
pub(crate) use metadata::{batch_from_ipc, schema_from_ipc, to_ipc};
pub use reader::Segment;
pub(crate) use writer::Limits;
pub use writer::{ExtentWriter, Layout, NewExtent};

use crate::cache::{Cache, Key};
use crate::catalog::ExtentRecord;
use crate::digest::Digests;
use crate::direct_io::DirectIo;
use crate::location::Location;
use crate::store::Store;

/// The folder of extents in a store.
pub(crate) const FOLDER: &str = "extents/";

/// What the extents of a database share.
pub(crate) struct Home {
    pub store: Arc<dyn Store>,
    pub cache: Arc<Cache>,
    direct_io: DirectIo,
    ids: Mutex<Prng>,
    /// Of this process, as long as anything is being written.
    writing: Mutex<Weak<Writing>>,
    /// Extents that this process has a hold of, and how often: being written, or read by whoever
    /// has an old snapshot. A sweep lets them be.
    alive: Mutex<HashMap<ExtentId, usize>>,
}

/// Keeps an extent from being swept.
pub(crate) struct Alive {
    home: Arc<Home>,
    id: ExtentId,
}

impl Drop for Alive {
    fn drop(&mut self) {
        let mut alive = self.home.alive.lock();
        if let Entry::Occupied(mut holds) = alive.entry(self.id) {
            *holds.get_mut() -= 1;
            if *holds.get() == 0 {
                holds.remove();
            }
        }
    }
}

/// The right to write: excludes other processes, where the store can.
pub struct Writing {
    lock: Option<Box<dyn Send + Sync>>,
    /// Not yet read what others have committed before the lock was taken.
    pub(crate) behind: AtomicBool,
}

impl Writing {
    pub(crate) fn excludes_others(&self) -> bool {
        self.lock.is_some()
    }
}

impl fmt::Debug for Writing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Writing")
    }
}

impl Home {
    pub fn new(
        store: Arc<dyn Store>,
        cache_bytes_max: u64,
        direct_io: DirectIo,
        seed: u64,
    ) -> Self {
        Home {
            store,
            cache: Arc::new(Cache::new(cache_bytes_max)),
            direct_io,
            ids: Mutex::new(Prng::new(seed)),
            writing: Mutex::default(),
            alive: Mutex::default(),
        }
    }

    /// An id nobody has: of 63 bits, so that SQL's BIGINT can show it.
    pub fn new_id(&self) -> u64 {
        self.ids.lock().next_u64() >> 1
    }

    /// Whether chunks are read past the page cache of the system.
    pub fn reads_directly(&self) -> bool {
        let wanted = match self.direct_io {
            DirectIo::Off => false,
            DirectIo::On => true,
            DirectIo::Auto => self.cache.has_room(),
        };
        wanted && self.store.is_on_local_disk()
    }

    pub fn writing(&self, wait: Duration) -> Result<Arc<Writing>> {
        let mut current = self.writing.lock();
        if let Some(writing) = current.upgrade() {
            return Ok(writing);
        }
        let lock = self.store.lock(wait)?;
        let writing = Arc::new(Writing { lock, behind: AtomicBool::new(true) });
        *current = Arc::downgrade(&writing);
        Ok(writing)
    }

    /// If this process is writing and excludes others from it. Does not wait for a thread that
    /// waits for another process: then it does not.
    pub fn is_writing(&self) -> Option<Arc<Writing>> {
        self.writing.try_lock()?.upgrade().filter(|w| w.excludes_others())
    }

    pub fn hold(self: &Arc<Self>, id: ExtentId) -> Alive {
        *self.alive.lock().entry(id).or_default() += 1;
        Alive { home: self.clone(), id }
    }

    pub fn is_alive(&self, id: ExtentId) -> bool {
        self.alive.lock().contains_key(&id)
    }
}

pub(crate) fn object_name(id: ExtentId) -> String {
    format!("{FOLDER}{:016x}.vortex", id.0)
}

/// The id of an object that we would name so.
pub(crate) fn id_of_object(name: &str) -> Option<ExtentId> {
    let hex = name.strip_prefix(FOLDER)?.strip_suffix(".vortex")?;
    let id = ExtentId(u64::from_str_radix(hex, 16).ok()?);
    (name == object_name(id)).then_some(id)
}

/// What becomes of the file when the last `Arc` of its extent goes.
#[repr(u8)]
enum Fate {
    /// No commit has it: it goes.
    Draft,
    /// A table has it, or an old snapshot that may be asked for: it stays.
    Committed,
    /// Its retention has passed: it goes.
    Expired,
}

/// One immutable file of chunks.
pub struct Extent {
    pub id: ExtentId,
    /// Deleted ones included: those are known to the table.
    pub rows: u64,
    /// Of the whole file.
    pub bytes: u64,
    /// CRC-32 of it.
    checksum: u32,
    chunks: u32,
    /// Of the table's partitioning, if all rows are of one.
    pub bucket: Option<u32>,
    metadata_at: Location,
    /// Once it has been read, and as long as the extent is a table's.
    metadata: RwLock<Option<Arc<Metadata>>>,
    alive: Alive,
    fate: AtomicU8,
}

impl Extent {
    /// One that the catalog names.
    pub(crate) fn committed(record: &ExtentRecord, home: &Arc<Home>) -> Arc<Extent> {
        Arc::new(Extent {
            id: ExtentId(record.id),
            rows: record.rows,
            bytes: record.bytes,
            checksum: record.checksum,
            chunks: record.chunks,
            bucket: record.bucket,
            metadata_at: record.metadata,
            metadata: RwLock::default(),
            alive: home.hold(ExtentId(record.id)),
            fate: AtomicU8::new(Fate::Committed as u8),
        })
    }

    pub(crate) fn record(&self) -> ExtentRecord {
        ExtentRecord {
            id: self.id.0,
            rows: self.rows,
            bytes: self.bytes,
            checksum: self.checksum,
            chunks: self.chunks,
            bucket: self.bucket,
            metadata: self.metadata_at,
        }
    }

    pub fn chunks(&self) -> usize {
        self.chunks as usize
    }

    fn home(&self) -> &Arc<Home> {
        &self.alive.home
    }

    /// For messages and for `system` tables.
    pub fn location(&self) -> String {
        self.home().store.locate(&object_name(self.id))
    }

    /// `None` unless it is a file of this machine.
    pub fn path(&self) -> Option<PathBuf> {
        self.home().store.path(&object_name(self.id))
    }

    pub(crate) fn shares(&self, home: &Arc<Home>) -> bool {
        Arc::ptr_eq(self.home(), home)
    }

    /// Whether its metadata is in memory.
    pub fn is_open(&self) -> bool {
        self.metadata.read().is_some()
    }

    /// Where its chunks lie and what is in them. The first call reads it: blocks on the store.
    pub(crate) fn open(&self) -> Result<Arc<Metadata>> {
        if let Some(metadata) = self.metadata.read().as_ref() {
            return Ok(metadata.clone());
        }
        let object = self.to_string();
        let bytes = self.part(self.metadata_at, "its metadata")?;
        let metadata = Arc::new(Metadata::decode(&bytes, self.bytes, &object)?);
        if metadata.chunks() != self.chunks() || metadata.rows() != self.rows {
            return Err(Error::corrupt(format!(
                "{object} has {} rows in {} chunks, the catalog says {} in {}",
                metadata.rows(),
                metadata.chunks(),
                self.rows,
                self.chunks
            ))
            .hint("restore the database from a backup"));
        }
        Ok(self.metadata.write().get_or_insert(metadata).clone())
    }

    /// A part of the file, verified: blocks on the store. `what` names it in messages.
    fn part(&self, at: Location, what: &str) -> Result<ByteBuffer> {
        let name = object_name(self.id);
        let read = || {
            let mut found = self.home().store.read(&name, self.bytes, &[at.range()])?;
            found.pop().ok_or_else(|| Error::internal("a part of a file was not read"))
        };
        let mut bytes = read()?;
        if at.verify(&bytes).is_err() && self.home().store.forget(&name) {
            // It was a copy that was damaged, not the original.
            bytes = read()?;
        }
        at.verify(&bytes).map_err(|why| {
            Error::corrupt(format!("{self}: {what} is damaged"))
                .detail(why)
                .hint("restore the file from a backup, or DROP the table it belongs to")
        })?;
        Ok(bytes)
    }

    /// The digests of the column at `place`, if they are at hand.
    pub(crate) fn cached_digests(&self, metadata: &Metadata, place: usize) -> Option<Digests> {
        let cached = self.home().cache.get(self.digests_key(place))?;
        let bytes = cached.as_binary_opt::<i32>()?.values().clone();
        Digests::parse(bytes, metadata.chunks(), "the cache").ok()
    }

    /// Reads them: blocks on the store. `None`: it has none.
    pub(crate) fn read_digests(
        &self,
        metadata: &Metadata,
        place: usize,
    ) -> Result<Option<Digests>> {
        let Some(at) = metadata.columns[place].digests else { return Ok(None) };
        let what = format!("the digest of column {:?}", metadata.columns[place].name);
        let started = Instant::now();
        let bytes = Buffer::from(self.part(at, &what)?.as_slice());
        let digests = Digests::parse(bytes.clone(), metadata.chunks(), &format!("{self}: {what}"))?;
        let offsets = OffsetBuffer::from_lengths([bytes.len()]);
        let array: ArrayRef = Arc::new(BinaryArray::new(offsets, bytes, None));
        self.home().cache.insert(self.digests_key(place), &array, started.elapsed());
        Ok(Some(digests))
    }

    /// Where the cache has them: no chunk has that number.
    fn digests_key(&self, place: usize) -> Key {
        Key { extent: self.id, chunk: u32::MAX, column: place as u32 }
    }

    /// Opens many, several at once: the metadata of a large table is thousands of small reads.
    pub(crate) fn open_all<'a>(
        extents: impl Iterator<Item = &'a Extent>,
    ) -> Result<Vec<Arc<Metadata>>> {
        const AT_ONCE: usize = 16;
        let extents: Vec<&Extent> = extents.collect();
        let closed: Vec<&Extent> = extents.iter().copied().filter(|e| !e.is_open()).collect();
        if closed.len() > 1 {
            let share = closed.len().div_ceil(AT_ONCE);
            std::thread::scope(|scope| {
                let parts = closed.chunks(share).map(|part| {
                    scope.spawn(move || part.iter().try_for_each(|e| e.open().map(drop)))
                });
                let parts: Vec<_> = parts.collect();
                parts.into_iter().try_for_each(|part| {
                    part.join().unwrap_or_else(|_| Err(Error::internal("a reader panicked")))
                })
            })?;
        }
        extents.into_iter().map(Extent::open).collect()
    }

    /// Reads the whole file, also what no query reads, and compares its checksum.
    pub(crate) fn verify(&self) -> Result<()> {
        const PIECE_BYTES: u64 = 8 << 20;
        let name = object_name(self.id);
        let mut hasher = crc32fast::Hasher::new();
        let mut at = 0;
        while at < self.bytes {
            let end = (at + PIECE_BYTES).min(self.bytes);
            let pieces =
                self.home().store.read(&name, self.bytes, std::slice::from_ref(&(at..end)))?;
            pieces.iter().for_each(|piece| hasher.update(piece));
            at = end;
        }
        let (found, written) = (hasher.finalize(), self.checksum);
        if found == written {
            return Ok(());
        }
        Err(Error::corrupt(format!("{self} is damaged"))
            .detail(format!("checksum of the file {found:08x}, {written:08x} was written"))
            .hint("restore the file from a backup, or DROP the table it belongs to"))
    }

    /// A commit has named it.
    pub(crate) fn keep(&self) {
        self.fate.store(Fate::Committed as u8, Ordering::Release);
    }

    /// It has left its table: who reads an old snapshot may read its metadata anew, and most are
    /// never asked for again.
    pub(crate) fn close(&self) {
        *self.metadata.write() = None;
    }

    /// No snapshot that may still be asked for names it.
    pub(crate) fn expire(&self) {
        self.fate.store(Fate::Expired as u8, Ordering::Release);
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        if *self.fate.get_mut() != Fate::Committed as u8 {
            self.home().cache.forget(self.id);
            // Nobody is left to tell of a failure, and the next VACUUM sweeps it.
            let _ = self.home().store.remove(&object_name(self.id));
        }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "extent {}", self.location())
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Extent {:x} ({} rows in {} chunks, {} bytes)",
            self.id.0, self.rows, self.chunks, self.bytes
        )
    }
}
