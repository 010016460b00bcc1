//! One database: the catalog, the directory of extents, the cache, and the current snapshot.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use parking_lot::{Mutex, RwLock};
use thalweg_base::limits::CACHE_MEMORY_PERCENT;
use thalweg_base::{Error, ExtentId, Result, TableId};

use crate::cache::{Cache, CacheStats, Key};
use crate::catalog::Catalog;
use crate::extent::{Extent, ExtentWriter, Home, Limits, Segment, file_name, sync_directory};
use crate::snapshot::Snapshot;
use crate::transaction::{Operation, Transaction, rebase};

const CATALOG: &str = "catalog.redb";
const EXTENTS: &str = "extents";

/// How to open a database.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decoded chunks kept in memory.
    pub cache_bytes_max: u64,
    /// Whether to make a database where there is none.
    pub create: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            cache_bytes_max: machine_memory_bytes() / 100 * CACHE_MEMORY_PERCENT,
            create: true,
        }
    }
}

/// A handle to an open database; clones share it.
#[derive(Clone)]
pub struct Database(Arc<Inner>);

struct Inner {
    path: Option<PathBuf>,
    catalog: Catalog,
    home: Arc<Home>,
    next_table: AtomicU64,
    current: RwLock<Arc<Snapshot>>,
    /// Held from reading the current snapshot to publishing the next.
    committing: Mutex<()>,
}

impl Database {
    /// Opens the database in directory `path`, or makes one if the directory is absent or empty.
    /// One process has it at a time.
    pub fn open(path: &Path, options: Options) -> Result<Database> {
        let catalog_path = path.join(CATALOG);
        let exists = match fs::metadata(path) {
            Ok(meta) if !meta.is_dir() => {
                return Err(Error::user(format!(
                    "\"{}\" is a file; a database is a directory",
                    path.display()
                ))
                .hint("name another place, or load the file into a table of a database"));
            }
            Ok(_) if catalog_path.exists() => true,
            Ok(_) => {
                check_unused(path)?;
                false
            }
            Err(e) if e.kind() == ErrorKind::NotFound => false,
            Err(e) => return Err(Error::io(format!("cannot open \"{}\"", path.display()), e)),
        };
        if !exists && !options.create {
            return Err(Error::user(format!("there is no database at \"{}\"", path.display()))
                .hint("check the path; a new database must be asked for"));
        }
        let extents = path.join(EXTENTS);
        fs::create_dir_all(&extents).map_err(|e| cannot_write(&extents, e))?;
        let catalog = if exists {
            Catalog::open(&catalog_path)?
        } else {
            let catalog = Catalog::create(&catalog_path)?;
            sync_directory(path)?;
            catalog
        };
        Database::start(Some(path.to_owned()), Some(extents), catalog, options)
    }

    /// A database that is gone with its last handle.
    pub fn memory(options: Options) -> Result<Database> {
        Database::start(None, None, Catalog::memory()?, options)
    }

    fn start(
        path: Option<PathBuf>,
        extents: Option<PathBuf>,
        catalog: Catalog,
        options: Options,
    ) -> Result<Database> {
        let home = Arc::new(Home {
            extents,
            next_extent: AtomicU64::new(1),
            cache: Arc::new(Cache::new(options.cache_bytes_max)),
            open: Arc::default(),
        });
        let loaded = catalog.load(&home)?;
        if let Some(directory) = &home.extents {
            let last = sweep(directory, &loaded.extents)?;
            home.next_extent.fetch_max(last + 1, Ordering::Relaxed);
        }
        Ok(Database(Arc::new(Inner {
            path,
            catalog,
            home,
            next_table: AtomicU64::new(loaded.next_table),
            current: RwLock::new(Arc::new(loaded.snapshot)),
            committing: Mutex::new(()),
        })))
    }

