//! Delimited text into typed batches.
//!
//! A batch is made of stretches of [`STRETCH_ROWS`] records: their field ends are found first
//! (`scan.rs`), then each column is parsed over all of them in one loop of its own type, while
//! text and ends are still in the cache.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, BooleanBufferBuilder, RecordBatch, RecordBatchOptions};
use arrow::compute::filter;
use arrow::datatypes::SchemaRef;
use thalweg_base::limits::BATCH_ROWS;
use thalweg_base::{Error, Result};

use super::block::{Block, Dialect, Lines};
use super::columns::{Column, Sink, each};
use super::input::{CsvOptions, shown};
use super::layout::{Columns, Fault, Finder, Layout, find, shortened, unique_names};
use super::parse::{Bad, look};
use super::rejects::{Faults, Position};
use super::scan::{ANY, Malformed, Records, Shape, enclosed, field, unspaced};
use super::sniff::Found;
use super::spelling::Spelling;

/// Records scanned at once: their ends (4 bytes a field) and their text stay within L2.
const STRETCH_ROWS: usize = 1024;

/// Fields scanned at once: of wide files fewer records are.
pub(super) const STRETCH_FIELDS: usize = 64 * 1024;

/// No byte, so that without quotes none opens a field.
pub(super) const NO_QUOTE: u16 = 256;
const _: () = assert!(BATCH_ROWS.is_multiple_of(STRETCH_ROWS));

/// The spellings of NULL.
pub(super) struct Nulls {
    /// As they were given.
    spellings: Vec<Vec<u8>>,
    empty: Option<usize>,
    only_empty: bool,
}

impl Nulls {
    pub(super) fn new(options: &CsvOptions) -> Nulls {
        let spellings: Vec<_> = options.nulls.iter().map(|n| n.clone().into_bytes()).collect();
        let empty = spellings.iter().position(Vec::is_empty);
        Nulls { only_empty: spellings.iter().all(Vec::is_empty), empty, spellings }
    }

    /// The spelling that is nothing.
    pub(super) fn empty(&self) -> Option<usize> {
        self.empty
    }

    /// Which spelling a field is, if it is one.
    #[inline]
    pub(super) fn find(&self, field: &[u8]) -> Option<usize> {
        if field.is_empty() {
            return self.empty;
        }
        if self.only_empty {
            return None;
        }
        self.spellings.iter().position(|null| null == field)
    }

    #[inline]
    pub(super) fn contains(&self, field: &[u8]) -> bool {
        self.find(field).is_some()
    }
}

/// What all blocks of one file share.
pub(super) struct CsvLayout {
    pub layout: Layout,
    shape: Shape,
    nulls: Nulls,
    /// How the values of each of `layout.targets` are spelled.
    spellings: Vec<Spelling>,
}

/// The fields of a first record without their quotes.
#[derive(Clone)]
pub(super) struct FirstRecord {
    pub line: u64,
    /// Where the next record begins.
    pub end: usize,
    pub fields: Vec<Vec<u8>>,
    /// For each field whether it was quoted: then it is not NULL.
    pub quoted: Vec<bool>,
}

