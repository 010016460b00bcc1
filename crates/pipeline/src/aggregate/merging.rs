//! From the chunks of all workers to groups.
//!
//! Few groups are merged in one go. Of many, first every chunk is sorted into partitions by its
//! keys' hashes, one task a chunk, and with the groups go their texts: to compare two of them is to miss
//! the cache for each, where they are left anywhere in memory. Every partition is then merged by whoever
//! reads its groups, when they are read: so they are there twice only for as long as somebody looks at
//! them.

use std::sync::{Arc, OnceLock, RwLock};

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use thalweg_base::{Error, Result};

use super::emit::Finished;
use super::grouper::{GroupKeys, find};
use super::hash::{BLOCK, Table, partition};
use super::keys::{Class, Key, null_flag};
use super::ordered;
use super::partial::{Chunk, Partial, Sorted, accumulators};
use super::plan::Plan;
use super::states::{Merge, States};
use super::strings::{AHEAD, Adopted, Reordered, Strings};
use super::{LIMITS, Limits, PARTITIONS_LOG2_MAX, Spec, spill};
use crate::encoding::internal;
use crate::phases::{Pause, Phases, at_once, no_pause};

/// Chunks whose groups are told apart by hashes without strings, at most.
const UNHASHED_CHUNKS_MAX: usize = 16;

/// Values that a key has for each group, at most, for groups to come in its order.
const VALUES_PER_GROUP_MAX: u64 = 8;

/// Some groups: the columns of keys, then results. Keys may come in encoded forms.
#[derive(Clone, Debug)]
pub struct Groups {
    pub columns: Vec<ArrayRef>,
    pub rows: usize,
}

impl Groups {
    /// Keeps the first so many rows.
    pub fn truncate(&mut self, rows: usize) {
        if rows < self.rows {
            self.columns = self.columns.iter().map(|column| column.slice(0, rows)).collect();
            self.rows = rows;
        }
    }
}

enum Way {
    /// No group is in two chunks, or twice in one.
    Apart,
    AtOnce,
    /// `gathered`: groups stay where they are in their chunks until they are merged.
    Partitions {
        log2: u32,
        gathered: bool,
    },
}

/// Groups of a chunk, and their hashes.
type Part<'a> = (&'a Chunk, (&'a [u32], &'a [u64]));

/// From partials to groups. When its phases of tasks have run, its parts can be read: each once, in
/// any order and on any threads.
pub struct Merging {
    spec: Arc<Spec>,
    plan: Arc<Plan>,
    way: Way,
    chunks: Vec<RwLock<Chunk>>,
    /// Groups of all chunks together.
    unmerged: usize,
    /// Leading bits of a partition that all hashes have in common.
    common_bits: u32,
    /// Keys whose strings have no part in hashes.
    without: Vec<bool>,
    /// Keys by which groups are sorted into partitions, if not by all.
    apart_by: Vec<usize>,
    /// Groups come in the order of their only key.
    range: Option<Range>,
}

/// Values that a key may have.
#[derive(Clone, Copy)]
pub(super) struct Range {
    min: u64,
    bits: u32,
}

impl Merging {
    /// What sorting takes for a group: its hash, and its number.
    pub const SORTING_BYTES: usize = size_of::<u64>() + size_of::<u32>();

    pub fn new(spec: Arc<Spec>, parts: Vec<Partial>) -> Result<Self> {
        Self::with_limits(spec, parts, LIMITS)
    }

    pub(super) fn with_limits(
        spec: Arc<Spec>,
        mut parts: Vec<Partial>,
        limits: Limits,
    ) -> Result<Self> {
        if parts.is_empty() {
            parts.push(Partial::new(&spec, 1)?);
        }
        let plan = Arc::clone(&parts[0].plan);
        let apart = parts.iter().all(|part| part.apart);
        let chunks = parts.into_iter().map(Partial::into_chunks).collect::<Result<Vec<_>>>()?;
        let apart = apart && chunks.iter().all(|chunks| chunks.len() <= 1);
        let mut merging = Self::of(spec, plan, chunks.into_iter().flatten().collect(), 0, limits);
        if apart {
            merging.way = Way::Apart;
        }
        Ok(merging)
    }

