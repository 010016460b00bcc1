//! Keys as numbers of as few bits as their values need.
//!
//! What all values of a key lie between is known once all rows are there. So a value becomes its
//! distance from the least (or for descending keys from the greatest) of them, and a NULL the number
//! before or behind all others. The numbers of all keys stand side by side, the first key's in the
//! highest bits:
//!
//! ```text
//!   region (25 texts)   price (0.00 to 9999.99)       id
//!   └──── 18 bits ───┘  └──────── 20 bits ────────┘  └───── 23 bits ─────┘   one word of 64
//! ```
//! Of texts that begin alike, what follows that beginning is such a number, if it is short: its bytes,
//! padded with zeros, and behind them its length, which tells padding from bytes that are zero.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, MAX_INLINE_VIEW_LEN, StringViewArray, make_array,
};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::compute::SortOptions;
use arrow::datatypes::{
    BinaryViewType, ByteViewType, DataType, Decimal128Type, Float32Type, Float64Type,
    StringViewType,
};

use thalweg_base::Result;

use crate::encoding::{bounds, internal, ordered_float, words};

/// Bits of a word.
const WORD_BITS: u32 = u64::BITS;

/// Words that keys are packed into, at most.
pub const WORDS_MAX: usize = 4;

/// Bytes of texts behind what they have in common, at most: with their length and NULL they are less
/// than 128 bits.
const TEXT_BYTES_MAX: usize = 15;

/// What is known of the values of one key.
#[derive(Clone, Debug)]
struct Span {
    values: Values,
    nulls: bool,
}

#[derive(Clone, Debug)]
enum Values {
    /// There was none but NULL.
    None,
    /// The least and the greatest.
    Numbers(i128, i128),
    Texts(Texts),
}

#[derive(Clone, Debug)]
struct Texts {
    /// What all begin with.
    prefix: Vec<u8>,
    shortest: usize,
    longest: usize,
}

/// What is known of the values of all keys.
#[derive(Clone, Debug)]
pub struct Spans(Vec<Span>);

impl Spans {
    /// Of no row; `None`: keys of these types are not packed.
    pub fn new<'a>(types: impl IntoIterator<Item = &'a DataType>) -> Option<Self> {
        let is_packed = |data_type: &DataType| match data_type {
            DataType::Float32 | DataType::Float64 | DataType::Decimal128(..) => true,
            DataType::Utf8View | DataType::BinaryView => true,
            other => crate::encoding::is_word(other),
        };
        let span =
            |data_type| is_packed(data_type).then_some(Span { values: Values::None, nulls: false });
        types.into_iter().map(span).collect::<Option<_>>().map(Spans)
    }

    /// Sees the keys of some rows.
    pub fn see(&mut self, keys: &[ArrayRef]) {
        for (span, key) in self.0.iter_mut().zip(keys) {
            span.nulls |= key.null_count() > 0;
            span.values.join(Values::of(key.as_ref()));
        }
    }

    /// Sees all that another has seen.
    pub fn join(&mut self, other: &Spans) {
        for (span, other) in self.0.iter_mut().zip(&other.0) {
            span.nulls |= other.nulls;
            span.values.join(other.values.clone());
        }
    }

    /// Words that what was seen so far is packed into; `None`: it does not fit.
    pub fn words(&self) -> Option<usize> {
        let bits = self.0.iter().map(|span| Some(bits_of(span.greatest()?)));
        let words = words_of(bits.sum::<Option<u32>>()?);
        (words <= WORDS_MAX).then_some(words)
    }
}

/// Words of keys of so many bits, one at least.
fn words_of(bits: u32) -> usize {
    bits.div_ceil(WORD_BITS).max(1) as usize
}

impl Span {
    /// The greatest number that a value or NULL becomes; `None`: texts are too long.
    fn greatest(&self) -> Option<u128> {
        let values = match &self.values {
            Values::None => 0,
            Values::Numbers(least, greatest) => greatest.wrapping_sub(*least).cast_unsigned(),
            Values::Texts(texts) => {
                if texts.longest - texts.prefix.len() > TEXT_BYTES_MAX {
                    return None;
                }
                (1 << texts.bits()) - 1
            }
        };
        Some(values + u128::from(self.nulls))
    }
}

