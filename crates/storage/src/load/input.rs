//! Which files are meant, what is in them, and how their bytes are reached.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thalweg_base::{Error, Result, quiet, text};

/// How the rows lie in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    Csv(CsvOptions),
    /// One JSON object a line.
    JsonLines,
    Parquet,
    /// Arrow IPC, the file or the stream format.
    Arrow,
}

/// The dialect of delimited text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvOptions {
    pub delimiter: u8,
    /// `None`: quotes are ordinary characters. A quote inside a quoted field is doubled.
    pub quote: Option<u8>,
    /// Inside quotes, takes the next character as it is; besides doubling.
    pub escape: Option<u8>,
    /// Whether the first record names the columns. `None`: found out per file.
    pub header: Option<bool>,
    /// What NULL looks like. Only unquoted fields are compared: `""` is the empty string.
    pub nulls: Vec<String>,
}

impl Default for CsvOptions {
    fn default() -> Self {
        CsvOptions {
            delimiter: b',',
            quote: Some(b'"'),
            escape: None,
            header: None,
            nulls: vec![String::new()],
        }
    }
}

impl CsvOptions {
    /// Refuses dialects that cannot be read back unambiguously.
    pub fn check(&self) -> Result<()> {
        let bytes = [Some(self.delimiter), self.quote, self.escape];
        for byte in bytes.into_iter().flatten() {
            if !byte.is_ascii() || matches!(byte, 0 | b'\n' | b'\r') {
                return Err(Error::user(
                    "delimiter, quote and escape must each be one ASCII character, not a line end",
                )
                .hint("for another delimiter, convert the file first"));
            }
        }
        if self.quote == Some(self.delimiter) || self.escape == Some(self.delimiter) {
            return Err(Error::user("the delimiter cannot also be the quote or the escape"));
        }
        let special = |b: u8| b == self.delimiter || Some(b) == self.quote || b"\r\n".contains(&b);
        if let Some(null) = self.nulls.iter().find(|null| null.bytes().any(special)) {
            return Err(Error::user(format!(
                "the text of NULL {} has the delimiter, the quote or a line end in it",
                text::quoted(null)
            ))
            .hint("choose another: NULL 'NULL', or NULL '' for nothing"));
        }
        Ok(())
    }
}

/// How a file's bytes are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
}

const DATA_EXTENSIONS: [&str; 11] =
    ["csv", "tsv", "txt", "json", "jsonl", "ndjson", "parquet", "pq", "arrow", "feather", "ipc"];

/// Bytes of a file looked at to tell its format and its delimiter.
const SNIFF_BYTES: usize = 64 * 1024;

/// The files meant by `args`: each a file, a folder (searched recursively for known extensions)
/// or a glob pattern. Sorted, each file once. It is an error if an argument means no file.
pub fn expand(args: &[String]) -> Result<Vec<PathBuf>> {
    let files = find(args, true)?;
    if files.is_empty() {
        return Err(Error::user("no input file given"));
    }
    Ok(files)
}

/// As [`expand`], for folders and patterns that may be without a file now.
pub fn expand_present(args: &[String]) -> Result<Vec<PathBuf>> {
    find(args, false)
}

