//! The dialect of a delimited file, going by the records at its beginning.
//!
//! Every combination of delimiter, quote and escape that was not told is tried: the head is cut
//! into records as the reader would cut it, so quoted line ends and delimiters count for what they
//! are. A trial is as good as its records agree: on the number of their fields, and on quotes that
//! open and close where fields do. What stands above the first record of that number of fields is
//! a title or a comment, if it is short; of it nobody else gets to know.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::block::{Dialect, count};
use super::input::CsvOptions;
use super::parse::look;
use super::scan::{ANY, Malformed, Records, Shape, unquote, unspaced};

/// Records looked at.
const RECORDS: usize = 1000;

/// Records whose values are looked at.
const JUDGED: usize = 16;

/// Columns whose quotes are looked at.
const COLUMNS: usize = 256;

/// What was found out about a file, with what was told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub dialect: Dialect,
    /// What stands above the first record.
    pub skipped_bytes: usize,
    pub skipped_lines: u64,
    /// The number of fields where the first record and the others differ by a delimiter that ends
    /// the line.
    pub fields: Option<usize>,
    /// The header has no name for the first column, as R writes tables with names of rows.
    pub unnamed: bool,
    /// Rows may end early.
    pub padded: bool,
    /// Decimal commas, and what groups digits.
    pub commas: Option<DecimalCommas>,
}

/// Numbers of a file have decimal commas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DecimalCommas {
    pub thousands: Option<u8>,
}

impl Found {
    /// The options of a load as they are for this file.
    pub(super) fn options<'a>(&self, told: &'a CsvOptions) -> Cow<'a, CsvOptions> {
        if !self.padded && self.commas.is_none() {
            return Cow::Borrowed(told);
        }
        let mut options = told.clone();
        options.null_padding |= self.padded;
        if let Some(DecimalCommas { thousands }) = self.commas {
            (options.decimal_separator, options.thousands) = (b',', thousands);
        }
        Cow::Owned(options)
    }
}

/// What ends the lines of a file: CR where there is no LF but within quotes.
pub(super) fn newline(head: &[u8]) -> u8 {
    let (mut quoted, mut returns) = (false, false);
    for &byte in head {
        match byte {
            b'"' => quoted = !quoted,
            b'\n' if !quoted => return b'\n',
            b'\r' => returns |= !quoted,
            _ => {}
        }
    }
    let any = memchr::memchr(b'\n', head).is_some();
    if returns || !any && memchr::memchr(b'\r', head).is_some() { b'\r' } else { b'\n' }
}

/// The dialect of a file that begins with `head`; `whole`: and ends with it.
pub(super) fn csv(head: &[u8], whole: bool, options: &CsvOptions, newline: u8) -> Found {
    let told = Dialect {
        delimiter: options.delimiter,
        quote: options.quote,
        escape: options.escape,
        comment: options.comment,
        spaces: false,
        newline,
    };
    let sniff = options.sniff;
    let mut found = Found {
        dialect: told,
        skipped_bytes: 0,
        skipped_lines: 0,
        fields: None,
        unnamed: false,
        padded: false,
        commas: None,
    };
    if !sniff.any() {
        return found;
    }
    // What spreadsheet programs write to say what they mean.
    let line = &head[..memchr::memchr(newline, head).unwrap_or(head.len())];
    let separator = match line.strip_suffix(b"\r").unwrap_or(line) {
        [b's' | b'S', b'e' | b'E', b'p' | b'P', b'=', separator] if separator.is_ascii() => {
            Some(*separator)
        }
        _ => None,
    };
    let above = match separator {
        Some(_) if sniff.skip => (line.len() + 1).min(head.len()),
        _ => 0,
    };
    let delimiters = match separator {
        _ if !sniff.delimiter => vec![told.delimiter],
        Some(separator) if above > 0 => vec![separator],
        _ => {
            let mut all = vec![told.delimiter];
            all.extend(b",\t|;".iter().filter(|&&d| d != told.delimiter));
            all
        }
    };
    let text = &head[above..];
    let dialects = dialects(told, &delimiters, options, text);
    let (mut best, others) = best(&dialects, text, whole, options);
    if sniff.padding && best.as_ref().is_none_or(|(_, trial)| trial.bad > 0) {
        let padding = CsvOptions { null_padding: true, ..options.clone() };
        let (padded, _) = self::best(&dialects, text, whole, &padding);
        if let Some(padded) = padded.filter(|(_, trial)| trial.ends_early()) {
            found.padded = true;
            best = Some(padded);
        }
    }
    let trial = best.map(|(_, trial)| trial).unwrap_or_else(|| one_column(others, told));
    found.dialect = trial.dialect;
    found.unnamed = trial.unnamed;
    found.commas = Commas::sure(&trial.commas).filter(|_| sniff.numbers && !options.all_varchar);
    found.fields = trial.trailing.then_some(trial.fields);
    found.skipped_bytes = above;
    if sniff.skip && trial.first > 0 {
        found.skipped_bytes += trial.records[trial.first].start;
    }
    found.skipped_lines = count(newline, &head[..found.skipped_bytes]);
    found
}

