//! Relations, their columns, and the schemas that they are in.

use std::collections::HashSet;

use super::{row, tables};
use crate::database::{
    Catalog, DATABASE_OID, INFORMATION_SCHEMA, INFORMATION_SCHEMA_OID, OWNER_OID, PG_CATALOG,
    PG_CATALOG_OID, Table, hashed_oid,
};
use crate::relation::Column;
use crate::types::{self, Oid};
use crate::value::{Row, Value};

/// Defaults have their OIDs from here on.
const DEFAULTS_FROM: Oid = 1 << 28;
/// The collation of text whose collation nobody named.
const DEFAULT_COLLATION: i64 = 100;
/// The access method `heap`.
const HEAP: i64 = 2;

pub fn namespaces(catalog: &Catalog, columns: &[Column]) -> Vec<Row> {
    let mut all = vec![(PG_CATALOG_OID, PG_CATALOG), (INFORMATION_SCHEMA_OID, INFORMATION_SCHEMA)];
    all.extend(catalog.database.schemas.iter().map(|s| (s.oid, s.name.as_str())));
    let schema = |(oid, name): (Oid, &str)| {
        row(columns, |column| match column {
            "oid" => oid.into(),
            "nspname" => name.into(),
            "nspowner" => OWNER_OID.into(),
            _ => Value::Null,
        })
    };
    all.into_iter().map(schema).collect()
}

/// Of the catalog's own only tables and views: it has no indexes.
fn is_kept(row: &Row, kind: usize) -> bool {
    matches!(row[kind].as_text(), Some("r" | "v"))
}

pub fn classes(catalog: &Catalog, columns: &[Column]) -> Vec<Row> {
    let place = |name: &str| columns.iter().position(|c| c.name == name).unwrap_or(0);
    let (kind, indexed, toast) = (place("relkind"), place("relhasindex"), place("reltoastrelid"));
    let mut rows = catalog.statics.rows("pg_class", columns);
    rows.retain(|row| is_kept(row, kind));
    for row in &mut rows {
        row[indexed] = false.into();
        row[toast] = Value::Int(0);
    }
    rows.extend(tables(catalog).map(|(schema, table)| {
        let is_table = table.kind == 'r';
        row(columns, |column| match column {
            "oid" => table.oid.into(),
            "relname" => table.name.as_str().into(),
            "relnamespace" => schema.oid.into(),
            "relowner" => OWNER_OID.into(),
            "relam" => Value::Int(if is_table { HEAP } else { 0 }),
            "relfilenode" if is_table => table.oid.into(),
            "reltuples" => Value::Float(table.rows.map_or(-1.0, |rows| rows as f64)),
            "relpages" => Value::Int((table.bytes / PAGE_BYTES) as i64),
            "relpersistence" => "p".into(),
            "relkind" => table.kind.to_string().into(),
            "relnatts" => Value::Int(table.columns.len() as i64),
            "relreplident" => if is_table { "d" } else { "n" }.into(),
            "relispopulated" => true.into(),
            "relhasrules" => (table.kind == 'v').into(),
            "relhasindex"
            | "relisshared"
            | "relhastriggers"
            | "relhassubclass"
            | "relrowsecurity"
            | "relforcerowsecurity"
            | "relispartition" => false.into(),
            "reltype" | "reloftype" | "relfilenode" | "reltablespace" | "relallvisible"
            | "reltoastrelid" | "relchecks" | "relrewrite" | "relfrozenxid" | "relminmxid" => {
                Value::Int(0)
            }
            _ => Value::Null,
        })
    }));
    rows
}

/// The unit of `relpages`.
const PAGE_BYTES: u64 = 8192;

