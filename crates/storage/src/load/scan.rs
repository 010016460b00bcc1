//! Where the fields of delimited text end.
//!
//! So many bytes at a time as the processor compares ([`STEP`]): one mask of the bytes that are a
//! delimiter, a line end or a quote, then a jump from set bit to set bit. Wide numeric files have a
//! delimiter every five bytes or so, where a call of `memchr` per field costs more than the field.
//! Quoted fields are the exception and take the `memchr` way.

use super::block::Dialect;

/// Accepts any number of fields: to look at a first record.
pub(super) const ANY: usize = usize::MAX;

/// The records of one stretch of a block.
///
/// `ends` holds for each record its first byte and then the end of each field; a field begins one
/// byte (the delimiter) after the end of the field before it. A field that is missing ends where
/// the one before it does, so that it would end before it begins.
#[derive(Default)]
pub(super) struct Records {
    pub ends: Vec<u32>,
    pub rows: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// The record at `at..next` has `found` fields.
    Ragged { at: usize, found: usize, next: usize },
    /// The quote at `at` is never closed.
    Unclosed { at: usize },
}

/// The shape all records of a file share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub dialect: Dialect,
    pub fields: usize,
    /// Each record ends with a delimiter after its last field, as `dbgen` writes them.
    pub trailing: bool,
    /// Records may have fewer fields.
    pub padded: bool,
}

#[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
use avx2::{BITS, STEP, Wanted};
#[cfg(not(all(target_arch = "x86_64", target_feature = "avx2")))]
use word::{BITS, STEP, Wanted};

/// Two vectors of 32 bytes.
#[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_or_si256,
        _mm256_set1_epi8,
    };

    pub const STEP: usize = 64;
    /// Of the mask, for each byte.
    pub const BITS: u32 = 1;

    pub struct Wanted([__m256i; 3]);

    impl Wanted {
        pub fn new(bytes: [u8; 3]) -> Self {
            // SAFETY: this is compiled only if all of the program is for processors with AVX2.
            Wanted(bytes.map(|byte| unsafe { _mm256_set1_epi8(byte as i8) }))
        }

        #[inline]
        pub fn mask(&self, bytes: &[u8; STEP]) -> u64 {
            let half = |from: usize| {
                // SAFETY: as above; and 32 of the 64 bytes are read, wherever they lie.
                unsafe {
                    let bytes = _mm256_loadu_si256(bytes.as_ptr().add(from).cast());
                    let [a, b, c] = self.0.map(|wanted| _mm256_cmpeq_epi8(bytes, wanted));
                    _mm256_movemask_epi8(_mm256_or_si256(_mm256_or_si256(a, b), c)) as u32
                }
            };
            u64::from(half(0)) | u64::from(half(32)) << 32
        }
    }
}

/// Eight bytes: SIMD within a register.
#[cfg_attr(all(target_arch = "x86_64", target_feature = "avx2"), cfg(test))]
mod word {
    pub const STEP: usize = 8;
    pub const BITS: u32 = 8;

    pub struct Wanted([u64; 3]);

    impl Wanted {
        pub fn new(bytes: [u8; 3]) -> Self {
            Wanted(bytes.map(|byte| u64::from(byte) * 0x0101_0101_0101_0101))
        }

        #[inline]
        pub fn mask(&self, bytes: &[u8; STEP]) -> u64 {
            const LOW7: u64 = 0x7f7f_7f7f_7f7f_7f7f;
            let word = u64::from_le_bytes(*bytes);
            let equal = |wanted: u64| {
                let x = word ^ wanted;
                // The high bit of each byte that is zero, exactly: no carry crosses bytes.
                !(((x & LOW7) + LOW7) | x | LOW7)
            };
            let [a, b, c] = self.0.map(equal);
            a | b | c
        }
    }
}

impl Records {
    /// Replaces the content with up to `rows_max` records from `pos` on; returns where they end.
    /// On an error the content is the records before it.
    ///
    /// Blank lines are skipped, unless a blank line is a record of the only column.
    pub(super) fn scan(
        &mut self,
        data: &[u8],
        pos: usize,
        shape: &Shape,
        rows_max: usize,
    ) -> Result<usize, Malformed> {
        let Shape { dialect: Dialect { comment, spaces, newline, .. }, padded, .. } = *shape;
        if comment.is_none() && !spaces && newline == b'\n' && !padded {
            self.scan_as::<true>(data, pos, shape, rows_max)
        } else {
            self.scan_as::<false>(data, pos, shape, rows_max)
        }
    }

