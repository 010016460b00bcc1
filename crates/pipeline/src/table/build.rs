//! From collected rows to a table, in tasks for any number of threads.
//!
//! ```text
//! phase 0   the table emptied                                         dictionaries made one
//! phase 1   keys of chunks of rows: packed, or encoded and hashed
//!             dense: stored in their places; hashed: put into the filter
//! phase 2   rows inserted, or (dense) checked to have stayed;         payload copied (*)
//!             those with equal keys chained
//! ```
//! (*) also sooner, by who would wait for the end of a phase: once dictionaries are one, if there are
//! any.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use thalweg_base::{Error, Result};

use super::bytes::Encoded;
use super::chain::Chain;
use super::collect::{Collected, Given, Piece, pieces_in};
use super::filter::{AtomicFilter, Shape};
use super::pack::Packing;
use super::payload::Column;
use super::shared::{self, AtomicBucket, AtomicBuckets, Shared, settled_u32, unset_u32};
use super::word::{Bounds, is_word};
use super::{Found, Index, LIMITS, Limits, Spec, Table, dense, slots};
use crate::encoding;
use crate::phases::Phases;

const PHASES: usize = 3;

/// The rows of a task that looks at their keys, which may miss the cache twice for each. Also how a
/// row's bytes are found: a power of 2.
pub const KEY_ROWS: usize = 16 * 1024;

/// The bytes of a task that empties a table. Where memory is new the kernel makes each page when it
/// is touched first, which is most of the time of filling a large table; where it is not, somebody
/// has to write the zeros. The first task to fill it, whose keys lie everywhere, would do it all.
const CLEARED_BYTES: usize = 128 * 1024;

pub struct Building {
    spec: Spec,
    pieces: Vec<Piece>,
    /// The first row of each piece, and one more: how many rows there are.
    starts: Vec<usize>,
    rows: usize,
    bounds: Vec<Bounds>,
    layout: Layout,
    filter: Option<Shape>,
    columns: Vec<Column>,
    /// The tasks that copy the payload, each a column and which of its tasks: those of the same rows
    /// one after the other.
    copies: Vec<(usize, usize)>,
    /// Of the places or buckets, which are emptied first.
    table_bytes: usize,
    progress: Progress,
    /// Allocated by the first task.
    work: OnceLock<Work>,
}

#[derive(Clone)]
enum Layout {
    Dense(Packing),
    Packed(Packing),
    Rows,
}

struct Work {
    keys: Keys,
    filter: Option<AtomicFilter>,
    chain: Chain,
}

enum Keys {
    Dense { first: Box<[AtomicU32]> },
    Packed { keys: Shared<u64>, slots: AtomicBuckets },
    Rows { chunks: Vec<OnceLock<Encoded>>, hashes: Shared<u64>, slots: AtomicBuckets },
}

impl Building {
    /// Plans the work, from what all workers have collected.
    pub fn new(spec: Spec, parts: Vec<Collected>) -> Result<Self> {
        Self::with_limits(spec, parts, &LIMITS)
    }

