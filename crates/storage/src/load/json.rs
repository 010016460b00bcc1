//! JSON objects into typed batches.
//!
//! A record is a flat object. Its values go to the same builders as fields of CSV do,
//! as the bytes between their delimiters, so numbers never pass through a double: decimals stay
//! exact. A nested value fits only a text column, which then holds its JSON text.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, BooleanBufferBuilder, RecordBatch, Scalar};
use arrow::compute::kernels::zip::zip;
use parking_lot::Mutex;
use thalweg_base::limits::BATCH_ROWS;
use thalweg_base::{Error, Result};

use super::block::{Block, Lines};
use super::columns::{Column, Sink, each};
use super::csv::{batch_of, finish, new_columns};
use super::layout::{
    Fault, Layout, Matched, UNKNOWN_HINT, shortened, unknown_to_the_table, what_the_table_has,
};
use super::parse::Bad;
use super::rejects::{Faults, Position};

/// A value of an object, as bytes; strings are unescaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Null,
    Boolean(&'a [u8]),
    Number(&'a [u8]),
    Text(&'a [u8]),
    /// An array or object, unparsed.
    Nested(&'a [u8]),
}

/// What is wrong with a line, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub at: usize,
    pub what: &'static str,
}

/// Reads the object that `line` is, which may have line ends in it, and calls `each` for its members in order.
pub(super) fn object<E: From<Wrong>>(
    line: &[u8],
    scratch: &mut Scratch,
    mut each: impl FnMut(&[u8], Value<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut at = blanks(line, 0);
    expect(line, &mut at, b'{', "an object is expected")?;
    at = blanks(line, at);
    if line.get(at) == Some(&b'}') {
        return end(line, at + 1).map_err(E::from);
    }
    loop {
        at = blanks(line, at);
        expect(line, &mut at, b'"', "a key in double quotes is expected")?;
        let key = string(line, &mut at, &mut scratch.key)?;
        at = blanks(line, at);
        expect(line, &mut at, b':', "a colon is expected")?;
        at = blanks(line, at);
        let value = value(line, &mut at, &mut scratch.value)?;
        each(key, value)?;
        at = blanks(line, at);
        match line.get(at) {
            Some(b',') => at += 1,
            Some(b'}') => return end(line, at + 1).map_err(E::from),
            Some(_) => {
                return Err(Wrong { at, what: "a comma or a closing brace is expected" }.into());
            }
            None => return Err(Wrong { at, what: "the object does not end on its line" }.into()),
        }
    }
}

/// Room for strings that need unescaping.
#[derive(Default)]
pub(super) struct Scratch {
    key: Vec<u8>,
    value: Vec<u8>,
}

fn blanks(line: &[u8], at: usize) -> usize {
    at + line[at..].iter().take_while(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n')).count()
}

fn end(line: &[u8], at: usize) -> Result<(), Wrong> {
    let at = blanks(line, at);
    if at == line.len() { Ok(()) } else { Err(Wrong { at, what: "text follows the object" }) }
}

fn expect(line: &[u8], at: &mut usize, byte: u8, what: &'static str) -> Result<(), Wrong> {
    match line.get(*at) {
        Some(&b) if b == byte => {
            *at += 1;
            Ok(())
        }
        Some(_) => Err(Wrong { at: *at, what }),
        None => Err(Wrong { at: *at, what: "the object does not end on its line" }),
    }
}

/// The string whose opening quote is just before `at`.
fn string<'a>(line: &'a [u8], at: &mut usize, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], Wrong> {
    let start = *at;
    let unclosed = Wrong { at: start, what: "a string is not closed" };
    let next =
        |from: usize| memchr::memchr2(b'"', b'\\', &line[from..]).map(|n| from + n).ok_or(unclosed);
    let mut stop = next(start)?;
    if line[stop] == b'"' {
        *at = stop + 1;
        return Ok(&line[start..stop]);
    }
    scratch.clear();
    let mut from = start;
    while line[stop] == b'\\' {
        scratch.extend_from_slice(&line[from..stop]);
        from = stop + 2;
        let plain = match line.get(stop + 1) {
            Some(&b @ (b'"' | b'\\' | b'/')) => b,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => {
                let (char, length) =
                    unicode(&line[stop..]).ok_or(Wrong { at: stop, what: "a bad \\u escape" })?;
                scratch.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
                from = stop + length;
                stop = next(from)?;
                continue;
            }
            Some(_) => return Err(Wrong { at: stop, what: "an unknown escape" }),
            None => return Err(unclosed),
        };
        scratch.push(plain);
        stop = next(from)?;
    }
    scratch.extend_from_slice(&line[from..stop]);
    *at = stop + 1;
    Ok(scratch)
}

/// The character of a `\uXXXX` escape, or of a surrogate pair of them, and its length.
fn unicode(escape: &[u8]) -> Option<(char, usize)> {
    let unit = |at: usize| -> Option<u32> {
        let digits = escape.get(at..at + 6)?.strip_prefix(b"\\u")?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    match unit(0)? {
        high @ 0xd800..=0xdbff => {
            let low = unit(6).filter(|low| (0xdc00..=0xdfff).contains(low))?;
            Some((char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))?, 12))
        }
        unit => Some((char::from_u32(unit)?, 6)),
    }
}

fn value<'a>(line: &'a [u8], at: &mut usize, scratch: &'a mut Vec<u8>) -> Result<Value<'a>, Wrong> {
    let start = *at;
    match line.get(start) {
        Some(b'"') => {
            *at += 1;
            string(line, at, scratch).map(Value::Text)
        }
        Some(b'{' | b'[') => nested(line, at).map(Value::Nested),
        Some(_) => {
            let ends = |b: &u8| matches!(b, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n');
            let token = &line[start..];
            let token = &token[..token.iter().position(ends).unwrap_or(token.len())];
            *at = start + token.len();
            match token {
                b"null" => Ok(Value::Null),
                b"true" | b"false" => Ok(Value::Boolean(token)),
                _ if number(token) => Ok(Value::Number(token)),
                _ => Err(Wrong { at: start, what: "not a JSON value" }),
            }
        }
        None => Err(Wrong { at: start, what: "the object does not end on its line" }),
    }
}

/// RFC 8259's grammar: `-? int frac? exp?`.
fn number(token: &[u8]) -> bool {
    let digits = |t: &[u8]| t.iter().take_while(|b| b.is_ascii_digit()).count();
    let mut rest = token.strip_prefix(b"-").unwrap_or(token);
    let whole = digits(rest);
    if whole == 0 || (whole > 1 && rest[0] == b'0') {
        return false;
    }
    rest = &rest[whole..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let count = digits(fraction);
        if count == 0 {
            return false;
        }
        rest = &fraction[count..];
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let exponent =
            exponent.strip_prefix(b"+").or(exponent.strip_prefix(b"-")).unwrap_or(exponent);
        return digits(exponent) > 0 && digits(exponent) == exponent.len();
    }
    rest.is_empty()
}

/// An array or object by its balanced brackets; what is between them is taken as it is.
fn nested<'a>(line: &'a [u8], at: &mut usize) -> Result<&'a [u8], Wrong> {
    let start = *at;
    let mut open: Vec<u8> = Vec::new();
    let mut unused = Vec::new();
    while let Some(&byte) = line.get(*at) {
        *at += 1;
        match byte {
            b'"' => {
                string(line, at, &mut unused)?;
            }
            b'{' => open.push(b'}'),
            b'[' => open.push(b']'),
            b'}' | b']' => {
                if open.pop() != Some(byte) {
                    return Err(Wrong { at: *at - 1, what: "brackets do not match" });
                }
                if open.is_empty() {
                    return Ok(&line[start..*at]);
                }
            }
            _ => {}
        }
    }
    Err(Wrong { at: *at, what: "the object does not end on its line" })
}

/// The records of a block from `pos` on: where the next begins and ends. Blank lines are none.
pub(super) fn next_record(block: &Block, pos: &mut usize) -> Option<(usize, usize)> {
    if let Some(pieces) = &block.pieces {
        let &(start, stop) = pieces.get(*pos)?;
        *pos += 1;
        return Some((start as usize, stop as usize));
    }
    while *pos < block.data.len() {
        let start = *pos;
        let end = memchr::memchr(block.newline, &block.data[start..]);
        let stop = end.map_or(block.data.len(), |n| start + n);
        *pos = stop + 1;
        if !block.data[start..stop].trim_ascii().is_empty() {
            return Some((start, stop));
        }
    }
    None
}

/// What is wrong with the line that begins at `start`.
fn wrong_fault(block: &Block, start: usize, wrong: Wrong) -> Fault {
    let line = &block.data[start..];
    let (reason, detail, hint) = if line.first() == Some(&b'[') {
        (
            "a JSON array, where an object is expected".into(),
            None,
            "its elements become rows if it is the only one in the file; else convert it first: `jq -c '.[]' IN.json > OUT.jsonl`",
        )
    } else {
        let rest = &line[wrong.at.min(line.len())..];
        let rest = &rest[..memchr::memchr(b'\n', rest).unwrap_or(rest.len())];
        (
            format!("character {}: {}", wrong.at + 1, wrong.what),
            (!rest.is_empty()).then(|| format!("the text there is {}", shortened(rest))),
            "the file must hold objects, one a line or one after the other, or an array of them",
        )
    };
    Fault { column: None, value: None, reason, detail, hint: hint.into() }
}

/// Reports a line that is no object.
pub(super) fn report(
    block: &Block,
    (start, stop): (usize, usize),
    lines: &mut Lines,
    faults: &Faults,
    wrong: Wrong,
) {
    let line = lines.of(block, start);
    let reject = wrong_fault(block, start, wrong).in_block(block, line, start, stop);
    faults.reject(Position { file: block.file, line }, reject);
}

/// The batches of one block.
pub(super) struct JsonBatches {
    block: Block,
    layout: Arc<Layout>,
    faults: Arc<Faults>,
    matched: Arc<Mutex<Matched>>,
    pos: usize,
    columns: Vec<Column>,
    /// The column each key of the last record went to, in its order: the next record's guess.
    /// `None`: a key that is left out.
    keys: Vec<(Vec<u8>, Option<usize>)>,
    /// Per column the number of the last row that had a value for it.
    seen: Vec<usize>,
    /// Per column with a default, the rows that have it.
    defaulted: Vec<Vec<usize>>,
    /// Keys met that the table has no column for.
    ignored: BTreeSet<String>,
    lines: Lines,
    scratch: Scratch,
}

enum Stop {
    Wrong(Wrong),
    Unknown(String),
    Twice(usize),
    Bad(usize, Bad, Vec<u8>),
}

impl From<Wrong> for Stop {
    fn from(wrong: Wrong) -> Self {
        Stop::Wrong(wrong)
    }
}

impl JsonBatches {
    /// The place of the file among those of the input.
    pub(super) fn file(&self) -> usize {
        self.block.file
    }

    /// `layout` must map every column of the table to itself: any of them may turn up.
    pub(super) fn new(
        block: Block,
        layout: Arc<Layout>,
        faults: Arc<Faults>,
        matched: Arc<Mutex<Matched>>,
    ) -> JsonBatches {
        JsonBatches {
            pos: block.start,
            block,
            layout,
            faults,
            matched,
            columns: Vec::new(),
            keys: Vec::new(),
            seen: Vec::new(),
            defaulted: Vec::new(),
            ignored: BTreeSet::new(),
            lines: Lines::default(),
            scratch: Scratch::default(),
        }
    }

    /// The next at most `BATCH_ROWS` rows.
    pub(super) fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.faults.settled(self.block.position()) {
            return Ok(None);
        }
        let layout = Arc::clone(&self.layout);
        if self.columns.is_empty() {
            // A record takes two bytes at least.
            let rows = self.block.pieces.as_ref().map_or(self.block.data.len() / 2, Vec::len);
            self.columns = new_columns(&layout, rows)?;
            self.defaulted.resize(self.columns.len(), Vec::new());
        }
        self.seen.clear();
        self.seen.resize(self.columns.len(), 0);
        let mut rows = 0;
        let mut dropped = Vec::new();
        while rows < BATCH_ROWS {
            let Some((start, stop)) = next_record(&self.block, &mut self.pos) else { break };
            rows += 1;
            if let Err(why) = self.row(start, stop, rows) {
                dropped.push(rows - 1);
                self.reject(start, stop, why);
                for (column, _) in
                    self.columns.iter_mut().zip(&self.seen).filter(|(_, last)| **last != rows)
                {
                    each!(column, sink => sink.null());
                }
            }
        }
        if rows == 0 {
            return Ok(None);
        }
        let mut arrays = finish(&layout, &mut self.columns)?;
        for (target, rows) in self.defaulted.iter_mut().enumerate().filter(|(_, r)| !r.is_empty()) {
            if let (Some(array), Some(value)) =
                (&mut arrays[target], &layout.columns.defaults[target])
            {
                *array = with_defaults(array, value, rows)?;
            }
            rows.clear();
        }
        batch_of(&layout, arrays, rows, &dropped).map(Some)
    }

    fn row(&mut self, start: usize, stop: usize, row: usize) -> Result<(), Stop> {
        let Self { block, layout, columns, keys, seen, defaulted, ignored, .. } = self;
        let (matched, scratch) = (&self.matched, &mut self.scratch);
        let schema = &layout.columns.schema;
        let mut position = 0;
        object(&block.data[start..stop], scratch, |key, value| {
            let target = match keys.get(position) {
                Some((known, target)) if known == key => *target,
                _ => {
                    let name = String::from_utf8_lossy(key);
                    let target = layout.finder().find(&name);
                    if target.is_none() {
                        if !layout.columns.ignore_unknown {
                            return Err(Stop::Unknown(name.into_owned()));
                        }
                        if ignored.insert(name.clone().into_owned()) {
                            let mut matched = matched.lock();
                            matched.ignored.entry(name.into()).or_default().insert(block.file);
                        }
                    }
                    keys.truncate(position);
                    keys.push((key.to_vec(), target));
                    target
                }
            };
            position += 1;
            let Some(target) = target else { return Ok(()) };
            if seen[target] == row {
                return Err(Stop::Twice(target));
            }
            let nullable = schema.field(target).is_nullable();
            each!(&mut columns[target], sink => put(sink, value, nullable))
                .map_err(|(bad, bytes)| Stop::Bad(target, bad, bytes.to_vec()))?;
            seen[target] = row;
            Ok(())
        })?;
        for target in 0..seen.len() {
            if seen[target] == row {
                continue;
            }
            if layout.columns.defaults[target].is_some() {
                defaulted[target].push(row - 1);
            } else if !schema.field(target).is_nullable() {
                return Err(Stop::Bad(target, Bad::Null, Vec::new()));
            }
            each!(&mut columns[target], sink => sink.null());
            seen[target] = row;
        }
        Ok(())
    }

    fn reject(&mut self, start: usize, stop: usize, why: Stop) {
        let schema = &self.layout.columns.schema;
        let fault = match why {
            Stop::Wrong(what) => wrong_fault(&self.block, start, what),
            Stop::Unknown(key) => Fault {
                column: None,
                value: None,
                reason: unknown_to_the_table(&[key]),
                detail: Some(what_the_table_has(schema)),
                hint: UNKNOWN_HINT.into(),
            },
            Stop::Twice(target) => Fault {
                column: Some(schema.field(target).name().clone()),
                value: None,
                reason: "two values for one column".into(),
                detail: None,
                hint: "keys are matched without regard to case; rename one of them".into(),
            },
            Stop::Bad(target, bad, value) => self.layout.fault(target, &value, bad),
        };
        let line = self.lines.of(&self.block, start);
        let reject = fault.in_block(&self.block, line, start, stop);
        self.faults.reject(Position { file: self.block.file, line }, reject);
    }
}