/// The best trial of a table of several columns, if there is one, and the others.
fn best(
    dialects: &[Dialect],
    text: &[u8],
    whole: bool,
    options: &CsvOptions,
) -> (Option<(Rank, Trial)>, Vec<Trial>) {
    let mut best: Option<(Rank, Trial)> = None;
    let mut others = Vec::new();
    for (turn, &dialect) in dialects.iter().enumerate() {
        let trial = Trial::new(text, whole, dialect, options);
        let rank = trial.rank(options, turn);
        if let Some(rank) = rank
            && best.as_ref().is_none_or(|(best, _)| rank < *best)
        {
            best = Some((rank, trial));
        } else {
            others.push(trial);
        }
    }
    (best, others)
}

/// All that the dialect might be, the likeliest first.
fn dialects(told: Dialect, delimiters: &[u8], options: &CsvOptions, text: &[u8]) -> Vec<Dialect> {
    let sniff = options.sniff;
    let quotes = match sniff.quote {
        true => {
            let single = memchr::memchr(b'\'', text).map(|_| Some(b'\''));
            let none = memchr::memchr(b'"', text).map(|_| None);
            [Some(Some(b'"')), single, none].into_iter().flatten().collect()
        }
        false => vec![told.quote],
    };
    let mut all = Vec::new();
    for quote in quotes {
        let there = |pair: [u8; 2]| memchr::memmem::find(text, &pair).is_some();
        let escapes = match (sniff.escape, quote) {
            (true, Some(quote)) if there([b'\\', quote]) => vec![None, Some(b'\\')],
            (true, _) => vec![None],
            (false, _) => vec![told.escape],
        };
        for escape in escapes {
            for &delimiter in delimiters {
                let dialect = Dialect { delimiter, quote, escape, ..told };
                all.push(dialect);
                if let Some(quote) = quote
                    && sniff.quote
                    && delimiter != b' '
                    && there([b' ', quote])
                {
                    all.push(Dialect { spaces: true, ..dialect });
                }
            }
        }
    }
    all
}

/// No trial has found a table of several columns.
fn one_column(mut trials: Vec<Trial>, told: Dialect) -> Trial {
    let usual = trials.iter().position(|t| t.dialect == told).unwrap_or(0);
    let header_of_one = trials[usual].records.first().is_none_or(|first| first.fields == 1);
    let likelier = |trial: &Trial| {
        let same = trial.dialect.quote == told.quote || trial.steady;
        same && !trial.unclosed && trial.anomalies == 0 && trial.fields == 1 && trial.bad == 0
    };
    let usual_fits = likelier(&trials[usual]);
    let wanted = trials.iter().position(likelier).filter(|_| header_of_one && !usual_fits);
    // A table of several columns whose records do not agree: its errors name the lines.
    let wide = |trial: &Trial| {
        let first = trial.records.first().map_or(0, |first| first.fields);
        trial.dialect.quote == told.quote && first > 1 && trial.good >= trial.bad
    };
    let torn = trials.iter().position(wide).filter(|_| header_of_one);
    let mut trial = trials.swap_remove(torn.or(wanted).unwrap_or(usual));
    // Only what says of itself that it is a comment is none of an only column's values.
    let comments = trial.records.iter().take_while(|r| r.remark).count();
    let skip = trial.fields == 1 && comments > 0 && comments < trial.records.len();
    trial.first = if skip { comments } else { 0 };
    (trial.trailing, trial.unnamed) = (false, false);
    trial.dialect.comment = told.comment;
    trial
}

