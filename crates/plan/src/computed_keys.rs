//! What windows and ordered aggregates are partitioned and ordered by is computed below them.
//!
//! DataFusion asks a function for the bounds of its values, and most functions answer that they do not know,
//! in a way that a comparison or `abs` around them takes for an error. So `rank() OVER (ORDER BY abs(b - 2))`
//! was never found to be sorted, also behind its sort, and ended in an internal error. The rule stands behind
//! all others: all keys that are computed become columns.
//!
//! ```text
//! Window: rank() ORDER BY abs(b - 2)    =>    Projection: b, rank() …
//!   …                                           Window: rank() ORDER BY __key_0
//!                                                 Projection: b, abs(b - 2) AS __key_0
//!                                                   …
//! ```

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::logical_plan::{Aggregate, Projection, Window};
use datafusion::logical_expr::{Expr, LogicalPlan};

/// A plan on which no rule for logical plans runs any more.
pub fn below(plan: LogicalPlan) -> Result<LogicalPlan> {
    let below = plan.transform_up_with_subqueries(|plan| match plan {
        LogicalPlan::Window(window) => windows(window),
        LogicalPlan::Aggregate(aggregate) => aggregates(aggregate),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(below.data)
}

fn windows(window: Window) -> Result<Transformed<LogicalPlan>> {
    let mut keys = Keys::over(&window.input);
    let window_expr = keys.taken_out(window.window_expr.clone())?;
    let Some(input) = keys.beside(&window.input)? else {
        return Ok(Transformed::no(LogicalPlan::Window(window)));
    };
    let plan = LogicalPlan::Window(Window::try_new(window_expr, Arc::new(input))?);
    let shown = window.schema.columns().into_iter().map(Expr::Column).collect();
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(shown, Arc::new(plan))?)))
}

fn aggregates(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let mut keys = Keys::over(&aggregate.input);
    let aggr_expr = keys.taken_out(aggregate.aggr_expr.clone())?;
    let Some(input) = keys.beside(&aggregate.input)? else {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    };
    let aggregate = Aggregate::try_new(Arc::new(input), aggregate.group_expr, aggr_expr)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
}

/// The keys that become columns.
struct Keys {
    keys: Vec<Expr>,
    /// What the names of their columns begin with, as no other does.
    prefix: String,
}

impl Keys {
    /// Over these rows.
    fn over(input: &LogicalPlan) -> Keys {
        let mut prefix = "__key".to_string();
        while input.schema().fields().iter().any(|field| field.name().starts_with(&prefix)) {
            prefix.insert(0, '_');
        }
        Keys { keys: vec![], prefix }
    }

    fn name(&self, key: usize) -> String {
        format!("{}_{key}", self.prefix)
    }

    /// Calls with columns in the places of such keys, under the names that they have.
    fn taken_out(&mut self, calls: Vec<Expr>) -> Result<Vec<Expr>> {
        let each = calls.into_iter().map(|call| {
            let (relation, name) = call.qualified_name();
            let taken = call.transform_up(|call| Ok(self.taken_out_of(call)))?;
            Ok(match taken.transformed && taken.data.qualified_name().1 != name {
                true => taken.data.alias_qualified(relation, name),
                false => taken.data,
            })
        });
        each.collect()
    }

    fn taken_out_of(&mut self, call: Expr) -> Transformed<Expr> {
        let mut any = false;
        let call = match call {
            Expr::WindowFunction(mut call) => {
                let keys = call.params.partition_by.iter_mut();
                let orders = call.params.order_by.iter_mut().map(|by| &mut by.expr);
                keys.chain(orders).for_each(|key| any |= self.take(key));
                Expr::WindowFunction(call)
            }
            Expr::AggregateFunction(mut call) => {
                call.params.order_by.iter_mut().for_each(|by| any |= self.take(&mut by.expr));
                Expr::AggregateFunction(call)
            }
            other => return Transformed::no(other),
        };
        Transformed::new_transformed(call, any)
    }

    /// Puts a column in the place of a key that is computed; whether it is one.
    fn take(&mut self, key: &mut Expr) -> bool {
        let is_plain = |e: &Expr| matches!(e, Expr::Column(_) | Expr::Literal(..));
        if is_plain(key) || is_plain(&key.clone().unalias()) {
            return false;
        }
        // Two random keys are two.
        let known = self.keys.iter().position(|other| other == key).filter(|_| !key.is_volatile());
        let at = known.unwrap_or_else(|| {
            self.keys.push(key.clone());
            self.keys.len() - 1
        });
        *key = Expr::Column(Column::from_name(self.name(at)));
        true
    }

    /// The rows with the keys beside their columns; `None`: there are no keys.
    fn beside(self, input: &Arc<LogicalPlan>) -> Result<Option<LogicalPlan>> {
        if self.keys.is_empty() {
            return Ok(None);
        }
        let columns = input.schema().columns().into_iter().map(Expr::Column);
        let keys = self.keys.iter().enumerate().map(|(at, key)| key.clone().alias(self.name(at)));
        let all = columns.chain(keys).collect();
        Ok(Some(LogicalPlan::Projection(Projection::try_new(all, Arc::clone(input))?)))
    }
}
