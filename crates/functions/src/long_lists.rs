//! Bounds for the functions that make long lists: one call is one piece of work, which nobody can stop.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, TimeUnit,
    TimestampNanosecondType,
};
use datafusion::common::Result as DfResult;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};
use thalweg_base::Error;
use thalweg_base::limits::LIST_ITEMS_MADE_MAX;

use super::interval_key::{INTERVAL, key_ns};
use thalweg_errors::into_datafusion;

/// `array_repeat`, `array_resize`, `range` and `generate_series` as DataFusion has them, for lists up to a
/// bound.
pub fn call(function: &ScalarUDF, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
    check(function.name(), &args)?;
    function.invoke_with_args(args)
}

/// An error if the lists of all rows would have too many items.
fn check(function: &str, args: &ScalarFunctionArgs) -> DfResult<()> {
    let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if is_constant { 1 } else { args.number_rows };
    let arrays = args.args.iter().map(|arg| arg.to_array(rows));
    let arrays = arrays.collect::<DfResult<Vec<ArrayRef>>>()?;
    let items: Vec<u128> = match function {
        "array_repeat" => {
            let counts = numbers(&arrays[1])?;
            let of = |row: usize| item_count(&arrays[0], row);
            let each = counts.iter().enumerate();
            each.map(|(row, n)| n.unwrap_or(0).max(0) as u128 * of(row)).collect()
        }
        "array_resize" => {
            numbers(&arrays[1])?.iter().map(|n| n.unwrap_or(0).max(0) as u128).collect()
        }
        _ => series(&arrays)?,
    };
    let most = LIST_ITEMS_MADE_MAX as u128;
    let made = items.iter().fold(0_u128, |all, one| all.saturating_add(*one));
    match made > most {
        true => Err(into_datafusion(too_long(function, made))),
        false => Ok(()),
    }
}

fn too_long(function: &str, made: u128) -> Error {
    Error::user(format!(
        "{function} would make {made} items of one batch of rows, more than the {LIST_ITEMS_MADE_MAX} it may",
    ))
    .code("54000")
    .hint("ask for shorter lists; generate_series in FROM gives any number of rows")
}

fn numbers(array: &ArrayRef) -> DfResult<Vec<Option<i128>>> {
    let numbers = cast(array, &DataType::Int64)?;
    Ok(numbers.as_primitive::<Int64Type>().iter().map(|n| n.map(i128::from)).collect())
}

/// How many items are copied with a value: those of a list, or the value alone.
fn item_count(array: &ArrayRef, row: usize) -> u128 {
    let items = match array.data_type() {
        DataType::List(_) if array.is_valid(row) => array.as_list::<i32>().value(row).len(),
        DataType::LargeList(_) if array.is_valid(row) => array.as_list::<i64>().value(row).len(),
        _ => 1,
    };
    items.max(1) as u128
}

/// An error if a step has parts that go back in time beside others that go ahead: how far it goes depends on
/// the month, and DataFusion's series end nowhere, or before they begin.
pub fn check_step(step: IntervalMonthDayNano) -> DfResult<()> {
    let parts = [i64::from(step.months), i64::from(step.days), step.nanoseconds];
    if parts.iter().all(|part| *part >= 0) || parts.iter().all(|part| *part <= 0) {
        return Ok(());
    }
    let error =
        Error::unsupported("a step that goes back in some of its parts and ahead in others")
            .hint("give its months, its days and its time the same sign");
    Err(into_datafusion(error))
}

/// The series are made in nanoseconds.
fn beyond_nanoseconds() -> Error {
    Error::unsupported("a series of timestamps goes from the year 1678 to 2261")
        .hint("make a series of dates or of numbers, and add it to a timestamp")
}

/// The items of the series of each row.
fn series(arrays: &[ArrayRef]) -> DfResult<Vec<u128>> {
    let points = |array: &ArrayRef| -> DfResult<Vec<Option<i128>>> {
        const DAY_NS: i128 = 86_400_000_000_000;
        Ok(match array.data_type() {
            DataType::Date32 => {
                let days = array.as_primitive::<Date32Type>().iter();
                days.map(|day| day.map(|day| i128::from(day) * DAY_NS)).collect()
            }
            DataType::Timestamp(..) => {
                let times = cast(array, &DataType::Timestamp(TimeUnit::Nanosecond, None))?;
                if times.null_count() > array.null_count() {
                    return Err(into_datafusion(beyond_nanoseconds()));
                }
                let times = times.as_primitive::<TimestampNanosecondType>().iter();
                times.map(|time| time.map(i128::from)).collect()
            }
            DataType::Interval(_) => {
                let spans = cast(array, &INTERVAL)?;
                let spans = spans.as_primitive::<IntervalMonthDayNanoType>();
                spans.iter().flatten().try_for_each(check_step)?;
                spans.iter().map(|span| span.map(key_ns)).collect()
            }
            _ => numbers(array)?,
        })
    };
    let arrays = arrays.iter().map(points).collect::<DfResult<Vec<_>>>()?;
    let rows = arrays.first().map_or(0, Vec::len);
    let items = |row: usize| {
        let value = |at: usize| arrays.get(at).map(|values| values[row]);
        let (first, last, step) = match (value(0), value(1), value(2)) {
            (Some(last), None, _) => (Some(0), last, Some(1)),
            (Some(first), Some(last), None) => (first, last, Some(1)),
            (Some(first), Some(last), Some(step)) => (first, last, step),
            (None, ..) => (None, None, None),
        };
        match (first, last, step) {
            (Some(first), Some(last), Some(step)) if step != 0 => {
                ((last - first) / step + 1).max(0) as u128
            }
            _ => 0,
        }
    };
    Ok((0..rows).map(items).collect())
}
