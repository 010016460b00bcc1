//! Decoded chunk-columns, shared by every query of the process.
//!
//! Sharded by key, so that workers seldom meet; each shard is a CLOCK (Corbató 1968) with two-bit
//! counters. A hit takes a shared lock, one probe and a relaxed store: ~50 ns. An entry starts at
//! zero and is raised by hits only, so one scan of a big table pushes out its own leftovers before
//! it touches what others come back to.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use arrow::array::ArrayRef;
use parking_lot::RwLock;
use thalweg_base::ExtentId;

use crate::hll::hash_u64;

const SHARDS_MAX: u64 = 64;
/// A shard keeps no array above its own share, so shares are never small.
const SHARD_BYTES_MIN: u64 = 32 << 20;
/// Sweeps of the hand that a much used entry survives.
const LIVES_MAX: u8 = 3;
/// What an entry costs beside its array: map, ring, and the allocations' own bookkeeping.
const ENTRY_BYTES: u64 = 256;

/// One column of one chunk, as stored: the same for every version of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub extent: ExtentId,
    pub chunk: u32,
    pub column: u32,
}

impl std::hash::Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.mixed());
    }
}

impl Key {
    fn mixed(&self) -> u64 {
        hash_u64(
            self.extent.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ u64::from(self.chunk) << 32
                ^ u64::from(self.column),
        )
    }
}

/// The key is mixed already.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("a Key hashes itself as one u64")
    }
    fn write_u64(&mut self, mixed: u64) {
        self.0 = mixed;
    }
}

struct Entry {
    key: Key,
    array: ArrayRef,
    bytes: u64,
    lives: AtomicU8,
}

#[derive(Default)]
struct Shard {
    index: HashMap<Key, usize, BuildHasherDefault<Mixed>>,
    ring: Vec<Entry>,
    hand: usize,
    bytes: u64,
}

/// Padded, so that the counters of two shards never share a line.
#[repr(align(128))]
#[derive(Default)]
struct Slot {
    shard: RwLock<Shard>,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    pub bytes: u64,
    pub bytes_max: u64,
    pub hits: u64,
    pub misses: u64,
    pub evictions: u64,
}

pub(crate) struct Cache {
    slots: Box<[Slot]>,
    bytes_max: u64,
}