/// `array` with `value` in some rows.
fn with_defaults(array: &ArrayRef, value: &ArrayRef, rows: &[usize]) -> Result<ArrayRef> {
    let mut mask = BooleanBufferBuilder::new(array.len());
    mask.append_n(array.len(), false);
    rows.iter().for_each(|&row| mask.set_bit(row, true));
    let mask = BooleanArray::new(mask.finish(), None);
    zip(&mask, &Scalar::new(value.clone()), array)
        .map_err(|e| Error::internal(format!("cannot fill in a default value: {e}")))
}

#[inline]
fn put<'v, S: Sink>(sink: &mut S, value: Value<'v>, nullable: bool) -> Result<(), (Bad, &'v [u8])> {
    match value {
        Value::Null if nullable => {
            sink.null();
            Ok(())
        }
        Value::Null => Err((Bad::Null, b"null")),
        Value::Nested(bytes) if !S::TEXT => Err((Bad::Syntax, bytes)),
        Value::Boolean(bytes)
        | Value::Number(bytes)
        | Value::Text(bytes)
        | Value::Nested(bytes) => sink.value(bytes).map_err(|bad| (bad, bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(line: &str) -> Result<Vec<(String, String)>, Wrong> {
        let mut out = Vec::new();
        object(line.as_bytes(), &mut Scratch::default(), |key, value| {
            let value = match value {
                Value::Null => "null".into(),
                Value::Boolean(b) => format!("b:{}", String::from_utf8_lossy(b)),
                Value::Number(b) => format!("n:{}", String::from_utf8_lossy(b)),
                Value::Text(b) => format!("t:{}", String::from_utf8_lossy(b)),
                Value::Nested(b) => format!("x:{}", String::from_utf8_lossy(b)),
            };
            out.push((String::from_utf8_lossy(key).into_owned(), value));
            Ok::<(), Wrong>(())
        })?;
        Ok(out)
    }

    #[test]
    fn reads_objects() {
        let check = |line: &str, expected: &[(&str, &str)]| {
            let expected = expected.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            assert_eq!(members(line), Ok(expected), "{line}");
        };
        check("{}", &[]);
        check(" { \"a\" : 1 , \"b\":null}\r", &[("a", "n:1"), ("b", "null")]);
        check(
            r#"{"a":"x\n\"\u00e9\ud83d\ude00\\","b":true}"#,
            &[("a", "t:x\n\"é😀\\"), ("b", "b:true")],
        );
        check(
            r#"{"a":{"b":["}",1]},"c":-1.5e+3}"#,
            &[("a", r#"x:{"b":["}",1]}"#), ("c", "n:-1.5e+3")],
        );
    }

    #[test]
    fn refuses_what_is_not_an_object() {
        for line in [
            "",
            "[1]",
            "1",
            "{",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\":1,}",
            "{\"a\":01}",
            "{\"a\":1.}",
            "{\"a\":+1}",
            "{\"a\":tru}",
            "{\"a\":\"x}",
            "{\"a\":[1}",
            "{\"a\":\"\\q\"}",
            "{\"a\":\"\\ud800\"}",
            "{\"a\":1} x",
            "{a:1}",
            "{\"a\":1 \"b\":2}",
            "{\"a\":\"\\",
            "{\"a\":\"\\u12",
        ] {
            assert!(members(line).is_err(), "{line}");
        }
    }
}