    pub(super) fn with_limits(spec: Spec, parts: Vec<Collected>, limits: &Limits) -> Result<Self> {
        // Also with no row at all text is no word.
        let none = |logical: &DataType| Bounds {
            misfit: !is_word(logical) && !matches!(logical, DataType::Decimal128(..)),
            ..Bounds::default()
        };
        let mut bounds = spec.key_types.iter().map(none).collect::<Vec<_>>();
        let mut pieces = Vec::new();
        for part in parts {
            bounds.iter_mut().zip(&part.bounds).for_each(|(all, &part)| all.add(part));
            pieces.extend(part.into_pieces()?);
        }
        let mut starts = vec![0];
        let mut rows = 0;
        for piece in &pieces {
            rows += piece.rows;
            starts.push(rows);
        }
        if rows >= u32::MAX as usize {
            return Err(Error::resources(format!(
                "the smaller side of a join has {rows} rows, and at most {} can be held",
                u32::MAX - 1
            ))
            .hint("Filter it, or aggregate it before the join."));
        }
        let layout = layout(&bounds, spec.nulls_equal, rows, limits);
        let filter = layout.filter(rows, limits);
        let columns = spec
            .payload_types
            .iter()
            .enumerate()
            .map(|(i, logical)| Column::new(i, logical, &pieces, rows))
            .collect::<Vec<_>>();
        let tasks = columns.iter().map(Column::tasks).enumerate();
        let mut copies: Vec<_> =
            tasks.flat_map(|(column, tasks)| (0..tasks).map(move |task| (column, task))).collect();
        copies.sort_by_key(|&(_, task)| task);
        let key_tasks = rows.div_ceil(KEY_ROWS);
        let table_bytes = match &layout {
            Layout::Dense(packing) => places(packing) * 4,
            _ => bucket_bytes(rows),
        };
        let filter_bytes = filter.map_or(0, Shape::memory_bytes);
        let progress = Progress::new([
            table_bytes.div_ceil(CLEARED_BYTES)
                + filter_bytes.div_ceil(CLEARED_BYTES)
                + columns.iter().map(Column::unify_tasks).sum::<usize>(),
            key_tasks,
            key_tasks + copies.len(),
        ]);
        let work = OnceLock::new();
        Ok(Self {
            spec,
            pieces,
            starts,
            rows,
            bounds,
            layout,
            filter,
            columns,
            copies,
            table_bytes,
            progress,
            work,
        })
    }

    /// What was collected, if there is to be no table.
    pub fn give(self) -> Given {
        Given::new(self.pieces, &self.spec.key_types, &self.spec.payload_types)
    }

    /// What the work and the table need beyond what is collected, which is held until the end.
    pub fn memory_bytes_needed(&self) -> usize {
        let rows = self.rows;
        let chain = rows * 4;
        let table = bucket_bytes(rows);
        let keys = match &self.layout {
            Layout::Dense(packing) => places(packing) * 4,
            Layout::Packed(_) => rows * 8 + table,
            Layout::Rows => {
                // As many bytes as the arrays have, and a word or two for each.
                let fixed = rows * (8 + 8 + 16 * self.spec.key_types.len()) + table;
                let text = |piece: &Piece| {
                    let keys = piece.keys.iter().map(|key| {
                        let data = key.to_data();
                        data.get_slice_memory_size().unwrap_or(data.get_buffer_memory_size())
                    });
                    keys.sum::<usize>()
                };
                fixed + self.pieces.iter().map(text).sum::<usize>()
            }
        };
        let payload = self.columns.iter().map(|c| c.memory_bytes_needed(&self.pieces));
        keys + chain + self.filter_bytes() + payload.sum::<usize>()
    }

    fn filter_bytes(&self) -> usize {
        self.filter.map_or(0, Shape::memory_bytes)
    }

    /// The phases that must be done before the payload is copied.
    fn payload_needs(&self) -> usize {
        usize::from(self.columns.iter().any(|column| column.unify_tasks() > 0))
    }

    fn work(&self) -> &Work {
        self.work.get_or_init(|| {
            let rows = self.rows;
            let keys = match &self.layout {
                Layout::Dense(packing) => {
                    // SAFETY: the tasks of the first phase set them.
                    Keys::Dense { first: unsafe { unset_u32(places(packing)) } }
                }
                Layout::Packed(_) => Keys::Packed {
                    keys: Shared::new(rows),
                    // SAFETY: the tasks of the first phase clear them.
                    slots: unsafe { AtomicBuckets::unset(slots::buckets_for(rows)) },
                },
                Layout::Rows => Keys::Rows {
                    chunks: (0..rows.div_ceil(KEY_ROWS)).map(|_| OnceLock::new()).collect(),
                    hashes: Shared::new(rows),
                    // SAFETY: as above.
                    slots: unsafe { AtomicBuckets::unset(slots::buckets_for(rows)) },
                },
            };
            // SAFETY: the tasks of the first phase clear it.
            let filter = self.filter.map(|shape| unsafe { AtomicFilter::unset(shape) });
            Work { keys, filter, chain: Chain::new(rows) }
        })
    }