impl Cache {
    pub fn new(bytes_max: u64) -> Self {
        let shards = (bytes_max / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        Cache { slots: (0..shards).map(|_| Slot::default()).collect(), bytes_max }
    }

    fn slot(&self, key: Key) -> &Slot {
        // The map uses the low bits and the top seven; these lie between.
        &self.slots[(key.mixed() >> 40) as usize % self.slots.len()]
    }

    pub fn get(&self, key: Key) -> Option<ArrayRef> {
        let slot = self.slot(key);
        let shard = slot.shard.read();
        let Some(&at) = shard.index.get(&key) else {
            slot.misses.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let entry = &shard.ring[at];
        let lives = entry.lives.load(Ordering::Relaxed);
        if lives < LIVES_MAX {
            entry.lives.store(lives + 1, Ordering::Relaxed);
        }
        slot.hits.fetch_add(1, Ordering::Relaxed);
        Some(entry.array.clone())
    }

    /// Whether it is there; nobody comes back to it by that.
    pub fn has(&self, key: Key) -> bool {
        self.slot(key).shard.read().index.contains_key(&key)
    }

    /// Keeps `array`, evicting others; an array too big for its shard is not kept.
    pub fn insert(&self, key: Key, array: &ArrayRef) {
        let bytes = array.get_array_memory_size() as u64 + ENTRY_BYTES;
        let budget = self.bytes_max / self.slots.len() as u64;
        if bytes > budget {
            return;
        }
        let slot = self.slot(key);
        let mut evicted = Vec::new();
        let mut shard = slot.shard.write();
        if shard.index.contains_key(&key) {
            return;
        }
        while shard.bytes + bytes > budget {
            evicted.push(shard.evict());
        }
        let at = shard.ring.len();
        shard.ring.push(Entry { key, array: array.clone(), bytes, lives: AtomicU8::new(0) });
        shard.index.insert(key, at);
        shard.bytes += bytes;
        drop(shard);
        // Freed outside the lock: giving megabytes back may be a system call.
        slot.evictions.fetch_add(evicted.len() as u64, Ordering::Relaxed);
    }

    /// Whether what comes next will stay for a while.
    pub fn has_room(&self) -> bool {
        let bytes: u64 = self.slots.iter().map(|slot| slot.shard.read().bytes).sum();
        bytes < self.bytes_max / 8 * 7
    }

    /// Forgets an extent that is gone.
    pub fn forget(&self, extent: ExtentId) {
        for slot in &self.slots {
            let mut gone = Vec::new();
            let mut shard = slot.shard.write();
            let mut at = 0;
            while at < shard.ring.len() {
                if shard.ring[at].key.extent == extent {
                    gone.push(shard.remove(at));
                } else {
                    at += 1;
                }
            }
            drop(shard);
        }
    }

    pub fn stats(&self) -> CacheStats {
        let mut stats = CacheStats { bytes_max: self.bytes_max, ..CacheStats::default() };
        for slot in &self.slots {
            stats.bytes += slot.shard.read().bytes;
            stats.hits += slot.hits.load(Ordering::Relaxed);
            stats.misses += slot.misses.load(Ordering::Relaxed);
            stats.evictions += slot.evictions.load(Ordering::Relaxed);
        }
        stats
    }
}

impl Shard {
    /// Advances the hand to an entry without lives and takes it out. Callers know the ring is
    /// not empty: its bytes exceed zero.
    fn evict(&mut self) -> ArrayRef {
        loop {
            if self.hand >= self.ring.len() {
                self.hand = 0;
            }
            let lives = self.ring[self.hand].lives.get_mut();
            let spent = *lives == 0;
            *lives = lives.saturating_sub(1);
            self.hand += 1;
            if spent {
                // The newest entry takes the victim's place, now behind the hand: it gets its
                // full turn.
                return self.remove(self.hand - 1);
            }
        }
    }

    fn remove(&mut self, at: usize) -> ArrayRef {
        let entry = self.ring.swap_remove(at);
        self.index.remove(&entry.key);
        if let Some(moved) = self.ring.get(at) {
            self.index.insert(moved.key, at);
        }
        self.bytes -= entry.bytes;
        entry.array
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;

    use super::*;

    fn key(extent: u64, chunk: u32) -> Key {
        Key { extent: ExtentId(extent), chunk, column: 0 }
    }

    fn array(rows: usize) -> ArrayRef {
        Arc::new(Int64Array::from(vec![0; rows]))
    }

    #[test]
    fn never_holds_more_than_its_bound() {
        let cache = Cache::new(1 << 20);
        for chunk in 0..10_000 {
            cache.insert(key(1, chunk), &array(100 + chunk as usize % 300));
            assert!(cache.stats().bytes <= 1 << 20);
        }
        let stats = cache.stats();
        assert!(stats.evictions > 9_000 && stats.bytes > 1 << 19, "{stats:?}");
        cache.insert(key(2, 0), &array(1 << 20));
        assert!(cache.get(key(2, 0)).is_none(), "an array above the bound is not kept");
        assert!(!cache.has(key(2, 0)));
        assert!(!cache.has_room() && Cache::new(1 << 20).has_room() && !Cache::new(0).has_room());
        cache.insert(key(2, 1), &array(10));
        assert!(cache.has(key(2, 1)));
    }

    #[test]
    fn a_scan_does_not_push_out_what_is_used() {
        let cache = Cache::new(4 << 20);
        for chunk in 0..200 {
            cache.insert(key(1, chunk), &array(1000));
            assert!(cache.get(key(1, chunk)).is_some());
        }
        for chunk in 0..600 {
            cache.insert(key(2, chunk), &array(1000));
        }
        let kept = (0..200).filter(|&c| cache.get(key(1, c)).is_some()).count();
        assert!(kept > 150, "{kept} of 200 survived the scan");
    }

    #[test]
    fn a_forgotten_extent_leaves_nothing() {
        let cache = Cache::new(64 << 20);
        for chunk in 0..500 {
            cache.insert(key(1, chunk), &array(10));
            cache.insert(key(2, chunk), &array(10));
        }
        cache.forget(ExtentId(1));
        assert!((0..500).all(|c| cache.get(key(1, c)).is_none()));
        assert!((0..500).all(|c| cache.get(key(2, c)).is_some()));
        cache.forget(ExtentId(2));
        assert_eq!(cache.stats().bytes, 0);
    }
}
