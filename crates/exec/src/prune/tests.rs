//! A verdict of the statistics is checked against the rows: what a predicate is on any row of a
//! chunk must be among what it was said to be able to come to.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array,
    Int64Array, RecordBatch, StringViewArray, TimestampMicrosecondArray, UInt64Array,
    new_null_array,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{concat, sort};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::common::cast::as_boolean_array;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::prelude::SessionContext;
use thalweg_base::Prng;
use thalweg_storage::{ChunkStatistics, value_hashes};

use super::compile::compile;
use super::outcomes::Outcomes;
use super::predicate::{Containers, Look, Question};

/// Chunks of rows, and their statistics.
struct Chunks {
    rows: Vec<RecordBatch>,
    statistics: Vec<Arc<ChunkStatistics>>,
}

impl Chunks {
    /// `hidden`: chunks of which no bounds are known.
    fn new(rows: Vec<RecordBatch>, hidden: &[usize]) -> Self {
        let columns = 0..rows[0].num_columns();
        let statistics = columns.map(|c| {
            let parts: Vec<ArrayRef> = rows.iter().map(|b| Arc::clone(b.column(c))).collect();
            Arc::new(statistics(&parts, hidden))
        });
        Chunks { statistics: statistics.collect(), rows }
    }
}

fn statistics(chunks: &[ArrayRef], hidden: &[usize]) -> ChunkStatistics {
    let bound = |last: bool| {
        let bounds = chunks.iter().enumerate().map(|(i, chunk)| {
            let values = sort(chunk, None).unwrap();
            let nulls = values.null_count();
            let floats = *chunk.data_type() == DataType::Float64;
            let nan = floats && values.len() > nulls && {
                let last = values.slice(values.len() - 1, 1);
                last.as_any().downcast_ref::<Float64Array>().unwrap().value(0).is_nan()
            };
            if hidden.contains(&i) || nan || nulls == values.len() {
                return new_null_array(chunk.data_type(), 1);
            }
            values.slice(if last { values.len() - 1 } else { nulls }, 1)
        });
        let bounds: Vec<ArrayRef> = bounds.collect();
        concat(&bounds.iter().map(|b| b.as_ref()).collect::<Vec<_>>()).unwrap()
    };
    let counts = |of: &dyn Fn(&ArrayRef) -> usize| {
        UInt64Array::from_iter_values(chunks.iter().map(|chunk| of(chunk) as u64))
    };
    let flags = BooleanArray::from(vec![true; chunks.len()]);
    ChunkStatistics {
        mins: bound(false),
        maxs: bound(true),
        min_exact: flags.clone(),
        max_exact: flags,
        rows: counts(&|c| c.len()),
        nulls: counts(&|c| c.null_count()),
        distincts: counts(&|c| c.len()),
        stored_bytes: counts(&|_| 1),
        value_bytes: counts(&|_| 1),
    }
}

impl Containers for Chunks {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn statistics(&self, column: usize) -> Arc<ChunkStatistics> {
        Arc::clone(&self.statistics[column])
    }

    fn may_hold(&self, column: usize, at: usize, hash: u64) -> bool {
        let column = self.rows[at].column(column);
        value_hashes(column).is_none_or(|hashes| hashes.contains(&hash))
    }
}

fn schema() -> SchemaRef {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    Arc::new(Schema::new(vec![
        field("i", DataType::Int32),
        field("k", DataType::Int64),
        field("s", DataType::Utf8View),
        field("d", DataType::Date32),
        field("t", DataType::Timestamp(TimeUnit::Microsecond, None)),
        field("f", DataType::Float64),
        field("n", DataType::Decimal128(12, 2)),
        field("b", DataType::Boolean),
    ]))
}

