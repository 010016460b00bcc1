//! From rows of keys to dense group ids, in order of appearance.

use arrow::array::ArrayRef;
use thalweg_base::Result;

use super::compared::Compared;
use super::direct::Direct;
use super::hash::{BLOCK, HASH_SEED, Table, add_words, end_hash, find_rows, hash_words};
use super::keys::{Class, Column, Encoded, Encoder, Key, Values, interned_flag, null_flag};
use super::ordered::{Order, Ordered, Outcome};
use super::strings::Strings;
use super::{fitted, with_headroom};

/// The keys of groups: a row of words for each, and once any key was NULL or interned, a word of
/// flags at its end.
#[derive(Clone, Default)]
pub(super) struct GroupKeys {
    pub rows: Vec<u64>,
    /// Words without flags: as many as keys.
    pub keys: usize,
    pub flagged: bool,
    pub groups: usize,
}

impl GroupKeys {
    pub fn new(keys: usize) -> Self {
        Self { rows: vec![], keys, flagged: false, groups: 0 }
    }

    pub fn stride(&self) -> usize {
        self.keys + usize::from(self.flagged)
    }

    /// Gives every group flags, if they have none.
    pub fn flag(&mut self) {
        if self.flagged {
            return;
        }
        let mut rows = Vec::with_capacity(self.groups * (self.keys + 1));
        for row in self.rows.chunks_exact(self.keys) {
            rows.extend_from_slice(row);
            rows.push(0);
        }
        self.rows = rows;
        self.flagged = true;
    }

    pub fn words(&self, group: usize) -> &[u64] {
        &self.rows[group * self.stride()..][..self.keys]
    }

    pub fn flags(&self, group: usize) -> u64 {
        if self.flagged { self.rows[group * self.stride() + self.keys] } else { 0 }
    }

    pub fn all_flags(&self) -> Vec<u64> {
        if !self.flagged {
            return vec![];
        }
        self.rows.iter().skip(self.keys).step_by(self.stride()).copied().collect()
    }

