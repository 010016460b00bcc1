//! What the memory of this machine gives, measured: the limit that `EXPLAIN ANALYZE` puts pipelines
//! beside.
//!
//! All is measured on one array, much larger than the processor's caches. It holds, at each of its
//! places, the place that comes next on a way through all of them: a linear congruential generator
//! of full period (Hull and Dobell, 1962). So it is filled at the rate of the memory, read in order
//! for the bandwidth, and followed for the time of a look-up, in steps that no processor foresees.

use std::collections::HashMap;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use thalweg_base::machine_memory_bytes;
use thalweg_base::{Error, Prng, Result, text};

/// Each figure is the best of so many: what else runs can only make one worse.
const ROUNDS: usize = 7;
/// Look-ups of a round, and of those that are known ahead of their use as many at a time as a
/// batch has rows.
const LOOKUPS: usize = 1 << 20;
const AHEAD: usize = 8 * 1024;
/// Words that a thread reads before it asks whether to stop.
const BLOCK_WORDS: usize = 1 << 20;
/// Bounds of the array, whatever the caches are; and how many times their size it has.
const BYTES_MIN: u64 = 512 << 20;
const MEMORY_PART_MAX: u64 = 4;
const TIMES_CACHES: u64 = 4;

/// The figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// Of the array.
    pub bytes: u64,
    /// Reads in order by one thread: what a worker of a pipeline is put beside.
    pub one_thread_bytes_per_s: u64,
    /// By `threads` at once, all together.
    pub all_threads_bytes_per_s: u64,
    pub threads: usize,
    /// A look-up whose place is known only from the one before.
    pub dependent_ns: f64,
    /// A look-up among many whose places are known ahead, so that the processor overlaps them.
    pub independent_ns: f64,
}

/// How far a measurement is, and whether it is to go on; for other threads to look at and to set.
#[derive(Default)]
pub struct Progress {
    pub stopped: AtomicBool,
    steps: AtomicUsize,
}

impl Progress {
    pub fn percent(&self) -> u64 {
        // Filling the array is a step, too.
        (self.steps.load(Ordering::Relaxed) * 100 / (1 + 4 * ROUNDS)) as u64
    }

    fn step(&self) -> Result<()> {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.check()
    }

    fn check(&self) -> Result<()> {
        match self.stopped.load(Ordering::Relaxed) {
            true => Err(Error::cancelled("the measurement was stopped")),
            false => Ok(()),
        }
    }
}

/// Measures with an array of about that many bytes, in a few seconds.
///
/// # Errors
/// The array is more than half of the memory, a thread cannot be started, or the measurement was
/// stopped.
pub fn measure(bytes: u64, threads: usize, progress: &Progress) -> Result<Calibration> {
    let memory = machine_memory_bytes();
    if bytes > memory / 2 {
        return Err(Error::user(format!(
            "an array of {} is too large to measure with",
            text::bytes(bytes)
        ))
        .detail(format!("this machine has {}", text::bytes(memory)))
        .hint("four times the size of the processor's caches is enough"));
    }
    let threads = threads.max(1);
    let words = 1usize << (bytes / size_of::<u64>() as u64).max(2).ilog2();
    let array = filled(words, threads)?;
    progress.step()?;
    let [mut one_thread, mut all_threads, mut dependent, mut independent] = [Duration::MAX; 4];
    let (mut at, mut random) = (0, Prng::new(0));
    // In turn, so that what disturbs for a while disturbs one round of each.
    for _ in 0..ROUNDS {
        one_thread = one_thread.min(read(&array, 1, progress)?);
        progress.step()?;
        all_threads = all_threads.min(read(&array, threads, progress)?);
        progress.step()?;
        dependent = dependent.min(follow(&array, &mut at));
        progress.step()?;
        independent = independent.min(look_up(&array, &mut random));
        progress.step()?;
    }
    let bytes = size_of_val(array.as_slice()) as u64;
    let per_s = |time: Duration| (bytes as f64 / time.as_secs_f64().max(1e-9)) as u64;
    let each_ns = |time: Duration| time.as_nanos() as f64 / LOOKUPS as f64;
    Ok(Calibration {
        bytes,
        one_thread_bytes_per_s: per_s(one_thread),
        all_threads_bytes_per_s: per_s(all_threads),
        threads,
        dependent_ns: each_ns(dependent),
        independent_ns: each_ns(independent),
    })
}

