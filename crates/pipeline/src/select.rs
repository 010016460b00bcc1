//! Which rows of a chunk have passed its filters so far.
//!
//! As long as many rows are left they are a mask, and a test looks at all rows, many at a time.
//! When few are left they are a list of positions, and a test looks at those alone. Neither
//! branches on what it finds.

use arrow::array::{Array, AsArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Date64Type, Decimal64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
};

use crate::expr::Comparison;

/// Less than one row in so many: they are listed.
const LISTED_PART: usize = 4;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Selection {
    rows: usize,
    kept: Kept,
}

#[derive(Clone, Debug)]
enum Kept {
    All,
    /// Of all rows, and how many bits are set.
    Mask(BooleanBuffer, usize),
    /// In order.
    Positions(Vec<u32>),
}

/// Does what `$typed` says for the type of an array whose values are in the order of their words, or else
/// `$other`.
macro_rules! by_type {
    ($array:expr, $typed:ident, $other:expr) => {
        match $array.data_type() {
            DataType::Int8 => $typed!(Int8Type),
            DataType::Int16 => $typed!(Int16Type),
            DataType::Int32 => $typed!(Int32Type),
            DataType::Int64 => $typed!(Int64Type),
            DataType::UInt8 => $typed!(UInt8Type),
            DataType::UInt16 => $typed!(UInt16Type),
            DataType::UInt32 => $typed!(UInt32Type),
            DataType::Date32 => $typed!(Date32Type),
            DataType::Date64 => $typed!(Date64Type),
            DataType::Timestamp(TimeUnit::Second, _) => $typed!(TimestampSecondType),
            DataType::Timestamp(TimeUnit::Millisecond, _) => $typed!(TimestampMillisecondType),
            DataType::Timestamp(TimeUnit::Microsecond, _) => $typed!(TimestampMicrosecondType),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => $typed!(TimestampNanosecondType),
            DataType::Decimal64(..) => $typed!(Decimal64Type),
            _ => $other,
        }
    };
}

impl Selection {
    pub fn all(rows: usize) -> Self {
        Selection { rows, kept: Kept::All }
    }

    /// The rows whose bit is set.
    pub fn of(mask: BooleanBuffer) -> Self {
        let mut selection = Selection::all(mask.len());
        selection.intersect(&mask);
        selection
    }

