//! What is fuzzed: what clients send, and whatever it is, an answer or an error. See
//! `docs/testing.md`.
//!
//! Inputs go over a socket to a server in this process. Bytes made up at random are rarely a
//! message, so lengths are written here: an input is what stands between them, as [`pg`] and
//! [`flight`] say.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, Once, PoisonError};
use std::time::Duration;

use arrow_flight::sql::{ActionCreatePreparedStatementResult, Any};
use arrow_flight::{FlightInfo, Result as ActionResult, Ticket};
use bytes::{Buf, BufMut, Bytes};
use prost::Message as _;
use thalweg_engine::{Config as EngineConfig, Engine};
use tokio::net::TcpSocket;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::flight::IS_DECODING;
use crate::{Authentication, Config, Server};

/// Longer than any input may keep the server busy.
const PATIENCE: Duration = Duration::from_secs(20);
const STATEMENT_TIMEOUT: Duration = Duration::from_millis(500);
/// Inputs change what is in the database: after so many it is a new one.
const INPUTS_PER_SERVER: u32 = 5000;

/// Whose inputs are: no superuser, since those may write files.
const ROLE: &str = "fuzz";
const SETUP: [&str; 5] = [
    "CREATE TABLE t (i int, b bigint, d double, s varchar, x bytea, n decimal(20, 4), day date, ts timestamp, ok boolean)",
    "INSERT INTO t VALUES (1, 2, 0.5, 'one', 'x', 1.5, DATE '2024-02-29', TIMESTAMP '2024-02-29 10:00:00', true), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    "CREATE ROLE fuzz LOGIN PASSWORD 'fuzz'",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON t TO fuzz",
    "GRANT CREATE ON SCHEMA public TO fuzz",
];

/// Where the server listens, and how many inputs it has had.
struct Target {
    server: Server,
    inputs: u32,
}

impl Target {
    fn start(authentication: Authentication) -> Target {
        let engine = EngineConfig {
            threads: 2,
            memory_bytes_max: Some(256 << 20),
            ..EngineConfig::default()
        };
        let engine = Engine::open(":memory:", engine).unwrap();
        for sql in SETUP {
            let session = engine.session();
            engine.block_on(async { session.query(sql).await?.collect().await }).unwrap();
        }
        let here = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let config = Config {
            pg: here,
            flight: here,
            authentication,
            message_bytes_max: 1 << 20,
            statement_timeout: Some(STATEMENT_TIMEOUT),
            drain_timeout: Duration::ZERO,
            ..Config::default()
        };
        Target { server: Server::start(engine, config).unwrap(), inputs: 0 }
    }
}

/// The server of one way to log in, started when it is needed.
struct Targets(Authentication, Mutex<Option<Target>>);

impl Targets {
    const fn new(authentication: Authentication) -> Targets {
        Targets(authentication, Mutex::new(None))
    }

    /// Runs one input; panics if any of the server's threads has done so.
    fn input(&self, run: impl FnOnce(&Server)) {
        let mut target = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        if target.as_ref().is_none_or(|t| t.inputs == INPUTS_PER_SERVER) {
            *target = Some(Target::start(self.0));
        }
        let Some(target) = target.as_mut() else { return };
        target.inputs += 1;
        let before = panics();
        run(&target.server);
        assert_eq!(panics(), before, "a thread of the server panicked");
    }
}

/// How many there were in this process: those that the server catches and tells its client of are
/// findings too, but not those of Arrow's decoder, which checks rows by assertions.
fn panics() -> u64 {
    static WATCH: Once = Once::new();
    static SEEN: AtomicU64 = AtomicU64::new(0);
    WATCH.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if IS_DECODING.get() {
                return;
            }
            SEEN.fetch_add(1, Ordering::SeqCst);
            eprintln!("{panic}");
            hook(panic);
        }));
    });
    SEEN.load(Ordering::SeqCst)
}

/// The PostgreSQL protocol. The first byte says what comes before the rest:
///
/// | of the first byte, by 4 | the rest |
/// |---|---|
/// | 0 | is all that is sent |
/// | 1 | are messages after one that lets the client in |
/// | 2 | as 1, framed |
/// | 3 | as 2, of a client that has to prove its password |
///
/// Framed messages are their kind, a length of two bytes, and as much as that, or as there is.
pub fn pg(input: &[u8]) {
    static TRUSTED: Targets = Targets::new(Authentication::Trust);
    static STRANGERS: Targets = Targets::new(Authentication::Scram);
    let Some((&first, rest)) = input.split_first() else { return };
    let mode = first % 4;
    let targets = if mode == 3 { &STRANGERS } else { &TRUSTED };
    targets.input(|server| {
        let mut stream = connect(server.pg().unwrap());
        let mut sent = vec![];
        match mode {
            0 => {}
            3 => sent.extend(startup(&format!("stranger{}", number()))),
            _ => sent.extend(startup(ROLE)),
        }
        if mode >= 2 {
            frame(rest, &mut sent);
        } else {
            sent.extend_from_slice(rest);
        }
        // It may hang up before it has read everything.
        let _ = stream.write_all(&sent);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut buffer = [0; 16 << 10];
        loop {
            match stream.read(&mut buffer) {
                Ok(1..) => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    panic!("it neither answers nor hangs up")
                }
                Ok(0) | Err(_) => break,
            }
        }
    });
}

