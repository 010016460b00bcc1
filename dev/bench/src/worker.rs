//! Loads, scans and queries in a process of its own, so that what they take of memory, processor and
//! disk can be told from everything else. The parent starts `thalweg bench worker`; tasks come on
//! standard input and what was found goes to standard output, both as JSON, a line each.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use serde::{Deserialize, Serialize};
use thalweg_base::{Error, Result};
use thalweg_engine::{
    Config, CsvOptions, DirectIo, Engine, Load, LoadProgress, LoadRequest, Session,
};

use crate::load;
use crate::memory::{self, MemoryTask, Together};
use crate::power::timed;
use crate::report::memory::Limits;
use crate::report::model::LoadTable;
use crate::run::Options;
use crate::workload::Query;

/// How the binary is told to call [`serve`].
const ARGUMENTS: [&str; 2] = ["bench", "worker"];

/// The kernel counts processor time in hundredths of a second, whatever it is built with.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Task {
    Load(LoadTask),
    Scan(ScanTask),
    Memory(MemoryTask),
    /// What the queries that follow are asked of.
    Open(OpenTask),
    Query(Query),
}

/// Opens a database that is there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenTask {
    pub database: PathBuf,
    pub threads: usize,
    pub policy: String,
    /// `None`: as much as an engine takes.
    pub limits: Option<Limits>,
}

impl OpenTask {
    pub fn new(location: &str, options: &Options, limits: Option<Limits>) -> OpenTask {
        let policy = options.policies.first().copied().unwrap_or_default();
        OpenTask {
            database: PathBuf::from(location),
            threads: options.threads,
            policy: policy.name().to_string(),
            limits,
        }
    }
}

/// A query was run to its last row.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Asked {
    pub rows: u64,
    pub ms: f64,
    /// Of the process since its start; 0 where the system does not say.
    pub memory_peak_bytes: u64,
}

/// Makes tables and fills them from CSV files, in one transaction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadTask {
    /// A folder that is not there yet.
    pub database: PathBuf,
    /// One `CREATE TABLE` per table.
    pub schema: String,
    pub tables: Vec<(String, Vec<PathBuf>)>,
    /// What NULL looks like.
    pub null: String,
    pub threads: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Loaded {
    /// From no database to a durable one.
    pub seconds: f64,
    pub tables: Vec<LoadTable>,
    /// 0 where the system does not say.
    pub memory_peak_bytes: u64,
}

/// Runs a query to its last row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScanTask {
    pub database: PathBuf,
    pub sql: String,
    pub threads: usize,
    /// Reads past the page cache, as a server does; else through it, as a command.
    pub direct: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scanned {
    pub seconds: f64,
    /// Of all threads.
    pub cpu_seconds: f64,
    /// From the disk while the query ran, as the kernel counts; 0 where it does not.
    pub read_bytes: u64,
}

pub fn load(task: LoadTask) -> Result<Loaded> {
    ask(&Task::Load(task))
}

pub fn scan(task: ScanTask) -> Result<Scanned> {
    ask(&Task::Scan(task))
}

pub fn memory(task: MemoryTask) -> Result<Together> {
    ask(&Task::Memory(task))
}

fn ask<T: for<'a> Deserialize<'a>>(task: &Task) -> Result<T> {
    Worker::start()?.ask(task)
}

/// A process that answers one task after the other, and is ended when this is dropped.
pub struct Worker {
    child: Child,
    tasks: ChildStdin,
    answers: BufReader<ChildStdout>,
    memory_peak_bytes: u64,
}

impl Worker {
    /// An engine by itself.
    pub fn open(task: OpenTask) -> Result<Worker> {
        let mut worker = Worker::start()?;
        worker.ask::<()>(&Task::Open(task))?;
        Ok(worker)
    }

    pub fn query(&mut self, query: &Query) -> Result<Asked> {
        let asked: Asked = self.ask(&Task::Query(query.clone()))?;
        self.memory_peak_bytes = asked.memory_peak_bytes;
        Ok(asked)
    }

