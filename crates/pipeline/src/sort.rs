//! The sort sink: all rows in order, or the first of them.
//!
//! Keys become byte strings that compare as the rows do (normalised keys, Arrow's row format). Each
//! worker collects *runs*. In the first phase each run is sorted by a task of its own; then
//! splitters, taken from the runs at even distances, cut all of them into ranges, and in the second
//! phase each task puts one range of every run in order:
//!
//! ```text
//!   run 0   ── a c f │ k m   │ r t
//!   run 1   ── b d   │ h l n │ s
//!   run 2   ── e     │ g i   │ p q u
//!              task 0   task 1   task 2
//! ```
//! No task has more than a few thousand rows, and none waits for another of its phase. If only the
//! first rows are asked for, a worker keeps about as many, takes no more than these of a batch, and
//! throws away at once what comes after the last of them.

use std::borrow::Borrow;
use std::sync::{Mutex, OnceLock};

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::{SortOptions, interleave, take};
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, Rows, SortField};
use thalweg_base::{Error, Result};

use crate::aggregate::Groups;
use crate::allocations::Allocations;
use crate::encoding::{compacted, expand, internal};
use crate::phases::Phases;

/// Rows of a run, and about as many of a task of the second phase.
const RUN_ROWS: usize = 16 * 1024;

/// The same where only a few rows are asked for: those that are kept are found so often.
const FEWEST_RUN_ROWS: usize = 1024;

#[derive(Clone, Debug)]
pub struct Spec {
    /// Logical types of the keys, and their order.
    pub keys: Vec<(DataType, SortOptions)>,
    /// Logical types of what is sorted.
    pub payload_types: Vec<DataType>,
    /// How many rows are asked for; `None`: all.
    pub fetch: Option<usize>,
    /// Rows with equal values of so many leading keys come in one batch, unless they are more than
    /// one should have.
    pub together: usize,
}

impl Spec {
    fn converter(&self) -> Result<RowConverter> {
        let fields = self.keys.iter().map(|(t, o)| SortField::new_with_options(t.clone(), *o));
        RowConverter::new(fields.collect()).map_err(internal)
    }
}

/// Some rows, not necessarily in order.
struct Run {
    keys: Rows,
    payload: Vec<ArrayRef>,
    /// The order of its rows, once it is sorted.
    order: Vec<u32>,
}

impl Run {
    fn sort(&mut self) {
        self.order = order(&self.keys.iter().map(|key| key.data()).collect::<Vec<_>>());
    }

    fn rows(&self) -> usize {
        self.keys.num_rows()
    }
}

/// What one worker collects.
pub struct Collected {
    spec: Spec,
    converter: RowConverter,
    runs: Vec<Run>,
    keys: Rows,
    /// Of the rows that are no run yet, batch by batch.
    batches: Vec<Vec<ArrayRef>>,
    /// With a `fetch`: the last row that can be among the first.
    bound: Option<Vec<u8>>,
    held: Allocations,
}

impl Collected {
    pub fn new(spec: &Spec) -> Result<Self> {
        let converter = spec.converter()?;
        Ok(Collected {
            keys: converter.empty_rows(0, 0),
            spec: spec.clone(),
            converter,
            runs: vec![],
            batches: vec![],
            bound: None,
            held: Allocations::default(),
        })
    }

    pub fn push(&mut self, keys: &[ArrayRef], payload: &[ArrayRef], rows: usize) -> Result<()> {
        if self.spec.fetch == Some(0) {
            return Ok(());
        }
        let keys: Vec<ArrayRef> = keys
            .iter()
            .zip(&self.spec.keys)
            .map(|(key, (data_type, _))| expand(key, data_type))
            .collect::<Result<_>>()?;
        let keys = self.converter.convert_columns(&keys).map_err(internal)?;
        let mut payload = payload.to_vec();
        match self.spec.fetch {
            None => keys.iter().for_each(|key| self.keys.push(key)),
            Some(fetch) => {
                let first = self.first_of(&keys, fetch);
                if first.is_empty() {
                    return Ok(());
                }
                first.iter().for_each(|&row| self.keys.push(keys.row(row as usize)));
                if first.len() < rows {
                    let first = UInt32Array::from(first);
                    let picked = |c: &ArrayRef| take(c, &first, None).map_err(internal);
                    payload = payload.iter().map(picked).collect::<Result<_>>()?;
                }
            }
        }
        let columns = payload.iter().zip(&self.spec.payload_types);
        payload = columns.map(|(c, data_type)| expand(c, data_type)).collect::<Result<_>>()?;
        if self.spec.fetch.is_some() {
            // Few rows are kept, whose texts may be views into those of all.
            payload = payload.iter().map(compacted).collect();
        }
        payload.iter().for_each(|column| self.held.add(column));
        self.batches.push(payload);
        if self.keys.num_rows() >= self.run_rows() {
            self.close_run()?;
        }
        Ok(())
    }

