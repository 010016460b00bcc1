//! Functions that give rows.

use thalweg_base::{Error, Result};

use super::{integer, string};
use crate::query::expr::Context;
use crate::types::{self, Oid};
use crate::value::{Row, Value};

type Run = fn(&Context, &[Value], &[Oid]) -> Result<Vec<Row>>;

#[derive(Clone)]
pub struct Set {
    pub run: Run,
    /// Name and type of what a row has.
    pub columns: Vec<(String, Oid)>,
    /// Of the arguments.
    pub types: Vec<Oid>,
}

/// Rows that one call may give.
const ROWS_MAX: i64 = 1_000_000;

pub fn exists(name: &str) -> bool {
    set(name, &[types::TEXT, types::TEXT]).is_some()
}

/// The function by its name, for arguments of these types.
pub fn set(name: &str, arguments: &[Oid]) -> Option<Set> {
    let first = arguments.first().copied().unwrap_or(types::TEXT);
    let element = types::element(first).unwrap_or(types::TEXT);
    let one = |oid: Oid| vec![(name.to_string(), oid)];
    let columns = |list: &[(&str, Oid)]| -> Vec<(String, Oid)> {
        list.iter().map(|(name, oid)| (name.to_string(), *oid)).collect()
    };
    let (columns, run): (_, Run) = match name {
        "unnest" => (one(element), |_, a, _| Ok(each(&a[0]).map(|v| vec![v]).collect())),
        "generate_subscripts" => (one(types::INT4), |_, a, t| {
            let first = types::first_subscript(t[0]);
            let count = a[0].as_array().map_or(0, <[Value]>::len) as i64;
            let count = if integer(&a[1]) == 1 { count } else { 0 };
            Ok((first..first + count).map(|n| vec![Value::Int(n)]).collect())
        }),
        "generate_series" => (one(if first == types::INT8 { first } else { types::INT4 }), series),
        "regexp_split_to_table" => (one(types::TEXT), |_, a, _| {
            let regex = regex::Regex::new(string(&a[1])).map_err(|e| {
                Error::user(format!("invalid regular expression: {e}")).code("2201B")
            })?;
            Ok(regex.split(string(&a[0])).map(|part| vec![part.into()]).collect())
        }),
        "string_to_table" => (one(types::TEXT), |_, a, _| {
            Ok(string(&a[0]).split(string(&a[1])).map(|part| vec![part.into()]).collect())
        }),
        "_pg_expandarray" => (columns(&[("x", element), ("n", types::INT4)]), |_, a, _| {
            Ok(each(&a[0]).zip(1i64..).map(|(value, n)| vec![value, n.into()]).collect())
        }),
        "aclexplode" => (
            columns(&[
                ("grantor", types::OID),
                ("grantee", types::OID),
                ("privilege_type", types::TEXT),
                ("is_grantable", types::BOOL),
            ]),
            |_, _, _| Ok(vec![]),
        ),
        "pg_options_to_table" => {
            (columns(&[("option_name", types::TEXT), ("option_value", types::TEXT)]), |_, _, _| {
                Ok(vec![])
            })
        }
        "pg_get_keywords" => (
            columns(&[
                ("word", types::TEXT),
                ("catcode", types::CHAR),
                ("barelabel", types::BOOL),
                ("catdesc", types::TEXT),
                ("baredesc", types::TEXT),
            ]),
            |ctx, _, _| {
                let keywords = ctx.env.relation("pg_catalog", "pg_get_keywords")?;
                Ok(keywords.map(|r| r.rows.clone()).unwrap_or_default())
            },
        ),
        "pg_partition_ancestors" => (one(types::REGCLASS), |_, a, _| Ok(vec![vec![a[0].clone()]])),
        "pg_partition_tree" => (
            columns(&[
                ("relid", types::REGCLASS),
                ("parentrelid", types::REGCLASS),
                ("isleaf", types::BOOL),
                ("level", types::INT4),
            ]),
            |_, _, _| Ok(vec![]),
        ),
        _ => return None,
    };
    Some(Set { run, columns, types: arguments.to_vec() })
}

fn each(value: &Value) -> impl Iterator<Item = Value> + '_ {
    value.as_array().unwrap_or(&[]).iter().cloned()
}

fn series(_: &Context, arguments: &[Value], _: &[Oid]) -> Result<Vec<Row>> {
    if arguments.iter().any(Value::is_null) {
        return Ok(vec![]);
    }
    let (from, to) = (integer(&arguments[0]), arguments.get(1).map_or(0, integer));
    let step = arguments.get(2).map_or(1, integer);
    if step == 0 {
        return Err(Error::user("step size cannot equal zero").code("22023"));
    }
    if to.abs_diff(from) / step.unsigned_abs() > ROWS_MAX as u64 {
        return Err(Error::resources(format!("a series has at most {ROWS_MAX} rows")));
    }
    let mut rows = vec![];
    let mut n = from;
    while (step > 0 && n <= to) || (step < 0 && n >= to) {
        rows.push(vec![Value::Int(n)]);
        n = match n.checked_add(step) {
            Some(next) => next,
            None => break,
        };
    }
    Ok(rows)
}
