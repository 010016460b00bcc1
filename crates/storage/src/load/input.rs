//! Which files are meant, what is in them, and how their bytes are reached.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thalweg_base::{Error, Result, quiet, text};

use super::book;
use super::source::{InputBytes, address, failure};
use crate::store::{objects_below, shown_address};

/// How the rows lie in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    Csv(CsvOptions),
    /// JSON: one value a line, one after the other, or the elements of an array.
    Json(JsonOptions),
    Parquet,
    /// Arrow IPC, the file or the stream format.
    Arrow,
}

impl Format {
    /// Whether bad rows are left out, however many they are.
    pub(super) fn ignores_errors(&self) -> bool {
        match self {
            Format::Csv(options) => options.ignore_errors,
            Format::Json(options) => options.ignore_errors,
            Format::Parquet | Format::Arrow => false,
        }
    }

    /// Takes one option of text under the name it has in SQL; false: the format has no such option.
    ///
    /// # Errors
    /// The values are none that the option takes.
    pub fn tell(&mut self, name: &str, values: &[String]) -> Result<bool> {
        match self {
            Format::Csv(options) => options.tell(name, values),
            Format::Json(options) => options.tell(name, values),
            Format::Parquet | Format::Arrow => Ok(false),
        }
    }

    /// The format and its options in SQL, for people.
    pub fn known_options(&self) -> (&'static str, &'static str) {
        match self {
            Format::Csv(_) => (
                "CSV",
                "HEADER, DELIMITER, QUOTE, ESCAPE, COMMENT, SKIP, NULL, ENCODING, DATEFORMAT, TIMESTAMPFORMAT, DECIMAL_SEPARATOR, THOUSANDS, ALL_VARCHAR, NULL_PADDING and IGNORE_ERRORS",
            ),
            Format::Json(options) if options.book.is_some() => {
                ("Excel", "SHEET, RANGE, HEADER, ALL_VARCHAR, STOP_AT_EMPTY and IGNORE_ERRORS")
            }
            Format::Json(_) => ("JSON", JsonOptions::NAMES),
            Format::Parquet => ("Parquet", "none"),
            Format::Arrow => ("Arrow", "none"),
        }
    }

    /// Refuses options that contradict each other.
    pub fn check(&self) -> Result<()> {
        match self {
            Format::Csv(options) => options.check(),
            Format::Json(options) => options.check(),
            Format::Parquet | Format::Arrow => Ok(()),
        }
    }
}

pub use super::json_options::{JsonForm, JsonOptions};
pub use super::options::{CsvOptions, Sniff};

/// How a file's bytes are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
    Bzip2,
    Xz,
    /// An archive with one file in it.
    Zip,
}

