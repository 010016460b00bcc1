//! The bytes of an extent: a file, or memory.

use std::fmt;
use std::fs::File;
use std::io::{IoSliceMut, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use thalweg_base::{Error, Result};
use vortex::buffer::{Alignment, ByteBuffer, ByteBufferMut};

use super::Location;

/// Handles kept open per database. Above it a file is opened for each read, so a database may
/// have more extents than the process may have descriptors.
const OPEN_FILES_MAX: usize = 512;
/// Unwanted bytes between two wanted segments that are read rather than skipped: a second request
/// costs more than these, on a disk as on NFS.
const GAP_BYTES_MAX: u64 = 16 * 1024;
/// What buffers in memory are aligned to: a cache line, and above any Arrow need.
pub(super) const ALIGNMENT: usize = 64;
/// The head and the end of a Vortex file.
pub(super) const MAGIC: &[u8; 4] = b"VTXF";

/// Counts the handles a database keeps open.
#[derive(Default)]
pub(crate) struct OpenFiles(AtomicUsize);

pub(crate) enum ExtentFile {
    Disk { path: PathBuf, handle: OnceLock<File>, open: Arc<OpenFiles> },
    Memory { name: String, bytes: ByteBuffer },
}

impl fmt::Display for ExtentFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExtentFile::Disk { path, .. } => write!(f, "\"{}\"", path.display()),
            ExtentFile::Memory { name, .. } => write!(f, "\"{name}\" (in memory)"),
        }
    }
}

impl ExtentFile {
    pub fn disk(path: PathBuf, open: Arc<OpenFiles>) -> Self {
        ExtentFile::Disk { path, handle: OnceLock::new(), open }
    }

    pub fn path(&self) -> Option<&Path> {
        match self {
            ExtentFile::Disk { path, .. } => Some(path),
            ExtentFile::Memory { .. } => None,
        }
    }

    pub fn remove(&self) -> std::io::Result<()> {
        match self {
            ExtentFile::Disk { path, .. } => std::fs::remove_file(path),
            ExtentFile::Memory { .. } => Ok(()),
        }
    }

    /// Reads the segments at `wanted` (ascending offsets), each into a buffer of its own: a decoded
    /// array may keep its segment alive, and must not keep its neighbours.
    pub fn read(&self, file_bytes: u64, wanted: &[Location]) -> Result<Vec<ByteBuffer>> {
        match self {
            ExtentFile::Memory { bytes, .. } => wanted
                .iter()
                .map(|l| {
                    let start = l.offset as usize;
                    let end = start + l.bytes as usize;
                    if end > bytes.len() {
                        return Err(self.truncated(file_bytes, bytes.len() as u64));
                    }
                    Ok(bytes.slice_unaligned(start..end))
                })
                .collect(),
            ExtentFile::Disk { .. } => self.with_handle(file_bytes, |file| {
                let mut out = Vec::with_capacity(wanted.len());
                let mut rest = wanted;
                while !rest.is_empty() {
                    let (near, far) = rest.split_at(near(rest));
                    self.read_near(file, near, &mut out)?;
                    rest = far;
                }
                Ok(out)
            }),
        }
    }

