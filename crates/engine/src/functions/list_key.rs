//! What lists are compared, joined and grouped by.
//!
//! Arrow compares lists with NULL as their least item and sorts them with NULL as the greatest, as it is in
//! PostgreSQL. A hash join asks its other side for what is between the least and the greatest of its keys
//! and found the two in one order and asked in the other, so that joins on lists lost rows. The key of a
//! list is bytes, which have one order; `rules/interval_keys.rs` puts `list_key` in its place.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, BinaryArray};
use arrow::compute::SortOptions;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

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
        // NULL is greater than every other item, as in PostgreSQL.
        let order = SortOptions { descending: false, nulls_first: false };
        let field = SortField::new_with_options(array.data_type().clone(), order);
        let converter = RowConverter::new(vec![field])?;
        let keys = converter.convert_columns(&[Arc::clone(&array)])?;
        let keys = keys.iter().enumerate();
        let keys = keys.map(|(at, key)| array.is_valid(at).then(|| key.data().to_vec()));
        let keys: ArrayRef = Arc::new(keys.collect::<BinaryArray>());
        match scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&keys, 0)?)),
            false => Ok(ColumnarValue::Array(keys)),
        }
    }
}
