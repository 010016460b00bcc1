//! Decimals of which a type has no more digits than the largest one.

use std::sync::{Arc, LazyLock};

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Decimal128Type};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{Function, failed};
use crate::typed::Typed;
use crate::types::DIGITS_MAX;

/// The value itself; an error if it has more digits than a decimal may have. What is calculated of decimals
/// stands in 128 bits, which hold some numbers of 39 digits.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct WithinDigits {
    signature: Signature,
}

pub(crate) fn within_digits(value: Typed) -> Typed {
    static FUNCTION: LazyLock<Function> = LazyLock::new(|| {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(ScalarUDF::from(WithinDigits { signature }))
    });
    Typed { expr: FUNCTION.call(vec![value.expr]), ..value }
}

impl ScalarUDFImpl for WithinDigits {
    fn name(&self) -> &str {
        "within_digits"
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args[0].to_string())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        const MOST: u128 = 10_u128.pow(DIGITS_MAX as u32) - 1;
        let array = args.args[0].to_array(args.number_rows)?;
        let Some(decimals) = array.as_primitive_opt::<Decimal128Type>() else {
            return Ok(args.args.swap_remove(0));
        };
        let is_too_long = |value: i128| value.unsigned_abs() > MOST;
        // What stands in the place of a NULL is no value.
        if decimals.values().iter().copied().any(is_too_long)
            && decimals.iter().flatten().any(is_too_long)
        {
            return failed(
                "22003",
                format!("numeric out of range: it has more than {DIGITS_MAX} digits"),
            );
        }
        Ok(args.args.swap_remove(0))
    }
}
