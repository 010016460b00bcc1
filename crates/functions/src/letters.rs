//! `upper`, `lower` and `initcap`: one character stays one, as in PostgreSQL. `upper('ß')` is `ß`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

use super::regexp::parse::{one_lower, one_upper};

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Letters {
    inner: Arc<ScalarUDF>,
}

impl Letters {
    pub fn new(inner: Arc<ScalarUDF>) -> Letters {
        Letters { inner }
    }

    fn written(&self, text: &str) -> String {
        match self.inner.name() {
            "upper" => text.chars().map(one_upper).collect(),
            "lower" => text.chars().map(one_lower).collect(),
            _ => {
                let mut is_within = false;
                let each = |c: char| {
                    let cased = if is_within { one_lower(c) } else { one_upper(c) };
                    is_within = c.is_alphanumeric();
                    cased
                };
                text.chars().map(each).collect()
            }
        }
    }

    fn of_array(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let texts = cast(array, &DataType::Utf8View)?;
        let texts = texts.as_string_view().iter();
        let written: StringViewArray = texts.map(|t| t.map(|t| self.written(t))).collect();
        Ok(cast(&written, array.data_type())?)
    }
}

fn is_ascii(array: &ArrayRef) -> bool {
    match array.data_type() {
        DataType::Utf8View => array.as_string_view().is_ascii(),
        DataType::Utf8 => array.as_string::<i32>().is_ascii(),
        DataType::LargeUtf8 => array.as_string::<i64>().is_ascii(),
        DataType::Dictionary(..) => is_ascii(array.as_any_dictionary().values()),
        _ => false,
    }
}

impl ScalarUDFImpl for Letters {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn documentation(&self) -> Option<&datafusion::logical_expr::Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match &args.args[..] {
            [ColumnarValue::Array(array)] if !is_ascii(array) => {
                Ok(ColumnarValue::Array(self.of_array(array)?))
            }
            [ColumnarValue::Scalar(scalar)] if !scalar.is_null() => {
                let one = self.of_array(&scalar.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&one, 0)?))
            }
            _ => self.inner.invoke_with_args(args),
        }
    }
}