    /// Of the pieces of one part that was spilled.
    pub fn of_pieces(spec: Arc<Spec>, pieces: &[RecordBatch]) -> Result<Self> {
        Self::with_pieces(spec, pieces, LIMITS)
    }

    pub(super) fn with_pieces(
        spec: Arc<Spec>,
        pieces: &[RecordBatch],
        limits: Limits,
    ) -> Result<Self> {
        let plan = Arc::new(Plan::new(&spec)?);
        let chunks = spill::chunks(&spec, &plan, pieces)?;
        Ok(Self::of(spec, plan, chunks, spill::PARTS_LOG2, limits))
    }

    fn of(
        spec: Arc<Spec>,
        plan: Arc<Plan>,
        mut chunks: Vec<Chunk>,
        common_bits: u32,
        limits: Limits,
    ) -> Self {
        let groups: usize = chunks.iter().map(|c| c.groups).sum();
        let is_one = |chunks: &[Chunk]| chunks.len() <= 1 && chunks.iter().all(|c| c.distinct);
        let way = if is_one(&chunks) {
            Way::Apart
        } else if groups <= limits.merge_at_once || spec.key_types.is_empty() {
            Way::AtOnce
        } else if ordered::join(&plan.keys, &mut chunks) {
            Way::Apart
        } else {
            let partitions = groups.div_ceil(limits.partition_groups).next_power_of_two();
            let log2 = partitions.ilog2().min(PARTITIONS_LOG2_MAX);
            Way::Partitions { log2, gathered: groups <= limits.gathered_groups }
        };
        let without = without(&chunks);
        chunks.iter_mut().flat_map(|chunk| &mut chunk.strings).for_each(Strings::seal);
        let chunks = chunks.into_iter().map(RwLock::new).collect();
        Self {
            spec,
            plan,
            way,
            chunks,
            unmerged: groups,
            common_bits,
            without,
            apart_by: vec![],
            range: None,
        }
    }

    /// Groups that have these keys in common shall be in one part, if that leaves no part much larger
    /// than others: who groups by these keys again, part by part, finds all of a group in one.
    pub fn apart_by(mut self, keys: &[usize]) -> Result<Self> {
        let hashed = keys.iter().all(|&k| !self.without.get(k).is_some_and(|without| *without));
        if !keys.is_empty() && hashed && matches!(self.way, Way::Partitions { .. }) {
            let mut are_apart = false;
            let mut groups = 0;
            for chunk in &mut self.chunks {
                let chunk = chunk.get_mut().map_err(|_| poisoned())?;
                // Of those in order the same text may have several codes.
                if chunk.distinct && chunk.order.is_none() && chunk.groups > groups {
                    (groups, are_apart) = (chunk.groups, are_many(&chunk.keys, keys));
                }
            }
            if are_apart {
                self.apart_by = keys.to_vec();
            }
        }
        Ok(self)
    }

    /// The groups shall come in the order of their only key, if its values are close together.
    pub fn in_order(mut self) -> Result<Self> {
        let [Key { class: Class::Word, .. }] = &self.plan.keys[..] else { return Ok(self) };
        if self.is_apart() {
            return Ok(self);
        }
        let (mut min, mut max) = (i64::MAX, i64::MIN);
        for chunk in &mut self.chunks {
            let chunk = chunk.get_mut().map_err(|_| poisoned())?;
            if chunk.keys.flagged || !chunk.externals.is_empty() {
                return Ok(self);
            }
            let words = chunk.keys.rows.iter().map(|word| word.cast_signed());
            (min, max) = words.fold((min, max), |(min, max), word| (min.min(word), max.max(word)));
        }
        let values = max.checked_sub(min).map_or(u64::MAX, i64::cast_unsigned);
        if values <= (self.unmerged as u64).saturating_mul(VALUES_PER_GROUP_MAX) {
            self.range =
                Some(Range { min: min.cast_unsigned(), bits: u64::BITS - values.leading_zeros() });
        }
        Ok(self)
    }

    /// Whether [`Self::apart_by`] holds.
    pub fn is_apart(&self) -> bool {
        !self.apart_by.is_empty()
    }

    /// How many parts the groups come in.
    pub fn parts(&self) -> usize {
        match self.way {
            Way::Apart => self.chunks.len(),
            Way::AtOnce => 1,
            Way::Partitions { log2, .. } => 1 << log2,
        }
    }

