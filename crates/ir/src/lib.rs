//! What a query computes, as a value: pipelines, their expressions, and the sinks that they feed.
//!
//! ```text
//!   source → (filter | map | probe)* → sink
//! ```
//! A [`Plan`] can be compared, hashed, written down and sent: there is no array, no function and no file
//! in it. What it means, and what it costs, is the business of whoever runs it. Code that only exists in
//! the process that made a plan is in it as a number, an [`Opaque`] one, and the plan says how often.
//!
//! A plan that comes from elsewhere may be anything. [`Plan::verify`] finds out whether it is
//! well-formed; what reads one may take for granted what `verify` says.
//!
//! * [`plan`]: pipelines, their sources, steps and sinks.
//! * [`expr`]: expressions over the registers of a batch.
//! * [`op`]: the operations that expressions are made of.
//! * [`literal`]: the constants of expressions.
//! * [`aggregate`], [`sort`], [`table`], [`window`]: what the sinks make of their rows.
//! * [`verify`]: whether all of this fits together.
//! * [`written`]: how a plan is written down for another process.

pub mod aggregate;
pub mod expr;
pub mod literal;
pub mod op;
pub mod plan;
pub mod sort;
pub mod table;
#[cfg(test)]
mod tests;
pub mod verify;
pub mod window;
mod written;

pub use expr::{Arithmetic, Comparison, Expr, Named, Operation, Register};
pub use literal::Literal;
pub use op::Op;
pub use plan::{Join, Pipeline, Plan, Probe, Sink, Source, Step, TableRows};

use serde::{Deserialize, Serialize};

/// Code of the process that made the plan, which only a processor in this process can run: its number
/// among those that stand beside the plan, and how it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Opaque {
    pub number: usize,
    /// The same arguments always give the same value, row by row.
    pub pure: bool,
    pub shown: String,
}
