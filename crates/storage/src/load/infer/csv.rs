//! Columns of delimited text.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use thalweg_base::{Error, Result};

use super::guess::Guess;
use super::{Inferred, InferredColumn};
use crate::load::block::{Block, Lines, TextSource};
use crate::load::csv::{FirstRecord, Nulls, is_header, malformed, no_records, report};
use crate::load::input::{CsvOptions, shown};
use crate::load::layout::find;
use crate::load::parse::{Look, date, look};
use crate::load::rejects::{Faults, Position};
use crate::load::scan::{Malformed, Records, Shape, unquote};

/// Records after which it is decided whether a file's first one is a header.
const HEADER_RECORDS: usize = 1000;

/// Records looked at in one step.
const STEP_RECORDS: usize = 4 * STRETCH_RECORDS;

/// Records scanned at once: their ends and their text stay within L2.
const STRETCH_RECORDS: usize = 1024;

/// One file: its first record apart, since it may be a header.
pub(super) struct File {
    index: usize,
    first: FirstRecord,
    /// Whether it looks like a header, going by the records after it.
    header: bool,
    shape: Shape,
    nulls: Nulls,
    /// Per column, whether its type is in question.
    wanted: Vec<bool>,
    found: Mutex<Found>,
}

/// What is known of the records after the first.
#[derive(Default)]
struct Found {
    guesses: Vec<Guess>,
    rows: u64,
}

impl File {
    /// Reads the first block; its start is moved past the first record.
    pub(super) fn begin(
        source: &mut TextSource,
        path: &Arc<PathBuf>,
        options: &CsvOptions,
        known: Option<&SchemaRef>,
    ) -> Result<(File, Block)> {
        let dialect = options.dialect();
        let nulls = Nulls::new(options);
        // The first holds nothing but blank lines if the file does.
        let (mut block, first) = loop {
            let Some(block) = source.next_block()? else {
                return Err(no_records(path, options.header == Some(true)));
            };
            if let Some(first) = FirstRecord::read(&block, dialect)? {
                break (block, first);
            }
        };
        block.start = first.end;
        let shape = Shape { dialect, fields: first.fields.len(), trailing: false };
        let header = match (options.header, known) {
            (Some(header), _) => header,
            (None, Some(known)) => is_header(&first, known, &nulls),
            (None, None) => looks_like_header(&first, &block, &shape, &nulls)?,
        };
        let wanted = match known {
            Some(known) if header => {
                first.names().iter().map(|name| find(known, name).is_none()).collect()
            }
            // Without names the columns must be the known ones.
            Some(_) => vec![false; first.fields.len()],
            None => vec![true; first.fields.len()],
        };
        let mut guesses = vec![Guess::default(); first.fields.len()];
        let mut rows = 0;
        // Above the values of an only column, blank lines are values as well.
        let blank = first.line - block.line;
        if let ([guess], false) = (&mut *guesses, header)
            && blank > 0
        {
            rows = blank;
            match nulls.empty() {
                Some(spelling) => {
                    guess.nulls += blank;
                    guess.spellings |= 1 << spelling.min(63);
                }
                None => {
                    guess.add(look(b""), b"", || block.position());
                }
            }
        }
        let found = Mutex::new(Found { guesses, rows });
        Ok((File { index: block.file, first, header, shape, nulls, wanted, found }, block))
    }

    /// Whether there is any column to find out about.
    pub(super) fn has_questions(&self) -> bool {
        self.wanted.contains(&true)
    }
}

