//! How long short queries take beside streams of heavy ones: the model and its text.

use serde::{Deserialize, Serialize};

use super::figures::{ms, policy, ratio, spread};
use super::model::{BASE_POLICY, Timing, percentile, quotient};
use super::text::{Options, Table, titled};
use crate::standstill::LATE;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Of one measurement.
    pub seconds: f64,
    pub runs: usize,
    /// Between two short queries.
    pub interval_ms: f64,
    /// What each heavy stream runs, in turns.
    pub heavy: Vec<String>,
    /// By number of streams, then by engine.
    pub loads: Vec<StreamLoad>,
}

/// One engine, or one policy of ours, beside so many heavy streams; all runs together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamLoad {
    /// A policy, or `DuckDB 2.0.0`.
    pub engine: String,
    pub peer: bool,
    /// Heavy streams; 0: the short queries alone.
    pub streams: usize,
    pub short: Vec<ShortLatency>,
    /// Of each run, and their mean.
    pub heavy_per_s_runs: Vec<f64>,
    pub heavy_per_s: f64,
    /// As a ± of the mean.
    pub heavy_spread_percent: f64,
    /// Divided by that under FIFO: above 1, more heavy work is done.
    pub heavy_to_fifo: Option<f64>,
    /// Unless that could not be seen.
    pub standstills: Option<Standstills>,
}

/// When a core of the machine did not run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Standstills {
    pub count: usize,
    pub longest_ms: f64,
}

/// Milliseconds from when a query was due to its last row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShortLatency {
    pub query: String,
    pub count: usize,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    /// The 99th percentiles of the runs, one by one.
    pub p99_of_runs: Timing,
    /// The 99th percentile divided by that of the same engine without heavy streams.
    pub p99_to_solo: Option<f64>,
    /// The first peer's 99th percentile divided by this one: above 1, this one is lower.
    pub peer_p99_to_this: Option<f64>,
    pub undisturbed: Option<Undisturbed>,
}

/// Without the queries that were due or under way while a core of the machine stood still.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Undisturbed {
    /// That many.
    pub left_out: usize,
    pub p99_ms: f64,
    /// Divided by that, also undisturbed, without heavy streams.
    pub p99_to_solo: Option<f64>,
}

/// What was seen of the machine in one run.
#[derive(Debug, PartialEq)]
pub struct StoodStill {
    pub lengths_ms: Vec<f64>,
    /// Of each short query, in the order they were due, whether it met one.
    pub short: Vec<bool>,
}

/// What was measured of one engine beside so many streams.
pub struct Measured {
    engine: String,
    peer: bool,
    streams: usize,
    /// Of each kind of short query, of each run its latencies.
    short_ms: Vec<(String, Vec<Vec<f64>>)>,
    heavy_per_s: Vec<f64>,
    /// Of each run.
    stood_still: Vec<Option<StoodStill>>,
}

impl Measured {
    pub fn new(engine: String, peer: bool, streams: usize, kinds: &[&str]) -> Measured {
        let short_ms = kinds.iter().map(|kind| (kind.to_string(), vec![])).collect();
        Measured { engine, peer, streams, short_ms, heavy_per_s: vec![], stood_still: vec![] }
    }

    /// A run: its latencies in the order the queries were due, the kinds in turn.
    pub fn add(
        &mut self,
        latencies_ms: Vec<f64>,
        heavy_per_s: f64,
        stood_still: Option<StoodStill>,
    ) {
        let kinds = self.short_ms.len();
        for (i, (_, runs)) in self.short_ms.iter_mut().enumerate() {
            runs.push(latencies_ms.iter().skip(i).step_by(kinds).copied().collect());
        }
        self.heavy_per_s.push(heavy_per_s);
        self.stood_still.push(stood_still);
    }

