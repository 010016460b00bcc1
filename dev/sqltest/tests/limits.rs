//! What text files cannot say: sizes, depths, times, and several sessions at once.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use arrow::util::pretty::pretty_format_batches;
use futures::StreamExt;
use thalweg_base::{Error, Kind, Result};
use thalweg_engine::{Config, Engine, PolicyKind, Session, TransactionStatus};

#[path = "limits/workloads.rs"]
mod workloads;

/// Generous: the machine may be busy and the build unoptimised.
const SOON: Duration = Duration::from_secs(60);
/// A query that would run for hours, in little memory.
const ENDLESS: &str =
    "SELECT count(*) FROM n a JOIN n b ON a.v % 10 = b.v % 10 JOIN n c ON b.v % 10 = c.v % 10";

/// As long, of pairs none of which is a result.
const FRUITLESS: &str = "SELECT count(*) FROM n a, n b WHERE a.v * 7 + b.v * 3 = -1";

fn engine(threads: usize, policy: PolicyKind) -> Arc<Engine> {
    let config = Config { threads, policy, ..Config::default() };
    Engine::open(":memory:", config).expect("opens in memory")
}

fn run(engine: &Engine, session: &Session, sql: &str) -> Result<Vec<RecordBatch>> {
    engine.block_on(async { session.query(sql).await?.collect().await })
}

/// The one number a query gives: a count is a bigint, a sum of bigints a numeric.
fn number(engine: &Engine, session: &Session, sql: &str) -> i64 {
    let batches = run(engine, session, sql).unwrap_or_else(|e| panic!("{e:#}: {sql:.200}"));
    let batch = batches.iter().find(|b| b.num_rows() > 0).expect("a row");
    cast(batch.column(0), &DataType::Int64).expect("a number").as_primitive::<Int64Type>().value(0)
}

fn with_numbers(threads: usize, rows: u64) -> (Arc<Engine>, Session) {
    let engine = engine(threads, PolicyKind::SmallFirst);
    let session = engine.session();
    let sql = format!("CREATE TABLE n AS SELECT value AS v FROM range(0, {rows})");
    run(&engine, &session, &sql).expect("the table is made");
    (engine, session)
}

