//! Memory that several tasks fill at once.
//!
//! None of it is set when it is allocated: that would be one long piece of work, as most memory was
//! used before. Each task sets its part.

use std::cell::UnsafeCell;
use std::mem::{MaybeUninit, align_of, size_of};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64};

use arrow::buffer::Buffer;

/// An array of which disjoint pieces are written from several threads.
pub struct Shared<T>(Box<[UnsafeCell<MaybeUninit<T>>]>);

// SAFETY: the only access through `&self` is by the unsafe methods, whose callers vouch for it.
unsafe impl<T: Send> Sync for Shared<T> {}

/// A type of which all zeros are a value.
///
/// # Safety
/// All zeros must be a valid value, and there is nothing to drop.
pub unsafe trait Zero: Copy {}
// SAFETY: integers.
unsafe impl Zero for u8 {}
// SAFETY: integers.
unsafe impl Zero for u32 {}
// SAFETY: integers.
unsafe impl Zero for u64 {}
// SAFETY: integers.
unsafe impl Zero for u128 {}

impl<T: Zero> Shared<T> {
    pub fn new(len: usize) -> Self {
        let cells = Box::<[UnsafeCell<MaybeUninit<T>>]>::new_uninit_slice(len);
        // SAFETY: MaybeUninit may be anything, and UnsafeCell has the layout of what is in it.
        Self(unsafe { cells.assume_init() })
    }

    /// A piece of it, zero at first.
    ///
    /// # Safety
    /// Until the slice is gone, nobody else may read or write any of the range.
    #[expect(clippy::mut_from_ref, reason = "that is the point, see Safety")]
    pub unsafe fn zeroed(&self, range: Range<usize>) -> &mut [T] {
        let cells = &self.0[range];
        let start = UnsafeCell::raw_get(cells.as_ptr()).cast::<T>();
        // SAFETY: UnsafeCell<MaybeUninit<T>> has the layout of T and permits writing; all zeros are
        // a value of T; the caller vouches for being alone.
        unsafe {
            start.write_bytes(0, cells.len());
            std::slice::from_raw_parts_mut(start, cells.len())
        }
    }

    /// # Safety
    /// Every piece must have been `zeroed`, and until the slice is gone, nobody may write.
    pub unsafe fn all(&self) -> &[T] {
        // SAFETY: the layout is that of T; the caller vouches for values and that nobody writes.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast::<T>(), self.0.len()) }
    }

    /// # Safety
    /// Every piece must have been `zeroed`.
    pub unsafe fn into_vec(self) -> Vec<T> {
        let cells = Box::into_raw(self.0);
        // SAFETY: the layout is that of T, we own the box, and the caller vouches for values.
        unsafe { Box::from_raw(cells as *mut [T]) }.into_vec()
    }
}

impl<T: Zero + arrow::datatypes::ArrowNativeType> Shared<T> {
    /// # Safety
    /// Every piece must have been `zeroed`.
    pub unsafe fn into_buffer(self) -> Buffer {
        // SAFETY: as the caller vouches.
        Buffer::from_vec(unsafe { self.into_vec() })
    }
}

/// A type of atomic numbers and nothing else.
///
/// # Safety
/// All of it must be atomic, and all zeros a valid value.
pub unsafe trait Atomic {}
// SAFETY: it is one.
unsafe impl Atomic for AtomicU32 {}
// SAFETY: it is one.
unsafe impl Atomic for AtomicU64 {}
// SAFETY: an array of them.
unsafe impl Atomic for AtomicBucket {}

/// Makes all of them zero, many at a time: a store to each would be one by one.
///
/// # Safety
/// Nobody else may read or write any of them meanwhile.
pub unsafe fn clear<T: Atomic>(atomics: &[T]) {
    // SAFETY: atomics may be written behind a shared reference, all zeros are values, and the caller
    // vouches for being alone.
    unsafe { atomics.as_ptr().cast_mut().write_bytes(0, atomics.len()) }
}

/// Atomic numbers, zero at first.
pub fn zeroed_u32(len: usize) -> Box<[AtomicU32]> {
    // SAFETY: zero is a valid AtomicU32.
    unsafe { Box::<[AtomicU32]>::new_zeroed_slice(len).assume_init() }
}

