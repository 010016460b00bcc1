use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::Result as DfResult;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::channel::mpsc as paused;
use futures::task::{ArcWake, waker};
use thalweg_base::limits::SHARED_RESULT_BYTES_MAX;
use thalweg_base::{Error, Kind, Result};
use thalweg_storage::{Database, Options};
use tokio::sync::{mpsc, oneshot};

use thalweg_errors::into_datafusion;
use thalweg_runtime::{Driver, Origin, Run, Terms};

use super::*;
use crate::answer::{Head, Item};
use crate::config::Config;
use crate::deliver::{self, Client};
use crate::engine::Engine;
use crate::plans::Planned;
use crate::session::Session;
use crate::titles::Titles;
use crate::transaction::Transactions;
use crate::{as_of, statement};

/// A future that is polled by hand, only when it was woken.
struct Waiting<T> {
    future: Pin<Box<dyn Future<Output = T>>>,
    wakes: Arc<Wakes>,
}

struct Wakes(AtomicUsize);

impl ArcWake for Wakes {
    fn wake_by_ref(wakes: &Arc<Self>) {
        wakes.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl<T> Waiting<T> {
    fn new(future: impl Future<Output = T> + 'static) -> Self {
        Waiting { future: Box::pin(future), wakes: Arc::new(Wakes(AtomicUsize::new(1))) }
    }

    /// `None`: it waits, or nobody woke it.
    fn run(&mut self) -> Option<T> {
        while self.wakes.0.swap(0, Ordering::Relaxed) > 0 {
            let waker = waker(Arc::clone(&self.wakes));
            if let Poll::Ready(value) = self.future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return Some(value);
            }
        }
        None
    }
}

/// A leader whose stream gives what the test feeds it, and whose client takes nothing by itself.
struct Led {
    stream: Option<paused::UnboundedSender<DfResult<RecordBatch>>>,
    head: oneshot::Receiver<Result<Head>>,
    rows: mpsc::Receiver<Item>,
    leading: Waiting<()>,
    joined: Waiting<Landed<Arc<Kept>>>,
    pool: Arc<dyn MemoryPool>,
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))
}

fn batch(rows: usize) -> RecordBatch {
    let column = Int64Array::from(vec![rows as i64; rows]);
    RecordBatch::try_new(schema(), vec![Arc::new(column)]).unwrap()
}

fn led(memory_bytes: usize) -> Led {
    let engine = Engine::open(":memory:", Config { threads: 1, ..Config::default() }).unwrap();
    let key = Arc::new(key(&with_table(&engine), "SELECT a FROM t").unwrap());
    let flights = Arc::new(Flights::default());
    let Part::Leads(leader) = flights.board(&key) else { panic!("joins") };
    let Part::Joins(joiner) = flights.board(&key) else { panic!("leads") };
    let (feed, fed) = paused::unbounded();
    let stream: SendableRecordBatchStream = Box::pin(RecordBatchStreamAdapter::new(schema(), fed));
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(memory_bytes));
    let kept = Kept::new(schema(), &pool);
    let (started, head) = oneshot::channel();
    let (sender, rows) = mpsc::channel(1);
    let leading = Waiting::new(async move {
        let transactions = Transactions::new(Database::memory(Options::default()).unwrap());
        let driver =
            Arc::new(Driver::new(&Config { threads: 1, ..Config::default() }.resources(0), 0));
        let run =
            Run::begin(&driver, Origin::new(None, "SELECT a FROM t"), &Terms::default()).unwrap();
        let reading = transactions.reading(&run);
        let mut client = Client {
            started: Some(started),
            rows: sender,
            reading,
            titles: Titles::default(),
            notices: vec![],
        };
        let result = deliver::lead(&mut client, stream, leader, kept).await;
        client.end(result).await;
    });
    let joined = Waiting::new(joiner.landed());
    let mut led = Led { stream: Some(feed), head, rows, leading, joined, pool };
    assert!(led.leading.run().is_none() && led.joined.run().is_none());
    assert!(matches!(led.head.try_recv(), Ok(Ok(_))), "the head is sent at once");
    led
}

impl Led {
    fn feed(&mut self, batch: DfResult<RecordBatch>) {
        self.stream.as_ref().unwrap().unbounded_send(batch).unwrap();
        assert!(self.leading.run().is_none());
    }

