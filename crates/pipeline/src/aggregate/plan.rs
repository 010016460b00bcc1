//! What of a [`Spec`] is computed by which state: functions with arguments and filters in common
//! share *slots*.

use arrow::datatypes::DataType;
use thalweg_base::{Error, Result};
pub(super) use thalweg_ir::aggregate::{Number, Order};
use thalweg_ir::aggregate::{added_scale, is_beyond_128_bits, is_native, number, order};

use super::keys::Key;
use super::{Function, Kind, Spec};

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
                self.external_columns.push(external.0.state_types().len());
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

fn average(argument: &DataType, result: &DataType) -> Result<(Number, Average)> {
    match (argument, result) {
        (DataType::Float64, DataType::Float64) => Ok((Number::Float, Average::Float)),
        (&DataType::Decimal128(argument_precision, _), &DataType::Decimal128(precision, _)) => {
            let Some(more) = added_scale(argument, result) else {
                return Err(Error::user(format!("an average of {argument} cannot be {result}")));
            };
            let factor = 10i128.pow(more);
            let exact = is_beyond_128_bits(argument_precision);
            Ok((Number::Decimal { exact }, Average::Decimal { factor, precision }))
        }
        _ => Err(Error::internal(format!("no native average of {argument} as {result}"))),
    }
}
