//! JSON files cut into blocks of whole records.
//!
//! Lines that hold one object each are cut at line ends, which costs next to nothing. All else (an
//! array of objects, objects over several lines) is cut between values by following brackets and
//! strings; what is within a value is looked at when it is read. Where each value lies goes with
//! the block.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use thalweg_base::limits::LOAD_RECORD_BYTES_MAX;
use thalweg_base::{Error, Result, text};

use super::block::{Block, Dialect, TextSource};
use super::book;
use super::input::{cannot, shown};
use super::json_options::{JsonForm, JsonOptions};
use super::json_value::{Scratch, Value, Wrong, array, check, object};
use super::layout::shortened;
use super::rejects::Position;
use super::sniff;
use super::text::{Head, open_text};

/// Reads one JSON file block by block.
pub(super) struct JsonSource {
    text: Text,
    /// Whether the records are values and not objects.
    values: bool,
}

enum Text {
    Lines(TextSource),
    Values(ValueSource),
}

impl JsonSource {
    /// `file` is its place among the files of the input; bytes read are added to `done`.
    pub(super) fn open(
        path: &Arc<PathBuf>,
        file: usize,
        options: &JsonOptions,
        block_bytes: usize,
        done: Arc<AtomicU64>,
    ) -> Result<JsonSource> {
        let stream = match &options.book {
            Some(book) => book::lines(path, book, &done)?,
            None => open_text(path, done, None, true)?.0,
        };
        let mut head = Head::new(stream);
        head.enough(path)?;
        let newline = sniff::newline(&head.bytes);
        let begin = head.bytes.trim_ascii_start();
        let lines = match options.form {
            JsonForm::Auto => in_lines(&head.bytes, head.whole, newline),
            JsonForm::Lines => true,
            JsonForm::Values => false,
            JsonForm::Array if matches!(begin, [] | [b'[', ..]) => false,
            JsonForm::Array => {
                return Err(Error::user(format!("{} holds no array", shown(path)))
                    .detail(format!("it begins with {}", shortened(begin)))
                    .hint("leave the option format out to have it found out"));
            }
        };
        let unwraps = options.form != JsonForm::Values;
        let values = match options.records {
            Some(objects) => !objects,
            None => holds_values(begin, !lines && unwraps),
        };
        let text = match lines {
            true => {
                let dialect = Dialect { newline, ..Dialect::LINES };
                let stream = head.into_stream();
                Text::Lines(TextSource::new(path, file, stream, dialect, 1, block_bytes))
            }
            false => Text::Values(ValueSource {
                path: Arc::clone(path),
                file,
                stream: head.into_stream(),
                block_bytes,
                carry: Vec::new(),
                cutter: Cutter { flat: !unwraps, ..Cutter::default() },
                record: 1,
            }),
        };
        Ok(JsonSource { text, values })
    }

    /// Where the next block begins.
    pub(super) fn position(&self) -> Position {
        match &self.text {
            Text::Lines(text) => text.position(),
            Text::Values(values) => Position { file: values.file, line: values.record },
        }
    }

    pub(super) fn next_block(&mut self) -> Result<Option<Block>> {
        let block = match &mut self.text {
            Text::Lines(text) => text.next_block(),
            Text::Values(values) => values.next_block(),
        }?;
        Ok(block.map(|block| Block { values: self.values, ..block }))
    }
}

/// Whether the first record, in an array if those are `unwrapped`, is a value and no object. Of what is no
/// JSON, objects are expected.
fn holds_values(begin: &[u8], unwrapped: bool) -> bool {
    let first = match begin {
        [b'[', rest @ ..] if unwrapped => rest.trim_ascii_start(),
        all => all,
    };
    matches!(first, [b'"' | b'[' | b'-' | b'0'..=b'9', ..])
        || [&b"true"[..], b"false", b"null"].iter().any(|word| first.starts_with(word))
}

/// Whether each line is to hold a record: the first does, or what begins there ends nowhere.
fn in_lines(head: &[u8], whole: bool, newline: u8) -> bool {
    let text = head.trim_ascii_start();
    let end = memchr::memchr(newline, text);
    let line = text[..end.unwrap_or(text.len())].trim_ascii();
    match text.first() {
        Some(b'{') => {}
        Some(b'[') => {
            let next = text[end.unwrap_or(text.len())..].trim_ascii_start();
            return next.first() == Some(&b'[') && is_array_of_values(line);
        }
        _ => return true,
    }
    let whole_object =
        |bytes: &[u8]| object(bytes, &mut Scratch::default(), |_, _| Ok::<(), Wrong>(())).is_ok();
    if whole_object(line) || (end.is_none() && !whole) {
        return true;
    }
    let mut cutter = Cutter::default();
    let cut = cutter.feed(text);
    match cutter.pieces.first() {
        Some(&(start, stop)) => !whole_object(&text[start as usize..stop as usize]),
        None => {
            whole
                || cut.is_err()
                || !line.ends_with(b"{") && !line.ends_with(b",") && !line.ends_with(b"[")
        }
    }
}

