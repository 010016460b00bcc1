//! Groups on their way to files and back.
//!
//! A worker that is refused memory gives away what it has grouped so far and starts afresh. Its
//! groups are sorted by a hash of their keys into [`PARTS`] parts, and those of one part are a
//! *piece*: a record batch that needs nothing else to be understood. All pieces of one part, of
//! whichever worker, are then merged as if they were chunks in memory.
//!
//! | columns of a piece | |
//! |---|---|
//! | the words of the keys, and flags | one of binary values of a fixed size |
//! | for each key that may be codes | the bytes these stand for |
//! | for each slot | its states: NULL where there was no value yet, with the state beneath |
//! | for each external function | its state columns |

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, FixedSizeBinaryArray, Float64Array, Int64Array,
    LargeBinaryBuilder, RecordBatch, RecordBatchOptions,
};
use arrow::buffer::Buffer;
use arrow::compute::concat_batches;
use arrow::datatypes::{
    DataType, Decimal128Type, Field, Float64Type, Int64Type, Schema, SchemaRef,
};
use thalweg_base::{Error, Result};

use super::grouper::GroupKeys;
use super::keys::{Class, Key};
use super::merging::Partitioning;
use super::partial::{Chunk, Sorted};
use super::plan::{Number, Order, Plan, Slot};
use super::states::{Seen, State, States};
use super::strings::Strings;
use super::{Kind, Spec};
use crate::encoding::internal;

pub const PARTS_LOG2: u32 = 6;
/// Files that one aggregation spills into.
pub const PARTS: usize = 1 << PARTS_LOG2;

/// Groups of a chunk that pieces become again: sorting it is one task.
const CHUNK_GROUPS: usize = 32 << 10;

/// Of 128 bits, whatever they say.
const WIDE: DataType = DataType::Decimal128(38, 0);

/// Groups of one worker that are to leave memory.
pub struct Sealed {
    pub(super) spec: Arc<Spec>,
    pub(super) plan: Arc<Plan>,
    pub(super) chunk: Chunk,
}

impl Sealed {
    /// Its pieces, each with its part; parts without groups have none.
    pub fn pieces(self) -> Result<Vec<(usize, RecordBatch)>> {
        let Sealed { spec, plan, mut chunk } = self;
        let partitioning = Partitioning { log2: PARTS_LOG2, ..Partitioning::default() };
        chunk.sort(&plan, partitioning, &[]);
        chunk.permute()?;
        let ends = std::mem::take(&mut chunk.sorted.ends);
        let whole = batch(&spec, &plan, chunk)?;
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let parts = starts.zip(&ends).enumerate().filter(|(_, (start, end))| start < *end);
        Ok(parts.map(|(part, (start, end))| (part, whole.slice(start, end - start))).collect())
    }
}

/// What all pieces of an aggregation have for a schema.
pub fn schema(spec: &Spec) -> Result<SchemaRef> {
    of_plan(spec, &Plan::new(spec)?)
}

