//! `thalweg replay`: what each policy would have done to a recorded workload.
//!
//! The record is a table with a row for each query, as `system.query_log` has it. It is read by the
//! engine's own readers, so it may be CSV, Parquet, JSON lines or Arrow.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::cast::AsArray;
use arrow::array::{Array, ArrayRef};
use arrow::compute::{CastOptions, cast_with_options, concat};
use arrow::datatypes::{DataType, Int64Type, TimeUnit, UInt64Type};
use arrow::util::display::array_value_to_string;
use thalweg_base::text::{count, quoted};
use thalweg_base::{Error, Result};
use thalweg_engine::replay::{Recorded, Setup, replay};
use thalweg_engine::{Config, Engine, PolicyKind};

use crate::compare::collect;
use crate::report::html;
use crate::report::replay::{self as report, Query, Replay, Replayed};
use crate::report::text as printed;
use crate::run::{save, say};

/// The command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// A file, or whatever else SQL reads after FROM as one: a pattern, an address.
    pub file: String,
    /// Empty: all.
    pub policies: Vec<PolicyKind>,
    pub slots: usize,
    pub report: Option<PathBuf>,
    pub json: Option<PathBuf>,
}

/// Reads the record, plays it under each policy, and prints what became of it.
///
/// # Errors
/// The file cannot be read, or is no record of queries.
pub fn run(options: &Options) -> Result<()> {
    let log = Log::read(&options.file)?;
    let policies = match options.policies.as_slice() {
        [] => PolicyKind::ALL.to_vec(),
        chosen => chosen.to_vec(),
    };
    let recorded = log.recorded();
    let play = |policy: &PolicyKind| {
        say(&format!("replaying under {policy}"));
        let setup = Setup::new(*policy, options.slots);
        let outcome = replay(&setup, &recorded);
        // Nothing is refused or stopped where there are no limits.
        let ms = outcome.response_ns.iter().map(|ns| ns.unwrap_or(0) as f64 / 1e6).collect();
        Replayed::new(policy.name(), &log.queries, ms, options.slots)
    };
    let mut played: Vec<Replayed> = policies.iter().map(play).collect();
    if let Some(ms) = log.recorded_ms() {
        played.insert(0, Replayed::new(report::AS_RECORDED, &log.queries, ms, options.slots));
    }
    let quantum_ms = Setup::new(PolicyKind::default(), 1).quantum_ns as f64 / 1e6;
    let found =
        Replay::new(&options.file, options.slots, quantum_ms, &log.queries, log.left_out, played);
    println!("{}", report::text(&found, printed::Options::stdout()));
    let page = || html::replay::render(&found);
    save(options.json.as_deref(), options.report.as_deref(), &found, page)
}

/// A record of queries.
struct Log {
    queries: Vec<Query>,
    /// From arrival to end, as it was; empty if the record does not say.
    wall_ms: Vec<f64>,
    /// Queries that used no CPU time: refused, or stopped before they began.
    left_out: usize,
}

impl Log {
    fn read(file: &str) -> Result<Log> {
        let table = Columns::read(file)?;
        let arrived_ns = table.times("arrived")?;
        let cpu_us = table.numbers("cpu_us")?;
        let tasks = table.numbers("tasks")?;
        let wall_us = match table.has("wall_us") {
            true => table.numbers("wall_us")?,
            false => vec![],
        };
        let first = arrived_ns.iter().copied().min().unwrap_or(0);
        let mut log = Log { queries: vec![], wall_ms: vec![], left_out: 0 };
        for i in 0..arrived_ns.len() {
            if cpu_us[i] == 0 {
                log.left_out += 1;
                continue;
            }
            log.queries.push(Query {
                arrived_ns: arrived_ns[i].abs_diff(first),
                cpu_ns: cpu_us[i].saturating_mul(1000),
                tasks: u32::try_from(tasks[i].max(1)).unwrap_or(u32::MAX),
            });
            log.wall_ms.extend(wall_us.get(i).map(|us| *us as f64 / 1e3));
        }
        if log.queries.is_empty() {
            return Err(Error::user(format!("{} has no query that used CPU time", quoted(file)))
                .hint("it needs a row for each query, with cpu_us above 0"));
        }
        Ok(log)
    }

    /// The estimate is what the query really used: nobody knows better, so `small_first` shows what
    /// it can do at best.
    fn recorded(&self) -> Vec<Recorded> {
        let recorded = |q: &Query| Recorded {
            arrival_ns: q.arrived_ns,
            cpu_ns: q.cpu_ns,
            tasks: q.tasks,
            estimate_ns: q.cpu_ns,
            ..Recorded::default()
        };
        self.queries.iter().map(recorded).collect()
    }

    fn recorded_ms(&self) -> Option<Vec<f64>> {
        (!self.wall_ms.is_empty()).then(|| self.wall_ms.clone())
    }
}

/// A file as a table.
struct Columns {
    file: String,
    names: Vec<String>,
    columns: Vec<ArrayRef>,
}

const HINT: &str = "COPY (SELECT * FROM system.query_log) TO 'log.csv' writes such a file";

