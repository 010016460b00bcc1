//! Aggregates over an order: `mode() WITHIN GROUP (ORDER BY x)` and
//! `percentile_disc(0.5) WITHIN GROUP (ORDER BY x)`. They keep the values of a group, and sort them
//! at the end.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, new_empty_array};
use arrow::compute::{SortOptions, cast, concat, filter, is_not_null, sort_to_indices, take};
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, IntervalMonthDayNanoType};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};
use thalweg_base::Error;

use super::interval_key::{INTERVAL, key_ns};
use super::list_key;
use thalweg_errors::into_datafusion;

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Ordered {
    /// `percentile_disc`, and not `mode`.
    percentile: bool,
    signature: Signature,
}

impl Ordered {
    pub fn new(percentile: bool) -> Ordered {
        Ordered { percentile, signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for Ordered {
    fn name(&self) -> &str {
        if self.percentile { "percentile_disc" } else { "mode" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match (self.percentile, types) {
            (true, [value, share]) if share.is_numeric() => {
                Ok(vec![value.clone(), DataType::Float64])
            }
            (false, [value]) => Ok(vec![value.clone()]),
            (true, _) => plan_err!(
                "percentile_disc is written percentile_disc(0.5) WITHIN GROUP (ORDER BY x)"
            ),
            (false, _) => plan_err!("mode is written mode() WITHIN GROUP (ORDER BY x)"),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let item = Field::new_list_field(args.input_fields[0].data_type().clone(), true);
        let name = format!("{}[values]", args.name);
        Ok(vec![Arc::new(Field::new(name, DataType::List(Arc::new(item)), true))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let descending = args.order_bys.first().is_some_and(|key| key.options.descending);
        let share = match args.exprs.get(1) {
            None => None,
            Some(share) => {
                let batch = arrow::array::RecordBatch::new_empty(Arc::new(args.schema.clone()));
                match share.evaluate(&batch)? {
                    datafusion::logical_expr::ColumnarValue::Scalar(value) => {
                        match value.cast_to(&DataType::Float64)? {
                            ScalarValue::Float64(share) => Some(share),
                            _ => None,
                        }
                    }
                    _ => return plan_err!("the share of percentile_disc is a constant"),
                }
            }
        };
        if let Some(Some(share)) = share
            && !(0.0..=1.0).contains(&share)
        {
            return Err(into_datafusion(
                Error::user(format!("percentile_disc takes a share from 0 to 1, not {share}"))
                    .code("22003"),
            ));
        }
        Ok(Box::new(Values {
            data_type: args.expr_fields[0].data_type().clone(),
            values: vec![],
            share,
            descending,
        }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn supports_within_group_clause(&self) -> bool {
        true
    }
}

/// What values are ordered by: intervals by their whole length, lists by their keys.
fn compared_by(values: &ArrayRef) -> Result<ArrayRef> {
    if list_key::is_list(values.data_type()) {
        return list_key::keys(values);
    }
    if !matches!(values.data_type(), DataType::Interval(_)) {
        return Ok(Arc::clone(values));
    }
    let spans = cast(values, &INTERVAL)?;
    let spans = spans.as_primitive::<IntervalMonthDayNanoType>();
    Ok(Arc::new(spans.unary::<_, Decimal128Type>(key_ns)))
}

#[derive(Debug)]
struct Values {
    data_type: DataType,
    /// Without NULLs.
    values: Vec<ArrayRef>,
    /// `None`: the mode. `Some(None)`: a share of NULL.
    share: Option<Option<f64>>,
    descending: bool,
}

impl Values {
    fn push(&mut self, values: &ArrayRef) -> Result<()> {
        let values = match values.null_count() {
            0 => Arc::clone(values),
            _ => filter(values, &is_not_null(values)?)?,
        };
        if !values.is_empty() {
            self.values.push(values);
        }
        Ok(())
    }

    fn all(&self) -> Result<ArrayRef> {
        let parts: Vec<&dyn Array> = self.values.iter().map(AsRef::as_ref).collect();
        match parts.is_empty() {
            true => Ok(new_empty_array(&self.data_type)),
            false => Ok(concat(&parts)?),
        }
    }
}

impl Accumulator for Values {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.push(&values[0])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let Some(lists) = states[0].as_list_opt::<i32>() else {
            return exec_err!("the state of an ordered aggregate is a list");
        };
        for row in 0..lists.len() {
            if lists.is_valid(row) {
                self.push(&lists.value(row))?;
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![
            SingleRowListArrayBuilder::new(self.all()?).with_nullable(true).build_list_scalar(),
        ])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let all = self.all()?;
        let none = || ScalarValue::try_from(&self.data_type);
        if all.is_empty() || self.share == Some(None) {
            return none();
        }
        let options = SortOptions { descending: self.descending, nulls_first: false };
        let keys = compared_by(&all)?;
        let order = sort_to_indices(&keys, Some(options), None)?;
        if let Some(Some(share)) = self.share {
            // The first value at which so large a share is reached.
            let place = (share * all.len() as f64).ceil() as usize;
            let row = order.value(place.saturating_sub(1).min(all.len() - 1));
            return ScalarValue::try_from_array(&all, row as usize);
        }
        let sorted = take(&keys, &order, None)?;
        let runs = arrow::compute::partition(std::slice::from_ref(&sorted))?.ranges();
        // Of those that are as frequent, the first in the order.
        let mut best = 0..0;
        for run in runs {
            if run.len() > best.len() {
                best = run;
            }
        }
        ScalarValue::try_from_array(&all, order.value(best.start) as usize)
    }

    fn size(&self) -> usize {
        // Of a slice only its own part counts: the groups of a batch share its buffers.
        let bytes = |v: &ArrayRef| v.to_data().get_slice_memory_size().unwrap_or(0);
        let arrays = self.values.capacity() * size_of::<ArrayRef>();
        size_of_val(self) + arrays + self.values.iter().map(bytes).sum::<usize>()
    }
}
