//! Aggregate functions over frames of rows that are in order: those of window functions.
//!
//! If all rows of a partition have the same frame, partitions are groups, and every function is
//! computed as it is for groups. Otherwise each row has a state of its own, of a sum or a count as
//! the difference of two running ones, and results are made of those states as of groups'.

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array, make_comparator};
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

/// For each row the rows that its function sees: `starts[i]..ends[i]`, which may be none.
pub struct Frames {
    pub starts: Vec<u32>,
    pub ends: Vec<u32>,
    /// Frames only grow, but where they all begin anew.
    pub growing: bool,
}

impl Frames {
    /// A frame that ends before it begins has no rows.
    pub fn new(starts: Vec<u32>, ends: impl Iterator<Item = u32>, growing: bool) -> Self {
        let ends = ends.zip(&starts).map(|(end, &start)| end.max(start)).collect();
        Frames { starts, ends, growing }
    }
}

/// The results of one function of these arguments over groups of rows, which follow each other: one
/// for each group.
pub fn by_group(
    function: &Function,
    arguments: &[ArrayRef],
    ids: &[u32],
    groups: usize,
) -> Result<ArrayRef> {
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
    }
    states.resize(groups);
    match &plan.outputs[0] {
        Output::External(i) => accumulators[*i].evaluate(),
        output => result(output, &function.result, &plan.slots, &mut states, &[]),
    }
}

/// Whether [`by_row`] has code for a function over arguments of these types.
pub fn is_framed(function: &Function, argument_types: Vec<DataType>) -> bool {
    let exact =
        |slot: &Slot| matches!(slot, Slot::Sum { number: Number::Decimal { exact: true }, .. });
    let plan = Plan::new(&spec(function, argument_types));
    plan.is_ok_and(|p| p.externals.is_empty() && !p.slots.iter().any(exact))
}

fn spec(function: &Function, argument_types: Vec<DataType>) -> Spec {
    Spec { key_types: vec![], argument_types, functions: vec![function.clone()] }
}

fn types(arguments: &[ArrayRef]) -> Vec<DataType> {
    arguments.iter().map(|a| a.data_type().clone()).collect()
}

/// The results of one function of these arguments: one for each row.
pub fn by_row(function: &Function, arguments: &[ArrayRef], frames: &Frames) -> Result<ArrayRef> {
    let spec = spec(function, types(arguments));
    let plan = Plan::new(&spec)?;
    if let [Slot::Extreme { order, max, .. }] = plan.slots[..] {
        let best = extremes(&arguments[0], order, max, frames)?;
        return take(&arguments[0], &best, None).map_err(internal);
    }
    let states = plan.slots.iter().map(|slot| state(slot, arguments, frames));
    let mut states = States { all: states.collect::<Result<_>>()? };
    result(&plan.outputs[0], &function.result, &plan.slots, &mut states, &[])
}

/// What a slot holds for every row's frame.
fn state(slot: &Slot, arguments: &[ArrayRef], frames: &Frames) -> Result<State> {
    match slot {
        Slot::Rows => {
            let rows = frames.starts.iter().zip(&frames.ends);
            Ok(State::Counts(rows.map(|(start, end)| i64::from(end - start)).collect()))
        }
        Slot::Missing(missing) => {
            let nulls = missing.iter().map(|&a| arguments[a].logical_nulls());
            let nulls = nulls.fold(None, |all, n| NullBuffer::union(all.as_ref(), n.as_ref()));
            let Some(nulls) = nulls else { return Ok(State::Counts(vec![0; frames.starts.len()])) };
            let missing = nulls.iter().map(|valid| i64::from(!valid));
            Ok(State::Counts(differences(missing, frames)))
        }
        Slot::Sum { argument, number, .. } => {
            let array = &arguments[*argument];
            let nulls = array.logical_nulls().filter(|n| n.null_count() > 0);
            let valid = |row: usize| nulls.as_ref().is_none_or(|n| n.is_valid(row));
            let counts = match &nulls {
                None => vec![],
                Some(nulls) => differences(nulls.iter().map(i64::from), frames),
            };
            let has = |row: usize| match counts.get(row) {
                Some(count) => *count > 0,
                None => frames.starts[row] < frames.ends[row],
            };
            let seen = (0..frames.starts.len()).map(has).collect::<NullBuffer>();
            let seen = Seen::of(Some(&seen).filter(|n| n.null_count() > 0));
            Ok(match number {
                Number::Int => {
                    let values = words(array).ok_or_else(|| came_as(array))?;
                    let values = values.iter().enumerate();
                    let values = values.map(|(row, &v)| if valid(row) { v } else { 0 });
                    State::Ints { sums: differences(values, frames), seen }
                }
                Number::Float => {
                    let values =
                        array.as_primitive_opt::<Float64Type>().ok_or_else(|| came_as(array))?;
                    let values = values.values().iter().enumerate();
                    let values = values.map(|(row, &v)| if valid(row) { v } else { 0.0 });
                    State::Floats { sums: sums_of_floats(values.collect(), frames), seen }
                }
                Number::Decimal { exact: false } => {
                    let values =
                        array.as_primitive_opt::<Decimal128Type>().ok_or_else(|| came_as(array))?;
                    let values = values.values().iter().enumerate();
                    let values = values.map(|(row, &v)| if valid(row) { v } else { 0 });
                    let sums = wide_differences(values, frames);
                    State::Decimals { sums, highs: vec![], exact: false, seen }
                }
                Number::Decimal { exact: true } => {
                    return Err(Error::internal("a sum beyond 128 bits over frames"));
                }
            })
        }
        Slot::Counted { .. } | Slot::Extreme { .. } => {
            Err(Error::internal("a window function with a state that frames have not"))
        }
    }
}

