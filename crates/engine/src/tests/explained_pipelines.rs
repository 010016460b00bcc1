//! What `EXPLAIN ANALYZE` shows of pipelines.

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use thalweg_base::Kind;

use crate::{Config, Engine};

/// The line of the pipeline whose source is the table, and its figures.
fn pipeline(config: Config, sql: &str) -> String {
    let engine = Engine::open(":memory:", config).unwrap();
    let session = engine.session();
    let run = |sql: &str| {
        let collected = engine.block_on(async { session.query(sql).await?.collect().await });
        collected.unwrap_or_else(|e| panic!("{sql}: {e}"))
    };
    run("CREATE TABLE t AS SELECT value AS a, (value % 7)::INT AS b FROM range(0, 20000)");
    let plan = run(&format!("EXPLAIN ANALYZE {sql}"));
    let plan = Arc::clone(plan[0].column(1));
    let plan = arrow::compute::cast(&plan, &arrow::datatypes::DataType::Utf8).unwrap();
    let plan = plan.as_string::<i32>().value(0).to_string();
    let found = plan.lines().find(|line| line.contains("→ aggregate") || line.contains(": aggreg"));
    found.unwrap_or_else(|| panic!("no such pipeline: {plan}")).to_string()
}

const SQL: &str = "SELECT b, sum(a) FROM t GROUP BY b";

#[test]
fn a_pipeline_shows_what_it_reads_and_where_its_time_goes() {
    let line = pipeline(Config::default(), SQL);
    for figure in ["rows_in=20.00 K", "rows_out=20.00 K", "bytes_in=60.00 K"] {
        assert!(line.contains(figure), "{figure} is not in {line}");
    }
    for time in ["time_in_source=", "time_in_steps=", "time_in_sink="] {
        assert!(line.contains(time), "{time} is not in {line}");
    }
    assert!(!line.contains("time_in_probes"), "{line}");
    let probes = "SELECT t.b, count(*) FROM t JOIN (VALUES (1), (2)) v (k) ON t.b = v.k GROUP BY 1";
    let line = pipeline(Config::default(), probes);
    assert!(line.contains("time_in_probes="), "{line}");
}

#[test]
fn what_the_scan_filters_by_counts_once() {
    // All rows of `a`, of two bytes each, and half of those of `b`, of one.
    let line = pipeline(Config::default(), "SELECT sum(b) FROM t WHERE a % 2 = 0");
    assert!(line.contains("bytes_in=50.00 K"), "{line}");
    let line = pipeline(Config::default(), "SELECT sum(a) FROM t WHERE a % 2 = 0");
    assert!(line.contains("bytes_in=40.00 K"), "{line}");
}

#[test]
fn rows_are_grouped_by_those_of_a_table_that_decides_their_texts() {
    let engine = Engine::open(":memory:", Config::default()).unwrap();
    let session = engine.session();
    let run = |sql: &str| {
        let collected = engine.block_on(async { session.query(sql).await?.collect().await });
        collected.unwrap_or_else(|e| panic!("{sql}: {e}"))
    };
    run("CREATE TABLE sale AS SELECT value % 100 AS item, value AS n FROM range(0, 20000)");
    run("CREATE TABLE item AS SELECT value AS id, 'item ' || value AS name, \
         'brand ' || value % 5 AS brand FROM range(0, 100)");
    let are = |sql: &str| {
        let plan = run(&format!("EXPLAIN {sql}"));
        let plan = arrow::util::pretty::pretty_format_batches(&plan).unwrap().to_string();
        assert!(plan.contains("aggregate"), "{plan}");
        plan.contains("fetch from")
    };
    let join = "FROM sale JOIN item ON sale.item = item.id";
    assert!(are(&format!("SELECT name, sum(n) {join} GROUP BY name")));
    assert!(are(&format!("SELECT name, brand, avg(n) {join} GROUP BY ROLLUP (name, brand)")));
    assert!(are(&format!("SELECT name, n % 3, avg(n) {join} GROUP BY name, n % 3")));
    // Many rows have the same text.
    assert!(!are(&format!("SELECT brand, sum(n) {join} GROUP BY brand")));
    // Not each row has a row of the table.
    let outer = "FROM sale LEFT JOIN item ON sale.item = item.id";
    assert!(!are(&format!("SELECT name, sum(n) {outer} GROUP BY name")));
    // Groups of groups are no help.
    assert!(!are(&format!("SELECT name, count(DISTINCT n) {join} GROUP BY name")));
    // Somebody else has to read the text of each row; but not of each column.
    let read = format!("{join} AND length(name) > n % 10");
    assert!(!are(&format!("SELECT name, sum(n) {read} GROUP BY name")));
    assert!(are(&format!("SELECT name, brand, sum(n) {read} GROUP BY name, brand")));
    assert!(!are(&format!("SELECT name, max(name) {join} GROUP BY name")));
    // Hardly more rows than the table has.
    assert!(!are(&format!("SELECT name, sum(n) {join} WHERE n < 150 GROUP BY name")));
}

