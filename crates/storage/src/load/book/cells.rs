//! Cells of a sheet, row by row, and how they are written in JSON.

use std::collections::BTreeMap;
use std::path::Path;

use quick_xml::events::{BytesStart, Event};
use thalweg_base::{Result, calendar, text};

use super::options::{Area, place};
use super::package::{Xml, attribute};
use super::workbook::{Format, Workbook, unescaped};
use crate::load::input::damaged;

/// Beyond the days that Excel knows.
const DAYS_MAX: f64 = 2_958_466.0;
const DAY_MS: i64 = 86_400_000;
/// A day that Excel has and 1900 had not.
const LEAP_DAY_OF_1900: i64 = 60;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Text(String),
    Number(f64),
    Boolean(bool),
    /// Written as ISO 8601 has it.
    Date(String),
    Timestamp(String),
    Time(String),
    Error(String),
}

impl Cell {
    /// As JSON has it.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Cell::Number(x) => out.extend_from_slice(number(*x).as_bytes()),
            Cell::Boolean(b) => out.extend_from_slice(if *b { b"true" } else { b"false" }),
            Cell::Text(s) | Cell::Date(s) | Cell::Timestamp(s) | Cell::Time(s) | Cell::Error(s) => {
                quote(s, out)
            }
        }
    }

    /// As the name of a column.
    pub(super) fn name(&self) -> String {
        match self {
            Cell::Number(x) => number(*x),
            Cell::Boolean(b) => b.to_string(),
            Cell::Text(s) | Cell::Date(s) | Cell::Timestamp(s) | Cell::Time(s) | Cell::Error(s) => {
                s.trim().to_owned()
            }
        }
    }
}

/// All numbers of a sheet are floats; those that are whole are shown so.
fn number(x: f64) -> String {
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    match x.fract() == 0.0 && x.abs() <= WHOLE_MAX {
        true => (x as i64).to_string(),
        // The fewest digits that are this number.
        false => format!("{x:?}"),
    }
}

/// A number of days and their fraction, to milliseconds.
fn moment(days: f64, since_1904: bool) -> Cell {
    // Excel itself shows no date for these.
    if !(0.0..DAYS_MAX).contains(&days) {
        return Cell::Number(days);
    }
    let ms = (days * DAY_MS as f64).round() as i64;
    let (day, ms) = (ms / DAY_MS, ms % DAY_MS);
    if days < 1.0 && day == 0 {
        return Cell::Time(clock(ms));
    }
    let begin = match since_1904 {
        true => calendar::days_of(1904, 1, 1),
        false if day == LEAP_DAY_OF_1900 => return Cell::Number(days),
        false if day < LEAP_DAY_OF_1900 => calendar::days_of(1899, 12, 31),
        false => calendar::days_of(1899, 12, 30),
    };
    let (year, month, day) = calendar::date_of(begin + day);
    let date = format!("{year:04}-{month:02}-{day:02}");
    match ms {
        0 => Cell::Date(date),
        ms => Cell::Timestamp(format!("{date}T{}", clock(ms))),
    }
}

fn duration(days: f64) -> Cell {
    let ms = (days.abs() * DAY_MS as f64).round();
    // So many hours that they are no longer counted exactly.
    if ms > 9e15 {
        return Cell::Number(days);
    }
    let sign = if days < 0.0 && ms > 0.0 { "-" } else { "" };
    Cell::Time(format!("{sign}{}", clock(ms as i64)))
}

fn clock(ms: i64) -> String {
    let (seconds, ms) = (ms / 1000, ms % 1000);
    let (minutes, second) = (seconds / 60, seconds % 60);
    let (hour, minute) = (minutes / 60, minutes % 60);
    let fraction = if ms > 0 { format!(".{ms:03}") } else { String::new() };
    format!("{hour:02}:{minute:02}:{second:02}{fraction}")
}

