//! The forms in which a column of a chunk is kept in memory and handed out.
//!
//! Decoding stops where the next step would only make the column larger. What it leaves depends on
//! the field's type and on how the chunk was written, so one column comes in one form in one chunk
//! and in another in the next:
//!
//! | field | encoded form | when |
//! |---|---|---|
//! | `Utf8View`, `BinaryView` | `Dictionary(UInt8, UInt16 or UInt32, the field's type)` | the chunk is stored as a dictionary or as one value |
//! | whole numbers with a sign, dates, times, timestamps | `Int8`, `Int16` or `Int32`, the narrowest | every value fits, and the field's type is wider |
//! | `Decimal128(p, s)` | the same, of the values without their point, or `Decimal64(18, s)` | every value fits, and `s` is at most 18 |
//! | any | the field's type | otherwise |
//!
//! Of a dictionary: NULLs are NULL keys and never values; every key, also a NULL one, is below the
//! number of values; a value need not occur, but comes once as far as the writer saw to it. Of a
//! `Decimal64`: its precision says nothing, neither of the field's nor of the values: they may
//! have 19 digits. All have a null buffer only if there is a NULL.
//!
//! [`expand`] makes the plain form of any of them.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, BinaryViewArray, BooleanArray, Decimal128Array,
    DictionaryArray, PrimitiveArray, StringViewArray, UInt8Array, make_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::compute::{filter, take};
use arrow::datatypes::{
    ArrowDictionaryKeyType, ArrowNativeType, DECIMAL64_MAX_PRECISION, DataType, Decimal64Type,
    Int8Type, Int16Type, Int32Type, UInt8Type, UInt16Type, UInt32Type,
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
        (is, wanted) if is_form_of(is, wanted) => Ok(widened(array, wanted)),
        (is, wanted) => Err(Error::internal(format!("{is} is no form of a column of {wanted}"))),
    }
}

/// With copies of those of its buffers that lie in `memory`.
pub(crate) fn without_memory_of(memory: &[u8], array: ArrayRef) -> ArrayRef {
    fn in_memory(memory: &[u8], buffer: &Buffer) -> bool {
        !buffer.is_empty() && memory.as_ptr_range().contains(&buffer.as_ptr())
    }
    fn borrows(memory: &[u8], data: &ArrayData) -> bool {
        data.buffers().iter().any(|buffer| in_memory(memory, buffer))
            || data.nulls().is_some_and(|nulls| in_memory(memory, nulls.buffer()))
            || data.child_data().iter().any(|child| borrows(memory, child))
    }
    fn copied(memory: &[u8], data: ArrayData) -> ArrayData {
        let own = |buffer: &Buffer| match in_memory(memory, buffer) {
            true => Buffer::from_slice_ref(buffer.as_slice()),
            false => buffer.clone(),
        };
        let nulls = data.nulls().map(|nulls| {
            let bits = BooleanBuffer::new(own(nulls.buffer()), nulls.offset(), nulls.len());
            NullBuffer::new(bits)
        });
        let buffers = data.buffers().iter().map(own).collect();
        let children =
            data.child_data().iter().map(|child| copied(memory, child.clone())).collect();
        let builder = data.into_builder().nulls(nulls).buffers(buffers).child_data(children);
        // SAFETY: it has the same contents as before.
        unsafe { builder.build_unchecked() }
    }
    let data = array.to_data();
    if borrows(memory, &data) { make_array(copied(memory, data)) } else { array }
}

/// Whether a column of `field_type` may come as `form`.
pub(crate) fn is_form_of(form: &DataType, field_type: &DataType) -> bool {
    use DataType::{
        BinaryView, Decimal64, Decimal128, Dictionary, Int8, Int16, Int32, UInt8, UInt16, UInt32,
        Utf8View,
    };
    match (form, field_type) {
        (is, wanted) if is == wanted => true,
        (Int8 | Int16 | Int32, Decimal128(_, scale)) => narrow_decimal(*scale).is_some(),
        (Int8 | Int16 | Int32, wanted) => {
            is_whole(wanted) && form.primitive_width() < wanted.primitive_width()
        }
        (Dictionary(key, value), Utf8View | BinaryView) => {
            matches!(**key, UInt8 | UInt16 | UInt32) && **value == *field_type
        }
        (Decimal64(precision, is), Decimal128(_, wanted)) => {
            *precision == DECIMAL64_MAX_PRECISION && is == wanted
        }
        _ => false,
    }
}

/// Whether values are whole numbers with a sign, or stored as such, of 64 bits at most.
fn is_whole(data_type: &DataType) -> bool {
    use DataType::{
        Date32, Date64, Decimal64, Int8, Int16, Int32, Int64, Time32, Time64, Timestamp,
    };
    matches!(
        data_type,
        Int8 | Int16
            | Int32
            | Int64
            | Date32
            | Date64
            | Time32(_)
            | Time64(_)
            | Timestamp(..)
            | Decimal64(..)
    )
}

