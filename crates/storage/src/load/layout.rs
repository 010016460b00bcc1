//! Which input column fills which column of the table, and how messages speak of columns.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, new_null_array};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use thalweg_base::{Error, Result, text};

use super::block::Block;
use super::dates::ordered;
use super::input::shown;
use super::parse::Bad;
use super::rejects::{Reject, Unit};

/// What a load's files are read into: the table's columns, and what becomes of those that only
/// one side has.
#[derive(Clone, Debug)]
pub struct Columns {
    pub schema: SchemaRef,
    /// Per column an array of length 1: the value of rows from a file without the column.
    pub defaults: Vec<Option<ArrayRef>>,
    /// Whether columns that the table lacks are left out instead of refused.
    pub ignore_unknown: bool,
    /// Columns of the files that are left out without a word.
    pub hidden: Vec<String>,
    /// What the columns of the files are called, in their order; instead of their own names.
    pub names: Option<Vec<String>>,
    /// Which of the columns batches have, in their order; `None`: all. Only for delimited files.
    pub wanted: Option<Vec<usize>>,
}

impl Columns {
    /// Files without a column have NULL there; unknown columns are refused.
    pub fn new(schema: SchemaRef) -> Columns {
        let defaults = vec![None; schema.fields().len()];
        Columns {
            schema,
            defaults,
            ignore_unknown: false,
            hidden: Vec::new(),
            names: None,
            wanted: None,
        }
    }

    pub(super) fn hides(&self, name: &str) -> bool {
        let lower = |name: &str| name.trim().to_lowercase();
        self.hidden.iter().any(|hidden| lower(hidden) == lower(name))
    }
}

/// The table's columns in the order of one input.
pub(super) struct Layout {
    pub columns: Arc<Columns>,
    /// Columns of the input.
    pub inputs: usize,
    /// Input columns and the table columns they fill, ascending in the input.
    pub targets: Vec<(usize, usize)>,
    /// Names of input columns that are left out.
    pub ignored: Vec<String>,
}

