//! `cut_varchar(text, n)` and `cut_char(text, n)`: what a cast that a statement writes to `varchar(n)` or
//! `char(n)` gives. The field of the result says the type, so that a table made from it keeps it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use thalweg_storage::TextLength;

/// What a cast to `varchar(n)` leaves of a text.
pub fn varchar(text: &str, characters: i64) -> &str {
    text_length(characters, false).cut(text)
}

fn text_length(characters: i64, blank_padded: bool) -> TextLength {
    let characters = u32::try_from(characters).unwrap_or(u32::MAX);
    TextLength { characters, blank_padded, lists: 0 }
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct CutText {
    blank_padded: bool,
    signature: Signature,
}

impl CutText {
    pub fn new(blank_padded: bool) -> CutText {
        CutText { blank_padded, signature: Signature::user_defined(Volatility::Immutable) }
    }

    fn length(&self, characters: Option<&ScalarValue>) -> Result<TextLength> {
        match characters {
            Some(ScalarValue::Int64(Some(n))) => Ok(text_length(*n, self.blank_padded)),
            _ => plan_err!("{} takes a constant length", self.name()),
        }
    }
}

impl ScalarUDFImpl for CutText {
    fn name(&self) -> &str {
        if self.blank_padded { "cut_char" } else { "cut_varchar" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types.len() {
            2 => Ok(vec![DataType::Utf8View, DataType::Int64]),
            _ => plan_err!("{} takes a text and a length", self.name()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let nullable = args.arg_fields[0].is_nullable();
        let field = Field::new(self.name(), DataType::Utf8View, nullable);
        let length = self.length(args.scalar_arguments.get(1).copied().flatten())?;
        Ok(Arc::new(length.declare(field)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let length = match &args.args[1] {
            ColumnarValue::Scalar(n) => self.length(Some(n))?,
            ColumnarValue::Array(_) => self.length(None)?,
        };
        let scalar = matches!(args.args[0], ColumnarValue::Scalar(_));
        let array = args.args[0].clone().into_array(if scalar { 1 } else { args.number_rows })?;
        let array = cast(&array, &DataType::Utf8View)?;
        let texts = array.as_string_view();
        let cuts = |text: &str| length.cut(text).len() != text.len();
        let array: ArrayRef = match texts.iter().flatten().any(cuts) {
            false => array,
            true => {
                let mut cut = StringViewBuilder::with_capacity(texts.len());
                texts.iter().for_each(|text| cut.append_option(text.map(|t| length.cut(t))));
                Arc::new(cut.finish())
            }
        };
        match scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)),
            false => Ok(ColumnarValue::Array(array)),
        }
    }
}
