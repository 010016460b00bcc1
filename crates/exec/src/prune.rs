//! Which chunks of a table a query can do without, from what is known of them.
//!
//! * [`compile`](compile()): a filter in DataFusion's terms becomes a [`Predicate`].
//! * [`Predicate`] (`predicate.rs`): what it can come to in each of a list of containers, from
//!   bounds, counts and digests. `outcomes.rs`: the logic of "can be true, false, NULL".
//!   `domain.rs`: predicates that are evaluated on every value there can be.
//! * [`Skipper`] (`skip.rs`): extents first, then chunks; again whenever a dynamic filter changes.
//!
//! Nothing here reads rows, and only digests, which are asked for, are read at all.

mod compile;
mod domain;
mod outcomes;
mod predicate;
mod skip;

use arrow::array::Array;
use datafusion::common::{Result, ScalarValue};

pub use domain::{countable, recounted};
pub use skip::{Cause, Filter, Next, Pruned, ReadOrder, Skipper};

/// The single value of a one-row array.
pub fn scalar(array: &dyn Array) -> Result<ScalarValue> {
    ScalarValue::try_from_array(array, 0)
}

#[cfg(test)]
mod tests;
