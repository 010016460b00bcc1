//! What `EXPLAIN ANALYZE` shows of a pipeline: what came and went, where the time was spent, and how
//! far that is from what the memory of this machine allows.

use datafusion::physical_plan::metrics::{
    ExecutionPlanMetricsSet, MetricBuilder, MetricCategory, MetricValue, RatioMetrics, Time,
};
use datafusion::prelude::SessionConfig;
use thalweg_pipeline::worker::Seen;

/// What one thread reads from memory in a second, in order: an extension of a session's
/// configuration, where it is known.
pub struct MemoryBandwidth(pub u64);

/// Of one worker; those of all are added up.
pub struct Figures {
    set: ExecutionPlanMetricsSet,
    pub in_source: Time,
    pub in_steps: Time,
}

impl Figures {
    pub fn new(set: &ExecutionPlanMetricsSet) -> Self {
        let time = |name| MetricBuilder::new(set).subset_time(name, 0);
        let (in_source, in_steps) = (time("time_in_source"), time("time_in_steps"));
        Figures { set: set.clone(), in_source, in_steps }
    }

    /// The worker is done.
    pub fn finish(self, seen: Seen, bytes_in: usize, config: &SessionConfig) {
        let new = || MetricBuilder::new(&self.set);
        new().counter("rows_in", 0).add(seen.rows_in);
        new().counter("rows_out", 0).add(seen.rows_out);
        new().counter("bytes_in", 0).add(bytes_in);
        for (name, time) in [("time_in_probes", seen.in_probes), ("time_in_sink", seen.in_sink)] {
            // A pipeline that has none shows none.
            if !time.is_zero() {
                new().subset_time(name, 0).add_duration(time);
            }
        }
        let worked_ns = self.in_source.value() + self.in_steps.value();
        if let Some(bandwidth) = config.get_extension::<MemoryBandwidth>()
            && bytes_in > 0
        {
            let share = RatioMetrics::new().with_display_raw_values(false);
            share.add_part(bytes_in);
            share.add_total(readable_bytes(bandwidth.0, worked_ns));
            new().with_category(MetricCategory::Timing).with_partition(0).build(
                MetricValue::Ratio { name: "of_memory_bandwidth".into(), ratio_metrics: share },
            );
        }
    }
}

fn readable_bytes(bytes_per_s: u64, time_ns: usize) -> usize {
    (u128::from(bytes_per_s) * time_ns as u128 / 1_000_000_000) as usize
}
