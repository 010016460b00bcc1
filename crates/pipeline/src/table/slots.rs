//! A hash table with open addressing: 64-bit keys inline, in buckets of a cache line.
//!
//! A lookup costs one miss of the cache, and compares all keys of the bucket without a branch: what
//! is not there costs no more than what is, and no prediction fails where some keys are and others
//! are not. It goes on to the next bucket only if the first is full, 1 time in 7 at worst.
//!
//! The key is a packed number, or a hash of the row's bytes; then two keys of one number may
//! differ, and a comparison decides.

use std::hint::select_unpredictable;
use std::sync::atomic::Ordering;

use super::NONE;
use super::chain::Chain;
use super::pack::NOTHING;
use super::shared::{AtomicBucket, Bucket, SLOTS};
use crate::prefetch::{prefetch, prefetch_to_write};

/// How many rows ahead of its use a bucket is asked for.
const AHEAD: usize = 16;

/// Buckets for that many rows, two slots for each.
pub fn buckets_for(rows: usize) -> usize {
    rows * 2 / SLOTS + 2
}

#[inline(always)]
pub fn hash(key: u64) -> u64 {
    // Multiplication to 128 bits and folding: every bit of the key reaches the upper bits.
    let product = u128::from(key ^ 0x2d35_8dcc_aa6c_78a5) * 0x9e37_79b9_7f4a_7c15_u128;
    (product >> 64) as u64 ^ product as u64
}

/// Which of so many buckets a hash belongs to; its upper bits decide.
#[inline(always)]
pub fn home(hash: u64, buckets: usize) -> usize {
    ((u128::from(hash) * buckets as u128) >> 64) as usize
}

/// Inserts rows `first_row..` of which the keys are given, at once with others. `key_of` tells the
/// keys of all rows, `same` whether rows with equal keys are equal.
pub fn insert(
    buckets: &[AtomicBucket],
    keys: &[u64],
    first_row: u32,
    all_keys: &[u64],
    chain: &Chain,
    same: impl Fn(u32, u32) -> bool,
) {
    for (i, &key) in keys.iter().enumerate() {
        if let Some(&ahead) = keys.get(i + AHEAD) {
            prefetch_to_write(buckets, home(hash(ahead), buckets.len()));
        }
        if key != NOTHING {
            insert_row(buckets, key, first_row + i as u32, all_keys, chain, &same);
        }
    }
}

fn insert_row(
    buckets: &[AtomicBucket],
    key: u64,
    row: u32,
    all_keys: &[u64],
    chain: &Chain,
    same: &impl Fn(u32, u32) -> bool,
) {
    let hash = hash(key);
    let tag = hash << 32;
    let mut at = home(hash, buckets.len());
    loop {
        let bucket = &buckets[at];
        for slot in 0..SLOTS {
            let mut found = bucket.rows[slot].load(Ordering::Relaxed);
            if found == 0 {
                let mine = tag | u64::from(row + 1);
                let order = Ordering::Relaxed;
                match bucket.rows[slot].compare_exchange(0, mine, order, order) {
                    Ok(_) => {
                        // Only its owner writes the key, and it is read when all is done.
                        bucket.keys[slot].store(key, order);
                        return;
                    }
                    Err(other) => found = other,
                }
            }
            let other = found as u32 - 1;
            // The keys of all rows, as that in the slot may not be written yet.
            if (found ^ tag) >> 32 == 0 && all_keys[other as usize] == key && same(other, row) {
                chain.add(other, row);
                return;
            }
        }
        at += 1;
        if at == buckets.len() {
            at = 0;
        }
    }
}

/// The row of a key, or [`NONE`]. `same`: whether a row with that key is in truth the one.
pub fn find(buckets: &[Bucket], key: u64, same: impl Fn(u32) -> bool) -> u32 {
    let home = home(hash(key), buckets.len());
    for bucket in buckets[home..].iter().chain(&buckets[..home]) {
        for (&other, &row) in bucket.keys.iter().zip(&bucket.rows) {
            let row = (row as u32).wrapping_sub(1);
            if row == NONE || (other == key && same(row)) {
                return row;
            }
        }
    }
    NONE
}

/// Looks up keys: of each the first row that has it, or [`NONE`].
#[inline(always)]
pub fn lookup(buckets: &[Bucket], keys: &[u64]) -> impl Iterator<Item = u32> {
    for &key in keys.iter().take(AHEAD) {
        prefetch(buckets, home(hash(key), buckets.len()));
    }
    keys.iter().enumerate().map(|(i, &key)| {
        prefetch_ahead(buckets, keys, i);
        first(buckets, key)
    })
}

#[inline(always)]
fn prefetch_ahead(buckets: &[Bucket], keys: &[u64], i: usize) {
    let ahead = keys[(i + AHEAD).min(keys.len() - 1)];
    prefetch(buckets, home(hash(ahead), buckets.len()));
}

#[inline(always)]
fn first(buckets: &[Bucket], key: u64) -> u32 {
    let mut at = home(hash(key), buckets.len());
    loop {
        // SAFETY: `home` is below the number of buckets, and so is `at` after each step.
        let bucket = unsafe { buckets.get_unchecked(at) };
        let mut found = 0;
        // From the last, so that the first counts: empty slots look like key 0, but come last.
        for slot in (0..SLOTS).rev() {
            found = select_unpredictable(bucket.keys[slot] == key, bucket.rows[slot] as u32, found);
        }
        // One branch, not two: whether a bucket is full cannot be predicted, and where the key is
        // found it does not matter.
        if select_unpredictable(found != 0, 0, bucket.rows[SLOTS - 1]) == 0 {
            return found.wrapping_sub(1);
        }
        at += 1;
        if at == buckets.len() {
            at = 0;
        }
    }
}
