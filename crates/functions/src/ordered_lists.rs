//! `array_agg(v ORDER BY k)`, by group and of all rows.
//!
//! DataFusion gathers lists of groups in one go where they have no order. With one, each group had an
//! accumulator of its own, which took row by row: eight million rows in 100,000 groups took minutes. Here rows
//! are gathered with their keys, as structs, and each list is put in order when it is given out.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray, StructArray, UInt32Array};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{Result, internal_err};
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator,
};

use crate::delegated::{delegated, in_its_own_order};
use crate::one_group::{Groups, OneGroup};
use crate::row_keys::{self, RowKeys, list_field};

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ArrayAgg {
    gathers: Arc<AggregateUDF>,
}

impl Default for ArrayAgg {
    fn default() -> ArrayAgg {
        ArrayAgg { gathers: array_agg_udaf() }
    }
}

impl ArrayAgg {
    fn ordered(&self, args: AccumulatorArgs<'_>) -> Result<Ordered> {
        let value = Arc::clone(&args.expr_fields[0]);
        let keys = row_keys::keys(&args)?;
        let order = RowKeys::new(keys.clone())?;
        let keys = key_fields(keys.into_iter().map(|(data_type, _)| data_type));
        let fields: Fields = vec![
            Field::new("value", value.data_type().clone(), true),
            Field::new("keys", DataType::Struct(keys.clone()), true),
        ]
        .into();
        let skips_nulls = args.ignore_nulls && value.is_nullable();
        let row: FieldRef = Arc::new(Field::new("row", DataType::Struct(fields.clone()), true));
        let gathered = self.gathers.create_groups_accumulator(AccumulatorArgs {
            expr_fields: &[row],
            order_bys: &[],
            ..args
        })?;
        Ok(Ordered { gathered, fields, keys, order, skips_nulls })
    }
}

impl AggregateUDFImpl for ArrayAgg {
    delegated! { gathers: name signature return_type documentation create_sliding_accumulator }
    in_its_own_order! {}

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        if args.ordering_fields.is_empty() || args.is_distinct {
            return self.gathers.state_fields(args);
        }
        let keys = args.ordering_fields.iter().map(|field| field.data_type().clone());
        let keys = DataType::Struct(key_fields(keys));
        let values = args.input_fields[0].data_type().clone();
        Ok(vec![list_field(args.name, "values", values), list_field(args.name, "keys", keys)])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match !args.order_bys.is_empty() && !args.is_distinct {
            true => Ok(Box::new(OneGroup::new(Box::new(self.ordered(args)?)))),
            false => self.gathers.accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.is_distinct && !args.is_reversed
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        if args.order_bys.is_empty() {
            return self.gathers.create_groups_accumulator(args);
        }
        Ok(Box::new(self.ordered(args)?))
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.gathers.supports_null_handling_clause()
    }
}

/// The keys of the order in a state, called by their numbers: where the state is planned and where rows are
/// gathered, they have the same types, and expressions that need not be spelled the same.
fn key_fields(types: impl Iterator<Item = DataType>) -> Fields {
    types.enumerate().map(|(n, t)| Field::new(n.to_string(), t, true)).collect()
}

/// Rows of groups with what orders them: structs of the value and of its keys.
struct Ordered {
    gathered: Box<dyn GroupsAccumulator>,
    fields: Fields,
    keys: Fields,
    order: RowKeys,
    /// Rows whose value is NULL are left out.
    skips_nulls: bool,
}

impl Ordered {
    /// Values and their keys as one array.
    fn rows(&self, values: &[ArrayRef]) -> Result<ArrayRef> {
        let Some((value, keys)) = values.split_first() else {
            return internal_err!("array_agg of nothing");
        };
        let keys = StructArray::try_new(self.keys.clone(), keys.to_vec(), None)?;
        self.row(value, Arc::new(keys))
    }

    fn row(&self, value: &ArrayRef, keys: ArrayRef) -> Result<ArrayRef> {
        let nulls = if self.skips_nulls { value.logical_nulls() } else { None };
        let row = StructArray::try_new(self.fields.clone(), vec![Arc::clone(value), keys], nulls)?;
        Ok(Arc::new(row))
    }

    /// The groups' lists of values and of keys, in the order of the keys.
    fn lists(&self, lists: &ListArray) -> Result<[ListArray; 2]> {
        let lists = flat(lists)?;
        let rows = lists.values().as_struct();
        let keys = rows.column(1).as_struct();
        let keys = self.order.of(keys.columns())?;
        let offsets = lists.value_offsets();
        let mut order: Vec<u32> = (0..rows.len() as u32).collect();
        for ends in offsets.windows(2) {
            let list = &mut order[ends[0] as usize..ends[1] as usize];
            let key = |row: &u32| keys.row(*row as usize);
            if !list.is_sorted_by_key(key) {
                list.sort_by(|a, b| key(a).cmp(&key(b)));
            }
        }
        let order = UInt32Array::from(order);
        let ordered = |column: usize, nulls: Option<NullBuffer>| -> Result<ListArray> {
            let values = take(rows.column(column), &order, None)?;
            let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
            Ok(ListArray::try_new(field, lists.offsets().clone(), values, nulls)?)
        };
        // Lists of keys are never NULL.
        Ok([ordered(0, lists.nulls().cloned())?, ordered(1, None)?])
    }
}

impl Groups for Ordered {
    fn grow(&mut self, count: usize) -> Result<()> {
        let none: ArrayRef = Arc::new(StructArray::new_null(self.fields.clone(), 0));
        self.gathered.update_batch(&[none], &[], None, count)
    }
}

impl GroupsAccumulator for Ordered {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        let rows = self.rows(values)?;
        self.gathered.update_batch(&[rows], groups, filter, count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let lists = self.gathered.evaluate(emit_to)?;
        let [values, _] = self.lists(lists.as_list())?;
        Ok(Arc::new(values))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let lists = self.gathered.evaluate(emit_to)?;
        let [values, keys] = self.lists(lists.as_list())?;
        Ok(vec![Arc::new(values), Arc::new(keys)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        let [values, keys] = states else { return internal_err!("a state of array_agg") };
        let (values, keys) = (flat(values.as_list())?, flat(keys.as_list())?);
        let rows = self.row(values.values(), Arc::clone(keys.values()))?;
        let field = Arc::new(Field::new_list_field(rows.data_type().clone(), true));
        let (offsets, nulls) = (values.offsets().clone(), values.nulls().cloned());
        let lists: ArrayRef = Arc::new(ListArray::try_new(field, offsets, rows, nulls)?);
        self.gathered.merge_batch(&[lists], groups, count)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let rows = self.rows(values)?;
        let lists = self.gathered.convert_to_state(&[rows], filter)?;
        let [values, keys] = self.lists(lists[0].as_list())?;
        Ok(vec![Arc::new(values), Arc::new(keys)])
    }

    fn size(&self) -> usize {
        self.gathered.size()
    }
}

/// The same lists with no items before the first list, and none behind the last.
fn flat(lists: &ListArray) -> Result<ListArray> {
    let DataType::List(field) = lists.data_type() else {
        return internal_err!("a state of array_agg of {}", lists.data_type());
    };
    let (first, last) = (lists.value_offsets()[0], lists.value_offsets()[lists.len()]);
    let items = lists.values().slice(first as usize, (last - first) as usize);
    let offsets = lists.value_offsets().iter().map(|end| end - first).collect::<Vec<_>>();
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Ok(ListArray::try_new(Arc::clone(field), offsets, items, lists.nulls().cloned())?)
}
