//! The columns of input files that nobody declared.
//!
//! Text is sampled: the first block of up to [`FILES_MAX`] files, and of large plain files some
//! rows further in, where identifiers have grown and dates have changed their form. A column gets
//! the narrowest type that holds all it showed, and text rather than a type that would lose
//! something: leading zeros, digits beyond 64 bits, clocks with and without a zone.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use thalweg_base::limits::{INFER_ROWS_MAX, LOAD_BLOCK_BYTES};
use thalweg_base::{Error, Result, text};

use super::arrow_ipc;
use super::block::{Block, Dialect, TextSource};
use super::csv::{FirstRecord, Nulls, malformed, no_records};
use super::input::{Compression, CsvOptions, Format, cannot, empty, open, shown};
use super::json::{Scratch, Value, Wrong, next_line, object, wrong};
use super::parquet;
use super::parse::{Look, look};
use super::scan::{Records, Shape, unquote};
use crate::stored_type;

/// Files looked at, spread evenly over those given.
const FILES_MAX: usize = 16;

/// Bytes looked at in each of the places further in.
const PROBE_BYTES: usize = 128 * 1024;

/// Where to look further in, in quarters of the file.
const PROBE_QUARTERS: [u64; 3] = [1, 2, 3];

/// A schema found in the files themselves.
#[derive(Clone, Debug)]
pub struct Inferred {
    /// All columns are nullable and of a type that a table can have.
    pub schema: SchemaRef,
    /// Rows of text the types rest on; `None` if the files declare their types (Parquet, Arrow).
    pub sampled_rows: Option<u64>,
    /// For CSV, whether the first line names the columns.
    pub header: Option<bool>,
}

/// Finds out names and types of the columns of `files`.
pub fn infer(files: &[PathBuf], format: &Format) -> Result<Inferred> {
    let Some(first) = files.first() else { return Err(Error::user("no input file given")) };
    for path in files {
        if path.metadata().map_err(|e| cannot("open", path, e))?.len() == 0 {
            return Err(empty(path));
        }
    }
    match format {
        Format::Csv(options) => {
            options.check()?;
            csv(&spread(files), options)
        }
        Format::JsonLines => json(&spread(files)),
        Format::Parquet => {
            let file = parquet::open(first)?;
            declared(first, parquet::metadata(first, &file)?.schema().clone())
        }
        Format::Arrow => declared(first, arrow_ipc::schema(first)?),
    }
}

fn spread(files: &[PathBuf]) -> Vec<&Path> {
    let count = files.len().min(FILES_MAX);
    (0..count).map(|i| files[i * files.len() / count].as_path()).collect()
}

