//! Groups and their states as arrays of results.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Float64Array, GenericByteBuilder, Int64Array};
use arrow::array::{BinaryViewBuilder, StringViewBuilder};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{
    BinaryType, ByteArrayType, DataType, LargeBinaryType, LargeUtf8Type, Utf8Type, i256,
};
use thalweg_base::{Error, Result};

use super::grouper::GroupKeys;
use super::keys::{decode, from_words};
use super::plan::{Average, Count, Order, Output, Plan, Slot};
use super::states::{Seen, State, States, unordered};
use super::strings::Strings;
use super::{Accumulator, Groups, OUTPUT_ROWS_MAX, Spec, fitted};
use crate::encoding::internal;

/// All that is known of some groups.
pub(super) struct Finished {
    pub keys: GroupKeys,
    pub strings: Vec<Strings>,
    pub states: States,
    pub accumulators: Vec<Box<dyn Accumulator>>,
    pub groups: usize,
}

impl Finished {
    /// All but those groups of it, which are ascending.
    pub fn emit(mut self, spec: &Spec, plan: &Plan, without: &[u32]) -> Result<Vec<Groups>> {
        if self.groups == 0 {
            return Ok(vec![]);
        }
        self.states.resize(self.groups);
        let mut columns: Vec<Option<ArrayRef>> = vec![None; spec.key_types.len()];
        let flags = self.keys.all_flags();
        for (k, (key, strings)) in plan.keys.iter().zip(self.strings).enumerate() {
            for (at, array) in decode(key, self.keys.take_column(k, &flags), strings)? {
                columns[at] = Some(array);
            }
        }
        let mut columns: Vec<ArrayRef> =
            columns.into_iter().map(|c| c.expect("every column is of some key")).collect();
        for (i, (function, output)) in spec.functions.iter().zip(&plan.outputs).enumerate() {
            let array = match output {
                Output::External(i) => self.accumulators[*i].evaluate()?,
                _ => {
                    let later = &plan.outputs[i + 1..];
                    result(output, &function.result, &plan.slots, &mut self.states, later)?
                }
            };
            if array.len() != self.groups {
                return Err(Error::internal("an aggregate has a result for other groups"));
            }
            columns.push(array);
        }
        let mut batches = vec![];
        let (mut start, ends) = (0, without.iter().map(|&group| group as usize));
        for end in ends.chain([self.groups]) {
            while start < end {
                let rows = OUTPUT_ROWS_MAX.min(end - start);
                let slice = |c: &ArrayRef| match rows == self.groups {
                    true => c.clone(),
                    false => c.slice(start, rows),
                };
                batches.push(Groups { columns: columns.iter().map(slice).collect(), rows });
                start += rows;
            }
            start = end + 1;
        }
        Ok(batches)
    }
}

/// States that are a result as they are: themselves, if they are not wanted again.
fn given<T: Clone>(states: &mut Vec<T>, wanted: bool) -> Vec<T> {
    if wanted { states.clone() } else { fitted(std::mem::take(states)) }
}

fn counts(count: &Count, states: &mut States, later: &[Output]) -> Vec<i64> {
    match count {
        Count::Filtered(slot) | Count::Summed(slot) | Count::All { rows: slot, missing: None } => {
            let wanted = later.iter().any(|output| output.reads(*slot));
            match &mut states.all[*slot] {
                State::Counts(counts) | State::Ints { sums: counts, .. } => given(counts, wanted),
                _ => unreachable!("a slot of counts, or of sums of them"),
            }
        }
        Count::All { rows, missing: Some(missing) } => {
            match (&states.all[*rows], &states.all[*missing]) {
                (State::Counts(rows), State::Counts(missing)) => {
                    rows.iter().zip(missing).map(|(rows, missing)| rows - missing).collect()
                }
                _ => unreachable!("slots of counts"),
            }
        }
    }
}

