//! Dates and timestamps that Arrow's calendar has no day for, as texts of JSON.
//!
//! Arrow's writer puts the text of an error in the place of a value that it cannot write: of dates after
//! the year 262142, which PostgreSQL and tables have.

use std::io::Write;

use arrow::array::{Array, ArrayRef, make_array};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use arrow::json::writer::Encoder;
use thalweg_functions::calendar::{Parts, Times};

/// The years of Arrow's calendar are between this one and its negative.
const YEAR_MAX: i64 = 262_142;

/// The encoder of an array that has such values; `None`: Arrow's own writes it rightly.
pub fn far_times(array: &dyn Array) -> Result<Option<Box<dyn Encoder>>, ArrowError> {
    if !matches!(array.data_type(), DataType::Date32 | DataType::Timestamp(..)) {
        return Ok(None);
    }
    let array: ArrayRef = make_array(array.to_data());
    let times = Times::new(&array).map_err(|e| ArrowError::ExternalError(e.into()))?;
    let mut is_far = false;
    let parts = (0..array.len()).map(|row| {
        let parts = times.parts(row).map_err(|e| ArrowError::ExternalError(e.into()))?;
        is_far |= parts.is_some_and(|parts| parts.year.abs() > YEAR_MAX);
        Ok(parts)
    });
    let parts = parts.collect::<Result<Vec<_>, ArrowError>>()?;
    let is_date = *array.data_type() == DataType::Date32;
    Ok(is_far.then(|| Box::new(FarTimes { parts, is_date }) as _))
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
