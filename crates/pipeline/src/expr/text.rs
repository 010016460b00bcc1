//! Functions of texts, which come as views and are given as such.
//!
//! What is a part of a text stays in the buffer that the text is in.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, MAX_INLINE_VIEW_LEN, StringViewArray, UInt32Array,
};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::Int64Type;
use thalweg_base::text::{one_lower, one_upper};
use thalweg_base::{Error, Result};

use super::Value;
use super::kernel::Operand;
use crate::encoding::{coded, codes, internal};

/// Bytes of a buffer of texts.
const BUFFER_BYTES_MAX: usize = i32::MAX as usize;

/// Texts that are put together one after the other.
#[derive(Default)]
pub struct Texts {
    views: Vec<u128>,
    full: Vec<Buffer>,
    last: Vec<u8>,
}

impl Texts {
    pub fn with_capacity(rows: usize) -> Texts {
        Texts { views: Vec::with_capacity(rows), ..Texts::default() }
    }

    /// A text of so many bytes, which `write` appends to the end of a buffer.
    fn push_with(&mut self, length: usize, write: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        if length > BUFFER_BYTES_MAX {
            return Err(Error::user("a text has more than 2 GiB").code("54000"));
        }
        if self.last.len() + length > BUFFER_BYTES_MAX {
            self.full.push(std::mem::take(&mut self.last).into());
        }
        let from = self.last.len();
        write(&mut self.last);
        let text = &self.last[from..];
        let view = match inline(text) {
            Some(view) => {
                self.last.truncate(from);
                view
            }
            None => outside(text, self.full.len() as u32, from as u32),
        };
        self.views.push(view);
        Ok(())
    }

    /// A text.
    pub fn push(&mut self, text: &[u8]) -> Result<()> {
        match inline(text) {
            Some(view) => {
                self.views.push(view);
                Ok(())
            }
            None => self.push_with(text.len(), |buffer| buffer.extend_from_slice(text)),
        }
    }

    /// What stands in the place of a NULL.
    fn push_null(&mut self) {
        self.views.push(0);
    }

    /// All that was pushed must be UTF-8.
    pub fn finish(mut self, nulls: Option<NullBuffer>) -> ArrayRef {
        self.full.push(self.last.into());
        views(self.views, &self.full, nulls)
    }
}

/// Views of texts that are UTF-8, in the buffers that they name.
fn views(views: Vec<u128>, buffers: &[Buffer], nulls: Option<NullBuffer>) -> ArrayRef {
    // SAFETY: the callers make views of whole characters of texts, and of where these lie.
    let texts =
        unsafe { StringViewArray::new_unchecked(ScalarBuffer::from(views), buffers, nulls) };
    Arc::new(texts)
}

/// The view of a text that has room in it.
fn inline(text: &[u8]) -> Option<u128> {
    if text.len() > MAX_INLINE_VIEW_LEN as usize {
        return None;
    }
    let mut bytes = [0_u8; 16];
    bytes[4..4 + text.len()].copy_from_slice(text);
    Some(u128::from_le_bytes(bytes) | text.len() as u128)
}

/// The view of a text that has none.
fn outside(text: &[u8], buffer: u32, offset: u32) -> u128 {
    let prefix = u32::from_le_bytes([text[0], text[1], text[2], text[3]]);
    let place = u128::from(buffer) | u128::from(offset) << 32;
    text.len() as u128 | u128::from(prefix) << 32 | place << 64
}

/// The view of a part of a text, which has this view itself.
fn part(view: u128, text: &[u8], from: usize, to: usize) -> u128 {
    let piece = &text[from..to];
    match inline(piece) {
        Some(view) => view,
        None => outside(piece, (view >> 64) as u32, (view >> 96) as u32 + from as u32),
    }
}

/// For each text the part that `f` says, as the first byte and the one behind the last. It is asked for
/// texts, and not for what stands in the place of a NULL.
fn parts(
    texts: &StringViewArray,
    nulls: Option<NullBuffer>,
    mut f: impl FnMut(usize, &str) -> Result<(usize, usize)>,
) -> Result<ArrayRef> {
    let mut out = Vec::with_capacity(texts.len());
    for (row, &view) in texts.views().iter().enumerate() {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            out.push(0);
            continue;
        }
        let text = texts.value(row);
        let (from, to) = f(row, text)?;
        out.push(part(view, text.as_bytes(), from, to));
    }
    Ok(views(out, texts.data_buffers(), nulls))
}

