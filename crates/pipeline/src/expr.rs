//! Scalar expressions over the registers of a batch.
//!
//! What gains from the encoded forms is structure here: comparisons on dictionary values and on
//! narrow decimals, arithmetic on narrow decimals where it provably fits 64 bits, and logic. What
//! else is asked for every day is a [`Kernel`], and the rest a [`Function`] of the caller, which gets
//! plain arrays.
//!
//! * [`kernel`]: computes the operations of [`thalweg_ir::op`].
//! * [`case`]: choices, over [`choose`], which puts the values of rows together.
//! * [`number`], [`cast`], [`in_list`], [`like`], [`text`], [`time`]: the kernels of the others.

mod case;
mod cast;
mod choose;
mod decimal;
mod in_list;
pub mod kernel;
mod like;
#[cfg(test)]
mod measure;
mod number;
mod text;
mod time;

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Datum, Scalar, new_null_array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::kernels::boolean::{and_kleene, is_null, not, or_kleene};
use arrow::compute::kernels::{cmp, numeric};
use arrow::compute::take;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use thalweg_base::Result;
use thalweg_ir::expr::{Called, Constant, Shown};
pub use thalweg_ir::{Arithmetic, Comparison, Named, Register};

use crate::batch::Batch;
use crate::encoding::{codes, expand, internal};
use kernel::{Kernel, on_values};

/// What the IR has no structure for, over arrays of its arguments' logical types.
pub trait Function: Send + Sync + fmt::Debug {
    /// As many values as there are rows. `arguments` may be empty.
    fn call(&self, arguments: &[ArrayRef], rows: usize) -> Result<ArrayRef>;

    /// Whether a row's value depends on that row's arguments alone.
    fn is_pure(&self) -> bool;