fn declared(path: &Path, schema: SchemaRef) -> Result<Inferred> {
    let fields = schema
        .fields()
        .iter()
        .map(|field| {
            let data_type = stored_type(field.data_type()).ok_or_else(|| {
                Error::unsupported(format!(
                    "{}, column {}: a table cannot have a column of type {}",
                    shown(path),
                    text::quoted(field.name()),
                    field.data_type()
                ))
                .hint("declare the columns with another type for it, or leave it out of the file")
            })?;
            Ok(Field::new(field.name(), data_type, true))
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(Inferred { schema: Arc::new(Schema::new(fields)), sampled_rows: None, header: None })
}

/// What the values of a column looked like so far.
#[derive(Clone, Copy, Debug, Default)]
struct Guess {
    boolean: bool,
    integer: bool,
    float: bool,
    date: bool,
    timestamp: bool,
    fine: bool,
    zoned: bool,
    local: bool,
    text: bool,
}

impl Guess {
    fn add(&mut self, look: Look) {
        match look {
            Look::Boolean => self.boolean = true,
            Look::Integer => self.integer = true,
            Look::Float => self.float = true,
            Look::Date => self.date = true,
            Look::Timestamp { fine, zoned } => {
                self.timestamp = true;
                self.fine |= fine;
                self.zoned |= zoned;
                self.local |= !zoned;
            }
            Look::Text => self.text = true,
        }
    }

    fn merge(&mut self, other: &Guess) {
        self.boolean |= other.boolean;
        self.integer |= other.integer;
        self.float |= other.float;
        self.date |= other.date;
        self.timestamp |= other.timestamp;
        self.fine |= other.fine;
        self.zoned |= other.zoned;
        self.local |= other.local;
        self.text |= other.text;
    }

    /// Whether no value but NULL was seen.
    fn none(&self) -> bool {
        !(self.boolean || self.integer || self.float || self.date || self.timestamp || self.text)
    }

    fn typed(&self) -> bool {
        self.data_type() != DataType::Utf8View
    }

    fn data_type(&self) -> DataType {
        let numeric = self.integer || self.float;
        let dated = self.date || self.timestamp;
        // Without a zone of its own a date or a local time among zoned ones is ambiguous.
        let ambiguous = self.zoned && (self.local || self.date);
        let kinds = [self.boolean, numeric, dated].iter().filter(|&&kind| kind).count();
        if self.text || kinds != 1 || ambiguous {
            return DataType::Utf8View;
        }
        if self.boolean {
            return DataType::Boolean;
        }
        if numeric {
            return if self.float { DataType::Float64 } else { DataType::Int64 };
        }
        if !self.timestamp {
            return DataType::Date32;
        }
        let unit = if self.fine { TimeUnit::Nanosecond } else { TimeUnit::Microsecond };
        DataType::Timestamp(unit, self.zoned.then(|| "UTC".into()))
    }
}

fn schema(names: &[String], guesses: &[Guess]) -> SchemaRef {
    let field = |(name, guess): (&String, &Guess)| Field::new(name, guess.data_type(), true);
    Arc::new(Schema::new(names.iter().zip(guesses).map(field).collect::<Vec<_>>()))
}

/// One CSV file's sample: the first record apart, since it may be a header.
struct Sample {
    first: FirstRecord,
    /// Of the records after the first.
    guesses: Vec<Guess>,
    /// For each column whether the first record's value came again.
    again: Vec<bool>,
    rows: u64,
}

fn csv(files: &[&Path], options: &CsvOptions) -> Result<Inferred> {
    let nulls = Nulls::new(options);
    let mut names: Vec<String> = Vec::new();
    let mut guesses: Vec<Guess> = Vec::new();
    let mut rows = 0;
    let mut header = None;
    for path in files {
        let sample = sample(
            path,
            options,
            &nulls,
            INFER_ROWS_MAX / files.len(),
            LOAD_BLOCK_BYTES / files.len(),
        )?;
        let own_names = sample.first.names();
        let known =
            |name: &String| names.iter().position(|n| n.to_lowercase() == name.to_lowercase());
        let shared = own_names.iter().filter(|name| known(name).is_some()).count();
        let has_header = match (options.header, header) {
            (Some(given), _) => given,
            (None, None) => looks_like_header(&sample, &nulls),
            (None, Some(false)) => false,
            (None, Some(true)) => {
                shared * 2 >= own_names.len() || looks_like_header(&sample, &nulls)
            }
        };
        if header.is_some_and(|first| first != has_header) {
            return Err(Error::user(format!(
                "{} begins with a header line, {} does not",
                shown(files[0]),
                shown(path)
            ))
            .hint("load them separately, or say which with `--header true` or `--header false`"));
        }
        header = Some(has_header);
        rows += sample.rows + u64::from(!has_header);
        let mut own = sample.guesses;
        if has_header {
            for (name, guess) in own_names.into_iter().zip(&own) {
                match names.iter().position(|n| n.to_lowercase() == name.to_lowercase()) {
                    Some(column) => guesses[column].merge(guess),
                    None => {
                        names.push(name);
                        guesses.push(*guess);
                    }
                }
            }
            continue;
        }
        for (i, (guess, value)) in own.iter_mut().zip(&sample.first.fields).enumerate() {
            if sample.first.quoted[i] || !nulls.contains(value) {
                guess.add(look(value));
            }
        }
        if names.is_empty() {
            names = (1..=own.len()).map(|i| format!("column_{i}")).collect();
            guesses = vec![Guess::default(); own.len()];
        } else if names.len() != own.len() {
            return Err(Error::user(format!(
                "{} has {} columns, {} has {}",
                shown(files[0]),
                names.len(),
                shown(path),
                own.len()
            ))
            .hint("load files of different shapes into different tables"));
        }
        guesses.iter_mut().zip(&own).for_each(|(guess, own)| guess.merge(own));
    }
    Ok(Inferred { schema: schema(&names, &guesses), sampled_rows: Some(rows), header })
}

/// A header is text throughout, above columns that are not; or, where all is text, a record of
/// different words none of which comes again in its column.
fn looks_like_header(sample: &Sample, nulls: &Nulls) -> bool {
    let first = &sample.first;
    let missing = |i: usize| !first.quoted[i] && nulls.contains(&first.fields[i]);
    let text = |i: usize| missing(i) || look(&first.fields[i]) == Look::Text;
    if !(0..first.fields.len()).all(text) {
        return false;
    }
    let contrast = |i: usize| !missing(i) && sample.guesses.get(i).is_some_and(Guess::typed);
    if (0..first.fields.len()).any(contrast) {
        return true;
    }
    let typed = sample.guesses.iter().any(Guess::typed);
    let mut sorted: Vec<&Vec<u8>> = first.fields.iter().collect();
    sorted.sort();
    sorted.dedup();
    !typed
        && sorted.len() == first.fields.len()
        && !(0..first.fields.len()).any(missing)
        && !sample.again.contains(&true)
}

fn sample(
    path: &Path,
    options: &CsvOptions,
    nulls: &Nulls,
    rows_max: usize,
    block_bytes: usize,
) -> Result<Sample> {
    let dialect = options.dialect();
    let mut source = TextSource::open(path, dialect, block_bytes.max(PROBE_BYTES), Arc::default())?;
    let (block, mut first) = loop {
        let Some(block) = source.next_block()? else {
            return Err(no_records(path, options.header == Some(true)));
        };
        if let Some(first) = FirstRecord::read(&block, dialect)? {
            break (block, first);
        }
    };
    let fields = first.fields.len();
    let shape = Shape { dialect, fields, trailing: false };
    let mut looker = Looker {
        shape,
        nulls,
        first: &first,
        guesses: vec![Guess::default(); fields],
        again: vec![false; fields],
        rows: 0,
        rows_max: rows_max as u64,
    };
    looker.look(&block, first.end, rows_max)?;
    for probe in probes(source.path(), &block, dialect)? {
        // A probe begins somewhere: if it does not read as records, it says nothing.
        looker.rows_max += (rows_max / 8) as u64;
        let _ = looker.look(&probe, probe.start, rows_max / 8);
    }
    let (mut guesses, mut again, rows) = (looker.guesses, looker.again, looker.rows);
    // The empty column after a delimiter that ends each record.
    if fields > 1 && first.trailing(fields - 1) && rows > 0 && guesses[fields - 1].none() {
        first.fields.pop();
        first.quoted.pop();
        guesses.pop();
        again.pop();
    }
    Ok(Sample { first, guesses, again, rows })
}

/// Pieces further in of a large plain file without quotes in sight: only there does every line
/// end end a record.
fn probes(path: &Path, block: &Block, dialect: Dialect) -> Result<Vec<Block>> {
    let quoted =
        |data: &[u8]| dialect.quote.is_some_and(|quote| memchr::memchr(quote, data).is_some());
    let (_, compression) = open(path, Arc::default())?;
    let file = File::open(path).map_err(|e| cannot("open", path, e))?;
    let bytes = file.metadata().map_err(|e| cannot("open", path, e))?.len();
    let mut probes = Vec::new();
    if compression != Compression::None
        || bytes < 4 * block.data.len() as u64
        || quoted(&block.data)
    {
        return Ok(probes);
    }
    for quarter in PROBE_QUARTERS {
        let mut data = vec![0; PROBE_BYTES];
        let length =
            file.read_at(&mut data, bytes / 4 * quarter).map_err(|e| cannot("read", path, e))?;
        data.truncate(length);
        let (Some(start), Some(end)) =
            (memchr::memchr(b'\n', &data), memchr::memrchr(b'\n', &data))
        else {
            continue;
        };
        data.truncate(end + 1);
        if !quoted(&data) {
            probes.push(Block { path: Arc::new(path.to_owned()), data, start: start + 1, line: 0 });
        }
    }
    Ok(probes)
}

struct Looker<'a> {
    shape: Shape,
    nulls: &'a Nulls,
    first: &'a FirstRecord,
    guesses: Vec<Guess>,
    again: Vec<bool>,
    rows: u64,
    rows_max: u64,
}

impl Looker<'_> {
    fn look(&mut self, block: &Block, mut pos: usize, rows_max: usize) -> Result<()> {
        let mut records = Records::default();
        let mut scratch = Vec::new();
        let mut left = rows_max;
        while left > 0 && self.rows < self.rows_max && pos < block.data.len() {
            pos = records
                .scan(&block.data, pos, &self.shape, left.min(1024))
                .map_err(|m| malformed(block, &self.shape, m))?;
            for ends in records.ends.chunks_exact(self.shape.fields + 1) {
                for column in 0..self.shape.fields {
                    let start = ends[column] as usize + usize::from(column > 0);
                    self.value(column, &block.data[start..ends[column + 1] as usize], &mut scratch);
                }
            }
            left -= records.rows;
            self.rows += records.rows as u64;
        }
        Ok(())
    }

    fn value(&mut self, column: usize, field: &[u8], scratch: &mut Vec<u8>) {
        let Dialect { quote, escape, .. } = self.shape.dialect;
        // Text stays text: only whether the would-be header comes again is still open.
        let guess = &mut self.guesses[column];
        if guess.text && self.again[column] {
            return;
        }
        let quote = quote.filter(|&quote| field.first() == Some(&quote));
        let value = match quote {
            Some(quote) => unquote(field, quote, escape, scratch).unwrap_or(field),
            None if self.nulls.contains(field) => return,
            None => field,
        };
        self.again[column] |= self.first.fields[column] == value;
        if guess.text {
            return;
        }
        let blank = quote.is_none() && self.nulls.contains(value.trim_ascii());
        if !blank {
            guess.add(look(value));
        }
    }
}

