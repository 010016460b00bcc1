//! The columns of input files that nobody declared.
//!
//! All of the input is looked at, so what is found holds for every row of it. That is a pass of
//! its own, made cheap: workers share the blocks, a value is only tested for being like those
//! before it, and a column that has turned out to be text is not looked at any further.
//!
//! A column gets the narrowest type that holds all its values, and text rather than a type that
//! would lose something: leading zeros, digits beyond 64 bits, clocks with and without a zone
//! (`guess.rs`). Parquet and Arrow files declare their types; those of all files are compared
//! (`declared.rs`). What is found, and why, does not depend on who looked first: of each kind of
//! value the first in the input is kept.

mod csv;
mod declared;
mod guess;
mod json;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parking_lot::Mutex;
use thalweg_base::limits::LOAD_BLOCK_BYTES;
use thalweg_base::{Error, Result, text};

use super::dates::DateOrder;
use super::input::{CsvOptions, Format};
use super::json_text::JsonSource;
use super::rejects::{Faults, Position, Reject};
use super::text::{CsvText, open_csv};
use super::turns::{InputFile, Turns};
use super::{arrow_ipc, parquet};

/// The columns found in the files themselves.
#[derive(Clone, Debug)]
pub struct Inferred {
    pub columns: Vec<InferredColumn>,
    /// Rows of text looked at; `None` if the files declare their types (Parquet, Arrow).
    pub rows: Option<u64>,
    /// For CSV, whether the first line names the columns.
    pub header: Option<bool>,
    /// The dialect of each CSV file; files by their places among those given.
    pub dialects: Vec<(usize, FileDialect)>,
}

/// How a delimited file is read: as was told, else as was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileDialect {
    pub delimiter: u8,
    pub quote: Option<u8>,
    pub escape: Option<u8>,
    pub comment: Option<u8>,
    /// Whether the first record names the columns.
    pub header: bool,
    /// Whether it has no name for the first of them.
    pub unnamed: bool,
    /// Whether rows may end early.
    pub padded: bool,
    pub decimal_separator: u8,
    /// Lines above the first record that are left out.
    pub skipped_lines: u64,
    pub encoding: &'static encoding_rs::Encoding,
}

impl fmt::Display for FileDialect {
    /// What is not as it usually is: `delimiter ";", 2 lines above the header, windows-1252`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |byte: u8| match byte {
            b'\t' => "tab".to_owned(),
            _ => text::quoted(&char::from(byte).to_string()),
        };
        let mut parts = Vec::new();
        parts
            .extend((self.delimiter != b',').then(|| format!("delimiter {}", one(self.delimiter))));
        parts.extend((self.quote != Some(b'"')).then(|| match self.quote {
            Some(quote) => format!("quote {}", one(quote)),
            None => "no quotes".into(),
        }));
        parts.extend(self.escape.map(|escape| format!("escape {}", one(escape))));
        parts.extend(self.comment.map(|comment| format!("comment {}", one(comment))));
        parts.extend((!self.header).then(|| "no header".into()));
        parts.extend(self.unnamed.then(|| "the first column has no name".into()));
        parts.extend(self.padded.then(|| "NULL where rows end early".into()));
        parts.extend((self.decimal_separator != b'.').then(|| "decimal commas".into()));
        parts.extend(match self.skipped_lines {
            0 => None,
            1 => Some("1 line above left out".to_owned()),
            n => Some(format!("{n} lines above left out")),
        });
        let utf8 = self.encoding == encoding_rs::UTF_8;
        parts.extend((!utf8).then(|| self.encoding.name().to_owned()));
        f.write_str(&parts.join(", "))
    }
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InferredColumn {
    pub name: String,
    /// One that a table can have.
    pub data_type: DataType,
    /// Rows without a value; `None` where the files declare their types.
    pub nulls: Option<u64>,
    /// The spellings of NULL met in it.
    pub null_spellings: Vec<String>,
    /// One line on what decided the type.
    pub why: String,
    /// The order of its dates, if that is not the one of ISO 8601.
    pub order: Option<DateOrder>,
}

