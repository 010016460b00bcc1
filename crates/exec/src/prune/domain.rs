//! Predicates that only values can tell about: `k % 7 = 3`, `extract(week FROM d) = 6`, a look-up
//! in a join's hash table. Where a column has few possible values in a table (dates, codes, keys
//! of dimensions), the predicate is evaluated once on each of them, and a container is kept if
//! any value between its bounds passes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use parking_lot::Mutex;
use thalweg_base::limits::PRUNE_DOMAIN_VALUES_MAX;

use super::outcomes::Outcomes;
use super::predicate::Containers;

#[derive(Debug)]
pub struct Domain {
    /// Of the table.
    column: usize,
    /// Over `schema`, which has only that column.
    expr: Arc<dyn PhysicalExpr>,
    schema: SchemaRef,
    /// The last range that was evaluated: those of extents lie within that of the table.
    known: Mutex<Option<Arc<Answers>>>,
}

/// What becomes of `first`, `first + 1`, …: of each list element `i` counts those before the `i`-th.
#[derive(Debug)]
struct Answers {
    first: i64,
    yes: Vec<u32>,
    no: Vec<u32>,
    null: Vec<u32>,
    of_null: Option<bool>,
}

/// Whether a column's values can be counted through.
pub fn countable(data_type: &DataType) -> bool {
    data_type.is_integer() || *data_type == DataType::Date32
}

impl Domain {
    /// `expr` must be over `schema`, which has one column, of a [`countable`] type.
    pub fn new(column: usize, expr: Arc<dyn PhysicalExpr>, schema: SchemaRef) -> Self {
        Domain { column, expr, schema, known: Mutex::default() }
    }

    pub fn outcomes(&self, containers: &dyn Containers) -> Outcomes {
        self.known_outcomes(containers).unwrap_or_else(|| Outcomes::any(containers.len()))
    }

    fn known_outcomes(&self, containers: &dyn Containers) -> Option<Outcomes> {
        let statistics = containers.statistics(self.column);
        let (lows, highs) = (counted(&statistics.mins)?, counted(&statistics.maxs)?);
        let (lows, highs) = (lows.as_primitive::<Int64Type>(), highs.as_primitive::<Int64Type>());
        let bounded = |i: usize| lows.is_valid(i) && highs.is_valid(i);
        let all = (0..lows.len()).filter(|&i| bounded(i));
        let low = all.clone().map(|i| lows.value(i)).min()?;
        let high = all.map(|i| highs.value(i)).max()?;
        let answers = self.answers(low, high)?;
        let (rows, nulls) = (statistics.rows.values(), statistics.nulls.values());
        let outcome = |counts: &[u32], of_null: bool| {
            BooleanBuffer::collect_bool(lows.len(), |i| {
                let among_values = nulls[i] < rows[i]
                    && (!bounded(i) || {
                        let at = |value: i64| (value - answers.first) as usize;
                        counts[at(highs.value(i)) + 1] > counts[at(lows.value(i))]
                    });
                among_values || nulls[i] > 0 && of_null
            })
        };
        Some(Outcomes {
            yes: outcome(&answers.yes, answers.of_null == Some(true)),
            no: outcome(&answers.no, answers.of_null == Some(false)),
            null: outcome(&answers.null, answers.of_null.is_none()),
        })
    }

    fn answers(&self, low: i64, high: i64) -> Option<Arc<Answers>> {
        let mut known = self.known.lock();
        let covers = |a: &&Arc<Answers>| {
            a.first <= low
                && high.checked_sub(a.first).is_some_and(|i| (i as usize) < a.yes.len() - 1)
        };
        if let Some(answers) = known.as_ref().filter(covers) {
            return Some(Arc::clone(answers));
        }
        let count = high.checked_sub(low)?.checked_add(1)?;
        if count > PRUNE_DOMAIN_VALUES_MAX as i64 {
            return None;
        }
        // A value that no row has may well be an error to the predicate.
        let answers = Arc::new(self.evaluate(low, high).ok()?);
        *known = Some(Arc::clone(&answers));
        Some(answers)
    }

    /// On each value of the range, and on NULL.
    fn evaluate(&self, low: i64, high: i64) -> Result<Answers> {
        let values: ArrayRef =
            Arc::new((low..=high).map(Some).chain([None]).collect::<Int64Array>());
        let values = recounted(&values, self.schema.field(0).data_type())?;
        let rows = values.len();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), vec![values])?;
        let results = self.expr.evaluate(&batch)?.into_array(rows)?;
        let results: &BooleanArray = datafusion::common::cast::as_boolean_array(&results)?;
        let of_null = results.is_valid(rows - 1).then(|| results.value(rows - 1));
        let results = results.slice(0, rows - 1);
        let (values, nulls) = (results.values(), results.nulls().map(NullBuffer::inner));
        let (yes, no) = match nulls {
            None => (values.clone(), !values),
            Some(valid) => (values & valid, &!values & valid),
        };
        let null = nulls.map_or_else(|| BooleanBuffer::new_unset(rows - 1), |valid| !valid);
        let [yes, no, null] = [yes, no, null].map(|buffer| counts(&buffer));
        Ok(Answers { first: low, yes, no, null, of_null })
    }
}

/// For each place, how many before it are set; and one more, of all.
fn counts(set: &BooleanBuffer) -> Vec<u32> {
    let mut counts = Vec::with_capacity(set.len() + 1);
    counts.push(0);
    let mut count = 0;
    let chunks = set.bit_chunks();
    let words = chunks.iter().map(|word| (word, 64));
    for (word, bits) in words.chain([(chunks.remainder_bits(), chunks.remainder_len())]) {
        counts.extend((0..bits).map(|bit| {
            count += (word >> bit & 1) as u32;
            count
        }));
    }
    counts
}

const STRICT: CastOptions<'static> =
    CastOptions { safe: false, format_options: arrow::util::display::FormatOptions::new() };

/// Dates have no way to 64 bits but through 32.
fn counted(values: &ArrayRef) -> Option<ArrayRef> {
    let values = match values.data_type() {
        DataType::Date32 => &cast_with_options(values, &DataType::Int32, &STRICT).ok()?,
        _ => values,
    };
    cast_with_options(values, &DataType::Int64, &STRICT).ok()
}

/// Numbers as values of a [`countable`] type.
pub fn recounted(values: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    Ok(match data_type {
        DataType::Date32 => {
            let days = cast_with_options(values, &DataType::Int32, &STRICT)?;
            cast_with_options(&days, data_type, &STRICT)?
        }
        _ => cast_with_options(values, data_type, &STRICT)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_before_each_place_is_counted() {
        let set: BooleanBuffer = (0..200).map(|i| i % 3 == 0).collect();
        for (from, len) in [(0, 200), (0, 64), (5, 128), (70, 3), (9, 0)] {
            let set = set.slice(from, len);
            let naive = (0..=len).map(|end| set.slice(0, end).count_set_bits() as u32);
            assert_eq!(counts(&set), naive.collect::<Vec<_>>());
        }
    }
}
