//! Delimited text into typed batches.
//!
//! A batch is made of stretches of [`STRETCH_ROWS`] records: their field ends are found first
//! (`scan.rs`), then each column is parsed over all of them in one loop of its own type, while
//! text and ends are still in the cache.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{DataType, SchemaRef};
use thalweg_base::limits::BATCH_ROWS;
use thalweg_base::{Error, Result};

use super::block::{Block, Dialect};
use super::columns::{Column, Sink, each};
use super::input::{CsvOptions, shown};
use super::layout::{Layout, find, shortened};
use super::parse::{Bad, Look, look};
use super::scan::{ANY, Malformed, Records, Shape, unquote};

/// Records scanned at once: their ends (4 bytes a field) and their text stay within L2.
const STRETCH_ROWS: usize = 1024;
const _: () = assert!(BATCH_ROWS.is_multiple_of(STRETCH_ROWS));

impl CsvOptions {
    pub(super) fn dialect(&self) -> Dialect {
        Dialect { delimiter: self.delimiter, quote: self.quote, escape: self.escape }
    }
}

/// The spellings of NULL.
pub(super) struct Nulls {
    empty: bool,
    others: Vec<Vec<u8>>,
}

impl Nulls {
    pub(super) fn new(options: &CsvOptions) -> Nulls {
        let others = options.nulls.iter().filter(|n| !n.is_empty()).map(|n| n.clone().into_bytes());
        Nulls { empty: options.nulls.iter().any(String::is_empty), others: others.collect() }
    }

    #[inline]
    pub(super) fn contains(&self, field: &[u8]) -> bool {
        if field.is_empty() { self.empty } else { self.others.iter().any(|null| null == field) }
    }
}

/// What all blocks of one file share.
pub(super) struct CsvLayout {
    pub layout: Layout,
    shape: Shape,
    nulls: Nulls,
}

/// The fields of a first record without their quotes.
pub(super) struct FirstRecord {
    /// Where the next record begins.
    pub end: usize,
    pub fields: Vec<Vec<u8>>,
    /// For each field whether it was quoted: then it is not NULL.
    pub quoted: Vec<bool>,
}

impl FirstRecord {
    pub(super) fn read(block: &Block, dialect: Dialect) -> Result<Option<FirstRecord>> {
        let shape = Shape { dialect, fields: ANY, trailing: false };
        let mut records = Records::default();
        let end = records
            .scan(&block.data, block.start, &shape, 1)
            .map_err(|m| malformed(block, &shape, m))?;
        let Some((&at, ends)) = records.ends.split_first().filter(|_| records.rows == 1) else {
            return Ok(None);
        };
        let mut first = FirstRecord { end, fields: Vec::new(), quoted: Vec::new() };
        let mut start = at as usize;
        let mut scratch = Vec::new();
        for &stop in ends {
            let field = &block.data[start..stop as usize];
            start = stop as usize + 1;
            let quote = dialect.quote.filter(|&quote| field.first() == Some(&quote));
            if quote.is_none() && field.contains(&b'\r') {
                return Err(Error::user(format!(
                    "{}, line {}: a carriage return inside a field",
                    shown(&block.path),
                    block.line_of(at as usize)
                ))
                .hint("lines must end in LF or CRLF; convert old Mac line ends with `tr '\\r' '\\n' < IN > OUT`"));
            }
            let value = match quote {
                Some(quote) => unquote(field, quote, dialect.escape, &mut scratch).unwrap_or(field),
                None => field,
            };
            first.fields.push(value.to_vec());
            first.quoted.push(quote.is_some());
        }
        Ok(Some(first))
    }

