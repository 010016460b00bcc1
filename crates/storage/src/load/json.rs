//! JSON records into typed batches.
//!
//! A record is an object with a value for each column, or, in files whose first record is none, a value
//! of the one column `json`. Values go to the same builders as fields of CSV do, as the bytes between
//! their delimiters, so numbers never pass through a double: decimals stay exact. What is nested goes to
//! lists and structs of builders, or as its JSON text into a column of text.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, BooleanBufferBuilder, RecordBatch, Scalar};
use arrow::compute::kernels::zip::zip;
use parking_lot::Mutex;
use thalweg_base::limits::BATCH_ROWS;
use thalweg_base::{Error, Result};

use super::block::{Block, Lines};
use super::csv::batch_of;
use super::json_columns::{JsonColumn, KeyGuess, Misfit, unwanted};
use super::json_options::JsonOptions;
use super::json_value::{Scratch, Value, Wrong, lone, object};
use super::layout::{
    Columns, Fault, Finder, Layout, Matched, UNKNOWN_HINT, fault, shortened, unknown_to_the_table,
    what_the_table_has,
};
use super::parse::Bad;
use super::rejects::{Faults, Position};

/// The records of a block from `pos` on: where the next begins and ends. Blank lines are none.
pub(super) fn next_record(block: &Block, pos: &mut usize) -> Option<(usize, usize)> {
    if let Some(pieces) = &block.pieces {
        let &(start, stop) = pieces.get(*pos)?;
        *pos += 1;
        return Some((start as usize, stop as usize));
    }
    while *pos < block.data.len() {
        let start = *pos;
        let end = memchr::memchr(block.newline, &block.data[start..]);
        let stop = end.map_or(block.data.len(), |n| start + n);
        *pos = stop + 1;
        if !block.data[start..stop].trim_ascii().is_empty() {
            return Some((start, stop));
        }
    }
    None
}

/// The one column of files whose records are no objects.
pub(super) const ONLY_COLUMN: &str = "json";

