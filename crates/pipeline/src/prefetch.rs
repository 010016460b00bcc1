//! Asking for memory ahead of its use.

/// Asks for the cache line in which the item begins; it need not be there.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching reads nothing and is allowed of any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(slice.as_ptr().wrapping_add(index).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, index);
}

/// The same for a line that will be written: a locked instruction on one that another core has as well
/// would wait until that has let go of it.
#[inline(always)]
pub fn prefetch_to_write<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        let line = slice.as_ptr().wrapping_add(index);
        // `_mm_prefetch` says this only to processors known to have the instruction; to others of 64
        // bits it is none.
        // SAFETY: as above.
        unsafe {
            core::arch::asm!(
                "prefetchw [{}]",
                in(reg) line,
                options(nostack, preserves_flags, readonly)
            );
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    prefetch(slice, index);
}
