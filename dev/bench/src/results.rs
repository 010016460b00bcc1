//! How fast the rows of a query reach a client: within this process, over Arrow Flight SQL, and over
//! the PostgreSQL protocol, in turn.
//!
//! Clients count rows and look no further: a client of the PostgreSQL protocol walks over its
//! messages without reading the values, one of Flight has its batches. Server and client share the
//! machine.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use arrow_flight::sql::client::FlightSqlServiceClient;
use futures::{StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use thalweg_base::text::count;
use thalweg_base::{Error, Result};
use thalweg_engine::{Config, Engine};
use thalweg_server::Server;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};

use crate::report::figures::ratio;
use crate::report::text::{Options as Look, Table, titled};
use crate::run::{save, say};

/// At scale factor 1.
const ROWS: f64 = 1e7;

/// Name, and what is asked for.
const QUERIES: [(&str, &str); 3] = [
    ("four numbers", "SELECT id, k, v, d FROM result_rows"),
    ("with short text", "SELECT id, v, s FROM result_rows"),
    ("with long text", "SELECT id, t FROM result_rows"),
];

#[derive(Clone, Debug)]
pub struct Options {
    pub scale_factor: f64,
    pub runs: usize,
    pub threads: usize,
    pub json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    InProcess,
    Flight,
    PgText,
    PgBinary,
}

const WAYS: [Way; 4] = [Way::InProcess, Way::Flight, Way::PgText, Way::PgBinary];

/// What came by one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    pub way: Way,
    /// Of the runs the median.
    pub seconds: f64,
    pub rows_per_s: f64,
    /// Of Arrow's arrays, or of messages.
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Query {
    pub name: String,
    pub rows: u64,
    pub rates: Vec<Rate>,
}

/// Makes the table, sends it, and prints the rates.
pub fn run(options: &Options) -> Result<()> {
    let engine =
        Engine::open(":memory:", Config { threads: options.threads, ..Config::default() })?;
    let rows = (ROWS * options.scale_factor).max(1.0) as u64;
    say(&format!("making {} rows", count(rows)));
    let session = engine.session();
    let make = format!(
        "CREATE TABLE result_rows AS SELECT i AS id, (i % 1000)::int AS k, i * 0.25 AS v, \
         DATE '2000-01-01' + (i % 5000)::int AS d, 'item ' || (i % 100000) AS s, \
         'a comment that is long enough not to fit into a view ' || i AS t \
         FROM generate_series(1, {rows}) AS g(i)"
    );
    engine.block_on(async { session.query(&make).await?.collect().await })?;
    let here: SocketAddr = ([127, 0, 0, 1], 0).into();
    let config =
        thalweg_server::Config { pg: Some(here), flight: Some(here), ..Default::default() };
    let server = Server::start(Arc::clone(&engine), config)?;
    let clients = Clients::new(&engine, &server)?;
    let mut found = vec![];
    for (name, sql) in QUERIES {
        say(&format!("sending {} rows, {name}", count(rows)));
        found.push(measure(&clients, name, sql, rows, options.runs)?);
    }
    drop(clients);
    server.shutdown();
    println!("{}", text(&found, Look::stdout()));
    save(options.json.as_deref(), None, &found, String::new)
}

fn measure(clients: &Clients, name: &str, sql: &str, rows: u64, runs: usize) -> Result<Query> {
    let mut seconds = vec![vec![]; WAYS.len()];
    let mut bytes = vec![0; WAYS.len()];
    // The first one warms up.
    for run in 0..=runs {
        for (i, way) in WAYS.into_iter().enumerate() {
            let begun = Instant::now();
            let (found, size) = clients.fetch(way, sql)?;
            let took = begun.elapsed().as_secs_f64();
            if found != rows {
                return Err(Error::internal(format!("{way:?}: {found} rows of {rows} came")));
            }
            bytes[i] = size;
            if run > 0 {
                seconds[i].push(took);
            }
        }
    }
    let rates = WAYS.into_iter().zip(seconds).zip(bytes).map(|((way, mut seconds), bytes)| {
        seconds.sort_by(f64::total_cmp);
        let median = seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN);
        Rate { way, seconds: median, rows_per_s: rows as f64 / median, bytes }
    });
    Ok(Query { name: name.to_owned(), rows, rates: rates.collect() })
}

fn text(found: &[Query], look: Look) -> String {
    let mut table = Table::new(&[
        "Million rows/s",
        "In process",
        "Flight",
        "PostgreSQL text",
        "binary",
        "Flight / in process",
        "Flight / text",
        "Flight / binary",
    ]);
    for query in found {
        let [here, flight, text, binary] = &query.rates[..] else { continue };
        let million = |rate: &Rate| format!("{:.2}", rate.rows_per_s / 1e6);
        table.row(vec![
            query.name.clone(),
            million(here),
            million(flight),
            million(text),
            million(binary),
            ratio(flight.rows_per_s / here.rows_per_s),
            ratio(flight.rows_per_s / text.rows_per_s),
            ratio(flight.rows_per_s / binary.rows_per_s),
        ]);
    }
    titled("How fast rows reach a client", table, look)
}

