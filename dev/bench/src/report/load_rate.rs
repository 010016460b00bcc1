//! How fast files go into a database and how small they become, beside DuckDB's native tables
//! and Parquet: the model and its text.

use serde::{Deserialize, Serialize};
use thalweg_base::text::{bytes, count};

use super::figures::{ratio, seconds, spread};
use super::model::{Timing, quotient};
use super::text::{Options, Table, titled};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadRates {
    /// `DuckDB 2.0.0`.
    pub peer: String,
    pub runs: usize,
    /// Of the disk that the databases lie on.
    pub write_limit: DiskRate,
    pub data_sets: Vec<LoadRate>,
}

/// What a disk does without an engine in between.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskRate {
    pub bytes: u64,
    pub seconds: f64,
    pub mb_per_s: f64,
    pub method: String,
}

impl DiskRate {
    pub fn new(bytes: u64, seconds: f64, method: String) -> DiskRate {
        DiskRate { bytes, seconds, mb_per_s: quotient(bytes as f64 / 1e6, seconds), method }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadRate {
    /// `SSB SF 1`.
    pub data: String,
    pub tables: Vec<TableRate>,
    /// From no database to a durable one; its stored bytes are those of all files.
    pub total: TableRate,
    /// Of the database.
    pub files: u64,
    /// Stored bytes per second, as a share of what the disk can write.
    pub write_mb_per_s: f64,
    pub write_limit_percent: f64,
    /// Of the process, the highest of all runs.
    pub memory_peak_bytes: u64,
    pub peer_memory_peak_bytes: u64,
}

/// A table, or all of them, on both engines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableRate {
    pub table: String,
    pub rows: u64,
    pub raw_bytes: u64,
    pub stored_bytes: u64,
    /// Raw bytes per stored byte.
    pub ratio: f64,
    pub timing: Timing,
    /// Raw megabytes (10^6 bytes) per second.
    pub mb_per_s: f64,
    pub tb_per_hour: f64,
    pub extents: u64,
    pub chunks: u64,
    pub peer: PeerRate,
    /// Our rate divided by the peer's: above 1, we are faster.
    pub rate_to_peer: f64,
    /// The same at the extremes: our worst by its best, our best by its worst.
    pub rate_low: f64,
    pub rate_high: f64,
    /// Our bytes divided by the peer's: below 1, ours are fewer.
    pub size_to_peer: f64,
    pub parquet_bytes: u64,
    pub size_to_parquet: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerRate {
    pub timing: Timing,
    pub mb_per_s: f64,
    pub stored_bytes: u64,
}

/// What was measured of a table.
pub struct Measured<'a> {
    pub table: &'a str,
    pub rows: u64,
    pub raw_bytes: u64,
    pub stored_bytes: u64,
    pub extents: u64,
    pub chunks: u64,
    pub timing: Timing,
    pub peer_timing: Timing,
    pub peer_stored_bytes: u64,
    pub parquet_bytes: u64,
}

impl TableRate {
    pub fn new(m: Measured<'_>) -> TableRate {
        let mb_per_s = |t: &Timing| quotient(m.raw_bytes as f64 / 1e3, t.median_ms);
        let (ours, theirs) = (&m.timing, &m.peer_timing);
        TableRate {
            table: m.table.to_string(),
            rows: m.rows,
            raw_bytes: m.raw_bytes,
            stored_bytes: m.stored_bytes,
            ratio: quotient(m.raw_bytes as f64, m.stored_bytes as f64),
            mb_per_s: mb_per_s(ours),
            tb_per_hour: mb_per_s(ours) * 3600.0 / 1e6,
            extents: m.extents,
            chunks: m.chunks,
            rate_to_peer: quotient(theirs.median_ms, ours.median_ms),
            rate_low: quotient(theirs.best_ms, ours.worst_ms),
            rate_high: quotient(theirs.worst_ms, ours.best_ms),
            size_to_peer: quotient(m.stored_bytes as f64, m.peer_stored_bytes as f64),
            parquet_bytes: m.parquet_bytes,
            size_to_parquet: quotient(m.stored_bytes as f64, m.parquet_bytes as f64),
            peer: PeerRate {
                mb_per_s: mb_per_s(theirs),
                stored_bytes: m.peer_stored_bytes,
                timing: m.peer_timing,
            },
            timing: m.timing,
        }
    }
}

impl LoadRate {
    pub fn new(
        data: &str,
        tables: Vec<TableRate>,
        total: TableRate,
        files: u64,
        write_limit: &DiskRate,
        [memory_peak_bytes, peer_memory_peak_bytes]: [u64; 2],
    ) -> LoadRate {
        let write_mb_per_s = quotient(total.stored_bytes as f64 / 1e3, total.timing.median_ms);
        LoadRate {
            data: data.to_string(),
            tables,
            total,
            files,
            write_mb_per_s,
            write_limit_percent: quotient(write_mb_per_s * 100.0, write_limit.mb_per_s),
            memory_peak_bytes,
            peer_memory_peak_bytes,
        }
    }

    /// All tables, the total last.
    pub fn lines(&self) -> impl Iterator<Item = &TableRate> {
        self.tables.iter().chain([&self.total])
    }

