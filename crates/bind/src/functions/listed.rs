//! Casts of lists: each item is cast as a value is.
//!
//! What is made of an item is an expression over it, bound once; it is computed for the items of all lists of
//! a batch at once. Rules that give casts another meaning look into it ([`EachItem::body`]), as expressions
//! of plans are all that they see otherwise. A lambda would be such an expression, but its variable is a place
//! among the columns of the plan it was made for, and is wrong where an operator is moved.

use std::sync::Arc;

use arrow::array::{Array, AsArray, ListArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::utils::{adjust_offsets_for_slice, list_values, remove_list_null_values};
use datafusion::common::{Column, DFSchema, Result, exec_err};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::create_physical_expr;

use super::{is_one, shaped, untyped_null};
use crate::types;

/// What an item is called in the expression over it.
const ITEM: &str = "item";

/// `each_item(list)`: a list of what an expression makes of each item.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EachItem {
    item: FieldRef,
    body: Expr,
    /// The expression as it was bound, which names the function.
    bound: String,
    /// The type of the list that comes of it.
    to: DataType,
    signature: Signature,
}

impl EachItem {
    /// What a call calls, if it is this function.
    pub fn of(call: &ScalarFunction) -> Option<&EachItem> {
        call.func.inner().downcast_ref::<EachItem>()
    }

    /// The expression; its only column is that of its [schema](EachItem::schema).
    pub fn body(&self) -> &Expr {
        &self.body
    }

    /// The type of an item.
    pub fn item(&self) -> &FieldRef {
        &self.item
    }

    /// # Errors
    /// None: an item has one name.
    pub fn schema(&self) -> Result<DFSchema> {
        DFSchema::try_from(Schema::new(vec![Arc::clone(&self.item)]))
    }

    /// The same with another expression of the same type.
    pub fn with_body(&self, body: Expr) -> ScalarUDF {
        ScalarUDF::new_from_impl(EachItem { body, ..self.clone() })
    }
}

/// The type of a list's items.
pub(crate) fn item(of: &DataType) -> Option<&DataType> {
    match of {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Some(item.data_type())
        }
        _ => None,
    }
}

/// Whether Arrow's cast of the items is ours: they are the same, or become wider.
pub(crate) fn is_plain(from: &DataType, to: &DataType) -> bool {
    match (item(from), item(to)) {
        (Some(from), Some(to)) => is_plain(from, to),
        _ => {
            from == to
                || *from == DataType::Null
                || types::is_number(from) && types::is_number(to)
                || types::is_text(from) && types::is_text(to)
        }
    }
}

/// The list of what is made of each item of a list of this type, whose items are `of` that one; and its
/// type. `make` is given the item as a column, and gives an expression over it and the type of that.
pub(crate) fn each<E>(
    list: Expr,
    data_type: &DataType,
    of: DataType,
    make: impl FnOnce(Expr) -> std::result::Result<(Expr, DataType), E>,
) -> std::result::Result<(Expr, DataType), E> {
    let plain = list_of(&of);
    let list = match *data_type == plain {
        true => list,
        false => Expr::Cast(Cast::new(Box::new(list), plain)),
    };
    let (body, made) = make(Expr::Column(Column::from_name(ITEM)))?;
    let to = list_of(&made);
    let function = EachItem {
        item: Arc::new(Field::new(ITEM, of, true)),
        bound: body.to_string(),
        body,
        to: to.clone(),
        signature: Signature::any(1, Volatility::Immutable),
    };
    Ok((ScalarUDF::new_from_impl(function).call(vec![list]), to))
}

fn list_of(item: &DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item.clone(), true)))
}

impl ScalarUDFImpl for EachItem {
    fn name(&self) -> &str {
        "each_item"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(format!("each_item({}, {})", args[0].schema_name(), self.bound))
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        Ok(format!("each_item({}, {})", args[0], self.bound))
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(null) = untyped_null(&args) {
            return Ok(null);
        }
        let one = is_one(&args.args);
        let mut array = args.args[0].to_array(if one { 1 } else { args.number_rows })?;
        if array.null_count() > 0 {
            // A list that is NULL may have items, which nobody asks for.
            array = remove_list_null_values(&array)?;
        }
        let (Some(lists), DataType::List(item)) = (array.as_list_opt::<i32>(), &self.to) else {
            return exec_err!("the items of the type {}", array.data_type());
        };
        let values = list_values(&array)?;
        let count = values.len();
        let schema = self.schema()?;
        let props = ExecutionProps::new();
        let body = create_physical_expr(&self.body, &schema, &props, &Default::default())?;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let schema = Arc::clone(schema.inner());
        let batch = RecordBatch::try_new_with_options(schema, vec![values], &options)?;
        let made = body.evaluate(&batch)?.into_array(count)?;
        let (offsets, nulls) = (adjust_offsets_for_slice(lists), lists.nulls().cloned());
        let lists = ListArray::try_new(Arc::clone(item), offsets, made, nulls)?;
        shaped(Arc::new(lists), one)
    }
}
