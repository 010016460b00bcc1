//! For the parts of the house that read what anybody may write: how a fuzzer calls them, and how
//! its corpus is run without one. See `docs/testing.md`.

use std::cell::RefCell;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant};

use crate::Prng;

/// Runs `f` under a fuzzer that takes every panic for a finding, also those that the decoder
/// catches and turns into errors; only one that gets out of `f` is.
pub fn watched(f: impl FnOnce()) {
    static QUIET: Once = Once::new();
    thread_local! {
        static LAST: RefCell<String> = const { RefCell::new(String::new()) };
    }
    QUIET.call_once(|| {
        std::panic::set_hook(Box::new(|panic| LAST.set(panic.to_string())));
    });
    if catch_unwind(AssertUnwindSafe(f)).is_err() {
        eprintln!("{}", LAST.take());
        std::process::abort();
    }
}

/// Runs the inputs in a folder, and `mutants` that come of them by chance, or as many as
/// `FUZZ_SECONDS` leaves time for.
///
/// # Panics
/// One of them did harm: its file is named.
pub fn check(folder: &Path, seed: u64, mutants: u64, run: fn(&[u8])) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no corpus");
    let inputs: Vec<Vec<u8>> = files.iter().map(|f| fs::read(f).unwrap()).collect();
    for (input, file) in inputs.iter().zip(&files) {
        let ran = catch_unwind(|| run(input));
        assert!(ran.is_ok(), "{} did harm", file.display());
    }
    let seconds = std::env::var("FUZZ_SECONDS").ok().map(|s| s.parse().expect("FUZZ_SECONDS"));
    let end = seconds.map(|s| Instant::now() + Duration::from_secs(s));
    let target = folder.file_name().unwrap_or_default().to_string_lossy();
    let mut done = 0;
    while end.map_or(done < mutants, |end| Instant::now() < end) {
        let mut random = Prng::new(seed.wrapping_add(done));
        let one = &inputs[random.below(inputs.len() as u64) as usize];
        let other = &inputs[random.below(inputs.len() as u64) as usize];
        let input = mutant(one, other, &mut random);
        if catch_unwind(|| run(&input)).is_err() {
            let path = std::env::temp_dir().join(format!("thalweg-{target}-{done}"));
            fs::write(&path, &input).unwrap();
            panic!("mutant {done} did harm; it is {}", path.display());
        }
        done += 1;
    }
    println!("{target}: {} inputs, {done} mutants", inputs.len());
}

fn mutant(one: &[u8], other: &[u8], random: &mut Prng) -> Vec<u8> {
    let mut bytes = one.to_vec();
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len().max(1) as u64) as usize;
        let length = random.below(16) as usize + 1;
        match random.below(7) {
            0..3 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            3 if at < bytes.len() => {
                bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'"', b'\n', b','][length % 8]
            }
            4 => drop(bytes.drain(at..bytes.len().min(at + length))),
            5 if !other.is_empty() => {
                let from = random.below(other.len() as u64) as usize;
                let piece = &other[from..other.len().min(from + length)];
                bytes.splice(at..at, piece.iter().copied());
            }
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}