    /// # Safety
    /// The task must run once only, and before those of the other phases.
    unsafe fn run_first(&self, task: usize) -> Result<()> {
        let cleared = self.table_bytes.div_ceil(CLEARED_BYTES);
        if task < cleared {
            // SAFETY: as the caller vouches.
            unsafe { self.clear(task) };
            return Ok(());
        }
        let mut rest = task - cleared;
        let cleared = self.filter_bytes().div_ceil(CLEARED_BYTES);
        if rest < cleared {
            // SAFETY: as the caller vouches.
            unsafe { self.clear_filter(rest) };
            return Ok(());
        }
        rest -= cleared;
        for column in &self.columns {
            if rest < column.unify_tasks() {
                return column.unify(rest, &self.pieces);
            }
            rest -= column.unify_tasks();
        }
        Err(no_task(0, task))
    }

    /// # Safety
    /// The task must run once only, and what it needs of the phases before must be done and visible.
    unsafe fn run_last(&self, task: usize) -> Result<()> {
        let key_tasks = self.rows.div_ceil(KEY_ROWS);
        if task < key_tasks {
            // SAFETY: as the caller vouches.
            return unsafe { self.insert(task) };
        }
        let copy = self.copies.get(task - key_tasks);
        let &(column, task) = copy.ok_or_else(|| no_task(PHASES - 1, task))?;
        // SAFETY: as the caller vouches.
        unsafe { self.columns[column].run(task, &self.pieces, &self.starts) }
    }

    /// Empties a part of the table.
    ///
    /// # Safety
    /// As [`Self::run_first`].
    unsafe fn clear(&self, task: usize) {
        match &self.work().keys {
            // SAFETY: the task's own part, which nobody else has before the next phase.
            Keys::Dense { first } => unsafe { shared::clear(part(first, task)) },
            Keys::Packed { slots, .. } | Keys::Rows { slots, .. } => {
                // SAFETY: as above.
                unsafe { shared::clear(part(slots.as_slice(), task)) }
            }
        }
    }

    /// The same of the filter.
    ///
    /// # Safety
    /// As [`Self::run_first`].
    unsafe fn clear_filter(&self, task: usize) {
        if let Some(filter) = &self.work().filter {
            // SAFETY: as above.
            unsafe { shared::clear(part(filter.words(), task)) }
        }
    }

    /// The packed keys of a task's rows, one piece after the other.
    fn packed(
        &self,
        packing: &Packing,
        task: usize,
        mut each: impl FnMut(usize, &[u64]),
    ) -> Result<()> {
        let start = task * KEY_ROWS;
        let mut keys = Vec::new();
        for (piece, of, at) in pieces_in(&self.starts, start..self.rows.min(start + KEY_ROWS)) {
            packing.pack(&slice(&self.pieces[piece], &of), of.len(), &mut keys)?;
            each(start + at, &keys);
        }
        Ok(())
    }

    /// # Safety
    /// The task must run once only.
    unsafe fn prepare(&self, task: usize) -> Result<()> {
        let Work { keys, filter, .. } = self.work();
        let filter = |keys: &[u64]| filter.iter().for_each(|filter| filter.add(keys));
        match (&self.layout, keys) {
            (Layout::Dense(packing), Keys::Dense { first }) => {
                self.packed(packing, task, |row, keys| {
                    dense::store(first, keys, row as u32);
                    filter(keys);
                })
            }
            (Layout::Packed(packing), Keys::Packed { keys: all, .. }) => {
                self.packed(packing, task, |row, keys| {
                    // SAFETY: the task's own rows.
                    let out = unsafe { all.zeroed(row..row + keys.len()) };
                    out.copy_from_slice(keys);
                    filter(keys);
                })
            }
            (_, Keys::Rows { chunks, hashes, .. }) => {
                let start = task * KEY_ROWS;
                let rows = start..self.rows.min(start + KEY_ROWS);
                let mut encoded = Encoded::default();
                encoded.clear();
                for (piece, of, _) in pieces_in(&self.starts, rows.clone()) {
                    let keys = slice(&self.pieces[piece], &of);
                    encoded.add(&self.spec.key_types, &keys, of.len(), self.spec.nulls_equal)?;
                }
                // SAFETY: the task's own rows.
                let out = unsafe { hashes.zeroed(rows) };
                out.copy_from_slice(&encoded.hashes);
                encoded.shrink();
                chunks[task].get_or_init(|| encoded);
                Ok(())
            }
            _ => Err(Error::internal("a join's keys are of another layout")),
        }
    }

