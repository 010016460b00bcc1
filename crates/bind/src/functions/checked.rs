//! Arithmetic that fails where the result is out of range.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrowPrimitiveType, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::{Function, Operand, by_zero, failed, infix, is_one, shaped, untyped_null};
use crate::types;

/// `+`, `-` and `*` of integers and doubles, and `/` and `%` of doubles: of two values of one type, which is
/// the type of the result.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Checked {
    op: Operator,
    name: &'static str,
    signature: Signature,
}

impl Checked {
    pub(super) fn op(&self) -> Operator {
        self.op
    }
}

/// The function for an operator; `None` if the operator needs none for values of this type.
pub(crate) fn checked(op: Operator, operands: &DataType) -> Option<Function> {
    static FUNCTIONS: LazyLock<Vec<(Operator, Function)>> = LazyLock::new(|| {
        let named = [
            (Operator::Plus, "add"),
            (Operator::Minus, "subtract"),
            (Operator::Multiply, "multiply"),
            (Operator::Divide, "divide"),
            (Operator::Modulo, "modulo"),
        ];
        let function = |(op, name)| {
            let signature = Signature::any(2, Volatility::Immutable);
            (op, Arc::new(ScalarUDF::from(Checked { op, name, signature })))
        };
        named.map(function).into()
    });
    let divides = matches!(op, Operator::Divide | Operator::Modulo);
    let needed = match operands {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => !divides,
        DataType::Float32 | DataType::Float64 => true,
        _ => false,
    };
    let (_, function) = FUNCTIONS.iter().find(|(o, _)| *o == op && needed)?;
    Some(Arc::clone(function))
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        self.name
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        Ok(infix(self.op, args))
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

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(null) = untyped_null(&args) {
            return Ok(null);
        }
        match args.args[0].data_type() {
            DataType::Int8 => integers::<Int8Type>(self.op, &args),
            DataType::Int16 => integers::<Int16Type>(self.op, &args),
            DataType::Int32 => integers::<Int32Type>(self.op, &args),
            DataType::Int64 => integers::<Int64Type>(self.op, &args),
            DataType::Float32 => of_floats::<Float32Type>(self.op, &args),
            DataType::Float64 => of_floats::<Float64Type>(self.op, &args),
            other => exec_err!("checked arithmetic of {other}"),
        }
    }
}

/// An integer; each operation gives the result that wraps, and a number below zero if it did.
trait Integer: Copy + std::ops::BitOr<Output = Self> + Default {
    fn add(self, other: Self) -> (Self, Self);
    fn subtract(self, other: Self) -> (Self, Self);
    fn multiply(self, other: Self) -> (Self, Self);
    fn is_negative(self) -> bool;
}

macro_rules! integer {
    ($type:ty, $wide:ty) => {
        impl Integer for $type {
            fn add(self, other: Self) -> (Self, Self) {
                let sum = self.wrapping_add(other);
                (sum, (self ^ sum) & (other ^ sum))
            }

            fn subtract(self, other: Self) -> (Self, Self) {
                let difference = self.wrapping_sub(other);
                (difference, (self ^ other) & (self ^ difference))
            }

            fn multiply(self, other: Self) -> (Self, Self) {
                let product = <$wide>::from(self) * <$wide>::from(other);
                let cut = product as $type;
                (cut, -<$type>::from(<$wide>::from(cut) != product))
            }

            fn is_negative(self) -> bool {
                self < 0
            }
        }
    };
}

integer!(i8, i16);
integer!(i16, i32);
integer!(i32, i64);
integer!(i64, i128);

fn integers<T: ArrowPrimitiveType>(op: Operator, args: &ScalarFunctionArgs) -> Result<ColumnarValue>
where
    T::Native: Integer,
{
    match op {
        Operator::Plus => of_integers::<T>(args, |a, b| a.add(b)),
        Operator::Minus => of_integers::<T>(args, |a, b| a.subtract(b)),
        _ => of_integers::<T>(args, |a, b| a.multiply(b)),
    }
}

fn of_integers<T: ArrowPrimitiveType>(
    args: &ScalarFunctionArgs,
    operation: impl Fn(T::Native, T::Native) -> (T::Native, T::Native),
) -> Result<ColumnarValue>
where
    T::Native: Integer,
{
    let (mut left, mut right) = (None, None);
    let left = Operand::<T>::of(&args.args[0], &mut left)?;
    let right = Operand::<T>::of(&args.args[1], &mut right)?;
    let one = is_one(&args.args);
    let rows = if one { 1 } else { args.number_rows };
    let null = || shaped(Arc::new(PrimitiveArray::<T>::new_null(rows)), one);
    let mut wrapped = T::Native::default();
    let mut each = |a, b| {
        let (result, sign) = operation(a, b);
        wrapped = wrapped | sign;
        result
    };
    // What stands in the place of a NULL is computed as well, and looked at only if something wrapped.
    let values: Vec<T::Native> = match (&left, &right) {
        (Operand::One(None), _) | (_, Operand::One(None)) => return null(),
        (Operand::Each(a), Operand::Each(b)) => {
            a.values().iter().zip(b.values()).map(|(a, b)| each(*a, *b)).collect()
        }
        (Operand::Each(a), Operand::One(Some(b))) => {
            a.values().iter().map(|a| each(*a, *b)).collect()
        }
        (Operand::One(Some(a)), Operand::Each(b)) => {
            b.values().iter().map(|b| each(*a, *b)).collect()
        }
        (Operand::One(Some(a)), Operand::One(Some(b))) => vec![each(*a, *b)],
    };
    if wrapped.is_negative() {
        let wraps = |row| match (left.value(row), right.value(row)) {
            (Some(a), Some(b)) => operation(a, b).1.is_negative(),
            _ => false,
        };
        if (0..rows).any(wraps) {
            return out_of_range(&T::DATA_TYPE);
        }
    }
    let nulls = NullBuffer::union(left.nulls(), right.nulls());
    shaped(Arc::new(PrimitiveArray::<T>::new(values.into(), nulls)), one)
}

