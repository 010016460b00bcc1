//! What every part of the house shares: errors sorted by who must act, typed ids,
//! the named limits, and the injected clock and random source that keep the cores pure.
//!
//! Nothing here may depend on Arrow, tokio or any other heavy crate.
//!
//! ```
//! use thalweg_base::{Error, Kind};
//!
//! let e = Error::user("table \"orders\" does not exist").hint("SHOW TABLES lists what there is");
//! assert_eq!(e.kind(), Kind::User);
//! assert_eq!(e.to_string(), "table \"orders\" does not exist");
//! ```

pub mod calendar;
mod clock;
mod error;
pub mod fuzzing;
mod ids;
pub mod limits;
mod memory;
mod notice;
mod prng;
pub mod quiet;
pub mod span;
pub mod text;

pub use clock::{Clock, ManualClock, SystemClock};
pub use error::{Error, Kind, Place, Result, Subject};
pub use ids::{ExtentId, QueryId, RoleId, SnapshotId, TableId, TaskId};
pub use memory::machine_memory_bytes;
pub use notice::{Notice, Severity};
pub use prng::Prng;
