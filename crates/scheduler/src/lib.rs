//! Which task of which query runs now: the state machine that lets many queries share few CPU
//! slots under a policy.
//!
//! A *slot* is the right to use one core. A *task* is one spawned future of a query, and a
//! *quantum* is one poll of it, which it makes only while it holds a slot. A [`PolicyKind`]
//! decides between queries; the tasks of one query go first in, first out.
//!
//! There is no clock, thread, waker or lock in here, only numbers: a driver (the engine's
//! runtime; here, the example) reports what happens through the methods of [`Scheduler`], with
//! the time, and performs the [`Action`]s that come back, *after* it has left its lock. So the
//! same code runs in a simulator (feature `simulation`), and any schedule can be had again from
//! its seed.
//!
//! ```
//! use thalweg_base::QueryId;
//! use thalweg_scheduler::{Action, PollEnd, PolicyKind, Scheduler, Turn, WaitReason};
//!
//! let (report, lookup) = (QueryId(1), QueryId(2));
//! let mut actions = Vec::new();
//! let mut scheduler = Scheduler::new(1, PolicyKind::SmallFirst);
//!
//! // A report of two tasks arrives; the first gets the only slot before it is even polled.
//! scheduler.query_arrived(report, 60_000_000_000, 0);
//! let scan = scheduler.task_spawned(report, 0, &mut actions).unwrap();
//! let sort = scheduler.task_spawned(report, 0, &mut actions).unwrap();
//! assert_eq!(actions, [Action::Grant(scan)]);
//! assert_eq!(scheduler.poll_began(scan), Turn::Run);
//! assert_eq!(scheduler.poll_began(sort), Turn::Wait);
//!
//! // A lookup comes while the slot is taken, and can say what it waits for.
//! scheduler.query_arrived(lookup, 5_000_000, 1_000);
//! let find = scheduler.task_spawned(lookup, 1_000, &mut actions).unwrap();
//! assert_eq!(scheduler.wait_reason(lookup), Some(WaitReason::Slot { behind: report }));
//!
//! // The quantum ends, and the smaller query goes first although it came last.
//! actions.clear();
//! scheduler.poll_ended(scan, PollEnd::Yielded, 2_000_000, 2_001_000, &mut actions);
//! assert_eq!(actions, [Action::Grant(find)]);
//! assert_eq!(scheduler.query_state(lookup).unwrap().waited_ns, 2_000_000);
//! ```
//!
//! # What a driver does
//! | when | it calls | and then |
//! |---|---|---|
//! | a future of a query is spawned | [`task_spawned`](Scheduler::task_spawned) | wraps it, with the id |
//! | the wrapper is polled | stores the waker, *then* [`poll_began`](Scheduler::poll_began) | `Run`: polls the inner future with the task's own waker; `Wait`: returns `Pending`; `Cancelled`: drops the inner future |
//! | the inner poll returned | [`poll_ended`](Scheduler::poll_ended) with the thread's CPU time | performs the actions |
//! | the task's own waker is called | [`task_woken`](Scheduler::task_woken) | performs the actions |
//! | the wrapper is dropped, for whatever reason | [`task_dropped`](Scheduler::task_dropped) | performs the actions |
//! | an action names a task | – | calls the waker stored for it, if there is one yet |
//!
//! It is the *waker* that queues a task, not the poll: otherwise each message from a child to
//! its parent would cost a foreign quantum. A wake during a poll is kept until that poll ends.
//! A wrapper whose inner poll panics needs no care: its `Drop` returns the slot.
//!
//! # What holds between any two events
//! - A free slot and a queued task never exist together.
//! - A slot is held by exactly one task, from its grant to the end of its poll or its drop.
//! - A task that is woken is polled again, unless it is dropped or its query cancelled.
//! - The id of a past task changes nothing.
//!
//! # Modules, in reading order
//! - `query`: what is kept about a query, and why it waits
//! - `task`: the states of a task, and the slab that keeps ids of the past harmless
//! - `state`: the events and what each one does; `state::check` is the list of its invariants
//! - [`policy`]: who is next; one file each
//! - `order`: the heap of waiting queries
//! - `simulation`: random schedules against a naive model, and replay of a given workload
mod order;
pub mod policy;
mod query;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
mod state;
mod task;

pub use policy::PolicyKind;
pub use query::{QueryState, WaitReason};
#[cfg(any(test, feature = "simulation"))]
pub use state::Fault;
pub use state::{Action, PollEnd, Scheduler, Turn};
pub use task::task_index;
