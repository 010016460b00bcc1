//! Batches of Parquet and Arrow files as batches of the table: columns in its order and of its
//! types, and rows that do not fit put aside.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::kernels::cmp::not_distinct;
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{DataType, Field, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use thalweg_base::{Error, Result, text};

use super::csv::batch_of;
use super::input::shown;
use super::layout::{Columns, Layout, shortened, sql_type, unique_names};
use super::rejects::{Faults, Position, Reject, Unit};

/// How the columns that a file declares meet the table's; types that never fit are found here.
pub(super) fn declared_layout(
    path: &Path,
    declared: &SchemaRef,
    columns: &Arc<Columns>,
) -> Result<Layout> {
    let names = match &columns.names {
        Some(names) if names.len() != declared.fields().len() => {
            return Err(Error::user(format!(
                "{} has {} columns, {} are named",
                shown(path),
                declared.fields().len(),
                names.len()
            ))
            .hint("name every column of the file, or leave the names out"));
        }
        Some(names) => names.clone(),
        None => declared_names(declared, &columns.schema),
    };
    let layout = Layout::by_name(path, &names, columns)?;
    let layout = layout.narrowed();
    for &(input, target) in &layout.targets {
        let (from, to) = (declared.field(input).data_type(), layout.columns.schema.field(target));
        if from != to.data_type() && !can_cast_types(from, to.data_type()) {
            return Err(Error::user(format!(
                "{}, column {}: {} cannot become {}",
                shown(path),
                text::quoted(to.name()),
                sql_type(from),
                sql_type(to.data_type())
            ))
            .hint("load it into a table whose column has the type of the file"));
        }
    }
    Ok(layout)
}

/// What the columns of a file are called: as it says, if these are names of the table's or differ from
/// each other; else repeated ones have a suffix.
fn declared_names(declared: &SchemaRef, table: &SchemaRef) -> Vec<String> {
    let own: Vec<String> = declared.fields().iter().map(|f| f.name().clone()).collect();
    let unique = unique_names(own.iter().cloned());
    let is_of_table = |name: &String| table.index_of(name).is_ok();
    let mut seen = HashSet::new();
    match own.iter().all(|name| seen.insert(name) && is_of_table(name)) {
        true => own,
        false => unique,
    }
}

/// A batch whose columns are those of `layout.targets` and whose first row is at `at`.
pub(super) fn conform(
    batch: &RecordBatch,
    layout: &Layout,
    path: &Arc<PathBuf>,
    at: Position,
    faults: &Faults,
) -> Result<RecordBatch> {
    let schema = &layout.columns.schema;
    let mut arrays: Vec<Option<ArrayRef>> = vec![None; schema.fields().len()];
    let mut bad: Vec<(usize, Reject)> = Vec::new();
    for (array, &(_, target)) in batch.columns().iter().zip(&layout.targets) {
        let field = schema.field(target);
        let (cast, misfits) = fit(array, field.data_type())?;
        let mut reject = |row: usize, value: Option<String>, reason: String, hint: &str| {
            let reject = Reject {
                path: Arc::clone(path),
                line: at.line + row as u64,
                column: Some(field.name().clone()),
                record: value.clone().unwrap_or_default(),
                value,
                reason,
                unit: Unit::Row,
                detail: None,
                hint: hint.into(),
            };
            bad.push((row, reject));
        };
        for row in misfits {
            let value = display(array, row);
            let reason = format!(
                "{} does not fit {}",
                shortened(value.as_bytes()),
                sql_type(field.data_type())
            );
            reject(
                row,
                Some(value),
                reason,
                "declare the column with a type that holds every value of the file",
            );
        }
        if !field.is_nullable() && array.logical_null_count() > 0 {
            let nulls = array.logical_nulls();
            for row in (0..array.len()).filter(|&r| nulls.as_ref().is_some_and(|n| n.is_null(r))) {
                let reason = "NULL in a NOT NULL column".to_owned();
                reject(
                    row,
                    None,
                    reason,
                    "fill in the value, or declare the column without NOT NULL",
                );
            }
        }
        arrays[target] = Some(cast);
    }
    // Stable: of the faults of a row the first column's is named.
    bad.sort_by_key(|(row, _)| *row);
    bad.dedup_by_key(|(row, _)| *row);
    let mut dropped = Vec::with_capacity(bad.len());
    for (row, reject) in bad {
        dropped.push(row);
        faults.reject(Position { file: at.file, line: reject.line }, reject);
    }
    batch_of(layout, arrays, batch.num_rows(), &dropped)
}

fn display(array: &ArrayRef, row: usize) -> String {
    let options = FormatOptions::new();
    ArrayFormatter::try_new(array, &options)
        .and_then(|f| f.value(row).try_to_string())
        .unwrap_or_else(|e| e.to_string())
}

/// `array` as `data_type`, and the rows whose values that type cannot hold unchanged.
fn fit(array: &ArrayRef, data_type: &DataType) -> Result<(ArrayRef, Vec<usize>)> {
    if array.data_type() == data_type {
        return Ok((Arc::clone(array), Vec::new()));
    }
    let cast = |array: &ArrayRef, data_type: &DataType, safe: bool| {
        let options = CastOptions { safe, ..CastOptions::default() };
        cast_with_options(array, data_type, &options)
    };
    let failed = |e| {
        let (from, to) = (sql_type(array.data_type()), sql_type(data_type));
        Error::internal(format!("{from} cannot become {to}: {e}"))
    };
    let lossy = loses(array.data_type(), data_type);
    if !lossy && let Ok(fitting) = cast(array, data_type, false) {
        return Ok((fitting, Vec::new()));
    }
    // `safe` turns what does not fit into NULL.
    let fitting = cast(array, data_type, true).map_err(failed)?;
    let back =
        if lossy { Some(cast(&fitting, array.data_type(), true).map_err(failed)?) } else { None };
    let same = match &back {
        Some(back) => Some(not_distinct(back, array).map_err(failed)?),
        None => None,
    };
    let changed = |row: usize| match &same {
        Some(same) => !same.value(row),
        None => fitting.is_null(row),
    };
    let misfits = (0..array.len()).filter(|&row| array.is_valid(row) && changed(row)).collect();
    Ok((fitting, misfits))
}

/// Whether a cast drops digits without a word.
fn loses(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    match (from, to) {
        (T::Timestamp(from, _), T::Timestamp(to, _)) => from > to,
        (T::Time64(from), T::Time64(to) | T::Time32(to))
        | (T::Time32(from), T::Time64(to) | T::Time32(to)) => from > to,
        (T::Timestamp(..) | T::Date64, T::Date32) => true,
        (T::Decimal128(_, from) | T::Decimal256(_, from), T::Decimal128(_, to)) => from > to,
        (T::Decimal128(_, scale) | T::Decimal256(_, scale), to) => *scale > 0 && to.is_integer(),
        (from, to) => from.is_floating() && to.is_integer(),
    }
}

/// The type that holds every value of both, as far as it is one that tables have.
pub fn wider(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType as T;
    if a == b {
        return Some(a.clone());
    }
    Some(match (a, b) {
        (T::Null, other) | (other, T::Null) => other.clone(),
        (a, b)
            if a.is_signed_integer() && b.is_signed_integer()
                || a.is_unsigned_integer() && b.is_unsigned_integer() =>
        {
            if a.primitive_width() >= b.primitive_width() { a.clone() } else { b.clone() }
        }
        (a, b) if a.is_integer() && b.is_integer() => {
            let unsigned = if a.is_unsigned_integer() { a } else { b };
            let signed = if a.is_unsigned_integer() { b } else { a };
            let holding = match unsigned {
                T::UInt8 => T::Int16,
                T::UInt16 => T::Int32,
                T::UInt32 => T::Int64,
                _ => return Some(T::Decimal128(20, 0)),
            };
            if signed.primitive_width() >= holding.primitive_width() {
                signed.clone()
            } else {
                holding
            }
        }
        (T::Float32, T::Float64) | (T::Float64, T::Float32) => T::Float64,
        // As in text: a column of whole numbers and fractions is one of fractions.
        (a, T::Float32 | T::Float64) | (T::Float32 | T::Float64, a) if a.is_integer() => T::Float64,
        (T::Decimal128(p, s), T::Decimal128(q, t)) => decimal(*p, *s, *q, *t)?,
        (T::Decimal128(p, s), whole) | (whole, T::Decimal128(p, s)) if whole.is_integer() => {
            let digits = match whole.primitive_width()? {
                1 => 3,
                2 => 5,
                4 => 10,
                _ => 20,
            };
            decimal(*p, *s, digits, 0)?
        }
        (T::Date32, stamp @ T::Timestamp(_, None)) | (stamp @ T::Timestamp(_, None), T::Date32) => {
            stamp.clone()
        }
        (T::Timestamp(a, zone), T::Timestamp(b, other)) if zone == other => {
            T::Timestamp(*a.max(b), zone.clone())
        }
        (T::Time32(_), time @ T::Time64(_)) | (time @ T::Time64(_), T::Time32(_)) => time.clone(),
        (T::Time32(a), T::Time32(b)) => T::Time32(*a.max(b)),
        (T::Time64(a), T::Time64(b)) => T::Time64(*a.max(b)),
        (T::List(a), T::List(b)) => {
            let item = wider(a.data_type(), b.data_type())?;
            T::List(Field::new(a.name(), item, a.is_nullable() || b.is_nullable()).into())
        }
        _ => return None,
    })
}

fn decimal(p: u8, s: i8, q: u8, t: i8) -> Option<DataType> {
    let scale = s.max(t);
    let whole = (i16::from(p) - i16::from(s)).max(i16::from(q) - i16::from(t));
    let precision = u8::try_from(whole + i16::from(scale)).ok().filter(|p| *p <= 38)?;
    Some(DataType::Decimal128(precision, scale))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::TimeUnit as U;

    use super::*;

    #[test]
    fn the_wider_type_holds_both() {
        use DataType as T;
        let check = |a: T, b: T, expected: Option<T>| {
            assert_eq!(wider(&a, &b), expected, "{a} and {b}");
            assert_eq!(wider(&b, &a), expected, "{b} and {a}");
        };
        check(T::Int8, T::Int32, Some(T::Int32));
        check(T::UInt8, T::Int8, Some(T::Int16));
        check(T::UInt8, T::Int64, Some(T::Int64));
        check(T::UInt64, T::Int8, Some(T::Decimal128(20, 0)));
        check(T::Int64, T::Float32, Some(T::Float64));
        check(T::Null, T::Utf8View, Some(T::Utf8View));
        check(T::Decimal128(5, 2), T::Decimal128(6, 0), Some(T::Decimal128(8, 2)));
        check(T::Decimal128(38, 0), T::Decimal128(38, 2), None);
        check(T::Decimal128(5, 2), T::Int32, Some(T::Decimal128(12, 2)));
        let local = |unit| T::Timestamp(unit, None);
        check(local(U::Second), local(U::Nanosecond), Some(local(U::Nanosecond)));
        check(local(U::Second), T::Timestamp(U::Second, Some("UTC".into())), None);
        check(T::Date32, local(U::Microsecond), Some(local(U::Microsecond)));
        check(T::Int64, T::Utf8View, None);
        check(T::Boolean, T::Int8, None);
    }
}
