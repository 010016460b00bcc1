//! Two heavy queries arrive first, six short ones right behind them: what does each policy do?

use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_base::{Error, Result};
use thalweg_engine::{Engine, PolicyKind};

use crate::generate::Benchmark;
use crate::power::execute;
use crate::report::model::{Mixed, MixedQuery, Span, Weight};
use crate::workload::{Query, Workload};

/// TPC-H's two longest here, and its shorter ones.
const HEAVY: [&str; 2] = ["Q9", "Q18"];
const SHORT: [&str; 6] = ["Q6", "Q2", "Q11", "Q16", "Q14", "Q20"];
/// Between two arrivals, so that the order of arrival is the order given.
const ARRIVAL_GAP: Duration = Duration::from_millis(2);

/// Of `runs` runs under each policy, interleaved, the one with the median short completion.
pub fn run(engine: &Arc<Engine>, policies: &[PolicyKind], runs: usize) -> Result<Mixed> {
    let workload = Workload::new(Benchmark::Tpch)?;
    let mut queries = vec![];
    for (weight, names) in [(Weight::Heavy, &HEAVY[..]), (Weight::Short, &SHORT[..])] {
        for name in names {
            queries.push((weight, workload.find(name)?.clone()));
        }
    }
    let session = engine.session();
    for (_, query) in &queries {
        engine.block_on(execute(&session, query))?;
    }
    let mut found: Vec<Vec<Vec<MixedQuery>>> = vec![vec![]; policies.len()];
    for _ in 0..runs {
        for (policy, found) in policies.iter().zip(&mut found) {
            found.push(once(engine, *policy, &queries)?);
        }
    }
    let median = |mut all: Vec<Vec<MixedQuery>>| {
        let short = |run: &[MixedQuery]| {
            run.iter().filter(|q| q.weight == Weight::Short).map(|q| q.span.seconds()).sum::<f64>()
        };
        all.sort_by(|a, b| short(a).total_cmp(&short(b)));
        all.swap_remove(all.len() / 2)
    };
    let names = policies.iter().map(|p| p.name().to_string());
    Ok(Mixed::new(names.zip(found.into_iter().map(median)).collect()))
}

fn once(
    engine: &Arc<Engine>,
    policy: PolicyKind,
    queries: &[(Weight, Query)],
) -> Result<Vec<MixedQuery>> {
    engine.set_policy(policy);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let mut threads = vec![];
        for (weight, query) in queries {
            threads.push(scope.spawn(move || {
                let session = engine.session();
                let start_s = begun.elapsed().as_secs_f64();
                let rows = engine.block_on(execute(&session, query))?;
                let end_s = begun.elapsed().as_secs_f64();
                let span = Span { query: query.name.clone(), start_s, end_s, rows };
                Ok(MixedQuery { weight: *weight, span })
            }));
            std::thread::sleep(ARRIVAL_GAP);
        }
        let join = |t: std::thread::ScopedJoinHandle<'_, Result<MixedQuery>>| {
            t.join().unwrap_or_else(|_| Err(Error::internal("a client's thread panicked")))
        };
        threads.into_iter().map(join).collect()
    })
}