impl Inferred {
    /// As a table's columns. All are nullable: that this input has no NULL says nothing about
    /// the next.
    pub fn schema(&self) -> SchemaRef {
        let field = |c: &InferredColumn| Field::new(&c.name, c.data_type.clone(), true);
        Arc::new(Schema::new(self.columns.iter().map(field).collect::<Vec<_>>()))
    }

    /// Adds to a format what was found out and is needed to read the same files as these columns:
    /// whether they have a header, and the order of their dates.
    pub fn settle(&self, format: &mut Format) {
        let Format::Csv(options) = format else { return };
        options.header = self.header.or(options.header);
        for column in &self.columns {
            if let Some(order) = column.order {
                options.orders.retain(|(name, _)| *name != column.name);
                options.orders.push((column.name.clone(), order));
            }
        }
    }
}

/// A pass over input files to find out their columns; shared by its workers, which take pieces
/// until there are none, and work through them.
pub struct Inference {
    turns: Turns<Source>,
    format: Format,
    /// A table's columns, whose types are not in question.
    known: Option<SchemaRef>,
    faults: Arc<Faults>,
    block_bytes: usize,
    /// Rows of each file after which the others are not looked at any more.
    sample: u64,
    csv: Mutex<BTreeMap<usize, Arc<csv::File>>>,
    json: Arc<Mutex<json::Keys>>,
    declared: Mutex<BTreeMap<usize, SchemaRef>>,
}

enum Source {
    Csv(CsvText, Arc<csv::File>),
    Json(JsonSource),
}

impl Inference {
    pub fn open(files: Vec<PathBuf>, format: Format) -> Result<Inference> {
        format.check()?;
        if files.is_empty() {
            return Err(Error::user("no input file given"));
        }
        let faults = Faults::new(0).ignoring(format.ignores_errors());
        Ok(Inference {
            turns: Turns::new(files)?,
            format,
            known: None,
            faults: Arc::new(faults),
            block_bytes: LOAD_BLOCK_BYTES,
            sample: u64::MAX,
            csv: Mutex::default(),
            json: Arc::default(),
            declared: Mutex::default(),
        })
    }

    /// Looks only for columns that `known` does not have. Files that have none are not read.
    pub fn beside(mut self, known: SchemaRef) -> Inference {
        self.known = Some(known);
        self
    }

    /// Bad rows that are passed over before the inference fails; at first, none.
    pub fn with_rejects_max(mut self, rows: u64) -> Inference {
        self.faults = Arc::new(Faults::new(rows).ignoring(self.format.ignores_errors()));
        self
    }

    /// Looks at the blocks alone that hold the first `rows` of each CSV file. With more than one worker
    /// these may be more than with one.
    pub fn with_sample(mut self, rows: u64) -> Inference {
        self.sample = rows;
        self
    }

    /// Bytes of text a worker has in memory.
    pub fn with_block_bytes(mut self, bytes: usize) -> Inference {
        self.block_bytes = bytes;
        self
    }

    /// The next piece of input; blocking I/O and decompression. Pieces come in no particular
    /// order.
    pub fn next(&self) -> Option<Piece> {
        self.turns.next(|file, source| {
            let mut at = Position { file: file.index, line: 0 };
            if self.faults.settled(at) {
                return None;
            }
            match source {
                Some(Source::Csv(text, _)) => at = text.source.position(),
                Some(Source::Json(text)) => at = text.position(),
                None => {}
            }
            if self.faults.settled(at) {
                return None;
            }
            self.advance(file, source).unwrap_or_else(|error| {
                self.faults.fatal(at, error);
                None
            })
        })
    }

    fn advance(
        &self,
        file: &InputFile<Source>,
        open: &mut Option<Source>,
    ) -> Result<Option<Piece>> {
        match open {
            None => self.first(file, open),
            Some(Source::Csv(_, csv)) if csv.rows() >= self.sample => Ok(None),
            Some(Source::Csv(text, csv)) => Ok(text
                .source
                .next_block()?
                .map(|b| Piece::Csv(csv::Piece::new(csv, b, &self.faults)))),
            Some(Source::Json(text)) => Ok(text.next_block()?.map(|block| {
                let (keys, known) = (Arc::clone(&self.json), self.known.clone());
                let (options, faults) = (self.format.clone(), Arc::clone(&self.faults));
                Piece::Json(Box::new(json::Piece::new(keys, known, options, block, faults)))
            })),
        }
    }

