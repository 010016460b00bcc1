//! What the catalog says of an object.

use thalweg_base::{Error, Result};

use super::session::size_pretty;
use super::{ANY, Form, form, integer, string};
use crate::query::expr::Context;
use crate::relation::{Lookup, Privilege};
use crate::text;
use crate::types::*;
use crate::value::Value;

pub(super) const FORMS: &[Form] = &[
    form("format_type", &[OID, INT4], TEXT, format_type).with_nulls(),
    form("pg_get_userbyid", &[OID], NAME, user_by_id),
    form("pg_table_is_visible", &[OID], BOOL, |c, a, _| visible(c, a, "pg_class", "rel")),
    form("pg_type_is_visible", &[OID], BOOL, |c, a, _| visible(c, a, "pg_type", "typ")),
    form("pg_function_is_visible", &[OID], BOOL, |c, a, _| visible(c, a, "pg_proc", "pro")),
    form("pg_operator_is_visible", &[OID], BOOL, |c, a, _| visible(c, a, "pg_operator", "opr")),
    form("pg_opclass_is_visible", &[OID], BOOL, |c, a, _| visible(c, a, "pg_opclass", "opc")),
    form("pg_opfamily_is_visible", &[OID], BOOL, |c, a, _| visible(c, a, "pg_opfamily", "opf")),
    form("pg_collation_is_visible", &[OID], BOOL, |c, a, _| visible(c, a, "pg_collation", "coll")),
    form("pg_conversion_is_visible", &[OID], BOOL, |c, a, _| visible(c, a, "pg_conversion", "con")),
    form("pg_ts_config_is_visible", &[OID], BOOL, |c, a, _| visible(c, a, "pg_ts_config", "cfg")),
    form("pg_ts_dict_is_visible", &[OID], BOOL, |c, a, _| visible(c, a, "pg_ts_dict", "dict")),
    form("pg_ts_parser_is_visible", &[OID], BOOL, |c, a, _| visible(c, a, "pg_ts_parser", "prs")),
    form("pg_ts_template_is_visible", &[OID], BOOL, |c, a, _| {
        visible(c, a, "pg_ts_template", "tmpl")
    }),
    form("pg_statistics_obj_is_visible", &[OID], BOOL, |_, _, _| Ok(false.into())),
    form("obj_description", &[OID, NAME], TEXT, description).required(1),
    form("shobj_description", &[OID, NAME], TEXT, nothing),
    form("col_description", &[OID, INT4], TEXT, column_description),
    form("pg_get_expr", &[ANY, OID, BOOL], TEXT, |_, a, _| Ok(a[0].clone())).required(2),
    form("pg_get_viewdef", &[REGCLASS, ANY], TEXT, view_definition).required(1),
    form("pg_get_constraintdef", &[OID, BOOL], TEXT, nothing).required(1),
    form("pg_get_indexdef", &[OID, INT4, BOOL], TEXT, nothing).required(1),
    form("pg_get_ruledef", &[OID, BOOL], TEXT, nothing).required(1),
    form("pg_get_triggerdef", &[OID, BOOL], TEXT, nothing).required(1),
    form("pg_get_functiondef", &[OID], TEXT, function_definition),
    form("pg_get_function_sqlbody", &[OID], TEXT, nothing),
    form("pg_get_function_arguments", &[OID], TEXT, function_arguments),
    form("pg_get_function_identity_arguments", &[OID], TEXT, function_arguments),
    form("pg_get_function_result", &[OID], TEXT, function_result),
    form("pg_get_function_arg_default", &[OID, INT4], TEXT, nothing),
    form("pg_get_partkeydef", &[OID], TEXT, nothing),
    form("pg_get_partition_constraintdef", &[OID], TEXT, nothing),
    form("pg_get_statisticsobjdef", &[OID], TEXT, nothing),
    form("pg_get_statisticsobjdef_columns", &[OID], TEXT, nothing),
    form("pg_get_serial_sequence", &[TEXT, TEXT], TEXT, nothing),
    form("pg_get_replica_identity_index", &[REGCLASS], REGCLASS, nothing),
    form("pg_relation_size", &[REGCLASS, TEXT], INT8, stored_bytes).required(1),
    form("pg_total_relation_size", &[REGCLASS], INT8, stored_bytes),
    form("pg_table_size", &[REGCLASS], INT8, stored_bytes),
    form("pg_indexes_size", &[REGCLASS], INT8, zero),
    form("pg_database_size", &[ANY], INT8, database_bytes),
    form("pg_tablespace_size", &[ANY], INT8, database_bytes),
    form("pg_tablespace_location", &[OID], TEXT, |_, _, _| Ok("".into())),
    form("pg_relation_filenode", &[REGCLASS], OID, nothing),
    form("pg_relation_filepath", &[REGCLASS], TEXT, nothing),
    form("pg_size_pretty", &[INT8], TEXT, size_pretty),
    form("pg_encoding_to_char", &[INT4], NAME, |_, a, _| {
        Ok(if integer(&a[0]) == UTF8 { "UTF8" } else { "" }.into())
    }),
    form("pg_char_to_encoding", &[NAME], INT4, |_, a, _| {
        let name = string(&a[0]).replace(['-', '_'], "");
        Ok(Value::Int(if name.eq_ignore_ascii_case("utf8") { UTF8 } else { -1 }))
    }),
    form("pg_relation_is_publishable", &[REGCLASS], BOOL, |_, _, _| Ok(false.into())),
    form("pg_relation_is_updatable", &[REGCLASS, BOOL], INT4, updatable),
    form("pg_column_is_updatable", &[REGCLASS, INT2, BOOL], BOOL, |c, a, t| {
        Ok((updatable(c, a, t)?.as_int() != Some(0)).into())
    }),
    form("pg_stat_get_numscans", &[OID], INT8, zero),
    form("pg_stat_get_tuples_returned", &[OID], INT8, zero),
    form("pg_stat_get_live_tuples", &[OID], INT8, live_rows),
    form("pg_stat_get_dead_tuples", &[OID], INT8, zero),
    form("pg_index_has_property", &[REGCLASS, TEXT], BOOL, nothing),
    form("pg_index_column_has_property", &[REGCLASS, INT4, TEXT], BOOL, nothing),
    form("pg_indexam_has_property", &[OID, TEXT], BOOL, nothing),
    form("pg_typeof", &[ANY], REGTYPE, |_, _, t| Ok(t[0].into())).with_nulls(),
    form("pg_collation_for", &[ANY], TEXT, |_, _, _| Ok("\"default\"".into())),
    form("age", &[XID], INT4, |_, _, _| Ok(Value::Int(0))),
    form("mxid_age", &[XID], INT4, |_, _, _| Ok(Value::Int(0))),
    form("acldefault", &[CHAR, OID], 1034, nothing),
    form("pg_has_role", &[ANY, ANY, TEXT], BOOL, has_role).required(2),
    form("has_table_privilege", &[ANY, ANY, TEXT], BOOL, |c, a, t| {
        privilege(c, a, t, REGCLASS, Privilege::Relation)
    })
    .required(2),
    form("has_any_column_privilege", &[ANY, ANY, TEXT], BOOL, |c, a, t| {
        privilege(c, a, t, REGCLASS, Privilege::Relation)
    })
    .required(2),
    form("has_sequence_privilege", &[ANY, ANY, TEXT], BOOL, |c, a, t| {
        privilege(c, a, t, REGCLASS, Privilege::Relation)
    })
    .required(2),
    form("has_column_privilege", &[ANY, ANY, ANY, TEXT], BOOL, column_privilege).required(3),
    form("has_schema_privilege", &[ANY, ANY, TEXT], BOOL, |c, a, t| {
        privilege(c, a, t, REGNAMESPACE, Privilege::Schema)
    })
    .required(2),
    form("has_database_privilege", &[ANY, ANY, TEXT], BOOL, |c, a, t| {
        privilege(c, a, t, OID, Privilege::Database)
    })
    .required(2),
    form("_pg_char_max_length", &[OID, INT4], INT4, |_, a, _| {
        let (oid, typmod) = (integer(&a[0]), integer(&a[1]));
        let is_text = oid == i64::from(VARCHAR) || oid == i64::from(BPCHAR);
        Ok(if is_text && typmod > 0 { Value::Int(typmod - 4) } else { Value::Null })
    }),
];

