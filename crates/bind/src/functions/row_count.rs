//! A number of rows that a query computes: of `LIMIT (SELECT …)`.

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{Function, failed};

/// The number itself; an error if it is negative.
#[derive(Debug, PartialEq, Eq, Hash)]
struct RowCount {
    clause: &'static str,
    signature: Signature,
}

pub(crate) fn row_count(clause: &'static str) -> Function {
    let signature = Signature::exact(vec![DataType::Int64], Volatility::Immutable);
    Arc::new(ScalarUDF::from(RowCount { clause, signature }))
}

/// The error for a number of rows that is below zero.
pub(crate) fn negative(clause: &str) -> (&'static str, String) {
    let code = if clause == "OFFSET" { "2201X" } else { "2201W" };
    (code, format!("{clause} must not be negative"))
}

impl ScalarUDFImpl for RowCount {
    fn name(&self) -> &str {
        "row_count"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let array = args.args[0].to_array(args.number_rows)?;
        let is_negative = |count: i64| count < 0;
        if array.as_primitive::<Int64Type>().iter().flatten().any(is_negative) {
            let (code, message) = negative(self.clause);
            return failed(code, message);
        }
        Ok(args.args.swap_remove(0))
    }
}
