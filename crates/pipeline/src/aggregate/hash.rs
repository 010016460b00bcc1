//! Hashes, and the open-addressing table of group ids that all look-ups go through.

use std::hint::black_box;

/// Slots of a fresh table.
const SLOTS_MIN: usize = 1 << 10;

/// No id.
pub(super) const NONE: u32 = u32::MAX;

/// Rows looked up together: a block's packed keys and candidates stay in the first-level cache.
pub(super) const BLOCK: usize = 1024;

pub(super) const HASH_SEED: u64 = 0x243f_6a88_85a3_08d3;
const K1: u64 = 0x9e37_79b9_7f4a_7c15;
const K2: u64 = 0xd6e8_feb8_6659_fd93;

/// Both halves of a 128-bit product, folded: the mixing step of wyhash.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline(always)]
fn load<const N: usize>(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..N].copy_from_slice(&bytes[..N]);
    u64::from_le_bytes(word)
}

pub(super) fn hash_bytes(bytes: &[u8]) -> u64 {
    let n = bytes.len();
    let mut h = HASH_SEED ^ n as u64;
    let (a, b) = match n {
        0 => (0, 0),
        1..4 => (u64::from(bytes[0]) << 8 | u64::from(bytes[n / 2]), u64::from(bytes[n - 1])),
        4..8 => (load::<4>(bytes), load::<4>(&bytes[n - 4..])),
        8..=16 => (load::<8>(bytes), load::<8>(&bytes[n - 8..])),
        _ => {
            let (pairs, _) = bytes[..n - 1].as_chunks::<16>();
            for pair in pairs {
                h = fold(load::<8>(pair) ^ K1, load::<8>(&pair[8..]) ^ h);
            }
            (load::<8>(&bytes[n - 16..]), load::<8>(&bytes[n - 8..]))
        }
    };
    fold(fold(a ^ K1, b ^ h), K2)
}

/// The hash of a row of words; flags of 0 have no part in it, so that rows with and without them
/// are one.
#[inline(always)]
pub(super) fn hash_words(words: impl Iterator<Item = u64>, flags: u64) -> u64 {
    end_hash(words.fold(HASH_SEED, |h, word| fold(word ^ h, K1)), flags)
}

/// A word more in each of the hashes of rows, which begin as [`HASH_SEED`].
#[inline(always)]
pub(super) fn add_words(hashes: &mut [u64], words: impl Iterator<Item = u64>) {
    hashes.iter_mut().zip(words).for_each(|(h, word)| *h = fold(word ^ *h, K1));
}

/// The hash of a row, when it has all words.
#[inline(always)]
pub(super) fn end_hash(mut h: u64, flags: u64) -> u64 {
    if flags != 0 {
        h = fold(flags ^ h, K2);
    }
    // The product's low bits depend on the word's low bits alone.
    h ^ h >> 32
}

/// The partition of a hash: of its low half, since tables go by the high one.
#[inline(always)]
pub(super) fn partition(hash: u64, log2: u32) -> usize {
    ((hash & 0xffff_ffff) >> (32 - log2)) as usize
}

/// Slots of (high half of the hash, id + 1), 0 where there is nothing. The first slot that is
/// looked at is given by the same half, so that tables grow without the keys.
#[derive(Default)]
pub(super) struct Table {
    slots: Vec<u64>,
}

const TAG: u64 = 0xffff_ffff_0000_0000;

impl Table {
    /// Of groups in the order of their ids, with room for a block more.
    pub fn of(hashes: &[u64]) -> Self {
        let mut table = Table::default();
        table.reserve(hashes.len() + BLOCK);
        for (id, &hash) in hashes.iter().enumerate() {
            table.insert(hash, id as u32);
        }
        table
    }

    /// Makes room for so many entries in all: at most half of the slots are taken.
    pub fn reserve(&mut self, entries: usize) {
        if entries * 2 > self.slots.len() {
            self.grow((entries * 2).next_power_of_two().max(SLOTS_MIN));
        }
    }

    #[cold]
    fn grow(&mut self, slots: usize) {
        let old = std::mem::replace(&mut self.slots, vec![0; slots]);
        let mask = slots - 1;
        for slot in old.into_iter().filter(|&s| s != 0) {
            let mut at = (slot >> 32) as usize & mask;
            while self.slots[at] != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = slot;
        }
    }

    /// An empty table of that size.
    pub fn cleared(mut self) -> Self {
        self.slots.fill(0);
        self
    }

    pub fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u64>()
    }

    /// Adds what is known to be new.
    pub fn insert(&mut self, hash: u64, id: u32) {
        self.find_or_insert(hash, |_| false, || id);
    }

    /// The id of the entry of that hash that is `same`, or else of a `new` one. There must be room.
    #[inline(always)]
    pub fn find_or_insert(
        &mut self,
        hash: u64,
        same: impl Fn(u32) -> bool,
        new: impl FnOnce() -> u32,
    ) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = (hash >> 32) as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                let id = new();
                self.slots[at] = hash & TAG | u64::from(id + 1);
                return id;
            }
            let id = slot as u32 - 1;
            if (slot ^ hash) & TAG == 0 && same(id) {
                return id;
            }
            at = (at + 1) & mask;
        }
    }

    /// Touches the slots of a block of hashes: independent loads, whose misses overlap, where the
    /// look-ups that follow would wait for one after the other.
    pub fn warm(&self, hashes: &[u64]) {
        if self.slots.len() < 1 << 13 {
            return;
        }
        let mask = self.slots.len() - 1;
        let mut any = 0;
        for &hash in hashes {
            any |= self.slots[(hash >> 32) as usize & mask];
        }
        black_box(any);
    }

    /// The ids that hashes lead to first, [`NONE`] where there is nothing.
    pub fn candidates(&self, hashes: &[u64], ids: &mut Vec<u32>) {
        let mask = self.slots.len() - 1;
        let candidate = |&hash: &u64| {
            let mut at = (hash >> 32) as usize & mask;
            loop {
                let slot = self.slots[at];
                if slot == 0 || (slot ^ hash) & TAG == 0 {
                    return (slot as u32).wrapping_sub(1);
                }
                at = (at + 1) & mask;
            }
        };
        ids.clear();
        ids.extend(hashes.iter().map(candidate));
    }
}

/// Looks up rows of `W` words each (`W` 0: of `stride`), in blocks of at most [`BLOCK`]; new ones
/// are appended to `keys`. The table has room for all.
pub(super) fn find_rows<const W: usize>(
    table: &mut Table,
    keys: &mut Vec<u64>,
    packed: &[u64],
    stride: usize,
    hashes: &[u64],
    ids: &mut Vec<u32>,
) {
    let w = if W == 0 { stride } else { W };
    table.warm(hashes);
    for (row, &hash) in packed.chunks_exact(w).zip(hashes) {
        let next = (keys.len() / w) as u32;
        let id = table.find_or_insert(
            hash,
            |id| {
                let at = id as usize * w;
                keys[at..at + w] == *row
            },
            || next,
        );
        if id == next {
            keys.extend_from_slice(row);
        }
        ids.push(id);
    }
}
