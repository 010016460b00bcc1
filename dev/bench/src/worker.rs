//! One load, scan or run under a memory limit in a process of its own, so that what it takes of memory, processor and
//! disk can be told from everything else. The parent starts `thalweg bench worker`; a task comes
//! on standard input and what was found goes to standard output, both as JSON.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
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
use crate::report::model::LoadTable;

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
    let start = || {
        let mut child = Command::new(std::env::current_exe()?)
            .args(ARGUMENTS)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut pipe) = child.stdin.take() {
            pipe.write_all(&serde_json::to_vec(task)?)?;
        }
        child.wait_with_output()
    };
    let output = start().map_err(|e| Error::io("cannot run a worker process", e))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_string();
        return Err(Error::resources(format!("the worker process failed ({})", output.status))
            .detail(stderr)
            .hint("signal 9 is mostly the system running out of memory"));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|e| Error::internal(format!("a worker answered what is no JSON of ours: {e}")))
}

/// The worker's side.
pub fn serve() -> Result<()> {
    let task: Task = serde_json::from_reader(std::io::stdin().lock()).map_err(|e| {
        Error::user(format!("this is no task: {e}")).hint(
            "`bench worker` is what `bench load`, `scan` and `memory` start; it is not for people",
        )
    })?;
    let answer = match task {
        Task::Load(task) => serde_json::to_string(&do_load(task)?),
        Task::Scan(task) => serde_json::to_string(&scan_here(&task)?),
        Task::Memory(task) => serde_json::to_string(&memory::together(&task)?),
    };
    let answer = answer.map_err(|e| Error::internal(format!("an answer is no JSON: {e}")))?;
    println!("{answer}");
    Ok(())
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
    let memory_peak_bytes = of_this_process("status", "VmHWM:").unwrap_or(0) * 1024;
    Ok(Loaded { seconds, tables: tables.collect(), memory_peak_bytes })
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
