//! Runs that are sorted and cut into ranges, whatever rows are compared by.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::OnceLock;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::DataType;
use thalweg_base::{Error, Result};

use super::packed::{self, Packing};
use super::words::{self, Words};
use super::{Part, RANGE_ROWS, Spec, converter};
use crate::encoding::internal;

/// What rows are compared by.
trait Method: Send + Sync {
    type Entry: Copy + Send + Sync;

    /// Puts the entries of all rows of a part behind others.
    fn add_entries(&self, entries: &mut Vec<Self::Entry>, n: usize, part: &Part) -> Result<()>;

    fn sort(&self, parts: &[Part], entries: &mut [Self::Entry]);

    /// Whether a row comes before the least one of a range, which is not the first.
    fn is_below(&self, parts: &[Part], entry: &Self::Entry, range: usize) -> bool;

    /// A key as a column again, if entries have it.
    fn key(&self, _: usize, _: &[Self::Entry], _: &DataType) -> Result<Option<ArrayRef>> {
        Ok(None)
    }

    /// The part of a row, and its place there.
    fn place(entry: &Self::Entry) -> (usize, usize);
}

/// The runs of a sort; for any method.
pub trait Ranges: Send + Sync {
    /// Sorts the run of these parts, and cuts it into ranges.
    fn sort_run(&self, run: usize, parts: &[Part], own: Range<usize>) -> Result<()>;

    /// The first rows of a range in order, once all runs are sorted: where they lie, and of the named
    /// keys those that need not be looked up there.
    fn places(
        &self,
        parts: &[Part],
        range: usize,
        rows: usize,
        keys: &[Option<(usize, DataType)>],
    ) -> Result<Places>;

    /// Rows that come before those of a range.
    fn before(&self, range: usize) -> usize;
}

pub struct Places {
    pub rows: Vec<(usize, usize)>,
    pub keys: Vec<Option<ArrayRef>>,
}

/// The rows of a run in order, and where its ranges begin and end.
struct Run<E> {
    entries: Vec<E>,
    cuts: Vec<usize>,
}

struct Runs<M: Method> {
    method: M,
    ranges: usize,
    sorted: Vec<OnceLock<Run<M::Entry>>>,
}

impl<M: Method> Ranges for Runs<M> {
    fn sort_run(&self, run: usize, parts: &[Part], own: Range<usize>) -> Result<()> {
        let rows = parts[own.clone()].iter().map(|part| part.rows).sum();
        let mut entries = Vec::with_capacity(rows);
        for n in own {
            self.method.add_entries(&mut entries, n, &parts[n])?;
        }
        self.method.sort(parts, &mut entries);
        let mut cuts = Vec::with_capacity(self.ranges + 1);
        cuts.push(0);
        for range in 1..self.ranges {
            let from = *cuts.last().unwrap_or(&0);
            let is_below = |entry: &M::Entry| self.method.is_below(parts, entry, range);
            cuts.push(from + entries[from..].partition_point(is_below));
        }
        cuts.push(entries.len());
        let _ = self.sorted[run].set(Run { entries, cuts });
        Ok(())
    }

    fn places(
        &self,
        parts: &[Part],
        range: usize,
        rows: usize,
        keys: &[Option<(usize, DataType)>],
    ) -> Result<Places> {
        let mut entries = Vec::with_capacity(2 * RANGE_ROWS);
        for run in &self.sorted {
            let run = run.get().ok_or_else(unfinished)?;
            entries.extend_from_slice(&run.entries[run.cuts[range]..run.cuts[range + 1]]);
        }
        self.method.sort(parts, &mut entries);
        entries.truncate(rows);
        let key = |key: &Option<(usize, DataType)>| match key {
            Some((key, data_type)) => self.method.key(*key, &entries, data_type),
            None => Ok(None),
        };
        let keys = keys.iter().map(key).collect::<Result<_>>()?;
        Ok(Places { rows: entries.iter().map(M::place).collect(), keys })
    }

    fn before(&self, range: usize) -> usize {
        self.sorted.iter().filter_map(OnceLock::get).map(|run| run.cuts[range]).sum()
    }
}

