//! Rows that are equal in some keys: runs, as the rows are sorted by these.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, make_comparator};
use arrow::buffer::BooleanBuffer;
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{SortOptions, partition};
use thalweg_base::Result;

use crate::aggregate::Groups;
use crate::encoding::internal;

/// Rows of a batch that begin a run. The first is one of them if keys change before it.
#[derive(Debug)]
pub struct Starts(Vec<u32>);

impl Starts {
    /// Whether keys change before the batch.
    pub fn begin_anew(&self) -> bool {
        self.0.first() == Some(&0)
    }
}

/// For each of some numbers of keys, in ascending order, where a batch has other keys than in the row
/// before; `before` is the last batch before it that has rows.
pub fn starts(
    keys: &[usize],
    prefixes: &[usize],
    before: Option<&Groups>,
    batch: &Groups,
) -> Result<Vec<Starts>> {
    let Some(pairs) = batch.rows.checked_sub(1) else {
        return Ok(prefixes.iter().map(|_| Starts(vec![])).collect());
    };
    let mut is_new = before.is_none();
    // Of each row but the first.
    let mut changes = BooleanBuffer::new_unset(pairs);
    let (mut seen, mut all) = (0, vec![]);
    for &prefix in prefixes {
        for &key in &keys[seen..prefix] {
            let column = &batch.columns[key];
            changes = &changes | &changed(column.as_ref(), pairs)?;
            if let Some(before) = before.filter(|_| !is_new) {
                let compare = make_comparator(&before.columns[key], column, SortOptions::default());
                is_new = compare.map_err(internal)?(before.rows - 1, 0).is_ne();
            }
        }
        seen = prefix;
        let rows = changes.set_indices().map(|row| row as u32 + 1);
        all.push(Starts(is_new.then_some(0).into_iter().chain(rows).collect()));
    }
    Ok(all)
}

/// For each row but the first whether its value is another than that of the row before.
fn changed(column: &dyn Array, pairs: usize) -> Result<BooleanBuffer> {
    if column.data_type().is_nested() {
        let mut changes = vec![false; pairs];
        let column = column.slice(0, pairs + 1);
        for range in partition(&[column]).map_err(internal)?.ranges().into_iter().skip(1) {
            changes[range.start - 1] = true;
        }
        return Ok(changes.into());
    }
    let (rows, next) = (column.slice(0, pairs), column.slice(1, pairs));
    Ok(distinct(&rows, &next).map_err(internal)?.values().clone())
}

/// The runs of a unit's rows.
#[derive(Debug, Default)]
pub struct Runs {
    /// Where each begins; last, where the rows end.
    starts: Vec<u32>,
}

impl Runs {
    /// Adds those of the next batch, which begins at that place. A unit's first row begins one.
    pub fn add(&mut self, place: usize, starts: &Starts) {
        self.starts.extend(starts.0.iter().map(|start| place as u32 + start));
    }

    pub fn ended(mut self, rows: usize) -> Self {
        self.starts.push(rows as u32);
        self
    }

    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    fn of(&self, row: usize) -> u32 {
        self.starts.partition_point(|&start| start as usize <= row) as u32 - 1
    }
}

/// The runs of some rows of a unit.
pub struct Local {
    runs: Arc<Runs>,
    first: usize,
    /// The run of each row.
    of: Vec<u32>,
}

impl Local {
    pub fn new(runs: &Arc<Runs>, rows: Range<usize>) -> Self {
        let mut of = Vec::with_capacity(rows.len());
        if !rows.is_empty() {
            let (mut run, mut row) = (runs.of(rows.start), rows.start);
            while row < rows.end {
                let end = (runs.starts[run as usize + 1] as usize).min(rows.end);
                of.extend(std::iter::repeat_n(run, end - row));
                (run, row) = (run + 1, end);
            }
        }
        Local { runs: Arc::clone(runs), first: rows.start, of }
    }

    /// The run of each of these rows.
    pub fn all(&self) -> &[u32] {
        &self.of
    }

    pub fn count(&self) -> usize {
        self.runs.count()
    }

    /// The run of any row of the unit; quick for those that these are.
    pub fn of(&self, row: usize) -> u32 {
        let known = row.checked_sub(self.first).and_then(|row| self.of.get(row));
        known.copied().unwrap_or_else(|| self.runs.of(row))
    }

    pub fn start(&self, row: usize) -> u32 {
        self.runs.starts[self.of[row - self.first] as usize]
    }

    pub fn end(&self, row: usize) -> u32 {
        self.runs.starts[self.of[row - self.first] as usize + 1]
    }

    pub fn start_of_run(&self, run: usize) -> u32 {
        self.runs.starts[run]
    }
}
