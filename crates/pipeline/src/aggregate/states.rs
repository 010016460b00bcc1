//! The states of native functions: vectors indexed by group id.

use std::borrow::Cow;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{
    DataType, Decimal128Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
};
use thalweg_base::{Error, Result};

use super::FEW_GROUPS_MAX;
use super::kernels::*;
use super::plan::{Number, Order, Slot};
use crate::encoding::{codes, ordered_float, words};

/// Which groups have had a value. While every row had one nothing is kept, and all have.
#[derive(Default)]
pub(super) struct Seen {
    flags: Vec<bool>,
}

impl Seen {
    fn mark(&mut self, batch: &Batch, selected: Option<&BooleanBuffer>) {
        if selected.is_none() && self.flags.is_empty() {
            return;
        }
        self.widen(batch.before, batch.total);
        match selected {
            Some(selected) if batch.total == 1 => {
                self.flags[0] |= selected.count_set_bits() > 0;
            }
            None if batch.total == 1 => self.flags[0] |= !batch.ids.is_empty(),
            None => batch.ids.iter().for_each(|&id| self.flags[id as usize] = true),
            Some(selected) => {
                selected.set_indices().for_each(|i| self.flags[batch.ids[i] as usize] = true);
            }
        }
    }

    fn widen(&mut self, before: usize, total: usize) {
        if self.flags.is_empty() {
            self.flags.resize(before, true);
        }
        self.flags.resize(total, false);
    }

    /// Those that are not NULL.
    pub fn of(nulls: Option<&NullBuffer>) -> Self {
        Seen { flags: nulls.map_or(vec![], |n| n.iter().collect()) }
    }

    pub fn has(&self, group: usize) -> bool {
        self.flags.is_empty() || self.flags[group]
    }

    fn merge(&mut self, other: &Seen, at: &Merge) {
        if self.flags.is_empty() && other.flags.is_empty() {
            return;
        }
        self.widen(at.before, at.total);
        for (&id, &group) in at.ids.iter().zip(at.groups) {
            self.flags[id as usize] |= other.has(group as usize);
        }
    }

    fn permute(&mut self, order: &[u32]) {
        if !self.flags.is_empty() {
            self.flags = permuted(&self.flags, order);
        }
    }

    pub fn nulls(&self) -> Option<NullBuffer> {
        let nulls = (!self.flags.is_empty()).then(|| NullBuffer::from(self.flags.as_slice()));
        nulls.filter(|n| n.null_count() > 0)
    }
}

fn permuted<T: Copy>(values: &[T], order: &[u32]) -> Vec<T> {
    order.iter().map(|&i| values[i as usize]).collect()
}

/// Rows by group, and how many groups there were and are.
pub(super) struct Batch<'a> {
    pub ids: &'a [u32],
    pub before: usize,
    pub total: usize,
    pub arguments: &'a [ArrayRef],
    pub filters: &'a [BooleanArray],
}

/// These groups of another state are those of `ids` here.
pub(super) struct Merge<'a> {
    pub groups: &'a [u32],
    pub ids: &'a [u32],
    pub before: usize,
    pub total: usize,
}

/// The state of a slot. Counts may be shorter than there are groups: the rest is 0.
pub(super) enum State {
    Counts(Vec<i64>),
    Ints {
        sums: Vec<i64>,
        seen: Seen,
    },
    Floats {
        sums: Vec<f64>,
        seen: Seen,
    },
    /// `highs` is what the sums have beyond 128 bits, once that can be, and if it matters.
    Decimals {
        sums: Vec<i128>,
        highs: Vec<i64>,
        exact: bool,
        seen: Seen,
    },
    Words {
        best: Vec<i64>,
        max: bool,
        seen: Seen,
    },
    Wides {
        best: Vec<i128>,
        max: bool,
        seen: Seen,
    },
    Bytes {
        best: Vec<Vec<u8>>,
        max: bool,
        seen: Seen,
        heap_bytes: usize,
    },
}

