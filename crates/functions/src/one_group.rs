//! One group by an accumulator of many: aggregates without GROUP BY, and where DataFusion has an accumulator
//! for each group, then compute as those with groups do.

use std::fmt;

use arrow::array::ArrayRef;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use parking_lot::Mutex;

/// An accumulator of many groups that may have groups without rows.
pub trait Groups: GroupsAccumulator {
    /// From here on there are so many groups, or more.
    fn grow(&mut self, count: usize) -> Result<()>;
}

pub struct OneGroup {
    /// Never locked by two: accumulators of one group are `Sync`, those of many are not.
    inner: Mutex<Box<dyn Groups>>,
    /// The number of the group, for as many rows as a batch has had.
    groups: Vec<usize>,
}

impl OneGroup {
    pub fn new(inner: Box<dyn Groups>) -> OneGroup {
        OneGroup { inner: Mutex::new(inner), groups: vec![] }
    }

    /// The group of each row of some columns.
    fn of(&mut self, columns: &[ArrayRef]) -> usize {
        let rows = columns.first().map_or(0, |column| column.len());
        if self.groups.len() < rows {
            self.groups.resize(rows, 0);
        }
        rows
    }
}

impl fmt::Debug for OneGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneGroup").finish_non_exhaustive()
    }
}

impl Accumulator for OneGroup {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let rows = self.of(values);
        self.inner.get_mut().update_batch(values, &self.groups[..rows], None, 1)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let rows = self.of(states);
        self.inner.get_mut().merge_batch(states, &self.groups[..rows], 1)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let inner = self.inner.get_mut();
        inner.grow(1)?;
        let state = inner.state(EmitTo::All)?;
        state.iter().map(|column| ScalarValue::try_from_array(column, 0)).collect()
    }

    /// Can be asked once only. Windows, which ask after each row, have other accumulators.
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let inner = self.inner.get_mut();
        inner.grow(1)?;
        ScalarValue::try_from_array(&inner.evaluate(EmitTo::All)?, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.groups.capacity() * size_of::<usize>() + self.inner.lock().size()
    }
}
