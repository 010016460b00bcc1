//! What share of the disk's read rate a scan of a whole table reaches: SSB's fact table, all of
//! its columns, in turn with a reader of the same files that does nothing else. As a server: in this
//! process, which has had the memory for it before, and past the page cache (`engine.direct_io`). And as
//! a command: in a new process, which the system gives its memory meanwhile, and through the page cache.

use std::path::PathBuf;

use arrow::datatypes::{DataType, SchemaRef};
use thalweg_base::{Error, Result, text};
use thalweg_engine::{Config, Engine};

use crate::disk;
use crate::generate::Benchmark;
use crate::load;
use crate::report::cold_scan::{self, ColdScan, Measured, ScanRate};
use crate::report::model::{Report, Timing};
use crate::report::text as printed;
use crate::run::{self, Options, Watch, say};
use crate::worker::{self, ScanTask};
use crate::workload::Workload;

const TABLE: &str = "lineorder";

pub(crate) fn run(options: &Options, watch: &Watch) -> Result<()> {
    let mut report = Report::new("Scan of SSB", options.scale_factor, run::us(options));
    let look = printed::Options::stdout();
    println!("{}", printed::head(&report, look));
    run::warn_unoptimised(&mut report);
    let temporary;
    let database = match &options.database {
        Some(path) => path.clone(),
        None => {
            let place = run::data_folder(options);
            let failed = |e| Error::io(format!("cannot use the folder \"{}\"", place.display()), e);
            std::fs::create_dir_all(&place).map_err(failed)?;
            temporary = tempfile::tempdir_in(&place).map_err(failed)?;
            temporary.path().join("db")
        }
    };
    let table = Stored::find(&database, options, watch)?;
    let scan = table.measure(database, options)?;
    println!("{}", cold_scan::text(&scan, look));
    report.cold_scan = Some(scan);
    run::write(options, &report)
}

/// The table as it lies on disk.
struct Stored {
    rows: u64,
    sql: String,
    column_bytes: u64,
    file_bytes: u64,
    /// One per extent.
    files: Vec<PathBuf>,
}

impl Stored {
    /// Loads it, unless it is there.
    fn find(database: &std::path::Path, options: &Options, watch: &Watch) -> Result<Stored> {
        let (_, files) = run::data(options, Benchmark::Ssb, options.format, watch)?;
        let config = Config { threads: options.threads, ..Config::default() };
        let engine = Engine::open(&database.to_string_lossy(), config)?;
        load::load(&engine, &Workload::new(Benchmark::Ssb)?, &files, watch)?;
        let snapshot = engine.database().snapshot();
        let lost = || Error::internal(format!("the load made no table \"{TABLE}\""));
        let table = snapshot.table("public", TABLE).ok_or_else(lost)?;
        let contents = table.contents()?;
        let columns = 0..table.arrow_schema.fields().len();
        let column_bytes = (0..contents.chunks())
            .map(|i| contents.chunk(i))
            .map(|chunk| columns.clone().map(|c| chunk.stored_bytes(c)).sum::<u64>())
            .sum();
        let files: Option<Vec<PathBuf>> = table.extents.iter().map(|e| e.extent.path()).collect();
        let files = files.ok_or_else(|| {
            Error::unsupported("a cold scan is measured on files of this machine")
                .hint("name a local folder with --db")
        })?;
        Ok(Stored {
            rows: table.rows(),
            sql: all_columns(&table.arrow_schema),
            column_bytes,
            file_bytes: table.stored_bytes(),
            files,
        })
    }

    fn measure(&self, database: PathBuf, options: &Options) -> Result<ColdScan> {
        let (mut firsts, mut scans, mut reads) = (vec![], vec![], vec![]);
        let sql = self.sql.clone();
        let served = ScanTask { database, sql, threads: options.threads, direct: true };
        let command = ScanTask { direct: false, ..served.clone() };
        if !options.cold {
            disk::warm(&self.files)?;
        }
        // So that this process has its memory.
        worker::scan_here(&served)?;
        for run in 0..options.runs {
            for turn in 0..3 {
                if options.cold {
                    disk::drop_cache(&self.files)?;
                }
                let (who, seconds) = match (run + turn) % 3 {
                    0 => {
                        scans.push(worker::scan_here(&served)?);
                        ("Thalweg, as a server", scans[run].seconds)
                    }
                    1 => {
                        reads.push(disk::read(&self.files, options.cold)?);
                        ("the files alone", reads[run].seconds)
                    }
                    _ => {
                        firsts.push(worker::scan(command.clone())?.seconds);
                        ("Thalweg, as a command", firsts[run])
                    }
                };
                let seconds = text::seconds(seconds);
                say(&format!("run {} of {}: {who} {seconds}", run + 1, options.runs));
            }
        }
        let (Some(read), n) = (reads.last(), scans.len()) else {
            return Err(Error::user("--runs must be at least 1"));
        };
        let rate = |bytes: u64, seconds: Vec<f64>| {
            Timing::new(seconds.into_iter().map(|s| s * 1e3).collect())
                .map(|timing| ScanRate::new(bytes, timing))
                .ok_or_else(|| Error::internal("a scan without a run"))
        };
        let wall: f64 = scans.iter().map(|s| s.seconds).sum();
        let cpu: f64 = scans.iter().map(|s| s.cpu_seconds).sum();
        Ok(ColdScan::new(Measured {
            table: TABLE.into(),
            rows: self.rows,
            sql: self.sql.clone(),
            cold: options.cold,
            column_bytes: self.column_bytes,
            file_bytes: self.file_bytes,
            extents: self.files.len() as u64,
            scan: rate(self.column_bytes, scans.iter().map(|s| s.seconds).collect())?,
            first: rate(self.column_bytes, firsts)?,
            cpu_percent: cpu * 100.0 / (wall * options.threads as f64),
            read_bytes: scans.iter().map(|s| s.read_bytes).sum::<u64>() / n as u64,
            reader: rate(read.bytes, reads.iter().map(|r| r.seconds).collect())?,
            reader_bytes: read.bytes,
            method: read.method.clone(),
        }))
    }
}

/// A query that needs every value: statistics answer no sum.
fn all_columns(schema: &SchemaRef) -> String {
    let sums = schema.fields().iter().map(|field| {
        let name = text::quoted(field.name());
        match field.data_type() {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                format!("sum(octet_length({name}))")
            }
            _ => format!("sum({name})"),
        }
    });
    format!("SELECT {} FROM {TABLE}", sums.collect::<Vec<_>>().join(", "))
}
