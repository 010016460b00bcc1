//! One test per transition and what it must not do; the simulator covers their combinations.

use super::*;
use crate::task_index;

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
        self.event(|s, now, _| s.query_arrived(QueryId(query), estimate_ns, now));
        QueryId(query)
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
        assert_eq!(self.begin(task), Turn::Run);
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
    assert_eq!(bench.begin(a), Turn::Run);
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
    assert_eq!(bench.begin(running), Turn::Run);
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
    bench.event(|s, _, _| s.set_policy(PolicyKind::SmallFirst));
    assert_eq!(bench.scheduler.policy(), PolicyKind::SmallFirst);
    assert_eq!(bench.scheduler.queued(), 3);
    bench.quantum(running, PollEnd::Done, 10);
    bench.granted(&[tasks[1]]);
    bench.event(|s, _, _| s.set_policy(PolicyKind::Fifo));
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
        next = bench.actions[0].task();
    }
    assert_eq!(served, [a[0], a[1], b[0], a[2], b[0], a[0]]);
}

#[test]
fn a_corrected_estimate_moves_a_query() {
    let mut bench = Bench::new(1, PolicyKind::SmallFirst);
    let (a, b) = (bench.arrive(1, 100), bench.arrive(2, 200));
    let running = bench.spawn(a);
    let (small, large) = (bench.spawn(a), bench.spawn(b));
    bench.event(|s, _, _| s.query_estimated(b, 50));
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
