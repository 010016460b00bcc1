//! Sorting a run of rows by the table's cluster columns, in bounded steps.
//!
//! A run is cut into pieces of about a chunk. Each step sorts one piece; then each step merges
//! the next chunk's worth of row positions out of all pieces, and the writer gathers the columns
//! by them, one column a step. Keys are compared as Arrow rows: one `memcmp` for any number of
//! columns. The sort is stable: rows of equal keys stay in their order.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::interleave;
use arrow::datatypes::SchemaRef;
use arrow::row::{Row, RowConverter, Rows, SortField};
use thalweg_base::{Error, Result};

/// Rows of a sorted chunk: positions in the run's batches.
pub(super) struct Order {
    batches: Arc<Vec<RecordBatch>>,
    positions: Vec<(usize, usize)>,
}

impl Order {
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    pub fn column(&self, column: usize) -> Result<ArrayRef> {
        let parts: Vec<&dyn Array> =
            self.batches.iter().map(|b| b.column(column).as_ref()).collect();
        interleave(&parts, &self.positions)
            .map_err(|e| Error::internal("cannot gather sorted rows").source(e))
    }
}

pub(super) struct Run {
    batches: Arc<Vec<RecordBatch>>,
    cluster_by: Vec<usize>,
    converter: RowConverter,
    bytes: usize,
    rows: usize,
    chunk_rows: usize,
    /// Batches before this one are in a piece.
    next_batch: usize,
    pieces: Vec<Piece>,
    /// A binary min-heap of the pieces that have rows left; built when all are sorted.
    heap: Option<Vec<usize>>,
}

/// Some consecutive batches, sorted together.
struct Piece {
    keys: Rows,
    /// Keys in order, each with its position in the run.
    sorted: Vec<(u32, (usize, usize))>,
    next: usize,
}

impl Piece {
    fn key(&self) -> Row<'_> {
        self.keys.row(self.sorted[self.next].0 as usize)
    }
}

fn failed(e: arrow::error::ArrowError) -> Error {
    Error::internal("cannot sort rows by the cluster columns").source(e)
}

impl Run {
    pub fn new(
        schema: &SchemaRef,
        cluster_by: &[usize],
        batches: Vec<RecordBatch>,
        bytes: usize,
        chunk_rows: usize,
    ) -> Result<Self> {
        let fields =
            cluster_by.iter().map(|&c| SortField::new(schema.field(c).data_type().clone()));
        Ok(Run {
            rows: batches.iter().map(RecordBatch::num_rows).sum(),
            batches: Arc::new(batches),
            cluster_by: cluster_by.to_vec(),
            converter: RowConverter::new(fields.collect()).map_err(failed)?,
            bytes,
            chunk_rows,
            next_batch: 0,
            pieces: Vec::new(),
            heap: None,
        })
    }

    pub fn row_bytes(&self) -> usize {
        self.bytes / self.rows.max(1)
    }

    /// Bytes of the run that `row_bytes` times its rows leaves out.
    pub fn rounding_bytes(&self) -> usize {
        self.bytes - self.row_bytes() * self.rows
    }

    pub fn is_done(&self) -> bool {
        self.heap.as_ref().is_some_and(Vec::is_empty)
    }

    /// Sorts a piece, or merges a chunk and returns it.
    pub fn step(&mut self) -> Result<Option<Order>> {
        if self.next_batch < self.batches.len() {
            self.sort_piece()?;
            return Ok(None);
        }
        if self.heap.is_none() {
            let mut heap: Vec<usize> = (0..self.pieces.len()).collect();
            for at in (0..heap.len() / 2).rev() {
                sift_down(&mut heap, &self.pieces, at);
            }
            self.heap = Some(heap);
        }
        Ok(self.merge_chunk())
    }

    fn sort_piece(&mut self) -> Result<()> {
        let mut keys = self.converter.empty_rows(0, 0);
        let mut sorted = Vec::with_capacity(self.chunk_rows);
        while let Some(batch) = self.batches.get(self.next_batch) {
            if !sorted.is_empty() && sorted.len() + batch.num_rows() > self.chunk_rows {
                break;
            }
            let columns: Vec<ArrayRef> =
                self.cluster_by.iter().map(|&c| batch.column(c).clone()).collect();
            self.converter.append(&mut keys, &columns).map_err(failed)?;
            for row in 0..batch.num_rows() {
                sorted.push((sorted.len() as u32, (self.next_batch, row)));
            }
            self.next_batch += 1;
        }
        sorted.sort_by(|a, b| keys.row(a.0 as usize).cmp(&keys.row(b.0 as usize)));
        self.pieces.push(Piece { keys, sorted, next: 0 });
        Ok(())
    }

    fn merge_chunk(&mut self) -> Option<Order> {
        let heap = self.heap.as_mut()?;
        let mut positions = Vec::with_capacity(self.chunk_rows.min(self.rows));
        while positions.len() < self.chunk_rows {
            let Some(&least) = heap.first() else { break };
            let piece = &mut self.pieces[least];
            positions.push(piece.sorted[piece.next].1);
            piece.next += 1;
            if piece.next == piece.sorted.len() {
                heap.swap_remove(0);
            }
            sift_down(heap, &self.pieces, 0);
        }
        (!positions.is_empty()).then(|| Order { batches: self.batches.clone(), positions })
    }
}

/// Restores the heap below `at`. Equal keys come in the order of their pieces, which is that of
/// their arrival.
fn sift_down(heap: &mut [usize], pieces: &[Piece], mut at: usize) {
    let before = |a: usize, b: usize| pieces[a].key().cmp(&pieces[b].key()).then(a.cmp(&b)).is_lt();
    loop {
        let mut least = at;
        for child in [2 * at + 1, 2 * at + 2] {
            if child < heap.len() && before(heap[child], heap[least]) {
                least = child;
            }
        }
        if least == at {
            return;
        }
        heap.swap(at, least);
        at = least;
    }
}
