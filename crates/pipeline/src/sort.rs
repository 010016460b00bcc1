//! The sort sink: all rows in order, or the first of them.
//!
//! Keys become byte strings that compare as the rows do (normalised keys, Arrow's row format). Each
//! worker collects *parts*, the batches as they come if these are large enough. Rows stay where they
//! are; what is sorted are [entries](words::Entry) that say where. In the first phase each *run*, some
//! parts, is sorted by a task of its own, and cut into ranges by splitters, keys of rows at even
//! distances. In the second phase each task puts one range of every run in order, and gathers its rows:
//!
//! ```text
//!   run 0   ── a c f │ k m   │ r t
//!   run 1   ── b d   │ h l n │ s
//!   run 2   ── e     │ g i   │ p q u
//!              task 0   task 1   task 2
//! ```
//! No task has more than some ten thousand rows, and none waits for another of its phase. If only the
//! first rows are asked for, a worker keeps about as many, takes no more than these of a batch, and
//! throws away at once what comes after the last of them.

mod words;

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::OnceLock;

use arrow::array::{Array, ArrayRef, BinaryArray, UInt32Array};
use arrow::compute::{interleave, take};
use arrow::row::{RowConverter, Rows, SortField};
use thalweg_base::{Error, Result};
pub use thalweg_ir::sort::Spec;

use crate::aggregate::Groups;
use crate::allocations::Allocations;
use crate::encoding::{compacted, expand, internal};
use crate::phases::Phases;
use words::{Entry, Varying, Words};

/// Rows of a run, of a task of the first phase, at most; but a part may have more.
const RUN_ROWS: usize = 32 * 1024;

/// Rows of a range, of a task of the second phase, about.
const RANGE_ROWS: usize = 16 * 1024;

/// Batches of fewer rows are put together to parts of so many, or where only a few rows are asked for,
/// of about twice as many as are kept.
const PART_ROWS_MIN: usize = 4 * 1024;
const PART_ROWS: usize = 16 * 1024;

/// Rows for each range that are looked at to find where to cut, and of all ranges.
const SAMPLES: usize = 16;
const SAMPLES_MAX: usize = 64 * 1024;

fn converter(spec: &Spec) -> Result<RowConverter> {
    let fields = spec.keys.iter().map(|(t, o)| SortField::new_with_options(t.clone(), *o));
    RowConverter::new(fields.collect()).map_err(internal)
}

/// Some rows, in no order.
struct Part {
    keys: Rows,
    payload: Vec<ArrayRef>,
}

impl Part {
    fn rows(&self) -> usize {
        self.keys.num_rows()
    }
}

/// What one worker collects.
pub struct Collected {
    spec: Spec,
    converter: RowConverter,
    parts: Vec<Part>,
    varying: Varying,
    /// Keys of the rows that are in no part yet.
    keys: Rows,
    /// These rows, batch by batch.
    batches: Vec<Vec<ArrayRef>>,
    /// With a `fetch`: the last row that can be among the first.
    bound: Option<Vec<u8>>,
    held: Allocations,
}