/// PostgreSQL's number of the encoding.
const UTF8: i64 = 6;

fn nothing(_: &Context, _: &[Value], _: &[Oid]) -> Result<Value> {
    Ok(Value::Null)
}

fn zero(_: &Context, _: &[Value], _: &[Oid]) -> Result<Value> {
    Ok(Value::Int(0))
}

fn oid_of(value: &Value) -> Oid {
    value.as_int().and_then(|n| Oid::try_from(n).ok()).unwrap_or(0)
}

fn format_type(ctx: &Context, arguments: &[Value], _: &[Oid]) -> Result<Value> {
    let Some(oid) = arguments[0].as_int() else { return Ok(Value::Null) };
    let typmod = arguments[1].as_int().and_then(|n| i32::try_from(n).ok()).unwrap_or(-1);
    if oid == 0 {
        return Ok("-".into());
    }
    Ok(text::type_name(oid, typmod, ctx.env)?.unwrap_or("???".into()).into())
}

fn user_by_id(ctx: &Context, arguments: &[Value], _: &[Oid]) -> Result<Value> {
    Ok(match ctx.env.find("pg_authid", "oid", &arguments[0], "rolname")? {
        Value::Null => format!("unknown (OID={})", integer(&arguments[0])).into(),
        name => name,
    })
}