impl Texts {
    /// Bytes behind the prefix.
    fn bytes(&self) -> usize {
        self.longest - self.prefix.len()
    }

    /// Of the length behind the prefix; none where all are of one.
    fn length_bits(&self) -> u32 {
        match self.shortest == self.longest {
            true => 0,
            false => bits_of(self.bytes() as u128),
        }
    }

    fn bits(&self) -> u32 {
        8 * self.bytes() as u32 + self.length_bits()
    }

    /// The number of a text that has the prefix.
    fn number(&self, text: &[u8]) -> u128 {
        let rest = &text[self.prefix.len()..];
        let bytes = rest.iter().fold(0, |number, &byte| number << 8 | u128::from(byte));
        let bytes = bytes << (8 * (self.bytes() - rest.len()));
        self.with_length(bytes, rest.len())
    }

    /// The same of a text that lies within its view, and has no other bytes than zeros behind it.
    fn number_of_view(&self, view: u128) -> u128 {
        let rest = view as u32 as usize - self.prefix.len();
        let bytes = match self.bytes() {
            0 => 0,
            // A view is the length in four bytes, then the text.
            bytes => (view >> 32 >> (8 * self.prefix.len())).swap_bytes() >> (128 - 8 * bytes),
        };
        self.with_length(bytes, rest)
    }

    /// The prefix as views have it, behind four bytes.
    fn view_of_prefix(&self) -> u128 {
        let bytes = self.prefix.iter().rev();
        bytes.fold(0, |view, &byte| view << 8 | u128::from(byte)) << 32
    }

    /// The view of the text that has this number, if all texts lie within their views.
    fn view(&self, prefix: u128, number: u64) -> u128 {
        let (bytes, length) = match self.length_bits() {
            0 => (number, self.bytes()),
            bits => (number >> bits, (number & ((1 << bits) - 1)) as usize),
        };
        let rest = match self.bytes() {
            0 => 0,
            all => (u128::from(bytes) << (128 - 8 * all)).swap_bytes(),
        };
        let before = self.prefix.len();
        let rest = rest.checked_shl(32 + 8 * before as u32).unwrap_or(0);
        (before + length) as u128 | prefix | rest
    }

    fn with_length(&self, bytes: u128, length: usize) -> u128 {
        match self.length_bits() {
            0 => bytes,
            bits => bytes << bits | length as u128,
        }
    }
}

impl Values {
    fn of(array: &dyn Array) -> Values {
        match array.data_type() {
            DataType::Utf8View => texts::<StringViewType>(array),
            DataType::BinaryView => texts::<BinaryViewType>(array),
            _ => {
                let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
                let bounds = match (numbers(array), nulls) {
                    (Numbers::Words(words), None) => wide_bounds(words.iter().copied()),
                    (Numbers::Words(words), Some(nulls)) => {
                        wide_bounds(nulls.valid_indices().map(|row| words[row]))
                    }
                    (Numbers::Wide(wide), None) => wide_bounds(wide.iter().copied()),
                    (Numbers::Wide(wide), Some(nulls)) => {
                        wide_bounds(nulls.valid_indices().map(|row| wide[row]))
                    }
                };
                bounds.map_or(Values::None, |(least, greatest)| Values::Numbers(least, greatest))
            }
        }
    }

    fn join(&mut self, other: Values) {
        match (self, other) {
            (_, Values::None) => {}
            (Values::Numbers(least, greatest), Values::Numbers(other_least, other_greatest)) => {
                *least = other_least.min(*least);
                *greatest = other_greatest.max(*greatest);
            }
            (Values::Texts(texts), Values::Texts(other)) => {
                let common = common(&texts.prefix, &other.prefix);
                texts.prefix.truncate(common);
                texts.shortest = other.shortest.min(texts.shortest);
                texts.longest = other.longest.max(texts.longest);
            }
            (own, other) => *own = other,
        }
    }
}

