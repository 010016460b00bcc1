//! The slab of tasks: dense, reused, and safe against ids of the past.

use thalweg_base::TaskId;

/// No task, no query, no place: the end of an intrusive list.
pub(crate) const NONE: u32 = u32::MAX;

/// ```text
///   spawned ─→ Queued ──grant──→ Granted ──poll begins──→ Running ──woken──→ Notified
///                ↑ ↑                                        │                  │
///                │ └────────────── poll ends, yielded ──────┤                  │
///                │ └────────────── poll ends ───────────────┼──────────────────┘
///                └──woken── Idle ←── poll ends, pending ────┘
/// ```
///
/// `Granted`, `Running` and `Notified` hold a slot. From every state a drop leads to `Free` and
/// a cancel to `Cancelled` (after the quantum, if one is running).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    Idle,
    Queued,
    Granted,
    Running,
    Notified,
    Cancelled,
}

impl State {
    pub fn holds_slot(self) -> bool {
        matches!(self, State::Granted | State::Running | State::Notified)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// Of the current or, if free, the next tenant.
    generation: u32,
    pub state: State,
    pub query: u32,
    /// Neighbours in the query's queue while `Queued`; `next` links the free list while `Free`.
    pub prev: u32,
    pub next: u32,
    pub queued_since_ns: u64,
    /// Where it is held, from the grant to the end of the quantum.
    pub slot: u32,
    /// The grant was made for a deadline's sake, before the policy's turn.
    pub out_of_turn: bool,
}

#[derive(Default)]
pub(crate) struct Tasks {
    slab: Vec<Task>,
    /// Head of the free list, plus one: 0 is an empty list, so that `Default` holds.
    free: u32,
}

/// The task's place in the scheduler's slab: dense and reused, so that a driver can keep what
/// belongs to a task (its waker) in a plain `Vec` beside it.
pub fn task_index(task: TaskId) -> usize {
    task.0 as u32 as usize
}

impl Tasks {
    pub fn insert(&mut self, query: u32) -> u32 {
        let index = match self.free.checked_sub(1) {
            Some(index) => {
                self.free = self.slab[index as usize].next;
                index
            }
            None => {
                let index = u32::try_from(self.slab.len()).unwrap_or(NONE);
                assert!(index != NONE, "more than four thousand million tasks at once");
                self.slab.push(Task {
                    generation: 0,
                    state: State::Free,
                    query: NONE,
                    prev: NONE,
                    next: NONE,
                    queued_since_ns: 0,
                    slot: NONE,
                    out_of_turn: false,
                });
                index
            }
        };
        let task = &mut self.slab[index as usize];
        assert_eq!(task.state, State::Free, "a task in use was on the free list");
        *task = Task {
            generation: task.generation,
            state: State::Idle,
            query,
            prev: NONE,
            next: NONE,
            queued_since_ns: 0,
            slot: NONE,
            out_of_turn: false,
        };
        index
    }

    pub fn remove(&mut self, index: u32) {
        let task = &mut self.slab[index as usize];
        assert!(task.state != State::Free, "a task was freed twice");
        task.state = State::Free;
        // After 2^32 tenants of one entry an id of the first would be taken for the last.
        task.generation = task.generation.wrapping_add(1);
        task.next = self.free;
        self.free = index + 1;
    }

    pub fn id(&self, index: u32) -> TaskId {
        TaskId(u64::from(self.slab[index as usize].generation) << 32 | u64::from(index))
    }

    /// The entry of a living task; `None` if the id is of the past.
    pub fn find(&self, task: TaskId) -> Option<u32> {
        let index = task.0 as u32;
        let entry = self.slab.get(index as usize)?;
        let current = entry.generation == (task.0 >> 32) as u32 && entry.state != State::Free;
        current.then_some(index)
    }

    /// The living task at the place of an id, whoever it is: what a missing generation would do.
    pub fn find_any(&self, task: TaskId) -> Option<u32> {
        let entry = self.slab.get(task_index(task))?;
        (entry.state != State::Free).then_some(task.0 as u32)
    }

    pub fn len(&self) -> u32 {
        self.slab.len() as u32
    }

    /// The free list holds every free entry once.
    #[cfg(any(test, feature = "simulation"))]
    pub fn check(&self) -> Result<(), String> {
        let free = self.slab.iter().filter(|t| t.state == State::Free).count();
        let mut listed = 0;
        let mut at = self.free;
        while let Some(index) = at.checked_sub(1) {
            listed += 1;
            if self[index].state != State::Free || listed > free {
                return Err(format!("the free list runs through {:?}", self[index]));
            }
            at = self[index].next;
        }
        if listed != free {
            return Err(format!("{free} task entries are free and {listed} are on the free list"));
        }
        Ok(())
    }
}

impl std::ops::Index<u32> for Tasks {
    type Output = Task;

    fn index(&self, index: u32) -> &Task {
        &self.slab[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Tasks {
    fn index_mut(&mut self, index: u32) -> &mut Task {
        &mut self.slab[index as usize]
    }
}