/// Smaller is better.
type Rank = (bool, bool, usize, bool, bool, Reverse<usize>, usize);

/// The head as one dialect reads it.
struct Trial {
    dialect: Dialect,
    records: Vec<Record>,
    /// The fields of most records.
    fields: usize,
    /// The first record of so many fields.
    first: usize,
    /// Records from the first on that have so many fields, and others.
    good: usize,
    bad: usize,
    trailing: bool,
    /// The header has a name less than the rows have fields.
    unnamed: bool,
    unclosed: bool,
    /// Quotes that stand where no dialect puts them.
    anomalies: usize,
    /// Fields that open with a quote and do not close with one.
    opening: usize,
    columns: Vec<Quotes>,
    /// All values of some column are quoted, or some value of every column.
    steady: bool,
    /// A field is quoted behind blanks.
    spaced: bool,
    /// By columns.
    commas: Vec<Commas>,
}

/// Fields of a column with commas in them, between other delimiters.
#[derive(Clone, Copy, Default)]
struct Commas {
    all: usize,
    /// Numbers with a decimal comma.
    decimals: usize,
    /// Those of them that have not just three digits behind it: they cannot be grouped digits.
    sure: usize,
    /// Numbers of which points group the digits, and of which blanks do.
    points: usize,
    blanks: usize,
    /// Numbers with a decimal point.
    pointed: usize,
}

impl Commas {
    fn see(&mut self, field: &[u8]) {
        if !field.contains(&b',') {
            let digits = field.strip_prefix(b"-").unwrap_or(field);
            let mut parts = digits.split(|&b| b == b'.');
            let number = |part: Option<&[u8]>| {
                part.is_some_and(|p| !p.is_empty() && p.iter().all(u8::is_ascii_digit))
            };
            let pointed = number(parts.next()) && number(parts.next()) && parts.next().is_none();
            let fraction = digits.rsplit(|&b| b == b'.').next().map_or(0, <[u8]>::len);
            self.pointed += usize::from(pointed && fraction != 3);
            return;
        }
        self.all += 1;
        if decimal_comma(field) {
            self.decimals += 1;
            let fraction = field.rsplit(|&b| b == b',').next().map_or(0, <[u8]>::len);
            self.sure += usize::from(fraction != 3);
            self.points += usize::from(field.contains(&b'.'));
            self.blanks += usize::from(field.contains(&b' '));
        }
    }

    /// All of them are decimal commas, perhaps.
    fn decimal(&self) -> bool {
        self.all > 0 && self.all == self.decimals
    }

    fn sum(columns: &[Commas]) -> Commas {
        let sum = |of: fn(&Commas) -> usize| columns.iter().map(of).sum();
        Commas {
            all: sum(|c| c.all),
            decimals: sum(|c| c.decimals),
            sure: sum(|c| c.sure),
            points: sum(|c| c.points),
            blanks: sum(|c| c.blanks),
            pointed: sum(|c| c.pointed),
        }
    }

    /// What those of all columns are if they can be nothing else, and nothing speaks against it. A column
    /// of words, in some of which are commas, says nothing.
    fn sure(columns: &[Commas]) -> Option<DecimalCommas> {
        let numbers: Vec<Commas> = columns.iter().filter(|c| c.decimal()).copied().collect();
        let numbers = Commas::sum(&numbers);
        let sure = numbers.sure > 0 && columns.iter().all(|c| c.pointed == 0);
        let thousands = match (numbers.points, numbers.blanks) {
            (0, 0) => None,
            (_, 0) => Some(b'.'),
            (0, _) => Some(b' '),
            _ => return None,
        };
        sure.then_some(DecimalCommas { thousands })
    }
}

