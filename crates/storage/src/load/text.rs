//! Text files as UTF-8, from their first record on.
//!
//! A byte-order mark says the encoding. Without one text is UTF-8, and if it is not, which the
//! first character beyond ASCII shows, Windows-1252, of which Latin-1 is a part. The head of a
//! file is looked at to find out its dialect (`sniff.rs`); what stands above the first record is
//! read and dropped here, so that nobody else has to know of it.

use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use encoding_rs::{Decoder, DecoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};
use thalweg_base::Result;

use super::block::{TextSource, count};
use super::input::{CsvOptions, cannot, open};
use super::sniff::{self, Found};

/// Bytes of a file looked at to tell its format and its dialect.
pub(super) const SNIFF_BYTES: usize = 256 * 1024;

/// Bytes looked at if there are hardly any lines in [`SNIFF_BYTES`].
const SNIFF_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Lines that are enough to tell the dialect of wide files.
const SNIFF_LINES: u64 = 16;

/// Bytes read and decoded at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// Which encoding a file turned out to have, as far as it was read.
#[derive(Clone)]
pub(super) struct Heard {
    encoding: &'static Encoding,
    /// It was taken for UTF-8, but is Windows-1252.
    western: Arc<AtomicBool>,
}

impl Heard {
    pub(super) fn encoding(&self) -> &'static Encoding {
        if self.western.load(Ordering::Acquire) { WINDOWS_1252 } else { self.encoding }
    }
}

/// Text from a stream of bytes; reads UTF-8.
struct Decoded {
    inner: Box<dyn Read + Send>,
    state: State,
    western: Arc<AtomicBool>,
    /// Bytes read and not yet decoded.
    raw: Vec<u8>,
    /// Text decoded and not yet taken.
    text: Cursor<Vec<u8>>,
    ended: bool,
}

enum State {
    /// Nothing beyond ASCII has come; what comes decides between UTF-8 and Windows-1252.
    Ascii,
    /// Bytes are passed on as they are.
    Utf8,
    Other(Decoder),
}

/// Opens a file's text; `told` and `guess` are those of [`CsvOptions`].
pub(super) fn open_text(
    path: &Path,
    done: Arc<AtomicU64>,
    told: Option<&'static Encoding>,
    guess: bool,
) -> Result<(Box<dyn Read + Send>, Heard)> {
    let (mut inner, _) = open(path, done)?;
    let mut raw = Vec::new();
    inner.by_ref().take(4).read_to_end(&mut raw).map_err(|e| cannot("read", path, e))?;
    let (marked, length) = match raw.as_slice() {
        [0xef, 0xbb, 0xbf, ..] => (Some(UTF_8), 3),
        [0xff, 0xfe, ..] => (Some(UTF_16LE), 2),
        [0xfe, 0xff, ..] => (Some(UTF_16BE), 2),
        _ => (None, 0),
    };
    raw.drain(..length);
    let encoding = marked.or(told).unwrap_or(UTF_8);
    let state = if encoding != UTF_8 {
        State::Other(encoding.new_decoder_without_bom_handling())
    } else if guess && marked.is_none() && told.is_none() {
        State::Ascii
    } else {
        State::Utf8
    };
    let western = Arc::new(AtomicBool::new(false));
    let heard = Heard { encoding, western: Arc::clone(&western) };
    let text = Cursor::new(Vec::new());
    let decoded = Decoded { inner, state, western, raw, text, ended: false };
    Ok((Box::new(decoded), heard))
}

/// Whether text that begins with a byte beyond ASCII is Windows-1252 rather than UTF-8 that is damaged
/// here and there: its first character is none of UTF-8, nor are most others.
fn western(bytes: &[u8], ended: bool) -> bool {
    let begins_well = match std::str::from_utf8(bytes) {
        Ok(_) => true,
        Err(e) => e.valid_up_to() > 0,
    };
    if begins_well {
        return false;
    }
    let (mut good, mut bad) = (0, 0);
    for chunk in bytes.utf8_chunks() {
        good += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
        bad += usize::from(!chunk.invalid().is_empty());
    }
    // A character that is cut at the end is none.
    if !ended && std::str::from_utf8(bytes).is_err_and(|e| e.error_len().is_none()) {
        bad -= 1;
    }
    bad > good && !bytes.contains(&0)
}