fn soon(what: &str, mut check: impl FnMut() -> bool) {
    let start = Instant::now();
    while !check() {
        assert!(start.elapsed() < SOON, "{what} took longer than {SOON:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_list_of_100_000_numbers_is_answered() {
    let (engine, session) = with_numbers(2, 300_000);
    let list: Vec<String> = (0..100_000).map(|i| (i * 7).to_string()).collect();
    let sql = format!("SELECT count(*) FROM n WHERE v IN ({})", list.join(", "));
    assert!(sql.len() > 700_000);
    let start = Instant::now();
    // 0, 7, … below 300 000.
    assert_eq!(number(&engine, &session, &sql), 42_858);
    assert!(start.elapsed() < SOON, "took {:?}", start.elapsed());
}

#[test]
fn a_text_of_1_mib_is_answered() {
    let (engine, session) = with_numbers(2, 10);
    let sql = format!("SELECT length('{}') + max(v) FROM n", "x".repeat(1 << 20));
    assert_eq!(number(&engine, &session, &sql), (1 << 20) + 9);
    let rows: Vec<String> = (0..20_000).map(|i| format!("({i})")).collect();
    let sql = format!("INSERT INTO n VALUES {}", rows.join(","));
    run(&engine, &session, &sql).expect("20 000 rows of VALUES");
    assert_eq!(number(&engine, &session, "SELECT count(*) FROM n"), 20_010);
}

#[test]
fn a_text_beyond_the_limit_is_refused() {
    let (engine, session) = with_numbers(1, 1);
    let sql = format!("SELECT '{}'", "x".repeat(thalweg_base::limits::SQL_BYTES_MAX));
    let e = run(&engine, &session, &sql).expect_err("too long");
    assert_eq!(e.kind(), Kind::User, "{e:#}");
    assert!(e.hint_text().is_some());
}

/// Each of these nests a statement in its own way, deeper than any stack is.
#[test]
fn deep_nesting_is_an_error_and_no_crash() {
    let (engine, session) = with_numbers(2, 10);
    let depth = 10_000;
    let around = |open: &str, core: &str, close: &str| {
        format!("SELECT count(*) FROM n WHERE {}{core}{}", open.repeat(depth), close.repeat(depth))
    };
    let subqueries =
        format!("{}SELECT v FROM n{}", "SELECT v FROM (".repeat(depth), ") q".repeat(depth));
    let unions = vec!["SELECT v FROM n"; depth].join(" UNION ALL ");
    let statements = [
        around("(", "v = 1", ")"),
        around("NOT ", "v = 1", ""),
        around("abs(", "v", ") = 1"),
        around("-(", "v", ") = 1"),
        around("CASE WHEN ", "v = 1", " THEN true END"),
        around("v IN (SELECT v FROM n WHERE ", "v = 1", ")"),
        subqueries,
        format!("SELECT {}1{}", "[".repeat(depth), "]".repeat(depth)),
        format!("SELECT count(*) FROM n WHERE v = 1 {}", "OR v = 2 ".repeat(depth)),
        format!("SELECT count(*) FROM n WHERE v = 1 {}", "AND v + 1 = 2 ".repeat(depth)),
        format!("SELECT v {} FROM n", "+ 1 ".repeat(depth)),
        format!("SELECT v {} FROM n", "|| 'x' ".repeat(depth)),
        format!("SELECT count(*) FROM ({unions}) q"),
    ];
    for sql in statements {
        let start = Instant::now();
        match run(&engine, &session, &sql) {
            // A right answer is fine, too: chains are not necessarily deep.
            Ok(_) => {}
            Err(e) => {
                assert!(
                    matches!(e.kind(), Kind::User | Kind::Unsupported),
                    "{:?}: {e:#.300}: {sql:.80}",
                    e.kind()
                );
            }
        }
        assert!(start.elapsed() < SOON, "took {:?}: {sql:.80}", start.elapsed());
    }
    assert_eq!(number(&engine, &session, "SELECT count(*) FROM n"), 10);
}

#[test]
fn cancel_ends_a_running_query() {
    let (engine, session) = with_numbers(2, 300_000);
    for sql in [ENDLESS, FRUITLESS] {
        let other = session.clone();
        let canceller = thread::spawn(move || {
            thread::sleep(Duration::from_millis(300));
            let asked = Instant::now();
            other.cancel();
            asked
        });
        let e = run(&engine, &session, sql).expect_err("cancelled");
        let ended = Instant::now();
        let asked = canceller.join().expect("no panic");
        assert_eq!(e.kind(), Kind::Cancelled, "{e:#}");
        assert!(ended - asked < Duration::from_secs(5), "took {:?}: {sql}", ended - asked);
        soon("the end of the query", || engine.queries().is_empty());
    }
    assert_eq!(number(&engine, &session, "SELECT count(*) FROM n"), 300_000);
}

#[test]
fn cancel_ends_an_insert_without_a_trace() {
    let (engine, session) = with_numbers(2, 20_000);
    let other = session.clone();
    let canceller = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        other.cancel();
    });
    let sql = "INSERT INTO n SELECT a.v FROM n a, n b";
    let e = run(&engine, &session, sql).expect_err("cancelled");
    canceller.join().expect("no panic");
    assert_eq!(e.kind(), Kind::Cancelled, "{e:#}");
    soon("the end of the insert", || engine.queries().is_empty());
    assert_eq!(number(&engine, &session, "SELECT count(*) FROM n"), 20_000);
}

#[test]
fn an_answer_dropped_half_way_frees_everything() {
    let (engine, session) = with_numbers(2, 500_000);
    engine.block_on(async {
        let sql = "SELECT a.v, b.v FROM n a JOIN n b ON a.v % 1000 = b.v % 1000";
        let mut answer = session.query(sql).await.expect("starts");
        let first = answer.next().await.expect("a batch").expect("rows");
        assert!(first.num_rows() > 0);
    });
    soon("the end of the query", || engine.queries().is_empty());
    assert_eq!(number(&engine, &session, "SELECT count(*) FROM n"), 500_000);
}

#[test]
fn without_the_scheduler_queries_are_answered_and_cancelled_all_the_same() {
    let config = Config { threads: 2, scheduled: false, ..Config::default() };
    let engine = Engine::open(":memory:", config).expect("opens in memory");
    let session = engine.session();
    run(&engine, &session, "CREATE TABLE n AS SELECT value AS v FROM range(0, 200000)").unwrap();
    let groups = "SELECT count(*) FROM (SELECT v % 1000 AS g, sum(v) FROM n GROUP BY g)";
    assert_eq!(number(&engine, &session, groups), 1000);
    for sql in [ENDLESS, FRUITLESS] {
        thread::scope(|scope| {
            let query = scope.spawn(|| run(&engine, &session, sql));
            soon("the query", || !engine.queries().is_empty());
            thread::sleep(Duration::from_millis(50));
            assert_eq!(engine.slots_in_use(), 0, "nothing asks for a slot");
            session.cancel();
            let error = query.join().unwrap().expect_err("it was cancelled");
            assert_eq!(error.kind(), Kind::Cancelled, "{error:#}");
        });
        soon("its end", || engine.queries().is_empty() && engine.memory_held() == 0);
    }
}

