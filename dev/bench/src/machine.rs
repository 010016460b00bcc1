//! What this machine gives a program on more threads than one: the yardstick for ours, as cores share
//! caches and memory, and those of a virtual machine with others that nobody sees.

use std::hint::{black_box, spin_loop};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use crate::report::model::{median, quotient};
use crate::report::variants::Yardstick;

/// Loops that use one thing each. Every thread does all of the work, on the same array.
#[derive(Clone, Copy)]
enum Loop {
    Multiply,
    /// Independent ones, in so many words.
    LookUp(usize),
    /// In a row, so many words.
    Read(usize),
}

const LOOPS: [(&str, Loop); 4] = [
    ("multiplying", Loop::Multiply),
    ("looking up in 1 MiB", Loop::LookUp(1 << 17)),
    ("looking up in 64 MiB", Loop::LookUp(1 << 23)),
    ("reading 256 MiB in a row", Loop::Read(1 << 25)),
];
/// So that each takes some 20 to 200 ms.
const MULTIPLICATIONS: u64 = 40_000_000;
const LOOK_UPS: u64 = 4_000_000;

/// A cache line goes to and fro so often, so many times. The least time counts: in others the two
/// threads may have shared a core.
const PASSES: u64 = 100;
const PASSINGS: u64 = 20;

/// Nanoseconds that a cache line takes from one core to another: some 20 to 50 where they share a cache,
/// and several times as many where they do not. A virtual machine's cores may do the one now and the
/// other in a second.
pub(crate) fn distance_ns() -> f64 {
    let line = AtomicU64::new(0);
    let pass = |turn: u64| {
        while line.load(Ordering::Acquire) != turn {
            spin_loop();
        }
        line.store(turn + 1, Ordering::Release);
    };
    let turns = |first: u64| (0..PASSES).for_each(|n| pass(first + 2 * n));
    thread::scope(|scope| {
        scope.spawn(|| (0..PASSINGS).for_each(|n| turns(2 * PASSES * n + 1)));
        let timed = (0..PASSINGS).map(|n| {
            let began = Instant::now();
            turns(2 * PASSES * n);
            began.elapsed().as_secs_f64() * 1e9 / (2 * PASSES) as f64
        });
        timed.fold(f64::INFINITY, f64::min)
    })
}

/// Runs each loop on one thread and on so many, in turn. Tells what that took.
pub(crate) struct Machine {
    threads: usize,
    array: Vec<u64>,
    /// By loop, on all threads and on one; in seconds.
    times: Vec<[Vec<f64>; 2]>,
}

impl Machine {
    pub(crate) fn new(threads: usize) -> Self {
        let words = LOOPS.iter().map(|(_, each)| each.words()).max().unwrap_or(0);
        let array = (0..words as u64).collect();
        Machine { threads, array, times: LOOPS.iter().map(|_| Default::default()).collect() }
    }

    pub(crate) fn measure(&mut self, rounds: usize) {
        for _ in 0..rounds {
            for ((_, each), [all, one]) in LOOPS.iter().zip(&mut self.times) {
                all.push(time(*each, &self.array, self.threads));
                one.push(time(*each, &self.array, 1));
            }
        }
    }

    /// By the medians: of threads that do not disturb each other, as many as there are.
    pub(crate) fn found(&self) -> Vec<Yardstick> {
        let threads = self.threads as f64;
        let median = |times: &[f64]| median(times).unwrap_or(0.0);
        let found = LOOPS.iter().zip(&self.times).map(|((name, _), [all, one])| Yardstick {
            name: (*name).to_string(),
            ratio: quotient(threads * median(one), median(all)),
        });
        found.collect()
    }
}

impl Loop {
    fn words(self) -> usize {
        match self {
            Loop::Multiply => 0,
            Loop::LookUp(words) | Loop::Read(words) => words,
        }
    }

    fn run(self, array: &[u64], seed: u64) -> u64 {
        let step = |x: u64| x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
        let (mut at, mut sum) = (seed, 0u64);
        match self {
            Loop::Multiply => (0..MULTIPLICATIONS).for_each(|_| at = step(at)),
            Loop::LookUp(words) => {
                for _ in 0..LOOK_UPS {
                    at = step(at);
                    // The upper bits are the random ones.
                    sum = sum.wrapping_add(array[(at >> 32) as usize % words]);
                }
            }
            Loop::Read(words) => sum = array[..words].iter().fold(0, |sum, word| sum ^ word),
        }
        at ^ sum
    }
}

/// Seconds from when all begin until the last is done.
fn time(each: Loop, array: &[u64], threads: usize) -> f64 {
    let begin = Barrier::new(threads + 1);
    let began = thread::scope(|scope| {
        for seed in 0..threads as u64 {
            let begin = &begin;
            scope.spawn(move || {
                begin.wait();
                black_box(each.run(array, seed));
            });
        }
        begin.wait();
        Instant::now()
    });
    began.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_line_takes_some_time() {
        let ns = distance_ns();
        assert!(ns > 1.0 && ns.is_finite(), "{ns}");
    }

    #[test]
    fn every_loop_is_timed_and_does_its_work() {
        let mut machine = Machine::new(2);
        machine.measure(1);
        let found = machine.found();
        assert_eq!(found.len(), LOOPS.len());
        assert!(found.iter().all(|y| y.ratio > 0.1 && y.ratio < 20.0), "{found:?}");
        let array: Vec<u64> = (0..8).collect();
        assert_eq!(Loop::Read(8).run(&array, 5), 5 ^ 1 ^ 2 ^ 3 ^ 4 ^ 5 ^ 6 ^ 7);
        assert_ne!(Loop::LookUp(8).run(&array, 1), Loop::LookUp(8).run(&array, 2));
    }
}
