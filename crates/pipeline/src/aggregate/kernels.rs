//! The loops over rows: sums, least and greatest values by group.

use arrow::buffer::BooleanBuffer;

/// Rows of [`lanes`] whose groups' states lie apart. A sum is loaded right after it was stored when
/// its group follows itself, which takes five cycles; with four in flight the loop is bound by its
/// instructions.
const LANES: usize = 4;

/// Bits of the numbers whose sums over `BOUNDED_ROWS_MAX` rows fit 64.
const BOUND_LOG2: u32 = 46;
pub(super) const BOUNDED_ROWS_MAX: usize = 1 << 16;

/// What is done with the values of a group: associative, commutative, with an identity.
pub(super) trait Op {
    type T: Copy;
    const IDENTITY: Self::T;
    fn combine(a: Self::T, b: Self::T) -> Self::T;
}

macro_rules! ops {
    ($($name:ident: $type:ty, $identity:expr, $combine:expr;)*) => {$(
        pub(super) struct $name;
        impl Op for $name {
            type T = $type;
            const IDENTITY: $type = $identity;
            #[inline(always)]
            fn combine(a: $type, b: $type) -> $type {
                let combine: fn($type, $type) -> $type = $combine;
                combine(a, b)
            }
        }
    )*};
}

ops! {
    AddInt: i64, 0, |a, b| a.wrapping_add(b);
    AddFloat: f64, 0.0, |a, b| a + b;
    AddWide: i128, 0, |a, b| a.wrapping_add(b);
    MinWord: i64, i64::MAX, |a, b| a.min(b);
    MaxWord: i64, i64::MIN, |a, b| a.max(b);
    MinWide: i128, i128::MAX, |a, b| a.min(b);
    MaxWide: i128, i128::MIN, |a, b| a.max(b);
}

/// The values with the identity in the place of rows that do not count.
pub(super) fn masked<T: Copy>(values: &[T], selected: &BooleanBuffer, identity: T) -> Vec<T> {
    values.iter().zip(selected).map(|(&v, s)| if s { v } else { identity }).collect()
}

/// All values in one, from whatever they are in; eight at a time, which floats need to be told.
pub(super) fn one<O: Op, V: Copy + Into<O::T>>(values: &[V]) -> O::T {
    let mut parts = [O::IDENTITY; 8];
    let (chunks, rest) = values.as_chunks::<8>();
    for chunk in chunks {
        for (part, &value) in parts.iter_mut().zip(chunk) {
            *part = O::combine(*part, value.into());
        }
    }
    let rest = rest.iter().fold(O::IDENTITY, |all, &value| O::combine(all, value.into()));
    parts.into_iter().fold(rest, O::combine)
}

/// Few groups: `C` columns at once, whose states of a group lie together.
pub(super) fn lanes<O: Op, const C: usize>(
    ids: &[u32],
    groups: usize,
    columns: [&[O::T]; C],
) -> Vec<[O::T; C]> {
    let mut states = vec![[O::IDENTITY; C]; LANES * groups];
    let columns = columns.map(|c| &c[..ids.len()]);
    let (blocks, rest) = ids.as_chunks::<LANES>();
    for (block, ids) in blocks.iter().enumerate() {
        for (lane, &id) in ids.iter().enumerate() {
            let state = &mut states[lane * groups + id as usize];
            for c in 0..C {
                // SAFETY: of LANES * blocks.len() <= ids.len() values, which all columns have.
                let value = unsafe { *columns[c].get_unchecked(block * LANES + lane) };
                state[c] = O::combine(state[c], value);
            }
        }
    }
    let done = ids.len() - rest.len();
    for (i, &id) in rest.iter().enumerate() {
        let state = &mut states[id as usize];
        for c in 0..C {
            state[c] = O::combine(state[c], columns[c][done + i]);
        }
    }
    let (first, others) = states.split_at_mut(groups);
    for other in others.chunks_exact(groups) {
        for (state, other) in first.iter_mut().zip(other) {
            for c in 0..C {
                state[c] = O::combine(state[c], other[c]);
            }
        }
    }
    states.truncate(groups);
    states
}

