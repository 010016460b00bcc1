//! A hash table with open addressing: 64-bit keys inline, so that a lookup of a key that is there
//! once costs one miss of the cache.
//!
//! The key is a packed number, or a hash of the row's bytes; then two keys of one number may
//! differ, and a comparison decides.

use std::sync::atomic::Ordering;

use super::NONE;
use super::chain::Chain;
use super::pack::NOTHING;
use super::shared::{AtomicSlot, Slot};

/// How many rows ahead of its use a slot is asked for.
const AHEAD: usize = 16;

/// Slots for that many rows.
pub fn slots_for(rows: usize) -> usize {
    rows * 2 + 8
}

#[inline(always)]
fn hash(key: u64) -> u64 {
    // Multiplication to 128 bits and folding: every bit of the key reaches the upper bits.
    let product = u128::from(key ^ 0x2d35_8dcc_aa6c_78a5) * 0x9e37_79b9_7f4a_7c15_u128;
    (product >> 64) as u64 ^ product as u64
}

#[inline(always)]
fn home(hash: u64, slots: usize) -> usize {
    ((u128::from(hash) * slots as u128) >> 64) as usize
}

#[inline(always)]
fn prefetch<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching reads nothing and is allowed of any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(slice.as_ptr().wrapping_add(index).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, index);
}

/// Inserts rows `first_row..` of which the keys are given, at once with others. `key_of` tells the
/// keys of all rows, `same` whether rows with equal keys are equal.
pub fn insert(
    slots: &[AtomicSlot],
    keys: &[u64],
    first_row: u32,
    all_keys: &[u64],
    chain: &Chain,
    same: impl Fn(u32, u32) -> bool,
) {
    for (i, &key) in keys.iter().enumerate() {
        if let Some(&ahead) = keys.get(i + AHEAD) {
            prefetch(slots, home(hash(ahead), slots.len()));
        }
        if key == NOTHING {
            continue;
        }
        let row = first_row + i as u32;
        let hash = hash(key);
        let tag = hash << 32;
        let mut at = home(hash, slots.len());
        loop {
            let slot = &slots[at];
            let mut found = slot.row.load(Ordering::Relaxed);
            if found == 0 {
                let mine = tag | u64::from(row + 1);
                match slot.row.compare_exchange(0, mine, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => {
                        // Only its owner writes the key, and it is read when all is done.
                        slot.key.store(key, Ordering::Relaxed);
                        break;
                    }
                    Err(other) => found = other,
                }
            }
            let other = found as u32 - 1;
            if (found ^ tag) >> 32 == 0 && all_keys[other as usize] == key && same(other, row) {
                chain.add(other, row);
                break;
            }
            at += 1;
            if at == slots.len() {
                at = 0;
            }
        }
    }
}

/// Looks up keys. `same(i, row)`: whether the i-th of them is in truth that row's.
pub fn lookup(slots: &[Slot], keys: &[u64], same: impl Fn(usize, u32) -> bool, out: &mut Vec<u32>) {
    let found = |i: usize, key: u64| {
        let mut at = home(hash(key), slots.len());
        loop {
            // SAFETY: `home` is below the number of slots, and so is `at` after each step.
            let slot = unsafe { slots.get_unchecked(at) };
            let row = (slot.row as u32).wrapping_sub(1);
            if row == NONE || (slot.key == key && same(i, row)) {
                return row;
            }
            at += 1;
            if at == slots.len() {
                at = 0;
            }
        }
    };
    for &key in keys.iter().take(AHEAD) {
        prefetch(slots, home(hash(key), slots.len()));
    }
    let ahead = keys.iter().skip(AHEAD).copied().chain(std::iter::repeat_n(0, AHEAD));
    out.extend(keys.iter().zip(ahead).enumerate().map(|(i, (&key, ahead))| {
        prefetch(slots, home(hash(ahead), slots.len()));
        found(i, key)
    }));
}