    /// The groups of a part; all phases are done, and it was not read before.
    pub fn groups(&self, part: usize) -> Result<Vec<Groups>> {
        match self.way {
            Way::Apart => {
                let mut chunk = self.chunks[part].write().map_err(|_| poisoned())?;
                return self.finish_chunk(&mut chunk);
            }
            Way::AtOnce => {
                for chunk in &self.chunks {
                    let mut chunk = chunk.write().map_err(|_| poisoned())?;
                    chunk.sort(&self.plan, Partitioning::default(), &self.without);
                }
            }
            Way::Partitions { .. } => {}
        }
        let mut chunks = Vec::with_capacity(self.chunks.len());
        for chunk in &self.chunks {
            chunks.push(chunk.read().map_err(|_| poisoned())?);
        }
        let groups = chunks.iter().map(|c| (&**c, c.sorted.partition(part)));
        self.merge(&groups.filter(|(_, (groups, _))| !groups.is_empty()).collect::<Vec<_>>())
    }

    /// A chunk that needs no merging.
    fn finish_chunk(&self, chunk: &mut Chunk) -> Result<Vec<Groups>> {
        let groups = chunk.groups;
        if let Some(range) = self.range.filter(|_| chunk.order.is_none()) {
            put_in_order(range, &mut chunk.keys, &mut chunk.states);
        }
        let mut accumulators = accumulators(&self.spec, &self.plan)?;
        let ids: Vec<u32> = (0..groups as u32).collect();
        for (accumulator, states) in accumulators.iter_mut().zip(&chunk.externals) {
            accumulator.merge(states, &ids, groups)?;
        }
        let finished = Finished {
            keys: std::mem::replace(&mut chunk.keys, GroupKeys::new(0)),
            strings: std::mem::take(&mut chunk.strings),
            states: std::mem::replace(&mut chunk.states, States::new(&[], false)),
            accumulators,
            groups,
        };
        finished.emit(&self.spec, &self.plan, &chunk.joined)
    }

    /// Merges those groups, given with their hashes, of every chunk.
    fn merge(&self, chunks: &[Part]) -> Result<Vec<Groups>> {
        let Merging { spec, plan, .. } = self;
        let mut keys = GroupKeys::new(plan.keys.len());
        keys.flagged = chunks.iter().any(|(chunk, _)| chunk.keys.flagged);
        let mut strings: Vec<Strings> = plan.keys.iter().map(|_| Strings::default()).collect();
        let by_bytes = by_bytes(plan, chunks);
        let mut table = Table::default();
        let unmerged = chunks.iter().map(|(_, (groups, _))| groups.len()).sum();
        table.reserve(unmerged);
        if keys.keys > 0 {
            keys.rows.reserve(unmerged * keys.stride());
        }
        let appended = strings.iter_mut().zip(&by_bytes).filter(|(_, by_bytes)| **by_bytes);
        appended.for_each(|(strings, _)| strings.reserve(unmerged));
        let mut states = States::new(&plan.slots, spec.key_types.is_empty());
        let mut accumulators = accumulators(spec, plan)?;
        let (mut ids, mut packed) = (vec![], vec![]);
        let mut total = usize::from(spec.key_types.is_empty());
        for &(chunk, (groups, hashes)) in chunks {
            let before = total;
            ids.clear();
            if spec.key_types.is_empty() {
                ids.push(0);
            } else {
                let mut codes = Codes::new(plan, chunk, &by_bytes, groups.len());
                let theirs = Theirs::new(chunk, &by_bytes, &mut strings);
                for (groups, hashes) in groups.chunks(BLOCK).zip(hashes.chunks(BLOCK)) {
                    chunk.keys.gather(groups, keys.flagged, &mut packed);
                    codes.translate(&mut packed, keys.flagged, &mut strings);
                    if by_bytes.contains(&true) {
                        let ours = (&mut keys, &mut strings[..]);
                        find_bytes(&mut table, ours, &theirs, &packed, hashes, &mut ids);
                    } else {
                        find(&mut table, &mut keys, &packed, hashes, &mut ids);
                    }
                }
                total = keys.groups;
            }
            states.merge(&chunk.states, &Merge { groups, ids: &ids, before, total });
            if accumulators.is_empty() {
                continue;
            }
            let theirs = UInt32Array::from(groups.to_vec());
            for (accumulator, columns) in accumulators.iter_mut().zip(&chunk.externals) {
                let columns = columns.iter().map(|c| take(c, &theirs, None).map_err(internal));
                accumulator.merge(&columns.collect::<Result<Vec<_>>>()?, &ids, total)?;
            }
        }
        if let Some(range) = self.range {
            states.resize(total);
            put_in_order(range, &mut keys, &mut states);
        }
        Finished { keys, strings, states, accumulators, groups: total }.emit(spec, plan, &[])
    }
}