pub fn unfinished() -> Error {
    Error::internal("a sort went on before all of its runs were sorted")
}

/// Keys that are packed into so many words.
struct Packed<const W: usize> {
    packing: Packing,
    /// The least key of each range but the first, or the beginning of it.
    splitters: Vec<[u64; W]>,
}

impl<const W: usize> Method for Packed<W> {
    type Entry = packed::Entry<W>;

    fn add_entries(&self, entries: &mut Vec<Self::Entry>, n: usize, part: &Part) -> Result<()> {
        packed::add_entries(entries, &self.packing, n, part.columns()?, part.rows);
        Ok(())
    }

    fn sort(&self, _parts: &[Part], entries: &mut [Self::Entry]) {
        packed::sort(entries);
    }

    fn key(
        &self,
        key: usize,
        entries: &[Self::Entry],
        data_type: &DataType,
    ) -> Result<Option<ArrayRef>> {
        self.packing.unpack(key, entries, data_type)
    }

    fn is_below(&self, _parts: &[Part], entry: &Self::Entry, range: usize) -> bool {
        entry.words < self.splitters[range - 1]
    }

    fn place(entry: &Self::Entry) -> (usize, usize) {
        (entry.part as usize, entry.row as usize)
    }
}

/// Keys that are bytes.
struct Bytes {
    words: Words,
    /// The same, with their first words.
    splitters: Vec<(u64, Vec<u8>)>,
}

/// Of a row whose part has its keys as bytes: each part that has entries does.
fn key<'a>(parts: &'a [Part], entry: &words::Entry) -> &'a [u8] {
    match parts[entry.part as usize].known_rows() {
        Some(rows) => rows.row(entry.row as usize).data(),
        None => &[],
    }
}

impl Method for Bytes {
    type Entry = words::Entry;

    fn add_entries(&self, entries: &mut Vec<Self::Entry>, n: usize, part: &Part) -> Result<()> {
        entries.extend(words::entries(&self.words, n, part.key_rows()?));
        Ok(())
    }

    fn sort(&self, parts: &[Part], entries: &mut [Self::Entry]) {
        words::sort(entries, &self.words, |entry| key(parts, entry));
    }

    fn is_below(&self, parts: &[Part], entry: &Self::Entry, range: usize) -> bool {
        let (word, splitter) = &self.splitters[range - 1];
        match entry.word.cmp(word) {
            Ordering::Equal => key(parts, entry) < splitter.as_slice(),
            order => order.is_lt(),
        }
    }

    fn place(entry: &Self::Entry) -> (usize, usize) {
        (entry.part as usize, entry.row as usize)
    }
}

fn runs<M: Method + 'static>(method: M, ranges: usize, runs: usize) -> Box<dyn Ranges> {
    let sorted = (0..runs).map(|_| OnceLock::new()).collect();
    Box::new(Runs { method, ranges, sorted })
}

/// Runs whose keys are packed.
pub fn by_numbers(
    packing: Packing,
    spec: &Spec,
    parts: &[Part],
    ranges: usize,
    count: usize,
) -> Result<Box<dyn Ranges>> {
    fn packed<const W: usize>(
        packing: Packing,
        spec: &Spec,
        parts: &[Part],
        ranges: usize,
    ) -> Result<Packed<W>> {
        let splitters = packed_splitters(&packing, spec, parts, ranges)?;
        Ok(Packed { packing, splitters })
    }
    Ok(match packing.words() {
        1 => runs(packed::<1>(packing, spec, parts, ranges)?, ranges, count),
        2 => runs(packed::<2>(packing, spec, parts, ranges)?, ranges, count),
        _ => runs(packed::<{ packed::WORDS_MAX }>(packing, spec, parts, ranges)?, ranges, count),
    })
}

/// Runs whose keys are bytes.
pub fn by_bytes(
    words: Words,
    spec: &Spec,
    parts: &[Part],
    ranges: usize,
    count: usize,
) -> Result<Box<dyn Ranges>> {
    let splitters = splitters(spec, parts, ranges)?;
    let splitters = splitters.into_iter().map(|key| (words.first(&key), key)).collect();
    Ok(runs(Bytes { words, splitters }, ranges, count))
}

