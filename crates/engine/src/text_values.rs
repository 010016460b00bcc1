//! Texts that clients send as values, in a parameter or a field of COPY: they are read as literals are.

use arrow::array::{Array, ArrayRef, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use thalweg_base::{Error, Result};
use thalweg_errors::from_arrow;
use thalweg_functions::text_as::{TextAs, is_read};

/// Whether texts are read as values of this type here: times, spans and numbers with a fraction.
pub fn are_read(data_type: &DataType) -> bool {
    is_read(data_type) && !data_type.is_nested()
}

/// Texts as values of a type that is [read](are_read) here. Instants that name no zone are of the
/// session's.
///
/// # Errors
/// With the row of the first text that is no value.
pub fn read(
    texts: &StringArray,
    data_type: &DataType,
    zone: &str,
) -> std::result::Result<ArrayRef, (usize, Error)> {
    let as_read = match data_type {
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some(zone.into())),
        other => other.clone(),
    };
    let reader = TextAs::new(as_read, false);
    let values = reader.array(texts).map_err(|e| {
        let is_wrong =
            |row: &usize| texts.is_valid(*row) && reader.scalar(texts.value(*row)).is_err();
        ((0..texts.len()).find(is_wrong).unwrap_or(0), e)
    })?;
    match values.data_type() == data_type {
        true => Ok(values),
        // The zone is that of what is stored.
        false => cast(&values, data_type).map_err(|e| (0, from_arrow(&e))),
    }
}

/// The same of a single text.
///
/// # Errors
/// The text is no value of the type.
pub fn read_one(text: &str, data_type: &DataType, zone: &str) -> Result<ArrayRef> {
    read(&StringArray::from(vec![text]), data_type, zone).map_err(|(_, e)| e)
}
