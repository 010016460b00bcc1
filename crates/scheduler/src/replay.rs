//! What a policy would have done to a recorded workload.
//!
//! The real state machine runs in simulated time: cores as many as slots, tasks that are always
//! ready, quanta of one length. So it says how queries would have waited for each other, and
//! nothing about the disk.
//!
//! ```
//! use thalweg_scheduler::{PolicyKind, replay::{Recorded, Setup, replay}};
//!
//! // A report of two seconds of CPU time, and in its middle a lookup of 10 ms.
//! let report = Recorded { cpu_ns: 2_000_000_000, tasks: 2, ..Recorded::default() };
//! let lookup = Recorded { arrival_ns: 500_000_000, cpu_ns: 10_000_000, ..report };
//! let [fair, fifo] = [PolicyKind::Fair, PolicyKind::Fifo]
//!     .map(|policy| replay(&Setup::new(policy, 2), &[report, lookup]).response_ns[1].unwrap());
//! assert!(fair < 10_000_000 && fifo > 500_000_000);
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use thalweg_base::{QueryId, Result, TaskId};

use crate::class::{Class, ClassId, WEIGHT_NORMAL};
use crate::query::Arrival;
use crate::{Action, PolicyKind, PollEnd, Scheduler, Turn, task_index};

/// A query as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub arrival_ns: u64,
    pub cpu_ns: u64,
    /// How many of its tasks could run at a time, at least 1.
    pub tasks: u32,
    /// Index into [`Setup::classes`]; the default class if there is none.
    pub class: usize,
    pub estimate_ns: u64,
    pub weight: u32,
}

impl Default for Recorded {
    fn default() -> Self {
        let (tasks, weight) = (1, WEIGHT_NORMAL);
        Recorded { arrival_ns: 0, cpu_ns: 0, tasks, class: 0, estimate_ns: 0, weight }
    }
}

/// Under what the workload is replayed.
#[derive(Clone, Debug)]
pub struct Setup {
    pub policy: PolicyKind,
    pub slots: usize,
    /// With their caps and timeouts; the first is the default class.
    pub classes: Vec<Class>,
    pub quantum_ns: u64,
}

impl Setup {
    /// With one class and quanta as long as the engine's operators aim at.
    pub fn new(policy: PolicyKind, slots: usize) -> Self {
        Setup { policy, slots, classes: vec![Class::new("default")], quantum_ns: 2_000_000 }
    }
}

/// What became of the queries of one class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassOutcome {
    pub class: String,
    pub queries: usize,
    /// Refused, or stopped by a timeout; the times are of the others.
    pub stopped: usize,
    /// From arrival to end.
    pub mean_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    /// Mean of the time taken over the time it would have taken alone.
    pub slowdown: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// From arrival to end of each query; `None` if it did not come to its end.
    pub response_ns: Vec<Option<u64>>,
    /// Those that have queries.
    pub classes: Vec<ClassOutcome>,
    /// From the first arrival to the last end.
    pub span_ns: u64,
    pub queries_per_s: f64,
}

/// Runs a workload. Deterministic: of events at one instant, the one of the earlier query, then
/// the one planned earlier, comes first.
///
/// # Panics
/// If the classes of the setup could not be created: two of one name, or a weight out of range.
pub fn replay(setup: &Setup, queries: &[Recorded]) -> Outcome {
    let mut player = Player::new(setup, queries).expect("the classes of a setup are valid");
    player.run();
    let response_ns = player.response_ns;
    let first = queries.iter().map(|q| q.arrival_ns).min().unwrap_or(0);
    let ends = queries.iter().zip(&response_ns).filter_map(|(q, ns)| Some(q.arrival_ns + (*ns)?));
    let span_ns = ends.max().unwrap_or(first) - first;
    let ended = response_ns.iter().flatten().count();
    let classes = (0..setup.classes.len())
        .map(|c| class_outcome(setup, c, queries, &response_ns))
        .filter(|c| c.queries > 0)
        .collect();
    let queries_per_s = ended as f64 * 1e9 / span_ns.max(1) as f64;
    Outcome { response_ns, classes, span_ns, queries_per_s }
}

