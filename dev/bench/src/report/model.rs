//! What a benchmark found, as plain data: `--json` writes it, the terminal and the page show it.
//!
//! Every derived figure (median, ratio, percentage, mean) is computed once, here, when its
//! struct is built, and kept as a field. So no two forms of a report can disagree.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::cancel::Cancels;
use super::cold_scan::ColdScan;
use super::coverage::Coverage;
use super::latency::Latency;
use super::load_rate::LoadRates;
use super::memory::MemoryRun;
use super::out_of_core::OutOfCore;
use super::throughput::Throughput;
use super::variants::Variants;

/// Version of the JSON form; raised when a field changes its meaning or goes away.
pub const FORMAT: u32 = 2;

/// The policy the others are compared with.
pub const BASE_POLICY: &str = "fifo";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub format: u32,
    /// As its authors write it: `TPC-H`, `SSB`.
    pub benchmark: String,
    pub scale_factor: f64,
    /// UTC, `2026-01-31 12:00:00`.
    pub started: String,
    pub engine: Engine,
    pub machine: Machine,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerRun>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub concurrency: Vec<Concurrency>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixed: Option<Mixed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throughput: Vec<Throughput>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variants>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub out_of_core: Vec<OutOfCore>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub coverage: Vec<Coverage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancels: Option<Cancels>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryRun>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<Peers>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_rates: Option<LoadRates>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_scan: Option<ColdScan>,
    /// Sentences a reader must know to judge the figures, such as how answers were checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Report {
    /// A report without any section, of this machine at this time.
    pub fn new(benchmark: &str, scale_factor: f64, engine: Engine) -> Report {
        Report {
            format: FORMAT,
            benchmark: benchmark.to_string(),
            scale_factor,
            started: utc_now(),
            engine,
            machine: Machine::read(),
            load: None,
            power: None,
            concurrency: Vec::new(),
            mixed: None,
            latency: None,
            throughput: Vec::new(),
            variants: Vec::new(),
            out_of_core: Vec::new(),
            coverage: Vec::new(),
            cancels: None,
            memory: None,
            peers: None,
            load_rates: None,
            cold_scan: None,
            notes: Vec::new(),
        }
    }

    /// `TPC-H SF 10`.
    pub fn subject(&self) -> String {
        format!("{} SF {}", self.benchmark, self.scale_factor)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Engine {
    pub name: String,
    pub version: String,
    pub threads: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    /// Hardware threads this process may use.
    pub cores: usize,
    pub memory_bytes: u64,
    pub os: String,
}

impl Machine {
    /// What the kernel says of this machine; `unknown` and 0 where it does not say.
    pub fn read() -> Machine {
        let read = |path: &str| std::fs::read_to_string(Path::new(path)).unwrap_or_default();
        let os_release = read("/etc/os-release");
        let os = field(&os_release, "PRETTY_NAME", '=')
            .map_or(std::env::consts::OS, |name| name.trim_matches('"'));
        let kernel = read("/proc/sys/kernel/osrelease");
        Machine {
            cpu: field(&read("/proc/cpuinfo"), "model name", ':').unwrap_or("unknown").to_string(),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
            memory_bytes: field(&read("/proc/meminfo"), "MemTotal", ':')
                .and_then(|v| v.trim_end_matches("kB").trim().parse::<u64>().ok())
                .map_or(0, |kib| kib * 1024),
            os: format!("{os}, {} {}", std::env::consts::ARCH, kernel.trim()).trim().to_string(),
        }
    }
}

/// The value of the first `name <separator> value` line.
fn field<'a>(text: &'a str, name: &str, separator: char) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(separator))
        .find(|(key, value)| key.trim() == name && !value.trim().is_empty())
        .map(|(_, value)| value.trim())
}

/// Now, in UTC, to the second.
pub fn utc_now() -> String {
    let seconds = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_secs() as i64);
    arrow::array::temporal_conversions::timestamp_s_to_datetime(seconds)
        .map_or_else(|| "unknown".to_string(), |t| t.to_string())
}