impl Decoded {
    /// Reads at least one more byte, if there is one, or as many as to have `wanted`.
    fn more(&mut self, wanted: usize) -> io::Result<()> {
        while !self.ended && self.raw.len() < wanted {
            let before = self.raw.len();
            self.raw.resize(wanted, 0);
            let read = self.inner.read(&mut self.raw[before..]);
            self.raw.truncate(before + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn decode(&mut self) -> io::Result<()> {
        let mut text = std::mem::take(self.text.get_mut());
        text.clear();
        self.text.set_position(0);
        self.more(CHUNK_BYTES)?;
        if matches!(self.state, State::Ascii)
            && let Some(first) = self.raw.iter().position(|b| !b.is_ascii())
        {
            self.more(first + CHUNK_BYTES)?;
            self.state = if western(&self.raw[first..], self.ended) {
                self.western.store(true, Ordering::Release);
                State::Other(WINDOWS_1252.new_decoder_without_bom_handling())
            } else {
                State::Utf8
            };
        }
        let State::Other(decoder) = &mut self.state else {
            std::mem::swap(&mut text, &mut self.raw);
            *self.text.get_mut() = text;
            return Ok(());
        };
        let mut from = 0;
        loop {
            let need = decoder.max_utf8_buffer_length_without_replacement(self.raw.len() - from);
            text.reserve(need.unwrap_or(CHUNK_BYTES * 4));
            let begin = text.len();
            text.resize(text.capacity(), 0);
            let (result, read, written) = decoder.decode_to_utf8_without_replacement(
                &self.raw[from..],
                &mut text[begin..],
                self.ended,
            );
            text.truncate(begin + written);
            from += read;
            match result {
                DecoderResult::InputEmpty => break,
                DecoderResult::OutputFull => {}
                DecoderResult::Malformed(..) => {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!("it is not {}", decoder.encoding().name()),
                    ));
                }
            }
        }
        self.raw.clear();
        *self.text.get_mut() = text;
        Ok(())
    }
}

impl Read for Decoded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let n = self.text.read(buffer)?;
            if n > 0 || buffer.is_empty() {
                return Ok(n);
            }
            // Plain text that nobody has to look at goes by without a copy.
            if matches!(self.state, State::Utf8) && self.raw.is_empty() {
                return self.inner.read(buffer);
            }
            if self.ended && self.raw.is_empty() {
                return Ok(0);
            }
            self.decode()?;
        }
    }
}

/// The beginning of a text, and all of it again.
pub(super) struct Head {
    pub bytes: Vec<u8>,
    stream: Box<dyn Read + Send>,
    /// There is nothing after the head.
    pub whole: bool,
}

impl Head {
    pub(super) fn new(stream: Box<dyn Read + Send>) -> Head {
        Head { bytes: Vec::new(), stream, whole: false }
    }

    fn fill(&mut self, path: &Path, bytes: usize) -> Result<()> {
        let wanted = bytes.saturating_sub(self.bytes.len()) as u64;
        let read = self.stream.by_ref().take(wanted).read_to_end(&mut self.bytes);
        self.whole = (read.map_err(|e| cannot("read", path, e))? as u64) < wanted;
        Ok(())
    }

    /// Enough to tell a dialect by.
    pub(super) fn enough(&mut self, path: &Path) -> Result<()> {
        let mut bytes = SNIFF_BYTES;
        self.fill(path, bytes)?;
        while !self.whole
            && bytes < SNIFF_BYTES_MAX
            && count(b'\n', &self.bytes) + count(b'\r', &self.bytes) < SNIFF_LINES
        {
            bytes *= 4;
            self.fill(path, bytes)?;
        }
        Ok(())
    }

    pub(super) fn into_stream(self) -> Box<dyn Read + Send> {
        match self.whole {
            true => Box::new(Cursor::new(self.bytes)),
            false => Box::new(Cursor::new(self.bytes).chain(self.stream)),
        }
    }
}

/// A delimited file, ready to be read from its first record on.
pub(super) struct CsvText {
    pub source: TextSource,
    pub found: Found,
    pub heard: Heard,
}