    /// How it is shown over arguments that are shown so.
    fn describe(&self, arguments: &[String], f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// An expression that is ready to be run.
pub type Expr = thalweg_ir::Expr<One, Callee>;

/// An array of one value.
#[derive(Clone, Debug)]
pub struct One(pub ArrayRef);

/// What is called.
#[derive(Clone, Debug)]
pub enum Callee {
    Kernel(Arc<Kernel>),
    Function(Arc<dyn Function>),
}

/// What an expression comes to.
#[derive(Clone)]
pub(crate) enum Value {
    /// A value for each row, maybe in an encoded form.
    Array(ArrayRef),
    /// The same value for all rows: an array of one.
    Scalar(ArrayRef),
}

impl Value {
    fn into_array(self, rows: usize) -> Result<ArrayRef> {
        match self {
            Value::Array(array) => Ok(array),
            Value::Scalar(one) if rows == 1 => Ok(one),
            Value::Scalar(one) if one.is_null(0) => Ok(new_null_array(one.data_type(), rows)),
            Value::Scalar(one) => {
                let zeros = arrow::array::UInt32Array::from(vec![0; rows]);
                take(&one, &zeros, None).map_err(internal)
            }
        }
    }
}

/// What expressions come to for the rows of a batch.
pub trait Evaluate {
    /// The values, maybe in an encoded form.
    fn encoded(&self, batch: &mut Batch) -> Result<ArrayRef>;

    /// The values, for who takes any [words](crate::encoding::words) where they are numbers.
    fn compact(&self, batch: &mut Batch) -> Result<ArrayRef>;

    /// The values in the logical type.
    fn plain(&self, batch: &mut Batch) -> Result<ArrayRef>;

    /// Which rows it is true for; NULL is not true. It must be of booleans.
    fn truth(&self, batch: &mut Batch) -> Result<BooleanBuffer>;
}

impl Evaluate for Expr {
    fn encoded(&self, batch: &mut Batch) -> Result<ArrayRef> {
        value(self, batch)?.into_array(batch.rows())
    }

    fn compact(&self, batch: &mut Batch) -> Result<ArrayRef> {
        match self {
            Expr::Register(register, _) => batch.compact(*register),
            _ => self.encoded(batch),
        }
    }

    fn plain(&self, batch: &mut Batch) -> Result<ArrayRef> {
        expand(&self.encoded(batch)?, &self.data_type())
    }

    fn truth(&self, batch: &mut Batch) -> Result<BooleanBuffer> {
        let value = self.encoded(batch)?;
        let value = value.as_boolean();
        Ok(match value.nulls() {
            Some(nulls) if nulls.null_count() > 0 => value.values() & nulls.inner(),
            _ => value.values().clone(),
        })
    }
}

fn value(expr: &Expr, batch: &mut Batch) -> Result<Value> {
    Ok(match expr {
        Expr::Register(register, _) => Value::Array(batch.column(*register)?),
        Expr::Row(register) => Value::Array(batch.origin(*register)?),
        Expr::Literal(One(value)) => Value::Scalar(Arc::clone(value)),
        Expr::Compare(comparison, a, b) => {
            let (left, right) = (value(a, batch)?, value(b, batch)?);
            let types = (&a.data_type(), &b.data_type());
            compare(*comparison, &left, &right, types)?
        }
        Expr::And(a, b) => {
            let left = a.encoded(batch)?;
            let left = left.as_boolean();
            if left.null_count() == 0 && !left.has_true() {
                return Ok(Value::Array(Arc::new(left.clone())));
            }
            if b.may_fail() {
                return case::undecided(left, b, batch, false);
            }
            let right = b.encoded(batch)?;
            boolean(and_kleene(left, right.as_boolean()).map_err(internal)?)
        }
        Expr::Or(a, b) => {
            let left = a.encoded(batch)?;
            let left = left.as_boolean();
            if left.null_count() == 0 && !left.has_false() {
                return Ok(Value::Array(Arc::new(left.clone())));
            }
            if b.may_fail() {
                return case::undecided(left, b, batch, true);
            }
            let right = b.encoded(batch)?;
            boolean(or_kleene(left, right.as_boolean()).map_err(internal)?)
        }
        Expr::Not(a) => boolean(not(a.encoded(batch)?.as_boolean()).map_err(internal)?),
        Expr::IsNull(a) => boolean(is_null(&a.encoded(batch)?).map_err(internal)?),
        Expr::Arithmetic(arithmetic, a, b, result) => {
            let (left, right) = (value(a, batch)?, value(b, batch)?);
            if let Some(narrow) = decimal::narrow(*arithmetic, &left, &right, result) {
                return Ok(Value::Array(narrow));
            }
            let constant = matches!((&left, &right), (Value::Scalar(_), Value::Scalar(_)));
            let (left, right) = (plain(left, &a.data_type())?, plain(right, &b.data_type())?);
            let done = match arithmetic {
                Arithmetic::Add => numeric::add(left.as_ref(), right.as_ref()),
                Arithmetic::Subtract => numeric::sub(left.as_ref(), right.as_ref()),
                Arithmetic::Multiply => numeric::mul(left.as_ref(), right.as_ref()),
            };
            let done = done.map_err(|e| match e {
                ArrowError::ArithmeticOverflow(what) => {
                    thalweg_base::Error::user(what).code("22003")
                }
                other => thalweg_base::Error::user(other.to_string()),
            })?;
            let done = expand(&done, result)?;
            if constant { Value::Scalar(done) } else { Value::Array(done) }
        }
        Expr::Widen(a, result) => match a.as_ref() {
            Expr::Register(_, DataType::Decimal128(..)) => {
                decimal::widened(value(a, batch)?, result)?
            }
            Expr::Register(..) => decimal::widened(Value::Array(a.compact(batch)?), result)?,
            _ => decimal::widened(value(a, batch)?, result)?,
        },
        Expr::Call(Callee::Kernel(kernel), arguments, result) => {
            kernel.value(arguments, result, batch)?
        }
        Expr::Call(Callee::Function(function), arguments, result) => {
            let function = function.as_ref();
            if arguments.is_empty() && function.is_pure() {
                return Ok(Value::Scalar(function.call(&[], 1)?));
            }
            if function.is_pure()
                && let Some(value) =
                    on_values(arguments, result, batch, |few| called(function, arguments, few))?
            {
                return Ok(Value::Array(value));
            }
            Value::Array(called(function, arguments, batch)?)
        }
    })
}

fn boolean(array: BooleanArray) -> Value {
    Value::Array(Arc::new(array))
}

/// As Arrow's kernels take it, in the logical type.
fn plain(value: Value, logical: &DataType) -> Result<Box<dyn Datum>> {
    Ok(match value {
        Value::Array(array) => Box::new(expand(&array, logical)?),
        Value::Scalar(one) => Box::new(Scalar::new(expand(&one, logical)?)),
    })
}

fn compare(
    comparison: Comparison,
    left: &Value,
    right: &Value,
    types: (&DataType, &DataType),
) -> Result<Value> {
    match (left, right) {
        (Value::Array(array), Value::Scalar(one)) => {
            if let Some(truths) = of_dictionary(array, |values| {
                kernel(comparison, values, &Scalar::new(expand(one, types.1)?))
            })? {
                return Ok(truths);
            }
            if let Some(narrow) = decimal::at_scale_of(array, one) {
                return kernel(comparison, array, &Scalar::new(narrow)).map(boolean);
            }
        }
        (Value::Scalar(_), Value::Array(_)) => {
            return compare(comparison.turned(), right, left, (types.1, types.0));
        }
        (Value::Array(a), Value::Array(b)) => {
            let narrow = matches!(a.data_type(), DataType::Decimal64(..));
            if narrow && a.data_type() == b.data_type() {
                return kernel(comparison, a, b).map(boolean);
            }
        }
        (Value::Scalar(_), Value::Scalar(_)) => {}
    }
    let (a, b) = (plain(left.clone(), types.0)?, plain(right.clone(), types.1)?);
    let truths = kernel(comparison, a.as_ref(), b.as_ref())?;
    Ok(match (left, right) {
        (Value::Scalar(_), Value::Scalar(_)) => Value::Scalar(Arc::new(truths)),
        _ => boolean(truths),
    })
}

fn kernel(comparison: Comparison, left: &dyn Datum, right: &dyn Datum) -> Result<BooleanArray> {
    match comparison {
        Comparison::Equal => cmp::eq(left, right),
        Comparison::NotEqual => cmp::neq(left, right),
        Comparison::Less => cmp::lt(left, right),
        Comparison::LessOrEqual => cmp::lt_eq(left, right),
        Comparison::Greater => cmp::gt(left, right),
        Comparison::GreaterOrEqual => cmp::gt_eq(left, right),
    }
    .map_err(internal)
}

/// What `test` finds for each value of a dictionary, looked up for each row; NULL stays NULL.
/// `None`: it is no dictionary, or one with more values than there are rows.
fn of_dictionary(
    array: &ArrayRef,
    test: impl FnOnce(&ArrayRef) -> Result<BooleanArray>,
) -> Result<Option<Value>> {
    let Some(codes) = codes(array.as_ref()) else { return Ok(None) };
    let values = array.as_any_dictionary().values();
    if values.len() > array.len() {
        return Ok(None);
    }
    let found = test(values)?;
    let looked_up = |bits: &BooleanBuffer| {
        // Beside one another, not eight in a byte: a code then costs one load.
        let table: Vec<bool> = bits.iter().collect();
        BooleanBuffer::collect_bool(codes.len(), |row| {
            table.get(codes[row] as usize) == Some(&true)
        })
    };
    let truths = looked_up(found.values());
    let nulls = found.nulls().filter(|n| n.null_count() > 0);
    let nulls = nulls.map(|nulls| NullBuffer::new(looked_up(nulls.inner())));
    let nulls = NullBuffer::union(nulls.as_ref(), array.nulls());
    Ok(Some(boolean(BooleanArray::new(truths, nulls))))
}

/// A function of the values of its arguments.
fn called(function: &dyn Function, arguments: &[Expr], batch: &mut Batch) -> Result<ArrayRef> {
    let plain = arguments.iter().map(|a| a.plain(batch)).collect::<Result<Vec<_>>>()?;
    function.call(&plain, batch.rows())
}

impl Constant for One {
    fn data_type(&self) -> DataType {
        self.0.data_type().clone()
    }
}

impl Shown for One {
    fn show(&self, _: &[String], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = arrow::util::display::FormatOptions::new().with_null("NULL");
        match arrow::util::display::ArrayFormatter::try_new(&self.0, &options) {
            Ok(text) => write!(f, "{}", text.value(0)),
            Err(_) => write!(f, "?"),
        }
    }
}

impl Shown for Callee {
    fn show(&self, arguments: &[String], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Callee::Kernel(kernel) => kernel.op.describe(arguments, f),
            Callee::Function(function) => function.describe(arguments, f),
        }
    }
}

impl Called for Callee {
    fn may_fail(&self, arguments: &[DataType]) -> bool {
        match self {
            Callee::Kernel(kernel) => kernel.op.may_fail(arguments),
            Callee::Function(_) => true,
        }
    }

