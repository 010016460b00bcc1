//! Values for `$1`, `$2`, …: of a client's prepared statement, in any place of any statement.
//!
//! They are written into the text as literals, so that a statement with values is a statement like
//! every other: DML, DDL, settings, and plans that know the values (skipping, join order).

use std::borrow::Cow;

use arrow::array::{Array, ArrayRef, AsArray, new_null_array};
use arrow::datatypes::{
    DataType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
};
use arrow::util::display::{ArrayFormatter, DurationFormat, FormatOptions};
use thalweg_base::limits::SQL_BYTES_MAX;
use thalweg_base::{Error, Place, Result};

use crate::place;
use crate::script::{self, Placeholder};
use thalweg_errors::from_arrow;

/// One value of any type: an array of one element.
#[derive(Clone, Debug)]
pub struct Value(ArrayRef);

impl Value {
    /// # Errors
    /// The array has another number of elements than one.
    pub fn new(array: ArrayRef) -> Result<Value> {
        match array.len() {
            1 => Ok(Value(array)),
            n => Err(Error::internal(format!("a value of {n} elements"))),
        }
    }

    pub fn null(data_type: &DataType) -> Value {
        Value(new_null_array(data_type, 1))
    }

    pub fn array(&self) -> &ArrayRef {
        &self.0
    }

    pub fn data_type(&self) -> &DataType {
        self.0.data_type()
    }
}

/// How many values a statement takes: the highest number of its parameters.
pub(crate) fn count(sql: &str) -> usize {
    places(sql).into_iter().map(|p| p.number).max().unwrap_or(0)
}

/// Where the statement has its parameters. Those of PREPARE are of the statement that it prepares.
fn places(sql: &str) -> Vec<Placeholder> {
    match script::words(sql).next() {
        Some(word) if word.eq_ignore_ascii_case("prepare") => vec![],
        _ => script::placeholders(sql),
    }
}

/// A statement with literals in the places of its parameters.
pub(crate) struct Filled<'a> {
    sql: &'a str,
    literals: Vec<String>,
    pub text: String,
}

impl<'a> Filled<'a> {
    /// The statement with its values.
    pub fn of(sql: &'a str, values: &[Value]) -> Result<Self> {
        Filled::with(sql, values.iter().map(|v| literal(&v.0, 0)).collect())
    }

    /// The statement with a value of each type: what it is planned as, to know the columns of its
    /// result.
    pub fn sample(sql: &'a str, types: &[DataType]) -> Result<Self> {
        let literals = types.iter().map(|data_type| match data_type {
            // As LIMIT has it, which takes no NULL.
            t if t.is_integer() => Ok("1".to_string()),
            t if t.is_string() => Ok("''".to_string()),
            t => literal(&new_null_array(t, 1), 0),
        });
        Filled::with(sql, literals.collect())
    }

    /// The same with casts, where literals may be of other types: a bigint is an int if it is small, and a
    /// text is read as the type of its place.
    pub fn typed_sample(sql: &'a str, types: &[DataType]) -> Result<Self> {
        let literals = types.iter().map(|data_type| match data_type {
            DataType::Int64 => Ok(BIG_ONE.to_string()),
            t if t.is_integer() => Ok("1".to_string()),
            t => literal(&new_null_array(t, 1), 0),
        });
        Filled::with(sql, literals.collect())
    }

    fn with(sql: &'a str, literals: Result<Vec<String>>) -> Result<Self> {
        let literals = literals?;
        let text = fill(sql, &literals)?;
        Ok(Filled { sql, literals, text })
    }

    /// An error with the character of the statement without its values that it is at.
    pub fn located(&self, error: Error) -> Error {
        let error = place::located(&self.text, error);
        match error.position() {
            Some(position) => error.at(Place::At(self.unfilled(position))),
            None => error,
        }
    }

