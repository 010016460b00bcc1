//! Rewriting extents so that there are few of them, without deleted rows, and in the table's order.
//!
//! What is worth rewriting is decided by [`plan`], from the catalog alone. Small extents are put
//! together, and extents of which much is deleted are written anew. In a clustered table each
//! load leaves runs that are sorted by themselves and overlap all others; those are merged by
//! ranges of the first cluster column: per range the rows are read from every chunk that has some,
//! and sorted as one run, so memory is bounded by a run and not by the table.
//!
//! The result is one commit with the same rows. Readers keep their snapshot; a writer that deleted
//! some of the rows meanwhile wins, and the rewriting is given up. That of the background also gives way
//! to transactions of several statements, which may be about to delete some.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, make_comparator};
use arrow::compute::{FilterBuilder, SortOptions, and, concat};
use thalweg_base::limits::{
    CLUSTER_SORT_BYTES_MAX, COMPACT_DELETED_PERCENT, COMPACT_EXTENTS_MIN, COMPACT_OVERLAP_MAX,
    EXTENT_BYTES_TARGET,
};
use thalweg_base::{Error, Result};

use crate::catalog::Summary;
use crate::database::Database;
use crate::encoded::expand;
use crate::extent::{ExtentWriter, Layout, Segment};
use crate::table::{ChunkRef, Contents};
use crate::table::{Table, TableExtent};

/// How much to rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionScope {
    /// What costs queries more than it costs to rewrite: for the background.
    Worthwhile,
    /// Everything that can be better than it is: for `OPTIMIZE TABLE`.
    Everything,
}

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    pub extents_before: u64,
    pub extents_after: u64,
    pub bytes_before: u64,
    pub bytes_after: u64,
    pub rows: u64,
    /// Deleted rows that no longer take space.
    pub rows_removed: u64,
}

/// What the plan needs to know of an extent.
struct Candidate {
    bytes: u64,
    rows: u64,
    deleted: u64,
    bucket: Option<u32>,
}

/// Positions of extents that are to become new ones, group by group.
fn plan(
    extents: &[Candidate],
    scope: CompactionScope,
    overlap: impl Fn(&[usize]) -> f64,
    clustered: bool,
) -> Vec<Vec<usize>> {
    let everything = scope == CompactionScope::Everything;
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut buckets: Vec<Option<u32>> = extents.iter().map(|e| e.bucket).collect();
    buckets.sort_unstable();
    buckets.dedup();
    for bucket in buckets {
        let of: Vec<usize> = (0..extents.len()).filter(|&i| extents[i].bucket == bucket).collect();
        let worn = |i: &usize| {
            let e = &extents[*i];
            let percent = if everything { 0 } else { COMPACT_DELETED_PERCENT };
            e.deleted * 100 > e.rows * percent
        };
        let small = |i: &usize| extents[*i].bytes < EXTENT_BYTES_TARGET / 4;
        let limit = if everything { 1.0 } else { COMPACT_OVERLAP_MAX };
        if clustered && of.len() > 1 && overlap(&of) > limit {
            groups.push(of);
            continue;
        }
        // Neighbours, up to the size of an extent: rows stay near those they came with.
        let mut group: Vec<usize> = Vec::new();
        let mut bytes = 0;
        let mut close = |group: &mut Vec<usize>| {
            let enough = if everything { 2 } else { COMPACT_EXTENTS_MIN };
            if group.len() >= enough || group.iter().any(worn) {
                groups.push(std::mem::take(group));
            }
            group.clear();
        };
        for i in of {
            if !small(&i) && !worn(&i) {
                continue;
            }
            if bytes + extents[i].bytes > EXTENT_BYTES_TARGET {
                close(&mut group);
                bytes = 0;
            }
            bytes += extents[i].bytes;
            group.push(i);
        }
        close(&mut group);
    }
    groups
}

/// Rows to be read and written: a chunk, or the part of one that is in a range.
struct Task {
    chunk: ChunkRef,
    /// Of the first cluster column; `None`: all rows.
    range: Option<Arc<Range>>,
    /// The last of its range or group: what follows is another run.
    ends_run: bool,
}

/// Of the first cluster column: `from` included, `to` not. NULLs come first, as they sort.
struct Range {
    from: Option<ArrayRef>,
    to: Option<ArrayRef>,
}

/// The compressed columns of a task, between [`Compaction::fetch`] and [`Compaction::take`].
pub struct CompactionPiece {
    task: Task,
    segments: Vec<Segment>,
}

