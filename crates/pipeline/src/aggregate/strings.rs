//! Byte strings numbered in order of appearance: the dictionary that a worker makes as it goes.

use arrow::array::{ArrayAccessor, GenericByteViewArray};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::ByteViewType;

use super::hash::{BLOCK, Table, hash_bytes};
use crate::prefetch::prefetch;
use crate::short;

/// Bytes of the first block; each further one is twice as large, up to the last of these.
const BLOCK_BYTES: (usize, usize) = (4 << 10, 1 << 20);

/// Buffers that strings have in common with others, at most: arrays have them all.
const ADOPTED_MAX: usize = 256;

/// The longest string that stands in its view.
const INLINE_MAX: usize = 12;

/// How many strings ahead of their use their bytes are asked for.
pub(super) const AHEAD: usize = 8;

/// The same where nothing but a copy is made of them.
const COPIED_AHEAD: usize = 32;

/// Strings that are copied in a step of that.
const STEP_STRINGS: usize = 32 << 10;

/// Bytes of a long string, on average, up to which [`Strings::in_order`] copies them: more have lines of
/// memory to themselves wherever they are, and a task would copy them for too long.
const ORDERED_BYTES_MAX: usize = 64;

/// Bytes of a long string, on average, up to which strings [in order](Strings::in_order) are copied and
/// not [adopted](Strings::adopt): that is as quick, and what few groups are left of many rows does not
/// hold the memory of all.
const SHORT_BYTES_MAX: usize = 32;

/// Bytes that come in one go, and how often at most.
const LINE_BYTES: usize = 64;
const LINES_AHEAD: usize = 4;

/// Strings by code, as Arrow's views and what these point into.
#[derive(Default)]
pub(super) struct Strings {
    table: Table,
    /// Of the first so many: those that are only appended have none until somebody asks.
    hashes: Vec<u64>,
    views: Vec<u128>,
    heap: Heap,
    is_in_order: bool,
}

/// The bytes of long strings: in buffers that others have as well, and in blocks of our own, numbered
/// on from these.
#[derive(Default)]
struct Heap {
    shared: Vec<Buffer>,
    blocks: Vec<Vec<u8>>,
    bytes: usize,
}

impl Heap {
    #[inline]
    fn buffer(&self, number: usize) -> &[u8] {
        match number.checked_sub(self.shared.len()) {
            None => &self.shared[number],
            Some(own) => &self.blocks[own],
        }
    }

    /// The bytes of a view of a long string.
    #[inline]
    fn long(&self, view: u128) -> &[u8] {
        let (buffer, offset) = place(view);
        &self.buffer(buffer)[offset..offset + view as u32 as usize]
    }

    /// Puts a long string into a block; its view.
    fn store(&mut self, bytes: &[u8]) -> u128 {
        let room = bytes.len() + short::APPENDED_MORE;
        if self.blocks.last().is_none_or(|b| b.capacity() - b.len() < room) {
            let size = (BLOCK_BYTES.0 << self.blocks.len().min(8)).min(BLOCK_BYTES.1);
            let block = Vec::with_capacity(size.max(room));
            self.bytes += block.capacity();
            self.blocks.push(block);
        }
        let number = (self.shared.len() + self.blocks.len() - 1) as u32;
        let block = self.blocks.last_mut().expect("pushed if there was none");
        let offset = block.len() as u32;
        short::append(bytes, block);
        view(bytes, number, offset)
    }

    /// Whether the string of a view of ours is that of another one, with these bytes if it does not
    /// stand in its view.
    #[inline]
    fn same<'a>(&self, found: u128, view: u128, bytes: impl FnOnce() -> &'a [u8]) -> bool {
        if view as u32 as usize <= INLINE_MAX {
            found == view
        } else {
            // The length and the first bytes, then all.
            found as u64 == view as u64 && short::same(self.long(found), bytes())
        }
    }

    /// Asks for the first bytes of a view if they do not stand in it.
    #[inline]
    fn prefetch(&self, view: u128) {
        let (number, _) = place(view);
        if view as u32 as usize > INLINE_MAX {
            prefetch_in(self.buffer(number), view);
        }
    }
}

