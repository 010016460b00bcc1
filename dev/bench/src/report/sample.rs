//! A made-up report for tests: plausible shapes, invented figures.

use thalweg_base::Prng;

use super::cancel::{Cancelled, Cancels, Way};
use super::cold_scan::{self, ColdScan, ScanRate};
use super::coverage::{Coverage, QueryCoverage};
use super::latency::{self, Latency};
use super::load_rate::{DiskRate, LoadRate, LoadRates, Measured, TableRate};
use super::memory::{Kind, Limits, MemoryQuery, MemoryRun, Totals};
use super::model::*;
use super::out_of_core::{OutOfCore, QueryOutOfCore};
use super::replay::{self, Query, Replay, Replayed};
use super::throughput::{self, Throughput};
use super::variants::{QueryVariants, Variants, What, Yardstick};

/// Milliseconds of the 22 queries.
const POWER_MS: [f64; 22] = [
    412.0, 58.0, 187.0, 143.0, 221.0, 61.0, 198.0, 176.0, 488.0, 243.0, 41.0, 132.0, 391.0, 74.0,
    83.0, 96.0, 118.0, 602.0, 154.0, 121.0, 517.0, 64.0,
];

pub fn report() -> Report {
    let mut prng = Prng::new(7);
    let mut around = move |value: f64, percent: i64| {
        value * (1.0 + prng.range(-percent * 10, percent * 10) as f64 / 1e3)
    };

    let queries = POWER_MS.iter().enumerate().map(|(i, &ms)| PowerQuery {
        query: format!("Q{}", i + 1),
        rows: [4, 100, 10, 5, 5, 1, 4, 2, 175, 20][i % 10],
        timing: Timing::new((0..5).map(|_| around(ms, 6)).collect()).unwrap(),
    });
    let power = PowerRun::new(queries.collect());

    let mut concurrency = Vec::new();
    for (policy, stretch_short, stretch_heavy) in [
        ("fifo", 5.2, 1.9),
        ("round_robin", 3.1, 2.3),
        ("small_first", 1.3, 2.7),
        ("fair", 1.5, 2.5),
    ] {
        let streams = (0..3).map(|stream| {
            let mut now = 0.0;
            let mut spans = Vec::new();
            for i in 0..22 {
                let index = (i * 7 + stream * 5 + 13) % 22;
                let alone = POWER_MS[index] / 1e3;
                let stretch = if alone < 0.1 { stretch_short } else { stretch_heavy };
                let end_s = now + around(alone * stretch, 30);
                spans.push(Span { query: format!("Q{}", index + 1), start_s: now, end_s, rows: 4 });
                now = end_s;
            }
            spans
        });
        concurrency.push(Concurrency::new(policy, power.seconds, streams.collect()));
    }

    let mixed = [("fifo", 3.9), ("round_robin", 1.2), ("small_first", 0.21), ("fair", 0.32)].map(
        |(policy, short_s)| {
            let heavy = |n: usize| MixedQuery {
                weight: Weight::Heavy,
                span: Span {
                    query: format!("heavy {n}"),
                    start_s: 0.0,
                    end_s: 2.4 + n as f64 * 0.9,
                    rows: 1,
                },
            };
            let mut queries = vec![heavy(1), heavy(2)];
            queries.extend((1..=6).map(|n| MixedQuery {
                weight: Weight::Short,
                span: Span {
                    query: format!("short {n}"),
                    start_s: 0.05,
                    end_s: 0.05 + around(short_s, 20),
                    rows: 10,
                },
            }));
            (policy.to_string(), queries)
        },
    );

    let peers = POWER_MS.iter().enumerate().map(|(i, &ms)| {
        let mut runs = |value: f64| (0..5).map(|_| around(value, 9)).collect::<Vec<_>>();
        let factor = [1.9, 0.7, 1.3, 2.8, 1.1, 0.45, 1.6, 3.9, 1.2, 0.93, 5.5][i % 11];
        let mut results = vec![
            PeerResult::measured(runs(ms), None),
            PeerResult::measured(runs(ms * factor), None),
            PeerResult::measured(runs(ms * factor * 1.7), None),
        ];
        if i == 17 {
            results[2] = PeerResult::failed("ResourcesExhausted: <not enough memory>".to_string());
        }
        PeerQuery { query: format!("Q{}", i + 1), results }
    });

    let table = |name: &str, rows: u64, raw_mb: f64, ratio: f64, seconds: f64| {
        let raw = (raw_mb * 1e6) as u64;
        LoadTable::new(
            name,
            rows,
            raw,
            (raw as f64 / ratio) as u64,
            seconds,
            rows / 8_000_000 + 1,
            rows / 65_536 + 1,
        )
    };
    Report {
        format: FORMAT,
        benchmark: "TPC-H".into(),
        scale_factor: 10.0,
        started: "2026-01-31 12:00:00".into(),
        engine: Engine { name: "Thalweg".into(), version: "0.1.0".into(), threads: 8 },
        machine: Machine {
            cpu: "Example CPU 9000".into(),
            cores: 8,
            memory_bytes: 32 << 30,
            os: "Debian GNU/Linux 12 (bookworm), x86_64 6.1".into(),
        },
        load: Some(Load::new(
            vec![
                table("lineitem", 59_986_052, 7_775.7, 3.31, 24.8),
                table("orders", 15_000_000, 1_749.2, 2.62, 6.9),
                table("partsupp", 8_000_000, 1_204.8, 2.11, 4.4),
                table("customer", 1_500_000, 244.8, 1.94, 1.1),
                table("part", 2_000_000, 243.3, 4.02, 0.9),
                table("supplier", 100_000, 14.2, 1.9, 0.2),
                table("nation", 25, 0.002, 0.4, 0.01),
                table("region", 5, 0.0004, 0.2, 0.01),
            ],
            27.4,
        )),
        concurrency,
        mixed: Some(Mixed::new(mixed.to_vec())),
        latency: Some(latency()),
        throughput: vec![throughput()],
        variants: vec![overhead(), scaling()],
        out_of_core: vec![out_of_core()],
        coverage: vec![coverage()],
        cancels: Some(cancels()),
        memory: Some(memory()),
        peers: Some(Peers::new(
            vec![
                ("Thalweg".into(), "0.1.0".into()),
                ("DuckDB".into(), "2.0.0".into()),
                ("DataFusion".into(), "55.0.0".into()),
            ],
            peers.collect(),
        )),
        power: Some(power),
        load_rates: Some(load_rates()),
        cold_scan: Some(cold_scan()),
        notes: vec![
            "All 22 answers are equal to DuckDB's and to the published ones.".into(),
            "Engines took turns, query by query; the cache was warm.".into(),
        ],
    }
}

