//! The rows of the catalog's relations.

mod class;
mod information;
mod views;

use std::collections::HashSet;

use crate::database::{Catalog, OWNER_OID, PG_CATALOG_OID, Schema, Statics, Table};
use crate::query::functions;
use crate::relation::Column;
use crate::value::{Row, Value};

pub use information::rows as information_schema;

/// The rows of a relation of `pg_catalog` that depend on the database. Those that are not named
/// here are empty: they are of what is not there, such as triggers.
pub fn pg_catalog(catalog: &Catalog, name: &str, columns: &[Column]) -> Vec<Row> {
    match name {
        "pg_class" => class::classes(catalog, columns),
        "pg_attribute" => class::attributes(catalog, columns),
        "pg_attrdef" => class::defaults(catalog, columns),
        "pg_namespace" => class::namespaces(catalog, columns),
        "pg_foreign_table" => class::foreign_tables(catalog, columns),
        _ => views::rows(catalog, name, columns),
    }
}

/// A row whose columns are found by their names.
fn row(columns: &[Column], value: impl Fn(&str) -> Value) -> Row {
    columns.iter().map(|c| value(&c.name)).collect()
}

/// The tables of the database, with their schemas.
fn tables(catalog: &Catalog) -> impl Iterator<Item = (&Schema, &Table)> {
    catalog.database.schemas.iter().flat_map(|s| s.tables.iter().map(move |t| (s, t)))
}

fn owner(catalog: &Catalog) -> Value {
    let roles = &catalog.database.roles;
    let name = roles.iter().find(|r| r.oid == OWNER_OID).or(roles.first()).map(|r| &r.name);
    name.map_or(Value::Null, |name| name.as_str().into())
}

/// Of PostgreSQL's functions those that a statement can call here, and those that types name.
pub fn only_known_functions(statics: &Statics, columns: &[Column], rows: &mut Vec<Row>) {
    let place = |name: &str| columns.iter().position(|c| c.name == name);
    let (Some(oid), Some(name)) = (place("oid"), place("proname")) else { return };
    let mut named: HashSet<i64> = HashSet::new();
    if let Some((_, columns)) = statics.relation(PG_CATALOG_OID, "pg_type") {
        for row in statics.rows("pg_type", columns) {
            for (column, value) in columns.iter().zip(&row) {
                if column.oid == crate::types::REGPROC {
                    named.extend(value.as_int());
                }
            }
        }
    }
    rows.retain(|row| {
        row[oid].as_int().is_some_and(|oid| named.contains(&oid))
            || row[name].as_text().is_some_and(functions::exists)
    });
}