/// Other strings whose buffers are among ours.
pub(super) struct Adopted {
    /// Of theirs, ours.
    numbers: Vec<u32>,
    /// Some were before.
    known: bool,
}

impl Adopted {
    /// Of one of theirs, ours.
    #[inline]
    fn view(&self, view: u128) -> u128 {
        if view as u32 as usize <= INLINE_MAX {
            return view;
        }
        let number = self.numbers[place(view).0];
        view & !(u128::from(u32::MAX) << 64) | u128::from(number) << 64
    }

    /// Whether strings that are the same often stand at the same place.
    pub fn has_known(&self) -> bool {
        self.known
    }
}

impl Strings {
    pub fn len(&self) -> usize {
        self.views.len()
    }

    /// For so many more that are appended.
    pub fn reserve(&mut self, more: usize) {
        self.views.reserve(more);
    }

    /// Bytes of long strings that were copied.
    pub fn copied_bytes(&self) -> usize {
        self.heap.bytes
    }

    pub fn bytes(&self) -> usize {
        self.table.bytes()
            + self.hashes.capacity() * size_of::<u64>()
            + self.views.capacity() * size_of::<u128>()
            + self.heap.bytes
    }

    /// It is there: see [`Self::hash_all`].
    pub fn hash(&self, code: u64) -> u64 {
        self.hashes[code as usize]
    }

    pub fn are_hashed(&self) -> bool {
        self.hashes.len() == self.views.len()
    }

    pub fn hash_all(&mut self) {
        self.hashes.reserve(self.views.len() - self.hashes.len());
        for code in self.hashes.len()..self.views.len() {
            self.hashes.push(self.with(code as u64, hash_bytes));
        }
    }

    /// They are no longer looked up, and the next ones come with hashes or without.
    pub fn only_append(&mut self, hashed: bool) {
        self.table = Table::default();
        match hashed {
            true => self.hash_all(),
            false => self.hashes = vec![],
        }
    }

