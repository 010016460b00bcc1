//! What operators and casts of SQL come to where DataFusion's have another meaning.
//!
//! * [`checked`]: integers that fail where a result is out of their range, and division by zero of doubles
//! * [`listed`]: casts of lists, item by item
//! * [`places`]: numerics rounded to a number of digits that is no constant
//! * [`quantified`]: comparisons with ANY or ALL items of a list
//! * [`quotient`]: decimals divided exactly to the last digit that is kept
//! * [`time_of_day`]: intervals as times of day, and back
//! * [`type_name`]: what `pg_typeof` gives
//! * [`rounded`]: doubles as whole numbers, decimals and reals, timestamps as those of a coarser unit

pub(crate) mod checked;
pub(crate) mod listed;
pub(crate) mod overlaps;
pub(crate) mod places;
pub(crate) mod quantified;
pub(crate) mod quotient;
pub(crate) mod rounded;
pub(crate) mod row_count;
pub(crate) mod series;
pub(crate) mod time_of_day;
pub(crate) mod type_name;
pub(crate) mod within_digits;

pub use listed::EachItem;
pub use rounded::nearest_instant;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF};
use thalweg_base::Error;

/// One operand of a function: a value for each row, or one for all.
enum Operand<'a, T: ArrowPrimitiveType> {
    Each(&'a PrimitiveArray<T>),
    /// `None` is NULL.
    One(Option<T::Native>),
}

impl<'a, T: ArrowPrimitiveType> Operand<'a, T> {
    /// `one` holds the value of a scalar as an array.
    fn of(value: &'a ColumnarValue, one: &'a mut Option<ArrayRef>) -> Result<Self> {
        let (array, is_one) = match value {
            ColumnarValue::Array(array) => (array, false),
            ColumnarValue::Scalar(scalar) => (&*one.insert(scalar.to_array()?), true),
        };
        match array.as_primitive_opt::<T>() {
            Some(array) if is_one => Ok(Operand::One(array.iter().next().flatten())),
            Some(array) => Ok(Operand::Each(array)),
            // Optimizer rules ask what comes of columns of NULLs without a type, and of what becomes of them.
            None if array.logical_null_count() == array.len() => Ok(Operand::One(None)),
            None => {
                let (of, is) = (T::DATA_TYPE, array.data_type());
                failed("XX000", format!("an operand of type {of} is of type {is}"))
            }
        }
    }

    fn nulls(&self) -> Option<&NullBuffer> {
        match self {
            Operand::Each(array) => array.nulls(),
            Operand::One(_) => None,
        }
    }

    fn value(&self, row: usize) -> Option<T::Native> {
        match self {
            Operand::Each(array) => {
                array.nulls().is_none_or(|n| n.is_valid(row)).then(|| array.value(row))
            }
            Operand::One(value) => *value,
        }
    }
}

/// The result for rows that were computed, or for a single one if all operands are the same for all rows.
fn shaped(array: ArrayRef, is_one: bool) -> Result<ColumnarValue> {
    match is_one {
        true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)),
        false => Ok(ColumnarValue::Array(array)),
    }
}

fn is_one(args: &[ColumnarValue]) -> bool {
    args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)))
}

/// NULL for an operand that is a NULL without a type: optimizer rules ask what comes of that.
fn untyped_null(args: &ScalarFunctionArgs) -> Option<ColumnarValue> {
    let is_null = |arg: &ColumnarValue| arg.data_type() == DataType::Null;
    let null = ScalarValue::try_from(args.return_type()).unwrap_or(ScalarValue::Null);
    args.args.iter().any(is_null).then_some(ColumnarValue::Scalar(null))
}

fn failed<T>(code: &'static str, message: impl Into<String>) -> Result<T> {
    Err(DataFusionError::External(Box::new(Error::user(message).code(code))))
}

fn by_zero<T>() -> Result<T> {
    failed("22012", "division by zero")
}

/// How an operator is shown: operands that are operators themselves are in parentheses. The names of
/// columns are those of calls, which stay the same when an operand becomes a column of its name.
fn infix(op: Operator, args: &[Expr]) -> String {
    let operand = |arg: &Expr| {
        let text = arg.to_string();
        let is_operator = match arg {
            Expr::BinaryExpr(_) => true,
            Expr::ScalarFunction(call) => {
                let function = call.func.inner();
                function.is::<checked::Checked>() || function.is::<quotient::Quotient>()
            }
            _ => false,
        };
        if is_operator { format!("({text})") } else { text }
    };
    let operands: Vec<String> = args.iter().map(operand).collect();
    operands.join(&format!(" {op} "))
}

/// The operator that a function stands for, of numbers: one that fails where its result is out of range, or
/// of decimals a quotient.
pub fn calculates(function: &ScalarUDF) -> Option<Operator> {
    let function = function.inner();
    match function.downcast_ref::<checked::Checked>() {
        Some(checked) => Some(checked.op()),
        None => function.is::<quotient::Quotient>().then_some(Operator::Divide),
    }
}

type Function = Arc<ScalarUDF>;