#[derive(Clone, Copy, Debug)]
struct Record {
    start: usize,
    fields: usize,
    /// Those of them that are not empty.
    filled: usize,
    last_empty: bool,
    /// Fields that are no words: numbers, dates. Only of the first records.
    values: usize,
    /// It begins with `#`.
    hash: bool,
    /// It is a comment by all appearance: `# text`, `## text`.
    remark: bool,
    /// A blank line stands above it.
    apart: bool,
}

/// The last records in which a column's field was quoted and in which it was not, from 1.
#[derive(Clone, Copy, Default)]
struct Quotes {
    quoted: usize,
    bare: usize,
}

impl Trial {
    fn new(text: &[u8], whole: bool, dialect: Dialect, options: &CsvOptions) -> Trial {
        let mut trial = Trial {
            dialect,
            records: Vec::new(),
            fields: 0,
            first: 0,
            good: 0,
            bad: 0,
            trailing: false,
            unnamed: false,
            unclosed: false,
            anomalies: 0,
            opening: 0,
            columns: Vec::new(),
            steady: false,
            spaced: false,
            commas: Vec::new(),
        };
        trial.read(text, whole);
        trial.judge(options);
        // The first record may be a header, whose names are quoted or not.
        let header = trial.first + 1;
        let steady = |c: &Quotes| c.quoted > header && c.bare <= header;
        trial.steady = trial.columns.iter().any(steady)
            || trial.columns.len() >= trial.fields.min(COLUMNS)
                && trial.columns.iter().all(|c| c.quoted > 0);
        trial
    }

    fn read(&mut self, text: &[u8], whole: bool) {
        let shape = Shape { dialect: self.dialect, fields: ANY, trailing: false, padded: false };
        let mut scanned = Records::default();
        let mut columns = Vec::new();
        let mut scratch = Vec::new();
        let mut at = 0;
        while at < text.len() && self.records.len() < RECORDS {
            let next = match scanned.scan(text, at, &shape, 1) {
                Ok(next) => next,
                Err(Malformed::Unclosed { at: open }) => {
                    // The head may end within a record; half of it is too much for one.
                    self.unclosed = whole || open < text.len() / 2;
                    break;
                }
                Err(Malformed::Ragged { .. }) => break,
            };
            if scanned.rows == 0 || (next == text.len() && !whole && !self.records.is_empty()) {
                break;
            }
            let start = scanned.ends[0] as usize;
            let begin = &text[start..];
            let fields = scanned.ends.len() - 1;
            let mut record = Record {
                start,
                fields,
                filled: 0,
                values: 0,
                last_empty: scanned.ends[fields] as usize
                    == scanned.ends[fields - 1] as usize + usize::from(fields > 1),
                hash: begin.first() == Some(&b'#'),
                remark: matches!(begin, [b'#'] | [b'#', b' ' | b'#' | b'\t' | b'\n' | b'\r', ..]),
                apart: count(self.dialect.newline, &text[at..start]) > 0,
            };
            for column in 0..fields {
                let Some(field) = super::scan::field(text, &scanned.ends, column) else { continue };
                record.filled += usize::from(!field.trim_ascii().is_empty());
                if self.records.len() < JUDGED && !look(field).is_word() {
                    record.values += usize::from(!field.is_empty());
                }
                let quoted = self.field(field, &mut scratch);
                if column < COLUMNS && !field.is_empty() && !record.hash {
                    if columns.len() <= column {
                        columns.resize(column + 1, Quotes::default());
                    }
                    let seen = &mut columns[column];
                    *(if quoted { &mut seen.quoted } else { &mut seen.bare }) =
                        self.records.len() + 1;
                }
                if self.dialect.delimiter != b',' && !quoted {
                    let place = column.min(COLUMNS - 1);
                    if self.commas.len() <= place {
                        self.commas.resize(place + 1, Commas::default());
                    }
                    self.commas[place].see(field.trim_ascii());
                }
            }
            self.records.push(record);
            at = next;
        }
        self.columns = columns;
    }

