//! How fast CSV files go into a database, how small they become and what memory that takes, run
//! by run in turn with DuckDB; its Parquet files with zstd are the yardstick of size.
//!
//! Both engines get the same files, the same `CREATE TABLE`s and as many threads. A load begins
//! with no database and ends when all of it is durable, which for DuckDB is after a CHECKPOINT.

use std::path::{Path, PathBuf};
use std::time::Duration;

use thalweg_base::{Error, Result, text};

use crate::data_set::DataSet;
use crate::disk;
use crate::peers::{self, Bulk, BulkLoaded, Peer, PeerKind};
use crate::report::load_rate::{self, DiskRate, LoadRate, LoadRates, Measured, TableRate};
use crate::report::model::{Report, Timing};
use crate::report::text as printed;
use crate::run::{self, DataSetKind, Options, Watch, say};
use crate::worker::{self, LoadTask, Loaded};

/// A load of the peer that takes longer is given up.
const PEER_TIMEOUT: Duration = Duration::from_secs(3600);

pub(crate) fn run(options: &Options, watch: &Watch) -> Result<()> {
    let kinds = match options.data_sets.as_slice() {
        [] => DataSetKind::ALL.to_vec(),
        chosen => chosen.to_vec(),
    };
    let python = peers::venv(&peers::venv_dir(), &say)?;
    let folder = Folder::new(options, &kinds)?;
    let mut sets = vec![];
    for kind in kinds {
        sets.push(DataSet::find(kind, options, &python, watch)?);
    }
    let mut report = Report::new("Load", options.scale_factor, run::us(options));
    let look = printed::Options::stdout();
    println!("{}", printed::head(&report, look));
    run::warn_unoptimised(&mut report);
    say("measuring what the disk can write");
    let write_limit = disk::write_limit(folder.path())?;
    println!(
        "The disk's limit: {} MB/s ({})\n",
        load_rate::megabytes(write_limit.mb_per_s),
        write_limit.method
    );
    let mut rates =
        LoadRates { peer: String::new(), runs: options.runs, write_limit, data_sets: vec![] };
    for set in &sets {
        let race = Race { set, python: &python, folder: folder.path(), threads: options.threads };
        let (peer, rate) = race.run(options.runs, &rates.write_limit)?;
        rates.peer = peer;
        println!("{}", load_rate::text(&rate, &rates, look));
        rates.data_sets.push(rate);
    }
    report.load_rates = Some(rates);
    run::write(options, &report)
}

/// Where the databases are made. On the disk of the data, because a temporary folder may be in
/// memory.
enum Folder {
    Kept(PathBuf),
    Temporary(tempfile::TempDir),
}

impl Folder {
    fn new(options: &Options, kinds: &[DataSetKind]) -> Result<Folder> {
        let place = match &options.database {
            Some(place) => place.clone(),
            None => run::data_folder(options),
        };
        let failed = |e| Error::io(format!("cannot use the folder \"{}\"", place.display()), e);
        std::fs::create_dir_all(&place).map_err(failed)?;
        if options.database.is_none() {
            return tempfile::tempdir_in(&place).map(Folder::Temporary).map_err(failed);
        }
        // They are removed before every run: never those of somebody else.
        for kind in kinds {
            for path in [database(&place, *kind), peer_database(&place, *kind)] {
                if path.exists() {
                    return Err(Error::user(format!("\"{}\" is there already", path.display()))
                        .hint("remove it, or name another folder with --db"));
                }
            }
        }
        Ok(Folder::Kept(place))
    }

    fn path(&self) -> &Path {
        match self {
            Folder::Kept(path) => path,
            Folder::Temporary(folder) => folder.path(),
        }
    }
}

fn database(folder: &Path, kind: DataSetKind) -> PathBuf {
    folder.join(format!("{}.db", kind.name()))
}

fn peer_database(folder: &Path, kind: DataSetKind) -> PathBuf {
    folder.join(format!("{}.duckdb", kind.name()))
}

/// One data set into both engines, in turn.
struct Race<'a> {
    set: &'a DataSet,
    python: &'a Path,
    folder: &'a Path,
    threads: usize,
}

