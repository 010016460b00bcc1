//! Batches that hold no more than their own texts.
//!
//! Texts are views into buffers that batches share: those of a join all have the texts of its build
//! side, those of a merge the runs'. Who keeps one batch keeps all of that, and DataFusion's operators
//! count it for each batch: a few of them would take the memory of a query.

use arrow::array::{RecordBatch, RecordBatchOptions};
use thalweg_pipeline::encoding::compacted as compacted_array;

/// The same rows; their texts lie in buffers of which they are at least half.
pub fn compacted(batch: &RecordBatch) -> RecordBatch {
    let columns = batch.columns().iter().map(compacted_array);
    // There may be no column to say how many rows there are.
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns.collect(), &options)
        .expect("the same types and lengths")
}