#[test]
fn a_time_limit_stops_a_query() {
    let (engine, session) = with_numbers(2, 20_000);
    run(&engine, &session, "SET thalweg.statement_timeout_ms = 200").expect("is set");
    let start = Instant::now();
    let e = run(&engine, &session, ENDLESS).expect_err("stopped");
    assert_eq!(e.kind(), Kind::Cancelled, "{e:#}");
    assert!(e.message().contains("200.0 ms"), "{e:#}");
    assert!(start.elapsed() < Duration::from_secs(10), "took {:?}", start.elapsed());
    soon("the end of the query", || engine.queries().is_empty());
    run(&engine, &session, "SET thalweg.statement_timeout_ms = 0").expect("is set");
    assert_eq!(number(&engine, &session, "SELECT count(*) FROM n"), 20_000);
}

fn with_little_memory() -> (Arc<Engine>, Session) {
    let config = Config { threads: 2, memory_bytes_max: Some(8 << 20), ..Config::default() };
    let engine = Engine::open(":memory:", config).expect("opens");
    let session = engine.session();
    run(&engine, &session, "CREATE TABLE n AS SELECT value AS v FROM range(0, 1000000)")
        .expect("is made");
    (engine, session)
}

/// In the pipelines that they are in.
#[test]
fn joins_spill_when_memory_runs_out() {
    let (engine, session) = with_little_memory();
    let texts = "(SELECT v, v::VARCHAR || 'some more text' AS s FROM n WHERE v % 10 < 9)";
    for (join, rows) in [
        (format!("n a JOIN {texts} b ON a.v = b.v AND a.v::VARCHAR < b.s"), 900_000),
        (format!("n a LEFT JOIN {texts} b ON a.v = b.v"), 1_000_000),
        (format!("n a FULL JOIN {texts} b ON a.v = b.v + 500000"), 1_450_000),
        (format!("{texts} a WHERE EXISTS (SELECT 1 FROM n b WHERE b.v = a.v * 2)"), 450_000),
        (format!("{texts} a WHERE NOT EXISTS (SELECT 1 FROM n b WHERE b.v = a.v * 2)"), 450_000),
    ] {
        let sql = format!("SELECT count(*) FROM {join}");
        assert_eq!(number(&engine, &session, &sql), rows, "{sql}");
        let plan = run(&engine, &session, &format!("EXPLAIN ANALYZE {sql}")).expect("runs");
        let plan = pretty_format_batches(&plan).expect("can be shown").to_string();
        let line = plan.lines().find(|line| line.contains("PipelineExec")).expect("has pipelines");
        assert!(line.contains("spill_count=") && !line.contains("spill_count=0"), "{plan}");
        assert!(!line.contains("given_up"), "{plan}");
    }
}

/// And go on in the same pipelines: those after them have figures.
#[test]
fn groups_spill_when_memory_runs_out() {
    let (engine, session) = with_little_memory();
    for (groups, rows) in [
        (
            "SELECT v % 500000 AS g, count(*) AS n, sum(v) AS s FROM n GROUP BY g HAVING s = 2 * g + 500000",
            500_000,
        ),
        (
            "SELECT v::VARCHAR || 'some text' AS g, min(v) AS m, max(v::VARCHAR) FROM n GROUP BY g HAVING g LIKE m || 's%'",
            1_000_000,
        ),
        ("SELECT DISTINCT NULLIF(v, 7) AS a, v::DECIMAL(38, 2) AS d FROM n", 1_000_000),
        (
            "SELECT v / 2 AS g, avg(v::DECIMAL(38, 2)) AS a FROM n GROUP BY g HAVING a - 2 * g = 0.5",
            500_000,
        ),
        (
            "SELECT v / 2 AS g, stddev(v) AS d FROM n GROUP BY g HAVING d BETWEEN 0.70 AND 0.71",
            500_000,
        ),
        (
            "SELECT v % 250000 AS g, array_agg(v) AS a FROM n GROUP BY g HAVING array_length(a) = 4",
            250_000,
        ),
    ] {
        let sql = format!("SELECT count(*) FROM ({groups})");
        assert_eq!(number(&engine, &session, &sql), rows, "{sql}");
        let plan = run(&engine, &session, &format!("EXPLAIN ANALYZE {sql}")).expect("runs");
        let plan = pretty_format_batches(&plan).expect("can be shown").to_string();
        let line = plan.lines().find(|line| line.contains("PipelineExec")).expect("has pipelines");
        assert!(line.contains("spill_count=") && !line.contains("spill_count=0"), "{plan}");
        let after = plan.lines().find(|line| line.contains("groups of")).expect("reads groups");
        assert!(after.contains("rows_in="), "{plan}");
    }
    soon("the end of the queries", || engine.queries().is_empty());
}

