//! The build side of a hash join: rows found by their keys.
//!
//! Each worker puts batches into a [`Collected`]. From all of these [`Building`] makes a [`Table`],
//! in tasks of about a millisecond that any threads may run. Nothing here has a thread or waits.
//!
//! | keys | layout | a lookup is |
//! |---|---|---|
//! | numbers of a small range, or several whose ranges multiply to one | dense ([`mod@dense`]): an index | a load; where few places have a row, of what a bit ([`filter`]) lets pass |
//! | numbers that fit 64 bits together ([`pack`]) | hashed ([`slots`]): keys inline | a test of a few bits ([`filter`]), and of what passes a probe of one cache line |
//! | anything else | the same over hashes of rows as bytes ([`bytes`]) | and a comparison of bytes |
//!
//! The table leads to one row of each key; further rows with the same key are chained behind it.

mod build;
mod bytes;
mod chain;
mod collect;
mod dense;
mod dictionary;
mod filter;
mod pack;
mod payload;
mod shared;
mod slots;
mod word;

#[cfg(test)]
mod measure;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{Array, ArrayRef, AsArray, new_null_array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;
use thalweg_base::Result;

pub use build::Building;
pub use collect::{Collected, Given};
pub use thalweg_ir::table::Spec;

use build::KEY_ROWS;
use bytes::Encoded;
use filter::{Filter, PassValues, Passed};
use pack::{NOTHING, Packing};
use shared::{Bucket, Buckets};

use crate::encoding;
use crate::short;

/// No row.
pub const NONE: u32 = u32::MAX;

/// How many rows ahead of their use a row's bytes are asked for.
const BYTES_AHEAD: usize = 16;

/// What decides between layouts, and about filters.
#[derive(Clone, Debug)]
struct Limits {
    /// A table by index may always have that many places.
    small_dense_places: u64,
    /// Up to so many others, some for each row.
    dense_places: u64,
    dense_places_per_row: u64,
    /// Beyond, fewer for each row.
    large_dense_places_per_row: u64,
    /// The largest range that has a bitmap.
    bitmap_bits: u64,
    /// And for each row.
    bitmap_bits_per_row: u64,
    /// A range up to this has one for fewer rows, too.
    small_bitmap_bits: u64,
    small_bitmap_bits_per_row: u64,
    /// And up to this for any.
    tiny_bitmap_bits: u64,
    /// Of a wider range, smaller tables have one of that many bits, each for some keys in a row.
    coarse_bitmap_bits: u64,
    /// Or of these for each row.
    coarse_bitmap_bits_per_row: u64,
    /// The largest table by index without a bitmap in front of it.
    dense_filter_places: u64,
    /// And for each row of it.
    dense_filter_places_per_row: u64,
    /// The smallest hashed table that has a Bloom filter where it has no bitmap.
    bloom_table_bytes: usize,
}

const LIMITS: Limits = Limits {
    // 128 KB, emptied in 5 µs.
    small_dense_places: 32 * 1024,
    // 2 MB, about what a core's cache holds.
    dense_places: 512 * 1024,
    // More take longer to empty than the rows to be hashed.
    dense_places_per_row: 32,
    // As much memory as a hash table takes.
    large_dense_places_per_row: 8,
    // 64 MB.
    bitmap_bits: 512 * 1024 * 1024,
    // No more memory than the hash table itself.
    bitmap_bits_per_row: 256,
    // 1 MB, about half of a core's cache; its pages cost 0.1 ms.
    small_bitmap_bits: 8 * 1024 * 1024,
    small_bitmap_bits_per_row: 8 * 1024,
    // 64 KB, emptied in 3 µs.
    tiny_bitmap_bits: 512 * 1024,
    // 4 KB. If keys are anywhere, 1 in 32 others passes.
    coarse_bitmap_bits: 32 * 1024,
    coarse_bitmap_bits_per_row: 32,
    // 32 KiB, what its first-level cache holds.
    dense_filter_places: 8 * 1024,
    // If all values come up as often, seven in eight find nothing.
    dense_filter_places_per_row: 8,
    // Smaller ones stay in a core's cache themselves.
    bloom_table_bytes: 1024 * 1024,
};

/// The rows of the build side, found by their keys.
pub struct Table {
    /// Tells tables apart, for what a [`Scratch`] remembers.
    id: u64,
    rows: usize,
    null_key: bool,
    ranges: Vec<Option<(i64, i64)>>,
    found: Found,
    /// In front of it: not for all rows by their bytes.
    filter: Option<Filter>,
    /// Of each row another one with the same keys + 1; empty if there is none.
    next: Box<[u32]>,
    payload: Vec<ArrayRef>,
    memory_bytes: usize,
    spec: Spec,
}

/// For each row a hash of its keys: those that match have the same; `None`: it matches nothing.
pub fn hashes(spec: &Spec, keys: &[ArrayRef], rows: usize) -> Result<Vec<Option<u64>>> {
    collect::check(&spec.key_types, keys, rows, true)?;
    let mut encoded = Encoded::default();
    encoded.clear();
    encoded.add(&spec.key_types, keys, rows, spec.nulls_equal)?;
    Ok(encoded.hashes.iter().map(|&hash| (hash != NOTHING).then_some(hash)).collect())
}

/// What leads to rows: see the fields of [`Table`].
struct Index {
    found: Found,
    filter: Option<Filter>,
    next: Box<[u32]>,
}

/// How a row is found.
enum Found {
    /// The row + 1 of each packed key, and a 0 for those out of range.
    Dense {
        packing: Packing,
        first: Box<[u32]>,
    },
    Packed {
        packing: Packing,
        slots: Buckets,
    },
    /// The slots' keys are hashes of the rows' bytes.
    Rows {
        chunks: Vec<Encoded>,
        slots: Buckets,
    },
}

/// What lookups need on their way, kept from one to the next.
#[derive(Default)]
pub struct Scratch {
    packed: Vec<u64>,
    passed: Passed,
    first: Vec<u32>,
    encoded: Encoded,
    dictionary: Option<KnownDictionary>,
}

/// The rows of a dictionary's values.
struct KnownDictionary {
    table: u64,
    values: ArrayRef,
    rows: Vec<u32>,
}

impl Table {
    fn new(
        rows: usize,
        null_key: bool,
        ranges: Vec<Option<(i64, i64)>>,
        index: Index,
        payload: Vec<ArrayRef>,
        spec: Spec,
    ) -> Self {
        let Index { found, filter, next } = index;
        static IDS: AtomicU64 = AtomicU64::new(0);
        let found_bytes = match &found {
            Found::Dense { first, .. } => size_of_val::<[u32]>(first),
            Found::Packed { slots, .. } => slots.memory_bytes(),
            Found::Rows { chunks, slots } => {
                let chunks = chunks.iter().map(Encoded::memory_bytes).sum::<usize>();
                chunks + slots.memory_bytes()
            }
        };
        let payload_bytes = payload.iter().map(|a| a.get_buffer_memory_size()).sum::<usize>();
        let filter_bytes = filter.as_ref().map_or(0, Filter::memory_bytes);
        let memory_bytes = found_bytes + filter_bytes + size_of_val::<[u32]>(&next) + payload_bytes;
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        Self { id, rows, null_key, ranges, found, filter, next, payload, memory_bytes, spec }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// No two rows have equal keys: there is at most one match.
    pub fn is_unique(&self) -> bool {
        self.next.is_empty()
    }

    /// Some row had a NULL in a key, also if it is not kept.
    pub fn has_null_key(&self) -> bool {
        self.null_key
    }

    /// A payload column of all rows. It may be encoded: text that came as dictionaries only is one
    /// dictionary of distinct values, unless these are too many.
    pub fn payload(&self, column: usize) -> &ArrayRef {
        &self.payload[column]
    }

    /// The smallest and the largest word of a key column (see [`encoding::words`]): nothing else
    /// matches. `None`: there is no value, or not only words, or a NULL that equals NULLs.
    pub fn key_range(&self, key: usize) -> Option<(i64, i64)> {
        self.ranges[key].filter(|_| !(self.spec.nulls_equal && self.null_key))
    }

    /// Another row with the same keys, or [`NONE`]. From what [`Self::lookup`] found one comes to
    /// each of them once.
    #[inline]
    pub fn next_equal(&self, row: u32) -> u32 {
        self.next.get(row as usize).map_or(NONE, |next| next.wrapping_sub(1))
    }

    /// For each of `rows` probe rows a row with equal keys, or [`NONE`]; the former contents of
    /// `out` go.
    pub fn lookup(
        &self,
        keys: &[ArrayRef],
        rows: usize,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        collect::check(&self.spec.key_types, keys, rows, true)?;
        out.clear();
        if self.pass(keys, rows, scratch)? {
            out.resize(rows, NONE);
            let passed = &scratch.passed;
            self.find(passed.keys(), |i, row| out[passed.rows()[i] as usize] = row);
            return Ok(());
        }
        match &self.found {
            Found::Dense { packing, first } => {
                if let ([key], [digit]) = (keys, packing.digits.as_slice()) {
                    let lookup =
                        dense::Lookup { first, min: digit.min, reach: digit.reach, out: &mut *out };
                    if !digit.values {
                        out.resize(rows, NONE);
                    } else if word::visit(key.as_ref(), lookup).is_none() {
                        return Err(pack::no_number(key));
                    }
                    let of_null = digit.null.map_or(NONE, |n| first[n as usize].wrapping_sub(1));
                    put_nulls(key, of_null, out);
                } else {
                    packing.pack(keys, rows, &mut scratch.packed)?;
                    out.extend(dense::lookup(first, &scratch.packed));
                }
            }
            Found::Packed { packing, slots } => {
                packing.pack(keys, rows, &mut scratch.packed)?;
                out.extend(slots::lookup(slots.as_slice(), &scratch.packed));
            }
            Found::Rows { chunks, slots } => {
                let slots = slots.as_slice();
                if let [key] = keys
                    && let DataType::Dictionary(..) = key.data_type()
                    && self.lookup_dictionary(chunks, slots, key, scratch, out)?
                {
                    return Ok(());
                }
                self.lookup_bytes(chunks, slots, keys, rows, scratch, out)?;
            }
        }
        Ok(())
    }

    /// Those of `rows` probe rows, in order, for which there is a row with equal keys, and that row;
    /// the former contents of both go.
    pub fn matches(
        &self,
        keys: &[ArrayRef],
        rows: usize,
        scratch: &mut Scratch,
        positions: &mut Vec<u32>,
        found: &mut Vec<u32>,
    ) -> Result<()> {
        collect::check(&self.spec.key_types, keys, rows, true)?;
        positions.clear();
        found.clear();
        if self.pass(keys, rows, scratch)? {
            let passed = &scratch.passed;
            self.find(passed.keys(), |i, row| {
                if row != NONE {
                    positions.push(passed.rows()[i]);
                    found.push(row);
                }
            });
            return Ok(());
        }
        if let Found::Dense { packing, first } = &self.found
            && let ([key], [digit]) = (keys, packing.digits.as_slice())
            && digit.values
            && nulls_of(key.as_ref()).is_none()
        {
            let (min, reach) = (digit.min, digit.reach);
            let matches = dense::Matches { first, min, reach, positions, rows: found };
            return word::visit(key.as_ref(), matches).ok_or_else(|| pack::no_number(key));
        }
        let mut first = std::mem::take(&mut scratch.first);
        self.lookup(keys, rows, scratch, &mut first)?;
        hits(&first, positions, found);
        scratch.first = first;
        Ok(())
    }

    /// Puts into the scratch which rows pass the filter, and their packed keys. `false`: there is
    /// none, or it is not worth its time.
    fn pass(&self, keys: &[ArrayRef], rows: usize, scratch: &mut Scratch) -> Result<bool> {
        let (Found::Dense { packing, .. } | Found::Packed { packing, .. }) = &self.found else {
            return Ok(false);
        };
        let Some(filter) = self.filter.as_ref().filter(|f| f.is_worthwhile(rows)) else {
            return Ok(false);
        };
        let passed = &mut scratch.passed;
        if let ([key], [digit]) = (keys, packing.digits.as_slice())
            && digit.values
            && nulls_of(key.as_ref()).is_none()
        {
            word::visit(key.as_ref(), PassValues { filter, digit, passed })
                .ok_or_else(|| pack::no_number(key))?;
        } else {
            packing.pack(keys, rows, &mut scratch.packed)?;
            filter.pass(&scratch.packed, passed);
        }
        Ok(true)
    }

    /// Looks up packed keys that have passed the filter; `each` is given their number, and the row or
    /// [`NONE`].
    fn find(&self, keys: &[u64], mut each: impl FnMut(usize, u32)) {
        let each = |(i, row)| each(i, row);
        match &self.found {
            Found::Dense { first, .. } => dense::lookup(first, keys).enumerate().for_each(each),
            Found::Packed { slots, .. } => {
                slots::lookup(slots.as_slice(), keys).enumerate().for_each(each);
            }
            Found::Rows { .. } => {}
        }
    }

    fn lookup_bytes(
        &self,
        chunks: &[Encoded],
        slots: &[Bucket],
        keys: &[ArrayRef],
        rows: usize,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        let probe = &mut scratch.encoded;
        probe.clear();
        probe.add(&self.spec.key_types, keys, rows, self.spec.nulls_equal)?;
        let row_of = |row: u32| (&chunks[row as usize / KEY_ROWS], row as usize % KEY_ROWS);
        let first = out.len();
        out.extend(slots::lookup(slots, &probe.hashes));
        // Nearly every row with the same hash is the one. Its bytes lie behind two more misses of
        // the cache, which are asked for ahead of time, too.
        let found = &mut out[first..];
        for i in 0..found.len() {
            if let Some(&ahead) = found.get(i + 2 * BYTES_AHEAD)
                && ahead != NONE
            {
                let (chunk, row) = row_of(ahead);
                chunk.prefetch_offset(row);
            }
            if let Some(&ahead) = found.get(i + BYTES_AHEAD)
                && ahead != NONE
            {
                let (chunk, row) = row_of(ahead);
                chunk.prefetch_bytes(row);
            }
            let same = |row: u32| {
                let (chunk, row) = row_of(row);
                short::same(probe.row(i), chunk.row(row))
            };
            if found[i] != NONE && !same(found[i]) {
                found[i] = slots::find(slots, probe.hashes[i], same);
            }
        }
        Ok(())
    }

    /// Looks up each value of a dictionary once, if these are not more than the rows or are known
    /// from the batch before. Returns whether it did.
    fn lookup_dictionary(
        &self,
        chunks: &[Encoded],
        slots: &[Bucket],
        key: &ArrayRef,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<bool> {
        let Some(codes) = encoding::codes(key.as_ref()) else { return Ok(false) };
        let values = key.as_any_dictionary().values();
        let known = scratch
            .dictionary
            .take_if(|known| known.table == self.id && Arc::ptr_eq(&known.values, values));
        let known = match known {
            Some(known) => known,
            None if values.len() > key.len() => return Ok(false),
            None => {
                let mut rows = Vec::with_capacity(values.len());
                let keys = std::slice::from_ref(values);
                self.lookup_bytes(chunks, slots, keys, values.len(), scratch, &mut rows)?;
                KnownDictionary { table: self.id, values: Arc::clone(values), rows }
            }
        };
        out.extend(codes.iter().map(|&c| known.rows.get(c as usize).copied().unwrap_or(NONE)));
        scratch.dictionary = Some(known);
        if key.null_count() > 0 {
            let mut of_null = Vec::with_capacity(1);
            if self.spec.nulls_equal {
                let null = [new_null_array(&self.spec.key_types[0], 1)];
                self.lookup_bytes(chunks, slots, &null, 1, scratch, &mut of_null)?;
            }
            put_nulls(key, of_null.first().copied().unwrap_or(NONE), out);
        }
        Ok(true)
    }
}

/// The rows that found something, and what they found.
fn hits(first: &[u32], positions: &mut Vec<u32>, rows: &mut Vec<u32>) {
    positions.reserve(first.len());
    rows.reserve(first.len());
    let (to_positions, to_rows) = (positions.spare_capacity_mut(), rows.spare_capacity_mut());
    let mut found = 0;
    for (position, &row) in first.iter().enumerate() {
        // Without a branch: whether a row is found is what a processor cannot guess.
        to_positions[found].write(position as u32);
        to_rows[found].write(row);
        found += usize::from(row != NONE);
    }
    // SAFETY: the first `found` places of both were written, and they are behind those there were.
    unsafe {
        positions.set_len(positions.len() + found);
        rows.set_len(rows.len() + found);
    }
}

/// Gives the NULLs of a key their row.
fn put_nulls(key: &ArrayRef, row: u32, out: &mut [u32]) {
    if let Some(nulls) = nulls_of(key.as_ref()) {
        for i in (!nulls.inner()).set_indices() {
            out[i] = row;
        }
    }
}

/// Which rows are NULL; `None` if none is.
fn nulls_of(array: &dyn Array) -> Option<NullBuffer> {
    let nulls = match array.data_type() {
        DataType::Null | DataType::RunEndEncoded(..) | DataType::Union(..) => array.logical_nulls(),
        // The values of a dictionary have no NULL.
        _ => array.nulls().cloned(),
    };
    nulls.filter(|nulls| nulls.null_count() > 0)
}
