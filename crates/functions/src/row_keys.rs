//! What aggregates order the rows of groups by: the keys of each row as bytes that compare as the keys do.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, LargeBinaryArray, LargeStringArray};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::Result;
use datafusion::logical_expr::function::AccumulatorArgs;

/// Whether keys of these types are covered.
fn are_covered<'t>(types: impl IntoIterator<Item = &'t DataType>) -> bool {
    let fields: Vec<_> = types.into_iter().map(|t| SortField::new(t.clone())).collect();
    RowConverter::supports_fields(&fields)
}

/// The same, by the fields that a state has of the keys.
pub fn are_keys(fields: &[FieldRef]) -> bool {
    are_covered(fields.iter().map(|field| field.data_type()))
}

/// The types of the keys of an aggregate's order, and how they are ordered.
pub fn keys(args: &AccumulatorArgs<'_>) -> Result<Vec<(DataType, SortOptions)>> {
    let keys = args.order_bys.iter();
    keys.map(|by| Ok((by.expr.data_type(args.schema)?, by.options))).collect()
}

/// Whether rows can be ordered by the keys of an aggregate's order.
pub fn are_of(args: &AccumulatorArgs<'_>) -> Result<bool> {
    Ok(are_covered(keys(args)?.iter().map(|(data_type, _)| data_type)))
}

/// The field of a state that has a list for each group, of an aggregate of that name.
pub fn list_field(name: &str, of: &str, item: DataType) -> FieldRef {
    let item = Field::new_list_field(item, true);
    Arc::new(Field::new_list(format!("{name}[{of}]"), item, true))
}

/// Makes bytes of keys.
pub struct RowKeys {
    converter: RowConverter,
}

impl RowKeys {
    /// Of keys of these types.
    pub fn new(keys: Vec<(DataType, SortOptions)>) -> Result<RowKeys> {
        let fields = keys.into_iter().map(|(t, options)| SortField::new_with_options(t, options));
        Ok(RowKeys { converter: RowConverter::new(fields.collect())? })
    }

    pub fn of(&self, columns: &[ArrayRef]) -> Result<Rows> {
        Ok(self.converter.convert_columns(columns)?)
    }
}

/// Strings of bytes, one behind the other.
#[derive(Default)]
pub struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    pub fn with_capacity(strings: usize, bytes: usize) -> Strings {
        Strings { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(strings) }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.extend(bytes);
        self.end();
    }

    /// More bytes of the string that [`Self::end`] ends.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub fn end(&mut self) {
        self.ends.push(self.bytes.len());
    }

    pub fn get(&self, n: usize) -> &[u8] {
        let start = n.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[n]]
    }

    /// Those of these numbers, in their order.
    pub fn take(&self, numbers: &[u32]) -> Strings {
        let lengths = numbers.iter().map(|&n| self.get(n as usize).len());
        let mut taken = Strings::with_capacity(numbers.len(), lengths.sum());
        numbers.iter().for_each(|&n| taken.push(self.get(n as usize)));
        taken
    }

    /// How many bytes at their beginning all of these have in common.
    fn common(&self, mut numbers: Range<usize>) -> usize {
        let Some(first) = numbers.next() else { return 0 };
        let first = self.get(first);
        numbers.fold(first.len(), |common, n| {
            let same = first[..common].iter().zip(self.get(n));
            same.take_while(|(a, b)| a == b).count()
        })
    }

    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    pub fn into_binary(self) -> LargeBinaryArray {
        let (offsets, bytes) = self.into_parts();
        LargeBinaryArray::new(offsets, bytes, None)
    }

    /// Texts, where they are.
    pub fn into_texts(self, nulls: Option<NullBuffer>) -> Result<LargeStringArray> {
        let (offsets, bytes) = self.into_parts();
        Ok(LargeStringArray::try_new(offsets, bytes, nulls)?)
    }

    fn into_parts(self) -> (OffsetBuffer<i64>, Buffer) {
        let mut offsets = Vec::with_capacity(self.ends.len() + 1);
        offsets.push(0);
        offsets.extend(self.ends.iter().map(|&end| end as i64));
        (OffsetBuffer::new(ScalarBuffer::from(offsets)), Buffer::from_vec(self.bytes))
    }
}

/// The first eight bytes, as a number that compares as they do.
pub fn prefix(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            u64::from_be_bytes(padded)
        }
    }
}

/// Rows by group: the numbers of those of groups below `count`, each group's in their order, and where each
/// group begins; last, where they end.
pub fn by_group(groups: &[u32], count: usize) -> (Vec<u32>, Vec<usize>) {
    let mut starts = vec![0; count + 1];
    for &group in groups.iter().filter(|group| (**group as usize) < count) {
        starts[group as usize + 1] += 1;
    }
    for group in 0..count {
        starts[group + 1] += starts[group];
    }
    let mut rows = vec![0; starts[count]];
    let mut next = starts.clone();
    for (row, &group) in groups.iter().enumerate() {
        if let Some(next) = next[..count].get_mut(group as usize) {
            rows[*next] = row as u32;
            *next += 1;
        }
    }
    (rows, starts)
}

/// Puts rows in the order of their keys; rows with the same keys stay as they are. `keys`: first those of some
/// other rows, then those of each of these.
pub fn sort(
    rows: &mut [u32],
    (keys, before): (&Strings, usize),
    scratch: &mut Vec<(u64, u32, u32)>,
) {
    let key = |place: u32| keys.get(before + place as usize);
    let places = 0..rows.len() as u32;
    if places.clone().is_sorted_by_key(key) {
        return;
    }
    // What all keys begin with says nothing; what follows is mostly told apart by eight bytes.
    let common = keys.common(before..before + rows.len());
    let prefixed = places.zip(&*rows);
    scratch.clear();
    scratch.extend(prefixed.map(|(place, &row)| (prefix(&key(place)[common..]), place, row)));
    scratch.sort_unstable_by(|(a, of_a, _), (b, of_b, _)| {
        a.cmp(b).then_with(|| key(*of_a).cmp(key(*of_b))).then_with(|| of_a.cmp(of_b))
    });
    rows.iter_mut().zip(scratch).for_each(|(row, (_, _, sorted))| *row = *sorted);
}
