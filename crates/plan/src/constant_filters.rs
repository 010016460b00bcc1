//! A scan that no row passes is empty, and a filter that all rows pass is none.
//!
//! DataFusion pushes a filter on a column of a `UNION ALL` into each part. Where the column is a
//! constant, as in `SELECT 's' AS channel …`, the filter is one as well by then, and stands in a scan,
//! where DataFusion's own rule for constant filters does not look:
//!
//! ```text
//! TableScan store_sales, filters=['s' = 'w']    =>    EmptyRelation
//! ```
//!
//! Joins and parts of a union that have no rows then go as well.

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{EmptyRelation, Expr, LogicalPlan};
use datafusion::optimizer::optimizer::{OptimizerConfig, OptimizerRule};

#[derive(Debug, Default)]
pub struct ConstantFilters;

/// Adds the rule to those of a session, before the one of DataFusion's that drops what is empty.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    crate::rules::add_before("propagate_empty_relation", ConstantFilters, builder)
}

impl OptimizerRule for ConstantFilters {
    fn name(&self) -> &str {
        "constant_filters"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        plan.transform_up_with_subqueries(|plan| Ok(without_constants(plan)))
    }
}

fn without_constants(plan: LogicalPlan) -> Transformed<LogicalPlan> {
    let LogicalPlan::TableScan(mut scan) = plan else { return Transformed::no(plan) };
    let before = scan.filters.len();
    scan.filters.retain(|filter| truth(filter) != Some(true));
    if scan.filters.iter().any(|filter| truth(filter) == Some(false)) {
        let schema = scan.projected_schema;
        let empty = EmptyRelation { produce_one_row: false, schema };
        return Transformed::yes(LogicalPlan::EmptyRelation(empty));
    }
    let changed = scan.filters.len() < before;
    Transformed::new_transformed(LogicalPlan::TableScan(scan), changed)
}

/// Of a filter that does not look at rows; a NULL lets none of them pass.
fn truth(filter: &Expr) -> Option<bool> {
    match filter {
        Expr::Literal(ScalarValue::Boolean(value), _) => Some(*value == Some(true)),
        Expr::Literal(ScalarValue::Null, _) => Some(false),
        _ => None,
    }
}
