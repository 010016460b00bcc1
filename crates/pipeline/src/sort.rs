//! The sort sink: all rows in order, or the first of them.
//!
//! Each worker collects *parts*, the batches as they come if these are large enough. Keys of numbers,
//! and of texts that are short but for a beginning that all have in common, are kept as they are and
//! [packed](packed) into one to four words once all are there. Others become byte strings at once that
//! compare as the rows do (normalised keys, Arrow's row format), and so do all if only a few rows are
//! asked for, as most are then thrown away by their keys. Rows stay where they are; what is sorted are
//! entries that say where. In the first phase each *run*, some parts, is sorted by a task of its own,
//! and cut into ranges by splitters, keys of rows at even distances. In the second phase each task puts
//! one range of every run in order, and gathers its rows, or unpacks what are keys:
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

mod packed;
mod ranges;
mod words;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, BinaryArray, UInt32Array, new_empty_array};
use arrow::compute::{concat, interleave, take};
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, Rows, SortField};
use thalweg_base::{Error, Result};
pub use thalweg_ir::sort::Spec;

use crate::aggregate::Groups;
use crate::allocations::Allocations;
use crate::encoding::{compacted, expand, internal};
use crate::phases::Phases;
use packed::{Packing, Spans};
use ranges::{Places, Ranges, unfinished};
use words::{Varying, Words};

/// Rows of a run, of a task of the first phase, at most; but a part may have more.
const RUN_ROWS: usize = 32 * 1024;

/// Rows of a range, of a task of the second phase, about.
const RANGE_ROWS: usize = 16 * 1024;

/// Batches of fewer rows are put together to parts of so many, or where only a few rows are asked for,
/// of about twice as many as are kept.
const PART_ROWS_MIN: usize = 4 * 1024;
const PART_ROWS: usize = 16 * 1024;

/// Rows whose keys a worker makes bytes in one go, where it turns out that they cannot be packed; if
/// they are more, each run does so with its own.
const CONVERTED_ROWS_MAX: usize = if cfg!(test) { PART_ROWS / 2 } else { 16 * PART_ROWS };

fn converter(spec: &Spec) -> Result<RowConverter> {
    let fields = spec.keys.iter().map(|(t, o)| SortField::new_with_options(t.clone(), *o));
    RowConverter::new(fields.collect()).map_err(internal)
}

/// Some rows, in no order.
struct Part {
    keys: Keys,
    payload: Vec<ArrayRef>,
    rows: usize,
}

enum Keys {
    Rows(Rows),
    /// And their bytes, should they turn out to be needed.
    Columns(Vec<ArrayRef>, OnceLock<Rows>, Arc<Spec>),
}

impl Part {
    /// The keys, where they are to be packed.
    fn columns(&self) -> Result<&[ArrayRef]> {
        match &self.keys {
            Keys::Columns(columns, ..) => Ok(columns),
            Keys::Rows(_) => Err(Error::internal("keys that are bytes are to be packed")),
        }
    }

    /// The keys as bytes; `None`: they were not made yet.
    fn known_rows(&self) -> Option<&Rows> {
        match &self.keys {
            Keys::Rows(rows) => Some(rows),
            Keys::Columns(_, rows, _) => rows.get(),
        }
    }

    fn key_rows(&self) -> Result<&Rows> {
        match &self.keys {
            Keys::Rows(rows) => Ok(rows),
            Keys::Columns(columns, rows, spec) => {
                if rows.get().is_none() {
                    let made = converter(spec)?.convert_columns(columns).map_err(internal)?;
                    let _ = rows.set(made);
                }
                rows.get().ok_or_else(|| Error::internal("keys were made and are not there"))
            }
        }
    }
}

/// Rows that are in no part yet: of one batch.
struct Loose {
    /// None, if keys become bytes.
    keys: Vec<ArrayRef>,
    payload: Vec<ArrayRef>,
}

/// What one worker collects.
pub struct Collected {
    spec: Arc<Spec>,
    converter: RowConverter,
    parts: Vec<Part>,
    /// Of the keys so far, which are packed; `None`: keys become bytes.
    spans: Option<Spans>,
    varying: Varying,
    loose: Vec<Loose>,
    loose_rows: usize,
    /// The keys of these rows, if keys become bytes.
    loose_keys: Rows,
    /// With a `fetch`: the last row that can be among the first.
    bound: Option<Vec<u8>>,
    held: Allocations,
    /// Keys that are columns and no payload.
    held_keys: Allocations,
}

