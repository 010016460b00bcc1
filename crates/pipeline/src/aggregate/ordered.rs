//! Groups whose rows come one after the other.
//!
//! Tables are often in the order of what they are grouped by: the lines of orders in that of the
//! orders, events in that of their times. While one key, the *leading* one, never descends, and no
//! other changes without it, a row is of the group of the row before or of a new one: nothing is
//! hashed and nothing is looked up.
//!
//! Each worker has such rows from other stretches of a table, and remembers of every batch which
//! [`Span`]s of leading keys it had. If no two spans overlap when all rows are in, a group is in two
//! chunks only if it ends one span and begins another. [`join`] puts these together, and nothing else
//! is left to merge.
//!
//! ```text
//!   worker 1:  1 1 2 3 3 │           │ 7 8 8 9
//!   worker 2:            │ 3 4 5 6 6 │            group 3 is joined
//! ```
//!
//! A table that several workers have loaded is several such sequences, each with gaps that others
//! fill. So a worker's rows may begin anew, in another chunk, where it had none. In the middle of a
//! batch there may be gaps, or the end of a sequence.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array, make_comparator};
use arrow::compute::{SortOptions, take};
use arrow::datatypes::DataType;
use thalweg_base::Result;

use super::compared::{Source, Texts};
use super::grouper::GroupKeys;
use super::hash::BLOCK;
use super::keys::{Class, Encoded, Encoder, Key, Values};
use super::partial::Chunk;
use super::states::Merge;
use crate::encoding::{codes, internal};

/// Groups for each that is joined, at least: between two of these, groups come as one batch.
const GROUPS_PER_JOINED: usize = 1 << 10;

/// A gap so many times as wide as those of a batch are on average may be another worker's.
const WIDE_GAP: u64 = 16;

/// Rows of a batch that are in order, at least, for the rest of it to be looked at by itself.
const SEQUENCE_ROWS: usize = 64;

/// Leading keys of some rows in order, and the groups that these begin and end with.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: i64,
    last: i64,
    first_group: u32,
    last_group: u32,
}

/// How the groups of a chunk are in order.
pub(super) struct Order {
    lead: usize,
    spans: Vec<Span>,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Grouped,
    /// Nothing: it would begin a sequence, once the groups so far are sealed.
    Begins,
    /// Nothing: so many rows are in order, and the next is not.
    Descends(usize),
    /// Nothing: it is not in order.
    Disorder,
}

impl Order {
    pub fn bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>()
    }
}

/// Makes groups of rows while they are in order.
pub(super) struct Ordered {
    /// The number of the leading key, once there were rows.
    lead: Option<usize>,
    /// Of the groups that there are.
    spans: Vec<Span>,
    /// The last of leading keys, and the first, of all spans so far, also of groups that were sealed.
    covered: BTreeMap<i64, i64>,
    /// The last row of every key that is text.
    last_texts: Vec<Option<ArrayRef>>,
    /// Of every key.
    sources: Vec<Source>,
    firsts: Vec<u32>,
}

impl Ordered {
    /// If one of the keys may lead.
    pub fn new(keys: &[Key]) -> Option<Self> {
        let possible = keys.iter().all(|key| key.class != Class::Rows);
        (possible && keys.iter().any(may_lead)).then(|| Ordered {
            lead: None,
            spans: vec![],
            covered: BTreeMap::new(),
            last_texts: vec![None; keys.len()],
            sources: keys.iter().map(|_| Source::default()).collect(),
            firsts: vec![],
        })
    }