impl FirstRecord {
    pub(super) fn read(block: &Block, file: &Found) -> Result<Option<FirstRecord>> {
        let dialect = file.dialect;
        let shape = Shape { dialect, fields: ANY, trailing: false, padded: false };
        let mut records = Records::default();
        let end = records
            .scan(&block.data, block.start, &shape, 1)
            .map_err(|m| malformed(block, &shape, &m))?;
        let Some((&at, ends)) = records.ends.split_first().filter(|_| records.rows == 1) else {
            return Ok(None);
        };
        let line = block.line_of(at as usize);
        let mut first = FirstRecord { line, end, fields: Vec::new(), quoted: Vec::new() };
        let mut start = at as usize;
        let mut scratch = Vec::new();
        for &stop in ends {
            let field = &block.data[start..stop as usize];
            start = stop as usize + 1;
            let field = if dialect.spaces {
                unspaced(field, dialect.quote.map_or(NO_QUOTE, u16::from))
            } else {
                field
            };
            let quote = dialect.quote.filter(|&quote| field.first() == Some(&quote));
            if quote.is_none() && field.contains(&b'\r') && dialect.newline == b'\n' {
                return Err(Error::user(format!(
                    "{}, line {}: a carriage return inside a field",
                    shown(&block.path),
                    block.line_of(at as usize)
                ))
                .hint("lines must end in LF or CRLF; convert old Mac line ends with `tr '\\r' '\\n' < IN > OUT`"));
            }
            let value = match quote {
                Some(_) => enclosed(field, &dialect, &mut scratch).unwrap_or(field),
                None => field,
            };
            first.fields.push(value.to_vec());
            first.quoted.push(quote.is_some());
        }
        if file.fields.is_some_and(|fields| first.trailing(fields)) {
            first.fields.pop();
            first.quoted.pop();
        }
        if file.unnamed {
            first.fields.insert(0, Vec::new());
            first.quoted.insert(0, false);
        }
        Ok(Some(first))
    }

    /// For messages.
    fn shown(&self) -> String {
        let fields: Vec<_> = self.fields.iter().map(|f| String::from_utf8_lossy(f)).collect();
        shortened(fields.join(", ").as_bytes())
    }

    /// As column names: empty ones get a number, repeated ones a suffix.
    pub(super) fn names(&self) -> Vec<String> {
        self.names_as(&[])
    }

    /// The same where the first columns are called as somebody told.
    pub(super) fn names_as(&self, told: &[String]) -> Vec<String> {
        let name = |(i, field): (usize, &Vec<u8>)| match told.get(i) {
            Some(name) => name.clone(),
            None => String::from_utf8_lossy(field).trim().to_owned(),
        };
        unique_names(self.fields.iter().enumerate().map(name))
    }

    /// Whether the record ends in a delimiter that closes its last field rather than beginning
    /// another one.
    pub(super) fn trailing(&self, fields: usize) -> bool {
        self.fields.len() == fields + 1
            && self.fields.last().is_some_and(Vec::is_empty)
            && !self.quoted[fields]
    }
}

impl CsvLayout {
    /// Finds out from the first block of a file how its columns meet the table's, and moves the
    /// block's start past the header. `None` if there is no record in it.
    pub(super) fn detect(
        block: &mut Block,
        options: &CsvOptions,
        file: &Found,
        columns: &Arc<Columns>,
    ) -> Result<Option<CsvLayout>> {
        let dialect = file.dialect;
        let options = &*file.options(options);
        let nulls = Nulls::new(options);
        let expected = columns.names.as_ref().map_or(columns.schema.fields().len(), Vec::len);
        let mut first = match FirstRecord::read(block, file)? {
            Some(first) => first,
            // Blank lines are the rows of an only column.
            None if expected == 1
                && options.header == Some(false)
                && block.start < block.data.len() =>
            {
                FirstRecord {
                    line: block.line,
                    end: block.start,
                    fields: vec![vec![]],
                    quoted: vec![false],
                }
            }
            None => return Ok(None),
        };
        let path = Arc::clone(&block.path);
        let schema = &columns.schema;
        let header =
            options.header.unwrap_or_else(|| file.unnamed || is_header(&first, schema, &nulls));
        if header {
            block.start = first.end;
        }
        let count = columns.names.as_ref().map_or(schema.fields().len(), Vec::len);
        let mut trailing = file.fields.is_none() && first.trailing(count);
        let layout = match &columns.names {
            Some(names) => {
                let found = first.fields.len() - usize::from(trailing);
                if found != names.len() {
                    return Err(Error::user(format!(
                        "{} has {found} columns, {} are named",
                        shown(&path),
                        names.len()
                    ))
                    .hint(
                        "name every column of the file, or check the delimiter (`--delimiter`)",
                    ));
                }
                Layout::by_name(&path, names, columns)?
            }
            None if header => {
                // A header line `a|b|` has no third column if its records have none either.
                if !trailing
                    && file.fields.is_none()
                    && first.fields.len() > 1
                    && first.trailing(first.fields.len() - 1)
                {
                    let last = first.names_as(&options.names).pop().unwrap_or_default();
                    trailing = find(schema, &last).is_none();
                }
                if trailing {
                    first.fields.pop();
                }
                Layout::by_name(&path, &first.names_as(&options.names), columns)?
            }
            None => {
                let count = first.fields.len() - usize::from(trailing);
                Layout::by_position(&path, count, columns)
                    .map_err(|e| e.detail(format!("its first line is {}", first.shown())))?
            }
        };
        let trailing = trailing || file.fields.is_some();
        let shape =
            Shape { dialect, fields: layout.inputs, trailing, padded: options.null_padding };
        let layout = layout.narrowed();
        let spelling = |&(_, target): &(usize, usize)| {
            let field = layout.columns.schema.field(target);
            Spelling::of(options, field.name(), field.data_type())
        };
        let spellings = layout.targets.iter().map(spelling).collect();
        Ok(Some(CsvLayout { layout, shape, nulls, spellings }))
    }
}