impl Collected {
    pub fn new(spec: &Spec) -> Result<Self> {
        let converter = converter(spec)?;
        let spans = match spec.fetch {
            Some(fetch) if fetch < PART_ROWS => None,
            _ => Spans::new(spec.keys.iter().map(|(data_type, _)| data_type)),
        };
        Ok(Collected {
            loose_keys: converter.empty_rows(0, 0),
            spec: Arc::new(spec.clone()),
            converter,
            parts: vec![],
            spans,
            varying: Varying::default(),
            loose: vec![],
            loose_rows: 0,
            bound: None,
            held: Allocations::default(),
            held_keys: Allocations::default(),
        })
    }

    pub fn push(&mut self, keys: &[ArrayRef], payload: &[ArrayRef], rows: usize) -> Result<()> {
        if self.spec.fetch == Some(0) || rows == 0 {
            return Ok(());
        }
        match self.spans {
            Some(_) => self.push_columns(keys, payload, rows)?,
            None => self.push_bytes(keys, payload, rows)?,
        }
        if self.loose_rows >= self.part_rows() {
            self.close_part()?;
        }
        self.drop_last()
    }

    fn push_columns(&mut self, keys: &[ArrayRef], payload: &[ArrayRef], rows: usize) -> Result<()> {
        let spec = Arc::clone(&self.spec);
        let mut columns = expanded(payload, &spec.payload_types)?;
        // What is payload as well is there once.
        let shared = |(key, (data_type, _)): (&ArrayRef, &(DataType, _))| {
            let column = payload.iter().position(|column| Arc::ptr_eq(column, key));
            column.filter(|&column| &spec.payload_types[column] == data_type)
        };
        let shared: Vec<Option<usize>> = keys.iter().zip(&spec.keys).map(shared).collect();
        let key = |(n, key): (usize, &ArrayRef)| match shared[n] {
            Some(column) => Ok(Arc::clone(&columns[column])),
            None => expand(key, &spec.keys[n].0),
        };
        let mut own = keys.iter().enumerate().map(key).collect::<Result<Vec<_>>>()?;
        let fit = self.spans.as_mut().is_some_and(|spans| {
            spans.see(&own);
            spans.words().is_some()
        });
        if !fit {
            self.make_bytes()?;
            return self.push_bytes(keys, payload, rows);
        }
        let mut kept = rows;
        if let Some(fetch) = spec.fetch
            && (fetch < rows || self.bound.is_some())
        {
            let bytes = self.converter.convert_columns(&own).map_err(internal)?;
            let first = self.first_of(&bytes, fetch);
            kept = first.len();
            if first.is_empty() {
                return Ok(());
            }
            let first = UInt32Array::from(first);
            let picked = |c: &ArrayRef| Ok(compacted(&take(c, &first, None).map_err(internal)?));
            columns = columns.iter().map(picked).collect::<Result<_>>()?;
            let key = |(n, key): (usize, &ArrayRef)| match shared[n] {
                Some(column) => Ok(Arc::clone(&columns[column])),
                None => picked(key),
            };
            own = own.iter().enumerate().map(key).collect::<Result<_>>()?;
        }
        columns.iter().for_each(|column| self.held.add(column));
        self.hold_keys(&own, &columns);
        if kept >= PART_ROWS_MIN {
            // Large enough to stay as it is.
            self.close_part()?;
            self.add(Keys::Columns(own, OnceLock::new(), spec), columns, kept);
            return Ok(());
        }
        self.loose.push(Loose { keys: own, payload: columns });
        self.loose_rows += kept;
        Ok(())
    }

    fn push_bytes(&mut self, keys: &[ArrayRef], payload: &[ArrayRef], rows: usize) -> Result<()> {
        let key_types = self.spec.keys.iter().map(|(data_type, _)| data_type);
        let keys = expanded(keys, key_types)?;
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
        payload = expanded(&payload, &self.spec.payload_types)?;
        if first.is_some() {
            // Few rows are kept, whose texts may be views into those of all.
            payload = payload.iter().map(compacted).collect();
        }
        payload.iter().for_each(|column| self.held.add(column));
        let kept = first.as_ref().map_or(rows, Vec::len);
        match first {
            // Large enough to stay as it is.
            None if rows >= PART_ROWS_MIN => {
                self.close_part()?;
                self.add(Keys::Rows(keys), payload, rows);
                return Ok(());
            }
            None => keys.iter().for_each(|key| self.loose_keys.push(key)),
            Some(first) => {
                first.iter().for_each(|&row| self.loose_keys.push(keys.row(row as usize)));
            }
        }
        self.loose.push(Loose { keys: vec![], payload });
        self.loose_rows += kept;
        Ok(())
    }