/// How large an array must be for the processor's caches to hold little of it.
pub fn array_bytes() -> u64 {
    let caches = cache_bytes(Path::new("/sys/devices/system/cpu")) * TIMES_CACHES;
    let most = 1 << (machine_memory_bytes() / MEMORY_PART_MAX).max(1).ilog2();
    caches.max(BYTES_MIN).next_power_of_two().min(most)
}

/// All last-level caches together, as Linux lists them; 0 where it does not.
fn cache_bytes(cpus: &Path) -> u64 {
    let read = |path: &Path| fs::read_to_string(path).ok().map(|text| text.trim().to_string());
    // By level and by the cores that share it, so that each counts once.
    let mut caches: HashMap<(u32, String), u64> = HashMap::new();
    for cpu in fs::read_dir(cpus).into_iter().flatten().flatten() {
        for cache in fs::read_dir(cpu.path().join("cache")).into_iter().flatten().flatten() {
            let file = |name: &str| read(&cache.path().join(name));
            let level = file("level").and_then(|text| text.parse().ok());
            let bytes = file("size").and_then(|text| text::parse_bytes(&text));
            if let (Some(level), Some(bytes), Some(cores)) = (level, bytes, file("shared_cpu_list"))
            {
                caches.insert((level, cores), bytes);
            }
        }
    }
    let last = caches.keys().map(|(level, _)| *level).max();
    caches.iter().filter(|((level, _), _)| Some(*level) == last).map(|(_, bytes)| bytes).sum()
}

/// The place after `place` in an array of `words`, a power of two.
fn next(place: usize, words: usize) -> usize {
    // Of full period modulo a power of two: the factor is 1 modulo 4, the increment is odd. Knuth's.
    let next = (place as u64).wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    next as usize & (words - 1)
}

/// Each thread writes the part that it is going to read: memory belongs to the socket that writes
/// to it first.
fn filled(words: usize, threads: usize) -> Result<Vec<u64>> {
    let mut array = vec![0; words];
    let part = words.div_ceil(threads);
    thread::scope(|scope| {
        let start = |(n, part_words): (usize, &mut [u64])| {
            for (i, word) in part_words.iter_mut().enumerate() {
                *word = next(n * part + i, words) as u64;
            }
        };
        let parts = array.chunks_mut(part).enumerate();
        let started = parts.map(|p| thread::Builder::new().spawn_scoped(scope, move || start(p)));
        started.collect::<std::io::Result<Vec<_>>>().map_err(no_thread).map(|_| ())
    })?;
    Ok(array)
}

fn no_thread(e: std::io::Error) -> Error {
    Error::io("cannot start a thread to measure with", e).hint("--threads takes fewer")
}

/// Reads all of it once, by several threads: from when the first began to when the last ended.
fn read(array: &[u64], threads: usize, progress: &Progress) -> Result<Duration> {
    let part = array.len().div_ceil(threads);
    let spans: Vec<(Instant, Instant)> = thread::scope(|scope| {
        let read = |part: &[u64]| {
            let start = Instant::now();
            for block in part.chunks(BLOCK_WORDS) {
                black_box(sum(block));
                progress.check()?;
            }
            Ok((start, Instant::now()))
        };
        let parts = array.chunks(part);
        let started = parts.map(|p| thread::Builder::new().spawn_scoped(scope, move || read(p)));
        let started = started.collect::<std::io::Result<Vec<_>>>().map_err(no_thread)?;
        let failed = |_| Error::internal("a thread that measures failed");
        started.into_iter().map(|thread| thread.join().map_err(failed)?).collect::<Result<_>>()
    })?;
    let (starts, ends): (Vec<_>, Vec<_>) = spans.into_iter().unzip();
    let span = ends.into_iter().max().zip(starts.into_iter().min());
    Ok(span.map_or(Duration::MAX, |(end, start)| end - start))
}