/// What whole numbers are narrowed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Narrow {
    Int8,
    Int16,
    Int32,
}

impl Narrow {
    /// That of numbers from `least` to `greatest`; `None`: they need 64 bits.
    pub fn of(least: i64, greatest: i64) -> Option<Self> {
        // Of a negative number the bits below its sign, turned: as many as it needs.
        Self::of_bits((least ^ (least >> 63)) | (greatest ^ (greatest >> 63)))
    }

    fn of_bits(bits: i64) -> Option<Self> {
        match bits {
            _ if bits <= i64::from(i8::MAX) => Some(Narrow::Int8),
            _ if bits <= i64::from(i16::MAX) => Some(Narrow::Int16),
            _ if bits <= i64::from(i32::MAX) => Some(Narrow::Int32),
            _ => None,
        }
    }

    pub fn bytes(self) -> usize {
        match self {
            Narrow::Int8 => 1,
            Narrow::Int16 => 2,
            Narrow::Int32 => 4,
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Narrow::Int8 => DataType::Int8,
            Narrow::Int16 => DataType::Int16,
            Narrow::Int32 => DataType::Int32,
        }
    }
}

/// A column without NULLs of so many narrow `values`.
pub(crate) fn narrow_column(narrow: Narrow, rows: usize, values: Buffer) -> ArrayRef {
    primitive(narrow.data_type(), rows, values, None)
}

/// Whole numbers in the fewest bits that hold them all; anything else as it is.
pub(crate) fn narrowed(array: ArrayRef) -> ArrayRef {
    /// Values that are looked at before it is asked whether there is anything to gain.
    const PART: usize = 4096;
    fn narrow<T: Copy + Into<i64>>(values: &[T]) -> Option<(Narrow, Buffer)> {
        // Of a negative number the bits below its sign, turned: as many as it needs.
        let mut bits = 0;
        for part in values.chunks(PART) {
            bits |= part.iter().map(|&v| v.into()).fold(0, |bits, v: i64| bits | (v ^ (v >> 63)));
            // The next narrower type has half as many.
            if bits >> (4 * size_of::<T>() - 1) > 0 {
                return None;
            }
        }
        macro_rules! of {
            ($native:ty) => {
                values.iter().map(|&v| v.into() as $native).collect::<Vec<_>>().into()
            };
        }
        let narrow = Narrow::of_bits(bits)?;
        let values = match narrow {
            Narrow::Int8 => of!(i8),
            Narrow::Int16 => of!(i16),
            Narrow::Int32 => of!(i32),
        };
        Some((narrow, values))
    }
    if !is_whole(array.data_type()) {
        return array;
    }
    let data = array.to_data();
    let narrow = match array.data_type().primitive_width() {
        Some(2) => narrow(data.buffer::<i16>(0)),
        Some(4) => narrow(data.buffer::<i32>(0)),
        Some(8) => narrow(data.buffer::<i64>(0)),
        _ => None,
    };
    match narrow {
        Some((narrow, values)) => primitive(narrow.data_type(), array.len(), values, array.nulls()),
        None => array,
    }
}

/// Narrow whole numbers as values of a field's type.
fn widened(array: &ArrayRef, field_type: &DataType) -> ArrayRef {
    macro_rules! as_native {
        ($type:ty, $native:ty) => {{
            let values = array.as_primitive::<$type>().values();
            values.iter().map(|&v| v as $native).collect::<Vec<_>>().into()
        }};
    }
    macro_rules! to {
        ($native:ty) => {
            match array.data_type() {
                DataType::Int8 => as_native!(Int8Type, $native),
                DataType::Int16 => as_native!(Int16Type, $native),
                _ => as_native!(Int32Type, $native),
            }
        };
    }
    let values: Buffer = match field_type.primitive_width() {
        Some(2) => to!(i16),
        Some(4) => to!(i32),
        Some(8) => to!(i64),
        _ => to!(i128),
    };
    primitive(field_type.clone(), array.len(), values, array.nulls())
}

/// An array of values of one width.
fn primitive(
    data_type: DataType,
    rows: usize,
    values: Buffer,
    nulls: Option<&NullBuffer>,
) -> ArrayRef {
    let data = ArrayData::builder(data_type).len(rows).add_buffer(values).nulls(nulls.cloned());
    // SAFETY: as many values of the type's width as there are rows, and any bits are a value; the
    // NULLs are those of an array of as many rows.
    make_array(unsafe { data.build_unchecked() })
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
