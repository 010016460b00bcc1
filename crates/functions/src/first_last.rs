//! `first_value(v ORDER BY k)` and `last_value(v ORDER BY k)`, by group and of all rows; and with them
//! `DISTINCT ON`, which is made of first values.
//!
//! DataFusion kept what orders the best row of a group as a vector of values, and without an order had an
//! accumulator for each group. Here the keys of a group's best row are bytes that compare as the keys do, and
//! its value is a row of an array:
//!
//! ```text
//!   group             0         1         2
//!   key of the best   02 80 …   02 7f …   none
//!   place             (1, 0)    (1, 1)    (0, 0)
//!   pieces            0: NULL     1: values of best rows of a batch, …
//! ```

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, LargeBinaryBuilder, StructArray, UInt32Array,
    new_null_array,
};
use arrow::compute::{interleave, take};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, internal_err};
use datafusion::functions_aggregate::first_last::{first_value_udaf, last_value_udaf};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator,
};

use crate::delegated::{delegated, in_its_own_order};
use crate::one_group::{Groups, OneGroup};
use crate::row_keys::{self, RowKeys};

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct FirstLast {
    /// `last_value`
    is_last: bool,
    /// DataFusion's, for keys that have no bytes.
    other: Arc<AggregateUDF>,
}

impl FirstLast {
    pub fn new(is_last: bool) -> FirstLast {
        let other = if is_last { last_value_udaf() } else { first_value_udaf() };
        FirstLast { is_last, other }
    }

    fn best(&self, args: &AccumulatorArgs<'_>) -> Result<Best> {
        let value = args.expr_fields[0].data_type().clone();
        let keys = row_keys::keys(args)?;
        let order = if keys.is_empty() { None } else { Some(Arc::new(RowKeys::new(keys)?)) };
        Ok(Best::new(value, order, self.is_last, args.ignore_nulls))
    }
}

impl AggregateUDFImpl for FirstLast {
    delegated! { other: name signature return_type documentation }
    in_its_own_order! {}

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        self.other.return_field(fields)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        if !row_keys::are_keys(args.ordering_fields) {
            return self.other.state_fields(args);
        }
        let field = |of: &str, data_type: &DataType| {
            Arc::new(Field::new(format!("{}[{of}]", args.name), data_type.clone(), true))
        };
        let value = args.input_fields[0].data_type();
        Ok(vec![field("value", value), field("key", &DataType::LargeBinary)])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match row_keys::are_of(&args)? {
            true => Ok(Box::new(OneGroup::new(Box::new(self.best(&args)?)))),
            false => self.other.accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        row_keys::are_of(&args).unwrap_or(false)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(self.best(&args)?))
    }

    fn supports_null_handling_clause(&self) -> bool {
        true
    }
}

/// A row of a piece.
type Place = (u32, u32);

/// Where the NULL is that groups without rows have.
const NONE: Place = (0, 0);

/// Rows of pieces beyond twice as many as there are groups, up to which they are left as they are.
const ROWS_KEPT: usize = 16 << 10;

/// The best row of each group: the first, or the last.
struct Best {
    value: DataType,
    order: Option<Arc<RowKeys>>,
    is_last: bool,
    ignores_nulls: bool,
    keys: Keys,
    places: Vec<Place>,
    pieces: Vec<ArrayRef>,
    /// Rows of all pieces, and their bytes.
    rows: usize,
    bytes: usize,
}

impl Best {
    fn new(
        value: DataType,
        order: Option<Arc<RowKeys>>,
        is_last: bool,
        ignores_nulls: bool,
    ) -> Best {
        let mut best = Best {
            value,
            order,
            is_last,
            ignores_nulls,
            keys: Keys::default(),
            places: vec![],
            pieces: vec![],
            rows: 0,
            bytes: 0,
        };
        best.push(new_null_array(&best.value, 1));
        best
    }

    fn push(&mut self, piece: ArrayRef) {
        self.rows += piece.len();
        self.bytes += piece.get_array_memory_size();
        self.pieces.push(piece);
    }

    /// Takes over what rows of a batch are better than what is there. `key`: of a row; `None`: it does not
    /// count.
    fn update<'k>(
        &mut self,
        values: &ArrayRef,
        groups: &[usize],
        key: impl Fn(usize) -> Option<&'k [u8]>,
    ) -> Result<()> {
        let piece = self.pieces.len() as u32;
        let mut found = vec![];
        for (row, &group) in groups.iter().enumerate() {
            let Some(key) = key(row) else { continue };
            let is_better = match self.keys.get(group) {
                None => true,
                // The later row, if it is asked for and nothing orders them.
                Some(_) if self.order.is_none() => self.is_last,
                Some(best) if self.is_last => key > best,
                Some(best) => key < best,
            };
            if is_better {
                self.keys.set(group, key);
                if self.places[group].0 != piece {
                    found.push(group);
                }
                self.places[group] = (piece, row as u32);
            }
        }
        if found.is_empty() {
            return Ok(());
        }
        let rows = found.iter().map(|&group| self.places[group].1).collect::<Vec<_>>();
        for (n, group) in found.into_iter().enumerate() {
            self.places[group] = (piece, n as u32);
        }
        self.push(own(&take(values, &UInt32Array::from(rows), None)?));
        if self.rows > self.places.len() * 2 + ROWS_KEPT {
            let values = self.values(&self.places)?;
            self.replace(values);
        }
        Ok(())
    }

    /// The values at some places.
    fn values(&self, places: &[Place]) -> Result<ArrayRef> {
        let pieces: Vec<&dyn Array> = self.pieces.iter().map(AsRef::as_ref).collect();
        let places: Vec<_> = places.iter().map(|&(p, row)| (p as usize, row as usize)).collect();
        Ok(interleave(&pieces, &places)?)
    }

    /// One piece with the values of all groups in the place of those that there are.
    fn replace(&mut self, values: ArrayRef) {
        self.pieces.truncate(1);
        (self.rows, self.bytes) = (1, self.pieces[0].get_array_memory_size());
        for (group, place) in self.places.iter_mut().enumerate() {
            *place = if *place == NONE { NONE } else { (1, group as u32) };
        }
        self.push(own(&values));
    }

    /// Gives the values of groups, and their keys with the groups out.
    fn give(&mut self, emit_to: EmitTo) -> Result<(ArrayRef, Keys)> {
        let places = emit_to.take_needed(&mut self.places);
        let values = self.values(&places)?;
        let keys = match emit_to {
            EmitTo::All => std::mem::take(&mut self.keys),
            EmitTo::First(count) => self.keys.give(count),
        };
        let left = self.values(&self.places)?;
        self.replace(left);
        Ok((values, keys))
    }
}

