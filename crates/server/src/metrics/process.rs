//! What the system knows of this process, by the names that Prometheus' own libraries use.

use std::fmt;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Of the counters in `/proc/self/stat`: Linux shows 100 a second on every machine.
const TICKS_PER_S: f64 = 100.0;

#[derive(Debug)]
pub struct Collector {
    start_s: f64,
}

impl Collector {
    pub fn new() -> Self {
        let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Collector { start_s: start.as_secs_f64() }
    }
}

impl collector::Collector for Collector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut gauge = |name: &str, about: &str, unit: Option<&Unit>, value: f64| {
            let encoder = encoder.encode_descriptor(name, about, unit, MetricType::Gauge)?;
            ConstGauge::new(value).encode(encoder)
        };
        let (bytes, seconds) = (Some(&Unit::Bytes), Some(&Unit::Seconds));
        gauge("process_start_time", "When the server began, since 1970", seconds, self.start_s)?;
        if let Some(rss) = resident_bytes() {
            gauge("process_resident_memory", "Memory of the process", bytes, rss)?;
        }
        if let Ok(entries) = fs::read_dir("/proc/self/fd") {
            // One of them is this listing's.
            let open = entries.count().saturating_sub(1) as f64;
            gauge("process_open_fds", "Open files and sockets", None, open)?;
        }
        if let Some(most) = open_files_max() {
            gauge("process_max_fds", "Open files and sockets that there may be", None, most)?;
        }
        if let Some(cpu) = cpu_s() {
            let about = "CPU time of the process";
            let encoder = encoder.encode_descriptor(
                "process_cpu",
                about,
                Some(&Unit::Seconds),
                MetricType::Counter,
            )?;
            ConstCounter::new(cpu).encode(encoder)?;
        }
        Ok(())
    }
}

fn resident_bytes() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024.0)
}

fn open_files_max() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn cpu_s() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name may hold anything, also parentheses; what follows it begins with field 3.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
    Some((ticks(14)? + ticks(15)?) / TICKS_PER_S)
}
