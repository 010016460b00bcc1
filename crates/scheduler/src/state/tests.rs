//! One test per transition and what it must not do; the simulator covers their combinations.

use thalweg_base::TaskId;

use super::*;
use crate::{
    Action, Admission, Age, Arrival, BRIEF_CPU_NS, Estimate, FRESH_CPU_NS, MemoryLimit, OVERDUE_NS,
    Phase, Priority, Refusal, SHORT_CPU_NS, ServerLimits, Stop, WaitReason, task_index,
};

/// A scheduler, its clock, and the actions of the last event.
struct Bench {
    scheduler: Scheduler,
    now_ns: u64,
    actions: Vec<Action>,
}

impl Bench {
    fn new(slots: usize, policy: PolicyKind) -> Self {
        Bench { scheduler: Scheduler::new(slots, policy), now_ns: 0, actions: Vec::new() }
    }

    fn event<T>(&mut self, f: impl FnOnce(&mut Scheduler, u64, &mut Vec<Action>) -> T) -> T {
        self.actions.clear();
        let result = f(&mut self.scheduler, self.now_ns, &mut self.actions);
        self.scheduler.check().unwrap();
        result
    }

    fn arrive(&mut self, query: u64, estimate_ns: u64) -> QueryId {
        self.arrive_with(query, Arrival { estimate_ns, ..Arrival::default() }).unwrap();
        QueryId(query)
    }

    fn arrive_with(&mut self, query: u64, arrival: Arrival) -> Result<Admission, Refusal> {
        self.event(|s, now, a| s.query_arrived(QueryId(query), &arrival, now, a))
    }

    fn spawn(&mut self, query: QueryId) -> TaskId {
        self.event(|s, now, a| s.task_spawned(query, now, a)).unwrap()
    }

    fn begin(&mut self, task: TaskId) -> Turn {
        self.event(|s, _, _| s.poll_began(task))
    }

    fn end(&mut self, task: TaskId, end: PollEnd, cpu_ns: u64) {
        self.event(|s, now, a| s.poll_ended(task, end, cpu_ns, now, a));
    }

    fn wake(&mut self, task: TaskId) {
        self.event(|s, now, a| s.task_woken(task, now, a));
    }

    fn drop_task(&mut self, task: TaskId) {
        self.event(|s, now, a| s.task_dropped(task, now, a));
    }

    /// One quantum of a task that holds a slot.
    fn quantum(&mut self, task: TaskId, end: PollEnd, cpu_ns: u64) {
        assert!(matches!(self.begin(task), Turn::Run { .. }));
        self.end(task, end, cpu_ns);
    }

    fn granted(&self, tasks: &[TaskId]) {
        let expected: Vec<Action> = tasks.iter().copied().map(Action::Grant).collect();
        assert_eq!(self.actions, expected);
    }
}

/// A query with a running task `a` and a queued one `b`, on one slot.
fn one_running() -> (Bench, QueryId, TaskId, TaskId) {
    let mut bench = Bench::new(1, PolicyKind::Fifo);
    let query = bench.arrive(1, 0);
    let a = bench.spawn(query);
    bench.granted(&[a]);
    let b = bench.spawn(query);
    bench.granted(&[]);
    assert_eq!(bench.begin(a), Turn::Run { age: Age::Fresh });
    (bench, query, a, b)
}

#[test]
fn a_spawned_task_is_granted_before_its_first_poll() {
    let (mut bench, _, a, b) = one_running();
    assert_eq!(bench.scheduler.slots_in_use(), 1);
    assert_eq!(bench.scheduler.queued(), 1);
    assert_eq!(bench.begin(b), Turn::Wait);
    bench.end(a, PollEnd::Pending, 1);
    bench.granted(&[b]);
}

#[test]
fn a_spawn_of_an_unknown_query_is_refused() {
    let mut bench = Bench::new(1, PolicyKind::Fifo);
    assert_eq!(bench.event(|s, now, a| s.task_spawned(QueryId(7), now, a)), None);
}

#[test]
fn a_pending_task_waits_for_its_wake() {
    let (mut bench, _, a, b) = one_running();
    bench.end(a, PollEnd::Pending, 1);
    bench.quantum(b, PollEnd::Pending, 1);
    bench.granted(&[]);
    assert_eq!(bench.scheduler.slots_in_use(), 0);
    assert_eq!(bench.begin(a), Turn::Wait, "a poll without a wake gets no slot");
    bench.wake(a);
    bench.granted(&[a]);
}

#[test]
fn a_wake_during_the_poll_queues_the_task_when_it_ends() {
    let (mut bench, _, a, b) = one_running();
    bench.wake(a);
    bench.wake(a);
    bench.granted(&[]);
    bench.end(a, PollEnd::Pending, 1);
    bench.granted(&[b]);
    bench.quantum(b, PollEnd::Pending, 1);
    bench.granted(&[a]);
}

