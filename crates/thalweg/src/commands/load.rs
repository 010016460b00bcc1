//! `thalweg load`: files into tables, all in one transaction unless asked otherwise.

mod dialect;
mod follow;
mod manifest;
mod report;
mod spool;
mod targets;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use thalweg_base::limits::{LOAD_MEMORY_BYTES, LOAD_WORKER_BYTES_MIN};
use thalweg_base::{Error, Result, text};
use thalweg_engine::{
    CommitEvery, CsvOptions, Engine, Format, Load, LoadProgress, LoadRequest, NewColumns, Session,
};
use thalweg_storage::load;

use super::sql::threads;
use crate::database::{self, MEMORY, Settings};
use crate::failure::Outcome;
use crate::interrupt::{self, Watch};
use crate::progress::{Progress, Sample};
use targets::{Target, targets};

/// Load files into tables
///
/// Creates the database and the table if they are not there, with column names and types taken
/// from all rows of the files, or else appends to the table, matching columns by name. Files,
/// folders and patterns are read in parallel; CSV, JSON lines, Parquet and Arrow files are told
/// apart by their names and first bytes, and .gz and .zst files are decompressed on the way.
///
/// Everything one command loads becomes visible at once when it is done. A load that fails or
/// is cancelled changes nothing. With --commit-every or --follow that holds for every batch of
/// files.
#[derive(clap::Args)]
#[command(after_long_help = AFTER, override_usage = USAGE)]
pub struct Args {
    /// Folder of the database; created if it is not there
    #[arg(value_name = "DB")]
    database: String,

    /// A table and its files, `-` being standard input; or TABLE=FILE[,FILE…] for each of several
    /// tables; or, with --each, only files
    #[arg(value_name = "TABLE FILES", required_unless_present = "manifest")]
    what: Vec<String>,

    /// Load every file into the table named like it: data/orders.csv.gz into "orders"
    #[arg(long)]
    each: bool,

    /// Load the tables that this JSON file lists, each with its files and options
    #[arg(long, value_name = "FILE", conflicts_with_all = ["what", "each"])]
    manifest: Option<PathBuf>,

    /// Find out the columns, show them and the CREATE TABLE, and load nothing
    #[arg(long, conflicts_with = "follow")]
    dry_run: bool,

    /// Format of the files, if their names do not say it
    #[arg(long, value_enum)]
    format: Option<InputFormat>,

    /// What separates fields in CSV: one character, or `tab` [default: found in the file]
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    delimiter: Option<u8>,

    /// What encloses fields in CSV: one character, or `none` [default: "]
    #[arg(long, value_name = "CHAR", value_parser = quote)]
    quote: Option<Quote>,

    /// What takes the next character as it is inside quotes in CSV, besides a doubled quote
    #[arg(long, value_name = "CHAR", value_parser = one_byte)]
    escape: Option<u8>,

    /// The first line of each CSV file names the columns [default: found in the file]
    #[arg(long, overrides_with = "no_header")]
    header: bool,

    /// The first line of each CSV file is data
    #[arg(long, overrides_with = "header")]
    no_header: bool,

    /// Unquoted text that means NULL in CSV, besides the empty field; may be repeated
    #[arg(long, value_name = "TEXT")]
    null: Vec<String>,

    #[command(flatten)]
    dialect: dialect::DialectArgs,

    /// Names and types of the columns, as in CREATE TABLE [default: found in the files]
    #[arg(long, value_name = "COLUMNS", conflicts_with = "type")]
    columns: Option<String>,

    /// Type of one column, instead of the one found in the files; may be repeated
    #[arg(long, value_name = "COLUMN=TYPE", value_parser = column_type)]
    r#type: Vec<(String, String)>,

    /// Columns by which a new table's rows are sorted on the way in, so that queries on them skip
    /// chunks
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    cluster_by: Vec<String>,

    /// Column by whose hash a new table is cut into N partitions, so that look-ups and joins on it
    /// read one
    #[arg(long, value_name = "COLUMN=N", value_parser = partition_by)]
    partition_by: Option<(String, u32)>,

    /// What to do with columns that the table does not have
    #[arg(long, value_enum, value_name = "WHAT", default_value = "refuse")]
    new_columns: NewColumnsArg,

    /// Bad rows to leave out before the load fails
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_errors: u64,

