//! One array of the values of several, of which each row has one.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder, DictionaryArray,
    StringViewArray, UInt8Array, make_array, new_null_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::compute::interleave;
use arrow::datatypes::{ArrowNativeType, DataType, i256};
use thalweg_base::{Error, Result};

use super::decimal;
use crate::encoding::{NARROW_DIGITS, expand, internal};

/// Where the values of some rows come from.
pub enum Source {
    /// All have this one, an array of one.
    Scalar(ArrayRef),
    /// Each has its own; the array has a value for every row.
    Rows(ArrayRef),
    /// Each has its own; the array has values for these rows only, in their order.
    Picked(ArrayRef),
}

/// The rows that get their values from a source; no row is in two of these.
pub type Part = (BooleanBuffer, Source);

impl Source {
    fn array(&self) -> &ArrayRef {
        match self {
            Source::Scalar(array) | Source::Rows(array) | Source::Picked(array) => array,
        }
    }

    fn with(&self, array: ArrayRef) -> Source {
        match self {
            Source::Scalar(_) => Source::Scalar(array),
            Source::Rows(_) => Source::Rows(array),
            Source::Picked(_) => Source::Picked(array),
        }
    }
}

/// The values of all rows, maybe in an encoded form; rows of no part are NULL.
pub fn choose(mut parts: Vec<Part>, rows: usize, logical: &DataType) -> Result<ArrayRef> {
    parts.retain(|(mask, source)| {
        mask.has_true() && source.array().logical_null_count() < source.array().len()
    });
    if parts.is_empty() {
        return Ok(new_null_array(logical, rows));
    }
    if let [(mask, Source::Rows(array))] = parts.as_slice()
        && mask.count_set_bits() == rows
    {
        return Ok(Arc::clone(array));
    }
    if *logical == DataType::Utf8View
        && let Some(dictionary) = of_constants(&parts, rows)?
    {
        return Ok(dictionary);
    }
    let parts = match narrow(&parts, logical) {
        Some(narrow) => narrow,
        None => plain(parts, logical)?,
    };
    let form = parts[0].1.array().data_type().clone();
    let nulls = validity(&parts, rows)?;
    match &form {
        DataType::Boolean => booleans(&parts, rows, nulls),
        DataType::Utf8View => views(&parts, rows, nulls),
        other => match other.primitive_width() {
            Some(1) => fixed::<u8>(&parts, rows, nulls, &form),
            Some(2) => fixed::<u16>(&parts, rows, nulls, &form),
            Some(4) => fixed::<u32>(&parts, rows, nulls, &form),
            Some(8) => fixed::<u64>(&parts, rows, nulls, &form),
            Some(16) => fixed::<i128>(&parts, rows, nulls, &form),
            Some(32) => fixed::<i256>(&parts, rows, nulls, &form),
            _ => interleaved(&parts, rows, logical),
        },
    }
}

/// The parts in their plain form.
fn plain(parts: Vec<Part>, logical: &DataType) -> Result<Vec<Part>> {
    let plain = parts.into_iter().map(|(mask, source)| {
        let array = expand(source.array(), logical)?;
        Ok((mask, source.with(array)))
    });
    plain.collect()
}

/// The parts as decimals of 64 bits, if each of them is or can be.
fn narrow(parts: &[Part], logical: &DataType) -> Option<Vec<Part>> {
    let DataType::Decimal128(_, scale) = *logical else { return None };
    let form = DataType::Decimal64(NARROW_DIGITS, scale);
    if !(0..=NARROW_DIGITS as i8).contains(&scale) {
        return None;
    }
    let column = arrow::array::new_empty_array(&form);
    let narrow = parts.iter().map(|(mask, source)| {
        let array = match source {
            source if *source.array().data_type() == form => Arc::clone(source.array()),
            Source::Scalar(one) => decimal::at_scale_of(&column, one)?,
            _ => return None,
        };
        Some((mask.clone(), source.with(array)))
    });
    narrow.collect()
}

