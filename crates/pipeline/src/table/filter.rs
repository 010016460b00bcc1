//! Tells of most keys that a table does not have them, where asking the table would miss the
//! cache. For each row it takes a part of what the table takes, so that it stays in the cache where
//! the table does not; probes in the order of their keys read a bitmap from its start to its end.
//!
//! | packed keys | filter | passes |
//! |---|---|---|
//! | of a range of not too many times the rows, and of sparse tables by index | a bitmap of the range | keys that are there |
//! | of a wider range, in a small table | the same with a bit for some keys in a row | and others close by |
//! | of a wider range, in a large table | a Bloom filter: 3 bits of one word for each key | and 1 to 2 % of the others |
//!
//! Batches of which most rows pass show that the filter is not worth its time; after one of these
//! some go without.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Limits;
use super::pack::{Digit, NOTHING};
use super::shared::{settled_u64, unset_u64};
use super::slots::{hash, home};
use super::word::{Visit, Word};
use crate::prefetch::prefetch_to_write;

/// How many rows ahead of its use a word is asked for, where words are written.
const AHEAD: usize = 16;

/// Rows of which is asked at a time whether they pass, a bit of a word for each.
const BLOCK: usize = 64;

/// If no more of a block pass, they are written one by one.
const FEW: u32 = 12;

/// A Bloom filter's rows per word.
const ROWS_PER_WORD: usize = 4;

/// After a batch of which most passed, this many times its rows go without the filter.
const REST: usize = 15;

/// Which filter a table has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// A bit for each `2^shift` packed keys, `bits` in all, and one more: 0, for all beyond.
    Bitmap {
        bits: u64,
        shift: u32,
    },
    Bloom {
        words: usize,
    },
}

impl Shape {
    /// The filter of a table of that many rows and bytes, of which all keys are below `count`.
    pub fn new(count: u64, rows: usize, table_bytes: usize, limits: &Limits) -> Option<Self> {
        let rows_64 = rows as u64;
        let small = limits.tiny_bitmap_bits.max(rows_64 * limits.small_bitmap_bits_per_row);
        let small = limits.small_bitmap_bits.min(small);
        let large = limits.bitmap_bits.min(rows_64 * limits.bitmap_bits_per_row);
        let coarse = limits.coarse_bitmap_bits.max(rows_64 * limits.coarse_bitmap_bits_per_row);
        if count <= small.max(large) {
            Some(Shape::bitmap(count, count))
        } else if table_bytes >= limits.bloom_table_bytes {
            Some(Shape::Bloom { words: rows.div_ceil(ROWS_PER_WORD).max(1) })
        } else if coarse > 0 {
            Some(Shape::bitmap(count, coarse))
        } else {
            None
        }
    }

    /// Of keys below `count`, of not more bits than that.
    pub fn bitmap(count: u64, bits_max: u64) -> Self {
        let shift = count.div_ceil(bits_max.max(2)).max(1).next_power_of_two().ilog2();
        Shape::Bitmap { bits: count.div_ceil(1 << shift), shift }
    }

    fn words(self) -> usize {
        match self {
            Shape::Bitmap { bits, .. } => bits as usize / 64 + 1,
            Shape::Bloom { words } => words,
        }
    }

    pub fn memory_bytes(self) -> usize {
        self.words() * 8
    }
}

/// A filter while it is filled.
pub struct AtomicFilter {
    shape: Shape,
    words: Box<[AtomicU64]>,
}

impl AtomicFilter {
    /// One that is whatever the memory was.
    ///
    /// # Safety
    /// All its words must be set to 0 before anything else is done with it.
    pub unsafe fn unset(shape: Shape) -> Self {
        // SAFETY: as the caller vouches.
        Self { shape, words: unsafe { unset_u64(shape.words()) } }
    }

