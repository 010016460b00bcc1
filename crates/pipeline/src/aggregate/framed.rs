//! Aggregate functions over frames of rows that are in order: those of window functions.
//!
//! If all rows of a partition have the same frame, partitions are groups, and every function is
//! computed as it is for groups. Otherwise each row has a state of its own, of a sum or a count as
//! the difference of two running ones, and results are made of those states as of groups'.

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array, make_comparator, new_empty_array};
use arrow::buffer::NullBuffer;
use arrow::compute::{SortOptions, take};
use arrow::datatypes::{DataType, Decimal128Type, Float64Type};
use thalweg_base::limits::BATCH_ROWS;
use thalweg_base::{Error, Result};

use super::emit::result;
use super::partial::accumulators;
use super::plan::{Number, Order, Output, Plan, Slot};
use super::states::{Batch, Seen, State, States, came_as, ordered};
use super::{Function, Spec};
use crate::encoding::{internal, words};
use crate::phases::Pause;

/// For each of some rows those that its function sees: `starts[i]..ends[i]`, which may be none.
pub struct Frames {
    pub starts: Vec<u32>,
    pub ends: Vec<u32>,
}

impl Frames {
    /// A frame that ends before it begins has no rows.
    pub fn new(starts: Vec<u32>, mut ends: Vec<u32>) -> Self {
        ends.iter_mut().zip(&starts).for_each(|(end, &start)| *end = start.max(*end));
        Frames { starts, ends }
    }

    fn all(&self) -> impl Iterator<Item = (usize, usize)> {
        self.starts.iter().zip(&self.ends).map(|(&start, &end)| (start as usize, end as usize))
    }
}

/// The results of one function of these arguments over groups of rows, which follow each other: one
/// for each group.
pub async fn by_group(
    function: &Function,
    arguments: &[ArrayRef],
    ids: &[u32],
    groups: usize,
    pause: &Pause<'_>,
) -> Result<ArrayRef> {
    if groups == 0 {
        return Ok(new_empty_array(&function.result));
    }
    let spec = spec(function, types(arguments));
    let plan = Plan::new(&spec)?;
    let mut states = States::new(&plan.slots, false);
    let mut accumulators = accumulators(&spec, &plan)?;
    let mut before = 0;
    for start in (0..ids.len()).step_by(BATCH_ROWS) {
        let ids = &ids[start..(start + BATCH_ROWS).min(ids.len())];
        let part = arguments.iter().map(|a| a.slice(start, ids.len())).collect::<Vec<_>>();
        let total = before.max(ids.last().map_or(0, |&last| last as usize + 1));
        let batch = Batch { ids, before, total, arguments: &part, filters: &[] };
        states.update(&plan.slots, &batch)?;
        for accumulator in &mut accumulators {
            accumulator.update(&part, None, ids, total)?;
        }
        before = total;
        pause().await;
    }
    states.resize(groups);
    match &plan.outputs[0] {
        Output::External(i) => accumulators[*i].evaluate(),
        output => result(output, &function.result, &plan.slots, &mut states, &[]),
    }
}

fn spec(function: &Function, argument_types: Vec<DataType>) -> Spec {
    Spec { key_types: vec![], argument_types, functions: vec![function.clone()] }
}

fn types(arguments: &[ArrayRef]) -> Vec<DataType> {
    arguments.iter().map(|a| a.data_type().clone()).collect()
}

/// The results of one function over frames: one for each row.
pub struct ByRow {
    plan: Plan,
    result: DataType,
    arguments: Vec<ArrayRef>,
    /// By slot.
    slots: Vec<Prepared>,
}

/// What a slot's state is made of for any frame.
enum Prepared {
    Rows,
    /// How many rows up to each are counted; `None`: none is.
    Counts(Option<Vec<i64>>),
    Ints {
        until: Vec<i64>,
        seen: Option<Vec<i64>>,
    },
    Decimals {
        until: Vec<i128>,
        seen: Option<Vec<i64>>,
    },
    Floats {
        sums: Floats,
        seen: Option<Vec<i64>>,
    },
    Best(Best),
}

