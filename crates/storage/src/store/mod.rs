//! Where the bytes of a database lie: a flat set of named objects that are written once, read,
//! and removed, never changed.
//!
//! That is little enough for a directory, a shared folder and an object store to offer alike, so
//! everything above (log, snapshots, extents) works the same on all of them. The one operation
//! that settles who wins is [`Store::put_new`]: a commit is the first object of its name.
//!
//! In reading order:
//!
//! * `local`: a directory, over the system calls in `disk`, into memory of `blocks`
//! * `memory`: a map
//! * `remote`: S3 and what speaks its protocol; `trouble` says what is wrong with it
//! * `cached`: a bounded cache on the local disk, before a remote store
//! * `reading`: what their ways of reading share
//! * `fault`: a disk for tests that fails, tears and forgets
//! * `open`: from what the user typed to a store
//! * `address`: files that are input, at addresses

mod address;
mod blocks;
mod cached;
mod disk;
mod local;
mod memory;
mod open;
mod reading;
mod remote;
mod trouble;

#[cfg(any(test, feature = "simulation"))]
#[cfg_attr(not(test), allow(dead_code, reason = "its users take what they need"))]
pub(crate) mod fault;

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use thalweg_base::Result;
use vortex::buffer::ByteBuffer;

pub(crate) use address::{RemoteFile, facts_of, objects_below, remembered_address};
pub use address::{is_address, shown_address};
pub(crate) use local::LocalStore;
pub(crate) use memory::MemoryStore;
pub(crate) use open::open;
pub use open::{RemoteOptions, is_remote};
pub(crate) use reading::ALIGNMENT;

/// A set of immutable named objects: `log/….commit`, `extents/….vortex`. A name is relative, and
/// has at most one folder, which needs no making. Every function may block.
pub(crate) trait Store: Send + Sync + fmt::Debug {
    /// For messages: the full path or URL of an object, in quotes.
    fn locate(&self, name: &str) -> String;

    /// `None` unless objects are files of this machine.
    fn path(&self, name: &str) -> Option<PathBuf>;

    /// Makes a whole object, atomically. `false`: the name is taken, and nothing changed. Either
    /// way the object of that name is durable on return. After an error it may or may not be
    /// there, whole; in a remote store it may also appear later. To know, put it again, and if its
    /// name is taken, compare.
    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool>;

    /// Starts an object that is written in pieces. Others may see it before it is finished, so
    /// its name must be one that nobody looks for yet.
    fn create(&self, name: &str) -> Result<Box<dyn ObjectWriter>>;

    /// Reads `wanted` (ascending, not overlapping). Near ranges share a request, and may share
    /// memory: who keeps a part of a buffer for long copies it. An object that is absent, or is not of
    /// `bytes` bytes, is corrupt.
    fn read(&self, name: &str, bytes: u64, wanted: &[Range<u64>]) -> Result<Vec<ByteBuffer>>;

    /// The same, but the system need not keep a copy of what it has to fetch.
    fn read_direct(
        &self,
        name: &str,
        bytes: u64,
        wanted: &[Range<u64>],
    ) -> Result<Vec<ByteBuffer>> {
        self.read(name, bytes, wanted)
    }

    /// What [`read`](Self::read) would give, if that only copies what is in memory: no waiting for a disk
    /// or a network. `None`: it may be more than that, or something is wrong, as `read` will say. Unless
    /// what is missing will be read `direct`ly, the system may begin to fetch it.
    fn read_at_once(
        &self,
        _name: &str,
        _bytes: u64,
        _wanted: &[Range<u64>],
        _direct: bool,
    ) -> Option<Vec<ByteBuffer>> {
        None
    }

    /// Whether most of `wanted` is in memory, as far as the system tells.
    fn is_in_memory(&self, _name: &str, _wanted: &[Range<u64>]) -> bool {
        false
    }

    /// Says that `wanted` will be [`read`](Self::read) soon. `true`: there is nothing more to be done, for
    /// a system brings it into memory, or it is there. `false`: it comes early only if it is read early.
    /// If anything is wrong, the read will say so.
    fn read_ahead(&self, name: &str, wanted: &[Range<u64>]) -> bool;

    /// A whole small object; `None`: absent.
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>>;

    /// Whole small objects, in about the time of one: as the commits of a log.
    fn get_many(&self, names: &[String]) -> Result<Vec<Option<Vec<u8>>>> {
        names.iter().map(|name| self.get(name)).collect()
    }

    fn exists(&self, name: &str) -> Result<bool>;

    /// The objects in a folder (`log/`), or outside of all (an empty name), in any order. A folder
    /// that is absent is empty.
    fn list(&self, folder: &str) -> Result<Vec<Listed>>;

    /// Makes the names in a folder durable, as far as they can be seen: whoever gave them may have
    /// died, or failed, before that.
    fn sync(&self, _folder: &str) -> Result<()> {
        Ok(())
    }

    /// An absent object is fine. A removed one may come back with a loss of power.
    fn remove(&self, name: &str) -> Result<()>;

    /// Excludes other writing processes until the guard goes. `None`: nothing can be locked here,
    /// and only `put_new` settles who wins. An error of `Kind::Resources` names the process that
    /// has the lock after `wait`.
    fn lock(&self, wait: Duration) -> Result<Option<Box<dyn Send + Sync>>>;

    /// Whether asking costs a round trip through a network.
    fn is_remote(&self) -> bool {
        false
    }

    /// Whether what names there are is asked of a disk of this machine, and known at once.
    fn is_on_local_disk(&self) -> bool {
        false
    }

    /// Whether nobody but this process can ever see it.
    fn is_private(&self) -> bool {
        false
    }

    /// Forgets the copies of an object that a cache holds; returns whether there were any. Who
    /// finds a wrong checksum should read once more if so.
    fn forget(&self, _name: &str) -> bool {
        false
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// With its folder.
    pub name: String,
    pub bytes: u64,
    /// By the clock of whoever stores it.
    pub modified: SystemTime,
}

/// An object being written. Dropped before `finish`, it is removed.
pub(crate) trait ObjectWriter: Send {
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// The object is durable, with its name, on return.
    fn finish(self: Box<Self>) -> Result<()>;
}

#[cfg(test)]
mod tests;
