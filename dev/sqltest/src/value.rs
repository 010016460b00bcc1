//! How values are printed: as the peers' sqllogictest runners do, but floats exactly.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Schema};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use sqllogictest::ColumnType;
use thalweg_base::{Error, Result};

pub fn columns(schema: &Schema) -> Vec<Column> {
    schema.fields().iter().map(|f| column(f.data_type())).collect()
}

fn column(data_type: &DataType) -> Column {
    match data_type {
        DataType::Boolean => Column::Boolean,
        DataType::Date32 | DataType::Date64 | DataType::Time32(_) | DataType::Time64(_) => {
            Column::Date
        }
        DataType::Timestamp(..) => Column::Timestamp,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Column::Text,
        t if t.is_integer() => Column::Integer,
        t if t.is_floating() || t.is_decimal() => Column::Real,
        DataType::Dictionary(_, values) => column(values),
        _ => Column::Other,
    }
}

pub fn rows(schema: &Schema, batches: &[RecordBatch]) -> Result<Vec<Vec<String>>> {
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    let is_plan = names == ["plan_type", "plan"];
    let mut rows = vec![];
    for batch in batches {
        let columns: Vec<Vec<String>> =
            batch.columns().iter().map(values).collect::<Result<_>>()?;
        for row in 0..batch.num_rows() {
            let values: Vec<String> = columns.iter().map(|c| c[row].clone()).collect();
            if is_plan { rows.extend(plan_lines(&values)) } else { rows.push(values) }
        }
    }
    Ok(rows)
}

/// A plan as one row per line, numbered so that indentation is not the first thing on a line.
fn plan_lines(values: &[String]) -> Vec<Vec<String>> {
    let mut lines = vec![vec![values[0].clone()]];
    let plan = values[1].trim_end_matches("\\n");
    lines.extend(
        plan.split("\\n").enumerate().map(|(i, line)| vec![format!("{:02}){line}", i + 1)]),
    );
    lines
}

fn values(array: &arrow::array::ArrayRef) -> Result<Vec<String>> {
    let options = FormatOptions::default().with_null("NULL");
    let formatter = ArrayFormatter::try_new(array.as_ref(), &options)
        .map_err(|e| Error::internal(format!("cannot print a {}: {e}", array.data_type())))?;
    let value = |row: usize| {
        if array.is_null(row) {
            return Ok("NULL".to_string());
        }
        Ok(match array.data_type() {
            DataType::Float64 => float(array.as_primitive::<Float64Type>().value(row)),
            DataType::Float32 => {
                let value = array.as_primitive::<Float32Type>().value(row);
                float_text(f64::from(value), value.to_string(), format!("{value:e}"))
            }
            _ => {
                let text = formatter.value(row).try_to_string().map_err(|e| {
                    Error::internal(format!("cannot print a {}: {e}", array.data_type()))
                })?;
                text_value(&text)
            }
        })
    };
    (0..array.len()).map(value).collect()
}

fn float(value: f64) -> String {
    float_text(value, value.to_string(), format!("{value:e}"))
}

/// The shortest digits that read back as the same number; an exponent where they are many.
fn float_text(value: f64, plain: String, exponent: String) -> String {
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 { "Infinity".into() } else { "-Infinity".into() }
    } else if value != 0.0 && !(1e-5..1e16).contains(&value.abs()) {
        exponent
    } else {
        plain
    }
}

/// On one line, and never nothing.
fn text_value(text: &str) -> String {
    if text.is_empty() {
        return "(empty)".into();
    }
    text.replace('\r', "\\r").replace('\n', "\\n").replace('\0', "\\0")
}

/// The letters after `query`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Boolean,
    /// Dates and times of day.
    Date,
    Integer,
    Timestamp,
    /// Floating point and decimal.
    Real,
    Text,
    /// Everything else: lists, structs, intervals, binary.
    Other,
}

impl ColumnType for Column {
    fn from_char(letter: char) -> Option<Self> {
        Some(match letter {
            'B' => Column::Boolean,
            'D' => Column::Date,
            'I' => Column::Integer,
            'P' => Column::Timestamp,
            'R' => Column::Real,
            'T' => Column::Text,
            '?' => Column::Other,
            _ => return None,
        })
    }

    fn to_char(&self) -> char {
        match self {
            Column::Boolean => 'B',
            Column::Date => 'D',
            Column::Integer => 'I',
            Column::Timestamp => 'P',
            Column::Real => 'R',
            Column::Text => 'T',
            Column::Other => '?',
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_short_and_exact() {
        let check = |value: f64, expected: &str| assert_eq!(float(value), expected);
        check(0.1, "0.1");
        check(0.1 + 0.2, "0.30000000000000004");
        check(3.0, "3");
        check(-0.0, "-0");
        check(1e300, "1e300");
        check(1.5e-7, "1.5e-7");
        check(123456789012.5, "123456789012.5");
        check(f64::NAN, "NaN");
        check(f64::NEG_INFINITY, "-Infinity");
    }

    #[test]
    fn texts_stay_on_their_line() {
        assert_eq!(text_value(""), "(empty)");
        assert_eq!(text_value("a\nb\0"), "a\\nb\\0");
    }
}
