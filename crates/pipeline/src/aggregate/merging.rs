//! From the chunks of all workers to groups.
//!
//! Few groups are merged in one go. Of many, first every chunk is sorted into partitions by its
//! keys' hashes, one task a chunk. Every partition is then merged by whoever reads its groups, when
//! they are read: so they are there twice only for as long as somebody looks at them.

use std::ops::Range;
use std::sync::{Arc, RwLock};

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use thalweg_base::{Error, Result};

use super::emit::Finished;
use super::grouper::{GroupKeys, find};
use super::hash::{BLOCK, Table, partition};
use super::keys::{interned_flag, null_flag};
use super::partial::{Chunk, Partial, accumulators};
use super::plan::Plan;
use super::states::{Merge, States};
use super::strings::Strings;
use super::{LIMITS, Limits, PARTITIONS_LOG2_MAX, Spec, spill};
use crate::encoding::internal;
use crate::phases::Phases;

/// Chunks whose groups are told apart by hashes without strings, at most.
const UNHASHED_CHUNKS_MAX: usize = 16;

/// Some groups: the columns of keys, then results. Keys may come in encoded forms.
#[derive(Clone, Debug)]
pub struct Groups {
    pub columns: Vec<ArrayRef>,
    pub rows: usize,
}

/// How many partitions there are, if there is more than one task.
enum Way {
    Nothing,
    AtOnce,
    Partitions { log2: u32 },
}

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
}

impl Merging {
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
        let chunks = parts.into_iter().map(Partial::into_chunks).collect::<Result<Vec<_>>>()?;
        Ok(Self::of(spec, plan, chunks.into_iter().flatten().collect(), 0, limits))
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
        chunks: Vec<Chunk>,
        common_bits: u32,
        limits: Limits,
    ) -> Self {
        let groups: usize = chunks.iter().map(|c| c.groups).sum();
        let way = match &chunks[..] {
            [] => Way::Nothing,
            [chunk] if chunk.distinct => Way::AtOnce,
            _ if groups <= limits.merge_at_once || spec.key_types.is_empty() => Way::AtOnce,
            _ => {
                let partitions = groups.div_ceil(limits.partition_groups).next_power_of_two();
                Way::Partitions { log2: partitions.ilog2().min(PARTITIONS_LOG2_MAX) }
            }
        };
        let without = without(&chunks);
        let chunks = chunks.into_iter().map(RwLock::new).collect();
        Self { spec, plan, way, chunks, unmerged: groups, common_bits, without }
    }

    /// How many parts the groups come in.
    pub fn parts(&self) -> usize {
        match self.way {
            Way::Nothing => 0,
            Way::AtOnce => 1,
            Way::Partitions { log2 } => 1 << log2,
        }
    }

    /// The groups of a part; all phases are done, and it was not read before.
    pub fn groups(&self, part: usize) -> Result<Vec<Groups>> {
        match self.way {
            Way::Nothing => Err(Error::internal("there is nothing to merge")),
            Way::AtOnce => {
                let mut chunks = Vec::with_capacity(self.chunks.len());
                for chunk in &self.chunks {
                    chunks.push(chunk.write().map_err(|_| poisoned())?);
                }
                if let [chunk] = &mut chunks[..]
                    && chunk.distinct
                {
                    return self.finish_chunk(chunk);
                }
                for chunk in &mut chunks {
                    let Chunk { keys, strings, hashes, .. } = &mut **chunk;
                    *hashes = keys.content_hashes(&self.plan.keys, strings, &self.without);
                }
                self.merge(&chunks.iter().map(|c| (&**c, 0..c.groups)).collect::<Vec<_>>())
            }
            Way::Partitions { .. } => {
                let mut chunks = Vec::with_capacity(self.chunks.len());
                for chunk in &self.chunks {
                    chunks.push(chunk.read().map_err(|_| poisoned())?);
                }
                let range = |c: &Chunk| {
                    let start = part.checked_sub(1).map_or(0, |before| c.ends[before]);
                    start..c.ends[part]
                };
                let ranges = chunks.iter().map(|c| (&**c, range(c)));
                self.merge(&ranges.filter(|(_, r)| !r.is_empty()).collect::<Vec<_>>())
            }
        }
    }

    /// A chunk that needs no merging.
    fn finish_chunk(&self, chunk: &mut Chunk) -> Result<Vec<Groups>> {
        let groups = chunk.groups;
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
        finished.emit(&self.spec, &self.plan)
    }

    /// Merges those groups of every chunk; all hashes are there.
    fn merge(&self, chunks: &[(&Chunk, Range<usize>)]) -> Result<Vec<Groups>> {
        let Merging { spec, plan, .. } = self;
        let mut keys = GroupKeys::new(plan.keys.len());
        keys.flagged = chunks.iter().any(|(chunk, _)| chunk.keys.flagged);
        let mut strings: Vec<Strings> = plan.keys.iter().map(|_| Strings::default()).collect();
        let by_bytes = by_bytes(plan, chunks);
        let mut table = Table::default();
        table.reserve(chunks.iter().map(|(_, range)| range.len()).sum());
        let mut states = States::new(&plan.slots, spec.key_types.is_empty());
        let mut accumulators = accumulators(spec, plan)?;
        let (mut ids, mut packed) = (vec![], vec![]);
        let mut groups = usize::from(spec.key_types.is_empty());
        for (chunk, range) in chunks {
            let before = groups;
            ids.clear();
            if spec.key_types.is_empty() {
                ids.push(0);
            } else {
                let mut codes = Codes::new(plan, chunk, range.len());
                for start in range.clone().step_by(BLOCK) {
                    let block = start..(start + BLOCK).min(range.end);
                    if codes.none() && chunk.keys.flagged == keys.flagged {
                        let w = keys.stride();
                        let rows = &chunk.keys.rows[block.start * w..block.end * w];
                        find(&mut table, &mut keys, rows, &chunk.hashes[block], &mut ids);
                        continue;
                    }
                    packed.clear();
                    for group in block.clone() {
                        let flags = chunk.keys.flags(group);
                        let words = chunk.keys.words(group).iter().enumerate();
                        packed.extend(words.map(|(k, &word)| match by_bytes[k] {
                            true => word,
                            false => codes.translate(k, word, flags, &mut strings[k]),
                        }));
                        if keys.flagged {
                            packed.push(flags);
                        }
                    }
                    let hashes = &chunk.hashes[block];
                    if by_bytes.contains(&true) {
                        let theirs = (&chunk.strings[..], &by_bytes[..]);
                        find_bytes(
                            &mut table,
                            &mut keys,
                            &mut strings,
                            theirs,
                            &packed,
                            hashes,
                            &mut ids,
                        );
                    } else {
                        find(&mut table, &mut keys, &packed, hashes, &mut ids);
                    }
                }
                groups = keys.groups;
            }
            let at = Merge { start: range.start, ids: &ids, before, total: groups };
            states.merge(&chunk.states, &at);
            for (accumulator, columns) in accumulators.iter_mut().zip(&chunk.externals) {
                let columns = columns.iter().map(|c| c.slice(range.start, range.len()));
                accumulator.merge(&columns.collect::<Vec<_>>(), &ids, groups)?;
            }
        }
        Finished { keys, strings, states, accumulators, groups }.emit(spec, plan)
    }
}