#[test]
fn wakes_of_queued_and_granted_tasks_change_nothing() {
    let (mut bench, _, a, b) = one_running();
    bench.wake(b);
    assert_eq!(bench.scheduler.queued(), 1);
    bench.end(a, PollEnd::Pending, 1);
    bench.granted(&[b]);
    bench.wake(b);
    bench.granted(&[]);
    bench.quantum(b, PollEnd::Pending, 1);
    bench.granted(&[]);
}

#[test]
fn a_task_that_yields_goes_behind_its_siblings() {
    let (mut bench, _, a, b) = one_running();
    bench.end(a, PollEnd::Yielded, 1);
    bench.granted(&[b]);
    bench.quantum(b, PollEnd::Yielded, 1);
    bench.granted(&[a]);
}

#[test]
fn a_task_alone_is_granted_again_at_once() {
    let (mut bench, _, a, b) = one_running();
    bench.drop_task(b);
    bench.end(a, PollEnd::Yielded, 1);
    bench.granted(&[a]);
}

#[test]
fn drops_return_the_slot_or_leave_the_queue() {
    let (mut bench, query, a, b) = one_running();
    let c = bench.spawn(query);
    let d = bench.spawn(query);
    // From the middle of the queue.
    bench.drop_task(c);
    bench.granted(&[]);
    // While it runs, as after a panic.
    bench.drop_task(a);
    bench.granted(&[b]);
    // Granted and never polled.
    bench.drop_task(b);
    bench.granted(&[d]);
    // Idle.
    bench.quantum(d, PollEnd::Pending, 1);
    bench.drop_task(d);
    assert_eq!(bench.scheduler.slots_in_use(), 0);
    assert_eq!(bench.scheduler.query_state(query).unwrap().tasks, 0);
}

#[test]
fn an_id_of_the_past_touches_nothing() {
    let (mut bench, query, a, b) = one_running();
    bench.end(a, PollEnd::Done, 1);
    let heir = bench.spawn(query);
    assert_eq!(task_index(heir), task_index(a));
    assert_ne!(heir, a);
    bench.drop_task(a);
    bench.wake(a);
    bench.end(a, PollEnd::Done, 1);
    assert_eq!(bench.begin(a), Turn::Cancelled);
    bench.quantum(b, PollEnd::Done, 1);
    bench.granted(&[heir]);
}

#[test]
#[should_panic(expected = "polled twice at once")]
fn a_second_poll_during_the_first_is_a_mistake() {
    let (mut bench, _, a, _) = one_running();
    let _ = bench.begin(a);
}

#[test]
#[should_panic(expected = "never began")]
fn an_end_without_a_beginning_is_a_mistake() {
    let (mut bench, _, _, b) = one_running();
    bench.end(b, PollEnd::Pending, 1);
}

#[test]
#[should_panic(expected = "arrived twice")]
fn a_query_arrives_once() {
    let mut bench = Bench::new(1, PolicyKind::Fifo);
    bench.arrive(1, 0);
    bench.arrive(1, 0);
}

#[test]
fn a_cancelled_query_gets_no_slot_and_is_told() {
    let mut bench = Bench::new(2, PolicyKind::Fifo);
    let query = bench.arrive(1, 0);
    let running = bench.spawn(query);
    let granted = bench.spawn(query);
    let queued = bench.spawn(query);
    let other = bench.arrive(2, 0);
    let next = bench.spawn(other);
    assert_eq!(bench.begin(running), Turn::Run { age: Age::Fresh });
    bench.event(|s, now, a| s.query_cancelled(query, now, a));
    let cancelled = [granted, queued].map(Action::Cancel);
    assert_eq!(bench.actions, [cancelled[0], cancelled[1], Action::Grant(next)]);
    assert_eq!(bench.begin(granted), Turn::Cancelled);
    bench.wake(queued);
    assert_eq!(bench.begin(queued), Turn::Cancelled);
    // The running quantum ends, even if it would go on.
    bench.end(running, PollEnd::Yielded, 1);
    assert_eq!(bench.actions, [Action::Cancel(running)]);
    // Whatever it still spawns is cancelled from birth; a second cancel is nothing.
    let late = bench.spawn(query);
    assert_eq!(bench.actions, [Action::Cancel(late)]);
    bench.event(|s, now, a| s.query_cancelled(query, now, a));
    assert_eq!(bench.actions, []);
    for task in [running, granted, queued, late] {
        bench.drop_task(task);
    }
    assert!(bench.event(|s, now, a| s.query_ended(query, now, a)).unwrap().cancelled);
}

