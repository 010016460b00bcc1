//! [`Stub`] is a table of any size with any statistics; the tests of the join order use it too.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{MemTable, Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Result, ScalarValue, Statistics};
use datafusion::logical_expr::{Expr, LogicalPlan, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;

use super::estimate;

/// A table that has statistics, and rows only if it is given some.
#[derive(Debug)]
pub struct Stub {
    rows: usize,
    fields: Vec<Field>,
    columns: Vec<ColumnStatistics>,
    data: Option<MemTable>,
}

impl Stub {
    pub fn new(rows: usize) -> Self {
        Stub { rows, fields: Vec::new(), columns: Vec::new(), data: None }
    }

    pub fn over(data: MemTable, statistics: Statistics) -> Self {
        let fields = data.schema().fields().iter().map(|f| f.as_ref().clone()).collect();
        Stub {
            rows: statistics.num_rows.get_value().copied().unwrap_or(0),
            fields,
            columns: statistics.column_statistics,
            data: Some(data),
        }
    }

    fn column(mut self, name: &str, distinct: usize, min: ScalarValue, max: ScalarValue) -> Self {
        self.fields.push(Field::new(name, min.data_type(), true));
        self.columns.push(ColumnStatistics {
            null_count: Precision::Exact(0),
            min_value: Precision::Exact(min),
            max_value: Precision::Exact(max),
            distinct_count: Precision::Inexact(distinct),
            ..ColumnStatistics::new_unknown()
        });
        self
    }

    pub fn int(self, name: &str, distinct: usize, min: i64, max: i64) -> Self {
        let value = |v| ScalarValue::Int64(Some(v));
        self.column(name, distinct, value(min), value(max))
    }

    /// A dense integer key: 1 to the table's rows.
    pub fn key(self, name: &str) -> Self {
        let rows = self.rows;
        self.int(name, rows, 1, rows as i64)
    }

    pub fn text(self, name: &str, distinct: usize, min: &str, max: &str) -> Self {
        let value = |v: &str| ScalarValue::Utf8View(Some(v.to_string()));
        self.column(name, distinct, value(min), value(max))
    }

    /// Days since 1970.
    pub fn date(self, name: &str, distinct: usize, min: i32, max: i32) -> Self {
        let value = |v| ScalarValue::Date32(Some(v));
        self.column(name, distinct, value(min), value(max))
    }

    pub fn decimal(self, name: &str, distinct: usize, min: i128, max: i128) -> Self {
        let value = |v| ScalarValue::Decimal128(Some(v), 15, 2);
        self.column(name, distinct, value(min), value(max))
    }

    pub fn double(self, name: &str, distinct: usize, min: f64, max: f64) -> Self {
        let value = |v| ScalarValue::Float64(Some(v));
        self.column(name, distinct, value(min), value(max))
    }

    pub fn nulls(mut self, count: usize) -> Self {
        if let Some(column) = self.columns.last_mut() {
            column.null_count = Precision::Exact(count);
        }
        self
    }
}

#[async_trait]
impl TableProvider for Stub {
    fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.fields.clone()))
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match &self.data {
            Some(data) => data.scan(state, projection, filters, limit).await,
            None => {
                MemTable::try_new(self.schema(), vec![vec![]])?
                    .scan(state, projection, filters, limit)
                    .await
            }
        }
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(Statistics {
            num_rows: Precision::Exact(self.rows),
            total_byte_size: Precision::Absent,
            column_statistics: self.columns.clone(),
        })
    }
}

