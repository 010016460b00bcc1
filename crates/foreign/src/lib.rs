//! Databases of other systems, read as Arrow: SQLite files and PostgreSQL servers.
//!
//! * [`Foreign`]: what a database can be asked: which tables it has, what their columns are, and their rows.
//!   All of it blocks, and is meant for a thread that may.
//! * [`Sqlite`], [`Postgres`]: the two that there are.
//! * `cells.rs`: values into columns. `calendar.rs`: days and times from text and back.
//!
//! Nothing is ever written. A value that the type of its column does not hold is an error that names the
//! table, the column, the row and the value.

mod calendar;
mod cells;
mod postgres;
mod sqlite;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use thalweg_base::{Error, Result};
use tokio::sync::watch;

pub use postgres::Postgres;
pub use sqlite::Sqlite;

/// A table or a view of another database.
#[derive(Clone, Debug)]
pub struct Table {
    /// As the other database spells them.
    pub schema: String,
    pub name: String,
    pub columns: SchemaRef,
    /// What decided the type of each column, for people.
    pub why: Vec<String>,
    /// About how many there are, if the database knows without counting.
    pub rows: Option<u64>,
    /// How each column is read, which is the source's own affair.
    reads: Arc<[cells::Read]>,
}

/// The rows that are wanted of a table.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Places of columns.
    pub columns: Vec<usize>,
    /// All of them hold for the rows that are wanted. A source may give more rows than these.
    pub conditions: Vec<Condition>,
    /// The first ones alone.
    pub limit: Option<u64>,
}

/// A comparison of a column with constants; a row in which it is NULL is not wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    pub column: usize,
    pub test: Test,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    Is(Comparison, Constant),
    OneOf(Vec<Constant>),
    Null,
    NotNull,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    Boolean(bool),
    Integer(i64),
    /// Compared byte by byte.
    Text(String),
    /// Days since 1970.
    Date(i32),
}

/// How somebody else tells a scan that its rows are no longer wanted.
#[derive(Clone)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Default for Stop {
    fn default() -> Self {
        Stop(Arc::new(watch::Sender::new(false)))
    }
}

impl Stop {
    pub fn ask(&self) {
        self.0.send_replace(true);
    }

    pub fn is_asked(&self) -> bool {
        *self.0.borrow()
    }

    async fn asked(&self) {
        // It ends without having been asked only when there is nobody left who could.
        let _ = self.0.subscribe().wait_for(|asked| *asked).await;
    }
}

/// A database that is read. Every call may block.
pub trait Foreign: Send + Sync {
    /// What kind of database it is, as `TYPE` names it.
    fn kind(&self) -> &'static str;

    /// Where it is, without anything secret.
    fn location(&self) -> String;

    /// Where a table is looked for whose schema is not named.
    fn default_schema(&self) -> &'static str;

    /// All tables and views that can be named: schema and name.
    ///
    /// # Errors
    /// The database cannot be reached or read.
    fn tables(&self, stop: &Stop) -> Result<Vec<(String, String)>>;

    /// `None`: there is no such table.
    ///
    /// # Errors
    /// The database cannot be reached or read.
    fn table(&self, schema: &str, name: &str, stop: &Stop) -> Result<Option<Table>>;

    /// Gives the rows, in batches, until there are no more, `give` says that it wants no more, or somebody
    /// asks to stop.
    ///
    /// # Errors
    /// The database cannot be read, or has a value that the type of its column does not hold.
    fn scan(
        &self,
        table: &Table,
        wanted: &Wanted,
        stop: &Stop,
        give: &mut dyn FnMut(RecordBatch) -> bool,
    ) -> Result<()>;

    /// Whether a condition on this column gives the same rows there as here, or more.
    fn takes_conditions(&self, table: &Table, column: usize) -> bool;
}

/// The name among `names` that is meant: itself, or the only one that differs in case alone.
fn meant<'n>(wanted: &str, names: impl Iterator<Item = &'n str> + Clone) -> Option<&'n str> {
    if let Some(same) = names.clone().find(|name| *name == wanted) {
        return Some(same);
    }
    let mut alike = names.filter(|name| name.to_lowercase() == wanted.to_lowercase());
    let first = alike.next()?;
    alike.next().is_none().then_some(first)
}

/// `"a"`, with the quotes in it doubled, as SQLite and PostgreSQL have it.
fn quoted_name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// For a scan that somebody has stopped: nobody sees it.
fn stopped() -> Error {
    Error::new(thalweg_base::Kind::Cancelled, "the scan was stopped")
}

#[cfg(test)]
mod tests {
    use super::meant;

    #[test]
    fn names_that_differ_in_case() {
        let names = ["Orders", "a", "A"];
        let find = |name: &str| meant(name, names.iter().copied());
        assert_eq!(find("orders"), Some("Orders"));
        assert_eq!(find("A"), Some("A"));
        assert_eq!(find("b"), None);
        assert_eq!(meant("x", ["X", "xx", "x"].into_iter()), Some("x"));
        assert_eq!(meant("ab", ["aB", "Ab"].into_iter()), None);
    }
}
