//! The predicates a scan evaluates: conjuncts over a chunk, cheapest and most selective first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{
    Array, ArrayRef, BooleanArray, BooleanBufferBuilder, RecordBatch, RecordBatchOptions,
};
use arrow::compute::kernels::boolean::and;
use arrow::compute::{FilterBuilder, prep_null_mask_filter};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DataFusionError, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{self, DynamicFilterTracking};
use datafusion::physical_expr::utils::collect_columns;

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
        Ok(Conjunct {
            expr,
            compact,
            schema,
            columns,
            dynamic,
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

    fn count(&self, seen: usize, passed: usize) {
        if self.dynamic {
            self.rows_seen.fetch_add(seen as u64, Ordering::Relaxed);
            self.rows_passed.fetch_add(passed as u64, Ordering::Relaxed);
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
mod tests {
    use super::*;

    #[test]
    fn refining_keeps_the_counterparts_of_set_bits() {
        let mask = BooleanArray::from(vec![true, false, true, true, false, true]);
        let kept = BooleanArray::from(vec![false, true, true, false]);
        let expected = BooleanArray::from(vec![false, false, true, true, false, false]);
        assert_eq!(refine(&mask, &kept), expected);
    }
}
