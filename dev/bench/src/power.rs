//! The power run: every query alone, one after the other.

use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use thalweg_base::{Error, Result};
use thalweg_engine::{Engine, Session};

use crate::report::model::{PowerQuery, PowerRun, Timing};
use crate::workload::{Query, Workload};

/// Each query `runs` times after one that warms up.
pub fn run(engine: &Arc<Engine>, workload: &Workload, runs: usize) -> Result<PowerRun> {
    let session = engine.session();
    let mut queries = vec![];
    for query in &workload.queries {
        let (rows, _) = timed(&session, query)?;
        let mut times = vec![];
        for _ in 0..runs {
            times.push(timed(&session, query)?.1);
        }
        let timing = Timing::new(times).ok_or_else(|| Error::internal("a query without a run"))?;
        queries.push(PowerQuery { query: query.name.clone(), rows, timing });
    }
    Ok(PowerRun::new(queries))
}

/// Each query once, without a warm-up: its rows and milliseconds.
pub fn once(session: &Session, workload: &Workload) -> Result<Vec<(u64, f64)>> {
    workload.queries.iter().map(|query| timed(session, query)).collect()
}

/// Its rows and milliseconds.
pub fn timed(session: &Session, query: &Query) -> Result<(u64, f64)> {
    let started = Instant::now();
    let rows = session.engine().block_on(execute(session, query))?;
    Ok((rows, started.elapsed().as_secs_f64() * 1e3))
}

/// Runs a query to its last row; the rows of all its statements.
pub async fn execute(session: &Session, query: &Query) -> Result<u64> {
    let mut rows = 0;
    for statement in &query.statements {
        let mut answer = session.query(statement).await.map_err(|e| e.context(&query.name))?;
        while let Some(batch) = answer.next().await {
            rows += batch.map_err(|e| e.context(&query.name))?.num_rows() as u64;
        }
    }
    Ok(rows)
}
