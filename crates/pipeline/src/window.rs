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
//! places.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, Float64Array, UInt32Array, UInt64Array, make_comparator};
use arrow::compute::{SortOptions, concat, interleave, partition, take};
use thalweg_base::{Error, Result};
pub use thalweg_ir::window::{Bound, Frame, Unit};

use crate::aggregate::framed::{ByRow, Frames, by_group};
use crate::aggregate::{self, Groups};
use crate::encoding::internal;
use crate::literal;
use crate::phases::{Pause, Phases, at_once, no_pause};
use crate::sort::{Collected, Sorting};

pub type Spec = thalweg_ir::window::Spec<aggregate::Code>;
pub type Function = thalweg_ir::window::Function<aggregate::Code>;
pub type Kind = thalweg_ir::window::Kind<aggregate::Code>;

/// The function of an aggregate whose arguments are given one after the other.
fn over_all(function: &Function, kind: &aggregate::Kind) -> aggregate::Function {
    aggregate::Function {
        kind: kind.clone(),
        arguments: (0..function.arguments.len()).collect(),
        filter: None,
        result: function.result.clone(),
    }
}

/// From what was collected to rows with their results, in order.
pub struct Windowing {
    spec: Spec,
    sorting: Sorting,
    /// Batches of a unit, once all rows are sorted.
    units: OnceLock<Vec<Range<usize>>>,
    done: OnceLock<Vec<OnceLock<Vec<Groups>>>>,
}

impl Windowing {
    pub fn new(spec: Spec, parts: Vec<Collected>) -> Result<Self> {
        let sorting = Sorting::new(spec.sort.clone(), parts)?;
        Ok(Windowing { spec, sorting, units: OnceLock::new(), done: OnceLock::new() })
    }

    fn units(&self) -> &[Range<usize>] {
        self.units.get().map_or(&[], Vec::as_slice)
    }

    /// Finds them, when all rows are sorted.
    fn find_units(&self) -> Result<()> {
        let keys = &self.spec.keys[..self.spec.sort.together];
        let mut units: Vec<Range<usize>> = vec![];
        let mut last: Option<&Groups> = None;
        for (n, batch) in self.sorting.batches().enumerate() {
            let batch = batch?;
            match (last, units.last_mut()) {
                // A batch without rows belongs to any unit; what comes after such a one goes on with its own.
                (Some(last), Some(unit))
                    if batch.rows == 0 || last.rows == 0 || goes_on(keys, last, batch)? =>
                {
                    unit.end = n + 1;
                }
                _ => units.push(n..n + 1),
            }
            if batch.rows > 0 || last.is_none() {
                last = Some(batch);
            }
        }
        let done = units.iter().map(|_| OnceLock::new()).collect();
        if self.units.set(units).is_err() || self.done.set(done).is_err() {
            return Err(Error::internal("units of windows were found twice"));
        }
        Ok(())
    }

    async fn evaluate(&self, unit: &Range<usize>, pause: &Pause<'_>) -> Result<Vec<Groups>> {
        let batches = self.sorting.batches().skip(unit.start).take(unit.len());
        let batches = batches.collect::<Result<Vec<_>>>()?;
        let rows = batches.iter().map(|b| b.rows).sum::<usize>();
        if u32::try_from(rows).is_err() {
            return Err(Error::unsupported(format!(
                "a window has a partition of {rows} rows; it may have {} at most",
                u32::MAX
            )));
        }
        let spec = &self.spec;
        let own = |batch: &&Groups| Groups {
            columns: batch.columns[..spec.columns].to_vec(),
            rows: batch.rows,
        };
        let mut done: Vec<Groups> = batches.iter().map(own).collect();
        let mut unit =
            Rows { spec, batches, rows, pause, columns: <_>::default(), runs: <_>::default() };
        for function in &spec.functions {
            let mut results = unit.results(function).await?;
            let mut start = 0;
            for batch in done.iter_mut().filter(|batch| batch.rows > 0) {
                let result = results.of(start..start + batch.rows)?;
                if result.data_type() != &function.result || result.len() != batch.rows {
                    return Err(Error::internal(format!(
                        "a window function gives {} and not {}",
                        result.data_type(),
                        function.result
                    )));
                }
                batch.columns.push(result);
                start += batch.rows;
                pause().await;
            }
        }
        done.retain(|batch| batch.rows > 0);
        Ok(done)
    }
}

