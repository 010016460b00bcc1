//! Our optimizer rules, one per file, and where they stand among DataFusion's.

pub mod cardinality;
pub mod constant_filters;
pub mod early_semi_joins;
pub mod exact_literals;
pub mod fuse;
pub mod join_order;
pub mod late_columns;
pub mod needless_outer_joins;
pub mod nested_subqueries;

use datafusion::execution::SessionStateBuilder;

/// Adds our rules to a session that has DataFusion's defaults.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    let builder = nested_subqueries::install(exact_literals::install(builder));
    let builder = needless_outer_joins::install(constant_filters::install(builder));
    let builder = early_semi_joins::install(join_order::install(builder));
    fuse::install(late_columns::install(builder))
}
