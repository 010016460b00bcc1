//! Sheets of Excel workbooks, as lines of JSON: types, places and bad rows of these are known to the readers
//! and the inference of JSON already.
//!
//! Each row of the sheet is the line of its number. What is above the table, its header and empty rows are
//! empty lines. Cells are read one after the other; what takes memory is the texts that a workbook keeps
//! apart from its sheets. That is why this is not left to a library that makes an array of a sheet, of which
//! one cell at its far end would fill the memory.

mod cells;
mod options;
mod package;
mod table;
mod workbook;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::SpooledTempFile;
use thalweg_base::{Error, Result, quiet, text};

use self::cells::{Cell, Rows, letters};
use self::package::Package;
use self::table::Found;
use self::workbook::Workbook;
use super::input::{cannot, damaged, empty, shown};
use super::source::InputBytes;

pub use self::options::BookOptions;

/// Bytes of lines in memory; more are in a temporary file.
const LINES_BYTES: usize = 16 << 20;
/// Rows that are looked at to find where the table begins.
const LOOKED_AT: usize = 64;

/// Extensions of workbooks, without the dot.
pub(super) fn is_book(extension: &str) -> bool {
    matches!(extension, "xlsx" | "xlsm")
}

/// Of workbooks that are not read the way out.
pub(super) fn refuse_other(path: &Path, extension: &str) -> Result<()> {
    match extension {
        "xls" | "xlsb" | "ods" => Err(other_book(path)),
        _ => Ok(()),
    }
}

fn other_book(path: &Path) -> Error {
    Error::unsupported(format!("{} is a workbook of a kind that is not read", shown(path)))
        .hint("save it as .xlsx")
}

/// The table of one sheet. The bytes of the file are added to `done`.
///
/// # Errors
/// It is no workbook, has no such sheet, or no rows; a cell is an error.
pub(super) fn lines(
    path: &Path,
    options: &BookOptions,
    done: &Arc<AtomicU64>,
) -> Result<Box<dyn Read + Send>> {
    let file = whole(path)?;
    done.fetch_add(file.metadata().map_or(0, |meta| meta.len()), Ordering::Relaxed);
    check(path, &file)?;
    let mut lines = SpooledTempFile::new(LINES_BYTES);
    let written = quiet::caught(|| {
        let book = Workbook::open(Package::open(path, file)?)?;
        let (sheet, rows) = book.sheet(options)?;
        Writer { path, sheet, options, lines: &mut lines, line: 0 }.write(rows)
    });
    written.unwrap_or_else(|_| Err(damaged(path, "its parts contradict each other")))?;
    lines.seek(SeekFrom::Start(0)).map_err(|e| Error::io("cannot read a temporary file", e))?;
    Ok(Box::new(lines))
}

/// A file of this machine, which a workbook has to be to be read back and forth.
fn whole(path: &Path) -> Result<File> {
    match InputBytes::open(path)? {
        InputBytes::Here(file) => Ok(file),
        mut there @ InputBytes::There(_) => {
            let failed = |e| Error::io("cannot write a temporary file", e);
            let mut copy = tempfile::tempfile().map_err(failed)?;
            let mut piece = vec![0; 256 << 10];
            loop {
                match there.read(&mut piece).map_err(|e| cannot("read", path, e))? {
                    0 => break,
                    n => copy.write_all(&piece[..n]).map_err(failed)?,
                }
            }
            Ok(copy)
        }
    }
}

/// # Errors
/// It is not what a workbook is packed in.
fn check(path: &Path, file: &File) -> Result<()> {
    let mut magic = [0; 4];
    let n = file.read_at(&mut magic, 0).map_err(|e| cannot("read", path, e))?;
    match &magic[..n] {
        [b'P', b'K', ..] => Ok(()),
        [0xd0, 0xcf, 0x11, 0xe0] => Err(Error::unsupported(format!(
            "{} is encrypted, or a workbook of Excel before 2007",
            shown(path)
        ))
        .hint("save it as .xlsx without a password")),
        [] => Err(empty(path)),
        _ => Err(Error::user(format!("{} is no workbook of Excel", shown(path)))
            .hint("read_csv reads text, whatever the file is called")),
    }
}

struct Writer<'a> {
    path: &'a Path,
    sheet: &'a str,
    options: &'a BookOptions,
    lines: &'a mut SpooledTempFile,
    /// The number of the next one, from 0.
    line: u32,
}

impl Writer<'_> {
    fn write(mut self, mut rows: Rows<'_>) -> Result<()> {
        let mut first = Vec::new();
        while first.len() < LOOKED_AT
            && let Some(row) = rows.next()?
        {
            first.push(row);
        }
        let is_empty = first.is_empty();
        let Found { begins, mut names } = table::find(&first, self.options);
        let mut out = Vec::new();
        let mut last = None;
        let mut first = first.into_iter().skip(begins);
        let mut written = 0_u64;
        loop {
            let row = match first.next() {
                Some(row) => Some(row),
                None => rows.next()?,
            };
            let Some((at, cells)) = row else { break };
            let is_apart = last.is_some_and(|last: u32| at > last + 1);
            if is_apart && self.options.stop_at_empty {
                break;
            }
            last = Some(at);
            self.record(at, &cells, &mut names, &mut out)?;
            written += 1;
            if out.len() > 64 << 10 {
                self.put(&mut out)?;
            }
        }
        self.put(&mut out)?;
        if written == 0 {
            let lacks = if is_empty { "is empty" } else { "has no row below its header" };
            let sheet = text::quoted(self.sheet);
            return Err(Error::user(format!("{}, sheet {sheet} {lacks}", shown(self.path)))
            .hint("sheet = 'Name' reads another sheet, header = false takes the first row as one of values"));
        }
        Ok(())
    }

    fn record(
        &mut self,
        at: u32,
        cells: &BTreeMap<u32, Cell>,
        names: &mut BTreeMap<u32, String>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        // What is right or left of the header has no name there.
        for &column in cells.keys() {
            if !names.contains_key(&column) {
                let name = table::unnamed(column, names);
                names.insert(column, name);
            }
        }
        out.resize(out.len() + at.saturating_sub(self.line) as usize, b'\n');
        self.line = at + 1;
        for (i, (column, name)) in names.iter().enumerate() {
            out.push(if i == 0 { b'{' } else { b',' });
            cells::quote(name, out);
            out.push(b':');
            match cells.get(column) {
                None => out.extend_from_slice(b"null"),
                Some(Cell::Error(_)) if self.options.ignore_errors => {
                    out.extend_from_slice(b"null");
                }
                Some(Cell::Error(error)) => {
                    return Err(Error::user(format!(
                        "{}, sheet {}, cell {}{}: {error} is no value",
                        shown(self.path),
                        text::quoted(self.sheet),
                        letters(*column),
                        at + 1
                    ))
                    .hint("read_xlsx('…', ignore_errors = true) reads such cells as NULL"));
                }
                Some(cell) => cell.write(out),
            }
        }
        out.extend_from_slice(b"}\n");
        Ok(())
    }

    fn put(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let put = self.lines.write_all(out);
        out.clear();
        put.map_err(|e| Error::io("cannot write a temporary file", e))
    }
}
