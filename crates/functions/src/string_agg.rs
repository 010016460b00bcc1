//! `string_agg(text, ',' ORDER BY k)`, by group and of all rows.
//!
//! Without an order it is DataFusion's, which has a string for each group. With one, that had a list of values
//! for each group, which were taken row by row. Here the texts of all groups lie one behind the other as they come, with the number of their group and with the
//! keys of the order as bytes. Only when results are given out are rows sorted by group, and by their keys.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::row::Rows;
use datafusion::common::{Result, internal_err, resources_err};
use datafusion::functions_aggregate::string_agg::string_agg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator,
};
use datafusion::physical_expr::expressions::Literal;

use crate::delegated::{delegated, in_its_own_order};
use crate::one_group::{Groups, OneGroup};
use crate::row_keys::{self, RowKeys, Strings, list_field};

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct StringAgg {
    /// DataFusion's, for what has no order, as in windows, and for DISTINCT.
    other: Arc<AggregateUDF>,
}

impl Default for StringAgg {
    fn default() -> StringAgg {
        StringAgg { other: string_agg_udaf() }
    }
}

impl AggregateUDFImpl for StringAgg {
    delegated! { other: name signature return_type documentation create_sliding_accumulator }
    in_its_own_order! {}

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let is_own = !args.ordering_fields.is_empty() && !args.is_distinct;
        if !is_own || !row_keys::are_keys(args.ordering_fields) {
            return self.other.state_fields(args);
        }
        Ok(vec![
            list_field(args.name, "texts", DataType::LargeUtf8),
            list_field(args.name, "keys", DataType::LargeBinary),
        ])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match is_own(&args)? {
            true => Ok(Box::new(OneGroup::new(Box::new(Texts::of(&args)?)))),
            false => self.other.accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        is_own(&args).unwrap_or(false) || self.other.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        match is_own(&args)? {
            true => Ok(Box::new(Texts::of(&args)?)),
            false => self.other.create_groups_accumulator(args),
        }
    }
}

/// Whether it is computed here.
fn is_own(args: &AccumulatorArgs<'_>) -> Result<bool> {
    Ok(!args.order_bys.is_empty() && !args.is_distinct && row_keys::are_of(args)?)
}

/// A constant, as the binder gives it; NULL is as good as none.
fn delimiter(args: &AccumulatorArgs<'_>) -> Result<String> {
    let constant = args.exprs.get(1).and_then(|e| e.downcast_ref::<Literal>());
    match constant.map(|literal| literal.value()) {
        Some(value) if value.is_null() => Ok(String::new()),
        Some(value) => match value.try_as_str() {
            Some(delimiter) => Ok(delimiter.unwrap_or_default().to_string()),
            None => internal_err!("string_agg with {} for a delimiter", value.data_type()),
        },
        None => internal_err!("string_agg with a delimiter that is no constant"),
    }
}

/// The texts of all groups.
struct Texts {
    delimiter: String,
    order: Arc<RowKeys>,
    count: usize,
    /// The group of each row whose text is not NULL.
    groups: Vec<u32>,
    texts: Strings,
    /// What the rows are ordered by.
    keys: Strings,
}

impl Texts {
    fn of(args: &AccumulatorArgs<'_>) -> Result<Texts> {
        Ok(Texts::new(delimiter(args)?, Arc::new(RowKeys::new(row_keys::keys(args)?)?)))
    }

    fn new(delimiter: String, order: Arc<RowKeys>) -> Texts {
        let (texts, keys) = (Strings::default(), Strings::default());
        Texts { delimiter, order, count: 0, groups: vec![], texts, keys }
    }

