//! Functions of numbers that have no value for some of them, with PostgreSQL's errors there: roots,
//! logarithms, powers, `exp`, and those of angles.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::Result as DfResult;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};
use thalweg_base::{Error, Result};

use thalweg_errors::into_datafusion;

/// An error where the function has no value.
fn check(function: &str, args: &[f64]) -> Result<()> {
    match (function, args) {
        ("sqrt", [x]) if *x < 0.0 => wrong("2201F", "cannot take square root of a negative number"),
        // Of `log(base, x)` the base is a positive number as well.
        ("ln" | "log" | "log10" | "log2", args) => {
            args.iter().try_for_each(|x| match *x {
                0.0 => wrong("2201E", "cannot take logarithm of zero"),
                x if x < 0.0 => wrong("2201E", "cannot take logarithm of a negative number"),
                _ => Ok(()),
            })?;
            match args {
                // Every power of one is one.
                [1.0, _] => wrong("22012", "division by zero"),
                _ => Ok(()),
            }
        }
        ("power", [0.0, y]) if *y < 0.0 => {
            wrong("2201F", "zero raised to a negative power is undefined")
        }
        ("power", [x, y]) if *x < 0.0 && y.is_finite() && y.fract() != 0.0 => wrong(
            "2201F",
            "a negative number raised to a non-integer power yields a complex result",
        ),
        ("acos" | "asin" | "atanh", [x]) if x.abs() > 1.0 => beyond(),
        ("acosh", [x]) if *x < 1.0 => beyond(),
        ("sin" | "cos" | "tan" | "cot", [x]) if x.is_infinite() => beyond(),
        _ => Ok(()),
    }
}

/// What finite numbers come to is finite, and not zero but by rounding it to that.
fn check_value(function: &str, args: &[f64], value: f64) -> Result<()> {
    let is_finite = args.iter().all(|x| x.is_finite());
    match function {
        "power" | "exp" | "degrees" if is_finite && value.is_infinite() => {
            wrong("22003", "value out of range: overflow")
        }
        "exp" if is_finite && value == 0.0 => wrong("22003", "value out of range: underflow"),
        "power" if is_finite && value == 0.0 && args[0] != 0.0 => {
            wrong("22003", "value out of range: underflow")
        }
        _ => Ok(()),
    }
}

fn beyond() -> Result<()> {
    wrong("22003", "input is out of range")
}

fn wrong(code: &'static str, message: &str) -> Result<()> {
    Err(Error::user(message).code(code))
}

/// The values of a function's argument, or of its result, as doubles: one for each row or one for all.
fn doubles(value: &ColumnarValue) -> DfResult<(Arc<dyn Array>, bool)> {
    let (array, is_one) = match value {
        ColumnarValue::Array(array) => (Arc::clone(array), false),
        ColumnarValue::Scalar(scalar) => (scalar.to_array()?, true),
    };
    Ok((cast(&array, &DataType::Float64)?, is_one))
}

/// A function of DataFusion's that is asked only for what it has a value for.
pub fn call(function: &ScalarUDF, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
    let operands = args.args.iter().map(doubles).collect::<DfResult<Vec<_>>>()?;
    let is_one = operands.iter().all(|(_, is_one)| *is_one);
    let rows = if is_one { 1 } else { args.number_rows };
    // `None` where an argument is NULL: the value is NULL as well.
    let row_of = |row: usize, known: &mut Vec<f64>| {
        known.clear();
        operands.iter().all(|(array, is_one)| {
            let at = if *is_one { 0 } else { row };
            let is_known = array.is_valid(at);
            if is_known {
                known.push(array.as_primitive::<Float64Type>().value(at));
            }
            is_known
        })
    };
    let mut known = vec![];
    for row in 0..rows {
        if row_of(row, &mut known) {
            check(function.name(), &known).map_err(into_datafusion)?;
        }
    }
    let value = function.invoke_with_args(args)?;
    if matches!(function.name(), "power" | "exp" | "degrees") {
        let (values, is_one) = doubles(&value)?;
        for row in 0..rows {
            let at = if is_one { 0 } else { row };
            if row_of(row, &mut known) && values.is_valid(at) {
                let value = values.as_primitive::<Float64Type>().value(at);
                check_value(function.name(), &known, value).map_err(into_datafusion)?;
            }
        }
    }
    Ok(value)
}
