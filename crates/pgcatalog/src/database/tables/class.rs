//! Relations, their columns, and the schemas that they are in.

use super::{row, tables};
use crate::database::{
    Catalog, DATABASE_OID, INFORMATION_SCHEMA, INFORMATION_SCHEMA_OID, OWNER_OID, PG_CATALOG,
    PG_CATALOG_OID, Table, TableColumn, hashed_oid,
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

/// A relation of the catalog's own, or of the database.
struct Line<'a> {
    oid: Oid,
    name: &'a str,
    schema: Oid,
    kind: char,
    columns: usize,
    rows: Option<u64>,
    bytes: u64,
}

pub fn classes(catalog: &Catalog, columns: &[Column]) -> Vec<Row> {
    let own = catalog.statics.known().iter().map(|known| Line {
        oid: known.oid,
        name: &known.name,
        schema: known.schema,
        kind: known.kind,
        columns: known.columns.len(),
        rows: None,
        bytes: 0,
    });
    let of_users = tables(catalog).map(|(schema, table)| Line {
        oid: table.oid,
        name: &table.name,
        schema: schema.oid,
        kind: table.kind,
        columns: table.columns.len(),
        rows: table.rows,
        bytes: table.bytes,
    });
    own.chain(of_users).map(|line| class(&line, columns)).collect()
}

fn class(line: &Line, columns: &[Column]) -> Row {
    let is_table = line.kind == 'r';
    row(columns, |column| match column {
        "oid" => line.oid.into(),
        "relname" => line.name.into(),
        "relnamespace" => line.schema.into(),
        "relowner" => OWNER_OID.into(),
        "relam" => Value::Int(if is_table { HEAP } else { 0 }),
        "relfilenode" if is_table => line.oid.into(),
        "reltuples" => Value::Float(line.rows.map_or(-1.0, |rows| rows as f64)),
        "relpages" => Value::Int((line.bytes / PAGE_BYTES) as i64),
        "relpersistence" => "p".into(),
        "relkind" => line.kind.to_string().into(),
        "relnatts" => Value::Int(line.columns as i64),
        "relreplident" => if is_table { "d" } else { "n" }.into(),
        "relispopulated" => true.into(),
        "relhasrules" => (line.kind == 'v').into(),
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
}

/// The unit of `relpages`.
const PAGE_BYTES: u64 = 8192;

pub fn attributes(catalog: &Catalog, columns: &[Column]) -> Vec<Row> {
    let mut rows = vec![];
    for known in catalog.statics.known() {
        for ((of, not_null), number) in known.columns.iter().zip(&known.not_null).zip(1i64..) {
            let of = TableColumn {
                name: of.name.clone(),
                oid: of.oid,
                typmod: -1,
                not_null: *not_null,
                default: None,
            };
            rows.push(attribute(known.oid, &of, number, columns));
        }
    }
    for (_, table) in tables(catalog) {
        let each = table.columns.iter().zip(1i64..);
        rows.extend(each.map(|(of, number)| attribute(table.oid, of, number, columns)));
    }
    rows
}

fn attribute(relation: Oid, of: &TableColumn, number: i64, columns: &[Column]) -> Row {
    let (length, by_value, align, storage) = layout(of.oid);
    row(columns, |column| match column {
        "attrelid" => relation.into(),
        "attname" => of.name.as_str().into(),
        "atttypid" => of.oid.into(),
        "atttypmod" => of.typmod.into(),
        "attnum" => number.into(),
        "attlen" => Value::Int(length),
        "attbyval" => by_value.into(),
        "attalign" => align.into(),
        "attstorage" => storage.into(),
        "attnotnull" => of.not_null.into(),
        "atthasdef" => of.default.is_some().into(),
        "attndims" => Value::Int(types::element(of.oid).is_some().into()),
        "attcollation" => {
            let is_text = matches!(of.oid, types::TEXT | types::VARCHAR);
            Value::Int(if is_text { DEFAULT_COLLATION } else { 0 })
        }
        "attcacheoff" | "attstattarget" => Value::Int(-1),
        "attislocal" => true.into(),
        "atthasmissing" | "attisdropped" => false.into(),
        "attinhcount" => Value::Int(0),
        "attidentity" | "attgenerated" | "attcompression" => "".into(),
        _ => Value::Null,
    })
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
