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
pub mod null_keys;
pub mod ordered_limits;
pub mod push_down;
pub mod pushed_filters;
pub mod range_frames;
pub mod read_times;
pub mod repeated_orders;
pub mod shifted_sums;
pub mod simplify;
pub mod single_distinct;
mod transparent;
pub mod window_limits;
pub mod zones;

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::{AnalyzerRule, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use thalweg_bind::EachItem;

/// Adds our rules to a session that has DataFusion's defaults.
pub fn install(
    builder: SessionStateBuilder,
    wants_pipelines: fuse::IsWanted,
) -> SessionStateBuilder {
    let builder = push_down::install(pushed_filters::install(simplify::install(builder)));
    let builder = known_aggregates::install(null_keys::install(single_distinct::install(builder)));
    let builder = bytea_casts::install(shifted_sums::install(builder));
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

/// A function over the items of lists with its expression as `rewrite` leaves it; `None`: there is nothing to
/// rewrite in it, or it is none.
fn in_items(
    expr: &Expr,
    rewrite: impl FnOnce(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<Option<Expr>> {
    let Expr::ScalarFunction(call) = expr else { return Ok(None) };
    let Some(function) = EachItem::of(call) else { return Ok(None) };
    let body = rewrite(function.body().clone(), &function.schema()?)?;
    Ok(match body.transformed {
        true => Some(function.with_body(body.data).call(call.args.clone())),
        false => None,
    })
}

/// Whether rows are those of a table, perhaps with other columns.
fn is_of_scan(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(_) => true,
        LogicalPlan::SubqueryAlias(alias) => is_of_scan(&alias.input),
        LogicalPlan::Projection(projection) => is_of_scan(&projection.input),
        _ => false,
    }
}

/// Adds a rule for logical plans before the named one, or at the end if there is none.
fn add_before(
    name: &str,
    rule: impl OptimizerRule + Send + Sync + 'static,
    mut builder: SessionStateBuilder,
) -> SessionStateBuilder {
    let mut rules = builder.optimizer().take().unwrap_or_default().rules;
    let place = rules.iter().position(|r| r.name() == name);
    rules.insert(place.unwrap_or(rules.len()), Arc::new(rule));
    builder.with_optimizer_rules(rules)
}

/// Adds a rule behind all others of the analyzer.
fn analyze_last(
    rule: impl AnalyzerRule + Send + Sync + 'static,
    mut builder: SessionStateBuilder,
) -> SessionStateBuilder {
    let mut rules = builder.analyzer().take().unwrap_or_default().rules;
    rules.push(Arc::new(rule));
    builder.with_analyzer_rules(rules)
}

/// Puts a rule for logical plans in the place of those of its name.
fn in_place(
    rule: impl OptimizerRule + Send + Sync + 'static,
    mut builder: SessionStateBuilder,
) -> SessionStateBuilder {
    let mut rules = builder.optimizer().take().unwrap_or_default().rules;
    let rule: Arc<dyn OptimizerRule + Send + Sync> = Arc::new(rule);
    for old in rules.iter_mut().filter(|old| old.name() == rule.name()) {
        *old = Arc::clone(&rule);
    }
    builder.with_optimizer_rules(rules)
}

/// The same of a rule for plans of execution.
fn in_place_of_execution(
    rule: impl PhysicalOptimizerRule + Send + Sync + 'static,
    mut builder: SessionStateBuilder,
) -> SessionStateBuilder {
    let mut rules = builder.physical_optimizers().take().unwrap_or_default().rules;
    let rule: Arc<dyn PhysicalOptimizerRule + Send + Sync> = Arc::new(rule);
    for old in rules.iter_mut().filter(|old| old.name() == rule.name()) {
        *old = Arc::clone(&rule);
    }
    builder.with_physical_optimizer_rules(rules)
}

/// Whether a plan's expressions may have values of a type: a column, a literal, a cast or a function has
/// it, and nothing else makes it. Most plans are told apart by a look at their schemas.
fn may_have(plan: &LogicalPlan, is: fn(&DataType) -> bool) -> Result<bool> {
    if plan.inputs().iter().any(|i| i.schema().fields().iter().any(|f| is(f.data_type()))) {
        return Ok(true);
    }
    let mut found = false;
    plan.apply_expressions(|expr| {
        expr.apply(|e| {
            found |= match e {
                Expr::Literal(value, _) => is(&value.data_type()),
                Expr::Cast(cast) => is(cast.field.data_type()),
                Expr::TryCast(cast) => is(cast.field.data_type()),
                Expr::OuterReferenceColumn(field, _) => is(field.data_type()),
                Expr::ScalarFunction(_) | Expr::ScalarSubquery(_) => true,
                _ => false,
            };
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

/// What expressions of a plan are over.
fn input_schema(plan: &LogicalPlan) -> Result<DFSchema> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = plan {
        schema.merge(&DFSchema::try_from_qualified_schema(
            scan.table_name.clone(),
            &scan.source.schema(),
        )?);
    }
    Ok(schema)
}