    pub fn bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>()
            + self.covered.len() * 2 * size_of::<(i64, i64)>()
            + self.firsts.capacity() * size_of::<u32>()
            + self.sources.iter().map(Source::bytes).sum::<usize>()
    }

    /// The order of the groups so far, which are sealed: the next row begins a group.
    pub fn take_order(&mut self) -> Option<Order> {
        Some(Order { lead: self.lead?, spans: std::mem::take(&mut self.spans) })
    }

    /// Appends the group ids of a batch.
    pub fn group(
        &mut self,
        encoders: &mut [Encoder],
        groups: &mut GroupKeys,
        keys: &[ArrayRef],
        rows: usize,
        ids: &mut Vec<u32>,
    ) -> Result<Outcome> {
        if rows == 0 {
            return Ok(Outcome::Grouped);
        }
        let mut words = Vec::with_capacity(keys.len());
        for (encoder, array) in encoders.iter_mut().zip(keys) {
            if array.null_count() > 0 {
                return Ok(Outcome::Disorder);
            }
            words.push(match encoder.key().class {
                Class::Bytes => None,
                _ => match encoder.encode(keys, rows, true)? {
                    Encoded { values: Values::Words(words), interned: None, .. } => Some(words),
                    _ => return Ok(Outcome::Disorder),
                },
            });
        }
        let words: Vec<Option<&[i64]>> = words.iter().map(Option::as_deref).collect();
        let start = ids.len();
        let leads = match self.lead {
            Some(lead) => lead..lead + 1,
            None => 0..keys.len(),
        };
        let mut outcome = Outcome::Disorder;
        for lead in leads.filter(|&k| may_lead(encoders[k].key())) {
            let Some(leading) = words[lead] else { continue };
            if !self.follow(leading, groups.groups, ids) {
                let descent = leading.windows(2).position(|pair| pair[0] > pair[1]);
                if let Some(last) = descent.filter(|last| *last >= SEQUENCE_ROWS) {
                    outcome = Outcome::Descends(last + 1);
                }
            } else if self.agree(lead, &words, keys, groups, &ids[start..])? {
                let spans = self.spans_of(leading, &ids[start..]);
                let last = self.spans.last().map_or(i64::MIN, |span| span.last);
                if spans.iter().any(|span| self.is_covered(span)) {
                    ids.truncate(start);
                    return Ok(Outcome::Disorder);
                }
                if leading[0] < last {
                    ids.truncate(start);
                    return Ok(Outcome::Begins);
                }
                self.append(&words, encoders, groups, keys)?;
                spans.into_iter().for_each(|span| self.cover(span));
                self.lead = Some(lead);
                for ((text, array), words) in self.last_texts.iter_mut().zip(keys).zip(&words) {
                    *text = words.is_none().then(|| array.slice(rows - 1, 1));
                }
                return Ok(Outcome::Grouped);
            }
            ids.truncate(start);
        }
        Ok(outcome)
    }

    /// Appends ids as leading keys have them, and finds the rows that begin a group; `false`: one
    /// descends.
    fn follow(&mut self, leading: &[i64], groups: usize, ids: &mut Vec<u32>) -> bool {
        let goes_on = self.spans.last().is_some_and(|span| span.last == leading[0]);
        let id = |firsts: usize| (groups as u32).wrapping_add(firsts as u32).wrapping_sub(1);
        let mut firsts = usize::from(!goes_on);
        let rows = &mut self.firsts;
        rows.clear();
        rows.resize(leading.len(), 0);
        let start = ids.len();
        ids.resize(start + leading.len(), id(firsts));
        let (mut before, mut row) = (leading[0], 1);
        for (words, ids) in leading[1..].chunks(BLOCK).zip(ids[start + 1..].chunks_mut(BLOCK)) {
            let mut ascends = true;
            for (&word, to) in words.iter().zip(ids) {
                rows[firsts] = row;
                firsts += usize::from(word != before);
                ascends &= word >= before;
                *to = id(firsts);
                (before, row) = (word, row + 1);
            }
            if !ascends {
                return false;
            }
        }
        rows.truncate(firsts);
        true
    }

    /// Whether the other keys change with the leading one only.
    fn agree(
        &self,
        lead: usize,
        words: &[Option<&[i64]>],
        keys: &[ArrayRef],
        groups: &GroupKeys,
        ids: &[u32],
    ) -> Result<bool> {
        let goes_on = self.firsts.first() != Some(&0);
        let last_group = || groups.words(groups.groups - 1);
        let same_group = || ids.windows(2).map(|ids| ids[0] == ids[1]);
        for k in (0..keys.len()).filter(|&k| k != lead) {
            let agree = match words[k] {
                Some(words) => {
                    let changes = words.windows(2).map(|words| words[0] != words[1]);
                    let wrong = changes.zip(same_group()).fold(false, |any, (c, s)| any | (c & s));
                    !(wrong || goes_on && last_group()[k] != words[0].cast_unsigned())
                }
                None => {
                    let mut rows = (1..).zip(same_group()).filter(|(_, same)| *same);
                    let same = same_texts(&keys[k], &keys[k])?;
                    rows.all(|(row, _)| same(row - 1, row))
                        && (!goes_on
                            || match &self.last_texts[k] {
                                Some(last) if last.data_type() == keys[k].data_type() => {
                                    same_texts(last, &keys[k])?(0, 0)
                                }
                                _ => false,
                            })
                }
            };
            if !agree {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The groups that begin in a batch.
    fn append(
        &mut self,
        words: &[Option<&[i64]>],
        encoders: &mut [Encoder],
        groups: &mut GroupKeys,
        keys: &[ArrayRef],
    ) -> Result<()> {
        let firsts = &self.firsts[..];
        let (start, stride) = (groups.rows.len(), groups.stride());
        groups.groups += firsts.len();
        if let [Some(words)] = words {
            groups.rows.extend(firsts.iter().map(|&row| words[row as usize].cast_unsigned()));
            return Ok(());
        }
        groups.rows.resize(start + firsts.len() * stride, 0);
        for (k, (encoder, words)) in encoders.iter_mut().zip(words).enumerate() {
            let places = groups.rows[start..].iter_mut().skip(k).step_by(stride);
            match words {
                Some(words) => places
                    .zip(firsts)
                    .for_each(|(place, &row)| *place = words[row as usize].cast_unsigned()),
                None if views(&keys[k]).is_some() => {
                    let (mut texts, strings) = (Texts::new(k, &keys[k])?, &mut encoder.strings);
                    texts.shared = self.sources[k].is_shared(&texts.buffers, strings);
                    for (place, &row) in places.zip(firsts) {
                        let row = row as usize;
                        let bytes = || texts.long(row);
                        let code = strings.append_view(texts.views[row], texts.shared, bytes, None);
                        *place = code.into();
                    }
                }
                None => {
                    // Among the columns of all keys, as encoders want them.
                    let rows = UInt32Array::from(firsts.to_vec());
                    let mut columns = keys.to_vec();
                    columns[k] = take(&keys[k], &rows, None).map_err(internal)?;
                    let encoded = encoder.encode(&columns, firsts.len(), true)?;
                    if let Values::Codes(codes) = encoded.values {
                        places.zip(codes).for_each(|(place, code)| *place = code.into());
                    }
                }
            }
        }
        Ok(())
    }

    /// The spans of a batch: it is cut at the widest gap, and at all [wide](WIDE_GAP) ones.
    fn spans_of(&self, leading: &[i64], ids: &[u32]) -> Vec<Span> {
        let span = |rows: std::ops::Range<usize>| Span {
            first: leading[rows.start],
            last: leading[rows.end - 1],
            first_group: ids[rows.start],
            last_group: ids[rows.end - 1],
        };
        let width =
            |from: usize, to: usize| leading[to].wrapping_sub(leading[from]).cast_unsigned();
        let rows = leading.len();
        let mean = width(0, rows - 1) / self.firsts.len().max(1) as u64;
        let wide = mean.max(1).saturating_mul(WIDE_GAP);
        let (mut widest, mut after, mut cuts) = (0, 0, vec![]);
        for &row in self.firsts.iter().skip_while(|row| **row == 0) {
            let gap = width(row as usize - 1, row as usize);
            if gap > widest {
                (widest, after) = (gap, row as usize);
            }
            if gap >= wide {
                cuts.push(row as usize);
            }
        }
        if widest < wide && after > 0 {
            cuts.push(after);
        }
        let ends = cuts.iter().copied().chain([rows]);
        [0].iter().chain(&cuts).zip(ends).map(|(&start, end)| span(start..end)).collect()
    }

    /// Whether there were rows within a span.
    fn is_covered(&self, span: &Span) -> bool {
        let mut next = self.covered.range(span.first..).filter(|(last, _)| **last > span.first);
        next.next().is_some_and(|(_, &first)| first < span.last)
    }

    fn cover(&mut self, span: Span) {
        match self.spans.last_mut() {
            Some(before) if before.last_group == span.first_group => {
                (before.last, before.last_group) = (span.last, span.last_group);
            }
            _ => self.spans.push(span),
        }
        let first = self.covered.entry(span.last).or_insert(span.first);
        *first = span.first.min(*first);
    }
}

/// Keys whose words are in an order that rows may be in.
fn may_lead(key: &Key) -> bool {
    matches!(key.class, Class::Word | Class::Decimal)
}

fn views(array: &ArrayRef) -> Option<&[u128]> {
    match array.data_type() {
        DataType::Utf8View => Some(array.as_string_view().views()),
        DataType::BinaryView => Some(array.as_binary_view().views()),
        _ => None,
    }
}

/// Whether a text of some is that of others, none of which is NULL.
fn same_texts<'a>(
    some: &'a ArrayRef,
    others: &'a ArrayRef,
) -> Result<impl Fn(usize, usize) -> bool + 'a> {
    let order = make_comparator(some, others, SortOptions::default()).map_err(internal)?;
    // Of one array: rows that a join makes of one have the same view.
    let is_one = std::ptr::eq(some, others);
    let views = views(some).filter(|_| is_one);
    let codes = codes(some.as_ref()).filter(|_| is_one);
    Ok(move |a: usize, b: usize| {
        views.is_some_and(|views| views[a] == views[b])
            || codes.as_ref().is_some_and(|codes| codes[a] == codes[b])
            || order(a, b).is_eq()
    })
}