fn json(files: &[&Path]) -> Result<Inferred> {
    let mut names: Vec<String> = Vec::new();
    let mut guesses: Vec<Guess> = Vec::new();
    // By lower case: the table's columns are matched without regard to it.
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut scratch = Scratch::default();
    let mut rows = 0;
    for path in files {
        let block_bytes = (LOAD_BLOCK_BYTES / files.len()).max(PROBE_BYTES);
        let mut source = TextSource::open(path, Dialect::LINES, block_bytes, Arc::default())?;
        let Some(block) = source.next_block()? else { return Err(no_records(path, false)) };
        let mut pos = block.start;
        let rows_end = rows + (INFER_ROWS_MAX / files.len()) as u64;
        while rows < rows_end {
            let Some((start, stop)) = next_line(&block, &mut pos) else { break };
            rows += 1;
            object(&block.data[start..stop], &mut scratch, |key, value| {
                let name = String::from_utf8_lossy(key);
                let column = match known.get(&*name) {
                    Some(&column) => column,
                    None => *known.entry(name.to_lowercase()).or_insert_with(|| {
                        names.push(name.trim().to_owned());
                        guesses.push(Guess::default());
                        names.len() - 1
                    }),
                };
                match value {
                    Value::Null => {}
                    Value::Boolean(_) => guesses[column].boolean = true,
                    Value::Nested(_) => guesses[column].text = true,
                    // 1.0 and 1e3 are integers to some writers; the digits decide.
                    Value::Number(bytes) => guesses[column].add(look(bytes)),
                    // A number in quotes was meant as text.
                    Value::Text(bytes) => guesses[column].add(match look(bytes) {
                        dated @ (Look::Date | Look::Timestamp { .. }) => dated,
                        _ => Look::Text,
                    }),
                }
                Ok::<(), Wrong>(())
            })
            .map_err(|e| wrong(&block, start, e))?;
        }
    }
    if names.is_empty() {
        return Err(Error::user(format!("{} holds no keys to make columns of", shown(files[0])))
            .hint("declare the columns"));
    }
    Ok(Inferred { schema: schema(&names, &guesses), sampled_rows: Some(rows), header: None })
}
