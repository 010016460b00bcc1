//! How many rows will a logical plan produce?
//!
//! [`estimate`] walks a plan bottom up and answers with rows and, per output column, the
//! number of distinct values, the share of nulls and the range. It starts from the statistics
//! of the catalog ([`TableProvider::statistics`]), and guesses where there are none.
//!
//! The model is the one of System R (Selinger et al., SIGMOD 1979): values are spread
//! uniformly, predicates on different columns are independent, and of two join columns the
//! values of the one with fewer are among those of the other (containment). Two decisions
//! go beyond it:
//!
//! * A column's `distinct` is the size of its *domain*: only predicates on the column itself
//!   shrink it. A filter elsewhere in the table thins rows out, and a join with the thinned
//!   table then keeps the share that is left: `|R'| |S'| / max(V(R,a), V(S,b))` over the
//!   unfiltered `V`, as Swami and Schiefer (EDBT 1994) derive. Where the number of values
//!   really present counts (groups, semi joins), [`Column::present`] computes it.
//! * Several join keys at once are not independent when they are a composite key: the product
//!   of their distinct values is held to the rows of their table, see `join_order::search`.
//!
//! Estimates are finite and at least one row, so that no product of them vanishes.
//!
//! [`TableProvider::statistics`]: datafusion::catalog::TableProvider::statistics

pub mod selectivity;
#[cfg(test)]
pub(crate) mod tests;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::stats::Precision;
use datafusion::common::{Column as Name, DFSchema, Dependency, ScalarValue, Statistics};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, FetchType, Join, JoinType, Limit, LogicalPlan, SkipType, TableScan,
};

/// Rows of a relation nothing is known about. Such a relation is external, and an external
/// file worth a query is rarely small; too high a guess costs a worse build side, too low a
/// one a hash table of the whole file.
const ROWS_GUESS: f64 = 100_000.0;

/// Share of a relation's rows that are distinct in a column nothing is known about, where
/// values are counted (`GROUP BY`). The 1/10 of Selinger's `column = value`.
const DISTINCT_SHARE_GUESS: f64 = 0.1;

/// Share of the left rows a semi join keeps when the distinct values do not tell.
const SEMI_SHARE_GUESS: f64 = 0.5;

/// Elements of a list that `UNNEST` turns into rows.
const UNNEST_ROWS_GUESS: f64 = 4.0;

/// What is known of an output column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Column {
    /// Size of the domain, at least one; `None`: unknown.
    pub distinct: Option<f64>,
    /// Share of the rows that are null, 0 to 1.
    pub nulls: f64,
    /// Least and greatest value.
    pub range: Option<(ScalarValue, ScalarValue)>,
}

impl Column {
    fn unique(rows: f64) -> Self {
        Column { distinct: Some(rows), ..Column::default() }
    }

    /// Domain for the denominator of a join, over a relation of `base_rows`. An unknown one is
    /// taken to be a key: then a join keeps the rows of its larger side, the case of a foreign
    /// key.
    pub fn domain(&self, base_rows: f64) -> f64 {
        self.distinct.unwrap_or(base_rows).clamp(1.0, base_rows.max(1.0))
    }

    /// Distinct values that `rows` rows drawn from the domain show (Cardenas, CACM 1975).
    pub fn present(&self, rows: f64) -> f64 {
        match self.distinct {
            None => (rows * DISTINCT_SHARE_GUESS).max(1.0),
            Some(domain) if domain <= 1.0 => 1.0,
            // exp(-rows / domain) is (1 - 1/domain)^rows without its loss of precision.
            Some(domain) => (domain * -(-rows / domain).exp_m1()).clamp(1.0, rows.max(1.0)),
        }
    }
}

/// What is known of a plan's output.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// Estimated rows, at least one.
    pub rows: f64,
    /// Rows before the filters of this relation: what its columns' domains refer to.
    pub base_rows: f64,
    /// The plan cannot give more than one row (an aggregate without groups, `LIMIT 1`).
    pub single_row: bool,
    /// In the order of the plan's schema.
    pub columns: Vec<Column>,
}

