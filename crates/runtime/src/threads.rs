//! The threads that poll. tokio has threads of its own for timers, connections and blocking calls;
//! which task is polled next is the scheduler's to say, and there is no other queue before a slot.
//!
//! A thread that has ended a poll takes what the scheduler granted the slot to, and no other thread is
//! woken for it. Who slept last is woken first: its caches are warm, and the threads that
//! are there for the scheduler's reserve sleep as long as it is not in use.
//!
//! A thread that finds nothing to take looks on for a moment before it sleeps, while others poll for
//! the query that it has polled for: its next pipeline begins soon. Linux may put a thread that wakes
//! up where another one runs, though a core is free that has just become so, and there it waits for
//! the next tick, which may be 4 ms away. Queries of one task, as look-ups are, keep no core busy so.
//!
//! Threads are of [lanes](super::lanes), and a thread polls the tasks of its own only. While there are
//! more polls than cores, those of older queries [pause](Threads::pause).

use std::cell::Cell;
use std::collections::VecDeque;
use std::hint::spin_loop;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Thread, ThreadId};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use thalweg_base::{Clock, QueryId, SystemClock};
use thalweg_scheduler::Age;
use tokio::runtime::Handle;

use super::cores;
use super::lanes::{Firm, InBack, Lane, Lanes, Used};

/// So long a thread looks on.
const LOOKS_ON: Duration = Duration::from_micros(500);
/// Looks before it offers its core to any other thread.
const LOOKS: usize = 32;

/// A task that was granted a slot, or is to be dropped.
pub trait Granted: Send + Sync {
    /// Polls it, with `tokio` as the runtime of the thread.
    fn run(self: Arc<Self>, tokio: &Handle);
}

/// A task that was granted a slot.
pub struct Grant {
    pub task: Arc<dyn Granted>,
    pub lane: Lane,
    pub poll: PollOf,
}

/// What a poll is for.
#[derive(Clone, Copy)]
pub struct PollOf {
    /// `None`: it ends a task that will not be polled again.
    pub query: Option<QueryId>,
    pub age: Age,
}

impl PollOf {
    pub const END: PollOf = PollOf { query: None, age: Age::Fresh };
}

/// How a poll has [paused](Threads::pause).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// It has not.
    None,
    /// Until there was a core for it.
    Resumed,
    /// As long as it may.
    Longest,
}

pub struct Threads {
    state: Mutex<State>,
    /// By lane, how many are granted and not taken; for who does not hold the lock.
    granted: [AtomicUsize; Lane::ALL.len()],
    /// Polls under way or about to be, for the same.
    polls: AtomicUsize,
    /// Polls that can have one at a time.
    cores: usize,
    /// That this process may use.
    machine_cores: u64,
    firm: Firm,
    in_back: InBack,
    clock: SystemClock,
}

#[derive(Default)]
struct State {
    lanes: [Waiting; Lane::ALL.len()],
    /// Under way or about to be, by age, without those that pause.
    polls: [usize; Age::COUNT],
    /// Of each poll, also one that pauses, its query.
    queries: Vec<QueryId>,
    paused: Vec<(Age, Thread)>,
    closed: bool,
}

#[derive(Default)]
struct Waiting {
    /// At most as many as there are slots wait here for long.
    granted: VecDeque<(PollOf, Arc<dyn Granted>)>,
    asleep: Vec<Thread>,
}

impl State {
    fn begins(&mut self, poll: PollOf) {
        self.polls[poll.age as usize] += 1;
        self.queries.extend(poll.query);
    }

    /// Whether others poll for the same query.
    fn ended(&mut self, poll: PollOf) -> bool {
        self.polls[poll.age as usize] -= 1;
        let Some(query) = poll.query else { return false };
        if let Some(n) = self.queries.iter().position(|of| *of == query) {
            self.queries.swap_remove(n);
        }
        self.queries.contains(&query)
    }

    /// Who goes on as there is a core for it.
    fn resumed(&mut self, cores: usize) -> Option<Thread> {
        if self.polls.iter().sum::<usize>() >= cores {
            return None;
        }
        let youngest = (0..self.paused.len()).min_by_key(|n| self.paused[*n].0)?;
        let (age, thread) = self.paused.swap_remove(youngest);
        self.polls[age as usize] += 1;
        Some(thread)
    }

