//! Several words as one number: the key by which dense and hashed tables find a row.
//!
//! A number in a mixed radix: each column's distance from its smallest value on the build side,
//! times the product of the counts of values before it. NULL, where it equals itself and the build
//! side has one, is the value after the largest.

use arrow::array::{Array, ArrayRef};
use arrow::buffer::NullBuffer;
use thalweg_base::{Error, Result};

use super::nulls_of;
use super::word::{Bounds, Visit, Word, visit};

/// The packed key of what can match nothing. No column's digits reach it.
pub const NOTHING: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
pub struct Digit {
    pub min: i64,
    /// The largest distance of a value; nothing is at any if `values` is false.
    pub reach: u64,
    /// Whether there is any value but NULL.
    pub values: bool,
    /// The digit of NULL. `None`: NULL matches nothing.
    pub null: Option<u64>,
    stride: u64,
}

#[derive(Clone, Debug)]
pub struct Packing {
    pub digits: Vec<Digit>,
    /// Every packed key is below, but for [`NOTHING`].
    pub count: u64,
}

impl Packing {
    /// `None`: the keys do not fit 64 bits.
    pub fn new(bounds: &[Bounds], nulls_equal: bool) -> Option<Self> {
        let mut count = 1u64;
        let mut digits = Vec::with_capacity(bounds.len());
        for bound in bounds {
            if bound.misfit {
                return None;
            }
            let values = !bound.is_empty();
            let reach = if values { bound.max.wrapping_sub(bound.min).cast_unsigned() } else { 0 };
            let null = if nulls_equal && bound.nulls { Some(reach.checked_add(1)?) } else { None };
            // `count` stays below 2^64, so that the largest packed key is below NOTHING.
            let digits_here = null.unwrap_or(reach).checked_add(1)?;
            let min = if values { bound.min } else { 0 };
            digits.push(Digit { min, reach, values, null, stride: count });
            count = count.checked_mul(digits_here)?;
        }
        Some(Self { digits, count })
    }

    /// Packs rows into `out`, whose former contents go.
    pub fn pack(&self, keys: &[ArrayRef], rows: usize, out: &mut Vec<u64>) -> Result<()> {
        out.clear();
        if self.digits.is_empty() {
            out.resize(rows, 0);
        }
        for (i, (digit, key)) in self.digits.iter().zip(keys).enumerate() {
            let nulls = nulls_of(key.as_ref());
            let step = Step { digit, nulls: nulls.as_ref(), first: i == 0, out: &mut *out };
            visit(key.as_ref(), step).ok_or_else(|| no_number(key))?;
        }
        Ok(())
    }
}

pub fn no_number(key: &ArrayRef) -> Error {
    Error::internal(format!("a join key of numbers came as {}", key.data_type()))
}

struct Step<'a> {
    digit: &'a Digit,
    nulls: Option<&'a NullBuffer>,
    first: bool,
    out: &'a mut Vec<u64>,
}

impl Visit for Step<'_> {
    type Output = ();

    fn visit<T: Word>(self, values: &[T]) {
        let Digit { min, reach, values: any, null, stride } = *self.digit;
        let digit = |value: T| {
            let distance = value.distance(min);
            if distance <= reach && any { distance.wrapping_mul(stride) } else { NOTHING }
        };
        let null = null.map_or(NOTHING, |null| null.wrapping_mul(stride));
        let sum = |sum: u64, part: u64| {
            if sum == NOTHING || part == NOTHING { NOTHING } else { sum.wrapping_add(part) }
        };
        // Where NULL matches nothing it can be put in afterwards: NOTHING stays whatever is added.
        let nulls = self.nulls.filter(|_| null != NOTHING);
        match (nulls, self.first) {
            (None, true) => self.out.extend(values.iter().map(|&v| digit(v))),
            (None, false) => {
                for (out, &value) in self.out.iter_mut().zip(values) {
                    *out = sum(*out, digit(value));
                }
            }
            (Some(nulls), true) => self.out.extend(
                values.iter().zip(nulls).map(|(&v, valid)| if valid { digit(v) } else { null }),
            ),
            (Some(nulls), false) => {
                for ((out, &value), valid) in self.out.iter_mut().zip(values).zip(nulls) {
                    let part = if valid { digit(value) } else { null };
                    *out = sum(*out, part);
                }
            }
        }
        if let (None, Some(nulls)) = (nulls, self.nulls) {
            for i in (!nulls.inner()).set_indices() {
                self.out[i] = NOTHING;
            }
        }
    }
}
