//! Functions of numbers that have no value for some of them, with PostgreSQL's errors there: roots,
//! logarithms, powers, `exp`, `acos` and `asin`.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::Result as DfResult;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};
use thalweg_base::{Error, Result};

use thalweg_errors::into_datafusion;

/// A function of DataFusion's that is asked only for what it has a value for.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Partial {
    inner: Arc<ScalarUDF>,
}

impl Partial {
    pub fn new(inner: Arc<ScalarUDF>) -> Partial {
        Partial { inner }
    }

    fn check(&self, args: &[f64]) -> Result<()> {
        match (self.inner.name(), args) {
            ("sqrt", [x]) if *x < 0.0 => {
                wrong("2201F", "cannot take square root of a negative number")
            }
            // Of `log(base, x)` the base is a positive number as well.
            ("ln" | "log" | "log10" | "log2", args) => args.iter().try_for_each(|x| match *x {
                0.0 => wrong("2201E", "cannot take logarithm of zero"),
                x if x < 0.0 => wrong("2201E", "cannot take logarithm of a negative number"),
                _ => Ok(()),
            }),
            ("power", [0.0, y]) if *y < 0.0 => {
                wrong("2201F", "zero raised to a negative power is undefined")
            }
            ("power", [x, y]) if *x < 0.0 && x.is_finite() && y.is_finite() && y.fract() != 0.0 => {
                wrong(
                    "2201F",
                    "a negative number raised to a non-integer power yields a complex result",
                )
            }
            ("acos" | "asin", [x]) if x.abs() > 1.0 => wrong("22003", "input is out of range"),
            _ => Ok(()),
        }
    }

    /// What finite numbers come to is finite, and not zero but by rounding it to that.
    fn check_value(&self, args: &[f64], value: f64) -> Result<()> {
        let is_finite = args.iter().all(|x| x.is_finite());
        match self.inner.name() {
            "power" | "exp" if is_finite && value.is_infinite() => {
                wrong("22003", "value out of range: overflow")
            }
            "exp" if is_finite && value == 0.0 => wrong("22003", "value out of range: underflow"),
            "power" if is_finite && value == 0.0 && args[0] != 0.0 => {
                wrong("22003", "value out of range: underflow")
            }
            _ => Ok(()),
        }
    }
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

impl ScalarUDFImpl for Partial {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> DfResult<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
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
                self.check(&known).map_err(into_datafusion)?;
            }
        }
        let value = self.inner.invoke_with_args(args)?;
        if matches!(self.inner.name(), "power" | "exp") {
            let (values, is_one) = doubles(&value)?;
            for row in 0..rows {
                let at = if is_one { 0 } else { row };
                if row_of(row, &mut known) && values.is_valid(at) {
                    let value = values.as_primitive::<Float64Type>().value(at);
                    self.check_value(&known, value).map_err(into_datafusion)?;
                }
            }
        }
        Ok(value)
    }
}