impl Collected {
    pub fn new(spec: &Spec) -> Result<Self> {
        let converter = converter(spec)?;
        Ok(Collected {
            keys: converter.empty_rows(0, 0),
            spec: spec.clone(),
            converter,
            parts: vec![],
            varying: Varying::default(),
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
        let first = self.spec.fetch.map(|fetch| self.first_of(&keys, fetch));
        if let Some(first) = &first
            && first.len() < rows
        {
            if first.is_empty() {
                return Ok(());
            }
            let first = UInt32Array::from(first.clone());
            let picked = |c: &ArrayRef| take(c, &first, None).map_err(internal);
            payload = payload.iter().map(picked).collect::<Result<_>>()?;
        }
        let columns = payload.iter().zip(&self.spec.payload_types);
        payload = columns.map(|(c, data_type)| expand(c, data_type)).collect::<Result<_>>()?;
        if first.is_some() {
            // Few rows are kept, whose texts may be views into those of all.
            payload = payload.iter().map(compacted).collect();
        }
        payload.iter().for_each(|column| self.held.add(column));
        match first {
            // Large enough to stay as it is.
            None if rows >= PART_ROWS_MIN => {
                self.close_part()?;
                self.add(Part { keys, payload });
                return Ok(());
            }
            None => keys.iter().for_each(|key| self.keys.push(key)),
            Some(first) => first.iter().for_each(|&row| self.keys.push(keys.row(row as usize))),
        }
        self.batches.push(payload);
        if self.keys.num_rows() >= self.part_rows() {
            self.close_part()?;
        }
        Ok(())
    }

    fn add(&mut self, part: Part) {
        self.varying.see(&part.keys);
        self.parts.push(part);
    }

    /// Rows of a part: if only the first are asked for, about as many as are kept.
    fn part_rows(&self) -> usize {
        let enough = |fetch: usize| fetch.saturating_mul(2).clamp(PART_ROWS_MIN / 4, PART_ROWS);
        self.spec.fetch.map_or(PART_ROWS, enough)
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

    /// Makes a part of the rows that are in none.
    fn close_part(&mut self) -> Result<()> {
        if self.keys.num_rows() == 0 {
            return Ok(());
        }
        let keys = std::mem::replace(&mut self.keys, self.converter.empty_rows(0, 0));
        let batches = std::mem::take(&mut self.batches);
        let payload = (0..self.spec.payload_types.len()).map(|c| {
            let pieces: Vec<&dyn Array> = batches.iter().map(|b| b[c].as_ref()).collect();
            arrow::compute::concat(&pieces).map_err(internal)
        });
        let payload = payload.collect::<Result<Vec<_>>>()?;
        // What is not copied, the part holds as well.
        batches.iter().flatten().for_each(|column| self.held.forget(column));
        payload.iter().for_each(|column| self.held.add(column));
        self.add(Part { keys, payload });
        // Not at every part: what is kept is copied.
        if let Some(fetch) = self.spec.fetch
            && self.parts.iter().map(Part::rows).sum::<usize>() / 2 > fetch
        {
            self.keep_first(fetch)?;
        }
        Ok(())
    }

    /// Keeps the first rows of all parts.
    fn keep_first(&mut self, fetch: usize) -> Result<()> {
        let parts = std::mem::take(&mut self.parts);
        let rows =
            parts.iter().enumerate().flat_map(|(i, p)| (0..p.rows()).map(move |row| (i, row)));
        let mut rows: Vec<(usize, usize)> = rows.collect();
        let key = |&(part, row): &(usize, usize)| parts[part].keys.row(row);
        if rows.len() > fetch {
            rows.select_nth_unstable_by(fetch - 1, |a, b| key(a).cmp(&key(b)));
            self.bound = Some(key(&rows[fetch - 1]).as_ref().to_vec());
            rows.truncate(fetch);
        }
        self.held.clear();
        for rows in rows.chunks(PART_ROWS) {
            let mut keys = self.converter.empty_rows(rows.len(), 0);
            rows.iter().for_each(|at| keys.push(key(at)));
            let payload = gather(&parts, rows, &self.spec)?;
            payload.iter().for_each(|column| self.held.add(column));
            self.parts.push(Part { keys, payload });
        }
        Ok(())
    }

    /// Gives away what was collected, and goes on with nothing.
    pub fn give(&mut self) -> Result<Sorting> {
        let mut empty = Collected::new(&self.spec)?;
        // The rows that have set it are among those that are given away.
        empty.bound = self.bound.clone();
        let collected = std::mem::replace(self, empty);
        Sorting::new(collected.spec.clone(), vec![collected])
    }

    pub fn memory_bytes(&self) -> usize {
        self.held.bytes() + self.key_bytes()
    }

    /// Of the keys alone, for those who know what the payload takes.
    pub fn key_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.keys.size()).sum::<usize>() + self.keys.size()
    }
}

/// The named rows of parts: (part, row).
fn gather(parts: &[Part], rows: &[(usize, usize)], spec: &Spec) -> Result<Vec<ArrayRef>> {
    let column = |c: usize| {
        let arrays: Vec<&dyn Array> = parts.iter().map(|part| part.payload[c].as_ref()).collect();
        interleave(&arrays, rows).map_err(internal)
    };
    (0..spec.payload_types.len()).map(column).collect()
}

/// From what was collected to rows in order.
pub struct Sorting {
    spec: Spec,
    parts: Vec<Part>,
    words: Words,
    /// The parts of each run.
    runs: Vec<Range<usize>>,
    rows: usize,
    /// The least key of each range but the first, or the beginning of it, and its first word.
    splitters: Vec<(u64, Vec<u8>)>,
    sorted_runs: Vec<OnceLock<Run>>,
    sorted: Vec<OnceLock<Groups>>,
}

/// The rows of a run in order, and where its ranges begin and end.
struct Run {
    entries: Vec<Entry>,
    cuts: Vec<usize>,
}

impl Sorting {
    pub fn new(spec: Spec, collected: Vec<Collected>) -> Result<Self> {
        let (mut parts, mut varying) = (vec![], Varying::default());
        for mut each in collected {
            each.close_part()?;
            varying.join(&each.varying);
            parts.extend(each.parts);
        }
        let mut runs: Vec<Range<usize>> = vec![];
        let (mut rows, mut run_rows) = (0, RUN_ROWS);
        for (n, part) in parts.iter().enumerate() {
            match runs.last_mut() {
                Some(run) if run_rows + part.rows() <= RUN_ROWS => run.end = n + 1,
                _ => {
                    run_rows = 0;
                    runs.push(n..n + 1);
                }
            }
            run_rows += part.rows();
            rows += part.rows();
        }
        let ranges = rows.div_ceil(RANGE_ROWS);
        let words = Words::new(&varying);
        let splitters = splitters(&parts, rows, ranges, &spec)?;
        let splitters = splitters.into_iter().map(|key| (words.first(&key), key)).collect();
        Ok(Sorting {
            spec,
            words,
            sorted_runs: runs.iter().map(|_| OnceLock::new()).collect(),
            runs,
            rows,
            splitters,
            sorted: (0..ranges).map(|_| OnceLock::new()).collect(),
            parts,
        })
    }