/// How fast the data went in and how small it became.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    pub tables: Vec<LoadTable>,
    /// All tables; its seconds are the wall clock of the whole load, which is less than the
    /// sum of the tables' where they were loaded at once.
    pub total: LoadTable,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadTable {
    pub table: String,
    pub rows: u64,
    pub raw_bytes: u64,
    pub stored_bytes: u64,
    pub seconds: f64,
    pub extents: u64,
    pub chunks: u64,
    /// Raw bytes per stored byte.
    pub ratio: f64,
    /// Raw megabytes (10^6 bytes) per second.
    pub mb_per_s: f64,
}

impl LoadTable {
    pub fn new(
        table: &str,
        rows: u64,
        raw_bytes: u64,
        stored_bytes: u64,
        seconds: f64,
        extents: u64,
        chunks: u64,
    ) -> LoadTable {
        LoadTable {
            table: table.to_string(),
            rows,
            raw_bytes,
            stored_bytes,
            seconds,
            extents,
            chunks,
            ratio: quotient(raw_bytes as f64, stored_bytes as f64),
            mb_per_s: quotient(raw_bytes as f64 / 1e6, seconds),
        }
    }
}

impl Load {
    /// `seconds` is the wall clock of the whole load.
    pub fn new(tables: Vec<LoadTable>, seconds: f64) -> Load {
        let sum = |f: fn(&LoadTable) -> u64| tables.iter().map(f).sum();
        let total = LoadTable::new(
            "Total",
            sum(|t| t.rows),
            sum(|t| t.raw_bytes),
            sum(|t| t.stored_bytes),
            seconds,
            sum(|t| t.extents),
            sum(|t| t.chunks),
        );
        Load { tables, total }
    }
}

/// Several measurements of one thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// In the order they were measured.
    pub runs_ms: Vec<f64>,
    pub median_ms: f64,
    pub best_ms: f64,
    pub worst_ms: f64,
    /// Half the range, as a percentage of the median: the ± of the median.
    pub spread_percent: f64,
}

impl Timing {
    /// None for no measurement at all.
    pub fn new(runs_ms: Vec<f64>) -> Option<Timing> {
        let median_ms = median(&runs_ms)?;
        let best_ms = runs_ms.iter().copied().fold(f64::INFINITY, f64::min);
        let worst_ms = runs_ms.iter().copied().fold(0.0, f64::max);
        let spread_percent = quotient((worst_ms - best_ms) * 50.0, median_ms);
        Some(Timing { runs_ms, median_ms, best_ms, worst_ms, spread_percent })
    }
}

/// Every query once, one after the other, with nobody else on the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PowerRun {
    pub queries: Vec<PowerQuery>,
    /// Sum of the queries' medians.
    pub seconds: f64,
    pub geometric_mean_ms: f64,
    pub runs: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PowerQuery {
    pub query: String,
    pub rows: u64,
    pub timing: Timing,
}

impl PowerRun {
    pub fn new(queries: Vec<PowerQuery>) -> PowerRun {
        let medians = || queries.iter().map(|q| q.timing.median_ms);
        PowerRun {
            seconds: medians().sum::<f64>() / 1e3,
            geometric_mean_ms: geometric_mean(medians()).unwrap_or(0.0),
            runs: queries.iter().map(|q| q.timing.runs_ms.len()).max().unwrap_or(0),
            queries,
        }
    }

    pub fn query(&self, name: &str) -> Option<&PowerQuery> {
        self.queries.iter().find(|q| q.query == name)
    }
}

/// N streams at once under one policy, against N power runs one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Concurrency {
    pub policy: String,
    pub power_seconds: f64,
    /// `power_seconds` × streams: what N users would wait in turn.
    pub power_times_n_seconds: f64,
    pub streams: Vec<Stream>,
    pub average_seconds: f64,
    pub average_percent_better: f64,
    /// `power_times_n_seconds` divided by the average: above 1, at once is faster.
    pub average_ratio: f64,
    pub slowest_seconds: f64,
    pub slowest_ratio: f64,
    /// From the first start to the last end.
    pub wall_seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// From 1.
    pub number: usize,
    /// In the order of the stream.
    pub queries: Vec<Span>,
    pub seconds: f64,
    pub percent_better: f64,
    /// As `Concurrency::average_ratio`.
    pub ratio: f64,
}

/// When a query was given and when its last row came back, since the run began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    pub query: String,
    pub start_s: f64,
    pub end_s: f64,
    pub rows: u64,
}

impl Span {
    pub fn seconds(&self) -> f64 {
        self.end_s - self.start_s
    }
}