    /// Rows of a run: if only the first are asked for, about as many as are kept.
    fn run_rows(&self) -> usize {
        let enough = |fetch: usize| fetch.saturating_mul(2).clamp(FEWEST_RUN_ROWS, RUN_ROWS);
        self.spec.fetch.map_or(RUN_ROWS, enough)
    }

    /// The rows of a batch that can be among the first.
    fn first_of(&mut self, keys: &Rows, fetch: usize) -> Vec<u32> {
        let key = |row: &u32| keys.row(*row as usize);
        let mut rows: Vec<u32> = (0..keys.num_rows() as u32).collect();
        if let Some(bound) = &self.bound {
            rows.retain(|row| key(row).as_ref() < bound.as_slice());
        }
        if rows.len() > fetch {
            rows.select_nth_unstable_by(fetch - 1, |a, b| key(a).cmp(&key(b)));
            self.bound = Some(key(&rows[fetch - 1]).as_ref().to_vec());
            rows.truncate(fetch);
        }
        rows
    }

    fn close_run(&mut self) -> Result<()> {
        let keys = std::mem::replace(&mut self.keys, self.converter.empty_rows(0, 0));
        if keys.num_rows() == 0 {
            return Ok(());
        }
        let batches = std::mem::take(&mut self.batches);
        let payload = (0..self.spec.payload_types.len()).map(|c| {
            let pieces: Vec<&dyn Array> = batches.iter().map(|b| b[c].as_ref()).collect();
            arrow::compute::concat(&pieces).map_err(internal)
        });
        let payload = payload.collect::<Result<Vec<_>>>()?;
        // What is not copied, the run holds as well.
        batches.iter().flatten().for_each(|column| self.held.forget(column));
        payload.iter().for_each(|column| self.held.add(column));
        self.runs.push(Run { keys, payload, order: vec![] });
        // Not at every run: what is kept is copied.
        if let Some(fetch) = self.spec.fetch
            && self.runs.iter().map(Run::rows).sum::<usize>() / 2 > fetch
        {
            self.keep_first(fetch)?;
        }
        Ok(())
    }

    /// Keeps the first rows of all runs.
    fn keep_first(&mut self, fetch: usize) -> Result<()> {
        let runs = std::mem::take(&mut self.runs);
        let rows =
            runs.iter().enumerate().flat_map(|(i, r)| (0..r.rows()).map(move |row| (i, row)));
        let mut rows: Vec<(usize, usize)> = rows.collect();
        let key = |&(run, row): &(usize, usize)| runs[run].keys.row(row);
        if rows.len() > fetch {
            rows.select_nth_unstable_by(fetch - 1, |a, b| key(a).cmp(&key(b)));
            self.bound = Some(key(&rows[fetch - 1]).as_ref().to_vec());
            rows.truncate(fetch);
        }
        self.held.clear();
        for rows in rows.chunks(RUN_ROWS) {
            let mut keys = self.converter.empty_rows(rows.len(), 0);
            rows.iter().for_each(|at| keys.push(key(at)));
            let payload = gather(&runs, rows, self.spec.payload_types.len())?;
            payload.iter().for_each(|column| self.held.add(column));
            self.runs.push(Run { keys, payload, order: vec![] });
        }
        Ok(())
    }

    pub fn memory_bytes(&self) -> usize {
        self.held.bytes() + self.key_bytes()
    }

