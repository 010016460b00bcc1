//! Values of prepared statements, and where the statements have them.

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use thalweg_base::{Error, Result};
use thalweg_engine::Value;

use super::plain::plain_type;

/// The schema by which a client is told which values are wanted.
pub fn schema(types: &[DataType]) -> Schema {
    let field = |(i, data_type): (usize, &DataType)| {
        Field::new(format!("${}", i + 1), plain_type(data_type), true)
    };
    Schema::new(types.iter().enumerate().map(field).collect::<Vec<_>>())
}

/// The values of one row: its columns in their order, whatever their names.
pub fn values(rows: &RecordBatch, row: usize) -> Result<Vec<Value>> {
    rows.columns().iter().map(|column| Value::new(column.slice(row, 1))).collect()
}

/// Refuses rows of another number of values than the statement takes.
pub fn check(rows: &RecordBatch, wanted: usize) -> Result<()> {
    let got = rows.num_columns();
    if got == wanted {
        return Ok(());
    }
    Err(Error::user(format!("the statement takes {wanted} values, and got {got}")).code("07001"))
}

/// `?` is how JDBC and others write parameters: they become `$1`, `$2`, … in their order. Quoted
/// text and comments are left as they are, and so is a statement that has none.
pub fn numbered(sql: &str) -> String {
    let bytes = sql.as_bytes();
    let mut text = String::with_capacity(sql.len());
    let (mut from, mut at, mut number) = (0, 0, 0);
    while at < bytes.len() {
        let rest = &sql.as_bytes()[at..];
        let skipped = match rest[0] {
            quote @ (b'\'' | b'"') => until(&rest[1..], &[quote]).map_or(rest.len(), |n| n + 1),
            b'-' if rest.starts_with(b"--") => until(rest, b"\n").unwrap_or(rest.len()),
            b'/' if rest.starts_with(b"/*") => comment(rest),
            b'$' => dollar_quoted(rest).unwrap_or(1),
            b'?' => {
                number += 1;
                text.push_str(&sql[from..at]);
                text.push_str(&format!("${number}"));
                from = at + 1;
                1
            }
            _ => 1,
        };
        at += skipped;
    }
    text.push_str(&sql[from..]);
    text
}

/// The bytes up to the end of `end`.
fn until(bytes: &[u8], end: &[u8]) -> Option<usize> {
    bytes.windows(end.len()).position(|window| window == end).map(|at| at + end.len())
}

/// The bytes of a comment, with those in it.
fn comment(bytes: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// `$tag$ … $tag$`; `None`: it is a parameter, or nothing.
fn dollar_quoted(bytes: &[u8]) -> Option<usize> {
    let name = bytes[1..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
    let is_number = bytes.get(1).is_some_and(u8::is_ascii_digit);
    if is_number || bytes.get(1 + name) != Some(&b'$') {
        return None;
    }
    let tag = &bytes[..name + 2];
    Some(until(&bytes[tag.len()..], tag).map_or(bytes.len(), |n| n + tag.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_marks_are_numbered() {
        let check = |sql: &str, expected: &str| assert_eq!(numbered(sql), expected);
        check("SELECT ? + ?", "SELECT $1 + $2");
        check("SELECT $1", "SELECT $1");
        check("?", "$1");
        check("", "");
        check("SELECT '?', \"?\", 'it''s ?', ?", "SELECT '?', \"?\", 'it''s ?', $1");
        check(
            "SELECT ? -- ?\n, ? /* ? /* ? */ ? */ ?",
            "SELECT $1 -- ?\n, $2 /* ? /* ? */ ? */ $3",
        );
        check("SELECT $q$ ? $q$, $$ ? $$, ?", "SELECT $q$ ? $q$, $$ ? $$, $1");
        check("SELECT 'ü?' || ?, 'open ?", "SELECT 'ü?' || $1, 'open ?");
    }
}
