//! Objects as files of a directory: a local disk, or a folder that several machines share.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use std::{io, process, thread};

use arrow::temporal_conversions::timestamp_s_to_datetime;
use parking_lot::{Mutex, RwLock};
use thalweg_base::limits::{OPEN_FILES_MAX, READ_GAP_BYTES_MAX};
use thalweg_base::{Error, Result};
use vortex::buffer::ByteBuffer;

use super::blocks::Blocks;
use super::disk::{Disk, DiskFile, Lock, OsDisk};
use super::reading::{check_length, check_ranges, missing, near, taken};
use super::{Listed, ObjectWriter, Store};

/// The file that a writing process locks.
const LOCK: &str = "lock";
/// How names of files begin that are not objects yet.
const TEMPORARY: char = '.';
/// Of one request, and so of memory that its ranges share.
const REQUEST_BYTES_MAX: u64 = 8 << 20;

/// A directory of objects, made when the first is written. Clones share open files.
#[derive(Debug)]
pub(crate) struct LocalStore<D: Disk = OsDisk>(Arc<Inner<D>>);

#[derive(Debug)]
struct Inner<D: Disk> {
    disk: D,
    root: PathBuf,
    files: OpenFiles<D::File>,
    blocks: Blocks,
    folders: Mutex<HashMap<PathBuf, Folder>>,
    swept: AtomicBool,
    /// Asked once.
    is_local: OnceLock<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Folder {
    /// By this store, and its name may not be durable yet.
    Made,
    Durable,
}

impl LocalStore {
    pub fn open(root: &Path) -> Self {
        LocalStore::on(OsDisk, root)
    }
}

impl<D: Disk> LocalStore<D> {
    /// On a disk of another kind.
    pub fn on(disk: D, root: &Path) -> Self {
        LocalStore(Arc::new(Inner {
            disk,
            root: root.to_owned(),
            files: OpenFiles::default(),
            blocks: Blocks::default(),
            folders: Mutex::default(),
            swept: AtomicBool::new(false),
            is_local: OnceLock::new(),
        }))
    }
}

#[cfg(test)]
impl<D: Disk> LocalStore<D> {
    pub fn open_files(&self) -> usize {
        self.0.files.0.read().len()
    }
}

impl<D: Disk> Clone for LocalStore<D> {
    fn clone(&self) -> Self {
        LocalStore(self.0.clone())
    }
}

impl<D: Disk> Store for LocalStore<D> {
    fn locate(&self, name: &str) -> String {
        self.0.locate(name)
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.0.disk.real_path(self.0.at(name))
    }

    fn is_on_local_disk(&self) -> bool {
        let Inner { disk, root, is_local, .. } = &*self.0;
        if let Some(known) = is_local.get() {
            return *known;
        }
        // A directory that is not there yet may be made anywhere.
        disk.is_local(root).is_ok_and(|found| *is_local.get_or_init(|| found))
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let path = self.0.at(name);
        let put = match self.0.put_new(&path, bytes) {
            // Somebody's sweep took it for a dead writer's: we may be here without the lock, as
            // those are who make a database.
            Err(e) if e.kind() == ErrorKind::NotFound => self.0.put_new(&path, bytes),
            put => put,
        };
        put.map_err(|e| self.0.cannot_write(name, e))
    }

