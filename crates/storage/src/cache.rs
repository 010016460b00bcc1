//! Decoded chunk-columns, shared by every query of the process.
//!
//! Sharded by key, so that workers seldom meet. A hit takes a shared lock, one probe and at most three
//! relaxed stores: ~50 ns.
//!
//! What is asked for again and again, and is larger than the cache, would push itself out just before
//! it is asked for if the newest always stayed: no hits at all. So a newcomer stays a while, and then
//! takes the place of another only if it saves more. What an entry saves is what decoding a byte of it
//! takes, divided by the time until it is wanted again, which is guessed: for a newcomer from the time
//! between the last two times it was wanted, for the others from the time since then, as in LIRS
//! (Jiang and Zhang 2002). Of those that left that time is remembered, in eight bytes for every 4 KiB
//! of the cache. What was never wanted before takes the place of what nobody came back to, so a scan
//! pushes out what another left behind.
//!
//! The clock of a shard is what had to be decoded for it, in bytes: what is found here takes no room
//! from anybody. Entries are looked at a few at a time, in turn, and the one that saves least leaves.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::ArrayRef;
use parking_lot::RwLock;
use thalweg_base::ExtentId;

use crate::hll::hash_u64;

const SHARDS_MAX: u64 = 64;
/// A shard keeps no array above its own share, so shares are never small.
const SHARD_BYTES_MIN: u64 = 32 << 20;
/// Newcomers have this part of a shard.
const NEW_SHARE: u64 = 8;
/// Of a shard, at a time.
const LOOKS: usize = 8;
/// What somebody came back to outlives, after that, so many times the shard's bytes of newcomers that
/// were never seen before.
const LIVES: u64 = 4;
/// For so many bytes of a shard one key that is gone is remembered.
const BYTES_FOR_ONE_GONE: u64 = 4 << 10;
/// Of decoding, in nanoseconds for a byte: whoever takes longer was interrupted.
const COST_MAX: f32 = 8.0;
/// What takes less is not worth telling apart.
const COST_MIN: f32 = 0.05;
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
    /// Of decoding a byte, in nanoseconds.
    cost: f32,
    /// By the shard's clock, when it was wanted last.
    wanted: AtomicU64,
    /// And how long that was after the time before; [`NEVER`]: there was none, as far as is known.
    since: AtomicU64,
    /// Whether it was wanted after it came.
    came_back_to: AtomicBool,
    is_new: bool,
}

const NEVER: u64 = u64::MAX;

#[derive(Default)]
struct Shard {
    index: HashMap<Key, usize, BuildHasherDefault<Mixed>>,
    ring: Vec<Entry>,
    hand: usize,
    bytes: u64,
    /// The oldest first.
    new: VecDeque<Key>,
    new_bytes: u64,
    /// Of all that had to be decoded so far.
    clock: u64,
    gone: Gone,
}