    /// Whether a field is quoted; quotes that are none are counted.
    fn field(&mut self, field: &[u8], scratch: &mut Vec<u8>) -> bool {
        let Some(quote) = self.dialect.quote else {
            if let [b'"', inner @ ..] = field {
                match inner {
                    [.., b'"'] => self.anomalies += 1,
                    _ => self.opening += 1,
                }
            }
            return false;
        };
        let bare = unspaced(field, u16::from(quote));
        if bare.first() != Some(&quote) {
            return false;
        }
        if bare.len() < field.len() && !self.dialect.spaces {
            self.anomalies += 1;
            return false;
        }
        let ok = unquote(bare.trim_ascii_end(), quote, self.dialect.escape, scratch).is_some();
        self.spaced |= bare.len() < field.len();
        self.anomalies += usize::from(!ok);
        ok
    }

    /// Finds the number of fields, and where the records of so many begin.
    fn judge(&mut self, options: &CsvOptions) {
        let mut counts = BTreeMap::new();
        let all = self.records.iter().all(|r| r.hash);
        for record in self.records.iter().filter(|r| all || !r.hash) {
            *counts.entry(record.fields).or_insert(0usize) += 1;
        }
        let most = if options.null_padding {
            counts.keys().next_back().copied()
        } else {
            // Of several the greatest.
            counts.iter().max_by_key(|(fields, count)| (**count, **fields)).map(|(f, _)| *f)
        };
        let Some(most) = most else { return };
        self.fields = most;
        let fields_of = |r: &Record| r.fields == most;
        let is_record = |r: &Record| fields_of(r) && !(r.remark && options.sniff.comment);
        // The header and the rows may differ by a delimiter at the end.
        let head =
            self.records.iter().position(|r| !(r.hash && r.fields != most && r.fields + 1 != most));
        if let Some(head) = head.map(|at| (at, self.records[at])) {
            let (at, first) = head;
            let rows = &self.records[at + 1..];
            let closed = rows.iter().filter(|r| fields_of(r)).all(|r| r.last_empty);
            if first.fields + 1 == most && !first.last_empty && closed && most > 2 {
                (self.trailing, self.fields, self.first) = (true, most - 1, at);
            } else if first.fields == most + 1 && first.last_empty && most > 1 {
                (self.trailing, self.first) = (true, at);
            } else if first.fields + 1 == most
                && most > 2
                && first.filled == first.fields
                && first.values == 0
                && options.header != Some(false)
                && rows.first().is_some_and(|row| row.values > 0)
                && rows.iter().all(fields_of)
                && self.columns.first().is_some_and(|names| names.quoted > 0 && names.bare == 0)
            {
                (self.unnamed, self.first) = (true, at);
            }
        }
        if !self.trailing && !self.unnamed {
            let padded = |r: &Record| options.null_padding && r.fields > 1;
            let first = self.records.iter().position(|r| is_record(r) || padded(r));
            self.first = first.unwrap_or(0);
        }
        // Comments among the records.
        let after = &self.records[self.first..];
        let odd = after.iter().any(|r| r.hash && r.fields != most);
        if odd && options.sniff.comment && !self.records[self.first].hash {
            self.dialect.comment = Some(b'#');
        }
        let comment = self.dialect.comment == Some(b'#');
        let after = after.iter().skip(usize::from(self.unnamed));
        for record in after.filter(|r| !(comment && r.hash)) {
            let fits = record.fields == self.fields
                || self.trailing && record.fields == self.fields + 1 && record.last_empty
                || options.null_padding && record.fields < self.fields;
            match fits {
                true => self.good += 1,
                false => self.bad += 1,
            }
        }
    }

