//! What is the same in all rows of a group orders none of them.
//!
//! ```text
//! first_value(k ORDER BY k, t), first_value(v ORDER BY k, t) … GROUP BY k
//!   =>  k, first_value(v ORDER BY t) … GROUP BY k
//! ```
//! `SELECT DISTINCT ON (k) k, v … ORDER BY k, t` becomes such an aggregate: its keys come first in its order, and
//! mostly among its columns. The rule stands behind the others.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::logical_plan::{Aggregate, Projection};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use crate::repeated_orders::with_orders;

#[derive(Debug, Default)]
struct LoneValues;

/// Puts the rule behind all others.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    crate::rules::add_before("", LoneValues, builder)
}

impl OptimizerRule for LoneValues {
    fn name(&self) -> &str {
        "lone_values"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = &plan else { return Ok(Transformed::no(plan)) };
        if aggregate.group_expr.iter().any(|e| matches!(e, Expr::GroupingSet(_)) || e.is_volatile())
        {
            return Ok(Transformed::no(plan));
        }
        let keys: Vec<Expr> = aggregate.group_expr.iter().cloned().map(Expr::unalias).collect();
        let ordered = without_keys(plan, &keys)?;
        ordered.transform_data(|plan| match plan {
            LogicalPlan::Aggregate(aggregate) => as_keys(aggregate, &keys),
            other => Ok(Transformed::no(other)),
        })
    }
}

/// The functions whose order means nothing but which row comes first.
fn is_in_order(name: &str) -> bool {
    matches!(name, "first_value" | "last_value" | "array_agg" | "string_agg")
}

/// Takes the keys of the groups out of the orders of functions.
fn without_keys(plan: LogicalPlan, keys: &[Expr]) -> Result<Transformed<LogicalPlan>> {
    with_orders(plan, |call| {
        let order = &call.params.order_by;
        let is_fewer = is_in_order(call.func.name())
            && !call.params.distinct
            && order.iter().any(|by| keys.contains(&by.expr));
        is_fewer.then(|| order.iter().filter(|by| !keys.contains(&by.expr)).cloned().collect())
    })
}

/// Puts the keys of the groups in the place of their first values.
fn as_keys(aggregate: Aggregate, keys: &[Expr]) -> Result<Transformed<LogicalPlan>> {
    let key_of = |expr: &Expr| {
        let Expr::AggregateFunction(call) = expr.clone().unalias() else { return None };
        let is_any = matches!(call.func.name(), "first_value" | "last_value");
        let [value] = &call.params.args[..] else { return None };
        let key = keys.iter().position(|key| key == value)?;
        let is_same = is_told_apart(aggregate.schema.field(key).data_type());
        (is_any && is_same && call.params.filter.is_none()).then_some(key)
    };
    let found: Vec<Option<usize>> = aggregate.aggr_expr.iter().map(key_of).collect();
    if found.iter().all(Option::is_none) {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let shown = aggregate.schema.columns();
    let left = aggregate.aggr_expr.iter().zip(&found).filter(|(_, key)| key.is_none());
    let left = left.map(|(expr, _)| expr.clone()).collect();
    let plan = Aggregate::try_new(aggregate.input, aggregate.group_expr, left)?;
    let columns = plan.schema.columns();
    let mut others = columns[keys.len()..].iter();
    let mut exprs: Vec<Expr> = columns[..keys.len()].iter().cloned().map(Expr::Column).collect();
    for (key, column) in found.iter().zip(&shown[keys.len()..]) {
        exprs.extend(match key {
            Some(key) => Some(
                Expr::Column(columns[*key].clone())
                    .alias_qualified(column.relation.clone(), &column.name),
            ),
            None => others.next().cloned().map(Expr::Column),
        });
    }
    let plan = Arc::new(LogicalPlan::Aggregate(plan));
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(exprs, plan)?)))
}

/// Whether values that are equal are the same value: of zeros and of intervals there are several.
fn is_told_apart(data_type: &DataType) -> bool {
    data_type.is_integer()
        || data_type.is_string()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Date32
                | DataType::Timestamp(..)
                | DataType::Time64(_)
                | DataType::Decimal128(..)
        )
}
