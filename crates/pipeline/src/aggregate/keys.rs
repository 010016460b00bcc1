//! Keys as words of 64 bits, and back.
//!
//! | class of key | word |
//! |---|---|
//! | integers and what is stored as such | the value |
//! | floats | the bits, of 0.0 also for -0.0; NaNs with different bits are different |
//! | decimals | the value if 64 bits hold it; else, *interned*, the code of its 16 bytes |
//! | text and binary | the code of its bytes |
//! | anything else | the code of its row form (`arrow::row`) |
//!
//! Codes are those of a [`Strings`] of that key. A NULL is a word of 0 and a flag.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, BinaryBuilder, BooleanArray, Decimal128Array,
    DictionaryArray, LargeBinaryBuilder, LargeStringBuilder, StringBuilder, UInt32Array,
    make_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowNativeType, BinaryViewType, ByteViewType, DataType, Decimal128Type, Float16Type,
    Float32Type, Float64Type, StringViewType, UInt8Type, UInt16Type, UInt32Type,
};
use arrow::row::{RowConverter, SortField};
use thalweg_base::{Error, Result};

use super::strings::Strings;
use crate::encoding::{NARROW_DIGITS, expand, internal, is_bytes, is_word, words};

/// Keys that have flags: one for NULL and one for interned of each fit a word. With more of them
/// all keys become one.
const KEYS_MAX: usize = 32;

/// Groups that have the same string, on average, for a dictionary to be worth its while.
const GROUPS_PER_STRING: usize = 4;

/// Dictionaries whose mapping is kept.
const DICTIONARIES_MAX: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Word,
    Float,
    Decimal,
    Bytes,
    Rows,
}

/// A key: one column, or those whose rows make one.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub class: Class,
    /// (index, type) of its columns: one, but for `Class::Rows`.
    pub columns: Vec<(usize, DataType)>,
}

impl Key {
    pub fn all(types: &[DataType]) -> Vec<Key> {
        let columns = types.iter().cloned().enumerate();
        if types.len() > KEYS_MAX {
            return vec![Key { class: Class::Rows, columns: columns.collect() }];
        }
        let key = |(i, data_type): (usize, DataType)| {
            let class = match &data_type {
                DataType::Float16 | DataType::Float32 | DataType::Float64 => Class::Float,
                DataType::Decimal128(..) => Class::Decimal,
                t if is_bytes(t) => Class::Bytes,
                t if is_word(t) => Class::Word,
                _ => Class::Rows,
            };
            Key { class, columns: vec![(i, data_type)] }
        };
        columns.map(key).collect()
    }

    /// Whether words are codes if no flag says so.
    pub fn is_coded(&self) -> bool {
        matches!(self.class, Class::Bytes | Class::Rows)
    }

    /// Whether the word of a row with these flags is a code; it is the key of that number.
    pub fn is_code(&self, number: usize, flags: u64) -> bool {
        flags & null_flag(number) == 0 && (self.is_coded() || flags & interned_flag(number) != 0)
    }

    fn converter(&self) -> Result<RowConverter> {
        let fields = self.columns.iter().map(|(_, t)| SortField::new(t.clone())).collect();
        RowConverter::new(fields)
            .map_err(|e| Error::unsupported(format!("cannot group by a column of this type: {e}")))
    }
}

pub(super) enum Values<'a> {
    Words(Cow<'a, [i64]>),
    Codes(Vec<u32>),
}

/// A batch of one key. What stands in the place of a NULL is anything.
pub(super) struct Encoded<'a> {
    pub values: Values<'a>,
    pub nulls: Option<NullBuffer>,
    /// Decimals that are codes; their words are 0 elsewhere… and nothing if there are none.
    pub interned: Option<BooleanBuffer>,
}

impl Encoded<'_> {
    /// Flags of that row, as of the key number 0.
    #[inline(always)]
    pub fn flags(&self, row: usize) -> u64 {
        let null = self.nulls.as_ref().is_some_and(|n| n.is_null(row));
        let interned = self.interned.as_ref().is_some_and(|i| i.value(row));
        u64::from(null) | u64::from(interned) << KEYS_MAX
    }

    pub fn has_flags(&self) -> bool {
        self.nulls.is_some() || self.interned.is_some()
    }
}

pub(super) fn null_flag(key: usize) -> u64 {
    1 << key
}

pub(super) fn interned_flag(key: usize) -> u64 {
    1 << (KEYS_MAX + key)
}