#[test]
fn a_query_that_ends_takes_its_tasks_along() {
    let (mut bench, query, a, b) = one_running();
    bench.now_ns = 50;
    let account = bench.event(|s, now, a| s.query_ended(query, now, a)).unwrap();
    assert_eq!((account.end_ns, account.tasks, account.waited_ns), (Some(50), 2, 50));
    assert_eq!(bench.actions, [Action::Cancel(b)]);
    assert_eq!(bench.scheduler.queries().count(), 0);
    assert_eq!(bench.event(|s, now, a| s.query_ended(query, now, a)), None);
    assert_eq!(bench.event(|s, now, a| s.task_spawned(query, now, a)), None);
    // Its last quantum still holds the slot, and the next query knows behind whom it waits.
    let other = bench.arrive(2, 0);
    let next = bench.spawn(other);
    bench.granted(&[]);
    let reason = bench.scheduler.wait_reason(other);
    assert_eq!(reason, Some(WaitReason::Slot { behind: query }));
    bench.end(a, PollEnd::Pending, 1);
    assert_eq!(bench.actions, [Action::Cancel(a), Action::Grant(next)]);
    bench.drop_task(a);
    bench.drop_task(b);
    assert_eq!(bench.scheduler.free_queries.len(), 1);
    // The id of a query that has ended may come again.
    bench.arrive(1, 0);
}

#[test]
fn slots_change_while_tasks_run() {
    let (mut bench, query, a, b) = one_running();
    let c = bench.spawn(query);
    bench.event(|s, now, a| s.set_slots(3, now, a));
    bench.granted(&[b, c]);
    bench.event(|s, now, a| s.set_slots(1, now, a));
    bench.end(a, PollEnd::Yielded, 1);
    bench.granted(&[]);
    bench.quantum(b, PollEnd::Pending, 1);
    bench.granted(&[]);
    bench.quantum(c, PollEnd::Pending, 1);
    bench.granted(&[a]);
}

#[test]
fn a_change_of_policy_carries_all_that_wait() {
    let mut bench = Bench::new(1, PolicyKind::Fifo);
    let sizes = [500, 300, 400];
    let queries: Vec<QueryId> =
        sizes.iter().enumerate().map(|(n, ns)| bench.arrive(n as u64, *ns)).collect();
    let running = bench.spawn(queries[0]);
    let tasks: Vec<TaskId> = queries.iter().map(|q| bench.spawn(*q)).collect();
    bench.event(|s, now, a| s.set_policy(PolicyKind::SmallFirst, now, a));
    assert_eq!(bench.scheduler.policy(), PolicyKind::SmallFirst);
    assert_eq!(bench.scheduler.queued(), 3);
    bench.quantum(running, PollEnd::Done, 10);
    bench.granted(&[tasks[1]]);
    bench.event(|s, now, a| s.set_policy(PolicyKind::Fifo, now, a));
    bench.quantum(tasks[1], PollEnd::Done, 10);
    bench.granted(&[tasks[0]]);
}

#[test]
fn round_robin_serves_each_query_once_per_turn() {
    let mut bench = Bench::new(1, PolicyKind::RoundRobin);
    let (a, b) = (bench.arrive(1, 0), bench.arrive(2, 0));
    let a = [bench.spawn(a), bench.spawn(a), bench.spawn(a)];
    let b = [bench.spawn(b)];
    let mut served = Vec::new();
    let mut next = a[0];
    for _ in 0..6 {
        served.push(next);
        bench.quantum(next, PollEnd::Yielded, 1);
        next = bench.actions[0].task().unwrap();
    }
    assert_eq!(served, [a[0], a[1], b[0], a[2], b[0], a[0]]);
}

#[test]
fn a_corrected_estimate_moves_a_query() {
    let mut bench = Bench::new(1, PolicyKind::SmallFirst);
    let (a, b) = (bench.arrive(1, 100), bench.arrive(2, 200));
    let running = bench.spawn(a);
    let (small, large) = (bench.spawn(a), bench.spawn(b));
    bench.event(|s, now, a| s.query_estimated(b, Estimate { cpu_ns: 50, measured: false }, now, a));
    bench.quantum(running, PollEnd::Pending, 1);
    bench.granted(&[large]);
    bench.quantum(large, PollEnd::Pending, 1);
    bench.granted(&[small]);
}

#[test]
fn the_account_of_a_query() {
    let (mut bench, query, a, b) = one_running();
    bench.now_ns = 100;
    bench.end(a, PollEnd::Yielded, 90);
    bench.now_ns = 130;
    bench.quantum(b, PollEnd::Pending, 25);
    let state = bench.scheduler.query_state(query).unwrap();
    assert_eq!((state.cpu_ns, state.quanta, state.longest_quantum_ns), (115, 2, 90));
    assert_eq!(state.waited_ns, 100 + 30);
    assert_eq!((state.tasks, state.queued, state.running), (2, 0, 1));
    assert_eq!((state.arrival_ns, state.first_grant_ns, state.end_ns), (0, Some(0), None));
}