fn find(args: &[String], wanted: bool) -> Result<Vec<PathBuf>> {
    // Keyed by the resolved path, so that a file reached twice is loaded once.
    let mut found = BTreeMap::new();
    let mut add = |path: PathBuf| -> Result<()> {
        match fs::canonicalize(&path) {
            Ok(resolved) => {
                found.entry(resolved).or_insert(path);
                Ok(())
            }
            // Gone since it was listed.
            Err(e) if e.kind() == io::ErrorKind::NotFound && !wanted => Ok(()),
            Err(e) => Err(cannot("open", &path, e)),
        }
    };
    for arg in args {
        let path = Path::new(arg);
        let mut files = Vec::new();
        match fs::metadata(path) {
            Ok(meta) if meta.is_dir() => {
                walk(path, 0, &mut files)?;
                if files.is_empty() && wanted {
                    return Err(Error::user(format!("folder {arg:?} holds no data files"))
                        .hint(format!("known extensions are {}, also with .gz or .zst; name other files one by one or with a glob",
                            DATA_EXTENSIONS.join(", "))));
                }
            }
            Ok(_) => files.push(path.to_owned()),
            Err(e) if e.kind() == io::ErrorKind::NotFound && is_pattern(arg) => {
                matches(arg, &mut files)?;
                if files.is_empty() && wanted {
                    return Err(Error::user(format!("no file matches {arg:?}"))
                        .hint("check the pattern and the working directory"));
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound && !wanted => {}
            Err(e) => return Err(cannot("open", path, e)),
        }
        files.into_iter().try_for_each(&mut add)?;
    }
    let mut files: Vec<PathBuf> = found.into_values().collect();
    files.sort();
    Ok(files)
}

/// Whether an argument that names no file can mean some.
pub fn is_pattern(arg: &str) -> bool {
    arg.contains(['*', '?', '['])
}

/// The files that a glob pattern matches, and those in folders that it matches.
fn matches(pattern: &str, files: &mut Vec<PathBuf>) -> Result<()> {
    // As in a shell: `*` does not find hidden files.
    let hidden = glob::MatchOptions { require_literal_leading_dot: true, ..Default::default() };
    let found = glob::glob_with(pattern, hidden)
        .map_err(|e| Error::user(format!("{pattern:?} is not a valid glob pattern: {}", e.msg)))?;
    for path in found {
        let path = path.map_err(|e| {
            let folder = e.path().to_owned();
            cannot("read folder", &folder, e.into())
        })?;
        if path.is_dir() { walk(&path, 0, files)? } else { files.push(path) }
    }
    Ok(())
}

/// Folders within folders beyond this are a loop of links.
const FOLDER_DEPTH_MAX: usize = 32;

fn walk(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    if depth > FOLDER_DEPTH_MAX {
        return Err(Error::user(format!(
            "folder {folder:?} is nested too deeply; is a link leading back into it?"
        )));
    }
    for entry in fs::read_dir(folder).map_err(|e| cannot("read folder", folder, e))? {
        let path = entry.map_err(|e| cannot("read folder", folder, e))?.path();
        // What writers of data sets keep beside the data: _SUCCESS, _metadata, .crc.
        let hidden =
            path.file_name().and_then(OsStr::to_str).is_some_and(|n| n.starts_with(['.', '_']));
        if hidden {
            continue;
        }
        if path.is_dir() {
            walk(&path, depth + 1, files)?;
        } else if DATA_EXTENSIONS.contains(&extension(&path).0.as_str()) {
            files.push(path);
        }
    }
    Ok(())
}

/// The extension in lower case without that of a compression, and the compression it names.
fn extension(path: &Path) -> (String, Compression) {
    let ext = |path: &Path| {
        path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
    };
    let last = ext(path);
    let compression = match last.as_str() {
        "gz" | "gzip" => Compression::Gzip,
        "zst" | "zstd" => Compression::Zstd,
        _ => return (last, Compression::None),
    };
    (ext(Path::new(path.file_stem().unwrap_or_default())), compression)
}

/// Format and compression of a file: by its extension, then by its content.
///
/// For delimited text the delimiter is found out too (comma, tab, bar or semicolon).
pub fn format_of(path: &Path) -> Result<(Format, Compression)> {
    let (ext, _) = extension(path);
    refuse_archive(path, &ext)?;
    let (mut stream, compression) = open(path, Arc::default())?;
    let mut head = Vec::new();
    stream
        .by_ref()
        .take(SNIFF_BYTES as u64)
        .read_to_end(&mut head)
        .map_err(|e| cannot("read", path, e))?;
    let format = match ext.as_str() {
        "tsv" => Format::Csv(CsvOptions { delimiter: b'\t', ..CsvOptions::default() }),
        "csv" | "txt" | "tbl" => {
            Format::Csv(CsvOptions { delimiter: sniff_delimiter(&head), ..CsvOptions::default() })
        }
        "json" | "jsonl" | "ndjson" => Format::JsonLines,
        "parquet" | "pq" => Format::Parquet,
        "arrow" | "feather" | "ipc" => Format::Arrow,
        _ => format_of_content(path, &head)?,
    };
    if compression != Compression::None && matches!(format, Format::Parquet | Format::Arrow) {
        return Err(Error::unsupported(format!(
            "{} is a compressed Parquet or Arrow file",
            shown(path)
        ))
        .hint("unpack it first; these formats compress inside"));
    }
    Ok((format, compression))
}

fn refuse_archive(path: &Path, ext: &str) -> Result<()> {
    if !matches!(ext, "zip" | "7z" | "tar" | "tgz" | "rar" | "xz" | "bz2") {
        return Ok(());
    }
    let way = match ext {
        "zip" => "unzip it first, for example `unzip FILE.zip -d DIR`, and load the folder",
        _ => "unpack it first; compressed text is read as .gz or .zst",
    };
    Err(Error::unsupported(format!("{} is an archive of a kind that is not read", shown(path)))
        .hint(way))
}

fn format_of_content(path: &Path, head: &[u8]) -> Result<Format> {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    Ok(match text {
        [] => return Err(empty(path)),
        [b'P', b'A', b'R', b'1', ..] => Format::Parquet,
        [b'A', b'R', b'R', b'O', b'W', b'1', ..] | [0xff, 0xff, 0xff, 0xff, ..] => Format::Arrow,
        [b'P', b'K', 3, 4, ..] => return refuse_archive(path, "zip").map(|()| Format::Parquet),
        _ if text.trim_ascii_start().starts_with(b"{") => Format::JsonLines,
        _ if !text.contains(&0) => {
            Format::Csv(CsvOptions { delimiter: sniff_delimiter(text), ..CsvOptions::default() })
        }
        _ => {
            return Err(Error::user(format!("cannot tell the format of {}", shown(path)))
                .hint("rename it with a known extension or state the format"));
        }
    })
}

/// The delimiter that splits each of the first lines into equally many fields, most fields first.
fn sniff_delimiter(head: &[u8]) -> u8 {
    const LINES: usize = 20;
    let whole = memchr::memrchr(b'\n', head).map_or(head, |at| &head[..at]);
    let lines: Vec<&[u8]> = whole
        .split(|&b| b == b'\n')
        .filter(|line| !line.trim_ascii().is_empty())
        .take(LINES)
        .collect();
    let count = |line: &[u8], delimiter: u8| {
        let mut quoted = false;
        line.iter()
            .filter(|&&b| {
                quoted ^= b == b'"';
                !quoted && b == delimiter
            })
            .count()
    };
    let mut best = (0, b',');
    for delimiter in [b',', b'\t', b'|', b';'] {
        let Some(first) = lines.first().map(|line| count(line, delimiter)) else { break };
        if first > best.0 && lines.iter().all(|line| count(line, delimiter) == first) {
            best = (first, delimiter);
        }
    }
    best.1
}

/// Opens a file for sequential reading, unpacked; bytes taken from disk are added to `done`.
///
/// The magic bytes decide: a `.gz` that some browser already unpacked reads as what it is.
pub(super) fn open(
    path: &Path,
    done: Arc<AtomicU64>,
) -> Result<(Box<dyn Read + Send>, Compression)> {
    let mut file = File::open(path).map_err(|e| cannot("open", path, e))?;
    if file.metadata().map_err(|e| cannot("open", path, e))?.is_dir() {
        return Err(Error::user(format!("{} is a folder", shown(path))));
    }
    let mut magic = [0; 4];
    let mut length = 0;
    while length < magic.len() {
        match file.read(&mut magic[length..]).map_err(|e| cannot("read", path, e))? {
            0 => break,
            n => length += n,
        }
    }
    file.seek(SeekFrom::Start(0)).map_err(|e| cannot("read", path, e))?;
    let file = Counted { file, done };
    Ok(match &magic[..length] {
        [0x1f, 0x8b, ..] => {
            let buffered = io::BufReader::with_capacity(128 * 1024, file);
            (Box::new(flate2::bufread::MultiGzDecoder::new(buffered)), Compression::Gzip)
        }
        [0x28, 0xb5, 0x2f, 0xfd] => {
            let stream =
                zstd::stream::read::Decoder::new(file).map_err(|e| cannot("read", path, e))?;
            (Box::new(stream), Compression::Zstd)
        }
        _ => (Box::new(file), Compression::None),
    })
}

struct Counted {
    file: File,
    done: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buffer)?;
        self.done.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// A path as errors name it.
pub(super) fn shown(path: &Path) -> String {
    text::quoted(&path.to_string_lossy())
}

pub(super) fn cannot(what: &str, path: &Path, error: io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "check the spelling and the working directory",
        io::ErrorKind::PermissionDenied => "the user running this process needs read permission",
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            return damaged(path, &error.to_string());
        }
        _ => return Error::io(format!("cannot {what} {}", shown(path)), error),
    };
    Error::io(format!("cannot {what} {}", shown(path)), error).hint(hint)
}

/// A file whose content is not what its format promises.
pub(super) fn damaged(path: &Path, reason: &str) -> Error {
    Error::user(format!("{} is damaged or cut short: {reason}", shown(path)))
        .hint("check that it was copied completely, or write it again")
}

/// Runs a decoder of a foreign crate. Not all of them check every length in a damaged file before
/// they slice by it; their panic is caught here, and the caller drops the decoder on any error.
pub(super) fn guarded<T, E: std::fmt::Display>(
    path: &Path,
    decode: impl FnOnce() -> Result<T, E>,
) -> Result<T> {
    match quiet::caught(decode) {
        Ok(result) => result.map_err(|e| damaged(path, &e.to_string())),
        Err(_) => Err(damaged(path, "its lengths and offsets contradict each other")),
    }
}

pub(super) fn empty(path: &Path) -> Error {
    Error::user(format!("{} is empty", shown(path))).hint("leave it out, or write it again")
}