fn wide_bounds<T: Copy + Ord + Into<i128>>(
    values: impl Iterator<Item = T>,
) -> Option<(i128, i128)> {
    bounds(values).map(|(least, greatest)| (least.into(), greatest.into()))
}

fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn texts<T: ByteViewType>(array: &dyn Array) -> Values {
    let array = array.as_byte_view::<T>();
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    let is_valid = |row: &usize| nulls.is_none_or(|nulls| nulls.is_valid(*row));
    let mut rows = (0..array.len()).filter(is_valid);
    let Some(row) = rows.next() else { return Values::None };
    let views = array.views();
    let text = |row: usize| -> &[u8] { array.value(row).as_ref() };
    let (first, first_view) = (text(row), views[row]);
    let first_is_within = first_view as u32 <= MAX_INLINE_VIEW_LEN;
    let (mut shortest, mut longest, mut prefix) = (first.len(), first.len(), first.len());
    for row in rows {
        let view = views[row];
        let length = view as u32;
        shortest = shortest.min(length as usize);
        longest = longest.max(length as usize);
        prefix = match first_is_within && length <= MAX_INLINE_VIEW_LEN {
            true => {
                let alike = ((view ^ first_view) >> 32).trailing_zeros() as usize / 8;
                prefix.min(alike).min(length as usize)
            }
            false => common(&first[..prefix], text(row)),
        };
    }
    Values::Texts(Texts { prefix: first[..prefix].to_vec(), shortest, longest })
}

/// Values in the order of which keys are.
enum Numbers<'a> {
    Words(Cow<'a, [i64]>),
    Wide(&'a [i128]),
}

fn numbers(array: &dyn Array) -> Numbers<'_> {
    // As the total order of IEEE 754 has them.
    match array.data_type() {
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>().values().iter();
            let ordered = values.map(|v| ordered_float(v.to_bits().cast_signed()));
            Numbers::Words(ordered.collect())
        }
        // Of 32 bits as well, so that they take no more.
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>().values().iter();
            let ordered = values.map(|v| {
                let bits = v.to_bits().cast_signed();
                i64::from(bits ^ ((bits >> 31).cast_unsigned() >> 1).cast_signed())
            });
            Numbers::Words(ordered.collect())
        }
        DataType::Decimal128(..) => {
            Numbers::Wide(array.as_primitive::<Decimal128Type>().values().as_ref())
        }
        DataType::UInt64 => {
            let ordered = words(array).unwrap_or_default();
            Numbers::Words(ordered.iter().map(|word| word ^ i64::MIN).collect())
        }
        _ => Numbers::Words(words(array).unwrap_or_default()),
    }
}

fn bits_of(greatest: u128) -> u32 {
    u128::BITS - greatest.leading_zeros()
}

/// How keys are packed.
#[derive(Debug)]
pub struct Packing {
    fields: Vec<Field>,
    bits: u32,
}

#[derive(Debug)]
struct Field {
    span: Span,
    options: SortOptions,
    /// The number of the last value in order.
    last: u128,
    bits: u32,
    /// Bits of the fields that follow.
    below: u32,
}

impl Packing {
    /// Of keys that lie within what was seen; `None`: they do not fit.
    pub fn new(spans: &Spans, options: impl Iterator<Item = SortOptions>) -> Option<Self> {
        spans.words()?;
        let field = |(span, options): (&Span, SortOptions)| {
            let greatest = span.greatest()?;
            let last = greatest - u128::from(span.nulls);
            Some(Field { span: span.clone(), options, last, bits: bits_of(greatest), below: 0 })
        };
        let mut fields = spans.0.iter().zip(options).map(field).collect::<Option<Vec<_>>>()?;
        let mut bits = 0;
        for field in fields.iter_mut().rev() {
            field.below = bits;
            bits += field.bits;
        }
        Some(Packing { fields, bits })
    }

    pub fn words(&self) -> usize {
        words_of(self.bits)
    }