/// Makes words of one key's arrays.
pub(super) struct Encoder {
    key: Key,
    pub strings: Strings,
    converter: Option<RowConverter>,
    /// Dictionaries met, with the codes of their values, or `UNMAPPED`. Whoever holds the values
    /// can tell them by their address.
    dictionaries: Vec<(ArrayRef, Vec<u32>)>,
    evict_next: usize,
}

const UNMAPPED: u32 = u32::MAX;

impl Encoder {
    pub fn new(key: Key) -> Result<Self> {
        let converter = match key.class {
            Class::Rows => Some(key.converter()?),
            _ => None,
        };
        Ok(Self {
            key,
            strings: Strings::default(),
            converter,
            dictionaries: vec![],
            evict_next: 0,
        })
    }

    pub fn key(&self) -> &Key {
        &self.key
    }

    pub fn bytes(&self) -> usize {
        let mapped: usize = self.dictionaries.iter().map(|(_, m)| m.capacity() * 4).sum();
        self.strings.bytes() + mapped + self.converter.as_ref().map_or(0, RowConverter::size)
    }

    /// The strings so far; codes start again at 0.
    pub fn take_strings(&mut self) -> Strings {
        self.dictionaries.clear();
        std::mem::take(&mut self.strings)
    }

    /// `append`: nobody will look for these rows, so that strings need not be looked up either.
    pub fn encode<'a>(
        &mut self,
        columns: &'a [ArrayRef],
        rows: usize,
        append: bool,
    ) -> Result<Encoded<'a>> {
        let (at, logical) = self.key.columns[0].clone();
        let array = &columns[at];
        if self.key.class == Class::Rows {
            let codes = self.row_codes(columns, rows, append)?;
            return Ok(Encoded { values: Values::Codes(codes), nulls: None, interned: None });
        }
        if array.len() != rows {
            return Err(Error::internal("a key has another number of rows than the batch"));
        }
        let nulls = array.nulls().filter(|n| n.null_count() > 0).cloned();
        let plain = |values| Encoded { values, nulls: nulls.clone(), interned: None };
        let other = || Error::internal(format!("a key of {logical} came as {}", array.data_type()));
        Ok(match self.key.class {
            Class::Word => plain(Values::Words(words(array).ok_or_else(other)?)),
            Class::Float => plain(Values::Words(float_words(array).ok_or_else(other)?)),
            Class::Decimal => match array.data_type() {
                DataType::Decimal128(..) => {
                    let values = array.as_primitive::<Decimal128Type>().values();
                    let (words, interned) = self.decimal_words(values, nulls.as_ref());
                    Encoded { values: Values::Words(Cow::Owned(words)), nulls, interned }
                }
                _ => plain(Values::Words(words(array).ok_or_else(other)?)),
            },
            Class::Bytes => {
                let codes = self.byte_codes(array, nulls.as_ref(), append).ok_or_else(other)?;
                plain(Values::Codes(codes))
            }
            Class::Rows => unreachable!("returned above"),
        })
    }

    fn decimal_words(
        &mut self,
        values: &[i128],
        nulls: Option<&NullBuffer>,
    ) -> (Vec<i64>, Option<BooleanBuffer>) {
        let mut words: Vec<i64> = values.iter().map(|&v| v as i64).collect();
        let wide = |i: usize| i128::from(words[i]) != values[i];
        let is_valid = |i: usize| nulls.is_none_or(|n| n.is_valid(i));
        if !(0..values.len()).any(wide) {
            return (words, None);
        }
        let interned = BooleanBuffer::collect_bool(values.len(), |i| wide(i) && is_valid(i));
        for i in interned.set_indices() {
            words[i] = i64::from(self.strings.code(&values[i].to_le_bytes()));
        }
        (words, (interned.count_set_bits() > 0).then_some(interned))
    }

    fn row_codes(&mut self, columns: &[ArrayRef], rows: usize, append: bool) -> Result<Vec<u32>> {
        let converter = self.converter.as_ref().expect("made with the encoder");
        let plain = self.key.columns.iter().map(|(i, t)| canonical(&expand(&columns[*i], t)?));
        let plain = plain.collect::<Result<Vec<_>>>()?;
        let rows_of = converter.convert_columns(&plain).map_err(internal)?;
        let strings = &mut self.strings;
        let code = |i| match append {
            true => strings.append(rows_of.row(i).data()),
            false => strings.code(rows_of.row(i).data()),
        };
        Ok((0..rows).map(code).collect())
    }

    fn byte_codes(
        &mut self,
        array: &ArrayRef,
        nulls: Option<&NullBuffer>,
        append: bool,
    ) -> Option<Vec<u32>> {
        use DataType::*;
        let strings = &mut self.strings;
        Some(match array.data_type() {
            Utf8 => strings.codes(array.as_string::<i32>(), nulls, append, |_| false),
            LargeUtf8 => strings.codes(array.as_string::<i64>(), nulls, append, |_| false),
            Utf8View => strings.codes_of_views(array.as_string_view(), nulls, append),
            Binary => strings.codes(array.as_binary::<i32>(), nulls, append, |_| false),
            LargeBinary => strings.codes(array.as_binary::<i64>(), nulls, append, |_| false),
            BinaryView => strings.codes_of_views(array.as_binary_view(), nulls, append),
            Dictionary(..) => return self.dictionary_codes(array),
            _ => return None,
        })
    }

    fn dictionary_codes(&mut self, array: &ArrayRef) -> Option<Vec<u32>> {
        let dictionary = array.as_any_dictionary_opt()?;
        let values = dictionary.values();
        if values.is_empty() {
            return Some(vec![0; array.len()]);
        }
        let known = self.dictionaries.iter().position(|(v, _)| same_values(v, values));
        let number = known.unwrap_or_else(|| {
            let entry = (Arc::clone(values), vec![UNMAPPED; values.len()]);
            if self.dictionaries.len() < DICTIONARIES_MAX {
                self.dictionaries.push(entry);
                return self.dictionaries.len() - 1;
            }
            self.evict_next = (self.evict_next + 1) % DICTIONARIES_MAX;
            self.dictionaries[self.evict_next] = entry;
            self.evict_next
        });
        let mapping = &mut self.dictionaries[number].1;
        let DataType::Dictionary(key, _) = array.data_type() else { return None };
        let strings = &mut self.strings;
        match key.as_ref() {
            DataType::UInt8 => map_codes(
                array.as_dictionary::<UInt8Type>().keys().values(),
                mapping,
                values,
                strings,
            ),
            DataType::UInt16 => map_codes(
                array.as_dictionary::<UInt16Type>().keys().values(),
                mapping,
                values,
                strings,
            ),
            DataType::UInt32 => map_codes(
                array.as_dictionary::<UInt32Type>().keys().values(),
                mapping,
                values,
                strings,
            ),
            _ => None,
        }
    }
}