    /// The most that the process held at a time until its last query ended.
    pub fn memory_peak_bytes(&self) -> u64 {
        self.memory_peak_bytes
    }

    fn start() -> Result<Worker> {
        let failed = |e| Error::io("cannot start a worker process", e);
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(ARGUMENTS).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (Some(tasks), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::internal("a worker process has no pipes"));
        };
        Ok(Worker { child, tasks, answers: BufReader::new(answers), memory_peak_bytes: 0 })
    }

    fn ask<T: for<'a> Deserialize<'a>>(&mut self, task: &Task) -> Result<T> {
        let mut line = serde_json::to_string(task)
            .map_err(|e| Error::internal(format!("a task is no JSON: {e}")))?;
        line.push('\n');
        let mut answer = String::new();
        // One that is gone is told by its answer.
        let _ = self.tasks.write_all(line.as_bytes());
        let read = self.answers.read_line(&mut answer);
        read.map_err(|e| Error::io("cannot read what a worker process answers", e))?;
        if answer.is_empty() {
            return Err(self.gone());
        }
        serde_json::from_str(&answer)
            .map_err(|e| Error::internal(format!("a worker answered what is no JSON of ours: {e}")))
    }

    /// Why is on standard error, which both have.
    fn gone(&mut self) -> Error {
        let status = self.child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
        Error::resources(format!("the worker process failed ({status})"))
            .hint("signal 9 is mostly the system running out of memory")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It has no state worth a clean shutdown.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The worker's side: until there are no more tasks, or one fails.
pub fn serve() -> Result<()> {
    let mut opened = None;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| Error::io("cannot read a task", e))?;
        println!("{}", serve_one(&line, &mut opened)?);
    }
    Ok(())
}

fn serve_one(line: &str, opened: &mut Option<Session>) -> Result<String> {
    let task: Task = serde_json::from_str(line).map_err(|e| {
        Error::user(format!("this is no task: {e}")).hint(
            "`bench worker` is what `bench load`, `scan`, `memory` and `out-of-core` start; it is \
             not for people",
        )
    })?;
    let answer = match task {
        Task::Load(task) => serde_json::to_string(&do_load(task)?),
        Task::Scan(task) => serde_json::to_string(&scan_here(&task)?),
        Task::Memory(task) => serde_json::to_string(&memory::together(&task)?),
        Task::Open(task) => {
            *opened = Some(open(&task)?.session());
            serde_json::to_string(&())
        }
        Task::Query(query) => {
            let session = opened.as_ref();
            let session = session.ok_or_else(|| Error::internal("a query before a database"))?;
            let (rows, ms) = timed(session, &query)?;
            let memory_peak_bytes = memory_peak_bytes();
            serde_json::to_string(&Asked { rows, ms, memory_peak_bytes })
        }
    };
    answer.map_err(|e| Error::internal(format!("an answer is no JSON: {e}")))
}

pub(crate) fn open(task: &OpenTask) -> Result<Arc<Engine>> {
    let config = Config {
        threads: task.threads,
        policy: task.policy.parse()?,
        memory_bytes_max: task.limits.map(|limits| limits.query_bytes()),
        cache_bytes_max: task.limits.map(|limits| limits.cache_bytes),
        create: false,
        ..Config::default()
    };
    Engine::open(&task.database.to_string_lossy(), config)
}

fn do_load(task: LoadTask) -> Result<Loaded> {
    let requests = task.tables.iter().map(|(table, files)| LoadRequest {
        table: table.clone(),
        files: files.iter().map(|f| f.to_string_lossy().into_owned()).collect(),
        csv: Some(CsvOptions {
            header: Some(true),
            nulls: vec![task.null.clone()],
            ..CsvOptions::default()
        }),
        ..LoadRequest::default()
    });
    // As `thalweg load` does it.
    let load = Load { remember: true, ..Load::from(requests.collect::<Vec<_>>()) };
    let started = Instant::now();
    let config = Config { threads: task.threads, ..Config::default() };
    let engine = Engine::open(&task.database.to_string_lossy(), config)?;
    let session = engine.session();
    for statement in Session::split(&task.schema)? {
        engine.block_on(session.query(&statement))?;
    }
    let reports = engine.block_on(session.load(load, Arc::<LoadProgress>::default()))?;
    let seconds = started.elapsed().as_secs_f64();
    let tables = reports.iter().map(load::table);
    Ok(Loaded { seconds, tables: tables.collect(), memory_peak_bytes: memory_peak_bytes() })
}