/// A compaction that runs, in steps, so that whoever drives it can give way between them.
pub struct Compaction {
    database: Database,
    table: Arc<Table>,
    cluster_by: Option<usize>,
    removed: Vec<TableExtent>,
    tasks: VecDeque<Task>,
    writer: ExtentWriter,
    bytes_done: u64,
    bytes_total: u64,
    _writing: Arc<crate::Writing>,
}

impl Compaction {
    /// `None`: nothing is to be gained. Blocks on the store and on another process that writes.
    pub fn begin(
        database: &Database,
        table: &Arc<Table>,
        scope: CompactionScope,
    ) -> Result<Option<Compaction>> {
        let writing = database.writing()?;
        let contents = table.contents()?;
        let candidates: Vec<Candidate> = table
            .extents
            .iter()
            .map(|e| Candidate {
                bytes: e.extent.bytes,
                rows: e.extent.rows,
                deleted: e.deleted.as_ref().map_or(0, |d| d.rows()),
                bucket: e.extent.bucket,
            })
            .collect();
        let key = table.cluster_by.first().copied();
        let overlap = |of: &[usize]| key.map_or(0.0, |key| overlap(&contents, key, of));
        let groups = plan(&candidates, scope, overlap, key.is_some());
        if groups.is_empty() {
            return Ok(None);
        }
        let mut tasks = VecDeque::new();
        for group in &groups {
            match key {
                Some(key) => by_ranges(&contents, key, group, &mut tasks)?,
                None => in_order(&contents, group, &mut tasks),
            }
        }
        let removed: Vec<TableExtent> =
            groups.iter().flatten().map(|&i| table.extents[i].clone()).collect();
        let columns = 0..table.arrow_schema.fields().len();
        let bytes_total =
            tasks.iter().map(|t| columns.clone().map(|c| t.chunk.stored_bytes(c)).sum::<u64>());
        Ok(Some(Compaction {
            database: database.clone(),
            table: table.clone(),
            cluster_by: key,
            removed,
            bytes_total: bytes_total.sum(),
            tasks,
            writer: database.extent_writer(Layout::of(table)),
            bytes_done: 0,
            _writing: writing,
        }))
    }

    /// Compressed bytes read, and to be read in all.
    pub fn progress(&self) -> (u64, u64) {
        (self.bytes_done, self.bytes_total)
    }

    /// Fetches the next rows: blocks on the store. `None`: that was all.
    pub fn fetch(&mut self) -> Result<Option<CompactionPiece>> {
        let Some(task) = self.tasks.pop_front() else { return Ok(None) };
        let columns: Vec<usize> = (0..self.table.arrow_schema.fields().len())
            .filter(|&c| task.chunk.place(c).is_some())
            .collect();
        let segments = self.database.read(&task.chunk, &columns)?;
        self.bytes_done += segments.iter().map(|s| s.bytes() as u64).sum::<u64>();
        Ok(Some(CompactionPiece { task, segments }))
    }

    /// Decodes them and hands those that are wanted to the writer.
    pub fn take(&mut self, piece: CompactionPiece) -> Result<()> {
        let CompactionPiece { task, segments } = piece;
        let mut segments = segments.into_iter();
        let schema = &self.table.arrow_schema;
        let mut arrays = Vec::with_capacity(schema.fields().len());
        for column in 0..schema.fields().len() {
            arrays.push(match task.chunk.place(column) {
                // Not by way of the cache: a compaction reads once what queries read often.
                Some(_) => match segments.next() {
                    Some(segment) => segment.decode()?,
                    None => return Err(Error::internal("a column was not read")),
                },
                None => task.chunk.constant(column),
            });
        }
        let internal = |e| Error::internal("cannot filter a chunk").source(e);
        let plain =
            |array: &ArrayRef, column: usize| expand(array, schema.field(column).data_type());
        let mut wanted = task.chunk.live().map(|live| BooleanArray::new(live, None));
        if let (Some(range), Some(key)) = (&task.range, self.cluster_by) {
            let inside = range.contains(&plain(&arrays[key], key)?)?;
            wanted = Some(match wanted {
                Some(live) => and(&live, &inside).map_err(internal)?,
                None => inside,
            });
        }
        // As they are encoded they are smaller to filter, and only what is left is expanded.
        let rows = wanted.map(|wanted| FilterBuilder::new(&wanted).optimize().build());
        for (column, array) in arrays.iter_mut().enumerate() {
            if let Some(rows) = &rows {
                *array = rows.filter(array).map_err(internal)?;
            }
            *array = plain(array, column)?;
        }
        let batch = RecordBatch::try_new(schema.clone(), arrays)
            .map_err(|e| Error::internal("columns do not make a batch").source(e))?;
        self.writer.push(&batch)?;
        if task.ends_run && self.cluster_by.is_some() {
            self.writer.flush()?;
        }
        Ok(())
    }