    /// Of an Arrow view, and its bytes if they do not stand in it.
    pub fn hash_of_view<'a>(view: u128, bytes: impl FnOnce() -> &'a [u8]) -> u64 {
        let len = view as u32 as usize;
        match len <= INLINE_MAX {
            true => hash_bytes(&view.to_le_bytes()[4..4 + len]),
            false => hash_bytes(bytes()),
        }
    }

    /// The buffers themselves, when these strings are done with.
    pub fn into_parts(self) -> (Vec<u128>, Vec<Buffer>) {
        let mut buffers = self.heap.shared;
        buffers.extend(self.heap.blocks.into_iter().map(Buffer::from_vec));
        (self.views, buffers)
    }

    /// Strings of views into these buffers need not be copied from here on, if there are none yet for
    /// which that holds: the buffers are held instead. They are not counted.
    pub fn share(&mut self, buffers: &[Buffer]) {
        if !self.heap.shared.is_empty() || buffers.is_empty() {
            return;
        }
        let numbers = (buffers.len() as u128) << 64;
        let long = |view: &&mut u128| **view as u32 as usize > INLINE_MAX;
        self.views.iter_mut().filter(long).for_each(|view| *view += numbers);
        self.heap.shared = buffers.to_vec();
    }

    /// Whether it holds these very buffers.
    pub fn shares(&self, buffers: &[Buffer]) -> bool {
        are_same(&self.heap.shared, buffers)
    }

    /// No more strings come: others may [adopt](Self::adopt) what there is.
    pub fn seal(&mut self) {
        self.heap.shared.extend(self.heap.blocks.drain(..).map(Buffer::from_vec));
    }

    /// Strings of others, which are sealed, need not be copied from here on: their buffers are held
    /// instead. `None`: they are too many, or short and quickly copied, or some were copied already.
    pub fn adopt(&mut self, other: &Strings) -> Option<Adopted> {
        let (ours, theirs) = (&mut self.heap, &other.heap);
        let are_short = other.is_in_order && theirs.bytes <= other.len() * SHORT_BYTES_MAX;
        if are_short
            || !ours.blocks.is_empty()
            || !theirs.blocks.is_empty()
            || ours.shared.len() + theirs.shared.len() > ADOPTED_MAX
        {
            return None;
        }
        let before = ours.shared.len();
        let number = |buffer: &Buffer| {
            let known = ours.shared.iter().position(|b| b.ptr_eq(buffer));
            known.unwrap_or_else(|| {
                ours.shared.push(buffer.clone());
                ours.shared.len() - 1
            }) as u32
        };
        let numbers: Vec<u32> = theirs.shared.iter().map(number).collect();
        let known = numbers.iter().any(|&number| (number as usize) < before);
        Some(Adopted { numbers, known })
    }

    /// Begins to put the strings of these codes, and an empty one for a code that is not there, in that
    /// order in memory; their codes will count from 0. Until they are back there are none. `None`: they
    /// are too long, or would take more memory than they do, as many are the same or were never copied.
    pub fn in_order(&mut self, codes: &[u64]) -> Option<Reordered> {
        let view = |&code: &u64| self.views.get(code as usize).copied().unwrap_or(0);
        let views: Vec<u128> = codes.iter().map(view).collect();
        let lengths = views.iter().map(|&view| view as u32 as usize);
        let bytes: usize = lengths.filter(|length| *length > INLINE_MAX).sum();
        let all_bytes = bytes + size_of_val(&views[..]);
        if bytes > views.len() * ORDERED_BYTES_MAX
            || all_bytes > self.bytes()
            || u32::try_from(bytes).is_err()
        {
            return None;
        }
        let block = Vec::with_capacity(bytes + short::APPENDED_MORE);
        Some(Reordered { heap: std::mem::take(self).heap, views, block, done: 0 })
    }

    pub fn with<R>(&self, code: u64, f: impl FnOnce(&[u8]) -> R) -> R {
        let view = self.views[code as usize];
        let len = view as u32 as usize;
        if len <= INLINE_MAX { f(&view.to_le_bytes()[4..4 + len]) } else { f(self.heap.long(view)) }
    }

    /// The code of a string, a new one if it is new.
    pub fn code(&mut self, bytes: &[u8]) -> u32 {
        self.code_of_hash(hash_bytes(bytes), bytes)
    }

    #[inline]
    pub fn code_of_hash(&mut self, hash: u64, bytes: &[u8]) -> u32 {
        self.table.reserve(self.views.len() + 1);
        let (views, heap) = (&self.views, &self.heap);
        let next = views.len() as u32;
        let view = view(bytes, 0, 0);
        let code = self.table.find_or_insert(
            hash,
            |code| heap.same(views[code as usize], view, || bytes),
            || next,
        );
        if code == next {
            self.append_hashed(hash, bytes);
        }
        code
    }

    /// A code of its own, whether the string is new or not. It will not be found again.
    pub fn append(&mut self, bytes: &[u8]) -> u32 {
        let code = self.views.len() as u32;
        let is_inline = bytes.len() <= INLINE_MAX;
        let view = if is_inline { view(bytes, 0, 0) } else { self.heap.store(bytes) };
        self.views.push(view);
        code
    }

    fn append_hashed(&mut self, hash: u64, bytes: &[u8]) -> u32 {
        self.hash_all();
        self.hashes.push(hash);
        self.append(bytes)
    }

    /// The same for one of other strings, that are [adopted](Self::adopt) or not.
    pub fn append_of(&mut self, other: &Strings, code: u64, adopted: Option<&Adopted>) -> u32 {
        let view = other.views[code as usize];
        let ours = adopted.map_or(view, |adopted| adopted.view(view));
        self.append_view(ours, adopted.is_some(), || other.heap.long(view), None)
    }

    /// The same for that of an Arrow view, and its bytes if they do not stand in it; `shared`: it is one
    /// into the [shared](Self::shares) buffers. All or none have hashes.
    pub fn append_view<'a>(
        &mut self,
        view: u128,
        shared: bool,
        bytes: impl FnOnce() -> &'a [u8],
        hash: Option<u64>,
    ) -> u32 {
        let code = self.views.len() as u32;
        let view = match view as u32 as usize <= INLINE_MAX {
            true => inline(view),
            false if shared => view,
            false => self.heap.store(bytes()),
        };
        self.views.push(view);
        self.hashes.extend(hash);
        code
    }

    /// Whether the string of a code is that of an Arrow view, with these bytes if it does not stand in
    /// its view; `shared` as above.
    #[inline]
    pub fn is_view<'a>(
        &self,
        code: u64,
        view: u128,
        shared: bool,
        bytes: impl FnOnce() -> &'a [u8],
    ) -> bool {
        let found = self.views[code as usize];
        let is_inline = view as u32 as usize <= INLINE_MAX;
        let view = if is_inline { inline(view) } else { view };
        (shared && found == view) || self.heap.same(found, view, bytes)
    }

    /// Whether the string of a code is that of a code of other strings, [adopted](Self::adopt) or not.
    #[inline]
    pub fn has(
        &self,
        code: u64,
        other: &Strings,
        other_code: u64,
        adopted: Option<&Adopted>,
    ) -> bool {
        let view = other.views[other_code as usize];
        let ours = adopted.map_or(view, |adopted| adopted.view(view));
        self.is_view(code, ours, adopted.is_some(), || other.heap.long(view))
    }

    /// Whether the string of a code is at the place of a view; `shared` as above.
    pub fn is_at(&self, code: u64, view: u128, shared: bool) -> bool {
        shared && self.views.get(code as usize) == Some(&view)
    }

    /// The string of a code is from now on that at the place of an equal view into the shared buffers.
    pub fn place_at(&mut self, code: u64, view: u128) {
        if view as u32 as usize > INLINE_MAX {
            self.views[code as usize] = view;
        }
    }

    /// Asks for the view of a code.
    pub fn prefetch_view(&self, code: u64) {
        prefetch(&self.views, code as usize);
    }

    /// Asks for the first bytes of the string of a code, if there is one.
    pub fn prefetch(&self, code: u64) {
        if let Some(&view) = self.views.get(code as usize) {
            self.heap.prefetch(view);
        }
    }

    /// The codes of an array's strings; 0 in the place of a NULL. `repeats` may know of a row other
    /// than the first that it has the string, or the NULL, of the row before.
    pub fn codes<A: ArrayAccessor<Item: AsRef<[u8]>>>(
        &mut self,
        array: A,
        nulls: Option<&NullBuffer>,
        append: bool,
        repeats: impl Fn(usize) -> bool,
    ) -> Vec<u32> {
        let rows = array.len();
        let mut codes = Vec::with_capacity(rows);
        let (mut firsts, mut hashes) = (Vec::with_capacity(BLOCK), Vec::with_capacity(BLOCK));
        let mut code = 0;
        for start in (0..rows).step_by(BLOCK) {
            let block = start..(start + BLOCK).min(rows);
            firsts.clear();
            firsts.extend(block.clone().filter(|&i| i == 0 || !repeats(i)));
            hashes.clear();
            if !append {
                hashes.extend(firsts.iter().map(|&i| hash_bytes(array.value(i).as_ref())));
                self.table.reserve(self.views.len() + firsts.len());
                self.table.warm(&hashes);
            }
            for (n, &i) in firsts.iter().enumerate() {
                codes.resize(i, code);
                code = if nulls.is_some_and(|n| n.is_null(i)) {
                    0
                } else if append {
                    self.append(array.value(i).as_ref())
                } else {
                    self.code_of_hash(hashes[n], array.value(i).as_ref())
                };
                codes.push(code);
            }
            codes.resize(block.end, code);
        }
        codes
    }

    /// The same of views. Rows that a join gives several times in a row have one view.
    pub fn codes_of_views<T: ByteViewType<Native: AsRef<[u8]>>>(
        &mut self,
        array: &GenericByteViewArray<T>,
        nulls: Option<&NullBuffer>,
        append: bool,
    ) -> Vec<u32> {
        let views = array.views();
        // The view of a NULL says nothing.
        self.codes(array, nulls, append, |i| nulls.is_none() && views[i] == views[i - 1])
    }
}

