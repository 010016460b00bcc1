//! Several sessions at once under limits: who waits, for what, and how it ends.

use arrow::util::display::array_value_to_string;

use super::*;

/// The first value of a query, as text; empty if there is no row.
fn text(engine: &Engine, session: &Session, sql: &str) -> String {
    let sql = format!("SELECT coalesce(max(x), '') FROM ({sql}) AS q(x)");
    let batches = run(engine, session, &sql).unwrap_or_else(|e| panic!("{e:#}: {sql}"));
    let batch = batches.iter().find(|b| b.num_rows() > 0).expect("a row");
    array_value_to_string(batch.column(0), 0).expect("text")
}

/// Starts a statement in a session of its own, in a workload.
fn start<'s, 'e: 's>(
    scope: &'s thread::Scope<'s, 'e>,
    engine: &'e Arc<Engine>,
    workload: &str,
    sql: &'static str,
) -> thread::ScopedJoinHandle<'s, Result<i64>> {
    let session = engine.session();
    run(engine, &session, &format!("SET thalweg.workload = '{workload}'")).expect("is there");
    scope.spawn(move || {
        let batches = run(engine, &session, sql)?;
        let batch = batches.iter().find(|b| b.num_rows() > 0).expect("a row");
        Ok(batch.column(0).as_primitive::<Int64Type>().value(0))
    })
}

/// Returns once one query computes.
fn runs(engine: &Engine) {
    soon("its begin", || engine.queries().iter().any(|q| q.cpu_ns > 0));
}

fn kill_all(engine: &Engine) {
    for query in engine.queries() {
        // It may have ended by itself.
        let _ = engine.kill(query.query);
    }
}

#[test]
fn a_full_workload_makes_wait_says_so_and_refuses_what_its_queue_cannot_take() {
    let (engine, session) = with_numbers(2, 20_000);
    run(&engine, &session, "CREATE WORKLOAD w (max_running = 1, queue = 1)").unwrap();
    let state = "SELECT state || ' for ' || waits_for FROM system.queries WHERE query = 'SELECT count(*) FROM n'";
    let id = "SELECT query_id FROM system.queries WHERE query LIKE 'SELECT count(*) FROM n a%'";
    thread::scope(|scope| {
        let endless = start(scope, &engine, "w", ENDLESS);
        runs(&engine);
        let running = number(
            &engine,
            &session,
            &format!("SELECT CAST(max(x) AS BIGINT) FROM ({id}) AS q(x)"),
        );
        let waits = start(scope, &engine, "w", "SELECT count(*) FROM n");
        let expected =
            format!("waiting for admission for workload \"w\" to have room: it runs {running}");
        soon("the wait", || text(&engine, &session, state) == expected);
        let refused =
            start(scope, &engine, "w", "SELECT count(*) FROM n").join().unwrap().unwrap_err();
        assert_eq!(refused.kind(), Kind::Resources);
        let said = format!("{refused:#}");
        assert!(said.contains("all 1 places in the queue of workload \"w\" are taken"), "{said}");
        assert!(said.contains("raise queue or max_running"), "{said}");
        // Others are not held up, nor is what one needs to find out and to act.
        assert_eq!(number(&engine, &session, "SELECT count(*) FROM n"), 20_000);
        let inside = engine.session();
        run(&engine, &inside, "SET thalweg.workload = 'w'").unwrap();
        run(&engine, &inside, "SHOW QUERIES").unwrap();
        run(&engine, &inside, &format!("KILL {running}")).unwrap();
        assert_eq!(waits.join().unwrap().expect("it had its turn"), 20_000);
        assert_eq!(endless.join().unwrap().unwrap_err().kind(), Kind::Cancelled);
    });
    let log = "SELECT state FROM system.query_log WHERE query LIKE 'SELECT count(*) FROM n a%'";
    soon("its entry in the log", || text(&engine, &session, log) == "cancelled");
}

