//! The relations of the catalog: all of their rows, in memory.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_base::Result;

use crate::types::Oid;
use crate::value::{Row, Value};

#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub oid: Oid,
}

impl Column {
    pub fn new(name: impl Into<String>, oid: Oid) -> Self {
        Column { name: name.into(), oid }
    }
}

type Index = HashMap<Value, Vec<u32>>;

/// A relation as one statement sees it.
#[derive(Debug)]
pub struct Relation {
    pub oid: Oid,
    pub name: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    /// By column; made when first wanted.
    indexes: Mutex<HashMap<usize, Arc<Index>>>,
}

impl Relation {
    pub fn new(oid: Oid, name: impl Into<String>, columns: Vec<Column>, rows: Vec<Row>) -> Self {
        Relation { oid, name: name.into(), columns, rows, indexes: Mutex::default() }
    }

    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == name)
    }

    /// The rows with this value in a column.
    pub fn find(&self, column: usize, value: &Value) -> Vec<u32> {
        let index = Arc::clone(self.indexes.lock().entry(column).or_insert_with(|| {
            let mut index = Index::new();
            for (at, row) in (0..).zip(&self.rows) {
                index.entry(row[column].clone()).or_default().push(at);
            }
            Arc::new(index)
        }));
        index.get(value).cloned().unwrap_or_default()
    }
}

/// What the catalog's queries are asked of.
pub trait Environment {
    /// A relation of `pg_catalog` or `information_schema`.
    fn relation(&self, schema: &str, name: &str) -> Result<Option<Arc<Relation>>>;

    fn database(&self) -> &str;

    fn user(&self) -> &str;

    /// Schemas in which a name without one is looked for, without `pg_catalog`.
    fn search_path(&self) -> Vec<String>;

    fn backend_pid(&self) -> i64;

    /// Microseconds since 1970.
    fn now_us(&self) -> i64;

    /// When the server started; microseconds since 1970.
    fn started_us(&self) -> i64;

    /// A setting's value; `None`: there is no such setting.
    fn setting(&self, name: &str) -> Option<String>;

    /// What `set_config` does; gives the value as it is shown.
    fn set(&self, name: &str, value: &str, local: bool) -> Result<String>;

    /// The query of a view, or the statement of an external table.
    fn definition(&self, relation: Oid) -> Option<String>;

    /// Bytes that a relation has on the disk.
    fn stored_bytes(&self, relation: Oid) -> Option<u64>;

    /// Whether somebody may do what is asked for: `SELECT` on the table 16384.
    fn may(&self, user: Option<&str>, what: Privilege, on: Oid, privilege: &str) -> bool;

    /// True once the statement is to stop.
    fn stopped(&self) -> bool;
}

/// What a privilege is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    Relation,
    Schema,
    Database,
    Other,
}

/// Lookups in the catalog that functions and casts make.
pub trait Lookup {
    /// `wanted` of the row of `pg_catalog.relation` whose `key` is `value`.
    fn find(&self, relation: &str, key: &str, value: &Value, wanted: &str) -> Result<Value>;

    /// The same for rows that have two such values.
    fn find_by(&self, relation: &str, keys: [(&str, Value); 2], wanted: &str) -> Result<Value>;
}

impl<E: Environment + ?Sized> Lookup for E {
    fn find(&self, relation: &str, key: &str, value: &Value, wanted: &str) -> Result<Value> {
        let Some(found) = self.relation("pg_catalog", relation)? else { return Ok(Value::Null) };
        let (Some(key), Some(wanted)) = (found.column(key), found.column(wanted)) else {
            return Ok(Value::Null);
        };
        let rows = found.find(key, value);
        Ok(rows.first().map_or(Value::Null, |at| found.rows[*at as usize][wanted].clone()))
    }

    fn find_by(&self, relation: &str, keys: [(&str, Value); 2], wanted: &str) -> Result<Value> {
        let Some(found) = self.relation("pg_catalog", relation)? else { return Ok(Value::Null) };
        let [(first, value), (second, other)] = keys;
        let columns = (found.column(first), found.column(second), found.column(wanted));
        let (Some(first), Some(second), Some(wanted)) = columns else { return Ok(Value::Null) };
        let rows = found.find(first, &value);
        let row = rows.iter().map(|at| &found.rows[*at as usize]).find(|row| row[second] == other);
        Ok(row.map_or(Value::Null, |row| row[wanted].clone()))
    }
}
