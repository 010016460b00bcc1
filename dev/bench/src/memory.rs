//! Many queries at once that together need far more memory than there is: do all of them end, with
//! the right answers, and within the limit?
//!
//! First each query runs alone, without a limit: its answer, its time and the most memory that it
//! had reserved, its *working set*. Then all of them start at once, in a process of its own, so that
//! the memory which the kernel counts is of that run alone.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::row::{RowConverter, SortField};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use thalweg_base::{Error, Result};
use thalweg_engine::{Engine, Session};

use crate::generate::Benchmark;
use crate::peaks::Peaks;
use crate::report::memory::{self as report, Kind, Limits, MemoryQuery, MemoryRun, Totals};
use crate::report::model::Report;
use crate::report::text as printed;
use crate::run::{self, Options, Watch, say};
use crate::stored::Stored;
use crate::worker::{self, OpenTask, memory_peak_bytes, of_this_process};
use crate::workload::Workload;

/// Queries at once, unless `--streams` says otherwise.
const QUERIES: usize = 64;
/// The limit, unless `--memory` says otherwise, is this part of all working sets.
const OVERCOMMIT: u64 = 10;

pub(crate) fn run(options: &Options, watch: &Watch) -> Result<()> {
    let mut report = Report::new("Memory", options.scale_factor, run::us(options));
    let look = printed::Options::stdout();
    println!("{}", printed::head(&report, look));
    run::warn_unoptimised(&mut report);
    let workload = Workload::new(Benchmark::Tpch)?;
    let stored = Stored::open(options, &workload, options.database.clone(), watch)?;
    let count = options.streams.first().copied().unwrap_or(QUERIES);
    let queries: Vec<(Kind, String)> = (0..count).map(query).collect();
    let mut alone = vec![];
    for (i, (kind, sql)) in queries.iter().enumerate() {
        say(&format!("alone, {} of {count}: {}", i + 1, kind.name()));
        alone.push(Alone::measure(&stored.engine, *kind, sql)?);
    }
    let needed: u64 = alone.iter().map(|a| a.working_set_bytes).sum();
    let limit = options.memory.unwrap_or(needed / OVERCOMMIT).max(1 << 20);
    let limits = Limits::new(limit);
    // With its cache: the process that follows shall have the machine for itself.
    drop(stored.engine);
    let engine = OpenTask::new(&stored.location, options, Some(limits));
    let task = MemoryTask { engine, queries: queries.clone() };
    say(&format!("{count} at once within {}", thalweg_base::text::bytes(limit)));
    let together = worker::memory(task)?;
    let found = combine(queries, alone, together, limits);
    println!("{}", report::text(&found, look));
    let failure = failure(&found);
    report.memory = Some(found);
    run::write(options, &report)?;
    failure.map_or(Ok(()), Err)
}

/// Aggregates of nearly as many groups as rows, joins with wide build sides, sorts of whole tables,
/// in turn. Each leaves out other rows, so no two can share their work.
fn query(k: usize) -> (Kind, String) {
    let kind = Kind::ALL[k % Kind::ALL.len()];
    let sql = match kind {
        Kind::Aggregate => format!(
            "select l_orderkey, l_suppkey, count(*) as n, sum(l_extendedprice) as price, \
             max(l_shipdate) as shipped from lineitem where l_partkey % 997 <> {k} \
             group by l_orderkey, l_suppkey"
        ),
        // The texts of the orders are needed above the join, so its build side holds them.
        Kind::Join => format!(
            "select l_shipmode, o_orderpriority, count(*) as n, sum(l_extendedprice) as price, \
             min(o_comment) as first, max(o_clerk) as last from lineitem \
             join orders on l_orderkey = o_orderkey \
             where l_partkey % 997 <> {k} and o_custkey % 997 <> {k} \
             group by l_shipmode, o_orderpriority"
        ),
        Kind::Sort => format!(
            "select l_extendedprice, l_orderkey, l_linenumber, l_shipdate, l_comment from lineitem \
             where l_partkey % 997 <> {k} order by l_extendedprice, l_orderkey, l_linenumber"
        ),
    };
    (kind, sql)
}

fn ordered(kind: Kind) -> bool {
    kind == Kind::Sort
}

/// What a query is alone, without a limit.
struct Alone {
    seconds: f64,
    working_set_bytes: u64,
    digest: Digest,
}

impl Alone {
    fn measure(engine: &Arc<Engine>, kind: Kind, sql: &str) -> Result<Alone> {
        let session = engine.session();
        let started = Instant::now();
        let (digest, peaks) = Peaks::during(engine, || digest(&session, sql, ordered(kind)));
        let seconds = started.elapsed().as_secs_f64();
        Ok(Alone { seconds, working_set_bytes: peaks.held_bytes, digest: digest? })
    }
}

/// An answer that is too large to be kept: its rows are hashed as they come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    rows: u64,
    hash: u64,
}

impl Digest {
    /// If `ordered`, the order of the rows counts.
    fn add(&mut self, batch: &RecordBatch, ordered: bool) -> Result<()> {
        let failed = |e| Error::internal("a row cannot be hashed").source(e);
        let schema = batch.schema();
        let fields = schema.fields().iter().map(|f| SortField::new(f.data_type().clone()));
        let converter = RowConverter::new(fields.collect()).map_err(failed)?;
        for row in &converter.convert_columns(batch.columns()).map_err(failed)? {
            let mut hasher = DefaultHasher::new();
            if ordered {
                self.hash.hash(&mut hasher);
            }
            row.as_ref().hash(&mut hasher);
            let hash = hasher.finish();
            self.hash = if ordered { hash } else { self.hash.wrapping_add(hash) };
            self.rows += 1;
        }
        Ok(())
    }
}