pub fn attributes(catalog: &Catalog, columns: &[Column]) -> Vec<Row> {
    let mut kept: HashSet<i64> = HashSet::new();
    if let Some((_, columns)) = catalog.statics.relation(PG_CATALOG_OID, "pg_class") {
        let place = |name: &str| columns.iter().position(|c| c.name == name).unwrap_or(0);
        let (oid, kind) = (place("oid"), place("relkind"));
        let classes = catalog.statics.rows("pg_class", columns);
        kept.extend(classes.iter().filter(|r| is_kept(r, kind)).filter_map(|r| r[oid].as_int()));
    }
    let relation = columns.iter().position(|c| c.name == "attrelid").unwrap_or(0);
    let mut rows = catalog.statics.rows("pg_attribute", columns);
    rows.retain(|row| row[relation].as_int().is_some_and(|oid| kept.contains(&oid)));
    for (_, table) in tables(catalog) {
        rows.extend(attributes_of(table, columns));
    }
    rows
}

fn attributes_of(table: &Table, columns: &[Column]) -> Vec<Row> {
    let each = table.columns.iter().zip(1i64..);
    each.map(|(attribute, number)| {
        let (length, by_value, align, storage) = layout(attribute.oid);
        row(columns, |column| match column {
            "attrelid" => table.oid.into(),
            "attname" => attribute.name.as_str().into(),
            "atttypid" => attribute.oid.into(),
            "atttypmod" => attribute.typmod.into(),
            "attnum" => number.into(),
            "attlen" => Value::Int(length),
            "attbyval" => by_value.into(),
            "attalign" => align.into(),
            "attstorage" => storage.into(),
            "attnotnull" => attribute.not_null.into(),
            "atthasdef" => attribute.default.is_some().into(),
            "attndims" => Value::Int(types::element(attribute.oid).is_some().into()),
            "attcollation" => {
                let is_text = matches!(attribute.oid, types::TEXT | types::VARCHAR);
                Value::Int(if is_text { DEFAULT_COLLATION } else { 0 })
            }
            "attcacheoff" | "attstattarget" => Value::Int(-1),
            "attislocal" => true.into(),
            "atthasmissing" | "attisdropped" => false.into(),
            "attinhcount" => Value::Int(0),
            "attidentity" | "attgenerated" | "attcompression" => "".into(),
            _ => Value::Null,
        })
    })
    .collect()
}

/// `typlen`, `typbyval`, `typalign` and `typstorage` of a type.
fn layout(oid: Oid) -> (i64, bool, &'static str, &'static str) {
    match oid {
        types::BOOL | types::CHAR => (1, true, "c", "p"),
        types::INT2 => (2, true, "s", "p"),
        types::INT4 | types::OID | types::DATE | types::FLOAT4 => (4, true, "i", "p"),
        types::INT8 | types::FLOAT8 | types::TIME | types::TIMESTAMP | types::TIMESTAMPTZ => {
            (8, true, "d", "p")
        }
        types::INTERVAL => (16, false, "d", "p"),
        types::UUID => (16, false, "c", "p"),
        types::NAME => (64, false, "c", "p"),
        types::NUMERIC => (-1, false, "i", "m"),
        _ => (-1, false, "i", "x"),
    }
}

pub fn defaults(catalog: &Catalog, columns: &[Column]) -> Vec<Row> {
    let mut rows = vec![];
    for (schema, table) in tables(catalog) {
        for (attribute, number) in table.columns.iter().zip(1i64..) {
            let Some(default) = &attribute.default else { continue };
            let key = [schema.name.as_str(), &table.name, &attribute.name];
            rows.push(row(columns, |column| match column {
                "oid" => hashed_oid(DEFAULTS_FROM, &key).into(),
                "adrelid" => table.oid.into(),
                "adnum" => number.into(),
                "adbin" => default.as_str().into(),
                _ => Value::Null,
            }));
        }
    }
    rows
}

pub fn foreign_tables(catalog: &Catalog, columns: &[Column]) -> Vec<Row> {
    let foreign = tables(catalog).filter(|(_, table)| table.kind == 'f');
    let line = |table: &Table| {
        row(columns, |column| match column {
            "ftrelid" => table.oid.into(),
            "ftserver" => DATABASE_OID.into(),
            _ => Value::Null,
        })
    };
    foreign.map(|(_, table)| line(table)).collect()
}
