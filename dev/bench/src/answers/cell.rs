//! A value of an answer, whichever engine it came from.

use std::fmt;

use arrow::array::cast::AsArray;
use arrow::array::{Array, ArrayRef};
use arrow::compute::cast;
use arrow::datatypes::*;
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use thalweg_base::{Error, Result};

use super::FLOAT_TOLERANCE;

#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Null,
    Bool(bool),
    Int(i128),
    /// The value is the first × 10^-second; the scale is at least 1, else it is an `Int`.
    Decimal(i128, u32),
    Float(f64),
    Text(String),
    /// Days since 1970-01-01.
    Date(i64),
    /// Nanoseconds since 1970-01-01; UTC if the column has a time zone.
    Timestamp(i128),
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
}

/// Relative difference allowed between a decimal and a floating-point number. They meet where one
/// engine divides decimals as decimals, cut after a few digits at each step, and the other as
/// doubles; sums and single values are decimals in both and are compared exactly.
const QUOTIENT_TOLERANCE: f64 = 1e-6;

const DAY_NS: i128 = 86_400_000_000_000;

impl Cell {
    /// A decimal in its simplest form.
    pub fn decimal(unscaled: i128, scale: i32) -> Cell {
        match u32::try_from(scale) {
            Ok(0) => Cell::Int(unscaled),
            Ok(scale) => Cell::Decimal(unscaled, scale),
            Err(_) => Cell::Int(unscaled.saturating_mul(pow10(scale.unsigned_abs()))),
        }
    }

    /// Equal, as far as both have digits.
    pub fn agrees(&self, other: &Cell) -> bool {
        use Cell::*;
        match (self, other) {
            (Null, Null) => true,
            (Bool(a), Bool(b)) => a == b,
            (Text(a), Text(b)) => a == b,
            (Date(a), Date(b)) => a == b,
            (Timestamp(a), Timestamp(b)) => a == b,
            // `date_trunc` of a date is a date here and a timestamp there.
            (Date(date), Timestamp(time)) | (Timestamp(time), Date(date)) => {
                i128::from(*date) * DAY_NS == *time
            }
            (Int(a), Int(b)) => a == b,
            (Int(int), Decimal(value, scale)) | (Decimal(value, scale), Int(int)) => {
                int.checked_mul(pow10(*scale)) == Some(*value)
            }
            (Decimal(a, s), Decimal(b, t)) if s == t => a == b,
            (Decimal(a, s), Decimal(b, t)) => {
                let (coarse, fine) =
                    if s < t { ((*a, *s), (*b, *t)) } else { ((*b, *t), (*a, *s)) };
                // One of them has lost digits, by rounding or by truncation: less than one unit
                // in the last place of the coarser.
                let unit = pow10(fine.1 - coarse.1);
                coarse.0.checked_mul(unit).is_some_and(|v| v.abs_diff(fine.0) < unit.unsigned_abs())
            }
            (Float(a), Float(b)) => floats_agree(*a, *b, 1e-12),
            (Float(float), Int(int)) | (Int(int), Float(float)) => {
                floats_agree(*float, *int as f64, 0.0)
            }
            (Float(float), Decimal(value, scale)) | (Decimal(value, scale), Float(float)) => {
                let unit = 10f64.powi(-(*scale as i32));
                let decimal = *value as f64 * unit;
                floats_agree(*float, decimal, unit.max(decimal.abs() * QUOTIENT_TOLERANCE))
            }
            _ => false,
        }
    }

    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Cell::Int(v) => Some(*v as f64),
            Cell::Decimal(v, scale) => Some(*v as f64 / 10f64.powi(*scale as i32)),
            Cell::Float(v) => Some(*v),
            _ => None,
        }
    }

    /// Appends a text that is equal for equal values and ends in a byte that tells its end.
    pub(super) fn write_key(&self, key: &mut String) {
        use fmt::Write;
        // Writing to a string does not fail.
        let _ = match self {
            Cell::Null => write!(key, "-"),
            Cell::Text(text) => write!(key, "{}:{text}", text.len()),
            // Of one scale within the column, but an integer may stand beside them.
            Cell::Decimal(v, scale) if v % pow10(*scale) == 0 => {
                write!(key, "n{}", v / pow10(*scale))
            }
            Cell::Decimal(v, scale) => write!(key, "d{v}e{scale}"),
            Cell::Int(v) => write!(key, "n{v}"),
            Cell::Date(days) => write!(key, "t{}", i128::from(*days) * DAY_NS),
            Cell::Timestamp(ns) => write!(key, "t{ns}"),
            Cell::Bool(v) => write!(key, "{v}"),
            Cell::Float(v) => write!(key, "f{v}"),
        };
        key.push('\u{1f}');
    }
}

/// Saturates, which no decimal of 38 digits reaches.
pub(super) fn pow10(n: u32) -> i128 {
    10i128.saturating_pow(n)
}