    /// Sorts or compresses one piece of what was taken; `false`: there is nothing to do.
    pub fn work(&mut self) -> Result<bool> {
        self.writer.step()
    }

    /// Commits: blocks. A conflict if rows of these extents were changed meanwhile.
    ///
    /// `gives_way`: nothing is committed, and `None` returned, while a transaction holds the database,
    /// which might want to change rows where it has seen them.
    pub fn finish(self, gives_way: bool) -> Result<Option<Compacted>> {
        let Compaction { database, table, removed, writer, .. } = self;
        let yields = || gives_way && database.is_held();
        if yields() {
            return Ok(None);
        }
        let rows = writer.rows();
        let added = writer.finish()?;
        let before: u64 = removed.iter().map(|e| e.extent.rows).sum();
        let report = Compacted {
            extents_before: removed.len() as u64,
            extents_after: added.len() as u64,
            bytes_before: removed.iter().map(|e| e.extent.bytes).sum(),
            bytes_after: added.iter().map(|e| e.bytes()).sum(),
            rows,
            rows_removed: before - rows,
        };
        let live: u64 = removed.iter().map(TableExtent::rows).sum();
        if rows != live {
            return Err(Error::internal(format!(
                "compacting table {:?} would make {rows} rows of {live}",
                table.name
            )));
        }
        let mut transaction = database.begin();
        transaction.rewrite(table.id, removed, added)?;
        let schema = transaction.snapshot().named_tables().find(|(_, t)| t.id == table.id);
        let name = schema.map_or(String::new(), |(schema, t)| format!("{schema}.{}", t.name));
        transaction.describe(Summary {
            operation: "COMPACT".to_owned(),
            table: name,
            ..Summary::default()
        });
        // Writing the last extents took a while.
        if yields() {
            return Ok(None);
        }
        transaction.commit()?;
        Ok(Some(report))
    }
}

/// How many of the chunks of these extents a value lies in, on average over their chunks: 1 in a
/// sorted table. Chunks without bounds count as lying everywhere.
fn overlap(contents: &Contents, key: usize, extents: &[usize]) -> f64 {
    let bounds = Bounds::of(contents, key, extents);
    let n = bounds.mins.len();
    let Some(compare) = bounds.comparator().filter(|_| n > 0) else { return n as f64 };
    // Chunk i meets all that begin before it ends, but those that end before it begins.
    let mut begins: Vec<usize> = (0..n).collect();
    begins.sort_by(|&a, &b| compare(Side::Min(a), Side::Min(b)));
    let mut ends: Vec<usize> = (0..n).collect();
    ends.sort_by(|&a, &b| compare(Side::Max(a), Side::Max(b)));
    let met: usize = (0..n)
        .map(|i| {
            // Touching at one value, as neighbours of a sorted table do, is not overlapping.
            let begun =
                begins.partition_point(|&j| compare(Side::Min(j), Side::Max(i)) == Ordering::Less);
            let ended =
                ends.partition_point(|&j| compare(Side::Max(j), Side::Min(i)) != Ordering::Greater);
            begun.saturating_sub(ended).max(1)
        })
        .sum();
    met as f64 / n as f64
}

#[derive(Clone, Copy)]
enum Side {
    Min(usize),
    Max(usize),
}

/// The bounds of chunks of some extents.
struct Bounds {
    mins: ArrayRef,
    maxs: ArrayRef,
    /// Positions in the table, and plain bytes of each.
    chunks: Vec<usize>,
}

impl Bounds {
    fn of(contents: &Contents, key: usize, extents: &[usize]) -> Bounds {
        let parts: Vec<_> = extents.iter().map(|&e| contents.statistics_in(e, key)).collect();
        let join = |side: fn(&crate::ChunkStatistics) -> &ArrayRef| {
            let arrays: Vec<&dyn Array> = parts.iter().map(|p| side(p).as_ref()).collect();
            concat(&arrays).expect("bounds of one column have one type")
        };
        Bounds {
            mins: join(|p| &p.mins),
            maxs: join(|p| &p.maxs),
            chunks: extents.iter().flat_map(|&e| contents.chunks_of(e)).collect(),
        }
    }

