//! Which query may start, which task of which query runs now, and who may have how much memory:
//! the state machine that lets many queries share a few CPU slots under a policy.
//!
//! A *slot* is the right to use one core. A *task* is one spawned future of a query, and a
//! *quantum* is one poll of it, which it makes only while it holds a slot. A [`PolicyKind`]
//! decides between queries; the tasks of one query go first in, first out. A *class* of queries
//! (a workload) has a weight and limits of its own.
//!
//! There is no clock, thread, waker or lock in here, only numbers: a driver (the engine's
//! runtime; here, the example) reports what happens through the methods of [`Scheduler`], with
//! the time, and performs the [`Action`]s that come back, *after* it has left its lock. So the
//! same code runs in a simulator (feature `simulation`), and any schedule can be had again from
//! its seed.
//!
//! ```
//! use thalweg_base::QueryId;
//! use thalweg_scheduler::{Action, Age, Arrival, PollEnd, PolicyKind, Scheduler, Turn, WaitReason};
//!
//! let (report, lookup) = (QueryId(1), QueryId(2));
//! let mut actions = Vec::new();
//! let mut scheduler = Scheduler::new(1, PolicyKind::Fair);
//!
//! // A report of two tasks arrives; the first gets the only slot before it is even polled.
//! scheduler.query_arrived(report, &Arrival::default(), 0, &mut actions).unwrap();
//! let scan = scheduler.task_spawned(report, 0, &mut actions).unwrap();
//! let sort = scheduler.task_spawned(report, 0, &mut actions).unwrap();
//! assert_eq!(actions, [Action::Grant(scan)]);
//! assert_eq!(scheduler.poll_began(scan), Turn::Run { age: Age::Fresh });
//! assert_eq!(scheduler.poll_began(sort), Turn::Wait);
//!
//! // A lookup comes while the slot is taken, and can say what it waits for.
//! scheduler.query_arrived(lookup, &Arrival::default(), 1_000, &mut actions).unwrap();
//! let find = scheduler.task_spawned(lookup, 1_000, &mut actions).unwrap();
//! assert_eq!(scheduler.wait_reason(lookup), Some(WaitReason::Slot { behind: report }));
//!
//! // The quantum ends, and the query that has used less goes first although it came last.
//! actions.clear();
//! scheduler.poll_ended(scan, PollEnd::Yielded, 2_000_000, 2_001_000, &mut actions);
//! assert_eq!(actions, [Action::Grant(find)]);
//! assert_eq!(scheduler.query_state(lookup).unwrap().waited_ns, 2_000_000);
//! ```
//!
//! # What a driver does
//! | when | it calls | and then |
//! |---|---|---|
//! | a query comes | [`query_arrived`](Scheduler::query_arrived) | spawns its tasks, whether or not it has to wait |
//! | a future of a query is spawned | [`task_spawned`](Scheduler::task_spawned) | wraps it, with the id |
//! | the wrapper is polled | stores the waker, *then* [`poll_began`](Scheduler::poll_began) | `Run`: polls the inner future with the task's own waker; `Wait`: returns `Pending`; `Cancelled`: drops the inner future |
//! | the inner poll returned | [`poll_ended`](Scheduler::poll_ended) with the thread's CPU time | performs the actions |
//! | the task's own waker is called | [`task_woken`](Scheduler::task_woken) | performs the actions |
//! | the wrapper is dropped, for whatever reason | [`task_dropped`](Scheduler::task_dropped) | performs the actions |
//! | a query is planned | [`memory_promise`](Scheduler::memory_promise) | `false`: begins when it was told to ask again, and the promise is made |
//! | an operator wants memory, or has freed some | [`memory_grow`](Scheduler::memory_grow), [`memory_shrink`](Scheduler::memory_shrink) | performs the actions |
//! | it is [`next_deadline`](Scheduler::next_deadline) | [`tick`](Scheduler::tick) | performs the actions |
//! | an action names a task | – | calls the waker stored for it, if there is one yet |
//!
//! It is the *waker* that queues a task, not the poll: otherwise each message from a child to
//! its parent would cost a foreign quantum. A wake during a poll is kept until that poll ends.
//! A wrapper whose inner poll panics needs no care: its `Drop` returns the slot.
//!
//! # What holds between any two events
//! - A free slot and a queued task of an admitted query never exist together.
//! - A slot is held by exactly one task, from its grant to the end of its poll or its drop.
//! - A task that is woken is polled again, unless it is dropped or its query cancelled.
//! - No more than slots + 3 × reserve tasks hold a slot, none of them beyond slots + 2 × reserve but of
//!   fresh queries, none beyond slots + reserve but of fresh or brief ones, and none of a long query
//!   beyond the slots.
//! - No query waits to be admitted that could be.
//! - What is held of memory is what queries have reserved, and no growth exceeds a limit.
//! - The id of a past task changes nothing.
//!
//! # Modules, in reading order
//! - `query`: what a query brings, and what is kept about it
//! - `class`: the settings of a class, and of the server
//! - `wait`: what a query does with its time, and why it waits or is refused
//! - `task`: the states of a task, and the slab that keeps ids of the past harmless
//! - `state`: the events and what each one does; `state::admission` says which query may start,
//!   `state::grant` who gets a slot, `state::check` is the list of the invariants
//! - [`policy`]: who is next; one file each, and the self-tuning of `fair`
//! - `deadline`: who goes before the policy's turn, and how often
//! - `memory`: the ledger of who holds how much, and what everyone is guaranteed
//! - `order`, `slots`, `histogram`: a heap of waiting queries, a table of slots, counts of times
//! - [`replay`]: what each policy would have done to a recorded workload
//! - `simulation`: random schedules against a naive model
mod action;
mod class;
mod deadline;
mod histogram;
mod memory;
mod memory_limit;
mod order;
pub mod policy;
mod query;
pub mod replay;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
mod slots;
mod state;
mod task;
mod wait;

pub use action::Action;
pub use class::{Admission, Class, ClassId, ServerLimits, WEIGHT_MAX, WEIGHT_NORMAL};
pub use histogram::Histogram;
pub use memory::{Advice, MemoryRefusal};
pub use memory_limit::{Holder, MemoryLimit};
pub use policy::PolicyKind;
pub use query::{
    Age, Arrival, BRIEF_CPU_NS, Estimate, FRESH_CPU_NS, OVERDUE_NS, Priority, QueryState,
    SHORT_CPU_NS,
};
pub use slots::SlotView;
#[cfg(any(test, feature = "simulation"))]
pub use state::Fault;
pub use state::{PollEnd, Scheduler, Turn};
pub use task::task_index;
pub use wait::{Phase, Phases, Refusal, Stop, WaitReason};