impl Estimate {
    fn new(rows: f64, columns: Vec<Column>) -> Self {
        let rows = counted(rows, f64::MAX);
        Estimate { rows, base_rows: rows, single_row: false, columns }
    }

    fn unknown(rows: f64, columns: usize) -> Self {
        Estimate::new(rows, vec![Column::default(); columns])
    }

    fn filtered(mut self, rows: f64) -> Self {
        self.rows = counted(rows, self.rows);
        self
    }
}

/// A number of rows, of at most so many. Products of huge and of tiny numbers may come to no number (`inf * 0`),
/// which says nothing: all rows are then as good a guess as any, as long as they can be counted at all.
fn counted(rows: f64, rows_max: f64) -> f64 {
    let rows = if rows.is_nan() { rows_max.min(ROWS_GUESS) } else { rows };
    rows.clamp(1.0, rows_max)
}

/// The column of `schema` that `name` means.
pub fn lookup<'a>(schema: &DFSchema, columns: &'a [Column], name: &Name) -> Option<&'a Column> {
    columns.get(schema.maybe_index_of_column(name)?)
}

/// Sets of columns (by index) of which no two rows of `plan` agree: declared keys and what
/// was grouped by.
pub fn keys(plan: &LogicalPlan) -> Vec<Vec<usize>> {
    let schema = plan.schema();
    schema
        .functional_dependencies()
        .iter()
        .filter(|d| d.mode == Dependency::Single && d.target_indices.len() == schema.fields().len())
        .map(|d| d.source_indices.clone())
        .collect()
}

/// Estimates the output of `plan`. Costs one call of `TableProvider::statistics` per scan.
pub fn estimate(plan: &LogicalPlan) -> Estimate {
    let width = plan.schema().fields().len();
    let mut estimate = match plan {
        LogicalPlan::TableScan(scan) => of_scan(scan),
        LogicalPlan::Filter(filter) => {
            let input = estimate(&filter.input);
            let schema = filter.input.schema();
            // A provider that uses a filter inexactly leaves a copy of it above its scan.
            let scanned = match filter.input.as_ref() {
                LogicalPlan::TableScan(scan) => scan.filters.as_slice(),
                _ => &[],
            };
            let predicates: Vec<&Expr> = split_conjunction(&filter.predicate)
                .into_iter()
                .filter(|p| !scanned.contains(p))
                .collect();
            filter_by(input, &predicates, &|name| schema.maybe_index_of_column(name))
        }
        LogicalPlan::Projection(projection) => {
            let input = estimate(&projection.input);
            let schema = projection.input.schema();
            let columns =
                projection.expr.iter().map(|e| of_expr(e, schema, &input)).collect::<Vec<_>>();
            Estimate { columns, ..input }
        }
        LogicalPlan::SubqueryAlias(alias) => estimate(&alias.input),
        LogicalPlan::Subquery(subquery) => estimate(&subquery.subquery),
        LogicalPlan::Repartition(repartition) => estimate(&repartition.input),
        LogicalPlan::Sort(sort) => {
            let input = estimate(&sort.input);
            match sort.fetch {
                Some(fetch) => limited(input, 0, fetch),
                None => input,
            }
        }
        LogicalPlan::Limit(limit) => of_limit(limit),
        LogicalPlan::Aggregate(aggregate) => of_aggregate(aggregate),
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let input = estimate(input);
            let rows = groups(input.columns.iter(), input.rows);
            let single_row = input.single_row;
            Estimate { single_row, ..Estimate::new(rows, input.columns) }
        }
        LogicalPlan::Distinct(Distinct::On(on)) => {
            let input = estimate(&on.input);
            let schema = on.input.schema();
            let keys: Vec<Column> = on.on_expr.iter().map(|e| of_expr(e, schema, &input)).collect();
            Estimate::unknown(groups(keys.iter(), input.rows), width)
        }
        LogicalPlan::Window(window) => {
            let mut input = estimate(&window.input);
            input.columns.resize(width, Column::default());
            input
        }
        LogicalPlan::Join(join) => of_join(join),
        LogicalPlan::Union(union) => {
            let inputs: Vec<Estimate> = union.inputs.iter().map(|i| estimate(i)).collect();
            let rows = inputs.iter().map(|i| i.rows).sum();
            let columns = (0..width).map(|c| united(&inputs, c)).collect();
            Estimate::new(rows, columns)
        }
        LogicalPlan::Values(values) => Estimate::unknown(values.values.len() as f64, width),
        LogicalPlan::EmptyRelation(_) => {
            Estimate { single_row: true, ..Estimate::unknown(1.0, width) }
        }
        LogicalPlan::Unnest(unnest) => {
            let input = estimate(&unnest.input);
            let lists = if unnest.list_type_columns.is_empty() { 1.0 } else { UNNEST_ROWS_GUESS };
            Estimate::unknown(input.rows * lists, width)
        }
        // Commands, extensions and recursion: nothing a join could be ordered by. One input
        // (an extension such as a fused operator) is at least a better guess than none.
        other => match other.inputs().as_slice() {
            [input] => Estimate::unknown(estimate(input).rows, width),
            _ => Estimate::unknown(ROWS_GUESS, width),
        },
    };
    // The callers index `columns` by the schema: hold them to it whatever the node was.
    estimate.columns.resize(width, Column::default());
    estimate
}

