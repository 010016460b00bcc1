//! Who may do what: roles, what they are granted, and the checks of both.
//!
//! ```text
//!   session ── SET ROLE ──▶ role ──┐                    ┌─ the catalog asks for each relation that a
//!                                  ├─▶ Viewer ── may? ──┤  statement or a view reads
//!   properties ──▶ Access ─────────┘                    └─ needs.rs says what else the statement needs
//! ```
//! Roles and grants are properties of the database ([`store`]): they change in transactions, and
//! hold for all sessions from their next statement on. Superusers are asked nothing, so that an
//! engine without roles pays nothing for them.
//!
//! * `role.rs`, `verifier.rs`, `grant.rs`: roles, their passwords, privileges and what they are on.
//! * `store.rs`: how they are stored. `viewer.rs`: who a statement runs for, and the checks.
//! * `needs.rs`: what a statement needs, by its text alone.
//! * `parse.rs`, `commands.rs`: `CREATE ROLE`, `GRANT` and their like.
//! * `listing.rs`: `system.roles`, `system.grants`. `redact.rs`: statements without their secrets.
//! * `audit.rs`: what is written down of who did what.

pub mod audit;
mod commands;
mod grant;
mod listing;
mod needs;
mod parse;
mod redact;
mod role;
mod store;
#[cfg(test)]
mod tests;
mod verifier;
mod viewer;

pub use audit::{Audit, Event};
pub use redact::redact;
pub use role::{Role, RoleId, SUPERUSER, Token, token_hash};
pub use store::Access;
pub use verifier::{ITERATIONS, Verifier, normalized};

pub(crate) use commands::{answer, run};
pub(crate) use grant::{Object, Privilege};
pub(crate) use listing::{grants, grants_schema, roles, roles_schema};
pub(crate) use needs::needs;
pub(crate) use parse::{Command, is_command, parse};
pub(crate) use redact::without_secrets;
pub(crate) use role::{OWNER_ID, PG_READ_SERVER_FILES, PG_WRITE_SERVER_FILES};
pub(crate) use store::{OWNER_KEY, Registry, owner_text, remove_grants_on_workload};
pub(crate) use viewer::{Identity, Seen, Viewer};
