//! `array_remove` as PostgreSQL has it: all elements that are equal go, and NULLs if it is asked for
//! NULL. DataFusion's removes the first one, and gives NULL for NULL.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt32Array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{filter, take};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions_nested::remove::array_remove_all_udf;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

const NAME: &str = "array_remove";

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ArrayRemove {
    all: Arc<ScalarUDF>,
}

impl Default for ArrayRemove {
    fn default() -> ArrayRemove {
        ArrayRemove { all: array_remove_all_udf() }
    }
}

impl ScalarUDFImpl for ArrayRemove {
    fn name(&self) -> &str {
        NAME
    }

    fn aliases(&self) -> &[String] {
        static ALIASES: LazyLock<Vec<String>> = LazyLock::new(|| vec!["list_remove".to_string()]);
        &ALIASES
    }

    fn signature(&self) -> &Signature {
        self.all.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.all.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(args.arg_fields[0].as_ref().clone().with_name(NAME).with_nullable(true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let of_lists = match &args.args[..] {
            [lists, elements] => match (lists.data_type(), elements.data_type()) {
                (DataType::List(of), element) => *of.data_type() == element && !element.is_nested(),
                _ => false,
            },
            _ => false,
        };
        if !of_lists {
            return self.all.invoke_with_args(args);
        }
        let scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if scalar { 1 } else { args.number_rows };
        let arrays = args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let removed: ArrayRef = Arc::new(removed(arrays[0].as_list(), &arrays[1])?);
        Ok(match scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&removed, 0)?),
            false => ColumnarValue::Array(removed),
        })
    }
}

/// Each list without what the element of its row is equal to.
fn removed(lists: &ListArray, elements: &ArrayRef) -> Result<ListArray> {
    let DataType::List(field) = lists.data_type() else {
        return internal_err!("array_remove takes lists, not {}", lists.data_type());
    };
    let offsets = lists.value_offsets();
    let count = offsets[lists.len()] - offsets[0];
    let values = lists.values().slice(offsets[0] as usize, count as usize);
    let rows = offsets.windows(2).enumerate();
    let rows =
        rows.flat_map(|(row, ends)| std::iter::repeat_n(row as u32, (ends[1] - ends[0]) as usize));
    let of_rows = take(elements, &UInt32Array::from_iter_values(rows), None)?;
    let kept = distinct(&values, &of_rows)?;
    let lengths = offsets.windows(2).map(|ends| {
        let (from, to) = (ends[0] - offsets[0], ends[1] - offsets[0]);
        kept.slice(from as usize, (to - from) as usize).true_count()
    });
    let offsets = OffsetBuffer::from_lengths(lengths);
    let values = filter(&values, &kept)?;
    Ok(ListArray::try_new(Arc::clone(field), offsets, values, lists.nulls().cloned())?)
}
