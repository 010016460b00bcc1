//! The results of a function, over all rows of a unit or some that follow each other.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, UInt32Array, UInt64Array, new_null_array};
use arrow::compute::{concat, interleave, take};
use thalweg_base::limits::BATCH_ROWS;
use thalweg_base::{Error, Result};

use super::runs::Local;
use super::{Bound, Frame, Function, Kind, Unit};
use crate::aggregate::framed::{ByRow, Frames, by_group};
use crate::aggregate::{self, Groups};
use crate::encoding::internal;
use crate::literal;
use crate::phases::Pause;

/// Rows before and behind some that are read for these, at most: they are read again for each batch.
const AROUND_ROWS_MAX: i64 = BATCH_ROWS as i64;

/// Whether the function or its frame looks at runs of rows that are equal in what orders them.
pub fn looks_at_peers(function: &Function) -> bool {
    match &function.kind {
        Kind::Rank | Kind::DenseRank | Kind::PercentRank | Kind::CumeDist => true,
        Kind::First | Kind::Last | Kind::Nth(_) | Kind::Aggregate(_) => {
            function.frame.unit == Unit::Peers
        }
        _ => false,
    }
}

/// Whether the results of each batch of a large unit can be computed alone.
pub fn is_by_piece(function: &Function) -> bool {
    match &function.kind {
        Kind::Aggregate(_) => around(&function.frame).is_some(),
        _ => true,
    }
}

/// How many rows further on frames begin, at least, and end, at most, if they are of a few rows.
fn around(frame: &Frame) -> Option<(i64, i64)> {
    match (frame.unit, frame.start, frame.end) {
        (Unit::Rows, Bound::Distance(start), Bound::Distance(end)) => {
            let near = -AROUND_ROWS_MAX..=AROUND_ROWS_MAX;
            let is_near = near.contains(&start) && near.contains(&end);
            // A frame that ends before it begins has no rows, and lies where it begins.
            is_near.then_some((start.min(0), end.max(start).max(0)))
        }
        _ => None,
    }
}

/// The function of an aggregate whose arguments are given one after the other.
pub fn over_all(function: &Function, kind: &aggregate::Kind) -> aggregate::Function {
    aggregate::Function {
        kind: kind.clone(),
        arguments: (0..function.arguments.len()).collect(),
        filter: None,
        result: function.result.clone(),
    }
}

/// Rows of a unit, for functions of which results are asked.
pub struct Rows<'a> {
    /// All of the unit.
    pub batches: &'a [&'a Groups],
    /// Where each begins; last, where the unit ends.
    pub places: &'a [usize],
    pub rows: Range<usize>,
    pub pause: &'a Pause<'a>,
}

impl<'a> Rows<'a> {
    /// A column of some rows of the unit.
    async fn column(&self, column: usize, rows: &Range<usize>) -> Result<ArrayRef> {
        let mut pieces = vec![];
        for (batch, bounds) in self.batches.iter().zip(self.places.windows(2)) {
            let (start, end) = (rows.start.max(bounds[0]), rows.end.min(bounds[1]));
            if start < end {
                pieces.push(batch.columns[column].slice(start - bounds[0], end - start));
            }
        }
        let whole = match &pieces[..] {
            [] => self.batches[0].columns[column].slice(0, 0),
            [only] => Arc::clone(only),
            _ => {
                let pieces = pieces.iter().map(|piece| piece.as_ref());
                concat(&pieces.collect::<Vec<&dyn Array>>()).map_err(internal)?
            }
        };
        (self.pause)().await;
        Ok(whole)
    }

    /// What the results of a function are made of.
    pub async fn results<'f>(
        self,
        function: &'f Function,
        partitions: Arc<Local>,
        peers: Option<Arc<Local>>,
    ) -> Result<Results<'f>>
    where
        'a: 'f,
    {
        let mut framed = None;
        if let Kind::Aggregate(kind) = &function.kind {
            let over_all = over_all(function, kind);
            let is_partition = function.frame.is_partition(function.order_keys);
            let seen = match around(&function.frame) {
                Some((before, behind)) => {
                    let start = self.rows.start.saturating_add_signed(before as isize);
                    let end = self.rows.end.saturating_add_signed(behind as isize);
                    start..end.min(self.places[self.places.len() - 1])
                }
                None => self.rows.clone(),
            };
            let mut arguments = Vec::with_capacity(function.arguments.len());
            for &argument in &function.arguments {
                arguments.push(self.column(argument, &seen).await?);
            }
            framed = Some(match is_partition {
                true => {
                    let (of, count) = (partitions.all(), partitions.count());
                    Framed::Partitions(
                        by_group(&over_all, &arguments, of, count, self.pause).await?,
                    )
                }
                false => {
                    let growing = function.frame.start == Bound::Unbounded;
                    let by_row =
                        ByRow::new(&over_all, &arguments, seen.len(), growing, self.pause).await?;
                    Framed::Rows(Box::new(by_row), seen.start as u32)
                }
            });
        }
        let (batches, places) = (self.batches, self.places);
        Ok(Results { function, batches, places, partitions, peers, framed })
    }
}