    fn first(&self, file: &InputFile<Source>, open: &mut Option<Source>) -> Result<Option<Piece>> {
        let done = Arc::clone(&file.done);
        let declared = match &self.format {
            Format::Csv(options) => {
                let text = open_csv(&file.path, file.index, options, self.block_bytes, done)?;
                return self.first_csv(file, text, options, open);
            }
            Format::Json(options) => {
                let (path, index) = (&file.path, file.index);
                let text = JsonSource::open(path, index, options, self.block_bytes, done)?;
                *open = Some(Source::Json(text));
                return self.advance(file, open);
            }
            Format::Parquet => {
                let parquet = parquet::open(&file.path)?;
                parquet::metadata(&file.path, &parquet)?.schema().clone()
            }
            Format::Arrow => arrow_ipc::schema(&file.path)?,
        };
        self.declared.lock().insert(file.index, declared);
        Ok(None)
    }

    fn first_csv(
        &self,
        file: &InputFile<Source>,
        mut text: CsvText,
        options: &CsvOptions,
        open: &mut Option<Source>,
    ) -> Result<Option<Piece>> {
        let (csv, block) = csv::File::begin(&mut text, &file.path, options, self.known.as_ref())?;
        let csv = Arc::new(csv);
        self.csv.lock().insert(file.index, Arc::clone(&csv));
        if !csv.has_questions() {
            return Ok(None);
        }
        let piece = csv::Piece::new(&csv, block, &self.faults);
        *open = Some(Source::Csv(text, csv));
        Ok(Some(Piece::Csv(piece)))
    }

    /// Once all workers are done: the rows passed over, in order, and the columns.
    ///
    /// # Errors
    /// The input cannot be read, has too many bad rows, or its files contradict each other.
    pub fn finish(&self) -> (Vec<Arc<Reject>>, Result<Inferred>) {
        let (rejects, result) = self.faults.outcome();
        (rejects, result.and_then(|()| self.combine()))
    }

    fn combine(&self) -> Result<Inferred> {
        let paths: Vec<_> = self.turns.files().iter().map(|f| Arc::clone(&f.path)).collect();
        match &self.format {
            Format::Csv(options) => {
                csv::combine(&paths, &self.csv.lock(), options, self.known.as_ref())
            }
            Format::Json(_) => {
                let keys = self.json.lock();
                if keys.is_empty() && keys.rows() > 0 && self.known.is_none() {
                    return Err(Error::user(format!(
                        "{} holds no keys to make columns of",
                        super::input::shown(&paths[0])
                    ))
                    .hint("declare the columns"));
                }
                Ok(keys.inferred(&paths, self.known.is_none()))
            }
            Format::Parquet | Format::Arrow => {
                declared::combine(&paths, &self.declared.lock(), self.known.as_ref())
            }
        }
    }

    /// Bytes of the files looked at so far, as they lie on disk.
    pub fn bytes_done(&self) -> u64 {
        self.turns.bytes_done()
    }

    /// Bytes of all files together, as they lie on disk.
    pub fn bytes_total(&self) -> u64 {
        self.turns.bytes_total()
    }
}

/// Some rows to be looked at.
pub enum Piece {
    #[doc(hidden)]
    Csv(csv::Piece),
    #[doc(hidden)]
    Json(Box<json::Piece>),
}

impl Piece {
    /// Looks at the next rows, a bounded number; false: there are none left.
    pub fn step(&mut self) -> bool {
        match self {
            Piece::Csv(piece) => piece.step(),
            Piece::Json(piece) => piece.step(),
        }
    }
}

/// Finds out names and types of the columns of `files`, on this thread.
pub fn infer(files: &[PathBuf], format: &Format) -> Result<Inferred> {
    let inference = Inference::open(files.to_vec(), format.clone())?;
    while let Some(mut piece) = inference.next() {
        while piece.step() {}
    }
    inference.finish().1
}