/// Chunks of a few rows, each around a value of its own.
fn random_chunk(random: &mut Prng) -> RecordBatch {
    let rows = 1 + random.below(6);
    let centre = random.range(-30, 30);
    let spread = [0, 1, 5, 40][random.below(4) as usize];
    let nulls = [0, 0, 3, 10][random.below(4) as usize];
    let mut value = || (random.below(10) >= nulls).then(|| centre + random.range(-spread, spread));
    let mut values = || (0..rows).map(|_| value()).collect::<Vec<Option<i64>>>();
    let text = |v: i64| match v.rem_euclid(3) {
        0 => format!("v{v:03}"),
        1 => "v".repeat((v.rem_euclid(5)) as usize),
        _ => format!("{}\u{10ffff}{v}", if v < 0 { "w" } else { "v" }),
    };
    let float = |v: i64| if v == 7 { f64::NAN } else { v as f64 / 2.0 };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(values().into_iter().map(|v| v.map(|v| v as i32)).collect::<Int32Array>()),
        Arc::new(values().into_iter().collect::<Int64Array>()),
        Arc::new(values().into_iter().map(|v| v.map(text)).collect::<StringViewArray>()),
        Arc::new(values().into_iter().map(|v| v.map(|v| v as i32)).collect::<Date32Array>()),
        Arc::new(
            values()
                .into_iter()
                .map(|v| v.map(|v| v * 3_600_000_000 * 7))
                .collect::<TimestampMicrosecondArray>(),
        ),
        Arc::new(values().into_iter().map(|v| v.map(float)).collect::<Float64Array>()),
        Arc::new(
            values()
                .into_iter()
                .map(|v| v.map(|v| i128::from(v) * 50))
                .collect::<Decimal128Array>()
                .with_precision_and_scale(12, 2)
                .unwrap(),
        ),
        Arc::new(values().into_iter().map(|v| v.map(|v| v > 0)).collect::<BooleanArray>()),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

fn random_predicate(random: &mut Prng, depth: u32) -> String {
    if depth > 0 && random.below(3) > 0 {
        let one = random_predicate(random, depth - 1);
        let other = random_predicate(random, depth - 1);
        return match random.below(6) {
            0 | 1 => format!("({one} AND {other})"),
            2 | 3 => format!("({one} OR {other})"),
            4 => format!("(NOT {one})"),
            _ => match random.below(4) {
                0 => format!("({one} IS TRUE)"),
                1 => format!("({one} IS NOT TRUE)"),
                2 => format!("({one} IS NULL)"),
                _ => format!("(CASE WHEN {one} THEN {other} ELSE i > 3 END)"),
            },
        };
    }
    let column = ["i", "k", "s", "d", "t", "f", "n"][random.below(7) as usize];
    let mut literal = || {
        let v = random.range(-35, 35);
        match column {
            "s" => ["'v'", "'v003'", "'vv'", "'w'", "'v\u{10ffff}8'", "''", "'x'"]
                [v.rem_euclid(7) as usize]
                .to_owned(),
            "d" => format!("DATE '{}'", date(v)),
            "t" => format!("TIMESTAMP '{}T05:00:00'", date(v / 3)),
            "n" => format!("{}.5", v / 2),
            "f" if v == 7 => "'NaN'::DOUBLE".to_owned(),
            "f" => format!("{}.5", v / 2),
            _ if v > 33 => "NULL".to_owned(),
            _ => v.to_string(),
        }
    };
    let (a, b, c) = (literal(), literal(), literal());
    let operator = ["=", "<>", "<", "<=", ">", ">="][random.below(6) as usize];
    match random.below(14) {
        0..=4 => format!("{column} {operator} {a}"),
        5 => format!("{column} IN ({a}, {b}, {c})"),
        6 => format!("{column} NOT IN ({a}, {b}, {c})"),
        7 => format!("{column} BETWEEN {a} AND {b}"),
        8 => format!("{column} IS NULL"),
        9 => format!("({column} IS NOT DISTINCT FROM {a})"),
        10 => ["b", "NOT b", "b IS FALSE", "b = (i > 0)"][random.below(4) as usize].to_owned(),
        11 => [
            "s LIKE 'v%'",
            "s NOT LIKE 'v%'",
            "s LIKE 'v_%3'",
            "starts_with(s, 'v0')",
            "s LIKE '%'",
            "s ILIKE 'V%'",
        ][random.below(6) as usize]
            .to_owned(),
        12 => [
            "i < k",
            "i = k",
            "i::BIGINT * 2 % 7 = 3",
            "k % 2 = 0",
            "10 / i > 2",
            "extract(dow FROM d) = 2",
            "abs(i) > 20",
            "s || 'x' = 'vx'",
        ][random.below(8) as usize]
            .to_owned(),
        _ => [
            format!("i::DOUBLE {operator} 2.5"),
            format!("d::TIMESTAMP {operator} TIMESTAMP '1970-01-05T12:00:00'"),
            format!("t::DATE {operator} DATE '1970-01-03'"),
            format!("n::INT {operator} 4"),
            format!("i::VARCHAR {operator} '12'"),
            format!("try_cast(s AS INT) {operator} 3"),
        ][random.below(6) as usize]
            .clone(),
    }
}

fn date(day: i64) -> String {
    let date = civil(day);
    format!("{:04}-{:02}-{:02}", date.0, date.1, date.2)
}

/// Days around 1970-01-01 as year, month, day.
fn civil(day: i64) -> (i64, i64, i64) {
    match day {
        ..0 => (1969, 12 - (-day - 1) / 31, 31 - (-day - 1) % 31),
        0..31 => (1970, 1, day + 1),
        _ => (1970, 2, day - 30),
    }
}

fn physical(sql: &str) -> Arc<dyn PhysicalExpr> {
    let schema = DFSchema::try_from(schema()).unwrap();
    let context = SessionContext::new();
    let expr = context.parse_sql_expr(sql, &schema).unwrap();
    context.create_physical_expr(expr, &schema).unwrap()
}

fn outcomes(chunks: &Chunks, expr: &Arc<dyn PhysicalExpr>, look: Look) -> Outcomes {
    let all = BooleanBuffer::new_set(chunks.len());
    let question = Question { containers: chunks, look, asked: &all };
    compile(expr, &schema()).outcomes(question)
}

#[test]
fn no_verdict_contradicts_a_row() {
    let mut random = Prng::new(55);
    for round in 0..1500 {
        let rows = (0..6).map(|_| random_chunk(&mut random)).collect();
        let chunks = Chunks::new(rows, &[random.below(12) as usize]);
        let sql = random_predicate(&mut random, 3);
        let expr = physical(&sql);
        for look in [Look::Bounds, Look::Values] {
            let said = outcomes(&chunks, &expr, look);
            for (i, rows) in chunks.rows.iter().enumerate() {
                // Divisions by zero end the query before any verdict matters.
                let Ok(values) = expr.evaluate(rows) else { continue };
                let values = values.into_array(rows.num_rows()).unwrap();
                let values = as_boolean_array(&values).unwrap();
                for row in 0..rows.num_rows() {
                    let (possible, value) = match values.is_valid(row) {
                        false => (said.null.value(i), None),
                        true if values.value(row) => (said.yes.value(i), Some(true)),
                        true => (said.no.value(i), Some(false)),
                    };
                    assert!(
                        possible,
                        "round {round}: {sql} is {value:?} on {:?}, and {look:?} said {said:?}",
                        rows.slice(row, 1)
                    );
                }
            }
        }
    }
}

/// Chunks of `k` 0..100, 100..200, … and the same as other types.
fn clustered() -> Chunks {
    let chunk = |c: i64| {
        let k = c * 100..(c + 1) * 100;
        let numbers = || k.clone();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(numbers().map(|v| Some(v as i32)).collect::<Int32Array>()),
            Arc::new(numbers().map(Some).collect::<Int64Array>()),
            Arc::new(numbers().map(|v| Some(format!("{v:05}"))).collect::<StringViewArray>()),
            Arc::new(numbers().map(|v| Some(v as i32)).collect::<Date32Array>()),
            Arc::new(
                numbers().map(|v| Some(v * 86_400_000_000)).collect::<TimestampMicrosecondArray>(),
            ),
            Arc::new(numbers().map(|v| Some(v as f64)).collect::<Float64Array>()),
            Arc::new(
                numbers()
                    .map(|v| Some(i128::from(v) * 100))
                    .collect::<Decimal128Array>()
                    .with_precision_and_scale(12, 2)
                    .unwrap(),
            ),
            Arc::new(numbers().map(|_| (c != 3).then_some(c > 5)).collect::<BooleanArray>()),
        ];
        RecordBatch::try_new(schema(), columns).unwrap()
    };
    Chunks::new((0..10).map(chunk).collect(), &[])
}

