//! A cache on the local disk, before a remote store.
//!
//! It keeps what `read` fetches, in blocks of 1 MiB, each a file of its own:
//! ```text
//! ~/.cache/thalweg/bucket_shop-5b1c3f02/extents/5f3a9c….vortex/17
//! ```
//! Objects read that way never change and are never named twice, so a block needs no question
//! whether it is fresh. (The log is small, and a name in it may be taken again by a database made
//! anew at the same place: `get` always asks.)
//!
//! Processes share it without a lock: a block appears whole, by a rename, and one that is removed
//! while somebody reads it stays with its reader. What was least recently used goes first; as each
//! process looks only now and then at what is there, all together may exceed the limit by an eighth
//! for each of them. Nothing is synced: after a loss of power a block may hold anything, which the
//! caller finds by its checksum, and [`Store::forget`]s.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use thalweg_base::limits::REMOTE_CACHE_BLOCK_BYTES as BLOCK;
use thalweg_base::{Error, Result};
use vortex::buffer::{Alignment, ByteBuffer, ByteBufferMut};

use super::reading::{ALIGNMENT, check_ranges};
use super::{Listed, ObjectWriter, Store};

#[derive(Debug)]
pub(crate) struct CachedStore {
    remote: Arc<dyn Store>,
    cache: BlockCache,
}

impl CachedStore {
    /// `folder` is for the objects of `remote` alone.
    pub fn new(remote: Arc<dyn Store>, folder: PathBuf, bytes_max: u64) -> io::Result<Self> {
        Ok(CachedStore { remote, cache: BlockCache::new(folder, bytes_max)? })
    }

    /// The blocks that `wanted` touches, from the cache as far as it has them.
    fn blocks(
        &self,
        name: &str,
        bytes: u64,
        wanted: &[Range<u64>],
    ) -> Result<BTreeMap<u64, Block>> {
        let touched = |r: &Range<u64>| r.start / BLOCK..r.end.div_ceil(BLOCK);
        let mut blocks = BTreeMap::new();
        let mut absent = Vec::new();
        for number in wanted.iter().filter(|r| !r.is_empty()).flat_map(touched) {
            if blocks.contains_key(&number) || absent.last() == Some(&number) {
                continue;
            }
            match self.cache.get(name, number, block_bytes(number, bytes)) {
                Some(file) => drop(blocks.insert(number, Block::Cached(file))),
                None => absent.push(number),
            }
        }
        let range = |number: &u64| number * BLOCK..number * BLOCK + block_bytes(*number, bytes);
        let ranges: Vec<Range<u64>> = absent.iter().map(range).collect();
        if !ranges.is_empty() {
            let fetched = self.remote.read(name, bytes, &ranges)?;
            for (number, block) in absent.into_iter().zip(fetched) {
                self.cache.put(name, number, &block);
                blocks.insert(number, Block::Fetched(block));
            }
        }
        Ok(blocks)
    }
}

impl Store for CachedStore {
    fn locate(&self, name: &str) -> String {
        self.remote.locate(name)
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.remote.path(name)
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.remote.put_new(name, bytes)
    }

    fn create(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        self.remote.create(name)
    }

    fn read(&self, name: &str, bytes: u64, wanted: &[Range<u64>]) -> Result<Vec<ByteBuffer>> {
        check_ranges(&self.locate(name), bytes, wanted)?;
        let blocks = self.blocks(name, bytes, wanted)?;
        let copied: io::Result<Vec<ByteBuffer>> =
            wanted.iter().map(|range| copy(range, &blocks)).collect();
        // A local disk that fails must not keep anybody from what is elsewhere.
        copied.or_else(|_| self.remote.read(name, bytes, wanted))
    }

    fn read_ahead(&self, name: &str, wanted: &[Range<u64>]) -> bool {
        self.remote.read_ahead(name, wanted)
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.remote.get(name)
    }

    fn get_many(&self, names: &[String]) -> Result<Vec<Option<Vec<u8>>>> {
        self.remote.get_many(names)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.remote.exists(name)
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        self.remote.list(folder)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.forget(name);
        self.remote.remove(name)
    }

    fn lock(&self, wait: Duration) -> Result<Option<Box<dyn Send + Sync>>> {
        self.remote.lock(wait)
    }

    fn is_remote(&self) -> bool {
        self.remote.is_remote()
    }

    fn forget(&self, name: &str) -> bool {
        self.cache.forget(name) | self.remote.forget(name)
    }
}

enum Block {
    Cached(File),
    Fetched(ByteBuffer),
}

/// The last block of an object is shorter.
fn block_bytes(number: u64, object_bytes: u64) -> u64 {
    BLOCK.min(object_bytes - number * BLOCK)
}