/// A batch is a small part of the buffers that its texts are views of: those of a whole chunk, or of
/// all the runs that it was merged from.
#[test]
fn sorts_of_texts_spill_when_memory_runs_out() {
    let (engine, session) = with_little_memory();
    run(
        &engine,
        &session,
        "CREATE TABLE t AS SELECT v, md5(v::VARCHAR) AS s, 'a name that is not short ' || v % 9000 AS name \
         FROM n WHERE v < 150000",
    )
    .expect("is made");
    let joined =
        "t JOIN (SELECT v AS w, md5(v::VARCHAR || 'w') AS other FROM n WHERE v < 150000) ON v = w";
    for (order, rows) in [
        ("s", "t"),
        ("name, s", "t"),
        ("s DESC", "t WHERE v % 7 > 0"),
        ("v % 10, name || v", "t"),
        ("s", joined),
        ("other, name", joined),
    ] {
        let ordered = format!("SELECT s FROM {rows} ORDER BY {order}");
        let batches = run(&engine, &session, &ordered).unwrap_or_else(|e| panic!("{order}: {e:#}"));
        let row_of_each = format!(
            "SELECT s FROM (SELECT s, row_number() OVER (ORDER BY {order}) AS r FROM {rows}) ORDER BY r"
        );
        let numbered = run(&engine, &session, &row_of_each);
        let numbered = numbered.unwrap_or_else(|e| panic!("numbers of {order}: {e:#}"));
        let texts = |batches: &[RecordBatch]| -> Vec<String> {
            let columns = batches.iter().map(|batch| batch.column(0).as_string_view().clone());
            columns
                .flat_map(|c| c.iter().flatten().map(str::to_owned).collect::<Vec<_>>())
                .collect()
        };
        let (texts, numbered) = (texts(&batches), texts(&numbered));
        let count = number(&engine, &session, &format!("SELECT count(*) FROM {rows}"));
        assert_eq!(texts.len() as i64, count, "{order}");
        assert!(texts == numbered, "{order}");
        match order {
            "s" => assert!(texts.is_sorted(), "{order}"),
            "s DESC" => assert!(texts.iter().rev().is_sorted(), "{order}"),
            _ => {}
        }
        let plan = run(&engine, &session, &format!("EXPLAIN ANALYZE {ordered}")).expect("runs");
        let plan = pretty_format_batches(&plan).expect("can be shown").to_string();
        assert!(plan.contains("spill_count=") && !plan.contains("spill_count=0"), "{plan}");
    }
    soon("the end of the queries", || engine.queries().is_empty());
    assert_eq!(engine.memory_held(), 0);
}

#[test]
fn memory_runs_out_with_an_error_that_says_so() {
    let (engine, session) = with_little_memory();
    // All rows have the same key.
    let sql = "SELECT count(*) FROM n a JOIN n b ON a.v / 1000000 = b.v / 1000000";
    let e = run(&engine, &session, sql).expect_err("8 MiB are not enough");
    assert_eq!(e.kind(), Kind::Resources, "{e:#}");
    assert!(e.detail_text().is_some_and(|d| d.contains("the same key")), "{e:#}");
    assert!(e.hint_text().is_some(), "{e:#}");
    soon("the end of the query", || engine.queries().is_empty());
    assert_eq!(number(&engine, &session, "SELECT count(*) FROM n WHERE v >= 0"), 1_000_000);
}