    /// Counts the keys that are not payload.
    fn hold_keys(&mut self, keys: &[ArrayRef], payload: &[ArrayRef]) {
        for key in keys {
            if !payload.iter().any(|column| Arc::ptr_eq(column, key)) {
                self.held_keys.add(key);
            }
        }
    }

    /// From now on keys become bytes, as they cannot be packed.
    fn make_bytes(&mut self) -> Result<()> {
        self.spans = None;
        for loose in &mut self.loose {
            let keys = self.converter.convert_columns(&loose.keys).map_err(internal)?;
            keys.iter().for_each(|key| self.loose_keys.push(key));
            loose.keys.clear();
        }
        if self.parts.iter().map(|part| part.rows).sum::<usize>() > CONVERTED_ROWS_MAX {
            return Ok(());
        }
        for part in &mut self.parts {
            if let Keys::Columns(columns, ..) = &part.keys {
                let keys = self.converter.convert_columns(columns).map_err(internal)?;
                self.varying.see(&keys);
                part.keys = Keys::Rows(keys);
            }
        }
        self.held_keys.clear();
        Ok(())
    }

    fn add(&mut self, keys: Keys, payload: Vec<ArrayRef>, rows: usize) {
        if let Keys::Rows(keys) = &keys {
            self.varying.see(keys);
        }
        self.parts.push(Part { keys, payload, rows });
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
        if self.loose_rows == 0 {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.loose_rows);
        let loose = std::mem::take(&mut self.loose);
        let joined = |of: &dyn Fn(&Loose) -> &ArrayRef| {
            let pieces: Vec<&dyn Array> = loose.iter().map(|each| of(each).as_ref()).collect();
            concat(&pieces).map_err(internal)
        };
        let payload = (0..self.spec.payload_types.len()).map(|c| joined(&|each| &each.payload[c]));
        let payload = payload.collect::<Result<Vec<_>>>()?;
        let keys = match self.spans {
            None => {
                Keys::Rows(std::mem::replace(&mut self.loose_keys, self.converter.empty_rows(0, 0)))
            }
            Some(_) => {
                let keys = (0..self.spec.keys.len()).map(|k| {
                    let is_same =
                        |each: &Loose, c: usize| Arc::ptr_eq(&each.keys[k], &each.payload[c]);
                    let same = |c: &usize| loose.iter().all(|each| is_same(each, *c));
                    match (0..payload.len()).find(same) {
                        Some(c) => Ok(Arc::clone(&payload[c])),
                        None => joined(&|each| &each.keys[k]),
                    }
                });
                let keys = keys.collect::<Result<Vec<_>>>()?;
                loose.iter().flat_map(|each| &each.keys).for_each(|k| self.held_keys.forget(k));
                self.hold_keys(&keys, &payload);
                Keys::Columns(keys, OnceLock::new(), Arc::clone(&self.spec))
            }
        };
        // What is not copied, the part holds as well.
        loose.iter().flat_map(|each| &each.payload).for_each(|column| self.held.forget(column));
        payload.iter().for_each(|column| self.held.add(column));
        self.add(keys, payload, rows);
        Ok(())
    }

    /// Drops what comes after the first rows, but not at every part: what is kept is copied.
    fn drop_last(&mut self) -> Result<()> {
        match self.spec.fetch {
            Some(fetch) if self.parts.iter().map(|part| part.rows).sum::<usize>() / 2 > fetch => {
                self.keep_first(fetch)
            }
            _ => Ok(()),
        }
    }

    /// Keeps the first rows of all parts.
    fn keep_first(&mut self, fetch: usize) -> Result<()> {
        let parts = std::mem::take(&mut self.parts);
        let keys = parts.iter().map(Part::key_rows).collect::<Result<Vec<_>>>()?;
        let rows = parts.iter().enumerate().flat_map(|(i, p)| (0..p.rows).map(move |row| (i, row)));
        let mut rows: Vec<(usize, usize)> = rows.collect();
        let key = |&(part, row): &(usize, usize)| keys[part].row(row);
        if rows.len() > fetch {
            rows.select_nth_unstable_by(fetch - 1, |a, b| key(a).cmp(&key(b)));
            self.bound = Some(key(&rows[fetch - 1]).as_ref().to_vec());
            rows.truncate(fetch);
        }
        self.held.clear();
        self.held_keys.clear();
        for rows in rows.chunks(PART_ROWS) {
            let payload = gather(&parts, rows, self.spec.payload_types.len(), payload_of)?;
            payload.iter().for_each(|column| self.held.add(column));
            let keys = match self.spans {
                Some(_) => {
                    let keys = gather(&parts, rows, self.spec.keys.len(), key_of)?;
                    self.hold_keys(&keys, &payload);
                    Keys::Columns(keys, OnceLock::new(), Arc::clone(&self.spec))
                }
                None => {
                    let mut kept = self.converter.empty_rows(rows.len(), 0);
                    rows.iter().for_each(|at| kept.push(key(at)));
                    self.varying.see(&kept);
                    Keys::Rows(kept)
                }
            };
            self.parts.push(Part { keys, payload, rows: rows.len() });
        }
        Ok(())
    }

