//! Groups whose texts are compared, not looked up.
//!
//! Who groups by the number, the name and the address of customers has texts of its own in nearly
//! every group, and to look up each would cost more than all the rest. So once that is seen of keys,
//! their texts are compared with those of the group that the other keys lead to. If these alone do
//! not tell groups apart, hashes are of the texts as well.

use std::borrow::Cow;
use std::cell::Cell;

use arrow::array::{Array, ArrayRef, AsArray, GenericByteViewArray};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{ByteViewType, DataType};
use thalweg_base::Result;

use super::grouper::{GroupKeys, find, hash_packed, pack};
use super::hash::{BLOCK, NONE, Table};
use super::keys::{Class, Encoded, Encoder, Values, null_flag};
use super::strings::{AHEAD, Strings, are_same, long_of, prefetch_long};
use crate::allocations::Allocations;
use crate::encoding::internal;
use crate::prefetch::prefetch;

/// Groups that other keys must tell apart, of those that there are, for hashes to be without texts.
const TOLD_APART: (usize, usize) = (15, 16);

/// Bytes that are held for one byte of texts that would else be copied.
const HELD_BYTES_MAX: usize = 64;

/// Rows that may come to a group of the same hash and other texts, of all rows, and in any case.
const MISSES_MAX: (usize, usize) = (1, 8);
const MISSES_MIN: usize = 8 << 10;

pub(super) struct Compared {
    table: Table,
    /// By key: whether its texts are compared.
    texts: Vec<bool>,
    /// Hashes are of them, too.
    hashed: bool,
    rows: usize,
    /// Rows compared in vain with a group.
    misses: usize,
    /// By key.
    sources: Vec<Source>,
    packed: Vec<u64>,
    hashes: Vec<u64>,
    /// Groups that the rows of a block may be of.
    candidates: Vec<u32>,
}

/// Where the texts of a key come from: those of a joined table are in the same buffers batch after
/// batch, and then they need not be copied. Others would each be held for a few texts.
#[derive(Default)]
pub(super) struct Source {
    /// Of the batch before.
    before: Vec<Buffer>,
    held: Vec<Buffer>,
    held_bytes: usize,
}

impl Source {
    /// The first batch is this one.
    fn of(texts: &ArrayRef) -> Self {
        let before = match texts.data_type() {
            DataType::Utf8View => texts.as_string_view().data_buffers(),
            DataType::BinaryView => texts.as_binary_view().data_buffers(),
            _ => &[],
        };
        Source { before: before.to_vec(), ..Source::default() }
    }

    pub fn bytes(&self) -> usize {
        self.held_bytes
    }

    /// Whether the texts in these buffers, of the next batch, are not to be copied to the `strings`.
    pub fn is_shared(&mut self, buffers: &[Buffer], strings: &mut Strings) -> bool {
        let again = are_same(&self.before, buffers);
        if !again {
            self.before = buffers.to_vec();
        }
        if again && self.held.is_empty() {
            let bytes = Allocations::of(buffers).bytes();
            if bytes <= strings.copied_bytes() * HELD_BYTES_MAX {
                (self.held, self.held_bytes) = (buffers.to_vec(), bytes);
            }
        }
        if are_same(&self.held, buffers) {
            strings.share(buffers);
        }
        strings.shares(buffers)
    }
}

/// The texts of one key of a batch, as Arrow's views.
pub(super) struct Texts {
    key: usize,
    pub views: ScalarBuffer<u128>,
    pub buffers: Vec<Buffer>,
    /// The groups' strings share these buffers.
    pub shared: bool,
    nulls: Option<NullBuffer>,
}

impl Texts {
    pub fn new(key: usize, array: &ArrayRef) -> Result<Self> {
        fn of<T: ByteViewType>(key: usize, array: &GenericByteViewArray<T>) -> Texts {
            Texts {
                key,
                views: array.views().clone(),
                buffers: array.data_buffers().to_vec(),
                shared: false,
                nulls: array.nulls().filter(|n| n.null_count() > 0).cloned(),
            }
        }
        let data_type = match array.data_type() {
            DataType::Dictionary(_, values) => values.as_ref(),
            other => other,
        };
        let to_views = |views| cast(array, &views).map_err(internal);
        Ok(match data_type {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                of(key, to_views(DataType::Utf8View)?.as_string_view())
            }
            _ => of(key, to_views(DataType::BinaryView)?.as_binary_view()),
        })
    }

    /// The bytes of a text that does not stand in its view.
    pub fn long(&self, row: usize) -> &[u8] {
        long_of(&self.buffers, self.views[row])
    }

    /// 0 for NULL.
    fn hashes(&self) -> Vec<i64> {
        let hash = |row| match self.nulls.as_ref().is_some_and(|n| n.is_null(row)) {
            true => 0,
            false => Strings::hash_of_view(self.views[row], || self.long(row)).cast_signed(),
        };
        (0..self.views.len()).map(hash).collect()
    }
}

