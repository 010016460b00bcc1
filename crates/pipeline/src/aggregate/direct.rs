//! Groups of few possible keys: the key, as bits, is the index of the group's slot.
//!
//! ```text
//!   key 1: null | value - base      key 0: null | value - base
//!          1 bit   bits of it              1 bit   bits of it
//! ```
//!
//! Codes of strings are values from base 0. A key has the bit for NULL once it was NULL. When a
//! value lies beyond its bits the table is laid out anew, for what the keys were so far; the check
//! costs an OR per value.

use super::DIRECT_SLOTS_LOG2_MAX;
use super::grouper::{GroupKeys, pack};
use super::keys::{Class, Encoded, Key, Values, null_flag};

const EMPTY: u32 = u32::MAX;

#[derive(Clone, Default)]
struct Field {
    /// Of floats and other scattered words nothing is tried.
    impossible: bool,
    /// The values so far, if there were any.
    range: Option<(i64, i64)>,
    nullable: bool,
    base: i64,
    bits: u32,
    shift: u32,
}

pub(super) struct Direct {
    fields: Vec<Field>,
    slots: Vec<u32>,
    combined: Vec<u32>,
    layouts: u32,
}

impl Direct {
    pub fn new(keys: &[Key]) -> Self {
        let possible = |k: &Key| matches!(k.class, Class::Word | Class::Bytes | Class::Decimal);
        let field = |k| Field { impossible: !possible(k), ..Field::default() };
        // One slot: no value but 0 fits, so that the first batch lays it out.
        let fields = keys.iter().map(field).collect();
        Self { fields, slots: vec![], combined: vec![], layouts: 0 }
    }

    pub fn bytes(&self) -> usize {
        (self.slots.capacity() + self.combined.capacity()) * size_of::<u32>()
    }

    /// Appends the ids of a batch; `false` if the keys have too many possible values, and then
    /// nothing is done.
    pub fn group(
        &mut self,
        encoded: &[Encoded],
        strings: impl Fn(usize) -> usize,
        groups: &mut GroupKeys,
        ids: &mut Vec<u32>,
    ) -> bool {
        if self.fields.iter().any(|f| f.impossible) || encoded.iter().any(|e| e.interned.is_some())
        {
            return false;
        }
        if self.slots.is_empty() || !self.combine(encoded) {
            for (k, (field, key)) in self.fields.iter_mut().zip(encoded).enumerate() {
                field.widen(key, strings(k));
            }
            if !self.lay_out(groups) {
                return false;
            }
            let fits = self.combine(encoded);
            debug_assert!(fits, "laid out for this batch");
        }
        let (combined, slots) = (&self.combined, &mut self.slots);
        let new = |row: usize| {
            let id = groups.groups as u32;
            pack(encoded, row..row + 1, groups.flagged, &mut groups.rows);
            groups.groups += 1;
            id
        };
        look_up(combined, slots, new, ids);
        true
    }

    /// The index of every row's slot; `false` if a value lies beyond its bits.
    fn combine(&mut self, encoded: &[Encoded]) -> bool {
        self.combined.clear();
        for (field, key) in self.fields.iter().zip(encoded) {
            if key.nulls.is_some() && !field.nullable {
                return false;
            }
            let out = &mut self.combined;
            let over = match &key.values {
                Values::Words(words) => {
                    let offset = |&w: &i64| w.wrapping_sub(field.base).cast_unsigned();
                    add_field(words.iter().map(offset), key, field, out)
                }
                Values::Codes(codes) => {
                    add_field(codes.iter().map(|&c| u64::from(c)), key, field, out)
                }
            };
            if over >> field.bits != 0 {
                return false;
            }
        }
        true
    }

