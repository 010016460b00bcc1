//! Groups whose texts are compared, not looked up.
//!
//! Who groups by the number, the name and the address of customers has texts of its own in nearly
//! every group, and to look up each would cost more than all the rest. So once that is seen of keys,
//! their texts are compared with those of the group that the other keys lead to. If these alone do
//! not tell groups apart, hashes are of the texts as well.

use std::borrow::Cow;
use std::cell::Cell;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::Buffer;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use thalweg_base::Result;

use super::grouper::{GroupKeys, hash_packed, pack};
use super::hash::{BLOCK, Table};
use super::keys::{Class, Encoded, Encoder, Values, null_flag};
use super::strings::{AHEAD, Strings, long_of, prefetch_long};
use crate::encoding::internal;

/// Groups that other keys must tell apart, of those that there are, for hashes to be without texts.
const TOLD_APART: (usize, usize) = (15, 16);

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
    packed: Vec<u64>,
    hashes: Vec<u64>,
}

/// The texts of one key of a batch.
struct Texts {
    key: usize,
    /// Views.
    array: ArrayRef,
}

impl Texts {
    fn new(key: usize, array: &ArrayRef) -> Result<Self> {
        let data_type = match array.data_type() {
            DataType::Dictionary(_, values) => values.as_ref(),
            other => other,
        };
        let views = match data_type {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8View,
            _ => DataType::BinaryView,
        };
        let array = match *array.data_type() == views {
            true => ArrayRef::clone(array),
            false => cast(array, &views).map_err(internal)?,
        };
        Ok(Texts { key, array })
    }

    fn views(&self) -> Views<'_> {
        let (views, buffers): (&[u128], &[Buffer]) = match self.array.data_type() {
            DataType::Utf8View => {
                let texts = self.array.as_string_view();
                (texts.views(), texts.data_buffers())
            }
            _ => {
                let texts = self.array.as_binary_view();
                (texts.views(), texts.data_buffers())
            }
        };
        Views { key: self.key, views, buffers }
    }
}

#[derive(Clone, Copy)]
struct Views<'a> {
    key: usize,
    views: &'a [u128],
    buffers: &'a [Buffer],
}

