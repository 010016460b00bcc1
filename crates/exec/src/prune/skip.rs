//! Which chunk of a table a scan reads next, and why not the others.
//!
//! Extents are judged first, all at once, by their folded statistics; then, when the scan comes to
//! it, each of those that are left, chunk by chunk. So a look-up in a table of a million chunks
//! judges ten thousand extents and the chunks of one. A top-k says in which order it would like
//! them ([`ReadOrder`]). When a dynamic filter changes, the extents
//! and the chunks of the one in hand are judged again.

use std::sync::Arc;

use arrow::array::{Array, make_array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::{SortOptions, sort_to_indices};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, DynamicFilterPhysicalExpr, IsNullExpr, Literal,
};
use datafusion::physical_expr_common::physical_expr::snapshot_generation;
use parking_lot::Mutex;
use thalweg_base::Result;
use thalweg_storage::{ChunkRef, ChunkStatistics, Contents, Digests};

use super::compile::compile;
use super::predicate::{Containers, Look, Predicate, Question};

/// In which order chunks are read: those first that may have the first rows of `ORDER BY` a column.
/// The sooner a top-k has these, the fewer chunks are left that may have better ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOrder {
    pub column: usize,
    pub options: SortOptions,
}

impl ReadOrder {
    fn of(self, statistics: &ChunkStatistics) -> Vec<usize> {
        let bound = match self.options.descending {
            true => &statistics.maxs,
            false => &statistics.mins,
        };
        let mut nulls = bound.logical_nulls();
        if self.options.nulls_first {
            let none: NullBuffer = statistics.nulls.values().iter().map(|&n| n == 0).collect();
            nulls = NullBuffer::union(nulls.as_ref(), Some(&none));
        }
        let data = bound.to_data().into_builder().nulls(nulls).build();
        let order = data.and_then(|d| sort_to_indices(&make_array(d), Some(self.options), None));
        match order {
            Ok(order) => order.values().iter().map(|&i| i as usize).collect(),
            // A type that cannot be ordered: any order is right.
            Err(_) => (0..bound.len()).collect(),
        }
    }
}

/// Why a chunk is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Minimum, maximum, number of NULLs.
    Bounds,
    /// Its extent is of another bucket of the table's partitioning.
    Partition,
    /// The digest of its values, or the list of those of its extent.
    Digest,
    /// What a join has learned from its build side.
    Join,
    /// What a top-k, or MIN and MAX, have found so far.
    TopK,
    /// It has no row left.
    Deleted,
}

impl Cause {
    /// Who made a dynamic filter. It does not say, but joins bound their keys on both sides or list
    /// them, and a top-k bounds its own on one.
    pub fn of(expr: &Arc<dyn PhysicalExpr>) -> Cause {
        if let Some(dynamic) = expr.downcast_ref::<DynamicFilterPhysicalExpr>() {
            return dynamic.current().map_or(Cause::TopK, |current| Cause::of(&current));
        }
        let Some(binary) = expr.downcast_ref::<BinaryExpr>() else {
            let constant = expr.downcast_ref::<Literal>().is_some();
            let null = expr.downcast_ref::<IsNullExpr>().is_some();
            return if constant || null { Cause::TopK } else { Cause::Join };
        };
        let operator = |e: &Arc<dyn PhysicalExpr>| e.downcast_ref::<BinaryExpr>().map(|e| *e.op());
        let sides = (operator(binary.left()), operator(binary.right()));
        match binary.op() {
            Operator::And if sides == (Some(Operator::GtEq), Some(Operator::LtEq)) => Cause::Join,
            Operator::And | Operator::Or => match Cause::of(binary.left()) {
                Cause::TopK => Cause::of(binary.right()),
                other => other,
            },
            _ => Cause::TopK,
        }
    }

    pub const ALL: [Cause; 6] =
        [Cause::Bounds, Cause::Partition, Cause::Digest, Cause::Join, Cause::TopK, Cause::Deleted];

    /// As `EXPLAIN ANALYZE` calls it.
    pub fn metric(self) -> &'static str {
        match self {
            Cause::Bounds => "chunks_pruned_by_bounds",
            Cause::Partition => "chunks_pruned_by_partition",
            Cause::Digest => "chunks_pruned_by_digest",
            Cause::Join => "chunks_pruned_by_join",
            Cause::TopK => "chunks_pruned_by_topk",
            Cause::Deleted => "chunks_pruned_as_deleted",
        }
    }
}

/// Chunks passed over, per cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned([usize; Cause::ALL.len()]);

impl Pruned {
    fn add(&mut self, cause: Cause, chunks: usize) {
        self.0[cause as usize] += chunks;
    }

