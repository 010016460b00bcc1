//! The scheduler is in every poll of every query: once it has grown to the tasks there are, its
//! events must not allocate.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use thalweg_base::QueryId;
use thalweg_scheduler::{Arrival, PolicyKind, PollEnd, Scheduler};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn polls_and_wakes_do_not_allocate() {
    for policy in PolicyKind::ALL {
        let mut scheduler = Scheduler::new(2, policy);
        let mut actions = Vec::with_capacity(16);
        scheduler.set_reserve(1, 0, &mut actions);
        for query in (0..10).map(QueryId) {
            let deadline_ns = (query.0 == 3).then_some(1 << 60);
            let arrival = Arrival { deadline_ns, ..Arrival::default() };
            scheduler.query_arrived(query, &arrival, 0, &mut actions).unwrap();
            for _ in 0..4 {
                scheduler.task_spawned(query, 0, &mut actions).unwrap();
            }
        }
        let mut granted: Vec<_> = actions.drain(..).filter_map(|a| a.task()).collect();
        granted.reserve(16);
        let mut before = 0;
        for n in 0..20_000 {
            if n == 10_000 {
                before = ALLOCATIONS.get();
            }
            let task = granted.swap_remove(n % granted.len());
            let _turn = scheduler.poll_began(task);
            let end = if n % 3 == 0 { PollEnd::Pending } else { PollEnd::Yielded };
            scheduler.poll_ended(task, end, 100_000, n as u64, &mut actions);
            scheduler.task_woken(task, n as u64, &mut actions);
            granted.extend(actions.drain(..).filter_map(|a| a.task()));
        }
        assert_eq!(ALLOCATIONS.get() - before, 0, "{policy}");
    }
}
