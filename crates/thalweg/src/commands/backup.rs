//! `thalweg backup`: a copy of a database, while it is in use.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thalweg_base::{Error, text};
use thalweg_storage::{BackupReport, CopyProgress, Database, Options, RemoteOptions, is_remote};

use crate::database::{self, MEMORY};
use crate::failure::{Failure, Outcome};
use crate::interrupt;
use crate::progress::{Progress, Sample};

/// Copy a database as it is now, while others read and write it
///
/// A place holds any number of backups of one database. Each adds the extents that are not there
/// yet, so the first copies everything and later ones what is new; every one of them can be
/// restored by itself. Every byte is verified by its checksum on its way. An interrupted backup is
/// none, and the same command goes on where it stopped.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub struct Args {
    /// Folder or object-store prefix of the database
    #[arg(value_name = "DB")]
    database: String,

    /// Folder or object-store prefix of its backups
    #[arg(value_name = "PLACE")]
    place: String,

    /// Read all of the backup again where it is now, also what earlier ones have copied; copy anew
    /// what is damaged there
    #[arg(long)]
    verify: bool,

    /// Show no progress, and print nothing
    #[arg(short, long)]
    quiet: bool,
}

const AFTER: &str = "\
Examples:
  thalweg backup shop.db /backups/shop
  thalweg backup shop.db s3://backups/shop
  thalweg backup s3://warehouse/shop /backups/shop --verify
  thalweg restore /backups/shop --list

What is in it: tables with their rows, views, settings, users and rights. It is the newest snapshot
when the command begins; older ones (AS OF) are not in it. To be rid of old backups, begin a new
place from time to time, and remove an old one as a whole.";

pub fn run(args: Args) -> Outcome {
    if args.database == MEMORY {
        return Err(Error::user(format!("{MEMORY} ends with its process: nothing can be copied"))
            .hint("name the folder of a database")
            .into());
    }
    if !is_remote(&args.database) {
        database::must_exist(&args.database)?;
    }
    // It writes nothing, and is not to keep those waiting who do.
    let options = Options {
        create: false,
        sweep: false,
        cache_bytes_max: 0,
        remote: remote(),
        ..Options::default()
    };
    let database = Database::open_at(&args.database, options)?;
    let report = copying("copied", args.quiet, |progress| {
        database.backup(&args.place, &remote(), args.verify, progress)
    })?;
    if !args.quiet {
        writeln!(std::io::stdout(), "{}", describe(&report))?;
    }
    Ok(())
}

fn describe(report: &BackupReport) -> String {
    let BackupReport { info, extents_copied, bytes_copied, was_there } = report;
    let (all, new) = (text::bytes(info.bytes), text::bytes(*bytes_copied));
    let sum = format!(
        "snapshot {}: {} tables in {} extents, {all}; copied {} extents, {new}",
        info.snapshot,
        text::count(info.tables),
        text::count(info.extents),
        text::count(*extents_copied),
    );
    match was_there {
        true => format!("there was a backup of this {sum}"),
        false => format!("backup of {sum}"),
    }
}

/// Each byte is read once: a cache on the local disk would only be filled with it.
pub fn remote() -> RemoteOptions {
    RemoteOptions { cache_bytes_max: 0, ..RemoteOptions::default() }
}

/// Runs what copies, with progress to be seen, until Ctrl-C.
pub fn copying<T>(
    verb: &'static str,
    quiet: bool,
    copy: impl FnOnce(&CopyProgress) -> thalweg_base::Result<T>,
) -> Outcome<T> {
    let progress = Arc::new(CopyProgress::default());
    let watched = Arc::clone(&progress);
    let watch = interrupt::watch(move || watched.stop.store(true, Ordering::Relaxed));
    let shown = (!quiet).then(|| {
        let progress = Arc::clone(&progress);
        Progress::of_bytes(verb, move || Sample {
            bytes_done: progress.bytes_done.load(Ordering::Relaxed),
            bytes_total: progress.bytes_total.load(Ordering::Relaxed),
            ..Sample::default()
        })
    });
    let done = copy(&progress);
    drop((shown, watch));
    done.map_err(Failure::from)
}
