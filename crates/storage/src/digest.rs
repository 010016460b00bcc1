//! Which values a chunk may hold, where its bounds do not say.
//!
//! Bounds skip nothing where values are scattered: names, codes, random ids. There a *digest* of
//! the chunk's column says of any value "not in here" or "maybe". Of up to 256 distinct values it
//! is the sorted list of their hashes; of more, a split-block Bloom filter (Putze, Sanders and
//! Singler, "Cache-, hash- and space-efficient Bloom filters", 2007), in the form that Parquet
//! made common: one cache line, or less, per probe.
//!
//! A digest is built where it pays and nowhere else:
//! * where chunks overlap: in sorted data the bounds already name the chunk;
//! * where a value lies in few chunks: in a column whose every chunk has the same seven values it
//!   would answer "maybe" each time;
//! * where it is small beside the data: at most an eighth of the column's bytes in the chunk, and
//!   all digests together a 16th of the extent. Narrow integers are read as fast as their digest;
//! * where somebody may ask: many texts of very different lengths are prose, not keys.
//!
//! The digests of one column of an extent are stored as one segment of its file:
//! ```text
//! │ version = 1 │ 0 0 0 │ chunks: u32 │ end of body i: u32 × chunks │ body 0 │ body 1 │ …
//! ```
//! little-endian, ends counted from the first body. A body is empty (nothing is known: the chunk
//! may hold anything), or a byte that says how to read the rest: 1, ascending hashes of 32 bits;
//! 2, blocks of eight 32-bit words. The 64-bit hashes are those of [`crate::hll`]. The list keeps
//! their upper halves. The filter scales the upper half to a block, and in each of its words sets
//! the bit that the lower half times that word's salt has in its top five bits.

use arrow::array::{Array, ArrayRef, AsArray, downcast_primitive_array};
use arrow::buffer::Buffer;
use arrow::datatypes::{ArrowNativeType, DataType, Decimal128Type};
use thalweg_base::limits::{DIGEST_BYTES_MAX, DIGEST_COLUMN_SHARE, DIGEST_EXTENT_SHARE};
use thalweg_base::{Error, Result};

use crate::hll::{Sketch, hash_bytes, hash_u64, hash_u128};

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 8;
const LIST: u8 = 1;
const FILTER: u8 = 2;

/// One wrong "maybe" in about a hundred and fifty.
const BITS_PER_VALUE: usize = 11;
/// One in about fifteen: with fewer bits the filter is not worth its bytes.
const BITS_PER_VALUE_MIN: usize = 6;

const WORDS: usize = 8;
const BLOCK_BYTES: usize = WORDS * size_of::<u32>();
/// Odd numbers whose products spread the lower half of a hash; those of Parquet.
const SALTS: [u32; WORDS] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// The digests of one column of an extent, one per chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digests {
    /// As stored.
    bytes: Buffer,
    chunks: usize,
}