    /// The bits of the first so many keys.
    pub fn mask<const W: usize>(&self, keys: usize) -> [u64; W] {
        let below = match keys.checked_sub(1) {
            Some(last) => self.fields[last].below,
            None => self.bits,
        };
        std::array::from_fn(|word| {
            let bits_below = (W - 1 - word) as u32 * WORD_BITS;
            match below.saturating_sub(bits_below) {
                WORD_BITS.. => 0,
                bits => u64::MAX << bits,
            }
        })
    }

    /// Writes the keys of rows into entries whose words are zero.
    pub fn pack<const W: usize>(&self, keys: &[ArrayRef], entries: &mut [Entry<W>]) {
        for (field, key) in self.fields.iter().zip(keys).filter(|(field, _)| field.bits > 0) {
            field.write(key.as_ref(), entries);
        }
    }

    /// A key of entries as a column again; `None`: that is not done for such values.
    pub fn unpack<const W: usize>(
        &self,
        key: usize,
        entries: &[Entry<W>],
        data_type: &DataType,
    ) -> Result<Option<ArrayRef>> {
        self.fields[key].read(entries, data_type)
    }
}

impl Field {
    /// The number of NULL, if there is one, and that of the first value in order.
    fn places(&self) -> (Option<u128>, u128) {
        match (self.span.nulls, self.options.nulls_first) {
            (true, true) => (Some(0), 1),
            (true, false) => (Some(self.last + 1), 0),
            (false, _) => (None, 0),
        }
    }

    /// The values of a key, where their numbers are of one word.
    fn read<const W: usize>(
        &self,
        entries: &[Entry<W>],
        data_type: &DataType,
    ) -> Result<Option<ArrayRef>> {
        if self.bits > WORD_BITS {
            return Ok(None);
        }
        let (null, first) = self.places();
        let (null, first, last) = (null.map(|null| null as u64), first as u64, self.last as u64);
        let number = |entry: &Entry<W>| {
            let number = self.get_word(&entry.words).wrapping_sub(first);
            if self.options.descending { last.wrapping_sub(number) } else { number }
        };
        let nulls = null.map(|null| {
            let is_valid = entries.iter().map(|entry| self.get_word(&entry.words) != null);
            NullBuffer::new(is_valid.collect())
        });
        let least = match &self.span.values {
            Values::Numbers(least, _) => *least,
            Values::Texts(texts)
                if texts.longest <= MAX_INLINE_VIEW_LEN as usize
                    && data_type == &DataType::Utf8View =>
            {
                let prefix = texts.view_of_prefix();
                let view = |(row, entry): (usize, &Entry<W>)| {
                    let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
                    if is_null { 0 } else { texts.view(prefix, number(entry)) }
                };
                let views = entries.iter().enumerate().map(view).collect::<Vec<u128>>();
                let array = StringViewArray::try_new(views.into(), vec![], nulls.clone());
                return Ok(Some(Arc::new(array.map_err(internal)?)));
            }
            _ => return Ok(None),
        };
        // What stands in the place of a NULL is anything.
        let words = entries.iter().map(|entry| (least as i64).wrapping_add_unsigned(number(entry)));
        let values = match data_type {
            DataType::Float64 => Buffer::from_vec(words.map(ordered_float).collect::<Vec<_>>()),
            DataType::Decimal128(..) => {
                let wide = |entry| least.wrapping_add(i128::from(number(entry)));
                Buffer::from_vec(entries.iter().map(wide).collect::<Vec<_>>())
            }
            DataType::Int64 | DataType::Date64 | DataType::Timestamp(..) | DataType::Time64(_) => {
                Buffer::from_vec(words.collect::<Vec<_>>())
            }
            DataType::Int32 | DataType::Date32 | DataType::Time32(_) => {
                Buffer::from_vec(words.map(|word| word as i32).collect::<Vec<_>>())
            }
            _ => return Ok(None),
        };
        let data = ArrayData::builder(data_type.clone()).len(entries.len()).add_buffer(values);
        Ok(Some(make_array(data.nulls(nulls).build().map_err(internal)?)))
    }

