//! The predicates a scan evaluates: conjuncts over a chunk, cheapest and most selective first.
//!
//! What depends on one column only is the same for all rows of one value: of a dictionary with fewer
//! values than there are rows left, the values are judged, and the rows looked up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder, PrimitiveArray, RecordBatch,
    RecordBatchOptions, new_null_array,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::kernels::boolean::and;
use arrow::compute::{FilterBuilder, prep_null_mask_filter};
use arrow::datatypes::{
    ArrowDictionaryKeyType, ArrowNativeType, DataType, Schema, SchemaRef, UInt8Type, UInt16Type,
    UInt32Type,
};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DataFusionError, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{self, DynamicFilterTracking};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;

use super::column::Column;

/// Rows after which a dynamic filter that lets nearly all of them pass is no longer evaluated.
const TRIAL_ROWS: u64 = 256 * 1024;

/// One conjunct of a scan's filter.
#[derive(Debug)]
pub struct Conjunct {
    /// Over the table's schema; what is displayed and what prunes chunks.
    pub expr: Arc<dyn PhysicalExpr>,
    /// Over `schema`, the few columns it needs, in the order of `columns`.
    compact: Arc<dyn PhysicalExpr>,
    schema: SchemaRef,
    /// Table columns it reads.
    pub columns: Vec<usize>,
    /// Fed by a join's build side or a top-k while the query runs; optional for the answer.
    pub dynamic: bool,
    /// The same rows pass whenever it is asked.
    stable: bool,
    rows_seen: AtomicU64,
    rows_passed: AtomicU64,
}

impl Conjunct {
    pub fn new(expr: Arc<dyn PhysicalExpr>, table: &SchemaRef) -> Result<Self> {
        let mut columns: Vec<usize> =
            collect_columns(&expr).iter().map(expressions::Column::index).collect();
        columns.sort_unstable();
        columns.dedup();
        let schema = Arc::new(table.project(&columns)?);
        let compact =
            remap(&expr, |i| columns.binary_search(&i).expect("collected above"), &schema)?;
        let dynamic = DynamicFilterTracking::classify(&expr).contains_dynamic_filter();
        let stable = !is_volatile(&expr);
        Ok(Conjunct {
            expr,
            compact,
            schema,
            columns,
            dynamic,
            stable,
            rows_seen: AtomicU64::new(0),
            rows_passed: AtomicU64::new(0),
        })
    }

    /// A dynamic filter is an offer: one that has shown not to reject rows costs more than it saves.
    pub fn worthwhile(&self) -> bool {
        !self.dynamic
            || self.rows_seen.load(Ordering::Relaxed) < TRIAL_ROWS
            || self.pass_share() < 0.8
    }

    /// Share of the rows seen so far that passed; 1 before the first.
    pub fn pass_share(&self) -> f64 {
        match self.rows_seen.load(Ordering::Relaxed) {
            0 => 1.0,
            seen => self.rows_passed.load(Ordering::Relaxed) as f64 / seen as f64,
        }
    }

    /// Which of `rows` rows pass; NULL counts as not passing. `arrays` are the table columns
    /// named by `columns`, in that order, in plain.
    fn evaluate(&self, arrays: Vec<ArrayRef>, rows: usize) -> Result<BooleanArray> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?;
        let value = self.compact.evaluate(&batch)?.into_array(rows)?;
        let mask = as_boolean_array(&value)?;
        Ok(if mask.null_count() > 0 { prep_null_mask_filter(mask) } else { mask.clone() })
    }

    /// Which values of the only column pass, if it comes as a dictionary of fewer than `rows`.
    fn judge(&self, columns: &[&Column], rows: usize) -> Option<Verdict> {
        let [column] = columns else { return None };
        let dictionary = column.encoded.as_any_dictionary_opt()?;
        let (values, nulls) = (dictionary.values(), dictionary.keys().null_count() > 0);
        if !self.stable || values.len() >= rows {
            return None;
        }
        // An error may be due to a value of rows that are not asked for: those that are may tell.
        let passing = self.evaluate(vec![Arc::clone(values)], values.len()).ok()?;
        let null = || self.evaluate(vec![new_null_array(values.data_type(), 1)], 1);
        let null_passes = nulls && null().ok()?.value(0);
        let (all, none) = (passing.true_count() == values.len(), passing.true_count() == 0);
        Some(Verdict {
            all: all && (null_passes || !nulls),
            none: none && !null_passes,
            passing: passing.values().iter().collect(),
            null_passes,
        })
    }

    fn count(&self, seen: usize, passed: usize) {
        if self.dynamic {
            self.rows_seen.fetch_add(seen as u64, Ordering::Relaxed);
            self.rows_passed.fetch_add(passed as u64, Ordering::Relaxed);
        }
    }
}

/// Which values of a dictionary pass a conjunct.
struct Verdict {
    passing: Vec<bool>,
    null_passes: bool,
    /// Every row passes, whichever value it has.
    all: bool,
    none: bool,
}

impl Verdict {
    /// The rows of `dictionary` that pass; with `among`, of its set bits.
    fn of_rows(&self, dictionary: &dyn Array, among: Option<&BooleanBuffer>) -> BooleanBuffer {
        match dictionary.data_type() {
            DataType::Dictionary(key, _) if **key == DataType::UInt8 => {
                self.look_up(dictionary.as_dictionary::<UInt8Type>().keys(), among)
            }
            DataType::Dictionary(key, _) if **key == DataType::UInt16 => {
                self.look_up(dictionary.as_dictionary::<UInt16Type>().keys(), among)
            }
            _ => self.look_up(dictionary.as_dictionary::<UInt32Type>().keys(), among),
        }
    }

