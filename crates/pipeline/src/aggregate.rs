//! The aggregate sink: GROUP BY and aggregate functions.
//!
//! Every worker feeds its rows to a [`Partial`]; [`Merging`] makes the groups of all of them out of
//! that, in phases of tasks. Nothing here starts a thread or waits.
//!
//! ```text
//!   keys ──► Grouper ──► group ids ─┐                      ┌─ partition 0 ─► Groups
//!                                   ├─► States ──► Chunk ──┼─ partition 1 ─► Groups
//!   arguments, filters ─────────────┘                      └─ …
//!            (a Partial, of one worker)                      (parts of Merging)
//! ```
//!
//! A *grouper* maps rows of keys to dense ids in order of appearance, and *states* are vectors
//! indexed by these ids. When a worker's groups outgrow the caches it seals them as a *chunk* and
//! starts afresh; if hardly any row found its group there, the next chunks take every row as a
//! group of its own and leave the work to the merge. Chunks are partitioned by a hash of the keys'
//! contents only when all rows are in, or when memory is refused and they leave it for files
//! ([`spill`]). Rows that come in the order of their keys are grouped, and merged, without any of
//! that ([`ordered`]).
//!
//! What functions have in common they share: the plan of a [`Spec`] has *slots*, and `AVG(x)` reads
//! the slots of `SUM(x)` and of the counts.

mod compared;
mod direct;
mod emit;
pub mod framed;
mod grouper;
mod hash;
mod kernels;
mod keys;
#[cfg(test)]
mod measure;
mod merging;
mod ordered;
mod partial;
mod plan;
pub mod spill;
mod states;
mod strings;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::datatypes::DataType;
use thalweg_base::Result;

pub use merging::{AllGroups, Groups, Merging};
pub use partial::Partial;

/// Groups that a worker holds in one table: beyond that it seals them. Their keys, slots and a
/// state or two fit a core's own cache.
pub const CHUNK_GROUPS_MAX: usize = 128 << 10;

/// Slots of a direct table: 1 MiB.
pub const DIRECT_SLOTS_LOG2_MAX: u32 = 18;

/// Groups up to which states have several copies in turn (see `kernels::lanes`): those of four
/// functions fit the first-level cache.
pub const FEW_GROUPS_MAX: usize = 128;

/// Groups in all partials together that one task merges.
pub const MERGE_AT_ONCE_GROUPS_MAX: usize = 16 << 10;

/// What a partition has of groups at most, while there are partitions to be had: less than a
/// millisecond of work, or two where keys are texts.
pub const PARTITION_GROUPS_MAX: usize = 4 << 10;
pub const PARTITIONS_LOG2_MAX: u32 = 10;

/// Groups in all partials together, up to which they stay in the processor's caches and are gathered
/// when they are merged. Of more, each would be a line of memory of which one word is wanted.
pub const GATHERED_GROUPS_MAX: usize = 256 << 10;

/// Rows of a batch of results.
pub const OUTPUT_ROWS_MAX: usize = 64 << 10;

/// A worker whose sealed table made a group of more than 7 in 10 rows stops looking rows up.
const NEW_GROUPS_MAX: (usize, usize) = (7, 10);

/// Chunks filled without a look before a table is tried again: the data may have changed.
const CHUNKS_UNTIL_TRIAL: u32 = 16;

/// A worker of several, whose groups will be looked up once more when all are merged, gives its
/// first table up early, for a chunk, if of its first rows more than 31 in 32 made a group. That
/// is what rows of 256 Ki groups or more do that come in no order.
const TRIAL_GROUPS: usize = 16 << 10;
const TRIAL_NEW_GROUPS: (usize, usize) = (31, 32);

/// From so many groups in one table on texts that nearly each has for itself are compared (see
/// [`compared`]).
const COMPARE_GROUPS: usize = 4 << 10;

/// What is small enough to be reached by tests and large enough to be of use.
#[derive(Clone, Copy, Debug)]
struct Limits {
    chunk_groups: usize,
    compare_groups: usize,
    trial_groups: usize,
    merge_at_once: usize,
    partition_groups: usize,
    gathered_groups: usize,
}

const LIMITS: Limits = Limits {
    chunk_groups: CHUNK_GROUPS_MAX,
    compare_groups: COMPARE_GROUPS,
    trial_groups: TRIAL_GROUPS,
    merge_at_once: MERGE_AT_ONCE_GROUPS_MAX,
    partition_groups: PARTITION_GROUPS_MAX,
    gathered_groups: GATHERED_GROUPS_MAX,
};

/// What the next chunk is given room for, when one of so many groups was sealed.
fn with_headroom(sealed: usize) -> usize {
    sealed + sealed / 8
}

/// A vector that goes on as an array's memory: itself, or a copy if much of it would be held for
/// nothing.
fn fitted<T: Clone>(values: Vec<T>) -> Vec<T> {
    if values.len() >= values.capacity() / 4 * 3 { values } else { values.as_slice().to_vec() }
}

pub type Spec = thalweg_ir::aggregate::Spec<Code>;
pub type Function = thalweg_ir::aggregate::Function<Code>;
pub type Kind = thalweg_ir::aggregate::Kind<Code>;

/// A function of the caller's.
#[derive(Clone, Debug)]
pub struct Code(pub Arc<dyn External>);

/// A function that has no code here.
pub trait External: Send + Sync + Debug {
    fn accumulator(&self) -> Result<Box<dyn Accumulator>>;
    fn state_types(&self) -> Vec<DataType>;
}

/// The state of one function for all groups; group ids are dense, `0..total`, and `total` never
/// shrinks. Arguments come in their plain forms.
pub trait Accumulator: Send {
    fn update(
        &mut self,
        args: &[ArrayRef],
        filter: Option<&BooleanArray>,
        groups: &[u32],
        total: usize,
    ) -> Result<()>;
    /// Adds states, one a row, to those of the groups given.
    fn merge(&mut self, states: &[ArrayRef], groups: &[u32], total: usize) -> Result<()>;
    /// The states of all groups; the accumulator is empty afterwards.
    fn state(&mut self) -> Result<Vec<ArrayRef>>;
    /// The results of all groups.
    fn evaluate(&mut self) -> Result<ArrayRef>;
    fn memory_bytes(&self) -> usize;
}
