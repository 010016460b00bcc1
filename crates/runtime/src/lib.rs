//! Where the scheduler meets tokio: every future of a query is polled only while it holds a slot.
//!
//! The crate knows no SQL, no plans and no roles but by their numbers. Of DataFusion it knows what its
//! operators ask of whoever runs them: memory, a context, and a hook for the tasks that they spawn.
//!
//! * [`Driver`]: the scheduler's state machine behind a lock, and its tasks.
//! * [`Run`]: one query from arrival to end, its tasks and its [memory](run::memory); [`log`](run::log)
//!   keeps the last ones that ended.
//! * [`Scheduled`](scheduled): a future that is polled only while it holds a slot, by [`threads`] of
//!   ours. [`Beside`] is what our operators spawn, and [`tracer`] makes one of what DataFusion spawns.
//! * [`lanes`]: how far a thread gives way to others before the operating system; [`cores`]: no two
//!   polls share a core while there is one without.
//! * [`Cost`], [`Estimate`]: what a query takes. [`Unrefused`]: memory that must not be refused.
//! * [`resident`]: freed memory goes back to the system when there is too much of it.
//! * [`checkpoint`]: where our own operators give way once their quantum is over and others wait.

mod beside;
mod cores;
mod cost;
mod cpu_time;
mod lanes;
mod quantum;
mod resident;
mod resources;
mod run;
mod scheduled;
mod threads;
mod tracer;
mod unrefused;

pub use beside::{Beside, all_offered};
use lanes::Lane;

pub use cost::{Cost, Estimate};
pub use quantum::checkpoint;
pub use resident::{Allocator, allocate_with};
pub use resources::Resources;
pub use run::{Cancel, Driver, Listed, Logged, Origin, Run, Terms, Times, Totals, no_workload};
pub use unrefused::Unrefused;

use std::future::Future;
use std::sync::Arc;

use datafusion::common::Result as DfResult;
use thalweg_base::{Error, Result};

use thalweg_errors::into_datafusion;

/// The threads of its own, and the scheduler that rules them.
pub struct Runtime {
    /// Where what DataFusion spawns is waited for, and blocking calls; queries, if nothing is
    /// scheduled.
    tokio: Option<tokio::runtime::Runtime>,
    /// One thread for timers, which a long quantum on every thread of `tokio` would hold up.
    control: Option<tokio::runtime::Runtime>,
    driver: Arc<Driver>,
}

/// Deep plans recurse deeply; address space is free, only touched pages cost.
const STACK_BYTES: usize = 16 << 20;

impl Runtime {
    /// As many tasks run at a time as there are slots, each on a thread of its own, and as many of short
    /// queries beside long ones that do not give way, again of brief ones and again of fresh ones. If
    /// nothing is scheduled, tokio has a thread for each slot. Queries share the memory with a cache of
    /// `cache_bytes_max`.
    pub fn new(resources: &Resources) -> Result<Self> {
        tracer::install();
        let refusal = || Some(Error::from(&Run::current()?.memory_refusal()?));
        // Another engine of this process may have set the same.
        let _ = thalweg_errors::REFUSAL.set(refusal);
        let slots = resources.threads;
        let (reserve, workers) = if resources.scheduled { (slots, 1) } else { (0, slots) };
        let started = |e| Error::io("cannot start the engine's threads", e);
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .thread_name("thalweg-tokio")
            .thread_stack_size(STACK_BYTES)
            // tokio keeps futures that yield on a list it looks at every 61 ticks. Where nothing is
            // scheduled a tick is a quantum, and nobody may wait that long.
            .event_interval(1)
            .enable_all()
            .build()
            .map_err(started)?;
        let control = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("thalweg-control")
            .enable_time()
            .build()
            .map_err(started)?;
        let driver = Arc::new(Driver::new(resources, reserve));
        if resources.scheduled {
            for lane in Lane::ALL {
                let (threads, count) = (driver.threads(), lane.threads(slots, reserve));
                threads.start(lane, count, STACK_BYTES, tokio.handle()).map_err(started)?;
            }
        }
        control.spawn(Arc::clone(&driver).tick());
        Ok(Runtime { tokio: Some(tokio), control: Some(control), driver })
    }

    pub fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    pub fn handle(&self) -> &tokio::runtime::Handle {
        self.tokio.as_ref().expect("present until drop").handle()
    }

    /// Where timers run.
    pub fn control(&self) -> &tokio::runtime::Handle {
        self.control.as_ref().expect("present until drop").handle()
    }

    pub fn block_on<F: Future>(&self, f: F) -> F::Output {
        self.handle().block_on(f)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.driver.threads().close();
        // Dropped inside another runtime's task, an ordinary shutdown would panic; our tasks
        // are all abortable, so there is nothing to wait for.
        for runtime in [self.tokio.take(), self.control.take()].into_iter().flatten() {
            runtime.shutdown_background();
        }
    }
}

/// Runs `f`, which waits for a disk or a decompressor, on a thread that holds no slot.
pub async fn blocking<T, F>(f: F) -> DfResult<T>
where
    F: FnOnce() -> Result<T> + Send + 'static,
    T: Send + 'static,
{
    match tokio::task::spawn_blocking(f).await {
        Ok(result) => result.map_err(into_datafusion),
        Err(e) => Err(into_datafusion(Error::internal(format!("an input thread failed: {e}")))),
    }
}

/// One thread and so much memory.
#[cfg(test)]
fn of_tests(memory_bytes: u64) -> Resources {
    let policy = thalweg_scheduler::PolicyKind::default();
    Resources { threads: 1, policy, memory_bytes, cache_bytes_max: 0, scheduled: true }
}