    /// `USUAL`: there are no comments, blanks before quotes or missing fields, and lines end in
    /// LF. It is code of its own, that most files do not pay for what they do not have.
    fn scan_as<const USUAL: bool>(
        &mut self,
        data: &[u8],
        pos: usize,
        shape: &Shape,
        rows_max: usize,
    ) -> Result<usize, Malformed> {
        self.ends.clear();
        self.rows = 0;
        if pos >= data.len() || rows_max == 0 {
            return Ok(pos);
        }
        let Dialect { delimiter, quote, escape, spaces, newline, .. } = shape.dialect;
        let newline = if USUAL { b'\n' } else { newline };
        let wanted = Wanted::new([delimiter, newline, quote.unwrap_or(delimiter)]);
        let pos = shape.dialect.past_comments(data, pos);
        // Blocks are below 4 GiB: a block's worth beyond the longest record at the most.
        self.ends.push(pos as u32);
        let mut record = 0;
        let mut field_start = pos;
        let mut at = pos;
        'words: while at < data.len() {
            let mut mask = match data[at..].first_chunk::<STEP>() {
                Some(bytes) => wanted.mask(bytes),
                None => {
                    // Zeros match nothing: no dialect gives NUL a meaning.
                    let mut bytes = [0; STEP];
                    bytes[..data.len() - at].copy_from_slice(&data[at..]);
                    wanted.mask(&bytes)
                }
            };
            while mask != 0 {
                let here = at + (mask.trailing_zeros() / BITS) as usize;
                mask &= mask - 1;
                let byte = data[here];
                if byte == delimiter {
                    self.ends.push(here as u32);
                    field_start = here + 1;
                } else if byte == newline {
                    let ended = self.end_record::<USUAL>(data, record, field_start, here, shape);
                    if ended.map_err(|found| self.ragged(record, found, here + 1))? {
                        if self.rows == rows_max {
                            return Ok(here + 1);
                        }
                        record = self.ends.len();
                        self.ends.push(here as u32 + 1);
                    } else {
                        self.ends[record] = here as u32 + 1;
                    }
                    field_start = here + 1;
                    if !USUAL && shape.dialect.comment.is_some() {
                        let next = shape.dialect.past_comments(data, field_start);
                        if next > field_start {
                            self.ends[record] = next as u32;
                            (field_start, at) = (next, next);
                            continue 'words;
                        }
                    }
                } else if here == field_start
                    || !USUAL && spaces && data[field_start..here].iter().all(|&b| b == b' ')
                {
                    let Some(close) = closing(data, here, byte, escape) else {
                        self.ends.truncate(record);
                        return Err(Malformed::Unclosed { at: here });
                    };
                    at = close + 1;
                    continue 'words;
                }
            }
            at += STEP;
        }
        if self.ends[record] as usize == data.len() {
            self.ends.truncate(record);
            return Ok(data.len());
        }
        let ended = self.end_record::<USUAL>(data, record, field_start, data.len(), shape);
        if !ended.map_err(|found| self.ragged(record, found, data.len()))? {
            self.ends.truncate(record);
        }
        Ok(data.len())
    }

    #[cold]
    fn ragged(&mut self, record: usize, found: usize, next: usize) -> Malformed {
        let at = self.ends[record] as usize;
        self.ends.truncate(record);
        Malformed::Ragged { at, found, next }
    }

    /// Closes the record whose ends begin at `record`; false if it was a blank line, and the
    /// number of its fields if that is wrong.
    #[inline]
    fn end_record<const USUAL: bool>(
        &mut self,
        data: &[u8],
        record: usize,
        field_start: usize,
        line_end: usize,
        shape: &Shape,
    ) -> Result<bool, usize> {
        let end = if line_end > field_start
            && data[line_end - 1] == b'\r'
            && (USUAL || shape.dialect.newline == b'\n')
        {
            line_end - 1
        } else {
            line_end
        };
        let mut found = self.ends.len() - record;
        if found == 1 && end == field_start && shape.fields != 1 {
            return Ok(false);
        }
        if found == shape.fields.wrapping_add(1) && shape.trailing && end == field_start {
            found -= 1;
        } else {
            self.ends.push(end as u32);
        }
        if found != shape.fields && shape.fields != ANY {
            if USUAL || !shape.padded || found > shape.fields {
                return Err(found);
            }
            self.ends.resize(record + shape.fields + 1, end as u32);
        }
        self.rows += 1;
        Ok(true)
    }
}

/// The closing quote of the field opened at `open`.
#[inline(always)]
fn closing(data: &[u8], open: usize, quote: u8, escape: Option<u8>) -> Option<usize> {
    let mut at = open + 1;
    loop {
        let next = match escape {
            Some(escape) if escape != quote => memchr::memchr2(quote, escape, data.get(at..)?)?,
            _ => memchr::memchr(quote, data.get(at..)?)?,
        } + at;
        if data[next] != quote || data.get(next + 1) == Some(&quote) {
            at = next + 2;
        } else {
            return Some(next);
        }
    }
}