fn of_scan(scan: &TableScan) -> Estimate {
    let schema = scan.source.schema();
    let statistics = source_as_provider(&scan.source).ok().and_then(|p| p.statistics());
    let mut table = match statistics {
        Some(statistics) => of_statistics(&statistics, schema.fields().len()),
        // A view the analyzer has not inlined.
        None => match scan.source.get_logical_plan() {
            Some(view) => estimate(&view),
            None => Estimate::unknown(ROWS_GUESS, schema.fields().len()),
        },
    };
    // Filters may use columns that are not in the scan's output.
    let predicates: Vec<&Expr> = scan.filters.iter().flat_map(split_conjunction).collect();
    table = filter_by(table, &predicates, &|name| schema.index_of(&name.name).ok());
    if let Some(projection) = &scan.projection {
        table.columns =
            projection.iter().map(|&i| table.columns.get(i).cloned().unwrap_or_default()).collect();
    }
    match scan.fetch {
        Some(fetch) => limited(table, 0, fetch),
        None => table,
    }
}

/// Estimates the rows of a table of which `filters` leave some.
pub fn of_filtered(statistics: &Statistics, schema: &Schema, filters: &[Expr]) -> Estimate {
    let table = of_statistics(statistics, schema.fields().len());
    let predicates: Vec<&Expr> = filters.iter().flat_map(split_conjunction).collect();
    filter_by(table, &predicates, &|name| schema.index_of(&name.name).ok())
}

fn of_statistics(statistics: &Statistics, width: usize) -> Estimate {
    let rows = statistics.num_rows.get_value().map_or(ROWS_GUESS, |&r| r as f64);
    let columns = (0..width)
        .map(|i| {
            let Some(column) = statistics.column_statistics.get(i) else {
                return Column::default();
            };
            let value =
                |p: &Precision<ScalarValue>| p.get_value().filter(|v| !v.is_null()).cloned();
            let range = value(&column.min_value).zip(value(&column.max_value));
            let nulls = column.null_count.get_value().map_or(0.0, |&n| n as f64 / rows.max(1.0));
            // A dense integer or date range bounds the distinct values where they were not
            // counted.
            let span = range.as_ref().and_then(|(min, max)| selectivity::span(min, max));
            let distinct = match column.distinct_count.get_value() {
                Some(&d) => Some(d as f64),
                None => span.filter(|&s| s < rows),
            };
            Column {
                distinct: distinct.map(|d| d.clamp(1.0, rows.max(1.0))),
                nulls: nulls.clamp(0.0, 1.0),
                range,
            }
        })
        .collect();
    Estimate::new(rows, columns)
}

