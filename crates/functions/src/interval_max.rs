//! `max` and `min` of intervals, by what these are compared by.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalMonthDayNanoType};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};

use super::interval_key::{INTERVAL, key_ns};

pub static INTERVAL_MAX: LazyLock<Arc<AggregateUDF>> =
    LazyLock::new(|| Arc::new(AggregateUDF::new_from_impl(IntervalMax::new(true))));
pub static INTERVAL_MIN: LazyLock<Arc<AggregateUDF>> =
    LazyLock::new(|| Arc::new(AggregateUDF::new_from_impl(IntervalMax::new(false))));

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct IntervalMax {
    /// `max`, and not `min`.
    greatest: bool,
    signature: Signature,
}

impl IntervalMax {
    fn new(greatest: bool) -> IntervalMax {
        IntervalMax { greatest, signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for IntervalMax {
    fn name(&self) -> &str {
        if self.greatest { "interval_max" } else { "interval_min" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Best { greatest: self.greatest, best: None }))
    }

    fn create_sliding_accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Frame { greatest: self.greatest, values: BTreeMap::new() }))
    }
}

fn spans(array: &ArrayRef) -> impl Iterator<Item = IntervalMonthDayNano> + '_ {
    array.as_primitive::<IntervalMonthDayNanoType>().iter().flatten()
}

/// The greatest or least of what has come; of equal ones the last, as in PostgreSQL.
#[derive(Debug)]
struct Best {
    greatest: bool,
    best: Option<IntervalMonthDayNano>,
}

impl Accumulator for Best {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for span in spans(&values[0]) {
            let is_better = self.best.is_none_or(|best| match self.greatest {
                true => key_ns(span) >= key_ns(best),
                false => key_ns(span) <= key_ns(best),
            });
            if is_better {
                self.best = Some(span);
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::IntervalMonthDayNano(self.best))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The values of a frame that moves, by their keys, each with how often it is there.
#[derive(Debug)]
struct Frame {
    greatest: bool,
    values: BTreeMap<i128, (IntervalMonthDayNano, usize)>,
}

impl Accumulator for Frame {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for span in spans(&values[0]) {
            let entry = self.values.entry(key_ns(span)).or_insert((span, 0));
            *entry = (span, entry.1 + 1);
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for span in spans(&values[0]) {
            let key = key_ns(span);
            if let Some((_, count)) = self.values.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    self.values.remove(&key);
                }
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let best = match self.greatest {
            true => self.values.last_key_value(),
            false => self.values.first_key_value(),
        };
        Ok(ScalarValue::IntervalMonthDayNano(best.map(|(_, (span, _))| *span)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.len() * size_of::<(i128, IntervalMonthDayNano, usize)>()
    }
}