impl Layout {
    /// Matches by name, first exactly, then without regard to case.
    pub(super) fn by_name(path: &Path, names: &[String], columns: &Arc<Columns>) -> Result<Layout> {
        let schema = &columns.schema;
        let finder = Finder::new(schema);
        let mut filled = vec![false; schema.fields().len()];
        let mut targets: Vec<(usize, usize)> = Vec::with_capacity(names.len());
        let mut unknown = Vec::new();
        for (input, name) in names.iter().enumerate() {
            if columns.hides(name) {
                continue;
            }
            match finder.find(name) {
                Some(target) if std::mem::replace(&mut filled[target], true) => {
                    return Err(Error::user(format!(
                        "{} has two columns for column {} of the table",
                        shown(path),
                        text::quoted(schema.field(target).name())
                    ))
                    .hint("rename one of them in the file"));
                }
                Some(target) => targets.push((input, target)),
                None => unknown.push(name.clone()),
            }
        }
        if !columns.ignore_unknown && !unknown.is_empty() {
            return Err(unknown_columns(path, &unknown, schema));
        }
        if targets.is_empty() {
            return Err(Error::user(format!("{} has none of the table's columns", shown(path)))
                .detail(format!("the columns of the file are {}", list(names)))
                .hint("if its first line holds data, say so with `--no-header`"));
        }
        let layout =
            Layout { columns: Arc::clone(columns), inputs: names.len(), targets, ignored: unknown };
        for missing in layout.missing() {
            let field = schema.field(missing);
            if !field.is_nullable() && columns.defaults[missing].is_none() {
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

    pub(super) fn by_position(path: &Path, count: usize, columns: &Arc<Columns>) -> Result<Layout> {
        let fields = columns.schema.fields().len();
        if count != fields {
            return Err(Error::user(format!(
                "{} has {count} columns without names, the table has {fields}",
                shown(path),
            ))
            .hint("check the delimiter (`--delimiter`); with a header line, a file may leave out columns"));
        }
        Ok(Layout::whole(columns))
    }

    /// Every column of the table, in its order.
    pub(super) fn whole(columns: &Arc<Columns>) -> Layout {
        let inputs = columns.schema.fields().len();
        let targets = (0..inputs).map(|column| (column, column)).collect();
        let columns = Arc::clone(columns);
        Layout { columns, inputs, targets, ignored: Vec::new() }
    }

    /// The same for those columns alone that are wanted.
    pub(super) fn narrowed(mut self) -> Layout {
        let Some(wanted) = self.columns.wanted.clone() else { return self };
        let all = &self.columns;
        let mut places = vec![None; all.schema.fields().len()];
        for (place, &column) in wanted.iter().enumerate() {
            places[column] = Some(place);
        }
        let target = |&(input, column): &(usize, usize)| Some((input, places[column]?));
        self.targets = self.targets.iter().filter_map(target).collect();
        let fields = wanted.iter().map(|&column| Arc::clone(&all.schema.fields()[column]));
        self.columns = Arc::new(Columns {
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            defaults: wanted.iter().map(|&column| all.defaults[column].clone()).collect(),
            ignore_unknown: all.ignore_unknown,
            hidden: all.hidden.clone(),
            names: None,
            wanted: None,
        });
        self
    }

    /// Table columns that the input lacks.
    pub(super) fn missing(&self) -> impl Iterator<Item = usize> {
        let mut filled = vec![false; self.columns.schema.fields().len()];
        self.targets.iter().for_each(|&(_, target)| filled[target] = true);
        (0..filled.len()).filter(move |&column| !filled[column])
    }

    /// What rows of an input without column `target` have there.
    pub(super) fn absent(&self, target: usize, rows: usize) -> Result<ArrayRef> {
        match &self.columns.defaults[target] {
            Some(value) => repeat(value, rows),
            None => Ok(new_null_array(self.columns.schema.field(target).data_type(), rows)),
        }
    }

    /// Why `value` is none for column `target`.
    pub(super) fn fault(&self, target: usize, value: &[u8], bad: Bad) -> Fault {
        let field = self.columns.schema.field(target);
        fault(field, String::new(), field.data_type(), value, bad)
    }
}

/// Why `value` is none for what `path` leads to from a column, which has `data_type`.
pub(super) fn fault(
    field: &Field,
    path: String,
    data_type: &DataType,
    value: &[u8],
    bad: Bad,
) -> Fault {
    let column = text::quoted(field.name());
    let shown = shortened(value);
    let kind = sql_type(data_type);
    let (reason, hint) = match bad {
            Bad::Null => (
                "NULL in a NOT NULL column".into(),
                "fill in the value, or declare the column without NOT NULL".into(),
            ),
            Bad::Utf8 => (
                format!("{shown} is not UTF-8"),
                "convert the file first, for example `iconv -f LATIN1 -t UTF-8 IN > OUT`".into(),
            ),
            Bad::Quote => (
                format!("text follows the closing quote in {shown}"),
                "double the quotes inside a quoted field, or read the file without quotes (`--quote none`)".into(),
            ),
            Bad::Syntax if data_type.is_temporal() && ordered(value.trim_ascii()).is_some() => (
                format!("{shown} is not a valid {kind}"),
                "say in which order it is written: dateformat '%d/%m/%Y' is for 31/01/2024, timestampformat is for timestamps".into(),
            ),
            Bad::Syntax => (
                format!("{shown} is not a valid {kind}"),
                format!("declare column {column} as VARCHAR (of a new table: `--type {}=varchar`), or if {shown} means NULL, say so with `--null {shown}`", field.name()),
            ),
            Bad::Range => (
                format!("{shown} is out of range for {kind}"),
                format!("declare column {column} with a wider type"),
            ),
            Bad::Fraction => (
                format!("{shown} has more fractional digits than {kind} keeps"),
                format!("declare column {column} with a wider type"),
            ),
            Bad::Offset => (
                format!("{shown} lacks an offset from UTC, which {kind} needs"),
                "write the offset into the file, or declare the column without a time zone".into(),
            ),
        };
    let value = (bad != Bad::Null).then(|| String::from_utf8_lossy(value).into_owned());
    Fault { column: Some(field.name().clone() + &path), value, reason, detail: None, hint }
}

/// What is wrong with a row, wherever it is.
pub(super) struct Fault {
    pub column: Option<String>,
    pub value: Option<String>,
    pub reason: String,
    pub detail: Option<String>,
    pub hint: String,
}

impl Fault {
    /// In the record at `from..to` of a block, which begins in line `line`.
    pub(super) fn in_block(self, block: &Block, line: u64, from: usize, to: usize) -> Reject {
        let record = block.data[from..to].trim_ascii_end();
        Reject {
            path: Arc::clone(&block.path),
            line,
            column: self.column,
            value: self.value,
            reason: self.reason,
            record: String::from_utf8_lossy(record).into_owned(),
            unit: if block.pieces.is_some() { Unit::Row } else { Unit::Line },
            detail: self.detail,
            hint: self.hint,
        }
    }
}

/// The one value of `value`, `rows` times.
pub(super) fn repeat(value: &ArrayRef, rows: usize) -> Result<ArrayRef> {
    let zeros = arrow::array::UInt32Array::from(vec![0; rows]);
    arrow::compute::take(value, &zeros, None)
        .map_err(|e| Error::internal(format!("cannot repeat a default value: {e}")))
}

/// How the columns of the files met the table's: by name, in which files (their places among
/// those given).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    /// Columns of the table that a file lacks. Of JSON nothing is said here: its records differ.
    pub missing: BTreeMap<String, BTreeSet<usize>>,
    /// Columns of a file that the table lacks.
    pub ignored: BTreeMap<String, BTreeSet<usize>>,
}

impl Matched {
    pub(super) fn add(&mut self, file: usize, layout: &Layout) {
        for column in layout.missing() {
            let name = layout.columns.schema.field(column).name().clone();
            self.missing.entry(name).or_default().insert(file);
        }
        for name in &layout.ignored {
            self.ignored.entry(name.clone()).or_default().insert(file);
        }
    }
}

/// Columns of the input that the table does not have.
pub(super) fn unknown_columns(path: &Path, unknown: &[String], schema: &SchemaRef) -> Error {
    Error::user(format!("{} has {}", shown(path), unknown_to_the_table(unknown)))
        .detail(what_the_table_has(schema))
        .hint(UNKNOWN_HINT)
}

pub(super) const UNKNOWN_HINT: &str = "`--new-columns add` adds them to the table, `--new-columns ignore` leaves them out; if the first line of a CSV file holds data, say so with `--no-header`";

pub(super) fn unknown_to_the_table(unknown: &[String]) -> String {
    let noun = if unknown.len() == 1 { "column" } else { "columns" };
    format!("{noun} {}, unknown to the table", list(unknown))
}

pub(super) fn what_the_table_has(schema: &SchemaRef) -> String {
    let table: Vec<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
    format!("the table has {}", list(&table))
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

/// Finds many columns of a schema as [`find`] does one.
pub(super) struct Finder {
    exact: HashMap<String, usize>,
    lower: HashMap<String, usize>,
}

impl Finder {
    pub(super) fn new(schema: &SchemaRef) -> Finder {
        Finder::of(schema.fields())
    }

    /// Of the fields of a struct.
    pub(super) fn of(fields: &Fields) -> Finder {
        let mut finder = Finder { exact: HashMap::new(), lower: HashMap::new() };
        for (column, field) in fields.iter().enumerate() {
            finder.exact.entry(field.name().clone()).or_insert(column);
            finder.lower.entry(field.name().to_lowercase()).or_insert(column);
        }
        finder
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        let name = name.trim();
        self.exact.get(name).or_else(|| self.lower.get(&name.to_lowercase())).copied()
    }
}

/// Names of which no two are the same without regard to case: repeated ones get the suffix that DuckDB
/// gives them, `a`, `a_1`, `a_2`, and those that are empty a number.
pub(super) fn unique_names(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut unique = Vec::new();
    // For each name in lower case the number that it had last, so that a thousand equal ones are not
    // compared.
    let mut taken: HashMap<String, usize> = HashMap::new();
    for (at, name) in names.into_iter().enumerate() {
        let name = match name.trim().is_empty() {
            true => format!("column_{}", at + 1),
            false => name,
        };
        let lower = name.to_lowercase();
        let mut suffix = taken.get(&lower).copied().unwrap_or(0);
        let (mut own, mut key) = (name.clone(), lower.clone());
        while taken.contains_key(&key) {
            suffix += 1;
            own = format!("{name}_{suffix}");
            key = own.to_lowercase();
        }
        taken.insert(lower, suffix);
        taken.entry(key).or_insert(0);
        unique.push(own);
    }
    unique
}

fn list(names: &[String]) -> String {
    const SHOWN: usize = 12;
    let quoted: Vec<String> = names.iter().take(SHOWN).map(|n| text::quoted(n)).collect();
    match names.len().checked_sub(SHOWN) {
        Some(more @ 1..) => format!("{} and {more} more", quoted.join(", ")),
        _ => quoted.join(", "),
    }
}

/// A value as a message shows it: quoted, on one line, not longer than a line.
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
        DataType::Interval(_) => "INTERVAL".into(),
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
        // What is within them is not known yet.
        DataType::List(item) if item.data_type().is_null() => "LIST".into(),
        DataType::Struct(fields) if fields.is_empty() => "STRUCT".into(),
        DataType::List(item) => format!("{}[]", sql_type(item.data_type())),
        DataType::Struct(fields) => {
            let field = |f: &Arc<Field>| format!("{} {}", f.name(), sql_type(f.data_type()));
            let fields: Vec<String> = fields.iter().map(field).collect();
            format!("STRUCT({})", fields.join(", "))
        }
        other => other.to_string(),
    }
}