/// Opens a delimited file and finds out what is not told of its dialect.
pub(super) fn open_csv(
    path: &Arc<PathBuf>,
    file: usize,
    options: &CsvOptions,
    block_bytes: usize,
    done: Arc<AtomicU64>,
) -> Result<CsvText> {
    let sniff = options.sniff;
    let (stream, heard) = open_text(path, done, options.encoding, sniff.encoding)?;
    let mut head = Head::new(stream);
    head.enough(path)?;
    let newline = sniff::newline(&head.bytes);
    let (mut line, mut at) = (1, 0);
    while line <= options.skip {
        match memchr::memchr(newline, &head.bytes[at..]) {
            Some(end) => (line, at) = (line + 1, at + end + 1),
            None if head.whole => {
                at = head.bytes.len();
                break;
            }
            None => {
                (head.bytes, at) = (Vec::new(), 0);
                head.fill(path, SNIFF_BYTES)?;
            }
        }
    }
    head.bytes.drain(..at);
    if options.skip > 0 {
        head.enough(path)?;
    }
    let mut found = sniff::csv(&head.bytes, head.whole, options, newline);
    head.bytes.drain(..found.skipped_bytes);
    line += found.skipped_lines;
    found.skipped_lines = line - 1;
    let dialect = found.dialect;
    let source = TextSource::new(path, file, head.into_stream(), dialect, line, block_bytes)
        .with_record_bytes_max(options.record_bytes_max);
    Ok(CsvText { source, found, heard })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], step: usize) -> (io::Result<String>, &'static str) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, bytes).unwrap();
        let (mut stream, heard) = open_text(&path, Arc::default(), None, true).unwrap();
        let (mut out, mut buffer) = (Vec::new(), vec![0; step]);
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => out.extend_from_slice(&buffer[..n]),
                Err(e) => return (Err(e), heard.encoding().name()),
            }
        }
        (Ok(String::from_utf8_lossy(&out).into_owned()), heard.encoding().name())
    }

    #[test]
    fn text_of_any_encoding_is_utf8() {
        let utf16 = |text: &str, big: bool| -> Vec<u8> {
            let units = std::iter::once(0xfeff).chain(text.encode_utf16());
            units.flat_map(|u| if big { u.to_be_bytes() } else { u.to_le_bytes() }).collect()
        };
        let long = "a,é,😀\n".repeat(50_000);
        for step in [1, 7, 100_000] {
            let check = |bytes: &[u8], text: &str, encoding: &str| {
                let (read, heard) = read(bytes, step);
                assert!(read.unwrap() == text, "{encoding}");
                assert_eq!(heard, encoding);
            };
            check(b"", "", "UTF-8");
            check("a,é\n".as_bytes(), "a,é\n", "UTF-8");
            check("\u{feff}a,é\n".as_bytes(), "a,é\n", "UTF-8");
            check(&utf16("a,é😀\n", false), "a,é😀\n", "UTF-16LE");
            check(&utf16("a,é😀\n", true), "a,é😀\n", "UTF-16BE");
            check(b"caf\xe9,\x80 5\n", "café,€ 5\n", "windows-1252");
            if step > 1 {
                check(&utf16(&long, false), &long, "UTF-16LE");
                check(long.as_bytes(), &long, "UTF-8");
                // The first character beyond ASCII comes late.
                let mut late = vec![b'x'; 3 * CHUNK_BYTES + 5];
                late.extend(b"\xe9\n");
                let text = format!("{}é\n", "x".repeat(3 * CHUNK_BYTES + 5));
                check(&late, &text, "windows-1252");
            }
            // Damaged UTF-8 stays what it is, to be reported where it is.
            let (damaged, heard) = read(b"\xc3\xa9\xc3\xa9\xff\n", step);
            assert_eq!((damaged.unwrap().as_str(), heard), ("éé\u{fffd}\n", "UTF-8"));
            let (damaged, heard) = read(b"K\xc3\xb6ln\n\xff\xfe\x80\xc3\nZ\xc3\xbcrich\n", step);
            assert!(damaged.unwrap().starts_with("Köln\n\u{fffd}"), "{heard}");
            assert!(read(b"\xff\xfea\0\0\xd8a\0", step).0.is_err());
        }
    }
}