pub(super) fn out_of_range<T>(data_type: &DataType) -> Result<T> {
    failed("22003", format!("{} out of range", types::name(data_type)))
}

fn of_floats<T: ArrowPrimitiveType>(
    op: Operator,
    args: &ScalarFunctionArgs,
) -> Result<ColumnarValue>
where
    T::Native: Float,
{
    match op {
        Operator::Plus => floats::<T>(args, op, |a, b| a.add(b)),
        Operator::Minus => floats::<T>(args, op, |a, b| a.subtract(b)),
        Operator::Multiply => floats::<T>(args, op, |a, b| a.multiply(b)),
        Operator::Divide => floats::<T>(args, op, |a, b| a.over(b)),
        _ => floats::<T>(args, op, |a, b| a.remainder(b)),
    }
}

fn floats<T: ArrowPrimitiveType>(
    args: &ScalarFunctionArgs,
    op: Operator,
    operation: impl Fn(T::Native, T::Native) -> T::Native,
) -> Result<ColumnarValue>
where
    T::Native: Float,
{
    let (mut left, mut right) = (None, None);
    let left = Operand::<T>::of(&args.args[0], &mut left)?;
    let right = Operand::<T>::of(&args.args[1], &mut right)?;
    let one = is_one(&args.args);
    let rows = if one { 1 } else { args.number_rows };
    let null = || shaped(Arc::new(PrimitiveArray::<T>::new_null(rows)), one);
    // Whether a result may be one that these operands do not have.
    let may_vanish = matches!(op, Operator::Multiply | Operator::Divide);
    let divides = matches!(op, Operator::Divide | Operator::Modulo);
    let mut suspect = false;
    let mut each = |a: T::Native, b: T::Native| {
        let result = operation(a, b);
        suspect |= !result.is_finite() | (may_vanish & result.is_zero()) | (divides & b.is_zero());
        result
    };
    // What stands in the place of a NULL is computed as well, and looked at only if something is suspect.
    let values: Vec<T::Native> = match (&left, &right) {
        (Operand::One(None), _) | (_, Operand::One(None)) => return null(),
        (Operand::Each(a), Operand::Each(b)) => {
            a.values().iter().zip(b.values()).map(|(a, b)| each(*a, *b)).collect()
        }
        (Operand::Each(a), Operand::One(Some(b))) => {
            a.values().iter().map(|a| each(*a, *b)).collect()
        }
        (Operand::One(Some(a)), Operand::Each(b)) => {
            b.values().iter().map(|b| each(*a, *b)).collect()
        }
        (Operand::One(Some(a)), Operand::One(Some(b))) => vec![each(*a, *b)],
    };
    if suspect {
        for (row, value) in values.iter().enumerate() {
            if let (Some(a), Some(b)) = (left.value(row), right.value(row)) {
                check(op, a, b, *value)?;
            }
        }
    }
    let nulls = NullBuffer::union(left.nulls(), right.nulls());
    shaped(Arc::new(PrimitiveArray::<T>::new(values.into(), nulls)), one)
}

/// What is calculated of finite numbers is finite, and not zero but where it is.
fn check<F: Float>(op: Operator, a: F, b: F, value: F) -> Result<()> {
    let divides = matches!(op, Operator::Divide | Operator::Modulo);
    if divides && b.is_zero() && !a.is_nan() {
        return by_zero();
    }
    if value.is_infinite() && !a.is_infinite() && !b.is_infinite() {
        return failed("22003", "value out of range: overflow");
    }
    let vanishes = match op {
        Operator::Multiply => !a.is_zero() && !b.is_zero(),
        Operator::Divide => !a.is_zero() && !b.is_infinite(),
        _ => false,
    };
    match vanishes && value.is_zero() {
        true => failed("22003", "value out of range: underflow"),
        false => Ok(()),
    }
}