/// Eight sessions, each with its own queries, under each policy: every answer is that of the
/// session alone. One of them also writes, and one changes the policy meanwhile.
#[test]
fn eight_sessions_at_once_get_right_answers() {
    for policy in PolicyKind::ALL {
        let engine = engine(3, policy);
        let session = engine.session();
        let table = "CREATE TABLE n AS SELECT value AS v, value % 100 AS g, 'k' || (value % 1000) AS s FROM range(0, 200000)";
        run(&engine, &session, table).expect("is made");
        run(&engine, &session, "CREATE TABLE log (who BIGINT)").expect("is made");
        let queries = [
            ("SELECT count(*) FROM n", 200_000),
            ("SELECT sum(v) FROM n", 19_999_900_000),
            ("SELECT count(DISTINCT s) FROM n", 1000),
            ("SELECT count(*) FROM n a JOIN n b ON a.v = b.v WHERE a.g = 7", 2000),
            ("SELECT max(c) FROM (SELECT g, count(*) AS c FROM n GROUP BY g)", 2000),
            ("SELECT sum(v) FROM (SELECT v FROM n ORDER BY v DESC LIMIT 10)", 1_999_945),
            ("SELECT count(*) FROM n WHERE s LIKE 'k99%'", 2200),
            ("SELECT v FROM n WHERE v = 123456", 123_456),
        ];
        thread::scope(|scope| {
            for who in 0..8 {
                let (engine, queries) = (&engine, &queries);
                scope.spawn(move || {
                    let session = engine.session();
                    for round in 0..queries.len() {
                        let (sql, expected) = queries[(who + round) % queries.len()];
                        assert_eq!(number(engine, &session, sql), expected, "{policy}: {sql}");
                        let insert = format!("INSERT INTO log VALUES ({who})");
                        if who % 2 == 0 {
                            run(engine, &session, &insert).expect("appends do not conflict");
                        }
                        if who == 7 {
                            let other = PolicyKind::ALL[round % 4].name();
                            run(engine, &session, &format!("SET thalweg.policy = '{other}'"))
                                .expect("a policy");
                        }
                    }
                });
            }
        });
        assert_eq!(number(&engine, &session, "SELECT count(*) FROM log"), 32);
        soon("the end of all queries", || engine.queries().is_empty());
    }
}

#[test]
fn a_statement_is_one_statement() {
    let (engine, session) = with_numbers(1, 1);
    let check = |sql: &str, expected: &str| {
        let e: Error = run(&engine, &session, sql).expect_err(sql);
        assert_eq!(e.kind(), Kind::User, "{sql}");
        assert!(e.message().contains(expected), "{sql}: {e:#}");
    };
    check("", "empty");
    check("  ;  ", "empty");
    check("SELECT 1; SELECT 2", "one statement");
    assert_eq!(number(&engine, &session, "SELECT count(*) FROM n;"), 1);
    assert_eq!(Session::split("SELECT ';'; -- a;\n SELECT 2;").expect("small").len(), 2);
}

/// Runs `work` in some sessions at once, and adds up what it returns.
fn at_once(
    engine: &Arc<Engine>,
    sessions: u64,
    work: impl Fn(&Session, u64) -> i64 + Send + Sync,
) -> i64 {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..sessions).map(|i| scope.spawn(move || work(&engine.session(), i))).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).sum()
    })
}

/// Whether a statement was done; a conflict is the one reason not to be.
fn done(result: Result<Vec<RecordBatch>>, sql: &str) -> bool {
    match result {
        Ok(_) => true,
        Err(e) if e.kind() == Kind::Conflict => false,
        Err(e) => panic!("{e:#}: {sql}"),
    }
}

#[test]
fn concurrent_changes_of_the_same_rows_lose_nothing() {
    let engine = engine(2, PolicyKind::SmallFirst);
    let session = engine.session();
    run(&engine, &session, "CREATE TABLE c AS SELECT value AS id, 0 AS v FROM range(0, 3)")
        .expect("the table is made");
    let changed = at_once(&engine, 4, |session, i| {
        let change = |step: u64| {
            let id = (i + step) % 3;
            let sql = match step % 3 {
                0 => format!("UPDATE c SET v = v + 1 WHERE id = {id}"),
                1 => format!(
                    "MERGE INTO c USING (SELECT {id} AS k) s ON c.id = s.k \
                     WHEN MATCHED THEN UPDATE SET v = v + 1"
                ),
                _ => format!(
                    "UPDATE c SET v = (SELECT max(v) FROM c WHERE id = {id}) + 1 WHERE id = {id}"
                ),
            };
            i64::from(done(run(&engine, session, &sql), &sql))
        };
        (0..15).map(change).sum()
    });
    assert_eq!(number(&engine, &session, "SELECT sum(v) FROM c"), changed);
    assert_eq!(number(&engine, &session, "SELECT count(*) FROM c"), 3);
    assert!(changed > 15, "most statements are tried again until they are done: {changed}");
}

#[test]
fn transactions_keep_a_sum_while_others_look() {
    let engine = engine(2, PolicyKind::SmallFirst);
    let session = engine.session();
    run(&engine, &session, "CREATE TABLE a AS SELECT value AS id, 100 AS v FROM range(0, 4)")
        .expect("the table is made");
    let transfer = |session: &Session, from: u64, to: u64| {
        for sql in [
            "BEGIN".to_string(),
            format!("UPDATE a SET v = v - 7 WHERE id = {from}"),
            format!("UPDATE a SET v = v + 7 WHERE id = {to}"),
            "COMMIT".to_string(),
        ] {
            if !done(run(&engine, session, &sql), &sql) {
                assert_eq!(sql, "COMMIT", "only a commit finds a conflict");
                return 0;
            }
        }
        1
    };
    let moved = at_once(&engine, 4, |session, i| match i {
        0 => {
            for _ in 0..20 {
                assert_eq!(number(&engine, session, "SELECT sum(v) FROM a"), 400);
            }
            0
        }
        _ => (0..8).map(|step| transfer(session, (i + step) % 4, (i + step + 1) % 4)).sum(),
    });
    assert!(moved > 0);
    assert_eq!(number(&engine, &session, "SELECT sum(v) FROM a"), 400);
    assert_eq!(number(&engine, &session, "SELECT count(*) FROM a"), 4);
}

