//! `thalweg load`: files into tables, all in one transaction.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use arrow::array::{ArrayRef, Float64Array, StringArray, UInt64Array};
use arrow::record_batch::RecordBatch;
use clap::ValueEnum;
use thalweg_base::{Error, Result, text};
use thalweg_engine::{LoadProgress, LoadReport, LoadRequest};
use thalweg_storage::load::{self, CsvOptions, Format};

use super::sql::threads;
use crate::catalog::Listing;
use crate::database::{self, MEMORY, Settings};
use crate::failure::Outcome;
use crate::interrupt;
use crate::output::Format as OutputFormat;
use crate::output::sink::Sink;
use crate::progress::{Progress, Sample};

/// Load files into tables
///
/// Creates the database and the table if they are not there, with column names and types taken
/// from the files, or else appends to the table. Files, folders and patterns are read in
/// parallel; CSV, JSON lines, Parquet and Arrow files are told apart by their names and first
/// bytes, and .gz and .zst files are decompressed on the way.
///
/// Everything one command loads becomes visible at once when it is done. A load that fails or
/// is cancelled changes nothing.
#[derive(clap::Args)]
#[command(after_long_help = AFTER, override_usage = USAGE)]
pub struct Args {
    /// Folder of the database; created if it is not there
    #[arg(value_name = "DB")]
    database: String,

    /// A table and its files; or TABLE=FILE[,FILE…] for each of several tables; or, with --each,
    /// only files
    #[arg(value_name = "TABLE FILES", required = true)]
    what: Vec<String>,

    /// Load every file into the table named like it: data/orders.csv.gz into "orders"
    #[arg(long)]
    each: bool,

    /// Format of the files, if their names do not say it
    #[arg(long, value_enum)]
    format: Option<InputFormat>,

    /// What separates fields in CSV: one character, or `tab` [default: found in the file]
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    delimiter: Option<u8>,

    /// What encloses fields in CSV: one character, or `none` [default: "]
    #[arg(long, value_name = "CHAR", value_parser = quote)]
    quote: Option<Quote>,

    /// The first line of each CSV file names the columns [default: found in the file]
    #[arg(long, overrides_with = "no_header")]
    header: bool,

    /// The first line of each CSV file is data
    #[arg(long, overrides_with = "header")]
    no_header: bool,

    /// Unquoted text that means NULL in CSV, besides the empty field; may be repeated
    #[arg(long, value_name = "TEXT")]
    null: Vec<String>,

    /// Names and types of the columns, as in CREATE TABLE [default: found in the files]
    #[arg(long, value_name = "COLUMNS")]
    columns: Option<String>,

