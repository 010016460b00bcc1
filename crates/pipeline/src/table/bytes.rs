//! Keys of any type as bytes: rows are equal if and only if their bytes are.
//!
//! A row is its columns one after the other: a flag byte where NULLs are equal, and 8 bytes of a
//! word, 16 of a `Decimal128`, or text and whatever else as its length (4 bytes, but not of the
//! last column) and its bytes; a NULL as 0 or empty text. Unlike Arrow's row format it keeps no
//! order, so that text is copied as it is. Two forms of one value, as a dictionary's or a narrow
//! decimal, give the same bytes.

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    BinaryType, BinaryViewType, DataType, LargeBinaryType, LargeUtf8Type, StringViewType, Utf8Type,
};
use arrow::row::{RowConverter, SortField};
use thalweg_base::{Error, Result};

use super::nulls_of;
use super::pack::NOTHING;
use super::word::{Visit, Word, is_word, visit};
use crate::encoding::{self, internal};
use crate::prefetch::prefetch;
use crate::short;

/// Encoded rows.
#[derive(Default)]
pub struct Encoded {
    bytes: Vec<u8>,
    /// Where each row begins and, one more, where the last ends.
    offsets: Vec<usize>,
    pub hashes: Vec<u64>,
    /// Where the next value of each row goes, while encoding.
    cursors: Vec<usize>,
}

impl Encoded {
    #[inline]
    pub fn row(&self, i: usize) -> &[u8] {
        &self.bytes[self.offsets[i]..self.offsets[i + 1]]
    }

    #[inline(always)]
    pub fn prefetch_offset(&self, i: usize) {
        prefetch(&self.offsets, i);
        prefetch(&self.offsets, i + 1);
    }