/// Sorts chunks into partitions.
impl Phases for Merging {
    type Output = Merging;

    fn rows(&self) -> usize {
        self.unmerged
    }

    fn phases(&self) -> usize {
        usize::from(matches!(self.way, Way::Partitions { .. }))
    }

    fn tasks(&self, _: usize) -> usize {
        self.chunks.len()
    }

    fn run(&self, _: usize, task: usize) -> Result<()> {
        let Way::Partitions { log2 } = self.way else { return Ok(()) };
        let mut chunk = self.chunks[task].write().map_err(|_| poisoned())?;
        split(&mut chunk, &self.plan, log2, self.common_bits, &self.without)
    }

    fn finish(self) -> Result<Merging> {
        Ok(self)
    }
}

fn poisoned() -> Error {
    Error::internal("another task of this aggregation panicked")
}

/// From the codes of a chunk's strings to those of the merged ones.
struct Codes<'a> {
    chunk: &'a Chunk,
    coded: Vec<bool>,
    /// By key: the codes known, plus 1, where strings are few enough for that to pay.
    known: Vec<Vec<u32>>,
}

impl<'a> Codes<'a> {
    fn new(plan: &Plan, chunk: &'a Chunk, groups: usize) -> Self {
        let known = chunk.strings.iter().map(|strings| match strings.len() {
            n if n <= groups * 4 => vec![0; n],
            _ => vec![],
        });
        let coded = plan.keys.iter().map(|k| k.is_coded()).collect();
        Self { chunk, coded, known: known.collect() }
    }

    /// There is nothing to translate.
    fn none(&self) -> bool {
        self.chunk.strings.iter().all(|s| s.len() == 0)
    }

    #[inline]
    fn translate(&mut self, key: usize, word: u64, flags: u64, into: &mut Strings) -> u64 {
        let is_code = self.coded[key] || flags & interned_flag(key) != 0;
        if !is_code || flags & null_flag(key) != 0 {
            return word;
        }
        let strings = &self.chunk.strings[key];
        let mut look_up =
            || strings.with(word, |bytes| into.code_of_hash(strings.hash(word), bytes));
        match self.known[key].get_mut(word as usize) {
            None => look_up().into(),
            Some(0) => {
                let code = look_up();
                self.known[key][word as usize] = code + 1;
                code.into()
            }
            Some(known) => (*known - 1).into(),
        }
    }
}

