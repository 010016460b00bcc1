//! `array_agg(v ORDER BY a, b, a)` is `array_agg(v ORDER BY a, b)`.
//!
//! DataFusion's aggregates count an order that is there twice once where they compare, and twice where they
//! keep their state: they ended in a panic or in an internal error. Orders that are not written the same may
//! become so when they are simplified (`a + 0`), so the rule stands behind the others.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, SortExpr};
use datafusion::optimizer::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

#[derive(Debug, Default)]
struct RepeatedOrders;

/// Puts the rule behind all others.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    super::add_before("", RepeatedOrders, builder)
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
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let once = expr.transform_up(|expr| match expr {
                Expr::AggregateFunction(mut function) if repeats(&function.params.order_by) => {
                    let mut once: Vec<SortExpr> = vec![];
                    for order in function.params.order_by {
                        if once.iter().all(|other| other.expr != order.expr) {
                            once.push(order);
                        }
                    }
                    function.params.order_by = once;
                    Ok(Transformed::yes(Expr::AggregateFunction(function)))
                }
                other => Ok(Transformed::no(other)),
            })?;
            Ok(match once.transformed {
                true => Transformed::yes(name.restore(once.data)),
                false => once,
            })
        })
    }
}

/// Whether a key of an order is there twice.
fn repeats(order: &[SortExpr]) -> bool {
    order.iter().enumerate().any(|(i, key)| order[..i].iter().any(|other| other.expr == key.expr))
}
