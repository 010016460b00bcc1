//! The window sink: functions of the rows around each row.
//!
//! Rows are [sorted](crate::sort) by what partitions them and then by what orders them. Sorted rows
//! come in batches that begin where a partition does, if partitions are smaller than a batch. What
//! follows without a new partition is a *unit*, mostly one batch, and its functions are computed
//! column by column by one task:
//!
//! ```text
//!   batch 0        batch 1                 batch 2          batch 3
//!   a a a b b b b  c c c c c c c c c c c c c c c c c c c c c  d d e e e e
//!   └─ unit 0 ──┘  └────────── unit 1 (a large partition) ─┘  └ unit 2 ─┘
//! ```
//! Nothing is kept sorted but the rows: a row's *frame*, those that its function sees, is a range of
//! places. Before that, tasks find for each batch where keys change (its [runs](runs)). So most
//! functions can be computed for each batch of a large unit by a task of its own: those that need to
//! know only where their partition and their peers begin and end, or that read some rows, or sum up
//! frames of a few rows. Others see all rows of their unit in one task, each function in its own.

mod results;
mod runs;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::array::ArrayRef;
use thalweg_base::{Error, Result};
pub use thalweg_ir::window::{Bound, Frame, Unit};

use crate::aggregate::{self, Groups};
use crate::phases::{Pause, Phases, at_once, no_pause};
use crate::sort::{Collected, Sorting};
use results::{is_by_piece, looks_at_peers};
use runs::{Local, Runs, Starts};

pub type Spec = thalweg_ir::window::Spec<aggregate::Code>;
pub type Function = thalweg_ir::window::Function<aggregate::Code>;
pub type Kind = thalweg_ir::window::Kind<aggregate::Code>;

/// From what was collected to rows with their results, in order.
pub struct Windowing {
    spec: Spec,
    sorting: Sorting,
    /// By so many keys rows are equal whose runs are asked for: of partitions, then of peers.
    prefixes: Vec<usize>,
    /// By batch and prefix.
    starts: Vec<OnceLock<Vec<Starts>>>,
    tasks: OnceLock<Vec<Task>>,
    /// By batch and function.
    done: Vec<Vec<OnceLock<ArrayRef>>>,
}

/// Batches without a new partition between them.
struct UnitOfRows {
    batches: Range<usize>,
    /// Where each batch begins; last, where the rows end.
    places: Vec<usize>,
    /// By prefix; none, if the unit is one batch.
    runs: Vec<Arc<Runs>>,
}

/// Some functions over some rows of a unit.
struct Task {
    unit: Arc<UnitOfRows>,
    functions: Vec<usize>,
    /// Batches of the unit whose results are computed.
    batches: Range<usize>,
}

impl Windowing {
    pub fn new(spec: Spec, parts: Vec<Collected>) -> Result<Self> {
        let sorting = Sorting::new(spec.sort.clone(), parts)?;
        let together = spec.sort.together;
        let peers = spec.functions.iter().filter(|function| looks_at_peers(function));
        let mut prefixes: Vec<usize> = peers.map(|f| together + f.order_keys).collect();
        prefixes.push(together);
        prefixes.sort_unstable();
        prefixes.dedup();
        let batches = 0..sorting.ranges();
        let done = |_| spec.functions.iter().map(|_| OnceLock::new()).collect();
        Ok(Windowing {
            prefixes,
            starts: batches.clone().map(|_| OnceLock::new()).collect(),
            tasks: OnceLock::new(),
            done: batches.map(done).collect(),
            spec,
            sorting,
        })
    }

    fn batch(&self, n: usize) -> Result<&Groups> {
        self.sorting.batch(n)
    }

    /// Finds where keys change in a batch, when all rows are sorted.
    fn find_starts(&self, n: usize) -> Result<()> {
        let mut before = None;
        for earlier in (0..n).rev() {
            let batch = self.batch(earlier)?;
            if batch.rows > 0 {
                before = Some(batch);
                break;
            }
        }
        let starts = runs::starts(&self.spec.keys, &self.prefixes, before, self.batch(n)?)?;
        let _ = self.starts[n].set(starts);
        Ok(())
    }