/// Strings of which some stand in another order: see [`Strings::in_order`].
pub(super) struct Reordered {
    heap: Heap,
    /// The first so many are of the block, the others of the heap.
    views: Vec<u128>,
    done: usize,
    block: Vec<u8>,
}

impl Reordered {
    /// Copies some more; `false`: that is all.
    pub fn step(&mut self) -> bool {
        let end = self.views.len().min(self.done + STEP_STRINGS);
        for n in self.done..end {
            if let Some(&ahead) = self.views.get(n + COPIED_AHEAD) {
                self.heap.prefetch(ahead);
            }
            let view = self.views[n];
            if view as u32 as usize > INLINE_MAX {
                let offset = self.block.len() as u32;
                short::append(self.heap.long(view), &mut self.block);
                self.views[n] = u128::from(view as u64) | u128::from(offset) << 96;
            }
        }
        self.done = end;
        end < self.views.len()
    }

    /// All of them, sealed. They will not be found again.
    pub fn finish(mut self) -> Strings {
        while self.step() {}
        let bytes = self.block.len();
        let shared = if bytes == 0 { vec![] } else { vec![Buffer::from_vec(self.block)] };
        let heap = Heap { shared, blocks: vec![], bytes };
        Strings { views: self.views, heap, is_in_order: true, ..Strings::default() }
    }
}

