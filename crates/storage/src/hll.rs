//! How many distinct values a column has, in 2 KiB.
//!
//! Up to [`SPARSE_MAX`] distinct values the sketch is the set of their hashes, and the count is
//! exact. Above it is a HyperLogLog of 2048 registers (Flajolet et al. 2007): standard error
//! 1.04 / √2048 = 2.3 %. The estimate is Ertl's ("New cardinality estimation algorithms for
//! HyperLogLog sketches", 2017, algorithm 6), which needs neither bias tables nor a switch to
//! linear counting.
//!
//! Sketches are stored and merged across extents, so the hash functions here are part of the
//! format: changing one means a new format version.

use serde::{Deserialize, Serialize};
use thalweg_base::{Error, Result};

const PRECISION: u32 = 11;
const REGISTERS: usize = 1 << PRECISION;
/// As many hashes as fit into the bytes of the registers.
const SPARSE_MAX: usize = REGISTERS / size_of::<u64>();
/// Half empty at worst, so probes stay short.
const SLOTS: usize = SPARSE_MAX * 2;
/// Registers hold ranks up to this.
const RANK_MAX: usize = 64 - PRECISION as usize + 1;

const _: () = assert!(SLOTS.is_power_of_two());

const K0: u64 = 0x9e37_79b9_7f4a_7c15;
const K1: u64 = 0xd6e8_feb8_6659_fd93;

/// The 128-bit product folded to 64 bits: two multiplications mix every bit of `x` into the top
/// bits, which choose the register.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    (wide as u64) ^ ((wide >> 64) as u64)
}

#[inline]
pub(crate) fn hash_u64(x: u64) -> u64 {
    fold(fold(x ^ K0, K1) ^ x.rotate_left(32), K0)
}

#[inline]
pub(crate) fn hash_u128(x: u128) -> u64 {
    fold(hash_u64(x as u64) ^ K1, hash_u64((x >> 64) as u64) | 1)
}

pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    // Mixed, or a length and the first byte would cancel out in short values.
    let mut state = hash_u64(bytes.len() as u64);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().expect("chunks_exact(8) gives 8 bytes"));
        state = fold(state ^ word, K0);
    }
    let mut tail = [0; 8];
    tail[..words.remainder().len()].copy_from_slice(words.remainder());
    hash_u64(state ^ u64::from_le_bytes(tail))
}

/// A finished sketch: what is stored and merged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Sketch {
    /// Sorted hashes, at most [`SPARSE_MAX`].
    Sparse(Vec<u64>),
    /// [`REGISTERS`] ranks.
    Dense(Vec<u8>),
}

impl Default for Sketch {
    fn default() -> Self {
        Sketch::Sparse(Vec::new())
    }
}

impl Sketch {
    /// Refuses what no writer of ours makes, before `merge` indexes into it.
    pub fn check(&self) -> Result<()> {
        let sound = match self {
            Sketch::Sparse(hashes) => hashes.len() <= SPARSE_MAX && hashes.is_sorted(),
            Sketch::Dense(registers) => {
                registers.len() == REGISTERS
                    && registers.iter().all(|&r| usize::from(r) <= RANK_MAX)
            }
        };
        if sound { Ok(()) } else { Err(Error::corrupt("a distinct-count sketch is malformed")) }
    }

    pub fn merge(&mut self, other: &Sketch) {
        match (&mut *self, other) {
            (Sketch::Sparse(mine), Sketch::Sparse(theirs)) => {
                mine.extend_from_slice(theirs);
                mine.sort_unstable();
                mine.dedup();
                if mine.len() > SPARSE_MAX {
                    *self = Sketch::Dense(registers_of(mine));
                }
            }
            (Sketch::Sparse(mine), Sketch::Dense(theirs)) => {
                let mut registers = theirs.clone();
                mine.iter().for_each(|&hash| raise(&mut registers, hash));
                *self = Sketch::Dense(registers);
            }
            (Sketch::Dense(mine), Sketch::Sparse(theirs)) => {
                theirs.iter().for_each(|&hash| raise(mine, hash));
            }
            (Sketch::Dense(mine), Sketch::Dense(theirs)) => {
                mine.iter_mut().zip(theirs).for_each(|(a, &b)| *a = (*a).max(b));
            }
        }
    }

    /// Whether a value of this hash may be among those counted. Sparse sketches know; dense ones
    /// have nearly all registers raised, and so have nothing to say.
    pub fn may_hold(&self, hash: u64) -> bool {
        match self {
            Sketch::Sparse(hashes) => hashes.binary_search(&hash.max(1)).is_ok(),
            Sketch::Dense(_) => true,
        }
    }

    pub fn estimate(&self) -> u64 {
        match self {
            Sketch::Sparse(hashes) => hashes.len() as u64,
            Sketch::Dense(registers) => estimate(registers),
        }
    }
}

fn registers_of(hashes: &[u64]) -> Vec<u8> {
    let mut registers = vec![0; REGISTERS];
    hashes.iter().for_each(|&hash| raise(&mut registers, hash));
    registers
}

#[inline]
fn raise(registers: &mut [u8], hash: u64) {
    let index = (hash >> (64 - PRECISION)) as usize;
    // The sentinel bit bounds the rank where all the remaining hash bits are zero.
    let rank = ((hash << PRECISION) | (1 << (PRECISION - 1))).leading_zeros() as u8 + 1;
    let register = &mut registers[index];
    *register = (*register).max(rank);
}

