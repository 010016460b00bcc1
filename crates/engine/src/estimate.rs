//! How much CPU time a plan will take: rough, but enough to tell a look-up from a report.

use datafusion::physical_plan::{ExecutionPlan, StatisticsArgs, StatisticsContext};

use crate::exec::ScanExec;

/// Per row and column of a scan, decoded or served from the cache and filtered.
const SCAN_NS: f64 = 2.0;
/// Per row that any other operator takes in: hashing, probing, sorting, copying.
const OPERATOR_NS: f64 = 15.0;
/// What even the smallest query takes.
const LEAST_NS: f64 = 200_000.0;
/// Rows of an input nobody has statistics for.
const UNKNOWN_ROWS: f64 = 1e6;

/// CPU nanoseconds of `plan` over all its tasks, from the planner's cardinalities.
pub fn cpu_ns(plan: &dyn ExecutionPlan) -> u64 {
    (LEAST_NS + work(plan, &StatisticsContext::new())) as u64
}

fn work(plan: &dyn ExecutionPlan, statistics: &StatisticsContext) -> f64 {
    if let Some(scan) = plan.downcast_ref::<ScanExec>() {
        return scan.contents().rows() as f64 * scan.columns_read().len() as f64 * SCAN_NS;
    }
    let rows = |plan: &dyn ExecutionPlan| {
        let known = statistics.compute(plan, &StatisticsArgs::new());
        known.ok().and_then(|s| s.num_rows.get_value().copied()).map_or(UNKNOWN_ROWS, |n| n as f64)
    };
    plan.children()
        .into_iter()
        .map(|child| work(child.as_ref(), statistics) + rows(child.as_ref()) * OPERATOR_NS)
        .sum()
}
