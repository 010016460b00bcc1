//! What a sink has still to do when all of its rows are in.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use thalweg_base::{Error, Result};

/// What a task that takes long awaits between its steps, so that others have their turn.
pub type Pause<'a> = dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync + 'a;

/// For callers whose work keeps nobody waiting.
pub fn no_pause() -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(std::future::ready(()))
}

/// Work in phases of tasks, of about a millisecond each. A phase begins when the one before is done;
/// its tasks run once each, in any order, at once, on any threads.
pub trait Phases: Send + Sync {
    type Output;

    /// About which it is.
    fn rows(&self) -> usize;

    fn phases(&self) -> usize;

    fn tasks(&self, phase: usize) -> usize;

    /// How many of the last phase's tasks, which are its last ones, may run while this one still
    /// does, or in the last itself need not wait for its others: no fewer than in the phase before.
    fn early_tasks(&self, _phase: usize) -> usize {
        0
    }

    fn run(&self, phase: usize, task: usize) -> Result<()>;

    /// The same, with pauses if it takes longer than others.
    fn run_in_steps(
        &self,
        phase: usize,
        task: usize,
        _pause: &Pause,
    ) -> impl Future<Output = Result<()>> + Send {
        async move { self.run(phase, task) }
    }

    /// When every task has run.
    fn finish(self) -> Result<Self::Output>;
}

/// Tasks that are each taken once. Every worker has a share of them, one after the other, and first
/// takes those: what they need was written by the same worker, if work is listed in the order of the
/// workers it came of, and is in the caches of its core more often than in those of another. Then it
/// takes what others have left.
pub struct Shares {
    /// By worker.
    taken: Box<[AtomicUsize]>,
}

impl Shares {
    pub fn new(workers: usize) -> Self {
        Shares { taken: (0..workers.max(1)).map(|_| AtomicUsize::new(0)).collect() }
    }

    /// One of so many tasks, which are the same number each time.
    pub fn take(&self, tasks: usize, worker: usize) -> Option<usize> {
        let shares = self.taken.len();
        let own = worker % shares;
        (own..shares).chain(0..own).find_map(|share| {
            let start = tasks * share / shares;
            let end = tasks * (share + 1) / shares;
            let task = start + self.taken[share].fetch_add(1, Ordering::Relaxed);
            (task < end).then_some(task)
        })
    }
}

/// Hands out the tasks of some work to a number of workers, each on any thread.
pub struct Turns<P> {
    work: P,
    /// By phase.
    shares: Box<[Shares]>,
    /// Of the last phase's tasks that may run early.
    late: Shares,
    /// By phase, those that have not ended.
    left: Box<[AtomicUsize]>,
    /// Tasks of the last phase that were begun early.
    early: AtomicUsize,
}

impl<P: Phases> Turns<P> {
    pub fn new(work: P, workers: usize) -> Self {
        let phases = 0..work.phases();
        let left = phases.clone().map(|phase| AtomicUsize::new(work.tasks(phase))).collect();
        let shares = phases.map(|_| Shares::new(workers)).collect();
        Turns { work, shares, late: Shares::new(workers), left, early: AtomicUsize::new(0) }
    }

    pub fn phases(&self) -> usize {
        self.shares.len()
    }

    /// Threads that find something to do in a phase. The phases before must be done.
    pub fn threads(&self, phase: usize) -> usize {
        let begun = self.early.load(Ordering::Relaxed);
        match phase == self.phases() - 1 {
            true => self.work.tasks(phase) - begun,
            false => self.work.tasks(phase) + self.work.early_tasks(phase) - begun,
        }
    }

    /// Runs a task of a phase; or once all of these have begun and while not all have ended, one of
    /// the last phase, rather than wait. `false`: there is none. The phases before must be done.
    pub async fn run(&self, phase: usize, worker: usize, pause: &Pause<'_>) -> Result<bool> {
        let last = self.phases() - 1;
        let task = match phase == last {
            true => self.last_task(worker),
            false => self.shares[phase].take(self.work.tasks(phase), worker),
        };
        if let Some(task) = task {
            self.work.run_in_steps(phase, task, pause).await?;
            self.left[phase].fetch_sub(1, Ordering::Relaxed);
            return Ok(true);
        }
        if phase == last || self.left[phase].load(Ordering::Relaxed) == 0 {
            return Ok(false);
        }
        let most = self.work.early_tasks(phase);
        let more = |early| (early < most).then_some(early + 1);
        let begun = self.early.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let Ok(begun) = begun else { return Ok(false) };
        let task = self.work.tasks(last) - 1 - begun;
        self.work.run_in_steps(last, task, pause).await?;
        Ok(true)
    }

