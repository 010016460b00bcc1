//! Traces of statements, sent to a collector of OpenTelemetry: OTLP over HTTP, as JSON.
//!
//! A statement is one span with those of planning, waiting and execution below it. They are made
//! when it has ended, from what the engine knows of it then, so that statements pay for a message
//! in a queue and nothing else. A collector that is slow or away costs traces, never statements:
//! those that do not fit into the queue are dropped, and counted.
//!
//! The specification: <https://opentelemetry.io/docs/specs/otlp/>. Its JSON has hexadecimal ids,
//! and numbers of 64 bits as strings.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};
use thalweg_base::{Error, QueryId, Result};
use thalweg_engine::{Engine, Spent};

use crate::statement::{Statement, TraceParent, shown};

/// Statements that wait to be sent.
const QUEUE_MAX: usize = 4096;
/// Of one request.
const BATCH_MAX: usize = 512;
/// The longest that one waits for others to share its request.
const BATCH_EVERY: Duration = Duration::from_secs(1);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Attempts at a request that fails for a reason that may pass, and the first pause.
const TRIES_MAX: u32 = 4;
const PAUSE: Duration = Duration::from_millis(200);
/// How often it is told that the collector does not answer.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Where statements are handed in.
pub struct Traces {
    queue: SyncSender<Message>,
    dropped: Counter,
}

enum Message {
    Ended(Box<Ended>),
    /// To be answered when all before it is sent.
    Flush(SyncSender<()>),
}

struct Ended {
    name: &'static str,
    sql: String,
    user: String,
    protocol: &'static str,
    query: Option<QueryId>,
    began: SystemTime,
    took: Duration,
    rows: u64,
    error: Option<(&'static str, String)>,
    parent: Option<TraceParent>,
}

impl Traces {
    /// # Errors
    /// `endpoint` is no URL.
    pub fn start(endpoint: &str, engine: &Arc<Engine>) -> Result<Traces> {
        let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        let url = reqwest::Url::parse(&url).map_err(|e| {
            Error::user(format!("traces cannot be sent to {endpoint:?}: {e}"))
                .hint("trace.endpoint is a URL such as http://127.0.0.1:4318")
        })?;
        let (queue, messages) = sync_channel(QUEUE_MAX);
        let dropped = Counter::default();
        let cannot = |e| Error::io("the thread that sends traces cannot be started", e);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
        let client = reqwest::Client::builder()
            .timeout(REQUEST_TIMEOUT)
            .build()
            .map_err(|e| Error::internal(format!("there is no HTTP client for traces: {e}")))?;
        let mut sender = Sender {
            messages,
            url,
            client,
            runtime,
            engine: Arc::clone(engine),
            random: RandomState::new(),
            spans: 0,
            dropped: dropped.clone(),
            warned: None,
        };
        std::thread::Builder::new()
            .name("thalweg-traces".into())
            .spawn(move || sender.run())
            .map_err(cannot)?;
        Ok(Traces { queue, dropped })
    }

    pub fn dropped(&self) -> Counter {
        self.dropped.clone()
    }

    pub fn send(&self, statement: &Statement<'_>) {
        let parent = statement.parent.or_else(|| TraceParent::in_sql(statement.sql));
        if parent.is_some_and(|parent| !parent.sampled) {
            return;
        }
        let ended = Ended {
            name: statement.kind(),
            sql: shown(statement.sql).into_owned(),
            user: statement.user.to_owned(),
            protocol: statement.protocol.name(),
            query: statement.query,
            began: statement.began,
            took: statement.took,
            rows: statement.rows,
            error: statement.error.map(|e| (e.sqlstate(), e.message().to_owned())),
            parent,
        };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.queue.try_send(Message::Ended(Box::new(ended)))
        {
            self.dropped.inc();
        }
    }

    /// Returns when all that was handed in before is sent, or given up.
    pub fn flush(&self, longest: Duration) {
        let (done, wait) = sync_channel(1);
        if self.queue.try_send(Message::Flush(done)).is_ok() {
            let _ = wait.recv_timeout(longest);
        }
    }
}

/// The thread that sends.
struct Sender {
    messages: Receiver<Message>,
    url: reqwest::Url,
    client: reqwest::Client,
    runtime: tokio::runtime::Runtime,
    engine: Arc<Engine>,
    random: RandomState,
    /// Made so far.
    spans: u64,
    dropped: Counter,
    warned: Option<Instant>,
}

impl Sender {
    fn run(&mut self) {
        // `None`: there are no more senders.
        while let Some((batch, flushed)) = self.next() {
            if !batch.is_empty() {
                self.deliver(&batch);
            }
            if let Some(flushed) = flushed {
                let _ = flushed.send(());
            }
        }
    }

