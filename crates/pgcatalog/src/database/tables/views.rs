//! Roles, databases, settings, and the views over relations.

use super::{owner, row, tables};
use crate::database::{Catalog, DATABASE_OID, OWNER_OID, Role};
use crate::relation::Column;
use crate::value::{Row, Value};

/// The tablespace `pg_default`.
const PG_DEFAULT: i64 = 1663;
/// PostgreSQL's number of the encoding UTF8.
const UTF8: i64 = 6;

pub fn rows(catalog: &Catalog, name: &str, columns: &[Column]) -> Vec<Row> {
    match name {
        "pg_database" => vec![database(catalog, columns)],
        "pg_authid" | "pg_roles" => all_roles(catalog, columns, |_| true),
        "pg_user" | "pg_shadow" => all_roles(catalog, columns, |r| r.can_login),
        "pg_group" => all_roles(catalog, columns, |r| !r.can_login),
        "pg_auth_members" => members(catalog, columns),
        "pg_settings" => settings(catalog, columns),
        "pg_stat_activity" => activity(catalog, columns),
        "pg_stat_database" => vec![stat_database(catalog, columns)],
        "pg_tables" => of_kind(catalog, columns, 'r'),
        "pg_views" => of_kind(catalog, columns, 'v'),
        "pg_stat_user_tables" | "pg_stat_all_tables" | "pg_statio_user_tables" => {
            of_kind(catalog, columns, 'r')
        }
        _ => vec![],
    }
}

fn database(catalog: &Catalog, columns: &[Column]) -> Row {
    row(columns, |column| match column {
        "oid" => DATABASE_OID.into(),
        "datname" => catalog.database.name.as_str().into(),
        "datdba" => OWNER_OID.into(),
        "encoding" => Value::Int(UTF8),
        "datlocprovider" => "c".into(),
        "datistemplate" | "dathasloginevt" => false.into(),
        "datallowconn" => true.into(),
        "datconnlimit" => Value::Int(-1),
        "datfrozenxid" | "datminmxid" => Value::Int(0),
        "dattablespace" => Value::Int(PG_DEFAULT),
        "datcollate" | "datctype" => "C".into(),
        _ => Value::Null,
    })
}

fn all_roles(catalog: &Catalog, columns: &[Column], which: fn(&Role) -> bool) -> Vec<Row> {
    let roles = catalog.database.roles.iter().filter(|role| which(role));
    let line = |role: &Role| {
        row(columns, |column| match column {
            "oid" | "usesysid" | "grosysid" => role.oid.into(),
            "rolname" | "usename" | "groname" => role.name.as_str().into(),
            "rolsuper" | "rolcreaterole" | "rolcreatedb" | "rolbypassrls" | "usesuper"
            | "usecreatedb" | "usebypassrls" => role.superuser.into(),
            "rolinherit" => true.into(),
            "rolcanlogin" => role.can_login.into(),
            "rolreplication" | "userepl" => false.into(),
            "rolconnlimit" => Value::Int(-1),
            "passwd" => "********".into(),
            "rolpassword" if columns.iter().any(|c| c.name == "rolconfig") => "********".into(),
            _ => Value::Null,
        })
    };
    roles.map(line).collect()
}

fn members(catalog: &Catalog, columns: &[Column]) -> Vec<Row> {
    let mut rows = vec![];
    for role in &catalog.database.roles {
        for of in &role.member_of {
            rows.push(row(columns, |column| match column {
                "roleid" => (*of).into(),
                "member" => role.oid.into(),
                "grantor" => OWNER_OID.into(),
                "admin_option" => false.into(),
                "inherit_option" | "set_option" => true.into(),
                _ => Value::Null,
            }));
        }
    }
    rows
}

fn settings(catalog: &Catalog, columns: &[Column]) -> Vec<Row> {
    let line = |setting: &crate::database::Setting| {
        row(columns, |column| match column {
            "name" => setting.name.as_str().into(),
            "setting" => setting.value.as_str().into(),
            "boot_val" | "reset_val" => setting.default.as_str().into(),
            "short_desc" => setting.description.as_str().into(),
            "category" => "Client Connection Defaults".into(),
            "context" => "user".into(),
            "vartype" => match setting.value.as_str() {
                "on" | "off" => "bool",
                value if value.parse::<i64>().is_ok() => "integer",
                _ => "string",
            }
            .into(),
            "source" if setting.value == setting.default => "default".into(),
            "source" => "session".into(),
            "pending_restart" => false.into(),
            _ => Value::Null,
        })
    };
    catalog.database.settings.iter().map(line).collect()
}

fn activity(catalog: &Catalog, columns: &[Column]) -> Vec<Row> {
    let role = |name: &str| catalog.database.roles.iter().find(|r| r.name == name).map(|r| r.oid);
    let line = |session: &crate::database::Activity| {
        row(columns, |column| match column {
            "datid" => DATABASE_OID.into(),
            "datname" => catalog.database.name.as_str().into(),
            "pid" => session.pid.into(),
            "usesysid" => role(&session.user).into(),
            "usename" => session.user.as_str().into(),
            "application_name" => session.application.as_str().into(),
            "query_start" | "state_change" | "xact_start" | "backend_start" => {
                session.started_us.into()
            }
            "state" => session.state.as_str().into(),
            "query" => session.query.as_str().into(),
            "backend_type" => "client backend".into(),
            _ => Value::Null,
        })
    };
    catalog.database.activity.iter().map(line).collect()
}

fn stat_database(catalog: &Catalog, columns: &[Column]) -> Row {
    row(columns, |column| match column {
        "datid" => DATABASE_OID.into(),
        "datname" => catalog.database.name.as_str().into(),
        "numbackends" => Value::Int(catalog.database.activity.len() as i64),
        "stats_reset" => Value::Null,
        _ => Value::Int(0),
    })
}

/// `pg_tables`, `pg_views` and the statistics of tables have columns of the same names.
fn of_kind(catalog: &Catalog, columns: &[Column], kind: char) -> Vec<Row> {
    let owner = owner(catalog);
    let found = tables(catalog).filter(|(_, table)| table.kind == kind);
    found
        .map(|(schema, table)| {
            row(columns, |column| match column {
                "schemaname" => schema.name.as_str().into(),
                "tablename" | "viewname" | "relname" => table.name.as_str().into(),
                "tableowner" | "viewowner" => owner.clone(),
                "hasindexes" | "hasrules" | "hastriggers" | "rowsecurity" => false.into(),
                "definition" => table.definition.as_deref().into(),
                "relid" => table.oid.into(),
                "n_live_tup" => Value::Int(table.rows.unwrap_or(0) as i64),
                "seq_scan" | "seq_tup_read" | "idx_scan" | "idx_tup_fetch" | "n_tup_ins"
                | "n_tup_upd" | "n_tup_del" | "n_tup_hot_upd" | "n_dead_tup" | "heap_blks_read"
                | "heap_blks_hit" => Value::Int(0),
                _ => Value::Null,
            })
        })
        .collect()
}