/// A text in JSON.
pub(super) fn quote(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..0x20 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// What a sheet calls a column, from 0: `A`, `Z`, `AA`.
pub(super) fn letters(column: u32) -> String {
    let mut letters = Vec::new();
    let mut left = column + 1;
    while left > 0 {
        letters.push(b'A' + ((left - 1) % 26) as u8);
        left = (left - 1) / 26;
    }
    letters.iter().rev().map(|&b| char::from(b)).collect()
}

/// Rows that have a value, within an area.
pub(super) struct Rows<'a> {
    path: &'a Path,
    xml: Xml<'a>,
    book: &'a Workbook<'a>,
    area: Area,
    /// Where the next cell is that does not say it.
    at: (u32, u32),
    /// The first cell of the next row.
    ahead: Option<(u32, u32, Cell)>,
    is_over: bool,
}

/// The place of a row, from 0, and its cells by their columns.
pub(super) type Row = (u32, BTreeMap<u32, Cell>);

/// What an element of a sheet says, apart from what is in it.
struct Told {
    place: Option<String>,
    kind: Option<String>,
    style: Option<String>,
}

impl Told {
    fn of(element: &BytesStart<'_>) -> Told {
        Told {
            place: attribute(element, b"r"),
            kind: attribute(element, b"t"),
            style: attribute(element, b"s"),
        }
    }
}

impl<'a> Rows<'a> {
    pub(super) fn new(path: &'a Path, xml: Xml<'a>, book: &'a Workbook<'a>, area: Area) -> Self {
        Rows { path, xml, book, area, at: (0, 0), ahead: None, is_over: false }
    }

    pub(super) fn next(&mut self) -> Result<Option<Row>> {
        let first = match self.ahead.take() {
            Some(first) => Some(first),
            None => self.cell()?,
        };
        let Some((row, column, cell)) = first else { return Ok(None) };
        let mut cells = BTreeMap::from([(column, cell)]);
        while let Some((at, column, cell)) = self.cell()? {
            if at < row {
                return Err(damaged(self.path, "the rows of a sheet are not in order"));
            }
            if at > row {
                self.ahead = Some((at, column, cell));
                break;
            }
            cells.insert(column, cell);
        }
        Ok(Some((row, cells)))
    }

    /// The next cell of the area that has a value.
    fn cell(&mut self) -> Result<Option<(u32, u32, Cell)>> {
        while !self.is_over {
            let (told, is_empty) = match self.xml.next()? {
                Event::Start(e) | Event::Empty(e) if e.local_name().as_ref() == b"row" => {
                    let row = attribute(&e, b"r");
                    if let Some(row) = row {
                        let row = row.trim().parse::<u32>().ok().and_then(|row| row.checked_sub(1));
                        self.at.0 = row.ok_or_else(|| damaged(self.path, "a row has no number"))?;
                    }
                    self.at.1 = 0;
                    continue;
                }
                Event::Start(e) if e.local_name().as_ref() == b"c" => (Told::of(&e), false),
                Event::Empty(e) if e.local_name().as_ref() == b"c" => (Told::of(&e), true),
                Event::End(e) => {
                    match e.local_name().as_ref() {
                        b"row" => self.at = (self.at.0.saturating_add(1), 0),
                        b"sheetData" => self.is_over = true,
                        _ => {}
                    }
                    continue;
                }
                Event::Empty(e) if e.local_name().as_ref() == b"sheetData" => {
                    self.is_over = true;
                    continue;
                }
                Event::Eof => return Err(damaged(self.path, "a sheet ends early")),
                _ => continue,
            };
            if let Some(text) = &told.place {
                self.at = match place(text) {
                    Some((Some(column), Some(row))) => (row, column),
                    _ => return Err(damaged(self.path, "a cell has no place")),
                };
            }
            let (row, column) = self.at;
            self.at.1 = column.saturating_add(1);
            let cell = if is_empty { None } else { self.value(&told, (row, column))? };
            let area = self.area;
            if row > area.bottom {
                self.is_over = true;
                return Ok(None);
            }
            if let Some(cell) = cell
                && row >= area.top
                && (area.left..=area.right).contains(&column)
            {
                return Ok(Some((row, column, cell)));
            }
        }
        Ok(None)
    }

