//! `canonical_float(x)`: the float whose bits stand for all that equal `x`; see `storage/src/floats.rs`.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use thalweg_storage::{canonical_f32, canonical_f64, canonical_floats};

pub static CANONICAL_FLOAT: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(CanonicalFloat { signature }))
});

#[derive(Debug, PartialEq, Eq, Hash)]
struct CanonicalFloat {
    signature: Signature,
}

impl ScalarUDFImpl for CanonicalFloat {
    fn name(&self) -> &str {
        "canonical_float"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn return_field_from_args(
        &self,
        args: datafusion::logical_expr::ReturnFieldArgs<'_>,
    ) -> Result<arrow::datatypes::FieldRef> {
        let of = &args.arg_fields[0];
        let field =
            arrow::datatypes::Field::new(self.name(), of.data_type().clone(), of.is_nullable());
        Ok(Arc::new(field))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(match args.args.into_iter().next() {
            Some(ColumnarValue::Array(array)) => ColumnarValue::Array(canonical_floats(array)),
            Some(ColumnarValue::Scalar(value)) => ColumnarValue::Scalar(scalar(value)),
            None => ColumnarValue::Scalar(ScalarValue::Null),
        })
    }
}

/// A single value.
pub fn scalar(value: ScalarValue) -> ScalarValue {
    match value {
        ScalarValue::Float64(Some(v)) => ScalarValue::Float64(Some(canonical_f64(v))),
        ScalarValue::Float32(Some(v)) => ScalarValue::Float32(Some(canonical_f32(v))),
        other => other,
    }
}