    /// Where a character of the text stands in the statement without its values. One of a value is where
    /// the parameter is.
    fn unfilled(&self, position: u32) -> u32 {
        let count = |text: &str| text.chars().count() as u32;
        let (mut own, mut filled) = (0, 0);
        let mut from = 0;
        for placeholder in places(self.sql) {
            let Some(literal) = written(&placeholder, &self.literals) else { break };
            let literal = count(&literal);
            let place = placeholder.place;
            let before = count(&self.sql[from..place.start]);
            if position <= filled + before {
                break;
            }
            (own, filled) = (own + before, filled + before);
            if position <= filled + literal {
                return own + 1;
            }
            (own, filled) = (own + count(&self.sql[place.clone()]), filled + literal);
            from = place.end;
        }
        own + position - filled
    }
}

const BIG_ONE: &str = "CAST(1 AS BIGINT)";

/// How a NULL of a type begins.
const NULL_OF: &str = "arrow_cast(NULL";

/// The literal in the place of a parameter; `None`: there is none of its number. A number that is a key to
/// order or to group by is no position of a column: the parentheses say so, of which ROLLUP takes one pair.
fn written<'l>(placeholder: &Placeholder, literals: &'l [String]) -> Option<Cow<'l, str>> {
    let literal = placeholder.number.checked_sub(1).and_then(|i| literals.get(i))?;
    if placeholder.begins_key && literal.starts_with(|c: char| c.is_ascii_digit()) {
        return Some(format!("(({literal}))").into());
    }
    if placeholder.is_fetched && literal.starts_with(NULL_OF) {
        return Some("NULL".into());
    }
    if placeholder.is_fetched && literal == BIG_ONE {
        return Some("1".into());
    }
    Some(literal.into())
}

fn fill(sql: &str, literals: &[String]) -> Result<String> {
    let places = places(sql);
    let wanted = places.iter().map(|p| p.number).max().unwrap_or(0);
    if wanted > literals.len() {
        return Err(Error::user(format!(
            "the statement takes {wanted} values, and got {}",
            literals.len()
        ))
        .code("08P01"));
    }
    let mut text = String::with_capacity(sql.len() + 16 * places.len());
    let mut from = 0;
    for placeholder in places {
        let Some(literal) = written(&placeholder, literals) else {
            return Err(Error::user("there is no parameter $0")
                .code("42P02")
                .hint("$1 is the first"));
        };
        text.push_str(&sql[from..placeholder.place.start]);
        text.push_str(&literal);
        from = placeholder.place.end;
        if text.len() > SQL_BYTES_MAX {
            return Err(Error::user("the statement with its values is too long")
                .code("54000")
                .hint("load data with COPY instead of parameters"));
        }
    }
    text.push_str(&sql[from..]);
    Ok(text)
}

/// Lists in lists; deeper ones are no parameter that a client sends.
const LIST_DEPTH_MAX: usize = 8;

/// An element as SQL that gives just this value, of just this type. Integers are the exception:
/// they are literals of their own, which every place takes.
fn literal(array: &ArrayRef, row: usize) -> Result<String> {
    nested(array, row, 0)
}

