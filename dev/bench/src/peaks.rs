//! The most that an engine holds at a time while something runs: a thread looks again and again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thalweg_engine::Engine;

/// Between two looks.
const SAMPLE: Duration = Duration::from_micros(500);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peaks {
    /// Reserved for joins, groups and sorts.
    pub held_bytes: u64,
    /// In spill files.
    pub spill_bytes: u64,
}

impl Peaks {
    /// What `work` gives, and the peaks until then.
    pub fn during<T>(engine: &Engine, work: impl FnOnce() -> T) -> (T, Peaks) {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let peaks = scope.spawn(|| Peaks::until(&done, engine));
            let result = work();
            done.store(true, Ordering::Relaxed);
            (result, peaks.join().unwrap_or_default())
        })
    }

    fn until(done: &AtomicBool, engine: &Engine) -> Peaks {
        let mut peaks = Peaks::default();
        while !done.load(Ordering::Relaxed) {
            peaks.held_bytes = peaks.held_bytes.max(engine.memory_held());
            peaks.spill_bytes = peaks.spill_bytes.max(engine.spill_held());
            std::thread::sleep(SAMPLE);
        }
        peaks
    }
}
