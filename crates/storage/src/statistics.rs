//! What the catalog knows about a column without reading it.
//!
//! Statistics serve two readers with different needs. *Pruning* needs bounds: every value `v` of
//! a chunk has `min <= v <= max`. *Answering* (`SELECT MIN(x)`) needs values. A bound that is not
//! itself a value of the chunk is flagged inexact, and must never be an answer.
//!
//! * Strings and binaries longer than [`BOUND_BYTES_MAX`] are cut. A cut minimum is still a
//!   bound; a cut maximum has its last character raised to the next one, and where there is none
//!   (all of it U+10FFFF, or 0xFF) the maximum is unknown.
//! * Floats. A chunk with a NaN has neither bound: where NaN sorts depends on who compares (Arrow
//!   by total order, IEEE not at all). A zero bound is widened to -0.0 below and +0.0 above, so it
//!   holds whether or not the two zeros are told apart, and is then inexact unless it was that
//!   zero already.
//! * Nested columns and intervals have no bounds.

use std::sync::Arc;

use arrow::array::types::{ByteViewType, Float32Type, Float64Type};
use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryViewArray, BooleanArray,
    GenericByteViewArray, PrimitiveArray, StringViewArray, UInt64Array, downcast_primitive_array,
    make_comparator, new_null_array,
};
use arrow::compute::{SortOptions, concat, max, max_boolean, min, min_boolean};
use arrow::datatypes::{ArrowNativeType, DataType};
use thalweg_base::limits::DIGEST_LENGTHS_SPREAD_MAX;
use thalweg_base::{Error, Result};

use crate::digest::{Digests, DigestsBuilder, digestible, hash_narrow, hash_view};
use crate::hll::{Sketch, SketchBuilder, hash_u64, hash_u128};

/// Bytes of a string or binary bound; longer ones are cut.
pub const BOUND_BYTES_MAX: usize = 64;

/// One column of a list of chunks: element `i` of each array describes chunk `i`.
#[derive(Clone, Debug)]
pub struct ChunkStatistics {
    /// Of the column's type; null where unknown, or where every value is null.
    pub mins: ArrayRef,
    pub maxs: ArrayRef,
    /// Whether the bound is a value of the chunk.
    pub min_exact: BooleanArray,
    pub max_exact: BooleanArray,
    pub rows: UInt64Array,
    pub nulls: UInt64Array,
    /// Estimated distinct non-null values.
    pub distincts: UInt64Array,
    /// On disk.
    pub stored_bytes: UInt64Array,
    /// As plain values: widths times rows, or the lengths of the strings.
    pub value_bytes: UInt64Array,
}

/// One column of a whole table.
#[derive(Clone, Debug)]
pub struct ColumnStatistics {
    pub rows: u64,
    pub nulls: u64,
    /// Whether `nulls` is exact; it may be too high once rows have been deleted.
    pub nulls_exact: bool,
    /// Bounds of all non-null values, of length 1; `None` where unknown or where there are none.
    pub min: Option<ArrayRef>,
    pub max: Option<ArrayRef>,
    /// Whether the bound is a value of the column, so that it answers MIN or MAX.
    pub min_exact: bool,
    pub max_exact: bool,
    /// Estimated distinct non-null values; `None` for nested columns.
    pub distinct: Option<u64>,
    pub stored_bytes: u64,
    pub value_bytes: u64,
}

impl ChunkStatistics {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn empty(data_type: &DataType) -> Self {
        let none = || UInt64Array::from(Vec::<u64>::new());
        let flags = || BooleanArray::from(Vec::<bool>::new());
        ChunkStatistics {
            mins: new_null_array(data_type, 0),
            maxs: new_null_array(data_type, 0),
            min_exact: flags(),
            max_exact: flags(),
            rows: none(),
            nulls: none(),
            distincts: none(),
            stored_bytes: none(),
            value_bytes: none(),
        }
    }