/// The phase that puts the texts of many groups in order.
const TEXTS: usize = 2;

/// Sorts chunks into partitions: the numbers of their groups; then, of many, these themselves; and then
/// their texts.
impl Phases for Merging {
    type Output = Merging;

    fn rows(&self) -> usize {
        self.unmerged
    }

    fn phases(&self) -> usize {
        match self.way {
            Way::Apart | Way::AtOnce => 0,
            Way::Partitions { gathered: true, .. } => 1,
            Way::Partitions { gathered: false, .. } => {
                TEXTS + usize::from(self.plan.keys.iter().any(Key::is_coded))
            }
        }
    }

    fn tasks(&self, _: usize) -> usize {
        self.chunks.len()
    }

    fn run(&self, phase: usize, task: usize) -> Result<()> {
        let Way::Partitions { log2, .. } = self.way else { return Ok(()) };
        if phase >= TEXTS {
            return at_once(self.run_in_steps(phase, task, &no_pause))?;
        }
        let mut chunk = self.chunks[task].write().map_err(|_| poisoned())?;
        if phase > 0 {
            return chunk.permute();
        }
        let (by, range) = (&self.apart_by[..], self.range);
        let partitioning = Partitioning { log2, common_bits: self.common_bits, by, range };
        chunk.sort(&self.plan, partitioning, &self.without);
        Ok(())
    }

    async fn run_in_steps(&self, phase: usize, task: usize, pause: &Pause<'_>) -> Result<()> {
        if phase < TEXTS || !matches!(self.way, Way::Partitions { .. }) {
            return self.run(phase, task);
        }
        let chunk = || self.chunks[task].write().map_err(|_| poisoned());
        for (k, key) in self.plan.keys.iter().enumerate() {
            let texts = chunk()?.begin_texts(k, key);
            if let Some(mut texts) = texts {
                while texts.step() {
                    pause().await;
                }
                chunk()?.strings[k] = texts.finish();
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Merging> {
        Ok(self)
    }
}

/// All groups, merged before they are read: for who reads them more than once.
pub struct AllGroups {
    merging: Merging,
    parts: Box<[OnceLock<Vec<Groups>>]>,
}

impl AllGroups {
    /// Of what is sorted.
    pub fn new(merging: Merging) -> Self {
        let parts = (0..merging.parts()).map(|_| OnceLock::new()).collect();
        AllGroups { merging, parts }
    }
}

impl Phases for AllGroups {
    type Output = Vec<Groups>;

    fn rows(&self) -> usize {
        self.merging.rows()
    }

    fn phases(&self) -> usize {
        1
    }

    fn tasks(&self, _: usize) -> usize {
        self.parts.len()
    }

    fn run(&self, _: usize, part: usize) -> Result<()> {
        // Each is run once.
        let _ = self.parts[part].set(self.merging.groups(part)?);
        Ok(())
    }

    fn finish(self) -> Result<Vec<Groups>> {
        Ok(self.parts.into_iter().filter_map(OnceLock::into_inner).flatten().collect())
    }
}

fn poisoned() -> Error {
    Error::internal("another task of this aggregation panicked")
}

/// From the codes of a chunk's strings to those of the merged ones.
struct Codes<'a> {
    chunk: &'a Chunk,
    /// Keys that may be such codes.
    keys: Vec<Coded<'a>>,
}

struct Coded<'a> {
    number: usize,
    key: &'a Key,
    /// The codes known, plus 1, where strings are few enough for that to pay.
    known: Vec<u32>,
}

impl<'a> Codes<'a> {
    /// Of all keys but those told `by_bytes`.
    fn new(plan: &'a Plan, chunk: &'a Chunk, by_bytes: &[bool], groups: usize) -> Self {
        let keys = plan.keys.iter().zip(&chunk.strings).enumerate();
        let keys = keys.filter(|(k, (_, strings))| !by_bytes[*k] && strings.len() > 0);
        let keys = keys.map(|(number, (key, strings))| {
            let few = strings.len() <= groups * 4;
            Coded { number, key, known: vec![0; if few { strings.len() } else { 0 }] }
        });
        Self { chunk, keys: keys.collect() }
    }

