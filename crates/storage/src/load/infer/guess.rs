//! From the values of a column to its type.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::{DataType, Fields, TimeUnit};
use thalweg_base::text;

use crate::load::dates::DateOrder;
use crate::load::input::shown;
use crate::load::layout::{shortened, sql_type};
use crate::load::parse::Look;
use crate::load::rejects::Position;

/// What values of a column were like: one bit each.
type Seen = u32;

const BOOLEAN: Seen = 1;
const INTEGER: Seen = 1 << 1;
const FLOAT: Seen = 1 << 2;
const DATE: Seen = 1 << 3;
/// A timestamp without an offset.
const LOCAL: Seen = 1 << 4;
const ZONED: Seen = 1 << 5;
const TIME: Seen = 1 << 6;
const TEXT: Seen = 1 << 7;
/// Needs nanoseconds.
const FINE: Seen = 1 << 8;
/// A day that nanoseconds do not reach.
const ANCIENT: Seen = 1 << 9;
/// A date that is not written as ISO 8601 has it, without a time of day or with one.
const ORDERED: Seen = 1 << 10;
const ORDERED_CLOCK: Seen = 1 << 11;
/// Orders in which some date is none.
const NOT_DAY_FIRST: Seen = 1 << 12;
const NOT_MONTH_FIRST: Seen = 1 << 13;
const NOT_YEAR_FIRST: Seen = 1 << 14;
/// What stands between the parts of dates.
const SLASH: Seen = 1 << 15;
const DOT: Seen = 1 << 16;
const DASH: Seen = 1 << 17;
/// Clocks with AM or PM, and those without.
const HALVES: Seen = 1 << 18;
const WHOLES: Seen = 1 << 19;
const LIST: Seen = 1 << 20;
const STRUCT: Seen = 1 << 21;
/// A word for what is no finite number that is a name as well: it is the former among numbers.
const WORDED: Seen = 1 << 22;
/// An integer that no double is.
const LONG: Seen = 1 << 23;

fn bits(look: Look) -> Seen {
    let if_so = |so: bool, bit: Seen| if so { bit } else { 0 };
    match look {
        Look::Boolean | Look::Answer => BOOLEAN,
        Look::Integer => INTEGER,
        Look::Long => INTEGER | LONG,
        Look::Float => FLOAT,
        Look::Worded => WORDED,
        Look::Date { ancient } => DATE | if_so(ancient, ANCIENT),
        Look::Timestamp { fine, zoned, ancient } => {
            (if zoned { ZONED } else { LOCAL }) | if_so(fine, FINE) | if_so(ancient, ANCIENT)
        }
        Look::Time => TIME,
        Look::Ordered(date) => {
            let clock = match (date.clock, date.halves) {
                (false, _) => ORDERED,
                (true, true) => ORDERED_CLOCK | HALVES,
                (true, false) => ORDERED_CLOCK | WHOLES,
            };
            let separator = match date.separator {
                b'/' => SLASH,
                b'.' => DOT,
                _ => DASH,
            };
            let parts = if_so(date.fine, FINE) | if_so(date.ancient, ANCIENT);
            clock
                | separator
                | parts
                | if_so(!date.day_first, NOT_DAY_FIRST)
                | if_so(!date.month_first, NOT_MONTH_FIRST)
                | if_so(!date.year_first, NOT_YEAR_FIRST)
        }
        Look::Text => TEXT,
        Look::List => LIST,
        Look::Struct => STRUCT,
    }
}

/// The orders that all dates have which are not written as ISO 8601 has it; `None`: there are none
/// of these.
fn orders(seen: Seen) -> Option<Vec<DateOrder>> {
    if seen & (ORDERED | ORDERED_CLOCK) == 0 {
        return None;
    }
    // With its parts in one digit or two, a date of ISO 8601 is one of these as well.
    let iso = if seen & (DATE | LOCAL) != 0 { NOT_DAY_FIRST | NOT_MONTH_FIRST | DASH } else { 0 };
    let clocks = if seen & LOCAL != 0 { WHOLES } else { 0 };
    let seen = seen | iso | clocks;
    let separators = [SLASH, DOT, DASH].into_iter().filter(|s| seen & s != 0).count();
    if separators > 1 || (seen & HALVES != 0 && seen & WHOLES != 0) || seen & ZONED != 0 {
        return Some(Vec::new());
    }
    let all = [
        (NOT_DAY_FIRST, DateOrder::DayFirst),
        (NOT_MONTH_FIRST, DateOrder::MonthFirst),
        (NOT_YEAR_FIRST, DateOrder::YearFirst),
    ];
    Some(all.into_iter().filter(|(not, _)| seen & not == 0).map(|(_, order)| order).collect())
}