    pub fn column<'a>(&self, key: usize, flags: &'a [u64]) -> Column<'a> {
        let words = self.rows.iter().skip(key).step_by(self.stride()).copied().collect();
        Column { words, flags, number: key }
    }

    /// The same, of keys that nobody asks for again.
    pub fn take_column<'a>(&mut self, key: usize, flags: &'a [u64]) -> Column<'a> {
        match self.stride() {
            1 => Column { words: fitted(std::mem::take(&mut self.rows)), flags, number: key },
            _ => self.column(key, flags),
        }
    }

    /// Hashes of what the keys say, not of the codes that strings happen to have here; of the strings
    /// of keys that are `without` a part in it nothing is asked. The keys `first` are hashed first, and
    /// the second hashes are those of them alone.
    pub fn content_hashes(
        &self,
        keys: &[Key],
        strings: &mut [Strings],
        without: &[bool],
        first: &[usize],
    ) -> (Vec<u64>, Vec<u64>) {
        let is_without = |k: usize| without.get(k).is_some_and(|without| *without);
        for (_, strings) in strings.iter_mut().enumerate().filter(|(k, _)| !is_without(*k)) {
            strings.hash_all();
        }
        let strings = &*strings;
        let mask = first.iter().fold(0, |all, &k| all | null_flag(k) | interned_flag(k));
        let rest = (0..self.keys).filter(|k| !first.contains(k));
        let order: Vec<usize> = first.iter().copied().chain(rest).collect();
        let mut hashes = vec![HASH_SEED; self.groups];
        let mut of_first = Vec::with_capacity(if first.is_empty() { 0 } else { self.groups });
        let block_rows = self.rows.chunks(BLOCK * self.stride());
        for (rows, hashes) in block_rows.zip(hashes.chunks_mut(BLOCK)) {
            let flags = |row: &[u64]| if self.flagged { row[self.keys] } else { 0 };
            let rows = || rows.chunks_exact(self.stride());
            for (n, &k) in order.iter().enumerate() {
                let of = &strings[k];
                match (self.flagged, keys[k].is_coded()) {
                    (false, false) => add_words(hashes, rows().map(|row| row[k])),
                    (false, true) if !is_without(k) => {
                        add_words(hashes, rows().map(|row| of.hash(row[k])));
                    }
                    _ => {
                        let word = |row: &[u64]| match keys[k].is_code(k, flags(row)) {
                            true if is_without(k) => 0,
                            true => of.hash(row[k]),
                            false => row[k],
                        };
                        add_words(hashes, rows().map(word));
                    }
                }
                if n + 1 == first.len() {
                    let ended = hashes.iter().zip(rows());
                    of_first.extend(ended.map(|(&hash, row)| end_hash(hash, flags(row) & mask)));
                }
            }
            for (hash, row) in hashes.iter_mut().zip(rows()) {
                *hash = end_hash(*hash, flags(row));
            }
        }
        (hashes, of_first)
    }

    /// The rows of those groups, each with flags if that is asked for.
    pub fn gather(&self, groups: &[u32], flagged: bool, rows: &mut Vec<u64>) {
        fn gather<const W: usize>(all: &[u64], groups: &[u32], rows: &mut [u64]) {
            let ((all, _), (rows, _)) = (all.as_chunks::<W>(), rows.as_chunks_mut::<W>());
            rows.iter_mut().zip(groups).for_each(|(row, &group)| *row = all[group as usize]);
        }
        let (from, to) = (self.stride(), self.keys + usize::from(flagged));
        rows.clear();
        rows.resize(groups.len() * to, 0);
        match from {
            1 if to == 1 => gather::<1>(&self.rows, groups, rows),
            2 if to == 2 => gather::<2>(&self.rows, groups, rows),
            3 if to == 3 => gather::<3>(&self.rows, groups, rows),
            4 if to == 4 => gather::<4>(&self.rows, groups, rows),
            5 if to == 5 => gather::<5>(&self.rows, groups, rows),
            6 if to == 6 => gather::<6>(&self.rows, groups, rows),
            7 if to == 7 => gather::<7>(&self.rows, groups, rows),
            8 if to == 8 => gather::<8>(&self.rows, groups, rows),
            _ => {
                for (row, &group) in rows.chunks_exact_mut(to).zip(groups) {
                    row[..from].copy_from_slice(&self.rows[group as usize * from..][..from]);
                }
            }
        }
    }

    pub fn bytes(&self) -> usize {
        self.rows.capacity() * size_of::<u64>()
    }
}

/// Packs rows of a batch as [`GroupKeys`] has them.
pub(super) fn pack(
    encoded: &[Encoded],
    rows: std::ops::Range<usize>,
    flagged: bool,
    packed: &mut Vec<u64>,
) {
    let stride = encoded.len() + usize::from(flagged);
    let start = packed.len();
    packed.resize(start + rows.len() * stride, 0);
    let packed = &mut packed[start..];
    for (k, key) in encoded.iter().enumerate() {
        let places = packed.iter_mut().skip(k).step_by(stride);
        match &key.values {
            Values::Words(words) => {
                places.zip(&words[rows.clone()]).for_each(|(p, w)| *p = w.cast_unsigned());
            }
            Values::Codes(codes) => {
                places.zip(&codes[rows.clone()]).for_each(|(p, &c)| *p = u64::from(c));
            }
        }
        if !key.has_flags() {
            continue;
        }
        for (row, i) in packed.chunks_exact_mut(stride).zip(rows.clone()) {
            let flags = key.flags(i) << k;
            row[encoded.len()] |= flags;
            if flags & null_flag(k) != 0 {
                row[k] = 0;
            }
        }
    }
}