/// Whether a file's first record names columns, given the table's. It does if most of it are
/// names of the table's columns, or if it cannot be a row: text where the table has no text.
pub(super) fn is_header(first: &FirstRecord, schema: &SchemaRef, nulls: &Nulls) -> bool {
    let (names, finder) = (first.names(), Finder::new(schema));
    let named = names.iter().filter(|name| finder.find(name).is_some()).count();
    if named > 0 && named * 2 >= names.len() {
        return true;
    }
    let all_text = first.fields.iter().all(|field| look(field).is_word());
    let same_count =
        first.fields.len() == schema.fields().len() || first.trailing(schema.fields().len());
    if !all_text || !same_count {
        return all_text && named > 0;
    }
    first.fields.iter().zip(schema.fields()).zip(&first.quoted).any(|((value, field), &quoted)| {
        (quoted || !nulls.contains(value))
            && Column::new(field.name(), field.data_type(), 1)
                .is_ok_and(|mut column| each!(&mut column, sink => sink.value(value).is_err()))
    })
}

/// What is wrong with a record of another number of fields.
fn ragged(block: &Block, shape: &Shape, at: usize, found: usize) -> Fault {
    let line_end =
        memchr::memchr(block.newline, &block.data[at..]).map_or(block.data.len(), |n| at + n);
    Fault {
        column: None,
        value: None,
        reason: format!("{found} fields where the first line has {}", shape.fields),
        detail: Some(format!("the line begins {}", shortened(&block.data[at..line_end]))),
        hint: match found < shape.fields {
            true => "rows that end early have NULL in the other columns with null_padding; else check the delimiter (`--delimiter`)",
            false => "quote fields that contain the delimiter, or check the delimiter (`--delimiter`)",
        }
        .into(),
    }
}

pub(super) fn malformed(block: &Block, shape: &Shape, malformed: &Malformed) -> Error {
    let (at, reason, detail, hint) = match *malformed {
        Malformed::Ragged { at, found, .. } => {
            let fault = ragged(block, shape, at, found);
            (at, fault.reason, fault.detail, fault.hint)
        }
        Malformed::Unclosed { at } => (
            at,
            "a quoted field is opened here and never closed".into(),
            None,
            "double the quotes inside a quoted field, or read the file without quotes (`--quote none`)".into(),
        ),
    };
    let place = format!("{}, line {}", shown(&block.path), block.line_of(at));
    let error = Error::user(format!("{place}: {reason}")).hint(hint);
    match detail {
        Some(detail) => error.detail(detail),
        None => error,
    }
}

