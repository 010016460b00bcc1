//! Dates and timestamps that Arrow's calendar has no day for, as texts of JSON.
//!
//! Arrow's writer puts the text of an error in the place of a value that it cannot write: of dates after
//! the year 262142, which PostgreSQL and tables have.

use std::io::Write;

use arrow::array::{Array, ArrayRef, make_array};
use arrow::datatypes::{DataType, TimeUnit};
use arrow::error::ArrowError;
use arrow::json::writer::Encoder;
use thalweg_functions::calendar::{Parts, Times};

/// So many days from 1970 Arrow's calendar goes in both directions, and somewhat further: to the year 262142.
const DAYS_MAX: u64 = 260_000 * 365;

/// The encoder of an array that has such values; `None`: Arrow's own writes it rightly.
pub fn far_times(array: &dyn Array) -> Result<Option<Box<dyn Encoder>>, ArrowError> {
    if !may_be_far(array) {
        return Ok(None);
    }
    let array: ArrayRef = make_array(array.to_data());
    let times = Times::new(&array).map_err(|e| ArrowError::ExternalError(e.into()))?;
    let parts = (0..array.len()).map(|row| times.parts(row));
    let parts = parts.collect::<Result<Vec<_>, _>>();
    let parts = parts.map_err(|e| ArrowError::ExternalError(e.into()))?;
    let is_date = *array.data_type() == DataType::Date32;
    Ok(Some(Box::new(FarTimes { parts, is_date })))
}

/// A look at the numbers alone, as most arrays have no such values.
fn may_be_far(array: &dyn Array) -> bool {
    let data = array.to_data();
    let per_day = match array.data_type() {
        DataType::Date32 => {
            let mut days = data.buffer::<i32>(0)[..data.len()].iter();
            return days.any(|day| u64::from(day.unsigned_abs()) > DAYS_MAX);
        }
        DataType::Timestamp(TimeUnit::Second, _) => 86_400,
        DataType::Timestamp(TimeUnit::Millisecond, _) => 86_400_000,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 86_400_000_000,
        // 64 bits of nanoseconds end in 2262.
        _ => return false,
    };
    let mut times = data.buffer::<i64>(0)[..data.len()].iter();
    times.any(|time| time.unsigned_abs() > DAYS_MAX * per_day)
}

struct FarTimes {
    parts: Vec<Option<Parts>>,
    is_date: bool,
}

impl Encoder for FarTimes {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let Some(p) = self.parts[row] else { return out.extend_from_slice(b"null") };
        // Writing into memory does not fail.
        let _ = write!(out, "\"{:04}-{:02}-{:02}", p.year, p.month, p.day);
        if !self.is_date {
            let _ = write!(out, "T{:02}:{:02}:{:02}", p.hour, p.minute, p.second);
            if p.micros > 0 {
                let _ = write!(out, ".{:06}", p.micros);
            }
        }
        if let Some(offset) = p.offset_s {
            let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.abs() / 60);
            let _ = write!(out, "{sign}{:02}:{:02}", minutes / 60, minutes % 60);
        }
        out.push(b'"');
    }
}
