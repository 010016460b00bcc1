//! `thalweg restore`: a database from a backup.

use std::io::Write;

use arrow::temporal_conversions::timestamp_ms_to_datetime;
use thalweg_base::{Error, SnapshotId, text};
use thalweg_storage::{BackupInfo, backups, restore, verify_backup};

use super::backup::{copying, remote};
use crate::failure::Outcome;

/// Make a database from a backup
///
/// Restores the newest backup, or the one that --snapshot names, to a place where nothing is: it
/// never overwrites. Every byte is verified by its checksum on its way. An interrupted restoration
/// leaves no database, and the same command goes on where it stopped.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub struct Args {
    /// Folder or object-store prefix of the backups
    #[arg(value_name = "PLACE")]
    place: String,

    /// Folder or object-store prefix of the database to make
    #[arg(value_name = "DB", required_unless_present_any = ["list", "check"])]
    database: Option<String>,

    /// Not the newest backup, but the one of this snapshot
    #[arg(long, value_name = "N")]
    snapshot: Option<u64>,

    /// Only list the backups
    #[arg(long, conflicts_with_all = ["database", "snapshot", "check"])]
    list: bool,

    /// Only read the backup and compare checksums
    #[arg(long, conflicts_with = "database")]
    check: bool,

    /// Show no progress, and print nothing but a list
    #[arg(short, long)]
    quiet: bool,
}

const AFTER: &str = "\
Examples:
  thalweg restore /backups/shop shop.db
  thalweg restore s3://backups/shop shop.db --snapshot 1200
  thalweg restore /backups/shop --list
  thalweg restore /backups/shop --check";

pub fn run(args: Args) -> Outcome {
    let Args { place, snapshot, quiet, .. } = args;
    let snapshot = snapshot.map(SnapshotId);
    let mut out = std::io::stdout();
    if args.list {
        let all = backups(&place, &remote())?;
        if all.is_empty() {
            let place = text::quoted(&place);
            return Err(Error::user(format!("there is no backup at {place}")).into());
        }
        for info in &all {
            writeln!(out, "{}", line(info))?;
        }
        return Ok(());
    }
    let Some(database) = args.database else {
        let info = copying("read", quiet, |progress| {
            verify_backup(&place, snapshot, &remote(), progress)
        })?;
        if !quiet {
            writeln!(out, "all is as it was written: {}", line(&info))?;
        }
        return Ok(());
    };
    let report = copying("copied", quiet, |progress| {
        restore(&place, &database, snapshot, &remote(), progress)
    })?;
    if !quiet {
        let copied = text::bytes(report.bytes_copied);
        let database = text::quoted(&database);
        writeln!(out, "restored {database}: {}; copied {copied}", line(&report.info))?;
    }
    Ok(())
}

/// `snapshot 12  2026-01-31 12:00:00 UTC  3 tables in 14 extents, 3.1 GiB`
fn line(info: &BackupInfo) -> String {
    let time = i64::try_from(info.time_ms).ok().and_then(timestamp_ms_to_datetime);
    let time = time.map_or_else(String::new, |t| t.format("%Y-%m-%d %H:%M:%S UTC").to_string());
    format!(
        "snapshot {}  {time}  {} tables in {} extents, {}",
        info.snapshot,
        text::count(info.tables),
        text::count(info.extents),
        text::bytes(info.bytes)
    )
}