impl Digests {
    fn new(bodies: &[Vec<u8>]) -> Self {
        let total: usize = bodies.iter().map(Vec::len).sum();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + 4 * bodies.len() + total);
        bytes.extend([VERSION, 0, 0, 0]);
        bytes.extend((bodies.len() as u32).to_le_bytes());
        let mut end = 0u32;
        for body in bodies {
            end += body.len() as u32;
            bytes.extend(end.to_le_bytes());
        }
        bodies.iter().for_each(|body| bytes.extend_from_slice(body));
        Digests { bytes: bytes.into(), chunks: bodies.len() }
    }

    /// Reads what [`Digests::bytes`] gave; `object` names its origin in messages.
    pub(crate) fn parse(bytes: Buffer, chunks: usize, object: &str) -> Result<Self> {
        let fault = |why: &str| {
            Error::corrupt(format!("{object}: a digest is malformed"))
                .detail(why)
                .hint("restore the file from a backup, or DROP the table it belongs to")
        };
        if bytes.first().is_some_and(|&version| version != VERSION) {
            return Err(Error::unsupported(format!(
                "{object}: a digest of version {}, this program reads {VERSION}",
                bytes[0]
            ))
            .hint("use the version of thalweg that wrote it, or a newer one"));
        }
        let bodies = HEADER_BYTES + 4 * chunks;
        if bytes.len() < bodies || word(&bytes, 1) as usize != chunks {
            return Err(fault("it is not of all chunks"));
        }
        let digests = Digests { bytes, chunks };
        let mut start = 0;
        for chunk in 0..chunks {
            let end = digests.end(chunk);
            if end < start || bodies + end > digests.bytes.len() {
                return Err(fault("a body lies outside of it"));
            }
            let sound = match &digests.bytes[bodies + start..bodies + end] {
                [] => true,
                [LIST, hashes @ ..] => hashes.len().is_multiple_of(4),
                [FILTER, blocks @ ..] => {
                    !blocks.is_empty() && blocks.len().is_multiple_of(BLOCK_BYTES)
                }
                _ => false,
            };
            if !sound {
                return Err(fault("a body is of no known form"));
            }
            start = end;
        }
        Ok(digests)
    }

    pub(crate) fn bytes(&self) -> &Buffer {
        &self.bytes
    }

    pub fn chunks(&self) -> usize {
        self.chunks
    }

    fn end(&self, chunk: usize) -> usize {
        word(&self.bytes, 2 + chunk) as usize
    }

    fn body(&self, chunk: usize) -> &[u8] {
        let start = if chunk == 0 { 0 } else { self.end(chunk - 1) };
        let bodies = HEADER_BYTES + 4 * self.chunks;
        &self.bytes[bodies + start..bodies + self.end(chunk)]
    }

    /// Whether the chunk may hold a value of this hash (see [`value_hashes`]). `false` is certain.
    pub fn may_hold(&self, chunk: usize, hash: u64) -> bool {
        match self.body(chunk) {
            [LIST, hashes @ ..] => list_holds(hashes, (hash.max(1) >> 32) as u32),
            [FILTER, blocks @ ..] => filter_holds(blocks, hash.max(1)),
            _ => true,
        }
    }
}

/// The `i`-th 32-bit word.
fn word(bytes: &[u8], i: usize) -> u32 {
    u32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().expect("a range of 4 bytes"))
}

fn list_holds(hashes: &[u8], wanted: u32) -> bool {
    let (mut low, mut high) = (0, hashes.len() / 4);
    while low < high {
        let middle = (low + high) / 2;
        match word(hashes, middle).cmp(&wanted) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
            std::cmp::Ordering::Equal => return true,
        }
    }
    false
}

fn filter_holds(blocks: &[u8], hash: u64) -> bool {
    let at = block_of(hash, blocks.len() / BLOCK_BYTES) * WORDS;
    (0..WORDS).all(|i| word(blocks, at + i) & bit(hash, i) != 0)
}

fn block_of(hash: u64, blocks: usize) -> usize {
    (((hash >> 32) * blocks as u64) >> 32) as usize
}

fn bit(hash: u64, word: usize) -> u32 {
    1 << ((hash as u32).wrapping_mul(SALTS[word]) >> 27)
}

/// The body for a chunk, or an empty one where none is small enough.
///
/// `hashes` are those of all its values, repeated or not; `distinct` estimates how many differ.
fn body(hashes: &[u64], sketch: &Sketch, stored_bytes: u64) -> Vec<u8> {
    if let Sketch::Sparse(hashes) = sketch {
        let mut list: Vec<u32> = hashes.iter().map(|h| (h >> 32) as u32).collect();
        list.sort_unstable();
        list.dedup();
        return [LIST].into_iter().chain(list.iter().flat_map(|h| h.to_le_bytes())).collect();
    }
    let bytes_of = |bits: usize| sketch.estimate() as usize * bits / 8;
    let most = DIGEST_BYTES_MAX.min((stored_bytes / DIGEST_COLUMN_SHARE) as usize);
    let blocks = bytes_of(BITS_PER_VALUE).min(most) / BLOCK_BYTES;
    if blocks == 0 || blocks * BLOCK_BYTES < bytes_of(BITS_PER_VALUE_MIN) {
        return Vec::new();
    }
    let mut words = vec![[0u32; WORDS]; blocks];
    for &hash in hashes {
        let block = &mut words[block_of(hash, blocks)];
        (0..WORDS).for_each(|i| block[i] |= bit(hash, i));
    }
    [FILTER].into_iter().chain(words.iter().flatten().flat_map(|w| w.to_le_bytes())).collect()
}

