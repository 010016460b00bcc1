//! A stored table as DataFusion sees it.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, DFSchema, Result, Statistics};
use datafusion::datasource::TableType;
use datafusion::datasource::sink::DataSinkExec;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use thalweg_base::Error;
use thalweg_storage::{Layout, Table};

use thalweg_errors::into_datafusion;
use thalweg_exec::prune::scalar;
use thalweg_exec::{ScanExec, Source, with_row_id};
use thalweg_plan::cardinality;

use crate::sink::TableSink;
use crate::transaction::Transactions;
use crate::write::Target;
use crate::zoned;

pub struct StoredTable {
    source: Source,
    /// With the hidden column, if it is offered, and instants in the session's zone.
    schema: SchemaRef,
    /// The same as it is stored.
    stored: SchemaRef,
    /// Offers a last column of what names each row to `Transaction::delete`.
    row_ids: bool,
    /// Where rows that are inserted go. Plans are kept beyond the session that made them, and its
    /// transactions are not.
    transactions: Weak<Transactions>,
    statistics: OnceLock<Statistics>,
}

impl fmt::Debug for StoredTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredTable({})", self.source.name)
    }
}

/// Statistics of a table of which a filter leaves a `share`, for the physical planner.
fn thinned(statistics: Statistics, share: f64) -> Statistics {
    let mut thin = statistics.to_inexact();
    let scale = |n: Precision<usize>| match n.get_value() {
        Some(n) => Precision::Inexact((*n as f64 * share).ceil() as usize),
        None => Precision::Absent,
    };
    thin.num_rows = scale(thin.num_rows);
    thin.total_byte_size = scale(thin.total_byte_size);
    for column in &mut thin.column_statistics {
        column.null_count = scale(column.null_count);
        column.byte_size = scale(column.byte_size);
        column.distinct_count = column.distinct_count.min(&thin.num_rows);
    }
    thin
}

impl StoredTable {
    /// With `row_ids`, it has a last column [`ROW_ID`](thalweg_exec::ROW_ID). Instants are shown in `zone`.
    pub fn new(
        source: Source,
        row_ids: bool,
        transactions: &Arc<Transactions>,
        zone: Option<&str>,
    ) -> Self {
        let columns = &source.contents.arrow_schema;
        let stored = if row_ids { with_row_id(columns) } else { Arc::clone(columns) };
        let schema = zoned::shown(&stored, zone).unwrap_or_else(|| Arc::clone(&stored));
        let statistics = OnceLock::new();
        let transactions = Arc::downgrade(transactions);
        StoredTable { source, schema, stored, row_ids, transactions, statistics }
    }

    pub fn table(&self) -> &Arc<Table> {
        &self.source.table
    }

    fn all_statistics(&self) -> &Statistics {
        self.statistics.get_or_init(|| {
            let contents = &self.source.contents;
            let columns = (0..contents.arrow_schema.fields().len()).map(|c| {
                let s = contents.column_statistics(c);
                let bound = |exact: bool, array: &Option<arrow::array::ArrayRef>| match array
                    .as_ref()
                    .map(|a| scalar(a))
                {
                    Some(Ok(value)) if !value.is_null() && exact => Precision::Exact(value),
                    Some(Ok(value)) if !value.is_null() => Precision::Inexact(value),
                    _ => Precision::Absent,
                };
                ColumnStatistics {
                    null_count: if s.nulls_exact {
                        Precision::Exact(s.nulls as usize)
                    } else {
                        Precision::Inexact(s.nulls as usize)
                    },
                    max_value: bound(s.max_exact, &s.max),
                    min_value: bound(s.min_exact, &s.min),
                    sum_value: Precision::Absent,
                    distinct_count: match s.distinct {
                        Some(n) => Precision::Inexact(n as usize),
                        None => Precision::Absent,
                    },
                    byte_size: Precision::Inexact(s.value_bytes as usize),
                }
            });
            let mut columns: Vec<ColumnStatistics> = columns.collect();
            columns.resize(self.schema.fields().len(), ColumnStatistics::new_unknown());
            let bytes = columns.iter().filter_map(|c| c.byte_size.get_value().copied()).sum();
            Statistics {
                num_rows: Precision::Exact(contents.rows() as usize),
                total_byte_size: Precision::Inexact(bytes),
                column_statistics: columns,
            }
        })
    }
}

#[async_trait]
impl TableProvider for StoredTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        // The scan evaluates any expression over its own columns, exactly.
        Ok(vec![TableProviderFilterPushDown::Exact; filters.len()])
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(self.all_statistics().clone())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = Arc::clone(&self.stored);
        let is_shown = Arc::ptr_eq(&self.schema, &schema);
        let asked: Vec<Expr>;
        let filters = match is_shown {
            true => filters,
            false => {
                let ask = |f: &Expr| zoned::asked(f.clone(), &schema, &self.schema);
                asked = filters.iter().map(ask).collect::<Result<_>>()?;
                &asked
            }
        };
        let projection = match projection {
            Some(columns) => columns.clone(),
            None => (0..schema.fields().len()).collect(),
        };
        let all = self.all_statistics();
        let mut statistics = all.clone().project(Some(&projection));
        let mut conjuncts = Vec::with_capacity(filters.len());
        if !filters.is_empty() {
            let df_schema = DFSchema::try_from(Arc::clone(&schema))?;
            for filter in filters {
                conjuncts.push(state.create_physical_expr(filter.clone(), &df_schema)?);
            }
            let left = cardinality::of_filtered(all, &schema, filters).rows;
            statistics = thinned(statistics, left / (self.source.contents.rows() as f64).max(1.0));
        }
        if let Some(limit) = limit {
            statistics = statistics.with_fetch(Some(limit), 0, 1)?;
        }
        let partitions = state.config().target_partitions();
        let scan = ScanExec::new(
            self.source.clone(),
            self.row_ids.then(|| Arc::clone(&schema)),
            projection.clone(),
            conjuncts,
            limit,
            partitions,
            statistics,
        )?;
        match is_shown {
            true => Ok(Arc::new(scan)),
            false => zoned::relabelled(Arc::new(scan), &self.schema, &projection),
        }
    }

    async fn insert_into(
        &self,
        state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if op == InsertOp::Replace {
            return Err(into_datafusion(
                Error::unsupported("REPLACE INTO is not supported: tables have no keys")
                    .hint("INSERT OVERWRITE replaces all rows, INSERT INTO adds some"),
            ));
        }
        let transactions = self.transactions.upgrade();
        let transactions = transactions
            .ok_or_else(|| into_datafusion(Error::internal("the session is closed")))?;
        let table = &self.source.table;
        let sink = TableSink {
            target: Target { database: self.source.database.clone(), layout: Layout::of(table) },
            table: table.id,
            name: self.source.name.clone(),
            overwrite: op != InsertOp::Append,
            writers: state.config().target_partitions(),
            transactions,
        };
        Ok(Arc::new(DataSinkExec::new(input, Arc::new(sink), None)))
    }
}
