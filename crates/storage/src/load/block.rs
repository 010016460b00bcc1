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
use std::path::PathBuf;
use std::sync::Arc;

use thalweg_base::limits::LOAD_RECORD_BYTES_MAX;
use thalweg_base::{Error, Result, text};

use super::input::{cannot, shown};
use super::rejects::Position;

/// Which bytes mean something in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    pub delimiter: u8,
    pub quote: Option<u8>,
    pub escape: Option<u8>,
    /// Lines that begin with it are no records.
    pub comment: Option<u8>,
    /// Blanks may stand before a quote that opens a field.
    pub spaces: bool,
    /// What ends a line: LF, and then a CR before it belongs to it; or CR.
    pub newline: u8,
}

impl Dialect {
    /// Records are lines.
    pub(super) const LINES: Dialect = Dialect {
        delimiter: b'\n',
        quote: None,
        escape: None,
        comment: None,
        spaces: false,
        newline: b'\n',
    };

    /// Where the first line from `at` on begins that is no comment; `at` must begin a line.
    #[inline]
    pub(super) fn past_comments(&self, data: &[u8], mut at: usize) -> usize {
        if self.comment.is_some() {
            while data.get(at).copied() == self.comment && at < data.len() {
                let end = memchr::memchr(self.newline, &data[at..]);
                at = end.map_or(data.len(), |end| at + end + 1);
            }
        }
        at
    }
}

/// Whole records of one file, unpacked.
pub(super) struct Block {
    pub path: Arc<PathBuf>,
    /// Among the files of the input.
    pub file: usize,
    pub data: Vec<u8>,
    /// Where the records not yet consumed begin: past a header.
    pub start: usize,
    /// Line number of the first byte of `data`, from 1. Of JSON that is not in lines, the number
    /// of the first record.
    pub line: u64,
    /// What ends a line.
    pub newline: u8,
    /// Of JSON that is not in lines, where each record begins and ends.
    pub pieces: Option<Vec<(u32, u32)>>,
    /// Of JSON, whether each record is one value and not an object with a value for each column.
    pub values: bool,
}

impl Block {
    /// The line number of the byte at `at`.
    pub(super) fn line_of(&self, at: usize) -> u64 {
        self.line + count(self.newline, &self.data[..at.min(self.data.len())])
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
    /// Of JSON that is not in lines, the number of the record that begins there.
    pub(super) fn of(&mut self, block: &Block, at: usize) -> u64 {
        if let Some(pieces) = &block.pieces {
            return block.line + pieces.partition_point(|&(start, _)| (start as usize) < at) as u64;
        }
        if at < self.at {
            *self = Lines::default();
        }
        self.before += count(block.newline, &block.data[self.at..at]);
        self.at = at;
        block.line + self.before
    }
}

pub(super) fn count(byte: u8, bytes: &[u8]) -> u64 {
    memchr::memchr_iter(byte, bytes).count() as u64
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
    /// Text whose first record begins in line `line`; `file` is its place among the files of the
    /// input.
    pub(super) fn new(
        path: &Arc<PathBuf>,
        file: usize,
        stream: Box<dyn Read + Send>,
        dialect: Dialect,
        line: u64,
        block_bytes: usize,
    ) -> TextSource {
        TextSource {
            path: Arc::clone(path),
            file,
            stream,
            dialect,
            block_bytes,
            record_bytes_max: LOAD_RECORD_BYTES_MAX,
            carry: Vec::new(),
            line,
            first: true,
        }
    }

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
        let at_first = std::mem::take(&mut self.first);
        let mut cutter = Cutter::default();
        let newline = self.dialect.newline;
        let cut = loop {
            let read = self
                .stream
                .by_ref()
                .take(self.block_bytes as u64)
                .read_to_end(&mut data)
                .map_err(|e| cannot("read", &self.path, e))?;
            let end = cutter.feed(&data, self.dialect);
            if read < self.block_bytes {
                if let Some(at) = cutter.open_quote() {
                    return Err(self.unclosed(&data, at));
                }
                break data.len();
            }
            let has_line = |end: &usize| {
                let from = self.dialect.past_comments(&data[..*end], 0);
                data[from..*end].iter().any(|b| !b"\r\n".contains(b))
            };
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
        self.line += count(newline, &data);
        let path = Arc::clone(&self.path);
        let (file, start, pieces) = (self.file, 0, None);
        Ok(Some(Block { path, file, data, start, line, newline, pieces, values: false }))
    }

    fn unclosed(&self, data: &[u8], at: usize) -> Error {
        Error::user(format!(
            "{}, line {}: a quoted field is opened here and never closed",
            shown(&self.path),
            self.line + count(self.dialect.newline, &data[..at])
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
                    self.line + count(self.dialect.newline, &data[..at])
                ))
                .hint("close the quote, or read the file without quotes (`--quote none`)"),
            None => error.hint("records must end in LF or CRLF; is this a text file?"),
        }
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
    fn open_quote(&self) -> Option<usize> {
        self.opened
    }

    /// Scans what was added to `data`; the end of the last whole record in it, if there is one.
    fn feed(&mut self, data: &[u8], dialect: Dialect) -> Option<usize> {
        let Some(quote) = dialect.quote else {
            if let Some(at) = memchr::memrchr(dialect.newline, &data[self.scanned..]) {
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
                self.line_end(data, dialect.newline, at, next.unwrap_or(data.len()));
                let Some(next) = next else {
                    at = data.len();
                    break;
                };
                let mut before = next;
                if dialect.spaces {
                    let blank = |b: &u8| *b == b' ';
                    let blanks = data[self.closed..next].iter().rev().take_while(|b| blank(b));
                    before -= blanks.count();
                }
                // At the very beginning nothing has been closed yet.
                let field_start = next == self.closed
                    || before == 0
                    || data[before - 1] == dialect.delimiter
                    || data[before - 1] == dialect.newline;
                if field_start && !self.in_comment(data, next, dialect) {
                    self.opened = Some(next);
                }
                at = next + 1;
            }
        }
        self.scanned = at;
        self.end
    }

    fn line_end(&mut self, data: &[u8], newline: u8, from: usize, to: usize) {
        if let Some(at) = memchr::memrchr(newline, &data[from..to]) {
            self.end = Some(from + at + 1);
        }
    }

    /// Whether the line of the byte at `at`, which is not between quotes, is a comment. A line
    /// that has been quoted in is none.
    fn in_comment(&self, data: &[u8], at: usize, dialect: Dialect) -> bool {
        let Some(comment) = dialect.comment else { return false };
        let begin = match memchr::memrchr(dialect.newline, &data[self.closed..at]) {
            Some(end) => self.closed + end + 1,
            None if self.closed == 0 => 0,
            None => return false,
        };
        data[begin] == comment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: Dialect = Dialect { delimiter: b',', quote: Some(b'"'), ..Dialect::LINES };

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
        check("a,\"x\ry\"\rz", Dialect { newline: b'\r', ..CSV }, Some(8));
        let commented = Dialect { comment: Some(b'#'), ..CSV };
        check("#,\"\na\n", commented, Some(6));
        check("a,\"x\n\"\n#,\"\nz", commented, Some(11));
        check("a,\"x\n#,\"\nz", commented, Some(9));
        let spaced = Dialect { spaces: true, ..CSV };
        check("a,  \"x\ny\"\nz", spaced, Some(10));
        check(" \"x\ny\"\nz", spaced, Some(7));
        check("a,  \"x\ny\"\nz", CSV, Some(10));
    }
}
