//! `upper`, `lower` and `initcap`: one character stays one, as in PostgreSQL. `upper('ß')` is `ß`.

use arrow::array::{Array, ArrayRef, AsArray, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};
use thalweg_base::text::{one_lower, one_upper};

fn written(function: &str, text: &str) -> String {
    match function {
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

fn of_array(function: &str, array: &ArrayRef) -> Result<ArrayRef> {
    let texts = cast(array, &DataType::Utf8View)?;
    let texts = texts.as_string_view().iter();
    let written: StringViewArray = texts.map(|t| t.map(|t| written(function, t))).collect();
    Ok(cast(&written, array.data_type())?)
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

pub fn call(function: &ScalarUDF, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
    match &args.args[..] {
        [ColumnarValue::Array(array)] if !is_ascii(array) => {
            Ok(ColumnarValue::Array(of_array(function.name(), array)?))
        }
        [ColumnarValue::Scalar(scalar)] if !scalar.is_null() => {
            let one = of_array(function.name(), &scalar.to_array()?)?;
            Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&one, 0)?))
        }
        _ => function.invoke_with_args(args),
    }
}