    /// Write the rows left out to this CSV file: file, line, column, value, reason, record
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,

    /// Commit after every N files, or after every file that makes it so many bytes, such as 10GiB
    #[arg(long, value_name = "N|SIZE", value_parser = commit_every)]
    commit_every: Option<CommitEvery>,

    /// Skip the files that the table has already
    #[arg(long)]
    resume: bool,

    /// Go on watching the folders and patterns, and load files that come
    #[arg(long, conflicts_with = "each")]
    follow: bool,

    /// How often --follow looks; a file is loaded once it has not changed in between
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "2s")]
    every: Duration,

    /// Memory for input and rows on their way
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "512MiB")]
    memory: u64,

    /// Threads that read and encode [default: the cores of this machine]
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<usize>,

    /// Show no progress and no summary
    #[arg(short, long)]
    quiet: bool,
}

const USAGE: &str = "\
thalweg load [OPTIONS] DB [SCHEMA.]TABLE FILE…
       thalweg load [OPTIONS] DB [SCHEMA.]TABLE=FILE[,FILE…]…
       thalweg load [OPTIONS] DB --each FILE…
       thalweg load [OPTIONS] DB --manifest FILE";

const AFTER: &str = "\
Examples:
  thalweg load shop.db orders orders.csv
  thalweg load shop.db orders orders.csv --dry-run          what would be made of it
  thalweg load shop.db orders 2024/*.csv.gz --null NA --delimiter ';'
  thalweg load shop.db orders orders.csv --type zip=varchar --type 'price=decimal(12,2)'
  thalweg load shop.db orders dirty.csv --max-errors 100 --rejects bad.csv
  thalweg load shop.db sales.events events/ --format jsonl --new-columns add
  thalweg load shop.db orders orders.tbl --delimiter '|' --no-header \\
      --columns 'id bigint, day date, price decimal(12,2)' --cluster-by day
  thalweg load flights.db --each data/*.csv          each file into a table of its own
  thalweg load flights.db airports=air.csv flights='data/flights-*.csv'
  thalweg load shop.db events inbox/ --follow        every file that comes into inbox/
  unzip -p events.zip | thalweg load shop.db events -
  thalweg load big.db logs logs/ --commit-every 50GiB --resume

In CSV an empty field is NULL and \"\" is the empty string. docs/load.md has the details.";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum InputFormat {
    /// comma-separated values, and other separators
    Csv,
    /// one JSON object per line
    Jsonl,
    /// a sheet of an Excel workbook
    Xlsx,
    /// Apache Parquet
    Parquet,
    /// Arrow IPC files
    Arrow,
}

#[derive(Clone, Copy, Debug)]
struct Quote(Option<u8>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NewColumnsArg {
    /// fail, naming them
    Refuse,
    /// add them to the table
    Add,
    /// leave them out
    Ignore,
}

impl From<NewColumnsArg> for NewColumns {
    fn from(arg: NewColumnsArg) -> Self {
        match arg {
            NewColumnsArg::Refuse => NewColumns::Refuse,
            NewColumnsArg::Add => NewColumns::Add,
            NewColumnsArg::Ignore => NewColumns::Ignore,
        }
    }
}

pub fn run(args: Args) -> Outcome {
    if args.database == MEMORY && !args.dry_run {
        return Err(Error::user(format!("a load into {MEMORY} would be lost at once"))
            .hint("name a folder; a query can also read files in place")
            .into());
    }
    let mut targets = targets(&args)?;
    let spooled = spool::spool(&mut targets)?;
    // Before the database is opened: a mistyped file must not leave an empty one behind.
    let requests = if args.follow { follow::check(&targets)? } else { requests(&targets)? };
    let settings = Settings { threads: args.threads, stays: args.follow, ..Settings::default() };
    if args.dry_run {
        let new = Made::by_opening(&args.database).is_some();
        let place = if new { MEMORY } else { &args.database };
        let engine = database::open(place, new, &settings)?;
        return dry_run(&args, &engine, requests);
    }
    let made = Made::by_opening(&args.database);
    let engine = database::open(&args.database, true, &settings)?;
    let session = engine.session();
    let watch = {
        let session = session.clone();
        interrupt::watch(move || session.cancel())
    };
    let outcome = if args.follow {
        follow::follow(&args, &targets, &engine, &session, &watch)
    } else {
        // Spooled files have names that nobody will use again.
        let load = Load { remember: spooled.is_none(), ..load(&args, requests) };
        load_once(&args, &engine, &session, load, &watch)
    };
    if let (Some(made), true) = (made, outcome.is_err()) {
        made.take_back(&engine);
    }
    outcome
}

/// How long a load that failed or was cancelled may take to end all its tasks.
const TASKS_END: Duration = Duration::from_secs(10);

/// What opening a database makes where there was none, to be taken back if nothing comes of it.
enum Made {
    Folder(PathBuf),
    /// In a folder that was there and empty.
    Content(PathBuf),
}

impl Made {
    fn by_opening(location: &str) -> Option<Made> {
        let path = Path::new(location);
        if location.contains("://") {
            return None;
        }
        match std::fs::read_dir(path) {
            Ok(mut entries) => entries.next().is_none().then(|| Made::Content(path.to_owned())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                Some(Made::Folder(path.to_owned()))
            }
            Err(_) => None,
        }
    }

    /// Removes the database if nothing is in it. What cannot be removed stays: the load's own
    /// error is the one to tell.
    fn take_back(self, engine: &Engine) {
        // What was cancelled may still be writing.
        let start = Instant::now();
        while !engine.queries().is_empty() && start.elapsed() < TASKS_END {
            std::thread::sleep(Duration::from_millis(5));
        }
        // As long as this is held no other process can put something in.
        let Ok(_writing) = engine.database().writing() else { return };
        let Ok(snapshot) = engine.database().refresh() else { return };
        if snapshot.schemas.len() <= 1 && snapshot.schemas.values().all(|s| s.is_empty()) {
            self.remove();
        }
    }

    fn remove(self) {
        match self {
            Made::Folder(path) => drop(std::fs::remove_dir_all(path)),
            Made::Content(path) => {
                for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
                    let path = entry.path();
                    let _ = match path.is_dir() {
                        true => std::fs::remove_dir_all(path),
                        false => std::fs::remove_file(path),
                    };
                }
            }
        }
    }
}

fn requests(targets: &[Target]) -> Result<Vec<LoadRequest>> {
    targets.iter().map(|target| target.request(&target.files)).collect()
}

/// The whole command line but for the tables.
fn load(args: &Args, requests: Vec<LoadRequest>) -> Load {
    Load {
        requests,
        rejects_max: args.max_errors,
        reject_file: args.rejects.clone(),
        memory_bytes: args.memory as usize,
        commit_every: args.commit_every,
        resume: args.resume,
        remember: true,
    }
}

fn load_once(
    args: &Args,
    engine: &Arc<Engine>,
    session: &Session,
    load: Load,
    watch: &Watch,
) -> Outcome {
    let start = Instant::now();
    let several = load.requests.len() > 1;
    let progress = Arc::new(LoadProgress::default());
    let result = {
        let _shown = (!args.quiet).then(|| show(Arc::clone(&progress), several));
        engine.block_on(session.load(load, Arc::clone(&progress)))
    };
    let reports = result.map_err(|e| {
        let e = watch.explain(e);
        match progress.files_committed.load(Ordering::Relaxed) {
            0 => e,
            files => e.hint(format!(
                "{} files are loaded and stay; the same command with --resume loads the others",
                text::count(files)
            )),
        }
    })?;
    if !args.quiet {
        report::loaded(&reports, args.rejects.as_deref(), start.elapsed().as_secs_f64())?;
    }
    Ok(())
}

fn dry_run(args: &Args, engine: &Arc<Engine>, requests: Vec<LoadRequest>) -> Outcome {
    let session = engine.session();
    let watch = {
        let session = session.clone();
        interrupt::watch(move || session.cancel())
    };
    let several = requests.len() > 1;
    let progress = Arc::new(LoadProgress::default());
    let plans = {
        let _shown = (!args.quiet).then(|| show(Arc::clone(&progress), several));
        engine
            .block_on(session.plan_load(load(args, requests), Arc::clone(&progress)))
            .map_err(|e| watch.explain(e))?
    };
    report::planned(&plans)
}

fn show(progress: Arc<LoadProgress>, several: bool) -> Progress {
    Progress::start(move || Sample {
        table: several.then(|| progress.table.lock().clone()),
        looking: progress.inferring.load(Ordering::Relaxed),
        rows: progress.rows.load(Ordering::Relaxed),
        rejected: progress.rejected.load(Ordering::Relaxed),
        bytes_done: progress.bytes_done.load(Ordering::Relaxed),
        bytes_total: progress.bytes_total.load(Ordering::Relaxed),
    })
}

fn delimiter(value: &str) -> std::result::Result<u8, String> {
    match value {
        "tab" | "\\t" => Ok(b'\t'),
        _ => one_byte(value),
    }
}

fn quote(value: &str) -> std::result::Result<Quote, String> {
    match value {
        "none" | "" => Ok(Quote(None)),
        _ => one_byte(value).map(|b| Quote(Some(b))),
    }
}

fn one_byte(value: &str) -> std::result::Result<u8, String> {
    match value.as_bytes() {
        [b] if b.is_ascii() && !b"\r\n".contains(b) => Ok(*b),
        _ => Err("expected one ASCII character".to_string()),
    }
}

fn column_type(value: &str) -> std::result::Result<(String, String), String> {
    match value.split_once('=').map(|(column, told)| (column.trim(), told.trim())) {
        Some((column, told)) if !column.is_empty() && !told.is_empty() => {
            Ok((column.to_owned(), told.to_owned()))
        }
        _ => Err("expected COLUMN=TYPE, such as zip=varchar".to_string()),
    }
}

fn partition_by(value: &str) -> std::result::Result<(String, u32), String> {
    let parts = value.rsplit_once('=').map(|(column, n)| (column.trim(), n.trim().parse()));
    match parts {
        Some((column, Ok(n))) if !column.is_empty() => Ok((column.to_owned(), n)),
        _ => Err("expected COLUMN=N, such as customer=16".to_string()),
    }
}

pub fn size(value: &str) -> std::result::Result<u64, String> {
    let example = text::bytes(LOAD_MEMORY_BYTES as u64).replace(".0 ", "");
    match text::parse_bytes(value) {
        Some(n) if n >= LOAD_WORKER_BYTES_MIN as u64 => Ok(n),
        Some(_) => {
            let least = text::bytes(LOAD_WORKER_BYTES_MIN as u64);
            Err(format!("at least {least} are needed, such as {example}"))
        }
        None => Err(format!("expected a size, such as {example}")),
    }
}

fn commit_every(value: &str) -> std::result::Result<CommitEvery, String> {
    match (value.parse::<u64>(), text::parse_bytes(value)) {
        (Ok(files), _) if files > 0 => Ok(CommitEvery::Files(files)),
        (Err(_), Some(bytes)) => Ok(CommitEvery::Bytes(bytes)),
        _ => Err("expected a number of files, or a size, such as 10GiB".to_string()),
    }
}

fn duration(value: &str) -> std::result::Result<Duration, String> {
    match text::parse_duration(value) {
        Some(d) if (0.01..1e6).contains(&d.as_secs_f64()) => Ok(d),
        _ => Err("expected a time, such as 2s, 500ms or 5min".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_one_byte() {
        assert_eq!(delimiter("tab"), Ok(b'\t'));
        assert_eq!(delimiter("|"), Ok(b'|'));
        assert!(delimiter("ü").is_err() && delimiter("ab").is_err() && delimiter("").is_err());
        assert!(matches!(quote("none"), Ok(Quote(None))));
    }

    #[test]
    fn sizes_and_times_have_units() {
        assert_eq!(size("512MiB"), Ok(512 << 20));
        assert_eq!(size("1.5 gib"), Ok(3 << 29));
        assert_eq!(size("20MB"), Ok(20_000_000));
        assert!(size("1MiB").unwrap_err().contains("16.0 MiB"));
        assert!(size("64").unwrap_err().contains("512MiB"));
        assert_eq!(commit_every("100"), Ok(CommitEvery::Files(100)));
        assert_eq!(commit_every("10GiB"), Ok(CommitEvery::Bytes(10 << 30)));
        assert!(commit_every("0").is_err() && commit_every("x").is_err());
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2"), Ok(Duration::from_secs(2)));
        let told = |c: &str, t: &str| Ok((c.to_owned(), t.to_owned()));
        assert_eq!(column_type("price = decimal(12,2)"), told("price", "decimal(12,2)"));
        assert!(column_type("zip").is_err() && column_type("=int").is_err());
        assert!(duration("0").is_err() && duration("-1s").is_err());
    }
}