    /// Gives away what was collected, and goes on with nothing.
    pub fn give(&mut self) -> Result<Sorting> {
        let mut empty = Collected::new(&self.spec)?;
        // The rows that have set it are among those that are given away.
        empty.bound = self.bound.clone();
        let collected = std::mem::replace(self, empty);
        Sorting::new(Spec::clone(&collected.spec), vec![collected])
    }

    pub fn memory_bytes(&self) -> usize {
        self.held.bytes() + self.key_bytes()
    }

    /// Of the keys alone, for those who know what the payload takes: of keys that are columns also what
    /// they are packed into.
    pub fn key_bytes(&self) -> usize {
        let parts = self.parts.iter().filter_map(Part::known_rows);
        let bytes = parts.map(Rows::size).sum::<usize>() + self.loose_keys.size();
        let packed = self.spans.as_ref().and_then(Spans::words).map_or(0, packed::entry_bytes);
        let rows = self.parts.iter().map(|part| part.rows).sum::<usize>() + self.loose_rows;
        bytes + self.held_keys.bytes() + packed * rows
    }
}

/// Columns of these logical types in their plain form.
fn expanded<'a>(
    columns: &[ArrayRef],
    types: impl IntoIterator<Item = &'a DataType>,
) -> Result<Vec<ArrayRef>> {
    columns.iter().zip(types).map(|(column, data_type)| expand(column, data_type)).collect()
}

fn payload_of(part: &Part, column: usize) -> Result<&dyn Array> {
    Ok(part.payload[column].as_ref())
}

fn key_of(part: &Part, key: usize) -> Result<&dyn Array> {
    Ok(part.columns()?[key].as_ref())
}

/// The named rows of parts: (part, row), of so many columns.
fn gather(
    parts: &[Part],
    rows: &[(usize, usize)],
    columns: usize,
    of: impl Fn(&Part, usize) -> Result<&dyn Array>,
) -> Result<Vec<ArrayRef>> {
    (0..columns).map(|column| gather_column(parts, rows, column, &of)).collect()
}

fn gather_column(
    parts: &[Part],
    rows: &[(usize, usize)],
    column: usize,
    of: impl Fn(&Part, usize) -> Result<&dyn Array>,
) -> Result<ArrayRef> {
    let arrays = parts.iter().map(|part| of(part, column)).collect::<Result<Vec<_>>>()?;
    interleave(&arrays, rows).map_err(internal)
}

/// From what was collected to rows in order.
pub struct Sorting {
    spec: Spec,
    parts: Vec<Part>,
    /// The parts of each run.
    runs: Vec<Range<usize>>,
    rows: usize,
    ranges: Box<dyn Ranges>,
    /// Of each column of the payload the key that it is, and its type.
    keys: Vec<Option<(usize, DataType)>>,
    sorted: Vec<OnceLock<Groups>>,
}