/// The field that lies at `ends` among others of its record; `None`: the record ends before it.
#[inline(always)]
pub(super) fn field<'a>(data: &'a [u8], ends: &[u32], column: usize) -> Option<&'a [u8]> {
    let start = ends[column] as usize + usize::from(column > 0);
    data.get(start..ends[column + 1] as usize)
}

/// A field without the blanks before its opening quote, if there are such; blanks before other
/// text are part of it.
#[inline]
pub(super) fn unspaced(field: &[u8], quote: u16) -> &[u8] {
    let blanks = field.iter().take_while(|&&b| b == b' ').count();
    match field.get(blanks) {
        Some(&first) if u16::from(first) == quote => &field[blanks..],
        _ => field,
    }
}

/// The value of a field that begins with a quote: what is between its quotes. If other text
/// follows the closing one, it was no quote and the field is text as it stands; but a field of
/// several lines with text behind it is a quote that was forgotten somewhere.
pub(super) fn enclosed<'a>(
    field: &'a [u8],
    dialect: &Dialect,
    scratch: &'a mut Vec<u8>,
) -> Option<&'a [u8]> {
    let blanks = field.iter().rev().take_while(|&&b| b == b' ').count();
    let whole = &field[..field.len() - blanks];
    match unquote(whole, field[0], dialect.escape, scratch) {
        Some(value) => Some(value),
        None => memchr::memchr2(b'\n', b'\r', field).is_none().then_some(field),
    }
}