    /// If it was seen in every run.
    fn standstills(&self) -> Option<Standstills> {
        let of =
            |stood_still: &'_ Option<StoodStill>| Some(stood_still.as_ref()?.lengths_ms.clone());
        let lengths = self.stood_still.iter().map(of).collect::<Option<Vec<_>>>()?.concat();
        let longest_ms = lengths.iter().copied().fold(0.0, f64::max);
        Some(Standstills { count: lengths.len(), longest_ms })
    }

    /// The latencies, sorted, of those of a kind that met no standstill.
    fn undisturbed(&self, kind: usize) -> Option<Vec<f64>> {
        let (kinds, mut all) = (self.short_ms.len(), vec![]);
        for (run, stood_still) in self.short_ms[kind].1.iter().zip(&self.stood_still) {
            let met = stood_still.as_ref()?.short.iter().skip(kind).step_by(kinds);
            all.extend(run.iter().zip(met).filter(|(_, met)| !**met).map(|(took, _)| *took));
        }
        Some(sorted(all))
    }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

impl Latency {
    pub fn new(
        seconds: f64,
        interval_ms: f64,
        heavy: Vec<String>,
        measured: Vec<Measured>,
    ) -> Latency {
        let runs = measured.first().map_or(0, |m| m.heavy_per_s.len());
        let mut loads: Vec<StreamLoad> = measured.into_iter().map(StreamLoad::new).collect();
        let plain = loads.clone();
        for load in &mut loads {
            let streams = load.streams;
            let fifo = plain.iter().find(|l| l.streams == streams && l.engine == BASE_POLICY);
            load.heavy_to_fifo = fifo
                .filter(|fifo| fifo.heavy_per_s > 0.0)
                .map(|fifo| load.heavy_per_s / fifo.heavy_per_s);
            let solo_load = plain.iter().find(|l| l.streams == 0 && l.engine == load.engine);
            let peer = plain.iter().find(|l| l.streams == streams && l.peer);
            for short in &mut load.short {
                let p99 = |load: Option<&StreamLoad>| {
                    load?.short.iter().find(|s| s.query == short.query).map(|s| s.p99_ms)
                };
                let (solo, peer) = (p99(solo_load), p99(peer));
                short.p99_to_solo = solo.map(|solo| quotient(short.p99_ms, solo));
                short.peer_p99_to_this = peer.map(|peer| quotient(peer, short.p99_ms));
                let alone = solo_load.and_then(|load| load.undisturbed_p99(&short.query));
                if let (Some(undisturbed), Some(alone)) = (&mut short.undisturbed, alone) {
                    undisturbed.p99_to_solo = Some(quotient(undisturbed.p99_ms, alone));
                }
            }
        }
        Latency { seconds, runs, interval_ms, heavy, loads }
    }

    /// The loads of each number of streams, in the order they were measured.
    pub fn by_streams(&self) -> impl Iterator<Item = &[StreamLoad]> {
        self.loads.chunk_by(|a, b| a.streams == b.streams)
    }

    /// The engine that `peer_p99_to_this` compares with.
    fn peer(&self) -> Option<&str> {
        self.loads.iter().find(|load| load.peer).map(|load| load.engine.as_str())
    }

    pub fn header(&self) -> Vec<String> {
        let mut header =
            ["Engine", "Query", "p50", "p95", "p99", "Max", "÷ solo"].map(String::from).to_vec();
        header.extend(self.peer().map(|peer| format!("{} ÷", name_alone(peer))));
        header
    }

    /// A row for each kind of short query; only the first names the engine.
    pub fn rows(&self, load: &StreamLoad) -> Vec<Vec<String>> {
        let row = |(i, short): (usize, &ShortLatency)| {
            let mut row = vec![
                if i == 0 { policy(&load.engine).to_string() } else { String::new() },
                short.query.clone(),
                ms(short.p50_ms),
                ms(short.p95_ms),
                self.with_spread(ms(short.p99_ms), short.p99_of_runs.spread_percent),
                ms(short.max_ms),
                short.p99_to_solo.map_or("-".into(), ratio),
            ];
            if self.peer().is_some() {
                row.push(short.peer_p99_to_this.map_or("-".into(), ratio));
            }
            row
        };
        load.short.iter().enumerate().map(row).collect()
    }