/// A header is text throughout, above columns that are not; or, where all is text, a record of
/// different words none of which comes again in its column.
fn looks_like_header(
    first: &FirstRecord,
    block: &Block,
    shape: &Shape,
    nulls: &Nulls,
) -> Result<bool> {
    let missing = |i: usize| !first.quoted[i] && nulls.contains(&first.fields[i]);
    let text = |i: usize| missing(i) || look(&first.fields[i]) == Look::Text;
    if !(0..first.fields.len()).all(text) {
        return Ok(false);
    }
    let mut records = Records::default();
    match records.scan(&block.data, block.start, shape, HEADER_RECORDS) {
        Ok(_) | Err(Malformed::Ragged { .. }) => {}
        Err(unclosed) => return Err(malformed(block, shape, &unclosed)),
    }
    let mut looker = Looker::new(shape, nulls, first.fields.len());
    let mut again = false;
    for (column, field) in first.fields.iter().enumerate() {
        let at = |_| Position { file: block.file, line: block.line };
        looker.column(&block.data, &records, column, at, |value| again |= value == field);
    }
    let typed = |i: &usize| looker.columns[*i].guess.typed();
    let columns = 0..first.fields.len();
    if columns.clone().any(|i| !missing(i) && typed(&i)) {
        return Ok(true);
    }
    let mut sorted: Vec<&Vec<u8>> = first.fields.iter().collect();
    sorted.sort();
    sorted.dedup();
    Ok(!columns.clone().any(|i| typed(&i))
        && sorted.len() == first.fields.len()
        && !columns.clone().any(missing)
        && !again)
}

/// Some records of one file.
pub struct Piece {
    file: Arc<File>,
    block: Block,
    faults: Arc<Faults>,
    looker: LookerColumns,
    records: Records,
    pos: usize,
    rows: u64,
    lines: Lines,
}

type LookerColumns = Vec<ColumnLook>;

/// What a worker knows about a column of its block.
#[derive(Default)]
struct ColumnLook {
    guess: Guess,
    /// Values are not looked at: the column is text by something before this block, or nobody
    /// asks.
    skipped: bool,
    /// What the last value was like.
    last: Option<Look>,
}

impl Piece {
    pub(super) fn new(file: &Arc<File>, block: Block, faults: &Arc<Faults>) -> Piece {
        let at = block.position();
        let found = file.found.lock();
        let column = |(guess, &wanted): (&Guess, &bool)| ColumnLook {
            // What comes later must not hide what is here: it would be reported instead.
            skipped: !wanted || guess.text_at().is_some_and(|text| text < at),
            ..ColumnLook::default()
        };
        let looker = found.guesses.iter().zip(&file.wanted).map(column).collect();
        drop(found);
        Piece {
            file: Arc::clone(file),
            pos: block.start,
            block,
            faults: Arc::clone(faults),
            looker,
            records: Records::default(),
            rows: 0,
            lines: Lines::default(),
        }
    }

    pub(super) fn step(&mut self) -> bool {
        let end = self.block.data.len();
        let last = self.rows + STEP_RECORDS as u64;
        if self.faults.settled(self.block.position()) {
            return false;
        }
        while self.pos < end && self.rows < last {
            let shape = &self.file.shape;
            let scanned = self.records.scan(&self.block.data, self.pos, shape, STRETCH_RECORDS);
            let mut looker = Looker {
                shape,
                nulls: &self.file.nulls,
                columns: std::mem::take(&mut self.looker),
                scratch: Vec::new(),
            };
            let (block, lines) = (&self.block, &mut self.lines);
            for column in 0..shape.fields {
                let at = |at: usize| Position { file: block.file, line: lines.of(block, at) };
                looker.column(&block.data, &self.records, column, at, |_| {});
            }
            self.looker = looker.columns;
            self.rows += self.records.rows as u64;
            self.pos = match scanned {
                Ok(next) => next,
                Err(m) => {
                    report(&self.block, shape, &mut self.lines, &self.faults, &m).unwrap_or(end)
                }
            };
        }
        if self.pos < end {
            return true;
        }
        let mut found = self.file.found.lock();
        found.rows += std::mem::take(&mut self.rows);
        for (guess, mine) in found.guesses.iter_mut().zip(self.looker.drain(..)) {
            guess.merge(&mine.guess);
        }
        false
    }
}

