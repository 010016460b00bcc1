//! The predicates a scan evaluates: conjuncts over a chunk, cheapest and most selective first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::kernels::boolean::and;
use arrow::compute::prep_null_mask_filter;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::common::cast::as_boolean_array;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, DynamicFilterTracking};
use datafusion::physical_expr::utils::collect_columns;

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
        let mut columns: Vec<usize> = collect_columns(&expr).iter().map(Column::index).collect();
        columns.sort_unstable();
        columns.dedup();
        let schema = Arc::new(table.project(&columns)?);
        let compact = remap(&expr, |i| columns.binary_search(&i).expect("collected above"), &schema)?;
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
        if !self.dynamic {
            return true;
        }
        let seen = self.rows_seen.load(Ordering::Relaxed);
        seen < TRIAL_ROWS || self.rows_passed.load(Ordering::Relaxed) < seen / 10 * 8
    }

    /// Which of `rows` rows pass; NULL counts as not passing. `arrays` are the table columns
    /// named by `columns`, in that order.
    pub fn evaluate(&self, arrays: Vec<ArrayRef>, rows: usize) -> Result<BooleanArray> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?;
        let value = self.compact.evaluate(&batch)?.into_array(rows)?;
        let mask = as_boolean_array(&value)?;
        let mask =
            if mask.null_count() > 0 { prep_null_mask_filter(mask) } else { mask.clone() };
        if self.dynamic {
            self.rows_seen.fetch_add(rows as u64, Ordering::Relaxed);
            self.rows_passed.fetch_add(mask.true_count() as u64, Ordering::Relaxed);
        }
        Ok(mask)
    }
}

/// Rewrites the column indices of `expr` through `index`; names come from `schema`.
pub fn remap(
    expr: &Arc<dyn PhysicalExpr>,
    index: impl Fn(usize) -> usize,
    schema: &Schema,
) -> Result<Arc<dyn PhysicalExpr>> {
    Arc::clone(expr)
        .transform_up(|e| match e.downcast_ref::<Column>() {
            Some(column) => {
                let i = index(column.index());
                Ok(Transformed::yes(Arc::new(Column::new(schema.field(i).name(), i)) as _))
            }
            None => Ok(Transformed::no(e)),
        })
        .data()
}

/// `a AND b`, where `None` is "all rows".
pub fn intersect(a: Option<BooleanArray>, b: BooleanArray) -> Result<BooleanArray> {
    match a {
        None => Ok(b),
        Some(a) => Ok(and(&a, &b)?),
    }
}
