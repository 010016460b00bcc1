//! Casts of lists, item by item as values are cast.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};

use super::rounded;
use crate::types;

/// Whether the items of a list are rounded by a cast to another list, which Arrow would cut.
pub(crate) fn is_rounded(from: &DataType, to: &DataType) -> bool {
    match (from, to) {
        (DataType::List(from), DataType::List(to)) => is_rounded(from.data_type(), to.data_type()),
        (from, to) if types::is_float(from) => {
            to.is_integer()
                || types::is_decimal(to)
                || *from == DataType::Float64 && *to == DataType::Float32
        }
        (DataType::Decimal128(_, 1..), to) => to.is_integer(),
        (DataType::Timestamp(from, _), DataType::Timestamp(to, _)) => from > to,
        _ => false,
    }
}

/// The values of a list, or of the lists within it, as another type.
pub(crate) fn converted(values: &ArrayRef, to: &DataType, is_try: bool) -> Result<ArrayRef> {
    let values = match (values.data_type(), to) {
        (DataType::List(_), DataType::List(item)) => {
            let lists = values.as_list::<i32>();
            let items = converted(lists.values(), item.data_type(), is_try)?;
            let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
            return Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, items, nulls)?));
        }
        (DataType::LargeList(_) | DataType::FixedSizeList(..), _) => {
            return exec_err!("a cast of lists of the type {}", values.data_type());
        }
        (from, &DataType::Decimal128(precision, scale)) if types::is_float(from) => {
            return rounded::nearest_decimals(values, precision, scale, is_try);
        }
        (DataType::Float64, DataType::Float32) => return rounded::reals(values, is_try),
        (from, to) if types::is_float(from) && to.is_integer() => rounded::wholes(values)?,
        (&DataType::Decimal128(precision, scale @ 1..), to) if to.is_integer() => {
            let whole = (i16::from(precision) - i16::from(scale)).max(0) as u8 + 1;
            cast(values, &DataType::Decimal128(whole, 0))?
        }
        (DataType::Timestamp(from, _), DataType::Timestamp(to, _)) if from > to => {
            rounded::nearest_instants(values, *to)?
        }
        _ => Arc::clone(values),
    };
    let options = CastOptions { safe: is_try, ..CastOptions::default() };
    Ok(cast_with_options(&values, to, &options)?)
}