    fn key(&self, entry: &Entry) -> &[u8] {
        self.parts[entry.part as usize].keys.row(entry.row as usize).data()
    }

    /// Sorts a run and cuts it into ranges.
    fn sort_run(&self, run: usize) -> Run {
        let parts = self.runs[run].clone();
        let rows = self.parts[parts.clone()].iter().map(Part::rows).sum();
        let mut entries = Vec::with_capacity(rows);
        parts.for_each(|n| entries.extend(words::entries(&self.words, n, &self.parts[n].keys)));
        words::sort(&mut entries, &self.words, |entry| self.key(entry));
        let mut cuts = Vec::with_capacity(self.ranges() + 1);
        cuts.push(0);
        for (word, splitter) in &self.splitters {
            let from = *cuts.last().unwrap_or(&0);
            let is_below = |entry: &Entry| match entry.word.cmp(word) {
                Ordering::Equal => self.key(entry) < splitter.as_slice(),
                order => order.is_lt(),
            };
            cuts.push(from + entries[from..].partition_point(is_below));
        }
        cuts.push(entries.len());
        Run { entries, cuts }
    }

    /// How many ranges the rows are cut into.
    pub fn ranges(&self) -> usize {
        self.sorted.len()
    }

    /// The rows of a range in order, once the first phase is done.
    pub fn range(&self, range: usize) -> Result<Groups> {
        let rows: Vec<_> = self.places(range)?.iter().map(place).collect();
        let columns = gather(&self.parts, &rows, &self.spec)?;
        Ok(Groups { columns, rows: rows.len() })
    }

    /// The same, without rows that come after those that are asked for.
    pub fn first_rows(&self, range: usize) -> Result<Groups> {
        let mut rows = self.range(range)?;
        if let Some(fetch) = self.spec.fetch {
            let runs = self.sorted_runs.iter().filter_map(OnceLock::get);
            let before: usize = runs.map(|run| run.cuts[range]).sum();
            rows.truncate(fetch.saturating_sub(before));
        }
        Ok(rows)
    }

