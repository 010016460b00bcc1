//! The predicates a scan evaluates: conjuncts over a chunk, cheapest and most selective first.
//!
//! What depends on one column only is the same for all rows of one value: of a dictionary with fewer
//! values than there are rows left, the values are judged, and the rows looked up. So it is done with
//! dates and whole numbers that lie near each other, of which all that there may be are judged.
//!
//! A predicate is DataFusion's expression over plain arrays. Where a planner has found one of pipelines
//! that means the same, that is evaluated, over arrays as they are in the cache.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanBufferBuilder, Int64Array, RecordBatch, RecordBatchOptions,
    UInt32Array, new_null_array,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::take;
use arrow::datatypes::{
    DataType, Date32Type, Int8Type, Int16Type, Int32Type, Int64Type, Schema, SchemaRef, UInt8Type,
    UInt16Type, UInt32Type,
};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    self, BinaryExpr, CaseExpr, CastExpr, DynamicFilterTracking, Literal, TryCastExpr,
};
use datafusion::physical_expr::utils::{collect_columns, split_disjunction};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr, split_conjunction};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::metrics::Time;
use thalweg_errors::into_datafusion;
use thalweg_pipeline::batch::Batch;
use thalweg_pipeline::encoding;
use thalweg_pipeline::expr::{Comparison, Evaluate, Expr};
use thalweg_pipeline::select::Selection;

use super::column::Column;
use crate::prune::{countable, recounted};
use thalweg_runtime::checkpoint;

/// Rows after which a dynamic filter that lets nearly all of them pass is no longer evaluated.
const TRIAL_ROWS: u64 = 256 * 1024;
/// That are evaluated at once. A LIKE takes a tenth of a microsecond for each, and 30 to begin.
const PIECE_ROWS: usize = 16 * 1024;

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
    /// It may be an error for some rows, which other conjuncts may keep from it.
    pub may_fail: bool,
    /// If it compares the only column with a constant of its type.
    simple: Option<(Comparison, i64)>,
    /// The same over the same columns, in the order of `columns`.
    native: Option<Native>,
    /// If it is an OR over several columns: what it is an OR of, each a list of conjuncts. What
    /// looks at one column only is then judged by that column's values.
    alternatives: Vec<Vec<Conjunct>>,
    rows_seen: AtomicU64,
    rows_passed: AtomicU64,
}

/// An expression of pipelines over columns of these types.
#[derive(Debug)]
struct Native {
    expr: Expr,
    types: Arc<[DataType]>,
}

/// What finds an expression of pipelines that means the same as one over a schema. Its registers are the
/// columns of that; `None`: there is none.
pub type Translate<'a> = &'a mut dyn FnMut(&Arc<dyn PhysicalExpr>, &Schema) -> Result<Option<Expr>>;

