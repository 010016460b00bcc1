//! What keys are compared by: their bytes, eight at a time as one number.
//!
//! Many bytes are the same in all keys: the upper ones of numbers that are small, the marks of values
//! that are not NULL, the beginning of all texts. They decide nothing and are left out. Keys of one
//! or two numbers so come to a single word mostly, and what is compared lies side by side.

use std::ops::Range;

use arrow::row::Rows;

/// Bytes that are looked at for whether they differ; those behind them count as if they did.
const LOOKED_AT: usize = 64;

const WORD: usize = size_of::<u64>();

/// Keys that are fewer are compared as they are.
const FEW_KEYS: usize = 16;

/// In which of their first bytes some keys differ.
#[derive(Clone, Debug, Default)]
pub struct Varying {
    /// Of the first key that was seen, as many as all keys have.
    first: Vec<u8>,
    /// For each of them the bits that are another in some key.
    bits: Vec<u8>,
    /// The length of all keys; `None`: they are not of the same, or there is none.
    length: Option<usize>,
}

impl Varying {
    pub fn see(&mut self, keys: &Rows) {
        if keys.num_rows() == 0 {
            return;
        }
        if self.first.is_empty() && self.length.is_none() {
            let key = keys.row(0).data();
            self.first = key[..key.len().min(LOOKED_AT)].to_vec();
            self.bits = vec![0; self.first.len()];
            self.length = Some(key.len());
        }
        for key in keys {
            let key = key.data();
            self.shorten(key.len(), Some(key.len()));
            let bytes = self.bits.iter_mut().zip(self.first.iter().zip(key));
            bytes.for_each(|(bits, (first, byte))| *bits |= first ^ byte);
        }
    }

    /// Sees all keys that another has seen.
    pub fn join(&mut self, other: &Varying) {
        if other.first.is_empty() {
            return;
        }
        if self.first.is_empty() {
            *self = other.clone();
            return;
        }
        self.shorten(other.first.len(), other.length);
        let others = other.first.iter().zip(&other.bits);
        for ((bits, first), (byte, more)) in self.bits.iter_mut().zip(&self.first).zip(others) {
            *bits |= (first ^ byte) | more;
        }
    }

    fn shorten(&mut self, bytes: usize, length: Option<usize>) {
        self.first.truncate(bytes);
        self.bits.truncate(bytes);
        if self.length != length {
            self.length = None;
        }
    }
}

/// How words are made of keys.
#[derive(Debug)]
pub struct Words {
    /// The places of bytes that vary.
    places: Vec<usize>,
    /// From where on all bytes may vary; `None`: none does.
    from: Option<usize>,
}

/// The bytes of a word, by their places: eight that follow each other, or others. Where a key has none
/// it counts as zero.
enum Bytes {
    Together(usize),
    At([usize; WORD]),
}

impl Default for Words {
    /// Of keys of which nothing is known.
    fn default() -> Self {
        Words { places: vec![], from: Some(0) }
    }
}

impl Words {
    pub fn new(varying: &Varying) -> Self {
        let places = varying.bits.iter().enumerate().filter(|(_, bits)| **bits != 0);
        let looked_at = varying.bits.len();
        Words {
            places: places.map(|(place, _)| place).collect(),
            from: (varying.length != Some(looked_at)).then_some(looked_at),
        }
    }

    /// Of a key's `n`th word; `None`: keys have no more than those before.
    fn bytes(&self, n: usize) -> Option<Bytes> {
        let place = |i: usize| match self.places.get(i) {
            Some(&place) => Some(place),
            None => self.from.map(|from| from + i - self.places.len()),
        };
        let first = place(n * WORD)?;
        let at: [usize; WORD] = std::array::from_fn(|i| place(n * WORD + i).unwrap_or(usize::MAX));
        match at[WORD - 1] == first + WORD - 1 {
            true => Some(Bytes::Together(first)),
            false => Some(Bytes::At(at)),
        }
    }

    /// The first word of a key, or of the beginning of one.
    pub fn first(&self, key: &[u8]) -> u64 {
        self.bytes(0).map_or(0, |bytes| bytes.of(key))
    }
}

impl Bytes {
    fn first(&self) -> usize {
        match self {
            Bytes::Together(first) | Bytes::At([first, ..]) => *first,
        }
    }

    fn of(&self, key: &[u8]) -> u64 {
        match self {
            Bytes::Together(from) => {
                let rest = key.get(*from..).unwrap_or(&[]);
                match rest.first_chunk() {
                    Some(word) => u64::from_be_bytes(*word),
                    None => {
                        let mut word = [0; WORD];
                        word[..rest.len()].copy_from_slice(rest);
                        u64::from_be_bytes(word)
                    }
                }
            }
            Bytes::At(places) => {
                let byte = |place: usize| u64::from(key.get(place).copied().unwrap_or(0));
                places.iter().fold(0, |word, &place| word << 8 | byte(place))
            }
        }
    }
}

