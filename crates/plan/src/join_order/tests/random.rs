//! Random queries over random rows give the same rows with the rule as without it. The
//! statistics are random as well, so that every order is chosen at some time.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::catalog::MemTable;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use datafusion::optimizer::{OptimizerContext, OptimizerRule};
use datafusion::prelude::SessionContext;
use thalweg_base::Prng;

use super::{JoinOrder, assert_idempotent, order, plan, sessions};
use crate::cardinality::tests::Stub;

const TABLES: usize = 5;
const SEEDS: u64 = 120;

fn table(prng: &mut Prng) -> Stub {
    let rows = prng.below(9) as usize;
    let mut ints = || -> ArrayRef {
        let value = |_| (prng.below(6) > 0).then(|| prng.range(0, 4));
        Arc::new((0..rows).map(value).collect::<Int64Array>())
    };
    let (k, v) = (ints(), ints());
    let texts = ["a", "b", "c"];
    let s: ArrayRef =
        Arc::new((0..rows).map(|_| texts.get(prng.below(4) as usize)).collect::<StringViewArray>());
    let floats = [0.0, -0.0, 1.0, f64::NAN];
    let f: ArrayRef =
        Arc::new((0..rows).map(|_| floats[prng.below(4) as usize]).collect::<Float64Array>());
    let schema = Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("v", DataType::Int64, true),
        Field::new("s", DataType::Utf8View, true),
        Field::new("f", DataType::Float64, true),
    ]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![k, v, s, f]).expect("fits");
    let data = MemTable::try_new(schema, vec![vec![batch]]).expect("fits");
    // Whatever they say, the rows must be right.
    let claimed = 10usize.pow(prng.below(7) as u32);
    let number = |v| Precision::Inexact(ScalarValue::Int64(Some(v)));
    let columns = (0..4)
        .map(|i| ColumnStatistics {
            distinct_count: match prng.below(3) {
                0 => Precision::Absent,
                _ => Precision::Inexact(1 + prng.below(claimed as u64) as usize),
            },
            min_value: if i < 2 { number(0) } else { Precision::Absent },
            max_value: if i < 2 { number(4) } else { Precision::Absent },
            ..ColumnStatistics::new_unknown()
        })
        .collect();
    let statistics = Statistics {
        num_rows: Precision::Inexact(claimed),
        total_byte_size: Precision::Absent,
        column_statistics: columns,
    };
    Stub::over(data, statistics)
}

/// A column of two of the relations before `n`, equal or otherwise related.
fn condition(prng: &mut Prng, n: usize) -> String {
    let mut alias = || format!("r{}", prng.below(n as u64));
    let (a, b, c) = (alias(), alias(), alias());
    match prng.below(12) {
        0..=4 => format!("{a}.k = {b}.k"),
        5 => format!("{a}.k = {b}.v"),
        6 => format!("{a}.s = {b}.s"),
        7 => format!("{a}.f = {b}.f"),
        8 => format!("{a}.k < {b}.v"),
        9 => format!("{a}.k + {b}.v = {c}.k"),
        10 => format!("({a}.k = 1 AND {b}.v = 2 OR {a}.s = {c}.s)"),
        _ => format!("({a}.v IS NOT DISTINCT FROM {b}.v)"),
    }
}

fn query(prng: &mut Prng) -> String {
    let n = 2 + prng.below(4) as usize;
    let mut from = String::new();
    for i in 0..n {
        let t = prng.below(TABLES as u64);
        let relation = match prng.below(8) {
            0 => format!(
                "(SELECT k, max(v) AS v, min(s) AS s, max(f) AS f FROM t{t} GROUP BY k) AS r{i}"
            ),
            1 => format!(
                "(SELECT x.k, y.v, x.s, y.f FROM t{t} x JOIN t0 y ON x.k = y.k JOIN t1 z ON z.v = y.v) AS r{i}"
            ),
            2 => format!(
                "(SELECT avg(k) AS k, max(v) AS v, min(s) AS s, max(f) AS f FROM t{t}) AS r{i}"
            ),
            _ => format!("t{t} AS r{i}"),
        };
        if i == 0 {
            from = relation;
            continue;
        }
        match prng.below(6) {
            0 => from += &format!(" LEFT JOIN {relation} ON r{}.k = r{i}.k", prng.below(i as u64)),
            1 | 2 => from += &format!(" JOIN {relation} ON {}", condition(prng, i + 1)),
            _ => from += &format!(" CROSS JOIN {relation}"),
        }
    }
    let mut conditions: Vec<String> =
        (0..1 + prng.below(n as u64 + 1)).map(|_| condition(prng, n)).collect();
    if prng.below(4) == 0 {
        conditions.push(format!("r0.k IN (SELECT v FROM t{})", prng.below(TABLES as u64)));
    }
    if prng.below(6) == 0 {
        conditions.push("r1.v >= (SELECT min(v) FROM t2 WHERE t2.k = r1.k)".to_string());
    }
    let select = match prng.below(4) {
        0 => "count(*), sum(r0.v), min(r1.s)".to_string(),
        1 => "r1.v, r0.k, r1.s".to_string(),
        2 => format!("r{}.*", n - 1),
        _ => "*".to_string(),
    };
    format!("SELECT {select} FROM {from} WHERE {}", conditions.join(" AND "))
}

async fn rows(session: &SessionContext, sql: &str) -> Vec<String> {
    let frame = session.sql(sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let batches = frame.collect().await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    // No row may come as no batch or as an empty one, of which the header would be printed.
    let filled: Vec<RecordBatch> = batches.into_iter().filter(|b| b.num_rows() > 0).collect();
    let text = pretty_format_batches(&filled).expect("prints").to_string();
    // Column widths depend on nothing but the values: sorted lines compare as rows do.
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    lines.sort();
    lines
}

#[tokio::test]
async fn the_same_rows_in_every_order() {
    let mut reordered = 0;
    for seed in 0..SEEDS {
        let mut prng = Prng::new(seed);
        let names = ["t0", "t1", "t2", "t3", "t4"];
        let tables = names.map(|name| (name, table(&mut prng)));
        let sessions = sessions(tables.into());
        for _ in 0..3 {
            let sql = query(&mut prng);
            let [ours, theirs] = [plan(&sessions[0], &sql).await, plan(&sessions[1], &sql).await];
            let context = format!("seed {seed}: {sql}\n{}", ours.display_indent());
            // DataFusion's passes may end before its rules have come to rest; ours rests at once.
            let rewritten = JoinOrder.rewrite(ours.clone(), &OptimizerContext::new());
            assert_idempotent(&rewritten.expect("rewrites").data);
            assert_eq!(ours.schema().columns(), theirs.schema().columns(), "{context}");
            assert_eq!(rows(&sessions[0], &sql).await, rows(&sessions[1], &sql).await, "{context}");
            reordered += usize::from(order(&ours) != order(&theirs));
        }
    }
    assert!(reordered > 100, "only {reordered} queries were reordered");
}