/// Whether there are such values, and only text holds them all.
fn is_text(seen: Seen) -> bool {
    let any = |mask: Seen| seen & mask != 0;
    let dates = DATE | LOCAL | ZONED | ORDERED | ORDERED_CLOCK;
    let kinds = [BOOLEAN, INTEGER | FLOAT | WORDED, dates, TIME, TEXT, LIST, STRUCT];
    let mixed = kinds.into_iter().filter(|&kind| any(kind)).count() > 1;
    // Without a zone of its own a date or a local time among zoned ones is ambiguous.
    let ambiguous = any(ZONED) && any(LOCAL | DATE);
    let no_order = orders(seen).is_some_and(|orders| orders.is_empty());
    let inexact = any(LONG) && any(FLOAT | WORDED);
    any(TEXT) || mixed || ambiguous || no_order || inexact || (any(FINE) && any(ANCIENT))
}

/// The narrowest type for such values; `None`: there were none. Dates whose order is not known yet
/// are dates. What lists and structs have in them is not known here.
fn data_type(seen: Seen) -> Option<DataType> {
    let any = |mask: Seen| seen & mask != 0;
    if seen & !WORDED == 0 {
        return None;
    }
    if is_text(seen) {
        return Some(DataType::Utf8View);
    }
    Some(if any(LIST) {
        DataType::new_list(DataType::Null, true)
    } else if any(STRUCT) {
        DataType::Struct(Fields::empty())
    } else if any(BOOLEAN) {
        DataType::Boolean
    } else if any(FLOAT | WORDED) {
        DataType::Float64
    } else if any(INTEGER) {
        DataType::Int64
    } else if any(TIME) {
        DataType::Time64(TimeUnit::Nanosecond)
    } else if any(LOCAL | ZONED | ORDERED_CLOCK) {
        let unit = if any(FINE) { TimeUnit::Nanosecond } else { TimeUnit::Microsecond };
        DataType::Timestamp(unit, any(ZONED).then(|| "UTC".into()))
    } else {
        DataType::Date32
    })
}

/// What is known about a column: of each kind of value the first one.
#[derive(Clone, Debug, Default)]
pub(super) struct Guess {
    seen: Seen,
    evidence: Vec<Evidence>,
    pub nulls: u64,
    /// Blanks that are NULL unless the column turns out to be text.
    pub blanks: u64,
    /// The spellings of NULL met, a bit each.
    pub spellings: u64,
}

#[derive(Clone, Debug)]
struct Evidence {
    bit: Seen,
    at: Position,
    value: Box<[u8]>,
}

/// Bytes of a value kept to be shown.
const SHOWN_BYTES: usize = 200;

/// How a type came about.
struct Resolved<'a> {
    data_type: DataType,
    /// The value that decided, and the type before it.
    decisive: Option<&'a Evidence>,
    before: Option<DataType>,
}

impl Guess {
    /// Takes a value into account; `at` is asked only if it is of a new kind. Says whether that
    /// made the column text.
    #[inline]
    pub(super) fn add(&mut self, look: Look, value: &[u8], at: impl FnOnce() -> Position) -> bool {
        let new = bits(look) & !self.seen;
        if new == 0 {
            return false;
        }
        self.learn(new, value, at());
        self.is_text()
    }

    #[cold]
    fn learn(&mut self, new: Seen, value: &[u8], at: Position) {
        self.seen |= new;
        let value: Box<[u8]> = value[..value.len().min(SHOWN_BYTES)].into();
        for bit in (0..Seen::BITS).map(|i| 1 << i).filter(|bit| new & bit != 0) {
            self.evidence.push(Evidence { bit, at, value: value.clone() });
        }
    }

    pub(super) fn merge(&mut self, other: &Guess) {
        self.seen |= other.seen;
        self.nulls += other.nulls;
        self.blanks += other.blanks;
        self.spellings |= other.spellings;
        for evidence in &other.evidence {
            match self.evidence.iter_mut().find(|e| e.bit == evidence.bit) {
                Some(mine) if mine.at <= evidence.at => {}
                Some(mine) => *mine = evidence.clone(),
                None => self.evidence.push(evidence.clone()),
            }
        }
    }

    /// Whether no value but NULL was seen.
    pub(super) fn none(&self) -> bool {
        self.seen == 0
    }

    pub(super) fn is_text(&self) -> bool {
        is_text(self.seen)
    }

