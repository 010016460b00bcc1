//! The engine's figures, asked when somebody looks.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use thalweg_engine::{Engine, Histogram, WorkloadFigures};

pub struct Collector(pub Arc<Engine>);

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the engine's figures")
    }
}

/// One figure after another.
struct Sheet<'a>(DescriptorEncoder<'a>);

impl Sheet<'_> {
    fn gauge(&mut self, name: &str, about: &str, unit: Option<&Unit>, value: u64) -> fmt::Result {
        let value = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        let encoder = self.0.encode_descriptor(name, about, unit, MetricType::Gauge)?;
        value.encode(encoder)
    }

    fn counter(&mut self, name: &str, about: &str, unit: Option<&Unit>, value: u64) -> fmt::Result {
        let encoder = self.0.encode_descriptor(name, about, unit, MetricType::Counter)?;
        ConstCounter::new(value).encode(encoder)
    }

    fn seconds(&mut self, name: &str, about: &str, ns: u64) -> fmt::Result {
        let encoder =
            self.0.encode_descriptor(name, about, Some(&Unit::Seconds), MetricType::Counter)?;
        ConstCounter::new(ns as f64 / 1e9).encode(encoder)
    }

    /// One gauge for each of `rows`.
    fn each<T>(
        &mut self,
        (name, about, unit): (&str, &str, Option<&Unit>),
        label: &'static str,
        rows: &[T],
        of: impl Fn(&T) -> (&str, u64),
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, about, unit, MetricType::Gauge)?;
        for row in rows {
            let (value_of_label, value) = of(row);
            let labels = [(label, value_of_label)];
            let value = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            value.encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Times, whose buckets double.
    fn times(&mut self, name: &str, about: &str, times: &Histogram, sum_ns: u64) -> fmt::Result {
        let mut buckets: Vec<(f64, u64)> = times
            .buckets()
            .filter(|(end, _)| *end < u64::MAX)
            .map(|(end, count)| (end as f64 / 1e9, u64::from(count)))
            .collect();
        let finite: u64 = buckets.iter().map(|(_, count)| count).sum();
        buckets.push((f64::INFINITY, times.count() - finite));
        let mut encoder =
            self.0.encode_descriptor(name, about, Some(&Unit::Seconds), MetricType::Histogram)?;
        let sum = sum_ns as f64 / 1e9;
        encoder.encode_histogram::<NoLabelSet>(sum, times.count(), &buckets, None)
    }
}

impl collector::Collector for Collector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let f = self.0.figures();
        let mut sheet = Sheet(encoder);
        let bytes = Some(&Unit::Bytes);
        sheet.gauge("slots", "Tasks that may run at a time", None, f.slots as u64)?;
        sheet.gauge("slots_used", "Tasks that run", None, f.slots_in_use as u64)?;
        let all = &f.workloads;
        sheet.each(
            ("queries_running", "Queries that are admitted", None),
            "workload",
            all,
            |w| (&w.name, w.running as u64),
        )?;
        sheet.each(
            ("queries_waiting", "Queries that wait to be admitted", None),
            "workload",
            all,
            |w| (&w.name, w.waiting as u64),
        )?;
        let memory = ("workload_memory", "Held by joins, groups and sorts", bytes);
        sheet.each(memory, "workload", all, |w: &WorkloadFigures| (&w.name, w.memory_bytes))?;
        sheet.gauge("memory", "Held by joins, groups and sorts", bytes, f.memory_bytes)?;
        sheet.gauge(
            "memory_limit",
            "That joins, groups and sorts may hold; 0 is no limit",
            bytes,
            f.memory_bytes_max.unwrap_or(0),
        )?;
        sheet.gauge("spill", "On the disk for joins, groups and sorts", bytes, f.spill_bytes)?;
        let about =
            "Times that freed memory was given back to the system because there was too much";
        sheet.counter("memory_trims", about, None, f.memory_trims)?;
        let about = "Polls that gave way, and that other programs left without a core";
        sheet.counter("polls_starved", about, None, f.polls_starved)?;
        sheet.gauge("background_running", "Compactions that run", None, f.background as u64)?;

        let t = &f.totals;
        let ended = [("done", t.done), ("failed", t.failed), ("cancelled", t.cancelled)];
        let about = "Queries that have ended, those of the engine itself too";
        let mut counters =
            sheet.0.encode_descriptor("queries_ended", about, None, MetricType::Counter)?;
        for (state, count) in ended {
            ConstCounter::new(count).encode(counters.encode_family(&[("state", state)])?)?;
        }
        sheet.times(
            "query_planning",
            "From a query's arrival until it is planned",
            &t.planning.histogram,
            t.planning.sum_ns,
        )?;
        sheet.times(
            "query_wait",
            "What a query waited to be admitted, for a slot and for memory",
            &t.waiting.histogram,
            t.waiting.sum_ns,
        )?;
        sheet.times(
            "query_duration",
            "From a query's arrival to its end",
            &t.wall.histogram,
            t.wall.sum_ns,
        )?;
        // Quanta are nearly all of the CPU time of queries.
        sheet.times("quantum", "CPU time for which a task held its slot", &f.quanta, t.cpu_ns)?;
        sheet.seconds("query_cpu", "CPU time of queries that have ended", t.cpu_ns)?;
        let about = "Stored bytes of columns that queries have read";
        sheet.counter("query_read", about, bytes, t.read_bytes)?;
        sheet.counter(
            "statements_shared",
            "Statements that got the rows of an identical one in flight",
            None,
            f.shared_statements,
        )?;
        let about = "Statements that were not planned anew";
        sheet.counter("plans_reused", about, None, f.reused_plans)?;

        sheet.gauge("cache", "Decoded chunks in memory", bytes, f.cache.bytes)?;
        sheet.gauge("cache_limit", "Of decoded chunks in memory", bytes, f.cache.bytes_max)?;
        let about = "Columns of chunks that were in the cache";
        sheet.counter("cache_hits", about, None, f.cache.hits)?;
        let about = "Columns of chunks that were not in the cache";
        sheet.counter("cache_misses", about, None, f.cache.misses)?;
        let about = "Columns of chunks that had to leave the cache";
        sheet.counter("cache_evictions", about, None, f.cache.evictions)?;

        sheet.gauge("snapshot", "The newest commit's number", None, f.snapshot.0)?;
        sheet.gauge("tables", "Tables of the newest snapshot", None, f.tables as u64)?;
        let about = "Extents of the newest snapshot";
        sheet.gauge("stored", about, bytes, f.stored_bytes)
    }
}
