//! A column of the chunk in hand, expanded as late as possible.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::DataType;
use datafusion::common::Result;
use thalweg_storage::expand;

use thalweg_errors::into_datafusion;

/// A column in the form it has in the cache, and plain once somebody has wanted all of it.
pub struct Column {
    pub encoded: ArrayRef,
    data_type: DataType,
    plain: OnceLock<ArrayRef>,
}

impl Column {
    /// Of `data_type` in plain.
    pub fn new(encoded: ArrayRef, data_type: DataType) -> Self {
        Column { encoded, data_type, plain: OnceLock::new() }
    }

    /// All of it.
    fn plain(&self) -> Result<ArrayRef> {
        if let Some(plain) = self.plain.get() {
            return Ok(Arc::clone(plain));
        }
        let plain = self.expand(&self.encoded)?;
        Ok(Arc::clone(self.plain.get_or_init(|| plain)))
    }

    /// Some rows in a row. Of a dictionary all of it is expanded, as the next will be asked for.
    pub fn piece(&self, rows: Range<usize>) -> Result<ArrayRef> {
        if self.encoded.as_any_dictionary_opt().is_some() {
            return Ok(self.plain()?.slice(rows.start, rows.len()));
        }
        self.expand(&self.encoded.slice(rows.start, rows.len()))
    }

    /// All of it: plain if that is at hand already.
    pub fn cheapest(&self) -> ArrayRef {
        Arc::clone(self.plain.get().unwrap_or(&self.encoded))
    }

    /// The rows that are wanted: only those are expanded.
    pub fn taken(&self, wanted: &UInt32Array) -> Result<ArrayRef> {
        self.expand(&take(&self.encoded, wanted, None)?)
    }

    fn expand(&self, rows: &ArrayRef) -> Result<ArrayRef> {
        expand(rows, &self.data_type).map_err(into_datafusion)
    }
}