impl Phases for Windowing {
    type Output = Vec<Groups>;

    fn rows(&self) -> usize {
        self.sorting.rows()
    }

    fn phases(&self) -> usize {
        self.sorting.phases() + 2
    }

    fn tasks(&self, phase: usize) -> usize {
        match phase.checked_sub(self.sorting.phases()) {
            None => self.sorting.tasks(phase),
            Some(0) => 1,
            Some(_) => self.units().len(),
        }
    }

    fn run(&self, phase: usize, task: usize) -> Result<()> {
        match phase.checked_sub(self.sorting.phases()) {
            None => self.sorting.run(phase, task),
            Some(0) => self.find_units(),
            Some(_) => at_once(self.run_in_steps(phase, task, &no_pause))?,
        }
    }

    async fn run_in_steps(&self, phase: usize, task: usize, pause: &Pause<'_>) -> Result<()> {
        if phase <= self.sorting.phases() {
            return self.run(phase, task);
        }
        let done = self.evaluate(&self.units()[task], pause).await?;
        let _ = self.done.get().ok_or_else(unfinished)?[task].set(done);
        Ok(())
    }

    fn finish(self) -> Result<Vec<Groups>> {
        let done = self.done.into_inner().ok_or_else(unfinished)?;
        let done = done.into_iter().map(|unit| unit.into_inner().ok_or_else(unfinished));
        let done: Vec<Vec<Groups>> = done.collect::<Result<_>>()?;
        Ok(done.into_iter().flatten().collect())
    }
}

/// Whether a batch begins with the keys that the one before ends with.
fn goes_on(keys: &[usize], before: &Groups, batch: &Groups) -> Result<bool> {
    let Some(last) = before.rows.checked_sub(1) else { return Ok(false) };
    for &key in keys {
        let (before, batch) = (&before.columns[key], &batch.columns[key]);
        let compare = make_comparator(before, batch, SortOptions::default());
        if compare.map_err(internal)?(last, 0).is_ne() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn unfinished() -> Error {
    Error::internal("windows were read before all of them were computed")
}

/// The rows of a unit, and what functions have in common.
struct Rows<'a> {
    spec: &'a Spec,
    batches: Vec<&'a Groups>,
    rows: usize,
    pause: &'a Pause<'a>,
    /// Of the payload, those that were asked for.
    columns: BTreeMap<usize, ArrayRef>,
    /// By so many keys.
    runs: BTreeMap<usize, Arc<Runs>>,
}

/// Rows that are equal in some keys: runs, as the rows are sorted by these.
struct Runs {
    /// Where each begins; last, where the rows end.
    starts: Vec<u32>,
    /// The run of each row.
    of: Vec<u32>,
}

impl Runs {
    fn start(&self, row: usize) -> u32 {
        self.starts[self.of[row] as usize]
    }

    fn end(&self, row: usize) -> u32 {
        self.starts[self.of[row] as usize + 1]
    }

    fn count(&self) -> usize {
        self.starts.len() - 1
    }
}

impl Rows<'_> {
    /// A column of all batches.
    async fn column(&mut self, column: usize) -> Result<ArrayRef> {
        if let Some(known) = self.columns.get(&column) {
            return Ok(Arc::clone(known));
        }
        let whole = match self.batches[..] {
            [only] => Arc::clone(&only.columns[column]),
            _ => {
                let pieces = self.batches.iter().map(|batch| &*batch.columns[column]);
                concat(&pieces.collect::<Vec<&dyn Array>>()).map_err(internal)?
            }
        };
        (self.pause)().await;
        Ok(Arc::clone(self.columns.entry(column).or_insert(whole)))
    }

    /// By the first so many keys.
    async fn runs(&mut self, keys: usize) -> Result<Arc<Runs>> {
        if let Some(known) = self.runs.get(&keys) {
            return Ok(Arc::clone(known));
        }
        let (mut starts, mut of) = (vec![], Vec::with_capacity(self.rows));
        let mut last: Option<&Groups> = None;
        for batch in self.batches.iter().filter(|batch| batch.rows > 0) {
            let keys = &self.spec.keys[..keys];
            let columns: Vec<_> = keys.iter().map(|&key| Arc::clone(&batch.columns[key])).collect();
            let ranges = match columns.is_empty() {
                true => std::iter::once(0..batch.rows).collect(),
                false => partition(&columns).map_err(internal)?.ranges(),
            };
            let goes_on = match last {
                Some(last) => goes_on(keys, last, batch)?,
                None => false,
            };
            let before = of.len() as u32;
            for (n, range) in ranges.into_iter().enumerate() {
                if n > 0 || !goes_on {
                    starts.push(before + range.start as u32);
                }
                of.extend(std::iter::repeat_n(starts.len() as u32 - 1, range.len()));
            }
            last = Some(batch);
            (self.pause)().await;
        }
        starts.push(self.rows as u32);
        Ok(Arc::clone(self.runs.entry(keys).or_insert(Arc::new(Runs { starts, of }))))
    }

    /// What the results of a function are made of.
    async fn results<'f>(&mut self, function: &'f Function) -> Result<Results<'f>> {
        let mut arguments = Vec::with_capacity(function.arguments.len());
        for &argument in &function.arguments {
            arguments.push(self.column(argument).await?);
        }
        let partitions = self.runs(self.spec.sort.together).await?;
        let ordered_by = self.spec.sort.together + function.order_keys;
        let (mut peers, mut framed) = (None, None);
        let by_peers = match &function.kind {
            Kind::Rank | Kind::DenseRank | Kind::PercentRank | Kind::CumeDist => true,
            Kind::First | Kind::Last | Kind::Nth(_) | Kind::Aggregate(_) => {
                function.frame.unit == Unit::Peers
            }
            _ => false,
        };
        if by_peers {
            peers = Some(self.runs(ordered_by).await?);
        }
        if let Kind::Aggregate(kind) = &function.kind {
            let over_all = over_all(function, kind);
            framed = Some(match function.frame.is_partition(function.order_keys) {
                true => {
                    let (of, count) = (&partitions.of, partitions.count());
                    Framed::Partitions(
                        by_group(&over_all, &arguments, of, count, self.pause).await?,
                    )
                }
                false => {
                    let growing = function.frame.start == Bound::Unbounded;
                    let by_row = ByRow::new(&over_all, &arguments, self.rows, growing, self.pause);
                    Framed::Rows(Box::new(by_row.await?))
                }
            });
        }
        Ok(Results { function, arguments, partitions, peers, framed })
    }
}