#[test]
fn a_query_says_why_it_waits() {
    let (mut bench, query, a, _) = one_running();
    let other = bench.arrive(2, 0);
    assert_eq!(bench.scheduler.wait_reason(other), Some(WaitReason::Input), "no task yet");
    let task = bench.spawn(other);
    assert_eq!(bench.scheduler.wait_reason(query), None);
    assert_eq!(bench.scheduler.wait_reason(other), Some(WaitReason::Slot { behind: query }));
    assert_eq!(bench.scheduler.wait_reason(QueryId(9)), None);
    bench.drop_task(a);
    bench.event(|s, now, a| s.set_slots(2, now, a));
    bench.quantum(task, PollEnd::Pending, 1);
    assert_eq!(bench.scheduler.wait_reason(other), Some(WaitReason::Input));
}

const MS: u64 = 1_000_000;

/// On one slot: a long query holds it with its second quantum, and has a task queued.
fn one_long_running() -> (Bench, TaskId, TaskId) {
    let mut bench = Bench::new(1, PolicyKind::Fifo);
    let long = bench.arrive(1, 0);
    let a = bench.spawn(long);
    let b = bench.spawn(long);
    bench.quantum(a, PollEnd::Yielded, SHORT_CPU_NS);
    bench.granted(&[b]);
    assert_eq!(bench.begin(b), Turn::Run { age: Age::Long });
    (bench, b, a)
}

#[test]
fn the_reserve_is_for_short_queries_behind_long_ones() {
    let (mut bench, running, behind) = one_long_running();
    bench.event(|s, now, a| s.set_reserve(1, now, a));
    bench.granted(&[]);
    let short = bench.arrive(2, 0);
    let young = [(); 3].map(|()| {
        let task = bench.spawn(short);
        bench.granted(&[task]);
        task
    });
    let z = bench.spawn(short);
    bench.granted(&[]);
    let slots: Vec<_> = bench.scheduler.slots_held().map(|s| (s.slot, s.query.0, s.age)).collect();
    let fresh = [1, 2, 3].map(|slot| (slot, 2, Age::Fresh));
    assert_eq!(slots, [vec![(0, 1, Age::Long)], fresh.to_vec()].concat());
    // The long quantum ends: its slot is one of those that are used already.
    bench.end(running, PollEnd::Yielded, 1);
    bench.granted(&[]);
    for task in &young[..2] {
        bench.quantum(*task, PollEnd::Done, 1);
        bench.granted(&[]);
    }
    bench.quantum(young[2], PollEnd::Done, 1);
    bench.granted(&[behind, z]);
}

#[test]
fn the_reserve_is_for_fresh_queries_behind_short_ones_too() {
    let mut bench = Bench::new(1, PolicyKind::Fair);
    bench.event(|s, now, a| s.set_reserve(1, now, a));
    let short = bench.arrive(1, 0);
    let a = bench.spawn(short);
    let b = bench.spawn(short);
    bench.quantum(a, PollEnd::Yielded, FRESH_CPU_NS);
    bench.granted(&[b]);
    assert_eq!(bench.begin(b), Turn::Run { age: Age::Brief });
    let fresh = bench.arrive(2, 0);
    let x = bench.spawn(fresh);
    bench.granted(&[x]);
    assert_eq!(bench.begin(x), Turn::Run { age: Age::Fresh });
    // It is no longer fresh, and has to wait for the other's quantum.
    bench.end(x, PollEnd::Yielded, FRESH_CPU_NS);
    bench.granted(&[]);
    assert_eq!(bench.scheduler.next_deadline(), Some(OVERDUE_NS));
    // Others are, as many as all reserves have places.
    for (query, may) in [(3, true), (4, true), (5, true), (6, false)] {
        let query = bench.arrive(query, 0);
        let task = bench.spawn(query);
        bench.granted(&[task][..usize::from(may)]);
    }
}