/// Decimals of a batch in one of their forms.
enum Decimals<'a> {
    Narrow(Cow<'a, [i64]>),
    Wide(Cow<'a, [i128]>),
}

fn decimals<'a>(array: &'a ArrayRef) -> Result<Decimals<'a>> {
    match array.data_type() {
        DataType::Decimal128(..) => {
            let values: &'a [i128] = array.as_primitive::<Decimal128Type>().values();
            Ok(Decimals::Wide(Cow::Borrowed(values)))
        }
        _ => Ok(Decimals::Narrow(words(array).ok_or_else(|| came_as(array))?)),
    }
}

pub(super) fn came_as(array: &dyn Array) -> Error {
    Error::internal(format!("an aggregate's argument came as {}", array.data_type()))
}

/// What a state of extremes holds, as the bits of the value.
pub(super) fn unordered(order: Order, word: i64) -> u64 {
    match order {
        Order::Unsigned => (word ^ i64::MIN).cast_unsigned(),
        Order::Float => ordered_float(word).cast_unsigned(),
        _ => word.cast_unsigned(),
    }
}

/// Words in the order of the values. A narrower float's sign is that of its word, and its bits are
/// the word's lowest ones both before and after.
pub(super) fn ordered(order: Order, array: &ArrayRef) -> Result<Cow<'_, [i64]>> {
    let floats: Vec<i64> = match array.data_type() {
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>().values();
            values.iter().map(|v| ordered_float(v.to_bits().cast_signed())).collect()
        }
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>().values();
            values.iter().map(|v| ordered_float(v.to_bits().cast_signed().into())).collect()
        }
        DataType::Float16 => {
            let values = array.as_primitive::<Float16Type>().values();
            values.iter().map(|v| ordered_float(v.to_bits().cast_signed().into())).collect()
        }
        _ => {
            let words = words(array).ok_or_else(|| came_as(array))?;
            return Ok(match order {
                Order::Unsigned => Cow::Owned(words.iter().map(|w| w ^ i64::MIN).collect()),
                _ => words,
            });
        }
    };
    Ok(Cow::Owned(floats))
}

/// The rows that count; `None`: all of them.
fn selected(batch: &Batch, arguments: &[usize], filter: Option<usize>) -> Option<BooleanBuffer> {
    let mut all: Option<BooleanBuffer> = None;
    let mut and = |bits: BooleanBuffer| {
        all = Some(all.take().map_or(bits.clone(), |all| &all & &bits));
    };
    for &argument in arguments {
        if let Some(nulls) = batch.arguments[argument].logical_nulls()
            && nulls.null_count() > 0
        {
            and(nulls.into_inner());
        }
    }
    if let Some(filter) = filter {
        let filter = &batch.filters[filter];
        and(match filter.nulls() {
            Some(nulls) => filter.values() & nulls.inner(),
            None => filter.values().clone(),
        });
    }
    all.filter(|bits| bits.count_set_bits() < bits.len())
}

fn mask<'a, T: Copy>(
    values: Cow<'a, [T]>,
    selected: Option<&BooleanBuffer>,
    identity: T,
) -> Cow<'a, [T]> {
    match selected {
        None => values,
        Some(selected) => Cow::Owned(masked(&values, selected, identity)),
    }
}