struct Looker<'a> {
    shape: &'a Shape,
    nulls: &'a Nulls,
    columns: LookerColumns,
    scratch: Vec<u8>,
}

impl<'a> Looker<'a> {
    fn new(shape: &'a Shape, nulls: &'a Nulls, columns: usize) -> Self {
        let columns = (0..columns).map(|_| ColumnLook::default()).collect();
        Looker { shape, nulls, columns, scratch: Vec::new() }
    }

    /// Looks at one column of the records just scanned. `at` tells where the record lies that
    /// begins at an offset; `each` sees every value that is not NULL.
    #[inline]
    fn column(
        &mut self,
        data: &[u8],
        records: &Records,
        column: usize,
        mut at: impl FnMut(usize) -> Position,
        mut each: impl FnMut(&[u8]),
    ) {
        let quote = self.shape.dialect.quote.map_or(256, u16::from);
        let ColumnLook { guess, skipped, last } = &mut self.columns[column];
        for ends in records.ends.chunks_exact(self.shape.fields + 1) {
            let start = ends[column] as usize + usize::from(column > 0);
            let field = &data[start..ends[column + 1] as usize];
            let quoted = field.first().is_some_and(|&first| u16::from(first) == quote);
            if !quoted && let Some(spelling) = self.nulls.find(field) {
                guess.nulls += 1;
                guess.spellings |= 1 << spelling.min(63);
                continue;
            }
            if *skipped || (!quoted && last.is_some_and(|last| alike(last, field))) {
                if !*skipped {
                    each(field);
                }
                continue;
            }
            let value = if quoted {
                unquote(field, field[0], self.shape.dialect.escape, &mut self.scratch)
                    .unwrap_or(field)
            } else {
                field
            };
            each(value);
            if !quoted && self.nulls.contains(value.trim_ascii()) {
                guess.blanks += 1;
                continue;
            }
            let found = look(value);
            *skipped = guess.add(found, value, || at(ends[0] as usize));
            *last = Some(found);
        }
    }
}

/// Whether `field` is certainly like a value that looked like `last`: the common case, at a
/// fraction of the price of a proper look.
#[inline(always)]
fn alike(last: Look, field: &[u8]) -> bool {
    let digits = match field {
        [b'-', rest @ ..] => rest,
        _ => field,
    };
    match last {
        Look::Integer => {
            // Eighteen digits always fit; a leading zero would be lost.
            matches!(digits, [b'0'] | [b'1'..=b'9', ..])
                && digits.len() <= 18
                && digits.iter().all(u8::is_ascii_digit)
        }
        Look::Float => {
            let points = digits.iter().filter(|&&b| b == b'.').count();
            points == 1
                && !matches!(digits, [b'0', b'0'..=b'9', ..])
                && (2..=18).contains(&digits.len())
                && digits.iter().all(|&b| b.is_ascii_digit() || b == b'.')
        }
        Look::Date { ancient: false } => {
            matches!(field, [b'1', b'7'..=b'9', ..] | [b'2', b'0' | b'1', ..])
                && field.len() == 10
                && date(field).is_ok()
        }
        _ => false,
    }
}