/// Two of a hundred queries take three times as long as most, and the last one 1.5 times that.
pub fn latency() -> Latency {
    let mut measured = vec![];
    for streams in [0, 8] {
        for (engine, peer, stretch, heavy_per_s) in [
            ("fair", false, 2.0, 9.5),
            ("fifo", false, 40.0, 10.0),
            ("DuckDB 2.0.0", true, 20.0, 20.0),
        ] {
            let alone = if peer { 2.0 } else { 1.0 };
            let base = if streams == 0 { alone } else { stretch };
            let mut of_engine =
                latency::Measured::new(engine.into(), peer, streams, &["look-up", "Q14"]);
            for share in [0.95, 1.0, 1.05] {
                let tail = |k: usize| match k {
                    98 => 3.0,
                    99 => 4.5,
                    _ => 1.0,
                };
                let both = |k: usize| [1.0, 10.0].map(|ms| ms * base * tail(k));
                let heavy_per_s = if streams == 0 { 0.0 } else { heavy_per_s * share };
                of_engine.add((0..100).flat_map(both).collect(), heavy_per_s, None);
            }
            measured.push(of_engine);
        }
    }
    let heavy = ["Q9", "Q18", "Q21"].map(String::from).to_vec();
    Latency::new(10.0, 50.0, heavy, measured)
}

/// One stream alone, then two, of which the second is slower.
pub fn throughput() -> Throughput {
    let query = PowerQuery { query: "Q1.1".into(), rows: 1, timing: timing(1.0, 0.05) };
    let power = PowerRun::new(vec![query]);
    let load = |shared: bool, ends_s: &[f64]| {
        let span = |&end_s| vec![Span { query: "Q1.1".into(), start_s: 0.0, end_s, rows: 1 }];
        let run = Concurrency::new("fair", 1.0, ends_s.iter().map(span).collect());
        let averages = timing(run.average_seconds, 0.05);
        throughput::Load { shared: Some(shared), averages, power: power.clone(), run }
    };
    let loads = vec![
        load(false, &[1.0]),
        load(true, &[1.0]),
        load(false, &[2.0, 2.5]),
        load(true, &[0.75, 1.25]),
    ];
    Throughput::new("SSB SF 1".into(), "fair", 3, loads)
}

