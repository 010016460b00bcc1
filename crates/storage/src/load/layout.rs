//! Which input column fills which column of the table, and how errors speak of columns.

use std::path::Path;

use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};
use thalweg_base::{Error, Result, text};

use super::block::Block;
use super::input::shown;
use super::parse::Bad;

/// The table's columns in the order of one input.
pub(super) struct Layout {
    pub schema: SchemaRef,
    /// For each input column the table column it fills.
    pub targets: Vec<usize>,
    /// Set if the schema was inferred: rows that were looked at.
    pub inferred_rows: Option<u64>,
}

impl Layout {
    /// Matches by name, first exactly, then without regard to case.
    pub(super) fn by_name(
        path: &Path,
        names: &[String],
        schema: &SchemaRef,
        inferred_rows: Option<u64>,
    ) -> Result<Layout> {
        let mut targets = Vec::with_capacity(names.len());
        let mut extra = Vec::new();
        for name in names {
            match find(schema, name) {
                Some(target) if targets.contains(&target) => {
                    return Err(Error::user(format!(
                        "{} has two columns for column {} of the table",
                        shown(path),
                        text::quoted(schema.field(target).name())
                    ))
                    .hint("rename one of them in the file"));
                }
                Some(target) => targets.push(target),
                None => extra.push(text::quoted(name)),
            }
        }
        if !extra.is_empty() {
            return Err(unknown_columns(path, &extra, schema));
        }
        let layout = Layout { schema: schema.clone(), targets, inferred_rows };
        for missing in layout.missing() {
            let field = schema.field(missing);
            if !field.is_nullable() {
                return Err(Error::user(format!(
                    "{} has no column {}, which is NOT NULL in the table",
                    shown(path),
                    text::quoted(field.name())
                ))
                .hint(format!("the columns of the file are {}", list(names))));
            }
        }
        Ok(layout)
    }

    pub(super) fn by_position(
        path: &Path,
        count: usize,
        schema: &SchemaRef,
        inferred_rows: Option<u64>,
    ) -> Result<Layout> {
        if count != schema.fields().len() {
            return Err(Error::user(format!(
                "{} has {count} columns without names, the table has {}",
                shown(path),
                schema.fields().len()
            ))
            .hint("check the delimiter (`--delimiter`); with a header line, a file may leave out columns"));
        }
        Ok(Layout { schema: schema.clone(), targets: (0..count).collect(), inferred_rows })
    }

    /// Table columns that the input lacks; they become NULL.
    pub(super) fn missing(&self) -> impl Iterator<Item = usize> {
        (0..self.schema.fields().len()).filter(|column| !self.targets.contains(column))
    }

    /// The error for one value of a text file, `at` being its place in the block.
    pub(super) fn bad_value(
        &self,
        block: &Block,
        at: usize,
        target: usize,
        value: &[u8],
        bad: Bad,
    ) -> Error {
        let field = self.schema.field(target);
        let place = format!(
            "{}, line {}, column {}",
            shown(&block.path),
            block.line_of(at),
            text::quoted(field.name())
        );
        let value = shortened(value);
        let kind = sql_type(field.data_type());
        let error = match bad {
            Bad::Null => {
                return Error::user(format!("{place}: NULL in a NOT NULL column"))
                    .hint("fill in the value, or declare the column without NOT NULL");
            }
            Bad::Utf8 => {
                return Error::user(format!("{place}: {value} is not UTF-8")).hint(
                    "convert the file first, for example `iconv -f LATIN1 -t UTF-8 IN > OUT`",
                );
            }
            Bad::Quote => {
                return Error::user(format!("{place}: text follows the closing quote in {value}"))
                    .hint("double the quotes inside a quoted field, or read the file without quotes (`--quote none`)");
            }
            Bad::Syntax => Error::user(format!("{place}: {value} is not a valid {kind}")),
            Bad::Range => Error::user(format!("{place}: {value} is out of range for {kind}")),
            Bad::Fraction => Error::user(format!(
                "{place}: {value} has more fractional digits than {kind} keeps"
            )),
            Bad::Offset => Error::user(format!(
                "{place}: {value} lacks an offset from UTC, which {kind} needs"
            )),
        };
        let error = match self.inferred_rows {
            Some(rows) => error.detail(format!(
                "the type {kind} was inferred from the first {} rows",
                text::count(rows)
            )),
            None => error,
        };
        error.hint(match (self.inferred_rows, bad) {
            (Some(_), Bad::Syntax) => format!(
                "declare the columns with {} as VARCHAR, or if {value} means NULL, say so with `--null {value}`",
                text::quoted(field.name())
            ),
            (Some(_), _) => format!("declare the columns with a wider type for {}", text::quoted(field.name())),
            (None, Bad::Syntax) => {
                format!("declare the column as VARCHAR, or if {value} means NULL, say so with `--null {value}`")
            }
            (None, _) => "declare the column with a wider type".to_owned(),
        })
    }
}

