//! What of a [`Spec`] is computed by which state: functions with arguments and filters in common
//! share *slots*.

use arrow::datatypes::DataType;
use thalweg_base::{Error, Result};

use super::keys::Key;
use super::{Function, Kind, Spec};
use crate::encoding::{is_bytes, is_word};

/// Digits that an average of decimals keeps above those of its argument: 4 for its scale, 9 for
/// the number of rows. A sum that may need more than 38 is kept in more than 128 bits, as
/// DataFusion keeps it in 256.
const AVG_HEADROOM_DIGITS: u8 = 13;
const DECIMAL128_DIGITS: u8 = 38;

/// How the values of a type are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// As words.
    Word,
    /// As words with the highest bit flipped.
    Unsigned,
    /// By the total order of IEEE 754: NaN with a sign, -∞ … -0.0, 0.0 … ∞, NaN.
    Float,
    Decimal,
    Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Int,
    Float,
    /// `exact`: beyond 128 bits rather than wrapping.
    Decimal {
        exact: bool,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Slot {
    /// All rows.
    Rows,
    /// Rows with a NULL among these arguments; mostly there is none, and nothing to do.
    Missing(Vec<usize>),
    /// Rows that pass the filter without a NULL among these arguments.
    Counted {
        arguments: Vec<usize>,
        filter: usize,
    },
    Sum {
        argument: usize,
        filter: Option<usize>,
        number: Number,
    },
    Extreme {
        argument: usize,
        filter: Option<usize>,
        order: Order,
        max: bool,
    },
}

#[derive(Clone, Debug)]
pub(super) enum Count {
    All {
        rows: usize,
        missing: Option<usize>,
    },
    Filtered(usize),
    /// Counts of groups that are grouped again.
    Summed(usize),
}

/// How a function's result is made of slots.
#[derive(Clone, Debug)]
pub(super) enum Output {
    Count(Count),
    Sum(usize),
    Average {
        sum: usize,
        count: Count,
        average: Average,
    },
    Extreme(usize),
    /// An index into `Plan::externals`.
    External(usize),
}

impl Output {
    /// Whether it is made of that slot.
    pub fn reads(&self, slot: usize) -> bool {
        let counts = |count: &Count| match count {
            Count::All { rows, missing } => *rows == slot || *missing == Some(slot),
            Count::Filtered(counted) | Count::Summed(counted) => *counted == slot,
        };
        match self {
            Output::Count(count) => counts(count),
            Output::Sum(of) | Output::Extreme(of) => *of == slot,
            Output::Average { sum, count, .. } => *sum == slot || counts(count),
            Output::External(_) => false,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Average {
    Float,
    /// Sums are multiplied by that before they are divided.
    Decimal {
        factor: i128,
        precision: u8,
    },
}

#[derive(Debug)]
pub(super) struct Plan {
    pub keys: Vec<Key>,
    pub slots: Vec<Slot>,
    pub outputs: Vec<Output>,
    /// Indices of functions.
    pub externals: Vec<usize>,
    /// State columns of each of them.
    pub external_columns: Vec<usize>,
}

fn order(data_type: &DataType) -> Option<Order> {
    use DataType::*;
    Some(match data_type {
        Float16 | Float32 | Float64 => Order::Float,
        UInt64 => Order::Unsigned,
        Decimal128(..) => Order::Decimal,
        t if is_bytes(t) => Order::Bytes,
        t if is_word(t) => Order::Word,
        _ => return None,
    })
}

fn number(data_type: &DataType) -> Option<Number> {
    match data_type {
        t if t.is_integer() => Some(Number::Int),
        DataType::Float64 => Some(Number::Float),
        DataType::Decimal128(..) => Some(Number::Decimal { exact: false }),
        _ => None,
    }
}

/// Whether a function over arguments of these logical types has code here; `External` never has.
pub fn is_native(kind: &Kind, argument_types: &[DataType]) -> bool {
    match (kind, argument_types) {
        (Kind::CountRows, []) | (Kind::Count, [_, ..]) => true,
        (Kind::Sum, [t]) => number(t).is_some(),
        (Kind::Avg, [t]) => matches!(t, DataType::Float64 | DataType::Decimal128(..)),
        (Kind::Min | Kind::Max, [t]) => order(t).is_some(),
        (Kind::CountOfCounts, [DataType::Int64]) => true,
        (Kind::AvgOfSums, [t, DataType::Int64]) => is_native(&Kind::Avg, std::slice::from_ref(t)),
        _ => false,
    }
}

/// Whether its results for groups can be combined to those for larger groups, which an average can if
/// sums and counts are there.
pub fn is_combined(kind: &Kind, argument_types: &[DataType]) -> bool {
    match (kind, argument_types) {
        (Kind::Avg, [DataType::Decimal128(precision, _)]) => !is_beyond_128_bits(*precision),
        (Kind::External(_) | Kind::CountOfCounts | Kind::AvgOfSums, _) => false,
        _ => is_native(kind, argument_types),
    }
}

impl Plan {
    pub fn new(spec: &Spec) -> Result<Self> {
        let keys = Key::all(&spec.key_types);
        let mut plan = Plan {
            keys,
            slots: vec![],
            outputs: vec![],
            externals: vec![],
            external_columns: vec![],
        };
        for (i, function) in spec.functions.iter().enumerate() {
            let output = plan.output(spec, i, function)?;
            plan.outputs.push(output);
        }
        Ok(plan)
    }

    fn output(&mut self, spec: &Spec, index: usize, function: &Function) -> Result<Output> {
        let Function { kind, arguments, filter, result } = function;
        let filter = *filter;
        let types = arguments.iter().map(|&i| spec.argument_types[i].clone()).collect::<Vec<_>>();
        if !matches!(kind, Kind::External(_)) && !is_native(kind, &types) {
            return Err(Error::internal(format!("no native {kind:?} of {types:?}")));
        }
        Ok(match kind {
            Kind::External(external) => {
                self.externals.push(index);
                self.external_columns.push(external.state_types().len());
                Output::External(self.externals.len() - 1)
            }
            Kind::CountRows | Kind::Count => Output::Count(self.count(arguments, filter)),
            Kind::Sum => {
                let number = number(&types[0]).expect("is native");
                Output::Sum(self.sum(arguments[0], filter, number))
            }
            Kind::Avg => {
                let (number, average) = average(&types[0], result)?;
                let sum = self.sum(arguments[0], filter, number);
                Output::Average { sum, count: self.count(arguments, filter), average }
            }
            Kind::CountOfCounts => {
                Output::Count(Count::Summed(self.sum(arguments[0], filter, Number::Int)))
            }
            Kind::AvgOfSums => {
                let (number, average) = average(&types[0], result)?;
                let sum = self.sum(arguments[0], filter, number);
                let count = Count::Summed(self.sum(arguments[1], filter, Number::Int));
                Output::Average { sum, count, average }
            }
            Kind::Min | Kind::Max => {
                let order = order(&types[0]).expect("is native");
                let max = matches!(kind, Kind::Max);
                let slot = Slot::Extreme { argument: arguments[0], filter, order, max };
                Output::Extreme(self.slot(slot))
            }
        })
    }

    fn slot(&mut self, slot: Slot) -> usize {
        self.slots.iter().position(|s| *s == slot).unwrap_or_else(|| {
            self.slots.push(slot);
            self.slots.len() - 1
        })
    }

    fn count(&mut self, arguments: &[usize], filter: Option<usize>) -> Count {
        let arguments = arguments.to_vec();
        if let Some(filter) = filter {
            return Count::Filtered(self.slot(Slot::Counted { arguments, filter }));
        }
        let rows = self.slot(Slot::Rows);
        let missing = (!arguments.is_empty()).then(|| self.slot(Slot::Missing(arguments)));
        Count::All { rows, missing }
    }

    /// An exact sum is also the one that wraps, but for the bits beyond 128.
    fn sum(&mut self, argument: usize, filter: Option<usize>, number: Number) -> usize {
        let at = self.slots.iter().position(
            |s| matches!(s, Slot::Sum { argument: a, filter: f, .. } if (*a, *f) == (argument, filter)),
        );
        let Some(at) = at else {
            return self.slot(Slot::Sum { argument, filter, number });
        };
        if let Slot::Sum { number: found, .. } = &mut self.slots[at]
            && number == (Number::Decimal { exact: true })
        {
            *found = number;
        }
        at
    }
}

/// Whether an average of decimals of that precision needs a larger sum.
fn is_beyond_128_bits(precision: u8) -> bool {
    precision + AVG_HEADROOM_DIGITS > DECIMAL128_DIGITS
}

fn average(argument: &DataType, result: &DataType) -> Result<(Number, Average)> {
    match (argument, result) {
        (DataType::Float64, DataType::Float64) => Ok((Number::Float, Average::Float)),
        (
            &DataType::Decimal128(argument_precision, argument_scale),
            &DataType::Decimal128(precision, scale),
        ) => {
            let more = scale - argument_scale;
            if !(0..=38).contains(&more) {
                return Err(Error::user(format!("an average of {argument} cannot be {result}")));
            }
            let factor = 10i128.pow(more.unsigned_abs().into());
            let exact = is_beyond_128_bits(argument_precision);
            Ok((Number::Decimal { exact }, Average::Decimal { factor, precision }))
        }
        _ => Err(Error::internal(format!("no native average of {argument} as {result}"))),
    }
}