    /// Whether what stands above the first record may be left out.
    fn headed(&self, options: &CsvOptions) -> bool {
        let above = &self.records[..self.first];
        if above.is_empty() {
            return true;
        }
        // Nothing that looks like a row, and a table that is told from text with commas in it.
        let titles = above.iter().filter(|r| !r.hash);
        let short = |r: &Record| r.fields == 1 || r.filled * 2 <= self.fields;
        let apart =
            above.iter().all(|r| r.hash) || self.fields > 2 || self.records[self.first].apart;
        options.sniff.skip && titles.clone().all(short) && apart
    }

    /// Whether it is a table some of whose rows end early: its first record is as wide as any, most
    /// rows are, and lines that were torn in two are no explanation. A single short line is a mistake.
    fn ends_early(&self) -> bool {
        let [first, rows @ ..] = &self.records[self.first..] else { return false };
        let short = |r: &&Record| r.fields < self.fields;
        let shorts = rows.iter().filter(short).count();
        let mut torn = 0;
        let mut at = 0;
        while let Some([a, b]) = rows.get(at..at + 2) {
            let pair = short(&a) && short(&b) && a.fields + b.fields == self.fields + 1;
            torn += 2 * usize::from(pair);
            at += 1 + usize::from(pair);
        }
        // A word or a sum below a table is none of its rows.
        let below = rows.iter().rev().take_while(|r| r.fields == 1 && self.fields > 2).count();
        first.fields == self.fields
            && self.bad == 0
            && shorts > below.max(torn).max(1)
            && 2 * shorts <= rows.len()
    }

    /// `None`: it is no table of several columns.
    fn rank(&self, options: &CsvOptions, turn: usize) -> Option<Rank> {
        let told = !options.sniff.quote;
        let plausible = match self.dialect.quote {
            Some(b'"') => true,
            _ if told => true,
            // Where only some are quoted, they must hold what the usual quotes would break.
            Some(_) => self.anomalies == 0 && (self.steady || self.good > 0 && self.bad == 0),
            // Where quotes open and do not close, they may as well be inches; in text between tabs
            // that is usual. A single one is a mistake that is better told.
            None => self.dialect.delimiter == b'\t' && self.opening > 1 && self.anomalies == 0,
        };
        let spaces = !self.dialect.spaces || self.spaced;
        let clean = self.bad == 0 && self.headed(options);
        let mostly = self.first == 0 && self.bad > 0 && self.good >= 4 * self.bad;
        if !plausible || !spaces || self.fields < 2 || !(clean || mostly) {
            return None;
        }
        // Quotes of the other kind that enclose all of a column are taken off, too.
        let other = self.dialect.quote == Some(b'\'') && self.steady && !told;
        let anomalies = self.anomalies + usize::from(!other);
        Some((
            self.unclosed,
            !clean,
            anomalies,
            self.first > 0 || self.unnamed,
            !Commas::sum(&self.commas).decimal(),
            Reverse(self.fields),
            turn,
        ))
    }
}