#[test]
fn limits_hold_for_queries_that_run_already() {
    let (engine, session) = with_numbers(2, 20_000);
    run(&engine, &session, "CREATE WORKLOAD w").unwrap();
    thread::scope(|scope| {
        let endless = start(scope, &engine, "w", ENDLESS);
        runs(&engine);
        run(&engine, &session, "ALTER WORKLOAD w (statement_timeout = '100ms')").unwrap();
        let e = endless.join().unwrap().unwrap_err();
        assert_eq!(e.kind(), Kind::Cancelled, "{e:#}");
        assert!(e.message().starts_with("the query was stopped after 100.0 ms"), "{e:#}");
        run(&engine, &session, "ALTER WORKLOAD w (statement_timeout = NONE)").unwrap();
        soon("its end", || engine.queries().is_empty());

        // The one that waits has waited for too long.
        run(&engine, &session, "ALTER WORKLOAD w (max_running = 1)").unwrap();
        let endless = start(scope, &engine, "w", ENDLESS);
        runs(&engine);
        let waits = start(scope, &engine, "w", "SELECT count(*) FROM n");
        run(&engine, &session, "ALTER WORKLOAD w (queue_timeout = '50ms')").unwrap();
        let e = waits.join().unwrap().unwrap_err();
        assert_eq!(e.kind(), Kind::Resources);
        assert!(format!("{e:#}").contains("raise queue_timeout of workload \"w\""), "{e:#}");
        // In the default workload the limits of `w` do not hold, nor does its timeout.
        run(&engine, &session, "DROP WORKLOAD w").unwrap();
        assert_eq!(number(&engine, &session, "SELECT count(*) FROM n"), 20_000);
        kill_all(&engine);
        assert_eq!(endless.join().unwrap().unwrap_err().kind(), Kind::Cancelled);
    });
    soon("the end of all", || engine.queries().is_empty());
    assert_eq!(engine.memory_held(), 0);
}

#[test]
fn a_full_server_lets_control_statements_through() {
    let (engine, session) = with_numbers(2, 20_000);
    run(&engine, &session, "SET thalweg.max_running = 1").unwrap();
    thread::scope(|scope| {
        let endless = start(scope, &engine, "default", ENDLESS);
        runs(&engine);
        let waits = start(scope, &engine, "default", "SELECT count(*) FROM n");
        soon("the wait", || engine.queries().len() == 2);
        run(&engine, &session, "SHOW QUERIES").unwrap();
        run(&engine, &session, "SET thalweg.max_running = 2").unwrap();
        assert_eq!(waits.join().unwrap().unwrap(), 20_000);
        kill_all(&engine);
        assert!(endless.join().unwrap().is_err());
    });
}

#[test]
fn workloads_are_there_again_when_the_database_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let location = folder.path().join("db").display().to_string();
    let open = || Engine::open(&location, Config { threads: 1, ..Config::default() }).unwrap();
    let all = "SELECT string_agg(workload || ' ' || weight, ', ' ORDER BY workload) FROM system.workloads";
    {
        let engine = open();
        let session = engine.session();
        for sql in [
            "CREATE WORKLOAD a (weight = 10)",
            "CREATE WORKLOAD b (weight = 20)",
            "ALTER WORKLOAD a (weight = 30)",
            "DROP WORKLOAD b",
            "ALTER WORKLOAD default (weight = 70)",
        ] {
            run(&engine, &session, sql).unwrap();
        }
    }
    let engine = open();
    assert_eq!(text(&engine, &engine.session(), all), "a 30, default 70");
}

/// Eight times the memory that there is: they take turns and spill, and nobody is refused.
#[test]
fn queries_that_want_more_memory_than_there_is_wait_and_spill() {
    let (engine, session) = with_numbers(2, 400_000);
    run(&engine, &session, "SET thalweg.memory_limit = '24MiB'").unwrap();
    thread::scope(|scope| {
        let groups =
            "SELECT count(*) FROM (SELECT v % 390000 AS g, count(*), sum(v) FROM n GROUP BY g)";
        let sorts = "SELECT count(*) FROM (SELECT row_number() OVER (ORDER BY v % 1000, v) AS r, v FROM n) WHERE r > 100000";
        let queries: Vec<_> = (0..8)
            .map(|i| start(scope, &engine, "default", if i % 2 == 0 { groups } else { sorts }))
            .collect();
        for (i, query) in queries.into_iter().enumerate() {
            let rows = query.join().unwrap().unwrap_or_else(|e| panic!("{i}: {e:#}"));
            assert_eq!(rows, if i % 2 == 0 { 390_000 } else { 300_000 });
        }
    });
    soon("the end of all", || engine.queries().is_empty());
    assert_eq!(engine.memory_held(), 0);
}