/// The columns of all files together.
pub(super) fn combine(
    paths: &[Arc<PathBuf>],
    files: &BTreeMap<usize, Arc<File>>,
    options: &CsvOptions,
    known: Option<&SchemaRef>,
) -> Result<Inferred> {
    let mut columns = Columns::default();
    let mut header = None;
    for file in files.values() {
        let path = &paths[file.index];
        let mut found = std::mem::take(&mut *file.found.lock());
        let (mut names, mut first) = (file.first.names(), file.first.clone());
        // The empty column after a delimiter that ends each record: empty, and not only NULL.
        let last = names.len() - 1;
        let is_empty = |guess: &Guess| {
            let empty = file.nulls.empty().map_or(0, |i| 1 << i.min(63));
            guess.none() && guess.blanks == 0 && guess.spellings & !empty == 0
        };
        if last > 0 && first.trailing(last) && found.rows > 0 && is_empty(&found.guesses[last]) {
            names.pop();
            first.fields.pop();
            found.guesses.pop();
        }
        if let Some(known) = known {
            columns.rows += found.rows;
            let new = names.into_iter().zip(&found.guesses).zip(&file.wanted);
            let new = new.filter(|((name, _), wanted)| **wanted && find(known, name).is_none());
            new.for_each(|((name, guess), _)| columns.add(name, guess, found.rows));
            continue;
        }
        let shared = names.iter().filter(|name| columns.find(name).is_some()).count();
        let has_header = match (options.header, header) {
            (Some(given), _) => given,
            (None, Some(true)) => file.header || shared * 2 >= names.len(),
            (None, Some(false)) => false,
            (None, None) => file.header,
        };
        if header.is_some_and(|before| before != has_header) {
            return Err(Error::user(format!(
                "{} begins with a header line, {} does not",
                shown(&paths[0]),
                shown(path)
            ))
            .hint("load them separately, or say which with `--header` or `--no-header`"));
        }
        header = Some(has_header);
        if has_header {
            columns.rows += found.rows;
            for (name, guess) in names.into_iter().zip(&found.guesses) {
                columns.add(name, guess, found.rows);
            }
            continue;
        }
        found.rows += 1;
        columns.rows += found.rows;
        let at = Position { file: file.index, line: file.first.line };
        for (i, (guess, value)) in found.guesses.iter_mut().zip(&first.fields).enumerate() {
            match file.nulls.find(value) {
                Some(_) if !first.quoted[i] => guess.nulls += 1,
                _ => {
                    guess.add(look(value), value, || at);
                }
            }
        }
        if !columns.named.is_empty() && columns.named.len() != found.guesses.len() {
            return Err(Error::user(format!(
                "{} has {} columns, {} has {}",
                shown(&paths[0]),
                columns.named.len(),
                shown(path),
                found.guesses.len()
            ))
            .hint("load files of different shapes into different tables"));
        }
        for (i, guess) in found.guesses.iter().enumerate() {
            columns.add(format!("column_{}", i + 1), guess, found.rows);
        }
    }
    Ok(columns.inferred(paths, options, header))
}

/// The columns of the files so far.
#[derive(Default)]
struct Columns {
    named: Vec<(String, Guess, u64)>,
    rows: u64,
}

impl Columns {
    fn find(&self, name: &str) -> Option<usize> {
        self.named.iter().position(|(n, ..)| n.to_lowercase() == name.to_lowercase())
    }

    fn add(&mut self, name: String, guess: &Guess, rows: u64) {
        match self.find(&name) {
            Some(column) => {
                self.named[column].1.merge(guess);
                self.named[column].2 += rows;
            }
            None => self.named.push((name, guess.clone(), rows)),
        }
    }

    fn inferred(
        self,
        paths: &[Arc<PathBuf>],
        options: &CsvOptions,
        header: Option<bool>,
    ) -> Inferred {
        let rows = self.rows;
        let column = |(name, mut guess, in_rows): (String, Guess, u64)| {
            if guess.typed() {
                guess.nulls += guess.blanks;
            }
            let spelled = |i: &usize| guess.spellings & (1 << (*i).min(63)) != 0;
            let spellings = (0..options.nulls.len()).filter(spelled);
            InferredColumn {
                name,
                data_type: guess.data_type(),
                nulls: Some(guess.nulls + rows - in_rows),
                null_spellings: spellings.map(|i| options.nulls[i].clone()).collect(),
                why: guess.why(paths, in_rows),
            }
        };
        let columns = self.named.into_iter().map(column).collect();
        Inferred { columns, rows: Some(rows), header }
    }
}
