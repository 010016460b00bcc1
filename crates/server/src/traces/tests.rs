use std::sync::Mutex;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use thalweg_engine::Config;

use super::*;

use crate::statement::Protocol;

/// What a collector got; it refuses the first `refusals` requests.
struct Collector {
    endpoint: String,
    got: Arc<Mutex<Vec<Value>>>,
    _runtime: tokio::runtime::Runtime,
}

fn collector(refusals: usize) -> Collector {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let endpoint = format!("http://{}/", listener.local_addr().unwrap());
    let got = Arc::new(Mutex::new(Vec::new()));
    let (keep, left) = (Arc::clone(&got), Arc::new(Mutex::new(refusals)));
    let take = move |headers: axum::http::HeaderMap, body: String| async move {
        assert_eq!(headers["content-type"], "application/json");
        let mut left = left.lock().unwrap();
        if *left > 0 {
            *left -= 1;
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        keep.lock().unwrap().push(serde_json::from_str(&body).unwrap());
        StatusCode::OK
    };
    let router = Router::new().route("/v1/traces", post(take));
    runtime.spawn(async move { axum::serve(listener, router).await });
    Collector { endpoint, got, _runtime: runtime }
}

impl Collector {
    fn spans(&self) -> Vec<Value> {
        let got = self.got.lock().unwrap();
        let spans = got.iter().flat_map(|request| {
            request["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
        });
        spans.collect()
    }
}

const FLUSH: Duration = Duration::from_secs(20);

fn engine() -> Arc<Engine> {
    Engine::open(":memory:", Config::default()).unwrap()
}

fn statement<'a>(sql: &'a str, query: Option<QueryId>, error: Option<&'a Error>) -> Statement<'a> {
    Statement {
        protocol: Protocol::Pg,
        sql,
        user: "ann",
        query,
        began: SystemTime::now() - Duration::from_millis(100),
        took: Duration::from_millis(100),
        rows: 3,
        bytes: 30,
        error,
        parent: None,
    }
}

#[test]
fn a_statement_is_a_trace_with_its_steps() {
    let (engine, collector) = (engine(), collector(2));
    let session = engine.session();
    let query = engine.block_on(async {
        let answer = session.query("SELECT 1 + 1").await.unwrap();
        let query = answer.query();
        answer.collect().await.unwrap();
        query
    });
    let traces = Traces::start(&collector.endpoint, &engine).unwrap();
    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let sql = format!("SELECT 1 + 1 /*traceparent='{PARENT}'*/");
    while engine.spent(query).is_none() {
        std::thread::yield_now();
    }
    traces.send(&statement(&sql, Some(query), None));
    traces.flush(FLUSH);
    let spans = collector.spans();
    let names: Vec<&str> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(
        (names[0], names.contains(&"plan"), names.contains(&"execute")),
        ("select", true, true)
    );
    let root = &spans[0];
    assert_eq!(root["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(root["parentSpanId"], "00f067aa0ba902b7");
    for step in &spans[1..] {
        assert_eq!((&step["traceId"], &step["parentSpanId"]), (&root["traceId"], &root["spanId"]));
        let ns = |span: &Value, key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
        assert!(ns(step, "startTimeUnixNano") >= ns(root, "startTimeUnixNano"));
        assert!(ns(step, "endTimeUnixNano") <= ns(root, "endTimeUnixNano"));
    }
    assert_eq!(traces.dropped().get(), 0);
}

#[test]
fn a_failure_is_told_and_a_secret_is_not() {
    let (engine, collector) = (engine(), collector(0));
    let traces = Traces::start(&collector.endpoint, &engine).unwrap();
    let error = Error::user("no such role").code("42704");
    traces.send(&statement("ALTER ROLE x PASSWORD 'hush'", None, Some(&error)));
    traces.send(&Statement {
        parent: Some(TraceParent { trace: 1, span: 1, sampled: false }),
        ..statement("SELECT 'not sampled'", None, None)
    });
    traces.flush(FLUSH);
    let spans = collector.spans();
    assert_eq!(spans.len(), 1);
    assert_eq!(spans[0]["status"]["code"], 2);
    let all = spans[0].to_string();
    assert!(all.contains("42704") && !all.contains("hush"), "{all}");
}

#[test]
fn nobody_at_the_other_end_costs_traces_and_nothing_else() {
    let engine = engine();
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let traces = Traces::start(&format!("http://{free}"), &engine).unwrap();
    let began = Instant::now();
    for _ in 0..QUEUE_MAX + 1000 {
        traces.send(&statement("SELECT 1", None, None));
    }
    assert!(began.elapsed() < Duration::from_secs(2));
    assert!(traces.dropped().get() > 0);
    assert!(Traces::start("nonsense", &engine).is_err());
}