#[test]
fn what_is_the_same_in_a_whole_partition_is_not_sorted_for() {
    let engine = Engine::open(":memory:", Config::default()).unwrap();
    let session = engine.session();
    let run = |sql: &str| {
        let collected = engine.block_on(async { session.query(sql).await?.collect().await });
        collected.unwrap_or_else(|e| panic!("{sql}: {e}"))
    };
    run("CREATE TABLE t AS SELECT value % 100 AS k, value AS n FROM range(0, 20000)");
    let is_sorted = |output: &str| {
        let plan = run(&format!("EXPLAIN SELECT {output} FROM t"));
        let plan = arrow::util::pretty::pretty_format_batches(&plan).unwrap().to_string();
        assert_ne!(plan.contains("window #"), plan.contains("probe #"), "{plan}");
        plan.contains("window #")
    };
    assert!(!is_sorted("n, sum(n) OVER (PARTITION BY k), count(*) OVER (PARTITION BY k)"));
    assert!(!is_sorted("n, max(n) OVER ()"));
    assert!(!is_sorted("sum(n) OVER (PARTITION BY k % 7)"));
    // Each row would be a partition.
    assert!(is_sorted("sum(k) OVER (PARTITION BY n)"));
    assert!(is_sorted("sum(n) OVER (PARTITION BY k ORDER BY n)"));
    assert!(is_sorted("sum(n) OVER (PARTITION BY k), row_number() OVER (PARTITION BY k)"));
    // The rows of a partition come in an order.
    assert!(is_sorted("array_agg(n) OVER (PARTITION BY k)"));
    // Read twice, these would be others.
    assert!(is_sorted("sum(n) OVER (PARTITION BY random() < 0.5)"));
}

#[test]
fn the_share_of_the_bandwidth_is_there_if_that_is_known() {
    let known = Config { memory_bytes_per_s: Some(1 << 30), ..Config::default() };
    let line = pipeline(known, SQL);
    assert!(line.contains("of_memory_bandwidth=") && line.contains('%'), "{line}");
    let line = pipeline(Config::default(), SQL);
    assert!(!line.contains("bandwidth"), "{line}");
}

#[test]
fn a_panic_is_an_error_and_never_fewer_rows() {
    let engine = Engine::open(":memory:", Config { threads: 2, ..Config::default() }).unwrap();
    let session = engine.session();
    let run = |sql: &str| engine.block_on(async { session.query(sql).await?.collect().await });
    run("CREATE TABLE t AS SELECT value AS a, value % 7 AS b FROM range(0, 200000)").unwrap();
    session.context().register_udf(create_udf(
        "falls",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Immutable,
        Arc::new(|arguments: &[ColumnarValue]| {
            let values = arguments[0].to_array(1)?;
            let found = values.as_primitive::<Int64Type>().iter().flatten().any(|a| a == 150_000);
            assert!(!found, "it falls");
            Ok(arguments[0].clone())
        }),
    ));
    for sql in [
        "SELECT b, sum(falls(a)) FROM t GROUP BY b",
        "SELECT falls(a), b FROM t WHERE b < 5",
        "SELECT falls(a), count(*) FROM t GROUP BY 1",
        "SELECT falls(a) FROM t UNION ALL SELECT b FROM t",
    ] {
        let e = run(sql).expect_err(sql);
        assert_eq!(e.kind(), Kind::Internal, "{sql}: {e:#}");
    }
    assert_eq!(run("SELECT count(*) FROM t WHERE b < 7").unwrap()[0].num_rows(), 1);
}