    pub fn by(&self, cause: Cause) -> usize {
        self.0[cause as usize]
    }

    pub fn total(&self) -> usize {
        self.0.iter().sum()
    }
}

/// A filter as it is handed to a [`Skipper`].
pub struct Filter {
    pub expr: Arc<dyn PhysicalExpr>,
    /// It may change while the query runs.
    pub dynamic: bool,
}

pub enum Next {
    Chunk(ChunkRef),
    /// Load these outside of any slot, [`Skipper::supply`] them, and ask again.
    Digests(Wanted),
    End,
}

/// Digests that are cheaper to read than the chunks they may rule out.
pub struct Wanted {
    contents: Arc<Contents>,
    extent: usize,
    columns: Vec<usize>,
}

/// Digests of the columns of one extent.
#[derive(Default)]
pub struct Loaded {
    extent: usize,
    columns: Vec<(usize, Digests)>,
}

impl Wanted {
    /// Blocks on the store.
    pub fn load(self) -> Result<Loaded> {
        let mut columns = vec![];
        for column in self.columns {
            let cached = self.contents.cached_digests(self.extent, column);
            let digests = match cached {
                Some(digests) => Some(digests),
                None => self.contents.read_digests(self.extent, column)?,
            };
            columns.extend(digests.map(|digests| (column, digests)));
        }
        Ok(Loaded { extent: self.extent, columns })
    }

    /// The same, if nothing has to be read for it.
    fn cached(&self) -> Option<Loaded> {
        let digests =
            |&column: &usize| Some((column, self.contents.cached_digests(self.extent, column)?));
        let columns = self.columns.iter().map(digests).collect::<Option<Vec<_>>>()?;
        Some(Loaded { extent: self.extent, columns })
    }
}

/// Hands out the chunks of a table that may have a row which passes all filters, each once, to
/// any number of readers.
pub struct Skipper {
    contents: Arc<Contents>,
    order: Option<ReadOrder>,
    /// In which order extents are read; `None`: as they lie.
    extents_order: Option<Vec<usize>>,
    fixed: Vec<Predicate>,
    /// Columns of which a digest may tell more than the bounds.
    hashed: Vec<usize>,
    state: Mutex<State>,
}

struct State {
    changing: Vec<Changing>,
    generation: u64,
    /// By the fixed filters alone; judged once.
    extents_fixed: Option<Kept>,
    extents: Kept,
    /// Which in order is the extent in hand, or the next.
    at: usize,
    chunks: Option<Chunks>,
    loaded: Option<Loaded>,
    pruned: Pruned,
}

/// A filter that may still change, as it is now.
struct Changing {
    expr: Arc<dyn PhysicalExpr>,
    predicate: Predicate,
    cause: Cause,
}

/// The chunks of the extent in hand.
struct Chunks {
    first: usize,
    next: usize,
    /// Up to where they have been named as upcoming.
    announced: usize,
    /// `None`: as they lie.
    order: Option<Vec<usize>>,
    kept: Kept,
}

/// What is left of some containers after each kind of reasoning, in order.
#[derive(Clone)]
struct Kept {
    all: BooleanBuffer,
    after: Vec<(Cause, BooleanBuffer)>,
}

impl Kept {
    fn all(containers: usize) -> Self {
        Kept { all: BooleanBuffer::new_set(containers), after: vec![] }
    }

    fn left(&self) -> &BooleanBuffer {
        self.after.last().map_or(&self.all, |(_, left)| left)
    }

    fn cause(&self, i: usize) -> Option<Cause> {
        if self.left().value(i) {
            return None;
        }
        self.after.iter().find(|(_, left)| !left.value(i)).map(|(cause, _)| *cause)
    }

    fn narrow<'a>(
        &mut self,
        cause: Cause,
        predicates: impl IntoIterator<Item = &'a Predicate>,
        containers: &dyn Containers,
        look: Look,
    ) {
        let mut left = self.left().clone();
        for predicate in predicates {
            if left.count_set_bits() == 0 {
                break;
            }
            let question = Question { containers, look, asked: &left };
            left = &left & &predicate.outcomes(question).yes;
        }
        self.after.push((cause, left));
    }
}