    pub fn heavy_header(&self) -> Vec<String> {
        let mut header = vec!["Engine".to_string()];
        for loads in self.beside_streams() {
            header.extend([streams(loads[0].streams), "÷ FIFO".to_string()]);
        }
        header
    }

    pub fn heavy_rows(&self) -> Vec<Vec<String>> {
        let row = |(i, load): (usize, &StreamLoad)| {
            let mut row = vec![policy(&load.engine).to_string()];
            for loads in self.beside_streams() {
                let load = &loads[i];
                row.push(
                    self.with_spread(format!("{:.2}", load.heavy_per_s), load.heavy_spread_percent),
                );
                row.push(load.heavy_to_fifo.map_or("-".into(), ratio));
            }
            row
        };
        self.by_streams().take(1).flatten().enumerate().map(row).collect()
    }

    pub fn standstills_header(&self) -> Vec<String> {
        let header =
            ["Engine", "Streams", "Times", "Longest", "Query", "Left out", "p99", "÷ solo"];
        header.map(String::from).to_vec()
    }

    /// A row for each kind of short query of those measurements in which it was seen whether the
    /// machine stood still.
    pub fn standstills_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![];
        for load in &self.loads {
            let Some(standstills) = &load.standstills else { continue };
            for (i, short) in load.short.iter().enumerate() {
                let Some(undisturbed) = &short.undisturbed else { continue };
                let first = |cell: String| if i == 0 { cell } else { String::new() };
                rows.push(vec![
                    first(policy(&load.engine).to_string()),
                    first(load.streams.to_string()),
                    first(standstills.count.to_string()),
                    first(ms(standstills.longest_ms)),
                    short.query.clone(),
                    undisturbed.left_out.to_string(),
                    ms(undisturbed.p99_ms),
                    undisturbed.p99_to_solo.map_or("-".into(), ratio),
                ]);
            }
        }
        rows
    }

    fn beside_streams(&self) -> impl Iterator<Item = &[StreamLoad]> {
        self.by_streams().filter(|loads| loads[0].streams > 0)
    }

    /// One run has no spread.
    fn with_spread(&self, figure: String, percent: f64) -> String {
        if self.runs < 2 { figure } else { format!("{figure} {:>5}", spread(percent)) }
    }

    pub fn lead(&self) -> String {
        let runs = if self.runs == 1 { "once" } else { &format!("{} times", self.runs) };
        format!(
            "A short query every {:.0} ms for {} s, {runs}, engines in turn. Heavy streams run {} in turns.",
            self.interval_ms,
            self.seconds,
            self.heavy.join(", ")
        )
    }

    /// What the ratios of the short queries mean.
    pub fn legend(&self) -> String {
        let mut legend = "÷ solo: p99 divided by that without heavy streams".to_string();
        if let Some(peer) = self.peer() {
            legend += &format!(". {} ÷: above 1, its p99 is the higher", name_alone(peer));
        }
        legend
    }
}

/// Without its version.
fn name_alone(engine: &str) -> &str {
    engine.split(' ').next().unwrap_or(engine)
}

impl StreamLoad {
    fn new(measured: Measured) -> StreamLoad {
        let standstills = measured.standstills();
        let undisturbed: Vec<_> =
            (0..measured.short_ms.len()).map(|kind| measured.undisturbed(kind)).collect();
        let short = measured.short_ms.into_iter().zip(undisturbed);
        let runs = measured.heavy_per_s;
        StreamLoad {
            engine: measured.engine,
            peer: measured.peer,
            streams: measured.streams,
            short: short
                .filter_map(|((query, runs), undisturbed)| {
                    ShortLatency::new(query, runs, undisturbed)
                })
                .collect(),
            heavy_per_s: quotient(runs.iter().sum(), runs.len() as f64),
            heavy_spread_percent: Timing::new(runs.clone()).map_or(0.0, |t| t.spread_percent),
            heavy_per_s_runs: runs,
            heavy_to_fifo: None,
            standstills,
        }
    }

