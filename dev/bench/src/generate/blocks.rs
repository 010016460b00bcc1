//! Tables that are made in blocks, each with random numbers of its own: any thread can make any
//! block, and the data is always the same.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use thalweg_base::Prng;

use super::{Batches, PART_ROWS, Source};

/// How a table is cut.
#[derive(Clone, Copy)]
pub(super) struct Cut {
    pub items: u64,
    /// A block becomes one batch.
    pub items_per_block: u64,
    /// On average.
    pub rows_per_item: u64,
}

/// `make` gets the numbers of a block's items, from 0, and a random source of the block's own.
pub(super) fn blocks(
    seed: u64,
    name: &'static str,
    columns: impl IntoIterator<Item = Field>,
    cut: Cut,
    make: impl Fn(Range<u64>, &mut Prng) -> Vec<ArrayRef> + Clone + Send + Sync + 'static,
) -> Source {
    let Cut { items, items_per_block, rows_per_item } = cut;
    let schema: SchemaRef = Arc::new(Schema::new(columns.into_iter().collect::<Vec<_>>()));
    let blocks = items.div_ceil(items_per_block);
    let blocks_per_part = (PART_ROWS / (items_per_block * rows_per_item)).max(1);
    let table_seed =
        name.bytes().fold(seed, |seed, byte| Prng::new(seed ^ u64::from(byte)).next_u64());
    Source {
        name,
        schema: schema.clone(),
        rows_expected: items * rows_per_item,
        parts: blocks.div_ceil(blocks_per_part) as usize,
        part: Box::new(move |part| -> Batches {
            let schema = schema.clone();
            let make = make.clone();
            let first = part as u64 * blocks_per_part;
            let range = first..(first + blocks_per_part).min(blocks);
            Box::new(range.map(move |block| {
                let mut random = Prng::new(Prng::new(table_seed.wrapping_add(block)).next_u64());
                let from = block * items_per_block;
                let columns = make(from..(from + items_per_block).min(items), &mut random);
                RecordBatch::try_new(schema.clone(), columns)
            }))
        }),
    }
}