impl Concurrency {
    /// `streams`: of each stream its queries, in order.
    pub fn new(policy: &str, power_seconds: f64, streams: Vec<Vec<Span>>) -> Concurrency {
        let power_times_n_seconds = power_seconds * streams.len() as f64;
        let better =
            |seconds: f64| quotient(power_times_n_seconds - seconds, power_times_n_seconds) * 100.0;
        let ratio = |seconds: f64| quotient(power_times_n_seconds, seconds);
        let streams: Vec<Stream> = streams
            .into_iter()
            .enumerate()
            .map(|(i, queries)| {
                let (start, end) = extent(&queries);
                let seconds = end - start;
                let (number, percent_better) = (i + 1, better(seconds));
                Stream { number, queries, seconds, percent_better, ratio: ratio(seconds) }
            })
            .collect();
        let (start, end) = extent(streams.iter().flat_map(|s| &s.queries));
        let average_seconds =
            quotient(streams.iter().map(|s| s.seconds).sum(), streams.len() as f64);
        let slowest_seconds = streams.iter().map(|s| s.seconds).fold(0.0, f64::max);
        Concurrency {
            policy: policy.to_string(),
            power_seconds,
            power_times_n_seconds,
            average_seconds,
            average_percent_better: better(average_seconds),
            average_ratio: ratio(average_seconds),
            slowest_seconds,
            slowest_ratio: ratio(slowest_seconds),
            wall_seconds: end - start,
            streams,
        }
    }
}

/// First start and last end; (0, 0) for no span.
fn extent<'a>(spans: impl IntoIterator<Item = &'a Span>) -> (f64, f64) {
    let (start, end) = spans.into_iter().fold((f64::INFINITY, 0.0), |(s, e): (f64, f64), span| {
        (s.min(span.start_s), e.max(span.end_s))
    });
    if start.is_finite() { (start, end) } else { (0.0, 0.0) }
}