impl Compared {
    /// If there are texts to compare in these groups: those of keys that did not come as dictionaries
    /// and of which more than every other group has one of its own.
    pub fn new(encoders: &mut [Encoder], groups: &GroupKeys, keys: &[ArrayRef]) -> Option<Self> {
        let is_compared = |e: &Encoder| {
            let came = keys[e.key().columns[0].0].data_type();
            e.key().class == Class::Bytes
                && !matches!(came, DataType::Dictionary(..))
                && e.strings.len() * 2 > groups.groups
        };
        let texts: Vec<bool> = encoders.iter().map(is_compared).collect();
        // The strings of one key alone are the groups.
        if texts.len() < 2 || !texts.contains(&true) {
            return None;
        }
        let mut compared = Compared {
            table: Table::default(),
            texts,
            hashed: false,
            rows: 0,
            misses: 0,
            sources: encoders.iter().map(|e| Source::of(&keys[e.key().columns[0].0])).collect(),
            packed: vec![],
            hashes: vec![],
            candidates: vec![],
        };
        compared.hashed = !compared.are_told_apart(groups);
        compared.fill(encoders, groups);
        Some(compared)
    }

    /// Keys whose texts are not in the hashes.
    pub fn unhashed(&self) -> Option<&[bool]> {
        (!self.hashed).then_some(&self.texts)
    }

    pub fn bytes(&self) -> usize {
        let buffers = (self.packed.capacity() + self.hashes.capacity()) * size_of::<u64>()
            + self.candidates.capacity() * size_of::<u32>();
        let held = self.sources.iter().map(Source::bytes);
        self.table.bytes() + buffers + held.sum::<usize>()
    }

    /// Without groups.
    pub fn cleared(self) -> Self {
        Compared { table: self.table.cleared(), rows: 0, misses: 0, ..self }
    }

    /// Whether the keys that are not compared differ in nearly all groups.
    fn are_told_apart(&self, groups: &GroupKeys) -> bool {
        let (packed, mut hashes) = (self.packed(groups, |_, _| 0), vec![]);
        hash_packed(&packed, groups.keys, groups.flagged, &mut hashes);
        let (mut table, mut apart) = (Table::default(), GroupKeys::new(groups.keys));
        apart.flagged = groups.flagged;
        find(&mut table, &mut apart, &packed, &hashes, &mut vec![]);
        apart.groups * TOLD_APART.1 >= groups.groups * TOLD_APART.0
    }

    /// Words that are compared as such, the flags among them.
    fn others(&self, groups: &GroupKeys) -> Vec<usize> {
        (0..groups.stride()).filter(|&k| !self.texts.get(k).is_some_and(|t| *t)).collect()
    }

    /// The groups' keys, with something in the place of the codes of texts.
    fn packed(&self, groups: &GroupKeys, word: impl Fn(usize, u64) -> u64) -> Vec<u64> {
        let mut packed = groups.rows.clone();
        for row in packed.chunks_exact_mut(groups.stride()) {
            let flags = if groups.flagged { row[groups.keys] } else { 0 };
            for k in (0..groups.keys).filter(|&k| self.texts[k]) {
                row[k] = if flags & null_flag(k) == 0 { word(k, row[k]) } else { 0 };
            }
        }
        packed
    }

    /// A table of the groups that there are.
    fn fill(&mut self, encoders: &mut [Encoder], groups: &GroupKeys) {
        for (encoder, _) in encoders.iter_mut().zip(&self.texts).filter(|(_, is_text)| **is_text) {
            encoder.strings.only_append(self.hashed);
        }
        let packed = self.packed(groups, |k, code| match self.hashed {
            true => encoders[k].strings.hash(code),
            false => 0,
        });
        hash_packed(&packed, groups.keys, groups.flagged, &mut self.hashes);
        self.table = Table::of(&self.hashes);
    }

    /// Appends the group ids of a batch.
    pub fn group(
        &mut self,
        encoders: &mut [Encoder],
        groups: &mut GroupKeys,
        keys: &[ArrayRef],
        rows: usize,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let mut texts = vec![];
        let mut encoded = Vec::with_capacity(encoders.len());
        for (k, encoder) in encoders.iter_mut().enumerate() {
            if !self.texts[k] {
                encoded.push(encoder.encode(keys, rows, false)?);
                continue;
            }
            let mut texts_of = Texts::new(k, &keys[encoder.key().columns[0].0])?;
            let source = &mut self.sources[k];
            texts_of.shared = source.is_shared(&texts_of.buffers, &mut encoder.strings);
            // What stands in the place of the texts: their hashes, or nothing.
            let words = if self.hashed { texts_of.hashes() } else { vec![0; rows] };
            let values = Values::Words(Cow::Owned(words));
            encoded.push(Encoded { values, nulls: texts_of.nulls.clone(), interned: None });
            texts.push(texts_of);
        }
        if encoded.iter().any(Encoded::has_flags) {
            groups.flag();
        }
        for start in (0..rows).step_by(BLOCK) {
            let block = start..(start + BLOCK).min(rows);
            self.packed.clear();
            pack(&encoded, block.clone(), groups.flagged, &mut self.packed);
            hash_packed(&self.packed, groups.keys, groups.flagged, &mut self.hashes);
            self.find(encoders, groups, &texts, start, ids);
            self.rows += block.len();
            let misses_max = self.rows * MISSES_MAX.0 / MISSES_MAX.1 + MISSES_MIN;
            if !self.hashed && self.misses > misses_max {
                self.hashed = true;
                self.fill(encoders, groups);
                for texts in &texts {
                    encoded[texts.key].values = Values::Words(Cow::Owned(texts.hashes()));
                }
            }
        }
        Ok(())
    }