    /// Whether it pauses, to be resumed or to go on by itself.
    fn pauses(&mut self, age: Age, thread: &Thread, cores: usize) -> bool {
        let younger = &self.polls[..age as usize];
        let crowded = self.polls.iter().sum::<usize>() > cores && younger.iter().any(|n| *n > 0);
        if crowded && !self.closed {
            self.polls[age as usize] -= 1;
            self.paused.push((age, thread.clone()));
            return true;
        }
        false
    }

    /// Whether it was not resumed before.
    fn goes_on(&mut self, thread: ThreadId) -> bool {
        let place = self.paused.iter().position(|(_, paused)| paused.id() == thread);
        if let Some(n) = place {
            let (age, _) = self.paused.swap_remove(n);
            self.polls[age as usize] += 1;
        }
        place.is_some()
    }
}

thread_local! {
    /// The poll of this thread.
    static POLL: Cell<Option<PollOf>> = const { Cell::new(None) };
    /// For how long the poll of this thread has paused.
    static PAUSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    /// This thread is about to take a task.
    static TAKES: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` on a thread that takes a task right after: for the first of its lane that `f` grants a
/// slot to, no other is woken.
pub fn before_taking(f: impl FnOnce()) {
    TAKES.set(true);
    f();
    TAKES.set(false);
}

impl Threads {
    /// For so many `cores`. Tells `lanes` of polls in the back.
    pub fn new(cores: usize, lanes: &Lanes, clock: SystemClock) -> Self {
        let machine_cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        let (firm, in_back) = (lanes.firm().clone(), lanes.in_back().clone());
        Threads {
            state: Mutex::default(),
            granted: Default::default(),
            polls: AtomicUsize::new(0),
            cores,
            machine_cores,
            firm,
            in_back,
            clock,
        }
    }

    /// Starts so many of a lane.
    pub fn start(
        self: &Arc<Self>,
        lane: Lane,
        count: usize,
        stack: usize,
        tokio: &Handle,
    ) -> io::Result<()> {
        for _ in 0..count {
            let (threads, tokio) = (Arc::clone(self), tokio.clone());
            let builder =
                std::thread::Builder::new().name(lane.thread_name().into()).stack_size(stack);
            builder.spawn(move || {
                lane.enter();
                while let Some(task) = threads.take(lane) {
                    threads.run(lane, task, &tokio);
                }
            })?;
        }
        Ok(())
    }

    fn run(&self, lane: Lane, task: Arc<dyn Granted>, tokio: &Handle) {
        if lane == Lane::Front {
            return task.run(tokio);
        }
        let began = Used::now(self.clock.now_ns());
        PAUSED.set(Duration::ZERO);
        task.run(tokio);
        let ended = Used::now(self.clock.now_ns());
        let paused_ns = PAUSED.get().as_nanos() as u64;
        self.firm.note(began, ended, paused_ns, self.machine_cores);
    }

    pub fn push(&self, grant: Grant) {
        let Grant { task, lane, poll } = grant;
        let mut state = self.state.lock();
        if state.closed {
            // Dropped where nobody holds the lock.
            drop(state);
            return;
        }
        state.begins(poll);
        self.polls.fetch_add(1, Ordering::Relaxed);
        if lane == Lane::Back {
            self.in_back.begins();
        }
        let waiting = &mut state.lanes[lane as usize];
        waiting.granted.push_back((poll, task));
        self.granted[lane as usize].store(waiting.granted.len(), Ordering::Relaxed);
        let takes = Lane::current() == Some(lane) && TAKES.replace(false);
        let woken = if takes { None } else { waiting.asleep.pop() };
        drop(state);
        if let Some(thread) = woken {
            thread.unpark();
        }
    }

    /// Waits for one. `None`: there are no more.
    fn take(&self, lane: Lane) -> Option<Arc<dyn Granted>> {
        let this = std::thread::current();
        let mut state = self.state.lock();
        let mut looks_on = false;
        if let Some(poll) = POLL.take() {
            cores::leave();
            looks_on = state.ended(poll);
            self.polls.fetch_sub(1, Ordering::Relaxed);
            if lane == Lane::Back {
                self.in_back.ended();
            }
        }
        loop {
            if state.closed {
                return None;
            }
            let waiting = &mut state.lanes[lane as usize];
            // It may have woken without being told to.
            waiting.asleep.retain(|thread| thread.id() != this.id());
            if let Some((poll, task)) = waiting.granted.pop_front() {
                self.granted[lane as usize].store(waiting.granted.len(), Ordering::Relaxed);
                drop(state);
                POLL.set(Some(poll));
                cores::enter();
                return Some(task);
            }
            waiting.asleep.push(this.clone());
            let resumed = state.resumed(self.cores);
            let polls: usize = state.polls.iter().sum();
            drop(state);
            if let Some(thread) = resumed {
                thread.unpark();
            }
            let looks = std::mem::take(&mut looks_on) && polls < self.cores;
            if !(looks && self.sees_grant(lane)) {
                std::thread::park();
            }
            state = self.state.lock();
        }
    }

    /// Looks on until there is something to take, or nobody polls.
    fn sees_grant(&self, lane: Lane) -> bool {
        let began = Instant::now();
        while began.elapsed() < LOOKS_ON && self.polls.load(Ordering::Relaxed) > 0 {
            for _ in 0..LOOKS {
                if self.granted[lane as usize].load(Ordering::Relaxed) > 0 {
                    return true;
                }
                spin_loop();
            }
            std::thread::yield_now();
        }
        false
    }

    /// In the middle of a poll: leaves the core to younger queries, if there are more polls than cores,
    /// until there are not, but not for longer than `longest`.
    pub fn pause(&self, longest: Duration) -> Pause {
        let Some(PollOf { age, .. }) = POLL.get() else { return Pause::None };
        let this = std::thread::current();
        if !self.state.lock().pauses(age, &this, self.cores) {
            return Pause::None;
        }
        let began = Instant::now();
        cores::leave();
        std::thread::park_timeout(longest);
        cores::enter();
        // Beyond that it waited for a core.
        PAUSED.set(PAUSED.get() + began.elapsed().min(longest));
        match self.state.lock().goes_on(this.id()) {
            true => Pause::Longest,
            false => Pause::Resumed,
        }
    }

    /// Whether a task was granted a slot that no thread has taken yet.
    pub fn has_waiting(&self) -> bool {
        self.granted.iter().any(|granted| granted.load(Ordering::Relaxed) > 0)
    }

    /// Whether nobody gives way at present, and those that do had better not go on.
    pub fn are_firm(&self) -> bool {
        self.firm.is_firm(self.clock.now_ns())
    }

    /// The threads end when they next look for a task.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let lanes = std::mem::take(&mut state.lanes);
        drop(state);
        for Waiting { granted, asleep } in lanes {
            drop(granted);
            asleep.iter().for_each(Thread::unpark);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    struct Told {
        number: usize,
        sender: mpsc::Sender<usize>,
        dropped: Arc<AtomicUsize>,
    }

    impl Granted for Told {
        fn run(self: Arc<Self>, _: &Handle) {
            self.sender.send(self.number).unwrap();
        }
    }

    /// After which a thread looks on.
    fn grant(lane: Lane, task: Arc<dyn Granted>) -> Grant {
        Grant { task, lane, poll: PollOf { query: Some(QueryId(1)), age: Age::Long } }
    }

    impl Drop for Told {
        fn drop(&mut self) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn each_task_is_taken_once_also_by_the_thread_that_granted_it_and_none_when_closed() {
        let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let threads = Arc::new(Threads::new(2, &Lanes::default(), SystemClock::default()));
        for lane in Lane::ALL {
            threads.start(lane, 3, 1 << 20, tokio.handle()).unwrap();
        }
        let (sender, receiver) = mpsc::channel();
        let dropped = Arc::new(AtomicUsize::new(0));
        let told = |number| {
            let (sender, dropped) = (sender.clone(), Arc::clone(&dropped));
            Arc::new(Told { number, sender, dropped })
        };
        let next = || receiver.recv_timeout(Duration::from_secs(10)).expect("a thread slept on");
        let lane = |number| Lane::ALL[number % Lane::ALL.len()];

        for round in 0..2_000 {
            let numbers = round * 5..round * 5 + 5;
            numbers.clone().for_each(|n| threads.push(grant(lane(n), told(n))));
            let mut seen: Vec<usize> = (0..5).map(|_| next()).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(numbers));
        }

        /// Grants a slot in every lane, and in its own one more, when its poll ends: there one other
        /// thread is woken for the second.
        struct Ends(Arc<Threads>, Mutex<Vec<(Lane, Arc<Told>)>>);
        impl Granted for Ends {
            fn run(self: Arc<Self>, _: &Handle) {
                before_taking(|| {
                    self.1.lock().drain(..).for_each(|(lane, told)| self.0.push(grant(lane, told)));
                });
            }
        }
        for own in Lane::ALL.into_iter().cycle().take(2_000) {
            let tasks = Lane::ALL.into_iter().chain([own]).map(|lane| (lane, told(1)));
            let ends = Ends(Arc::clone(&threads), Mutex::new(tasks.collect()));
            threads.push(grant(own, Arc::new(ends)));
            (0..=Lane::ALL.len()).for_each(|_| assert_eq!(next(), 1));
        }

        threads.close();
        let before = dropped.load(Ordering::Relaxed);
        threads.push(grant(Lane::ALL[0], told(0)));
        assert_eq!(dropped.load(Ordering::Relaxed), before + 1);
        drop(sender);
        assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err());
    }

    #[test]
    fn a_poll_of_an_older_query_pauses_while_there_are_more_polls_than_cores() {
        /// Calls `pause` when it is told how long, and tells how it did.
        struct Polls(Arc<Threads>, Mutex<mpsc::Receiver<Duration>>, mpsc::Sender<Pause>);
        impl Granted for Polls {
            fn run(self: Arc<Self>, _: &Handle) {
                while let Ok(longest) = self.1.lock().recv() {
                    self.2.send(self.0.pause(longest)).unwrap();
                }
            }
        }
        const FOREVER: Duration = Duration::from_secs(60);
        let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let threads = Arc::new(Threads::new(1, &Lanes::default(), SystemClock::default()));
        threads.start(Lane::Front, 4, 1 << 20, tokio.handle()).unwrap();
        let (paused, told) = mpsc::channel();
        let begin = |age| {
            let (asks, asked) = mpsc::channel();
            let task = Arc::new(Polls(Arc::clone(&threads), Mutex::new(asked), paused.clone()));
            let poll = PollOf { query: Some(QueryId(1)), age };
            threads.push(Grant { task, lane: Lane::Front, poll });
            asks
        };
        let next = || told.recv_timeout(FOREVER / 2).expect("it was not resumed");
        let pauses = |poll: &mpsc::Sender<Duration>, longest| {
            poll.send(longest).unwrap();
            next()
        };

        let long = begin(Age::Long);
        assert_eq!(pauses(&long, FOREVER), Pause::None, "it is alone");
        let other = begin(Age::Long);
        assert_eq!(pauses(&long, FOREVER), Pause::None, "nobody is younger");
        drop(other);
        let short = begin(Age::Short);
        assert_eq!(pauses(&short, FOREVER), Pause::None, "it is the youngest");
        assert_eq!(pauses(&long, Duration::from_millis(1)), Pause::Longest);
        long.send(FOREVER).unwrap();
        while threads.state.lock().paused.is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(pauses(&short, FOREVER), Pause::None, "the core is its own");
        let fresh = begin(Age::Fresh);
        short.send(FOREVER).unwrap();
        while threads.state.lock().paused.len() < 2 {
            std::thread::yield_now();
        }
        // Each is resumed by the end of the one before, the younger first.
        drop(fresh);
        assert_eq!(next(), Pause::Resumed);
        assert_eq!(threads.state.lock().paused[0].0, Age::Long);
        drop(short);
        assert_eq!(next(), Pause::Resumed);
        drop(long);
        threads.close();
    }
}
