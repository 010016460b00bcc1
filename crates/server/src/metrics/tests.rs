use std::collections::BTreeSet;
use std::time::SystemTime;

use thalweg_engine::Config as EngineConfig;

use super::*;

fn metrics(config: &Config) -> (Arc<Engine>, Metrics) {
    let engine = Engine::open(":memory:", EngineConfig::default()).unwrap();
    let metrics = Metrics::new(&engine, config).unwrap();
    (engine, metrics)
}

fn statement<'a>(sql: &'a str, error: Option<&'a Error>) -> Statement<'a> {
    Statement {
        protocol: Protocol::Pg,
        sql,
        user: "ann",
        query: None,
        began: SystemTime::now(),
        took: Duration::from_millis(30),
        rows: 3,
        bytes: 70,
        error,
        parent: None,
    }
}

#[track_caller]
fn has(text: &str, line: &str) {
    assert!(text.lines().any(|l| l == line), "{line:?} is not in\n{text}");
}

#[test]
fn the_page_of_the_documentation_has_these_names_and_no_others() {
    let traces = Some("http://127.0.0.1:1".to_owned());
    let (_engine, metrics) = metrics(&Config { traces, ..Config::default() });
    metrics.statement(&statement("SELECT 1", None));
    let page = include_str!("../../../../docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let written: BTreeSet<String> =
        rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned())).collect();
    let shown = names(&metrics.text());
    let missing: Vec<_> = shown.difference(&written).collect();
    let stale: Vec<_> = written.difference(&shown).collect();
    assert!(missing.is_empty() && stale.is_empty(), "missing {missing:?}, stale {stale:?}");
}

/// What is asked of Prometheus has names that there are.
#[test]
fn the_dashboard_and_the_alerts_ask_for_what_there_is() {
    let (_engine, metrics) = metrics(&Config::default());
    metrics.statement(&statement("SELECT 1", None));
    let known = names(&metrics.text());
    let dashboard = include_str!("../../../../dev/ops/grafana-dashboard.json");
    let parsed: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    let panels = parsed["panels"].as_array().unwrap();
    let asked: Vec<&str> = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().into_iter().flatten())
        .map(|target| target["expr"].as_str().unwrap())
        .collect();
    assert!(asked.len() > 20);
    for text in asked.into_iter().chain([include_str!("../../../../dev/ops/alerts.yml")]) {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named = words.filter(|w| w.starts_with("thalweg_") || w.starts_with("process_"));
        for name in named {
            let family = name.strip_suffix("_bucket").unwrap_or(name);
            assert!(known.contains(family), "there is no {name}, in {text}");
        }
    }
}

#[test]
fn clients_and_their_statements_are_counted() {
    let (_engine, metrics) = metrics(&Config::default());
    has(&metrics.text(), r#"thalweg_connections{protocol="flight"} 0"#);
    let open = metrics.connection(Protocol::Pg);
    let other = metrics.connection(Protocol::Pg);
    drop(other);
    metrics.refused(Protocol::Flight);
    metrics.rejected(Protocol::Pg);
    metrics.statement(&statement("SELECT 1", None));
    let error = Error::user("no").code("42P01");
    metrics.statement(&statement("DROP TABLE x", Some(&error)));
    let text = metrics.text();
    has(&text, r#"thalweg_connections{protocol="pg"} 1"#);
    has(&text, r#"thalweg_connections_accepted_total{protocol="pg"} 2"#);
    has(&text, r#"thalweg_connections_refused_total{protocol="flight"} 1"#);
    has(&text, r#"thalweg_logins_rejected_total{protocol="pg"} 1"#);
    has(&text, r#"thalweg_statements_total{protocol="pg",kind="select",outcome="ok"} 1"#);
    has(&text, r#"thalweg_statements_total{protocol="pg",kind="ddl",outcome="42"} 1"#);
    has(&text, r#"thalweg_statement_duration_seconds_count{protocol="pg"} 2"#);
    has(&text, r#"thalweg_sent_rows_total{protocol="pg"} 6"#);
    has(&text, r#"thalweg_sent_bytes_total{protocol="pg"} 140"#);
    drop(open);
    has(&metrics.text(), r#"thalweg_connections{protocol="pg"} 0"#);
}

#[test]
fn the_engine_is_asked_when_somebody_looks() {
    let (engine, metrics) = metrics(&Config::default());
    let session = engine.session();
    engine.block_on(async {
        for sql in ["CREATE TABLE t AS SELECT 1 AS n", "SELECT * FROM t", "SELECT nosuch FROM t"] {
            if let Ok(answer) = session.query(sql).await {
                answer.collect().await.unwrap();
            }
        }
    });
    // A query ends a moment after its last row.
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    let ended = r#"thalweg_query_duration_seconds_count 3"#;
    while !metrics.text().contains(ended) && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let text = metrics.text();
    has(&text, ended);
    has(&text, r#"thalweg_queries_ended_total{state="failed"} 1"#);
    has(&text, r#"thalweg_queries_ended_total{state="done"} 2"#);
    has(&text, "thalweg_tables 1");
    has(&text, r#"thalweg_queries_running{workload="default"} 0"#);
    let buckets = text.lines().filter(|l| l.starts_with("thalweg_quantum_seconds_bucket"));
    let counts: Vec<u64> =
        buckets.map(|l| l.rsplit_once(' ').unwrap().1.parse().unwrap()).collect();
    assert!(counts.is_sorted() && counts.last().is_some_and(|n| *n > 0), "{counts:?}");
    assert!(text.contains("\nprocess_resident_memory_bytes "), "{text}");
    assert!(text.contains("thalweg_build_info{version="), "{text}");
}