/// The results of a function; `later`: what else will be made of these states.
pub(super) fn result(
    output: &Output,
    data_type: &DataType,
    slots: &[Slot],
    states: &mut States,
    later: &[Output],
) -> Result<ArrayRef> {
    let wanted = |slot: usize| later.iter().any(|output| output.reads(slot));
    match output {
        Output::Count(count) => Ok(Arc::new(Int64Array::from(counts(count, states, later)))),
        Output::Sum(slot) => match &mut states.all[*slot] {
            State::Ints { sums, seen } => {
                let sums = given(sums, wanted(*slot)).into_iter().map(i64::cast_unsigned);
                from_words(data_type, sums, seen.nulls().as_ref())
            }
            State::Floats { sums, seen } => {
                Ok(Arc::new(Float64Array::new(given(sums, wanted(*slot)).into(), seen.nulls())))
            }
            State::Decimals { sums, seen, .. } => {
                decimals(data_type, given(sums, wanted(*slot)), seen.nulls())
            }
            _ => unreachable!("a slot of sums"),
        },
        Output::Average { sum, count, average } => {
            let counts = counts(count, states, later);
            let valid = BooleanBuffer::collect_bool(counts.len(), |i| counts[i] != 0);
            let nulls = Some(NullBuffer::new(valid)).filter(|n| n.null_count() > 0);
            match (&states.all[*sum], average) {
                (State::Floats { sums, .. }, Average::Float) => {
                    let averages = sums.iter().zip(&counts).map(|(sum, &n)| sum / n as f64);
                    let averages = averages.collect::<Vec<_>>();
                    Ok(Arc::new(Float64Array::new(averages.into(), nulls)))
                }
                (State::Decimals { sums, highs, .. }, Average::Decimal { factor, precision }) => {
                    let average = |(group, (&sum, &n)): (usize, (&i128, &i64))| {
                        let high = highs.get(group).copied().unwrap_or(0);
                        if n == 0 { Ok(0) } else { divide(sum, high, *factor, n, *precision) }
                    };
                    let averages = sums.iter().zip(&counts).enumerate().map(average);
                    decimals(data_type, averages.collect::<Result<_>>()?, nulls)
                }
                _ => unreachable!("a slot of sums of the average's type"),
            }
        }
        Output::Extreme(slot) => {
            let Slot::Extreme { order, .. } = &slots[*slot] else {
                unreachable!("a slot of extremes")
            };
            match &mut states.all[*slot] {
                State::Words { best, seen, .. } => {
                    let best = given(best, wanted(*slot)).into_iter();
                    let words = best.map(|word| unordered(*order, word));
                    from_words(data_type, words, seen.nulls().as_ref())
                }
                State::Wides { best, seen, .. } => {
                    decimals(data_type, given(best, wanted(*slot)), seen.nulls())
                }
                State::Bytes { best, seen, .. } => {
                    debug_assert_eq!(*order, Order::Bytes);
                    bytes(data_type, best, seen)
                }
                _ => unreachable!("a slot of extremes"),
            }
        }
        Output::External(_) => unreachable!("evaluated by its accumulator"),
    }
}

/// A sum, scaled up, by a count: truncated, as DataFusion's `DecimalAverager` does.
fn divide(sum: i128, high: i64, factor: i128, count: i64, precision: u8) -> Result<i128> {
    let average = match sum.checked_mul(factor) {
        Some(scaled) if high == 0 => Some(scaled / i128::from(count)),
        // `sum + high * 2^128`: 256-bit numbers take their lower half without a sign.
        _ => i256::from_parts(sum.cast_unsigned(), i128::from(high) - i128::from(sum < 0))
            .checked_mul(i256::from_i128(factor))
            .and_then(|scaled| scaled.checked_div(i256::from_i128(count.into())))
            .and_then(i256::to_i128),
    };
    let most = 10i128.pow(precision.into()) - 1;
    average.filter(|a| (-most..=most).contains(a)).ok_or_else(|| {
        Error::user("an average of decimals overflows its type")
            .code("22003")
            .hint("cast the argument to one of fewer digits, or to DOUBLE")
    })
}

fn decimals(
    data_type: &DataType,
    values: Vec<i128>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let DataType::Decimal128(precision, scale) = *data_type else {
        return Err(Error::internal(format!("a result of decimals is of type {data_type}")));
    };
    let array = Decimal128Array::new(values.into(), nulls);
    Ok(Arc::new(array.with_precision_and_scale(precision, scale).map_err(internal)?))
}

fn bytes(data_type: &DataType, best: &[Vec<u8>], seen: &Seen) -> Result<ArrayRef> {
    fn text(bytes: &[u8]) -> Result<&str> {
        std::str::from_utf8(bytes).map_err(|_| Error::internal("a text is no UTF-8"))
    }
    fn built<'a, T: ByteArrayType>(
        values: impl Iterator<Item = Option<Result<&'a T::Native>>>,
    ) -> Result<ArrayRef>
    where
        T::Native: 'a,
    {
        let mut builder = GenericByteBuilder::<T>::new();
        for value in values {
            builder.append_option(value.transpose()?);
        }
        Ok(Arc::new(builder.finish()))
    }
    let nulls = seen.nulls();
    let valid = |i: usize| nulls.as_ref().is_none_or(|n| n.is_valid(i));
    let values = || best.iter().enumerate().map(|(i, b)| valid(i).then_some(b.as_slice()));
    let texts = || values().map(|v| v.map(text));
    match data_type {
        DataType::Utf8 => built::<Utf8Type>(texts()),
        DataType::LargeUtf8 => built::<LargeUtf8Type>(texts()),
        DataType::Binary => built::<BinaryType>(values().map(|v| v.map(Ok))),
        DataType::LargeBinary => built::<LargeBinaryType>(values().map(|v| v.map(Ok))),
        DataType::Utf8View => {
            let mut builder = StringViewBuilder::with_capacity(best.len());
            for value in texts() {
                builder.append_option(value.transpose()?);
            }
            Ok(Arc::new(builder.finish()))
        }
        DataType::BinaryView => {
            let mut builder = BinaryViewBuilder::with_capacity(best.len());
            values().for_each(|v| builder.append_option(v));
            Ok(Arc::new(builder.finish()))
        }
        other => Err(Error::internal(format!("{other} is no text"))),
    }
}