/// The codes of a dictionary's keys. Only values that occur are mapped: filters may have left a few
/// of many.
fn map_codes<K: ArrowNativeType>(
    keys: &[K],
    mapping: &mut [u32],
    values: &ArrayRef,
    strings: &mut Strings,
) -> Option<Vec<u32>> {
    let mut codes: Vec<u32> = keys.iter().map(|k| mapping[k.as_usize()]).collect();
    if !codes.iter().fold(false, |any, &code| any | (code == UNMAPPED)) {
        return Some(codes);
    }
    macro_rules! map {
        ($values:expr) => {{
            let values = $values;
            for (key, code) in keys.iter().zip(&mut codes) {
                if *code == UNMAPPED {
                    let mapped = &mut mapping[key.as_usize()];
                    if *mapped == UNMAPPED {
                        *mapped = strings.code(values.value(key.as_usize()).as_ref());
                    }
                    *code = *mapped;
                }
            }
        }};
    }
    use DataType::*;
    match values.data_type() {
        Utf8 => map!(values.as_string::<i32>()),
        LargeUtf8 => map!(values.as_string::<i64>()),
        Utf8View => map!(values.as_string_view()),
        Binary => map!(values.as_binary::<i32>()),
        LargeBinary => map!(values.as_binary::<i64>()),
        BinaryView => map!(values.as_binary_view()),
        _ => return None,
    }
    Some(codes)
}

fn same_values(a: &ArrayRef, b: &ArrayRef) -> bool {
    Arc::ptr_eq(a, b) || a.len() == b.len() && a.to_data().ptr_eq(&b.to_data())
}