/// Texts that are constants, each once in a dictionary. `None`: some are none, or there are more than
/// its codes can tell apart.
fn of_constants(parts: &[Part], rows: usize) -> Result<Option<ArrayRef>> {
    let mut texts: Vec<&str> = Vec::new();
    let mut codes = vec![0_u8; rows];
    for (mask, source) in parts {
        let Source::Scalar(one) = source else { return Ok(None) };
        let Some(one) = one.as_string_view_opt() else { return Ok(None) };
        let text = one.value(0);
        let code = texts.iter().position(|known| *known == text).unwrap_or_else(|| {
            texts.push(text);
            texts.len() - 1
        });
        let Ok(code) = u8::try_from(code) else { return Ok(None) };
        put_one(&mut codes, mask, code);
    }
    let nulls = validity(parts, rows)?;
    let values: ArrayRef = Arc::new(StringViewArray::from(texts));
    let keys = UInt8Array::new(codes.into(), nulls);
    Ok(Some(Arc::new(DictionaryArray::try_new(keys, values).map_err(internal)?)))
}

/// Which rows have a value that is not NULL; `None`: all.
fn validity(parts: &[Part], rows: usize) -> Result<Option<NullBuffer>> {
    let mut valid: Option<BooleanBuffer> = None;
    for (mask, source) in parts {
        let own = match (source, source.array().logical_nulls()) {
            (Source::Rows(_), Some(nulls)) => mask & nulls.inner(),
            (Source::Picked(_), Some(nulls)) => spread(mask, nulls.inner()),
            _ => mask.clone(),
        };
        valid = Some(match valid {
            Some(so_far) => &so_far | &own,
            None => own,
        });
    }
    let valid = valid.unwrap_or_else(|| BooleanBuffer::new_unset(rows));
    if valid.len() != rows {
        return Err(Error::internal("the parts of an array are those of another"));
    }
    Ok(Some(NullBuffer::new(valid)).filter(|nulls| nulls.null_count() > 0))
}

/// The bits of `few`, each at the place of the next bit that is set in `mask`.
pub fn spread(mask: &BooleanBuffer, few: &BooleanBuffer) -> BooleanBuffer {
    let mut bits = BooleanBufferBuilder::new(mask.len());
    bits.append_n(mask.len(), false);
    for (n, row) in mask.set_indices().enumerate() {
        if few.value(n) {
            bits.set_bit(row, true);
        }
    }
    bits.finish()
}

fn booleans(parts: &[Part], rows: usize, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    let mut truths = BooleanBuffer::new_unset(rows);
    for (mask, source) in parts {
        let array = source.array().as_boolean();
        let own = match source {
            Source::Scalar(_) if array.value(0) => mask.clone(),
            Source::Scalar(_) => continue,
            Source::Rows(_) => mask & array.values(),
            Source::Picked(_) => spread(mask, array.values()),
        };
        truths = &truths | &own;
    }
    Ok(Arc::new(BooleanArray::new(truths, nulls)))
}

/// Views of the texts of all sources, over the buffers of all.
fn views(parts: &[Part], rows: usize, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    let mut out = vec![0_u128; rows];
    let mut buffers: Vec<Buffer> = Vec::new();
    for (mask, source) in parts {
        let array = source.array().as_string_view();
        // A view names its buffer in the third of its words, unless the text is in the view itself.
        let first = (buffers.len() as u128) << 64;
        let moved = |view: u128| {
            let is_inline = view as u32 <= arrow::array::MAX_INLINE_VIEW_LEN;
            if is_inline { view } else { view + first }
        };
        put(&mut out, mask, source, array.views(), moved);
        buffers.extend(array.data_buffers().iter().cloned());
    }
    // What stands in the place of a NULL may name a buffer, which is there, or be zero.
    // SAFETY: each view is one of an array that is valid, and its buffer has moved to where it now
    // says it is.
    let texts = unsafe {
        StringViewArray::new_unchecked(ScalarBuffer::from(out), buffers.as_slice(), nulls)
    };
    Ok(Arc::new(texts))
}

/// Values of a fixed width, whatever they are.
fn fixed<T: ArrowNativeType>(
    parts: &[Part],
    rows: usize,
    nulls: Option<NullBuffer>,
    form: &DataType,
) -> Result<ArrayRef> {
    let mut out = vec![T::default(); rows];
    for (mask, source) in parts {
        let data = source.array().to_data();
        let buffer = data.buffers().first();
        let buffer = buffer.ok_or_else(|| Error::internal(format!("{form} has no values")))?;
        let values = ScalarBuffer::<T>::new(buffer.clone(), data.offset(), data.len());
        put(&mut out, mask, source, &values, |value| value);
    }
    let data = ArrayData::builder(form.clone()).len(rows).add_buffer(Buffer::from_vec(out));
    // SAFETY: as many values of the type's width as there are rows, and any bits are a value; the
    // NULLs are as many.
    Ok(make_array(unsafe { data.nulls(nulls).build_unchecked() }))
}