    /// What is in the cell that has just begun, up to its end.
    fn value(&mut self, told: &Told, (row, column): (u32, u32)) -> Result<Option<Cell>> {
        let (mut value, mut inline) = (None, None);
        loop {
            let name = match self.xml.next()? {
                Event::Start(e) => e.local_name().as_ref().to_vec(),
                Event::End(e) if e.local_name().as_ref() == b"c" => break,
                Event::Eof => return Err(damaged(self.path, "a sheet ends early")),
                _ => continue,
            };
            let mut text = String::new();
            self.xml.text(&name, name == b"is", &mut text)?;
            match &name[..] {
                b"v" => value = Some(text),
                b"is" => inline = Some(text),
                _ => {}
            }
        }
        let path = self.path;
        let wrong = |value: &str| {
            let place = format!("{}{}", letters(column), u64::from(row) + 1);
            damaged(path, &format!("cell {place} has the value {}", text::quoted(value)))
        };
        let some_text = |text: String| (!text.is_empty()).then_some(Cell::Text(text));
        let kind = told.kind.as_deref().unwrap_or("n");
        if kind == "inlineStr" {
            return Ok(inline.map(unescaped).and_then(some_text));
        }
        let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
        Ok(match kind {
            "str" => some_text(unescaped(value)),
            "s" => {
                let at: usize = value.trim().parse().map_err(|_| wrong(&value))?;
                let shared = self.book.texts.get(at).ok_or_else(|| wrong(&value))?;
                some_text(shared.to_string())
            }
            "b" => match value.trim() {
                "1" | "true" => Some(Cell::Boolean(true)),
                "0" | "false" => Some(Cell::Boolean(false)),
                _ => return Err(wrong(&value)),
            },
            "e" => Some(Cell::Error(value)),
            "d" if value.contains('T') => Some(Cell::Timestamp(value)),
            "d" if value.contains(':') => Some(Cell::Time(value)),
            "d" => Some(Cell::Date(value)),
            "n" => {
                let x: f64 = value.trim().parse().map_err(|_| wrong(&value))?;
                if !x.is_finite() {
                    return Err(wrong(&value));
                }
                let style = told.style.as_ref().and_then(|style| style.parse::<usize>().ok());
                let format = style.and_then(|style| self.book.formats.get(style));
                Some(match format {
                    Some(Format::Moment) => moment(x, self.book.since_1904),
                    Some(Format::Duration) => duration(x),
                    Some(Format::Number) | None => Cell::Number(x),
                })
            }
            _ => return Err(wrong(&value)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_values() {
        let at = |x| moment(x, false);
        assert_eq!(at(45_292.0), Cell::Date("2024-01-01".into()));
        assert_eq!(at(45_292.5), Cell::Timestamp("2024-01-01T12:00:00".into()));
        assert_eq!(at(45_943.541), Cell::Timestamp("2025-10-13T12:59:02.400".into()));
        assert_eq!(at(45_291.999_999_999_9), Cell::Date("2024-01-01".into()));
        assert_eq!(at(1.0), Cell::Date("1900-01-01".into()));
        assert_eq!(at(59.0), Cell::Date("1900-02-28".into()));
        assert_eq!(at(60.0), Cell::Number(60.0));
        assert_eq!(at(61.0), Cell::Date("1900-03-01".into()));
        assert_eq!(at(2_958_465.0), Cell::Date("9999-12-31".into()));
        assert_eq!(at(0.75), Cell::Time("18:00:00".into()));
        assert_eq!(at(-3.0), Cell::Number(-3.0));
        assert_eq!(moment(1.0, true), Cell::Date("1904-01-02".into()));
        assert_eq!(duration(1.5), Cell::Time("36:00:00".into()));
        assert_eq!(duration(-0.25), Cell::Time("-06:00:00".into()));
        let numbers =
            [(17.0, "17"), (-0.5, "-0.5"), (0.1, "0.1"), (1e300, "1e300"), (2.5e-9, "2.5e-9")];
        for (x, shown) in numbers {
            assert_eq!(number(x), shown);
        }
        let mut out = Vec::new();
        Cell::Text("a \"b\"\\\nä".into()).write(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "\"a \\\"b\\\"\\\\\\u000aä\"");
        assert_eq!([0, 25, 26, 701, 702].map(letters), ["A", "Z", "AA", "ZZ", "AAA"]);
    }
}
