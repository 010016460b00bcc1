//! Aggregates over windows are those that frames may [move](thalweg_functions::moving) over.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, WindowFunctionDefinition};
use datafusion::optimizer::AnalyzerRule;
use thalweg_functions::moving::moving;

#[derive(Debug, Default)]
struct MovingFrames;

/// Puts the rule behind all others of the analyzer, when arguments have their types.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    crate::rules::analyze_last(MovingFrames, builder)
}

impl AnalyzerRule for MovingFrames {
    fn name(&self) -> &str {
        "moving_frames"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let made = plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::Window(window) = &node else { return Ok(Transformed::no(node)) };
            let schema = Arc::clone(window.input.schema());
            node.map_expressions(|expr| {
                expr.transform_up(|expr| {
                    let Expr::WindowFunction(mut window) = expr else {
                        return Ok(Transformed::no(expr));
                    };
                    let WindowFunctionDefinition::AggregateUDF(function) = &window.fun else {
                        return Ok(Transformed::no(Expr::WindowFunction(window)));
                    };
                    let types = window.params.args.iter().map(|arg| arg.get_type(&schema));
                    let types = types.collect::<Result<Vec<_>>>()?;
                    let Some(moving) = moving(function, &types) else {
                        return Ok(Transformed::no(Expr::WindowFunction(window)));
                    };
                    window.fun = WindowFunctionDefinition::AggregateUDF(Arc::new(moving));
                    Ok(Transformed::yes(Expr::WindowFunction(window)))
                })
            })
        })?;
        Ok(made.data)
    }
}
