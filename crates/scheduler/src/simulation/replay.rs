//! A given workload under a given policy, in simulated time.

use crate::{Action, PolicyKind, PollEnd, Scheduler, Turn};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use thalweg_base::{QueryId, TaskId};

/// A query of a workload: `tasks` × `quanta` × `quantum_ns` of work that is always ready.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub arrival_ns: u64,
    pub tasks: u64,
    /// Of each task.
    pub quanta: u64,
    pub quantum_ns: u64,
    pub estimate_ns: u64,
}

impl Job {
    pub fn work_ns(&self) -> u64 {
        self.tasks * self.quanta * self.quantum_ns
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive,
    QuantumEnds { task: TaskId },
}

/// The time from arrival to end of each job. Of events at one instant, the one of the earlier
/// job, then the one planned earlier, comes first.
pub fn replay(policy: PolicyKind, slots: usize, jobs: &[Job]) -> Vec<u64> {
    let mut scheduler = Scheduler::new(slots, policy);
    let mut response_ns = vec![0; jobs.len()];
    let mut agenda = BinaryHeap::new();
    let mut planned = 0;
    let mut tasks: BTreeMap<TaskId, (usize, u64)> = BTreeMap::new();
    let mut actions = Vec::new();
    for (job, Job { arrival_ns, .. }) in jobs.iter().enumerate() {
        agenda.push(Reverse((*arrival_ns, job, planned, Event::Arrive)));
    }
    while let Some(Reverse((now_ns, job, _, event))) = agenda.pop() {
        let query = QueryId(job as u64);
        match event {
            Event::Arrive => {
                scheduler.query_arrived(query, jobs[job].estimate_ns, now_ns);
                for _ in 0..jobs[job].tasks {
                    let task = scheduler.task_spawned(query, now_ns, &mut actions);
                    tasks.insert(task.expect("the query has arrived"), (job, jobs[job].quanta));
                }
            }
            Event::QuantumEnds { task } => {
                let left = &mut tasks.get_mut(&task).expect("it was granted a slot").1;
                *left -= 1;
                let end = if *left == 0 { PollEnd::Done } else { PollEnd::Yielded };
                scheduler.poll_ended(task, end, jobs[job].quantum_ns, now_ns, &mut actions);
                if scheduler.query_state(query).is_some_and(|q| q.tasks == 0) {
                    scheduler.query_ended(query, now_ns, &mut actions);
                    response_ns[job] = now_ns - jobs[job].arrival_ns;
                }
            }
        }
        for action in actions.drain(..) {
            let Action::Grant(task) = action else { unreachable!("no job is cancelled") };
            assert_eq!(scheduler.poll_began(task), Turn::Run, "a grant is for one poll");
            let job = tasks[&task].0;
            planned += 1;
            let event = Event::QuantumEnds { task };
            agenda.push(Reverse((now_ns + jobs[job].quantum_ns, job, planned, event)));
        }
    }
    response_ns
}