    /// Columns by which a new table's rows are sorted on the way in, so that queries on them skip
    /// chunks
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    cluster_by: Vec<String>,

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
       thalweg load [OPTIONS] DB --each FILE…";

const AFTER: &str = "\
Examples:
  thalweg load shop.db orders orders.csv
  thalweg load shop.db orders 2024/*.csv.gz --null NA --delimiter ';'
  thalweg load shop.db sales.events events/ --format jsonl
  thalweg load shop.db orders orders.tbl --delimiter '|' --no-header \\
      --columns 'id bigint, day date, price decimal(12,2)' --cluster-by day
  thalweg load flights.db --each data/*.csv          each file into a table of its own
  thalweg load flights.db airports=air.csv flights='data/flights-*.csv'

In CSV an empty field is NULL and \"\" is the empty string.";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum InputFormat {
    /// comma-separated values, and other separators
    Csv,
    /// one JSON object per line
    Jsonl,
    /// Apache Parquet
    Parquet,
    /// Arrow IPC files
    Arrow,
}

#[derive(Clone, Copy, Debug)]
struct Quote(Option<u8>);

pub fn run(args: Args) -> Outcome {
    if args.database == MEMORY {
        return Err(Error::user(format!("a load into {MEMORY} would be lost at once"))
            .hint("name a folder; a query can also read files in place")
            .into());
    }
    let targets = targets(&args)?;
    one_table_only(&args, &targets)?;
    let several = targets.len() > 1;
    // Before the database is opened: a mistyped file must not leave an empty one behind.
    let requests: Result<Vec<_>> =
        targets.into_iter().map(|(table, files)| request(&args, table, files)).collect();
    let requests = requests?;
    let settings = Settings { threads: args.threads, policy: None };
    let engine = database::open(&args.database, true, &settings)?;
    let session = engine.session();

    let start = Instant::now();
    let reports = {
        let progress = Arc::new(LoadProgress::default());
        let _shown = (!args.quiet).then(|| show(progress.clone(), several));
        let watch = {
            let session = session.clone();
            interrupt::watch(move || session.cancel())
        };
        engine.block_on(session.load(requests, progress)).map_err(|e| watch.explain(e))?
    };
    if !args.quiet {
        summary(&reports, start.elapsed().as_secs_f64())?;
    }
    Ok(())
}

/// Which files go into which table.
fn targets(args: &Args) -> Result<BTreeMap<String, Vec<String>>> {
    if args.each {
        return each(&args.what);
    }
    let pairs = args.what[0].contains('=');
    if pairs {
        return args.what.iter().try_fold(BTreeMap::new(), |mut targets, what| {
            let Some((table, files)) =
                what.split_once('=').filter(|(t, f)| !t.is_empty() && !f.is_empty())
            else {
                return Err(Error::user(format!("{} is not TABLE=FILE", text::quoted(what))).hint(
                    "after one TABLE=FILE all must be; without `=` only one table is loaded",
                ));
            };
            // A comma may be part of a name.
            let files: Vec<_> = match Path::new(files).exists() {
                true => vec![files.to_string()],
                false => files.split(',').map(String::from).collect(),
            };
            targets.entry(table.to_string()).or_insert_with(Vec::new).extend(files);
            Ok(targets)
        });
    }
    let (table, files) = (&args.what[0], &args.what[1..]);
    if files.is_empty() {
        return Err(Error::user(format!(
            "there are no files to load into {}",
            text::quoted(table)
        ))
        .hint("thalweg load DB TABLE FILE…, or thalweg load DB --each FILE…"));
    }
    Ok(BTreeMap::from([(table.clone(), files.to_vec())]))
}

fn each(what: &[String]) -> Result<BTreeMap<String, Vec<String>>> {
    let mut targets = BTreeMap::new();
    for path in load::expand(what)? {
        let file = path.to_string_lossy().into_owned();
        let table = stem(&path);
        if table.is_empty() {
            return Err(Error::user(format!(
                "the name of {} gives no table name",
                text::quoted(&file)
            ))
            .hint("use TABLE=FILE"));
        }
        if let Some(other) = targets.insert(table.clone(), vec![file.clone()]) {
            return Err(Error::user(format!(
                "two files are named like the table {}",
                text::quoted(&table)
            ))
            .detail(format!("{} and {file}", other.concat()))
            .hint(format!("to load both into it: {table}=FILE,FILE")));
        }
    }
    Ok(targets)
}

/// `data/orders.csv.gz` → `orders`.
fn stem(path: &Path) -> String {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    name.split('.').next().unwrap_or_default().to_string()
}

fn one_table_only(args: &Args, targets: &BTreeMap<String, Vec<String>>) -> Result<()> {
    let option = match (&args.columns, args.cluster_by.is_empty()) {
        (Some(_), _) => "--columns",
        (None, false) => "--cluster-by",
        (None, true) => return Ok(()),
    };
    if targets.len() == 1 {
        return Ok(());
    }
    Err(Error::user(format!("{option} describes one table, but {} are loaded", targets.len()))
        .hint("load this table with a command of its own"))
}

fn request(args: &Args, table: String, files: Vec<String>) -> Result<LoadRequest> {
    let csv = csv_options(args, &load::expand(&files)?)?;
    let format = args.format.map(|format| match format {
        InputFormat::Csv => Format::Csv(csv.clone().unwrap_or_default()),
        InputFormat::Jsonl => Format::JsonLines,
        InputFormat::Parquet => Format::Parquet,
        InputFormat::Arrow => Format::Arrow,
    });
    let (columns, cluster_by) = (args.columns.clone(), args.cluster_by.clone());
    Ok(LoadRequest { table, files, format, csv, columns, cluster_by })
}

/// What the files look like, overridden by what the command line says; `None` if it says nothing.
fn csv_options(args: &Args, files: &[PathBuf]) -> Result<Option<CsvOptions>> {
    let header = match (args.header, args.no_header) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    };
    let told = args.delimiter.is_some()
        || args.quote.is_some()
        || header.is_some()
        || !args.null.is_empty()
        || args.format == Some(InputFormat::Csv);
    if !told {
        return Ok(None);
    }
    let mut csv = match (args.delimiter, files.first()) {
        (Some(delimiter), _) => CsvOptions { delimiter, ..CsvOptions::default() },
        (None, Some(file)) => match load::format_of(file)? {
            (Format::Csv(found), _) => found,
            _ => CsvOptions::default(),
        },
        (None, None) => CsvOptions::default(),
    };
    if let Some(Quote(quote)) = args.quote {
        csv.quote = quote;
    }
    csv.header = header;
    csv.nulls.extend(args.null.iter().cloned());
    Ok(Some(csv))
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

fn show(progress: Arc<LoadProgress>, several: bool) -> Progress {
    Progress::start(move || Sample {
        table: several.then(|| progress.table.lock().clone()),
        rows: progress.rows.load(Ordering::Relaxed),
        bytes_done: progress.bytes_done.load(Ordering::Relaxed),
        bytes_total: progress.bytes_total.load(Ordering::Relaxed),
    })
}

fn summary(reports: &[LoadReport], seconds: f64) -> Outcome {
    let numbers = |f: fn(&LoadReport) -> u64| {
        Arc::new(reports.iter().map(f).collect::<UInt64Array>()) as ArrayRef
    };
    let ratios = reports.iter().map(|r| ratio(r.raw_bytes, r.stored_bytes));
    let batch = RecordBatch::try_from_iter([
        (
            "table",
            Arc::new(reports.iter().map(|r| Some(&r.table)).collect::<StringArray>()) as ArrayRef,
        ),
        ("rows", numbers(|r| r.rows)),
        ("columns", numbers(|r| r.columns.fields().len() as u64)),
        ("files", numbers(|r| r.files as u64)),
        ("raw_bytes", numbers(|r| r.raw_bytes)),
        ("stored_bytes", numbers(|r| r.stored_bytes)),
        ("ratio", Arc::new(ratios.collect::<Float64Array>()) as ArrayRef),
        ("extents", numbers(|r| r.extents as u64)),
        ("chunks", numbers(|r| r.chunks as u64)),
    ])?;
    let mut sink = Sink::stdout();
    Listing { title: None, batch, count: false }.write(OutputFormat::Table, &mut sink)?;
    let rows: u64 = reports.iter().map(|r| r.rows).sum();
    let raw: u64 = reports.iter().map(|r| r.raw_bytes).sum();
    let stored: u64 = reports.iter().map(|r| r.stored_bytes).sum();
    write!(
        sink,
        "{} rows in {}, {}/s; {} raw, {} stored",
        text::count(rows),
        text::seconds(seconds),
        text::bytes((raw as f64 / seconds.max(1e-6)) as u64),
        text::bytes(raw),
        text::bytes(stored),
    )?;
    match ratio(raw, stored) {
        Some(ratio) => writeln!(sink, " ({ratio:.1} to 1)")?,
        None => writeln!(sink)?,
    }
    sink.finish()
}

/// How many raw bytes one stored byte stands for.
fn ratio(raw: u64, stored: u64) -> Option<f64> {
    (stored > 0).then(|| raw as f64 / stored as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_its_table() {
        assert_eq!(stem(Path::new("data/orders.csv.gz")), "orders");
        assert_eq!(stem(Path::new("orders")), "orders");
        assert_eq!(stem(Path::new(".csv")), "");
    }

    #[test]
    fn characters_are_one_byte() {
        assert_eq!(delimiter("tab"), Ok(b'\t'));
        assert_eq!(delimiter("|"), Ok(b'|'));
        assert!(delimiter("ü").is_err() && delimiter("ab").is_err() && delimiter("").is_err());
        assert!(matches!(quote("none"), Ok(Quote(None))));
    }
}