impl Sorting {
    pub fn new(spec: Spec, collected: Vec<Collected>) -> Result<Self> {
        let (mut parts, mut varying) = (vec![], Varying::default());
        let mut spans: Option<Spans> = None;
        let mut are_packed = true;
        for mut each in collected {
            each.close_part()?;
            if each.parts.is_empty() {
                continue;
            }
            varying.join(&each.varying);
            are_packed &= each.spans.is_some();
            match (&mut spans, each.spans) {
                (Some(spans), Some(own)) => spans.join(&own),
                (spans, own) => *spans = spans.take().or(own),
            }
            parts.extend(each.parts);
        }
        let mut runs: Vec<Range<usize>> = vec![];
        let (mut rows, mut run_rows) = (0, RUN_ROWS);
        for (n, part) in parts.iter().enumerate() {
            match runs.last_mut() {
                Some(run) if run_rows + part.rows <= RUN_ROWS => run.end = n + 1,
                _ => {
                    run_rows = 0;
                    runs.push(n..n + 1);
                }
            }
            run_rows += part.rows;
            rows += part.rows;
        }
        let count = rows.div_ceil(RANGE_ROWS);
        let options = spec.keys.iter().map(|(_, options)| *options);
        let packing = spans.filter(|_| are_packed).and_then(|s| Packing::new(&s, options));
        let ranges = match packing {
            Some(packing) => ranges::by_numbers(packing, &spec, &parts, count, runs.len())?,
            None => {
                let all_seen = parts.iter().all(|part| part.known_rows().is_some());
                let words = if all_seen { Words::new(&varying) } else { Words::default() };
                ranges::by_bytes(words, &spec, &parts, count, runs.len())?
            }
        };
        let sorted = (0..count).map(|_| OnceLock::new()).collect();
        let key = |(column, data_type): (usize, &DataType)| {
            let is_key = |part: &Part, key: usize| {
                part.columns().is_ok_and(|keys| Arc::ptr_eq(&keys[key], &part.payload[column]))
            };
            let mut keys = 0..spec.keys.len();
            let key = keys.find(|&key| parts.iter().all(|part| is_key(part, key)))?;
            Some((key, data_type.clone()))
        };
        let keys = spec.payload_types.iter().enumerate().map(key).collect();
        Ok(Sorting { spec, parts, runs, rows, ranges, keys, sorted })
    }

    /// How many ranges the rows are cut into.
    pub fn ranges(&self) -> usize {
        self.sorted.len()
    }

    /// The rows of a range in order, once the first phase is done.
    pub fn range(&self, range: usize) -> Result<Groups> {
        self.gathered(&self.ranges.places(&self.parts, range, usize::MAX, &self.keys)?)
    }

    /// What is no key is gathered from where it lies: that misses the caches for each row.
    fn gathered(&self, places: &Places) -> Result<Groups> {
        let column = |(c, known): (usize, &Option<ArrayRef>)| match known {
            Some(known) => Ok(Arc::clone(known)),
            None => gather_column(&self.parts, &places.rows, c, payload_of),
        };
        let columns = places.keys.iter().enumerate().map(column).collect::<Result<_>>()?;
        Ok(Groups { columns, rows: places.rows.len() })
    }

    /// The same, without rows that come after those that are asked for, which are not looked at.
    pub fn first_rows(&self, range: usize) -> Result<Groups> {
        let before = self.ranges.before(range);
        let left = self.spec.fetch.map_or(usize::MAX, |fetch| fetch.saturating_sub(before));
        if left == 0 {
            let columns = self.spec.payload_types.iter().map(new_empty_array).collect();
            return Ok(Groups { columns, rows: 0 });
        }
        self.gathered(&self.ranges.places(&self.parts, range, left, &self.keys)?)
    }

    /// The rows of a range with their keys, which compare as the rows do.
    pub fn range_with_keys(&self, range: usize) -> Result<(Groups, BinaryArray)> {
        let all = self.ranges.places(&self.parts, range, usize::MAX, &self.keys)?;
        let places = &all.rows;
        let known = self.parts.iter().map(Part::known_rows).collect::<Option<Vec<_>>>();
        let keys = match known {
            Some(known) => BinaryArray::from_iter_values(
                places.iter().map(|&(part, row)| known[part].row(row).data()),
            ),
            None => {
                let columns = gather(&self.parts, places, self.spec.keys.len(), key_of)?;
                let keys = converter(&self.spec)?.convert_columns(&columns).map_err(internal)?;
                BinaryArray::from_iter_values(keys.iter().map(|key| key.data()))
            }
        };
        Ok((self.gathered(&all)?, keys))
    }

    /// The rows of a range, when all phases are done: batches in order.
    pub fn batch(&self, range: usize) -> Result<&Groups> {
        self.sorted[range].get().ok_or_else(unfinished)
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
            self.ranges.sort_run(task, &self.parts, self.runs[task].clone())?;
        } else {
            let _ = self.sorted[task].set(self.first_rows(task)?);
        }
        Ok(())
    }

    /// Batches, in order.
    fn finish(self) -> Result<Vec<Groups>> {
        let sorted = self.sorted.into_iter();
        let batches = sorted.map(|batch| batch.into_inner().ok_or_else(unfinished));
        let batches: Vec<Groups> = batches.collect::<Result<_>>()?;
        Ok(batches.into_iter().filter(|batch| batch.rows > 0).collect())
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

#[cfg(test)]
mod tests;