/// Whether a line is all of an array, of anything but objects.
fn is_array_of_values(line: &[u8]) -> bool {
    let mut of_objects = false;
    let whole = array(line, &mut Scratch::default(), |value| match value {
        Value::Nested(nested) => {
            of_objects |= !nested.is_array();
            check(nested)
        }
        _ => Ok(()),
    });
    whole.is_ok() && !of_objects
}

/// Reads values that follow each other, or are the elements of an array.
pub(super) struct ValueSource {
    path: Arc<PathBuf>,
    file: usize,
    stream: Box<dyn Read + Send>,
    block_bytes: usize,
    carry: Vec<u8>,
    cutter: Cutter,
    /// The number of the next record.
    record: u64,
}

impl ValueSource {
    fn next_block(&mut self) -> Result<Option<Block>> {
        let mut data = std::mem::take(&mut self.carry);
        data.reserve(self.block_bytes);
        let cut = loop {
            let read = self.stream.by_ref().take(self.block_bytes as u64).read_to_end(&mut data);
            let ended = read.map_err(|e| cannot("read", &self.path, e))? < self.block_bytes;
            let fed = self.cutter.feed(&data).map(|()| match ended {
                true => self.cutter.end(&data),
                false => Ok(()),
            });
            let found = self.cutter.pieces.last().map(|&(_, stop)| stop as usize);
            match (fed, found) {
                // What comes before a mistake is read first.
                (Err(_) | Ok(Err(_)), Some(stop)) => break stop,
                (Err(wrong) | Ok(Err(wrong)), None) => return Err(self.wrong(wrong)),
                (Ok(Ok(())), Some(stop)) => break if ended { data.len() } else { stop },
                (Ok(Ok(())), None) if ended => return Ok(None),
                (Ok(Ok(())), None) if data.len() > LOAD_RECORD_BYTES_MAX => {
                    return Err(self.too_long());
                }
                (Ok(Ok(())), None) => {}
            }
        };
        self.carry.extend_from_slice(&data[cut..]);
        data.truncate(cut);
        let pieces = std::mem::take(&mut self.cutter.pieces);
        self.cutter.moved(cut);
        let line = self.record;
        self.record += pieces.len() as u64;
        let path = Arc::clone(&self.path);
        let newline = b'\n';
        Ok(Some(Block {
            path,
            file: self.file,
            data,
            start: 0,
            line,
            newline,
            pieces: Some(pieces),
            values: false,
        }))
    }

    fn wrong(&self, wrong: Wrong) -> Error {
        Error::user(format!("{}, after row {}: {}", shown(&self.path), self.record - 1, wrong.what))
            .hint("the file must hold objects one after the other, or one array of them; is it cut short?")
    }

    fn too_long(&self) -> Error {
        let limit = text::bytes(LOAD_RECORD_BYTES_MAX as u64);
        Error::user(format!("{}, row {} is longer than {limit}", shown(&self.path), self.record))
            .hint("cut what is within it into records of their own: `jq -c '.rows[]' IN.json > OUT.jsonl`")
    }
}

/// Finds values in text that arrives piece by piece.
#[derive(Default)]
struct Cutter {
    scanned: usize,
    /// Where the value that is open begins.
    start: Option<usize>,
    /// Brackets open in it.
    depth: usize,
    string: bool,
    /// Within an array whose elements are the records.
    array: bool,
    /// A value has just ended: in an array a comma is due.
    due: bool,
    /// A comma has just been read.
    comma: bool,
    /// An array is a value like any other.
    flat: bool,
    pieces: Vec<(u32, u32)>,
}

impl Cutter {
    /// Scans what was added to `data`.
    fn feed(&mut self, data: &[u8]) -> Result<(), Wrong> {
        while self.scanned < data.len() {
            let at = self.scanned;
            if self.string {
                let next = memchr::memchr2(b'"', b'\\', &data[at..]).map(|n| at + n);
                match next {
                    Some(next) if data[next] == b'"' => {
                        self.string = false;
                        self.scanned = next + 1;
                        self.close_if_done();
                    }
                    Some(next) if next + 1 < data.len() => self.scanned = next + 2,
                    // The escaped byte has not been read yet: come back to the escape.
                    Some(next) => {
                        self.scanned = next;
                        return Ok(());
                    }
                    None => self.scanned = data.len(),
                }
                continue;
            }
            let byte = data[at];
            if let Some(start) = self.start {
                match byte {
                    b'"' if self.depth > 0 => self.string = true,
                    b'{' | b'[' if self.depth > 0 => self.depth += 1,
                    b'}' | b']' if self.depth > 0 => {
                        self.depth -= 1;
                        self.scanned += 1;
                        self.close_if_done();
                        continue;
                    }
                    // A word or a number.
                    b',' | b']' | b' ' | b'\t' | b'\r' | b'\n' if self.depth == 0 => {
                        self.close(start, at);
                        continue;
                    }
                    _ => {}
                }
                self.scanned += 1;
                continue;
            }
            self.between(byte, at)?;
        }
        Ok(())
    }