/// Whether evaluating it for some row may be an error.
pub fn may_fail(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let arithmetic = expr.downcast_ref::<BinaryExpr>().is_some_and(|b| {
        !matches!(b.op(), Operator::And | Operator::Or) && comparison(b.op()).is_none()
    });
    arithmetic
        || expr.is::<CaseExpr>()
        || expr.is::<CastExpr>()
        || expr.is::<ScalarFunctionExpr>()
        || expr.is::<TryCastExpr>()
        || expr.children().into_iter().any(may_fail)
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
        let may_fail = may_fail(&expr);
        // What DataFusion compares has the same type on both sides.
        let simple = simple(&expr);
        let mut alternatives = vec![];
        if columns.len() > 1 && stable && !dynamic {
            let parts = split_disjunction(&expr);
            let list = |part: &Arc<dyn PhysicalExpr>| {
                let conjuncts = split_conjunction(part).into_iter();
                conjuncts.map(|c| Conjunct::new(Arc::clone(c), table)).collect::<Result<Vec<_>>>()
            };
            if parts.len() > 1 {
                alternatives = parts.into_iter().map(list).collect::<Result<_>>()?;
            }
        }
        Ok(Conjunct {
            expr,
            compact,
            schema,
            columns,
            dynamic,
            stable,
            may_fail,
            simple,
            native: None,
            alternatives,
            rows_seen: AtomicU64::new(0),
            rows_passed: AtomicU64::new(0),
        })
    }

    /// The same, evaluated as pipelines do it where that is found.
    pub fn translated(&self, table: &SchemaRef, translate: Translate) -> Result<Self> {
        let mut conjunct = Conjunct::new(Arc::clone(&self.expr), table)?;
        conjunct.translate(translate)?;
        Ok(conjunct)
    }

    /// Whether it, or one of its alternatives, is evaluated as pipelines do it.
    pub fn is_native(&self) -> bool {
        self.native.is_some() || self.alternatives.iter().flatten().any(Conjunct::is_native)
    }

    fn translate(&mut self, translate: Translate) -> Result<()> {
        let types = || self.schema.fields().iter().map(|f| f.data_type().clone()).collect();
        let native = translate(&self.compact, &self.schema)?;
        self.native = native.map(|expr| Native { expr, types: types() });
        self.alternatives.iter_mut().flatten().try_for_each(|part| part.translate(translate))
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
    /// named by `columns`, in that order; in plain if it is not native.
    fn evaluate(&self, arrays: Vec<ArrayRef>, rows: usize) -> Result<BooleanBuffer> {
        if let Some(native) = &self.native {
            let mut batch = Batch::new(arrays, rows).compact_of(&native.types);
            return native.expr.truth(&mut batch).map_err(into_datafusion);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?;
        let value = self.compact.evaluate(&batch)?.into_array(rows)?;
        let mask = as_boolean_array(&value)?;
        Ok(match mask.nulls().filter(|nulls| nulls.null_count() > 0) {
            Some(nulls) => mask.values() & nulls.inner(),
            None => mask.values().clone(),
        })
    }

    /// As `evaluate`, piece by piece: `piece` gives the arrays of some rows.
    async fn evaluate_all(
        &self,
        piece: impl Fn(Range<usize>) -> Result<Vec<ArrayRef>>,
        rows: usize,
        time: &Time,
    ) -> Result<BooleanBuffer> {
        let mut passing = BooleanBufferBuilder::new(rows);
        while passing.len() < rows {
            let from = passing.len();
            let to = rows.min(from + PIECE_ROWS);
            let timer = time.timer();
            passing.append_buffer(&self.evaluate(piece(from..to)?, to - from)?);
            timer.done();
            checkpoint().await;
        }
        Ok(passing.finish())
    }

    /// Which values of the only column pass, if it comes as a dictionary of fewer than `rows`.
    async fn judge(&self, columns: &[&Column], rows: usize, time: &Time) -> Option<Verdict> {
        let [column] = columns else { return None };
        let dictionary = column.encoded.as_any_dictionary_opt()?;
        let (values, nulls) = (dictionary.values(), dictionary.keys().null_count() > 0);
        if !self.stable || values.len() >= rows {
            return None;
        }
        // An error may be due to a value of rows that are not asked for: those that are may tell.
        let piece = |rows: Range<usize>| Ok(vec![values.slice(rows.start, rows.len())]);
        let passing = self.evaluate_all(piece, values.len(), time).await.ok()?;
        let null = || self.evaluate(vec![new_null_array(values.data_type(), 1)], 1);
        let null_passes = nulls && null().ok()?.value(0);
        Some(Verdict { passing: passing.iter().collect(), null_passes })
    }

    /// Which of the whole numbers between the least and the greatest of the only column pass, if these are
    /// few beside `rows`.
    async fn judge_span(&self, columns: &[&Column], rows: usize, time: &Time) -> Option<Span> {
        let [column] = columns else { return None };
        let data_type = self.schema.field(0).data_type();
        if !self.stable || self.dynamic || !countable(data_type) {
            return None;
        }
        let timer = time.timer();
        let (low, high) = bounds(column.encoded.as_ref())?;
        let count = usize::try_from(high.checked_sub(low)?).ok()?.checked_add(1)?;
        if count > rows / SPAN_PART {
            return None;
        }
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(low..=high));
        let values = recounted(&values, data_type).ok()?;
        timer.done();
        // As in a dictionary.
        let piece = |rows: Range<usize>| Ok(vec![values.slice(rows.start, rows.len())]);
        let passing = self.evaluate_all(piece, count, time).await.ok()?;
        let nulls = column.encoded.null_count() > 0;
        let null = || self.evaluate(vec![new_null_array(data_type, 1)], 1);
        let null_passes = nulls && null().ok()?.value(0);
        let passing = passing.iter().collect();
        Some(Span { first: low, verdict: Verdict { passing, null_passes } })
    }

    /// Narrows `selection` to the rows that pass as well; `columns` are those it names. `time` is
    /// that of the work, without waits in between.
    pub async fn narrow(
        &self,
        selection: &mut Selection,
        columns: &[&Column],
        time: &Time,
    ) -> Result<()> {
        if !self.alternatives.is_empty() {
            return self.narrow_to_any(selection, columns, time).await;
        }
        let before = selection.len();
        let timer = time.timer();
        if let (Some((comparison, word)), [column]) = (self.simple, columns)
            && selection.compare(column.encoded.as_ref(), comparison, word)
        {
            return Ok(());
        }
        timer.done();
        if let Some(verdict) = self.judge(columns, before, time).await {
            let _timer = time.timer();
            let dictionary = columns[0].encoded.as_ref();
            selection.look_up(dictionary, &verdict.passing, verdict.null_passes);
        } else if let Some(Span { first, verdict }) = self.judge_span(columns, before, time).await {
            let _timer = time.timer();
            let numbers = columns[0].encoded.as_ref();
            selection.look_up_from(numbers, first, &verdict.passing, verdict.null_passes);
        } else if let Some(listed) = selection.listed() {
            // Predicates such as a look-up in a join's hash table cost more than to gather a few.
            let listed = UInt32Array::from(listed.to_vec());
            let piece = |rows: Range<usize>| {
                let rows = listed.slice(rows.start, rows.len());
                let taken = |c: &&Column| match self.native {
                    Some(_) => Ok(take(&c.encoded, &rows, None)?),
                    None => c.taken(&rows),
                };
                columns.iter().map(taken).collect()
            };
            selection.retain_listed(&self.evaluate_all(piece, before, time).await?);
        } else {
            let piece = |rows: Range<usize>| {
                let piece = |c: &&Column| match self.native {
                    Some(_) => Ok(c.encoded.slice(rows.start, rows.len())),
                    None => c.piece(rows.clone()),
                };
                columns.iter().map(piece).collect()
            };
            selection.intersect(&self.evaluate_all(piece, selection.rows(), time).await?);
        }
        self.count(before, selection.len());
        Ok(())
    }

    /// Narrows `selection` to the rows that pass one of the alternatives.
    async fn narrow_to_any(
        &self,
        selection: &mut Selection,
        columns: &[&Column],
        time: &Time,
    ) -> Result<()> {
        let mut passing: Option<Selection> = None;
        for alternative in &self.alternatives {
            let mut left = selection.clone();
            for conjunct in alternative {
                let place = |c: &usize| self.columns.binary_search(c).expect("one of its columns");
                let own: Vec<&Column> =
                    conjunct.columns.iter().map(|c| columns[place(c)]).collect();
                if !left.is_empty() {
                    Box::pin(conjunct.narrow(&mut left, &own, time)).await?;
                }
            }
            match &mut passing {
                None => passing = Some(left),
                Some(passing) => passing.unite(&left),
            }
        }
        *selection = passing.unwrap_or_else(|| selection.clone());
        Ok(())
    }

    fn count(&self, seen: usize, passed: usize) {
        if self.dynamic {
            self.rows_seen.fetch_add(seen as u64, Ordering::Relaxed);
            self.rows_passed.fetch_add(passed as u64, Ordering::Relaxed);
        }
    }
}

