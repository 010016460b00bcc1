//! Reading chunk-columns: bytes in one step (which may block), arrays in another (which does not).

use std::sync::Arc;

use arrow::array::ArrayRef;
use thalweg_base::{Error, Result};
use vortex::buffer::ByteBuffer;

use super::codec::decode;
use super::{Extent, Location};

/// The compressed bytes of one column of one chunk, between [`crate::Database::read`] and
/// [`crate::Database::decode`].
pub struct Segment {
    pub(crate) extent: Arc<Extent>,
    pub chunk: usize,
    pub column: usize,
    bytes: ByteBuffer,
}

impl Segment {
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl Extent {
    /// The segments of `columns`, in their order.
    pub(crate) fn read(self: &Arc<Self>, chunk: usize, columns: &[usize]) -> Result<Vec<Segment>> {
        let location = |column: usize| self.columns[column].locations[chunk];
        let mut order: Vec<usize> = (0..columns.len()).collect();
        order.sort_by_key(|&i| location(columns[i]).offset);
        let wanted: Vec<Location> = order.iter().map(|&i| location(columns[i])).collect();
        let mut found: Vec<Option<ByteBuffer>> = vec![None; columns.len()];
        for (i, bytes) in order.into_iter().zip(self.file.read(self.bytes, &wanted)?) {
            found[i] = Some(bytes);
        }
        let segment = |(bytes, &column): (Option<ByteBuffer>, &usize)| {
            let bytes = bytes.ok_or_else(|| Error::internal("a segment was not read"))?;
            Ok(Segment { extent: self.clone(), chunk, column, bytes })
        };
        found.into_iter().zip(columns).map(segment).collect()
    }

    pub(crate) fn decode(&self, segment: &Segment) -> Result<ArrayRef> {
        let Segment { chunk, column, .. } = *segment;
        let field = self.schema.field(column);
        let damaged = |cause: String| {
            Error::corrupt(format!(
                "{}: chunk {chunk} of column {:?} is damaged",
                self.file,
                field.name()
            ))
            .detail(cause)
            .hint("restore the file from a backup, or DROP the table it belongs to")
        };
        let found = crc32fast::hash(&segment.bytes);
        let written = self.columns[column].locations[chunk].checksum;
        if found != written {
            return Err(damaged(format!("checksum {found:08x}, {written:08x} was written")));
        }
        let rows = self.chunk_rows(chunk);
        decode(segment.bytes.clone(), rows, field, self.types.column(column), &self.encodings)
            .map_err(damaged)
    }
}
