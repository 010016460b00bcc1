//! `FETCH FIRST … WITH TIES`.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Column;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, Operator, Projection, Sort, WindowFrame, cast, lit,
};

use crate::binder::Binder;
use crate::call::sorted;
use crate::failure::{Result, not_covered};
use crate::typed::binary;

impl Binder<'_> {
    /// The first rows of an order, and those that are equal in it to the last of them.
    pub(crate) fn with_ties(
        &self,
        plan: LogicalPlan,
        skipped: Option<Expr>,
        most: Expr,
    ) -> Result<LogicalPlan> {
        match plan {
            // Keys that are no columns of the result are dropped above the order.
            LogicalPlan::Projection(Projection { expr, input, .. })
                if matches!(*input, LogicalPlan::Sort(_)) =>
            {
                let input = self.with_ties(Arc::unwrap_or_clone(input), skipped, most)?;
                Ok(LogicalPlanBuilder::from(input).project(expr)?.build()?)
            }
            LogicalPlan::Sort(Sort { expr, input, fetch: None }) => {
                let [place, rank] = [self.fresh("place"), self.fresh("rank")];
                let mut windows = vec![];
                for (function, name) in [("row_number", &place), ("rank", &rank)] {
                    let Some(function) = self.names.get_window_meta(function) else {
                        return not_covered("WITH TIES");
                    };
                    let mut call = WindowFunction::new(function, vec![]);
                    call.params.order_by.clone_from(&expr);
                    call.params.window_frame = WindowFrame::new(Some(false));
                    windows.push(Expr::WindowFunction(Box::new(call)).alias(name));
                }
                let input = Arc::unwrap_or_clone(input);
                let columns = input.schema().columns().into_iter().map(Expr::Column);
                let columns: Vec<Expr> = columns.collect();
                let number =
                    |name: String| cast(Expr::Column(Column::from_name(name)), DataType::Int64);
                let first = skipped.unwrap_or_else(|| lit(0_i64));
                let last = binary(first.clone(), Operator::Plus, most.clone());
                // Of no rows none is the last.
                let kept = binary(most, Operator::Gt, lit(0_i64))
                    .and(binary(number(place), Operator::Gt, first))
                    .and(binary(number(rank), Operator::LtEq, last));
                let rows = LogicalPlanBuilder::from(input).window(windows)?;
                let rows = rows.filter(kept)?.project(columns)?;
                Ok(sorted(rows, expr)?.build()?)
            }
            // Ordered by constants alone, all rows are equal.
            other => {
                let all = binary(most, Operator::Gt, lit(0_i64));
                let rows = LogicalPlanBuilder::from(other).filter(all)?;
                Ok(rows.limit_by_expr(skipped, None)?.build()?)
            }
        }
    }
}