    fn undisturbed_p99(&self, query: &str) -> Option<f64> {
        let short = self.short.iter().find(|short| short.query == query)?;
        short.undisturbed.as_ref().map(|undisturbed| undisturbed.p99_ms)
    }

    /// `8 heavy streams: short queries in ms since due, 600 of each`.
    pub fn title(&self) -> String {
        let count = self.short.iter().map(|s| s.count).min().unwrap_or(0);
        let streams = streams(self.streams);
        format!("{streams} of heavy queries: short ones in ms since due, {count} of each")
    }
}

fn streams(count: usize) -> String {
    match count {
        0 => "No stream".to_string(),
        1 => "1 stream".to_string(),
        n => format!("{n} streams"),
    }
}

impl ShortLatency {
    /// `runs`: of each run its latencies; None where there is none. Percentiles are of all runs
    /// together, since a run alone has few values above its 99th. `undisturbed`: sorted.
    fn new(
        query: String,
        runs: Vec<Vec<f64>>,
        undisturbed: Option<Vec<f64>>,
    ) -> Option<ShortLatency> {
        let p99s = runs.iter().filter_map(|run| percentile(&sorted(run.clone()), 99)).collect();
        let all = sorted(runs.concat());
        Some(ShortLatency {
            query,
            count: all.len(),
            p50_ms: percentile(&all, 50)?,
            p95_ms: percentile(&all, 95)?,
            p99_ms: percentile(&all, 99)?,
            max_ms: percentile(&all, 100)?,
            p99_of_runs: Timing::new(p99s)?,
            p99_to_solo: None,
            peer_p99_to_this: None,
            undisturbed: undisturbed.and_then(|values| {
                let left_out = all.len() - values.len();
                Some(Undisturbed { left_out, p99_ms: percentile(&values, 99)?, p99_to_solo: None })
            }),
        })
    }
}

/// What its table says.
pub fn standstills_title() -> String {
    let late = LATE.as_millis();
    format!("Times that a core of the machine itself did not run for more than {late} ms")
}

pub const STANDSTILLS_LEGEND: &str =
    "p99 and ÷ solo here: without the queries that were due or under way then";

