//! How much CPU time and memory a plan will take: rough, but enough to tell a look-up from a
//! report.

use arrow::datatypes::{DataType, Schema};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, StatisticsArgs, StatisticsContext};

use thalweg_runtime::Estimate;

use thalweg_exec::{PipelineExec, ScanExec};

/// Per row and column of a scan, decoded or served from the cache and filtered.
const SCAN_NS: f64 = 2.0;
/// Per row that any other operator takes in: hashing, probing, sorting, copying.
const OPERATOR_NS: f64 = 15.0;
/// What even the smallest query takes.
const LEAST_NS: f64 = 200_000.0;
/// Rows of an input nobody has statistics for.
const UNKNOWN_ROWS: f64 = 1e6;

/// From the planner's cardinalities; of a plan as the planner made it, as it is by DataFusion's operators
/// that joins, groups and sorts are known.
pub fn of(plan: &dyn ExecutionPlan) -> Estimate {
    let statistics = StatisticsContext::new();
    Estimate {
        cpu_ns: (LEAST_NS + work(plan, &statistics)) as u64,
        memory_bytes: held(plan, &statistics) as u64,
    }
}

fn work(plan: &dyn ExecutionPlan, statistics: &StatisticsContext) -> f64 {
    if let Some(pipelines) = plan.downcast_ref::<PipelineExec>() {
        return work(pipelines.original().as_ref(), statistics);
    }
    if let Some(scan) = plan.downcast_ref::<ScanExec>() {
        return scan.contents().rows() as f64 * scan.columns_read().len() as f64 * SCAN_NS;
    }
    plan.children()
        .into_iter()
        .map(|child| {
            let rows = rows(child.as_ref(), statistics);
            work(child.as_ref(), statistics) + rows * OPERATOR_NS
        })
        .sum()
}

fn rows(plan: &dyn ExecutionPlan, statistics: &StatisticsContext) -> f64 {
    let known = statistics.compute(plan, &StatisticsArgs::new());
    known.ok().and_then(|s| s.num_rows.get_value().copied()).map_or(UNKNOWN_ROWS, |n| n as f64)
}

/// A text, with what refers to it.
const TEXT_BYTES: f64 = 32.0;
/// Per row of a hash table, beside the row.
const HASH_BYTES: f64 = 24.0;
/// Tables that grow by doubling are three quarters full; sorted rows exist twice for a while.
const SPARE: f64 = 1.5;

fn held(plan: &dyn ExecutionPlan, statistics: &StatisticsContext) -> f64 {
    if let Some(pipelines) = plan.downcast_ref::<PipelineExec>() {
        return held(pipelines.original().as_ref(), statistics);
    }
    let kept = |child: &dyn ExecutionPlan, more: f64| {
        rows(child, statistics) * (row_bytes(&child.schema()) + more) * SPARE
    };
    let own = if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        kept(join.left().as_ref(), HASH_BYTES)
    } else if let Some(groups) = plan.downcast_ref::<AggregateExec>() {
        match groups.group_expr().is_empty() {
            true => 0.0,
            false => kept(plan, HASH_BYTES),
        }
    } else if let Some(sort) = plan.downcast_ref::<SortExec>() {
        match sort.fetch() {
            Some(n) => n as f64 * row_bytes(&plan.schema()),
            None => kept(sort.input().as_ref(), 0.0),
        }
    } else {
        0.0
    };
    own + plan.children().into_iter().map(|c| held(c.as_ref(), statistics)).sum::<f64>()
}

fn row_bytes(schema: &Schema) -> f64 {
    let width = |t: &DataType| t.primitive_width().map_or(TEXT_BYTES, |w| w as f64);
    schema.fields().iter().map(|field| width(field.data_type())).sum()
}