/// Puts values where `mask` is set.
fn put<T: Copy>(
    out: &mut [T],
    mask: &BooleanBuffer,
    source: &Source,
    values: &[T],
    make: impl Fn(T) -> T,
) {
    match source {
        Source::Scalar(_) => put_one(out, mask, make(values[0])),
        Source::Picked(_) => {
            for (row, value) in mask.set_indices().zip(values) {
                out[row] = make(*value);
            }
        }
        Source::Rows(_) => {
            each_word(mask, |from, word| {
                let to = (from + 64).min(values.len());
                let (out, values) = (&mut out[from..to], &values[from..to]);
                for (n, (out, value)) in out.iter_mut().zip(values).enumerate() {
                    // Both are read, so that there is no branch.
                    *out = if word >> n & 1 == 1 { make(*value) } else { *out };
                }
            });
        }
    }
}

/// Puts the same value wherever `mask` is set.
fn put_one<T: Copy>(out: &mut [T], mask: &BooleanBuffer, value: T) {
    each_word(mask, |from, word| {
        let to = (from + 64).min(out.len());
        for (n, out) in out[from..to].iter_mut().enumerate() {
            *out = if word >> n & 1 == 1 { value } else { *out };
        }
    });
}

/// Calls `f` with the row that each 64 bits begin at, if any of them is set.
fn each_word(mask: &BooleanBuffer, mut f: impl FnMut(usize, u64)) {
    let chunks = mask.bit_chunks();
    let words = chunks.iter().chain(std::iter::once(chunks.remainder_bits()));
    for (n, word) in words.enumerate() {
        if word != 0 {
            f(64 * n, word);
        }
    }
}

