//! `thalweg calibrate`: what the memory of this machine gives.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thalweg_base::{Error, Result, text};
use thalweg_engine::calibration;

use super::bench::cores;
use super::sql::threads;
use crate::calibration::{self as kept, Kept};
use crate::failure::Outcome;
use crate::interrupt;
use crate::progress::Progress;

/// Measure the memory of this machine, which queries are then put beside
///
/// Measures in a few seconds how fast memory is read in order, by one thread and by all, and how
/// long a look-up in a table takes that no cache holds. The figures are kept, and from then on
/// EXPLAIN ANALYZE shows for each pipeline how close its workers come to that bandwidth
/// (`of_memory_bandwidth`). They belong to the machine and not to a database: once is enough. Let
/// nothing else run meanwhile.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub struct Args {
    /// Print the figures that are kept, and measure nothing
    #[arg(long, conflicts_with_all = ["threads", "size"])]
    show: bool,

    /// Print JSON, the same as is kept, and not a table
    #[arg(long)]
    json: bool,

    /// Keep the figures in FILE, or show those of FILE; queries do not look there
    /// [default: calibration.json in $XDG_STATE_HOME/thalweg or ~/.local/state/thalweg]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Threads that read at the same time [default: the cores of this machine]
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<usize>,

    /// Memory to measure with, rounded down to a power of two [default: 4 times the processor's
    /// last-level caches, at least 512MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
}

const AFTER: &str = "\
Examples:
  thalweg calibrate                    measure, and keep the figures for EXPLAIN ANALYZE
  thalweg calibrate --show             print them again
  thalweg calibrate --json --file this-machine.json

Each figure is the best of several rounds.
  reads in order    bytes of an array that are read and summed up in a second
  look-up, chained  one whose place is known only from the one before: the latency of memory
  look-up, batched  one of many whose places are known ahead, so that the processor overlaps them:
                    what probing the table of a join is at best";

fn size(value: &str) -> std::result::Result<u64, String> {
    match text::parse_bytes(value) {
        Some(bytes) if bytes >= 1 << 20 => Ok(bytes),
        _ => Err("expected a size of 1MiB or more, such as 1GiB".to_string()),
    }
}

pub fn run(args: Args) -> Outcome {
    let path = args.file.clone().or_else(kept::path).ok_or_else(|| {
        Error::user("there is no folder to keep the figures in")
            .hint("give --file FILE, or set HOME or XDG_STATE_HOME")
    })?;
    let name = text::quoted(&path.to_string_lossy());
    if args.show {
        let kept = Kept::read(&path)?.ok_or_else(|| {
            Error::user(format!("there is no file {name}: nothing was measured yet"))
                .hint("`thalweg calibrate` measures this machine")
        })?;
        return print(&kept, args.json, &format!("measured {} UTC, kept in {name}", kept.measured));
    }
    let kept = Kept::new(&measure(&args)?);
    kept.write(&path)?;
    print(&kept, args.json, &format!("kept in {name}"))
}

fn measure(args: &Args) -> Result<calibration::Calibration> {
    let state = Arc::new(calibration::Progress::default());
    let watch = {
        let state = Arc::clone(&state);
        interrupt::watch(move || state.stopped.store(true, Ordering::Relaxed))
    };
    let _shown = {
        let state = Arc::clone(&state);
        Progress::of_percent("measuring memory", move || state.percent())
    };
    let bytes = args.size.unwrap_or_else(calibration::array_bytes);
    calibration::measure(bytes, cores(args.threads), &state).map_err(|e| watch.explain(e))
}

fn print(kept: &Kept, json: bool, last: &str) -> Outcome {
    let mut out = std::io::stdout();
    if json {
        writeln!(out, "{}", kept.json())?;
        return Ok(());
    }
    let reads = |threads: usize| match threads {
        1 => "reads in order, 1 thread".to_string(),
        n => format!("reads in order, {n} threads"),
    };
    let per_s = |bytes| format!("{}/s", text::bytes(bytes));
    let ns = |ns: f64| format!("{ns:.1} ns");
    let mut rows = vec![
        (reads(1), per_s(kept.one_thread_bytes_per_s)),
        (reads(kept.threads), per_s(kept.all_threads_bytes_per_s)),
        ("look-up, chained".to_string(), ns(kept.dependent_lookup_ns)),
        ("look-up, batched".to_string(), ns(kept.independent_lookup_ns)),
    ];
    if kept.threads == 1 {
        rows.remove(1);
    }
    let size = text::bytes(kept.array_bytes);
    writeln!(out, "Memory of this machine (cores: {}), measured with {size}", kept.cores)?;
    for (what, figure) in rows {
        writeln!(out, "  {what:<28}{figure:>14}")?;
    }
    writeln!(out, "{last}")?;
    Ok(())
}
