//! The build side's rows, as they come.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::buffer::NullBuffer;
use arrow::compute::{concat, filter};
use arrow::datatypes::DataType;
use thalweg_base::{Error, Result};

use super::word::Bounds;
use super::{Spec, nulls_of};
use crate::aggregate::Groups;
use crate::allocations::Allocations;
use crate::encoding::{expand, internal, is_compact};

/// Rows up to which a batch is put together with others: where few rows of each come through, what
/// there is to do for each batch would be more than what is to do for its rows.
const SMALL_ROWS: usize = 1024;

/// Rows that small batches are put together to, at least.
const TOGETHER_ROWS: usize = 8 << 10;

/// What a value of a small batch takes at most.
const VALUE_BYTES: usize = size_of::<i128>();

/// A batch, or several small ones.
pub struct Piece {
    pub keys: Vec<ArrayRef>,
    pub payload: Vec<ArrayRef>,
    pub rows: usize,
}

impl Piece {
    fn columns(&self) -> impl Iterator<Item = &ArrayRef> {
        self.keys.iter().chain(&self.payload)
    }

    /// Whether their columns are of the same types, and the same dictionaries.
    fn goes_with(&self, other: &Piece) -> bool {
        self.columns().zip(other.columns()).all(|(a, b)| {
            a.data_type() == b.data_type()
                && a.as_any_dictionary_opt()
                    .zip(b.as_any_dictionary_opt())
                    .is_none_or(|(a, b)| a.values().to_data().ptr_eq(&b.values().to_data()))
        })
    }

    /// Of some that go with each other.
    fn of(pieces: Vec<Piece>) -> Result<Option<Piece>> {
        if pieces.len() <= 1 {
            return Ok(pieces.into_iter().next());
        }
        let column = |of: &dyn Fn(&Piece) -> &ArrayRef| {
            let all: Vec<&dyn Array> = pieces.iter().map(|p| of(p).as_ref()).collect();
            concat(&all).map_err(internal)
        };
        let (keys, payload) = (pieces[0].keys.len(), pieces[0].payload.len());
        Ok(Some(Piece {
            keys: (0..keys).map(|i| column(&|p| &p.keys[i])).collect::<Result<_>>()?,
            payload: (0..payload).map(|i| column(&|p| &p.payload[i])).collect::<Result<_>>()?,
            rows: pieces.iter().map(|p| p.rows).sum(),
        }))
    }
}

/// Texts that are no dictionary have buffers that several batches may have in common.
fn can_be_together(array: &ArrayRef) -> bool {
    let data_type = array.data_type();
    data_type.is_primitive() || matches!(data_type, DataType::Dictionary(..))
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
    pieces: Vec<Piece>,
    /// Small ones that will be one.
    small: Vec<Piece>,
    small_rows: usize,
    small_bytes: usize,
    rows: usize,
    /// Of each key column.
    pub(super) bounds: Vec<Bounds>,
    held: Allocations,
}

impl Collected {
    pub fn new(spec: &Spec) -> Self {
        Self {
            key_types: spec.key_types.clone(),
            payload_types: spec.payload_types.clone(),
            drop_null_keys: !spec.nulls_equal && !spec.keep_null_keys,
            pieces: Vec::new(),
            small: Vec::new(),
            small_rows: 0,
            small_bytes: 0,
            rows: 0,
            bounds: vec![Bounds::default(); spec.key_types.len()],
            held: Allocations::default(),
        }
    }

    /// Takes a batch; its arrays are kept as they are, if they are not small.
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
        self.rows += piece.rows;
        if piece.rows > SMALL_ROWS || !piece.columns().all(can_be_together) {
            self.keep(piece);
            return Ok(());
        }
        if self.small.first().is_some_and(|first| !piece.goes_with(first)) {
            self.put_together()?;
        }
        self.small_rows += piece.rows;
        self.small_bytes += piece.rows * piece.columns().count() * VALUE_BYTES;
        self.small.push(piece);
        if self.small_rows >= TOGETHER_ROWS { self.put_together() } else { Ok(()) }
    }

    fn keep(&mut self, piece: Piece) {
        piece.columns().for_each(|column| self.held.add(column));
        self.pieces.push(piece);
    }

    /// What came in small batches, so far. Else it is done when the table is begun, and for all workers.
    pub fn put_together(&mut self) -> Result<()> {
        let small = std::mem::take(&mut self.small);
        (self.small_rows, self.small_bytes) = (0, 0);
        if let Some(piece) = Piece::of(small)? {
            self.keep(piece);
        }
        Ok(())
    }

    pub(super) fn into_pieces(mut self) -> Result<Vec<Piece>> {
        self.put_together()?;
        Ok(self.pieces)
    }

    /// All rows so far; it begins again with none.
    pub fn give(&mut self) -> Given {
        self.rows = 0;
        self.held.clear();
        self.bounds.fill(Bounds::default());
        (self.small_rows, self.small_bytes) = (0, 0);
        self.pieces.append(&mut self.small);
        Given::new(std::mem::take(&mut self.pieces), &self.key_types, &self.payload_types)
    }

    /// What is held; see [`Allocations`].
    pub fn memory_bytes(&self) -> usize {
        self.held.bytes() + self.small_bytes
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
