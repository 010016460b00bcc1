//! What the scheduler costs: nanoseconds per event of a task's life in the steady state.
//!
//! ```text
//! cargo run --release -p thalweg-scheduler --example overhead
//! ```
//!
//! Every quantum is one `poll_began` and one `poll_ended`; one in two is ended by `Pending` and
//! followed by one `task_woken`. Then, what a query costs that has one task and one quantum: its
//! arrival and end, and under `fair` its part of the self-tuning.

use std::hint::black_box;
use std::time::Instant;
use thalweg_base::QueryId;
use thalweg_scheduler::{Arrival, PolicyKind, PollEnd, Scheduler};

const QUANTA: u64 = 2_000_000;

fn main() {
    println!("{:12} {:>10} {:>10} {:>10}  ns per event", "policy", "1 query", "8", "64");
    for policy in PolicyKind::ALL {
        let ns = [1, 8, 64].map(|queries| per_event_ns(policy, queries));
        println!("{:12} {:10.1} {:10.1} {:10.1}", policy.name(), ns[0], ns[1], ns[2]);
    }
    for policy in PolicyKind::ALL {
        println!("{:12} {:10.0} ns per query", policy.name(), per_query_ns(policy));
    }
}

fn per_query_ns(policy: PolicyKind) -> f64 {
    const QUERIES: u64 = 100_000;
    let mut scheduler = Scheduler::new(2, policy);
    let mut actions = Vec::new();
    let began = Instant::now();
    let mut now_ns = 0;
    for n in 0..QUERIES {
        let (query, cpu_ns) = (QueryId(n), if n % 10 == 0 { 2_000_000_000 } else { 10_000_000 });
        scheduler
            .query_arrived(query, &Arrival::default(), now_ns, &mut actions)
            .expect("there are no limits");
        let task = scheduler.task_spawned(query, now_ns, &mut actions).expect("it has arrived");
        let _turn = black_box(scheduler.poll_began(task));
        now_ns += 120_000_000;
        scheduler.poll_ended(task, PollEnd::Done, cpu_ns, now_ns, &mut actions);
        scheduler.query_ended(query, now_ns, &mut actions);
        actions.clear();
    }
    began.elapsed().as_nanos() as f64 / QUERIES as f64
}

fn per_event_ns(policy: PolicyKind, queries: u64) -> f64 {
    let mut scheduler = Scheduler::new(2, policy);
    let mut actions = Vec::new();
    for query in (0..queries).map(QueryId) {
        let arrival = Arrival { estimate_ns: 1 << 40, ..Arrival::default() };
        scheduler.query_arrived(query, &arrival, 0, &mut actions).expect("there are no limits");
        for _ in 0..4 {
            scheduler.task_spawned(query, 0, &mut actions);
        }
    }
    let mut granted: Vec<_> = actions.drain(..).filter_map(|a| a.task()).collect();
    let began = Instant::now();
    let mut events = 0u64;
    for n in 0..QUANTA {
        let task = granted.swap_remove((n % 2) as usize);
        let _turn = black_box(scheduler.poll_began(task));
        let end = if n % 2 == 0 { PollEnd::Pending } else { PollEnd::Yielded };
        scheduler.poll_ended(task, end, 1_000 + n % 512, n, &mut actions);
        events += 2;
        if end == PollEnd::Pending {
            scheduler.task_woken(task, n, &mut actions);
            events += 1;
        }
        granted.extend(actions.drain(..).filter_map(|a| a.task()));
    }
    began.elapsed().as_nanos() as f64 / events as f64
}