    pub fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    /// Adds keys, at once with others.
    pub fn add(&self, keys: &[u64]) {
        match self.shape {
            Shape::Bitmap { shift, .. } => self.set(keys, |key| {
                let bit = key >> shift;
                ((bit / 64) as usize, 1 << (bit % 64))
            }),
            Shape::Bloom { words } => self.set(keys, |key| {
                let hash = hash(key);
                (home(hash, words), bloom_bits(hash))
            }),
        }
    }

    fn set(&self, keys: &[u64], bits_of: impl Fn(u64) -> (usize, u64)) {
        for (i, &key) in keys.iter().enumerate() {
            if let Some(&ahead) = keys.get(i + AHEAD) {
                prefetch_to_write(&self.words, bits_of(ahead).0);
            }
            if key != NOTHING {
                let (word, bits) = bits_of(key);
                let word = &self.words[word];
                // A locked instruction takes as long as some lookups.
                if word.load(Ordering::Relaxed) & bits != bits {
                    word.fetch_or(bits, Ordering::Relaxed);
                }
            }
        }
    }

    pub fn settle(self) -> Filter {
        let resting = AtomicUsize::new(0);
        Filter { shape: self.shape, words: settled_u64(self.words), resting }
    }
}

/// The same when it is settled.
pub struct Filter {
    shape: Shape,
    words: Box<[u64]>,
    /// The rows that are still to go without it. Threads may overwrite what others counted, which
    /// changes when it is tried next, and nothing else.
    resting: AtomicUsize,
}

/// The rows of a batch that passed, and their keys.
#[derive(Default)]
pub struct Passed {
    /// Longer than `len`; what is beyond has no meaning.
    keys: Vec<u64>,
    rows: Vec<u32>,
    len: usize,
}

impl Passed {
    pub fn keys(&self) -> &[u64] {
        &self.keys[..self.len]
    }

    pub fn rows(&self) -> &[u32] {
        &self.rows[..self.len]
    }
}

impl Filter {
    pub fn memory_bytes(&self) -> usize {
        self.shape.memory_bytes()
    }

    /// Whether it is worth its time for the next batch.
    pub fn is_worthwhile(&self, rows: usize) -> bool {
        let resting = self.resting.load(Ordering::Relaxed);
        if resting > 0 {
            self.resting.store(resting.saturating_sub(rows), Ordering::Relaxed);
        }
        resting == 0
    }

    /// Takes note of how many rows of a batch have passed.
    fn observe(&self, rows: usize, passed: usize) {
        if passed > rows / 4 * 3 {
            self.resting.store(rows.saturating_mul(REST), Ordering::Relaxed);
        }
    }

    /// What it is and whether it rests.
    #[cfg(test)]
    pub fn state(&self) -> (Shape, bool) {
        (self.shape, self.resting.load(Ordering::Relaxed) > 0)
    }

    /// Finds the packed keys that the table may have.
    pub fn pass(&self, keys: &[u64], passed: &mut Passed) {
        match self.shape {
            Shape::Bitmap { bits, shift } => {
                pass(keys, |key| key, self.bitmap(bits, shift), passed);
            }
            Shape::Bloom { .. } => pass(keys, |key| key, self.bloom(), passed),
        }
        self.observe(keys.len(), passed.len);
    }

    fn bitmap(&self, bits: u64, shift: u32) -> impl Fn(u64) -> bool {
        let words = &*self.words;
        debug_assert!(bits / 64 < words.len() as u64);
        move |key| {
            let bit = (key >> shift).min(bits);
            // SAFETY: `bit <= bits`, for which there is a word, see `Shape::words`.
            let word = unsafe { *words.get_unchecked((bit / 64) as usize) };
            (word >> (bit % 64)) & 1 != 0
        }
    }

    fn bloom(&self) -> impl Fn(u64) -> bool {
        let words = &*self.words;
        move |key| {
            let hash = hash(key);
            let bits = bloom_bits(hash);
            // SAFETY: `home` is below the number of words.
            let word = unsafe { *words.get_unchecked(home(hash, words.len())) };
            word & bits == bits
        }
    }
}

