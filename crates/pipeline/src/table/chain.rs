//! Rows with equal keys, linked one to the next.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::shared::{settled_u32, zeroed_u32};

/// The links, which exist only if some key is there twice.
pub struct Chain {
    rows: usize,
    /// Of each row the next one + 1; 0: none.
    next: OnceLock<Box<[AtomicU32]>>,
}

impl Chain {
    pub fn new(rows: usize) -> Self {
        Self { rows, next: OnceLock::new() }
    }

    /// Puts `row` behind `head`, the one row with its key that the table leads to. Nobody follows
    /// the links before all tasks are done, so that they may be inconsistent for a moment.
    pub fn add(&self, head: u32, row: u32) {
        let next = self.next.get_or_init(|| zeroed_u32(self.rows));
        let after = next[head as usize].swap(row + 1, Ordering::Relaxed);
        next[row as usize].store(after, Ordering::Relaxed);
    }

    /// Empty if no key is there twice.
    pub fn settle(self) -> Box<[u32]> {
        self.next.into_inner().map(settled_u32).unwrap_or_default()
    }
}