/// Of so many rows one value, or fewer, are judged.
const SPAN_PART: usize = 8;

/// The least and the greatest of whole numbers or dates, of which some may be less wide than they are in
/// plain. What stands in the place of a NULL may lie anywhere, and counts. `None`: it is no such array, or
/// it is empty.
fn bounds(array: &dyn Array) -> Option<(i64, i64)> {
    fn bounds<T: Copy + Ord + Into<i64>>(values: &[T]) -> Option<(i64, i64)> {
        let bounds = encoding::bounds(values.iter().copied());
        bounds.map(|(low, high)| (low.into(), high.into()))
    }
    match array.data_type() {
        DataType::Int8 => bounds(array.as_primitive::<Int8Type>().values()),
        DataType::Int16 => bounds(array.as_primitive::<Int16Type>().values()),
        DataType::Int32 => bounds(array.as_primitive::<Int32Type>().values()),
        DataType::Int64 => bounds(array.as_primitive::<Int64Type>().values()),
        DataType::UInt8 => bounds(array.as_primitive::<UInt8Type>().values()),
        DataType::UInt16 => bounds(array.as_primitive::<UInt16Type>().values()),
        DataType::UInt32 => bounds(array.as_primitive::<UInt32Type>().values()),
        DataType::Date32 => bounds(array.as_primitive::<Date32Type>().values()),
        _ => None,
    }
}

/// Which whole numbers from the first on pass a conjunct.
struct Span {
    first: i64,
    verdict: Verdict,
}

/// Which values of a dictionary pass a conjunct.
struct Verdict {
    passing: Vec<bool>,
    null_passes: bool,
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

/// What an operator compares, if it does.
pub fn comparison(op: &Operator) -> Option<Comparison> {
    Some(match op {
        Operator::Eq => Comparison::Equal,
        Operator::NotEq => Comparison::NotEqual,
        Operator::Lt => Comparison::Less,
        Operator::LtEq => Comparison::LessOrEqual,
        Operator::Gt => Comparison::Greater,
        Operator::GtEq => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

/// A comparison of a column with a constant, as one of words: see `encoding::words`.
fn simple(expr: &Arc<dyn PhysicalExpr>) -> Option<(Comparison, i64)> {
    let binary = expr.downcast_ref::<BinaryExpr>()?;
    let comparison = comparison(binary.op())?;
    binary.left().downcast_ref::<expressions::Column>()?;
    let literal = binary.right().downcast_ref::<Literal>()?;
    use ScalarValue as S;
    let word = match *literal.value() {
        S::Int8(Some(v)) => v.into(),
        S::Int16(Some(v)) => v.into(),
        S::Int32(Some(v)) | S::Date32(Some(v)) => v.into(),
        S::UInt8(Some(v)) => v.into(),
        S::UInt16(Some(v)) => v.into(),
        S::UInt32(Some(v)) => v.into(),
        S::Int64(Some(v)) | S::Date64(Some(v)) => v,
        S::TimestampSecond(Some(v), _)
        | S::TimestampMillisecond(Some(v), _)
        | S::TimestampMicrosecond(Some(v), _)
        | S::TimestampNanosecond(Some(v), _) => v,
        S::Decimal128(Some(v), _, _) => v.try_into().ok()?,
        _ => return None,
    };
    Some((comparison, word))
}

#[cfg(test)]
mod tests;
