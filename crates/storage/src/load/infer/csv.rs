//! Columns of delimited text.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use parking_lot::Mutex;
use thalweg_base::{Error, Result, text};

use super::guess::{Guess, Places, null_spelling};
use super::{FileDialect, Inferred, InferredColumn};
use crate::load::block::{Block, Lines};
use crate::load::csv::{
    FirstRecord, NO_QUOTE, Nulls, STRETCH_FIELDS, is_header, malformed, no_records, report,
};
use crate::load::input::{CsvOptions, shown};
use crate::load::layout::Finder;
use crate::load::parse::{Look, date, look};
use crate::load::rejects::{Faults, Position};
use crate::load::scan::{Malformed, Records, Shape, enclosed, field, unspaced};
use crate::load::spelling::Spellings;
use crate::load::text::{CsvText, Heard};

/// Records after which it is decided whether a file's first one is a header.
const HEADER_RECORDS: usize = 1000;

/// Records looked at in one step.
const STEP_RECORDS: usize = 4 * STRETCH_RECORDS;

/// Records scanned at once: their ends and their text stay within L2.
const STRETCH_RECORDS: usize = 1024;

/// One file: its first record apart, since it may be a header.
pub(super) struct File {
    index: usize,
    dialect: FileDialect,
    heard: Heard,
    first: FirstRecord,
    /// Whether it looks like a header, going by the records after it.
    header: bool,
    shape: Shape,
    nulls: Nulls,
    spellings: Option<Spellings>,
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
        text: &mut CsvText,
        path: &Arc<PathBuf>,
        options: &CsvOptions,
        known: Option<&SchemaRef>,
    ) -> Result<(File, Block)> {
        let CsvText { source, found: file, heard } = text;
        let dialect = file.dialect;
        let options = &*file.options(options);
        let nulls = Nulls::new(options);
        // The first holds nothing but blank lines if the file does.
        let (mut block, first) = loop {
            let Some(block) = source.next_block()? else {
                return Err(no_records(path, options.header == Some(true)));
            };
            if let Some(first) = FirstRecord::read(&block, file)? {
                break (block, first);
            }
        };
        block.start = first.end;
        let shape = Shape {
            dialect,
            fields: first.fields.len(),
            trailing: file.fields.is_some(),
            padded: options.null_padding,
        };
        let spellings = Spellings::new(options);
        let header = match (options.header, known) {
            (Some(header), _) => header,
            (None, _) if file.unnamed => true,
            (None, Some(known)) => is_header(&first, known, &nulls),
            (None, None) => looks_like_header(&first, &block, &shape, &nulls, spellings.as_ref())?,
        };
        let wanted = match known {
            Some(known) if header => {
                let finder = Finder::new(known);
                first.names().iter().map(|name| finder.find(name).is_none()).collect()
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
        let dialect = FileDialect {
            delimiter: dialect.delimiter,
            quote: dialect.quote,
            escape: dialect.escape,
            comment: dialect.comment,
            unnamed: file.unnamed,
            padded: options.null_padding,
            decimal_separator: options.decimal_separator,
            header,
            skipped_lines: file.skipped_lines,
            encoding: heard.encoding(),
        };
        let (index, heard) = (block.file, heard.clone());
        let file =
            File { index, dialect, heard, first, header, shape, nulls, spellings, wanted, found };
        Ok((file, block))
    }

    /// Of the encoding, what is known by now.
    fn dialect(&self) -> FileDialect {
        FileDialect { encoding: self.heard.encoding(), ..self.dialect }
    }

    /// Records after the first that were looked at.
    pub(super) fn rows(&self) -> u64 {
        self.found.lock().rows
    }

    /// Whether there is any column to find out about.
    pub(super) fn has_questions(&self) -> bool {
        self.wanted.contains(&true)
    }
}

/// Years that columns may be called by.
const YEARS: std::ops::RangeInclusive<i64> = 1000..=2999;

/// A header is a record whose fields are none of the values below them: text above numbers, dates
/// above numbers, quoted numbers above bare ones, or years that follow each other. Where all is
/// text, it is a record of different words none of which comes again in its column.
fn looks_like_header(
    first: &FirstRecord,
    block: &Block,
    shape: &Shape,
    nulls: &Nulls,
    spellings: Option<&Spellings>,
) -> Result<bool> {
    let mut records = Records::default();
    let most = (STRETCH_FIELDS / shape.fields.max(1)).clamp(16, HEADER_RECORDS);
    match records.scan(&block.data, block.start, shape, most) {
        Ok(_) | Err(Malformed::Ragged { .. }) => {}
        Err(unclosed) => return Err(malformed(block, shape, &unclosed)),
    }
    let mut looker = Looker::new(shape, nulls, spellings, first.fields.len());
    let mut again = false;
    let mut quoted = vec![false; first.fields.len()];
    for (column, value) in first.fields.iter().enumerate() {
        let at = |_| Position { file: block.file, line: block.line };
        looker.column(&block.data, &records, column, at, |other| {
            again |= other == value && !value.is_empty();
        });
        let quote = shape.dialect.quote.map_or(NO_QUOTE, u16::from);
        let ends = records.ends.chunks_exact(shape.fields + 1);
        quoted[column] = ends
            .filter_map(|ends| field(&block.data, ends, column))
            .any(|field| unspaced(field, quote).first().is_some_and(|&b| u16::from(b) == quote));
    }
    let columns = 0..first.fields.len();
    let typed = |i: usize| looker.columns[i].guess.typed();
    let missing = |i: usize| !first.quoted[i] && nulls.contains(&first.fields[i]);
    let looks: Vec<Look> =
        first.fields.iter().map(|f| looked(spellings, f, &mut Vec::new())).collect();
    // Fields that cannot be values of their columns, and others that are no words.
    let (mut strange, mut values) = (0, 0);
    let mut years = Vec::new();
    for i in columns.clone().filter(|&i| !missing(i)) {
        if typed(i) {
            let mut guess = looker.columns[i].guess.clone();
            let unlike = guess.add(looks[i], &first.fields[i], || block.position());
            let spelled_null = looks[i] == Look::Text && null_spelling(&first.fields[i]);
            if unlike && !spelled_null || !looks[i].is_word() && first.quoted[i] && !quoted[i] {
                strange += 1;
                continue;
            }
        }
        if !looks[i].is_word() {
            values += 1;
            let year = std::str::from_utf8(&first.fields[i]).ok().and_then(|y| y.parse().ok());
            years.extend(year.filter(|year| YEARS.contains(year)));
        }
    }
    let text = columns.clone().filter(|&i| !missing(i) && looks[i].is_word()).count();
    let step = |pair: &[i64]| pair[1] - pair[0];
    let steps: Vec<i64> = years.windows(2).map(step).collect();
    // Two years may be chance; in three there is a rule.
    let rule = steps.iter().all(|&step| step != 0 && step == steps[0])
        && (steps.len() > 1 || steps.len() == 1 && steps[0].abs() == 1 && text > 0);
    if rule && years.len() == values && !again {
        return Ok(true);
    }
    if strange > 0 {
        return Ok(strange >= values);
    }
    if values > 0 || columns.clone().any(typed) || columns.clone().any(missing) {
        return Ok(false);
    }
    let mut sorted: Vec<&Vec<u8>> = first.fields.iter().collect();
    sorted.sort();
    sorted.dedup();
    Ok(sorted.len() == first.fields.len() && !again)
}

/// What a value looks like, as it is spelled.
fn looked(spellings: Option<&Spellings>, value: &[u8], scratch: &mut Vec<u8>) -> Look {
    match spellings {
        Some(spellings) => spellings.look(value, scratch),
        None => look(value),
    }
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
            let most = (STRETCH_FIELDS / shape.fields.max(1)).clamp(1, STRETCH_RECORDS);
            let scanned = self.records.scan(&self.block.data, self.pos, shape, most);
            let mut looker = Looker {
                shape,
                nulls: &self.file.nulls,
                spellings: self.file.spellings.as_ref(),
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
    spellings: Option<&'a Spellings>,
    columns: LookerColumns,
    scratch: Vec<u8>,
}

impl<'a> Looker<'a> {
    fn new(
        shape: &'a Shape,
        nulls: &'a Nulls,
        spellings: Option<&'a Spellings>,
        columns: usize,
    ) -> Self {
        let columns = (0..columns).map(|_| ColumnLook::default()).collect();
        Looker { shape, nulls, spellings, columns, scratch: Vec::new() }
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
        let dialect = &self.shape.dialect;
        let quote = dialect.quote.map_or(NO_QUOTE, u16::from);
        let plain = self.spellings.is_none();
        let mut rewritten = Vec::new();
        let ColumnLook { guess, skipped, last } = &mut self.columns[column];
        for ends in records.ends.chunks_exact(self.shape.fields + 1) {
            let Some(mut field) = field(data, ends, column) else {
                guess.nulls += 1;
                continue;
            };
            if dialect.spaces {
                field = unspaced(field, quote);
            }
            let quoted = field.first().is_some_and(|&first| u16::from(first) == quote);
            if !quoted && let Some(spelling) = self.nulls.find(field) {
                guess.nulls += 1;
                guess.spellings |= 1 << spelling.min(63);
                continue;
            }
            if *skipped || (!quoted && plain && last.is_some_and(|last| alike(last, field))) {
                if !*skipped {
                    each(field);
                }
                continue;
            }
            let value = if quoted {
                enclosed(field, dialect, &mut self.scratch).unwrap_or(field)
            } else {
                field
            };
            each(value);
            if !quoted && self.nulls.contains(value.trim_ascii()) {
                guess.blanks += 1;
                continue;
            }
            let found = looked(self.spellings, value, &mut rewritten);
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
        Look::Integer | Look::Long => {
            // Doubles hold all of fifteen digits, and 64 bits all of eighteen, some of which no double is;
            // a leading zero would be lost.
            matches!(digits, [b'0'] | [b'1'..=b'9', ..])
                && digits.len() <= if last == Look::Integer { 15 } else { 18 }
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
    let mut dialects = Vec::new();
    for file in files.values() {
        let path = &paths[file.index];
        let mut found = std::mem::take(&mut *file.found.lock());
        let (mut names, mut first) = (file.first.names_as(&options.names), file.first.clone());
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
        if options.names.len() > names.len() {
            return Err(Error::user(format!(
                "{} names are told, {} has {} columns",
                options.names.len(),
                shown(path),
                names.len()
            ))
            .hint("leave out those that are too many, or check the delimiter (`--delimiter`)"));
        }
        dialects.push((file.index, file.dialect()));
        if let Some(known) = known {
            let known = Finder::new(known);
            columns.rows += found.rows;
            let new = names.into_iter().zip(&found.guesses).zip(&file.wanted);
            let new = new.filter(|((name, _), wanted)| **wanted && known.find(name).is_none());
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
            if options.same_columns && !columns.named.is_empty() {
                columns.check_same(&names, &paths[0], path)?;
            }
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
                    let look = looked(file.spellings.as_ref(), value, &mut Vec::new());
                    guess.add(look, value, || at);
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
            let name = options.names.get(i).cloned();
            columns.add(name.unwrap_or_else(|| format!("column_{}", i + 1)), guess, found.rows);
        }
    }
    if let Some(header) = header {
        dialects.iter_mut().for_each(|(_, dialect)| dialect.header = header);
    }
    Ok(columns.inferred(paths, options, header, dialects))
}

/// The columns of the files so far.
#[derive(Default)]
struct Columns {
    named: Vec<(String, Guess, u64)>,
    /// By name in lower case.
    index: HashMap<String, usize>,
    rows: u64,
}

impl Columns {
    /// Refuses a file whose columns are called otherwise than those of the files before it.
    fn check_same(&self, names: &[String], first: &Path, path: &Path) -> Result<()> {
        let has = |name: &String| names.iter().any(|n| n.to_lowercase() == name.to_lowercase());
        let (name, with, without) = if let Some(new) = names.iter().find(|n| self.find(n).is_none())
        {
            (new, path, first)
        } else if let Some((lost, ..)) = self.named.iter().find(|(name, ..)| !has(name)) {
            (lost, first, path)
        } else {
            return Ok(());
        };
        Err(Error::user(format!(
            "{} has a column {}, {} has none",
            shown(with),
            text::quoted(name),
            shown(without)
        ))
        .hint("with `union_by_name = true` rows of files that lack a column have NULL there"))
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.index.get(&name.to_lowercase()).copied()
    }

    fn add(&mut self, name: String, guess: &Guess, rows: u64) {
        match self.find(&name) {
            Some(column) => {
                self.named[column].1.merge(guess);
                self.named[column].2 += rows;
            }
            None => {
                self.index.insert(name.to_lowercase(), self.named.len());
                self.named.push((name, guess.clone(), rows));
            }
        }
    }

    fn inferred(
        self,
        paths: &[Arc<PathBuf>],
        options: &CsvOptions,
        header: Option<bool>,
        dialects: Vec<(usize, FileDialect)>,
    ) -> Inferred {
        let rows = self.rows;
        let by_row = BTreeSet::new();
        let places = Places { paths, by_row: &by_row };
        let column = |(name, mut guess, in_rows): (String, Guess, u64)| {
            let text = options.all_varchar || guess.data_type() == DataType::Utf8View;
            if !text {
                guess.nulls += guess.blanks;
            }
            let spelled = |i: &usize| guess.spellings & (1 << (*i).min(63)) != 0;
            let spellings = (0..options.nulls.len()).filter(spelled);
            InferredColumn {
                name,
                data_type: if text { DataType::Utf8View } else { guess.data_type() },
                order: if text { None } else { guess.order() },
                nulls: Some(guess.nulls + rows - in_rows),
                null_spellings: spellings.map(|i| options.nulls[i].clone()).collect(),
                why: match options.all_varchar {
                    true => "told by all_varchar".into(),
                    false => guess.why(&places, in_rows),
                },
            }
        };
        let columns = self.named.into_iter().map(column).collect();
        Inferred { columns, rows: Some(rows), header, dialects }
    }
}