/// Rows for each range that are looked at to find where to cut, and of all ranges.
const SAMPLES: usize = 16;
const SAMPLES_MAX: usize = 64 * 1024;

/// Rows at even distances: by part.
fn samples(parts: &[Part], ranges: usize) -> impl Iterator<Item = (&Part, UInt32Array)> {
    let rows = parts.iter().map(|part| part.rows).sum::<usize>();
    let step = (rows / (SAMPLES * ranges).clamp(1, SAMPLES_MAX)).max(1);
    // Of the part, the row that is next.
    let mut next = 0;
    parts.iter().map(move |part| {
        let rows = (next..part.rows).step_by(step).map(|row| row as u32);
        let rows = UInt32Array::from_iter_values(rows);
        next = next + rows.values().len() * step - part.rows;
        (part, rows)
    })
}

fn taken(columns: &[ArrayRef], rows: &UInt32Array) -> Result<Vec<ArrayRef>> {
    columns.iter().map(|column| take(column, rows, None).map_err(internal)).collect()
}

/// Keys, or beginnings of keys, that cut all rows into ranges of about the same size: equal keys are in the
/// same range.
fn packed_splitters<const W: usize>(
    packing: &Packing,
    spec: &Spec,
    parts: &[Part],
    ranges: usize,
) -> Result<Vec<[u64; W]>> {
    let mut sampled: Vec<packed::Entry<W>> = vec![];
    for (part, rows) in samples(parts, ranges) {
        let columns = taken(part.columns()?, &rows)?;
        packed::add_entries(&mut sampled, packing, 0, &columns, rows.values().len());
    }
    packed::sort(&mut sampled);
    let splitters = (1..ranges).map(|r| sampled[r * sampled.len() / ranges].words);
    let mut splitters: Vec<[u64; W]> = splitters.collect();
    if spec.together > 0 {
        let mask: [u64; W] = packing.mask(spec.together);
        let start = |key: [u64; W]| std::array::from_fn(|word| key[word] & mask[word]);
        // Within what is too large for a range, ranges are cut anywhere.
        for r in 0..splitters.len() {
            let is_first = r == 0 || start(splitters[r - 1]) != start(splitters[r]);
            if is_first {
                splitters[r] = start(splitters[r]);
            }
        }
    }
    Ok(splitters)
}

/// The same of keys that are bytes.
fn splitters(spec: &Spec, parts: &[Part], ranges: usize) -> Result<Vec<Vec<u8>>> {
    let mut sampled: Vec<Vec<u8>> = vec![];
    for (part, rows) in samples(parts, ranges) {
        match part.known_rows() {
            Some(keys) => {
                let rows = rows.values().iter().map(|&row| keys.row(row as usize).data().to_vec());
                sampled.extend(rows);
            }
            None => {
                let columns = taken(part.columns()?, &rows)?;
                let keys = converter(spec)?.convert_columns(&columns).map_err(internal)?;
                sampled.extend(keys.iter().map(|key| key.data().to_vec()));
            }
        }
    }
    sampled.sort_unstable();
    let splitters = (1..ranges).map(|r| sampled[r * sampled.len() / ranges].clone());
    let mut splitters: Vec<Vec<u8>> = splitters.collect();
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

/// Of each key the bytes of its first fields, those that are to be together: no key that has them
/// comes before them.
fn starts(keys: &[Vec<u8>], spec: &Spec) -> Result<Vec<Vec<u8>>> {
    let converter = converter(spec)?;
    let parser = converter.parser();
    let fields = converter.convert_rows(keys.iter().map(|key| parser.parse(key)));
    let first = Spec { keys: spec.keys[..spec.together].to_vec(), ..spec.clone() };
    let starts =
        super::converter(&first)?.convert_columns(&fields.map_err(internal)?[..spec.together]);
    Ok(starts.map_err(internal)?.iter().map(|row| row.as_ref().to_vec()).collect())
}