impl Race<'_> {
    /// The peer with its version, and what was found.
    fn run(&self, runs: usize, write_limit: &DiskRate) -> Result<(String, LoadRate)> {
        let title = &self.set.title;
        say(&format!("{title}: reading the files once, so that both find them in memory"));
        disk::warm(&self.set.files())?;
        let mut ours = vec![];
        let mut theirs = vec![];
        let mut peer = String::new();
        for run in 0..runs {
            // Who goes first changes, in case that matters.
            for turn in 0..2 {
                let (who, seconds) = if (run + turn) % 2 == 0 {
                    ours.push(self.load()?);
                    ("Thalweg", ours[run].seconds)
                } else {
                    let (version, loaded) = self.load_peer()?;
                    peer = version;
                    theirs.push(loaded);
                    (peer.as_str(), theirs[run].seconds)
                };
                let seconds = text::seconds(seconds);
                say(&format!("{title}, run {} of {runs}: {who} {seconds}", run + 1));
            }
        }
        let parquet = self.parquet()?;
        Ok((peer, self.rate(&ours, &theirs, &parquet, write_limit)?))
    }

    fn load(&self) -> Result<Loaded> {
        let database = database(self.folder, self.set.kind);
        remove(&database)?;
        worker::load(LoadTask {
            database,
            schema: self.set.schema.to_string(),
            tables: self.set.tables.clone(),
            null: self.set.null.to_string(),
            threads: self.threads,
        })
    }

    fn load_peer(&self) -> Result<(String, BulkLoaded)> {
        let database = peer_database(self.folder, self.set.kind);
        remove(&database)?;
        let mut peer = self.peer()?;
        let loaded = peer.bulk_load(&self.bulk(&database))?;
        Ok((format!("{} {}", peer.kind().name(), peer.version()), loaded))
    }

    /// Sizes of the peer's tables as Parquet, in the order of the tables.
    fn parquet(&self) -> Result<Vec<u64>> {
        say(&format!("{}: writing Parquet with zstd for its size", self.set.title));
        let database = peer_database(self.folder, self.set.kind);
        let folder = self.folder.join(format!("{}.parquet", self.set.kind.name()));
        let failed = |e| Error::io(format!("cannot make \"{}\"", folder.display()), e);
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let sizes = self.peer()?.parquet(&self.bulk(&database), &folder);
        remove(&folder)?;
        remove(&database)?;
        sizes
    }

    fn peer(&self) -> Result<Peer> {
        Peer::start(self.python, PeerKind::DuckDb, self.threads, PEER_TIMEOUT)
    }

    fn bulk<'a>(&'a self, database: &'a Path) -> Bulk<'a> {
        Bulk {
            database,
            schema: self.set.schema,
            tables: &self.set.tables,
            null: self.set.null,
            threads: self.threads,
        }
    }

    fn rate(
        &self,
        ours: &[Loaded],
        theirs: &[BulkLoaded],
        parquet: &[u64],
        write_limit: &DiskRate,
    ) -> Result<LoadRate> {
        let (Some(last), Some(last_peer)) = (ours.last(), theirs.last()) else {
            return Err(Error::user("--runs must be at least 1"));
        };
        let mut tables = vec![];
        for (i, t) in last.tables.iter().enumerate() {
            let lost = || Error::internal(format!("a run did not load table \"{}\"", t.table));
            let peer = last_peer.tables.get(i).ok_or_else(lost)?;
            if peer.rows != t.rows {
                let (title, table) = (&self.set.title, &t.table);
                return Err(Error::internal(format!(
                    "{title}: table \"{table}\" has {} rows here and {} in the peer",
                    text::count(t.rows),
                    text::count(peer.rows)
                )));
            }
            let times = ours.iter().filter_map(|run| run.tables.get(i)).map(|t| t.seconds);
            let peer_times = theirs.iter().filter_map(|run| run.tables.get(i)).map(|t| t.seconds);
            tables.push(TableRate::new(Measured {
                table: &t.table,
                rows: t.rows,
                raw_bytes: t.raw_bytes,
                stored_bytes: t.stored_bytes,
                extents: t.extents,
                chunks: t.chunks,
                timing: timing(times).ok_or_else(lost)?,
                peer_timing: timing(peer_times).ok_or_else(lost)?,
                peer_stored_bytes: peer.stored_bytes,
                parquet_bytes: parquet.get(i).copied().ok_or_else(lost)?,
            }));
        }
        let (files, stored_bytes) = disk::usage(&database(self.folder, self.set.kind))?;
        let sum = |f: fn(&TableRate) -> u64| tables.iter().map(f).sum();
        let lost = || Error::internal("a load without a run");
        let total = TableRate::new(Measured {
            table: "Total",
            rows: sum(|t| t.rows),
            raw_bytes: sum(|t| t.raw_bytes),
            stored_bytes,
            extents: sum(|t| t.extents),
            chunks: sum(|t| t.chunks),
            timing: timing(ours.iter().map(|run| run.seconds)).ok_or_else(lost)?,
            peer_timing: timing(theirs.iter().map(|run| run.seconds)).ok_or_else(lost)?,
            peer_stored_bytes: last_peer.stored_bytes,
            parquet_bytes: sum(|t| t.parquet_bytes),
        });
        let memory = [
            ours.iter().map(|run| run.memory_peak_bytes).max().unwrap_or(0),
            theirs.iter().map(|run| run.memory_peak_bytes).max().unwrap_or(0),
        ];
        Ok(LoadRate::new(&self.set.title, tables, total, files, write_limit, memory))
    }
}

fn timing(seconds: impl Iterator<Item = f64>) -> Option<Timing> {
    Timing::new(seconds.map(|s| s * 1e3).collect())
}

/// A file or a folder of ours, if it is there; DuckDB keeps a log beside its file.
fn remove(path: &Path) -> Result<()> {
    let mut log = path.as_os_str().to_owned();
    log.push(".wal");
    for path in [path, Path::new(&log)] {
        let removed = match path.is_dir() {
            true => std::fs::remove_dir_all(path),
            false => std::fs::remove_file(path),
        };
        match removed {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io(format!("cannot remove \"{}\"", path.display()), e));
            }
            _ => {}
        }
    }
    Ok(())
}