impl Skipper {
    pub fn new(
        contents: Arc<Contents>,
        filters: impl IntoIterator<Item = Filter>,
        order: Option<ReadOrder>,
    ) -> Self {
        let (mut fixed, mut changing) = (vec![], vec![]);
        for Filter { expr, dynamic } in filters {
            let predicate = compile(&expr, &contents.arrow_schema);
            match dynamic {
                false => fixed.push(predicate),
                true => {
                    let cause = Cause::of(&expr);
                    changing.push(Changing { expr, predicate, cause });
                }
            }
        }
        let mut hashed: Vec<usize> = fixed.iter().flat_map(Predicate::hashed_columns).collect();
        hashed.sort_unstable();
        hashed.dedup();
        let state = State {
            changing,
            generation: 0,
            extents_fixed: None,
            extents: Kept::all(0),
            at: 0,
            chunks: None,
            loaded: None,
            pruned: Pruned::default(),
        };
        let extents_order = order.map(|o| o.of(&contents.extent_statistics(o.column)));
        Skipper { contents, order, extents_order, fixed, hashed, state: Mutex::new(state) }
    }

    /// The extent in hand, or the next.
    fn extent(&self, state: &State) -> usize {
        self.extents_order.as_ref().map_or(state.at, |order| order[state.at])
    }

    /// The next chunk to read.
    pub fn next(&self) -> Next {
        let mut state = self.state.lock();
        let state = &mut *state;
        self.refresh(state);
        loop {
            if let Some(chunk) = self.next_in_extent(state) {
                return Next::Chunk(chunk);
            }
            if state.at == self.contents.extents() {
                return Next::End;
            }
            let extent = self.extent(state);
            if let Some(cause) = state.extents.cause(extent) {
                state.pruned.add(cause, self.contents.chunks_of(extent).len());
                state.at += 1;
                continue;
            }
            let kept = self.judge_chunks(state);
            if let Some(wanted) = self.digests_wanted(state, &kept) {
                match wanted.cached() {
                    Some(loaded) => state.loaded = Some(loaded),
                    None => return Next::Digests(wanted),
                }
                continue;
            }
            let first = self.contents.chunks_of(extent).start;
            let order = self.order.map(|o| o.of(&self.contents.statistics_in(extent, o.column)));
            state.chunks = Some(Chunks { first, next: 0, announced: 0, order, kept });
        }
    }

    /// How many chunks are left to read, or `most`, without reading anything to find out.
    pub fn left(self, most: usize) -> usize {
        for left in 0..most {
            match self.next() {
                Next::Chunk(_) => {}
                Next::Digests(_) => return most,
                Next::End => return left,
            }
        }
        most
    }

    /// Takes what [`Next::Digests`] asked for.
    pub fn supply(&self, loaded: Loaded) {
        let mut state = self.state.lock();
        // Another reader may have had the same wish, and be past it.
        if state.at < self.contents.extents() && loaded.extent == self.extent(&state) {
            state.loaded = Some(loaded);
        }
    }

    /// What was passed over since this was last asked.
    pub fn take_pruned(&self) -> Pruned {
        std::mem::take(&mut self.state.lock().pruned)
    }

    /// Those of the next places that will be handed out, as far as that is known: of the extent in hand,
    /// and if no filter changes before. As many places as were passed in it, and at most `most`: who
    /// stops soon has little read in vain. Each comes once.
    pub fn upcoming(&self, most: usize) -> Vec<ChunkRef> {
        let mut state = self.state.lock();
        let Some(chunks) = &mut state.chunks else { return vec![] };
        let to = chunks.kept.all.len().min(chunks.next + chunks.next.min(most));
        let from = chunks.announced.max(chunks.next);
        chunks.announced = from.max(to);
        let chunks = &*chunks;
        (from..to).filter_map(|place| self.chunk(chunks, place).ok()).collect()
    }

    fn next_in_extent(&self, state: &mut State) -> Option<ChunkRef> {
        let chunks = state.chunks.as_mut()?;
        while chunks.next < chunks.kept.all.len() {
            let place = chunks.next;
            chunks.next += 1;
            match self.chunk(chunks, place) {
                Ok(chunk) => return Some(chunk),
                Err(cause) => state.pruned.add(cause, 1),
            }
        }
        state.chunks = None;
        state.at += 1;
        None
    }

    /// The chunk at a place in the order, or why it is passed over.
    fn chunk(&self, chunks: &Chunks, place: usize) -> std::result::Result<ChunkRef, Cause> {
        let i = chunks.order.as_ref().map_or(place, |order| order[place]);
        if let Some(cause) = chunks.kept.cause(i) {
            return Err(cause);
        }
        let chunk = self.contents.chunk(chunks.first + i);
        let empty = self.contents.deleted_rows() > 0 && chunk.live_rows() == 0;
        if empty { Err(Cause::Deleted) } else { Ok(chunk) }
    }