    fn create(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        let path = self.0.at(name);
        let file = self.0.create_file(&path).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => taken(&self.locate(name)),
            _ => self.0.cannot_write(name, e),
        })?;
        let (inner, name) = (self.0.clone(), name.to_owned());
        Ok(Box::new(Writer { inner, name, path, file, finished: false }))
    }

    fn read(&self, name: &str, bytes: u64, wanted: &[Range<u64>]) -> Result<Vec<ByteBuffer>> {
        self.0.read(name, bytes, wanted, false)
    }

    fn read_direct(
        &self,
        name: &str,
        bytes: u64,
        wanted: &[Range<u64>],
    ) -> Result<Vec<ByteBuffer>> {
        self.0.read(name, bytes, wanted, true)
    }

    fn read_at_once(
        &self,
        name: &str,
        bytes: u64,
        wanted: &[Range<u64>],
        direct: bool,
    ) -> Option<Vec<ByteBuffer>> {
        // Opening a file may take a disk, too.
        let open = self.0.files.get(name).filter(|open| open.bytes == bytes)?;
        check_ranges(name, bytes, wanted).ok()?;
        let read = |buffer: &mut [u8], offset| open.file.read_at_once(buffer, offset);
        let read = |buffer: &mut [u8], offset, bytes| {
            // What is missing would be read ahead, and then read again.
            if direct && !open.file.is_in_memory(offset..offset + bytes as u64) {
                return Err(ErrorKind::WouldBlock.into());
            }
            fill(read, buffer, offset, bytes)
        };
        self.0.read_near(wanted, read).ok()
    }

    fn is_in_memory(&self, name: &str, wanted: &[Range<u64>]) -> bool {
        let Some(open) = self.0.files.get(name) else { return false };
        near(wanted, READ_GAP_BYTES_MAX, u64::MAX).all(|(span, _)| open.file.is_in_memory(span))
    }

    fn read_ahead(&self, name: &str, wanted: &[Range<u64>]) -> bool {
        let Ok(open) = self.0.open(name) else { return true };
        near(wanted, READ_GAP_BYTES_MAX, u64::MAX).for_each(|(span, _)| open.file.read_ahead(span));
        true
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let read = || -> io::Result<Vec<u8>> {
            let file = self.0.disk.open(&self.0.at(name))?;
            let length = file.length()? as usize;
            let mut bytes = vec![0; length];
            fill(|buffer, offset| file.read_at(buffer, offset), &mut bytes, 0, length)?;
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io(format!("cannot read {}", self.locate(name)), e)),
        }
    }

    fn exists(&self, name: &str) -> Result<bool> {
        match self.0.disk.metadata(&self.0.at(name)) {
            Ok(entry) => Ok(!entry.is_folder),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(Error::io(format!("cannot read {}", self.locate(name)), e)),
        }
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        let entries = self.0.list(&self.0.at(folder))?.into_iter();
        let objects = entries.filter(|e| !e.is_folder && !e.name.starts_with(TEMPORARY));
        let listed = objects.map(|e| Listed {
            name: format!("{folder}{}", e.name),
            bytes: e.bytes,
            modified: e.modified,
        });
        // The lock is no object.
        Ok(listed.filter(|l| l.name != LOCK).collect())
    }

    /// Makes nothing: readers do this too.
    fn sync(&self, folder: &str) -> Result<()> {
        let root = &self.0.root;
        for path in [folder_of(root), root, &self.0.at(folder)] {
            match self.0.disk.sync_folder(path) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                // See `make_folder`.
                Err(e) if e.kind() == ErrorKind::PermissionDenied && path == folder_of(root) => {}
                Err(e) => {
                    let path = path.display();
                    return Err(Error::io(format!("cannot sync directory \"{path}\""), e));
                }
            }
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.0.files.forget(name);
        match self.0.disk.remove(&self.0.at(name)) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                Err(Error::io(format!("cannot remove {}", self.locate(name)), e))
            }
            _ => Ok(()),
        }
    }

    fn lock(&self, wait: Duration) -> Result<Option<Box<dyn Send + Sync>>> {
        let inner = &*self.0;
        let path = inner.at(LOCK);
        let me = myself();
        inner.make_folder(&inner.root).map_err(|e| inner.cannot_write(LOCK, e))?;
        // By naps and not by the clock: when the whole machine stood still, so did the holder.
        let mut left = wait;
        let mut pause = Duration::from_millis(1);
        loop {
            match inner.disk.try_lock(&path, &me).map_err(|e| inner.cannot_write(LOCK, e))? {
                Lock::Held(guard) => {
                    if !inner.swept.swap(true, Ordering::Relaxed) {
                        inner.sweep()?;
                    }
                    return Ok(Some(guard));
                }
                Lock::Unsupported => return Ok(None),
                Lock::Taken { holder } if left.is_zero() => {
                    let holder = match holder.trim() {
                        "" => "another process",
                        named => named,
                    };
                    let root = inner.root.display();
                    return Err(Error::resources(format!("{holder} is writing to \"{root}\""))
                        .hint("wait until it ends; meanwhile the database can be read"));
                }
                Lock::Taken { .. } => {
                    let nap = pause.min(left);
                    thread::sleep(nap);
                    left -= nap;
                    pause = (pause * 2).min(Duration::from_millis(50));
                }
            }
        }
    }
}

impl<D: Disk> Inner<D> {
    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// See [`Store::locate`].
    fn locate(&self, name: &str) -> String {
        format!("\"{}\"", self.at(name).display())
    }

    /// Under a name of no meaning first, durably; then under its own, which only one can get.
    fn put_new(&self, path: &Path, bytes: &[u8]) -> io::Result<bool> {
        let folder = folder_of(path);
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        // Random, for another machine's process may have our number.
        let nonce = RandomState::new().hash_one(0);
        let temporary = folder.join(format!("{TEMPORARY}{file_name}.{nonce:016x}"));
        let written = self.write_whole(&temporary, bytes);
        let linked = written.and_then(|()| match self.disk.link(&temporary, path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(e),
        });
        // What stays here after a crash is swept by the next writer.
        let _ = self.disk.remove(&temporary);
        // If the name was taken too: whoever took it may not have come to this.
        linked.and_then(|new| self.disk.sync_folder(folder).map(|()| new))
    }