    /// Of the keys alone, for those who know what the payload takes.
    pub fn key_bytes(&self) -> usize {
        self.runs.iter().map(|run| run.keys.size()).sum::<usize>() + self.keys.size()
    }
}

/// Keys that are fewer are compared as they are.
const FEW_KEYS: usize = 16;

/// The places of the keys, in the order of their bytes; no key is the beginning of another.
///
/// Eight bytes are a number: keys are sorted by their first one, those with the same number by
/// their next, and so on. So what is compared lies side by side, and a beginning that many have in
/// common, such as the partition of a window, is looked at once.
fn order(keys: &[&[u8]]) -> Vec<u32> {
    const WORD: usize = size_of::<u64>();
    let word = |key: &[u8], from: usize| {
        let rest = key.get(from..).unwrap_or(&[]);
        match rest.first_chunk() {
            Some(word) => u64::from_be_bytes(*word),
            None => {
                let mut word = [0; WORD];
                word[..rest.len()].copy_from_slice(rest);
                u64::from_be_bytes(word)
            }
        }
    };
    let mut order: Vec<u32> = (0..keys.len() as u32).collect();
    let mut words: Vec<(u64, u32)> = Vec::with_capacity(keys.len());
    // Places in `order` of keys whose first bytes are the same, and how many bytes.
    let mut tied = vec![(0..keys.len(), 0)];
    while let Some((places, from)) = tied.pop() {
        let part = &mut order[places.clone()];
        if part.len() < FEW_KEYS {
            part.sort_unstable_by(|&a, &b| keys[a as usize].cmp(keys[b as usize]));
            continue;
        }
        words.clear();
        words.extend(part.iter().map(|&key| (word(keys[key as usize], from), key)));
        words.sort_unstable_by_key(|word| word.0);
        part.iter_mut().zip(&words).for_each(|(key, word)| *key = word.1);
        let mut start = places.start;
        for same in words.chunk_by(|a, b| a.0 == b.0) {
            let end = start + same.len();
            let goes_on = |(_, key): &(u64, u32)| keys[*key as usize].len() > from + WORD;
            if same.len() > 1 && same.iter().any(goes_on) {
                tied.push((start..end, from + WORD));
            }
            start = end;
        }
    }
    order
}

/// The named rows of runs: (run, row).
fn gather(
    runs: &[impl Borrow<Run>],
    rows: &[(usize, usize)],
    columns: usize,
) -> Result<Vec<ArrayRef>> {
    let column = |c: usize| {
        let arrays: Vec<&dyn Array> = runs.iter().map(|r| r.borrow().payload[c].as_ref()).collect();
        interleave(&arrays, rows).map_err(internal)
    };
    (0..columns).map(column).collect()
}

/// From what was collected to rows in order.
pub struct Sorting {
    spec: Spec,
    runs: Vec<OnceLock<Run>>,
    unsorted: Vec<Mutex<Option<Run>>>,
    rows: usize,
    ranges: usize,
    /// The ranges of each run, once all are sorted.
    cuts: OnceLock<Vec<Vec<usize>>>,
    sorted: Vec<OnceLock<Groups>>,
}

impl Sorting {
    pub fn new(spec: Spec, parts: Vec<Collected>) -> Result<Self> {
        let mut unsorted = vec![];
        for mut part in parts {
            part.close_run()?;
            unsorted.extend(part.runs);
        }
        let rows: usize = unsorted.iter().map(Run::rows).sum();
        let ranges = rows.div_ceil(RUN_ROWS);
        Ok(Sorting {
            spec,
            runs: unsorted.iter().map(|_| OnceLock::new()).collect(),
            unsorted: unsorted.into_iter().map(|r| Mutex::new(Some(r))).collect(),
            rows,
            ranges,
            cuts: OnceLock::new(),
            sorted: (0..ranges).map(|_| OnceLock::new()).collect(),
        })
    }