fn of_plan(spec: &Spec, plan: &Plan) -> Result<SchemaRef> {
    let mut types = vec![DataType::FixedSizeBinary(key_bytes(plan))];
    types.extend(plan.keys.iter().filter(|k| may_be_codes(k)).map(|_| DataType::LargeBinary));
    for slot in &plan.slots {
        match slot {
            Slot::Rows | Slot::Missing(_) | Slot::Counted { .. } => types.push(DataType::Int64),
            Slot::Sum { number, .. } => match number {
                Number::Int => types.push(DataType::Int64),
                Number::Float => types.push(DataType::Float64),
                Number::Decimal { exact: false } => types.push(WIDE),
                Number::Decimal { exact: true } => types.extend([WIDE, DataType::Int64]),
            },
            Slot::Extreme { order, .. } => types.push(match order {
                Order::Decimal => WIDE,
                Order::Bytes => DataType::LargeBinary,
                Order::Word | Order::Unsigned | Order::Float => DataType::Int64,
            }),
        }
    }
    for &function in &plan.externals {
        match &spec.functions[function].kind {
            Kind::External(external) => types.extend(external.0.state_types()),
            other => return Err(Error::internal(format!("{other:?} is not external"))),
        }
    }
    let fields = types.into_iter().map(|t| Field::new("", t, true));
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

/// Of the words of all keys, and their flags: a few hundred at most.
fn key_bytes(plan: &Plan) -> i32 {
    ((plan.keys.len() + 1) * size_of::<u64>()) as i32
}

fn may_be_codes(key: &Key) -> bool {
    key.is_coded() || key.class == Class::Decimal
}

fn batch(spec: &Spec, plan: &Plan, mut chunk: Chunk) -> Result<RecordBatch> {
    chunk.keys.flag();
    chunk.states.resize(chunk.groups);
    let schema = of_plan(spec, plan)?;
    let words = Buffer::from_vec(std::mem::take(&mut chunk.keys.rows));
    let keys = FixedSizeBinaryArray::try_new(key_bytes(plan), words, None).map_err(internal)?;
    let mut columns: Vec<ArrayRef> = vec![Arc::new(keys.clone())];
    let (words, _) = keys.value_data().as_chunks::<8>();
    for (k, key) in plan.keys.iter().enumerate().filter(|(_, key)| may_be_codes(key)) {
        let mut builder = LargeBinaryBuilder::with_capacity(chunk.groups, 0);
        for row in words.chunks_exact(plan.keys.len() + 1) {
            let (word, flags) =
                (u64::from_le_bytes(row[k]), u64::from_le_bytes(row[row.len() - 1]));
            match key.is_code(k, flags) {
                true => chunk.strings[k].with(word, |bytes| builder.append_value(bytes)),
                false => builder.append_null(),
            }
        }
        columns.push(Arc::new(builder.finish()));
    }
    for state in chunk.states.all {
        write(state, chunk.groups, &mut columns)?;
    }
    columns.extend(chunk.externals.iter().flatten().cloned());
    let options = RecordBatchOptions::new().with_row_count(Some(chunk.groups));
    RecordBatch::try_new_with_options(schema, columns, &options).map_err(internal)
}

fn write(state: State, groups: usize, columns: &mut Vec<ArrayRef>) -> Result<()> {
    let wide = |values: Vec<i128>, seen: &Seen| -> Result<ArrayRef> {
        let array = Decimal128Array::new(values.into(), seen.nulls());
        Ok(Arc::new(array.with_data_type(WIDE)))
    };
    let column: ArrayRef = match state {
        State::Counts(counts) => Arc::new(Int64Array::from(counts)),
        State::Ints { sums, seen } => Arc::new(Int64Array::new(sums.into(), seen.nulls())),
        State::Floats { sums, seen } => Arc::new(Float64Array::new(sums.into(), seen.nulls())),
        State::Words { best, seen, .. } => Arc::new(Int64Array::new(best.into(), seen.nulls())),
        State::Wides { best, seen, .. } => wide(best, &seen)?,
        State::Decimals { sums, exact: false, seen, .. } => wide(sums, &seen)?,
        State::Decimals { sums, mut highs, exact: true, seen } => {
            columns.push(wide(sums, &seen)?);
            highs.resize(groups, 0);
            Arc::new(Int64Array::from(highs))
        }
        State::Bytes { best, seen, .. } => {
            let mut builder = LargeBinaryBuilder::with_capacity(groups, 0);
            for (group, bytes) in best.iter().enumerate() {
                builder.append_option(seen.has(group).then_some(bytes));
            }
            Arc::new(builder.finish())
        }
    };
    columns.push(column);
    Ok(())
}

/// Chunks of the groups that pieces of one part have.
pub(super) fn chunks(spec: &Spec, plan: &Plan, pieces: &[RecordBatch]) -> Result<Vec<Chunk>> {
    let schema = of_plan(spec, plan)?;
    let mut chunks = vec![];
    let mut start = 0;
    while start < pieces.len() {
        let (mut end, mut groups) = (start, 0);
        while end < pieces.len() && groups < CHUNK_GROUPS {
            groups += pieces[end].num_rows();
            end += 1;
        }
        let whole = concat_batches(&schema, &pieces[start..end]).map_err(internal)?;
        chunks.push(chunk(plan, &whole)?);
        start = end;
    }
    Ok(chunks)
}

fn chunk(plan: &Plan, batch: &RecordBatch) -> Result<Chunk> {
    let groups = batch.num_rows();
    let mut columns = batch.columns().iter();
    let mut next =
        || columns.next().ok_or_else(|| Error::internal("a piece of groups lacks a column"));
    let stride = plan.keys.len() + 1;
    let (words, _) = next()?.as_fixed_size_binary().value_data().as_chunks::<8>();
    let mut rows: Vec<u64> = words.iter().map(|w| u64::from_le_bytes(*w)).collect();
    let mut strings = vec![];
    for (k, key) in plan.keys.iter().enumerate() {
        let mut all = Strings::default();
        if may_be_codes(key) {
            let texts = next()?.as_binary::<i64>();
            for (row, text) in rows.chunks_exact_mut(stride).zip(texts) {
                if let Some(text) = text {
                    row[k] = all.append(text).into();
                }
            }
        }
        strings.push(all);
    }
    let mut states = States::new(&plan.slots, false);
    for state in &mut states.all {
        read(state, &mut next)?;
    }
    // What is left, in as many columns as each function has.
    let mut rest = columns;
    let externals = plan.external_columns.iter().map(|&n| rest.by_ref().take(n).cloned().collect());
    Ok(Chunk {
        externals: externals.collect(),
        keys: GroupKeys { rows, keys: plan.keys.len(), flagged: true, groups },
        strings,
        unhashed: None,
        states,
        groups,
        distinct: false,
        order: None,
        joined: vec![],
        sorted: Sorted::default(),
    })
}

fn read<'a>(state: &mut State, next: &mut impl FnMut() -> Result<&'a ArrayRef>) -> Result<()> {
    let column = next()?;
    let was = Seen::of(column.nulls());
    let words = || column.as_primitive::<Int64Type>().values().to_vec();
    let wides = || column.as_primitive::<Decimal128Type>().values().to_vec();
    match state {
        State::Counts(counts) => *counts = words(),
        State::Ints { sums, seen } => (*sums, *seen) = (words(), was),
        State::Words { best, seen, .. } => (*best, *seen) = (words(), was),
        State::Floats { sums, seen } => {
            (*sums, *seen) = (column.as_primitive::<Float64Type>().values().to_vec(), was);
        }
        State::Wides { best, seen, .. } => (*best, *seen) = (wides(), was),
        State::Decimals { sums, highs, exact, seen } => {
            (*sums, *seen) = (wides(), was);
            if *exact {
                *highs = next()?.as_primitive::<Int64Type>().values().to_vec();
            }
        }
        State::Bytes { best, seen, heap_bytes, .. } => {
            let values = column.as_binary::<i64>();
            *best = values.iter().map(|v| v.unwrap_or_default().to_vec()).collect();
            *heap_bytes = values.value_data().len();
            *seen = was;
        }
    }
    Ok(())
}
