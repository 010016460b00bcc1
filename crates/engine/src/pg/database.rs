//! A snapshot as the catalog describes it.

use std::time::UNIX_EPOCH;

use datafusion::catalog::CatalogProvider;
use thalweg_pgcatalog::database::{
    Activity, Database, PUBLIC_OID, RELATIONS_FROM, SCHEMAS_FROM, Schema, Setting, TABLES_FROM,
    Table, TableColumn, hashed_oid,
};
use thalweg_pgcatalog::{Oid, database};
use thalweg_storage::{Snapshot, Table as Stored};

use super::roles;
use crate::access::{Seen, Viewer};
use crate::catalog::Handle;
use crate::names::{CATALOG, PUBLIC, SYSTEM};
use crate::pg_type;
use crate::session::Inner;
use crate::transaction::TransactionStatus;

/// What of it is worth some work, and not always wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// The columns of views and of external tables, which must be planned.
    pub columns: bool,
    /// The queries of views.
    pub definitions: bool,
}

pub fn schema_oid(name: &str) -> Oid {
    match name {
        PUBLIC => PUBLIC_OID,
        database::PG_CATALOG => database::PG_CATALOG_OID,
        database::INFORMATION_SCHEMA => database::INFORMATION_SCHEMA_OID,
        _ => hashed_oid(SCHEMAS_FROM, &[name]),
    }
}

/// Of a table the catalog's number of it, which it keeps when it is renamed; of what has none the
/// name decides.
fn table_oid(stored: &Stored) -> Oid {
    TABLES_FROM + (stored.id.0 as Oid) % (SCHEMAS_FROM / 2 - TABLES_FROM)
}

pub fn relation_oid(schema: &str, name: &str) -> Oid {
    hashed_oid(RELATIONS_FROM, &[schema, name])
}

/// The name of a relation by its number.
pub fn find(snapshot: &Snapshot, oid: Oid) -> Option<(&str, &str)> {
    snapshot.schemas.iter().find_map(|(schema, relations)| {
        let table = relations.tables.iter().find(|(_, table)| table_oid(table) == oid);
        let names = relations.views.keys().chain(relations.externals.keys());
        let name = table
            .map(|(name, _)| name)
            .or_else(|| names.into_iter().find(|name| relation_oid(schema, name) == oid));
        Some((schema.as_str(), name?.as_str()))
    })
}

pub async fn describe(session: &Inner, snapshot: &Snapshot, wanted: Wanted) -> Database {
    let handle = Handle::new(std::sync::Arc::clone(&session.catalog));
    let mut schemas = vec![];
    for (name, stored) in &snapshot.schemas {
        let mut tables: Vec<Table> = stored.tables.values().map(|t| table(t)).collect();
        let views = stored.views.keys().map(|name| (name, 'v'));
        let externals = stored.externals.keys().map(|name| (name, 'f'));
        for (relation, kind) in views.chain(externals) {
            let mut columns = vec![];
            // One that can no longer be planned is shown without columns.
            if wanted.columns
                && let Some(schema) = handle.schema(name)
                && let Ok(Some(planned)) = schema.table(relation).await
            {
                columns = planned.schema().fields().iter().map(|f| column(f, None)).collect();
            }
            let view = stored.views.get(relation).filter(|_| wanted.definitions);
            tables.push(Table {
                oid: relation_oid(name, relation),
                name: relation.clone(),
                kind,
                columns,
                rows: None,
                bytes: 0,
                definition: view.map(|view| query_of(&view.sql)),
            });
        }
        schemas.push(Schema { oid: schema_oid(name), name: name.clone(), tables });
    }
    schemas.push(system(&handle, wanted).await);
    let settings = session.pg.lock().all().map(setting).collect();
    Database {
        name: CATALOG.into(),
        schemas,
        roles: roles::all(session),
        settings,
        activity: activity(session),
    }
}

fn setting((name, value, default, description): (String, String, String, String)) -> Setting {
    Setting { name, value, default, description }
}

fn table(stored: &Stored) -> Table {
    let fields = stored.arrow_schema.fields().iter().zip(stored.columns.iter());
    Table {
        oid: table_oid(stored),
        name: stored.name.clone(),
        kind: 'r',
        columns: fields.map(|(field, of)| column(field, of.default.clone())).collect(),
        rows: Some(stored.rows()),
        bytes: stored.stored_bytes(),
        definition: None,
    }
}

fn column(field: &arrow::datatypes::Field, default: Option<String>) -> TableColumn {
    let (oid, typmod) = pg_type::of_field(field);
    TableColumn { name: field.name().clone(), oid, typmod, not_null: !field.is_nullable(), default }
}

async fn system(handle: &Handle, wanted: Wanted) -> Schema {
    let mut tables = vec![];
    if let Some(schema) = handle.schema(SYSTEM) {
        for name in schema.table_names() {
            let mut columns = vec![];
            if wanted.columns
                && let Ok(Some(listing)) = schema.table(&name).await
            {
                columns = listing.schema().fields().iter().map(|f| column(f, None)).collect();
            }
            tables.push(Table {
                oid: relation_oid(SYSTEM, &name),
                name,
                kind: 'v',
                columns,
                rows: None,
                bytes: 0,
                definition: None,
            });
        }
    }
    Schema { oid: schema_oid(SYSTEM), name: SYSTEM.into(), tables }
}

/// The query of a `CREATE VIEW`; the whole text, if it is no longer one that can be read.
pub fn query_of(sql: &str) -> String {
    use datafusion::sql::sqlparser::ast::Statement;
    use datafusion::sql::sqlparser::parser::Parser;
    match Parser::parse_sql(&crate::dialect::Thalweg, sql).as_deref() {
        Ok([Statement::CreateView(view)]) => view.query.to_string(),
        _ => sql.to_string(),
    }
}

/// The statements that run, each as its session.
fn activity(session: &Inner) -> Vec<Activity> {
    let driver = session.engine.runtime().driver();
    let listed = driver.listed();
    // As `system.queries`, and as in PostgreSQL.
    let viewer = session.viewer().ok();
    let seen = |role| {
        let may = |v: &Viewer| v.sees("queries") == Some(Seen::All) || v.reads_queries_of(role);
        viewer.as_ref().is_some_and(may)
    };
    let application = session.pg.lock().get("application_name").unwrap_or_default();
    let in_transaction = session.transactions.status() != TransactionStatus::Idle;
    let mut all: Vec<Activity> = listed
        .iter()
        .filter_map(|query| {
            let origin = query.run.origin();
            let pid = origin.session? as i64;
            let own = pid == session.id as i64;
            Some(Activity {
                pid,
                user: origin.user.as_deref().unwrap_or_default().to_owned(),
                application: if own { application.clone() } else { String::new() },
                state: "active".into(),
                query: match seen(origin.role) {
                    true => origin.text.clone(),
                    false => "<insufficient privilege>".into(),
                },
                started_us: origin
                    .time
                    .duration_since(UNIX_EPOCH)
                    .ok()
                    .map(|d| d.as_micros() as i64),
            })
        })
        .collect();
    // One line per session: what it began last.
    all.reverse();
    let mut seen = std::collections::HashSet::new();
    all.retain(|a| seen.insert(a.pid));
    if !all.iter().any(|a| a.pid == session.id as i64) {
        all.push(Activity {
            pid: session.id as i64,
            user: roles::current(session),
            application,
            state: if in_transaction { "idle in transaction" } else { "idle" }.into(),
            query: String::new(),
            started_us: None,
        });
    }
    all
}
