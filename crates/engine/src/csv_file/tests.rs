//! What `COPY … TO` writes, `COPY … FROM` reads back the same: random tables, random options.

use std::fmt::Write;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use thalweg_base::Prng;

use crate::config::Config;
use crate::engine::Engine;
use crate::session::Session;

const TYPES: [&str; 9] = [
    "VARCHAR",
    "INT",
    "BIGINT",
    "DOUBLE",
    "DECIMAL(12, 3)",
    "BOOLEAN",
    "DATE",
    "TIMESTAMP",
    "TIME",
];

/// A literal of one of the types.
fn value(prng: &mut Prng, data_type: &str) -> String {
    if prng.below(4) == 0 {
        return "NULL".into();
    }
    match data_type {
        "VARCHAR" => {
            let pieces = [
                "", "a", "NULL", "x", "\"", "'", "\\", ",", ";", "|", "\t", "\n", "\r\n", "\r",
                " ", "ü", "0", "\u{feff}", "a\"b", "\\.", "\\N",
            ];
            let length = prng.below(4);
            let text: String =
                (0..length).map(|_| pieces[prng.below(pieces.len() as u64) as usize]).collect();
            format!("'{}'", text.replace('\'', "''"))
        }
        "INT" => format!("{}", prng.below(2000) as i64 - 1000),
        "BIGINT" => format!("{}", prng.next_u64() as i64 >> 1),
        "DOUBLE" => format!("{}::DOUBLE / 7", prng.below(1000)),
        "BOOLEAN" => (prng.below(2) == 0).to_string(),
        "DATE" => format!("DATE '{:04}-{:02}-11'", 1 + prng.below(9998), 1 + prng.below(12)),
        "TIMESTAMP" => format!(
            "TIMESTAMP '{}-{:02}-01 {:02}:00:{:02}.{}'",
            1700 + prng.below(500),
            1 + prng.below(12),
            prng.below(24),
            prng.below(60),
            prng.below(1000)
        ),
        "TIME" => format!("TIME '{:02}:{:02}:05'", prng.below(24), prng.below(60)),
        _ => format!("{}.{:03}", prng.below(1000), prng.below(1000)),
    }
}

/// The options of a pair of statements, which both have.
fn options(prng: &mut Prng) -> String {
    let mut options = vec![];
    let header = prng.below(2) == 0;
    options.push(format!("HEADER {header}"));
    let delimiters = [",", ";", "|", "\\t", ":", "x"];
    let delimiter = delimiters[prng.below(delimiters.len() as u64) as usize];
    options.push(format!("DELIMITER '{delimiter}'"));
    let quote = ["\"", "''", "~"][prng.below(3) as usize];
    options.push(format!("QUOTE '{quote}'"));
    if prng.below(2) == 0 {
        options.push(format!("ESCAPE '{}'", ["\\", quote, "!"][prng.below(3) as usize]));
    }
    if prng.below(2) == 0 {
        let nulls = ["NULL", "", "0", "a", "\\N"];
        options.push(format!("NULL '{}'", nulls[prng.below(nulls.len() as u64) as usize]));
    }
    format!("(FORMAT csv, {})", options.join(", "))
}

async fn count(session: &Session, sql: &str) -> i64 {
    let batches = session.query(sql).await.unwrap().collect().await.unwrap();
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

#[test]
fn what_is_written_is_read_back_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.csv").to_string_lossy().into_owned();
    let config = Config { threads: 2, ..Config::default() };
    let session = Engine::open(":memory:", config).unwrap().session();
    session.engine().block_on(async {
        for seed in 0..60 {
            let prng = &mut Prng::new(seed);
            let width = 1 + prng.below(4) as usize;
            let types: Vec<&str> =
                (0..width).map(|_| TYPES[prng.below(TYPES.len() as u64) as usize]).collect();
            let columns: Vec<String> =
                types.iter().enumerate().map(|(i, t)| format!("c{i} {t}")).collect();
            for table in ["t", "back"] {
                let create = format!("CREATE OR REPLACE TABLE {table} ({})", columns.join(", "));
                session.query(&create).await.unwrap();
            }
            let mut insert = String::from("INSERT INTO t VALUES ");
            let rows = 1 + prng.below(20);
            for row in 0..rows {
                let values: Vec<String> = types.iter().map(|t| value(prng, t)).collect();
                let comma = if row > 0 { ", " } else { "" };
                let _ = write!(insert, "{comma}({})", values.join(", "));
            }
            session.query(&insert).await.unwrap();
            let options = options(prng);
            let told = format!("seed {seed}: {options}\n{insert}");
            let write = format!("COPY t TO '{file}' {options}");
            session.query(&write).await.unwrap_or_else(|e| panic!("{told}: {e}"));
            let read = format!("COPY back FROM '{file}' {options}");
            let text = std::fs::read_to_string(&file).unwrap();
            session.query(&read).await.unwrap_or_else(|e| panic!("{told}: {e}\n{text}"));
            // As bags: each row as often on either side.
            let names: Vec<String> = (0..width).map(|i| format!("c{i}::text")).collect();
            let key = names
                .iter()
                .map(|n| format!("coalesce(length({n})::text || '~' || {n}, 'null')"))
                .collect::<Vec<_>>()
                .join(" || '~~' || ");
            let different = format!(
                "SELECT count(*) FROM (SELECT k, sum(n) AS n FROM (SELECT {key} AS k, 1 AS n FROM t \
                 UNION ALL SELECT {key}, -1 FROM back) u GROUP BY k) g WHERE n <> 0"
            );
            assert_eq!(count(&session, &different).await, 0, "{told}\n{text}");
            assert_eq!(count(&session, "SELECT count(*) FROM back").await, rows as i64, "{told}");
        }
    });
}