/// Reads the record at `start..stop` of `block` and calls `each` for its values in order.
pub(super) fn read_record<E: From<Wrong>>(
    block: &Block,
    (start, stop): (usize, usize),
    options: &JsonOptions,
    scratch: &mut Scratch,
    mut each: impl FnMut(&[u8], Value<'_>) -> Result<(), E>,
) -> Result<(), E> {
    if stop - start > options.record_bytes_max {
        return Err(Wrong { at: 0, what: TOO_LONG }.into());
    }
    let record = &block.data[start..stop];
    match block.values {
        true => lone(record, scratch, |value| each(ONLY_COLUMN.as_bytes(), value)),
        false => object(record, scratch, each),
    }
}

const TOO_LONG: &str = "the record is longer than maximum_object_size";

/// What is wrong with the line that begins at `start`.
fn wrong_fault(block: &Block, start: usize, wrong: Wrong) -> Fault {
    let line = &block.data[start..];
    let (reason, detail, hint) = if wrong.what == TOO_LONG {
        (wrong.what.into(), None, "leave the option out, or give it more bytes")
    } else if line.first() == Some(&b'[') && !block.values {
        (
            "a JSON array, where an object is expected".into(),
            None,
            "its elements become rows if it is the only one in the file; else convert it first: `jq -c '.[]' IN.json > OUT.jsonl`",
        )
    } else {
        let rest = &line[wrong.at.min(line.len())..];
        let rest = &rest[..memchr::memchr(b'\n', rest).unwrap_or(rest.len())];
        (
            format!("character {}: {}", wrong.at + 1, wrong.what),
            (!rest.is_empty()).then(|| format!("the text there is {}", shortened(rest))),
            "the file must hold objects, one a line or one after the other, or an array of them",
        )
    };
    Fault { column: None, value: None, reason, detail, hint: hint.into() }
}

/// Reports a line that is no object.
pub(super) fn report(
    block: &Block,
    (start, stop): (usize, usize),
    lines: &mut Lines,
    faults: &Faults,
    wrong: Wrong,
) {
    let line = lines.of(block, start);
    let reject = wrong_fault(block, start, wrong).in_block(block, line, start, stop);
    faults.reject(Position { file: block.file, line }, reject);
}

/// What the records of an input are read into.
pub(super) struct JsonLayout {
    /// The columns that are wanted.
    layout: Layout,
    options: JsonOptions,
    /// All columns that there are, by their names.
    all: Arc<Columns>,
    finder: Finder,
    /// Per column, its place among those that are wanted.
    places: Vec<Option<usize>>,
}

impl JsonLayout {
    pub(super) fn new(columns: &Arc<Columns>, options: &JsonOptions) -> JsonLayout {
        let fields = columns.schema.fields().len();
        let mut places: Vec<Option<usize>> = (0..fields).map(Some).collect();
        if let Some(wanted) = &columns.wanted {
            places.fill(None);
            for (place, &column) in wanted.iter().enumerate() {
                places[column] = Some(place);
            }
        }
        let layout = Layout::whole(columns).narrowed();
        // All of those that are left have their own place now.
        let layout = Layout::whole(&layout.columns);
        let finder = Finder::new(&columns.schema);
        JsonLayout { layout, options: options.clone(), all: Arc::clone(columns), finder, places }
    }
}

/// The batches of one block.
pub(super) struct JsonBatches {
    block: Block,
    layout: Arc<JsonLayout>,
    faults: Arc<Faults>,
    matched: Arc<Mutex<Matched>>,
    pos: usize,
    /// Those that are wanted.
    columns: Vec<JsonColumn>,
    keys: KeyGuess,
    /// Per column that there is, the number of the last row that had a value for it.
    seen: Vec<usize>,
    /// Per column with a default, the rows that have it.
    defaulted: Vec<Vec<usize>>,
    /// Keys met that the table has no column for.
    ignored: BTreeSet<String>,
    lines: Lines,
    scratch: Scratch,
}

enum Stop {
    Wrong(Wrong),
    Unknown(String),
    Twice(String),
    Bad(usize, Misfit),
}

impl From<Wrong> for Stop {
    fn from(wrong: Wrong) -> Self {
        Stop::Wrong(wrong)
    }
}

impl JsonBatches {
    /// The place of the file among those of the input.
    pub(super) fn file(&self) -> usize {
        self.block.file
    }

    pub(super) fn new(
        block: Block,
        layout: Arc<JsonLayout>,
        faults: Arc<Faults>,
        matched: Arc<Mutex<Matched>>,
    ) -> JsonBatches {
        JsonBatches {
            pos: block.start,
            block,
            layout,
            faults,
            matched,
            columns: Vec::new(),
            keys: KeyGuess::default(),
            seen: Vec::new(),
            defaulted: Vec::new(),
            ignored: BTreeSet::new(),
            lines: Lines::default(),
            scratch: Scratch::default(),
        }
    }

    /// The next at most `BATCH_ROWS` rows.
    pub(super) fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.faults.settled(self.block.position()) {
            return Ok(None);
        }
        let shared = Arc::clone(&self.layout);
        let JsonLayout { layout, options, .. } = &*shared;
        let schema = &layout.columns.schema;
        if self.columns.is_empty() {
            // A record takes two bytes at least.
            let rows = self.block.pieces.as_ref().map_or(self.block.data.len() / 2, Vec::len);
            let rows = rows.min(BATCH_ROWS);
            let fields = schema.fields().iter();
            let column = fields.map(|f| JsonColumn::new(f.name(), f.data_type(), options, rows));
            self.columns = column.collect::<Result<_>>()?;
            self.defaulted.resize(self.columns.len(), Vec::new());
        }
        self.seen.clear();
        self.seen.resize(shared.places.len(), 0);
        let mut rows = 0;
        let mut dropped = Vec::new();
        while rows < BATCH_ROWS {
            let Some((start, stop)) = next_record(&self.block, &mut self.pos) else { break };
            rows += 1;
            if let Err(why) = self.row(start, stop, rows) {
                dropped.push(rows - 1);
                self.reject(start, stop, why);
                for column in &mut self.columns {
                    column.repair();
                    if column.len() < rows {
                        column.null();
                    }
                }
            }
        }
        if rows == 0 {
            return Ok(None);
        }
        let finished = self.columns.iter_mut().zip(schema.fields());
        let finished = finished.map(|(column, field)| column.finish(field.data_type()).map(Some));
        let mut arrays = finished.collect::<Result<Vec<_>>>()?;
        for (place, rows) in self.defaulted.iter_mut().enumerate().filter(|(_, r)| !r.is_empty()) {
            if let (Some(array), Some(value)) =
                (&mut arrays[place], &layout.columns.defaults[place])
            {
                *array = with_defaults(array, value, rows)?;
            }
            rows.clear();
        }
        batch_of(layout, arrays, rows, &dropped).map(Some)
    }

    fn row(&mut self, start: usize, stop: usize, row: usize) -> Result<(), Stop> {
        let Self { block, layout, columns, keys, seen, defaulted, ignored, .. } = self;
        let (matched, scratch) = (&self.matched, &mut self.scratch);
        let JsonLayout { layout, options, all, finder, places } = &**layout;
        let schema = &layout.columns.schema;
        let mut position = 0;
        read_record(block, (start, stop), options, scratch, |key, value| {
            let target = match keys.target(position, key) {
                Some(target) => target,
                None => {
                    let name = String::from_utf8_lossy(key);
                    let target = finder.find(&name);
                    if target.is_none() && !all.hides(&name) {
                        if !all.ignore_unknown {
                            return Err(Stop::Unknown(name.into_owned()));
                        }
                        if ignored.insert(name.clone().into_owned()) {
                            let mut matched = matched.lock();
                            matched.ignored.entry(name.into()).or_default().insert(block.file);
                        }
                    }
                    keys.learn(position, key, target);
                    target
                }
            };
            position += 1;
            let Some(target) = target else { return unwanted(value).map_err(Stop::from) };
            if seen[target] == row {
                return Err(Stop::Twice(all.schema.field(target).name().clone()));
            }
            match places[target] {
                Some(place) => {
                    let field = schema.field(place);
                    columns[place]
                        .put(value, field.data_type(), field.is_nullable(), all.ignore_unknown)
                        .map_err(|misfit| Stop::Bad(place, misfit))?;
                }
                None => unwanted(value)?,
            }
            seen[target] = row;
            Ok(())
        })?;
        for (target, place) in places.iter().enumerate() {
            let Some(place) = *place else { continue };
            if seen[target] == row {
                continue;
            }
            let field = schema.field(place);
            if layout.columns.defaults[place].is_some() {
                defaulted[place].push(row - 1);
            } else if !field.is_nullable() {
                let (path, data_type) = (String::new(), field.data_type().clone());
                let bad = Misfit::Bad { path, data_type, bad: Bad::Null, value: Vec::new() };
                return Err(Stop::Bad(place, bad));
            }
            columns[place].null();
        }
        Ok(())
    }

    fn reject(&mut self, start: usize, stop: usize, why: Stop) {
        let layout = Arc::clone(&self.layout);
        let schema = &layout.layout.columns.schema;
        let unknown = |key: String| Fault {
            column: None,
            value: None,
            reason: unknown_to_the_table(&[key]),
            detail: Some(what_the_table_has(&layout.all.schema)),
            hint: UNKNOWN_HINT.into(),
        };
        let twice = |name: String| Fault {
            column: Some(name),
            value: None,
            reason: "two values for one column".into(),
            detail: None,
            hint: "keys are matched without regard to case; rename one of them".into(),
        };
        let fault = match why {
            Stop::Wrong(wrong) | Stop::Bad(_, Misfit::Wrong(wrong)) => {
                wrong_fault(&self.block, start, wrong)
            }
            Stop::Unknown(key) => unknown(key),
            Stop::Twice(name) => twice(name),
            Stop::Bad(place, Misfit::Unknown(path)) => {
                let mut fault = unknown(schema.field(place).name().clone() + &path);
                fault.hint = "`--new-columns ignore` leaves it out; declared as VARCHAR, the column holds all of the JSON text".into();
                fault
            }
            Stop::Bad(place, Misfit::Twice(path)) => {
                twice(schema.field(place).name().clone() + &path)
            }
            Stop::Bad(place, Misfit::Bad { path, data_type, bad, value }) => {
                fault(schema.field(place), path, &data_type, &value, bad)
            }
        };
        let line = self.lines.of(&self.block, start);
        let reject = fault.in_block(&self.block, line, start, stop);
        self.faults.reject(Position { file: self.block.file, line }, reject);
    }
}

/// `array` with `value` in some rows.
fn with_defaults(array: &ArrayRef, value: &ArrayRef, rows: &[usize]) -> Result<ArrayRef> {
    let mut mask = BooleanBufferBuilder::new(array.len());
    mask.append_n(array.len(), false);
    rows.iter().for_each(|&row| mask.set_bit(row, true));
    let mask = BooleanArray::new(mask.finish(), None);
    zip(&mask, &Scalar::new(value.clone()), array)
        .map_err(|e| Error::internal(format!("cannot fill in a default value: {e}")))
}
