//! `CachedStore`: what it asks of the store behind it, and what it keeps.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use thalweg_base::Result;
use thalweg_base::limits::REMOTE_CACHE_BLOCK_BYTES as BLOCK;
use vortex::buffer::ByteBuffer;

use super::super::cached::{CachedStore, folder_for};
use super::super::{Listed, MemoryStore, ObjectWriter, Store};

/// Notes what is read.
#[derive(Debug, Default)]
struct Counted {
    store: MemoryStore,
    read: Mutex<Vec<Range<u64>>>,
}

impl Store for Counted {
    fn locate(&self, name: &str) -> String {
        self.store.locate(name)
    }
    fn path(&self, name: &str) -> Option<PathBuf> {
        self.store.path(name)
    }
    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.store.put_new(name, bytes)
    }
    fn create(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        self.store.create(name)
    }
    fn read(&self, name: &str, bytes: u64, wanted: &[Range<u64>]) -> Result<Vec<ByteBuffer>> {
        self.read.lock().extend_from_slice(wanted);
        self.store.read(name, bytes, wanted)
    }
    fn read_ahead(&self, name: &str, wanted: &[Range<u64>]) -> bool {
        self.store.read_ahead(name, wanted)
    }
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.store.get(name)
    }
    fn exists(&self, name: &str) -> Result<bool> {
        self.store.exists(name)
    }
    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        self.store.list(folder)
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.store.remove(name)
    }
    fn lock(&self, wait: Duration) -> Result<Option<Box<dyn Send + Sync>>> {
        self.store.lock(wait)
    }
}

const NAME: &str = "extents/a.vortex";

struct Fixture {
    remote: Arc<Counted>,
    content: Vec<u8>,
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new(bytes: u64) -> Self {
        let content: Vec<u8> = (0..bytes).map(|i| (i % 241) as u8).collect();
        let remote = Arc::new(Counted::default());
        assert!(remote.put_new(NAME, &content).unwrap());
        Fixture { remote, content, folder: tempfile::tempdir().unwrap() }
    }

    fn open(&self, bytes_max: u64) -> CachedStore {
        CachedStore::new(self.remote.clone(), self.folder.path().to_owned(), bytes_max).unwrap()
    }

    /// Reads, compares, and returns what was asked of the remote store.
    #[track_caller]
    fn read(&self, store: &CachedStore, wanted: &[Range<u64>]) -> Vec<Range<u64>> {
        self.remote.read.lock().clear();
        let read = store.read(NAME, self.content.len() as u64, wanted).unwrap();
        for (buffer, range) in read.iter().zip(wanted) {
            assert!(buffer.as_slice() == &self.content[range.start as usize..range.end as usize]);
        }
        self.remote.read.lock().clone()
    }

    fn blocks(&self) -> Vec<PathBuf> {
        let folder = self.folder.path().join(NAME);
        let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
        paths.sort();
        paths
    }
}

#[test]
fn a_block_is_fetched_once_for_all_who_share_the_folder() {
    let fixture = Fixture::new(4 * BLOCK + 100);
    let store = fixture.open(1 << 30);
    assert_eq!(fixture.read(&store, &[10..20, 30..40]), [0..BLOCK]);
    assert_eq!(fixture.read(&store, &[0..BLOCK]), []);
    let asked = fixture.read(&store, &[5..6, BLOCK - 5..BLOCK + 5, 4 * BLOCK..4 * BLOCK + 100]);
    assert_eq!(asked, [BLOCK..2 * BLOCK, 4 * BLOCK..4 * BLOCK + 100]);
    let other = fixture.open(1 << 30);
    assert_eq!(fixture.read(&other, &[0..2 * BLOCK, 4 * BLOCK + 50..4 * BLOCK + 100]), []);
    assert_eq!(fixture.read(&other, &[7..7]), []);
    assert_eq!(fixture.blocks().len(), 3);
}

#[test]
fn a_damaged_block_is_forgotten_and_fetched_again() {
    let fixture = Fixture::new(2 * BLOCK);
    let store = fixture.open(1 << 30);
    fixture.read(&store, &[0..2 * BLOCK]);
    let path = &fixture.blocks()[0];
    let mut bytes = fs::read(path).unwrap();
    bytes[17] ^= 1;
    fs::write(path, &bytes).unwrap();
    let read = store.read(NAME, 2 * BLOCK, &[0..100]).unwrap();
    assert_eq!(read[0][17], fixture.content[17] ^ 1, "only the caller's checksum can tell");
    assert!(store.forget(NAME));
    assert!(!store.forget(NAME), "there is no second time");
    assert_eq!(fixture.read(&store, &[0..100]), [0..BLOCK]);
    // One of a wrong length is no block.
    fs::write(&fixture.blocks()[0], b"torn").unwrap();
    assert_eq!(fixture.read(&store, &[0..100]), [0..BLOCK]);
    assert_eq!(fixture.read(&store, &[0..100]), []);
}

#[test]
fn it_stays_within_its_limit_and_keeps_what_was_used_last() {
    let fixture = Fixture::new(64 * BLOCK);
    let max = 16 * BLOCK;
    let store = fixture.open(max);
    let used_long_ago = |path: &Path, hours: u64| {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(hours * 3600)).unwrap();
    };
    for i in 0..64 {
        fixture.read(&store, &[i * BLOCK..i * BLOCK + 1]);
        let path = fixture.folder.path().join(NAME).join(i.to_string());
        used_long_ago(&path, 100 - i);
        // The first one is used all the time.
        fixture.read(&store, &[0..1]);
        let total: u64 = fixture.blocks().iter().map(|p| p.metadata().unwrap().len()).sum();
        assert!(total <= max / 8 * 9 + BLOCK, "{total} after {i}");
    }
    assert_eq!(fixture.read(&store, &[0..1]), [], "it is still there");
    assert!(!fixture.read(&store, &[BLOCK..BLOCK + 1]).is_empty(), "that one went");
}

#[test]
fn it_works_where_nothing_can_be_kept() {
    let fixture = Fixture::new(3 * BLOCK);
    let store = fixture.open(1 << 30);
    fs::write(fixture.folder.path().join("extents"), b"in the way").unwrap();
    assert_eq!(fixture.read(&store, &[0..10]).len(), 1);
    assert_eq!(fixture.read(&store, &[0..10]).len(), 1);
    assert!(!store.forget(NAME));
    store.remove(NAME).unwrap();
}

#[test]
fn each_url_has_its_folder() {
    let folder = |url| folder_for(Path::new("/cache"), url).to_str().unwrap().to_owned();
    assert!(folder("s3://bucket/a/b").starts_with("/cache/bucket_a_b-"));
    assert_ne!(folder("s3://bucket/a/b"), folder("s3://bucket/a_b"));
    assert!(folder(&format!("s3://{}", "x/..".repeat(100))).len() < 100);
}