    pub(crate) fn concat(parts: &[&ChunkStatistics], data_type: &DataType) -> Result<Self> {
        if parts.is_empty() {
            return Ok(Self::empty(data_type));
        }
        let arrays = |of: fn(&ChunkStatistics) -> &dyn Array| {
            concat(&parts.iter().map(|p| of(p)).collect::<Vec<_>>())
                .map_err(|e| Error::internal("cannot join chunk statistics").source(e))
        };
        let counts = |of: fn(&ChunkStatistics) -> &dyn Array| {
            Ok::<_, Error>(arrays(of)?.as_primitive().clone())
        };
        Ok(ChunkStatistics {
            mins: arrays(|p| &p.mins)?,
            maxs: arrays(|p| &p.maxs)?,
            min_exact: arrays(|p| &p.min_exact)?.as_boolean().clone(),
            max_exact: arrays(|p| &p.max_exact)?.as_boolean().clone(),
            rows: counts(|p| &p.rows)?,
            nulls: counts(|p| &p.nulls)?,
            distincts: counts(|p| &p.distincts)?,
            stored_bytes: counts(|p| &p.stored_bytes)?,
            value_bytes: counts(|p| &p.value_bytes)?,
        })
    }

    /// Folds the chunks into one, with the table's distinct count beside.
    pub(crate) fn summary(&self, distinct: Option<u64>) -> ColumnStatistics {
        let sum = |a: &UInt64Array| a.values().iter().sum::<u64>();
        let (min, min_exact) = self.bound(&self.mins, &self.min_exact, std::cmp::Ordering::Less);
        let (max, max_exact) = self.bound(&self.maxs, &self.max_exact, std::cmp::Ordering::Greater);
        ColumnStatistics {
            rows: sum(&self.rows),
            nulls: sum(&self.nulls),
            nulls_exact: true,
            min,
            max,
            min_exact,
            max_exact,
            distinct,
            stored_bytes: sum(&self.stored_bytes),
            value_bytes: sum(&self.value_bytes),
        }
    }

    /// The chunks as one, a list of one element.
    pub(crate) fn folded(&self, distinct: u64, data_type: &DataType) -> Self {
        let all = self.summary(Some(distinct));
        let bound = |b: Option<ArrayRef>| b.unwrap_or_else(|| new_null_array(data_type, 1));
        let count = |n: u64| UInt64Array::from(vec![n]);
        ChunkStatistics {
            mins: bound(all.min),
            maxs: bound(all.max),
            min_exact: vec![all.min_exact].into(),
            max_exact: vec![all.max_exact].into(),
            rows: count(all.rows),
            nulls: count(all.nulls),
            distincts: count(distinct),
            stored_bytes: count(all.stored_bytes),
            value_bytes: count(all.value_bytes),
        }
    }

    fn bound(
        &self,
        bounds: &ArrayRef,
        exact: &BooleanArray,
        better: std::cmp::Ordering,
    ) -> (Option<ArrayRef>, bool) {
        let Ok(compare) = make_comparator(bounds, bounds, SortOptions::default()) else {
            return (None, false);
        };
        let mut best: Option<usize> = None;
        // A cut bound equal to an exact one: the exact one is a value, and no value lies beyond.
        let beats =
            |i: usize, j: usize| compare(i, j) == better || compare(i, j).is_eq() && exact.value(i);
        for chunk in 0..self.len() {
            if self.nulls.value(chunk) == self.rows.value(chunk) {
                continue;
            }
            if bounds.is_null(chunk) {
                return (None, false);
            }
            if best.is_none_or(|best| beats(chunk, best)) {
                best = Some(chunk);
            }
        }
        match best {
            Some(best) => (Some(bounds.slice(best, 1)), exact.value(best)),
            None => (None, false),
        }
    }
}

/// Chunks whose bounds are compared with all others'.
const SAMPLE: usize = 64;