pub(super) fn hash_packed(packed: &[u64], keys: usize, flagged: bool, hashes: &mut Vec<u64>) {
    hashes.clear();
    match (keys, flagged) {
        (1, false) => hashes.extend(packed.iter().map(|&w| hash_words([w].into_iter(), 0))),
        (2, false) => {
            let (rows, _) = packed.as_chunks::<2>();
            hashes.extend(rows.iter().map(|&row| hash_words(row.into_iter(), 0)));
        }
        _ => {
            let hash = |row: &[u64]| {
                let flags = if flagged { row[keys] } else { 0 };
                hash_words(row[..keys].iter().copied(), flags)
            };
            hashes.extend(packed.chunks_exact(keys + usize::from(flagged)).map(hash));
        }
    }
}

/// Looks up packed rows of any width; the table makes room.
pub(super) fn find(
    table: &mut Table,
    groups: &mut GroupKeys,
    packed: &[u64],
    hashes: &[u64],
    ids: &mut Vec<u32>,
) {
    table.reserve(groups.groups + hashes.len());
    let w = groups.stride();
    let find = match w {
        1 => find_rows::<1>,
        2 => find_rows::<2>,
        3 => find_rows::<3>,
        4 => find_rows::<4>,
        _ => find_rows::<0>,
    };
    find(table, &mut groups.rows, packed, w, hashes, ids);
    groups.groups = groups.rows.len() / w;
}

enum Mode {
    Ordered(Ordered),
    Direct(Direct),
    Hashed(Table),
    Compared(Compared),
    /// Every row is a group of its own.
    Append,
}

pub(super) struct Grouper {
    encoders: Vec<Encoder>,
    groups: GroupKeys,
    mode: Mode,
    /// Groups from which on it is asked, once, whether texts are better compared.
    compare_at: usize,
    packed: Vec<u64>,
    hashes: Vec<u64>,
}

/// Groups of a chunk.
#[derive(Default)]
pub(super) struct SealedGroups {
    pub keys: GroupKeys,
    pub strings: Vec<Strings>,
    /// Keys whose strings are not needed to tell the groups apart by hashes, if that is known.
    pub unhashed: Option<Vec<bool>>,
    pub order: Option<Order>,
}

impl Grouper {
    /// `in_order`: they may be groups of rows that come in order.
    pub fn new(keys: &[Key], compare_at: usize, in_order: bool) -> Result<Self> {
        let encoders = keys.iter().map(|k| Encoder::new(k.clone())).collect::<Result<Vec<_>>>()?;
        let groups = GroupKeys::new(keys.len());
        let ordered = in_order.then(|| Ordered::new(keys)).flatten();
        let mode = ordered.map_or_else(|| Mode::Direct(Direct::new(keys)), Mode::Ordered);
        Ok(Self { encoders, groups, mode, compare_at, packed: vec![], hashes: vec![] })
    }

    pub fn groups(&self) -> usize {
        self.groups.groups
    }

    pub fn bytes(&self) -> usize {
        let mode = match &self.mode {
            Mode::Ordered(ordered) => ordered.bytes(),
            Mode::Direct(direct) => direct.bytes(),
            Mode::Hashed(table) => table.bytes(),
            Mode::Compared(compared) => compared.bytes(),
            Mode::Append => 0,
        };
        let buffers = (self.packed.capacity() + self.hashes.capacity()) * size_of::<u64>();
        let encoders: usize = self.encoders.iter().map(Encoder::bytes).sum();
        mode + encoders + buffers + self.groups.bytes()
    }

    /// Strings held, of the key that has most: unlike groups they may be of rows filtered out.
    pub fn strings(&self) -> usize {
        self.encoders.iter().map(|e| e.strings.len()).max().unwrap_or(0)
    }

    /// See [`SealedGroups::unhashed`].
    pub fn unhashed(&self) -> Option<Vec<bool>> {
        match &self.mode {
            Mode::Compared(compared) => compared.unhashed().map(<[bool]>::to_vec),
            _ => None,
        }
    }

