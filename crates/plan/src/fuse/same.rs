//! Whether two subtrees of a plan give the same rows, so that one of them is enough.
//!
//! Only operators that are known here are compared, and what they read; of anything else the answer
//! is no. The order of rows does not matter.

use std::sync::Arc;

use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};

use super::compile::unordered;
use thalweg_exec::ScanExec;

pub fn same(a: &Arc<dyn ExecutionPlan>, b: &Arc<dyn ExecutionPlan>) -> bool {
    let (a, b) = (unordered(a), unordered(b));
    let (below_a, below_b) = (a.children(), b.children());
    below_a.len() == below_b.len()
        && same_operator(a, b)
        && below_a.into_iter().zip(below_b).all(|(a, b)| same(a, b))
}

fn same_operator(a: &Arc<dyn ExecutionPlan>, b: &Arc<dyn ExecutionPlan>) -> bool {
    if let (Some(a), Some(b)) = both::<ScanExec>(a, b) {
        return a.reads_the_same(b);
    }
    if let (Some(a), Some(b)) = both::<FilterExec>(a, b) {
        return same_expr(a.predicate(), b.predicate())
            && a.projection() == b.projection()
            && a.fetch() == b.fetch();
    }
    if let (Some(a), Some(b)) = both::<ProjectionExec>(a, b) {
        let (a, b) = (a.expr(), b.expr());
        return a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_expr(&a.expr, &b.expr));
    }
    if let (Some(a), Some(b)) = both::<HashJoinExec>(a, b) {
        let on = a.on.len() == b.on.len()
            && a.on.iter().zip(&b.on).all(|(a, b)| same_expr(&a.0, &b.0) && same_expr(&a.1, &b.1));
        let filter = match (&a.filter, &b.filter) {
            (None, None) => true,
            (Some(a), Some(b)) => {
                same_expr(a.expression(), b.expression())
                    && a.column_indices() == b.column_indices()
            }
            _ => false,
        };
        return on
            && filter
            && a.join_type == b.join_type
            && a.projection == b.projection
            && a.null_equality == b.null_equality
            && a.null_aware == b.null_aware
            && a.fetch().is_none()
            && b.fetch().is_none();
    }
    if let (Some(a), Some(b)) = both::<AggregateExec>(a, b) {
        return same_groups(a, b);
    }
    (a.is::<UnionExec>() && b.is::<UnionExec>())
        || (a.is::<InterleaveExec>() && b.is::<InterleaveExec>())
}

/// Of the same rows; their columns may go by other names.
fn same_groups(a: &AggregateExec, b: &AggregateExec) -> bool {
    let (keys_a, keys_b) = (a.group_expr(), b.group_expr());
    let keys = keys_a.expr().len() == keys_b.expr().len()
        && keys_a.expr().iter().zip(keys_b.expr()).all(|(a, b)| same_expr(&a.0, &b.0))
        && keys_a.groups() == keys_b.groups()
        && keys_a.has_grouping_set() == keys_b.has_grouping_set();
    let (functions_a, functions_b) = (a.aggr_expr(), b.aggr_expr());
    let functions = functions_a.len() == functions_b.len()
        && functions_a.iter().zip(functions_b).all(|(a, b)| same_function(a, b));
    let filters = a.filter_expr().iter().zip(b.filter_expr()).all(|filters| match filters {
        (Some(a), Some(b)) => same_expr(a, b),
        (a, b) => a.is_none() && b.is_none(),
    });
    keys && functions
        && filters
        && a.mode() == b.mode()
        && a.limit_options().is_none()
        && b.limit_options().is_none()
}

fn same_function(a: &AggregateFunctionExpr, b: &AggregateFunctionExpr) -> bool {
    let (of_a, of_b) = (a.expressions(), b.expressions());
    a.fun() == b.fun()
        && a.is_distinct() == b.is_distinct()
        && a.ignore_nulls() == b.ignore_nulls()
        && a.order_bys().is_empty()
        && b.order_bys().is_empty()
        && a.field().data_type() == b.field().data_type()
        && of_a.len() == of_b.len()
        && of_a.iter().zip(&of_b).all(|(a, b)| same_expr(a, b))
}

pub fn same_expr(a: &Arc<dyn PhysicalExpr>, b: &Arc<dyn PhysicalExpr>) -> bool {
    a == b && !is_volatile(a)
}

fn both<'a, T: ExecutionPlan>(
    a: &'a Arc<dyn ExecutionPlan>,
    b: &'a Arc<dyn ExecutionPlan>,
) -> (Option<&'a T>, Option<&'a T>) {
    (a.downcast_ref::<T>(), b.downcast_ref::<T>())
}
