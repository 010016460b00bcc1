//! Operations over registers: what an [`Op`] comes to for the rows of a batch.
//!
//! What reads one column only that comes as a dictionary is computed once for each of its values.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray, UInt32Array,
    make_array, new_null_array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::{concat, nullif, take};
use arrow::datatypes::DataType;
use thalweg_base::{Error, Result};
use thalweg_ir::Op;

use super::in_list::Listed;
use super::like::Matcher;
use super::{Callee, Comparison, Expr, Register, Value, value};
use super::{case, cast, compare, number, text, time};
use crate::batch::Batch;
use crate::encoding::{codes, expand, internal, is_bytes};

/// An operation that is ready to be computed.
#[derive(Debug)]
pub struct Kernel {
    pub op: Op,
    prepared: Prepared,
}

/// What is found out once and for all batches.
#[derive(Debug)]
enum Prepared {
    Nothing,
    List(Listed),
    Pattern(Matcher),
}

impl Kernel {
    /// The arguments that it is called with must be of types that it takes.
    pub fn new(op: &Op) -> Result<Kernel> {
        let prepared = match op {
            Op::In { list, negated } => Prepared::List(Listed::new(list, *negated)?),
            Op::Like { pattern, negated, any_case } => {
                Prepared::Pattern(Matcher::new(pattern, *negated, *any_case))
            }
            _ => Prepared::Nothing,
        };
        Ok(Kernel { op: op.clone(), prepared })
    }

    pub(super) fn value(
        &self,
        arguments: &[Expr],
        result: &DataType,
        batch: &mut Batch,
    ) -> Result<Value> {
        let of_values = |few: &mut Batch| {
            self.of_rows(arguments, result, few).and_then(|value| value.into_array(few.rows()))
        };
        match on_values(arguments, result, batch, of_values)? {
            Some(found) => Ok(Value::Array(found)),
            None => self.of_rows(arguments, result, batch),
        }
    }

    fn of_rows(&self, arguments: &[Expr], result: &DataType, batch: &mut Batch) -> Result<Value> {
        match &self.op {
            Op::Case => return case::case(arguments, batch, result),
            Op::Coalesce => return case::coalesce(arguments, batch, result),
            _ => {}
        }
        let values = arguments.iter().map(|a| value(a, batch)).collect::<Result<Vec<_>>>()?;
        let types: Vec<DataType> = arguments.iter().map(Expr::data_type).collect();
        if values.iter().all(|value| matches!(value, Value::Scalar(_))) {
            return self.computed(&values, &types, 1).map(Value::Scalar);
        }
        self.computed(&values, &types, batch.rows()).map(Value::Array)
    }

