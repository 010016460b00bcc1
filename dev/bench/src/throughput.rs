//! Throughput runs: N streams at once, each all queries in an order of its own, against N power
//! runs one after the other; with work shared between queries and without.

use std::sync::Arc;

use thalweg_base::{Error, Kind, Result};
use thalweg_engine::{Engine, PolicyKind, Session};

use crate::report::model::{Concurrency, PowerQuery, PowerRun, Report, Span, Timing};
use crate::report::text as printed;
use crate::report::throughput::{self as report, Load, Throughput};
use crate::run::{self, Options, Watch, say};
use crate::stored::Stored;
use crate::workload::Workload;
use crate::{power, streams};

/// Streams, unless `--streams` says otherwise.
const STREAMS: [usize; 5] = [1, 2, 4, 8, 16];
/// Whether queries that run at the same time may do common work once.
const SHARE_WORK: &str = "thalweg.share_work";

pub(crate) fn run(options: &Options, watch: &Watch) -> Result<()> {
    let mut report = Report::new("Streams", options.scale_factor, run::us(options));
    let look = printed::Options::stdout();
    println!("{}", printed::head(&report, look));
    run::warn_unoptimised(&mut report);
    let policies = match options.policies.as_slice() {
        [] => vec![PolicyKind::default()],
        chosen => chosen.to_vec(),
    };
    for (suite, database) in run::suites(options) {
        let workload = Workload::new(suite)?.only(&options.queries)?;
        let Stored { engine, .. } = &Stored::open(options, &workload, database, watch)?;
        let modes = Mode::all(engine, &options.share_work)?;
        if modes.iter().any(|mode| mode.shared.is_none()) {
            let note = format!(
                "There is no setting {SHARE_WORK} in this build: all runs are as it does by default."
            );
            println!("{note}\n");
            report.notes.retain(|n| *n != note);
            report.notes.push(note);
        }
        for &policy in &policies {
            engine.set_policy(policy);
            let loads = measure(engine, &workload, &modes, options)?;
            let title = format!("{suite} SF {}", options.scale_factor);
            let found = Throughput::new(title, policy.name(), options.runs, loads);
            println!("{}", report::text(&found, look));
            report.throughput.push(found);
        }
    }
    run::write(options, &report)
}

/// How the sessions of a run are set.
struct Mode {
    /// `None`: the engine has no such setting.
    shared: Option<bool>,
    settings: Vec<String>,
}

impl Mode {
    /// `asked`, or without and with sharing; if the engine cannot tell the two apart, the one that
    /// there is.
    fn all(engine: &Arc<Engine>, asked: &[bool]) -> Result<Vec<Mode>> {
        let new = |shared: bool| Mode { shared: Some(shared), settings: vec![set(shared)] };
        match engine.block_on(engine.session().query(&set(true))) {
            Ok(_) if asked.is_empty() => Ok([false, true].map(new).into()),
            Ok(_) => Ok(asked.iter().copied().map(new).collect()),
            Err(e) if e.kind() == Kind::User && asked.is_empty() => {
                Ok(vec![Mode { shared: None, settings: vec![] }])
            }
            Err(e) => Err(e),
        }
    }
}

fn set(shared: bool) -> String {
    format!("SET {SHARE_WORK} = '{}'", if shared { "on" } else { "off" })
}

/// For each stream count all modes in turn, `runs` times, each as many power runs as streams, half of
/// them before the streams and half after: so what disturbs the machine for a while hits all.
fn measure(
    engine: &Arc<Engine>,
    workload: &Workload,
    modes: &[Mode],
    options: &Options,
) -> Result<Vec<Load>> {
    let sessions: Result<Vec<Session>> =
        modes.iter().map(|mode| streams::session(engine, &mode.settings)).collect();
    let sessions = sessions?;
    for session in &sessions {
        power::once(session, workload)?;
    }
    let counts = if options.streams.is_empty() { &STREAMS[..] } else { &options.streams };
    let mut loads = vec![];
    for &count in counts {
        let mut found: Vec<Runs> = modes.iter().map(|_| Runs::new(workload)).collect();
        for run in 0..options.runs {
            for turn in 0..modes.len() {
                let i = (run + turn) % modes.len();
                let shared =
                    report::shared(modes[i].shared).map_or(String::new(), |s| format!(", {s}"));
                say(&format!(
                    "{}, run {} of {}: streams: {count}{shared}",
                    workload.benchmark,
                    run + 1,
                    options.runs
                ));
                let before = count.div_ceil(2);
                for _ in 0..before {
                    found[i].power(power::once(&sessions[i], workload)?);
                }
                let spans = streams::run(engine, workload, count, &modes[i].settings)?;
                for _ in before..count {
                    found[i].power(power::once(&sessions[i], workload)?);
                }
                found[i].streams(spans)?;
            }
        }
        for (mode, runs) in modes.iter().zip(found) {
            loads.push(runs.load(mode.shared, engine.policy())?);
        }
    }
    Ok(loads)
}