/// When keys that are not here were wanted last. Of two for one place the later one stays.
#[derive(Default)]
struct Gone(Box<[u64]>);

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
        let before = entry.wanted.load(Ordering::Relaxed);
        // Where nothing leaves, nothing is written.
        if before != shard.clock || !entry.came_back_to.load(Ordering::Relaxed) {
            entry.since.store(shard.clock.saturating_sub(before), Ordering::Relaxed);
            entry.wanted.store(shard.clock, Ordering::Relaxed);
            entry.came_back_to.store(true, Ordering::Relaxed);
        }
        slot.hits.fetch_add(1, Ordering::Relaxed);
        Some(entry.array.clone())
    }

    /// Whether it is there; nobody comes back to it by that.
    pub fn has(&self, key: Key) -> bool {
        self.slot(key).shard.read().index.contains_key(&key)
    }

    /// Keeps `array`, which it `took` so long to decode, for a while, and longer if it saves more than
    /// others. An array too big for its shard is not kept.
    pub fn insert(&self, key: Key, array: &ArrayRef, took: Duration) {
        let bytes = array.get_array_memory_size() as u64 + ENTRY_BYTES;
        let budget = self.bytes_max / self.slots.len() as u64;
        if bytes > budget - budget / NEW_SHARE {
            return;
        }
        let cost = (took.as_nanos() as f32 / bytes as f32).clamp(COST_MIN, COST_MAX);
        let slot = self.slot(key);
        let mut evicted = Vec::new();
        let mut shard = slot.shard.write();
        if shard.index.contains_key(&key) {
            return;
        }
        shard.add(key, array.clone(), bytes, cost, budget);
        while shard.new_bytes > budget / NEW_SHARE {
            shard.settle_oldest(budget, &mut evicted);
        }
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
    fn add(&mut self, key: Key, array: ArrayRef, bytes: u64, cost: f32, budget: u64) {
        self.clock += bytes;
        self.gone.make((budget / BYTES_FOR_ONE_GONE) as usize);
        let since = self.gone.last(key).map_or(NEVER, |last| self.clock.saturating_sub(last));
        self.index.insert(key, self.ring.len());
        self.ring.push(Entry {
            key,
            array,
            bytes,
            cost,
            wanted: self.clock.into(),
            since: since.into(),
            came_back_to: false.into(),
            is_new: true,
        });
        self.bytes += bytes;
        self.new.push_back(key);
        self.new_bytes += bytes;
    }

    /// It takes the place of others, or leaves. Callers know that there are new ones: they have bytes.
    fn settle_oldest(&mut self, budget: u64, evicted: &mut Vec<ArrayRef>) {
        let Some(key) = self.new.pop_front() else { return };
        let entry = &mut self.ring[self.index[&key]];
        entry.is_new = false;
        self.new_bytes -= entry.bytes;
        let (cost, since) = (entry.cost, *entry.since.get_mut());
        while self.bytes - self.new_bytes > budget - budget / NEW_SHARE {
            let at = self.victim(cost, since, budget).unwrap_or(self.index[&key]);
            let entry = &mut self.ring[at];
            let (leaves, wanted) = (entry.key, *entry.wanted.get_mut());
            self.gone.note(leaves, wanted);
            evicted.push(self.remove(at));
            if leaves == key {
                return;
            }
        }
    }

    /// Of the next few entries the one that saves least, if it saves less than one will that costs so
    /// much, and that was wanted so long after the time before.
    fn victim(&mut self, cost: f32, since: u64, budget: u64) -> Option<usize> {
        let unknown = since == NEVER;
        let until = if unknown { LIVES * budget } else { since };
        let (mut least, mut victim) = ((true, cost / until.max(1) as f32), None);
        for _ in 0..LOOKS.min(self.ring.len()) {
            self.hand = if self.hand + 1 < self.ring.len() { self.hand + 1 } else { 0 };
            let entry = &mut self.ring[self.hand];
            let age = self.clock.saturating_sub(*entry.wanted.get_mut());
            let keeps = !unknown || *entry.came_back_to.get_mut();
            let saves = (keeps, entry.cost / age.max(1) as f32);
            if !entry.is_new && saves < least {
                (least, victim) = (saves, Some(self.hand));
            }
        }
        victim
    }

    fn remove(&mut self, at: usize) -> ArrayRef {
        let entry = self.ring.swap_remove(at);
        self.index.remove(&entry.key);
        if let Some(moved) = self.ring.get(at) {
            self.index.insert(moved.key, at);
        }
        self.bytes -= entry.bytes;
        if entry.is_new {
            self.new.retain(|key| *key != entry.key);
            self.new_bytes -= entry.bytes;
        }
        entry.array
    }
}

/// In a number: a part of the key above, and the time below, in pages.
const TIME_BITS: u32 = 40;
const PAGE_BITS: u32 = 12;

impl Gone {
    /// With room for so many, if it has none.
    fn make(&mut self, places: usize) {
        if self.0.is_empty() {
            self.0 = vec![0; places.next_power_of_two()].into();
        }
    }

    fn place(&self, key: Key) -> usize {
        key.mixed() as usize & (self.0.len() - 1)
    }

    fn note(&mut self, key: Key, wanted: u64) {
        let place = self.place(key);
        self.0[place] = key.mixed() >> TIME_BITS << TIME_BITS | (wanted >> PAGE_BITS).max(1);
    }