/// Keys whose strings hashes do without: they are not needed to tell the groups of any chunk apart.
fn without(chunks: &[Chunk]) -> Vec<bool> {
    let Some(first) = chunks.first().and_then(|chunk| chunk.unhashed.as_ref()) else {
        return vec![];
    };
    let agree = chunks.iter().all(|chunk| chunk.unhashed.as_ref() == Some(first));
    // Groups of the same hash and other strings may be in every chunk.
    if agree && chunks.len() <= UNHASHED_CHUNKS_MAX { first.clone() } else { vec![] }
}

/// Keys nearly every group of which has a string of its own. To tell such groups apart, the strings of
/// two that have the same hash are compared, and their codes in the merged groups are no longer those
/// of strings but of groups: a look-up of each string would cost as much as that of the group.
fn by_bytes(plan: &Plan, chunks: &[(&Chunk, Range<usize>)]) -> Vec<bool> {
    let many = |k: usize| chunks.iter().any(|(chunk, _)| has_many_strings(chunk, k));
    plan.keys.iter().enumerate().map(|(k, key)| key.is_coded() && many(k)).collect()
}

fn has_many_strings(chunk: &Chunk, key: usize) -> bool {
    let strings = &chunk.strings[key];
    !strings.are_hashed() || strings.len() * 2 > chunk.groups
}

/// Looks up packed rows, as [`find`] does. The codes of keys told `by_bytes` are those of `theirs`.
fn find_bytes(
    table: &mut Table,
    groups: &mut GroupKeys,
    strings: &mut [Strings],
    (theirs, by_bytes): (&[Strings], &[bool]),
    packed: &[u64],
    hashes: &[u64],
    ids: &mut Vec<u32>,
) {
    table.reserve(groups.groups + hashes.len());
    table.warm(hashes);
    let (keys, w) = (groups.keys, groups.stride());
    for (row, &hash) in packed.chunks_exact(w).zip(hashes) {
        let (words, flags) = row.split_at(keys);
        let is_null = |k: usize| flags.first().is_some_and(|flags| flags & null_flag(k) != 0);
        let next = groups.groups as u32;
        let same = |id: u32| {
            let (found, found_flags) = groups.rows[id as usize * w..][..w].split_at(keys);
            let same_key = |k: usize| match by_bytes[k] && !is_null(k) {
                true => strings[k].has(found[k], &theirs[k], words[k]),
                false => found[k] == words[k],
            };
            found_flags == flags && (0..keys).all(same_key)
        };
        let id = table.find_or_insert(hash, same, || next);
        if id == next {
            let word = |(k, &word): (usize, &u64)| match by_bytes[k] && !is_null(k) {
                true => strings[k].append_of(&theirs[k], word).into(),
                false => word,
            };
            groups.rows.extend(words.iter().enumerate().map(word));
            groups.rows.extend_from_slice(flags);
            groups.groups += 1;
        }
        ids.push(id);
    }
}

/// Sorts a chunk's groups by partition: by the bits of their hashes after those that they have in
/// common.
pub(super) fn split(
    chunk: &mut Chunk,
    plan: &Plan,
    log2: u32,
    common_bits: u32,
    without: &[bool],
) -> Result<()> {
    let partition = |hash: u64| partition(hash << common_bits, log2);
    let hashes = chunk.keys.content_hashes(&plan.keys, &mut chunk.strings, without);
    let mut ends = vec![0; 1 << log2];
    hashes.iter().for_each(|&h| ends[partition(h)] += 1);
    let mut next = 0;
    for end in &mut ends {
        next += std::mem::replace(end, next);
    }
    let mut order = vec![0; hashes.len()];
    for (group, &hash) in hashes.iter().enumerate() {
        let place = &mut ends[partition(hash)];
        order[*place] = group as u32;
        *place += 1;
    }
    chunk.hashes = order.iter().map(|&g| hashes[g as usize]).collect();
    chunk.keys.permute(&order);
    chunk.states.permute(&order);
    for (k, key) in plan.keys.iter().enumerate() {
        if has_many_strings(chunk, k) {
            let codes = chunk.keys.codes_mut(k, key.is_coded());
            chunk.strings[k] = chunk.strings[k].in_order(codes);
        }
    }
    let order = UInt32Array::from(order);
    for column in chunk.externals.iter_mut().flatten() {
        *column = take(column, &order, None).map_err(internal)?;
    }
    chunk.ends = ends;
    Ok(())
}