    /// Those of packed rows.
    fn translate(&mut self, packed: &mut [u64], flagged: bool, into: &mut [Strings]) {
        if self.keys.is_empty() {
            return;
        }
        let width = into.len();
        for row in packed.chunks_exact_mut(width + usize::from(flagged)) {
            let flags = if flagged { row[width] } else { 0 };
            for key in self.keys.iter_mut().filter(|key| key.key.is_code(key.number, flags)) {
                let (word, strings) = (row[key.number], &self.chunk.strings[key.number]);
                let into = &mut into[key.number];
                let mut look_up =
                    || strings.with(word, |bytes| into.code_of_hash(strings.hash(word), bytes));
                let code = match key.known.get_mut(word as usize) {
                    None => look_up(),
                    Some(known) => {
                        if *known == 0 {
                            *known = look_up() + 1;
                        }
                        *known - 1
                    }
                };
                row[key.number] = code.into();
            }
        }
    }
}

/// Keys whose strings hashes do without: they are not needed to tell the groups of any chunk apart.
fn without(chunks: &[Chunk]) -> Vec<bool> {
    // Those in order are told apart by their leading key, which is no text.
    let mut known = chunks.iter().filter(|c| c.order.is_none()).map(|c| c.unhashed.as_ref());
    let Some(Some(first)) = known.next() else { return vec![] };
    let agree = known.all(|unhashed| unhashed == Some(first));
    // Groups of the same hash and other strings may be in every chunk.
    if agree && chunks.len() <= UNHASHED_CHUNKS_MAX { first.clone() } else { vec![] }
}

/// Keys nearly every group of which has a string of its own. To tell such groups apart, the strings of
/// two that have the same hash are compared, and their codes in the merged groups are no longer those
/// of strings but of groups: a look-up of each string would cost as much as that of the group.
fn by_bytes(plan: &Plan, chunks: &[Part]) -> Vec<bool> {
    let many = |k: usize| chunks.iter().any(|(chunk, _)| has_many_strings(chunk, k));
    plan.keys.iter().enumerate().map(|(k, key)| key.is_coded() && many(k)).collect()
}

fn has_many_strings(chunk: &Chunk, key: usize) -> bool {
    let strings = &chunk.strings[key];
    !strings.are_hashed() || strings.len() * 2 > chunk.groups
}

/// The strings of a chunk, and how they become those of merged groups.
struct Theirs<'a> {
    strings: &'a [Strings],
    by_bytes: &'a [bool],
    /// By key; only of those told `by_bytes`.
    adopted: Vec<Option<Adopted>>,
}

impl<'a> Theirs<'a> {
    fn new(chunk: &'a Chunk, by_bytes: &'a [bool], ours: &mut [Strings]) -> Self {
        let strings = &chunk.strings[..];
        let pairs = ours.iter_mut().zip(strings).zip(by_bytes);
        let adopted =
            pairs.map(|((ours, theirs), by_bytes)| by_bytes.then(|| ours.adopt(theirs))?);
        Theirs { strings, by_bytes, adopted: adopted.collect() }
    }
}

