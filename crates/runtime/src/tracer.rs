//! The hook by which all futures that DataFusion spawns come under the scheduler.

use std::any::Any;
use std::panic::resume_unwind;
use std::sync::Once;

use datafusion::common::runtime::{JoinSetTracer, set_join_set_tracer};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::run::Run;
use super::scheduled::{Free, Scheduled};

struct Tracer;

impl JoinSetTracer for Tracer {
    fn trace_future(
        &self,
        future: BoxFuture<'static, Box<dyn Any + Send>>,
    ) -> BoxFuture<'static, Box<dyn Any + Send>> {
        match Run::current() {
            Some(run) if run.driver().schedules() => Scheduled::new(run, future)
                // Again, where tokio tells it to whoever waits.
                .map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)))
                .boxed(),
            Some(run) => Free::new(run, future).boxed(),
            // Not spawned by a query of ours: somebody else's DataFusion in the same process.
            None => future,
        }
    }

    /// Blocking closures (file input and output) wait for devices, not for slots.
    fn trace_block(
        &self,
        f: Box<dyn FnOnce() -> Box<dyn Any + Send> + Send>,
    ) -> Box<dyn FnOnce() -> Box<dyn Any + Send> + Send> {
        f
    }
}

/// Process-wide, once; which engine a future belongs to is told by its query.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Fails only if somebody else's tracer is in place, and then queries run unscheduled
        // rather than not at all.
        let _ = set_join_set_tracer(&Tracer);
    });
}