    /// What concerns the whole load, as sentences.
    pub fn remarks(&self, peer: &str, limit: &DiskRate) -> [String; 2] {
        [
            format!(
                "{} files; written at {} MB/s, {:.1} % of the disk's limit of {} MB/s",
                count(self.files),
                megabytes(self.write_mb_per_s),
                self.write_limit_percent,
                megabytes(limit.mb_per_s)
            ),
            format!(
                "peak memory {}; {peer}'s {}, Python included",
                bytes(self.memory_peak_bytes),
                bytes(self.peer_memory_peak_bytes)
            ),
        ]
    }
}

/// The cells of a line, under one of the headers here.
pub type Row = fn(&TableRate) -> Vec<String>;

pub const STORED_HEADER: [&str; 10] =
    ["Table", "Rows", "Raw", "Stored", "Ratio", "Seconds", "MB/s", "TB/hour", "Extents", "Chunks"];

pub fn stored_row(t: &TableRate) -> Vec<String> {
    vec![
        t.table.clone(),
        count(t.rows),
        bytes(t.raw_bytes),
        bytes(t.stored_bytes),
        format!("{:.2} : 1", t.ratio),
        format!("{} {}", seconds(t.timing.median_ms / 1e3), spread(t.timing.spread_percent)),
        megabytes(t.mb_per_s),
        format!("{:.2}", t.tb_per_hour),
        count(t.extents),
        count(t.chunks),
    ]
}

pub const BESIDE_HEADER: [&str; 7] =
    ["Table", "Peer MB/s", "Rate ÷ peer", "Peer stored", "Size ÷ peer", "Parquet", "Size ÷ it"];

pub fn beside_row(t: &TableRate) -> Vec<String> {
    let peer = &t.peer;
    vec![
        t.table.clone(),
        format!("{} {}", megabytes(peer.mb_per_s), spread(peer.timing.spread_percent)),
        format!("{} ({} to {})", ratio(t.rate_to_peer), ratio(t.rate_low), ratio(t.rate_high)),
        bytes(peer.stored_bytes),
        ratio(t.size_to_peer),
        bytes(t.parquet_bytes),
        ratio(t.size_to_parquet),
    ]
}

pub fn text(rate: &LoadRate, of: &LoadRates, options: Options) -> String {
    let LoadRates { peer, runs, write_limit, .. } = of;
    let fill = |header: &[&str], row: Row| {
        let mut table = Table::new(header);
        for (i, line) in rate.lines().enumerate() {
            if i == rate.tables.len() {
                table.rule();
            }
            table.row(row(line));
        }
        table
    };
    let title = match runs {
        1 => format!("{}: load, one run", rate.data),
        runs => format!("{}: load, the median of {runs} runs", rate.data),
    };
    let stored = titled(&title, fill(&STORED_HEADER, stored_row), options);
    let remarks = rate.remarks(peer, write_limit).map(|line| format!("* {line}\n")).concat();
    let title = format!(
        "{}: beside {peer}, interleaved, and its Parquet with zstd\n\
         Rate: above 1, Thalweg is faster. Size: below 1, Thalweg's is smaller",
        rate.data
    );
    let beside = titled(&title, fill(&BESIDE_HEADER, beside_row), options);
    format!("{stored}{remarks}\n{beside}")
}

/// Megabytes per second with the digits that matter: `1,234`, `56.7`.
pub fn megabytes(value: f64) -> String {
    if value < 99.95 { format!("{value:.1}") } else { count(value.round() as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_load_is_reported_in_the_shape_of_sqreamdb() {
        let rates = sample::load_rates();
        let expected = "\
SSB SF 1: load, the median of 3 runs
Table     |      Rows |       Raw |    Stored |    Ratio |   Seconds | MB/s | TB/hour | Extents | Chunks
----------|-----------|-----------|-----------|----------|-----------|------|---------|---------|-------
lineorder | 6,001,215 | 564.6 MiB | 143.1 MiB | 3.95 : 1 | 2.00 ±5 % |  296 |    1.07 |       1 |     92
part      |   200,000 |  16.2 MiB |   2.9 MiB | 5.67 : 1 | 0.10 ±5 % |  170 |    0.61 |       1 |      4
----------|-----------|-----------|-----------|----------|-----------|------|---------|---------|-------
Total     | 6,201,215 | 580.8 MiB | 145.9 MiB | 3.98 : 1 | 2.20 ±5 % |  277 |    1.00 |       1 |     95
* 9 files; written at 69.5 MB/s, 7.0 % of the disk's limit of 1,000 MB/s
* peak memory 512.0 MiB; DuckDB 2.0.0's 800.0 MiB, Python included

SSB SF 1: beside DuckDB 2.0.0, interleaved, and its Parquet with zstd
Rate: above 1, Thalweg is faster. Size: below 1, Thalweg's is smaller
Table     | Peer MB/s |            Rate ÷ peer | Peer stored | Size ÷ peer |   Parquet | Size ÷ it
----------|-----------|------------------------|-------------|-------------|-----------|----------
lineorder |  197 ±5 % | 1.50× (1.36× to 1.66×) |   178.8 MiB |       0.80× | 157.4 MiB |     0.91×
part      |  113 ±5 % | 1.50× (1.36× to 1.66×) |     3.6 MiB |       0.80× |   3.1 MiB |     0.91×
----------|-----------|------------------------|-------------|-------------|-----------|----------
Total     |  185 ±5 % | 1.50× (1.36× to 1.66×) |   182.4 MiB |       0.80× | 160.5 MiB |     0.91×
";
        assert_eq!(text(&rates.data_sets[0], &rates, Options::default()), expected);
    }
}
