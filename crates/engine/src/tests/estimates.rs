//! How much work and memory plans are expected to take.

use crate::config::Config;
use crate::engine::Engine;
use crate::statement;
use thalweg_runtime::{Origin, Run, Terms};

#[test]
fn joins_groups_and_sorts_want_memory_and_look_ups_do_not() {
    let engine = Engine::open(":memory:", Config { threads: 2, ..Config::default() }).unwrap();
    let session = engine.session();
    let sql = "CREATE TABLE t AS SELECT value AS a, value * 7 AS b FROM range(0, 20000)";
    engine.block_on(session.query(sql)).unwrap();
    let wanted = |sql: &str| {
        let inner = session.inner();
        let wanted = engine.block_on(async {
            let state = inner.context.state();
            statement::begin(inner, &state).await?;
            let parsed = statement::parse(&state, sql)?;
            let plan = statement::plan(&state, parsed).await.unwrap();
            let driver = engine.runtime().driver();
            let run = Run::begin(driver, Origin::new(None, sql), &Terms::default())?;
            statement::physical(&run, &state, &plan).await?;
            Ok(run.memory_wanted())
        });
        inner.transactions.end_statement(true);
        wanted.unwrap_or_else(|e: thalweg_base::Error| panic!("{e:#}: {sql}"))
    };
    for sql in [
        "SELECT x.a FROM t x JOIN t y ON x.a = y.b",
        "SELECT a, count(*) FROM t GROUP BY a",
        "SELECT a, b FROM t ORDER BY b",
    ] {
        assert!((200_000..20_000_000).contains(&wanted(sql)), "{} B: {sql}", wanted(sql));
    }
    assert_eq!(wanted("SELECT b FROM t WHERE a = 5"), 0);
    assert_eq!(wanted("SELECT count(*) FROM t WHERE b > 5"), 0);
    assert!(wanted("SELECT a, b FROM t ORDER BY b LIMIT 5") < 1_000);
}
