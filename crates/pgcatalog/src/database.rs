//! What the catalog is of: a database as its engine describes it, and what is PostgreSQL's own.

mod tables;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_base::Result;

use crate::relation::{Column, Relation};
use crate::types::{self, Oid};
use crate::value::{Row, Value};

pub const PG_CATALOG: &str = "pg_catalog";
pub const INFORMATION_SCHEMA: &str = "information_schema";
/// PostgreSQL's numbers of what every database has.
pub const PG_CATALOG_OID: Oid = 11;
pub const PUBLIC_OID: Oid = 2200;
pub const INFORMATION_SCHEMA_OID: Oid = 13_283;
pub const DATABASE_OID: Oid = 16_383;
/// The role that owns what nobody else does.
pub const OWNER_OID: Oid = 10;
/// Tables of a user have their own number from here on.
pub const TABLES_FROM: Oid = 16_384;

/// What one statement sees.
#[derive(Clone, Debug, Default)]
pub struct Database {
    pub name: String,
    pub schemas: Vec<Schema>,
    pub roles: Vec<Role>,
    pub settings: Vec<Setting>,
    pub activity: Vec<Activity>,
}

#[derive(Clone, Debug)]
pub struct Schema {
    pub oid: Oid,
    pub name: String,
    pub tables: Vec<Table>,
}

#[derive(Clone, Debug)]
pub struct Table {
    pub oid: Oid,
    pub name: String,
    /// As in `pg_class.relkind`: `r` a table, `v` a view, `f` a foreign table.
    pub kind: char,
    pub columns: Vec<TableColumn>,
    /// `None`: not known.
    pub rows: Option<u64>,
    pub bytes: u64,
    /// The query of a view.
    pub definition: Option<String>,
}

#[derive(Clone, Debug)]
pub struct TableColumn {
    pub name: String,
    pub oid: Oid,
    pub typmod: i32,
    pub not_null: bool,
    pub default: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Role {
    pub oid: Oid,
    pub name: String,
    pub superuser: bool,
    pub can_login: bool,
    /// The roles that this one is a member of.
    pub member_of: Vec<Oid>,
}

#[derive(Clone, Debug)]
pub struct Setting {
    pub name: String,
    pub value: String,
    pub default: String,
    pub description: String,
}

/// A session, as `pg_stat_activity` shows it.
#[derive(Clone, Debug)]
pub struct Activity {
    pub pid: i64,
    pub user: String,
    pub application: String,
    pub state: String,
    pub query: String,
    /// Microseconds since 1970.
    pub started_us: Option<i64>,
}

/// An OID that is the same in every session and after every start: of the name. Relations that
/// are no tables have theirs from 2³⁰ on, schemas from 2²⁹.
pub fn hashed_oid(from: Oid, parts: &[&str]) -> Oid {
    // FNV-1a.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        for byte in part.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    from + ((hash >> 32) as u32) % from
}

pub const SCHEMAS_FROM: Oid = 1 << 29;
pub const RELATIONS_FROM: Oid = 1 << 30;

/// A table of PostgreSQL's own, as text.
#[derive(Clone, Debug, Default)]
pub struct StaticTable {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Option<String>>>,
}

impl StaticTable {
    pub(crate) fn column(&self, name: &str) -> usize {
        self.columns.iter().position(|c| c == name).unwrap_or(0)
    }
}

/// A relation of the catalog's own.
pub(crate) struct Known {
    pub oid: Oid,
    pub schema: Oid,
    pub kind: char,
    pub name: String,
    pub columns: Vec<Column>,
    pub not_null: Vec<bool>,
}

/// What is the same in every database: types, functions, operators, the catalog's own columns.
pub struct Statics {
    tables: HashMap<String, StaticTable>,
    known: Vec<Known>,
    functions: HashMap<String, i64>,
    /// Relations that do not change.
    made: Mutex<HashMap<String, Arc<Relation>>>,
}

/// Relations whose rows are PostgreSQL's.
pub const STATIC: &[&str] = &[
    "pg_aggregate",
    "pg_am",
    "pg_amop",
    "pg_amproc",
    "pg_cast",
    "pg_collation",
    "pg_conversion",
    "pg_description",
    "pg_get_keywords",
    "pg_language",
    "pg_opclass",
    "pg_operator",
    "pg_opfamily",
    "pg_proc",
    "pg_range",
    "pg_tablespace",
    "pg_ts_config",
    "pg_ts_dict",
    "pg_ts_parser",
    "pg_ts_template",
    "pg_type",
];

const COLUMNS: &str = include_str!("database/tables/columns.txt");

impl Statics {
    /// `tables`: those of [`STATIC`].
    pub fn new(tables: HashMap<String, StaticTable>) -> Self {
        let mut functions = HashMap::new();
        if let Some(all) = tables.get("pg_proc") {
            let (oid, name) = (all.column("oid"), all.column("proname"));
            for row in &all.rows {
                if let (Some(oid), Some(name)) = (&row[oid], &row[name]) {
                    functions.entry(name.clone()).or_insert(oid.parse().unwrap_or(0));
                }
            }
        }
        let known = COLUMNS.lines().filter(|l| !l.starts_with('#')).filter_map(known).collect();
        Statics { tables, known, functions, made: Mutex::default() }
    }