/// Whether the name without its schema finds it.
fn visible(ctx: &Context, arguments: &[Value], relation: &str, prefix: &str) -> Result<Value> {
    let column = format!("{prefix}namespace");
    let namespace = ctx.env.find(relation, "oid", &arguments[0], &column)?;
    if namespace.is_null() {
        return Ok(Value::Null);
    }
    let schema = ctx.env.find("pg_namespace", "oid", &namespace, "nspname")?;
    let Some(schema) = schema.as_text() else { return Ok(Value::Null) };
    if schema == "pg_catalog" {
        return Ok(true.into());
    }
    if !text::is_on_path(schema, ctx.env) {
        return Ok(false.into());
    }
    // One earlier on the path may have the name.
    let name_column = format!("{prefix}name");
    let name = ctx.env.find(relation, "oid", &arguments[0], &name_column)?;
    let path = std::iter::once("pg_catalog".to_string()).chain(ctx.env.search_path());
    for earlier in path.take_while(|s| s != schema) {
        let earlier = ctx.env.find("pg_namespace", "nspname", &earlier.into(), "oid")?;
        let keys = [(name_column.as_str(), name.clone()), (column.as_str(), earlier)];
        if !ctx.env.find_by(relation, keys, "oid")?.is_null() {
            return Ok(false.into());
        }
    }
    Ok(true.into())
}

fn description(ctx: &Context, arguments: &[Value], _: &[Oid]) -> Result<Value> {
    let class = match arguments.get(1) {
        None => return ctx.env.find("pg_description", "objoid", &arguments[0], "description"),
        Some(name) => text::alias_oid(string(name), REGCLASS, ctx.env)?.unwrap_or(Value::Null),
    };
    let keys = [("objoid", arguments[0].clone()), ("classoid", class)];
    ctx.env.find_by("pg_description", keys, "description")
}

fn column_description(ctx: &Context, arguments: &[Value], _: &[Oid]) -> Result<Value> {
    let keys = [("objoid", arguments[0].clone()), ("objsubid", arguments[1].clone())];
    ctx.env.find_by("pg_description", keys, "description")
}

fn view_definition(ctx: &Context, arguments: &[Value], _: &[Oid]) -> Result<Value> {
    let definition = ctx.env.definition(oid_of(&arguments[0]));
    Ok(definition.map(|text| text.trim_end_matches(';').to_string() + ";").into())
}

fn function_definition(_: &Context, _: &[Value], _: &[Oid]) -> Result<Value> {
    Err(Error::unsupported("functions are built in: they have no definition to show"))
}

fn function_arguments(ctx: &Context, arguments: &[Value], _: &[Oid]) -> Result<Value> {
    let types = ctx.env.find("pg_proc", "oid", &arguments[0], "proargtypes")?;
    let Some(types) = types.as_array() else { return Ok(Value::Null) };
    let mut names = vec![];
    for oid in types {
        names.push(text::type_name(integer(oid), -1, ctx.env)?.unwrap_or("???".into()));
    }
    Ok(names.join(", ").into())
}

