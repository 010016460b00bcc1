//! `CASE` and `COALESCE`, which compute what a row needs, and of that only what may fail or is dear
//! for these rows alone.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, UInt32Array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::kernels::boolean::{and_kleene, or_kleene};
use arrow::datatypes::DataType;
use thalweg_base::Result;
use thalweg_ir::Op;

use super::choose::{Part, Source, choose, spread};
use super::{Callee, Evaluate, Expr, One, Value, value};
use crate::batch::Batch;
use crate::encoding::internal;

/// Rows of a batch among one that is needed, above which a cheap value is computed for these alone.
const NEEDED_SHARE_MIN: usize = 4;

/// Conditions, each followed by its value, and maybe the value where none is true.
pub fn case(arguments: &[Expr], batch: &mut Batch, logical: &DataType) -> Result<Value> {
    let (branches, rest) = arguments.as_chunks::<2>();
    let mut left = Left::all(batch.rows());
    let mut parts: Vec<Part> = Vec::with_capacity(branches.len() + 1);
    for [condition, value] in branches {
        if left.count == 0 {
            break;
        }
        let truths = left.truths(condition, batch)?;
        let own = left.take(truths);
        if own.count > 0 {
            let source = own.values(value, batch)?;
            parts.push((own.rows, source));
        }
    }
    if let [value] = rest
        && left.count > 0
    {
        let source = left.values(value, batch)?;
        parts.push((left.rows, source));
    }
    choose(parts, batch.rows(), logical).map(Value::Array)
}

/// The first argument that is not NULL.
pub fn coalesce(arguments: &[Expr], batch: &mut Batch, logical: &DataType) -> Result<Value> {
    let mut left = Left::all(batch.rows());
    let mut parts: Vec<Part> = Vec::with_capacity(arguments.len());
    for argument in arguments {
        if left.count == 0 {
            break;
        }
        let source = left.values(argument, batch)?;
        let valid = match &source {
            Source::Scalar(one) if one.is_null(0) => continue,
            Source::Scalar(_) => left.rows.clone(),
            Source::Rows(array) => match array.logical_nulls() {
                Some(nulls) => &left.rows & nulls.inner(),
                None => left.rows.clone(),
            },
            // NULLs have their place among the values: there is one for each row that is left.
            Source::Picked(array) => match array.logical_nulls() {
                Some(nulls) if nulls.null_count() > 0 => {
                    let positions = nulls.valid_indices().map(|n| n as u32);
                    let positions = UInt32Array::from_iter_values(positions);
                    let valid = spread(&left.rows, nulls.inner());
                    let few = arrow::compute::take(array, &positions, None);
                    let few = few.map_err(internal)?;
                    let own = left.take(valid);
                    parts.push((own.rows, Source::Picked(few)));
                    continue;
                }
                _ => left.rows.clone(),
            },
        };
        let own = left.take(valid);
        parts.push((own.rows, source));
    }
    choose(parts, batch.rows(), logical).map(Value::Array)
}

/// `left AND right`, or `left OR right`, of which the right side may fail: it is asked for the rows that
/// the left one does not decide, which it does where it is `decides`.
pub fn undecided(
    left: &BooleanArray,
    right: &Expr,
    batch: &mut Batch,
    decides: bool,
) -> Result<Value> {
    let decided = if decides { left.values().clone() } else { !left.values() };
    let decided = match left.nulls() {
        Some(nulls) => &decided & nulls.inner(),
        None => decided,
    };
    let rows = !&decided;
    let count = rows.count_set_bits();
    let asked = Left { rows, count };
    let all = match asked.is_all() {
        true => Some(right.encoded(batch)?),
        false if asked.asks_all(right) => right.encoded(batch).ok(),
        false => None,
    };
    let right = if let Some(all) = all {
        all.as_boolean().clone()
    } else {
        let few = right.encoded(&mut asked.picked(batch)?)?;
        let few = few.as_boolean();
        let nulls = few.nulls().map(|nulls| {
            // What was not asked is not looked at.
            NullBuffer::new(&decided | &spread(&asked.rows, nulls.inner()))
        });
        BooleanArray::new(spread(&asked.rows, few.values()), nulls)
    };
    let both = if decides { or_kleene(left, &right) } else { and_kleene(left, &right) };
    Ok(Value::Array(Arc::new(both.map_err(internal)?)))
}

/// Whether values cost so little that it is not worth while to find out first which rows need them. A
/// choice that may fail is not among these: it would be asked twice at each level of choices within one
/// another.
fn is_cheap(expr: &Expr) -> bool {
    let own = match expr {
        Expr::And(..) | Expr::Or(..) => !expr.may_fail(),
        Expr::Call(Callee::Kernel(kernel), ..) => match kernel.op {
            Op::Case | Op::Coalesce => !expr.may_fail(),
            ref op => op.is_cheap(),
        },
        Expr::Call(Callee::Function(_), ..) => false,
        _ => true,
    };
    own && expr.operands().into_iter().all(is_cheap)
}

/// Rows that something is still to be found out of.
struct Left {
    rows: BooleanBuffer,
    count: usize,
}

impl Left {
    fn all(rows: usize) -> Left {
        Left { rows: BooleanBuffer::new_set(rows), count: rows }
    }

    fn is_all(&self) -> bool {
        self.count == self.rows.len()
    }

    /// Takes those rows away that are among `taken`.
    fn take(&mut self, taken: BooleanBuffer) -> Left {
        let taken = if self.is_all() { taken } else { &taken & &self.rows };
        let count = taken.count_set_bits();
        if count > 0 {
            self.rows = &self.rows & &!&taken;
            self.count -= count;
        }
        Left { rows: taken, count }
    }

    /// The batch of these rows.
    fn picked(&self, batch: &Batch) -> Result<Batch> {
        let positions = self.rows.set_indices().map(|row| row as u32);
        let mut picked = batch.clone();
        picked.pick(UInt32Array::from_iter_values(positions))?;
        Ok(picked)
    }

    /// Whether an expression is computed for all rows. It is then no error if that fails, as it may do
    /// so because of another row.
    fn asks_all(&self, expr: &Expr) -> bool {
        is_cheap(expr) && self.count * NEEDED_SHARE_MIN >= self.rows.len()
    }

    /// Which of these rows a condition is true for, and maybe of others.
    fn truths(&self, condition: &Expr, batch: &mut Batch) -> Result<BooleanBuffer> {
        if self.is_all() {
            return condition.truth(batch);
        }
        if self.asks_all(condition)
            && let Ok(truths) = condition.truth(batch)
        {
            return Ok(truths);
        }
        let few = condition.truth(&mut self.picked(batch)?)?;
        Ok(spread(&self.rows, &few))
    }

    /// The values of an expression for these rows.
    fn values(&self, expr: &Expr, batch: &mut Batch) -> Result<Source> {
        if let Expr::Literal(One(one)) = expr {
            return Ok(Source::Scalar(Arc::clone(one)));
        }
        let source = |value| match value {
            Value::Array(array) => Source::Rows(array),
            Value::Scalar(one) => Source::Scalar(one),
        };
        if self.is_all() {
            return value(expr, batch).map(source);
        }
        if self.asks_all(expr)
            && let Ok(found) = value(expr, batch)
        {
            return Ok(source(found));
        }
        Ok(match value(expr, &mut self.picked(batch)?)? {
            Value::Array(array) => Source::Picked(array),
            Value::Scalar(one) => Source::Scalar(one),
        })
    }
}

#[cfg(test)]
mod tests;
