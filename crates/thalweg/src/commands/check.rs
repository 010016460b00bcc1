//! `thalweg check`: whether a database is as it was written.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thalweg_base::{Error, text};
use thalweg_storage::CheckProgress;

use crate::database::{self, MEMORY, Settings};
use crate::failure::{self, Outcome};
use crate::progress::{Progress, Sample};

/// Verify a whole database against its checksums
///
/// Reads every commit of the log and every extent that the current snapshot names. Reports
/// everything that is not as it was written, each with its file, and ends with exit code 4 if
/// there is anything. Changes nothing, and may run while others read and write.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub struct Args {
    /// Folder of the database
    #[arg(value_name = "DB")]
    database: String,

    /// Also decode every value and compare the statistics: slower
    #[arg(long)]
    decode: bool,

    /// Show no progress, and print only what is wrong
    #[arg(short, long)]
    quiet: bool,
}

const AFTER: &str = "\
Examples:
  thalweg check shop.db
  thalweg check shop.db --decode
  thalweg check -q shop.db || echo damaged

Nothing is repaired: restore what is named from a backup, or DROP the table it belongs to.";

pub fn run(args: Args) -> Outcome {
    if args.database == MEMORY {
        return Err(Error::user(format!("{MEMORY} holds nothing to check"))
            .hint("name the folder of a database")
            .into());
    }
    let engine = database::open(&args.database, false, &Settings::default())?;
    let progress = Arc::new(CheckProgress::default());
    let shown = (!args.quiet).then(|| {
        let progress = progress.clone();
        Progress::start(move || Sample {
            bytes_done: progress.bytes_done.load(Ordering::Relaxed),
            bytes_total: progress.bytes_total.load(Ordering::Relaxed),
            ..Sample::default()
        })
    });
    let report = engine.database().check(args.decode, &progress)?;
    drop(shown);
    report.faults.iter().for_each(failure::print);
    let count = |n: usize| text::count(n as u64);
    let seen = format!(
        "objects of the log: {}, extents: {}, chunks: {}, in all {}",
        count(report.log_objects),
        count(report.extents),
        count(report.chunks),
        text::bytes(report.bytes)
    );
    if report.faults.is_empty() {
        if !args.quiet {
            writeln!(std::io::stdout(), "all is as it was written: {seen}")?;
        }
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "{} is damaged (faults: {})",
        text::quoted(&args.database),
        count(report.faults.len())
    ))
    .detail(format!("checked {seen}"))
    .into())
}