/// An Arrow view of bytes that stand in that block from that offset, or in the view itself.
#[inline]
fn view(bytes: &[u8], block: u32, offset: u32) -> u128 {
    let len = bytes.len() as u128;
    if bytes.len() <= INLINE_MAX {
        let mut inline = [0; 16];
        inline[4..4 + bytes.len()].copy_from_slice(bytes);
        return len | u128::from_le_bytes(inline);
    }
    let prefix = bytes[..4].iter().rev().fold(0, |all, &b| all << 8 | u128::from(b));
    len | prefix << 32 | u128::from(block) << 64 | u128::from(offset) << 96
}

/// The buffer of a view of a long string, and where in it.
#[inline]
fn place(view: u128) -> (usize, usize) {
    ((view >> 64) as u32 as usize, (view >> 96) as u32 as usize)
}

/// Whether these are the same memory.
pub(super) fn are_same(some: &[Buffer], others: &[Buffer]) -> bool {
    some.len() == others.len() && some.iter().zip(others).all(|(a, b)| a.ptr_eq(b))
}

/// What an inline view says, with nothing behind the string.
#[inline]
fn inline(view: u128) -> u128 {
    let len = view as u32;
    view & (u128::MAX >> (8 * (INLINE_MAX as u32 - len)))
}

/// Asks for the first bytes of an Arrow view if they do not stand in it. That of a NULL may say anything.
#[inline]
pub(super) fn prefetch_long(buffers: &[Buffer], view: u128) {
    if view as u32 as usize > INLINE_MAX
        && let Some(buffer) = buffers.get(place(view).0)
    {
        prefetch_in(buffer, view);
    }
}

#[inline]
fn prefetch_in(buffer: &[u8], view: u128) {
    let (len, (_, offset)) = (view as u32 as usize, place(view));
    let read = len.min(LINES_AHEAD * LINE_BYTES);
    (0..read).step_by(LINE_BYTES).for_each(|line| prefetch(buffer, offset + line));
    // A short string may begin near the end of a line.
    prefetch(buffer, offset + read - 1);
}

