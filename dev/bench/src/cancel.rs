//! Every TPC-H query, stopped at random moments in each way there is: how long until it holds no
//! slot any more, and no memory?
//!
//! The query runs alone, so what is in use is its own. Its account with the scheduler and the
//! memory that is reserved are looked at every [`SAMPLE`]; a time is that of the first look after
//! which nothing was held again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::channel::oneshot;
use thalweg_base::{Error, Kind, Prng, QueryId, Result};
use thalweg_engine::{Engine, Session};

use crate::answers::Rows;
use crate::compare::collect;
use crate::generate::Benchmark;
use crate::latency::LOOK_UP;
use crate::power::{self, execute};
use crate::report::cancel::{self as report, Cancelled, Cancels, Way};
use crate::report::model::{Report, median};
use crate::report::text as printed;
use crate::run::{self, Options, Watch, say};
use crate::stored::Stored;
use crate::workload::{Query, Workload};

/// Of the moments.
const SEED: u64 = 2013;
/// Between two looks. Each takes the scheduler's lock, as a dashboard would.
const SAMPLE: Duration = Duration::from_micros(100);
/// A query that still holds something after this long is an error.
const GIVE_UP: Duration = Duration::from_secs(60);
/// For a hundred that are stopped, so many may have ended before; more, and the machine has become
/// so much faster that the times alone are worth nothing.
const MISSED_MAX_PERCENT: usize = 300;

pub(crate) fn run(options: &Options, watch: &Watch) -> Result<()> {
    if options.times == 0 {
        return Err(Error::user("--times must be at least 1"));
    }
    let mut report = Report::new("Cancel", options.scale_factor, run::us(options));
    let look = printed::Options::stdout();
    println!("{}", printed::head(&report, look));
    run::warn_unoptimised(&mut report);
    let workload = Workload::new(Benchmark::Tpch)?.only(&options.queries)?;
    let Stored { engine, .. } = &Stored::open(options, &workload, options.database.clone(), watch)?;
    if let Some(policy) = options.policies.first() {
        engine.set_policy(*policy);
    }
    let found = measure(engine, &workload, options)?;
    println!("{}", report::text(&found, look));
    report.cancels = Some(found);
    run::write(options, &report)
}

fn measure(engine: &Arc<Engine>, workload: &Workload, options: &Options) -> Result<Cancels> {
    let session = engine.session();
    say("running each query alone");
    let solo_ms = solo(&session, workload, options.runs)?;
    let bench = Bench { engine, answer: look_up(&session)? };
    let mut prng = Prng::new(SEED);
    let mut found: Vec<Cancelled> = vec![];
    let mut missed = 0;
    while found.len() < options.times {
        // All ways for one query, then the next query: no way has a query of its own.
        let way = Way::ALL[found.len() % Way::ALL.len()];
        let which = found.len() / Way::ALL.len() % workload.queries.len();
        let at_ms = solo_ms[which] * (prng.below(1 << 32) as f64 / (1u64 << 32) as f64);
        match bench.cancel(&workload.queries[which], way, Duration::from_secs_f64(at_ms / 1e3))? {
            Some(cancelled) => {
                found.push(cancelled);
                if found.len().is_multiple_of(100) {
                    say(&format!("{} of {} stopped", found.len(), options.times));
                }
            }
            None => missed += 1,
        }
        if missed * 100 > MISSED_MAX_PERCENT * options.times.max(100) {
            return Err(Error::internal(format!(
                "{missed} queries ended before they could be stopped; {} were stopped",
                found.len()
            )));
        }
    }
    let names = workload.queries.iter().map(|q| q.name.clone());
    Ok(Cancels::new(found, missed, SAMPLE.as_secs_f64() * 1e3, names.zip(solo_ms).collect()))
}

/// The median of each query, in milliseconds.
fn solo(session: &Session, workload: &Workload, runs: usize) -> Result<Vec<f64>> {
    power::once(session, workload)?;
    let mut times = vec![vec![]; workload.queries.len()];
    for _ in 0..runs {
        for (times, (_, ms)) in times.iter_mut().zip(power::once(session, workload)?) {
            times.push(ms);
        }
    }
    let lost = || Error::internal("a query without a run");
    times.iter().map(|times| median(times).ok_or_else(lost)).collect()
}

fn look_up(session: &Session) -> Result<Rows> {
    let (schema, batches) = session.engine().block_on(collect(session, LOOK_UP))?;
    Rows::from_batches(&schema, &batches)
}

struct Bench<'a> {
    engine: &'a Arc<Engine>,
    /// Of the look-up.
    answer: Rows,
}