#[test]
fn a_session_that_goes_takes_its_transaction_with_it() {
    let (engine, session) = with_numbers(2, 10);
    let other = engine.session();
    run(&engine, &other, "BEGIN").expect("it begins");
    run(&engine, &other, "DELETE FROM n").expect("it deletes");
    assert_eq!(other.transaction_status(), TransactionStatus::Open);
    assert_eq!(number(&engine, &other, "SELECT count(*) FROM n"), 0);
    drop(other);
    assert_eq!(number(&engine, &session, "SELECT count(*) FROM n"), 10);
    assert_eq!(session.transaction_status(), TransactionStatus::Idle);
}

/// The client is answered before the statement has stopped: neither its next statement nor the
/// late end of the old one may get the transaction's state wrong.
#[test]
fn a_cancelled_read_fails_its_transaction_at_once() {
    let (engine, session) = with_numbers(2, 20_000);
    run(&engine, &session, "BEGIN").expect("it begins");
    run(&engine, &session, "INSERT INTO n VALUES (-1)").expect("it inserts");
    run(&engine, &session, "SAVEPOINT one").expect("it is marked");
    for _ in 0..5 {
        engine.block_on(async {
            // It is past its start: rows are awaited.
            let answer = session.query(FRUITLESS).await.expect("starts");
            session.cancel();
            let e = answer.collect().await.expect_err("cancelled");
            assert_eq!(e.kind(), Kind::Cancelled, "{e:#}");
            assert_eq!(session.transaction_status(), TransactionStatus::Failed);
        });
        let e = run(&engine, &session, "SELECT count(*) FROM n").expect_err("it failed");
        assert_eq!(e.sqlstate(), "25P02", "{e:#}");
        run(&engine, &session, "ROLLBACK TO one").expect("it goes back");
        soon("the end of the query", || engine.queries().is_empty());
        assert_eq!(session.transaction_status(), TransactionStatus::Open);
        assert_eq!(number(&engine, &session, "SELECT count(*) FROM n"), 20_001);
    }
    run(&engine, &session, "COMMIT").expect("it commits");
    assert_eq!(number(&engine, &session, "SELECT count(*) FROM n"), 20_001);
}

#[test]
fn a_query_is_listed_and_killed_from_another_session() {
    let (engine, session) = with_numbers(2, 200_000);
    let other = engine.session();
    let victim = session.clone();
    thread::scope(|scope| {
        let running = scope.spawn(|| run(&engine, &victim, FRUITLESS).expect_err("killed"));
        let find = "SELECT query_id::BIGINT FROM system.queries WHERE query LIKE '%= -1' \
                    AND query NOT LIKE '%system%' AND state = 'running'";
        let mut id = None;
        soon("the listing", || {
            let found = run(&engine, &other, find).expect("a list");
            let ids = found.iter().flat_map(|b| b.column(0).as_primitive::<Int64Type>().iter());
            id = ids.flatten().next();
            id.is_some()
        });
        // It and the one that asks hold a slot.
        let slots = "SELECT count(query_id) FROM system.slots";
        soon("its slot", || number(&engine, &other, slots) >= 2);
        let asked = Instant::now();
        run(&engine, &other, &format!("KILL QUERY {}", id.expect("found"))).expect("is killed");
        let e = running.join().expect("no panic");
        assert!(asked.elapsed() < Duration::from_secs(5), "took {:?}", asked.elapsed());
        assert_eq!((e.kind(), e.message()), (Kind::Cancelled, "the query was stopped by KILL"));
    });
    soon("the end of the query", || engine.queries().is_empty());
    let e = run(&engine, &other, "KILL 1000000").expect_err("not there");
    assert_eq!(e.kind(), Kind::User, "{e:#}");
    assert_eq!(number(&engine, &session, "SELECT count(*) FROM n"), 200_000);
}