fn class_outcome(
    setup: &Setup,
    class: usize,
    queries: &[Recorded],
    response_ns: &[Option<u64>],
) -> ClassOutcome {
    let class_of = |q: &Recorded| if q.class < setup.classes.len() { q.class } else { 0 };
    let mine = || queries.iter().zip(response_ns).filter(|(q, _)| class_of(q) == class);
    let mut times: Vec<u64> = mine().filter_map(|(_, ns)| *ns).collect();
    times.sort_unstable();
    let ended = times.len();
    let percentile = |percent: usize| match ended {
        0 => 0,
        n => times[(n * percent).div_ceil(100).clamp(1, n) - 1],
    };
    let slowdowns = mine().filter_map(|(q, ns)| {
        let cores = (q.tasks.max(1) as usize).min(setup.slots) as u64;
        Some((*ns)? as f64 / q.cpu_ns.div_ceil(cores).max(1) as f64)
    });
    ClassOutcome {
        class: setup.classes[class].name.clone(),
        queries: mine().count(),
        stopped: mine().count() - ended,
        mean_ns: times.iter().sum::<u64>() / ended.max(1) as u64,
        p50_ns: percentile(50),
        p99_ns: percentile(99),
        slowdown: slowdowns.sum::<f64>() / ended.max(1) as f64,
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive,
    QuantumEnds { task: TaskId, cpu_ns: u64 },
}

/// What a living task is of, and has left to do.
#[derive(Clone, Copy)]
struct Work {
    query: usize,
    left_ns: u64,
}

struct Player<'a> {
    setup: &'a Setup,
    queries: &'a [Recorded],
    classes: Vec<ClassId>,
    scheduler: Scheduler,
    /// By time, then query, then when they were planned.
    agenda: BinaryHeap<Reverse<(u64, usize, u64, Event)>>,
    planned: u64,
    /// By [`task_index`].
    tasks: Vec<Work>,
    actions: Vec<Action>,
    response_ns: Vec<Option<u64>>,
}

impl<'a> Player<'a> {
    fn new(setup: &'a Setup, queries: &'a [Recorded]) -> Result<Self> {
        let mut scheduler = Scheduler::new(setup.slots, setup.policy);
        let mut actions = Vec::new();
        let mut classes = Vec::new();
        for (n, class) in setup.classes.iter().enumerate() {
            classes.push(match n {
                0 => {
                    scheduler.alter_class(ClassId::DEFAULT, class.clone(), 0, &mut actions)?;
                    ClassId::DEFAULT
                }
                _ => scheduler.create_class(class.clone())?,
            });
        }
        let mut player = Player {
            setup,
            queries,
            classes,
            scheduler,
            agenda: BinaryHeap::new(),
            planned: 0,
            tasks: Vec::new(),
            actions,
            response_ns: vec![None; queries.len()],
        };
        for (n, query) in queries.iter().enumerate() {
            player.plan(query.arrival_ns, n, Event::Arrive);
        }
        Ok(player)
    }

    fn plan(&mut self, at_ns: u64, query: usize, event: Event) {
        self.planned += 1;
        self.agenda.push(Reverse((at_ns, query, self.planned, event)));
    }

    fn run(&mut self) {
        while let Some(Reverse((at_ns, query, _, event))) = self.agenda.pop() {
            if let Some(due_ns) = self.scheduler.next_deadline().filter(|due| *due <= at_ns) {
                self.scheduler.tick(due_ns, &mut self.actions);
                self.perform(due_ns);
            }
            match event {
                Event::Arrive => self.arrive(query, at_ns),
                Event::QuantumEnds { task, cpu_ns } => self.end_quantum(task, cpu_ns, at_ns),
            }
            self.perform(at_ns);
        }
    }

