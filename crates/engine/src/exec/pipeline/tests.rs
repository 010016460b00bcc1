//! What `EXPLAIN ANALYZE` shows of pipelines.

use std::sync::Arc;

use arrow::array::AsArray;

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
    for figure in ["rows_in=20.00 K", "rows_out=20.00 K", "bytes_in=240.0 K"] {
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
    // All rows of `a`, and half of those of `b`.
    let line = pipeline(Config::default(), "SELECT sum(b) FROM t WHERE a % 2 = 0");
    assert!(line.contains("bytes_in=200.0 K"), "{line}");
    let line = pipeline(Config::default(), "SELECT sum(a) FROM t WHERE a % 2 = 0");
    assert!(line.contains("bytes_in=160.0 K"), "{line}");
}

#[test]
fn the_share_of_the_bandwidth_is_there_if_that_is_known() {
    let known = Config { memory_bytes_per_s: Some(1 << 30), ..Config::default() };
    let line = pipeline(known, SQL);
    assert!(line.contains("of_memory_bandwidth=") && line.contains('%'), "{line}");
    let line = pipeline(Config::default(), SQL);
    assert!(!line.contains("bandwidth"), "{line}");
}
