//! `information_schema` in PostgreSQL's columns. Relations that are not named are empty.

use super::{row, tables};
use crate::database::{Catalog, INFORMATION_SCHEMA, PG_CATALOG, Schema, Table, TableColumn};
use crate::relation::Column;
use crate::types::{self, Class};
use crate::value::{Row, Value};

pub fn rows(catalog: &Catalog, name: &str, columns: &[Column]) -> Vec<Row> {
    let database = || Value::from(catalog.database.name.as_str());
    let owner = super::owner(catalog);
    match name {
        "information_schema_catalog_name" => vec![row(columns, |_| database())],
        "schemata" => {
            let own = [PG_CATALOG, INFORMATION_SCHEMA];
            let users = catalog.database.schemas.iter().map(|s| s.name.as_str());
            let line = |schema: &str| {
                row(columns, |column| match column {
                    "catalog_name" => database(),
                    "schema_name" => schema.into(),
                    "schema_owner" => owner.clone(),
                    _ => Value::Null,
                })
            };
            own.into_iter().chain(users).map(line).collect()
        }
        "tables" => tables(catalog)
            .map(|(schema, table)| {
                row(columns, |column| match column {
                    "table_catalog" => database(),
                    "table_schema" => schema.name.as_str().into(),
                    "table_name" => table.name.as_str().into(),
                    "table_type" => match table.kind {
                        'v' => "VIEW",
                        'f' => "FOREIGN",
                        _ => "BASE TABLE",
                    }
                    .into(),
                    "is_insertable_into" => yes(table.kind == 'r'),
                    "is_typed" => "NO".into(),
                    _ => Value::Null,
                })
            })
            .collect(),
        "views" => tables(catalog)
            .filter(|(_, table)| table.kind == 'v')
            .map(|(schema, table)| {
                row(columns, |column| match column {
                    "table_catalog" => database(),
                    "table_schema" => schema.name.as_str().into(),
                    "table_name" => table.name.as_str().into(),
                    "view_definition" => table.definition.as_deref().into(),
                    "check_option" => "NONE".into(),
                    _ => "NO".into(),
                })
            })
            .collect(),
        "columns" => tables(catalog)
            .flat_map(|(schema, table)| {
                let each = table.columns.iter().zip(1i64..);
                each.map(move |(of, number)| (schema, table, of, number))
            })
            .map(|(schema, table, of, number)| {
                row(columns, |column| column_value(catalog, schema, table, of, number, column))
            })
            .collect(),
        "table_privileges" | "role_table_grants" => tables(catalog)
            .flat_map(|(schema, table)| {
                let kept = if table.kind == 'r' { PRIVILEGES } else { &["SELECT"] };
                kept.iter().map(move |privilege| (schema, table, *privilege))
            })
            .map(|(schema, table, privilege)| {
                row(columns, |column| match column {
                    "grantor" | "grantee" => owner.clone(),
                    "table_catalog" => database(),
                    "table_schema" => schema.name.as_str().into(),
                    "table_name" => table.name.as_str().into(),
                    "privilege_type" => privilege.into(),
                    "is_grantable" => "YES".into(),
                    "with_hierarchy" => yes(privilege == "SELECT"),
                    _ => Value::Null,
                })
            })
            .collect(),
        _ => vec![],
    }
}

/// What can be done with a table.
const PRIVILEGES: &[&str] = &["INSERT", "SELECT", "UPDATE", "DELETE", "TRUNCATE"];

fn yes(is: bool) -> Value {
    if is { "YES" } else { "NO" }.into()
}

fn column_value(
    catalog: &Catalog,
    schema: &Schema,
    table: &Table,
    of: &TableColumn,
    number: i64,
    column: &str,
) -> Value {
    let class = types::class(of.oid);
    match column {
        "table_catalog" | "udt_catalog" => catalog.database.name.as_str().into(),
        "table_schema" => schema.name.as_str().into(),
        "table_name" => table.name.as_str().into(),
        "column_name" => of.name.as_str().into(),
        "ordinal_position" => number.into(),
        "dtd_identifier" => number.to_string().into(),
        "column_default" => of.default.as_deref().into(),
        "is_nullable" => yes(!of.not_null),
        "data_type" if class == Class::Array => "ARRAY".into(),
        // Precision has columns of its own.
        "data_type" => types::shown(of.oid, -1).into(),
        "udt_schema" => PG_CATALOG.into(),
        "udt_name" => types::name(of.oid).into(),
        "character_octet_length" if matches!(of.oid, types::TEXT | types::VARCHAR) => {
            Value::Int(1 << 30)
        }
        "numeric_precision" => match of.oid {
            types::INT2 => Value::Int(16),
            types::INT4 => Value::Int(32),
            types::INT8 => Value::Int(64),
            types::FLOAT4 => Value::Int(24),
            types::FLOAT8 => Value::Int(53),
            types::NUMERIC if of.typmod >= 4 => Value::Int(((of.typmod - 4) >> 16).into()),
            _ => Value::Null,
        },
        "numeric_precision_radix" => match of.oid {
            types::INT2 | types::INT4 | types::INT8 | types::FLOAT4 | types::FLOAT8 => {
                Value::Int(2)
            }
            types::NUMERIC => Value::Int(10),
            _ => Value::Null,
        },
        "numeric_scale" => match of.oid {
            types::INT2 | types::INT4 | types::INT8 => Value::Int(0),
            types::NUMERIC if of.typmod >= 4 => Value::Int(((of.typmod - 4) & 0x7ff).into()),
            _ => Value::Null,
        },
        "datetime_precision" => match of.oid {
            types::DATE => Value::Int(0),
            types::TIME | types::TIMESTAMP | types::TIMESTAMPTZ | types::INTERVAL => Value::Int(6),
            _ => Value::Null,
        },
        "is_self_referencing" | "is_identity" | "identity_cycle" => "NO".into(),
        "is_generated" => "NEVER".into(),
        "is_updatable" => yes(table.kind == 'r'),
        _ => Value::Null,
    }
}
