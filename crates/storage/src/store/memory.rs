//! Objects in memory, gone with the last handle.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::RwLock;
use thalweg_base::Result;
use vortex::buffer::{Alignment, ByteBuffer};

use super::reading::{ALIGNMENT, check_length, check_ranges, missing};
use super::{Listed, ObjectWriter, Store};

/// Clones share the objects.
#[derive(Clone, Default)]
pub(crate) struct MemoryStore(Arc<RwLock<BTreeMap<String, Object>>>);

#[derive(Clone)]
struct Object {
    bytes: ByteBuffer,
    modified: SystemTime,
}

impl MemoryStore {
    /// False: the name is taken.
    fn insert(&self, name: &str, bytes: ByteBuffer) -> bool {
        let mut objects = self.0.write();
        let free = !objects.contains_key(name);
        if free {
            objects.insert(name.to_owned(), Object { bytes, modified: SystemTime::now() });
        }
        free
    }
}

/// Without the bytes.
impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryStore")
    }
}

impl Store for MemoryStore {
    fn locate(&self, name: &str) -> String {
        format!("\"{name}\" (in memory)")
    }

    fn path(&self, _name: &str) -> Option<PathBuf> {
        None
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        Ok(self.insert(name, ByteBuffer::copy_from_aligned(bytes, Alignment::new(ALIGNMENT))))
    }

    fn create(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(Writer { store: self.clone(), name: name.to_owned(), bytes: Vec::new() }))
    }

    /// Ranges share the object's memory: nothing is copied.
    fn read(&self, name: &str, bytes: u64, wanted: &[Range<u64>]) -> Result<Vec<ByteBuffer>> {
        let located = self.locate(name);
        let object = self.0.read().get(name).cloned().ok_or_else(|| missing(&located))?;
        check_length(&located, bytes, object.bytes.len() as u64)?;
        check_ranges(&located, bytes, wanted)?;
        let slice = |r: &Range<u64>| object.bytes.slice_unaligned(r.start as usize..r.end as usize);
        Ok(wanted.iter().map(slice).collect())
    }

    fn read_at_once(
        &self,
        name: &str,
        bytes: u64,
        wanted: &[Range<u64>],
        _direct: bool,
    ) -> Option<Vec<ByteBuffer>> {
        self.read(name, bytes, wanted).ok()
    }

    fn read_ahead(&self, _name: &str, _wanted: &[Range<u64>]) -> bool {
        true
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.0.read().get(name).map(|object| object.bytes.to_vec()))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        Ok(self.0.read().contains_key(name))
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        let objects = self.0.read();
        let below = objects
            .range(folder.to_owned()..)
            .take_while(|(name, _)| name.starts_with(folder))
            .filter(|(name, _)| !name[folder.len()..].contains('/'));
        let listed = |(name, object): (&String, &Object)| Listed {
            name: name.clone(),
            bytes: object.bytes.len() as u64,
            modified: object.modified,
        };
        Ok(below.map(listed).collect())
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.0.write().remove(name);
        Ok(())
    }

    /// No other process can see it.
    fn is_private(&self) -> bool {
        true
    }

    fn lock(&self, _wait: Duration) -> Result<Option<Box<dyn Send + Sync>>> {
        Ok(None)
    }
}

struct Writer {
    store: MemoryStore,
    name: String,
    bytes: Vec<u8>,
}

impl ObjectWriter for Writer {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let Writer { store, name, bytes } = *self;
        let bytes = ByteBuffer::copy_from_aligned(bytes, Alignment::new(ALIGNMENT));
        if store.insert(&name, bytes) {
            return Ok(());
        }
        Err(super::reading::taken(&store.locate(&name)))
    }
}