const DATA_EXTENSIONS: [&str; 14] = [
    "csv", "tsv", "tab", "txt", "dat", "json", "jsonl", "ndjson", "geojson", "parquet", "pq",
    "arrow", "feather", "ipc",
];

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
        if address(&path).is_some() {
            found.insert(path.clone(), path);
            return Ok(());
        }
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
        let arg = &home(arg);
        let path = Path::new(arg);
        if address(path).is_some() {
            there(arg, wanted)?.into_iter().try_for_each(&mut add)?;
            continue;
        }
        if arg
            .split_once("://")
            .is_some_and(|(scheme, _)| scheme.chars().all(char::is_alphanumeric))
        {
            return Err(Error::unsupported(format!("cannot read {}", text::quoted(arg)))
                .hint("files are read at http://, https:// and s3://, and on this machine"));
        }
        let mut files = Vec::new();
        match fs::metadata(path) {
            Ok(meta) if meta.is_dir() => {
                walk(path, 0, &mut files)?;
                if files.is_empty() && wanted {
                    return Err(Error::user(format!("folder {arg:?} holds no data files"))
                        .hint(format!("known extensions are {}, also with .gz, .zst, .bz2, .xz or .zip; name other files one by one or with a glob",
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

/// The files that an address means: an object store is searched like folders of this machine, another
/// server only has files that are named.
fn there(arg: &str, wanted: bool) -> Result<Vec<PathBuf>> {
    let is_folder = shown_address(arg).ends_with('/');
    if !arg.get(..2).is_some_and(|scheme| scheme.eq_ignore_ascii_case("s3")) {
        if is_folder || shown_address(arg).contains('*') {
            return Err(Error::unsupported(format!(
                "{} names no single file",
                shown(Path::new(arg))
            ))
            .hint(
                "name the files of a web server one by one: ['https://…/a.csv', 'https://…/b.csv']",
            ));
        }
        return Ok(vec![arg.into()]);
    }
    let pattern = match is_folder {
        true => None,
        false if is_pattern(arg) => Some(glob_pattern(arg)?),
        false => return Ok(vec![arg.into()]),
    };
    let plain = arg.find(['*', '?', '[']).unwrap_or(arg.len());
    let folder = &arg[..arg[..plain].rfind('/').map_or(0, |at| at + 1)];
    let is_hidden =
        |found: &str| found[folder.len()..].split('/').any(|n| n.starts_with(['.', '_']));
    let found = objects_below(folder, |found| match &pattern {
        Some(pattern) => pattern.matches_with(found, as_in_shell()),
        None => {
            !is_hidden(found) && DATA_EXTENSIONS.contains(&extension(Path::new(found)).0.as_str())
        }
    })?;
    if found.is_empty() && wanted {
        return Err(Error::user(format!("no file matches {arg:?}")).hint(
            "check the bucket and the pattern; a folder is searched for the known extensions",
        ));
    }
    Ok(found.into_iter().map(PathBuf::from).collect())
}

/// `*` does not find hidden files, and stays in its folder.
fn as_in_shell() -> glob::MatchOptions {
    glob::MatchOptions {
        require_literal_leading_dot: true,
        require_literal_separator: true,
        ..Default::default()
    }
}

fn glob_pattern(pattern: &str) -> Result<glob::Pattern> {
    glob::Pattern::new(pattern)
        .map_err(|e| Error::user(format!("{pattern:?} is not a valid glob pattern: {}", e.msg)))
}

/// A path with the folder of the user in the place of `~/`, as a shell has it, and without `file://`.
pub fn home(arg: &str) -> String {
    if let Some(path) = arg.strip_prefix("file://") {
        return path.to_owned();
    }
    match (arg.strip_prefix("~/"), std::env::var("HOME")) {
        (Some(rest), Ok(home)) if !home.is_empty() => format!("{home}/{rest}"),
        _ => arg.to_owned(),
    }
}

/// Whether an argument that names no file can mean some.
pub fn is_pattern(arg: &str) -> bool {
    arg.contains(['*', '?', '['])
}

/// The files that a glob pattern matches, and those in folders that it matches.
fn matches(pattern: &str, files: &mut Vec<PathBuf>) -> Result<()> {
    let found = glob::glob_with(pattern, as_in_shell())
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
    let bare = address(path).map(shown_address);
    let path = bare.as_deref().map_or(path, Path::new);
    let ext = |path: &Path| {
        path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
    };
    let last = ext(path);
    let compression = match last.as_str() {
        "gz" | "gzip" => Compression::Gzip,
        "zst" | "zstd" => Compression::Zstd,
        "bz2" | "bzip2" => Compression::Bzip2,
        "xz" => Compression::Xz,
        "zip" => Compression::Zip,
        _ => return (last, Compression::None),
    };
    (ext(Path::new(path.file_stem().unwrap_or_default())), compression)
}

/// What servers send to who has to log in first, and in the place of what is not there.
fn refuse_page(path: &Path, head: &[u8]) -> Result<()> {
    let text = head.trim_ascii_start();
    let begins = |tag: &[u8]| text.get(..tag.len()).is_some_and(|t| t.eq_ignore_ascii_case(tag));
    if address(path).is_none() || !begins(b"<!doctype html") && !begins(b"<html") {
        return Ok(());
    }
    Err(Error::user(format!("{} is a web page and no file of data", shown(path)))
        .hint("check the address: it may be that of a page about the file, or ask for a login"))
}

/// Format and compression of a file: by its extension, then by its content.
///
/// The dialect of delimited text is left to be found out by readers, in each file.
pub fn format_of(path: &Path) -> Result<(Format, Compression)> {
    let (ext, packed) = extension(path);
    refuse_archive(path, &ext)?;
    let is_parquet = matches!(ext.as_str(), "parquet" | "pq") && packed == Compression::None;
    if is_parquet && address(path).is_some() {
        // Its beginning says less than its end, and parts of it are all that is fetched.
        return Ok((Format::Parquet, Compression::None));
    }
    book::refuse_other(path, &ext)?;
    if book::is_book(&ext) {
        return Ok((Format::Json(JsonOptions::of_book()), Compression::None));
    }
    let (mut stream, compression) = open(path, Arc::default())?;
    let mut head = Vec::new();
    stream
        .by_ref()
        .take(MAGIC_BYTES as u64)
        .read_to_end(&mut head)
        .map_err(|e| cannot("read", path, e))?;
    refuse_page(path, &head)?;
    let format = match ext.as_str() {
        "tsv" | "tab" => csv_format(b'\t'),
        "csv" | "txt" | "tbl" => csv_format(b','),
        "json" | "jsonl" | "ndjson" | "geojson" => Format::Json(JsonOptions::default()),
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

/// How the bytes of a file are packed, by its content.
pub fn compression_of(path: &Path) -> Result<Compression> {
    open(path, Arc::default()).map(|(_, compression)| compression)
}

/// Bytes of a file looked at to tell its format.
const MAGIC_BYTES: usize = 64 * 1024;

/// Delimited text whose dialect readers find out; by `delimiter` if nothing speaks for another.
fn csv_format(delimiter: u8) -> Format {
    Format::Csv(CsvOptions { delimiter, ..CsvOptions::sniffed() })
}

fn refuse_archive(path: &Path, ext: &str) -> Result<()> {
    if !matches!(ext, "7z" | "tar" | "tgz" | "rar") {
        return Ok(());
    }
    Err(Error::unsupported(format!("{} is an archive of a kind that is not read", shown(path)))
        .hint("unpack it first; compressed text is read as .gz, .zst, .bz2, .xz or .zip"))
}

fn format_of_content(path: &Path, head: &[u8]) -> Result<Format> {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    Ok(match text {
        [] => return Err(empty(path)),
        [b'P', b'A', b'R', b'1', ..] => Format::Parquet,
        [b'A', b'R', b'R', b'O', b'W', b'1', ..] | [0xff, 0xff, 0xff, 0xff, ..] => Format::Arrow,
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => csv_format(b','),
        _ if json_begins(text) => Format::Json(JsonOptions::default()),
        _ if !text.contains(&0) => csv_format(b','),
        _ => {
            return Err(Error::user(format!("cannot tell the format of {}", shown(path)))
                .hint("rename it with a known extension or state the format"));
        }
    })
}

/// Whether text begins with an object, or an array of objects.
fn json_begins(text: &[u8]) -> bool {
    match text.trim_ascii_start() {
        [b'{', ..] => true,
        [b'[', rest @ ..] => matches!(rest.trim_ascii_start(), [b'{', ..]),
        _ => false,
    }
}

/// Opens a file for sequential reading, unpacked; bytes taken from disk are added to `done`.
///
/// The magic bytes decide: a `.gz` that some browser already unpacked reads as what it is.
pub(super) fn open(
    path: &Path,
    done: Arc<AtomicU64>,
) -> Result<(Box<dyn Read + Send>, Compression)> {
    let mut file = InputBytes::open(path)?;
    let mut magic = [0; 6];
    let mut length = 0;
    while length < magic.len() {
        match file.read(&mut magic[length..]).map_err(|e| cannot("read", path, e))? {
            0 => break,
            n => length += n,
        }
    }
    file.seek(SeekFrom::Start(0)).map_err(|e| cannot("read", path, e))?;
    Ok(match &magic[..length] {
        [0x1f, 0x8b, ..] => {
            let stream = flate2::bufread::MultiGzDecoder::new(buffered(file, done));
            (Box::new(stream), Compression::Gzip)
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let stream = zstd::stream::read::Decoder::with_buffer(buffered(file, done))
                .map_err(|e| cannot("read", path, e))?;
            (Box::new(stream), Compression::Zstd)
        }
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31 | 0x17, ..] => {
            let stream = bzip2::bufread::MultiBzDecoder::new(buffered(file, done));
            (Box::new(stream), Compression::Bzip2)
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0] => {
            let stream = liblzma::bufread::XzDecoder::new_multi_decoder(buffered(file, done));
            (Box::new(stream), Compression::Xz)
        }
        [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => {
            (super::zipped::open(path, file, done)?, Compression::Zip)
        }
        _ => (Box::new(Counted { file, done }), Compression::None),
    })
}

fn buffered(file: InputBytes, done: Arc<AtomicU64>) -> io::BufReader<Counted> {
    io::BufReader::with_capacity(128 * 1024, Counted { file, done })
}

/// A file whose bytes are counted as they are read.
pub(super) struct Counted {
    pub file: InputBytes,
    pub done: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buffer)?;
        self.done.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// A path as errors name it; of an address without what is secret.
pub fn shown(path: &Path) -> String {
    match address(path) {
        Some(address) => text::quoted(&shown_address(address)),
        None => text::quoted(&path.to_string_lossy()),
    }
}

pub(super) fn cannot(what: &str, path: &Path, error: io::Error) -> Error {
    // What an address gave says itself which one it is.
    let error = match error.downcast::<Error>() {
        Ok(ours) => return ours,
        Err(error) => error,
    };
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
    // Only what fails from here on counts.
    failure();
    match quiet::caught(decode) {
        // That the bytes did not come is no fault of the file.
        Ok(result) => {
            result.map_err(|e| failure().unwrap_or_else(|| damaged(path, &e.to_string())))
        }
        Err(_) => Err(damaged(path, "its lengths and offsets contradict each other")),
    }
}

pub(super) fn empty(path: &Path) -> Error {
    Error::user(format!("{} is empty", shown(path))).hint("leave it out, or write it again")
}