    /// Of arguments that may be encoded.
    fn computed(&self, values: &[Value], types: &[DataType], rows: usize) -> Result<ArrayRef> {
        let plain = |n: usize| match &values[n] {
            Value::Array(array) => expand(array, &types[n]).map(Value::Array),
            Value::Scalar(one) => expand(one, &types[n]).map(Value::Scalar),
        };
        let array = |n: usize| plain(n)?.into_array(rows);
        match &self.op {
            Op::Add | Op::Subtract | Op::Multiply | Op::Divide | Op::Modulo => {
                number::calculated(&self.op, &plain(0)?, &plain(1)?, rows)
            }
            &Op::Quotient { precision, scale } => {
                number::quotient(&values[0], &values[1], rows, precision, scale)
            }
            Op::WithinDigits => number::within_digits(values[0].clone().into_array(rows)?),
            Op::Negate => number::negated(&values[0].clone().into_array(rows)?),
            Op::Absolute => number::absolute(&values[0].clone().into_array(rows)?),
            Op::Canonical | Op::NearestWhole | Op::Floor | Op::Ceiling => {
                number::whole(&self.op, &array(0)?)
            }
            Op::Cast(to) => cast::cast(&values[0].clone().into_array(rows)?, &types[0], to),
            Op::NullIf => {
                let types = (&types[0], &types[1]);
                let same = compare(Comparison::Equal, &values[0], &values[1], types)?;
                let same = same.into_array(rows)?;
                let array = values[0].clone().into_array(rows)?;
                nullif(&array, same.as_boolean()).map_err(internal)
            }
            Op::Greatest | Op::Least => {
                let all = (0..values.len()).map(array).collect::<Result<Vec<_>>>()?;
                number::extreme(&all, matches!(self.op, Op::Greatest))
            }
            Op::In { .. } => match &self.prepared {
                Prepared::List(list) => list.has(&values[0].clone().into_array(rows)?),
                _ => Err(Error::internal("a list was not prepared")),
            },
            Op::Like { .. } => match &self.prepared {
                Prepared::Pattern(matcher) => matcher.matches(&array(0)?),
                _ => Err(Error::internal("a pattern was not prepared")),
            },
            Op::Substring => {
                let rest = (1..values.len()).map(plain).collect::<Result<Vec<_>>>()?;
                text::substring(&array(0)?, &rest)
            }
            Op::Characters => text::characters(&array(0)?),
            Op::Octets => text::octets(&array(0)?),
            Op::Upper => text::in_case(&array(0)?, true),
            Op::Lower => text::in_case(&array(0)?, false),
            &Op::Trim { start, end } => text::trimmed(&array(0)?, start, end),
            Op::Concatenate => {
                if let Some(coded) = text::concatenated_codes(values, rows)? {
                    return Ok(coded);
                }
                let all = (0..values.len()).map(plain).collect::<Result<Vec<_>>>()?;
                text::concatenated(&all, rows)
            }
            Op::DatePart(part) => time::part(*part, &array(0)?),
            Op::DateTrunc(unit) => time::truncated(*unit, &array(0)?),
            Op::Case | Op::Coalesce => Err(Error::internal("a choice was computed at once")),
        }
    }
}

/// What `compute` makes of arguments, for the values of the only column that is read, and looked up for each
/// row. `None`: it is none, it is no dictionary, or one with as many values as there are rows. The same
/// arguments must always give the same value.
pub(super) fn on_values(
    arguments: &[Expr],
    result: &DataType,
    batch: &mut Batch,
    compute: impl FnOnce(&mut Batch) -> Result<ArrayRef>,
) -> Result<Option<ArrayRef>> {
    let mut only = Only::Nothing;
    arguments.iter().for_each(|argument| only.see(argument));
    let Only::Register(register) = only else { return Ok(None) };
    let array = batch.column(register)?;
    let Some(codes) = codes(array.as_ref()) else { return Ok(None) };
    let values = array.as_any_dictionary().values();
    if values.len() >= array.len() {
        return Ok(None);
    }
    // One more for NULL, of which something may be made.
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    let mut asked = Arc::clone(values);
    if nulls.is_some() {
        let null = new_null_array(values.data_type(), 1);
        asked = concat(&[values.as_ref(), null.as_ref()]).map_err(internal)?;
    }
    let rows = asked.len();
    let mut few = Batch::of_some(&[register], &[asked], register + 1, rows);
    // An error may be due to a value of rows that are not there: those that are may tell.
    let Ok(found) = compute(&mut few) else { return Ok(None) };
    if *result == DataType::Utf8View
        && found.data_type() == result
        && found.logical_null_count() == usize::from(nulls.is_some())
        && nulls.is_none_or(|_| found.is_null(rows - 1))
    {
        // It has the codes that the column has.
        let texts = found.slice(0, values.len());
        return Ok(Some(array.as_any_dictionary().with_values(texts)));
    }
    let place = |row: usize| match nulls {
        Some(nulls) if nulls.is_null(row) => values.len() as u32,
        _ => codes[row],
    };
    if let Some(truths) = found.as_boolean_opt() {
        // Beside one another, not eight in a byte: a code then costs one load.
        let look_up = |bits: &BooleanBuffer| {
            let bits: Vec<bool> = bits.iter().collect();
            BooleanBuffer::collect_bool(array.len(), |row| bits[place(row) as usize])
        };
        let valid = truths.nulls().filter(|nulls| nulls.null_count() > 0);
        let valid = valid.map(|nulls| NullBuffer::new(look_up(nulls.inner())));
        return Ok(Some(Arc::new(BooleanArray::new(look_up(truths.values()), valid))));
    }
    let places = UInt32Array::from_iter_values((0..array.len()).map(place));
    take(&found, &places, None).map(Some).map_err(internal)
}