#[test]
fn errors_carry_the_codes_of_postgresql() {
    let (engine, session) = with_numbers(2, 10);
    let check = |sql: &str, code: &str| match run(&engine, &session, sql) {
        Ok(_) => panic!("{sql} is an error"),
        Err(e) => assert_eq!(e.sqlstate(), code, "{sql}: {e:#}"),
    };
    check("DELETE FROM nosuch", "42P01");
    check("UPDATE n SET nosuch = 1", "42703");
    check("UPDATE n SET v = s.x FROM (VALUES (1), (2)) s(x)", "21000");
    check("MERGE INTO n USING (VALUES (1), (1)) s(x) ON v = x WHEN MATCHED THEN DELETE", "21000");
    check("INSERT INTO system.tables VALUES (1)", "42501");
    run(&engine, &session, "BEGIN READ ONLY").expect("it begins");
    check("DELETE FROM n", "25006");
    check("SELECT 1", "25P02");
    run(&engine, &session, "ROLLBACK").expect("it ends");
    check("SAVEPOINT x", "25P01");
}

/// Twelve small extents become one while a reader is in the middle of them, and other rows come.
#[test]
fn the_background_compacts_and_nobody_notices() {
    let config = Config { threads: 2, compacts: true, ..Config::default() };
    let engine = Engine::open(":memory:", config).expect("opens in memory");
    let session = engine.session();
    run(&engine, &session, "CREATE TABLE n (v BIGINT)").unwrap();
    for i in 0..12 {
        let sql = format!("INSERT INTO n SELECT value + {i} * 1000 FROM generate_series(1, 1000)");
        run(&engine, &session, &sql).unwrap();
    }
    let reader = engine.session();
    let mut rows = engine.block_on(reader.query("SELECT v FROM n")).unwrap();
    let first = engine.block_on(rows.next()).expect("a batch").unwrap();
    let extents = "SELECT count(*) FROM system.extents WHERE table_name = 'n'";
    let started = Instant::now();
    while number(&engine, &session, extents) > 1 {
        assert!(started.elapsed() < SOON, "nothing was compacted");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(number(&engine, &session, "SELECT sum(v) FROM n"), 12_000 * 12_001 / 2);
    let last = "SELECT count(*) FROM system.snapshots WHERE operation = 'COMPACT'";
    assert_eq!(number(&engine, &session, last), 1);
    let mut read = first.num_rows();
    while let Some(batch) = engine.block_on(rows.next()) {
        read += batch.unwrap().num_rows();
    }
    assert_eq!(read, 12_000);
}

/// Not long, and long enough that all who ask at once ask while it runs.
const PAIRS: &str = "SELECT count(*), max(a.v) FROM m a, m b WHERE a.v * 7 + b.v * 3 = 10";

fn with_pairs(threads: usize) -> (Arc<Engine>, Session) {
    let (engine, session) = with_numbers(threads, 20_000);
    run(&engine, &session, "CREATE TABLE m AS SELECT v FROM n WHERE v < 6000").expect("is made");
    (engine, session)
}

#[test]
fn identical_statements_are_computed_once() {
    let (engine, _) = with_pairs(2);
    let one = |session: &Session, _| number(&engine, session, PAIRS);
    assert_eq!(at_once(&engine, 6, one), 6);
    assert_eq!(engine.shared_statements(), 5);
    // What is done is not kept.
    assert_eq!(at_once(&engine, 1, one), 1);
    assert_eq!(engine.shared_statements(), 5);
    let unshared = |session: &Session, i| {
        let value = if i < 2 { "off" } else { "on" };
        run(&engine, session, &format!("SET thalweg.share_work = '{value}'")).expect("is set");
        number(&engine, session, PAIRS)
    };
    assert_eq!(at_once(&engine, 3, unshared), 3);
    assert_eq!(engine.shared_statements(), 5);
}

#[test]
fn a_statement_after_a_change_shares_nothing_with_one_before_it() {
    let (engine, session) = with_pairs(2);
    let [before, other] = [engine.session(), engine.session()];
    let started = engine.block_on(before.query(PAIRS)).expect("starts");
    // 7 × 1 + 3 × 1, once more with each of the other one.
    run(&engine, &session, "INSERT INTO m VALUES (1)").expect("is inserted");
    assert_eq!(number(&engine, &other, PAIRS), 4);
    let batches = engine.block_on(started.collect()).expect("ends");
    assert_eq!(batches[0].column(0).as_primitive::<Int64Type>().value(0), 1);
    assert_eq!(engine.shared_statements(), 0);
}

#[test]
fn who_waits_for_an_identical_query_says_so_and_takes_over() {
    let (engine, session) = with_numbers(2, 20_000);
    let sessions: Vec<Session> = (0..3).map(|_| engine.session()).collect();
    let list = |columns: &str| {
        let sql = format!(
            "SELECT {columns} FROM system.queries \
             WHERE query LIKE '%= -1' AND query NOT LIKE '%system%' ORDER BY query_id"
        );
        run(&engine, &session, &sql).expect("a list")
    };
    let ids = |waits: &str| -> Vec<i64> {
        let all = list(&format!("query_id::BIGINT, {waits}"));
        let of = |b: &RecordBatch| {
            let waits = b.column(1).as_boolean().iter();
            let ids = b.column(0).as_primitive::<Int64Type>().values().iter().copied();
            ids.zip(waits).filter(|(_, w)| *w == Some(true)).map(|(id, _)| id).collect::<Vec<_>>()
        };
        all.iter().flat_map(of).collect()
    };
    let waiting = || ids("state = 'waiting for a query'");
    thread::scope(|scope| {
        let start = |i: usize| {
            let (engine, session) = (&engine, &sessions[i]);
            scope.spawn(move || run(engine, session, FRUITLESS).expect_err("never ends"))
        };
        let first = start(0);
        soon("the first query", || ids("cpu_ms > 20").len() == 1);
        let (second, third) = (start(1), start(2));
        soon("two that wait", || waiting().len() == 2);
        let leader = ids("waits_for IS NULL OR waits_for NOT LIKE 'query%'");
        let named = format!("waits_for = 'query {}, which computes the same'", leader[0]);
        assert_eq!((leader.len(), ids(&named)), (1, waiting()));

        run(&engine, &session, &format!("KILL QUERY {}", leader[0])).expect("is killed");
        assert_eq!(first.join().expect("no panic").message(), "the query was stopped by KILL");
        // Planning may take who waits long, too.
        let computes = "cpu_ms > 20 AND state <> 'waiting for a query'";
        soon("one to follow it", || waiting().len() == 1 && ids(computes).len() == 1);

        // Who waits can be stopped, too, and stops nobody else.
        let waits = waiting()[0];
        run(&engine, &session, &format!("KILL QUERY {waits}")).expect("is killed");
        soon("one alone", || ids("true").len() == 1 && waiting().is_empty());
        sessions.iter().for_each(Session::cancel);
        for query in [second, third] {
            assert_eq!(query.join().expect("no panic").kind(), Kind::Cancelled);
        }
    });
    soon("the end of the queries", || engine.queries().is_empty());
    assert_eq!(engine.shared_statements(), 0);
}

/// Four different queries over one cold column decode it as often as one does.
#[test]
fn concurrent_scans_decode_a_chunk_once() {
    let decoded = |sessions: u64| {
        let (engine, _) = with_numbers(3, 2_000_000);
        at_once(&engine, sessions, |session, i| {
            let sql = format!("EXPLAIN ANALYZE SELECT sum(v + {i}) FROM n");
            let plan = run(&engine, session, &sql).expect("a plan");
            let texts = plan.iter().flat_map(|b| b.column(1).as_string::<i32>().iter().flatten());
            let text: String = texts.collect();
            let count = text.split("bytes_decoded=").nth(1).expect("a scan");
            let word = |i| count.split([' ', ',', ']']).nth(i).unwrap_or_default();
            let scale = match word(1) {
                "K" => 1e3,
                "M" => 1e6,
                "B" => 1e9,
                _ => 1.0,
            };
            (word(0).parse::<f64>().expect("a number") * scale) as i64
        })
    };
    let (one, four) = (decoded(1), decoded(4));
    // Of two million numbers, four bytes each.
    assert!(one > 7_500_000, "{one}");
    // Shown in units of a hundredth.
    assert!((four - one).abs() < one / 20, "one decodes {one} bytes, four {four}");
}

/// However short the time is: a statement says that it was for the time that it ended.
#[test]
fn a_timeout_is_always_the_reason_that_is_given() {
    let (engine, session) = with_numbers(2, 20_000);
    run(&engine, &session, "CREATE WORKLOAD hasty (statement_timeout = '0.3ms')").expect("is made");
    at_once(&engine, 4, |session, i| {
        if i % 2 == 0 {
            run(&engine, session, "SET thalweg.workload = 'hasty'").expect("is there");
        }
        for n in 0..100 {
            session.set_timeout(Some(Duration::from_millis(1 + n % 3)));
            let e = run(&engine, session, FRUITLESS).expect_err("never ends");
            assert_eq!(e.kind(), Kind::Cancelled, "{e:#}");
            assert!(e.message().starts_with("the query was stopped after"), "{e:#}");
        }
        0
    });
    soon("the end of the queries", || engine.queries().is_empty());
    assert_eq!(engine.memory_held(), 0);
}
