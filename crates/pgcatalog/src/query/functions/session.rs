//! Who asks, and what of.

use thalweg_base::{Error, Result};

use super::{Form, form, integer, string};
use crate::query::expr::Context;
use crate::types::*;
use crate::value::Value;

/// What drivers parse, and take as the version whose catalog this is.
pub const SERVER_VERSION: &str = "16.6";
pub const SERVER_VERSION_NUM: &str = "160006";

const NAMES: Oid = 1003;

pub(super) const FORMS: &[Form] = &[
    form("current_database", &[], NAME, |c, _, _| Ok(c.env.database().into())),
    form("current_catalog", &[], NAME, |c, _, _| Ok(c.env.database().into())),
    form("current_schema", &[], NAME, |c, _, _| Ok(first_schema(c).into())),
    form("current_schemas", &[BOOL], NAMES, current_schemas),
    form("current_user", &[], NAME, user),
    form("session_user", &[], NAME, user),
    form("current_role", &[], NAME, user),
    form("user", &[], NAME, user),
    form("version", &[], TEXT, |_, _, _| {
        let name = concat!("Thalweg ", env!("CARGO_PKG_VERSION"));
        Ok(format!("PostgreSQL {SERVER_VERSION} ({name})").into())
    }),
    form("pg_backend_pid", &[], INT4, |c, _, _| Ok(c.env.backend_pid().into())),
    form("pg_postmaster_start_time", &[], TIMESTAMPTZ, |c, _, _| Ok(c.env.started_us().into())),
    form("pg_conf_load_time", &[], TIMESTAMPTZ, |c, _, _| Ok(c.env.started_us().into())),
    form("pg_is_in_recovery", &[], BOOL, no),
    form("pg_is_wal_replay_paused", &[], BOOL, no),
    form("pg_my_temp_schema", &[], OID, |_, _, _| Ok(Value::Int(0))),
    form("pg_is_other_temp_schema", &[OID], BOOL, no),
    form("pg_client_encoding", &[], NAME, |_, _, _| Ok("UTF8".into())),
    form("getdatabaseencoding", &[], NAME, |_, _, _| Ok("UTF8".into())),
    form("inet_server_addr", &[], INET, null),
    form("inet_server_port", &[], INT4, null),
    form("inet_client_addr", &[], INET, null),
    form("inet_client_port", &[], INT4, null),
    form("pg_current_wal_lsn", &[], PG_LSN, null),
    form("pg_last_wal_receive_lsn", &[], PG_LSN, null),
    form("pg_last_wal_replay_lsn", &[], PG_LSN, null),
    form("txid_current", &[], INT8, |_, _, _| Ok(Value::Int(1))),
    form("pg_current_xact_id_if_assigned", &[], XID8, null),
    form("txid_current_if_assigned", &[], INT8, null),
    form("current_setting", &[TEXT, BOOL], TEXT, current_setting).required(1),
    form("set_config", &[TEXT, TEXT, BOOL], TEXT, set_config).with_nulls(),
    form("pg_advisory_lock", &[ANY_INT, ANY_INT], VOID, no_locks).required(1),
    form("pg_try_advisory_lock", &[ANY_INT, ANY_INT], BOOL, no_locks).required(1),
    form("pg_advisory_unlock", &[ANY_INT, ANY_INT], BOOL, no_locks).required(1),
    form("pg_advisory_xact_lock", &[ANY_INT, ANY_INT], VOID, no_locks).required(1),
    form("pg_try_advisory_xact_lock", &[ANY_INT, ANY_INT], BOOL, no_locks).required(1),
    form("pg_advisory_lock_shared", &[ANY_INT, ANY_INT], VOID, no_locks).required(1),
    // Releases what is not there.
    form("pg_advisory_unlock_all", &[], VOID, null),
    form("pg_notify", &[TEXT, TEXT], VOID, |_, _, _| {
        Err(Error::unsupported("NOTIFY is not supported")
            .hint("there are no channels; poll a table instead"))
    }),
    form("pg_sleep", &[FLOAT8], VOID, |_, _, _| {
        Err(Error::unsupported("pg_sleep is not supported").hint("wait in the client"))
    }),
    form("pg_cancel_backend", &[INT4], BOOL, no_signals),
    form("pg_terminate_backend", &[INT4], BOOL, no_signals),
    form("has_function_privilege", PRIVILEGE, BOOL, yes).required(2),
    form("has_type_privilege", PRIVILEGE, BOOL, yes).required(2),
    form("has_language_privilege", PRIVILEGE, BOOL, yes).required(2),
    form("has_tablespace_privilege", PRIVILEGE, BOOL, no).required(2),
    form("has_server_privilege", PRIVILEGE, BOOL, no).required(2),
    form("has_foreign_data_wrapper_privilege", PRIVILEGE, BOOL, no).required(2),
    form("has_parameter_privilege", PRIVILEGE, BOOL, yes).required(2),
    form("row_security_active", &[super::ANY], BOOL, no),
];