    pub fn len(&self) -> usize {
        match &self.kept {
            Kept::All => self.rows,
            Kept::Mask(_, count) => *count,
            Kept::Positions(positions) => positions.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Of all rows, those that have passed included and those that have not.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The rows that are left, if they are few.
    pub fn listed(&self) -> Option<&[u32]> {
        match &self.kept {
            Kept::Positions(positions) => Some(positions),
            _ => None,
        }
    }

    /// The rows that are left; `None`: all.
    pub fn into_positions(self) -> Option<Vec<u32>> {
        match self.kept {
            Kept::All => None,
            Kept::Mask(mask, count) => Some(positions(&mask, count)),
            Kept::Positions(positions) => Some(positions),
        }
    }

    /// Keeps the rows whose bit is set: one for each row of the chunk.
    pub fn intersect(&mut self, mask: &BooleanBuffer) {
        match &mut self.kept {
            Kept::All => self.masked(mask.clone()),
            Kept::Mask(before, _) => {
                let both = &*before & mask;
                self.masked(both);
            }
            Kept::Positions(kept) => retain(kept, |row| mask.value(row as usize)),
        }
    }

    /// Keeps the rows whose bit is set: one for each row that is listed.
    pub fn retain_listed(&mut self, mask: &BooleanBuffer) {
        if let Kept::Positions(kept) = &mut self.kept {
            let mut at = 0;
            kept.retain(|_| {
                at += 1;
                mask.value(at - 1)
            });
        }
    }

    fn masked(&mut self, mask: BooleanBuffer) {
        let count = mask.count_set_bits();
        self.kept = if count == self.rows {
            Kept::All
        } else if count * LISTED_PART < self.rows {
            Kept::Positions(positions(&mask, count))
        } else {
            Kept::Mask(mask, count)
        };
    }

    /// Keeps the rows whose value compares so with `word`. False: the type has no words that are
    /// ordered as its values are, and nothing is done.
    pub fn compare(&mut self, array: &dyn Array, comparison: Comparison, word: i64) -> bool {
        macro_rules! typed {
            ($type:ty) => {
                self.typed::<$type>(array, comparison, word)
            };
        }
        by_type!(array, typed, false)
    }

    fn typed<T: ArrowPrimitiveType>(
        &mut self,
        array: &dyn Array,
        comparison: Comparison,
        word: i64,
    ) -> bool
    where
        T::Native: TryFrom<i64> + PartialOrd,
    {
        let array = array.as_primitive::<T>();
        let values = array.values().as_ref();
        let Ok(value) = T::Native::try_from(word) else {
            // Nothing is equal to what the type cannot hold, and all is on the same side of it.
            let passes = match comparison {
                Comparison::Equal => false,
                Comparison::NotEqual => true,
                Comparison::Less | Comparison::LessOrEqual => word > 0,
                Comparison::Greater | Comparison::GreaterOrEqual => word < 0,
            };
            match array.nulls() {
                Some(nulls) if passes => self.intersect(nulls.inner()),
                None if passes => {}
                _ => self.kept = Kept::Positions(vec![]),
            }
            return true;
        };
        match comparison {
            Comparison::Equal => self.test(values, |v| v == value),
            Comparison::NotEqual => self.test(values, |v| v != value),
            Comparison::Less => self.test(values, |v| v < value),
            Comparison::LessOrEqual => self.test(values, |v| v <= value),
            Comparison::Greater => self.test(values, |v| v > value),
            Comparison::GreaterOrEqual => self.test(values, |v| v >= value),
        }
        if let Some(nulls) = array.nulls().filter(|n| n.null_count() > 0) {
            self.intersect(nulls.inner());
        }
        true
    }

    /// Keeps the rows whose code passes: those of `passing`, and NULL if it does.
    pub fn look_up(&mut self, array: &dyn Array, passing: &[bool], null_passes: bool) {
        let before = null_passes.then(|| self.clone());
        let passes = |code: usize| passing.get(code) == Some(&true);
        match array.data_type() {
            DataType::Dictionary(key, _) if **key == DataType::UInt8 => {
                let keys = array.as_dictionary::<UInt8Type>().keys();
                self.test(keys.values(), |code| passes(usize::from(code)));
            }
            DataType::Dictionary(key, _) if **key == DataType::UInt16 => {
                let keys = array.as_dictionary::<UInt16Type>().keys();
                self.test(keys.values(), |code| passes(usize::from(code)));
            }
            _ => {
                let keys = array.as_dictionary::<UInt32Type>().keys();
                self.test(keys.values(), |code| passes(code as usize));
            }
        }
        self.with_nulls(array, before);
    }

    /// Keeps the rows whose number passes: those of `passing`, which are counted from `first` on, and NULL
    /// if it does. Nothing is kept of an array that has no words in the order of its values.
    pub fn look_up_from(
        &mut self,
        array: &dyn Array,
        first: i64,
        passing: &[bool],
        null_passes: bool,
    ) {
        let before = null_passes.then(|| self.clone());
        macro_rules! typed {
            ($type:ty) => {
                self.numbers(array.as_primitive::<$type>().values(), first, passing)
            };
        }
        by_type!(array, typed, self.kept = Kept::Positions(vec![]));
        self.with_nulls(array, before);
    }

    fn numbers<T: Copy + Into<i64>>(&mut self, values: &[T], first: i64, passing: &[bool]) {
        let place = |v: T| v.into().wrapping_sub(first) as u64;
        if passing.iter().all(|&passes| passes) {
            // All that there are.
        } else if passing.iter().all(|&passes| !passes) {
            self.kept = Kept::Positions(vec![]);
        } else if passing.len() <= 64 {
            let set =
                passing.iter().rev().fold(0u64, |bits, &passes| bits << 1 | u64::from(passes));
            self.test(values, |v| set >> (place(v) & 63) & 1 == 1);
        } else {
            self.test(values, |v| passing.get(place(v) as usize) == Some(&true));
        }
    }

    /// After values were asked, NULL is: it passes if it was kept `before`, if that is given.
    fn with_nulls(&mut self, array: &dyn Array, before: Option<Selection>) {
        let Some(nulls) = array.nulls().filter(|n| n.null_count() > 0) else { return };
        self.intersect(nulls.inner());
        if let Some(mut null) = before {
            null.intersect(&!nulls.inner());
            self.unite(&null);
        }
    }

    /// Adds the rows of another selection of the same chunk.
    pub fn unite(&mut self, other: &Selection) {
        if other.is_empty() {
            return;
        }
        let mask = |s: &Selection| match &s.kept {
            Kept::All => BooleanBuffer::new_set(s.rows),
            Kept::Mask(mask, _) => mask.clone(),
            Kept::Positions(positions) => {
                let mut bits = arrow::array::BooleanBufferBuilder::new(s.rows);
                bits.append_n(s.rows, false);
                positions.iter().for_each(|&row| bits.set_bit(row as usize, true));
                bits.finish()
            }
        };
        let both = &mask(self) | &mask(other);
        self.kept = Kept::All;
        self.intersect(&both);
    }

    /// Keeps the rows whose value passes.
    fn test<T: Copy>(&mut self, values: &[T], passes: impl Fn(T) -> bool) {
        match &mut self.kept {
            Kept::Positions(kept) => retain(kept, |row| passes(values[row as usize])),
            _ => self.intersect(&mask(values, passes)),
        }
    }
}

/// Keeps the positions that pass, in order.
fn retain(positions: &mut Vec<u32>, passes: impl Fn(u32) -> bool) {
    let mut kept = 0;
    for at in 0..positions.len() {
        let row = positions[at];
        positions[kept] = row;
        kept += usize::from(passes(row));
    }
    positions.truncate(kept);
}

/// A bit for each value. Truths are bytes before they are bits, as the processor compares many
/// values at once into bytes, and not into bits.
fn mask<T: Copy>(values: &[T], passes: impl Fn(T) -> bool) -> BooleanBuffer {
    let word = |truths: &[[u8; 8]; 8]| {
        let bits = |(n, eight): (usize, &[u8; 8])| eight_bits(*eight) << (8 * n);
        truths.iter().enumerate().map(bits).fold(0, |word, bits| word | bits)
    };
    let (whole, rest) = values.as_chunks::<64>();
    let mut words = Vec::with_capacity(whole.len() + 1);
    words.extend(whole.iter().map(|values| {
        let truths = values.map(|v| u8::from(passes(v)));
        word(truths.as_chunks::<8>().0.try_into().expect("64 are eight times eight"))
    }));
    if !rest.is_empty() {
        let mut truths = [[0; 8]; 8];
        let flat = truths.as_flattened_mut().iter_mut();
        flat.zip(rest).for_each(|(truth, &v)| *truth = u8::from(passes(v)));
        words.push(word(&truths));
    }
    BooleanBuffer::new(arrow::buffer::Buffer::from_vec(words), 0, values.len())
}

/// The lowest bits of eight bytes that are 0 or 1, as the lowest eight bits.
fn eight_bits(truths: [u8; 8]) -> u64 {
    // Byte i comes to stand at bit 56 + i, and nothing else comes that far.
    u64::from_le_bytes(truths).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// The positions of the bits that are set; `count` of them.
fn positions(mask: &BooleanBuffer, count: usize) -> Vec<u32> {
    let mut positions = Vec::with_capacity(count + 64);
    let mut first = 0u32;
    for mut word in mask.bit_chunks().iter_padded() {
        if word == u64::MAX {
            positions.extend(first..first + 64);
        } else {
            let ones = word.count_ones() as usize;
            // Eight at a time, written whether or not they are there: one prediction for eight.
            let room = positions.len();
            let mut at = 0;
            while at < ones {
                let eight: [u32; 8] = std::array::from_fn(|_| {
                    let row = first + word.trailing_zeros();
                    word &= word.wrapping_sub(1);
                    row
                });
                positions.extend_from_slice(&eight);
                at += 8;
            }
            positions.truncate(room + ones);
        }
        first += 64;
    }
    positions
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, Date32Array, DictionaryArray, Int8Array, Int64Array, StringViewArray, UInt8Array,
    };
    use arrow::buffer::NullBuffer;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_pass_as_they_do_one_by_one(
            values in prop::collection::vec(prop::option::weighted(0.9, -9i64..9), 1..400),
            tests in prop::collection::vec(
                (0usize..6, prop_oneof![8 => -9i64..9, 1 => Just(1_000), 1 => Just(-1_000)]),
                1..5,
            ),
            narrow in any::<bool>(),
        ) {
            // Of 8 bits some constants are out of range.
            let array: ArrayRef = if narrow {
                let narrow = values.iter().map(|v| v.map(|v| v as i8));
                Arc::new(narrow.collect::<Int8Array>())
            } else {
                Arc::new(Int64Array::from(values.clone()))
            };
            let mut selection = Selection::all(values.len());
            let mut expected: Vec<u32> = (0..values.len() as u32).collect();
            for (comparison, word) in tests {
                use Comparison::*;
                let comparison =
                    [Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual][comparison];
                prop_assert!(selection.compare(array.as_ref(), comparison, word));
                expected.retain(|&row| values[row as usize].is_some_and(|v| match comparison {
                    Equal => v == word,
                    NotEqual => v != word,
                    Less => v < word,
                    LessOrEqual => v <= word,
                    Greater => v > word,
                    GreaterOrEqual => v >= word,
                }));
                prop_assert_eq!(selection.len(), expected.len());
                let positions = selection.clone().into_positions();
                let all = (0..values.len() as u32).collect();
                prop_assert_eq!(positions.unwrap_or(all), expected.clone());
            }
        }

        #[test]
        fn codes_pass_as_their_values_do(
            keys in prop::collection::vec(prop::option::weighted(0.8, 0u8..3), 1..300),
            passing in prop::collection::vec(any::<bool>(), 3),
            null_passes in any::<bool>(),
            first in any::<u64>(),
        ) {
            let names: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "b", "c"]));
            let array = DictionaryArray::new(UInt8Array::from(keys.clone()), names);
            let before = BooleanBuffer::collect_bool(keys.len(), |i| (first >> (i % 61)) & 1 == 1);
            let mut selection = Selection::of(before.clone());
            selection.look_up(&array, &passing, null_passes);
            let passes = |row: usize| match keys[row] {
                Some(code) => passing[code as usize],
                None => null_passes,
            };
            let expected = (0..keys.len()).filter(|&row| before.value(row) && passes(row));
            let expected: Vec<u32> = expected.map(|row| row as u32).collect();
            let all = (0..keys.len() as u32).collect();
            prop_assert_eq!(selection.into_positions().unwrap_or(all), expected);
        }

        #[test]
        fn numbers_pass_as_they_do_one_by_one(
            values in prop::collection::vec(prop::option::weighted(0.8, 0i64..90), 1..300),
            first in prop_oneof![Just(-40i64), Just(0), Just(100_000)],
            passing in prop::collection::vec(any::<bool>(), 90),
            few in any::<bool>(),
            all in prop::option::of(any::<bool>()),
            null_passes in any::<bool>(),
            before in any::<u64>(),
        ) {
            let few = if few { 30 } else { 90 };
            let passing: Vec<bool> = passing[..few].iter().map(|&p| all.unwrap_or(p)).collect();
            // What stands in the place of a NULL is 0, which is among them.
            let value = |v: &Option<i64>| v.map(|v| v % few as i64);
            let values: Vec<Option<i64>> = values.iter().map(value).collect();
            let nulls: NullBuffer = values.iter().map(Option::is_some).collect();
            let numbers = values.iter().map(|v| v.unwrap_or(0) + first);
            let array: ArrayRef = if first == -40 {
                let numbers: Vec<i8> = numbers.map(|v| v as i8).collect();
                Arc::new(Int8Array::new(numbers.into(), Some(nulls)))
            } else {
                let numbers: Vec<i32> = numbers.map(|v| v as i32).collect();
                Arc::new(Date32Array::new(numbers.into(), Some(nulls)))
            };
            let before = BooleanBuffer::collect_bool(values.len(), |i| (before >> (i % 61)) & 1 == 1);
            let mut selection = Selection::of(before.clone());
            selection.look_up_from(&array, first, &passing, null_passes);
            let passes = |row: usize| match values[row] {
                Some(value) => passing[value as usize],
                None => null_passes,
            };
            let expected = (0..values.len()).filter(|&row| before.value(row) && passes(row));
            let expected: Vec<u32> = expected.map(|row| row as u32).collect();
            let all = (0..values.len() as u32).collect();
            prop_assert_eq!(selection.into_positions().unwrap_or(all), expected);
        }
    }
}