/// The registers that an expression reads.
enum Only {
    Nothing,
    /// One, of texts or bytes: others never are dictionaries.
    Register(Register),
    /// Several, or what has other values whenever it is asked.
    Other,
}

impl Only {
    fn see(&mut self, expr: &Expr) {
        match (expr, &self) {
            (_, Only::Other) => {}
            (Expr::Register(register, logical), Only::Nothing) if is_bytes(logical) => {
                *self = Only::Register(*register);
            }
            (Expr::Register(register, _), Only::Register(known)) if register == known => {}
            (Expr::Register(..) | Expr::Row(_), _) => *self = Only::Other,
            (Expr::Call(Callee::Function(function), ..), _) if !function.is_pure() => {
                *self = Only::Other
            }
            (expr, _) => expr.operands().into_iter().for_each(|operand| self.see(operand)),
        }
    }
}

/// One argument of a type that is stored in numbers.
pub(super) enum Operand<'a, T: ArrowPrimitiveType> {
    Each(&'a PrimitiveArray<T>),
    /// `None` is NULL.
    One(Option<T::Native>),
}

impl<'a, T: ArrowPrimitiveType> Operand<'a, T> {
    pub fn of(value: &'a Value) -> Result<Self> {
        let other = |array: &ArrayRef| {
            let (wanted, found) = (T::DATA_TYPE, array.data_type());
            Error::internal(format!("an operand of {wanted} came as {found}"))
        };
        Ok(match value {
            Value::Array(array) => {
                Operand::Each(array.as_primitive_opt().ok_or_else(|| other(array))?)
            }
            Value::Scalar(one) => {
                let array = one.as_primitive_opt::<T>().ok_or_else(|| other(one))?;
                Operand::One(array.is_valid(0).then(|| array.value(0)))
            }
        })
    }

    pub fn nulls(&self) -> Option<&NullBuffer> {
        match self {
            Operand::Each(array) => array.nulls(),
            Operand::One(_) => None,
        }
    }

    pub fn value(&self, row: usize) -> Option<T::Native> {
        match self {
            Operand::Each(array) => array.is_valid(row).then(|| array.value(row)),
            Operand::One(one) => *one,
        }
    }
}

/// The values of two operands that `f` makes of each pair, also where one is NULL: what stands in its
/// place is anything. `None`: one is NULL for all rows.
pub(super) fn each_pair<T, U: ArrowPrimitiveType>(
    left: &Operand<U>,
    right: &Operand<U>,
    mut f: impl FnMut(U::Native, U::Native) -> T,
) -> Option<Vec<T>> {
    Some(match (left, right) {
        (Operand::One(None), _) | (_, Operand::One(None)) => return None,
        (Operand::Each(a), Operand::Each(b)) => {
            a.values().iter().zip(b.values()).map(|(&a, &b)| f(a, b)).collect()
        }
        (Operand::Each(a), Operand::One(Some(b))) => a.values().iter().map(|&a| f(a, *b)).collect(),
        (Operand::One(Some(a)), Operand::Each(b)) => b.values().iter().map(|&b| f(*a, b)).collect(),
        (Operand::One(Some(a)), Operand::One(Some(b))) => vec![f(*a, *b)],
    })
}

/// The same values as those of another type that is stored alike.
pub(super) fn stored_as(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let data = array.to_data().into_builder().data_type(to.clone());
    Ok(make_array(data.build().map_err(internal)?))
}