fn function_result(ctx: &Context, arguments: &[Value], _: &[Oid]) -> Result<Value> {
    let result = ctx.env.find("pg_proc", "oid", &arguments[0], "prorettype")?;
    let Some(oid) = result.as_int() else { return Ok(Value::Null) };
    let is_set = ctx.env.find("pg_proc", "oid", &arguments[0], "proretset")?.is_true();
    let name = text::type_name(oid, -1, ctx.env)?.unwrap_or("???".into());
    Ok(if is_set { format!("SETOF {name}") } else { name }.into())
}

fn stored_bytes(ctx: &Context, arguments: &[Value], _: &[Oid]) -> Result<Value> {
    let oid = oid_of(&arguments[0]);
    if ctx.env.find("pg_class", "oid", &arguments[0], "oid")?.is_null() {
        return Ok(Value::Null);
    }
    Ok(Value::Int(ctx.env.stored_bytes(oid).unwrap_or(0) as i64))
}

fn database_bytes(ctx: &Context, _: &[Value], _: &[Oid]) -> Result<Value> {
    let Some(classes) = ctx.env.relation("pg_catalog", "pg_class")? else { return Ok(Value::Null) };
    let bytes = classes.rows.iter().filter_map(|row| ctx.env.stored_bytes(oid_of(&row[0])));
    Ok(Value::Int(bytes.sum::<u64>() as i64))
}

fn live_rows(ctx: &Context, arguments: &[Value], _: &[Oid]) -> Result<Value> {
    let rows = ctx.env.find("pg_class", "oid", &arguments[0], "reltuples")?;
    Ok(Value::Int(rows.as_int().unwrap_or(0).max(0)))
}

/// Bits for INSERT, UPDATE and DELETE: of tables all, of views none.
fn updatable(ctx: &Context, arguments: &[Value], _: &[Oid]) -> Result<Value> {
    let kind = ctx.env.find("pg_class", "oid", &arguments[0], "relkind")?;
    Ok(Value::Int(if kind.as_text() == Some("r") { 28 } else { 0 }))
}

fn has_role(ctx: &Context, arguments: &[Value], types: &[Oid]) -> Result<Value> {
    let (user, role) = match arguments.len() {
        2 => (ctx.env.user().to_string(), 0),
        _ => (role_name(ctx, &arguments[0], types[0])?, 1),
    };
    let role = role_name(ctx, &arguments[role], types[role])?;
    let is_member = |c: &Context| -> Result<bool> {
        let found = c.env.find("pg_authid", "rolname", &user.as_str().into(), "rolsuper")?;
        Ok(found.is_true() || user == role)
    };
    Ok(is_member(ctx)?.into())
}

fn role_name(ctx: &Context, value: &Value, oid: Oid) -> Result<String> {
    match value {
        Value::Text(name) => Ok(name.to_string()),
        _ => super::text_of(ctx, value, if oid == OID { REGROLE } else { oid }),
    }
}

/// `(table, privilege)` or `(user, table, privilege)`; each by its name or OID.
fn privilege(
    ctx: &Context,
    arguments: &[Value],
    types: &[Oid],
    alias: Oid,
    what: Privilege,
) -> Result<Value> {
    let user = match arguments.len() {
        3 => Some(role_name(ctx, &arguments[0], types[0])?),
        _ => None,
    };
    let on = &arguments[arguments.len() - 2];
    let on = match on {
        Value::Text(name) if alias != OID => match text::alias_oid(name, alias, ctx.env)? {
            Some(oid) => oid_of(&oid),
            None => return text::parse(name, alias, ctx.env),
        },
        other => oid_of(other),
    };
    let privileges = string(&arguments[arguments.len() - 1]);
    let any = privileges.split(',').map(str::trim);
    Ok(any.into_iter().any(|p| ctx.env.may(user.as_deref(), what, on, p)).into())
}

fn column_privilege(ctx: &Context, arguments: &[Value], types: &[Oid]) -> Result<Value> {
    let mut arguments = arguments.to_vec();
    let mut types = types.to_vec();
    // The column does not decide.
    let column = arguments.len() - 2;
    arguments.remove(column);
    types.remove(column);
    privilege(ctx, &arguments, &types, REGCLASS, Privilege::Relation)
}
