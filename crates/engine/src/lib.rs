//! The engine: SQL over stored tables, every task of every query under one scheduler.
//!
//! ```
//! use thalweg_engine::{Config, Engine};
//!
//! let engine = Engine::open(":memory:", Config::default())?;
//! let session = engine.session();
//! let batches = engine.block_on(async {
//!     session.query("CREATE TABLE t AS SELECT 6 * 7 AS answer").await?;
//!     session.query("SELECT answer FROM t").await?.collect().await
//! })?;
//! assert_eq!(batches[0].num_rows(), 1);
//! # Ok::<(), thalweg_base::Error>(())
//! ```
//!
//! In the order a statement meets them:
//!
//! * [`Engine`] (`engine.rs`), [`Config`] (`config.rs`): one open database, its threads and memory.
//! * [`Session`] (`session.rs`), `script.rs`, [`Answer`] (`answer.rs`): text in, rows out.
//! * `statement.rs`: parse, plan, run. `names.rs`: columns without a name get one.
//!   `depth.rs`: refuses what is nested too deeply to plan. `ddl.rs`: what changes the catalog. [`load`](LoadRequest): files in.
//! * `catalog.rs`, `table.rs`, `files.rs`: what DataFusion sees of the database and of plain files.
//! * [`rules`]: our optimizer rules. `prune.rs`: which chunks a predicate needs. `estimate.rs`: how much work a plan is.
//! * `exec/`: our operators. `write.rs`: rows into extents.
//! * [`runtime`]: the scheduler meets tokio.
//! * `error.rs`: DataFusion's errors as ours.

mod answer;
mod catalog;
mod config;
mod ddl;
mod depth;
mod engine;
mod error;
mod estimate;
mod exec;
mod files;
mod load;
mod names;
mod prune;
pub mod rules;
pub mod runtime;
mod script;
mod session;
mod statement;
mod table;
mod write;

pub use answer::{Answer, Tag};
pub use config::Config;
pub use engine::Engine;
pub use load::{LoadProgress, LoadReport, LoadRequest};
pub use session::Session;
pub use thalweg_scheduler::{PolicyKind, QueryState};
pub use thalweg_storage as storage;
pub use thalweg_storage::load::{CsvOptions, Format};