    /// Looks up the packed rows of a block; the first is row `start` of the batch.
    fn find(
        &mut self,
        encoders: &mut [Encoder],
        groups: &mut GroupKeys,
        all_texts: &[Texts],
        start: usize,
        ids: &mut Vec<u32>,
    ) {
        let others = self.others(groups);
        let Compared { table, packed, hashes, candidates, hashed, misses, .. } = self;
        let (keys, w) = (groups.keys, groups.stride());
        table.reserve(groups.groups + hashes.len());
        table.warm(hashes);
        table.candidates(hashes, candidates);
        let mut before: Option<(&[u64], u32)> = None;
        for ((n, row), &hash) in packed.chunks_exact(w).enumerate().zip(hashes.iter()) {
            prefetch_compared(encoders, groups, all_texts, start + n, &candidates[n..]);
            let n = start + n;
            // A join gives rows that have the same texts one after the other.
            if let Some((last, id)) = before
                && last == row
                && all_texts.iter().all(|texts| texts.views[n] == texts.views[n - 1])
            {
                ids.push(id);
                continue;
            }
            let flags = if groups.flagged { row[keys] } else { 0 };
            let is_null = |key: usize| flags & null_flag(key) != 0;
            let in_vain = Cell::new(0);
            let same = |id: u32| {
                let found = &groups.rows[id as usize * w..][..w];
                if others.iter().any(|&k| found[k] != row[k]) {
                    return false;
                }
                let equal = all_texts.iter().all(|texts| {
                    is_null(texts.key)
                        || encoders[texts.key].strings.is_view(
                            found[texts.key],
                            texts.views[n],
                            texts.shared,
                            || texts.long(n),
                        )
                });
                in_vain.set(in_vain.get() + usize::from(!equal));
                equal
            };
            let next = groups.groups as u32;
            let id = table.find_or_insert(hash, same, || next);
            *misses += in_vain.get();
            if id == next {
                let at = groups.rows.len();
                groups.rows.extend_from_slice(row);
                groups.groups += 1;
                for texts in all_texts.iter().filter(|texts| !is_null(texts.key)) {
                    let strings = &mut encoders[texts.key].strings;
                    let hash = hashed.then_some(row[texts.key]);
                    let code =
                        strings.append_view(texts.views[n], texts.shared, || texts.long(n), hash);
                    groups.rows[at + texts.key] = code.into();
                }
            }
            if id != next {
                // The next row that has its texts from there has the group's without a look.
                for texts in all_texts.iter().filter(|t| t.shared && !is_null(t.key)) {
                    let code = groups.rows[id as usize * w + texts.key];
                    encoders[texts.key].strings.place_at(code, texts.views[n]);
                }
            }
            before = Some((row, id));
            ids.push(id);
        }
    }
}

/// Asks for what rows further on will be compared with, each time for what leads to the next: the keys
/// of their candidates, the views of these texts, and the bytes, if they are not at the same place. The
/// first of the candidates is that of row `n`.
#[inline]
fn prefetch_compared(
    encoders: &[Encoder],
    groups: &GroupKeys,
    all_texts: &[Texts],
    n: usize,
    candidates: &[u32],
) {
    let w = groups.stride();
    let first_word = |ahead: usize| {
        let group = candidates.get(ahead).filter(|group| **group != NONE)?;
        Some(*group as usize * w)
    };
    if let Some(at) = first_word(3 * AHEAD) {
        prefetch(&groups.rows, at);
        prefetch(&groups.rows, at + w - 1);
    }
    if let Some(at) = first_word(2 * AHEAD) {
        for texts in all_texts {
            encoders[texts.key].strings.prefetch_view(groups.rows[at + texts.key]);
        }
    }
    if candidates.len() <= AHEAD {
        return;
    }
    let (found, n) = (first_word(AHEAD), n + AHEAD);
    for texts in all_texts.iter().filter(|texts| texts.views[n] != texts.views[n - 1]) {
        let (strings, view) = (&encoders[texts.key].strings, texts.views[n]);
        if let Some(at) = found {
            let code = groups.rows[at + texts.key];
            if strings.is_at(code, view, texts.shared) {
                continue;
            }
            strings.prefetch(code);
        }
        prefetch_long(&texts.buffers, view);
    }
}
