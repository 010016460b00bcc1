//! From the values of a column to its type.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use thalweg_base::text;

use crate::load::input::shown;
use crate::load::layout::{shortened, sql_type};
use crate::load::parse::Look;
use crate::load::rejects::Position;

/// What values of a column were like: one bit each.
type Seen = u16;

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

fn bits(look: Look) -> Seen {
    let if_so = |so: bool, bit: Seen| if so { bit } else { 0 };
    match look {
        Look::Boolean => BOOLEAN,
        Look::Integer => INTEGER,
        Look::Float => FLOAT,
        Look::Date { ancient } => DATE | if_so(ancient, ANCIENT),
        Look::Timestamp { fine, zoned, ancient } => {
            (if zoned { ZONED } else { LOCAL }) | if_so(fine, FINE) | if_so(ancient, ANCIENT)
        }
        Look::Time => TIME,
        Look::Text => TEXT,
    }
}

/// Whether there are such values, and only text holds them all.
fn is_text(seen: Seen) -> bool {
    let any = |mask: Seen| seen & mask != 0;
    let kinds = [BOOLEAN, INTEGER | FLOAT, DATE | LOCAL | ZONED, TIME, TEXT];
    let mixed = kinds.into_iter().filter(|&kind| any(kind)).count() > 1;
    // Without a zone of its own a date or a local time among zoned ones is ambiguous.
    let ambiguous = any(ZONED) && any(LOCAL | DATE);
    any(TEXT) || mixed || ambiguous || (any(FINE) && any(ANCIENT))
}

/// The narrowest type for such values; `None`: there were none.
fn data_type(seen: Seen) -> Option<DataType> {
    let any = |mask: Seen| seen & mask != 0;
    if seen == 0 {
        return None;
    }
    if is_text(seen) {
        return Some(DataType::Utf8View);
    }
    Some(if any(BOOLEAN) {
        DataType::Boolean
    } else if any(FLOAT) {
        DataType::Float64
    } else if any(INTEGER) {
        DataType::Int64
    } else if any(TIME) {
        DataType::Time64(TimeUnit::Nanosecond)
    } else if any(LOCAL | ZONED) {
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
        !self.none() && !self.is_text()
    }

    /// Where the column turned out to be text, if it did.
    pub(super) fn text_at(&self) -> Option<Position> {
        self.is_text().then(|| self.resolve().decisive.map(|e| e.at)).flatten()
    }

    pub(super) fn data_type(&self) -> DataType {
        data_type(self.seen).unwrap_or(DataType::Utf8View)
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
    pub(super) fn why(&self, paths: &[Arc<PathBuf>], rows: u64) -> String {
        let resolved = self.resolve();
        let Some(decisive) = resolved.decisive else {
            return if rows == 0 { "no row".into() } else { "no value in any row".into() };
        };
        let value = shortened(&decisive.value);
        let place = place(paths, decisive.at);
        if let Some(before) = resolved.before {
            let hint = match null_spelling(&decisive.value) {
                true if self.is_text() => format!("; if it means NULL: --null {value}"),
                _ => String::new(),
            };
            return format!("{place} has {value}; {} before it{hint}", sql_type(&before));
        }
        if self.is_text() {
            return format!("{place} has {value}");
        }
        let values = rows - self.nulls.min(rows);
        match values {
            1 => format!("the only value is {value}"),
            _ => format!("all {} values, such as {value}", text::count(values)),
        }
    }
}

fn place(paths: &[Arc<PathBuf>], at: Position) -> String {
    let path = &paths[at.file];
    let name = path.file_name().map_or(path.as_path(), std::path::Path::new);
    format!("line {} of {}", at.line, shown(name))
}

/// What other programs write for a missing value.
fn null_spelling(value: &[u8]) -> bool {
    const SPELLINGS: [&[u8]; 11] =
        [b"na", b"n/a", b"#n/a", b"null", b"none", b"nil", b"-", b"--", b"?", b"\\n", b"missing"];
    SPELLINGS.iter().any(|s| value.trim_ascii().eq_ignore_ascii_case(s))
}