/// Looks up a block of packed rows, as [`find`] does. The codes of keys told `by_bytes` are those of
/// `theirs`, in any order.
fn find_bytes(
    table: &mut Table,
    (groups, strings): (&mut GroupKeys, &mut [Strings]),
    theirs: &Theirs,
    packed: &[u64],
    hashes: &[u64],
    ids: &mut Vec<u32>,
) {
    let Theirs { strings: theirs, by_bytes, adopted } = theirs;
    table.reserve(groups.groups + hashes.len());
    if let ([ours], [theirs], false) = (&mut *strings, *theirs, groups.flagged) {
        find_texts(table, (groups, ours), (theirs, adopted[0].as_ref()), packed, hashes, ids);
        return;
    }
    table.warm(hashes);
    let (keys, w) = (groups.keys, groups.stride());
    let by_bytes_only = || (0..keys).filter(|&k| by_bytes[k]);
    for (n, (row, &hash)) in packed.chunks_exact(w).zip(hashes).enumerate() {
        if let Some(ahead) = packed.get((n + AHEAD) * w..)
            && !ahead.is_empty()
        {
            // Of those at the same place nobody reads the bytes.
            let is_read = |k: &usize| !adopted[*k].as_ref().is_some_and(Adopted::has_known);
            by_bytes_only().filter(is_read).for_each(|k| theirs[k].prefetch(ahead[k]));
        }
        // Their views are anywhere, as groups are in the order of the first to have them.
        if let Some(further) = packed.get((n + 2 * AHEAD) * w..)
            && !further.is_empty()
        {
            by_bytes_only().for_each(|k| theirs[k].prefetch_view(further[k]));
        }
        let (words, flags) = row.split_at(keys);
        let is_null = |k: usize| flags.first().is_some_and(|flags| flags & null_flag(k) != 0);
        let next = groups.groups as u32;
        let same = |id: u32| {
            let (found, found_flags) = groups.rows[id as usize * w..][..w].split_at(keys);
            let same_key = |k: usize| match by_bytes[k] && !is_null(k) {
                true => strings[k].has(found[k], &theirs[k], words[k], adopted[k].as_ref()),
                false => found[k] == words[k],
            };
            found_flags == flags && (0..keys).all(same_key)
        };
        let id = table.find_or_insert(hash, same, || next);
        if id == next {
            let word = |(k, &word): (usize, &u64)| match by_bytes[k] && !is_null(k) {
                true => strings[k].append_of(&theirs[k], word, adopted[k].as_ref()).into(),
                false => word,
            };
            groups.rows.extend(words.iter().enumerate().map(word));
            groups.rows.extend_from_slice(flags);
            groups.groups += 1;
        }
        ids.push(id);
    }
}

/// The same of one key without NULLs: packed rows are codes of `theirs`, and as every group has appended
/// a text, its number is that text's code.
fn find_texts(
    table: &mut Table,
    (groups, ours): (&mut GroupKeys, &mut Strings),
    (theirs, adopted): (&Strings, Option<&Adopted>),
    packed: &[u64],
    hashes: &[u64],
    ids: &mut Vec<u32>,
) {
    debug_assert_eq!(groups.groups, ours.len());
    table.warm(hashes);
    let is_read = !adopted.is_some_and(Adopted::has_known);
    for (n, (&code, &hash)) in packed.iter().zip(hashes).enumerate() {
        if is_read && let Some(&ahead) = packed.get(n + AHEAD) {
            theirs.prefetch(ahead);
        }
        if let Some(&further) = packed.get(n + 2 * AHEAD) {
            theirs.prefetch_view(further);
        }
        let next = groups.groups as u32;
        let same = |id: u32| ours.has(id.into(), theirs, code, adopted);
        let id = table.find_or_insert(hash, same, || next);
        if id == next {
            ours.append_of(theirs, code, adopted);
            groups.rows.push(next.into());
            groups.groups += 1;
        }
        ids.push(id);
    }
}

fn put_in_order(range: Range, keys: &mut GroupKeys, states: &mut States) {
    let order = range.order(keys);
    let mut rows = vec![];
    keys.gather(&order, keys.flagged, &mut rows);
    keys.rows = rows;
    states.permute(&order);
}

/// Whether partitions by these keys are about even, by a sample: of two groups mostly each has its own,
/// and none is that of many groups.
fn are_many(groups: &GroupKeys, keys: &[usize]) -> bool {
    const SAMPLE: usize = 1024;
    let step = groups.groups.div_ceil(SAMPLE).max(1);
    let words = |group| keys.iter().map(move |&k| groups.words(group)[k]);
    let mut sample: Vec<Vec<u64>> =
        (0..groups.groups).step_by(step).map(|group| words(group).collect()).collect();
    sample.sort_unstable();
    let runs = sample.chunk_by(|a, b| a == b);
    let (count, longest) = runs.fold((0, 0), |(n, longest), run| (n + 1, run.len().max(longest)));
    count * 2 >= sample.len() && longest * 64 <= sample.len()
}

