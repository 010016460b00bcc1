//! Reading chunk-columns: bytes in one step (which may block), arrays in another (which does not).

use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::Field;
use thalweg_base::{Error, Result};
use vortex::buffer::ByteBuffer;

use super::codec::decode;
use super::{Extent, Metadata, object_name};
use crate::encoded::{expand, without_memory_of};
use crate::location::Location;

/// The compressed bytes of one column of one chunk, between [`crate::Database::read`] and
/// [`crate::Database::decode`]. A clone shares the bytes, and holds what was read together with them.
#[derive(Clone)]
pub struct Segment {
    pub(crate) extent: Arc<Extent>,
    metadata: Arc<Metadata>,
    pub chunk: usize,
    /// Among the extent's columns.
    pub(crate) place: usize,
    bytes: ByteBuffer,
}

impl Segment {
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Into an [encoded form](crate::encoded) of the type the column was written with.
    pub(crate) fn decode(&self) -> Result<ArrayRef> {
        let column = &self.metadata.columns[self.place];
        let field = Field::new(&column.name, column.data_type.clone(), column.nullable);
        let rows = self.metadata.chunk_rows(self.chunk);
        decode(self.bytes.clone(), rows, &field, &column.dtype, &self.metadata.encodings)
            // Else it would keep what was read with it, too.
            .map(|array| without_memory_of(&self.bytes, array))
            .map_err(|why| self.damaged(why))
    }

    /// Into exactly that type.
    pub(crate) fn decode_plain(&self) -> Result<ArrayRef> {
        expand(&self.decode()?, &self.metadata.columns[self.place].data_type)
    }

    fn location(&self) -> Location {
        self.metadata.columns[self.place].locations[self.chunk]
    }

    fn verify(&self) -> Result<()> {
        self.location().verify(&self.bytes).map_err(|why| self.damaged(why))
    }

    fn damaged(&self, cause: String) -> Error {
        Error::corrupt(format!(
            "{}: chunk {} of column {:?} is damaged",
            self.extent, self.chunk, self.metadata.columns[self.place].name
        ))
        .detail(cause)
        .hint("restore the file from a backup, or DROP the table it belongs to")
    }
}

impl Extent {
    /// The segments of the columns at `places`, in their order, verified.
    pub(crate) fn read(
        self: &Arc<Self>,
        metadata: &Arc<Metadata>,
        chunk: usize,
        places: &[usize],
    ) -> Result<Vec<Segment>> {
        let segments = self.read_once(metadata, chunk, places)?;
        let damaged = segments.iter().any(|s| s.verify().is_err());
        let segments = if damaged && self.home().store.forget(&object_name(self.id)) {
            // It was a copy that was damaged, not the original.
            self.read_once(metadata, chunk, places)?
        } else {
            segments
        };
        segments.iter().try_for_each(Segment::verify)?;
        Ok(segments)
    }

    /// The same, if that only copies what is in memory. `None`: it may be more than that, or something
    /// is wrong, as [`read`](Self::read) will say.
    pub(crate) fn read_at_once(
        self: &Arc<Self>,
        metadata: &Arc<Metadata>,
        chunk: usize,
        places: &[usize],
    ) -> Option<Vec<Segment>> {
        let (order, wanted) = ranges(metadata, chunk, places);
        let (home, name) = (self.home(), object_name(self.id));
        let direct = home.reads_directly();
        let read = home.store.read_at_once(&name, self.bytes, &wanted, direct)?;
        let segments = self.segments(metadata, chunk, places, order, read).ok()?;
        segments.iter().all(|s| s.verify().is_ok()).then_some(segments)
    }

    /// Whether [`read`](Self::read) of the same needs no disk, as far as is known.
    pub(crate) fn is_in_memory(&self, metadata: &Metadata, chunk: usize, places: &[usize]) -> bool {
        let (_, wanted) = ranges(metadata, chunk, places);
        self.home().store.is_in_memory(&object_name(self.id), &wanted)
    }

    /// Has the store begin with what [`read`](Self::read) of the same will want. `false`: it comes early
    /// only if it is read early.
    pub(crate) fn read_ahead(&self, metadata: &Metadata, chunk: usize, places: &[usize]) -> bool {
        if self.home().reads_directly() {
            return false;
        }
        let (_, wanted) = ranges(metadata, chunk, places);
        self.home().store.read_ahead(&object_name(self.id), &wanted)
    }

    fn read_once(
        self: &Arc<Self>,
        metadata: &Arc<Metadata>,
        chunk: usize,
        places: &[usize],
    ) -> Result<Vec<Segment>> {
        let (order, wanted) = ranges(metadata, chunk, places);
        let (store, name) = (&self.home().store, object_name(self.id));
        let read = match self.home().reads_directly() {
            true => store.read_direct(&name, self.bytes, &wanted),
            false => store.read(&name, self.bytes, &wanted),
        }?;
        self.segments(metadata, chunk, places, order, read)
    }

    /// Of what was read, which is in that `order`.
    fn segments(
        self: &Arc<Self>,
        metadata: &Arc<Metadata>,
        chunk: usize,
        places: &[usize],
        order: Vec<usize>,
        read: Vec<ByteBuffer>,
    ) -> Result<Vec<Segment>> {
        let mut found: Vec<Option<ByteBuffer>> = vec![None; places.len()];
        for (i, bytes) in order.into_iter().zip(read) {
            found[i] = Some(bytes);
        }
        let segment = |(bytes, &place): (Option<ByteBuffer>, &usize)| {
            let bytes = bytes.ok_or_else(|| Error::internal("a segment was not read"))?;
            let (extent, metadata) = (self.clone(), metadata.clone());
            Ok(Segment { extent, metadata, chunk, place, bytes })
        };
        found.into_iter().zip(places).map(segment).collect()
    }
}

/// Where columns of a chunk lie, ascending, and which of the `places` each is.
fn ranges(metadata: &Metadata, chunk: usize, places: &[usize]) -> (Vec<usize>, Vec<Range<u64>>) {
    let location = |place: usize| metadata.columns[place].locations[chunk];
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|&i| location(places[i]).offset);
    let wanted = order.iter().map(|&i| location(places[i]).range()).collect();
    (order, wanted)
}