fn digest(session: &Session, sql: &str, ordered: bool) -> Result<Digest> {
    session.engine().block_on(async {
        let mut digest = Digest::default();
        let mut answer = session.query(sql).await?;
        while let Some(batch) = answer.next().await {
            digest.add(&batch?, ordered)?;
        }
        Ok(digest)
    })
}

/// All queries at once under a limit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryTask {
    pub engine: OpenTask,
    pub queries: Vec<(Kind, String)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Together {
    queries: Vec<Ended>,
    /// Until the last one ended.
    seconds: f64,
    /// Of the process before the first one began, and the most while they ran.
    rss_before_bytes: u64,
    rss_peak_bytes: u64,
    held_peak_bytes: u64,
    spill_peak_bytes: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Ended {
    seconds: f64,
    /// Of its answer, or why it has none.
    found: std::result::Result<Digest, String>,
}

/// The worker's side.
pub fn together(task: &MemoryTask) -> Result<Together> {
    let engine = worker::open(&task.engine)?;
    let sessions: Vec<Session> = task.queries.iter().map(|_| engine.session()).collect();
    let rss_before_bytes = of_this_process("status", "VmRSS:").unwrap_or(0) * 1024;
    // The highest so far is forgotten. Where that is not allowed, it is of the process from its
    // start: never too low.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let started = Instant::now();
    let run_all = || {
        std::thread::scope(|scope| {
            let run = |((kind, sql), session): (&(Kind, String), &Session)| {
                let (sql, session, kind) = (sql.clone(), session.clone(), *kind);
                scope.spawn(move || {
                    let found = digest(&session, &sql, ordered(kind)).map_err(|e| format!("{e:#}"));
                    Ended { seconds: started.elapsed().as_secs_f64(), found }
                })
            };
            let threads: Vec<_> = task.queries.iter().zip(&sessions).map(run).collect();
            let panicked = |_| Ended { seconds: 0.0, found: Err("its client panicked".into()) };
            threads.into_iter().map(|t| t.join().unwrap_or_else(panicked)).collect::<Vec<Ended>>()
        })
    };
    let (queries, peaks) = Peaks::during(&engine, run_all);
    let seconds = started.elapsed().as_secs_f64();
    let rss_peak_bytes = memory_peak_bytes();
    Ok(Together {
        queries,
        seconds,
        rss_before_bytes,
        rss_peak_bytes,
        held_peak_bytes: peaks.held_bytes,
        spill_peak_bytes: peaks.spill_bytes,
    })
}

fn combine(
    queries: Vec<(Kind, String)>,
    alone: Vec<Alone>,
    together: Together,
    limits: Limits,
) -> MemoryRun {
    let all = queries.into_iter().zip(alone).zip(together.queries);
    let queries = all.map(|(((kind, sql), alone), ended)| MemoryQuery {
        kind,
        sql,
        working_set_bytes: alone.working_set_bytes,
        rows: alone.digest.rows,
        alone_seconds: alone.seconds,
        seconds: ended.seconds,
        right: ended.found.as_ref().is_ok_and(|found| *found == alone.digest),
        error: ended.found.err(),
    });
    let totals = Totals {
        seconds: together.seconds,
        rss_before_bytes: together.rss_before_bytes,
        rss_peak_bytes: together.rss_peak_bytes,
        held_peak_bytes: together.held_peak_bytes,
        spill_peak_bytes: together.spill_peak_bytes,
    };
    MemoryRun::new(limits, totals, queries.collect())
}

fn failure(run: &MemoryRun) -> Option<Error> {
    let count = run.queries.len();
    if run.wrong > 0 {
        return Some(Error::internal(format!("{} of {count} answers are wrong", run.wrong)));
    }
    let first = run.queries.iter().find_map(|q| q.error.clone())?;
    Some(Error::resources(format!("{} of {count} queries failed", run.failed)).detail(first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Int64Array;

    fn digest_of(batches: &[&[i64]], ordered: bool) -> Digest {
        let mut digest = Digest::default();
        for values in batches {
            let column = Arc::new(Int64Array::from(values.to_vec()));
            let batch = RecordBatch::try_from_iter([("a", column as _)]).unwrap();
            digest.add(&batch, ordered).unwrap();
        }
        digest
    }

    #[test]
    fn a_digest_is_of_rows_and_not_of_batches() {
        for ordered in [false, true] {
            let one = digest_of(&[&[1, 2, 3]], ordered);
            assert_eq!(one, digest_of(&[&[1], &[2, 3]], ordered));
            assert_ne!(one, digest_of(&[&[1, 2, 4]], ordered));
            assert_ne!(one, digest_of(&[&[1, 2]], ordered));
            let turned = digest_of(&[&[3, 2, 1]], ordered);
            assert_eq!(one == turned, !ordered);
        }
    }

    #[test]
    fn no_two_queries_are_the_same() {
        let mut texts: Vec<String> = (0..QUERIES).map(|k| query(k).1).collect();
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), QUERIES);
    }

    #[test]
    fn a_wrong_answer_weighs_more_than_a_failure() {
        let run = crate::report::sample::memory();
        assert_eq!(failure(&run).unwrap().kind(), thalweg_base::Kind::Internal);
        let right = run.queries.iter().filter(|q| q.right).cloned().collect();
        let only_right = MemoryRun::new(run.limits, run.totals, right);
        assert!(failure(&only_right).is_none());
    }
}