/// Reports a record that is not one; where the next begins, if the block can be read on.
pub(super) fn report(
    block: &Block,
    shape: &Shape,
    lines: &mut Lines,
    faults: &Faults,
    found: &Malformed,
) -> Option<usize> {
    match *found {
        Malformed::Ragged { at, found, next } => {
            let line = lines.of(block, at);
            let reject = ragged(block, shape, at, found).in_block(block, line, at, next);
            faults.reject(Position { file: block.file, line }, reject);
            Some(next)
        }
        Malformed::Unclosed { at } => {
            let position = Position { file: block.file, line: lines.of(block, at) };
            faults.fatal(position, malformed(block, shape, found));
            None
        }
    }
}

/// The batches of one block.
pub(super) struct CsvBatches {
    block: Block,
    layout: Arc<CsvLayout>,
    faults: Arc<Faults>,
    pos: usize,
    records: Records,
    columns: Vec<Column>,
    lines: Lines,
    scratch: Vec<u8>,
}

impl CsvBatches {
    /// The place of the file among those of the input.
    pub(super) fn file(&self) -> usize {
        self.block.file
    }

    pub(super) fn new(block: Block, layout: Arc<CsvLayout>, faults: Arc<Faults>) -> CsvBatches {
        CsvBatches {
            pos: block.start,
            block,
            layout,
            faults,
            records: Records::default(),
            columns: Vec::new(),
            lines: Lines::default(),
            scratch: Vec::new(),
        }
    }

    /// The next at most `BATCH_ROWS` rows.
    pub(super) fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let end = self.block.data.len();
        if self.pos >= end || self.faults.settled(self.block.position()) {
            return Ok(None);
        }
        let shared = Arc::clone(&self.layout);
        let CsvLayout { layout, shape, nulls, spellings } = &*shared;
        if self.columns.is_empty() {
            // A field takes a byte at least.
            let rows = (end - self.pos) / shape.fields.max(1) + 1;
            self.columns = new_columns(layout, rows)?;
        }
        let stretch_rows = (STRETCH_FIELDS / shape.fields.max(1)).clamp(1, STRETCH_ROWS);
        let mut rows = 0;
        let mut dropped: Vec<usize> = Vec::new();
        let mut bad: Vec<BadField> = Vec::new();
        while rows < BATCH_ROWS && self.pos < end {
            let most = stretch_rows.min(BATCH_ROWS - rows);
            let scanned = self.records.scan(&self.block.data, self.pos, shape, most);
            for ((column, &(input, target)), spelling) in
                self.columns.iter_mut().zip(&layout.targets).zip(spellings)
            {
                let stretch = Stretch {
                    data: &self.block.data,
                    records: &self.records,
                    dialect: shape.dialect,
                    fields: shape.fields,
                    nulls,
                    nullable: layout.columns.schema.field(target).is_nullable(),
                };
                let mut from = 0;
                while let Err((row, why)) = match spelling.is_plain() {
                    true => {
                        each!(column, sink => stretch.fill(sink, input, from, &mut self.scratch))
                    }
                    false => {
                        each!(column, sink => stretch.respell(sink, input, from, spelling, &mut self.scratch))
                    }
                } {
                    // Something must stand in the row until it is dropped.
                    each!(column, sink => sink.null());
                    bad.push(BadField { row, input, target, why });
                    from = row + 1;
                }
            }
            if !bad.is_empty() {
                bad.sort_by_key(|b| (b.row, b.input));
                bad.dedup_by_key(|b| b.row);
                for field in bad.drain(..) {
                    dropped.push(rows + field.row);
                    self.reject(&field);
                }
            }
            rows += self.records.rows;
            let CsvBatches { block, lines, faults, .. } = self;
            self.pos = match scanned {
                Ok(next) => next,
                Err(m) => report(block, shape, lines, faults, &m).unwrap_or(end),
            };
        }
        if rows == 0 {
            return Ok(None);
        }
        let arrays = finish(layout, &mut self.columns)?;
        batch_of(layout, arrays, rows, &dropped).map(Some)
    }

    fn reject(&mut self, bad: &BadField) {
        let CsvLayout { layout, shape, .. } = &*self.layout;
        let fields = shape.fields;
        let ends = &self.records.ends[bad.row * (fields + 1)..][..fields + 1];
        let field = field(&self.block.data, ends, bad.input).unwrap_or_default();
        let field = shape.dialect.quote.map_or(field, |quote| unspaced(field, u16::from(quote)));
        let quote = shape.dialect.quote.filter(|&quote| field.first() == Some(&quote));
        let value =
            quote.and_then(|_| enclosed(field, &shape.dialect, &mut self.scratch)).unwrap_or(field);
        let (from, to) = (ends[0] as usize, ends[fields] as usize);
        let line = self.lines.of(&self.block, from);
        let fault = layout.fault(bad.target, value, bad.why);
        let reject = fault.in_block(&self.block, line, from, to);
        self.faults.reject(Position { file: self.block.file, line }, reject);
    }
}

