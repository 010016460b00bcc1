//! What clients of PostgreSQL find here: its catalog, its functions about the server, its settings.
//!
//! * `ask.rs`: whether a statement is a query over the catalog; such run in `thalweg_pgcatalog`.
//! * `environment.rs`, `database.rs`: what those queries see. `statics.rs`: what is PostgreSQL's own.
//! * `answer.rs`: their rows as Arrow's.
//! * `schema.rs`: the catalog's relations for all other statements; `udf.rs`: its functions.
//! * `settings.rs`, `command.rs`: `SET search_path …`, `SHOW server_version`, `DISCARD ALL`.
//! * `roles.rs`: who there is, and what they may.

mod answer;
mod ask;
mod command;
mod database;
mod environment;
mod roles;
mod schema;
mod settings;
mod statics;
mod udf;

pub(crate) use ask::{Asked, describe, may_be_planned};
pub(crate) use command::{Command, Done, set_value, settle, value};
pub(crate) use schema::PgCatalog;
pub use settings::{REPORTED, Settings};
pub use udf::register;

pub use thalweg_pgcatalog::database::PG_CATALOG;

/// Whether the name stands for a relation of the catalog, also without its schema.
pub fn is_relation(name: &str) -> bool {
    // Spares most names a look into tables that may not have been read yet.
    name.starts_with("pg_")
        && thalweg_pgcatalog::database::Catalog::knows(&statics::statics(), PG_CATALOG, name)
}