fn copy(range: &Range<u64>, blocks: &BTreeMap<u64, Block>) -> io::Result<ByteBuffer> {
    let bytes = (range.end - range.start) as usize;
    let mut buffer = ByteBufferMut::zeroed_aligned(bytes, Alignment::new(ALIGNMENT));
    let mut rest = buffer.as_mut_slice();
    let mut at = range.start;
    while !rest.is_empty() {
        let in_block = at % BLOCK;
        let (now, later) = rest.split_at_mut(rest.len().min((BLOCK - in_block) as usize));
        match blocks.get(&(at / BLOCK)) {
            Some(Block::Cached(file)) => file.read_exact_at(now, in_block)?,
            Some(Block::Fetched(block)) => {
                now.copy_from_slice(&block[in_block as usize..in_block as usize + now.len()]);
            }
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        at += now.len() as u64;
        rest = later;
    }
    Ok(buffer.freeze())
}

/// Files that may go at any time. Nothing here fails: what cannot be kept is fetched again.
#[derive(Debug)]
struct BlockCache {
    folder: PathBuf,
    bytes_max: u64,
    /// Since the files were last counted.
    written: AtomicU64,
    evicting: Mutex<()>,
}

impl BlockCache {
    fn new(folder: PathBuf, bytes_max: u64) -> io::Result<Self> {
        // What is in it may be read by the user alone, as the bucket.
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        // The first block that is written makes it count what others left.
        let written = AtomicU64::new(bytes_max);
        Ok(BlockCache { folder, bytes_max, written, evicting: Mutex::new(()) })
    }

    fn get(&self, name: &str, number: u64, bytes: u64) -> Option<File> {
        /// How old the time of the last use may become: noting each would cost a write.
        const STALE: Duration = Duration::from_secs(60);
        let file = File::open(self.folder.join(name).join(number.to_string())).ok()?;
        let metadata = file.metadata().ok()?;
        let used = metadata.modified().ok()?;
        if used.elapsed().is_ok_and(|age| age > STALE) {
            let _ = file.set_modified(SystemTime::now());
        }
        (metadata.len() == bytes).then_some(file)
    }

    fn put(&self, name: &str, number: u64, block: &[u8]) {
        let folder = self.folder.join(name);
        let temporary = folder.join(format!(".{:016x}", RandomState::new().hash_one(number)));
        let put = fs::create_dir_all(&folder)
            .and_then(|()| fs::write(&temporary, block))
            .and_then(|()| fs::rename(&temporary, folder.join(number.to_string())));
        if put.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        let written = self.written.fetch_add(block.len() as u64, Ordering::Relaxed);
        if written + block.len() as u64 > self.bytes_max / 8
            && let Some(_evicting) = self.evicting.try_lock()
        {
            self.written.store(0, Ordering::Relaxed);
            // What it could not read stays, and is counted the next time.
            let _ = self.evict();
        }
    }

    fn forget(&self, name: &str) -> bool {
        fs::remove_dir_all(self.folder.join(name)).is_ok()
    }

    /// Down to seven eighths of the limit, so that not every block needs this again.
    fn evict(&self) -> io::Result<()> {
        let mut files = Vec::new();
        walk(&self.folder, &mut files)?;
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        files.sort_by_key(|(used, ..)| *used);
        for (_, bytes, path) in files {
            if total <= self.bytes_max / 8 * 7 {
                break;
            }
            if fs::remove_file(&path).is_ok() {
                total -= bytes;
            }
            // Succeeds with the last block of an object.
            let _ = path.parent().map(fs::remove_dir);
        }
        Ok(())
    }
}

/// All files below a folder: when each was used, its bytes, and where it is.
fn walk(folder: &Path, files: &mut Vec<(SystemTime, u64, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // Others remove here too.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            let _ = walk(&entry.path(), files);
        } else {
            files.push((metadata.modified()?, metadata.len(), entry.path()));
        }
    }
    Ok(())
}

/// Where the blocks of a URL are kept below a folder of caches.
pub(super) fn folder_for(caches: &Path, url: &str) -> PathBuf {
    let bare = url.split_once("://").map_or(url, |(_, rest)| rest);
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '_' };
    let readable: String = bare.chars().map(plain).take(80).collect();
    caches.join(format!("{readable}-{:08x}", crc32fast::hash(url.as_bytes())))
}

pub(super) fn cannot_cache(folder: &Path, e: io::Error) -> Error {
    Error::io(format!("cannot use \"{}\" as a cache", folder.display()), e)
        .hint("name a directory that you may write to, or set the size of the cache to 0")
}