    fn write_whole(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.create_file(path)?;
        write_all(&mut file, bytes)?;
        file.sync()
    }

    fn create_file(&self, path: &Path) -> io::Result<D::File> {
        self.make_folder(folder_of(path))?;
        self.disk.create(path)
    }

    /// Makes a folder with all above it, and its name durable.
    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        if self.folders.lock().get(folder) == Some(&Folder::Durable) {
            return Ok(());
        }
        let made = match self.disk.create_folder(folder) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                self.make_folder(folder_of(folder))?;
                self.disk.create_folder(folder)
            }
            made => made,
        };
        match made {
            Ok(()) => drop(self.folders.lock().insert(folder.to_owned(), Folder::Made)),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
        let ours = self.folders.lock().get(folder) == Some(&Folder::Made);
        if ours {
            self.make_folder(folder_of(folder))?;
        }
        // Also for those that were there: whoever made them may have died before this. What lies
        // above the database is somebody else's, and need not even be readable.
        if ours || folder.starts_with(&self.root) {
            match self.disk.sync_folder(folder_of(folder)) {
                Err(e) if e.kind() == ErrorKind::PermissionDenied && folder == self.root => {}
                synced => synced?,
            }
        }
        self.folders.lock().insert(folder.to_owned(), Folder::Durable);
        Ok(())
    }

    fn open(&self, name: &str) -> Result<Arc<OpenFile<D::File>>> {
        if let Some(open) = self.files.get(name) {
            return Ok(open);
        }
        let path = self.at(name);
        let located = path.display();
        let file = self.disk.open(&path).map_err(|e| match e.kind() {
            ErrorKind::NotFound => missing(&format!("\"{located}\"")),
            _ => Error::io(format!("cannot open \"{located}\""), e),
        })?;
        let bytes =
            file.length().map_err(|e| Error::io(format!("cannot read \"{located}\""), e))?;
        let open = Arc::new(OpenFile { file, bytes, direct: OnceLock::new() });
        self.files.keep(name, &open);
        Ok(open)
    }

    fn read(
        &self,
        name: &str,
        bytes: u64,
        wanted: &[Range<u64>],
        direct: bool,
    ) -> Result<Vec<ByteBuffer>> {
        let located = self.locate(name);
        let read = || {
            let open = self.open(name)?;
            check_length(&located, bytes, open.bytes)?;
            check_ranges(&located, bytes, wanted)?;
            let direct = if direct { self.direct(name, &open) } else { None };
            Ok(self.read_ranges(&open.file, direct, wanted))
        };
        match read()? {
            // A server of NFS has forgotten the handle: the name still leads to the file.
            Err(e) if e.kind() == ErrorKind::StaleNetworkFileHandle => {
                self.files.forget(name);
                read()?
            }
            done => done,
        }
        .map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => Error::corrupt(format!("{located} ends within a chunk"))
                .hint("restore it from a backup"),
            _ => Error::io(format!("cannot read {located}"), e),
        })
    }

    /// The same file, for direct reads. `None`: there are none, or it has lost its name.
    fn direct<'a>(&self, name: &str, open: &'a OpenFile<D::File>) -> Option<&'a D::File> {
        open.direct.get_or_init(|| self.disk.open_direct(&self.at(name)).ok()?).as_ref()
    }

    fn read_ranges(
        &self,
        file: &D::File,
        direct: Option<&D::File>,
        wanted: &[Range<u64>],
    ) -> io::Result<Vec<ByteBuffer>> {
        let from = |file: &D::File, buffer: &mut [u8], offset, bytes| {
            fill(|buffer, offset| file.read_at(buffer, offset), buffer, offset, bytes)
        };
        self.read_near(wanted, |buffer, offset, bytes| {
            let span = offset..offset + bytes as u64;
            match direct.filter(|_| !file.is_in_memory(span)) {
                Some(direct) => match from(direct, buffer, offset, bytes) {
                    // A disk with larger blocks, or a read that ended amid one.
                    Err(e) if e.kind() == ErrorKind::InvalidInput => {
                        from(file, buffer, offset, bytes)
                    }
                    done => done,
                },
                None => from(file, buffer, offset, bytes),
            }
        })
    }

    /// Has `fill` read, as of [`Blocks::read`], ranges that are near each other together.
    fn read_near(
        &self,
        wanted: &[Range<u64>],
        fill: impl Fn(&mut [u8], u64, usize) -> io::Result<()>,
    ) -> io::Result<Vec<ByteBuffer>> {
        let mut out = Vec::with_capacity(wanted.len());
        for (span, together) in near(wanted, READ_GAP_BYTES_MAX, REQUEST_BYTES_MAX) {
            let read = self.blocks.read(span.clone(), &fill)?;
            let part =
                |r: &Range<u64>| (r.start - span.start) as usize..(r.end - span.start) as usize;
            out.extend(together.iter().map(|r| read.slice_unaligned(part(r))));
        }
        Ok(out)
    }

    fn list(&self, folder: &Path) -> Result<Vec<super::disk::Entry>> {
        match self.disk.list(folder) {
            Ok(entries) => Ok(entries),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(Error::io(format!("cannot read directory \"{}\"", folder.display()), e)),
        }
    }

    /// Removes what writers left that died in `put_new`. Only under the lock: else it may be
    /// theirs still.
    fn sweep(&self) -> Result<()> {
        let folders = self.list(&self.root)?.into_iter().filter(|e| e.is_folder);
        for folder in folders.map(|e| self.root.join(e.name)) {
            let temporary = |e: &super::disk::Entry| !e.is_folder && e.name.starts_with(TEMPORARY);
            for entry in self.list(&folder)?.into_iter().filter(temporary) {
                // It does no harm, and the next one tries again.
                let _ = self.disk.remove(&folder.join(entry.name));
            }
        }
        Ok(())
    }

    fn cannot_write(&self, name: &str, e: io::Error) -> Error {
        let hint = match e.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                Some("free space on that disk, and try again; what was committed is safe")
            }
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                Some("the directory must be writable by the user who runs this program")
            }
            _ => None,
        };
        let error = Error::io(format!("cannot write \"{}\"", self.at(name).display()), e);
        hint.into_iter().fold(error, |error, hint| error.hint(hint))
    }
}