    /// Whether there are values, and they are no text.
    pub(super) fn typed(&self) -> bool {
        self.seen & !WORDED != 0 && !self.is_text()
    }

    /// Where the column turned out to be text, if it did.
    pub(super) fn text_at(&self) -> Option<Position> {
        self.is_text().then(|| self.resolve().decisive.map(|e| e.at)).flatten()
    }

    pub(super) fn data_type(&self) -> DataType {
        match self.ambiguous() {
            true => DataType::Utf8View,
            false => data_type(self.seen).unwrap_or(DataType::Utf8View),
        }
    }

    /// Whether all values are dates in more than one order.
    fn ambiguous(&self) -> bool {
        !self.is_text() && orders(self.seen).is_some_and(|orders| orders.len() > 1)
    }

    /// The order of the column's dates, if it is not that of ISO 8601.
    pub(super) fn order(&self) -> Option<DateOrder> {
        match (self.is_text(), orders(self.seen)?.as_slice()) {
            (false, [order]) => Some(*order),
            _ => None,
        }
    }

    fn separator(&self) -> char {
        match self.seen & (SLASH | DOT) {
            SLASH => '/',
            DOT => '.',
            _ => '-',
        }
    }

    /// Follows the evidence in the order of the input, until the type is text: what comes after
    /// that may not have been looked at.
    fn resolve(&self) -> Resolved<'_> {
        let mut evidence: Vec<&Evidence> = self.evidence.iter().collect();
        evidence.sort_by_key(|e| e.at);
        let mut seen = 0;
        let mut resolved = Resolved { data_type: DataType::Utf8View, decisive: None, before: None };
        let mut current = None;
        for together in evidence.chunk_by(|a, b| a.at == b.at) {
            seen |= together.iter().fold(0, |bits, e| bits | e.bit);
            let next = data_type(seen);
            if next != current {
                resolved.decisive = together.first().copied();
                resolved.before = current;
                current = next;
            }
            if current == Some(DataType::Utf8View) {
                break;
            }
        }
        resolved.data_type = current.unwrap_or(DataType::Utf8View);
        resolved
    }

    /// One line on what decided the type; of `rows` rows.
    pub(super) fn why(&self, places: &Places<'_>, rows: u64) -> String {
        let resolved = self.resolve();
        let Some(decisive) = resolved.decisive else {
            if let Some(word) = self.evidence.iter().min_by_key(|e| e.at) {
                return format!("{} has {}", places.place(word.at), shortened(&word.value));
            }
            return if rows == 0 { "no row".into() } else { "no value in any row".into() };
        };
        let value = shortened(&decisive.value);
        let place = places.place(decisive.at);
        let values = rows - self.nulls.min(rows);
        let values = match values {
            1 => format!("the only value is {value}"),
            _ => format!("all {} values, such as {value}", text::count(values)),
        };
        let format = |order: DateOrder| format!("'{}'", order.format(self.separator()));
        if self.ambiguous() {
            let (day, month) = (format(DateOrder::DayFirst), format(DateOrder::MonthFirst));
            return format!(
                "{values}, are dates with the day first or the month: dateformat {day} or {month} says which"
            );
        }
        let read = self.order().map(|order| format!("; read as {}", format(order)));
        let read = read.unwrap_or_default();
        if let Some(before) = resolved.before {
            let hint = match null_spelling(&decisive.value) {
                true if self.is_text() => format!("; if it means NULL: --null {value}"),
                _ => read,
            };
            return format!("{place} has {value}; {} before it{hint}", sql_type(&before));
        }
        if self.is_text() {
            return format!("{place} has {value}");
        }
        values + &read
    }
}

/// How a place in the input is named.
pub(super) struct Places<'a> {
    pub paths: &'a [Arc<PathBuf>],
    /// Files in which records are counted rather than lines.
    pub by_row: &'a BTreeSet<usize>,
}

impl Places<'_> {
    fn place(&self, at: Position) -> String {
        let path = &self.paths[at.file];
        let name = path.file_name().map_or(path.as_path(), std::path::Path::new);
        let unit = if self.by_row.contains(&at.file) { "row" } else { "line" };
        format!("{unit} {} of {}", at.line, shown(name))
    }
}

/// What other programs write for a missing value.
pub(super) fn null_spelling(value: &[u8]) -> bool {
    const SPELLINGS: [&[u8]; 11] =
        [b"na", b"n/a", b"#n/a", b"null", b"none", b"nil", b"-", b"--", b"?", b"\\n", b"missing"];
    SPELLINGS.iter().any(|s| value.trim_ascii().eq_ignore_ascii_case(s))
}
