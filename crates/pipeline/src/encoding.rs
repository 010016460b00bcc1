//! The forms in which a column travels through a pipeline.
//!
//! A register has one *logical* type, that of the plan. Its arrays may come in another form, which
//! is smaller or faster to work on, and differs from batch to batch:
//!
//! | logical type | may also come as | |
//! |---|---|---|
//! | text and binary | `Dictionary(UInt8 \| UInt16 \| UInt32, logical type)` | the values have no NULL, and may repeat |
//! | `Decimal128(p, s)` | `Decimal64(18, s)` | whatever `p` is: the values fit 64 bits |
//!
//! Registers that a scan fills may also be *compact*: whole numbers, dates, times, timestamps and
//! decimals, these without their point, as `Int8`, `Int16` or `Int32`. Who reads a register gets
//! one of the forms above, unless it says that it takes any words: see `Batch::compact`.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, Decimal128Array, DictionaryArray, GenericByteViewArray,
    MAX_INLINE_VIEW_LEN, UInt32Array, make_array,
};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::compute::take;
use arrow::datatypes::{
    ArrowNativeType, BinaryViewType, ByteViewType, DataType, Date32Type, Date64Type, Decimal32Type,
    Decimal64Type, Int8Type, Int16Type, Int32Type, Int64Type, StringViewType,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::error::ArrowError;
use thalweg_base::{Error, Result};
pub use thalweg_ir::aggregate::{is_bytes, is_word};

/// The digits of an encoded decimal: what 64 bits hold.
pub const NARROW_DIGITS: u8 = 18;

/// An error of an Arrow kernel that is a mistake of ours.
pub fn internal(e: ArrowError) -> Error {
    Error::internal(format!("a pipeline failed: {e}"))
}

/// The plain form of an array of that logical type; itself if it is plain.
pub fn expand(array: &ArrayRef, logical: &DataType) -> Result<ArrayRef> {
    match (array.data_type(), logical) {
        (found, _) if found == logical => Ok(Arc::clone(array)),
        (DataType::Dictionary(_, value), _) if value.as_ref() == logical => {
            let dictionary = array.as_any_dictionary();
            take(dictionary.values(), dictionary.keys(), None).map_err(internal)
        }
        (DataType::Decimal64(..), DataType::Decimal128(precision, scale)) => {
            let narrow = array.as_primitive::<Decimal64Type>();
            let values = narrow.values().iter().map(|&v| i128::from(v)).collect::<Vec<_>>();
            let wide = Decimal128Array::new(values.into(), narrow.nulls().cloned());
            let wide = wide.with_precision_and_scale(*precision, *scale).map_err(internal)?;
            Ok(Arc::new(wide))
        }
        (found, _) if is_compact(found) => expand(&uncompacted(array, logical)?, logical),
        (found, _) => Err(Error::internal(format!("a column of {logical} came as {found}"))),
    }
}

/// Whether it may be the type of a compact register.
pub fn is_compact(found: &DataType) -> bool {
    matches!(found, DataType::Int8 | DataType::Int16 | DataType::Int32)
}

/// The form of a register's values that is not compact: of decimals `Decimal64`.
pub fn uncompacted(array: &ArrayRef, logical: &DataType) -> Result<ArrayRef> {
    if !is_compact(array.data_type()) || array.data_type() == logical {
        return Ok(Arc::clone(array));
    }
    let form = match logical {
        DataType::Decimal128(_, scale) => DataType::Decimal64(NARROW_DIGITS, *scale),
        other => other.clone(),
    };
    let other = || Error::internal(format!("a column of {logical} came as {}", array.data_type()));
    if !is_word(&form) {
        return Err(other());
    }
    let words = words(array).ok_or_else(other)?;
    let values = match form.primitive_width() {
        Some(8) => Buffer::from_vec(words.into_owned()),
        Some(4) => Buffer::from_vec(words.iter().map(|&w| w as i32).collect()),
        Some(2) => Buffer::from_vec(words.iter().map(|&w| w as i16).collect()),
        _ => return Err(other()),
    };
    let data = ArrayData::builder(form).len(array.len()).add_buffer(values);
    // SAFETY: as many values of the type's width as there are rows, and any bits are a value; the
    // NULLs are those of an array of as many rows.
    Ok(make_array(unsafe { data.nulls(array.nulls().cloned()).build_unchecked() }))
}

/// Bytes of the values that are named, or of all, as they are in memory: what has to be read of an
/// array by who reads them once. Of a dictionary these are the codes.
pub fn value_bytes(array: &dyn Array, picked: Option<&UInt32Array>) -> usize {
    let rows = picked.map_or(array.len(), Array::len);
    match array.data_type() {
        DataType::Dictionary(code, _) => rows * code.primitive_width().unwrap_or(0),
        DataType::Utf8View => view_bytes(array.as_string_view().views(), picked),
        DataType::BinaryView => view_bytes(array.as_binary_view().views(), picked),
        other => match other.primitive_width() {
            Some(width) => rows * width,
            None => {
                let all = array.to_data().get_slice_memory_size().unwrap_or(0);
                (all * rows).checked_div(array.len()).unwrap_or(0)
            }
        },
    }
}

/// Views, and the text that does not fit into them.
fn view_bytes(views: &[u128], picked: Option<&UInt32Array>) -> usize {
    let outside = |view: &u128| {
        let length = *view as u32;
        if length > MAX_INLINE_VIEW_LEN { length as usize } else { 0 }
    };
    match picked {
        None => size_of_val(views) + views.iter().map(outside).sum::<usize>(),
        Some(picked) => {
            let views = picked.iter().flatten().map(|row| &views[row as usize]);
            views.map(|view| size_of::<u128>() + outside(view)).sum()
        }
    }
}

/// Buffers of texts that are kept as they are, however little of them is used.
const FEW_BYTES: usize = 16 * 1024;

/// The same values; texts lie in buffers of which they are at least half.
pub fn compacted(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Utf8View => compacted_views::<StringViewType>(array),
        DataType::BinaryView => compacted_views::<BinaryViewType>(array),
        _ => Arc::clone(array),
    }
}