/// `1,5` or `1.234,50`
fn decimal_comma(field: &[u8]) -> bool {
    let digits = field.strip_prefix(b"-").unwrap_or(field);
    let Some(comma) = digits.iter().position(|&b| b == b',') else { return false };
    let (whole, fraction) = (&digits[..comma], &digits[comma + 1..]);
    let grouped = |b: &u8| b.is_ascii_digit() || matches!(b, b'.' | b' ');
    whole.first().is_some_and(u8::is_ascii_digit)
        && whole.iter().all(grouped)
        && !fraction.is_empty()
        && fraction.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sniffed(text: &str) -> Found {
        csv(text.as_bytes(), true, &CsvOptions::sniffed(), newline(text.as_bytes()))
    }

    /// Delimiter, quote, escape, comment, blanks before quotes, and the lines above.
    fn shown(found: &Found) -> String {
        let Dialect { delimiter, quote, escape, comment, spaces, .. } = found.dialect;
        let one = |b: Option<u8>| {
            b.map_or("-".to_owned(), |b| char::from(b).escape_default().to_string())
        };
        let mut text = format!("{} {} {}", one(Some(delimiter)), one(quote), one(escape));
        if comment.is_some() {
            text += &format!(" comment {}", one(comment));
        }
        if spaces {
            text += " spaces";
        }
        if found.skipped_lines > 0 {
            text += &format!(" skip {}", found.skipped_lines);
        }
        if let Some(fields) = found.fields {
            text += &format!(" trailing {fields}");
        }
        if found.unnamed {
            text += " unnamed";
        }
        if found.padded {
            text += " padded";
        }
        if let Some(commas) = found.commas {
            text += &format!(" commas {}", one(commas.thousands));
        }
        text
    }

    #[test]
    fn dialects_are_those_in_which_records_agree() {
        let check = |text: &str, expected: &str| {
            assert_eq!(shown(&sniffed(text)), expected, "{text}");
        };
        check("a,b\n1,2\n", ", \\\" -");
        check("a;b\n1,5;2\n2,5;3\n", "; \\\" - commas -");
        check("1,5;2,5\n3,5;4,5\n", "; \\\" - commas -");
        check("a;b\n1.234,50;2\n2,5;3\n", "; \\\" - commas .");
        check("a;b\n1 234,50;2\n2,5;3\n", "; \\\" - commas  ");
        check("name;price\nMüller, Hans;2,50\nMeier;3,99\n", "; \\\" - commas -");
        check("name;price\nMüller, Hans;2,50\nMeier;n, a\n", "; \\\" -");
        // Digits may be grouped by commas, and points may be decimal ones.
        check("a;b\n1,234;2\n2,500;3\n", "; \\\" -");
        check("a;b\n1,5;2.25\n2,5;3.5\n", "; \\\" -");
        check("a;b\n1,5;x\nNew York, NY;y\n", "; \\\" -");
        check("a\tb\n1, 2\t3\n", "\\t \\\" -");
        check("a|b|c\n1|2|3\n", "| \\\" -");
        check("x,a;b,c\n1,2;3,4\n5,6;7,8\n", ", \\\" -");
        // Line ends within quotes.
        check("a;b\n\"x,\ny\n,z\";1\n\"u\nv,\";2\n", "; \\\" -");
        // Titles and comments.
        check("The title, so to say\n\na;b\n1;2\n3;4\n", "; \\\" - skip 2");
        check("Title\na,b,c\n1,2,3\n", ", \\\" - skip 1");
        check("# one, two\n# three\na,b\n1,2\n", ", \\\" - skip 2");
        check("#chrom\tpos\n1\t2\n", "\\t \\\" -");
        check("##x\n##y=1\n#chrom\tpos\n1\t2\n", "\\t \\\" - skip 2");
        check("a,b\n1,2\n# half of it\n3,4\n", ", \\\" - comment #");
        check("sep=;\na;b\n1;2\n", "; \\\" - skip 1");
        check("sep=;\r\na\r\n1\r\n", "; \\\" - skip 1");
        // Quotes and escapes.
        check("a,b\n'x,y',1\n'z',2\n", ", \\' -");
        check("a,b\n'tis the season,1\nx,2\n", ", \\\" -");
        check("a,b\n'x',1\ny,2\n", ", \\\" -");
        check("'a'\t'b'\n1\t2\n3\t4\n", "\\t \\' -");
        check("a,b\nit''s,1\n'x, y',2\n'z\nw',3\n", ", \\' -");
        check("a,b\n'tis the season, so,1\nx,2\n'twas, y,3\n", ", \\\" -");
        check("a,b\n\"x \\\"y\\\", z\",1\n\"w\",2\n", ", \\\" \\\\");
        check("a,b\n\"C:\\dir\\\",1\n\"w\",2\n", ", \\\" -");
        check("a,b\n1, \"x, y\"\n2, \"z\"\n", ", \\\" - spaces");
        check("a,b\n1,\"Swing it\" magistern\n2,y\n", ", \\\" -");
        check("a\tb\n1\t\"x\n2\t\"y\n3\tz\n", "\\t - -");
        check("a,b\n1,\"x\n2,y\n", ", \\\" -");
        check("a;b\n1;\"x\n2;y\n", "; \\\" -");
        // A delimiter at the end of the rows, or of the header.
        check("a,b,c\n1,2,3,\n4,5,6,\n", ", \\\" - trailing 3");
        check("a,b,c,\n1,2,3\n4,5,6\n", ", \\\" - trailing 3");
        check("a,b,\n1,2,\n", ", \\\" -");
        // R does not name what it calls its rows by.
        check("\"Weight\",\"Feed\"\n\"1\",26.5,7\n\"2\",27,8\n", ", \\\" - unnamed");
        check("name,amount\nSmith, John,5\nDoe, Jane,6\n", ", \\\" -");
        check("Sales, all years\nregion,year,total\nA,2020,5\nB,2021,6\n", ", \\\" -");
        // Rows end early, or lines are torn.
        check("a,b,c\n1,2,3\n4,5\n6,7,8\n9\n10,11,12\n", ", \\\" - padded");
        check("a;b;c\n1;2;3\n4;5\n7;8;9\n", "; \\\" -");
        check("a;b;c\n1;2;3\n4;5\n7;8;9\n1;2;3\n4;5\n", "; \\\" - padded");
        check("a,b,c\n1,x\ny,3\n4,z,5\n6,v\nw,7\n8,z,9\n1,2,3\n4,5,6\n", ", \\\" -");
        check("a,b,c\n1,2,3\n4,5,6\nSource: somebody\n", ", \\\" -");
        check("a,b\n1\n2,3,4\n5,6\n", ", \\\" -");
        // One column, and records that do not agree.
        check("a\n1\n2\n", ", \\\" -");
        check("text\nHello, world\nFoo\nBar\n", "\\t \\\" -");
        check("name\nA, b\nC, d\nE, f\n", "\\t \\\" -");
        check("# a remark\nn\n1\n", ", \\\" - skip 1");
        check("#tag\n#other\n", ", \\\" -");
        check("a,b\n1\n", ", \\\" -");
        check("a;b;c\n1;2;3\n4;5\n6;7\n", "; \\\" -");
        check("", ", \\\" -");
        check("\n\n", ", \\\" -");
        check("a,b\r1,2\r", ", \\\" -");
        check("\"a\"\t\"b\"\r1\t\"x\r\ny\"\r2\t\"z\"\r", "\\t \\\" -");
        assert_eq!(newline(b"a\t\"b\r\"x\ny\"\r"), b'\n');
        assert_eq!(newline(b"\"a\r\nb\"\r\n1\r\n"), b'\n');
        assert_eq!(newline(b"\"a\"\r\"b\r\nc\"\r"), b'\r');
    }

    #[test]
    fn what_is_told_is_not_found_out() {
        let mut options = CsvOptions::sniffed();
        options.tell_delimiter(b',');
        let text = b"a;b\n1;2\n";
        assert_eq!(csv(text, true, &options, b'\n').dialect.delimiter, b',');
        options.tell_quote(None);
        let text = b"a,b\n\"x\",2\n";
        assert_eq!(csv(text, true, &options, b'\n').dialect.quote, None);
        let told = csv(b"# x\na;b\n'1';2\n", true, &CsvOptions::default(), b'\n');
        assert_eq!(shown(&told), ", \\\" -");
    }

    /// Bytes of all kinds end in some dialect.
    #[test]
    fn nothing_makes_it_fail() {
        let mut prng = thalweg_base::Prng::new(5);
        let alphabet = b",;\t|\"'\\#\n\r a1 ";
        for round in 0..3000 {
            let length = prng.below(60) as usize;
            let text: Vec<u8> =
                (0..length).map(|_| alphabet[prng.below(alphabet.len() as u64) as usize]).collect();
            let mut options = CsvOptions::sniffed();
            options.null_padding = round % 3 == 0;
            let found = csv(&text, round % 2 == 0, &options, newline(&text));
            assert!(found.skipped_bytes <= text.len());
        }
    }
}
