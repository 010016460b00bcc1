//! The part of a join's condition that is asked of two rows before they become a pair.
//!
//! Of `e.day BETWEEN p.valid_from AND p.valid_to` most rows with equal keys may fail. A pair costs the
//! gathering of all values that the condition reads; a comparison of two whole numbers, each of which lies in
//! an array of one side, costs to read them.

use arrow::array::{Array, ArrayRef};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowNativeType, DataType};
use thalweg_base::Result;

use crate::batch::Batch;
use crate::encoding::is_word;
use crate::expr::{Comparison, Expr, Register};
use crate::table::Table;

/// A condition taken apart.
pub struct Condition {
    tests: Vec<Test>,
    /// What is left to ask of pairs.
    rest: Option<Expr>,
}

/// A value of the probe's row compares so with one of the table's.
struct Test {
    register: Register,
    comparison: Comparison,
    column: usize,
}

impl Condition {
    /// The registers from `before` on are columns of the table's payload.
    pub fn new(condition: Option<&Expr>, before: Register) -> Condition {
        let (mut tests, mut rest) = (vec![], None);
        let mut conjuncts = vec![];
        condition.iter().for_each(|condition| split(condition, &mut conjuncts));
        let mut guarded = false;
        for conjunct in conjuncts {
            // What may fail is asked of the pairs that those before it have left.
            guarded |= conjunct.may_fail();
            match Test::of(conjunct, before).filter(|_| !guarded) {
                Some(test) => tests.push(test),
                None => {
                    let conjunct = conjunct.clone();
                    rest = Some(match rest {
                        None => conjunct,
                        Some(before) => Expr::And(Box::new(before), Box::new(conjunct)),
                    });
                }
            }
        }
        Condition { tests, rest }
    }

    /// `None`: the arrays come in a form of which nothing is asked early.
    pub fn ready(&self, batch: &mut Batch, table: &Table) -> Result<Option<Early>> {
        let mut tests = Vec::with_capacity(self.tests.len());
        for Test { register, comparison, column } in &self.tests {
            let probe = Words::of(&batch.compact(*register)?);
            let (Some(probe), Some(payload)) = (probe, Words::of(table.payload(*column))) else {
                return Ok(None);
            };
            tests.push(Ready { probe, comparison: *comparison, payload });
        }
        Ok((!tests.is_empty()).then_some(Early { tests }))
    }

    /// What is left to ask of pairs that have passed the early tests.
    pub fn rest(&self) -> Option<&Expr> {
        self.rest.as_ref()
    }
}

fn split<'a>(condition: &'a Expr, conjuncts: &mut Vec<&'a Expr>) {
    match condition {
        Expr::And(left, right) => {
            split(left, conjuncts);
            split(right, conjuncts);
        }
        other => conjuncts.push(other),
    }
}

impl Test {
    fn of(conjunct: &Expr, before: Register) -> Option<Test> {
        let Expr::Compare(comparison, left, right) = conjunct else { return None };
        let (Expr::Register(left, logical), Expr::Register(right, other)) =
            (left.as_ref(), right.as_ref())
        else {
            return None;
        };
        // Words beyond those with a sign are not ordered as their values are.
        let is_ordered = is_word(logical) || matches!(logical, DataType::Decimal128(..));
        if *comparison == Comparison::NotEqual
            || logical != other
            || !is_ordered
            || matches!(logical, DataType::Boolean | DataType::UInt64)
        {
            return None;
        }
        let (register, comparison, column) = match (*left < before, *right < before) {
            (true, false) => (*left, *comparison, *right - before),
            (false, true) => (*right, comparison.turned(), *left - before),
            _ => return None,
        };
        Some(Test { register, comparison, column })
    }
}

/// The tests of a batch.
pub struct Early {
    tests: Vec<Ready>,
}

struct Ready {
    probe: Words,
    comparison: Comparison,
    payload: Words,
}

impl Early {
    /// Between which numbers, both included, a row of the table has to lie for each of the tests, to be a pair
    /// of a row of the batch.
    pub fn bounds(&self, row: usize, bounds: &mut Vec<(i64, i64)>) {
        bounds.clear();
        bounds.extend(self.tests.iter().map(|test| {
            let Some(value) = test.probe.get(row) else { return NOTHING };
            match test.comparison {
                Comparison::Less => value.checked_add(1).map_or(NOTHING, |least| (least, i64::MAX)),
                Comparison::LessOrEqual => (value, i64::MAX),
                Comparison::Greater => {
                    value.checked_sub(1).map_or(NOTHING, |most| (i64::MIN, most))
                }
                Comparison::GreaterOrEqual => (i64::MIN, value),
                Comparison::Equal | Comparison::NotEqual => (value, value),
            }
        }));
    }

    /// Whether a row of the table lies between them.
    #[inline]
    pub fn passes(&self, bounds: &[(i64, i64)], row: u32) -> bool {
        self.tests.iter().zip(bounds).all(|(test, (low, high))| {
            let value = test.payload.get(row as usize);
            value.is_some_and(|value| (*low..=*high).contains(&value))
        })
    }
}

/// No number lies between these.
const NOTHING: (i64, i64) = (i64::MAX, i64::MIN);

/// See [`encoding::words`](crate::encoding::words), as wide as they are.
struct Words {
    numbers: Numbers,
    nulls: Option<NullBuffer>,
}

enum Numbers {
    Of8(ScalarBuffer<i8>),
    Of16(ScalarBuffer<i16>),
    Of32(ScalarBuffer<i32>),
    Of64(ScalarBuffer<i64>),
}

impl Words {
    /// `None`: it has no words, or such as have no sign.
    fn of(array: &ArrayRef) -> Option<Words> {
        use DataType::*;
        fn buffer<T: ArrowNativeType>(array: &ArrayRef) -> ScalarBuffer<T> {
            let data = array.to_data();
            ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len())
        }
        let numbers = match array.data_type() {
            Int8 => Numbers::Of8(buffer(array)),
            Int16 => Numbers::Of16(buffer(array)),
            Int32 | Date32 | Time32(_) => Numbers::Of32(buffer(array)),
            Int64 | Date64 | Time64(_) | Timestamp(..) | Decimal64(..) => {
                Numbers::Of64(buffer(array))
            }
            _ => return None,
        };
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
        Some(Words { numbers, nulls })
    }

    #[inline]
    fn get(&self, row: usize) -> Option<i64> {
        if let Some(nulls) = &self.nulls
            && nulls.is_null(row)
        {
            return None;
        }
        Some(match &self.numbers {
            Numbers::Of8(all) => all[row].into(),
            Numbers::Of16(all) => all[row].into(),
            Numbers::Of32(all) => all[row].into(),
            Numbers::Of64(all) => all[row],
        })
    }
}

#[cfg(test)]
mod tests;
