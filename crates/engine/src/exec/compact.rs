//! Batches that hold no more than their own texts.
//!
//! Texts are views into buffers that batches share: those of a join all have the texts of its build
//! side, those of a merge the runs'. Who keeps one batch keeps all of that, and DataFusion's operators
//! count it for each batch: a few of them would take the memory of a query.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, GenericByteViewArray, RecordBatch, RecordBatchOptions,
};
use arrow::datatypes::{BinaryViewType, ByteViewType, DataType, StringViewType};

/// Buffers of texts that are kept as they are, however little of them is used.
const FEW_BYTES: usize = 16 * 1024;

/// The same rows; their texts lie in buffers of which they are at least half.
pub fn compacted(batch: &RecordBatch) -> RecordBatch {
    let columns = batch.columns().iter().map(|column| match column.data_type() {
        DataType::Utf8View => compacted_views::<StringViewType>(column),
        DataType::BinaryView => compacted_views::<BinaryViewType>(column),
        _ => Arc::clone(column),
    });
    // There may be no column to say how many rows there are.
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns.collect(), &options)
        .expect("the same types and lengths")
}

fn compacted_views<T: ByteViewType>(column: &ArrayRef) -> ArrayRef {
    let views: &GenericByteViewArray<T> = column.as_byte_view();
    let held: usize = views.data_buffers().iter().map(|buffer| buffer.capacity()).sum();
    match held > FEW_BYTES && held / 2 > views.total_buffer_bytes_used() {
        true => Arc::new(views.gc()),
        false => Arc::clone(column),
    }
}