impl ByRow {
    /// Of so many rows. `growing`: frames only grow from row to row, but where they all begin anew.
    pub async fn new(
        function: &Function,
        arguments: &[ArrayRef],
        rows: usize,
        growing: bool,
        pause: &Pause<'_>,
    ) -> Result<Self> {
        let plan = Plan::new(&spec(function, types(arguments)))?;
        let mut slots = Vec::with_capacity(plan.slots.len());
        for slot in &plan.slots {
            slots.push(Prepared::new(slot, arguments, rows, growing, pause).await?);
        }
        let (result, arguments) = (function.result.clone(), arguments.to_vec());
        Ok(ByRow { plan, result, arguments, slots })
    }

    /// Of the next rows, whose frames these are.
    pub fn results(&mut self, frames: &Frames) -> Result<ArrayRef> {
        if let [Prepared::Best(best)] = &mut self.slots[..] {
            return take(&self.arguments[0], &best.of(frames), None).map_err(internal);
        }
        let states = self.slots.iter_mut().map(|slot| slot.state(frames));
        let mut states = States { all: states.collect::<Result<_>>()? };
        result(&self.plan.outputs[0], &self.result, &self.plan.slots, &mut states, &[])
    }
}

impl Prepared {
    async fn new(
        slot: &Slot,
        arguments: &[ArrayRef],
        rows: usize,
        growing: bool,
        pause: &Pause<'_>,
    ) -> Result<Self> {
        Ok(match slot {
            Slot::Rows => Prepared::Rows,
            Slot::Missing(missing) => {
                let nulls = missing.iter().map(|&a| arguments[a].logical_nulls());
                let nulls = nulls.fold(None, |all, n| NullBuffer::union(all.as_ref(), n.as_ref()));
                Prepared::Counts(match nulls {
                    None => None,
                    Some(nulls) => {
                        Some(until(rows, |row| i64::from(nulls.is_null(row)), pause).await)
                    }
                })
            }
            Slot::Sum { argument, number, .. } => {
                let array = &arguments[*argument];
                let nulls = array.logical_nulls().filter(|n| n.null_count() > 0);
                let valid = |row: usize| nulls.as_ref().is_none_or(|n| n.is_valid(row));
                let seen = match &nulls {
                    None => None,
                    Some(nulls) => {
                        Some(until(rows, |row| i64::from(nulls.is_valid(row)), pause).await)
                    }
                };
                match number {
                    Number::Int => {
                        let values = words(array).ok_or_else(|| came_as(array))?;
                        let value = |row: usize| if valid(row) { values[row] } else { 0 };
                        Prepared::Ints { until: until(rows, value, pause).await, seen }
                    }
                    Number::Float => {
                        let values = array
                            .as_primitive_opt::<Float64Type>()
                            .ok_or_else(|| came_as(array))?;
                        let values = values.values();
                        let value = |row: usize| if valid(row) { values[row] } else { 0.0 };
                        let values: Vec<f64> = (0..rows).map(value).collect();
                        pause().await;
                        Prepared::Floats { sums: Floats::new(values, growing), seen }
                    }
                    Number::Decimal { exact: false } => {
                        let values = array
                            .as_primitive_opt::<Decimal128Type>()
                            .ok_or_else(|| came_as(array))?;
                        let values = values.values();
                        let value = |row: usize| if valid(row) { values[row] } else { 0 };
                        Prepared::Decimals { until: until(rows, value, pause).await, seen }
                    }
                    Number::Decimal { exact: true } => {
                        return Err(Error::internal("a sum beyond 128 bits over frames"));
                    }
                }
            }
            Slot::Extreme { order, max, .. } => {
                Prepared::Best(Best::new(&arguments[0], *order, *max, growing)?)
            }
            Slot::Counted { .. } => {
                return Err(Error::internal("a window function with a state that frames have not"));
            }
        })
    }

