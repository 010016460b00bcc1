//! Key values that are numbers: their distance from a column's smallest as 64 bits.

use arrow::array::{Array, AsArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::*;

use crate::encoding;

/// A value that is one 64-bit word, as [`encoding::words`] has it, or a float: its bits, where -0
/// is 0 and every NaN equals itself alone, as in DataFusion's joins. Of the 128-bit integers those
/// outside of 64 bits are no words and lie at no distance.
pub trait Word: Copy {
    /// The word; `None`: it does not fit.
    fn word(self) -> Option<i64>;
    /// The distance above `min`, modulo 2^64: what is below `min` wraps around to beyond any
    /// maximum. `u64::MAX`: not a word.
    fn distance(self, min: i64) -> u64;
}

macro_rules! word {
    ($($type:ty, $value:ident => $word:expr;)*) => {$(
        impl Word for $type {
            #[inline(always)]
            fn word(self) -> Option<i64> {
                let $value = self;
                Some($word)
            }

            #[inline(always)]
            fn distance(self, min: i64) -> u64 {
                let $value = self;
                $word.wrapping_sub(min).cast_unsigned()
            }
        }
    )*};
}

word! {
    i8, v => i64::from(v);
    i16, v => i64::from(v);
    i32, v => i64::from(v);
    i64, v => v;
    u8, v => i64::from(v);
    u16, v => i64::from(v);
    u32, v => i64::from(v);
    u64, v => v.cast_signed();
    f32, v => if v == 0.0 { 0 } else { i64::from(v.to_bits()) };
    f64, v => if v == 0.0 { 0 } else { v.to_bits().cast_signed() };
}

impl Word for i128 {
    #[inline(always)]
    fn word(self) -> Option<i64> {
        i64::try_from(self).ok()
    }

    #[inline(always)]
    fn distance(self, min: i64) -> u64 {
        match self.word() {
            Some(word) => word.distance(min),
            None => u64::MAX,
        }
    }
}

/// A function over the values of an array, whatever their type.
pub trait Visit {
    type Output;
    fn visit<T: Word>(self, values: &[T]) -> Self::Output;
}

/// Whether a key of this logical type is a word; of a `Decimal128` it depends on the values.
pub fn is_word(data_type: &DataType) -> bool {
    encoding::is_word(data_type) || data_type.is_floating()
}

/// Calls a function with the values of an array as they are stored. `None`: no numbers.
pub fn visit<V: Visit>(array: &dyn Array, visitor: V) -> Option<V::Output> {
    macro_rules! values {
        ($type:ty) => {
            visitor.visit(array.as_primitive::<$type>().values())
        };
    }
    use DataType::*;
    Some(match array.data_type() {
        Boolean => {
            let bits = array.as_boolean().values();
            visitor.visit(&bits.iter().map(i8::from).collect::<Vec<_>>())
        }
        Int8 => values!(Int8Type),
        Int16 => values!(Int16Type),
        Int32 => values!(Int32Type),
        Int64 => values!(Int64Type),
        UInt8 => values!(UInt8Type),
        UInt16 => values!(UInt16Type),
        UInt32 => values!(UInt32Type),
        UInt64 => values!(UInt64Type),
        Float16 => {
            let values = array.as_primitive::<Float16Type>().values();
            let word = |bits: u16| if bits == 0x8000 { 0 } else { bits };
            visitor.visit(&values.iter().map(|v| word(v.to_bits())).collect::<Vec<_>>())
        }
        Float32 => values!(Float32Type),
        Float64 => values!(Float64Type),
        Date32 => values!(Date32Type),
        Date64 => values!(Date64Type),
        Time32(TimeUnit::Second) => values!(Time32SecondType),
        Time32(_) => values!(Time32MillisecondType),
        Time64(TimeUnit::Microsecond) => values!(Time64MicrosecondType),
        Time64(_) => values!(Time64NanosecondType),
        Timestamp(TimeUnit::Second, _) => values!(TimestampSecondType),
        Timestamp(TimeUnit::Millisecond, _) => values!(TimestampMillisecondType),
        Timestamp(TimeUnit::Microsecond, _) => values!(TimestampMicrosecondType),
        Timestamp(TimeUnit::Nanosecond, _) => values!(TimestampNanosecondType),
        Decimal32(..) => values!(Decimal32Type),
        Decimal64(..) => values!(Decimal64Type),
        Decimal128(..) => values!(Decimal128Type),
        _ => return None,
    })
}

/// What is known of the words of a key column, of those that are not NULL.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Above `max` where there is no value.
    pub min: i64,
    pub max: i64,
    /// Some value is no word.
    pub misfit: bool,
    pub nulls: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { min: i64::MAX, max: i64::MIN, misfit: false, nulls: false }
    }
}

impl Bounds {
    pub fn add(&mut self, other: Bounds) {
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.misfit |= other.misfit;
        self.nulls |= other.nulls;
    }

    pub fn of(array: &dyn Array, nulls: Option<&NullBuffer>) -> Bounds {
        let mut bounds =
            visit(array, FindBounds(nulls)).unwrap_or(Bounds { misfit: true, ..Bounds::default() });
        bounds.nulls = nulls.is_some_and(|n| n.null_count() > 0);
        bounds
    }

    pub fn is_empty(&self) -> bool {
        self.min > self.max
    }
}

struct FindBounds<'a>(Option<&'a NullBuffer>);

impl Visit for FindBounds<'_> {
    type Output = Bounds;

    fn visit<T: Word>(self, values: &[T]) -> Bounds {
        let mut bounds = Bounds::default();
        let mut add = |values: &[T]| {
            for value in values {
                match value.word() {
                    Some(word) => {
                        bounds.min = bounds.min.min(word);
                        bounds.max = bounds.max.max(word);
                    }
                    None => bounds.misfit = true,
                }
            }
        };
        match self.0 {
            None => add(values),
            Some(nulls) => nulls.valid_slices().for_each(|(from, to)| add(&values[from..to])),
        }
        bounds
    }
}