    fn last(&self, key: Key) -> Option<u64> {
        let found = self.0[self.place(key)];
        let (of, pages) = (found >> TIME_BITS, found & ((1 << TIME_BITS) - 1));
        (pages > 0 && of == key.mixed() >> TIME_BITS).then_some(pages << PAGE_BITS)
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

    /// With what an entry costs, 128 fill a [`small`] cache.
    const ROWS: usize = (128 << 10) / 8 - 64;

    fn small() -> Cache {
        Cache::new(16 << 20)
    }

    const TOOK: Duration = Duration::from_micros(1);

    /// Asks for it, and brings it if it is not there.
    fn want(cache: &Cache, key: Key, array: &ArrayRef, took: Duration) -> bool {
        let found = cache.get(key).is_some();
        if !found {
            cache.insert(key, array, took);
        }
        found
    }

    #[test]
    fn never_holds_more_than_its_bound() {
        let cache = Cache::new(1 << 20);
        for chunk in 0..10_000 {
            cache.insert(key(1, chunk), &array(100 + chunk as usize % 300), TOOK);
            assert!(cache.stats().bytes <= 1 << 20);
        }
        let stats = cache.stats();
        assert!(stats.evictions > 9_000 && stats.bytes > 1 << 19, "{stats:?}");
        cache.insert(key(2, 0), &array(1 << 20), TOOK);
        assert!(cache.get(key(2, 0)).is_none(), "an array above the bound is not kept");
        assert!(!cache.has(key(2, 0)));
        assert!(!cache.has_room() && Cache::new(1 << 20).has_room() && !Cache::new(0).has_room());
        cache.insert(key(2, 1), &array(10), TOOK);
        assert!(cache.has(key(2, 1)));
    }

    #[test]
    fn whatever_is_asked_for_it_holds_what_it_says() {
        let mut random = thalweg_base::Prng::new(3);
        let cache = Cache::new(1 << 20);
        for _ in 0..50_000 {
            let most = 1 << random.below(12);
            let key = key(1 + random.below(2), random.below(most) as u32);
            let rows = 1 + key.chunk as usize % 900;
            match cache.get(key) {
                Some(found) => assert_eq!(found.len(), rows),
                None => cache.insert(key, &array(rows), TOOK * random.below(1000) as u32),
            }
            if random.below(5_000) == 0 {
                cache.forget(key.extent);
            }
        }
        let slot = &cache.slots[0].shard.read();
        assert_eq!(slot.bytes, slot.ring.iter().map(|entry| entry.bytes).sum::<u64>());
        let new = slot.ring.iter().filter(|entry| entry.is_new);
        assert_eq!(slot.new_bytes, new.clone().map(|entry| entry.bytes).sum::<u64>());
        assert_eq!(slot.new.len(), new.count());
        assert!(slot.bytes <= 1 << 20 && slot.index.len() == slot.ring.len());
        assert!(slot.index.iter().all(|(key, at)| slot.ring[*at].key == *key));
    }

    #[test]
    fn a_scan_does_not_push_out_what_is_used() {
        let cache = Cache::new(4 << 20);
        for chunk in 0..200 {
            assert!(!want(&cache, key(1, chunk), &array(1000), TOOK));
            assert!(want(&cache, key(1, chunk), &array(1000), TOOK));
        }
        for chunk in 0..600 {
            want(&cache, key(2, chunk), &array(1000), TOOK);
        }
        let kept = (0..200).filter(|&c| cache.has(key(1, c))).count();
        assert!(kept > 150, "{kept} of 200 survived the scan");
    }

    /// Shares of hits in rounds through `chunks` pages.
    fn rounds(cache: &Cache, extent: u64, chunks: u32, rounds: usize) -> Vec<f64> {
        let page = array(ROWS);
        let round = |_| {
            let hits = (0..chunks).filter(|&c| want(cache, key(extent, c), &page, TOOK));
            hits.count() as f64 / f64::from(chunks)
        };
        (0..rounds).map(round).collect()
    }

    #[test]
    fn of_what_is_larger_than_the_cache_and_wanted_again_a_part_stays() {
        for size in [1.2, 2.0, 5.0] {
            let cache = small();
            let chunks = (128.0 * size) as u32;
            let shares = rounds(&cache, 1, chunks, 6);
            assert_eq!(shares[0], 0.0);
            let least = shares[2..].iter().copied().fold(1.0, f64::min);
            assert!(least > 0.8 / size, "{size}: {shares:?}");
        }
    }

    #[test]
    fn what_others_come_to_instead_takes_its_place_when_it_is_wanted_again() {
        let cache = small();
        rounds(&cache, 1, 256, 6);
        let shares = rounds(&cache, 2, 100, 5);
        assert!(shares[3..].iter().all(|share| *share > 0.9), "{shares:?}");
    }

    #[test]
    fn what_is_wanted_again_soon_is_found() {
        let cache = small();
        rounds(&cache, 1, 256, 6);
        // Twice each, and never again.
        for round in 0..20 {
            let shares = rounds(&cache, 2 + round, 12, 2);
            assert_eq!(shares, [0.0, 1.0]);
        }
    }

    #[test]
    fn what_takes_long_to_decode_stays_rather_than_what_does_not() {
        let cache = small();
        let page = array(ROWS);
        let took = |c: u32| TOOK * if c.is_multiple_of(2) { 100 } else { 10 };
        for _ in 0..6 {
            for c in 0..256 {
                want(&cache, key(1, c), &page, took(c));
            }
        }
        let kept = |odd: u32| (0..128).filter(|c| cache.has(key(1, c * 2 + odd))).count();
        assert!(kept(0) > 100 && kept(1) < 20, "{} and {}", kept(0), kept(1));
    }

    #[test]
    fn a_forgotten_extent_leaves_nothing() {
        let cache = Cache::new(64 << 20);
        for chunk in 0..500 {
            cache.insert(key(1, chunk), &array(10), TOOK);
            cache.insert(key(2, chunk), &array(10), TOOK);
        }
        cache.forget(ExtentId(1));
        assert!((0..500).all(|c| cache.get(key(1, c)).is_none()));
        assert!((0..500).all(|c| cache.get(key(2, c)).is_some()));
        cache.forget(ExtentId(2));
        assert_eq!(cache.stats().bytes, 0);
    }
}
