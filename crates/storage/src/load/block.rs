//! Text files cut into blocks of whole records.
//!
//! ```text
//!   file   │ a,b⏎ 1,2⏎ 3,"x⏎y"⏎ 4,5⏎ ...
//!   read   │ ──────── block_bytes ────────┤
//!   block  │ a,b⏎ 1,2⏎ ┤                     cut after the last record end;
//!   carry  │            3,"x               the rest starts the next block
//! ```
//!
//! Only the cutter sees the text in order, so it alone knows whether a line end is quoted. It
//! jumps from quote to quote with `memchr`; text without quotes costs one backward search.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use thalweg_base::limits::LOAD_RECORD_BYTES_MAX;
use thalweg_base::{Error, Result, text};

use super::input::{cannot, open, shown};
use super::rejects::Position;

/// Which bytes mean something in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    pub delimiter: u8,
    pub quote: Option<u8>,
    pub escape: Option<u8>,
}

impl Dialect {
    /// Records are lines.
    pub(super) const LINES: Dialect = Dialect { delimiter: b'\n', quote: None, escape: None };
}

/// Whole records of one file, unpacked.
pub(super) struct Block {
    pub path: Arc<PathBuf>,
    /// Among the files of the input.
    pub file: usize,
    pub data: Vec<u8>,
    /// Where the records not yet consumed begin: past a byte-order mark or header.
    pub start: usize,
    /// Line number of the first byte of `data`, from 1.
    pub line: u64,
}

impl Block {
    /// The line number of the byte at `at`.
    pub(super) fn line_of(&self, at: usize) -> u64 {
        self.line + newlines(&self.data[..at.min(self.data.len())])
    }

    /// Where the block begins.
    pub(super) fn position(&self) -> Position {
        Position { file: self.file, line: self.line }
    }
}

/// Line numbers of bytes of one block, asked for in nearly ascending order.
#[derive(Default)]
pub(super) struct Lines {
    at: usize,
    before: u64,
}

impl Lines {
    pub(super) fn of(&mut self, block: &Block, at: usize) -> u64 {
        if at < self.at {
            *self = Lines::default();
        }
        self.before += newlines(&block.data[self.at..at]);
        self.at = at;
        block.line + self.before
    }
}

pub(super) fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// Reads one text file block by block.
pub(super) struct TextSource {
    path: Arc<PathBuf>,
    file: usize,
    stream: Box<dyn Read + Send>,
    dialect: Dialect,
    block_bytes: usize,
    record_bytes_max: usize,
    carry: Vec<u8>,
    line: u64,
    first: bool,
}

impl TextSource {
    /// `file` is its place among the files of the input; bytes read are added to `done`.
    pub(super) fn open(
        path: &Arc<PathBuf>,
        file: usize,
        dialect: Dialect,
        block_bytes: usize,
        done: Arc<AtomicU64>,
    ) -> Result<TextSource> {
        let (stream, _) = open(path, done)?;
        Ok(TextSource {
            path: Arc::clone(path),
            file,
            stream,
            dialect,
            block_bytes,
            record_bytes_max: LOAD_RECORD_BYTES_MAX,
            carry: Vec::new(),
            line: 1,
            first: true,
        })
    }

    #[cfg(test)]
    pub(super) fn with_record_bytes_max(mut self, bytes: usize) -> Self {
        self.record_bytes_max = bytes;
        self
    }

    /// Where the next block begins.
    pub(super) fn position(&self) -> Position {
        Position { file: self.file, line: self.line }
    }

    /// The next block; it ends at a record's end. `None` at the end of the file. The first one
    /// has a line that is not blank, if there is any: it is what tells how blank ones are meant.
    pub(super) fn next_block(&mut self) -> Result<Option<Block>> {
        let mut data = std::mem::take(&mut self.carry);
        data.reserve(self.block_bytes);
        let (mut start, at_first) = (0, self.first);
        let mut cutter = Cutter::default();
        let cut = loop {
            let read = self
                .stream
                .by_ref()
                .take(self.block_bytes as u64)
                .read_to_end(&mut data)
                .map_err(|e| cannot("read", &self.path, e))?;
            if std::mem::take(&mut self.first) {
                start = byte_order_mark(&self.path, &data)?;
                cutter.from(start);
            }
            let end = cutter.feed(&data, self.dialect);
            if read < self.block_bytes {
                if let Some(at) = cutter.open_quote() {
                    return Err(self.unclosed(&data, at));
                }
                break data.len();
            }
            let has_line = |end: &usize| data[start..*end].iter().any(|b| !b"\r\n".contains(b));
            if let Some(end) = end.filter(|end| !at_first || has_line(end)) {
                break end;
            }
            if data.len() > self.record_bytes_max {
                return Err(self.too_long(&data, cutter.open_quote()));
            }
        };
        if cut == 0 {
            return Ok(None);
        }
        self.carry.extend_from_slice(&data[cut..]);
        data.truncate(cut);
        let line = self.line;
        self.line += newlines(&data);
        Ok(Some(Block { path: Arc::clone(&self.path), file: self.file, data, start, line }))
    }

