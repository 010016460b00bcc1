//! Outer joins whose additional rows the next join drops are inner joins.
//!
//! ```text
//! Inner Join sr_reason = r            Inner Join sr_reason = r
//!   Left Join ss = sr                   Inner Join ss = sr
//!     TableScan sales             =>      TableScan sales
//!     TableScan returns                   TableScan returns
//!   TableScan reason                    TableScan reason
//! ```
//!
//! The rows that an outer join adds have NULLs in all columns of a side, and a NULL is equal to
//! nothing. DataFusion sees that of filters above outer joins, but not of the keys of joins, which
//! filters have become. As inner joins they can be done in any [order](super::join_order).

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, NullEquality, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{Expr, Join, JoinType, LogicalPlan};
use datafusion::optimizer::optimizer::{OptimizerConfig, OptimizerRule};

#[derive(Debug, Default)]
pub struct NeedlessOuterJoins;

/// Adds the rule to those of a session, after DataFusion's for filters.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    crate::rules::add_before("push_down_limit", NeedlessOuterJoins, builder)
}

impl OptimizerRule for NeedlessOuterJoins {
    fn name(&self) -> &str {
        "needless_outer_joins"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        plan.transform_down_with_subqueries(|plan| {
            let LogicalPlan::Join(join) = &plan else { return Ok(Transformed::no(plan)) };
            match narrowed(join, &HashSet::new()) {
                Some(join) => Ok(Transformed::yes(LogicalPlan::Join(join))),
                None => Ok(Transformed::no(plan)),
            }
        })
    }
}

/// The same with fewer outer joins, where rows with a NULL in one of `keys` are not wanted.
fn narrowed(join: &Join, keys: &HashSet<&Column>) -> Option<Join> {
    let of_left = keys.iter().any(|key| join.left.schema().has_column(key));
    let of_right = keys.iter().any(|key| join.right.schema().has_column(key));
    let join_type = match (join.join_type, of_left, of_right) {
        (JoinType::Left, _, true) | (JoinType::Right, true, _) => JoinType::Inner,
        (JoinType::Full, true, true) => JoinType::Inner,
        (JoinType::Full, true, false) => JoinType::Left,
        (JoinType::Full, false, true) => JoinType::Right,
        (as_it_is, _, _) => as_it_is,
    };
    let mut keys = keys.clone();
    let own_left = join.on.iter().filter_map(|(left, _)| column(left));
    let own_right = join.on.iter().filter_map(|(_, right)| column(right));
    let equal = join.null_equality == NullEquality::NullEqualsNothing;
    // Whose rows must have a match, or be wanted by the joins above.
    let (left, right) = match join_type {
        JoinType::Inner => {
            if equal {
                keys.extend(own_left.chain(own_right));
            }
            (below(&join.left, &keys), below(&join.right, &keys))
        }
        JoinType::LeftSemi => {
            if equal {
                keys.extend(own_left);
            }
            (below(&join.left, &keys), None)
        }
        JoinType::Left | JoinType::LeftAnti => (below(&join.left, &keys), None),
        JoinType::Right => (None, below(&join.right, &keys)),
        _ => (None, None),
    };
    if left.is_none() && right.is_none() && join_type == join.join_type {
        return None;
    }
    Some(Join {
        left: left.unwrap_or_else(|| Arc::clone(&join.left)),
        right: right.unwrap_or_else(|| Arc::clone(&join.right)),
        join_type,
        ..join.clone()
    })
}

fn below(plan: &Arc<LogicalPlan>, keys: &HashSet<&Column>) -> Option<Arc<LogicalPlan>> {
    match plan.as_ref() {
        LogicalPlan::Join(join) => {
            narrowed(join, keys).map(|join| Arc::new(LogicalPlan::Join(join)))
        }
        _ => None,
    }
}

fn column(key: &Expr) -> Option<&Column> {
    match key {
        Expr::Column(column) => Some(column),
        _ => None,
    }
}