    /// # Safety
    /// All tasks of the phase before must be done, and visible.
    unsafe fn insert(&self, task: usize) -> Result<()> {
        let Work { keys, chain, .. } = self.work();
        match (&self.layout, keys) {
            (Layout::Dense(packing), Keys::Dense { first }) => {
                self.packed(packing, task, |row, keys| {
                    dense::verify(first, keys, row as u32, chain);
                })
            }
            (_, Keys::Packed { keys, slots }) => {
                // SAFETY: they were written in the phase before.
                let keys = unsafe { keys.all() };
                let start = task * KEY_ROWS;
                let own = &keys[start..self.rows.min(start + KEY_ROWS)];
                slots::insert(slots.as_slice(), own, start as u32, keys, chain, |_, _| true);
                Ok(())
            }
            (_, Keys::Rows { chunks, hashes, slots }) => {
                // SAFETY: they were written in the phase before.
                let hashes = unsafe { hashes.all() };
                let chunks = chunks
                    .iter()
                    .map(OnceLock::get)
                    .collect::<Option<Vec<_>>>()
                    .ok_or_else(|| Error::internal("a join's rows are not encoded"))?;
                let row = |row: u32| chunks[row as usize / KEY_ROWS].row(row as usize % KEY_ROWS);
                let start = task * KEY_ROWS;
                let own = &hashes[start..self.rows.min(start + KEY_ROWS)];
                slots::insert(slots.as_slice(), own, start as u32, hashes, chain, |a, b| {
                    row(a) == row(b)
                });
                Ok(())
            }
            _ => Err(Error::internal("a join's keys are of another layout")),
        }
    }
}

impl Phases for Building {
    type Output = Table;

    fn rows(&self) -> usize {
        self.rows
    }

    fn phases(&self) -> usize {
        PHASES
    }

    fn tasks(&self, phase: usize) -> usize {
        self.progress.taken[phase].len()
    }

    fn early_tasks(&self, phase: usize) -> usize {
        if phase >= self.payload_needs() { self.copies.len() } else { 0 }
    }

    /// Does a task; each once, and none before all that it needs are done.
    fn run(&self, phase: usize, task: usize) -> Result<()> {
        let copies = phase == PHASES - 1 && task >= self.tasks(phase) - self.copies.len();
        let needed = if copies { self.payload_needs() } else { phase };
        self.progress.begin(phase, task, needed)?;
        // SAFETY: `begin` let this task through, so that nobody else runs it, and what was written in
        // the phases that it needs is visible.
        unsafe {
            match phase {
                0 => self.run_first(task)?,
                1 => self.prepare(task)?,
                _ => self.run_last(task)?,
            }
        }
        self.progress.end(phase);
        Ok(())
    }

    /// The table, when all tasks are done.
    fn finish(self) -> Result<Table> {
        self.progress.check_done()?;
        self.work();
        let Some(Work { keys, filter, chain }) = self.work.into_inner() else {
            return Err(Error::internal("a join's table was not begun"));
        };
        let found = match (self.layout, keys) {
            (Layout::Dense(packing), Keys::Dense { first }) => {
                Found::Dense { packing, first: settled_u32(first) }
            }
            (Layout::Packed(packing), Keys::Packed { slots, .. }) => {
                Found::Packed { packing, slots: slots.settle() }
            }
            (_, Keys::Rows { chunks, slots, .. }) => Found::Rows {
                chunks: chunks.into_iter().filter_map(OnceLock::into_inner).collect(),
                slots: slots.settle(),
            },
            _ => return Err(Error::internal("a join's keys are of another layout")),
        };
        let payload = self
            .columns
            .into_iter()
            .map(|column| {
                // SAFETY: all tasks are done, as was checked.
                unsafe { column.finish(&self.pieces) }
            })
            .collect::<Result<Vec<_>>>()?;
        let ranges = self.bounds.iter().zip(&self.spec.key_types).map(|(bounds, logical)| {
            let words = encoding::is_word(logical) || logical.is_decimal();
            (words && !bounds.misfit && !bounds.is_empty()).then_some((bounds.min, bounds.max))
        });
        Ok(Table::new(
            self.rows,
            self.bounds.iter().any(|b| b.nulls),
            ranges.collect(),
            Index { found, filter: filter.map(AtomicFilter::settle), next: chain.settle() },
            payload,
            self.spec,
        ))
    }
}