/// Whether knowing a chunk's values spares reading chunks that its bounds do not.
fn skips(statistics: &ChunkStatistics, sketch: &Sketch) -> bool {
    let chunks = statistics.len();
    let distincts: u64 = statistics.distincts.values().iter().sum();
    // The share of the chunks that a value of the extent lies in.
    let spread = distincts as f64 / (chunks as f64 * sketch.estimate().max(1) as f64);
    // In data without any order a chunk begins within every other one's range but for its own
    // luck: (chunks - 1) / 2 on average.
    let disorder = ((chunks as f64 - 1.0) / 4.0).min(2.0);
    chunks > 1 && spread <= 0.5 && overlap(statistics) >= disorder
}

/// Into how many other chunks' ranges the least value of a chunk falls, on average.
fn overlap(statistics: &ChunkStatistics) -> f64 {
    let (lows, highs) = (&statistics.mins, &statistics.maxs);
    let order = SortOptions::default();
    let (Ok(low_low), Ok(low_high)) =
        (make_comparator(lows, lows, order), make_comparator(lows, highs, order))
    else {
        return 0.0;
    };
    let chunks = statistics.len();
    let step = chunks.div_ceil(SAMPLE).max(1);
    let (mut inside, mut sampled) = (0, 0);
    for i in (0..chunks).step_by(step).filter(|&i| lows.is_valid(i)) {
        sampled += 1;
        let within = |&j: &usize| {
            lows.is_valid(j)
                && low_low(j, i).is_lt()
                && (highs.is_null(j) || low_high(i, j).is_lt())
        };
        inside += (0..chunks).filter(within).count();
    }
    f64::from(inside as u32) / f64::from(sampled.max(1))
}

/// One column of one chunk, as the writer measures it.
pub(crate) struct Measured {
    pub rows: u64,
    pub nulls: u64,
    pub bounds: Bounds,
    pub sketch: Sketch,
    /// Of every value, some of them several times; `None` where a digest would never pay.
    pub hashes: Option<Vec<u64>>,
    pub value_bytes: u64,
}

/// Both of length 1 and of the column's type, null where unknown.
pub(crate) struct Bounds {
    pub min: ArrayRef,
    pub max: ArrayRef,
    pub min_exact: bool,
    pub max_exact: bool,
}

impl Bounds {
    fn unknown(data_type: &DataType) -> Self {
        let none = new_null_array(data_type, 1);
        Bounds { min: none.clone(), max: none, min_exact: false, max_exact: false }
    }
}

/// Gathers the chunks of one column of an extent.
pub(crate) struct StatisticsBuilder {
    data_type: DataType,
    chunks: Vec<(Measured, u64)>,
    digests: DigestsBuilder,
}

impl StatisticsBuilder {
    pub fn new(data_type: &DataType) -> Self {
        StatisticsBuilder {
            data_type: data_type.clone(),
            chunks: Vec::new(),
            digests: DigestsBuilder::default(),
        }
    }

    pub fn push(&mut self, mut measured: Measured, stored_bytes: u64) {
        let hashes = measured.hashes.take();
        self.digests.push(hashes.as_deref(), &measured.sketch, stored_bytes);
        self.chunks.push((measured, stored_bytes));
    }

    /// Digests only where they pay.
    pub fn finish(self) -> Result<(ChunkStatistics, Sketch, Option<Digests>)> {
        if self.chunks.is_empty() {
            return Ok((ChunkStatistics::empty(&self.data_type), Sketch::default(), None));
        }
        let join = |of: fn(&Bounds) -> &ArrayRef| {
            let parts: Vec<&dyn Array> =
                self.chunks.iter().map(|(m, _)| of(&m.bounds).as_ref()).collect();
            concat(&parts).map_err(|e| Error::internal("cannot join bounds").source(e))
        };
        let flags = |of: fn(&Bounds) -> bool| {
            self.chunks.iter().map(|(m, _)| Some(of(&m.bounds))).collect()
        };
        let counts = |of: fn(&(Measured, u64)) -> u64| {
            UInt64Array::from_iter_values(self.chunks.iter().map(of))
        };
        let statistics = ChunkStatistics {
            mins: join(|b| &b.min)?,
            maxs: join(|b| &b.max)?,
            min_exact: flags(|b| b.min_exact),
            max_exact: flags(|b| b.max_exact),
            rows: counts(|(m, _)| m.rows),
            nulls: counts(|(m, _)| m.nulls),
            distincts: counts(|(m, _)| m.sketch.estimate()),
            stored_bytes: counts(|(_, stored)| *stored),
            value_bytes: counts(|(m, _)| m.value_bytes),
        };
        let mut sketch = Sketch::default();
        self.chunks.iter().for_each(|(m, _)| sketch.merge(&m.sketch));
        let digests = self.digests.finish(|| skips(&statistics, &sketch));
        Ok((statistics, sketch, digests))
    }
}