/// Heavy queries first, short ones behind them, all at once: what each policy makes of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mixed {
    pub runs: Vec<MixedRun>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MixedRun {
    pub policy: String,
    /// In the order they were given.
    pub queries: Vec<MixedQuery>,
    pub short_average_seconds: f64,
    pub short_worst_seconds: f64,
    pub heavy_average_seconds: f64,
    /// Until everything was done.
    pub wall_seconds: f64,
    /// Average completion of the short queries under FIFO divided by that under this policy:
    /// above 1, they are done sooner than under FIFO. None if FIFO was not run.
    pub short_times_sooner_than_fifo: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    Heavy,
    Short,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MixedQuery {
    pub weight: Weight,
    #[serde(flatten)]
    pub span: Span,
}

impl Mixed {
    /// Of each policy its queries, in the order they were given.
    pub fn new(runs: Vec<(String, Vec<MixedQuery>)>) -> Mixed {
        let mut runs: Vec<MixedRun> =
            runs.into_iter().map(|(policy, queries)| MixedRun::new(policy, queries)).collect();
        let fifo = runs.iter().find(|r| r.policy == BASE_POLICY).map(|r| r.short_average_seconds);
        for run in &mut runs {
            run.short_times_sooner_than_fifo =
                fifo.map(|fifo| quotient(fifo, run.short_average_seconds));
        }
        Mixed { runs }
    }
}

impl MixedRun {
    fn new(policy: String, queries: Vec<MixedQuery>) -> MixedRun {
        let of =
            |weight| queries.iter().filter(move |q| q.weight == weight).map(|q| q.span.seconds());
        let average = |weight| quotient(of(weight).sum(), of(weight).count() as f64);
        let (start, end) = extent(queries.iter().map(|q| &q.span));
        MixedRun {
            policy,
            short_average_seconds: average(Weight::Short),
            short_worst_seconds: of(Weight::Short).fold(0.0, f64::max),
            heavy_average_seconds: average(Weight::Heavy),
            wall_seconds: end - start,
            short_times_sooner_than_fifo: None,
            queries,
        }
    }
}

/// The same queries on other engines, interleaved in the same run on the same machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peers {
    /// Ours is the first.
    pub engines: Vec<PeerEngine>,
    pub queries: Vec<PeerQuery>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerEngine {
    pub name: String,
    pub version: String,
    /// Geometric mean of its ratios over the queries both engines answered; 1 for ours.
    pub geometric_mean_ratio: Option<f64>,
    /// How many queries that mean covers.
    pub compared: usize,
    /// Sum of the medians over those queries, and ours over the same ones.
    pub total_ms: f64,
    pub our_total_ms: f64,
    pub total_ratio: Option<f64>,
    /// On how many of them we were the faster, and the slower.
    pub wins: usize,
    pub losses: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerQuery {
    pub query: String,
    /// One per engine, in the order of `Peers::engines`.
    pub results: Vec<PeerResult>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerResult {
    pub timing: Option<Timing>,
    /// Why there is no timing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How its answer differs from ours; None where it is equal or was not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differs: Option<String>,
    /// Its median divided by ours: above 1, we are faster. 1 for ours.
    pub ratio: Option<f64>,
    /// The ratio at the extremes: its best by our worst, its worst by our best.
    pub ratio_low: Option<f64>,
    pub ratio_high: Option<f64>,
}

impl PeerResult {
    /// What was measured; the ratios come when `Peers::new` sees ours.
    pub fn measured(runs_ms: Vec<f64>, differs: Option<String>) -> PeerResult {
        PeerResult { timing: Timing::new(runs_ms), differs, ..PeerResult::failed(None) }
    }

    pub fn failed(error: impl Into<Option<String>>) -> PeerResult {
        PeerResult {
            timing: None,
            error: error.into(),
            differs: None,
            ratio: None,
            ratio_low: None,
            ratio_high: None,
        }
    }
}

impl Peers {
    /// `engines`: name and version, ours first. Every query has one result per engine, in that order.
    pub fn new(engines: Vec<(String, String)>, mut queries: Vec<PeerQuery>) -> Peers {
        for query in &mut queries {
            let Some(ours) = query.results.first().and_then(|r| r.timing.clone()) else { continue };
            for result in &mut query.results {
                let Some(theirs) = &result.timing else { continue };
                result.ratio = Some(quotient(theirs.median_ms, ours.median_ms));
                result.ratio_low = Some(quotient(theirs.best_ms, ours.worst_ms));
                result.ratio_high = Some(quotient(theirs.worst_ms, ours.best_ms));
            }
        }
        let engines = engines
            .into_iter()
            .enumerate()
            .map(|(i, (name, version))| {
                let pairs = || {
                    queries.iter().filter_map(move |q| {
                        let result = q.results.get(i)?;
                        let ours = q.results.first()?.timing.as_ref()?;
                        Some((result.ratio?, result.timing.as_ref()?.median_ms, ours.median_ms))
                    })
                };
                let total_ms: f64 = pairs().map(|p| p.1).sum();
                let our_total_ms: f64 = pairs().map(|p| p.2).sum();
                PeerEngine {
                    name,
                    version,
                    geometric_mean_ratio: geometric_mean(pairs().map(|p| p.0)),
                    compared: pairs().count(),
                    total_ms,
                    our_total_ms,
                    total_ratio: (our_total_ms > 0.0).then(|| total_ms / our_total_ms),
                    wins: pairs().filter(|p| p.0 > 1.0).count(),
                    losses: pairs().filter(|p| p.0 < 1.0).count(),
                }
            })
            .collect();
        Peers { engines, queries }
    }
}

/// The middle value, or the mean of the two; None of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The least of `sorted` values that `percent` of them do not exceed (nearest rank); None of
/// nothing. It is a value that occurred: interpolation would invent one in a thin tail.
pub fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1)).copied()
}

/// None of nothing, and of a value that has no logarithm.
pub fn geometric_mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut n) = (0.0, 0u32);
    for value in values {
        sum += value.ln();
        n += 1;
    }
    (n > 0 && f64::is_finite(sum)).then(|| (sum / f64::from(n)).exp())
}