    /// The groups so far; it starts afresh, with or without looking rows up.
    pub fn seal(&mut self, append: bool) -> SealedGroups {
        let unhashed = self.unhashed();
        let order = match &mut self.mode {
            Mode::Ordered(ordered) => ordered.take_order(),
            _ => None,
        };
        let keys: Vec<Key> = self.encoders.iter().map(|e| e.key().clone()).collect();
        // What was too wide for a direct table, or has filled one, will do so again.
        self.mode = match std::mem::replace(&mut self.mode, Mode::Append) {
            _ if append => Mode::Append,
            Mode::Ordered(ordered) => Mode::Ordered(ordered),
            Mode::Direct(_) => Mode::Direct(Direct::new(&keys)),
            Mode::Hashed(table) => Mode::Hashed(table.cleared()),
            Mode::Compared(compared) => Mode::Compared(compared.cleared()),
            Mode::Append => Mode::Hashed(Table::default()),
        };
        let mut groups = GroupKeys::new(keys.len());
        groups.rows.reserve(with_headroom(self.groups.rows.len()));
        std::mem::swap(&mut groups, &mut self.groups);
        let strings = self.encoders.iter_mut().map(Encoder::take_strings).collect();
        SealedGroups { keys: groups, strings, unhashed, order }
    }

    pub fn is_ordered(&self) -> bool {
        matches!(self.mode, Mode::Ordered(_))
    }

    /// Appends the group ids of a batch, if rows are in order so far.
    pub fn group_in_order(
        &mut self,
        keys: &[ArrayRef],
        rows: usize,
        ids: &mut Vec<u32>,
    ) -> Result<Outcome> {
        match &mut self.mode {
            Mode::Ordered(ordered) => {
                ordered.group(&mut self.encoders, &mut self.groups, keys, rows, ids)
            }
            _ => Ok(Outcome::Disorder),
        }
    }

    /// Looks rows up from here on; `false`: the groups so far must be sealed first, as their strings
    /// were not looked up.
    pub fn leave_order(&mut self) -> bool {
        if self.is_ordered() {
            let keys: Vec<Key> = self.encoders.iter().map(|e| e.key().clone()).collect();
            if self.groups() > 0 && keys.iter().any(|key| key.class == Class::Bytes) {
                return false;
            }
            self.mode = Mode::Direct(Direct::new(&keys));
        }
        true
    }

    /// Appends the group ids of a batch.
    pub fn group(&mut self, keys: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) -> Result<()> {
        if let Mode::Compared(compared) = &mut self.mode {
            return compared.group(&mut self.encoders, &mut self.groups, keys, rows, ids);
        }
        let append = matches!(self.mode, Mode::Append);
        let encoded = self.encoders.iter_mut().map(|e| e.encode(keys, rows, append));
        let encoded = encoded.collect::<Result<Vec<_>>>()?;
        if encoded.iter().any(Encoded::has_flags) {
            self.groups.flag();
        }
        if let Mode::Direct(direct) = &mut self.mode {
            let strings = |k: usize| self.encoders[k].strings.len();
            if direct.group(&encoded, strings, &mut self.groups, ids) {
                return Ok(());
            }
            self.mode = Mode::Hashed(self.table());
        }
        let (groups, packed) = (&mut self.groups, &mut self.packed);
        let Mode::Hashed(table) = &mut self.mode else {
            pack(&encoded, 0..rows, groups.flagged, &mut groups.rows);
            ids.extend(groups.groups as u32..(groups.groups + rows) as u32);
            groups.groups += rows;
            return Ok(());
        };
        for start in (0..rows).step_by(BLOCK) {
            packed.clear();
            pack(&encoded, start..(start + BLOCK).min(rows), groups.flagged, packed);
            hash_packed(packed, groups.keys, groups.flagged, &mut self.hashes);
            find(table, groups, packed, &self.hashes, ids);
        }
        if groups.groups >= self.compare_at {
            self.compare_at = usize::MAX;
            if let Some(compared) = Compared::new(&mut self.encoders, groups, keys) {
                self.mode = Mode::Compared(compared);
            }
        }
        Ok(())
    }

    /// A table of the groups that a direct one found.
    fn table(&mut self) -> Table {
        let GroupKeys { rows, keys, flagged, .. } = &self.groups;
        hash_packed(rows, *keys, *flagged, &mut self.hashes);
        Table::of(&self.hashes)
    }
}