    fn is_pure(&self) -> bool {
        match self {
            Callee::Kernel(_) => true,
            Callee::Function(function) => function.is_pure(),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{DictionaryArray, Int64Array, StringViewArray, UInt8Array};
    use thalweg_base::Error;

    use super::*;

    /// The number that a text is.
    #[derive(Debug)]
    struct Number;

    impl Function for Number {
        fn call(&self, arguments: &[ArrayRef], _: usize) -> Result<ArrayRef> {
            let number = |text: Option<&str>| match text.map(str::parse) {
                Some(Err(_)) => Err(Error::user("not a number")),
                Some(Ok(number)) => Ok(Some(number)),
                None => Ok(Some(-1)),
            };
            let numbers = arguments[0].as_string_view().iter().map(number);
            Ok(Arc::new(numbers.collect::<Result<Int64Array>>()?))
        }

        fn is_pure(&self) -> bool {
            true
        }

        fn describe(&self, _: &[String], f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("number")
        }
    }

    fn numbers(keys: Vec<Option<u8>>) -> Result<Int64Array> {
        let values: ArrayRef = Arc::new(StringViewArray::from(vec!["7", "x", "12"]));
        let rows = keys.len();
        let texts: ArrayRef = Arc::new(DictionaryArray::new(UInt8Array::from(keys), values));
        let text = Expr::Register(0, DataType::Utf8View);
        let call = Expr::Call(Callee::Function(Arc::new(Number)), vec![text], DataType::Int64);
        let found = call.encoded(&mut Batch::new(vec![texts], rows))?;
        Ok(found.as_primitive::<arrow::datatypes::Int64Type>().clone())
    }

    #[test]
    fn values_that_no_row_has_raise_no_errors() {
        let found = numbers(vec![Some(0), None, Some(2), Some(2), Some(0)]).unwrap();
        assert_eq!(found, Int64Array::from(vec![7, -1, 12, 12, 7]));
        assert!(numbers(vec![Some(0), Some(1), Some(0), Some(0)]).is_err());
    }

    /// A number that is another one each time.
    #[derive(Debug)]
    struct Chance;

    impl Function for Chance {
        fn call(&self, _: &[ArrayRef], _: usize) -> Result<ArrayRef> {
            Err(Error::user("chance"))
        }

        fn is_pure(&self) -> bool {
            false
        }

        fn describe(&self, _: &[String], f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("chance")
        }
    }

    #[test]
    fn what_calls_a_function_of_chance_is_not_pure() {
        let text = Expr::Register(0, DataType::Utf8View);
        let number = Expr::Call(Callee::Function(Arc::new(Number)), vec![text], DataType::Int64);
        let chance = Expr::Call(Callee::Function(Arc::new(Chance)), vec![], DataType::Int64);
        let of_chance =
            Expr::Call(Callee::Function(Arc::new(Number)), vec![chance.clone()], DataType::Int64);
        let is_less = |a: &Expr, b: &Expr| {
            Expr::Compare(Comparison::Less, Box::new(a.clone()), Box::new(b.clone()))
        };
        let not = |a: Expr| Expr::Not(Box::new(a));
        assert!(number.is_pure() && not(is_less(&number, &number)).is_pure());
        assert!(!chance.is_pure() && !of_chance.is_pure());
        assert!(!not(is_less(&number, &chance)).is_pure());
        assert!(!Expr::And(Box::new(number), Box::new(of_chance)).is_pure());
    }
}
