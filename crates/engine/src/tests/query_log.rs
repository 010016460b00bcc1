//! The log of queries, as SQL shows it.

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;

use crate::config::Config;
use crate::engine::Engine;

#[test]
fn a_statement_that_has_been_answered_is_in_the_log_and_no_longer_among_those_that_run() {
    let engine = Engine::open(":memory:", Config::default()).unwrap();
    let session = engine.session();
    let ask =
        |sql: &str| engine.block_on(async { session.query(sql).await?.collect().await }).unwrap();
    // Several tasks, of which one answers.
    let asked = "SELECT value % 100, count(*) FROM range(0, 50000) GROUP BY 1";
    for n in (1..=200).step_by(2) {
        ask(asked);
        let log = ask(&format!("SELECT count(*) FROM system.query_log WHERE query = '{asked}'"));
        assert_eq!(log[0].column(0).as_primitive::<Int64Type>().value(0), n);
        ask(asked);
        let running = ask("SELECT query_id FROM system.queries");
        assert_eq!(running.iter().map(|batch| batch.num_rows()).sum::<usize>(), 1);
    }
}