/// Counts up: clients that fail to log in are made to wait, by name and by address.
fn number() -> u32 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) as u32
}

fn connect(to: SocketAddr) -> TcpStream {
    let n = number() % (1 << 22);
    let from = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 1, 0, 1)) + n);
    let runtime = &CLIENT;
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        socket.connect(to).await.unwrap()
    });
    let stream = stream.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn startup(user: &str) -> Vec<u8> {
    let body = format!("\0\u{3}\0\0user\0{user}\0\0");
    let mut message = (body.len() as u32 + 4).to_be_bytes().to_vec();
    message.extend_from_slice(body.as_bytes());
    message
}

fn frame(mut rest: &[u8], sent: &mut Vec<u8>) {
    while let [kind, high, low, body @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(body.len());
        let (body, next) = body.split_at(length);
        sent.put_u8(*kind);
        sent.put_u32(4 + length as u32);
        sent.extend_from_slice(body);
        rest = next;
    }
}

static CLIENT: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
});

/// Arrow Flight SQL: calls one after another. Each is its method, how many messages it sends, and
/// these: a length of two bytes, and as much as that, or as there is. What a call is answered may
/// be used in the next ones: [`HANDLE`] stands for the statement that was prepared last, and a
/// `DoGet` without messages asks for what the last `GetFlightInfo` promised.
pub fn flight(input: &[u8]) {
    static TRUSTED: Targets = Targets::new(Authentication::Trust);
    TRUSTED.input(|server| {
        let endpoint = Endpoint::from_shared(format!("http://{}", server.flight().unwrap()));
        CLIENT.block_on(async {
            let calls = async {
                let channel = endpoint.unwrap().connect().await.unwrap();
                let mut client = Client { grpc: Grpc::new(channel), handle: None, ticket: None };
                let mut rest = input;
                while let [method, count, next @ ..] = rest {
                    rest = next;
                    let mut messages = vec![];
                    for _ in 0..count % 8 {
                        let [high, low, body @ ..] = rest else { break };
                        let length = usize::from(u16::from_be_bytes([*high, *low]));
                        let (body, next) = body.split_at(length.min(body.len()));
                        messages.push(client.with_handle(body));
                        rest = next;
                    }
                    client.call(METHODS[usize::from(*method) % METHODS.len()], messages).await;
                }
            };
            tokio::time::timeout(PATIENCE, calls).await.expect("it does not answer");
        });
    });
}

/// Stands in an input for the handle of a prepared statement.
const HANDLE: &[u8; 16] = b"################";

const METHODS: [&str; 10] = [
    "GetFlightInfo",
    "DoGet",
    "DoPut",
    "DoAction",
    "GetSchema",
    "Handshake",
    "ListActions",
    "ListFlights",
    "PollFlightInfo",
    "DoExchange",
];

struct Client {
    grpc: Grpc<Channel>,
    handle: Option<Bytes>,
    ticket: Option<Bytes>,
}

impl Client {
    fn with_handle(&self, body: &[u8]) -> Bytes {
        let at = body.windows(HANDLE.len()).position(|part| part == HANDLE);
        let (Some(at), Some(handle)) = (at, &self.handle) else {
            return Bytes::copy_from_slice(body);
        };
        [&body[..at], handle, &body[at + HANDLE.len()..]].concat().into()
    }

    async fn call(&mut self, method: &str, mut messages: Vec<Bytes>) {
        if let ("DoGet", true, Some(ticket)) = (method, messages.is_empty(), &self.ticket) {
            messages.push(ticket.clone());
        }
        let path = format!("/arrow.flight.protocol.FlightService/{method}");
        let path = PathAndQuery::try_from(path).unwrap();
        let mut request = Request::new(futures::stream::iter(messages));
        // The role's name, and no password.
        request.metadata_mut().insert("authorization", "Basic ZnV6ejo=".parse().unwrap());
        if self.grpc.ready().await.is_err() {
            return;
        }
        let Ok(answers) = self.grpc.streaming(request, path, Raw).await else { return };
        let mut answers = answers.into_inner();
        while let Ok(Some(answer)) = answers.message().await {
            match method {
                "DoAction" => self.handle = prepared(&answer).or(self.handle.take()),
                "GetFlightInfo" => self.ticket = promised(&answer).or(self.ticket.take()),
                _ => {}
            }
        }
    }
}

fn prepared(answer: &Bytes) -> Option<Bytes> {
    let result = ActionResult::decode(answer.clone()).ok()?;
    let result = Any::decode(result.body).ok()?;
    let result = result.unpack::<ActionCreatePreparedStatementResult>().ok()??;
    Some(result.prepared_statement_handle)
}

fn promised(answer: &Bytes) -> Option<Bytes> {
    let info = FlightInfo::decode(answer.clone()).ok()?;
    let ticket: Ticket = info.endpoint.into_iter().next()?.ticket?;
    Some(ticket.encode_to_vec().into())
}

/// Messages are sent and received as they are.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = from.remaining();
        Ok(Some(from.copy_to_bytes(length)))
    }
}

#[cfg(test)]
mod tests;