    /// What the slot holds for each frame.
    fn state(&mut self, frames: &Frames) -> Result<State> {
        let any = |seen: &Option<Vec<i64>>| {
            let any = match seen {
                Some(until) => {
                    frames.all().map(|(a, b)| until[b] > until[a]).collect::<NullBuffer>()
                }
                None => frames.all().map(|(a, b)| a < b).collect(),
            };
            Seen::of(Some(&any).filter(|any| any.null_count() > 0))
        };
        Ok(match self {
            Prepared::Rows => State::Counts(frames.all().map(|(a, b)| (b - a) as i64).collect()),
            Prepared::Counts(None) => State::Counts(vec![0; frames.starts.len()]),
            Prepared::Counts(Some(until)) => {
                State::Counts(frames.all().map(|(a, b)| until[b] - until[a]).collect())
            }
            // Where running sums wrap, so do those of groups.
            Prepared::Ints { until, seen } => {
                let sums = frames.all().map(|(a, b)| until[b].wrapping_sub(until[a])).collect();
                State::Ints { sums, seen: any(seen) }
            }
            Prepared::Decimals { until, seen } => {
                let sums = frames.all().map(|(a, b)| until[b].wrapping_sub(until[a])).collect();
                State::Decimals { sums, highs: vec![], exact: false, seen: any(seen) }
            }
            Prepared::Floats { sums, seen } => {
                State::Floats { sums: sums.of(frames), seen: any(seen) }
            }
            Prepared::Best(_) => {
                return Err(Error::internal("a window function of a value and of something else"));
            }
        })
    }
}

/// The sums of the values up to each row, and of all.
async fn until<T: Copy + Default + WrappingAdd>(
    rows: usize,
    value: impl Fn(usize) -> T,
    pause: &Pause<'_>,
) -> Vec<T> {
    let mut until = Vec::with_capacity(rows + 1);
    let mut sum = T::default();
    until.push(sum);
    for start in (0..rows).step_by(STEP_ROWS) {
        until.extend((start..(start + STEP_ROWS).min(rows)).map(|row| {
            sum = sum.wrapping_add(value(row));
            sum
        }));
        pause().await;
    }
    until
}

trait WrappingAdd {
    fn wrapping_add(self, other: Self) -> Self;
}

impl WrappingAdd for i64 {
    fn wrapping_add(self, other: Self) -> Self {
        i64::wrapping_add(self, other)
    }
}

impl WrappingAdd for i128 {
    fn wrapping_add(self, other: Self) -> Self {
        i128::wrapping_add(self, other)
    }
}

/// Sums of doubles are no differences: what is small would be lost beside what is large, and infinity
/// stays.
enum Floats {
    /// The values, and the frame that was summed last.
    Growing {
        values: Vec<f64>,
        start: usize,
        end: usize,
        sum: f64,
    },
    Any(Tree<f64, fn(f64, f64) -> f64>),
}

impl Floats {
    fn new(values: Vec<f64>, growing: bool) -> Self {
        match growing {
            true => Floats::Growing { values, start: 0, end: 0, sum: 0.0 },
            false => Floats::Any(Tree::new(values, 0.0, |a, b| a + b)),
        }
    }

    fn of(&mut self, frames: &Frames) -> Vec<f64> {
        match self {
            Floats::Any(tree) => frames.all().map(|(a, b)| tree.of(a, b)).collect(),
            Floats::Growing { values, start, end, sum } => {
                let sums = frames.all().map(|(a, b)| {
                    if (a, true) != (*start, b >= *end) {
                        (*start, *end, *sum) = (a, a, 0.0);
                    }
                    values[*end..b].iter().for_each(|v| *sum += v);
                    *end = b;
                    *sum
                });
                sums.collect()
            }
        }
    }
}

const NO_ROW: u32 = u32::MAX;

/// Rows that are added up before others have their turn.
const STEP_ROWS: usize = 8 * BATCH_ROWS;

