//! Panics of foreign code that are expected and caught: they print nothing.
//!
//! Decoders of file formats do not check every length in a damaged file before they slice by it. Who
//! calls one catches its panic and reports the file. The process's panic hook would have printed it
//! first, with a line of the decoder's source that helps nobody.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// How many calls of [`caught`] are under way on this thread.
    static EXPECTED: Cell<usize> = const { Cell::new(0) };
}

/// Runs `work`; a panic in it is an error, and is not printed.
///
/// Whatever `work` was at is in an unknown state afterwards, and must be dropped.
///
/// # Errors
/// It panicked.
pub fn caught<T>(work: impl FnOnce() -> T) -> std::thread::Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let printing = take_hook();
        set_hook(Box::new(move |panic| {
            if EXPECTED.try_with(Cell::get).unwrap_or(0) == 0 {
                printing(panic);
            }
        }));
    });
    EXPECTED.set(EXPECTED.get() + 1);
    let result = catch_unwind(AssertUnwindSafe(work));
    EXPECTED.set(EXPECTED.get() - 1);
    result
}

#[cfg(test)]
mod tests {
    use super::caught;

    #[test]
    fn a_panic_is_an_error() {
        assert_eq!(caught(|| 1).ok(), Some(1));
        assert!(caught(|| panic!("expected")).is_err());
        assert!(
            caught(|| caught(|| panic!("inner")))
                .is_ok_and(|inner: std::thread::Result<()>| inner.is_err())
        );
    }
}