fn compacted_views<T: ByteViewType>(array: &ArrayRef) -> ArrayRef {
    let views: &GenericByteViewArray<T> = array.as_byte_view();
    let held: usize = views.data_buffers().iter().map(|buffer| buffer.capacity()).sum();
    match held > FEW_BYTES && held / 2 > views.total_buffer_bytes_used() {
        true => Arc::new(views.gc()),
        false => Arc::clone(array),
    }
}

/// The values of integers and what is stored as such, widened to 64 bits: equal words mean equal
/// values and, but for `UInt64` beyond `i64`, words are ordered as values are. What stands in the
/// place of a NULL is anything. `None`: the type is no such.
pub fn words(array: &dyn Array) -> Option<Cow<'_, [i64]>> {
    macro_rules! widened {
        ($type:ty) => {
            Cow::Owned(
                array.as_primitive::<$type>().values().iter().map(|&v| i64::from(v)).collect(),
            )
        };
    }
    macro_rules! as_they_are {
        ($type:ty) => {
            Cow::Borrowed(array.as_primitive::<$type>().values().as_ref())
        };
    }
    use DataType::*;
    Some(match array.data_type() {
        Boolean => Cow::Owned(array.as_boolean().values().iter().map(i64::from).collect()),
        Int8 => widened!(Int8Type),
        Int16 => widened!(Int16Type),
        Int32 => widened!(Int32Type),
        Int64 => as_they_are!(Int64Type),
        UInt8 => widened!(UInt8Type),
        UInt16 => widened!(UInt16Type),
        UInt32 => widened!(UInt32Type),
        UInt64 => {
            let values = array.as_primitive::<UInt64Type>().values();
            Cow::Owned(values.iter().map(|&v| v.cast_signed()).collect())
        }
        Date32 => widened!(Date32Type),
        Date64 => as_they_are!(Date64Type),
        Time32(TimeUnit::Second) => widened!(Time32SecondType),
        Time32(_) => widened!(Time32MillisecondType),
        Time64(TimeUnit::Microsecond) => as_they_are!(Time64MicrosecondType),
        Time64(_) => as_they_are!(Time64NanosecondType),
        Timestamp(TimeUnit::Second, _) => as_they_are!(TimestampSecondType),
        Timestamp(TimeUnit::Millisecond, _) => as_they_are!(TimestampMillisecondType),
        Timestamp(TimeUnit::Microsecond, _) => as_they_are!(TimestampMicrosecondType),
        Timestamp(TimeUnit::Nanosecond, _) => as_they_are!(TimestampNanosecondType),
        Decimal32(..) => widened!(Decimal32Type),
        Decimal64(..) => as_they_are!(Decimal64Type),
        _ => return None,
    })
}