fn filter_by(
    mut input: Estimate,
    predicates: &[&Expr],
    index: &dyn Fn(&Name) -> Option<usize>,
) -> Estimate {
    if predicates.is_empty() {
        return input;
    }
    let columns = &input.columns;
    let selected =
        selectivity::conjunction(predicates, &|name| index(name).and_then(|i| columns.get(i)));
    let narrowed: Vec<(usize, Column)> = selected
        .columns
        .into_iter()
        .filter_map(|(name, column)| Some((index(&name)?, column)))
        .collect();
    for (i, column) in narrowed {
        if let Some(slot) = input.columns.get_mut(i) {
            *slot = column;
        }
    }
    let rows = input.rows * selected.share;
    input.filtered(rows)
}

/// What is known of the values of `expr` over `input`.
pub fn of_expr(expr: &Expr, schema: &DFSchema, input: &Estimate) -> Column {
    match expr {
        Expr::Column(name) => lookup(schema, &input.columns, name).cloned().unwrap_or_default(),
        Expr::Alias(alias) => of_expr(&alias.expr, schema, input),
        // The range is in the type before the cast, hence of no use to predicates after it.
        Expr::Cast(cast) => Column { range: None, ..of_expr(&cast.expr, schema, input) },
        Expr::Literal(value, _) => Column {
            distinct: Some(1.0),
            nulls: if value.is_null() { 1.0 } else { 0.0 },
            range: None,
        },
        // A function has no more values than its arguments' combinations.
        _ => {
            let names = expr.column_refs();
            let mut values = 1.0;
            for name in names {
                match lookup(schema, &input.columns, name).and_then(|c| c.distinct) {
                    Some(d) => values *= d,
                    None => return Column::default(),
                }
            }
            Column { distinct: Some(values.min(input.base_rows)), ..Column::default() }
        }
    }
}

/// Combinations of values present in `rows` rows.
fn groups<'a>(columns: impl Iterator<Item = &'a Column>, rows: f64) -> f64 {
    let mut product = 1.0;
    for column in columns {
        product *= column.present(rows) + if column.nulls > 0.0 { 1.0 } else { 0.0 };
        if product >= rows {
            return rows;
        }
    }
    product
}

fn of_aggregate(aggregate: &Aggregate) -> Estimate {
    let width = aggregate.schema.fields().len();
    if aggregate.group_expr.is_empty() {
        return Estimate { single_row: true, ..Estimate::unknown(1.0, width) };
    }
    let input = estimate(&aggregate.input);
    let schema = aggregate.input.schema();
    if let [Expr::GroupingSet(sets)] = aggregate.group_expr.as_slice() {
        let keys: Vec<Column> =
            sets.distinct_expr().into_iter().map(|e| of_expr(e, schema, &input)).collect();
        return Estimate::unknown(groups(keys.iter(), input.rows), width);
    }
    let mut columns: Vec<Column> =
        aggregate.group_expr.iter().map(|e| of_expr(e, schema, &input)).collect();
    let rows = groups(columns.iter(), input.rows);
    for column in &mut columns {
        column.distinct = column.distinct.map(|d| d.min(rows));
    }
    if let [column] = columns.as_mut_slice() {
        *column = Column { range: column.range.take(), ..Column::unique(rows) };
    }
    columns.resize(width, Column::default());
    Estimate::new(rows, columns)
}

fn of_limit(limit: &Limit) -> Estimate {
    let input = estimate(&limit.input);
    let skip = match limit.get_skip_type() {
        Ok(SkipType::Literal(skip)) => skip,
        _ => 0,
    };
    match limit.get_fetch_type() {
        Ok(FetchType::Literal(Some(fetch))) => limited(input, skip, fetch),
        _ => {
            let rows = input.rows - skip as f64;
            input.filtered(rows)
        }
    }
}

