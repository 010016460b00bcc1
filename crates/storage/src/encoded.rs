//! The forms in which a column of a chunk is kept in memory and handed out.
//!
//! Decoding stops where the next step would only make the column larger. What it leaves depends on
//! the field's type and on how the chunk was written, so one column comes in one form in one chunk
//! and in another in the next:
//!
//! | field | encoded form | when |
//! |---|---|---|
//! | `Utf8View`, `BinaryView` | `Dictionary(UInt8, UInt16 or UInt32, the field's type)` | the chunk is stored as a dictionary or as one value |
//! | `Decimal128(p, s)` | `Decimal64(18, s)` | every value fits 64 bits, and `s` is at most 18 |
//! | any | the field's type | otherwise |
//!
//! Of a dictionary: NULLs are NULL keys and never values; every key, also a NULL one, is below the
//! number of values; a value need not occur, but comes once as far as the writer saw to it. Of a
//! `Decimal64`: its precision says nothing, neither of the field's nor of the values: they may
//! have 19 digits. Both have a null buffer only if there is a NULL.
//!
//! [`expand`] makes the plain form of any of them.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BooleanArray, Decimal128Array, DictionaryArray,
    PrimitiveArray, StringViewArray, UInt8Array, make_array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{filter, take};
use arrow::datatypes::{
    ArrowDictionaryKeyType, ArrowNativeType, DECIMAL64_MAX_PRECISION, DataType, Decimal64Type,
    UInt8Type, UInt16Type, UInt32Type,
};
use thalweg_base::{Error, Result};

/// The plain form of a column of `field_type`: exactly that type. Plain already: a clone of the
/// reference. Of a dictionary of strings no string is copied.
pub fn expand(array: &ArrayRef, field_type: &DataType) -> Result<ArrayRef> {
    match (array.data_type(), field_type) {
        (is, wanted) if is == wanted => Ok(Arc::clone(array)),
        (DataType::Dictionary(_, values), wanted) if **values == *wanted => {
            let dictionary = array.as_any_dictionary();
            take(dictionary.values(), dictionary.keys(), None)
                .map_err(|e| Error::internal("cannot expand a dictionary").source(e))
        }
        (DataType::Decimal64(_, is), DataType::Decimal128(_, wanted)) if is == wanted => {
            let narrow = array.as_primitive::<Decimal64Type>();
            let wide = narrow.values().iter().map(|&v| i128::from(v)).collect::<Vec<_>>();
            let wide = Decimal128Array::new(wide.into(), narrow.nulls().cloned());
            Ok(Arc::new(wide.with_data_type(field_type.clone())))
        }
        (is, wanted) => Err(Error::internal(format!("{is} is no form of a column of {wanted}"))),
    }
}

/// Whether a column of `field_type` may come as `form`.
pub(crate) fn is_form_of(form: &DataType, field_type: &DataType) -> bool {
    use DataType::{
        BinaryView, Decimal64, Decimal128, Dictionary, UInt8, UInt16, UInt32, Utf8View,
    };
    match (form, field_type) {
        (Dictionary(key, value), Utf8View | BinaryView) => {
            matches!(**key, UInt8 | UInt16 | UInt32) && **value == *field_type
        }
        (Decimal64(precision, is), Decimal128(_, wanted)) => {
            *precision == DECIMAL64_MAX_PRECISION && is == wanted
        }
        (is, wanted) => is == wanted,
    }
}

/// The type of narrow decimals of `scale`, if there is one.
pub(crate) fn narrow_decimal(scale: i8) -> Option<DataType> {
    let precision = DECIMAL64_MAX_PRECISION;
    (scale <= precision as i8).then_some(DataType::Decimal64(precision, scale))
}

/// A dictionary as the module says, of keys of which some may be NULL and values of which some may
/// be; those rows are NULL which either say are, or `nulls`.
pub(crate) fn dictionary(
    keys: &ArrayRef,
    values: ArrayRef,
    nulls: Option<&NullBuffer>,
) -> Result<ArrayRef, String> {
    match keys.data_type() {
        DataType::UInt8 => normal::<UInt8Type>(keys.as_primitive(), values, nulls),
        DataType::UInt16 => normal::<UInt16Type>(keys.as_primitive(), values, nulls),
        DataType::UInt32 => normal::<UInt32Type>(keys.as_primitive(), values, nulls),
        other => Err(format!("the keys of a dictionary are {other}")),
    }
}

/// `rows` times the only value of `value`.
pub(crate) fn repeated(value: ArrayRef, rows: usize) -> Result<ArrayRef, String> {
    let keys: ArrayRef = Arc::new(UInt8Array::from_value(0, rows));
    dictionary(&keys, value, None)
}

fn normal<K: ArrowDictionaryKeyType>(
    keys: &PrimitiveArray<K>,
    mut values: ArrayRef,
    nulls: Option<&NullBuffer>,
) -> Result<ArrayRef, String> {
    let nulls = NullBuffer::union(keys.nulls(), nulls).filter(|n| n.null_count() > 0);
    let keys = match &nulls {
        None => keys.values().clone(),
        Some(nulls) => {
            let zeroed =
                |(key, valid): (&K::Native, bool)| if valid { *key } else { K::Native::default() };
            keys.values().iter().zip(nulls).map(zeroed).collect()
        }
    };
    if values.is_empty() && nulls.as_ref().is_some_and(|n| n.null_count() == keys.len()) {
        values = match values.data_type() {
            DataType::Utf8View => Arc::new(StringViewArray::from(vec![""])),
            DataType::BinaryView => Arc::new(BinaryViewArray::from(vec![b"".as_slice()])),
            other => return Err(format!("a dictionary of {other}")),
        };
    }
    let values = without_empty_nulls(values);
    let keys = PrimitiveArray::<K>::new(keys, nulls);
    // Fails for a key without a value.
    let dictionary = DictionaryArray::try_new(keys, values).map_err(|e| e.to_string())?;
    let Some(valid) = dictionary.values().nulls() else { return Ok(Arc::new(dictionary)) };
    // The values that are none go, and the others move up.
    let mut left = 0..;
    let moved: Vec<Option<K::Native>> =
        valid.iter().map(|valid| valid.then(|| left.next().map(K::Native::usize_as))?).collect();
    let keys = dictionary.keys().iter().map(|key| moved[key?.as_usize()]);
    let values = filter(dictionary.values(), &BooleanArray::new(valid.inner().clone(), None));
    normal::<K>(&keys.collect(), values.map_err(|e| e.to_string())?, None)
}

/// An all-valid null buffer would send every kernel down its slow path.
pub(crate) fn without_empty_nulls(array: ArrayRef) -> ArrayRef {
    if array.nulls().is_none_or(|n| n.null_count() > 0) || array.data_type().is_nested() {
        return array;
    }
    array.to_data().into_builder().nulls(None).build().map_or(array, make_array)
}

#[cfg(test)]
mod tests;
