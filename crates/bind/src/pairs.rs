//! Conditions of joins that are asked of every pair of rows, although they name no column.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, lit,
};

/// The condition of an outer join, or of a semi join. What is random and names no column, such as
/// `random() < 0.5`, is asked of each pair: DataFusion takes it for a condition on the rows of one side, and
/// asks it once for each of these. So it is told that the condition is one of columns of both.
pub(crate) fn of_pairs(condition: Expr, left: &LogicalPlan, right: &LogicalPlan) -> Expr {
    let first = |plan: &LogicalPlan| plan.schema().columns().into_iter().next();
    let (Some(left), Some(right)) = (first(left), first(right)) else { return condition };
    let of_pair = |one: Expr| match one.is_volatile() && one.column_refs().is_empty() {
        true => {
            let columns = [&left, &right].map(|column| Expr::Column(column.clone()));
            pair().call([vec![one], columns.to_vec()].concat())
        }
        false => one,
    };
    let conditions = split_conjunction_owned(condition);
    conjunction(conditions.into_iter().map(of_pair)).unwrap_or(lit(true))
}

/// `__of_pair(condition, a, b)` is the condition.
fn pair() -> Arc<ScalarUDF> {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        let signature = Signature::any(3, Volatility::Volatile);
        Arc::new(ScalarUDF::from(OfPair { signature }))
    });
    Arc::clone(&FUNCTION)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfPair {
    signature: Signature,
}

impl ScalarUDFImpl for OfPair {
    fn name(&self) -> &str {
        "__of_pair"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(args.args[0].clone())
    }
}
