//! Short queries at fixed times beside streams of heavy ones: how long do the short ones take, and
//! how much of the heavy work is still done?
//!
//! The load is *open*: a short query is due every [`INTERVAL`], whether or not those before it
//! have their answers, and its time counts from when it was due. A client that waits for its
//! answer before it asks again asks least while the engine is slowest, and so hides what it came
//! to measure ("coordinated omission").

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use thalweg_base::{Error, Result};
use thalweg_engine::{Engine, PolicyKind, Session};

use crate::answers::{self, Order, Rows};
use crate::compare::collect;
use crate::generate::Benchmark;
use crate::peers::{Peer, PeerMix};
use crate::power::execute;
use crate::report::latency::{Latency, Measured, StoodStill};
use crate::report::model::quotient;
use crate::run::{Options, say};
use crate::standstill::Standstills;
use crate::streams;
use crate::workload::{Query, Workload};

/// TPC-H's longest: each is hundreds of milliseconds on two cores at scale factor 1, most of it in
/// joins and aggregations.
const HEAVY: [&str; 3] = ["Q9", "Q18", "Q21"];
/// What a dashboard asks at its quickest: about a millisecond alone, nearly all of it planning,
/// since one chunk has the key. There is an order 1 at every scale factor.
pub const LOOK_UP: &str =
    "select o_orderdate, o_orderstatus, o_totalprice from orders where o_orderkey = 1";
/// A small report: 15 to 20 ms alone on two cores at scale factor 1. Unlike Q6, which is a scan
/// and little else, it has several tasks that wait for each other: a join's build and its probe.
const REPORT: &str = "Q14";

/// Streams that join each other's queries do less work, and how much less is luck: under `fifo` they
/// soon all ask the same.
const NO_SHARING: &str = "SET thalweg.share_work = 'off'";

/// Between two short queries; the kinds take turns.
const INTERVAL: Duration = Duration::from_millis(50);
/// The heavy streams run alone this long before the first short query is due.
const WARM_UP: Duration = Duration::from_secs(1);
/// Heavy streams, unless `--streams` says otherwise.
const STREAMS: [usize; 4] = [0, 2, 8, 16];
/// Sessions that have run every short query when the clock starts. More are opened when all are
/// busy, which at 50 ms apart means that queries take seconds.
const SESSIONS: usize = 32;

/// All measurements: each run goes through all stream counts, and for each through all engines in
/// turn, every time beginning with another one.
pub fn run(
    engine: &Arc<Engine>,
    policies: &[PolicyKind],
    peers: Vec<Peer>,
    options: &Options,
) -> Result<Latency> {
    let mix = Mix::new(engine, Duration::from_secs(options.seconds))?;
    let sessions = Sessions::open(engine, &mix)?;
    let policies = policies.iter().map(|policy| Contender::Policy(*policy));
    let mut contenders: Vec<_> = policies.chain(peers.into_iter().map(Contender::Peer)).collect();
    for contender in &mut contenders {
        if let Contender::Peer(peer) = contender {
            mix.check(peer)?;
        }
    }
    let streams = stream_counts(&options.streams);
    let kinds: Vec<&str> = mix.short.iter().map(|short| short.name).collect();
    let new = |streams: &usize, contender: &Contender| {
        let (engine, peer) = contender.name();
        Measured::new(engine, peer, *streams, &kinds)
    };
    let mut found: Vec<Vec<Measured>> =
        streams.iter().map(|n| contenders.iter().map(|c| new(n, c)).collect()).collect();
    for run in 0..options.runs {
        for (i, &count) in streams.iter().enumerate() {
            for turn in 0..contenders.len() {
                let whose = (run + i + turn) % contenders.len();
                let contender = &mut contenders[whose];
                say(&format!(
                    "run {} of {}: {}, {count} heavy streams",
                    run + 1,
                    options.runs,
                    contender.name().0
                ));
                let seen = match contender {
                    Contender::Policy(policy) => {
                        engine.set_policy(*policy);
                        mix.on_us(engine, &sessions, count)?
                    }
                    Contender::Peer(peer) => mix.on_peer(peer, count)?,
                };
                let heavy_per_s = mix.heavy_per_s(&seen.heavy_ms);
                found[i][whose].add(seen.short_ms, heavy_per_s, seen.stood_still);
            }
        }
    }
    Ok(Latency::new(
        options.seconds as f64,
        INTERVAL.as_secs_f64() * 1e3,
        HEAVY.map(str::to_string).to_vec(),
        found.into_iter().flatten().collect(),
    ))
}