impl Groups for Best {
    fn grow(&mut self, count: usize) -> Result<()> {
        if count > self.places.len() {
            self.places.resize(count, NONE);
            self.keys.grow(count);
        }
        Ok(())
    }
}

impl GroupsAccumulator for Best {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.grow(count)?;
        let [values, keys @ ..] = values else { return internal_err!("a first value of nothing") };
        let keys = self.order.as_ref().map(|order| order.of(keys)).transpose()?;
        let nulls = if self.ignores_nulls { values.logical_nulls() } else { None };
        self.update(values, groups, |row| {
            let counts = filter.is_none_or(|f| f.is_valid(row) && f.value(row))
                && nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
            counts.then(|| keys.as_ref().map_or(&[][..], |keys| keys.row(row).data()))
        })
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.grow(count)?;
        let [values, keys] = states else { return internal_err!("a state of a first value") };
        let keys = keys.as_binary::<i64>();
        self.update(values, groups, |row| keys.is_valid(row).then(|| keys.value(row)))
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(self.give(emit_to)?.0)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (values, keys) = self.give(emit_to)?;
        let mut builder = LargeBinaryBuilder::with_capacity(values.len(), keys.bytes.len());
        (0..values.len()).for_each(|group| builder.append_option(keys.get(group)));
        Ok(vec![values, Arc::new(builder.finish())])
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let rows = values.first().map_or(0, |values| values.len());
        let (value, order) = (self.value.clone(), self.order.clone());
        let mut each = Best::new(value, order, self.is_last, self.ignores_nulls);
        each.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        let places = self.places.capacity() * size_of::<Place>();
        let pieces = self.pieces.capacity() * size_of::<ArrayRef>();
        size_of_val(self) + places + pieces + self.bytes + self.keys.heap_bytes()
    }
}

/// The key of the best row of each group.
#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    /// Where each begins, and how long it is.
    places: Vec<(usize, u32)>,
    /// Bytes that no key has any more.
    unused: usize,
}

/// The length of what is no key: the group has no row.
const NO_KEY: u32 = u32::MAX;

impl Keys {
    fn grow(&mut self, count: usize) {
        self.places.resize(count, (0, NO_KEY));
    }

    fn get(&self, group: usize) -> Option<&[u8]> {
        let (start, length) = self.places[group];
        (length != NO_KEY).then(|| &self.bytes[start..][..length as usize])
    }

    fn set(&mut self, group: usize, key: &[u8]) {
        let (start, length) = self.places[group];
        let room = if length == NO_KEY { 0 } else { length as usize };
        let start = match room >= key.len() && length != NO_KEY {
            true => {
                self.bytes[start..][..key.len()].copy_from_slice(key);
                self.unused += room - key.len();
                start
            }
            false => {
                self.bytes.extend_from_slice(key);
                self.unused += room;
                self.bytes.len() - key.len()
            }
        };
        self.places[group] = (start, key.len() as u32);
        // Keys of one length stay where they are.
        if self.unused > self.bytes.len() / 2 {
            *self = self.only(0..self.places.len());
        }
    }

    /// Those of some groups.
    fn only(&self, groups: std::ops::Range<usize>) -> Keys {
        let mut only = Keys::default();
        for group in groups {
            let start = only.bytes.len();
            let length = match self.get(group) {
                Some(key) => {
                    only.bytes.extend_from_slice(key);
                    key.len() as u32
                }
                None => NO_KEY,
            };
            only.places.push((start, length));
        }
        only
    }

    /// Gives the keys of the first groups out; the others go on from 0.
    fn give(&mut self, count: usize) -> Keys {
        let given = self.only(0..count);
        *self = self.only(count..self.places.len());
        given
    }

    fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.places.capacity() * size_of::<(usize, u32)>()
    }
}

/// The same values without those beside them: views into texts would hold all texts of the batch.
fn own(values: &ArrayRef) -> ArrayRef {
    match values.data_type() {
        DataType::Utf8View => Arc::new(values.as_string_view().gc()),
        DataType::BinaryView => Arc::new(values.as_binary_view().gc()),
        DataType::Struct(fields) if !fields.is_empty() => {
            let values = values.as_struct();
            let columns = values.columns().iter().map(own).collect();
            match StructArray::try_new(fields.clone(), columns, values.nulls().cloned()) {
                Ok(own) => Arc::new(own),
                // Of fields that say there is no NULL where there is one: as they came.
                Err(_) => Arc::new(values.clone()),
            }
        }
        _ => Arc::clone(values),
    }
}

#[cfg(test)]
mod tests;
