//! The execution core: pipelines over Arrow arrays.
//!
//! It knows neither SQL nor files: the caller gives it a [plan](thalweg_ir) of pipelines and their
//! morsels, and runs them on its own threads, in bounded steps.
//!
//! * [`prepared`]: a plan that is ready to be run.
//! * [`literal`]: constants as arrays.
//! * [`expr`]: expressions over registers.
//! * [`batch`]: registers for some rows, gathered as late as possible.
//! * [`worker`]: runs the batches of one pipeline on one thread.
//! * [`table`]: the build side of a join.
//! * [`aggregate`]: groups of rows, and functions of them.
//! * [`select`]: the rows of a chunk that pass its filters.
//! * [`sort`]: rows in order.
//! * [`window`]: functions of the rows around each row.
//! * [`phases`]: what these have still to do when all rows are in.
//! * [`encoding`]: the forms of a column.

pub mod aggregate;
mod allocations;
pub mod batch;
pub mod encoding;
pub mod expr;
pub mod literal;
pub mod phases;
mod prefetch;
pub mod prepared;
pub mod select;
mod short;
pub mod sort;
pub mod table;
pub mod window;
pub mod worker;