    /// The rows that the leader's client gets, and its error.
    fn client(&mut self) -> (usize, Option<Kind>) {
        let mut rows = 0;
        loop {
            let _ = self.leading.run();
            match self.rows.try_recv() {
                Ok(Some(Ok(batch))) => rows += batch.num_rows(),
                Ok(Some(Err(e))) => return (rows, Some(e.kind())),
                Ok(None) => return (rows, None),
                Err(e) => panic!("{e} after {rows} rows"),
            }
        }
    }
}

#[test]
fn who_joined_does_not_wait_for_the_leaders_client() {
    let mut led = led(1 << 30);
    for _ in 0..20 {
        led.feed(Ok(batch(10)));
        assert!(led.joined.run().is_none(), "all or nothing");
    }
    led.stream = None;
    assert!(led.leading.run().is_none(), "its client has taken nothing yet");
    let Some(Landed::Done(kept)) = led.joined.run() else { panic!("the rows are there") };
    assert_eq!(kept.batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 200);
    assert!(led.pool.reserved() >= 200 * 8);
    assert_eq!(led.client(), (200, None));
    drop(kept);
    assert_eq!(led.pool.reserved(), 0);
}

#[test]
fn an_error_is_the_leaders_own() {
    let mut led = led(1 << 30);
    led.feed(Ok(batch(10)));
    led.stream.as_ref().unwrap().unbounded_send(Err(into_datafusion(Error::user("no")))).unwrap();
    assert!(led.leading.run().is_none());
    assert!(matches!(led.joined.run(), Some(Landed::Lost)));
    assert_eq!(led.client(), (10, Some(Kind::User)));
    assert_eq!(led.pool.reserved(), 0);
}

#[test]
fn a_client_that_goes_ends_the_flight() {
    let mut led = led(1 << 30);
    for _ in 0..3 {
        led.feed(Ok(batch(10)));
    }
    led.rows.close();
    assert!(led.leading.run().is_some(), "nobody wants the rows any more");
    assert!(matches!(led.joined.run(), Some(Landed::Lost)));
}

#[test]
fn a_large_result_is_not_kept() {
    let mut led = led(1 << 30);
    let rows = SHARED_RESULT_BYTES_MAX / 8 / 4;
    for _ in 0..3 {
        led.feed(Ok(batch(rows)));
    }
    assert!(led.joined.run().is_none());
    led.feed(Ok(batch(rows + 1)));
    assert!(matches!(led.joined.run(), Some(Landed::TooLarge)));
    assert_eq!(led.pool.reserved(), 0);
    // From now on the stream waits for the client.
    for _ in 0..20 {
        led.feed(Ok(batch(1)));
    }
    led.stream = None;
    assert_eq!(led.client(), (4 * rows + 1 + 20, None));
}

#[test]
fn nothing_is_kept_where_memory_is_short() {
    let mut led = led(100);
    led.feed(Ok(batch(100)));
    assert!(matches!(led.joined.run(), Some(Landed::TooLarge)));
    led.stream = None;
    assert_eq!(led.client(), (100, None));
}

fn with_table(engine: &Arc<Engine>) -> Session {
    let session = engine.session();
    execute(&session, "CREATE TABLE t AS SELECT value AS a, 'x' || value AS s FROM range(0, 10)");
    execute(&session, "CREATE TABLE u AS SELECT value AS a FROM range(0, 10)");
    execute(&session, "CREATE VIEW v AS SELECT a + 1 AS b FROM t WHERE a > 3");
    session
}

fn execute(session: &Session, sql: &str) {
    let engine = session.engine();
    let done = engine.block_on(async { session.query(sql).await?.collect().await });
    done.unwrap_or_else(|e| panic!("{e:#}: {sql}"));
}

/// As a statement of that session has it now.
fn key(session: &Session, sql: &str) -> Option<Key> {
    let (engine, inner) = (session.engine(), session.inner());
    let driver = engine.runtime().driver();
    let planned = engine.block_on(async {
        let state = inner.context.state();
        statement::begin(inner, &state).await?;
        let mut parsed = statement::parse(&state, sql)?;
        as_of::resolve(&inner.catalog, &state, &mut parsed).await?;
        let plan = statement::plan(&state, parsed).await.unwrap();
        let run = Run::begin(driver, Origin::new(None, sql), &Terms::default()).unwrap();
        Ok(Key::of(&Planned::new(state.optimize(&plan).unwrap(), Titles::default()), &state, &run))
    });
    inner.transactions.end_statement(true);
    planned.unwrap_or_else(|e: Error| panic!("{e:#}: {sql}"))
}