    fn arrive(&mut self, query: usize, now_ns: u64) {
        let Recorded { cpu_ns, tasks, class, estimate_ns, weight, .. } = self.queries[query];
        let class = self.classes.get(class).copied();
        let arrival = Arrival { estimate_ns, class, weight, ..Arrival::default() };
        let id = QueryId(query as u64);
        if self.scheduler.query_arrived(id, &arrival, now_ns, &mut self.actions).is_err() {
            return;
        }
        let tasks = u64::from(tasks.max(1));
        for n in 0..tasks {
            let task = self.scheduler.task_spawned(id, now_ns, &mut self.actions);
            let index = task_index(task.expect("the query has arrived"));
            let work = Work { query, left_ns: cpu_ns / tasks + u64::from(n < cpu_ns % tasks) };
            match index < self.tasks.len() {
                true => self.tasks[index] = work,
                false => self.tasks.push(work),
            }
        }
    }

    fn end_quantum(&mut self, task: TaskId, cpu_ns: u64, now_ns: u64) {
        let work = &mut self.tasks[task_index(task)];
        work.left_ns -= cpu_ns;
        let query = work.query;
        let end = if work.left_ns == 0 { PollEnd::Done } else { PollEnd::Yielded };
        self.scheduler.poll_ended(task, end, cpu_ns, now_ns, &mut self.actions);
        let id = QueryId(query as u64);
        if self.scheduler.query_state(id).is_some_and(|q| q.tasks == 0) {
            self.scheduler.query_ended(id, now_ns, &mut self.actions);
            self.response_ns[query] = Some(now_ns - self.queries[query].arrival_ns);
        }
    }