    /// Waits for a statement, and then a moment for others.
    fn next(&mut self) -> Option<(Vec<Ended>, Option<SyncSender<()>>)> {
        let mut batch = Vec::new();
        match self.messages.recv().ok()? {
            Message::Ended(ended) => batch.push(*ended),
            Message::Flush(done) => return Some((batch, Some(done))),
        }
        let until = Instant::now() + BATCH_EVERY;
        while batch.len() < BATCH_MAX {
            let left = until.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left) {
                Ok(Message::Ended(ended)) => batch.push(*ended),
                Ok(Message::Flush(done)) => return Some((batch, Some(done))),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        Some((batch, None))
    }

    fn deliver(&mut self, batch: &[Ended]) {
        let spans: Vec<Value> = batch.iter().flat_map(|ended| self.spans(ended)).collect();
        let body = envelope(spans).to_string();
        let mut pause = PAUSE;
        let mut why = String::new();
        for _ in 0..TRIES_MAX {
            match self.post(&body) {
                Ok(()) => return,
                Err(Refusal { reason, passes }) => {
                    why = reason;
                    if !passes {
                        break;
                    }
                }
            }
            std::thread::sleep(pause);
            pause *= 2;
        }
        self.dropped.inc_by(batch.len() as u64);
        if self.warned.is_none_or(|last| last.elapsed() >= WARN_EVERY) {
            self.warned = Some(Instant::now());
            tracing::warn!(endpoint = %self.url, "traces cannot be sent: {why}");
        }
    }

    fn post(&self, body: &str) -> Result<(), Refusal> {
        let request = self
            .client
            .post(self.url.clone())
            .header("content-type", "application/json")
            .body(body.to_owned());
        let answered = self.runtime.block_on(async { request.send().await });
        let status =
            answered.map_err(|e| Refusal { reason: e.to_string(), passes: true })?.status();
        match status.as_u16() {
            200..=299 => Ok(()),
            // Those of which the specification says so.
            code @ (429 | 502 | 503 | 504) => {
                Err(Refusal { reason: format!("status {code}"), passes: true })
            }
            code => Err(Refusal { reason: format!("status {code}"), passes: false }),
        }
    }

    /// Of one statement.
    fn spans(&mut self, ended: &Ended) -> Vec<Value> {
        let trace = ended.parent.map_or_else(
            || u128::from(self.id()) << 64 | u128::from(self.id()),
            |parent| parent.trace,
        );
        let root = self.id();
        let spent = ended.query.and_then(|query| self.engine.spent(query));
        let mut attributes = vec![
            text("db.system.name", "thalweg"),
            text("db.query.text", &ended.sql),
            text("db.operation.name", ended.name),
            text("network.protocol.name", ended.protocol),
            text("user.name", &ended.user),
            number("db.response.returned_rows", ended.rows),
        ];
        if let Some(query) = ended.query {
            attributes.push(number("thalweg.query_id", query.0));
        }
        if let Some((sqlstate, _)) = &ended.error {
            attributes.push(text("db.response.status_code", sqlstate));
        }
        if let Some(spent) = &spent {
            attributes.push(number("thalweg.cpu_us", spent.cpu.as_micros() as u64));
            attributes.push(number("thalweg.read_bytes", spent.read_bytes));
            attributes.push(number("thalweg.waited_us", spent.waiting.as_micros() as u64));
        }
        let status = match &ended.error {
            Some((_, message)) => json!({ "code": 2, "message": message }),
            None => json!({}),
        };
        // A server's span; those below it are internal.
        const SERVER: u8 = 2;
        const INTERNAL: u8 = 1;
        let parent = ended.parent.map(|parent| parent.span);
        let whole = Piece { name: ended.name, kind: SERVER, began: ended.began, took: ended.took };
        let mut spans = vec![whole.span(trace, root, parent, attributes, status)];
        for (name, from, took) in spent.iter().flat_map(|spent| steps(spent, ended.took)) {
            let piece = Piece { name, kind: INTERNAL, began: ended.began + from, took };
            spans.push(piece.span(trace, self.id(), Some(root), vec![], json!({})));
        }
        spans
    }

    /// Random, never 0.
    fn id(&mut self) -> u64 {
        self.spans += 1;
        self.random.hash_one((self.spans, Instant::now())).max(1)
    }
}

struct Refusal {
    reason: String,
    /// It may go better next time.
    passes: bool,
}

/// Planning, waiting to be admitted, execution: one after the other. Waits within the execution
/// are attributes of the statement.
fn steps(spent: &Spent, took: Duration) -> Vec<(&'static str, Duration, Duration)> {
    let (plan, queue) = (spent.planning.min(took), spent.admission);
    let queue = queue.min(took - plan);
    let steps = [
        ("plan", Duration::ZERO, plan),
        ("queue", plan, queue),
        ("execute", plan + queue, took - plan - queue),
    ];
    steps.into_iter().filter(|(_, _, took)| !took.is_zero()).collect()
}

struct Piece {
    name: &'static str,
    kind: u8,
    began: SystemTime,
    took: Duration,
}

impl Piece {
    fn span(
        &self,
        trace: u128,
        id: u64,
        parent: Option<u64>,
        attributes: Vec<Value>,
        status: Value,
    ) -> Value {
        let ns = |time: SystemTime| {
            time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
        };
        json!({
            "traceId": format!("{trace:032x}"),
            "spanId": format!("{id:016x}"),
            "parentSpanId": parent.map_or_else(String::new, |parent| format!("{parent:016x}")),
            "name": self.name,
            "kind": self.kind,
            "startTimeUnixNano": ns(self.began),
            "endTimeUnixNano": ns(self.began + self.took),
            "attributes": attributes,
            "status": status,
        })
    }
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

fn envelope(spans: Vec<Value>) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    json!({ "resourceSpans": [{
        "resource": { "attributes": [
            text("service.name", "thalweg"),
            text("service.version", version),
        ] },
        "scopeSpans": [{
            "scope": { "name": "thalweg", "version": version },
            "spans": spans,
        }],
    }] })
}

#[cfg(test)]
mod tests;