/// A row by its key's first word and by where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub word: u64,
    pub part: u32,
    pub row: u32,
}

/// The entries of all rows of a part, whose keys these are.
pub fn entries<'a>(
    words: &'a Words,
    part: usize,
    keys: &'a Rows,
) -> impl Iterator<Item = Entry> + 'a {
    let bytes = words.bytes(0);
    keys.iter().enumerate().map(move |(row, key)| Entry {
        word: bytes.as_ref().map_or(0, |bytes| bytes.of(key.data())),
        part: part as u32,
        row: row as u32,
    })
}

/// Puts entries in the order of their keys, none of which is the beginning of another.
///
/// They are sorted by their first word, those with the same word by their next, and so on: a beginning
/// that many have in common, such as the partition of a window, is looked at once.
pub fn sort<'a>(entries: &mut [Entry], words: &Words, key: impl Fn(&Entry) -> &'a [u8]) {
    entries.sort_unstable_by_key(|entry| entry.word);
    // Places of entries whose words before this one are the same.
    let mut tied = vec![];
    tie(entries, |entry| entry.word, 0, 1, &mut tied);
    let mut again: Vec<(u64, Entry)> = vec![];
    while let Some((places, n)) = tied.pop() {
        let Some(bytes) = words.bytes(n) else { continue };
        let entries = &mut entries[places.clone()];
        if entries.len() < FEW_KEYS {
            entries.sort_unstable_by(|a, b| key(a).cmp(key(b)));
            continue;
        }
        if !entries.iter().any(|entry| key(entry).len() > bytes.first()) {
            continue;
        }
        again.clear();
        again.extend(entries.iter().map(|entry| (bytes.of(key(entry)), *entry)));
        again.sort_unstable_by_key(|(word, _)| *word);
        entries.iter_mut().zip(&again).for_each(|(entry, (_, sorted))| *entry = *sorted);
        tie(&again, |(word, _)| *word, places.start, n + 1, &mut tied);
    }
}

/// Notes which of the sorted entries, the first of which is at `start`, are to be sorted by word `n`.
fn tie<T>(
    sorted: &[T],
    word: impl Fn(&T) -> u64,
    mut start: usize,
    n: usize,
    tied: &mut Vec<(Range<usize>, usize)>,
) {
    for same in sorted.chunk_by(|a, b| word(a) == word(b)) {
        let end = start + same.len();
        if same.len() > 1 {
            tied.push((start..end, n));
        }
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray};
    use arrow::row::{RowConverter, SortField};
    use proptest::prelude::*;

    use super::*;

    fn converted(columns: &[ArrayRef]) -> Rows {
        let fields = columns.iter().map(|c| SortField::new(c.data_type().clone())).collect();
        RowConverter::new(fields).unwrap().convert_columns(columns).unwrap()
    }

    #[test]
    fn small_numbers_are_one_word() {
        let numbers = |least: i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values((0..1000).map(|n| least + n)))
        };
        let keys = converted(&[numbers(0), numbers(1 << 20)]);
        let mut varying = Varying::default();
        varying.see(&keys);
        let words = Words::new(&varying);
        assert_eq!(words.places, [7, 8, 16, 17], "the two lowest bytes of each");
        assert!(words.from.is_none() && words.bytes(1).is_none());
    }

    proptest! {
        #[test]
        fn entries_are_in_the_order_of_their_keys(
            texts in prop::collection::vec("[ab]{0,3}[c]{0,30}", 1..300),
            numbers in prop::collection::vec(-300i64..300, 300),
            cut in 0usize..300,
        ) {
            let cut = cut.min(texts.len());
            let columns = |rows: Range<usize>| -> Vec<ArrayRef> {
                let numbers = Int64Array::from(numbers[rows.clone()].to_vec());
                vec![Arc::new(StringArray::from(texts[rows].to_vec())), Arc::new(numbers)]
            };
            let parts = [converted(&columns(0..cut)), converted(&columns(cut..texts.len()))];
            let mut varying = Varying::default();
            for part in &parts {
                let mut own = Varying::default();
                own.see(part);
                varying.join(&own);
            }
            let words = Words::new(&varying);
            let mut sorted: Vec<Entry> =
                parts.iter().enumerate().flat_map(|(n, keys)| entries(&words, n, keys)).collect();
            let key = |e: &Entry| parts[e.part as usize].row(e.row as usize).data();
            sort(&mut sorted, &words, key);
            let found: Vec<&[u8]> = sorted.iter().map(key).collect();
            let mut expected: Vec<&[u8]> = parts.iter().flatten().map(|row| row.data()).collect();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }
}