/// How many rows each of few groups has.
pub(super) fn lane_counts(ids: &[u32], groups: usize) -> Vec<i64> {
    let mut counts = vec![0i64; LANES * groups];
    let (blocks, rest) = ids.as_chunks::<LANES>();
    for ids in blocks {
        for (lane, &id) in ids.iter().enumerate() {
            counts[lane * groups + id as usize] += 1;
        }
    }
    for &id in rest {
        counts[id as usize] += 1;
    }
    (0..groups).map(|g| (0..LANES).map(|lane| counts[lane * groups + g]).sum()).collect()
}

pub(super) fn many<O: Op>(states: &mut [O::T], ids: &[u32], values: &[O::T]) {
    for (&id, &value) in ids.iter().zip(values) {
        let state = &mut states[id as usize];
        *state = O::combine(*state, value);
    }
}

pub(super) fn many_widened<O: Op<T = i128>>(states: &mut [i128], ids: &[u32], values: &[i64]) {
    for (&id, &value) in ids.iter().zip(values) {
        let state = &mut states[id as usize];
        *state = O::combine(*state, i128::from(value));
    }
}

/// Counts rows by group.
pub(super) fn many_counts(counts: &mut [i64], ids: &[u32]) {
    for &id in ids {
        counts[id as usize] += 1;
    }
}

/// Whether the values' sum, over [`BOUNDED_ROWS_MAX`] of them, fits 64 bits.
pub(super) fn bounded(values: &[i64]) -> bool {
    let bits = |v: &i64| v.wrapping_add(1 << BOUND_LOG2).cast_unsigned();
    values.iter().fold(0, |all, v| all | bits(v)) >> (BOUND_LOG2 + 1) == 0
}

/// The values in 64 bits, if these hold their sum.
pub(super) fn narrowed(values: &[i128]) -> Option<Vec<i64>> {
    let narrow: Vec<i64> = values.iter().map(|&v| v as i64).collect();
    let differ = values.iter().fold(0, |all, &v| all | (v >> 63) ^ (v >> 127));
    (differ == 0 && bounded(&narrow)).then_some(narrow)
}

/// Adds to a sum of more than 128 bits: it is `sum + high * 2^128`.
#[inline]
pub(super) fn add_exact(sum: &mut i128, high: &mut i64, value: i128) {
    let (wrapped, overflowed) = sum.overflowing_add(value);
    *sum = wrapped;
    if overflowed {
        *high += if value < 0 { -1 } else { 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_do_what_one_by_one_does() {
        for rows in [0, 1, 3, 4, 257] {
            let ids: Vec<u32> = (0..rows).map(|i| (i * i % 7) as u32).collect();
            let a: Vec<i64> = (0..rows).map(|i| i * 31 % 17 - 8).collect();
            let b: Vec<i64> = (0..rows).map(|i| i * 7 % 13).collect();
            let states = lanes::<AddInt, 2>(&ids, 7, [&a, &b]);
            for (column, values) in [a, b].iter().enumerate() {
                let mut expected = vec![0; 7];
                many::<AddInt>(&mut expected, &ids, values);
                assert_eq!(states.iter().map(|s| s[column]).collect::<Vec<_>>(), expected);
            }
            let mut counts = vec![0; 7];
            many_counts(&mut counts, &ids);
            assert_eq!(lane_counts(&ids, 7), counts);
        }
    }

    #[test]
    fn bounds_are_exact() {
        assert!(bounded(&[(1 << 46) - 1, -(1 << 46)]));
        assert!(!bounded(&[1 << 46]));
        assert!(!bounded(&[-(1 << 46) - 1]));
        assert!(!bounded(&[i64::MIN]) && !bounded(&[i64::MAX]));
        assert_eq!(narrowed(&[5, -7]), Some(vec![5, -7]));
        assert_eq!(narrowed(&[1 << 64]), None);
        assert_eq!(narrowed(&[-1 << 64]), None);
    }
}