    /// As column names: empty ones get a number, repeated ones a suffix.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::with_capacity(self.fields.len());
        for (i, field) in self.fields.iter().enumerate() {
            let mut name = String::from_utf8_lossy(field).trim().to_owned();
            if name.is_empty() {
                name = format!("column_{}", i + 1);
            }
            let taken = |names: &[String], name: &str| {
                names.iter().any(|n| n.to_lowercase() == name.to_lowercase())
            };
            let mut unique = name.clone();
            let mut suffix = 1;
            while taken(&names, &unique) {
                suffix += 1;
                unique = format!("{name}_{suffix}");
            }
            names.push(unique);
        }
        names
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
    /// block's start past the header. `None` if the file has no record at all.
    pub(super) fn detect(
        block: &mut Block,
        options: &CsvOptions,
        schema: &SchemaRef,
        inferred_rows: Option<u64>,
    ) -> Result<Option<CsvLayout>> {
        let dialect = options.dialect();
        let nulls = Nulls::new(options);
        let Some(mut first) = FirstRecord::read(block, dialect)? else { return Ok(None) };
        let path = Arc::clone(&block.path);
        let columns = schema.fields().len();
        let header = options.header.unwrap_or_else(|| is_header(&first, schema, &nulls));
        let mut trailing = first.trailing(columns);
        let layout = if header {
            // A header line `a|b|` has no third column if its records have none either.
            if !trailing && first.fields.len() > 1 && first.trailing(first.fields.len() - 1) {
                trailing = find(schema, first.names().last().map_or("", String::as_str)).is_none();
            }
            if trailing {
                first.fields.pop();
            }
            block.start = first.end;
            Layout::by_name(&path, &first.names(), schema, inferred_rows)?
        } else {
            let count = first.fields.len() - usize::from(trailing);
            Layout::by_position(&path, count, schema, inferred_rows)?
        };
        let shape = Shape { dialect, fields: layout.targets.len(), trailing };
        Ok(Some(CsvLayout { layout, shape, nulls }))
    }
}

/// Whether a file's first record names columns, given the table's. It does if most of it are
/// names of the table's columns, or if it cannot be a row: text where the table has no text.
fn is_header(first: &FirstRecord, schema: &SchemaRef, nulls: &Nulls) -> bool {
    let names = first.names();
    let named = names.iter().filter(|name| find(schema, name).is_some()).count();
    if named > 0 && named * 2 >= names.len() {
        return true;
    }
    let all_text = first.fields.iter().all(|field| look(field) == Look::Text);
    let same_count =
        first.fields.len() == schema.fields().len() || first.trailing(schema.fields().len());
    if !all_text || !same_count {
        return all_text && named > 0;
    }
    first.fields.iter().zip(schema.fields()).zip(&first.quoted).any(|((value, field), &quoted)| {
        (quoted || !nulls.contains(value))
            && Column::new(field.name(), field.data_type())
                .is_ok_and(|mut column| each!(&mut column, sink => sink.value(value).is_err()))
    })
}

pub(super) fn malformed(block: &Block, shape: &Shape, malformed: Malformed) -> Error {
    match malformed {
        Malformed::Ragged { at, found } => {
            let line_end = memchr::memchr(b'\n', &block.data[at..]).map_or(block.data.len(), |n| at + n);
            Error::user(format!(
                "{}, line {}: {found} fields where the first line has {}",
                shown(&block.path),
                block.line_of(at),
                shape.fields
            ))
            .detail(format!("the line begins {}", shortened(&block.data[at..line_end])))
            .hint("quote fields that contain the delimiter, or check the delimiter (`--delimiter`)")
        }
        Malformed::Unclosed { at } => Error::user(format!(
            "{}, line {}: a quoted field is opened here and never closed",
            shown(&block.path),
            block.line_of(at)
        ))
        .hint("double the quotes inside a quoted field, or read the file without quotes (`--quote none`)"),
    }
}

/// The batches of one block.
pub(super) struct CsvBatches {
    block: Block,
    layout: Arc<CsvLayout>,
    pos: usize,
    records: Records,
    columns: Vec<Column>,
    scratch: Vec<u8>,
}