    /// One system call for neighbours, scattered into their buffers.
    fn read_near(&self, file: &File, wanted: &[Location], out: &mut Vec<ByteBuffer>) -> Result<()> {
        let failed = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                Error::corrupt(format!("{self} ends within a chunk"))
            }
            _ => Error::io(format!("cannot read {self}"), e),
        };
        let buffer = |l: &Location| {
            ByteBufferMut::zeroed_aligned(l.bytes as usize, Alignment::new(ALIGNMENT))
        };
        let mut buffers: Vec<ByteBufferMut> = wanted.iter().map(buffer).collect();
        if let [only] = wanted {
            file.read_exact_at(&mut buffers[0], only.offset).map_err(failed)?;
        } else {
            let gap_after = |i: usize| match wanted.get(i + 1) {
                Some(next) => {
                    (next.offset - wanted[i].offset - u64::from(wanted[i].bytes)) as usize
                }
                None => 0,
            };
            let gaps: usize = (0..wanted.len()).map(gap_after).sum();
            let total = wanted.iter().map(|l| l.bytes as usize).sum::<usize>() + gaps;
            let mut skipped = vec![0; gaps];
            let mut scratch = skipped.as_mut_slice();
            let mut slices = Vec::with_capacity(wanted.len() * 2);
            for (i, buffer) in buffers.iter_mut().enumerate() {
                slices.push(IoSliceMut::new(buffer));
                let (skip, left) = scratch.split_at_mut(gap_after(i));
                scratch = left;
                if !skip.is_empty() {
                    slices.push(IoSliceMut::new(skip));
                }
            }
            read_vectored_at(file, &mut slices, wanted[0].offset, total).map_err(failed)?;
        }
        out.extend(buffers.into_iter().map(ByteBufferMut::freeze));
        Ok(())
    }

    fn with_handle<T>(&self, file_bytes: u64, f: impl FnOnce(&File) -> Result<T>) -> Result<T> {
        let ExtentFile::Disk { path, handle, open } = self else {
            return Err(Error::internal(format!("{self} has no file handle")));
        };
        if let Some(file) = handle.get() {
            return f(file);
        }
        let file = self.open(path, file_bytes)?;
        if open.0.fetch_add(1, Ordering::Relaxed) >= OPEN_FILES_MAX {
            open.0.fetch_sub(1, Ordering::Relaxed);
            return f(&file);
        }
        let mut mine = Some(file);
        let file =
            handle.get_or_init(|| mine.take().expect("get_or_init runs its closure at most once"));
        if mine.is_some() {
            open.0.fetch_sub(1, Ordering::Relaxed);
        }
        f(file)
    }

    /// Opens the file and checks that it is the one that was written.
    fn open(&self, path: &Path, file_bytes: u64) -> Result<File> {
        let file = File::open(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Error::corrupt(format!("extent file {self} is missing")).hint(
                "restore it from a backup, or DROP the table it belongs to; files in a database directory must not be removed by hand",
            ),
            _ => Error::io(format!("cannot open {self}"), e),
        })?;
        let length =
            file.metadata().map_err(|e| Error::io(format!("cannot read {self}"), e))?.len();
        if length != file_bytes {
            return Err(self.truncated(file_bytes, length));
        }
        let mut magic = [[0; 4]; 2];
        let read = |at, bytes: &mut [u8]| file.read_exact_at(bytes, at);
        read(0, &mut magic[0])
            .and_then(|()| read(file_bytes.saturating_sub(4), &mut magic[1]))
            .map_err(|e| Error::io(format!("cannot read {self}"), e))?;
        if magic.iter().any(|m| m != MAGIC) {
            return Err(Error::corrupt(format!(
                "{self} is not a Vortex file: its magic bytes are wrong"
            ))
            .hint("restore it from a backup"));
        }
        Ok(file)
    }

    fn truncated(&self, expected: u64, found: u64) -> Error {
        Error::corrupt(format!("{self} has {found} bytes, and {expected} were written"))
            .hint("restore it from a backup, or DROP the table it belongs to")
    }
}

impl Drop for ExtentFile {
    fn drop(&mut self) {
        if let ExtentFile::Disk { handle, open, .. } = self
            && handle.get().is_some()
        {
            open.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// How many of the first segments lie so near each other that one request should fetch them.
fn near(wanted: &[Location]) -> usize {
    // IOV_MAX is 1024, and each segment may bring a gap.
    const TOGETHER_MAX: usize = 256;
    let joined = wanted.windows(2).take(TOGETHER_MAX - 1).take_while(|pair| {
        let end = pair[0].offset + u64::from(pair[0].bytes);
        pair[1].offset.checked_sub(end).is_some_and(|gap| gap <= GAP_BYTES_MAX)
    });
    joined.count() + 1
}

fn read_vectored_at(
    file: &File,
    mut slices: &mut [IoSliceMut],
    offset: u64,
    total: usize,
) -> std::io::Result<()> {
    let mut done = 0;
    while done < total {
        match rustix::io::preadv(file, slices, offset + done as u64) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                done += n;
                IoSliceMut::advance_slices(&mut slices, n);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Where a writer puts its bytes.
pub(super) enum Sink {
    Disk { path: PathBuf, file: File },
    Memory { name: String, bytes: Vec<u8> },
}

impl Sink {
    pub fn disk(path: PathBuf) -> Result<Self> {
        let file = File::create_new(&path).map_err(|e| {
            Error::io(format!("cannot create extent file \"{}\"", path.display()), e)
                .hint("the database directory must be writable")
        })?;
        Ok(Sink::Disk { path, file })
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Sink::Memory { bytes: all, .. } => {
                all.extend_from_slice(bytes);
                Ok(())
            }
            Sink::Disk { path, file } => file.write_all(bytes).map_err(|e| {
                Error::io(format!("cannot write extent file \"{}\"", path.display()), e)
            }),
        }
    }

    /// Makes the file's bytes durable; its name is so once the directory is synced too.
    pub fn sync(&mut self) -> Result<()> {
        match self {
            Sink::Memory { .. } => Ok(()),
            Sink::Disk { path, file } => file.sync_all().map_err(|e| {
                Error::io(format!("cannot sync extent file \"{}\"", path.display()), e)
            }),
        }
    }

    pub fn into_file(self, open: &Arc<OpenFiles>) -> ExtentFile {
        match self {
            Sink::Disk { path, .. } => ExtentFile::disk(path, open.clone()),
            Sink::Memory { name, bytes } => ExtentFile::Memory {
                name,
                bytes: ByteBuffer::copy_from_aligned(bytes, Alignment::new(ALIGNMENT)),
            },
        }
    }

    pub fn remove(&self) {
        if let Sink::Disk { path, .. } = self {
            // The next open sweeps what stays.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    File::open(path)
        .and_then(|d| d.sync_all())
        .map_err(|e| Error::io(format!("cannot sync directory \"{}\"", path.display()), e))
}
