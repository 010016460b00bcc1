//! Identical statements in flight are computed once (`deliver.rs`): those whose [`Key`] is the same, by
//! [`Flights`].

mod kept;
mod key;
#[cfg(test)]
mod tests;

pub use kept::Kept;
pub use key::{Key, is_decided};
pub use thalweg_exec::{Landed, Part};

use std::sync::Arc;

/// The statements that compute for others now.
pub type Flights = thalweg_exec::Flights<Key, Arc<Kept>>;
/// One of them, which computes.
pub type Leader = thalweg_exec::Leader<Key, Arc<Kept>>;