/// In this process, in an engine that has nothing in its cache.
pub fn scan_here(task: &ScanTask) -> Result<Scanned> {
    let direct_io = if task.direct { DirectIo::Auto } else { DirectIo::Off };
    let config = Config { threads: task.threads, create: false, direct_io, ..Config::default() };
    let engine = Engine::open(&task.database.to_string_lossy(), config)?;
    let session = engine.session();
    let (cpu, read) = (cpu_seconds(), read_bytes());
    let started = Instant::now();
    engine.block_on(async {
        let mut answer = session.query(&task.sql).await?;
        while let Some(batch) = answer.next().await {
            batch?;
        }
        Ok::<(), Error>(())
    })?;
    let seconds = started.elapsed().as_secs_f64();
    Ok(Scanned { seconds, cpu_seconds: cpu_seconds() - cpu, read_bytes: read_bytes() - read })
}

/// Of this process since its start, or since the kernel was told to forget it.
pub(crate) fn memory_peak_bytes() -> u64 {
    of_this_process("status", "VmHWM:").unwrap_or(0) * 1024
}

fn read_bytes() -> u64 {
    of_this_process("io", "read_bytes:").unwrap_or(0)
}

fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name, which may hold anything: the 12th and 13th fields are user and system time.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    fields.skip(11).take(2).filter_map(|n| n.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_SECOND
}

/// The number on the line of a file in `/proc/self` that begins with `name`.
pub(crate) fn of_this_process(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_lines_and_queries_need_a_database() {
        let mut opened = None;
        let ask = |task: &Task, opened: &mut Option<Session>| {
            serve_one(&serde_json::to_string(task).unwrap(), opened)
        };
        let statements = vec!["select 1\nunion all select 2".to_string()];
        let query = Task::Query(Query { name: "Q1".into(), number: 1, statements });
        assert!(ask(&query, &mut opened).is_err());
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("db");
        let limits = Some(Limits::new(64 << 20));
        let task = OpenTask { database, threads: 1, policy: "fair".into(), limits };
        assert!(ask(&Task::Open(task.clone()), &mut opened).is_err(), "it is not there");
        drop(Engine::open(&task.database.to_string_lossy(), Config::default()).unwrap());
        assert_eq!(ask(&Task::Open(task), &mut opened).unwrap(), "null");
        let asked: Asked = serde_json::from_str(&ask(&query, &mut opened).unwrap()).unwrap();
        assert!(asked.rows == 2 && asked.ms > 0.0 && asked.memory_peak_bytes > 1 << 20);
        assert!(serve_one("{}", &mut opened).is_err());
    }

    #[test]
    fn a_task_is_loaded_and_scanned() {
        let folder = tempfile::tempdir().unwrap();
        let csv = folder.path().join("t.csv");
        std::fs::write(&csv, "a,b\n1,x\n2,NA\n").unwrap();
        let loaded = do_load(LoadTask {
            database: folder.path().join("db"),
            schema: "create table t (a integer not null, b varchar)".into(),
            tables: vec![("t".into(), vec![csv])],
            null: "NA".into(),
            threads: 2,
        })
        .unwrap();
        assert_eq!((loaded.tables[0].rows, loaded.tables[0].raw_bytes), (2, 13));
        assert!(loaded.seconds > 0.0 && loaded.memory_peak_bytes > 1 << 20);
        let scan = |sql: &str| {
            let database = folder.path().join("db");
            scan_here(&ScanTask { database, sql: sql.into(), threads: 1, direct: true })
        };
        assert!(scan("select sum(a) from t where b is null").unwrap().seconds > 0.0);
        let error = scan("select nosuch from t").unwrap_err();
        assert!(error.message().contains("nosuch"), "{error}");
    }
}