/// Reads a chunk's column once and says everything the catalog keeps about it.
pub(crate) fn measure(array: &ArrayRef) -> Measured {
    let rows = array.len() as u64;
    let nulls = array.logical_null_count() as u64;
    let data_type = array.data_type();
    let mut sketch = SketchBuilder::new(digestible(data_type));
    let mut lengths = Lengths::default();
    let (bounds, value_bytes) = match data_type {
        _ if nulls == rows => (Bounds::unknown(data_type), 0),
        DataType::Boolean => (boolean(array.as_boolean(), &mut sketch), rows.div_ceil(8)),
        DataType::Float32 => (
            float(array.as_primitive::<Float32Type>(), &mut sketch, f64::from, |v| v as f32),
            rows * 4,
        ),
        DataType::Float64 => {
            (float(array.as_primitive::<Float64Type>(), &mut sketch, |v| v, |v| v), rows * 8)
        }
        DataType::Utf8View => {
            views(array.as_string_view(), &mut sketch, &mut lengths, |bound, above| {
                let text = std::str::from_utf8(bound).ok()?;
                let cut = if above { text_above(text) } else { Some(text_below(text).to_owned()) };
                Some(Arc::new(StringViewArray::from_iter_values([cut?])))
            })
        }
        DataType::BinaryView => {
            views(array.as_binary_view(), &mut sketch, &mut lengths, |bound, above| {
                let cut = if above {
                    bytes_above(bound)
                } else {
                    Some(bound[..bound.len().min(BOUND_BYTES_MAX)].to_vec())
                };
                Some(Arc::new(BinaryViewArray::from_iter_values([cut?])))
            })
        }
        // Arrow orders intervals part by part, and SQL by their length.
        _ if data_type.is_nested() || matches!(data_type, DataType::Interval(_)) => {
            (Bounds::unknown(data_type), array.get_array_memory_size() as u64)
        }
        _ => {
            let width = data_type.primitive_width().unwrap_or(0) as u64;
            let values: &dyn Array = array;
            let bounds = downcast_primitive_array!(
                values => primitive(values, &mut sketch),
                _ => Bounds::unknown(data_type)
            );
            (bounds, rows * width)
        }
    };
    let (sketch, hashes) = sketch.finish();
    let few = matches!(sketch, Sketch::Sparse(_));
    let hashes = (digestible(data_type) && (few || lengths.are_even())).then_some(hashes);
    Measured { rows, nulls, bounds, sketch, hashes, value_bytes }
}

fn boolean(array: &BooleanArray, sketch: &mut SketchBuilder) -> Bounds {
    let (min, max) = (min_boolean(array), max_boolean(array));
    min.into_iter().chain(max).for_each(|v| sketch.insert(hash_u64(u64::from(v))));
    Bounds {
        min: Arc::new(BooleanArray::from(vec![min])),
        max: Arc::new(BooleanArray::from(vec![max])),
        min_exact: min.is_some(),
        max_exact: max.is_some(),
    }
}