    fn push<'t>(
        &mut self,
        texts: impl Iterator<Item = Option<&'t str>>,
        keys: &Rows,
        groups: &[usize],
        filter: Option<&BooleanArray>,
    ) -> Result<()> {
        let passes = |row: usize| filter.is_none_or(|f| f.is_valid(row) && f.value(row));
        for (row, (text, &group)) in texts.zip(groups).enumerate() {
            if let Some(text) = text
                && passes(row)
            {
                self.groups.push(group as u32);
                self.texts.push(text.as_bytes());
                self.keys.push(keys.row(row).data());
            }
        }
        self.check()
    }

    /// Rows are numbered with 32 bits.
    fn check(&self) -> Result<()> {
        match u32::try_from(self.groups.len()) {
            Ok(_) => Ok(()),
            Err(_) => resources_err!("string_agg of more than {} rows", u32::MAX),
        }
    }

    /// Rows of the groups that are given out, by group, and where each group begins. They stay here, until
    /// [`Self::forget`].
    fn given(&self, emit_to: EmitTo) -> (Vec<u32>, Vec<usize>) {
        let count = match emit_to {
            EmitTo::All => self.count,
            EmitTo::First(count) => count,
        };
        row_keys::by_group(&self.groups, count)
    }

    /// Forgets the groups that were given out.
    fn forget(&mut self, emit_to: EmitTo) {
        let EmitTo::First(given) = emit_to else {
            self.groups = vec![];
            (self.texts, self.keys, self.count) = (Strings::default(), Strings::default(), 0);
            return;
        };
        let is_left = |row: &u32| self.groups[*row as usize] as usize >= given;
        let left: Vec<u32> = (0..self.groups.len() as u32).filter(is_left).collect();
        self.groups = left.iter().map(|&row| self.groups[row as usize] - given as u32).collect();
        self.texts = self.texts.take(&left);
        self.keys = self.keys.take(&left);
        self.count -= given;
    }

    /// The joined texts of groups.
    fn joined(&self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (mut rows, starts) = self.given(emit_to);
        let length = |row: &u32| self.texts.get(*row as usize).len() + self.delimiter.len();
        let mut joined = Strings::with_capacity(starts.len() - 1, rows.iter().map(length).sum());
        // Side by side for each group: what is compared should be in the processor's caches.
        let keys = self.keys.take(&rows);
        let mut scratch = vec![];
        for ends in starts.windows(2) {
            let rows = &mut rows[ends[0]..ends[1]];
            row_keys::sort(rows, (&keys, ends[0]), &mut scratch);
            for (n, &row) in rows.iter().enumerate() {
                if n > 0 {
                    joined.extend(self.delimiter.as_bytes());
                }
                joined.extend(self.texts.get(row as usize));
            }
            joined.end();
        }
        let valid = starts.windows(2).map(|ends| ends[0] < ends[1]).collect::<Vec<_>>();
        let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
        Ok(Arc::new(joined.into_texts(nulls)?))
    }

    /// Texts and keys of groups as they came, as lists.
    fn lists(&self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (rows, starts) = self.given(emit_to);
        let starts: Option<Vec<i32>> = starts.iter().map(|&s| i32::try_from(s).ok()).collect();
        let Some(starts) = starts else {
            return resources_err!("a state of string_agg of more than {} rows", i32::MAX);
        };
        let offsets = OffsetBuffer::new(ScalarBuffer::from(starts));
        let texts: ArrayRef = Arc::new(self.texts.take(&rows).into_texts(None)?);
        let keys: ArrayRef = Arc::new(self.keys.take(&rows).into_binary());
        let list = |items: ArrayRef| -> Result<ArrayRef> {
            let item = Arc::new(Field::new_list_field(items.data_type().clone(), true));
            Ok(Arc::new(ListArray::try_new(item, offsets.clone(), items, None)?))
        };
        Ok(vec![list(texts)?, list(keys)?])
    }
}

impl Groups for Texts {
    fn grow(&mut self, count: usize) -> Result<()> {
        self.count = self.count.max(count);
        Ok(())
    }
}

impl GroupsAccumulator for Texts {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.grow(count)?;
        let [texts, rest @ ..] = values else { return internal_err!("string_agg of nothing") };
        // The delimiter stands before the keys.
        let keys = &self.order.of(rest.get(1..).unwrap_or_default())?;
        match texts.data_type() {
            DataType::Utf8 => self.push(texts.as_string::<i32>().iter(), keys, groups, filter),
            DataType::LargeUtf8 => self.push(texts.as_string::<i64>().iter(), keys, groups, filter),
            DataType::Utf8View => self.push(texts.as_string_view().iter(), keys, groups, filter),
            other => internal_err!("string_agg of {other}"),
        }
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let joined = self.joined(emit_to)?;
        self.forget(emit_to);
        Ok(joined)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let state = self.lists(emit_to)?;
        self.forget(emit_to);
        Ok(state)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.grow(count)?;
        let [texts, keys] = states else { return internal_err!("a state of string_agg") };
        let (texts, keys) = (texts.as_list::<i32>(), keys.as_list::<i32>());
        let all = texts.values().as_string::<i64>();
        let all_keys = keys.values().as_binary::<i64>();
        for (state, &group) in groups.iter().enumerate() {
            let places = |offsets: &[i32]| offsets[state] as usize..offsets[state + 1] as usize;
            let keys = places(keys.value_offsets());
            for (text, key) in places(texts.value_offsets()).zip(keys) {
                self.groups.push(group as u32);
                self.texts.push(all.value(text).as_bytes());
                self.keys.push(all_keys.value(key));
            }
        }
        self.check()
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let rows = values.first().map_or(0, |values| values.len());
        let mut each = Texts::new(self.delimiter.clone(), Arc::clone(&self.order));
        each.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        let groups = self.groups.capacity() * size_of::<u32>();
        size_of_val(self) + groups + self.texts.heap_bytes() + self.keys.heap_bytes()
    }
}

#[cfg(test)]
mod tests;