/// None first, always: what a short query takes alone is what all else is compared with.
fn stream_counts(asked: &[usize]) -> Vec<usize> {
    let asked = if asked.is_empty() { &STREAMS } else { asked };
    let mut counts = vec![0];
    for count in asked {
        if !counts.contains(count) {
            counts.push(*count);
        }
    }
    counts
}

enum Contender {
    Policy(PolicyKind),
    Peer(Peer),
}

impl Contender {
    /// And whether it is another engine.
    fn name(&self) -> (String, bool) {
        match self {
            Contender::Policy(policy) => (policy.name().to_string(), false),
            Contender::Peer(peer) => (format!("{} {}", peer.kind().name(), peer.version()), true),
        }
    }
}

/// What is asked, with the answers that it has while nothing else runs.
struct Mix {
    heavy: Vec<Heavy>,
    short: Vec<Short>,
    /// How long short queries become due.
    length: Duration,
}

struct Heavy {
    query: Query,
    rows: u64,
}

struct Short {
    name: &'static str,
    sql: String,
    answer: Rows,
}

/// One measurement. Times are milliseconds since the heavy streams began.
struct Seen {
    /// Of each short query, from when it was due to its last row, in the order they were due.
    short_ms: Vec<f64>,
    /// Start and end of each heavy query.
    heavy_ms: Vec<(f64, f64)>,
    /// If that could be seen.
    stood_still: Option<StoodStill>,
}

impl Mix {
    fn new(engine: &Arc<Engine>, length: Duration) -> Result<Mix> {
        let workload = Workload::new(Benchmark::Tpch)?;
        let session = engine.session();
        let mut heavy = vec![];
        for name in HEAVY {
            let query = workload.find(name)?.clone();
            let rows = engine.block_on(execute(&session, &query))?;
            heavy.push(Heavy { query, rows });
        }
        let mut short = vec![];
        // A benchmark's query is of one statement, except for two of TPC-DS.
        let report = workload.find(REPORT)?.statements.concat();
        for (name, sql) in [("look-up", LOOK_UP.to_string()), (REPORT, report)] {
            let answer = ask(engine, &session, &sql)?;
            short.push(Short { name, sql, answer });
        }
        Ok(Mix { heavy, short, length })
    }

    /// The kinds of short queries take turns.
    fn short(&self, k: usize) -> &Short {
        &self.short[k % self.short.len()]
    }

    /// Heavy queries done per second of the time in which short ones were due.
    fn heavy_per_s(&self, spans_ms: &[(f64, f64)]) -> f64 {
        let window = (ms(WARM_UP), ms(WARM_UP + self.length));
        done_within(spans_ms, window) / self.length.as_secs_f64()
    }

    /// The policy is set.
    fn on_us(&self, engine: &Arc<Engine>, sessions: &Sessions, streams: usize) -> Result<Seen> {
        let stop = AtomicBool::new(false);
        let idle = Mutex::new(vec![]);
        let standstills = Standstills::watch();
        std::thread::scope(|scope| {
            let (stop, idle) = (&stop, &idle);
            let client = || {
                let (asks, asked) = channel();
                scope.spawn(move || self.client(engine, sessions, asked, idle));
                asks
            };
            // Threads that run already, as the peers have: a system may start one late that is busy.
            idle.lock().extend((0..SESSIONS).map(|_| client()));
            let begun = Instant::now();
            let heavy: Vec<_> = (0..streams)
                .map(|stream| scope.spawn(move || self.stream(engine, stream, begun, stop)))
                .collect();
            let ask = |k| {
                let due = begun + due(k);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                // However many are still without an answer, none is late for want of a client.
                let client = idle.lock().pop().unwrap_or_else(client);
                let (answer, answered) = channel();
                // A client waits for as long as there is a sender.
                let _ = client.send(Asked { k, due, answer, client: client.clone() });
                answered
            };
            let short: Vec<_> = (0..due_count(self.length)).map(ask).collect();
            let panicked = |_| Err(Error::internal("a client's thread panicked"));
            let short = short.iter().map(|answered| answered.recv().unwrap_or_else(panicked));
            // All of them, also after an error: then every client is idle.
            let short: Vec<Result<f64>> = short.collect();
            // Only now, so that the last short queries have the company that the first had.
            stop.store(true, Ordering::Relaxed);
            idle.lock().clear();
            let mut heavy_ms = vec![];
            for spans in heavy {
                heavy_ms.extend(join(spans)?);
            }
            let short_ms: Vec<f64> = short.into_iter().collect::<Result<_>>()?;
            let since = |at: Instant| ms(at.saturating_duration_since(begun));
            let stood_still = standstills.map(|standstills| {
                let spans = standstills.end().into_iter();
                let spans = spans.map(|(from, until)| (since(from), since(until)));
                stood_still(spans.collect(), &short_ms)
            });
            Ok(Seen { short_ms, heavy_ms, stood_still })
        })
    }

