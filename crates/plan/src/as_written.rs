//! Conditions that DataFusion's interval analysis does not look into.
//!
//! Of the rows above a filter DataFusion concludes what values a column can have. It takes a cast and a
//! division of whole numbers for one to one: of `ts::date = DATE '2020-01-02'` it made `ts = TIMESTAMP
//! '2020-01-02 00:00'`, a constant, and where the day went beyond the column's own bounds, an internal error.
//! So such a condition is put into a function that is its argument, when all other rules have run. Pipelines
//! leave it out.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, Filter, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

/// The plan with such conditions of its filters hidden.
pub fn hide(plan: LogicalPlan) -> Result<LogicalPlan> {
    let hidden = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Filter(Filter { predicate, input, .. }) = node else {
            return Ok(Transformed::no(node));
        };
        // Scans take conditions over, and skip by them.
        if super::is_of_scan(&input) {
            return Ok(Transformed::no(LogicalPlan::Filter(Filter::try_new(predicate, input)?)));
        }
        let mut any = false;
        let conditions = split_conjunction_owned(predicate).into_iter().map(|condition| {
            let misleads = condition.exists(|expr| Ok(is_many_to_one(expr)))?;
            any |= misleads;
            Ok(if misleads { AS_WRITTEN.call(vec![condition]) } else { condition })
        });
        let predicate = conjunction(conditions.collect::<Result<Vec<_>>>()?).unwrap_or_default();
        let filter = LogicalPlan::Filter(Filter::try_new(predicate, input)?);
        Ok(if any { Transformed::yes(filter) } else { Transformed::no(filter) })
    })?;
    Ok(hidden.data)
}

fn is_many_to_one(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Cast(_)
            | Expr::TryCast(_)
            | Expr::BinaryExpr(BinaryExpr { op: Operator::Divide | Operator::Modulo, .. })
    )
}

/// The condition, if it is one that is hidden.
pub fn shown(expr: &Arc<dyn PhysicalExpr>) -> &Arc<dyn PhysicalExpr> {
    match expr.downcast_ref::<ScalarFunctionExpr>() {
        Some(call) if call.name() == AS_WRITTEN.name() => call.args().first().unwrap_or(expr),
        _ => expr,
    }
}

static AS_WRITTEN: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(AsWritten { signature }))
});

#[derive(Debug, PartialEq, Eq, Hash)]
struct AsWritten {
    signature: Signature,
}

impl ScalarUDFImpl for AsWritten {
    fn name(&self) -> &str {
        "as_written"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(Field::clone(&args.arg_fields[0]).with_name(self.name())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(args.args[0].clone())
    }
}
