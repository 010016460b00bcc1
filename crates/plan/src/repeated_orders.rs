//! `array_agg(v ORDER BY a, b, a)` is `array_agg(v ORDER BY a, b)`.
//!
//! DataFusion's aggregates count an order that is there twice once where they compare, and twice where they
//! keep their state: they ended in a panic or in an internal error. Orders that are not written the same may
//! become so when they are simplified (`a + 0`), so the rule stands behind the others.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, SortExpr};
use datafusion::optimizer::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

#[derive(Debug, Default)]
struct RepeatedOrders;

/// Puts the rule behind all others.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    crate::rules::add_before("", RepeatedOrders, builder)
}

impl OptimizerRule for RepeatedOrders {
    fn name(&self) -> &str {
        "repeated_orders"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(_) = &plan else { return Ok(Transformed::no(plan)) };
        with_orders(plan, |function| {
            let order = &function.params.order_by;
            repeats(order).then(|| {
                let mut once: Vec<SortExpr> = vec![];
                for key in order {
                    if once.iter().all(|other| other.expr != key.expr) {
                        once.push(key.clone());
                    }
                }
                once
            })
        })
    }
}

/// A plan whose aggregate functions take their rows in other orders, and keep their names. `order`: that of a
/// function; `None`: it has its own.
pub fn with_orders(
    plan: LogicalPlan,
    order: impl Fn(&AggregateFunction) -> Option<Vec<SortExpr>>,
) -> Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let changed = expr.transform_up(|expr| {
            let Expr::AggregateFunction(mut function) = expr else {
                return Ok(Transformed::no(expr));
            };
            let order = order(&function);
            let is_other = order.is_some();
            if let Some(order) = order {
                function.params.order_by = order;
            }
            Ok(Transformed::new_transformed(Expr::AggregateFunction(function), is_other))
        })?;
        Ok(match changed.transformed {
            true => Transformed::yes(name.restore(changed.data)),
            false => changed,
        })
    })
}

/// Whether a key of an order is there twice.
fn repeats(order: &[SortExpr]) -> bool {
    order.iter().enumerate().any(|(i, key)| order[..i].iter().any(|other| other.expr == key.expr))
}
