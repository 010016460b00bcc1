//! Which task holds which slot since when.

use crate::query::Age;
use thalweg_base::{QueryId, TaskId};

/// A slot in use, as `system.slots` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotView {
    pub slot: usize,
    pub task: TaskId,
    pub query: QueryId,
    /// Of the grant; the poll begins when the runtime gets to it.
    pub since_ns: u64,
    /// Of the query, when it was granted.
    pub age: Age,
}

#[derive(Clone, Copy)]
pub(crate) struct Held {
    /// Index of the task.
    pub task: u32,
    pub since_ns: u64,
    pub age: Age,
}

/// Slots have numbers so that a view of them is steady: the lowest free one is not looked for,
/// the last one returned is taken first.
#[derive(Default)]
pub(crate) struct Slots {
    table: Vec<Option<Held>>,
    free: Vec<u32>,
}

impl Slots {
    pub fn in_use(&self) -> usize {
        self.table.len() - self.free.len()
    }

    pub fn take(&mut self, held: Held) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.table[slot as usize] = Some(held);
                slot
            }
            None => {
                self.table.push(Some(held));
                // As many as there can be, so that returning a slot never allocates.
                self.free.reserve(self.table.len());
                (self.table.len() - 1) as u32
            }
        }
    }

    pub fn give_back(&mut self, slot: u32) {
        let held = self.table[slot as usize].take();
        assert!(held.is_some(), "a slot was returned that nobody held");
        self.free.push(slot);
    }

    /// Of the query that holds it, when it was granted.
    pub fn age(&self, slot: u32) -> Age {
        self.table[slot as usize].expect("a task that runs holds its slot").age
    }

    pub fn held(&self) -> impl Iterator<Item = (usize, Held)> {
        self.table.iter().enumerate().filter_map(|(slot, held)| Some((slot, (*held)?)))
    }
}
