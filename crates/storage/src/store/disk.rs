//! The system calls under a [`LocalStore`](super::LocalStore), as a trait: so that its code can be
//! tested on a disk that fails, tears and forgets.

use std::fmt;
use std::fs::{self, File};
#[cfg(target_os = "linux")]
use std::io::IoSliceMut;
use std::io::{self, ErrorKind, Read, Write};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{
    Advice, CWD, FlockOperation, OFlags, RenameFlags, fadvise, flock, renameat_with, statfs,
};
use rustix::io::Errno;
#[cfg(target_os = "linux")]
use rustix::io::ReadWriteFlags;

pub(crate) trait Disk: fmt::Debug + Send + Sync + 'static {
    type File: DiskFile;

    /// Makes an empty file. `AlreadyExists`: the name is taken.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    fn open(&self, path: &Path) -> io::Result<Self::File>;

    /// For reading past the system's page cache: whole [`BLOCK`]s, into memory that begins at a multiple
    /// of one. `None`: this file system has no such thing.
    fn open_direct(&self, path: &Path) -> io::Result<Option<Self::File>>;

    /// Gives the file `from` the name `to`, atomically; it may lose its old one. `AlreadyExists`:
    /// the name is taken.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    fn create_folder(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;

    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>>;

    fn metadata(&self, path: &Path) -> io::Result<Entry>;

    /// Locks a file, made if need be, and leaves `holder` in it for those who come to it later.
    fn try_lock(&self, path: &Path, holder: &str) -> io::Result<Lock>;

    /// Where the file is on this machine, if it is.
    fn real_path(&self, path: PathBuf) -> Option<PathBuf>;

    /// Whether the folder, which is there, is known to be on a disk of this machine.
    fn is_local(&self, folder: &Path) -> io::Result<bool>;
}

pub(crate) trait DiskFile: fmt::Debug + Send + Sync + 'static {
    /// Appends some of `bytes`, and says how many.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Makes the bytes durable; not the name.
    fn sync(&mut self) -> io::Result<()>;

    fn length(&self) -> io::Result<u64>;

    /// Fills the front of `buffer` from `offset` on, and says how many bytes; zero at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// The same, of what is in memory. `WouldBlock`: the rest is not, or nobody knows.
    fn read_at_once(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }

    /// Begins to bring these bytes into memory, where a disk has any use for that.
    fn read_ahead(&self, _wanted: Range<u64>) {}

    /// Whether the system has most of these bytes in memory; `false` if it does not say.
    fn is_in_memory(&self, _wanted: Range<u64>) -> bool {
        false
    }
}

/// What direct reads come in: no disk has larger sectors.
pub(crate) const BLOCK: usize = 4096;

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub name: String,
    pub is_folder: bool,
    pub bytes: u64,
    pub modified: SystemTime,
}

pub(crate) enum Lock {
    /// Until it is dropped, or the process ends in whatever way.
    Held(Box<dyn Send + Sync>),
    Taken {
        holder: String,
    },
    /// This file system has no locks.
    Unsupported,
}

/// The disk of this machine, or what is mounted as one.
#[derive(Debug)]
pub(crate) struct OsDisk;

impl Disk for OsDisk {
    type File = File;

    fn create(&self, path: &Path) -> io::Result<File> {
        File::create_new(path)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        File::open(path)
    }

