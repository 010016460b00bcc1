//! What whole queries read of a table, as `EXPLAIN ANALYZE` says it.

use std::sync::Arc;

use arrow::array::AsArray;
use thalweg_storage::ChunkRef;

use crate::{Config, Engine, Session};
use thalweg_exec::prune::{Next, Skipper};

const CHUNKS: usize = 128;
const ROWS_PER_CHUNK: usize = 512;

/// `fact`: 128 chunks over seven years of days in order; `dates`: a row per day.
fn star() -> (Arc<Engine>, Session) {
    let engine = Engine::open(":memory:", Config { threads: 2, ..Config::default() }).unwrap();
    let session = engine.session();
    run(
        &engine,
        &session,
        "CREATE TABLE dates AS SELECT (DATE '1970-01-01' + day::INT) AS d, day, \
         extract(year FROM (DATE '1970-01-01' + day::INT)) AS year, extract(week FROM (DATE '1970-01-01' + day::INT)) AS week \
         FROM (SELECT value + 8035 AS day FROM range(0, 2557))",
    );
    run(&engine, &session, "CREATE TABLE fact (d DATE, day BIGINT, k BIGINT, v BIGINT)");
    for chunk in 0..CHUNKS {
        // An extent of its own, with one chunk.
        let (from, to) = (chunk * ROWS_PER_CHUNK, (chunk + 1) * ROWS_PER_CHUNK);
        let rows = CHUNKS * ROWS_PER_CHUNK;
        run(
            &engine,
            &session,
            &format!(
                "INSERT INTO fact SELECT (DATE '1970-01-01' + day::INT), day, k, k % 10 FROM (SELECT value AS k, \
                 value * 2557 / {rows} + 8035 AS day FROM range({from}, {to}))"
            ),
        );
    }
    (engine, session)
}

fn run(engine: &Engine, session: &Session, sql: &str) -> Vec<String> {
    let collected = engine.block_on(async { session.query(sql).await?.collect().await });
    let batches = collected.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let mut lines = vec![];
    for batch in batches {
        if let Some(plan) = batch.columns().get(1).and_then(|c| c.as_string_view_opt().cloned()) {
            lines.extend(plan.iter().flatten().flat_map(str::lines).map(str::to_owned));
        } else if let Some(plan) = batch.columns().get(1).and_then(|c| c.as_string_opt::<i32>()) {
            lines.extend(plan.iter().flatten().flat_map(str::lines).map(str::to_owned));
        }
    }
    lines
}

/// Chunks of `fact` that a query reads, and the metrics of its scan.
fn chunks_read(engine: &Engine, session: &Session, sql: &str) -> (usize, String) {
    let plan = run(engine, session, &format!("EXPLAIN ANALYZE {sql}"));
    let scan = plan.iter().find(|line| line.contains("table=fact"));
    let scan = scan.unwrap_or_else(|| panic!("no scan of fact: {plan:#?}"));
    let value = |name: &str| -> usize {
        let from = scan.find(name).unwrap_or_else(|| panic!("{name} is not in {scan}"));
        let digits = &scan[from + name.len()..];
        digits[..digits.find([',', ']']).unwrap()].parse().unwrap()
    };
    assert_eq!(value("chunks_read=") + value("chunks_pruned="), value("chunks_total="), "{scan}");
    assert_eq!(value("chunks_total="), CHUNKS);
    (value("chunks_read="), scan.clone())
}

#[test]
fn queries_read_at_most_two_percent_of_a_clustered_fact_table() {
    let (engine, session) = star();
    let at_most = |chunks: usize, cause: &str, sql: &str| {
        let (read, scan) = chunks_read(&engine, &session, sql);
        assert!(read <= chunks && scan.contains(cause), "{read} chunks for {sql}:\n{scan}");
    };
    let join = "chunks_pruned_by_join=";
    at_most(1, "by_bounds=", "SELECT v FROM fact WHERE k = 30000");
    at_most(2, "by_bounds=", "SELECT sum(v) FROM fact WHERE k BETWEEN 30000 AND 30654");
    at_most(
        2,
        "by_bounds=",
        "SELECT sum(v) FROM fact WHERE d BETWEEN '1994-02-07' AND '1994-02-13'",
    );
    for key in ["d", "day"] {
        let week = format!(
            "SELECT sum(v) FROM fact JOIN dates ON fact.{key} = dates.{key} \
             WHERE year = 1994 AND week = 6"
        );
        at_most(2, join, &week);
        let semi = format!(
            "SELECT sum(v) FROM fact WHERE {key} IN \
             (SELECT {key} FROM dates WHERE year = 1994 AND week = 6)"
        );
        at_most(2, join, &semi);
    }
    // Two ranges far apart: bounds of the keys would span all between.
    at_most(
        4,
        join,
        "SELECT sum(v) FROM fact JOIN dates USING (d) \
         WHERE year = 1992 AND week = 10 OR year = 1998 AND week = 40",
    );
    // More keys than a join lists: its hash table is asked for each day that a chunk may have.
    at_most(
        60,
        join,
        "SELECT sum(v) FROM fact JOIN dates USING (d) WHERE year IN (1992, 1993, 1998)",
    );
}

#[test]
fn two_dimensions_skip_together() {
    let (engine, session) = star();
    run(&engine, &session, "CREATE TABLE keys AS SELECT value AS k FROM range(20000, 20100)");
    let (read, scan) = chunks_read(
        &engine,
        &session,
        "SELECT sum(v) FROM fact JOIN dates USING (d) JOIN keys ON fact.k = keys.k \
         WHERE year = 1994",
    );
    assert!(read <= 2, "{scan}");
}

#[test]
fn a_top_k_stops_where_nothing_better_comes() {
    let (engine, session) = star();
    // Its first bound comes with the first batch, for which a scan of small chunks reads sixteen.
    let (read, scan) = chunks_read(&engine, &session, "SELECT k FROM fact ORDER BY k LIMIT 5");
    assert!(read <= 40 && scan.contains("chunks_pruned_by_topk="), "{scan}");
}

#[test]
fn chunks_to_come_are_named_once_and_ever_more_ahead() {
    let engine = Engine::open(":memory:", Config { threads: 1, ..Config::default() }).unwrap();
    let session = engine.session();
    run(&engine, &session, "CREATE TABLE t AS SELECT value FROM range(0, 600000)");
    let snapshot = engine.database().snapshot();
    let (_, table) = snapshot.named_tables().next().unwrap();
    let contents = table.contents().unwrap();
    let first_row = |chunk: &ChunkRef| chunk.row_ids().value(0);
    let skipper = Skipper::new(Arc::clone(&contents), [], None);
    assert!(skipper.upcoming(3).is_empty(), "nothing is in hand");
    let (mut handed, mut named, mut lengths) = (vec![], vec![], vec![]);
    while let Next::Chunk(chunk) = skipper.next() {
        handed.push(first_row(&chunk));
        let upcoming = skipper.upcoming(3);
        lengths.push(upcoming.len());
        named.extend(upcoming.iter().map(first_row));
    }
    assert_eq!(handed.len(), contents.chunks());
    assert!(handed.len() > 8);
    assert_eq!(contents.extents(), 1);
    assert_eq!(named, handed[1..]);
    // One after the first, two more after the second, until there are three ahead.
    assert_eq!(lengths[..4], [1, 2, 2, 1]);
}