#[test]
fn a_key_is_all_that_decides_an_answer() {
    let engine = Engine::open(":memory:", Config { threads: 2, ..Config::default() }).unwrap();
    let (one, two) = (with_table(&engine), engine.session());
    let joined = "SELECT t.a, count(*) FROM t JOIN v ON t.a = v.b \
                  WHERE t.a IN (SELECT a FROM u) AND s LIKE 'x%' GROUP BY t.a ORDER BY t.a LIMIT 5";
    let sum = "SELECT sum(a) FROM t WHERE a > (SELECT min(a) FROM u)";
    let same = |sql: &str, other: &str| key(&one, sql).unwrap() == key(&two, other).unwrap();
    assert!(same(joined, joined) && same(sum, sum));
    assert!(!same("SELECT a FROM t WHERE a = 3", "SELECT a FROM t WHERE a = 4"), "a literal");
    assert!(!same("SELECT a FROM t", "SELECT a AS b FROM t"), "a name");
    assert!(!same("SELECT a FROM t", "SELECT a FROM u"), "a table");
    assert!(!same("SELECT count(*) FROM t", "SELECT sum(a) FROM t"), "a function");

    let before = [key(&one, joined), key(&one, sum), key(&one, "SELECT a FROM u")];
    execute(&two, "INSERT INTO t VALUES (10, 'x10')");
    assert!(before[0] != key(&one, joined) && before[1] != key(&one, sum));
    assert!(before[2] == key(&one, "SELECT a FROM u"), "a commit elsewhere");
    assert!(same(joined, joined));

    execute(&two, "BEGIN");
    assert!(same(sum, sum), "an open transaction, as long as it has changed nothing");
    execute(&two, "DELETE FROM u WHERE a = 0");
    assert!(!same(sum, sum), "a change of its own");
    execute(&two, "ROLLBACK");
    assert!(same(sum, sum));

    execute(&two, "SET thalweg.statement_timeout_ms = 100000");
    assert!(same(sum, sum), "a setting that changes no answer");
    execute(&two, "SET datafusion.execution.batch_size = 100");
    assert!(!same(sum, sum), "a setting that may change one");
    execute(&two, "RESET datafusion.execution.batch_size");
    assert!(same(sum, sum));
    execute(&two, "SET datafusion.execution.time_zone = '+02:00'");
    assert!(!same(sum, sum), "the time zone");
    execute(&two, "SET thalweg.share_work = off");
    assert!(key(&two, sum).is_none());
    assert!(key(&one, sum).is_some());
}

#[test]
fn only_what_stored_tables_decide_is_shared() {
    let engine = Engine::open(":memory:", Config { threads: 2, ..Config::default() }).unwrap();
    let session = with_table(&engine);
    for sql in [
        "SELECT 1",
        "SELECT value FROM range(0, 10)",
        "SELECT t.a FROM t, range(0, 10) AS r",
        "SELECT random() FROM t",
        "SELECT a FROM t WHERE a > random() * 5",
        "SELECT uuid(), a FROM t",
        "SELECT a FROM t WHERE a IN (SELECT a FROM u WHERE random() < 0.5)",
        "SELECT a FROM t ORDER BY random()",
        "SELECT count(*) FROM system.queries",
        "SELECT t.a FROM t JOIN system.tables ON true",
        "SELECT count(*) FROM information_schema.tables",
        "EXPLAIN SELECT a FROM t",
        "EXPLAIN ANALYZE SELECT a FROM t",
    ] {
        assert!(key(&session, sql).is_none(), "{sql}");
    }
    for sql in ["SELECT a, now() FROM t", "SELECT a FROM t WHERE now() > to_timestamp(a)"] {
        // A literal by now, another in each.
        assert!(key(&session, sql) != key(&session, sql) || key(&session, sql).is_none(), "{sql}");
    }
    for sql in [
        "SELECT a FROM t",
        "SELECT a, rank() OVER (ORDER BY a), sum(a) OVER (PARTITION BY s) FROM t",
        "SELECT DISTINCT b FROM v UNION ALL SELECT a FROM u",
        "WITH x AS (SELECT a, a % 2 AS g FROM t) SELECT g, approx_distinct(a) FROM x GROUP BY g",
        "SELECT unnest([a, a]) FROM t",
        "SELECT upper(s), date_trunc('day', to_timestamp(a)) FROM t WHERE current_date > '2020-01-01'",
    ] {
        let key = || key(&session, sql);
        assert!(key().is_some() && key() == key(), "{sql}");
    }
}