    pub(crate) fn known(&self) -> &[Known] {
        &self.known
    }

    /// Rows of one of PostgreSQL's tables.
    pub fn count(&self, name: &str) -> usize {
        self.table(name).map_or(0, |table| table.rows.len())
    }

    pub(crate) fn table(&self, name: &str) -> Option<&StaticTable> {
        self.tables.get(name)
    }

    /// OID and columns of a relation of the catalog's own.
    pub(crate) fn relation(&self, schema: Oid, name: &str) -> Option<(Oid, &[Column])> {
        let known = self.known.iter().find(|k| k.schema == schema && k.name == name)?;
        Some((known.oid, &known.columns))
    }

    pub(crate) fn function(&self, name: &str) -> i64 {
        self.functions.get(name).copied().unwrap_or(0)
    }

    /// The rows of a table of PostgreSQL's, in these columns.
    pub(crate) fn rows(&self, name: &str, columns: &[Column]) -> Vec<Row> {
        let Some(table) = self.table(name) else { return vec![] };
        let places: Vec<Option<usize>> =
            columns.iter().map(|c| table.columns.iter().position(|t| *t == c.name)).collect();
        let value = |column: &Column, text: &str| match column.oid {
            types::REGPROC => match text {
                "-" => Value::Int(0),
                _ => text.parse().map_or_else(|_| self.function(text).into(), Value::Int),
            },
            oid => crate::text::parse_plain(text, oid).unwrap_or(Value::Null),
        };
        let row = |row: &Vec<Option<String>>| -> Row {
            let each = columns.iter().zip(&places);
            each.map(|(column, place)| match place.and_then(|at| row[at].as_deref()) {
                Some(text) => value(column, text),
                None => Value::Null,
            })
            .collect()
        };
        table.rows.iter().map(row).collect()
    }

