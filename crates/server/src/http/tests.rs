use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_engine::Engine;

use crate::{Config, Server};

fn server() -> Server {
    let engine = Engine::open(":memory:", thalweg_engine::Config::default()).unwrap();
    let http = Some(([127, 0, 0, 1], 0).into());
    let config = Config { http, drain_timeout: Duration::from_secs(5), ..Config::default() };
    Server::start(engine, config).unwrap()
}

/// Status line, headers and body.
fn ask(at: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(at: SocketAddr, path: &str) -> String {
    ask(at, &format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"))
}

#[test]
fn operators_get_figures_and_health() {
    let server = server();
    let at = server.http().unwrap();
    let metrics = get(at, "/metrics");
    assert!(metrics.starts_with("HTTP/1.1 200 OK"), "{metrics}");
    assert!(metrics.contains("application/openmetrics-text"), "{metrics}");
    assert!(metrics.contains("\nthalweg_slots "), "{metrics}");
    assert!(metrics.trim_end().ends_with("# EOF"), "{metrics}");
    assert!(get(at, "/healthz").starts_with("HTTP/1.1 200 OK"));
    assert!(get(at, "/readyz").starts_with("HTTP/1.1 200 OK"));
    let unknown = get(at, "/metric");
    assert!(unknown.starts_with("HTTP/1.1 404"), "{unknown}");
    assert!(unknown.contains("/metrics") && unknown.contains("/readyz"), "{unknown}");
    let post = ask(at, "POST /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert!(post.starts_with("HTTP/1.1 405"), "{post}");
}

#[test]
fn nonsense_is_refused_and_others_are_still_served() {
    let server = server();
    let at = server.http().unwrap();
    let garbage = ask(at, "\u{1}\u{2}\u{3}\r\n\r\n");
    assert!(garbage.is_empty() || garbage.starts_with("HTTP/1.1 400"), "{garbage}");
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000));
    let mut stream = TcpStream::connect(at).unwrap();
    // The server may hang up before it has all of it.
    let _ = stream.write_all(long.as_bytes());
    // Clients that say nothing.
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(at).unwrap()).collect();
    assert!(get(at, "/healthz").starts_with("HTTP/1.1 200 OK"));
    drop(silent);
}

#[test]
fn it_ends_soon_with_the_server() {
    let server = server();
    let at = server.http().unwrap();
    let idle = TcpStream::connect(at).unwrap();
    let began = Instant::now();
    server.shutdown();
    // Not the time that statements would have: there is none.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert!(TcpStream::connect(at).is_err());
    drop(idle);
}

#[test]
fn an_address_that_is_taken_is_told_with_the_way_out() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let engine = Engine::open(":memory:", thalweg_engine::Config::default()).unwrap();
    let http = Some(taken.local_addr().unwrap());
    let error = Server::start(Arc::clone(&engine), Config { http, ..Config::default() });
    let error = error.err().expect("an error");
    assert!(error.hint_text().unwrap().contains("--http"), "{error:?}");
}