    /// The rows of a range in order, once the first phase is done.
    pub fn range(&self, range: usize) -> Result<Groups> {
        let runs: Vec<&Run> =
            self.runs.iter().map(|r| r.get().ok_or_else(poisoned)).collect::<Result<_>>()?;
        let cuts = match self.cuts.get() {
            Some(cuts) => cuts,
            None => {
                let cuts = cuts(&runs, self.ranges, &self.spec)?;
                self.cuts.get_or_init(|| cuts)
            }
        };
        let mut rows: Vec<(usize, usize)> = vec![];
        for (i, run) in runs.iter().enumerate() {
            let places = &run.order[cuts[i][range]..cuts[i][range + 1]];
            rows.extend(places.iter().map(|&row| (i, row as usize)));
        }
        let keys: Vec<_> = rows.iter().map(|&(run, row)| runs[run].keys.row(row).data()).collect();
        let rows: Vec<_> = order(&keys).iter().map(|&place| rows[place as usize]).collect();
        let columns = gather(&runs, &rows, self.spec.payload_types.len())?;
        Ok(Groups { columns, rows: rows.len() })
    }

    /// In order, when all phases are done.
    pub fn batches(&self) -> impl Iterator<Item = Result<&Groups>> {
        self.sorted.iter().map(|batch| batch.get().ok_or_else(poisoned))
    }
}

impl Phases for Sorting {
    type Output = Vec<Groups>;

    fn rows(&self) -> usize {
        self.rows
    }

    fn phases(&self) -> usize {
        2
    }

    fn tasks(&self, phase: usize) -> usize {
        if phase == 0 { self.runs.len() } else { self.ranges }
    }

    fn run(&self, phase: usize, task: usize) -> Result<()> {
        if phase == 0 {
            let run = self.unsorted[task].lock().map_err(|_| poisoned())?.take();
            if let Some(mut run) = run {
                run.sort();
                let _ = self.runs[task].set(run);
            }
            return Ok(());
        }
        let _ = self.sorted[task].set(self.range(task)?);
        Ok(())
    }

    /// Batches, in order.
    fn finish(self) -> Result<Vec<Groups>> {
        let mut left = self.spec.fetch.unwrap_or(usize::MAX);
        let mut batches = vec![];
        for batch in self.sorted {
            let mut batch = batch.into_inner().ok_or_else(poisoned)?;
            let rows = batch.rows.min(left);
            if rows < batch.rows {
                batch.columns = batch.columns.iter().map(|c| c.slice(0, rows)).collect();
                batch.rows = rows;
            }
            left -= rows;
            if rows > 0 {
                batches.push(batch);
            }
        }
        Ok(batches)
    }
}

fn poisoned() -> Error {
    Error::internal("a sort went on before all of its runs were sorted")
}

/// Where each sorted run is cut so that the ranges are of about the same size: equal keys are in
/// the same range.
fn cuts(runs: &[&Run], ranges: usize, spec: &Spec) -> Result<Vec<Vec<usize>>> {
    /// Candidates for splitters, per range and run.
    const SAMPLES: usize = 8;
    let mut samples = vec![];
    for run in runs {
        let step = (run.rows() / (SAMPLES * ranges).max(1)).max(1);
        samples.extend(run.order.iter().step_by(step).map(|&row| run.keys.row(row as usize)));
    }
    samples.sort_unstable();
    let splitters = (1..ranges).map(|r| samples[r * samples.len() / ranges].as_ref());
    let mut splitters: Vec<Vec<u8>> = splitters.map(<[u8]>::to_vec).collect();
    if spec.together > 0 {
        let mut starts = starts(&splitters, spec)?;
        // Within what is too large for a range, ranges are cut anywhere.
        for r in 1..starts.len() {
            if !splitters[r - 1].starts_with(&starts[r]) {
                splitters[r] = std::mem::take(&mut starts[r]);
            }
        }
        if let (Some(first), Some(start)) = (splitters.first_mut(), starts.first_mut()) {
            *first = std::mem::take(start);
        }
    }
    let cut = |run: &&Run| {
        let below = |splitter: &Vec<u8>| {
            let is_below = |&row: &u32| run.keys.row(row as usize).as_ref() < splitter.as_slice();
            run.order.partition_point(is_below)
        };
        let inner = splitters.iter().map(below);
        std::iter::once(0).chain(inner).chain([run.rows()]).collect()
    };
    Ok(runs.iter().map(cut).collect())
}