    /// One heavy stream: the queries in turn without a pause, each stream beginning with another.
    fn stream(
        &self,
        engine: &Arc<Engine>,
        stream: usize,
        begun: Instant,
        stop: &AtomicBool,
    ) -> Result<Vec<(f64, f64)>> {
        let session = streams::session(engine, &[NO_SHARING.into()])?;
        let mut spans = vec![];
        for Heavy { query, rows } in self.heavy.iter().cycle().skip(stream % self.heavy.len()) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let start = begun.elapsed();
            let found = engine.block_on(execute(&session, query))?;
            spans.push((ms(start), ms(begun.elapsed())));
            if found != *rows {
                return Err(Error::internal(format!(
                    "{} gave {found} rows beside others and {rows} alone",
                    query.name
                )));
            }
        }
        Ok(spans)
    }

    /// Asks what it is told to, until nobody can.
    fn client(
        &self,
        engine: &Arc<Engine>,
        sessions: &Sessions,
        asked: Receiver<Asked>,
        idle: &Mutex<Vec<Sender<Asked>>>,
    ) {
        let session = sessions.take(engine);
        for Asked { k, due, answer, client } in asked {
            let short = self.short(k);
            let found = ask(engine, &session, &short.sql);
            let latency = ms(due.elapsed());
            idle.lock().push(client);
            let agrees =
                |found| short.agrees(&found, || "beside heavy queries than alone".to_string());
            // Nobody waits for it after an error.
            let _ = answer.send(found.and_then(agrees).map(|()| latency));
        }
        sessions.give_back(session);
    }

    fn on_peer(&self, peer: &mut Peer, streams: usize) -> Result<Seen> {
        let mixed = peer.mix(&PeerMix {
            short: self.short.iter().map(|short| short.sql.as_str()).collect(),
            due_ms: (0..due_count(self.length)).map(|k| ms(due(k))).collect(),
            heavy: self.heavy.iter().map(|h| (h.query.statements.concat(), h.rows)).collect(),
            streams,
        })?;
        Ok(Seen { short_ms: mixed.short_ms, heavy_ms: mixed.heavy_ms, stood_still: None })
    }

    /// Does the peer give our answers? It also warms up.
    fn check(&self, peer: &mut Peer) -> Result<()> {
        for short in &self.short {
            let (schema, batches) = peer.result(&short.sql)?;
            let found = Rows::from_batches(&schema, &batches)?;
            short.agrees(&found, || format!("in {} than in Thalweg", peer.kind().name()))?;
        }
        Ok(())
    }
}

fn ask(engine: &Arc<Engine>, session: &Session, sql: &str) -> Result<Rows> {
    let (schema, batches) = engine.block_on(collect(session, sql))?;
    Rows::from_batches(&schema, &batches)
}

impl Short {
    fn agrees(&self, found: &Rows, than: impl Fn() -> String) -> Result<()> {
        let order = Order::of_sql(&self.sql, &self.answer.columns);
        answers::compare(&self.answer, found, &order).map(drop).map_err(|mismatch| {
            Error::internal(format!("{} has another answer {}", self.name, than()))
                .detail(mismatch.to_string())
        })
    }
}

/// A short query on its way to a client.
struct Asked {
    k: usize,
    due: Instant,
    answer: Sender<Result<f64>>,
    /// Where it came from, which is idle again afterwards.
    client: Sender<Asked>,
}

/// Open sessions that no client has.
struct Sessions(Mutex<Vec<Session>>);

impl Sessions {
    /// A new session's first query plans longer; users of a dashboard have been there before.
    fn open(engine: &Arc<Engine>, mix: &Mix) -> Result<Sessions> {
        let open = |_| {
            let session = engine.session();
            for short in &mix.short {
                ask(engine, &session, &short.sql)?;
            }
            Ok(session)
        };
        Ok(Sessions(Mutex::new((0..SESSIONS).map(open).collect::<Result<_>>()?)))
    }