macro_rules! differences {
    ($name:ident, $type:ty) => {
        /// The sums over all frames; where they wrap, so do those of groups.
        fn $name(values: impl Iterator<Item = $type>, frames: &Frames) -> Vec<$type> {
            let mut sum: $type = 0;
            let mut until = Vec::with_capacity(frames.starts.len() + 1);
            until.push(sum);
            until.extend(values.map(|value| {
                sum = sum.wrapping_add(value);
                sum
            }));
            let rows = frames.starts.iter().zip(&frames.ends);
            rows.map(|(&a, &b)| until[b as usize].wrapping_sub(until[a as usize])).collect()
        }
    };
}
differences!(differences, i64);
differences!(wide_differences, i128);

/// Not as differences: what is small would be lost beside what is large, and infinity stays.
fn sums_of_floats(values: Vec<f64>, frames: &Frames) -> Vec<f64> {
    if !frames.growing {
        let tree = Tree::new(values, 0.0, |a, b| a + b);
        let rows = frames.starts.iter().zip(&frames.ends);
        return rows.map(|(&a, &b)| tree.of(a as usize, b as usize)).collect();
    }
    let (mut start, mut end, mut sum) = (0, 0, 0.0);
    let rows = frames.starts.iter().zip(&frames.ends);
    let sums = rows.map(|(&a, &b)| {
        if (a as usize, true) != (start, b as usize >= end) {
            (start, end, sum) = (a as usize, a as usize, 0.0);
        }
        values[end..b as usize].iter().for_each(|v| sum += v);
        end = b as usize;
        sum
    });
    sums.collect()
}

const NO_ROW: u32 = u32::MAX;

/// For each row the row of its frame with the least or greatest value; NULL: there is none.
fn extremes(values: &ArrayRef, order: Order, max: bool, frames: &Frames) -> Result<UInt32Array> {
    let better: Box<dyn Fn(u32, u32) -> bool> = match order {
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
    let best = |a: u32, b: u32| match (a, b) {
        (NO_ROW, other) | (other, NO_ROW) => other,
        (a, b) if better(b, a) => b,
        (a, _) => a,
    };
    let nulls = values.logical_nulls();
    let row = |row: u32| {
        let valid = nulls.as_ref().is_none_or(|n| n.is_valid(row as usize));
        if valid { row } else { NO_ROW }
    };
    let rows = frames.starts.iter().zip(&frames.ends);
    let found = |row: u32| (row != NO_ROW).then_some(row);
    if !frames.growing {
        let tree = Tree::new((0..values.len() as u32).map(row).collect(), NO_ROW, best);
        return Ok(rows.map(|(&a, &b)| found(tree.of(a as usize, b as usize))).collect());
    }
    let (mut start, mut end, mut so_far) = (0, 0, NO_ROW);
    let extremes = rows.map(|(&a, &b)| {
        if (a, true) != (start, b >= end) {
            (start, end, so_far) = (a, a, NO_ROW);
        }
        so_far = (end..b).fold(so_far, |so_far, next| best(so_far, row(next)));
        end = b;
        found(so_far)
    });
    Ok(extremes.collect())
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
