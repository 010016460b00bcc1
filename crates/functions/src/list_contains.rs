//! `@>`, `<@` and `&&` of lists, which are `array_has_all` and `array_has_any`, as PostgreSQL has them: a list
//! that is NULL gives NULL, and no NULL in a list is one in the other. DataFusion's say something of a NULL
//! list where the other one is empty, and take NULLs for equal.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{filter, is_not_null};
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};

pub fn call(function: &ScalarUDF, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
    // One item is enough.
    let any = function.name() == "array_has_any";
    let one = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if one { 1 } else { args.number_rows };
    let [of, items] = &args.args[..] else { return internal_err!("two lists are compared") };
    let nulls = NullBuffer::union(nulls(of, rows).as_ref(), nulls(items, rows).as_ref());
    // A NULL among the items is in no list: of one it is not, and of all it makes none.
    let mut lacks = vec![];
    let stripped = match items {
        ColumnarValue::Array(array) => stripped(array, &mut lacks)?.map(ColumnarValue::Array),
        // A constant stays one: it is looked at once for all rows.
        ColumnarValue::Scalar(list) => match stripped(&list.to_array()?, &mut lacks)? {
            Some(items) => Some(ColumnarValue::Scalar(ScalarValue::try_from_array(&items, 0)?)),
            None => None,
        },
    };
    if let Some(items) = stripped {
        args.args[1] = items;
    }
    let result = function.invoke_with_args(args)?.to_array(rows)?;
    let result = result.as_boolean();
    let lacks = |row: usize| lacks.get(row).or(lacks.first()).copied().unwrap_or(false);
    let holds = |row: usize| result.is_valid(row) && result.value(row);
    let values = (0..rows).map(|row| holds(row) && (any || !lacks(row)));
    let result = BooleanArray::new(values.collect(), nulls);
    Ok(match one {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?),
        false => ColumnarValue::Array(Arc::new(result)),
    })
}

fn nulls(list: &ColumnarValue, rows: usize) -> Option<NullBuffer> {
    match list {
        ColumnarValue::Array(lists) => lists.logical_nulls(),
        ColumnarValue::Scalar(list) => list.is_null().then(|| NullBuffer::new_null(rows)),
    }
}

/// The lists without NULLs among their items, if there are any; `lacks` says which lists have some.
fn stripped(lists: &ArrayRef, lacks: &mut Vec<bool>) -> Result<Option<ArrayRef>> {
    let Some(lists) = lists.as_list_opt::<i32>() else { return Ok(None) };
    if lists.values().logical_null_count() == 0 {
        return Ok(None);
    }
    lacks.extend((0..lists.len()).map(|row| lists.value(row).logical_null_count() > 0));
    Ok(Some(Arc::new(without_nulls(lists)?)))
}

fn without_nulls(lists: &ListArray) -> Result<ListArray> {
    let DataType::List(field) = lists.data_type() else {
        return internal_err!("a list of {}", lists.data_type());
    };
    let offsets = lists.value_offsets();
    let (first, last) = (offsets[0] as usize, offsets[lists.len()] as usize);
    let values = lists.values().slice(first, last - first);
    let kept = is_not_null(&values)?;
    let lengths = offsets.windows(2).map(|ends| {
        let from = ends[0] as usize - first;
        kept.slice(from, (ends[1] - ends[0]) as usize).true_count()
    });
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(ListArray::try_new(
        Arc::clone(field),
        offsets,
        filter(&values, &kept)?,
        lists.nulls().cloned(),
    )?)
}