    fn open_direct(&self, path: &Path) -> io::Result<Option<File>> {
        let mut options = File::options();
        match options.read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() == ErrorKind::InvalidInput => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::hard_link(from, to) {
            // NFS sends a request again when the answer was lost: it then finds our own link.
            Err(e) if e.kind() == ErrorKind::AlreadyExists && fs::metadata(from)?.nlink() == 2 => {
                Ok(())
            }
            // File systems without hard links (FAT, some of FUSE).
            Err(e)
                if matches!(
                    Errno::from_io_error(&e),
                    Some(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS)
                ) =>
            {
                Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
            }
            done => done,
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        match File::open(path)?.sync_all() {
            // A file system that has no such thing.
            Err(e) if e.kind() == ErrorKind::InvalidInput => Ok(()),
            synced => synced,
        }
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            // None of ours.
            let Ok(name) = entry.file_name().into_string() else { continue };
            match entry.metadata() {
                Ok(metadata) => entries.push(described(name, &metadata)?),
                // Removed since.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(entries)
    }

    fn metadata(&self, path: &Path) -> io::Result<Entry> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        described(name, &fs::metadata(path)?)
    }

    fn try_lock(&self, path: &Path, holder: &str) -> io::Result<Lock> {
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                // For messages alone: a full disk must not keep anybody from removing things.
                let _ = file.set_len(0).and_then(|()| file.write_all(holder.as_bytes()));
                Ok(Lock::Held(Box::new(file)))
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                let mut holder = String::new();
                // Whoever has it may be just about to write who it is.
                let _ = file.read_to_string(&mut holder);
                Ok(Lock::Taken { holder })
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK) => Ok(Lock::Unsupported),
            Err(e) => Err(e.into()),
        }
    }

    fn real_path(&self, path: PathBuf) -> Option<PathBuf> {
        Some(path)
    }

    fn is_local(&self, folder: &Path) -> io::Result<bool> {
        let kind = statfs(folder)?.f_type;
        Ok(LOCAL.iter().any(|local| i128::from(*local) == i128::from(kind)))
    }
}

/// File systems on disks of this machine, or in its memory, as `statfs(2)` names them: ext2 to ext4,
/// XFS, Btrfs, F2FS, ZFS, bcachefs, tmpfs, and overlayfs, which containers see. Of others, such as
/// NFS or FUSE, any question may take long.
const LOCAL: [u32; 8] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    0xF2F5_2010,
    0x2FC1_2FC1,
    0xCA45_1A4E,
    0x0102_1994,
    0x794C_7630,
];

fn described(name: String, metadata: &fs::Metadata) -> io::Result<Entry> {
    Ok(Entry {
        name,
        is_folder: metadata.is_dir(),
        bytes: metadata.len(),
        modified: metadata.modified()?,
    })
}

impl DiskFile for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(self, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    #[cfg(target_os = "linux")]
    fn read_at_once(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let buffer = &mut [IoSliceMut::new(buffer)];
        Ok(rustix::io::preadv2(self, buffer, offset, ReadWriteFlags::NOWAIT)?)
    }

    fn read_ahead(&self, wanted: Range<u64>) {
        // Zero would mean all there is.
        if let Some(bytes) = NonZeroU64::new(wanted.end.saturating_sub(wanted.start)) {
            let _ = fadvise(self, wanted.start, Some(bytes), Advice::WillNeed);
        }
    }

    fn is_in_memory(&self, wanted: Range<u64>) -> bool {
        let bytes = wanted.end.saturating_sub(wanted.start);
        cached_pages(self, wanted.start, bytes)
            .is_some_and(|pages| pages * rustix::param::page_size() as u64 > bytes / 2)
    }
}

/// `cachestat(2)`, since Linux 6.5. `None`: the kernel, or what filters calls to it, has none.
#[cfg(target_os = "linux")]
fn cached_pages(file: &File, start: u64, bytes: u64) -> Option<u64> {
    /// The same on all architectures; the C library has no function for it.
    const CACHESTAT: libc::c_long = 451;
    let range = [start, bytes];
    // Pages in the cache, dirty ones, those being written, evicted ones, recently evicted ones.
    let mut found = [0u64; 5];
    // SAFETY: the kernel reads two numbers of 64 bits and writes five, as both arrays are.
    let done = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), found.as_mut_ptr(), 0)
    };
    (done == 0).then_some(found[0])
}

#[cfg(not(target_os = "linux"))]
fn cached_pages(_file: &File, _start: u64, _bytes: u64) -> Option<u64> {
    None
}