    /// First of those that could not run early.
    fn last_task(&self, worker: usize) -> Option<usize> {
        let last = self.phases() - 1;
        let late = self.work.early_tasks(last);
        let first = self.work.tasks(last) - late;
        let task = self.shares[last].take(first, worker);
        let left = late - self.early.load(Ordering::Relaxed);
        task.or_else(|| Some(first + self.late.take(left, worker)?))
    }

    pub fn into_work(self) -> P {
        self.work
    }
}

/// What comes of a future that never waits.
pub fn at_once<T>(future: impl Future<Output = T>) -> Result<T> {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(done) => Ok(done),
        Poll::Pending => Err(Error::internal("work that is done at once has waited")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;

    use super::*;

    /// Phases of 3, 5 and 12 tasks; of the last, 8 may run early once the first phase is done.
    #[derive(Default)]
    struct Noted(Mutex<HashSet<(usize, usize)>>);

    const TASKS: [usize; 3] = [3, 5, 12];
    const EARLY: [usize; 3] = [0, 8, 8];

    #[test]
    fn who_has_no_share_left_takes_of_those_of_others() {
        let shares = Shares::new(3);
        let taken: Vec<_> = std::iter::from_fn(|| shares.take(7, 1)).collect();
        assert_eq!(taken, [2, 3, 4, 5, 6, 0, 1]);
        assert_eq!((shares.take(7, 0), shares.take(7, 2)), (None, None));
        let shares = Shares::new(3);
        let turns: Vec<_> = (0..6).filter_map(|turn| shares.take(2, turn % 3)).collect();
        assert_eq!(turns, [0, 1]);
    }

    impl Phases for Noted {
        type Output = usize;

        fn rows(&self) -> usize {
            0
        }

        fn phases(&self) -> usize {
            TASKS.len()
        }

        fn tasks(&self, phase: usize) -> usize {
            TASKS[phase]
        }

        fn early_tasks(&self, phase: usize) -> usize {
            EARLY[phase]
        }

        fn run(&self, phase: usize, task: usize) -> Result<()> {
            let done = |phase: usize, noted: &HashSet<_>| {
                (0..TASKS[phase]).all(|task| noted.contains(&(phase, task)))
            };
            std::thread::yield_now();
            let mut noted = self.0.lock().unwrap();
            let needed = if phase == 2 && task >= TASKS[2] - EARLY[1] { 1 } else { phase };
            assert!((0..needed).all(|before| done(before, &noted)), "{phase} {task}");
            assert!(noted.insert((phase, task)), "{phase} {task} is run again");
            Ok(())
        }

        fn finish(self) -> Result<usize> {
            Ok(self.0.into_inner().unwrap().len())
        }
    }

    fn run(turns: &Turns<Noted>, phase: usize, worker: usize) -> bool {
        at_once(turns.run(phase, worker, &no_pause)).unwrap().unwrap()
    }

    #[test]
    fn each_task_runs_once_and_none_before_what_it_needs() {
        for threads in 1..5 {
            for _ in 0..50 {
                let turns = Turns::new(Noted::default(), threads);
                for phase in 0..turns.phases() {
                    std::thread::scope(|scope| {
                        for worker in 0..threads.min(turns.threads(phase)) {
                            let turns = &turns;
                            scope.spawn(move || while run(turns, phase, worker) {});
                        }
                    });
                }
                assert_eq!(turns.into_work().finish().unwrap(), 20);
            }
        }
    }

    #[test]
    fn who_would_wait_runs_a_task_of_the_last_phase() {
        let turns = Turns::new(Noted::default(), 2);
        while run(&turns, 0, 0) {}
        // All have begun, and one has not ended.
        while turns.shares[1].take(TASKS[1], 1).is_some() {}
        turns.left[1].store(1, Ordering::Relaxed);
        for early in 0..EARLY[1] {
            assert!(run(&turns, 1, 0));
            assert!(turns.work.0.lock().unwrap().contains(&(2, TASKS[2] - 1 - early)));
        }
        assert!(!run(&turns, 1, 0), "the others have to wait");
        assert_eq!(turns.threads(2), TASKS[2] - EARLY[1]);
    }
}