pub fn text(latency: &Latency, options: Options) -> String {
    let mut sections = vec![latency.lead() + "\n"];
    for loads in latency.by_streams() {
        let rows = loads.iter().flat_map(|load| latency.rows(load)).collect();
        let title = format!("{}\n{}", loads[0].title(), latency.legend());
        sections.push(titled(&title, Table::of(latency.header(), rows), options));
    }
    if latency.loads.iter().any(|load| load.streams > 0) {
        let title = "Heavy queries per second beside the short ones\n\
                     ÷ FIFO: above 1, more than under FIFO";
        let table = Table::of(latency.heavy_header(), latency.heavy_rows());
        sections.push(titled(title, table, options));
    }
    let standstills = latency.standstills_rows();
    if !standstills.is_empty() {
        let title = format!("{}\n{STANDSTILLS_LEGEND}", standstills_title());
        let table = Table::of(latency.standstills_header(), standstills);
        sections.push(titled(&title, table, options));
    }
    sections.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn each_engine_is_compared_with_itself_alone_and_with_the_peer() {
        let latency = sample::latency();
        let find = |engine: &str, streams| {
            latency.loads.iter().find(|l| l.engine == engine && l.streams == streams).unwrap()
        };
        let fair = find("fair", 8);
        let [look_up, report] = &fair.short[..] else { panic!("{fair:?}") };
        assert_eq!((look_up.count, look_up.p99_ms, look_up.max_ms), (300, 6.0, 9.0));
        assert_eq!((report.p50_ms, report.p99_ms), (20.0, 60.0));
        assert_eq!((report.p99_to_solo, report.peer_p99_to_this), (Some(2.0), Some(10.0)));
        assert_eq!(find("DuckDB 2.0.0", 8).short[1].peer_p99_to_this, Some(1.0));
        assert!((fair.heavy_per_s - 9.5).abs() < 1e-9, "{}", fair.heavy_per_s);
        assert!((fair.heavy_to_fifo.unwrap() - 0.95).abs() < 1e-9, "{:?}", fair.heavy_to_fifo);
        assert_eq!(find("fair", 0).heavy_to_fifo, None);
    }

    #[test]
    fn without_fifo_or_a_peer_there_is_no_ratio() {
        let mut alone = Measured::new("fair".into(), false, 2, &["look-up"]);
        alone.add(vec![1.0, 3.0], 5.0, None);
        let latency = Latency::new(1.0, 50.0, vec!["Q9".into()], vec![alone]);
        let load = &latency.loads[0];
        assert_eq!((load.heavy_to_fifo, load.short[0].p99_to_solo), (None, None));
        assert_eq!(latency.rows(load)[0], ["Fair", "look-up", "1.0", "3.0", "3.0", "3.0", "-"]);
        assert_eq!(latency.heavy_rows(), [["Fair", "5.00", "-"]]);
    }

    #[test]
    fn queries_that_met_a_standstill_are_left_out_of_a_table_of_their_own() {
        let run = |streams, short_ms: Vec<f64>, lengths_ms: Vec<f64>, met: Vec<bool>| {
            let mut measured = Measured::new("fair".into(), false, streams, &["look-up", "Q14"]);
            measured.add(short_ms, 5.0, Some(StoodStill { lengths_ms, short: met }));
            measured
        };
        let solo = run(0, vec![1.0, 10.0, 1.5, 20.0], vec![], vec![false; 4]);
        let beside =
            run(2, vec![13.0, 15.0, 3.0, 30.0], vec![12.0, 3.0], vec![true, false, false, false]);
        let latency = Latency::new(1.0, 50.0, vec!["Q9".into()], vec![solo, beside]);
        assert_eq!(latency.loads[1].short[0].p99_ms, 13.0);
        let rows = latency.standstills_rows();
        assert_eq!(rows[0], ["Fair", "0", "0", "0.0", "look-up", "0", "1.5", "1.00×"]);
        assert_eq!(rows[2], ["Fair", "2", "2", "12.0", "look-up", "1", "3.0", "2.00×"]);
        assert_eq!(rows[3], ["", "", "", "", "Q14", "0", "30.0", "1.50×"]);
    }

    #[test]
    fn the_tables_name_each_engine_once() {
        let expected = "\
A short query every 50 ms for 10 s, 3 times, engines in turn. Heavy streams run Q9, Q18, Q21 in turns.

No stream of heavy queries: short ones in ms since due, 300 of each
÷ solo: p99 divided by that without heavy streams. DuckDB ÷: above 1, its p99 is the higher
Engine       |   Query |  p50 |  p95 |        p99 |  Max | ÷ solo | DuckDB ÷
-------------|---------|------|------|------------|------|--------|---------
Fair         | look-up |  1.0 |  1.0 |  3.0  ±0 % |  4.5 |  1.00× |    2.00×
             |     Q14 | 10.0 | 10.0 | 30.0  ±0 % | 45.0 |  1.00× |    2.00×
";
        let text = text(&sample::latency(), Options::default());
        assert!(text.starts_with(expected), "{text}");
        let heavy = "\
Heavy queries per second beside the short ones
÷ FIFO: above 1, more than under FIFO
Engine       |   8 streams | ÷ FIFO
-------------|-------------|-------
Fair         |  9.50  ±5 % |  0.95×
FIFO         | 10.00  ±5 % |  1.00×
DuckDB 2.0.0 | 20.00  ±5 % |  2.00×
";
        assert!(text.ends_with(heavy), "{text}");
    }
}