fn limited(input: Estimate, skip: usize, fetch: usize) -> Estimate {
    let rows = (input.rows - skip as f64).min(fetch as f64);
    let single_row = input.single_row || fetch <= 1;
    let columns = input
        .columns
        .into_iter()
        .map(|c| Column { distinct: c.distinct.map(|d| d.min(rows.max(1.0))), ..c })
        .collect();
    Estimate { single_row, ..Estimate::new(rows, columns) }
}

fn united(inputs: &[Estimate], column: usize) -> Column {
    let mut rows = 0.0;
    let mut nulls = 0.0;
    let mut distinct = Some(0.0f64);
    for input in inputs {
        let c = input.columns.get(column).cloned().unwrap_or_default();
        rows += input.rows;
        nulls += input.rows * c.nulls;
        // Inputs of a union usually come from the same domain.
        distinct = distinct.zip(c.distinct).map(|(a, b)| a.max(b));
    }
    Column { distinct, nulls: nulls / rows.max(1.0), range: None }
}

/// A join that is not part of an inner-join cluster, or the inside of one that is a leaf of
/// another.
fn of_join(join: &Join) -> Estimate {
    let (left, right) = (estimate(&join.left), estimate(&join.right));
    let (ls, rs) = (join.left.schema(), join.right.schema());
    let mut share = 1.0f64;
    let mut left_kept = 1.0f64;
    let mut right_kept = 1.0f64;
    let (mut left_values, mut right_values) = (1.0f64, 1.0f64);
    for (l, r) in &join.on {
        let (l, r) = (of_expr(l, ls, &left), of_expr(r, rs, &right));
        left_values *= l.domain(left.base_rows);
        right_values *= r.domain(right.base_rows);
        let (lp, rp) = (l.present(left.rows), r.present(right.rows));
        left_kept = left_kept.min((rp / l.domain(left.base_rows)).min(1.0) * (1.0 - l.nulls));
        right_kept = right_kept.min((lp / r.domain(right.base_rows)).min(1.0) * (1.0 - r.nulls));
    }
    if !join.on.is_empty() {
        share = 1.0 / left_values.min(left.base_rows).max(right_values.min(right.base_rows));
    }
    if let Some(filter) = &join.filter {
        let columns = |name: &Name| {
            lookup(ls, &left.columns, name).or_else(|| lookup(rs, &right.columns, name))
        };
        let filtered = selectivity::conjunction(&split_conjunction(filter), &columns).share;
        share *= filtered;
        if join.on.is_empty() {
            left_kept = SEMI_SHARE_GUESS;
            right_kept = SEMI_SHARE_GUESS;
        } else {
            left_kept *= filtered.max(SEMI_SHARE_GUESS);
            right_kept *= filtered.max(SEMI_SHARE_GUESS);
        }
    }
    let inner = left.rows * right.rows * share;
    let anti = |kept: f64| (1.0 - kept).max(1.0 - selectivity::SHARE_MAX);
    match join.join_type {
        JoinType::LeftSemi => {
            let rows = left.rows * left_kept;
            left.filtered(rows)
        }
        JoinType::LeftAnti => {
            let rows = left.rows * anti(left_kept);
            left.filtered(rows)
        }
        JoinType::RightSemi => {
            let rows = right.rows * right_kept;
            right.filtered(rows)
        }
        JoinType::RightAnti => {
            let rows = right.rows * anti(right_kept);
            right.filtered(rows)
        }
        JoinType::LeftMark | JoinType::RightMark => {
            let mut kept = if join.join_type == JoinType::LeftMark { left } else { right };
            kept.columns.push(Column { distinct: Some(2.0), ..Column::default() });
            kept
        }
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
            let rows = match join.join_type {
                JoinType::Left => inner.max(left.rows),
                JoinType::Right => inner.max(right.rows),
                JoinType::Full => inner.max(left.rows).max(right.rows),
                _ => inner,
            };
            let mut columns = left.columns;
            columns.extend(right.columns);
            Estimate {
                single_row: left.single_row && right.single_row,
                ..Estimate::new(rows, columns)
            }
        }
    }
}