pub async fn plan(context: &SessionContext, sql: &str) -> LogicalPlan {
    let frame = context.sql(sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    frame.into_optimized_plan().unwrap_or_else(|e| panic!("{sql}: {e}"))
}

fn context() -> SessionContext {
    let context = SessionContext::new();
    let orders = Stub::new(1_500_000)
        .key("o_orderkey")
        .int("o_custkey", 100_000, 1, 150_000)
        .date("o_orderdate", 2406, 8035, 10440)
        .text("o_status", 3, "F", "P")
        .decimal("o_price", 1_400_000, 85_000, 55_528_000);
    let lines = Stub::new(6_000_000)
        .int("l_orderkey", 1_500_000, 1, 6_000_000)
        .decimal("l_discount", 11, 0, 10)
        .int("l_quantity", 50, 1, 50)
        .text("l_brand", 1000, "MFGR#1101", "MFGR#5540")
        .int("l_returned", 2, 0, 1)
        .nulls(4_500_000);
    for (name, table) in [("orders", orders), ("lines", lines)] {
        context.register_table(name, Arc::new(table)).expect("a fresh name");
    }
    context
}

/// The estimate is within a factor of 1.5 of the rows that uniform data would give.
async fn check(sql: &str, expected: f64) {
    let plan = plan(&context(), sql).await;
    let rows = estimate(&plan).rows;
    let ratio = rows / expected;
    assert!((1.0 / 1.5..=1.5).contains(&ratio), "{sql}: {rows}, not {expected}\n{plan}");
}

#[tokio::test]
async fn ranges_are_interpolated() {
    check("SELECT * FROM lines WHERE l_quantity < 24", 6e6 * 23.0 / 50.0).await;
    check("SELECT * FROM lines WHERE l_quantity BETWEEN 26 AND 35", 6e6 * 10.0 / 50.0).await;
    check("SELECT * FROM lines WHERE l_discount BETWEEN 0.05 AND 0.07", 6e6 * 3.0 / 11.0).await;
    check("SELECT * FROM lines WHERE l_discount >= 0.05 AND l_discount <= 0.07", 6e6 * 3.0 / 11.0)
        .await;
    check(
        "SELECT * FROM orders WHERE o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'",
        1.5e6 * 365.0 / 2406.0,
    )
    .await;
    check("SELECT * FROM orders WHERE o_orderdate > DATE '2030-01-01'", 1.5e6 / 2406.0).await;
    check("SELECT * FROM orders WHERE o_orderdate < TIMESTAMP '1995-04-16 00:00:00'", 1.5e6 * 0.5)
        .await;
    check("SELECT * FROM orders WHERE o_price > 277000.00", 1.5e6 * 0.5).await;
    // Eight of a thousand brands, of which the digits tell seven in 4 440.
    check(
        "SELECT * FROM lines WHERE l_brand BETWEEN 'MFGR#2221' AND 'MFGR#2240'",
        6e6 * 19.0 / 4440.0,
    )
    .await;
}

#[tokio::test]
async fn equalities_use_distinct_values() {
    check("SELECT * FROM orders WHERE o_status = 'O'", 5e5).await;
    check("SELECT * FROM orders WHERE o_status <> 'O'", 1e6).await;
    check("SELECT * FROM orders WHERE o_status IN ('O', 'F')", 1e6).await;
    check("SELECT * FROM orders WHERE o_status NOT IN ('O', 'F')", 5e5).await;
    check("SELECT * FROM orders WHERE o_status = 'O' OR o_orderkey = 7", 5e5).await;
    check("SELECT * FROM orders WHERE o_status = 'Z'", 1.0).await;
    check("SELECT * FROM orders WHERE o_orderkey = 7", 1.0).await;
    check("SELECT * FROM lines WHERE l_returned IS NULL", 4.5e6).await;
    check("SELECT * FROM lines WHERE l_returned IS NOT NULL", 1.5e6).await;
    check("SELECT * FROM lines WHERE l_returned = 1", 0.75e6).await;
    check("SELECT * FROM lines WHERE l_brand LIKE 'MFGR#12%'", 6e6 * 0.04).await;
    check("SELECT * FROM lines WHERE l_brand NOT LIKE '%#12%'", 6e6 * 0.9).await;
}

#[tokio::test]
async fn relations_other_than_tables() {
    check("SELECT o_status, count(*) FROM orders GROUP BY o_status", 3.0).await;
    check("SELECT o_status, o_orderdate, count(*) FROM orders GROUP BY 1, 2", 3.0 * 2406.0).await;
    check("SELECT DISTINCT o_custkey FROM orders", 1e5).await;
    check("SELECT DISTINCT o_custkey FROM orders WHERE o_orderkey < 1000", 1e3).await;
    check("SELECT count(*) FROM orders", 1.0).await;
    check("SELECT * FROM orders LIMIT 10", 10.0).await;
    check("SELECT o_orderkey FROM orders UNION ALL SELECT l_orderkey FROM lines", 7.5e6).await;
    check("SELECT * FROM orders JOIN lines ON o_orderkey = l_orderkey", 6e6).await;
    check("SELECT * FROM orders LEFT JOIN lines ON o_orderkey = l_orderkey", 6e6).await;
    check("SELECT * FROM orders JOIN lines ON o_orderkey = l_orderkey WHERE o_status = 'O'", 2e6)
        .await;
    check(
        "SELECT * FROM orders WHERE o_orderkey IN (SELECT l_orderkey FROM lines WHERE l_quantity = 1)",
        1.5e6 * 0.08,
    )
    .await;
    check("VALUES (1), (2), (3)", 3.0).await;
    check("SELECT row_number() OVER () FROM orders", 1.5e6).await;
}

#[tokio::test]
async fn columns_match_the_schema_whatever_the_node() {
    let context = context();
    for sql in [
        "SELECT 1",
        "SELECT o_status, o_custkey, count(*) FROM orders GROUP BY ROLLUP (o_status, o_custkey)",
        "SELECT *, sum(o_price) OVER (PARTITION BY o_status) FROM orders",
        "SELECT * FROM orders WHERE o_status = 'F' OR o_orderkey IN (SELECT l_orderkey FROM lines)",
        "SELECT * FROM orders FULL JOIN lines ON o_orderkey = l_orderkey",
        "SELECT DISTINCT ON (o_status) o_status, o_price FROM orders",
        "SELECT unnest([1, 2, 3])",
        "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n WHERE x < 5) SELECT * FROM n",
        "EXPLAIN SELECT * FROM orders",
    ] {
        let plan = plan(&context, sql).await;
        let estimate = estimate(&plan);
        assert_eq!(estimate.columns.len(), plan.schema().fields().len(), "{sql}");
        assert!(estimate.rows.is_finite() && estimate.rows >= 1.0, "{sql}");
    }
}

#[tokio::test]
async fn a_table_without_statistics_is_guessed() {
    let context = SessionContext::new();
    let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
    let table = MemTable::try_new(schema, vec![vec![]]).expect("an empty table");
    context.register_table("t", Arc::new(table)).expect("a fresh name");
    let all = estimate(&plan(&context, "SELECT * FROM t").await).rows;
    let some = estimate(&plan(&context, "SELECT * FROM t WHERE a = 1").await).rows;
    assert!(some < all);
}

/// The differences between the bounds of a column may be larger than the largest number.
#[tokio::test]
async fn ranges_as_wide_as_doubles_are_estimated() {
    let context = SessionContext::new();
    for (name, min, max) in [("t", -f64::MAX, f64::MAX), ("u", 9e15, f64::MAX)] {
        let table = Stub::new(1000).double("f", 2, min, max).double("g", 1000, min, max);
        context.register_table(name, Arc::new(table)).expect("a fresh name");
    }
    let bounds = ["0", "1e308", "-1e308", "1.7976931348623157e308", "'NaN'", "'inf'", "'-inf'"];
    for bound in bounds {
        for op in ["<", "<=", ">", ">=", "=", "<>"] {
            for table in ["t", "u"] {
                let asked = format!("{table}.f {op} CAST({bound} AS DOUBLE)");
                let asked = format!("{asked} AND {table}.g {op} CAST({bound} AS DOUBLE)");
                let sql = format!(
                    "SELECT * FROM {table} CROSS JOIN (VALUES (1)) v(a) WHERE {asked} AND NOT EXISTS
                     (SELECT 1 FROM (VALUES (1)) w(b) WHERE w.b = v.a)"
                );
                let rows = estimate(&plan(&context, &sql).await).rows;
                assert!((1.0..=1000.0).contains(&rows), "{sql}: {rows}");
            }
        }
    }
    let half = estimate(&plan(&context, "SELECT * FROM t WHERE g < 0").await).rows;
    assert!((450.0..550.0).contains(&half), "{half}");
}