    /// Of a row of few bytes all, also if it begins near the end of a line.
    #[inline(always)]
    pub fn prefetch_bytes(&self, i: usize) {
        const LINE_BYTES: usize = 64;
        let start = self.offsets[i];
        prefetch(&self.bytes, start);
        prefetch(&self.bytes, self.offsets[i + 1].min(start + LINE_BYTES).wrapping_sub(1));
    }

    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.offsets.capacity() * size_of::<usize>()
            + self.hashes.capacity() * 8
            + self.cursors.capacity() * size_of::<usize>()
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.offsets.clear();
        self.offsets.push(0);
        self.hashes.clear();
    }

    /// Gives back what only encoding needs, and the hashes.
    pub fn shrink(&mut self) {
        self.cursors = Vec::new();
        self.hashes = Vec::new();
        self.bytes.shrink_to_fit();
        self.offsets.shrink_to_fit();
    }

    /// Adds rows. The hash of one that matches nothing, having a NULL, is [`NOTHING`].
    pub fn add(
        &mut self,
        types: &[DataType],
        keys: &[ArrayRef],
        rows: usize,
        nulls_equal: bool,
    ) -> Result<()> {
        let foreign = keys.iter().map(foreign).collect::<Result<Vec<_>>>()?;
        let columns = types
            .iter()
            .zip(keys)
            .zip(&foreign)
            .map(|((logical, key), foreign)| {
                Column::new(logical, foreign.as_ref().map_or(key.as_ref(), |f| f), key)
            })
            .collect::<Result<Vec<_>>>()?;
        let first = self.offsets.len() - 1;
        // Lengths come first, so that each column is written in one go.
        self.cursors.clear();
        self.cursors.resize(rows, 0);
        for (i, column) in columns.iter().enumerate() {
            column.add_lengths(nulls_equal, i + 1 == columns.len(), &mut self.cursors);
        }
        let mut end = self.bytes.len();
        for cursor in &mut self.cursors {
            let length = std::mem::replace(cursor, end);
            end += length;
            self.offsets.push(end);
        }
        self.bytes.resize(end, 0);
        for (i, column) in columns.iter().enumerate() {
            let last = i + 1 == columns.len();
            column.write(nulls_equal, last, &mut self.cursors, &mut self.bytes);
        }
        self.hashes
            .extend(self.offsets[first..].windows(2).map(|w| hash_bytes(&self.bytes[w[0]..w[1]])));
        if !nulls_equal {
            let hashes = &mut self.hashes[first..];
            for column in &columns {
                if let Some(nulls) = &column.nulls {
                    for (i, hash) in hashes.iter_mut().enumerate() {
                        if nulls.is_null(i) {
                            *hash = NOTHING;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// The hash of bytes; never [`NOTHING`].
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    #[inline(always)]
    fn fold(a: u64, b: u64) -> u64 {
        let product = u128::from(a) * u128::from(b);
        product as u64 ^ (product >> 64) as u64
    }
    const A: u64 = 0xa076_1d64_78bd_642f;
    const B: u64 = 0xe703_7ed1_a0b4_28db;
    #[inline(always)]
    fn u64_at(bytes: &[u8], at: usize) -> u64 {
        // The slice has 8 bytes.
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }
    #[inline(always)]
    fn u32_at(bytes: &[u8], at: usize) -> u64 {
        // The slice has 4 bytes.
        u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()))
    }
    let n = bytes.len();
    let mut seed = A ^ (n as u64).wrapping_mul(B);
    let (a, b) = match n {
        0 => (0, 0),
        1..4 => {
            let middle = u64::from(bytes[n / 2]) << 8;
            (u64::from(bytes[0]) | middle | u64::from(bytes[n - 1]) << 16, 0)
        }
        4..8 => (u32_at(bytes, 0), u32_at(bytes, n - 4)),
        8..=16 => (u64_at(bytes, 0), u64_at(bytes, n - 8)),
        _ => {
            let mut at = 0;
            while at + 16 < n {
                seed = fold(u64_at(bytes, at) ^ B ^ seed, u64_at(bytes, at + 8) ^ A);
                at += 16;
            }
            (u64_at(bytes, n - 16), u64_at(bytes, n - 8))
        }
    };
    let hash = fold(fold(a ^ A, b ^ B ^ seed), seed ^ B);
    if hash == NOTHING { 0 } else { hash }
}

/// One column of rows.
struct Column<'a> {
    values: Values<'a>,
    nulls: Option<NullBuffer>,
}

enum Values<'a> {
    Words(Vec<i64>),
    Wide(Vec<i128>),
    Bytes(Vec<&'a [u8]>),
}

impl<'a> Column<'a> {
    /// `array` is `key`, or its stand-in of bytes.
    fn new(logical: &DataType, array: &'a dyn Array, key: &ArrayRef) -> Result<Self> {
        let nulls = nulls_of(key.as_ref());
        let came =
            || Error::internal(format!("a join key of {logical} came as {}", key.data_type()));
        let values = if is_word(logical) {
            Values::Words(visit(array, Words).ok_or_else(came)?)
        } else if matches!(logical, DataType::Decimal128(..)) {
            Values::Wide(match array.data_type() {
                DataType::Decimal128(..) => {
                    let wide = array.as_primitive::<arrow::datatypes::Decimal128Type>();
                    wide.values().to_vec()
                }
                _ => visit(array, Words).ok_or_else(came)?.into_iter().map(i128::from).collect(),
            })
        } else {
            Values::Bytes(slices(array, nulls.as_ref()).ok_or_else(came)?)
        };
        Ok(Self { values, nulls })
    }

    fn add_lengths(&self, flags: bool, last: bool, lengths: &mut [usize]) {
        let flag = usize::from(flags);
        match &self.values {
            Values::Words(_) => lengths.iter_mut().for_each(|l| *l += flag + 8),
            Values::Wide(_) => lengths.iter_mut().for_each(|l| *l += flag + 16),
            Values::Bytes(bytes) => {
                let fixed = flag + if last { 0 } else { 4 };
                lengths.iter_mut().zip(bytes).for_each(|(l, b)| *l += fixed + b.len());
            }
        }
    }

    fn write(&self, flags: bool, last: bool, cursors: &mut [usize], out: &mut [u8]) {
        if flags {
            for (i, cursor) in cursors.iter_mut().enumerate() {
                out[*cursor] = u8::from(self.nulls.as_ref().is_none_or(|n| n.is_valid(i)));
                *cursor += 1;
            }
        }
        // In the place of a NULL there is a value of zeros, whatever the array has there: equal
        // NULLs are equal bytes.
        let nulls = self.nulls.as_ref();
        let valid = |i: usize| nulls.is_none_or(|n| n.is_valid(i));
        let mut put = |cursor: &mut usize, bytes: &[u8]| {
            short::copy(bytes, &mut out[*cursor..*cursor + bytes.len()]);
            *cursor += bytes.len();
        };
        match &self.values {
            Values::Words(words) => {
                for (i, (cursor, &word)) in cursors.iter_mut().zip(words).enumerate() {
                    put(cursor, &if valid(i) { word } else { 0 }.to_ne_bytes());
                }
            }
            Values::Wide(values) => {
                for (i, (cursor, &value)) in cursors.iter_mut().zip(values).enumerate() {
                    put(cursor, &if valid(i) { value } else { 0 }.to_ne_bytes());
                }
            }
            Values::Bytes(values) => {
                for (cursor, bytes) in cursors.iter_mut().zip(values) {
                    if !last {
                        put(cursor, &(bytes.len() as u32).to_ne_bytes());
                    }
                    put(cursor, bytes);
                }
            }
        }
    }
}

struct Words;

impl Visit for Words {
    type Output = Vec<i64>;

    fn visit<T: Word>(self, values: &[T]) -> Vec<i64> {
        // Only of 128 bits is there no word, and such columns are not asked for.
        values.iter().map(|v| v.word().unwrap_or_default()).collect()
    }
}

/// The stand-in of a column that is neither numbers nor bytes: Arrow's rows.
fn foreign(key: &ArrayRef) -> Result<Option<BinaryArray>> {
    use DataType::*;
    let data_type = match key.data_type() {
        Dictionary(_, value) => value.as_ref(),
        other => other,
    };
    if is_word(data_type)
        || matches!(
            data_type,
            Decimal128(..)
                | Utf8
                | LargeUtf8
                | Utf8View
                | Binary
                | LargeBinary
                | BinaryView
                | FixedSizeBinary(_)
        )
    {
        return Ok(None);
    }
    let field = SortField::new(key.data_type().clone());
    let converter = RowConverter::new(vec![field]).map_err(internal)?;
    let rows = converter.convert_columns(&[ArrayRef::clone(key)]).map_err(internal)?;
    Ok(Some(rows.try_into_binary().map_err(internal)?))
}

/// The bytes of each row of text or binary, plain or a dictionary's; empty for NULL.
fn slices<'a>(array: &'a dyn Array, nulls: Option<&NullBuffer>) -> Option<Vec<&'a [u8]>> {
    let mut out = if let DataType::Dictionary(..) = array.data_type() {
        let dictionary = array.as_any_dictionary();
        let codes = encoding::codes(array)?;
        let values = dictionary.values().as_ref();
        // What stands in the place of a NULL may be 0 with no value there.
        if codes.len() >= values.len() {
            let values = plain_slices(values)?;
            codes.iter().map(|&c| values.get(c as usize).copied().unwrap_or_default()).collect()
        } else {
            let of = slice_of(values)?;
            codes.iter().map(|&code| of(code as usize)).collect()
        }
    } else {
        plain_slices(array)?
    };
    if let Some(nulls) = nulls {
        for (i, slice) in out.iter_mut().enumerate() {
            if nulls.is_null(i) {
                *slice = &[];
            }
        }
    }
    Some(out)
}

