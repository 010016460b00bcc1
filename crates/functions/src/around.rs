//! Functions of DataFusion's that are called in a way of ours: with arguments that were checked before, or
//! with others.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::new_empty_array;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
};

use crate::delegated::delegated;

/// Calls the function of DataFusion's, or does without.
pub type Call = fn(&ScalarUDF, ScalarFunctionArgs) -> Result<ColumnarValue>;

/// The function of DataFusion's, called in this way.
pub fn around(inner: Arc<ScalarUDF>, call: Call) -> ScalarUDF {
    let is_strict = inner.is_strict();
    ScalarUDF::new_from_impl(Around { inner, call, is_strict, is_plain: false })
}

/// The same of a function that gives NULL for NULL.
pub fn around_strict(inner: Arc<ScalarUDF>, call: Call) -> ScalarUDF {
    ScalarUDF::new_from_impl(Around { inner, call, is_strict: true, is_plain: false })
}

/// The function as it is, but for batches without rows, of which it reads the first.
pub fn of_rows(inner: Arc<ScalarUDF>) -> ScalarUDF {
    let is_strict = inner.is_strict();
    ScalarUDF::new_from_impl(Around { inner, call: unsimplified, is_strict, is_plain: true })
}

/// The function as it is, but for what its calls are simplified to.
pub fn unsimplified(function: &ScalarUDF, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
    function.invoke_with_args(args)
}

struct Around {
    inner: Arc<ScalarUDF>,
    call: Call,
    is_strict: bool,
    /// Its values are those of DataFusion's function: what that says of its order and bounds is true.
    is_plain: bool,
}

/// There is one way of calling a function.
impl PartialEq for Around {
    fn eq(&self, other: &Around) -> bool {
        self.inner == other.inner
    }
}

impl Eq for Around {}

impl Hash for Around {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl fmt::Debug for Around {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Around({})", self.inner.name())
    }
}

impl ScalarUDFImpl for Around {
    delegated! { inner: name aliases signature coerce_types return_type documentation }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn is_strict(&self) -> bool {
        self.is_strict
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        match self.is_plain {
            true => self.inner.output_ordering(inputs),
            false => Ok(SortProperties::Unordered),
        }
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        match self.is_plain {
            true => self.inner.evaluate_bounds(inputs),
            false => Interval::make_unbounded(&DataType::Null),
        }
    }

    fn preimage(
        &self,
        args: &[Expr],
        lit_expr: &Expr,
        info: &SimplifyContext,
    ) -> Result<PreimageResult> {
        match self.is_plain {
            true => self.inner.preimage(args, lit_expr, info),
            false => Ok(PreimageResult::None),
        }
    }

    /// A batch without rows needs no function. DataFusion's make arrays of as many items as there are rows of
    /// constant arguments, such as the value of a scalar subquery, and then read the first item.
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if args.number_rows == 0 {
            return Ok(ColumnarValue::Array(new_empty_array(args.return_field.data_type())));
        }
        (self.call)(&self.inner, args)
    }
}