/// The results of a function over the rows of a unit, which are asked for from the first to the last.
struct Results<'f> {
    function: &'f Function,
    arguments: Vec<ArrayRef>,
    partitions: Arc<Runs>,
    /// Where the function or its frame looks at them.
    peers: Option<Arc<Runs>>,
    /// Of an aggregate function.
    framed: Option<Framed>,
}

enum Framed {
    /// The results of all partitions.
    Partitions(ArrayRef),
    Rows(Box<ByRow>),
}

impl Results<'_> {
    fn peers(&self) -> Result<&Runs> {
        self.peers.as_deref().ok_or_else(|| Error::internal("a window function without its peers"))
    }

    fn of(&mut self, rows: Range<usize>) -> Result<ArrayRef> {
        let partitions = &*self.partitions;
        Ok(match &self.function.kind {
            Kind::RowNumber => {
                let number = |row| row as u64 - u64::from(partitions.start(row)) + 1;
                Arc::new(rows.map(number).collect::<UInt64Array>())
            }
            Kind::Rank => {
                let peers = self.peers()?;
                let rank = |row| u64::from(peers.start(row) - partitions.start(row)) + 1;
                Arc::new(rows.map(rank).collect::<UInt64Array>())
            }
            Kind::DenseRank => {
                let peers = self.peers()?;
                let first = |row| peers.of[partitions.start(row) as usize];
                let rank = |row: usize| u64::from(peers.of[row] - first(row)) + 1;
                Arc::new(rows.map(rank).collect::<UInt64Array>())
            }
            Kind::PercentRank => {
                let peers = self.peers()?;
                let rank = |row| {
                    let others = partitions.end(row) - partitions.start(row) - 1;
                    let before = peers.start(row) - partitions.start(row);
                    if others == 0 { 0.0 } else { f64::from(before) / f64::from(others) }
                };
                Arc::new(rows.map(rank).collect::<Float64Array>())
            }
            Kind::CumeDist => {
                let peers = self.peers()?;
                let share = |row| {
                    let (start, end) = (partitions.start(row), partitions.end(row));
                    f64::from(peers.end(row) - start) / f64::from(end - start)
                };
                Arc::new(rows.map(share).collect::<Float64Array>())
            }
            Kind::Ntile(tiles) => {
                let tile = |row| {
                    let (start, end) = (partitions.start(row), partitions.end(row));
                    ntile(row as u64 - u64::from(start), u64::from(end - start), *tiles)
                };
                Arc::new(rows.map(tile).collect::<UInt64Array>())
            }
            Kind::Shifted(distance, default) => {
                let at = |row: usize| {
                    let bounds = partitions.start(row).into()..partitions.end(row).into();
                    let at = (row as i64).saturating_add(*distance);
                    bounds.contains(&at).then_some(at as usize)
                };
                if default.is_null() {
                    let rows = rows.map(|row| at(row).map(|at| at as u32)).collect::<UInt32Array>();
                    take(&self.arguments[0], &rows, None).map_err(internal)?
                } else {
                    let rows = rows.map(|row| at(row).map_or((1, 0), |at| (0, at)));
                    let (rows, default) = (rows.collect::<Vec<_>>(), literal::array(default)?);
                    interleave(&[&*self.arguments[0], &*default], &rows).map_err(internal)?
                }
            }
            Kind::First | Kind::Last | Kind::Nth(_) => {
                let frames = self.frames(rows)?;
                let at = |(&start, &end): (&u32, &u32)| {
                    let (start, end) = (start.into(), end.into());
                    let at: i64 = match self.function.kind {
                        Kind::Nth(n) if n > 0 => n.saturating_add(start - 1),
                        Kind::Nth(n) if n < 0 => n.saturating_add(end),
                        Kind::Nth(_) => return None,
                        Kind::First => start,
                        _ => end - 1,
                    };
                    (start..end).contains(&at).then_some(at as u32)
                };
                let rows = frames.starts.iter().zip(&frames.ends).map(at).collect::<UInt32Array>();
                take(&self.arguments[0], &rows, None).map_err(internal)?
            }
            Kind::Aggregate(_) => match &self.framed {
                Some(Framed::Partitions(results)) => {
                    let of = UInt32Array::from(partitions.of[rows].to_vec());
                    take(results, &of, None).map_err(internal)?
                }
                _ => {
                    let frames = self.frames(rows)?;
                    match &mut self.framed {
                        Some(Framed::Rows(by_row)) => by_row.results(&frames)?,
                        _ => {
                            return Err(Error::internal("an aggregate of a window without states"));
                        }
                    }
                }
            },
        })
    }

    fn frames(&self, rows: Range<usize>) -> Result<Frames> {
        let partitions = &*self.partitions;
        let Frame { unit, start, end } = self.function.frame;
        let (starts, ends): (Vec<u32>, Vec<u32>) = match unit {
            Unit::Rows => {
                let at = |row: usize, bound, beyond: i64, unbounded: u32| match bound {
                    Bound::Unbounded => unbounded,
                    Bound::Distance(distance) => {
                        let at = distance.saturating_add(beyond).saturating_add(row as i64);
                        at.clamp(partitions.start(row).into(), partitions.end(row).into()) as u32
                    }
                };
                let starts = rows.clone().map(|row| at(row, start, 0, partitions.start(row)));
                (starts.collect(), rows.map(|row| at(row, end, 1, partitions.end(row))).collect())
            }
            Unit::Peers => {
                let peers = self.peers()?;
                let at = |row: usize, bound, beyond: i64, unbounded: u32| match bound {
                    Bound::Unbounded => unbounded,
                    Bound::Distance(distance) => {
                        let first = peers.of[partitions.start(row) as usize];
                        let last = peers.of[partitions.end(row) as usize - 1];
                        let at =
                            distance.saturating_add(beyond).saturating_add(peers.of[row].into());
                        peers.starts[at.clamp(first.into(), i64::from(last) + 1) as usize]
                    }
                };
                let starts = rows.clone().map(|row| at(row, start, 0, partitions.start(row)));
                (starts.collect(), rows.map(|row| at(row, end, 1, partitions.end(row))).collect())
            }
        };
        Ok(Frames::new(starts, ends))
    }
}

/// The tile, from 1, of a row of so many: the first tiles have a row more, if it does not come out
/// even.
fn ntile(row: u64, rows: u64, tiles: u64) -> u64 {
    let (least, larger) = (rows / tiles, rows % tiles);
    let in_larger = larger * (least + 1);
    match row.checked_sub(in_larger) {
        None => row / (least + 1) + 1,
        Some(row) => larger + row / least.max(1) + 1,
    }
}

#[cfg(test)]
mod tests;