fn estimate(registers: &[u8]) -> u64 {
    let mut counts = [0u32; RANK_MAX + 1];
    registers.iter().for_each(|&r| counts[usize::from(r)] += 1);
    let m = REGISTERS as f64;
    let mut z = m * tau((m - f64::from(counts[RANK_MAX])) / m);
    for k in (1..RANK_MAX).rev() {
        z = 0.5 * (z + f64::from(counts[k]));
    }
    z += m * sigma(f64::from(counts[0]) / m);
    (m * m / (2.0 * std::f64::consts::LN_2 * z)).round() as u64
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

/// Counts one chunk. A probe of a 4 KiB table per value while there are few distinct values,
/// a shift and a compare afterwards; repeated values (sorted data) cost one comparison.
pub(crate) struct SketchBuilder {
    last: u64,
    held: usize,
    slots: Vec<u64>,
    registers: Option<Vec<u8>>,
    keeps_all: bool,
    /// What was inserted since the registers took over, with repeats: a digest needs the values
    /// that the registers forget.
    beyond: Vec<u64>,
}

impl SketchBuilder {
    /// `keeps_all`: [`SketchBuilder::finish`] is to give all hashes, however many.
    pub fn new(keeps_all: bool) -> Self {
        SketchBuilder {
            last: 0,
            held: 0,
            slots: vec![0; SLOTS],
            registers: None,
            keeps_all,
            beyond: Vec::new(),
        }
    }

    #[inline]
    pub fn insert(&mut self, hash: u64) {
        // 0 marks a free slot; it shares its count with hash 1, one in 2^64.
        let hash = hash.max(1);
        if hash == self.last {
            return;
        }
        self.last = hash;
        match &mut self.registers {
            Some(registers) => {
                raise(registers, hash);
                if self.keeps_all {
                    self.beyond.push(hash);
                }
            }
            None => self.insert_sparse(hash),
        }
    }

    #[inline]
    fn insert_sparse(&mut self, hash: u64) {
        let mut slot = hash as usize % SLOTS;
        while self.slots[slot] != 0 {
            if self.slots[slot] == hash {
                return;
            }
            slot = (slot + 1) % SLOTS;
        }
        if self.held == SPARSE_MAX {
            let mut registers =
                registers_of(&self.slots.iter().copied().filter(|&h| h != 0).collect::<Vec<_>>());
            raise(&mut registers, hash);
            self.registers = Some(registers);
            if self.keeps_all {
                self.beyond.push(hash);
            }
            return;
        }
        self.slots[slot] = hash;
        self.held += 1;
    }

    /// The sketch, and every hash that was inserted, some of them several times; of many hashes
    /// all only if it keeps them.
    pub fn finish(mut self) -> (Sketch, Vec<u64>) {
        let mut hashes: Vec<u64> = self.slots.into_iter().filter(|&h| h != 0).collect();
        match self.registers {
            Some(registers) => {
                self.beyond.append(&mut hashes);
                (Sketch::Dense(registers), self.beyond)
            }
            None => {
                hashes.sort_unstable();
                (Sketch::Sparse(hashes.clone()), hashes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketch(values: impl Iterator<Item = u64>) -> Sketch {
        let mut builder = SketchBuilder::new(false);
        values.for_each(|v| builder.insert(hash_u64(v)));
        builder.finish().0
    }

    #[test]
    fn few_values_are_counted_exactly() {
        assert_eq!(Sketch::default().estimate(), 0);
        for n in [1, 2, 100, SPARSE_MAX as u64] {
            assert_eq!(sketch((0..n).chain(0..n)).estimate(), n);
        }
    }

    #[test]
    fn many_values_are_within_three_standard_errors() {
        for n in [300u64, 1000, 5000, 65_536, 1_000_000] {
            for step in [1, 1000, 1 << 40] {
                let estimate = sketch((0..n).map(|v| v * step)).estimate() as f64;
                let error = (estimate / n as f64 - 1.0).abs();
                assert!(error < 0.07, "{n} values {step} apart estimated as {estimate}");
            }
        }
    }

    #[test]
    fn merging_equals_counting_together() {
        let ranges = [(0, 10), (5, 200), (100, 400), (0, 100_000), (50_000, 150_000)];
        for a in ranges {
            for b in ranges {
                let mut merged = sketch(a.0..a.1);
                merged.merge(&sketch(b.0..b.1));
                assert_eq!(merged, sketch((a.0..a.1).chain(b.0..b.1)), "{a:?} {b:?}");
                merged.check().unwrap();
            }
        }
    }

    #[test]
    fn bytes_hash_by_content_and_length() {
        let mut builder = SketchBuilder::new(false);
        for n in 0..40usize {
            builder.insert(hash_bytes(&vec![0; n]));
            builder.insert(hash_bytes(&vec![1; n]));
        }
        assert_eq!(builder.finish().0.estimate(), 79, "only the two empty strings are equal");
    }

    #[test]
    fn malformed_sketches_are_refused() {
        assert!(Sketch::Sparse(vec![1; SPARSE_MAX + 1]).check().is_err());
        assert!(Sketch::Dense(vec![0; 5]).check().is_err());
        assert!(Sketch::Dense(vec![255; REGISTERS]).check().is_err());
    }
}
