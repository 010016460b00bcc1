//! `percentile_cont` to the last digit.
//!
//! DataFusion gathers the values, and then weighs the two between which the percentile lies by six
//! digits; for `ORDER BY … DESC` it takes the percentile from 1 beforehand, where `1.0 - 0.9` is a bit
//! more than 0.1. This takes the values that it has gathered, and counts from the end where they are to
//! be descending.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Float64Array, ListArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions_aggregate::percentile_cont::percentile_cont_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, EmitTo, GroupsAccumulator,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;

use crate::delegated::delegated;

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct PercentileCont {
    gathers: Arc<AggregateUDF>,
}

impl Default for PercentileCont {
    fn default() -> PercentileCont {
        PercentileCont { gathers: percentile_cont_udaf() }
    }
}

impl AggregateUDFImpl for PercentileCont {
    delegated! { gathers: name aliases signature return_type state_fields }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.expr_fields[0].data_type().is_null() {
            return self.gathers.accumulator(args);
        }
        let percentile = Percentile::of(&args)?;
        Ok(Box::new(OfOne { gathered: self.gathers.accumulator(args)?, percentile }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.gathers.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let percentile = Percentile::of(&args)?;
        Ok(Box::new(OfGroups {
            gathered: self.gathers.create_groups_accumulator(args)?,
            percentile,
        }))
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.gathers.simplify()
    }

    fn supports_within_group_clause(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct Percentile {
    share: f64,
    descending: bool,
    data_type: DataType,
}

impl Percentile {
    fn of(args: &AccumulatorArgs) -> Result<Self> {
        let share = match constant(&args.exprs[1])?.cast_to(&DataType::Float64)? {
            ScalarValue::Float64(Some(share)) => share,
            other => return internal_err!("percentile_cont of {other}"),
        };
        let descending = args.order_bys.first().is_some_and(|by| by.options.descending);
        Ok(Percentile { share, descending, data_type: args.return_field.data_type().clone() })
    }

    /// The percentile of each list.
    fn evaluate(&self, lists: &ListArray) -> Result<ArrayRef> {
        let lists = lists.iter().map(|list| {
            let list = list.map(|list| cast(&list, &DataType::Float64)).transpose()?;
            let values: Vec<f64> = match &list {
                Some(list) => list.as_primitive::<Float64Type>().iter().flatten().collect(),
                None => vec![],
            };
            Ok(self.of_values(values))
        });
        let percentiles = lists.collect::<Result<Float64Array>>()?;
        Ok(cast(&percentiles, &self.data_type)?)
    }

    fn of_values(&self, mut values: Vec<f64>) -> Option<f64> {
        let last = values.len().checked_sub(1)?;
        let place = self.share * last as f64;
        let (before, after) = (place.floor() as usize, (place.ceil() as usize).min(last));
        let mut value = |at: usize| {
            let at = if self.descending { last - at } else { at };
            *values.select_nth_unstable_by(at, f64::total_cmp).1
        };
        let (low, high) = (value(before), value(after));
        Some(if before == after { low } else { low + (high - low) * (place - before as f64) })
    }
}

/// Its value; DataFusion has checked by then that it is between 0 and 1.
fn constant(expr: &Arc<dyn PhysicalExpr>) -> Result<ScalarValue> {
    if let Some(literal) = expr.downcast_ref::<Literal>() {
        return Ok(literal.value().clone());
    }
    let none =
        arrow::record_batch::RecordBatch::new_empty(Arc::new(arrow::datatypes::Schema::empty()));
    match expr.evaluate(&none)? {
        ColumnarValue::Scalar(value) => Ok(value),
        ColumnarValue::Array(_) => internal_err!("the percentile is no constant"),
    }
}

#[derive(Debug)]
struct OfOne {
    gathered: Box<dyn Accumulator>,
    percentile: Percentile,
}

impl Accumulator for OfOne {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.gathered.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let state = self.gathered.state()?;
        let lists = state.iter().map(ScalarValue::to_array).collect::<Result<Vec<_>>>()?;
        let percentile = self.percentile.evaluate(lists[0].as_list())?;
        // A window asks again, and goes on from there.
        if self.gathered.state()? != state {
            self.gathered.merge_batch(&lists)?;
        }
        ScalarValue::try_from_array(&percentile, 0)
    }

    fn size(&self) -> usize {
        self.gathered.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.gathered.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.gathered.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.gathered.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.gathered.supports_retract_batch()
    }
}

struct OfGroups {
    gathered: Box<dyn GroupsAccumulator>,
    percentile: Percentile,
}

impl GroupsAccumulator for OfGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.gathered.update_batch(values, groups, filter, count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let lists = self.gathered.state(emit_to)?;
        self.percentile.evaluate(lists[0].as_list())
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.gathered.state(emit_to)
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.gathered.merge_batch(values, groups, count)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.gathered.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.gathered.size()
    }
}