/// All runs of one stream count in one mode.
struct Runs {
    queries: Vec<String>,
    rows: Vec<u64>,
    /// Of each query.
    power_ms: Vec<Vec<f64>>,
    /// Power runs beside the streams that come next.
    beside_ms: Vec<f64>,
    /// Of each run the seconds of a power run, and of each stream its queries.
    streams: Vec<(f64, Vec<Vec<Span>>)>,
}

impl Runs {
    fn new(workload: &Workload) -> Runs {
        let queries: Vec<String> = workload.queries.iter().map(|q| q.name.clone()).collect();
        let power_ms = vec![vec![]; queries.len()];
        Runs { queries, rows: vec![], power_ms, beside_ms: vec![], streams: vec![] }
    }

    fn power(&mut self, found: Vec<(u64, f64)>) {
        self.rows = found.iter().map(|(rows, _)| *rows).collect();
        self.beside_ms.push(found.iter().map(|(_, ms)| ms).sum());
        for (runs, (_, ms)) in self.power_ms.iter_mut().zip(found) {
            runs.push(ms);
        }
    }

    /// After the power runs beside them, whose numbers of rows these must have.
    fn streams(&mut self, found: Vec<Vec<Span>>) -> Result<()> {
        for span in found.iter().flatten() {
            let alone = self.queries.iter().zip(&self.rows).find(|(name, _)| **name == span.query);
            if let Some((name, rows)) = alone.filter(|(_, rows)| **rows != span.rows) {
                return Err(Error::internal(format!(
                    "{name} gave {} rows beside others and {rows} alone",
                    span.rows
                )));
            }
        }
        let power_ms = std::mem::take(&mut self.beside_ms);
        let power_s = power_ms.iter().sum::<f64>() / power_ms.len().max(1) as f64 / 1e3;
        self.streams.push((power_s, found));
        Ok(())
    }

    /// The run with the median ratio, of the average stream, stands for all.
    fn load(self, shared: Option<bool>, policy: PolicyKind) -> Result<Load> {
        let lost = || Error::internal("a query without a run");
        let queries = self.queries.into_iter().zip(self.rows).zip(self.power_ms);
        let queries = queries.map(|((query, rows), ms)| {
            Ok(PowerQuery { query, rows, timing: Timing::new(ms).ok_or_else(lost)? })
        });
        let power = PowerRun::new(queries.collect::<Result<_>>()?);
        let new = |(power_s, spans)| Concurrency::new(policy.name(), power_s, spans);
        let mut runs: Vec<Concurrency> = self.streams.into_iter().map(new).collect();
        let averages = runs.iter().map(|run| run.average_seconds * 1e3).collect();
        runs.sort_by(|a, b| a.average_ratio.total_cmp(&b.average_ratio));
        let median = runs.len() / 2;
        if median >= runs.len() {
            return Err(lost());
        }
        let run = runs.swap_remove(median);
        let averages = Timing::new(averages).ok_or_else(lost)?;
        Ok(Load { shared, averages, power, run })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Benchmark;

    fn spans(seconds: f64, rows: u64) -> Vec<Vec<Span>> {
        vec![vec![Span { query: "Q1.1".into(), start_s: 0.0, end_s: seconds, rows }]]
    }

    #[test]
    fn the_run_with_the_median_ratio_stands_for_all_and_each_has_power_runs_of_its_own() {
        let workload = Workload::new(Benchmark::Ssb).unwrap().only(&["1.1".into()]).unwrap();
        let mut runs = Runs::new(&workload);
        for (power_ms, seconds) in
            [([800.0, 1000.0], 4.0), ([900.0, 1100.0], 2.0), ([1700.0; 2], 2.5)]
        {
            power_ms.iter().for_each(|ms| runs.power(vec![(1, *ms)]));
            runs.streams(spans(seconds, 1)).unwrap();
        }
        let error = runs.streams(spans(1.0, 7)).unwrap_err();
        assert!(error.message().contains("Q1.1 gave 7 rows beside others and 1 alone"), "{error}");
        let load = runs.load(Some(true), PolicyKind::Fair).unwrap();
        // Of one query, the median of all six.
        assert_eq!(load.power.seconds, 1.05);
        assert_eq!((load.run.power_seconds, load.run.average_seconds), (1.0, 2.0));
        assert_eq!((load.run.average_ratio, load.averages.worst_ms), (0.5, 4000.0));
    }

    /// With or without the setting: what is asked for and not there is an error.
    #[test]
    fn sharing_is_measured_only_where_it_can_be_set() {
        let engine = Engine::open(":memory:", thalweg_engine::Config::default()).unwrap();
        let there = engine.block_on(engine.session().query(&set(false))).is_ok();
        let modes = Mode::all(&engine, &[]).unwrap();
        let shared: Vec<Option<bool>> = modes.iter().map(|mode| mode.shared).collect();
        if there {
            assert_eq!(shared, [Some(false), Some(true)]);
            assert_eq!(Mode::all(&engine, &[true]).unwrap().len(), 1);
        } else {
            assert_eq!(shared, [None]);
            assert!(Mode::all(&engine, &[true]).is_err());
        }
    }
}