fn primitive<T: ArrowPrimitiveType>(
    array: &PrimitiveArray<T>,
    sketch: &mut SketchBuilder,
) -> Bounds {
    let (min, max) = (min(array), max(array));
    let narrow = |v: Option<T::Native>| v.and_then(|v| v.to_i64());
    let range = match (narrow(min), narrow(max)) {
        (Some(min), Some(max)) => max.checked_sub(min).map(|range| (min, range as usize)),
        _ => None,
    };
    match range {
        // Dates, quantities, codes: a bit per possible value, and one hash per actual one.
        Some((base, range)) if range < array.len() / 4 => {
            let mut seen = vec![0u64; range / 64 + 1];
            each(array, |v| {
                let at = v.to_i64().map_or(0, |v| (v - base) as usize);
                seen[at / 64] |= 1 << (at % 64);
            });
            let present = (0..=range).filter(|at| seen[at / 64] >> (at % 64) & 1 == 1);
            present.for_each(|at| sketch.insert(hash_integer::<T>(base + at as i64)));
        }
        _ if size_of::<T::Native>() <= 8 => {
            each(array, |v| sketch.insert(hash_narrow(v)));
        }
        // Decimals are the only wider values.
        _ => {
            let data = array.to_data();
            let values: &[i128] = data.buffer(0);
            let mut see = |v: i128| sketch.insert(hash_u128(v as u128));
            match array.nulls().filter(|n| n.null_count() > 0) {
                None => values[..array.len()].iter().for_each(|&v| see(v)),
                Some(nulls) => nulls.valid_indices().for_each(|i| see(values[i])),
            }
        }
    }
    let bound = |v: Option<T::Native>| -> ArrayRef {
        Arc::new(PrimitiveArray::<T>::from_iter([v]).with_data_type(array.data_type().clone()))
    };
    Bounds { min_exact: min.is_some(), max_exact: max.is_some(), min: bound(min), max: bound(max) }
}

/// As the values of a column of `T` are hashed, whatever their range.
fn hash_integer<T: ArrowPrimitiveType>(v: i64) -> u64 {
    if size_of::<T::Native>() <= 8 { hash_u64(v as u64) } else { hash_u128(i128::from(v) as u128) }
}

fn each<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>, mut f: impl FnMut(T::Native)) {
    match array.nulls().filter(|n| n.null_count() > 0) {
        None => array.values().iter().for_each(|&v| f(v)),
        Some(nulls) => nulls.valid_indices().for_each(|i| f(array.values()[i])),
    }
}

/// f32 is compared as f64, which holds all of its values.
fn float<T: ArrowPrimitiveType>(
    array: &PrimitiveArray<T>,
    sketch: &mut SketchBuilder,
    widen: impl Fn(T::Native) -> f64,
    narrow: impl Fn(f64) -> T::Native,
) -> Bounds {
    let (mut low, mut high, mut nan) = (f64::INFINITY, f64::NEG_INFINITY, false);
    each(array, |v| {
        let v = widen(v);
        // Adding +0.0 turns -0.0 into +0.0: the two zeros are one value.
        sketch.insert(hash_u64((v + 0.0).to_bits()));
        nan |= v.is_nan();
        low = if v < low { v } else { low };
        high = if v > high { v } else { high };
    });
    if nan {
        return Bounds::unknown(array.data_type());
    }
    let zero = |v: f64| v == 0.0;
    let bound =
        |v: f64| -> ArrayRef { Arc::new(PrimitiveArray::<T>::from_iter_values([narrow(v)])) };
    Bounds {
        min: bound(if zero(low) { -0.0 } else { low }),
        max: bound(if zero(high) { 0.0 } else { high }),
        min_exact: !zero(low),
        max_exact: !zero(high),
    }
}