fn floats_agree(a: f64, b: f64, absolute: f64) -> bool {
    a == b
        || (a.is_nan() && b.is_nan())
        || (a - b).abs() <= (FLOAT_TOLERANCE * a.abs().max(b.abs())).max(absolute)
            && a.is_finite()
            && b.is_finite()
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Null => f.write_str("NULL"),
            Cell::Bool(v) => write!(f, "{v}"),
            Cell::Int(v) => write!(f, "{v}"),
            Cell::Decimal(v, scale) => {
                let (unit, sign) = (pow10(*scale).unsigned_abs(), if *v < 0 { "-" } else { "" });
                let value = v.unsigned_abs();
                write!(
                    f,
                    "{sign}{}.{:0width$}",
                    value / unit,
                    value % unit,
                    width = *scale as usize
                )
            }
            Cell::Float(v) => write!(f, "{v}"),
            Cell::Text(text) => write!(f, "'{text}'"),
            Cell::Date(days) => write_time(f, i128::from(*days) * DAY_NS, true),
            Cell::Timestamp(ns) => write_time(f, *ns, false),
        }
    }
}

fn write_time(f: &mut fmt::Formatter<'_>, ns: i128, date: bool) -> fmt::Result {
    let seconds = ns.div_euclid(1_000_000_000) as i64;
    match arrow::array::temporal_conversions::timestamp_s_to_datetime(seconds) {
        Some(time) if date => write!(f, "{}", time.date()),
        Some(time) => match ns.rem_euclid(1_000_000_000) {
            0 => write!(f, "{time}"),
            fraction => write!(f, "{time}.{fraction:09}"),
        },
        None => write!(f, "{ns} ns"),
    }
}

impl Rows {
    /// `schema` names the columns where there is no batch.
    pub fn from_batches(schema: &Schema, batches: &[RecordBatch]) -> Result<Rows> {
        let columns = schema.fields().iter().map(|field| field.name().clone()).collect();
        let mut rows = Vec::with_capacity(batches.iter().map(|b| b.num_rows()).sum());
        for batch in batches {
            let cells = batch.columns().iter().map(cells).collect::<Result<Vec<_>>>()?;
            let mut cells: Vec<_> = cells.into_iter().map(Vec::into_iter).collect();
            for _ in 0..batch.num_rows() {
                rows.push(cells.iter_mut().map(|c| c.next().unwrap_or(Cell::Null)).collect());
            }
        }
        Ok(Rows { columns, rows })
    }

    pub(super) fn row_text(&self, row: usize) -> String {
        let cells: Vec<String> = self.rows[row].iter().map(Cell::to_string).collect();
        format!("({})", cells.join(", "))
    }
}

fn cells(array: &ArrayRef) -> Result<Vec<Cell>> {
    use DataType::*;
    let as_type = |target: &DataType| {
        cast(array, target)
            .map_err(|e| Error::unsupported(format!("cannot compare an answer: {e}")))
    };
    /// One cell per value, NULL where it is.
    fn each<T>(values: impl Iterator<Item = Option<T>>, cell: impl Fn(T) -> Cell) -> Vec<Cell> {
        values.map(|value| value.map_or(Cell::Null, &cell)).collect()
    }
    let data_type = array.data_type();
    Ok(match data_type {
        Boolean => each(array.as_boolean().iter(), Cell::Bool),
        Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 => {
            each(as_type(&Int64)?.as_primitive::<Int64Type>().iter(), |v| Cell::Int(v.into()))
        }
        UInt64 => each(array.as_primitive::<UInt64Type>().iter(), |v| Cell::Int(v.into())),
        Float16 | Float32 | Float64 => {
            each(as_type(&Float64)?.as_primitive::<Float64Type>().iter(), Cell::Float)
        }
        Decimal32(p, s) | Decimal64(p, s) | Decimal128(p, s) | Decimal256(p, s) => {
            let wide = as_type(&Decimal128((*p).min(DECIMAL128_MAX_PRECISION), *s))?;
            each(wide.as_primitive::<Decimal128Type>().iter(), |v| Cell::decimal(v, i32::from(*s)))
        }
        Utf8 | LargeUtf8 | Utf8View => {
            each(as_type(&Utf8View)?.as_string_view().iter(), |v| Cell::Text(v.to_string()))
        }
        Date32 | Date64 => {
            each(as_type(&Date32)?.as_primitive::<Date32Type>().iter(), |v| Cell::Date(v.into()))
        }
        Timestamp(unit, _) => {
            // Through microseconds: nanoseconds reach only to 2262.
            let ns = match unit {
                TimeUnit::Nanosecond => 1,
                _ => 1_000,
            };
            let target = if ns == 1 { TimeUnit::Nanosecond } else { TimeUnit::Microsecond };
            let values = as_type(&Timestamp(target, None))?;
            let values = as_i64(&values)?;
            each(values.as_primitive::<Int64Type>().iter(), |v| Cell::Timestamp(i128::from(v) * ns))
        }
        Dictionary(_, value) => cells(&as_type(value)?)?,
        Null => vec![Cell::Null; array.len()],
        _ => {
            let unreadable = |e| Error::unsupported(format!("cannot compare an answer: {e}"));
            let options = FormatOptions::default();
            let formatter = ArrayFormatter::try_new(array, &options).map_err(unreadable)?;
            (0..array.len())
                .map(|i| match array.is_null(i) {
                    true => Cell::Null,
                    false => Cell::Text(formatter.value(i).to_string()),
                })
                .collect()
        }
    })
}

fn as_i64(array: &ArrayRef) -> Result<ArrayRef> {
    cast(array, &DataType::Int64)
        .map_err(|e| Error::internal(format!("a timestamp is no integer: {e}")))
}
