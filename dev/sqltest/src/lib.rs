//! The main test suite: SQL as text under `files/`, one test per file and mode.
//!
//! ```text
//! cargo test -p thalweg-sqltest                          # everything
//! cargo test -p thalweg-sqltest --test slt -- join       # files with "join" in their path
//! cargo test -p thalweg-sqltest --test slt -- memory::   # one mode
//! THALWEG_SLT_COMPLETE=1 cargo test -p thalweg-sqltest --test slt -- basic/select
//! ```
//!
//! The last one writes what the engine answers into the file. Read every line it wrote: it is
//! what the engine says, not what is right.
//!
//! The format is that of [sqllogictest](https://www.sqlite.org/sqllogictest/doc/trunk/about.wiki),
//! compared to the byte (columns are separated by one blank). Beyond it:
//!
//! * `$DATA` is `data/`, `$TMP` a folder of the test's own; both also stand so in messages.
//! * An error is matched as one line: `kind: message | detail: … | hint: …`.
//! * `EXPLAIN` gives one row per line of the plan; `<slt:ignore>` in a result matches anything.
//! * `onlyif`/`skipif` take the name of a [mode](mode::MODES).
//! * `LOAD` ([`load`]) is `thalweg load` as a statement; `REOPEN` closes the database and opens it
//!   again where the mode keeps it on disk.
//! * `# keep session` as the first line: the mode that reopens in between does not, because the
//!   file is about settings or prepared statements.
//!
//! Under `formats/` lies a database of each version of the storage format, which is copied and must
//! answer its `check.slt`. `THALWEG_SLT_MAKE_FORMAT=3` writes that of version 3 by its `make.slt`;
//! once a version is released, never again.
//!
//! `mode.rs`: the modes. `home.rs`: the engine of one test. `connection.rs`: sqllogictest's view of
//! a session. `value.rs`: how values are printed. `load.rs`: `LOAD`. `run.rs`: files into tests.

mod connection;
mod home;
pub mod load;
pub mod mode;
pub mod run;
mod value;