/// The bits of a key in its word. They come from the lower end of the hash, and which word it is
/// from the upper one.
#[inline(always)]
fn bloom_bits(hash: u64) -> u64 {
    1 << (hash % 64) | 1 << (hash >> 6 & 63) | 1 << (hash >> 12 & 63)
}

/// Collects what passes. Whether it does is asked for a block of rows at a time: as long as nothing is
/// written, processors ask for many rows at once. Then rows are written, one by one where they are few,
/// and else without a branch that a few hits among many rows would mislead.
#[inline(always)]
fn pass<T: Copy>(
    values: &[T],
    key: impl Fn(T) -> u64,
    may_have: impl Fn(u64) -> bool,
    passed: &mut Passed,
) {
    let rows = values.len();
    if passed.rows.len() < rows {
        passed.rows.resize(rows, 0);
        passed.keys.resize(rows, 0);
    }
    let (out_rows, out_keys) = (&mut passed.rows[..rows], &mut passed.keys[..rows]);
    let passes = |value| may_have(key(value));
    let mut len = 0;
    for (first, block) in (0..rows).step_by(BLOCK).zip(values.chunks(BLOCK)) {
        let mut put = |len: usize, row: usize, value: T| {
            // SAFETY: of every row before this one `len` counts at most one, so that
            // `len <= first + row < rows`, the length of both.
            unsafe {
                *out_rows.get_unchecked_mut(len) = (first + row) as u32;
                *out_keys.get_unchecked_mut(len) = key(value);
            }
        };
        // The loop over a whole block is of known length.
        let mut set = match block.first_chunk::<BLOCK>() {
            Some(block) => set_bits(block, &passes),
            None => set_bits(block, &passes),
        };
        if set.count_ones() <= FEW {
            while set != 0 {
                let row = set.trailing_zeros() as usize;
                put(len, row, block[row]);
                len += 1;
                set &= set - 1;
            }
        } else {
            for (row, &value) in block.iter().enumerate() {
                put(len, row, value);
                len += (set >> row & 1) as usize;
            }
        }
    }
    passed.len = len;
}

/// A bit for each value of a block.
#[inline(always)]
fn set_bits<T: Copy>(block: &[T], is_set: &impl Fn(T) -> bool) -> u64 {
    block.iter().enumerate().fold(0, |set, (i, &value)| set | u64::from(is_set(value)) << i)
}

/// Passes the values of a single key column, which are packed on the way. What is NULL passes or
/// not by the value that lies there.
pub struct PassValues<'a> {
    pub filter: &'a Filter,
    pub digit: &'a Digit,
    pub passed: &'a mut Passed,
}

impl Visit for PassValues<'_> {
    type Output = ();

    fn visit<T: Word>(self, values: &[T]) {
        let Self { filter, digit: &Digit { min, reach, .. }, passed } = self;
        let key = |value: T| value.distance(min);
        match filter.shape {
            Shape::Bitmap { bits, shift } => {
                let may_have = filter.bitmap(bits, shift);
                pass(values, key, |key| (key <= reach) & may_have(key), passed);
            }
            Shape::Bloom { .. } => {
                let may_have = filter.bloom();
                pass(values, key, |key| (key <= reach) & may_have(key), passed);
            }
        }
        filter.observe(values.len(), passed.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_rows_pass_of_blocks_that_are_whole_or_not() {
        let mut passed = Passed::default();
        for rows in [200, 0, 1, 63, 64, 65, 129] {
            for every in [1, 2, 5, 6, 60, 1000] {
                let values: Vec<u32> = (7..7 + rows).collect();
                let key = |value| u64::from(value) * 3;
                pass(&values, key, |key| (key / 3).is_multiple_of(every), &mut passed);
                let expected = (0..).zip(&values).map(|(row, &value)| (row, key(value)));
                let expected = expected.filter(|(_, key)| (key / 3).is_multiple_of(every));
                let (rows, keys): (Vec<u32>, Vec<u64>) = expected.unzip();
                assert_eq!((passed.rows(), passed.keys()), (&rows[..], &keys[..]));
            }
        }
    }
}