impl Columns {
    fn read(file: &str) -> Result<Columns> {
        // A name without a folder is a file here, never a table.
        let path = match file.contains('/') {
            true => file.to_string(),
            false => format!("./{file}"),
        };
        // One thread reads the rows in their order, by which errors name them.
        let engine = Engine::open(":memory:", Config { threads: 1, ..Config::default() })?;
        let sql = format!("SELECT * FROM '{}'", path.replace('\'', "''"));
        let (schema, batches) = engine.block_on(collect(&engine.session(), &sql))?;
        let names = schema.fields().iter().map(|field| field.name().to_lowercase()).collect();
        let column = |i: usize| {
            let parts: Vec<&dyn Array> = batches.iter().map(|b| b.column(i).as_ref()).collect();
            match parts.as_slice() {
                [] => Ok(arrow::array::new_empty_array(schema.field(i).data_type())),
                parts => concat(parts)
                    .map_err(|e| Error::internal("batches of one file differ").source(e)),
            }
        };
        let columns = (0..schema.fields().len()).map(column).collect::<Result<_>>()?;
        Ok(Columns { file: quoted(file), names, columns })
    }

    fn has(&self, name: &str) -> bool {
        self.names.iter().any(|n| n == name)
    }

    /// Whole numbers, not below 0.
    fn numbers(&self, name: &str) -> Result<Vec<u64>> {
        let column = self.cast(name, &DataType::UInt64, "a whole number, 0 or more")?;
        Ok(column.as_primitive::<UInt64Type>().values().to_vec())
    }

    /// Nanoseconds since 1970-01-01.
    fn times(&self, name: &str) -> Result<Vec<i64>> {
        let time = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let column = self.cast(name, &time, "a time, such as 2026-01-31 12:00:00.250")?;
        let failed = |e| Error::internal("a time is no number").source(e);
        let column = arrow::compute::cast(&column, &DataType::Int64).map_err(failed)?;
        Ok(column.as_primitive::<Int64Type>().values().to_vec())
    }

    /// Every value as `to`, or an error that names the first that is not.
    fn cast(&self, name: &str, to: &DataType, expected: &str) -> Result<ArrayRef> {
        let at = self.names.iter().position(|n| n == name).ok_or_else(|| {
            Error::user(format!("{} has no column {}", self.file, quoted(name)))
                .detail(format!("its columns are {}", self.names.join(", ")))
                .hint(HINT)
        })?;
        let column = &self.columns[at];
        let wrong = |what: String| {
            Error::user(format!("{}: column {} {what}", self.file, quoted(name)))
                .detail(format!("it must be {expected}"))
                .hint(HINT)
        };
        // A number would be taken for a time since 1970 in some unit.
        let is_time = matches!(to, DataType::Timestamp(..));
        if is_time && (column.data_type().is_numeric() || column.data_type() == &DataType::Boolean)
        {
            return Err(wrong("holds numbers".into()));
        }
        let options = CastOptions { safe: true, ..CastOptions::default() };
        let cast = cast_with_options(column, to, &options)
            .map_err(|_| wrong(format!("is of type {}", column.data_type())))?;
        if let Some(row) = (0..cast.len()).find(|row| cast.is_null(*row)) {
            let value = match column.is_null(row) {
                true => "is NULL".to_string(),
                false => {
                    format!(
                        "is {}",
                        quoted(&array_value_to_string(column, row).unwrap_or_default())
                    )
                }
            };
            return Err(wrong(format!("{value} in row {}", count(row as u64 + 1))));
        }
        Ok(Arc::clone(&cast))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(content: &str) -> Result<Log> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.csv");
        std::fs::write(&path, content).unwrap();
        Log::read(&path.to_string_lossy())
    }

    fn error(content: &str) -> Error {
        log(content).err().unwrap()
    }

    #[test]
    fn a_record_is_read_from_its_first_arrival_on() {
        let log = log("query,arrived,cpu_us,tasks,wall_us\n\
             1,2026-01-31T12:00:00.250,2000,4,1500\n\
             2,2026-01-31T12:00:00.000,10,0,20\n\
             3,2026-01-31T12:00:01.000,0,0,5\n")
        .unwrap();
        let query = |arrived_ns, cpu_ns, tasks| Query { arrived_ns, cpu_ns, tasks };
        assert_eq!(log.queries, [query(250_000_000, 2_000_000, 4), query(0, 10_000, 1)]);
        assert_eq!((log.recorded_ms(), log.left_out), (Some(vec![1.5, 0.02]), 1));
    }

    #[test]
    fn what_is_no_record_is_refused_by_name() {
        let check = |content: &str, words: &[&str]| {
            let text = format!("{:#}", error(content));
            for word in words {
                assert!(text.contains(word), "{word:?} is not in {text}");
            }
        };
        check(
            "arrived,tasks\n2026-01-31T12:00:00,1\n",
            &["no column \"cpu_us\"", "arrived, tasks"],
        );
        check(
            "arrived,cpu_us,tasks\n2026-01-31T12:00:00,5,1\n2026-01-31T12:00:00,x,1\n",
            &["log.csv", "\"cpu_us\" is \"x\" in row 2", "whole number"],
        );
        check(
            "arrived,cpu_us,tasks\n2026-01-31T12:00:00,-5,1\n",
            &["\"cpu_us\" is \"-5\" in row 1"],
        );
        check(
            "arrived,cpu_us,tasks\n2026-01-31T12:00:00,5,1\n2026-01-31T12:00:00,,1\n",
            &["\"cpu_us\" is NULL in row 2"],
        );
        check("arrived,cpu_us,tasks\n17,5,1\n", &["\"arrived\" holds numbers", "a time"]);
        check("arrived,cpu_us,tasks\nsoon,5,1\n", &["\"arrived\" is \"soon\" in row 1"]);
        check("arrived,cpu_us,tasks\n2026-01-31T12:00:00,0,1\n", &["no query that used CPU time"]);
    }
}