/// The characters from a place on, or so many of these.
pub fn substring(texts: &ArrayRef, rest: &[Value]) -> Result<ArrayRef> {
    let texts = texts.as_string_view();
    let rest = rest.iter().map(Operand::<Int64Type>::of).collect::<Result<Vec<_>>>()?;
    if rest.iter().any(|operand| matches!(operand, Operand::One(None))) {
        return Ok(arrow::array::new_null_array(texts.data_type(), texts.len()));
    }
    let nulls = rest.iter().map(Operand::nulls).chain([texts.nulls()]);
    let nulls = NullBuffer::union_many(nulls);
    parts(texts, nulls, |row, text| {
        let value = |n: usize| rest.get(n).and_then(|operand: &Operand<_>| operand.value(row));
        let start = value(0).unwrap_or_default();
        bounds(text, start, value(1))
    })
}

/// The bytes of the characters from `start` on, the first of which is 1.
fn bounds(text: &str, start: i64, count: Option<i64>) -> Result<(usize, usize)> {
    if let Some(count) = count
        && count < 0
    {
        return Err(Error::user("negative substring length not allowed").code("22011"));
    }
    let Some(first) = start.checked_sub(1) else {
        return Err(Error::user("integer out of range").code("22003"));
    };
    let bytes = text.len();
    let clamped = |place: i64| usize::try_from(place).unwrap_or(0).min(bytes);
    let (from, to) = match count {
        Some(count) => (clamped(first), clamped(first.saturating_add(count))),
        None => (clamped(first), bytes),
    };
    // Up to where it is read, characters may be bytes.
    let read = if count.is_some() { to } else { from };
    if text.as_bytes()[..read].is_ascii() {
        return Ok((from, to));
    }
    let mut places = text.char_indices().map(|(at, _)| at);
    let start = places.nth(from).unwrap_or(bytes);
    let end = match count {
        None => bytes,
        Some(_) if to <= from => start,
        Some(_) => places.nth(to - from - 1).unwrap_or(bytes),
    };
    Ok((start, end))
}

/// Without blanks at the ends that are named.
pub fn trimmed(texts: &ArrayRef, start: bool, end: bool) -> Result<ArrayRef> {
    let texts = texts.as_string_view();
    parts(texts, texts.nulls().cloned(), |_, text| {
        let bytes = text.as_bytes();
        let from = match start {
            true => bytes.iter().position(|&b| b != b' ').unwrap_or(bytes.len()),
            false => 0,
        };
        let to = match end {
            true => bytes.iter().rposition(|&b| b != b' ').map_or(from, |last| last + 1),
            false => bytes.len(),
        };
        Ok((from, to.max(from)))
    })
}

/// How many bytes each text has.
pub fn octets(texts: &ArrayRef) -> Result<ArrayRef> {
    let texts = texts.as_string_view();
    let lengths: Vec<i32> = texts.views().iter().map(|&view| view as u32 as i32).collect();
    Ok(Arc::new(Int32Array::new(lengths.into(), texts.nulls().cloned())))
}

/// The bit of each byte of a view's text that is the last.
const LAST_BITS: u128 = 0x0101_0101_0101_0101_0101_0101 << 32;

/// How many characters each text has.
pub fn characters(texts: &ArrayRef) -> Result<ArrayRef> {
    let texts = texts.as_string_view();
    let nulls = texts.nulls();
    let length = |(row, &view): (usize, &u128)| {
        let bytes = view as u32;
        if bytes <= MAX_INLINE_VIEW_LEN {
            // Bytes that begin with the bits 1 and 0 go on with a character.
            let further = (view >> 7) & !(view >> 6) & LAST_BITS;
            return (bytes - further.count_ones()) as i32;
        }
        if nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return 0;
        }
        let text = texts.value(row).as_bytes();
        text.iter().map(|&b| i32::from(b as i8 >= -0x40)).sum()
    };
    let lengths: Vec<i32> = texts.views().iter().enumerate().map(length).collect();
    Ok(Arc::new(Int32Array::new(lengths.into(), nulls.cloned())))
}

