//! What lists are compared, joined and grouped by.
//!
//! Arrow compares lists with NULL as their least item and sorts them with NULL as the greatest, as it is in
//! PostgreSQL. A hash join asks its other side for what is between the least and the greatest of its keys
//! and found the two in one order and asked in the other, so that joins on lists lost rows. The key of a
//! list is bytes, which have one order; `interval_keys.rs` of thalweg-plan puts `list_key` in its place.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, ListArray, new_empty_array};
use arrow::compute::{SortOptions, cast, interleave};
use arrow::datatypes::{DataType, Decimal128Type, Field, IntervalMonthDayNanoType};
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::interval_key::{INTERVAL, key_ns};

pub static LIST_KEY: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arc::new(ScalarUDF::new_from_impl(ListKey::default())));

/// Whether values of a type are joined and grouped by such keys.
pub fn is_list(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ListKey {
    signature: Signature,
}

impl Default for ListKey {
    fn default() -> Self {
        ListKey { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for ListKey {
    fn name(&self) -> &str {
        "list_key"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Binary)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = matches!(args.args[0], ColumnarValue::Scalar(_));
        let rows = if scalar { 1 } else { args.number_rows };
        let array = args.args[0].to_array(rows)?;
        let keys = keys(&array)?;
        match scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&keys, 0)?)),
            false => Ok(ColumnarValue::Array(keys)),
        }
    }
}

/// The key of each list; that of NULL is NULL.
pub fn keys(array: &ArrayRef) -> Result<ArrayRef> {
    let keys = keys_of(array)?;
    let keys = keys.iter().enumerate();
    let keys = keys.map(|(at, key)| array.is_valid(at).then(|| key.data().to_vec()));
    Ok(Arc::new(keys.collect::<BinaryArray>()))
}

/// NULL is greater than every other item, as in PostgreSQL.
fn keys_of(array: &ArrayRef) -> Result<Rows> {
    let array = &of_lengths(array)?;
    let order = SortOptions { descending: false, nulls_first: false };
    let field = SortField::new_with_options(array.data_type().clone(), order);
    let converter = RowConverter::new(vec![field])?;
    Ok(converter.convert_columns(&[Arc::clone(array)])?)
}

pub static SPAN_LENGTHS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(SpanLengths { signature }))
});

/// An interval, or a list of intervals, as numbers that are equal where these are.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SpanLengths {
    signature: Signature,
}

impl ScalarUDFImpl for SpanLengths {
    fn name(&self) -> &str {
        "span_lengths"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(of_lengths(&new_empty_array(&types[0]))?.data_type().clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(match &args.args[0] {
            ColumnarValue::Array(array) => ColumnarValue::Array(of_lengths(array)?),
            ColumnarValue::Scalar(one) => {
                let lengths = of_lengths(&one.to_array()?)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&lengths, 0)?)
            }
        })
    }
}

/// Lists with the lengths of intervals in the place of these.
fn of_lengths(array: &ArrayRef) -> Result<ArrayRef> {
    match array.data_type() {
        DataType::Interval(_) => {
            let spans = cast(array, &INTERVAL)?;
            let spans = spans.as_primitive::<IntervalMonthDayNanoType>();
            Ok(Arc::new(spans.unary::<_, Decimal128Type>(key_ns)))
        }
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            let items = of_lengths(lists.values())?;
            if items.data_type() == lists.values().data_type() {
                return Ok(Arc::clone(array));
            }
            let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
            let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
            Ok(Arc::new(ListArray::try_new(field, offsets, items, nulls)?))
        }
        _ => Ok(Arc::clone(array)),
    }
}

/// `greatest` and `least` of lists.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ListExtreme {
    greatest: bool,
    signature: Signature,
}

impl ListExtreme {
    pub fn new(greatest: bool) -> ListExtreme {
        ListExtreme { greatest, signature: Signature::variadic_any(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for ListExtreme {
    fn name(&self) -> &str {
        if self.greatest { "list_greatest" } else { "list_least" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let arrays = args.args.into_iter().map(|arg| arg.into_array(rows));
        let arrays = arrays.collect::<Result<Vec<ArrayRef>>>()?;
        let keys = arrays.iter().map(keys_of).collect::<Result<Vec<Rows>>>()?;
        let best = |row: usize| {
            let known = (0..arrays.len()).filter(|at| arrays[*at].is_valid(row));
            let best = known.reduce(|best, next| {
                let (a, b) = (keys[next].row(row), keys[best].row(row));
                let is_better = if self.greatest { a > b } else { a < b };
                if is_better { next } else { best }
            });
            (best.unwrap_or(0), row)
        };
        let chosen: Vec<(usize, usize)> = (0..rows).map(best).collect();
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        Ok(ColumnarValue::Array(interleave(&arrays, &chosen)?))
    }
}