/// Columns that wait for [`lanes`]: four are done at once.
#[derive(Default)]
struct Waiting<'a> {
    add_ints: Vec<(usize, Cow<'a, [i64]>)>,
    add_floats: Vec<(usize, Cow<'a, [f64]>)>,
    mins: Vec<(usize, Cow<'a, [i64]>)>,
    maxs: Vec<(usize, Cow<'a, [i64]>)>,
}

/// The states of all slots.
pub(super) struct States {
    pub all: Vec<State>,
}

impl States {
    /// `single`: of the one group that is there without any rows.
    pub fn new(slots: &[Slot], single: bool) -> Self {
        let seen = || Seen { flags: vec![false; usize::from(single)] };
        let state = |slot: &Slot| match *slot {
            Slot::Rows | Slot::Missing(_) | Slot::Counted { .. } => State::Counts(vec![]),
            Slot::Sum { number, .. } => match number {
                Number::Int => State::Ints { sums: vec![], seen: seen() },
                Number::Float => State::Floats { sums: vec![], seen: seen() },
                Number::Decimal { exact } => {
                    State::Decimals { sums: vec![], highs: vec![], exact, seen: seen() }
                }
            },
            Slot::Extreme { order, max, .. } => match order {
                Order::Decimal => State::Wides { best: vec![], max, seen: seen() },
                Order::Bytes => State::Bytes { best: vec![], max, seen: seen(), heap_bytes: 0 },
                _ => State::Words { best: vec![], max, seen: seen() },
            },
        };
        Self { all: slots.iter().map(state).collect() }
    }

    pub fn bytes(&self) -> usize {
        self.all.iter().map(State::bytes).sum()
    }

    /// Gives every state a value for every group.
    pub fn resize(&mut self, total: usize) {
        self.all.iter_mut().for_each(|s| s.resize(total));
    }

    /// Makes room for so many more groups, where something is kept of each.
    pub fn reserve(&mut self, slots: &[Slot], groups: usize) {
        let kept = slots.iter().zip(&mut self.all).filter(|(s, _)| !matches!(s, Slot::Missing(_)));
        for (_, state) in kept {
            match state {
                State::Counts(values)
                | State::Ints { sums: values, .. }
                | State::Words { best: values, .. } => values.reserve(groups),
                State::Floats { sums, .. } => sums.reserve(groups),
                State::Decimals { sums, .. } | State::Wides { best: sums, .. } => {
                    sums.reserve(groups);
                }
                State::Bytes { best, .. } => best.reserve(groups),
            }
        }
    }

    pub fn permute(&mut self, order: &[u32]) {
        self.all.iter_mut().for_each(|s| s.permute(order));
    }

    pub fn update(&mut self, slots: &[Slot], batch: &Batch) -> Result<()> {
        let few = batch.total <= FEW_GROUPS_MAX
            && batch.total > 1
            && batch.total * 8 <= batch.ids.len()
            && batch.ids.len() <= BOUNDED_ROWS_MAX;
        let mut waiting = Waiting::default();
        for (i, (slot, state)) in slots.iter().zip(&mut self.all).enumerate() {
            state.update(i, slot, batch, few, &mut waiting)?;
        }
        let Batch { ids, total, .. } = *batch;
        let all = &mut self.all;
        in_lanes::<AddInt>(ids, total, &waiting.add_ints, |slot, group, sum| {
            match &mut all[slot] {
                State::Ints { sums, .. } => sums[group] = sums[group].wrapping_add(sum),
                State::Decimals { sums, highs, .. } => match highs.get_mut(group) {
                    Some(high) => add_exact(&mut sums[group], high, sum.into()),
                    None => sums[group] = sums[group].wrapping_add(sum.into()),
                },
                _ => unreachable!("only sums of ints wait"),
            }
        });
        in_lanes::<AddFloat>(ids, total, &waiting.add_floats, |slot, group, sum| {
            let State::Floats { sums, .. } = &mut all[slot] else {
                unreachable!("only sums of floats wait")
            };
            sums[group] += sum;
        });
        let mut extreme = |slot: usize, group: usize, word: i64| {
            let State::Words { best, max, .. } = &mut all[slot] else {
                unreachable!("only extremes of words wait")
            };
            best[group] = if *max { best[group].max(word) } else { best[group].min(word) };
        };
        in_lanes::<MinWord>(ids, total, &waiting.mins, &mut extreme);
        in_lanes::<MaxWord>(ids, total, &waiting.maxs, &mut extreme);
        Ok(())
    }

    pub fn merge(&mut self, other: &States, at: &Merge) {
        for (state, other) in self.all.iter_mut().zip(&other.all) {
            state.merge(other, at);
        }
    }
}

/// Runs [`lanes`] over the columns and hands on what each group has of each slot.
fn in_lanes<O: Op>(
    ids: &[u32],
    groups: usize,
    columns: &[(usize, Cow<[O::T]>)],
    mut flush: impl FnMut(usize, usize, O::T),
) where
    [O::T]: ToOwned,
{
    fn run<O: Op, const C: usize>(
        ids: &[u32],
        groups: usize,
        columns: &[(usize, Cow<[O::T]>)],
        flush: &mut impl FnMut(usize, usize, O::T),
    ) where
        [O::T]: ToOwned,
    {
        let states = lanes::<O, C>(ids, groups, std::array::from_fn(|c| columns[c].1.as_ref()));
        for (group, state) in states.iter().enumerate() {
            for c in 0..C {
                flush(columns[c].0, group, state[c]);
            }
        }
    }
    for columns in columns.chunks(4) {
        match columns.len() {
            4 => run::<O, 4>(ids, groups, columns, &mut flush),
            3 => run::<O, 3>(ids, groups, columns, &mut flush),
            2 => run::<O, 2>(ids, groups, columns, &mut flush),
            _ => run::<O, 1>(ids, groups, columns, &mut flush),
        }
    }
}

/// One group has all rows, or every row goes to its own.
fn fold<O: Op>(states: &mut [O::T], ids: &[u32], values: &[O::T]) {
    match states {
        [state] => *state = O::combine(*state, one::<O, _>(values)),
        _ => many::<O>(states, ids, values),
    }
}

/// All words of a compact array in one; `None`: it is none.
fn one_of_compact<O: Op<T = i64>>(array: &dyn Array) -> Option<i64> {
    Some(match array.data_type() {
        DataType::Int8 => one::<O, _>(array.as_primitive::<Int8Type>().values()),
        DataType::Int16 => one::<O, _>(array.as_primitive::<Int16Type>().values()),
        DataType::Int32 => one::<O, _>(array.as_primitive::<Int32Type>().values()),
        _ => return None,
    })
}

/// One group has all rows of an array, which is compact; `false`: that is not so, and nothing is done.
fn fold_compact<O: Op<T = i64>>(
    states: &mut [i64],
    array: &dyn Array,
    selected: Option<&BooleanBuffer>,
) -> bool {
    let ([state], None) = (states, selected) else { return false };
    let Some(all) = one_of_compact::<O>(array) else { return false };
    *state = O::combine(*state, all);
    true
}

impl State {
    fn bytes(&self) -> usize {
        let seen = |s: &Seen| s.flags.capacity();
        match self {
            State::Counts(counts) => counts.capacity() * 8,
            State::Ints { sums, seen: s } => sums.capacity() * 8 + seen(s),
            State::Floats { sums, seen: s } => sums.capacity() * 8 + seen(s),
            State::Decimals { sums, highs, seen: s, .. } => {
                sums.capacity() * 16 + highs.capacity() * 8 + seen(s)
            }
            State::Words { best, seen: s, .. } => best.capacity() * 8 + seen(s),
            State::Wides { best, seen: s, .. } => best.capacity() * 16 + seen(s),
            State::Bytes { best, seen: s, heap_bytes, .. } => {
                best.capacity() * size_of::<Vec<u8>>() + heap_bytes + seen(s)
            }
        }
    }

    fn resize(&mut self, total: usize) {
        match self {
            State::Counts(counts) => counts.resize(total, 0),
            State::Ints { sums, .. } => sums.resize(total, 0),
            State::Floats { sums, .. } => sums.resize(total, 0.0),
            State::Decimals { sums, highs, .. } => {
                sums.resize(total, 0);
                if !highs.is_empty() {
                    highs.resize(total, 0);
                }
            }
            State::Words { best, max, .. } => {
                best.resize(total, if *max { i64::MIN } else { i64::MAX });
            }
            State::Wides { best, max, .. } => {
                best.resize(total, if *max { i128::MIN } else { i128::MAX });
            }
            State::Bytes { best, .. } => best.resize(total, vec![]),
        }
    }

    fn permute(&mut self, order: &[u32]) {
        match self {
            State::Counts(counts) => *counts = permuted(counts, order),
            State::Ints { sums, seen } => {
                *sums = permuted(sums, order);
                seen.permute(order);
            }
            State::Floats { sums, seen } => {
                *sums = permuted(sums, order);
                seen.permute(order);
            }
            State::Decimals { sums, highs, seen, .. } => {
                *sums = permuted(sums, order);
                if !highs.is_empty() {
                    *highs = permuted(highs, order);
                }
                seen.permute(order);
            }
            State::Words { best, seen, .. } => {
                *best = permuted(best, order);
                seen.permute(order);
            }
            State::Wides { best, seen, .. } => {
                *best = permuted(best, order);
                seen.permute(order);
            }
            State::Bytes { best, seen, .. } => {
                *best = order.iter().map(|&i| std::mem::take(&mut best[i as usize])).collect();
                seen.permute(order);
            }
        }
    }

    fn update<'a>(
        &mut self,
        number: usize,
        slot: &Slot,
        batch: &Batch<'a>,
        few: bool,
        waiting: &mut Waiting<'a>,
    ) -> Result<()> {
        let Batch { ids, total, .. } = *batch;
        // Missing rows are rare: nothing is kept before the first.
        if !matches!(slot, Slot::Missing(_)) {
            self.resize(total);
        }
        match (slot, self) {
            (Slot::Rows, State::Counts(counts)) => count(counts, ids, few),
            (Slot::Missing(arguments), State::Counts(counts)) => {
                if let Some(selected) = selected(batch, arguments, None) {
                    counts.resize(total, 0);
                    (!&selected).set_indices().for_each(|i| counts[ids[i] as usize] += 1);
                }
            }
            (Slot::Counted { arguments, filter }, State::Counts(counts)) => {
                match selected(batch, arguments, Some(*filter)) {
                    None => count(counts, ids, few),
                    Some(s) => s.set_indices().for_each(|i| counts[ids[i] as usize] += 1),
                }
            }
            (Slot::Sum { argument, filter, .. }, State::Ints { sums, seen }) => {
                let selected = selected(batch, &[*argument], *filter);
                seen.mark(batch, selected.as_ref());
                let array = &batch.arguments[*argument];
                if fold_compact::<AddInt>(sums, array, selected.as_ref()) {
                    return Ok(());
                }
                let values = words(array).ok_or_else(|| came_as(array))?;
                let values = mask(values, selected.as_ref(), 0);
                match few {
                    true => waiting.add_ints.push((number, values)),
                    false => fold::<AddInt>(sums, ids, &values),
                }
            }
            (Slot::Sum { argument, filter, .. }, State::Floats { sums, seen }) => {
                let selected = selected(batch, &[*argument], *filter);
                seen.mark(batch, selected.as_ref());
                let array = &batch.arguments[*argument];
                let values =
                    array.as_primitive_opt::<Float64Type>().ok_or_else(|| came_as(array))?;
                let values = mask(Cow::Borrowed(values.values().as_ref()), selected.as_ref(), 0.0);
                match few {
                    true => waiting.add_floats.push((number, values)),
                    false => fold::<AddFloat>(sums, ids, &values),
                }
            }
            (Slot::Sum { argument, filter, .. }, State::Decimals { sums, highs, exact, seen }) => {
                let selected = selected(batch, &[*argument], *filter);
                seen.mark(batch, selected.as_ref());
                let array = &batch.arguments[*argument];
                if let ([sum], [], None) = (sums.as_mut_slice(), highs.as_slice(), &selected)
                    && let Some(all) = one_of_compact::<AddInt>(array)
                {
                    *sum = sum.wrapping_add(all.into());
                    return Ok(());
                }
                match decimals(array)? {
                    Decimals::Narrow(values) => {
                        let values = mask(values, selected.as_ref(), 0);
                        if few && bounded(&values) {
                            waiting.add_ints.push((number, values));
                        } else if highs.is_empty() {
                            sum_narrow(sums, ids, &values);
                        } else {
                            sum_exactly(sums, highs, ids, values.iter().map(|&v| v.into()));
                        }
                    }
                    Decimals::Wide(values) => {
                        let values = mask(values, selected.as_ref(), 0);
                        if few && let Some(narrow) = narrowed(&values) {
                            waiting.add_ints.push((number, Cow::Owned(narrow)));
                        } else if *exact {
                            highs.resize(total, 0);
                            sum_exactly(sums, highs, ids, values.iter().copied());
                        } else {
                            fold::<AddWide>(sums, ids, &values);
                        }
                    }
                }
            }
            (Slot::Extreme { argument, filter, order, .. }, State::Words { best, max, seen }) => {
                let selected = selected(batch, &[*argument], *filter);
                seen.mark(batch, selected.as_ref());
                let array = &batch.arguments[*argument];
                let done = *order == Order::Word
                    && match *max {
                        true => fold_compact::<MaxWord>(best, array, selected.as_ref()),
                        false => fold_compact::<MinWord>(best, array, selected.as_ref()),
                    };
                if done {
                    return Ok(());
                }
                let values = ordered(*order, array)?;
                let identity = if *max { i64::MIN } else { i64::MAX };
                let values = mask(values, selected.as_ref(), identity);
                match (few, *max) {
                    (true, true) => waiting.maxs.push((number, values)),
                    (true, false) => waiting.mins.push((number, values)),
                    (false, true) => fold::<MaxWord>(best, ids, &values),
                    (false, false) => fold::<MinWord>(best, ids, &values),
                }
            }
            (Slot::Extreme { argument, filter, .. }, State::Wides { best, max, seen }) => {
                let selected = selected(batch, &[*argument], *filter);
                seen.mark(batch, selected.as_ref());
                match decimals(&batch.arguments[*argument])? {
                    Decimals::Wide(values) => {
                        let identity = if *max { i128::MIN } else { i128::MAX };
                        let values = mask(values, selected.as_ref(), identity);
                        match max {
                            true => fold::<MaxWide>(best, ids, &values),
                            false => fold::<MinWide>(best, ids, &values),
                        }
                    }
                    // No narrow value is an identity here, so rows go one by one where some
                    // do not count.
                    Decimals::Narrow(values) => match (selected, *max) {
                        (None, true) => many_widened::<MaxWide>(best, ids, &values),
                        (None, false) => many_widened::<MinWide>(best, ids, &values),
                        (Some(selected), max) => selected.set_indices().for_each(|i| {
                            let (best, value) = (&mut best[ids[i] as usize], i128::from(values[i]));
                            *best = if max { value.max(*best) } else { value.min(*best) };
                        }),
                    },
                }
            }
            (
                Slot::Extreme { argument, filter, .. },
                State::Bytes { best, max, seen, heap_bytes },
            ) => {
                let selected = selected(batch, &[*argument], *filter);
                // Here it matters for each value whether it is the first.
                seen.widen(batch.before, total);
                let array = &batch.arguments[*argument];
                let selected = one_of_each(array, ids, total, selected.as_ref()).or(selected);
                each_bytes(array, selected.as_ref(), |row, bytes| {
                    let id = ids[row] as usize;
                    let first = !std::mem::replace(&mut seen.flags[id], true);
                    better(&mut best[id], bytes, first, *max, heap_bytes);
                })?;
            }
            _ => unreachable!("states are made for their slots"),
        }
        Ok(())
    }

    fn merge(&mut self, other: &State, at: &Merge) {
        let &Merge { groups, ids, total, .. } = at;
        self.resize(total);
        match (self, other) {
            (State::Counts(counts), State::Counts(others)) => {
                merge::<AddInt>(counts, others, at);
            }
            (State::Ints { sums, seen }, State::Ints { sums: others, seen: other_seen }) => {
                merge::<AddInt>(sums, others, at);
                seen.merge(other_seen, at);
            }
            (State::Floats { sums, seen }, State::Floats { sums: others, seen: other_seen }) => {
                merge::<AddFloat>(sums, others, at);
                seen.merge(other_seen, at);
            }
            (
                State::Decimals { sums, highs, seen, .. },
                State::Decimals { sums: others, highs: other_highs, seen: other_seen, .. },
            ) => {
                if highs.is_empty() && other_highs.is_empty() {
                    merge::<AddWide>(sums, others, at);
                } else {
                    highs.resize(total, 0);
                    let others = groups.iter().map(|&group| others[group as usize]);
                    sum_exactly(sums, highs, ids, others);
                    merge::<AddInt>(highs, other_highs, at);
                }
                seen.merge(other_seen, at);
            }
            (
                State::Words { best, max, seen },
                State::Words { best: others, seen: other_seen, .. },
            ) => {
                match max {
                    true => merge::<MaxWord>(best, others, at),
                    false => merge::<MinWord>(best, others, at),
                }
                seen.merge(other_seen, at);
            }
            (
                State::Wides { best, max, seen },
                State::Wides { best: others, seen: other_seen, .. },
            ) => {
                match max {
                    true => merge::<MaxWide>(best, others, at),
                    false => merge::<MinWide>(best, others, at),
                }
                seen.merge(other_seen, at);
            }
            (
                State::Bytes { best, max, seen, heap_bytes },
                State::Bytes { best: others, seen: other_seen, .. },
            ) => {
                seen.widen(at.before, total);
                for (&id, &group) in ids.iter().zip(groups) {
                    let (id, group) = (id as usize, group as usize);
                    if other_seen.has(group) {
                        let first = !std::mem::replace(&mut seen.flags[id], true);
                        better(&mut best[id], &others[group], first, *max, heap_bytes);
                    }
                }
            }
            _ => unreachable!("states of one plan"),
        }
    }
}

/// Nothing, if the others have nothing yet.
fn merge<O: Op>(states: &mut [O::T], others: &[O::T], at: &Merge) {
    if others.is_empty() {
        return;
    }
    for (&id, &group) in at.ids.iter().zip(at.groups) {
        let state = &mut states[id as usize];
        *state = O::combine(*state, others[group as usize]);
    }
}

fn count(counts: &mut [i64], ids: &[u32], few: bool) {
    match counts {
        [count] => *count += ids.len() as i64,
        _ if few => {
            let more = lane_counts(ids, counts.len());
            counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
        }
        _ => many_counts(counts, ids),
    }
}

fn sum_narrow(sums: &mut [i128], ids: &[u32], values: &[i64]) {
    let [sum] = sums else {
        return many_widened::<AddWide>(sums, ids, values);
    };
    for values in values.chunks(BOUNDED_ROWS_MAX) {
        *sum = sum.wrapping_add(match bounded(values) {
            true => one::<AddInt, _>(values).into(),
            false => values.iter().map(|&v| i128::from(v)).sum(),
        });
    }
}

fn sum_exactly(
    sums: &mut [i128],
    highs: &mut [i64],
    ids: &[u32],
    values: impl Iterator<Item = i128>,
) {
    for (&id, value) in ids.iter().zip(values) {
        add_exact(&mut sums[id as usize], &mut highs[id as usize], value);
    }
}

fn better(best: &mut Vec<u8>, bytes: &[u8], first: bool, max: bool, heap_bytes: &mut usize) {
    if first || if max { bytes > best.as_slice() } else { bytes < best.as_slice() } {
        let before = best.capacity();
        best.clear();
        best.extend_from_slice(bytes);
        *heap_bytes += best.capacity() - before;
    }
}

/// Of a dictionary, if there are few pairs of a group and a value: a selected row for each.
fn one_of_each(
    array: &ArrayRef,
    ids: &[u32],
    groups: usize,
    selected: Option<&BooleanBuffer>,
) -> Option<BooleanBuffer> {
    let codes = codes(array)?;
    let values = array.as_any_dictionary().values().len();
    let pairs = groups.checked_mul(values).filter(|&pairs| 0 < pairs && pairs <= ids.len() / 2)?;
    let mut seen = vec![false; pairs];
    Some(BooleanBuffer::collect_bool(ids.len(), |row| {
        let pair = ids[row] as usize * values + codes[row] as usize;
        selected.is_none_or(|s| s.value(row)) && !std::mem::replace(&mut seen[pair], true)
    }))
}

/// Calls `f` with every selected row's bytes.
fn each_bytes(
    array: &ArrayRef,
    selected: Option<&BooleanBuffer>,
    mut f: impl FnMut(usize, &[u8]),
) -> Result<()> {
    macro_rules! each {
        ($values:expr, $index:expr) => {{
            let (values, index) = ($values, $index);
            let mut call = |i: usize| f(i, AsRef::<[u8]>::as_ref(values.value(index(i))));
            match selected {
                None => (0..array.len()).for_each(call),
                Some(selected) => selected.set_indices().for_each(&mut call),
            }
        }};
    }
    macro_rules! of_type {
        ($values:expr, $index:expr) => {{
            use DataType::*;
            match $values.data_type() {
                Utf8 => each!($values.as_string::<i32>(), $index),
                LargeUtf8 => each!($values.as_string::<i64>(), $index),
                Utf8View => each!($values.as_string_view(), $index),
                Binary => each!($values.as_binary::<i32>(), $index),
                LargeBinary => each!($values.as_binary::<i64>(), $index),
                BinaryView => each!($values.as_binary_view(), $index),
                _ => return Err(came_as(array)),
            }
        }};
    }
    if let Some(codes) = codes(array) {
        let values = array.as_any_dictionary().values();
        of_type!(values, |i: usize| codes[i] as usize);
    } else {
        of_type!(array, |i: usize| i);
    }
    Ok(())
}