/// Strings and binaries: `cut(bytes, above)` makes a bound of them below or above.
fn views<T: ByteViewType + ?Sized>(
    array: &GenericByteViewArray<T>,
    sketch: &mut SketchBuilder,
    lengths: &mut Lengths,
    cut: impl Fn(&[u8], bool) -> Option<ArrayRef>,
) -> (Bounds, u64) {
    let mut value_bytes = 0u64;
    let (mut low, mut high): (Option<Ranked>, Option<Ranked>) = (None, None);
    let views = array.views();
    // A direct-mapped memory of views met before. Equal views are equal values, so columns of few
    // short strings, and dictionaries, cost one comparison a row.
    let mut met = [u128::MAX; 256];
    let mut see = |i: usize| {
        let view = views[i];
        value_bytes += u64::from(view as u32);
        let folded = (view ^ (view >> 64)) as u64;
        let slot = &mut met[(folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize];
        if *slot == view {
            return;
        }
        *slot = view;
        let bytes: &[u8] = array.value(i).as_ref();
        lengths.least = lengths.least.min(bytes.len());
        lengths.most = lengths.most.max(bytes.len());
        sketch.insert(hash_view(view, bytes));
        let value = Ranked { prefix: (view as u64 >> 32) as u32, bytes };
        if low.as_ref().is_none_or(|low| value.below(low)) {
            low = Some(value);
        }
        if high.as_ref().is_none_or(|high| high.below(&value)) {
            high = Some(value);
        }
    };
    match array.nulls().filter(|n| n.null_count() > 0) {
        None => (0..array.len()).for_each(&mut see),
        Some(nulls) => nulls.valid_indices().for_each(&mut see),
    }
    let data_type = array.data_type();
    let exact = |v: &Option<Ranked>| v.as_ref().is_some_and(|v| v.bytes.len() <= BOUND_BYTES_MAX);
    let bound = |v: &Option<Ranked>, above| {
        v.as_ref().and_then(|v| cut(v.bytes, above)).unwrap_or_else(|| new_null_array(data_type, 1))
    };
    let bounds = Bounds {
        min_exact: exact(&low),
        max_exact: exact(&high),
        min: bound(&low, false),
        max: bound(&high, true),
    };
    (bounds, value_bytes)
}

/// Of strings or binaries.
struct Lengths {
    least: usize,
    most: usize,
}

impl Default for Lengths {
    fn default() -> Self {
        Lengths { least: usize::MAX, most: 0 }
    }
}

impl Lengths {
    /// Keys are about as long as each other, comments are not, and nobody looks one up by its
    /// whole text: its digest would be wasted.
    fn are_even(&self) -> bool {
        self.most.saturating_sub(self.least) <= DIGEST_LENGTHS_SPREAD_MAX
    }
}

/// A string with its first four bytes as a number, which settles most comparisons.
#[derive(Clone, Copy)]
struct Ranked<'a> {
    prefix: u32,
    bytes: &'a [u8],
}

impl Ranked<'_> {
    #[inline]
    fn below(&self, other: &Ranked<'_>) -> bool {
        match self.prefix.swap_bytes().cmp(&other.prefix.swap_bytes()) {
            std::cmp::Ordering::Equal => self.bytes < other.bytes,
            order => order.is_lt(),
        }
    }
}

fn text_below(text: &str) -> &str {
    &text[..text.floor_char_boundary(BOUND_BYTES_MAX)]
}

/// The text itself if short; else the least string that is a prefix with its last character
/// raised, at most [`BOUND_BYTES_MAX`] bytes long.
fn text_above(text: &str) -> Option<String> {
    if text.len() <= BOUND_BYTES_MAX {
        return Some(text.to_owned());
    }
    let mut kept = text_below(text).to_owned();
    while let Some(last) = kept.pop() {
        // The surrogates are no characters: the range steps over them.
        let Some(next) = (last..=char::MAX).nth(1) else { continue };
        if kept.len() + next.len_utf8() <= BOUND_BYTES_MAX {
            kept.push(next);
            return Some(kept);
        }
    }
    None
}

fn bytes_above(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() <= BOUND_BYTES_MAX {
        return Some(bytes.to_vec());
    }
    let mut kept = bytes[..BOUND_BYTES_MAX].to_vec();
    while let Some(last) = kept.pop() {
        if last < u8::MAX {
            kept.push(last + 1);
            return Some(kept);
        }
    }
    None
}

#[cfg(test)]
mod tests;
