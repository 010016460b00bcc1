//! A server as those who run it meet it: its settings, its signals, its health.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::{Place, command};

/// Longer than anything takes, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

struct Served {
    child: Option<Child>,
    /// What the ready file says.
    ready: String,
}

impl Served {
    fn start(place: &Place, args: &[&str]) -> Served {
        let notify = place.path("notify");
        let mut child = command(place.folder.path())
            .args(["serve", "shop.db", "--create", "--ready-file", "ready"])
            .args(["--pg=127.0.0.1:0", "--flight=127.0.0.1:0", "--http=127.0.0.1:0"])
            .args(args)
            .env("NOTIFY_SOCKET", &notify)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let began = Instant::now();
        loop {
            if let Ok(ready) = std::fs::read_to_string(place.path("ready")) {
                return Served { child: Some(child), ready };
            }
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none() && began.elapsed() < PATIENCE, "{ended:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn address(&self, what: &str) -> &str {
        let line = self.ready.lines().find_map(|line| line.strip_prefix(what));
        line.expect("an address").trim()
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address("http")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn signal(&self, name: &str) {
        let process = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-s", name, &process]).status().unwrap().success());
    }

    fn end(mut self) -> Output {
        self.child.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_server_tells_where_it_is_and_ends_when_it_is_told() {
    let place = Place::new();
    let manager = UnixDatagram::bind(place.path("notify")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut buffer = [0; 64];
        let n = manager.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    };
    let served = Served::start(&place, &["--log-file", "log.json", "--log-format", "json"]);
    assert_eq!(told(), "READY=1");
    assert!(served.get("/readyz").starts_with("HTTP/1.1 200"));
    let metrics = served.get("/metrics");
    assert!(metrics.contains("thalweg_build_info{"), "{metrics}");
    // The log was moved away: it goes on in a new one.
    std::fs::rename(place.path("log.json"), place.path("old.json")).unwrap();
    served.signal("HUP");
    let began = Instant::now();
    while !place.path("log.json").exists() && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
    }
    let pg = served.address("pg").to_owned();
    served.signal("TERM");
    assert_eq!(told(), "STOPPING=1");
    let output = served.end();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    let (host, port) = pg.rsplit_once(':').unwrap();
    assert!(out.contains(&format!("psql -h {host} -p {port}")), "{out}");
    assert!(!place.path("ready").exists());
    let messages = |name: &str| -> Vec<String> {
        let log = std::fs::read_to_string(place.path(name)).unwrap();
        let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
        let message =
            |line: serde_json::Value| line["fields"]["message"].as_str().unwrap().to_owned();
        lines.map(message).collect()
    };
    assert_eq!(messages("old.json"), ["listening"]);
    assert_eq!(messages("log.json"), ["draining", "stopped"]);
    // What was made is a database.
    place.run(&["sql", "shop.db", "-c", "SELECT 1 AS n", "--format", "csv"]).prints("n\n1\n");
}

#[test]
fn settings_that_make_no_sense_are_named() {
    let place = Place::new();
    place.write("a.toml", "[listen]\npg = 'off'\nhttpp = 'off'\n");
    place
        .run(&["serve", "x", "--config", "a.toml"])
        .fails(1, &["a.toml", "line 3", "listen.httpp", "listen.http is meant"]);
    place.run(&["serve", "x", "--pg", "here"]).fails(2, &["--pg", "127.0.0.1:5432"]);
    place.run(&["serve"]).fails(1, &["no database is named"]);
    place.run(&["serve", "x"]).fails(1, &["there is no database"]);
    let open = ["serve", "x", "--create", "--pg", "0.0.0.0:0", "--flight", "off", "--http", "off"];
    place.run(&open).fails(1, &["0.0.0.0:0", "--auth scram"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let busy = ["serve", "y", "--create", "--pg", &address, "--flight", "off", "--http", "off"];
    place.run(&busy).fails(3, &[&address, "name another port, --pg 127.0.0.1:"]);
}