struct BadField {
    /// In its stretch.
    row: usize,
    input: usize,
    target: usize,
    why: Bad,
}

/// The records whose ends have just been found.
struct Stretch<'a> {
    data: &'a [u8],
    records: &'a Records,
    dialect: Dialect,
    fields: usize,
    nulls: &'a Nulls,
    nullable: bool,
}

impl Stretch<'_> {
    /// Parses one column from row `from` on; on failure says in which row it stopped, and why.
    #[inline]
    fn fill<S: Sink>(
        &self,
        sink: &mut S,
        input: usize,
        from: usize,
        scratch: &mut Vec<u8>,
    ) -> Result<(), (usize, Bad)> {
        let quote = self.dialect.quote.map_or(NO_QUOTE, u16::from);
        let ends = &self.records.ends[from * (self.fields + 1)..];
        for (row, ends) in ends.chunks_exact(self.fields + 1).enumerate() {
            let Some(mut field) = field(self.data, ends, input) else {
                self.null(sink).map_err(|bad| (from + row, bad))?;
                continue;
            };
            if self.dialect.spaces {
                field = unspaced(field, quote);
            }
            let result = match field.first() {
                Some(&first) if u16::from(first) == quote => self.quoted(sink, field, scratch),
                _ if self.nulls.contains(field) => self.null(sink),
                _ => sink.value(field).or_else(|bad| self.padded(sink, field, bad)),
            };
            result.map_err(|bad| (from + row, bad))?;
        }
        Ok(())
    }

    fn quoted<S: Sink>(
        &self,
        sink: &mut S,
        field: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<(), Bad> {
        let value = enclosed(field, &self.dialect, scratch).ok_or(Bad::Quote)?;
        sink.value(value).or_else(|bad| {
            let trimmed = value.trim_ascii();
            if S::TEXT { Err(bad) } else { sink.value(trimmed).map_err(|_| bad) }
        })
    }

    /// As [`Stretch::fill`], for values that are not spelled as the builder takes them.
    fn respell<S: Sink>(
        &self,
        sink: &mut S,
        input: usize,
        from: usize,
        spelling: &Spelling,
        scratch: &mut Vec<u8>,
    ) -> Result<(), (usize, Bad)> {
        let quote = self.dialect.quote.map_or(NO_QUOTE, u16::from);
        let mut plain = Vec::new();
        let ends = &self.records.ends[from * (self.fields + 1)..];
        for (row, ends) in ends.chunks_exact(self.fields + 1).enumerate() {
            let field = field(self.data, ends, input).map(|field| unspaced(field, quote));
            let result = match field {
                None => self.null(sink),
                Some(field) if field.first().is_some_and(|&b| u16::from(b) == quote) => {
                    match enclosed(field, &self.dialect, scratch) {
                        Some(value) => respelled(sink, value, spelling, &mut plain),
                        None => Err(Bad::Quote),
                    }
                }
                Some(field) if self.nulls.contains(field) => self.null(sink),
                Some(field) if self.nulls.contains(field.trim_ascii()) => self.null(sink),
                Some(field) => respelled(sink, field, spelling, &mut plain),
            };
            result.map_err(|bad| (from + row, bad))?;
        }
        Ok(())
    }

    fn null<S: Sink>(&self, sink: &mut S) -> Result<(), Bad> {
        if !self.nullable {
            return Err(Bad::Null);
        }
        sink.null();
        Ok(())
    }

    /// A number or date between blanks, as files with aligned columns have them.
    #[cold]
    fn padded<S: Sink>(&self, sink: &mut S, field: &[u8], bad: Bad) -> Result<(), Bad> {
        let value = field.trim_ascii();
        if S::TEXT || value.len() == field.len() {
            return Err(bad);
        }
        if self.nulls.contains(value) {
            self.null(sink)
        } else {
            sink.value(value).map_err(|_| bad)
        }
    }
}

