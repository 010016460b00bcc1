//! Values of prepared statements, and where the statements have them.

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use thalweg_base::{Error, Result};
use thalweg_engine::{Value, script};

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
        if let Some((end, _)) = script::opaque(bytes, at) {
            at = end;
            continue;
        }
        if bytes[at] == b'?' {
            number += 1;
            text.push_str(&sql[from..at]);
            text.push_str(&format!("${number}"));
            from = at + 1;
        }
        at += 1;
    }
    text.push_str(&sql[from..]);
    text
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
        check(r"SELECT E'it\'s ?', ?", r"SELECT E'it\'s ?', $1");
        check("SELECT 'ü?' || ?, 'open ?", "SELECT 'ü?' || $1, 'open ?");
    }
}