/// Columns of the input that the table does not have.
pub(super) fn unknown_columns(path: &Path, extra: &[String], schema: &SchemaRef) -> Error {
    let (noun, names) =
        if extra.len() == 1 { ("column", "column") } else { ("columns", "columns") };
    let table: Vec<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
    Error::user(format!("{} has {noun} {}, unknown to the table", shown(path), first_few(extra)))
        .detail(format!("the table has {}", list(&table)))
        .hint(format!("add the {names} to the table or take them out of the file; if the first line holds data, say so with `--header false`"))
}

/// The column of `schema` called `name`.
pub(super) fn find(schema: &SchemaRef, name: &str) -> Option<usize> {
    let name = name.trim();
    let fields = schema.fields();
    fields
        .iter()
        .position(|f| f.name() == name)
        .or_else(|| fields.iter().position(|f| f.name().to_lowercase() == name.to_lowercase()))
}

fn list(names: &[String]) -> String {
    first_few(&names.iter().map(|n| text::quoted(n)).collect::<Vec<_>>())
}

fn first_few(names: &[String]) -> String {
    const SHOWN: usize = 12;
    match names.len().checked_sub(SHOWN) {
        Some(more @ 1..) => format!("{} and {more} more", names[..SHOWN].join(", ")),
        _ => names.join(", "),
    }
}

/// A value as an error shows it: quoted, on one line, not longer than a line.
pub(super) fn shortened(value: &[u8]) -> String {
    const CHARS: usize = 40;
    let text = String::from_utf8_lossy(&value[..value.len().min(4 * CHARS + 4)]);
    let mut shown: String = text.chars().take(CHARS).flat_map(char::escape_debug).collect();
    if text.chars().count() > CHARS {
        shown.push('…');
    }
    format!("\"{shown}\"")
}

/// A type as it is written in SQL.
pub(super) fn sql_type(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Int8 => "TINYINT".into(),
        DataType::Int16 => "SMALLINT".into(),
        DataType::Int32 => "INTEGER".into(),
        DataType::Int64 => "BIGINT".into(),
        DataType::UInt8 => "TINYINT UNSIGNED".into(),
        DataType::UInt16 => "SMALLINT UNSIGNED".into(),
        DataType::UInt32 => "INTEGER UNSIGNED".into(),
        DataType::UInt64 => "BIGINT UNSIGNED".into(),
        DataType::Float32 => "REAL".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Decimal128(p, s) | DataType::Decimal256(p, s) => format!("DECIMAL({p},{s})"),
        DataType::Date32 | DataType::Date64 => "DATE".into(),
        DataType::Time32(_) | DataType::Time64(_) => "TIME".into(),
        DataType::Timestamp(unit, zone) => {
            let digits = match unit {
                TimeUnit::Second => "(0)",
                TimeUnit::Millisecond => "(3)",
                TimeUnit::Microsecond => "",
                TimeUnit::Nanosecond => "(9)",
            };
            format!("TIMESTAMP{digits}{}", if zone.is_some() { " WITH TIME ZONE" } else { "" })
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "VARCHAR".into(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "BYTEA".into(),
        other => other.to_string(),
    }
}

/// Whether a field can hold NULL, for every column of the table at once.
pub(super) fn refuse_null(
    field: &Field,
    null_count: usize,
    place: impl FnOnce() -> String,
) -> Result<()> {
    if null_count > 0 && !field.is_nullable() {
        return Err(Error::user(format!(
            "{}: NULL in NOT NULL column {}",
            place(),
            text::quoted(field.name())
        ))
        .hint("fill in the value, or declare the column without NOT NULL"));
    }
    Ok(())
}