struct Clients {
    engine: Arc<Engine>,
    runtime: Runtime,
    channel: Channel,
    pg: SocketAddr,
}

impl Clients {
    fn new(engine: &Arc<Engine>, server: &Server) -> Result<Clients> {
        let (Some(pg), Some(flight)) = (server.pg(), server.flight()) else {
            return Err(Error::internal("the server does not listen"));
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|e| Error::io("cannot start the client's thread", e))?;
        let channel = runtime.block_on(async {
            let endpoint = Endpoint::from_shared(format!("http://{flight}")).map_err(cannot)?;
            endpoint.connect().await.map_err(cannot)
        })?;
        Ok(Clients { engine: Arc::clone(engine), runtime, channel, pg })
    }

    /// Rows and bytes.
    fn fetch(&self, way: Way, sql: &str) -> Result<(u64, u64)> {
        match way {
            Way::InProcess => self.in_process(sql),
            Way::Flight => self.runtime.block_on(self.flight(sql)),
            Way::PgText => self.postgres(&query(sql)),
            Way::PgBinary => self.postgres(&binary(sql)),
        }
    }

    fn in_process(&self, sql: &str) -> Result<(u64, u64)> {
        let session = self.engine.session();
        self.engine.block_on(async {
            let mut answer = session.query(sql).await?;
            let (mut rows, mut bytes) = (0, 0);
            while let Some(batch) = answer.next().await {
                let batch = batch?;
                rows += batch.num_rows() as u64;
                bytes += batch.get_array_memory_size() as u64;
            }
            Ok((rows, bytes))
        })
    }

    async fn flight(&self, sql: &str) -> Result<(u64, u64)> {
        let mut client = FlightSqlServiceClient::new(self.channel.clone());
        let info = client.execute(sql.to_owned(), None).await.map_err(cannot)?;
        let ticket = info.endpoint.into_iter().next().and_then(|endpoint| endpoint.ticket);
        let ticket = ticket.ok_or_else(|| cannot("no ticket came"))?;
        let mut batches = client.do_get(ticket).await.map_err(cannot)?;
        let (mut rows, mut bytes) = (0, 0);
        while let Some(batch) = batches.try_next().await.map_err(cannot)? {
            rows += batch.num_rows() as u64;
            bytes += batch.get_array_memory_size() as u64;
        }
        Ok((rows, bytes))
    }

    fn postgres(&self, messages: &[u8]) -> Result<(u64, u64)> {
        let broken = |e| Error::io("the connection broke", e);
        let mut stream = TcpStream::connect(self.pg).map_err(broken)?;
        stream.write_all(b"\0\0\0\x16\0\x03\0\0user\0thalweg\0\0").map_err(broken)?;
        stream.write_all(messages).map_err(broken)?;
        // Ends the connection.
        stream.write_all(b"X\0\0\0\x04").map_err(broken)?;
        let mut buffer = vec![0; 256 << 10];
        let (mut rows, mut bytes, mut filled) = (0, 0, 0);
        loop {
            let n = stream.read(&mut buffer[filled..]).map_err(broken)?;
            if n == 0 {
                return Ok((rows, bytes));
            }
            (bytes, filled) = (bytes + n as u64, filled + n);
            let mut at = 0;
            while let Some([kind, a, b, c, d]) = buffer[at..filled].first_chunk() {
                let length = 1 + u32::from_be_bytes([*a, *b, *c, *d]) as usize;
                if filled - at < length {
                    break;
                }
                match kind {
                    b'D' => rows += 1,
                    b'E' => {
                        let said = String::from_utf8_lossy(&buffer[at + 5..at + length]);
                        return Err(cannot(said));
                    }
                    _ => {}
                }
                at += length;
            }
            buffer.copy_within(at..filled, 0);
            filled -= at;
        }
    }
}

fn cannot(why: impl std::fmt::Display) -> Error {
    Error::internal(format!("the server does not answer: {why}"))
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind], &(body.len() as u32 + 4).to_be_bytes()[..], body].concat()
}

/// In the simple protocol: values are text.
fn query(sql: &str) -> Vec<u8> {
    message(b'Q', format!("{sql}\0").as_bytes())
}

/// Prepared, with all values in binary form.
fn binary(sql: &str) -> Vec<u8> {
    [
        message(b'P', format!("\0{sql}\0\0\0").as_bytes()),
        message(b'B', b"\0\0\0\0\0\0\0\x01\0\x01"),
        message(b'E', b"\0\0\0\0\0"),
        message(b'S', b""),
    ]
    .concat()
}