/// Gathers the digests of one column while its extent is written.
#[derive(Default)]
pub(crate) struct DigestsBuilder {
    bodies: Vec<Vec<u8>>,
}

impl DigestsBuilder {
    /// The next chunk. `hashes`: `None` where the type has no digests.
    pub fn push(&mut self, hashes: Option<&[u64]>, sketch: &Sketch, stored_bytes: u64) {
        self.bodies.push(hashes.map_or_else(Vec::new, |h| body(h, sketch, stored_bytes)));
    }

    /// `None` where there are none, or where they would not pay.
    pub fn finish(&self, pay: impl FnOnce() -> bool) -> Option<Digests> {
        let any = self.bodies.iter().any(|b| !b.is_empty());
        (any && pay()).then(|| Digests::new(&self.bodies))
    }
}

/// Keeps the digests of an extent within their share of its bytes: small ones first, and of equal
/// ones those of the leftmost columns, where keys tend to be.
pub(crate) fn within_budget(digests: &mut [Option<Digests>], extent_bytes: u64) {
    let mut left = (extent_bytes / DIGEST_EXTENT_SHARE) as usize;
    let size = |d: &Option<Digests>| d.as_ref().map_or(0, |d| d.bytes.len());
    let mut order: Vec<usize> = (0..digests.len()).collect();
    order.sort_by_key(|&column| size(&digests[column]));
    for column in order {
        match left.checked_sub(size(&digests[column])) {
            Some(rest) => left = rest,
            None => digests[column] = None,
        }
    }
}

/// Whether columns of this type have digests. Floats have not: their zeros and NaNs are equal in
/// more ways than one.
pub(crate) fn digestible(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8View | DataType::BinaryView => true,
        // The others of more than 64 bits are no column types.
        DataType::Decimal128(..) => true,
        float if float.is_floating() => false,
        _ => data_type.primitive_width().is_some_and(|bytes| bytes <= 8),
    }
}

/// The hashes of some values as digests have them; 0 for NULL. `None` where the type has none.
/// `values` must be of exactly the column's type.
pub fn value_hashes(values: &ArrayRef) -> Option<Vec<u64>> {
    if !digestible(values.data_type()) {
        return None;
    }
    let rows = 0..values.len();
    let valid = |i: &usize| values.is_valid(*i);
    let hash = |hash: &dyn Fn(usize) -> u64| {
        Some(rows.clone().map(|i| if valid(&i) { hash(i) } else { 0 }).collect())
    };
    match values.data_type() {
        DataType::Utf8View => {
            let array = values.as_string_view();
            hash(&|i| hash_view(array.views()[i], array.value(i).as_bytes()))
        }
        DataType::BinaryView => {
            let array = values.as_binary_view();
            hash(&|i| hash_view(array.views()[i], array.value(i)))
        }
        DataType::Decimal128(..) => {
            let array = values.as_primitive::<Decimal128Type>();
            hash(&|i| hash_u128(array.value(i) as u128))
        }
        _ => {
            let values: &dyn Array = values;
            downcast_primitive_array!(
                values => hash(&|i| hash_narrow(values.value(i))),
                _ => None
            )
        }
    }
}

/// Integers of every width up to 64 bits hash as their 64-bit value.
#[inline]
pub(crate) fn hash_narrow<N: ArrowNativeType>(value: N) -> u64 {
    hash_u64(value.to_i64().unwrap_or_else(|| value.as_usize() as i64) as u64)
}

/// A short string is its view: one hash of 16 bytes. A long one never collides with it, as its
/// length is hashed too.
#[inline]
pub(crate) fn hash_view(view: u128, bytes: &[u8]) -> u64 {
    if bytes.len() <= 12 { hash_u128(view) } else { hash_bytes(bytes) }
}

#[cfg(test)]
mod tests;