fn nested(array: &ArrayRef, row: usize, depth: usize) -> Result<String> {
    use DataType as T;
    let data_type = array.data_type();
    if data_type == &T::Null {
        return Ok("NULL".into());
    }
    if array.is_null(row) {
        return Ok(match data_type {
            t if t.is_string() => "CAST(NULL AS VARCHAR)".into(),
            t => format!("{NULL_OF}, '{}')", quotable(t)),
        });
    }
    let integer = match data_type {
        T::Int8 => Some(array.as_primitive::<Int8Type>().value(row).into()),
        T::Int16 => Some(array.as_primitive::<Int16Type>().value(row).into()),
        T::Int32 => Some(array.as_primitive::<Int32Type>().value(row).into()),
        T::Int64 => Some(array.as_primitive::<Int64Type>().value(row)),
        T::UInt8 => Some(array.as_primitive::<UInt8Type>().value(row).into()),
        T::UInt16 => Some(array.as_primitive::<UInt16Type>().value(row).into()),
        T::UInt32 => Some(array.as_primitive::<UInt32Type>().value(row).into()),
        _ => None,
    };
    if let Some(n) = integer {
        return Ok(match n {
            // Without its sign it is no 64-bit integer.
            i64::MIN => format!("({} - 1)", i64::MIN + 1),
            // `a -$1` must not begin a comment.
            n if n < 0 => format!("({n})"),
            n => n.to_string(),
        });
    }
    match data_type {
        T::Boolean => Ok(if array.as_boolean().value(row) { "TRUE" } else { "FALSE" }.into()),
        T::Utf8 => quoted(array.as_string::<i32>().value(row)),
        T::LargeUtf8 => quoted(array.as_string::<i64>().value(row)),
        T::Utf8View => quoted(array.as_string_view().value(row)),
        T::Binary => Ok(hex(array.as_binary::<i32>().value(row))),
        T::LargeBinary => Ok(hex(array.as_binary::<i64>().value(row))),
        T::BinaryView => Ok(hex(array.as_binary_view().value(row))),
        T::FixedSizeBinary(_) => Ok(hex(array.as_fixed_size_binary().value(row))),
        T::List(_) => list(&array.as_list::<i32>().value(row), data_type, depth),
        T::LargeList(_) => list(&array.as_list::<i64>().value(row), data_type, depth),
        T::FixedSizeList(..) => list(&array.as_fixed_size_list().value(row), data_type, depth),
        T::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let key = dictionary.normalized_keys()[row];
            nested(dictionary.values(), key, depth)
        }
        t if t.is_nested() => Err(Error::unsupported(format!("a parameter cannot be a {t}"))
            .hint("pass its parts, and make it of them in SQL")),
        t => {
            let format = FormatOptions::new().with_duration_format(DurationFormat::ISO8601);
            let formatter = ArrayFormatter::try_new(array, &format).map_err(|e| from_arrow(&e))?;
            Ok(format!("arrow_cast('{}', '{}')", formatter.value(row), quotable(t)))
        }
    }
}

fn list(items: &ArrayRef, data_type: &DataType, depth: usize) -> Result<String> {
    if depth == LIST_DEPTH_MAX {
        return Err(Error::unsupported(format!(
            "a parameter has more than {LIST_DEPTH_MAX} lists in each other"
        )));
    }
    if items.is_empty() {
        return Ok(format!("arrow_cast(make_array(), '{}')", quotable(data_type)));
    }
    let items = (0..items.len()).map(|i| nested(items, i, depth + 1));
    Ok(format!("ARRAY[{}]", items.collect::<Result<Vec<_>>>()?.join(", ")))
}

fn quotable(data_type: &DataType) -> String {
    data_type.to_string().replace('\'', "''")
}

fn quoted(text: &str) -> Result<String> {
    if text.contains('\0') {
        return Err(Error::user("a text parameter has a zero byte, which no text can hold")
            .code("22021")
            .hint("pass it as bytea"));
    }
    Ok(format!("'{}'", text.replace('\'', "''")))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(3 + 2 * bytes.len());
    text.push_str("X'");
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\'');
    text
}

#[cfg(test)]
mod tests {
    use super::{Filled, Value};
    use arrow::array::Int32Array;
    use std::sync::Arc;
    use thalweg_base::{Error, Place};

    #[test]
    fn numbers_are_no_positions_of_columns() {
        let sql = "SELECT $1, a FROM t GROUP BY $1, a ORDER BY $1 DESC, b LIMIT $1";
        let value = Value::new(Arc::new(Int32Array::from(vec![7]))).unwrap();
        let filled = Filled::of(sql, &[value]).unwrap();
        let text = "SELECT 7, a FROM t GROUP BY ((7)), a ORDER BY ((7)) DESC, b LIMIT 7";
        assert_eq!(filled.text, text);
        let null = Value::null(&arrow::datatypes::DataType::Int64);
        let fetched = Filled::of("SELECT $1 FETCH FIRST $1 ROWS ONLY", &[null]).unwrap();
        assert_eq!(fetched.text, "SELECT arrow_cast(NULL, 'Int64') FETCH FIRST NULL ROWS ONLY");
        let at = |text: &str| text.find(" b ").unwrap() as u32 + 2;
        let error = filled.located(Error::user("no column").at(Place::At(at(text))));
        assert_eq!(error.position(), Some(at(sql)));
    }
}