    fn look_up<K: ArrowDictionaryKeyType>(
        &self,
        keys: &PrimitiveArray<K>,
        among: Option<&BooleanBuffer>,
    ) -> BooleanBuffer {
        let (values, passing) = (keys.values(), self.passing.as_slice());
        // NULL keys are in range, too.
        let passes = |row: usize| passing.get(values[row].as_usize()).is_some_and(|p| *p);
        let nulls = keys.nulls();
        if let Some(among) = among {
            let mut bits = BooleanBufferBuilder::new(keys.len());
            bits.append_n(keys.len(), false);
            for row in among.set_indices() {
                let null = nulls.is_some_and(|n| n.is_null(row));
                if if null { self.null_passes } else { passes(row) } {
                    bits.set_bit(row, true);
                }
            }
            return bits.finish();
        }
        let bits = BooleanBuffer::collect_bool(keys.len(), passes);
        match nulls {
            None => bits,
            Some(nulls) if self.null_passes => &bits | &!nulls.inner(),
            Some(nulls) => &bits & nulls.inner(),
        }
    }
}

/// Rewrites the column indices of `expr` through `index`; names come from `schema`.
pub fn remap(
    expr: &Arc<dyn PhysicalExpr>,
    index: impl Fn(usize) -> usize,
    schema: &Schema,
) -> Result<Arc<dyn PhysicalExpr>> {
    Arc::clone(expr)
        .transform_up(|e| match e.downcast_ref::<expressions::Column>() {
            Some(column) => {
                let i = index(column.index());
                Ok(Transformed::yes(
                    Arc::new(expressions::Column::new(schema.field(i).name(), i)) as _
                ))
            }
            None => Ok(Transformed::no(e)),
        })
        .data()
}

/// The rows of a chunk that have passed so far.
#[derive(Clone)]
pub struct Selection {
    rows: usize,
    /// `None`: all.
    mask: Option<BooleanArray>,
    passed: usize,
}

impl Selection {
    pub fn all(rows: usize) -> Self {
        Selection { rows, mask: None, passed: rows }
    }

    /// The rows whose bit is set.
    pub fn of(mask: BooleanArray) -> Self {
        Selection { rows: mask.len(), passed: mask.true_count(), mask: Some(mask) }
    }

    pub fn is_empty(&self) -> bool {
        self.passed == 0
    }

    /// The mask of the rows that passed, unless all did.
    pub fn mask(&self) -> Option<&BooleanArray> {
        self.mask.as_ref().filter(|_| self.passed < self.rows)
    }

    /// Narrows to the rows that pass `conjunct` as well; `columns` are those it names. Once few are
    /// left only those are evaluated: predicates such as a look-up in a join's hash table cost more
    /// than copying the survivors of a column.
    pub fn narrow(&mut self, conjunct: &Conjunct, columns: &[&Column]) -> Result<()> {
        let sparse = self.passed * 2 < self.rows;
        if let Some(verdict) = conjunct.judge(columns, self.passed) {
            let before = self.passed;
            self.narrow_by(&verdict, &columns[0].encoded, sparse);
            conjunct.count(before, self.passed);
            return Ok(());
        }
        let evaluate = |columns: Result<Vec<_>>, rows: usize| {
            let mask = conjunct.evaluate(columns?, rows)?;
            conjunct.count(rows, mask.true_count());
            Ok::<_, DataFusionError>(mask)
        };
        let plain = || columns.iter().map(|c| c.plain()).collect();
        let mask = match self.mask.take() {
            Some(mask) if sparse => {
                let survivors = FilterBuilder::new(&mask).optimize().build();
                let columns = columns.iter().map(|c| c.filtered(&survivors)).collect();
                refine(&mask, &evaluate(columns, self.passed)?)
            }
            Some(mask) => and(&mask, &evaluate(plain(), self.rows)?)?,
            None => evaluate(plain(), self.rows)?,
        };
        self.passed = mask.true_count();
        self.mask = Some(mask);
        Ok(())
    }

    fn narrow_by(&mut self, verdict: &Verdict, dictionary: &dyn Array, sparse: bool) {
        if verdict.all {
            return;
        }
        let before = self.mask.as_ref().map(BooleanArray::values);
        let mask = match before {
            _ if verdict.none => BooleanBuffer::new_unset(self.rows),
            Some(before) if sparse => verdict.of_rows(dictionary, Some(before)),
            Some(before) => before & &verdict.of_rows(dictionary, None),
            None => verdict.of_rows(dictionary, None),
        };
        let mask = BooleanArray::new(mask, None);
        self.passed = mask.true_count();
        self.mask = Some(mask);
    }
}

/// `mask` without those of its set bits whose counterpart in `kept` (one per set bit) is false.
fn refine(mask: &BooleanArray, kept: &BooleanArray) -> BooleanArray {
    let mut bits = BooleanBufferBuilder::new(mask.len());
    bits.append_n(mask.len(), false);
    let kept = kept.values();
    for (i, row) in mask.values().set_indices().enumerate() {
        if kept.value(i) {
            bits.set_bit(row, true);
        }
    }
    BooleanArray::new(bits.finish(), None)
}

#[cfg(test)]
mod tests;
