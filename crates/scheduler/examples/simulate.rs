//! Runs random schedules against the scheduler, with every promise checked at every step:
//!
//! ```text
//! cargo run --release -p thalweg-scheduler --features simulation --example simulate -- \
//!     --schedules 1000000 --seed 1
//! ```
//!
//! Schedule n has the seed `seed + n`. The first that breaks a promise is named and ends the
//! run; `--seed N --schedules 1` repeats it.

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use thalweg_base::text;
use thalweg_scheduler::simulation::{Report, simulate};

fn argument(name: &str, default: u64) -> Result<u64, String> {
    let mut arguments = std::env::args().skip_while(|a| a != name).skip(1);
    match arguments.next() {
        None => Ok(default),
        Some(value) => value.parse().map_err(|_| format!("{name} needs a number, not \"{value}\"")),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let schedules = argument("--schedules", 100_000)?;
    let seed = argument("--seed", 1)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let began = Instant::now();
    let reports: Vec<Result<Report, String>> = std::thread::scope(|scope| {
        let worker = || {
            let mut total = Report::default();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= schedules || failed.load(Ordering::Relaxed) {
                    return Ok(total);
                }
                let seed = seed + n;
                let result = catch_unwind(|| simulate(seed, None))
                    .unwrap_or_else(|_| Err(format!("seed {seed} trips over an assertion")));
                match result {
                    Ok(report) => total.add(&report),
                    Err(e) => {
                        failed.store(true, Ordering::Relaxed);
                        return Err(e);
                    }
                }
                if (n + 1) % (schedules / 20).max(1) == 0 {
                    let s = began.elapsed().as_secs_f64();
                    println!(
                        "{} of {} schedules, {s:.0} s",
                        text::count(n + 1),
                        text::count(schedules)
                    );
                }
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|w| w.join().expect("a worker catches panics")).collect()
    });
    let mut total = Report::default();
    for report in reports {
        total.add(&report?);
    }
    println!("{} schedules hold all promises", text::count(schedules));
    println!("{total:#?}");
    Ok(())
}