fn respelled<S: Sink>(
    sink: &mut S,
    value: &[u8],
    spelling: &Spelling,
    plain: &mut Vec<u8>,
) -> Result<(), Bad> {
    sink.value(spelling.plain(value.trim_ascii(), plain).ok_or(Bad::Syntax)?)
}

/// One builder per input column that fills one of the table's; `rows` is about how many there
/// will be.
pub(super) fn new_columns(layout: &Layout, rows: usize) -> Result<Vec<Column>> {
    let rows = rows.min(BATCH_ROWS);
    let column = |&(_, target): &(usize, usize)| {
        let field = layout.columns.schema.field(target);
        Column::new(field.name(), field.data_type(), rows)
    };
    layout.targets.iter().map(column).collect()
}

/// What the builders hold, each array in the place of its column of the table.
pub(super) fn finish(layout: &Layout, columns: &mut [Column]) -> Result<Vec<Option<ArrayRef>>> {
    let schema = &layout.columns.schema;
    let mut arrays: Vec<Option<ArrayRef>> = vec![None; schema.fields().len()];
    for (column, &(_, target)) in columns.iter_mut().zip(&layout.targets) {
        arrays[target] = Some(column.finish(schema.field(target).data_type())?);
    }
    Ok(arrays)
}

/// A batch of the table's schema out of `rows` rows without the `dropped` ones, which are in
/// ascending order. Columns without an array are those the input lacks.
pub(super) fn batch_of(
    layout: &Layout,
    arrays: Vec<Option<ArrayRef>>,
    rows: usize,
    dropped: &[usize],
) -> Result<RecordBatch> {
    let kept = (!dropped.is_empty()).then(|| {
        let mut kept = BooleanBufferBuilder::new(rows);
        kept.append_n(rows, true);
        dropped.iter().for_each(|&row| kept.set_bit(row, false));
        BooleanArray::new(kept.finish(), None)
    });
    let rows = rows - dropped.len();
    let arrays = arrays.into_iter().enumerate().map(|(target, array)| match (array, &kept) {
        (Some(array), Some(kept)) => filter(&array, kept)
            .map_err(|e| Error::internal(format!("cannot drop rejected rows: {e}"))),
        (Some(array), None) => Ok(array),
        (None, _) => layout.absent(target, rows),
    });
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let schema = layout.columns.schema.clone();
    RecordBatch::try_new_with_options(schema, arrays.collect::<Result<_>>()?, &options)
        .map_err(|e| Error::internal(format!("a parsed batch does not fit its schema: {e}")))
}

/// The error for a file that has bytes but no record.
pub(super) fn no_records(path: &Path, header_wanted: bool) -> Error {
    let error = Error::user(format!("{} holds no records", shown(path)));
    if header_wanted {
        error.hint("not even a header line was found")
    } else {
        error.hint("leave it out")
    }
}
