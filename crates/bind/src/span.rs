//! Intervals as people [write them](thalweg_base::span), as Arrow has them.

use arrow::datatypes::IntervalMonthDayNano;
use datafusion::sql::sqlparser::ast::DateTimeField;
use thalweg_base::Result;
pub use thalweg_base::span::{Fields, Unit};

/// Reads an interval. A number without a unit counts the last of `fields`, or else seconds.
///
/// # Errors
/// 22007: the text is no interval. 22015: a part of it is larger than an interval holds.
pub fn read(text: &str, fields: Option<Fields>) -> Result<IntervalMonthDayNano> {
    let parts = thalweg_base::span::read(text, fields)?;
    Ok(IntervalMonthDayNano::new(parts.months, parts.days, parts.ns))
}

/// The unit that a field of a statement names.
pub(crate) fn unit(field: &DateTimeField) -> Option<Unit> {
    match field {
        DateTimeField::Custom(name) => Unit::named(&name.value),
        other => Unit::named(&other.to_string()),
    }
}