const PRIVILEGE: &[Oid] = &[super::ANY, super::ANY, TEXT];
const ANY_INT: Oid = INT8;

fn user(ctx: &Context, _: &[Value], _: &[Oid]) -> Result<Value> {
    Ok(ctx.env.user().into())
}

fn yes(_: &Context, _: &[Value], _: &[Oid]) -> Result<Value> {
    Ok(true.into())
}

fn no(_: &Context, _: &[Value], _: &[Oid]) -> Result<Value> {
    Ok(false.into())
}

fn null(_: &Context, _: &[Value], _: &[Oid]) -> Result<Value> {
    Ok(Value::Null)
}

fn first_schema(ctx: &Context) -> Option<String> {
    ctx.env.search_path().into_iter().next()
}

fn current_schemas(ctx: &Context, arguments: &[Value], _: &[Oid]) -> Result<Value> {
    let implicit = arguments[0].is_true().then(|| "pg_catalog".to_string());
    Ok(Value::array(implicit.into_iter().chain(ctx.env.search_path()).map(Value::from)))
}

fn no_locks(_: &Context, _: &[Value], _: &[Oid]) -> Result<Value> {
    Err(Error::unsupported("advisory locks are not supported")
        .hint("transactions run on snapshots: one that conflicts with another fails at its COMMIT"))
}

fn no_signals(_: &Context, _: &[Value], _: &[Oid]) -> Result<Value> {
    Err(Error::unsupported("backends cannot be signalled by a function")
        .hint("SHOW QUERIES lists what runs; KILL QUERY 7 stops query 7"))
}

fn current_setting(ctx: &Context, arguments: &[Value], _: &[Oid]) -> Result<Value> {
    let name = string(&arguments[0]);
    match ctx.env.setting(name) {
        Some(value) => Ok(value.into()),
        None if arguments.get(1).is_some_and(Value::is_true) => Ok(Value::Null),
        None => Err(Error::user(format!("unrecognized configuration parameter \"{name}\""))
            .code("42704")
            .hint("SHOW ALL lists the settings")),
    }
}

fn set_config(ctx: &Context, arguments: &[Value], _: &[Oid]) -> Result<Value> {
    if arguments[0].is_null() {
        return Ok(Value::Null);
    }
    let value = string(&arguments[1]);
    ctx.env.set(string(&arguments[0]), value, arguments[2].is_true()).map(Value::from)
}

/// Bytes as `pg_size_pretty` shows them.
pub(super) fn size_pretty(_: &Context, arguments: &[Value], _: &[Oid]) -> Result<Value> {
    let bytes = integer(&arguments[0]);
    let (mut size, mut unit) = (bytes as f64, "bytes");
    for next in ["kB", "MB", "GB", "TB", "PB"] {
        if size.abs() < 10.0 * 1024.0 {
            break;
        }
        (size, unit) = (size / 1024.0, next);
    }
    Ok(format!("{} {unit}", size.round() as i64).into())
}
