//! DataFusion's side of a plan: our optimizer rules, one per file, and where they stand among its own; how
//! many rows ([`cardinality`]) and how much work ([`estimate`]) a plan is expected to be; and, last of all,
//! what becomes pipelines ([`fuse`]).
//!
//! The crate knows no sessions, no threads and no statements: a plan comes in, and a plan goes out.

mod as_written;
pub mod bytea_casts;
pub mod cardinality;
mod casts;
mod computed_keys;
pub mod constant_filters;
pub mod early_semi_joins;
pub mod equal_floats;
pub mod estimate;
pub mod file_order;
pub mod fuse;
pub mod ignored_nulls;
pub mod interval_keys;
pub mod join_order;
mod joined_keys;
mod kept;
pub mod known_aggregates;
pub mod late_columns;
pub mod lone_groups;
pub mod lone_values;
pub mod lost_constants;
pub mod missing_sorts;
pub mod moving_frames;
pub mod needless_outer_joins;
mod nodes;
pub mod null_keys;
pub mod ordered_limits;
pub mod push_down;
pub mod pushed_filters;
pub mod range_frames;
pub mod read_times;
pub mod repeated_orders;
mod rules;
pub mod simplify;
pub mod single_distinct;
mod transparent;
pub mod window_limits;
pub mod zones;

use datafusion::common::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;

/// Adds our rules to a session that has DataFusion's defaults.
pub fn install(
    builder: SessionStateBuilder,
    wants_pipelines: fuse::IsWanted,
) -> SessionStateBuilder {
    let builder = push_down::install(pushed_filters::install(simplify::install(builder)));
    let builder = known_aggregates::install(null_keys::install(single_distinct::install(builder)));
    let builder = bytea_casts::install(builder);
    let builder = needless_outer_joins::install(constant_filters::install(builder));
    let builder = early_semi_joins::install(join_order::install(builder));
    let builder = read_times::install(builder);
    let builder = ignored_nulls::install(range_frames::install(builder));
    let builder = lost_constants::install(ordered_limits::install(builder));
    let builder = window_limits::install(builder);
    let builder = equal_floats::install(interval_keys::install(zones::install(builder)));
    let builder = missing_sorts::install(late_columns::install(builder));
    let builder = repeated_orders::install(joined_keys::install(builder));
    let builder = lone_values::install(moving_frames::install(builder));
    fuse::install(file_order::install(kept::install(builder)), wants_pipelines)
}

/// A plan as its operators are made from it, once all rules for logical plans have run.
pub fn finished(plan: LogicalPlan) -> Result<LogicalPlan> {
    as_written::hide(computed_keys::below(joined_keys::reveal(plan)?)?)
}