    /// The current state. As long as the `Arc` lives, its extents are not removed.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.0.current.read().clone()
    }

    pub fn begin(&self) -> Transaction {
        Transaction::new(self.clone())
    }

    /// A writer of rows of `schema` (a table's), sorted in runs by the columns `cluster_by`.
    pub fn extent_writer(&self, schema: SchemaRef, cluster_by: &[usize]) -> Result<ExtentWriter> {
        ExtentWriter::new(self.0.home.clone(), schema, cluster_by, Limits::default())
    }

    #[cfg(test)]
    pub(crate) fn small_writer(
        &self,
        schema: SchemaRef,
        cluster_by: &[usize],
        limits: Limits,
    ) -> ExtentWriter {
        ExtentWriter::new(self.0.home.clone(), schema, cluster_by, limits).unwrap()
    }

    /// The decoded chunk-column, if the cache has it: tens of nanoseconds.
    pub fn cached(&self, extent: &Extent, chunk: usize, column: usize) -> Option<ArrayRef> {
        self.0.home.cache.get(key(extent, chunk, column))
    }

    /// Fetches the compressed bytes of some columns of a chunk: input and output, no decoding.
    pub fn read(
        &self,
        extent: &Arc<Extent>,
        chunk: usize,
        columns: &[usize],
    ) -> Result<Vec<Segment>> {
        extent.read(chunk, columns)
    }

    /// Decodes a segment into exactly the table's Arrow type, and caches it: no input or output.
    pub fn decode(&self, segment: Segment) -> Result<ArrayRef> {
        let array = segment.extent.decode(&segment)?;
        self.0.home.cache.insert(key(&segment.extent, segment.chunk, segment.column), &array);
        Ok(array)
    }

    pub fn cache_stats(&self) -> CacheStats {
        self.0.home.cache.stats()
    }

    /// Of the extents that the current snapshot has.
    pub fn stored_bytes(&self) -> u64 {
        self.snapshot().stored_bytes()
    }

    /// `None`: in memory.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    pub(crate) fn next_table_id(&self) -> TableId {
        TableId(self.0.next_table.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn owns(&self, extent: &Extent) -> bool {
        extent.shares(&self.0.home.cache)
    }

    pub(crate) fn commit(
        &self,
        base: &Snapshot,
        operations: &[Operation],
    ) -> Result<Arc<Snapshot>> {
        let inner = &*self.0;
        let committing = inner.committing.lock();
        let current = self.snapshot();
        let next = Arc::new(rebase(base, &current, operations)?);
        let (old, new) = (extents(&current), extents(&next));
        let added = new.values().filter(|e| !old.contains_key(&e.id));
        let removed = old.values().filter(|e| !new.contains_key(&e.id));
        // If the commit fails halfway, the catalog may or may not have the new extents. Their
        // files must stay until the next open, which knows and sweeps.
        added.for_each(|e| e.set_registered(true));
        inner.catalog.commit(
            &current,
            &next,
            &inner.home,
            inner.next_table.load(Ordering::Relaxed),
        )?;
        removed.for_each(|e| e.set_registered(false));
        *inner.current.write() = next.clone();
        drop(committing);
        // `current` goes here, outside the lock: if nobody else has it, files are removed.
        Ok(next)
    }
}

fn extents(snapshot: &Snapshot) -> HashMap<ExtentId, &Extent> {
    snapshot.tables().flat_map(|t| &t.extents).map(|e| (e.id, &**e)).collect()
}

fn key(extent: &Extent, chunk: usize, column: usize) -> Key {
    Key { extent: extent.id, chunk: chunk as u32, column: column as u32 }
}

/// Refuses a directory with something else in it. An interrupted creation is not something else.
fn check_unused(path: &Path) -> Result<()> {
    let cannot_read = |e| Error::io(format!("cannot read directory \"{}\"", path.display()), e);
    for entry in fs::read_dir(path).map_err(cannot_read)? {
        let entry = entry.map_err(cannot_read)?;
        let name = entry.file_name();
        let partial = name.to_str().is_some_and(|n| n.starts_with("catalog.redb.new-"));
        let ours = partial || name == EXTENTS || name == "lost+found";
        let stray =
            name == EXTENTS && fs::read_dir(entry.path()).map_err(cannot_read)?.next().is_some();
        if !ours || stray {
            return Err(Error::user(format!(
                "\"{}\" is not a database, and not empty",
                path.display()
            ))
            .detail(format!("it has no {CATALOG}, but a {name:?}"))
            .hint("name a directory that is empty or does not exist yet"));
        }
    }
    Ok(())
}

/// Removes extent files that no table has: of interrupted loads, and of tables dropped while
/// somebody still read them. Returns the highest id seen.
fn sweep(directory: &Path, known: &HashSet<ExtentId>) -> Result<u64> {
    let cannot_read =
        |e| Error::io(format!("cannot read directory \"{}\"", directory.display()), e);
    let mut last = known.iter().map(|id| id.0).max().unwrap_or(0);
    for entry in fs::read_dir(directory).map_err(cannot_read)? {
        let entry = entry.map_err(cannot_read)?;
        let name = entry.file_name();
        let id = name.to_str().and_then(|n| n.strip_suffix(".vortex")?.parse().ok()).map(ExtentId);
        // A file that we would not name so is not ours to remove.
        let Some(id) = id.filter(|&id| name == *file_name(id)) else { continue };
        last = last.max(id.0);
        if !known.contains(&id) {
            fs::remove_file(entry.path()).map_err(|e| cannot_write(&entry.path(), e))?;
        }
    }
    Ok(last)
}

fn cannot_write(path: &Path, e: std::io::Error) -> Error {
    Error::io(format!("cannot write \"{}\"", path.display()), e)
        .hint("the directory must be writable by the user who runs this program")
}

/// The machine's memory, or the container's if that is less.
pub fn machine_memory_bytes() -> u64 {
    const UNKNOWN: u64 = 4 << 30;
    let total = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    let total = total.map_or(UNKNOWN, |kib| kib * 1024);
    let limit =
        fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|t| t.trim().parse().ok());
    limit.map_or(total, |limit: u64| total.min(limit))
}

#[cfg(test)]
mod tests;