/// The value of a field that begins with `quote`, copied to `scratch` only if something in it is
/// doubled or escaped. `None` if text follows the closing quote.
pub(super) fn unquote<'a>(
    field: &'a [u8],
    quote: u8,
    escape: Option<u8>,
    scratch: &'a mut Vec<u8>,
) -> Option<&'a [u8]> {
    let inner = match field {
        [_, inner @ .., last] if *last == quote => inner,
        _ => return None,
    };
    let escape = escape.unwrap_or(quote);
    if memchr::memchr2(quote, escape, inner).is_none() {
        return Some(inner);
    }
    scratch.clear();
    let mut rest = inner;
    while let Some(at) = memchr::memchr2(quote, escape, rest) {
        scratch.extend_from_slice(&rest[..at]);
        let next = *rest.get(at + 1)?;
        if rest[at] == quote && next != quote {
            return None;
        }
        scratch.push(next);
        rest = &rest[at + 2..];
    }
    scratch.extend_from_slice(rest);
    Some(scratch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str, count: usize, trailing: bool) -> Result<Vec<Vec<&str>>, Malformed> {
        let dialect = Dialect { delimiter: b',', quote: Some(b'"'), ..Dialect::LINES };
        fields_of(text, Shape { dialect, fields: count, trailing, padded: false })
    }

    fn fields_of(text: &str, shape: Shape) -> Result<Vec<Vec<&str>>, Malformed> {
        let count = shape.fields;
        let mut records = Records::default();
        let mut out = Vec::new();
        let mut pos = 0;
        // Two records at a time, so that resuming is tested too.
        while pos < text.len() {
            pos = records.scan(text.as_bytes(), pos, &shape, 2)?;
            for record in records.ends.chunks_exact(count + 1) {
                let one = |i| {
                    field(text.as_bytes(), record, i).map_or("-", |f| str::from_utf8(f).unwrap())
                };
                out.push((0..count).map(one).collect());
            }
        }
        Ok(out)
    }

    #[test]
    fn finds_fields() {
        let abc = vec![vec!["a", "b"], vec!["c", ""]];
        assert_eq!(fields("a,b\nc,\n", 2, false), Ok(abc.clone()));
        assert_eq!(fields("a,b\r\nc,", 2, false), Ok(abc.clone()));
        assert_eq!(fields("\n\na,b\n\r\n\nc,\n\n", 2, false), Ok(abc.clone()));
        assert_eq!(fields("a,b,\nc,,\r\n", 2, true), Ok(abc));
        assert_eq!(fields("a\n\nb", 1, false), Ok(vec![vec!["a"], vec![""], vec!["b"]]));
        assert_eq!(fields("\"x,\n\"\"y\",b\n", 2, false), Ok(vec![vec!["\"x,\n\"\"y\"", "b"]]));
        assert_eq!(fields("5\" pipe,6\"\n", 2, false), Ok(vec![vec!["5\" pipe", "6\""]]));
        assert_eq!(
            fields("a,b\nc\n", 2, false),
            Err(Malformed::Ragged { at: 4, found: 1, next: 6 })
        );
        assert_eq!(
            fields("a,b,c\n", 2, false),
            Err(Malformed::Ragged { at: 0, found: 3, next: 6 })
        );
        assert_eq!(fields("a,\"b\n", 2, false), Err(Malformed::Unclosed { at: 2 }));
        let long = "0123456789,0123456789\n".repeat(5);
        assert_eq!(fields(&long, 2, false), Ok(vec![vec!["0123456789"; 2]; 5]));
    }

    #[test]
    fn other_dialects() {
        let csv = Dialect { delimiter: b',', quote: Some(b'"'), ..Dialect::LINES };
        let shape = Shape { dialect: csv, fields: 2, trailing: false, padded: false };
        let check = |text: &str, shape: Shape, expected: &[[&str; 2]]| {
            let expected = expected.iter().map(|r| r.to_vec()).collect();
            assert_eq!(fields_of(text, shape), Ok(expected), "{text:?}");
        };
        let with = |dialect| Shape { dialect, ..shape };
        let comments = with(Dialect { comment: Some(b'#'), ..csv });
        let ab = [["a", "b"], ["c", "d"]];
        check("#x\n#,\"\na,b\n#\n\n#y,z\nc,d\n#,,", comments, &ab);
        check("a,b\nc,d#\n", comments, &[["a", "b"], ["c", "d#"]]);
        let spaces = with(Dialect { spaces: true, ..csv });
        check("a,  \"x,\ny\"\n  \"c\", d\n", spaces, &[["a", "  \"x,\ny\""], ["  \"c\"", " d"]]);
        let cr = with(Dialect { newline: b'\r', ..csv });
        check("a,b\rc,d\r\r", cr, &ab);
        check("a,\"b\n\"\rc,d", cr, &[["a", "\"b\n\""], ["c", "d"]]);
        let padded = Shape { padded: true, ..shape };
        check("a,b\nc\n\nd,", padded, &[["a", "b"], ["c", "-"], ["d", ""]]);
        assert!(fields_of("a,b,c\n", padded).is_err());
    }

    #[test]
    fn quotes_that_enclose_nothing_are_text() {
        let csv = Dialect { delimiter: b',', quote: Some(b'"'), ..Dialect::LINES };
        let check = |field: &str, expected: Option<&str>| {
            let mut scratch = Vec::new();
            let value = enclosed(field.as_bytes(), &csv, &mut scratch);
            assert_eq!(value, expected.map(str::as_bytes), "{field}");
        };
        check("\"a\"", Some("a"));
        check("\"a\"  ", Some("a"));
        check("\"Swing it\" magistern", Some("\"Swing it\" magistern"));
        check("\"a\" \"b\"", Some("\"a\" \"b\""));
        check("\"a\nb\"c", None);
    }

    #[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
    #[test]
    fn vectors_find_what_words_find() {
        let mut prng = thalweg_base::Prng::new(1);
        for _ in 0..10_000 {
            let alphabet = [b',', b'\n', b'"', b'x', 0, 0x80, 0xac];
            let bytes: [u8; STEP] =
                std::array::from_fn(|_| alphabet[prng.below(alphabet.len() as u64) as usize]);
            let (wide, narrow) = (Wanted::new(*b",\n\""), word::Wanted::new(*b",\n\""));
            let mask = wide.mask(&bytes);
            for (i, eight) in bytes.chunks_exact(word::STEP).enumerate() {
                let words = narrow.mask(eight.try_into().unwrap());
                for byte in 0..word::STEP {
                    let at = i * word::STEP + byte;
                    assert_eq!(
                        mask >> at & 1,
                        words >> (word::BITS as usize * byte + 7) & 1,
                        "{bytes:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn takes_quotes_off() {
        let check = |field: &str, escape: Option<u8>, expected: Option<&str>| {
            let mut scratch = Vec::new();
            assert_eq!(
                unquote(field.as_bytes(), b'"', escape, &mut scratch),
                expected.map(str::as_bytes),
                "{field}"
            );
        };
        check("\"\"", None, Some(""));
        check("\"abc\"", None, Some("abc"));
        check("\"a\"\"c\"", None, Some("a\"c"));
        check("\"\"\"\"", None, Some("\""));
        check("\"a\"c", None, None);
        check("\"a\"c\"", None, None);
        check("\"", None, None);
        check("\"a\\\"c\"", Some(b'\\'), Some("a\"c"));
        check("\"a\\\\\"", Some(b'\\'), Some("a\\"));
    }
}
