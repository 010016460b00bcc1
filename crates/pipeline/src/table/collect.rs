//! The build side's rows, as they come.

use std::collections::HashSet;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::buffer::NullBuffer;
use arrow::compute::filter;
use arrow::datatypes::DataType;
use thalweg_base::{Error, Result};

use super::word::Bounds;
use super::{Spec, nulls_of};
use crate::aggregate::Groups;
use crate::encoding::{expand, internal, is_compact};

/// A batch.
pub struct Piece {
    pub keys: Vec<ArrayRef>,
    pub payload: Vec<ArrayRef>,
    pub rows: usize,
}

/// Rows that were collected, keys and then payload, in their logical types.
pub struct Given {
    pieces: std::vec::IntoIter<Piece>,
    types: Vec<DataType>,
}

impl Given {
    pub(super) fn new(
        pieces: Vec<Piece>,
        key_types: &[DataType],
        payload_types: &[DataType],
    ) -> Self {
        let types = key_types.iter().chain(payload_types).cloned().collect();
        Given { pieces: pieces.into_iter(), types }
    }
}

impl Iterator for Given {
    type Item = Result<Groups>;

    fn next(&mut self) -> Option<Self::Item> {
        let piece = self.pieces.next()?;
        let columns = piece.keys.iter().chain(&piece.payload).zip(&self.types);
        let columns = columns.map(|(column, logical)| expand(column, logical));
        let columns = columns.collect::<Result<_>>();
        Some(columns.map(|columns| Groups { columns, rows: piece.rows }))
    }
}

/// What one worker collects.
pub struct Collected {
    key_types: Vec<DataType>,
    payload_types: Vec<DataType>,
    /// Rows with a NULL in a key go, as nothing will ask for them.
    drop_null_keys: bool,
    pub(super) pieces: Vec<Piece>,
    rows: usize,
    /// Of each key column.
    pub(super) bounds: Vec<Bounds>,
    memory_bytes: usize,
    /// The allocations that are counted: batches are often slices of one.
    counted: HashSet<usize>,
}

impl Collected {
    pub fn new(spec: &Spec) -> Self {
        Self {
            key_types: spec.key_types.clone(),
            payload_types: spec.payload_types.clone(),
            drop_null_keys: !spec.nulls_equal && !spec.keep_null_keys,
            pieces: Vec::new(),
            rows: 0,
            bounds: vec![Bounds::default(); spec.key_types.len()],
            memory_bytes: 0,
            counted: HashSet::new(),
        }
    }

    /// Takes a batch; its arrays are kept as they are.
    pub fn push(&mut self, keys: &[ArrayRef], payload: &[ArrayRef], rows: usize) -> Result<()> {
        check(&self.key_types, keys, rows, false)?;
        check(&self.payload_types, payload, rows, false)?;
        if rows == 0 {
            return Ok(());
        }
        let nulls = keys.iter().map(|key| nulls_of(key.as_ref())).collect::<Vec<_>>();
        for ((bounds, key), nulls) in self.bounds.iter_mut().zip(keys).zip(&nulls) {
            bounds.add(Bounds::of(key.as_ref(), nulls.as_ref()));
        }
        let mut piece = Piece { keys: keys.to_vec(), payload: payload.to_vec(), rows };
        let valid = if self.drop_null_keys {
            NullBuffer::union_many(nulls.iter().map(Option::as_ref))
        } else {
            None
        };
        if let Some(valid) = valid {
            let kept = BooleanArray::new(valid.inner().clone(), None);
            piece.rows = kept.true_count();
            if piece.rows == 0 {
                return Ok(());
            }
            for array in piece.keys.iter_mut().chain(&mut piece.payload) {
                *array = filter(array.as_ref(), &kept).map_err(internal)?;
            }
        }
        for array in piece.keys.iter().chain(&piece.payload) {
            self.count(&array.to_data());
        }
        self.rows += piece.rows;
        self.pieces.push(piece);
        Ok(())
    }

    /// All rows so far; it begins again with none.
    pub fn give(&mut self) -> Given {
        self.rows = 0;
        self.memory_bytes = 0;
        self.counted.clear();
        self.bounds.fill(Bounds::default());
        Given::new(std::mem::take(&mut self.pieces), &self.key_types, &self.payload_types)
    }

    fn count(&mut self, data: &arrow::array::ArrayData) {
        for buffer in data.buffers().iter().chain(data.nulls().map(NullBuffer::buffer)) {
            if self.counted.insert(buffer.data_ptr().as_ptr() as usize) {
                self.memory_bytes += buffer.capacity();
            }
        }
        for child in data.child_data() {
            self.count(child);
        }
    }

    /// What is held, each allocation once; another worker may count some of it, too.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    pub fn rows(&self) -> usize {
        self.rows
    }
}

/// Fails where arrays are not as they were announced; some may be `compact`.
pub fn check(types: &[DataType], arrays: &[ArrayRef], rows: usize, compact: bool) -> Result<()> {
    if types.len() != arrays.len() {
        let message = format!("a join expects {} columns and got {}", types.len(), arrays.len());
        return Err(Error::internal(message));
    }
    for (logical, array) in types.iter().zip(arrays) {
        let found = array.data_type();
        let fits = match (found, logical) {
            (DataType::Dictionary(_, value), _) if value.as_ref() == logical => true,
            (DataType::Decimal64(_, found), DataType::Decimal128(_, scale)) => found == scale,
            _ if compact && is_compact(found) => true,
            _ => found == logical,
        };
        if !fits {
            return Err(Error::internal(format!("a join's column of {logical} came as {found}")));
        }
        if array.len() != rows {
            let message = format!("a join's column of {rows} rows came with {}", array.len());
            return Err(Error::internal(message));
        }
    }
    Ok(())
}

/// Where a range of all rows lies: the piece, the range in it, and how far in the asked range.
pub fn pieces_in(
    starts: &[usize],
    range: std::ops::Range<usize>,
) -> impl Iterator<Item = (usize, std::ops::Range<usize>, usize)> {
    // `starts` has one more, the end of the last. No piece is empty.
    let first = starts.partition_point(|&start| start <= range.start) - 1;
    (first..starts.len() - 1).take_while(move |&i| starts[i] < range.end).map(move |i| {
        let from = range.start.max(starts[i]);
        let to = range.end.min(starts[i + 1]);
        (i, from - starts[i]..to - starts[i], from - range.start)
    })
}