    /// Finds the units, and what is to be done for them.
    async fn find_units(&self, pause: &Pause<'_>) -> Result<()> {
        let starts = self.starts.iter().map(|starts| starts.get().ok_or_else(unfinished));
        let starts: Vec<&Vec<Starts>> = starts.collect::<Result<_>>()?;
        // The first prefix is that of partitions.
        let is_new = |n: usize| starts[n].first().is_some_and(|starts| starts.begin_anew());
        let mut units: Vec<Range<usize>> = vec![];
        for n in 0..starts.len() {
            match units.last_mut() {
                // A batch without rows belongs to any unit.
                Some(unit) if self.batch(n)?.rows == 0 || !is_new(n) => unit.end = n + 1,
                _ => units.push(n..n + 1),
            }
        }
        let mut tasks = vec![];
        for batches in units {
            let mut places = vec![0];
            for n in batches.clone() {
                places.push(places[n - batches.start] + self.batch(n)?.rows);
            }
            let rows = places[batches.len()];
            if u32::try_from(rows).is_err() {
                return Err(Error::unsupported(format!(
                    "a window has a partition of {rows} rows; it may have {} at most",
                    u32::MAX
                )));
            }
            if rows == 0 {
                continue;
            }
            let mut all_runs = vec![];
            for prefix in (0..self.prefixes.len()).filter(|_| batches.len() > 1) {
                let mut runs = Runs::default();
                for (n, &place) in batches.clone().zip(&places) {
                    runs.add(place, &starts[n][prefix]);
                    pause().await;
                }
                all_runs.push(Arc::new(runs.ended(rows)));
            }
            let count = batches.len();
            let unit = Arc::new(UnitOfRows { batches, places, runs: all_runs });
            let task = |functions, batches| Task { unit: Arc::clone(&unit), functions, batches };
            let functions = 0..self.spec.functions.len();
            if count == 1 {
                tasks.push(task(functions.collect(), 0..1));
                continue;
            }
            let (pieces, wholes): (Vec<usize>, Vec<usize>) =
                functions.partition(|&n| is_by_piece(&self.spec.functions[n]));
            // Those that take longest come first.
            tasks.extend(wholes.into_iter().map(|function| task(vec![function], 0..count)));
            if !pieces.is_empty() {
                tasks.extend((0..count).map(|batch| task(pieces.clone(), batch..batch + 1)));
            }
        }
        self.tasks.set(tasks).map_err(|_| Error::internal("units of windows were found twice"))
    }

    async fn evaluate(&self, task: &Task, pause: &Pause<'_>) -> Result<()> {
        let unit = &*task.unit;
        let batches = unit.batches.clone().map(|n| self.batch(n)).collect::<Result<Vec<_>>>()?;
        let places = &unit.places;
        let rows = places[task.batches.start]..places[task.batches.end];
        let own = match unit.runs.is_empty() {
            true => {
                let starts = self.starts[unit.batches.start].get().ok_or_else(unfinished)?;
                let own = |starts| {
                    let mut runs = Runs::default();
                    runs.add(0, starts);
                    Arc::new(runs.ended(rows.len()))
                };
                starts.iter().map(own).collect()
            }
            false => unit.runs.clone(),
        };
        let own: Vec<Arc<Local>> =
            own.iter().map(|runs| Arc::new(Local::new(runs, rows.clone()))).collect();
        let runs = |keys: usize| {
            let found = self.prefixes.iter().position(|&prefix| prefix == keys);
            let runs = found.and_then(|prefix| own.get(prefix)).cloned();
            runs.ok_or_else(|| Error::internal("runs of windows that were not asked for"))
        };
        let together = self.spec.sort.together;
        for &n in &task.functions {
            let function = &self.spec.functions[n];
            let partitions = runs(together)?;
            let peers = match looks_at_peers(function) {
                true => Some(runs(together + function.order_keys)?),
                false => None,
            };
            let window = results::Rows { batches: &batches, places, rows: rows.clone(), pause };
            let mut results = window.results(function, partitions, peers).await?;
            for batch in task.batches.clone().filter(|&batch| batches[batch].rows > 0) {
                let result = results.of(places[batch]..places[batch + 1])?;
                if result.data_type() != &function.result || result.len() != batches[batch].rows {
                    return Err(Error::internal(format!(
                        "a window function gives {} and not {}",
                        result.data_type(),
                        function.result
                    )));
                }
                let _ = self.done[unit.batches.start + batch][n].set(result);
                pause().await;
            }
        }
        Ok(())
    }
}

impl Phases for Windowing {
    type Output = Vec<Groups>;

    fn rows(&self) -> usize {
        self.sorting.rows()
    }

    fn phases(&self) -> usize {
        self.sorting.phases() + 3
    }

    fn tasks(&self, phase: usize) -> usize {
        match phase.checked_sub(self.sorting.phases()) {
            None => self.sorting.tasks(phase),
            Some(0) => self.starts.len(),
            Some(1) => 1,
            Some(_) => self.tasks.get().map_or(0, Vec::len),
        }
    }

    fn run(&self, phase: usize, task: usize) -> Result<()> {
        at_once(self.run_in_steps(phase, task, &no_pause))?
    }

    async fn run_in_steps(&self, phase: usize, task: usize, pause: &Pause<'_>) -> Result<()> {
        match phase.checked_sub(self.sorting.phases()) {
            None => self.sorting.run(phase, task),
            Some(0) => self.find_starts(task),
            Some(1) => self.find_units(pause).await,
            Some(_) => {
                let tasks = self.tasks.get().ok_or_else(unfinished)?;
                self.evaluate(&tasks[task], pause).await
            }
        }
    }

    fn finish(self) -> Result<Vec<Groups>> {
        let mut batches = vec![];
        for (n, done) in self.done.into_iter().enumerate() {
            let batch = self.sorting.batch(n)?;
            if batch.rows == 0 {
                continue;
            }
            let mut columns = batch.columns[..self.spec.columns].to_vec();
            for result in done {
                columns.push(result.into_inner().ok_or_else(unfinished)?);
            }
            batches.push(Groups { columns, rows: batch.rows });
        }
        Ok(batches)
    }
}

fn unfinished() -> Error {
    Error::internal("windows were read before all of them were computed")
}

#[cfg(test)]
mod measure;
#[cfg(test)]
mod tests;