/// With as many sums as keep all additions independent, so that nothing but memory limits it.
fn sum(words: &[u64]) -> u64 {
    let mut sums = [0u64; 32];
    let (groups, rest) = words.as_chunks::<32>();
    for group in groups {
        for (sum, word) in sums.iter_mut().zip(group) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().chain(rest).fold(0, |all, word| all.wrapping_add(*word))
}

/// From one place to the next.
fn follow(array: &[u64], at: &mut u64) -> Duration {
    let start = Instant::now();
    for _ in 0..LOOKUPS {
        *at = array[*at as usize];
    }
    black_box(*at);
    start.elapsed()
}

/// Places of a batch, all of them known: what probing a table is at best.
fn look_up(array: &[u64], random: &mut Prng) -> Duration {
    let mut time = Duration::ZERO;
    for _ in 0..LOOKUPS / AHEAD {
        let place = |_| random.below(array.len() as u64) as usize;
        let places: Vec<usize> = (0..AHEAD).map(place).collect();
        let start = Instant::now();
        let found = places.iter().fold(0u64, |all, &place| all.wrapping_add(array[place]));
        black_box(found);
        time += start.elapsed();
    }
    time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_leads_through_all_places() {
        for (words, threads) in [(4, 3), (1 << 12, 1), (1 << 12, 5)] {
            let array = filled(words, threads).unwrap();
            let mut seen = vec![false; words];
            let mut at = 0;
            for _ in 0..words {
                assert!(!std::mem::replace(&mut seen[at], true), "{at} of {words}");
                at = array[at] as usize;
            }
            assert_eq!(at, 0);
        }
    }

    #[test]
    fn sums_take_every_word() {
        for words in [0, 1, 31, 32, 33, 100] {
            let array: Vec<u64> = (1..=words).collect();
            assert_eq!(sum(&array), words * (words + 1) / 2);
        }
    }

    #[test]
    fn all_figures_are_there() {
        let progress = Progress::default();
        let measured = measure(3 << 20, 3, &progress).unwrap();
        assert_eq!((measured.bytes, measured.threads), (2 << 20, 3));
        assert!(measured.one_thread_bytes_per_s > 0 && measured.all_threads_bytes_per_s > 0);
        assert!(measured.dependent_ns > 0.0 && measured.independent_ns > 0.0);
        assert_eq!(progress.percent(), 100);
    }

    #[test]
    fn it_stops_when_told_and_takes_no_array_that_does_not_fit() {
        let progress = Progress::default();
        progress.stopped.store(true, Ordering::Relaxed);
        let stopped = measure(1 << 20, 2, &progress).unwrap_err();
        assert_eq!(stopped.kind(), thalweg_base::Kind::Cancelled);
        assert_eq!(progress.percent(), 3);
        measure(u64::MAX, 2, &Progress::default()).unwrap_err();
    }

    #[test]
    fn caches_that_cores_share_count_once() {
        let cpus = tempfile::tempdir().unwrap();
        for (cpu, index, level, size, shared) in [
            ("cpu0", "index0", "1", "48K", "0"),
            ("cpu0", "index1", "3", "32768K", "0-1"),
            ("cpu1", "index0", "1", "48K", "1"),
            ("cpu1", "index1", "3", "32768K", "0-1"),
            ("cpu2", "index1", "3", "16384K", "2"),
        ] {
            let folder = cpus.path().join(cpu).join("cache").join(index);
            fs::create_dir_all(&folder).unwrap();
            for (name, text) in [("level", level), ("size", size), ("shared_cpu_list", shared)] {
                fs::write(folder.join(name), format!("{text}\n")).unwrap();
            }
        }
        assert_eq!(cache_bytes(cpus.path()), 48 << 20);
        assert_eq!(cache_bytes(Path::new("/nowhere")), 0);
        assert!(array_bytes().is_power_of_two());
    }
}
