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
//!   `session/inner.rs`: a session for those who run its statements; `running.rs`: a statement that runs.
//! * `parse.rs`, `dialect.rs`: text into a statement. `depth.rs`: refuses what is nested too deeply
//!   to plan. `names.rs`: names as the planner knows them.
//!   `spelling.rs`: other spellings of what is done; `refuse.rs`: what is parsed and not done is refused.
//! * `transaction.rs`: `BEGIN` to `COMMIT`, and the one way in which anything is changed.
//! * `bound.rs`: queries through the binder (`thalweg-bind`). `statement.rs`: plan and run;
//!   `statement/plan.rs` and `statement/turn.rs` are what all kinds of statements need. `titles.rs`: what a result's columns are called.
//!   `dml.rs`: what changes rows. `ddl.rs`, `alter.rs`: what changes
//!   the catalog. `declared.rs`, `defaults.rs`: what columns are declared with. `view_text.rs`: what is kept of a view. `copy.rs`, `csv_file.rs`, [`load`](Load): files in and out. [`ingest`](Ingest): a client's rows in. `maintain.rs`: `VACUUM`, `OPTIMIZE`.
//!   `as_of.rs`: tables as they were. `prepared.rs`, `show.rs`: statements that stand for others.
//! * [`Description`] (`describe.rs`), [`Value`] (`parameters.rs`): statements with `$1`, `$2`, ….
//!   `result_names.rs`: columns by PostgreSQL's names.
//! * [`access`]: who may do what. `workload.rs`: classes of queries and their limits.
//!   `walk.rs`: through a parsed statement.
//! * `pg/`, [`pg_type`]: what clients of PostgreSQL look for: its catalog, settings and types.
//! * `deliver.rs`: rows to the client. `share.rs`: identical statements in flight are computed once.
//! * `catalog.rs`, `table.rs`, `files.rs`, `attach.rs`: what DataFusion sees of the database, of plain files
//!   and of other databases.
//!   `system.rs`, `information.rs`: what it can be asked about the database itself. `schemas.rs`: what the
//!   catalog leaves to the session.
//! * [`thalweg_plan`]: our optimizer rules, and how much work a plan is.
//! * [`thalweg_exec`]: our operators, and which chunks a predicate needs. `write.rs`, `sink.rs`: rows into extents.
//! * [`calibration`]: what this machine's memory gives, to compare with.
//! * `maintain.rs`, `background.rs`: compaction, when asked for and by itself.
//! * `figures.rs`: what there is to be watched.
//! * `place.rs`: where in a statement an error is.

pub mod access;
mod alter;
mod answer;
mod as_of;
mod attach;
mod background;
mod bound;
pub mod calibration;
mod catalog;
mod config;
mod copy;
mod csv_file;
mod ddl;
mod declared;
mod defaults;
mod deliver;
mod depth;
mod describe;
mod dialect;
mod dml;
mod engine;
mod figures;
mod files;
mod held;
mod hints;
mod information;
mod ingest;
mod json_file;
mod json_times;
mod load;
mod maintain;
mod names;
mod parameters;
mod parse;
mod pg;
pub mod pg_type;
mod place;
mod plain_words;
mod plans;
mod prepared;
mod quantified;
mod refuse;
mod result_names;
mod row_insert;
mod running;
mod schemas;
pub mod script;
mod session;
mod share;
mod show;
mod sink;
mod spelling;
mod sql_type;
mod statement;
mod system;
mod table;
pub mod text_values;
mod titles;
mod transaction;
mod view_text;
mod walk;
mod workload;
mod write;
mod zoned;

#[cfg(test)]
mod tests;

pub use answer::{Answer, Tag};
pub use config::Config;
pub use copy::ClientCopy;
pub use describe::Description;
pub use engine::Engine;
pub use figures::{Figures, Spent, WorkloadFigures};
pub use ingest::{IfAbsent, IfPresent, Ingest};
pub use json_times::far_times;
pub use load::{
    ColumnChanges, CommitEvery, Load, LoadPlan, LoadProgress, LoadReport, LoadRequest, NewColumns,
    stamp, table_name,
};
pub use parameters::Value;
pub use pg::REPORTED as REPORTED_SETTINGS;
pub use result_names::result_names;
pub use row_insert::RowInsert;
pub use session::{QueryProgress, Session};
pub use sql_type::{sql_type, sql_type_of};
pub use thalweg_base::Notice;
pub use thalweg_functions::bytea;
pub use thalweg_pgcatalog::{Description as CatalogDescription, ResultColumn};
pub use thalweg_runtime as runtime;
pub use thalweg_scheduler::{Histogram, PolicyKind, QueryState, SHORT_CPU_NS, replay};
pub use thalweg_storage as storage;
pub use thalweg_storage::DirectIo;
pub use thalweg_storage::load::{CsvOptions, Format, InferredColumn, JsonOptions, Reject};
pub use transaction::TransactionStatus;
