//! `pg_typeof`: the type that the binder gave an expression.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::Function;

/// The same text for every value, of which it is still a function: an aggregate stays one.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TypeName {
    of: String,
    signature: Signature,
}

pub(crate) fn type_name(of: String) -> Function {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::from(TypeName { of, signature }))
}

impl ScalarUDFImpl for TypeName {
    fn name(&self) -> &str {
        "pg_typeof"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(ScalarValue::from(self.of.as_str())))
    }
}