/// Calls a function with one from an index to the bytes there, for text or binary of any type.
macro_rules! with_slices {
    ($array:expr, $of:ident => $body:expr) => {{
        use DataType::*;
        macro_rules! call {
            ($typed:expr) => {{
                let typed = $typed;
                let $of = move |i: usize| -> &[u8] { typed.value(i).as_ref() };
                Some($body)
            }};
        }
        match $array.data_type() {
            Utf8 => call!($array.as_bytes::<Utf8Type>()),
            LargeUtf8 => call!($array.as_bytes::<LargeUtf8Type>()),
            Binary => call!($array.as_bytes::<BinaryType>()),
            LargeBinary => call!($array.as_bytes::<LargeBinaryType>()),
            Utf8View => call!($array.as_byte_view::<StringViewType>()),
            BinaryView => call!($array.as_byte_view::<BinaryViewType>()),
            FixedSizeBinary(_) => call!($array.as_fixed_size_binary()),
            _ => None,
        }
    }};
}

fn plain_slices(array: &dyn Array) -> Option<Vec<&[u8]>> {
    with_slices!(array, of => (0..array.len()).map(of).collect())
}

/// A function from an index to the bytes there, where only few are wanted.
pub fn slice_of<'a>(array: &'a dyn Array) -> Option<Box<dyn Fn(usize) -> &'a [u8] + 'a>> {
    with_slices!(array, of => Box::new(of) as Box<dyn Fn(usize) -> &'a [u8] + 'a>)
}