/// A group of a chunk.
type At = (usize, u32);

/// Puts together the groups that end a span and begin another, so that no group is in two chunks any
/// more. `false`: spans overlap, or it is not worth it, and nothing was done.
pub(super) fn join(keys: &[Key], chunks: &mut [Chunk]) -> bool {
    let groups: usize = chunks.iter().map(|chunk| chunk.groups).sum();
    let Some(joined) = to_join(keys, chunks) else { return false };
    if joined.len() * GROUPS_PER_JOINED > groups {
        return false;
    }
    for ((to, kept), (from, other)) in joined {
        let Ok([to, from]) = chunks.get_disjoint_mut([to, from]) else {
            unreachable!("of one chunk no group is joined to another")
        };
        let total = to.groups;
        to.states
            .merge(&from.states, &Merge { groups: &[other], ids: &[kept], before: total, total });
        from.joined.push(other);
    }
    chunks.iter_mut().for_each(|chunk| chunk.joined.sort_unstable());
    true
}

/// Pairs of a group and another that is the same.
fn to_join(keys: &[Key], chunks: &[Chunk]) -> Option<Vec<(At, At)>> {
    let lead = chunks.first()?.order.as_ref()?.lead;
    let mut spans: Vec<(Span, usize)> = vec![];
    for (n, chunk) in chunks.iter().enumerate() {
        let order = chunk.order.as_ref().filter(|order| order.lead == lead)?;
        spans.extend(order.spans.iter().map(|span| (*span, n)));
    }
    spans.sort_unstable_by_key(|(span, _)| (span.first, span.last));
    let mut joined = vec![];
    let mut before: Option<(i64, At)> = None;
    for (span, chunk) in spans {
        if let Some((last, kept)) = before {
            if span.first < last {
                return None;
            }
            if span.first == last {
                let other = (chunk, span.first_group);
                if kept.0 == chunk || !is_same(keys, chunks, kept, other) {
                    return None;
                }
                joined.push((kept, other));
                if span.last == last {
                    continue;
                }
            }
        }
        before = Some((span.last, (chunk, span.last_group)));
    }
    Some(joined)
}

fn is_same(keys: &[Key], chunks: &[Chunk], (a, of_a): At, (b, of_b): At) -> bool {
    let (a, b) = (&chunks[a], &chunks[b]);
    let (of_a, of_b) = (a.keys.words(of_a as usize), b.keys.words(of_b as usize));
    keys.iter().enumerate().all(|(k, key)| match key.is_coded() {
        true => a.strings[k].with(of_a[k], |x| b.strings[k].with(of_b[k], |y| x == y)),
        false => of_a[k] == of_b[k],
    })
}