/// Of each key the bytes of its first fields, those that are to be together: no key that has them
/// comes before them.
fn starts(keys: &[Vec<u8>], spec: &Spec) -> Result<Vec<Vec<u8>>> {
    let converter = spec.converter()?;
    let parser = converter.parser();
    let fields = converter.convert_rows(keys.iter().map(|key| parser.parse(key)));
    let first = Spec { keys: spec.keys[..spec.together].to_vec(), ..spec.clone() };
    let starts = first.converter()?.convert_columns(&fields.map_err(internal)?[..spec.together]);
    Ok(starts.map_err(internal)?.iter().map(|row| row.as_ref().to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array, StringViewArray};
    use arrow::datatypes::Int64Type;
    use proptest::prelude::*;

    use super::*;

    fn sorted(values: &[Vec<i64>], parts: usize, fetch: Option<usize>) -> Vec<i64> {
        let options = SortOptions { descending: true, nulls_first: false };
        let keys = vec![(DataType::Int64, options)];
        let (payload_types, together) = (vec![DataType::Int64], 0);
        let spec = Spec { keys, payload_types, fetch, together };
        let mut collected: Vec<_> = (0..parts).map(|_| Collected::new(&spec).unwrap()).collect();
        for (i, batch) in values.iter().enumerate() {
            let column: ArrayRef = Arc::new(Int64Array::from(batch.clone()));
            let part = &mut collected[i % parts];
            part.push(&[Arc::clone(&column)], &[column], batch.len()).unwrap();
        }
        let sorting = Sorting::new(spec, collected).unwrap();
        for phase in 0..sorting.phases() {
            (0..sorting.tasks(phase)).rev().for_each(|task| sorting.run(phase, task).unwrap());
        }
        let batches = sorting.finish().unwrap();
        let values = batches.iter().flat_map(|b| b.columns[0].as_primitive::<Int64Type>().values());
        values.copied().collect()
    }

    #[test]
    fn texts_in_common_count_once_and_those_of_the_first_rows_alone() {
        let texts = StringViewArray::from_iter_values((0..20_000).map(|n| format!("{n:0100}")));
        let texts: ArrayRef = Arc::new(texts);
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..20_000));
        let bytes = |fetch| {
            let keys = vec![(DataType::Int64, SortOptions::default())];
            let payload_types = vec![DataType::Utf8View];
            let spec = Spec { keys, payload_types, fetch, together: 0 };
            let mut collected = Collected::new(&spec).unwrap();
            for n in (0..20_000).step_by(500) {
                let column = |of: &ArrayRef| of.slice(n, 500);
                collected.push(&[column(&numbers)], &[column(&texts)], 500).unwrap();
            }
            collected.memory_bytes()
        };
        let (all, first) = (bytes(None), bytes(Some(10)));
        assert!((2_000_000..4_000_000).contains(&all), "{all}");
        assert!(first < 1_000_000, "{first}");
    }

    proptest! {
        #[test]
        fn bytes_are_in_order(
            keys in prop::collection::vec(prop::collection::vec(0u8..3, 0..40), 0..300),
        ) {
            // With an end that no key has within it.
            let keys: Vec<Vec<u8>> =
                keys.into_iter().map(|key| key.iter().map(|b| b + 1).chain([0]).collect()).collect();
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let found: Vec<&[u8]> = order(&keys).iter().map(|&place| keys[place as usize]).collect();
            let mut expected = keys.clone();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn as_a_plain_sort_does(
            batches in prop::collection::vec(prop::collection::vec(-5000i64..5000, 0..9000), 0..12),
            parts in 1usize..4,
            fetch in prop::option::of(0usize..30_000),
        ) {
            let mut expected: Vec<i64> = batches.iter().flatten().copied().collect();
            expected.sort_by(|a, b| b.cmp(a));
            expected.truncate(fetch.unwrap_or(usize::MAX));
            prop_assert_eq!(sorted(&batches, parts, fetch), expected);
        }
    }
}