    fn unclosed(&self, data: &[u8], at: usize) -> Error {
        Error::user(format!(
            "{}, line {}: a quoted field is opened here and never closed",
            shown(&self.path),
            self.line + newlines(&data[..at])
        ))
        .hint("double the quotes inside a quoted field, or read the file without quotes (`--quote none`)")
    }

    fn too_long(&self, data: &[u8], quote: Option<usize>) -> Error {
        let limit = text::bytes(self.record_bytes_max as u64);
        let error = Error::user(format!(
            "{}, line {}: the record that starts here is longer than {limit}",
            shown(&self.path),
            self.line
        ));
        match quote {
            Some(at) => error
                .detail(format!(
                    "a quote opened in line {} is not closed within it",
                    self.line + newlines(&data[..at])
                ))
                .hint("close the quote, or read the file without quotes (`--quote none`)"),
            None => error.hint("records must end in LF or CRLF; is this a text file?"),
        }
    }
}

/// Length of a UTF-8 byte-order mark; the marks of other encodings are errors.
fn byte_order_mark(path: &Path, data: &[u8]) -> Result<usize> {
    match data {
        [0xef, 0xbb, 0xbf, ..] => Ok(3),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            Err(Error::user(format!("{} is UTF-16, not UTF-8", shown(path)))
                .hint("convert it first, for example `iconv -f UTF-16 -t UTF-8 IN > OUT`"))
        }
        _ => Ok(0),
    }
}

/// Finds record ends in text that arrives piece by piece.
///
/// A quote opens a field only where a field begins, or directly after the quote that closed it (a
/// doubled quote closes and opens again); elsewhere outside quotes it is an ordinary character.
#[derive(Default)]
struct Cutter {
    scanned: usize,
    /// Where the quoted part that is open began.
    opened: Option<usize>,
    /// First byte after the last closing quote.
    closed: usize,
    /// First byte after the last record end found.
    end: Option<usize>,
}

impl Cutter {
    fn from(&mut self, start: usize) {
        self.scanned = start;
        self.closed = start;
    }

    fn open_quote(&self) -> Option<usize> {
        self.opened
    }

    /// Scans what was added to `data`; the end of the last whole record in it, if there is one.
    fn feed(&mut self, data: &[u8], dialect: Dialect) -> Option<usize> {
        let Some(quote) = dialect.quote else {
            if let Some(at) = memchr::memrchr(b'\n', &data[self.scanned..]) {
                self.end = Some(self.scanned + at + 1);
            }
            self.scanned = data.len();
            return self.end;
        };
        // Starting again at the last closing quote is free, and the search below needs it.
        let mut at = self.scanned;
        while at < data.len() {
            if self.opened.is_some() {
                let next = match dialect.escape {
                    Some(escape) if escape != quote => memchr::memchr2(quote, escape, &data[at..]),
                    _ => memchr::memchr(quote, &data[at..]),
                };
                let Some(next) = next.map(|n| at + n) else {
                    at = data.len();
                    break;
                };
                if data[next] == quote {
                    self.opened = None;
                    self.closed = next + 1;
                    at = next + 1;
                } else if next + 2 <= data.len() {
                    at = next + 2;
                } else {
                    // The escaped byte has not been read yet: come back to the escape.
                    at = next;
                    break;
                }
            } else {
                let next = memchr::memchr(quote, &data[at..]).map(|n| at + n);
                self.line_end(data, at, next.unwrap_or(data.len()));
                let Some(next) = next else {
                    at = data.len();
                    break;
                };
                let field_start = next == self.closed
                    || data[next - 1] == dialect.delimiter
                    || data[next - 1] == b'\n';
                if field_start {
                    self.opened = Some(next);
                }
                at = next + 1;
            }
        }
        self.scanned = at;
        self.end
    }

    fn line_end(&mut self, data: &[u8], from: usize, to: usize) {
        if let Some(at) = memchr::memrchr(b'\n', &data[from..to]) {
            self.end = Some(from + at + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: Dialect = Dialect { delimiter: b',', quote: Some(b'"'), escape: None };

    #[test]
    fn cuts_after_the_last_unquoted_line_end() {
        let check = |text: &str, dialect: Dialect, expected: Option<usize>| {
            let mut whole = Cutter::default();
            assert_eq!(whole.feed(text.as_bytes(), dialect), expected, "{text:?}");
            let mut piecewise = Cutter::default();
            let mut end = None;
            for to in 1..=text.len() {
                end = piecewise.feed(&text.as_bytes()[..to], dialect);
            }
            assert_eq!(end, expected, "{text:?} byte by byte");
            assert_eq!(piecewise.opened, whole.opened, "{text:?}");
        };
        check("a,b", CSV, None);
        check("a,b\n", CSV, Some(4));
        check("a\nb\nc", CSV, Some(4));
        check("a,\"x\ny", CSV, None);
        check("a\n\"x\ny", CSV, Some(2));
        check("\"x\ny\"\nz", CSV, Some(6));
        check("\"x\"\"\ny\"\nz", CSV, Some(8));
        check("5\" pipe\nz", CSV, Some(8));
        check("\"\"\n", CSV, Some(3));
        let escaped = Dialect { escape: Some(b'\\'), ..CSV };
        check("\"x\\\"\n\"\nz", escaped, Some(7));
        check("\"x\n", Dialect { quote: None, ..CSV }, Some(3));
    }
}