/// The least and the greatest; `None`: there are none.
pub fn bounds<T: Copy + Ord>(values: impl IntoIterator<Item = T>) -> Option<(T, T)> {
    let mut values = values.into_iter();
    let first = values.next()?;
    Some(values.fold((first, first), |(low, high), v| (low.min(v), high.max(v))))
}

/// The bits of a float of 64, or of fewer with the sign of its own, as a number in the total order of IEEE 754,
/// and back.
pub fn ordered_float(bits: i64) -> i64 {
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}

/// A dictionary of values without NULLs. All codes are below their number, also those that stand in the
/// place of a NULL.
pub fn coded(codes: Vec<u32>, nulls: Option<NullBuffer>, values: ArrayRef) -> Result<ArrayRef> {
    let codes = UInt32Array::new(codes.into(), nulls);
    Ok(Arc::new(DictionaryArray::try_new(codes, values).map_err(internal)?))
}

/// The keys of a dictionary as indices; what stands in the place of a NULL is anything below the
/// number of values, or 0.
pub fn codes(array: &dyn Array) -> Option<Cow<'_, [u32]>> {
    fn widened<T: ArrowNativeType>(keys: &[T]) -> Cow<'static, [u32]> {
        Cow::Owned(keys.iter().map(|k| k.as_usize() as u32).collect())
    }
    let DataType::Dictionary(key, _) = array.data_type() else { return None };
    Some(match key.as_ref() {
        DataType::UInt8 => widened(array.as_dictionary::<UInt8Type>().keys().values()),
        DataType::UInt16 => widened(array.as_dictionary::<UInt16Type>().keys().values()),
        DataType::UInt32 => {
            Cow::Borrowed(array.as_dictionary::<UInt32Type>().keys().values().as_ref())
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Decimal64Array, Int16Array, NullArray, StringArray, StringViewArray, UInt8Array,
    };

    use super::*;

    #[test]
    fn encoded_forms_expand_to_what_they_stand_for() {
        let narrow = Decimal64Array::from(vec![Some(-5), None, Some(i64::MAX)]);
        let narrow: ArrayRef = Arc::new(narrow.with_precision_and_scale(18, 2).unwrap());
        let logical = DataType::Decimal128(15, 2);
        let wide = expand(&narrow, &logical).unwrap();
        assert_eq!(wide.data_type(), &logical);
        assert_eq!(wide.as_primitive::<arrow::datatypes::Decimal128Type>().value(0), -5);
        assert!(wide.is_null(1));

        let keys = UInt8Array::from(vec![Some(1), None, Some(0), Some(1)]);
        let values: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "b"]));
        let dictionary: ArrayRef = Arc::new(DictionaryArray::new(keys, values));
        let plain = expand(&dictionary, &DataType::Utf8View).unwrap();
        let expected = StringViewArray::from(vec![Some("b"), None, Some("a"), Some("b")]);
        assert_eq!(plain.as_ref(), &expected as &dyn Array);
        expand(&dictionary, &DataType::Int64).unwrap_err();
    }

    #[test]
    fn bytes_are_those_of_the_values_that_are_read() {
        let picked = UInt32Array::from(vec![Some(2), None, Some(0)]);
        let check = |array: &dyn Array, all: usize, some: usize| {
            assert_eq!(value_bytes(array, None), all, "{array:?}");
            assert_eq!(value_bytes(array, Some(&picked)), some, "{array:?}");
        };
        check(&Int16Array::from(vec![1, 2, 3, 4]), 8, 6);
        check(&Int16Array::from(vec![0, 0, 1, 2, 3, 4]).slice(2, 4), 8, 6);
        let codes = UInt8Array::from(vec![1, 0, 1, 0]);
        let values: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "b"]));
        check(&DictionaryArray::new(codes, values), 4, 3);
        let long = "longer than a view";
        check(&StringViewArray::from(vec!["a", "b", long, long]), 4 * 16 + 2 * 18, 2 * 16 + 18);
        // Four offsets of the rows, one of the end, and six bytes.
        check(&StringArray::from(vec!["a", "bc", "", "def"]), 4 * 4 + 4 + 6, 26 * 3 / 4);
        check(&NullArray::new(4), 0, 0);
        assert_eq!(value_bytes(&StringArray::from(Vec::<&str>::new()), None), 0);
    }

    #[test]
    fn words_keep_the_order_of_values() {
        let array = Int16Array::from(vec![-3, 0, 7]);
        assert_eq!(words(&array).unwrap().as_ref(), [-3, 0, 7]);
        assert!(words(&StringViewArray::from(vec!["a"])).is_none());
    }
}