type Better = Box<dyn Fn(u32, u32) -> u32 + Send + Sync>;

/// For each frame the row with the least or greatest value.
enum Best {
    /// The better one of two rows, which have values or are none, and the frame that was looked at last.
    Growing {
        better: Better,
        rows: Vec<u32>,
        start: usize,
        end: usize,
        so_far: u32,
    },
    Any(Tree<u32, Better>),
}

impl Best {
    fn new(values: &ArrayRef, order: Order, max: bool, growing: bool) -> Result<Self> {
        let is_better: Box<dyn Fn(u32, u32) -> bool + Send + Sync> = match order {
            Order::Decimal | Order::Bytes => {
                let options = SortOptions { descending: max, nulls_first: false };
                let compare = make_comparator(values, values, options).map_err(internal)?;
                Box::new(move |a, b| compare(a as usize, b as usize).is_lt())
            }
            _ => {
                let words = ordered(order, values)?.into_owned();
                let max_mask = if max { -1 } else { 0 };
                // With all bits flipped the order is the other way round.
                Box::new(move |a, b| words[a as usize] ^ max_mask < words[b as usize] ^ max_mask)
            }
        };
        // Of two equal ones the first: all that is looked at is as good.
        let better: Better = Box::new(move |a, b| match (a, b) {
            (NO_ROW, other) | (other, NO_ROW) => other,
            (a, b) if is_better(b, a) => b,
            (a, _) => a,
        });
        let nulls = values.logical_nulls();
        let row = |row: u32| {
            let valid = nulls.as_ref().is_none_or(|n| n.is_valid(row as usize));
            if valid { row } else { NO_ROW }
        };
        let rows = (0..values.len() as u32).map(row).collect();
        Ok(match growing {
            true => Best::Growing { better, rows, start: 0, end: 0, so_far: NO_ROW },
            false => Best::Any(Tree::new(rows, NO_ROW, better)),
        })
    }

    /// NULL: there is none.
    fn of(&mut self, frames: &Frames) -> UInt32Array {
        let found = |row: u32| (row != NO_ROW).then_some(row);
        match self {
            Best::Any(tree) => frames.all().map(|(a, b)| found(tree.of(a, b))).collect(),
            Best::Growing { better, rows, start, end, so_far } => {
                let best = frames.all().map(|(a, b)| {
                    if (a, true) != (*start, b >= *end) {
                        (*start, *end, *so_far) = (a, a, NO_ROW);
                    }
                    *so_far = rows[*end..b].iter().fold(*so_far, |best, &row| better(best, row));
                    *end = b;
                    found(*so_far)
                });
                best.collect()
            }
        }
    }
}

/// Combines any range of values in few steps: each node of the tree holds what its two children
/// come to. Values are combined in their order.
struct Tree<T, F> {
    leaves: usize,
    nodes: Vec<T>,
    neutral: T,
    combine: F,
}

impl<T: Copy, F: Fn(T, T) -> T> Tree<T, F> {
    fn new(values: Vec<T>, neutral: T, combine: F) -> Self {
        let leaves = values.len().next_power_of_two();
        let mut nodes = vec![neutral; 2 * leaves];
        nodes[leaves..leaves + values.len()].copy_from_slice(&values);
        for node in (1..leaves).rev() {
            nodes[node] = combine(nodes[2 * node], nodes[2 * node + 1]);
        }
        Tree { leaves, nodes, neutral, combine }
    }

    fn of(&self, start: usize, end: usize) -> T {
        let (mut left, mut right) = (self.neutral, self.neutral);
        let (mut a, mut b) = (start + self.leaves, end + self.leaves);
        while a < b {
            if a % 2 == 1 {
                left = (self.combine)(left, self.nodes[a]);
                a += 1;
            }
            if b % 2 == 1 {
                b -= 1;
                right = (self.combine)(self.nodes[b], right);
            }
            (a, b) = (a / 2, b / 2);
        }
        (self.combine)(left, right)
    }
}