/// Any type, by Arrow's kernel.
fn interleaved(parts: &[Part], rows: usize, logical: &DataType) -> Result<ArrayRef> {
    let null = new_null_array(logical, 1);
    let mut arrays: Vec<&dyn Array> = vec![null.as_ref()];
    let mut places = vec![(0, 0); rows];
    for (mask, source) in parts {
        for (n, row) in mask.set_indices().enumerate() {
            let place = match source {
                Source::Scalar(_) => 0,
                Source::Rows(_) => row,
                Source::Picked(_) => n,
            };
            places[row] = (arrays.len(), place);
        }
        arrays.push(source.array().as_ref());
    }
    interleave(&arrays, &places).map_err(internal)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Decimal64Array, Decimal128Array, Int16Array, Int64Array, StringArray};
    use arrow::datatypes::{Decimal64Type, Int64Type};

    use super::*;

    fn mask(rows: &[bool]) -> BooleanBuffer {
        rows.iter().copied().collect()
    }

    /// A mask of which row `n` is set if `n % of == rest`.
    fn every(rows: usize, of: usize, rest: usize) -> BooleanBuffer {
        BooleanBuffer::collect_bool(rows, |n| n % of == rest)
    }

    #[test]
    fn numbers_come_from_where_they_are_said_to() {
        for rows in [0, 1, 63, 64, 65, 200] {
            let all: ArrayRef = Arc::new(Int64Array::from_iter(
                (0..rows as i64).map(|n| (n % 5 != 0).then_some(n)),
            ));
            let few = every(rows, 3, 1);
            let picked: ArrayRef =
                Arc::new(Int64Array::from_iter_values(few.set_indices().map(|n| 1000 + n as i64)));
            let one: ArrayRef = Arc::new(Int64Array::from(vec![-1]));
            let parts = vec![
                (every(rows, 3, 0), Source::Rows(all)),
                (few, Source::Picked(picked)),
                (every(rows, 6, 2), Source::Scalar(one)),
            ];
            let found = choose(parts, rows, &DataType::Int64).unwrap();
            let expected = (0..rows as i64).map(|n| match n % 6 {
                0 | 3 => (n % 5 != 0).then_some(n),
                1 | 4 => Some(1000 + n),
                2 => Some(-1),
                _ => None,
            });
            assert_eq!(found.as_primitive::<Int64Type>(), &Int64Array::from_iter(expected));
        }
    }

    #[test]
    fn slices_are_read_from_where_they_begin() {
        let values: ArrayRef = Arc::new(Int16Array::from(vec![Some(9), Some(1), None, Some(3)]));
        let one: ArrayRef = Arc::new(Int16Array::from(vec![7]));
        let mask = mask(&[true, false, true, true]).slice(1, 3);
        let parts =
            vec![(mask.clone(), Source::Rows(values.slice(1, 3))), (!&mask, Source::Scalar(one))];
        let found = choose(parts, 3, &DataType::Int16).unwrap();
        let expected = Int16Array::from(vec![Some(7), None, Some(3)]);
        assert_eq!(found.as_ref(), &expected as &dyn Array);
    }

    #[test]
    fn texts_that_are_constants_become_a_dictionary() {
        let text = |t: &str| Source::Scalar(Arc::new(StringViewArray::from(vec![t])));
        let null = Source::Scalar(new_null_array(&DataType::Utf8View, 1));
        let parts = vec![
            (mask(&[true, false, false, false]), text("low")),
            (mask(&[false, true, false, false]), null),
            (mask(&[false, false, true, true]), text("low")),
        ];
        let found = choose(parts, 4, &DataType::Utf8View).unwrap();
        assert_eq!(found.as_any_dictionary().values().len(), 1);
        let plain = expand(&found, &DataType::Utf8View).unwrap();
        let expected = StringViewArray::from(vec![Some("low"), None, Some("low"), Some("low")]);
        assert_eq!(plain.as_ref(), &expected as &dyn Array);
    }

    #[test]
    fn texts_stay_in_the_buffers_they_are_in() {
        let long = ["a text that is no view", "another text that is no view", "short"];
        let rows: ArrayRef = Arc::new(StringViewArray::from(vec![long[0], long[1], long[2]]));
        let one: ArrayRef = Arc::new(StringViewArray::from(vec!["one more text that is no view"]));
        let codes = UInt8Array::from(vec![Some(1), None]);
        let picked: ArrayRef = Arc::new(DictionaryArray::new(codes, Arc::clone(&rows)));
        let parts = vec![
            (mask(&[true, false, false, false, false]), Source::Scalar(one)),
            (mask(&[false, true, false, false, true]), Source::Picked(picked)),
            (
                mask(&[false, false, true, false, false]),
                Source::Rows(arrow::compute::concat(&[&rows, &rows.slice(0, 2)]).unwrap()),
            ),
        ];
        let found = choose(parts, 5, &DataType::Utf8View).unwrap();
        let expected = StringViewArray::from(vec![
            Some("one more text that is no view"),
            Some(long[1]),
            Some("short"),
            None,
            None,
        ]);
        assert_eq!(found.as_ref(), &expected as &dyn Array);
        found.to_data().validate_full().unwrap();
    }

    #[test]
    fn decimals_stay_narrow_if_all_can_be() {
        let narrow: ArrayRef =
            Arc::new(Decimal64Array::from(vec![150, 250]).with_precision_and_scale(18, 2).unwrap());
        let wide = |value: i128| -> ArrayRef {
            let one = Decimal128Array::from(vec![value]);
            Arc::new(one.with_precision_and_scale(38, 2).unwrap())
        };
        let both = |one: ArrayRef| {
            let parts = vec![
                (mask(&[true, false]), Source::Rows(Arc::clone(&narrow))),
                (mask(&[false, true]), Source::Scalar(one)),
            ];
            choose(parts, 2, &DataType::Decimal128(38, 2)).unwrap()
        };
        let found = both(wide(0));
        assert_eq!(found.as_primitive::<Decimal64Type>().values().as_ref(), [150, 0]);
        let found = both(wide(i128::MAX / 2));
        assert_eq!(found.data_type(), &DataType::Decimal128(38, 2));
    }

    #[test]
    fn other_types_are_interleaved() {
        let rows: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("c")]));
        let parts = vec![(mask(&[true, true, false]), Source::Rows(rows))];
        let found = choose(parts, 3, &DataType::Utf8).unwrap();
        let expected = StringArray::from(vec![Some("a"), None, None]);
        assert_eq!(found.as_ref(), &expected as &dyn Array);
    }
}