#[test]
fn one_long_quantum_is_no_reason_to_wait_while_fewer_young_ones_run_than_there_are_slots() {
    let (mut bench, running, other) = one_long_running();
    bench.event(|s, now, a| s.set_slots(3, now, a));
    bench.granted(&[other]);
    bench.event(|s, now, a| s.set_reserve(3, now, a));
    let slots = |bench: &Bench| bench.scheduler.slots_in_use();
    assert_eq!(slots(&bench), 2, "long ones, and a free slot");
    let fresh = bench.arrive(2, 0);
    // One in the free slot; two in the reserve, for each of which a long one is in the way.
    let mut young = vec![];
    for may in [true, true, true, false] {
        young.push(bench.spawn(fresh));
        bench.granted(&young[young.len() - 1..][..usize::from(may)]);
    }
    bench.end(running, PollEnd::Done, 1);
    bench.granted(&[]);
    assert_eq!(slots(&bench), 4);
    bench.quantum(young[0], PollEnd::Done, 1);
    bench.granted(&[young[3]]);
    assert_eq!(slots(&bench), 4, "one long, three young");
}

#[test]
fn younger_queries_have_a_reserve_that_older_ones_cannot_fill() {
    let (mut bench, _, _) = one_long_running();
    bench.event(|s, now, a| s.set_reserve(1, now, a));
    // Each in the reserve for its age, and no second one.
    for (query, cpu_ns) in [(2, BRIEF_CPU_NS), (3, FRESH_CPU_NS), (4, 0)] {
        let query = bench.arrive(query, 0);
        let estimate = Estimate { cpu_ns, measured: true };
        bench.event(|s, now, a| s.query_estimated(query, estimate, now, a));
        let task = bench.spawn(query);
        bench.granted(&[task]);
        bench.spawn(query);
        bench.granted(&[]);
    }
    let ages: Vec<Age> = bench.scheduler.slots_held().map(|slot| slot.age).collect();
    assert_eq!(ages, [Age::Long, Age::Short, Age::Brief, Age::Fresh]);
}

#[test]
fn a_query_is_as_old_as_it_was_when_it_was_last_asked() {
    let (mut bench, _, _) = one_long_running();
    bench.event(|s, now, a| s.set_reserve(1, now, a));
    for (query, measured) in [(2, true), (3, false)] {
        let estimate = Estimate { cpu_ns: SHORT_CPU_NS, measured };
        let query = bench.arrive(query, 0);
        bench.event(|s, now, a| s.query_estimated(query, estimate, now, a));
        let task = bench.spawn(query);
        bench.granted(&[task][..usize::from(!measured)]);
    }
}

#[test]
fn a_first_quantum_that_does_not_end_opens_the_reserve_in_time() {
    let mut bench = Bench::new(1, PolicyKind::Fair);
    bench.event(|s, now, a| s.set_reserve(1, now, a));
    let unknown = bench.arrive(1, 0);
    let a = bench.spawn(unknown);
    assert_eq!(bench.begin(a), Turn::Run { age: Age::Fresh });
    bench.now_ns = 5;
    let short = bench.arrive(2, 0);
    let x = bench.spawn(short);
    bench.granted(&[]);
    assert_eq!(bench.scheduler.next_deadline(), Some(OVERDUE_NS));
    bench.now_ns = OVERDUE_NS;
    bench.event(|s, now, a| s.tick(now, a));
    bench.granted(&[x]);
    assert_eq!(bench.scheduler.next_deadline(), None);
}

#[test]
fn fair_serves_who_has_used_less_and_rest_earns_nothing() {
    let mut bench = Bench::new(1, PolicyKind::Fair);
    let (first, second) = (bench.arrive(1, 0), bench.arrive(2, 0));
    let a = bench.spawn(first);
    bench.quantum(a, PollEnd::Yielded, 10 * MS);
    bench.granted(&[a]);
    let b = bench.spawn(second);
    // Ten milliseconds without the second are not made up for.
    bench.quantum(a, PollEnd::Yielded, 2 * MS);
    bench.granted(&[b]);
    bench.quantum(b, PollEnd::Yielded, 3 * MS);
    bench.granted(&[a]);
}

/// As a quantum is 2 ms, 100 ms are fifty of them.
#[test]
fn fair_lets_long_queries_take_turns_by_the_slice_and_short_ones_go_between() {
    let mut bench = Bench::new(1, PolicyKind::Fair);
    let first = bench.arrive(1, 0);
    let a = bench.spawn(first);
    (0..150).for_each(|_| bench.quantum(a, PollEnd::Yielded, 2 * MS));
    let second = bench.arrive(2, 0);
    bench.spawn(second);
    // Until it has used as much as makes a query long, and its priority is down.
    let mut next = a;
    let mut run = |bench: &mut Bench, quanta: usize| -> Vec<TaskId> {
        let mut served = Vec::new();
        for _ in 0..quanta {
            bench.quantum(next, PollEnd::Yielded, 2 * MS);
            served.push(next);
            next = bench.actions.iter().find_map(|a| a.task()).unwrap();
        }
        served
    };
    run(&mut bench, 200);
    let served = run(&mut bench, 400);
    let turns: Vec<usize> = served.chunk_by(|a, b| a == b).map(<[_]>::len).collect();
    let whole = &turns[1..turns.len() - 1];
    assert!(whole.len() > 4 && whole.iter().all(|quanta| *quanta == 50), "{turns:?}");

    let short = bench.arrive(3, 0);
    let c = bench.spawn(short);
    let before = run(&mut bench, 4);
    assert!(before.contains(&c), "{before:?}");
}