    fn get_word<const W: usize>(&self, words: &[u64; W]) -> u64 {
        if self.bits == 0 {
            return 0;
        }
        let (word, bit) = (W - 1 - (self.below / WORD_BITS) as usize, self.below % WORD_BITS);
        let mut number = words[word] >> bit;
        if bit + self.bits > WORD_BITS {
            number |= words[word - 1] << (WORD_BITS - bit);
        }
        number & (u64::MAX >> (WORD_BITS - self.bits))
    }

    fn write<const W: usize>(&self, array: &dyn Array, rows: &mut [Entry<W>]) {
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        let is_null = |row: usize| nulls.is_some_and(|nulls| nulls.is_null(row));
        match (&self.span.values, array.data_type()) {
            (Values::Texts(texts), DataType::Utf8View) => {
                self.write_texts::<StringViewType, W>(texts, array, rows);
            }
            (Values::Texts(texts), DataType::BinaryView) => {
                self.write_texts::<BinaryViewType, W>(texts, array, rows);
            }
            (Values::Numbers(least, greatest), _) => match numbers(array) {
                Numbers::Words(words) if self.bits <= WORD_BITS && nulls.is_none() => {
                    // The hot loop: what differs by row alone is within it.
                    let first = self.places().1 as i64;
                    let (least, greatest) = (*least as i64, *greatest as i64);
                    let number = |word: i64| match self.options.descending {
                        true => greatest.wrapping_sub(word).wrapping_add(first).cast_unsigned(),
                        false => word.wrapping_sub(least).wrapping_add(first).cast_unsigned(),
                    };
                    let numbers = words.iter().map(|&word| number(word));
                    rows.iter_mut()
                        .zip(numbers)
                        .for_each(|(row, n)| self.put_word(&mut row.words, n));
                }
                Numbers::Words(words) => {
                    let number =
                        |row: usize| i128::from(words[row]).wrapping_sub(*least).cast_unsigned();
                    self.write_all(rows, is_null, number);
                }
                Numbers::Wide(wide) => {
                    let number = |row: usize| wide[row].wrapping_sub(*least).cast_unsigned();
                    self.write_all(rows, is_null, number);
                }
            },
            _ => self.write_all(rows, is_null, |_| 0),
        }
    }

    fn write_texts<T: ByteViewType, const W: usize>(
        &self,
        texts: &Texts,
        array: &dyn Array,
        rows: &mut [Entry<W>],
    ) {
        let array = array.as_byte_view::<T>();
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        let is_null = |row: usize| nulls.is_some_and(|nulls| nulls.is_null(row));
        let views = array.views();
        self.write_all(rows, is_null, |row| match views[row] as u32 <= MAX_INLINE_VIEW_LEN {
            true => texts.number_of_view(views[row]),
            false => texts.number(array.value(row).as_ref()),
        });
    }

    /// Writes what rows become whose values have these numbers in ascending order.
    fn write_all<const W: usize>(
        &self,
        rows: &mut [Entry<W>],
        is_null: impl Fn(usize) -> bool,
        number: impl Fn(usize) -> u128,
    ) {
        let (null, first) = self.places();
        let null = null.unwrap_or(0);
        for (row, entry) in rows.iter_mut().enumerate() {
            let number = match is_null(row) {
                true => null,
                false if self.options.descending => self.last - number(row) + first,
                false => number(row) + first,
            };
            match self.bits <= WORD_BITS {
                true => self.put_word(&mut entry.words, number as u64),
                false => self.put(&mut entry.words, number),
            }
        }
    }

    fn put_word<const W: usize>(&self, words: &mut [u64; W], number: u64) {
        let (word, bit) = (W - 1 - (self.below / WORD_BITS) as usize, self.below % WORD_BITS);
        words[word] |= number << bit;
        if bit + self.bits > WORD_BITS {
            words[word - 1] |= number >> (WORD_BITS - bit);
        }
    }