/// The results of a function over some rows, which are asked for from the first to the last.
pub struct Results<'f> {
    function: &'f Function,
    batches: &'f [&'f Groups],
    places: &'f [usize],
    partitions: Arc<Local>,
    /// Where the function or its frame looks at them.
    peers: Option<Arc<Local>>,
    /// Of an aggregate function.
    framed: Option<Framed>,
}

enum Framed {
    /// The results of all partitions.
    Partitions(ArrayRef),
    /// And the first row that frames are of.
    Rows(Box<ByRow>, u32),
}

impl Results<'_> {
    fn peers(&self) -> Result<&Local> {
        self.peers.as_deref().ok_or_else(|| Error::internal("a window function without its peers"))
    }

    pub fn of(&mut self, rows: Range<usize>) -> Result<ArrayRef> {
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
                let first = |row| peers.of(partitions.start(row) as usize);
                let mut first = by_partition(partitions, first);
                let rank = |row: usize| u64::from(peers.of(row) - first(row)) + 1;
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
                    bounds.contains(&at).then_some(at as u32)
                };
                let default = match default.is_null() {
                    true => None,
                    false => Some(literal::array(default)?),
                };
                self.picked(rows.map(at), default)?
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
                self.picked(frames.starts.iter().zip(&frames.ends).map(at), None)?
            }
            Kind::Aggregate(_) => match &self.framed {
                Some(Framed::Partitions(results)) => {
                    let of = rows.map(|row| partitions.of(row)).collect::<Vec<_>>();
                    let of = UInt32Array::from(of);
                    take(results, &of, None).map_err(internal)?
                }
                _ => {
                    let mut frames = self.frames(rows)?;
                    match &mut self.framed {
                        Some(Framed::Rows(by_row, first)) => {
                            let bounds = frames.starts.iter_mut().chain(&mut frames.ends);
                            bounds.for_each(|bound| *bound -= *first);
                            by_row.results(&frames)?
                        }
                        _ => {
                            return Err(Error::internal("an aggregate of a window without states"));
                        }
                    }
                }
            },
        })
    }

    /// The argument of the named rows, which are of the unit; of none the default, or NULL.
    fn picked(
        &self,
        rows: impl Iterator<Item = Option<u32>>,
        default: Option<ArrayRef>,
    ) -> Result<ArrayRef> {
        let argument = self.function.arguments[0];
        let column = |batch: usize| &self.batches[batch].columns[argument];
        if let ([only], None) = (self.batches, &default) {
            let rows = rows.collect::<UInt32Array>();
            return take(&only.columns[argument], &rows, None).map_err(internal);
        }
        let default = default.unwrap_or_else(|| new_null_array(column(0).data_type(), 1));
        let mut arrays: Vec<&dyn Array> = vec![default.as_ref()];
        // Of each batch the place among the arrays; 0: it is not one of them yet.
        let mut known = vec![0; self.batches.len()];
        let mut last = 0;
        let mut places = Vec::with_capacity(rows.size_hint().0);
        for row in rows {
            let Some(row) = row.map(|row| row as usize) else {
                places.push((0, 0));
                continue;
            };
            if !(self.places[last]..self.places[last + 1]).contains(&row) {
                last = self.places.partition_point(|&place| place <= row) - 1;
            }
            if known[last] == 0 {
                known[last] = arrays.len();
                arrays.push(column(last).as_ref());
            }
            places.push((known[last], row - self.places[last]));
        }
        interleave(&arrays, &places).map_err(internal)
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
                let ends = |row: usize| {
                    let last = peers.of(partitions.end(row) as usize - 1);
                    (peers.of(partitions.start(row) as usize), last)
                };
                let mut ends = by_partition(partitions, ends);
                let mut at = |row: usize, bound, beyond: i64, unbounded: u32| match bound {
                    Bound::Unbounded => unbounded,
                    Bound::Distance(distance) => {
                        let (first, last) = ends(row);
                        let at = distance.saturating_add(beyond);
                        let at = at.saturating_add(peers.of(row).into());
                        let run = at.clamp(first.into(), i64::from(last) + 1);
                        peers.start_of_run(run as usize)
                    }
                };
                let starts = rows.clone().map(|row| at(row, start, 0, partitions.start(row)));
                let starts = starts.collect();
                (starts, rows.map(|row| at(row, end, 1, partitions.end(row))).collect())
            }
        };
        Ok(Frames::new(starts, ends))
    }
}

/// What is the same for all rows of a partition, which follow each other, is found once for them.
fn by_partition<T: Copy>(partitions: &Local, value: impl Fn(usize) -> T) -> impl FnMut(usize) -> T {
    let mut last = None;
    move |row| {
        let own = partitions.of(row);
        match last {
            Some((partition, value)) if partition == own => value,
            _ => last.insert((own, value(row))).1,
        }
    }
}

/// The tile, from 1, of a row of so many: the first tiles have a row more, if it does not come out
/// even.
pub fn ntile(row: u64, rows: u64, tiles: u64) -> u64 {
    let (least, larger) = (rows / tiles, rows % tiles);
    let in_larger = larger * (least + 1);
    match row.checked_sub(in_larger) {
        None => row / (least + 1) + 1,
        Some(row) => larger + row / least.max(1) + 1,
    }
}