    /// The rows of a range with their keys, which compare as the rows do.
    pub fn range_with_keys(&self, range: usize) -> Result<(Groups, BinaryArray)> {
        let entries = self.places(range)?;
        let rows: Vec<_> = entries.iter().map(place).collect();
        let columns = gather(&self.parts, &rows, &self.spec)?;
        let keys = BinaryArray::from_iter_values(entries.iter().map(|entry| self.key(entry)));
        Ok((Groups { columns, rows: rows.len() }, keys))
    }

    /// Where the rows of a range lie, in order.
    fn places(&self, range: usize) -> Result<Vec<Entry>> {
        let mut entries = Vec::with_capacity(2 * RANGE_ROWS);
        for run in &self.sorted_runs {
            let run = run.get().ok_or_else(poisoned)?;
            entries.extend_from_slice(&run.entries[run.cuts[range]..run.cuts[range + 1]]);
        }
        words::sort(&mut entries, &self.words, |entry| self.key(entry));
        Ok(entries)
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
        if phase == 0 { self.runs.len() } else { self.ranges() }
    }

    fn run(&self, phase: usize, task: usize) -> Result<()> {
        if phase == 0 {
            let _ = self.sorted_runs[task].set(self.sort_run(task));
        } else {
            let _ = self.sorted[task].set(self.range(task)?);
        }
        Ok(())
    }

    /// Batches, in order.
    fn finish(self) -> Result<Vec<Groups>> {
        let mut left = self.spec.fetch.unwrap_or(usize::MAX);
        let mut batches = vec![];
        for batch in self.sorted {
            let mut batch = batch.into_inner().ok_or_else(poisoned)?;
            batch.truncate(left);
            left -= batch.rows;
            if batch.rows > 0 {
                batches.push(batch);
            }
        }
        Ok(batches)
    }
}

/// The first phase of a sort alone: who reads the rows [asks](Sorting::first_rows) for one range after
/// the other, so that they are never there twice.
pub struct Parts(pub Sorting);

impl Phases for Parts {
    type Output = Sorting;

    fn rows(&self) -> usize {
        self.0.rows()
    }

    fn phases(&self) -> usize {
        1
    }

    fn tasks(&self, phase: usize) -> usize {
        self.0.tasks(phase)
    }

    fn run(&self, phase: usize, task: usize) -> Result<()> {
        self.0.run(phase, task)
    }

    fn finish(self) -> Result<Sorting> {
        Ok(self.0)
    }
}

fn poisoned() -> Error {
    Error::internal("a sort went on before all of its runs were sorted")
}

/// Keys, or beginnings of keys, that cut all rows into ranges of about the same size: equal keys are in the
/// same range.
fn splitters(parts: &[Part], rows: usize, ranges: usize, spec: &Spec) -> Result<Vec<Vec<u8>>> {
    let step = (rows / (SAMPLES * ranges).clamp(1, SAMPLES_MAX)).max(1);
    let mut samples = vec![];
    // Of the part, the row that is next.
    let mut next = 0;
    for part in parts {
        while next < part.rows() {
            samples.push(part.keys.row(next));
            next += step;
        }
        next -= part.rows();
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
    Ok(splitters)
}

fn place(entry: &Entry) -> (usize, usize) {
    (entry.part as usize, entry.row as usize)
}

/// Of each key the bytes of its first fields, those that are to be together: no key that has them
/// comes before them.
fn starts(keys: &[Vec<u8>], spec: &Spec) -> Result<Vec<Vec<u8>>> {
    let converter = converter(spec)?;
    let parser = converter.parser();
    let fields = converter.convert_rows(keys.iter().map(|key| parser.parse(key)));
    let first = Spec { keys: spec.keys[..spec.together].to_vec(), ..spec.clone() };
    let starts =
        self::converter(&first)?.convert_columns(&fields.map_err(internal)?[..spec.together]);
    Ok(starts.map_err(internal)?.iter().map(|row| row.as_ref().to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array, StringViewArray};
    use arrow::datatypes::Int64Type;
    use proptest::prelude::*;

    use arrow::compute::SortOptions;
    use arrow::datatypes::DataType;

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