/// One query that the scheduler slows down, and one that it does not.
pub fn overhead() -> Variants {
    variants(What::Scheduler, &[("Q1", 0.2, 0.19), ("Q6", 0.05, 0.055)])
}

/// Two queries that take long, and one that does not.
pub fn scaling() -> Variants {
    let queries = [("Q1", 0.1, 0.19), ("Q6", 0.05, 0.08), ("Q11", 0.01, 0.011)];
    let machine = [("multiplying", 1.99), ("reading 256 MiB in a row", 1.6)];
    let yardstick = |(name, ratio): (&str, f64)| Yardstick { name: name.to_string(), ratio };
    let found = variants(What::Threads { threads: 2 }, &queries);
    Variants { machine: machine.map(yardstick).to_vec(), ..found }
}

/// The same on a machine whose cores are so far from each other in every other run, and so far in the
/// runs between.
pub fn near_or_far(distances_ns: [f64; 2]) -> Variants {
    let at = |seconds: f64, run: u32| if run.is_multiple_of(2) { seconds } else { seconds * 1.2 };
    let query = |(name, first, second): (&str, f64, f64)| {
        let ms = |seconds| Timing::new((0..6).map(|run| at(seconds, run) * 1e3).collect());
        let one = Timing::new(vec![second * 1e3; 6]);
        let distances = (0..6).map(|run| distances_ns[run % 2]).collect();
        QueryVariants::new(name, [ms(first).unwrap(), one.unwrap()], distances)
    };
    let queries = [("Q1", 0.1, 0.19), ("Q6", 0.05, 0.09), ("Q11", 0.01, 0.011)];
    let what = What::Threads { threads: 2 };
    Variants::new("TPC-H SF 1".into(), what, 6, queries.map(query).to_vec())
}

pub fn engines() -> Variants {
    variants(What::Engines { count: 2 }, &[("Q1", 0.1, 0.19), ("Q11", 0.01, 0.011)])
}

fn variants(what: What, queries: &[(&str, f64, f64)]) -> Variants {
    let query = |&(name, first, second): &(&str, f64, f64)| {
        QueryVariants::new(name, [timing(first, 0.05), timing(second, 0.1)], vec![])
    };
    Variants::new("TPC-H SF 1".into(), what, 3, queries.iter().map(query).collect())
}

/// One query that fits, one that spills, and one that fails.
pub fn out_of_core() -> OutOfCore {
    let query = |name: &str, limited: f64, unlimited: f64, held_mib: u64, spilled_mib: u64| {
        let (limited, unlimited) = (timing(limited, 0.1), timing(unlimited, 0.05));
        QueryOutOfCore::new(name, limited, unlimited, held_mib << 20, spilled_mib << 20)
    };
    let queries = vec![query("Q1", 0.1, 0.1, 2, 0), query("Q9", 0.6, 0.3, 700, 2048)];
    let wrong = vec!["Q18: no answer within the limit: <not> enough memory".into()];
    let resident = [4 << 30, 5 << 28];
    OutOfCore::new("TPC-H SF 1".into(), 3, Limits::new(1 << 30), queries, 3, wrong, resident)
}

/// One query wholly on pipelines, and one that is not.
pub fn coverage() -> Coverage {
    let query = |name: &str, operators: &[(&str, usize)], opaque: usize| {
        let operators = operators.iter().map(|(name, count)| (name.to_string(), *count));
        QueryCoverage::new(name, operators.collect(), opaque)
    };
    let whole = [("Pipeline", 2), ("PipelineExec", 1), ("ScanExec", 1)];
    let others = [("HashJoinExec", 1), ("RepartitionExec", 2), ("WindowAggExec", 1)];
    let partly = [&others[..], &[("Pipeline", 4), ("PipelineExec", 2), ("ScanExec", 3)]].concat();
    let queries = vec![query("Q6", &whole, 0), query("Q16", &partly, 3)];
    Coverage::new("TPC-H SF 0.001".into(), queries)
}