fn float_words(array: &dyn Array) -> Option<Cow<'_, [i64]>> {
    // A zero of either sign has no bits but the highest.
    let words = match array.data_type() {
        DataType::Float64 => array
            .as_primitive::<Float64Type>()
            .values()
            .iter()
            .map(|v| v.to_bits())
            .map(|b| if b << 1 == 0 { 0 } else { b.cast_signed() })
            .collect(),
        DataType::Float32 => array
            .as_primitive::<Float32Type>()
            .values()
            .iter()
            .map(|v| v.to_bits())
            .map(|b| if b << 1 == 0 { 0 } else { i64::from(b) })
            .collect(),
        DataType::Float16 => array
            .as_primitive::<Float16Type>()
            .values()
            .iter()
            .map(|v| v.to_bits())
            .map(|b| if b << 1 == 0 { 0 } else { i64::from(b) })
            .collect(),
        _ => return None,
    };
    Some(Cow::Owned(words))
}

/// Zeros of floats without their sign; of other types, also those that hold floats, as they are,
/// which is what DataFusion does.
fn canonical(array: &ArrayRef) -> Result<ArrayRef> {
    match float_words(array) {
        None => Ok(Arc::clone(array)),
        Some(words) => {
            from_words(array.data_type(), words.iter().map(|w| w.cast_unsigned()), array.nulls())
        }
    }
}

/// An array of a type whose values are no wider than a word, of their lowest bits. Of a vector's own
/// words, where these are as wide, it takes the memory.
pub(super) fn from_words(
    data_type: &DataType,
    words: impl ExactSizeIterator<Item = u64>,
    nulls: Option<&NullBuffer>,
) -> Result<ArrayRef> {
    let rows = words.len();
    if *data_type == DataType::Boolean {
        let bits = words.map(|w| w != 0).collect::<BooleanBuffer>();
        return Ok(Arc::new(BooleanArray::new(bits, nulls.cloned())));
    }
    let buffer = match data_type.primitive_width() {
        Some(1) => Buffer::from_vec(words.map(|w| w as u8).collect::<Vec<_>>()),
        Some(2) => Buffer::from_vec(words.map(|w| w as u16).collect::<Vec<_>>()),
        Some(4) => Buffer::from_vec(words.map(|w| w as u32).collect::<Vec<_>>()),
        Some(8) => Buffer::from_vec(words.collect::<Vec<_>>()),
        _ => return Err(Error::internal(format!("{data_type} is not made of words"))),
    };
    let data = ArrayData::builder(data_type.clone()).len(rows).add_buffer(buffer);
    Ok(make_array(data.nulls(nulls.cloned()).build().map_err(internal)?))
}

/// The words of one key of all groups; `flags` are of all keys, in all groups or not at all.
pub(super) struct Column<'a> {
    pub words: Vec<u64>,
    pub flags: &'a [u64],
    pub number: usize,
}

impl Column<'_> {
    fn flagged(&self, row: usize, flag: u64) -> bool {
        self.flags.get(row).is_some_and(|f| f & flag != 0)
    }

    fn nulls(&self) -> Option<NullBuffer> {
        if self.flags.is_empty() {
            return None;
        }
        let flag = null_flag(self.number);
        let valid = BooleanBuffer::collect_bool(self.words.len(), |i| !self.flagged(i, flag));
        Some(NullBuffer::new(valid)).filter(|n| n.null_count() > 0)
    }
}

/// The arrays of a key, for the columns that it has.
pub(super) fn decode(
    key: &Key,
    column: Column,
    strings: Strings,
) -> Result<Vec<(usize, ArrayRef)>> {
    let (at, data_type) = &key.columns[0];
    let nulls = column.nulls();
    let array = match key.class {
        Class::Word | Class::Float => {
            from_words(data_type, column.words.into_iter(), nulls.as_ref())?
        }
        Class::Decimal => decode_decimals(data_type, column, nulls, &strings)?,
        Class::Bytes
            if strings.len() > 0 && strings.len() * GROUPS_PER_STRING <= column.words.len() =>
        {
            dictionary(data_type, &column, nulls, strings)?
        }
        Class::Bytes => decode_bytes(data_type, &column, nulls, strings)?,
        Class::Rows => {
            let converter = key.converter()?;
            let words = column.words.into_iter();
            let bytes = words.map(|w| strings.with(w, <[u8]>::to_vec)).collect::<Vec<_>>();
            let parser = converter.parser();
            let rows = bytes.iter().map(|b| parser.parse(b));
            let arrays = converter.convert_rows(rows).map_err(internal)?;
            let typed = arrays.into_iter().zip(&key.columns).map(|(array, (at, logical))| {
                let same = array.data_type() == logical;
                Ok((*at, if same { array } else { cast(&array, logical).map_err(internal)? }))
            });
            return typed.collect();
        }
    };
    Ok(vec![(*at, array)])
}

