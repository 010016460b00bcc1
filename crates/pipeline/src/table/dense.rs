//! Rows found by their key as an index.

use std::hint::select_unpredictable;
use std::sync::atomic::{AtomicU32, Ordering};

use super::chain::Chain;
use super::pack::NOTHING;
use super::word::{Visit, Word};

/// First half of filling: of the rows with equal keys any one remains. Plain stores: a locked
/// instruction per row would wait for every miss of the cache on its own.
pub fn store(first: &[AtomicU32], keys: &[u64], first_row: u32) {
    for (row, &key) in (first_row + 1..).zip(keys) {
        if key != NOTHING {
            first[key as usize].store(row, Ordering::Relaxed);
        }
    }
}

/// Second half: the rows that did not remain are chained behind the one that did.
pub fn verify(first: &[AtomicU32], keys: &[u64], first_row: u32, chain: &Chain) {
    for (row, &key) in (first_row..).zip(keys) {
        if key != NOTHING {
            let found = first[key as usize].load(Ordering::Relaxed) - 1;
            if found != row {
                chain.add(found, row);
            }
        }
    }
}

/// Looks up packed keys: of each its row or `NONE`. The last of `first` is what no key leads to: 0.
#[inline(always)]
pub fn lookup(first: &[u32], keys: &[u64]) -> impl Iterator<Item = u32> {
    let last = first.len() - 1;
    keys.iter().map(move |&key| {
        let index = key.min(last as u64) as usize;
        // SAFETY: `index <= last`, which is within.
        unsafe { *first.get_unchecked(index) }.wrapping_sub(1)
    })
}

/// Looks up the values of a single key column without packing them first.
pub struct Lookup<'a> {
    pub first: &'a [u32],
    pub min: i64,
    /// The largest distance from `min` of a key in the table.
    pub reach: u64,
    pub out: &'a mut Vec<u32>,
}

impl Visit for Lookup<'_> {
    type Output = ();

    fn visit<T: Word>(self, values: &[T]) {
        let Self { first, min, reach, out } = self;
        let last = first.len() - 1;
        debug_assert!(reach <= last as u64);
        let reach = reach.min(last as u64);
        out.extend(values.iter().map(|&value| {
            let distance = value.distance(min);
            // As a branch it would be mispredicted wherever some keys are out of range.
            let index = select_unpredictable(distance <= reach, distance as usize, last);
            // SAFETY: `index <= last`, which is within, as `reach` is.
            unsafe { *first.get_unchecked(index) }.wrapping_sub(1)
        }));
    }
}

/// The same, of the values that are found: where they stand, and their rows.
pub struct Matches<'a> {
    pub first: &'a [u32],
    pub min: i64,
    /// The largest distance from `min` of a key in the table.
    pub reach: u64,
    /// Both empty.
    pub positions: &'a mut Vec<u32>,
    pub rows: &'a mut Vec<u32>,
}

impl Visit for Matches<'_> {
    type Output = ();

    fn visit<T: Word>(self, values: &[T]) {
        let Self { first, min, reach, positions, rows } = self;
        let last = first.len() - 1;
        debug_assert!(reach <= last as u64);
        let reach = reach.min(last as u64);
        positions.resize(values.len(), 0);
        rows.resize(values.len(), 0);
        let mut found = 0;
        for (position, &value) in values.iter().enumerate() {
            let distance = value.distance(min);
            let index = select_unpredictable(distance <= reach, distance as usize, last);
            // SAFETY: `index <= last`, which is within, as `reach` is; `found <= position`, which is
            // below the length of both.
            unsafe {
                let row = *first.get_unchecked(index);
                *positions.get_unchecked_mut(found) = position as u32;
                *rows.get_unchecked_mut(found) = row.wrapping_sub(1);
                found += usize::from(row != 0);
            }
        }
        positions.truncate(found);
        rows.truncate(found);
    }
}