impl<'a> Views<'a> {
    fn long(&self, row: usize) -> &'a [u8] {
        long_of(self.buffers, self.views[row])
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
            packed: vec![],
            hashes: vec![],
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
        let buffers = (self.packed.capacity() + self.hashes.capacity()) * size_of::<u64>();
        self.table.bytes() + buffers
    }

    /// Without groups.
    pub fn cleared(self) -> Self {
        Compared { table: self.table.cleared(), rows: 0, misses: 0, ..self }
    }

    /// Whether the keys that are not compared differ in nearly all groups.
    fn are_told_apart(&self, groups: &GroupKeys) -> bool {
        let others = self.others(groups);
        let mut table = Table::default();
        table.reserve(groups.groups);
        let w = groups.stride();
        let mut apart = 0;
        let mut packed = groups.rows.clone();
        self.blank(&mut packed, groups, |_, _| 0);
        let mut hashes = vec![];
        hash_packed(&packed, groups.keys, groups.flagged, &mut hashes);
        for (id, &hash) in hashes.iter().enumerate() {
            let row = &packed[id * w..][..w];
            let same = |id: u32| others.iter().all(|&k| packed[id as usize * w + k] == row[k]);
            apart += usize::from(table.find_or_insert(hash, same, || id as u32) == id as u32);
        }
        apart * TOLD_APART.1 >= groups.groups * TOLD_APART.0
    }

    /// Words that are compared as such, the flags among them.
    fn others(&self, groups: &GroupKeys) -> Vec<usize> {
        (0..groups.stride()).filter(|&k| !self.texts.get(k).is_some_and(|t| *t)).collect()
    }

    /// Puts something in the place of the codes of texts.
    fn blank(&self, packed: &mut [u64], groups: &GroupKeys, word: impl Fn(usize, u64) -> u64) {
        for row in packed.chunks_exact_mut(groups.stride()) {
            let flags = if groups.flagged { row[groups.keys] } else { 0 };
            for k in (0..groups.keys).filter(|&k| self.texts[k]) {
                row[k] = if flags & null_flag(k) == 0 { word(k, row[k]) } else { 0 };
            }
        }
    }

    /// A table of the groups that there are.
    fn fill(&mut self, encoders: &mut [Encoder], groups: &GroupKeys) {
        for (encoder, _) in encoders.iter_mut().zip(&self.texts).filter(|(_, is_text)| **is_text) {
            encoder.strings.only_append(self.hashed);
        }
        let mut packed = groups.rows.clone();
        match self.hashed {
            true => self.blank(&mut packed, groups, |k, code| encoders[k].strings.hash(code)),
            false => self.blank(&mut packed, groups, |_, _| 0),
        }
        hash_packed(&packed, groups.keys, groups.flagged, &mut self.hashes);
        self.table = Table::default();
        self.table.reserve(groups.groups + BLOCK);
        for (id, &hash) in self.hashes.iter().enumerate() {
            self.table.insert(hash, id as u32);
        }
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
            let texts_of = Texts::new(k, &keys[encoder.key().columns[0].0])?;
            let nulls = texts_of.array.nulls().filter(|n| n.null_count() > 0).cloned();
            let values = Values::Words(Cow::Owned(self.words(&texts_of, rows)));
            encoded.push(Encoded { values, nulls, interned: None });
            texts.push(texts_of);
        }
        if encoded.iter().any(Encoded::has_flags) {
            groups.flag();
        }
        let views: Vec<Views> = texts.iter().map(Texts::views).collect();
        for start in (0..rows).step_by(BLOCK) {
            let block = start..(start + BLOCK).min(rows);
            self.packed.clear();
            pack(&encoded, block.clone(), groups.flagged, &mut self.packed);
            hash_packed(&self.packed, groups.keys, groups.flagged, &mut self.hashes);
            self.find(encoders, groups, &views, start, ids);
            self.rows += block.len();
            let misses_max = self.rows * MISSES_MAX.0 / MISSES_MAX.1 + MISSES_MIN;
            if !self.hashed && self.misses > misses_max {
                self.hashed = true;
                self.fill(encoders, groups);
                for texts in &texts {
                    let words = self.words(texts, rows);
                    encoded[texts.key].values = Values::Words(Cow::Owned(words));
                }
            }
        }
        Ok(())
    }

    /// What stands in the place of a batch's texts: their hashes, or nothing.
    fn words(&self, texts: &Texts, rows: usize) -> Vec<i64> {
        if !self.hashed {
            return vec![0; rows];
        }
        let nulls = texts.array.nulls();
        let Views { views, buffers, .. } = texts.views();
        let hash = |row: usize| match nulls.is_some_and(|n| n.is_null(row)) {
            true => 0,
            false => Strings::hash_of_view(views[row], || long_of(buffers, views[row])),
        };
        (0..rows).map(|row| hash(row).cast_signed()).collect()
    }

    /// Looks up the packed rows of a block; the first is row `start` of the batch.
    fn find(
        &mut self,
        encoders: &mut [Encoder],
        groups: &mut GroupKeys,
        views: &[Views],
        start: usize,
        ids: &mut Vec<u32>,
    ) {
        let others = self.others(groups);
        let Compared { table, packed, hashes, hashed, misses, .. } = self;
        let (keys, w) = (groups.keys, groups.stride());
        table.reserve(groups.groups + hashes.len());
        table.warm(hashes);
        let mut before: Option<(&[u64], u32)> = None;
        for ((n, row), &hash) in packed.chunks_exact(w).enumerate().zip(hashes.iter()) {
            let n = start + n;
            for texts in views {
                if let Some(&ahead) = texts.views.get(n + AHEAD)
                    && ahead != texts.views[n + AHEAD - 1]
                {
                    prefetch_long(texts.buffers, ahead);
                }
            }
            // A join gives rows that have the same texts one after the other.
            if let Some((last, id)) = before
                && last == row
                && views.iter().all(|texts| texts.views[n] == texts.views[n - 1])
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
                let equal = views.iter().all(|texts| {
                    is_null(texts.key)
                        || encoders[texts.key].strings.is_view(
                            found[texts.key],
                            texts.views[n],
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
                for texts in views.iter().filter(|texts| !is_null(texts.key)) {
                    let strings = &mut encoders[texts.key].strings;
                    let hash = hashed.then_some(row[texts.key]);
                    let code = strings.append_view(texts.views[n], || texts.long(n), hash);
                    groups.rows[at + texts.key] = code.into();
                }
            }
            before = Some((row, id));
            ids.push(id);
        }
    }
}
