//! The same queries on other engines: are the answers equal, and who is faster?

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use thalweg_base::Result;
use thalweg_engine::{Engine, Session};

use crate::answers::{self, Order, Rows, Verdict};
use crate::generate::{Benchmark, GeneratedTable};
use crate::interleaved::Runner;
use crate::peers::{self, Peer, PeerKind, PeerLoad};
use crate::power::timed;
use crate::report::model::{PeerQuery, PeerResult, Peers};
use crate::run::{Options, say};
use crate::workload::{Query, Workload};

/// A single statement of a peer that takes longer is given up.
const PEER_TIMEOUT: Duration = Duration::from_secs(300);

/// Checks every answer; returns a line for each that is wrong. TPC-H at scale factor 1 has
/// published answers; all else is compared with DuckDB over the same files.
pub fn check(
    engine: &Arc<Engine>,
    workload: &Workload,
    options: &Options,
    files: &[GeneratedTable],
) -> Result<Vec<String>> {
    let published = workload.benchmark == Benchmark::Tpch && options.scale_factor == 1.0;
    let mut duckdb = match published {
        true => None,
        false => Some(start(PeerKind::DuckDb, options.threads, workload, files)?),
    };
    let session = engine.session();
    let mut wrong = vec![];
    for query in &workload.queries {
        for statement in &query.statements {
            let ours = engine.block_on(our_rows(&session, statement))?;
            let verdict = match &mut duckdb {
                None => answers::against_published(query.number, statement, &ours),
                Some(peer) => Some(compare(statement, &ours, &their_rows(peer, statement)?)),
            };
            if let Some(Err(mismatch)) = verdict {
                wrong.push(format!("{}: {mismatch}", query.name));
                break;
            }
        }
    }
    Ok(wrong)
}

/// All rows of a statement.
pub async fn collect(session: &Session, sql: &str) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let answer = session.query(sql).await?;
    let schema = Arc::clone(&answer.schema);
    Ok((schema, answer.collect().await?))
}

/// A peer with so many threads, and the tables in it.
pub fn start(
    kind: PeerKind,
    threads: usize,
    workload: &Workload,
    files: &[GeneratedTable],
) -> Result<Peer> {
    let python = peers::venv(&peers::venv_dir(), &say)?;
    let mut peer = Peer::start(&python, kind, threads, PEER_TIMEOUT)?;
    say(&format!("loading into {} {}", kind.name(), peer.version()));
    let csv =
        files.iter().flat_map(|f| &f.files).any(|f| f.extension().is_some_and(|e| e == "csv"));
    let format = match csv {
        true => peers::FileFormat::Csv { delimiter: ',', header: true },
        false => peers::FileFormat::Parquet,
    };
    let tables = files.iter().map(|f| (f.name.clone(), f.files.clone())).collect();
    let seconds = peer.load(&PeerLoad {
        tables,
        format,
        schema_sql: Some(workload.schema.to_string()),
        database: None,
        threads,
    })?;
    say(&format!("loaded in {}", thalweg_base::text::seconds(seconds)));
    Ok(peer)
}

/// The peers that were asked for, with the tables in them.
pub fn start_all(
    workload: &Workload,
    options: &Options,
    files: &[GeneratedTable],
) -> Result<Vec<Peer>> {
    let start = |kind: &PeerKind| start(*kind, options.threads, workload, files);
    options.peers.iter().map(start).collect()
}

/// Runs every query on every engine, repetition by repetition, so that a disturbance of the
/// machine hits all alike. A peer that cannot run a query, or gives another answer than we do, is
/// reported and fails nothing: dialects differ.
pub fn peers(
    engine: &Arc<Engine>,
    workload: &Workload,
    options: &Options,
    files: &[GeneratedTable],
) -> Result<Peers> {
    let mut others = start_all(workload, options, files)?;
    let session = engine.session();
    let mut queries = vec![];
    for query in &workload.queries {
        say(&format!("{} on all engines", query.name));
        let answers = engine.block_on(our_answers(&session, query))?;
        let mut ours = vec![];
        let mut theirs: Vec<Result<(Vec<f64>, Option<String>)>> = others
            .iter_mut()
            .map(|peer| Ok((vec![], difference(query, &answers, &their_answers(peer, query)?))))
            .collect();
        // The first repetition warms up.
        for repetition in 0..=options.runs {
            let (_, ms) = timed(&session, query)?;
            if repetition > 0 {
                ours.push(ms);
            }
            for (peer, times) in others.iter_mut().zip(&mut theirs) {
                let Ok((seen, _)) = times else { continue };
                match run_on(peer, query) {
                    Ok((_, ms)) if repetition > 0 => seen.push(ms),
                    Ok(_) => {}
                    Err(e) => *times = Err(e),
                }
            }
        }
        let mut results = vec![PeerResult::measured(ours, None)];
        for times in theirs {
            results.push(match times {
                Ok((times, differs)) => PeerResult::measured(times, differs),
                Err(e) => PeerResult::failed(e.to_string()),
            });
        }
        queries.push(PeerQuery { query: query.name.clone(), results });
    }
    let us = ("Thalweg".to_string(), env!("CARGO_PKG_VERSION").to_string());
    let them = others.iter().map(|p| (p.kind().name().to_string(), p.version().to_string()));
    Ok(Peers::new(std::iter::once(us).chain(them).collect(), queries))
}

/// Our rows of each statement.
pub async fn our_answers(session: &Session, query: &Query) -> Result<Vec<Rows>> {
    let mut answers = vec![];
    for statement in &query.statements {
        answers.push(our_rows(session, statement).await?);
    }
    Ok(answers)
}

async fn our_rows(session: &Session, statement: &str) -> Result<Rows> {
    let (schema, batches) = collect(session, statement).await?;
    Rows::from_batches(&schema, &batches)
}

/// A peer's rows of each statement.
fn their_answers(peer: &mut Peer, query: &Query) -> Result<Vec<Rows>> {
    query.statements.iter().map(|statement| their_rows(peer, statement)).collect()
}

fn their_rows(peer: &mut Peer, statement: &str) -> Result<Rows> {
    let (schema, batches) = peer.result(statement)?;
    Rows::from_batches(&schema, &batches)
}

/// How another answer differs from ours: a time for another answer is no time for this query.
pub fn difference(query: &Query, ours: &[Rows], theirs: &[Rows]) -> Option<String> {
    let answers = query.statements.iter().zip(ours.iter().zip(theirs));
    let mut verdicts = answers.map(|(statement, (ours, theirs))| compare(statement, ours, theirs));
    verdicts.find_map(Result::err).map(|mismatch| mismatch.to_string())
}

/// Rows must come in the order that the statement asks for.
fn compare(statement: &str, ours: &Rows, theirs: &Rows) -> Verdict {
    answers::compare(ours, theirs, &Order::of_sql(statement, &ours.columns))
}

pub(crate) fn on(peer: &mut Peer) -> Runner<'_> {
    Box::new(|query| run_on(peer, query))
}

/// Runs a query to its last row on a peer: how many there are, and the milliseconds it took.
pub fn run_on(peer: &mut Peer, query: &Query) -> Result<(u64, f64)> {
    let (mut rows, mut ms) = (0, 0.0);
    for statement in &query.statements {
        let answer = peer.query(statement)?;
        rows += answer.rows;
        ms += answer.ms;
    }
    Ok((rows, ms))
}
