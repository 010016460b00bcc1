//! How much input may be in memory at once.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// Pieces of input share a number of bytes; who finds too few left waits until others are done.
pub(super) struct Gate {
    bytes_max: usize,
    used: Mutex<usize>,
    freed: Condvar,
}

/// Bytes that belong to one piece of input until it is dropped.
pub(super) struct Permit {
    gate: Arc<Gate>,
    bytes: usize,
}

impl Gate {
    pub(super) fn new(bytes_max: usize) -> Arc<Gate> {
        Arc::new(Gate { bytes_max, used: Mutex::new(0), freed: Condvar::new() })
    }

    /// Waits for `bytes`. A piece larger than all there is comes in alone. A thread that holds a
    /// permit must not ask for another: nobody could be left to free what it waits for.
    pub(super) fn enter(self: &Arc<Self>, bytes: usize) -> Permit {
        let mut used = self.used.lock();
        while *used > 0 && *used + bytes > self.bytes_max {
            self.freed.wait(&mut used);
        }
        *used += bytes;
        Permit { gate: Arc::clone(self), bytes }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.gate.used.lock() -= self.bytes;
        self.gate.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn the_sum_stays_below_the_bound() {
        let gate = Gate::new(100);
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for bytes in [30, 60, 70, 100] {
                let (gate, now, most) = (&gate, &now, &most);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let permit = gate.enter(bytes);
                        most.fetch_max(
                            now.fetch_add(bytes, Ordering::SeqCst) + bytes,
                            Ordering::SeqCst,
                        );
                        now.fetch_sub(bytes, Ordering::SeqCst);
                        drop(permit);
                    }
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 100);
        drop(gate.enter(1000));
    }
}