    fn put<const W: usize>(&self, words: &mut [u64; W], number: u128) {
        let (word, bit) = (W - 1 - (self.below / WORD_BITS) as usize, self.below % WORD_BITS);
        let low = number << bit;
        words[word] |= low as u64;
        words[word - 1] |= (low >> WORD_BITS) as u64;
        if bit + self.bits > 2 * WORD_BITS {
            words[word - 2] |= (number >> (2 * WORD_BITS - bit)) as u64;
        }
    }
}

/// A row by its key and by where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<const W: usize> {
    pub words: [u64; W],
    pub part: u32,
    pub row: u32,
}

/// Bytes of an entry whose key comes to so many words, as they are sorted.
pub fn entry_bytes(words: usize) -> usize {
    match words {
        1 => size_of::<Entry<1>>(),
        2 => size_of::<Entry<2>>(),
        _ => size_of::<Entry<WORDS_MAX>>(),
    }
}

/// The entries of all rows of a part, whose keys these are, are put behind others.
pub fn add_entries<const W: usize>(
    entries: &mut Vec<Entry<W>>,
    packing: &Packing,
    part: usize,
    keys: &[ArrayRef],
    rows: usize,
) {
    let before = entries.len();
    let entry = |row| Entry { words: [0; W], part: part as u32, row };
    entries.extend((0..rows as u32).map(entry));
    packing.pack(keys, &mut entries[before..]);
}

/// Entries that are fewer are compared with each other.
const FEW: usize = 1024;

/// Bits by which entries are distributed in one go, and how often that is quicker than to compare.
const DIGIT_BITS: u32 = 11;
const DIGITS_MAX: u32 = 4;

/// Puts entries in the order of their keys.
pub fn sort<const W: usize>(entries: &mut [Entry<W>]) {
    let Some(first) = entries.first().copied() else { return };
    // Words before `W - 1` are the same mostly, or the last ones are few bits.
    let mut varying = [0; W];
    for entry in entries.iter() {
        for (bits, (word, first)) in varying.iter_mut().zip(entry.words.iter().zip(&first.words)) {
            *bits |= word ^ first;
        }
    }
    let Some(word) = varying.iter().position(|&bits| bits != 0) else { return };
    let (low, high) = (varying[word].trailing_zeros(), WORD_BITS - varying[word].leading_zeros());
    let is_last = varying[word + 1..].iter().all(|&bits| bits == 0);
    if is_last && entries.len() >= FEW && high - low <= DIGITS_MAX * DIGIT_BITS {
        return distribute(entries, word, low, high);
    }
    match (is_last, word + 1) {
        (true, _) => entries.sort_unstable_by_key(|entry| entry.words[word]),
        (false, next) if varying[next + 1..].iter().all(|&bits| bits == 0) => {
            let both = |entry: &Entry<W>| {
                u128::from(entry.words[word]) << WORD_BITS | u128::from(entry.words[next])
            };
            entries.sort_unstable_by_key(both);
        }
        _ => entries.sort_unstable_by_key(|entry| entry.words),
    }
}

/// Sorts by the bits from `low` to `high` of a word, some of them at a time, the lowest first.
fn distribute<const W: usize>(entries: &mut [Entry<W>], word: usize, low: u32, high: u32) {
    let digits = (high - low).div_ceil(DIGIT_BITS);
    let bits = (high - low).div_ceil(digits);
    let mut others = entries.to_vec();
    let (mut from, mut to) = (entries, &mut others[..]);
    for digit in 0..digits {
        let digit_of = |entry: &Entry<W>| {
            (entry.words[word] >> (low + digit * bits)) as usize & ((1 << bits) - 1)
        };
        // How many have each digit, then where these begin.
        let mut places = [0u32; 1 << DIGIT_BITS];
        from.iter().for_each(|entry| places[digit_of(entry)] += 1);
        let mut before = 0;
        for place in &mut places[..1 << bits] {
            before += std::mem::replace(place, before);
        }
        for entry in from.iter() {
            let place = &mut places[digit_of(entry)];
            to[*place as usize] = *entry;
            *place += 1;
        }
        std::mem::swap(&mut from, &mut to);
    }
    if digits % 2 == 1 {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests;