    /// One of them, or a new one.
    fn take(&self, engine: &Arc<Engine>) -> Session {
        self.0.lock().pop().unwrap_or_else(|| engine.session())
    }

    fn give_back(&self, session: Session) {
        self.0.lock().push(session);
    }
}

/// Of times at which a core stood still, those within the measurement, and which of the short queries
/// were due or under way then.
fn stood_still(spans_ms: Vec<(f64, f64)>, short_ms: &[f64]) -> StoodStill {
    let due_ms = |k: usize| ms(due(k));
    let end_ms = short_ms.iter().enumerate().map(|(k, took)| due_ms(k) + took).fold(0.0, f64::max);
    let within = |span: &(f64, f64)| span.1 > due_ms(0) && span.0 < end_ms;
    let spans_ms: Vec<(f64, f64)> = spans_ms.into_iter().filter(within).collect();
    let met = |(k, took): (usize, &f64)| {
        spans_ms.iter().any(|(from, until)| *until > due_ms(k) && *from < due_ms(k) + took)
    };
    let short = short_ms.iter().enumerate().map(met).collect();
    StoodStill { lengths_ms: spans_ms.iter().map(|(from, until)| until - from).collect(), short }
}

fn join<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(Error::internal("a client's thread panicked")))
}

/// When the `k`th short query is due, since the heavy streams began.
fn due(k: usize) -> Duration {
    WARM_UP + INTERVAL * k as u32
}

/// How many are due within `length`.
fn due_count(length: Duration) -> usize {
    length.as_nanos().div_ceil(INTERVAL.as_nanos()) as usize
}

/// How many queries were done within the window; of one that is partly outside, its part inside.
/// To count ends only would be wrong by up to one query of each stream.
fn done_within(spans: &[(f64, f64)], window: (f64, f64)) -> f64 {
    let inside = |(start, end): (f64, f64)| (end.min(window.1) - start.max(window.0)).max(0.0);
    spans.iter().map(|span| quotient(inside(*span), span.1 - span.0)).sum()
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_queries_are_due_at_fixed_times() {
        assert_eq!([0, 1, 399].map(|k| ms(due(k))), [1000.0, 1050.0, 20_950.0]);
        // The window is half open: the query at its end belongs to the next.
        assert_eq!(due_count(Duration::from_secs(20)), 400);
        assert!(due(399) < WARM_UP + Duration::from_secs(20));
        assert!(due(400) >= WARM_UP + Duration::from_secs(20));
    }

    #[test]
    fn a_short_query_meets_what_lasts_into_its_time() {
        // Due at 1,000, 1,050 and 1,100 ms.
        let met = |spans: &[(f64, f64)]| stood_still(spans.to_vec(), &[10.0, 2.0, 30.0]);
        assert_eq!(met(&[(900.0, 1000.0), (1010.0, 1050.0)]).short, [false; 3]);
        assert_eq!(met(&[(990.0, 1001.0), (1040.0, 1051.0)]).short, [true, true, false]);
        assert_eq!(met(&[(1052.0, 1100.0), (1129.0, 1140.0)]).short, [false, false, true]);
        let outside = met(&[(900.0, 950.0), (1130.0, 1140.0), (1020.0, 1023.0)]);
        assert_eq!(outside, StoodStill { lengths_ms: vec![3.0], short: vec![false; 3] });
    }

    #[test]
    fn a_heavy_query_counts_for_its_part_in_the_window() {
        let window = (1000.0, 2000.0);
        for (span, part) in [
            ((1200.0, 1700.0), 1.0),
            ((500.0, 1500.0), 0.5),
            ((1750.0, 2750.0), 0.25),
            ((0.0, 4000.0), 0.25),
            ((0.0, 1000.0), 0.0),
            ((2000.0, 2500.0), 0.0),
        ] {
            assert_eq!(done_within(&[span], window), part, "{span:?}");
        }
        assert_eq!(done_within(&[(0.0, 1500.0), (1500.0, 2000.0)], window), 1.0 + 1.0 / 3.0);
        assert_eq!(done_within(&[], window), 0.0);
    }

    #[test]
    fn alone_comes_first_and_once() {
        assert_eq!(stream_counts(&[]), [0, 2, 8, 16]);
        assert_eq!(stream_counts(&[8, 0, 2, 8]), [0, 8, 2]);
    }
}
