//! What the values of SQLite are here.

use rusqlite::types::ValueRef;
use thalweg_base::Error;
use thalweg_base::text::{count, quoted};

use crate::calendar;
use crate::cells::{Cell, Read};

/// Of a value, in an error.
const SHOWN_CHARS: usize = 60;

/// How a column is read by its declaration: by SQLite's own rules of affinity, and by the words for types
/// that SQLite does not have. `None`: it says nothing.
pub fn of_declared(declared: &str) -> Option<Read> {
    let declared = declared.to_ascii_uppercase();
    let has = |words: &[&str]| words.iter().any(|word| declared.contains(word));
    if has(&["INTERVAL", "POINT"]) {
        return None;
    }
    Some(if has(&["INT"]) {
        Read::BigInt
    } else if has(&["CHAR", "CLOB", "TEXT"]) {
        Read::Text
    } else if has(&["BLOB"]) {
        Read::Bytes
    } else if has(&["REAL", "FLOA", "DOUB", "DEC", "NUMERIC", "NUMBER"]) {
        Read::Double
    } else if has(&["BOOL"]) {
        Read::Boolean
    } else if has(&["DATETIME", "TIMESTAMP"]) {
        Read::Timestamp
    } else if has(&["DATE"]) {
        Read::Date
    } else if has(&["TIME"]) {
        Read::Time
    } else {
        return None;
    })
}

/// What values can be read as: how many there are, and of these whole numbers, other numbers, bytes, and
/// whole numbers that no double holds.
pub fn decide([all, integers, reals, blobs, large]: [i64; 5]) -> (Read, String) {
    let texts = all - integers - reals - blobs;
    let number = |n: i64| count(n.unsigned_abs());
    if all == 0 {
        (Read::AsText, "no type is declared, and there is no value".to_owned())
    } else if integers == all {
        (Read::BigInt, format!("no type is declared; all {} values are whole numbers", number(all)))
    } else if integers + reals == all && large == 0 {
        (Read::Double, format!("no type is declared; all {} values are numbers", number(all)))
    } else if blobs == all {
        (Read::Bytes, format!("no type is declared; all {} values are bytes", number(all)))
    } else if texts == all {
        (Read::AsText, format!("no type is declared; all {} values are texts", number(all)))
    } else {
        let kinds = [
            (texts, "texts"),
            (integers, "whole numbers"),
            (reals, "other numbers"),
            (blobs, "values of bytes"),
        ];
        let kinds = kinds.iter().filter(|(n, _)| *n > 0);
        let kinds: Vec<String> = kinds.map(|(n, kind)| format!("{} {kind}", number(*n))).collect();
        (Read::AsText, format!("no type is declared; there are {}", kinds.join(" and ")))
    }
}

/// `None`: the value is not of that type.
pub fn cell<'v>(value: &ValueRef<'v>, read: &Read) -> Option<Cell<'v>> {
    Some(match (read, value) {
        (_, ValueRef::Null) => Cell::Null,
        (Read::BigInt, ValueRef::Integer(n)) => Cell::BigInt(*n),
        (Read::Double, ValueRef::Real(n)) => Cell::Double(*n),
        (Read::Double, ValueRef::Integer(n)) if n.unsigned_abs() <= 1 << f64::MANTISSA_DIGITS => {
            Cell::Double(*n as f64)
        }
        (Read::Boolean, ValueRef::Integer(0)) => Cell::Boolean(false),
        (Read::Boolean, ValueRef::Integer(1)) => Cell::Boolean(true),
        (Read::Bytes, ValueRef::Blob(bytes)) => Cell::Bytes(bytes),
        (Read::Text | Read::AsText, ValueRef::Text(text)) => Cell::Text(str::from_utf8(text).ok()?),
        (Read::Date, ValueRef::Text(text)) => {
            Cell::Date(calendar::day(str::from_utf8(text).ok()?)?)
        }
        (Read::Time, ValueRef::Text(text)) => {
            Cell::Time(calendar::time(str::from_utf8(text).ok()?)? * 1000)
        }
        (Read::Timestamp, ValueRef::Text(text)) => {
            Cell::Timestamp(calendar::timestamp(str::from_utf8(text).ok()?)?)
        }
        _ => return None,
    })
}

pub fn bytes(value: &ValueRef<'_>) -> usize {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
        _ => 8,
    }
}

/// The error of a value that is not of the type of its column.
pub fn contradiction(
    table: &str,
    column: &str,
    row: u64,
    value: &ValueRef<'_>,
    read: &Read,
) -> Error {
    let shown = |text: &str| {
        let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        format!("'{shown}'")
    };
    let value = match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(n) => format!("the whole number {n}"),
        ValueRef::Real(n) => format!("the number {n}"),
        ValueRef::Text(text) => match str::from_utf8(text) {
            Ok(text) => format!("the text {}", shown(text)),
            Err(_) => {
                format!("the text {}, which is not UTF-8", shown(&String::from_utf8_lossy(text)))
            }
        },
        ValueRef::Blob(bytes) => {
            format!("{} of bytes", thalweg_base::text::bytes(bytes.len() as u64))
        }
    };
    let wanted = match read {
        Read::BigInt => "a whole number",
        Read::Double => "a number that a double holds",
        Read::Boolean => "0 or 1",
        Read::Bytes => "bytes",
        Read::Date => "a day such as '2024-12-31'",
        Read::Time => "a time such as '10:30:00'",
        Read::Timestamp => "a time such as '2024-12-31 10:30:00', without a zone",
        _ => "text",
    };
    let error = Error::user(format!(
        "table {}, column {}, row {row}: {value} is not {wanted}",
        quoted(table),
        quoted(column)
    ));
    error.code("22018").hint(match read {
        Read::AsText => "leave the column out",
        _ => "ATTACH the file with (TYPE sqlite, ALL_VARCHAR true), and cast what is read",
    })
}