    fn perform(&mut self, now_ns: u64) {
        let mut done = 0;
        while let Some(action) = self.actions.get(done).copied() {
            done += 1;
            match action {
                Action::Grant(task) => {
                    if !matches!(self.scheduler.poll_began(task), Turn::Run { .. }) {
                        // Stopped at the instant of the grant.
                        continue;
                    }
                    let work = self.tasks[task_index(task)];
                    let cpu_ns = work.left_ns.min(self.setup.quantum_ns);
                    self.plan(now_ns + cpu_ns, work.query, Event::QuantumEnds { task, cpu_ns });
                }
                Action::Cancel(task) => {
                    self.scheduler.task_dropped(task, now_ns, &mut self.actions);
                }
                Action::Stop(query) => {
                    self.scheduler.query_ended(query, now_ns, &mut self.actions);
                }
                Action::Admitted(_) | Action::Spill(_) | Action::MemoryFreed(_) => {}
            }
        }
        self.actions.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Always ready, and with a right estimate.
    fn query(arrival_ms: u64, tasks: u32, cpu_ms: u64) -> Recorded {
        let (arrival_ns, cpu_ns) = (arrival_ms * MS, cpu_ms * MS);
        Recorded { arrival_ns, cpu_ns, tasks, estimate_ns: cpu_ns, ..Recorded::default() }
    }

    fn times(policy: PolicyKind, queries: &[Recorded]) -> Vec<u64> {
        let outcome = replay(&Setup::new(policy, 2), queries);
        outcome.response_ns.into_iter().map(|ns| ns.unwrap()).collect()
    }

    fn mean(times: &[u64]) -> u64 {
        times.iter().sum::<u64>() / times.len() as u64
    }

    /// The reason to have policies: two reports of two seconds each, then six lookups of 16 ms.
    #[test]
    fn short_queries_end_much_earlier_under_fair_and_small_first() {
        let mut queries = vec![query(0, 4, 2_000), query(0, 4, 2_000)];
        queries.extend((1..=6).map(|n| query(n, 2, 16)));
        let [fair, small_first, round_robin, fifo] =
            PolicyKind::ALL.map(|policy| times(policy, &queries));
        for times in [&fair, &small_first] {
            assert!(mean(&fifo[2..]) > 3 * mean(&times[2..]), "{fifo:?} {times:?}");
            assert!(mean(&round_robin[2..]) > mean(&times[2..]), "{round_robin:?} {times:?}");
        }
        // All the work is done in the same time: no slot was ever idle.
        let work: u64 = queries.iter().map(|q| q.cpu_ns).sum();
        for times in [&fair, &small_first, &round_robin, &fifo] {
            let end = queries.iter().zip(times.iter()).map(|(q, t)| q.arrival_ns + t).max();
            assert!(end.unwrap() - work / 2 <= 2 * MS, "{times:?}");
        }
    }

    #[test]
    fn a_heavy_query_with_a_small_estimate_sinks() {
        let mut queries = vec![query(0, 4, 2_000)];
        queries[0].estimate_ns = 4 * MS;
        queries.extend((1..=6).map(|n| query(40 * n, 2, 16)));
        for policy in [PolicyKind::Fair, PolicyKind::SmallFirst] {
            // 16 ms of work on two slots, and at most one foreign quantum per slot before it;
            // under `fair` a long query may have had its turn once more.
            let times = times(policy, &queries);
            assert!(times[1..].iter().all(|t| *t <= 14 * MS), "{policy}: {times:?}");
        }
    }

    /// Eight long queries; a short one every 50 ms. Without estimates, and with nothing set.
    #[test]
    fn under_fair_a_short_query_takes_less_than_twice_its_time_beside_eight_long_ones() {
        let mut queries: Vec<Recorded> = (0..8).map(|_| query(0, 4, 4_000)).collect();
        queries.extend((1..=200).map(|n| query(50 * n, 2, 20)));
        queries.iter_mut().for_each(|q| q.estimate_ns = 0);
        // At first the eight are as short as it is, for all that anybody knows.
        let short = times(PolicyKind::Fair, &queries).split_off(8 + 20);
        assert!(short.iter().all(|ns| *ns <= 20 * MS), "alone it takes 10 ms: {short:?}");
    }

    /// Short queries without end leave the long one about what `fair` says, and `small_first`
    /// nothing.
    #[test]
    fn fair_does_not_starve_a_long_query() {
        let mut queries = vec![query(0, 2, 150)];
        queries.extend((0..8_000).map(|n| query(10 * n, 2, 20)));
        let fair = times(PolicyKind::Fair, &queries)[0];
        let small_first = times(PolicyKind::SmallFirst, &queries)[0];
        assert!(fair < 60_000 * MS, "{} ms", fair / MS);
        assert!(small_first > 79_000 * MS, "{} ms", small_first / MS);
    }

    #[test]
    fn shares_follow_weights() {
        // Both are long past their decay for most of the time.
        let mut queries = vec![query(0, 2, 6_000), query(0, 2, 6_000)];
        queries[1].weight = 300;
        let times = times(PolicyKind::Fair, &queries);
        // The heavier ends when 6 s of it and 2 s of the other are done, on two slots.
        assert!((3_900 * MS..4_100 * MS).contains(&times[1]), "{times:?}");
        assert!((5_990 * MS..6_010 * MS).contains(&times[0]), "{times:?}");
    }

    #[test]
    fn classes_are_reported_apart_with_caps_and_refusals() {
        let mut batch = Class::new("batch");
        (batch.max_running, batch.queue_max) = (Some(1), 1);
        let setup = Setup {
            classes: vec![Class::new("default"), batch],
            ..Setup::new(PolicyKind::Fair, 2)
        };
        let of_batch = |q: Recorded| Recorded { class: 1, ..q };
        let queries = [
            query(0, 1, 10),
            of_batch(query(0, 1, 100)),
            of_batch(query(1, 1, 100)),
            of_batch(query(2, 1, 100)),
        ];
        let outcome = replay(&setup, &queries);
        let ended = outcome.response_ns.iter().map(|ns| ns.map(|ns| ns / MS)).collect::<Vec<_>>();
        assert_eq!(ended, [Some(10), Some(100), Some(199), None]);
        let [default, batch] = &outcome.classes[..] else { panic!("{outcome:?}") };
        assert_eq!((default.queries, default.stopped, default.p99_ns), (1, 0, 10 * MS));
        assert_eq!((batch.queries, batch.stopped, batch.p50_ns), (3, 1, 100 * MS));
        assert!((batch.slowdown - 1.495).abs() < 0.001, "{batch:?}");
        assert_eq!(outcome.span_ns, 200 * MS);
    }
}