/// Q1 dropped within 0.1 to 10 ms, Q9 killed within 1.1 to 11 ms; memory takes twice as long.
pub fn cancels() -> Cancels {
    let cancelled = |query: &str, way, slots_ms: f64| Cancelled {
        query: query.into(),
        way,
        at_ms: slots_ms * 10.0,
        slots_ms,
        memory_ms: slots_ms * 2.0,
    };
    let mut all: Vec<Cancelled> = vec![];
    for i in 1..=100 {
        all.push(cancelled("Q1", Way::Drop, f64::from(i) / 10.0));
        all.push(cancelled("Q9", Way::Kill, f64::from(i + 10) / 10.0));
    }
    let solo = [("Q1", 100.0), ("Q2", 20.0), ("Q9", 300.0)];
    Cancels::new(all, 3, 0.1, solo.map(|(name, ms)| (name.to_string(), ms)).to_vec())
}

/// Of six queries two fail and one is wrong.
pub fn memory() -> MemoryRun {
    const MIB: u64 = 1 << 20;
    let query = |i: usize| {
        let kind = Kind::ALL[i % 3];
        MemoryQuery {
            kind,
            sql: format!("select {i}"),
            working_set_bytes: 100 * MIB,
            rows: 10,
            alone_seconds: 1.0,
            seconds: 10.0,
            right: kind != Kind::Join && i != 5,
            error: (kind == Kind::Join).then(|| format!("{i} MB of memory are <not> left\n{i}")),
        }
    };
    let totals = Totals {
        seconds: 10.0,
        rss_before_bytes: 20 * MIB,
        rss_peak_bytes: 55 * MIB,
        held_peak_bytes: 37 * MIB,
        spill_peak_bytes: 400 * MIB,
    };
    MemoryRun::new(Limits::new(50 * MIB), totals, (0..6).map(query).collect())
}

/// A long query, and two short ones in its middle that were slowed down.
pub fn replay() -> Replay {
    let query = |arrived_ms: u64, cpu_ms: u64, tasks| Query {
        arrived_ns: arrived_ms * 1_000_000,
        cpu_ns: cpu_ms * 1_000_000,
        tasks,
    };
    let queries = [query(0, 2000, 4), query(100, 20, 2), query(200, 20, 1)];
    let played = |policy, ms: [f64; 3]| Replayed::new(policy, &queries, ms.to_vec(), 2);
    let policies = vec![
        played(replay::AS_RECORDED, [1000.0, 40.0, 20.0]),
        played("fair", [2000.0, 10.0, 20.0]),
    ];
    Replay::new("log.csv", 2, 2.0, &queries, 1, policies)
}

fn timing(seconds: f64, spread: f64) -> Timing {
    Timing::new([1.0, 1.0 - spread, 1.0 + spread].map(|f| f * seconds * 1e3).to_vec()).unwrap()
}

pub fn load_rates() -> LoadRates {
    let write_limit = DiskRate::new(1 << 30, 1.073741824, "sequential write".into());
    let table = |table: &str, rows, raw_mb: u64, stored_mb: u64, seconds: f64| {
        TableRate::new(Measured {
            table,
            rows,
            raw_bytes: raw_mb * 1_000_000,
            stored_bytes: stored_mb * 1_000_000,
            extents: 1,
            chunks: rows / 65_536 + 1,
            timing: timing(seconds, 0.05),
            peer_timing: timing(seconds * 1.5, 0.05),
            peer_stored_bytes: stored_mb * 1_250_000,
            parquet_bytes: stored_mb * 1_100_000,
        })
    };
    let tables =
        vec![table("lineorder", 6_001_215, 592, 150, 2.0), table("part", 200_000, 17, 3, 0.1)];
    let total = table("Total", 6_201_215, 609, 153, 2.2);
    let memory = [512 << 20, 800 << 20];
    LoadRates {
        peer: "DuckDB 2.0.0".into(),
        runs: 3,
        data_sets: vec![LoadRate::new("SSB SF 1", tables, total, 9, &write_limit, memory)],
        write_limit,
    }
}

pub fn cold_scan() -> ColdScan {
    ColdScan::new(cold_scan::Measured {
        table: "lineorder".into(),
        rows: 6_001_215,
        sql: "SELECT sum(lo_orderkey) FROM lineorder".into(),
        cold: true,
        column_bytes: 90_000_000,
        file_bytes: 100_000_000,
        extents: 1,
        scan: ScanRate::new(90_000_000, timing(1.0, 0.1)),
        first: ScanRate::new(90_000_000, timing(1.5, 0.1)),
        cpu_percent: 80.0,
        read_bytes: 50_000_000,
        reader: ScanRate::new(100_000_000, timing(0.5, 0.1)),
        reader_bytes: 100_000_000,
        method: "built-in reader".into(),
    })
}