/// New queries without end, each gone after a quantum: if they began where virtual time stood
/// when somebody was last served, they would always come before the one that waits.
#[test]
fn fair_bounds_the_wait_of_a_long_query_behind_ever_new_ones() {
    let mut bench = Bench::new(1, PolicyKind::Fair);
    let long = bench.arrive(1, 0);
    let a = bench.spawn(long);
    (0..500).for_each(|_| bench.quantum(a, PollEnd::Yielded, 2 * MS));
    let mut next = a;
    let (mut waited, mut longest_wait, mut turns) = (0, 0, 0);
    for n in 2..5_000 {
        let by_long = next == a;
        if !by_long || n == 2 {
            let new = bench.arrive(n, 0);
            bench.spawn(new);
        }
        waited = if by_long { 0 } else { waited + 2 * MS };
        longest_wait = longest_wait.max(waited);
        turns += u32::from(by_long);
        let end = if by_long { PollEnd::Yielded } else { PollEnd::Done };
        bench.quantum(next, end, 2 * MS);
        next = bench.actions.iter().find_map(|a| a.task()).unwrap();
        if !by_long {
            let over = bench.scheduler.queries().find(|q| q.tasks == 0).map(|q| q.query).unwrap();
            bench.event(|s, now, a| s.query_ended(over, now, a));
        }
    }
    // Priorities are 100 and 1, and there are two new ones at a time.
    let bound = 2 * 3 * (2 * MS * 101) * 201 / 100 + (3 + 3) * 2 * MS;
    assert!(longest_wait <= bound, "{} ms, bound {} ms", longest_wait / MS, bound / MS);
    assert!(turns > 20, "{turns} of 5,000");
}

#[test]
fn a_deadline_goes_first_for_half_of_the_time() {
    for policy in PolicyKind::ALL {
        let mut bench = Bench::new(1, policy);
        let others = [bench.arrive(1, 0), bench.arrive(2, 0)];
        let tasks = others.map(|q| bench.spawn(q));
        let arrival =
            Arrival { deadline_ns: Some(10_000 * MS), estimate_ns: 1 << 40, ..Arrival::default() };
        bench.arrive_with(3, arrival).unwrap();
        let urgent = bench.spawn(QueryId(3));
        let mut next = tasks[0];
        let (mut served, mut first) = (0, None);
        for n in 0..1_000 {
            bench.quantum(next, PollEnd::Yielded, 5 * MS);
            next = bench.actions[0].task().unwrap();
            served += u32::from(next == urgent);
            if next == urgent {
                first.get_or_insert(n);
            }
        }
        assert_eq!(first, Some(0), "{policy}");
        // Under fair and round robin it has its own turns as well.
        assert!((500..680).contains(&served), "{policy}: {served}");
        // Once it has passed there are only those.
        bench.now_ns = 10_000 * MS;
        bench.quantum(next, PollEnd::Yielded, 5 * MS);
        assert_eq!(bench.scheduler.deadlines.len(), 0, "{policy}");
    }
}

fn capped(max_running: u32, queue_max: u32) -> Class {
    let max_running = Some(max_running);
    Class { max_running, queue_max, ..Class::new("default") }
}

fn alter(bench: &mut Bench, class: Class) {
    bench.event(|s, now, a| s.alter_class(ClassId::DEFAULT, class, now, a)).unwrap();
}