fn no_task(phase: usize, task: usize) -> Error {
    Error::internal(format!("a join has no task {task} in phase {phase}"))
}

fn layout(bounds: &[Bounds], nulls_equal: bool, rows: usize, limits: &Limits) -> Layout {
    let rows = rows as u64;
    let cached = limits.dense_places.min(rows * limits.dense_places_per_row);
    let large = rows * limits.large_dense_places_per_row;
    let places = limits.small_dense_places.max(cached).max(large);
    match Packing::new(bounds, nulls_equal) {
        None => Layout::Rows,
        Some(packing) if packing.count <= places => Layout::Dense(packing),
        Some(packing) => Layout::Packed(packing),
    }
}

impl Layout {
    /// What stands in front of the table.
    fn filter(&self, rows: usize, limits: &Limits) -> Option<Shape> {
        match self {
            _ if rows == 0 => None,
            Layout::Dense(packing) => {
                let count = packing.count;
                let sparse = count / limits.dense_filter_places_per_row >= rows as u64;
                (count > limits.dense_filter_places && sparse).then(|| Shape::bitmap(count, count))
            }
            Layout::Packed(packing) => Shape::new(packing.count, rows, bucket_bytes(rows), limits),
            Layout::Rows => None,
        }
    }
}

fn bucket_bytes(rows: usize) -> usize {
    slots::buckets_for(rows) * size_of::<AtomicBucket>()
}

/// Of a dense table: one more, for keys that are out of range.
fn places(packing: &Packing) -> usize {
    packing.count as usize + 1
}

/// A task's part of a table that is emptied.
fn part<T>(table: &[T], task: usize) -> &[T] {
    let all = CLEARED_BYTES / size_of::<T>();
    let end = table.len().min((task + 1) * all);
    &table[end.min(task * all)..end]
}

fn slice(piece: &Piece, of: &std::ops::Range<usize>) -> Vec<ArrayRef> {
    if of.len() == piece.rows {
        piece.keys.clone()
    } else {
        piece.keys.iter().map(|key| key.slice(of.start, of.len())).collect()
    }
}

/// Which tasks are taken, and how many are left: so that each runs once, and none before those that it
/// needs are done. The tasks' access to shared memory rests on it.
struct Progress {
    taken: [Box<[AtomicBool]>; PHASES],
    left: [AtomicUsize; PHASES],
}

impl Progress {
    fn new(tasks: [usize; PHASES]) -> Self {
        Self {
            taken: tasks.map(|n| (0..n).map(|_| AtomicBool::new(false)).collect()),
            left: tasks.map(AtomicUsize::new),
        }
    }

    /// `needed`: how many phases must be done.
    fn begin(&self, phase: usize, task: usize, needed: usize) -> Result<()> {
        let taken = self.taken.get(phase).and_then(|tasks| tasks.get(task));
        let taken = taken.ok_or_else(|| no_task(phase, task))?;
        // Acquire: with the Release of each `end`, what was written before is visible.
        if self.left[..needed].iter().any(|left| left.load(Ordering::Acquire) > 0) {
            let message =
                format!("a join's phase {phase} was begun before the one before it ended");
            return Err(Error::internal(message));
        }
        if taken.swap(true, Ordering::Relaxed) {
            let message = format!("task {task} in phase {phase} of a join was begun twice");
            return Err(Error::internal(message));
        }
        Ok(())
    }

    fn end(&self, phase: usize) {
        self.left[phase].fetch_sub(1, Ordering::Release);
    }

    fn check_done(&self) -> Result<()> {
        if self.left.iter().any(|left| left.load(Ordering::Acquire) > 0) {
            return Err(Error::internal("a join's table was wanted before all tasks were done"));
        }
        Ok(())
    }
}