    /// Unknown minima come first and unknown maxima last, so they meet everything.
    fn comparator(&self) -> Option<impl Fn(Side, Side) -> Ordering> {
        let options = SortOptions::default();
        let make = |a: &ArrayRef, b: &ArrayRef| make_comparator(a, b, options).ok();
        let (mins, maxs) = (self.mins.clone(), self.maxs.clone());
        let min_min = make(&mins, &mins)?;
        let min_max = make(&mins, &maxs)?;
        let max_min = make(&maxs, &mins)?;
        let max_max = make(&maxs, &maxs)?;
        let rank = move |side: Side| match side {
            Side::Min(i) if mins.is_null(i) => -1,
            Side::Max(i) if maxs.is_null(i) => 1,
            _ => 0,
        };
        Some(move |a: Side, b: Side| {
            rank(a).cmp(&rank(b)).then_with(|| {
                if rank(a) != 0 {
                    return Ordering::Equal;
                }
                match (a, b) {
                    (Side::Min(i), Side::Min(j)) => min_min(i, j),
                    (Side::Min(i), Side::Max(j)) => min_max(i, j),
                    (Side::Max(i), Side::Min(j)) => max_min(i, j),
                    (Side::Max(i), Side::Max(j)) => max_max(i, j),
                }
            })
        })
    }
}

fn in_order(contents: &Arc<Contents>, group: &[usize], tasks: &mut VecDeque<Task>) {
    for &extent in group {
        for chunk in contents.chunks_of(extent) {
            let chunk = contents.chunk(chunk);
            tasks.push_back(Task { chunk, range: None, ends_run: false });
        }
    }
    if let Some(last) = tasks.back_mut() {
        last.ends_run = true;
    }
}

/// Cuts the values of the first cluster column where chunks begin, so that the chunks that begin
/// in a range hold about a run of plain bytes, and reads range by range.
fn by_ranges(
    contents: &Arc<Contents>,
    key: usize,
    group: &[usize],
    tasks: &mut VecDeque<Task>,
) -> Result<()> {
    let bounds = Bounds::of(contents, key, group);
    let Some(compare) = bounds.comparator() else {
        in_order(contents, group, tasks);
        return Ok(());
    };
    let columns = contents.arrow_schema.fields().len();
    let plain: Vec<_> = (0..columns).map(|c| contents.chunk_statistics(c)).collect();
    let bytes =
        |i: usize| -> u64 { plain.iter().map(|s| s.value_bytes.value(bounds.chunks[i])).sum() };
    let mut begins: Vec<usize> = (0..bounds.chunks.len()).collect();
    begins.sort_by(|&a, &b| compare(Side::Min(a), Side::Min(b)));
    let mut cuts: Vec<usize> = Vec::new();
    let mut held = 0;
    for &i in &begins {
        // A quarter of a run in hand: what begins in a range reaches beyond it, and the other way.
        let full = held >= (CLUSTER_SORT_BYTES_MAX / 4 * 3) as u64;
        let last = cuts.last().copied();
        let is_new = !bounds.mins.is_null(i)
            && last.is_none_or(|last| compare(Side::Min(last), Side::Min(i)).is_lt());
        if full && is_new {
            cuts.push(i);
            held = 0;
        }
        held += bytes(i);
    }
    let value = |i: usize| bounds.mins.slice(i, 1);
    for n in 0..=cuts.len() {
        let from = n.checked_sub(1).map(|n| cuts[n]);
        let to = cuts.get(n).copied();
        let range = Arc::new(Range { from: from.map(value), to: to.map(value) });
        let before = tasks.len();
        for (i, &chunk) in bounds.chunks.iter().enumerate() {
            // NULLs are in no bounds and sort first.
            let nulls = plain[key].nulls.value(chunk) > 0;
            let above = from.is_none_or(|from| compare(Side::Max(i), Side::Min(from)).is_ge());
            let below = to.is_none_or(|to| compare(Side::Min(i), Side::Min(to)).is_lt());
            if above && below || from.is_none() && nulls {
                let chunk = contents.chunk(chunk);
                tasks.push_back(Task { chunk, range: Some(range.clone()), ends_run: false });
            }
        }
        if tasks.len() > before
            && let Some(last) = tasks.back_mut()
        {
            last.ends_run = true;
        }
    }
    Ok(())
}

impl Range {
    fn contains(&self, values: &ArrayRef) -> Result<BooleanArray> {
        let side = |bound: &Option<ArrayRef>| {
            bound
                .as_ref()
                .map(|bound| make_comparator(values, bound, SortOptions::default()))
                .transpose()
                .map_err(|e| Error::internal("cluster columns cannot be compared").source(e))
        };
        let (from, to) = (side(&self.from)?, side(&self.to)?);
        let inside = |row: usize| match values.is_null(row) {
            true => from.is_none(),
            false => {
                from.as_ref().is_none_or(|f| f(row, 0).is_ge())
                    && to.as_ref().is_none_or(|t| t(row, 0).is_lt())
            }
        };
        Ok((0..values.len()).map(|row| Some(inside(row))).collect())
    }
}

#[cfg(test)]
mod tests;
