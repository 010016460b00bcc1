//! Batches of Parquet and Arrow files as batches of the table: columns in its order and of its
//! types, and rows that do not fit put aside.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, RecordBatch, StructArray};
use arrow::compute::kernels::cmp::not_distinct;
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type, IntervalUnit, SchemaRef};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use thalweg_base::{Error, Result, text};

use super::columns::{Column, Sink, each};
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
        if !can_become(from, to.data_type()) {
            return Err(Error::user(format!(
                "{}, column {}: {} cannot become {}",
                shown(path),
                text::quoted(to.name()),
                sql_type(from),
                sql_type(to.data_type())
            ))
            .hint(match from {
                DataType::Union(..) => {
                    "read it with SQL: union_extract(column, 'member') gives the values of a member"
                }
                DataType::Map(..) => {
                    "read it with SQL: map_entries(column) gives a list of keys and values"
                }
                _ => "load it into a table whose column has the type of the file",
            }));
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

/// `array` as `to`, and the rows whose values that type cannot hold unchanged.
fn fit(array: &ArrayRef, to: &DataType) -> Result<(ArrayRef, Vec<usize>)> {
    use DataType as T;
    let from = array.data_type();
    if from == to {
        return Ok((Arc::clone(array), Vec::new()));
    }
    match (from, to) {
        (T::Dictionary(_, values), _) => fit(&cast(array, values, false)?, to),
        (lists, T::List(field)) if let Some(item) = item(lists) => {
            let lists = cast(array, &T::List(item), false)?;
            let lists = lists.as_list::<i32>();
            let (items, misfits) = fit(lists.values(), field.data_type())?;
            // Items that are in no list are nobody's.
            let mut misfits = misfits.into_iter().peekable();
            let ends = lists.offsets().windows(2).enumerate();
            let rows = ends.filter(|(row, ends)| {
                while misfits.next_if(|at| (*at as i64) < i64::from(ends[0])).is_some() {}
                let found = misfits.peek().is_some_and(|at| (*at as i64) < i64::from(ends[1]));
                found && lists.is_valid(*row)
            });
            let rows = rows.map(|(row, _)| row).collect();
            let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
            let fitting = ListArray::try_new(Arc::clone(field), offsets, items, nulls);
            Ok((Arc::new(fitting.map_err(|e| failed(from, to, &e))?), rows))
        }
        (T::Struct(_), T::Struct(fields)) => {
            let structs = array.as_struct();
            let (mut columns, mut rows) = (vec![], BTreeSet::new());
            for (column, field) in structs.columns().iter().zip(fields) {
                let (fitting, misfits) = fit(column, field.data_type())?;
                rows.extend(misfits.into_iter().filter(|row| structs.is_valid(*row)));
                columns.push(fitting);
            }
            let fitting = StructArray::try_new(fields.clone(), columns, structs.nulls().cloned());
            let fitting = fitting.map_err(|e| failed(from, to, &e))?;
            Ok((Arc::new(fitting), rows.into_iter().collect()))
        }
        _ if is_text(from) && !is_text(to) && !to.is_binary() => read(array, to),
        _ => match holds(from, to) {
            Holds::InRange => {
                if let Ok(fitting) = cast(array, to, false) {
                    return Ok((fitting, Vec::new()));
                }
                // `safe` turns what does not fit into NULL.
                let fitting = cast(array, to, true)?;
                let misfits = (0..array.len()).filter(|&r| array.is_valid(r) && fitting.is_null(r));
                let misfits = misfits.collect();
                Ok((fitting, misfits))
            }
            Holds::Near => {
                // A number may be rounded to the nearest, but not to infinity.
                let fitting = cast(array, to, true)?;
                let is_finite = |array: &ArrayRef, row| match array.data_type() {
                    T::Float32 => array.as_primitive::<Float32Type>().value(row).is_finite(),
                    T::Float64 => array.as_primitive::<Float64Type>().value(row).is_finite(),
                    _ => true,
                };
                let misfits = (0..array.len()).filter(|&row| {
                    array.is_valid(row)
                        && (fitting.is_null(row)
                            || is_finite(array, row) && !is_finite(&fitting, row))
                });
                let misfits = misfits.collect();
                Ok((fitting, misfits))
            }
            Holds::Some => {
                // What is rounded or cut differs on its way back.
                let fitting = cast(array, to, true)?;
                let back = cast(&fitting, from, true)?;
                let same = not_distinct(&back, array).map_err(|e| failed(from, to, &e))?;
                let misfits = (0..array.len()).filter(|&row| {
                    array.is_valid(row) && (fitting.is_null(row) || !same.value(row))
                });
                let misfits = misfits.collect();
                Ok((fitting, misfits))
            }
            Holds::None => {
                Err(Error::internal(format!("{} was to become {}", sql_type(from), sql_type(to))))
            }
        },
    }
}

fn cast(array: &ArrayRef, to: &DataType, safe: bool) -> Result<ArrayRef> {
    let options = CastOptions { safe, ..CastOptions::default() };
    cast_with_options(array, to, &options).map_err(|e| failed(array.data_type(), to, &e))
}

fn failed(from: &DataType, to: &DataType, e: &ArrowError) -> Error {
    Error::internal(format!("{} cannot become {}: {e}", sql_type(from), sql_type(to)))
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Texts as the reader of delimited files reads them.
fn read(texts: &ArrayRef, to: &DataType) -> Result<(ArrayRef, Vec<usize>)> {
    let texts = cast(texts, &DataType::Utf8View, false)?;
    let mut column = Column::new("", to, texts.len())?;
    let mut misfits = vec![];
    each!(&mut column, sink => for (row, text) in texts.as_string_view().iter().enumerate() {
        match text {
            Some(text) if sink.value(text.trim().as_bytes()).is_ok() => {}
            _ => {
                sink.null();
                misfits.extend(text.map(|_| row));
            }
        }
    });
    Ok((column.finish(to)?, misfits))
}

/// Which values of a type another type holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    /// Those in its range, exactly.
    InRange,
    /// Those in its range, some of them rounded to the nearest that it has.
    Near,
    /// Some: which ones is seen by casting them back.
    Some,
    /// None: their values mean something else.
    None,
}

/// For types without others in them.
fn holds(from: &DataType, to: &DataType) -> Holds {
    use DataType as T;
    if !can_cast_types(from, to) {
        return Holds::None;
    }
    let is_bytes = |t: &T| t.is_binary() || matches!(t, T::FixedSizeBinary(_));
    match (from, to) {
        (T::Null, _) => Holds::InRange,
        (T::Union(..), _) | (_, T::Union(..)) => Holds::None,
        _ if from.is_nested() || to.is_nested() => Holds::None,
        // What is written out is all there.
        (_, to) if is_text(to) => Holds::InRange,
        (from, to) if is_bytes(to) && (is_bytes(from) || is_text(from)) => Holds::InRange,
        (T::Float64, T::Float32) => Holds::Near,
        (from, to) if from.is_floating() && to.is_floating() => Holds::InRange,
        (from, to) if from.is_numeric() && to.is_floating() => Holds::Near,
        (from, T::Decimal128(_, 0..)) if from.is_integer() => Holds::InRange,
        (T::Decimal128(_, from), T::Decimal128(_, to)) if from <= to => Holds::InRange,
        (from, to) if from.is_integer() && to.is_integer() => Holds::InRange,
        (from, to) if from.is_numeric() && to.is_numeric() => Holds::Some,
        (T::Boolean, to) if to.is_integer() => Holds::InRange,
        (from, T::Boolean) if from.is_integer() => Holds::Some,
        (T::Timestamp(from, _), T::Timestamp(to, _)) if from <= to => Holds::InRange,
        (T::Date32, T::Timestamp(..) | T::Date64) => Holds::InRange,
        (T::Timestamp(..) | T::Date64, T::Timestamp(..) | T::Date32 | T::Date64)
        | (T::Time32(_) | T::Time64(_), T::Time32(_) | T::Time64(_))
        | (T::Duration(_), T::Duration(_)) => Holds::Some,
        (T::Duration(_) | T::Interval(_), T::Interval(IntervalUnit::MonthDayNano)) => {
            Holds::InRange
        }
        _ => Holds::None,
    }
}

/// The items of lists of any kind.
fn item(lists: &DataType) -> Option<Arc<Field>> {
    use DataType as T;
    match lists {
        T::List(item)
        | T::LargeList(item)
        | T::FixedSizeList(item, _)
        | T::ListView(item)
        | T::LargeListView(item) => Some(Arc::clone(item)),
        _ => None,
    }
}

/// Whether some values of a type, perhaps of types within it, can become values of another.
fn can_become(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    match (from, to) {
        (from, to) if from == to => true,
        (T::Dictionary(_, values), _) => can_become(values, to),
        (lists, T::List(field)) if let Some(item) = item(lists) => {
            can_become(item.data_type(), field.data_type())
        }
        (T::Struct(ours), T::Struct(theirs)) => {
            let fits = |(a, b): (&Arc<Field>, &Arc<Field>)| {
                a.name() == b.name() && can_become(a.data_type(), b.data_type())
            };
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(fits)
        }
        (from, to) if is_text(from) && !is_text(to) && !to.is_binary() => {
            Column::new("", to, 0).is_ok()
        }
        (from, to) => holds(from, to) != Holds::None,
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
    use arrow::array::{
        DictionaryArray, Float64Array, Int32Array, Int64Array, StringArray,
        TimestampNanosecondArray,
    };
    use arrow::datatypes::{Int32Type, TimeUnit as U};

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

    #[test]
    fn what_a_type_does_not_hold_unchanged_is_put_aside() {
        use DataType as T;
        let floats = || Arc::new(Float64Array::from(vec![Some(1.5), None, Some(2.0), Some(1e300)]));
        let misfits = |array: ArrayRef, to: T| {
            assert!(can_become(array.data_type(), &to), "{} {to}", array.data_type());
            let (fitting, misfits) = fit(&array, &to).unwrap();
            assert_eq!(fitting.data_type(), &to);
            misfits
        };
        assert_eq!(misfits(floats(), T::Int32), [0, 3]);
        assert_eq!(misfits(floats(), T::Float32), [3]);
        assert_eq!(misfits(floats(), T::Decimal128(5, 0)), [0, 3]);
        let cents = || Arc::new(Float64Array::from(vec![2.555, 2.5, 0.1]));
        assert_eq!(misfits(cents(), T::Decimal128(5, 2)), [0]);
        assert_eq!(misfits(cents(), T::Float32), [] as [usize; 0]);
        let texts: ArrayRef = Arc::new(StringArray::from(vec![
            Some("2.555"),
            Some("2.50"),
            None,
            Some("x"),
            Some("2024-01-01 10:00:00"),
            Some("2024-01-01"),
        ]));
        assert_eq!(misfits(Arc::clone(&texts), T::Decimal128(5, 2)), [0, 3, 4, 5]);
        assert_eq!(misfits(texts, T::Date32), [0, 1, 3, 4]);
        let whole: ArrayRef = Arc::new(Int64Array::from(vec![0, 1, 2, 1 << 40]));
        assert_eq!(misfits(Arc::clone(&whole), T::Boolean), [2, 3]);
        assert_eq!(misfits(Arc::clone(&whole), T::Int32), [3]);
        let item = |t: &T| T::List(Field::new_list_field(t.clone(), true).into());
        for to in [T::Date32, T::Timestamp(U::Microsecond, None), item(&T::Int64)] {
            assert!(!can_become(whole.data_type(), &to), "{to}");
        }

        // Within dictionaries, lists and structs.
        let coded = DictionaryArray::<Int32Type>::new(Int32Array::from(vec![0, 2, 0]), floats());
        assert_eq!(misfits(Arc::new(coded), T::Int32), [0, 2]);
        let lists = ListArray::try_new(
            Field::new_list_field(T::Float64, true).into(),
            arrow::buffer::OffsetBuffer::from_lengths([1, 0, 2, 1]),
            floats(),
            None,
        );
        assert_eq!(misfits(Arc::new(lists.unwrap()), item(&T::Int32)), [0, 3]);
        let stamps: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![1_000, 1_001]));
        let of = |t: T| -> arrow::datatypes::Fields { vec![Field::new("a", t, true)].into() };
        let structs = StructArray::new(of(stamps.data_type().clone()), vec![stamps], None);
        let micros = T::Struct(of(T::Timestamp(U::Microsecond, None)));
        assert_eq!(misfits(Arc::new(structs), micros), [1]);
    }
}