/// The bytes of an Arrow view of a long string.
#[inline]
pub(super) fn long_of(buffers: &[Buffer], view: u128) -> &[u8] {
    let (buffer, offset) = place(view);
    &buffers[buffer].as_slice()[offset..offset + view as u32 as usize]
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray, StringViewArray, UInt32Array};
    use arrow::compute::take;

    use super::*;

    #[test]
    fn equal_strings_have_one_code() {
        let mut strings = Strings::default();
        let texts: Vec<String> =
            (0..5000).map(|i| "x".repeat(i % 40) + &(i / 2).to_string()).collect();
        let mut seen = std::collections::HashMap::new();
        for text in &texts {
            let code = strings.code(text.as_bytes());
            assert_eq!(*seen.entry(text.clone()).or_insert(code), code);
            strings.with(u64::from(code), |b| assert_eq!(b, text.as_bytes()));
        }
        assert_eq!(strings.len(), seen.len());
    }

    #[test]
    fn strings_are_copied_in_the_order_of_codes() {
        let mut strings = Strings::default();
        let texts: Vec<String> = (0..3000).map(|i| format!("{i}{}", "y".repeat(i % 40))).collect();
        for text in &texts {
            strings.append(text.as_bytes());
        }
        let codes: Vec<u64> = (0..3000).map(|n| n * 1009 % 3001).collect();
        // Many times what there is of them.
        assert!(strings.in_order(&[39; 20_000]).is_none());
        let ordered = strings.in_order(&codes).unwrap().finish();
        assert_eq!(strings.len(), 0);
        assert_eq!(ordered.len(), codes.len());
        for (n, &code) in codes.iter().enumerate() {
            let text = texts.get(code as usize).map_or("", String::as_str);
            ordered.with(n as u64, |bytes| assert_eq!(bytes, text.as_bytes()));
        }
        // Too long on average, or never copied.
        let mut long = Strings::default();
        (0..10).for_each(|_| assert!(long.append(&[b'z'; 70_000]) < 10));
        assert!(long.in_order(&(0..10).collect::<Vec<_>>()).is_none());
        let joined = StringViewArray::from_iter_values(&texts);
        let mut held = Strings::default();
        held.share(joined.data_buffers());
        for &view in joined.views().iter() {
            held.append_view(view, true, || unreachable!("they are shared"), None);
        }
        assert!(held.in_order(&codes).is_none());
        assert_eq!(Strings::default().in_order(&[]).unwrap().finish().len(), 0);
        // In several steps, of strings that mostly stand in their views.
        let mut many = Strings::default();
        let of =
            |n: u64| format!("{n}{}", if n.is_multiple_of(9) { "-and more of it" } else { "" });
        let numbers = 2 * STEP_STRINGS as u64 + 1;
        (0..numbers).for_each(|n| assert_eq!(u64::from(many.append(of(n).as_bytes())), n));
        let codes: Vec<u64> = (0..numbers).rev().collect();
        let mut ordered = many.in_order(&codes).unwrap();
        assert_eq!([ordered.step(), ordered.step(), ordered.step()], [true, true, false]);
        let ordered = ordered.finish();
        for (n, &code) in codes.iter().enumerate() {
            ordered.with(n as u64, |bytes| assert_eq!(bytes, of(code).as_bytes()));
        }
    }

    #[test]
    fn rows_that_repeat_have_the_code_of_those_before() {
        let texts = (0..4000).map(|i| "x".repeat(i / 100 % 20) + &(i / 7).to_string());
        let texts: Vec<String> = texts.collect();
        let own = StringViewArray::from_iter_values(&texts);
        // As a join gives them: by seven rows that have one view, also across blocks.
        let rows: UInt32Array = (0..4000).map(|i| i / 7 * 7 % 3500).collect();
        let joined = take(&own, &rows, None).unwrap();
        let joined = joined.as_string_view();
        for append in [false, true] {
            let mut strings = Strings::default();
            let codes = strings.codes_of_views(joined, None, append);
            assert_eq!(codes.len(), joined.len());
            for (i, &code) in codes.iter().enumerate() {
                strings.with(code.into(), |b| assert_eq!(b, joined.value(i).as_bytes()));
                assert_eq!(i > 0 && code == codes[i - 1], i % 7 > 0);
            }
            assert_eq!(strings.len(), if append { 572 } else { 500 });
        }
        // Whatever stands in the place of a NULL.
        let nulls = NullBuffer::from_iter((0..4000).map(|i| i % 3 > 0));
        let codes = Strings::default().codes_of_views(joined, Some(&nulls), false);
        let all = Strings::default().codes(joined, Some(&nulls), false, |_| false);
        assert_eq!(codes, all);
    }
}