/// The chunks that are left, in the notation "0 1 5".
fn check(sql: &str, expected: &str) {
    let chunks = clustered();
    let left = outcomes(&chunks, &physical(sql), Look::Bounds).yes;
    let left: Vec<String> = left.set_indices().map(|i| i.to_string()).collect();
    assert_eq!(left.join(" "), expected, "{sql}");
}

#[test]
fn every_kind_of_filter_skips() {
    check("k = 250", "2");
    check("250 = k", "2");
    check("k = 1000", "");
    check("k <> 250", "0 1 2 3 4 5 6 7 8 9");
    check("k < 100", "0");
    check("k <= 100", "0 1");
    check("k > 899", "9");
    check("k BETWEEN 150 AND 250", "1 2");
    check("k NOT BETWEEN 100 AND 899", "0 9");
    check("NOT (k >= 100)", "0");
    check("k IN (5, 250, 251, 2000)", "0 2");
    check("k NOT IN (5, 250)", "0 1 2 3 4 5 6 7 8 9");
    check("k < 100 OR k >= 900", "0 9");
    check("k < 300 AND s >= '00200'", "2");
    check("k IS NULL", "");
    check("b IS NULL", "3");
    check("b", "6 7 8 9");
    check("NOT b", "0 1 2 4 5");
    check("b IS NOT TRUE", "0 1 2 3 4 5");
    check("s LIKE '003%'", "3");
    check("s LIKE '0031_'", "3");
    check("s NOT LIKE '00%'", "");
    check("starts_with(s, '0031')", "3");
    check("s = '00317'", "3");
    check("d >= DATE '1970-04-11' AND d < DATE '1970-07-20'", "1");
    check("t::DATE = DATE '1970-04-11'", "1");
    check("d::TIMESTAMP = TIMESTAMP '1970-04-11T00:00:00'", "1");
    check("n = 250.00", "2");
    check("n > 850.5 AND f < 1e3", "8 9");
    check("f = 250", "2");
    check("i::BIGINT = 250", "2");
    check("k IS NOT DISTINCT FROM 250", "2");
    check("i < k", "0 1 2 3 4 5 6 7 8 9");
    check("CASE WHEN f > 3 THEN k < 100 ELSE k >= 900 END", "0 9");
}

#[test]
fn what_only_values_can_tell_is_evaluated_on_the_values() {
    check("abs(k - 250) < 10", "2");
    check("extract(month FROM d) = 2", "0 3 4 7");
    check("extract(month FROM d) = 2 AND extract(year FROM d) = 1971", "3 4 7");
    check("k * k = 62500", "2");
    check("k % 1000 = 999", "9");
}

#[test]
fn digests_rule_out_what_bounds_let_through() {
    let chunks = clustered();
    let expr = physical("k IN (150, 4000) OR s IN ('00320', '00321x')");
    let left = |look| outcomes(&chunks, &expr, look).yes.set_indices().collect::<Vec<_>>();
    assert_eq!(left(Look::Bounds), [1, 3]);
    assert_eq!(left(Look::Values), [1, 3]);
    let expr = physical("s = '00321x'");
    let left = |look| outcomes(&chunks, &expr, look).yes.set_indices().collect::<Vec<_>>();
    assert_eq!((left(Look::Bounds), left(Look::Values)), (vec![3], vec![]));
}