#[test]
fn a_class_at_its_cap_makes_queries_wait_and_refuses_when_its_queue_is_full() {
    let mut bench = Bench::new(4, PolicyKind::Fair);
    alter(&mut bench, capped(1, 1));
    assert_eq!(bench.arrive_with(1, Arrival::default()), Ok(Admission::Admitted));
    assert_eq!(bench.arrive_with(2, Arrival::default()), Ok(Admission::Waits));
    let waits = bench.spawn(QueryId(2));
    bench.granted(&[]);
    assert_eq!(bench.begin(waits), Turn::Wait);
    let running = vec![QueryId(1)];
    let reason = WaitReason::ClassFull { class: "default".into(), running };
    assert_eq!(bench.scheduler.wait_reason(QueryId(2)), Some(reason.clone()));
    let refused = bench.arrive_with(3, Arrival::default()).unwrap_err();
    let class = "default".to_string();
    assert_eq!(refused, Refusal::QueueFull { class, queue_max: 1, waits_for: reason });
    let text = format!("{:#}", thalweg_base::Error::from(&refused));
    assert!(text.contains("all 1 places in the queue of workload \"default\" are taken"), "{text}");
    assert!(text.contains("it runs 1"), "{text}");
    let exempt = Arrival { exempt: true, ..Arrival::default() };
    assert_eq!(bench.arrive_with(4, exempt), Ok(Admission::Admitted));
    bench.now_ns = 7;
    bench.event(|s, now, a| s.query_ended(QueryId(1), now, a));
    assert_eq!(bench.actions, [Action::Admitted(QueryId(2)), Action::Grant(waits)]);
    let state = bench.scheduler.query_state(QueryId(2)).unwrap();
    assert_eq!((state.admitted_ns, state.phases.spent_ns(Phase::Admission, 7)), (Some(7), 7));
    // A cap that is raised lets in at once.
    bench.arrive_with(5, Arrival::default()).unwrap();
    alter(&mut bench, capped(2, 1));
    assert_eq!(bench.actions, [Action::Admitted(QueryId(5))]);
}

#[test]
fn classes_are_admitted_in_turn_by_weight_and_priorities_first_within_one() {
    let mut bench = Bench::new(1, PolicyKind::Fair);
    let heavy = Class { weight: 200, ..Class::new("dashboards") };
    let dashboards = bench.scheduler.create_class(heavy).unwrap();
    let limits = ServerLimits { max_running: Some(1), ..ServerLimits::default() };
    bench.event(|s, now, a| s.set_limits(limits, now, a));
    for n in 1..=9 {
        let class = (n % 2 == 0).then_some(dashboards);
        let priority = if n == 9 { Priority::High } else { Priority::Normal };
        bench.arrive_with(n, Arrival { class, priority, ..Arrival::default() }).unwrap();
    }
    let reason = bench.scheduler.wait_reason(QueryId(3)).unwrap();
    assert_eq!(reason, WaitReason::ServerFull { running: vec![QueryId(1)] });
    let mut order = vec![1];
    while order.len() < 9 {
        let last = QueryId(*order.last().unwrap());
        bench.event(|s, now, a| s.query_ended(last, now, a));
        let [Action::Admitted(next)] = bench.actions[..] else { panic!("{:?}", bench.actions) };
        order.push(next.0);
    }
    assert_eq!(order, [1, 2, 4, 9, 6, 8, 3, 5, 7]);
}

#[test]
fn timeouts_come_with_ticks() {
    let mut bench = Bench::new(1, PolicyKind::Fair);
    let class =
        Class { queue_timeout_ns: Some(50), statement_timeout_ns: Some(1_000), ..capped(1, 10) };
    alter(&mut bench, class.clone());
    assert_eq!(bench.scheduler.next_deadline(), None);
    let running = bench.arrive(1, 0);
    let task = bench.spawn(running);
    assert_eq!(bench.scheduler.next_deadline(), Some(1_000));
    bench.now_ns = 10;
    let waits = bench.arrive(2, 0);
    assert_eq!(bench.scheduler.next_deadline(), Some(60));
    bench.now_ns = 59;
    bench.event(|s, now, a| s.tick(now, a));
    assert_eq!(bench.actions, []);
    bench.now_ns = 60;
    bench.event(|s, now, a| s.tick(now, a));
    assert_eq!(bench.actions, [Action::Stop(waits)]);
    let stopped = bench.scheduler.query_state(waits).unwrap().stopped.clone();
    assert!(matches!(stopped, Some(Stop::Refused(Refusal::QueueTimeout { timeout_ns: 50, .. }))));
    // Changed while it runs.
    alter(&mut bench, Class { statement_timeout_ns: Some(200), ..class });
    assert_eq!(bench.scheduler.next_deadline(), Some(200));
    bench.now_ns = 200;
    bench.event(|s, now, a| s.tick(now, a));
    assert_eq!(bench.actions, [Action::Stop(running), Action::Cancel(task)]);
    assert_eq!(bench.scheduler.next_deadline(), None);
}