impl Bench<'_> {
    /// `None`: the query had ended by then.
    fn cancel(&self, query: &Query, way: Way, at: Duration) -> Result<Option<Cancelled>> {
        // A session's time limit is of whole milliseconds.
        let at = match way {
            Way::Timeout => Duration::from_millis((at.as_millis() as u64).max(1)),
            _ => at,
        };
        let session = self.engine.session();
        self.until_idle()?;
        let ended = AtomicBool::new(false);
        let seen = std::thread::scope(|scope| {
            let (stop, stopped) = oneshot::channel::<()>();
            if way == Way::Timeout {
                session.set_timeout(Some(at));
            }
            let started = Instant::now();
            let client = scope.spawn(|| {
                let end = self.client(&session, query, stopped);
                ended.store(true, Ordering::Release);
                end
            });
            let seen = match self.arrived(&ended) {
                None => None,
                Some(id) => {
                    std::thread::sleep(at.saturating_sub(started.elapsed()));
                    let cancelled = match way {
                        // From when it was due; the others from when it was asked for.
                        Way::Timeout => started + at,
                        _ => Instant::now(),
                    };
                    self.stop(scope, &session, id, way, stop);
                    Some(self.watch(id, cancelled)?)
                }
            };
            let end =
                client.join().unwrap_or_else(|_| Err(Error::internal("a client panicked")))?;
            Ok::<_, Error>(seen.filter(|_| end == End::Stopped))
        })?;
        session.set_timeout(None);
        let found = look_up(&session)?;
        if found != self.answer {
            return Err(Error::internal(format!(
                "a look-up is wrong after {} was stopped by {}",
                query.name,
                way.name()
            )));
        }
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        Ok(seen.map(|(slots, memory)| Cancelled {
            query: query.name.clone(),
            way,
            at_ms: ms(at),
            slots_ms: ms(slots),
            memory_ms: ms(memory),
        }))
    }

    /// Runs the query to its end, or until it is told to leave: then its answer is dropped.
    fn client(
        &self,
        session: &Session,
        query: &Query,
        stopped: oneshot::Receiver<()>,
    ) -> Result<End> {
        let result = self.engine.block_on(async {
            // Its sender is dropped, unused, when the query is stopped in another way.
            let stopped = stopped.then(|told| async move {
                if told.is_err() {
                    std::future::pending::<()>().await;
                }
            });
            let mut stopped = std::pin::pin!(stopped.fuse());
            let mut work = std::pin::pin!(execute(session, query).fuse());
            futures::select_biased! {
                () = stopped => None,
                end = work => Some(end),
            }
        });
        match result {
            None => Ok(End::Stopped),
            Some(Ok(_)) => Ok(End::Done),
            Some(Err(e)) if e.kind() == Kind::Cancelled => Ok(End::Stopped),
            Some(Err(e)) => Err(e),
        }
    }

    /// Waits for what is left of the query before.
    fn until_idle(&self) -> Result<()> {
        let since = Instant::now();
        while !self.engine.queries().is_empty() {
            if since.elapsed() > GIVE_UP {
                return Err(Error::internal("a query whose answer is complete does not end"));
            }
            std::thread::sleep(SAMPLE);
        }
        Ok(())
    }

    /// The query that runs, as soon as there is one; `None` if it has ended already.
    fn arrived(&self, ended: &AtomicBool) -> Option<QueryId> {
        loop {
            // In this order: a query that has come and gone since is not waited for.
            let over = ended.load(Ordering::Acquire);
            match self.engine.queries().first() {
                Some(state) => return Some(state.query),
                None if over => return None,
                None => std::thread::yield_now(),
            }
        }
    }

    fn stop<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        session: &Session,
        query: QueryId,
        way: Way,
        stop: oneshot::Sender<()>,
    ) {
        match way {
            // A receiver that is gone means that the query has ended.
            Way::Drop => drop(stop.send(())),
            Way::Cancel => session.cancel(),
            Way::Kill => {
                let engine = Arc::clone(self.engine);
                scope.spawn(move || {
                    // An error says that the query has ended.
                    let kill = format!("KILL QUERY {query}");
                    drop(engine.block_on(engine.session().query(&kill)));
                });
            }
            Way::Timeout => {}
        }
    }

    /// How long the query held a slot, and memory was held.
    fn watch(&self, query: QueryId, since: Instant) -> Result<(Duration, Duration)> {
        let mut slots = None;
        loop {
            let state = self.engine.queries().into_iter().find(|state| state.query == query);
            let memory = self.engine.memory_held();
            let now = since.elapsed();
            // A task that was queued may get a slot once more, to be told that it is over.
            match &state {
                Some(state) if state.running > 0 => slots = None,
                _ => slots = slots.or(Some(now)),
            }
            if let (None, Some(slots), 0) = (&state, slots, memory) {
                return Ok((slots, now));
            }
            if now > GIVE_UP {
                let left = state.map_or("no task".into(), |s| format!("{} tasks", s.tasks));
                return Err(Error::internal(format!(
                    "query {query} was stopped {} s ago and holds {memory} bytes and has {left}",
                    now.as_secs()
                )));
            }
            std::thread::sleep(SAMPLE);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Done,
    Stopped,
}