    /// Brings the verdicts up to what the filters are now.
    fn refresh(&self, state: &mut State) {
        let generation = state
            .changing
            .iter()
            .fold(0u64, |sum, c| sum.wrapping_add(snapshot_generation(&c.expr)));
        if state.extents_fixed.is_some() && state.generation == generation {
            return;
        }
        state.generation = generation;
        for changing in &mut state.changing {
            changing.predicate = compile(&changing.expr, &self.contents.arrow_schema);
            changing.cause = Cause::of(&changing.expr);
        }
        let fixed = state.extents_fixed.get_or_insert_with(|| self.judge_extents());
        let mut extents = fixed.clone();
        let containers = Extents { contents: &self.contents, buckets: false };
        for changing in &state.changing {
            extents.narrow(changing.cause, [&changing.predicate], &containers, Look::Values);
        }
        state.extents = extents;
        if let Some(mut chunks) = state.chunks.take() {
            chunks.kept = self.judge_chunks(state);
            state.chunks = Some(chunks);
        }
    }

    /// By the fixed filters.
    fn judge_extents(&self) -> Kept {
        let mut kept = Kept::all(self.contents.extents());
        let extents = |buckets| Extents { contents: &self.contents, buckets };
        kept.narrow(Cause::Bounds, &self.fixed, &extents(false), Look::Bounds);
        if !self.hashed.is_empty() {
            if self.contents.partition_by.is_some() {
                kept.narrow(Cause::Partition, &self.fixed, &extents(true), Look::Values);
            }
            kept.narrow(Cause::Digest, &self.fixed, &extents(false), Look::Values);
        }
        kept
    }

    /// The chunks of the extent in hand, by all filters.
    fn judge_chunks(&self, state: &State) -> Kept {
        let extent = self.extent(state);
        let loaded = state.loaded.as_ref().filter(|loaded| loaded.extent == extent);
        let containers = ChunksOf { contents: &self.contents, extent, loaded };
        let mut kept = Kept::all(containers.len());
        kept.narrow(Cause::Bounds, &self.fixed, &containers, Look::Bounds);
        if loaded.is_some() {
            kept.narrow(Cause::Digest, &self.fixed, &containers, Look::Values);
        }
        for changing in &state.changing {
            kept.narrow(changing.cause, [&changing.predicate], &containers, Look::Values);
        }
        kept
    }

    /// The digests that are worth reading for the extent in hand: they are smaller than what the
    /// chunks that are left store of the column.
    fn digests_wanted(&self, state: &State, kept: &Kept) -> Option<Wanted> {
        let extent = self.extent(state);
        if state.loaded.as_ref().is_some_and(|loaded| loaded.extent == extent) {
            return None;
        }
        let changing = state.changing.iter().flat_map(|c| c.predicate.hashed_columns());
        let mut columns: Vec<usize> = self.hashed.iter().copied().chain(changing).collect();
        columns.sort_unstable();
        columns.dedup();
        columns.retain(|&column| {
            let bytes = self.contents.digest_bytes(extent, column);
            bytes > 0 && {
                let statistics = self.contents.statistics_in(extent, column);
                let stored = statistics.stored_bytes.values();
                bytes < kept.left().set_indices().map(|chunk| stored[chunk]).sum()
            }
        });
        let contents = Arc::clone(&self.contents);
        (!columns.is_empty()).then_some(Wanted { contents, extent, columns })
    }
}

/// Extents as a whole.
struct Extents<'a> {
    contents: &'a Contents,
    /// Tell values apart by the bucket they belong to, and by nothing else.
    buckets: bool,
}

impl Containers for Extents<'_> {
    fn len(&self) -> usize {
        self.contents.extents()
    }

    fn statistics(&self, column: usize) -> Arc<ChunkStatistics> {
        self.contents.extent_statistics(column)
    }

    fn may_hold(&self, column: usize, extent: usize, hash: u64) -> bool {
        match self.buckets {
            true => self.contents.in_bucket(extent, column, hash),
            false => self.contents.in_sketch(extent, column, hash),
        }
    }
}

/// The chunks of one extent.
struct ChunksOf<'a> {
    contents: &'a Contents,
    extent: usize,
    loaded: Option<&'a Loaded>,
}

impl Containers for ChunksOf<'_> {
    fn len(&self) -> usize {
        self.contents.chunks_of(self.extent).len()
    }

    fn statistics(&self, column: usize) -> Arc<ChunkStatistics> {
        self.contents.statistics_in(self.extent, column)
    }

    fn may_hold(&self, column: usize, chunk: usize, hash: u64) -> bool {
        let digests = self.loaded.iter().flat_map(|l| &l.columns).find(|(c, _)| *c == column);
        digests.is_none_or(|(_, digests)| digests.may_hold(chunk, hash))
    }
}
