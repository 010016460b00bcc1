//! The rows of one side of a join on their way to files.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::buffer::NullBuffer;
use datafusion::common::Result;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::PhysicalExpr;
use futures::StreamExt;

use super::build::Granted;
use crate::split::{Hashes, Split, Writer};

/// Multiplied by the depth it seeds the hash that splits: rows that one hash put together are to be
/// parted by the next. (2⁶⁴ over the golden ratio: such multiples differ in many bits.) DataFusion
/// hashes with other seeds, to repartition and in the join.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Of the keys, for rows that will then have been split `depth` times.
pub fn hashes(
    keys: Vec<Arc<dyn PhysicalExpr>>,
    depth: usize,
    null_matches_nothing: bool,
) -> Hashes {
    let state = RandomState::with_seed(SEED.wrapping_mul(depth as u64));
    Box::new(move |batch: &RecordBatch| {
        let rows = batch.num_rows();
        let keys = keys.iter().map(|key| key.evaluate(batch)?.into_array(rows));
        let keys: Vec<ArrayRef> = keys.collect::<Result<_>>()?;
        let mut hashes = vec![0; rows];
        create_hashes(&keys, &state, &mut hashes)?;
        let mut hashes: Vec<_> = hashes.into_iter().map(Some).collect();
        if null_matches_nothing {
            let nulls: Vec<_> = keys.iter().map(|key| key.logical_nulls()).collect();
            if let Some(valid) = NullBuffer::union_many(nulls.iter().map(Option::as_ref)) {
                (0..rows).filter(|row| valid.is_null(*row)).for_each(|row| hashes[row] = None);
            }
        }
        Ok(hashes)
    })
}

/// Writes `collected`, whose memory `granted` has, and then what `rest` gives.
pub async fn write(
    split: Arc<Split>,
    collected: Vec<RecordBatch>,
    mut rest: SendableRecordBatchStream,
    granted: Option<&Granted>,
) -> Result<()> {
    let mut writer = Writer::new(&split);
    let batches = collected.len();
    for (i, batch) in collected.into_iter().enumerate() {
        writer.push(batch).await?;
        if let Some(granted) = granted {
            let (reservation, left) = (granted.reservation(), batches - i);
            // Its share: others may wait for it.
            reservation.shrink(reservation.size() / left);
        }
    }
    while let Some(batch) = rest.next().await {
        writer.push(batch?).await?;
    }
    writer.flush().await
}
