//! What runs beside the one that spawned it.

use std::future::Future;
use std::sync::Arc;

use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result};
use futures::FutureExt;
use futures::future::{BoxFuture, OptionFuture};
use parking_lot::Mutex;
use thalweg_base::{Error, text};
use tokio::runtime::Handle;

use thalweg_errors::into_datafusion;

use super::run::Run;
use super::scheduled::Scheduled;

/// A part of a query; or all of it, beside its client. It ends when this is dropped.
pub struct Beside<T: Send + 'static>(Where<T>);

enum Where<T: Send + 'static> {
    Scheduled(Scheduled<T>),
    /// In an engine that does not schedule, or in none.
    Tokio(SpawnedTask<T>),
}

impl<T: Send + 'static> Beside<T> {
    /// Of the current query, if there is one.
    pub fn spawn(future: impl Future<Output = T> + Send + 'static) -> Self {
        let task = Beside::spawn_awaited(future);
        if let Where::Tokio(_) = &task.0 {
            push_on();
        }
        task
    }

    /// The same, for who has nothing to do until it ends.
    pub fn spawn_awaited(future: impl Future<Output = T> + Send + 'static) -> Self {
        Beside(match Run::current().filter(|run| run.driver().schedules()) {
            Some(run) => Where::Scheduled(Scheduled::new(run, future.boxed())),
            None => Where::Tokio(SpawnedTask::spawn(future)),
        })
    }

    /// Waits for its end. A panic of it is an error.
    pub async fn join(self) -> Result<T> {
        match self.0 {
            Where::Scheduled(task) => task.await.map_err(|panic| {
                let text = text::of_panic(panic.as_ref()).unwrap_or("no message");
                into_datafusion(Error::internal(format!("a task panicked: {text}")))
            }),
            Where::Tokio(task) => {
                task.join().await.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))
            }
        }
    }
}

impl Run {
    /// Spawns the query's root. `tokio`: the engine's.
    pub fn spawn<F>(self: &Arc<Self>, tokio: &Handle, future: F) -> Beside<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let _entered = tokio.enter();
        self.enter(|| Beside::spawn_awaited(future))
    }
}

/// A part of a query that another thread begins, or else who waits for it: a thread that was woken may
/// not get a core for milliseconds.
struct Offered<T: Send + 'static> {
    /// Whoever takes it runs it.
    future: Arc<Mutex<Option<BoxFuture<'static, T>>>>,
    task: Beside<Option<T>>,
}

impl<T: Send + 'static> Offered<T> {
    fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        let future = Arc::new(Mutex::new(Some(future.boxed())));
        let offered = Arc::clone(&future);
        let task = Beside::spawn(async move {
            let taken = offered.lock().take();
            OptionFuture::from(taken).await
        });
        Offered { future, task }
    }

    /// Waits for its end, or runs it here.
    async fn join(self) -> Result<T> {
        let left = self.future.lock().take();
        if let Some(future) = left {
            drop(self.task);
            return Ok(future.await);
        }
        let ended = self.task.join().await?;
        ended.ok_or_else(|| into_datafusion(Error::internal("a task was taken twice")))
    }
}

/// Runs the first here, as what is small needs no other thread, and offers the rest meanwhile. What
/// they come to, in order.
pub async fn all_offered<F, T, E>(futures: impl IntoIterator<Item = F>) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: From<DataFusionError> + Send + 'static,
{
    let mut futures = futures.into_iter();
    let Some(first) = futures.next() else { return Ok(vec![]) };
    let rest: Vec<_> = futures.map(Offered::new).collect();
    let mut all = Vec::with_capacity(1 + rest.len());
    all.push(first.await?);
    for offered in rest {
        all.push(offered.join().await??);
    }
    Ok(all)
}

/// tokio keeps what a worker has woken or spawned last for that worker, to be polled next, and lets
/// no other take it: it would wait for the poll that is running there to end. Something behind
/// it pushes it on, to where an idle worker is told of it.
fn push_on() {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(async {});
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn what_is_offered_is_run_once_by_who_comes_first() {
        let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
        tokio.block_on(async {
            // Nobody has polled it.
            assert_eq!(Offered::new(async { 7 }).join().await.unwrap(), 7);

            let ((begins, begun), (ends, ended)) = (oneshot::channel(), oneshot::channel());
            let offered = Offered::new(async move {
                begins.send(()).unwrap();
                ended.await.unwrap()
            });
            begun.await.unwrap();
            ends.send(8).unwrap();
            assert_eq!(offered.join().await.unwrap(), 8);

            let (begins, begun) = oneshot::channel();
            let offered = Offered::new(async move {
                begins.send(()).unwrap();
                panic!("on purpose");
            });
            begun.await.unwrap();
            assert!(offered.join().await.is_err());
        });
    }
}