impl CsvBatches {
    pub(super) fn new(block: Block, layout: Arc<CsvLayout>) -> CsvBatches {
        let pos = block.start;
        CsvBatches {
            block,
            layout,
            pos,
            records: Records::default(),
            columns: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// The next at most `BATCH_ROWS` rows.
    pub(super) fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.pos >= self.block.data.len() {
            return Ok(None);
        }
        let CsvLayout { layout, shape, nulls } = &*self.layout;
        if self.columns.is_empty() {
            self.columns = new_columns(layout)?;
        }
        let mut rows = 0;
        while rows < BATCH_ROWS && self.pos < self.block.data.len() {
            self.pos = self
                .records
                .scan(&self.block.data, self.pos, shape, STRETCH_ROWS)
                .map_err(|m| malformed(&self.block, shape, m))?;
            for (input, (column, &target)) in
                self.columns.iter_mut().zip(&layout.targets).enumerate()
            {
                let field = layout.schema.field(target);
                let stretch = Stretch {
                    data: &self.block.data,
                    records: &self.records,
                    dialect: shape.dialect,
                    fields: shape.fields,
                    nulls,
                    nullable: field.is_nullable(),
                };
                let result = each!(column, sink => stretch.fill(sink, input, &mut self.scratch));
                result.map_err(|(at, bad)| {
                    let end = stretch.field_end(at, input);
                    layout.bad_value(&self.block, at, target, &self.block.data[at..end], bad)
                })?;
            }
            rows += self.records.rows;
        }
        if rows == 0 {
            return Ok(None);
        }
        finish_batch(layout, &mut self.columns, rows).map(Some)
    }
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
    /// Parses one column; on failure says where the field begins and what is wrong with it.
    #[inline]
    fn fill<S: Sink>(
        &self,
        sink: &mut S,
        input: usize,
        scratch: &mut Vec<u8>,
    ) -> Result<(), (usize, Bad)> {
        // 256 is no byte, so without quotes none opens a field.
        let quote = self.dialect.quote.map_or(256, u16::from);
        for ends in self.records.ends.chunks_exact(self.fields + 1) {
            let start = ends[input] as usize + usize::from(input > 0);
            let field = &self.data[start..ends[input + 1] as usize];
            let result = match field.first() {
                Some(&first) if u16::from(first) == quote => {
                    self.quoted(sink, field, first, scratch)
                }
                _ if self.nulls.contains(field) => self.null(sink),
                _ => sink.value(field).or_else(|bad| self.padded(sink, field, bad)),
            };
            result.map_err(|bad| (start, bad))?;
        }
        Ok(())
    }

    fn quoted<S: Sink>(
        &self,
        sink: &mut S,
        field: &[u8],
        quote: u8,
        scratch: &mut Vec<u8>,
    ) -> Result<(), Bad> {
        let value = unquote(field, quote, self.dialect.escape, scratch).ok_or(Bad::Quote)?;
        sink.value(value)
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

    /// The end of the field of column `input` that begins at `at`.
    fn field_end(&self, at: usize, input: usize) -> usize {
        let begins = |ends: &&[u32]| ends[input] as usize + usize::from(input > 0) == at;
        let record = self.records.ends.chunks_exact(self.fields + 1).find(begins);
        record.map_or(at, |ends| ends[input + 1] as usize)
    }
}

/// One builder per input column.
pub(super) fn new_columns(layout: &Layout) -> Result<Vec<Column>> {
    layout
        .targets
        .iter()
        .map(|&target| {
            let field = layout.schema.field(target);
            Column::new(field.name(), field.data_type())
        })
        .collect()
}

/// What the builders hold as a batch of the table's schema; columns the input lacks are NULL.
pub(super) fn finish_batch(
    layout: &Layout,
    columns: &mut [Column],
    rows: usize,
) -> Result<RecordBatch> {
    let data_type = |target: usize| -> &DataType { layout.schema.field(target).data_type() };
    let mut arrays: Vec<Option<ArrayRef>> = vec![None; layout.schema.fields().len()];
    for (column, &target) in columns.iter_mut().zip(&layout.targets) {
        arrays[target] = Some(column.finish(data_type(target))?);
    }
    let arrays = arrays
        .into_iter()
        .enumerate()
        .map(|(target, array)| array.unwrap_or_else(|| new_null_array(data_type(target), rows)))
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(layout.schema.clone(), arrays, &options)
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