/// A number with a fraction.
trait Float: Copy {
    fn is_zero(self) -> bool;
    fn is_nan(self) -> bool;
    fn is_finite(self) -> bool;
    fn is_infinite(self) -> bool;
    fn add(self, other: Self) -> Self;
    fn subtract(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    fn over(self, other: Self) -> Self;
    fn remainder(self, other: Self) -> Self;
}

macro_rules! float {
    ($type:ty) => {
        impl Float for $type {
            fn is_zero(self) -> bool {
                self == 0.0
            }

            fn is_nan(self) -> bool {
                self.is_nan()
            }

            fn is_finite(self) -> bool {
                self.is_finite()
            }

            fn is_infinite(self) -> bool {
                self.is_infinite()
            }

            fn add(self, other: Self) -> Self {
                self + other
            }

            fn subtract(self, other: Self) -> Self {
                self - other
            }

            fn multiply(self, other: Self) -> Self {
                self * other
            }

            fn over(self, other: Self) -> Self {
                self / other
            }

            fn remainder(self, other: Self) -> Self {
                self % other
            }
        }
    };
}

float!(f32);
float!(f64);

#[cfg(test)]
mod tests {
    use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int32Array, Int64Array};
    use arrow::datatypes::Field;
    use datafusion::common::ScalarValue;
    use datafusion::common::config::ConfigOptions;

    use super::*;

    fn run(
        op: Operator,
        left: ColumnarValue,
        right: ColumnarValue,
        rows: usize,
    ) -> Result<ArrayRef> {
        let data_type = left.data_type();
        let function = checked(op, &data_type).expect("it is checked");
        let field = Arc::new(Field::new("", data_type, true));
        let args = ScalarFunctionArgs {
            args: vec![left, right],
            arg_fields: vec![Arc::clone(&field), Arc::clone(&field)],
            number_rows: rows,
            return_field: field,
            config_options: Arc::new(ConfigOptions::default()),
        };
        function.invoke_with_args(args)?.into_array(rows)
    }

    #[test]
    fn results_that_fit_are_given_and_others_fail() {
        let array = |values: Vec<Option<i64>>| {
            ColumnarValue::Array(Arc::new(Int64Array::from(values)) as ArrayRef)
        };
        let one = |n: i64| ColumnarValue::Scalar(ScalarValue::Int64(Some(n)));
        let values = || array(vec![Some(1), None, Some(i64::MAX)]);
        let check = |op, left, right, expected: Option<Vec<Option<i64>>>| {
            let found = run(op, left, right, 3);
            let found =
                found.ok().map(|a| a.as_primitive::<Int64Type>().iter().collect::<Vec<_>>());
            assert_eq!(found, expected, "{op}");
        };
        check(Operator::Plus, values(), one(1), None);
        check(Operator::Plus, values(), one(-1), Some(vec![Some(0), None, Some(i64::MAX - 1)]));
        check(Operator::Minus, one(-2), values(), None);
        check(Operator::Minus, one(-1), values(), Some(vec![Some(-2), None, Some(i64::MIN)]));
        check(Operator::Multiply, values(), one(2), None);
        check(Operator::Multiply, values(), one(-1), Some(vec![Some(-1), None, Some(-i64::MAX)]));
        // What is under a NULL decides nothing.
        let hidden = Int64Array::new(vec![i64::MAX, 5].into(), Some(vec![false, true].into()));
        let hidden = ColumnarValue::Array(Arc::new(hidden));
        let found = run(Operator::Plus, hidden, one(1), 2).unwrap();
        let found = found.as_primitive::<Int64Type>();
        assert!(found.is_null(0) && found.value(1) == 6);
    }

    #[test]
    fn doubles_neither_overflow_nor_vanish() {
        let one = |x: f64| ColumnarValue::Scalar(ScalarValue::from(x));
        let check = |op, a: f64, b: f64, expected: Option<f64>| {
            let values = Float64Array::from(vec![Some(a), None]);
            let found = run(op, ColumnarValue::Array(Arc::new(values)), one(b), 2);
            let found = found.ok().map(|found| found.as_primitive::<Float64Type>().value(0));
            assert_eq!(found, expected, "{a} {op} {b}");
        };
        check(Operator::Multiply, 1e300, 1e300, None);
        check(Operator::Multiply, 1e-300, 1e-300, None);
        check(Operator::Multiply, 0.0, 1e-300, Some(0.0));
        check(Operator::Multiply, f64::INFINITY, 2.0, Some(f64::INFINITY));
        check(Operator::Plus, f64::MAX, f64::MAX, None);
        check(Operator::Minus, f64::MIN, f64::INFINITY, Some(f64::NEG_INFINITY));
        check(Operator::Divide, 1e300, 1e-300, None);
        check(Operator::Divide, 1e-300, 1e300, None);
        check(Operator::Divide, 1.0, f64::INFINITY, Some(0.0));
        check(Operator::Divide, 1.0, 0.0, None);
    }

    #[test]
    fn an_int_is_narrower_than_a_bigint() {
        let array = ColumnarValue::Array(Arc::new(Int32Array::from(vec![i32::MAX])));
        let one = ColumnarValue::Scalar(ScalarValue::Int32(Some(1)));
        let error = run(Operator::Plus, array, one, 1).unwrap_err();
        assert!(error.to_string().contains("integer out of range"), "{error}");
    }
}
