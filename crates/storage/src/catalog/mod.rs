//! The catalog: which tables there are, and which extents each has, as a log of immutable objects.
//!
//! ```text
//! log/00000000000000000012.commit      what commit 12 changed
//! log/00000000000000000010.checkpoint  everything as of commit 10
//! ```
//! A commit is one object made by *put if absent*: whoever makes object *n* has committed *n*, and
//! everybody else builds on it. That needs nothing but a store where this one operation is atomic,
//! so a local directory, a shared folder and an object store are served by the same code, and any
//! number of processes may read while one writes. To open is to read the newest checkpoint and the
//! commits after it; to read an old snapshot, the newest checkpoint before it.
//!
//! *Invariants*:
//! * Every extent that a commit names was durable before the commit was made.
//! * Commits are numbered without gaps from the oldest checkpoint that is kept.
//! * Objects are never changed. They are removed oldest first, and never the last checkpoint.

mod log;
mod record;
mod replay;

pub(crate) use log::{FOLDER as LOG, Log, Opened, checkpoint_name};
pub(crate) use record::{
    Change, Checkpoint, Commit, ExtentRecord, FrameKind, damaged, frame, other_format, unframe,
};
pub use record::{CommitInfo, LoadedFile, Summary};
pub(crate) use replay::{History, changes, gone};
