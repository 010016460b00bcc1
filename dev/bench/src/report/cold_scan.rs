//! How much of the disk's read rate a scan of a whole table reaches: the model and its text.

use serde::{Deserialize, Serialize};
use thalweg_base::text::{bytes, count};

use super::figures::{ratio, seconds, spread};
use super::load_rate::megabytes;
use super::model::{Timing, quotient};
use super::text::{Options, Table, titled};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColdScan {
    #[serde(flatten)]
    pub measured: Measured,
    /// The scan's rate divided by the reader's.
    pub ratio: f64,
    pub ratio_low: f64,
    pub ratio_high: f64,
    pub ratio_first: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub table: String,
    pub rows: u64,
    pub sql: String,
    /// The page cache was emptied of the table before every read; else it was full of it.
    pub cold: bool,
    /// Of the columns, which is what the query needs. The files have metadata besides.
    pub column_bytes: u64,
    pub file_bytes: u64,
    pub extents: u64,
    /// In a process that has its memory, past the page cache.
    pub scan: ScanRate,
    /// In a process that is new and gets its memory from the system meanwhile, through the page cache.
    pub first: ScanRate,
    /// Processor time of the scan, of all threads, as a share of what the threads could have had.
    pub cpu_percent: f64,
    /// What the kernel says came from the disk during the scan, on average.
    pub read_bytes: u64,
    pub reader: ScanRate,
    /// Of the files; fio leaves out what is no whole block at their ends.
    pub reader_bytes: u64,
    /// How the files were read without the engine.
    pub method: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScanRate {
    pub timing: Timing,
    pub mb_per_s: f64,
}

impl ScanRate {
    pub fn new(bytes: u64, timing: Timing) -> ScanRate {
        ScanRate { mb_per_s: quotient(bytes as f64 / 1e3, timing.median_ms), timing }
    }

    fn between(&self, other: &ScanRate, of: fn(&Timing) -> f64, by: fn(&Timing) -> f64) -> f64 {
        let scale = |rate: &ScanRate| rate.mb_per_s * rate.timing.median_ms;
        quotient(scale(self), of(&self.timing))
            / quotient(scale(other), by(&other.timing)).max(f64::MIN_POSITIVE)
    }
}

impl ColdScan {
    pub fn new(measured: Measured) -> ColdScan {
        let (scan, reader) = (&measured.scan, &measured.reader);
        ColdScan {
            ratio: scan.between(reader, |t| t.median_ms, |t| t.median_ms),
            ratio_first: measured.first.between(reader, |t| t.median_ms, |t| t.median_ms),
            ratio_low: scan.between(reader, |t| t.worst_ms, |t| t.best_ms),
            ratio_high: scan.between(reader, |t| t.best_ms, |t| t.worst_ms),
            measured,
        }
    }

    pub fn title(&self) -> String {
        let m = &self.measured;
        let how = if m.cold { "Cold" } else { "Warm" };
        format!(
            "{how} scan of all columns of {}: {} rows, {}, extents: {}",
            m.table,
            count(m.rows),
            bytes(m.file_bytes),
            count(m.extents)
        )
    }

    pub fn rows(&self) -> [Vec<String>; 3] {
        let row = |who: &str, bytes_read: u64, rate: &ScanRate| {
            let time = &rate.timing;
            vec![
                who.to_string(),
                bytes(bytes_read),
                format!("{} {}", seconds(time.median_ms / 1e3), spread(time.spread_percent)),
                megabytes(rate.mb_per_s),
            ]
        };
        let m = &self.measured;
        [
            row("Thalweg, as a server", m.column_bytes, &m.scan),
            row("Thalweg, as a command", m.column_bytes, &m.first),
            row("The files alone", m.reader_bytes, &m.reader),
        ]
    }

    pub fn remarks(&self) -> Vec<String> {
        let m = &self.measured;
        let mut remarks = vec![
            format!(
                "Thalweg's rate ÷ that of the files alone: {} ({} to {}); as a command {}",
                ratio(self.ratio),
                ratio(self.ratio_low),
                ratio(self.ratio_high),
                ratio(self.ratio_first)
            ),
            "as a server: in a process that has its memory, past the page cache; as a command: in a \
             new process, through it"
                .into(),
            format!("the files alone: {}", m.method),
            format!("processor time of the scan: {:.0} % of its threads'", m.cpu_percent),
        ];
        if m.cold {
            remarks.push(format!(
                "page cache emptied of the table with posix_fadvise; the kernel counts {} read from the disk per scan",
                bytes(m.read_bytes)
            ));
            if m.read_bytes < m.column_bytes / 10 * 9 {
                remarks.push(
                    "that is less than the scan needs: part of it came from a cache after all"
                        .into(),
                );
            }
        }
        remarks
    }
}

pub const HEADER: [&str; 4] = ["Read by", "Bytes", "Seconds", "MB/s"];

pub fn text(scan: &ColdScan, options: Options) -> String {
    let mut table = Table::new(&HEADER);
    scan.rows().into_iter().for_each(|row| table.row(row));
    let remarks: String = scan.remarks().iter().map(|line| format!("* {line}\n")).collect();
    titled(&scan.title(), table, options) + &remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_ratio_is_of_rates() {
        let scan = sample::cold_scan();
        // 90 MB in 1 s, beside 100 MB in 0.5 s.
        assert!((scan.ratio - 0.45).abs() < 1e-9, "{}", scan.ratio);
        assert!(scan.ratio_low < scan.ratio && scan.ratio < scan.ratio_high);
        let text = text(&scan, Options::default());
        for line in [
            "Thalweg, as a server  | 85.8 MiB | 1.00 ±10 % | 90.0",
            "Thalweg, as a command | 85.8 MiB | 1.50 ±10 % | 60.0",
            "The files alone       | 95.4 MiB | 0.50 ±10 % |  200",
            "* Thalweg's rate ÷ that of the files alone: 0.45× (0.37× to 0.55×); as a command 0.30×",
            "* that is less than the scan needs: part of it came from a cache after all",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