/// How groups are sorted: by those bits of their hashes that come after some which all have in common.
#[derive(Default)]
pub(super) struct Partitioning<'a> {
    pub log2: u32,
    pub common_bits: u32,
    /// Keys whose hashes these are, if not of all.
    pub by: &'a [usize],
    /// The only key decides, and not its hash.
    pub range: Option<Range>,
}

impl Range {
    fn partition(self, word: u64, log2: u32) -> u64 {
        word.wrapping_sub(self.min) >> self.bits.saturating_sub(log2)
    }

    /// Groups in the order of their only key.
    fn order(self, keys: &GroupKeys) -> Vec<u32> {
        let pair = |(group, &word): (usize, &u64)| (word.wrapping_sub(self.min), group as u32);
        let mut pairs: Vec<(u64, u32)> = keys.rows.iter().enumerate().map(pair).collect();
        pairs.sort_unstable();
        pairs.into_iter().map(|(_, group)| group).collect()
    }
}

impl Chunk {
    /// Finds the groups of each partition; they stay where they are.
    pub(super) fn sort(&mut self, plan: &Plan, way: Partitioning, without: &[bool]) {
        let partition = |hash: u64| partition(hash << way.common_bits, way.log2);
        let (hashes, mut decisive) = match plan.keys.is_empty() {
            true => (vec![0; self.groups], vec![]),
            false => self.keys.content_hashes(&plan.keys, &mut self.strings, without, way.by),
        };
        if let Some(range) = way.range {
            let part = |&word: &u64| range.partition(word, way.log2) << (u32::BITS - way.log2);
            decisive = self.keys.rows.iter().map(part).collect();
        }
        let decisive = if decisive.is_empty() { &hashes } else { &decisive };
        let mut ends = vec![0; 1 << way.log2];
        decisive.iter().for_each(|&h| ends[partition(h)] += 1);
        let mut next = 0;
        for end in &mut ends {
            next += std::mem::replace(end, next);
        }
        let mut sorted =
            Sorted { groups: vec![0; hashes.len()], hashes: vec![0; hashes.len()], ends };
        for (group, (&hash, &decisive)) in hashes.iter().zip(decisive).enumerate() {
            let place = &mut sorted.ends[partition(decisive)];
            (sorted.groups[*place], sorted.hashes[*place]) = (group as u32, hash);
            *place += 1;
        }
        self.sorted = sorted;
    }

    /// Puts the groups themselves in that order, so that those of a partition lie side by side.
    pub(super) fn permute(&mut self) -> Result<()> {
        let order = std::mem::take(&mut self.sorted.groups);
        let mut rows = vec![];
        self.keys.gather(&order, self.keys.flagged, &mut rows);
        self.keys.rows = rows;
        self.states.permute(&order);
        self.sorted.groups = (0..order.len() as u32).collect();
        let order = UInt32Array::from(order);
        for column in self.externals.iter_mut().flatten() {
            *column = take(column, &order, None).map_err(internal)?;
        }
        Ok(())
    }

    /// Begins to put the texts of a key in the order of the groups, where many of these have a text of
    /// their own: whoever merges a partition finds its texts side by side, and not a few in each line of
    /// all the memory that texts take. The texts are to come back as those of the key.
    fn begin_texts(&mut self, k: usize, key: &Key) -> Option<Reordered> {
        const NO_CODE: u64 = u64::MAX;
        if !key.is_coded() || !has_many_strings(self, k) {
            return None;
        }
        let stride = self.keys.stride();
        let code = |row: &[u64]| {
            let flags = if self.keys.flagged { row[self.keys.keys] } else { 0 };
            if key.is_code(k, flags) { row[k] } else { NO_CODE }
        };
        let codes: Vec<u64> = self.keys.rows.chunks_exact(stride).map(code).collect();
        let texts = self.strings[k].in_order(&codes)?;
        let words = self.keys.rows.iter_mut().skip(k).step_by(stride);
        for (group, (word, code)) in words.zip(codes).enumerate() {
            if code != NO_CODE {
                *word = group as u64;
            }
        }
        Some(texts)
    }
}