/// Each character in upper or lower case.
pub fn in_case(texts: &ArrayRef, upper: bool) -> Result<ArrayRef> {
    let texts = texts.as_string_view();
    let nulls = texts.nulls();
    let mut out = Texts::with_capacity(texts.len());
    let make = |bytes: &mut [u8]| match upper {
        true => bytes.make_ascii_uppercase(),
        false => bytes.make_ascii_lowercase(),
    };
    for (row, &view) in texts.views().iter().enumerate() {
        if nulls.is_some_and(|nulls| nulls.is_null(row)) {
            out.push_null();
            continue;
        }
        let mut bytes = view.to_le_bytes();
        if view as u32 <= MAX_INLINE_VIEW_LEN && bytes[4..].is_ascii() {
            make(&mut bytes[4..]);
            out.views.push(u128::from_le_bytes(bytes));
            continue;
        }
        let text = texts.value(row);
        if text.is_ascii() {
            out.push_with(text.len(), |buffer| {
                let from = buffer.len();
                buffer.extend_from_slice(text.as_bytes());
                make(&mut buffer[from..]);
            })?;
        } else {
            let one = if upper { one_upper } else { one_lower };
            let cased: String = text.chars().map(one).collect();
            out.push(cased.as_bytes())?;
        }
    }
    Ok(out.finish(nulls.cloned()))
}

/// Texts one after the other; NULL if one of them is.
pub fn concatenated(values: &[Value], rows: usize) -> Result<ArrayRef> {
    let mut nulls = None;
    let mut sides: Vec<(&StringViewArray, bool)> = Vec::with_capacity(values.len());
    for value in values {
        match value {
            Value::Array(array) => {
                nulls = NullBuffer::union(nulls.as_ref(), array.nulls());
                sides.push((array.as_string_view(), false));
            }
            Value::Scalar(one) if one.is_null(0) => {
                return Ok(arrow::array::new_null_array(one.data_type(), rows));
            }
            Value::Scalar(one) => sides.push((one.as_string_view(), true)),
        }
    }
    let mut out = Texts::with_capacity(rows);
    for row in 0..rows {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            out.push_null();
            continue;
        }
        let text = |&(array, is_one): &(&StringViewArray, bool)| {
            array.value(if is_one { 0 } else { row }).len()
        };
        let length = sides.iter().map(text).sum();
        out.push_with(length, |buffer| {
            for &(array, is_one) in &sides {
                buffer.extend_from_slice(array.value(if is_one { 0 } else { row }).as_bytes());
            }
        })?;
    }
    Ok(out.finish(nulls))
}

/// Of so many rows one way of putting texts together, or more, is put together once for all.
const FEW_WAYS: usize = 4;

/// The same of texts of which each comes as a dictionary, or is the same for all rows, if there are few ways
/// of putting values of these dictionaries together: each of these, and which it is. `None`: there are
/// not.
pub fn concatenated_codes(values: &[Value], rows: usize) -> Result<Option<ArrayRef>> {
    let mut ways = 1;
    let mut nulls = None;
    for value in values {
        match value {
            Value::Scalar(one) if one.is_null(0) => return Ok(None),
            Value::Scalar(_) => {}
            Value::Array(array) => {
                let Some(dictionary) = array.as_any_dictionary_opt() else { return Ok(None) };
                ways *= dictionary.values().len();
                if ways == 0 || ways > rows / FEW_WAYS {
                    return Ok(None);
                }
                nulls = NullBuffer::union(nulls.as_ref(), array.nulls());
            }
        }
    }
    // For each way the value of each side, and for each row the way.
    let mut all: Option<Vec<u32>> = None;
    let mut sides = Vec::with_capacity(values.len());
    let mut each = ways;
    for value in values {
        let Value::Array(array) = value else {
            sides.push(value.clone());
            continue;
        };
        let Some(codes) = codes(array.as_ref()) else { return Ok(None) };
        let texts = array.as_any_dictionary().values();
        each /= texts.len();
        let places = (0..ways).map(|way| (way / each % texts.len()) as u32);
        let places = UInt32Array::from_iter_values(places);
        sides.push(Value::Array(take(texts, &places, None).map_err(internal)?));
        let step = each as u32;
        all = Some(match all {
            None => codes.iter().map(|code| code * step).collect(),
            Some(before) => before.iter().zip(codes.iter()).map(|(b, c)| b + c * step).collect(),
        });
    }
    let Some(all) = all else { return Ok(None) };
    // A way that no row has may be too long.
    let Ok(texts) = concatenated(&sides, ways) else { return Ok(None) };
    coded(all, nulls, texts).map(Some)
}

#[cfg(test)]
mod tests;
