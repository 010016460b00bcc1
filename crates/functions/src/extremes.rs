//! `min` and `max` by group, where DataFusion groups. Its accumulators for groups of floats compare with
//! `<`, which is false of every NaN; those of single groups order NaN above all numbers, as SQL does.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, SetMonotonicity,
    StatisticsArgs,
};

use crate::delegated::delegated;

/// DataFusion's `min` or `max`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Extreme(pub Arc<AggregateUDF>);

impl AggregateUDFImpl for Extreme {
    delegated! {
        0:
        name signature coerce_types return_type documentation state_fields
        create_sliding_accumulator
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.0.accumulator(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.return_field.data_type().is_floating() && self.0.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        self.0.create_groups_accumulator(args)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.0.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.0.reverse_udf()
    }

    fn is_descending(&self) -> Option<bool> {
        self.0.is_descending()
    }

    fn value_from_stats(&self, args: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.0.value_from_stats(args)
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.0.inner().set_monotonicity(data_type)
    }
}