/// Atomic numbers that are whatever the memory was.
///
/// # Safety
/// Each must be stored to before it is loaded.
pub unsafe fn unset_u32(len: usize) -> Box<[AtomicU32]> {
    // SAFETY: they only lie behind a pointer until they are stored to, as the caller vouches.
    unsafe { Box::<[AtomicU32]>::new_uninit_slice(len).assume_init() }
}

/// The same of 64 bits.
///
/// # Safety
/// Each must be stored to before it is loaded.
pub unsafe fn unset_u64(len: usize) -> Box<[AtomicU64]> {
    // SAFETY: they only lie behind a pointer until they are stored to, as the caller vouches.
    unsafe { Box::<[AtomicU64]>::new_uninit_slice(len).assume_init() }
}

/// The numbers of which nobody else has a reference any more.
pub fn settled_u32(atomics: Box<[AtomicU32]>) -> Box<[u32]> {
    const { assert!(size_of::<AtomicU32>() == 4 && align_of::<AtomicU32>() == align_of::<u32>()) };
    // SAFETY: same size and alignment, and all values of the one are values of the other.
    unsafe { Box::from_raw(Box::into_raw(atomics) as *mut [u32]) }
}

/// The same of 64 bits.
pub fn settled_u64(atomics: Box<[AtomicU64]>) -> Box<[u64]> {
    const { assert!(size_of::<AtomicU64>() == 8 && align_of::<AtomicU64>() == align_of::<u64>()) };
    // SAFETY: same size and alignment, and all values of the one are values of the other.
    unsafe { Box::from_raw(Box::into_raw(atomics) as *mut [u64]) }
}

/// The slots of a bucket: with 16 bytes each they make a cache line.
pub const SLOTS: usize = 4;

/// A bucket of a hash table while it is filled. Its slots are taken from the first to the last.
#[repr(C, align(64))]
pub struct AtomicBucket {
    pub keys: [AtomicU64; SLOTS],
    /// The row + 1 in the lower half, a part of the hash in the upper one; 0: empty.
    pub rows: [AtomicU64; SLOTS],
}

/// The same when it is settled.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct Bucket {
    pub keys: [u64; SLOTS],
    pub rows: [u64; SLOTS],
}

/// Buckets, each in one cache line.
pub struct AtomicBuckets {
    words: Box<[AtomicU64]>,
    /// The words before the first bucket.
    skip: usize,
    len: usize,
}

/// The same when they are settled.
pub struct Buckets {
    words: Box<[u64]>,
    skip: usize,
    len: usize,
}

const BUCKET_WORDS: usize = size_of::<Bucket>() / 8;

const _: () = assert!(
    size_of::<AtomicBucket>() == size_of::<Bucket>()
        && align_of::<AtomicBucket>() == align_of::<Bucket>()
        && size_of::<Bucket>() == align_of::<Bucket>()
);

impl AtomicBuckets {
    /// Buckets that are whatever the memory was.
    ///
    /// # Safety
    /// Each must be cleared before anything else is done with it.
    pub unsafe fn unset(len: usize) -> Self {
        // SAFETY: as the caller vouches.
        let words = unsafe { unset_u64((len + 1) * BUCKET_WORDS) };
        // Less than a bucket, which is the one more than was wanted.
        let skip = words.as_ptr().align_offset(align_of::<AtomicBucket>());
        assert!(skip < BUCKET_WORDS);
        Self { words, skip, len }
    }

    pub fn as_slice(&self) -> &[AtomicBucket] {
        let words = &self.words[self.skip..self.skip + self.len * BUCKET_WORDS];
        // SAFETY: aligned by `skip`; a bucket is BUCKET_WORDS such words, and `words` has `len`
        // times as many.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), self.len) }
    }

    pub fn settle(self) -> Buckets {
        Buckets { words: settled_u64(self.words), skip: self.skip, len: self.len }
    }
}

impl Buckets {
    #[inline]
    pub fn as_slice(&self) -> &[Bucket] {
        let words = &self.words[self.skip..self.skip + self.len * BUCKET_WORDS];
        // SAFETY: as above; the words did not move.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), self.len) }
    }

    pub fn memory_bytes(&self) -> usize {
        self.words.len() * 8
    }
}
