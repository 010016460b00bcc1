//! Identical statements in flight are computed once (`deliver.rs`): those whose [`Key`] is the same, by
//! [`Flights`].

mod kept;
mod key;
#[cfg(test)]
mod tests;

pub use kept::Kept;
pub use key::{Key, is_decided, same_settings};
pub use thalweg_exec::{Flights, Landed, Leader, Part};