/// 0 where there is nothing to divide by: JSON and charts have no infinity.
pub(crate) fn quotient(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { a / b }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_report_of_theseus_comes_out_as_published() {
        let runtimes =
            [3379.99, 3077.37, 3608.19, 3365.73, 3598.78, 3370.95, 2757.30, 2572.95, 3335.45];
        let span = |end_s| vec![Span { query: "1".into(), start_s: 0.0, end_s, rows: 0 }];
        let run = Concurrency::new("fifo", 403.0, runtimes.map(span).to_vec());
        assert_eq!(run.power_times_n_seconds, 3627.0);
        assert!((run.average_seconds - 3229.64).abs() < 0.01, "{}", run.average_seconds);
        assert!(
            (run.average_percent_better - 10.96).abs() < 0.01,
            "{}",
            run.average_percent_better
        );
        assert!((run.streams[7].percent_better - 29.06).abs() < 0.01);
    }

    #[test]
    fn ratios_cover_only_what_both_answered() {
        let query = |name: &str, ours: Option<f64>, theirs: Option<f64>| PeerQuery {
            query: name.into(),
            results: [ours, theirs]
                .map(|t| match t {
                    Some(ms) => PeerResult::measured(vec![ms], None),
                    None => PeerResult::failed("out of memory".to_string()),
                })
                .to_vec(),
        };
        let peers = Peers::new(
            vec![("Thalweg".into(), "1".into()), ("Other".into(), "2".into())],
            vec![
                query("1", Some(10.0), Some(40.0)),
                query("2", Some(10.0), Some(2.5)),
                query("3", Some(10.0), None),
                query("4", None, Some(1.0)),
                query("5", Some(5.0), Some(5.0)),
            ],
        );
        let other = &peers.engines[1];
        assert_eq!((other.compared, other.wins, other.losses), (3, 1, 1));
        assert!((other.geometric_mean_ratio.unwrap() - 1.0).abs() < 1e-12);
        assert_eq!((other.total_ms, other.our_total_ms), (47.5, 25.0));
        assert_eq!(peers.queries[0].results[1].ratio, Some(4.0));
        assert_eq!(peers.queries[2].results[1].ratio, None);
        assert_eq!(peers.queries[3].results[1].ratio, None);
    }

    #[test]
    fn a_policy_is_compared_with_fifo() {
        let query = |weight, end_s| MixedQuery {
            weight,
            span: Span { query: "q".into(), start_s: 0.0, end_s, rows: 1 },
        };
        let mixed = Mixed::new(vec![
            ("fifo".into(), vec![query(Weight::Heavy, 5.0), query(Weight::Short, 6.0)]),
            ("fair".into(), vec![query(Weight::Heavy, 6.0), query(Weight::Short, 1.5)]),
        ]);
        assert_eq!(mixed.runs[0].short_times_sooner_than_fifo, Some(1.0));
        assert_eq!(mixed.runs[1].short_times_sooner_than_fifo, Some(4.0));
        assert_eq!(mixed.runs[1].wall_seconds, 6.0);
    }

    #[test]
    fn json_keeps_every_figure() {
        let report = sample::report();
        let json = serde_json::to_string(&report).unwrap();
        let read: Report = serde_json::from_str(&json).unwrap();
        // As text, because JSON's numbers may lose the last bit.
        let options = crate::report::text::Options::default();
        assert_eq!(
            crate::report::text::render(&read, options),
            crate::report::text::render(&report, options)
        );
    }

    #[test]
    fn nothing_measured_is_no_infinity() {
        assert_eq!(Timing::new(vec![]), None);
        assert_eq!(Timing::new(vec![3.0, 1.0, 2.0]).unwrap().median_ms, 2.0);
        assert_eq!(Timing::new(vec![4.0, 2.0]).unwrap().spread_percent, 100.0 / 3.0);
        assert_eq!(LoadTable::new("t", 0, 0, 0, 0.0, 0, 0).ratio, 0.0);
        let empty = Concurrency::new("fair", 1.0, vec![]);
        assert_eq!((empty.average_seconds, empty.average_percent_better), (0.0, 0.0));
        assert_eq!(geometric_mean([0.0].into_iter()), None);
        assert_eq!(percentile(&[], 99), None);
    }

    #[test]
    fn a_percentile_is_a_value_that_occurred() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        let of = |n: usize| [50, 95, 99, 100].map(|p| percentile(&values[..n], p).unwrap());
        assert_eq!(of(200), [100.0, 190.0, 198.0, 200.0]);
        assert_eq!(of(10), [5.0, 10.0, 10.0, 10.0]);
        assert_eq!(of(1), [1.0; 4]);
    }

    #[test]
    fn the_machine_is_described() {
        let machine = Machine::read();
        assert!(machine.cores >= 1);
        assert!(!machine.os.is_empty());
        assert_eq!(field("a : 1\nmodel name\t: X 9\n", "model name", ':'), Some("X 9"));
    }
}