    /// Chooses bits for the ranges so far and enters the groups; `false` if they are too many.
    fn lay_out(&mut self, groups: &GroupKeys) -> bool {
        // Values that found room beside the range have not widened it.
        for group in 0..groups.groups {
            let flags = groups.flags(group);
            for (k, (field, &word)) in self.fields.iter_mut().zip(groups.words(group)).enumerate() {
                if flags & null_flag(k) == 0 {
                    let word = word.cast_signed();
                    let (lo, hi) = field.range.unwrap_or((word, word));
                    field.range = Some((lo.min(word), hi.max(word)));
                }
            }
        }
        let bits = |(lo, hi): (i64, i64)| 64 - (hi.wrapping_sub(lo) as u64).leading_zeros();
        let needed: u32 =
            self.fields.iter().map(|f| f.range.map_or(0, bits) + u32::from(f.nullable)).sum();
        if needed > DIRECT_SLOTS_LOG2_MAX {
            return false;
        }
        // Ranges that grew will grow on: twice the room, and half of it below.
        let mut spare = if self.layouts > 0 { DIRECT_SLOTS_LOG2_MAX - needed } else { 0 };
        let mut shift = 0;
        for field in &mut self.fields {
            let range = field.range.unwrap_or((0, 0));
            let extra = u32::from(spare > 0 && range.0 != range.1);
            spare -= extra;
            field.bits = bits(range) + extra;
            let room = (1i64 << field.bits) - 1 - (range.1 - range.0);
            // Codes grow upwards only, from 0.
            field.base =
                if range.0 == 0 { 0 } else { range.0.saturating_sub(extra as i64 * room / 2) };
            field.shift = shift;
            shift += field.bits + u32::from(field.nullable);
        }
        self.layouts += 1;
        self.slots.clear();
        self.slots.resize(1 << shift, EMPTY);
        for group in 0..groups.groups {
            let flags = groups.flags(group);
            let part = |(k, (field, &word)): (usize, (&Field, &u64))| {
                let value = match flags & null_flag(k) {
                    0 => word.cast_signed().wrapping_sub(field.base) as u32,
                    _ => 1 << field.bits,
                };
                value << field.shift
            };
            let words = self.fields.iter().zip(groups.words(group));
            let slot = words.enumerate().map(part).fold(0, |all, p| all | p);
            self.slots[slot as usize] = group as u32;
        }
        true
    }
}

impl Field {
    fn widen(&mut self, key: &Encoded, strings: usize) {
        self.nullable |= key.nulls.is_some();
        match &key.values {
            Values::Codes(_) => self.range = Some((0, strings.max(1) as i64 - 1)),
            Values::Words(words) => {
                let valid = |i: usize| key.nulls.as_ref().is_none_or(|n| n.is_valid(i));
                let values = words.iter().enumerate().filter(|(i, _)| valid(*i)).map(|(_, &w)| w);
                self.range = values.fold(self.range, |range, v| {
                    let (lo, hi) = range.unwrap_or((v, v));
                    Some((lo.min(v), hi.max(v)))
                });
            }
        }
    }
}

/// ORs one field into the slots' indices, the first one as they are; returns the OR of all values.
fn add_field(
    values: impl ExactSizeIterator<Item = u64>,
    key: &Encoded,
    field: &Field,
    combined: &mut Vec<u32>,
) -> u64 {
    let shift = field.shift;
    let mut over = 0;
    if combined.is_empty() {
        combined.resize(values.len(), 0);
    }
    if let Some(nulls) = &key.nulls {
        for ((out, value), valid) in combined.iter_mut().zip(values).zip(nulls.iter()) {
            let value = if valid { value } else { 0 };
            over |= value;
            let bits = if valid { value as u32 } else { 1 << field.bits };
            *out |= bits << shift;
        }
    } else {
        for (out, value) in combined.iter_mut().zip(values) {
            over |= value;
            *out |= (value as u32) << shift;
        }
    }
    over
}

fn look_up(
    combined: &[u32],
    slots: &mut [u32],
    mut new: impl FnMut(usize) -> u32,
    ids: &mut Vec<u32>,
) {
    ids.extend(combined.iter().enumerate().map(|(row, &at)| {
        let id = slots[at as usize];
        if id != EMPTY {
            return id;
        }
        let id = new(row);
        slots[at as usize] = id;
        id
    }));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};
    use arrow::datatypes::DataType;

    use crate::aggregate::{Merging, Partial, Spec};
    use crate::phases::Phases;

    #[test]
    fn what_found_room_beside_the_range_is_kept_when_the_range_grows() {
        let key_types = vec![DataType::Int64];
        let spec = Arc::new(Spec { key_types, argument_types: vec![], functions: vec![] });
        let mut partial = Partial::new(&spec, 1).unwrap();
        let some = |values: &[i64]| values.iter().copied().map(Some).collect::<Vec<_>>();
        // 962 fits below 984 as it is laid out first, and no longer when NULL needs a place.
        let batches = [some(&[1000, 1001]), some(&[984]), some(&[962]), vec![None, Some(1015)]];
        for batch in batches {
            let rows = batch.len();
            let keys: ArrayRef = Arc::new(Int64Array::from(batch));
            partial.push(&[keys], &[], &[], rows).unwrap();
        }
        let merging = Merging::new(spec, vec![partial]).unwrap();
        for phase in 0..merging.phases() {
            (0..merging.tasks(phase)).for_each(|task| merging.run(phase, task).unwrap());
        }
        let groups = (0..merging.parts()).flat_map(|part| merging.groups(part).unwrap());
        assert_eq!(groups.map(|g| g.rows).sum::<usize>(), 6);
    }
}