    /// A relation that is the same in every database.
    fn unchanging(&self, name: &str) -> Option<Arc<Relation>> {
        if !STATIC.contains(&name) {
            return None;
        }
        let mut made = self.made.lock();
        if let Some(relation) = made.get(name) {
            return Some(Arc::clone(relation));
        }
        let keywords = || {
            let columns = ["word", "catcode", "barelabel", "catdesc", "baredesc"];
            let oids = [types::TEXT, types::CHAR, types::BOOL, types::TEXT, types::TEXT];
            columns.into_iter().zip(oids).map(|(n, oid)| Column::new(n, oid)).collect()
        };
        let (oid, columns) = match self.relation(PG_CATALOG_OID, name) {
            Some((oid, columns)) => (oid, columns.to_vec()),
            None if name == "pg_get_keywords" => (0, keywords()),
            None => return None,
        };
        let mut rows = self.rows(name, &columns);
        if name == "pg_proc" {
            tables::only_known_functions(self, &columns, &mut rows);
        }
        let relation = Arc::new(Relation::new(oid, name, columns, rows));
        made.insert(name.into(), Arc::clone(&relation));
        Some(relation)
    }
}

/// `1259 pg_catalog r pg_class oid:oid! relname:name! …`
fn known(line: &str) -> Option<Known> {
    let mut words = line.split(' ');
    let (oid, schema) = (words.next()?.parse().ok()?, schema_oid(words.next()?)?);
    let (kind, name) = (words.next()?.chars().next()?, words.next()?.to_string());
    let (mut columns, mut not_null) = (vec![], vec![]);
    for word in words {
        let (column, of) = word.split_once(':')?;
        let plain = of.trim_end_matches('!');
        // `"char"` is the only type of that name in the catalog.
        let oid =
            if plain == "char" { types::CHAR } else { types::named(plain).unwrap_or(types::TEXT) };
        let oid = if plain == "_char" { types::array_of(types::CHAR)? } else { oid };
        columns.push(Column::new(column, oid));
        not_null.push(plain != of);
    }
    Some(Known { oid, schema, kind, name, columns, not_null })
}

/// The catalog of one database as one statement sees it.
pub struct Catalog {
    pub statics: Arc<Statics>,
    pub database: Database,
    made: Mutex<HashMap<(Oid, String), Arc<Relation>>>,
}

impl Catalog {
    pub fn new(statics: Arc<Statics>, database: Database) -> Self {
        Catalog { statics, database, made: Mutex::default() }
    }

    /// Whether the catalog has a relation of this name, without its rows.
    pub fn knows(statics: &Statics, schema: &str, name: &str) -> bool {
        schema_oid(schema).is_some_and(|oid| statics.relation(oid, name).is_some())
    }

    /// A relation of `pg_catalog` or `information_schema`.
    pub fn relation(&self, schema: &str, name: &str) -> Result<Option<Arc<Relation>>> {
        let Some(schema) = schema_oid(schema) else { return Ok(None) };
        if schema == PG_CATALOG_OID
            && let Some(relation) = self.statics.unchanging(name)
        {
            return Ok(Some(relation));
        }
        let key = (schema, name.to_string());
        if let Some(relation) = self.made.lock().get(&key) {
            return Ok(Some(Arc::clone(relation)));
        }
        let Some((oid, columns)) = self.statics.relation(schema, name) else { return Ok(None) };
        let rows = match schema {
            PG_CATALOG_OID => tables::pg_catalog(self, name, columns),
            _ => tables::information_schema(self, name, columns),
        };
        let relation = Arc::new(Relation::new(oid, name, columns.to_vec(), rows));
        self.made.lock().insert(key, Arc::clone(&relation));
        Ok(Some(relation))
    }

    pub fn table(&self, oid: Oid) -> Option<&Table> {
        self.database.schemas.iter().flat_map(|s| &s.tables).find(|t| t.oid == oid)
    }

    /// The names of all relations of a schema of the catalog's own.
    pub fn names(&self, schema: &str) -> Vec<String> {
        let Some(oid) = schema_oid(schema) else { return vec![] };
        let of_schema = self.statics.known.iter().filter(|known| known.schema == oid);
        of_schema.map(|known| known.name.clone()).collect()
    }
}

fn schema_oid(schema: &str) -> Option<Oid> {
    match schema {
        PG_CATALOG => Some(PG_CATALOG_OID),
        INFORMATION_SCHEMA => Some(INFORMATION_SCHEMA_OID),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oids_of_names_stay() {
        assert_eq!(hashed_oid(RELATIONS_FROM, &["public", "v"]), 1_481_532_039);
        assert_ne!(
            hashed_oid(RELATIONS_FROM, &["a", "bc"]),
            hashed_oid(RELATIONS_FROM, &["ab", "c"])
        );
        let oid = hashed_oid(SCHEMAS_FROM, &["s"]);
        assert!((SCHEMAS_FROM..RELATIONS_FROM).contains(&oid));
    }
}