#[test]
fn promised_memory_is_waited_for_and_held_until_the_last_task_is_gone() {
    let mut bench = Bench::new(1, PolicyKind::Fair);
    let limits = ServerLimits { memory_bytes: Some(1_600), ..ServerLimits::default() };
    bench.event(|s, now, a| s.set_limits(limits, now, a));
    let with = |memory_bytes| Arrival { memory_bytes, ..Arrival::default() };
    assert_eq!(bench.arrive_with(1, with(1_000)), Ok(Admission::Admitted));
    let task = bench.spawn(QueryId(1));
    assert_eq!(bench.arrive_with(2, with(600)), Ok(Admission::Waits));
    let reason = bench.scheduler.wait_reason(QueryId(2)).unwrap();
    assert_eq!(reason.to_string(), "memory of the server, 1.6 KiB: query 1 holds 1000 B");
    assert!(matches!(bench.arrive_with(3, with(1_501)), Err(Refusal::TooLarge { .. })));
    bench.event(|s, now, a| s.memory_grow(QueryId(1), 1_400, now, a)).unwrap();
    bench.event(|s, now, a| s.query_ended(QueryId(1), now, a));
    assert_eq!(bench.scheduler.memory_held(), 1_400);
    bench.drop_task(task);
    assert_eq!(bench.actions, [Action::Admitted(QueryId(2))]);
    assert_eq!(bench.scheduler.memory_held(), 0);
    // A limit below what somebody waits for ends the wait.
    bench.arrive_with(4, with(1_000)).unwrap();
    let limits = ServerLimits { memory_bytes: Some(1_000), ..ServerLimits::default() };
    bench.event(|s, now, a| s.set_limits(limits, now, a));
    assert_eq!(bench.actions, [Action::Stop(QueryId(4))]);
    let stopped = bench.scheduler.query_state(QueryId(4)).unwrap().stopped.clone();
    assert!(matches!(
        stopped,
        Some(Stop::Refused(Refusal::TooLarge { limit: MemoryLimit::Server, .. }))
    ));
}

#[test]
fn a_dropped_class_leaves_its_queries_to_the_default_one() {
    let mut bench = Bench::new(1, PolicyKind::Fair);
    let class = Class { max_running: Some(1), weight: 300, ..Class::new("batch") };
    let batch = bench.scheduler.create_class(class.clone()).unwrap();
    assert!(bench.scheduler.create_class(class).is_err(), "a name is taken once");
    let of_batch = Arrival { class: Some(batch), ..Arrival::default() };
    bench.arrive_with(1, of_batch.clone()).unwrap();
    bench.arrive_with(2, of_batch.clone()).unwrap();
    bench.event(|s, now, a| s.memory_grow(QueryId(1), 9, now, a)).unwrap();
    assert_eq!(bench.scheduler.query_state(QueryId(1)).unwrap().share, 300);
    bench.event(|s, now, a| s.drop_class(batch, now, a)).unwrap();
    assert_eq!(bench.actions, [Action::Admitted(QueryId(2))]);
    let state = bench.scheduler.query_state(QueryId(1)).unwrap();
    assert_eq!((state.class, state.share), (ClassId::DEFAULT, 100));
    assert_eq!(bench.scheduler.memory_of_class(ClassId::DEFAULT), 9);
    assert_eq!(bench.arrive_with(3, of_batch), Ok(Admission::Admitted), "as if it named none");
    assert!(bench.event(|s, now, a| s.drop_class(batch, now, a)).is_err());
    assert!(bench.event(|s, now, a| s.drop_class(ClassId::DEFAULT, now, a)).is_err());
}

#[test]
fn a_query_spends_each_moment_on_one_thing() {
    let mut bench = Bench::new(1, PolicyKind::Fair);
    let limits = ServerLimits { memory_bytes: Some(1_600), ..ServerLimits::default() };
    bench.event(|s, now, a| s.set_limits(limits, now, a));
    let query = bench.arrive(1, 0);
    bench.now_ns = 10;
    let a = bench.spawn(query);
    bench.now_ns = 30;
    bench.quantum(a, PollEnd::Pending, 20);
    bench.now_ns = 60;
    let other = bench.arrive(2, 0);
    bench.event(|s, now, a| s.memory_grow(other, 1_000, now, a)).unwrap();
    assert!(bench.event(|s, now, a| s.memory_grow(query, 700, now, a)).is_err());
    assert!(matches!(bench.scheduler.wait_reason(query), Some(WaitReason::Memory { .. })));
    bench.now_ns = 100;
    bench.event(|s, now, a| s.memory_shrink(other, 500, now, a));
    assert_eq!(bench.actions, [Action::MemoryFreed(query)]);
    bench.event(|s, now, a| s.memory_grow(query, 700, now, a)).unwrap();
    let b = bench.spawn(other);
    bench.now_ns = 101;
    bench.wake(a);
    bench.now_ns = 150;
    bench.quantum(b, PollEnd::Done, 50);
    let phases = &bench.scheduler.query_state(query).unwrap().phases;
    let spent = Phase::ALL.map(|p| phases.spent_ns(p, 160));
    // Admission, slot, memory, input, running.
    assert_eq!(spent, [0, 49, 40, 10 + 30 + 1, 20 + 10]);
    assert_eq!((phases.current(), phases.since_ns()), (Phase::Running, 150));
}
