//! Asks for `IN (SELECT …)` and `EXISTS` where their columns come from, before these rows are joined
//! with others.
//!
//! ```text
//! Semi Join o = g                     Inner Join o = l
//!   Inner Join o = l                    Semi Join o = g
//!     TableScan orders           =>       TableScan orders
//!     TableScan lineitem                  (groups)
//!   (groups)                            TableScan lineitem
//! ```
//!
//! DataFusion leaves semi and anti joins above the joins of the `FROM` clause, where every pair is
//! asked instead of every row, and tables are built of rows that nobody will want. Inner joins give
//! the same rows whichever of them are dropped first, so what names columns of one side alone goes
//! there, unless that side has more rows than the join makes of it.
//!
//! It stands before [`join_order`](super::join_order), which then knows how few rows are left.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DataFusionError, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{Join, JoinType, LogicalPlan};
use datafusion::optimizer::optimizer::{OptimizerConfig, OptimizerRule};

use super::cardinality::estimate;

#[derive(Debug, Default)]
pub struct EarlySemiJoins;

/// Adds the rule to those of a session that has `join_order`.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    crate::rules::add_before("join_order", EarlySemiJoins, builder)
}

impl OptimizerRule for EarlySemiJoins {
    fn name(&self) -> &str {
        "early_semi_joins"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        plan.transform_down_with_subqueries(|plan| match earlier(&plan)? {
            Some(plan) => Ok(Transformed::yes(plan)),
            None => Ok(Transformed::no(plan)),
        })
    }
}

/// The same with the semi or anti join at the top below the inner join under it.
fn earlier(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let LogicalPlan::Join(semi) = plan else { return Ok(None) };
    let LogicalPlan::Join(inner) = semi.left.as_ref() else { return Ok(None) };
    let asks = matches!(semi.join_type, JoinType::LeftSemi | JoinType::LeftAnti);
    if !asks || semi.null_aware || inner.join_type != JoinType::Inner {
        return Ok(None);
    }
    let mut columns: Vec<_> = semi.on.iter().flat_map(|(left, _)| left.column_refs()).collect();
    let of_left = |column: &&Column| semi.left.schema().has_column(column);
    columns.extend(semi.filter.iter().flat_map(|f| f.column_refs()).filter(of_left));
    let joined = estimate(&semi.left).rows;
    let is_asked_of = |side: &Arc<LogicalPlan>| {
        !columns.is_empty()
            && columns.iter().all(|column| side.schema().has_column(column))
            && estimate(side).rows <= joined
    };
    let ask = |side: &Arc<LogicalPlan>| {
        let asked = with_inputs(semi, Arc::clone(side), Arc::clone(&semi.right));
        Ok::<_, DataFusionError>(Arc::new(asked?))
    };
    let (mut left, mut right) = (Arc::clone(&inner.left), Arc::clone(&inner.right));
    if is_asked_of(&left) {
        left = ask(&left)?;
    } else if is_asked_of(&right) {
        right = ask(&right)?;
    } else {
        return Ok(None);
    }
    with_inputs(inner, left, right).map(Some)
}

fn with_inputs(
    join: &Join,
    left: Arc<LogicalPlan>,
    right: Arc<LogicalPlan>,
) -> Result<LogicalPlan> {
    let (on, filter) = (join.on.clone(), join.filter.clone());
    let Join { join_type, join_constraint, null_equality, null_aware, .. } = *join;
    let join = Join::try_new(
        left,
        right,
        on,
        filter,
        join_type,
        join_constraint,
        null_equality,
        null_aware,
    );
    join.map(LogicalPlan::Join)
}