struct Writer<D: Disk> {
    inner: Arc<Inner<D>>,
    name: String,
    path: PathBuf,
    file: D::File,
    finished: bool,
}

impl<D: Disk> ObjectWriter for Writer<D> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        write_all(&mut self.file, bytes).map_err(|e| self.inner.cannot_write(&self.name, e))
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let synced = self.file.sync();
        synced
            .and_then(|()| self.inner.disk.sync_folder(folder_of(&self.path)))
            .map_err(|e| self.inner.cannot_write(&self.name, e))?;
        self.finished = true;
        Ok(())
    }
}

impl<D: Disk> Drop for Writer<D> {
    fn drop(&mut self) {
        if !self.finished {
            // Nobody names what stays: it is an orphan, and swept as such.
            let _ = self.inner.disk.remove(&self.path);
        }
    }
}

/// Files kept open for reading. With more extents than `OPEN_FILES_MAX`, so that a process may run
/// out of descriptors, any of them gives way: a scan goes through all in turn, and the one unused
/// for longest is the one it needs next.
#[derive(Debug)]
struct OpenFiles<F>(RwLock<HashMap<String, Arc<OpenFile<F>>>>);

#[derive(Debug)]
struct OpenFile<F> {
    file: F,
    bytes: u64,
    /// Opened again when first needed; see [`Disk::open_direct`].
    direct: OnceLock<Option<F>>,
}

impl<F> Default for OpenFiles<F> {
    fn default() -> Self {
        OpenFiles(RwLock::default())
    }
}

impl<F> OpenFiles<F> {
    fn get(&self, name: &str) -> Option<Arc<OpenFile<F>>> {
        self.0.read().get(name).cloned()
    }

    fn keep(&self, name: &str, file: &Arc<OpenFile<F>>) {
        let mut files = self.0.write();
        if files.len() >= OPEN_FILES_MAX
            && let Some(any) = files.keys().next().cloned()
        {
            files.remove(&any);
        }
        files.insert(name.to_owned(), file.clone());
    }

    fn forget(&self, name: &str) {
        self.0.write().remove(name);
    }
}

/// Has `read` fill at least the first `bytes` of `buffer`.
fn fill(
    read: impl Fn(&mut [u8], u64) -> io::Result<usize>,
    buffer: &mut [u8],
    offset: u64,
    bytes: usize,
) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes {
        match read(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => filled += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn write_all(file: &mut impl DiskFile, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// What others read who find the lock taken.
fn myself() -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let since = timestamp_s_to_datetime(now.as_secs() as i64)
        .map(|t| format!(", since {t} UTC"))
        .unwrap_or_default();
    format!("process {} on {host}{since},", process::id())
}