    /// Takes a byte between values.
    fn between(&mut self, byte: u8, at: usize) -> Result<(), Wrong> {
        let wrong = |what| Err(Wrong { at, what });
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {}
            b',' if self.array && self.due => (self.due, self.comma) = (false, true),
            b',' => return wrong("a comma stands where a value is expected"),
            b']' if self.array && !self.comma => (self.array, self.due) = (false, false),
            b']' | b'}' => return wrong("a bracket is closed where a value is expected"),
            _ if self.array && self.due => {
                return wrong("a comma or the end of the array is expected");
            }
            b'[' if !self.array && !self.flat => (self.array, self.due) = (true, false),
            _ => {
                self.comma = false;
                self.start = Some(at);
                self.depth = usize::from(matches!(byte, b'{' | b'['));
                self.string = byte == b'"';
            }
        }
        self.scanned = at + 1;
        Ok(())
    }

    fn close_if_done(&mut self) {
        if let (Some(start), 0) = (self.start, self.depth) {
            self.close(start, self.scanned);
        }
    }

    fn close(&mut self, start: usize, stop: usize) {
        // Blocks are below 4 GiB: a block's worth beyond the longest record at the most.
        self.pieces.push((start as u32, stop as u32));
        (self.start, self.due) = (None, true);
    }

    /// There is nothing after `data`.
    fn end(&mut self, data: &[u8]) -> Result<(), Wrong> {
        if let (Some(start), 0, false) = (self.start, self.depth, self.string) {
            self.close(start, data.len());
        }
        match (self.start, self.array) {
            (Some(at), _) => Err(Wrong { at, what: "a value begins and does not end" }),
            (None, true) => Err(Wrong { at: data.len(), what: "the array does not end" }),
            (None, false) => Ok(()),
        }
    }

    /// The first `bytes` are gone.
    fn moved(&mut self, bytes: usize) {
        self.scanned -= bytes.min(self.scanned);
        self.start = self.start.map(|start| start - bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Result<Vec<&str>, &'static str> {
        let whole = |step: usize| {
            let mut cutter = Cutter::default();
            let mut to = 0;
            while to < text.len() {
                to = (to + step).min(text.len());
                cutter.feed(&text.as_bytes()[..to])?;
            }
            cutter.end(text.as_bytes())?;
            Ok::<_, Wrong>(cutter.pieces)
        };
        let (at_once, bytewise) = (whole(usize::MAX / 2), whole(1));
        assert_eq!(at_once, bytewise, "{text}");
        let pieces = at_once.map_err(|wrong| wrong.what)?;
        Ok(pieces.iter().map(|&(a, b)| &text[a as usize..b as usize]).collect())
    }

    #[test]
    fn values_are_found() {
        let ok = |text: &str, expected: &[&str]| {
            assert_eq!(pieces(text).as_deref(), Ok(expected), "{text}");
        };
        ok("", &[]);
        ok(" \n", &[]);
        ok("[]", &[]);
        ok("[{\"a\":1}]", &["{\"a\":1}"]);
        ok("[ {\"a\":[1,{}]} ,\n{\"b\":\"}]\\\"\"} ]\n", &["{\"a\":[1,{}]}", "{\"b\":\"}]\\\"\"}"]);
        ok("{\n\"a\":1\n}\n{}{}", &["{\n\"a\":1\n}", "{}", "{}"]);
        ok("[1, \"x\", null,[2]] [true]", &["1", "\"x\"", "null", "[2]", "true"]);
        ok("1 2", &["1", "2"]);
        for bad in ["[{}", "[{}{}]", "[{},]", "[,{}]", "{\"a\":1", "{}]", "{},{}", "[\"x", "}"] {
            assert!(pieces(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn values_are_told_from_objects() {
        let check = |begin: &str, unwrapped: bool, expected: bool| {
            assert_eq!(holds_values(begin.as_bytes(), unwrapped), expected, "{begin}");
        };
        check("{\"a\":1}", true, false);
        check("[ {\"a\":1}]", true, false);
        check("[ {\"a\":1}]", false, true);
        check("[ 1, 2]", true, true);
        check("[[1]]", true, true);
        check("-1", true, true);
        check("\"x\"", true, true);
        check("null", true, true);
        check("hello", true, false);
        check("[]", true, false);
        check("", true, false);
    }

    #[test]
    fn lines_are_told_from_values() {
        let check = |text: &str, expected: bool| {
            assert_eq!(in_lines(text.as_bytes(), true, b'\n'), expected, "{text}");
        };
        check("{\"a\":1}\n{\"a\":2}\n", true);
        check("{\"a\":1", true);
        check("{\"a\":1\n{\"a\":2}\n", true);
        check("x\n", true);
        check("", true);
        check("[{\"a\":1}]", false);
        check("[\n]", false);
        check("{\n\"a\":1\n}\n{\n}", false);
        check("{ \"a\": 1\n, \"b\": 2 }", false);
        check("{\"a\":1}{\"a\":2}", false);
        check("[1,2]\n[3,4]\n", true);
        check("[[1],{}]\n[3,4]\n", false);
        check("[1,2]\n", false);
        check("[1,2]\n\n3\n", false);
        check("1\n2\n", true);
        assert!(!in_lines(b"{\n\"a\": [1,", false, b'\n'));
    }
}