fn decode_decimals(
    data_type: &DataType,
    column: Column,
    nulls: Option<NullBuffer>,
    strings: &Strings,
) -> Result<ArrayRef> {
    let DataType::Decimal128(precision, scale) = *data_type else {
        return Err(Error::internal(format!("{data_type} is no decimal")));
    };
    if strings.len() == 0 && scale <= NARROW_DIGITS.cast_signed() {
        let narrow = DataType::Decimal64(NARROW_DIGITS, scale);
        return from_words(&narrow, column.words.into_iter(), nulls.as_ref());
    }
    let flag = interned_flag(column.number);
    let value = |(i, &word): (usize, &u64)| {
        if !column.flagged(i, flag) {
            return i128::from(word.cast_signed());
        }
        strings.with(word, |b| i128::from_le_bytes(b.try_into().expect("interned with 16 bytes")))
    };
    let values = column.words.iter().enumerate().map(value).collect::<Vec<_>>();
    let array = Decimal128Array::new(values.into(), nulls);
    Ok(Arc::new(array.with_precision_and_scale(precision, scale).map_err(internal)?))
}

/// Who reads these groups and groups them, joins them or filters them by their strings does that once
/// for each string.
fn dictionary(
    data_type: &DataType,
    column: &Column,
    nulls: Option<NullBuffer>,
    strings: Strings,
) -> Result<ArrayRef> {
    let codes = column.words.iter().map(|&word| word as u32).collect::<Vec<_>>();
    let all = Column { words: (0..strings.len() as u64).collect(), flags: &[], number: 0 };
    let values = decode_bytes(data_type, &all, None, strings)?;
    let codes = UInt32Array::new(codes.into(), nulls);
    Ok(Arc::new(DictionaryArray::try_new(codes, values).map_err(internal)?))
}

fn decode_bytes(
    data_type: &DataType,
    column: &Column,
    nulls: Option<NullBuffer>,
    strings: Strings,
) -> Result<ArrayRef> {
    /// Text is built from bytes that were checked when they were text.
    fn text(bytes: &[u8]) -> &str {
        // SAFETY: a key of a text type takes arrays of text only (`Encoder::byte_codes` is given
        // arrays that expand to the key's type), and strings are stored as they came.
        unsafe { std::str::from_utf8_unchecked(bytes) }
    }
    macro_rules! built {
        ($builder:expr, $item:expr) => {{
            let mut builder = $builder;
            for (i, &word) in column.words.iter().enumerate() {
                if nulls.as_ref().is_some_and(|n| n.is_null(i)) {
                    builder.append_null();
                } else {
                    strings.with(word, |b| builder.append_value($item(b)));
                }
            }
            Arc::new(builder.finish()) as ArrayRef
        }};
    }
    fn same(bytes: &[u8]) -> &[u8] {
        bytes
    }
    let rows = column.words.len();
    Ok(match data_type {
        DataType::Utf8View => views::<StringViewType>(column, nulls, strings),
        DataType::BinaryView => views::<BinaryViewType>(column, nulls, strings),
        DataType::Utf8 => built!(StringBuilder::with_capacity(rows, 0), text),
        DataType::LargeUtf8 => built!(LargeStringBuilder::with_capacity(rows, 0), text),
        DataType::Binary => built!(BinaryBuilder::with_capacity(rows, 0), same),
        DataType::LargeBinary => built!(LargeBinaryBuilder::with_capacity(rows, 0), same),
        other => return Err(Error::internal(format!("{other} is no text"))),
    })
}

fn views<T: ByteViewType>(
    column: &Column,
    nulls: Option<NullBuffer>,
    strings: Strings,
) -> ArrayRef {
    let (views, buffers) = strings.into_parts();
    // With nothing but NULLs there are no strings.
    let view = |&word: &u64| views.get(word as usize).copied().unwrap_or(0);
    let views = ScalarBuffer::from(column.words.iter().map(view).collect::<Vec<u128>>());
    // SAFETY: `Strings` makes a view of an inline string, or of bytes that it put into the block
    // and at the place that the view says; a view of 0 is the empty string. The bytes are text if
    // the type is (see `text` in `decode_bytes`).
    let array =
        unsafe { arrow::array::GenericByteViewArray::<T>::new_unchecked(views, buffers, nulls) };
    Arc::new(array)
}
