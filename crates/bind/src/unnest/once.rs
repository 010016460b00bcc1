//! A subquery that stands for a value has one row, or the statement fails.

use std::sync::{Arc, LazyLock};

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use thalweg_base::Error;

use crate::grouping_sets::lists;

/// `__one_row(value, rows)` is the value, if there is one row.
pub(super) fn one_row() -> Arc<ScalarUDF> {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        let signature = Signature::any(2, Volatility::Immutable);
        Arc::new(ScalarUDF::from(OneRow { signature }))
    });
    Arc::clone(&FUNCTION)
}

/// `__nullable(value)` is the value, of which nobody takes it that it is never NULL.
pub(crate) fn nullable() -> Arc<ScalarUDF> {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(ScalarUDF::from(Nullable { signature }))
    });
    Arc::clone(&FUNCTION)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Nullable {
    signature: Signature,
}

impl ScalarUDFImpl for Nullable {
    fn name(&self) -> &str {
        "__nullable"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(args.args[0].clone())
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OneRow {
    signature: Signature,
}

impl ScalarUDFImpl for OneRow {
    fn name(&self) -> &str {
        "__one_row"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.args[1].to_array(args.number_rows)?;
        // A NULL without a type is what optimizer rules ask with.
        let rows = rows.as_primitive_opt::<Int64Type>();
        if rows.is_some_and(|rows| rows.iter().flatten().any(|n| n > 1)) {
            let error =
                Error::user("more than one row returned by a subquery used as an expression")
                    .code("21000")
                    .hint("an aggregate such as max(…), or ORDER BY … LIMIT 1, makes one of them");
            return Err(DataFusionError::External(Box::new(error)));
        }
        Ok(args.args[0].clone())
    }
}

/// Whether a plan has no more than one row for each row around it.
pub(super) fn is_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Projection(p) => is_one_row(&p.input),
        LogicalPlan::SubqueryAlias(a) => is_one_row(&a.input),
        LogicalPlan::Filter(f) => is_one_row(&f.input),
        LogicalPlan::Sort(s) => s.fetch.is_some_and(|n| n <= 1) || is_one_row(&s.input),
        LogicalPlan::Limit(limit) => {
            matches!(limit.get_fetch_type(), Ok(datafusion::logical_expr::FetchType::Literal(Some(n))) if n <= 1)
                || is_one_row(&limit.input)
        }
        LogicalPlan::EmptyRelation(_) => true,
        LogicalPlan::Values(values) => values.values.len() <= 1,
        _ => false,
    }
}

/// Whether a plan has one row, whatever the rows around it and the tables are.
pub(super) fn is_always_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Projection(p) => is_always_one_row(&p.input),
        LogicalPlan::SubqueryAlias(a) => is_always_one_row(&a.input),
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        LogicalPlan::Values(values) => values.values.len() == 1,
        _ => false,
    }
}

/// Whether a plan has a row at least, whatever the rows around it and the tables are.
pub(super) fn always_has_rows(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => match &aggregate.group_expr[..] {
            [] => true,
            [Expr::GroupingSet(set)] => lists(set.clone()).iter().any(Vec::is_empty),
            _ => false,
        },
        LogicalPlan::Projection(p) => always_has_rows(&p.input),
        LogicalPlan::SubqueryAlias(a) => always_has_rows(&a.input),
        LogicalPlan::Sort(s) => s.fetch != Some(0) && always_has_rows(&s.input),
        other => is_always_one_row(other),
    }
}
